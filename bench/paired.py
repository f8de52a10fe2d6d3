#!/usr/bin/env python3
"""Differences of KL between two rows of `kvfate eval`, document by document, from its state file.

usage: bench/paired.py STATE A-B...        e.g.  bench/paired.py wiki.state cake-snapkv gkv-rkv

Mean over the documents, a 95 % percentile bootstrap interval (5,000 replicates, fixed seed; * = it leaves out 0) and the
two-sided p of a permutation test: the share of all sign patterns (of 100,000 random ones for over 16 documents) whose mean is
at least as far from 0.
Rows are named by their method alone.  numpy.
"""
import sys

import numpy as np


def load(path):
    """{(method, budget): {document: kl}}"""
    with open(path, encoding="utf-8") as f:
        lines = [line.rstrip("\n").split("\t") for line in f if not line.startswith("#")]
    rows = {}
    for line in lines[1:]:
        r = dict(zip(lines[0], line))
        rows.setdefault((r["method"], int(r["budget"])), {})[r["doc"]] = float(r["kl"])
    return rows


def permutation_p(x, rng):
    n = len(x)
    if n <= 16:
        signs = 1 - 2 * (np.arange(2**n)[:, None] >> np.arange(n) & 1)
    else:
        signs = np.vstack([np.ones(n, int), rng.choice([-1, 1], (100000, n))])
    return np.mean(np.abs(signs @ x) >= abs(x.sum()) * (1 - 1e-12))


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    rows, rng = load(sys.argv[1]), np.random.default_rng(0)
    for pair in sys.argv[2:]:
        names = {m for m, _ in rows}
        a, b = next(((pair[:i], pair[i + 1:]) for i, c in enumerate(pair) if c == "-" and pair[:i] in names
                     and pair[i + 1:] in names), (None, None))
        if a is None:
            sys.exit(f"paired.py: '{pair}' is not A-B of two methods in {sys.argv[1]}")
        for budget in sorted({n for m, n in rows if m == a}):
            one, other = rows[a, budget], rows[b, budget]
            x = np.array([one[d] - other[d] for d in one])
            means = x[rng.integers(0, len(x), (5000, len(x)))].mean(1)
            low, high = np.percentile(means, [2.5, 97.5])
            print(f"{a} - {b}, B = {budget}: {x.mean():+.3f} ({low:+.3f}..{high:+.3f}){'' if low < 0 < high else ' *'}"
                  f" p = {permutation_p(x, rng):.4f}")


if __name__ == "__main__":
    main()
