#!/usr/bin/env python3
"""kvfate trace split: every part compared by the package kvfate, and all rejections."""
import glob
import os
import sys

import numpy as np

from harness import Suite
from sample_trace import HERE, T, differences, digest, kvfate, sample

s = Suite()
x = sample(s, "x.kvf")


def named(a):
    """Columns with a token in their name count from the part's first token."""
    return {n: f"{n[:n.rindex('.')]}.{int(n[n.rindex('.') + 1:]) - a}" for n in ("received.L1H3.6", "received.L2H0.21")}


for how, bounds in ((["--steps", "15"], [0, 15, 30, 40]), (["--parts", "3"], [0, 13, 26, 40]), (["--steps", "99"], [0, 40])):
    s.accepted("splits " + " ".join(how), ["trace", "split", x, *how, "-o", s.path("p%d.kvf")])
    paths = sorted(glob.glob(s.path("p*.kvf")))
    s.check("as many parts", len(paths) == len(bounds) - 1, paths)
    for path, a, b in zip(paths, bounds, bounds[1:]):
        s.check(f"tokens {a} to {b - 1}", differences(path, a, b, named=named(a)) == [], differences(path, a, b, named=named(a)))
        t = kvfate.open(path)
        s.check("says what it is a part of", t.notes["part"] == {"from": a, "to": b, "of": T, "whole": digest(kvfate.open(x))}, t.notes)
        s.check("is of the run", t.id == kvfate.open(x).id and digest(t) == t.digest)
        s.accepted("verifies", ["trace", "verify", "--full", path])
        os.remove(path)

s.accepted("many parts", ["trace", "split", x, "--parts", "12", "-o", s.path("p%d.kvf")])
s.check("numbers of one length", sorted(map(os.path.basename, glob.glob(s.path("p*.kvf")))) == ["p%02d.kvf" % i for i in range(1, 13)])
os.remove(s.path("p01.kvf"))
s.refused("one name is taken", ["trace", "split", x, "--parts", "12", "-o", s.path("p%d.kvf")], 1, "p02.kvf", "--overwrite")
s.check("nothing was written", not os.path.exists(s.path("p01.kvf")))
s.accepted("they are replaced", ["trace", "split", x, "--parts", "12", "-o", s.path("p%d.kvf"), "--overwrite"])

q = ["-o", s.path("q%d.kvf")]
s.refused("no way", ["trace", "split", x, *q], 2, "--steps", "--parts")
s.refused("two ways", ["trace", "split", x, "--steps", "3", "--parts", "3", *q], 2, "either")
s.refused("no pattern", ["trace", "split", x, "--steps", "3"], 2, "-o")
s.refused("no number in it", ["trace", "split", x, "--steps", "3", "-o", s.path("q.kvf")], 2, "%d")
s.refused("two numbers in it", ["trace", "split", x, "--steps", "3", "-o", s.path("q%d%d.kvf")], 2, "%d")
s.refused("more parts than tokens", ["trace", "split", x, "--parts", "41", *q], 2, "40 tokens")
s.refused("no step", ["trace", "split", x, "--steps", "0", *q], 2, "--steps")
s.refused("not closed", ["trace", "split", sample(s, "open.kvf", unclosed=True), "--parts", "2", *q], 1, "not closed", "repair")
s.refused("no trace", ["trace", "split", s.file("text", b"text"), "--parts", "2", *q], 1, "text")
# Chunks over all tokens would be decoded for each part: 192 MiB of one number in a file of some
# hundred bytes, 512 times.
sys.path.insert(0, os.path.join(HERE, "..", "format"))
from write_kvf import Column, Writer  # noqa: E402

HEADS, STEPS = 16, 131072
w = Writer(s.path("wide.kvf"), b"{}", [(HEADS, HEADS)], [Column(f"x-{i}", 6, 1) for i in range(12)])
for i in range(12):
    w.chunk(i, 0, 0, 0, 0, np.full((HEADS, STEPS), 7.0), codec=1)
w.commit(1, STEPS)
w.close()
assert os.path.getsize(s.path("wide.kvf")) < 4096
s.bounded("parts that decode too much", ["trace", "split", s.path("wide.kvf"), "--parts", "512", *q], (1,), seconds=5, words=("pieces",))
s.bounded("fewer parts", ["trace", "split", s.path("wide.kvf"), "--parts", "4", "-o", s.path("wide%d.kvf")], (0,))
s.check("nothing is left", not glob.glob(s.path("q*")), glob.glob(s.path("q*")))
s.finish()
