#!/usr/bin/env python3
"""Write the tokenizer golden file: one JSON object {"text", "ids"} a line, pure ASCII.

usage: make_tokenizer_golden.py MODEL.gguf -o tokenizer_golden.jsonl [--new-unicode] [--check-transformers] [--check-llama LLAMA_TOKENIZE]

The reference is HF `tokenizers`: BPE over the GGUF's tokens and merges, behind
Sequence[Digits(individual), ByteLevel(GPT-2 regex)], special tokens matched first.
"""
import argparse
import collections
import json
import os
import subprocess
import tempfile

import tokenizers
from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from golden_texts import new_unicode, texts

CONTROL, USER_DEFINED = 3, 4


def read_vocab(path):
    fields = GGUFReader(path).fields
    return [fields["tokenizer.ggml." + k].contents() for k in ("tokens", "token_type", "merges")]


def build(tokens, types, merges):
    tk = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[tuple(m.split(" ")) for m in merges]))
    tk.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ])
    tk.decoder = decoders.ByteLevel()
    tk.add_special_tokens([AddedToken(t, normalized=False) for t, k in zip(tokens, types) if k in (CONTROL, USER_DEFINED)])
    return tk


def token_texts(tk, tokens, types):
    """Each plain token as text, or None where it is no whole UTF-8 by itself."""
    decoded = [tk.decode([i]) if k == 1 else None for i, k in enumerate(types)]
    return [None if t is None or "\ufffd" in t else t for t in decoded]


def report(name, rows, theirs):
    bad = [(c, t, ids, other) for (c, t, ids), other in zip(rows, theirs) if ids != other]
    print(f"{name}: {len(bad)} of {len(rows)} lines differ {dict(collections.Counter(b[0] for b in bad))}")
    for c, t, ids, other in bad[:12]:
        print(f"  [{c}] {t!a}\n     golden {ids}\n     theirs {other}")


def check_transformers(model, rows):
    from transformers import AutoTokenizer
    folder, name = os.path.split(os.path.abspath(model))
    tk = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    report("transformers, as loaded", rows, [tk(t, add_special_tokens=False)["input_ids"] for _, t, _ in rows])
    tk.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    report("transformers, with Digits put back", rows, [tk(t, add_special_tokens=False)["input_ids"] for _, t, _ in rows])


def check_llama(binary, model, rows):
    theirs = []
    with tempfile.NamedTemporaryFile() as f:
        for _, text, _ in rows:
            f.seek(0)
            f.truncate()
            f.write(text.encode())
            f.flush()
            out = subprocess.run([binary, "-m", model, "-f", f.name, "--ids", "--no-bos", "--no-escape", "--log-disable"],
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
            theirs.append(json.loads(out))
    report("llama-tokenize", rows, theirs)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("model")
    ap.add_argument("-o", required=True)
    ap.add_argument("--new-unicode", action="store_true", help="only lines whose ids depend on the Unicode version (15 to 17)")
    ap.add_argument("--check-transformers", action="store_true")
    ap.add_argument("--check-llama")
    args = ap.parse_args()

    tokens, types, merges = read_vocab(args.model)
    tk = build(tokens, types, merges)
    source = new_unicode() if args.new_unicode else texts(token_texts(tk, tokens, types))
    rows = [(c, t, tk.encode(t, add_special_tokens=False).ids) for c, t in source]
    with open(args.o, "w") as f:
        for _, text, ids in rows:
            f.write(json.dumps({"text": text, "ids": ids}, separators=(",", ":")) + "\n")
    print(f"tokenizers {tokenizers.__version__}: {len(rows)} lines, {os.path.getsize(args.o)} bytes,",
          dict(collections.Counter(c for c, _, _ in rows)))
    lossy = sum(tk.decode(ids, skip_special_tokens=False) != t for _, t, ids in rows)
    print(f"{lossy} lines do not decode back to their text (bytes without a token)")
    if args.check_transformers:
        check_transformers(args.model, rows)
    if args.check_llama:
        check_llama(args.check_llama, args.model, rows)


if __name__ == "__main__":
    main()
