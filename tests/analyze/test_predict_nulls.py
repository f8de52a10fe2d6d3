#!/usr/bin/env python3
"""Check planted nulls: the statistics of heads and their effects are independent, and kvfate predict finds results only
by chance.

Heads are independent; or share an effect of their layer (ICC .92); or layers follow a random walk.  Every p must be
below .05 in at most 7 % of the tests, and the interval of the partial correlation must contain 0 in at least 90 %.
Entries of a text are tested in the same way, with random walks over positions.

usage: [KVFATE_TESTS=long] test_predict_nulls.py KVFATE WRITE_KVF        40 runs of each null; long: 200
"""
import os
import subprocess
import sys
import tempfile
from types import SimpleNamespace

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, kvfate  # noqa: E402
from maker import Column, make  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
os.environ["PATH"] = os.path.dirname(kvfate) + os.pathsep + os.environ["PATH"]  # the package runs this program
from kvfate import predict, predict_judge, predict_values  # noqa: E402

write_kvf = os.path.abspath(sys.argv[2])
RUNS, STATISTICS, LAYERS, HEADS, TOKENS = 200 if os.environ.get("KVFATE_TESTS") == "long" else 40, 10, 30, 3, 60
KEYS = ("reduce", "p", "depth_p", "low", "high")
rng = np.random.default_rng(20261128)


def independent():
    return rng.normal(size=(LAYERS, HEADS))


def layered():
    return np.sqrt(.92) * rng.normal(size=(LAYERS, 1)) + np.sqrt(.08) * rng.normal(size=(LAYERS, HEADS))


def smooth():
    return np.cumsum(rng.normal(size=(LAYERS, 1)), axis=0) + .3 * rng.normal(size=(LAYERS, HEADS))


def entries():
    return rng.normal(size=TOKENS)


def smooth_entries():
    return np.cumsum(rng.normal(size=TOKENS))


def tsv(path, meta, columns):
    names = list(columns)
    with open(path, "w") as f:
        f.write("".join(f"# {k}: {v}\n" for k, v in meta.items()) + "\t".join(names) + "\n")
        for row in zip(*columns.values()):
            f.write("\t".join(repr(float(x)) if isinstance(x, float) else str(x) for x in row) + "\n")


seen = set()


def rows(draw, *files, only=None):
    """Returns the rows by the functions of the command; for the first run of each null the command must give the same."""
    v = predict_values.Values(predict.pairs_of(files), SimpleNamespace(value="kl", criterion="top64", horizon=None, sinks=None))
    got = [{key: getattr(r, key) for key in KEYS} for r in predict_judge.judge_all(v) if only in (None, r.candidate) and r.candidate not in ("layer", "position")]
    if draw not in seen:
        seen.add(draw)
        r = subprocess.run([kvfate, "predict", *files, *(["--only", only] if only else []), "-o", "-"], capture_output=True, text=True)
        lines = [x.split("\t") for x in r.stdout.splitlines() if not x.startswith("#")]
        told = [dict(zip(lines[0], x)) for x in lines[1:] if x[0] not in ("layer", "position")] if r.returncode == 0 else []
        same = np.array_equal([[float(x[k]) for k in KEYS[1:]] for x in told], [[x[k] for k in KEYS[1:]] for x in got], equal_nan=True)
        check("predict gives the same", same and [x["reduce"] for x in told] == [x["reduce"] for x in got], r.stderr, told, got)
    return got


def of_heads(folder, draw):
    at = [(l, h) for l in range(LAYERS) for h in range(HEADS)]
    head = [f"L{l}K{h}" for l, h in at]
    effect, statistics = os.path.join(folder, "effect.tsv"), os.path.join(folder, "s.tsv")
    tsv(effect, {"table": "effect", "held": "the head of the row"},
        {"head": head, "layer": [l for l, _ in at], "index": [h for _, h in at], "kl": np.exp(draw()).ravel().tolist()})
    tsv(statistics, {"table": "s"}, {"head": head, **{f"v{k}": draw().ravel().tolist() for k in range(STATISTICS)}})
    return rows(draw, effect, statistics)


def of_entries(folder, draw):
    found = []
    effect, trace = os.path.join(folder, "each.tsv"), os.path.join(folder, "t.kvf")
    make(write_kvf, trace, [Column("importance", "f32", "kv", np.array([[draw()]]))], (1, 1, 1, TOKENS))
    for _ in range(2):
        tsv(effect, {"table": "effect", "heads": "all"}, {"entries": ["x"] * TOKENS, "token": list(range(TOKENS)), "count": [1] * TOKENS, "kl": draw().tolist()})
        found += [r for r in rows(draw, effect, trace, only="importance") if r["reduce"] == "mean"]
    return found


print(f"{'null':<18} {'tests':>6} {'p < .05':>8} {'depth p < .05':>14} {'interval holds 0':>17}")
with tempfile.TemporaryDirectory(prefix="kvfate-nulls-") as folder:
    for what, read, draw in (("independent heads", of_heads, independent), ("layers, ICC .92", of_heads, layered), ("smooth in depth", of_heads, smooth),
                             ("entries", of_entries, entries), ("smooth entries", of_entries, smooth_entries)):
        found = [r for _ in range(RUNS) for r in read(folder, draw)]
        p, depth, low, high = (np.array([float(r[k]) for r in found]) for k in ("p", "depth_p", "low", "high"))
        covered = np.mean((low <= 0) & (high >= 0))
        deep = f"{np.mean(depth < .05):.3f}" if read is of_heads else "-"
        print(f"{what:<18} {len(p):6d} {np.mean(p < .05):8.3f} {deep:>14} {covered:17.3f}", flush=True)
        check(f"{what}: enough tests", len(p) >= RUNS and not np.isnan(p).any(), len(p))
        check(f"{what}: p", np.mean(p < .05) <= .07, np.mean(p < .05))
        if read is of_heads:
            check(f"{what}: p of depth", not np.isnan(depth).any() and np.mean(depth < .05) <= .07, np.mean(depth < .05))
            check(f"{what}: interval", covered >= .9, covered)
print(f"{RUNS} runs of each null, {STATISTICS} statistics of {LAYERS} layers of {HEADS} heads in each; 2 of {TOKENS} entries")
finish()
