#!/usr/bin/env python3
"""The long proofs of docs/reference/reliability.md: guarantees of traces, tested many times.

usage: endure.py WHAT [--count N] [--state FILE] [--seed S] [--build DIR]

  flips         single bits of traces flipped, and traces cut at every length
  kills         SIGKILL of `kvfate run` that overwrites an older trace
  other-kills   SIGKILL of every other command that writes a file, in turn
  writers       two to eight writers of one name
  power         losses of power: recorded writes dropped, reordered and torn

Prints counts and findings, and ends with 1 if there are findings. Without --count it runs all cases
described on the page. With --state FILE the counts are stored: an interrupted command continues,
and a finished one prints its result again. The program and the helpers are those of --build
(default: build).
"""
import argparse
import importlib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
WHATS = {"flips": "flips", "kills": "kills", "other-kills": "kills", "writers": "writers", "power": "power"}


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1], add_help=True)
    parser.add_argument("what", choices=WHATS)
    parser.add_argument("--count", type=int)
    parser.add_argument("--state")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--build", default=os.path.join(os.path.dirname(HERE), "build"))
    args = parser.parse_args()
    sys.path[:0] = [os.path.join(HERE, "endure"), os.path.join(HERE, "cli"), os.path.join(HERE, "data", "golden", "tools")]
    import proof
    module = importlib.import_module(WHATS[args.what])
    sys.exit(proof.go(args.what, module.PROOFS[args.what], args))


if __name__ == "__main__":
    main()
