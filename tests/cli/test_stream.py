#!/usr/bin/env python3
"""Traces through pipes: `kvfate run -o -`, and `-` as the trace that a command reads."""
import os
import subprocess

from harness import Suite

s = Suite()
RUN = ["run", "-m", s.model(6), "--raw", "-p", "the of and to in", "-n", "12", "--ignore-eos", "--method", "h2o", "-B", "8", "-q"]
os.environ["TMPDIR"] = s.path("tmp")
os.mkdir(s.path("tmp"))
s.accepted("a file", [*RUN, "-o", s.path("x.kvf")])
with open(s.path("x.kvf"), "rb") as f:
    want = f.read()


def piped(argv, given=b""):
    return subprocess.run([s.exe, *argv], input=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)


r = piped([*RUN, "-o", "-"])
s.check("the standard output has the bytes of the file", r.returncode == 0 and r.stdout == want, r.stderr)
s.check("nothing is left", not os.listdir(s.path("tmp")), os.listdir(s.path("tmp")))
for argv in (["eviction"], ["survival"], ["trace", "verify", "--full"], ["tokens"]):
    a, b = piped([*argv, s.path("x.kvf"), *(["-o", "-"] if argv[0] in ("eviction", "survival", "tokens") else [])]), piped([*argv, "-", *(["-o", "-"] if argv[0] in ("eviction", "survival", "tokens") else [])], want)
    s.check(f"{argv[0]} of the standard input", a.returncode == b.returncode == 0 and a.stdout.replace(s.path("x.kvf").encode(), b"") == b.stdout.replace(b"/dev/fd/3", b""), a, b)
for what, argv, given, code, word in (
        ("no trace", ["trace", "info", "-"], b"no trace", 1, b"not a kvfate trace"), ("nothing", ["trace", "info", "-"], b"", 1, b"not a kvfate trace"),
        ("two", ["trace", "diff", "-", "-"], want, 2, b"one trace, not two"), ("half a trace", ["trace", "verify", "-"], want[:len(want) // 2], None, b""),
        ("--json", [*RUN, "--json", "-o", "-"], b"", 2, b"exclude each other"), ("--resume", [*RUN, "--resume", "-o", "-"], b"", 2, b"exclude each other")):
    r = piped(argv, given)
    s.check(what, (r.returncode == code if code else r.returncode in (1, 3)) and word in r.stderr and not os.listdir(s.path("tmp")), r)
if os.path.exists("/dev/full"):
    with open("/dev/full", "wb") as full:
        r = subprocess.run([s.exe, *RUN, "-o", "-"], stdout=full, stderr=subprocess.PIPE, timeout=60)
    s.check("a full disk", r.returncode == 1 and b"standard output" in r.stderr and not os.listdir(s.path("tmp")), r)
s.finish()
