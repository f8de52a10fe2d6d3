"""Saved tables: a command of this package reads one, and writes or draws its own.

Both use `kvfate draw`, so they have the limits, checks, formats, figures and error messages of the program.  The module needs no NumPy until it
reads a table."""
import json
import os
import subprocess
import sys
import tempfile

from . import files, program
from .commands import FIGURE, Usage
from .errors import Error

MOST_JSON = 16 << 20  # bytes of JSON that the program reads; a larger table is written as TSV


class Saved:
    """A table that was read.  name; meta: {key: text}; columns: {name: array of int64, float64 or str objects}; rows: their number."""

    def __init__(self, path, name, meta, columns):
        self.path, self.name, self.meta, self.columns = path, name, meta, columns
        self.rows = len(next(iter(columns.values())))

    def kind(self, column):
        """Returns "int", "real" or "str", or None if the column does not exist."""
        return {"i": "int", "f": "real", "O": "str"}[self.columns[column].dtype.kind] if column in self.columns else None

    def reals(self, column):
        """Returns a column of numbers as float64."""
        return self.columns[column].astype(float)

    def number(self, key):
        """Returns metadata as a float; NaN if they are missing or not a number."""
        try:
            return float(self.meta[key])
        except (KeyError, ValueError):
            return float("nan")


def _draw(*words, stdout=subprocess.DEVNULL):
    """Runs `kvfate draw` and returns its standard output, if stdout is PIPE.  Its error becomes Usage (exit status 2) or Error; its notes go to the standard error."""
    sys.stdout.flush()
    done = subprocess.run([program.find(), "draw", *words], stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE)
    said = done.stderr.decode("utf-8", "replace").splitlines()
    if done.returncode:
        sentence = said[-1] if said else "kvfate draw ended with status %d" % done.returncode
        raise (Usage if done.returncode == 2 else Error)(sentence[len("kvfate draw: "):] if sentence.startswith("kvfate draw: ") else sentence)
    for line in said:
        print(line, file=sys.stderr)
    return done.stdout


def read(path):
    """Reads a table from TSV, CSV or JSON.  Raises Error with one sentence if it is damaged or too large."""
    path = os.path.join(".", path) if path.startswith("-") else path  # not an option of `kvfate draw`
    from .tables import npz_table
    with tempfile.TemporaryDirectory(prefix="kvfate-") as folder:
        made = os.path.join(folder, "table.npz")
        _draw(path, "-o", made)
        about, columns = npz_table(made)
        if about is None:  # the metadata are longer than the comment of an archive can be
            about = json.loads(_draw(path, "--json", stdout=subprocess.PIPE))
    return Saved(path, about["name"], about["meta"], columns)


def _words(request):
    """Returns the options of a request that `kvfate draw` shares: -o, --json and the options of the figure."""
    values = [(o, getattr(request, o.name)) for o in FIGURE]
    words = ["--" + o.name if o.arg is None else "--%s=%s" % (o.name, v) for o, v in values if v not in (None, False)]
    return words + (["-o", request.output] if request.output else []) + (["--json"] if request.json else [])


def _has_target(request):
    return bool(request.output or request.json or request.preview)


def check(request):
    """Checks -o and the options of the figure before anything is computed.  `kvfate draw` does so before it looks for the table."""
    with tempfile.TemporaryDirectory(prefix="kvfate-") as folder:
        words = _words(request)
        try:
            if words:
                _draw(os.path.join(folder, "none.tsv"), *words, *([] if _has_target(request) else ["--json"]))
        except Usage:
            raise
        except Error:
            pass  # the table does not exist


def _as_json(name, meta, columns):
    """Returns a table as JSON, or None if a number is infinite or the text is longer than the program reads."""
    if any(abs(v) == float("inf") for _, kind, values in columns if kind == "real" for v in values):
        return None
    text = json.dumps({"name": name, "meta": {k: str(v) for k, v in meta.items()}, "columns": [{"name": n, "unit": "", "type": k} for n, k, _ in columns],
                       "data": {n: [None if v != v else v for v in values] for n, _, values in columns}}, ensure_ascii=False)
    return text if len(text.encode()) <= MOST_JSON else None


def _as_tsv(name, meta, columns):
    from .forms import escaped
    head = ["# table: %s" % name] + ["# %s: %s" % (k, escaped(str(v))) for k, v in meta.items()] + ["\t".join(n for n, _, _ in columns)]
    rows = zip(*([escaped(v) if k == "str" else repr(v) for v in values] for _, k, values in columns))
    return "\n".join([*head, *("\t".join(row) for row in rows), ""])


def deliver(request, name, meta, columns):
    """Writes or draws a table as the options of a command ask, and returns whether the standard output is free for a summary.

    columns: [(name, "int", "real" or "str", list of values)]."""
    target = _has_target(request)
    words = _words(request)
    if words:
        text = _as_json(name, meta, columns)
        with files.scratch("table.tsv" if text is None else "table.json", text or _as_tsv(name, meta, columns)) as path:
            _draw(path, *words, *([] if target else ["--json"]), stdout=None if target else subprocess.DEVNULL)
    return not request.json and request.output != "-" and not request.preview
