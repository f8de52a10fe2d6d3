#!/usr/bin/env python3
"""Measure the time of figures, and of matplotlib that draws the same numbers.

usage: bench/figures.py KVFATE WRITE_KVF FOLDER [--rounds 3] [--only NAME,...]

WRITE_KVF is build/tests/analyze/write_kvf; KVFATE should be a release build.  FOLDER keeps traces of synthetic
retention gates and evictions (log beta: decades of horizons, by head and token), and the same numbers as .npy, for
the next call.  Rounds alternate between kvfate and each peer.

  kvfate:   the process from its start to the file: opens, checks and unpacks the trace, makes the table, draws.
  dense:    the usual numpy and matplotlib code: a T x T float32 array per head by broadcasting, a grid of imshow
            with the same colours, one colour bar, savefig at the same size and dpi.
  averaged: the same arrays, averaged to blocks of about a pixel before imshow, which saves matplotlib's resampling.

Both peers are timed from the loaded numbers to the file, without and with the start of Python and the imports.
Times are medians of wall milliseconds (CPU milliseconds). Peers need matplotlib (apt-get install
python3-matplotlib); without it only kvfate is timed.  It needs numpy.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "analyze"))
from maker import ALIVE, SNAPSHOT, Column, make  # noqa: E402

# name: (layers, KV heads, tokens, analysis, arguments, peers, pixels per side of a map)
CASES = {
    "retention 30x3 4k": (30, 3, 4096, "retention", [], ["dense", "averaged"], 146),
    "eviction 30x3 4k": (30, 3, 4096, "eviction", [], ["dense", "averaged"], 146),
    "retention 1 4k": (30, 3, 4096, "retention", ["--head", "3.0"], ["dense", "averaged"], 640),
    "eviction 1 4k": (30, 3, 4096, "eviction", ["--head", "3.0"], ["dense", "averaged"], 640),
    "retention 1 128k": (36, 8, 131072, "retention", ["--head", "3.0"], [], 640),
    "retention 36x8 128k": (36, 8, 131072, "retention", [], [], 90),
    "eviction 36x8 128k": (36, 8, 131072, "eviction", [], [], 90),
}

PEER = r'''
import json, sys, time
start = time.perf_counter(), time.process_time()
import numpy as np
import matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
kind, how, path, out, side, heads = sys.argv[1:7]
v = np.load(path)
v = v.reshape(-1, v.shape[-1])
v = v[[int(h) for h in heads.split(",")]] if heads else v
T, side = v.shape[1], int(side)
begin = time.perf_counter(), time.process_time()
age = np.arange(T, dtype=np.float32)[:, None] - np.arange(T, dtype=np.float32)[None, :]
n = len(v)
rows = 10 if n > 1 else 1
fig, ax = plt.subplots(rows, -(-n // rows), figsize=(180 / 25.4, 160 / 25.4) if n > 1 else (88 / 25.4, 70 / 25.4),
                       sharex=True, sharey=True, squeeze=False)
block = -(-T // side)
while T % block:
    block += 1
for a, x in zip(ax.ravel(), v):
    if kind == "retention":
        m = np.exp(age * x[None, :].astype(np.float32))
    else:
        m = (np.arange(T)[:, None] < x[None, :]).astype(np.float32)
    m[age < 0] = np.nan
    if how == "averaged":
        k = T // block
        cells = m.reshape(k, block, k, block)
        seen = (~np.isnan(cells)).sum((1, 3))
        m = np.where(seen > 0, np.nansum(cells, (1, 3)) / np.maximum(seen, 1), np.nan)
    image = a.imshow(m, vmin=0, vmax=1, cmap="viridis", extent=(0, T, T, 0))
fig.colorbar(image, ax=ax)
fig.savefig(out, dpi=300)
print(json.dumps([time.perf_counter() - begin[0], time.process_time() - begin[1]]))
'''


def numbers(L, H, T):
    """Return log beta and steps of eviction, [L][H][T]."""
    rng = np.random.default_rng(L * T + H)
    lb = -10.0 ** -(rng.uniform(0.5, 4, (L, H, 1)) + rng.normal(0, 0.8, (L, H, T)))
    lb[:, :, 0] = 0
    end = np.arange(T) + 1 + rng.geometric(20 / T, (L, H, T))
    return lb.astype(np.float32), np.where(end > T, ALIVE, end)


def traces(write_kvf, folder, L, H, T):
    kvf = os.path.join(folder, f"{L}x{H}.{T}.kvf")
    stem = kvf[:-4]
    if not os.path.exists(kvf):
        lb, end = numbers(L, H, T)
        meta = {"model": {"name": "made-up", "hash": "00", "query_heads": H, "kv_heads": H}, "run": {"prompt_tokens": T // 2},
                "method": {"name": "trimkv", "budget": 64}}
        if T <= 16384:
            np.save(stem + ".retention.npy", lb)
            np.save(stem + ".eviction.npy", end)
        make(write_kvf, kvf, [Column("log_beta", "f32", "kv", lb), Column("evict_step", "u32", "kv", end, flags=SNAPSHOT)]
             + [Column(n, "f32" if n in ("evict_score", "evict_margin") else "u8", "kv", np.zeros((L, H, T)), flags=SNAPSHOT)
                for n in ("evict_reason", "evict_score", "evict_margin", "evict_tie")], (L, H, H, T), meta)
    return kvf, stem


def run_kvfate(kvfate, case, kvf, out):
    analysis, more = case[3], case[4]
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(["/usr/bin/env", "time", "-f", "%M", kvfate, analysis, kvf, *more, "-o", out], capture_output=True,
                          text=True, check=True)
    took, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took, cpu, int(done.stderr.split()[-1]) / 1024


def run_peer(how, case, stem, out):
    head = "9" if "--head" in case[4] else ""  # 3.0 with three heads per layer
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", PEER, case[3], how, f"{stem}.{case[3]}.npy", out, str(case[6]), head],
                          capture_output=True, text=True)
    if done.returncode:
        return None
    took, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return *json.loads(done.stdout.splitlines()[-1]), took, cpu


def main():
    p = argparse.ArgumentParser()
    p.add_argument("kvfate")
    p.add_argument("write_kvf")
    p.add_argument("folder")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--only", default="")
    a = p.parse_args()
    os.makedirs(a.folder, exist_ok=True)
    peers = subprocess.run([sys.executable, "-c", "import matplotlib"], capture_output=True).returncode == 0
    if not peers:
        print("no matplotlib (apt-get install python3-matplotlib): kvfate alone")
    print("| figure | kvfate | MB | dense | dense, with imports | averaged | averaged, with imports | ratios: without, with imports |")
    print("|---|---|---|---|---|---|---|---|")
    for name, case in CASES.items():
        if a.only and name not in a.only.split(","):
            continue
        kvf, stem = traces(a.write_kvf, a.folder, *case[:3])
        ours, theirs = [], {how: [] for how in case[5]}
        for _ in range(a.rounds):
            ours.append(run_kvfate(a.kvfate, case, kvf, os.path.join(a.folder, "ours.png")))
            for how in theirs if peers else []:
                theirs[how].append(run_peer(how, case, stem, os.path.join(a.folder, how + ".png")))
        took, cpu, mb = (statistics.median(x[k] for x in ours) for k in range(3))
        cells, ratios = [], []
        for how in ("dense", "averaged"):
            got = [x for x in theirs.get(how, []) if x]
            if not got:
                cells += ["failed" if theirs.get(how) else "-"] * 2
                continue
            m = [statistics.median(x[k] for x in got) for k in range(4)]
            cells += [f"{1e3 * m[0]:.0f} ({1e3 * m[1]:.0f})", f"{1e3 * m[2]:.0f} ({1e3 * m[3]:.0f})"]
            ratios.append(f"{m[0] / took:.1f} ({m[1] / cpu:.1f}), {m[2] / took:.1f} ({m[3] / cpu:.1f})")
        print(f"| {name} | {1e3 * took:.0f} ({1e3 * cpu:.0f}) | {mb:.0f} | {' | '.join(cells)} | {'; '.join(ratios) or '-'} |", flush=True)


if __name__ == "__main__":
    main()
