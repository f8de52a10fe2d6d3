#!/usr/bin/env python3
"""Texts of tens of thousands of tokens: the time is linear if a method bounds the cache, the memory
is always linear, and the correct entries stay. Contexts beyond that of the model work only with
--rope-scale. Also prompts from files of many megabytes."""
import os

import numpy as np

from harness import Gguf, Suite

s = Suite()
LONG = os.environ.get("KVFATE_TESTS") == "long"
B, SINKS, CHUNK = 512, 4, 256
# Bytes per token for two layers of four query heads and two KV heads: 48 per query head for
# --probes paper with steps of 4 bytes, 18 per KV head for evictions, 157 per thread for rows of
# scores, 64 for tokens, texts and data to write. Half of it is added for lists that double.
PER_TOKEN = 1.5 * (8 * 48 + 4 * 18 + 2 * 157 + 64)
HUGE_PAGE = 2 << 20  # the unit in which memory may be allocated


def ids(n):
    return s.file(f"{n}.txt", " ".join(str(i * 7919 % 297 + 3) for i in range(n)).encode())


def model(context):
    g = Gguf()
    return g.set("llama.context_length", context).write(s.path(f"{context}.gguf"))


def run(n, method, *more, context=262144):
    return ["run", "-m", model(context), "--ids", ids(n), "-n", "1", "-t", "2", "-q", "--overwrite", "--method", method, "-B", str(B),
            "-o", s.path("out.kvf"), *more]


def peak(argv, name, seconds):
    s.most = 0
    s.bounded(name, argv, codes=(0,), seconds=seconds)
    return s.most


def alive():
    """Returns [layer][head] positions that are cached at the end."""
    out = s.path("e.npz")
    s.accepted("eviction", ["eviction", s.path("out.kvf"), "-o", out])
    with np.load(out) as z:
        left = z["evict_step"] < 0
        return {(l, h): z["token"][left & (z["layer"] == l) & (z["index"] == h)] for l in set(z["layer"]) for h in set(z["index"])}


# ---- bounded caches: the method determines the kept entries, the length determines the memory
lengths = (16384, 32768, 131072) if LONG else (16384, 32768)
peaks = []
for n in lengths:
    peaks.append(peak(run(n, f"window:sinks={SINKS},chunk={CHUNK}"), f"window, {n} tokens", 60 if n > 1 << 16 else 10))
    want = np.r_[:SINKS, n - (B - SINKS):n]
    s.check(f"window, {n} tokens: what is left", all(np.array_equal(x, want) for x in alive().values()))


def growth():
    return [(b - a - HUGE_PAGE) / (m - n) for a, b, n, m in zip(peaks, peaks[1:], lengths, lengths[1:])]


# Unwritten data grow if other work slows the writer down, so the minimum of three runs is the run's
# own need.
for again in range(2):
    if max(growth()) > PER_TOKEN:
        peaks = [min(p, peak(run(n, f"window:sinks={SINKS},chunk={CHUNK}"), f"window, {n} tokens again", 60)) for p, n in zip(peaks, lengths)]
if "ASAN_OPTIONS" not in os.environ:
    s.check("memory by length", max(growth()) <= PER_TOKEN, growth(), PER_TOKEN)
for method in ("h2o", "trimkv:score=random"):
    text = method + (":" if ":" not in method else ",") + f"chunk={CHUNK}"
    n = lengths[-1] if LONG else 4096
    peak(run(n, text), f"{text}, {n} tokens", 60)
    s.check(f"{text}: the budget", all(len(x) == B for x in alive().values()))
if LONG:
    peak(run(32768, "full", "--kv-type", "q8_0"), "full, 32768 tokens", 120)

# ---- beyond the context
c = 8192 if LONG else 2048
s.refused("4 contexts", run(4 * c, "window", context=c), 1, f"{4 * c}", f"{c}", "--rope-scale")
s.accepted("4 contexts, scaled", run(4 * c, f"window:chunk={CHUNK}", "--rope-scale", "yarn:4", "--probes", "evict", context=c))
s.refused("4 contexts and a token", run(4 * c + 1, "window", "--rope-scale", "yarn:4", context=c), 1, f"{4 * c + 1}", f"{4 * c}", "factor")

# ---- large files: every digit is one token, so that the number of tokens is known
size = 50_000_000 if LONG else 5_000_000
digits = s.file("digits.txt", (b"31415926535897932384 "[:20] * (size // 20)))
say = ["generate", "-m", model(8192), "--raw", "-n", "1", "-f"]
s.bounded(f"a file of {size} digits", [*say, digits], seconds=2 + size // 1_000_000, words=(f"{size} tokens", "8192"), memory=(64 << 20) + 40 * size)
with open(digits, "rb") as f:
    r = s.run([*say, "-"], stdin=f)
s.check("the same from standard input", r.returncode == 1 and f"{size} tokens" in r.stderr.decode(), r.stderr)
s.finish()
