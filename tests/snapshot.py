#!/usr/bin/env python3
"""Hashes everything that a build of the program prints and writes, to prove that a change keeps
every byte.

usage: snapshot.py KVFATE OUT [--traces OTHER] [--commands OTHER] [--only REGEX] [--jobs N]
       snapshot.py --compare A B

OUT/inputs gets texts, tiny models, gates, traces and tables, made with KVFATE. With --traces,
OTHER/inputs is used instead, so that two builds read the same traces. Then every command of
tests/snapshot/commands.py runs. The commands come from the program's own lists of analyses,
options, figures, styles and methods. With --commands, those of OTHER run, so that a build with
longer lists gets the same commands.

OUT/manifest.json records for each command line its exit status and the SHA-256 of its standard
output and of every file that it wrote. All files except traces are kept in OUT/runs for diff.
--compare ends with 1 if a command of A is missing in B or gives other bytes.

Messages on standard error are also compared, but a difference there is only reported. The default
model is used if the machine has it, so compare only snapshots of one machine.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "snapshot"))
sys.dont_write_bytecode = True
import commands  # noqa: E402
import inputs  # noqa: E402

MOST_SECONDS = 120
KEPT = 2 << 20  # larger files are hashed and removed


def environment():
    env = {k: v for k, v in os.environ.items()
           if k in ("PATH", "HOME", "XDG_CACHE_HOME", "KVFATE_CACHE", "KVFATE_CPU_MASK", "KVFATE_PYTHON", "TMPDIR", "ASAN_OPTIONS", "KVF_EMULATED")}
    return {**env, "LC_ALL": "C.UTF-8", "TZ": "UTC", "TERM": "dumb", "COLUMNS": "100", "SOURCE_DATE_EPOCH": "0"}


def sha(data):
    return hashlib.sha256(data).hexdigest()


class Runner:
    """Runs a command line ("kvfate ... && kvfate ...") in its own folder, where `in` is the folder
    of inputs."""

    def __init__(self, program, out):
        self.program, self.out = os.path.abspath(program), out
        self.env = {**environment(), "KVFATE_CACHE": "in/cache", "KVFATE_GATES": "in/gates"}

    def ask(self, line):
        """Returns (standard output, standard error) of one command, to collect commands."""
        done = subprocess.run(shlex.split(line), executable=self.program, cwd=self.out, env=self.env, capture_output=True, text=True, errors="replace",
                              stdin=subprocess.DEVNULL, timeout=MOST_SECONDS)
        return done.stdout, done.stderr

    def run(self, line):
        folder = os.path.join(self.out, "runs", sha(line.encode())[:12])
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        os.symlink(os.path.join("..", "..", "inputs"), os.path.join(folder, "in"))
        stdout, stderr = b"", b""
        for part in line.split(" && "):
            try:
                done = subprocess.run(shlex.split(part), executable=self.program, cwd=folder, env=self.env, capture_output=True,
                                      stdin=subprocess.DEVNULL, timeout=MOST_SECONDS)
                status = done.returncode
            except subprocess.TimeoutExpired as e:
                done, status = e, "ran past its time"
            stdout, stderr = stdout + (done.stdout or b""), stderr + (done.stderr or b"")
            if status:
                break
        return self.collect(folder, status, stdout, stderr)

    def collect(self, folder, status, stdout, stderr):
        files = {}
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if name != "in" and os.path.isfile(path):
                data = Path(path).read_bytes()
                files[name] = sha(commands.steady(name, data))
                if len(data) > KEPT or name.endswith(".kvf"):
                    os.remove(path)
        for name, data in (("stdout", stdout), ("stderr", stderr)):
            if data and len(data) <= KEPT:
                Path(os.path.join(folder, name)).write_bytes(data)
        if os.listdir(folder) == ["in"]:
            shutil.rmtree(folder)
        # Times, speeds and the build folder are not compared.
        told = re.sub(r"\d+(\.\d+)?( ?(tok/s|ms|s|seconds|minutes)\b)", "N", stderr.decode(errors="replace"))
        return {"status": status, "stdout": sha(commands.steady("stdout", stdout)), "files": files, "told": told.replace("\r", "\n").strip()[-2000:]}


def take(args):
    out = os.path.abspath(args.out)
    os.makedirs(os.path.join(out, "runs"), exist_ok=True)
    fixed = os.path.join(out, "inputs")
    began = time.time()
    if args.traces and not os.path.exists(fixed):
        os.symlink(os.path.join(os.path.abspath(args.traces), "inputs"), fixed)
    elif not os.path.exists(fixed):
        inputs.make(os.path.abspath(args.kvfate), fixed, environment())
    print(f"inputs: {time.time() - began:.0f} s", flush=True)
    runner = Runner(args.kvfate, out)
    if not os.path.exists(os.path.join(out, "in")):
        os.symlink("inputs", os.path.join(out, "in"))
    if args.commands:
        lines = list(json.loads(Path(os.path.join(args.commands, "manifest.json")).read_text(encoding="utf-8"))["commands"])
    else:
        lines = list(dict.fromkeys(commands.collect(runner.ask, fixed, args.jobs)))
    lines = [x for x in lines if re.search(args.only, x)]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = dict(zip(lines, pool.map(runner.run, lines)))
    with open(os.path.join(out, "manifest.json"), "w", encoding="utf-8") as f:
        json.dump({"commands": results}, f, indent=1, sort_keys=True)
    failed = sum(r["status"] != 0 for r in results.values())
    strange = [x for x, r in results.items() if r["status"] not in (0, 1, 2)]
    print(*(f"ended with {results[x]['status']}: {x}" for x in strange), sep="\n")
    print(f"{len(lines)} commands, {failed} refused, {sum(len(r['files']) for r in results.values())} files, {time.time() - began:.0f} s")
    return 1 if strange else 0


def load(folder):
    return json.loads(Path(os.path.join(folder, "manifest.json")).read_text(encoding="utf-8"))["commands"]


def compare(a, b):
    before, after = load(a), load(b)
    worse = told = 0
    for line in sorted(before):
        x, y = before[line], after.get(line)
        if y is None:
            what = ["is not in " + b]
        else:
            what = [k for k in ("status", "stdout") if x[k] != y[k]] + [n for n in sorted(x["files"].keys() | y["files"].keys())
                                                                       if x["files"].get(n) != y["files"].get(n)]
            if not what and x["told"] != y["told"]:
                told += 1
                print(f"message: {line}\n    {x['told'][-300:]!r}\n    {y['told'][-300:]!r}")
        if what:
            worse += 1
            print(f"DIFFERS: {line}\n    {', '.join(what)}; see runs/{sha(line.encode())[:12]}")
    new = [x for x in after if x not in before]
    if new:
        print(f"only in {b}: {len(new)} commands, the first: {new[0]}")
    print(f"{len(before)} commands, {worse} differ, {told} messages differ, {len(new)} are new")
    return 1 if worse or not before else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("kvfate")
    parser.add_argument("out")
    parser.add_argument("--traces", metavar="OTHER")
    parser.add_argument("--commands", metavar="OTHER")
    parser.add_argument("--only", metavar="REGEX", default="")
    parser.add_argument("--jobs", type=int, default=2 * os.cpu_count())
    args = parser.parse_args()
    return compare(args.kvfate, args.out) if args.compare else take(args)


if __name__ == "__main__":
    sys.exit(main())
