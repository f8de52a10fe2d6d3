#!/usr/bin/env python3
"""Check the probes `window` and `under` of real runs against dense T x T attention in float64.

usage: test_windows.py KVFATE DUMP GEN_TINY
"""
import hashlib
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import dense
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, kvfate  # noqa: E402

dump, gen_tiny = map(os.path.abspath, sys.argv[2:4])
LENGTH, BLOCK, N = dense.LENGTH, dense.BLOCK, dense.WINDOWS
SHARES = {"0.0001": 1e-4, "0.001": 1e-3, "0.01": 1e-2, "0.1": 1e-1}
CLOSE = 1e-4  # relative rounding of a weight of the run, which computes in float32

# name, gen_tiny options, prompt, T, run options
CASES = [
    ("group 1, 40", "--heads 2 --kv-heads 2 --dim 32", 20, 40, "--method full"),
    ("group 2, 15", "--heads 4 --kv-heads 2", 15, 15, "--method full"),
    ("group 3, 300", "--heads 3 --kv-heads 1 --dim 96", 261, 300, "--method full --chunk 100"),
    ("group 3, 700", "--heads 6 --kv-heads 2 --dim 64 --seed 3", 650, 700, "--method full"),
    ("h2o, 300", "--heads 4 --kv-heads 2 --seed 4", 120, 300, "--method h2o --budget 72"),
    ("tova, 530", "--heads 3 --kv-heads 1 --dim 96 --seed 5", 7, 530, "--method tova --budget 40"),
    ("window, 700", "--heads 2 --kv-heads 1 --dim 32 --seed 6", 690, 700, "--method window --budget 48"),
    ("keydiff, 512", "--heads 3 --kv-heads 3 --dim 96 --seed 7", 400, 512, "--method keydiff --budget 99"),
]


def call(*argv):
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, errors="replace")
    if done.returncode:
        sys.exit(f"{argv}: {done.returncode}: {done.stderr}")
    return done.stdout


def model(path, options):
    """Make a tiny model with a sufficient context."""
    call(sys.executable, gen_tiny, *options.split(), "-o", path)
    b = Path(path).read_bytes()
    key = b"llama.context_length" + struct.pack("<I", 4)
    assert b.count(key + struct.pack("<I", 512)) == 1
    Path(path).write_bytes(b.replace(key + struct.pack("<I", 512), key + struct.pack("<I", 1024)))
    return path


def run(gguf, folder, prompt, T, options, threads):
    Path(os.path.join(folder, "ids")).write_text(" ".join(map(str, np.random.RandomState(T).randint(3, 259, prompt))))
    out = os.path.join(folder, "x.kvf")
    call(kvfate, "run", "--overwrite", "-m", gguf, "--ids", os.path.join(folder, "ids"), "-n", T - prompt + 1 if T > prompt else 0,
         "--exact", "--ignore-eos", *options.split(), "--probes", "evict,window,under", "-t", threads, "-q", "-o", out)
    return out


def columns(trace, folder):
    found = {}
    for line in call(dump, trace, folder).splitlines():
        name, *shape = line.split()
        found[name] = np.fromfile(os.path.join(folder, name + ".f64")).reshape([int(x) for x in shape])
    return found


def under(p, alpha, H):
    """Return {P: minimum counts, maximum counts}, and entries seen."""
    L, G, T, _ = p.shape
    seen = np.repeat(alpha, G // H, 1)
    top = p.max(-1, keepdims=True)
    at = lambda share, slack: (seen & (p < share * top * (1 + slack))).sum(-1)
    return {name: (at(s, -2 * CLOSE), at(s, 2 * CLOSE)) for name, s in SHARES.items()}, seen.sum(-1)


def verify(name, options, prompt, T, method, folder):
    gguf = model(os.path.join(folder, "m.gguf"), options)
    trace = run(gguf, folder, prompt, T, method, 2)
    col = columns(trace, folder)
    net, ids = dense.Llama(gguf), col["tokens.id"][0, 0].astype(int)
    check(f"{name}: length", len(ids) == T, len(ids))
    evict = np.where(col["evict_step"] == 0xffffffff, np.inf, col["evict_step"])
    check(f"{name}: evicts", np.isfinite(evict).any() == ("full" not in method))
    alpha = dense.alpha_of(evict, T)
    p, _, _ = net.run(ids, alpha)
    want = dense.windows(p, net.H)
    for column, v in want.items():
        got = col[column]
        check(f"{name}: {column}", np.allclose(got, v, rtol=CLOSE, atol=2e-7, equal_nan=True), np.nanmax(np.abs(got - v), initial=0))
    known = [w for w in want if not np.isnan(want[w]).all()]
    check(f"{name}: known", len(known) == sum(T - T % BLOCK >= LENGTH * k + n for k in range(N) for n in (LENGTH, BLOCK)), known)
    counts, seen = under(p, alpha, net.H)
    check(f"{name}: seen", (col["under.seen"] == seen).all())
    for share, (low, high) in counts.items():
        got = col["under." + share]
        check(f"{name}: under {share}", got.shape == low.shape and ((low <= got) & (got <= high)).all())
        check(f"{name}: under {share} is not settled", (low != high).mean() < .05, (low != high).mean())
    if net.G > net.H and known:  # the mean of the maxima is not the maximum of the means
        G, H = net.G, net.H
        w = known[-1]
        b = T - T % BLOCK
        a = b - (LENGTH if "16" not in w else BLOCK)
        other = p.reshape(net.L, H, G // H, T, T)[:, :, :, a:b, :b].mean(3).max(2)
        check(f"{name}: telling", np.abs(other - want[w][:, :, :b]).max() > 100 * 2e-7 + .05 * want[w][:, :, :b].max(), w)
    return gguf, trace


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def same_bytes(folder):
    """Check that threads and chunks change no bit, also for a method that reads pages by query head."""
    gguf = model(os.path.join(folder, "s.gguf"), "--heads 6 --kv-heads 2 --dim 64 --seed 9")
    for method in ("--method full", "--method h2o --budget 40", "--method quest --budget 48"):
        seen = {digest(run(gguf, folder, 301, 330, f"{method} {chunk}", threads))
                for chunk, threads in (("", 1), ("", 4), ("--chunk 7", 3), ("--chunk 512", 2))}
        check("same bytes: " + method, len(seen) == 1, seen)
    plain = []
    for probes in ("nll,survival,evict", "nll,survival,evict,window"):
        out = os.path.join(folder, "p.kvf")
        call(kvfate, "run", "--overwrite", "-m", gguf, "--ids", os.path.join(folder, "ids"), "-n", 30, "--exact", "--ignore-eos", "--method", "h2o",
             "--budget", 40, "--probes", probes, "-t", 2, "-q", "-o", out)
        plain.append(columns(out, folder))
    check("it only watches", all(np.array_equal(v, plain[1][k], equal_nan=True) for k, v in plain[0].items()))


with tempfile.TemporaryDirectory(prefix="kvfate-windows-") as top:
    for case in CASES:
        verify(*case, top)
    same_bytes(top)

finish()
