#!/usr/bin/env python3
"""usage: test_capture.py KVFATE LIBKVFTRACE SOURCE_ROOT MODEL...

Tests how kvfate.capture converts attention rows, without torch. The program records complete rows
of a tiny model (--watch of every token). capture gets these rows in blocks of any size, and must
give the program's columns: sets, steps and counts exactly. Scores are compared with sums in long
double. MODEL: models of two layers or more, with and without a window."""
import os
import random
import subprocess
import sys
import tempfile

import numpy as np

from capture_checks import KVFATE, begin, refused

begin("capture of attention rows")
from check import check, finish  # noqa: E402
import kvfate  # noqa: E402
from kvfate.capture_rows import PROBES, NumpyArrays, weigh  # noqa: E402
from kvfate.capture_trace import Recording, chosen, watched  # noqa: E402

T = 500
OURS = [p for p in PROBES if p not in ("nll", "keys", "shadow")]  # probes computed from rows only, and evictions by the window


def recorded(folder, model, layer, heads):
    """Runs the program with recorded rows of some heads. Returns the run and the rows
    [heads][T][T]: -1 if a query does not see the entry."""
    path, ids = os.path.join(folder, "engine.kvf"), os.path.join(folder, "ids")
    r = random.Random(5)
    with open(ids, "w") as f:
        f.write(" ".join(str(r.randint(3, 299)) for _ in range(T)))
    watch = "0-%d@%s" % (T - 1, ",".join("L%dH%d" % (layer, h) for h in heads))
    subprocess.run([KVFATE, "run", "-m", model, "--ids", ids, "-n", "0", "--exact", "--probes", "full", "--watch", watch, "-o", path, "--overwrite", "-q"],
                   check=True, stdout=subprocess.DEVNULL)
    trace = kvfate.open(path)
    rows = np.stack([np.stack([trace["received.L%dH%d.%d" % (layer, h, i)][:] for i in range(T)], 1) for h in heads])
    return trace, np.nan_to_num(rows, nan=-1)


def equal(name, got, want):
    got, want = np.asarray(got), np.asarray(want)
    near = want.dtype.kind == "f" and np.allclose(got, want, rtol=2e-6, atol=1e-7, equal_nan=True)
    check(name, got.dtype == want.dtype and got.shape == want.shape and (near or np.array_equal(got, want)),
          got.dtype, want.dtype, np.argwhere(got != want)[:3].tolist() if got.shape == want.shape else (got.shape, want.shape))


def columns(folder, model, layer, heads, seed):
    """Converts the rows of the query heads of one KV head, as a layer of a separate trace."""
    trace, rows = recorded(folder, model, layer, heads)
    group = trace.meta["model"]["query_heads"] // trace.meta["model"]["kv_heads"]
    kv, path, r = heads[0] // group, os.path.join(folder, "capture.kvf"), random.Random(seed)
    window = int((rows[0, -1] >= 0).sum())
    window = window if window < T else None
    rec = Recording(path, NumpyArrays(), [(1, group)], OURS, "7,400@L0H*", {}, (), None, 512, 1e9, "overwrite")
    t, part = 0, rec.layers[0]
    while t < T:
        n = min(T - t, r.choice([1, 2, 15, 16, 33, 100]))
        i0 = 0 if window is None else max(0, t - window + 1)
        rec.feed(trace["tokens.id"][t:t + n], [0] * n)
        w = rows[:, t:t + n, i0:t + n]
        part.entries(np.zeros((1, n, 1), np.float32), t, trace["out_norm"][layer][heads[0]:heads[-1] + 1, t:t + n])
        steps = [trace[name][layer][heads[0]:heads[-1] + 1, t:t + n] for name in ("lse", "entropy")]
        part.take(np.maximum(w, 0), w[:1] >= 0, *steps, t, i0)
        if window is not None:
            part.leave(window, t + n - 1)
        t += n
        if r.random() < 0.2:
            rec.commit()
    rec.close()
    with kvfate.open(path) as mine:
        for name in mine.columns:
            c, what = mine[name], "%s of layer %d of %s" % (name, layer, os.path.basename(model))
            if name.startswith("received"):
                head, token = name.removeprefix("received.L0H").split(".")
                equal(what, c[:], trace["received.L%dH%d.%s" % (layer, heads[int(head)], token)][:])
            elif c.space != "run":
                heads_of = slice(heads[0], heads[-1] + 1) if c.space == "query" else slice(kv, kv + 1)
                want = trace[name][layer][heads_of]
                if name.startswith("evict"):  # the program also evicts after the last query of a prompt, which no query shows
                    want = np.where(trace.evict_step[layer][heads_of] == T, trace[name][layer][heads_of][:, -1:], want)
                equal(what, c[0], want)
    r = subprocess.run([KVFATE, "trace", "verify", "--full", path], capture_output=True, text=True)
    check("verify", r.returncode == 0, r.stderr)


def ties():
    """Among equal weights the larger position comes first, and a row with no more entries is
    selected completely."""
    rec = Recording(os.path.join(FOLDER, "ties.kvf"), NumpyArrays(), [(1, 1)], "survival", None, {}, (), None, 200, 1e9, "overwrite")
    rec.feed(range(100), [0] * 100)
    w = np.tril(np.ones((100, 100), np.float32))
    rec.layers[0].take((w / w.sum(1, keepdims=True))[None].astype(np.float32), w[None] > 0, np.zeros((1, 100)), np.zeros((1, 100)), 0, 0)
    rec.close()
    last = kvfate.open(os.path.join(FOLDER, "ties.kvf"))["last_selected.top64"][0, 0]
    check("ties", last.tolist() == [min(63, 99 - i) for i in range(100)], last)


def scores():
    """Compares weights, log-sum-exp and entropy of random queries with sums in long double, with a
    cap and with a window."""
    rng = np.random.default_rng(2)
    for softcap, window, i0, t0 in ((None, None, 0, 0), (None, None, 0, 30), (3.0, None, 0, 7), (None, 8, 0, 0), (None, 8, 13, 20)):
        q, k = rng.normal(size=(2, 3, 10, 16)).astype(np.float32), rng.normal(size=(2, t0 + 10 - i0, 16)).astype(np.float32)
        w, seen, lse, entropy = weigh(NumpyArrays(), q, k, 0.25, softcap, t0, i0, window)
        for h in range(6):
            for row in range(10):
                see = [i for i in range(i0, t0 + 10) if i <= t0 + row and (window is None or i > t0 + row - window)]
                s = (k[h // 3].astype(np.longdouble) @ q[h // 3, h % 3, row].astype(np.longdouble) * 0.25)[np.array(see) - i0]
                s = np.tanh(s / softcap) * softcap if softcap else s
                p = np.exp(s) / np.exp(s).sum()
                want = np.zeros(k.shape[1])
                want[np.array(see) - i0] = p
                ok = np.allclose(w[h, row], want, atol=1e-6) and np.array_equal(seen[0, row], want > 0)
                check("weights", ok and abs(lse[h, row] - np.log(np.exp(s).sum())) < 1e-5 and abs(entropy[h, row] + (p * np.log(p)).sum()) < 1e-5)


with tempfile.TemporaryDirectory() as FOLDER:
    scores()
    ties()
    for number, model_path in enumerate(sys.argv[4:]):
        columns(FOLDER, model_path, number % 2, [0, 1], number)
        columns(FOLDER, model_path, 1, [2, 3], 10 + number)
    check("sets", chosen("paper,keys") == ["evict", "survival", "mass", "steps", "nll", "keys"] and chosen(["lean"]) == ["evict"])
    check("watched", watched("3,5-6@L0H1,L1H*", [(1, 2)] * 2, 7) == {0: {3: [1], 5: [1], 6: [1]}, 1: {3: [0, 1], 5: [0, 1], 6: [0, 1]}})
    refused("a probe", ["'speed'", "survival", "paper"], lambda: chosen("speed"))
    refused("a head", ["L0H2", "2 query heads"], lambda: watched("3@L0H2", [(1, 2)], 9))
    refused("a list", ["383,400-410@L10H19"], lambda: watched("x@L0H0", [(1, 2)], 9))
    refused("a token", ["token 6", "6 tokens"], lambda: watched("3-6@L0H0", [(1, 2)], 6))
    sys.modules["torch"] = None  # as if it were not installed
    try:
        kvfate.capture
        check("without torch", False, "nothing was raised")
    except ImportError as e:
        check("without torch", "kvfate.capture" in str(e) and "pip install torch" in str(e), e)
finish()
