#!/usr/bin/env python3
"""usage: test_import_types.py KVFATE LIBKVFTRACE SOURCE_ROOT

Tests values that reach import through types of other programs. Each mark for "never" that a type
can represent becomes all ones in the column, also after conversion through a narrower type.
Integers that a type has rounded, and values out of range, are rejected by name. The expected values
follow from the marks and the steps that the test writes. KVFATE_TORCH_PYTHON names a Python with
torch, which then also runs the test with its own NumPy: NumPy 1 and 2 have different promotion
rules."""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

SELF, KVFATE, LIBRARY, ROOT = map(os.path.abspath, sys.argv[:4])
if os.environ.get("LD_LIBRARY_PATH") != os.path.dirname(LIBRARY):
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "LD_LIBRARY_PATH": os.path.dirname(LIBRARY)})
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "tests")]
from check import check, finish  # noqa: E402
import kvfate  # noqa: E402
from kvfate.import_values import NEVER_IN  # noqa: E402

T, MARKED = 12, (1, 4, 7)
# The maximum step or age of token i in a run of T steps, by libtrace/include/kvf/schema.h.
COLUMNS = {"evict_step": lambda i, T: T, "evict_rank": lambda i, T: i, "last_selected.top64": lambda i, T: T - 1 - i,
           "first_unselected.mass.95": lambda i, T: T - 1 - i, "shadow.first_hit": lambda i, T: T - 1}
MARKS = {"f": [np.nan, np.inf, -1, 2**32 - 1, 65535], "i": [-1, 2**32 - 1, 2**31 - 1], "u": [2**64 - 1, 2**32 - 1, 2**31 - 1]}
TYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
try:
    import torch
except ImportError:
    torch = None


def through(mark, kind):
    """Returns a mark after a cast from 64 bits; None if the type cannot represent it."""
    kind = np.dtype(kind)
    if kind.kind == "f":
        with np.errstate(over="ignore"):
            return np.float64(mark).astype(kind)
    wide = np.array([mark % 2**64], np.uint64)
    narrow = wide.astype(kind)[0]
    return narrow if int(narrow) in (-1, 2**31 - 1, np.iinfo(kind).max) and kind.kind == "u" or int(narrow) in (-1, 2**31 - 1, 2**32 - 1) else None


def forms(columns):
    """Returns fields {name: [T] of one head} in each form that import reads."""
    yield "dict", {name: values[None, None] for name, values in columns.items()}
    np.savez("v.npz", **{name: values[None, None] for name, values in columns.items()})
    yield "npz", "v.npz"
    os.makedirs("v", exist_ok=True)
    for name, values in columns.items():
        np.save("v/%s@L0.npy" % name, values[None])
    yield "folder", "v"
    cells = {name: values.tolist() for name, values in columns.items()}
    with open("v.json", "w") as f:
        json.dump({name: [[row]] for name, row in cells.items()}, f)
    with open("v.jsonl", "w") as f:
        f.writelines(json.dumps({"column": name, "layer": 0, "head": 0, "values": row}) + "\n" for name, row in cells.items())
    with open("v.tsv", "w") as f:
        f.write("\t".join(["layer", "head", "token", *cells]) + "\n" + "".join("0\t0\t%d\t%s\n" % (i, "\t".join(map(str, row))) for i, row in enumerate(zip(*cells.values()))))
    yield from (("JSON", "v.json"), ("lines of JSON", "v.jsonl"), ("TSV", "v.tsv"))
    kind = next(iter(columns.values())).dtype
    try:
        import pyarrow
        from pyarrow import parquet
        if kind != np.float16:
            parquet.write_table(pyarrow.table({"layer": [0] * T, "head": [0] * T, "token": range(T), **columns}), "v.parquet")
            yield "Parquet", "v.parquet"
    except ImportError:
        pass
    if torch is not None and kind.kind in "if":
        tensors = {name: torch.tensor(values)[None, None] for name, values in columns.items()}
        torch.save(tensors, "v.pt")
        yield "torch", "v.pt"
        if kind == np.float32:
            yield "bfloat16", {name: x.bfloat16() for name, x in tensors.items()}


def stored(name, source):
    kvfate.import_trace(source, "v.kvf", overwrite=True)
    with kvfate.open("v.kvf") as t:
        return t[name][0, 0].copy()


def marks():
    valid = {name: np.array([one(i, T) for i in range(T)]) for name, one in COLUMNS.items()}
    for kind in TYPES:
        for mark in MARKS[np.dtype(kind).kind]:
            odd = through(mark, kind)
            if odd is None:
                continue
            columns = {name: values.astype(kind) for name, values in valid.items()}
            for values in columns.values():
                values[list(MARKED)] = odd
            for form, source in forms(columns):
                if kind == "u1" and form in ("JSON", "lines of JSON", "TSV"):
                    continue  # 255 without its type is a step
                kvfate.import_trace(source, "v.kvf", overwrite=True)
                with kvfate.open("v.kvf") as t:
                    for name in COLUMNS:
                        ones, got = 65535 if "selected" in name else 2**32 - 1, t[name][0, 0]
                        want = [ones if i in MARKED else valid[name][i] for i in range(T)]
                        check("%s as %s with %s in %s" % (name, kind, odd, form), got.tolist() == want, got)
    check("verify", subprocess.run([KVFATE, "trace", "verify", "--full", "v.kvf"], capture_output=True).returncode == 0)


def again():
    """An export in the form of other programs gives the same trace."""
    values = {name: np.array([[[2**32 - 1 if i in MARKED else valid(i, T) for i in range(T)]]]) for name, valid in COLUMNS.items()}
    kvfate.import_trace(values, "first.kvf", overwrite=True)
    kvfate.export("first.kvf", "first.npz", overwrite=True)
    with np.load("first.npz") as z:
        arrays = {n: z[n] for n in z.files if n.endswith(tuple(COLUMNS))}
    check("columns of the export", len(arrays) == len(COLUMNS), list(arrays))
    for kind in ("f2", "f4", "f8", "i2", "i4", "i8"):
        with np.errstate(over="ignore"):
            kvfate.import_trace({n: a.astype(kind) for n, a in arrays.items()}, "second.kvf", overwrite=True)
        with kvfate.open("first.kvf") as a, kvfate.open("second.kvf") as b:
            for name in COLUMNS:
                check("%s of an export as %s" % (name, kind), np.array_equal(a[name][0, 0], b[name][0, 0]), b[name][0, 0])


def refused(name, source, *words, **options):
    try:
        kvfate.import_trace(source, "no.kvf", **options)
    except kvfate.Error as e:
        check(name, all(w in str(e) for w in words) and "\n" not in str(e), e)
    else:
        check(name, False, "nothing was raised")
    check(name + ": nothing is left", not any("no.kvf" in n for n in os.listdir(".")), os.listdir("."))


def rounded():
    """Rounded integers look like other integers."""
    n = 3000
    steps = np.full((1, 1, n), n, np.float16)
    refused("steps in half precision", {"evict_step": steps}, "evict_step", "token 0", "2048", "int32")
    ages = np.minimum(n - 1 - np.arange(n), 2047).astype(np.float16)
    ages[5] = np.nan
    got = stored("last_selected.top64", {"last_selected.top64": ages[None, None]})
    check("ages that half precision has", got.tolist() == [65535 if i == 5 else min(n - 1 - i, 2047) for i in range(n)])
    refused("ids in single precision", {"tokens.id": np.full(4, 2**24 + 1, np.float32)}, "tokens.id", "16777216")
    refused("entries in half precision", {"kept": np.full((1, 1, 1, 1), 2049, np.float16), "ids": np.arange(n)}, "kept", "float16")
    refused("steps of tables in half precision", {"kept": np.full((1, 1, 1, 1), 1), "kept@steps": np.array([2500], np.float16), "ids": np.arange(n)}, "kept@steps")
    refused("counts in single precision", {"selected_at.top64": np.full((1, 1, 4), 2.0**25, np.float32)}, "selected_at.top64", "16777216")
    refused("uint8 steps", {"evict_step": np.full((1, 1, 255), 255, np.uint8)}, "evict_step", "uint8 has no room for never", "255 tokens")
    if torch is not None:
        refused("steps in bfloat16", {"evict_step": torch.full((1, 1, 300), 300.).bfloat16()}, "evict_step", "256", "int32")
        refused("entries in bfloat16", {"kept": torch.full((1, 1, 1, 1), 299.).bfloat16(), "ids": np.arange(300)}, "kept", "whole numbers")
        refused("steps in a half tensor", {"evict_step": torch.full((1, 1, 2500), 2500.).half()}, "evict_step", "2048")


def wide():
    """A run with more steps than 16 bits can count: its ages have 32 bits, in which 65535 is an
    age."""
    n = 70000
    ages = np.minimum(n - 1 - np.arange(n), 65535)
    ages[3], ages[4] = 65534, -1
    got = stored("last_selected.top64", {"last_selected.top64": ages[None, None]})
    check("ages of 32 bits", got.dtype == np.uint32 and got.tolist() == [2**32 - 1 if a < 0 else a for a in ages.tolist()])
    refused("uint16 in a long run", {"last_selected.top64": ages.astype(np.uint16)[None, None]}, "uint16 has no room for never", "70000")
    ages[n - 4] = 65535
    refused("an age that cannot be", {"last_selected.top64": ages[None, None]}, "last_selected.top64 of token 69996", "from 0 to 3")


def padding():
    """Sets of kept entries, padded by each mark: entry 0 is evicted before the query of step 2."""
    sets = [[0], [0, 1], [1, 2], [1, 2, 3]]
    for kind, mark in [(k, m) for k in TYPES for m in ([-1, np.nan, 2**32 - 1] if k[0] == "f" else [-1])]:
        with np.errstate(over="ignore"):
            odd = np.float64(mark).astype(kind) if kind[0] == "f" else np.array([-1]).astype(kind)[0]
        kept = np.full((1, 1, 4, 3), odd, kind)
        for k, one in enumerate(sets):
            kept[0, 0, k, :len(one)] = one
        got = stored("evict_step", {"kept": kept, "ids": np.arange(4)})
        check("padding %s of %s" % (odd, kind), got.tolist() == [2] + [2**32 - 1] * 3, got)
    refused("a fraction is no entry", {"kept": np.full((1, 1, 4, 1), .5), "ids": np.arange(4)}, "kept", "0.5")


def misfits():
    one = np.full((1, 1, 4), -1)
    with open("m.jsonl", "w") as f:
        f.write('{"column": "tokens.id", "values": [1.5, 2, 3, 4]}\n')
    refused("a fraction for an id", "m.jsonl", "tokens.id of token 0 is 1.5", "whole number")
    refused("an infinite count", {"selected_at.top64": np.full((1, 1, 4), np.inf)}, "selected_at.top64 of token 0", "inf")
    refused("a negative step", {"evict_step": np.array([[[-2, -1, -1, -1]]])}, "evict_step of token 0", "-2", "from 1 to 4")
    refused("a role over 4", {"evict_step": one, "roles": [0, 1, 5, 0]}, "tokens.role of token 2 is 5", "0 to 4")
    refused("a role of 54 bits", {"evict_step": one, "roles": ["prompt", 2**53, "prompt", "prompt"]}, "tokens.role of token 1", "0 to 4")
    refused("too large for single precision", {"evict_step": one, "scores": np.full((1, 1, 4), 1e39)}, "evict_score", "1e+39", "float32")
    refused("ids of 33 bits", {"tokens.id": np.full(4, 2**32)}, "tokens.id of token 0", "4294967296", prompt=2)
    refused("65536 heads", {"evict_step": one}, "--heads", heads="1/65536")
    have = np.array([[[True, False, True, True]]])
    kvfate.import_trace({"shadow.first_hit": np.array([[[2, 0, -1, np.nan]]]), "shadow.first_hit@present": have}, "h.kvf", overwrite=True)
    with kvfate.open("h.kvf") as t:
        check("what is not there is not looked at", t["shadow.first_hit"].present(0, 0).tolist() == have[0, 0].tolist() and t["shadow.first_hit"].read(0, 0, 2).tolist() == [2**32 - 1] * 2)


def schema():
    """The columns in which all ones mean never are those of the trace library, with its bounds."""
    with open(os.path.join(ROOT, "libtrace", "schema_rules.h")) as f:
        lines = [line[:line.rindex(")")].split("X(")[1].split(", ") for line in f if line.lstrip().startswith("X(") and line.split(")")[-2].endswith(", 1")]
    check("columns", {line[0].strip('"') for line in lines} == set(NEVER_IN), lines, list(NEVER_IN))
    bounds = {"RULE_NEXT": lambda i, T: i + 1, "RULE_OWN": lambda i, T: i, "RULE_IS(0)": lambda i, T: 0 * i, "RULE_STEPS": lambda i, T: 0 * i + T,
              "RULE_LAST": lambda i, T: 0 * i + T - 1, "RULE_AGE": lambda i, T: T - 1 - i}
    for line in lines:
        mine = NEVER_IN[line[0].strip('"')](np.arange(9), 9)
        check("bounds of " + line[0], all(np.array_equal(m, bounds[b](np.arange(9), 9)) for m, b in zip(mine, line[3:5])), line)


with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as FOLDER:  # faster than a disk
    os.chdir(FOLDER)
    marks()
    again()
    rounded()
    wide()
    padding()
    misfits()
    schema()
    os.chdir("/")
other = os.environ.pop("KVFATE_TORCH_PYTHON", None)
if other:
    r = subprocess.run([other, SELF, KVFATE, LIBRARY, ROOT], capture_output=True, text=True)
    check("by the NumPy of %s" % other, r.returncode == 0, r.stdout[-3000:], r.stderr[-3000:])
finish()
