#!/usr/bin/env python3
"""usage: test_tables.py KVFATE WRITE_KVF SOURCE_ROOT

Tables, figures and reports from Python equal the program's own, with its messages. Tests pandas if
it is installed, and without it."""
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

KVFATE, WRITE_KVF, ROOT = map(os.path.abspath, sys.argv[1:4])
sys.path += [os.path.join(ROOT, "python"), os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "analyze")]
os.environ["PATH"] = os.path.dirname(KVFATE) + os.pathsep + os.environ["PATH"]
from check import check, finish  # noqa: E402
from maker import AGE, ALIVE, SNAPSHOT, Column, make  # noqa: E402
import kvfate  # noqa: E402

L, H, G, T = 2, 2, 4, 40
ODD = [b"#", b"a #b", b"a,b", b'"q"', b"line\nbreak", b"", b" x ", b"12", b"# end", b"nan", b"\xff", "\u6f22".encode()]


def columns():
    rng = np.random.default_rng(2)
    evict = np.arange(T) + rng.integers(1, 2 * T, (L, H, T))
    evict[evict > T] = ALIVE
    gone = evict < ALIVE
    age = np.minimum(rng.integers(0, T, (L, G, T)), T - 1 - np.arange(T))
    return [Column("tokens.id", "i32", "run", rng.integers(0, 99, T)), Column("tokens.role", "u8", "run", np.arange(T) >= 30),
            Column("nll", "f32", "run", rng.random(T)), Column("evict_step", "u32", "kv", evict, flags=SNAPSHOT),
            Column("evict_reason", "u8", "kv", gone, flags=SNAPSHOT), Column("evict_tie", "u8", "kv", 0 * gone, flags=SNAPSHOT),
            Column("evict_score", "f32", "kv", np.where(gone, rng.random((L, H, T)), np.nan), flags=SNAPSHOT),
            Column("evict_margin", "f32", "kv", np.where(gone, rng.random((L, H, T)), np.nan), flags=SNAPSHOT),
            Column("last_selected.top64", "u16", "query", age, flags=SNAPSHOT | AGE)]


def refused(name, call, sentence, kind=kvfate.ProgramError, code=None):
    try:
        got = call()
    except kind as e:
        return check(name, sentence in str(e) and "\n" not in str(e) and code in (None, getattr(e, "code", None)), repr(e))
    return check(name, False, got)


def same(name, got, want):
    """Compares a table with the JSON that the program prints; null means not finite."""
    check(name + ": columns", list(got.columns) == [c["name"] for c in want["columns"]], list(got.columns))
    check(name + ": metadata", got.attrs == {"table": want["name"], "units": {c["name"]: c["unit"] for c in want["columns"] if c["unit"]}, **want["meta"]},
          got.attrs)
    for c in want["columns"]:
        values, told = np.asarray(got[c["name"]]), want["data"][c["name"]]
        if c["type"] == "str":
            good = list(values) == told
        else:
            told = np.array([np.nan if v is None else v for v in told], "i8" if c["type"] == "int" else "f8")
            good = values.dtype == told.dtype and np.array_equal(np.where(np.isinf(values), np.nan, values), told, equal_nan=True)
        check(f"{name}: {c['name']}", good, values[:9], told[:9])


def tables(x):
    def told(*argv):
        return json.loads(subprocess.run([KVFATE, *argv, "--json"], stdout=subprocess.PIPE, check=True).stdout)

    same("tokens", kvfate.table("tokens", x), told("tokens", x))
    same("eviction", kvfate.table("eviction", x), told("eviction", x))
    same("options", kvfate.table("survival", x, by="class", criterion=["top64"], horizons=[1, 4, 16], skip_trivial=True, gap=None),
         told("survival", x, "--by", "class", "--criterion", "top64", "--horizons", "1,4,16", "--skip-trivial"))
    with kvfate.open(x) as t:
        same("an open trace", kvfate.table("occupancy", t, every=4), told("size", x, "--every", "4"))
    same("two traces", kvfate.table("survival", x, x, criterion="top64"), told("survival", x, x, "--criterion", "top64"))


def csv(x, folder):
    """Cells that look like another type, read with the strictest available reader and with
    pandas."""
    import csv as reader
    path = os.path.join(folder, "x.csv")
    subprocess.run([KVFATE, "tokens", x, "-o", path], stdout=subprocess.DEVNULL, check=True)
    want = kvfate.table("tokens", x)
    with open(path, newline="") as f:
        rows = list(reader.reader(f, strict=True))
    check("rows of the CSV", rows[0] == list(want.columns) and [r[2] for r in rows[1:]] == list(want["text"]), rows[:3])
    about = json.loads(Path(path + ".meta.json").read_text())
    check("the file beside it", {"table": about["name"], **about["meta"]} == {k: v for k, v in want.attrs.items() if k != "units"}, about)
    try:
        import pandas
    except ImportError:
        return print("pandas is not installed: its reading of CSV is not tested")
    for more in ({}, {"comment": "#"}):
        got = pandas.read_csv(path, **more)
        words = [w for w in want["text"] if w not in ("", "nan")]
        check(f"pandas {more}", list(got.columns) == list(want.columns) and len(got) == T and list(got["text"].dropna()) == words
              and np.allclose(got["nll"], want["nll"].astype(float), rtol=1e-14, atol=0, equal_nan=True), got)  # pandas before 3 rounds the last bit


def arrow(x, folder):
    """Parquet and Feather contain the table and its metadata."""
    try:
        import pyarrow
    except ImportError:
        return print("pyarrow is not installed: Parquet and Feather are not tested")
    want = kvfate.table("tokens", x)
    for extension in ("parquet", "feather"):
        path = os.path.join(folder, "x." + extension)
        kvfate.save_table(want, path)
        got = kvfate.load_table(path)
        check(extension, list(got.columns) == list(want.columns) and got.attrs == want.attrs
              and all(np.asarray(got[c]).dtype == np.asarray(want[c]).dtype for c in want.columns), got.attrs)
        for c in want.columns:
            a, b = np.asarray(got[c]), np.asarray(want[c])
            check(f"{extension}: {c}", list(a) == list(b) if a.dtype.kind == "O" else a.tobytes() == b.tobytes(), a[:9], b[:9])
        other = pyarrow.parquet.read_table(path) if extension == "parquet" else pyarrow.feather.read_table(path)
        check(f"{extension} for others", json.loads(other.schema.metadata[b"kvfate"])["table"] == "tokens")
    subprocess.run([KVFATE, "tokens", x, "-o", os.path.join(folder, "x.npz")], stdout=subprocess.DEVNULL, check=True)
    got = kvfate.load_table(os.path.join(folder, "x.npz"))
    check("npz", got.attrs == want.attrs and list(got["text"]) == list(want["text"]))
    refused("a form", lambda: kvfate.save_table(want, "x.xls"), ".parquet or .feather", kvfate.Error)
    refused("no table", lambda: kvfate.load_table(__file__[:-3] + ".parquet"), "cannot be read", kvfate.Error)


def without_pandas(x):
    program = "import sys\nsys.modules['pandas'] = None\nsys.path.insert(0, sys.argv[1])\nimport kvfate\nt = kvfate.table('tokens', sys.argv[2])\n" \
        "print(type(t).__name__, list(t)[:3], t.columns == list(t), t['text'][0], t.attrs['table'])\nprint(t)\n" \
        "try: t['txet']\nexcept KeyError as e: print(e)"
    said = subprocess.run([sys.executable, "-c", program, os.path.join(ROOT, "python"), x], capture_output=True, text=True)
    lines = said.stdout.splitlines()
    check("without pandas", lines[0] == "Table ['token', 'id', 'text'] True # tokens", said)
    check("a printed table has its first rows", lines[1].startswith("<table tokens: 40 rows of token, id, text") and lines[2].split()[:3] == ["token", "id", "text"]
          and [line.split()[0] for line in lines[3:13]] == [str(i) for i in range(10)], said)
    check("a column, nearly", len(lines) == 14 and "there is no column txet (did you mean text?)" in lines[13], said)


def drawn(x, folder):
    f = kvfate.figure("eviction", x, dpi=60, size="60x40")
    for extension in ("png", "svg", "pdf"):
        path = os.path.join(folder, "a." + extension)
        subprocess.run([KVFATE, "eviction", x, "--dpi", "60", "--size", "60x40", "-o", path], stdout=subprocess.DEVNULL, check=True)
        f.save(os.path.join(folder, "b." + extension))
        with open(path, "rb") as a, open(os.path.join(folder, "b." + extension), "rb") as b:
            check(f"figure.{extension}", a.read() == b.read())
    check("a notebook shows it", f._repr_png_() == f.png and f.png[:4] == b"\x89PNG" and f._repr_svg_().startswith("<?xml"))
    check("another figure of a table", kvfate.figure("survival", x, figure="map", dpi=40, criterion="top64").png != kvfate.figure("survival", x, dpi=40, criterion="top64").png)
    check("repr of a figure", repr(f).startswith("<kvfate eviction %s" % x) and "60x40" in repr(f), repr(f))
    r = kvfate.report(x)
    r.save(os.path.join(folder, "r.html"))
    check("report", Path(os.path.join(folder, "r.html")).read_text() == r.html and "<script" in r.html)
    shown = r._repr_html_()
    check("a notebook shows the report", shown.startswith("<iframe srcdoc=") and "<script" not in shown)


def typed():
    """The declared types match the implementation, and each public function has types."""
    with open(os.path.join(ROOT, "python/kvfate/__init__.pyi")) as f:
        told = {re.sub(r".* as ", "", one): module for module, names in re.findall(r"from \.(\w+) import (.*)", f.read()) for one in names.split(", ")}
    check("the stub", told == kvfate._PLACES, set(told.items()) ^ set(kvfate._PLACES.items()))
    for name in ("export", "figure", "import_trace", "load_table", "open", "patches", "report", "save_table", "table"):
        check("types of " + name, len(getattr(kvfate, name).__annotations__) >= 2 and getattr(kvfate, name).__doc__)


def refusals(x, folder):
    refused("no such trace", lambda: kvfate.table("survival", os.path.join(folder, "none.kvf")), "none.kvf: cannot open the trace", code=1)
    for end in (".tsv", ".csv", ".JSON"):
        refused("a table as text", lambda e=end: kvfate.load_table("x" + e), f"x{end}: `kvfate draw TABLE -o NAME.npz`", kvfate.Error)
    for call in (lambda t: kvfate.table("survival", t), lambda t: kvfate.figure("survival", t), kvfate.report):
        refused("a list of traces", lambda c=call: c([x, x]), "not a list; give several one after the other", kvfate.Error)
        refused("no name", lambda c=call: c(3), "a trace is the name of a file or an open trace, not a int", kvfate.Error)
    refused("no such analysis", lambda: kvfate.table("nothing", x), "no command 'nothing'", code=2)
    refused("no such option", lambda: kvfate.table("survival", x, horizon=3), "--horizon", code=2)
    refused("an option as a name", lambda: kvfate.table("survival", "-x"), "-x", code=2)
    refused("no such figure", lambda: kvfate.figure("nothing", x), "no figure 'nothing'", code=2)
    refused("a former figure", lambda: kvfate.figure("survival-map", x), "the figure 'survival-map' is now the figure map of the table survival", code=2)
    refused("a figure of several analyses", lambda: kvfate.figure("map", x), "kvfate.figure('survival', trace, figure='map')", kvfate.Error)
    refused("a figure of no trace", lambda: kvfate.figure("pareto", x), "the figure pareto is not of a trace", kvfate.Error)
    refused("an option of a figure", lambda: kvfate.figure("eviction", x, cmap="pink").png, "pink", code=2)
    for call in (kvfate.table, kvfate.figure):
        refused("no trace", lambda c=call: c("survival"), "there is no trace", kvfate.Error)
    refused("no trace", kvfate.report, "there is no trace", kvfate.Error)
    for one, name in ((kvfate.figure("eviction", x), "x.gif"), (kvfate.figure("eviction", x), "x.tsv"), (kvfate.report(x), "x.pdf")):
        refused("a format", lambda o=one, n=name: o.save(os.path.join(folder, n)), name + ": the name must end in .", kvfate.Error)
    refused("a figure, nearly", lambda: kvfate.figure("evictions", x), "did you mean 'eviction'?", code=2)
    y = make(WRITE_KVF, os.path.join(folder, "open.kvf"), columns(), (L, H, G, T), unclosed=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        kvfate.table("occupancy", y)
    check("a trace that was not closed", [str(w.message) for w in said if "was not closed" in str(w.message)] and said[0].filename == __file__, said)
    refused("a method of matplotlib", lambda: kvfate.figure("eviction", x).savefig("x.png"), "no savefig (did you mean save?)", AttributeError)
    for name, word in (("load", "kvfate.open"), ("plot", "kvfate.figure"), ("tabel", "table")):
        refused("kvfate." + name, lambda n=name: getattr(kvfate, n), "did you mean %s?" % word, AttributeError)
    trace = kvfate.open(x)
    refused("no answer", lambda: trace.answer, "generated no text", kvfate.MissingValues)
    refused("an analysis as a column", lambda: trace["survival"], "trace.survival is an analysis", KeyError)
    refused("a column, nearly", lambda: trace["evict_stpe"], "did you mean evict_step?", KeyError)
    refused("a method of a trace, nearly", lambda: trace.reports, "did you mean report?", AttributeError)
    answered = make(WRITE_KVF, os.path.join(folder, "answered.kvf"), columns(), (L, H, G, T), note={"result": {"text": "four\u00e9", "stop": "eos"}})
    check("answer", kvfate.open(answered).answer == "four\u00e9", kvfate.open(answered).notes)
    many = make(WRITE_KVF, os.path.join(folder, "many.kvf"), [*columns(), *(Column("query.pre.L0H0.d%02d" % i, "f32", "run", np.zeros(T), axis="step") for i in range(12))], (L, H, G, T))
    refused("a column of many", lambda: kvfate.open(many)["x"], "tokens.id, tokens.role", KeyError)
    refused("many that begin alike are one", lambda: kvfate.open(many)["x"], "query.* (12)", KeyError)
    none = "import os, sys\nos.environ['PATH'] = ''\nsys.path.insert(0, sys.argv[1])\nimport kvfate\n" \
        "try: kvfate.open(sys.argv[2]).attention\nexcept AttributeError as e: print(e)"
    said = subprocess.run([sys.executable, "-c", none, os.path.join(ROOT, "python"), x], capture_output=True, text=True)
    check("an analysis without the program", "no column attention" in said.stdout and "not on PATH: install kvfate's wheel" in said.stdout and said.stdout.count("\n") == 1, said)
    none = "import os, sys\nos.environ['PATH'] = ''\nsys.path.insert(0, sys.argv[1])\nimport kvfate\n" \
        "try: kvfate.table('survival', 'x')\nexcept kvfate.Error as e: print(e)"
    said = subprocess.run([sys.executable, "-c", none, os.path.join(ROOT, "python")], capture_output=True, text=True)
    check("no program", "not on PATH" in said.stdout and said.stdout.count("\n") == 1, said)


def main():
    with tempfile.TemporaryDirectory(prefix="kvfate-tables-") as folder:
        texts = (ODD * T)[:T]
        x = make(WRITE_KVF, os.path.join(folder, "x.kvf"), columns(), (L, H, G, T), {"run": {"prompt_tokens": 30}}, texts)
        tables(x)
        csv(x, folder)
        arrow(x, folder)
        without_pandas(x)
        drawn(x, folder)
        typed()
        refusals(x, folder)
    finish()


if __name__ == "__main__":
    main()
