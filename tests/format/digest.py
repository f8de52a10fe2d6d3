"""Properties of a trace beyond those that the package kvfate reads: its records in file order, the
identity of its run and the digest of its contents. They are computed from only
docs/reference/format.md, with libxxhash for the hashes. Importing this module finds the package."""
import ctypes
import os
import struct
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
from kvfate.records import BLOB, COLUMN, INTERVALS, NOTE, SCHEMA, TOKENS  # noqa: E402


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


XXH = ctypes.CDLL("libxxhash.so.0")
XXH.XXH3_64bits.restype, XXH.XXH3_64bits.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t]
XXH.XXH3_128bits_withSeed.restype = Hash128
XXH.XXH3_128bits_withSeed.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]


def hash64(data):
    return XXH.XXH3_64bits(data, len(data))


def hash128(data, seed=0):
    """Returns the low and the high half."""
    h = XXH.XXH3_128bits_withSeed(data, len(data), seed)
    return h.low, h.high


def hexadecimal(halves):
    return "%016x%016x" % tuple(reversed(halves))


def run_id(meta, prompt):
    """Returns the identity of a run: section 2."""
    return hash128(struct.pack("<Q", len(meta)) + meta + b"".join(struct.pack("<i", i) for i in prompt))


def records(trace):
    """Returns the headers of all records except INDEX, in file order, as dicts."""
    return list(trace._file.walk())


def after(trace, r):
    """Returns the offset of the record after this one."""
    return trace._file.after(r)


def entry_of(trace, r):
    """Returns the index entry of a record with a known header."""
    return next(e for e in trace._file.records if e["offset"] == r["offset"])


def payload(trace, r):
    """Returns the stored bytes of a record after checking its checksum."""
    data = trace._file.whole_payload(r)
    if data is None:
        raise ValueError("the record at byte %d is damaged" % r["offset"])
    return bytes(data)


# ---- the digest of section 9

ONES = (1 << 64) - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & ONES
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & ONES
    x = (x ^ x >> 27) * 0x94D049BB133111EB & ONES
    return x ^ x >> 31


KEYS = [np.array([mix(2 * j + k) for j in range(1024)], np.uint64) for k in range(2)]


def digest_of_values(name, layer, head, t0, values):
    """Returns the contribution of a head's values at t0, t0 + 1, ...: two numbers."""
    place = mix(hash64(name.encode()) + (layer << 32) + head & ONES)
    end = t0 + len(values)
    total = [mix(place + 4 * end + 2 + k & ONES) - mix(place + 4 * t0 + 2 + k & ONES) for k in range(2)]
    at = t0 * values.itemsize
    data = bytes(at % 4096) + values.tobytes()  # from the beginning of a block
    words = np.frombuffer(data + bytes(-len(data) % 4096), "<u4").astype(np.uint64).reshape(-1, 1024)
    for b, row in enumerate(words):
        for k in range(2):
            sum_of_block = int((row * KEYS[k]).sum(dtype=np.uint64))
            total[k] += sum_of_block * (mix(place + 4 * (at // 4096 + b) + k & ONES) | 1)
    return total


def digest_of_list(name, layer, head, token, pairs):
    """Returns the contribution of a token's intervals: two numbers."""
    seed = mix(mix(hash64(name.encode()) + (layer << 32) + head & ONES) + token & ONES)
    return hash128(b"".join(struct.pack("<II", *p) for p in pairs), seed)


def lists(trace, e):
    """Returns {(head, token): [(first, last), ...]} of an INTERVALS record."""
    column = trace.schema[e["column"]]
    ends, pairs = (v.tolist() for v in trace.values.decoded(e, column))
    n = int(e["n"])
    return {(int(e["head0"]) + k // n, int(e["t0"]) + k % n): list(map(tuple, pairs[a:b])) for k, (a, b) in enumerate(zip([0] + ends, ends))}


def stored_texts(trace):
    """Returns {token: text} of all stored texts."""
    return {int(e["t0"]) + k: text for e in trace._file.of_type(TOKENS) for k, text in enumerate(trace._texts_of(e))}


def digest(trace):
    """Returns the digest of the contents of a closed trace, 32 digits."""
    file = trace._file
    schema, meta = bytes(file.payload(file.of_type(SCHEMA)[0])), trace.meta_bytes
    table = 4 + 4 * len(trace.heads)
    parts = [hash128(meta, ord("M")), hash128(schema[:table], ord("S")), hash128(b"", trace.steps << 8 | ord("P"))]
    parts += [hash128(schema[k:k + 68], ord("C")) for k in range(table + 4, len(schema), 68)]
    parts += [hash128(text, i << 8 | ord("T")) for i, text in stored_texts(trace).items()]
    parts += [hash128(key + b"\0" + text, ord("N")) for key, text in trace.note_bytes.items()]
    for e, b in zip(file.of_type(BLOB), trace.blobs):
        told = bytes(file.payload(e)[:72]) + struct.pack("<HHI", b.layer, b.head, b.t0)
        parts.append(hash128(told + struct.pack("<QQ", *hash128(b.data.tobytes())), ord("B")))
    for e in file.of_type(INTERVALS):
        if e["epoch"] == trace.epoch:
            name = trace.schema[e["column"]].name
            parts += [digest_of_list(name, int(e["layer"]), head, token, v) for (head, token), v in lists(trace, e).items()]
    for e in file.of_type(COLUMN):
        c = trace.schema[e["column"]]
        if e["epoch"] == (trace.epoch if c.snapshot else 0):
            parts += [digest_of_values(c.name, int(e["layer"]), int(e["head0"]) + h, int(e["t0"]), v)
                      for h, v in enumerate(trace.values.decoded(e, c))]
    return hexadecimal([sum(p[k] for p in parts) & ONES for k in (0, 1)])
