#!/usr/bin/env python3
"""Runs every command that writes a file with failing system calls: allocations, writes, syncs,
renames, opens, single ones and all from one on.

usage: faults.py KVFATE FAULTS.so MODELS WRITE_KVF [--command NAME] [--kind KIND]
                 [--every | --sample N]

A first run counts the program's calls of a kind and their stacks. Then it runs again for each call
to fail. For memory these are the first and the last call of each stack (--every: all calls), for
other kinds every call. --sample N: N random calls of them. It checks that the program:

* ends by itself, without a signal;
* ends with 0 and correct bytes, or with another status and one line that begins with "kvfate";
* keeps the older file, or writes the new one completely, and leaves no other file except an
  unfinished trace;
* frees all memory that it allocated (counted by the library that makes the faults; with failed
  allocations).
"""
import argparse
import errno
import json
import mmap
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = os.path.dirname(os.path.abspath(__file__))
MOST_CALLS = 1 << 18
SIZE = 24 + 8 * MOST_CALLS
SHORT = -1
# kind: how it fails (errno, whether all later calls also fail)
KINDS = {"alloc": [(errno.ENOMEM, 0), (errno.ENOMEM, 1)],
         "write": [(errno.ENOSPC, 0), (errno.ENOSPC, 1), (errno.EIO, 0), (errno.EIO, 1), (errno.EINTR, 0), (SHORT, 0), (SHORT, 1)],
         "sync": [(errno.EIO, 0), (errno.EIO, 1), (errno.ENOSPC, 0)], "rename": [(errno.EACCES, 0), (errno.EIO, 1)],
         "open": [(errno.EMFILE, 0), (errno.EACCES, 1)], "cut": [(errno.EIO, 0), (errno.EIO, 1)]}
HARMLESS = (errno.EINTR, SHORT)  # a program continues after these


class World:
    """A folder in which commands run, and the file with the library's results."""

    def __init__(self, args, folder):
        self.args, self.folder, self.stage = args, folder, os.path.join(folder, "stage")
        self.told_path = os.path.join(folder, "told")
        with open(self.told_path, "wb") as f:
            f.truncate(SIZE)
        with open(self.told_path, "r+b") as f:
            self.told = mmap.mmap(f.fileno(), SIZE)
        self.failures = self.runs = self.failed = self.survived = 0

    def prepare(self, command):
        shutil.rmtree(self.stage, ignore_errors=True)
        os.mkdir(self.stage)
        for name, data in command.older.items():
            Path(os.path.join(self.stage, name)).write_bytes(data)

    def run(self, command, kind="", at=0, how=0, on=0, again=False):
        if not again:
            self.prepare(command)
        self.told[:24] = bytes(24)
        env = dict(os.environ, LD_PRELOAD=self.args.faults, FAULT_KIND=kind, FAULT_AT=str(at), FAULT_HOW=str(how), FAULT_ON=str(on),
                   FAULT_FILE=self.told_path)
        return subprocess.run([self.args.kvfate, *command.argv], cwd=self.stage, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, timeout=120)

    def counts(self):
        return struct.unpack_from("<QQq", self.told, 0)

    def stacks(self, n):
        return struct.unpack_from(f"<{min(n, MOST_CALLS)}Q", self.told, 24)

    def files(self):
        return {name: open(os.path.join(self.stage, name), "rb").read() for name in os.listdir(self.stage)}


class Command:
    """argv in an empty folder; older: files that exist before; its standard output is not checked.
    saves: it writes its files several times, and the remains after a fault are correct if a
    repeated command gives the result without a fault. lines: it may print several lines about
    traces that it cannot open and skips, also when all later calls fail."""

    def __init__(self, name, argv, older=None, saves=False, lines=1):
        self.name, self.argv, self.older, self.saves, self.lines = name, argv, older or {}, saves, lines


def trouble(command, r, files, want, live, most_live, how):
    """Returns the problem after a run with a fault; None if there is no problem."""
    err = r.stderr.decode("utf-8", "replace")
    lines = [line for line in err.split("\n") if line]
    older = command.older
    out = set(want) | set(older)
    if r.returncode < 0:
        return f"signal {-r.returncode}"
    if r.returncode == 0 and files != want:
        return f"it says that all went well, and left {wrong(files, want)}"
    if r.returncode and not (len(lines) >= 1 and lines[-1].startswith("kvfate") and len(lines) <= command.lines):
        return f"not one line: {err[:300]!r}"
    if how in HARMLESS and r.returncode:
        return f"a fault without harm ends it: {err[:200]!r}"
    for name in () if command.saves else out:
        if files.get(name) not in (older.get(name), want.get(name)):
            return f"{name} is neither the older file nor the new one"
    left = [n for n in files if n not in out and not n.endswith((".unfinished", ".tail", ".lock"))]
    if left:
        return f"left behind: {left}"
    if live > most_live:
        return f"{live - most_live} blocks of memory were not given back"
    return None


def wrong(files, want):
    return ", ".join(sorted(n for n in set(files) | set(want) if files.get(n) != want.get(n)))


def chosen(world, kind, calls, args, rng):
    """Returns the calls to fail."""
    if kind == "alloc" and not args.every:
        places = {}
        for k, stack in enumerate(world.stacks(calls), 1):
            places.setdefault(stack, []).append(k)
        ks = sorted({k for p in places.values() for k in (p[0], p[-1])})
    else:
        ks = list(range(1, calls + 1))
    return sorted(rng.sample(ks, min(args.sample, len(ks)))) if args.sample else ks


def walk(world, command, args, rng):
    told, started = {}, time.time()
    try:
        world.run(command)  # once more: the first run made caches of fonts and the like
        r = world.run(command)
    except subprocess.TimeoutExpired:
        sys.exit(f"{command.name} does not end")
    if r.returncode:
        sys.exit(f"{command.name} fails without a fault: {r.stderr.decode()}")
    want = world.files()
    if want == command.older:
        sys.exit(f"{command.name} writes nothing")
    for kind in [args.kind] if args.kind else KINDS:
        world.run(command, kind)
        calls, _, most_live = world.counts()
        ks = chosen(world, kind, calls, args, rng)
        runs = 0
        for how, on in KINDS[kind] if not args.sample else rng.sample(KINDS[kind], min(2, len(KINDS[kind]))):
            for k in ks:
                try:
                    r = world.run(command, kind, k, how, on)
                    _, failed, live = world.counts()
                    why = trouble(command, r, world.files(), want, live, most_live, how)
                    if not why and command.saves and r.returncode and not (kind == "open" and command.lines > 1):
                        again = world.run(command, again=True)
                        why = None if again.returncode == 0 and world.files() == want else f"then it cannot go on: {again.stderr[:300]!r}, {wrong(world.files(), want)}"
                    world.failed += failed > 0
                    world.survived += failed > 0 and r.returncode == 0
                except subprocess.TimeoutExpired:
                    why = "it does not end"
                runs += 1
                if why:
                    world.failures += 1
                    print(f"FAILED: {command.name}: {kind} {k} of {calls}, {errno.errorcode.get(how, 'SHORT')}{' from then on' if on else ''}: {why}", flush=True)
        if kind == "open" and not calls:
            sys.exit(f"{command.name} opens nothing: the faults were not loaded")
        world.runs += runs
        told[kind] = (calls, len(ks), runs)
    counts = ", ".join(f"{kind} {c}{f' ({n})' if n < c else ''}" for kind, (c, n, _) in told.items() if c)
    print(f"{command.name}: {sum(t[2] for t in told.values())} runs in {time.time() - started:.0f} s; calls (failed, where not all): {counts}", flush=True)


# ---- the commands

def commands(args, folder):
    sys.path[:0] = [os.path.join(HERE, "..", "cli"), os.path.join(HERE, "..", "analyze"), os.path.join(HERE, "..", "format")]
    from hostile_traces import G, H, L, T, honest, make

    class Suite:
        write_kvf, path = args.write_kvf, staticmethod(lambda name: os.path.join(folder, name))
    s = Suite()

    def kvfate(*argv):
        subprocess.run([args.kvfate, *argv], check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    x = make(s.write_kvf, s.path("x.kvf"), honest(), (L, H, G, T), texts=["x"] * T, meta={"run": {"prompt_tokens": 20}}, blobs=["k f16 0 0 0 8 4", "k f16 0 1 0 8 4"])
    plain = make(s.write_kvf, s.path("plain.kvf"), honest(), (L, H, G, T), texts=["x"] * T)
    kvfate("trace", "split", plain, "--parts", "2", "-o", "part%d.kvf")
    parts = [s.path("part1.kvf"), s.path("part2.kvf")]
    model = os.path.join(args.models, "tiny0.gguf")
    run = ["-m", model, "--raw", "-p", "the thing", "-t", "1"]
    older = lambda name: {name: b"older"}  # noqa: E731
    trace = {"out.kvf": open(plain, "rb").read()}
    out = ["-o", "out.kvf", "--overwrite"]
    yield Command("run", ["run", *run, "-n", "6", "--ignore-eos", "--method", "h2o", "-B", "8", "-q", *out], trace)
    yield Command("compact", ["trace", "compact", x, *out], trace)
    yield Command("repair", ["trace", "repair", x, *out], trace)
    yield Command("trim", ["trace", "trim", x, "--tokens", "3:20", "--head", "L0K*", *out], trace)
    yield Command("split", ["trace", "split", plain, "--parts", "2", "-o", "p%d.kvf", "--overwrite"], {"p1.kvf": trace["out.kvf"]})
    yield Command("cat", ["trace", "cat", *parts, *out], trace)
    yield Command("plan", ["trace", "plan", x, *out], trace)
    yield Command("saliency", ["ablate", "--as", "saliency", *run, *out], trace)
    yield Command("logits", ["generate", "--logits", *run, "-o", "out.npy"], older("out.npy"))
    for ext in ("tsv", "csv", "json", "npz", "svg", "pdf", "png"):
        more = ["--dpi", "40", "--threads", "1"] if ext == "png" else ["--threads", "1"]
        yield Command(f"table {ext}" if ext in ("tsv", "csv", "json", "npz") else f"figure {ext}",
                      ["survival", x, "--criterion", "top64", *more, "-o", "out." + ext], older("out." + ext))
    yield Command("report", ["report", x, "-o", "out.html"], older("out.html"))
    text = os.path.join(folder, "text.txt")
    Path(text).write_text(" ".join(f"the thing {i % 7} is in there" for i in range(60)) + "\n")
    task = os.path.join(folder, "q")
    Path(task + ".txt").write_text("the thing is red and the other one is top, is it red")
    spans = [{"name": n, "useful": n == "needle", "start": a, "end": b} for n, a, b in (("needle", 12, 20), ("question", 42, 52))]
    with open(task + ".json", "w") as f:
        json.dump({"reply": {"text": " it is red", "values": [[6, 10]]}, "spans": spans}, f)
    yield Command("causal", ["ablate", "--as", "causal", "-m", model, "--raw", task + ".json", "-t", "1", "-o", "out.tsv"], older("out.tsv"))
    yield Command("eval tasks", ["eval", "-m", model, "--raw", "--tasks", task + ".json", "--methods", "full", "-t", "1", "-o", "out.tsv"], older("out.tsv"))
    yield Command("corpus state", ["corpus", "survival", x, "--criterion", "top64", "-t", "1", "--state", "out.state", "-o", "out.tsv"], older("out.tsv"),
                  saves=True, lines=2)
    yield Command("train", ["train", "-m", model, "--data", text, "--method", "trimkv", "--length", "16", "--steps", "2", "--save-every", "1", "--check-every", "0",
                            "-t", "1", "-o", "out.safetensors"], older("out.safetensors"), saves=True)
    yield Command("eval state", ["eval", "-m", model, "--data", text, "--methods", "full,window", "--budgets", "8", "--docs", "1", "--prompt-tokens", "16",
                                 "--score-tokens", "4", "-t", "1", "--state", "out.state", "-o", "out.tsv"], older("out.tsv"), saves=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for name in ("kvfate", "faults", "models", "write_kvf"):
        p.add_argument(name, type=os.path.abspath)
    p.add_argument("--command", help="only this one; its name or the beginning")
    p.add_argument("--kind", choices=KINDS)
    p.add_argument("--every", action="store_true", help="every allocation, not the first and the last of each stack")
    p.add_argument("--sample", type=int, default=0, help="so many calls of each kind, drawn at random")
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    rng = random.Random(args.seed)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where syncs are cheap
    with tempfile.TemporaryDirectory(prefix="kvfate-faults-", dir=memory) as folder:
        world = World(args, folder)
        for command in commands(args, folder):
            if not args.command or command.name.startswith(args.command):
                walk(world, command, args, rng)
    print(f"{world.runs} runs, {world.failed} met their fault, of which {world.survived} went on to the right end; {world.failures} failures")
    sys.exit(world.failures != 0)


if __name__ == "__main__":
    main()
