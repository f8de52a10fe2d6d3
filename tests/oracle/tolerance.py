"""What f32 may do to a score, and when two scores may change places.

Weights, activations and cache are f32 with --exact, so a logit of size 10..30 is off by some 1e-6 to 1e-5, and so
is, relatively, an attention weight, and a sum, mean or maximum of such.  Unit keys are off by a few 2^-24 times
the relative error of the key; a cosine is at most 1, its error absolute.
"""
import numpy as np

import gates
import methods_gates
import methods_keys
import methods_window

WEIGHT = 3e-5  # relative
COSINE = 3e-6
LENGTH = 5e-6  # relative
ORDER = 1e-6  # of weights whose sums are added up in another order, relative
MOMENTS = 2e-5  # of an expected logit, relative
UNIT = 2.0**-44  # weights of a window are added in whole units
SHARE = 1e-4  # of a layer's part in all places


def received(run, p, layer, head, alive, C, score):
    return WEIGHT * np.abs(score) + UNIT


def knorm(run, p, layer, head, alive, C, score):
    return LENGTH * np.abs(score)


def none(run, p, layer, head, alive, C, score):
    return np.zeros(len(C))


def keydiff(run, p, layer, head, alive, C, score):
    return np.full(len(C), COSINE)


def scissorhands(run, p, layer, head, alive, C, score):
    """comparisons that may go either way; the first query sees itself alone, with weight 1 in any arithmetic"""
    args = run, p, layer, head, alive, C
    more = methods_window.below_even(*args, 1 + WEIGHT) - methods_window.below_even(*args, 1 - WEIGHT)
    return more - np.array([j == 0 and 0 in methods_window.window(run, p) for j in C])


def cake(run, p, layer, head, alive, C, score):
    a = methods_window.window_rows(run, p, layer, methods_window.query_heads(run, head), C)
    spread = 2 * (a * np.abs(a - a.mean(axis=0))).sum(axis=0) / max(1, len(a) - 1)
    error = WEIGHT * (a.mean(axis=0) + p["gamma"] * spread)
    return methods_window.reduced(p["group"], np.array([methods_window.pooled(p, e) for e in error]))


def redundancy(run, layer, head, alive, C, otherwise=None):
    """also from similarities so near the threshold that another entry may be the one forgiven"""
    c = methods_keys.cosines(run, layer, head, alive)
    r = methods_keys.mean_cosine(c, otherwise)
    error = np.full(len(c), COSINE)
    for i, row in enumerate(c):
        ways = {methods_keys.forgiven(row), methods_keys.forgiven(row - COSINE), methods_keys.forgiven(row + COSINE)}
        ways = {otherwise if j is None else j for j in ways}
        for j in ways - {None} if len(ways) > 1 else ():
            error[j] += abs(c[i, j]) / len(c)
    R = methods_keys.softmax(r)
    # a change of the sum moves all others
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
    """a quotient, and what is remembered is off by as much"""
    return 2 * WEIGHT * score


def retention(run, p, layer, head, alive, C, score):
    """a product of two short numbers is exact, and so is what f32 makes of it; a logarithm may be one step off"""
    rounding = 2.0**-23 * np.abs(score) * (p["lookahead"] > 1)
    if run.gates.exact:
        return rounding
    log_beta = np.abs(methods_gates.values(run, layer, head, C))
    return rounding + gates.ERROR * log_beta * (np.abs(methods_gates.exponent(run, p, C)) + p["lookahead"])


def given_by_network(run, layer, head, score):
    """an importance is a sum without a bound, which is as wrong where it comes near 0 as elsewhere in its head"""
    every = methods_gates.values(run, layer, head, range(run.t)) if run.gates.kind == "importance" and run.t else np.zeros(1)
    return gates.ERROR * np.maximum(np.abs(score), np.abs(every).max())


def given(run, p, layer, head, alive, C, score):
    return np.zeros(len(C)) if run.gates.exact else given_by_network(run, layer, head, score)


def remaining_mass(run, p, layer, head, alive, C, score):
    """what was received so far, taken from a total that a plan holds in f32, and whose run added up weights in another order
    where the window of a model had let entries leave"""
    total = run.twin.rows[layer][list(methods_window.query_heads(run, head))].sum(axis=(0, 1))[C]
    return WEIGHT * score + ORDER * total


def expected_attention(run, p, layer, head, alive, C, score):
    """from the sizes of what is added up for each logit"""
    if run.t <= p["sinks"]:
        return np.zeros(len(C))
    worst = np.zeros(len(C))
    for g in methods_window.query_heads(run, head):
        z = methods_gates.expected_logits(run, p, layer, g, run.keys[layer, head, C])
        worst = np.maximum(worst, np.abs(z))
    return np.abs(score) * (WEIGHT + MOMENTS * worst)


UNEQUAL = "scissorhands", "below-even", "knorm", "key-norm", "mass-greedy", "keydiff", "locret", "importance"  # equal scores may differ by rounding
ERRORS = {"window": none, "trimkv": retention, "dbtrimkv": retention, "retention": retention, "wgkv": given,
          "locret": given, "write-gate": given, "importance": given, "position": none, "key-norm": knorm,
          "expected-attention": expected_attention, "mass-greedy": remaining_mass, "below-even": scissorhands,
          "random": none, "keydiff": keydiff, "knorm": knorm, "scissorhands": scissorhands, "cake": cake, "rkv": rkv,
          "gkv": gkv, "snapkv-global": snapkv_global}


def of(name, *args):
    """a bound of the error of each score"""
    return ERRORS.get(name, received)(*args)


def exchangeable(name, p, cut, error_cut, kept, error_kept):
    """Whether f32 may exchange an entry cut for one kept.  Equal scores are no such case: they are the same maximum,
    seen by neighbours, and the larger position stays; but counts that are equal may each be off by one, and lengths
    that are equal are so before rounding, as are means of all weights of a row."""
    if not cut or not kept:
        return False
    unequal = name in UNEQUAL or p.get("pool", 1) > 1 and p.get("pool-kind") == "avg"
    gap = np.array(list(kept.values()))[:, None] - np.array(list(cut.values()))
    both = np.array([error_kept[j] for j in kept])[:, None] + np.array([error_cut[j] for j in cut])
    return bool(((gap <= both) & ((gap != 0) | unequal & (both > 0))).any())
