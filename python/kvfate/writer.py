"""kvfate.Writer: traces from a program of one's own, by the library libkvftrace.

The library's writer is used rather than one in Python: what it has written is on the disk after a kill, its compression does not
hold up the program, and equal calls give the bytes that C programs write."""
import ctypes
import functools
import json
import os
import shutil
import sysconfig

import numpy as np

from .errors import Error, TraceError
from .column import BLOB_TYPES, ELEMENTS
from .records import MOST_STEPS
from .trace import AGE, AXES, DTYPES, LISTS, SNAPSHOT, SPACES

EXISTING = {"refuse": 0, "overwrite": 1, "resume": 2, "resume-overwrite": 3}
WORDS = {"--resume --overwrite": 'existing="resume-overwrite"', "--resume": 'existing="resume"', "--overwrite": 'existing="overwrite"'}  # of the library's sentences
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


def _places():
    """Names under which the library is tried: an installation has it in lib, a build in libtrace."""
    name = "libkvftrace.so.0"
    yield os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", name)
    yield name
    program = shutil.which("kvfate")
    if program:
        above = os.path.dirname(os.path.dirname(os.path.realpath(program)))
        for folder in ("lib", "lib64", os.path.join("lib", sysconfig.get_config_var("MULTIARCH") or ""), "libtrace"):
            yield os.path.join(above, folder, name)


@functools.lru_cache(maxsize=None)
def library():
    """libkvftrace: of this package, where the system finds libraries, or beside the program that is found on PATH."""
    for name in _places():
        try:
            k = ctypes.CDLL(name)
            break
        except OSError:
            continue
    else:
        raise Error("the library libkvftrace.so.0 is not in this package, not where libraries are looked for and not beside a program kvfate on PATH: install "
                    "kvfate's wheel, or add the folder of the library to LD_LIBRARY_PATH before Python starts")
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
    for leave in (k.kvf_writer_abandon, k.kvf_writer_drop):
        leave.argtypes, leave.restype = [p], None
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


def _exact(what, values, dtype):
    """Values in the type of a column; integers must fit, and what is finite stays so."""
    given = np.asarray(values)
    if given.dtype.kind not in "biuf":
        raise TraceError("%s: values of the type %s are no numbers" % (what, given.dtype))
    fits = True
    if dtype.kind in "iu" and given.size:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        whole = given.dtype.kind in "biu" or np.all(np.isfinite(given)) and np.all(given == np.floor(given))
        fits = whole and int(given.min()) >= low and int(given.max()) <= high
    with np.errstate(over="ignore"):
        out = np.ascontiguousarray(given, dtype) if fits else given
    if dtype.kind == "f" and dtype.itemsize < given.dtype.itemsize:
        fits = not np.any(np.isinf(out) & np.isfinite(given))
    if not fits:
        raise TraceError("%s: a value does not fit into %s" % (what, dtype.name))
    return out


def _place(what, value, most):
    """A number that the format has room for."""
    if not isinstance(value, (int, np.integer)) or not 0 <= value <= most:
        raise TraceError("%s %s: it is a whole number from 0 to %d" % (what, value, most))
    return int(value)


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
    PATH.unfinished.  When the program is killed it stays there, and so it does after a failure if a commit has counted something.
    only_whole: nothing is to be seen of the trace before it is closed, and nothing is left of one that is not."""

    def __init__(self, path, heads, columns, meta=None, prompt=(), existing="refuse", plain=False, only_whole=False):
        self.path, self._writer, self.epoch = os.fspath(path), ctypes.c_void_p(), 0  # what `abandon` looks at, also where this fails
        self._lib = library()
        self._specs = {name: (number, _column(name, words)) for number, (name, words) in enumerate(columns.items())}
        table = (_Column * max(1, len(columns)))(*(c for _, c in self._specs.values()))
        kv, query = (_exact("%s: heads" % self.path, np.array([h[k] for h in heads], np.int64), np.dtype(np.uint16)) for k in (0, 1))
        ids = _exact("%s: prompt" % self.path, prompt if len(prompt) else np.zeros(0, np.int32), np.dtype(np.int32))
        if existing not in EXISTING:
            raise TraceError("existing=%r: it is one of %s" % (existing, ", ".join(EXISTING)))
        options = _Options(existing=EXISTING[existing], prompt=ids.ctypes.data, n_prompt=ids.size, plain=plain, only_whole=only_whole)
        shape = _Shape(len(heads), kv.ctypes.data, query.ctypes.data)
        text = _as_json(meta or {}, "%s: meta" % self.path, sort_keys=True)
        diag = _Diag()
        err = self._lib.kvf_writer_open(os.fsencode(self.path), text, ctypes.byref(shape), table, len(columns),
                                        ctypes.byref(options), ctypes.byref(self._writer), ctypes.byref(diag))
        self._check(err, diag)
        self._heads, self.steps, self._open = list(heads), 0, False
        self._kept, self._written = set(), set()  # snapshots: of the last commit, and since

    def _check(self, err, diag=None, what=""):
        if err:
            said = diag.text.decode("utf-8", "replace") if diag else ""
            for option, word in WORDS.items():
                said = said.replace(option, word)
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
        self._reaches(t0, n)
        if c.flags & SNAPSHOT:
            self._written.add((name, layer))
        return self.epoch + 1 if c.flags & SNAPSHOT else 0

    def _reaches(self, t0, n):
        end = _place("%s: index" % self.path, t0, MOST_STEPS) + n
        self.steps, self._open = max(self.steps, _place("%s: steps" % self.path, end, MOST_STEPS)), True

    def write(self, name, values, layer=0, head0=0, t0=0):
        """Values [heads][n] of heads head0 ... of a layer, or [n] of a column of the run, from index t0 on."""
        number, c = self._column(name)
        values = np.asarray(values)[None] if c.space == 0 else values
        if np.ndim(values) != 2:
            raise TraceError("column %s: values are [heads][n], or [n] of a column of the run, and not of %d dimensions" % (name, np.ndim(values)))
        data = _exact("column %s" % name, values, np.dtype(DTYPES[c.dtype]))
        heads, n = data.shape
        epoch = self._epoch(name, layer, head0, heads, t0, n)
        if n:
            self._check(self._lib.kvf_write_chunk(self._handle(), number, layer, head0, heads, t0, n, epoch, data.ctypes.data),
                        what="column %s of layer %d: " % (name, layer))

    def intervals(self, name, lists, layer=0, head0=0, t0=0):
        """lists: [heads][n] lists of (first, last) steps, rising and apart, none before its token."""
        flat = [one for row in lists for one in row]
        ends = np.cumsum([len(one) for one in flat], dtype=np.int64).astype(np.uint32)
        pairs = [pair for one in flat for pair in one]
        pairs = _exact("column %s" % name, pairs, np.dtype(np.uint32)) if pairs else np.zeros((0, 2), np.uint32)
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise TraceError("column %s: intervals are (first, last) steps" % name)
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
            self._reaches(t0, len(data))
            ends = _exact("texts", np.cumsum([len(t) for t in data], dtype=np.int64), np.dtype(np.uint32))
            self._check(self._lib.kvf_write_token_bytes(self._handle(), t0, len(data), ends.ctypes.data, b"".join(data)), what="texts: ")

    def blob(self, name, data, layer=0, head=0, t0=0, dtype=None, packed=False):
        """A block of numbers of up to four dimensions.  dtype="bf16": data are the 16 bits of each number."""
        data = np.ascontiguousarray(data)
        kinds = [k for k, v in ELEMENTS.items() if np.dtype(v) == data.dtype and (k == TYPES["bf16"]) == (dtype == "bf16")]
        if not kinds or not 1 <= data.ndim <= 4:
            raise TraceError("blob %s: %s of %d dimensions cannot be stored; there are %s, of 1 to 4" % (name, data.dtype.name, data.ndim, ", ".join(TYPES)))
        layer, head, t0 = (_place("blob %s: %s" % (name, what), n, most) for what, n, most in (("layer", layer, 65535), ("head", head, 65535), ("t0", t0, MOST_STEPS)))
        b = _Blob(_text("blob", name, 47), kinds[0], data.ndim, layer, head, t0, (ctypes.c_uint32 * 4)(*data.shape))
        self._check(self._lib.kvf_write_blob(self._handle(), ctypes.byref(b), packed, data.ctypes.data), what="blob %s: " % name)

    def note(self, key, value):
        """Metadata known only late: anything that JSON can say, or JSON as bytes."""
        text = _as_json(value, "%s: the note %s" % (self.path, key))
        self._check(self._lib.kvf_writer_note(self._handle(), key.encode("utf-8", "surrogateescape"), text), what="note %s: " % key)

    def commit(self, steps=None):
        """What was written counts: the run has so many steps, or as many as were written.  Each commit needs all snapshots anew."""
        steps = self.steps if steps is None else _place("%s: steps" % self.path, steps, MOST_STEPS)
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
        """Leaves the trace at PATH.unfinished, as a crash would, if a commit has counted something; else removes it."""
        if self._writer:
            (self._lib.kvf_writer_abandon if self.epoch else self._lib.kvf_writer_drop)(self._writer)
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
