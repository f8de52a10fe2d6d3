"""Chooses the entries that stay, given scores. Everywhere the larger score stays. Among equal
scores, it is the larger position, then the lower layer, then the lower head. NaN counts as minus
infinity.

scores and positions are lists of equal length (one head), or nested [layer][head][]. Kept positions
are returned in ascending order in the same shape.
"""
import math


def number(score):
    return -math.inf if score is None or score != score else float(score)


def keep_best(scores, positions, count):
    """Returns the `count` best entries of one head."""
    order = sorted(zip(scores, positions), key=lambda x: (-number(x[0]), -x[1]))
    return sorted(int(j) for _, j in order[:max(0, count)])


def keep_best_of_all(scores, positions, count):
    """Returns the `count` best entries of all layers and heads together."""
    every = [(-number(s), -j, l, h) for l, layer in enumerate(scores) for h, head in enumerate(layer)
             for s, j in zip(head, positions[l][h])]
    out = [[[] for _ in layer] for layer in scores]
    for _, j, l, h in sorted(every)[:max(0, count)]:
        out[l][h].append(-int(j))
    return [[sorted(head) for head in layer] for layer in out]


def keep_best_with_least(scores, positions, count, least):
    """Every head keeps its `least` best entries; the remaining places go to the best of the rest,
    over all heads."""
    sure = [[keep_best(s, j, least) for s, j in zip(*part)] for part in zip(scores, positions)]
    left = [[[(s, j) for s, j in zip(*head) if j not in held] for *head, held in zip(*part)]
            for part in zip(scores, positions, sure)]
    used = sum(len(head) for layer in sure for head in layer)
    more = keep_best_of_all([[[s for s, _ in head] for head in layer] for layer in left],
                            [[[j for _, j in head] for head in layer] for layer in left], count - used)
    return [[sorted(a + b) for a, b in zip(*part)] for part in zip(sure, more)]


def keep_best_counted(scores, positions, count, least, miscounted=False):
    """As published: each head has `least` places more than its number of entries among the `count`
    - `least` * heads best of all. A head with few entries leaves places unused. `miscounted`: the
    oldest entry of a head, if among those best, counts for the previous head (for itself in the
    first head)."""
    heads = sum(len(layer) for layer in scores)
    best = keep_best_of_all(scores, positions, count - least * heads)
    counts = [[len(head) for head in layer] for layer in best]
    places = [(l, h) for l, layer in enumerate(scores) for h in range(len(layer))]
    for (l0, h0), (l, h) in zip(places, places[1:]):
        if miscounted and positions[l][h] and positions[l][h][0] in best[l][h]:
            counts[l0][h0] += 1
            counts[l][h] -= 1
    return [[keep_best(scores[l][h], positions[l][h], counts[l][h] + least) for h in range(len(layer))]
            for l, layer in enumerate(scores)]


def drop_worst(scores, positions, count):
    """Returns the entries of one head without the `count` worst."""
    return keep_best(scores, positions, len(positions) - count)
