#!/usr/bin/env python3
"""Rules for every command in `kvfate list all`: an empty -o, traces without steps, and control
characters in file names."""
import json
import os
import subprocess
import sys

from harness import Suite
from hostile_traces import G, H, L, T, honest, make, made

s = Suite()
TOLD = json.loads(subprocess.check_output([s.exe, "list", "all", "--json"]))
COMMANDS = {c["name"]: c for c in TOLD["commands"]}
READERS = [c for c in COMMANDS.values() if c["operands"]["kind"] == "trace"]
PATTERN = {"split": ("part-%d.kvf", ["--parts", "1"]), "trim": ("x.kvf", ["--tokens", "0:1"]), "export": ("x.npz", [])}
MADE = ("repair", "compact", "trim", "split", "cat", "plan")
assert {*MADE, "info", "verify", "checksum", "report", "diff", "corpus", "survival"} <= {c["name"] for c in READERS}


def call(command, path, out):
    """Returns a call of a command on one trace; out: the folder and the prefix of its output
    names."""
    name = command["name"]
    least = next((a["min_traces"] for a in TOLD["analyzers"] if a["name"] == name), max(command["operands"]["least"], 1))
    file, more = PATTERN.get(name, ("x.kvf" if name in MADE else "x.html" if name == "report" else None, []))
    traces = ["survival", path] if name == "corpus" else [path] * least
    return [*command["words"].split(), *traces, *more, *(["-o", out + file] if file else []), *(["--overwrite"] if name in MADE else [])]


# ---- an output must have a name, in every command that writes
writers = [c for c in COMMANDS.values() if any(o.get("short") == "o" for o in c["options"])]
assert len(writers) > 30
for command in writers:
    for option in (["-o", ""], ["--output", ""], ["--output="]):
        s.refused(f"{command['name']} {option}", [*command["words"].split(), *option], 2, "the name of the output file is empty")

# ---- a trace without steps is incomplete, for every command
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "format"))
from write_kvf import Writer  # noqa: E402

w = Writer(s.path("empty.kvf"), b"{}", [(H, G)] * L, [])
w.commit(1, 0)
w.close()
for command in READERS:
    if command["name"] == "ls":  # a list of traces does not fail for them: a column shows which are empty (test_ls.py)
        continue
    argv = call(command, s.path("empty.kvf"), s.path("of-empty-"))
    r = s.run(argv)
    lines = r.stderr.decode().splitlines()
    s.check(f"{command['name']} of no steps", r.returncode in (1, 2, 3) and lines, argv, r)
    s.check(f"{command['name']}: never less than no steps", "-1" not in r.stderr.decode().replace(s.work.name, ""), argv, r)
    if r.returncode == 3:
        s.check(f"{command['name']} says so", any(x.endswith("has no steps") for x in lines), argv, r)
for name in ("info", "checksum", "compact", "repair", "verify"):
    r = s.run(call(COMMANDS[name], s.path("empty.kvf"), s.path("of-empty-")))
    s.check(f"{name} of no steps succeeds", r.returncode == 3, r)
for argv in (["trace", "trim", s.path("empty.kvf"), "--tokens", "0:1"], ["trace", "trim", s.path("empty.kvf"), "--head", "L0K0"], ["trace", "split", s.path("empty.kvf"), "--steps", "7"],
             ["trace", "split", s.path("empty.kvf"), "--parts", "1"]):
    s.refused("no piece of no steps", [*argv, "-o", s.path("piece-%d.kvf")], 1, "has no steps")

# ---- a trace that was cut off: its steps cannot be read, and no numbers are printed of them
s.file("cut.kvf", open(s.path("empty.kvf"), "rb").read()[:-64])
for command in READERS:
    if command["analysis"] and command["operands"]["least"] == 1:
        r = s.run(call(command, s.path("cut.kvf"), s.path("of-cut-")))
        s.check(f"{command['name']} of a cut trace", r.returncode in (1, 2) or r.returncode == 3 and b"was cut off; 'kvfate trace repair'" in r.stderr and not r.stdout, r)

# ---- an unreadable tail is reported
left = made(s, "left.kvf", honest(), unclosed=True)
name = left[:-len(".unfinished")] if left.endswith(".unfinished") else left
os.symlink(name + ".tail", name + ".tail")
for argv in (["trace", "info", name], ["survival", name, "--criterion", "top64"], ["trace", "repair", name, "-o", s.path("left-repaired.kvf")]):
    r = s.run(argv)
    s.check(f"{argv[0]} tells of a tail", r.returncode == 3 and b"left.kvf.tail: " in r.stderr and b"symbolic links" in r.stderr, argv, r)
r = s.run(["trace", "verify", name])
s.check("verify tells of a tail", r.returncode == 1 and b"left.kvf.tail: " in r.stderr, r)
os.unlink(name + ".tail")

# ---- names with control characters are escaped
NAME = "a\nb\x1b[31m\x7f\t.kvf"
os.mkdir(s.path("odd"))
odd = os.path.join(s.path("odd"), NAME)
os.rename(made(s, "odd.kvf", honest()), odd)
unfinished = os.path.join(s.path("odd"), "u" + NAME)
os.rename(made(s, "odd.kvf", honest(), unclosed=True) + ".unfinished" * os.path.exists(s.path("odd.kvf.unfinished")), unfinished)
damaged = os.path.join(s.path("odd"), "d" + NAME)
data = bytearray(open(odd, "rb").read())
data[len(data) // 2] ^= 255
with open(damaged, "wb") as f:
    f.write(data)
for command in READERS:
    for path in (odd, unfinished, damaged, odd + "none"):
        argv = call(command, path, os.path.join(s.path("odd"), "out\n\x1b"))
        r = s.run(argv)
        raw = [x for x in (b"\x1b", b"\x7f", b"a\nb", b"/out\n") for out in (r.stdout, r.stderr) if x in out]
        s.check(f"{command['name']} shows names", not raw, argv, raw, r.stdout[:300], r.stderr[:600])
r = s.run(["trace", "checksum", odd, odd])
s.check("a line for each", len(r.stdout.splitlines()) == 2, r)
s.finish()
