"""Bounds the error of scores in f32, and decides when two scores may be exchanged.

Weights, activations and cache are f32 with --exact, so a logit of magnitude 10..30 has an error of
about 1e-6 to 1e-5. An attention weight, or a sum, mean or maximum of weights, has a relative error
of that magnitude. Unit keys have an error of a few 2^-24 times the relative error of the key. A
cosine is at most 1; its error is absolute.
"""
import numpy as np

import gates
import methods_gates
import methods_keys
import methods_window
from rows import part_of

WEIGHT = 3e-5  # relative
COSINE = 3e-6
LENGTH = 5e-6  # relative
ORDER = 1e-6  # of weights with sums in another order, relative
MOMENTS = 2e-5  # of an expected logit, relative
UNIT = 2.0**-44  # weights of a window are added as integers
SHARE = 1e-4  # of a layer's fraction of all places


def received(run, p, layer, head, alive, C, score):
    return WEIGHT * np.abs(score) + UNIT


def knorm(run, p, layer, head, alive, C, score):
    return LENGTH * np.abs(score)


def none(run, p, layer, head, alive, C, score):
    return np.zeros(len(C))


def keydiff(run, p, layer, head, alive, C, score):
    return np.full(len(C), COSINE)


def scissorhands(run, p, layer, head, alive, C, score):
    """Counts comparisons that may go either way. The first query sees only itself, with weight 1 in
    any arithmetic."""
    args = run, p, layer, head, alive, C
    more = methods_window.below_even(*args, 1 + WEIGHT) - methods_window.below_even(*args, 1 - WEIGHT)
    return more - np.array([j == 0 and 0 in methods_window.window(run, p) for j in C])


def cake(run, p, layer, head, alive, C, score):
    a = methods_window.window_rows(run, p, layer, methods_window.query_heads(run, head), C)
    spread = 2 * (a * np.abs(a - a.mean(axis=0))).sum(axis=0) / max(1, len(a) - 1)
    error = WEIGHT * (a.mean(axis=0) + p["gamma"] * spread)
    return methods_window.reduced(p["group"], np.array([methods_window.pooled(p, e) for e in error]))


def redundancy(run, layer, head, alive, C, otherwise=None):
    """Includes similarities so close to the threshold that another entry may be the ignored one."""
    c = methods_keys.cosines(run, layer, head, alive)
    r = methods_keys.mean_cosine(c, otherwise)
    error = np.full(len(c), COSINE)
    for i, row in enumerate(c):
        ways = {methods_keys.forgiven(row), methods_keys.forgiven(row - COSINE), methods_keys.forgiven(row + COSINE)}
        ways = {otherwise if j is None else j for j in ways}
        for j in ways - {None} if len(ways) > 1 else ():
            error[j] += abs(c[i, j]) / len(c)
    R = methods_keys.softmax(r)
    # A change of the sum changes all others.
    out = R * np.expm1(error) + R * (R * np.expm1(error)).sum()
    return out[[alive.index(j) for j in C]]


def rkv(run, p, layer, head, alive, C, score):
    places = methods_keys.in_slots(run, p, layer, head, C)
    i = dict(zip(places, methods_window.importance(run, p, layer, head, places)))
    error = redundancy(run, layer, head, methods_keys.in_slots(run, p, layer, head, alive), C, 0 if p["slots"] == "score" else None)
    return p["lambda"] * WEIGHT * np.array([i[j] for j in C]) + (1 - p["lambda"]) * error


def gkv(run, p, layer, head, alive, C, score):
    f = methods_window.snapkv_global(run, p, layer, head, alive, C)
    R = methods_keys.redundancy(run, layer, head, alive, C)
    error = redundancy(run, layer, head, alive, C)
    return p["lambda"] * 2 * WEIGHT * f + (1 - p["lambda"]) * (error + R * error.max() / R.max()) / R.max()


def snapkv_global(run, p, layer, head, alive, C, score):
    """A quotient; the stored score has an error of the same size."""
    return 2 * WEIGHT * score


def retention(run, p, layer, head, alive, C, score):
    """A product of two short numbers is exact in f32 too; a logarithm may differ by one step."""
    rounding = 2.0**-23 * np.abs(score) * (p["lookahead"] > 1)
    if run.gates.exact:
        return rounding
    log_beta = np.abs(methods_gates.values(run, layer, head, C))
    return rounding + gates.ERROR * log_beta * (np.abs(methods_gates.exponent(run, p, C)) + p["lookahead"])


def given_by_network(run, layer, head, score):
    """An importance is a sum without a bound. Its error near 0 is as large as elsewhere in its
    head."""
    every = methods_gates.values(run, layer, head, range(run.t)) if run.gates.kind == "importance" and run.t else np.zeros(1)
    return gates.ERROR * np.maximum(np.abs(score), np.abs(every).max())


def given(run, p, layer, head, alive, C, score):
    return np.zeros(len(C)) if run.gates.exact else given_by_network(run, layer, head, score)


def remaining_mass(run, p, layer, head, alive, C, score):
    """The mass received so far is subtracted from a total, which a plan stores in f32. The plan's
    run added weights in another order if entries left a sliding window of the model."""
    total = run.twin.rows[layer][list(methods_window.query_heads(run, head))].sum(axis=(0, 1))[C]
    return WEIGHT * score + ORDER * total


def expected_attention(run, p, layer, head, alive, C, score):
    """From the magnitudes of the terms of each logit."""
    if run.t <= p["sinks"]:
        return np.zeros(len(C))
    worst = np.zeros(len(C))
    for g in methods_window.query_heads(run, head):
        z = methods_gates.expected_logits(run, p, layer, g, run.keys[layer, head, C])
        worst = np.maximum(worst, np.abs(z))
    return np.abs(score) * (WEIGHT + MOMENTS * worst)


# Score parts whose equal values may differ by rounding; of these, the parts that depend only on
# lengths, which are equal for equal tokens in layer 0.
UNEQUAL = "below-even", "key-norm", "remaining-mass", "keydiff", "importance"
LENGTHS = "key-norm",
# As SCORES of methods.py; other scores have the error of sums of weights, received().
ERRORS = {"position": none, "retention": retention, "write-gate": given, "importance": given,
          "key-norm": knorm, "keydiff": keydiff, "random": none, "below-even": scissorhands,
          "variance-attention": cake, "redundancy": rkv, "gkv": gkv,
          "global-attention": snapkv_global, "expected-attention": expected_attention,
          "remaining-mass": remaining_mass}


def of(name, *args):
    """Returns a bound of the error of each score."""
    return (ERRORS.get(name) or ERRORS.get(part_of(name), received))(*args)


def exchangeable(name, p, cut, error_cut, kept, error_kept):
    """Returns True if f32 may exchange an evicted entry with a kept one. Equal scores do not count:
    they are the same maximum, pooled from neighbours, and the larger position stays. But equal
    counts may each be off by one, and equal lengths and means of all weights of a row are equal
    only before rounding."""
    if not cut or not kept:
        return False
    unequal = part_of(name) in UNEQUAL or p.get("pool", 1) > 1 and p.get("pool-kind") == "avg"
    gap = np.array(list(kept.values()))[:, None] - np.array(list(cut.values()))
    both = np.array([error_kept[j] for j in kept])[:, None] + np.array([error_cut[j] for j in cut])
    return bool(((gap <= both) & ((gap != 0) | unequal & (both > 0))).any())
