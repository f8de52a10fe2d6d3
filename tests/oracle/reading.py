"""Which entries a query reads where nothing is evicted for it: quest, seer and seer-oracle of docs/reference/methods.md."""
import numpy as np

import methods_gates
import methods_window

WEIGHT = 3e-5  # relative error of a weight in f32
BOUND = 1e-5  # of an upper bound, relative to the sum of its terms' sizes


def pages(entries, size):
    """in order of time"""
    return [entries[i : i + size] for i in range(0, len(entries), size)]


def forced(held, newest):
    """pages that hold one of the newest entries"""
    fresh = set(sum(held, [])[-max(newest, 1) :])
    return [b for b, page in enumerate(held) if fresh & set(page)]


def best(bound, error, must, count):
    """(pages read, whether f32 may choose others): first those that must, then by bound, of equal ones the later"""
    others = sorted(set(range(len(bound))) - set(must), key=lambda b: (bound[b], b), reverse=True)
    free = max(0, count - len(must))
    chosen, rest = others[:free], others[free:]
    gap = min((bound[a] - bound[b] - error[a] - error[b] for a in chosen for b in rest), default=1)
    equal = all(bound[a] == bound[b] for a in chosen for b in rest if bound[a] - bound[b] <= error[a] + error[b])
    return sorted([*must, *chosen]), gap <= 0 and not equal


def upper_bounds(q, keys):
    """(largest product with any key inside the page's box, size of its terms), for each page"""
    low, high = keys.min(axis=0), keys.max(axis=0)
    return np.maximum(q * low, q * high).sum(), np.maximum(np.abs(q * low), np.abs(q * high)).sum()


class Reader:
    """What Session.read is, for a row: counts what queries read, and says when f32 may read something else."""

    def __init__(self, row, prompt):
        self.row, self.p, self.prompt, self.unsure, self.choices = row, row.p, prompt, False, 0
        self.count = max(1, row.budget // row.p["page"])

    def __call__(self, run, layer, weights):
        if run.t < self.prompt or layer < self.p["dense"]:
            return {}
        chosen = {}
        for _, head in (x for x in self.row.heads if x[0] == layer):
            entries = sorted(run.alive[layer][head])
            held = pages(entries, self.p["page"])
            if len(entries) <= self.row.budget or len(held) <= self.count:
                continue
            heads = list(methods_window.query_heads(run, head))
            newest = self.p["local"] if self.row.admission != "all" else 0
            must = forced(held, newest)
            apart = self.row.read == "quest" and self.p["group"] == "none"
            for group in [[g] for g in heads] if apart else [heads]:
                bound, error = self.bounds(run, layer, head, group, held, weights)
                read, unsure = best(bound, error, must, self.count)
                self.unsure |= unsure
                self.choices += 1
                chosen |= {g: sum((held[b] for b in read), []) for g in group}
        return chosen

    def bounds(self, run, layer, head, group, held, weights):
        """of each page, and how far f32 may be off"""
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
