#!/usr/bin/env python3
"""usage: test_files.py KVFATE WRITE_KVF SOURCE_ROOT

Tests how the package writes files (kvfate.files), through the functions that users call: figures,
reports, exports, studies. Files are written completely or not at all, by one of several writers,
never through a planted link, with the permissions of the older file, with fsync, and with equal
bytes at any time."""
import contextlib
import json
import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

KVFATE, WRITE_KVF, ROOT = map(os.path.abspath, sys.argv[1:4])
sys.path += [os.path.join(ROOT, "python"), os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "analyze")]
os.environ["PATH"] = os.path.dirname(KVFATE) + os.pathsep + os.environ["PATH"]
from check import check, finish  # noqa: E402
from maker import ALIVE, SNAPSHOT, Column, make  # noqa: E402
import kvfate  # noqa: E402
from kvfate import files  # noqa: E402

warnings.simplefilter("ignore")  # warnings about columns that the trace lacks
L, H, G, T = 2, 2, 4, 30
FORMS = (("x.npz", None), ("x.jsonl", None), ("x", "npy"), ("x", "tsv"))
work = tempfile.TemporaryDirectory(prefix="kvfate-files-")
os.chdir(work.name)
evict = np.full((L, H, T), ALIVE)
evict[:, :, :9] = 20
X = make(WRITE_KVF, os.path.abspath("x.kvf"), [Column("tokens.id", "i32", "run", np.arange(T)), Column("evict_step", "u32", "kv", evict, flags=SNAPSHOT)], (L, H, G, T))


def read(path):
    return Path(path).read_bytes()


def put(path, data, mode=None):
    Path(path).write_bytes(data)
    if mode is not None:
        os.chmod(path, mode)
    return path


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def content(path):
    """Returns the bytes of a file, or of all files in a folder."""
    return {n: read(os.path.join(path, n)) for n in os.listdir(path)} if os.path.isdir(path) else read(path)


@contextlib.contextmanager
def place(name):
    """Makes a new folder, which must contain only the given names at the end."""
    os.mkdir(name)
    before = os.getcwd()
    os.chdir(name)
    yield
    left = [n for n in os.listdir(".") if n.startswith(".") or n.endswith(".part")]
    check(f"{name}: nothing is left", not left, left)
    os.chdir(before)


def failed(call, *words):
    try:
        call()
    except kvfate.Error as e:
        return check("one sentence", all(w in str(e) for w in words) and "\n" not in str(e), repr(e))
    return check("it fails", False, words)


FIGURE = kvfate.figure("eviction", X)
FIGURE.svg, FIGURE.png, FIGURE.pdf  # computed now, because the following tests concern their files
REPORT = kvfate.report(X)
REPORT.html
WRITERS = {"x.svg": FIGURE.save, "x.html": REPORT.save, **{name if form is None else form: lambda p, f=form: kvfate.export(X, p, f, overwrite=True) for name, form in FORMS}}
SINGLE = [name for name in WRITERS if "." in name]

# A full disk: first a limit on file sizes, then a real full disk if it can be mounted.
for name in SINGLE:
    with place("limit-" + name):
        put(name, b"older")
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        was = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, was[1]))
        failed(lambda: WRITERS[name](name), name, "cannot write: File too large")
        resource.setrlimit(resource.RLIMIT_FSIZE, was)
        check(f"{name}: the older file stays", read(name) == b"older")
os.mkdir("tmpfs")
mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "kvfate-test", "tmpfs"], capture_output=True, text=True)
if mounted.returncode == 0:
    try:
        for name in SINGLE:
            path = put(os.path.join("tmpfs", name), b"OLDER")
            failed(lambda: WRITERS[name](path), name, "No space left")
            check(f"{name} on a full disk: the older file stays, and nothing else is there", read(path) == b"OLDER" and os.listdir("tmpfs") == [name], os.listdir("tmpfs"))
            os.remove(path)
    finally:
        subprocess.run(["umount", "tmpfs"], check=True)
else:
    print("a full disk is left out, because no tmpfs can be mounted here:", mounted.stderr.strip())
    check("a tmpfs can be mounted, or not allowed", re.search("permission denied|not permitted|superuser", mounted.stderr), mounted.stderr)
check("OSError is caught as before", issubclass(files.WriteError, OSError))

# Planted links are not followed, and a link at the name itself stays.
for name, write in WRITERS.items():
    with place("planted-" + name):
        victim = put("victim", b"precious")
        for guess in (name + ".part", "." + name + ".part", ".kvfate-" + name):
            os.symlink(victim, guess)
        write(name)
        check(f"{name}: the victim stays", read(victim) == b"precious" and not os.path.islink(name))
        os.symlink("far", "link" + os.path.splitext(name)[1])
        write("link" + os.path.splitext(name)[1])
        check(f"{name}: a link stays a link, and what it names is written",
              os.path.islink("link" + os.path.splitext(name)[1]) and not os.path.islink("far") and content("far") == content(name))
        for guess in (name + ".part", "." + name + ".part", ".kvfate-" + name):
            os.unlink(guess)
with place("planted-lock"):
    os.symlink(put("victim", b"precious"), ".x.svg.lock")
    failed(lambda: FIGURE.save("x.svg"), "x.svg: cannot write")
    check("a planted lock leads nowhere", read("victim") == b"precious" and not os.path.exists("x.svg"))
    os.unlink(".x.svg.lock")

# Permissions.
before = os.umask(0o077)
for name, write in WRITERS.items():
    with place("modes-" + name):
        write(name)
        check(f"{name}: a new file has what the umask leaves", mode_of(name) == (0o600 if name in SINGLE else 0o700), oct(mode_of(name)))
        os.chmod(name, 0o644 if name in SINGLE else 0o755)
        write(name)
        check(f"{name}: an older one keeps its own", mode_of(name) == (0o644 if name in SINGLE else 0o755), oct(mode_of(name)))
os.umask(before)
with place("read-only"):
    put("x.svg", b"older", 0o444)
    if os.geteuid() == 0:  # root may write everywhere: run as another user
        os.chmod(".", 0o777)
        child = os.fork()
        if child == 0:
            os.setgid(65534), os.setuid(65534)
            ok = failed(lambda: FIGURE.save(os.path.abspath("x.svg")), "Permission denied") and read("x.svg") == b"older"
            os._exit(0 if ok else 1)
        check("a file that may not be written is not replaced", os.waitpid(child, 0)[1] == 0)
    else:
        failed(lambda: FIGURE.save("x.svg"), "Permission denied")
    check("its mode stays", mode_of("x.svg") == 0o444 and read("x.svg") == b"older")

# One of several writers.
for name, write in WRITERS.items():
    with place("crowd-" + name):
        write(name)
        older = content(name)
        lock = files._claimed(name, stat.S_ISREG if name in SINGLE else stat.S_ISDIR)
        with lock:
            for _ in range(2):
                failed(lambda: write(name), "another process is writing it")
        check(f"{name}: who was refused changed nothing", content(name) == older)
with place("crowd-processes"):
    code = "import sys; sys.path.append(sys.argv[1]); import kvfate; kvfate.export(sys.argv[2], sys.argv[3], sys.argv[4] or None, overwrite=True)"
    for name, form in FORMS:
        for _ in range(3):
            several = [subprocess.Popen([sys.executable, "-c", code, os.path.join(ROOT, "python"), X, name, form or ""], stderr=subprocess.PIPE, text=True) for _ in range(3)]
            told = [(p.communicate()[1], p.returncode) for p in several]
            check(f"three at once, {name} {form}: one writes, and who does not says so",
                  any(code == 0 for _, code in told) and all(code == 0 or "another process is writing it" in err for err, code in told), told)
            with place("again"):
                kvfate.export(X, name, form)
                check(f"three at once, {name} {form}: it is whole", content(name) == content(os.path.join("..", name)))
            shutil.rmtree("again")
        shutil.rmtree(name) if os.path.isdir(name) else os.unlink(name)

# Files left by a killed process are removed by the next one.
with place("killed"):
    child = os.fork()
    if child == 0:
        with files.replacing("x.svg") as f:
            f.write(b"x" * 100000)
            f.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    left = os.listdir(".")
    put(".x.svg.notours.part", b"of others")
    FIGURE.save("x.svg")
    check("a killed writer left a lock and a part", sorted(n[-5:] for n in left) == [".lock", ".part"], left)
    check("they are gone, and files of others stay", sorted(os.listdir(".")) == [".x.svg.notours.part", "x.svg"], os.listdir("."))
    os.unlink(".x.svg.notours.part")

# fsync runs before the name changes, and on the folder after it.
order = []
sync, rename = os.fsync, os.rename
os.fsync = lambda fd: (order.append("folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file"), sync(fd))[1]
os.rename = lambda a, b: (order.append("rename"), rename(a, b))[1]
with place("synced"):
    FIGURE.save("x.svg")
    check("a file: synced, renamed, and the folder is synced", order == ["file", "rename", "folder"], order)
    order.clear()
    kvfate.export(X, "x", "npy")
    at = order.index("rename") if "rename" in order else 0
    check("a folder: all of its files and itself, renamed, and the folder around it", order[:at].count("file") == len(os.listdir("x")) and "folder" in order[:at]
          and order[at + 1:] == ["folder"], order)
os.fsync, os.rename = sync, rename

# Equal bytes at any time.
clock = time.time, time.localtime
with place("clock"):
    for k, (name, form) in enumerate(2 * FORMS):
        time.localtime = lambda *a, k=k: clock[1](86400 * 365 * 30 + 100000 * k)
        out = "%d-%s" % (k // len(FORMS), form or name)
        kvfate.export(X, out if form else "%d-%s" % (k // len(FORMS), name), form)
        if k >= len(FORMS):
            check(f"{form or name}: equal bytes", content("1-" + (form or name)) == content("0-" + (form or name)))
time.time, time.localtime = clock

# Folders: only files of an export are replaced.
with place("folders"):
    for name in ("npy", "tsv"):
        kvfate.export(X, name, name)
        kvfate.export(X, name, "npy", overwrite=True)
        put(os.path.join(name, "notes.txt"), b"mine")
        whole = content(name)
        failed(lambda: kvfate.export(X, name, name, overwrite=True), "notes.txt", "not replaced")
        check(f"{name}: nothing was removed", content(name) == whole)
    for what, data in (("made by hand", b'{"columns": {"a": "u32 kv"}}'), ("no JSON", b"{"), ("a list", b"[]")):
        os.mkdir("own")
        put("own/about.json", data)
        put("own/a.npy", b"x")
        failed(lambda: kvfate.export(X, "own", "npy", overwrite=True), "own", "not replaced")
        check(f"{what}: it stays", read("own/about.json") == data and read("own/a.npy") == b"x")
        shutil.rmtree("own")
    put("file", b"x")
    failed(lambda: kvfate.export(X, "file", "npy", overwrite=True), "Not a directory")
    os.mkdir("x.npz")
    put("x.npz/keep", b"x")
    failed(lambda: kvfate.export(X, "x.npz", overwrite=True), "Is a directory")
    check("a folder is not replaced by a file", read("x.npz/keep") == b"x")
    failed(lambda: kvfate.export(X, "npy", "npy"), "exists")

# Devices and pipes are written directly.
with place("pipes"):
    got = subprocess.run([sys.executable, "-c", "import sys; sys.path.append(sys.argv[1])\nfrom kvfate import files\nfiles.write('/dev/stdout', b'data')", os.path.join(ROOT, "python")],
                         stdout=subprocess.PIPE).stdout
    check("/dev/stdout", got == b"data", got)

# A file that grows by lines.
with place("lines"):
    lines = files.Lines("s")
    lines.add(b"one")
    failed(lambda: files.Lines("s"), "another process")
    lines.close()
    with open("s", "ab") as f:
        f.write(b"tw")
    lines = files.Lines("s")
    check("what a kill cut off is dropped", lines.lines == [b"one"] and read("s") == b"one\n", lines.lines)
    lines.close()
    os.mkfifo("fifo")
    failed(lambda: files.Lines("fifo"), "it is no file")

# The checksum compared with the program's: TSV, and the comment of NPZ.
with place("checksums"):
    subprocess.run([KVFATE, "eviction", X, "-o", "t.tsv"], check=True, stdout=subprocess.DEVNULL)
    data = read("t.tsv")
    text = b"".join(line for line in data.splitlines(True) if not line.startswith(b"# checksum: ")).decode()
    check("a TSV", files.sealed(text) == data)
    subprocess.run([KVFATE, "eviction", X, "-o", "t.npz"], check=True, stdout=subprocess.DEVNULL)
    data, wrong = read("t.npz"), 0
    want = kvfate.load_table("t.npz")
    start = data.rindex(b'{"name"')
    for bit in range(8 * start, 8 * len(data), 5):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        put("f.npz", flipped)
        try:
            wrong += kvfate.load_table("f.npz").attrs != want.attrs
        except Exception:
            pass
    check("no flipped bit of what an NPZ says of itself is read", wrong == 0, wrong)

# A study does not write through planted links.
with place("study"):
    model = os.environ.get("KVF_TINY_MODEL")
    if model:
        put("t.txt", (b" = A = \n \n " + b"the thing in there is one of it " * 40 + b"\n") * 2)
        put("p.json", json.dumps({"models": [os.path.abspath(model)], "methods": ["full", "window"], "budgets": [8], "threads": 1, "text": [
            {"name": "t", "kind": "documents", "data": ["t.txt"], "docs": 1, "prompt_tokens": 20, "score_tokens": 6}]}).encode())
        os.makedirs("p-study/jobs")
        put("victim", b"precious")
        guesses = [os.path.join("p-study", n) for n in ("study.tsv.part", "index.html.part", "study.parquet.part", "jobs/" + os.path.splitext(os.path.basename(model))[0] + "-t-s0.tsv.part")]
        for guess in guesses:
            os.symlink(os.path.abspath("victim"), guess)
        r = subprocess.run([KVFATE, "study", "p.json"], env={**os.environ, "KVFATE_PYTHON": sys.executable}, capture_output=True, text=True)
        check("a study beside planted links", r.returncode == 0 and read("victim") == b"precious" and not os.path.islink("p-study/study.tsv") and read("p-study/index.html"), r)
finish()
