#!/usr/bin/env python3
"""An independent reader of kvfate traces, written from docs/reference/format.md alone.

Standard library and NumPy, and libxxhash for the hashes.  zstd frames go through the module of Debian's package
python3-zstandard if it is there, else through the program zstd (package zstd).

    read_kvf.py X.kvf            what it holds
"""
import ctypes
import json
import shutil
import struct
import subprocess
import sys

import numpy as np

MAGIC = b"\x89KVF\r\n\x1a\n"
META, SCHEMA, TOKENS, COLUMN, NOTE, COMMIT, CHECKPOINT, INDEX, INTERVALS, BLOB = range(1, 11)
DTYPES = {1: "<u1", 2: "<u2", 3: "<u4", 4: "<i4", 5: "<f4", 6: "<f8", 7: "<u8"}
ELEMENTS = {**DTYPES, 8: "<f2", 9: "<u2"}  # of blobs; NumPy has no bf16
SPACES = ("run", "kv", "query")
HEADER = struct.Struct("<IHBBQQQIHHIIIIIIHHQQI")  # section 3
HEADER_0 = struct.Struct("<IHBBQQQIHHIIIIIIHHQI")  # of format 0.1: no link
ENTRY = struct.Struct("<IHHIIIHBBQQQQ")            # section 8
ENTRY_0 = struct.Struct("<IHHIIIHBBQQQ")
FOOTER = struct.Struct("<8sQQQIIQQ4xI")
FIELDS = ("sync", "header_len", "type", "flags", "seq", "stored_len", "raw_len", "column", "layer", "head0", "t0", "n",
          "codec", "payload_crc", "salt", "epoch", "n_heads", "zero", "offset", "link", "header_crc")
INDEXED = ("column", "layer", "head0", "t0", "epoch", "n", "n_heads", "type", "codec", "offset", "stored_len", "raw_len", "hash")
FIELDS_0 = tuple(f for f in FIELDS if f != "link")
ORDER = ("type", "column", "layer", "epoch", "head0", "t0", "offset")


class Damaged(Exception):
    """What the file says cannot be."""


def make_table():
    table = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
        table.append(i)
    return table


CRC_TABLE = make_table()


def crc32c(data):
    c = 0xFFFFFFFF
    for b in data:
        c = CRC_TABLE[(c ^ b) & 255] ^ c >> 8
    return c ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283  # RFC 3720


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


XXH = ctypes.CDLL("libxxhash.so.0")
XXH.XXH3_64bits.restype, XXH.XXH3_64bits.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t]
XXH.XXH3_128bits_withSeed.restype = Hash128
XXH.XXH3_128bits_withSeed.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]


def hash64(data):
    return XXH.XXH3_64bits(data, len(data))


def hash128(data, seed=0):
    """The low and the high half."""
    h = XXH.XXH3_128bits_withSeed(data, len(data), seed)
    return h.low, h.high


def run_id(meta, prompt):
    """The identity of a run: section 2."""
    return hash128(struct.pack("<Q", len(meta)) + meta + b"".join(struct.pack("<i", i) for i in prompt))


def unzstd(frame, size):
    try:
        import zstandard
        return zstandard.ZstdDecompressor().decompress(frame, max_output_size=size)
    except ImportError:
        if not shutil.which("zstd"):
            raise SystemExit("read_kvf.py: needs Debian's python3-zstandard or zstd")
        return subprocess.run(["zstd", "-dcq"], input=frame, stdout=subprocess.PIPE, check=True).stdout


# ---- the digest of section 9

ONES = (1 << 64) - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & ONES
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & ONES
    x = (x ^ x >> 27) * 0x94D049BB133111EB & ONES
    return x ^ x >> 31


KEYS = [np.array([mix(2 * j + k) for j in range(1024)], np.uint64) for k in range(2)]


def digest_of_values(name, layer, head, t0, values):
    """What a head's values at t0, t0 + 1, ... give: two numbers."""
    place = mix(hash64(name.encode()) + (layer << 32) + head & ONES)
    end = t0 + len(values)
    total = [mix(place + 4 * end + 2 + k & ONES) - mix(place + 4 * t0 + 2 + k & ONES) for k in range(2)]
    at = t0 * values.itemsize
    data = bytes(at % 4096) + values.tobytes()  # from the beginning of a block on
    words = np.frombuffer(data + bytes(-len(data) % 4096), "<u4").astype(np.uint64).reshape(-1, 1024)
    for b, row in enumerate(words):
        for k in range(2):
            sum_of_block = int((row * KEYS[k]).sum(dtype=np.uint64))
            total[k] += sum_of_block * (mix(place + 4 * (at // 4096 + b) + k & ONES) | 1)
    return total


def digest_of_list(name, layer, head, token, pairs):
    """What the intervals of a token give: two numbers."""
    seed = mix(mix(hash64(name.encode()) + (layer << 32) + head & ONES) + token & ONES)
    return hash128(b"".join(struct.pack("<II", *p) for p in pairs), seed)


class Trace:
    def __init__(self, path):
        with open(path, "rb") as f:
            self.bytes = f.read()
        self.read_header()
        self.read_footer()
        self.walk()
        if self.closed:
            self.check_index()
        self.read_meta()
        self.read_schema()
        self.read_rest()

    # ---- framing

    def read_header(self):
        h = self.bytes[:64]
        if len(h) < 64 or h[:8] != MAGIC:
            raise Damaged("not a trace")
        if struct.unpack_from("<I", h, 60)[0] != crc32c(h[:60]):
            raise Damaged("file header")
        major, _, length, incompatible = struct.unpack_from("<HHII", h, 8)
        if major != 1 or length != 64 or incompatible & ~1:
            raise Damaged("version")
        self.chained = bool(incompatible & 1)
        self.header, self.entry = (HEADER, ENTRY) if self.chained else (HEADER_0, ENTRY_0)
        self.salt, self.id = struct.unpack_from("<I", h, 28)[0], struct.unpack_from("<QQ", h, 32)
        if self.chained and self.salt != self.id[0] & 0xFFFFFFFF:
            raise Damaged("salt")

    def read_footer(self):
        self.end, self.closed = len(self.bytes), False
        f = self.bytes[-64:]
        if len(self.bytes) < 128 or f[:8] != b"KVFEND\r\n" or struct.unpack_from("<I", f, 60)[0] != crc32c(f[:60]):
            return
        _, index, self.n_index, self.index_last, clean, salt, low, high, _ = FOOTER.unpack(f)
        if salt == self.salt and clean == 1:
            self.closed, self.end, self.stored_digest = True, index, "%016x%016x" % (high, low)

    def record_at(self, at, end):
        size = self.header.size
        if end - at < size:
            return None
        h = self.bytes[at:at + size]
        r = dict(zip(FIELDS if self.chained else FIELDS_0, self.header.unpack(h)), hash=hash64(h) if self.chained else 0)
        good = (r["sync"] == 0x52465AC5 and r["header_len"] == size and r["salt"] == self.salt and r["offset"] == at
                and r["header_crc"] == crc32c(h[:-4]) and self.after(r) <= end)
        return r if good else None

    def after(self, r):
        """Where the record after this one begins."""
        return r["offset"] + self.header.size + (r["stored_len"] + 7) // 8 * 8

    def payload(self, r):
        at = r["offset"] + self.header.size
        p = self.bytes[at:at + r["stored_len"]]
        if crc32c(struct.pack("<IQQ", r["salt"], r["seq"], r["offset"]) + p) != r["payload_crc"]:
            raise Damaged("record at %d" % r["offset"])
        return p

    def walk(self):
        self.records, self.torn, at, seq = [], 0, 64, -1
        self.link = hash64(self.bytes[:64])
        while at < self.end:
            r = self.record_at(at, self.end)
            if r is None or r["seq"] <= seq:
                self.torn = self.end - at
                for k in range(at + 8, self.end, 8):
                    if self.closed or self.record_at(k, self.end):
                        raise Damaged("bytes from %d on are no record" % at)
                return
            if self.chained and r["link"] != self.link:
                raise Damaged("the record at %d does not follow the one before" % at)
            self.link = r["hash"]
            if r["type"] not in range(META, BLOB + 1) and r["flags"] & 1:
                raise Damaged("unknown critical record")
            if r["type"] != INDEX:
                self.records.append(r)
            at, seq = self.after(r), r["seq"]

    def check_index(self):
        r = self.record_at(self.end, len(self.bytes) - 64)
        if r is None or r["type"] != INDEX or r["hash" if self.chained else "seq"] != self.index_last:
            raise Damaged("index")
        if self.chained and r["link"] != self.link:
            raise Damaged("the index does not follow the last record")
        p = self.payload(r)
        got = [self.entry.unpack_from(p, k) for k in range(0, len(p), self.entry.size)]
        fields = INDEXED if self.chained else INDEXED[:-1]
        want = sorted(self.records, key=lambda x: [x[k] for k in ORDER])
        if len(got) != self.n_index or got != [tuple(x[k] for k in fields) for x in want]:
            raise Damaged("index and records differ")

    # ---- contents

    def of_type(self, kind):
        return [r for r in self.records if r["type"] == kind]

    def read_meta(self):
        if not self.of_type(META):
            raise Damaged("no run header")
        self.meta = json.loads(self.payload(self.of_type(META)[0]).decode("utf-8"))

    def read_schema(self):
        if not self.of_type(SCHEMA):
            raise Damaged("no schema")
        p = self.payload(self.of_type(SCHEMA)[0])
        (layers,) = struct.unpack_from("<I", p)
        self.heads = [struct.unpack_from("<HH", p, 4 + 4 * l) for l in range(layers)]
        at = 4 + 4 * layers
        (n,) = struct.unpack_from("<I", p, at)
        if len(p) != at + 4 + 68 * n:
            raise Damaged("schema")
        self.columns = {}
        for k in range(n):
            name, dtype, space, axis, flags, unit = struct.unpack_from("<48sBBBB16s", p, at + 4 + 68 * k)
            self.columns[name.split(b"\0")[0].decode()] = {
                "number": k, "dtype": np.dtype(DTYPES[dtype]), "space": SPACES[space], "axis": ("token", "step")[axis],
                "snapshot": bool(flags & 1), "age": bool(flags & 2), "intervals": bool(flags & 4),
                "unit": unit.split(b"\0")[0].decode()}

    def read_rest(self):
        self.notes, self.texts, self.epoch, self.steps = {}, {}, 0, 0
        for r in self.of_type(NOTE):
            key, _, text = self.payload(r).partition(b"\0")
            self.notes[key.decode()] = json.loads(text.decode("utf-8", "replace"))
        for r in self.of_type(COMMIT):
            epoch, steps = struct.unpack("<II", self.payload(r))
            if epoch > self.epoch:
                self.epoch, self.steps = epoch, steps
        for r in self.of_type(CHECKPOINT):
            if self.payload(r) != self.bytes[:64]:
                raise Damaged("checkpoint")
        for r in self.of_type(TOKENS):
            p = self.payload(r)
            ends = struct.unpack_from("<%dI" % r["n"], p)
            text, before = p[4 * r["n"]:], 0
            for k, end in enumerate(ends):
                self.texts[r["t0"] + k] = text[before:end]
                before = end

    def elements(self, r, p, dtype):
        """The decoded payload p of a record."""
        size = r["raw_len"]
        if r["codec"] == 1:
            p = p * (size // dtype.itemsize)
        elif r["codec"] == 2:
            p = unzstd(p, size)
            if len(p) != size:
                raise Damaged("content size")
            p = np.frombuffer(p, np.uint8).reshape(dtype.itemsize, -1).T.tobytes()
        elif r["codec"] != 0:
            raise Damaged("codec")
        if len(p) != size:
            raise Damaged("length of values")
        return np.frombuffer(p, dtype)

    def decode(self, r, dtype):
        """Values of a COLUMN record, [heads][n]."""
        if r["raw_len"] != r["n_heads"] * r["n"] * dtype.itemsize:
            raise Damaged("raw_len")
        return self.elements(r, self.payload(r), dtype).reshape(r["n_heads"], r["n"])

    def lists(self, r):
        """What an INTERVALS record holds: {(head, token): [(first, last), ...]}."""
        n = r["n_heads"] * r["n"]
        if r["raw_len"] < 4 * n or (r["raw_len"] - 4 * n) % 8:
            raise Damaged("raw_len")
        v = self.elements(r, self.payload(r), np.dtype("<u4")).tolist()
        pairs, out = list(zip(v[n::2], v[n + 1::2])), {}
        for k, (begin, end) in enumerate(zip([0] + v[:n - 1], v[:n])):
            token = r["t0"] + k % r["n"]
            out[r["head0"] + k // r["n"], token] = one = pairs[begin:end]
            steps = [t for pair in one for t in pair]
            apart = all(a <= b for a, b in one) and all(b[0] > a[1] + 1 for a, b in zip(one, one[1:]))
            within = not one or token <= steps[0] and (r["epoch"] != self.epoch or steps[-1] < self.steps)
            if not 0 <= begin <= end <= len(pairs) or end - begin > 65535 or not apart or not within:
                raise Damaged("intervals")
        if v[n - 1] != len(pairs):
            raise Damaged("intervals")
        return out

    def blob(self, r):
        """A BLOB record: what is told of it, and its elements as "data"."""
        p = self.payload(r)
        if len(p) < 80 or struct.unpack_from("<Q", p, 72)[0] != hash64(p[:72]):
            raise Damaged("blob")
        name, dtype, rank, zero, *shape = struct.unpack_from("<48sBB6s4I", p)
        name = name.rstrip(b"\0")
        if not name or b"\0" in name or len(name) > 47 or dtype not in ELEMENTS or not 1 <= rank <= 4 or any(zero):
            raise Damaged("blob")
        if any(bool(n) != (k < rank) for k, n in enumerate(shape)):
            raise Damaged("blob")
        shape, dtype = shape[:rank], np.dtype(ELEMENTS[dtype])
        if not 0 < r["raw_len"] == dtype.itemsize * np.prod(shape, dtype=object) <= 16 << 20:
            raise Damaged("blob")
        return {"name": name.decode(), "layer": r["layer"], "head": r["head0"], "t0": r["t0"],
                "data": self.elements(r, p[80:], dtype).reshape(shape)}

    def blobs(self):
        return [self.blob(r) for r in self.of_type(BLOB)]

    def digest(self):
        """The digest of the content, 32 digits; closed traces have one."""
        if not self.closed:
            raise Damaged("not closed")
        schema, meta = (self.payload(self.of_type(k)[0]) for k in (SCHEMA, META))
        table = 4 + 4 * len(self.heads)
        parts = [hash128(meta, ord("M")), hash128(schema[:table], ord("S")), hash128(b"", self.steps << 8 | ord("P"))]
        parts += [hash128(schema[k:k + 68], ord("C")) for k in range(table + 4, len(schema), 68)]
        parts += [hash128(text, i << 8 | ord("T")) for i, text in self.texts.items()]
        parts += [hash128(note, ord("N")) for note in {p.partition(b"\0")[0]: p for p in map(self.payload, self.of_type(NOTE))}.values()]
        for r in self.of_type(BLOB):
            told = self.payload(r)[:72] + struct.pack("<HHI", r["layer"], r["head0"], r["t0"])
            parts.append(hash128(told + struct.pack("<QQ", *hash128(self.blob(r)["data"].tobytes())), ord("B")))
        names = {c["number"]: n for n, c in self.columns.items()}
        for r in self.of_type(INTERVALS):
            if r["epoch"] == self.epoch:
                parts += [digest_of_list(names[r["column"]], r["layer"], head, token, v) for (head, token), v in self.lists(r).items()]
        for r in self.of_type(COLUMN):
            c = self.columns[names[r["column"]]]
            if r["epoch"] == (self.epoch if c["snapshot"] else 0):
                parts += [digest_of_values(names[r["column"]], r["layer"], r["head0"] + h, r["t0"], v)
                          for h, v in enumerate(self.decode(r, c["dtype"]))]
        return "%016x%016x" % tuple(sum(p[k] for p in parts) & ONES for k in (1, 0))

    def n_heads(self, layer, space):
        return (1 if layer == 0 else 0) if space == "run" else self.heads[layer][0 if space == "kv" else 1]

    def column(self, name, layer=0):
        """All values of a layer, [heads][steps]; of intervals the list of each token."""
        c = self.columns[name]
        if c["intervals"]:
            return self.intervals(name, layer)
        epoch = self.epoch if c["snapshot"] else 0
        shape = (self.n_heads(layer, c["space"]), self.steps)
        out, have = np.zeros(shape, c["dtype"]), np.zeros(shape, bool)
        for r in self.of_type(COLUMN):
            if r["column"] == c["number"] and r["layer"] == layer and r["epoch"] == epoch and r["t0"] < self.steps:
                n = min(r["n"], self.steps - r["t0"])
                place = np.s_[r["head0"]:r["head0"] + r["n_heads"], r["t0"]:r["t0"] + n]
                out[place], have[place] = self.decode(r, c["dtype"])[:, :n], True
        if not have.all():
            raise Damaged("values of %s are missing" % name)
        return out


    def intervals(self, name, layer):
        """[heads][steps] lists of (first, last)."""
        c, have = self.columns[name], {}
        for r in self.of_type(INTERVALS):
            if r["column"] == c["number"] and r["layer"] == layer and r["epoch"] == self.epoch:
                have.update(self.lists(r))
        try:
            return [[have[h, i] for i in range(self.steps)] for h in range(self.n_heads(layer, c["space"]))]
        except KeyError:
            raise Damaged("intervals of %s are missing" % name)


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    t = Trace(sys.argv[1])
    print("%d steps, epoch %d, %s, %d torn bytes" % (t.steps, t.epoch, "closed" if t.closed else "unfinished", t.torn))
    for name, c in t.columns.items():
        print("%-24s %s %-5s %s" % (name, c["dtype"].str[1:], c["space"], np.shape(t.column(name)) if not c["intervals"] else "intervals"))
    for b in t.blobs():
        print("%-24s %s layer %d head %d from %d %s" % (b["name"], b["data"].dtype.str[1:], b["layer"], b["head"], b["t0"], b["data"].shape))


if __name__ == "__main__":
    main()
