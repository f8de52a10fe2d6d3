#!/usr/bin/env python3
"""Measure the cost of recording decisions: CPU time of the same run with and without it.

usage: bench/recording.py KVFATE MODEL [--rounds 5] [--method h2o] [--budget 128] [--prompt 512] [--predict 128]

It uses CPU time of the child processes, which other load on the machine affects less.  Runs alternate and medians
are printed.  Standard library only.
"""
import argparse
import os
import random
import resource
import statistics
import subprocess
import tempfile


def cpu_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("kvfate")
    a.add_argument("model")
    for name, value in (("rounds", 5), ("budget", 128), ("prompt", 512), ("predict", 128)):
        a.add_argument("--" + name, type=int, default=value)
    a.add_argument("--method", default="h2o")
    args = a.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ids, rng = os.path.join(folder, "ids.txt"), random.Random(7)
        with open(ids, "w", encoding="ascii") as f:
            f.write(" ".join(str(rng.randrange(1000, 40000)) for _ in range(args.prompt)))
        same = ["-m", args.model, "--ids", ids, "-n", str(args.predict), "--ignore-eos", "-q", "-t", "1", "--json",
                "--method", args.method, "-B", str(args.budget)]
        trace = ["-o", os.path.join(folder, "x.kvf")]
        kinds = {"nothing recorded": ["generate"] + same,
                 "decisions (--probes evict,gate)": ["run", "--probes", "evict,gate"] + trace + same,
                 "lean": ["run", "--probes", "lean"] + trace + same}
        seconds = {kind: [] for kind in kinds}
        for _ in range(args.rounds):
            for kind, command in kinds.items():
                seconds[kind].append(cpu_seconds([args.kvfate] + command))
    base = statistics.median(seconds["nothing recorded"])
    print(f"{args.method}, budget {args.budget}, {args.prompt} + {args.predict} tokens, one thread, {args.rounds} rounds")
    for kind, s in seconds.items():
        m = statistics.median(s)
        print(f"{kind}: {m:.3f} s ({min(s):.3f}..{max(s):.3f}), {100 * (m / base - 1):+.1f} %")


if __name__ == "__main__":
    main()
