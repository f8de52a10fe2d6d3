#!/usr/bin/env python3
"""Write next-token logits of PyTorch (transformers, float32, eager attention) for a GGUF model.

usage: make_logits_golden.py MODEL.gguf -o logits_golden.json
       make_logits_golden.py --tiny -o tiny_golden.json      (models made by gen_tiny.py)

Every result is compared with llama_numpy.py, a float64 forward pass that shares no code with transformers.
"""
import argparse
import os
import random
import tempfile

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from llama_numpy import Llama
from make_tokenizer_golden import build, read_vocab
from torch_golden import floats, log_sum_exp, nll, sha256, tiny, write

SYSTEM = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"

ENGLISH = ("The lighthouse keeper wound the clock every evening, wrote one line about the weather in the ledger, and climbed the stairs to")
CHAT = SYSTEM + "<|im_start|>user\nWhich planet is closest to the sun? Answer with one word.<|im_end|>\n<|im_start|>assistant\n"
CODE = '''#include <stdio.h>

/* Count the words in a string. */
static int count_words(const char *s)
{
    int n = 0, inside = 0;
    for (; *s; s++) {
        if (*s == ' ' || *s == '\\n' || *s == '\\t') {
            inside = 0;
        } else if (!inside) {
            inside = 1;
            n++;
        }
    }
    return'''
MIXED = "今天早上下了一场大雨,街上几乎没有人。Der alte Bäcker öffnete trotzdem pünktlich um sechs Uhr seinen Laden und sagte: „Guten"
EMOJI = "Weather report 🌦️: Monday ☀️, Tuesday 🌧️🌧️, Wednesday ⛈️ (stay home! 🏠🐈‍⬛), Thursday 🌈 and Friday 👩🏽‍🚀🚀"


def long_text(seed=7):
    """A made-up harbour log, about 1,600 tokens."""
    rng = random.Random(seed)
    who = ["the pilot", "a young carpenter", "the harbour master", "Mrs. Adeyemi", "the night guard", "two sailors from the north", "the cook"]
    did = ["mended the long net", "counted the barrels", "painted the second door", "argued about the price of rope", "repaired the lamp",
           "wrote a letter to the council", "carried salt to the upper store", "measured the depth at the pier"]
    why = ["because the wind had turned", "although nobody had asked", "before the fog came in", "as the tide table demands", "while the bell was silent",
           "and was paid in oranges", "to be ready for the winter"]
    sky = ["clear", "grey", "full of gulls", "dark in the west", "red at dawn"]
    out = ["Log of the small harbour, kept by hand.\n\n"]
    for day in range(1, 28):
        out.append(f"Day {day}. Sky {rng.choice(sky)}, {rng.randint(-3, 24)} degrees, {rng.randint(0, 9)} boats in. "
                   f"In the morning {rng.choice(who)} {rng.choice(did)} {rng.choice(why)}; later {rng.choice(who)} {rng.choice(did)}. "
                   f"Spent {rng.randint(1, 99)}.{rng.randint(10, 99)} on {rng.choice(['tar', 'bread', 'canvas', 'lamp oil'])}.\n")
    return "".join(out) + "Day 28. Sky"


# name, text, whether the teacher-forced NLL of every position goes into the file
PROMPTS = [("english", ENGLISH, True), ("chat", CHAT, False), ("code", CODE, True), ("chinese_german", MIXED, False), ("emoji", EMOJI, False),
           ("long", long_text(), False)]

TINY = ["--type " + t for t in ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1")] + [
    "--layers 3 --heads 6 --kv-heads 2 --head-dim 32 --dim 96 --ffn 160 --vocab 320 --seed 5 --rope-base 500000 --untied --type q4_1",
    "--layers 2 --heads 3 --kv-heads 1 --head-dim 64 --dim 96 --ffn 64 --vocab 259 --seed 9 --type f32",
]


def load(path):
    folder, name = os.path.split(os.path.abspath(path))
    return AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32, attn_implementation="eager").eval()


@torch.no_grad()
def run(model, ids):
    return model(torch.tensor([ids])).logits[0].numpy()


def make_prompts(path):
    tk = build(*read_vocab(path))
    model, second = load(path), Llama(path)
    picked = np.random.RandomState(2048).permutation(model.config.vocab_size)[:2048]
    prompts = []
    for name, text, with_nll in PROMPTS:
        ids = tk.encode(text, add_special_tokens=False).ids
        all_rows = run(model, ids)
        row = all_rows[-1]
        worst = float(np.abs(row - second.logits(ids, last_only=True)[0]).max())
        top = np.argsort(-row, kind="stable")[:64]
        chosen = np.unique(np.concatenate([picked, top]))
        prompts.append({
            "name": name, "text": text, "ids": ids, "vocab_ids": chosen.tolist(), "logits": floats(row[chosen]), "top": top.tolist(),
            "max": float(row.max()), "min": float(row.min()), "mean": float(row.mean(dtype=np.float64)), "lse": log_sum_exp(row),
            "diff_f64": float(f"{worst:.3g}"),
        })
        if with_nll:
            prompts[-1]["nll"] = nll(all_rows, ids)
        print(f"{name}: {len(ids)} ids, next {tk.id_to_token(int(top[0]))!r}, logits {row.min():.3f}..{row.max():.3f}, "
              f"max abs difference to float64 {worst:.2e}", flush=True)
    return {"prompts": prompts}


def make_tiny():
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        for i, options in enumerate(TINY):
            path = tiny(options, folder, i)
            model, second = load(path), Llama(path)
            rng = random.Random(i)
            for n in (20, 70):
                ids = [rng.randrange(model.config.vocab_size) for _ in range(n)]
                rows = run(model, ids)
                worst = float(np.abs(rows - second.logits(ids)).max())
                cases.append({"args": options, "sha256": sha256(path), "ids": ids, "logits": floats(rows[-1]), "lse": log_sum_exp(rows[-1]),
                              "argmax": rows.argmax(-1).tolist(), "nll": nll(rows, ids), "diff_f64": float(f"{worst:.3g}")})
                print(f"{options}: {n} ids, logits {rows.min():.3f}..{rows.max():.3f}, max abs difference to float64 {worst:.2e}")
    return {"cases": cases}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("model", nargs="?")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("-o", required=True)
    args = ap.parse_args()
    if args.tiny == bool(args.model):
        ap.error("either MODEL.gguf or --tiny")
    torch.set_num_threads(1)
    write(args.o, make_tiny() if args.tiny else {"model_sha256": sha256(args.model), **make_prompts(args.model)})


if __name__ == "__main__":
    main()
