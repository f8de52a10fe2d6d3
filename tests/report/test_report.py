#!/usr/bin/env python3
"""Check the page of `kvfate report` in headless Chromium: it opens, draws and makes no network request.  The tooltip
and the pixels match the tables that kvfate prints.  Checks keys, touch, comparison, downloads, and texts that try to
run.

usage: test_report.py KVFATE MAKE_REPORT_TRACE [--shots FOLDER]

It prints the time until a page of 1,024 tokens shows its first map, and of a pointer move; with KVFATE_TESTS=long of
8,192. Skips (77) without Chromium.
"""
import json
import math
import os
import random
import re
import statistics
import sys
import time

from page import HOSTILE, in_browser

MAP, GRID, PANELS = (f"performance.getEntriesByName('kvfate-{n}').length > 0" for n in ("map", "grid", "panels"))
TIP = "Object.fromEntries([...document.querySelectorAll('#tip dt')].filter(d => !d.hidden).map(d => [d.textContent, d.nextElementSibling.textContent]))"
T, L, H, G = 200, 3, 2, 4
LONG = os.environ.get("KVFATE_TESTS") == "long"


def table(s, *argv):
    done = s.run(*argv, "--json")
    return json.loads(done.stdout)["data"]


def settle(b):
    b.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 30))))")


def quiet(s, b, name):
    """Check that the console is empty, that there were no network requests, and that no text ran."""
    s.check(f"{name}: no error", not b.errors and not [c for c in b.console if c[0] in ("error", "warning", "assert")], b.errors, b.console)
    s.check(f"{name}: asks for itself alone", len(b.requests) == 1 and b.requests[0].startswith("file://"), b.requests)
    s.check(f"{name}: nothing of the texts ran", b.run("window.__pwned === undefined && !document.querySelector('img, iframe, object, embed')"))


def ready(b, path):
    b.open(path)
    b.until(MAP)
    b.until(PANELS)
    b.until(GRID)
    settle(b)


def frame(b, role="first"):
    return b.run(f"(() => {{ const r = document.querySelector('.pane[data-role={role}] .frame').getBoundingClientRect(); return [r.left, r.top, r.width] }})()")


def point(b, i, t, role="first", T=T):
    """Move the pointer to the middle of a cell of the complete map; return the tooltip."""
    x, y, side = frame(b, role)
    b.mouse("mouseMoved", x + (i + 0.5) / T * side, y + (t + 0.5) / T * side)
    return b.run(TIP)


def choose(b, kind, head):
    b.run(f"document.querySelector('[data-value={kind}]').click()")
    b.run(f"document.querySelector('.thumb[data-head={head}]').click()")
    settle(b)
    b.until(f"document.getElementById('map-title').textContent.endsWith('{head}')")
    settle(b)


def near(text, value):
    return abs(float(text.replace("\u2212", "-")) - value) <= 6e-4 * abs(value) + 1e-12


def number_in(words):
    return next(w for w in words.split() if w[:1].isdigit())


# ---- values under the pointer

def hover_values(s, b, trace):
    ev, gates = table(s, "eviction", trace), table(s, "retention", trace, "--source", "gate")
    last = table(s, "retention", trace, "--source", "last-use", "--criterion", "mass.90")
    words, r = table(s, "tokens", trace)["text"], random.Random(5)
    for kind, heads, data in (("alpha", ["L0K1", "L2K0"], ev), ("beta", ["L1K0", "L2K1"], gates), ("last", ["L0H3", "L2H1"], last)):
        for head in heads:
            choose(b, kind, head)
            at = data["head"].index(head)
            layer, index = data["layer"][at], data["index"][at]
            entry = (layer * H + (index // (G // H) if kind == "last" else index)) * T
            for _ in range(6):
                i = r.randrange(T)
                one_cell(s, point(b, i, r.randrange(i, T)), kind, head, i, data, at, ev, entry, words)
            i = r.randrange(60, T)
            tip = point(b, i, 3)
            s.check(f"{head}: the future", any("comes after this query" in v for v in tip.values()), tip)


def one_cell(s, tip, kind, head, i, data, at, ev, entry, words):
    t = int(tip["Query"].split()[0])
    name, fate = f"{kind} {head} token {i} query {t}", tip.get("Fate") or tip.get(f"L{ev['layer'][entry]}K{ev['index'][entry]}") or ""
    s.check(f"{name}: which token", tip["Token"].split()[0] == str(i) and (len(words[i]) > 50 or not words[i].isalnum() or words[i] in tip["Token"]), tip, words[i])
    if kind == "alpha":
        end = data["evict_step"][at + i]
        s.check(f"{name}: alpha", tip[head] == ("has the token" if end < 0 or t < end else "no longer has it"), tip, end)
    elif kind == "beta":
        lb = data["log_beta"][at + i]
        said = number_in(tip[head]), number_in(tip["Retention"])
        s.check(f"{name}: beta", near(said[0], math.exp(lb * (t - i))) and near(said[1], math.exp(lb)), tip, lb)
    else:
        age = data["last_use_age"][at + i]
        s.check(f"{name}: last use", tip[head] == ("will select it again" if t <= i + age else "will not select it again")
                and tip["Last use"] == (f"at query {i + age}, age {age}" if age >= 0 else "never selected"), tip, age)
    step, age, reason = (ev[c][entry + i] for c in ("evict_step", "age", "reason"))
    steps = f"{age} step{'' if age == 1 else 's'} after it was written"
    want = "kept to the end" if step < 0 else f"evicted at query {step}, {steps}: the budget was full"
    s.check(f"{name}: fate", fate == want and (step < 0 or reason == "budget"), tip, step)
    if step >= 0:
        score, margin = tip["Score"].split(", ")
        s.check(f"{name}: score", near(score, ev["score"][entry + i]) and near(margin.split()[0], ev["margin"][entry + i]), tip)


# ---- pixels

def colours(name="blues"):
    """Return the colours of a map as in the figures."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../render/palettes.list")) as f:
        body = re.search(rf"COLOUR_MAP\({name},(.*?)\)", f.read(), re.S).group(1)
    return [[int(h[k:k + 2], 16) for k in (0, 2, 4)] for h in re.findall(r"0x([0-9a-f]{6})", body)]


def box_mean(value, x0, x1, y0, y1):
    """Return the mean over the part with t >= i, cell by cell, and the part's fraction of the box."""
    total = area = 0.0
    for i in range(int(x0), math.ceil(x1)):
        for t in range(max(i, int(y0)), min(T, math.ceil(y1))):
            a = max(0.0, min(x1, i + 1) - max(x0, i)) * max(0.0, min(y1, t + 1) - max(y0, t))
            total += a * value(i, t)
            area += a
    return (total / area if area else None), area / ((x1 - x0) * (y1 - y0))


def shown(b):
    """Return the first token, the first query and the width of the part of the map that is shown, a square."""
    note = b.run("document.getElementById('map-note').textContent")
    x0, x1, y0, y1 = map(int, re.findall(r"\d+", note)) if note else (0, T - 1, 0, T - 1)
    return x0, y0, x1 + 1 - x0


def log_place(mean):
    """Return the place on the logarithmic scale of the figure `retention`, from 0.001 to 1."""
    return max(0.0, 1 + math.log10(max(mean, 1e-9)) / 3)


def pixels(s, b, name, value, place=lambda mean: mean):
    x0, y0, size = shown(b)
    n = b.run("document.querySelector('.pane[data-role=first] canvas').width")
    r, want = random.Random(name), colours()
    places = [(r.randrange(n), r.randrange(n)) for _ in range(120)] + [(k, k) for k in range(3, n, max(1, n // 15))] + [(k, k - 1) for k in range(5, n, max(1, n // 9))]
    got = b.run("(() => { const c = document.querySelector('.pane[data-role=first] canvas').getContext('2d'); "
                f"return {json.dumps(places)}.map(([x, y]) => [...c.getImageData(x, y, 1, 1).data]) }})()")
    bad, d = [], size / n
    for (c, row), rgba in zip(places, got):
        mean, cover = box_mean(value, x0 + c * d, x0 + (c + 1) * d, y0 + row * d, y0 + (row + 1) * d)
        if abs(rgba[3] - 255 * cover) > 1:
            bad.append((c, row, rgba, cover))
        if mean is None or rgba[3] < 32:
            continue
        near_ones = [want[min(255, max(0, math.floor(place(mean) * 255) + k))] for k in (-1, 0, 1, 2)]
        slack = 1.01 + 255 / rgba[3] * (rgba[3] < 255)  # the canvas stores premultiplied integers
        if not all(min(w[k] for w in near_ones) - slack <= rgba[k] <= max(w[k] for w in near_ones) + slack for k in range(3)):
            bad.append((c, row, rgba, mean))
    s.check(f"{name}: pixels are the means of their boxes", not bad, len(bad), bad[:4])


def all_pixels(s, b, trace):
    b.key("a")
    ev, gates = table(s, "eviction", trace), table(s, "retention", trace, "--source", "gate")
    last = table(s, "retention", trace, "--source", "last-use", "--criterion", "mass.90")
    end = [T if e < 0 else e for e in ev["evict_step"]]
    a, g, u = (d["head"].index(h) for d, h in ((ev, "L1K1"), (gates, "L1K1"), (last, "L2H3")))
    maps = {"alpha": ("L1K1", lambda i, t: float(t < end[a + i])), "beta": ("L1K1", lambda i, t: math.exp(gates["log_beta"][g + i] * (t - i))),
            "last": ("L2H3", lambda i, t: float(t <= i + last["last_use_age"][u + i]))}
    for kind, (head, value) in maps.items():
        choose(b, kind, head)
        b.mouse("mouseMoved", 2, 2)
        pixels(s, b, kind, value, log_place if kind == "beta" else lambda mean: mean)
        if kind == "beta":
            b.key("l")
            settle(b)
            pixels(s, b, "beta, linear", value)
        for _ in range(4):
            b.key("+")
        settle(b)
        s.check(f"{kind}: a larger part is shown", 30 < shown(b)[2] < 50, shown(b))
        pixels(s, b, f"{kind}, larger", value)
        b.key("a")
        settle(b)
    b.key("l")


# ---- switches, keys, text

def keys(s, b):
    title = "document.getElementById('map-title').textContent"
    b.run("document.activeElement.blur()")
    choose(b, "alpha", "L0K0")
    for key, head in (("ArrowRight", "L0K1"), ("ArrowDown", "L1K1"), ("ArrowLeft", "L1K0"), ("ArrowUp", "L0K0")):
        b.key(key)
        s.check(f"{key}", b.until(title).endswith(head) or b.until(f"{title}.endsWith('{head}')"), b.run(title))
    for key, word in (("2", "Retention"), ("3", "Last use"), ("1", "Kept")):
        b.key(key)
        settle(b)
        s.check(f"key {key}", b.run(title).startswith(word), b.run(title))
    b.key("c")
    s.check("colour map", b.run("[...document.querySelectorAll('#bar select')].some(x => x.value === 'viridis')"))
    for _ in range(3):
        b.key("c")
    b.key("+")
    settle(b)
    s.check("zoom is said", "tokens" in b.run("document.getElementById('map-note').textContent"))
    b.key("Escape")
    b.key("ArrowRight", shift=True)
    settle(b)
    s.check("crosshair by keys is said", "token" in b.run("document.getElementById('said').textContent") and not b.run("document.getElementById('tip').hidden"))
    b.key("?")
    s.check("help", b.run("document.getElementById('help').open"))
    b.key("Escape")
    b.run("document.getElementById('help').close()")
    for i, key in enumerate(["Tab"] * 8):
        b.key(key)
    s.check("what has the focus is visible", b.run("document.activeElement !== document.body"))


def text_links(s, b):
    choose(b, "alpha", "L0K0")
    b.run("document.getElementById('text').scrollTo({top: 0, behavior: 'instant'})")
    settle(b)
    box = b.run("(() => { const r = document.querySelector('[data-i=\"3\"]').getClientRects()[0]; return [r.left + r.width / 2, r.top + r.height / 2] })()")
    b.mouse("mouseMoved", *box)
    bar = b.run("(() => { const d = document.querySelector('.down'), f = document.querySelector('.frame').getBoundingClientRect(); return [d.hidden, d.offsetLeft, f.width] })()")
    s.check("a token lights its column", not bar[0] and abs(bar[1] - 3 / T * bar[2]) <= 1.5, bar)
    b.click(*box)
    s.check("a click pins it", b.run("document.querySelector('.w.pinned')?.dataset.i") == "3" and not b.run("document.querySelector('.pinned').hidden"))
    b.key("Escape")
    point(b, 150, 160)
    s.check("a cell lights its token", b.run("document.querySelector('.w.lit')?.dataset.i") == "150")
    x, y, side = frame(b)
    b.click(x + 20.5 / T * side, y + 100.5 / T * side)
    s.check("a click on the map pins its token", b.run("document.querySelector('.w.pinned')?.dataset.i") == "20")
    b.click(x + 20.5 / T * side, y + 100.5 / T * side)


def zoom(s, b):
    b.key("a")
    x, y, side = frame(b)
    b.mouse("mouseMoved", x + side * 0.25, y + side * 0.5)
    b.mouse("mousePressed", x + side * 0.25, y + side * 0.5, button="left", clickCount=1)
    for k in range(1, 6):
        b.mouse("mouseMoved", x + side * (0.25 + 0.05 * k), y + side * (0.5 + 0.05 * k), button="left", buttons=1)
    b.mouse("mouseReleased", x + side * 0.5, y + side * 0.75, button="left", clickCount=1)
    settle(b)
    note = b.run("document.getElementById('map-note').textContent")
    s.check("a box zooms", "tokens 50" in note and "queries 100" in note, note)
    b.call("Input.dispatchMouseEvent", type="mouseWheel", x=x + side / 2, y=y + side / 2, deltaX=0, deltaY=-120)
    settle(b)
    s.check("the wheel zooms", b.run("document.getElementById('map-note').textContent") != note)
    b.key("a")
    settle(b)
    s.check("whole again", b.run("document.getElementById('map-note').textContent") == "")


def touch(s, b, path):
    b.size(390, 844, 2, True)
    ready(b, path)
    b.run("document.querySelector('.frame').scrollIntoView({block: 'center'})")
    settle(b)
    x, y, side = frame(b)
    cx, cy = x + side * 0.3, y + side * 0.6
    b.touch("touchStart", (cx, cy))
    b.touch("touchEnd")
    s.check("a tap shows the cell", not b.run("document.getElementById('tip').hidden") and "Token" in b.run(TIP))
    b.touch("touchStart", (cx - 30, cy), (cx + 30, cy))
    for k in range(1, 6):
        b.touch("touchMove", (cx - 30 - 12 * k, cy), (cx + 30 + 12 * k, cy))
    b.touch("touchEnd")
    settle(b)
    s.check("two fingers zoom", "tokens" in b.run("document.getElementById('map-note').textContent"))
    s.check("nothing is wider than the phone", b.run("document.documentElement.scrollWidth <= innerWidth"), b.run("document.documentElement.scrollWidth"))
    quiet(s, b, "phone")
    b.size(1400, 900)


# ---- downloads, comparison, odd traces, times

def downloads(s, b, trace):
    folder = s.path("down")
    os.makedirs(folder, exist_ok=True)
    b.call("Browser.setDownloadBehavior", top=True, behavior="allow", downloadPath=folder)
    commands = {"tokens": ["tokens"], "eviction": ["eviction"], "survival": ["survival"], "heads": ["heads"], "occupancy": ["size"],
                "last-use": ["retention", "--criterion", "mass.90", "--source", "last-use"], "kv-size": ["size", "--as", "kv-size"], "density": ["where"]}
    for key, argv in commands.items():
        for place, ending in enumerate(("tsv", "csv") if key in ("tokens", "survival") else ("tsv",)):
            path = os.path.join(folder, f"a.{key}.{ending}")
            b.run(f"document.querySelectorAll('button[data-table=\"{key}\"]')[{place}].click()")
            end = time.monotonic() + 20
            while not os.path.exists(path) and time.monotonic() < end:
                b.run("new Promise(done => setTimeout(done, 30))")
            want = s.path(f"want.{ending}")
            s.run(*argv, trace, "-o", want)
            with open(want, "rb") as f, open(path, "rb") as g:
                w, got = b"".join(x for x in f.read().splitlines(True) if not x.startswith(b"# checksum: ")), g.read()  # the page makes no checksum
            line = next((n for n, (p, q) in enumerate(zip(w.splitlines(), got.splitlines())) if p != q), None)
            s.check(f"download {key}.{ending} equals kvfate's", w == got, line is not None and (w.splitlines()[line], got.splitlines()[line]))


def on_paper(s, b, name):
    """Check that parts of a printed page are below each other and complete."""
    b.call("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    b.size(690, 900)
    b.run("dispatchEvent(new Event('beforeprint'))")
    settle(b)
    parts = b.run("['.top', '.overview', '.view', '.reading', '.panels', '#foot'].map(p => document.querySelector(p)).map(e => { const r = e.getBoundingClientRect(); "
                  "return [r.top, r.bottom, Math.max(r.bottom, ...[...e.querySelectorAll('*')].map(c => c.getBoundingClientRect().bottom))] })")
    s.check(f"{name} on paper: parts below each other", all(p[2] <= q[0] + 0.5 for p, q in zip(parts, parts[1:])), parts)
    s.check(f"{name} on paper: heads and map on one sheet", parts[2][2] - parts[0][0] < 940, parts)
    s.check(f"{name} on paper: no wider than the sheet", b.run("document.documentElement.scrollWidth <= innerWidth"), b.run("document.documentElement.scrollWidth"))
    s.check(f"{name} on paper: the whole text", b.run("[...document.querySelectorAll('.w')].reduce((n, w) => n + Number(w.dataset.n || 1), 0)") == T)
    s.check(f"{name} on paper: black on white", b.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)")
    b.run("dispatchEvent(new Event('afterprint'))")
    b.call("Emulation.setEmulatedMedia", media="", features=[{"name": "prefers-color-scheme", "value": "light"}])
    b.size(1400, 900)
    settle(b)


def compare(s, b, one, other):
    ready(b, s.report("two.html", one, other))
    b.key("d")
    settle(b)
    b.until("document.querySelectorAll('.pane').length === 3")
    settle(b)
    choose(b, "alpha", "L0K0")
    ea, eb = (table(s, "eviction", t)["evict_step"] for t in (one, other))
    r = random.Random(8)
    for _ in range(8):
        i = r.randrange(T)
        t = r.randrange(i, T)
        tip = point(b, i, t, "difference")
        t = int(tip["Query"].split()[0])
        i = int(tip["Token"].split()[0])
        want = ["has the token" if e[i] < 0 or t < e[i] else "no longer has it" for e in (ea, eb)]
        s.check(f"difference at {i}, {t}", [tip.get("a.kvf"), tip.get("b.kvf")] == want, tip, want)
    on_paper(s, b, "comparison")
    point(b, 50, 60, "difference")
    lit = b.run("[...document.querySelectorAll('.pane')].map(p => !p.querySelector('.down').hidden)")
    s.check("the crosshair is in all maps", lit == [True] * 3, lit)
    b.key("d")
    b.key("t")
    settle(b)
    s.check("the other trace", b.run("document.title").startswith("b.kvf"), b.run("document.title"))
    quiet(s, b, "comparison")
    unlike(s, b, one)


def unlike(s, b, one):
    """Check traces of different lengths and texts: the difference covers the common prefix."""
    short = s.trace("c.kvf", 120, L, H, G, "e", seed=4, texts=[*HOSTILE, *[b" other"] * 60])
    ready(b, s.report("unlike.html", one, short))
    b.key("d")
    settle(b)
    b.until("document.querySelectorAll('.pane').length === 3")
    settle(b)
    n = len(HOSTILE)
    said = b.run("document.getElementById('compared').textContent")
    s.check("what is compared is said", f"same {n} tokens" in said and "query 119" in said, said)
    b.key("a")
    settle(b)
    ends = [table(s, "eviction", t)["evict_step"] for t in (one, short)]
    head = b.run("document.getElementById('map-title').textContent").split()[-1]
    at = [table(s, "eviction", t)["head"].index(head) for t in (one, short)]
    for i, t in ((3, 60), (n - 1, 100), (n, 100), (30, 150)):
        tip = point(b, i, t, "difference")
        i, t = (int(tip[k].split()[0]) for k in ("Token", "Query"))
        want = ["has the token" if e[k + i] < 0 or t < e[k + i] else "no longer has it" for e, k in zip(ends, at)]
        got = [tip.get("a.kvf"), tip.get("c.kvf")]
        s.check(f"common beginning: {i}, {t}", got == want if i < n and t < 120 else any("ends before" in v or "not compared" in v for v in tip.values()), tip, want)
    pixel = b.run("(() => { const c = document.querySelector('.pane[data-role=difference] canvas'), k = c.width / 200; return [[10, 60], [60, 100], [10, 150]]"
                  ".map(([i, t]) => c.getContext('2d').getImageData((i + 0.5) * k, (t + 0.5) * k, 1, 1).data[3]) })()")
    s.check("the difference is drawn there alone", pixel == [255, 0, 0], pixel)
    tip = point(b, 150, 160, "other")
    s.check("beyond the end of the shorter", "c.kvf ends before" in tip.values(), tip)
    b.key("3")
    settle(b)
    s.check("what the other lacks is said", "survival" in b.run("document.querySelector('.pane[data-role=other] .frame').dataset.problem"))
    quiet(s, b, "unlike traces")


def hex_of(rgb):
    return "#" + "".join(f"{round(float(v) * 2.55):02x}" for v in rgb)


def raw_name(criterion):
    """Return the name in tables for a name in keys such as mass 0.90."""
    return criterion.replace("top-", "top").replace("mass 0.", "mass.")


TOP, MASS = ["top-64", "top-128", "top-256", "top-512"], ["mass 0.90", "mass 0.95", "mass 0.99"]


def all_criteria(s, b):
    """Check that a budget above all criteria omits none of them."""
    trace = s.trace("wide.kvf", T, L, H, G, "egub", texts=HOSTILE)
    ready(b, s.report("wide.html", trace))
    same_colours(s, b, trace, TOP + MASS)
    s.check("no note where nothing is left out", "left out" not in b.run("document.getElementById('panel-survival').textContent"))
    estimates(s, b, trace)
    quiet(s, b, "all criteria")


def notes(s, b):
    """Check that the page names the criteria that it omits: those with at least as many entries as the budget of 64,
    which select every cached entry.
    """
    said = b.run("document.getElementById('panel-survival').textContent")
    s.check("criteria that are left out are named", all(raw_name(c) in said for c in TOP) and "budget is 64 entries" in said and "left out" in said, said)
    s.check("notes on kinds of heads are shown", "the run evicts" in b.run("document.getElementById('panel-kinds').textContent"))


def same_colours(s, b, trace, criteria):
    """Check that criteria have the colours of the figure `survival`, read from its pictures, and maps those of the
    figures.
    """
    keys = dict(b.run("[...document.querySelectorAll('#panel-survival .keys li')].map(k => [k.textContent, k.querySelector('path').getAttribute('stroke')])"))
    s.check("the criteria", list(keys) == criteria, keys)
    for criterion, colour in keys.items():
        done = s.run("survival", trace, "-o", s.path("c.svg"), "--style", f"criterion={raw_name(criterion)}")
        with open(s.path("c.svg")) as f:
            drawn = {hex_of(c) for c in re.findall(r"stroke:rgb\(([\d.]+)%,([\d.]+)%,([\d.]+)%\)", f.read()) if len(set(c)) > 1}
        s.check(f"{criterion} has the colour of the figure", drawn == {colour}, drawn, colour, done.stderr)
    lines = dict(b.run("[...document.querySelectorAll('#panel-survival .chart path')].map(k => [k.textContent, k.getAttribute('stroke')])"))
    s.check("lines have the colours of the key", lines == keys, lines)
    for name in ("viridis", "cividis", "magma", "blues"):
        b.run(f"(() => {{ const x = [...document.querySelectorAll('#bar select')].find(x => x.value in {{blues: 1, viridis: 1, cividis: 1, magma: 1}}); "
              f"x.value = '{name}'; x.dispatchEvent(new Event('change')) }})()")
        settle(b)
        bar = b.run("[...document.querySelector('#legend canvas').getContext('2d').getImageData(0, 0, 256, 1).data]")
        got = [bar[4 * k:4 * k + 3] for k in range(256)]
        s.check(f"{name} is that of the figures", got == colours(name), next((k, g, w) for k, (g, w) in enumerate(zip(got, colours(name))) if g != w) if got != colours(name) else "")
    b.run("(() => { const x = [...document.querySelectorAll('#bar select')].find(x => x.value === 'blues'); x.value = 'blues'; x.dispatchEvent(new Event('change')) })()")
    settle(b)


def estimates(s, b, trace):
    """Check that survival curves are drawn from the product-limit estimate of the program's own table."""
    places = dict(b.run("[...document.querySelectorAll('#panel-survival .chart path')].map(k => [k.textContent, k.getAttribute('d')])"))
    s.run("survival", trace, "-o", s.path("survival.tsv"))
    with open(s.path("survival.tsv")) as f:
        rows = [line.rstrip("\n").split("\t") for line in f if not line.startswith("#")]
    table = [dict(zip(rows[0], r)) for r in rows[1:]]
    for criterion, d in places.items():
        want = [float(r["survival"]) for r in table if r["head"] == "all" and r["criterion"] == raw_name(criterion) and int(r["horizon"]) > 0 and r["survival"] != "nan"]
        drawn = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", d)]  # 0 is at 188, 1 at 22
        s.check(f"the curve of {criterion} is the estimate", len(drawn) == len(want) and all(abs(y - (188 - 166 * v)) < 0.06 for y, v in zip(drawn, want)),
                list(zip(drawn, want))[:4], len(drawn), len(want))


def short(s, b):
    """Check that the page explains missing charts for one or two tokens; no chart is empty."""
    for n in (0, 1, 2):
        ready(b, s.report("short.html", s.trace("short.kvf", n, 2, 1, 2, "egu")))
        for panel in ("survival", "occupancy", "density"):
            got = b.run(f"(() => {{ const p = document.querySelector('#panel-{panel}'); return [p.querySelectorAll('.chart').length, p.querySelector('.body').textContent, "
                        "[...p.querySelectorAll('.chart path')].filter(l => l.getBBox().width > 0).length] })()")
            few = panel == "survival"  # its curves need twenty tokens
            ok = got[0] == 1 and got[2] > 0 if n == 2 and not few else got[0] == 0 and ("no tokens" if n == 0 else "one " if not few else "fewer than twenty") in got[1]
            s.check(f"{n} tokens: {panel} is drawn, or says why not", ok, got)
        tick = b.run("Math.max(0, ...[...document.querySelectorAll('.layers .tick')].map(t => t.getBoundingClientRect().height))")
        s.check(f"{n} tokens: numbers of maps of few heads are no larger than text", tick == 0 or 8 < tick < 24, tick)
        said = b.run("document.querySelector('#panel-sizes .body').textContent")
        s.check(f"{n} tokens: equal heads are a sentence, not a map", n == 0 or "have the same fraction of tokens cached at the end" in said, said)


def left_out(s, b, trace):
    """Check that a page with omissions names them, and that its command makes a complete page."""
    whole = ready(b, s.path("a.html")) or b.run("document.getElementById('left-out').hidden")
    s.check("a page with everything says nothing of the kind", whole)
    size, said = os.path.getsize(s.path("a.html")), {}
    lacks = "[...document.querySelectorAll('[data-value]')].filter(x => x.disabled).map(x => x.dataset.value)"
    for most in (size - 3000, 100_000):
        done = s.run("report", trace, "--max-size", str(most / 1e6), "-o", s.path("less.html"))
        ready(b, s.path("less.html"))
        text, gone = b.run("document.getElementById('left-out').innerText"), b.run(lacks)
        foot = b.run("document.getElementById('foot').textContent")
        s.check(f"{most}: it is said, in words", not b.run("document.getElementById('left-out').hidden") and f"{math.ceil(most / 1e5) / 10:g} MB" in text
                and "margins of evictions" in text and "eviction.margin" in foot, text, foot)
        maps = {"alpha": "maps of what is kept", "beta": "maps of retention", "last": "maps of last use"}
        s.check(f"{most}: maps that are left out are named, no others", all((name in text) == (kind in gone) for kind, name in maps.items()), text, gone)
        if gone:
            s.check(f"{most}: the place of the map says how to get it", f"--max-size {math.ceil(size / 1e5) / 10:g}" in b.run("document.querySelector('.frame').dataset.problem"))
            s.check(f"{most}: the text is shaded all the same", b.run("document.querySelectorAll('.w.k10').length > 0 && document.querySelector('#text-tools select').value") == "kept")
        s.check(f"{most}: maps go last", bool(gone) == (most == 100_000), gone)
        command = text.split("kvfate report ")[1].split(";")[0].split()
        s.check(f"{most}: the terminal says as much", f"--max-size {command[2]} includes all" in done.stderr.decode(), done.stderr, command)
        s.run("report", os.path.join(s.work.name, command[0]), *command[1:-1], s.path("again.html"))
        ready(b, s.path("again.html"))
        s.check(f"{most}: its command makes a page with all", not b.run(lacks) and b.run("document.getElementById('left-out').hidden"), command)
    quiet(s, b, "left out")


def odd(s, b):
    for name, n, kinds in (("zero", 0, "egu"), ("one", 1, "egu"), ("all", 40, "x"), ("bare", 6, "")):
        ready(b, s.report(f"{name}.html", s.trace(f"{name}.kvf", n, 2, 1, 2, kinds)))
        shown = b.run("document.getElementById('problem').hidden && document.querySelectorAll('.panel').length")
        s.check(f"{name}: the page is whole", shown >= 8, shown, b.run("document.getElementById('problem').textContent"))
        if name == "bare":
            s.check("bare: what records it is said", "probes" in b.run("document.querySelector('.frame').dataset.problem"))
        for key in ("2", "3", "+", "ArrowRight", "Escape", "1"):
            b.key(key)
        settle(b)
        quiet(s, b, name)


def old_browser(s, b):
    """Check the message for a browser that cannot unpack the tables."""
    script = b.call("Page.addScriptToEvaluateOnNewDocument", source="delete window.DecompressionStream")["identifier"]
    b.open(s.path("one.html"))
    said = b.until("document.readyState === 'complete' && !document.getElementById('problem').hidden && document.getElementById('problem').textContent")
    s.check("an old browser is told", "DecompressionStream" in said, said)
    b.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script)


def names(s, b):
    """Check that every control has a name for screen readers."""
    bare = b.run("[...document.querySelectorAll('button, select, a[href], canvas[role], svg[role]')].filter(e => !(e.getAttribute('aria-label') || e.title "
                 "|| e.textContent.trim())).map(e => e.outerHTML.slice(0, 90))")
    s.check("what can be pressed has a name", not bare, bare)


def shown_texts(s, b):
    """Check tokens as text: marks for invisible characters, long ones cut, no markup."""
    words = b.run("[...document.querySelectorAll('.w')].map(w => [Number(w.dataset.i), w.textContent, [...w.querySelectorAll('*')].filter(e => e.tagName !== 'BDI' || e.children.length).length])")
    by = {i: t for i, t, _ in words}
    s.check("tokens are text", all(n == 0 for _, _, n in words) and by[0] == HOSTILE[0].decode(), by.get(0))
    at = HOSTILE.index(b"x" * 10000)
    s.check("a long token is cut, with its length", "[10000 characters]" in by[at] and len(by[at]) < 260, by[at][:300])
    bidi = HOSTILE.index("\u202eevil\u202c".encode())
    s.check("marks of direction are shown", "U+202E" in by[bidi] and "\u202e" not in by[bidi], by[bidi])
    s.check("bytes that are no text are shown", "\\xFF" in by[HOSTILE.index(b"\xff\xfe\x80")] and "\\x00" in by[HOSTILE.index(b"a\0b")])


def times(s, b):
    many = 8192 if LONG else 1024  # test_tasks.py always opens a page of 8,192
    trace = s.trace("large.kvf", many, 30, 3, 9, "egu")
    page = s.report("large.html", trace)
    opened = []
    for _ in range(3):
        ready(b, page)
        opened.append(b.run("performance.getEntriesByName('kvfate-map')[0].startTime"))
    grid = b.run("performance.getEntriesByName('kvfate-grid')[0].startTime")
    moves = b.run("""(() => { const f = document.querySelector('.frame'), r = f.getBoundingClientRect(), out = [];
        for (let k = 0; k < 300; k++) { const e = new PointerEvent('pointermove', {clientX: r.left + (k * 37 % 500), clientY: r.top + (k * 53 % 500), pointerId: 1, bubbles: true});
        const t0 = performance.now(); f.dispatchEvent(e); document.getElementById('tip').getBoundingClientRect(); out.push(performance.now() - t0); } return out })()""")
    middle = statistics.median(moves)
    print(f"{many} tokens x 90 heads: first map after {min(opened):.0f} ms (of {', '.join(f'{o:.0f}' for o in opened)}), all thumbnails after {grid:.0f} ms; "
          f"a move of the pointer {middle:.2f} ms in the median, {max(moves):.1f} at most")
    s.check(f"{many} tokens open", min(opened) < 5000, opened)
    s.check("the pointer is followed", middle < 16, middle)
    quiet(s, b, f"{many} tokens")


def shots(s, b, folder):
    ready(b, s.path("two.html"))
    on_paper(s, b, "one trace")
    for name, (w, h, ratio, phone), scheme in (("wide", (1400, 900, 1, False), "light"), ("dark", (1400, 900, 1, False), "dark"), ("phone", (390, 844, 2, True), "light")):
        b.size(w, h, ratio, phone)
        b.scheme(scheme)
        ready(b, s.path("a.html"))
        b.screenshot(os.path.join(folder, name + ".png"))
        s.check(f"{name}: a picture", os.path.getsize(os.path.join(folder, name + ".png")) > 20000)
    b.pdf(os.path.join(folder, "print.pdf"))
    s.check("prints", os.path.getsize(os.path.join(folder, "print.pdf")) > 20000)
    b.scheme("light")
    b.size(1400, 900)


def look(s, b):
    one = s.trace("a.kvf", T, L, H, G, "egu", texts=HOSTILE)
    other = s.trace("b.kvf", T, L, H, G, "eu", seed=9, texts=HOSTILE)
    page = s.report("a.html", one)
    ready(b, page)
    for step in (lambda: quiet(s, b, "hostile texts"), lambda: shown_texts(s, b), lambda: names(s, b), lambda: same_colours(s, b, one, MASS), lambda: estimates(s, b, one), lambda: notes(s, b), lambda: hover_values(s, b, one), lambda: all_pixels(s, b, one),
                 lambda: keys(s, b), lambda: text_links(s, b), lambda: zoom(s, b), lambda: downloads(s, b, one),
                 lambda: quiet(s, b, "after all that"), lambda: touch(s, b, page), lambda: compare(s, b, one, other), lambda: all_criteria(s, b), lambda: odd(s, b), lambda: short(s, b), lambda: left_out(s, b, one), lambda: old_browser(s, b),
                 lambda: shots(s, b, sys.argv[4] if len(sys.argv) > 4 else s.work.name), lambda: times(s, b)):
        step()


if __name__ == "__main__":
    sys.exit(in_browser(look))
