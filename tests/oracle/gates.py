"""Gate files with given numbers (docs/gates.md), and what the oracle needs to know of them."""
import json
import struct

import numpy as np

RETENTION_GRID = 0.125


def safetensors(path, tensors, metadata):
    """tensors: {name: f32 array}; 8 bytes of header length, the header, the data"""
    header, data = {"__metadata__": metadata}, b""
    for name, x in tensors.items():
        raw = np.ascontiguousarray(x, "<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def draw(kind, seed, layers, heads, tokens):
    """random numbers of a kind; in some draws many are equal, or at the edge of what is allowed"""
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
    """the file, and the dictionary that Session.gates is; more: metadata"""
    layout = "duo" if kind == "heads" else "values"
    name = "duo.alpha" if kind == "heads" else "values"
    metadata = {"kvfate.kind": kind, "kvfate.layout": layout} | {f"kvfate.{k}": v for k, v in more.items()}
    safetensors(path, {name: x}, metadata)
    return known(kind, x)


def known(kind, x):
    return {"heads": x.shape[1], "alpha" if kind == "heads" else "values": x}


def make(path, kind, seed, llama, tokens):
    """draws, writes, and says what Session.gates is"""
    return write(path, kind, draw(kind, seed, llama.layers, llama.kv_heads, tokens))
