"""Check places in figures: ticks match the data, layer names are at their rows, titles fit, zero is the middle of a
diverging map, heights follow widths, and a reported minimum size works.

usage: test_places.py DRAW_TABLE KVFATE [PART...]

test_panels, which has the readers, draws with the first program.
"""
import gzip
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
from axes import Axes, place, scale
from pictures import png_read
from readers import PT, Svg, png
from server import figures
from test_panels import DRAW, affine, discs, paths, texts, tsv

HERE = os.path.dirname(os.path.abspath(__file__))
KVFATE = sys.argv[2]


def draw(text, figure, style="", size="", ext="svg", **more):
    """Return (exit status, path, message)."""
    table, out = os.path.join(FOLDER, "t.tsv"), os.path.join(FOLDER, "o." + ext)
    Path(table).write_text(text, encoding="utf-8")
    if os.path.exists(out):
        os.unlink(out)
    status, said = DRAW(table, figure, out, style, size, **more)
    return status, out, said


def read(path):
    return Path(path).read_bytes()


def golden(table):
    with gzip.open(os.path.join(HERE, "tables", table + ".tsv.gz"), "rt", encoding="utf-8", newline="") as f:
        return f.read()


# ---- ticks

def signed_decades(ticks):
    """Return True if each step away from 0, in both directions, is a factor of 10."""
    at = {v: p for p, v in ticks}
    unit = min(abs(p - at[0]) for v, p in at.items() if v)
    least = min(abs(v) for v in at if v)
    return len(at) > 3 and all(abs((at[0] - p) / unit - math.copysign(1 + math.log10(abs(v) / least), v)) < .01 for v, p in at.items() if v)


STYLES = {"attention": "scale=linear", "effect": "scale=linear", "saliency": "value=signed"}


def every_axis():
    """Check that numbers of an axis are on one scale, at their ticks."""
    axes = 0
    for figure in figures(KVFATE):
        # a logarithmic bar has ticks without numbers close to those with numbers
        out = draw(golden(figure["table"]), figure["name"], style=STYLES.get(figure["name"], ""))[1]
        a = Axes(Svg(out))
        for frame in a.frames:
            for side in "xyr":
                ticks, off = a.ticks(frame, side)
                if ticks:
                    axes += 1
                    check(f"{figure['name']}: numbers at the ticks of {side}", off < .04, off, ticks)
                    fits = signed_decades(ticks) if (figure["name"], side) == ("saliency", "r") else scale(ticks) is not None
                    check(f"{figure['name']}: numbers of {side} are on a scale", fits, ticks)
    check("axes were found", axes > 80, axes)


def vertices(path, many):
    """Return the lines with this number of points, in mm."""
    return [np.array(p) for _, stroke, p, curve, _ in paths(read(path)) if stroke and len(p) == many and not curve]


def has_line(what, path, sx, sy, x, y):
    if not (sx and sy):
        check(what + ": no scale", False)
        return
    want = np.stack([place(sx, x), place(sy, y)], 1)
    found = [p for p in vertices(path, len(x)) if np.abs(p - want).max() < .03]
    check(what, found, want, [p for p in vertices(path, len(x))][:3])


def scales(path, frame=0):
    a = Axes(Svg(path))
    frames = sorted(a.frames, key=lambda f: (f[0] - f[2]) * (f[3] - f[1]))
    return [scale(a.ticks(frames[frame], side)[0]) for side in "xyr"]


SURVIVAL = ["head", "criterion", "class", "horizon", "fraction", "half_life"]


def data_scale():
    """Check ticks against the table: both axes, linear and logarithmic."""
    x, y = [1, 3, 20, 150, 900], [.9, .41, .3, .05, .017]
    rows = [("all", "top64", "all", a, b, "nan") for a, b in zip(x, y)]
    for style, logs in (("", (True, False)), ("y=log", (True, True))):
        out = draw(tsv("survival", SURVIVAL, rows), "survival", style)[1]
        sx, sy, _ = scales(out)
        check(f"survival {style}: kinds of axes", sx and sy and (sx[2], sy[2]) == logs, sx, sy)
        if sx and sy:
            has_line(f"survival {style}: the ticks are those of the data", out, sx, sy, x, y)
    p, shares = [10, 30, 35, 95], [.2, .5, .4, .8]
    columns = ["head", "layer", "window", "p", "overlap", "expected", "kappa"]
    out = draw(tsv("overlap", columns, [("all", -1, "0", a, b, a / 100, b - a / 100) for a, b in zip(p, shares)]), "overlap")[1]
    sx, sy, _ = scales(out)
    check("overlap: linear axes", sx and sy and not sx[2] and not sy[2], sx, sy)
    has_line("overlap: the ticks are those of the data", out, sx, sy, p, shares)
    has_line("overlap: chance", out, sx, sy, p, [a / 100 for a in p])
    # a range inside a decade, where the ticks of a logarithm are not 1, 2 or 5
    rows = [("all", "top64", "all", a, b, "nan") for a, b in zip([40, 50, 60], [.9, .8, .7])]
    out = draw(tsv("survival", SURVIVAL, rows), "survival")[1]
    sx, sy, _ = scales(out)
    check("a short logarithmic axis has two numbers", sx is not None)
    has_line("short axes: the ticks are those of the data", out, sx or (0, 1, False), sy, [40, 50, 60], [.9, .8, .7])


def notes():
    """Check that notes below the axes are complete, on more lines if necessary; panels without bands mention none."""
    columns = ["head", "layer", "window", "p", "overlap", "low", "high", "expected", "kappa", "kappa_low", "kappa_high"]
    rows = [(head, layer, "union", p, .5 + p / 200, *((.4 + p / 200, .6 + p / 200) if layer < 0 else ("nan", "nan")), p / 100, .4 - p * p / 4000,
             *((.3 - p * p / 4000, .5 - p * p / 4000) if layer < 0 else ("nan", "nan"))) for head, layer in (("L0K*", 0), ("all", -1)) for p in (10, 50, 90)]
    text = tsv("overlap", columns, rows, candidates="tokens before the first window", documents=5)
    for style, bands, beyond in (("", "bands: 95 % CI over 5 documents", ""), ("by=layer", "5 documents, no intervals", ""),
                                 ("y=kappa", "bands: 95 % CI over 5 documents", "1 of 3 points beyond the axis")):
        out = draw(text, "overlap", style)[1]
        said = [t for t, *_ in texts(read(out))]
        joined = "; ".join(said)
        check(f"overlap {style}: the whole note", all(s in joined for s in ("tokens before the first window", bands, beyond)) and "\u2026" not in joined, said)
        boxes = [(t, l, r, y) for t, l, r, y in Axes(Svg(out)).texts]
        check(f"overlap {style}: within", all(l > 0 and r < mm(out)[0] for _, l, r, _ in boxes), boxes)
    # no note is cut
    code, out, said = draw(text, "overlap", "y=kappa", "40x31")
    check("small: refused", code == 2 and "at least" in said, said)


EFFECT = ["head", "layer", "index", "kl"]


def second_axis():
    """Check the colour bar of a map: its numbers match the cells."""
    for lo, hi, more in ((.13, .87, {}), (-3, 11, {}), (20, 45000, {}), (0, 1, {"vmin": -.5, "vmax": 2.5})):
        v = np.linspace(lo, hi, 8)
        rows = [(f"L{i // 2}K{i % 2}", i // 2, i % 2, f"{x:.17g}") for i, x in enumerate(v)]
        out = draw(tsv("effect", EFFECT, rows, held="the head of the row alone"), "effect", "scale=linear", **more)[1]
        a = Axes(Svg(out))
        bar = min(a.frames, key=lambda f: f[2] - f[0])
        s = scale(a.ticks(bar, "r")[0])
        low, high = (more["vmin"], more["vmax"]) if more else (lo, hi)
        check(f"bar from {lo} to {hi}: ends of the scale", s and not s[2] and abs(place(s, low) - bar[3]) < .03
              and abs(place(s, high) - bar[1]) < .03, s, bar)


def bars_of_layers():
    """Check the colour bar of layers: its numbers are whole, the first at its foot, none after the last layer."""
    for layers in (2, 3, 5, 8, 30, 126):
        units = [("a", "mean", 0, u, u % layers, 0, u / 9, .1 + u / 9, .5, .4, .6, .1) for u in range(2 * layers)]
        columns = ["candidate", "reduce", "pair", "unit", "layer", "index", "statistic", "effect", "partial", "low", "high", "q"]
        for figure, text in (("predict", tsv("predict-units", columns, units, value="kl")),):
            code, out, said = draw(text, figure)
            a = Axes(Svg(out))
            bar = min(a.frames, key=lambda f: f[2] - f[0])
            ticks = a.ticks(bar, "r")[0]
            s = scale(ticks)
            check(f"{figure} of {layers} layers: whole numbers", code == 0 and s and all(v == int(v) and v < layers for _, v in ticks), ticks, said)
            check(f"{figure} of {layers} layers: from the foot", s and abs(place(s, 0) - bar[3]) < .03, s, bar)
            check(f"{figure} of {layers} layers: enough of them", len({v for _, v in ticks}) == len(ticks) >= min(layers, 3), ticks)


def what_lies_beyond():
    """dynamics: check that R2 below -1 and distant eigenvalues are counted instead of drawn."""
    columns = ["head", "layer", "head_index", "prompt", "rollout", "surrogate", "quantity", "index", "x", "value", "count", "n"]
    for r2, far, want in ((-.5, .3, ()), (-1.5, .3, ("2 below \u22121",)), (-.2, 2.5, ("1 of modulus > 2",)), (-9, 4, ("2 below \u22121", "1 of modulus > 2"))):
        rows = [("L0H0", 0, 0, p, -1, s, q, 0, "nan", v, -1, -1) for p, s, q, v in (
            (0, 0, "eigenvalue.real", far), (0, 0, "eigenvalue.imaginary", 0), (0, 0, "eigenvalue.modulus", far),
            (0, 0, "r2.test", .2), (0, 1, "r2.test", r2), (1, 1, "r2.test", r2), (-1, 1, "r2.test", r2))]
        said = [t for t, *_ in texts(read(draw(tsv("dynamics", columns, rows), "dynamics")[1]))]
        check(f"dynamics with R2 {r2}, modulus {far}", all(w in said for w in want) and (want or not any("below" in s or "of modulus" in s for s in said)), said)


def what_a_bar_leaves_out():
    """Check a range with few values: each figure with a colour bar notes the number of values outside, and cuts no text
    at its edges.
    """
    told = 0
    for figure in figures(KVFATE):
        for size in ("", "88x60") if figure.get("cmap") else ():
            given = (golden(figure["table"]), figure["name"], "", size)
            code, out, _ = draw(*given, vmin=.4, vmax=.41)
            if code or b" beyond" not in read(out):
                continue  # too small for this figure, or no note
            told += 1
            picture = png_read(read(draw(*given, ext="png", vmin=.4, vmax=.41)[1]))
            check(f"{figure['name']} {size}: nothing is cut at the right", picture[:, -2:].min() == 255)
            check(f"{figure['name']} {size}: nothing is cut below", picture[-2:].min() == 255)
    check("bars say what lies beyond", told >= 12, told)


def zero_has_no_sign():
    columns = ["candidate", "reduce", "n", "documents", "partial", "low", "high", "p", "q"]
    out = draw(tsv("predict", columns, [("a", "mean", 9, 1, -.0004, -.3, .3, .9, .9), ("b", "mean", 9, 1, -.2, -.3, .3, .9, .9)]), "predict")[1]
    said = " ".join(t for t, *_ in texts(read(out)))
    check("no correlation of minus zero", "\u22120.20" in said and "\u22120.00" not in said and "\u00b10.00" in said, said)
    rows = [("all", "layer", .2, -.0001), ("all", "token", -.03, .3)]
    said = [t for t, *_ in texts(read(draw(tsv("variance", ["head", "factor", "epsilon2", "within"], rows), "variance")[1]))]
    check("no share of minus zero, no hyphens", "0.000" in said and "\u22120.030" in said and not any("-" in s for s in said), said)


def panels_agree():
    """Check small multiples: the axis of a column also applies to the panels above."""
    x, y = [1, 10, 100], [.8, .5, .25]
    rows = [(f"L{h}H0", "top64", "all", a, b / (1 + h), "nan") for h in range(4) for a, b in zip(x, y)]
    out = draw(tsv("survival", SURVIVAL, rows), "survival", "by=head")[1]
    a = Axes(Svg(out))
    frames = sorted(a.frames, key=lambda f: (f[1], f[0]))
    check("four panels", len(frames) == 4, frames)
    sx = scale(a.ticks(frames[2], "x")[0])
    sy = scale(a.ticks(frames[0], "y")[0])
    has_line("the axis below is that of the panel above", out, sx, sy, x, y)
    sx, sy = scale(a.ticks(frames[3], "x")[0]), scale(a.ticks(frames[2], "y")[0])
    has_line("panels of one row have one axis", out, sx, sy, x, [v / 4 for v in y])


# ---- names of layers

def layers_of_occupancy():
    """Check the names at the left: of each head if there are few, else of each (fifth) layer at its first head."""
    for layers, heads, every in ((3, 2, 0), (8, 3, 1), (23, 2, 5), (40, 1, 5)):
        columns = ["step", "head", "layer", "index", "class", "entries"]
        rows = [(t, f"L{l}K{k}", l, k, "all", 3 + l % 2) for l in range(layers) for k in range(heads) for t in range(6)]
        out = draw(tsv("occupancy", columns, rows), "occupancy", size="88x70")[1]
        a = Axes(Svg(out))
        x0, y0, x1, y1 = max(a.frames, key=lambda f: (f[2] - f[0]) * (f[3] - f[1]))
        each = (y1 - y0) / (layers * heads)
        names = {t: y - .82 for t, l, r, y in a.texts if re.fullmatch(r"L\d+(K\d+)?", t)}
        want = {f"L{l}": y0 + l * heads * each for l in range(0, layers, every)} if every else \
            {f"L{l}K{k}": y0 + (l * heads + k + .5) * each for l in range(layers) for k in range(heads)}
        check(f"occupancy of {layers} x {heads}: which names", set(names) == set(want), sorted(names), sorted(want))
        check(f"occupancy of {layers} x {heads}: where", all(abs(names[n] - want[n]) < .05 for n in want if n in names), names, want)
        marks = sorted(p[0][1] for p in a.lines if abs(max(p[0][0], p[1][0]) - x0) < .01 and p[0][1] == p[1][1])
        check(f"occupancy of {layers} x {heads}: marks", not every or affine([*want.values()], marks), marks)


# ---- sizes

VARIANCE = [("all", f, "", .1 * i, .05 * i) for i, f in enumerate(("layer", "head", "token", "class", "role"))]


def least_sizes():
    """Check that an error about the size names a size that works, and that no smaller one does."""
    cases = {"variance": [("", tsv("variance", ["head", "factor", "x", "epsilon2", "within"], VARIANCE[:n])) for n in (1, 3, 5)],
             "training": [("", golden("training")), ("show=loss", golden("training")), ("show=loss+fwkl+limit+value", golden("training"))]}
    for figure in figures(KVFATE):
        for style, text in cases.get(figure["name"], [("", golden(figure["table"]))]):
            code, _, said = draw(text, figure["name"], style, "40x25")
            need = re.search(r"at least (\d+) x (\d+) mm", said)
            check(f"{figure['name']} at 40x25", code == 0 or (code == 2 and said.count("\n") == 1 and "--" in said), said)
            if not need:
                check(f"{figure['name']} {style}: has a least size", figure["name"] not in cases, code, said)
                continue
            w, h = (int(v) for v in need.groups())
            code, out, said = draw(text, figure["name"], style, f"{w}x{h}")
            check(f"{figure['name']} {style}: the least size {w} x {h} is enough", code == 0, said)
            if code or figure["name"] not in cases:
                continue
            boxes = Axes(Svg(out)).texts
            for i, (t, left, right, y) in enumerate(boxes):
                check(f"{figure['name']} {style} at {w}x{h}: within", left > -.01 and right < w + .01 and .5 < y < h, t, left, right, y)
                over = [o for o, l, r, v in boxes[:i] if l < right - .3 and left < r - .3 and abs(v - y) < 1.6]
                check(f"{figure['name']} {style} at {w}x{h}: no text over another", not over, t, over)
            for least, size in ((40, f"{w - 1}x{h}"), (25, f"{w}x{h - 1}")):
                smaller = w - 1 if least == 40 else h - 1
                code, _, said = draw(text, figure["name"], style, size)
                check(f"{figure['name']} {style}: {size} is too small", smaller < least or code == 2, code)


OWN_HEIGHT = {"attention", "causal", "eviction", "fates", "fates-answer", "retention", "occupancy", "tokens", "effect-text",
              "tokens-top", "training", "calibration", "variance", "dynamics"}  # their layout depends on the width


def mm(path):
    return Svg(path).size()


def whole(text, name, w, h, out):
    """Return True if the figure can be drawn at that size."""
    return draw(text, name, size=f"{w:.9g}x{h:.9g}")[0] == 0


def named(lines):
    """The words of a figure, which may be wrapped; not the numbers of its axes, of which a small figure has fewer."""
    return set(re.findall("[A-Za-z]{3,}", " ".join(lines)))


# Figures that say how many words or rows a size leaves out or name fewer bars, have shorter names of axes, or (effect, predict) lose a note or names of rows.
FEWER_WORDS = {"words": "all", "saliency": "all", "eviction": "query", "retention": "query downwards", "effect at 60x40": "all", "predict at 88x30": "all"}


def words_are_whole():
    """Check that no size cuts or omits the figure's own words: the error names a size that keeps them."""
    for figure in figures(KVFATE):
        text, name = golden(figure["table"]), figure["name"]
        if figure["label"] in ("fates", "tokens", "effect-text", "agreement-map"):  # they note omissions; the names of gates are long
            continue
        own = {t for t, *_ in texts(read(draw(text, name)[1]))}
        notes = {t for t in own if "; " in t}  # small figures leave out parts of them
        words = {t for t in own if re.search("[A-Za-z]{3}", t)}  # not numbers of axes, of which a small figure has fewer
        for size in ("60x40", "88x30", "77x50"):
            code, out, said = draw(text, name, size=size)
            now = [t for t, *_ in texts(read(out))] if code == 0 else []
            fewer = FEWER_WORDS.get(name, FEWER_WORDS.get(f"{name} at {size}", ""))
            kept = [t for t in now if any(note.startswith(t) for note in notes)]
            short = [t for t in kept if not any((note + "; ").startswith(t + "; ") for note in notes)]
            check(f"{name} at {size}: a note keeps whole parts", not short, short, notes)
            dropped = named(own - notes) - named(now) - set(fewer.split()) if code == 0 and fewer != "all" else ()
            cut = [t for t in now if t.endswith("\u2026") and t not in own] + sorted(dropped)
            check(f"{name} at {size}: whole or refused", not cut and (code == 0 or re.search(r"at least \d+ x \d+ mm", said)), cut, said)
    kinds = "".join(f"L0H{k}\t0\t{k}\t{name}\t.9\n" for k, name in enumerate(
        ("sliding-window", "several-windows", "a-shape", "sink", "gist", "number", "filler", "mixed")))
    heads = "# table: heads\nhead\tlayer\tindex\tkind\tscore\n" + kinds
    code, _, said = draw(heads, "heads", size="88x30")
    need = re.search(r"at least (\d+) x (\d+) mm", said)
    check("heads: a key that is too long is refused", code == 2 and need, code, said)
    out = draw(heads, "heads", size="x".join(need.groups()) if need else "88")[1]
    said = " ".join(t for t, *_ in texts(read(out)))
    check("heads: the size that is named has the whole key", all(s in said for s in ("sliding-window (1)", "mixed (1)", "pale: score near 0.5")), said)
    for name in ("tokens", "effect-text"):
        code, _, said = draw(golden("tokens" if name == "tokens" else "effect-entries"), name, size="40x25")
        check(f"{name}: no room for text", code == 2 and "at least" in said, code, said)


def ticks_differ():
    """Check that close numbers of an axis are distinct and at their places."""
    for lo, step in ((.15541, 1e-5), (2.66, 2e-4), (1234560, 10), (-.5, 1e-6), (1e-6, 1e-11), (0, .1)):
        v = [lo + k * step for k in range(8)]
        rows = [(f"L{i // 2}K{i % 2}", i // 2, i % 2, repr(x)) for i, x in enumerate(v)]
        a = Axes(Svg(draw(tsv("effect", EFFECT, rows, held="the head of the row alone"), "effect", "scale=linear")[1]))
        bar = min(a.frames, key=lambda f: f[2] - f[0])
        ticks, _ = a.ticks(bar, "r")
        check(f"colours from {lo} in steps of {step}", len(ticks) > 1 and len({t for _, t in ticks}) == len(ticks), ticks)
        s = scale(ticks)
        check(f"colours from {lo}: the ends", s and abs(place(s, v[0]) - bar[3]) < .5 and abs(place(s, v[-1]) - bar[1]) < .5, s, bar, ticks)
        rows = [("run", k, 100 * k, repr(x), repr(x), "nan") for k, x in enumerate(v)]
        a = Axes(Svg(draw(tsv("training", ["run", "step", "tokens", "loss", "limit", "mean_kl"], rows), "training")[1]))
        for frame in a.frames:
            ticks, _ = a.ticks(frame, "y")
            check(f"losses from {lo} in steps of {step}", len({t for _, t in ticks}) == len(ticks), ticks)


def looks_of_methods():
    """Check that a method has one colour in any company.  Only the full cache is grey, and none is black or light grey."""
    def rows(names):
        return [(n, k, 100 * k, 1 / (k + 1), .5, "nan") for n in names for k in range(3)]

    columns, found = ["run", "step", "tokens", "loss", "limit", "mean_kl"], []
    names = ["gates-trimkv", "gates-dbtrimkv", "gates-wgkv"]
    for order in (names, names[::-1]):
        svg = read(draw(tsv("training", columns, rows(order)), "training")[1])
        at = {t[0]: t[2] for t in texts(svg) if t[0] in names}
        found.append({n: next(stroke for _, stroke, p, _, _ in paths(svg) if stroke and len(p) == 2 and p[0][1] == p[1][1] and abs(p[0][1] - y) < 1.5 and abs(p[1][0] - p[0][0] - 6) < .01)
                      for n, y in at.items()})
    check("training: colours go by method, not by place", found[0] == found[1] and len(set(found[0].values())) == 3, found)
    methods = [m["name"] for m in json.loads(subprocess.run([KVFATE, "methods", "--json"], capture_output=True, check=True).stdout)]
    for k in range(0, len(methods), 4):
        some = methods[k:k + 4] + ["of my own"]
        held = [(i, int(i >= n), n + 1) for n in range(len(some)) for i in range(9)]  # bars of different sizes
        svg = read(draw(tsv("tokens", ["token", "kept", "trace"], held, **{f"trace_{n + 1}": m for n, m in enumerate(some)}), "tokens-sets")[1])
        bars = [fill for fill, _, p, _, _ in paths(svg) if fill and abs(min(x for x, _ in p) - 24) < .01]
        grey = [c for c in bars if max(c) - min(c) <= 60]
        check(f"colours of {some}", len(bars) == len(some) and grey == [(106, 106, 106)] * ("full" in some), bars)


def heights_of_widths():
    """Check a size with only a width: the aspect ratio is kept, down to 45 mm or the figure's own height, so that
    letters fit.
    """
    for figure in figures(KVFATE):
        text, name = golden(figure["table"]), figure["name"]
        own = mm(draw(text, name)[1])
        layout = name in OWN_HEIGHT or headmap(figure)
        for w in (own[0],) if layout else (64, 96, 170):
            code, out, said = draw(text, name, size=f"{w:.9g}")
            if code:  # no space for its key or panels
                check(f"{name} at {w}: refused with a size", "--size" in said and w < own[0], said)
                continue
            got, want = mm(out), max(own[1] * w / own[0], min(own[1], 45))
            if layout:
                check(f"{name} at its own width {w:.1f}: its own height", abs(got[1] - own[1]) < .01, got, own)
            else:
                higher = got[1] - want  # if its words need more space
                check(f"{name} at {w:.1f}: height of a width", abs(got[0] - w) < .01 and (abs(higher) < .01 or 0 < higher and not whole(text, name, w, got[1] - 1, out)),
                      got, want, own)


def headmap(figure):
    return figure["name"] in ("map", "difference", "effect")


def grid_height(layers, heads, T, width):
    """Return the height of the small multiples of eviction: squares as large as a page of 180 x 150 mm allows, or a
    width and the height that keeps the aspect ratio.  Margins: 13 left, 20 right, 5 above, 13 below, 5 and 6 between
    the maps.
    """
    def sides(w, h):
        side = min((w - 13 - 20 - (heads - 1) * 5) / heads, (h - 5 - 13 - (layers - 1) * 6) / layers)
        return 13 + 20 + heads * side + (heads - 1) * 5, max(40, 5 + 13 + layers * side + (layers - 1) * 6)
    own = sides(180, 150)
    return own if width is None else (width, sides(width, own[1] * width / own[0])[1])


def heights_of_grids():
    for layers, heads in ((2, 3), (3, 2), (4, 3)):
        T = 12
        rows = [(f"L{l}K{k}", l, k, i, i, -1, -1, "alive", 0, 0, 0) for l in range(layers) for k in range(heads) for i in range(T)]
        columns = ["head", "layer", "index", "token", "birth", "evict_step", "age", "reason", "score", "margin", "tie"]
        text = tsv("eviction", columns, rows, T=T)
        for width in (None, 88, 100, 140, 180):
            got, want = mm(draw(text, "eviction", size=str(width or ""))[1]), grid_height(layers, heads, T, width)
            check(f"eviction of {layers} x {heads} heads, width {width}", np.allclose(got, want, atol=.01), got, want)


# ---- titles

def titles():
    """Check titles: unchanged if they fit, smaller if they do not, else cut with an ellipsis; never outside."""
    text, sizes = golden("sparsity"), []
    for n, title in ((0, "Short"), (1, "A title of some length, as people who write captions into figures would have it set"),
                     (2, "word " * 60), (3, "W" * 500), (4, "\u4e2d" * 300), (5, "e\u0301" * 300), (6, "f" * 3000), (7, "\u202e" + "abc " * 80)):
        for w in (40, 88, 180):
            code, out, said = draw(text, "map", size=f"{w}x60", title=title)
            check(f"title {n} on {w} mm", code == 0, said)
            if code:
                continue
            svg = Svg(out)
            top = [(t, float(size), xs, y) for t, _, _, size, xs, y, turn in svg.spans() if not turn and y / PT < 7]
            page = png(read(draw(text, "map", size=f"{w}x60", ext="png", dpi="127", title=title)[1]))[0]
            ink = (page[:30] < 200).any((0, 2)).nonzero()[0] / 5  # above the map, mm
            check(f"title {n} on {w} mm: drawn within", len(ink) and .9 < ink[0] and ink[-1] + .2 < w - .9, ink[:1], ink[-1:])
            if n in (5, 7):  # an SVG file cannot have these characters as text: they are drawn
                check(f"title {n} on {w} mm: as much as there is room for", len(ink) and ink[-1] - ink[0] > .5 * w)
                continue
            check(f"title {n} on {w} mm: it is there", top)
            boxes = [(l, r) for t, l, r, y in Axes(svg).texts if y < 7]
            check(f"title {n} on {w} mm: within", all(l > .9 and r < w - .9 for l, r in boxes), boxes)
            size, shown = max((s for _, s, _, _ in top), default=0), "".join(t for t, *_ in top)
            wide = max((r for _, r in boxes), default=0) - min((l for l, _ in boxes), default=0)
            check(f"title {n} on {w} mm: letters", 5.49 <= size <= 9.01, size)
            if shown.endswith("\u2026"):
                check(f"title {n} on {w} mm: cut only where the smallest letters do not fit, and filled", abs(size - 5.5) < .01
                      and title.startswith(shown[:-1]) and wide > w - 2 - 4, size, shown, wide)
            elif n < 4:
                check(f"title {n} on {w} mm: whole", shown == title.strip() and (size > 8.99 or wide > w - 2.2), shown, size, wide)
            sizes.append((n, w, size))
    check("short titles have 9 pt, others less", dict(((n, w), s) for n, w, s in sizes)[0, 40] > 8.99
          and 5.5 < dict(((n, w), s) for n, w, s in sizes)[1, 88] < 9, sizes[:6])


# ---- diverging maps

VIK = {0: (0, 18, 97), 64: (48, 125, 166), 127: (235, 230, 226), 200: (188, 98, 47), 255: (89, 0, 8)}  # vik.txt (Crameri), rounded


def cell_colours(values, **more):
    rows = [(f"L{i}K0", i, 0, f"{v:.17g}", f"{0:.17g}", f"{v:.17g}") for i, v in enumerate(values)]
    out = draw(tsv("difference", ["head", "layer", "index", "first", "second", "difference"], rows, value="kl"), "difference",
               cmap="vik", **more)[1]
    a = Axes(Svg(out))
    found = re.findall(r"fill-rule:nonzero;fill:rgb\(([\d.]+)%,([\d.]+)%,([\d.]+)%\)", read(out).decode())[:len(values)]
    bar = min(a.frames, key=lambda f: f[2] - f[0])
    return [np.array(c, float) * 2.55 for c in found], scale(a.ticks(bar, "r")[0]), bar


def near(colour, entry, far=1.1):
    return np.abs(colour - np.array(VIK[entry])).max() < far


def zero_is_the_middle():
    for values in ([-3, 0, 1, 3], [-8, 0, 8, 1], [0, 5, 2, 5], [0, -.001, 0, .0002], [0, -1e6, 1, 2], [0, .25, .5, 1]):
        colours, s, bar = cell_colours(values)
        most = max(abs(v) for v in values)
        check(f"vik of {values}: zero is the centre of the table", near(colours[values.index(0)], 127, 4.1), colours)
        for v, c in zip(values, colours):
            check(f"vik of {values}: {v} at the end", abs(v) < most or near(c, 255 if v > 0 else 0), c)
        check(f"vik of {values}: the bar has 0 in its middle", s and abs(place(s, 0) - (bar[1] + bar[3]) / 2) < .02, s, bar)
        check(f"vik of {values}: as far up as down", s and abs(place(s, most) - bar[1]) < .03 and abs(place(s, -most) - bar[3]) < .03, s, bar)
    colours, s, bar = cell_colours([-1, 0, .5, 2], vmax=1)
    check("vik with one end given: the other is its opposite", near(colours[0], 0) and near(colours[1], 127, 4.1) and near(colours[3], 255), colours)
    colours, s, bar = cell_colours([-2, -64 / 63.75 + 1e-12, 0, 2])  # entries 64 and 200 are 63.5 and 72.5 from the middle
    colours, _, _ = cell_colours([-63.5, 72.5, 127.5, 0])
    check("vik between: entries of the published table", near(colours[0], 64) and near(colours[1], 200), colours)


# ---- edited tables

def numbers_and_texts():
    """Check that text in number columns is an error, not zeros; names that look like numbers stay names."""
    listed = {f["label"]: f for f in figures(KVFATE)}
    for figure, column in (("sparsity-map", "index"), ("sparsity-map", "layer"), ("effect", "kl"), ("survival", "horizon"), ("occupancy", "step"),
                           ("dilution-map", "step"), ("regret", "kept_mass"), ("density", "bin_low"), ("kv-size-map", "layer"), ("survival-map", "horizon"), ("calibration", "n")):
        drawn = listed[figure]
        lines = golden(drawn["table"]).split("\n")
        names = next(x for x in lines if not x.startswith("# ")).split("\t")
        rows = [x.split("\t") for x in lines if x and not x.startswith("# ")]
        for r in rows[1:]:
            r[names.index(column)] = "abc"
        code, _, said = draw("\n".join([x for x in lines if x.startswith("# ")] + ["\t".join(r) for r in rows]) + "\n", drawn["name"])
        check(f"{figure} with text in {column}", code == 2 and f"column {column} has no numbers" in said and said.count("\n") == 1, code, said)
    words = ["12345", "007", "1e3", "nan"]
    text = tsv("words", ["word", "count", "base_count", "share", "base_share", "lift", "kept"], [(w, 9 - i, 10, .2, .1, 2, .5) for i, w in enumerate(words)])
    said = [t for t, *_ in texts(read(draw(text, "words")[1]))]
    check("words of digits are words", set(words) <= set(said), said)
    rows = [("L0H0", 0, 0, i, s, .5 / (1 + s), 1, str(1 + i)) for i in (0, 1) for s in (1, 2, 3)]
    said = " ".join(t for t, *_ in texts(read(draw(tsv("received", ["head", "layer", "index", "token", "step", "attention", "seen", "text"], rows), "received", style="window=4")[1])))
    check("tokens of digits are named", "\u201c1\u201d" in said and "\u201c2\u201d" in said, said)
    rows = [("all", -1, w, p, .5, .2, .3) for w in (0, 1) for p in (10, 90)]
    out = draw(tsv("overlap", ["head", "layer", "window", "p", "overlap", "expected", "kappa"], rows), "overlap")[1]
    said = [t for t, *_ in texts(read(out))]
    check("windows without their union", "2 windows earlier" in said and "1 window earlier" in said, said)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="kvfate-places-") as FOLDER:
        for part in (every_axis, data_scale, notes, second_axis, bars_of_layers, what_lies_beyond, what_a_bar_leaves_out, zero_has_no_sign, panels_agree, layers_of_occupancy, least_sizes, words_are_whole, ticks_differ, looks_of_methods, heights_of_widths,
                     heights_of_grids, titles, zero_is_the_middle, numbers_and_texts):
            if len(sys.argv) < 4 or part.__name__ in sys.argv[3:]:
                part()
    finish()
