"""Makes traces with impossible contents, or with declarations that their contents do not match, for
tests of commands that read them. tests/data/hostile has those that no program here would write:

    t24.kvf    2^24 steps in 6 KB: every column is one number, repeated
    huge.kvf   4096 layers of 4096 heads and 2^24 steps, and no values
    fpe01.kvf  a layer without KV heads
    esc.kvf    control characters in the names of the model, of a column and in the answer
"""
import glob
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "analyze"))
from maker import Column, make  # noqa: E402

DATA = os.path.join(HERE, "..", "data", "hostile")
T, L, H, G = 30, 2, 2, 4
rng = np.random.default_rng(1)


def honest():
    """Returns columns that every rule accepts."""
    left = np.arange(T)[::-1] * np.ones((L, G, 1))
    return [Column("tokens.id", "i32", "run", rng.integers(0, 99, T)), Column("tokens.role", "u8", "run", rng.integers(0, 3, T)),
            Column("nll", "f32", "run", rng.random(T)), Column("evict_step", "u32", "kv", np.full((L, H, T), T)),
            Column("evict_reason", "u8", "kv", np.ones((L, H, T))), Column("evict_margin", "f32", "kv", rng.random((L, H, T))),
            Column("log_beta", "f32", "kv", -rng.random((L, H, T))), Column("last_selected.top64", "u16", "query", left, flags=3),
            Column("mass.sum", "f32", "query", rng.random((L, G, T)), flags=1), Column("entropy", "f32", "query", rng.random((L, G, T)), "step"),
            Column("shadow.ghost_hits", "u32", "query", np.ones((L, G, T)), flags=1), Column("shadow.ghost_mass", "f32", "query", np.ones((L, G, T)), flags=1),
            Column("shadow.first_hit", "u32", "query", np.full((L, G, T), T - 1), flags=1), Column("shadow.kept_mass", "f32", "query", np.ones((L, G, T)), "step"),
            Column("x-own.column", "f32", "kv", -1e9 * np.ones((L, H, T)))]


def made(s, name, columns, **more):
    return make(s.write_kvf, s.path(name), columns, (L, H, G, T), texts=["x"] * T, **more)


def spoiled(s, column, value, at=(0, 0, 7), name="bad.kvf"):
    columns = honest()
    for c in columns:
        if c.name == column:
            c.values[at if c.values.ndim == 3 else at[-1]] = value
    return made(s, name, columns)


def beyond_integers(s):
    """Numbers outside the range of integers in integer columns."""
    columns = honest()
    for c in columns:
        if c.name in ("evict_step", "shadow.ghost_hits"):
            c.dtype, c.values[0, 0, 3] = "f64", 1e300
        if c.name == "tokens.id":
            c.dtype, c.values[5] = "f64", np.inf
    return made(s, "big.kvf", columns)


def bomb(s, n):
    """Blobs of zeros that are packed to a few hundred bytes each."""
    return make(s.write_kvf, s.path(f"blobs-{n}.kvf"), honest(), (L, H, G, T), texts=["x"] * T, blobs=[f"x-lab.zeros u8 0 0 {i} {1 << 20} 16" for i in range(n)])


def every(s):
    """Makes all traces: name and file."""
    for path in sorted(glob.glob(os.path.join(DATA, "*.kvf"))):
        yield os.path.basename(path)[:-4], path
    yield "ages", spoiled(s, "shadow.first_hit", 4294967294, name="ages.kvf")
    yield "beyond", beyond_integers(s)
    yield "infinite", spoiled(s, "mass.sum", np.inf, name="infinite.kvf")
    yield "twice", made(s, "twice.kvf", honest(), again=True)
    columns = honest()
    for c in columns:
        c.n = 17 if c.name == "mass.sum" else None
    yield "gap", made(s, "gap.kvf", columns)
    columns = honest()
    columns[8].axis = "step"
    yield "axis", made(s, "axis.kvf", columns)
    yield "empty", make(s.write_kvf, s.path("empty.kvf"), [Column(c.name, c.dtype, c.space, c.values[..., :0], c.axis, c.flags) for c in honest()], (L, H, G, 0))
    yield "torn", made(s, "torn.kvf", honest(), unclosed=True)
    heads = [Column(c.name, c.dtype, c.space, np.resize(c.values[..., :2], (T,) if c.space == "run" else (256, 64, T)), c.axis, c.flags) for c in honest()]
    yield "heads", make(s.write_kvf, s.path("heads.kvf"), heads, (256, 64, 64, T))
    for n in (60, 66):  # below and above the amount that is decoded of any file
        yield f"blobs-{n}", bomb(s, n)
