"""Which of the cached entries a query reads: quest, seer, seer-oracle and rocket in
docs/reference/methods.md."""
import numpy as np

import methods_gates
import methods_window

WEIGHT = 3e-5  # relative error of a weight in f32
BOUND = 1e-5  # of an upper bound, relative to the sum of its terms' magnitudes


def pages(entries, size):
    """Returns pages in order of time."""
    return [entries[i : i + size] for i in range(0, len(entries), size)]


def forced(held, newest):
    """Returns the pages with one of the newest entries."""
    fresh = set(sum(held, [])[-max(newest, 1) :])
    return [b for b, page in enumerate(held) if fresh & set(page)]


def best(bound, error, must, count):
    """Returns (pages read, True if f32 may choose others): first the forced pages, then by bound;
    among equal bounds the later page."""
    others = sorted(set(range(len(bound))) - set(must), key=lambda b: (bound[b], b), reverse=True)
    free = max(0, count - len(must))
    chosen, rest = others[:free], others[free:]
    gap = min((bound[a] - bound[b] - error[a] - error[b] for a in chosen for b in rest), default=1)
    equal = all(bound[a] == bound[b] for a in chosen for b in rest if bound[a] - bound[b] <= error[a] + error[b])
    return sorted([*must, *chosen]), gap <= 0 and not equal


def upper_bounds(q, keys):
    """Returns (maximum product with any key in the page's box, magnitude of its terms), for each
    page."""
    low, high = keys.min(axis=0), keys.max(axis=0)
    return np.maximum(q * low, q * high).sum(), np.maximum(np.abs(q * low), np.abs(q * high)).sum()


def rocket_channels(q, count):
    """Returns (the channels with the largest mean |q| over the query heads, how far they are from the
    others relative to the largest). q [heads, D]."""
    size = np.abs(q).mean(axis=0)
    order = sorted(range(len(size)), key=lambda c: (-size[c], c))
    gap = size[order[count - 1]] - size[order[count]] if count < len(size) else np.inf
    return sorted(order[:count]), gap / size.max()


def rocket_logits(q, held, channels):
    """Returns (logit of each page in each query head [heads, pages], the magnitude of its terms,
    the divisor of each head). q [heads, D]; held: keys of each page [n, D]."""
    sign = np.where(q.sum(axis=0) > 0, 1, -1)
    most = np.array([(keys * sign).max(axis=0) for keys in held])[:, channels]
    terms = (q * sign)[:, None, channels] * most[None]
    divisor = np.sqrt(q.shape[1] * np.abs(q[:, channels]).sum(axis=1) / np.abs(q).sum(axis=1))
    return terms.sum(axis=2), np.abs(terms).sum(axis=2), divisor


def rocket_weights(z, lengths):
    """Returns the weight of one token of each page, averaged over the query heads. z: scaled logits
    [heads, pages]; lengths: tokens of each page."""
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return (e / (e * lengths).sum(axis=1, keepdims=True)).mean(axis=0)


def best_entries(held, score, error, count):
    """Returns (the `count` entries with the best scores, each that of its page, True if f32 may
    choose others). Among equal scores the larger position is read."""
    flat = [(score[b], j, b) for b, page in enumerate(held) for j in page]
    read = sorted(flat, reverse=True)[:count]
    entries = {j for _, j, _ in read}
    some = {b for _, _, b in read}
    left = [b for b, page in enumerate(held) if not entries >= set(page)]
    unsure = any(a != b and score[a] - score[b] <= error[a] + error[b] for a in some for b in left)
    return sorted(entries), unsure


class Reader:
    """The value of Session.read for a method. Counts the entries that queries read, and notes when
    f32 may read others."""

    def __init__(self, row, prompt):
        self.row, self.p, self.prompt, self.unsure, self.choices = row, row.p, prompt, False, 0

    def __call__(self, run, layer, weights):
        if run.t < self.prompt or layer < self.p["dense"]:
            return {}
        chosen, most = {}, self.row.budget_at(run.t + 1) if self.row.score == "none" else self.p["reads"]
        count = max(1, most // self.p["page"])
        for _, head in (x for x in self.row.heads if x[0] == layer):
            entries = sorted(run.alive[layer][head])
            held = pages(entries, self.p["page"])
            if len(entries) <= most or self.row.read != "rocket" and len(held) <= count:
                continue
            heads = list(methods_window.query_heads(run, head))
            if self.row.read == "rocket":
                read, unsure = best_entries(held, *self.rocket(run, layer, head, heads, held), most)
                self.unsure |= unsure
                self.choices += 1
                chosen |= {g: read for g in heads}
                continue
            newest = self.p["local"] if self.row.admission != "all" else 0
            must = forced(held, newest)
            apart = self.row.read == "quest" and (self.p["group"] == "none" or self.row.score != "none")
            for group in [[g] for g in heads] if apart else [heads]:
                bound, error = self.bounds(run, layer, head, group, held, weights)
                read, unsure = best(bound, error, must, count)
                self.unsure |= unsure
                self.choices += 1
                chosen |= {g: sum((held[b] for b in read), []) for g in group}
        return chosen

    def rocket(self, run, layer, head, heads, held):
        """Returns the weight of a token of each page, and its possible error in f32."""
        D = run.m.head_dim
        ratio = max(1, (self.row.budget or 0) / (2 * self.p.get("reads", 1)))
        share = D * self.p["page"] / ratio if self.row.score != "none" else D
        count = self.p["channels"] or min(D, max(1, int(share)))
        q = run.m.rope(run.queries[layer, heads, run.t], run.t)
        channels, gap = rocket_channels(q, count)
        self.unsure |= gap < WEIGHT
        z, size, divisor = rocket_logits(q, [run.keys[layer, head, page] for page in held], channels)
        w = rocket_weights(z / divisor[:, None], [len(page) for page in held])
        return w, w * (WEIGHT + BOUND * (size / divisor[:, None]).max()) / 2

    def bounds(self, run, layer, head, group, held, weights):
        """Returns the bound of each page, and its possible error in f32."""
        if self.row.read == "seer":
            return methods_gates.block_scores(run, layer, head, held)
        if self.row.read == "seer-oracle":
            seen = run.alive[layer][head]
            a = {j: max(weights[g][i] for g in group) for i, j in enumerate(seen)}
            top = np.array([max(a[j] for j in page) for page in held])
            return top, WEIGHT * top
        q = run.m.rope(run.queries[layer, group, run.t], run.t)
        u = np.array([[upper_bounds(x, run.keys[layer, head, page]) for page in held] for x in q])
        return u[:, :, 0].max(axis=0), BOUND * u[:, :, 1].max(axis=0)
