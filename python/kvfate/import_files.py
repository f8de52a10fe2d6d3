"""The files that `kvfate trace import` reads, each as fields {name: array} with what is known beside them (`about`).

Arrays of .npy files and of .npz members stay on the disk until they are asked for; tables become arrays [layers][heads][tokens]."""
import contextlib
import lzma
import os
import tempfile
import zipfile
import zlib

import numpy as np

from . import progress
from .errors import Error, brief, regular
from .forms import ABOUT, loaded, unescaped
from .import_tables import Tables

LISTS = ("text", "tokens.text")  # fields of texts, which a list may hold
MOST_ABOUT = 64 << 20
FREE, MOST_RATIO = 1 << 30, 32  # bytes that are unpacked of any file, and above these for each byte of it


def believed(path, size):
    """Raises Error where a file says that it holds more than its own size bears out."""
    own = os.path.getsize(path)
    if size > max(FREE, MOST_RATIO * own):
        raise Error("%s would unpack to %d bytes, more than %d times its own %d; write the arrays without compression, such as FIELD.npy in a folder" % (
            path, size, MOST_RATIO, own))


class Source:
    """fields: {name: array, or a list of arrays}; about: what an export knows, or {}; where: {name: the file it came from}."""

    def __init__(self):
        self.fields, self.about, self.where, self.tables = {}, {}, {}, Tables()
        self.upto = {}  # of fields that came as tensors of narrow types: the number below which these have all whole numbers
        self._folder = None

    def put(self, name, value, path):
        if name in self.fields:
            raise Error("%s: %s is also in %s; it can be given once" % (path, name, self.where[name]))
        self.fields[name], self.where[name] = value, path

    def put_about(self, said, path):
        if not isinstance(said, dict):
            raise Error("%s: about must be an object" % path)
        self.about = {**self.about, **said}

    def spill(self):
        """A folder for what is unpacked, which goes with the source."""
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="kvfate-")
        return self._folder.name

    def close(self):
        self.fields = {}
        if self._folder:
            self._folder.cleanup()


def _array(path, name, file):
    """An .npy that was opened; objects, which could run programs, are refused."""
    try:
        return np.load(file, mmap_mode="r" if isinstance(file, str) else None, allow_pickle=False)
    except Exception as e:  # a broken head makes NumPy raise errors of many kinds, those of Python's own syntax among them
        raise Error("%s: %s is no array that can be read: %s" % (path, name, brief(e))) from None


@contextlib.contextmanager
def _unpacking(path, entry):
    """Around what Python's zip reader does with a member: it raises errors of many kinds for one that is damaged."""
    try:
        yield
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError, zlib.error, lzma.LZMAError) as e:
        raise Error("%s: %s cannot be unpacked: %s" % (path, entry.filename, brief(e))) from None


def _npz(source, path):
    try:
        z = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError, ValueError) as e:
        raise Error("%s is no npz file: %s" % (path, brief(e))) from None
    with z:
        total = sum(entry.file_size for entry in z.infolist())
        believed(path, total)
        progress.expect(total >> 20, "MB")
        for k, entry in enumerate(z.infolist()):
            if entry.filename == ABOUT:
                if entry.file_size > MOST_ABOUT:
                    raise Error("%s: %s has %d bytes, and at most %d are read" % (path, ABOUT, entry.file_size, MOST_ABOUT))
                with _unpacking(path, entry):
                    said = z.read(entry)
                source.put_about(loaded(said, "%s: %s" % (path, ABOUT)), path)
            elif entry.filename.endswith(".npy"):
                spilled = os.path.join(source.spill(), "%d-%d.npy" % (len(source.fields), k))
                with _unpacking(path, entry), z.open(entry) as f, open(spilled, "wb") as out:
                    for part in iter(lambda: f.read(1 << 20), b""):
                        out.write(part)
                        progress.add(len(part) / (1 << 20))
                source.put(entry.filename[:-4], _array(path, entry.filename, spilled), path)


def _npy(source, path):
    source.put(os.path.basename(path)[:-4], _array(path, os.path.basename(path), path), path)


def _json(source, path):
    with open(path, "rb") as f:
        said = loaded(f.read(), path)
    if os.path.basename(path) == ABOUT:
        source.put_about(said, path)
    elif isinstance(said, dict):
        for name, value in said.items():
            put_value(source, name, value, path)
    else:
        put_value(source, os.path.basename(path)[:-5], said, path)


def plain(x):
    """Tensors as arrays: of any device, and as float32 where NumPy has no such numbers.  Lists of them likewise."""
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        return (x.float() if x.is_floating_point() and x.element_size() < 4 else x).numpy()
    return [plain(y) for y in x] if isinstance(x, (list, tuple)) and len(x) and not isinstance(x[0], (int, float, str, bytes)) else x


def upto(x):
    """The number below which tensors, or lists of them, have all whole numbers, where NumPy has no such type."""
    if hasattr(x, "detach") and x.is_floating_point() and x.element_size() < 4:
        return {"torch.float16": 2048, "torch.bfloat16": 256}.get(str(getattr(x, "dtype", "")), 8)
    return min(map(upto, x), default=np.inf) if isinstance(x, (list, tuple)) and len(x) and not isinstance(x[0], (int, float, str, bytes)) else np.inf


def put_value(source, name, value, path):
    """A value of JSON, of a dict or of a torch file: a number, a text, an array, a tensor, or lists of them."""
    try:
        given, value = value, plain(value)
        source.upto[name] = upto(given)
    except (TypeError, RuntimeError) as e:
        raise Error("%s: %s is a tensor whose values NumPy cannot have: %s" % (path, name, brief(e))) from None
    if name == "about":
        source.put_about(value, path)
    elif name in LISTS or not isinstance(value, (list, tuple)):
        source.put(name, value, path)
    else:
        try:
            source.put(name, np.asarray(value) if np.asarray(value).dtype.kind in "biufU" else value, path)
        except ValueError:
            source.put(name, value, path)  # parts of different lengths


def _jsonl(source, path):
    with open(path, encoding="utf-8-sig", errors="surrogateescape") as f:
        for number, line in enumerate(f, 1):
            if line.strip():
                said = loaded(line, "%s: line %d" % (path, number))
                if not isinstance(said, dict):
                    raise Error("%s: line %d is no object" % (path, number))
                if "about" in said:
                    source.put_about(said["about"], path)
                elif isinstance(said.get("blob"), int):
                    source.put("blob@%d" % said["blob"], said.get("values"), path)
                else:
                    source.tables.put_object(said, "%s: line %d" % (path, number))


def _tsv(source, path):
    with open(path, encoding="utf-8-sig", newline="") as f:
        lines = (line.rstrip("\n") for line in f)
        head = next((line for line in lines if not line.startswith("#")), "").rstrip("\r").split("\t")
        columns = [[] for _ in head]
        for number, line in enumerate(lines, 2):
            cells = line.rstrip("\r").split("\t")
            if len(cells) != len(head):
                raise Error("%s: line %d has %d cells, and the first line has %d; cells are parted by tabs" % (path, number, len(cells), len(head)))
            for column, cell in zip(columns, cells):
                column.append(cell)
    source.tables.put_table({name: _cells(name, column) for name, column in zip(head, columns)}, path)


def _cells(name, column):
    """(values, present or None) of a column of text: whole numbers, or the texts, which a column of numbers makes numbers of."""
    have = np.array([c != "" for c in column], bool)
    if name in ("text", "text@hex", "kept"):
        return np.array([unescaped(c) if c != "\\e" else "" for c in column] + [None], object)[:-1], have
    filled = [c or "0" for c in column]
    for make in (lambda: np.array(filled).astype(np.int64), lambda: np.array([int(c) for c in filled], object)):
        try:
            return make(), None if have.all() else have
        except (ValueError, OverflowError):
            continue
    return np.array([*column, None], object)[:-1], None if have.all() else have


def _arrow(source, path):
    import pyarrow
    from pyarrow import feather, parquet
    try:
        if path.endswith(".parquet"):
            told = parquet.ParquetFile(path).metadata
            believed(path, told.num_rows * told.num_columns * 8)
        table = parquet.read_table(path) if path.endswith(".parquet") else feather.read_table(path)
    except (pyarrow.ArrowException, OSError) as e:
        raise Error("%s cannot be read: %s" % (path, brief(e))) from None
    known = (table.schema.metadata or {}).get(b"kvfate")
    if known:
        source.put_about(loaded(known, "%s: metadata kvfate" % path), path)
    columns = {}
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        have = None if column.null_count == 0 else ~np.asarray(column.is_null())
        if pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type) or pyarrow.types.is_boolean(column.type):
            columns[name] = column.fill_null(0).to_numpy(zero_copy_only=False), have
        else:
            columns[name] = np.array([*column.to_pylist(), None], object)[:-1], have
    source.tables.put_table(columns, path)


def _torch(source, path):
    import torch
    try:
        said = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as e:
        raise Error("%s is no file of tensors that torch loads without running code (weights_only=True): %s" % (path, brief(e))) from None
    if not isinstance(said, dict):
        raise Error("%s holds a %s; save a dict of tensors by the names of docs/guide/import.md" % (path, type(said).__name__))
    for name, value in said.items():
        for one in _tensors(value):
            believed(path, one.numel() * 8)
        put_value(source, str(name), value, path)


def _tensors(value):
    """Tensors in lists of lists.  One of few bytes may have any shape, with steps of 0."""
    if isinstance(value, (list, tuple)):
        return [one for x in value for one in _tensors(x)]
    return [value] if hasattr(value, "numel") else []


READERS = {".npz": _npz, ".npy": _npy, ".json": _json, ".jsonl": _jsonl, ".tsv": _tsv, ".parquet": _arrow, ".feather": _arrow, ".pt": _torch, ".pth": _torch}


def read(paths):
    """A Source of files and folders; who asked closes it."""
    source = Source()
    try:
        for path in map(os.fspath, paths):
            files = sorted(os.path.join(path, n) for n in os.listdir(path)) if os.path.isdir(path) else [path]
            known = [f for f in files if os.path.splitext(f)[1].lower() in READERS]
            if not known:
                raise Error("%s: %s; import reads %s" % (path, "the folder has no file that can be read" if os.path.isdir(path) else "the name has no known ending",
                                                        ", ".join(READERS)))
            for f in known:
                regular(f)
                READERS[os.path.splitext(f)[1].lower()](source, f)
    except UnicodeDecodeError as e:
        source.close()
        raise Error("a table or JSON file is not UTF-8: %s" % e) from None
    except BaseException:
        source.close()
        raise
    source.tables.into(source)
    return source

