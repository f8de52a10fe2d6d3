"""Methods that read a subset and evict no entry: Quest (Tang et al. 2024) and SeerAttention-R (Gao
et al. 2025)."""
import math

import numpy as np


# ---- Quest

def page_bounds(q, keys, page):
    """Returns [pages]: upper bounds of q . k within each page. q [d], keys [n, d] as stored."""
    q, keys = np.asarray(q, float), np.asarray(keys, float)
    parts = [keys[b:b + page] for b in range(0, len(keys), page)]
    return np.array([np.maximum(q * k.min(0), q * k.max(0)).sum() for k in parts])


def best_pages(bounds, places):
    """Returns the pages with the largest bounds; among equal bounds the later page."""
    order = sorted(range(len(bounds)), key=lambda b: (-bounds[b], -b))
    return sorted(order[:places])


def quest_reads(q, keys, page, budget, least=3):
    """Returns positions that the query reads. The published evaluation reads at least 3 pages and
    forces no page."""
    places = max(least, min(budget, len(keys)) // page)
    chosen = best_pages(page_bounds(q, keys, page), places)
    return [j for b in chosen for j in range(b * page, min(len(keys), (b + 1) * page))]


def quest_reads_to_budget(q, keys, page, budget, recent):
    """A library's form: the newest `recent` entries are separate. Pages of the rest follow in order
    of time, plus one if the last is not full, cut off at the budget."""
    n = len(keys)
    if budget >= n:
        return list(range(n))
    rest = n - min(recent, budget)
    room = budget - (n - rest)
    places = -(-room // page) + (rest % page > 0 and -(-room // page) < -(-rest // page))
    chosen = best_pages(page_bounds(q, keys[:rest], page), places) if room else []
    reads = [j for b in chosen for j in range(b * page, min(rest, (b + 1) * page))]
    return reads[:room] + list(range(rest, n))


# ---- RocketKV

def rocket_numbers(tokens, budget, new, dim):
    """Returns the numbers of the published code for a token budget. tokens: of the prompt and the
    answer; new: of the answer; dim: channels of a key."""
    c = max(1.0, tokens / budget)
    exponent = min(0.2 + math.log2(c) * 0.06, 0.8)
    capacity = max(int(tokens / c ** exponent), min(2 * new, tokens))
    ratio = max(1.0, capacity / budget)
    page = math.ceil(math.sqrt(ratio))
    page = page if page <= ratio else 1
    return {"capacity": capacity, "prompt": capacity - new, "reads": budget // 2, "ratio": ratio, "page": page,
            "channels": int(dim * page / ratio)}


# ---- SeerAttention-R

def rotate(x, position, base):
    """Channel i is paired with channel i + d/2 and rotated by position * base^(-2 i / d)."""
    half = len(x) // 2
    angle = position * base ** (-2 * np.arange(half) / len(x))
    a, b = x[:half], x[half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)])


def rms_norm(x, weight, eps=1e-6):
    return weight * x / np.sqrt((x * x).mean() + eps)


POOLS = {"max": lambda k: k.max(0), "min": lambda k: k.min(0), "avg": lambda k: k.mean(0)}


def block_key(keys, pools, weight, norm=None):
    """One full block of one KV head: keys [block, d] before rotation, weight [len(pools) d, e]."""
    out = np.concatenate([POOLS[name](np.asarray(keys, float)) for name in pools]) @ np.asarray(weight, float)
    return rms_norm(out, norm) if norm is not None else out


def gate_query(queries, weight=None, norm=None, average=False):
    """One KV head: queries [group, d] before rotation. weight [group, d, e] sums over the group
    (Qproj). With `average`, the mean of the group is multiplied with weight [d, e] if there is one
    (Qavgproj, Qavg)."""
    q = np.asarray(queries, float)
    if average:
        out = q.mean(0) if weight is None else q.mean(0) @ np.asarray(weight, float)
    else:
        out = np.einsum("gi,gio->o", q, np.asarray(weight, float))
    return rms_norm(out, norm) if norm is not None else out


def block_scores(query, block_keys):
    """Softmax over the blocks; an incomplete block has the key 0."""
    z = np.array([query @ k for k in block_keys]) / math.sqrt(len(query))
    a = np.exp(z - z.max())
    return a / a.sum()


def chosen_blocks(scores, places=None, threshold=None):
    """Returns the best `places` blocks, or those above the threshold, and always the last block."""
    if threshold is not None:
        chosen = {b for b, s in enumerate(scores) if s > threshold}
    else:
        chosen = set(best_pages(scores, places))
    return sorted(chosen | {len(scores) - 1})
