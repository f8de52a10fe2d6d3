#!/usr/bin/env python3
"""kvfate compare: distances and assignment from the definition, planted pairs of runs, two tokenizers, refusals."""
import itertools
import os
import sys
import tempfile

import numpy as np

import planted
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, kvfate, real, refused, said  # noqa: E402
from maker import SNAPSHOT, Column, make, table

write_kvf = os.path.abspath(sys.argv[2])
RELATED = ["sliding-window", "several-windows", "context-switch", "a-shape"]
OTHERS = ["sink", "gist", "number", "filler", "instruction"]

SCALES = {"sink_mass": 1, "window": 4, "spread": 3, "modes_apart": 3, "recent": 1, "last_use": 8, "never": 1, "survival_64th": 1, "survival_16th": 1,
          "survival_4th": 1, "survival_half": 1, "last_use_sparsity": 1, "number": 1, "gist": 1, "filler": 1, "prompt": 1, "uneven": 3,
          "top_tenth": 1, "runs": 1, "rises": 4, "entropy": 1, "residence": 1}
OCTAVES, CUT = {"window", "last_use"}, {"recent": 1, "prompt": 1, "number": 1, "gist": 1, "filler": 1, "uneven": 4, "rises": 2}


def on_scale(name, v):
    v = real(v)
    v = np.log2(1 + v) if name in OCTAVES else np.clip(v, -CUT[name], CUT[name]) if name in CUT else v
    return v / SCALES[name]


def signatures(path):
    got, _ = table(kvfate, "heads", path)
    return got["head"], np.array([on_scale(n, got[n]) for n in SCALES]).T, got


def distances(x, y):
    d = (x[:, None, :] - y[None, :, :]) ** 2
    return np.sqrt(np.nanmean(d, axis=2))


def run_of(folder, name, seed, specs, L, H, G, T=200):
    return planted.trace(write_kvf, f"{folder}/{name}.kvf", np.random.default_rng(seed), specs, L, H, G, T)[0]


def specs_of(seed, kinds, n):
    rng = np.random.default_rng(seed)
    return [planted.spec(rng, kinds[k % len(kinds)], planted.STRENGTHS[k // len(kinds) % 3], .2) for k in range(n)]


def fdr(p):
    order = np.argsort(p)
    q = np.empty(len(p))
    q[order] = np.minimum(1, np.minimum.accumulate((np.sort(p) * len(p) / np.arange(1, len(p) + 1))[::-1])[::-1])
    return q


def definitions(folder):
    """Three runs of 6, 4 and 7 heads."""
    paths = [run_of(folder, f"d{k}", k, specs_of(k, planted.KINDS, n), L, 1, G) for k, (n, L, G) in enumerate([(6, 3, 2), (4, 1, 4), (7, 7, 1)])]
    s = [signatures(p) for p in paths]
    got, meta = table(kvfate, "compare", *paths)
    at = 0
    for a, b in itertools.combinations(range(3), 2):
        D = distances(s[a][1], s[b][1])
        rows = slice(at, at + D.size)
        check("heads of pairs", list(zip(got["head_a"][rows], got["head_b"][rows])) == list(itertools.product(s[a][0], s[b][0])))
        check("which traces", set(zip(got["a"][rows], got["b"][rows])) == {(a + 1, b + 1)})
        check("distances", np.allclose(real(got["distance"][rows]), D.ravel(), rtol=0, atol=1e-9))
        at += D.size
    check("all rows", at == len(got["a"]))
    one = table(kvfate, "compare", paths[0], paths[0])[0]
    same = [d for a, b, d in zip(one["head_a"], one["head_b"], one["distance"]) if a == b]
    check("nothing is as near as itself", same == [0] * 6 and min(d for a, b, d in zip(one["head_a"], one["head_b"], one["distance"]) if a != b) > 0)
    for a, b in ((0, 1), (1, 0), (0, 2), (2, 0)):
        match(paths[a], paths[b], s[a], s[b])


def match(path_a, path_b, a, b):
    got, meta = table(kvfate, "compare", path_a, path_b, "--match")
    D = distances(a[1], b[1])
    short = D if len(D) <= len(D[0]) else D.T
    best = min(sum(short[k, c] for k, c in enumerate(p)) for p in itertools.permutations(range(short.shape[1]), len(short)))
    check("the best of all assignments", np.isclose(sum(got["distance"]), best), sum(got["distance"]), best)
    check("each head once", len(set(got["head_a"])) == len(set(got["head_b"])) == len(short) == len(got["a"]))
    check("unmatched", meta["unmatched"] == str(abs(len(D) - len(D[0]))), meta)
    others = []
    for x in (a[1], b[1]):
        own = distances(x, x)
        np.fill_diagonal(own, np.inf)
        others += list(own.min(1))
    i, j = [[list(s[0]).index(h) for h in got[c]] for s, c in ((a, "head_a"), (b, "head_b"))]
    d = D[i, j]
    p = (1 + (np.array(others)[None, :] <= d[:, None] + 1e-12).sum(1)) / (1 + len(others))
    check("p of other heads", np.allclose(got["p_other"], p), got["p_other"], p)
    check("q of other heads", np.allclose(got["q_other"], fdr(p)) and got["own"] == list((fdr(p) < .05).astype(int)))
    check("how many halves are nearer", np.isclose(float(meta["further"]), np.nanmean(1 - real(got["p"]))), meta)
    check("q of halves", np.allclose(got["q"], fdr(real(got["p"]))) and got["stands"] == list((real(got["q"]) >= .05).astype(int)))
    for r in range(len(d)):
        gap = np.abs(a[1][i[r]] - b[1][j[r]])
        name = list(SCALES)[np.nanargmax(gap)]
        check("what changed", got["changed"][r] == name and got["value_a"][r] == a[2][name][i[r]] and got["value_b"][r] == b[2][name][j[r]])
        row, column = np.delete(D[i[r]], j[r]), np.delete(D[:, j[r]], i[r])
        near = (np.concatenate([row, column]) <= d[r]).mean()
        check("share that is nearer", np.isclose(got["nearer"][r], near), got["nearer"][r], near)


def halves(folder):
    """p rests on alternate blocks of 32 tokens: of one head whose second blocks nobody looks at."""
    T = 256
    block = np.arange(T) // 32 % 2
    def run_with(name, masses):
        cols = [Column("mass.sum", "f32", "query", np.array(masses).reshape(1, -1, T)), Column("mass.max", "f32", "query", np.full((1, len(masses), T), .5)),
                Column("last_selected.mass.90", "u16", "query", np.full((1, len(masses), T), 1.), flags=2),
                Column("entropy", "f32", "query", np.ones((1, len(masses), T)), "step")]
        return make(write_kvf, f"{folder}/{name}.kvf", cols, (1, 1, len(masses), T))
    even, uneven = np.full(T, .9), np.where(block, .4, 1.4)
    a, b = run_with("ha", [even, uneven]), run_with("hb", [even / 2, uneven])
    got, _ = table(kvfate, "compare", a, b, "--match")
    # halves of the even heads (both runs) differ by position alone, those of the uneven ones by the masses; all are at least 0
    check("halves", got["distance"][1] == 0 and got["distance"][0] > 0 and np.allclose(got["p"], [(1 + 2) / 5, (1 + 4) / 5]), got["p"], got["distance"])


def planted_runs(folder):
    specs = specs_of(11, planted.KINDS, 20)
    a = run_of(folder, "pa", 12, specs, 5, 2, 4, 320)
    order = np.random.default_rng(13).permutation(20)
    b = run_of(folder, "pb", 14, [specs[k] for k in order], 10, 1, 2, 320)
    got, meta = table(kvfate, "compare", a, b, "--match")
    found = {x: y for x, y in zip(got["head_a"], got["head_b"])}
    right = sum(found[f"L{order[k] // 4}H{order[k] % 4}"] == f"L{k // 2}H{k % 2}" for k in range(20))
    print(f"same heads, other text: {right} of 20 found, {sum(got['stands'])} stand, {sum(got['own'])} own; further {meta['further']}")
    check("heads are found again", right >= 16, right)
    check("matches of the same heads stand", sum(got["stands"]) >= 18)
    c = run_of(folder, "pc", 15, specs_of(16, RELATED, 20), 5, 1, 4, 320)
    d = run_of(folder, "pd", 17, specs_of(18, OTHERS, 20), 5, 1, 4, 320)
    got, meta = table(kvfate, "compare", c, d, "--match")
    print(f"unrelated heads: {sum(got['stands'])} stand, {sum(got['own'])} own; further {meta['further']}")
    check("matches of unrelated heads do not stand", sum(got["stands"]) <= 2 and sum(got["own"]) == 0, got["q"], got["q_other"])


# ---- two tokenizers

def ranks(v):
    return np.array([1 + (v < x).sum() + ((v == x).sum() - 1) / 2 for x in v])


def tokens(folder):
    rng = np.random.default_rng(21)
    letters = [chr(97 + rng.integers(26)) for _ in range(120)]
    def cut(k):
        ends = np.sort(rng.choice(np.arange(1, 120), k, replace=False))
        return [letters[x:y] for x, y in zip([0, *ends], [*ends, 120])]
    texts = [["".join(x) for x in cut(k)] for k in (90, 50)]
    texts[0] = ["<|im_start|>", *texts[0]]  # special tokens are of no piece
    texts[1] = [*texts[1][:7], "<|im_end|>", *texts[1][7:], "more"]
    values = [rng.random((2, 3, len(texts[0]))), rng.random((1, 4, len(texts[1])))]
    values[0][0, 1] = 2  # all equal: no correlation
    values[0][1, 0, 5] = np.nan
    paths = [make(write_kvf, f"{folder}/t{k}.kvf", [Column("mass.sum", "f32", "query", v, flags=SNAPSHOT), Column("log_beta", "f32", "kv", -v)],
                  (v.shape[0], v.shape[1], v.shape[1], v.shape[2]), texts=texts[k]) for k, v in enumerate(values)]
    ends = [np.cumsum([0 if x.startswith("<|") else len(x) for x in t]) for t in texts]
    common = sorted(set(ends[0]) & set(ends[1]) - {0})
    for column, combine in (("mass.sum", np.sum), ("log_beta", np.mean)):
        pieces = []
        for k in range(2):
            own = np.array([not x.startswith("<|") for x in texts[k]])
            v = np.float32(values[k] if column == "mass.sum" else -values[k]).astype(float)
            pieces.append([[combine(h[own & (ends[k] > x) & (ends[k] <= y)]) for x, y in zip([0, *common], common)] for h in v.reshape(-1, v.shape[2])])
        got, meta = table(kvfate, "compare", *paths, "--by", "tokens", "--value", column)
        with np.errstate(invalid="ignore", divide="ignore"):
            want = [np.nan if np.isnan(x).any() else 1 - np.corrcoef(ranks(np.array(x)), ranks(np.array(y)))[0, 1] for x in pieces[0] for y in pieces[1]]
        check(f"{column} by tokens", np.allclose(real(got["distance"]), want, rtol=0, atol=1e-6, equal_nan=True), got["distance"], want)
        check("pieces", meta["pieces"] == str(len(common)) and meta["bytes"] == "120" and meta["undefined"] == str(sum(np.isnan(want))), meta, len(common))
    got, _ = table(kvfate, "compare", paths[1], paths[1], "--by", "tokens", "--match")
    check("itself by tokens", got["head_a"] == got["head_b"] and max(got["distance"]) < 1e-6 and got["q"] == [None] * 4 and got["stands"] == [-1] * 4)
    part, meta = table(kvfate, "compare", *paths, "--by", "tokens", "--tokens", "20:60")
    n = sum(1 for x in [0, *common][:-1] if 20 <= 1 + np.searchsorted(ends[0][1:], x, side="right") < 60)
    check("pieces of some tokens", meta["pieces"] == str(n), meta["pieces"], n)
    said("compare", *paths, "--by", "tokens")
    other = make(write_kvf, f"{folder}/other.kvf", [Column("mass.sum", "f32", "query", np.zeros((1, 1, 3)))], (1, 1, 1, 3), texts=["Q", "q", "q"])
    refused("other texts", 1, ["compare", paths[0], other, "--by", "tokens"], "in common")
    parts = make(write_kvf, f"{folder}/parts.kvf", [Column("mass.sum", "f32", "query", np.zeros((1, 1, 3)))], (1, 1, 1, 3), texts=["P", "q", "q"])
    refused("texts that part at their first byte", 1, ["compare", other, parts, "--by", "tokens"], "in common")
    bare = make(write_kvf, f"{folder}/bare.kvf", [Column("mass.sum", "f32", "query", np.zeros((1, 1, 3)))], (1, 1, 1, 3))
    refused("no texts", 1, ["compare", paths[0], bare, "--by", "tokens"], "lacks the text")


def edges(folder):
    short = run_of(folder, "s", 31, specs_of(31, planted.KINDS, 2), 1, 1, 2, 20)
    long = run_of(folder, "l", 32, specs_of(32, planted.KINDS, 2), 1, 1, 2, 64)
    got, meta = table(kvfate, "compare", short, long)
    check("short texts have no distance", got["distance"] == [None] * 4 and meta["undefined"] == "4")
    got, meta = table(kvfate, "compare", short, long, "--match")
    check("short texts have no match", got["a"] == [] and meta["unmatched"] == "4", meta)
    said("compare", short, long, "--match")
    empty = make(write_kvf, f"{folder}/e.kvf", [Column(n, "f32" if n[0] != "l" else "u16", "query", np.zeros((1, 1, 0)), flags=2 * (n[0] == "l"))
                                               for n in ("mass.sum", "mass.max", "last_selected.mass.90")] + [Column("entropy", "f32", "query", np.zeros((1, 1, 0)), "step")], (1, 1, 1, 0))
    check("empty", table(kvfate, "compare", empty, empty)[0]["distance"] == [None])
    refused("one trace", 2, ["compare", long], "")
    refused("by what", 2, ["compare", long, long, "--by", "colour"], "colour")
    refused("no level", 2, ["compare", long, long, "--level", "1"], "--level")
    refused("column of no heads", 2, ["compare", long, long, "--by", "tokens", "--value", "tokens.role"], "tokens.role")
    refused("no column", 1, ["compare", long, long, "--by", "tokens", "--value", "log_beta"], "log_beta")


with tempfile.TemporaryDirectory() as folder:
    halves(folder)
    definitions(folder)
    planted_runs(folder)
    tokens(folder)
    edges(folder)
finish()
