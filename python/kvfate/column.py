"""Columns, intervals and blobs of a trace, decoded when they are asked for."""
import struct
from collections import OrderedDict

import numpy as np

from . import zstd
from .checksums import hash64
from .errors import MissingValues, TraceError, shown
from .records import COLUMN, INTERVALS, MOST_BYTES, MOST_STEPS, ORDER

CACHE_BYTES = 64 << 20
MOST_PAIRS = 1 << 24            # intervals that are given out at once
MOST_PAIRS_OF_TOKEN = 65535
LARGE, MOST_RATIO = 1 << 30, 4096  # an array above the first has at most so many bytes for each byte of the file
BLOB_HEADER = 80
BLOB_TYPES = {1: "u8", 2: "u16", 3: "u32", 4: "i32", 5: "f32", 6: "f64", 7: "u64", 8: "f16", 9: "bf16"}
ELEMENTS = {1: "<u1", 2: "<u2", 3: "<u4", 4: "<i4", 5: "<f4", 6: "<f8", 7: "<u8", 8: "<f2", 9: "<u2"}
AGE, LISTS, SNAPSHOT = 2, 4, 1


class Values:
    """The decoded values of the records of one file; the newest ones are kept.  All arrays are read-only."""

    def __init__(self, file, checksums):
        self.file, self.checksums = file, checksums
        self.checked, self.cache, self.cached = set(), OrderedDict(), 0
        self.keys = [np.ascontiguousarray(file.records[k]) for k in ORDER[:4]]

    def find(self, kind, column, layer, epoch):
        """The entries of one column, layer and epoch."""
        low, high = 0, len(self.file.records)
        for key, value in zip(self.keys, (kind, column, layer, epoch)):
            low, high = (low + int(np.searchsorted(key[low:high], value, side)) for side in ("left", "right"))
        return self.file.records[low:high]

    def payload(self, entry):
        """Its stored bytes; a checksum is compared once."""
        offset = int(entry["offset"])
        data = self.file.payload(entry, self.checksums and offset not in self.checked)
        self.checked.add(offset)
        return data

    def elements(self, entry, data, dtype):
        """The decoded elements of the stored bytes `data` of a record."""
        size, codec = int(entry["raw_len"]), int(entry["codec"])
        fits, out = size % dtype.itemsize == 0, None
        if codec == 0 and fits and len(data) == size:
            out = np.frombuffer(data, dtype)
        elif codec == 1 and fits and len(data) == dtype.itemsize:
            out = np.broadcast_to(np.frombuffer(data, dtype), size // dtype.itemsize)
        elif codec == 2 and fits:
            raw = zstd.decompress(data, size)
            if raw is not None:
                out = np.ascontiguousarray(np.frombuffer(raw, np.uint8).reshape(dtype.itemsize, -1).T).view(dtype)[:, 0]
        elif codec > 2:
            raise self.file.error("the record at byte %d has codec %d, which this version does not know", entry["offset"], codec)
        if out is None:
            raise self.file.error("the record at byte %d cannot be decoded", entry["offset"])
        out.flags.writeable = False
        return out

    def decoded(self, entry, column):
        """[n_heads][n] values of a record, or the (ends, pairs) of its lists of intervals."""
        offset = int(entry["offset"])
        if offset in self.cache:
            self.cache.move_to_end(offset)
            return self.cache[offset]
        flat = self.elements(entry, self.payload(entry), column.dtype)
        if column.intervals:
            out = self._lists(entry, flat, column)
        else:
            out = flat.reshape(int(entry["n_heads"]), -1)
        if entry["codec"] == 2 or self.file.map is None:
            self.cache[offset] = out
            self.cached += flat.nbytes
            while self.cached > CACHE_BYTES and len(self.cache) > 1:
                old = self.cache.popitem(last=False)[1]
                self.cached -= sum(a.nbytes for a in old) if isinstance(old, tuple) else old.nbytes
        return out

    def _lists(self, entry, flat, column):
        """Ends and pairs, which are checked as section 5 says."""
        n = int(entry["n_heads"]) * int(entry["n"])
        ends, pairs = flat[:n], flat[n:].reshape(-1, 2)
        wide = ends.astype(np.int64)
        counts = np.diff(wide, prepend=0)
        steps = column.trace.steps_of_epoch(int(entry["epoch"]))
        good = counts.min() >= 0 and counts.max() <= MOST_PAIRS_OF_TOKEN and wide[-1] == len(pairs)
        if good and len(pairs):
            token = np.repeat(int(entry["t0"]) + np.arange(n) % int(entry["n"]), counts)
            first, last = pairs.astype(np.int64).T
            inner = np.ones(len(pairs), bool)  # those that have one of the same list before them
            inner[(wide - counts)[counts > 0]] = False
            least = np.where(inner, np.roll(last, 1) + 2, token)
            good = bool(np.all((first >= least) & (first <= last) & (last < steps)))
        if not good:
            raise self.file.error("the intervals at byte %d cannot be", entry["offset"])
        return ends, pairs


class Column:
    """Values of one name.

    column[layer, head] is an array [steps], column[layer] one [heads][steps], and column[layer, head, a:b] a part; of a
    column of the run column[:] is all.  np.asarray(column) is [layers][heads][steps].  Arrays are read-only and lie in
    the file where it holds them as they are.  Values that the trace lacks raise MissingValues: missing is never zero.

    name, unit, dtype; space "run", "kv" or "query": the heads that it has; axis "token" or "step": what an index means;
    snapshot: the state at the end, as `evict_step`; intervals: lists of steps (Intervals) in place of values
    """

    def __init__(self, trace, number, name, dtype, space, axis, flags, unit):
        self.trace, self.number, self.name, self.dtype, self.space, self.axis, self.unit = trace, number, name, dtype, space, axis, unit
        self.flags = flags
        self.snapshot, self.intervals = bool(flags & SNAPSHOT), bool(flags & LISTS)

    @property
    def never(self):
        """The value of an age that says never; None for other columns."""
        return int(np.iinfo(self.dtype).max) if self.flags & AGE and self.dtype.kind == "u" else None

    @property
    def layers(self):
        return 1 if self.space == "run" else len(self.trace._heads)

    def heads(self, layer):
        """How many heads it has in a layer."""
        return self.trace.n_heads(layer, self.space)

    @property
    def shape(self):
        if self.space == "run":
            return (self.trace.steps,)
        heads = {self.heads(layer) for layer in range(self.layers)}
        return (self.layers, heads.pop() if len(heads) == 1 else None, self.trace.steps)

    def __repr__(self):
        return "<column %s of %s: %s %s %s>" % (shown(self.name), self.space, "intervals" if self.intervals else self.dtype.name,
                                              self.axis, self.shape)

    def __len__(self):
        return self.shape[0]

    def __array__(self, dtype=None, copy=None):
        if self.intervals:
            raise TypeError("column %s holds intervals: ask for [layer, head]" % shown(self.name))
        if self.space == "run":
            out = self.read(0, 0)
        elif None in self.shape:
            raise ValueError("the layers have different numbers of heads: ask for [layer]")
        else:
            self._check_size(self.layers * self.shape[1], self.trace.steps)
            out = np.stack([self[layer] for layer in range(self.layers)]) if self.layers else np.zeros(self.shape, self.dtype)
        return out.astype(dtype) if dtype is not None and out.dtype != dtype else out

    def __getitem__(self, key):
        key = key if isinstance(key, tuple) else (key,)
        if self.space == "run":
            return self._part(0, 0, key)
        if not key or not _is_int(key[0]):
            raise IndexError("column %s: the first index is a layer, as in [layer] or [layer, head]" % shown(self.name))
        layer = self._index(key[0], self.layers, "layer")
        if len(key) == 1 or isinstance(key[1], slice):
            heads = range(self.heads(layer))[key[1] if len(key) > 1 else slice(None)]
            if self.intervals:
                return [self._part(layer, head, key[2:]) for head in heads]
            if not len(heads):
                return np.zeros((0, self.trace.steps), self.dtype)[(slice(None), *key[2:])]
            low = min(heads[0], heads[-1])
            block = self._block(layer, low, max(heads[0], heads[-1]) + 1, 0, self.trace.steps)
            return block[[h - low for h in heads] if heads.step != 1 else slice(None)][(slice(None), *key[2:])]
        return self._part(layer, self._index(key[1], self.heads(layer), "head"), key[2:])

    def _index(self, value, n, what):
        if not _is_int(value):
            raise IndexError("column %s: a %s is one number" % (shown(self.name), what))
        at = int(value) + n * (value < 0)
        if not 0 <= at < n:
            raise IndexError("column %s: there is no %s %d of %d" % (shown(self.name), what, value, n))
        return at

    def _part(self, layer, head, key):
        if len(key) == 1 and isinstance(key[0], slice):
            a, b, step = key[0].indices(self.trace.steps)
            if step == 1:
                return self.read(layer, head, a, max(a, b))
        if len(key) == 1 and _is_int(key[0]):
            t = self._index(key[0], self.trace.steps, "index")
            return self.read(layer, head, t, t + 1)[0]
        out = self.read(layer, head)
        return out[key] if key else out

    def read(self, layer, head, t0=0, t1=None):
        """Values of tokens or steps t0 to t1 - 1 of one head, or their Intervals."""
        t1 = self.trace.steps if t1 is None else t1
        if not (0 <= head < self.heads(layer) and 0 <= t0 <= t1 <= MOST_STEPS):
            raise IndexError("column %s: there is no layer %s, head %s, range %s to %s" % (shown(self.name), layer, head, t0, t1))
        if self.intervals:
            return self._read_lists(layer, head, t0, t1)
        return self._block(layer, head, head + 1, t0, t1)[0]

    def present(self, layer, head):
        """Whether the trace has each of the values: [steps] bool."""
        have = np.zeros(self.trace.steps, bool)
        for _, e, h0, h1, a, b in self._pieces(layer, head, head + 1, 0, self.trace.steps):
            have[a:b] = True
        return have

    def _pieces(self, layer, h0, h1, t0, t1):
        """(values, entry, heads and indices that it gives) of all records that give some; those that count more come later."""
        for trace, epoch in reversed(self.trace.sources(self.snapshot)):
            for e in trace.values.find(INTERVALS if self.intervals else COLUMN, self.number, layer, epoch):
                g0, g1 = max(h0, int(e["head0"])), min(h1, int(e["head0"]) + int(e["n_heads"]))
                a, b = max(t0, int(e["t0"])), min(t1, int(e["t0"]) + int(e["n"]))
                if g0 < g1 and a < b:
                    yield trace, e, g0, g1, a, b

    def _block(self, layer, h0, h1, t0, t1):
        """[h1 - h0][t1 - t0] values."""
        pieces = list(self._pieces(layer, h0, h1, t0, t1))
        if len(pieces) == 1 and pieces[0][2:] == (h0, h1, t0, t1):
            trace, e = pieces[0][:2]
            head, t = h0 - int(e["head0"]), t0 - int(e["t0"])
            return trace.values.decoded(e, trace.schema[self.number])[head:head + h1 - h0, t:t + t1 - t0]
        if sum((g1 - g0) * (b - a) for _, _, g0, g1, a, b in pieces) < (h1 - h0) * (t1 - t0):
            raise self._first_missing(layer, pieces, h0, h1, t0, t1)
        self._check_size(h1 - h0, t1 - t0)
        out, have, first = np.zeros((h1 - h0, t1 - t0), self.dtype), np.zeros((h1 - h0, t1 - t0), bool), None
        for trace, e, g0, g1, a, b in pieces:
            head, t = int(e["head0"]), int(e["t0"])
            place = np.s_[g0 - h0:g1 - h0, a - t0:b - t0]
            try:
                out[place], have[place] = trace.values.decoded(e, trace.schema[self.number])[g0 - head:g1 - head, a - t:b - t], True
            except TraceError as error:  # a tail may have what is damaged here
                first = first or error
        if not have.all():
            raise first or self._first_missing(layer, pieces, h0, h1, t0, t1)
        out.flags.writeable = False
        return out

    def _first_missing(self, layer, pieces, h0, h1, t0, t1):
        """An exception about the first value that no piece gives."""
        for head in range(h0, h1):
            at = t0
            for a, b in sorted((a, b) for _, _, g0, g1, a, b in pieces if g0 <= head < g1):
                at = max(at, b) if a <= at else at
            if at < t1:
                return self._missing(layer, head, at)
        raise AssertionError("no value is missing")

    def _missing(self, layer, head, t):
        place = "" if self.space == "run" else " of layer %d, head %d" % (layer, head)
        return MissingValues("%s: the value of %s%s at %d is not in the trace" % (self.trace.path, shown(self.name), place, t))

    def _check_size(self, heads, steps):
        size, file = heads * steps * self.dtype.itemsize, self.trace.size
        if size > max(LARGE, MOST_RATIO * file):
            raise MissingValues("%s: column %s would take %d bytes, and the file has %d" % (self.trace.path, shown(self.name), size, file))

    def _read_lists(self, layer, head, t0, t1):
        ends, parts, at, total = [], [], t0, 0
        pieces = sorted(self._pieces(layer, head, head + 1, t0, t1), key=lambda p: p[4])
        for trace, e, _, _, a, b in pieces:
            if not a <= at < b:
                continue
            all_ends, pairs = trace.values.decoded(e, trace.schema[self.number])
            k = (head - int(e["head0"])) * int(e["n"]) - int(e["t0"])
            begin = int(all_ends[k + at - 1]) if k + at else 0
            mine = all_ends[k + at:k + b].astype(np.int64)
            parts.append(pairs[begin:mine[-1]])
            ends.append(mine - begin + total)
            total, at = int(ends[-1][-1]), b
            if total > MOST_PAIRS:
                raise MissingValues("%s: column %s has more than %d intervals here: ask for fewer tokens" %
                                    (self.trace.path, shown(self.name), MOST_PAIRS))
        if at < t1:
            raise self._missing(layer, head, at)
        return Intervals(t0, np.concatenate(ends) if ends else np.zeros(0, np.int64),
                         np.concatenate(parts) if parts else np.zeros((0, 2), np.uint32))


class Intervals:
    """Lists of intervals of steps, one for each token from t0 on: intervals[k] is an array [n][2] of (first, last).

    ends [tokens]: how many intervals there are up to and with those of a token; pairs [ends[-1]][2]: all of them
    """

    def __init__(self, t0, ends, pairs):
        self.t0, self.ends, self.pairs = t0, ends, pairs

    def __len__(self):
        return len(self.ends)

    def __getitem__(self, k):
        if isinstance(k, slice):
            return [self[i] for i in range(len(self))[k]]
        k = range(len(self))[k]
        return self.pairs[self.ends[k - 1] if k else 0:self.ends[k]]

    def __iter__(self):
        return (self[k] for k in range(len(self)))

    def __repr__(self):
        return "<intervals of %d tokens: %d>" % (len(self), len(self.pairs))


class Blob:
    """A block of numbers as they were in the run: name, layer, head, t0, shape, dtype (as "f32"); data: its elements;
    offset: where it lies in the file.

    NumPy has no bf16: data then holds the 16 bits of each, and float32() the numbers."""

    def __init__(self, values, entry):
        self._values, self._entry = values, entry
        p = bytes(values.payload(entry)[:BLOB_HEADER]) if entry["stored_len"] >= BLOB_HEADER else b""
        self._check(p)
        self.layer, self.head, self.t0, self.offset = (int(entry[k]) for k in ("layer", "head0", "t0", "offset"))

    def _check(self, p):
        bad = self._values.file.error("the blob at byte %d is damaged", self._entry["offset"])
        if len(p) < BLOB_HEADER or struct.unpack_from("<Q", p, 72)[0] != hash64(p[:72]):
            raise bad
        name, kind, rank, zero, *shape = struct.unpack_from("<48sBB6s4I", p)
        name = name.rstrip(b"\0")
        if (not name or b"\0" in name or len(name) > 47 or kind not in ELEMENTS or not 1 <= rank <= 4 or any(zero)
                or any(bool(n) != (k < rank) for k, n in enumerate(shape))):
            raise bad
        self.shape, self.dtype, self._element = tuple(shape[:rank]), BLOB_TYPES[kind], np.dtype(ELEMENTS[kind])
        size = self._element.itemsize * int(np.prod(self.shape, dtype=object))
        if not 0 < size <= MOST_BYTES or size != self._entry["raw_len"]:
            raise bad
        self.name = name.decode("utf-8", "surrogateescape")

    @property
    def data(self):
        stored = self._values.payload(self._entry)[BLOB_HEADER:]
        return self._values.elements(self._entry, stored, self._element).reshape(self.shape)

    def float32(self):
        raw = self.data
        return (raw.astype(np.uint32) << 16).view(np.float32) if self.dtype == "bf16" else raw.astype(np.float32)

    def __array__(self, dtype=None, copy=None):
        raw = self.float32() if self.dtype == "bf16" else self.data
        return raw.astype(dtype) if dtype is not None else raw

    def __repr__(self):
        return "<blob %s: %s %s, layer %d, head %d, from %d>" % (shown(self.name), self.dtype, self.shape, self.layer, self.head, self.t0)


def _is_int(value):
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
