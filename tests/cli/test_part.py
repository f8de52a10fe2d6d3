#!/usr/bin/env python3
"""kvfate trace diff --first compared with a brute force over all visible sets, on artificial traces and on
runs."""
import os
import random
import sys

import numpy as np

from harness import Suite

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "analyze"))
from maker import ALIVE, SNAPSHOT, Column, make, table

s = Suite()
rng = random.Random(5)
REASONS = ["alive", "budget", "window", "refused", "architecture", "plan"]


def trace(name, ids, evict, reason=None, score=None, margin=None, space="kv", **more):
    """evict [L][heads][T], -1 = never evicted."""
    evict = np.asarray(evict)
    L, H, T = evict.shape
    columns = [Column("evict_step", "u32", space, np.where(evict < 0, ALIVE, evict), flags=SNAPSHOT)]
    if ids is not None:
        columns.append(Column("tokens.id", "i32", "run", ids))
    for key, dtype, v in (("reason", "u8", reason), ("score", "f32", score), ("margin", "f32", margin)):
        if v is not None:
            columns.append(Column("evict_" + key, dtype, space, v, flags=SNAPSHOT))
    return make(s.write_kvf, s.path(name), columns, (L, H, 2 * H if space == "kv" else H, T), **more)


def visible(evict, T):
    """Returns [L][H][T + 1][T]: query t sees entry i; row T has the entries after the last
    query."""
    e = np.where(np.asarray(evict) < 0, 10**9, evict)
    t, i = np.arange(T + 1)[:, None], np.arange(T)
    return (i <= t) & (t < e[:, :, None, :])


def expected(a, b, T, end=True):
    """Returns per head: first_step, differ, only_a, only_b, earlier_a, earlier_b, equal_steps."""
    va, vb = visible(a, T), visible(b, T)
    rows = []
    for l in range(va.shape[0]):
        for h in range(va.shape[1]):
            other = (va[l, h] != vb[l, h])[:T + end]
            entry = other.any(axis=0)
            ea, eb = (np.where((x[l, h] < 0) | ((x[l, h] >= T) & (not end)), 10**9, np.maximum(x[l, h], np.arange(T)))[entry] for x in (a, b))
            steps = other.any(axis=1)
            rows.append([int(np.argmax(steps)) if steps.any() else -1, int(entry.sum()), int((eb == 10**9).sum()), int((ea == 10**9).sum()),
                         int(((ea < eb) & (eb < 10**9)).sum()), int(((eb < ea) & (ea < 10**9)).sum()), int((~steps[:T]).sum())])
    return rows


KEYS = ["first_step", "differ", "only_a", "only_b", "earlier_a", "earlier_b", "equal_steps"]


def compare(name, a, b, pa, pb, T, *more, end=True):
    rows = expected(a, b, T, end)
    data, meta = table(s.exe, "trace", "diff", "--first", pa, pb, *more)
    got = list(map(list, zip(*(data[k] for k in KEYS))))
    s.check(name + ": heads", got == rows, got, rows)
    cells = sum(r[-1] for r in rows)
    if T:
        s.check(name + ": equal cells", abs(float(meta["equal_cells"]) - cells / (len(rows) * T)) < 1e-12, meta)
    firsts = [r[0] for r in rows if r[0] >= 0]
    s.check(name + ": first step", int(float(meta["first_step"])) == min(firsts, default=-1), meta, firsts)
    s.check(name + ": entries", int(float(meta["entries_differ"])) == sum(r[1] for r in rows))
    return rows, meta


# ---- by hand: one head, 6 tokens
a = np.array([[[-1, 3, 4, -1, -1, -1]]])
b = np.array([[[-1, 3, 5, 6, -1, -1]]])
pa = trace("a.kvf", range(6), a, reason=[[[0, 1, 1, 0, 0, 0]]], score=[[[np.nan, .5, .25, np.nan, np.nan, np.nan]]],
           margin=[[[np.nan, .1, .125, np.nan, np.nan, np.nan]]])
pb = trace("b.kvf", range(6), b, reason=[[[0, 1, 2, 5, 0, 0]]])
rows, meta = compare("by hand", a, b, pa, pb, 6)
# Entry 2 is evicted at 4 in A and at 5 in B: only step 4 differs; entry 3 is evicted after the last
# query of B.
s.check("by hand: row", rows == [[4, 2, 0, 1, 1, 0, 5]], rows)
r = s.accepted("by hand: text", ["trace", "diff", "--first", pa, pb])
out = r.stdout.decode()
for words in ("part at step 4\n", "1 entries of 1 heads of 1 part at step 4\n", "L0K0     entry 2      A: gone at 4, budget, score 0.25, margin 0.125; B: gone at 5, window\n",
              "2 of 6 entries differ (33.33 %)", "only in B 1, earlier in A 1, earlier in B 0", "cells: 83.33 %"):
    s.check(f"by hand: says {words!r}", words in out, out)
data, meta = table(s.exe, "trace", "diff", "--first", pa, pb, "--entries")
s.check("by hand: entries", [data[k] for k in ("head", "token", "step", "evict_step_a", "evict_step_b", "reason_a", "reason_b", "score_a", "margin_a", "score_b")]
        == [["L0K0"] * 2, [2, 3], [4, 6], [4, -1], [5, 6], ["budget", "alive"], ["window", "plan"], [.25, None], [.125, None], [None, None]], data)
r = s.accepted("after the last query", ["trace", "diff", "--first", trace("x.kvf", range(6), np.full((1, 1, 6), -1)), trace("y.kvf", range(6), [[[-1, 6, -1, -1, -1, -1]]])])
s.check("after the last query: says so", b"part at step 6, after the last query" in r.stdout and b"cells: 100.00 %" in r.stdout, r.stdout)
r = s.accepted("equal", ["trace", "diff", "--first", pa, pa])
s.check("equal: says so", b"equal: the same tokens and the same entries in all 1 heads at every step\n" in r.stdout, r.stdout)
data, meta = table(s.exe, "trace", "diff", "--first", pa, pa)
s.check("equal: table", data["first_step"] == [-1] and float(meta["equal_cells"]) == 1 and data["equal_steps"] == [6], data)

# ---- tokens
other = trace("other.kvf", [0, 1, 2, 30, 4, 50], a)
r = s.accepted("tokens alone", ["trace", "diff", "--first", pa, other])
s.check("tokens alone: says so", b"they part at step 3\ntokens part at step 3: id 3 in A, 30 in B; 2 of 6 differ\nthe entries seen are the same in all 1 heads\n" in r.stdout, r.stdout)
r = s.accepted("tokens first", ["trace", "diff", "--first", other, pb])
s.check("tokens first: says so", b"they part at step 3\ntokens part" in r.stdout and b"heads of 1 part at step 4" in r.stdout, r.stdout)
bare = trace("bare.kvf", None, a)
r = s.accepted("no tokens", ["trace", "diff", "--first", pa, bare])
s.check("no tokens: says so", b"tokens are not compared" in r.stdout and b"equal: no difference of tokens known" in r.stdout, r.stdout)

# ---- random traces, compared with all visible sets
for case in range(40):
    L, H, T = rng.randrange(1, 4), rng.randrange(1, 4), rng.randrange(1, 30)
    a = np.array([[[rng.choice([-1, rng.randrange(i + 1, T + 1)]) for i in range(T)] for _ in range(H)] for _ in range(L)])
    b = a.copy()
    for _ in range(rng.randrange(0, 12)):
        l, h, i = rng.randrange(L), rng.randrange(H), rng.randrange(T)
        b[l, h, i] = rng.choice([-1, rng.randrange(i + 1, T + 1)])
    space = rng.choice(["kv", "query"])
    pa, pb = trace("ra.kvf", range(T), a, space=space), trace("rb.kvf", range(T), b, space=space)
    rows, meta = compare(f"random {case}", a, b, pa, pb, T)
    data, _ = table(s.exe, "trace", "diff", "--first", pa, pb, "--entries")
    letter = "K" if space == "kv" else "H"
    diff = [(f"L{l}{letter}{h}", i) for l in range(L) for h in range(H) for i in range(T) if a[l, h, i] != b[l, h, i]]
    s.check(f"random {case}: entries", list(zip(data["head"], data["token"])) == diff, data, diff)
    low = [min(x for x in (a[l, h, i], b[l, h, i]) if x >= 0) for l in range(L) for h in range(H) for i in range(T) if a[l, h, i] != b[l, h, i]]
    s.check(f"random {case}: steps", data["step"] == low, data["step"], low)
    if case % 4 == 0 and diff:
        n = rng.randrange(1, len(diff) + 1)
        short, meta = table(s.exe, "trace", "diff", "--first", pa, pb, "--entries", "-n", n)
        s.check(f"random {case}: -n", short["token"] == data["token"][:n] and int(float(meta.get("rows_left_out", 0))) == len(diff) - n, meta)
        head = rng.choice(diff)[0]
        one, meta = table(s.exe, "trace", "diff", "--first", pa, pb, "--head", head)
        s.check(f"random {case}: --head", one["head"] == [head] and one["differ"] == [sum(d[0] == head for d in diff)], one)

# ---- shapes
T = 20
a = np.array([[[rng.choice([-1, rng.randrange(i + 1, T + 1)]) for i in range(T)] for _ in range(2)]])
pa = trace("long.kvf", range(T), a)
b = np.where(a[:, :, :12] > 12, -1, a[:, :, :12])
pb = trace("short.kvf", range(12), b)
s.refused("other lengths", ["trace", "diff", "--first", pa, pb], 2, "20 tokens and 12 tokens", "--common")
rows, _ = compare("common, equal", a[:, :, :12], b, pa, pb, 12, "--common", end=False)
s.check("common: equal so far", all(r[0] == -1 for r in rows), rows)
b[0, 1, 3], b[0, 0, 11] = (9 if b[0, 1, 3] != 9 else 10), 12
rows, _ = compare("common", a[:, :, :12], b, pa, trace("short.kvf", range(12), b), 12, "--common", end=False)
s.check("common: one entry", rows[0][1] == 0 and rows[1][1] == 1, rows)
s.refused("other layers", ["trace", "diff", "--first", pa, trace("l.kvf", range(T), np.concatenate([a, a]))], 2, "1 layers and 2 layers")
s.refused("other heads", ["trace", "diff", "--first", pa, trace("h.kvf", range(T), a[:, :1])], 2, "2 and 1 KV heads in layer 0")
s.refused("other space", ["trace", "diff", "--first", pa, trace("q.kvf", range(T), a, space="query")], 2, "per KV head", "per query head")
s.refused("no evictions", ["trace", "diff", "--first", pa, make(s.write_kvf, s.path("n.kvf"), [Column("tokens.id", "i32", "run", range(T))], (1, 2, 4, T))], 1, "evict_step", "--probes")
s.refused("evict_step of the run", ["trace", "diff", "--first", pa, make(s.write_kvf, s.path("r.kvf"), [Column("evict_step", "u32", "run", range(T))], (1, 2, 4, T))], 1, "evict_step")
s.refused("values are missing", ["trace", "diff", "--first", pa, make(s.write_kvf, s.path("m.kvf"), [Column("evict_step", "u32", "kv", a, n=5)], (1, 2, 4, T))], 1, "not in the trace")
s.refused("one operand", ["trace", "diff", "--first", pa], 2, "missing")
s.refused("three operands", ["trace", "diff", "--first", pa, pa, pa], 2, "operands")
s.refused("no file", ["trace", "diff", "--first", pa, s.path("none.kvf")], 1, "none.kvf")
s.refused("no trace", ["trace", "diff", "--first", s.model(0), pa], 1, "not a kvfate trace")
s.refused("figure", ["trace", "diff", "--first", pa, pa, "-o", s.path("x.png")], 2, ".tsv")
s.refused("head set", ["trace", "diff", "--first", pa, pa, "--head", "L9K0"], 2, "--head")
r = s.run(["trace", "diff", "--first", pa, trace("open.kvf", range(T), a, unclosed=True)])
s.check("not closed", r.returncode == 3 and b"was not closed" in r.stderr and b"equal" in r.stdout, r)
for steps in ([[[4 * T, T + 1, 0]]], [[[2, 0, 1]]]):  # impossible ones: beyond the end, before the append
    odd = trace("odd.kvf", range(3), np.array(steps))
    s.survives("impossible steps", ["trace", "diff", "--first", odd, trace("fine.kvf", range(3), [[[-1, 2, 3]]])], (0,))
    s.survives("impossible steps, the other way round", ["trace", "diff", "--first", s.path("fine.kvf"), odd, "--entries", "-o", "-"], (0,))
empty = trace("empty.kvf", [], np.zeros((1, 2, 0)))
r = s.survives("no steps", ["trace", "diff", "--first", empty, empty], (3, ))
s.check("no steps: equal", b"equal" in r.stdout)
whole = open(pa, "rb").read()
for i in range(40):
    data = bytearray(whole)
    for _ in range(rng.randrange(1, 6)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    bad = s.file("bad.kvf", bytes(data[:rng.randrange(len(data))] if i % 2 else data))
    s.survives(f"damage {i}", ["trace", "diff", "--first", pa, bad], (0, 1, 2, 3))
    s.survives(f"damage {i} with itself", ["trace", "diff", "--first", bad, bad, "--entries", "-o", "-"], (0, 1, 2, 3))

# ---- runs: two methods, compared with their eviction tables
for method in ("h2o", "window"):
    s.accepted(method, ["run", "--overwrite", "-m", s.model(0), "-t", "1", "-q", "--raw", "-p", "the thing in there and there again", "-n", "40", "--ignore-eos",
                        "--method", method, "-B", "16", "-o", s.path(method + ".kvf")])
pair = [s.path("h2o.kvf"), s.path("window.kvf")]
evict, ids = [], []
for p in pair:
    data, _ = table(s.exe, "eviction", p)
    tokens, _ = table(s.exe, "tokens", p)
    evict.append(np.array(data["evict_step"]).reshape(2, 2, -1))
    ids.append(tokens["id"])
rows, meta = compare("two methods", *evict, *pair, evict[0].shape[2])
s.check("two methods: tokens", int(float(meta["first_token"])) == next((i for i, (x, y) in enumerate(zip(*ids)) if x != y), -1), meta)
for ext in ("tsv", "csv", "json", "npz"):
    s.accepted(ext, ["trace", "diff", "--first", *pair, "-o", s.path("p." + ext)])
s.finish()
