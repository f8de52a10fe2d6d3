"""A trace of all kinds of columns with known values, and a comparison of other traces with it.

The comparison uses the package kvfate. A piece is given by its tokens and by its layers and
heads."""
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "analyze"), os.path.join(HERE, "..", "format")]
from digest import after, digest, payload, records  # noqa: E402,F401
import kvfate  # noqa: E402
from maker import AGE, ALIVE, SNAPSHOT, Column, make  # noqa: E402

L, H, G, T = 3, 2, 4, 40
TEXTS = [b"" if i % 7 == 3 else b"t%d " % i for i in range(T)]


def columns(seed=5):
    rng = np.random.default_rng(seed)
    evict = np.arange(T) + rng.integers(1, 2 * T, (L, H, T))
    evict[evict > T] = ALIVE
    age = rng.integers(0, T - np.arange(T), (L, G, T))
    age[rng.random((L, G, T)) < 0.1] = 65535
    return [Column("tokens.id", "i32", "run", rng.integers(0, 99, T)), Column("tokens.role", "u8", "run", np.arange(T) >= 30),
            Column("nll", "f32", "run", rng.random(T)), Column("entropy", "f32", "query", rng.random((L, G, T)), axis="step"),
            Column("evict_step", "u32", "kv", evict, flags=SNAPSHOT), Column("mass.sum", "f32", "query", rng.random((L, G, T)), flags=SNAPSHOT),
            Column("mass.max", "f32", "query", rng.random((L, G, T)), flags=SNAPSHOT),
            Column("evict_score", "f32", "kv", np.where(evict < ALIVE, rng.random((L, H, T)), np.nan), flags=SNAPSHOT),
            Column("evict_reason", "u8", "kv", np.where(evict < ALIVE, 1, 0), flags=SNAPSHOT),
            Column("last_selected.top64", "u16", "query", age, flags=SNAPSHOT | AGE),
            Column("received.L1H3.6", "f32", "run", rng.random(T), axis="step"), Column("received.L2H0.21", "f32", "run", rng.random(T), axis="step"),
            Column("x-lab.surprise", "f64", "kv", rng.random((L, H, T)))]


def sample(s, name, seed=5, **more):
    return make(s.write_kvf, s.path(name), columns(seed), (L, H, G, T), {"run": {"prompt_tokens": 30}, "seed": seed}, TEXTS, **more)


def differences(path, a=0, b=T, kept=None, named=None, seed=5):
    """Returns the errors in a trace of the tokens a .. b - 1 with the KV heads `kept` (lists of
    heads by layer). named: renamed columns of the run (None: removed)."""
    t, wrong = kvfate.open(path), []
    kept = kept or {l: list(range(H)) for l in range(L)}
    query = {l: [h * (G // H) + k for h in kept[l] for k in range(G // H)] for l in kept}
    if (t.steps, len(t.heads)) != (b - a, len(kept)):
        return [f"{t.steps} steps, {len(t.heads)} layers"]
    if t.texts != TEXTS[a:b]:
        wrong.append("texts")
    names = set()
    for c in columns(seed):
        name = (named or {}).get(c.name, c.name)
        names.add(name)
        for k, l in enumerate(kept if c.space != "run" else [0]):
            if name is None:
                continue
            want = c.values[None, a:b] if c.space == "run" else c.values[l][kept[l] if c.space == "kv" else query[l], a:b]
            want = np.where(want < ALIVE, want - a, want) if c.name == "evict_step" else want
            got = t[name][:][None] if c.space == "run" else t[name][k]
            if not np.array_equal(got, want.astype(got.dtype), equal_nan=got.dtype.kind == "f"):
                wrong.append(f"{name} of layer {k}")
    if set(t.columns) != names - {None}:
        wrong.append(f"columns {sorted(t.columns)}")
    return wrong
