#!/usr/bin/env python3
"""Check ten tasks of a reader on the page of `kvfate report`, in headless Chromium: each within the clicks that
report.md states.  Runs the commands of its views, and checks saved files, legible text in light and dark mode, and
times.

usage: test_tasks.py KVFATE MAKE_REPORT_TRACE [--times]

With --times it only measures sizes and times of a page of two traces of 8,192 tokens, on an otherwise idle machine.
Skips (77) without Chromium.
"""
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import time
import xml.etree.ElementTree

from page import Page, in_browser
from test_report import frame, point, quiet, ready, settle, table

T, L, H, G = 400, 5, 2, 4
NEEDLE = 150  # first token of the number
TEXTS = [f" word{i % 37}".encode() for i in range(NEEDLE)] + [b"8", b"4", b"2", b"5", b"5"] + [f" word{i % 31}".encode() for i in range(T - NEEDLE - 5)]
OTHER = TEXTS[:300] + [b" other"] * (T - 300)
DOCUMENTED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/reference/report.md")


class Reader:
    """A reader, whose clicks, keys and typed texts are counted."""

    def __init__(self, s, b, limits):
        self.s, self.b, self.limits, self.clicks = s, b, limits, 0

    def task(self, name, ok, *details):
        """End a task: it is done, within the documented number of clicks."""
        limit = self.limits.pop(name, None)
        self.s.check(f"{name}: is documented", limit is not None)
        self.s.check(f"{name}: within {limit} clicks", limit is not None and self.clicks <= limit, self.clicks)
        self.s.check(name, ok, *details)
        self.clicks = 0

    def place(self, find):
        self.b.run(f"({find}).scrollIntoView({{block: 'nearest', behavior: 'instant'}})")
        settle(self.b)
        x, y, hit = self.b.run(f"(() => {{ const e = {find}, r = e.getBoundingClientRect(), x = r.left + r.width / 2, y = r.top + r.height / 2; "
                               "const at = document.elementFromPoint(x, y); return [x, y, e.contains(at)] })()")
        self.s.check(f"{find} can be reached", hit)
        return x, y

    def hover(self, find):
        self.b.mouse("mouseMoved", *self.place(find))
        settle(self.b)

    def click(self, find):
        self.b.click(*self.place(find))
        self.clicks += 1
        settle(self.b)

    def key(self, key):
        self.b.key(key)
        self.clicks += 1
        settle(self.b)

    def type(self, word):
        self.b.call("Input.insertText", text=word)
        self.clicks += 1
        settle(self.b)


def one(selector):
    return f"document.querySelector({json.dumps(selector)})"


def text_of(b, selector):
    return b.run(f"{one(selector)}.textContent")


def limits():
    """Return {task: clicks} of report.md."""
    with open(DOCUMENTED, encoding="utf-8") as f:
        part = f.read().split("## Ten tasks")[1].split("\n## ")[0]
    return {task: int(n) for task, n in re.findall(r"^\| (.+?) \| (\d+)[^|]*\|$", part, re.M)}


def fates(s, trace, i):
    """Return for token i by the program's table: heads that cache it, all heads, first query without it, hits, heads
    with hits, first hit.
    """
    e = table(s, "eviction", trace, "--tokens", f"{i}:{i + 1}")
    gone = [v for v in e["evict_step"] if v >= 0]
    return len(e["evict_step"]) - len(gone), len(e["evict_step"]), min(gone), sum(e["hits"]), sum(h > 0 for h in e["hits"]), min(f for f in e["first_hit"] if f >= 0), e


def find_needle(s, b, r, traces):
    shares = [json.loads(s.run("eviction", t, "--json").stdout)["meta"] for t in traces]
    want = [f"{100 * float(m['evicted']) / float(m['entries']):.3g}\u00a0%" for m in shares]
    cells = b.run("[...document.querySelectorAll('#headline tbody tr')].map(r => [...r.querySelectorAll('td')].map(d => d.textContent))")
    r.task("which method lost the fewest entries, which misses the least attention", [c[1] for c in cells] == want and all("%" in c[4] for c in cells), cells, want)
    mean, peak = ([float(f"{float(m[k]):.1f}") for m in shares] for k in ("cached_mean", "cached_peak"))
    held = [f"{m:g}, at most {p:g}" for m, p in zip(mean, peak)]
    s.check("entries on average and at most", [c[0] for c in cells] == held, cells, held)
    unequal(s, b, mean, peak)
    r.key("/")
    r.type("84255")
    r.key("Enter")
    held, n, first, hits, heads, hit, _ = fates(s, traces[0], NEEDLE)
    b.until(f"{one('#fate-title')}?.textContent.startsWith('Token {NEEDLE}')")
    said = b.until(f"{one('.fate-of')}?.textContent")
    words = (f"{held} of {n} heads", f"needed it {hits} times in {heads} heads, first at query {hit}", f"query {first}")
    r.task("find the needle and read whether it was evicted, in how many heads, and when it was first missed", all(w in said for w in words), said, words)
    s.check("the text is scrolled to it", b.until(f"(() => {{ const e = document.querySelector('.w[data-i=\"{NEEDLE}\"]').getBoundingClientRect(), "
                                               "h = document.getElementById('text').getBoundingClientRect(); return e.top >= h.top - 1 && e.bottom <= h.bottom + 1 })()"))


def unequal(s, b, mean, peak):
    """Check that traces of one budget are named if their entries differ by more than 2 %, on average and at peak."""
    told = b.run("[...document.querySelectorAll('.unequal')].map(e => e.textContent)")
    want = [(f"At budget 64 a head caches {min(v):g} entries {what} under ", f" and {max(v):g} under ") for v, what in ((mean, "on average"), (peak, "at most"))]
    s.check("the entries of these two differ by more than 2 %", all(max(v) > 1.02 * min(v) for v in (mean, peak)), mean, peak)
    s.check("unequal memory is told", len(told) == 2 and all(w in t for ws, t in zip(want, told) for w in ws), told, want)
    s.check("both traces are named", all(0 < t.find("a.kvf") < t.find(" and ") < t.find("b.kvf") for t in told), told)


def equal(s, b, trace):
    """Check that there is no such note for traces with equally many cached entries."""
    ready(b, s.report("equal.html", trace, trace))
    b.until("performance.getEntriesByName('kvfate-headline').length > 0")
    s.check("equal memory is not told", b.run("[document.querySelectorAll('#headline tbody tr').length, document.querySelectorAll('.unequal').length]") == [2, 0])


def fates_of_needle(s, b, r, traces):
    *_, e = fates(s, traces[0], NEEDLE)
    k = next(k for k, step in enumerate(e["evict_step"]) if step >= 0 and e["hits"][k] > 0)
    cell = one(f".fate-of[data-trace='0'] rect[data-head={e['head'][k]}]")
    r.hover(cell)
    said = b.until(one(".fate-of[data-trace='0'] .fate-head") + ".textContent")
    words = f"{e['head'][k]}: evicted at query {e['evict_step'][k]}", "the budget was full", f"first at query {e['first_hit'][k]}"
    r.task("what one head made of it, and why", all(w in said for w in words), said, words)
    held, n, *_ = fates(s, traces[1], NEEDLE)
    r.task("the same token under all methods", f"{held} of {n} heads" in text_of(b, '.fate-of[data-trace="1"]'), text_of(b, '.fate-of[data-trace="1"]'))
    r.click(cell)
    b.until(f"{one('#map-title')}.textContent.endsWith('{e['head'][k]}')")
    r.task("show that head's map", True)
    return e["head"][k]


def compare(s, b, r, head):
    r.key("d")
    b.until("document.querySelectorAll('.pane').length === 3")
    settle(b)
    said = text_of(b, "#compared")
    r.task("compare two methods at this head", text_of(b, "#map-title").endswith(head) and "same 300 tokens" in said, said)
    b.key("d")
    b.until("document.querySelectorAll('.pane').length === 1")
    settle(b)


def saved(s, folder, name):
    path, end = os.path.join(folder, name), time.monotonic() + 20
    while not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.05)
    s.check(f"{name} is saved", os.path.exists(path), os.listdir(folder))
    return path


def save(s, b, r, traces, head):
    menu = 'details[data-view="Map"]'
    b.call("Browser.grantPermissions", top=True, permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    r.click(one(f"{menu} summary"))
    r.click(one(f"{menu} .command button"))
    said = b.run("navigator.clipboard.readText()")
    done = run_command(s, said)
    out = shlex.split(said)[-1]
    with open(s.path(out), "rb") as f:
        r.task("the PDF command of this view", done.returncode == 0 and f.read(5) == b"%PDF-" and f"--head {head}" in said, said, done.stderr)
    folder = s.path("saved")
    b.call("Browser.setDownloadBehavior", top=True, behavior="allow", downloadPath=folder)
    b.key("Escape")
    settle(b)
    for label in ("SVG", "PNG", "TSV"):
        if not b.run(f"{one(menu)}.open"):
            r.click(one(f"{menu} summary"))
        r.click(one(f'{menu} [data-save="{label}"]'))
        if label == "SVG":
            tree = xml.etree.ElementTree.parse(saved(s, folder, "a-map.svg")).getroot()
            words = "".join(tree.itertext())
            r.task("the picture of this view as SVG", tree.tag.endswith("svg") and head in words and "query" in words and len(list(tree.iter("{http://www.w3.org/2000/svg}image"))) >= 2, words)
        elif label == "PNG":
            with open(saved(s, folder, "a-map.png"), "rb") as f:
                s.check("the picture as PNG", f.read(8) == b"\x89PNG\r\n\x1a\n" and r.clicks == 2, r.clicks)
            r.clicks = 0
        else:
            s.run("eviction", traces[0], "-o", s.path("want.tsv"))
            with open(s.path("want.tsv"), "rb") as f, open(saved(s, folder, "a.eviction.tsv"), "rb") as g:
                want = [line for line in f if not line.startswith(b"# checksum: ")]  # the page makes no checksum
                r.task("the table behind it", want == list(g))


def run_command(s, text):
    """Run a command of the page in the folder of the traces."""
    argv = shlex.split(text)
    s.check("the command is kvfate's", argv[0] == "kvfate", text)
    return subprocess.run([s.kvfate, *argv[1:]], cwd=s.work.name, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)


def link(s, b, r, page):
    b.key("]")
    b.key("+")
    settle(b)
    shown = "[location.hash, document.getElementById('map-title').textContent, document.getElementById('map-note').textContent, document.getElementById('fate-title').textContent]"
    before = b.run(shown)
    b.call("Page.navigate", url="about:blank")
    b.call("Page.navigate", url="file://" + page + before[0])
    b.until("document.getElementById('fate-title')?.textContent")
    settle(b)
    after = b.run(shown)
    r.task("send somebody this view", before == after and f"token={NEEDLE + 1}" in before[0], before, after)
    for hostile in ("#trace=99&map=constructor&head=__proto__&token=1e9&tokens=9-2&find=%00%E2%80%AE&shade=toString", "#token=-1&steps=1-99999999&colours=<img>"):
        b.run(f"(location.hash = {json.dumps(hostile)}, 1)")
        settle(b)
        s.check(f"an address that asks for what is not there: {hostile[:30]}", b.run("document.getElementById('problem').hidden && document.querySelectorAll('.pane').length === 1"))


def all_commands(s, b):
    """Check that every view has a menu, and that every command in it works."""
    b.run("document.querySelectorAll('details.save').forEach(d => { d.open = true; d.dispatchEvent(new Event('toggle')); })")
    settle(b)
    views = b.run("[...document.querySelectorAll('details.save')].map(d => [d.dataset.view, [...d.querySelectorAll('.command code')].map(c => c.textContent), "
                  "[...d.querySelectorAll('[data-save]')].map(e => e.dataset.save)])")
    names = [v for v, _, _ in views]
    s.check("views with a menu", {"Headline", "Heads", "Map", "Text", "Survival", "Occupancy", "Cache size by head", "Sparsity by head", "Where in the text", "Head types",
                                  "Dilution", "Fate of a token"} <= set(names), names)
    for name, commands, offers in views:
        s.check(f"{name}: a command and a table", commands and {"TSV", "CSV"} <= set(offers), commands, offers)
        for command in commands:
            done = run_command(s, command)
            s.check(f"{name}: {command}", done.returncode == 0, done.stderr)
    b.run("document.querySelectorAll('details.save').forEach(d => { d.open = false; })")


CONTRAST = """(() => {
  const parse = (c) => { const n = c.match(/[\\d.e-]+/g).map(Number), k = c.startsWith('color(') ? 255 : 1; return [n[0] * k, n[1] * k, n[2] * k, n[3] ?? 1]; };
  const over = (a, b) => a.slice(0, 3).map((v, k) => v * a[3] + b[k] * (1 - a[3])).concat(1);
  const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (e) => { const all = []; for (let n = e; n; n = n.parentElement) all.push(parse(getComputedStyle(n).backgroundColor)); all.push([255, 255, 255, 1]);
    return all.reverse().reduce((below, c) => over(c, below)); };
  const bad = []; let n = 0;
  const judge = (e, colour, what) => { const bg = behind(e); let fg = parse(colour); for (let p = e; p; p = p.parentElement) fg[3] *= Number(getComputedStyle(p).opacity);
    fg = over(fg, bg); const [a, b] = [light(fg), light(bg)].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05); n++;
    if (ratio < 4.5) bad.push([ratio.toFixed(2), what.slice(0, 40), e.className.baseVal ?? e.className]); };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let t = walk.nextNode(); t; t = walk.nextNode()) { const e = t.parentElement;
    if (!t.data.trim() || e.closest('script, option, noscript, title, .unseen, .skip') || !e.checkVisibility()) continue;
    const style = getComputedStyle(e); judge(e, e instanceof SVGElement ? style.fill : style.color, t.data); }
  for (const e of document.querySelectorAll('select, input')) { judge(e, getComputedStyle(e).color, 'select'); if (e.placeholder) judge(e, getComputedStyle(e, '::placeholder').color, 'placeholder'); }
  return [n, bad];
})()"""


FIRST = """new MutationObserver((_, o) => { const cells = [...document.querySelectorAll('#headline td')].map((d) => d.textContent);
    if (cells.length) { window.firstHeadline = cells; o.disconnect() } }).observe(document, {childList: true, subtree: true})"""


def no_early_number(s, b, page):
    """Check that the headline shows no number before the tables are read."""
    script = b.call("Page.addScriptToEvaluateOnNewDocument", source=FIRST)["identifier"]
    ready(b, page)
    b.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
    cells = b.run("window.firstHeadline")
    s.check("a headline that waits says nothing", len(cells) == 12 and not any(c.isdigit() for t in cells for c in t), cells)


def contrast(s, b):
    for scheme in ("light", "dark"):
        b.scheme(scheme)
        b.run("document.querySelectorAll('details.save').forEach(d => { d.open = true; })")
        point(b, 100, 200, T=T)
        settle(b)
        n, bad = b.run(CONTRAST)
        s.check(f"{scheme}: {n} texts with a contrast of 4.5 or more", n > 300 and not bad, len(bad), bad[:12])
        b.run("document.querySelectorAll('details.save').forEach(d => { d.open = false; })")
    b.scheme("light")


def both_ways(s, b):
    """Check that a token of the text moves the map, and a cell of the map moves the text."""
    b.key("a")
    settle(b)
    point(b, 330, 350, T=T)
    settle(b)
    s.check("a cell scrolls the text", b.run("(() => { const e = document.querySelector('.w.lit')?.getBoundingClientRect(), h = document.getElementById('text').getBoundingClientRect(); "
                                            "return e && e.top >= h.top - 1 && e.bottom <= h.bottom + 1 })()"))
    for _ in range(4):
        b.key("+")
    settle(b)
    b.run("document.getElementById('text').scrollTo({top: 0, behavior: 'instant'})")
    settle(b)
    x, y = b.run("(() => { const r = document.querySelector('.w[data-i=\"3\"]').getBoundingClientRect(); return [r.left + 4, r.top + 8] })()")
    b.mouse("mouseMoved", x, y)
    seen = b.until("(() => { const m = document.getElementById('map-note').textContent.match(/tokens (\\d+)/); return m && Number(m[1]) <= 3 })()")
    s.check("a token moves the map", seen)


# A pointer move with its tooltip laid out, and the work for the next frame: from a callback registered before it to one
# after it.
MOVES = """(async () => { const f = document.querySelector('.frame'), r = f.getBoundingClientRect(), out = [];
    for (let k = 0; k < 40; k++) {
        const e = new PointerEvent('pointermove', {clientX: r.left + (k * 37 % 400), clientY: r.top + (k * 53 % 400), pointerId: 1, bubbles: true});
        let before = 0, spent = 0;
        requestAnimationFrame(() => { before = performance.now(); });
        const t0 = performance.now();
        f.dispatchEvent(e);
        document.getElementById('tip').getBoundingClientRect();
        spent = performance.now() - t0;
        await new Promise((done) => requestAnimationFrame(() => { spent += performance.now() - before; done(); }));
        out.push(spent);
    } return out })()"""


def times(s, b):
    pair = [s.trace(f"large{k}.kvf", 8192, 30, 3, 9, kinds, seed=k) for k, kinds in ((1, "egu"), (2, "eu"))]
    page = s.report("large.html", *pair)
    size = os.path.getsize(page)
    dropped = sorted({f"{t['key']}.{c['name']}" for t in Page(page).manifest["tables"] for c in t.get("columns", []) if c.get("dropped")})
    s.check("two traces of 8,192 tokens: under 10 MB, with their maps", size < 10_000_000 and "eviction.evict_step" not in dropped, size, dropped)
    opened, alone = [], "--times" in sys.argv  # then the machine must be idle
    for _ in range(3 if alone else 1):
        ready(b, page)
        opened.append(b.run("performance.getEntriesByName('kvfate-map')[0].startTime"))
    moves = b.run(MOVES, 170)
    pins = b.run("""(async () => { const out = []; for (let k = 0; k < 10; k++) { performance.clearMarks('kvfate-fate'); const t0 = performance.now();
        document.body.dispatchEvent(new KeyboardEvent('keydown', {key: ']', bubbles: true}));
        while (!performance.getEntriesByName('kvfate-fate').length) await new Promise((d) => setTimeout(d, 1)); out.push(performance.now() - t0); } return out })()""")
    print(f"two traces of 8,192 tokens x 90 heads: {size / 1e6:.2f} MB, without {', '.join(dropped) or 'nothing'}; first map after {statistics.median(opened):.0f} ms "
          f"(of {', '.join(f'{o:.0f}' for o in opened)}); a move of the pointer {statistics.median(moves):.2f} ms in the median, {max(moves):.1f} at most; "
          f"the fates of another token {statistics.median(pins):.0f} ms")
    s.check("the pointer is followed", (max(moves) if alone else statistics.median(moves)) < 16, moves)
    s.check("the page opens", statistics.median(opened) < (1000 if alone else 5000), opened)
    quiet(s, b, "8,192 tokens, twice")


def look(s, b):
    if "--times" not in sys.argv:
        tasks(s, b)
    times(s, b)


def tasks(s, b):
    traces = [s.trace("a.kvf", T, L, H, G, "egusd", texts=TEXTS), s.trace("b.kvf", T, L, H, G, "eusd", seed=5, texts=OTHER)]
    page = s.report("tasks.html", *traces)
    ready(b, page)
    b.until("performance.getEntriesByName('kvfate-headline').length > 0")
    r = Reader(s, b, limits())
    s.check("ten tasks", len(r.limits) == 10, r.limits)
    find_needle(s, b, r, traces)
    head = fates_of_needle(s, b, r, traces)
    compare(s, b, r, head)
    save(s, b, r, traces, head)
    link(s, b, r, page)
    s.check("every documented task was done", not r.limits, r.limits)
    no_early_number(s, b, page)
    b.key("]")
    b.until("document.querySelectorAll('.fate-of').length === 2")
    settle(b)
    all_commands(s, b)
    contrast(s, b)
    both_ways(s, b)
    quiet(s, b, "tasks")
    equal(s, b, traces[0])


if __name__ == "__main__":
    sys.exit(in_browser(look))
