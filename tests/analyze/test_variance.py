#!/usr/bin/env python3
"""Check kvfate retention --as variance: hand-made values, numpy on random traces, planted structure, errors."""
import itertools
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../figures"))
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, kvfate, real, refused, said  # noqa: E402
from maker import Column, make, table
from test_formats import png, read

write_kvf = os.path.abspath(sys.argv[2])
TINY = float(np.finfo(np.float32).tiny)
TEXTS = {"special": "<|x|>", "whitespace": "  ", "word": " tea1", "number": " 12", "punctuation": ", "}  # five of the classes
CLASSES = list(TEXTS)


def ranks(v):
    """Return mean ranks of a vector: 1 + the number of smaller values + half of the number of other equal values."""
    s = np.sort(v)
    return (np.searchsorted(s, v, "left") + np.searchsorted(s, v, "right") + 1) / 2


# ---- the definitions, computed directly

def conclude(n, k, within, y):
    total = ((y - y.mean()) ** 2).sum() if n else 0
    if n < 2 or y.max() == y.min():
        return k, n, np.nan, np.nan
    between = total - within
    return k, n, between / total, (between - (k - 1) * within / (n - k)) / total if n > k else np.nan


def one_way(y, level):
    y, level = y[~np.isnan(y)], level[~np.isnan(y)]
    groups = [y[level == u] for u in np.unique(level)]
    return conclude(len(y), len(groups), sum(((g - g.mean()) ** 2).sum() for g in groups), y)


def additive(y, a, b):
    """Fit least squares with a column for each level."""
    known = ~np.isnan(y)
    y, a, b = y[known], a[known], b[known]
    k = max(0, len(np.unique(a)) + len(np.unique(b)) - 1)
    if len(y) == 0:
        return conclude(0, k, 0, y)
    m = np.concatenate([a[:, None] == np.unique(a), b[:, None] == np.unique(b)], 1).astype(float)
    fit = m @ np.linalg.lstsq(m, y - y.mean(), rcond=None)[0]
    return conclude(len(y), k, ((y - y.mean() - fit) ** 2).sum(), y)


def bins(v, n):
    """Return bins of equal size of values in rank order; nan has none."""
    out = np.full(v.shape, np.nan)
    known = ~np.isnan(v)
    out[known] = np.floor((ranks(v[known]) - .5) * n / max(1, known.sum()))
    return out


def scaled(g, scale):
    g = g.astype(float).copy()
    if scale == "rate":
        with np.errstate(invalid="ignore", divide="ignore"):
            r = np.where((-g >= 0) & (-g < TINY), TINY, -g)
            g = np.where(r > 0, np.log(r), np.nan)
    if scale == "rank":
        known = ~np.isnan(g)
        g[known] = ranks(g[known])
    else:
        g[np.isinf(g)] = np.nan
    return g


def expected(g, ids, classes, roles, norm, scale="rate", position_bins=16, norm_bins=16):
    """Return [(head, factor, levels, n, eta2, epsilon2)] with names of heads as (layer, index); g [heads][T], norm
    likewise or None.
    """
    heads, n = list(g), len(ids)
    y = scaled(np.array([g[h] for h in heads]), scale)
    ofs = {"token": ids, "class": classes, "role": roles, "position": np.arange(n) * position_bins // max(n, 1)}
    norms = None if norm is None else np.array([bins(norm[h], norm_bins) for h in heads])
    rows = []
    for h, name in enumerate(heads):
        for factor, level in ofs.items():
            rows.append((name, factor, *one_way(y[h], level)))
        if norm is not None:
            known = ~np.isnan(norms[h])
            rows.append((name, "key_norm", *one_way(y[h][known], norms[h][known])))
    spread = {k: np.tile(v, len(heads)) for k, v in ofs.items()}
    which = np.repeat(np.arange(len(heads)), n)
    layer = np.repeat([h[0] for h in heads], n)
    flat = y.ravel()
    rows += [("all", "layer", *one_way(flat, layer)), ("all", "head", *one_way(flat, which))]
    rows += [("all", k, *one_way(flat, v)) for k, v in spread.items()]
    if norm is not None:
        known = ~np.isnan(norms.ravel())
        rows.append(("all", "key_norm", *one_way(flat[known], norms.ravel()[known])))
    rows.append(("all", "head+token", *additive(flat, which, spread["token"])))
    rows.append(("all", "head*token", *one_way(flat, which * 100000 + spread["token"])))
    return rows


def compare(name, path, want, *more, tolerance=1e-10):
    data, meta = table(kvfate, "retention", "--as", "variance", path, *more)
    check(name + ": heads", data["head"] == ["all" if h == "all" else f"L{h[0]}K{h[1]}" for h, *_ in want], data["head"])
    check(name + ": layers", data["layer"] == [-1 if h == "all" else h[0] for h, *_ in want]
          and data["index"] == [-1 if h == "all" else h[1] for h, *_ in want])
    check(name + ": factors", data["factor"] == [r[1] for r in want], data["factor"])
    check(name + ": levels", data["levels"] == [r[2] for r in want], data["levels"], [r[2] for r in want])
    check(name + ": n", data["n"] == [r[3] for r in want], data["n"], [r[3] for r in want])
    for i, key in ((4, "eta2"), (5, "epsilon2")):
        got, right = real(data[key]), np.array([r[i] for r in want], float)
        close = np.isclose(got, right, rtol=0, atol=tolerance, equal_nan=True)
        check(f"{name}: {key}", close.all(), [(want[k][:2], got[k], right[k]) for k in np.flatnonzero(~close)][:5])
    each = [(r[1], r[5]) for r in want if r[0] != "all" and not np.isnan(r[5])]
    means = [np.mean(v) if h == "all" and (v := [e for f, e in each if f == factor]) else np.nan for h, factor, *_ in want]
    check(f"{name}: within", np.allclose(real(data["within"]), means, rtol=0, atol=tolerance, equal_nan=True), data["within"], means)
    return data, meta


def bars(pixels, colour):
    """Return lengths of the rectangles of a colour, from the top down."""
    rows = (pixels.reshape(len(pixels), -1, 3) == colour).all(2).sum(1)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], rows > 0, [0]])))
    return [int(np.median(rows[a:b])) for a, b in zip(edges[::2], edges[1::2])]


with tempfile.TemporaryDirectory(prefix="kvfate-variance-") as folder:
    count = itertools.count()

    def trace(g, ids, classes=None, roles=None, norm=None, column="log_beta", axis="token", drop=()):
        g = np.asarray(g, float)
        L, H, T = g.shape
        columns = [Column("tokens.id", "i32", "run", ids), Column("tokens.role", "u8", "run", np.zeros(T) if roles is None else roles),
                   Column(column, "f32", "kv", g, axis)]
        if norm is not None:
            columns.append(Column("key_norm", "f32", "kv", norm))
        columns = [c for c in columns if c.name not in drop]
        return make(write_kvf, os.path.join(folder, f"{next(count)}.kvf"), columns, (L, H, 2 * H, T),
                    {"method": {"name": "made-up"}},
                    texts=[TEXTS[c] for c in ("word",) * T] if classes is None else [TEXTS[CLASSES[c]] for c in classes])

    def row(data, head, factor):
        i = [*zip(data["head"], data["factor"])].index((head, factor))
        return data["levels"][i], data["n"][i], data["eta2"][i], data["epsilon2"][i]

    # by hand: one head, ids 7 7 9 9, classes word word word number, lb -1 -3 -5 -7:
    # mean -4, SS 9 + 1 + 1 + 9 = 20; ids: means -2 and -6, between 4 * 4 = 16, within 4, MS 2: 16/20 and (16 - 2)/20
    # classes: means -3 and -7, between 3 * 1 + 9 = 12, within 8, MS 4: 12/20 and (12 - 4)/20
    # two bins of positions are the ids; norms 4 1 3 2 in two bins: {0, 2} and {1, 3}: means -3 and -5, between 4, within 16: .2 and (4 - 8)/20
    hand = trace([[[-1, -3, -5, -7]]], [7, 7, 9, 9], [2, 2, 2, 3], norm=[[[4, 1, 3, 2]]])
    data, meta = table(kvfate, "retention", "--as", "variance", hand, "--scale", "log-beta", "--position-bins", "2", "--norm-bins", "2")
    for head in ("L0K0", "all"):
        for factor, want in (("token", (2, 4, .8, .7)), ("class", (2, 4, .6, .4)), ("role", (1, 4, 0, 0)), ("position", (2, 4, .8, .7)),
                             ("key_norm", (2, 4, .2, -.2))):
            got = row(data, head, factor)
            check(f"by hand: {head} {factor}", np.allclose(got, want, rtol=0, atol=1e-15), got, want)
    check("by hand: one head", row(data, "all", "layer") == row(data, "all", "head") == (1, 4, 0, 0), data)
    check("by hand: joint", np.allclose(row(data, "all", "head+token"), (2, 4, .8, .7), rtol=0, atol=1e-15)
          and np.allclose(row(data, "all", "head*token"), (2, 4, .8, .7), rtol=0, atol=1e-15), data)
    # two heads, two ids: 0 2 and 4 12, negated.  Mean 4.5, SS 20.25 + 6.25 + .25 + 56.25 = 83; heads: means 1 and 8, 4 * 12.25 = 49; ids: 2 and 7, 25.
    # Orthogonal: the sum explains 74 of 83, with three levels of four values: MS 9; the pairs explain all
    data, _ = table(kvfate, "retention", "--as", "variance", trace([[[0, -2], [-4, -12]]], [1, 2]), "--scale", "log-beta")
    for factor, want in (("head", (2, 4, 49 / 83, (49 - 17) / 83)), ("token", (2, 4, 25 / 83, (25 - 29) / 83)),
                         ("head+token", (3, 4, 74 / 83, (74 - 18) / 83))):
        check(f"two by two: {factor}", np.allclose(row(data, "all", factor), want, rtol=0, atol=1e-15), row(data, "all", factor), want)
    check("two by two: pairs", row(data, "all", "head*token") == (4, 4, 1, None), data)

    # random traces: everything at once, with zeros, infinities and holes
    rng = np.random.default_rng(11)
    L, H, T = 3, 2, 83
    ids = rng.integers(0, 20, T) ** 2
    classes, roles = rng.integers(0, 5, T), np.minimum(2, np.arange(T) // 30)
    g = -np.exp(rng.normal(size=(L, H, T)) + rng.normal(size=(L, H, 1)) + np.sin(ids) + classes / 3)
    g = g.astype(np.float32).astype(float)
    norm = np.round(10 + 3 * rng.normal(size=(L, H, T)), 1).astype(np.float32).astype(float)
    heads = [(l, h) for l in range(L) for h in range(H)]

    def by_head(v, a=0, b=T):
        return {(l, h): v[l, h, a:b] for l, h in heads}

    clean = trace(g, ids, classes, roles, norm)
    for scale in ("rate", "log-beta", "rank"):
        want = expected(by_head(g), ids, classes, roles, by_head(norm), scale)
        _, meta = compare(f"random {scale}", clean, want, "--scale", scale)
        check("scale", meta["scale"] == scale and float(meta["clamped"]) == float(meta["left_out"]) == 0, meta)
    compare("default scale", clean, expected(by_head(g), ids, classes, roles, by_head(norm)))
    a, b = 5, 60
    want = expected(by_head(g, a, b), ids[a:b], classes[a:b], roles[a:b], by_head(norm, a, b), "rate", 7, 5)
    compare("a range", clean, want, "--tokens", "5:60", "--position-bins", "7", "--norm-bins", "5")
    some = {h: g[h] for h in heads if h[0] > 0 and h[1] == 1}
    compare("some heads", clean, expected(some, ids, classes, roles, {h: norm[h] for h in some}), "--head", "L1-2K1")
    compare("more bins than tokens", clean, expected(by_head(g), ids, classes, roles, by_head(norm), "rate", 500, 500), "--position-bins", "500",
            "--norm-bins", "500")
    compare("one bin", clean, expected(by_head(g), ids, classes, roles, by_head(norm), "rate", 1, 1), "--position-bins", "1", "--norm-bins", "1")

    holes, thin = g.copy(), norm.copy()
    holes[0, 1, ::7], holes[1, 0, 3], holes[1, 1, 4], holes[2, 0, 5:9], holes[2, 1, 1] = 0, -np.inf, -1e-40, np.nan, .5
    holes[2, 1, 20:70] = np.nan  # heads and ids are no longer balanced: alternating means must converge
    thin[0, 0, ::5], thin[1, 1, :] = np.nan, 4
    holed = trace(holes, ids, classes, roles, thin)
    for scale in ("rate", "log-beta", "rank"):
        _, meta = compare(f"holes {scale}", holed, expected(by_head(holes), ids, classes, roles, by_head(thin), scale), "--scale", scale, tolerance=1e-9)
        check("clamped", float(meta["clamped"]) == (13 if scale == "rate" else 0), meta)
        left = np.isnan(scaled(holes, scale)).sum()
        check("left out", float(meta["left_out"]) == left > 50 or meta["left_out"] == str(left), meta, left)
    text = said("retention", "--as", "variance", holed)
    check("notes", "13 values of log_beta are 0" in text and "56 values left out" in text, text)

    # other gates, no key norms
    other = trace(g, ids, classes, roles, column="write_gate")
    _, meta = compare("write gates", other, expected(by_head(g), ids, classes, roles, None, "rank"))
    check("no norms", "key_norm" in meta["without"] and meta["value"] == "write_gate", meta)
    check("no norms is said", "without key_norm" in said("retention", "--as", "variance", other) and "without" not in said("retention", "--as", "variance", clean))
    refused("rates of write gates", 2, ["retention", "--as", "variance", other, "--scale", "rate"], "write_gate", "rank")

    # planted: only the id decides; chance explains (levels - 1) / (values - 1), which epsilon^2 removes on average
    T = 1500
    ids = rng.integers(0, 200, T)
    effect = rng.normal(size=200)
    only = np.broadcast_to(-np.exp(effect[ids]), (2, 3, T))
    data, _ = table(kvfate, "retention", "--as", "variance", trace(only, ids, rng.integers(0, 5, T), norm=10 + rng.normal(size=(2, 3, T))))
    for head in ("L0K0", "L1K2", "all"):
        check("planted id", row(data, head, "token")[2] == row(data, head, "token")[3] == 1, row(data, head, "token"))
        for factor in ("class", "position", "key_norm"):
            _, _, eta, eps = row(data, head, factor)
            check(f"planted id, {factor}", 0 < eta < .04 and abs(eps) < .025, head, eta, eps)
    check("planted id, heads", abs(row(data, "all", "head")[2]) < 1e-12 and row(data, "all", "head+token")[2] == 1, data["eta2"][-9:])
    noise = trace(-np.exp(rng.normal(size=(2, 3, T))), ids, norm=10 + rng.normal(size=(2, 3, T)))
    data, _ = table(kvfate, "retention", "--as", "variance", noise)
    for head, n in (("L0K1", T), ("all", 6 * T)):
        levels, _, eta, eps = row(data, head, "token")
        check("noise: eta^2 of many levels", abs(eta - (levels - 1) / (n - 1)) < 8 / n ** .5 / 5 and abs(eps) < .06, head, eta, eps)
    both = trace(-np.exp(effect[ids] + np.arange(6).reshape(2, 3, 1)), ids)
    data, _ = table(kvfate, "retention", "--as", "variance", both)
    # log(-log_beta) is read back from floats: one part in 2^24
    check("planted sum", row(data, "all", "head+token")[2] > 1 - 1e-12 and row(data, "all", "layer")[2] < row(data, "all", "head")[2] < .9, data["eta2"][-8:])

    # the figure: bars as long as the fractions, on an axis of 74 mm that ends at the next tenth
    out = os.path.join(folder, "f.png")
    for name, x, more in (("clean", clean, ()), ("holes", holed, ("--norm-bins", "3")), ("a sum", both, ()), ("--vmax", clean, ("--vmax", "2"))):
        r = subprocess.run([kvfate, "retention", "--as", "variance", x, *more, "--dpi", "127", "-o", out], capture_output=True, text=True)
        check(f"figure of {name}", r.returncode == 0, r)
        pixels = png(read(out))[3]
        data, _ = table(kvfate, "retention", "--as", "variance", x, *(more if name != "--vmax" else ()))
        shown = [i for i, h in enumerate(data["head"]) if h == "all"]
        for colour, key in (((0, 114, 178), "epsilon2"), ((213, 94, 0), "within")):
            shares = [max(0, data[key][i]) for i in shown if data[key][i] is not None]
            end = 2 if name == "--vmax" else max(.1, np.ceil(10 * max(v for k in ("epsilon2", "within") for i in shown if (v := data[k][i]))) / 10)
            # 5 pixels per millimetre; the axis hides the first; the first rectangle is the key to the colours
            want = [v for v in (370 * v / end - 1 for v in shares) if v > 3]
            got = [v for v in bars(pixels, colour)[1:] if v > 2]
            check(f"bars of {name}: {key}", len(got) == len(want) and np.allclose(got, want, rtol=0, atol=1), got, want)
    refused("no room", 2, ["retention", "--as", "variance", clean, "--vmax", "0", "-o", out], "--vmax")

    # the smallest traces
    for n in (0, 1, 2):
        x = trace(-1 - np.arange(2. * n).reshape(1, 2, n), np.arange(n), norm=np.ones((1, 2, n)))
        data, meta = table(kvfate, "retention", "--as", "variance", x)
        check(f"{n} tokens", len(data["head"]) == (19 if n else 0), data)
        text = said("retention", "--as", "variance", x)
        check(f"{n} tokens: text", "no tokens" in text if n == 0 else "undefined in" in text, text)
    data, _ = table(kvfate, "retention", "--as", "variance", trace(np.full((2, 2, 40), -.1), np.arange(40) % 7, norm=np.ones((2, 2, 40))))
    check("constant", set(data["eta2"]) == set(data["epsilon2"]) == {None} and len(data["eta2"]) == 4 * 5 + 9, data)
    text = said("retention", "--as", "variance", trace(np.full((2, 2, 40), -.1), np.arange(40) % 7))
    check("constant is said", f"undefined in {4 * 4 + 8} rows: all values are equal" in text and "unsettled" not in text and "settle" not in text, text)

    # NaN: a damaged column's tokens have no level of this factor, and do not count in it
    lb, nan = -np.exp(np.random.default_rng(11).normal(size=(1, 2, 12))), np.array([5, np.nan, 3, 5, np.nan, 1, 3, 2, np.nan, 1, 5, 2])
    damaged = make(write_kvf, os.path.join(folder, "damaged.kvf"), [Column("tokens.id", "f64", "run", nan), Column("tokens.role", "f64", "run", nan),
                   Column("log_beta", "f32", "kv", lb)], (1, 2, 4, 12))
    data, _ = table(kvfate, "retention", "--as", "variance", damaged)
    for factor in ("token", "role"):
        check("no number: " + factor, row(data, "all", factor)[:2] == (4, 18) and row(data, "L0K0", factor)[:2] == (4, 9), row(data, "all", factor))
    known = ~np.isnan(nan)
    want = additive(scaled(lb.astype(np.float32)[0][:, known], "rate").ravel(), np.repeat([0, 1], known.sum()), np.tile(nan[known], 2))
    check("no number: sum", np.allclose(row(data, "all", "head+token"), want, rtol=0, atol=1e-10), row(data, "all", "head+token"), want)
    check("no number: pairs", row(data, "all", "head*token")[:2] == (8, 18), row(data, "all", "head*token"))

    # errors
    for more, word in ((["--scale", "x"], "--scale"), (["--position-bins", "0"], "--position-bins"), (["--norm-bins", "x"], "--norm-bins"),
                       (["--norm-bins", "9999999"], "--norm-bins"), (["--head", "L0H0"], "KV"), (["--tokens", "0:5x"], "A:B")):
        refused(" ".join(more), 2, ["retention", "--as", "variance", clean, *more], word)
    refused("two traces", 2, ["retention", "--as", "variance", clean, clean, "-o", os.path.join(folder, "two.png")], "draws one trace")
    refused("no gates", 1, ["retention", "--as", "variance", trace(g, np.zeros(83), drop=("log_beta",))], "log_beta", "--gates")
    refused("no ids", 1, ["retention", "--as", "variance", trace(g, np.zeros(83), drop=("tokens.id",))], "tokens.id")
    refused("gates of steps", 1, ["retention", "--as", "variance", trace(g, np.zeros(83), axis="step")], "KV head and token")
    for ext in ("tsv", "csv", "npz"):
        out = os.path.join(folder, "t." + ext)
        check(ext, subprocess.run([kvfate, "retention", "--as", "variance", clean, "-o", out], capture_output=True).returncode == 0 and os.path.getsize(out) > 100)

finish()
