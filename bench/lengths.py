#!/usr/bin/env python3
"""Measure time, memory and trace size of a run against the length of its text, under a fixed budget.

usage: bench/lengths.py KVFATE MODEL [--method trimkv:chunk=64] [-B 128] [--probes lean] [--most 32768] [--rounds 3]

All three grow linearly with the length.  Lengths alternate and medians are printed, because machines are shared and
noisy.  Beyond the model's context its rotary positions are stretched (--rope-scale yarn), without cost.  Standard
library only.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile


def run(args, ids, trace, context):
    """Return CPU seconds, peak MB and trace bytes of one run."""
    command = [args.kvfate, "run", "-m", args.model, "--ids", ids, "-n", "1", "--ignore-eos", "--method", args.method, "-B", str(args.budget),
               "--probes", args.probes, "-q", "--overwrite", "-t", "2", "-o", trace]
    length = int(os.path.basename(ids))
    if length >= context:
        command += ["--rope-scale", f"yarn:{-(-(length + 1) // context)}"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {child.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3, os.path.getsize(trace)


def context_of(args):
    facts = json.loads(subprocess.run([args.kvfate, "models", args.model, "--json"], check=True, capture_output=True, text=True).stdout)
    return find(facts, "context") or 8192


def find(tree, key):
    if isinstance(tree, dict):
        return tree.get(key) or next((x for x in (find(v, key) for v in tree.values()) if x), None)
    if isinstance(tree, list):
        return next((x for x in (find(v, key) for v in tree) if x), None)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kvfate")
    parser.add_argument("model")
    parser.add_argument("--method", default="trimkv:chunk=64")
    parser.add_argument("-B", "--budget", type=int, default=128)
    parser.add_argument("--probes", default="lean")
    parser.add_argument("--most", type=int, default=32768)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    lengths = [1024 << i for i in range(20) if 1024 << i <= args.most]
    context = context_of(args)
    rows = {n: [] for n in lengths}
    with tempfile.TemporaryDirectory() as folder:
        rng = random.Random(7)
        for n in lengths:
            with open(os.path.join(folder, str(n)), "w", encoding="ascii") as f:
                f.write(" ".join(str(rng.randrange(1000, 40000)) for _ in range(n)))
        for _ in range(args.rounds):
            for n in lengths:
                rows[n].append(run(args, os.path.join(folder, str(n)), os.path.join(folder, "x.kvf"), context))
    print(f"{args.method}, B = {args.budget}, --probes {args.probes}; seconds of the processor, medians of {args.rounds}")
    print(f"{'tokens':>8s} {'seconds':>9s} {'ms/token':>9s} {'peak MB':>8s} {'trace KB':>9s} {'B/token':>8s}")
    for n in lengths:
        seconds, peak, trace = (statistics.median(column) for column in zip(*rows[n]))
        print(f"{n:8d} {seconds:9.2f} {1e3 * seconds / n:9.3f} {peak:8.0f} {trace / 1e3:9.0f} {trace / n:8.1f}")


main()
