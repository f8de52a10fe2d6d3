#!/usr/bin/env python3
"""Check that analyses of runs that evict name their limits: criteria of K entries under a budget of K or less, and head
types.

usage: test_evicting.py KVFATE WRITE_KVF GEN_TINY
"""
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, kvfate, words_of  # noqa: E402
from maker import AGE, SNAPSHOT, Column, make  # noqa: E402

write_kvf, gen_tiny = map(os.path.abspath, sys.argv[2:4])


def run(*argv, code=0):
    r = subprocess.run([kvfate, *map(str, argv)], capture_output=True, text=True)
    check(f"{argv[0]}: exit {code}", r.returncode == code, r.returncode, r.stderr)
    return r


def criteria(text):
    lines = [x.split("\t") for x in text.splitlines() if not x.startswith("#")]
    at = lines[0].index("criterion")
    return list(dict.fromkeys(x[at] for x in lines[1:]))


def made(folder, budget, overrides=(), **more):
    rng, T = np.random.default_rng(5), 200
    later = T - 1 - np.arange(T)
    ages = lambda: np.minimum(rng.geometric(.1, (1, 2, T)), later)
    columns = [Column("last_selected." + c, "u32", "query", ages(), flags=SNAPSHOT | AGE) for c in ("top64", "top128", "mass.90")]
    columns.append(Column("evict_step", "u32", "kv", np.minimum(np.arange(T) + 64, T)[None, None].repeat(2, 1)))
    method = {"name": "made-up", "budget": budget, **more} if budget else {"name": "full"}
    header = {"method": method, "run": {"document": budget}, **({"overrides": overrides} if overrides else {})}
    return make(write_kvf, f"{folder}/b{budget}.kvf", columns, (1, 2, 2, T), header)


def residence(folder):
    for budget, dropped in ((64, ["top64", "top128"]), (65, ["top128"]), (129, []), (0, [])):
        x = made(folder, budget)
        for name in ("survival", "hazard"):
            r = run(*words_of(name), x, "-o", "-")
            want = [c for c in ("top64", "top128", "mass.90") if c not in dropped]
            check(f"{name}, budget {budget}: criteria", criteria(r.stdout) == want, criteria(r.stdout))
            said = f"the budget is {budget} entries, so every query after the prompt selects every cached entry by {', '.join(dropped)}: left out" in r.stderr
            check(f"{name}, budget {budget}: note", said == bool(dropped) and ("left out" in r.stdout) == said, r.stderr)
            r = run(*words_of(name), x, "--criterion", "top128", "-o", "-")
            check(f"{name}, budget {budget}: by name", criteria(r.stdout) == ["top128"] and ("not how long they are used" in r.stderr) == bool(dropped), r.stderr)
        r = run("corpus", "survival", x, "-o", "-")
        check(f"corpus, budget {budget}: note", ("selects every cached entry" in r.stderr) == bool(dropped), r.stderr)


def larger_heads(folder):
    """Check heads above the budget: with slack, shared budgets and overrides the criteria stay."""
    for name, kept, more in (("no slack", ["mass.90"], {"slack": 0}), ("slack", ["top64", "top128", "mass.90"], {"slack": 127}),
                             ("stride", ["top64", "top128", "mass.90"], {"stride": 128}), ("adaptive", ["top64", "top128", "mass.90"], {"allocation": "adaptive"}),
                             ("overrides", ["top64", "top128", "mass.90"], {"overrides": [{"heads": "L0K0", "name": "full"}]})):
        r = run("survival", made(folder, 64, **more), "-o", "-")
        check(f"{name} {more}: criteria", criteria(r.stdout) == kept, criteria(r.stdout), r.stderr)


def kinds(folder):
    model = folder + "/m.gguf"
    subprocess.run([sys.executable, gen_tiny, "--heads", "4", "--kv-heads", "2", "-o", model], check=True)
    with open(folder + "/ids", "w", encoding="ascii") as f:
        f.write(" ".join(str(3 + (7 * i * i + i) % 250) for i in range(120)))
    for method, budget, evicts in (("h2o", 32, True), ("h2o", 500, False), ("full", None, False)):
        out = f"{folder}/{method}{budget}.kvf"
        run("run", "-m", model, "--ids", folder + "/ids", "-n", "4", "--method", method, *(["-B", budget] if budget else []), "--probes", "paper", "-q", "-o", out)
        r = run("heads", out)
        check(f"heads of {method}, budget {budget}", ("the run evicts" in r.stderr) == evicts, r.stderr)


with tempfile.TemporaryDirectory() as folder:
    residence(folder)
    larger_heads(folder)
    kinds(folder)
finish()
