"""Check that figures have equal bytes for any number of threads.  usage: test_threads.py KVFATE WRITE_KVF MAKER.PY

It uses retention gates and evictions of 12 heads and 700 tokens: grids of all heads, of a few with names, and a
single map, which threads share by stripes of columns; with clipped colours, which are counted over threads.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np

KVFATE, WRITE, MAKER = sys.argv[1:4]
sys.path.insert(0, os.path.dirname(MAKER))
from maker import ALIVE, SNAPSHOT, Column, make  # noqa: E402

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import expect, finish, words_of  # noqa: E402

LAYERS, HEADS, TOKENS = 3, 4, 700
THREADS = ["1", "2", "5", "40"]


def trace(path):
    rng = np.random.default_rng(5)
    shape = (LAYERS, HEADS, TOKENS)
    log_beta = -10.0 ** rng.uniform(-4, 0, shape)
    end = np.arange(TOKENS) + 1 + rng.geometric(0.02, shape)
    meta = {"model": {"name": "made-up", "hash": "00", "query_heads": HEADS, "kv_heads": HEADS},
            "run": {"prompt_tokens": 100}, "method": {"name": "trimkv", "budget": 50}}
    columns = [Column("log_beta", "f32", "kv", log_beta),
               Column("evict_step", "u32", "kv", np.where(end > TOKENS, ALIVE, end), flags=SNAPSHOT)]
    columns += [Column(n, kind, "kv", np.zeros(shape), flags=SNAPSHOT)
                for n, kind in (("evict_reason", "u8"), ("evict_score", "f32"), ("evict_margin", "f32"), ("evict_tie", "u8"))]
    make(WRITE, path, columns, (LAYERS, HEADS, HEADS, TOKENS), meta)


def drawn(kvf, out, analysis, threads, more):
    r = subprocess.run([KVFATE, *words_of(analysis, KVFATE), kvf, "-o", out, *more, "-t", threads], capture_output=True, text=True)
    expect(r.returncode == 0, f"{analysis} {more} -t {threads}: exit {r.returncode} {r.stderr}")
    with open(out, "rb") as f:
        return f.read(), r.stdout


def main():
    cases = [("png", []), ("png", ["--head", "1.2"]), ("png", ["--head", "1.0-2", "--vmax", "0.7"]), ("svg", ["--vmin", "0.1"]), ("pdf", []),
             ("png", ["--head", "2.*", "--tokens", "50:420", "--style", "steps=300:"])]
    with tempfile.TemporaryDirectory() as folder:
        kvf = os.path.join(folder, "x.kvf")
        trace(kvf)
        for analysis in ("retention", "eviction"):
            for kind, more in cases:
                out = os.path.join(folder, "x." + kind)
                first, *rest = [drawn(kvf, out, analysis, t, more) for t in THREADS]
                expect(len(first[0]) > 1000, f"{analysis} {more}: {len(first[0])} bytes")
                for t, other in zip(THREADS[1:], rest):
                    expect(other == first, f"{analysis} {kind} {more}: {t} threads draw another figure than 1")
    finish()


if __name__ == "__main__":
    sys.exit(main())
