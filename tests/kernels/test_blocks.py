"""Quantised types of GGUF: values dequantised from random blocks equal the published formulas bit
for bit.

usage: test_blocks.py DEQUANT [--peer]    (--peer: also compares the formulas with the gguf package's
                                          decoders)"""
import os
import subprocess
import sys

import numpy as np

import blocks_numpy

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402


def same(got, want):
    """Returns True for equal bits; all NaNs are equal."""
    bits = got.view(np.uint32) == want.view(np.uint32)
    return got.shape == want.shape and bool(np.all(bits | (np.isnan(got) & np.isnan(want))))


rng = np.random.default_rng(20)
for name, (number, block, size) in blocks_numpy.FORMATS.items():
    for extreme in (False, True):
        data = blocks_numpy.random_blocks(name, 400, rng, extreme)
        want = blocks_numpy.decode(name, data)
        r = subprocess.run([sys.argv[1], str(number)], input=data, capture_output=True)
        got = np.frombuffer(r.stdout, np.float32)
        differ = np.flatnonzero(got.view(np.uint32) != want.view(np.uint32))[:3] if got.shape == want.shape else [got.size, want.size]
        check(f"{name}, {'extreme' if extreme else 'ordinary'} scales", r.returncode == 0 and same(got, want), differ)
        check(f"{name} has no trivial values", extreme or np.unique(got).size > 1000)
        if "--peer" in sys.argv:
            from gguf import GGMLQuantizationType, quants
            with np.errstate(all="ignore"):
                peer = quants.dequantize(np.frombuffer(data, np.uint8).reshape(-1, size), GGMLQuantizationType(number)).reshape(-1)
            check(f"{name}: the gguf package", same(peer, want))
for number in (9, 15, 24, 99):
    r = subprocess.run([sys.argv[1], str(number)], input=bytes(1024), capture_output=True)
    check(f"type {number} is not read", r.returncode != 0 and not r.stdout)
finish()
