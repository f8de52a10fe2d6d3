#!/usr/bin/env python3
"""usage: capture.py [--model GGUF] [--tokens 512,1024,2048,4096] [--answer 32] [--probes paper] [--repeat 3] [--threads N]

Measure the cost of kvfate.capture: time and peak memory of the same generation with and without it, alternating, as
a table.  Each run is a separate process.  It loads the model, generates a few tokens to warm up, and resets its peak
memory.  MiB are the peak after that, and `KiB per token` divides it by the tokens: constant values mean that memory
is linear in the tokens.  It needs Linux, torch, transformers and gguf, and LD_LIBRARY_PATH with libkvftrace.so.0.
"""
import argparse
import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
MODEL = os.path.expanduser("~/.cache/kvfate/SmolLM2-135M-Instruct.Q4_1.gguf")


def held(what):
    """Return the KiB of this process: VmRSS now, VmHWM at peak."""
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith(what))


def forget():
    """Return free memory to the system and reset the peak."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")
    return held("VmRSS")


def one(path, tokens, answer, probes, threads):
    """Generate once in this process; return the seconds of prompt and answer, and the peak memory in bytes."""
    sys.path.insert(0, os.path.join(ROOT, "python"))
    import torch
    import transformers
    import kvfate
    torch.set_num_threads(threads)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(os.path.dirname(path), gguf_file=os.path.basename(path), dtype=torch.float32)
    ids = torch.randint(3, model.config.vocab_size, (1, tokens - answer), generator=torch.Generator().manual_seed(1))

    def run(n, more):
        model.generate(ids[:, :n], attention_mask=torch.ones_like(ids[:, :n]), max_new_tokens=more, min_new_tokens=more, do_sample=False)

    run(16, 2)
    before, start = forget(), time.monotonic()
    if probes:
        with tempfile.TemporaryDirectory() as folder, kvfate.capture(model, None, out=os.path.join(folder, "x.kvf"), probes=probes, most=tokens):
            run(tokens - answer, answer)
    else:
        run(tokens - answer, answer)
    print(json.dumps({"seconds": time.monotonic() - start, "peak": (held("VmHWM") - before) / 1024}))


def again(a, tokens, probes):
    """Run `one` in a separate process."""
    r = subprocess.run([sys.executable, os.path.abspath(__file__), "--model", a.model, "--tokens", str(tokens), "--answer", str(a.answer), "--probes", probes,
                        "--threads", str(a.threads), "--one"], capture_output=True, text=True)
    if r.returncode:
        sys.exit("capture.py: the run of %d tokens ended with %d\n%s" % (tokens, r.returncode, r.stderr))
    return json.loads(r.stdout.splitlines()[-1])


def main():
    p = argparse.ArgumentParser(usage=__doc__.split("\n\n")[0].removeprefix("usage: "))
    p.add_argument("--model", default=MODEL)
    p.add_argument("--tokens", default="512,1024,2048,4096")
    p.add_argument("--answer", type=int, default=32)
    p.add_argument("--probes", default="paper")
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.one:
        return one(a.model, int(a.tokens), a.answer, a.probes, a.threads)
    print("medians of %d runs in turns; probes %s, %d of the tokens generated, %d threads" % (a.repeat, a.probes, a.answer, a.threads))
    print("%6s %8s %11s %6s %10s %14s %13s %14s" % ("tokens", "plain s", "captured s", "times", "plain MiB", "KiB per token", "captured MiB", "KiB per token"))
    for tokens in map(int, a.tokens.split(",")):
        runs = [(again(a, tokens, ""), again(a, tokens, a.probes)) for _ in range(a.repeat)]
        (s0, m0), (s1, m1) = ([statistics.median(r[k][what] for r in runs) for what in ("seconds", "peak")] for k in (0, 1))
        print("%6d %8.2f %11.2f %6.2f %10.1f %14.1f %13.1f %14.1f" % (tokens, s0, s1, s1 / s0, m0, m0 * 1024 / tokens, m1, m1 * 1024 / tokens), flush=True)


if __name__ == "__main__":
    main()
