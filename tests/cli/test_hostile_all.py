#!/usr/bin/env python3
"""Runs every command that reads a trace on every hostile trace. It must end by itself, without a
signal, within 400 MiB and 10 seconds of CPU time. If it takes longer, it must show its progress on
a terminal. The commands come from `kvfate list all`. KVFATE_TESTS=long: every analysis (otherwise a
tenth of them), every figure of every trace (test_hostile.py tests some), and slow cases.
KVFATE_HOSTILE=FOLDER: also the traces of a folder."""
import glob
import json
import os
import select
import subprocess
import time

from harness import Suite, check
from hostile_traces import bomb, every, made, honest

s = Suite()
TOLD = json.loads(subprocess.check_output([s.exe, "list", "all", "--json"]))
ANALYZERS = {a["name"]: a for a in TOLD["analyzers"]}
OUT = s.path("out.kvf")
# Arguments that a command needs in addition to the traces; one list for each form of the call.
MORE = {"info": [[], ["--json"]], "verify": [[], ["--full"]], "checksum": [[], ["--stored"]], "trim": [["--tokens", "0:1"], ["--head", "L0K0"]],
        "split": [["--parts", "2"], ["--steps", "7"]], "plan": [[]], "report": [[]], "corpus": [[]]}
OUTPUT = {"repair": OUT, "compact": OUT, "trim": OUT, "cat": OUT, "plan": OUT, "split": s.path("part-%d.kvf"), "report": s.path("x.html"),
          "export": s.path("x.npz")}
LONG = os.environ.get("KVFATE_TESTS") == "long"
SLOW = (("heads", "export"), ("blobs-66", "export"), ("heads", "split"))
ANALYSED = ("esc", "ages", "heads", "torn")


def calls(command, path):
    name, words = command["name"], command["words"].split()
    if name in ANALYZERS:
        traces = [path] * ANALYZERS[name]["min_traces"]
        yield [*words, *traces]
        for figure in ANALYZERS[name]["figures"] if LONG else ():
            yield from ([*words, *traces, "--figure", figure, "-o", s.path("x." + ext)] for ext in ("svg", "png"))
        return
    traces = ["survival", path] if name == "corpus" else [path] * max(command["operands"]["least"], 1)
    for more in MORE.get(name, [[]]):
        overwrite = ["--overwrite"] if OUTPUT.get(name, "").endswith((".kvf", ".npz")) else []
        yield [*words, *traces, *more, *(["-o", OUTPUT[name], *overwrite] if name in OUTPUT else [])]


def left_over():
    return [n for n in os.listdir(s.work.name) if n.endswith(".part")]


def longest_silence(argv, ends):
    """Returns the exit status of a command with a terminal as standard error, and the longest time
    without output there."""
    master, terminal = ends
    p = subprocess.Popen([s.exe, *argv], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=terminal)
    os.close(terminal)
    last, most, said = time.monotonic(), 0, b""
    while True:
        ready = select.select([master], [], [], 60)[0]
        most, last = max(most, time.monotonic() - last), time.monotonic()
        try:
            data = os.read(master, 1 << 16) if ready else b""
        except OSError:  # the terminal ended with the program
            data = b""
        said += data
        if not data:
            break
    if p.poll() is None and most >= 60:
        p.kill()
    os.close(master)
    return p.wait(), most, said


COMMANDS = [c for c in TOLD["commands"] if c["operands"]["kind"] == "trace"]
assert {"repair", "compact", "trim", "split", "cat", "checksum", "verify", "info", "report", "diff", "corpus"} <= {c["name"] for c in COMMANDS}
traces = list(every(s)) + [(os.path.basename(p), p) for p in sorted(glob.glob(os.path.join(os.environ.get("KVFATE_HOSTILE", "/nowhere"), "*.kvf")))]
count, slowest = 0, {}
for i, (name, path) in enumerate(traces):
    for k, command in enumerate(COMMANDS):
        analysed = name.endswith(".kvf") or name in ANALYSED or not command["analysis"]
        if not LONG and (name == "blobs-60" or (name, command["name"]) in SLOW or not analysed):
            continue
        if not LONG and command["analysis"] and (i + k) % 10:
            continue
        for argv in calls(command, path):
            s.longest = 0
            # For heads, export checks 200,000 records one by one in Python.
            long = name == "blobs-60" or (name, command["name"]) == ("heads", "export")
            s.bounded(f"{name}: {' '.join(a for a in argv if '/' not in a)}", argv, (0, 1, 2, 3), seconds=60 if long else 10)
            count += 1
            slowest[s.longest] = (name, argv[0])
s.check("nothing is left of what failed", not left_over(), left_over())
print(f"{len(traces)} traces, {count} commands: at most {s.most >> 20} MiB, and {', '.join(f'{t:.1f} s {a} of {n}' for t, (n, a) in sorted(slowest.items())[-5:])}")

# ---- progress: decoding the maximum allowed amount, or a third of it
LAST = s.path("blobs-60.kvf") if LONG else bomb(s, 20)
LASTING = (["trace", "verify", "--full", LAST], ["trace", "compact", LAST, "-o", OUT, "--overwrite"], ["trace", "checksum", LAST], ["trace", "repair", LAST, "-o", OUT, "--overwrite"])
for argv in LASTING[:None if LONG else 2]:
    ends = check.open_terminal()
    if not ends:
        check.finish(check.NO_TERMINAL)
    code, silence, said = longest_silence(argv, ends)
    s.check(f"{argv[0]} is never silent for long", silence < 10 and code == 0, argv, code, silence)
    print(f"{argv[0]} of a blob bomb: silent for at most {silence:.1f} s, {said.count(bytes([13]))} lines of progress")
    s.check(f"{argv[0]} says how far it is", said.count(b"\r") > 2, said)
good = made(s, "good.kvf", honest())
s.check("a small trace shows none", b"\r" not in longest_silence(["trace", "verify", "--full", good], check.open_terminal())[2].replace(b"\r\n", b""))
s.finish()
