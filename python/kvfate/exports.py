"""`kvfate trace export`, and kvfate.export: all that a trace holds, for other programs.  What is written is what `kvfate trace import` reads, and gives the
same trace again; docs/guide/import.md has the layout."""
import itertools
import json
import os
import re
import sys
import zipfile

import numpy as np

from . import files, progress
from .commands import Usage
from .errors import Error, MissingValues, shown
from .forms import (ABOUT, SPACES, TABLES, as_json, escaped, exact_json, field, floats_as_text, form_of, pairs_as_text)
from .program import PARTIAL
from .trace import AXES, DTYPES, Trace, open_trace

CODES = {np.dtype(v): k for k, v in DTYPES.items()}
NAMES = {1: "u8", 2: "u16", 3: "u32", 4: "i32", 5: "f32", 6: "f64", 7: "u64"}
DATE = (1980, 1, 1, 0, 0, 0)  # of all entries of an archive
FREE_HEADS = 1 << 13  # so many are believed of any file


def words_of(c):
    """The words of kvfate.Writer for a column, such as "u32 kv snapshot: step"."""
    flags = [w for w, f in (("snapshot", 1), ("age", 2), ("intervals", 4)) if c.flags & f]
    axis = [c.axis] if c.axis != AXES[0] else []
    return " ".join([NAMES[CODES[c.dtype]], c.space, *axis, *flags]) + (": " + c.unit if c.unit else "")


def _check_heads(trace):
    """Heads that the file cannot hold values of are not looked at one by one."""
    heads = sum(c.heads(layer) for c in trace.columns.values() for layer in range(c.layers))
    if heads > max(FREE_HEADS, trace.size):
        raise Error("%s: it declares %d columns of heads and has %d bytes" % (trace.path, heads, trace.size))


def about(trace):
    """What is known of a trace beside its values; `source` says what the export is of."""
    blobs = [{"name": b.name, "dtype": b.dtype, "shape": list(b.shape), "layer": b.layer, "head": b.head, "t0": b.t0} for b in trace.blobs]
    notes = {key.decode("utf-8", "surrogateescape"): exact_json(text) for key, text in trace.note_bytes.items()}
    return {"kvfate": "export", "source": {"id": trace.id, "digest": trace.digest, "format": trace.format, "closed": trace.closed},
            "steps": trace.steps, "heads": [list(h) for h in trace.heads], "columns": {c.name: words_of(c) for c in trace.columns.values()},
            "meta": exact_json(trace.meta_bytes), "notes": notes, "blobs": blobs}


def head_values(column, layer, head):
    """(values with 0 where there are none, present or None where all are) of one head."""
    have = column.present(layer, head)
    if have.all():
        return column.read(layer, head), None
    out = np.zeros(len(have), column.dtype)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], have.astype(np.int8), [0]])))
    for a, b in zip(edges[::2].tolist(), edges[1::2].tolist()):
        out[a:b] = column.read(layer, head, a, b)
    return out, have


def head_lists(column, layer, head):
    """(the list of intervals of each token, present or None)."""
    have = column.present(layer, head)
    lists = [[] for _ in have]
    edges = np.flatnonzero(np.diff(np.concatenate([[0], have.astype(np.int8), [0]])))
    for a, b in zip(edges[::2].tolist(), edges[1::2].tolist()):
        lists[a:b] = column.read(layer, head, a, b)
    return lists, None if have.all() else have


def texts_of(trace):
    """Fields of the texts: {name: array}."""
    texts = trace.texts
    if all(t is None for t in texts):
        return {}
    out = {"tokens.text@bytes": np.frombuffer(b"".join(t or b"" for t in texts), np.uint8),
           "tokens.text@ends": np.cumsum([len(t or b"") for t in texts], dtype=np.int64)}
    if None in texts:
        out["tokens.text@present"] = np.array([t is not None for t in texts])
    return out


# ---- arrays

def layer_fields(column, layer):
    """{part: array} of a layer of a column: "" its values [heads][T]; present where some are missing; ends and pairs of intervals."""
    heads = range(column.heads(layer))
    if not column.intervals and len(heads) > 1:
        try:
            return {"": column[layer]}
        except MissingValues:  # then head by head
            pass
    both = [(head_lists if column.intervals else head_values)(column, layer, h) for h in heads]
    T, out = column.trace.steps, {}
    if any(have is not None for _, have in both):
        out["present"] = np.array([np.ones(T, bool) if have is None else have for _, have in both])
    if column.intervals:
        flat = [one for lists, _ in both for one in lists]
        out["ends"] = np.cumsum([len(one) for one in flat], dtype=np.int64).reshape(len(heads), T)
        out["pairs"] = np.array([p for one in flat for p in one], np.uint32).reshape(-1, 2)
    else:
        out[""] = np.array([v for v, _ in both], column.dtype).reshape(len(heads), T)
    return out


def column_fields(column):
    """(field, array) of a column; layers are stacked where they can be, and the column is not large."""
    if column.space == "run":
        for part, values in layer_fields(column, 0).items():
            yield field(column.name, part, 0 if part in ("ends", "pairs") else None), values if part in ("ends", "pairs") else values[0]
        return
    shape, T = column.shape, column.trace.steps
    if None in shape or column.intervals or not column.layers or column.layers * shape[1] * T * column.dtype.itemsize > 1 << 30:
        for layer in range(column.layers):
            for part, values in layer_fields(column, layer).items():
                yield field(column.name, part, layer), values
        return
    layers = [layer_fields(column, layer) for layer in range(column.layers)]
    yield field(column.name), np.stack([one[""] for one in layers])
    if any("present" in one for one in layers):
        yield field(column.name, "present"), np.stack([one.get("present", np.ones(shape[1:], bool)) for one in layers])


def _bytes_of(column):
    return sum(map(column.heads, range(column.layers))) * column.trace.steps * column.dtype.itemsize


class _Counted:
    """A file that an array is written to, whose bytes are told some at a time."""

    def __init__(self, file):
        self.file = file

    def write(self, data):
        for at in range(0, len(data), 1 << 20):
            part = data[at:at + (1 << 20)]
            self.file.write(part)
            progress.add(len(part) / (1 << 20))
        return len(data)


def fields(trace):
    """All of them as (name, array), in the order of the trace."""
    yield from texts_of(trace).items()
    progress.expect(sum(_bytes_of(c) for c in trace.columns.values()) >> 20, "MB")
    for column in trace.columns.values():
        yield from column_fields(column)
    for k, b in enumerate(trace.blobs):
        yield "blob@%d" % k, b.data


# ---- tables

def cells(column, layer, head, text):
    """One head of a column as the cells of a table: None where the trace has no value; text: as TSV has numbers."""
    if column.intervals:
        lists, have = head_lists(column, layer, head)
        values = np.array([pairs_as_text(one) for one in lists] + [None], object)[:-1]
    else:
        values, have = head_values(column, layer, head)
        if text and column.dtype.kind == "f":
            values = floats_as_text(values)
    if have is None:
        return values
    if text or column.intervals:
        return np.where(have, values.astype(object), None)
    return np.ma.masked_array(values, ~have)


def text_cells(trace):
    """{column of the table run: cells} of texts: those that are no UTF-8 are in hexadecimal digits, in a column of their own."""
    texts = trace.texts
    if all(t is None for t in texts):
        return {}
    plain, odd = np.full(len(texts), None, object), np.full(len(texts), None, object)
    for k, t in enumerate(texts):
        try:
            plain[k] = None if t is None else t.decode("utf-8")
        except UnicodeDecodeError:
            odd[k] = t.hex()
    return {"text": plain, **({"text@hex": odd} if any(t is not None for t in odd) else {})}


def blocks(trace, space, text):
    """The rows of a table, as {column: cells} for one head at a time; text: numbers as TSV has them."""
    columns = [c for c in trace.columns.values() if c.space == space]
    token = np.arange(trace.steps)
    progress.expect(sum(trace.n_heads(layer, space) for layer in range(len(trace.heads))) if columns and space != "run" else 0, "heads")
    if space == "run":
        own = text_cells(trace)
        if columns or own:
            yield {"token": token, **own, **{field(c.name): cells(c, 0, 0, text) for c in columns}}
        return
    for layer in range(len(trace.heads) if columns else 0):
        for head in range(trace.n_heads(layer, space)):
            place = {"layer": np.full(len(token), layer), "head": np.full(len(token), head), "token": token}
            yield {**place, **{field(c.name): cells(c, layer, head, text) for c in columns}}
            progress.add(1)


def write_tsv(rows, path):
    """A header, then a line for each token; an empty cell is a value that the trace lacks, and \\e an empty text."""
    first = next(rows, None)
    if first is None:
        return
    with files.new(path, text=True) as f:
        f.write("\t".join(first) + "\n")
        for block in itertools.chain([first], rows):
            said = [["" if x is None else (escaped(x) or "\\e") if name == "text" else str(x) for x in values.tolist()] for name, values in block.items()]
            f.writelines("\t".join(line) + "\n" for line in zip(*said))


def write_arrow(rows, path, form, metadata):
    """Parquet or Feather, with what is known of the trace as metadata of the schema under the key kvfate."""
    import pyarrow
    from pyarrow import feather, parquet

    def array(x):
        if isinstance(x, np.ma.MaskedArray):
            return pyarrow.array(x.data, mask=np.ma.getmaskarray(x))
        return pyarrow.array(x.tolist(), pyarrow.string()) if x.dtype.kind == "O" else pyarrow.array(x)

    tables = [pyarrow.table({name: array(values) for name, values in block.items()}) for block in rows]
    if tables:
        whole = pyarrow.concat_tables(tables)
        whole = whole.replace_schema_metadata({**(whole.schema.metadata or {}), b"kvfate": metadata})
        with files.new(path) as f:
            parquet.write_table(whole, f) if form == "parquet" else feather.write_feather(whole, f)


# ---- forms

def _entry(name):
    """An entry of an archive whose bytes do not depend on the clock."""
    entry = zipfile.ZipInfo(name, DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def _write_npz(trace, file):
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as z:
        z.writestr(_entry(ABOUT), json.dumps(about(trace)))
        for name, values in fields(trace):
            with z.open(_entry(name + ".npy"), "w", force_zip64=True) as f:
                np.lib.format.write_array(_Counted(f), np.asanyarray(values, order="C"), allow_pickle=False)


def _write_npy(folder, name, values):
    with files.new(os.path.join(folder, name + ".npy")) as f:
        np.lib.format.write_array(_Counted(f), np.asanyarray(values, order="C"), allow_pickle=False)


def _write_folder(trace, path, form):
    with files.new(os.path.join(path, ABOUT), text=True) as f:
        f.write(json.dumps(about(trace)))
    if form == "npy":
        for name, values in fields(trace):
            _write_npy(path, name, values)
        return
    for space in SPACES:
        out = os.path.join(path, space + TABLES[form])
        rows = list(blocks(trace, space, False)) if form != "tsv" else blocks(trace, space, True)
        write_tsv(rows, out) if form == "tsv" else write_arrow(rows, out, form, json.dumps(about(trace)).encode())
    for k, b in enumerate(trace.blobs):
        _write_npy(path, "blob@%d" % k, b.data)


def _write_jsonl(trace, f):
    """First the object `about`; then one for each token, each head of a column, and each blob."""

    def put(**said):
        f.write(json.dumps(said) + "\n")

    put(about=about(trace))
    for k, t in enumerate(trace.texts):
        try:
            if t is not None:
                put(token=k, text=t.decode("utf-8"))
        except UnicodeDecodeError:
            put(token=k, **{"text@hex": t.hex()})
    progress.expect(sum(c.heads(layer) for c in trace.columns.values() for layer in range(c.layers)), "heads")
    for c in trace.columns.values():
        for layer in range(c.layers):
            for head in range(c.heads(layer)):
                progress.add(1)
                place = {} if c.space == "run" else {"layer": layer, "head": head}
                put(column=c.name, **place, values=_json_values(c, layer, head))
    for k, b in enumerate(trace.blobs):
        put(blob=k, values=as_json(b.data.ravel()))


def _json_values(c, layer, head):
    values, have = (head_lists if c.intervals else head_values)(c, layer, head)
    said = [pairs_as_text(one) for one in values] if c.intervals else as_json(values)
    return said if have is None else [x if h else None for x, h in zip(said, have.tolist())]


def export(trace: "str | os.PathLike | Trace", out: "str | os.PathLike", form: "str | None" = None, overwrite: bool = False):
    """Writes all that a trace holds to OUT: NAME.npz, NAME.jsonl, or a folder of `form` npy, tsv, parquet or feather.

    trace: the name of a file, or a trace that was opened.  The result appears whole or not at all, and never over something without
    overwrite=True."""
    if not isinstance(trace, Trace):
        with open_trace(trace) as opened:
            return export(opened, out, form, overwrite)
    out = os.fspath(out)
    form = form_of(out, form)
    _check_heads(trace)
    if os.path.lexists(out) and not overwrite:
        raise Error("%s exists; overwrite=True, or --overwrite, replaces it" % out)
    if form in ("npz", "jsonl"):
        with files.replacing(out, text=form == "jsonl", fresh=not overwrite) as f:
            {"npz": _write_npz, "jsonl": _write_jsonl}[form](trace, f)
    else:
        with files.folder(out, _check_own if overwrite else None) as made:
            _write_folder(trace, made, form)
    return out


def _check_own(folder):
    """Refuses a folder that holds anything but what an export writes."""
    names = sorted(os.listdir(folder))
    if names and ABOUT not in names:
        raise Error("%s is a folder that no export wrote (it has no %s): it is not replaced" % (folder, ABOUT))
    columns = set()
    if names:
        try:
            with open(os.path.join(folder, ABOUT), encoding="utf-8") as f:
                said = json.load(f)
            columns = {field(name) for name in said["columns"]} if said["kvfate"] == "export" else set()
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise Error("%s is a folder that no export wrote (its %s is another file): it is not replaced" % (folder, ABOUT)) from None
    own = {ABOUT} | {space + ending for space in SPACES for ending in TABLES.values()}
    for name in names:
        stem = name[:-len(".npy")] if name.endswith(".npy") else ""
        array = stem.split("@")[0] in columns or re.fullmatch(r"blob@\d+|tokens\.text@(bytes|ends|present)", stem)
        if name not in own and not array or not os.path.isfile(os.path.join(folder, name)):
            raise Error("%s holds %s, which no export wrote: it is not replaced; move that away, or give another name" % (folder, name))
    return True


def run(request, operands):
    if not request.output:
        raise Usage("-o OUT names what is written")
    with open_trace(operands[0]) as trace:
        with progress.line("export"):
            export(trace, request.output, request.form, request.overwrite)
        lacks = "" if trace.closed else "was not closed: what is written is its newest whole state"
        lacks = lacks if trace.steps else "has no steps"
    print(shown(request.output))
    if lacks:
        print("kvfate trace export: %s %s" % (shown(operands[0]), lacks), file=sys.stderr)
    return PARTIAL if lacks else 0
