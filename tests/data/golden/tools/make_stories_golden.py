#!/usr/bin/env python3
"""Write tokens, logits and greedy answers of stories260K.gguf as transformers computes them, in float32.

usage: make_stories_golden.py stories260K.gguf -o stories_golden.json

The model (A. Karpathy, tinyllamas, MIT) is a really trained Llama of 260,000 weights with a SentencePiece vocabulary of 512 tokens.
Tokens come from transformers' own reading of the file and must equal those of the sentencepiece library on the same pieces and scores;
logits must agree with llama_numpy.py, a float64 forward pass that shares no code with transformers.
"""
import argparse
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import sentencepiece
import torch
import transformers

from llama_numpy import Llama
from torch_golden import floats, log_sum_exp, nll, sha256, write
from vocabularies import Gguf, sentencepiece_model

GREEDY = 200
TEXTS = ["Once upon a time", "Lily and Tom went to the park. They saw a big dog.\n\"Hello, dog!\" said Tom.\n",
         "One day, a cat named Zo\u00eb \U0001f408 found 3 red balls  and 12 more, "]


def read_tokenizer(path):
    """As transformers reads it, of a copy where two tokens that the file names by 2^32 - 1, which means none, are token 0."""
    data = Path(path).read_bytes()
    for key in (b"seperator_token_id", b"padding_token_id"):
        data = data.replace(key + b"\x04\0\0\0\xff\xff\xff\xff", key + b"\x04\0\0\0\0\0\0\0")
    with tempfile.TemporaryDirectory() as folder:
        Path(os.path.join(folder, "copy.gguf")).write_bytes(data)
        return transformers.AutoTokenizer.from_pretrained(folder, gguf_file="copy.gguf")


@torch.no_grad()
def make_case(model, second, text, ids):
    rows = model(torch.tensor([ids])).logits[0].numpy()
    worst = np.abs(rows - second.logits(ids)).max()
    print(f"{len(ids)} ids, difference to numpy {worst:.1e}")
    if worst > 1e-4:
        sys.exit("the two passes differ")
    answer, margin = list(ids), np.inf
    for _ in range(GREEDY):
        row = model(torch.tensor([answer])).logits[0, -1]
        top = row.topk(2).values
        margin = min(margin, float(top[0] - top[1]))
        answer.append(int(row.argmax()))
    print(f"{GREEDY} greedy tokens, smallest lead of the best over the second {margin:.1e}")
    return {"args": text[:20], "text": text, "ids": ids, "logits": floats(rows[-1]), "lse": log_sum_exp(rows[-1]),
            "argmax": rows.argmax(-1).tolist(), "nll": nll(rows, ids),
            "greedy": answer[len(ids):], "diff_numpy": float(f"{worst:.2g}"), "least_lead": float(f"{margin:.2g}")}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("model")
    ap.add_argument("-o", required=True)
    args = ap.parse_args()
    torch.set_num_threads(1)
    folder, name = os.path.split(os.path.abspath(args.model))
    config = transformers.AutoConfig.from_pretrained(folder, gguf_file=name)
    config.pad_token_id = None  # the file says 2^32 - 1, which means none
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, config=config, dtype=torch.float32, attn_implementation="eager").eval()
    tokenizer = read_tokenizer(args.model)
    pieces = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model(Gguf.read(args.model)))
    second, cases = Llama(args.model), []
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"]
        if ids != [1] + pieces.encode(text):
            sys.exit(f"{text!r}: transformers {ids}, sentencepiece {[1] + pieces.encode(text)}")
        cases.append(make_case(model, second, text, ids))
    write(args.o, {"sha256": sha256(args.model), "cases": cases}, sentencepiece=sentencepiece.__version__)


if __name__ == "__main__":
    main()
