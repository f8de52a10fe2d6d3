"""The cache methods, written from docs/methods.md and the papers it names, by brute force.

Nothing is updated step by step: each decision is computed anew from all attention rows and keys that
a Session of tiny_llama.py has kept.  Below, `alive` lists the positions that a head holds, rising.
"""
import numpy as np

MASK = (1 << 64) - 1
METHODS = ("full", "window", "h2o", "snapkv", "tova", "keydiff", "random")


def numbers(name, budget, given):
    """the effective numbers of a row: published values, reduced to the budget, unless given"""
    p = {"sinks": 0, "recent": 0, "window": 0, "pool": 1, "pool-kind": "max", "group": "mean", "seed": 0}
    if name == "window":
        p["sinks"] = min(4, budget // 4)
    elif name == "h2o":
        p.update(group="sum", recent=budget // 2)
    elif name == "snapkv":
        p.update(window=max(1, min(32, budget // 4)), pool=7)
    elif name == "tova":
        p["window"] = 1
    p.update(given)
    if name == "window" and "recent" not in given:
        p["recent"] = budget - p["sinks"]
    if name == "snapkv" and "recent" not in given:
        p["recent"] = min(p["window"], budget)
    return p


# ---- scores: one number for each entry of `alive`, from the queries 0 .. t - 1

def query_heads(run, head):
    n = run.m.heads // run.m.kv_heads
    return range(head * n, (head + 1) * n)


def reduced(kind, per_head):
    """over the first axis, the query heads"""
    return {"sum": np.sum, "mean": np.mean, "max": np.max}[kind](per_head, axis=0)


def position(run, p, layer, head, alive):
    return np.array(alive, float)


def received(run, p, layer, head, alive):
    per_head = [run.rows[layer, g, : run.t].sum(axis=0)[alive] for g in query_heads(run, head)]
    return reduced(p["group"], per_head)


def window_attention(run, p, layer, heads, alive):
    first = max(0, run.t - p["window"])
    per_query = []
    for t in range(first, run.t):
        per_query.append(reduced(p["group"], [run.rows[layer, g, t, alive] for g in heads]))
    return np.mean(per_query, axis=0)


def snapkv(run, p, layer, head, alive):
    return window_attention(run, p, layer, query_heads(run, head), alive)


def tova(run, p, layer, head, alive):
    return window_attention(run, p, layer, range(run.m.heads), alive)


def keydiff(run, p, layer, head, alive):
    k = run.keys[layer, head, alive]
    unit = k / np.sqrt((k * k).sum(axis=1, keepdims=True))
    anchor = unit.mean(axis=0)
    return -(unit @ anchor) / np.sqrt(anchor @ anchor)


def splitmix(x):
    """the output of splitmix64 for the state x"""
    z = (x + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def random_hash(run, p, layer, head, alive):
    out = []
    for j in alive:
        x = p["seed"]
        for a in (layer, head, j):
            x = splitmix(x) ^ a
        out.append((splitmix(x) >> 40) / 2**24)
    return np.array(out)


SCORES = {"window": position, "h2o": received, "snapkv": snapkv, "tova": tova, "keydiff": keydiff,
          "random": random_hash}


def pooled(p, score):
    """neighbours are the next candidates in time; the maximum ignores what lies beyond the edge, the
    average counts it as 0"""
    half = p["pool"] // 2
    out = np.empty_like(score)
    for i in range(len(score)):
        near = score[max(0, i - half) : i + half + 1]
        out[i] = near.max() if p["pool-kind"] == "max" else near.sum() / p["pool"]
    return out


# ---- the choice

class Cut:
    """What one decision did to one head: entry -> score; how many entries there were; the least score among
    the candidates kept (None when none is left) and its distance from the largest score cut."""

    def __init__(self, alive, score, kept):
        self.alive, self.score = alive, score
        self.least_kept = min(kept.values()) if kept else None
        self.gap = self.least_kept - max(score.values()) if kept else np.inf


def decide(name, p, run, layer, head, newest, target):
    """the Cut that brings a head down to `target` entries, or None"""
    alive = sorted(run.alive[layer][head])
    n_cut = len(alive) - target
    if name == "full" or n_cut <= 0:
        return None
    candidates = [j for j in alive if j >= p["sinks"] and j <= newest - p["recent"]]
    score = SCORES[name](run, p, layer, head, alive)[[alive.index(j) for j in candidates]]
    score = dict(zip(candidates, pooled(p, score)))
    order = sorted(candidates, key=lambda j: (score[j], j))
    cut = order[:n_cut]
    return Cut(len(alive), {j: score[j] for j in cut}, {j: score[j] for j in order[n_cut:]})


def apply(name, p, run, newest, target):
    """{(layer, head): Cut} over all heads; the entries are gone afterwards"""
    cuts = {}
    for layer in range(run.m.layers):
        for head in range(run.m.kv_heads):
            cut = decide(name, p, run, layer, head, newest, target)
            if cut:
                cuts[layer, head] = cut
    for (layer, head), cut in cuts.items():
        for j in cut.score:
            run.evict(layer, head, j)
    return cuts
