#!/usr/bin/env python3
"""Measure the memory of gate training against the length of a pack: peak RSS and bytes of activations, one step each.

usage: bench/train_memory.py KVFATE [-m MODEL.gguf] [--lengths 512,1024,2048,4096,8192] [--method trimkv] [--threads
2]

Each length runs with and without --recompute on a text made here.  The last column is the peak RSS of 1,024 more
tokens, compared with the previous length: it is constant if memory is O(T). Standard library only.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

WORDS = "the rain fell on a small town while two old friends spoke of rivers and long roads north".split()


def write_text(path, tokens):
    """One article of more than `tokens` tokens; with --share 1 all of it trains."""
    rng = random.Random(3)
    with open(path, "w", encoding="ascii") as f:
        f.write(" = Title = \n" + " ".join(rng.choice(WORDS) for _ in range(2 * tokens)) + " .\n")


def step(args, folder, length, recompute):
    """Tokens, activation bytes, peak RSS in bytes and seconds of one step."""
    text, out = os.path.join(folder, f"{length}.txt"), os.path.join(folder, "gates.safetensors")
    write_text(text, length)
    command = [args.kvfate, "train", *(["-m", args.model] if args.model else []), "--data", text, "--method", args.method,
               "--steps", "1", "--length", str(length), "--share", "1", "--check-every", "0", "--fresh", "--json",
               "-t", str(args.threads), "-o", out, *(["--recompute"] if recompute else [])]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, "KVFATE_CACHE": folder})
    said = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{' '.join(command)}: exit {child.returncode}")
    done = json.loads(said)
    return done["tokens"], done["activation_bytes"], usage.ru_maxrss * 1024, done["seconds"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kvfate")
    parser.add_argument("-m", "--model")
    parser.add_argument("--lengths", default="512,1024,2048,4096,8192")
    parser.add_argument("--method", default="trimkv")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    if not args.model:
        cache = os.environ.get("KVFATE_CACHE") or os.path.expanduser("~/.cache/kvfate")
        args.model = os.path.join(cache, "SmolLM2-135M-Instruct.Q4_1.gguf")
    print("recompute\ttokens\tactivation_MiB\tpeak_rss_MiB\tseconds\tMiB_per_1024_tokens_more")
    with tempfile.TemporaryDirectory() as folder:
        for recompute in (False, True):
            before = None
            for length in map(int, args.lengths.split(",")):
                tokens, activations, peak, seconds = step(args, folder, length, recompute)
                slope = (peak - before[1]) / (tokens - before[0]) / 1024 if before else float("nan")
                print(f"{recompute:d}\t{tokens}\t{activations / 2**20:.1f}\t{peak / 2**20:.1f}\t{seconds:.2f}\t{slope:.1f}", flush=True)
                before = tokens, peak


if __name__ == "__main__":
    main()
