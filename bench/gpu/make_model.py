#!/usr/bin/env python3
"""Write a model of random weights in the shape of a real one, gates for it, and prompts.

usage: make_model.py SHAPE [MODEL.gguf] [--gates METHOD=FILE]... [--prompt TOKENS=FILE]... [--admitted SHARE]
[--context N] [--seed S]

SHAPE is a name of bench/gpu/shapes.h or "tiny". Matrices are bf16, norms f32. All matrices read one block of normal
numbers, each from a different offset.  The tokenizer is that of the tiny models of the tests
(tests/data/golden/tools/gen_tiny.py), filled up with unused tokens.  Capitals and digits never merge: a prompt of N
characters has N tokens.  METHOD is trimkv, dbtrimkv, wgkv or seer (tests/data/make_gates.py). --admitted is
approximately the fraction of entries that the gates of wgkv admit, set by the biases of their last layer.  A file of
8 GB takes about ten seconds.  It needs NumPy.
"""
import argparse
import math
import os
import random
import statistics
import struct
import sys
from types import SimpleNamespace

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, *(os.path.join(HERE, "..", "..", "tests", "data", *more) for more in ((), ("golden", "tools")))]
import gen_tiny  # noqa: E402
import make_gates  # noqa: E402
from shapes import SHAPES  # noqa: E402

BLOCK = 4194301  # numbers of the block: a prime, so that rows of a matrix differ
PIECE = 1 << 20  # bytes written at a time
TOKENS_OF_TEXT = 300  # the rest of a vocabulary is in no text
UNUSED = 5  # GGUF's type of such a token
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
LAYOUTS = {"trimkv": ("rg", 512), "dbtrimkv": ("rg10", 512), "wgkv": ("wgkv", 96), "seer": ("seer", 0)}  # and hidden width


# ---- weights

class Matrix:
    """Rows of bf16 that are read from the block cyclically, starting at `at`."""
    ndim = 2

    def __init__(self, block, at, rows, cols):
        self.block, self.at, self.shape = memoryview(block), 2 * at, (rows, cols)

    def write(self, f):
        at, left = self.at, 2 * self.shape[0] * self.shape[1]
        while left:
            piece = self.block[at:at + min(left, PIECE)]
            f.write(piece)
            left -= len(piece)
            at = (at + len(piece)) % len(self.block)


class Tiled:
    """A replacement of gen_tiny.Draw."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.normal = self.rng.standard_normal(BLOCK, dtype=np.float32)
        self.scaled = {}

    def matrix(self, rows, cols, gain):
        key = (cols, gain)
        if key not in self.scaled:
            self.scaled[key] = gen_tiny.bf16(self.normal * np.float32(gain / math.sqrt(cols)))
        return Matrix(self.scaled[key], int(self.rng.integers(BLOCK)), rows, cols)

    def norm(self, n):
        return self.rng.uniform(0.7, 1.3, n).astype(np.float32)


def tensors(a, draw):
    yield "token_embd.weight", draw.matrix(a.vocab, a.dim, 4.0)
    for i in range(a.layers):
        for name, x in gen_tiny.layer(a, draw):
            yield f"blk.{i}.{name}.weight", x
    yield "output_norm.weight", draw.norm(a.dim)
    if a.untied:
        yield "output.weight", draw.matrix(a.vocab, a.dim, 4.0)


# ---- the file

def metadata(a):
    """Return the metadata of a tiny model with more tokens."""
    n = min(a.vocab, TOKENS_OF_TEXT)
    rows = gen_tiny.metadata(SimpleNamespace(**{**vars(a), "vocab": n}))
    more = {"tokenizer.ggml.tokens": [f"<unused{i}>" for i in range(a.vocab - n)], "tokenizer.ggml.token_type": [UNUSED] * (a.vocab - n)}
    same = {"general.name": "random " + a.name, a.arch + ".vocab_size": a.vocab}
    return [(key, kind, same.get(key, v + more[key] if key in more else v)) for key, kind, v in rows]


def put(f, x):
    if x.ndim == 2:
        x.write(f)
    else:
        f.write(x.tobytes())


def size_of(x):
    return 2 * x.shape[0] * x.shape[1] if x.ndim == 2 else x.nbytes


def write(path, rows, parts):
    parts = list(parts)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(parts), len(rows)) + b"".join(gen_tiny.entry(*row) for row in rows)
    offset = 0
    for name, x in parts:
        head += gen_tiny.string(name) + struct.pack(f"<I{x.ndim}Q", x.ndim, *reversed(x.shape))
        head += struct.pack("<IQ", gen_tiny.TYPES["bf16" if x.ndim == 2 else "f32"][0], offset)
        offset += size_of(x) + gen_tiny.pad(size_of(x))
    with open(path, "wb") as f:
        f.write(head + bytes(gen_tiny.pad(len(head))))
        for _, x in parts:
            put(f, x)
            f.write(bytes(gen_tiny.pad(size_of(x))))


def model(shape, path, context=262144, seed=1):
    a = SimpleNamespace(name=shape.name, arch=shape.arch, layers=shape.layers, heads=shape.q, kv_heads=shape.kv, head_dim=shape.dim, dim=shape.d,
                        ffn=shape.ffn, vocab=shape.vocab, untied=not shape.tied, type="bf16", eps=shape.eps, rope_base=shape.rope_base, context=context)
    write(path, metadata(a), tensors(a, Tiled(seed)))


# ---- gates and prompts

def gates(shape, method, path, admitted=0.25, seed=1):
    layout, hidden = LAYOUTS[method]
    o = SimpleNamespace(layout=layout, layers=shape.layers, heads=shape.q, kv_heads=shape.kv, head_dim=shape.dim, d_model=shape.d, hidden=hidden,
                        gate_dim=128, seed=seed, tie=method == "dbtrimkv", norms=False, kind=None, dtype="BF16", model_hash=None, activation=None, z=None,
                        key_order=None, block=None)
    made = getattr(make_gates.Maker(o), layout)()
    if layout == "wgkv":  # readouts of make_gates have a deviation of 1.5
        bias = make_gates.THRESHOLD + 1.5 * statistics.NormalDist().inv_cdf(admitted)
        made.update({name: np.full_like(x, bias) for name, x in made.items() if name.endswith("conv2.bias")})
    with open(path, "wb") as f:
        f.write(make_gates.safetensors(made, make_gates.metadata(o), o.dtype))


def prompt(tokens, seed=1):
    return "".join(random.Random(seed).choices(LETTERS, k=tokens))


def pair(word):
    key, _, path = word.partition("=")
    if not path:
        raise argparse.ArgumentTypeError(f"{word}: a name, '=' and a file")
    return key, path


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("shape", choices=SHAPES)
    ap.add_argument("model", nargs="?", metavar="MODEL.gguf")
    ap.add_argument("--gates", type=pair, action="append", default=[], metavar="METHOD=FILE")
    ap.add_argument("--prompt", type=pair, action="append", default=[], metavar="TOKENS=FILE")
    ap.add_argument("--admitted", type=float, default=0.25)
    ap.add_argument("--context", type=int, default=262144)
    ap.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()
    if a.model:
        model(SHAPES[a.shape], a.model, a.context, a.seed)
    for method, path in a.gates:
        gates(SHAPES[a.shape], method, path, a.admitted, a.seed)
    for tokens, path in a.prompt:
        with open(path, "w", encoding="ascii") as f:
            f.write(prompt(int(tokens), a.seed))


if __name__ == "__main__":
    main()
