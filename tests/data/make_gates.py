#!/usr/bin/python3
"""Write a gate file with seeded random numbers (docs/reference/gates.md has the format).

usage: make_gates.py --layout rg --layers 2 --heads 4 --kv-heads 2 --head-dim 8 --d-model 32 --seed 1 -o FILE
       make_gates.py --layout values --kind retention --tokens 100 ... -o FILE

The numbers are of no use to a model, but they spread: beta^100 lies mostly between 0.01 and 0.99, and about
half of the g of inputs with unit variance are above 0.1.
"""
import argparse
import json
import math
import struct

import numpy as np

LAYOUTS = ["rg", "rg2", "rg3", "rg10", "linear", "rgkv", "wgkv", "locret", "duo", "seer", "values"]
KIND = {"rg": "retention", "rg2": "retention", "rg3": "retention", "rg10": "retention", "linear": "retention", "rgkv": "retention", "wgkv": "write", "locret": "importance", "duo": "heads", "seer": "blocks"}
THRESHOLD = math.log(0.1 / 0.9)  # logit of the usual threshold of g


def to_bytes(a, dtype):
    """Little-endian bytes of an array as F32, F16 or BF16 (rounded to even)."""
    a = np.ascontiguousarray(a, dtype="<f4")
    if dtype == "F32":
        return a.tobytes()
    if dtype == "F16":
        return a.astype("<f2").tobytes()
    u = a.view("<u4").astype(np.uint64)
    return ((u + 0x7fff + (u >> 16 & 1)) >> 16).astype("<u2").tobytes()


def safetensors(tensors, metadata, dtype="F32"):
    """The file's bytes; tensors: {name: array}, in this order."""
    header, data = {"__metadata__": metadata}, b""
    for name, a in tensors.items():
        raw = to_bytes(a, dtype)
        header[name] = {"dtype": dtype, "shape": list(a.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


class Maker:
    def __init__(self, o):
        self.o, self.rng = o, np.random.default_rng(o.seed)

    def normal(self, rows, cols, gain=1.0):
        return self.rng.normal(0, gain / math.sqrt(cols), (rows, cols))

    def readout(self, rows, cols, spread, moment):
        """Rows without a mean, so that the activation's mean shifts no logit; moment: E[act^2]."""
        w = self.rng.normal(0, spread / math.sqrt(moment * cols), (rows, cols))
        return w - w.mean(1, keepdims=True) if cols > 1 else w

    def bias(self):
        """beta^100 = 0.01 at z = 3.1 and 0.99 at z = 9.2"""
        return self.rng.uniform(4.5, 7.5, self.o.kv_heads)

    def retention(self, deep, inputs):
        o, out = self.o, {}
        for i in range(o.layers):
            p = f"model.layers.{i}.self_attn.retention_gate."
            out[p + "linear1.weight"] = self.normal(o.hidden, inputs)
            out[p + "linear1.bias"] = self.rng.normal(0, 0.1, o.hidden)
            if deep:
                out[p + "linear2.weight"] = self.normal(o.hidden, o.hidden, 1.6)
                out[p + "linear2.bias"] = self.rng.normal(0, 0.1, o.hidden)
            last = "linear3.weight" if deep else "linear2.weight"
            tied = i > 0 and o.tie
            first = "model.layers.0.self_attn.retention_gate."
            out[p + last] = out[first + last] if tied else self.readout(o.kv_heads, o.hidden, 0.8, 0.36)
            out[p + "bias"] = out[first + "bias"] if tied else self.bias()
        return out

    def rg(self):
        return self.retention(False, self.o.d_model)

    def rg10(self):
        return self.retention(True, self.o.d_model)

    def rgkv(self):
        return self.retention(False, 2 * self.o.kv_heads * self.o.head_dim)

    def rg2(self):
        return self.rgkv()

    def rg3(self):
        o, out = self.o, {}
        inputs = 2 * o.kv_heads * o.head_dim
        for i in range(o.layers):
            p, first = (f"model.layers.{k}.self_attn.retention_gate." for k in (i, 0))
            tied = i > 0 and o.tie
            out[p + "gate_proj.weight"] = self.normal(o.hidden, inputs)
            out[p + "up_proj.weight"] = self.normal(o.hidden, inputs)
            out[p + "down_proj.weight"] = out[first + "down_proj.weight"] if tied else self.readout(o.kv_heads, o.hidden, 0.8, 0.36)
            out[p + "bias"] = out[first + "bias"] if tied else self.bias()
        return out

    def linear(self):
        o, out = self.o, {}
        for i in range(o.layers):
            p, first = (f"model.layers.{k}.self_attn.retention_gate." for k in (i, 0))
            tied = i > 0 and o.tie
            out[p + "linear1.weight"] = out[first + "linear1.weight"] if tied else self.normal(o.kv_heads, o.d_model, 0.8)
            out[p + "bias"] = out[first + "bias"] if tied else self.bias()
        return out

    def wgkv(self):
        o, out = self.o, {}
        for i in range(o.layers):
            p = f"model.layers.{i}.self_attn.g_predictors."
            out[p + "pre_key_norm.weight"] = self.rng.normal(1, 0.1, o.head_dim)
            out[p + "post_key_norm.weight"] = self.rng.normal(1, 0.1, o.head_dim)
            out[p + "conv1.weight"] = self.normal(o.kv_heads * o.hidden, 2 * o.head_dim)[:, :, None]
            out[p + "conv1.bias"] = self.rng.normal(0, 0.1, o.kv_heads * o.hidden)
            out[p + "conv2.weight"] = self.readout(o.kv_heads, o.hidden, 1.5, 0.425)[:, :, None]
            out[p + "conv2.bias"] = self.rng.normal(THRESHOLD, 0.3, o.kv_heads)
        return out

    def locret(self):
        o, out = self.o, {}
        for i in range(o.layers):
            p = f"model.layers.{i}.self_attn."
            out[p + "fc1.weight"] = self.normal(o.hidden, (o.heads + 2 * o.kv_heads) * o.head_dim)
            out[p + "fc2.weight"] = self.normal(o.kv_heads, o.hidden)
        return out

    def duo(self):
        return {"duo.alpha": self.rng.uniform(0, 1, (self.o.layers, self.o.kv_heads))}

    def seer(self):
        o, out = self.o, {}
        n, h, d = o.gate_dim, o.kv_heads, o.head_dim
        for i in range(o.layers):
            p = f"model.layers.{i}.self_attn.block_gate."
            out[p + "k_proj.weight"] = self.normal(h * n, 3 * d).reshape(h, n, 3 * d)
            out[p + "q_proj.weight"] = self.normal(h * n, o.heads // h * d).reshape(h, n, o.heads // h * d)
            if o.norms:
                out[p + "k_norm.weight"] = self.rng.normal(1, 0.1, n)
                out[p + "q_norm.weight"] = self.rng.normal(1, 0.1, n)
        return out

    def values(self):
        shape = (self.o.layers, self.o.kv_heads, self.o.tokens)
        if self.o.kind == "retention":
            return {"values": -np.exp(self.rng.uniform(math.log(1e-4), math.log(0.046), shape))}
        if self.o.kind == "write":
            return {"values": 1 / (1 + np.exp(-self.rng.normal(THRESHOLD, 1.5, shape)))}
        return {"values": self.rng.normal(0, 1, shape)}


def metadata(o):
    m = {"kvfate.kind": o.kind or KIND[o.layout], "kvfate.layout": o.layout}
    for key, value in (("model_hash", o.model_hash), ("activation", o.activation), ("z", o.z), ("key_order", o.key_order),
                       ("block", o.block)):
        if value is not None:
            m["kvfate." + key] = str(value)
    return m


def options(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--layout", choices=LAYOUTS, required=True)
    p.add_argument("--kind", choices=["retention", "write", "importance"], help="with --layout values")
    for name, value in (("layers", 2), ("heads", 4), ("kv-heads", 2), ("head-dim", 8), ("d-model", 32), ("hidden", 24), ("gate-dim", 16),
                        ("tokens", 100), ("seed", 1)):
        p.add_argument("--" + name, type=int, default=value, metavar="N", help=f"default {value}")
    p.add_argument("--dtype", choices=["F32", "F16", "BF16"], default="F32")
    p.add_argument("--tie", action="store_true", help="rg, rg2, rg3, rg10, linear, rgkv: one readout for all layers")
    p.add_argument("--norms", action="store_true", help="seer: with the optional norms")
    p.add_argument("--model-hash")
    p.add_argument("--activation")
    p.add_argument("--z", choices=["f32", "bf16"])
    p.add_argument("--key-order", choices=["pairs", "halves"])
    p.add_argument("--block", type=int)
    p.add_argument("-o", "--output", required=True)
    o = p.parse_args(argv)
    if (o.layout == "values") != (o.kind is not None):
        p.error("--kind goes with --layout values, and only with it")
    return o


def build(o):
    return safetensors(getattr(Maker(o), o.layout)(), metadata(o), o.dtype)


if __name__ == "__main__":
    chosen = options()
    with open(chosen.output, "wb") as f:
        f.write(build(chosen))
