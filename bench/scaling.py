#!/usr/bin/env python3
"""Measure strong scaling of `kvfate eval` over the cores of this machine, and simulate up to 1,024 ranks from the
measurements.

usage: bench/scaling.py KVFATE MODEL DATA [DOCS [CELLS]]     (16 documents; 20000 cells are simulated)

Measured, in CPU seconds if others may use the machine: the start of a rank, each document, and the merge of results
per row.  The simulation follows cli/crew.c event by event.  A free rank asks rank 0. Its thread looks for messages
every 2 ms and answers each in the time of one message; the waiting rank does the same.  Ranks report that they are
alive four times a second.  At the end rank 0 merges all files.  Efficiency is the work of all cells divided by ranks
times total time.  The table divides the rest into the start, waiting for answers, the last cells, and the merge.
"""
import heapq
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time

POLL, MESSAGE = 0.002, 5e-6  # seconds between polls (cli/crew.c), and of a message through shared memory or a fast network, which is an assumption
METHODS, BUDGETS = "full,window,h2o,snapkv", "32,64"
ROWS = 7


def run(argv):
    """Return (seconds, CPU seconds) of a command."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{argv}: {done.stderr[-500:]}")
    return time.monotonic() - start, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measured(kvfate, model, data, docs, work):
    """Return (seconds of a start, [seconds of a cell], seconds of a merge per row)."""
    base = [kvfate, "eval", "-m", model, "--data", data, "--docs", str(docs), "--prompt-tokens", "160", "--score-tokens", "48", "--methods", METHODS,
            "--budgets", BUDGETS, "-t", "1"]
    state = os.path.join(work, "all.state")
    run([*base, "--state", state])
    start = min(run([*base, "--state", state])[1] for _ in range(3))
    cells = []
    for i in range(1, docs + 1):
        part = os.path.join(work, f"part{i}.state")
        cells.append(max(1e-4, run([*base, "--shard", f"{i}/{docs}", "--state", part])[1] - start))
    parts = [os.path.join(work, f"part{i}.state") for i in range(1, docs + 1)]
    with open(state, encoding="utf-8") as f:
        lines = f.read().splitlines(keepends=True)
    head = next(i for i, line in enumerate(lines) if not line.startswith("#")) + 1
    many = os.path.join(work, "many.state")
    with open(many, "w", encoding="utf-8") as f:
        f.writelines(lines[:head])
        for i in range(2000):
            f.writelines(f"{i}\t" + line.split("\t", 1)[1] for line in lines[head:head + ROWS])
    merge = run([kvfate, "corpus", "merge", many, "--state", os.path.join(work, "out.state")])[1] / (2000 * ROWS)
    run([kvfate, "corpus", "merge", *parts, "--state", os.path.join(work, "out.state")])
    return start, cells, merge


def simulate(ranks, times, start, merge):
    """Return {phase: seconds} of one run of these cells."""
    free, waited, busy, asked = [(start, r) for r in range(ranks)], 0.0, 0.0, 0
    heapq.heapify(free)
    served, last = 0.0, start
    for cell in times:
        at, r = heapq.heappop(free)
        looked = at if r == 0 else (int(at / POLL) + 1) * POLL  # the thread of rank 0 sees the request
        served = max(served, looked) + (0 if r == 0 else 2 * MESSAGE)
        asked += 2 * (r > 0)
        # Messages that ranks are alive use part of the time of rank 0's thread.
        served += 8 * MESSAGE * max(0, ranks - 1) * POLL
        given = served if r == 0 else (int(served / POLL) + 1) * POLL
        waited += given - at
        busy += cell
        last = max(last, given + cell)
        heapq.heappush(free, (given + cell, r))
    tail = sum(last - at for at, _ in free)
    total = last + merge * ROWS * len(times)
    return {"seconds": total, "efficiency": busy / (ranks * total), "start": start / total, "waiting": waited / (ranks * total), "last": tail / (ranks * total),
            "merge": merge * ROWS * len(times) / total, "messages": asked + int(8 * (ranks - 1) * last)}


def on_cores(kvfate, model, data, work, start, cells, merge):
    """Return wall seconds by number of ranks, measured on this machine and simulated for the same cells.  The
    measurement includes other programs and mpirun.
    """
    docs = len(cells)
    mpirun = shutil.which("mpirun")
    if not mpirun:
        return print("no mpirun: the cores of this machine are not tried")
    os.environ.update({"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"})
    first = None
    for n in [2**k for k in range(10) if 2**k <= (os.cpu_count() or 1)]:
        state = os.path.join(work, f"cores{n}.state")
        seconds, _ = run([mpirun, "-n", str(n), kvfate, "eval", "-m", model, "--data", data, "--docs", str(docs), "--prompt-tokens", "160", "--score-tokens",
                          "48", "--methods", METHODS, "--budgets", BUDGETS, "-t", "1", "--state", state, "-o", state + ".tsv"])
        first = first or seconds
        told = simulate(n, cells, start, merge)["seconds"]
        print(f"{n} ranks on this machine: {seconds:.2f} s, efficiency {first / seconds / n:.2f}; simulated: {told:.2f} s")


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    kvfate, model, data = map(os.path.abspath, sys.argv[1:4])
    docs = int(sys.argv[4]) if len(sys.argv) > 4 else 16
    n_cells = int(sys.argv[5]) if len(sys.argv) > 5 else 20000
    with tempfile.TemporaryDirectory(prefix="kvfate-scaling-") as work:
        start, cells, merge = measured(kvfate, model, data, docs, work)
        on_cores(kvfate, model, data, work, start, cells, merge)
    print(f"start {start:.3f} s; {docs} documents of {min(cells):.3f} to {max(cells):.3f} s, mean {sum(cells) / docs:.3f}; merge {merge * 1e6:.1f} us for each row")
    times = random.Random(1).choices(cells, k=n_cells)
    print(f"{'ranks':>6} {'seconds':>10} {'efficiency':>10} {'start':>7} {'waiting':>8} {'last':>7} {'merge':>7} {'messages':>10}")
    for n in (1, 2, 4, 16, 64, 256, 1024):
        r = simulate(n, times, start, merge)
        print(f"{n:6} {r['seconds']:10.1f} {r['efficiency']:10.3f} {r['start']:7.3f} {r['waiting']:8.3f} {r['last']:7.3f} {r['merge']:7.3f} {r['messages']:10}")


if __name__ == "__main__":
    main()
