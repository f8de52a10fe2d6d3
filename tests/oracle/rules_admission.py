"""WG-KV: a gate decides at the append which entries stay after the local window.

Sources: the paper's Eq. of m_ij and M_ij (sections 3.2 and 4.1), lazy promotion (4.2), App. K. An
argument selects the form of the published code if it differs.
"""
import math

import numpy as np

from rules_choice import drop_worst


def rms_norm(x, weight, eps=1e-6):
    x = np.asarray(x, float)
    return np.asarray(weight, float) * x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def gelu(x):
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def silu(x):
    return x / (1 + np.exp(-x))


def gate(pre, post, norms, inner, outer, act=gelu, least=0.0):
    """Returns [H, n] in (0, 1). pre and post [H, n, d]: keys before and after rotation; norms: two
    weights [d]; inner: weight [H, J, 2 d], bias [H, J]; outer: weight [H, J], bias [H]. In
    training, the published code has a floor of 1e-3."""
    x = np.concatenate([rms_norm(pre, norms[0]), rms_norm(post, norms[1])], -1)
    hidden = act(np.einsum("hni,hji->hnj", x, np.asarray(inner[0], float)) + np.asarray(inner[1])[:, None])
    z = np.einsum("hnj,hj->hn", hidden, np.asarray(outer[0], float)) + np.asarray(outer[1])[:, None]
    return np.maximum(1 / (1 + np.exp(-z)), least)


def admitted(g, tau, strict=False):
    """Paper: g >= tau; `strict`, as published: g > tau."""
    return np.asarray(g) > tau if strict else np.asarray(g) >= tau


def bias(g, i, j, window):
    """Returns the term that training adds to the score of query i on key j: log m_ij."""
    return 0.0 if i - j < window else math.log(g[j])


def visible(i, admits, window):
    """Returns the entries that query i reads, in prefill and while decoding: the last `window`
    entries including its own, and earlier admitted ones. admits [n]: booleans of one head."""
    return [j for j in range(i + 1) if i - j < window or admits[j]]


def visible_in_blocks(i, admits, window, rows=64):
    """As in the published prefill: the window of a query is that of the first query of its block of
    `rows`."""
    return visible_from(i, admits, max(0, i // rows * rows - window + 1))


def visible_from(i, admits, first):
    return [j for j in range(i + 1) if j >= first or admits[j]]


def promoted(i, admits, window):
    """Returns the global tier at query i, in order of append."""
    return [j for j in range(max(0, i - window + 1)) if admits[j]]


def observed_scores(queries, keys, kernel, total=False):
    """Returns [m]. queries [group, w, d] of the last w steps, keys [m, d] of only the tier. Softmax
    over the tier, maximum over the group, mean (the paper: sum) over the queries, maximum over
    `kernel` neighbours."""
    z = np.asarray(queries, float) @ np.asarray(keys, float).T / math.sqrt(np.shape(keys)[-1])
    a = np.exp(z - z.max(-1, keepdims=True))
    a = (a / a.sum(-1, keepdims=True)).max(0)
    s = a.sum(0) if total else a.mean(0)
    half = kernel // 2
    return np.array([s[max(0, j - half):j + half + 1].max() for j in range(len(s))])


def evicted_tier(scores, positions, ratio):
    """Evicts the integer part of `ratio` of a head's tier."""
    return drop_worst(scores, positions, int(len(positions) * ratio))


def page_reads(queries, keys, positions, page, budget, local):
    """Returns the positions of the tier that are read. queries [group, d], keys [m, d] and
    positions [m] are in the tier's order. `budget` includes the `local` entries. The last page, if
    not full, is read whenever any page is read."""
    room = -(-max(0, budget - local) // page)
    count = -(-len(positions) // page)
    room = min(room, count)
    if not room:
        return []
    partial = len(positions) % page > 0
    full = len(positions) // page
    best = [page_bound(queries, keys[b * page:(b + 1) * page]) for b in range(full)]
    take = sorted(range(full), key=lambda b: (-best[b], -b))[:room - partial]
    take += [full] if partial else []
    return sorted(int(j) for b in take for j in positions[b * page:(b + 1) * page])


def page_bound(queries, keys):
    q = np.asarray(queries, float)[:, None]
    k = np.asarray(keys, float)
    return np.maximum(q * k.min(0), q * k.max(0)).sum(-1).max()
