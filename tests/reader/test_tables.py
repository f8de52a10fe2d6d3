#!/usr/bin/env python3
"""Compare the tables that the report page computes from a trace, run by node, with the tables that `kvfate report` embeds.

usage: test_tables.py KVFATE MAKE_REPORT_TRACE READER.js MAKE_ANY WRITE_KVF

Equal: names, units, types, rows, commands, metadata and values.  Values that need exp, log or sums of reals may differ by 1e-12
relative, values of head types by 1e-9.  The page must reject a trace that `kvfate report` rejects, and must give the same reason for a missing table.
"""
import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", name) for name in ("report", "analyze", "")]
import numpy as np  # noqa: E402
import planted  # noqa: E402
from page import HOSTILE, Case, Page  # noqa: E402
from test_reader import LONG, QUICK, node, runs  # noqa: E402

COPIES = {"previous", "duplicate", "induction", "induction_sum", "induction_kv", "copied", "retrieval", "retrieval_kv"}
DILUTION = {"head", "layer", "index", "step", "dilution", "useful_mass"}
PARTLY = {"dilution": DILUTION.__contains__, "heads": lambda name: name not in COPIES}  # columns that the page has
# exp, expm1, log and pow of JavaScript and C may differ in the last bit; sums of reals may be added in another order.
ROUNDED = {"mean_beta", "mean_retention", "saliency", "sparsity", "survival_low", "survival_high", "rmst", "rmst_error", "kept_mass", "oracle_mass", "regret",
           "dilution", "useful_mass", "mean_kept_mass", "mean_oracle_mass", "mean_regret", "worst_regret"}
TEXTS = [" the", ",", "\n", " 12", " frac", "\\frac", "{", "}{", " <|im_start|>", "user", "\n", "<think>", " wait", "Hmm", " -", " 7", "=", "\u4e2d", "\u00e9", "<image>", "</s>", "\u2019s", " It",
         "\u00bd", "$", "\U0001f600", "\u2014", "\u3000", " x", "^{", "_", "\t", "\x85", "\ufeff", "\u180e", "don", "'t", "row_1_col_2", "<row_1_col_2>", "[INST]", "(", "3", ")-", "4", "**", "*", "\\%"]


def equal(name, a, b, key=""):
    if a is None or b is None or (isinstance(b, float) and math.isnan(b)):
        return a is None and (b is None or math.isnan(b))
    if a in ("Infinity", "-Infinity") and not isinstance(b, str):
        a = float(a)
    if isinstance(a, float | int) and isinstance(b, float | int) and (name in ROUNDED or key == "heads"):
        return math.isclose(a, b, rel_tol=1e-9 if key == "heads" else 1e-12, abs_tol=1e-12 if key == "heads" else 1e-15)
    return a == b


def number(v):
    try:
        return float(v)
    except ValueError:
        return v


def compare_meta(mine, theirs, partly):
    """The first difference, or None.  Numbers may be written in two ways."""
    if partly:
        theirs = [x for x in theirs if x[0] in dict(mine)]
    theirs = [x for x in theirs if x[0] != "head_budgets"]
    for (k, v), (key, value) in zip(mine, theirs):
        if k != key or not equal(k, number(v), number(value)):
            return (k, v), (key, value)
    return None if len(mine) == len(theirs) else (mine[len(theirs):], theirs[len(mine):])


def compare(mine, page, theirs):
    """The first difference of two tables, or None."""
    key = mine["key"]
    if "absent" in mine or "absent" in theirs:
        return None if mine.get("absent") == theirs.get("absent") else (mine.get("absent"), theirs.get("absent"))
    for what in ("name", "command", "rows"):
        if mine[what] != theirs[what]:
            return what, mine[what], theirs[what]
    meta = compare_meta(mine["meta"], theirs["meta"], key in PARTLY)
    if meta:
        return "metadata", *meta
    columns = [c for c in theirs["columns"] if PARTLY.get(key, bool)(c["name"]) and c["name"] != "budget"]
    if [(c["name"], c["unit"], c["type"]) for c in mine["columns"]] != [(c["name"], c["unit"], c["type"]) for c in columns]:
        return "columns", [c["name"] for c in mine["columns"]], [c["name"] for c in columns]
    for c in mine["columns"]:
        want = page.column(theirs, c["name"])
        if c["values"] is None:  # follows from log_beta; kvfate embeds it if the first gate value is NaN
            continue
        if want is None or len(want) != len(c["values"]):
            return c["name"], "length", want and len(want), len(c["values"])
        for r, (a, b) in enumerate(zip(c["values"], want)):
            if not equal(c["name"], a, b, key):
                return c["name"], f"row {r}", a, b
    return None


def check_all(s, names, reader):
    with open(s.path("list"), "w", encoding="utf-8") as f:
        f.writelines(f"{name}\t{name}.json\n" for name in names)
    done = subprocess.run([node(), os.path.join(HERE, "dump_tables.js"), reader, "list"], cwd=s.work.name, capture_output=True, timeout=900)
    s.check("node ends well", done.returncode == 0, done.stderr[-800:].decode())
    rejected = tables = 0
    for name in names:
        with open(s.path(name + ".json"), encoding="utf-8") as f:
            mine = json.load(f)
        made = subprocess.run([s.kvfate, "report", name, "-o", name + ".html", "--max-size", "100"], cwd=s.work.name, capture_output=True, stdin=subprocess.DEVNULL,
                              timeout=170)
        if made.returncode not in (0, 3):
            rejected += 1
            s.check(f"{name}: rejected by both", "error" in mine, made.stderr)
            continue
        if "error" in mine:
            s.check(f"{name}: opened", False, mine["error"])
            continue
        page = Page(s.path(name + ".html"))
        for t in mine["tables"]:
            tables += "absent" not in t
            difference = compare(t, page, page.table(t["key"]))
            s.check(f"{name}: {t['key']}", difference is None, difference)
        os.remove(s.path(name + ".html"))
    print(f"{len(names)} traces: {tables} tables equal, {rejected} traces rejected by both")
    return tables


def main():
    kvfate, maker, reader, anything, write_kvf = sys.argv[1:6]
    if not node():
        print("no node here: the tables of the report page are not computed outside of a browser")
        return 77
    s, r, names = Case(kvfate, maker), random.Random(4), []
    for k, (T, L, H, G, kinds) in enumerate([(1, 1, 1, 1, "eguds"), (7, 1, 1, 2, "eguds"), (23, 2, 2, 4, "egus"), (600, 2, 2, 4, "eguds"), (300, 1, 3, 3, "xu"), (90, 2, 1, 4, "g"),
                                             (200, 2, 2, 2, "u"), (150, 1, 2, 4, "ebh"), (1300, 1, 1, 2, "eud"), (40, 1, 1, 1, "d"), (513, 2, 2, 2, "es"), (0, 1, 1, 1, "e")]):
        texts = [r.choice(TEXTS).encode() for _ in range(T)] if k % 2 else HOSTILE[:T]
        s.trace(f"made-{k}.kvf", T, L, H, G, kinds, seed=k + 1, texts=[t[:200] for t in texts])
        names.append(f"made-{k}.kvf")
    for k, strength in enumerate(planted.STRENGTHS[:1 if QUICK else 3]):  # heads of each type
        rng = np.random.default_rng(k)
        specs = [planted.spec(rng, kind, strength) for kind in planted.KINDS for _ in range(2)]
        planted.trace(os.path.abspath(write_kvf), s.path(f"planted-{k}.kvf"), rng, specs, 5, 2, 4, 320)
        names.append(f"planted-{k}.kvf")
    count = 400 if LONG else 8 if QUICK else 40
    subprocess.run([os.path.abspath(anything), str(count), "any"], cwd=s.work.name, check=True)
    names += [f"any-{k}.kvf" for k in range(count)]
    if LONG:
        names += [path.name for path in runs(Path(s.work.name), os.path.abspath(kvfate)) if not path.name.startswith("small")]
    tables = check_all(s, names, os.path.abspath(reader))
    s.check("many tables were compared", tables > 150, tables)
    return s.finish()


if __name__ == "__main__":
    sys.exit(main())
