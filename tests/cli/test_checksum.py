#!/usr/bin/env python3
"""kvfate trace checksum: the digest compared with the one computed in Python, and all errors."""
import os
import struct
import sys
import zipfile

import numpy as np

from harness import Suite

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "analyze"))
sys.path.insert(0, os.path.join(HERE, "..", "format"))
from maker import AGE, SNAPSHOT, Column, make  # noqa: E402
from digest import digest as computed  # noqa: E402
import kvfate  # noqa: E402
from kvfate.checksums import crc32c  # noqa: E402

s = Suite()
L, H, G, T = 2, 2, 4, 5
rng = np.random.default_rng(3)
columns = [Column("nll", "f32", "run", rng.standard_normal(T)), Column("evict_step", "u32", "kv", rng.integers(0, 9, (L, H, T)), flags=SNAPSHOT),
           Column("x-age", "u16", "query", rng.integers(0, 9, (L, G, T)), flags=SNAPSHOT | AGE)]


def digest(*argv):
    r = s.run(["trace", "checksum", *argv])
    return r.stdout.decode().split()[::2] if r.returncode == 0 else r


x = make(s.write_kvf, s.path("x.kvf"), columns, (L, H, G, T))
want = computed(kvfate.open(x))
s.check("as Python computes it", digest(x) == [want], digest(x), want)
s.check("stored", digest("--stored", x) == [want])
s.check("several", digest(x, x) == [want, want])
columns[0].values[2] += 1
y = make(s.write_kvf, s.path("y.kvf"), columns, (L, H, G, T))
s.check("another value", digest(y) == [computed(kvfate.open(y))] != [want])

data = bytearray(open(x, "rb").read())
data[-24] ^= 1  # of the digest in the footer, which gets a correct checksum
struct.pack_into("<I", data, len(data) - 4, crc32c(bytes(data[-64:-4])))
told = s.file("told.kvf", bytes(data))
s.refused("another digest told", ["trace", "checksum", told], 1, "digest of its writer is")
s.refused("verify notices, too", ["trace", "verify", "--full", told], 1, "digest")
r = s.run(["trace", "checksum", told, x])
s.check("one fails, the other is told", r.returncode == 1 and r.stdout.decode().split() == [want, x], r)

with zipfile.ZipFile(os.path.join(HERE, "..", "format/golden/format-0.1.zip")) as z:
    old, cut = (s.file(n, z.read(n)) for n in ("closed.kvf", "unfinished.kvf"))
s.check("of format 0.1", digest(old) == [computed(kvfate.open(old))])
s.refused("none is stored in format 0.1", ["trace", "checksum", "--stored", old], 1, "0.1")
s.refused("not closed", ["trace", "checksum", cut], 1, "not closed")
s.refused("none is stored", ["trace", "checksum", "--stored", cut], 1, "not closed")
s.refused("no trace", ["trace", "checksum"], 2, "usage")
s.refused("an unknown option", ["trace", "checksum", x, "--nothing"], 2, "--nothing")
s.refused("no such file", ["trace", "checksum", s.path("none.kvf")], 1, "none.kvf")
s.refused("no trace but text", ["trace", "checksum", s.file("text", b"text")], 1, "text")
s.finish()
