#!/usr/bin/env python3
"""Heads of four models of three families: the texts, traces, tables and figures of docs/studies/heads.md.

usage: examples/head_models.py FOLDER OUT          makes what OUT lacks, then prints the tables as Markdown and draws figures
       examples/head_models.py FOLDER OUT make     the texts and traces alone
       examples/head_models.py FOLDER OUT tables   the tables and figures of those traces that are there

FOLDER holds wikitext2-valid.txt and gsm8k-train.jsonl.  MODELS are names of 'kvfate models' that were fetched.  All models read
the same eight texts of about 1,000 tokens of the first model.  A stopped run continues with the same command.  KVFATE names the
program (kvfate).  The copies need the Python package gguf.
"""
import json
import os
import random
import subprocess
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gguf_copies  # noqa: E402
from gguf_copies import files  # noqa: E402
from heads import KVFATE, cut, judged, once, read_table, sources  # noqa: E402

MODELS = ("smollm2-135m", "gemma-3-270m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")
LENGTH = 1000
# Matches compare the first group of texts of one model with the second group of another: no text is in both.
FIRST = ["prose-0", "maths-0", "pages-0", "code-0"]
SECOND = ["prose-4", "maths-2", "pages-1", "code-2"]
SPLIT = len(FIRST)
COPIES = ("q8", "permuted", "random")  # of the model CONTROL: matches with a known answer
CONTROL = MODELS[2]
CONTROL_FILE = os.path.expanduser("~/.cache/kvfate/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf")
NEEDLES, RANDOM = 8, 10  # prompts of either kind
NEEDLE_TOKENS = 400
# Of each model the token that begins a text, and the size of its vocabulary.
START = {"smollm2-135m": (1, 49152), "gemma-3-270m": (2, 262144), "qwen2.5-coder-0.5b": (151643, 151643), "qwen2.5-coder-1.5b": (151643, 151643)}


def run(*args, output=None):
    return subprocess.run(["nice", "-n", "19", KVFATE, *map(str, args)], check=True, stdout=output or subprocess.DEVNULL)


def text(folder, out, name):
    kind, k = name.split("-")
    return once(f"{out}/text/{name}.txt", lambda part: cut(MODELS[0], sources(folder)[kind][int(k)], LENGTH, part))


def trace(out, model, name, file=None):
    """The trace of a model and a text: OUT/trace/MODEL.TEXT.kvf.  file: of a model without a name."""
    return once(f"{out}/trace/{model}.{name}.kvf", lambda part: run("run", "-m", file or model, "-f", f"{out}/text/{name}.txt", "--raw", "-n", 0, "-t", 1, "--probes", "paper", "-q", "--overwrite", "-o", part))


def needle_text(out, k):
    """A prompt with three hidden numbers, which ends where the number that is asked for follows: all models can complete it, also
    without a chat template.  The span `value` is the number in the prompt."""
    def write(part):
        run("tasks", "needle", "--tokens", NEEDLE_TOKENS, "--keys", 3, "-s", k, "-o", f"{out}/text/hay-{k}")
        with open(f"{out}/text/hay-{k}.txt", encoding="utf-8") as f, open(f"{out}/text/hay-{k}.json", encoding="utf-8") as g:
            prompt, reply = f.read(), json.load(g)["reply"]
        files.write(part, prompt + "\n\n" + reply["text"][:reply["values"][0][0]].rstrip())
    return once(f"{out}/text/needle-{k}.txt", write)


def needle(out, model, k):
    return once(f"{out}/needle/{model}.{k}.kvf", lambda part: run(
        "run", "-m", model, "-f", needle_text(out, k), "--spans", f"{out}/text/hay-{k}.json", "--raw", "-n", 12, "-t", 1, "--probes", "paper,copies", "-q", "--overwrite", "-o", part))


def repeated(out, model, k):
    """The trace of 25 different random tokens, 4 times, after the start token.  The first and the last 4 % of the vocabulary are left
    out: they hold special and byte tokens, and the most and the least common ones."""
    start, size = START[model]
    ids = random.Random(k).sample(range(size // 25, size - size // 25), 25)
    path = f"{out}/text/repeated-{model}-{k}.ids"
    files.write(path, " ".join(map(str, [start, *ids * 4])))
    return once(f"{out}/repeated/{model}.{k}.kvf", lambda part: run("run", "-m", model, "--ids", path, "-n", 0, "-t", 1, "--probes", "paper,copies", "-q", "--overwrite", "-o", part))


def make(folder, out):
    for name in ("text", "trace", "needle", "repeated", "table"):
        os.makedirs(f"{out}/{name}", exist_ok=True)
    for name in FIRST + SECOND:
        text(folder, out, name)
    for model in MODELS:
        for k in range(RANDOM):
            repeated(out, model, k)
        for k in range(NEEDLES):
            needle(out, model, k)
        for name in FIRST + SECOND:
            trace(out, model, name)
    for copy in COPIES:
        file = once(f"{out}/{copy}.gguf", lambda part: gguf_copies.copy(CONTROL_FILE, part, copy))
        for name in SECOND:
            trace(out, copy, name, file)


# ---- tables

def rows_of(out, name, *args):
    """The rows of a table, and the file that it is in."""
    path = once(f"{out}/table/{name}.tsv", lambda part: run(*args, "-o", part))
    return read_table(path), path


def between(row, name, low, high):
    if row[name] == "nan":
        return "-"
    value, *ends = (f"{float(row[c]):.3f}" for c in (name, low, high))
    return value if row[low] == "nan" else f"{value} ({ends[0]} .. {ends[1]})"


def types(out):
    """Fraction and depth of every head type in every model."""
    of = {"kinds": [f"{out}/trace/{m}.{t}.kvf" for m in MODELS for t in FIRST + SECOND],
          "induction": [f"{out}/repeated/{m}.{k}.kvf" for m in MODELS for k in range(RANDOM)],
          "retrieval": [f"{out}/needle/{m}.{k}.kvf" for m in MODELS for k in range(NEEDLES)]}
    for value, low, high in (("fraction", "low", "high"), ("depth", "depth_low", "depth_high")):
        print(f"\n| {value} | " + " | ".join(MODELS) + " | models |\n|---|" + "---|" * (len(MODELS) + 1))
        for by, traces in of.items():
            rows, path = rows_of(out, by, "head-types", *traces, "--by", by, *(["--needle", "value"] if by == "retrieval" else []))
            run("draw", path, "-o", f"{out}/table/{by}.png")
            names = list(dict.fromkeys(r["model"] for r in rows))
            for kind in dict.fromkeys(r["kind"] for r in rows):
                own = [next(r for r in rows if r["kind"] == kind and r["model"] == m) for m in names]
                if any(float(r["fraction"]) > 0 for r in own):
                    print(f"| {kind} | " + " | ".join(between(r, value, low, high) for r in own) + f" | {own[0]['models']} |", flush=True)


def matches(out):
    """Matches of all pairs of models, of a model with itself on other texts, and of a model with its copies."""
    print("\n| first model | second model | heads | matched | proven | nearer than | wrong pairs | right | correlation of depth |\n|---|---|---|---|---|---|---|---|---|")
    for a in MODELS:
        for b in (*MODELS, *(COPIES if a == CONTROL else ())):
            traces = [f"{out}/trace/{m}.{t}.kvf" for m, texts in ((a, FIRST), (b, SECOND)) for t in texts]
            rows, path = rows_of(out, f"match-{a}-{b}", "compare", *traces, "--match", "--groups", str(SPLIT))
            truth = dict(zip(("query", "kv"), judged(CONTROL_FILE, path, b))) if b in COPIES else {}
            for space in ("query", "kv"):
                own = [r for r in rows if r["space"] == space]
                near, wrong = (100 * (1 - np.nanmean([float(r[c]) for r in own])) for c in ("nearer", "nearer_wrong"))
                right = truth[space][1] if truth else sum(r["head_a"] == r["head_b"] for r in own) if a == b else "-"
                depth = np.corrcoef([[float(r["layer_" + s]) for r in own] for s in "ab"])[0, 1]
                print(f"| {a} | {b} | {space} | {len(own)} | {sum(r['own'] == '1' for r in own)} | {near:.1f} % | {wrong:.1f} % | {right} | {depth:.2f} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["make"], ["tables"]):
        sys.exit("\n".join(line for line in __doc__.split("\n") if "examples/head_models.py" in line))
    if sys.argv[3:] != ["tables"]:
        make(*sys.argv[1:3])
    if sys.argv[3:] != ["make"]:
        types(sys.argv[2])
        matches(sys.argv[2])
