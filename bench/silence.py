#!/usr/bin/env python3
"""How long commands say nothing to who waits for them: each runs on a terminal of its own, and the longest time without a byte is told.

usage: bench/silence.py [--least SECONDS] [--slow N] COMMAND...
       bench/silence.py [--least SECONDS] [--slow N] [--only NAME,...] --all KVFATE FOLDER

A COMMAND is one argument, as a shell takes it.  --all watches every command of `kvfate -h`, as bench/waits.py has them, on inputs of the default model
that take some seconds, and fails where it has no line of a command.  The inputs are made in FOLDER at the first call, which takes some minutes and 2 GB;
export and import need a Python with NumPy (KVFATE_PYTHON).

A line for each command: the seconds of the whole and those of the processor; of its longest silence the same two; and, where both of a silence are above
--least (1), SILENT and what the terminal showed last before it.  Other work on the machine lengthens the seconds alone.  --slow N lets a command run for one
of N moments, as on a machine N times as slow, and its seconds of the processor count N times.  The status is 1 where a command was silent for longer.
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
    """Lets a group of processes run for one of so many moments alone."""
    moment = 0.02
    try:
        while not over.wait(moment):
            os.killpg(group, signal.SIGSTOP)
            over.wait(moment * (factor - 1))
            os.killpg(group, signal.SIGCONT)
    except ProcessLookupError:
        pass


def used(group):
    """Seconds of the processor that the processes of a session have used."""
    ticks = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                field = f.read().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(field[3]) == group:
            ticks += sum(map(int, field[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Silence:
    """The longest time without a byte, of the clock and of the processor."""

    def __init__(self, group, slow):
        self.group, self.slow = group, slow
        self.clock, self.cpu, self.shown, self.where = 0, 0, b"", b""
        self.last, self.last_cpu, self.now_cpu = time.monotonic(), 0, 0

    def go_on(self):
        """Nothing was said; an ended process cannot be asked what it used."""
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
    """(seconds, seconds of the processor, the longest silence, the status) of a command on a terminal."""
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
        except OSError:  # the other side is closed
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
    """What stands on the line of the terminal where the cursor is."""
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
