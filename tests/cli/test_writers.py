#!/usr/bin/env python3
"""Files are written completely or not at all, by one of several writers, never through a planted
link, and never at the cost of an older file. KVFATE_TESTS=long: 160 kills; `tests/endure.py
writers` has 2,000 rounds."""
import contextlib
import os
import random
import resource
import stat
import subprocess
import sys
import time

from harness import Gguf, Suite

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "endure"))
from writers import Crowds  # noqa: E402

s = Suite()
LONG = os.environ.get("KVFATE_TESTS") == "long"
rng = random.Random(16)
MODEL = Gguf(layers=2, heads=4, kv_heads=2).set("llama.context_length", 8192).write(s.path("m.gguf"))
OTHER = Gguf(layers=2, heads=4, kv_heads=2, seed=2).set("llama.context_length", 8192).write(s.path("other.gguf"))


def run_argv(out, *more, n=20, prompt="the thing", model=MODEL):
    return ["run", "-m", model, "-t", "1", "--ignore-eos", "-n", str(n), "--raw", "-p", prompt, "-q", "-o", out, *more]


def read(path):
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as f:
        return f.read()
    return None


def beside(path):
    """Returns the files with names derived from the name of a file."""
    name = os.path.basename(path)
    return sorted(x for x in os.listdir(os.path.dirname(path)) if x != name and x.lstrip(".").startswith(name + "."))


TRACE = s.path("trace.kvf")
s.accepted("a trace", run_argv(TRACE, "--method", "window", "--budget", "16", n=60))
assert read(TRACE), "no trace, no test"
# Commands that write a file; the name comes last.
PROMPT = ["-m", MODEL, "--raw", "-p", "the thing"]
WRITERS = {f"x.{ext}": ["eviction", TRACE, "-o"] for ext in ("tsv", "csv", "json", "npz", "png", "svg", "pdf")}
WRITERS |= {"x.kvf": ["run", *PROMPT, "-t", "1", "-n", "20", "--ignore-eos", "-q", "--overwrite", "-o"], "plan.kvf": ["trace", "plan", TRACE, "--overwrite", "-o"],
            "saliency.kvf": ["ablate", "--as", "saliency", *PROMPT, "--overwrite", "-o"], "x.html": ["report", TRACE, "-o"], "x.npy": ["generate", "--logits", *PROMPT, "-o"]}


def refusals():
    out = s.path("r.kvf")
    s.accepted("a first run", run_argv(out))
    first = read(out)
    s.refused("a second one", run_argv(out), 1, out, "is there already", "--overwrite")
    s.refused("a second one is refused before the model is looked for", ["run", "-m", "none.gguf", "-p", "the thing", "-o", out], 1, out, "is there already")
    s.check("a second one leaves the first", read(out) == first and not beside(out), beside(out))
    s.refused("no name", run_argv("")[:-2], 2, "no -o OUT.kvf")
    s.accepted("overwritten", run_argv(out, "--overwrite", "--method", "window", "--budget", "8"))
    s.check("overwritten", read(out) not in (None, first) and not beside(out), beside(out))
    for options in (["--resume"], ["--resume", "--overwrite"]):
        s.refused("no run to resume", run_argv(s.path("none.kvf"), *options), 1, "neither", "none.kvf")
        s.refused("no run to resume beside a closed one", run_argv(out, *options), 1, "r.kvf is complete", "no run to resume")
    plan = s.path("r-plan.kvf")
    s.accepted("a plan", ["trace", "plan", TRACE, "-o", plan])
    s.refused("a second plan", ["trace", "plan", TRACE, "-o", plan], 1, plan, "--overwrite")
    s.accepted("a plan overwritten", ["trace", "plan", TRACE, "-o", plan, "--overwrite"])
    argv = ["ablate", "--as", "saliency", "-m", MODEL, "--raw", "-p", "the thing", "-o", s.path("r-saliency.kvf")]
    s.accepted("saliency", argv)
    s.refused("a second saliency", argv, 1, "r-saliency.kvf", "--overwrite")
    s.accepted("saliency overwritten", [*argv, "--overwrite"])


def planted():
    """Links at all guessable names are not followed; a link at the name itself stays."""
    for name, argv in WRITERS.items():
        out, victim, far = s.path("planted-" + name), s.file("victim", b"precious"), s.path("far-" + name)
        for guess in (out + ".part", os.path.join(os.path.dirname(out), "." + os.path.basename(out) + ".part")):
            os.symlink(victim, guess)
        s.accepted(f"{name} beside planted links", [*argv, out])
        s.check(f"{name}: the victim is untouched", read(victim) == b"precious" and stat.S_ISREG(os.lstat(out).st_mode) and read(out))
        link = s.path("link-" + name)
        os.symlink(far, link)
        s.accepted(f"{name} through a link", [*argv, link])
        s.check(f"{name}: the link stays and its file is written", os.path.islink(link) and read(far) == read(out), beside(link), beside(far))
        if name.endswith(".kvf"):
            os.symlink(victim, s.path("own-" + name + ".unfinished"))
            s.accepted(f"{name} where a link stands for the unfinished one", [*argv, s.path("own-" + name)])
            s.check(f"{name}: that victim is untouched", read(victim) == b"precious")


def full_disks():
    """A failed writer keeps the older file, reports it in one line and leaves only an unfinished
    trace."""
    for name, argv in WRITERS.items():
        out = s.file("full-" + name, b"older")
        size = 300
        r = s.run([*argv, out], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))
        left = [x for x in beside(out) if not x.endswith(".unfinished")]
        s.check(f"{name} on a full disk", r.returncode == 1 and r.stderr.count(b"\n") == 1 and out.encode() in r.stderr, r.returncode, r.stderr)
        s.check(f"{name} on a full disk: the older file stays", read(out) == b"older" and not left, left)


def devices():
    """Devices are written directly. The test uses a private device node, so that a fault does not
    damage a shared one."""
    null = s.path("null")
    try:
        os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        open(null, "wb").close()
    except PermissionError:
        print("skipped: no device can be made here")
        null = None
    for name, argv in WRITERS.items():
        if null and name in ("x.npy", "x.kvf"):  # other formats follow from the name, and a trace must be a file
            (s.accepted if name == "x.npy" else s.survives)(f"{name} onto a device", [*argv, null])
            s.check(f"{name}: it stays a device", stat.S_ISCHR(os.lstat(null).st_mode))
    with open(s.file("log", b"before\n"), "ab") as log:
        s.run(["generate", "--logits", "-m", MODEL, "--raw", "-p", "the thing", "-o", "/dev/stdout"], stdout=log)
    s.check("standard output by its name is added to", read(s.path("log")).startswith(b"before\n\x93NUMPY"), read(s.path("log"))[:40])


def kills():
    """kill -9 of a run over an older trace, at any time."""
    out = s.path("old.kvf")
    s.accepted("an older trace", run_argv(out))
    older, lasted, kept, begun = read(out), 0, 0, 0
    for _ in range(160 if LONG else 12):
        p = subprocess.Popen([s.exe, *run_argv(out, "--overwrite", "--probes", "full", n=6000)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.random() * 0.4)
        p.kill()
        lasted += p.wait() == 0
        kept += read(out) == older
        begun += os.path.exists(out + ".unfinished")
    print(f"{kept} of {160 if LONG else 12} kills kept the older trace, {begun} left an unfinished one")
    s.check("every kill keeps the older trace", kept == (160 if LONG else 12) and not lasted, kept, lasted)
    s.accepted("then it is overwritten", run_argv(out, "--overwrite", n=30))
    s.check("nothing is left beside it", read(out) != older and not beside(out), beside(out))


def resumed():
    """A killed and resumed run has the bytes of an uninterrupted one."""
    whole, out = s.path("whole.kvf"), s.path("resumed.kvf")
    options = ("--temp", "1", "--method", "h2o", "--budget", "64", "--probes", "full")
    s.accepted("the complete run", run_argv(whole, *options, n=3000))
    for size in (1, 40000, 120000, 200000) if LONG else (120000,):
        p = subprocess.Popen([s.exe, *run_argv(out, *options, n=3000)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(6000):
            if p.poll() is not None or (os.path.exists(out + ".unfinished") and os.path.getsize(out + ".unfinished") >= size):
                break
            time.sleep(0.005)
        p.kill()
        p.wait()
        unfinished = read(out + ".unfinished")
        if unfinished is None:
            print("skipped: the run ended before the kill")
            os.unlink(out)
            continue
        s.refused(f"{size}: not begun anew unasked", run_argv(out, *options, n=3000), 1, "--resume", "--overwrite")
        r = s.survives(f"{size}: opens by its name", ["trace", "info", out], (3,))
        s.check(f"{size}: and says what it is", b"resumed.kvf.unfinished" in r.stdout and b"not closed" in r.stdout, r.stdout[:200])
        for what, argv in (("run.temperature", run_argv(out, *options, "--resume", "--temp", "0.5", n=3000)), ("method.budget", run_argv(out, *options, "--budget", "65", "--resume", n=3000)),
                           ("model.hash", run_argv(out, *options, "--resume", n=3000, model=OTHER)), ("", run_argv(out, *options, "--resume", n=3000, prompt="the thong"))):
            s.refused(f"{size}: another {what or 'prompt'}", argv, 2, "another run", what)
        s.check(f"{size}: refusals change nothing", read(out + ".unfinished") == unfinished)
        closed = read(TRACE)
        with open(out, "wb") as f:
            f.write(closed)
        s.refused(f"{size}: a closed one is not replaced unasked", run_argv(out, *options, "--resume", n=3000), 1, out, "is there already", "--resume --overwrite")
        s.check(f"{size}: both stay", read(out) == closed and read(out + ".unfinished") == unfinished)
        both = size != 1
        if not both:
            os.unlink(out)
        s.accepted(f"{size}: resumed", run_argv(out, *options, "--resume", *["--overwrite"] * both, n=3000))
        s.check(f"{size}: the same bytes", read(out) == read(whole) and not beside(out), beside(out))
        os.unlink(out)


def race(rounds):
    """Two to eight writers of one name: the file is complete, and each writer that did not write it
    reports so."""
    crowds = Crowds(s.exe, s.path("race"), {name: WRITERS[name] for name in ("x.tsv", "x.npz", "x.kvf")})
    told = {"won": 0, "refused": 0}
    for i in range(rounds):
        won, refused, wrong = crowds.round(i)
        told["won"] += won
        told["refused"] += refused
        if wrong:
            s.check(wrong, False)
    print(f"{rounds} rounds: {told['won']} writers won, {told['refused']} were refused")
    s.check("of several traces of one name exactly one is written, and no table is torn", told["won"] >= rounds)


refusals()
planted()
full_disks()
devices()
resumed()
kills()
race(21)
s.finish()
