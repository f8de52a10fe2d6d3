#!/usr/bin/env python3
"""Check kvfate missed --as regret against numpy on synthetic columns, and its errors."""
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, kvfate, real, refused  # noqa: E402
from maker import Column, make, table

write_kvf = os.path.abspath(sys.argv[2])


def same(a, b):
    return np.allclose(a, b, rtol=0, atol=1e-15, equal_nan=True)


def columns(kept, oracle, **more):
    return [Column("shadow.kept_mass", "f32", "query", kept, "step", **more),
            Column("shadow.oracle_mass", "f32", "query", oracle, "step", **more)]


L, H, G, T = 3, 2, 4, 29
rng = np.random.default_rng(3)
kept = rng.uniform(0, 1, (L, G, T)).astype(np.float32).astype(float)
oracle = np.maximum(kept, rng.uniform(0, 1, (L, G, T)).astype(np.float32)).astype(float)
kept[:, :, :5] = oracle[:, :, :5] = 1  # the prompt: before any eviction
kept[1, 2, 7] = oracle[0, 0, 9] = np.nan  # undefined in only one column
kept[2, 3, :] = np.nan  # a head without values
known = ~np.isnan(kept) & ~np.isnan(oracle)

with tempfile.TemporaryDirectory(prefix="kvfate-regret-") as folder:
    def path(name):
        return os.path.join(folder, name)

    x = make(write_kvf, path("x.kvf"), columns(kept, oracle), (L, H, G, T), {"method": {"name": "made-up", "budget": 8}})
    regret = oracle - kept
    names = [f"L{l}H{g}" for l in range(L) for g in range(G)] + ["all"]

    def pooled(v, where, axis):
        n = where.sum(axis=axis)
        return np.where(n > 0, np.where(where, v, 0).sum(axis=axis) / np.maximum(n, 1), np.nan)

    def expected(v, steps):
        flat, ok = v.reshape(L * G, T)[:, steps], known.reshape(L * G, T)[:, steps]
        return np.concatenate([flat.ravel(), pooled(flat, ok, 0)])

    for name, more, steps in (("all steps", [], range(T)), ("a range", ["--tokens", "3:20"], range(3, 20)),
                              ("every 4th", ["--every", "4"], range(0, T, 4)),
                              ("every 4th of a range", ["--every", "4", "--tokens", "2:21"], range(2, 21, 4)),
                              ("a longer stride than there are steps", ["--every", "900"], range(0, 1))):
        data, meta = table(kvfate, "missed", "--as", "regret", x, *more)
        steps = list(steps)
        check(name + ": heads", data["head"] == list(np.repeat(names, len(steps))))
        check(name + ": layers", data["layer"][-1] == -1 and data["index"][-1] == -1 and data["layer"][0] == 0)
        check(name + ": steps", data["step"] == steps * (L * G + 1))
        for key, v in (("kept_mass", kept), ("oracle_mass", oracle), ("regret", regret)):
            check(f"{name}: {key}", same(real(data[key]), expected(v, steps)))
        a, b = (max(steps[0], 5), {"a range": 20, "every 4th of a range": 21}.get(name, T))
        cells = known[:, :, a:b]
        check(name + ": the means begin with the first loss", int(meta["first_loss"]) == 5, meta["first_loss"])
        check(name + ": the summary has all steps from there", abs(float(meta["mean_regret"]) - regret[:, :, a:b][cells].mean()) < 1e-14)
        means = pooled(regret[:, :, a:b], cells, 2).ravel()
        check(name + ": worst head", meta["worst_head"] == names[int(np.nanargmax(means))]
              and abs(float(meta["worst_regret"]) - np.nanmax(means)) < 1e-14)

    data, _ = table(kvfate, "missed", "--as", "regret", x, "--mean")
    check("mean: rows", data["head"] == names and set(data["step"]) == {-1})
    for key, v in (("kept_mass", kept), ("oracle_mass", oracle), ("regret", regret)):
        want = np.append(pooled(v[:, :, 5:], known[:, :, 5:], 2).ravel(), v[:, :, 5:][known[:, :, 5:]].mean())
        check(f"mean: {key}", same(real(data[key]), want), data[key], want)
    data, _ = table(kvfate, "missed", "--as", "regret", x, "--mean", "--head", "L1H1-2")
    check("mean of chosen heads", data["head"] == ["L1H1", "L1H2", "all"]
          and abs(data["regret"][2] - regret[1, 1:3, 5:][known[1, 1:3, 5:]].mean()) < 1e-14)
    data, meta = table(kvfate, "missed", "--as", "regret", x, "--tokens", "0:5")
    said = subprocess.run([kvfate, "missed", "--as", "regret", x, "--tokens", "0:5"], capture_output=True, text=True)
    check("no loss", "first_loss" not in meta and float(meta["mean_regret"]) == 0 and "no query lost attention" in said.stdout, said.stdout)

    said = subprocess.run([kvfate, "missed", "--as", "regret", x], capture_output=True, text=True)
    check("summary", said.returncode == 0 and f"regret {regret[:, :, 5:][known[:, :, 5:]].mean():.4f}" in said.stdout and "before step 5" in said.stdout and "worst head" in said.stdout, said.stdout)
    for ext in ("tsv", "csv", "npz", "json"):
        r = subprocess.run([kvfate, "missed", "--as", "regret", x, "-o", path("r." + ext)], capture_output=True, text=True)
        check(ext, r.returncode == 0 and os.path.getsize(path("r." + ext)) > 100, r.stderr)
    with np.load(path("r.npz")) as z:
        check("npz", same(z["regret"], expected(regret, range(T))))

    # an empty run, and a run without defined steps
    none = make(write_kvf, path("none.kvf"), columns(np.zeros((L, G, 0)), np.zeros((L, G, 0))), (L, H, G, 0))
    for more in ([], ["--mean"]):
        check("empty", table(kvfate, "missed", "--as", "regret", none, *more)[0]["head"] == [])
    blank = make(write_kvf, path("blank.kvf"), columns(kept * np.nan, oracle), (L, H, G, T))
    said = subprocess.run([kvfate, "missed", "--as", "regret", blank], capture_output=True, text=True)
    check("nothing to compare", said.returncode == 0 and "no step" in said.stdout, said)

    # errors
    bare = make(write_kvf, path("bare.kvf"), columns(kept, oracle)[:1], (L, H, G, T))
    refused("a column is missing", 1, ["missed", "--as", "regret", bare], "shadow.oracle_mass", "--shadow entries")
    refused("both are missing", 1, ["missed", "--as", "regret", make(write_kvf, path("b.kvf"), [], (L, H, G, T))], "shadow.kept_mass", "--shadow entries")
    kv = [Column("shadow.kept_mass", "f32", "kv", kept[:, :H], "step"), Column("shadow.oracle_mass", "f32", "kv", kept[:, :H], "step")]
    refused("columns of KV heads", 1, ["missed", "--as", "regret", make(write_kvf, path("kv.kvf"), kv, (L, H, G, T))], "query head")
    short = make(write_kvf, path("short.kvf"), columns(kept, oracle, n=20), (L, H, G, T))
    refused("values are missing", 1, ["missed", "--as", "regret", short], "not in the trace")
    check("those that are there", len(table(kvfate, "missed", "--as", "regret", short, "--tokens", "0:20")[0]["step"]) == 20 * (L * G + 1))
    for more, word in ((["--every", "0"], "--every"), (["--every", "x"], "--every"), (["--every", "2", "--mean"], "--mean"),
                       (["--mean=3"], "--mean"), (["--head", "L0K0"], "query"), (["--tokens", "0:5x"], "A:B"), (["-o", path("x.jpg")], ".tsv")):
        refused(" ".join(more), 2, ["missed", "--as", "regret", x, *more], word)

finish()
