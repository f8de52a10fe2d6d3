#!/usr/bin/env python3
"""kvfate trace diff: all kinds of differences in columns, texts and headers, made by hand."""
import os
import random
import sys

import numpy as np

from harness import Suite

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "analyze"))
from maker import AGE, ALIVE, SNAPSHOT, Column, make, table

s = Suite()
rng = random.Random(6)
L, H, G, T = 2, 2, 4, 5
NAN = float("nan")
count = 0


def trace(*columns, shape=(L, H, G, T), name=None, **more):
    global count
    count += 1
    return make(s.write_kvf, s.path(name or f"t{count}.kvf"), list(columns), shape, **more)


def values(space, change=()):
    """Returns consecutive numbers; change: (layer, head, index, value)."""
    n = {"run": (1, 1), "kv": (L, H), "query": (L, G)}[space]
    v = np.arange(n[0] * n[1] * T, dtype=float).reshape(*n, T)
    for l, h, i, x in change:
        v[l, h, i] = x
    return v


def rows(a, b, *more):
    """Returns {(kind, name): row} of a comparison, and its exit status."""
    r = s.run(["trace", "diff", a, b, *more, "--json"])
    data, meta = table(s.exe, "trace", "diff", a, b, *more, code=r.returncode)
    s.check("equal is what the status says", (meta["equal"] == "yes") == (r.returncode == 0) and r.returncode in (0, 1), meta, r.returncode)
    names = list(data)
    found = {(row[0], row[1]): dict(zip(names, row)) for row in zip(*data.values())}
    return found, r.returncode


def column(name, left, right, code, **want):
    found, status = rows(trace(left), trace(right))
    row = found["column", left.name]
    s.check(name, status == code and all(row[k] == v for k, v in want.items()), status, row, want)


def plain(space="kv", dtype="u32", change=(), **more):
    return Column("x-x", dtype, space, values(space, change), **more)


# ---- values
column("equal", plain(), plain(), 0, state="equal", compared=L * H * T, differ=0, index=-1, largest=None, a="", b="", type_a="u32 kv token")
column("one value", plain(), plain(change=[(1, 0, 2, 20)]), 1, state="differs", differ=1, undefined=0, head="L1K0", index=2, a="12", b="20", largest=8)
column("the first place, the largest difference", plain("query", "i32", [(0, 1, 4, -5), (1, 3, 0, 1000)]), plain("query", "i32"), 1,
       differ=2, head="L0H1", index=4, a="-5", b="9", largest=965)
column("of the run", plain("run", "f64"), plain("run", "f64", [(0, 0, 3, 3.5)]), 1, differ=1, head="", index=3, a="3", b="3.5", largest=.5)
column("another type, equal values", plain(dtype="u16"), plain(dtype="u32"), 0, state="equal", type_a="u16 kv token", type_b="u32 kv token")
column("f32", plain(dtype="f32", change=[(0, 0, 0, .1)]), plain(dtype="f32", change=[(0, 0, 0, .3)]), 1, a=f"{np.float32(.1):.9g}", b=f"{np.float32(.3):.9g}",
       largest=abs(float(np.float32(.1)) - float(np.float32(.3))))
column("NaN in both", plain(dtype="f32", change=[(0, 1, 1, NAN)]), plain(dtype="f32", change=[(0, 1, 1, NAN)]), 0, state="equal")
column("NaN in one", plain(dtype="f32", change=[(0, 1, 1, NAN)]), plain(dtype="f32"), 1, differ=1, undefined=1, a="nan", b="6", largest=None)
column("zeroes of either sign", plain(dtype="f32", change=[(0, 0, 0, -0.0)]), plain(dtype="f32"), 0, state="equal")
column("alive in both", plain(change=[(0, 0, 1, ALIVE)]), plain(change=[(0, 0, 1, ALIVE)]), 0, state="equal")
column("alive in one", plain(change=[(0, 0, 1, ALIVE), (0, 0, 2, 7)]), plain(), 1, differ=2, undefined=1, a="alive", b="1", largest=5)
age = dict(flags=SNAPSHOT | AGE)
column("never in both, of two widths", plain(dtype="u16", change=[(1, 1, 0, NAN)], **age), plain(dtype="u32", change=[(1, 1, 0, NAN)], **age), 0, state="equal")
column("never in one", plain(dtype="u16", **age), plain(dtype="u16", change=[(1, 1, 0, NAN)], **age), 1, undefined=1, a="15", b="never", largest=None)
column("infinite", plain(dtype="f64", change=[(0, 0, 0, float("inf"))]), plain(dtype="f64", change=[(0, 0, 0, float("inf"))]), 0, state="equal")
column("infinite in one", plain(dtype="f64", change=[(0, 0, 0, float("inf"))]), plain(dtype="f64"), 1, differ=1)
big = 2.0**60
column("u64, equal", plain(dtype="u64", change=[(0, 0, 0, big)]), plain(dtype="u64", change=[(0, 0, 0, big)]), 0, state="equal")
column("u64", plain(dtype="u64", change=[(0, 0, 0, big)]), plain(dtype="u64", change=[(0, 0, 0, big + 256)]), 1, largest=256)
column("other heads", plain("kv"), plain("query"), 1, state="type", type_a="u32 kv token", type_b="u32 query token")
column("other axis", plain(), plain(axis="step"), 1, state="type", type_b="u32 kv step")
column("missing in both", plain(n=3), plain(n=3), 0, state="equal", compared=0)
column("missing in one", plain(), plain(n=3), 1, state="differs", differ=L * H * T, undefined=L * H * T, b="nan")
column("missing in the other", plain(n=3), plain(), 1, state="differs", differ=L * H * T, undefined=L * H * T, a="nan")

# ---- columns
found, status = rows(trace(plain(), Column("x-y", "u8", "kv", values("kv"))), trace(plain(), Column("x-z", "u8", "kv", values("kv"))))
s.check("only in one", status == 1 and found["column", "x-y"]["state"] == "only_a" and found["column", "x-z"]["state"] == "only_b"
        and found["column", "x-x"]["state"] == "equal" and found["column", "x-y"]["type_b"] == "", found)
found, status = rows(trace(Column("x-y", "u8", "kv", values("kv")), plain()), trace(plain(), Column("x-y", "u8", "kv", values("kv"))))
s.check("in another order", status == 0 and all(r["state"] == "equal" for r in found.values()), found)
short = [Column("x-x", "u32", "kv", values("kv")[:, :, :3]), Column("x-w", "u32", "run", range(3))]
found, status = rows(trace(plain(), Column("x-w", "u32", "run", range(T))), trace(*short, shape=(L, H, G, 3)))
s.check("another length", status == 1 and found["column", "x-x"]["state"] == found["column", "x-w"]["state"] == found["text", "tokens"]["state"] == "shape", found)
fewer = [Column("x-x", "u32", "kv", values("kv")[:, :1]), Column("x-w", "u32", "run", range(T)), Column("x-q", "u32", "query", values("query"))]
found, status = rows(trace(plain(), Column("x-w", "u32", "run", range(T)), Column("x-q", "u32", "query", values("query"))), trace(*fewer, shape=(L, 1, G, T)))
s.check("another number of KV heads", status == 1 and found["column", "x-x"]["state"] == "shape" and found["column", "x-w"]["state"] == "equal"
        and found["column", "x-q"]["state"] == "equal", found)

# ---- texts
found, status = rows(trace(plain(), texts=["a", "b"]), trace(plain(), texts=["a", "bc"]))
s.check("texts", status == 1 and found["text", "tokens"]["differ"] == 1 and found["text", "tokens"]["index"] == 1
        and found["text", "tokens"]["b"] == "bc" and found["text", "tokens"]["compared"] == 2, found)
found, status = rows(trace(plain(), texts=["a", "b"]), trace(plain(), texts=["a"]))
s.check("a text more", status == 1 and found["text", "tokens"]["differ"] == 1, found)

# ---- headers
one = {"model": {"name": "m", "hash": "00"}, "method": {"name": "h2o", "budget": 16, "list": [1, {"deep": [True, None]}, []]}, "n": 1.5, "e": {}}
two = {"n": 1.5, "e": {}, "model": {"hash": "00", "name": "m"}, "method": {"budget": 32, "name": "h2o", "list": [1, {"deep": [False, None, "x"]}, {}]}, "more": "5"}
found, status = rows(trace(plain(), meta=one), trace(plain(), meta=two))
heads = {k[1]: (r["state"], r["a"], r["b"]) for k, r in found.items() if k[0] == "header"}
s.check("header", status == 1 and heads == {"method.budget": ("differs", "16", "32"), "method.list[1].deep[0]": ("differs", "true", "false"),
        "method.list[1].deep[2]": ("only_b", "", '"x"'), "method.list[2]": ("differs", "[]", "{}"), "more": ("only_b", "", '"5"')}, heads)
found, status = rows(trace(plain(), meta=one), trace(plain(), meta=two), "--no-header")
s.check("--no-header", status == 0 and not [k for k in found if k[0] == "header"], found)
found, status = rows(trace(plain(), meta={"a": 5}), trace(plain(), meta={"a": "5"}))
s.check("a number is no text", status == 1 and found["header", "a"]["a"] == "5" and found["header", "a"]["b"] == '"5"', found)
deep = "[" * 60 + "1" + "]" * 60
found, status = rows(trace(plain(), meta='{"a":%s}' % deep), trace(plain(), meta='{"a":%s}' % deep.replace("1", "2")))
s.check("deep", status == 1 and found["header", "a" + "[0]" * 60]["b"] == "2", found)

# ---- text output, files, rejections
a, b = trace(plain(), Column("x-y", "u8", "kv", values("kv")), name="a.kvf", meta=one), trace(plain(change=[(1, 0, 2, 20)]), name="b.kvf", meta=two)
r = s.run(["trace", "diff", a, b])
for words in ("  method.budget          16 | 32\n", "  more                   - | \"5\"\n", "  x-x                    1 of 20 differ, first at L1K0 2: 12 | 20; largest difference 8\n",
              "  x-y                    only in A\n", "  0 columns are equal\n"):
    s.check(f"says {words!r}", r.returncode == 1 and words in r.stdout.decode(), r.stdout.decode())
r = s.run(["trace", "diff", a, a])
s.check("equal: says so", r.returncode == 0 and r.stdout == b"  2 columns are equal\n", r)
for ext in ("tsv", "csv", "json", "npz"):
    r = s.run(["trace", "diff", a, b, "-o", s.path("d." + ext)])
    s.check(ext, r.returncode == 1 and os.path.getsize(s.path("d." + ext)) > 100 and b"12 | 20" in r.stdout, r)
s.refused("no file", ["trace", "diff", a, s.path("none.kvf")], 2, "none.kvf")
s.refused("no trace", ["trace", "diff", s.model(0), a], 2, "not a kvfate trace")
s.refused("one operand", ["trace", "diff", a], 2, "missing")
s.refused("figure", ["trace", "diff", a, b, "-o", s.path("x.png")], 2, ".tsv")
s.refused("folder missing", ["trace", "diff", a, b, "-o", s.path("none/x.tsv")], 2, "none/x.tsv")
with open("/dev/full", "wb") as full:
    r = s.run(["trace", "diff", a, a], stdout=full)
    s.check("full stdout", r.returncode == 2 and b"standard output" in r.stderr, r)

# ---- real runs: equal ones, and a damaged copy
run = ["run", "--overwrite", "-m", s.model(0), "-t", "1", "-q", "--raw", "-p", "the thing in there", "-n", "30", "--ignore-eos", "-B", "12"]
for name, method in (("h2o", "h2o"), ("again", "h2o"), ("tova", "tova")):
    s.accepted(name, [*run, "--method", method, "-o", s.path(name + ".kvf")])
found, status = rows(s.path("h2o.kvf"), s.path("again.kvf"))
s.check("equal runs", status == 0 and len(found) > 15, found)
found, status = rows(s.path("h2o.kvf"), s.path("tova.kvf"))
s.check("other runs", status == 1 and found["header", "method.name"]["b"] == '"tova"' and found["column", "evict_step"]["state"] == "differs", found)
whole = open(s.path("h2o.kvf"), "rb").read()
for i in range(40):
    data = bytearray(whole)
    for _ in range(rng.randrange(1, 6)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    bad = s.file("bad.kvf", bytes(data[:rng.randrange(len(data))] if i % 2 else data))
    # 0: the damage hit padding, a checkpoint or the index, without which the records are also
    # found.
    s.survives(f"damage {i}", ["trace", "diff", s.path("h2o.kvf"), bad], (0, 1, 2, 3))
    s.survives(f"damage {i} with itself", ["trace", "diff", bad, bad], (0, 2, 3))
s.finish()
