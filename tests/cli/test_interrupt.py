#!/usr/bin/env python3
"""Interrupted runs: after SIGINT or SIGTERM a run closes its trace, after SIGKILL the trace is
readable. An interrupted write of a table leaves no file."""
import contextlib
import glob
import itertools
import json
import os
import signal
import subprocess
import time

from harness import Gguf, Suite

s = Suite()
LONG = os.environ.get("KVFATE_TESTS") == "long"
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):  # nohup ignores the first one, which children would inherit
    signal.signal(number, signal.SIG_DFL)
N, BLOCK = 6000, 1024  # number of tokens; steps between the recorder's commits
MODEL = Gguf(layers=2, heads=4, kv_heads=2).set("llama.context_length", 8192).write(s.path("long.gguf"))


def start(out, n, *more):
    argv = [s.exe, "run", "--overwrite", "-m", MODEL, "-t", "2", "--ignore-eos", "-n", str(n), "-o", out, "--probes", "full", "-q", *more]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for(out, size, process, suffix=".unfinished"):
    """Waits until the unfinished file of the trace has this many bytes."""
    part = out + suffix
    for _ in range(3000):
        if process.poll() is not None or (os.path.exists(part) and os.path.getsize(part) >= size):
            return
        time.sleep(0.01)


def info(path):
    r = s.run(["trace", "info", "--json", path])
    found = json.loads(r.stdout or b"{}")
    s.check("info reads it", r.returncode == (0 if found.get("clean") else 3), r.returncode, r.stderr)
    return found


def stopped_by(number):
    out = s.path(f"{number.name}.kvf")
    p = start(out, N, "--raw", "-p", "the thing", "--temp", "1")
    wait_for(out, 4096, p)
    p.send_signal(number)
    _, err = p.communicate(timeout=60)
    if p.returncode == 0:
        print(f"skipped: the run ended before {number.name}")
        return
    s.check(number.name, p.returncode == 128 + number and err.count(b"\n") == 1 and b"interrupted after" in err, p.returncode, err)
    r = s.run(["trace", "verify", "--full", out])
    s.check(f"{number.name}: the trace is closed", r.returncode == 0 and b"closed" in r.stdout, r.returncode, r.stdout, r.stderr)
    found = info(out)
    s.check(f"{number.name}: as many steps as it said", f"after {found['steps']} tokens".encode() in err, err, found["steps"])
    r = s.run(["tokens", out, "-o", "-"])
    s.check(f"{number.name}: analysis", r.returncode == 0, r.stderr)
    s.refused(f"{number.name}: --resume", ["run", "--resume", "-m", MODEL, "--ignore-eos", "-n", str(N), "-o", out, "--probes", "full", "--raw", "-p", "the thing", "--temp", "1"],
              1, "cannot be resumed", f"interrupted after {found['steps']} tokens", "--overwrite")


def killed(after):
    """Epochs are committed at 1, 2, 4, ... blocks: committed data must be present."""
    out = s.path(f"killed{after}.kvf")
    p = start(out, N, "--raw", "-p", "the thing", "--temp", "1")
    wait_for(out, after, p)
    p.kill()
    p.communicate()
    if p.returncode == 0:
        print("skipped: the run ended before the kill")
        return
    size = os.path.getsize(out + ".unfinished")
    s.check("an unfinished trace does not stand at its name", not os.path.exists(out))
    r = s.run(["trace", "verify", "--full", out])
    s.check(f"killed at {size}: every whole record is good", r.returncode in (0, 3) and not (b"damaged" in r.stderr or b"checksum" in r.stderr), r.stdout, r.stderr)
    if size < after:
        print("skipped: the machine was too slow")
        return
    found = info(out)
    print(f"killed at {size} bytes: {found['steps']} steps of epoch {found['epoch']}")
    s.check(f"killed at {size}: not closed, said so", found["clean"] is False)
    r = s.run(["tokens", out, "-o", "-"])
    told = b"not closed" in r.stderr
    rows = [line for line in r.stdout.decode("utf-8", "replace").splitlines() if not line.startswith("#")]
    if found["epoch"] >= 1:
        s.check(f"killed at {size}: {found['steps']} steps are readable", r.returncode == 3 and told and len(rows) == found["steps"] + 1, r.stderr, len(rows))
        tail = os.path.exists(out + ".tail")
        s.check("steps of a whole epoch, or of a tail", found["steps"] > 0 and (tail or found["steps"] % BLOCK == 0), found["steps"])
    else:
        s.check("nothing committed yet: refused in one line", r.returncode in (1, 3) and r.stderr.count(b"\n") >= 1, r.stderr)


def killed_early():
    """The first tail is written after one second, for any number of tokens. It is readable, and
    removed when a run ends."""
    out = s.path("early.kvf")
    p = start(out, N, "--raw", "-p", "the thing", "--temp", "1", "--probes", "full")
    wait_for(out, 1, p, ".tail")
    p.kill()
    p.communicate()
    if not os.path.exists(out + ".tail"):
        print("skipped: the run ended before the kill")
        return
    found = info(out)
    print(f"killed after its first tail: {found['steps']} steps")
    s.check("tail: steps, not closed", found["steps"] > 0 and found["clean"] is False, found)
    r = s.run(["eviction", out, "-o", "-"])
    s.check("tail: analysis", r.returncode == 3, r.returncode, r.stderr)
    r = s.run(["trace", "verify", "--full", out])
    s.check("tail: verified", r.returncode == 3 and b"its tail: " in r.stdout and b"closed" in r.stdout, r)
    with open(out + ".tail", "r+b") as f:
        f.seek(os.path.getsize(out + ".tail") // 2)
        byte = f.read(1)
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([byte[0] ^ 255]))
    r = s.run(["trace", "verify", "--full", out])
    s.check("tail: damage is told", r.returncode == 1 and b".tail: " in r.stderr, r)
    with open(out + ".tail", "r+b") as f:
        f.seek(os.path.getsize(out + ".tail") // 2)
        f.write(byte)
    r = s.run(["tokens", out, "-o", "-"])
    rows = [line for line in r.stdout.decode("utf-8", "replace").splitlines() if not line.startswith("#")]
    s.check("tail: tokens", r.returncode == 3 and len(rows) == found["steps"] + 1, r.stderr, len(rows))
    s.accepted("the same place again", ["run", "--overwrite", "-m", MODEL, "-n", "4", "-q", "--raw", "-p", "the thing", "-o", out])
    s.check("tail: removed", not os.path.exists(out + ".tail"))


def during_the_prompt():
    """Stops between chunks of the prompt, which are processed one by one here."""
    out = s.path("prompt.kvf")
    text = s.file("prompt.txt", b"\xff" * 8000)
    p = start(out, 4, "--raw", "-f", text, "--chunk", "1", "--json")
    wait_for(out, 200, p)
    p.send_signal(signal.SIGINT)
    said, err = p.communicate(timeout=60)
    if p.returncode == 0:
        print("skipped: the run ended before SIGINT")
        return
    s.check("SIGINT in the prompt", p.returncode == 130 and b"interrupted after" in err and err.count(b"\n") == 1, p.returncode, err)
    s.check("SIGINT in the prompt: the trace is closed", s.run(["trace", "verify", "--full", out]).returncode == 0)
    steps, took = info(out)["steps"], json.loads(said)
    s.check("SIGINT in the prompt: steps", f"after {steps} tokens".encode() in err, err)
    s.check("SIGINT in the prompt: speed", abs(took["prefill_tokens_per_second"] * took["prefill_seconds"] - steps) < 1e-6 * steps, took)


def parts(out):
    """Returns the sizes of the temporary files of out."""
    sizes = []
    for path in glob.glob(os.path.join(os.path.dirname(out), f".{os.path.basename(out)}.*.part")):
        with contextlib.suppress(FileNotFoundError):
            sizes.append(os.path.getsize(path))
    return sizes


def table_stopped_by(trace, number, name, was):
    """Interrupts while the temporary file grows; was: the earlier content of X, or None. Returns
    False if the write finished first: try again."""
    out = s.path(name)
    if was is not None:
        s.file(name, was)
    p = subprocess.Popen([s.exe, "eviction", trace, "-o", out], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while p.poll() is None and not any(parts(out)):
        time.sleep(0.0005)
    p.send_signal(number)
    _, err = p.communicate(timeout=60)
    if p.returncode == 0:
        return False
    s.check(f"{name}, {number.name}", p.returncode == -number and not err, p.returncode, err)
    left = [x for x in os.listdir(os.path.dirname(out)) if x.lstrip(".").startswith(name)]
    s.check(f"{name}, {number.name}: leaves no part", left == ([name] if was is not None else []), left)
    if was is not None:
        with open(out, "rb") as f:
            s.check(f"{name}, {number.name}: the old table stands", f.read() == was)
        os.unlink(out)
    return True


def tables():
    model = Gguf(layers=24, heads=8, kv_heads=8).write(s.path("wide.gguf"))
    trace = s.path("wide.kvf")
    s.run(["run", "--overwrite", "-m", model, "-t", "2", "--ignore-eos", "-n", "1500", "--raw", "-p", "the thing", "-o", trace, "-q"])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        for name, was in itertools.product(("a.tsv", "b.json", "c.npz"), (None, b"old")) if LONG else (("a.tsv", b"old"), ("b.json", None), ("c.npz", b"old")):
            s.check(f"{name}: stopped while it was written", any(table_stopped_by(trace, number, name, was) for _ in range(10)))
    out = s.path("d.tsv")
    p = subprocess.Popen([s.exe, "eviction", trace, "-o", out], stdout=subprocess.DEVNULL, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    while p.poll() is None and not parts(out):
        time.sleep(0.0005)
    p.send_signal(signal.SIGINT)
    s.check("an ignored signal stays so", p.wait(timeout=60) == 0 and os.path.exists(out), p.returncode)


stopped_by(signal.SIGINT)
stopped_by(signal.SIGTERM)
tables()
killed_early()
during_the_prompt()
for after in (1, 25000, 50000, 100000, 150000, 200000, 250000, 300000, 350000) if LONG else (1, 50000, 300000):
    killed(after)
s.finish()
