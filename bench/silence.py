#!/usr/bin/env python3
"""How long commands say nothing to who waits for them: each runs on a terminal of its own, and the longest time without a byte is told.

usage: bench/silence.py [--least SECONDS] COMMAND...      a command is one argument, as a shell takes it

A line for each command: the seconds of the whole, the longest silence, and, where that is above --least (1), SILENT.  Other work on the machine lengthens
both; the seconds of the processor stand beside them.  Its status is 1 where a command was silent for longer.
"""
import argparse
import os
import pty
import select
import sys
import time


def watch(command):
    """(seconds, seconds of the processor, the longest silence, the status) of a command on a terminal."""
    before, began = os.times(), time.monotonic()
    pid, terminal = pty.fork()
    if pid == 0:
        os.execl("/bin/sh", "sh", "-c", command)
    last, longest = began, 0
    while True:
        ready = select.select([terminal], [], [], 0.05)[0]
        try:
            said = os.read(terminal, 65536) if ready else None
        except OSError:  # the other side is closed
            said = b""
        now = time.monotonic()
        if said is not None:
            longest, last = max(longest, now - last), now
        if said == b"":
            break
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    now, after = time.monotonic(), os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    os.close(terminal)
    return now - began, cpu, max(longest, now - last), status


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--least", type=float, default=1)
    parser.add_argument("command", nargs="+")
    q = parser.parse_args()
    silent = 0
    print("%8s %8s %8s" % ("seconds", "cpu", "silence"))
    for command in q.command:
        seconds, cpu, longest, status = watch(command)
        said = ("  SILENT" if longest > q.least else "") + ("  status %d" % status if status else "")
        silent += longest > q.least
        print("%8.1f %8.1f %8.1f%s  %s" % (seconds, cpu, longest, said, command), flush=True)
    return silent > 0


if __name__ == "__main__":
    sys.exit(main())
