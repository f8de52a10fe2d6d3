"""Proves that the comparison can fail: each fault planted in the oracle must be noticed."""
import random
from unittest import mock

import numpy as np

import comparison
import golden
import methods
import methods_keys
import methods_window
from planted_gates import gate_faults
from planted_shared import golden_faults, shared_faults
from tiny_llama import Session

MOST_CASES = 60  # faults that only show at the edge of pooling or in a tie need many cases

decide, pooled, window_attention = methods.decide, methods_window.pooled, methods_window.window_attention


def changed(fn, **change):
    """Wraps fn(..., p, ...) and changes some numbers of the method."""
    def planted(*a):
        at = next(i for i, x in enumerate(a) if isinstance(x, dict) and "window" in x)  # the numbers
        p = a[at]
        return fn(*a[:at], p | {k: f(p[k]) for k, f in change.items()}, *a[at + 1 :])
    return planted


def less(n):
    return max(0, n - 1)


def newcomer_not_counted(name, p, run, layer, head, newest, share):
    if newest < run.t:
        return decide(name, p, run, layer, head, newest, share)
    return decide(name, p, run, layer, head, newest - 1, share - 1)


def budget_too_large(name, p, run, layer, head, newest, share):
    return decide(name, p, run, layer, head, newest, share + 1)


def one_cut_after_the_prompt(name, p, run, layer, head, newest, share):
    """Evicts directly to B - 1, as if the new entry were present."""
    return decide(name, p, run, layer, head, newest, share - 1 if newest < run.t else share)


def smaller_stays(items, key=None):
    """Reverses the tie rule; reports its scores as before."""
    return sorted(items, key=key and (lambda j: (key(j)[0], -j)))


def divides_by_neighbours(p, score):
    half, n = p["pool"] // 2, len(score)
    near = np.array([min(n, i + half + 1) - max(0, i - half) for i in range(n)])
    return pooled(p, score) * (p["pool"] / near if p["pool-kind"] == "avg" else 1)


def group_before_sum(run, p, layer, head, alive, C):
    rows = run.rows[layer][list(methods_window.query_heads(run, head))]
    return pooled(p, methods_window.reduced(p["group"], rows).sum(axis=0)[C])


def survivors_only(run, p, layer, head, alive, C):
    """Ignores the attention that a query gave to entries that are now evicted."""
    rows = run.rows[layer][list(methods_window.query_heads(run, head))][:, : run.t, alive]
    rows = rows / np.maximum(rows.sum(axis=2, keepdims=True), 1e-300)
    rows = rows[:, :, [alive.index(j) for j in C]]
    return pooled(p, methods_window.reduced(p["group"], rows.sum(axis=1)))


def tova_per_head(run, p, layer, head, alive, C):
    return window_attention(run, p, layer, methods_window.query_heads(run, head), C)


def angles(keys, anchor):
    return -(keys @ anchor) / np.linalg.norm(keys, axis=1) / np.linalg.norm(anchor)


def mean_of_raw_keys(run, p, layer, head, alive, C):
    k = run.keys[layer, head]
    return angles(k[C], k[alive].mean(axis=0))


def mean_of_all_keys(run, p, layer, head, alive, C):
    k = run.keys[layer, head, : run.t]
    return angles(k[C], (k / np.linalg.norm(k, axis=1, keepdims=True)).mean(axis=0))


def layer_for_head(run, p, layer, head, alive, C):
    return methods_keys.random_hash(run, p, head, layer, alive, C)


def sum_of_sizes(run, p, layer, head, alive, C):
    return -np.abs(run.keys[layer, head, C]).sum(axis=1)


def unborn_counted(run, p, layer, head, alive, C):
    """A query before an entry's append gave it 0, less than any uniform share."""
    early = np.array([len([t for t in methods_window.window(run, p) if t < j]) for j in C])
    return methods_window.scissorhands(run, p, layer, head, alive, C) - early


def even_share_of_all(run, p, layer, head, alive, C):
    """The uniform share also counts entries that were already evicted."""
    return -methods_window.below_even(run, p, layer, head, alive, C, run.seen[layer, head].max() / run.t)


class Haunted(Session):
    """Evicted entries are not listed, but attention still reads them."""

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


def replaced(what, fn, module=methods):
    return mock.patch.object(module, what, fn, create=True)


def faults():
    """Returns (method, name, patch)."""
    longer = changed(window_attention, window=lambda w: w + 1)
    shorter = changed(window_attention, window=lambda w: max(1, w - 1))
    return [
        ("snapkv", "window one query too long", replaced("window_attention", longer, methods_window)),
        ("snapkv", "window one query too short", replaced("window_attention", shorter, methods_window)),
        ("tova", "two queries for one", replaced("window_attention", longer, methods_window)),
        ("snapkv", "recent one too short", replaced("decide", changed(decide, recent=less))),
        ("h2o", "newcomer outside recent", replaced("decide", newcomer_not_counted)),
        ("window", "newcomer outside recent", replaced("decide", newcomer_not_counted)),
        ("window", "one sink less", replaced("decide", changed(decide, sinks=less))),
        ("random", "budget one too large", replaced("decide", budget_too_large)),
        ("keydiff", "one cut for two after the prompt", replaced("decide", one_cut_after_the_prompt)),
        ("snapkv", "pool two too narrow",
         replaced("pooled", changed(pooled, pool=lambda n: max(1, n - 2)), methods_window)),
        ("snapkv", "average over neighbours present", replaced("pooled", divides_by_neighbours, methods_window)),
        ("snapkv", "smaller position stays in a tie", replaced("sorted", smaller_stays)),
        ("h2o", "group reduced before the sum", scored_by("h2o", group_before_sum)),
        ("h2o", "rows renormalised to survivors", scored_by("h2o", survivors_only)),
        ("tova", "one set per head", scored_by("tova", tova_per_head)),
        ("keydiff", "mean of raw keys", scored_by("keydiff", mean_of_raw_keys)),
        ("keydiff", "mean of evicted keys too", scored_by("keydiff", mean_of_all_keys)),
        ("random", "layer and head change places", scored_by("random", layer_for_head)),
        ("window", "evicted entries still read", mock.patch.object(comparison, "Session", Haunted)),
        ("knorm", "sum of sizes for length", scored_by("knorm", sum_of_sizes)),
        ("scissorhands", "queries before birth counted", scored_by("scissorhands", unborn_counted)),
        ("scissorhands", "even share of evicted entries too", scored_by("scissorhands", even_share_of_all)),
        ("scissorhands", "one cut for half of the cache", replaced("decide", changed(decide, every=lambda s: 1))),
        *shared_faults(),
    ]


def noticed(checker, engine, models, method, patch, given):
    """Returns (number of cases until the comparison fails, its message), or None. Without the fault
    each of these cases must pass."""
    rng, tally = random.Random("planted"), comparison.Tally()
    for i in range(1, MOST_CASES + 1):
        name, c = checker.draw_case(rng, method, long=False, shared=False)
        c["given"] |= given
        recorded = checker.record_case(engine, models, name, c)
        with patch:
            said = checker.compare_recorded(tally, name, c, *recorded)
        if checker.compare_recorded(tally, name, c, *recorded):
            return None
        if said:
            return i, said[0]
    return None


def check(checker, engine, models, part):
    """planted: attention rows and keys; planted-gates: the other scores, and the options of all
    methods."""
    passed = failed = 0
    for name, patch in golden_faults() if part == "planted" else []:
        with patch:
            said = golden.check_methods().wrong
        passed, failed = passed + bool(said), failed + (not said)
        print(f"{'ok  ' if said else 'FAIL'} published decisions, {name}: {said[:1]}")
    for method, name, patch, *given in faults() if part == "planted" else gate_faults():
        seen = noticed(checker, engine, models, method, patch, *given or [{}])
        passed, failed = passed + bool(seen), failed + (not seen)
        print(f"{'ok  ' if seen else 'FAIL'} {method}, {name}: " +
              (f"noticed in case {seen[0]}: {seen[1][:100]}" if seen else "not noticed"))
    return passed, failed
