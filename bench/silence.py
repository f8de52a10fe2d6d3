#!/usr/bin/env python3
"""Measure how long commands print nothing: each runs on its own terminal, and the script reports the longest time
without output.

usage: bench/silence.py [--least SECONDS] [--slow N] COMMAND...
       bench/silence.py [--least SECONDS] [--slow N] [--only NAME,...] --all KVFATE FOLDER

A COMMAND is one argument, as for a shell.  --all watches every command of `kvfate -h`, as listed in bench/waits.py,
on inputs of the default model that take some seconds.  It fails if the list lacks a command.  The first call makes
the inputs in FOLDER, which takes some minutes and 2 GB. export and import need a Python with NumPy (KVFATE_PYTHON).

Each command gets a line: wall and CPU seconds in total and of its longest silence.  If both of a silence exceed
--least (1), the line has SILENT and the last text on the terminal before it.  Other work on the machine increases
only the wall time.  --slow N runs a command in one of N time slices, as on a machine N times as slow, and counts its
CPU seconds N times.  The status is 1 if a command was silent for too long.
"""
import argparse
import os
import pty
import select
import signal
import sys
import threading
import time

import waits


def slow_down(group, factor, over):
    """Let a group of processes run in only one of `factor` time slices."""
    moment = 0.02
    try:
        while not over.wait(moment):
            os.killpg(group, signal.SIGSTOP)
            over.wait(moment * (factor - 1))
            os.killpg(group, signal.SIGCONT)
    except ProcessLookupError:
        pass


def used(group):
    """Return the CPU seconds that the processes of a session have used."""
    ticks = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                field = f.read().rpartition(")")[2].split()
        except OSError:  # the process has ended
            continue
        if int(field[3]) == group:
            ticks += sum(map(int, field[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Silence:
    """The longest time without output, in wall and CPU seconds."""

    def __init__(self, group, slow):
        self.group, self.slow = group, slow
        self.clock, self.cpu, self.shown, self.where = 0, 0, b"", b""
        self.last, self.last_cpu, self.now_cpu = time.monotonic(), 0, 0

    def go_on(self):
        """Record that there is still no output; the CPU time of an ended process is not available."""
        self.now_cpu = max(self.now_cpu, used(self.group) * self.slow)

    def broken(self, said):
        now = time.monotonic()
        if now - self.last > 0.3:
            self.go_on()
        clock, cpu = now - self.last, max(0, self.now_cpu - self.last_cpu)
        if min(clock, cpu) > min(self.clock, self.cpu):
            self.clock, self.cpu, self.where = clock, cpu, self.shown
        self.last, self.last_cpu, self.shown = now, self.now_cpu, (self.shown + said)[-200:]


def watch(command, folder=".", slow=1):
    """Return (seconds, CPU seconds, the longest silence, the status) of a command on a terminal."""
    before, began = os.times(), time.monotonic()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execl("/bin/sh", "sh", "-c", command)
    over = threading.Event()
    if slow > 1:
        threading.Thread(target=slow_down, args=(pid, slow, over), daemon=True).start()
    silence = Silence(pid, slow)
    while True:
        ready = select.select([terminal], [], [], 0.05)[0]
        try:
            said = os.read(terminal, 65536) if ready else None
        except OSError:  # the process closed its side
            said = b""
        if said is None:
            silence.go_on()
        else:
            silence.broken(said)
        if said == b"":
            break
    over.set()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    now, after = time.monotonic(), os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    os.close(terminal)
    return now - began, cpu, silence, status


def last_line(shown):
    """Return the text on the terminal's line with the cursor."""
    lines = [x for x in shown.decode(errors="replace").replace("\x1b[K", "").replace("\n", "\r").split("\r") if x.strip()]
    return lines[-1].strip() if lines else "nothing"


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\n")[0])
    parser.add_argument("--least", type=float, default=1)
    parser.add_argument("--slow", type=int, default=1)
    parser.add_argument("--only", type=lambda s: s.split(","))
    parser.add_argument("--all", nargs=2, metavar=("KVFATE", "FOLDER"), type=os.path.abspath)
    parser.add_argument("command", nargs="*")
    q = parser.parse_args()
    folder, commands = ".", q.command
    if q.all:
        folder = q.all[1]
        commands += waits.commands(q.all[0], folder, q.only)
    silent = 0
    print("%8s %8s %8s %8s" % ("seconds", "cpu", "silence", "cpu"))
    for command in commands:
        seconds, cpu, x, status = watch(command, folder, q.slow)
        long = min(x.clock, x.cpu) > q.least
        said = ("  SILENT after '%s'" % last_line(x.where) if long else "") + ("  status %d" % status if status else "")
        silent += long or status != 0
        print("%8.1f %8.1f %8.1f %8.1f  %s%s" % (seconds, cpu, x.clock, x.cpu, command, said), flush=True)
    return silent > 0


if __name__ == "__main__":
    sys.exit(main())
