#!/usr/bin/env python3
"""Plants faults one at a time and reports those that no test detects.

usage: mutate.py [--room ROOM] [--only REGEX] [--limit N] [--sample N] [--again] [--build DIR]
                 [--jobs N] [--list] [--suites] [--tests NAMES]

tests/mutate/ROOM.txt has the faults of a module, separated by empty lines. Each fault is a file
name and lines without (-) and with the fault (+). The lines without the fault must occur in the
file exactly once; otherwise the fault is reported as stale.

Work is done in DIR/tree (build-mutate/tree), a copy of the files in git, never in the tree itself.
For each fault the tests that reach its lines run until one fails. The order is the shortest first,
with the tests made for the file soon after. reach.py measures once, in some 10 minutes, which tests
reach which lines. If a file has changed since then, the suites of the module run.

DIR/results.jsonl stores the results. An interrupted run continues where it stopped, and --again
discards the results of the chosen faults. --sample N selects every N-th fault. --suites only builds
and runs the suites of the module and measures no lines. This takes minutes for a module such as
cuda, with one short suite. --tests A,B runs only these tests: faults that other tests detect count
as undetected, and the results are not stored. The exit status is 1 if a fault survived, is stale or
does not build.
"""
import argparse
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from reach import Reach

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
SECONDS = 900  # time limit of one call of the tests
MOST = 50  # maximum number of tests per fault; a fault that the shortest of them miss counts as undetected
# The suites that test a module, the most specific first.
SUITES = {
    "base": "unit analyze figures cli", "libtrace": "format fuzz analyze cli", "kernels": "kernels engine train oracle", "cuda": "cuda",
    "cache": "engine method oracle", "method": "method engine oracle cli", "gate": "gates fuzz oracle cli", "model": "engine fuzz cli gates",
    "probe": "engine analyze oracle format", "decode": "engine oracle cli analyze", "experiment": "engine cli", "train": "train cli",
    "analyzers": "analyze cli figures", "studies": "analyze cli fuzz", "render": "figures report", "cli": "cli analyze figures gates",
}


class Fault:
    def __init__(self, room, path, old, new):
        self.room, self.path, self.old, self.new = room, path, old, new
        self.key = hashlib.sha256("\0".join((path, old, new)).encode()).hexdigest()[:16]

    def __str__(self):
        return f"{self.path}: {' '.join(self.old.split())}  ->  {' '.join(self.new.split()) or '(nothing)'}"


def read_faults(room, text):
    for block in re.split(r"\n\s*\n", text):
        lines = [x for x in block.split("\n") if x and not x.startswith("#")]
        if not lines:
            continue
        old, new = ("".join(x[1:] + "\n" for x in lines[1:] if x[0] == sign) for sign in "-+")
        if not old or len([x for x in lines[1:] if x[0] not in "-+"]):
            sys.exit(f"tests/mutate/{room}.txt: a fault is a file, lines with - and lines with +:\n{block}")
        yield Fault(room, lines[0].strip(), old, new)


def all_faults(args):
    found = []
    for path in sorted(glob.glob(os.path.join(HERE, "mutate", "*.txt"))):
        room = os.path.basename(path)[:-4]
        if room not in SUITES:
            sys.exit(f"{path}: SUITES of mutate.py does not know this room")
        found += read_faults(room, Path(path).read_text(encoding="utf-8"))
    found = [f for f in found if not args.room or f.room in args.room.split(",")]
    found = [f for f in found if re.search(args.only, str(f))][::args.sample]
    return found[:args.limit]


class Tree:
    """A copy of the sources with one build folder."""

    def __init__(self, folder, whole):
        self.root, self.build = os.path.join(folder, "tree"), os.path.join(folder, "tree", "build")
        names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
        names = {n for n in names if n and os.path.isfile(os.path.join(ROOT, n))}
        for name in names:
            self.put(name, Path(os.path.join(ROOT, name)).read_bytes())
            shutil.copymode(os.path.join(ROOT, name), os.path.join(self.root, name))
        if not os.path.exists(os.path.join(self.build, "build.ninja")):
            subprocess.run(["meson", "setup", self.build, "-Dtests=enabled", "-Ddebug=false", "-Dcuda=disabled"], cwd=self.root, check=True, stdout=subprocess.DEVNULL)
        if whole:
            subprocess.run(["ninja", "-C", self.build], check=True, stdout=subprocess.DEVNULL)  # some tests use all installed files

    def get(self, name):
        path = os.path.join(self.root, name)
        if not os.path.exists(path):
            return None
        return Path(path).read_bytes()

    def put(self, name, data):
        if self.get(name) == data:
            return
        os.makedirs(os.path.dirname(os.path.join(self.root, name)), exist_ok=True)
        Path(os.path.join(self.root, name)).write_bytes(data)

    def test(self, setup, which, jobs):
        """Returns (result, name of the first failed test). The test runner builds the programs that
        these tests need. which: arguments of its command line, names of tests or --suite S."""
        log = os.path.join(self.build, "meson-logs", f"testlog-{setup}.json")
        if os.path.exists(log):
            os.unlink(log)
        argv = ["meson", "test", "-C", self.build, "--setup", setup, "--maxfail", "1", "--num-processes", str(jobs)]
        try:
            done = subprocess.run(argv + which, capture_output=True, text=True, timeout=SECONDS, errors="replace",
                                  env={**os.environ, "KVFATE_SLOW": "60"})
        except subprocess.TimeoutExpired:
            return "found", f"no end within {SECONDS} s"
        if not os.path.exists(log):
            return ("does not build", done.stdout[-600:]) if done.returncode else ("survived", "")
        with open(log, encoding="utf-8") as f:
            bad = [x for x in map(json.loads, f) if x["result"] in ("FAIL", "TIMEOUT", "ERROR")]
        return ("found", bad[0]["name"].split(" / ")[-1]) if bad else ("survived", "")


def stages(fault, text, reach, tests):
    """Returns the stages to run in order, so that only the needed programs are built."""
    if tests:
        yield "normal", tests
        return
    first = text[:text.index(fault.old)].count("\n") + 1
    names = reach.of(fault.path, first - 1, first + fault.old.count("\n"))
    if names is not None:
        yield from (("normal", names[a:b]) for a, b in ((0, 6), (6, 20), (20, MOST)) if names[a:b])
        return
    suites = SUITES[fault.room].split()
    yield from (("quick", ["--suite", s]) for s in suites)
    yield from (("normal", ["--suite", s]) for s in suites)


def judge(tree, fault, reach, jobs, tests):
    data = tree.get(fault.path)
    if data is None or data.decode().count(fault.old) != 1:
        return "stale", "the file is gone" if data is None else f"its text is there {data.decode().count(fault.old)} times"
    todo = list(stages(fault, data.decode(), reach, tests))
    tree.put(fault.path, data.decode().replace(fault.old, fault.new).encode())
    try:
        for setup, which in todo:
            what, where = tree.test(setup, which, jobs)
            if what != "survived":
                return what, where
        return "survived", "" if todo else "no test reaches it"
    finally:
        tree.put(fault.path, data)


def baseline(tree, rooms, jobs):
    """Checks that no test fails without a fault. Otherwise every fault would count as detected."""
    for suite in sorted({s for room in rooms for s in SUITES[room].split()}):
        what, where = tree.test("normal", ["--suite", suite], jobs)
        if what != "survived":
            sys.exit(f"without a fault: suite {suite}: {what}: {where}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--room")
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--sample", type=int, default=1)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--build", default=os.path.join(ROOT, "build-mutate"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--suites", action="store_true", help="run the suites of a room, whatever reaches a line")
    parser.add_argument("--tests", type=lambda text: text.split(","), help="run these tests alone")
    parser.add_argument("--list", action="store_true", help="say what is there and what is stale, plant nothing")
    parser.add_argument("--trust", action="store_true", help="do not run the tests without a fault first")
    args = parser.parse_args()
    faults = all_faults(args)
    if args.list:
        return list_faults(faults)
    tree, path, known = Tree(os.path.abspath(args.build), not args.suites and not args.tests), os.path.join(args.build, "results.jsonl"), {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            known = {x["key"]: x for x in map(json.loads, f)}
    todo = [f for f in faults if args.again or f.key not in known]
    if todo and not args.trust:
        baseline(tree, {f.room for f in todo}, args.jobs)
    reach = Reach(os.path.abspath(args.build), tree.root, tree.build)
    if todo and not reach.tests and not args.suites and not args.tests:
        reach.measure({f.path for f in all_faults(argparse.Namespace(room="", only="", sample=1, limit=None))})
    for n, fault in enumerate(todo, 1):
        begun = time.monotonic()
        what, where = judge(tree, fault, reach, args.jobs, args.tests)
        known[fault.key] = {"key": fault.key, "room": fault.room, "fault": str(fault), "what": what, "where": where}
        if what != "survived" or not args.tests:
            with open(path, "a", encoding="utf-8") as f:
                f.write(json.dumps(known[fault.key]) + "\n")
        print(f"{n}/{len(todo)} {what} ({where}) in {time.monotonic() - begun:.0f} s: {fault}", flush=True)
    return summary([known[f.key] for f in faults])


def list_faults(faults):
    stale = 0
    for f in faults:
        path = os.path.join(ROOT, f.path)
        there = 0
        if os.path.exists(path):
            there = Path(path).read_text(encoding="utf-8").count(f.old)
        stale += there != 1
        print("stale" if there != 1 else f.room, f, sep="\t")
    print(f"{len(faults)} faults, {stale} stale")
    return 1 if stale else 0


def summary(results):
    for r in results:
        if r["what"] != "found":
            print(f"{r['what']}: {r['fault']} {r['where']}")
    for room in SUITES:
        mine = [r for r in results if r["room"] == room]
        if mine:
            print(f"{room}: {sum(r['what'] == 'found' for r in mine)} of {len(mine)} found")
    found = sum(r["what"] == "found" for r in results)
    valid = sum(r["what"] in ("found", "survived") for r in results)
    print(f"{found} of {valid} found ({100 * found / max(1, valid):.0f} %), {len(results) - valid} stale or not built")
    return found != len(results)


if __name__ == "__main__":
    sys.exit(main())
