#!/usr/bin/env python3
"""Check how a reader explores the page of `kvfate report`, in headless Chromium: the slider of time, the order and the
filter of the heads, the panels of all traces, the layout, and Esc.  Tasks with the mouse at three sizes, and with the
keyboard only.  Expected values come from the tables of kvfate, and distances from counted pairs.

usage: test_explore.py KVFATE MAKE_REPORT_TRACE

Skips (77) without Chromium.
"""
import collections
import json
import os
import re
import sys
import time

from page import in_browser
from test_report import quiet, ready, settle, table
from test_tasks import NEEDLE, OTHER, TEXTS, CONTRAST, Reader, G, H, L, T, one, text_of

P = T - T // 4  # tokens of the prompt
HEADS = [f"L{layer}K{k}" for layer in range(L) for k in range(H)]
SHOWN = "[...document.querySelectorAll('#grid .thumb')].map(e => e.dataset.head)"
HASH = "location.hash"


def ends(s, trace):
    """Return for each KV head the first query without each token, T if it is cached to the end."""
    e, out = table(s, "eviction", trace), collections.defaultdict(list)
    for head, end in zip(e["head"], e["evict_step"]):
        out[head].append(end if end >= 0 else T)
    return out


def per_head(s, column, *argv):
    data = table(s, *argv)
    return {h: v for h, v in zip(data["head"], data[column]) if h != "all"}


def of_readers(values, head):
    """Return the mean of the query heads that read a KV head."""
    layer, k = map(int, re.findall(r"\d+", head))
    share = G // H
    return sum(values[f"L{layer}H{k * share + q}"] for q in range(share)) / share


def show(b, page, fragment=""):
    b.open("about:blank")
    b.call("Page.navigate", url="file://" + page + fragment)
    for mark in ("map", "grid", "panels", "headline"):
        b.until(f"performance.getEntriesByName('kvfate-{mark}').length > 0")
    settle(b)


def choose(b, selector, value):
    b.run(f"(() => {{ const e = {one(selector)}; e.value = {json.dumps(value)}; e.dispatchEvent(new Event('change')); }})()")


# ---- the slider of time

def tokens_at(b):
    """Return the tokens of the text that are struck through, and those that are not read yet."""
    return [set(b.run(f"[...document.querySelectorAll('.w.{name}')].map(e => Number(e.dataset.i))")) for name in ("out", "late")]


def slider(s, b, page, trace):
    end = ends(s, trace)
    for head, t in (("L1K1", 350), ("L3K0", 120), ("L0K0", T - 1)):
        show(b, page, f"#trace=1&map=alpha&head={head}&query={t}")
        b.until("document.getElementById('query-note').textContent.includes('caches')")
        out, late = tokens_at(b)
        shown = set(b.run("[...document.querySelectorAll('.w')].map(e => Number(e.dataset.i))"))
        want = {i for i in shown if i <= t and end[head][i] <= t}
        s.check(f"{head} at query {t}: the evicted tokens are struck through", len(shown) > 200 and out == want, sorted(out ^ want)[:9])
        s.check(f"{head} at query {t}: later tokens are not read yet", late == {i for i in shown if i > t}, sorted(late)[:9])
        n = sum(t < e for e in end[head][:t + 1])
        s.check(f"{head} at query {t}: the cached tokens are counted", f"Query {t} of {T - 1}: {head} caches {n} of {t + 1} tokens" == text_of(b, "#query-note"), text_of(b, "#query-note"), n)
    choose(b, "#text-tools select", "kept")
    b.run("(() => { const e = document.getElementById('query'); e.value = 333; e.dispatchEvent(new Event('input')); })()")
    settle(b)
    got = dict(b.run("[...document.querySelectorAll('.w')].map(e => [e.dataset.i, e.className.match(/k(\\d+)/)?.[1]])"))
    want = {str(i): round(10 * sum(333 < end[h][i] for h in HEADS) / len(HEADS)) for i in range(334)}
    bad = [(i, v, want[i]) for i, v in got.items() if i in want and abs(int(v) - want[i]) > (want[i] % 1 == 0.5)]
    s.check("all heads: the shade is the fraction that caches the token", len(got) > 200 and not bad, bad[:6])
    place = b.run("""(() => { const f = document.querySelector('.frame').getBoundingClientRect(), l = document.querySelector('.frame .later').getBoundingClientRect();
        const thumbs = [...document.querySelectorAll('.thumb')].map(e => parseFloat(getComputedStyle(e, '::after').top) / e.offsetHeight);
        return [(l.top - f.top) / f.height, Math.min(...thumbs), Math.max(...thumbs), thumbs.length]; })()""")
    y0, y1 = map(int, re.findall(r"queries (\d+)\D(\d+)", text_of(b, "#map-note"))[0]) if text_of(b, "#map-note") else (0, T - 1)
    want = (334 - y0) / (y1 + 1 - y0)
    s.check("every map is covered after the query", place[3] == L * H and all(abs(v - want) < 0.02 for v in place[:3]), place, want)
    moves(s, b)


def moves(s, b):
    """Check the keys of the slider, and playing."""
    query = "Number(document.getElementById('query').value)"
    for key, shift, step in ((".", False, 1), (",", False, -1), (">", True, 10), ("<", True, -10)):
        before = b.run(query)
        b.key(key, shift)
        s.check(f"key {key}", b.run(query) == before + step, before, b.run(query))
    b.run("document.getElementById('query').focus()")
    before = b.run(query)
    b.key("ArrowLeft")
    s.check("the slider has its own keys", b.run(query) == before - 1 and b.run("document.getElementById('map-title').textContent").endswith("L0K0"))
    b.key("p")
    s.check("playing", b.until(f"{query} > {before} && document.getElementById('play').getAttribute('aria-label') === 'Pause'"))
    b.key("Escape")
    at = b.run(query)
    time.sleep(0.6)
    s.check("Esc pauses, and keeps the query", b.run(query) == at and at < T and "All" not in text_of(b, "#query-note"))
    b.run(f"(() => {{ const e = document.getElementById('query'); e.value = {T - 4}; e.dispatchEvent(new Event('input')); }})()")
    b.key("p")
    s.check("it ends at the last query", b.until(f"{query} === {T - 1} && document.getElementById('play').getAttribute('aria-label') !== 'Pause'"))
    b.key("Escape")
    settle(b)
    s.check("without a query nothing is struck through", tokens_at(b) == [set(), set()] and text_of(b, "#query-note") == "All queries")


# ---- the heads

def distance(x, y):
    """Return 1 - the shared fraction of the cached pairs (token, query) after the prompt, by counting them."""
    pairs = [{(i, t) for t in range(P, T) for i in range(300) if i <= t < e[i]} for e in (x, y)]
    return 1 - len(pairs[0] & pairs[1]) / len(pairs[0] | pairs[1])


def orders(s, b, page, traces):
    mine, other = ends(s, traces[0]), ends(s, traces[1])
    values = {
        "kept": {h: 1 - v for h, v in per_head(s, "sparsity", "size", "--as", "sparsity", traces[0], "--kind", "alpha").items()},
        "retention": {h: 1 - v for h, v in per_head(s, "sparsity", "size", "--as", "sparsity", traces[0], "--kind", "beta").items()},
        "evictions": {h: sum(e < T for e in mine[h]) for h in HEADS},
        "dilution": {h: of_readers(per_head(s, "dilution", "dilution", traces[0], "--mean", "--tokens", f"{P}:"), h) for h in HEADS},
        "distance-2": {h: distance(mine[h], other[h]) for h in HEADS},
    }
    show(b, page, "#trace=1&map=alpha")
    s.check("the order of the model", b.run(SHOWN) == HEADS, b.run(SHOWN))
    for order, value in values.items():
        choose(b, "#order-tools select", order)
        b.until("document.querySelectorAll('#grid .value').length > 0")
        settle(b)
        got, said = b.run(SHOWN), b.run("[...document.querySelectorAll('#grid .value')].map(e => e.textContent)")
        best = sorted(HEADS, key=lambda h: -value[h])
        s.check(f"sorted by {order}", all(abs(value[a] - value[c]) < 1e-9 for a, c in zip(got, best)) and len(got) == len(HEADS), got, best)
        s.check(f"the values of {order}", all(abs(float(w.replace('\u2212', '-')) - value[h]) <= 6e-3 * abs(value[h]) + 1e-9 for h, w in zip(got, said)), said, [value[h] for h in got])
    b.run("document.getElementById('rising').click()")
    settle(b)
    s.check("reversed", b.run(SHOWN) == sorted(HEADS, key=lambda h: values["distance-2"][h]), b.run(SHOWN))
    b.key("ArrowRight")
    settle(b)
    first = b.run(SHOWN)
    b.run(f"document.querySelector('.thumb[data-head={first[2]}]').click()")
    b.key("ArrowRight")
    settle(b)
    s.check("arrow keys follow the order", text_of(b, "#map-title").endswith(first[3]), text_of(b, "#map-title"), first)


def filters(s, b, page, trace):
    kinds = per_head(s, "kind", "heads", trace)
    some = collections.Counter(kinds.values()).most_common(1)[0][0]

    def read_by(head, kind):
        layer, k = map(int, re.findall(r"\d+", head))
        return any(kinds[f"L{layer}H{k * (G // H) + q}"] == kind for q in range(G // H))

    show(b, page, "#trace=1&map=alpha")
    for words, want in (("L3*", ["L3K0", "L3K1"]), ("L1-2K1", ["L1K1", "L2K1"]), ("4.0", ["L4K0"]), ("L0*,L4*", ["L0K0", "L0K1", "L4K0", "L4K1"]), ("L*H3", [h for h in HEADS if h.endswith("K1")]),
                        (some, [h for h in HEADS if read_by(h, some)]), (f"L2* {some[:4].upper()}", [h for h in HEADS if h.startswith("L2") and read_by(h, some)]), ("nothing-like-it", [])):
        b.run(f"(() => {{ const e = document.getElementById('head-search'); e.value = {json.dumps(words)}; e.dispatchEvent(new Event('input')); }})()")
        settle(b)
        b.until(f"document.querySelectorAll('#grid .thumb').length === {len(want)}")
        s.check(f"heads that fit {words}", b.run(SHOWN) == want, b.run(SHOWN), want)
    s.check("no head fits: it is said", "No head fits" in text_of(b, "#grid") and f"0 of {len(HEADS)}" in text_of(b, "#overview-note"))
    b.run("(() => { const e = document.getElementById('head-search'); e.value = ''; e.dispatchEvent(new Event('input')); })()")
    settle(b)
    # The chips of the overview count its KV heads, and the chips of the table its query heads.
    of_kv = {kind: sum(read_by(h, kind) for h in HEADS) for kind in set(kinds.values())}
    s.check("KV heads and query heads have different counts", of_kv != dict(collections.Counter(kinds.values())), of_kv)
    for where, count in (("#chips", of_kv), ("#panel-kinds", collections.Counter(kinds.values()))):
        b.until(f"document.querySelectorAll('{where} .chip').length > 0")
        chips = dict(b.run(f"[...document.querySelectorAll('{where} .chip')].map(e => [e.dataset.kind, Number(e.querySelector('b').textContent)])"))
        s.check(f"{where}: a chip for each head type, with its heads", chips == dict(count), chips, count)
        b.run(f"document.querySelector('{where} .chip[data-kind={some}]').click()")
        settle(b)
        s.check(f"{where}: a chip filters", b.run(SHOWN) == [h for h in HEADS if read_by(h, some)], b.run(SHOWN))
        s.check(f"{where}: it is pressed", b.run(f"document.querySelector('#chips .chip[data-kind={some}]').getAttribute('aria-pressed')") == "true")
        b.run(f"document.querySelector('#chips .chip[data-kind={some}]').click()")
        settle(b)
        s.check(f"{where}: pressed again, it shows all", b.run(SHOWN) == HEADS)


# ---- all traces in every panel

def method_colours():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../render/identity.c")) as f:
        return dict(re.findall(r'{"([a-z0-9-]+)", 0x([0-9a-f]{6}), MARK_', f.read()))


def drawn(b, panel):
    """Return {colour and dashes: [(x, y)]} of the lines of a chart, in its coordinates."""
    lines = b.run(f"[...document.querySelectorAll('#panel-{panel} .chart path')].map(p => [p.getAttribute('stroke'), p.getAttribute('stroke-dasharray'), p.getAttribute('d')])")
    return {(colour, dash): [tuple(map(float, p)) for p in re.findall(r"[ML]([\d.]+) ([\d.]+)", d)] for colour, dash, d in lines}


def same_shape(points, want):
    """Check that points of a picture are the wanted (x, y) up to the scale of each axis."""
    if len(points) != len(want):
        return False
    for axis in (0, 1):
        v, w = [p[axis] for p in points], [p[axis] for p in want]
        lo, hi = w.index(min(w)), w.index(max(w))
        if w[hi] - w[lo] < 1e-9:
            continue
        scale = (v[hi] - v[lo]) / (w[hi] - w[lo])
        if any(abs(v[lo] + scale * (x - w[lo]) - y) > 0.12 for x, y in zip(w, v)):
            return False
    return True


def overlays(s, b, page, traces):
    show(b, page, "#trace=1&map=alpha&head=L2K1")
    keys = b.run("[...document.querySelectorAll('#panel-occupancy .traces button')].map(e => [e.textContent, e.querySelector('path').getAttribute('stroke'), e.querySelector('path').getAttribute('stroke-dasharray')])")
    looks = [(colour, dash) for _, colour, dash in keys]
    s.check("one look per trace, named", len(set(looks)) == 3 and all(name in keys[k][0] for k, name in enumerate(("a.kvf", "made-up", "c.kvf"))), keys)
    s.check("the colour of a method is that of the figures", looks[0][0] == looks[2][0] == "#" + method_colours()["h2o"] and looks[0][1] != looks[2][1], keys)
    for panel in ("survival", "occupancy", "density", "sizes", "sparsity", "dilution"):
        got = drawn(b, panel)
        s.check(f"{panel}: a line for each trace", set(got) == set(looks), list(got), text_of(b, f"#panel-{panel} .body"))
    for k, trace in enumerate(traces):
        size, end = table(s, "size", trace), ends(s, trace)
        steps = [(t, n) for h, c, t, n in zip(size["head"], size["class"], size["step"], size["entries"]) if h == "L2K1" and c == "all"]
        got = drawn(b, "occupancy")[looks[k]]
        s.check(f"occupancy of trace {k + 1}", len(got) > 50 and same_shape(got, steps[len(steps) - len(got):]) and all(n == sum(i <= t < e for i, e in enumerate(end["L2K1"])) for t, n in steps), got[:3], steps[:3])
        for panel, column, argv in (("sizes", "size", ("size", "--as", "kv-size")), ("sparsity", "sparsity", ("size", "--as", "sparsity", "--kind", "alpha")),
                                    ("dilution", "dilution", ("dilution", "--mean", "--tokens", f"{P}:"))):
            data = table(s, *argv, trace)
            rows = [(int(h[1:].split("K")[0].split("H")[0]), v) for h, v, *at in zip(data["head"], data[column], *([data["at"]] if "at" in data else [])) if h != "all" and (not at or at[0] == "end")]
            mean = [(layer, sum(v for lay, v in rows if lay == layer) / sum(lay == layer for lay, _ in rows)) for layer in range(L)]
            s.check(f"{panel} of trace {k + 1}: the means of the layers", same_shape(drawn(b, panel)[looks[k]], mean), drawn(b, panel)[looks[k]], mean)
    b.run("document.querySelector('#panel-occupancy [data-single=\"1\"]').click()")
    settle(b)
    b.until("document.querySelectorAll('#panel-density .chart').length === 1 && document.querySelectorAll('#panel-dilution .layers').length === 1")
    s.check("a press on the key shows one trace in every panel", b.run("document.querySelectorAll('#panel-sizes .layers').length") == 1 and "made-up" in b.run(
        "document.querySelector('#panel-survival [aria-pressed=true]').textContent") and "panels=2" in b.run(HASH), b.run(HASH))
    b.run("document.querySelector('#panel-survival [data-single=\"1\"]').click()")
    settle(b)
    b.until("document.querySelectorAll('#panel-sizes .chart').length === 1")
    s.check("another press shows all", set(drawn(b, "occupancy")) == set(looks))


# ---- layout, colours, Esc, the address

BOXES = """['#map .frame', '#text', '#grid', '#main'].map(q => { const r = document.querySelector(q).getBoundingClientRect(); return [r.left, r.top + scrollY, r.right, r.bottom + scrollY] })"""


def layout(s, b, page):
    for w, h in ((1000, 600), (1100, 800), (1440, 900), (2560, 1440)):
        b.size(w, h)
        show(b, page)
        map_, text, grid, main = b.run(BOXES)
        s.check(f"{w} x {h}: the text is beside the map", text[0] >= map_[2] and text[1] < map_[3] and map_[1] < text[3], map_, text)
        s.check(f"{w} x {h}: they use the width", text[2] > 0.95 * w and text[0] - map_[2] < 60 and map_[2] - map_[0] > 0.28 * w, map_, text)
        s.check(f"{w} x {h}: the heads {'below' if w <= 1200 else 'at the left'}", grid[1] > map_[3] if w <= 1200 else grid[2] <= map_[0], grid, map_)
        s.check(f"{w} x {h}: no wider than the window", b.run("document.documentElement.scrollWidth <= innerWidth"))
    b.size(390, 844, 2, True)
    show(b, page)
    map_, text, grid, main = b.run(BOXES)
    s.check("phone: map, text, heads below each other", map_[3] <= text[1] and text[3] <= grid[1], map_, text, grid)
    s.check("phone: no wider than the window", b.run("document.documentElement.scrollWidth <= innerWidth"))
    b.size(1440, 900)


def dark(s, b, page):
    b.scheme("dark")
    show(b, page, "#trace=1&map=alpha&head=L1K1&whole=yes")
    future, printed = b.run("(() => { const f = getComputedStyle(document.querySelector('.frame')), c = document.querySelector('.map'); return [f.backgroundColor, getComputedStyle(c).filter] })()")
    rgb = list(map(int, re.findall(r"\d+", future)))[:3]
    evicted = 255 - 229  # the lightest colour of the map, inverted
    s.check("dark: evicted and future differ", "invert" in printed and min(abs(v - evicted) for v in rgb) >= 25, rgb, printed)
    b.key("<", shift=True)
    settle(b)
    n, bad = b.run(CONTRAST)
    s.check("dark: texts of the slider have a contrast of 4.5", n > 300 and not bad, bad[:6])
    b.scheme("light")
    n, bad = b.run(CONTRAST)
    s.check("light: texts of the slider have a contrast of 4.5", n > 300 and not bad, bad[:6])


def escape(s, b, page, trace):
    first = int(json.loads(s.run("eviction", trace, "--json").stdout)["meta"]["first_eviction"])
    show(b, page, "#trace=1&map=alpha&head=L1K1&tokens=10-110&steps=200-300&query=250&token=20&heads=L1*&order=kept&panels=1")
    steps = [("token=", "pinned"), ("query=", "time"), ("heads=", "filter"), ("order=", "order"), ("panels=", "one trace"), ("tokens=", "part of the map")]
    for k, (gone, name) in enumerate(steps):
        s.check(f"Esc {k + 1}: {name} is shown before", gone in b.run(HASH), b.run(HASH))
        b.key("Escape")
        settle(b)
        left = b.run(HASH)
        s.check(f"Esc {k + 1}: takes back only {name}", gone not in left and all(g in left for g, _ in steps[k + 1:]), left)
    s.check("the full view starts shortly before the first eviction", b.run("document.getElementById('map-note').textContent") == (
        f"tokens 0\u2013{T - 1}, queries {max(0, int(first - (T - first) / 8))}\u2013{T - 1}" if first - (T - first) / 8 >= 1 else ""), text_of(b, "#map-note"), first)
    for key in ("+", "+", "."):
        b.key(key)
    x, y, w = b.run("(() => { const r = document.querySelector('.frame').getBoundingClientRect(); return [r.left, r.top, r.width] })()")
    b.call("Input.dispatchMouseEvent", type="mouseWheel", x=x + w / 3, y=y + w / 3, deltaX=0, deltaY=-70)
    time.sleep(0.4)
    settle(b)
    link, note = b.run(HASH), text_of(b, "#map-note")
    s.check("the address has whole numbers", re.search(r"tokens=\d+-\d+&steps=\d+-\d+&query=\d+", link) and "." not in link, link)
    show(b, page, link)
    s.check("the address opens the same view", b.run(HASH) == link and text_of(b, "#map-note") == note, b.run(HASH), link, note)


# ---- tasks

LIMITS = {"find a token": 3, "heads of one type": 1, "heads of a layer": 2, "sort by dilution": 2, "the map of the first head": 1, "the cache at a query": 1, "play the queries": 1,
          "one trace in the panels": 1, "the map of a row of the table": 1, "all again": 8}
KEYS = {**LIMITS, "heads of one type": 4, "sort by dilution": 9, "the map of a row of the table": 30, "one trace in the panels": 2}


class Timed(Reader):
    def task(self, name, ok, *details):
        now = time.monotonic()
        self.seconds = {**getattr(self, "seconds", {}), name: (self.clicks, now - getattr(self, "since", now))}
        self.since = now
        super().task(name, ok, *details)


def with_mouse(s, b, page, size):
    b.size(*size)
    show(b, page, "#trace=1&map=alpha")
    r = Timed(s, b, dict(LIMITS))
    r.since = time.monotonic()
    r.click(one("#find"))
    r.type("84255")
    r.key("Enter")
    r.task("find a token", b.until(f"document.querySelector('.w.pinned')?.dataset.i === '{NEEDLE}'"))
    kind = b.run("document.querySelector('#chips .chip').dataset.kind")
    r.click(one(f"#chips .chip[data-kind={kind}]"))
    r.task("heads of one type", b.until(f"document.getElementById('head-search').value === '{kind}' && document.getElementById('overview-note').textContent.length > 0"))
    b.run("document.getElementById('head-search').value = ''")
    r.click(one("#head-search"))
    r.type("L2*")
    r.task("heads of a layer", b.until("document.querySelectorAll('#grid .thumb').length === 2"))
    r.place(one("#order-tools select"))
    choose(b, "#order-tools select", "dilution")
    r.clicks += 2  # a select is opened and chosen from by two clicks
    r.task("sort by dilution", b.until("document.querySelectorAll('#grid .value').length === 2"))
    first = b.run(SHOWN)[0]
    r.click(one(f".thumb[data-head={first}]"))
    r.task("the map of the first head", text_of(b, "#map-title").endswith(first) and in_window(b, "#map .frame"))
    x, y = r.place(one("#query"))
    b.click(x, y)
    r.clicks += 1
    r.task("the cache at a query", b.until("document.getElementById('query-note').textContent.includes('caches')") and "query=" in b.run(HASH))
    r.click(one("#play"))
    r.task("play the queries", b.until("document.getElementById('play').getAttribute('aria-label') === 'Pause'"))
    r.click(one("#panel-dilution [data-single='1']"))
    r.task("one trace in the panels", b.until("document.querySelectorAll('#panel-dilution .layers').length === 1"))
    r.click(one("#panel-kinds tbody tr:nth-child(7)"))
    row = text_of(b, "#panel-kinds tbody tr:nth-child(7) th")
    kv = f"L{row[1]}K{int(row.split('H')[1]) // (G // H)}"
    r.task("the map of a row of the table", text_of(b, "#map-title").endswith(kv) and in_window(b, "#map .frame"), text_of(b, "#map-title"), kv)
    undo(s, b, r)
    report(f"{size[0]} x {size[1]}", r)


def with_keys(s, b, page):
    b.size(1440, 900)
    show(b, page, "#trace=1&map=alpha")
    r = Timed(s, b, dict(KEYS))
    r.since = time.monotonic()
    for act in (lambda: r.key("/"), lambda: r.type("84255"), lambda: r.key("Enter")):
        act()
    r.task("find a token", b.until(f"document.querySelector('.w.pinned')?.dataset.i === '{NEEDLE}'"))
    b.run("document.activeElement.blur()")
    r.key("s")
    kind = b.run("document.querySelector('#chips .chip').dataset.kind")
    r.type(kind)
    r.task("heads of one type", b.until("document.getElementById('overview-note').textContent.includes(' of ') || document.querySelectorAll('#grid .one').length > 0"))
    b.key("Escape")
    r.key("s")
    r.type("L2*")
    r.task("heads of a layer", b.until("document.querySelectorAll('#grid .thumb').length === 2"))
    b.run("document.activeElement.blur()")
    while "order=dilution" not in b.run(HASH) and r.clicks < 12:
        r.key("o")
    r.task("sort by dilution", "order=dilution" in b.run(HASH) and b.until("document.querySelectorAll('#grid .value').length === 2"))
    r.key("ArrowRight")
    r.task("the map of the first head", b.run(SHOWN)[0] in text_of(b, "#map-title"), b.run(SHOWN), text_of(b, "#map-title"))
    r.key("p")
    r.task("play the queries", b.until("document.getElementById('play').getAttribute('aria-label') === 'Pause'"))
    r.key(",")
    r.task("the cache at a query", b.until("document.getElementById('query-note').textContent.includes('caches')") and b.run("document.getElementById('play').getAttribute('aria-label')") != "Pause")
    r.key("i")
    r.key("i")
    r.task("one trace in the panels", b.until("document.querySelectorAll('#panel-dilution .layers').length === 1") and "panels=2" in b.run(HASH), b.run(HASH))
    b.run("document.querySelector('#panel-kinds .scroll').focus()")
    while not b.run("document.activeElement.matches('#panel-kinds tbody button')") and r.clicks < 28:
        r.key("Tab")
    b.call("Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")
    b.call("Input.dispatchKeyEvent", type="keyUp", key="Enter", code="Enter", windowsVirtualKeyCode=13)
    r.clicks += 1
    settle(b)
    r.task("the map of a row of the table", text_of(b, "#map-title").endswith("L0K0") and in_window(b, "#map .frame"), text_of(b, "#map-title"))
    undo(s, b, r)
    report("keyboard", r)


def in_window(b, selector):
    return b.run(f"(() => {{ const r = {one(selector)}.getBoundingClientRect(); return r.bottom > 0.2 * innerHeight && r.top < 0.8 * innerHeight }})()")


def undo(s, b, r):
    b.run("document.activeElement.blur()")
    while any(part in b.run(HASH) for part in ("query=", "heads=", "order=", "token=", "panels=", "find=", "whole=")) and r.clicks < 12:
        r.key("Escape")
    r.task("all again", b.run(HASH).count("&") == 2, b.run(HASH))
    s.check("every task was done", not r.limits, r.limits)


def report(name, r):
    print(f"{name}: " + "; ".join(f"{task} {clicks} clicks {seconds:.1f} s" for task, (clicks, seconds) in r.seconds.items()))


def look(s, b):
    traces = [s.trace("a.kvf", T, L, H, G, "egusdh", texts=TEXTS), s.trace("b.kvf", T, L, H, G, "eusd", seed=5, texts=OTHER), s.trace("c.kvf", T, L, H, G, "eudh", seed=9, texts=TEXTS)]
    page = s.report("explore.html", *traces)
    b.size(1440, 900)
    ready(b, page)
    quiet(s, b, "explore")
    slider(s, b, page, traces[0])
    orders(s, b, page, traces)
    filters(s, b, page, traces[0])
    overlays(s, b, page, traces)
    escape(s, b, page, traces[0])
    dark(s, b, page)
    layout(s, b, page)
    for size in ((390, 844), (1000, 600), (1440, 900)):
        with_mouse(s, b, page, size)
    with_keys(s, b, page)
    s.check("no error", not b.errors and not b.console, b.errors, b.console)


if __name__ == "__main__":
    sys.exit(in_browser(look))
