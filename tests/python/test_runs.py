#!/usr/bin/env python3
"""usage: test_runs.py KVFATE TINY_MODEL SOURCE_ROOT

kvfate.run, the analyses as methods of a trace, and scores in Python (kvfate.score): Python copies of
knorm, tova and snapkv give the decisions of the program's own scores, bit for bit, in every
allocation; evictions equal a brute force over the scores that the function returned; faults of a
function or of the other program have one sentence."""
import gc
import glob
import os
import struct
import subprocess
import sys
import tempfile
import warnings

import numpy as np

KVFATE, MODEL, ROOT = map(os.path.abspath, sys.argv[1:4])
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "tests")]
os.environ["PATH"] = os.path.dirname(KVFATE) + os.pathsep + os.environ["PATH"]
from check import check, finish  # noqa: E402
import kvfate  # noqa: E402
from kvfate import own_score  # noqa: E402

IDS = np.random.default_rng(5).integers(3, 300, 70).tolist()
DEFAULT = os.path.expanduser("~/.cache/kvfate/SmolLM2-135M-Instruct.Q4_1.gguf")
DECISIONS = "evict_step", "evict_reason", "evict_score", "evict_margin", "evict_tie", "evict_rank"
warnings.simplefilter("ignore")  # notes of the program


def key_norm(keys):
    """Adds in the order of channels, as the program does."""
    return -np.sqrt(np.cumsum(keys.astype(np.float64) ** 2, axis=-1)[..., -1])


def mean_over(attention, window):
    """Returns the mean over queries and query heads. Weights are rounded to units of 2^(k - 52), where 2^k is at least the largest
    possible sum, so that sums are exact in any order (docs/reference/methods.md)."""
    rows, heads, _ = attention.shape
    k = max(1, int(np.ceil(np.log2(window * heads))))
    magic = 1.5 * 2.0 ** k
    units = (attention.astype(np.float64) + magic) - magic
    return (units.sum((0, 1)) * (1 / rows / heads)).astype(np.float32)


def newest(attention):
    return mean_over(attention[-1:], 1)


def pooled(attention, candidates, window=8, width=7):
    """SnapKV: means over the window, then the maximum over neighbours among the candidates."""
    out = mean_over(attention, window)
    c = np.flatnonzero(candidates)
    v = out[c].copy()
    for i in range(len(c)):
        out[c[i]] = v[max(0, i - width // 2):i + width // 2 + 1].max()
    return out


def decisions(trace):
    return {name: np.asarray(trace[name]) for name in DECISIONS}


def same(name, mine, own, model=MODEL, prompt=IDS, budget=16, **options):
    a = kvfate.run(model, prompt, mine, budget, predict=12, ignore_eos=True, **options)
    b = kvfate.run(model, prompt, own, budget, predict=12, ignore_eos=True, **options)
    x, y = decisions(a), decisions(b)
    check(name + ": some evictions", (x["evict_step"] < a.steps).sum() > 0)
    check(name, all(x[k].tobytes() == y[k].tobytes() for k in x) and a.texts == b.texts,
          {k: int((x[k] != y[k]).sum()) for k in x})


def copies(model, prompt, budget):
    place = "default model" if model == DEFAULT else "tiny model"
    same(place + ": knorm", kvfate.score(key_norm), "knorm", model, prompt, budget)
    same(place + ": tova", kvfate.score(newest, base="tova"), "tova", model, prompt, budget)
    same(place + ": snapkv", kvfate.score(pooled, base="snapkv", window=8), "snapkv:window=8", model, prompt, budget)


def combinations():
    """Allocations, times of cuts, and methods of single heads."""
    for options in ("cut=prompt", "chunk=16", "every=5", "sinks=3,recent=4", "order=after", "allocation=pyramid", "allocation=adaptive", "positions=cache",
                    "protect=sinks:5", "tie=older"):
        more = dict(x.split("=") for x in options.split(","))
        same(options, kvfate.score(key_norm, **more), "knorm:" + options)
    same("adakv", kvfate.score(pooled, base="adakv", window=8), "adakv:window=8")
    same("a window of 2 queries", kvfate.score(lambda attention: mean_over(attention, 2), base="snapkv", window=2), "snapkv:pool=1,window=2")
    a = kvfate.run(MODEL, IDS, kvfate.score(key_norm, allocation="global"), 16, predict=8)
    left = np.asarray(a.evict_step)
    sizes = (left > len(IDS)).sum(2) - (a.steps - len(IDS) - 1)
    check("a budget of all heads", sizes.sum() <= 16 * sizes.size and sizes.min() < 16 < sizes.max(), sizes)
    mine = kvfate.score(key_norm)
    a = kvfate.run(MODEL, IDS, mine, 16, predict=8, override="L0K*=h2o:budget=20")
    b = kvfate.run(MODEL, IDS, "knorm", 16, predict=8, override="L0K*=h2o:budget=20")
    check("an override", all(decisions(a)[k].tobytes() == decisions(b)[k].tobytes() for k in DECISIONS))


def contract(folder):
    """What every method must keep: the budget, protected entries, the order of scores, equal bytes for any number of threads."""
    seen = []

    @kvfate.score(sinks=2, recent=3)
    def odd(keys, values, positions, candidates, layer, head, step, queries, attention):
        """Scores with many equal values."""
        out = np.floor(4 * np.sin(keys[:, 0] + values[:, 1])) + attention[-1].sum(0).round(1)
        seen.append((layer, head, step, positions.copy(), candidates.copy(), out.astype(np.float32), queries.copy()))
        return out

    paths = [os.path.join(folder, "t%d.kvf" % t) for t in (1, 3)]
    for t, path in zip((1, 3), paths):
        del seen[:]
        trace = kvfate.run(MODEL, IDS, odd, 16, path, predict=20, ignore_eos=True, threads=t)
    check("threads", open(paths[0], "rb").read() == open(paths[1], "rb").read())
    heads = sorted({x[:2] for x in seen})
    check("order of calls", [x[:2] for x in seen] == heads * (len(seen) // len(heads)) and [x[2] for x in seen] == sorted(x[2] for x in seen), seen[:9])
    left, wrong = np.asarray(trace.evict_step), []
    for where in {x[:2] for x in seen}:
        mine = [x for x in seen if x[:2] == where]
        for k, (layer, head, step, positions, candidates, scores, queries) in enumerate(mine):
            protected = (positions < 2) | (positions >= step + (k > 0) - 3)  # the first cut follows the prompt, the others precede a token
            stay = mine[k + 1][3] if k + 1 < len(mine) else positions[left[layer, head][positions] > step]
            gone = ~np.isin(positions, stay)
            worst = sorted(np.flatnonzero(~protected), key=lambda i: (scores[i], positions[i]))[:len(positions) - (16 if k == 0 else 15)]
            if not (np.array_equal(candidates, ~protected) and set(worst) == set(np.flatnonzero(gone)) and (left[layer, head][positions[gone]] == step).all()
                    and queries[-1] == step - 1 and (np.diff(positions) > 0).all()):
                wrong.append((layer, head, step))
    check("decisions", not wrong and len(seen) > 60, wrong[:9], len(seen))
    ages = [(left[layer, head] > t).sum() - (trace.steps - 1 - t) for layer, head in ((0, 0), (1, 1)) for t in range(len(IDS), trace.steps)]
    check("budget", max(ages) == 16, max(ages))
    free = kvfate.run(MODEL, IDS, odd, 200, predict=6, ignore_eos=True)
    full = kvfate.run(MODEL, IDS, None, None, predict=6, ignore_eos=True)
    check("a budget of all tokens", np.asarray(free.nll).tobytes() == np.asarray(full.nll).tobytes() and free.texts == full.texts)
    check("the run header", trace.meta["run"]["external_score"] == "odd" and trace.meta["method"]["score"] == "external")
    check("the function", odd.__doc__ == "Scores with many equal values." and callable(odd) and "odd" in repr(odd))


def fails(name, call, sentence, kind=kvfate.Error):
    before = set(glob.glob(os.path.join(tempfile.gettempdir(), "kvfate-*")))
    try:
        call()
    except kind as e:
        check(name, sentence in str(e) and "\n" not in str(e), repr(e))
        left = set(glob.glob(os.path.join(tempfile.gettempdir(), "kvfate-*"))) - before
        return check(name + ": no files stay", not [x for x in left if os.path.exists(os.path.join(x, "run.kvf.unfinished"))], left)
    return check(name, False, "no exception")


def sentences():
    go = lambda f, **o: kvfate.run(MODEL, IDS, f, 16, predict=4, **o)  # noqa: E731
    fails("a wrong length", lambda: go(lambda keys: keys[:3, 0]), "have the shape (3,), and there are 70 entries")
    fails("NaN", lambda: go(lambda keys: keys[:, 0] * np.nan), "score 0 of 70 is NaN")
    fails("no numbers", lambda: go(lambda keys: ["x"] * len(keys)), "the scores are not numbers")
    fails("its own exception", lambda: go(lambda keys: 1 // 0), "integer division", ZeroDivisionError)
    fails("an unknown argument", lambda: go(lambda logits: logits), "has the argument logits; arguments are some of keys")
    fails("no arguments", lambda: go(print), "kvfate.score")
    fails("an option of no use", lambda: go(kvfate.score(key_norm, pool=3)), "pool would have no effect", kvfate.ProgramError)
    fails("no such model", lambda: kvfate.run("/none.gguf", "x"), "/none.gguf", kvfate.ProgramError)
    fails("no such model, with a function", lambda: kvfate.run("/none.gguf", "x", key_norm, 16), "/none.gguf", kvfate.ProgramError)
    fails("no such prompt", lambda: kvfate.run(MODEL, 3.5), "the prompt is a text")
    fails("a batch", lambda: go(key_norm, jsonl="x.jsonl"), "--jsonl", kvfate.ProgramError)


def raw(hello, answer, *more):
    """Returns the sentence of the program for another program that sends `hello`, and then answer(n) to the first request of n entries."""
    from_program, its_end = os.pipe()
    its_source, to_program = os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        ids = os.path.join(folder, "ids")
        with open(ids, "w") as f:
            f.write(" ".join(map(str, IDS)))
        p = subprocess.Popen([KVFATE, "run", "-q", "-m", MODEL, "--ids", ids, "--method", "knorm:score=external", "-B", "16", "-n", "2", "-o",
                              os.path.join(folder, "x.kvf"), "--score-pipe=%d,%d" % (its_source, its_end), *more],
                             pass_fds=(its_source, its_end), stderr=subprocess.PIPE)
        os.close(its_source), os.close(its_end)
        os.write(to_program, hello)
        if answer:
            n = struct.unpack("8i", os.read(from_program, 32))[3]
            os.write(to_program, answer(n))
        if answer is not False:
            os.close(to_program)
        said = p.communicate(timeout=60)[1].decode()
        os.close(from_program)
        if answer is False:
            os.close(to_program)
    return p.returncode, said


def protocol():
    hello = own_score.Score(lambda positions: positions, "knorm", {}).greeting()
    f32 = lambda n, x: struct.pack("i", n) + np.full(n, x, np.float32).tobytes()  # noqa: E731
    for name, sentence, *call in (
            ("the end of the stream", "has ended", hello, None), ("a wrong length", "answered with 69 scores for 70 entries", hello, lambda n: f32(n - 1, 0)),
            ("NaN", "NaN as score 0 of 70", hello, lambda n: f32(n, np.nan)), ("half an answer", "has ended", hello, lambda n: f32(n, 0)[:9]),
            ("another greeting", "does not send the greeting", b"x" * 64, None), ("no greeting", "has ended", b"", None),
            ("no answer in time", "did not answer in 1 seconds", hello, False, "--score-timeout", "1")):
        code, said = raw(*call)
        check("program: " + name, code == 1 and sentence in said and said.count("\n") == 1, code, said)
    for pipe in ("7", "1,2", "x", "98,99"):
        p = subprocess.run([KVFATE, "run", "-m", MODEL, "-p", "x", "--method", "knorm:score=external", "-B", "16", "--score-pipe", pipe, "-o", "/none/x.kvf"], capture_output=True, text=True)
        check("--score-pipe " + pipe, p.returncode == 2 and "two open file descriptors" in p.stderr and p.stderr.count("\n") == 1, p)
    p = subprocess.run([KVFATE, "generate", "-m", MODEL, "-p", "x", "--raw", "--method", "knorm:score=external", "-B", "16"], capture_output=True, text=True)
    check("no program", p.returncode == 2 and "score=external needs a program" in p.stderr, p)


def methods_of_a_trace(folder):
    trace = kvfate.run(MODEL, IDS, "h2o", 16, predict=8)
    listed = {a["name"].replace("-", "_") for a in kvfate.program.described()["analyzers"] if a["min_traces"] == 1}
    check("every analysis is a method", len(listed) > 20 and listed <= set(dir(trace)) and all(callable(getattr(trace, n)) for n in listed))
    for name in ("eviction", "survival", "tokens", "heads", "retention"):
        a, b = getattr(trace, name)(), kvfate.table(name, trace)
        check(name + "()", list(a.columns) == list(b.columns) and all(list(map(str, a[c])) == list(map(str, b[c])) for c in b.columns) and a.attrs == b.attrs)
    check("lists are lists still", trace.heads == [(2, 4)] * len(trace.heads) and len(trace.tokens) == trace.steps and trace.heads[0] == (2, 4), trace.heads)
    check("an option", "class" in trace.survival(by="class").columns)
    check("a reserved word", len(set(trace.fates(from_=40)["step"])) > 1 if "step" in trace.fates().columns else True)
    check("a docstring", all(x in trace.survival.__doc__ for x in ("horizons", "trace.survival.figure('survival')", "trace.survival.figure('map')", "units")) and "evict" in trace.fates.__doc__, trace.survival.__doc__)
    check("a figure", trace.eviction.figure(dpi=40).png == kvfate.figure("eviction", trace, dpi=40).png and trace.survival.figure("map", dpi=40).png[:4] == b"\x89PNG")
    fails("another figure", lambda: trace.eviction.figure("survival"), "eviction has no figure survival")
    fails("a mistyped name", lambda: trace.evicton, "did you mean eviction?", AttributeError)
    check("report", trace.report()._repr_html_().startswith("<iframe"))
    path = trace.path
    del trace
    gc.collect()
    check("the temporary file is removed", not os.path.exists(path) and not os.path.exists(os.path.dirname(path)))
    out = os.path.join(folder, "kept.kvf")
    kept = kvfate.run(MODEL, IDS, output=out, predict=2)
    check("output=", kept.path == out and os.path.exists(out) and kept.meta["method"]["name"] == "full")
    fails("output= that exists", lambda: kvfate.run(MODEL, IDS, output=out), "kept.kvf", kvfate.ProgramError)


with tempfile.TemporaryDirectory() as folder:
    copies(MODEL, IDS, 16)
    combinations()
    contract(folder)
    sentences()
    protocol()
    methods_of_a_trace(folder)
    if os.path.exists(DEFAULT):
        copies(DEFAULT, "Count the boats with her: one, two, three, four, five. How many are there?", 20)
    else:
        print("the default model is not in the cache folder: it is not tested")
finish()
