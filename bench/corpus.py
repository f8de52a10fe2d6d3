#!/usr/bin/env python3
"""Measure time and memory of `kvfate corpus survival` over N traces of T tokens.

usage: bench/corpus.py KVFATE WRITE_KVF [N [T [DISTINCT]]]     (1000 4096 20)

WRITE_KVF is build/tests/analyze/write_kvf.  The traces have the shape of the default model (30 layers, 9 query
heads) and all seven criteria of last use, with ages that decrease like real ones.  DISTINCT of them are written; the
others are hard links to these.  They are read and analysed like any other, but a document is read N / DISTINCT
times, so the replicates are added DISTINCT times, not N times.  The page cache is warm.  The script prints one line
per setting: wall and CPU seconds, traces per second, peak memory.  It needs numpy.
"""
import os
import resource
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "analyze"))
from maker import AGE, SNAPSHOT, Column, make  # noqa: E402

L, H, G = 30, 3, 9
CRITERIA = {"top64": 0.02, "top128": 0.01, "top256": 0.006, "top512": 0.004, "mass.90": 0.02, "mass.95": 0.01, "mass.99": 0.005}


def write(write_kvf, path, k, T):
    rng = np.random.default_rng(k)
    columns = [Column("tokens.id", "i32", "run", rng.integers(0, 49152, T))]
    for name, rate in CRITERIA.items():
        age = np.minimum(rng.geometric(rate, (L, G, T)) - 1, T - 1 - np.arange(T)).astype(float)
        age[rng.random((L, G, T)) < 0.05] = np.nan
        columns.append(Column("last_selected." + name, "u16", "query", age, flags=SNAPSHOT | AGE))
    make(write_kvf, path, columns, (L, H, G, T), {"run": {"document": k}})


def measure(argv):
    """Return (seconds, CPU seconds, peak bytes) of a command."""
    start = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.execv(argv[0], argv)
    _, status, used = os.wait4(pid, 0)
    if status:
        sys.exit(f"{' '.join(argv)} failed")
    return time.monotonic() - start, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    kvfate, write_kvf = map(os.path.abspath, sys.argv[1:3])
    n, T, distinct = (int(v) for v in (sys.argv[3:6] + ["1000", "4096", "20"][len(sys.argv) - 3:]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory(prefix="kvfate-corpus-") as folder:
        for k in range(min(n, distinct)):
            write(write_kvf, os.path.join(folder, f"{k}.kvf"), k, T)
        for k in range(distinct, n):
            os.link(os.path.join(folder, f"{k % distinct}.kvf"), os.path.join(folder, f"{k}.kvf"))
        size = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
        print(f"{n} traces of {T} tokens, {size / n / 1e6:.1f} MB each, {min(n, distinct)} distinct")
        for more in (["--criterion", "top64"], [], ["--intervals", "all"]):
            for threads in (1, 2):
                wall, cpu, memory = measure([kvfate, "corpus", "survival", folder, "-t", str(threads), *more])
                print(f"survival {' '.join(more):20} threads {threads}: {wall:7.2f} s ({cpu:.2f} s of processor), {n / wall:7.1f} traces/s, {memory / 1e6:.0f} MB", flush=True)


main()
