"""How a budget is dealt out over layers and heads, from docs/reference/methods.md."""
from fractions import Fraction
from math import floor

import numpy as np

import methods_window


def whole(parts, total):
    """whole numbers from below, the rest to the largest remainders (the lower layer first among equals); and how far
    the last remainder that was rounded up is from the next"""
    out = [floor(x) for x in parts]
    rest = [x - n for x, n in zip(parts, out)]
    order = sorted(range(len(parts)), key=lambda l: (-rest[l], l))
    up = total - sum(out)
    for l in order[:up]:
        out[l] += 1
    gap = rest[order[up - 1]] - rest[order[up]] if 0 < up < len(parts) else np.inf
    return out, float(gap)


def pyramid(layers, u, beta):
    """places beside the protected ones for each layer, exactly"""
    m = Fraction(u) / Fraction(beta)
    top = 2 * u - m
    parts = [top - (top - m) * l / (layers - 1) if layers > 1 else Fraction(u) for l in range(layers)]
    return whole(parts, layers * u)[0]


def preference(run, p, layer, candidates):
    """E and V of cake: candidates[head] lists the entries that may be cut"""
    entropy = spread = 0.0
    for head in range(run.m.kv_heads):
        a = methods_window.window_rows(run, p, layer, methods_window.query_heads(run, head), candidates[head])
        entropy -= (a * np.log(a + 1e-10)).sum()
        spread += methods_window.variance(a).sum()
    return entropy, spread


def cake(run, p, u, candidates):
    """places for each layer, and the gap of whole()"""
    weight = [np.prod(preference(run, p, l, candidates[l])) for l in range(run.m.layers)]
    places = run.m.layers * u
    if sum(weight) <= 0:
        return [u] * run.m.layers, np.inf
    share = [places * x / sum(weight) for x in weight]
    out, gap = whole(share, places)
    return out, gap / max(1, places)


def dealt_out(scores, least, places, older=False):
    """Which entries stay: scores[head] = {entry: score}, heads by layer, then by head; every head keeps its `least`
    best, the best of what remains take the other places.  Of equal ones the larger (older: smaller) position stays,
    then the earlier head.  Returns (kept by the floor, kept by the rest), sets of (head, entry)."""
    sign = -1 if older else 1
    safe = set()
    for h, score in enumerate(scores):
        best = sorted(score, key=lambda j: (score[j], sign * j), reverse=True)
        safe |= {(h, j) for j in best[:least]}
    others = [(h, j) for h, score in enumerate(scores) for j in score if (h, j) not in safe]
    others.sort(key=lambda e: (scores[e[0]][e[1]], sign * e[1], -e[0]), reverse=True)
    return safe, set(others[: max(0, places - len(safe))])


def rounds(worst_first, fraction, too_many):
    """What stays of each head's candidates, worst first: in every round each head drops a fraction of those it has
    left, at least one, until `too_many` are gone or none is left."""
    left = [list(x) for x in worst_first]
    while too_many > 0 and any(left):
        for i, x in enumerate(left):
            drop = max(1, floor(fraction * len(x) + 1e-9)) if x else 0
            left[i], too_many = x[drop:], too_many - drop
    return left
