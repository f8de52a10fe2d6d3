"""Makes gate files (docs/reference/gates.md) for cases, with given numbers or with networks of
random weights. Also gives the oracle their values (gates_np.py evaluates networks)."""
import json
import os
import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import gates_np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data"))
import make_gates

RETENTION_GRID = 0.125
NETWORKS = {"retention": ("rg", "rg2", "rg3", "rg10", "linear", "rgkv"), "write": ("wgkv",), "importance": ("locret",), "blocks": ("seer",)}
ERROR = 1e-5  # of a network's value: relative to it, or to the largest of its kind if values can be negative


def safetensors(path, tensors, metadata):
    """Writes tensors {name: f32 array}: 8 bytes of header length, the header, the data."""
    header, data = {"__metadata__": metadata}, b""
    for name, x in tensors.items():
        raw = np.ascontiguousarray(x, "<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def draw(kind, seed, layers, heads, tokens):
    """Draws random numbers of a kind. In some draws many are equal or at the limit of the allowed
    range."""
    rng = np.random.RandomState(seed)
    coarse = rng.rand() < 0.3
    if kind == "heads":
        alpha = rng.rand(layers, heads)
        return (np.round(alpha * 4) / 4 if coarse else alpha).astype(np.float32)
    shape = layers, heads, tokens
    if kind == "retention":
        x = -np.exp(rng.normal(-4, 2, shape))
        if coarse:
            x = -RETENTION_GRID * rng.randint(0, 4, shape)
    elif kind == "write":
        x = rng.rand(*shape) ** 2
        if coarse:
            x = rng.randint(0, 9, shape) / 8
    else:
        x = rng.normal(0, 3, shape)
        if coarse:
            x = np.round(x)
    return x.astype(np.float32)


def write(path, kind, x, **more):
    """Writes a file with given numbers; more: metadata."""
    layout, name = ("duo", "duo.alpha") if kind == "heads" else ("values", "values")
    metadata = {"kvfate.kind": kind, "kvfate.layout": layout} | {f"kvfate.{k}": v for k, v in more.items()}
    safetensors(path, {name: x}, metadata)
    return Given(kind, x)


class Given:
    """Given numbers by position, or alpha by head."""

    exact = True

    def __init__(self, kind, x):
        self.kind, self.heads = kind, x.shape[1]
        self.alpha = x if kind == "heads" else None
        self.x = x

    def values(self, run, layer, head, entries):
        return self.x[layer, head, entries].astype(float)


class Network:
    """Values computed in f64 from the model's activations."""

    exact = False

    def __init__(self, path, llama):
        m = llama
        self.net = gates_np.Gates(path, {
            "layers": m.layers, "heads": m.heads, "kv_heads": m.kv_heads, "head_dim": m.head_dim, "norm_eps": m.eps,
            "d_model": m.w["token_embd.weight"].shape[1], "rope_base": m.base})
        self.kind, self.heads, self.known = self.net.kind, m.kv_heads, {}

    def inputs(self, run, layer, entries):
        every = run.m.kv_heads // self.heads  # copies of a KV head
        k, v = run.raw_keys[layer, ::every][:, entries], run.values[layer, ::every][:, entries]
        turned = np.stack([run.m.rope(k[:, i], j) for i, j in enumerate(entries)]) if len(entries) else k.swapaxes(0, 1)
        return {"x": run.inputs[layer, entries], "q": run.queries[layer][:, entries].swapaxes(0, 1), "pos": entries,
                "k_pre": k.swapaxes(0, 1), "v": v.swapaxes(0, 1), "k_post": turned}

    def values(self, run, layer, head, entries):
        """Returns values that are fixed at the append: each is computed once per run."""
        one = [int(i) for i in np.atleast_1d(entries)]
        new = [i for i in one if (layer, i) not in self.known]
        if new:
            x = gates_np.evaluate(self.net, layer, self.inputs(run, layer, np.array(new)))
            self.known |= {(layer, i): row for i, row in zip(new, np.asarray(x))}
        x = np.array([self.known[layer, i][head] for i in one])
        return x if np.ndim(entries) else x[0]

    def block_logits(self, run, layer, head, blocks):
        """Returns the logit of every block for the newest query."""
        size = run.m.heads // self.heads
        q = gates_np.block_vector(self.net, layer, head, "q",
                                  run.queries[layer, head * size : (head + 1) * size, run.t], run.t)
        out = []
        for block in blocks:
            k = run.raw_keys[layer, head, block]
            parts = np.stack([k.max(axis=0), k.min(axis=0), k.mean(axis=0)])
            key = gates_np.block_vector(self.net, layer, head, "k", parts, block[0])
            out.append(gates_np.block_logit(q, key))
        return np.array(out)


def network(path, kind, seed, llama):
    """Writes a network with random weights."""
    layout = NETWORKS[kind][seed % len(NETWORKS[kind])]
    o = SimpleNamespace(layout=layout, kind=None, layers=llama.layers, heads=llama.heads, kv_heads=llama.kv_heads,
                        head_dim=llama.head_dim, d_model=llama.w["token_embd.weight"].shape[1], hidden=24, gate_dim=16,
                        seed=seed, dtype="F32", tie=seed % 3 == 0, norms=seed % 2 == 0, model_hash=None,
                        activation=None, z=None, key_order=None, block=None)
    Path(path).write_bytes(make_gates.build(o))
    return Network(path, llama)


def make(path, kind, seed, llama, tokens):
    """Draws and writes a gate file; returns the value of Session.gates."""
    if kind == "blocks" or kind in NETWORKS and seed % 4 == 0:
        return network(path, kind, seed, llama)
    return write(path, kind, draw(kind, seed, llama.layers, llama.kv_heads, tokens))
