"""Check figures of comparisons and panels on synthetic tables: values at their places, clean edges, errors for bad
options.  usage: test_panels.py DRAW_TABLE
"""
import math
import os
import random
import re
import sys
import tempfile

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
from readers import png
from server import Server

DRAW = Server(sys.argv[1]) if len(sys.argv) > 1 else None
MM = 72 / 25.4
BLUE, VERMILION, RED = (0, 114, 178), (213, 94, 0), (214, 26, 41)


# ---- tables

def tsv(name, columns, rows, **meta):
    """Return the text of a table; columns: names; rows: tuples."""
    lines = [f"# table: {name}"] + [f"# {k}: {v}" for k, v in meta.items()] + ["\t".join(columns)]
    return "\n".join(lines + ["\t".join(str(x) for x in r) for r in rows]) + "\n"


def draw(text, figure, ext="svg", style="", size="", dpi="", **more):
    """Return (status, bytes, message)."""
    with tempfile.TemporaryDirectory() as d:
        table, out = os.path.join(d, "t.tsv"), os.path.join(d, "o." + ext)
        with open(table, "w") as f:
            f.write(text)
        status, said = DRAW(table, figure, out, style, size, dpi, **more)
        data = open(out, "rb").read() if os.path.exists(out) else b""
        return status, data, said


# ---- reading SVG

def number(s):
    return [float(x) for x in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", s)]


def paths(svg):
    """Yield (fill or None, stroke or None, [(x, y), ...] in mm, has curves, data) of each path."""
    for tag in re.findall(rb"<path[^>]*>", svg):
        t = tag.decode()
        fill = re.search(r"fill:rgb\(([^)]*)\)", t)
        stroke = re.search(r"stroke:rgb\(([^)]*)\)", t)
        d = re.search(r' d="([^"]*)"', t)[1]
        scale = 1 if "matrix" in t else 1 / MM
        p = [(x * scale, y * scale) for x, y in zip(*[iter(number(d))] * 2)]
        yield rgb(fill), rgb(stroke), p, "C" in d, d


def rgb(match):
    return tuple(round(float(x) / 100 * 255) for x in match[1].replace("%", "").split(",")) if match else None


def centre(p):
    xs, ys = [x for x, _ in p], [y for _, y in p]
    return (min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2


def discs(svg, colour, filled=True):
    """Return the centres of discs (rings) of a colour."""
    return [centre(p) for fill, stroke, p, curve, _ in paths(svg) if curve and (fill if filled else stroke) == colour]


def bars(svg, colour):
    """Return (x, y, w, h) of rectangles of a colour."""
    out = []
    for fill, _, p, curve, _ in paths(svg):
        if fill == colour and not curve and len(p) >= 4:
            xs, ys = [x for x, _ in p], [y for _, y in p]
            out.append((min(xs), min(ys), max(xs) - min(xs), max(ys) - min(ys)))
    return out


def texts(svg):
    """Return (text, given x of glyphs, y, size) in mm; the middle for turned text."""
    out = []
    for move, size, body in re.findall(rb'<text(?: transform="translate\(([^)]*)\)[^"]*")? font-size="([\d.]+)"[^>]*>(.*?)</text>', svg, re.S):
        for x, y, s in re.findall(rb'<tspan[^>]* x="([^"]*)" y="([^"]*)"[^>]*>([^<]*)', body):
            s = s.decode().replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
            xs, y = number(x.decode()), number(y.decode())[0]
            if move:
                xs, y = [number(move.decode())[0]], number(move.decode())[1]
            out.append((s, [v / MM for v in xs], y / MM, float(size) / MM))
    return out


def words_of(svg):
    return " ".join(t[0] for t in texts(svg))


def affine(x, y):
    """Return True if y = a + b x with b > 0, to 0.02 mm."""
    a, b = np.array(x, float), np.array(y, float)
    if len(a) != len(b) or len(a) < 2:
        return False
    slope, base = np.polyfit(a, b, 1)
    return slope != 0 and np.abs(base + slope * a - b).max() < .02


def clean_rim(data):
    x = png(data)[0]
    return all((e == 255).all() for e in (x[0], x[-1], x[:, 0], x[:, -1])) and (x != 255).any()


# ---- synthetic tables of every figure

HEADS = ["head", "layer", "index"]
KINDS = ["sliding-window", "sink", "a-shape", "mixed", "gist", "odd-kind"]
SCORES = ["score_sliding_window", "score_sink", "score_a_shape"]
PREDICT = ["candidate", "reduce", "n", "documents", "partial", "low", "high", "p", "q"]
UNITS = ["candidate", "reduce", "pair", "layer", "index", "token", "statistic", "effect", "partial", "low", "high", "q"]
CLAIMS = ["id", "paper", "where", "verdict", "table", "than", "value", "low", "high", "null", "null_high", "p"]
EVAL = ["method", "budget", "docs", "nll", "nll_low", "nll_high", "kl", "kl_low", "kl_high", "top1_agree", "kv_end",
        "kv_mean", "kv_peak"]
WORDS = ["word", "count", "base_count", "share", "base_share", "lift", "kept"]
ATLAS = HEADS + ["cluster", "medoid", "silhouette", "stability", "is_medoid", "kind"]
DYNAMICS = HEADS[:2] + ["head_index", "prompt", "rollout", "surrogate", "quantity", "index", "x", "value", "count", "n"]
PAIRS = ["a", "b", "head_a", "head_b", "distance", "layer_a", "index_a", "layer_b", "index_b"]
EFFECT = HEADS + ["kl", "kl_low", "kl_high", "dnll", "dnll_low", "dnll_high"]


def heads_rows(L=6, H=4, scores=True):
    out = []
    for l in range(L):
        for h in range(H):
            kind = KINDS[(l + h) % len(KINDS)]
            out.append((f"L{l}H{h}", l, h, kind, .5 + .5 * h / H) + ((.1 * h, .2, .05 * l) if scores else ()))
    return tsv("heads", HEADS + ["kind", "score"] + (SCORES if scores else []), out)


def eval_rows(methods=("full-ish", "window", "h2o"), budgets=(32, 64, 128)):
    out = []
    for m, name in enumerate(methods):
        for b in budgets:
            kl = (1 + m) * 8 / b
            out.append((name, b, 4, 3 + kl, 2.9, 3.2 + kl, kl, .8 * kl, 1.3 * kl, 1 - kl / 4, b, b, b))
    return tsv("eval", EVAL, out)


def dynamics_rows(heads=("L0H0", "L1H3")):
    out = []
    for k, head in enumerate(heads):
        def row(quantity, index, x, value, prompt=-1, rollout=-1, surrogate=0):
            out.append((head, k, 0, prompt, rollout, surrogate, quantity, index, x, value, -1, -1))
        for s in (0, 1):
            for p in (0, 1):
                for i in range(3):
                    re_, im = .3 * i + .05 * p - .2 * s, (.1, -.1, .25)[i]
                    row("eigenvalue.real", i, "nan", re_, p, surrogate=s)
                    row("eigenvalue.imaginary", i, "nan", im, p, surrogate=s)
                    row("eigenvalue.modulus", i, "nan", math.hypot(re_, im), p, surrogate=s)
                row("r2.test", 0, "nan", .3 - .1 * p - .35 * s, p, surrogate=s)
            row("r2.test", 0, "nan", .25 - .35 * s, surrogate=s)
        for x in (1, 2, 4, 8, 16):
            for r in (0, 1):
                row("running_mean", 0, x, (-1) ** r / x, 0, r)
            row("running_mean", 0, x, .1 / x, 0)
        for i in range(12):
            x = i / 2
            row("tail.train", i, x, math.exp(-x), 0 if False else -1)
            row("tail.test", i, x, math.exp(-1.2 * x) if i < 9 else 0)
            row("tail.gaussian", i, x, math.erfc(x / math.sqrt(2)))
            row("tail.exponential", i, x, math.exp(-x * math.sqrt(2)))
    return tsv("dynamics", DYNAMICS, out)


def pairs_rows(LA=3, HA=2, LB=2, HB=4, match=False, **meta):
    out, best = [], {}
    rng = random.Random(5)
    na, nb = LA * HA, LB * HB
    for i in range(min(na, nb)):
        best[i] = (i * 3) % nb
    for i in range(na):
        for j in range(nb):
            is_best = best.get(i) == j
            if match and not is_best:
                continue
            d = .05 + .02 * i if is_best else .3 + .4 * rng.random()
            row = (1, 2, f"L{i // HA}H{i % HA}", f"L{j // HB}H{j % HB}", d, i // HA, i % HA, j // HB, j % HB)
            out.append(row + (("query", .1 * i, int(i == 0)) if match else (int(is_best),)))
    return tsv("compare", PAIRS + (["space", "q", "own"] if match else ["matched"]), out, level=.05, **meta)


def effect_rows(mirror=False, L=5, H=3):
    out = []
    for l in range(L):
        for h in range(H):
            kl = (.1 if mirror else 10 ** -(1 + (l * H + h) % 4)) * (1 + h)
            out.append((f"L{l}K{h}", l, h, kl, kl * .5, kl * 1.5, kl, -.1 if l % 2 else .01, .2))
    out.append(("all", -1, -1, 3, 2, 4, 3, 2, 4))
    held = "all heads but the one of the row" if mirror else "the head of the row alone"
    return tsv("effect", EFFECT, out, held=held)


def words_rows(n=12):
    rows = [(f"word{i}", 100 - 7 * i, 200, (100 - 7 * i) / 700, 1 / n, (100 - 7 * i) / 700 * n, (100 - 7 * i) / 200)
            for i in range(n)]
    return tsv("words", WORDS, rows)


def predict_rows():
    rho = [.8, -.5, .3, -.1, .05]
    rows = [(f"statistic{i}", "mean", 90, 1, r, r - .2, r + .15, .01, .01 if abs(r) > .4 else .5) for i, r in enumerate(rho)]
    return tsv("predict", PREDICT, rows + [("undefined", "none", 0, 0) + ("nan",) * 5])


def units_rows():
    rows = [(name, "mean", 0, u, 0, -1, .1 * u * u, 10 ** -(u + 1.5), rho, rho - .1, rho + .1, .5)
            for name, rho in (("weak", .1), ("strong", -.9)) for u in range(5)]
    rows += [("none", "mean", 0, u, 0, -1, 1.5, 10 ** -(u + 1.5), "nan", "nan", "nan", "nan") for u in range(5)]
    return tsv("predict-units", UNITS, rows, value="kl")


def claims_rows():
    rows = [("up", "P", "1", "supported", "t", ">", .8, .6, .9, .5, "nan", "nan"),
            ("down", "P", "1", "contradicted", "t", "<", .8, .7, .9, .5, "nan", "nan"),
            ("within", "Q", "1", "undecided", "t", "between", .02, -.1, .1, -.05, .05, "nan"),
            ("alone", "Q", "1", "supported", "t", ">", 2, "nan", "nan", 0, "nan", "nan"),
            ("not", "Q", "1", "untestable here", "", "") + ("nan",) * 6]
    return tsv("claims", CLAIMS, rows)


def atlas_rows(L=6, H=4):
    rows = []
    for i in range(L * H):
        cluster = 1 + i % 3
        rows.append((f"L{i // H}H{i % H}", i // H, i % H, cluster, f"L0H{cluster - 1}", .9 - i / 20, 1 - (i % 4) / 8,
                     int(i < 3), "sink"))
    return tsv("atlas", ATLAS, rows, mean_silhouette=.3)


TABLES = {"heads": heads_rows, "pareto": eval_rows, "dynamics": dynamics_rows, "compare": pairs_rows, "effect": effect_rows,
          "words": words_rows, "predict": predict_rows, "claims": claims_rows, "atlas": atlas_rows}


def undefined(text):
    """Return the table with NaN in every real number."""
    out = []
    for line in text.splitlines():
        cells = line.split("\t")
        out.append(line if line.startswith("#") or len(cells) < 2 else
                   "\t".join("nan" if re.fullmatch(r"-?\d*\.\d+(e-?\d+)?", c) else c for c in cells))
    return "\n".join(out) + "\n"


# ---- rules of all figures

def holds_for_all():
    for figure, make in TABLES.items():
        text = make()
        head = text[:text.index("\n", text.rindex("# ")) + 1]
        columns = text[len(head):text.index("\n", len(head)) + 1]
        one = head + columns + text[len(head) + len(columns):].split("\n")[0] + "\n"
        for what, table in (("plain", text), ("one row", one), ("undefined", undefined(text))):
            code, data, said = draw(table, figure, "png", dpi="30")
            check(f"{figure}, {what}: {said}", code == 0 and clean_rim(data))
        code, data, said = draw(head + columns, figure)
        check(f"{figure}: no data", code == 0 and "no data" in words_of(data), said)
        check(f"{figure}: unknown option", draw(text, figure, style="colour=loud")[0] == 2)
        for size in ("40x25", "400x30", "40x300", "300x300"):
            code, data, said = draw(text, figure, "png", size=size, dpi="30")
            check(f"{figure} at {size}: {said}", (code == 2 and "--size" in said) or (code == 0 and clean_rim(data)))
        code, data, said = draw(text, figure)
        width = float(re.search(rb'width="([\d.]+)pt"', data)[1]) / MM
        check(f"{figure}: a paper's width", 87.9 <= width <= 180.1, width)
        for s, xs, y, size in texts(data):
            check(f"{figure}: text within", s.strip() == "" or -.1 <= min(xs) <= max(xs) <= width, s, xs)
            check(f"{figure}: legible", size * MM >= 5, s, size)
        check(f"{figure}: PDF", draw(text, figure, "pdf")[1].startswith(b"%PDF"))


# ---- places of values

def predict():
    code, svg, _ = draw(predict_rows(), "predict", style="sort=rho")
    x = sorted(discs(svg, BLUE) + discs(svg, VERMILION), key=lambda p: p[1])
    rings = [c for c in discs(svg, (128, 128, 128), filled=False)]
    check("rho of candidates that stand", code == 0 and len(x) == 2 and len(rings) == 3, x, rings)
    places = sorted(x + rings, key=lambda p: p[1])
    check("rho across, sorted down", affine([.8, .3, .05, -.1, -.5], [p[0] for p in places]), places)
    lines = [p for _, s, p, _, _ in paths(svg) if s in (BLUE, VERMILION) and len(p) == 2 and p[0][1] == p[1][1]]
    ends = sorted(p[0][0] for p in lines) + sorted(p[1][0] for p in lines)
    check("intervals", affine([-.7, .6, -.35, .95], ends), ends)
    check("undefined is said", "1 undefined" in words_of(svg), words_of(svg))
    said = words_of(draw(predict_rows().replace("# table: predict\n", "# table: predict\n# units: KV heads\n# pairs: 2\n# value: kl\n"), "predict")[1])
    check("units and texts", re.search("n = \\d+ KV heads of 2 texts", said) and "KL, nats" in said, said)
    names = [t[0] for t in texts(svg) if t[0].startswith("statistic")]
    check("names by size", [t[0] for t in texts(draw(predict_rows(), "predict")[1]) if t[0].startswith("stat")][:2]
          == ["statistic0, mean", "statistic1, mean"], names)
    svg = draw(predict_rows(), "predict", style="top=2")[1]
    check("how many are left out", "3 more not shown" in words_of(svg), words_of(svg))


def units():
    svg = draw(units_rows(), "predict", style="top=2")[1]
    names = [t[0] for t in texts(svg) if t[0] in ("weak, mean", "strong, mean", "none, mean")]
    check("largest correlation first", names == ["strong, mean", "weak, mean"] and "1 more not shown" in words_of(svg), names)
    points = [centre(p) for fill, _, p, curve, _ in paths(svg) if curve and fill]
    check("a point for each unit", len(points) == 10, points)
    check("statistic across", affine([.1 * u * u for u in range(5)], [p[0] for p in points[:5]]), points)
    check("effect up, logarithmic", affine(range(5), [p[1] for p in points[5:]]) and points[5][1] < points[9][1], points)
    check("correlation said", "ρ=−0.90(−1.00to−0.80),q=0.500" in words_of(svg).replace(" ", ""), words_of(svg))
    twins = units_rows().replace("weak\t", "mass.sum\t").replace("strong\t", "mass.sum\t")
    twins = "\n".join(line.replace("\tmean\t", "\tmax\t") if line.endswith("\t0.1\t0.0\t0.2\t0.5") else line for line in twins.split("\n"))
    other = twins.replace("none\tmean", "mass.max\tmean").replace("nan\tnan\tnan\tnan", "0.05\t0\t0.1\t0.9")
    names = [t[0] for t in texts(draw(other, "predict")[1]) if "attention received" in t[0]]
    check("the best of each statistic first", names == ["total attention received, mean", "largest attention received, mean", "total attention received, maximum"], names)


def claims():
    svg = draw(claims_rows(), "claims")[1]
    said = words_of(svg)
    check("verdicts counted", all(s in said for s in ("supported (2)", "contradicted (1)", "undecided (1)", "not judged (1)")), said)
    check("no key of verdicts that no claim has", "null data" not in said and "documents" not in said, said)
    rows = [("up", "P", "1", v, "t", ">", .8, .6, .9, .5, "nan", "nan", n, title) for v, n, title in (("unspecific", 7, "a plain-word title"), ("supported", 9, ""))]
    titled = words_of(draw(tsv("claims", CLAIMS + ["documents", "title"], rows), "claims")[1])
    check("titles of claims, verdicts in words, numbers of documents", all(s in titled for s in ("a plain-word title", "up", "also true of null data (1)", "n = 7 to 9 documents")), titled)
    names = [t[0] for t in texts(svg)]
    check("papers, and judged claims alone", "P" in names and "Q" in names and "within" in names and "not" not in names, said)
    place = {t[0]: t[2] for t in texts(svg)}
    check("verdicts in the order of the key", place["Q"] < place["alone"] < place["within"], place)
    check("as many places as the interval has, and the claim at the right",
          all(t in names for t in ("0.80 (0.60 .. 0.90)", "0.80 (0.70 .. 0.90)", "0.02 (\u22120.10 .. 0.10)", "> 0.5", "< 0.5", "in \u22120.05 .. 0.05")), names)
    check("verdicts of each paper", sum(abs(t[2] - place["P"]) < .5 for t in texts(svg)) == 3 == sum(abs(t[2] - place["Q"]) < .5 for t in texts(svg)), place)
    # farther of value and interval at +-1: up = (.3, .1 .. .4) / .4, down = (-.3, -.4 .. -.2) / .4
    lines = {}
    for _, stroke, p, _, _ in paths(svg):
        if stroke in (BLUE, VERMILION) and len(p) == 2 and p[0][1] == p[1][1]:
            lines[stroke] = sorted((p[0][0], p[1][0]))
    dots = [p for p in sorted(discs(svg, BLUE), key=lambda p: p[1]) if p[0] > lines[VERMILION][1]]  # not in the key, nor of the papers
    check("claims that go up and down", affine([-1, -.5, .25, 1, .75], lines[VERMILION] + lines[BLUE] + [dots[0][0]]), lines, dots)
    check("a claim without interval is at the rim", abs(dots[1][0] - lines[BLUE][1]) < .02, dots)


def pareto():
    svg = draw(eval_rows(), "pareto")[1]
    check("the best method is lowest", [t[0] for t in sorted(texts(svg), key=lambda t: -t[2]) if t[0] in ("full-ish", "window", "h2o")] == ["full-ish", "window", "h2o"])
    x = sorted(discs(svg, BLUE))[:3]
    check("budget across, logarithmic", affine(np.log([32, 64, 128]), [p[0] for p in x]), x)
    check("KL up, logarithmic", affine(np.log([8 / 32, 8 / 64, 8 / 128]), [p[1] for p in x]) and x[0][1] < x[2][1], x)
    rings = discs(svg, (64, 64, 64), filled=False)
    check("the front: all points of the best, and the key's", len(rings) == 4, rings)
    check("front where the best is", all(any(math.dist(p, q) < .02 for q in rings) for p in x), rings, x)
    near = eval_rows() + "\t".join(map(str, ("groups", 64, 4, 3, 3, 3, .2, .2, .2, .9, 63.9, 63.9, 64))) + "\n"
    check("0.2 % fewer entries are no merit", len(discs(draw(near, "pareto")[1], (64, 64, 64), filled=False)) == 4)
    near = near.replace("63.9", "63")
    check("2 % are", len(discs(draw(near, "pareto")[1], (64, 64, 64), filled=False)) == 5)
    svg = draw(eval_rows(), "pareto", style="y=top1_agree,x=budget,front=no")[1]
    x = sorted(discs(svg, BLUE))[:3]
    check("agreement up", affine([1 - 8 / b / 4 for b in (32, 64, 128)], [p[1] for p in x]) and x[0][1] > x[2][1], x)
    check("no front", not discs(svg, (64, 64, 64), filled=False))
    many = draw(eval_rows([f"method-{i}" for i in range(12)]), "pareto", style="methods=method-11+method-0")[1]
    at = {t[0]: t[2] for t in texts(many) if t[0].startswith("method-")}
    ends = {}  # lines from the last point to the name
    for _, stroke, p, _, _ in paths(many):
        if stroke and max(stroke) - min(stroke) > 50 and len(p) == 3 and p[1][1] == p[2][1]:
            ends[stroke] = p[0][1]
    check("of many methods the chosen ones have a name with a line", len(ends) == 2 and len(at) == 2 and "10 others" in words_of(many), ends, at)
    check("whose name is beside the end", all(min(abs(at[name] - y) for y in ends.values()) < 2.6 for name in ("method-0", "method-11")), ends, at)
    for methods in ("method-11+bogus", "bogus", "all+bogus"):
        code, svg, said = draw(eval_rows([f"method-{i}" for i in range(12)]), "pareto", style="methods=" + methods)
        check(f"a method that the table lacks, {methods}", code == 2 and not svg and f"no line of '{'all' if 'all' in methods else 'bogus'}'" in said, code, said)
    for n in (1, 17, 18, 19, 60):
        check("names of any length", draw(eval_rows((n * "m", n * "W")), "pareto")[0] == 0, n)
    zero = eval_rows().replace("\t0.0625\t", "\t0\t")
    check("zero on a logarithm is said", "1 point at 0 not shown" in words_of(draw(zero, "pareto")[1]))
    pareto_of_answers()
    pareto_of_tasks()


def pareto_of_answers():
    """Check the fraction of correct answers that is kept: more is better, and it is undefined if the full cache answers
    none.
    """
    kept = {"window": (.2, .5, .9), "h2o": (.4, .8, .7), "snapkv": (.3, "nan", "nan"), "local": ("nan",) * 3}
    rows = [(m, b, b, v) for m, values in kept.items() for b, v in zip((32, 64, 128), values)] + [("full", "nan", 200, 1)]
    code, svg, said = draw(tsv("eval", ["method", "budget", "kv_mean", "kept"], rows), "pareto", style="y=kept")
    words = words_of(svg)
    check("answers kept are drawn", code == 0 and "cached fraction, mean over correct answers" in words, said)
    check("rows without a number are told of", "5 combinations without a correct answer not shown" in words, words)
    names = sorted((t[2], t[0]) for t in texts(svg) if t[0] in kept)
    check("lines without a point have no name, the others lie as they end", [t for _, t in names] == ["window", "h2o", "snapkv"], names)
    rings = sorted(discs(svg, (64, 64, 64), filled=False))
    drawn = discs(svg, (230, 159, 0))  # of h2o: window has squares
    check("the front: two points of h2o, the last of window, and the key's", len(rings) == 4 and
          sum(any(math.dist(p, q) < .02 for q in drawn) for p in rings) == 2, rings, drawn)
    mixed = draw(tsv("eval", ["method", "budget", "kv_mean", "right", "kept"], [("h2o", 32, 32, .5, .2), ("tova", 32, 32, "nan", "nan"), ("snapkv", 32, 32, 0, "nan")]), "pareto", style="y=kept", size="160x90")
    check("answers that were not judged are not wrong", all(f"1 combination without {w} not shown" in words_of(mixed[1]) for w in ("a correct answer", "judged answers")), words_of(mixed[1]))
    none = draw(tsv("eval", ["method", "budget", "kv_mean", "kept"], [("h2o", 32, 32, "nan")]), "pareto", style="y=kept")
    check("no number at all is told, too", none[0] == 0 and "1 combination without a correct answer not shown" in words_of(none[1]) and "no point" in words_of(none[1]), none[2])


def pareto_of_tasks():
    """Check the table of tasks: right answers against the budget, and intervals of all methods side by side."""
    rows = [(m, b, 7, b / 400, b / 500, b / 300) for m in ("window", "h2o", "snapkv") for b in (96, 160, 256)] + [("full", 0, 7, .8, .5, .9)]
    table = tsv("tasks", ["method", "budget", "tasks", "right", "right_low", "right_high"], rows)
    code, _, said = draw(table, "pareto")
    check("of tasks no entries are measured", code and "has no numbers kv_mean" in said, code, said)
    plain = sorted(p[0] for p in discs(draw(table, "pareto", style="y=right,x=budget,front=no")[1], (230, 159, 0)))[:3]
    code, svg, said = draw(table, "pareto", style="y=right,x=budget,front=no,methods=all")
    check("right answers against the budget", code == 0 and all(x in words_of(svg) for x in ("n = 7", "budget (entries per head)", "full cache")), said, words_of(svg))
    check("the axis is logarithmic", affine(np.log([96, 160, 256]), plain), plain)
    blue, orange = (sorted(p[0] for p in discs(svg, c))[:3] for c in (BLUE, (230, 159, 0)))
    ticks = [p[0][0] for _, _, p, _, _ in paths(svg) if len(p) == 2 and p[0][0] == p[1][0] and 0 < abs(p[0][1] - p[1][1]) < 1.5]
    check("the second of three lines stays at its budget", all(any(abs(x - at) < .03 for at in ticks) for x in orange), orange, ticks)
    band = [p for fill, _, p, _, _ in paths(svg) if fill == (235, 235, 235)]
    height = [min(y for _, y in p) for p in band] + [max(y for _, y in p) for p in band]
    full = [p[0][1] for _, s, p, _, _ in paths(svg) if len(p) == 2 and p[0][1] == p[1][1] and s == (31, 31, 31) and p[1][0] - p[0][0] > 20]
    check("a band and a line of the full cache", len(band) == 1 and any(affine([.9, .5, .8], [*height, y]) for y in full), height, full)
    check("lines stand side by side", np.ptp(np.subtract(blue, orange)) < .01 and blue[0] - orange[0] > .3, blue, orange)
    bars = [p for _, _, p, _, _ in paths(svg) if len(p) == 2 and abs(p[0][0] - p[1][0]) < .01 and abs(p[0][1] - p[1][1]) > 2 and any(abs(p[0][0] - x) < .01 for x in (*blue, *orange))]
    check("each with its intervals", len(bars) == 6, bars)
    rows = [("h2o", b, 10, k, k / 2, k / 4, k) for b, k in ((64, .4), (128, .6), (256, .8))] + [("h2o", 32, 10, 0, 0, .1, "nan"), ("full", 0, 10, .9, .8, 1, 1)]
    svg = draw(tsv("tasks", ["method", "budget", "tasks", "right", "right_low", "right_high", "kept"], rows), "pareto", style="y=right,x=kept")[1]
    at = sorted(discs(svg, (230, 159, 0)))[:3]
    check("right answers against the cached fraction, linear", affine([.4, .6, .8], [x for x, _ in at]) and affine([.4, .6, .8], [y for _, y in at]), at)
    check("the budgets and the answers of the means", all(w in words_of(svg) for w in ("budgets 32 to 256", "means over 4 to 8 correct answers", "1 combination without a correct answer not shown")), words_of(svg))


def words():
    svg = draw(words_rows(), "words", style="sort=count,top=5")[1]
    held = sorted(bars(svg, BLUE), key=lambda b: b[1])
    check("five bars", len(held) == 5, held)
    check("in proportion to shares, from 0", affine([0] + [100 - 7 * i for i in range(5)], [0] + [b[2] for b in held]), held)
    check("what is not shown", "7 more words not shown" in words_of(svg), words_of(svg))
    ticks = [p[0][0] for _, s, p, _, _ in paths(svg) if s == VERMILION and len(p) == 2]
    check("base rate", len(ticks) == 6 and abs((ticks[0] - held[0][0]) / held[0][2] - (1 / 12) / (100 / 700)) < .01, ticks)
    pooled = tsv("words", ["word", "kept", "low", "high", "documents", "count", "base_count"],
                 [("a", .5, .4, .7, 3, 50, 100), ("b", .25, .2, .3, 3, 25, 100)])
    svg = draw(pooled, "words")[1]
    lines = [p for _, s, p, _, _ in paths(svg) if len(p) == 2 and p[0][1] == p[1][1] and s == (31, 31, 31)]
    held = sorted(bars(svg, BLUE) + bars(svg, (158, 189, 214)), key=lambda b: b[1])
    spans = [tuple(x - held[0][0] for x, _ in p) for p in lines if any(abs(p[0][1] - b[1] - b[3] / 2) < .02 for b in held)]
    check("intervals of pooled documents", affine([0, .5, .25, .4, .7, .2, .3], [0, held[0][2], held[1][2], *spans[0], *spans[1]]), spans)
    said = words_of(svg)  # 75 of 200 words: .5 is 4/3 of that fraction, .25 is 2/3
    check("the share of all words, and lifts", all(v in said for v in ("of all words: 0.375", "\u00d71.33", "\u00d70.67")), said)
    check("no shares there", draw(pooled, "words", style="value=share")[0] == 2)


def heads():
    svg = draw(heads_rows(), "heads")[1]
    signs = [(s, xs[0], y) for s, xs, y, size in texts(svg) if s in "WSAGO" and len(s) == 1]
    kinds = [KINDS[(l + h) % 6] for l in range(6) for h in range(4)]
    want = sum(k != "mixed" for k in kinds) + 5  # and the key
    check("a letter for each head of a kind", len(signs) == want, len(signs), want)
    check("kinds counted", all(f"{k} ({kinds.count(k)})" in words_of(svg) for k in KINDS), words_of(svg))
    row = [s for s, x, y in sorted(signs, key=lambda t: t[1]) if abs(y - min(t[2] for t in signs)) < 1][:5]
    check("letters of head 0 along the layers", row == ["W", "S", "A", "G", "O"], row)
    svg = draw(heads_rows(), "heads", style="head=L2H3")[1]
    pale = lambda *rgb: tuple(round(255 - .55 * (255 - v)) for v in rgb)  # all but the largest
    held = bars(svg, (0, 114, 178)) + bars(svg, pale(230, 159, 0)) + bars(svg, pale(0, 158, 115))
    check("evidence: bars as long as scores", affine([0, .3, .2, .1], [0] + [b[2] for b in held]), held)
    check("evidence names the head, and the values", all(w in words_of(svg).split() for w in ("L2H3:", "odd-kind", "0.30", "0.20", "0.10")), words_of(svg))
    svg = draw(heads_rows(), "heads", style="head=L0H0")[1]
    check("rules without a score", re.search("no bar: .*, .*", words_of(svg)) and len(bars(svg, (230, 159, 0))) == 1, words_of(svg))
    bare = "\n".join("\t".join(v for k, v in enumerate(line.split("\t")) if k != 4) for line in heads_rows().split("\n"))
    code, svg, said = draw(bare, "heads", style="head=L2H3")
    check("evidence without a score of the kind", code == 0 and "L2H3: odd-kind" in words_of(svg), said, words_of(svg))
    check("no such head", draw(heads_rows(), "heads", style="head=L9H9")[0] == 2)
    check("no scores", draw(heads_rows(scores=False), "heads", style="head=L0H0")[0] == 2)


def atlas():
    svg = draw(atlas_rows(), "atlas")[1]
    frames = [p for _, s, p, _, d in paths(svg) if s == (31, 31, 31) and re.search("stroke-width:0.55", d) is None and len(p) >= 4]
    digits = [s for s, *_ in texts(svg) if s in ("1", "2", "3")]
    check("numbers of clusters in cells and key", all(digits.count(k) >= 9 for k in "123"), digits)
    check("clusters described", words_of(svg).count("8 heads") == 3 and "center L0H0 (sink)" in words_of(svg), words_of(svg))
    # of the 24 heads, 6 are in their cluster in all texts and 18 in 5/8 or more: 2 and 6 of each cluster
    dark, grey = bars(svg, (64, 64, 64)), bars(svg, (158, 158, 158))
    check("stability of each cluster", len(dark) == len(grey) == 4 and all(abs(g[2] / d[2] - 3) < .01 for d, g in zip(dark[:3], grey[:3])), dark, grey)
    few = re.sub(r"(L0H0\t.*\t)1(\.0)?(\t1\tsink)", r"\g<1>0.25\g<3>", atlas_rows())
    check("a head that leaves its cluster", len(bars(draw(few, "atlas")[1], (230, 230, 230))) == 2)


def dynamics():
    svg = draw(dynamics_rows(("L1H3",)), "dynamics")[1]
    panel = [p for p in discs(svg, BLUE) if p[0] < 55 and p[1] < 45]  # of prompt 0
    check("eigenvalues of prompt 0", len(panel) == 3 and affine([0, .3, .6], [p[0] for p in panel]), panel)
    check("imaginary part up", affine([.1, -.1, .25], [p[1] for p in panel]) and panel[1][1] > panel[2][1], panel)
    circle = [p for _, s, p, c, _ in paths(svg) if c and s == (140, 140, 140) and max(x for x, _ in p) - min(x for x, _ in p) > 5]
    radius = (max(x for x, _ in circle[0]) - min(x for x, _ in circle[0])) / 2
    check("unit circle", abs(radius / ((panel[2][0] - panel[0][0]) / .6) - 1) < .002, radius)
    check("shuffled ones", len(discs(svg, (140, 140, 140), filled=False)) >= 8)
    named = {"eigenvalues": "eigenvalues", "means": "running mean", "tails": "residual", "r2": "held-out"}
    check("by default two panels", all((w in words_of(svg)) == (k in ("eigenvalues", "r2")) for k, w in named.items()) and "L1H3" in words_of(svg), words_of(svg))
    for show in ("means", "r2+tails", "eigenvalues+means+tails+r2"):
        words = words_of(draw(dynamics_rows(("L1H3",)), "dynamics", style="show=" + show)[1])
        check(f"panels: {show}", all((w in words) == (k in show.split("+")) for k, w in named.items()), words)
        check(f"key: {show}", ("Gaussian" in words) == ("tails" in show) and ("one run" in words) == ("means" in show) and ("modulus 1" in words) == ("eigen" in show), words)
    code, _, said = draw(dynamics_rows(("L1H3",)), "dynamics", style="show=r3")
    check("an unknown panel", code == 2 and "eigenvalues, means, tails and r2" in said, said)
    svg = draw(dynamics_rows([f"L{i}H0" for i in range(9)]), "dynamics", style="heads=4")[1]
    check("heads that are not shown", "5 more heads not shown" in words_of(svg) and "L3H0" in words_of(svg) and "L4H0" not in words_of(svg))


def compare():
    code, svg, said = draw(pairs_rows(), "compare")
    dots = sorted(discs(svg, RED), key=lambda p: p[1])[:-1]  # the last one is in the key
    check(f"matches of unlike shapes: {said}", code == 0 and len(dots) == 6, dots)
    check("rows down", affine(range(6), [p[1] for p in dots]), dots)
    check("columns across", affine([(i * 3) % 8 for i in range(6)], [p[0] for p in dots]), dots)
    check("heads matched with themselves", "a head and itself (2)" in words_of(draw(pairs_rows(LA=3, HA=2, LB=3, HB=2), "compare")[1]))
    check("how many", "pairs (6)" in words_of(svg), words_of(svg))
    for shape in ((1, 2, 8, 8), (8, 8, 1, 2), (1, 1, 1, 1)):
        code, data, said = draw(pairs_rows(*shape), "compare", "png", dpi="30")
        check(f"shapes {shape}: {said}", code == 0 and clean_rim(data))
    code, svg, said = draw(pairs_rows(match=True), "compare")
    check("matches only have no picture", code == 2 and "leave --match out" in said and not svg, said)
    words = words_of(draw(pairs_rows(trace_1="M, h2o, 128 tokens", trace_2="M, window, 96 tokens"), "compare")[1])
    check("the runs are named, without the words of both", "run 1 (h2o, 128 tokens)" in words and "run 2 (window, 96 tokens)" in words, words)
    words = words_of(draw(pairs_rows(by="tokens", model="M 1B"), "compare")[1])
    check("the model, the distance and the numbers of pairs", "M 1B; distance: 1 - rank correlation" in words and "matched (6)" in words and "all others (42)" in words, words)
    check("no such pair", draw(pairs_rows(), "compare", style="pair=1-3")[0] == 2 and draw(pairs_rows(), "compare", style="pair=x")[0] == 2)


def effect():
    svg = draw(effect_rows(), "effect")[1]
    dots = discs(svg, (0, 0, 0))
    check("dots where likelihood was lost", len(dots) == 9, len(dots))  # layers 0, 2, 4
    check("dots in every second layer", affine([0, 2, 4], sorted({round(x, 2) for x, _ in dots})), dots)
    check("marks can go", not discs(draw(effect_rows(), "effect", style="marks=no")[1], (0, 0, 0)))
    svg = draw(effect_rows(mirror=True), "effect")[1]
    check("mirror: KL restored, all apart", "restored" in words_of(svg) and len(discs(svg, (0, 0, 0))) == 15, words_of(svg))
    svg = draw(effect_rows(), "effect", style="form=bars,top=3")[1]
    marks = sorted(discs(svg, BLUE) + discs(svg, BLUE, filled=False), key=lambda p: p[1])
    kl = sorted(((10 ** -(1 + (l * 3 + h) % 4)) * (1 + h) for l in range(5) for h in range(3)), reverse=True)[:3]
    places = sorted({round(p[0], 1) for p in marks}, reverse=True)
    check("largest first, logarithmic", len(places) >= 2 and "all heads" in words_of(svg), marks, kl)
    names = [t[0] for t in texts(svg) if re.fullmatch(r"L\dK\d", t[0])]
    check("three heads", len(names) == 3, names)


def many():
    rows = [(f"L{l}H{h}", l, h, KINDS[(l * h) % 4], .7) for l in range(80) for h in range(64)]
    code, data, said = draw(tsv("heads", HEADS + ["kind", "score"], rows), "heads", "png", dpi="30")
    check(f"5,120 heads: {said}", code == 0 and clean_rim(data))
    rows = [(f"a very long name of a statistic, number {i}", "max", 90, 1, math.sin(i), -1, 1, .5, .5) for i in range(3000)]
    code, data, said = draw(tsv("predict", PREDICT, rows), "predict", style="top=1000", size="88x240")
    check(f"3,000 candidates: {said}", code == 0 and "more not shown" in words_of(data))
    rows = [(f"m{m}:budget={b}", b, 4, 1, 1, 1, math.exp(-b / 100) * m, 1, 1, .5, b, b, b) for m in range(60) for b in (1, 1000)]
    code, data, said = draw(tsv("eval", EVAL, rows), "pareto")
    check(f"more methods than lines are refused: {said}", code == 2)
    infinite = predict_rows().replace("\t0.8\t", "\tinf\t").replace("\t-0.5\t", "\t-inf\t")
    code, data, said = draw(infinite, "predict", "png", dpi="30")
    check(f"infinite values: {said}", code == 0 and clean_rim(data))


if __name__ == "__main__":
    for test in (holds_for_all, predict, units, claims, pareto, words, heads, atlas, dynamics, compare, effect, many):
        test()
    finish()
