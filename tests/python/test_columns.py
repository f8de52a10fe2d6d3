#!/usr/bin/env python3
"""usage: test_columns.py KVFATE LIBKVFTRACE SOURCE_ROOT MODEL

Checks the declarations of analyses about the columns that they read. From runs with all columns,
one column after the other is removed by export and import. If an analysis always needs a column, it
is rejected with the column's name and its source. An optional column is named in one line. A column
that only helps is not mentioned. A trace with only the declared columns gives the same table, byte
for byte."""
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

KVFATE, LIBRARY, ROOT, MODEL = map(os.path.abspath, sys.argv[1:5])
if os.environ.get("LD_LIBRARY_PATH") != os.path.dirname(LIBRARY):
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "LD_LIBRARY_PATH": os.path.dirname(LIBRARY)})
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "tests")]
from check import check, finish, words_of  # noqa: E402
import kvfate  # noqa: E402
from kvfate import exports  # noqa: E402

T = 200
DEFAULTS = {"received": ["--spread", "heads"], "compare": ["--by", "tokens"], "retention": ["--source", "last-use", "--criterion", "top64"]}


def said(*argv):
    return subprocess.run([KVFATE, *map(str, argv)], stdin=subprocess.DEVNULL, capture_output=True, text=True)


def recorded():
    """Records two runs of the same tokens with all columns: one with evictions, and one with gates
    that keep all entries."""
    Path("ids").write_text(" ".join(str(3 + i * i % 290) for i in range(T)))
    about = json.loads(said("models", MODEL, "--json").stdout)
    one = about[0] if isinstance(about, list) else about
    run = ["run", "-m", MODEL, "--ids", "ids", "-n", "0", "-q", "--probes", "full,raw:0.0", "--shadow", "entries,model", "--watch", "3,9@L0H0", "--watch-queries", "L0H0"]
    dims = {k: one[k] for k in ("layers", "query_heads", "kv_heads", "head_dim", "width")}
    subprocess.run([sys.executable, os.path.join(ROOT, "tests/data/make_gates.py"), "--layout", "rg", "--layers", str(dims["layers"]), "--heads", str(dims["query_heads"]),
                    "--kv-heads", str(dims["kv_heads"]), "--head-dim", str(dims["head_dim"]), "--d-model", str(dims["width"]), "--hidden", "8", "--seed", "1",
                    "-o", "gates.safetensors"], check=True)
    for name, how in (("cuts.kvf", ["--method", "h2o", "-B", "90"]), ("keeps.kvf", ["--method", "trimkv", "-B", str(T), "--gates", "gates.safetensors"])):
        r = said(*run, *how, "-o", name)
        assert r.returncode == 0, r.stderr
    return "cuts.kvf", "keeps.kvf"


def matches(name, pattern):
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), name) is not None


def without(path, gone, out):
    """Writes the trace without the columns for which gone(name) is true."""
    with kvfate.open(path) as t:
        about = exports.about(t)
        about["columns"] = {n: w for n, w in about["columns"].items() if not gone(n)}
        fields = {n: v for n, v in exports.fields(t) if not (n.split("@")[0] in t.columns and gone(n.split("@")[0]))}
        kvfate.import_trace({"about": about, **fields}, out, overwrite=True)
    return out


def table(analysis, path, option):
    name, traces = analysis["name"], analysis["min_traces"]
    r = said(*words_of(name, KVFATE), *[path] * traces, *option, "-o", "t.json")
    data = None
    if r.returncode == 0:
        data = Path("t.json").read_text()
    return r, data


def judge(analysis, path, option):
    """Returns False if the analysis rejects this trace; otherwise checks all its declarations about
    columns."""
    name, uses = analysis["name"], analysis["columns"]
    r, whole = table(analysis, path, option)
    if r.returncode:
        return False
    declared = lambda n: any(matches(n, c["name"]) for c in uses)  # noqa: E731
    base = without(path, lambda n: not declared(n), "base.kvf")
    less, same = table(analysis, base, option)
    check("%s of %s reads what it declares alone" % (name, path), less.returncode == 0 and same == whole, less.stderr, (same or "")[:200], whole[:200])
    for c in uses:
        r, data = table(analysis, without(base, lambda n: matches(n, c["name"]), "x.kvf"), option)
        what = "%s of %s without %s" % (name, path, c["name"])
        stem, lines = c["name"].rstrip("*"), r.stderr.count("\n")
        if c["need"] == "always":
            check(what, r.returncode == 1 and lines == 1 and stem in r.stderr, r)
        elif c["need"] == "can lack":
            there = any(matches(n, c["name"]) for n in kvfate.open(base).columns)
            check(what, r.returncode == 0 and (not there or stem in r.stderr and lines == 1 and "kvfate trace import" in r.stderr), r)
        elif c["need"] == "helps":
            check(what, r.returncode == 0 and not r.stderr, r)
        else:
            check(what, r.returncode == 0 or r.returncode == 1 and lines == 1 and stem in r.stderr, r)
    return True


with tempfile.TemporaryDirectory() as FOLDER:
    os.chdir(FOLDER)
    told = json.loads(said("list", "all", "--json").stdout)
    paths = recorded()
    for a in told["analyzers"]:
        check("%s declares columns" % a["name"], a["columns"] and all(c["note"] or c["need"] == "always" for c in a["columns"]))
        taken = any(judge(a, path, DEFAULTS.get(a["name"], [])) for path in paths)  # the first trace that it accepts
        check("%s takes one of the runs" % a["name"], taken, said(*words_of(a["name"], KVFATE), *[paths[1]] * a["min_traces"]).stderr)
    names = set().union(*(kvfate.open(p).columns for p in paths))
    for name in names:
        supply = next((c for c in told["columns"] if matches(name, c["name"])), None)
        check("somebody supplies %s" % name, supply is not None and (supply["flag"] or supply["import"]))
    os.chdir("/")
finish()
