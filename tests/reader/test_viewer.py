#!/usr/bin/env python3
"""Open traces in the page of `kvfate report --viewer`, in headless Chromium: by drag and drop and by its button, with the mouse and
with the keyboard.  What the page shows must equal the page that `kvfate report` makes of the same traces: headline, panels,
lines, pixels of every map and the text.  Files that are no trace, and damaged ones, get the sentence of the library.

usage: test_viewer.py KVFATE MAKE_REPORT_TRACE [--shots FOLDER]
"""
import argparse
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", name) for name in ("report", "format", "../python", "")]
import browser  # noqa: E402
import numpy as np  # noqa: E402
from write_kvf import Column, Writer  # noqa: E402
from page import HOSTILE, Case  # noqa: E402

SIZES = ((390, 844), (1100, 800), (2560, 1300))
OFFERED = "document.querySelector('#opener')?.hidden === false"
PANELS = "performance.getEntriesByName('kvfate-panels').length"
AXE = "import axe_playwright_python, os; print(os.path.join(os.path.dirname(axe_playwright_python.__file__), 'axe.min.js'))"
# What is shown, except the panels that a dropped trace lacks, and names of what only the made page has.
SHOWN = """(() => {
  const text = (q) => [...document.querySelectorAll(q)].map((n) => n.innerText);
  const panels = [...document.querySelectorAll('.panel')].filter((p) => p.id !== 'panel-tables');
  return { title: text('#title, #subtitle'), headline: text('#headline td, #headline th'), note: text('#map-note, #compared, #text-note, #legend'),
    panels: panels.map((p) => [p.id, p.innerText]), lines: panels.map((p) => [...p.querySelectorAll('path, rect')].map((n) => [n.getAttribute('d'), n.getAttribute('height'), n.getAttribute('fill')].join())),
    heads: text('.layer .name'), text: document.querySelector('#text').innerText.slice(0, 4000), shades: [...document.querySelectorAll('#text [class]')].slice(0, 3000).map((n) => n.className).join(' ') };
})()"""
PIXELS = "[...document.querySelectorAll('.thumb canvas, canvas.map')].map((c) => c.toDataURL())"
STILL = "(async () => { let last = ''; for (let k = 0; k < 60; k++) { const now = JSON.stringify(%s); if (now === last) return true; last = now; await new Promise((go) => setTimeout(go, 150)); } return false; })()" % PIXELS


class Window(browser.Browser):
    """A browser that keeps the parameters of its events."""

    def __init__(self, path):
        self.told = {}
        super().__init__(path)

    def note(self, message):
        self.told[message.get("method")] = message.get("params")
        super().note(message)

    def drop(self, *paths):
        data = {"items": [], "files": [os.path.abspath(p) for p in paths], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=300, y=300, data=data)

    def choose(self, press, *paths):
        """Gives files to the dialog that press() opens."""
        self.told.pop("Page.fileChooserOpened", None)
        self.call("Page.setInterceptFileChooserDialog", enabled=True)
        press()
        for _ in range(100):
            if "Page.fileChooserOpened" in self.told:
                break
            self.run("1")
        self.call("DOM.setFileInputFiles", files=[os.path.abspath(p) for p in paths], backendNodeId=self.told["Page.fileChooserOpened"]["backendNodeId"])

    def wait(self, panels):
        self.until(f"{PANELS} >= {panels}")
        self.run(STILL)


def shown(s, b, name):
    s.check(f"{name}: no error, no message and no request", not b.errors and not b.console and len(b.requests) <= 1, b.errors, b.console, b.requests)
    return {**b.run(SHOWN), "pixels": b.run(PIXELS)}


def compare(s, name, mine, made):
    for key in made:
        if mine[key] != made[key]:
            lists = isinstance(made[key], list) and len(made[key]) == len(mine[key])
            first = next((p for p in zip(mine[key], made[key]) if p[0] != p[1]), None) if lists else (str(mine[key])[:300], str(made[key])[:300])
            s.check(f"{name}: {key} equals that of the made page", False, *map(str, first))
        else:
            s.check(f"{name}: {key} equals that of the made page", True)


def look(s, b, shots, name):
    for width, height in SIZES:
        b.size(width, height)
        b.run("new Promise((go) => setTimeout(go, 300))")
        s.check(f"{name}: nothing is wider than {width} pixels", b.run("document.documentElement.scrollWidth <= innerWidth"), b.run("document.documentElement.scrollWidth"))
        if shots:
            b.screenshot(os.path.join(shots, f"{name}-{width}.png"), whole=width < 500)
    b.size(1400, 900)


def accessible(s, b, axe, name):
    if not axe:
        return
    b.run(f"(() => {{ {axe}; }})()")
    found = b.run("axe.run().then((r) => r.violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.target).join(' ')}`))", limit=120)
    s.check(f"{name}: axe-core finds no violation", not found, *found)


def check_equal(s, b, viewer, paths, name):
    """Opens the traces in the viewer and in the page made of them."""
    made = s.report(f"{name}.html", *paths, "--max-size", "100")
    b.open(made)
    b.wait(1)
    want = shown(s, b, f"{name}, made")
    b.open(viewer)
    b.until(OFFERED)
    b.drop(*paths)
    b.wait(1)
    compare(s, name, shown(s, b, name), want)
    if len(paths) > 1:  # the second trace, too
        for page in (made, viewer):
            b.open(page)
            if page == viewer:
                b.until(OFFERED)
                b.drop(*paths)
            b.wait(1)
            b.run("document.querySelector('#headline button[data-trace=\"1\"]').click()")
            b.wait(2)
            want = shown(s, b, f"{name}, second, made") if page == made else want
        compare(s, f"{name}, second trace", shown(s, b, f"{name}, second"), want)


def check_doors(s, b, viewer, path, more):
    """The button with the mouse and with the keyboard, more traces, and a page that has some already."""
    b.open(viewer)
    b.until(OFFERED)
    place = b.run("(() => { const r = document.querySelector('#opener button').getBoundingClientRect(); return [r.x + 9, r.y + 9]; })()")
    b.choose(lambda: b.click(*place), path)
    b.wait(1)
    s.check("the button opens a trace", b.run("document.title").startswith(os.path.basename(path)), b.run("document.title"))
    s.check("the address names the view", b.run("location.hash").startswith("#trace=1&"), b.run("location.hash"))
    b.drop(more)
    b.until("document.querySelectorAll('#headline tbody tr').length === 2")
    b.wait(2)
    s.check("a second trace is added and shown", b.run("document.title").startswith(os.path.basename(more)))
    b.open(viewer)
    b.until(OFFERED)
    for _ in range(6):
        if b.run("document.activeElement.textContent") == "Open traces":
            break
        b.key("Tab")
        b.call("Input.dispatchKeyEvent", type="keyDown", key="Tab", code="Tab", windowsVirtualKeyCode=9)
        b.call("Input.dispatchKeyEvent", type="keyUp", key="Tab", code="Tab", windowsVirtualKeyCode=9)
    s.check("the keyboard reaches the button", b.run("document.activeElement.textContent") == "Open traces", b.run("document.activeElement.outerHTML"))

    def enter():
        for kind in ("rawKeyDown", "char", "keyUp"):
            b.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r", windowsVirtualKeyCode=13)
    b.choose(enter, path, more)
    b.until("document.querySelectorAll('#headline tbody tr').length === 2")
    b.wait(1)
    made = s.report("open.html", path)
    b.open(made)
    b.wait(1)
    b.drop(more)
    b.until("document.querySelectorAll('#headline tbody tr').length === 2")
    b.wait(2)
    s.check("a trace is added to a made page", b.run("document.title").startswith(os.path.basename(more)) and not b.errors, b.errors)


def check_unfinished(s, b, viewer):
    """An unfinished trace with its tail, and without it."""
    columns, T = [Column("tokens.id", 4), Column("tokens.role", 1), Column("evict_step", 3, 1)], 45
    for name, steps, first in (("x.kvf.unfinished", 30, 0), ("x.kvf.tail", T, 20)):
        w = Writer(s.path(name), b'{"run":{"prompt_tokens":9}}', [(1, 1)], columns)
        w.texts(first, [b" t%d" % i for i in range(first, steps)])
        for c, values in enumerate((np.arange(T, dtype="<i4"), np.zeros(T, "<u1"), np.full(T, 0xFFFFFFFF, "<u4"))):
            w.chunk(c, 0, 0, first, 0, values[first:steps].reshape(1, -1), 2)
        w.commit(1, steps)
        w.leave() if name.endswith("unfinished") else w.close()
    for names, tokens in ((["x.kvf.unfinished", "x.kvf.tail"], T), (["x.kvf.unfinished"], 30)):
        b.open(viewer)
        b.until(OFFERED)
        b.drop(*map(s.path, names))
        b.wait(1)
        title, note = b.run("[document.querySelector('#subtitle').textContent, document.querySelector('#opened').textContent]")
        s.check(f"{' and '.join(names)}: {tokens} tokens", f"{tokens} tokens" in title, title)
        s.check(f"{' and '.join(names)}: the page says that it was not closed", note == f"x.kvf.unfinished was not closed: this page shows its last snapshot ({tokens} steps)", note)


def check_bad(s, b, viewer, good):
    """Files that cannot be read, and one that can among them."""
    with open(good, "rb") as f:
        data = f.read()
    bad = {"text.kvf": b"no trace at all, but some text\n" * 9, "empty.kvf": b"", "cut.kvf": data[:700], "header.kvf": data[:9] + b"\7" + data[10:],
           "middle.kvf": data[:len(data) // 8] + bytes(len(data) // 2) + data[len(data) // 8 + len(data) // 2:], "<img src=x>.kvf": b"x" * 99}
    for name, content in bad.items():
        with open(s.path(name), "wb") as f:
            f.write(content)
    b.open(viewer)
    b.until(OFFERED)
    b.drop(*(s.path(name) for name in bad))
    b.until(f"document.querySelectorAll('#opened .problem').length === {len(bad)}")
    texts = b.run("[...document.querySelectorAll('#opened .problem')].map((p) => p.textContent)")
    for name, text in zip(bad, texts):
        done = subprocess.run([s.kvfate, "report", name, "-o", "bad.html"], cwd=s.work.name, capture_output=True, stdin=subprocess.DEVNULL)
        want = done.stderr.decode().strip().splitlines()[-1].removeprefix("kvfate report: ")
        s.check(f"{name}: the sentence of the library", text == want, text, want)
    s.check("the page still offers to open traces", b.run("!document.querySelector('#opener').hidden") and not b.errors, b.errors)
    b.drop(s.path("text.kvf"), good)
    b.wait(1)
    s.check("a good file among bad ones is shown", b.run("document.querySelectorAll('#opened .problem').length") == 1 and b.run("document.title").startswith(os.path.basename(good)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kvfate")
    parser.add_argument("maker")
    parser.add_argument("--shots")
    args = parser.parse_args()
    path = browser.find()
    if not path:
        print("no Chromium here: the viewer is not tried in a browser")
        return 77
    s, b = Case(args.kvfate, args.maker), Window(path)
    done = subprocess.run([os.environ.get("KVFATE_SITE_PYTHON") or sys.executable, "-c", AXE], capture_output=True, text=True)
    axe = open(done.stdout.strip(), encoding="utf-8").read() if done.returncode == 0 else ""
    if not axe:
        print("no axe-core here: the viewer is tried without it")
    try:
        b.size(1400, 900)
        b.scheme("light")
        one = s.trace("one.kvf", 400, 3, 2, 4, "eguds")
        two = s.trace("two.kvf", 400, 3, 2, 4, "egh", seed=2)
        odd = s.trace("odd.kvf", len(HOSTILE), 1, 1, 2, "eu", seed=3, texts=HOSTILE)
        bare = s.trace("bare.kvf", 60, 2, 2, 2, "u", seed=4)
        viewer = s.path("viewer.html")
        s.check("the viewer is made", s.run("report", "--viewer", "-o", viewer).returncode == 0)
        b.open(viewer)
        b.until(OFFERED)
        look(s, b, args.shots, "empty")
        accessible(s, b, axe, "empty")
        check_equal(s, b, viewer, [one], "one")
        look(s, b, args.shots, "opened")
        accessible(s, b, axe, "opened")
        b.scheme("dark")
        accessible(s, b, axe, "opened, dark")
        b.scheme("light")
        check_equal(s, b, viewer, [one, two], "two")
        check_equal(s, b, viewer, [odd], "hostile texts")
        s.check("no text became code", not b.run("window.__pwned || 0"))
        check_equal(s, b, viewer, [bare], "no evictions")
        check_doors(s, b, viewer, one, two)
        check_unfinished(s, b, viewer)
        check_bad(s, b, viewer, one)
    finally:
        b.close()
    return s.finish()


if __name__ == "__main__":
    sys.exit(main())
