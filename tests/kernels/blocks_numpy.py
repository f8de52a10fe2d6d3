"""Decoders of GGUF's quantised block formats in NumPy, written from the published row formulas
and independent of the C ones: a cursor walks through the numbers of a block as in the formulas.

decode(name, data) returns float32, with each operation rounded to float32 in the published
order.
"""
import numpy as np

# name: (number in GGUF's type field, channels of a block, bytes of a block)
FORMATS = {
    "q4_0": (2, 32, 18), "q4_1": (3, 32, 20), "q5_0": (6, 32, 22), "q5_1": (7, 32, 24), "q8_0": (8, 32, 34),
    "q2_k": (10, 256, 84), "q3_k": (11, 256, 110), "q4_k": (12, 256, 144), "q5_k": (13, 256, 176),
    "q6_k": (14, 256, 210), "iq4_nl": (20, 32, 18), "iq4_xs": (23, 256, 136)}
# Offsets of the f16 numbers in a block.
HALVES = {
    "q4_0": [0], "q4_1": [0, 2], "q5_0": [0], "q5_1": [0, 2], "q8_0": [0], "q2_k": [80, 82], "q3_k": [108], "q4_k": [0, 2],
    "q5_k": [0, 2], "q6_k": [208], "iq4_nl": [0], "iq4_xs": [0]}
IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])


def half(b, at):
    return np.ascontiguousarray(b[:, at:at + 2]).view("<f2").astype(np.float32)


def word(b, at):
    return np.ascontiguousarray(b[:, at:at + 4]).view("<u4")


def f32(x):
    return np.asarray(x).astype(np.float32)


def halves_of_bytes(b):
    """Returns the low nibbles of all bytes, then the high ones."""
    return np.concatenate([b & 15, b >> 4], axis=1).astype(int)


def q4_0(b):
    return half(b, 0) * f32(halves_of_bytes(b[:, 2:18]) - 8)


def q4_1(b):
    return half(b, 0) * f32(halves_of_bytes(b[:, 4:20])) + half(b, 2)


def fifth(b, at):
    return ((word(b, at) >> np.arange(32, dtype=np.uint32)) & 1).astype(int) * 16


def q5_0(b):
    return half(b, 0) * f32((halves_of_bytes(b[:, 6:22]) | fifth(b, 2)) - 16)


def q5_1(b):
    return half(b, 0) * f32(halves_of_bytes(b[:, 8:24]) | fifth(b, 4)) + half(b, 2)


def q8_0(b):
    return half(b, 0) * f32(b[:, 2:34].view(np.int8))


def q2_k(b):
    d, least, out, scale = half(b, 80), half(b, 82), [], 0
    for chunk in range(2):
        q = b[:, 16 + 32 * chunk:48 + 32 * chunk].astype(int)
        for shift in (0, 2, 4, 6):
            for part in (q[:, :16], q[:, 16:]):
                sc = b[:, scale:scale + 1].astype(int)
                scale += 1
                out.append((d * f32(sc & 15)) * f32(part >> shift & 3) - least * f32(sc >> 4))
    return np.concatenate(out, axis=1)


def q3_k(b):
    """The 12 bytes of scales are unpacked as 32-bit words, as in the reference."""
    d, out, scale, bit = half(b, 108), [], 0, 1
    a0, a1, a2 = (word(b, 96 + 4 * i) for i in range(3))
    low, high = np.uint32(0x0f0f0f0f), np.uint32(0x03030303)
    words = [(a0 & low) | ((a2 & high) << np.uint32(4)), (a1 & low) | (((a2 >> np.uint32(2)) & high) << np.uint32(4)),
             ((a0 >> np.uint32(4)) & low) | (((a2 >> np.uint32(4)) & high) << np.uint32(4)),
             ((a1 >> np.uint32(4)) & low) | (((a2 >> np.uint32(6)) & high) << np.uint32(4))]
    scales = np.concatenate([np.ascontiguousarray(w).view(np.int8) for w in words], axis=1).astype(int)
    for chunk in range(2):
        q = b[:, 32 + 32 * chunk:64 + 32 * chunk].astype(int)
        for shift in (0, 2, 4, 6):
            for first in (0, 16):
                factor = d * f32(scales[:, scale:scale + 1] - 32)
                scale += 1
                missing = np.where(b[:, first:first + 16] & bit, 0, 4)
                out.append(factor * f32((q[:, first:first + 16] >> shift & 3) - missing))
            bit <<= 1
    return np.concatenate(out, axis=1)


def six_bits(b, j):
    """Returns scale and offset j from the 12 bytes of Q4_K and Q5_K."""
    q = b[:, 4:16].astype(int)
    if j < 4:
        return q[:, j:j + 1] & 63, q[:, j + 4:j + 5] & 63
    return ((q[:, j + 4:j + 5] & 15) | (q[:, j - 4:j - 3] >> 6) << 4), (q[:, j + 4:j + 5] >> 4 | (q[:, j:j + 1] >> 6) << 4)


def q4_k(b):
    d, least, out = half(b, 0), half(b, 2), []
    for pair in range(4):
        q = b[:, 16 + 32 * pair:48 + 32 * pair].astype(int)
        for j, part in ((2 * pair, q & 15), (2 * pair + 1, q >> 4)):
            sc, m = six_bits(b, j)
            out.append((d * f32(sc)) * f32(part) - least * f32(m))
    return np.concatenate(out, axis=1)


def q5_k(b):
    d, least, out, high = half(b, 0), half(b, 2), [], b[:, 16:48].astype(int)
    for pair in range(4):
        q = b[:, 48 + 32 * pair:80 + 32 * pair].astype(int)
        for j, part in ((2 * pair, q & 15), (2 * pair + 1, q >> 4)):
            sc, m = six_bits(b, j)
            out.append((d * f32(sc)) * f32(part + np.where(high & 1 << j, 16, 0)) - least * f32(m))
    return np.concatenate(out, axis=1)


def q6_k(b):
    d, out = half(b, 208), np.empty((len(b), 256), np.float32)
    scales = b[:, 192:208].view(np.int8).astype(int)
    for n in range(2):
        ql, qh = b[:, 64 * n:64 * n + 64].astype(int), b[:, 128 + 32 * n:160 + 32 * n].astype(int)
        for i in range(32):
            q = ((ql[:, i] & 15) | (qh[:, i] & 3) << 4, (ql[:, i + 32] & 15) | (qh[:, i] >> 2 & 3) << 4,
                 ql[:, i] >> 4 | (qh[:, i] >> 4 & 3) << 4, ql[:, i + 32] >> 4 | (qh[:, i] >> 6 & 3) << 4)
            for k in range(4):
                out[:, 128 * n + 32 * k + i] = d[:, 0] * f32(scales[:, 8 * n + i // 16 + 2 * k]) * f32(q[k] - 32)
    return out


def iq4_nl(b):
    return half(b, 0) * f32(IQ4[halves_of_bytes(b[:, 2:18])])


def iq4_xs(b):
    d, out, high = half(b, 0), [], b[:, 2].astype(int) | b[:, 3].astype(int) << 8
    for j in range(8):
        scale = (b[:, 4 + j // 2].astype(int) >> 4 * (j % 2) & 15) | (high >> 2 * j & 3) << 4
        out.append(d * f32(scale - 32)[:, None] * f32(IQ4[halves_of_bytes(b[:, 8 + 16 * j:24 + 16 * j])]))
    return np.concatenate(out, axis=1)


def decode(name, data):
    """Returns the float32 values of complete blocks of bytes."""
    blocks = np.frombuffer(data, np.uint8).reshape(-1, FORMATS[name][2])
    with np.errstate(all="ignore"):
        return globals()[name](blocks).reshape(-1)


def random_blocks(name, n, rng, extreme):
    """Returns n blocks of random bytes. The f16 scales are ordinary numbers, or any bits, zeros,
    subnormals and limits of the range."""
    data = rng.integers(0, 256, (n, FORMATS[name][2]), dtype=np.uint8)
    ends = np.array([0, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x3c00, 0xbc00], "<u2")
    for at in HALVES[name]:
        d = rng.choice(ends, n) if extreme else rng.uniform(-0.02, 0.02, n).astype("<f2").view("<u2")
        if extreme:
            d = np.where(rng.random(n) < 0.5, d, rng.integers(0, 65536, n)).astype("<u2")
        data[:, at:at + 2] = d.view(np.uint8).reshape(n, 2)
    return data.tobytes()
