#!/usr/bin/env python3
"""Every analysis that adds up over documents, by one contract, on traces of a tiny model with evictions, gates and shadows:
the corpus of one trace has the values of its table, a corpus of several those of the sums (or means) of their tables
written down here, and three shards merged, in any order, give the bytes of the whole.
usage: test_pools.py KVFATE GEN_TINY MAKE_GATES"""
import json
import math
import os
import re
import subprocess
import sys
import tempfile

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402

kvfate, gen_tiny, make_gates = map(os.path.abspath, sys.argv[1:4])
PROMPTS = [500, 300, 40, 1]  # tokens; the last run has a single entry
BUDGETS = [48, 24, 64, 64]
OPTIONS = {"regret": ["--mean"], "dilution": ["--mean"], "received": ["--spread", "heads"]}
# quotient of two counts that both stand in the table
QUOTIENTS = {"survival": ("fraction", "alive", "at_risk"), "density": ("share", "count", "total"),
             "overlap": ("overlap", "both", "last")}
MEANS = {"sparsity": "sparsity", "regret": "regret", "heads": "entropy", "variance": "eta2"}
KEYS = {"survival": {"criterion", "class", "horizon"}, "density": {"bin_low", "bin_high"}, "overlap": {"window", "p"},
        "sparsity": {"kind"}, "regret": {"step"}, "variance": {"factor"}}


def call(*argv):
    r = subprocess.run([str(a) for a in argv], capture_output=True, text=True)
    if r.returncode:
        sys.exit(f"{' '.join(map(str, argv))}: exit {r.returncode}: {r.stderr}")
    return r.stdout


def pooled():
    """The analyses that add up, as the program itself lists them."""
    r = subprocess.run([kvfate, "corpus", "retention", "x.kvf"], capture_output=True, text=True)
    names = re.search(r"these do: (.*)", r.stderr)
    check("the list", r.returncode == 2 and names, r.stderr)
    return [x.strip() for x in names[1].split(",")]


def traces(folder):
    model, gates, files = folder + "/m.gguf", folder + "/g.safetensors", []
    call(sys.executable, gen_tiny, "--heads", "4", "--kv-heads", "2", "-o", model)
    call(sys.executable, make_gates, "--layout", "rg", "--layers", "2", "--heads", "4", "--kv-heads", "2", "--head-dim", "16", "--d-model", "64", "-o", gates)
    for k, (n, budget) in enumerate(zip(PROMPTS, BUDGETS)):
        with open(f"{folder}/ids", "w", encoding="ascii") as f:
            f.write(" ".join(str(3 + (7 * i * i + 11 * k + i) % 250) for i in range(n)))
        files.append(f"{folder}/{k}.kvf")
        call(kvfate, "run", "-m", model, "--ids", folder + "/ids", "-n", "0", "--method", "trimkv", "-B", budget,
             "--gates", gates, "--probes", "full", "--shadow", "entries", "-t", "1", "-q", "-o", files[-1])
    return files


def table(*argv):
    t = json.loads(call(kvfate, *argv, "--json"))
    return t["data"], t["meta"]


def rows(data, keys):
    """{key: row}"""
    n = len(next(iter(data.values()), []))
    return {tuple(data[k][i] for k in keys): {c: data[c][i] for c in data} for i in range(n)}


def compare(name, files):
    """Means and quotients of the corpus against those of the single tables."""
    whole, _ = table("corpus", name, *files, *OPTIONS.get(name, []), "--intervals", "none")
    singles = [table(name, f, *OPTIONS.get(name, []))[0] for f in files]
    if name in QUOTIENTS:
        value, numerator, denominator = QUOTIENTS[name]
    else:
        value, numerator, denominator = MEANS[name], None, None
    names = {"head", "layer", "index"} | KEYS.get(name, set())
    keys = [c for c in whole if c in names and c in singles[0]]
    of = [rows(s, keys) for s in singles]
    compared = 0
    for key, row in rows(whole, keys).items():
        mine = [o[key] for o in of if key in o]
        check(f"{name} {key} is in a table", mine)
        if numerator:
            low = sum(m[denominator] for m in mine)
            want = sum(m[numerator] for m in mine) / low if low else None
        else:
            defined = [m[value] for m in mine if m[value] is not None]
            want = sum(defined) / len(defined) if defined else None
        got = row[value]
        ok = want is None and got is None or None not in (want, got) and math.isclose(want, got, rel_tol=1e-9, abs_tol=1e-11)
        check(f"{name} {key}", ok, want, got)
        compared += want is not None
    check(f"{name}: rows compared", compared > 0)


def shards(name, files, folder):
    options = OPTIONS.get(name, [])
    call(kvfate, "corpus", name, *files, *options, "-o", folder + "/whole.tsv")
    states = []
    for i in (3, 1, 2):
        states.append(f"{folder}/{name}.{i}.state")
        call(kvfate, "corpus", name, *files, *options, "--shard", f"{i}/3", "--state", states[-1], "-t", i, "-o", folder + "/part.tsv")
    call(kvfate, "merge", *states, "-o", folder + "/merged.tsv")
    with open(folder + "/whole.tsv", "rb") as a, open(folder + "/merged.tsv", "rb") as b:
        a, b = a.read(), b.read()
    check(f"{name}: shards merged are the whole", a == b)
    check(f"{name}: the whole has rows", len([x for x in a.splitlines() if not x.startswith(b"#")]) > 1)


def main():
    with tempfile.TemporaryDirectory() as folder:
        files = traces(folder)
        names = pooled()
        check("analyses compared by value add up", set(QUOTIENTS) | set(MEANS) <= set(names))
        for name in names:
            shards(name, files, folder)
        for name in [*QUOTIENTS, *MEANS]:
            compare(name, files)
        print(f"{len(names)} analyses")
    finish()


main()
