"""An independent writer of kvfate traces for tests, written from only docs/reference/format.md.

    w = Writer(path, b'{"run":{}}', heads=[(1, 2)], columns=[Column("x-mine.n", 3)])
    w.chunk(0, 0, 0, 0, 0, np.array([[1, 2, 3]], "<u4"))
    w.commit(1, 3)
    w.close()
"""
import struct
import subprocess
from dataclasses import dataclass

import numpy as np

from digest import ONES, digest_of_list, digest_of_values, hash64, hash128, run_id
from kvfate.checksums import crc32c
from kvfate.records import (BLOB, CHECKPOINT, COLUMN, COMMIT, ENTRY, FOOTER, HEADER, INDEX, INTERVALS, MAGIC, META, NOTE, ORDER, SCHEMA,
                            TOKENS)
from kvfate.trace import DTYPES

CRITICAL = (META, SCHEMA, COMMIT)
SNAPSHOT, AGE, LISTS = 1, 2, 4


@dataclass
class Column:
    name: str
    dtype: int
    space: int = 0
    axis: int = 0
    flags: int = 0
    unit: str = ""

    def entry(self):
        return struct.pack("<48sBBBB16s", self.name.encode(), self.dtype, self.space, self.axis, self.flags, self.unit.encode())


def zstd(data):
    """Returns a frame with its content size, made by the module or by the program."""
    try:
        import zstandard
        return zstandard.ZstdCompressor(level=3, write_content_size=True).compress(data)
    except ImportError:
        return subprocess.run(["zstd", "-cq", "--stream-size=%d" % len(data)], input=data, stdout=subprocess.PIPE, check=True).stdout


def encode(data, width, codec):
    """Returns the bytes stored under a codec of section 5. Codec 1 requires equal elements."""
    if codec == 0:
        return data
    if codec == 1:
        return data[:width]
    return zstd(np.frombuffer(data, np.uint8).reshape(-1, width).T.tobytes())


class Writer:
    def __init__(self, path, meta, heads, columns, prompt=()):
        self.path, self.columns, self.records, self.epoch, self.steps = path, columns, [], 0, 0
        self.id = run_id(meta, prompt)
        self.salt = self.id[0] & 0xFFFFFFFF
        head = struct.pack("<8sHHIIIIIQQ12x", MAGIC, 1, 0, 64, 1, 0, 0, self.salt, *self.id)
        self.header = head + struct.pack("<I", crc32c(head))
        self.out, self.at, self.link = [self.header], 64, hash64(self.header)
        self.kept, self.pending, self.snapshot, self.notes = [0, 0], [0, 0], [0, 0], {}
        table = struct.pack("<I", len(heads)) + b"".join(struct.pack("<HH", *h) for h in heads)
        entries = [c.entry() for c in columns]
        self.record(META, meta)
        self.record(SCHEMA, table + struct.pack("<I", len(columns)) + b"".join(entries))
        for letter, what in [("M", meta), ("S", table)] + [("C", e) for e in entries]:
            self.add(self.kept, hash128(what, ord(letter)))

    @staticmethod
    def add(total, part):
        for k in range(2):
            total[k] = total[k] + part[k] & ONES

    def record(self, kind, payload, raw_len=None, **fields):
        r = {"sync": 0x52465AC5, "header_len": 88, "type": kind, "flags": int(kind in CRITICAL), "seq": len(self.records),
             "stored_len": len(payload), "raw_len": len(payload) if raw_len is None else raw_len, "salt": self.salt, "offset": self.at,
             "link": self.link, **fields}
        names = ("sync", "header_len", "type", "flags", "seq", "stored_len", "raw_len", "column", "layer", "head0", "t0", "n", "codec",
                 "payload_crc", "salt", "epoch", "n_heads", "zero", "offset", "link")
        r["payload_crc"] = crc32c(struct.pack("<IQQ", self.salt, r["seq"], self.at) + payload)
        r = {**dict.fromkeys(ENTRY.names, 0), "zero": 0, **r}
        head = HEADER.pack(*(r[k] for k in names), 0)[:-4]
        head += struct.pack("<I", crc32c(head))
        self.link = r["hash"] = hash64(head)
        padding = bytes(-len(payload) % 8)
        self.out += [head, payload, padding]
        self.at += len(head) + len(payload) + len(padding)
        self.records.append(r)

    def sum_of(self, column):
        return self.pending if self.columns[column].flags & SNAPSHOT else self.kept

    def chunk(self, column, layer, head0, t0, epoch, values, codec=0):
        """values: [heads][n]."""
        data = values.tobytes()
        self.record(COLUMN, encode(data, values.itemsize, codec), len(data), column=column, layer=layer, head0=head0, t0=t0,
                    n=values.shape[1], codec=codec, epoch=epoch, n_heads=values.shape[0])
        for h, row in enumerate(values):
            self.add(self.sum_of(column), digest_of_values(self.columns[column].name, layer, head0 + h, t0, row))

    def intervals(self, column, layer, head0, t0, epoch, lists, codec=0):
        """lists: [heads][n] lists of (first, last)."""
        flat = [one for row in lists for one in row]
        ends = np.cumsum([len(one) for one in flat]).astype("<u4")
        data = ends.tobytes() + b"".join(struct.pack("<II", *pair) for one in flat for pair in one)
        self.record(INTERVALS, encode(data, 4, codec), len(data), column=column, layer=layer, head0=head0, t0=t0, n=len(lists[0]),
                    codec=codec, epoch=epoch, n_heads=len(lists))
        for h, row in enumerate(lists):
            for i, one in enumerate(row):
                self.add(self.pending, digest_of_list(self.columns[column].name, layer, head0 + h, t0 + i, one))

    def texts(self, t0, texts):
        ends = np.cumsum([len(t) for t in texts]).astype("<u4")
        self.record(TOKENS, ends.tobytes() + b"".join(texts), t0=t0, n=len(texts))
        for i, text in enumerate(texts):
            self.add(self.kept, hash128(text, t0 + i << 8 | ord("T")))

    def blob(self, name, dtype, layer, head, t0, shape, data, codec=0):
        told = struct.pack("<48sBB6x4I", name.encode(), dtype, len(shape), *shape, *[0] * (4 - len(shape)))
        width = {8: 2, 9: 2}.get(dtype) or np.dtype(DTYPES[dtype]).itemsize
        self.record(BLOB, told + struct.pack("<Q", hash64(told)) + encode(data, width, codec), len(data), layer=layer, head0=head, t0=t0,
                    codec=codec)
        self.add(self.kept, hash128(told + struct.pack("<HHIQQ", layer, head, t0, *hash128(data)), ord("B")))

    def note(self, key, text):
        self.record(NOTE, key + b"\0" + text)
        self.notes[key] = hash128(key + b"\0" + text, ord("N"))

    def commit(self, epoch, steps):
        self.record(COMMIT, struct.pack("<II", epoch, steps), epoch=epoch)
        self.record(CHECKPOINT, self.header)
        self.epoch, self.steps, self.snapshot, self.pending = epoch, steps, self.pending, [0, 0]

    def digest(self):
        total = list(self.kept)
        for part in [self.snapshot, hash128(b"", self.steps << 8 | ord("P")), *self.notes.values()]:
            self.add(total, part)
        return total

    def close(self):
        """Writes index and footer, and closes the file."""
        table = sorted(self.records, key=lambda r: [r[k] for k in ORDER])
        at, n = self.at, len(table)
        self.record(INDEX, np.array([tuple(r[k] for k in ENTRY.names) for r in table], ENTRY).tobytes())
        end = FOOTER.pack(b"KVFEND\r\n", at, n, self.link, 1, self.salt, *self.digest(), 0)[:-4]
        self.out.append(end + struct.pack("<I", crc32c(end)))
        self.leave()

    def leave(self):
        """Closes the file as a crash would leave it."""
        with open(self.path, "wb") as f:
            f.write(b"".join(self.out))
