#!/usr/bin/env python3
"""Measure attention dilution against context length and budget, on prompts with a hidden number.

usage: bench/dilution.py KVFATE OUT [--lengths 256,512,1024,2048] [--methods h2o,snapkv,trimkv] [--budgets 64,128]
                         [--prompts 2] [--keys 1] [--depth X] [--answer 20] [--useful span] [--options '-t 1']

For every length `kvfate tasks needle` writes the prompts.  `full` and each method at each budget answer them with --shadow
entries and the probe `dilution`. OUT/*.json keeps the metadata of the tables and traces are deleted.  A repeated
call continues, and more lengths, methods or prompts only add runs.  The script prints one line per length, method
and budget: means over the prompts of the means over heads and steps after the prompt.  OUT/dilution.tsv has the runs
as a table for `kvfate draw OUT/dilution.tsv --style x=length`.  Standard library only.
"""
import argparse
import json
import math
import os
import shlex
import subprocess
import sys

COLUMNS = ["dilution", "dilution_retained", "rho_u", "rho_d", "bound"]


def words(text):
    return [w for w in text.split(",") if w]


def arguments():
    a = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\n")[0])
    a.add_argument("kvfate", type=os.path.abspath)
    a.add_argument("out")
    for name, default in (("lengths", "256,512,1024,2048"), ("methods", "h2o,snapkv,trimkv"), ("budgets", "64,128")):
        a.add_argument("--" + name, type=words, default=words(default))
    for name, default in (("prompts", 2), ("keys", 1), ("answer", 20)):
        a.add_argument("--" + name, type=int, default=default)
    a.add_argument("--depth")
    a.add_argument("--useful", default="span")
    a.add_argument("--options", type=shlex.split, default=[], help="of kvfate run: -m MODEL, -t THREADS")
    return a.parse_args()


def call(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr}")
    return done.stdout


def write(path, value):
    """Write a complete file or leave it unchanged."""
    with open(path + ".part", "w", encoding="utf-8") as f:
        json.dump(value, f)
    os.replace(path + ".part", path)


def prompt(a, length, seed):
    """Return the path of a prompt without its extension."""
    name = os.path.join(a.out, f"needle-{length}-{a.keys}-{a.depth}-{seed}")
    model = [x for i, x in enumerate(a.options) if x == "-m" or i and a.options[i - 1] == "-m"]
    if not os.path.exists(name + ".json"):
        call(a.kvfate, "tasks", "needle", "--tokens", length, "--keys", str(a.keys), "--seed", str(seed), *model,
             *(["--depth", a.depth] if a.depth else []), "-o", name)
    return name


def measure(a, length, method, budget, seed):
    """Return the metadata of the table of one run, from the folder or from a new run."""
    text = prompt(a, length, seed)
    name = f"{text}-{method}-{budget}-{a.answer}".replace(":", "_")
    path, trace = f"{name}-{a.useful.replace(':', '_')}.json", name + ".kvf"
    if not os.path.exists(path):
        more = ["--method", method] + (["-B", budget] if budget else [])
        said = json.loads(call(a.kvfate, "run", "--overwrite", "-f", text + ".txt", "--spans", text + ".json", *more, "-n", str(a.answer), *a.options,
                               "--probes", "evict,gate,dilution", "--shadow", "entries", "--json", "-q", "-o", trace))
        meta = json.loads(call(a.kvfate, "dilution", trace, "--useful", a.useful, "--mean", "--json"))["meta"]
        with open(text + ".json", encoding="ascii") as f:
            answers = json.load(f)["answers"]
        write(path, {"meta": meta, "right": sum(x in said["text"] for x in answers) / len(answers)})
        os.remove(trace)
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def write_table(path, useful, runs):
    """Write the runs as a table of `kvfate dilution --mean --after-prompt` with several traces."""
    names = ["trace", "head", "layer", "index", "step", *COLUMNS, "method", "budget", "T"]
    rows = [[f"{method} {budget} {meta['T']}", "all", -1, -1, -1, *(meta.get(f"mean_{c}_after_prompt", "nan") for c in COLUMNS),
             method, budget or 0, meta["T"]] for method, budget, meta in runs]
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"# table: dilution\n# useful: {useful}\n# weights: run\n" + "\n".join("\t".join(map(str, r)) for r in [names, *rows]) + "\n")


def mean(values):
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else math.nan


def main():
    a = arguments()
    os.makedirs(a.out, exist_ok=True)
    drawn = []
    print("\t".join(["length", "method", "budget", "prompts", "right", *COLUMNS, "preferential"]))
    for length in a.lengths:
        for method, budget in [("full", "")] + [(m, b) for m in a.methods for b in a.budgets]:
            runs = [measure(a, length, method, budget, seed) for seed in range(a.prompts)]
            meta = [r["meta"] for r in runs]
            drawn += [(method, budget, m) for m in meta]
            values = [mean([float(m[k]) if k in m else None for m in meta]) for k in (f"mean_{c}_after_prompt" for c in COLUMNS)]
            better, of = (sum(float(m[k + "_after_prompt"]) for m in meta) for k in ("preferential", "compared"))
            print("\t".join([length, method, budget or "-", str(len(runs)), f"{mean([r['right'] for r in runs]):.2f}",
                             *(f"{v:.4f}" for v in values), f"{better / of:.3f}" if budget and of else "-"]), flush=True)
    write_table(os.path.join(a.out, "dilution.tsv"), a.useful, drawn)


if __name__ == "__main__":
    main()
