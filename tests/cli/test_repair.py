#!/usr/bin/env python3
"""kvfate trace repair: each record damaged in turn, truncations, broken chains and lost headers; the kept
data compared by the package kvfate."""
import os
import struct

import numpy as np

from harness import Suite
from sample_trace import G, H, L, T, after, columns, differences, digest, kvfate, payload, records, sample

META, SCHEMA, TOKENS, COLUMN, NOTE, COMMIT, CHECKPOINT = range(1, 8)
from kvfate.records import BLOB  # noqa: E402
s = Suite()
x, out = sample(s, "x.kvf"), s.path("out.kvf")
whole, data = kvfate.open(x), open(x, "rb").read()
names = dict(enumerate(whole.columns))
HEADS = {"run": 1, "kv": H, "query": G}


def repaired(name, bad, code):
    """Runs repair on these bytes; returns (its messages, the repaired trace)."""
    r = s.run(["trace", "repair", s.file("bad.kvf", bytes(bad)), "-o", out, "--overwrite"])
    s.check(name, r.returncode == code, r.returncode, r.stderr.decode(), r.stdout.decode())
    if code != 1 and r.returncode == code:
        s.accepted(name + ": it verifies", ["trace", "verify", "--full", out])
    return r.stderr.decode() + r.stdout.decode(), kvfate.open(out) if code != 1 and r.returncode == code else None


def flipped(at):
    bad = bytearray(data)
    bad[at] ^= 0x10
    return bad


said, t = repaired("a complete", data, 0)
s.check("all data were recovered", "all data were recovered" in said and differences(out) == [] and digest(t) == digest(whole) and "repaired" not in t.notes, said)

lost = 0
for r in records(whole):
    at = r["offset"] + 88
    if r["type"] in (META, SCHEMA):
        repaired(f"type {r['type']} is damaged", flipped(at), 1)
        continue
    if r["type"] == CHECKPOINT:
        said, t = repaired("a checkpoint is damaged", flipped(at), 0)
        s.check("all data were recovered", digest(t) == digest(whole) and "all data were recovered" in said and str(r["offset"]) in said, said)
        continue
    if r["type"] == COMMIT:
        said, t = repaired("the commit is damaged", flipped(at), 3)
        s.check("streams are kept, and nothing else", t and t.steps == T and not [n for n, c in t.columns.items() if c.snapshot]
                and "nll" in t.columns and "no commit" in said, said)
        continue
    said, t = repaired(f"the record at {r['offset']} is damaged", flipped(at), 3)
    s.check("its place is told", f"byte {r['offset']}" in said, said)
    if r["type"] == TOKENS:
        s.check("texts are lost", "texts of 40 tokens" in said and not any(t.texts) and t.notes["repaired"]["missing"] == 0, said)
        continue
    name = names[r["column"]]
    lost += 1
    s.check("the column is told, or left out", f"{name} of layer {r['layer']}: {T} of " in said or name not in t.columns, said)
    s.check("so many values", t.notes["repaired"]["missing"] == T and f" {T} lost" in said, t.notes, said)
    for c in columns():
        for l in range(1 if c.space == "run" else L):
            if (c.name, l) == (name, r["layer"]) or c.name not in t.columns:
                continue
            want = c.values[None] if c.space == "run" else c.values[l]
            got = t[c.name][:][None] if c.space == "run" else t[c.name][l]
            s.check(f"{c.name} of layer {l} is kept", np.array_equal(got, want.astype(got.dtype), equal_nan=got.dtype.kind == "f"))
    if name in t.columns:
        try:
            np.asarray(t[name]) if t[name].space == "run" else t[name][r["layer"]]
            s.check("what is lost is not there", False, name)
        except kvfate.TraceError:
            pass
s.check("every chunk", lost == sum(HEADS[c.space] * (1 if c.space == "run" else L) for c in columns()), lost)

# ---- blobs
whole_of_columns, data_of_columns = whole, data
with_blobs = sample(s, "blobs.kvf", blobs=("q f32 0 1 0 40 8", "k f32 0 1 0 40 8", "q f32 2 3 0 40 8"))
whole, data = kvfate.open(with_blobs), open(with_blobs, "rb").read()
blobs = [r for r in records(whole) if r["type"] == BLOB]
s.check("three blobs", len(blobs) == 3, blobs)
for r, name in zip(blobs, "qkq"):
    place = f"layer {r['layer']}, head {r['head0']}, from index 0 on is lost"
    for what, at, words in (("the elements", 88 + 80 + 1, f"the blob {name} of {place}"), ("the record", 20, f"the blob {name} of {place}"),
                            ("the name", 88 + 2, f"a blob of {place}")):
        said, t = repaired(f"{what} of blob {name} {place}", flipped(r["offset"] + at), 3)
        s.check("the lost blob is named", said.count("is lost") == 1 and words in said and "0 lost; 1 blob lost" in said, said)
        s.check("the others are kept", t and [b for b in differences(out) if b] == [] and len([x for x in records(t) if x["type"] == BLOB]) == 2)
said, t = repaired("an unfinished trace", flipped(blobs[1]["offset"] + 88 + 80)[:after(whole, blobs[2])], 3)
s.check("names the blob without an index", "the blob k of layer 0, head 1" in said or t is None, said)
whole, data = whole_of_columns, data_of_columns

# ---- header, index, footer and padding
said, t = repaired("the file header is damaged", flipped(20), 0)
s.check("all data were recovered, nor the run", digest(t) == digest(whole) and t.id == whole.id, said)
said, t = repaired("the index is damaged", flipped(after(whole, records(whole)[-1]) + 200), 0)
s.check("all data were recovered", digest(t) == digest(whole), said)
said, t = repaired("the footer is damaged", flipped(len(data) - 30), 3)
s.check("all values are kept", differences(out) == [] and t.notes["repaired"]["closed"] is False and "not closed" in said, said)

# ---- a record exchanged for another: all checksums are right except the next link
r = next(r for r in records(whole) if r["type"] == COLUMN and names[r["column"]] == "nll")
bad, at = bytearray(data), r["offset"]
values = bytearray(payload(whole, r))
values[0] ^= 1
from kvfate.checksums import crc32c  # noqa: E402
bad[at + 88:at + 88 + len(values)] = values
struct.pack_into("<I", bad, at + 52, crc32c(struct.pack("<IQQ", r["salt"], r["seq"], at) + bytes(values)))
struct.pack_into("<I", bad, at + 84, crc32c(bytes(bad[at:at + 84])))
said, t = repaired("the chain is broken", bad, 3)
s.check("the place is told", f"chain of checksums is broken at byte {after(whole, r)}" in said, said)
s.check("and noted", t.notes["repaired"]["breaks"] > 0, t.notes)

# ---- truncations
ends = [after(whole, r) for r in records(whole)]
commit = next(after(whole, r) for r in records(whole) if r["type"] == COMMIT)
for cut in range(0, len(data), 997):
    r = s.survives(f"cut at {cut}", ["trace", "repair", s.file("cut.kvf", data[:cut]), "-o", out, "--overwrite"], codes=(1, 3))
    if r.returncode == 3:
        t = kvfate.open(out)
        s.check(f"cut at {cut}: {t.steps} steps", t.steps == T and (cut < commit or differences(out) == []), differences(out) if cut >= commit else "")
    s.check(f"cut at {cut}: kept or not", (r.returncode == 3) == (cut > ends[3]) or cut < commit, cut)
said, t = repaired("not closed", data[:commit], 3)
s.check("kept up to the last commit", "kept up to step 40" in said and differences(out) == [], said)

# ---- rejections
os.remove(out)
s.refused("no trace", ["trace", "repair", s.file("text", b"text" * 99), "-o", out], 1, "text")
s.refused("an empty file", ["trace", "repair", s.file("empty", b""), "-o", out], 1, "empty")
s.refused("no such file", ["trace", "repair", s.path("missing.kvf"), "-o", out], 1, "missing.kvf")
s.refused("no output", ["trace", "repair", x], 2, "-o")
s.check("nothing is left", not os.path.exists(out) and not [n for n in os.listdir(s.work.name) if n.endswith(".part")], os.listdir(s.work.name))
s.accepted("made", ["trace", "repair", x, "-o", out])
s.refused("there is one already", ["trace", "repair", x, "-o", out], 1, "--overwrite")
s.finish()
