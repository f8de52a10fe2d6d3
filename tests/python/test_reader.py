#!/usr/bin/env python3
"""usage: test_reader.py SOURCE_ROOT

Tests the package's reader: its checksums compared with bit-by-bit tables and libxxhash, indexing of
columns, data that are not copied, missing data, and files with impossible contents.
tests/format/trips.py and check_reader.py compare it with the C library."""
import os
import random
import resource
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

ROOT = os.path.abspath(sys.argv[1])
sys.path += [os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "format")]
import digest  # noqa: E402
from check import check, finish  # noqa: E402
from write_kvf import AGE, LISTS, SNAPSHOT, Column, Writer  # noqa: E402
import kvfate  # noqa: E402
from kvfate.checksums import crc32c, hash64  # noqa: E402
from kvfate.records import BLOB, COLUMN, COMMIT, INTERVALS, NOTE, SCHEMA, TOKENS  # noqa: E402

MIB = 1 << 20


def by_bits(data):
    """CRC-32C as defined in RFC 3720, bit by bit."""
    r = 0xFFFFFFFF
    for byte in data:
        r ^= byte
        for _ in range(8):
            r = r >> 1 ^ (0x82F63B78 if r & 1 else 0)
    return r ^ 0xFFFFFFFF


def checksums():
    r = random.Random(3)
    check("CRC of RFC 3720", crc32c(b"123456789") == 0xE3069283)
    for n in [*range(0, 40), 255, 256, 257, 259, 511, 1023, 1024, 4097, 20003]:
        data, before = r.randbytes(n), r.randbytes(r.randint(0, 24))
        check(f"CRC of {n} bytes", crc32c(data, before) == by_bits(before + data))
    for n in range(17, 129):
        data = r.randbytes(n)
        check(f"XXH3 of {n} bytes", hash64(data) == digest.hash64(data))


def refused(name, call, *words, kind=kvfate.TraceError):
    """Checks for a one-line message with the words."""
    try:
        got = call()
    except kind as e:
        return check(name, "\n" not in str(e) and all(w in str(e) for w in words), repr(e))
    except Exception as e:  # noqa: BLE001 any other is the failure
        return check(name, False, repr(e))
    return check(name, False, got)


def equal(name, got, want):
    return check(name, np.shape(got) == np.shape(want) and np.array_equal(got, want), got, want)


def columns(folder):
    path, rng = os.path.join(folder, "c.kvf"), np.random.default_rng(1)
    heads, T = [(2, 4), (1, 4)], 10
    w = Writer(path, b'{"run":{"prompt_tokens":4}}', heads,
               [Column("tokens.id", 4), Column("x-kv", 3, 1, 0, SNAPSHOT), Column("entropy", 5, 2, 1), Column("x-age", 2, 1, 0, SNAPSHOT | AGE)])
    ids = rng.integers(0, 99, (1, T)).astype("<i4")
    kv = [rng.integers(0, 99, (h, T)).astype("<u4") for h, _ in heads]
    entropy = [rng.random((g, T)).astype("<f4") for _, g in heads]
    w.chunk(0, 0, 0, 0, 0, ids)
    for layer in range(2):
        w.chunk(1, layer, 0, 0, 1, kv[layer])
        w.chunk(2, layer, 0, 0, 0, entropy[layer][:, :6], codec=2)
        w.chunk(2, layer, 0, 6, 0, entropy[layer][:2, 6:])
        w.chunk(2, layer, 2, 6, 0, entropy[layer][2:, 6:], codec=2)
    w.chunk(3, 0, 0, 0, 1, np.full((2, T), 0xFFFF, "<u2"), codec=1)
    w.texts(0, [b"a", "é".encode()[:1]])
    w.commit(1, T)
    w.close()
    t = kvfate.open(path)
    equal("a column of the run", t["tokens.id"][:], ids[0])
    equal("a part of it", t["tokens.id"][2:5], ids[0, 2:5])
    equal("one value", t["tokens.id"][-1], ids[0, -1])
    equal("by numpy", np.asarray(t["tokens.id"], float), ids[0].astype(float))
    equal("a head", t["x-kv"][0, 1], kv[0][1])
    equal("a layer", t["x-kv"][0], kv[0])
    equal("from the end", t["x-kv"][-1, -1], kv[1][0])
    equal("a part of a head", t.entropy[1, 3, 4:8], entropy[1][3, 4:8])
    equal("every second", t.entropy[1, 3, ::2], entropy[1][3, ::2])
    equal("backwards", t.entropy[1, 3, ::-1], entropy[1][3, ::-1])
    equal("a list of steps", t.entropy[1, 3, [7, 1]], entropy[1][3, [7, 1]])
    equal("all heads", t.entropy[1, :, 5:7], entropy[1][:, 5:7])
    equal("some heads", t.entropy[1, 1:3], entropy[1][1:3])
    equal("every second head", t.entropy[1, ::2], entropy[1][::2])
    equal("all layers", np.asarray(t.entropy), np.array(entropy))
    equal("never", t["x-age"][0, 0], np.full(T, t["x-age"].never))
    check("names", t.columns["entropy"] is t.entropy and "entropy" in t and "no" not in t and "entropy" in dir(t))
    check("texts", t.texts[:3] == [b"a", b"\xc3", None] and t.tokens[1] == "\ufffd" and len(t.texts) == T)
    check("read-only", not any(a.flags.writeable for a in (t["x-kv"][0, 0], t.entropy[0], t.entropy[0, 0, :3], t["x-age"][0, 0])))
    refused("no such column", lambda: t["none"], "none", "entropy", kind=KeyError)
    refused("no such attribute", lambda: t.none, "none", kind=AttributeError)
    refused("nearly a column", lambda: t.entropi, "did you mean entropy?", kind=AttributeError)
    refused("nearly a name", lambda: t["token.id"], "did you mean tokens.id?", kind=KeyError)
    page = t._repr_html_()
    check("a notebook shows it", all("<td style='text-align:left'>%s</td>" % name in page for name in t.columns) and page.count("<tr>") == 5 and "&lt;kvfate trace" in page, page)
    w = Writer(path + ".odd", b"{}", [(1, 1)], [Column("x-\x1b[2J", 3, 1)])
    w.commit(1, 0)
    w.close()
    odd = kvfate.open(path + ".odd")
    refused("a name that moves the cursor", lambda: odd["x-\x1b[2J"][0, 0, 0], "x-\\x1b[2J", kind=IndexError)
    refused("names that move the cursor", lambda: odd["none"], "x-\\\\x1b[2J", kind=KeyError)
    refused("no such layer", lambda: t.entropy[2], "layer 2", kind=IndexError)
    refused("no such head", lambda: t["x-kv"][1, 1], "head 1", kind=IndexError)
    refused("layers that differ", lambda: np.asarray(t["x-kv"]), "numbers of heads", kind=ValueError)
    refused("values of another layer", lambda: t["x-age"][1, 0], "x-age", "layer 1, head 0", "not in the trace", kind=kvfate.MissingValues)
    return t, kv


def no_copies(t, kv):
    """Uncompressed data are views of the file, and stay valid after the trace is closed."""
    space = np.frombuffer(t._file.map, np.uint8)
    a = t["x-kv"][0, 1]
    check("a raw column is not copied", np.shares_memory(a, space))
    check("a packed one is", not np.shares_memory(t.entropy[0, 0, :6], space))
    t.close()
    equal("arrays stay", a, kv[0][1])
    refused("closed", lambda: t["x-kv"][1], "closed")


def damaged(folder):
    """A damaged byte of a value is found on reading, depending on an option."""
    path = os.path.join(folder, "d.kvf")
    w = Writer(path, b"{}", [(1, 1)], [Column("x-a", 3), Column("x-b", 3)])
    w.chunk(0, 0, 0, 0, 0, np.array([[1, 2, 3]], "<u4"))
    w.chunk(1, 0, 0, 0, 0, np.array([[1, 2, 3]], "<u4"))
    w.commit(1, 3)
    w.close()
    at = next(r["offset"] for r in digest.records(kvfate.open(path)) if r["type"] == COLUMN) + 88
    with open(path, "r+b") as f:
        f.seek(at)
        f.write(b"\x07")
    t = kvfate.open(path)
    refused("a damaged value", lambda: t["x-a"][:], "d.kvf: ", f"byte {at - 88} is damaged")
    equal("the others", t["x-b"][:], [1, 2, 3])
    equal("without checksums", kvfate.open(path, checksums=False)["x-a"][:], [7, 2, 3])
    refused("verify", lambda: kvfate.open(path, checksums=False).verify(), f"byte {at - 88}")
    with open(path, "r+b") as f:
        f.seek(at - 88 + 40)
        f.write(b"\x01")  # and its header
    refused("a damaged header", lambda: kvfate.open(path)["x-a"][:], f"byte {at - 88} is damaged")


u32 = struct.Struct("<I").pack


def everything(path):
    """Reads all contents of a trace; only TraceError is allowed. Returns the messages."""
    try:
        t = kvfate.open(path)
    except kvfate.TraceError as e:
        return [str(e)]
    said = []
    parts = [lambda: t.meta, lambda: t.notes, lambda: t.texts, lambda: [b.data for b in t.blobs], t.verify]
    parts += [lambda c=c, layer=layer, head=head: c.read(layer, head) for c in list(t.schema)[:40] for layer in range(min(c.layers, 9))
              for head in range(min(c.heads(layer), 5))]
    parts += [lambda c=c: c[:] if c.space == "run" else c[0] for c in list(t.schema)[:9] if c.layers]
    for part in parts:
        try:
            part()
        except kvfate.TraceError as e:
            said.append(str(e))
    return said


def schemas(folder):
    """Invalid schemas with correct checksums."""
    entry = Column("x-a", 3, 1).entry()
    of = {
        "4 billion layers": (SCHEMA, u32(0xFFFFFFFF) + bytes(8)), "too many heads": (SCHEMA, u32(1) + b"\xff" * 4 + u32(0)),
        "too many columns": (SCHEMA, u32(0) + u32(1 << 31)), "a column cut off": (SCHEMA, u32(0) + u32(1) + entry[:-1]),
        "no such type": (SCHEMA, u32(0) + u32(1) + entry[:48] + b"\x08" + entry[49:]), "an empty schema": (SCHEMA, b""),
    }
    for name, (kind, payload) in of.items():
        path = os.path.join(folder, "h.kvf")
        w = Writer(path, b"{}", [], [])
        w.records[1:], w.out[4:], w.at, w.link = [], [], w.records[1]["offset"], w.records[0]["hash"]
        w.record(kind, payload)
        w.commit(1, 1)
        w.close()
        refused(name, lambda p=path: kvfate.open(p), "schema is malformed")


def hostile(folder):
    """Invalid records with correct checksums."""
    path = os.path.join(folder, "h.kvf")

    def make(calls, columns=(), heads=((4096, 4096),) * 3, steps=1 << 24, meta=b"{}"):
        w = Writer(path, meta, list(heads), list(columns))
        calls(w)
        w.commit(1, steps)
        w.close()
        return everything(path)

    wide = [Column("x-a", 6, 1), Column("x-b", 3, 1, 0, SNAPSHOT | LISTS), Column("x-c", 1)]
    one = {"column": 0, "n": 1, "n_heads": 1}
    silent = bytes.fromhex("28b52ffd0000410000") + bytes(8)  # a frame of eight bytes without its size
    steps = {"no value": 1 << 24, "texts that are not there": 1 << 24, "constant values": 2 * MIB}
    cases = {  # the contents, and the expected message
        "no value": (lambda w: None, "not in the trace"),
        "texts that are not there": (lambda w: w.record(TOKENS, b"", t0=0, n=1 << 24), "declares 16777216 steps"),
        "constant values": (lambda w: [w.record(COLUMN, bytes(8), 16 * MIB, column=0, head0=h, n=2 * MIB, n_heads=1, codec=1) for h in range(300)],
                            "would take"),
        "raw_len": (lambda w: w.record(COLUMN, b"\0", 1 << 40, **one, codec=1), "damaged at byte"),
        "heads of none": (lambda w: w.record(COLUMN, bytes(8), **one, head0=4096), "damaged at byte"),
        "a layer of none": (lambda w: w.record(COLUMN, bytes(8), **one, layer=3), "damaged at byte"),
        "a column of none": (lambda w: w.record(COLUMN, bytes(8), **{**one, "column": 3}), "damaged at byte"),
        "steps of none": (lambda w: w.record(COLUMN, bytes(8), **one, t0=1 << 24), "damaged at byte"),
        "values where lists are": (lambda w: w.record(COLUMN, bytes(4), **{**one, "column": 1}, epoch=1), "damaged at byte"),
        "a codec": (lambda w: w.record(COLUMN, bytes(8), **one, codec=77), "has codec 77"),
        "a constant of another width": (lambda w: w.record(COLUMN, bytes(4), 8, **one, codec=1), "cannot be decoded"),
        "a frame that does not tell its size": (lambda w: w.record(COLUMN, silent, 8, **one, codec=2), "cannot be decoded"),
        "no frame": (lambda w: w.record(COLUMN, b"text", 8, **one, codec=2), "cannot be decoded"),
        "intervals that fall": (lambda w: w.intervals(1, 0, 0, 0, 1, [[[(3, 2)]]]), "cannot be"),
        "intervals before": (lambda w: w.intervals(1, 0, 0, 5, 1, [[[(4, 6)]]]), "cannot be"),
        "intervals that touch": (lambda w: w.intervals(1, 0, 0, 0, 1, [[[(1, 2), (3, 4)]]]), "cannot be"),
        "intervals beyond": (lambda w: w.intervals(1, 0, 0, 0, 1, [[[(1, 9)]]]), "cannot be"),
        "ends of intervals": (lambda w: w.record(INTERVALS, u32(9) + bytes(8), **{**one, "column": 1}, epoch=1), "cannot be"),
        "a blob of another size": (lambda w: w.record(BLOB, bytes(80), 8), "the blob at byte"),
        "a blob of no layer": (lambda w: w.record(BLOB, bytes(80), 8, layer=7), "damaged at byte"),
        "a blob of no head": (lambda w: w.record(BLOB, bytes(80), 8, head0=4096), "damaged at byte"),
        "a note without a key": (lambda w: w.record(NOTE, b"\0{}"), "damaged at byte"),
        "a note that is no JSON": (lambda w: w.note(b"a", b"{"), "the note a is not JSON"),
        "too many steps": (lambda w: w.record(COMMIT, u32(7) + u32((1 << 24) + 1), epoch=7), "damaged at byte"),
        "an unknown record that counts": (lambda w: w.record(99, b"", flags=1), "newer kvfate"),
    }
    for name, (calls, word) in cases.items():
        said = make(calls, wide, [(300, 1)] if name == "constant values" else ((4096, 4096),) * 3, steps.get(name, 9))
        check(name, any(word in x for x in said) and not any("\n" in x for x in said), said)
    said = make(lambda w: None, meta=b"[" * 200000 + b"]" * 200000)
    check("a deep header", any("run header is not JSON" in x for x in said), said)


def patched(path, record, at, data):
    """Changes bytes of the header of a record, and corrects its checksum."""
    with open(path, "r+b") as f:
        f.seek(record)
        head = bytearray(f.read(88))
        head[at:at + len(data)] = data
        head[-4:] = u32(crc32c(bytes(head[:-4])))
        f.seek(record)
        f.write(head)


def contradictions(folder):
    """Parts that are valid separately but not together: index and header, links, two notes of a
    key, texts with descending ends."""
    path = os.path.join(folder, "k.kvf")

    def make(closed=True, forget=False):
        w = Writer(path, b"{}", [(1, 1)], [Column("x-a", 3), Column("x-b", 3)])
        for c in range(2):
            w.chunk(c, 0, 0, 0, 0, np.array([[1, 2, 3]], "<u4"))
        w.note(b"a", b"1")
        w.note(b"a", b"2")
        w.record(TOKENS, struct.pack("<II", 5, 1) + b"abcde", t0=0, n=2)
        w.record(99, b"who knows")
        w.commit(1, 3)
        if forget:
            del w.records[2]
        w.close() if closed else w.leave()
        t = kvfate.open(path)
        return t, [r["offset"] for r in digest.records(t)]

    t, at = make()
    check("the last note of a key", t.notes == {"a": 2}, t.notes)
    check("texts whose ends fall are none", t.texts == [None] * 3, t.texts)
    t.verify()
    patched(path, at[2], 40, b"\1")  # t0: the hash in the index differs
    refused("the index names another header", lambda: kvfate.open(path)["x-a"][:], f"byte {at[2]} is damaged")
    equal("the other column", kvfate.open(path)["x-b"][:], [1, 2, 3])
    refused("the chain is broken", lambda: kvfate.open(path).verify(), f"damaged at byte {at[3]}")
    _, at = make(closed=False)
    patched(path, at[2], 66, b"\1")  # reserved bytes: the next link does not match
    refused("the chain of one that was not closed", lambda: kvfate.open(path), f"damaged at byte {at[3]}")
    t, _ = make(forget=True)
    equal("an index that leaves out a record is not believed", t["x-a"][:], [1, 2, 3])
    refused("and verify says so", t.verify, "the index does not match the records")


def mutations(folder, count=400):
    """Stored files with random changes of bytes and length: no other exception, for any
    contents."""
    r, files = random.Random(9), []
    for name in ("tests/format/golden/format-0.1.zip", "tests/format/golden/format-1.0.zip", "tests/fuzz/corpus/trace.zip"):
        with zipfile.ZipFile(os.path.join(ROOT, name)) as z:
            files += [(name + " " + n, z.read(n)) for n in z.namelist()]
    for name in sorted(os.listdir(os.path.join(ROOT, "tests/data/hostile"))):
        files.append((name, Path(os.path.join(ROOT, "tests/data/hostile", name)).read_bytes()))
    small = [f for f in files if len(f[1]) < 20000]
    for k in range(count + len(files)):
        name, data = files[k] if k < len(files) else r.choice(small)
        data = bytearray(data)
        for _ in range(r.choice([1, 1, 2, 8]) if k >= len(files) and data else 0):
            data[r.randrange(len(data))] = r.choice([0, 255, r.randrange(256)])
        if k >= len(files) and r.random() < 0.2:
            data = data[:r.randrange(len(data) + 1)]
        path = os.path.join(folder, "m.kvf")
        Path(path).write_bytes(data)
        try:
            everything(path)
        except Exception as e:  # noqa: BLE001
            check(f"{name}, mutation {k}", False, repr(e))
    check("mutations", True)


def other_files(folder):
    refused("no file", lambda: kvfate.open(os.path.join(folder, "none")), "none: cannot open the trace")
    refused("a folder", lambda: kvfate.open(folder), "cannot open")
    for name, data in (("empty", b""), ("text", b"text" * 99)):
        path = os.path.join(folder, name)
        Path(path).write_bytes(data)
        refused(name, lambda p=path: kvfate.open(p), f"{name}: not a kvfate trace ({len(data)} bytes)")


def no_zstd(folder):
    """A machine without libzstd: an error when it is needed, and not before."""
    program = "import ctypes, ctypes.util, sys\nsys.path.insert(0, sys.argv[1])\nimport kvfate\n" \
        "def none(*a): raise OSError\nctypes.CDLL, ctypes.util.find_library = none, lambda n: None\n" \
        "t = kvfate.open(sys.argv[2])\nprint(t['x-kv'][0, 0][0])\ntry: t.entropy[0]\nexcept kvfate.Error as e: print(e)"
    said = subprocess.run([sys.executable, "-c", program, os.path.join(ROOT, "python"), os.path.join(folder, "c.kvf")], capture_output=True, text=True)
    check("no libzstd", said.stdout.count("\n") == 2 and "libzstd" in said.stdout and not said.stderr, said)


def main():
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    with tempfile.TemporaryDirectory(prefix="kvfate-python-") as folder:
        checksums()
        t, kv = columns(folder)
        no_zstd(folder)
        no_copies(t, kv)
        damaged(folder)
        other_files(folder)
        schemas(folder)
        hostile(folder)
        contradictions(folder)
        mutations(folder)
    finish()


if __name__ == "__main__":
    main()
