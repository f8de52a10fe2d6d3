#!/usr/bin/env python3
"""Check how often 95 % intervals over documents contain the true value, for 2, 3, 5, 10 and 30 documents, on planted
documents.

A document has its own risk, log-normal, and each of its HEADS heads draws its own, so a corpus with --intervals all
is HEADS repetitions at once.  The true value is an integral over the risks.  Fewer than 4 documents must have no
interval; 5 and more must cover.

usage: test_coverage.py KVFATE WRITE_KVF INTERVALS [--table]   (--table: print the coverage as a table)
"""
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, kvfate  # noqa: E402
from maker import AGE, SNAPSHOT, Column, make, table  # noqa: E402

write_kvf, intervals = map(os.path.abspath, sys.argv[2:4])
HEADS, T, SPREAD, HALF = 200, 400, .35, 30  # repetitions, tokens, sd of log risk, half-life of the median risk
NUMBERS, LEAST, FEWEST = (2, 3, 5, 10, 30), 4, .90
AGES = "0,4,8,16,24,32,48,64,96"


def risks(rng, *shape):
    return -np.log(.5) / HALF * np.exp(SPREAD * rng.standard_normal(shape))


def document(rng, folder, k, T=T):
    """Write last selections of T tokens in HEADS heads: at age n or later with probability exp(-risk n), within the
    text.
    """
    risk, later = risks(rng, HEADS), T - 1 - np.arange(T)
    age = np.floor(rng.exponential(1, (HEADS, T)) / risk[:, None])
    columns = [Column("last_selected.top64", "u32", "query", np.minimum(age, later)[None], flags=SNAPSHOT | AGE)]
    return make(write_kvf, f"{folder}/{k}.kvf", columns, (1, HEADS, HEADS, T), meta={"run": {"document": k}})


def truth():
    """Return each value over all possible documents."""
    z = np.linspace(-6, 6, 4001)
    w = np.exp(-z * z / 2)
    w /= w.sum()
    risk = -np.log(.5) / HALF * np.exp(SPREAD * z)
    at = lambda n: (w * np.exp(-risk * np.asarray(n)[..., None])).sum(-1)
    curve = at(np.arange(T))
    return {"survival": curve, "half_life": int(np.argmax(curve < .5)), "rmst": curve[:64].sum()}


def share(low, high, value):
    """Return (cases, intervals, intervals that contain the value)."""
    low, high = np.asarray(low, float), np.asarray(high, float)
    has = np.isfinite(low) & np.isfinite(high)
    return len(low), int(has.sum()), int(((low <= value) & (value <= high) & has).sum())


def of_heads(data, name, low, high, value, where):
    rows = [i for i in range(len(data[name])) if data["head"][i] != "all" and all(data[k][i] == x for k, x in where.items())]
    ends = [np.array([np.nan if data[c][i] is None else data[c][i] for i in rows], float) for c in (low, high)]
    if name == "half_life":  # an upper end beyond the curve is unknown
        ends[1] = np.where(np.isfinite(ends[0]) & np.isnan(ends[1]), 1e9, ends[1])
    return share(*ends, value)


def corpora(rng, n, want, found):
    with tempfile.TemporaryDirectory() as folder:
        for k in range(n):
            document(rng, folder, k)
        more = ["--grace", "0", "--criterion", "top64", "--intervals", "all"]
        d = table(kvfate, "corpus", "survival", folder, *more, "--horizons", AGES, "--mean-to", "64")[0]
        for age in (16, 32, 64):
            found[f"survival: survival at {age}", n] = of_heads(d, "survival", "survival_low", "survival_high", want["survival"][age], {"horizon": age})
        found["survival: half_life", n] = of_heads(d, "half_life", "half_life_low", "half_life_high", want["half_life"], {"horizon": 0})
        found["survival: rmst (a mean)", n] = of_heads(d, "rmst", "rmst_low", "rmst_high", want["rmst"], {"horizon": 0})
        every = ["--horizons", ",".join(map(str, range(0, 151)))]
        e = table(kvfate, "corpus", "survival", folder, *more, *every)[0]
        found["survival: half_life, every age a row", n] = of_heads(e, "half_life", "half_life_low", "half_life_high", want["half_life"], {"horizon": 0})
        # a quotient without censoring: tokens with at least 100 later queries
        q = table(kvfate, "corpus", "survival", folder, *more, "--horizons", "32", "--tokens", f"0:{T - 100}")[0]
        found["survival: fraction (a quotient)", n] = of_heads(q, "fraction", "low", "high", want["survival"][32], {"horizon": 32})
        h = table(kvfate, "corpus", "survival", "--as", "hazard", folder, *more, "--bins", ",".join(map(str, range(0, 65))))[0]
        found["hazard: survival at 32", n] = of_heads(h, "survival", "survival_low", "survival_high", want["survival"][32], {"low": 32})
        for k in range(n, n + 9):  # no token of these can reach age 96
            document(rng, folder, k, 80)
        m = table(kvfate, "corpus", "survival", folder, *more, "--horizons", AGES)[0]
        found["survival: survival at 96, with 9 more documents that are shorter", n] = of_heads(m, "survival", "survival_low", "survival_high",
                                                                                                want["survival"][96], {"horizon": 96})
        for k in range(n, n + 9):
            os.remove(f"{folder}/{k}.kvf")
        folder2 = folder + ".other"
        os.mkdir(folder2)
        for k in range(n):
            document(rng, folder2, k)
        a = table(kvfate, "corpus", "survival", folder, "--against", folder2, *more, "--horizons", "32")[0]
        found["--against: difference", n] = of_heads(a, "difference", "low", "high", 0, {"horizon": 32})
        shutil.rmtree(folder2)


def means(rng, n, found):
    for name, draw, value in (("normal", lambda s: rng.normal(2, 1, s), 2), ("log-normal", lambda s: np.exp(.5 * rng.standard_normal(s)), np.exp(.125)),
                              ("right answers, p = 0.7", lambda s: rng.random(s) < .7, .7)):
        v = draw((2000, n)).astype(float)
        out = np.array(subprocess.run([intervals, str(n)], input=" ".join(map(repr, v.ravel().tolist())), text=True, capture_output=True, check=True).stdout.split(), float)
        out = out.reshape(-1, 4)
        if name[0] == "r":
            found[f"eval: {name} (Wilson)", n] = share(out[:, 2], out[:, 3], value)
        else:
            found[f"eval, effect, tune: mean of {name} values", n] = share(out[:, 0], out[:, 1], value)


rng, want, found = np.random.default_rng(20261128), truth(), {}
for n in NUMBERS:
    corpora(rng, n, want, found)
    means(rng, n, found)
names = list(dict.fromkeys(name for name, n in found))
if "--table" in sys.argv:
    print("| interval | " + " | ".join(f"n = {n}" for n in NUMBERS) + " |\n|---|" + "---|" * len(NUMBERS))
for name in names:
    cells = []
    for n in NUMBERS:
        of, has, held = found[name, n]
        cells.append(f"{held / has:.3f}" + (f" ({has} of {of})" if has < of else "") if has else "none")
        if "Wilson" in name:
            check(f"{name}, {n} documents", held >= .88 * of, held, of)
        elif n < LEAST:
            check(f"{name}, {n} documents: no interval", has == 0, has, of)
        else:
            check(f"{name}, {n} documents", has == of and held >= FEWEST * of, has, held, of)
    if "--table" in sys.argv:
        print(f"| {name} | " + " | ".join(cells) + " |")
finish()
