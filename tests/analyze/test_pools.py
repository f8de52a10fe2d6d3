#!/usr/bin/env python3
"""Check every analysis that aggregates documents, by one contract, on traces of a tiny model with evictions, gates and
shadows.  The corpus of one trace has the values of its table.  A corpus of several has those of the sums (or means)
of their tables, computed here.  Three shards, merged in any order, give the same bytes as one run.

usage: test_pools.py KVFATE GEN_TINY MAKE_GATES
"""
import json
import math
import os
import subprocess
import sys
import tempfile

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, words_of  # noqa: E402

kvfate, gen_tiny, make_gates = map(os.path.abspath, sys.argv[1:4])
PROMPTS = [500, 300, 40, 1]  # tokens; the last run has a single entry
BUDGETS = [48, 24, 64, 64]
NEVER = {("heads", "prompt")}  # these runs have no answer after the prompt, so no prompt use
# Defaults that depend on the length are those of the longest text, 500 tokens.
LENGTH = {"survival": ["--grace", "64", "--mean-to", "125"], "hazard": ["--grace", "64"], "block-exit": ["--grace", "64"], "decay": ["--grace", "64"],
          "calibration": ["--follow-up", "64"]}
OPTIONS = {"regret": ["--mean"], "dilution": ["--mean"], "received": ["--spread", "heads"]}


def call(*argv):
    r = subprocess.run([str(a) for a in argv], capture_output=True, text=True)
    if r.returncode:
        sys.exit(f"{' '.join(map(str, argv))}: exit {r.returncode}: {r.stderr}")
    return r.stdout


def pooled():
    """Return the analyses that aggregate, as the program lists them."""
    return {a["name"]: a for a in json.loads(call(kvfate, "list", "all", "--json"))["analyzers"] if a["pools"]}


def traces(folder):
    model, gates, files = folder + "/m.gguf", folder + "/g.safetensors", []
    call(sys.executable, gen_tiny, "--heads", "4", "--kv-heads", "2", "-o", model)
    call(sys.executable, make_gates, "--layout", "rg", "--layers", "2", "--heads", "4", "--kv-heads", "2", "--head-dim", "16", "--d-model", "64", "-o", gates)
    for k, (n, budget) in enumerate(zip(PROMPTS, BUDGETS)):
        with open(f"{folder}/ids", "w", encoding="ascii") as f:
            f.write(" ".join(str(3 + (7 * i * i + 11 * k + i) % 250) for i in range(n)))
        files.append(f"{folder}/{k}.kvf")
        call(kvfate, "run", "--overwrite", "-m", model, "--ids", folder + "/ids", "-n", "0", "--method", "trimkv", "-B", budget,
             "--gates", gates, "--probes", "full,copies", "--shadow", "entries", "-t", "1", "-q", "-o", files[-1])
    return files


def table(*argv):
    t = json.loads(call(kvfate, *argv, "--json"))
    return t["data"], t["meta"]


def rows(data, keys):
    """Return {key: its rows}."""
    found = {}
    for i in range(len(next(iter(data.values()), []))):
        found.setdefault(tuple(data[k][i] for k in keys), []).append({c: data[c][i] for c in data})
    return found


def mean(values):
    values = [v for v in values if v is not None]
    return sum(values) / len(values) if values else None


def pool(measure, of):
    """Return the value of a row from the rows of each document: a quotient of sums, a weighted mean or a mean of means."""
    value, every = measure["value"], [r for mine in of for r in mine]
    if "numerator" in measure:
        every = [r for r in every if min(r[measure["numerator"]], r[measure["denominator"]]) >= 0]  # -1: not counted
        low = sum(r[measure["denominator"]] for r in every)
        return sum(r[measure["numerator"]] for r in every) / low if low else None
    if "denominator" in measure:
        every = [r for r in every if r[value] is not None]
        weight = sum(r[measure["denominator"]] for r in every)
        return sum(r[value] * r[measure["denominator"]] for r in every) / weight if weight else None
    return mean([mean([r[value] for r in mine]) for mine in of])


def bins(measure, whole, singles, keys):
    """Return {key: survival at the low end of a bin}, from sums of the counts in the earlier bins."""
    sums, values, curves = {}, {}, {}
    for s in singles:
        for key, mine in rows(s, keys).items():
            at = sums.setdefault(key, [0, 0])
            for r in mine:
                at[0], at[1] = at[0] + r[measure["numerator"]], at[1] + r[measure["denominator"]]
    for key in rows(whole, keys):
        curves.setdefault(tuple(v for k, v in zip(keys, key) if k not in ("low", "high")), []).append(key)
    low, high = keys.index("low"), keys.index("high")
    for every in curves.values():
        value = 1.
        for key in sorted(every, key=lambda k: k[low]):
            a, b = sums.get(key, [0, 0])
            value = values[key] = value if b else None
            value = value * (1 - a / b)**(key[high] - key[low]) if value is not None else None
            if value is None:
                break
    return {key: values.get(key) for every in curves.values() for key in every}


def curve(measure, age, whole, singles, keys):
    """Return {key: value of a product along the age, and its half-life}, from sums of the counts of all documents."""
    counts = measure["numerator"], measure["denominator"]
    sums, values, curves = {}, {}, {}
    for s in singles:
        for key, mine in rows(s, keys).items():
            at = sums.setdefault(key, [0, 0])
            for r in mine:
                at[0], at[1] = at[0] + r[counts[0]], at[1] + r[counts[1]]
    for key in rows(whole, keys):
        curves.setdefault(tuple(v for k, v in zip(keys, key) if k != age), []).append(key)
    for every in curves.values():
        before, value = -1, 1.
        for key in sorted(every, key=lambda k: k[keys.index(age)]):
            n, (a, b) = key[keys.index(age)], sums.get(key, [0, 0])
            value = None if value is None or not b else value * (1 - a / b)**(n - before)
            before, values[key] = n, value
    return values


def compare(name, about, files):
    """Compare every value of the corpus with those of the single tables."""
    whole, _ = table("corpus", *words_of(name, kvfate), *files, *OPTIONS.get(name, []), "--intervals", "none")
    singles = [table(*words_of(name, kvfate), f, *OPTIONS.get(name, []), *LENGTH.get(name, []))[0] for f in files]
    keys = [c for c in whole if c in about["pool_keys"] and c in singles[0]]
    of = [rows(s, keys) for s in singles]
    for measure in about["measures"]:
        value, compared = measure["value"], 0
        if "optional" in measure and all(value not in s for s in singles):  # these runs have no needle
            check(f"{name} {value}: no column without values", value not in whole and value.startswith("retrieval"))
            continue
        products = bins(measure, whole, singles, keys) if "bins" in measure else None
        if "product" in measure and not products:
            products = curve(measure, about["pool_keys"][-1], whole, singles, keys)
        for key, (row,) in rows(whole, keys).items():
            mine = [o[key] for o in of if key in o]
            want, got = products[key] if products else pool(measure, mine) if mine else "a row", row[value]
            ok = want is None and got is None or None not in (want, got) and math.isclose(want, got, rel_tol=1e-9, abs_tol=1e-11)
            check(f"{name} {value} {key}", ok, want, got)
            compared += want is not None
        check(f"{name} {value}: rows compared", compared > 0 or (name, value) in NEVER)


def shards(name, files, folder):
    options = OPTIONS.get(name, [])
    call(kvfate, "corpus", *words_of(name, kvfate), *files, *options, "-o", folder + "/whole.tsv")
    states = []
    for i in (3, 1, 2):
        states.append(f"{folder}/{name}.{i}.state")
        call(kvfate, "corpus", *words_of(name, kvfate), *files, *options, "--shard", f"{i}/3", "--state", states[-1], "-t", i, "-o", folder + "/part.tsv")
    call(kvfate, "corpus", "merge", *states, "-o", folder + "/merged.tsv")
    with open(folder + "/whole.tsv", "rb") as a, open(folder + "/merged.tsv", "rb") as b:
        a, b = a.read(), b.read()
    check(f"{name}: shards merged are the whole", a == b)
    check(f"{name}: the whole has rows", len([x for x in a.splitlines() if not x.startswith(b"#")]) > 1)


def main():
    with tempfile.TemporaryDirectory() as folder:
        files = traces(folder)
        names = pooled()
        for name, about in names.items():
            shards(name, files, folder)
            compare(name, about, files)
        print(f"{len(names)} analyses")
    finish()


main()
