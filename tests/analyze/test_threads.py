#!/usr/bin/env python3
"""usage: test_threads.py KVFATE WRITE_KVF

Check that the table of every analysis with threads has equal bytes for 1, 2, 3 and 7 of them, and so has the error
if several columns are damaged: that of the first head in loop order.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path += [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", d) for d in (".", "format")]
from digest import COLUMN, records  # noqa: E402
from kvfate.trace import open_trace  # noqa: E402
from check import check, finish, kvfate  # noqa: E402
from maker import AGE, ALIVE, SNAPSHOT, Column, make

write_kvf = os.path.abspath(sys.argv[2])
L, H, G, T = 5, 2, 4, 300
CRITERIA = ("top64", "top128", "top256", "top512", "mass.90", "mass.95", "mass.99")
COMMANDS = (
    "survival", "survival --space kv-union --gap top64,mass.90", "survival --skip-trivial", "size --as sparsity", "size --as sparsity --kind last-use",
    "size --as sparsity --kind beta --triangle lt", "where --step 200", "size --as kv-size --window 5", "size --every 3", "survival --as hazard",
    "survival --as hazard --space kv-mean --grace 9", "overlap", "overlap --candidates own", "dilution", "dilution --mean", "survival --as intermittency",
    "survival --as intermittency --space kv-mean", "survival --as persistence", "survival --as persistence --space kv-union", "missed --as regret", "missed --as regret --mean",
    "survival --head L1-3H1,L4H*", "survival --as hazard --tokens 17:200", "eviction", "eviction --tokens 9:250 --head L1-4K1", "retention",
    "retention --criterion mass.95", "missed", "fates", "retention --source last-use", "retention --tokens 9:250")


def columns(rng):
    born = np.arange(T)

    def heads(n, make_values):
        return np.array([[make_values() for _ in range(n)] for _ in range(L)], float)

    def age():
        a = np.minimum(rng.geometric(0.02, T) - 1, T - 1 - born).astype(float)
        a[rng.random(T) < 0.1] = np.nan
        return a

    def evict():
        e = born + 1 + rng.integers(0, 400, T)
        return np.where(e > T, ALIVE, e)

    yield Column("tokens.id", "i32", "run", rng.integers(0, 9, T))
    yield Column("tokens.role", "u8", "run", born >= 100)
    for name in CRITERIA:
        yield Column("last_selected." + name, "u16", "query", heads(G, age), flags=SNAPSHOT | AGE)
    yield Column("evict_step", "u32", "kv", heads(H, evict))
    yield Column("evict_reason", "u8", "kv", heads(H, lambda: rng.integers(1, 6, T)))
    for name in ("evict_score", "evict_margin"):
        yield Column(name, "f32", "kv", heads(H, lambda: rng.standard_normal(T).astype(np.float32)))
    yield Column("evict_tie", "u8", "kv", heads(H, lambda: rng.random(T) < 0.1))
    yield Column("log_beta", "f32", "kv", heads(H, lambda: -np.exp(rng.uniform(-12, 0, T))))
    for w in range(4):
        yield Column(f"window.{w}", "f32", "kv", heads(H, lambda: rng.exponential(0.001, T).astype(np.float32)), flags=SNAPSHOT)
    for name in ("top64", "mass.95"):
        for family in ("n_selected", "n_returns", "longest_gap"):
            yield Column(f"{family}.{name}", "u16", "query", heads(G, lambda: np.minimum(rng.geometric(0.05, T) - 1, T - born)), flags=SNAPSHOT)
        yield Column(f"first_unselected.{name}", "u16", "query", heads(G, age), flags=SNAPSHOT | AGE)
    yield Column("selected_at.top64", "u32", "query", heads(G, lambda: rng.integers(0, 512, T)), flags=SNAPSHOT)
    for name in ("shadow.kept_mass", "shadow.oracle_mass", "useful.top64", "dilution.top64"):
        yield Column(name, "f32", "query", heads(G, lambda: np.where(rng.random(T) < 0.1, np.nan, rng.random(T)).astype(np.float32)), axis="step")
    yield Column("shadow.ghost_hits", "u32", "query", heads(G, lambda: rng.integers(0, 9, T)), flags=SNAPSHOT)
    yield Column("shadow.first_hit", "u32", "query", heads(G, lambda: np.where(rng.random(T) < 0.5, 2 ** 32 - 1, rng.integers(0, T, T))), flags=SNAPSHOT)
    yield Column("shadow.ghost_mass", "f32", "query", heads(G, lambda: rng.random(T).astype(np.float32)), flags=SNAPSHOT)
    yield Column("size.top64", "u16", "query", heads(G, lambda: np.minimum(64, born + 1)), axis="step")
    for k in range(16):
        yield Column(f"near.all.{k}", "u16", "query", heads(G, lambda: np.minimum(1 + rng.poisson(2 ** (k / 2), T), born + 1)), axis="step")


def run(words, trace, threads):
    """Return the table and the message."""
    argv = [kvfate, *words.split(), trace] + (["-t", str(threads)] if threads else [])
    table, text = (subprocess.run(argv + more, capture_output=True) for more in (["-o", "-"], []))
    assert (table.returncode, table.stderr) == (text.returncode, text.stderr)
    return table.returncode, table.stdout, table.stderr, text.stdout


def damage(trace, places):
    """Flip a byte of the values of (column, layer); return the offset of the record of the first."""
    t = open_trace(trace)
    of = {name: column.number for name, column in t.columns.items()}
    at = {(name, layer): min(r["offset"] for r in records(t) if r["type"] == COLUMN and (r["column"], r["layer"]) == (of[name], layer))
          for name, layer in places}
    with open(trace, "r+b") as f:
        for offset in at.values():
            f.seek(offset + 80)
            byte = f.read(1)[0]
            f.seek(offset + 80)
            f.write(bytes([byte ^ 1]))
    return [at[p] for p in places]


with tempfile.TemporaryDirectory(prefix="kvfate-threads-") as folder:
    trace = make(write_kvf, os.path.join(folder, "x.kvf"), list(columns(np.random.default_rng(7))), (L, H, G, T), {"run": {"prompt_tokens": 100}})
    for words in COMMANDS:
        one = run(words, trace, 1)
        check(words, one[0] == 0 and len(one[1]) > 300 and len(one[3]) > 60 and not one[2], *one[2:])
        for n in (0, 2, 3, 7):
            check(f"{words}, {n} threads", run(words, trace, n) == one)
    places = [("last_selected.top64", 4), ("last_selected.top128", 0), ("last_selected.mass.99", 2), ("evict_step", 3), ("evict_step", 1), ("log_beta", 2),
              ("evict_margin", 4)]
    offsets = damage(trace, places)
    for words, first in (("survival", offsets[0]), ("survival --criterion top128,mass.99", offsets[1]), ("survival --as hazard", offsets[0]),
                         ("where", offsets[4]), ("size --as kv-size", offsets[4]), ("size", offsets[4]), ("eviction", offsets[4]),
                         ("retention", offsets[5]), ("retention --source last-use", offsets[0])):
        for n in (1, 2, 3, 7, 7, 7):
            code, out, text, said = run(words, trace, n)
            check(f"{words}, damaged, {n} threads", code == 1 and not out and not said and f"byte {first} ".encode() in text and text.count(b"\n") == 1, code, text, first)
finish()
