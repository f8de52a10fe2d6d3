"""Tables, figures and reports of traces, as the program makes them."""
import html
import json
import os
import tempfile
import zipfile
from typing import Union

import numpy as np

from . import files
from .errors import Error, meant, needing, shown
from .program import command_words, described, path_of, run, words_of
from .trace import Trace


Traces = Union[str, os.PathLike, Trace]  # the name of a file, or a trace that was opened


SHOWN_ROWS = 10


class Table(dict):
    """A table without pandas: {column: array}; attrs has what is known of it."""

    def __init__(self, columns, attrs):
        super().__init__(columns)
        self.attrs = attrs

    @property
    def columns(self):
        return list(self)

    def __missing__(self, name):
        raise KeyError("there is no column %s%s; there are: %s" % (name, meant(str(name), self), ", ".join(self)))

    def _rows(self):
        """Returns the first rows as lists of texts."""
        return [list(row) for row in zip(*(["%.6g" % x if isinstance(x, float) else str(x) for x in column[:SHOWN_ROWS]] for column in self.values()))]

    def _title(self):
        rows = len(next(iter(self.values()))) if self else 0
        return "<table %s: %d rows of %s>" % (self.attrs.get("table"), rows, ", ".join(self))

    def _repr_html_(self):
        """In a notebook: the first rows."""
        line = lambda kind, row: "<tr>%s</tr>" % "".join("<%s>%s</%s>" % (kind, html.escape(x), kind) for x in row)  # noqa: E731
        return "<p>%s</p><table>%s%s</table>" % (html.escape(self._title()), line("th", self), "".join(line("td", row) for row in self._rows()))

    def __repr__(self):
        """The number of rows, and the first of them in columns."""
        lines = [[shown(x) for x in row] for row in [list(self), *self._rows()]]
        widths = [max(map(len, column)) for column in zip(*lines)]
        return "\n".join([self._title(), *("  ".join(x.rjust(w) for x, w in zip(line, widths)) for line in lines if line)])


def npz_table(path):
    """Returns the (description, columns) of a table that the program wrote.  The description is a dict with the name, the metadata and the columns
    with their units; it is None if it is too long for the comment of an archive."""
    with zipfile.ZipFile(path) as z:
        if not files.json_is_whole(z.comment):
            raise Error("%s: the table is damaged (the checksum of its comment differs); make it again" % path)
        about = json.loads(z.comment) if z.comment else None
    with np.load(path) as z:
        arrays = {name: z[name] for name in z.files}
    return about, {name: x.astype(object) if x.dtype.kind == "U" else x for name, x in arrays.items()}


def read_npz(path):
    """Returns the (columns, attrs) of a table that the program wrote."""
    about, columns = npz_table(path)
    about = about or {"name": "", "meta": {}, "columns": []}
    attrs = {"table": about["name"], "units": {c["name"]: c["unit"] for c in about["columns"] if c["unit"]}, **about["meta"]}
    return columns, attrs


def table(analysis: str, *traces: Traces, **options) -> "pandas.DataFrame | Table":  # noqa: F821
    """The table of an analysis: a pandas DataFrame, or a Table where pandas is not installed.

        kvfate.table("survival", "x.kvf", by="class", criterion=["top64", "mass.90"])

    analysis: a name in `kvfate list all`, such as "survival" or "hazard".  traces: names of files, or open traces.  options: those of the
    command, with `_` for `-`, True for a flag and a list for values separated by commas.  attrs holds the metadata with `units`.
    ProgramError has the program's sentence; of a trace that was not closed there is a warning."""
    if not traces:
        raise Error("kvfate.table(%r): there is no trace" % (analysis,))
    with tempfile.TemporaryDirectory(prefix="kvfate-") as folder:
        out = os.path.join(folder, "table.npz")
        run(*command_words(analysis), *map(path_of, traces), *words_of(options), "-o", out)
        return _framed(*read_npz(out))


def _framed(columns, attrs):
    try:
        import pandas
    except ImportError:
        return Table(columns, attrs)
    frame = pandas.DataFrame(columns)
    frame.attrs = attrs
    return frame


def save_table(frame: "pandas.DataFrame | Table", path: "str | os.PathLike") -> None:  # noqa: F821
    """Writes a table of kvfate.table as Parquet or Feather, by the name; attrs go into the metadata of the schema, under the key kvfate.

    It needs pyarrow.  kvfate.load_table gives the table back; other programs that read these forms find the columns."""
    kind = ending(path, ("parquet", "feather"))
    with needing("kvfate.save_table of Parquet and Feather", "pyarrow"):
        import pyarrow
        from pyarrow import feather, parquet
    columns = {name: np.asarray(frame[name]) for name in frame.columns}
    table = pyarrow.table({name: pyarrow.array(x.tolist(), pyarrow.string()) if x.dtype.kind in "OU" else pyarrow.array(x) for name, x in columns.items()})
    table = table.replace_schema_metadata({b"kvfate": json.dumps(dict(frame.attrs), ensure_ascii=False).encode()})
    with files.replacing(path) as f:
        parquet.write_table(table, f) if kind == "parquet" else feather.write_feather(table, f)


def load_table(path: "str | os.PathLike") -> "pandas.DataFrame | Table":  # noqa: F821
    """A table that kvfate.save_table wrote, or one that the program did with `-o NAME.npz`, with its attrs."""
    if os.path.splitext(os.fspath(path))[1].lower() in (".tsv", ".csv", ".json"):
        raise Error("%s: `kvfate draw TABLE -o NAME.npz` makes an .npz of it, which kvfate.load_table reads" % (path,))
    kind = ending(path, ("parquet", "feather", "npz"))
    if kind == "npz":
        return _framed(*read_npz(path))
    with needing("kvfate.load_table of Parquet and Feather", "pyarrow"):
        import pyarrow
        from pyarrow import feather, parquet
    try:
        table = parquet.read_table(path) if kind == "parquet" else feather.read_table(path)
        attrs = json.loads((table.schema.metadata or {}).get(b"kvfate", b"{}"))
    except (pyarrow.ArrowException, OSError, ValueError) as e:
        raise Error("%s cannot be read: %s" % (path, str(e).splitlines()[0])) from None
    columns = {name: table.column(name) for name in table.column_names}
    return _framed({name: np.array([*c.to_pylist(), None], object)[:-1] if pyarrow.types.is_string(c.type) else c.to_numpy() for name, c in columns.items()}, attrs)


def ending(path, kinds):
    """The ending of a name, which says what is written; one of the kinds."""
    kind = os.path.splitext(os.fspath(path))[1][1:].lower()
    if kind not in kinds:
        raise Error("%s: the name must end in %s" % (path, " or ".join("." + k for k in kinds)))
    return kind


class Drawing:
    """A figure or page that the program makes when it is asked for.  save(path) writes it, by the extension of path."""
    kinds = ()

    def __init__(self, command, traces, words):
        self._argv, self._made = [*command_words(command), *map(path_of, traces), *words], {}

    def __repr__(self):
        return "<kvfate %s>" % " ".join(map(str, self._argv))

    def __getattr__(self, name):
        raise AttributeError("a %s of kvfate has no %s%s; save(path) writes it" % (type(self).__name__.lower(), name, meant(name, dir(type(self)))))

    def _bytes(self, extension):
        if extension not in self._made:
            with tempfile.TemporaryDirectory(prefix="kvfate-") as folder:
                out = os.path.join(folder, "out." + extension)
                run(*self._argv, "-o", out)
                with open(out, "rb") as f:
                    self._made[extension] = f.read()
        return self._made[extension]

    def save(self, path):
        files.write(path, self._bytes(ending(path, self.kinds)))


class Figure(Drawing):
    """What kvfate.figure gives: svg, png and pdf are its bytes; a notebook shows it."""
    kinds = ("png", "svg", "pdf")

    png = property(lambda self: self._bytes("png"))
    pdf = property(lambda self: self._bytes("pdf"))
    svg = property(lambda self: self._bytes("svg").decode("utf-8"))

    def show(self):
        """Shows the figure in a notebook, also from the middle of a cell.  Elsewhere use save()."""
        with needing("Figure.show", "IPython"):
            from IPython.display import display
        display(self)

    def _repr_png_(self):
        return self.png

    def _repr_svg_(self):
        return self.svg


class Report(Drawing):
    """What kvfate.report gives: html is the page; a notebook shows it in a frame."""
    kinds = ("html",)

    html = property(lambda self: self._bytes("html").decode("utf-8"))

    def _repr_html_(self):
        return '<iframe srcdoc="%s" style="width:100%%;height:600px;border:0;display:block"></iframe>' % html.escape(self.html)


def figure(name: str, *traces: Traces, **options) -> Figure:
    """A figure by its name in `kvfate list figures`, or of an analysis, as in kvfate.figure("eviction", "x.kvf", size="88x60").

    traces and options: as in kvfate.table, with those of figures.  It is drawn when it is shown or saved; ProgramError then has
    the program's sentence."""
    known = [f["table"] for f in described()["figures"] if f["name"] == name]
    command, *others = known or [name]
    if command not in {a["name"] for a in described()["analyzers"]}:
        run("list", "figures", name)  # the sentence for an unknown name, or the replacement of a former one
        raise Error("the figure %s is not of a trace; `kvfate list figures` lists the tables of figures" % (name,))
    if others:
        raise Error("the figure %s is of several analyses; name one, as in kvfate.figure(%r, trace, figure=%r)" % (name, others[-1], name))
    if not traces:
        raise Error("kvfate.figure(%r): there is no trace" % (name,))
    own = {} if "figure" in options or not known else {"figure": name}
    return Figure(command, traces, words_of({**own, **options}))


def report(*traces: Traces, **options) -> Report:
    """The interactive page of one or more traces: report.save("x.html"), or shown in a notebook."""
    if not traces:
        raise Error("kvfate.report(): there is no trace")
    return Report("report", traces, words_of(options))
