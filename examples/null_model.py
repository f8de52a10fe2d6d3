#!/usr/bin/env python3
"""A model that learned nothing: the blocks of each matrix of a GGUF file in random order.

usage: null_model.py MODEL.gguf OUT.gguf [SEED]

Tokenizer, shapes, types, norms and the values of the weights are those of the model; only their places are not.  What an analysis
says of such a model it would say of any (the null checks of docs/studies/claims.md).  NumPy is needed.
"""
import os
import struct
import sys

import numpy as np

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
from kvfate import files  # noqa: E402

SCALAR = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of GGUF's types of metadata
STRING, ARRAY = 8, 9
BLOCK = {0: (1, 4), 1: (1, 2), 30: (1, 2), 2: (32, 18), 3: (32, 20), 8: (32, 34)}  # values and bytes of F32, F16, BF16, Q4_0, Q4_1, Q8_0


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        size = struct.calcsize("<" + form)
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += size
        return values[0] if len(values) == 1 else values

    def text(self):
        n = self.take("Q")
        self.at += n
        return bytes(self.data[self.at - n:self.at]).decode()

    def value(self, kind):
        """The value, or None of what is not a whole number."""
        if kind == STRING:
            self.text()
        elif kind == ARRAY:
            inner, n = self.take("I"), self.take("Q")
            if inner == STRING:
                for _ in range(n):
                    self.text()
            else:
                self.at += SCALAR[inner] * n
        else:
            self.at += SCALAR[kind]
            return int.from_bytes(self.data[self.at - SCALAR[kind]:self.at], "little")
        return None


def tensors(data):
    """(name, sizes, type, place in the file) of each tensor."""
    r = Reader(data)
    magic, version, n, n_keys = r.take("4s"), r.take("I"), r.take("Q"), r.take("Q")
    if magic != b"GGUF" or version not in (2, 3):
        sys.exit("null_model.py: this is no GGUF file of version 2 or 3")
    align = 32
    for _ in range(n_keys):
        key = r.text()
        value = r.value(r.take("I"))
        align = value if key == "general.alignment" else align
    found = []
    for _ in range(n):
        name = r.text()
        sizes = [r.take("Q") for _ in range(r.take("I"))]
        found.append((name, sizes, r.take("I"), r.take("Q")))
    start = -(-r.at // align) * align
    return [(name, sizes, kind, start + offset) for name, sizes, kind, offset in found]


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    source, out = sys.argv[1:3]
    rng = np.random.default_rng(int(sys.argv[3]) if len(sys.argv) == 4 else 0)
    data = np.fromfile(source, np.uint8)
    for name, sizes, kind, at in tensors(memoryview(data)):
        if len(sizes) < 2:
            continue  # norms and biases stay
        if kind not in BLOCK:
            sys.exit(f"null_model.py: tensor {name} has type {kind}; F32, F16, BF16, Q4_0, Q4_1 and Q8_0 are known")
        values, size = BLOCK[kind]
        blocks = data[at:at + np.prod(sizes, dtype=np.int64) // values * size].reshape(-1, size)
        blocks[:] = blocks[rng.permutation(len(blocks))]
    files.write(out, data)


if __name__ == "__main__":
    main()
