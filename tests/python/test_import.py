#!/usr/bin/env python3
"""usage: test_import.py KVFATE LIBKVFTRACE SOURCE_ROOT MODEL

Tests how import converts data of other programs. A run of a tiny model is the reference: its
attention rows and evictions, written in each form as another program would, must give the run's
columns again. Kept entries that return are compared with a brute force. Also tests texts, roles,
retention, the analyses of a trace with only evictions, and the message for each mistake."""
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

KVFATE, LIBRARY, ROOT, MODEL = map(os.path.abspath, sys.argv[1:5])
if os.environ.get("LD_LIBRARY_PATH") != os.path.dirname(LIBRARY):
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "LD_LIBRARY_PATH": os.path.dirname(LIBRARY)})
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "tests")]
from check import check, finish  # noqa: E402
import kvfate  # noqa: E402
from kvfate import imports  # noqa: E402

T, PROMPT, NEVER = 120, 40, 2**32 - 1
ROWS = "survival,mass,steps,calibration,returns,window,under,dilution"


def said(*argv):
    return subprocess.run([KVFATE, *map(str, argv)], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                          env={**os.environ, "KVFATE_PYTHON": sys.executable})


def recorded(method):
    """Returns a run, and the attention of the two query heads of its first KV head in layer 1:
    [2][T][T], 0 if a query does not see the entry."""
    r = random.Random(5)
    Path("ids").write_text(" ".join(str(r.randint(3, 299)) for _ in range(PROMPT)))
    group = 2
    watch = "0-%d@%s" % (T - 1, ",".join("L1H%d" % h for h in range(group)))
    done = said("run", "-m", MODEL, "--ids", "ids", "-n", str(T - PROMPT + 1), "--ignore-eos", "--exact", "--probes", "full", "--watch", watch, "-o", "engine.kvf", "--overwrite", "-q", *method)
    assert done.returncode == 0, done.stderr
    trace = kvfate.open("engine.kvf")
    left = np.array(trace.evict_step)
    check("entries left on the way", trace.steps == T and (not method or len(np.unique(left)) > 40), trace.steps, len(np.unique(left)))
    rows = np.stack([np.stack([trace["received.L1H%d.%d" % (h, i)][:] for i in range(T)], 1) for h in range(group)])
    return trace, np.maximum(np.nan_to_num(rows, nan=0), 0)


def attention(method):
    """Compares the columns from attention rows in each supported shape."""
    trace, rows = recorded(method)
    left = trace.evict_step[1][:1]
    fields = {"evict_step": left[None], "tokens.id": trace["tokens.id"][:]}
    np.savez("rows.npz", attention=rows[None], **fields)
    np.savez_compressed("layer.npz", **{"attention@L0": rows}, **fields)
    kvfate.import_trace("rows.npz", "rows.kvf", probes=ROWS, overwrite=True)
    kvfate.import_trace("layer.npz", "layer.kvf", probes=ROWS, overwrite=True)
    steps = [[rows[None, :, :40, :40]], *([rows[None, :, t:t + 1, :t + 1]] for t in range(40, T))]  # as returned by transformers' generate
    kvfate.import_trace({"attention": steps, **fields}, "steps.kvf", probes=ROWS, overwrite=True)
    for name in ("rows", "layer", "steps"):
        with kvfate.open(name + ".kvf") as mine:
            mine.verify()
            compared = 0
            for c in mine.columns.values():
                if c.space == "query":
                    got, want = c[0], trace[c.name][1][:2]
                    near = want.dtype.kind == "f" and np.allclose(got, want, rtol=1e-5, atol=1e-6, equal_nan=True)
                    check("%s of %s, %s" % (c.name, name, method), near or np.array_equal(got, want), np.argwhere(got != want)[:3].tolist(), got.dtype, want.dtype)
                    compared += 1
            check("columns of " + name, compared > 70, compared)
    check("verify", said("trace", "verify", "--full", "rows.kvf").returncode == 0)


# ---- kept entries

def sets_of(left, steps):
    """Returns the entries that each query of one head sees."""
    return [[i for i in range(s + 1) if s < left[i]] for s in steps]


def padded(sets):
    width = max(map(len, sets))
    return np.array([one + [-1] * (width - len(one)) for one in sets])


def kept():
    """The evictions of the run, from the contents of its caches, in each form."""
    trace, _ = recorded(["--method", "h2o", "-B", "24"])
    left = [trace.evict_step[layer] for layer in range(len(trace.heads))]
    H = trace.heads[0][0]
    sets = [[sets_of(head, range(T)) for head in layer] for layer in left]
    width = max(len(s) for layer in sets for head in layer for s in head)
    whole = np.array([[padded([*head, list(range(width))])[:-1] for head in layer] for layer in sets])
    np.savez("kept.npz", kept=whole, ids=np.arange(T))
    rows = [(l, h, s, one) for l, layer in enumerate(sets) for h, head in enumerate(layer) for s, one in enumerate(head)]
    with open("kept.tsv", "w") as f:
        f.write("layer\thead\tstep\tkept\n" + "".join("%d\t%d\t%d\t%s\n" % (l, h, s, ",".join(map(str, one))) for l, h, s, one in rows))
    with open("kept.jsonl", "w") as f:
        f.writelines(json.dumps({"layer": l, "head": h, "step": s, "kept": one}) + "\n" for l, h, s, one in rows)
    Path("long.tsv").write_text("layer\thead\tstep\ttoken\n" + "".join("%d\t%d\t%d\t%d\n" % (l, h, s, t) for l, h, s, one in rows for t in one))
    os.makedirs("folder", exist_ok=True)
    for layer in range(len(left)):
        np.save("folder/kept@L%d.npy" % layer, whole[layer])
    np.save("folder/ids.npy", np.arange(T))
    behind = [[[[i for i in one if i <= s] for s, one in enumerate(head[1:])] for head in layer] for layer in sets]
    after = np.array([[padded([*head, list(range(width))])[:-1] for head in layer] for layer in behind])
    np.savez("after.npz", kept_after=after, ids=np.arange(T), **{"kept_after@steps": np.arange(T - 1)})
    Path("ids.tsv").write_text("token\tid\n" + "".join("%d\t%d\n" % (i, i) for i in range(T)))
    for files in (["kept.npz"], ["kept.tsv"], ["kept.jsonl"], ["long.tsv"], ["folder"], ["after.npz"], ["kept.tsv", "ids.tsv"]):
        r = said("trace", "import", *files, "-o", "kept.kvf", "--overwrite")
        if not check("import of %s" % files, r.returncode == 0, r.stderr):
            continue
        with kvfate.open("kept.kvf") as mine:
            want = [np.where(layer == T, NEVER, layer) for layer in left]  # no query shows an eviction after the last one
            ok = mine.heads == [(H, H)] * len(left) and all(np.array_equal(mine.evict_step[l], want[l]) for l in range(len(left)))
            check("evictions of %s" % files, ok)
            check("nothing came back in %s" % files, "seen" not in mine)


def returns():
    """Kept entries that leave and return at random steps, compared with the definition."""
    r = random.Random(3)
    for case in range(40):
        n = r.choice([5, 17])
        steps = sorted(r.sample(range(n), r.randint(1, n)))
        after = r.random() < 0.5
        sets = [[i for i in range(s + 1) if r.random() < 0.7] for s in steps]
        name = "kept_after" if after else "kept"
        most = max(1, *map(len, sets))
        value = np.array([one + [-1] * (most - len(one)) for one in sets]).reshape(1, 1, len(steps), most)
        kvfate.import_trace({name: value, name + "@steps": np.array(steps), "tokens.id": np.arange(n)}, "r.kvf", overwrite=True)
        with kvfate.open("r.kvf") as mine:
            came_back, sets = False, sets if after else [sorted({*one, s}) for s, one in zip(steps, sets)]  # a query sees its own entry
            for i in range(n):
                # The knowledge about later queries: the last set before each of them determines if
                # it sees the entry.
                known = {q: [i in one for s, one in zip(steps, sets) if i < s + after <= q or s + after == q][-1:] for q in range(i + 1, n + 1)}
                seen = [q for q in range(i + 1, n + 1) if known[q] != [False]]
                gone = [q for q in known if known[q] == [False]]
                want = NEVER if not gone or max(gone) < max(known) and known[max(known)] == [True] else max([i, *(q for q in seen)]) + 1
                last_set = [i in one for s, one in zip(steps, sets) if s + after > i]
                want = NEVER if not last_set or last_set[-1] else want
                check("case %d: evict_step of %d" % (case, i), mine.evict_step[0, 0][i] == want, mine.evict_step[0, 0][i], want, name, steps, sets)
                inside = [i, *(q for q in seen if q < n)]
                came_back |= inside != list(range(i, inside[-1] + 1))
                if "seen" in mine:
                    got = [t for a, b in mine["seen"].read(0, 0, i, i + 1)[0].tolist() for t in range(a, b + 1)]
                    check("case %d: seen of %d" % (case, i), got == inside, got, inside, name, steps, sets)
            check("case %d: seen is there where one came back" % case, ("seen" in mine) == came_back, steps, sets)


# ---- other properties

def fields():
    n = 12
    left = np.array([[[3, -1, 5, 12, -1, -1, -1, 8, -1, -1, -1, -1]]], float)
    left[0, 0, 4] = np.nan
    beta = np.linspace(0, 1, n)[None, None]
    kvfate.import_trace({"evict_step": left, "retention": beta, "scores": np.arange(n)[None, None] / 7, "ids": np.arange(n), "texts": ["\u00e9", "", *"abcdefghij"],
                         "x-lab.surprise": np.ones(n, np.float32), "roles": ["prompt"] * 4 + ["answer"] * 8}, "f.kvf", prompt=4, model="mine", budget=6, overwrite=True)
    with kvfate.open("f.kvf") as t:
        check("never", t.evict_step[0, 0].tolist() == [3, NEVER, 5, 12, NEVER, NEVER, NEVER, 8] + [NEVER] * 4)
        with np.errstate(divide="ignore"):
            check("retention", np.array_equal(t["log_beta"][0, 0], np.log(beta[0, 0]).astype(np.float32)))
        check("scores", np.array_equal(t["evict_score"][0, 0], (np.arange(n) / 7).astype(np.float32)))
        check("texts", t.tokens == ["\u00e9", "", *"abcdefghij"] and t["tokens.role"][:].tolist() == [0] * 4 + [1] * 8)
        check("own", t["x-lab.surprise"][:].tolist() == [1] * n)
        meta = t.meta
        check("meta", meta["model"] == {"name": "mine"} and meta["method"] == {"budget": 6} and meta["run"] == {"prompt_tokens": 4}, meta)
    kvfate.import_trace({"evict_step": left, "ids": np.arange(n)}, "f.kvf", prompt=5, method="mine", budget="50%", overwrite=True)
    with kvfate.open("f.kvf") as t:
        check("a budget in percent", t.meta["method"] == {"name": "mine", "budget": 2, "budget_percent": 50}, t.meta)
    class Tensor:
        """The tensor interface that import uses, with a type that NumPy lacks."""
        detach = cpu = lambda self: self
        is_floating_point, element_size = lambda self: True, lambda self: 2
        float = lambda self: beta.astype(np.float32)[0].view(Floats)  # noqa: E731

    class Floats(np.ndarray):
        numpy = lambda self: np.asarray(self)  # noqa: E731
    kvfate.import_trace({"evict_step": left, "retention": [Tensor()]}, "bf16.kvf", overwrite=True)
    check("tensors of a dict", np.array_equal(kvfate.open("bf16.kvf")["log_beta"][0, 0][1:], np.log(beta.astype(np.float32)[0, 0, 1:].astype(float)).astype(np.float32)))
    try:
        kvfate.import_trace({"evict_step": left}, "x.kvf", existing="overwrite")
    except TypeError as e:
        check("a word too many", "import_trace()" in str(e) and "existing" in str(e), e)
    try:
        import torch
        torch.save({"evict_step": torch.tensor(left), "retention": torch.tensor(beta).bfloat16()}, "f.pt")
        kvfate.import_trace("f.pt", "pt.kvf", overwrite=True)
        check("torch", kvfate.open("pt.kvf").evict_step[0, 0][0] == 3)
    except ImportError:
        print("torch is not installed: .pt files are left out")


def schema():
    """The names that import knows are those of the trace library, with its spaces and axes."""
    rules = re.findall(r'X\("([^"]+)", ([A-Z_ |]+), RULE_(TOKEN|STEP),', Path(os.path.join(ROOT, "libtrace", "schema_rules.h")).read_text())
    check("rules were found", len(rules) > 40)
    for name, spaces, axis in rules:
        mine = [(n, w) for n, w in imports.KNOWN.items() if n == name or name.endswith("*") and n.startswith(name[:-1])]
        check("import knows %s" % name, bool(mine))
        for n, words in mine:
            space = next(s for s in ("run", "kv", "query") if s in words.split(":")[0].split())
            check("space and axis of %s" % n, "RULE_" + space.upper() in spaces and ("step" in words.split(":")[0].split()) == (axis == "STEP"), words)


def refused(name, fields, *words, out="no.kvf", **options):
    try:
        kvfate.import_trace(fields, out, overwrite=True, **options)
    except kvfate.Error as e:
        check(name, all(w in str(e) for w in words) and "\n" not in str(e), e)
    else:
        check(name, False, "nothing was raised")
    check(name + ": nothing is written", not any("no.kvf" in n for n in os.listdir(".")), os.listdir("."))


def never():
    """Absent rows of a table, and rows without a step, are entries that were never evicted."""
    Path("left.tsv").write_text("layer\thead\ttoken\tevict_step\n0\t0\t1\t4\n0\t0\t3\t\n0\t1\t2\t3\n")
    kvfate.import_trace("left.tsv", "left.kvf", overwrite=True)
    with open("left.tsv") as f, open("marked.tsv", "w", encoding="utf-8-sig", newline="\r\n") as out:
        out.write(f.read())
    kvfate.import_trace("marked.tsv", "marked.kvf", overwrite=True)
    with kvfate.open("left.kvf") as a, kvfate.open("marked.kvf") as b:
        check("a mark before the text, and other ends of lines", np.array_equal(a.evict_step[0], b.evict_step[0]))
    refused("a trace in place of its source", "left.tsv", "left.tsv is what is imported", out="left.tsv")
    check("the source is there", Path("left.tsv").read_text().startswith("layer"))
    with kvfate.open("left.kvf") as t:
        check("entries that never left", t.evict_step[0].tolist() == [[NEVER, 4, NEVER, NEVER], [NEVER, NEVER, 3, NEVER]], t.evict_step[0])


def mistakes():
    one = np.full((1, 1, 8), -1)
    refused("percent of nothing", {"evict_step": one}, "give --prompt N", budget="25%")
    refused("no percent", {"evict_step": one}, "25%", prompt=3, budget="0%")
    refused("shape", {"evict_step": np.zeros((1, 8))}, "[1, 8]", "[layers][heads][tokens]")
    refused("tokens", {"evict_step": one, "ids": np.arange(9)}, "1 x 8", "9 tokens")
    refused("born", {"evict_step": one + 3}, "token 2", "from 3 to 8")
    refused("late", {"evict_step": one + 10}, "from 1 to 8")
    refused("heads", {"evict_step": np.full((1, 2, 8), -1), "log_beta": np.zeros((1, 3, 8))}, "log_beta", "evict_step", "layer 0")
    refused("group", {"evict_step": np.full((1, 2, 8), -1), "mass.sum": np.zeros((1, 3, 8))}, "2 KV heads", "3 query heads")
    refused("name", {"evict_step": one, "surprise": one}, "surprise", "x-surprise")
    refused("nothing", {}, "nothing to import")
    refused("sum", {"attention": np.ones((1, 1, 4, 4))}, "query 1", "sum to 2")
    refused("role", {"evict_step": one, "roles": ["prompt"] * 7 + ["god"]}, "'god'", "think")
    refused("kept", {"kept": np.full((1, 1, 8, 1), 5), "ids": np.arange(8)}, "entry 5", "step 0")
    refused("two", {"kept": np.zeros((1, 1, 8, 1)), "evict_step": one}, "one of kept")
    refused("retention", {"retention": np.full((1, 1, 8), 2.0)}, "between 0 and 1")
    refused("probe", {"attention": np.eye(4)[None, None]}, "contrib", "survival", probes="contrib")
    refused("heads option", {"evict_step": one}, "2/8", heads="8")
    Path("bad.tsv").write_text("layer\thead\ttoken\tevict_step\n0\t0\t0\n")
    refused("cells", "bad.tsv", "line 2", "3 cells", "4")
    Path("bad.jsonl").write_text('{"layer": 0}\n[')
    refused("JSON", "bad.jsonl", "line 2", "JSON")
    np.savez("bad.npz", ids=np.array([{}], object))
    refused("objects", "bad.npz", "ids.npy", "no array")
    Path("bad.npz").write_bytes(b"PK no")
    refused("zip", "bad.npz", "no npz")
    refused("ending", "ids", "no known ending", ".npz")
    r = said("trace", "import", "kept.npz")
    check("no output", r.returncode == 2 and "-o OUT.kvf" in r.stderr and r.stderr.count("\n") == 1, r.stderr)
    r = said("trace", "import", "kept.npz", "-o", "kept.kvf")
    check("not replaced", r.returncode == 1 and "--overwrite" in r.stderr and r.stderr.count("\n") == 1, r.stderr)
    r = said("trace", "import", "no such file.npz", "-o", "n.kvf")
    check("no file", r.returncode == 1 and "no such file" in r.stderr and r.stderr.count("\n") == 1, r.stderr)


def limited(*argv):
    """Runs an import with a limit of 3 GiB."""
    return subprocess.run(["sh", "-c", "ulimit -v 3145728; exec \"$@\"", "sh", KVFATE, "trace", "import", *argv, "-o", "no.kvf"], capture_output=True, text=True,
                          env={**os.environ, "KVFATE_PYTHON": sys.executable, "OPENBLAS_NUM_THREADS": "1"})


def sizes():
    """Small files that declare large contents."""
    for name, member, head in (("about.npz", "about.json", b'{"notes": "'), ("array.npz", "x-a.npy", b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '|u1', 'fortran_order': False, 'shape': (1, 1, 2147483648), }".ljust(117) + b"\n")):
        with zipfile.ZipFile(name, "w", zipfile.ZIP_DEFLATED) as z, z.open(member, "w", force_zip64=True) as f:
            f.write(head)
            for _ in range(2048):
                f.write(bytes(1 << 20) if member == "x-a.npy" else b" " * (1 << 20))
        r = limited(name)
        check("a bomb: " + name, r.returncode == 1 and "would unpack to 214" in r.stderr and r.stderr.count("\n") == 1, r)
    with zipfile.ZipFile("about.npz", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("about.json", b" " * (65 << 20))
    refused("a large about.json", "about.npz", "about.json has 68157440 bytes")
    for row in ("4095\t4095\t16777214\t16777215", "0\t4095\t16777214\t-1", "4095\t4095\t70000\t-1"):
        Path("one.tsv").write_text("layer\thead\ttoken\tevict_step\n%s\n" % row)
        r = limited("one.tsv")
        check("a table of one row: " + row, r.returncode == 1 and "1 rows" in r.stderr and r.stderr.count("\n") == 1, r)
    np.save("ids.npy", np.zeros(2**24 + 1, np.int8))
    refused("too many tokens", "ids.npy", "16777217 tokens", "16777216")


def hostile():
    """Malicious files: each is rejected with a message, and no code in it is executed."""
    head = "{'descr': '<i4', 'fortran_order': False, 'shape': %s, }"
    for k, text in enumerate([head % "(2, 3", head % "(-1,)", head % ("(%d,)" % 2**60), head.replace("'<i4'", "__import__('os').mkdir('hacked')") % "(6,)", "9" * 40]):
        with zipfile.ZipFile("odd.npz", "w") as z:
            z.writestr("../evict_step.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode())
        refused("head %d of an array" % k, "odd.npz", "evict_step.npy", "no array")
    np.savez_compressed("odd.npz", evict_step=np.arange(4000).reshape(1, 1, -1))
    data = Path("odd.npz").read_bytes()
    for k, broken in enumerate([data[:200] + b"\xff" * 64 + data[264:], data[:4] + b"\x69" + data[5:], data[:-30]]):
        Path("odd.npz").write_bytes(broken)
        refused("npz %d" % k, "odd.npz", "odd.npz")
    for k, (text, *words) in enumerate([
            ('{"tokens.text": 5}', "tokens.text", "one value"), ('{"evict_step": [[[-1], [1, 2]]]}', "different lengths"), ('{"attention": [[[[1, 0]]]], "attention@first": "x"}', "@first"),
            ('{"attention": 3}', "one value"), ('{"attention": [[1], [[2]]]}', "[layers][query heads]"), ('{"kept": [1], "ids": [1]}', "[layers][heads][steps]"),
            ('{"ids": {"a": 1}}', "ids", "one value"), ('{"ids": [%s]}' % ("9" * 30), "tokens.id"), ('{"texts": ["\\ud800"], "ids": [1]}', "half of a character"),
            ('{"ids": [1], "about": {"heads": [[true, true]]}}', "about.json"), ("[" * 100000, "JSON"), ('{"kept": [[[[0]]]], "kept@steps": ["a"], "ids": [1]}', "kept@steps")]):
        Path("odd.json").write_text(text)
        refused("odd.json %d" % k, "odd.json", *words)
    for k, text in enumerate(['{"blob": null, "values": [1]}', '{"layer": 0, "head": 0, "step": 9, "kept": []}\n{"about": {"steps": 3}}', '{"token": %s, "id": 1}' % ("9" * 40)]):
        Path("odd.jsonl").write_text(text + "\n")
        refused("odd.jsonl %d" % k, "odd.jsonl")
    sizes()
    for name in ("fifo.npz", "fifo.json", "fifo.tsv"):
        os.mkfifo(name)
        refused("a pipe, " + name, name, name, "not a regular file")
    for name, text in (("half.jsonl", '{"column": "\\ud800", "layer": 0, "head": 0, "values": [1]}\n'), ("half.json", '{"roles": ["prompt", %d], "ids": [1, 2]}' % 2**53)):
        Path(name).write_text(text)
        r = said("trace", "import", name, "-o", "no.kvf")
        check("one line: " + name, r.returncode == 1 and r.stderr.count("\n") == 1 and r.stderr.startswith("kvfate trace import: "), r)
    np.savez("inf.npz", **{"x-a": np.ones((1, 1, 4)), "evict_rank": np.array([[[0, np.inf, 1, 2]]]), "tokens.id": np.array([1, np.inf, 2, 3])})
    refused("infinite ids", "inf.npz", "tokens.id of token 1 is inf")

    class Sparse:
        def detach(self):
            raise TypeError("a sparse layout")
    refused("a tensor without values", {"evict_step": Sparse()}, "evict_step", "a sparse layout")
    check("nothing was run", not os.path.exists("hacked") and not os.path.exists("../evict_step.npy"))


def package():
    """The program and the package call each other for their own formats, with equal messages."""
    env = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "python"), "PATH": os.path.dirname(KVFATE) + os.pathsep + os.environ["PATH"]}

    def python(*argv):
        return subprocess.run([sys.executable, "-m", "kvfate", *argv], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env)

    for argv in (["trace", "import", "-h"], ["help", "export"], ["trace", "export", "x", "--form", "csv", "-o", "y"], ["import"], ["trace", "import", "a", "-o"], ["trace", "import", "a", "--overwrite=1"],
                 ["trace", "import", "a", "--prompt", "1.5"], ["trace", "export", "f.kvf", "g.kvf", "-o", "x.npz"], ["trace", "import", "--model", "m", "--no-such"], ["size", "f.kvf"],
                 ["--version"], ["nothing"], ["trace", "export", "--", "-h", "-o"]):
        a, b = python(*argv), said(*argv)
        check("both ways: %s" % argv, (a.returncode, a.stdout, a.stderr) == (b.returncode, b.stdout, b.stderr), a, b)
        check("one line: %s" % argv, (a.returncode == 0) == (not a.stderr) and a.stderr.count("\n") <= 1, a)
    Path("numpy.py").write_text("print('a file of the folder was run')")
    r = said("trace", "export", "f.kvf", "-o", "own.npz")
    check("nothing of the current folder is run", r.returncode == 0 and r.stdout == "own.npz\n", r)
    os.unlink("numpy.py")
    r = subprocess.run([KVFATE, "trace", "import", "x", "-o", "y.kvf"], capture_output=True, text=True, env={**env, "KVFATE_PYTHON": "/no/python"})
    check("no Python", r.returncode == 1 and "/no/python" in r.stderr and "KVFATE_PYTHON" in r.stderr and r.stderr.count("\n") == 1, r)
    with open("alone", "w") as f:
        f.write("#!/bin/sh\nshift 2\nexec %s -S -E -s -c 'import sys; sys.modules[\"numpy\"] = None; sys.path.insert(0, \"%s\"); from kvfate.__main__ import main; main()' \"$@\"\n" % (
            sys.executable, os.path.join(ROOT, "python")))
    os.chmod("alone", 0o755)
    r = subprocess.run([KVFATE, "trace", "import", "x.npz", "-o", "y.kvf"], capture_output=True, text=True, env={**env, "KVFATE_PYTHON": os.path.abspath("alone")})
    check("no NumPy", r.returncode == 1 and "NumPy" in r.stderr and "pip install numpy" in r.stderr and r.stderr.count("\n") == 1, r)


with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as FOLDER:  # faster than a disk
    os.chdir(FOLDER)
    attention([])
    attention(["--method", "h2o", "-B", "24"])
    kept()
    returns()
    fields()
    schema()
    package()
    never()
    mistakes()
    hostile()
    os.chdir("/")
finish()
