"""Which entries a query reads without eviction: quest, seer and seer-oracle in
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


class Reader:
    """The value of Session.read for a method. Counts the entries that queries read, and notes when
    f32 may read others."""

    def __init__(self, row, prompt):
        self.row, self.p, self.prompt, self.unsure, self.choices = row, row.p, prompt, False, 0

    def __call__(self, run, layer, weights):
        if run.t < self.prompt or layer < self.p["dense"]:
            return {}
        chosen, budget = {}, self.row.budget_at(run.t + 1)
        count = max(1, budget // self.p["page"])
        for _, head in (x for x in self.row.heads if x[0] == layer):
            entries = sorted(run.alive[layer][head])
            held = pages(entries, self.p["page"])
            if len(entries) <= budget or len(held) <= count:
                continue
            heads = list(methods_window.query_heads(run, head))
            newest = self.p["local"] if self.row.admission != "all" else 0
            must = forced(held, newest)
            apart = self.row.read == "quest" and self.p["group"] == "none"
            for group in [[g] for g in heads] if apart else [heads]:
                bound, error = self.bounds(run, layer, head, group, held, weights)
                read, unsure = best(bound, error, must, count)
                self.unsure |= unsure
                self.choices += 1
                chosen |= {g: sum((held[b] for b in read), []) for g in group}
        return chosen

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
