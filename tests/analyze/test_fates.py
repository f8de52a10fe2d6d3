#!/usr/bin/env python3
"""kvfate fates against numpy on made-up columns, on an empty trace, and its refusals."""
import os
import sys
import tempfile

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, kvfate, refused, said  # noqa: E402
from maker import ALIVE, SNAPSHOT, Column, make, table

write_kvf = os.path.abspath(sys.argv[2])
L, H, G, T, PROMPT = 3, 2, 4, 41, 17
rng = np.random.default_rng(1)
leaves = np.minimum(np.arange(T) + rng.integers(1, 25, (L, H, T)), T)
evict = np.where(rng.random((L, H, T)) < .4, ALIVE, leaves)
gone = np.repeat(evict < ALIVE, G // H, axis=1)
after = T - np.repeat(np.minimum(evict, T), G // H, axis=1)  # queries after it left
hits = np.where(gone & (rng.random((L, G, T)) < .6), rng.integers(0, after + 1), 0)
first = np.where(hits > 0, np.minimum(np.maximum(T - after + rng.integers(-3, 4, (L, G, T)), 0), T - 1), ALIVE)
role = (np.arange(T) >= PROMPT).astype(float)


def expected(steps, tokens, often, heads):
    """rows of step, token, held, missed, from the definitions"""
    rows = []
    for t in steps:
        for i in tokens:
            held = missed = 0
            for l, h in heads:
                left = evict[l, h, i] if evict[l, h, i] != ALIVE else T + 1
                held += i <= t < left
                missed += any(hits[l, g, i] and hits[l, g, i] >= often * (T - left) and t >= max(left, first[l, g, i])
                              for g in range(h * G // H, (h + 1) * G // H))
            rows.append((t, i, held / len(heads), missed / len(heads)) if i <= t else (t, i, None, None))
    return rows


def columns(shadow=True):
    more = [Column("shadow.first_hit", "u32", "query", first, flags=SNAPSHOT),
            Column("shadow.ghost_hits", "u32", "query", hits, flags=SNAPSHOT)]
    return [Column("evict_step", "u32", "kv", evict, flags=SNAPSHOT), Column("tokens.role", "u8", "run", role)] + more * shadow


with tempfile.TemporaryDirectory(prefix="kvfate-fates-") as folder:
    def trace(name, columns, T=T):
        return make(write_kvf, os.path.join(folder, name), columns, (L, H, G, T), {"run": {"prompt_tokens": PROMPT}}, [f" w{i}" for i in range(T)])

    x = trace("x.kvf", columns())
    every = [(l, h) for l in range(L) for h in range(H)]
    begin = PROMPT - 1 - (T - PROMPT) // 8
    for name, more, steps, tokens, often, heads in (
            ("all", [], range(begin, T), range(T), .5, every),
            ("a part", ["--tokens", "3:20", "--from", "5", "--points", "4", "--often", "0.2"], [5, 16, 28, 40], range(3, 20), .2, every),
            ("often 0", ["--from", "0", "--points", "3", "--often", "0"], [0, 20, 40], range(T), 0, every),
            ("one head", ["--head", "L1K1"], range(begin, T), range(T), .5, [(1, 1)])):
        data, _ = table(kvfate, "fates", x, *more)
        want = list(zip(*expected(steps, tokens, often, heads)))
        for column, values in zip(("step", "token", "held", "missed"), want):
            same = len(values) == len(data[column]) and all(
                (a is None) == (b is None) and (a is None or abs(a - b) < 1e-12) for a, b in zip(values, data[column]))
            check(f"{name}: {column}", same, [(k, a, b) for k, (a, b) in enumerate(zip(values, data[column])) if a != b][:4])
    check("texts", data["text"][:2] == [" w0", " w1"] and data["role"][0] == "prompt" and data["role"][T - 1] == "answer", data["text"][:3])
    data, _ = table(kvfate, "fates", trace("bare.kvf", columns(False)))
    check("nothing tells misses", set(data["missed"]) == {None}, set(data["missed"]))
    check("summary", f"{T} tokens in {L * H} heads" in said("fates", x) and "missed" not in said("fates", os.path.join(folder, "bare.kvf")))
    data, _ = table(kvfate, "fates", trace("none.kvf", [Column("evict_step", "u32", "kv", np.zeros((L, H, 0)), flags=SNAPSHOT)], 0))
    check("an empty trace", not data["held"], data)
    two, _ = table(kvfate, "fates", x, os.path.join(folder, "bare.kvf"))
    check("two traces", len(set(two["trace"])) == 2 and len(two["held"]) == 2 * len(expected(range(begin, T), range(T), .5, every)), set(two["trace"]))
    refused("a column is missing", 1, ["fates", trace("nothing.kvf", [])], "evict_step", "--probes evict")
    refused("a step beyond", 2, ["fates", x, "--from", str(T)], "--from", str(T - 1))
    refused("query heads", 2, ["fates", x, "--head", "L0H0"], "KV")

finish()
