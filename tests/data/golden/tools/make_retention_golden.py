#!/usr/bin/env python3
"""Write gate files as the published retention gates are saved, and what the published attention layers make of them.

usage: make_retention_golden.py --officials DIR -o DIR

DIR/trimkv is a checkout of ngocbh/trimkv at the commit below.  Writes published_KIND.pth, the weights by the names of the whole model, and
published.json, which tests/data/golden/README.md describes, into the folder of -o (tests/data/torch).
"""
import argparse
import json
import os
import types

import torch
import torch.nn.functional as F
from torch import nn

import method_officials

SOURCE = ("ngocbh/trimkv", "0456bc4eb5bc20972c7463cabf3ae859e498f7f6", {
    "src/trimkv/models/llama/modeling_trimkv_llama.py": "5972b6d01a081ec1",
    "src/trimkv/models/qwen3/modeling_trimkv_qwen3.py": "58b6ebce30b7239a"})
L, G, H, D, D_MODEL, HIDDEN, BASE = 2, 4, 2, 4, 6, 4, 1e4
POSITIONS = [0, 1, 2, 9, 77, 1500]
CASES = [("rg", "qwen3"), ("rg2", "qwen3"), ("rg3", "qwen3"), ("rg2", "llama")]


def attention_classes(trees, family):
    """The attention layer of a family, with the gates that it may have; attention itself is left out: it hands over its gates."""
    gates = ["RetentionGate", "RetentionGate2"] + (["RetentionGate3", "Qwen3RMSNorm"] if family == "qwen3" else [])
    name = "TrimKV" + family.capitalize() + "Attention"
    seen = []

    def attention(module, query, *_, retention_weights, **__):
        seen.append(retention_weights)
        return query.transpose(1, 2), None, None
    trees.done.clear()  # what is cut out again calls the function above
    code = trees.cut("trimkv", f"src/trimkv/models/{family}/modeling_trimkv_{family}.py", [*gates, name, "rotate_half", "apply_rotary_pos_emb"],
                     ACT2FN={"silu": F.silu}, get_attention_interface=lambda _: attention)
    return getattr(code, name), seen


def config(kind):
    return types.SimpleNamespace(
        hidden_size=D_MODEL, num_attention_heads=G, num_key_value_heads=H, head_dim=D, attention_dropout=0.0, attention_bias=False, hidden_act="silu",
        retention_gate=kind, retention_gate_intermediate_size=HIDDEN, retention_gate_bias_init=2.0, rms_norm_eps=1e-6, sliding_window=None,
        use_sliding_window=False, max_window_layers=L, attn_impl="none", _attn_implementation="none")


def angles():
    """cos and sin [1, tokens, D] as the rotary embedding of these models gives them."""
    inverse = BASE ** (-torch.arange(0, D, 2).float() / D)
    a = torch.tensor(POSITIONS).float()[:, None] * inverse
    return torch.cat([a, a], -1).cos()[None], torch.cat([a, a], -1).sin()[None]


def case(trees, kind, family, seed, folder):
    torch.manual_seed(seed)
    cls, seen = attention_classes(trees, family)
    tensors, layers = {}, []
    for i in range(L):
        layer = cls(config(kind), i).eval()
        for p in layer.parameters():
            nn.init.normal_(p, 0.0, 0.7)
        x = torch.randn(1, len(POSITIONS), D_MODEL)
        shape = (len(POSITIONS), H, D)
        with torch.no_grad():
            layer(x, angles(), None)
            key = layer.k_proj(x).view(shape)
            key = layer.k_norm(key) if family == "qwen3" else key
        layers.append({"x": x[0].tolist(), "k_pre": key.tolist(), "v": layer.v_proj(x).detach().view(shape).tolist(),
                       "log_beta": seen[-1][0].T.tolist()})  # [tokens][H]
        tensors |= {f"model.layers.{i}.self_attn.retention_gate.{name}": t for name, t in layer.retention_gate.state_dict().items()}
    name = f"published_{kind}{'_llama' if family == 'llama' else ''}.pth"
    torch.save(tensors, os.path.join(folder, name))
    return {"kind": kind, "family": family, "file": name, "positions": POSITIONS, "layers": layers}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--officials", required=True)
    p.add_argument("-o", "--output", required=True)
    o = p.parse_args()
    method_officials.SOURCES.clear()
    method_officials.SOURCES["trimkv"] = SOURCE
    trees = method_officials.Trees(o.officials)
    if trees.digests("trimkv") != SOURCE[2]:
        raise SystemExit(f"{o.officials}/trimkv: not the files of commit {SOURCE[1]}")
    cases = [case(trees, kind, family, i + 1, o.output) for i, (kind, family) in enumerate(CASES)]
    with open(os.path.join(o.output, "published.json"), "w") as f:
        f.write(json.dumps({"versions": {"torch": torch.__version__.split("+")[0]}, "source": {"repository": SOURCE[0], "commit": SOURCE[1]}})[:-1])
        f.write(',\n"cases": [\n' + ",\n".join(json.dumps(c) for c in cases) + "\n]}\n")


main()
