#!/usr/bin/env python3
"""Measure prefill and decode speed and the cost of the probes, with each set of kernels.

vs_peers.sh measures other engines.

usage: bench/speed.py KVFATE MODEL [--rounds 5] [--reference]

Runs alternate (one of each kind in every round) and medians are printed, because machines are shared and noisy.
--reference adds the C reference kernels (minutes). Standard library only.
"""
import argparse
import json
import os
import random
import re
import statistics
import subprocess
import tempfile
import time

THREADS = "2"
PREFILL, DECODE, LONG = 512, 64, 2000


def kvfate(args, prompt, mask=None, trace=None, probes=None, predict=1, threads=THREADS):
    """Run once; return its JSON summary."""
    command = [args.kvfate, "run" if trace else "generate", "-m", args.model, "--ids", prompt, "-n", str(predict),
               "--ignore-eos", "--threads", threads, "--json", "-q"]
    if trace:
        command += ["-o", trace, "--overwrite", "--probes", probes]
    env = dict(os.environ)
    if mask is not None:
        env["KVFATE_CPU_MASK"] = mask
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def write_ids(path, n):
    """Fixed pseudo-random ids away from the control tokens."""
    rng = random.Random(7)
    with open(path, "w", encoding="ascii") as f:
        f.write(" ".join(str(rng.randrange(1000, 40000)) for _ in range(n)))


def memory_bandwidth():
    """GB/s of a plain copy, as the machine's limit for decode (reads plus writes)."""
    size = 256 << 20
    source, target, best = bytearray(size), bytearray(size), 0.0
    for _ in range(4):
        t0 = time.perf_counter()
        target[:] = source
        best = max(best, 2 * size / (time.perf_counter() - t0) / 1e9)
    return best


class Table:
    def __init__(self):
        self.values = {}

    def add(self, name, value):
        self.values.setdefault(name, []).append(value)

    def median(self, name):
        return statistics.median(self.values[name]) if name in self.values else None

    def show(self, name, base=None):
        v = self.values[name]
        ratio = f"   x{self.median(name) / self.median(base):.2f} of {base}" if base in self.values else ""
        print(f"{name:34s} {self.median(name):9.1f}   ({min(v):.1f} .. {max(v):.1f}){ratio}")


def measure(args, folder):
    table = Table()
    short, long_, tiny = (os.path.join(folder, n) for n in ("short", "long", "tiny"))
    write_ids(short, PREFILL)
    write_ids(long_, LONG)
    write_ids(tiny, 1)
    trace = os.path.join(folder, "t.kvf")
    masks = {"avx512": None, "avx2": "1"}
    for _ in range(args.rounds):
        for name, mask in masks.items():
            table.add(f"prefill {PREFILL}, {name}", kvfate(args, short, mask)["prefill_tokens_per_second"])
            r = kvfate(args, tiny, mask, predict=DECODE + 1)
            table.add(f"decode {DECODE}, {name}", r["decode_tokens_per_second"])
        table.add(f"prefill {LONG}, no trace", kvfate(args, long_)["prefill_tokens_per_second"])
        for probes in ("nll", "lean", "paper"):
            r = kvfate(args, long_, trace=trace, probes=probes)
            table.add(f"prefill {LONG}, --probes {probes}", r["prefill_tokens_per_second"])
            table.add(f"bytes per token, {probes}", r["trace_bytes"] / LONG)
    if args.reference:
        table.add(f"prefill {PREFILL}, C reference", kvfate(args, short, "0")["prefill_tokens_per_second"])
        table.add(f"decode {DECODE}, C reference",
                  kvfate(args, tiny, "0", predict=17)["decode_tokens_per_second"])
    return table


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        return re.search(r"model name\s*:\s*(.*)", f.read()).group(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kvfate")
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--reference", action="store_true")
    args = parser.parse_args()
    print(f"{cpu_name()}, {THREADS} threads, copy {memory_bandwidth():.1f} GB/s; tokens/s, medians (range)")
    with tempfile.TemporaryDirectory() as folder:
        table = measure(args, folder)
    for name in table.values:
        base = f"prefill {LONG}, no trace"
        table.show(name, base if name.startswith(f"prefill {LONG}") and name != base else None)


main()
