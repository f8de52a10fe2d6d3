"""kvfate.open: a trace as lazy NumPy arrays."""
import collections
import html
import json
import os
import struct

import numpy as np

from . import analyses
from .column import Blob, Column, Values
from .errors import Error, MissingValues, TraceError, meant, shown
from .program import NO_PROGRAM
from .records import BLOB, COLUMN, COMMIT, INTERVALS, META, MOST_BYTES, MOST_STEPS, NOTE, SCHEMA, TOKENS, RecordFile

DTYPES = {1: "<u1", 2: "<u2", 3: "<u4", 4: "<i4", 5: "<f4", 6: "<f8", 7: "<u8"}
SPACES = ("run", "kv", "query")
AXES = ("token", "step")
SNAPSHOT, AGE, LISTS = 1, 2, 4
MOST_LAYERS = MOST_HEADS = MOST_COLUMNS = 4096
MOST_KEY = 255
FREE_STEPS = 131072  # steps that are accepted for a file of any size


class Trace:
    """An open trace.

    survival(), eviction(), ...  the analyses, as tables (dir(trace) lists them, help(trace.survival) explains survival);
               trace.survival.figure() draws it
    steps      number of tokens of the run; token and step indices run from 0 to steps - 1
    heads      [(KV heads, query heads)] of each layer
    columns    {name: Column}; trace["tokens.id"], and trace.evict_step for names that are Python identifiers
    meta       the run header, a dict; notes: {key: value of its JSON}
    answer     the generated text
    tokens     the text of each token as str, or None if it is not stored; texts: the same as bytes
    blobs      blocks of raw numbers of the run
    format     "1.0" or "0.1"
    closed     False: the writer was interrupted; the trace has its last commit
    id         the identity of the run, 32 hexadecimal digits; None in format 0.1
    digest     the stored digest of the content, 32 digits, or None

    `with` closes it; arrays read from it remain valid.
    """

    def __init__(self, path, checksums=True):
        """checksums: verify the checksum of each block of values when it is first read."""
        self._file = RecordFile(path)
        try:
            self._load()
            self.values = Values(self._file, checksums)
            self.tail = None if self.closed else self._open_tail(checksums)
        except BaseException:
            self._file.close()
            raise

    # ---- header, schema and notes

    def _load(self):
        f = self._file
        self.path, self.closed = f.path, f.closed
        self.format = "1.0" if f.chained else "0.1"
        self.id = "%016x%016x" % f.id[::-1] if f.chained else None
        self.digest = "%016x%016x" % f.digest[::-1] if f.digest else None
        self.epoch, self.steps, commit_at = 0, 0, -1
        self._schema_bytes = self._first(SCHEMA, "schema")
        self.meta_bytes = bytes(self._first(META, "run header"))
        if len(self.meta_bytes) > MOST_BYTES:
            raise f.error("the run header has %d bytes, over the limit", len(self.meta_bytes))
        self._schema(bytes(self._schema_bytes))
        good = self._fit_schema(f.records)
        for e in f.records[~good]:
            f.damage(int(e["offset"]))
        f.records, f.kinds = f.records[good], f.kinds[good]
        for e, epoch, steps in self._small(COMMIT, self._commit):
            if epoch > self.epoch:
                self.epoch, self.steps, commit_at = epoch, steps, int(e["offset"])
        notes = sorted(self._small(NOTE, self._note), key=lambda n: int(n[0]["offset"]))
        self._notes = {key: text for _, key, text in notes}
        if f.first_bad is not None and (f.closed or f.first_bad < commit_at):
            raise f.error("damaged at byte %d; 'kvfate trace verify --full' lists the lost data", f.first_bad)

    def _first(self, kind, name):
        found = self._file.of_type(kind)
        if not len(found):
            cut = not self.closed and self._file.first_bad is None
            raise self._file.error("the %s is %s", name, "not complete: the writer was interrupted at once, or the file was cut off" if cut else "lost")
        return self._file.payload(found[0])

    def _small(self, kind, parse):
        """Yield the parsed records of a kind.  Invalid records are listed as damage."""
        for e in self._file.of_type(kind):
            try:
                said = parse(e, bytes(self._file.payload(e)))
            except TraceError:
                said = None
            if said is None:
                self._file.damage(int(e["offset"]))
            else:
                yield (e, *said)

    @staticmethod
    def _commit(entry, p):
        if len(p) != 8:
            return None
        epoch, steps = struct.unpack("<II", p)
        return (epoch, steps) if epoch == entry["epoch"] and steps <= MOST_STEPS else None

    @staticmethod
    def _note(_, p):
        key, zero, text = p.partition(b"\0")
        return (key, text) if zero and 0 < len(key) <= MOST_KEY and len(text) <= MOST_BYTES else None

    def _schema(self, p):
        """Set self._heads and the columns, in the order of the payload."""
        bad = self._file.error("the schema is malformed")
        layers = struct.unpack_from("<I", p)[0] if len(p) >= 8 else MOST_LAYERS + 1
        at = 4 + 4 * layers
        if layers > MOST_LAYERS or len(p) < at + 4:
            raise bad
        self._heads = list(struct.iter_unpack("<HH", p[4:at]))
        n = struct.unpack_from("<I", p, at)[0]
        if any(max(h) > MOST_HEADS for h in self._heads) or n > MOST_COLUMNS or len(p) != at + 4 + 68 * n:
            raise bad
        self.schema = []
        for k, (name, dtype, space, axis, flags, unit) in enumerate(struct.iter_unpack("<48sBBBB16s", p[at + 4:])):
            lists = flags & (LISTS | SNAPSHOT | AGE) == LISTS | SNAPSHOT and dtype == 3 and axis == 0
            if (b"\0" not in name or b"\0" not in unit or dtype not in DTYPES or space >= len(SPACES)
                    or axis >= len(AXES) or flags & LISTS and not lists):
                raise bad
            name, unit = (s.split(b"\0")[0].decode("utf-8", "surrogateescape") for s in (name, unit))
            self.schema.append(Column(self, k, name, np.dtype(DTYPES[dtype]), SPACES[space], AXES[axis], flags, unit))
        self.columns = {c.name: c for c in reversed(self.schema)}  # the first of two columns with equal names
        self.columns = {c.name: self.columns[c.name] for c in self.schema}

    def n_heads(self, layer, space):
        """Return the number of heads of a space in a layer.  Values of the run are at layer 0, head 0."""
        if space == "run":
            return int(layer == 0)
        return self._heads[layer][space == "query"] if 0 <= layer < len(self._heads) else 0

    def _fit_schema(self, e):
        """Return a flag for each record: the schema allows it."""
        kind, layer, heads0 = e["type"], e["layer"], e["head0"]
        layers = len(self._heads)
        heads = np.zeros((max(layers, 1) + 1, 3), np.int64)  # the last row: layers that do not exist
        heads[0, 0] = 1
        heads[:layers, 1:] = np.array(self._heads, np.int64).reshape(-1, 2)
        of_layer = heads[np.minimum(layer, len(heads) - 1)]
        chunk = (kind == COLUMN) | (kind == INTERVALS)
        kinds = [(SPACES.index(c.space), c.dtype.itemsize, c.intervals) for c in self.schema]
        number = np.where(chunk, np.minimum(e["column"], len(kinds)), len(kinds)).astype(np.int64)
        space, width, lists = np.array([*kinds, (0, 1, 2)], np.int64)[number].T  # the last entry: columns that do not exist
        values = e["n_heads"].astype(np.int64) * e["n"].astype(np.int64)
        raw = e["raw_len"].astype(np.int64)
        length = np.where(lists == 1, (raw >= 4 * values) & ((raw - 4 * values) % 8 == 0), raw == values * width)
        fits = ((lists == (kind == INTERVALS)) & (e["n_heads"] >= 1) & (e["n"] >= 1) & length
                & (heads0.astype(np.int64) + e["n_heads"] <= np.take_along_axis(of_layer, space[:, None], 1)[:, 0])
                & (e["t0"].astype(np.int64) + e["n"] <= MOST_STEPS))
        known = np.where(layer < layers, heads0 < np.maximum(of_layer[:, 1], of_layer[:, 2]), layer == 0)
        blob = (((heads0 == 0) & ((layer < layers) | (layer == 0)) | known & (layer < layers)) & (e["t0"] < MOST_STEPS)
                & (raw >= 1) & (raw <= MOST_BYTES) & (e["stored_len"] >= 80))
        return np.where(chunk, fits, np.where(kind == BLOB, blob, True))

    # ---- the tail of an unfinished trace (section 6)

    def _open_tail(self, checksums):
        name = self.path[:-len(".unfinished")] if self.path.endswith(".unfinished") else self.path
        if self.id is None or not os.path.exists(name + ".tail"):
            return None
        try:
            tail = Trace(name + ".tail", checksums)
        except TraceError:
            return None  # use the newest commit of the trace
        if not (tail.closed and tail.id == self.id and tail.steps > self.steps
                and bytes(tail._schema_bytes) == bytes(self._schema_bytes)):
            tail.close()
            return None
        self.steps, self.epoch = tail.steps, self.epoch + 1
        return tail

    # ---- public values

    @property
    def meta(self):
        return self._json(self.meta_bytes, "run header")

    @property
    def notes(self):
        return {k.decode("utf-8", "replace"): self._json(v, "note %s" % k.decode("utf-8", "replace"))
                for k, v in self.note_bytes.items()}

    @property
    def note_bytes(self):
        """{key: stored JSON text}."""
        return dict(self._notes)

    def _json(self, data, what):
        try:
            return json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError):
            raise self._file.error("the %s is not JSON", what) from None

    @property
    def texts(self):
        """The texts of all tokens as bytes; None for texts that are missing or damaged."""
        if self.steps > max(FREE_STEPS, self.size):
            raise self._file.error("it declares %d steps and has %d bytes", self.steps, self.size)
        out = [None] * self.steps
        for t in (self.tail, self):  # texts of the trace replace those of its tail
            for e in t._file.of_type(TOKENS) if t else ():
                t0 = int(e["t0"])
                for k, text in enumerate(t._texts_of(e)[:max(0, self.steps - t0)]):
                    out[t0 + k] = text
        return out

    def _texts_of(self, e):
        t0, n = int(e["t0"]), int(e["n"])
        if t0 + n > MOST_STEPS or 4 * n > e["stored_len"]:
            return []
        try:
            p = bytes(self._file.payload(e))
        except TraceError:
            return []
        ends = np.frombuffer(p, "<u4", n).tolist()
        if ends != sorted(ends) or ends and ends[-1] > len(p) - 4 * n:
            return []
        text = p[4 * n:]
        return [text[a:b] for a, b in zip([0] + ends, ends)]

    @property
    def size(self):
        """Bytes of the file and its tail."""
        return self._file.size + (self.tail.size if self.tail else 0)

    def sources(self, snapshot):
        """Return [(trace, epoch)] of the files with values.  The first one that has a value counts."""
        if not snapshot:
            return [(t, 0) for t in (self, self.tail) if t]
        return [(self.tail, self.tail.epoch)] if self.tail else [(self, self.epoch)]

    def steps_of_epoch(self, epoch):
        """Return the upper bound of intervals of an epoch."""
        return self.steps if epoch == self.epoch else MOST_STEPS

    @property
    def tokens(self):
        """Texts as str; invalid UTF-8, such as a part of a character, becomes U+FFFD."""
        return analyses.Listed([None if t is None else t.decode("utf-8", "replace") for t in self.texts], self, "tokens")

    @property
    def heads(self):
        """[(KV heads, query heads)] of each layer; heads() is the table of the analysis."""
        return analyses.Listed(self._heads, self, "heads")

    @property
    def answer(self):
        """The generated text.  MissingValues if the run generated no text."""
        result = self.notes.get("result")
        if not isinstance(result, dict) or not isinstance(result.get("text"), str):
            raise MissingValues("%s: there is no answer: the run generated no text" % self.path)
        return result["text"]

    @property
    def blobs(self):
        return [Blob(self.values, e) for e in self._file.of_type(BLOB)]

    def __getitem__(self, name):
        try:
            return self.columns[name]
        except KeyError:
            analysis = "; trace.%s is an analysis" % name if name in self._analyses() else shown(meant(name, self.columns))
            raise KeyError("%s: there is no column %s%s; there are: %s" % (self.path, name, analysis, shown(", ".join(self._families())))) from None

    def _families(self):
        """Returns the names of the columns; "query.* (64)" stands for many names with one prefix."""
        first = {name: name.partition(".")[0] for name in self.columns}
        size = collections.Counter(first.values())
        return list(dict.fromkeys("%s.* (%d)" % (f, size[f]) if size[f] > 4 else name for name, f in first.items()))

    def __getattr__(self, name):
        columns = self.__dict__.get("columns", {})
        if name in columns:
            return columns[name]
        known = self._analyses() if "path" in self.__dict__ and not name.startswith("_") else {}
        if name in known:
            return analyses.Analysis(self, known[name])
        lost = "" if known or name.startswith("_") else "; if it is an analysis: " + NO_PROGRAM
        raise AttributeError("%s: there is no column%s %s%s%s" % (self.__dict__.get("path", "a trace"), " and no analysis" if known else "", name,
                                                                  shown(meant(name, [*columns, *known, *dir(type(self))])), lost))

    @staticmethod
    def _analyses():
        """Return {name: analysis} of the methods; empty if the program is not installed."""
        try:
            return analyses.names()
        except (Error, OSError):
            return {}

    def figure(self, name, **options):
        """Returns a figure by its name in `kvfate list figures`, or of an analysis: trace.figure("eviction", size="88x60").  A notebook shows it."""
        from .tables import figure
        return figure(name, self, **options)

    def report(self, **options):
        """Returns the interactive page of the trace, which a notebook shows."""
        from .tables import report
        return report(self, **options)

    def __contains__(self, name):
        return name in self.columns

    def __dir__(self):
        return sorted({*super().__dir__(), *(c for c in self.columns if c.isidentifier()), *self._analyses()})

    def __repr__(self):
        return "<kvfate trace %s: %d steps, %d layers, %d columns%s>" % (
            self.path, self.steps, len(self._heads), len(self.columns), "" if self.closed else ", not closed")

    def _repr_html_(self):
        """Return a sentence and the columns, for a notebook."""
        row = "<tr>%s</tr>" % ("<td style='text-align:left'>%s</td>" * 5)
        cells = [tuple(map(html.escape, (c.name, "intervals" if c.intervals else c.dtype.name, str(c.shape), c.axis, c.unit))) for c in self.columns.values()]
        return "<p>%s</p><table><tr><th>%s</th></tr>%s</table>" % (
            html.escape(repr(self)), "</th><th>".join(("column", "type", "shape", "of each", "unit")), "".join(row % c for c in cells))

    def verify(self):
        """Check the chain of records, the index and every checksum, and decode all values.  TraceError names the first
        damage.  For a trace that was not closed, the committed part is checked."""
        self._file.verify()
        for e in self._file.records:
            if e["type"] in (COLUMN, INTERVALS):
                self.values.decoded(e, self.schema[e["column"]])
            elif e["type"] == BLOB:
                Blob(self.values, e).data
        if self.tail:
            self.tail.verify()

    def close(self):
        if self.tail:
            self.tail.close()
        self._file.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def open_trace(path: "str | os.PathLike", checksums: bool = True) -> Trace:
    """Open the trace at path, or PATH.unfinished if path does not exist.

    checksums=False: do not verify checksums of values when they are read (trace.verify() always does).
    TraceError has one sentence with the problem.  The file is never changed."""
    path = os.fspath(path)
    if not os.path.exists(path) and os.path.exists(path + ".unfinished"):
        path += ".unfinished"
    return Trace(path, checksums)
