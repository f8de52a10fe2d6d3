#!/usr/bin/env python3
"""Prints a trace byte by byte, as in listing.txt.

usage: listing.py X.kvf
"""
import struct
import sys

from digest import after, entry_of, lists, payload as stored, records as records_of
import kvfate
from kvfate.records import BLOB, CHECKPOINT, COLUMN, COMMIT, ENTRY, INDEX, INTERVALS, META, NOTE, SCHEMA, TOKENS
from kvfate.trace import SPACES

NAMES = {META: "META", SCHEMA: "SCHEMA", TOKENS: "TOKENS", COLUMN: "COLUMN", NOTE: "NOTE", COMMIT: "COMMIT",
         CHECKPOINT: "CHECKPOINT", INDEX: "INDEX", INTERVALS: "INTERVALS", BLOB: "BLOB"}
TYPES = {1: "u8", 2: "u16", 3: "u32", 4: "i32", 5: "f32", 6: "f64", 7: "u64", 8: "f16", 9: "bf16"}
CODECS = ("raw", "constant", "shuffle and zstd")


class Listing:
    def __init__(self, data):
        self.data, self.at, self.out = data, 0, []

    def title(self, text):
        self.out += ["", "    # " + text]

    def put(self, n, text="", per=16):
        """Prints the next n bytes, `per` per line, with the text next to the first line."""
        for k in range(0, n, per):
            part = self.data[self.at + k:self.at + min(k + per, n)]
            line = "    %08x  %s" % (self.at + k, part.hex(" "))
            self.out.append(("%-63s%s" % (line, text)) if text and not k else line)
        self.at += n

    def padding(self, to):
        if to > self.at:
            self.put(to - self.at, "padding")


def header(p):
    p.title("file header")
    p.put(8, "magic")
    p.put(4, "major 1, minor 0")
    p.put(4, "length of this header, 64")
    p.put(12, "features: incompatible bit 0 (chained)")
    p.put(4, "salt: the lowest 32 bits of the run id")
    p.put(16, "run id: XXH3-128 of the run header and the prompt's tokens")
    p.put(12, "zero")
    p.put(4, "CRC-32C of bytes 0 to 59")


def record_header(p, r, number):
    p.title("record %d at %d: %s" % (number, r["offset"], NAMES[r["type"]]))
    p.put(8, "sync, header length 88, type %d, flags %d" % (r["type"], r["flags"]))
    p.put(8, "seq %d" % r["seq"])
    p.put(16, "stored_len %d, raw_len %d" % (r["stored_len"], r["raw_len"]))
    p.put(8, "column %d, layer %d, head0 %d" % (r["column"], r["layer"], r["head0"]))
    codec = " (%s)" % CODECS[r["codec"]] if r["type"] in (COLUMN, INTERVALS, BLOB) else ""
    p.put(12, "t0 %d, n %d, codec %d%s" % (r["t0"], r["n"], r["codec"], codec))
    p.put(8, "payload_crc, salt")
    p.put(8, "epoch %d, n_heads %d, zero" % (r["epoch"], r["n_heads"]))
    p.put(8, "offset %d" % r["offset"])
    p.put(8, "link: XXH3-64 of the %s" % ("header of record %d" % (number - 1) if number else "file header"))
    p.put(4, "header_crc")


def schema(p, t):
    p.put(4, "%d layer" % len(t.heads))
    for kv, query in t.heads:
        p.put(4, "%d KV head, %d query heads" % (kv, query))
    p.put(4, "%d columns" % len(t.columns))
    for c in t.schema:
        p.put(48, 'name "%s"' % c.name)
        dtype, space, axis, flags = p.data[p.at:p.at + 4]
        said = [w for bit, w in ((1, "snapshot"), (2, "age"), (4, "intervals")) if flags & bit]
        p.put(4, "%s, %s, %s, %s" % (TYPES[dtype], SPACES[space], ("token", "step")[axis], " and ".join(said) or "no flags"))
        p.put(16, 'unit "%s"' % c.unit)


def column(p, t, r):
    c = t.schema[r["column"]]
    values = t.values.decoded(entry_of(t, r), c)
    if r["codec"]:
        p.put(r["stored_len"], "%d: the one element, repeated" % values[0, 0])
        return
    for k, row in enumerate(values):
        said = ["never" if v == c.never else str(v) for v in row]
        p.put(row.nbytes, "%s head %d: %s" % (c.space, r["head0"] + k, ", ".join(said)))


def intervals(p, t, r):
    held = lists(t, entry_of(t, r))
    p.put(4 * len(held), "end: " + ", ".join(str(sum(map(len, list(held.values())[:k + 1]))) for k in range(len(held))))
    for (head, token), pairs in held.items():
        if pairs:
            p.put(8 * len(pairs), "token %d: " % token + " and ".join("step %d to %d" % x for x in pairs))


def blob(p, t, r):
    b = next(b for b in t.blobs if b.offset == r["offset"])
    p.put(48, 'name "%s"' % b.name)
    dtype, rank = p.data[p.at:p.at + 2]
    p.put(8, "%s, %d dimensions, zero" % (TYPES[dtype], rank))
    p.put(16, "shape " + " x ".join(map(str, b.shape)))
    p.put(8, "XXH3-64 of the 72 bytes before")
    for k, row in enumerate(b.data):
        p.put(row.nbytes, "%d: %s" % (b.t0 + k, ", ".join("%g" % v for v in row)))


def payload(p, t, r):
    kind, data = r["type"], stored(t, r)
    if kind == META:
        p.put(len(data), "the run header: " + data.decode())
    elif kind == SCHEMA:
        schema(p, t)
    elif kind == TOKENS:
        ends = struct.unpack_from("<%dI" % r["n"], data)
        p.put(4 * r["n"], "end: " + ", ".join(map(str, ends)))
        p.put(len(data) - 4 * r["n"], ", ".join('"%s"' % t.texts[i].decode() for i in range(r["n"])))
    elif kind == COLUMN:
        column(p, t, r)
    elif kind == INTERVALS:
        intervals(p, t, r)
    elif kind == BLOB:
        blob(p, t, r)
    elif kind == NOTE:
        key, _, text = data.partition(b"\0")
        p.put(len(key) + 1, 'key "%s", zero' % key.decode())
        p.put(len(text), text.decode())
    elif kind == COMMIT:
        p.put(8, "epoch %d, %d steps" % struct.unpack("<II", data))
    elif kind == CHECKPOINT:
        p.put(64, "a copy of the file header")


def index(p, t):
    for e in t._file.records:
        p.put(ENTRY.itemsize, "%s at %d; the last 8 bytes: XXH3-64 of its header" % (NAMES[e["type"]], e["offset"]))


def footer(p, t):
    p.title("footer")
    p.put(8, '"KVFEND\\r\\n"')
    p.put(8, "the index is at %d" % t._file.end)
    p.put(8, "%d records listed" % len(t._file.records))
    p.put(8, "XXH3-64 of the header of the index")
    p.put(8, "closed properly; salt")
    p.put(16, "digest of the content")
    p.put(4, "zero")
    p.put(4, "CRC-32C of bytes 0 to 59 of the footer")


def listing(path):
    """Returns the text with lines indented by four."""
    t = kvfate.open(path)
    with open(path, "rb") as f:
        p = Listing(f.read())
    header(p)
    records = records_of(t) + [t._file.header_at(t._file.end, len(p.data))]
    for number, r in enumerate(records):
        record_header(p, r, number)
        if r["type"] == INDEX:
            index(p, t)
        else:
            payload(p, t, r)
        p.padding(after(t, r))
    footer(p, t)
    return "\n".join(p.out[1:]) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.stdout.write(listing(sys.argv[1]))
