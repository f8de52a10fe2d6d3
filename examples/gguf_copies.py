"""Copies of a GGUF model with changes whose effect on its heads is known (heads.py): other quantisation, heads in another
order, layers in another order, one head without queries, random weights.  numpy; the package gguf for types of weights that are not below.

A tensor is bytes of rows; a row of n numbers is n / 32 blocks: Q4_1 = f16 d, f16 m, 16 bytes (d q + m; low halves of the bytes are
the first 16 numbers), Q4_0 = f16 d, 16 bytes (d (q - 8)), Q8_0 = f16 d, 32 signed bytes (d q).
"""
import os
import struct
import sys

import numpy as np

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
from kvfate import files  # noqa: E402

F32, F16, Q4_0, Q4_1, Q8_0 = 0, 1, 2, 3, 8
BLOCK = {F32: (1, 4), F16: (1, 2), Q4_0: (32, 18), Q4_1: (32, 20), Q8_0: (32, 34)}
OTHER = {6: (32, 22), 7: (32, 24), 10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210)}  # Q5_0 .. Q6_K, only read
COPIES = ("q8", "f16", "q4_0", "permuted", "random", "ablated", "shuffled")
ABLATED = (15, 4)  # the query head of layer 15 that asks nothing
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}


class Gguf:
    """keys: {name: value of a scalar or string}; tensors: {name: (dims, type, array of bytes [rows][bytes of a row])}"""

    def __init__(self, path):
        self.raw = np.fromfile(path, np.uint8)
        self.at = 0
        magic, self.version, n_tensors, self.n_keys = self.take("4sIQQ")
        assert magic == b"GGUF"
        start, self.keys = self.at, {}
        for _ in range(self.n_keys):
            name = self.string()
            self.keys[name.decode()] = self.value(*self.take("I"))
        self.head = self.raw[start:self.at].tobytes()
        infos = []
        for _ in range(n_tensors):
            name = self.string().decode()
            n_dims, = self.take("I")
            dims = self.take(f"{n_dims}Q")
            infos.append((name, dims, *self.take("IQ")))
        data = -(-self.at // self.align()) * self.align()
        self.tensors = {}
        for name, dims, kind, offset in infos:
            per, size = {**BLOCK, **OTHER}[kind]
            rows, width = int(np.prod(dims[1:])), dims[0] // per * size
            self.tensors[name] = (dims, kind, self.raw[data + offset:data + offset + rows * width].reshape(rows, width))

    def config(self, name):
        """A number of the model, such as block_count"""
        return self.keys[f"{self.keys['general.architecture'].decode()}.{name}"]

    def head_size(self):
        return self.config("embedding_length") // self.config("attention.head_count")

    def align(self):
        return self.keys.get("general.alignment", 32)

    def take(self, form):
        n = struct.calcsize("<" + form)
        got = struct.unpack("<" + form, self.raw[self.at:self.at + n].tobytes())
        self.at += n
        return got

    def string(self):
        n, = self.take("Q")
        self.at += n
        return self.raw[self.at - n:self.at].tobytes()

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            element, n = self.take("IQ")
            return [self.value(element) for _ in range(n)]
        return self.take(SCALARS[kind])[0]

    def write(self, path):
        out = [struct.pack("<4sIQQ", b"GGUF", self.version, len(self.tensors), self.n_keys), self.head]
        offset, align = 0, self.align()
        for name, (dims, kind, data) in self.tensors.items():
            out.append(struct.pack("<Q", len(name)) + name.encode() + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset))
            offset += -(-data.size // align) * align
        out.append(b"\0" * (-sum(map(len, out)) % align))
        with files.replacing(path) as f:
            f.write(b"".join(out))
            for _, _, data in self.tensors.values():
                f.write(data.tobytes() + b"\0" * (-data.size % align))


def numbers(kind, data):
    """Rows of bytes as f32 [rows][n]"""
    if kind in (F32, F16):
        return np.ascontiguousarray(data).view("<f4" if kind == F32 else "<f2").astype(np.float32)
    if kind in OTHER:
        import gguf
        return gguf.quants.dequantize(np.ascontiguousarray(data), gguf.GGMLQuantizationType(kind))
    b = np.ascontiguousarray(data).reshape(len(data), -1, BLOCK[kind][1])
    d = np.ascontiguousarray(b[..., :2]).view("<f2").astype(np.float32)
    if kind == Q8_0:
        q = b[..., 2:].view(np.int8).astype(np.float32)
        return (d * q).reshape(len(data), -1)
    m = np.ascontiguousarray(b[..., 2:4]).view("<f2").astype(np.float32)
    q = np.concatenate([b[..., 4:] & 15, b[..., 4:] >> 4], axis=-1)
    return (d * q + m).reshape(len(data), -1)


def to_q8(v):
    b = v.reshape(len(v), -1, 32)
    d = (np.abs(b).max(-1, keepdims=True) / 127).astype("<f2")
    with np.errstate(divide="ignore", invalid="ignore"):
        q = np.where(d > 0, np.round(b / d.astype(np.float32)), 0).clip(-127, 127).astype(np.int8)
    return np.concatenate([d.view(np.uint8), q.view(np.uint8)], axis=-1).reshape(len(v), -1)


def to_q4_0(v):
    """Blocks whose value farthest from 0 is -8 d, the rest rounded to d (q - 8)."""
    b = v.reshape(len(v), -1, 32)
    farthest = np.take_along_axis(b, np.abs(b).argmax(-1, keepdims=True), -1)
    d = (farthest / -8).astype("<f2")
    with np.errstate(divide="ignore", invalid="ignore"):
        q = np.where(d != 0, np.round(b / d.astype(np.float32)), 0).clip(-8, 7).astype(np.int8) + 8
    halves = (q[..., :16] | q[..., 16:] << 4).astype(np.uint8)
    return np.concatenate([d.view(np.uint8), halves], axis=-1).reshape(len(v), -1)


def to_f16(v):
    return v.astype("<f2").view(np.uint8)


# What the matrices of a copy are written as; all other copies have Q8_0.
WRITERS = {"f16": (F16, to_f16), "q4_0": (Q4_0, to_q4_0)}


def head_order(g, layer):
    """Which query head, and which KV head, of the model the heads of the permuted copy are: groups stay together."""
    H, KV = g.config("attention.head_count"), g.config("attention.head_count_kv")
    rng = np.random.default_rng(1000 + layer)
    kv = rng.permutation(KV)
    return np.concatenate([k * (H // KV) + rng.permutation(H // KV) for k in kv]), kv


def layer_order(g):
    return np.random.default_rng(7).permutation(g.config("block_count"))


def rows_of(heads, size):
    return (np.asarray(heads)[:, None] * size + np.arange(size)).ravel()


def permute(g):
    D = g.head_size()
    for layer in range(g.config("block_count")):
        q, kv = head_order(g, layer)
        for name, heads in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
            dims, kind, data = g.tensors[f"blk.{layer}.{name}.weight"]
            g.tensors[f"blk.{layer}.{name}.weight"] = dims, kind, data[rows_of(heads, D)]
            bias = f"blk.{layer}.{name}.bias"
            if bias in g.tensors:  # one row of f32
                dims, kind, data = g.tensors[bias]
                g.tensors[bias] = dims, kind, data.view("<f4")[:, rows_of(heads, D)].view(np.uint8)
        dims, kind, data = g.tensors[f"blk.{layer}.attn_output.weight"]
        per, size = BLOCK[kind]
        g.tensors[f"blk.{layer}.attn_output.weight"] = dims, kind, data[:, rows_of(q, D // per * size)]


def shuffle(g):
    old = dict(g.tensors)
    for new, layer in enumerate(layer_order(g)):
        for name in old:
            if name.startswith(f"blk.{layer}."):
                g.tensors[f"blk.{new}." + name.split(".", 2)[2]] = old[name]


def ablate(g):
    D = g.head_size()
    name = f"blk.{ABLATED[0]}.attn_q.weight"
    dims, kind, data = g.tensors[name]
    data = data.copy()
    data[rows_of([ABLATED[1]], D)] = 0  # d = 0: the head's queries are 0, its attention is even
    g.tensors[name] = dims, kind, data


def randomise(g):
    """Every matrix of the layers gets normal numbers of its own standard deviation."""
    rng = np.random.default_rng(5)
    for name, (dims, kind, data) in g.tensors.items():
        if len(dims) == 2 and name.startswith("blk."):
            v = numbers(kind, data)
            g.tensors[name] = dims, kind, to_q8(rng.normal(0, v.std(), v.shape).astype(np.float32))


def copy(model, path, name):
    """name: one of COPIES"""
    g = Gguf(model)
    wanted, written = WRITERS.get(name, (Q8_0, to_q8))
    for t, (dims, kind, data) in g.tensors.items():
        if len(dims) == 2 and kind != wanted:
            g.tensors[t] = dims, wanted, written(numbers(kind, data))
    {"permuted": permute, "random": randomise, "ablated": ablate, "shuffled": shuffle}.get(name, lambda g: None)(g)
    g.write(path)
