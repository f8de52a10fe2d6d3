#!/usr/bin/env python3
"""kvfate trace cat: joined parts equal the complete trace, by the digest and values of the package
kvfate. Invalid and non-consecutive parts are rejected."""
import os

from harness import Suite
from sample_trace import differences, digest, kvfate, records, sample

s = Suite()
x, out = sample(s, "x.kvf"), s.path("out.kvf")
s.accepted("parts", ["trace", "split", x, "--parts", "4", "-o", s.path("p%d.kvf")])
p = [s.path(f"p{i}.kvf") for i in range(1, 5)]

s.accepted("joined", ["trace", "cat", *p, "-o", out])
s.check("all is there", differences(out) == [], differences(out))
s.check("the same content", digest(kvfate.open(out)) == digest(kvfate.open(x)) == kvfate.open(out).digest and kvfate.open(out).id == kvfate.open(x).id)
s.check("no note of a part", "part" not in kvfate.open(out).notes, kvfate.open(out).notes)
s.accepted("it verifies", ["trace", "verify", "--full", out])
s.refused("there is one already", ["trace", "cat", *p, "-o", out], 1, "--overwrite")

s.accepted("some of them", ["trace", "cat", p[1], p[2], "-o", s.path("middle.kvf")])
note = kvfate.open(s.path("middle.kvf")).notes["part"]
s.check("a longer part", (note["from"], note["to"], note["of"]) == (10, 30, 40), note)
s.accepted("that can be joined", ["trace", "cat", p[0], s.path("middle.kvf"), p[3], "-o", out, "--overwrite"])
s.check("to the same content", digest(kvfate.open(out)) == digest(kvfate.open(x)))
s.accepted("trimmed ones, too", ["trace", "trim", x, "--tokens", "0:7", "-o", s.path("a.kvf")])
s.accepted("and the rest", ["trace", "trim", x, "--tokens", "7:", "-o", s.path("b.kvf")])
s.accepted("are joined", ["trace", "cat", s.path("a.kvf"), s.path("b.kvf"), "-o", out, "--overwrite"])
s.check("to the same content", digest(kvfate.open(out)) == digest(kvfate.open(x)))

none = ["-o", s.path("none.kvf")]
y = sample(s, "y.kvf", seed=6)
s.accepted("parts of another run", ["trace", "split", y, "--parts", "4", "-o", s.path("q%d.kvf")])
s.refused("another run", ["trace", "cat", p[0], s.path("q2.kvf"), *none], 2, "q2.kvf", "different runs")
s.refused("one is missing", ["trace", "cat", p[0], p[2], *none], 2, "p1.kvf", "p3.kvf", "missing")
s.refused("the wrong order", ["trace", "cat", p[1], p[0], *none], 2, "order")
s.refused("one is there twice", ["trace", "cat", p[0], p[0], *none], 2, "overlap")
s.refused("no part", ["trace", "cat", p[0], x, *none], 2, "x.kvf", "no part")
s.accepted("other heads", ["trace", "trim", p[1], "--head", "L0K*", "-o", s.path("h.kvf")])
s.refused("cannot be joined", ["trace", "cat", p[0], s.path("h.kvf"), *none], 2, "heads")
data = bytearray(open(p[1], "rb").read())
chunk = next(r for r in records(kvfate.open(p[1])) if r["type"] == 4 and r["stored_len"] > 40)
data[chunk["offset"] + 100] ^= 1
s.refused("a damaged part", ["trace", "cat", p[0], s.file("bad.kvf", bytes(data)), *none], 1, "bad.kvf", "damaged")
s.refused("no output", ["trace", "cat", *p], 2, "-o")
s.refused("no parts", ["trace", "cat", *none], 2, "usage")
s.refused("no such file", ["trace", "cat", p[0], s.path("missing.kvf"), *none], 1, "missing.kvf")
s.check("nothing is left", not [n for n in os.listdir(s.work.name) if "none" in n or n.endswith(".part")], os.listdir(s.work.name))
s.finish()
