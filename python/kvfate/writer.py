"""kvfate.Writer: traces from a program of one's own, by the library libkvftrace.

The library's writer is used rather than one in Python: what it has written is on the disk after a kill, its compression does not
hold up the program, and equal calls give the bytes that C programs write."""
import ctypes
import functools
import json
import os

import numpy as np

from .errors import Error, TraceError
from .column import BLOB_TYPES, ELEMENTS
from .trace import AGE, AXES, DTYPES, LISTS, SNAPSHOT, SPACES

EXISTING = {"refuse": 0, "overwrite": 1, "resume": 2, "resume-overwrite": 3}
TYPES = {name: kind for kind, name in BLOB_TYPES.items()}
FLAGS = {"snapshot": SNAPSHOT, "age": AGE, "intervals": LISTS}


class _Column(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char * 48), ("dtype", ctypes.c_uint8), ("space", ctypes.c_uint8), ("axis", ctypes.c_uint8),
                ("flags", ctypes.c_uint8), ("unit", ctypes.c_char * 16)]


class _Shape(ctypes.Structure):
    _fields_ = [("n_layers", ctypes.c_int), ("n_kv", ctypes.c_void_p), ("n_query", ctypes.c_void_p)]


class _Options(ctypes.Structure):
    _fields_ = [("existing", ctypes.c_int), ("only_whole", ctypes.c_bool), ("prompt", ctypes.c_void_p), ("n_prompt", ctypes.c_size_t),
                ("run", ctypes.c_void_p), ("smallest", ctypes.c_bool), ("plain", ctypes.c_bool)]


class _Blob(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char * 48), ("dtype", ctypes.c_uint8), ("rank", ctypes.c_uint8), ("layer", ctypes.c_uint16),
                ("head", ctypes.c_uint16), ("t0", ctypes.c_uint32), ("shape", ctypes.c_uint32 * 4)]


class _Diag(ctypes.Structure):
    _fields_ = [("text", ctypes.c_char * 512)]


@functools.lru_cache(maxsize=None)
def _library():
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "libkvftrace.so.0")
    for name in (own, "libkvftrace.so.0"):
        try:
            k = ctypes.CDLL(name)
            break
        except OSError:
            continue
    else:
        raise Error("the library libkvftrace.so.0 is not in this package and not where libraries are looked for: install kvfate's wheel, "
                    "or add the folder of the library to LD_LIBRARY_PATH before Python starts")
    u32, p, n = ctypes.c_uint32, ctypes.c_void_p, ctypes.c_int
    k.kvf_strerror.restype = ctypes.c_char_p
    k.kvf_writer_open.argtypes = [ctypes.c_char_p, ctypes.c_char_p, p, p, n, p, p, p]
    k.kvf_write_chunk.argtypes = [p, n, n, n, n, u32, u32, u32, p]
    k.kvf_write_intervals.argtypes = [p, n, n, n, n, u32, u32, u32, p, p]
    k.kvf_write_token_bytes.argtypes = [p, u32, u32, p, ctypes.c_char_p]
    k.kvf_write_blob.argtypes = [p, p, ctypes.c_bool, p]
    k.kvf_writer_note.argtypes = [p, ctypes.c_char_p, ctypes.c_char_p]
    k.kvf_writer_commit.argtypes = [p, u32, u32]
    k.kvf_writer_close.argtypes = [p, p]
    k.kvf_writer_abandon.argtypes, k.kvf_writer_abandon.restype = [p], None
    return k


def _text(what, value, most):
    """Bytes of a name or unit that the format has room for."""
    data = value.encode("utf-8")
    if len(data) > most or b"\0" in data:
        raise TraceError("%s %r is longer than %d bytes, or holds a zero" % (what, value, most))
    return data


def _column(name, words):
    """A column from its name and words such as "u16 query token age snapshot", the unit behind a colon."""
    said, _, unit = words.partition(":")
    c = _Column(_text("column", name, 47), 0, 0, 0, 0, _text("unit", unit[unit.startswith(" "):], 15))
    for word in said.split():
        if word in TYPES and TYPES[word] in DTYPES:
            c.dtype = TYPES[word]
        elif word in SPACES:
            c.space = SPACES.index(word)
        elif word in AXES:
            c.axis = AXES.index(word)
        elif word in FLAGS:
            c.flags |= FLAGS[word]
        else:
            raise TraceError("column %s: %r is no type, space (run, kv, query), axis (token, step) or flag (snapshot, age, intervals)" % (name, word))
    if not c.dtype:
        raise TraceError("column %s: there is no type in %r, such as u32 or f32" % (name, words))
    return c


def _exact(name, values, dtype):
    """[heads][n] values in the type of a column; integers must fit."""
    given = np.asarray(values)
    if given.ndim != 2:
        raise TraceError("column %s: values are [heads][n], or [n] of a column of the run, and not of %d dimensions" % (name, given.ndim))
    if dtype.kind in "iu" and given.size:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        whole = given.dtype.kind in "biu" or np.all(given == np.floor(given))
        if not whole or int(given.min()) < low or int(given.max()) > high:
            raise TraceError("column %s: a value does not fit into %s" % (name, dtype.name))
    return np.ascontiguousarray(given, dtype)


def _as_json(value, what, **options):
    if isinstance(value, bytes):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, **options).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as e:
        raise TraceError("%s holds what JSON cannot say: %s" % (what, e)) from None


class Writer:
    """Writes a trace.

        with kvfate.Writer("x.kvf", heads=[(2, 8)] * 16, meta={"method": {"name": "mine"}}, prompt=ids,
                           columns={"tokens.id": "i32 run", "evict_step": "u32 kv snapshot", "entropy": "f32 query step: nat"}) as w:
            w.write("tokens.id", ids)
            w.write("evict_step", steps, layer=0)       # [heads][tokens]
            w.texts(["A", " trace"])

    heads: (KV heads, query heads) of each layer; columns: {name: type, space, axis (token, unless it says step), flags: unit}.
    Names that are not of <kvf/schema.h> begin with x-.  existing: "refuse", "overwrite", "resume" or "resume-overwrite".
    plain: values are stored as they are, so that readers need not copy them.

    Columns with the flag snapshot say how things stand: they are written whole before each commit.  commit() makes what was
    written count; at the end of the `with` it is called where something was written since.  Until then the trace lies at
    PATH.unfinished; when the program is killed or fails it stays there and holds what the last commit counted."""

    def __init__(self, path, heads, columns, meta=None, prompt=(), existing="refuse", plain=False):
        self.path, self._writer = os.fspath(path), ctypes.c_void_p()  # what `abandon` looks at, also where this fails
        self._lib = _library()
        self._specs = {name: (number, _column(name, words)) for number, (name, words) in enumerate(columns.items())}
        table = (_Column * max(1, len(columns)))(*(c for _, c in self._specs.values()))
        kv, query = (np.array([h[k] for h in heads], np.uint16) for k in (0, 1))
        ids = np.ascontiguousarray(prompt, np.int32)
        if existing not in EXISTING:
            raise TraceError("existing=%r: it is one of %s" % (existing, ", ".join(EXISTING)))
        options = _Options(existing=EXISTING[existing], prompt=ids.ctypes.data, n_prompt=ids.size, plain=plain)
        shape = _Shape(len(heads), kv.ctypes.data, query.ctypes.data)
        text = _as_json(meta or {}, "%s: meta" % self.path, sort_keys=True)
        diag = _Diag()
        err = self._lib.kvf_writer_open(os.fsencode(self.path), text, ctypes.byref(shape), table, len(columns),
                                        ctypes.byref(options), ctypes.byref(self._writer), ctypes.byref(diag))
        self._check(err, diag)
        self._heads, self.epoch, self.steps, self._open = list(heads), 0, 0, False
        self._kept, self._written = set(), set()  # snapshots: of the last commit, and since

    def _check(self, err, diag=None, what=""):
        if err:
            said = diag.text.decode("utf-8", "replace") if diag else ""
            said = said.replace("--overwrite replaces it", 'existing="overwrite", or --overwrite, replaces it')
            raise TraceError(said or "%s: %s%s" % (self.path, what, self._lib.kvf_strerror(err).decode()))

    def _handle(self):
        if not self._writer:
            raise TraceError("%s: the trace is closed" % self.path)
        return self._writer

    def _column(self, name):
        """(number, column) of a name."""
        if name not in self._specs:
            raise TraceError("%s: there is no column %s; there are: %s" % (self.path, name, ", ".join(self._specs)))
        return self._specs[name]

    def dtype(self, name):
        return np.dtype(DTYPES[self._column(name)[1].dtype])

    def space(self, name):
        return SPACES[self._column(name)[1].space]

    def _epoch(self, name, layer, head0, n_heads, t0, n):
        """The epoch of a call that writes these heads and indices, which are looked at."""
        c = self._column(name)[1]
        there = [1 if layer == 0 else 0, *(self._heads[layer] if 0 <= layer < len(self._heads) else (0, 0))][c.space]
        if head0 < 0 or n_heads < 1 or head0 + n_heads > there:
            raise TraceError("%s: column %s has %d heads in layer %d, and heads %d to %d were given" % (
                self.path, name, there, layer, head0, head0 + n_heads - 1))
        self._reaches(t0 + n)
        if c.flags & SNAPSHOT:
            self._written.add((name, layer))
        return self.epoch + 1 if c.flags & SNAPSHOT else 0

    def _reaches(self, end):
        self.steps, self._open = max(self.steps, end), True

    def write(self, name, values, layer=0, head0=0, t0=0):
        """Values [heads][n] of heads head0 ... of a layer, or [n] of a column of the run, from index t0 on."""
        number, c = self._column(name)
        values = np.asarray(values)[None] if c.space == 0 else values
        data = _exact(name, values, np.dtype(DTYPES[c.dtype]))
        heads, n = data.shape
        epoch = self._epoch(name, layer, head0, heads, t0, n)
        if n:
            self._check(self._lib.kvf_write_chunk(self._handle(), number, layer, head0, heads, t0, n, epoch, data.ctypes.data),
                        what="column %s of layer %d: " % (name, layer))

    def intervals(self, name, lists, layer=0, head0=0, t0=0):
        """lists: [heads][n] lists of (first, last) steps, rising and apart, none before its token."""
        flat = [one for row in lists for one in row]
        ends = np.cumsum([len(one) for one in flat], dtype=np.int64).astype(np.uint32)
        pairs = np.array([pair for one in flat for pair in one], np.uint32).reshape(-1, 2)
        n = len(lists[0]) if lists else 0
        if any(len(row) != n for row in lists):
            raise TraceError("column %s: the heads have lists of different numbers of tokens" % name)
        epoch = self._epoch(name, layer, head0, len(lists), t0, n)
        if n:
            self._check(self._lib.kvf_write_intervals(self._handle(), self._column(name)[0], layer, head0, len(lists), t0, n, epoch,
                                                      ends.ctypes.data, pairs.ctypes.data), what="column %s of layer %d: " % (name, layer))

    def texts(self, texts, t0=0):
        """The texts of tokens t0, t0 + 1, ...: str, or bytes where a token is part of a character."""
        data = [t.encode("utf-8") if isinstance(t, str) else bytes(t) for t in texts]
        if data:
            ends = np.cumsum([len(t) for t in data], dtype=np.int64).astype(np.uint32)
            self._check(self._lib.kvf_write_token_bytes(self._handle(), t0, len(data), ends.ctypes.data, b"".join(data)), what="texts: ")
            self._reaches(t0 + len(data))

    def blob(self, name, data, layer=0, head=0, t0=0, dtype=None, packed=False):
        """A block of numbers of up to four dimensions.  dtype="bf16": data are the 16 bits of each number."""
        data = np.ascontiguousarray(data)
        kinds = [k for k, v in ELEMENTS.items() if np.dtype(v) == data.dtype and (k == TYPES["bf16"]) == (dtype == "bf16")]
        if not kinds or not 1 <= data.ndim <= 4:
            raise TraceError("blob %s: %s of %d dimensions cannot be stored; there are %s, of 1 to 4" % (name, data.dtype.name, data.ndim, ", ".join(TYPES)))
        b = _Blob(_text("blob", name, 47), kinds[0], data.ndim, layer, head, t0, (ctypes.c_uint32 * 4)(*data.shape))
        self._check(self._lib.kvf_write_blob(self._handle(), ctypes.byref(b), packed, data.ctypes.data), what="blob %s: " % name)

    def note(self, key, value):
        """Metadata known only late: anything that JSON can say, or JSON as bytes."""
        text = _as_json(value, "%s: the note %s" % (self.path, key))
        self._check(self._lib.kvf_writer_note(self._handle(), key.encode("utf-8", "surrogateescape"), text), what="note %s: " % key)

    def commit(self, steps=None):
        """What was written counts: the run has so many steps, or as many as were written.  Each commit needs all snapshots anew."""
        steps = self.steps if steps is None else steps
        lost = sorted(self._kept - self._written)
        if lost:
            raise TraceError("%s: column %s of layer %d was not written since the last commit; columns that are snapshots are written whole "
                             "before each" % (self.path, *lost[0]))
        self._check(self._lib.kvf_writer_commit(self._handle(), self.epoch + 1, steps), what="commit of %d steps: " % steps)
        self.epoch, self._open, self._kept, self._written = self.epoch + 1, False, self._written, set()

    def close(self):
        """Commits what is not committed, and brings the trace to its name."""
        if self._writer:
            if self._open or not self.epoch:
                self.commit()
            diag, writer, self._writer = _Diag(), self._writer, ctypes.c_void_p()
            self._check(self._lib.kvf_writer_close(writer, ctypes.byref(diag)), diag)

    def abandon(self):
        """Leaves the trace at PATH.unfinished, as a crash would."""
        if self._writer:
            self._lib.kvf_writer_abandon(self._writer)
            self._writer = ctypes.c_void_p()

    def __del__(self):
        if getattr(self, "_writer", None):
            self.abandon()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            try:
                self.close()
            finally:
                self.abandon()
        else:
            self.abandon()
