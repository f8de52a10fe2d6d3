#!/usr/bin/env python3
"""Write next-token logits of tiny random Qwen2 and Qwen3 models as transformers computes them, in float64.

usage: make_qwen_golden.py -o qwen_golden.json      (models made by gen_tiny.py)

The models are Qwen2ForCausalLM and Qwen3ForCausalLM of a config written here, with the tensors of the GGUF file put in under
their own names: no loader that knows the format stands between.  Every result is compared with llama_numpy.py, a float64 forward
pass that shares no code with transformers, and with the same model in float32.
"""
import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile

import gguf
import numpy as np
import torch
import transformers

from llama_numpy import Llama

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = [
    "--arch qwen3 --layers 3 --heads 4 --kv-heads 2 --head-dim 16 --dim 48 --ffn 80 --seed 11 --rope-base 1000000",
    "--arch qwen3 --layers 2 --heads 4 --kv-heads 2 --head-dim 32 --dim 64 --seed 12 --eps 0.02 --untied",
    "--arch qwen3 --layers 2 --heads 4 --kv-heads 2 --head-dim 32 --dim 64 --seed 13 --type q8_0",
    "--arch qwen2 --layers 2 --heads 4 --kv-heads 2 --head-dim 16 --dim 64 --seed 14",
]
INSIDE = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
          "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "attn_output": "self_attn.o_proj",
          "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def name_of(tensor):
    """The name in transformers of a tensor of the GGUF file."""
    part, kind = tensor.rsplit(".", 1)
    if part in OUTSIDE:
        return f"{OUTSIDE[part]}.{kind}"
    _, layer, part = part.split(".")
    return f"model.layers.{layer}.{INSIDE[part]}.{kind}"


def load(path):
    reader = gguf.GGUFReader(path)
    arch = reader.fields["general.architecture"].contents()
    get = lambda key: reader.fields[f"{arch}.{key}"].contents()
    tensors = {name_of(t.name): torch.from_numpy(gguf.dequantize(t.data, t.tensor_type).astype("float64")) for t in reader.tensors}
    kind = {"qwen2": "Qwen2", "qwen3": "Qwen3"}[arch]
    base, tied = float(get("rope.freq_base")), "lm_head.weight" not in tensors
    config = getattr(transformers, kind + "Config")(
        vocab_size=get("vocab_size"), hidden_size=get("embedding_length"), intermediate_size=get("feed_forward_length"),
        num_hidden_layers=get("block_count"), num_attention_heads=get("attention.head_count"),
        num_key_value_heads=get("attention.head_count_kv"), head_dim=get("attention.key_length"),
        rms_norm_eps=get("attention.layer_norm_rms_epsilon"), rope_theta=base, rope_parameters={"rope_type": "default", "rope_theta": base},
        tie_word_embeddings=tied, attn_implementation="eager")
    model = getattr(transformers, kind + "ForCausalLM")(config).double().eval()
    missing, unknown = model.load_state_dict(tensors, strict=False)
    if unknown or set(missing) - ({"lm_head.weight"} if tied else set()):
        sys.exit(f"{path}: tensors missing {missing}, unknown {unknown}")
    model.tie_weights()
    return model


def log_sum_exp(row):
    return float(row.max() + np.log(np.exp(row - row.max()).sum()))


def floats(row):
    return [float(f"{x:.9g}") for x in row]


@torch.no_grad()
def make_case(options, path, i):
    rng, out = random.Random(1000 + i), []
    model, second = load(path), Llama(path)
    with open(path, "rb") as f:
        digest = hashlib.sha256(f.read()).hexdigest()
    for n in (24, 90):
        ids = [rng.randrange(model.config.vocab_size) for _ in range(n)]
        rows = model.double()(torch.tensor([ids])).logits[0].numpy()
        single = model.float()(torch.tensor([ids])).logits[0].numpy()
        worst, rounding = np.abs(rows - second.logits(ids)).max(), np.abs(rows - single).max()
        print(f"{options}: {n} ids, logits {rows.min():.3f}..{rows.max():.3f}, difference to numpy {worst:.1e}, to float32 {rounding:.1e}")
        if worst > 1e-5:
            sys.exit("the two float64 passes differ")
        out.append({"args": options, "sha256": digest, "ids": ids, "logits": floats(rows[-1]), "lse": log_sum_exp(rows[-1]),
                    "argmax": rows.argmax(-1).tolist(), "nll": [float(f"{log_sum_exp(r) - r[t]:.9g}") for r, t in zip(rows, ids[1:])],
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
            path = os.path.join(folder, f"{i}.gguf")
            subprocess.run([sys.executable, os.path.join(HERE, "gen_tiny.py"), *options.split(), "-o", path], check=True)
            cases += make_case(options, path, i)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "numpy": np.__version__}
    with open(args.o, "w") as f:
        json.dump({"versions": versions, "cases": cases}, f, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
