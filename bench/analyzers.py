#!/usr/bin/env python3
"""Measure `kvfate ANALYZER` on one long trace, and numpy that computes the same results from arrays.

usage: bench/analyzers.py KVFATE WRITE_KVF FOLDER [--tokens 16384] [--rounds 5] [--only NAME,...]

WRITE_KVF is build/tests/analyze/write_kvf.  The trace has the shape of the default model (30 layers, 9 query heads,
3 KV heads) and random numbers.  FOLDER keeps it (about 3 GB) for the next call, with its columns as .npy files in
the types of the trace and as compressed .npz files.

Rounds alternate between kvfate, kvfate on one thread, and numpy.  The time of kvfate is that of the process, from
its start to its summary.  It opens the trace, checks and unpacks the needed columns, and fills its table.  Columns
with a row per token that eviction and retention compute while writing are not included.  The numpy process is
bench/numpy_peer.py, which reads the same trace.  Users wait for processes, so processes are compared.  Two more
columns exclude the start of Python and the import of numpy, and do not read the trace: they load .npy files, which
are neither packed nor checked, or compressed .npz files, which are packed like the trace, and compute.  The page
cache is warm for all.  Before timing, the numbers must be equal: integers exactly, sums of reals within 1e-9 (tables
with a row per token, eviction and retention, on a trace of 1,024 tokens). It prints medians in milliseconds and
needs numpy and zstandard.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "tests", "analyze"))
from maker import AGE, ALIVE, SNAPSHOT  # noqa: E402
from numpy_peer import G, H, L, STATISTICS, Trace  # noqa: E402

CRITERIA = {"top64": 0.02, "top128": 0.01, "top256": 0.006, "top512": 0.004, "mass.90": 0.02, "mass.95": 0.01, "mass.99": 0.005}
NEVER = 65535
TYPES = {"u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "i32": np.int32, "f32": np.float32}


# ---- the trace

def columns(T):
    """Return (name, type, space, axis, flags, function that makes the values) of each column."""
    born = np.arange(T)

    def age(rate, g, rng):
        a = np.minimum(rng.geometric(rate, (L * g, T)) - 1, T - 1 - born)
        return np.where(rng.random((L * g, T)) < 0.05, NEVER, a)

    def evict(rng):
        e = born + 1 + rng.geometric(1 / 6000, (L * H, T))
        return np.where(e > T, ALIVE, e)

    def share(low, high):
        return lambda rng: rng.uniform(low, high, (L * G, T))

    def score(rng):
        return rng.standard_normal((L * H, T))

    yield "tokens.id", "i32", "run", "token", 0, lambda rng: rng.integers(0, 49152, T)
    yield "tokens.role", "u8", "run", "token", 0, lambda rng: (born >= 3 * T // 4).astype(int)
    for name, rate in CRITERIA.items():
        yield "last_selected." + name, "u16", "query", "token", SNAPSHOT | AGE, lambda rng, rate=rate: age(rate, G, rng)
    yield "evict_step", "u32", "kv", "token", 0, evict
    yield "evict_reason", "u8", "kv", "token", 0, lambda rng: rng.integers(1, 3, (L * H, T))
    yield "evict_score", "f32", "kv", "token", 0, score
    yield "evict_margin", "f32", "kv", "token", 0, score
    yield "evict_tie", "u8", "kv", "token", 0, lambda rng: (rng.random((L * H, T)) < 0.01).astype(int)
    yield "log_beta", "f32", "kv", "token", 0, lambda rng: -np.exp(rng.uniform(-12, 0, (L * H, T)))
    for w in range(4):
        yield f"window.{w}", "f32", "kv", "token", SNAPSHOT, lambda rng: rng.exponential(0.001, (L * H, T))
    for name in ("top64", "mass.95"):
        for family in ("n_selected", "n_returns", "longest_gap"):
            yield f"{family}.{name}", "u16", "query", "token", SNAPSHOT, lambda rng: (
                np.minimum(rng.geometric(0.02, (L * G, T)) - 1, T - 1 - born))
        yield f"first_unselected.{name}", "u16", "query", "token", SNAPSHOT | AGE, lambda rng: age(0.2, G, rng)
    yield "selected_at.top64", "u32", "query", "token", SNAPSHOT, lambda rng: (
        rng.integers(0, 1 << 14, (L * G, T)) & rng.integers(0, 1 << 14, (L * G, T))
        & ((1 << np.ceil(np.log2(np.maximum(T - born, 1))).astype(int)) - 1))
    yield "shadow.kept_mass", "f32", "query", "step", 0, share(0.3, 0.8)
    yield "shadow.oracle_mass", "f32", "query", "step", 0, share(0.8, 1)
    yield "useful.top64", "f32", "query", "step", 0, share(0.3, 0.7)
    yield "dilution.top64", "f32", "query", "step", 0, share(0.3, 0.7)
    yield "size.top64", "u16", "query", "step", 0, lambda rng: np.broadcast_to(np.minimum(64, born + 1), (L * G, T))
    for k in range(16):
        yield f"near.all.{k}", "u16", "query", "step", 0, lambda rng, k=k: (
            np.minimum(1 + rng.poisson(2.0 ** (k / 2), (L * G, T)), born + 1))


def write(write_kvf, folder, T):
    """Write x.kvf, and its columns as NAME.npy and NAME.npz."""
    trace = os.path.join(folder, f"{T}.kvf")
    meta = {"run": {"prompt_tokens": 3 * T // 4}}
    lines = [f"meta {json.dumps(meta)}", f"shape {L} {H} {G} {T}", "layers"]
    if os.path.exists(trace):
        return trace
    for c, (name, kind, space, axis, flags, make) in enumerate(columns(T)):
        v = make(np.random.default_rng(c)).astype(TYPES[kind])
        raw = v.astype(float)
        raw[v == np.array(ALIVE if kind == "u32" else NEVER).astype(v.dtype) if kind in ("u16", "u32") else np.zeros(v.shape, bool)] = np.nan
        raw.tofile(os.path.join(folder, f"{c}.f64"))
        np.save(os.path.join(folder, f"{T}.{name}.npy"), v)
        np.savez_compressed(os.path.join(folder, f"{T}.{name}.npz"), v=v)
        lines.append(f"column {name} {kind} {space} {axis} {flags} {T} {os.path.join(folder, f'{c}.f64')}")
    done = subprocess.run([write_kvf, trace + ".part"], input="\n".join(lines) + "\n", text=True)
    for c in range(len(lines) - 3):
        os.remove(os.path.join(folder, f"{c}.f64"))
    if done.returncode:
        sys.exit("the trace could not be written")
    os.rename(trace + ".part", trace)
    return trace


# ---- check equality, and measure

def compare(kvfate, words, trace, folder, mine):
    path = os.path.join(folder, "table.npz")
    subprocess.run([kvfate, *words, trace, "-o", path], check=True, stdout=subprocess.DEVNULL)
    if "meta" in mine:
        with subprocess.Popen([kvfate, *words, trace, "-o", "-"], stdout=subprocess.PIPE) as p:
            said = p.stdout.read(8192).decode()  # read only the metadata, which come before the many rows
            p.kill()
        meta = dict(x[2:].split(": ", 1) for x in said.split("\n") if x.startswith("# "))
        for key, v in mine.pop("meta").items():
            assert math.isclose(float(meta[key]), float(v), rel_tol=1e-12), (words, key, meta[key], v)
    with np.load(path) as table:
        for key, v in mine.items():
            theirs = table[key]
            if isinstance(v, dict) and "every" in v:
                theirs, v = theirs[v["from"]::v["every"]], v["v"]
            elif isinstance(v, dict):
                v = v["first"]
                theirs = theirs[:len(v)]
            v = np.concatenate(v) if isinstance(v, list) else np.asarray(v)
            same = np.array_equal(theirs, v) if theirs.dtype.kind == "i" else (
                theirs.shape == v.shape and np.allclose(theirs, v, rtol=1e-9, atol=1e-12, equal_nan=True))
            if not same:
                sys.exit(f"{' '.join(words)}: {key} differs from numpy's")
    os.remove(path)


def of_process(argv):
    """Return the wall and CPU seconds of a process."""
    start = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
    _, status, used = os.wait4(pid, 0)
    if status:
        sys.exit(f"{' '.join(argv)} failed")
    return time.perf_counter() - start, used.ru_utime + used.ru_stime


def of_call(f, *argv):
    start, cpu = time.perf_counter(), time.process_time()
    f(*argv)
    return time.perf_counter() - start, time.process_time() - cpu


def main():
    a = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\n")[0])
    a.add_argument("kvfate", type=os.path.abspath)
    a.add_argument("write_kvf", type=os.path.abspath)
    a.add_argument("folder", type=os.path.abspath)
    a.add_argument("--tokens", type=int, default=16384)
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--only", type=lambda s: s.split(","), default=list(STATISTICS))
    a = a.parse_args()
    os.makedirs(a.folder, exist_ok=True)
    trace = write(a.write_kvf, a.folder, a.tokens)
    small = write(a.write_kvf, a.folder, min(a.tokens, 1024))  # for tables with a row per token

    def npy(name, T=a.tokens):
        return np.load(os.path.join(a.folder, f"{T}.{name}.npy"))

    def npz(name):
        with np.load(os.path.join(a.folder, f"{a.tokens}.{name}.npz")) as f:
            return f["v"]

    script = os.path.join(here, "numpy_peer.py")
    print(f"{a.tokens} tokens, {L} layers, {G} query heads, {H} KV heads; trace of {os.path.getsize(trace) / 1e6:.0f} MB; "
          f"medians of {a.rounds}, ms: clock / processor")
    print(f"{'':18} {'kvfate':>15} {'one thread':>15} {'numpy, trace':>15} {'numpy, npy':>15} {'numpy, npz':>15}  ratios of the clock")
    for name in a.only:
        command, peer = STATISTICS[name]
        words = command.split()
        T = min(a.tokens, 1024) if name in ("eviction", "retention") else a.tokens
        path = small if T < a.tokens else trace
        read = Trace(path)
        assert read.T == T
        compare(a.kvfate, words, path, a.folder, peer(read.load, T))
        compare(a.kvfate, words, path, a.folder, peer(lambda n: npy(n, T), T))
        rounds = [[of_process([a.kvfate, *words, trace]), of_process([a.kvfate, *words, trace, "-t", "1"]),
                   of_process([sys.executable, script, name, trace]), of_call(peer, npy, a.tokens), of_call(peer, npz, a.tokens)]
                  for _ in range(a.rounds)]
        ms = [[1000 * statistics.median(x) for x in zip(*way)] for way in zip(*rounds)]
        print(f"{name:18} " + " ".join(f"{wall:7.1f} /{cpu:6.1f}" for wall, cpu in ms)
              + "  " + " ".join(f"{wall / ms[0][0]:6.1f}" for wall, _ in ms[2:]), flush=True)


if __name__ == "__main__":
    main()
