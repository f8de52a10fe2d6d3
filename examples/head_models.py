#!/usr/bin/env python3
"""Heads of four models of three families: the texts, traces, tables and figures of docs/studies/heads.md.

usage: examples/head_models.py FOLDER OUT          makes what OUT lacks, then prints the tables as Markdown
       examples/head_models.py FOLDER OUT make     the texts and traces alone
       examples/head_models.py FOLDER OUT tables   the tables and figures of those traces that are there

FOLDER holds wikitext2-valid.txt and gsm8k-train.jsonl.  MODELS are names of 'kvfate models' that were fetched.  All models read
the same eight texts of about 1,000 tokens of the first model.  A stopped run continues with the same command.  KVFATE names the
program (kvfate).
"""
import json
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from heads import KVFATE, cut, once, sources  # noqa: E402

MODELS = ("smollm2-135m", "gemma-3-270m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")
LENGTH = 1000
# Matches compare the first group of texts of one model with the second group of another: no text is in both.
FIRST = ["prose-0", "maths-0", "pages-0", "code-0"]
SECOND = ["prose-4", "maths-2", "pages-1", "code-2"]
NEEDLES, RANDOM = 8, 10  # prompts of either kind
NEEDLE_TOKENS = 400
# Of each model the token that begins a text, and the size of its vocabulary.
START = {"smollm2-135m": (1, 49152), "gemma-3-270m": (2, 262144), "qwen2.5-coder-0.5b": (151643, 151643), "qwen2.5-coder-1.5b": (151643, 151643)}


def run(*args, output=None):
    return subprocess.run(["nice", "-n", "19", KVFATE, *map(str, args)], check=True, stdout=output or subprocess.DEVNULL)


def text(folder, out, name):
    kind, k = name.split("-")
    return once(f"{out}/text/{name}.txt", lambda part: cut(MODELS[0], sources(folder)[kind][int(k)], LENGTH, part))


def trace(out, model, name):
    """The trace of a model and a text: OUT/trace/MODEL.TEXT.kvf"""
    return once(f"{out}/trace/{model}.{name}.kvf", lambda part: run("run", "-m", model, "-f", f"{out}/text/{name}.txt", "--raw", "-n", 0, "-t", 1, "--probes", "paper", "-q", "--overwrite", "-o", part))


def needle_text(out, k):
    """A prompt with three hidden numbers, which ends where the number that is asked for follows: all models can complete it, also
    without a chat template.  The span `value` is the number in the prompt."""
    def write(part):
        run("needle", "--tokens", NEEDLE_TOKENS, "--keys", 3, "-s", k, "-o", part)
        with open(part + ".txt", encoding="utf-8") as f, open(part + ".json", encoding="utf-8") as g:
            prompt, reply = f.read(), json.load(g)["reply"]
        with open(part, "w", encoding="utf-8") as f:
            f.write(prompt + "\n\n" + reply["text"][:reply["values"][0][0]].rstrip())
        os.replace(part + ".json", f"{out}/text/needle-{k}.json")
        os.remove(part + ".txt")
    return once(f"{out}/text/needle-{k}.txt", write)


def needle(out, model, k):
    return once(f"{out}/needle/{model}.{k}.kvf", lambda part: run(
        "run", "-m", model, "-f", needle_text(out, k), "--spans", f"{out}/text/needle-{k}.json", "--raw", "-n", 12, "-t", 1, "--probes", "paper,copies", "-q", "--overwrite", "-o", part))


def repeated(out, model, k):
    """The trace of 25 different random tokens, 4 times, after the start token.  The first and the last 4 % of the vocabulary are left
    out: they hold special and byte tokens, and the most and the least common ones."""
    start, size = START[model]
    ids = random.Random(k).sample(range(size // 25, size - size // 25), 25)
    path = f"{out}/text/repeated-{model}-{k}.ids"
    with open(path, "w", encoding="ascii") as f:
        f.write(" ".join(map(str, [start, *ids * 4])))
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


if __name__ == "__main__":
    make(*sys.argv[1:3])
