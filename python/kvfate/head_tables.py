"""Reads published tables of numbers per head: full_attention_heads.tsv of DuoAttention, and budget curves of LU-KV (.npy)."""
import math
import struct
from typing import NamedTuple

from .errors import Error, regular

TSV_BYTES, NPY_BYTES = 16 << 20, 256 << 20
RATIOS = 99  # compression ratios .01, .02, .. .99 of LU-KV


class Tensor(NamedTuple):
    """A tensor in the form of torch_file."""
    name: str
    type: str
    shape: tuple
    n: int
    data: bytes

    def bytes(self):
        return self.data


def _alpha(path, line, text):
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Error("%s: line %d: '%s' is not a number" % (path, line, text[:40]))
    return min(1.0, max(0.0, value))


def alphas(path):
    """Returns (metadata, tensors) of a table of alphas: a line per layer, a number per KV head between tabs.  Numbers outside of [0, 1] are clipped,
    as the published code does."""
    regular(path)
    with open(path, "rb") as f:
        data = f.read(TSV_BYTES + 1)
    if len(data) > TSV_BYTES:
        raise Error("%s: over the limit of %d bytes" % (path, TSV_BYTES))
    try:
        lines = data.decode("ascii").splitlines()
    except UnicodeDecodeError:
        lines = []
    rows = [[_alpha(path, i + 1, x) for x in line.split("\t")] for i, line in enumerate(lines)]
    for i, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise Error("%s: line %d has %d numbers, and line 1 has %d" % (path, i + 1, len(row), len(rows[0])))
    if not rows:
        raise Error("%s: not a table of numbers between tabs" % path)
    n = len(rows) * len(rows[0])
    data = struct.pack("<%df" % n, *(x for row in rows for x in row))
    return {"kvfate.kind": "heads", "kvfate.layout": "duo"}, [Tensor("duo.alpha", "F32", (len(rows), len(rows[0])), n, data)]


def curves(path):
    """Returns (metadata, tensors) of budget curves: the pruned fractions [99 ratios, layers, KV heads]."""
    import numpy as np
    regular(path)
    try:
        x = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as e:
        raise Error("%s: not an array that NumPy wrote: %s" % (path, e)) from None
    if x.ndim != 3 or x.shape[0] != RATIOS or 0 in x.shape or x.dtype.kind != "f":
        raise Error("%s: an array %s of %s; curves of LU-KV are floats [%d, layers, KV heads]" % (path, list(x.shape), x.dtype.name, RATIOS))
    if x.nbytes > NPY_BYTES:
        raise Error("%s: over the limit of %d bytes" % (path, NPY_BYTES))
    if not ((x >= 0) & (x <= 1)).all():
        raise Error("%s: it has numbers outside of 0 to 1, and curves of LU-KV are pruned fractions" % path)
    return {"kvfate.unit": "pruned"}, [Tensor("budgets", "F32", x.shape, x.size, np.ascontiguousarray(x, "<f4").tobytes())]
