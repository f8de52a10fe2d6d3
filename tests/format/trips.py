#!/usr/bin/env python3
"""Random traces from the library to the reader in Python, and from the writer in Python to the
library.

usage: trips.py TRIPS [--count N] [--seed S] [--keep FOLDER] [--golden ROOT]

TRIPS is the program made from trips.c. A trip is a random trace with all types, spaces, axes and
codecs, snapshots, intervals, blobs, notes, malicious names, NaN with payloads, missing values and
texts, empty data, and maximum sizes. The library writes it, and so does write_kvf.py with other
chunks and codecs. The package kvfate and the library read each file, and the library verifies it
completely. The contents must equal those that were to be written, byte for byte; so must the
digest, and the files' stored digests. With --keep all files stay in the folder. With --golden the
stored files of each version of the format are also read: by the library as files and as memory, and
by the package.
"""
import argparse
import os
import random
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from digest import digest, hexadecimal  # noqa: E402
import kvfate  # noqa: E402
from kvfate.column import BLOB_TYPES  # noqa: E402
from kvfate.trace import DTYPES  # noqa: E402
from write_kvf import AGE, LISTS, SNAPSHOT, Column, Writer  # noqa: E402

U32 = struct.Struct("<I").pack
WIDTH = {**{k: np.dtype(v).itemsize for k, v in DTYPES.items()}, 8: 2, 9: 2}
ODD = ["", " ", "x", "\n", "\x1b[31m", "../../etc/passwd", "\"'`$(reboot)", "\u202e", "é", "漢字", "🙂", "%s%n", "\\", "a" * 60, "\x7f", "NaN", "-1"]


def number_of(*v):
    return b"".join(map(U32, v))


def sized(data):
    return U32(len(data)) + data


def name(r, most, before=""):
    """Returns a random UTF-8 string of at most `most` bytes without zeros."""
    text = before + "".join(r.choice(ODD) for _ in range(r.randint(1, 3))) + r.choice(["", "%d" % r.randint(0, 99)])
    return text.encode()[:most].decode("utf-8", "ignore")


def values(r, n, width):
    """Returns n random elements of the width, as bytes, of all kinds."""
    kind, size = r.randint(0, 6), n * width
    if kind == 0:  # any bits: floats include NaN with payloads
        return r.randbytes(size)
    if kind == 1:
        return r.randbytes(width) * n
    if kind == 2:
        return bytes(size)
    if kind == 3:
        return b"\xff" * size
    if kind == 4:  # small numbers
        return b"".join(r.randint(0, 3).to_bytes(width, "little") for _ in range(n))
    extreme = [0, 1, (1 << 8 * width) - 1, 1 << 8 * width - 1, (1 << 8 * width - 1) - 1]
    extreme += {2: [0x7C00, 0xFC00, 0x7E01, 0x8000, 1], 4: [0x7F800000, 0xFF800000, 0x7F800001, 0xFFC12345, 0x80000000, 1, 0x7F7FFFFF],
                8: [0x7FF << 52, 0xFFF << 52, 0x7FF0000000000001, 0xFFFFFFFFFFFFFFFF, 1 << 63, 1]}.get(width, [])
    if kind == 5:
        return b"".join(r.choice(extreme).to_bytes(width, "little") for _ in range(n))
    run = [r.choice(extreme).to_bytes(width, "little")] * n  # all equal except one
    if n:
        run[r.randrange(n)] = r.randbytes(width)
    return b"".join(run)


def cut(r, a, b):
    """Splits [a, b) into pieces."""
    at = sorted({a, b, *(r.randint(a, b) for _ in range(r.choice([0, 0, 1, 3])))}) if b > a else []
    return list(zip(at, at[1:]))


class Trip:
    """The calls to make, and the contents that must be read."""

    def __init__(self, seed):
        r = self.r = random.Random(seed)
        self.meta = ('{"trip":%d,"odd":"%s"}' % (seed, name(r, 40).replace("\\", "").replace('"', "").translate(dict.fromkeys(range(32))))).encode()
        self.prompt = [r.choice([r.randint(-2**31, 2**31 - 1), 0, 5]) for _ in range(r.choice([0, 0, 1, 9]))]
        self.flags = r.choice([0, 0, 0, 1, 2 if r.random() < 0.05 else 0])
        self.heads = [(r.randint(0, 3), r.randint(0, 4)) for _ in range(r.choice([0, 1, 1, 2, 3]))]
        self.closed = r.random() < 0.95
        self.calls, self.columns = [], []
        for _ in range(r.choice([0, 1, 2, 3, 5])):
            self.add_column()
        self.data = [{} for _ in self.columns]    # (layer, head) -> {index: value}, of streams and the newest snapshot
        self.texts, self.blobs, self.notes = {}, [], {}
        self.steps = self.epoch = 0
        if self.columns and r.random() < 0.003:   # more than a chunk can store
            self.large()
        for epoch in range(1, r.choice([1, 2, 2, 3, 4])):
            self.go_on(epoch)
        if r.random() < 0.3:                      # and data after the last commit
            self.streams(self.steps, self.steps + r.randint(0, 5))

    def add_column(self):
        r = self.r
        c = Column(name(r, 47, "x-"), r.randint(1, 7), r.randint(0, 2), r.randint(0, 1), r.choice([0, SNAPSHOT]), name(r, 15))
        if r.random() < 0.25:
            c.dtype, c.axis, c.flags = 3, 0, SNAPSHOT | LISTS
        elif c.dtype in (1, 2, 3, 7) and r.random() < 0.3:
            c.flags |= AGE
        if c.name not in [k.name for k in self.columns]:
            self.columns.append(c)

    def places(self, column):
        """Returns the layers with their heads."""
        space = self.columns[column].space
        return [(0, 1)] if space == 0 else [(l, h[space - 1]) for l, h in enumerate(self.heads) if h[space - 1]]

    def pieces(self, column, a, b):
        """Returns the data of single calls: layer, heads and indices."""
        for layer, heads in self.places(column):
            for h0, h1 in cut(self.r, 0, heads):
                for t0, t1 in cut(self.r, a, b):
                    if self.r.random() > 0.04:    # otherwise it is missing
                        yield layer, h0, h1 - h0, t0, t1 - t0

    def streams(self, a, b):
        for c, k in enumerate(self.columns):
            if not k.flags & SNAPSHOT:
                for layer, h0, heads, t0, n in self.pieces(c, a, b):
                    self.chunk(c, layer, h0, heads, t0, n, 0)

    def chunk(self, c, layer, h0, heads, t0, n, epoch):
        w = WIDTH[self.columns[c].dtype]
        data = values(self.r, heads * n, w)
        self.calls.append(("C", c, layer, h0, heads, t0, n, epoch, data))
        for h in range(heads):
            held = self.data[c].setdefault((layer, h0 + h), {})
            for i in range(n):
                held[t0 + i] = data[(h * n + i) * w:][:w]

    def large(self):
        c = self.r.randrange(len(self.columns))
        k = self.columns[c]
        if self.places(c) and not k.flags & SNAPSHOT:
            n = (512 << 10) // WIDTH[k.dtype] + self.r.randint(0, 9)
            self.chunk(c, self.places(c)[0][0], 0, 1, 1000, n, 0)  # after all steps

    def lists(self, c, layer, h0, heads, t0, n, epoch, steps):
        lists = []
        for h in range(heads):
            row = []
            for i in range(t0, t0 + n):
                one, at = [], i
                while at < steps and self.r.random() < 0.6:
                    first = self.r.randint(at, steps - 1)
                    one.append((first, self.r.randint(first, steps - 1)))
                    at = one[-1][1] + 2
                row.append(one)
                self.data[c].setdefault((layer, h0 + h), {})[i] = one
            lists.append(row)
        self.calls.append(("I", c, layer, h0, heads, t0, n, epoch, lists))

    def go_on(self, epoch):
        r, a = self.r, self.steps
        b = a + r.choice([0, 1, 2, 7, 20])
        self.streams(a, b)
        for c, k in enumerate(self.columns):
            if k.flags & SNAPSHOT:
                self.data[c] = {}
                for layer, h0, heads, t0, n in self.pieces(c, 0, b):
                    if k.flags & LISTS:
                        self.lists(c, layer, h0, heads, t0, n, epoch, b)
                    else:
                        self.chunk(c, layer, h0, heads, t0, n, epoch)
        for t0, t1 in cut(r, a, b):
            if r.random() > 0.04:
                texts = [r.choice([b"", r.randbytes(3), name(r, 20).encode(), b"\0\0"]) for _ in range(t0, t1)]
                self.calls.append(("T", t0, texts))
                self.texts.update(enumerate(texts, t0))
        for _ in range(r.choice([0, 0, 1, 2])):
            self.blob()
        for _ in range(r.choice([0, 0, 1])):
            key = r.choice(["result", "spans", name(r, 40) or "k"])
            json = r.choice([b"{}", b"[1, null]", b'"\\u0000\\ud83d"', b"0", b'{"a":{"b":[]}}'])
            self.calls.append(("N", key.encode(), json))
            self.notes[key.encode()] = json
        self.calls.append(("M", epoch, b))
        self.epoch, self.steps = epoch, b

    def blob(self):
        r = self.r
        layer = r.randrange(len(self.heads)) if self.heads else 0
        head = r.randrange(max(1, *self.heads[layer])) if self.heads else 0
        shape = [r.choice([1, 1, 2, 3, 5]) for _ in range(r.randint(1, 4))]
        dtype, t0 = r.randint(1, 9), r.choice([0, r.randint(0, 2**24 - 1)])
        data = values(r, int(np.prod(shape)), WIDTH[dtype])
        b = ("B", name(r, 47, "x-"), dtype, layer, head, t0, shape, data, r.random() < 0.5)
        self.calls.append(b)
        self.blobs.append(b[1:8])

    # ---- writers

    def script(self, path):
        """Writes the script for trips.c."""
        out = [b"O", sized(path.encode()), sized(self.meta), sized(struct.pack("<%di" % len(self.prompt), *self.prompt)),
               number_of(self.flags, len(self.heads)), *(number_of(*h) for h in self.heads), U32(len(self.columns)),
               *(c.entry() for c in self.columns)]
        for kind, *c in self.calls:
            out.append(kind.encode())
            if kind == "C":
                out.append(number_of(*c[:7]) + sized(c[7]))
            elif kind == "I":
                flat = [one for row in c[7] for one in row]
                out.append(number_of(*c[:7]) + sized(np.cumsum([len(one) for one in flat]).astype("<u4").tobytes()))
                out.append(sized(b"".join(number_of(*pair) for one in flat for pair in one)))
            elif kind == "T":
                out.append(U32(c[0]) + sized(np.cumsum([len(t) for t in c[1]]).astype("<u4").tobytes()) + sized(b"".join(c[1])))
            elif kind == "B":
                label, dtype, layer, head, t0, shape, data, packed = c
                out.append(number_of(packed, dtype, len(shape), layer, head, t0, *shape, *[0] * (4 - len(shape))) + sized(label.encode()) + sized(data))
            elif kind == "N":
                out.append(sized(c[0]) + sized(c[1]))
            else:
                out.append(number_of(*c))
        return b"".join(out) + (b"X" if self.closed else b"A")

    def codec(self, data, width):
        codecs = [0, 2]
        if data == data[:width] * (len(data) // width):
            codecs.append(1)
        return self.r.choice(codecs)

    def write(self, path):
        """Writes the trace with write_kvf.py."""
        w = Writer(path, self.meta, self.heads, self.columns, self.prompt)
        for kind, *c in self.calls:
            if kind == "C":
                column, layer, h0, heads, t0, n, epoch, data = c
                dtype = np.dtype(DTYPES[self.columns[column].dtype])
                w.chunk(column, layer, h0, t0, epoch, np.frombuffer(data, dtype).reshape(heads, n), self.codec(data, dtype.itemsize))
            elif kind == "I":
                column, layer, h0, _, t0, _, epoch, lists = c
                w.intervals(column, layer, h0, t0, epoch, lists, self.r.choice([0, 2]))
            elif kind == "T":
                w.texts(*c)
            elif kind == "B":
                w.blob(*c[:7], self.codec(c[6], WIDTH[c[1]]))
            elif kind == "N":
                w.note(*c)
            else:
                w.commit(*c)
        self.digest = hexadecimal(w.digest()) if self.closed else "\0" * 32
        self.id = hexadecimal(w.id)
        if self.closed:
            w.close()
        else:
            w.leave()

    # ---- the expected contents, in the format of trips.c

    def held(self, c, layer, head):
        return self.data[c].get((layer, head), {})

    def expected(self, keys=None):
        n = self.steps
        out = [sized(self.meta), number_of(self.closed, n, self.epoch), self.id.encode(), self.digest.encode(), U32(len(self.heads))]
        out += [struct.pack("<HH", *h) for h in self.heads] + [U32(len(self.columns))] + [c.entry() for c in self.columns]
        for c, k in enumerate(self.columns):
            for layer, heads in self.places(c):
                for h in range(heads):
                    held = self.held(c, layer, h)
                    if k.flags & LISTS:
                        out += [bytes([i in held]) + U32(len(held.get(i, []))) + b"".join(number_of(*p) for p in held.get(i, [])) for i in range(n)]
                    else:
                        out.append(bytes(i in held for i in range(n)))
                        out += [held.get(i, bytes(WIDTH[k.dtype])) for i in range(n)]
        out += [bytes([i in self.texts]) + sized(self.texts.get(i, b"")) for i in range(n)]
        out.append(U32(len(self.blobs)))
        for label, dtype, layer, head, t0, shape, data in sorted(self.blobs, key=lambda b: b[2:5]):
            out.append(struct.pack("<48sBBHHI4I", label.encode(), dtype, len(shape), layer, head, t0, *shape, *[0] * (4 - len(shape))) + data)
        keys = self.keys() if keys is None else keys
        out += [bytes([k in self.notes]) + sized(self.notes.get(k, b"")) for k in keys]
        return b"".join(out)

    def keys(self):
        return sorted(self.notes) + [b"no such note"]

    def question(self, path):
        return sized(path.encode()) + U32(self.r.randint(0, 1)) + U32(len(self.keys())) + b"".join(map(sized, self.keys()))

    @staticmethod
    def shown(path, keys):
        """Reads the contents with the package into another Trip."""
        t = kvfate.open(path)
        got = object.__new__(Trip)
        got.meta, got.closed, got.steps, got.epoch, got.heads = t.meta_bytes, t.closed, t.steps, t.epoch, t.heads
        got.id, got.digest = t.id or "0" * 32, digest(t) if t.closed else "\0" * 32
        if t.digest and t.digest != got.digest:
            raise SystemExit("%s: the stored digest is %s, of the values %s" % (path, t.digest, got.digest))
        if t.closed:
            t.verify()
        got.columns = [Column(c.name, {np.dtype(v): k for k, v in DTYPES.items()}[c.dtype], ("run", "kv", "query").index(c.space),
                              ("token", "step").index(c.axis), c.flags, c.unit) for c in t.schema]
        got.data = [{(layer, h): held(c, layer, h) for layer in range(c.layers) for h in range(c.heads(layer))} for c in t.schema]
        got.texts, got.notes = {i: text for i, text in enumerate(t.texts) if text is not None}, t.note_bytes
        kinds = {v: k for k, v in BLOB_TYPES.items()}
        got.blobs = [(b.name, kinds[b.dtype], b.layer, b.head, b.t0, list(b.shape), b.data.tobytes()) for b in t.blobs]
        return got.expected(keys)


def held(column, layer, head):
    """Returns {index: value} of one head: the bytes, or the list of intervals."""
    there = np.flatnonzero(column.present(layer, head)).tolist()
    if len(there) < column.trace.steps:  # missing values are reported, and the rest is read one by one
        try:
            column[layer, head] if column.space != "run" else column[:]
            raise SystemExit("column %s: values are missing, and that is not said" % column.name)
        except kvfate.MissingValues:
            one = [column.read(layer, head, i, i + 1)[0] for i in there]
    else:
        one = column.read(layer, head)
    return {i: [tuple(p) for p in v.tolist()] if column.intervals else v.tobytes() for i, v in zip(there, one)}


def compare(what, seed, got, want):
    if got != want:
        at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        raise SystemExit("trip of seed %d: %s: byte %d of %d differs (of %d expected)" % (seed, what, at, len(got), len(want)))


def batch(program, seeds, folder):
    """Runs the trips of these seeds, which give two files each."""
    trips, questions, want = [], [], []
    path = lambda who, seed: os.path.join(folder, "%s-%d.kvf" % (who, seed))  # noqa: E731
    with open(os.path.join(folder, "write"), "wb") as f:
        for seed in seeds:
            trips.append(Trip(seed))
            f.write(trips[-1].script(path("c", seed)))
    subprocess.run([*program, "write", f.name], check=True)
    for seed, trip in zip(seeds, trips):
        trip.write(path("py", seed))
        if not trip.closed:
            os.rename(path("py", seed), path("py", seed) + ".unfinished")
        expected = trip.expected()
        for who in ("c", "py"):
            real = path(who, seed) + ("" if trip.closed else ".unfinished")
            compare("the package of what %s wrote" % who, seed, Trip.shown(real, trip.keys()), expected)
            questions.append(trip.question(path(who, seed) if trip.closed or trip.r.randint(0, 1) else real))
            want.append((seed, who, expected))
    Path(os.path.join(folder, "read")).write_bytes(b"".join(questions))
    subprocess.run([*program, "read", os.path.join(folder, "read"), os.path.join(folder, "out")], check=True)
    with open(os.path.join(folder, "out"), "rb") as f:
        for seed, who, expected in want:
            compare("the library of what %s wrote" % who, seed, f.read(len(expected)), expected)
        compare("behind the end", seeds[-1], f.read(), b"")


def golden(program, root, folder):
    """Reads all stored files, each read and mapped; the library's output goes to golden.out."""
    files, out = [], os.path.join(folder, "golden.out")
    for version in ("0.1", "1.0"):
        with zipfile.ZipFile(os.path.join(root, "tests/format/golden/format-%s.zip" % version)) as z:
            z.extractall(os.path.join(folder, version))
            files += [os.path.join(folder, version, name) for name in sorted(z.namelist())]
    shown = b""
    for path in files:
        both = []
        for mapped in (0, 1):
            Path(os.path.join(folder, "read")).write_bytes(sized(path.encode()) + number_of(mapped, 2) + sized(b"result") + sized(b"no such note"))
            subprocess.run([*program, "read", os.path.join(folder, "read"), out], check=True)
            both.append(Path(out).read_bytes())
        compare("%s, mapped" % path, 0, *both)
        compare("the package of %s" % path, 0, Trip.shown(path, [b"result", b"no such note"]), both[0])
        shown += both[0]
    Path(out).write_bytes(shown)
    print("%d stored files, %d bytes of contents" % (len(files), len(shown)))


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("program", nargs="+")
    p.add_argument("--count", type=int, default=100)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--keep")
    p.add_argument("--golden")
    a = p.parse_args()
    if a.keep:
        os.makedirs(a.keep, exist_ok=True)
    if a.golden:
        with tempfile.TemporaryDirectory() as folder:
            golden(a.program, a.golden, a.keep or folder)
    done = 0
    for first in range(a.seed, a.seed + a.count, 100):
        seeds = range(first, min(first + 100, a.seed + a.count))
        if a.keep:
            batch(a.program, seeds, a.keep)
        else:
            with tempfile.TemporaryDirectory() as folder:
                batch(a.program, seeds, folder)
        done += len(seeds)
        if done % 5000 == 0:
            print("%d trips, as they should be" % done, flush=True)
    print("%d trips, as they should be: seeds %d to %d" % (done, a.seed, a.seed + a.count - 1))


if __name__ == "__main__":
    main()
