#!/usr/bin/env python3
"""Compares the oracle's definitions with closed forms, numbers computed by hand, and brute force.

usage: identities.py
"""
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import itertools
import sys
from types import SimpleNamespace

import numpy as np

import allocation
import gates
import methods_gates
import reading


class Report:
    def __init__(self):
        self.failed = 0

    def say(self, good, text):
        self.failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {text}")


def run_with(x, t, **more):
    """Returns a run of t tokens with gate values x, [position]."""
    m = SimpleNamespace(layers=1, heads=1, kv_heads=1, head_dim=4, freq=np.array([1.0, 0.1]))
    return SimpleNamespace(t=t, m=m, gates=gates.Given("retention", np.asarray(x, np.float32)[None, None]), **more)


def retention(report):
    beta = np.array([0.3, 0.9, 0.999, 1.0, 0.5])
    log_beta = np.log(beta).astype(np.float32)
    run, C = run_with(log_beta, 5), list(range(5))
    got = methods_gates.retention(run, {"offset": 0, "lookahead": 1}, 0, 0, C, C)
    want = [np.float32((4 - i) * np.float64(x)) for i, x in enumerate(log_beta)]
    report.say((got == want).all() and got[4] == 0, "retention: the newest entry has exponent 0 (Algorithm 1)")
    horizon = 5 + 7  # the sum from s = t + 1 to T of beta^(s - i), both counted from 1
    got = methods_gates.retention(run, {"offset": 1, "lookahead": 7}, 0, 0, C, C)
    b = np.exp(log_beta.astype(float))
    eq9 = [np.log(sum(b[i] ** (s - (i + 1)) for s in range(6, horizon + 1))) for i in range(5)]
    report.say(np.allclose(got, eq9, rtol=1e-6, atol=1e-7), "retention: offset 1 and lookahead N are the sum of Eq. 9")
    report.say(abs(got[3] - np.log(7)) < 1e-6, "retention: log N for beta = 1")
    closed = [e * x + np.log((1 - np.exp(7 * x)) / (1 - np.exp(x))) for e, x in zip([5, 4, 3], log_beta.astype(float))]
    report.say(np.allclose(got[:3], closed, rtol=1e-6), "retention: the closed form of the sum")


def admission(report):
    report.say(methods_gates.admitted(0.5, {"tau": 0.5, "compare": "ge"}) and
               not methods_gates.admitted(0.5, {"tau": 0.5, "compare": "gt"}), "write gates: g = tau, ge and gt")
    rng = np.random.RandomState(3)
    worst = 0.0
    for _ in range(50):
        alpha, q = rng.rand(rng.randint(1, 4), rng.randint(1, 4)).astype(np.float32), rng.rand()
        run = SimpleNamespace(gates=gates.Given("heads", alpha))
        worst = max(worst, abs(methods_gates.threshold(run, {"sparsity": q}) - np.quantile(alpha.astype(float), q)))
    report.say(worst < 1e-15, "duo: the quantile of numpy")


def expected_attention(report):
    """With one query and a horizon of one position, this is the query's attention at the next
    position."""
    rng = np.random.RandomState(4)
    run = run_with(np.zeros(3), 3, queries=rng.normal(size=(1, 1, 3, 4)), keys=rng.normal(size=(1, 1, 3, 4)),
                   values=rng.normal(size=(1, 1, 3, 4)))
    p = {"sinks": 2, "horizon": 1, "epsilon": 0}
    got = methods_gates.expected_logits(run, p, 0, 0, run.keys[0, 0])
    q, turn = run.queries[0, 0, 2], np.exp(1j * 3 * run.m.freq)
    z = (q[0::2] + 1j * q[1::2]) * turn
    q = np.stack([z.real, z.imag], axis=1).ravel()
    report.say(np.allclose(got, run.keys[0, 0] @ q / 2), "expected attention: one query, rotated to the next position")
    p = {"sinks": 0, "horizon": 1, "epsilon": 0}
    draws = run.queries[0, 0]
    spread = methods_gates.expected_logits(run, p, 0, 0, run.keys[0, 0]) - run.keys[0, 0] @ \
        (methods_gates.mean_rotation(run, p) @ draws.mean(axis=0)) / 2
    R = methods_gates.mean_rotation(run, p)
    var = (run.keys[0, 0] @ (R @ (draws - draws.mean(axis=0)).T)) ** 2
    report.say(np.allclose(spread, var.mean(axis=1) / 8), "expected attention: half the variance of the logits is added")


def pages(report):
    u = [reading.upper_bounds(np.array([1, -2.0]), np.array(k, float))[0] for k in ([[1, 1], [3, 0]], [[0, -1], [-1, -2]])]
    report.say(u == [3, 4], f"quest: bounds of the two pages worked out by hand {u}")
    rng = np.random.RandomState(5)
    good = True
    for _ in range(50):
        q, k = rng.normal(size=4), rng.normal(size=(rng.randint(1, 5), 4))
        bound = reading.upper_bounds(q, k)[0]
        good &= bound >= (k @ q).max() - 1e-12 and (len(k) > 1 or abs(bound - (k @ q)[0]) < 1e-12)
    report.say(good, "quest: no product exceeds the bound; with one key it is the product")
    held = reading.pages(list(range(0, 14, 2)), 3)
    report.say(held == [[0, 2, 4], [6, 8, 10], [12]] and reading.forced(held, 2) == [1, 2] and reading.forced(held, 0) == [2],
               "pages by rank; the pages of the newest entries")
    read, unsure = reading.best(np.array([1.0, 3, 3, 2]), np.zeros(4), [3], 2)
    report.say(read == [2, 3] and not unsure, "of two equal pages the later is read")
    report.say(reading.best(np.array([1.0, 3, 3, 2]), np.zeros(4), [0, 1, 2], 2)[0] == [0, 1, 2], "forced pages beyond the count")


def shared_places(report):
    """Compares with the best of all choices of the required number of entries."""
    rng = np.random.RandomState(6)
    good = True
    for _ in range(60):
        sizes = rng.randint(0, 4, 3)
        scores = [{int(j): float(rng.randint(0, 6)) for j in range(n)} for n in sizes]
        every = [(h, j) for h, s in enumerate(scores) for j in s]
        places, least = rng.randint(0, len(every) + 1), rng.randint(0, 3)
        safe, rest = allocation.dealt_out(scores, least, places)
        need = [min(least, n) for n in sizes]
        size = max(places, sum(need)) if len(every) >= places else len(every)
        best = max((sum(scores[h][j] for h, j in c) for c in itertools.combinations(every, size)
                    if all(sum(h == g for g, _ in c) >= need[h] for h in range(3))), default=0)
        good &= abs(sum(scores[h][j] for h, j in safe | rest) - best) < 1e-9 and len(safe | rest) == size
    report.say(good, "shared places: the largest sum of scores that leaves every head its least")
    safe, rest = allocation.dealt_out([{3: 1.0}, {3: 1.0, 2: 1.0}], 0, 2)
    report.say(rest == {(0, 3), (1, 3)}, "of equal scores the larger position, then the earlier head")
    safe, rest = allocation.dealt_out([{3: 1.0}, {3: 1.0, 2: 1.0}], 0, 2, older=True)
    report.say(rest == {(1, 2), (0, 3)}, "tie=older: the smaller position, then the earlier head")
    left = allocation.rounds([list(range(25)), [7], []], 0.1, 5)
    report.say([len(x) for x in left] == [21, 0, 0], "rounds: 25 and 1 candidates drop 2 and 1, then 2: five are gone")


def main():
    report = Report()
    for check in (retention, admission, expected_attention, pages, shared_places):
        check(report)
    print(f"{report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
