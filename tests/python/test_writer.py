#!/usr/bin/env python3
"""usage: test_writer.py KVFATE LIBKVFTRACE SOURCE_ROOT

Tests kvfate.Writer: the package reads its files back equal, and `kvfate trace verify --full` accepts
them. Also tests the files of a killed or failed program, and all rejections."""
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile

import numpy as np

KVFATE, LIBRARY, ROOT = map(os.path.abspath, sys.argv[1:4])
if os.environ.get("LD_LIBRARY_PATH") != os.path.dirname(LIBRARY):  # it is read at program start
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "LD_LIBRARY_PATH": os.path.dirname(LIBRARY)})
sys.path += [os.path.join(ROOT, "python"), os.path.join(ROOT, "tests")]
from check import check, finish  # noqa: E402
import kvfate  # noqa: E402

COLUMNS = {"tokens.id": "i32 run", "nll": "f32 run: nat", "evict_step": "u32 kv snapshot: step", "entropy": "f32 query step: nat",
           "last_selected.top64": "u16 query age snapshot", "seen": "u32 kv snapshot intervals", "x-lab.u64": "u64 kv", "x-lab.f64": "f64 run step"}
HEADS = [(2, 4), (1, 3)]


def verified(path, code=0):
    r = subprocess.run([KVFATE, "trace", "verify", "--full", path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    check("verify " + os.path.basename(path), r.returncode == code, r)


def equal(name, got, want):
    got, want = np.asarray(got), np.asarray(want)
    check(name, got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes(), got, want)


def lists(r, T):
    row = []
    for i in range(T):
        one, at = [], i
        while at < T and r.random() < 0.5:
            first = r.randint(at, T - 1)
            one.append((first, r.randint(first, T - 1)))
            at = one[-1][1] + 2
        row.append(one)
    return row


def trip(path, seed):
    """Writes a random trace in pieces, with one to three commits, and reads it back equal."""
    r, rng = random.Random(seed), np.random.default_rng(seed)
    T = r.randint(1, 50)
    ids = rng.integers(0, 2**31, T)
    stream = {("tokens.id", 0): ids[None].astype("<i4"), ("nll", 0): rng.random((1, T)).astype("<f4"), ("x-lab.f64", 0): rng.random((1, T))}
    stream |= {("entropy", l): rng.random((g, T)).astype("<f4") for l, (_, g) in enumerate(HEADS)}
    stream |= {("x-lab.u64", l): rng.integers(0, 2**64, (h, T), "u8") for l, (h, _) in enumerate(HEADS)}
    texts = [r.choice(["a", "", "é", b"\xff", "\n"]) for _ in range(T)]
    k = rng.random((3, 2)).astype(np.float16)
    ends = sorted({T, *(r.randint(1, T) for _ in range(r.randint(0, 2)))})
    with kvfate.Writer(path, HEADS, COLUMNS, {"seed": seed, "é": [1]}, ids[:3], existing="overwrite", plain=r.random() < 0.3) as w:
        for a, b in zip([0] + ends, ends):
            for (name, layer), values in stream.items():
                part = values[:, a:b]
                w.write(name, part[0] if part.shape[0] == 1 and w._specs[name][1].space == 0 else part, layer=layer, t0=a)
            w.texts(texts[a:b], a)
            for layer, (h, g) in enumerate(HEADS):
                evict = np.minimum(rng.integers(1, 9, (h, b)) + np.arange(b), 2**32 - 1)
                age = np.minimum(rng.integers(0, 5, (g, b)), b - 1 - np.arange(b))
                evict = np.where(evict > b, 2**32 - 1, evict)
                seen = [lists(r, b) for _ in range(h)]
                w.write("evict_step", evict, layer=layer)
                w.write("last_selected.top64", age, layer=layer)
                w.intervals("seen", seen, layer=layer)
                stream["evict_step", layer], stream["last_selected.top64", layer], stream["seen", layer] = evict.astype("<u4"), age.astype("<u2"), seen
            if b < T or r.random() < 0.5:
                w.commit()
            for layer, (h, g) in enumerate(HEADS):  # a later commit has other snapshots
                for name in ("evict_step", "last_selected.top64", "seen"):
                    if b < T:
                        del stream[name, layer]
        w.blob("k", k, layer=1, t0=2, packed=True)
        w.note("result", {"text": "é"})
    verified(path)
    with kvfate.open(path) as t:
        check("meta", t.meta == {"seed": seed, "é": [1]} and t.notes == {"result": {"text": "é"}} and t.steps == T and t.closed)
        check("texts", t.texts == [x.encode() if isinstance(x, str) else x for x in texts])
        equal("blob", t.blobs[0].data, k)
        for (name, layer), values in stream.items():
            c = t[name]
            if name == "seen":
                check("seen", [[[tuple(p) for p in v.tolist()] for v in head] for head in c[layer]] == values)
            else:
                equal(f"{name} of layer {layer}", c[:][None] if c.space == "run" else c[layer], values)
        check("units", t["nll"].unit == "nat" and t.evict_step.unit == "step")
        t.verify()


def killed(folder):
    """SIGKILL after a commit and further data, and an exception: the data of the last commit are
    present."""
    path = os.path.join(folder, "killed.kvf")
    program = "import os, signal, sys\nimport numpy as np\nsys.path.insert(0, sys.argv[1])\nimport kvfate\n" \
        "w = kvfate.Writer(sys.argv[2], [(1, 1)], {'tokens.id': 'i32 run', 'evict_step': 'u32 kv snapshot'})\n" \
        "w.write('tokens.id', range(5))\nw.write('evict_step', [[9] * 5])\nw.commit(5)\nw.write('tokens.id', range(5, 9), t0=5)\n" \
        "os.kill(os.getpid(), signal.SIGKILL)"
    r = subprocess.run([sys.executable, "-c", program, os.path.join(ROOT, "python"), path], capture_output=True)
    check("killed", r.returncode == -signal.SIGKILL, r)
    t = kvfate.open(path)
    check("five steps are left", (t.steps, t.closed, t["tokens.id"][:].tolist(), t.evict_step[0, 0].tolist()) == (5, False, [0, 1, 2, 3, 4], [9] * 5))
    check("at the other name", t.path == path + ".unfinished" and not os.path.exists(path))
    with kvfate.Writer(path, [(1, 1)], {"tokens.id": "i32 run", "evict_step": "u32 kv snapshot"}, existing="resume") as w:
        w.write("tokens.id", range(5))
        w.write("evict_step", [[9] * 5])
        w.commit(5)
        w.write("tokens.id", range(5, 9), t0=5)
        w.write("evict_step", [[9] * 9])
    check("gone on with", kvfate.open(path).steps == 9 and not os.path.exists(path + ".unfinished"))
    path = os.path.join(folder, "failed.kvf")
    try:
        with kvfate.Writer(path, [(1, 1)], {"tokens.id": "i32 run"}) as w:
            w.write("tokens.id", range(5))
            w.commit()
            raise KeyError("mine")
    except KeyError:
        pass
    check("a program that fails", kvfate.open(path).steps == 5 and not kvfate.open(path).closed)
    for name, options in (("early.kvf", {}), ("whole.kvf", {"only_whole": True})):
        for again in range(2):  # the files of the first one must not block the second one
            try:
                with kvfate.Writer(os.path.join(folder, name), [(1, 1)], {"tokens.id": "i32 run"}, **options) as w:
                    w.write("tokens.id", range(5))
                    if options:
                        w.commit()
                    raise KeyError("mine")
            except KeyError:
                pass
            check("%s could not be recovered" % name, not [n for n in os.listdir(folder) if name in n], os.listdir(folder))


def beside(folder):
    """The library is found next to the program on PATH, in a build and in an installation."""
    program = "import os, sys\nsys.path.insert(0, sys.argv[1])\nimport kvfate\nwith kvfate.Writer(sys.argv[2], [(1, 1)], {'tokens.id': 'i32 run'}) as w: w.write('tokens.id', [5])"
    own = os.path.join(folder, "installed", "bin")
    os.makedirs(own)
    os.makedirs(os.path.join(folder, "installed", "lib"))
    with open(os.path.join(own, "kvfate"), "w") as f:
        f.write("#!/bin/sh\n")
    os.chmod(os.path.join(own, "kvfate"), 0o755)
    shutil.copy(os.path.realpath(LIBRARY), os.path.join(folder, "installed", "lib", "libkvftrace.so.0"))
    for k, path in enumerate((own, os.path.dirname(KVFATE))):
        out = os.path.join(folder, "beside-%d.kvf" % k)
        r = subprocess.run([sys.executable, "-c", program, os.path.join(ROOT, "python"), out], capture_output=True, text=True, env={"PATH": path + ":/usr/bin:/bin"})
        check("a library beside %s" % path, r.returncode == 0 and kvfate.open(out).steps == 1, r.stderr)


def refusals(folder):
    def refused(name, call, *words):
        try:
            got = call()
        except kvfate.TraceError as e:
            return check(name, all(w in str(e) for w in words) and "\n" not in str(e), repr(e))
        return check(name, False, got)

    path = os.path.join(folder, "r.kvf")
    with kvfate.Writer(path, HEADS, COLUMNS) as w:
        refused("no such column", lambda: w.write("none", [1]), "no column none", "tokens.id")
        refused("another shape", lambda: w.write("evict_step", [1, 2]), "evict_step", "[heads][n]", "1 dimensions")
        refused("too many heads", lambda: w.write("evict_step", np.zeros((3, 2), int)), "evict_step has 2 heads in layer 0", "0 to 2")
        refused("no such layer", lambda: w.write("evict_step", np.zeros((1, 2), int), layer=2), "0 heads in layer 2")
        refused("a negative step", lambda: w.write("evict_step", [[-1], [0]]), "does not fit into uint32")
        refused("a large age", lambda: w.write("last_selected.top64", [[65536]] * 4), "does not fit into uint16")
        refused("a fraction", lambda: w.write("tokens.id", [0.5]), "does not fit into int32")
        refused("infinity", lambda: w.write("tokens.id", [np.inf]), "does not fit into int32")
        refused("no number", lambda: w.write("tokens.id", [np.nan]), "does not fit into int32")
        refused("texts", lambda: w.write("tokens.id", ["7"]), "tokens.id", "no numbers")
        refused("too large for single precision", lambda: w.write("entropy", [[1e39]] * 4), "entropy", "does not fit into float32")
        refused("an interval before 0", lambda: w.intervals("seen", [[[(-1, 2)]]]), "seen", "does not fit into uint32")
        refused("an interval of fractions", lambda: w.intervals("seen", [[[(0, 1.5)]]]), "seen", "does not fit into uint32")
        refused("an index of 33 bits", lambda: w.write("tokens.id", [1], t0=2**32), "index 4294967296", "16777216")
        refused("texts at an index of 33 bits", lambda: w.texts(["a"], t0=2**32), "index 4294967296")
        refused("an index below 0", lambda: w.write("tokens.id", [1], t0=-1), "index -1")
        refused("a blob of layer 65536", lambda: w.blob("k", np.zeros(2), layer=65536), "layer 65536", "65535")
        refused("steps of 33 bits", lambda: w.commit(2**32), "steps 4294967296")
        refused("intervals that touch", lambda: w.intervals("seen", [[[(1, 2), (3, 4)]]]), "seen", "invalid argument")
        refused("a blob of complex numbers", lambda: w.blob("k", np.zeros(2, complex)), "complex128")
        refused("a note of bytes in a list", lambda: w.note("k", [b"x"]), "r.kvf: the note k", "JSON")
        refused("a blob's name", lambda: w.blob("keys", np.zeros(2)), "blob keys")
        w.write("tokens.id", [1, 2])
        w.write("evict_step", np.full((2, 2), 2**32 - 1))
    closed_or_odd(folder, path, refused)


def closed_or_odd(folder, path, refused):
    def new(columns=COLUMNS, **more):
        return kvfate.Writer(os.path.join(folder, "new.kvf"), HEADS, columns, existing="overwrite", **more)

    w = new()
    w.write("evict_step", np.full((2, 2), 2**32 - 1))
    w.commit()
    w.write("tokens.id", [1, 2])
    refused("a snapshot that is not written again", w.commit, "column evict_step of layer 0", "before each")
    refused("nor at the end", w.close, "column evict_step of layer 0", "before each")
    w.abandon()
    refused("a closed writer", lambda: w.write("tokens.id", [1], t0=2), "is closed")
    refused("a name that is taken", lambda: kvfate.Writer(path, HEADS, COLUMNS), "r.kvf", 'existing="overwrite" replaces it')
    with open(os.path.join(folder, "old.kvf.unfinished"), "w"):
        refused("one that is unfinished", lambda: kvfate.Writer(os.path.join(folder, "old.kvf"), HEADS, COLUMNS), 'existing="resume" continues', 'existing="overwrite" starts')
    refused("a name of one's own", lambda: new({"surprise": "f32 kv"}), "surprise", "begin with x-")
    refused("65536 heads", lambda: kvfate.Writer(os.path.join(folder, "new.kvf"), [(65536, 65536)], COLUMNS), "heads", "uint16")
    refused("ids of 33 bits", lambda: new(prompt=[2**32 + 7]), "prompt", "int32")
    refused("no type", lambda: new({"x-a": "kv"}), "x-a", "no type")
    refused("a word", lambda: new({"x-a": "f32 heads"}), "'heads'")
    refused("a long name", lambda: new({"x-" + "a" * 60: "f32"}), "longer than 47")
    refused("a header of sets", lambda: new(meta={"a": {1}}), "new.kvf: meta", "JSON")
    refused("a header that has no end", lambda: new(meta={"a": float("inf")}), "new.kvf: meta", "JSON")
    refused("existing", lambda: kvfate.Writer(path, HEADS, COLUMNS, existing="maybe"), "maybe")
    refused("no folder", lambda: kvfate.Writer(os.path.join(folder, "none", "x.kvf"), HEADS, COLUMNS), "x.kvf")
    program = "import sys\nsys.path.insert(0, sys.argv[1])\nimport kvfate\ntry: kvfate.Writer('x', [], {})\nexcept kvfate.Error as e: print(e)"
    said = subprocess.run([sys.executable, "-c", program, os.path.join(ROOT, "python")], capture_output=True, text=True, env={"LD_LIBRARY_PATH": ""})
    check("no library", "libkvftrace" in said.stdout and said.stdout.count("\n") == 1, said)


def main():
    with tempfile.TemporaryDirectory(prefix="kvfate-writer-") as folder:
        for seed in range(40):
            trip(os.path.join(folder, "t.kvf"), seed)
        killed(folder)
        beside(folder)
        refusals(folder)
    finish()


if __name__ == "__main__":
    main()
