#!/usr/bin/env python3
"""kvfate trace compact: equal content, compared by the package kvfate, in fewer bytes."""
import os
import zipfile

from harness import Suite
from sample_trace import HERE, differences, digest, kvfate, records, sample

s = Suite()
x, out = sample(s, "x.kvf"), s.path("out.kvf")
r = s.accepted("it copies", ["trace", "compact", x, "-o", out])
s.check("all is there", differences(out) == [], differences(out))
s.check("the same content", digest(kvfate.open(out)) == digest(kvfate.open(x)) == kvfate.open(out).digest)
s.check("the same run", kvfate.open(out).id == kvfate.open(x).id)
s.check("the bytes are told", f"{os.path.getsize(x)} bytes before, {os.path.getsize(out)} after".encode() in r.stdout, r.stdout)
s.check("fewer of them", os.path.getsize(out) < os.path.getsize(x), r.stdout)
s.accepted("it verifies", ["trace", "verify", "--full", out])
s.accepted("no difference", ["trace", "diff", x, out])

before = open(out, "rb").read()
s.refused("there is one already", ["trace", "compact", x, "-o", out], 1, "--overwrite")
s.accepted("it is replaced", ["trace", "compact", out, "-o", out, "--overwrite"])
s.check("what is small stays as it is", open(out, "rb").read() == before)

with zipfile.ZipFile(os.path.join(HERE, "..", "format/golden/format-0.1.zip")) as z:
    old = s.file("old.kvf", z.read("closed.kvf"))
s.accepted("of format 0.1", ["trace", "compact", old, "-o", s.path("new.kvf")])
new = kvfate.open(s.path("new.kvf"))
s.check("has the same content in format 1.0", new.format == "1.0" and digest(new) == digest(kvfate.open(old)))

data = bytearray(open(x, "rb").read())
chunk = next(r for r in records(kvfate.open(x)) if r["type"] == 4 and r["stored_len"] > 40)
data[chunk["offset"] + 100] ^= 1
s.refused("a damaged one", ["trace", "compact", s.file("bad.kvf", bytes(data)), "-o", s.path("none.kvf")], 1, "damaged", str(chunk["offset"]))
s.refused("one that was not closed", ["trace", "compact", sample(s, "open.kvf", unclosed=True), "-o", s.path("none.kvf")], 1, "not closed", "repair")
s.check("nothing is left of them", not [n for n in os.listdir(s.work.name) if "none" in n or n.endswith(".part")], os.listdir(s.work.name))
s.refused("no output", ["trace", "compact", x], 2, "-o")
s.refused("no trace", ["trace", "compact", "-o", out], 2, "usage")
s.refused("no such file", ["trace", "compact", s.path("missing.kvf"), "-o", s.path("none.kvf")], 1, "missing.kvf")
s.refused("no such folder", ["trace", "compact", x, "-o", s.path("no/out.kvf")], 1, "no/out.kvf")
s.finish()
