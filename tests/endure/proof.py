"""Shared by the long proofs: numbered cases that run in batches, and a file with the progress.

A proof is a class with COUNT (total number of cases) and BATCH (cases between two updates of the
state). It is made with a Bed. Its method `cases(first, n)` runs the cases first .. first + n - 1
and returns their counts and the findings, one sentence each. A case is determined by its number and
the seed only, except for timing."""
import collections
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MOST_TOLD = 50
PATIENCE = 3600  # seconds that a command may take, because the machine may be busy


class Bed:
    """The environment of a proof: the programs of a build, a separate folder, and models."""

    def __init__(self, args):
        self.build, self.seed, self.count = os.path.abspath(args.build), args.seed, args.count
        self.exe = os.path.join(self.build, "cli", "kvfate")
        self.folder = tempfile.TemporaryDirectory(prefix="kvfate-endure-")
        os.environ["KVFATE_CACHE"] = self.path("cache")
        self.root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

    def helper(self, name):
        return os.path.join(self.build, "tests", "endure", name)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def kvfate(self, *argv, **more):
        """Runs the program, which must succeed."""
        r = subprocess.run([self.exe, *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder.name, timeout=PATIENCE, **more)
        if r.returncode not in (0, 3):
            sys.exit(f"kvfate {' '.join(argv)}: exit {r.returncode}: {r.stderr.decode(errors='replace')}")
        return r.stdout


def read(path):
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        return None


def write(path, data):
    Path(path).write_bytes(data)


class State:
    def __init__(self, path, what, seed):
        self.path = path
        self.held = {"what": what, "seed": seed, "done": 0, "seconds": 0.0, "counts": {}, "found": []}
        if path and os.path.exists(path):
            self.held = json.loads(Path(path).read_text())
            if (self.held["what"], self.held["seed"]) != (what, seed):
                sys.exit(f"{path} is of {self.held['what']} with seed {self.held['seed']}; give another file to --state")

    def add(self, n, seconds, counts, found):
        h = self.held
        h["done"] += n
        h["seconds"] = round(h["seconds"] + seconds, 1)
        h["counts"] = dict(collections.Counter(h["counts"]) + collections.Counter(counts))
        h["counts"]["findings"] = h["counts"].get("findings", 0) + len(found)
        h["found"] = (h["found"] + found)[:MOST_TOLD]
        if self.path:
            with open(self.path + ".new", "w") as f:
                json.dump(h, f, indent=1)
                f.write("\n")
                f.flush()
                os.fsync(f.fileno())
            os.replace(self.path + ".new", self.path)


def go(what, proof, args):
    """Runs the proof; returns the exit status."""
    state, bed = State(args.state, what, args.seed), Bed(args)
    count = args.count if args.count is not None else state.held.get("count")
    work = proof(bed) if count is None or state.held["done"] < count else None
    if count is None:
        count = state.held["count"] = work.COUNT
    while state.held["done"] < count:
        first = state.held["done"]
        n, start = min(work.BATCH, count - first), time.monotonic()
        counts, found = work.cases(first, n)
        for line in found:
            print("FOUND:", line, flush=True)
        state.add(n, time.monotonic() - start, counts, found)
    h = state.held
    print(f"{what}: {h['done']} of {count} done in {h['seconds']:.0f} s: " + ", ".join(f"{v} {k}" for k, v in h["counts"].items()))
    for line in h["found"]:
        print("found:", line)
    bed.folder.cleanup()
    return int(h["counts"].get("findings", 0) != 0)
