#!/usr/bin/python3
"""An independent reader and evaluator of gates in float64, from the equations in
docs/reference/gates.md.

Entries of one layer: evaluate(Gates(path, shape), layer, inputs) -> [tokens, H]. Blocks: block_key,
block_query. As a program, it checks identities of its own functions.
"""
import json
import math
import struct

import numpy as np


def read_safetensors(path):
    """Returns (metadata, {name: float64 array})."""
    with open(path, "rb") as f:
        raw = f.read()
    n = struct.unpack_from("<Q", raw)[0]
    header = json.loads(raw[8:8 + n])
    meta, out = header.pop("__metadata__", {}), {}
    for name, t in header.items():
        a, b = t["data_offsets"]
        part = raw[8 + n + a:8 + n + b]
        if t["dtype"] == "F32":
            v = np.frombuffer(part, "<f4")
        elif t["dtype"] == "F16":
            v = np.frombuffer(part, "<f2")
        else:
            v = (np.frombuffer(part, "<u2").astype("<u4") << 16).view("<f4")
        out[name] = v.astype(np.float64).reshape(t["shape"])
    return meta, out


def bf16(a):
    """Rounds to the nearest bf16 by comparing both neighbours; ties go to the even one."""
    a = np.asarray(a, np.float64)
    low = (np.float32(a).view(np.uint32) & 0xffff0000)
    grid = [(low.astype(np.int64) + k * 0x10000).astype(np.uint32).view(np.float32).astype(np.float64) for k in (-1, 0, 1)]
    odd = [((low >> 16).astype(np.int64) + k) & 1 for k in (-1, 0, 1)]
    distance = np.stack([np.abs(g - a) * 4 for g in grid])
    # A tie adds a little to the distance of the odd neighbour, far less than the step of the grid.
    order = distance + np.stack(odd) * 1e-12 * np.abs(a)
    return np.take_along_axis(np.stack(grid), order.argmin(0)[None], 0)[0]


erf = np.vectorize(math.erf)
sigmoid = np.vectorize(lambda z: 1 / (1 + math.exp(-z)) if z > -700 else 0.0)
ACT = {"silu": lambda z: z * sigmoid(z), "gelu": lambda z: z * (1 + erf(z / math.sqrt(2))) / 2, "relu": lambda z: np.where(z > 0, z, 0.0)}


def log_sigmoid(z):
    return -np.logaddexp(0.0, -z)


def rmsnorm(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def rotate(x, pos, base):
    """RoPE of neighbouring channels as complex numbers: x[2j] + i x[2j+1] times exp(i pos theta_j)."""
    n = x.shape[-1]
    theta = base ** (-2.0 * np.arange(n // 2) / n)
    z = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * pos * theta)
    out = np.empty_like(x)
    out[..., 0::2], out[..., 1::2] = z.real, z.imag
    return out


def to_halves(x):
    """Returns channels 0 2 4 ... 1 3 5 ...: a head with neighbouring pairs in the order of a file
    with key_order = halves."""
    return np.concatenate([x[..., 0::2], x[..., 1::2]], -1)


def rotate_halves(x, pos, base):
    """RoPE that pairs channel j with channel j + n/2."""
    n = x.shape[-1] // 2
    angle = pos * base ** (-np.arange(n) / n)
    a, b = x[..., :n], x[..., n:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], -1)


class Gates:
    """shape: dict of layers, heads, kv_heads, head_dim, d_model, norm_eps, rope_base"""

    def __init__(self, path, shape):
        self.meta, self.t = read_safetensors(path)
        self.kind, self.layout = self.meta["kvfate.kind"], self.meta["kvfate.layout"]
        self.halves = self.meta.get("kvfate.key_order") == "halves"
        self.act = ACT[self.meta.get("kvfate.activation", "gelu" if self.layout == "wgkv" else "silu")]
        self.s = shape

    def get(self, layer, name):
        return self.t[f"model.layers.{layer}.self_attn.{name}"]

    def head_order(self, x):
        return to_halves(x) if self.halves else x


def retention_z(g, layer, a):
    """Returns (z without the last bias, bias)."""
    def get(name):
        return g.get(layer, "retention_gate." + name)
    x = a["x"]
    if g.layout == "linear":
        return x @ get("linear1.weight").T, get("bias")
    if g.layout in ("rg2", "rg3"):
        x = np.concatenate([g.head_order(a["k_post"]), a["v"]], -1).reshape(len(a["v"]), -1)
    if g.layout == "rg3":
        h = g.act(x @ get("gate_proj.weight").T) * (x @ get("up_proj.weight").T)
        return h @ get("down_proj.weight").T, get("bias")
    if g.layout == "rgkv":
        n = len(a["k_pre"])
        x = np.concatenate([g.head_order(a["k_pre"]).reshape(n, -1), a["v"].reshape(n, -1)], -1)
    h = g.act(x @ get("linear1.weight").T + get("linear1.bias"))
    if g.layout == "rg10":
        h = g.act(h @ get("linear2.weight").T + get("linear2.bias"))
        return h @ get("linear3.weight").T, get("bias")
    return h @ get("linear2.weight").T, get("bias")


def write_gate(g, layer, k_pre, k_post):
    """k: [tokens, H, D]. A grouped 1x1 convolution is a matrix multiplication for each head."""
    def get(name):
        return g.get(layer, "g_predictors." + name)
    H, out = g.s["kv_heads"], []
    w1, w2 = get("conv1.weight")[:, :, 0], get("conv2.weight")[:, :, 0]
    j = w1.shape[0] // H
    pre = rmsnorm(g.head_order(k_pre), get("pre_key_norm.weight"), 1e-6)
    post = rmsnorm(g.head_order(k_post), get("post_key_norm.weight"), 1e-6)
    for h in range(H):
        both = np.concatenate([pre[:, h], post[:, h]], -1)
        hidden = g.act(both @ w1[h * j:(h + 1) * j].T + get("conv1.bias")[h * j:(h + 1) * j])
        out.append(sigmoid(hidden @ w2[h] + get("conv2.bias")[h]))
    return np.stack(out, -1)


def importance(g, layer, q, k, v):
    n = len(q)
    both = np.concatenate([g.head_order(q).reshape(n, -1), g.head_order(k).reshape(n, -1), v.reshape(n, -1)], -1)
    return g.act(both @ g.get(layer, "fc1.weight").T) @ g.get(layer, "fc2.weight").T


def evaluate(g, layer, a):
    """a: x [n, d], q [n, G, D], k_pre, v, k_post [n, H, D], pos [n]"""
    if g.layout == "values":
        return g.t["values"][layer][:, a["pos"]].T
    if g.kind == "retention":
        z, bias = retention_z(g, layer, a)
        if g.meta.get("kvfate.z") == "bf16":
            return log_sigmoid(bf16(bf16(z) + bias))
        return log_sigmoid(z + bias)
    if g.kind == "write":
        return write_gate(g, layer, a["k_pre"], a["k_post"])
    return importance(g, layer, a["q"], a["k_pre"], a["v"])


def block_vector(g, layer, head, side, x, pos):
    """Returns the vector in the order of the file. x: [parts, D]."""
    v = g.get(layer, f"block_gate.{side}_proj.weight")[head] @ g.head_order(x).reshape(-1)
    norm = f"model.layers.{layer}.self_attn.block_gate.{side}_norm.weight"
    if norm in g.t:
        v = rmsnorm(v, g.t[norm], g.s["norm_eps"])
    return rotate_halves(v, pos, g.s["rope_base"]) if g.halves else rotate(v, pos, g.s["rope_base"])


def block_logit(q, k):
    return float(q @ k) / math.sqrt(len(q))


def main():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(3, 12))
    assert np.allclose(to_halves(rotate(x, 17, 100.0)), rotate_halves(to_halves(x), 17, 100.0))
    assert abs(log_sigmoid(np.array(18.0)) + math.log1p(math.exp(-18))) < 1e-17 and log_sigmoid(np.array(-800.0)) == -800
    assert list(bf16([18.06, 18.0625, 18.07, 18.1875, -18.0625])) == [18.0, 18.0, 18.125, 18.25, -18.0]
    assert abs(ACT["gelu"](np.array(1.0)) - 0.8413447460685429) < 1e-15
    print("identities hold")


if __name__ == "__main__":
    main()
