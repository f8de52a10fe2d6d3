#!/usr/bin/env python3
"""Check kvfate survival --as block-exit against counts by the definition, block by block and token by token.

usage: test_block_exit.py KVFATE WRITE_KVF ...
"""
import os
import sys
import tempfile

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import laws  # noqa: E402
from check import check, finish, real, refused, said  # noqa: E402
from maker import table
from selections import Z, kaplan_meier

kvfate, write_kvf = map(os.path.abspath, sys.argv[1:3])


def wilson(k, n):
    """Return the two roots of (k/n - p)^2 = z^2 p (1 - p) / n."""
    p = np.roots([1 + Z * Z / n, -2 * k / n - Z * Z / n, (k / n)**2])
    return sorted(np.clip(p.real, 0, 1))


def by_hand(lives, followed, b, at_least):
    """Count exits; lives: (last age in the set, age from which the life is unknown); followed: the latter of each token
    once.
    """
    end = sorted(followed, reverse=True)[at_least - 1]
    at_risk = exits = 0
    least = (np.inf, -1)
    for k in range(1000):
        if (k + 1) * b > end:
            break
        here = [a for a, c in lives if a >= k * b and c >= (k + 1) * b]
        gone = sum(a < (k + 1) * b for a in here)
        at_risk, exits = at_risk + len(here), exits + gone
        if len(here) >= at_least and gone / len(here) < least[0]:
            least = gone / len(here), k * b, wilson(gone, len(here))
    low, high = wilson(exits, at_risk)
    epsilon = exits / at_risk
    beta = [(1 - x)**(1 / b) for x in (epsilon, high, low)]
    start, *after = [s for s, _ in kaplan_meier(lives, end)]
    over = [s / start - beta[0]**n / (1 - epsilon) for n, s in enumerate(after, 1)]
    return [b, at_risk, exits, epsilon, low, high, *beta, 1 / (1 - epsilon), least[0], *least[2], least[1], (1 - least[0])**(1 / b),
            np.nanmax(over), 1 + int(np.nanargmax(over))]


KEYS = ("block", "at_risk", "exits", "epsilon", "low", "high", "beta", "beta_low", "beta_high", "amplitude", "least", "least_low", "least_high", "least_age",
        "least_beta", "excess", "excess_age")


def check_all(path, seed, event, grace, at_least):
    rng = np.random.default_rng(seed)
    heads, T, blocks = 3, 130, (1, 7, 30)
    last = np.stack([laws.draw(rng, law, T) for law in laws.LAWS])
    last[:, ::9] = -1  # never selected
    first = np.maximum(last + 1 - rng.integers(0, 20, last.shape), 0)
    written = last.astype(float)
    written[last < 0] = np.nan
    x = laws.write(write_kvf, path, written, first)
    data, meta = table(kvfate, "survival", "--as", "block-exit", x, "--event", event, "--grace", grace, "--at-least", at_least, "--block", ",".join(map(str, blocks)))
    wait = grace if event == "gone" else 0
    check("options", [meta[k] for k in ("event", "grace", "at_least")] == [event, str(wait), str(at_least)], meta)
    c = [T - 1 - i - wait for i in range(T) if T - 1 - i - wait >= 0]
    lives = [[(int(a), z) for a, z in zip(last[h] if event == "gone" else first[h] - 1, c)] for h in range(heads)]
    rows = {(data["head"][k], data["block"][k]): [data[key][k] for key in KEYS] for k in range(len(data["head"]))}
    check("rows", len(rows) == (heads + 1) * len(blocks), list(rows))
    for b in blocks:
        for name, mine in [(f"L0H{h}", lives[h]) for h in range(heads)] + [("all", sum(lives, []))]:
            got, want = real(rows[name, b]), np.array(by_hand(mine, c, b, at_least), float)
            check(f"{event} {name} block {b}", np.allclose(got, want, rtol=1e-9, atol=1e-9), dict(zip(KEYS, zip(got, want))))
    return x


with tempfile.TemporaryDirectory(prefix="kvfate-block-exit-") as folder:
    trace = os.path.join(folder, "x.kvf")
    check_all(trace, 1, "gone", 10, 20)
    check_all(trace, 2, "gone", 0, 1)
    x = check_all(trace, 3, "first-exit", 10, 12)
    check("text", "envelope" in said("survival", "--as", "block-exit", x))
    for argv, word in ((["--block", "0,1"], "--block"), (["--block", "4,4"], "--block"), (["--block", ""], "--block"), (["--event", "x"], "--event")):
        refused(" ".join(argv), 2, ["survival", "--as", "block-exit", x, *argv], word)
    finish()
