#!/usr/bin/env python3
"""Compare kvfate with independent references on real models: tokens of hard lines, and logits in float64.

usage: compare_models.py KVFATE [MODEL...] [--lines 2000] [--tokens 560] [--only tokens|logits]

MODEL is a name of `kvfate models` or a GGUF file; by default all models of that list.  The script needs numpy, gguf, tokenizers and, for Gemma, sentencepiece.

Tokens: each line must have the ids of the model's own tokenizer.  For a byte-level vocabulary this is the tokenizers library on the vocabulary and merges of
the file, with the published pre-tokenizer and normalizer.  For a SentencePiece vocabulary it is the sentencepiece library on the pieces and scores of the file,
between the special tokens, which are cut out of the text first.

Logits: the reference is llama_numpy.py, a forward pass in float64 on the weights that the gguf package dequantises.  The error of a row is the largest
absolute difference of a logit, divided by the largest absolute logit of the reference.  kvfate runs with --exact (f32 weights, activations and cache).  The
rows are those after 1, 64 and 96 tokens of a text in many scripts.  For a model with a sliding window, the rows after 8 tokens more than the window and
after --tokens tokens of an English text are compared, too.  The NLL of every token of the first text is compared as an absolute difference.
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile

import numpy as np

from llama_numpy import Llama
from varied_lines import CODE, EMOJI, SCRIPTS, WORDS, varied
from vocabularies import CONTROL, QWEN, USER, Gguf, digits_then_words, sentencepiece_reference, splits, tokenizers_reference

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "..")
sys.path.insert(0, os.path.join(ROOT, "python"))
import kvfate  # noqa: E402
from kvfate.model_list import MODELS  # noqa: E402

LIMIT = 1e-4  # of the error of a row
SHORT = 96
STRANGE = ["\ufffd", "\ufffe", "\uffff", "\U0010ffff", "\ue000", "\U000f0000", "\u00c3\u00a9\u00e2\u201a\u00ac", "\u00ef\u00bb\u00bf", "\ufeff", "\u202e", "\u2066",
           "\U000e0041", "\ufe0f", "\u200d\u200d", "\u0300" * 9, "\u00ad", "\ud7ff", "\U0001f1e6"]
ALIKE = ["<|im_start |>", "<|IM_START|>", "< |im_end|>", "<|im_end|", "|im_start|>", "<bos", "<Bos>", "<<bos>>", "<start_of_turn>", "<unused999999>", "<unused1",
         "<|fim_prefix|", "<tool_call", "</tool_call >", "<|<|endoftext|>|>", "<pad><pad>", "[multimodal", "<0x0G>", "<0xFF>", "[PAD151700]", "\uff1cbos\uff1e"]


def hard_part(r, special):
    kind = r.randrange(7)
    if kind == 0:
        return "".join(chr(r.choice([r.randrange(1, 0x20), r.randrange(0x7f, 0xa0)])) for _ in range(r.randrange(1, 5)))
    if kind == 1:
        return r.choice(STRANGE) * r.choice([1, 1, 2, 5])
    if kind == 2:
        return r.choice(ALIKE)
    if kind == 3:
        return r.choice(special)
    if kind == 4:
        return r.choice(" \t\n") * r.randrange(1, 70)
    if kind == 5:
        return "".join(r.choice("0123456789") for _ in range(r.randrange(1, 40)))
    return r.choice(WORDS + SCRIPTS + CODE)


def hard_lines(n, special):
    """Returns n lines: three quarters of varied_lines.py, and others with control characters, odd but valid UTF-8, long runs, names of the file's own
    special tokens and texts that look like them."""
    r, out = random.Random(56), varied(n * 3 // 4)
    while len(out) < n:
        out.append("".join(hard_part(r, special) + r.choice(["", "", " ", "a"]) for _ in range(r.randrange(1, 9))))
    return out


def cut_at_names(names, encode):
    """Returns an encoder that first cuts the special tokens out of a text, the leftmost and longest first."""
    first = "".join(re.escape(c) for c in {n[0] for n in names})
    cut = re.compile("((?=[%s])(?:%s))" % (first, "|".join(re.escape(n) for n in sorted(names, key=len, reverse=True))))
    return lambda text: [i for part in cut.split(text) for i in ([names[part]] if part in names else encode(part))]


def tokenizer_of(g):
    """Returns (names of the special tokens, the reference that encodes a text without a start mark)."""
    names = {t.decode(): i for i, (t, k) in enumerate(zip(g.get("tokens"), g.get("token_type"))) if k in (CONTROL, USER)}
    if g.get("model") == b"llama":
        return sorted(names), cut_at_names(names, sentencepiece_reference(g, users=False))
    if g.get("pre") == b"smollm":
        return sorted(names), tokenizers_reference(g, digits_then_words())
    if g.get("pre") == b"qwen2":
        return sorted(names), tokenizers_reference(g, splits([QWEN]), nfc=True)
    sys.exit("the pre-tokenizer %s is not written here" % g.get("pre"))


def ids_of(program, model, texts, **more):
    """Returns the ids that `kvfate tokenize` gives to texts."""
    lines = "".join(json.dumps({"text": t, **more}) + "\n" for t in texts)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
        f.write(lines)
        f.flush()
        out = subprocess.run([program, "tokenize", "-m", model, "--jsonl", f.name], stdout=subprocess.PIPE, text=True, check=True).stdout
    return [json.loads(line)["ids"] for line in out.splitlines()]


def compare_tokens(program, model, path, n):
    """Returns the number of lines with equal ids, and prints the first three that differ."""
    names, reference = tokenizer_of(Gguf.read(path))
    texts, equal = hard_lines(n, names), 0
    for text, got in zip(texts, ids_of(program, model, texts, start=False)):
        want = reference(text)
        equal += got == want
        if got != want and (texts.index(text) + 1 - equal) <= 3:
            at = next((k for k, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
            print(f"  {text!r}\n    token {at}: kvfate {got[at:at + 9]}, reference {want[at:at + 9]}", file=sys.stderr)
    return equal


def texts_of(program, model, tokens):
    """Returns the ids of the two texts."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
        page = f.read()
    r = random.Random(64)
    mixed = [s for group in (SCRIPTS, CODE, EMOJI, WORDS) for s in group]
    r.shuffle(mixed)
    short, long = ids_of(program, model, [" ".join(mixed), page])
    if len(short) < SHORT or len(long) < tokens:
        sys.exit("the texts are too short for %d tokens" % tokens)
    return short[:SHORT], long[:tokens]


def own_logits(program, model, ids, folder):
    """Returns the logits after ids."""
    path = os.path.join(folder, "ids")
    with open(path, "w") as f:
        f.write(" ".join(map(str, ids)))
    subprocess.run([program, "generate", "--logits", "-m", model, "--ids", path, "--exact", "-o", path + ".npy"], check=True)
    return np.load(path + ".npy").astype(float)


def own_nll(program, model, ids, folder):
    """Returns the NLL of ids[1:]."""
    path = os.path.join(folder, "ids")
    with open(path, "w") as f:
        f.write(" ".join(map(str, ids)))
    subprocess.run([program, "run", "-m", model, "--ids", path, "--exact", "-n", "1", "-q", "--probes", "nll", "--overwrite", "-o", path + ".kvf"],
                   check=True, stdout=subprocess.DEVNULL)
    return kvfate.open(path + ".kvf")["nll"][1:len(ids)].astype(float)


def compare_logits(program, model, path, tokens):
    """Returns the largest error of a row, and the largest difference of an NLL."""
    short, long = texts_of(program, model, tokens)
    reference = Llama(path)
    if reference.window and reference.window + 8 > tokens:
        sys.exit("--tokens must be at least %d" % (reference.window + 8))
    all_rows, worst = reference.logits(short), 0.0
    rows = [(short[:n], all_rows[n - 1]) for n in (1, 64, SHORT)]
    if reference.window:
        ends = [reference.window + 8, tokens]
        rows += [(long[:n], row) for n, row in zip(ends, reference.logits(long, at=[n - 1 for n in ends]))]
    top = all_rows.max(-1)
    lse = top + np.log(np.exp(all_rows - top[:, None]).sum(-1))
    nll = (lse - all_rows[np.arange(SHORT), np.roll(short, -1)])[:-1]
    with tempfile.TemporaryDirectory() as folder:
        for ids, want in rows:
            error = np.abs(own_logits(program, model, ids, folder) - want).max() / np.abs(want).max()
            print(f"  after {len(ids)} tokens: {error:.1e}", file=sys.stderr, flush=True)
            worst = max(worst, error)
        return worst, np.abs(own_nll(program, model, short, folder) - nll).max()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("kvfate")
    ap.add_argument("models", nargs="*", default=[m.name for m in MODELS])
    ap.add_argument("--lines", type=int, default=2000)
    ap.add_argument("--tokens", type=int, default=560)
    ap.add_argument("--only", choices=("tokens", "logits"))
    a = ap.parse_intermixed_args()
    files = {m.name: os.path.join(os.path.expanduser("~/.cache/kvfate"), m.file) for m in MODELS}
    wrong = False
    print("| model | equal lines | logits | NLL |\n| --- | --- | --- | --- |", flush=True)
    for model in a.models:
        path, cells = files.get(model, model), ["-", "-", "-"]
        if a.only != "logits":
            equal = compare_tokens(a.kvfate, model, path, a.lines)
            cells[0], wrong = f"{equal} of {a.lines}", wrong or equal < a.lines
        if a.only != "tokens":
            error, nll = compare_logits(a.kvfate, model, path, a.tokens)
            cells[1:], wrong = [f"{error:.1e}", f"{nll:.1e}"], wrong or not error < LIMIT
        print("| %s | %s |" % (model, " | ".join(cells)), flush=True)
    sys.exit(wrong)


if __name__ == "__main__":
    main()
