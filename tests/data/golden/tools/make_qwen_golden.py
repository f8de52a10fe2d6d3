#!/usr/bin/env python3
"""Write next-token logits of tiny random Qwen2 and Qwen3 models as transformers computes them, in float64.

usage: make_qwen_golden.py -o qwen_golden.json      (models made by gen_tiny.py)

The models are Qwen2ForCausalLM and Qwen3ForCausalLM of a config written here, with the tensors of the GGUF file put in under
their own names: no loader that knows the format stands between.  Every result is compared with llama_numpy.py, a float64 forward
pass that shares no code with transformers, and with the same model in float32.
"""
import argparse
import random
import sys
import tempfile

import numpy as np
import torch

from llama_numpy import Llama
from make_family_golden import File, load
from torch_golden import floats, log_sum_exp, nll, sha256, tiny, write

CASES = [
    "--arch qwen3 --layers 3 --heads 4 --kv-heads 2 --head-dim 16 --dim 48 --ffn 80 --seed 11 --rope-base 1000000",
    "--arch qwen3 --layers 2 --heads 4 --kv-heads 2 --head-dim 32 --dim 64 --seed 12 --eps 0.02 --untied",
    "--arch qwen3 --layers 2 --heads 4 --kv-heads 2 --head-dim 32 --dim 64 --seed 13 --type q8_0",
    "--arch qwen2 --layers 2 --heads 4 --kv-heads 2 --head-dim 16 --dim 64 --seed 14",
]


@torch.no_grad()
def make_case(options, path, i):
    rng, out = random.Random(1000 + i), []
    file = File(path)
    model, second = load(file, file.arch.capitalize(), ""), Llama(path)
    for n in (24, 90):
        ids = [rng.randrange(model.config.vocab_size) for _ in range(n)]
        rows = model.double()(torch.tensor([ids])).logits[0].numpy()
        single = model.float()(torch.tensor([ids])).logits[0].numpy()
        worst, rounding = np.abs(rows - second.logits(ids)).max(), np.abs(rows - single).max()
        print(f"{options}: {n} ids, logits {rows.min():.3f}..{rows.max():.3f}, difference to numpy {worst:.1e}, to float32 {rounding:.1e}")
        if worst > 1e-5:
            sys.exit("the two float64 passes differ")
        out.append({"args": options, "sha256": sha256(path), "ids": ids, "logits": floats(rows[-1]), "lse": log_sum_exp(rows[-1]),
                    "argmax": rows.argmax(-1).tolist(), "nll": nll(rows, ids),
                    "diff_numpy": float(f"{worst:.2g}"), "diff_f32": float(f"{rounding:.2g}")})
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("-o", required=True)
    args = ap.parse_args()
    torch.set_num_threads(1)
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        for i, options in enumerate(CASES):
            cases += make_case(options, tiny(options, folder, i), i)
    write(args.o, {"cases": cases})


if __name__ == "__main__":
    main()
