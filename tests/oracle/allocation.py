"""Distributes a budget over layers and heads, as defined in docs/reference/methods.md."""
from fractions import Fraction
from math import floor

import numpy as np

import methods_window


def whole(parts, total):
    """Rounds parts down and gives the rest to the largest remainders (the lower layer first among
    equals). Returns the integers, and the difference between the last remainder that was rounded up
    and the next one."""
    out = [floor(x) for x in parts]
    rest = [x - n for x, n in zip(parts, out)]
    order = sorted(range(len(parts)), key=lambda l: (-rest[l], l))
    up = total - sum(out)
    for l in order[:up]:
        out[l] += 1
    gap = rest[order[up - 1]] - rest[order[up]] if 0 < up < len(parts) else np.inf
    return out, float(gap)


def pyramid_parts(layers, places, beta, most=None):
    """Returns exact parts on a straight line with a first part of at most `most`. The line has the
    same mean."""
    u = Fraction(places, layers)
    top = 2 * u - u / Fraction(beta)
    top = top if most is None else min(top, most)
    return [top - 2 * (top - u) * l / (layers - 1) if layers > 1 else u for l in range(layers)]


def pyramid(layers, u, beta):
    """Returns the exact number of unprotected entries for each layer, if all of them can be
    filled."""
    return whole(pyramid_parts(layers, layers * u, beta), layers * u)[0]


def filled(parts, rooms, places):
    """Returns min(room, part + x) for each layer, with the x for which they sum to `places`. The
    sum is piecewise linear in x, with a corner where a layer is full."""
    parts = [Fraction(x) for x in parts]
    at = lambda x: [min(room, part + x) for room, part in zip(rooms, parts)]
    corners = sorted(room - part for room, part in zip(rooms, parts))
    if corners[0] >= 0:
        return parts
    below = max(c for c in corners if sum(at(c)) <= places)
    growing = sum(part + below < room for room, part in zip(rooms, parts))
    return at(below + (places - sum(at(below))) / growing if growing else below)


def preference(run, p, layer, candidates):
    """Returns E and V of cake. candidates[head] lists the entries that may be evicted."""
    entropy = spread = 0.0
    for head in range(run.m.kv_heads):
        a = methods_window.window_rows(run, p, layer, methods_window.query_heads(run, head), candidates[head])
        entropy -= (a * np.log(a + 1e-10)).sum()
        spread += methods_window.variance(a).sum()
    return entropy, spread


def cake_weights(run, p, candidates):
    return [np.prod(preference(run, p, l, candidates[l])) for l in range(run.m.layers)]


def cake_parts(weight, places):
    return [places * x / sum(weight) if sum(weight) > 0 else Fraction(places, len(weight)) for x in weight]


def dealt_out(scores, least, places, older=False):
    """Chooses the entries that stay. scores[head] = {entry: score}, heads ordered by layer, then by
    head. Every head keeps its `least` best entries; the best of the rest fill the remaining places.
    Among equal scores the larger (older: smaller) position stays, then the earlier head. Returns
    (kept by the floor, kept by the rest), sets of (head, entry)."""
    sign = -1 if older else 1
    safe = set()
    for h, score in enumerate(scores):
        best = sorted(score, key=lambda j: (score[j], sign * j), reverse=True)
        safe |= {(h, j) for j in best[:least]}
    others = [(h, j) for h, score in enumerate(scores) for j in score if (h, j) not in safe]
    others.sort(key=lambda e: (scores[e[0]][e[1]], sign * e[1], -e[0]), reverse=True)
    return safe, set(others[: max(0, places - len(safe))])


def rounds(worst_first, fraction, too_many):
    """Returns the remaining candidates of each head, worst first. In every round each head evicts a
    fraction of its remaining candidates, at least one, until `too_many` are evicted or no candidate
    remains."""
    left = [list(x) for x in worst_first]
    while too_many > 0 and any(left):
        for i, x in enumerate(left):
            drop = max(1, floor(fraction * len(x) + 1e-9)) if x else 0
            left[i], too_many = x[drop:], too_many - drop
    return left
