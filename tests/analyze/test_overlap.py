#!/usr/bin/env python3
"""Check kvfate overlap and attention-sparsity: by hand, against brute force on dense synthetic attention, chance
against all possible sets, and errors.

usage: test_overlap.py KVFATE WRITE_KVF
"""
import fractions
import itertools
import math
import os
import subprocess
import sys
import tempfile

import numpy as np

import dense
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, kvfate, real, refused, said, words_of  # noqa: E402
from maker import ALIVE, SNAPSHOT, Column, make, table

write_kvf = os.path.abspath(sys.argv[2])
GRID = [1, *range(5, 101, 5)]
COARSE = [.0001, .001, .01, .02, .05, .1]
SHARES = {"0.0001": 1e-4, "0.001": 1e-3, "0.01": 1e-2, "0.1": 1e-1}


# ---- traces

def columns(windows, evict, under=None, kind="f32"):
    """Return the columns; windows: {name: [L,H,T]} of this kind; under: {name: [L,G,T]}."""
    out = [Column("evict_step", "u32", "kv", np.where(np.isinf(evict), ALIVE, evict), flags=SNAPSHOT)]
    out += [Column(n, kind, "kv", v, flags=SNAPSHOT) for n, v in windows.items()]
    return out + [Column(n, "u16", "query", v, axis="step") for n, v in (under or {}).items()]


def random_run(rng, L, H, G, T, gone):
    """Return attention of a run that evicted a fraction `gone` of its entries; weights have few sizes, so there are
    ties.
    """
    evict = np.where(rng.random((L, H, T)) < gone, np.arange(T) + rng.integers(1, T, (L, H, T)), np.inf)
    evict[evict > T] = np.inf
    evict[:, :, ::31] = np.where(np.isinf(evict[:, :, ::31]), np.inf, T)  # cut after the last query: all queries saw them
    alpha = np.repeat(dense.alpha_of(evict, T), G // H, 1)
    p = rng.choice([2.**-14, 2.**-9, 2.**-6, 2.**-3, 1], (L, G, T, T)) * alpha
    p[:, :, :, ::3] *= (rng.random((L, G, 1, len(range(0, T, 3)))) < .2)  # columns of equal sums: 0
    return p, evict, alpha


def under_of(p, alpha):
    top = p.max(-1, keepdims=True, initial=0)
    out = {f"under.{n}": (alpha & (p < s * top)).sum(-1).astype(float) for n, s in SHARES.items()}
    return {**out, "under.seen": alpha.sum(-1).astype(float)}


def trace(path, p, evict, alpha):
    L, G, T, _ = p.shape
    H = evict.shape[1]
    scores = {n: v.astype(np.float32).astype(float) for n, v in dense.windows(p, H).items()}
    under = under_of(p, alpha)
    return make(write_kvf, path, columns(scores, evict, under), (L, H, G, T)), scores, under


# ---- definitions

def top_set(score, candidates, p):
    k = math.ceil(fractions.Fraction(str(p)) * len(candidates) / 100)
    return set(sorted(candidates, key=lambda i: (-score[i], -i))[:k])


def head_sets(scores, evict, T, own, short, a, b, grid):
    """Return per (window or union, p): sets, and the chance that a candidate of the last is in the other set."""
    end = T // 16 * 16
    start = [end - 128 * (4 - w) for w in range(4)]
    used = [w for w in range(4) if start[w] >= 1]
    if len(used) < 2:
        return {}
    kept = [i for i in range(a, b) if evict[i] >= T]
    cand = {w: [i for i in kept if i < start[w if own else used[0]]] for w in used}
    name = "window16" if short else "window"
    out = {}
    for p in grid:
        sets = {w: top_set(scores[f"{name}.{w}"], cand[w], p) for w in used}
        chance = {w: (len(sets[w]) / len(cand[w]) if cand[w] else 0) for w in used}
        for w in used[:-1] + ["union"]:
            these = used[:-1] if w == "union" else [w]
            hit = [1 - math.prod(1 - chance[v] for v in these if i in set(cand[v])) for i in cand[3]]
            other = set().union(*(sets[v] for v in these))
            tied = 0  # outside a set, and equal to its minimum
            for v in [*these, 3]:
                values = scores[f"{name}.{v}"]
                least = min((values[i] for i in sets[v]), default=None)
                tied += sum(values[i] == least for i in cand[v] if i not in sets[v])
            out[str(w), p] = (len(sets[3] & other), len(sets[3]), len(other), len(cand[3]), len(sets[3]) * (np.mean(hit) if hit else 0), tied)
    return out


def groups(found, kinds="K"):
    """Add layers and all to {(layer, head): {key: tuple}}."""
    rows = [(f"L{l}{kinds}{h}", l, h, v) for (l, h), v in found.items()]
    for l in sorted({l for l, _ in found}):
        rows.append((f"L{l}{kinds}*", l, -1, [v for (m, _), v in found.items() if m == l]))
    rows.append(("all", -1, -1, list(found.values())))
    return [(n, l, i, v if isinstance(v, list) else [v]) for n, l, i, v in rows]


def expect_overlap(scores, evict, T, own=False, short=False, a=0, b=None, grid=GRID, heads=None):
    L, H, _ = evict.shape
    b, rows = T if b is None else b, []
    heads = heads or list(itertools.product(range(L), range(H)))
    found = {(l, h): head_sets({n: v[l, h] for n, v in scores.items()}, evict[l, h], T, own, short, a, b, grid) for l, h in heads}
    for name, l, i, parts in groups(found):
        keys = sorted(parts[0], key=lambda k: (k[0] == "union", k))
        for key in keys:
            both, last, other, cand, chance, tied = (sum(x[key][k] for x in parts) for k in range(6))
            overlap, expected = (both / last, chance / last) if last else (np.nan, np.nan)
            kappa = (overlap - expected) / (1 - expected) if expected < 1 - 1e-9 else np.nan
            rows.append(dict(head=name, layer=l, index=i, window=key[0], p=key[1], overlap=overlap, expected=expected, kappa=kappa,
                             both=both, last=last, other=other, candidates=cand, tied=tied))
    return rows


def expect_window(scores, evict, T, grid=COARSE, kept=False, whole=False, a=0, b=None):
    L, H, _ = evict.shape
    end, b, found = T // 16 * 16, T if b is None else b, {}
    for l in range(L):
        for h in range(H):
            s = scores["window16.3"][l, h]
            mine = [i for i in range(max(a, 0 if kept else end - 512), min(b, end)) if evict[l, h, i] >= T]
            top = max((s[i] for i in (range(end) if whole else mine)), default=0)
            found[l, h] = {p: (sum(s[i] < p * top for i in mine), len(mine)) for p in grid}
    return share_rows(found, "K", "window", lambda v: [v])


def expect_steps(under, grid, a, b):
    found = {}
    names = {v: "under." + n for n, v in SHARES.items()}
    L, G, _ = under["under.seen"].shape
    for l in range(L):
        for g in range(G):
            found[l, g] = {p: [(under[names[p]][l, g, t], under["under.seen"][l, g, t]) for t in range(a, b)] for p in grid}
    return share_rows(found, "H", "step", lambda v: v)


def share_rows(found, kinds, form, pairs_of):
    rows = []
    for name, l, i, parts in groups(found, kinds):
        for p in parts[0]:
            pairs = [x for v in parts for x in pairs_of(v[p]) if x[1]]
            k, n = sum(x[0] for x in pairs), sum(x[1] for x in pairs)
            rows.append(dict(head=name, layer=l, index=i, form=form, p=p, under=k, tokens=n, n=len(pairs), share=k / n if n else np.nan,
                             sparsity=math.fsum(x[0] / x[1] for x in pairs) / len(pairs) if pairs else np.nan))
    return rows


def compare(name, argv, rows, reals):
    data, meta = table(kvfate, *argv)
    check(name + ": rows", len(data["head"]) == len(rows), len(data["head"]), len(rows))
    for key in rows[0] if rows else ():
        want = [r[key] for r in rows]
        if key in reals:
            ok = len(want) == len(data[key]) and np.allclose(real(data[key]), want, rtol=1e-12, atol=1e-12, equal_nan=True)
        else:
            ok = data[key] == want
        check(f"{name}: {key}", ok, [x for x in zip(data[key], rows) if x[0] != x[1][key]][:2])
    return data, meta


def overlap(name, x, rows, *argv):
    data, meta = compare(name, ["overlap", x, *argv], rows, ("overlap", "expected", "kappa"))
    for key, column in (("undefined", "overlap"), ("undefined_kappa", "kappa")):
        check(f"{name}: {key}", int(meta[key]) == np.isnan(real(data[column])).sum(), meta)
    return data, meta


def sparsity(name, x, rows, *argv):
    data, meta = compare(name, ["attention", "--as", "sparsity", x, *argv], rows, ("sparsity", "share"))
    check(f"{name}: undefined", int(meta["undefined"]) == np.isnan(real(data["sparsity"])).sum(), meta)
    return data, meta


# ---- cases

def by_hand(path):
    """272 tokens: windows 2 and 3 have the queries 16 .. 143 and 144 .. 271, 16 tokens are earlier. Of these the
    first four, of which 3 is evicted in the second head, and token 2 seen by the last window in neither order.
    Head 0, p = 50: A_2 = {1, 2}, A_3 = {0, 1}: 1 / 2, by chance 2 / 4, kappa 0. p = 25: {1}, {0}: 0, chance 1 / 4,
    kappa (0 - 1/4) / (3/4) = -1/3. p = 75: {1, 2, 3}, {0, 1, 3}: 2 / 3, chance 3 / 4, kappa (2/3 - 3/4) / (1/4) = -1/3.
    Head 1: candidates 0, 1, 2 with scores 1 1 1 and 1 2 1. p = 25, 50, 75 -> 1, 2, 3 of 3: {2} and {1}: 0, chance 1/3;
    {2, 1} and {1, 2}: 1, chance 2/3, kappa 1; all: 1, chance 1, no kappa.
    Both, p = 25: 0 of 2, chance (1/4 + 1/3) / 2 = 7/24, kappa -(7/24) / (17/24) = -7/17."""
    T = 272
    early, late = np.full((1, 2, T), .5), np.full((1, 2, T), .25)
    early[0, 0, :4], late[0, 0, :4] = [.1, .4, .3, .2], [.4, .3, .1, .2]
    early[0, 1, :3], late[0, 1, :3] = 1, [1, 2, 1]
    evict = np.full((1, 2, T), np.inf)
    evict[0, 1, 3] = 200
    none = np.full((1, 2, T), np.nan)
    scores = {"window.0": none, "window.1": none, "window.2": early, "window.3": late}
    x = make(write_kvf, path("hand.kvf"), columns(scores, evict), (1, 2, 2, T))
    data, meta = table(kvfate, "overlap", x, "--p", "50,25,75", "--tokens", "0:4")
    check("hand: windows", data["window"][:6] == ["2"] * 3 + ["union"] * 3 and data["p"][:3] == [25, 50, 75], data["window"])
    check("hand: meta", (int(meta["windows"]), meta["window_2"], meta["window_3"], int(meta["evicted"])) == (2, "16:144", "144:272", 1), meta)
    near = lambda got, want: np.allclose(real(got), want, rtol=0, atol=1e-15, equal_nan=True)
    check("hand: head 0", near(data["overlap"][:3], [0, .5, 2 / 3]) and near(data["kappa"][:3], [-1 / 3, 0, -1 / 3]), data["kappa"][:3])
    check("hand: head 1", near(data["overlap"][6:9], [0, 1, 1]) and near(data["expected"][6:9], [1 / 3, 2 / 3, 1])
          and near(data["kappa"][6:9], [-.5, 1, np.nan]), data["expected"][6:9])
    last = len(data["head"]) - 6
    check("hand: all", data["head"][last] == "all" and data["both"][last] == 0 and data["last"][last] == 2
          and near(data["expected"][last:last + 1], [7 / 24]) and near(data["kappa"][last:last + 1], [-7 / 17]), data["kappa"][last:])
    check("hand: layer", data["head"][last - 6] == "L0K*" and data["index"][last - 6] == -1, data["head"])
    check("hand: union of one", all(data[c][:3] == data[c][3:6] for c in ("overlap", "expected", "kappa", "both")))

    # equal scores: position cuts every set equally, so they agree without information; with N candidates and k in a set
    # N - k are tied, in both sets
    scores = {f"window.{w}": np.full((1, 1, 528), .25) for w in range(4)}
    x = make(write_kvf, path("tied.kvf"), columns(scores, np.full((1, 1, 528), np.inf)), (1, 1, 1, 528))
    data, _ = table(kvfate, "overlap", x, "--p", "25,100")
    check("hand: ties", data["overlap"] == [1] * len(data["overlap"]) and data["tied"][:8] == [24, 0] * 3 + [48, 0], data["tied"])
    check("hand: ties are told", "column tied" in said("overlap", x, "--p", "25"))

    # 18 tokens; the last 16 queries are 0 .. 15. Scores 1, 1/8, 1/16, 1/64, 1/128, 0, then .5: under 1/8 are four, under 1/64 two
    scores = {f"window16.{w}": np.full((1, 1, 18), np.nan) for w in range(4)}
    scores["window16.3"][0, 0, :16] = [1, 1 / 8, 1 / 16, 1 / 64, 1 / 128, 0] + [.5] * 10
    evict = np.full((1, 1, 18), np.inf)
    x = make(write_kvf, path("hand2.kvf"), columns(scores, evict), (1, 1, 1, 18))
    data, _ = table(kvfate, "attention", "--as", "sparsity", x, "--p", ".1,.015625,.125,1")
    check("hand: sparsity", data["under"][:4] == [2, 4, 4, 15] and data["tokens"][:4] == [16] * 4 and data["sparsity"][1] == .25, data["under"])
    evict[0, 0, [0, 4, 17]] = 17
    x = make(write_kvf, path("hand2.kvf"), columns(scores, evict), (1, 1, 1, 18))
    data, meta = table(kvfate, "attention", "--as", "sparsity", x, "--p", ".1")  # the largest is .5: under .05 are 1/64 and 0
    check("hand: kept", data["under"] == [2] * 3 and data["tokens"] == [14] * 3 and "kept" in meta["entries"] and int(meta["evicted"]) == 2, data, meta)
    data, _ = table(kvfate, "attention", "--as", "sparsity", x, "--p", ".1", "--max", "all")  # under .1: 1/16 too
    check("hand: max", data["under"][0] == 3, data["under"])

    # for equal heads the summary names the first
    x = make(write_kvf, path("hand5.kvf"), columns({}, np.full((2, 2, 5), np.inf)), (2, 2, 2, 5))
    text = said("size", "--as", "sparsity", x)
    check("hand: least and most", "mean 0.0000 over 4 heads" in text and "least L0K0 0.0000, most L0K0 0.0000" in text, text)


def steps_by_hand(path):
    evict = np.full((1, 1, 4), np.inf)
    evict[0, 0, 0] = 17
    # shares of queries: 1/2, 1/4, none, none: the mean is 3/8, of all weights 2/6
    under = {"under." + n: np.array([[[1, 1, 0, 0]]]) for n in SHARES}
    under["under.seen"] = np.array([[[2, 4, 0, 0]]])
    x = make(write_kvf, path("hand3.kvf"), columns({}, evict, under), (1, 1, 1, 4))
    data, meta = table(kvfate, "attention", "--as", "sparsity", x, "--form", "step")
    check("hand: steps", data["sparsity"] == [.375] * 12 and data["share"] == [2 / 6] * 12 and data["n"] == [2] * 12
          and int(meta["left_out"]) == 2, data, meta)
    x = make(write_kvf, path("hand4.kvf"), [*columns({}, evict, under)[1:]], (1, 1, 1, 4))
    again, _ = table(kvfate, "attention", "--as", "sparsity", x, "--form", "step")
    check("hand: the first column of a trace is as good as any", again == data, again)

    # each p has its own column, even if few are requested
    under = {"under." + n: np.array([[[k, k, 0, 0]]]) for k, n in enumerate(SHARES)} | {"under.seen": np.array([[[4, 4, 0, 0]]])}
    x = make(write_kvf, path("hand6.kvf"), columns({}, evict, under), (1, 1, 1, 4))
    data, _ = table(kvfate, "attention", "--as", "sparsity", x, "--form", "step", "--p", ".01,.1")
    check("hand: chosen p of steps", data["p"] == [.01, .1] * 3 and data["under"] == [4, 6] * 3, data["p"], data["under"])


def all_sets(path):
    """Check the chance level from every possible choice of sets: three sets of 2 of 5 candidates; sets of growing
    candidates.
    """
    T = 528  # windows begin at 16, 144, 272, 400
    scores = {f"window.{w}": np.random.default_rng(w).random((1, 1, T)) for w in range(4)}
    x = make(write_kvf, path("sets.kvf"), columns(scores, np.full((1, 1, T), np.inf)), (1, 1, 1, T))

    def mean_overlap(cands, sizes):
        last, n, total = set(list(cands[3])[:sizes[3]]), 0, fractions.Fraction(0)
        for chosen in itertools.product(*(itertools.combinations(cands[w], sizes[w]) for w in range(3))):
            for last in itertools.combinations(cands[3], sizes[3]):
                total += fractions.Fraction(len(set(last) & set().union(*map(set, chosen))), sizes[3])
                n += 1
        return float(total / n)

    for name, argv, bounds, p in (("common", ["--tokens", "0:5"], (5, 5, 5, 5), 40), ("own", ["--tokens", "14:18", "--candidates", "own"], (2, 4, 4, 4), 50),
                                  ("own, some without", ["--tokens", "142:146", "--candidates", "own"], (0, 2, 4, 4), 50)):
        sizes = [math.ceil(p * b / 100) for b in bounds]
        data, _ = table(kvfate, "overlap", x, "--p", p, "--head", "L0K0", *argv)
        want = mean_overlap([range(b) for b in bounds], sizes)
        k = data["window"].index("union")
        check(f"chance: {name}", abs(data["expected"][k] - want) < 1e-14, data["expected"][k], want)
        check(f"chance: {name}, window 1", abs(data["expected"][1] - sizes[1] / bounds[3]) < 1e-15, data["expected"])
    data, _ = table(kvfate, "overlap", x, "--p", "55", "--tokens", "0:16")
    k = data["window"].index("union")  # 9 of 16
    check("chance: three sets", abs(data["expected"][k] - (1 - (7 / 16)**3)) < 1e-15, data["expected"][k])


def brute_force(path):
    rng = np.random.default_rng(3)
    for L, H, G, T, gone in ((2, 2, 4, 530, 0), (1, 3, 3, 700, .6), (3, 1, 3, 273, .3), (1, 2, 2, 560, 0)):
        p, evict, alpha = random_run(rng, L, H, G, T, gone)
        x, scores, under = trace(path("x.kvf"), p, evict, alpha)
        name = f"{L} {H} {G} {T}"
        _, meta = overlap(name, x, expect_overlap(scores, evict, T))
        for kind in ("f32", "f64"):  # scores of other signs, -0 and another type: no run has them, but a trace may
            other = {n: -v if n[-1] in "02" else v - 2.**-6 for n, v in scores.items()}
            y = make(write_kvf, path("y.kvf"), columns(other, evict, kind=kind), (L, H, G, T))
            overlap(f"{name} {kind}", y, expect_overlap(other, evict, T))
        check(f"{name}: windows", int(meta["windows"]) == min(4, (T // 16 * 16 - 1) // 128) and int(meta["end"]) == T // 16 * 16, meta)
        overlap(name + " own 16", x, expect_overlap(scores, evict, T, True, True, grid=[.7, 7, 33.3, 100]), "--candidates", "own", "--queries", "16",
                "--p", "100,7,33.3,0.7,7")
        overlap(name + " tokens", x, expect_overlap(scores, evict, T, True, a=5, b=200, grid=[10, 55]), "--tokens", "5:200", "--candidates", "own",
                "--p", "10,55")
        overlap(name + " heads", x, expect_overlap(scores, evict, T, short=True, grid=[20], heads=[(0, H - 1)]), "--head", f"L0K{H - 1}", "--p", "20",
                "--queries", "16")
        _, meta = sparsity(name + " window", x, expect_window(scores, evict, T, kept=gone > 0))
        check(f"{name}: entries", ("kept to the end" in meta["entries"]) == (gone > 0), meta)
        sparsity(name + " last", x, expect_window(scores, evict, T, [.01, .3, 1]), "--entries", "last", "--p", "0.3,1,0.01")
        sparsity(name + " kept", x, expect_window(scores, evict, T, kept=True, whole=True, a=3, b=77), "--entries", "kept", "--max", "all", "--tokens", "3:77")
        sparsity(name + " step", x, expect_steps(under, [1e-4, 1e-3, 1e-2, 1e-1], 0, T), "--form", "step")
        sparsity(name + " steps", x, expect_steps(under, [1e-3, 1e-1], 9, 120), "--form", "step", "--p", "0.1,0.001", "--tokens", "9:120")
    return x


def short_runs(path):
    rng = np.random.default_rng(4)
    for T in (0, 1, 15, 16, 100, 256, 271, 272):
        p, evict, alpha = random_run(rng, 1, 1, 2, T, 0) if T > 1 else (np.ones((1, 2, T, T)), np.full((1, 1, T), np.inf), np.ones((1, 2, T, T), bool))
        x, scores, under = trace(path("s.kvf"), p, evict, alpha)
        data, meta = overlap(f"{T} tokens", x, expect_overlap(scores, evict, T))
        check(f"{T} tokens: rows", bool(data["head"]) == (T == 272), len(data["head"]))
        check(f"{T} tokens: said", ("two are needed" in said("overlap", x)) == (T < 272))
        sparsity(f"{T} tokens: window", x, expect_window(scores, evict, T) if T else [])
        sparsity(f"{T} tokens: step", x, expect_steps(under, [1e-4, 1e-3, 1e-2, 1e-1], 0, T) if T else [], "--form", "step")
        check(f"{T} tokens: said", ("no tokens" in said("attention", "--as", "sparsity", x)) == (T == 0))
    T = 300
    p, _, alpha = random_run(rng, 1, 2, 2, T, 0)
    x, scores, _ = trace(path("gone.kvf"), p, np.full((1, 2, T), 299.), alpha)
    data, _ = overlap("all evicted", x, expect_overlap(scores, np.full((1, 2, T), 299.), T))
    check("all evicted: nothing is defined", set(data["overlap"]) == set(data["kappa"]) == {None} and set(data["last"]) == {0})
    data, _ = sparsity("all evicted, window", x, expect_window(scores, np.full((1, 2, T), 299.), T, kept=True))
    check("all evicted: no share", set(data["sparsity"]) == {None})
    said("overlap", x)
    said("attention", "--as", "sparsity", x)


def holes(path):
    """Check that a candidate without a number in one of the windows does not count."""
    T = 400  # windows begin at 16, 144, 272
    rng = np.random.default_rng(8)
    scores = {f"window{n}.{w}": rng.random((1, 1, T)) for w in range(4) for n in ("", "16")}
    scores["window.2"][0, 0, [3, 7]] = np.nan
    scores["window.3"][0, 0, [7, 9]] = np.nan
    scores["window16.3"][0, 0, [5, 100]] = np.nan
    evict = np.full((1, 1, T), np.inf)
    x = make(write_kvf, path("holes.kvf"), columns(scores, evict), (1, 1, 1, T))
    gone = evict.copy()
    gone[0, 0, [3, 7, 9]] = 0
    f32 = {n: v.astype(np.float32).astype(float) for n, v in scores.items()}
    _, meta = overlap("holes", x, expect_overlap(f32, gone, T))
    check("holes: counted", int(meta["left_out"]) == 3 and "3 candidates left out" in said("overlap", x), meta)
    gone[:] = np.inf
    gone[0, 0, [5, 100]] = 0
    _, meta = sparsity("holes, window", x, expect_window(f32, gone, T))
    check("holes, window: counted", int(meta["left_out"]) == 2 and "2 tokens left out" in said("attention", "--as", "sparsity", x), meta)
    alone = make(write_kvf, path("holes.kvf"), columns({k: np.full((1, 1, T), np.nan) for k in scores}, evict), (1, 1, 1, T))
    data, meta = table(kvfate, "overlap", alone)
    check("nothing but holes", set(data["overlap"]) == {None} and int(meta["left_out"]) == 16, meta)


def refusals(x, path):
    for more, word in ((["--p", "0"], "--p"), (["--p", "101"], "--p"), (["--p", "5,,6"], "--p"), (["--p", "5,"], "--p"), (["--p", ""], "--p"),
                       (["--p", "nan"], "--p"), (["--p", ",".join(map(str, range(1, 100))) + ",1" * 30], "up to 128"), (["--candidates", "x"], "--candidates"),
                       (["--queries", "17"], "--queries"), (["--head", "L0H0"], "KV heads"), (["--tokens", "9:3"], "--tokens")):
        refused("overlap " + " ".join(more), 2, ["overlap", x, *more], word)
    for more, word in ((["--form", "x"], "--form"), (["--entries", "x"], "--entries"), (["--max", "x"], "--max"), (["--p", "1.5"], "--p"),
                       (["--form", "step", "--p", "0.02"], "records 0.0001"), (["--form", "step", "--max", "all"], "--max"),
                       (["--form", "step", "--entries", "kept"], "--entries"), (["--form", "step", "--head", "L0K0"], "query heads"), (["--head", "L0H0"], "KV heads")):
        refused("attention-sparsity " + " ".join(more), 2, ["attention", "--as", "sparsity", x, *more], word)
    T = 640
    late = make(write_kvf, path("late.kvf"), columns({f"window{n}.{w}": np.ones((1, 1, T)) for w in range(4) for n in ("", "16")}, np.full((1, 1, T), np.inf)), (1, 1, 1, T))
    for end, none in ((100, True), (129, False)):  # of 640 tokens the last 512 are counted
        r = subprocess.run([kvfate, "attention", "--as", "sparsity", late, "--tokens", f"0:{end}"], capture_output=True, text=True)
        check(f"none of the tokens 0:{end}: {none}", r.returncode == 0 and r.stderr.count("\n") == none and ("0:100 is counted; counted are the last 512" in r.stderr) == none, r.stderr)
    T = 20
    scores = {f"window{n}.{w}": np.ones((1, 1, T)) for w in range(4) for n in ("", "16")}
    under = {"under." + n: np.ones((1, 1, T)) for n in (*SHARES, "seen")}
    full = columns(scores, np.full((1, 1, T), np.inf), under)
    for name, argv in (("window.1", ["overlap"]), ("window16.0", ["overlap", "--queries", "16"]), ("window16.3", ["attention", "--as", "sparsity"]),
                       ("under.0.01", ["attention", "--as", "sparsity", "--form", "step"]), ("under.seen", ["attention", "--as", "sparsity", "--form", "step"]),
                       ("evict_step", ["overlap"]), ("evict_step", ["attention", "--as", "sparsity"])):
        y = make(write_kvf, path("bad.kvf"), [c for c in full if c.name != name], (1, 1, 1, T))
        refused("without " + name, 1, [*argv, y], name, "--probes")
        if "under" in name:
            wrong = Column(name, "u16", "query", np.ones((1, 1, T)))
            word = "query head and step"
        else:
            wrong = Column(name, "f32", "kv", np.ones((1, 1, T)), axis="step")
            word = "KV head and token"
        y = make(write_kvf, path("bad.kvf"), [wrong if c.name == name else c for c in full], (1, 1, 1, T))
        refused("another kind of " + name, 1, [*argv, y], name, word)
    more = Column("under.0.1", "u16", "query", np.where(np.arange(T) < 3, 2, 1).reshape(1, 1, T), axis="step")
    y = make(write_kvf, path("bad.kvf"), [more if c.name == more.name else c for c in full], (1, 1, 1, T))
    data, meta = table(kvfate, "attention", "--as", "sparsity", y, "--form", "step", "--p", "0.1")
    check("more under than seen", data["n"] == [T - 3] * 3 and int(meta["left_out"]) == 3, data, meta)


def whole_sizes(path):
    """Check that 4.4 percent of 750 candidates are 33, although 4.4 * 750 / 100 is slightly more in binary."""
    T, rng = 1264, np.random.default_rng(5)
    scores = {f"{n}.{w}": rng.random((1, 1, T)).astype(np.float32).astype(float) for n in ("window", "window16") for w in range(4)}
    evict = np.full((1, 1, T), np.inf)
    x = make(write_kvf, path("sizes.kvf"), columns(scores, evict), (1, 1, 1, T))
    data, _ = overlap("whole sizes", x, expect_overlap(scores, evict, T, a=2, grid=[4.4, 4.5]), "--tokens", "2:", "--p", "4.4,4.5")
    check("750 candidates, 33 and 34 of them", set(data["candidates"]) == {750} and set(data["last"]) == {33, 34}, data)


with tempfile.TemporaryDirectory(prefix="kvfate-overlap-") as folder:
    def inside(name):
        return os.path.join(folder, name)

    by_hand(inside)
    steps_by_hand(inside)
    whole_sizes(inside)
    all_sets(inside)
    x = brute_force(inside)
    short_runs(inside)
    holes(inside)
    refusals(x, inside)
    for command in ("overlap", "attention-sparsity"):
        again = [subprocess.run([kvfate, *words_of(command), x, "--json"], capture_output=True).stdout for _ in range(2)]
        check("equal bytes", again[0] == again[1] and again[0])
        refused("a picture", 2, [*words_of(command), x, "--figure", "survival", "-o", inside("p.png")], "no figure")
        for ext in ("tsv", "csv", "npz"):
            out = inside("t." + ext)
            check(ext, subprocess.run([kvfate, *words_of(command), x, "-o", out], capture_output=True).returncode == 0 and os.path.getsize(out) > 100)

finish()
