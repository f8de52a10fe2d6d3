#!/usr/bin/env python3
"""Measure time and memory of listing, selecting and aggregating thousands of traces.

usage: bench/pool.py KVFATE MODEL [N [FOLDER]]     (10000; MODEL: build/tests/engine/tiny6.gguf)

It makes N small traces of N prompts, half under h2o and half under window.  It then measures `ls`, `ls --where` and
`corpus eviction` over N / 10 and over all of them.  It prints a line for each: wall and CPU seconds, peak memory.
The page cache is warm.  Traces that FOLDER has are kept.
"""
import json
import os
import random
import sys
import tempfile
import time

WORDS = "the of and to in is it that was for on as with his they at be this from have or by one had not but what all were when".split()


def measure(argv):
    """Return (seconds, CPU seconds, peak bytes) of a command."""
    start = time.monotonic()
    pid = os.fork()
    if pid == 0:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.execv(argv[0], argv)
    _, status, used = os.wait4(pid, 0)
    if status:
        sys.exit(f"{argv}: status {status}")
    return time.monotonic() - start, used.ru_utime + used.ru_stime, used.ru_maxrss << 10


def write_prompts(path, n):
    chance = random.Random(1)
    with open(path, "w", encoding="ascii") as f:
        for i in range(n):
            f.write(json.dumps({"id": f"p{i:06}", "text": " ".join(chance.choices(WORDS, k=10)), "n": 6}) + "\n")


def make(kvfate, model, folder, n):
    for method, budget in (("h2o", 12), ("window", 16)):
        prompts = os.path.join(folder, f"{method}.jsonl")
        write_prompts(prompts, n // 2)
        seconds, cpu, _ = measure([kvfate, "run", "-m", model, "--jsonl", prompts, "--ignore-eos", "--method", method, "-B", str(budget),
                                   "-t", "1", "-q", "-o", os.path.join(folder, method)])
        print(f"made {n // 2} under {method}: {seconds:.1f} s, {cpu:.1f} s of the processor", flush=True)


def lists(folder, n):
    """Write a file with the names of the first n traces, half of each method."""
    path = os.path.join(folder, f"{n}.list")
    names = [os.path.join(folder, m, f"p{i:06}.kvf") for m in ("h2o", "window") for i in range(n // 2)]
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(x + "\n" for x in names)
    return path


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    kvfate, model = map(os.path.abspath, sys.argv[1:3])
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 10000
    with tempfile.TemporaryDirectory(prefix="kvfate-pool-") as work:
        folder = sys.argv[4] if len(sys.argv) > 4 else work
        os.makedirs(folder, exist_ok=True)
        make(kvfate, model, folder, n)
        size = sum(os.path.getsize(os.path.join(folder, m, x)) for m in ("h2o", "window") for x in os.listdir(os.path.join(folder, m)))
        print(f"{n} traces, {size / 2**20:.0f} MiB")
        print(f"{'traces':>8} {'command':24} {'seconds':>8} {'cpu':>8} {'MiB':>8}")
        for count in (n // 10, n):
            given = "@" + lists(folder, count)
            for argv in (["trace", "ls", given, "-o", "-"], ["trace", "ls", given, "--where", "method=h2o budget<=12", "-o", "-"],
                         ["corpus", "eviction", given, "-t", "1", "-o", "-"], ["corpus", "eviction", given, "--where", "method=h2o", "-t", "1", "-o", "-"]):
                seconds, cpu, most = measure([kvfate, *argv])
                name = " ".join(x for x in argv[:2] if not x.startswith("@")) + (" --where" if "--where" in argv else "")
                print(f"{count:8} {name:24} {seconds:8.2f} {cpu:8.2f} {most / 2**20:8.1f}", flush=True)


if __name__ == "__main__":
    main()
