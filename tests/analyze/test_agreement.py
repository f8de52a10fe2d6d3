#!/usr/bin/env python3
"""Check kvfate retention --as agreement: hand-made values, numpy on random traces, errors."""
import itertools
import math
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, kvfate, real, refused, said  # noqa: E402
from maker import Column, make, table

write_kvf = os.path.abspath(sys.argv[2])


def close(name, got, want, tolerance=1e-12):
    got, want = real(got), np.asarray(want, float)
    check(name, got.shape == want.shape and np.allclose(got, want, rtol=0, atol=tolerance, equal_nan=True), got, want)


# ---- the definitions, computed directly

def ranks(v):
    """Return 1 + the number of smaller values + half of the number of other equal values."""
    return np.array([1 + (v < x).sum() + ((v == x).sum() - 1) / 2 for x in v])


def rho(x, y):
    a, b = ranks(x), ranks(y)
    if len(x) < 2 or len(set(x)) < 2 or len(set(y)) < 2:
        return np.nan
    return np.corrcoef(a, b)[0, 1]


def top(v, k):
    """Return the top k; of equal values the larger position first."""
    return set(sorted(range(len(v)), key=lambda i: (-v[i], -i))[:k])


def by_chance(n, k):
    """Return the expected overlap over all sizes of the intersection: exact binomials."""
    total = math.comb(n, k)
    return sum(math.comb(k, i) * math.comb(n - k, k - i) / total * i / (2 * k - i) for i in range(max(0, 2 * k - n), k + 1)) if k else np.nan


def size(n, p):
    return min(n, max(1, math.floor(p * n + .5))) if n else 0


def pair_of(x, y, p):
    known = ~np.isnan(x) & ~np.isnan(y)
    x, y = x[known], y[known]
    n, k = len(x), size(len(x), p)
    a, b = top(x, k), top(y, k)
    return n, rho(x, y), k, len(a & b) / len(a | b) if k else np.nan, by_chance(n, k)


def nanmean(v):
    v = np.asarray(v, float)
    return v[~np.isnan(v)].mean() if (~np.isnan(v)).any() else np.nan


def within(x, y, layer):
    """Return the rank correlation without the means of layers, by least squares."""
    columns = (layer[:, None] == np.unique(layer)).astype(float)
    a, b = (r - columns @ np.linalg.lstsq(columns, r, rcond=None)[0] for r in (ranks(x), ranks(y)))
    return np.corrcoef(a, b)[0, 1] if min(np.abs(a).max(initial=0), np.abs(b).max(initial=0)) > 1e-9 else np.nan


def expected(values, p, layers):
    """Return the rows of each head, then of all; values [traces][heads][tokens]."""
    pairs = list(itertools.combinations(range(len(values)), 2))
    rows = [[pair_of(values[i][h], values[j][h], p) for i, j in pairs] for h in range(len(values[0]))]
    out = [(i + 1, j + 1, *r, np.nan, np.nan) for head in rows for (i, j), r in zip(pairs, head)]
    means = [[nanmean(v) for v in of] for of in values]
    for q, (i, j) in enumerate(pairs):
        column = np.array([head[q] for head in rows], float)
        x, y = np.array(means[i]), np.array(means[j])
        known = ~np.isnan(x) & ~np.isnan(y)
        out.append((i + 1, j + 1, column[:, 0].sum(), nanmean(column[:, 1]), column[:, 2].sum(), nanmean(column[:, 3]),
                    nanmean(column[:, 4]), rho(x[known], y[known]), within(x[known], y[known], layers[known])))
    return np.array(out, float)


NAMES = ["a", "b", "tokens", "rho", "kept", "overlap", "chance", "rho_over_heads", "rho_within_layers"]


def compare(name, traces, values, p, *more):
    data, meta = table(kvfate, "retention", "--as", "agreement", *traces, *more)
    pairs = len(values) * (len(values) - 1) // 2
    want = expected(values, p, np.array(data["layer"][:-pairs:pairs]))
    for i, key in enumerate(NAMES):
        close(f"{name}: {key}", data[key], want[:, i])
    return data, meta


def gates(values, T, column="log_beta", ids=None, **more):
    return [Column("tokens.id", "i32", "run", np.arange(T) if ids is None else ids), Column(column, "f32", "kv", values, **more)]


with tempfile.TemporaryDirectory(prefix="kvfate-agreement-") as folder:
    count = itertools.count()

    def trace(values, column="log_beta", ids=None, meta=None, **more):
        values = np.asarray(values, float)
        L, H, T = values.shape
        return make(write_kvf, os.path.join(folder, f"{next(count)}.kvf"), gates(values, T, column, ids, **more), (L, H, 2 * H, T), meta)

    # by hand: five tokens, two heads of one layer
    one = trace([[[-1, -2, -3, -4, -5], [-9, -9, -1, -1, -5]]], meta={"method": {"name": "trimkv"}, "gates": {"hash": "0123456789abcdef" * 2}})
    two = trace([[[-1, -4, -2, -3, -9], [-.5, -.25, -8, -4, -2]]], meta={"method": {"name": "dbtrimkv"}})
    data, meta = table(kvfate, "retention", "--as", "agreement", one, two, "--top", "0.4")
    check("heads", data["head"] == ["L0K0", "L0K1", "all"] and data["layer"] == [0, 0, -1] and data["index"] == [0, 1, -1])
    check("pairs", data["a"] == [1] * 3 and data["b"] == [2] * 3)
    # ranks 5 4 3 2 1 and 5 2 4 3 1: products of deviations 4 - 1 + 0 + 0 + 4 = 7 of 10
    # ranks 1.5 1.5 4.5 4.5 3 and 4 5 1 2 3: deviations -1.5 -1.5 1.5 1.5 0 and 1 2 -2 -1 0: -9 of sqrt(9 * 10)
    close("rho by hand", data["rho"], [.7, -9 / math.sqrt(90), (.7 - 9 / math.sqrt(90)) / 2])
    # two of five: {0, 1} and {0, 2} share 1 of 3; {2, 3} and {0, 1} share none.  Of 10 sets of two, 1 is equal and 6
    # share one (of 3)
    close("overlap by hand", data["overlap"], [1 / 3, 0, 1 / 6])
    close("chance by hand", data["chance"], [.1 + .6 / 3] * 3)
    check("numbers by hand", data["kept"] == [2, 2, 4] and data["tokens"] == [5, 5, 10])
    # means -3, -5 and -3.8, -2.95: in reverse order
    close("heads by hand", data["rho_over_heads"], [np.nan, np.nan, -1])
    close("within the one layer by hand", data["rho_within_layers"], [np.nan, np.nan, -1])
    check("traces", meta["trace_1"] == "log_beta of trimkv, gates 0123456789abcdef" and meta["trace_2"] == "log_beta of dbtrimkv", meta)
    text = said("retention", "--as", "agreement", one, two, "--top", "0.4")
    check("text", all(w in text for w in ("rank correlation over 2 heads: median -0.1243", "mean -0.1243", "least L0K1 -0.9487", "most L0K0 0.7000", "overlap 0.1667, by chance 0.3000",
                                          "correlation -1.0000 over 2 heads", "top 40 %")), text)
    check("heads by hand", data["heads"] == [-1, -1, 2], data["heads"])
    text = said("retention", "--as", "agreement", one, two, "--head", "L0K0", "--top", "0.4")  # the summary has no line over heads
    check("one head", "traces 1 and 2: rank correlation 0.7000 in L0K0\n  top 40 %: overlap 0.3333, by chance 0.3000\n" in text
          and "heads" not in text and "median" not in text, text)
    again, _ = table(kvfate, "retention", "--as", "agreement", one, one)
    check("with itself", again["rho"] == [1, 1, 1] and again["overlap"] == [1, 1, 1] and again["rho_over_heads"][2] == 1, again)

    # random traces with ties, holes and constant heads
    rng = np.random.default_rng(5)
    L, H, T = 3, 2, 61
    base = rng.normal(size=(L, H, T))
    many = []
    for k in range(4):
        v = base + rng.normal(size=(L, H, T)) * (k + 1) / 2
        v = np.round(v, [9, 1, 0, 9][k]).astype(np.float32).astype(float)
        v[k % L, 0, 3 * k::17] = np.nan
        many.append(v)
    many[1][2, 1] = -.75
    many[2][0, 1] = np.nan
    names = ["log_beta", "write_gate", "importance", "log_beta"]
    files = [trace(v, n) for v, n in zip(many, names)]
    flat = [v.reshape(L * H, T) for v in many]
    for p in (.1, .02, .5, 1, 1e-9):
        compare(f"random, top {p}", files, flat, p, "--top", str(p))
    compare("default", files[:2], flat[:2], .1)
    compare("the other way", files[1::-1], flat[1::-1], .1)
    compare("a range", files, [v[:, 7:40] for v in flat], .1, "--tokens", "7:40")
    compare("skip", files, [v[:, 4:] for v in flat], .1, "--skip", "4")
    compare("skip within a range", files, [v[:, 9:30] for v in flat], .1, "--skip", "9", "--tokens", "2:30")
    compare("skip before a range", files, [v[:, 9:30] for v in flat], .1, "--skip", "3", "--tokens", "9:30")
    never = many[0].copy()
    never[1, 0, 3] = -np.inf  # a retention of 0: the head's mean is the lowest
    compare("no retention", [trace(never), files[1]], [never.reshape(-1, T), flat[1]], .1)
    compare("some heads", files, [v.reshape(L, H, T)[1:, 1] for v in flat], .1, "--head", "L1-2K1")
    # K1 is constant in layer 2 of the second trace and unknown in layer 0 of the third: the first has a mean, the
    # second does not
    text = said("retention", "--as", "agreement", *files, "--head", "L*K1")
    seen = {m[0]: m[1:] for m in re.findall(r"traces (\d and \d): rank correlation over (\d(?: of \d)?) heads: .*\n.* over (\d) heads\n", text)}
    check("heads that are defined", seen == {"1 and 2": ("2 of 3", "3"), "1 and 4": ("3", "3"), "2 and 4": ("2 of 3", "3"),
                                             "1 and 3": ("2 of 3", "2"), "3 and 4": ("2 of 3", "2"), "2 and 3": ("1 of 3", "2")}, text)
    data, meta = table(kvfate, "retention", "--as", "agreement", *files)
    missing = sum(x is None for h, x in zip(data["head"], data["rho"]) if h != "all")
    check("undefined", meta["undefined"] == missing > 0 or meta["undefined"] == str(missing), meta["undefined"], missing)
    text = said("retention", "--as", "agreement", *files)
    check("undefined is said", f"undefined in {missing} cases" in text and text.count("heads: median") == 6, text)
    values = real(data["rho"]).reshape(-1, 6)[:-1, 0]
    check("median", f"median {np.nanmedian(values):.4f}" in text, text)

    # the smallest traces
    for n, rows in ((0, 0), (1, 3), (2, 3)):
        v = np.arange(2. * n).reshape(1, 2, n)
        pair = [trace(v), trace(-v)]
        data, _ = table(kvfate, "retention", "--as", "agreement", *pair)
        check(f"{n} tokens: rows", len(data["head"]) == rows, data)
        text = said("retention", "--as", "agreement", *pair)
        check(f"{n} tokens: text", ("no tokens", "undefined in all 2 heads", "over 2 heads: median -1.0000")[n] in text, text)
    check("all are skipped", table(kvfate, "retention", "--as", "agreement", *files, "--skip", "900")[0]["head"] == [])
    constant = trace(np.full((1, 2, 9), -.1))
    text = said("retention", "--as", "agreement", constant, constant, "--head", "L0K1")
    check("one constant head", "rank correlation undefined in L0K1\n" in text, text)
    text = said("retention", "--as", "agreement", constant, constant)
    check("constant", "undefined in 2 cases" in text and "undefined in all 2 heads" in text, text)

    # errors
    other = np.arange(T)
    other[11] = 7
    changed = trace(many[0], ids=other)
    longer = trace(np.concatenate([many[0], many[0][:, :, :3]], 2))
    out = os.path.join(folder, "map.svg")
    r = subprocess.run([kvfate, "retention", "--as", "agreement", files[0], files[1], "-o", out], capture_output=True, text=True)
    check("the figure that the table has", r.returncode == 0 and os.path.getsize(out) > 1000, r.stderr)
    refused("other tokens", 2, ["retention", "--as", "agreement", files[0], files[1], changed], "token 11 ", "11 in trace 1", "7 in trace 3")
    compare("tokens before them", [files[0], changed], [flat[0][:, :11], flat[0][:, :11]], .1, "--tokens", "0:11")
    refused("a token before the range", 2, ["retention", "--as", "agreement", files[0], changed, "--tokens", "20:30"], "token 11 ")
    refused("longer", 2, ["retention", "--as", "agreement", files[0], longer], "61 tokens", "64", "token 61", "--tokens 0:61")
    refused("shorter", 2, ["retention", "--as", "agreement", longer, files[0]], "61", "--tokens 0:61")
    refused("shorter than the range", 2, ["retention", "--as", "agreement", longer, files[0], "--tokens", "0:63"], "61", "--tokens 0:61")
    compare("what both have", [longer, files[1]], [flat[0], flat[1]], .1, "--tokens", "0:61")
    refused("other heads", 2, ["retention", "--as", "agreement", files[0], trace(np.zeros((3, 1, T)))], "KV heads", "trace 2")
    refused("other layers", 2, ["retention", "--as", "agreement", files[0], trace(np.zeros((2, 2, T)))], "layers", "trace 2")
    refused("one trace", 2, ["retention", "--as", "agreement", files[0]], "missing")
    refused("too many", 2, ["retention", "--as", "agreement", *files * 4, files[0]], "too many")
    bare = make(write_kvf, os.path.join(folder, "bare.kvf"), gates(many[0], T)[:1], (L, H, 2 * H, T))
    refused("no gates", 1, ["retention", "--as", "agreement", files[0], bare], "log_beta", "--gates")
    steps = trace(many[0], axis="step")
    refused("values of steps", 1, ["retention", "--as", "agreement", steps, files[0]], "KV head and token")
    short = trace(many[0], n=20)
    refused("values are missing", 1, ["retention", "--as", "agreement", files[0], short], "not in the trace")
    for more, word in ((["--top", "0"], "--top"), (["--top", "1.1"], "--top"), (["--top", "x"], "--top"), (["--top", "nan"], "--top"),
                       (["--skip", "-1"], "--skip"), (["--skip", "x"], "--skip"), (["--head", "L0H0"], "KV"), (["-o", "x.txt"], ".tsv")):
        refused(" ".join(more), 2, ["retention", "--as", "agreement", *files, *more], word)
    for ext in ("tsv", "csv", "npz"):
        out = os.path.join(folder, "t." + ext)
        check(ext, subprocess.run([kvfate, "retention", "--as", "agreement", *files, "-o", out], capture_output=True).returncode == 0 and os.path.getsize(out) > 100)

finish()
