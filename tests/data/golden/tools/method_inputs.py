"""Inputs of the cases in methods.json: the same numbers on every platform, from one integer recurrence.

    state = state * 6364136223846793005 + 1442695040888963407   (mod 2^64, starting from the seed)
    x     = (state >> 40) / 2^23 - 1                            (exact in float32, in [-1, 1))

One draw for each number, in the order queries [G][rows][d], keys [H][n][d], values [H][n][d].  Queries are then
multiplied by q_scale, a power of two.  Query row r belongs to position n - rows + r.  `copies` lists pairs (j, i):
in every head key j becomes key i, in the order given.  `keys`, when given, are literal keys [n][d] of every head.
Layer l of a case with several layers uses the seed seed + l.
"""
import numpy as np

MULTIPLIER, INCREMENT, MASK = 6364136223846793005, 1442695040888963407, (1 << 64) - 1


def uniform(seed, count):
    out, state = np.empty(count, np.float64), seed
    for i in range(count):
        state = (state * MULTIPLIER + INCREMENT) & MASK
        out[i] = state >> 40
    return (out / 2**23 - 1).astype(np.float32)


class Inputs:
    """q [G, rows, d], k and v [H, n, d], float32; `spec` is the "in" object of a case"""

    def __init__(self, spec, layer=0):
        self.G, self.H, self.n, self.d = (spec[key] for key in ("G", "H", "n", "d"))
        self.rows = spec.get("rows", self.n)
        self.group = self.G // self.H
        sizes = [self.G * self.rows * self.d] + 2 * [self.H * self.n * self.d]
        x = np.split(uniform(spec["seed"] + layer, sum(sizes)), np.cumsum(sizes)[:2])
        self.q = x[0].reshape(self.G, self.rows, self.d) * np.float32(spec.get("q_scale", 4))
        self.k = x[1].reshape(self.H, self.n, self.d).copy()
        self.v = x[2].reshape(self.H, self.n, self.d)
        for j, i in spec.get("copies", []):
            self.k[:, j] = self.k[:, i]
        if "keys" in spec:
            self.k[:] = np.array(spec["keys"], np.float32)

    def queries(self, start, end):
        """of the positions start .. end - 1"""
        first = self.n - self.rows
        return self.q[:, start - first:end - first]


def random_list(seed, count, low, high):
    """integers in [low, high] for the arithmetic-only cases"""
    return [int(low + (x + 1) / 2 * (high - low + 1)) for x in uniform(seed, count).astype(np.float64)]


class Draws:
    """one stream of numbers in [-1, 1), taken in the order of the calls; `scale` is a power of two"""

    def __init__(self, seed):
        self.state = seed

    def take(self, *shape, scale=1.0):
        count = int(np.prod(shape))
        out = uniform(self.state, count)
        for _ in range(count):
            self.state = (self.state * MULTIPLIER + INCREMENT) & MASK
        return out.reshape(shape) * np.float32(scale)


def log_betas(spec):
    """[L, H, n] retention of every token: -u * 2^-(decay + (l * H + h) % 3), u = (x + 1) / 2; listed ones are 0"""
    L, H, n = (spec[key] for key in ("L", "H", "n"))
    out = -(Draws(spec["seed"]).take(L, H, n) + 1) / 2
    for lane in range(L * H):
        out[lane // H, lane % H] *= np.float32(2.0 ** -(spec["decay"] + lane % 3))
    for layer, head, j in spec.get("forever", []):
        out[layer, head, j] = 0
    return out + np.float32(0)


def gates(spec, tau):
    """[L, H, n] admission gates in [0, 1); every token listed in "equal" has exactly tau in every head"""
    L, H, n = (spec[key] for key in ("L", "H", "n"))
    out = (Draws(spec["seed"] + 500).take(L, H, n) + 1) / 2
    out[:, :, spec.get("equal", [])] = tau
    return out
