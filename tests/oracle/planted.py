"""Proof that the comparison can fail: faults planted in the oracle, one at a time, have to be noticed."""
import random
from unittest import mock

import numpy as np

import methods
from tiny_llama import Session

MOST_CASES = 60  # the faults that only show at an edge of a pool or in a tie need some

decide, pooled, window_attention = methods.decide, methods.pooled, methods.window_attention


def changed(fn, **change):
    """fn(..., p, ...) with some numbers of its row changed"""
    def planted(*a):
        at = next(i for i, x in enumerate(a) if isinstance(x, dict) and "window" in x)
        p = a[at]
        return fn(*a[:at], p | {k: f(p[k]) for k, f in change.items()}, *a[at + 1 :])
    return planted


def less(n):
    return max(0, n - 1)


def newcomer_not_counted(name, p, run, layer, head, newest, target):
    return decide(name, p, run, layer, head, min(newest, run.t - 1), target)


def budget_too_large(name, p, run, layer, head, newest, target):
    return decide(name, p, run, layer, head, newest, target + 1)


def one_cut_after_the_prompt(name, p, run, layer, head, newest, target):
    """straight to B - 1, as if the newcomer were there"""
    return decide(name, p, run, layer, head, newest, target - 1 if newest < run.t else target)


def smaller_stays(items, key=None):
    """the tie rule turned round; reports its scores as before"""
    return sorted(items, key=key and (lambda j: (key(j)[0], -j)))


def divides_by_neighbours(p, score):
    half, n = p["pool"] // 2, len(score)
    near = np.array([min(n, i + half + 1) - max(0, i - half) for i in range(n)])
    return pooled(p, score) * (p["pool"] / near if p["pool-kind"] == "avg" else 1)


def group_before_sum(run, p, layer, head, alive):
    rows = run.rows[layer][list(methods.query_heads(run, head))]
    return methods.reduced(p["group"], rows).sum(axis=0)[alive]


def survivors_only(run, p, layer, head, alive):
    """attention that a query gave to what is gone by now is counted as if it had never been"""
    rows = run.rows[layer][list(methods.query_heads(run, head))][:, : run.t, alive]
    rows = rows / np.maximum(rows.sum(axis=2, keepdims=True), 1e-300)
    return methods.reduced(p["group"], rows.sum(axis=1))


def tova_per_head(run, p, layer, head, alive):
    return window_attention(run, p, layer, methods.query_heads(run, head), alive)


def angles(keys, anchor):
    return -(keys @ anchor) / np.linalg.norm(keys, axis=1) / np.linalg.norm(anchor)


def mean_of_raw_keys(run, p, layer, head, alive):
    k = run.keys[layer, head, alive]
    return angles(k, k.mean(axis=0))


def mean_of_all_keys(run, p, layer, head, alive):
    k = run.keys[layer, head, : run.t]
    return angles(k[alive], (k / np.linalg.norm(k, axis=1, keepdims=True)).mean(axis=0))


def layer_for_head(run, p, layer, head, alive):
    return methods.random_hash(run, p, head, layer, alive)


class Haunted(Session):
    """Evicted entries are off the list but attention still reads them."""

    def __init__(self, *a):
        super().__init__(*a)
        self.ghosts = {}

    def evict(self, layer, head, position):
        self.alive[layer][head].remove(position)
        self.ghosts.setdefault((layer, head), []).append(position)

    def attention(self, layer, x):
        true = self.alive[layer]
        self.alive[layer] = [a + self.ghosts.get((layer, h), []) for h, a in enumerate(true)]
        out = super().attention(layer, x)
        self.alive[layer] = true
        return out


def scored_by(name, fn):
    return mock.patch.dict(methods.SCORES, {name: fn})


def replaced(what, fn):
    return mock.patch.object(methods, what, fn, create=True)


def faults(comparison):
    """(method, name, patch)"""
    longer = changed(window_attention, window=lambda w: w + 1)
    shorter = changed(window_attention, window=lambda w: max(1, w - 1))
    return [
        ("snapkv", "window one query too long", replaced("window_attention", longer)),
        ("snapkv", "window one query too short", replaced("window_attention", shorter)),
        ("tova", "two queries for one", replaced("window_attention", longer)),
        ("snapkv", "recent one too short", replaced("decide", changed(decide, recent=less))),
        ("h2o", "newcomer outside recent", replaced("decide", newcomer_not_counted)),
        ("window", "newcomer outside recent", replaced("decide", newcomer_not_counted)),
        ("window", "one sink less", replaced("decide", changed(decide, sinks=less))),
        ("random", "budget one too large", replaced("decide", budget_too_large)),
        ("keydiff", "one cut for two after the prompt", replaced("decide", one_cut_after_the_prompt)),
        ("snapkv", "pool two too narrow", replaced("pooled", changed(pooled, pool=lambda n: max(1, n - 2)))),
        ("snapkv", "average over neighbours present", replaced("pooled", divides_by_neighbours)),
        ("snapkv", "smaller position stays in a tie", replaced("sorted", smaller_stays)),
        ("h2o", "group reduced before the sum", scored_by("h2o", group_before_sum)),
        ("h2o", "rows renormalised to survivors", scored_by("h2o", survivors_only)),
        ("tova", "one set per head", scored_by("tova", tova_per_head)),
        ("keydiff", "mean of raw keys", scored_by("keydiff", mean_of_raw_keys)),
        ("keydiff", "mean of evicted keys too", scored_by("keydiff", mean_of_all_keys)),
        ("random", "layer and head change places", scored_by("random", layer_for_head)),
        ("window", "evicted entries still read", mock.patch.object(comparison, "Session", Haunted)),
    ]


def noticed(comparison, engine, models, method, patch):
    """(number of cases until the comparison fails, what it says), or None.  Without the fault each of these
    cases has to pass."""
    rng, tally = random.Random("planted"), comparison.Tally()
    for i in range(1, MOST_CASES + 1):
        c = comparison.case_of(rng, method, long=False)
        with patch:
            said = comparison.compare_case(engine, models, tally, method, c)
        if comparison.compare_case(engine, models, tally, method, c):
            return None
        if said:
            return i, said[0]
    return None


def check(comparison, engine, models):
    passed = failed = 0
    for method, name, patch in faults(comparison):
        seen = noticed(comparison, engine, models, method, patch)
        passed, failed = passed + bool(seen), failed + (not seen)
        print(f"{'ok  ' if seen else 'FAIL'} {method}, {name}: " +
              (f"noticed in case {seen[0]}: {seen[1][:100]}" if seen else "not noticed"))
    return passed, failed
