#!/usr/bin/env python3
"""Every quantised weight type in a complete model. With --exact the logits equal those of the same
values in f32, decoded independently. The default path stays close, less so with 8-bit activations.
This also holds for mixed types in one matrix. Floats are multiplied as floats, and as 16-bit
integers with --activations 16."""
import json
import os
import sys

import numpy as np

from harness import Gguf, Suite

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "kernels"))
import blocks_numpy  # noqa: E402

s = Suite()
rng = np.random.default_rng(5)
MIXES = {"q4_k_m": ("q4_k", "q6_k"), "q4_k and q8_0": ("q4_k", "q8_0"), "q5_0 and q8_0": ("q5_0", "q8_0"), "q2_k and q3_k": ("q2_k", "q3_k"),
         "iq4_xs and q5_k": ("iq4_xs", "q5_k")}


def quantised(kind, n, columns):
    """Returns random blocks with values of deviation 1 / sqrt(columns)."""
    data = blocks_numpy.random_blocks(kind, n // blocks_numpy.FORMATS[kind][1], rng, False)
    b = np.frombuffer(bytearray(data), np.uint8).reshape(-1, blocks_numpy.FORMATS[kind][2])
    factor = 1 / np.sqrt(columns) / blocks_numpy.decode(kind, data).std()
    for at in blocks_numpy.HALVES[kind]:
        half = np.ascontiguousarray(b[:, at:at + 2]).view("<f2").astype(np.float32) * factor
        b[:, at:at + 2] = half.astype("<f2").view(np.uint8)
    return b.tobytes()


def models(kinds, untied):
    """Returns the paths of a model whose matrices use the types in turn, and of the same model in
    f32."""
    g, plain = (Gguf(heads=4, kv_heads=2, head_dim=64, dim=256, ffn=512, untied=untied) for _ in range(2))
    i = 0
    for t, p in zip(g.tensors, plain.tensors):
        if len(t[1]) > 1:
            kind = kinds[i % len(kinds)]
            i += 1
            t[2], t[3] = blocks_numpy.FORMATS[kind][0], quantised(kind, t[1][0] * t[1][1], t[1][1])
            p[3] = blocks_numpy.decode(kind, t[3]).tobytes()
    return g.write(s.path("g.gguf")), plain.write(s.path("plain.gguf"))


def logits(name, model, *options):
    out = s.path("out.npy")
    s.accepted(name, ["generate", "--logits", "-m", model, "--raw", "-p", "hello world, and then it is in the morning that ", "-t", "1", "-o", out, *options])
    return np.load(out)


for name, kinds in {**{k: (k,) for k in blocks_numpy.FORMATS}, **MIXES}.items():
    for untied in (False, True):
        what = name + (", untied" if untied else "")
        g, plain = models(kinds, untied)
        exact, want = logits(what, g, "--exact"), logits(what, plain, "--exact")
        s.check(f"{what}: exact is f32 of the decoded values", exact.tobytes() == want.tobytes(), np.abs(exact - want).max())
        for bits, near, farthest in (("16", 3e-4, 1e-3), ("8", 6e-2, 2e-1)):
            d, spread = logits(what, g, "--kv-type", "f32", "--activations", bits).astype(float) - exact, exact.std()
            rms, largest = np.sqrt((d * d).mean()), np.abs(d).max()
            s.check(f"{what}: {bits} bits are near", rms <= near * spread and largest <= farthest * spread and spread > 0.1, rms, largest, spread)
            if "KVF_SHOW" in os.environ:
                print(f"{what:24s} {bits:>2s} bits: rms {rms / spread:.1e}, largest {largest / spread:.1e} of the deviation of the logits")
    s.check(f"{what}: floats stay floats", logits(what, plain).tobytes() == logits(what, plain, "--activations", "8").tobytes())
    d = logits(what, plain, "--kv-type", "f32", "--activations", "16").astype(float) - want
    rms, largest = np.sqrt((d * d).mean()), np.abs(d).max()
    s.check(f"{what}: floats as integers are near, and not floats", 0 < rms <= 1e-3 * spread and largest <= 5e-3 * spread, rms, largest, spread)
    same = logits(what, g).tobytes() == logits(what, g, "--activations", "16").tobytes()
    s.check(f"{what}: 16 bits are the default of quantised weights", same)

# ---- the precision in the header: a model of floats, and one of q4_0 without floats
PRECISION = {"auto": "weights as stored, 16-bit activations where quantised", "8": "weights as stored, 8-bit activations where quantised",
             "16": "float weights as 16-bit integers, 16-bit activations"}
for kinds in ((), ("q4_0",)):
    g, plain = models(kinds or ("q4_0",), False)
    for bits, told in PRECISION.items():
        out = s.path("bits.kvf")
        s.accepted(f"{bits} bits", ["run", "-m", g if kinds else plain, "--raw", "-p", "hello", "-n", "4", "-q", "--overwrite", "--activations", bits, "-o", out])
        header = json.loads(s.run(["trace", "info", "--json", out]).stdout)["header"]
        s.check(f"{bits} bits, {kinds}: precision", header["run"]["precision"] == (PRECISION["auto"] if kinds and bits == "16" else told), header["run"])

# ---- types of the cache: the header, bytes of pages by kv_page.h, and a method for every way to
# use keys and values
L, H, D, T = 2, 2, 16, 140
ids = s.file("ids.txt", " ".join(str(i * 37 % 297 + 3) for i in range(T)).encode())
BYTES = {"f32": 4 * D, "f16": 2 * D, "q8_0": D + 2 * -(-D // 32), "i16": 2 * D + 4}
ROWS = ["full", "keydiff -B 40", "knorm -B 40", "rkv -B 40", "h2o -B 40", "quest:page=8 -B 40", "window:positions=cache -B 40"]
made = Gguf(layers=L, heads=4, kv_heads=H, head_dim=D, dim=64, ffn=96).write(s.path("cache.gguf"))
for kind, of_entry in BYTES.items():
    for row in ROWS:
        out, what = s.path("cache.kvf"), f"cache {kind}, {row}"
        told = s.accepted(what, ["run", "-m", made, "--ids", ids, "-n", "12", "--ignore-eos", "--kv-type", kind, "--method", *row.split(), "-q", "--json",
                                 "--overwrite", "-o", out])
        header = json.loads(s.run(["trace", "info", "--json", out]).stdout)["header"]
        s.check(f"{what}: header", header["run"]["kv_type"] == kind, header["run"])
        if row == "full":
            bytes_, pages = json.loads(told.stdout)["kv_bytes_peak"], L * H * -(-(T + 11) // 64)
            s.check(f"{what}: bytes", bytes_ == pages * 64 * 2 * of_entry, bytes_)
        if kind in ("q8_0", "i16"):
            again = s.path("again.kvf")
            s.accepted(f"{what}: in other chunks", ["run", "-m", made, "--ids", ids, "-n", "12", "--ignore-eos", "--kv-type", kind, "--method", *row.split(),
                                                    "-q", "--chunk", "7", "-t", "1", "--overwrite", "-o", again])
            with open(out, "rb") as a, open(again, "rb") as b:
                s.check(f"{what}: the same trace", a.read() == b.read())
s.finish()
