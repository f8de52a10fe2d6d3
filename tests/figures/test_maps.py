"""Check maps: every cell has the colour of its number, every box the mean of its cells, small multiples and differences
match the table, and edges are correct.  usage: test_maps.py KVFATE WRITE_KVF DRAW_TABLE PALETTE_TABLES_H

Values are read back from the colours of SVG and PNG files and compared with numpy on dense T x T arrays.
"""
import base64
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import expect, finish  # noqa: E402
from made import make_trace  # noqa: E402
from readers import png  # noqa: E402
from server import Server  # noqa: E402
from test_panels import paths  # noqa: E402


KVFATE, WRITE_KVF, TABLES = sys.argv[1], sys.argv[2], sys.argv[4]
DRAW = Server(sys.argv[3])


def run(*args):
    return subprocess.run([str(a) for a in args], capture_output=True, text=True)


def drawn(*args, **more):
    """Draw a figure of a table; return the result like run()."""
    status, said = DRAW(*args, **more)
    return subprocess.CompletedProcess(args, status, "", said)


# ---- colours back to numbers

def palette(name):
    """Return the 256 colours of a map, from the list of the renderer."""
    text = open(TABLES).read()
    body = re.search(rf"COLOUR_MAP\({name},(.*?)\)", text, re.S).group(1)
    v = np.array([int(x, 16) for x in re.findall(r"0x([0-9a-fA-F]{6})", body)])
    assert len(v) == 256
    return np.stack([v >> 16, v >> 8 & 255, v & 255], 1).astype(float)


def value(rgb, name="viridis"):
    """Return the nearest positions 0 .. 1 of colours [n][3] on the map, and their distances from it."""
    fine = palette(name)
    at = np.linspace(0, 255, 2041)
    table = np.stack([np.interp(at, np.arange(256), fine[:, k]) for k in range(3)], 1)
    rgb = np.asarray(rgb).reshape(-1, 3)
    if rgb.dtype.kind == "u":  # many pixels: sorting numbers is faster than sorting rows
        key, which = np.unique(rgb @ np.array([1 << 16, 1 << 8, 1]), return_inverse=True)
        few = np.stack([key >> 16, key >> 8 & 255, key & 255], 1)
    else:
        few, which = np.unique(rgb, axis=0, return_inverse=True)
    best, far = np.empty(len(few)), np.empty(len(few))
    for i, c in enumerate(few):
        d = np.abs(c - table).max(1)
        best[i], far[i] = at[d.argmin()] / 255, d.min()
    which = which.reshape(-1)
    return best[which], far[which]


# ---- SVG

def svg(path):
    with open(path) as f:
        return ET.fromstring(f.read())


def cells(root):
    """Return (x, y, rgb) of the cells of maps, in drawing order."""
    out = []
    for e in root.iter():
        style = e.get("style", "")
        if e.tag.endswith("}path") and "crispEdges" in style:
            x, y = map(float, e.get("d").split()[1:3])
            out.append((x, y, [2.55 * float(c) for c in re.search(r"fill:rgb\((.*?)\)", style).group(1).replace("%", "").split(",")]))
    return out


def texts(root):
    return ["".join(e.itertext()) for e in root.iter() if e.tag.endswith("}text")]


def images(root):
    out = []
    for e in root.iter():
        if e.tag.endswith("}image"):
            href = e.get("{http://www.w3.org/1999/xlink}href")
            out.append((int(e.get("width")), int(e.get("height")), base64.b64decode(href.split(",", 1)[1])))
    return out


def write_table(path, name, columns, meta=()):
    n = len(next(iter(columns.values())))
    with open(path, "w") as f:
        f.write(f"# table: {name}\n" + "".join(f"# {k}: {v}\n" for k, v in meta) + "\t".join(columns) + "\n")
        for r in range(n):
            f.write("\t".join(str(c[r]) for c in columns.values()) + "\n")
    return path


def kv_size(path, size, ats, letter="K", more=None, without=()):
    """Write a table kv-size; size [layers][heads][ats]."""
    L, H, A = size.shape
    rows = [(l, h, a) for l in range(L) for h in range(H) for a in range(A) if (l, h, a) not in without]
    c = {"head": [f"L{l}{letter}{h}" for l, h, _ in rows], "layer": [r[0] for r in rows], "index": [r[1] for r in rows],
         "at": [ats[r[2]] for r in rows], "size": [size[r] for r in rows]}
    c.update(more or {})
    return write_table(path, "kv-size", c, [("T", 100)])


# ---- layer x head maps

def head_maps(folder):
    rng = np.random.default_rng(3)
    size = np.round(rng.uniform(0.1, 0.9, (5, 3, 2)), 6)
    size[0, 0, 0], size[4, 2, 1] = 0, 1
    size[2, 1, 0] = np.nan
    t, out = os.path.join(folder, "kv.tsv"), os.path.join(folder, "x.svg")
    kv_size(t, size, ["end", "mean"])
    r = drawn(t, "map", out)
    expect(r.returncode == 0, f"kv-size: {r.stderr}")
    got = cells(svg(out))
    expect(len(got) == 30, f"kv-size draws {len(got)} cells of 30")
    want = size.transpose(2, 0, 1).reshape(-1)  # panels, then layers, then heads
    v, far = value([g[2] for g in got])
    nan = np.isnan(want)
    grey = np.array([g[2] for g in got])[nan]
    expect(np.allclose(grey, 217, atol=1) and nan.sum() == 1, f"NaN is drawn as {grey}")
    expect(np.abs(v - want)[~nan].max() < 3e-3 and far[~nan].max() < 1, f"cells are {np.abs(v - want)[~nan].max()} off")
    expect("end" in texts(svg(out)) and "mean" in texts(svg(out)), f"panels are not named: {texts(svg(out))}")
    xs = sorted({round(g[0], 1) for g in got[:15]})
    expect(len(xs) == 5 and np.allclose(np.diff(xs), xs[1] - xs[0], atol=.11), f"layers stand at {xs}")

    drawn(t, "map", out, "at=mean")
    v, _ = value([g[2] for g in cells(svg(out))])
    want = size[:, :, 1].reshape(-1)
    expect(np.abs(v - want).max() < 3e-3, "at=mean does not draw the mean on the scale of fractions")
    low = os.path.join(folder, "low.tsv")
    kv_size(low, .1 + .2 * np.nan_to_num(size, nan=.5), ["end", "mean"])  # fractions are not stretched unless a range is given
    drawn(low, "map", out, "at=mean")
    v, _ = value([g[2] for g in cells(svg(out))])
    expect(np.abs(v - (.1 + .2 * want)).max() < 3e-3 and {"0", "1"} <= set(texts(svg(out))), f"small fractions are drawn as {v}")
    drawn(low, "map", out, "at=mean", vmin=.1, vmax=.3)
    v, _ = value([g[2] for g in cells(svg(out))])
    expect(np.abs(v - want).max() < 3e-3, f"a range that was asked for: {v}")

    drawn(t, "map", out, "minus=yes")
    got = cells(svg(out))
    diff = (size[:, :, 1] - size[:, :, 0]).reshape(-1)
    v, _ = value([g[2] for g in got], "bluered")
    nan = np.isnan(diff)
    reach = np.nanmax(np.abs(diff))
    expect(len(got) == 15 and np.abs(2 * v - 1 - diff / reach)[~nan].max() < 8e-3, "minus=yes does not draw the difference around 0")
    grey = np.array([g[2] for g in got])[nan]
    expect(nan.sum() == 1 and np.allclose(grey, 217, atol=1), f"NaN in the map that is subtracted is drawn as {grey}")
    expect(any("mean \u2212 end" in x for x in texts(svg(out))), f"the difference is not named: {texts(svg(out))}")
    for panel in (0, 1):
        kv_size(t, size, ["end", "mean"], without=[(4, 0, panel)])
        drawn(t, "map", out, "minus=yes")
        expect(len(cells(svg(out))) == 14, f"minus=yes draws {len(cells(svg(out)))} cells where panel {panel} lacks a head")


def rows_of_a_head(folder):
    """Check that several rows of a head are drawn by their mean, with a note in the bar label; numbers choose the
    nearest.
    """
    t, out = os.path.join(folder, "d.tsv"), os.path.join(folder, "x.svg")
    v = [0, 1, .25, .75, 1, 1, .5, math.nan]
    write_table(t, "dilution", {"head": [f"L0H{i // 2}" for i in range(8)], "layer": [0] * 8, "index": [i // 2 for i in range(8)],
                                "step": [0, 1] * 4, "dilution": v})
    drawn(t, "map", out)
    got, _ = value([g[2] for g in cells(svg(out))])
    expect(np.abs(got - [.5, .5, 1, .5]).max() < 3e-3, f"means .5 .5 1 .5 are drawn as {got}")
    expect(any("mean" in x for x in texts(svg(out))), "the bar does not say that it is a mean")
    t = os.path.join(folder, "s.tsv")
    n = [1, 10, 100]
    write_table(t, "survival", {"head": [f"L0H{i // 3}" for i in range(6)], "layer": [0] * 6, "index": [i // 3 for i in range(6)],
                                "criterion": ["top64"] * 6, "horizon": n * 2, "fraction": [1, .5, .25, 1, .75, .125],
                                "class": ["all"] * 6, "half_life": [3] * 6}, [("T", 40)])
    for style, want, name in (("", [.5, .75], "age 10"), ("horizon=100", [.25, .125], "age 100")):
        drawn(t, "map", out, style)
        got, _ = value([g[2] for g in cells(svg(out))])
        expect(np.abs(got - want).max() < 3e-3 and any(name in x for x in texts(svg(out))),
              f"survival-map {style}: {got}, {texts(svg(out))}")
    for asked, nearest in (("70", "100"), ("99999", "100"), ("-1", "1")):  # an age is never replaced
        r = run(KVFATE, "draw", t, "--figure", "map", "--style", "horizon=" + asked, "-o", out)
        expect(r.returncode == 2 and f"horizon={asked}; the nearest is {nearest}" in r.stderr, f"horizon={asked}: {r.stderr}")


def side_by_side(folder, kvf):
    copy, out = os.path.join(folder, "other.kvf"), os.path.join(folder, "x.svg")
    shutil.copy(kvf, copy)
    r = run(KVFATE, "size", "--as", "kv-size", kvf, copy, "--style", "at=mean", "-o", out)
    expect(r.returncode == 0, f"kv-size of two traces: {r.stderr}")
    root = svg(out)
    got = [g[2] for g in cells(root)]
    expect(len(got) == 12 and got[:6] == got[6:], "equal traces are drawn unlike")
    expect(any("usual" in x for x in texts(root)) and any("other" in x for x in texts(root)), f"traces are not named: {texts(root)}")
    r = run(KVFATE, "size", "--as", "kv-size", kvf, copy, "--style", "at=mean,minus=yes", "-o", out)
    said = " ".join(texts(svg(out)))
    expect("all 6 heads have the same value, 0:" in said, f"a trace less itself is {said}")
    r = run(KVFATE, "tokens", "--as", "words", kvf, copy, "-o", out)
    expect(r.returncode == 2, f"two traces in a figure of one: exit {r.returncode}")


# ---- maps over tokens and steps

def rgba(data):
    """Return the pixels [h][w][4] of an RGBA or RGB PNG."""
    out = png(data)[0].astype(np.int64)
    return out if out.shape[2] == 4 else np.concatenate([out, np.full((*out.shape[:2], 1), 255)], 2)


def box_means(cell, seen, w, h):
    """Return the area-weighted means over h x w boxes of cells [steps][tokens], NaN if no cell counts, and the covered
    fraction.
    """
    def weights(n, k):
        edge = np.arange(k + 1) * n / k
        lo, hi = np.arange(n)[None, :], np.arange(1, n + 1)[None, :]
        return np.clip(np.minimum(hi, edge[1:, None]) - np.maximum(lo, edge[:-1, None]), 0, None)
    a, b = weights(cell.shape[0], h), weights(cell.shape[1], w)
    area = a @ seen.astype(float) @ b.T
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(area > 1e-9, a @ (cell * seen) @ b.T / area, np.nan), area / (a.sum(1)[:, None] * b.sum(1)[None, :])


def windows(folder):
    """Compare complete maps, zooms and windows of steps with the dense average, through the file."""
    n = 37
    rng = np.random.default_rng(9)
    lb = -10.0 ** rng.uniform(-4, 1, n)
    lb[[0, 5]] = 0
    end = np.arange(n) + 1 + rng.integers(0, 30, n)
    end[[2, 9]] = -1
    tables = {}
    for first in (0, 11):
        m = n - first
        base = {"head": ["L3K1"] * m, "layer": [3] * m, "index": [1] * m, "token": list(range(first, n))}
        tables["eviction", first] = write_table(os.path.join(folder, f"e{first}.tsv"), "eviction",
                                                {**base, "evict_step": end[first:].tolist()}, [("T", 60), ("prompt_tokens", 20)])
        tables["retention", first] = write_table(os.path.join(folder, f"r{first}.tsv"), "retention",
                                                 {**base, "source": ["gate"] * m, "log_beta": lb[first:].tolist(), "last_use_age": [0] * m},
                                                 [("T", 60)])
    out = os.path.join(folder, "x.svg")
    t, i = np.arange(60)[:, None], np.arange(n)[None, :]
    dense = {"retention": np.exp(np.maximum(t - i, 0) * lb[None, :]), "eviction": ((t < end[None, :]) | (end[None, :] < 0)).astype(float)}
    for (figure, first), path in tables.items():
        linear = "scale=linear" if figure == "retention" else f"steps={first}:{n}"
        for style, a, b in ((linear, first, n), ("steps=20:60", 20, 60), ("steps=15:", 15, 60), (f"steps=0:{first + 3}", first, first + 3),
                            ("steps=50:51", 50, 51)):
            style += ",scale=linear" if figure == "retention" and "scale" not in style else ""
            r = drawn(path, figure, out, style, "44x27")
            expect(r.returncode == 0, f"{figure} {style}: {r.stderr}")
            w, h, data = images(svg(out))[0]
            px = rgba(data)
            mean, cover = box_means(dense[figure][a:b, first:], (t >= i)[a:b, first:], w, h)
            full = cover > 1 - 1e-9
            v, far = value(px[full][:, :3], "blues")
            off = np.abs(v - mean[full]).max()
            expect(off < 8e-3 and far.max() <= 1, f"{figure} of tokens {first}: {style}, {w} x {h}: off by {off}, {far.max()}")
            shade = np.abs(px[:, :, 3] / 255 - np.clip(cover, 0, 1)).max()
            expect(shade < 4e-3, f"{figure} {style}: opacity off by {shade}")
    drawn(tables["retention", 0], "retention", out, "scale=log", "44x27")
    w, h, data = images(svg(out))[0]
    mean, cover = box_means(dense["retention"][:n], (t >= i)[:n], w, h)
    full = cover > 1 - 1e-9
    v, far = value(rgba(data)[full][:, :3], "blues")
    off = np.abs(v - np.clip(1 + np.log10(mean[full]) / 3, 0, 1)).max()
    expect(off < 8e-3 and far.max() <= 1, f"retention on a scale of logarithms from 0.001 to 1: off by {off}, {far.max()}")
    half_lives(tables["retention", 0], np.where(lb < 0, np.log(.5) / np.where(lb < 0, lb, -1), np.inf))
    for style in ("steps=9", "steps=a:b", "steps=3:3", "steps=70:80", "width=3"):
        r = drawn(tables["eviction", 11], "eviction", out, style)
        expect(r.returncode == 2 and r.stderr, f"{style}: exit {r.returncode}")


def half_lives(path, want):
    """Check the strip above a map of retention: a column for each token, on a logarithmic axis from 1 to 1,000 steps."""
    out = os.path.join(os.path.dirname(path), "strip.svg")
    for style, n in (("scale=log", 1), ("strip=no", 0)):
        expect(drawn(path, "retention", out, style, "88x80").returncode == 0, style)
        strips = [p for fill, _, p, _, _ in paths(open(out, "rb").read()) if fill == (0x34, 0x90, 0xc8)]
        expect(len(strips) == n, f"retention {style}: {len(strips)} strips")
    drawn(path, "retention", out, "scale=log", "88x80")
    p = next(p for fill, _, p, _, _ in paths(open(out, "rb").read()) if fill == (0x34, 0x90, 0xc8))
    bottom, left, right = max(y for _, y in p), min(x for x, _ in p), max(x for x, _ in p)
    middle = left + (right - left) * (np.arange(len(want)) + .5) / len(want)
    tops = [next(a[1] for a, b in zip(p, p[1:]) if abs(a[1] - b[1]) < 1e-6 and a[0] < x < b[0]) for x in middle]
    high = 7 * np.log10(np.clip(want, 1, 1000)) / 3
    expect(np.abs(bottom - np.array(tops) - high).max() < .03, f"half-lives: {bottom - np.array(tops)}, expected {high}")


def begins_near_the_event(folder):
    """Check the first step shown: 1/20 of the steps after the first eviction are shown before it.  Without an eviction,
    or if little is gained, it is the first token.  If all tokens are earlier than it, the steps extend to the end of
    the run.
    """
    out, path = os.path.join(folder, "x.svg"), os.path.join(folder, "near.tsv")
    for steps, n, T, want in (([100, -1, 120, -1] * 50, 200, 200, (100 - 5, 200)), ([-1] * 200, 200, 200, (0, 200)), ([21, 40] * 100, 200, 200, (0, 200)),
                              ([500, 520] * 50, 100, 580, (500 - 4, 580)), ([199] * 200, 200, 200, (198, 200))):
        write_table(path, "eviction", {"head": ["L0K0"] * n, "layer": [0] * n, "index": [0] * n, "token": list(range(n)), "evict_step": steps}, [("T", T)])
        r = drawn(path, "eviction", out, "", "100x80", "150")
        expect(r.returncode == 0, r.stderr)
        tokens, step = np.arange(n)[None, :], np.arange(*want)[:, None]
        end = np.array(steps)[None, :]
        w, h, data = images(svg(out))[0]
        px = rgba(data)
        mean, cover = box_means(((step < end) | (end < 0)).astype(float), step >= tokens, w, h)
        full = cover > 1 - 1e-9
        v, _ = value(px[full][:, :3], "blues")
        expect(np.abs(v - mean[full]).max() < 8e-3 and np.abs(px[:, :, 3] / 255 - np.clip(cover, 0, 1)).max() < 4e-3,
               f"evictions from step {min([s for s in steps if s >= 0], default=None)} of {T}: not the steps {want}")


def mask(folder, kvf):
    """Check two strokes per cross, and a bar for every step with an eviction."""
    out = os.path.join(folder, "x.svg")
    T, first, last = 40, 3, 25
    run(KVFATE, "eviction", kvf, "--head", "L1K0", "--tokens", f"{first}:{last}", "--style",
        "steps=3:40,form=mask", "-o", out)
    ends = [i + 3 + (7 * i + 2) % 20 for i in range(first, last)]
    gone = [e for e in ends if e < T]
    root = svg(out)
    red = [e for e in root.iter() if e.tag.endswith("}path") and "84%,10%,16%" in e.get("style", "").replace(" ", "")]
    strokes = [e for e in red if "fill:none" in e.get("style")]
    bars = len(red) - len(strokes) + len([e for e in root.iter() if e.tag.endswith("}rect") and "84%,10%,16%" in e.get("style", "")])
    expect(len(strokes) >= 2 * len(gone) and len(strokes) <= 2 * len(gone) + 2, f"{len(strokes)} strokes for {len(gone)} evictions")
    expect(bars == len(set(gone)), f"{bars} bars for {len(set(gone))} steps with evictions")
    many = os.path.join(folder, "many.tsv")
    write_table(many, "eviction", {"head": [f"L{h}K0" for h in range(13)], "layer": list(range(13)), "index": [0] * 13, "token": [0] * 13,
                                   "evict_step": [-1] * 13})
    r = drawn(many, "eviction", out, "form=mask")
    expect(r.returncode == 2 and "12" in r.stderr, f"13 heads: exit {r.returncode} {r.stderr}")


# ---- occupancy

def occupancy(folder):
    t, out = os.path.join(folder, "o.tsv"), os.path.join(folder, "x.svg")
    steps, heads, classes = 6, 3, ["all", "wait"]
    v = np.arange(heads * 2 * steps).reshape(heads, 2, steps) * 7 % 101
    rows = [(h, c, s) for h in range(heads) for c in range(2) for s in range(steps)]
    base = {"step": [10 * r[2] for r in rows], "head": [f"L{r[0]}K0" for r in rows], "layer": [r[0] for r in rows],
            "index": [0] * len(rows), "class": [classes[r[1]] for r in rows], "entries": [v[r] for r in rows]}
    write_table(t, "occupancy", base, [("T", 60)])
    for style, f, panels in (("", lambda x: x / v.max(), [0, 1]), ("scale=log", lambda x: np.log1p(x) / np.log1p(v.max()), [0, 1]),
                             ("scale=root", lambda x: np.sqrt(x / v.max()), [0, 1]), ("class=wait", lambda x: x / v[:, 1].max(), [1]), ("class=all,steps=20:50", None, [0])):
        r = drawn(t, "occupancy", out, style)
        got = images(svg(out))
        expect(r.returncode == 0 and len(got) == len(panels) + 1, f"occupancy {style}: {len(got)} images, {r.stderr}")
        for p, (w, h, data) in zip(panels, got):
            px = rgba(data)
            some = v[:, p, 2:5] if not f else v[:, p]
            n = some.shape[1]
            at = px[((np.arange(heads) + .5) * h / heads).astype(int)][:, ((np.arange(n) + .5) * w / n).astype(int)]
            place, _ = value(at[:, :, :3], "blues")
            want = f(some) if f else some / some.max()
            expect(np.abs(place - want.reshape(-1)).max() < 4e-3, f"occupancy {style}, class {classes[p]}")
    few = [x if r[1] == 0 else x % 10 for r, x in zip(rows, base["entries"])]  # at most 9, compared with 98
    write_table(t, "occupancy", {**base, "entries": few}, [("T", 60)])
    same = [drawn(t, "occupancy", out, style) and images(svg(out))[1][2] for style in ("", "scale=root", "scale=linear")]
    expect(same[0] == same[1] != same[2], "beside a class of few entries the scale is not the root")
    n = 30000  # far more steps than pixels: alternating 0 and 10 give 5 everywhere, without a pattern
    write_table(t, "occupancy", {"step": list(range(n)), "head": ["L0K0"] * n, "layer": [0] * n, "entries": [10 * (k % 2) for k in range(n)]})
    drawn(t, "occupancy", out)
    place, _ = value(rgba(images(svg(out))[0][2])[3, :, :3], "blues")
    expect(np.abs(place - .5).max() < .03, f"steps in turn are drawn from {place.min()} to {place.max()}, not as their mean")
    for style in ("class=nothing", "scale=square", "steps=40000:", "steps=5"):
        expect(drawn(t, "occupancy", out, style).returncode == 2, f"occupancy {style} is no error")


# ---- edges

def rims(folder, kvf):
    out = os.path.join(folder, "x.png")
    for size, dpi in (("40x25", 20), ("40x25", 300), ("1693x25", 300), ("40x846", 600), ("90x70", 2400)):
        r = run(KVFATE, "eviction", kvf, "--head", "L1K0", "--size", size, "--dpi", dpi, "-o", out)
        expect(r.returncode == 0 or (r.returncode == 2 and r.stderr), f"--size {size}: exit {r.returncode} {r.stderr}")
    t = os.path.join(folder, "odd.tsv")
    for name, size in (("nothing but NaN", np.full((2, 2, 1), np.nan)), ("infinite", np.array([[[np.inf]], [[-np.inf]], [[1.0]]])),
                       ("1,000 heads", np.random.default_rng(1).random((25, 40, 1))), ("one head", np.ones((1, 1, 1))),
                       ("1,000 layers", np.random.default_rng(2).random((1000, 1, 1)))):
        kv_size(t, size, ["end"])
        for dims in ("", "40x25", "300x40"):
            r = drawn(t, "map", out, "", *([dims] if dims else []))
            expect(r.returncode == 0, f"kv-size of {name}, {dims}: exit {r.returncode} {r.stderr}")
    for style in ("at=never", "value=head", "panel=nothing", "minus=yes,at=end", "size=3"):
        expect(drawn(t, "map", out, style).returncode == 2, f"kv-size {style} is no error")
    for heads, layers in ((8, 36), (32, 32), (64, 3), (1, 64)):
        m = 5
        n = heads * layers * m
        k = np.arange(n)
        write_table(t, "eviction", {"head": [f"L{x // m // heads}K{x // m % heads}" for x in k], "layer": k // m // heads,
                                    "index": k // m % heads, "token": k % m, "evict_step": np.where(k % 3, k % m + 1, -1)}, [("T", m)])
        r = drawn(t, "eviction", out)
        expect(r.returncode == 0, f"{layers} x {heads} maps: {r.stderr}")
        with open(out, "rb") as f:
            w, h = np.frombuffer(f.read(24)[16:], ">u4")
        expect(w <= 2130 and h <= 2720, f"{layers} x {heads} maps take {w} x {h} pixels, more than a page")


def main():
    with tempfile.TemporaryDirectory() as folder:
        kvf = os.path.join(folder, "usual.kvf")
        make_trace(WRITE_KVF, "usual", kvf)
        head_maps(folder)
        rows_of_a_head(folder)
        side_by_side(folder, kvf)
        windows(folder)
        begins_near_the_event(folder)
        mask(folder, kvf)
        occupancy(folder)
        rims(folder, kvf)
    finish()


if __name__ == "__main__":
    sys.exit(main())
