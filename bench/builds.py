#!/usr/bin/env python3
"""Measure one command with several builds of kvfate.

usage: bench/builds.py [--rounds 41] KVFATE [KVFATE ...] -- ARGUMENT [ARGUMENT ...]

For example, before and after a change:

    bench/builds.py old/cli/kvfate new/cli/kvfate -- retention X.kvf --head 3.0 -o map.png

Builds alternate in every round, because machines are shared and their frequency varies.  The script prints the
minimum and the median of wall time and of CPU time of the processes.  Standard library only.
"""
import argparse
import os
import statistics
import subprocess
import sys
import time


def run(argv):
    """Return the wall and CPU milliseconds of a process."""
    start = time.perf_counter()
    p = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    error = p.stderr.read()
    _, status, used = os.wait4(p.pid, 0)
    clock = time.perf_counter() - start
    p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode:
        sys.exit(f"{' '.join(argv)}: exit {p.returncode}: {error.decode(errors='replace').strip()}")
    return 1e3 * clock, 1e3 * (used.ru_utime + used.ru_stime)


def main():
    if "--" not in sys.argv:
        sys.exit(__doc__)
    at = sys.argv.index("--")
    p = argparse.ArgumentParser(usage="builds.py [--rounds N] KVFATE [KVFATE ...] -- ARGUMENT [ARGUMENT ...]")
    p.add_argument("--rounds", type=int, default=41)
    p.add_argument("builds", nargs="+")
    a = p.parse_args(sys.argv[1:at])
    times = [[] for _ in a.builds]
    for _ in range(max(1, a.rounds)):
        for of_build, build in zip(times, a.builds):
            of_build.append(run([build, *sys.argv[at + 1:]]))
    print("| build | clock, least | median | processor, least | median |")
    print("|---|---|---|---|---|")
    for of_build, build in zip(times, a.builds):
        clock, processor = zip(*of_build)
        print(f"| {build} | {min(clock):.1f} | {statistics.median(clock):.1f} | {min(processor):.1f} | {statistics.median(processor):.1f} |")


main()
