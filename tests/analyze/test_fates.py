#!/usr/bin/env python3
"""Check kvfate fates against numpy on synthetic columns, on an empty trace, and its errors."""
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
after = T - np.repeat(np.minimum(evict, T), G // H, axis=1)  # queries after its eviction
mass = np.where(gone, rng.random((L, G, T)) * after * 3 / T, 0).astype(np.float32).astype(float)
role = (np.arange(T) >= PROMPT).astype(float)


def expected(steps, tokens, least, heads):
    """Return rows of step, token, held, needed, from the definitions."""
    rows = []
    for t in steps:
        for i in tokens:
            held = needed = 0
            for l, h in heads:
                left = evict[l, h, i] if evict[l, h, i] != ALIVE else T + 1
                held += i <= t < left
                needed += t >= left and any(mass[l, g, i] >= least * (T - left) for g in range(h * G // H, (h + 1) * G // H))
            rows.append((t, i, held / len(heads), needed / len(heads)) if i <= t else (t, i, None, None))
    return rows


def columns(shadow=True):
    more = [Column("shadow.ghost_mass", "f32", "query", mass, flags=SNAPSHOT)]
    return [Column("evict_step", "u32", "kv", evict, flags=SNAPSHOT), Column("tokens.role", "u8", "run", role)] + more * shadow


with tempfile.TemporaryDirectory(prefix="kvfate-fates-") as folder:
    def trace(name, columns, T=T):
        return make(write_kvf, os.path.join(folder, name), columns, (L, H, G, T), {"run": {"prompt_tokens": PROMPT}}, [f" w{i}" for i in range(T)])

    x = trace("x.kvf", columns())
    every = [(l, h) for l in range(L) for h in range(H)]
    begin = PROMPT - 1 - (T - PROMPT) // 8
    for name, more, steps, tokens, least, heads in (
            ("all", [], range(begin, T), range(T), 1 / T, every),
            ("a part", ["--tokens", "3:20", "--from", "5", "--points", "4", "--needed", "0.05"], [5, 16, 28, 40], range(3, 20), .05, every),
            ("any attention", ["--from", "0", "--points", "3", "--needed", "1e-9"], [0, 20, 40], range(T), 1e-9, every),
            ("one head", ["--head", "L1K1"], range(begin, T), range(T), 1 / T, [(1, 1)])):
        data, meta = table(kvfate, "fates", x, *more)
        rows = expected(steps, tokens, least, heads)
        want = list(zip(*rows))
        check(f"{name}: some entries were needed, not all", 0 < sum(r[3] or 0 for r in rows) < sum(1 - r[2] for r in rows if r[2] is not None))
        queries = [(l, g) for l, h in heads for g in range(h * G // H, (h + 1) * G // H)]
        first = min(int(evict[l, h].min()) for l, h in heads)
        lost = sum(mass[l, g, i] for l, g in queries for i in tokens) / len(queries) / (T - first)
        check(f"{name}: lost attention", abs(float(meta["lost_attention"]) - lost) < 1e-12 and int(meta["first_eviction"]) == first, meta, lost)
        check(f"{name}: the threshold", abs(float(meta["needed"]) - least) < 1e-15, meta["needed"])
        for column, values in zip(("step", "token", "held", "needed"), want):
            same = len(values) == len(data[column]) and all(
                (a is None) == (b is None) and (a is None or abs(a - b) < 1e-12) for a, b in zip(values, data[column]))
            check(f"{name}: {column}", same, [(k, a, b) for k, (a, b) in enumerate(zip(values, data[column])) if a != b][:4])
    check("texts", data["text"][:2] == [" w0", " w1"] and data["role"][0] == "prompt" and data["role"][T - 1] == "answer", data["text"][:3])
    data, _ = table(kvfate, "fates", trace("bare.kvf", columns(False)))
    check("lost attention is not recorded", set(data["needed"]) == {None}, set(data["needed"]))
    check("summary", f"{T} tokens in {L * H} heads" in said("fates", x) and "needed" not in said("fates", os.path.join(folder, "bare.kvf")))
    data, _ = table(kvfate, "fates", trace("none.kvf", [Column("evict_step", "u32", "kv", np.zeros((L, H, 0)), flags=SNAPSHOT)], 0))
    check("an empty trace", not data["held"], data)
    two, _ = table(kvfate, "fates", x, os.path.join(folder, "bare.kvf"))
    check("two traces", len(set(two["trace"])) == 2 and len(two["held"]) == 2 * len(expected(range(begin, T), range(T), 1 / T, every)), set(two["trace"]))
    # a cache with a fixed eviction order under several budgets: the attention to evicted entries grows as the budget
    # falls
    order, weight = rng.permutation(PROMPT), rng.random((L, G, T)) ** 4
    weight /= weight.sum(2, keepdims=True)
    shares, losses = [], []
    for budget in (15, 12, 8, 4, 1):
        left = np.full((L, H, T), ALIVE)
        left[:, :, order[budget:]] = PROMPT
        lost = np.where(np.repeat(left, G // H, axis=1) == ALIVE, 0, weight * (T - PROMPT))
        columns_of = [Column("evict_step", "u32", "kv", left, flags=SNAPSHOT), Column("shadow.ghost_mass", "f32", "query", lost, flags=SNAPSHOT),
                      Column("shadow.ghost_hits", "u32", "query", np.zeros((L, G, T)), flags=SNAPSHOT),
                      Column("shadow.first_hit", "u32", "query", np.full((L, G, T), ALIVE), flags=SNAPSHOT)]
        data, meta = table(kvfate, "fates", trace(f"budget{budget}.kvf", columns_of), "--from", str(T - 1))
        shares.append(sum(data["needed"]) / T)
        losses.append(float(meta["lost_attention"]))
    check("a smaller budget loses more attention", all(a < b for a, b in zip(losses, losses[1:])), losses)
    check("and more of its entries were needed", all(a <= b for a, b in zip(shares, shares[1:])) and shares[0] < shares[-1], shares)
    for bad in ("0", "1.5", "x"):
        refused(f"--needed {bad}", 2, ["fates", x, "--needed", bad], "--needed")
    refused("a column is missing", 1, ["fates", trace("nothing.kvf", [])], "evict_step", "--probes evict")
    refused("a step beyond", 2, ["fates", x, "--from", str(T)], "--from", str(T - 1))
    refused("query heads", 2, ["fates", x, "--head", "L0H0"], "KV")

finish()
