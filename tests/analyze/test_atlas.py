#!/usr/bin/env python3
"""Check kvfate atlas: planted clusters, silhouettes, Rand index and correlations in numpy, edge cases, errors."""
import os
import sys
import tempfile

import numpy as np

import planted
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, kvfate, real, refused, said  # noqa: E402
from maker import Column, make, table

write_kvf = os.path.abspath(sys.argv[2])
SCALES = {"sink_mass": 1, "window": 4, "spread": 3, "modes_apart": 3, "recent": 1, "last_use": 8, "never": 1, "survival_64th": 1, "survival_16th": 1,
          "survival_4th": 1, "survival_half": 1, "last_use_sparsity": 1, "number": 1, "gist": 1, "filler": 1, "prompt": 1, "uneven": 3,
          "top_tenth": 1, "runs": 1, "rises": 4, "entropy": 1, "residence": 1}
OCTAVES, CUT = {"window", "last_use"}, {"recent": 1, "prompt": 1, "number": 1, "gist": 1, "filler": 1, "uneven": 4, "rises": 2}


def on_scale(name, v):
    v = np.log2(1 + v) if name in OCTAVES else np.clip(v, -CUT[name], CUT[name]) if name in CUT else v
    return v / SCALES[name]


def features(path):
    got, _ = table(kvfate, "heads", path)
    return np.array([real(got[n]) for n in SCALES]).T


def scaled(x):
    return np.array([on_scale(n, x[:, k]) for k, n in enumerate(SCALES)]).T


def distances(x, y):
    return np.sqrt(np.nanmean((scaled(x)[:, None, :] - scaled(y)[None, :, :]) ** 2, axis=2))


def silhouettes(D, cluster):
    s = []
    for i, c in enumerate(cluster):
        own = [j for j, o in enumerate(cluster) if o == c and j != i]
        b = min(np.mean([D[i, j] for j, o in enumerate(cluster) if o == k]) for k in set(cluster) - {c})
        a = np.mean([D[i, j] for j in own]) if own else 0
        s.append((b - a) / max(a, b) if own else 0)
    return np.array(s)


def adjusted_rand(a, b):
    """Compute the index from all pairs of points."""
    n = len(a)
    pairs = [(a[i] == a[j], b[i] == b[j]) for i in range(n) for j in range(i)]
    both, of_a, of_b = sum(x and y for x, y in pairs), sum(x for x, _ in pairs), sum(y for _, y in pairs)
    chance = of_a * of_b / len(pairs)
    return (both - chance) / ((of_a + of_b) / 2 - chance)


def icc(v):
    """Return the one-way ICC(1,1) of [heads][texts], from rows without NaN."""
    v = v[~np.isnan(v).any(1)]
    n, T = v.shape
    between = T * ((v.mean(1) - v.mean()) ** 2).sum() / (n - 1)
    within = ((v - v.mean(1, keepdims=True)) ** 2).sum() / (n * (T - 1))
    return (between - within) / (between + (T - 1) * within) if between + within > 0 else np.nan, n


def number(text):
    return np.nan if text in (None, "null", "nan") else float(text)


def runs_of(folder, n, kinds, heads, L, G, T=160, noise=.2):
    rng = np.random.default_rng(41)
    specs = [planted.spec(rng, kinds[k % len(kinds)], .92, noise) for k in range(heads)]
    return [planted.trace(write_kvf, f"{folder}/{k}.kvf", np.random.default_rng(50 + k), specs, L, 1, G, T)[0] for k in range(n)], specs


def definitions(folder):
    paths, specs = runs_of(folder, 3, ["sliding-window", "sink", "gist", "mixed"], 16, 4, 4)
    kinds = [s["kind"] for s in specs]
    x = [features(p) for p in paths]
    mean = np.nanmean(x, axis=0)
    D = distances(mean, mean)
    got, meta = table(kvfate, "atlas", *paths, "--k", "4")
    for k, n in enumerate(SCALES):
        check(f"mean of {n}", np.allclose(real(got[n]), mean[:, k], equal_nan=True))
    medoids = [got["head"].index(m) for m in sorted(set(got["medoid"]), key=got["head"].index)]
    check("four medoids", len(medoids) == 4 and [h for h, m in enumerate(got["is_medoid"]) if m] == medoids, got["medoid"])
    check("nearest medoid", got["cluster"] == [int(np.argmin(D[h, medoids])) + 1 for h in range(16)])
    cost = D[:, medoids].min(1).sum()
    swaps = [D[:, [*medoids[:m], h, *medoids[m + 1:]]].min(1).sum() for m in range(4) for h in range(16) if h not in medoids]
    check("no swap is better", min(swaps) >= cost - 1e-12, cost, min(swaps))
    check("silhouettes", np.allclose(got["silhouette"], silhouettes(D, got["cluster"])))
    check("kinds are clusters", adjusted_rand(got["cluster"], kinds) > .8, list(zip(got["cluster"], kinds)))
    near = np.array([np.argmin(distances(v, mean[medoids]), 1) + 1 for v in x])
    agree = (near == np.array(got["cluster"])).sum(0)
    check("stability", got["agree"] == list(agree) and got["parts"] == [3] * 16 and np.allclose(got["stability"], agree / 3))
    for k, n in enumerate(SCALES):
        value, heads = icc(on_scale(n, np.array([v[:, k] for v in x]).T))
        check(f"correlation of {n}", np.isclose(number(meta[f"icc_{n}"]), value, equal_nan=True) and meta[f"icc_heads_{n}"] == str(heads), meta[f"icc_{n}"], value)
    halves = [table(kvfate, "atlas", *p, "--k", "4")[0]["cluster"] for p in ([paths[0], paths[2]], [paths[1]])]
    check("halves of the traces", np.isclose(float(meta["adjusted_rand"]), adjusted_rand(*halves)), meta["adjusted_rand"], halves)
    widths = [np.mean(silhouettes(D, table(kvfate, "atlas", *paths, "--k", k)[0]["cluster"])) for k in range(2, 13)]
    auto, meta = table(kvfate, "atlas", *paths)
    check("the best k", meta["k"] == str(2 + int(np.argmax(widths))) and np.isclose(float(meta["mean_silhouette"]), max(widths)), meta["k"], widths)
    check("order of the texts", table(kvfate, "atlas", *paths[::-1], "--k", "4")[0]["cluster"] == got["cluster"])
    one, meta = table(kvfate, "atlas", paths[0], "--k", "2")
    check("halves of the tokens", meta["halves"] == "tokens" and one["parts"] == [2] * 16 and np.isnan(number(meta["icc_window"])), meta["icc_window"])
    single, meta = table(kvfate, "atlas", *paths, "--k", "1")
    check("one cluster", single["silhouette"] == [None] * 16 and set(single["cluster"]) == {1})
    check("as many clusters as heads", sorted(table(kvfate, "atlas", *paths, "--k", "16")[0]["cluster"]) == list(range(1, 17)))
    check("many files", table(kvfate, "atlas", *paths * 8)[1]["traces"] == "24")
    said("atlas", *paths)
    refused("no clusters", 2, ["atlas", *paths, "--k", "0"], "--k")
    refused("too many clusters", 2, ["atlas", *paths, "--k", "65"], "--k")
    refused("KV heads", 2, ["atlas", *paths, "--head", "L0K0"], "query heads")
    return paths[0]


def edges(folder, path):
    short = planted.trace(write_kvf, f"{folder}/short.kvf", np.random.default_rng(1), [planted.spec(np.random.default_rng(1), "sink", .92)] * 2, 1, 1, 2, 20)[0]
    got, meta = table(kvfate, "atlas", short)
    check("short texts have no clusters", got["cluster"] == [-1, -1] and got["kind"] == ["unknown"] * 2 and meta["undefined"] == "2", got["cluster"])
    said("atlas", short)
    refused("other heads", 2, ["atlas", path, short], "trace 2 has other heads")
    bare = make(write_kvf, f"{folder}/bare.kvf", [Column("nll", "f32", "run", np.zeros(4))], (1, 1, 1, 4))
    refused("no masses", 1, ["atlas", bare], "mass.sum")


with tempfile.TemporaryDirectory() as folder:
    edges(folder, definitions(folder))
finish()
