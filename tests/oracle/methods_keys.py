"""Scores from keys and positions, and the two that combine keys with attention, by brute force from
docs/reference/methods.md.

The arguments are those in methods_window.py.
"""
import os
import sys

import numpy as np

import methods_window

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from draws import hashed  # noqa: E402

SIMILAR = 0.5


def position(run, p, layer, head, alive, C):
    return np.array(C, float)


def unit_keys(run, layer, head, entries):
    """A key of length 0 has no direction and becomes 0."""
    k = run.keys[layer, head, entries]
    size = np.sqrt((k * k).sum(axis=1, keepdims=True))
    return np.divide(k, size, out=np.zeros_like(k), where=size > 0)


def keydiff(run, p, layer, head, alive, C):
    anchor = unit_keys(run, layer, head, alive).mean(axis=0)
    return -(unit_keys(run, layer, head, C) * anchor).sum(axis=1) / np.sqrt(anchor @ anchor)  # equal keys, equal score


def knorm(run, p, layer, head, alive, C):
    k = run.keys[layer, head, C]
    return -np.sqrt((k * k).sum(axis=1))


def random_hash(run, p, layer, head, alive, C):
    return np.array([(hashed(p["seed"], layer, head, int(j)) >> 40) / 2**24 for j in C])


def cosines(run, layer, head, alive):
    u = unit_keys(run, layer, head, alive)
    c = u @ u.T
    np.fill_diagonal(c, 0)
    return c


def forgiven(row):
    """Returns the newest entry similar to this one, or None."""
    similar = np.flatnonzero(row > SIMILAR)
    return similar[-1] if len(similar) else None


def mean_cosine(c, otherwise=None):
    """Returns the mean of each column, without the ignored entries. otherwise: the entry that a row
    without a similar one ignores."""
    c = c.copy()
    for row in c:
        j = forgiven(row)
        j = otherwise if j is None else j
        if j is not None:
            row[j] = 0
    return c.sum(axis=0) / len(c)


def softmax(r):
    e = np.exp(r - r.max())
    return e / e.sum()


def in_slots(run, p, layer, head, entries):
    """Returns the entries in slot order. With slots=score this is the order after the last
    eviction, followed by newer entries; else the order of time."""
    past = run.slots.get((layer, head), []) if p["slots"] == "score" else []
    return [j for j in past if j in entries] + [j for j in entries if j not in past]


def redundancy(run, layer, head, alive, C, otherwise=None):
    """Returns the softmax over all entries of the head, in slot order, restricted to C."""
    r = softmax(mean_cosine(cosines(run, layer, head, alive), otherwise))
    return r[[alive.index(j) for j in C]]


def rkv(run, p, layer, head, alive, C):
    places = in_slots(run, p, layer, head, C)
    i = dict(zip(places, methods_window.importance(run, p, layer, head, places)))
    R = redundancy(run, layer, head, in_slots(run, p, layer, head, alive), C, 0 if p["slots"] == "score" else None)
    return p["lambda"] * np.array([i[j] for j in C]) - (1 - p["lambda"]) * R


def gkv(run, p, layer, head, alive, C):
    f = methods_window.snapkv_global(run, p, layer, head, alive, C)
    r = redundancy(run, layer, head, alive, C)
    return p["lambda"] * f - (1 - p["lambda"]) * methods_window.normalised(r, r.max())
