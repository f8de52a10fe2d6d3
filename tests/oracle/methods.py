"""The cache methods, written from docs/methods.md and the papers it names, by brute force.

Nothing is updated step by step (but for what a method has to remember): each decision is computed anew from all
attention rows and keys that a Session of tiny_llama.py has kept.  Below, `alive` lists the positions that a head
holds, rising, and C those of them that are not protected.
"""
import numpy as np

import allocation
import methods_keys
import methods_window
import tolerance

SCORES = {
    "window": methods_keys.position, "h2o": methods_window.received, "snapkv": methods_window.snapkv,
    "tova": methods_window.tova, "keydiff": methods_keys.keydiff, "knorm": methods_keys.knorm,
    "scissorhands": methods_window.scissorhands, "pyramidkv": methods_window.snapkv,
    "adakv": methods_window.snapkv, "ada-pyramidkv": methods_window.snapkv, "cake": methods_window.cake,
    "rkv": methods_keys.rkv, "morphkv": methods_window.morphkv, "gkv": methods_keys.gkv,
    "random": methods_keys.random_hash,
}
METHODS = ("full", *SCORES)
PYRAMID = "pyramidkv", "ada-pyramidkv"
ADAPTIVE = "adakv", "ada-pyramidkv"

# what the papers say; windows and intervals that do not fit are reduced
WINDOW = {"snapkv": 32, "scissorhands": 400, "pyramidkv": 8, "adakv": 32, "ada-pyramidkv": 32, "cake": 32, "rkv": 8,
          "morphkv": 30, "gkv": 16}
EVERY = {"rkv": 128, "gkv": 128}
PUBLISHED = {
    "h2o": {"group": "sum"}, "tova": {"window": 1}, "snapkv": {"pool": 7}, "pyramidkv": {"pool": 7, "beta": 20},
    "adakv": {"pool": 7, "floor": 0.2}, "ada-pyramidkv": {"pool": 7, "floor": 0.2, "beta": 20},
    "cake": {"pool": 5, "pool-kind": "avg", "gamma": 200}, "rkv": {"pool": 7, "group": "max", "lambda": 0.1},
    "gkv": {"group": "max", "history": 0.8, "lambda": 0.7},
}
NEUTRAL = {"sinks": 0, "recent": 0, "window": 0, "pool": 1, "pool-kind": "max", "group": "mean", "seed": 0, "every": 1}


def numbers(name, budget, given):
    """the effective numbers of a row: published values, reduced to the budget, unless given"""
    p = NEUTRAL | PUBLISHED.get(name, {})
    quarter = max(1, budget // 4)
    if name in WINDOW:
        p["window"] = min(WINDOW[name], quarter)
    if name in EVERY:
        p["every"] = min(EVERY[name], quarter)
    if name == "scissorhands":
        p["every"] = max(1, budget // 2)
    if name == "window":
        p["sinks"] = min(4, budget // 4)
    p.update(given)
    if "recent" not in given:
        p["recent"] = min(derived_recent(name, p, budget), max(0, budget - p["sinks"] - p["every"] + 1))
    if "every" not in given:
        p["every"] = max(1, min(p["every"], budget - p["sinks"] - max(1, p["recent"]) + 1))
    return p


def fits(p, budget):
    """the newcomer needs a place even where it is not protected"""
    return p["sinks"] + max(1, p["recent"]) + p["every"] - 1 <= budget


def derived_recent(name, p, budget):
    if name == "window":
        return budget
    if name == "h2o":
        return budget // 2
    if name == "scissorhands":
        return max(1, min(10, budget // 4))
    return p["window"] if name in WINDOW else 0


# ---- the choice

class Cut:
    """What one decision did to one head: `score`, of the entries cut; `kept`, of the other candidates; how many
    entries there were.  open: f32 may well decide otherwise.  error: what f32 may do to a score."""

    def __init__(self, alive, score, error, stay):
        self.alive, self.error = len(alive), error
        self.score = {j: s for j, s in score.items() if j not in stay}
        self.kept = {j: s for j, s in score.items() if j in stay}
        self.least_kept = min(self.kept.values()) if self.kept else None
        self.gap = self.least_kept - max(self.score.values()) if self.kept and self.score else np.inf
        self.open = False


def candidates(p, alive, newest):
    return [j for j in alive if j >= p["sinks"] and j <= newest - p["recent"]]


def scored(name, p, run, layer, head, C):
    """({entry: score}, {entry: bound of its error in f32})"""
    alive = sorted(run.alive[layer][head])
    if not C:
        return {}, {}
    score = SCORES[name](run, p, layer, head, alive, C)
    error = tolerance.of(name, run, p, layer, head, alive, C, score)
    return dict(zip(C, score)), dict(zip(C, error))


def lowest_first(score):
    return sorted(score, key=lambda j: (score[j], j))


def decide(name, p, run, layer, head, newest, share):
    """{head: Cut}: brings a head below its share where it would exceed it"""
    alive = sorted(run.alive[layer][head])
    excess = len(alive) + newest + 1 - run.t - share
    if excess <= 0:
        return {}
    C = candidates(p, alive, newest)
    score, error = scored(name, p, run, layer, head, C)
    order = lowest_first(score)
    cut = Cut(alive, score, error, set(order[excess + p["every"] - 1 :]))
    cut.open = tolerance.exchangeable(name, cut.score, error, cut.kept, error)
    return {head: cut}


def decide_layer(name, p, run, layer, newest, share):
    """{head: Cut}: the heads of a layer deal out their shares among themselves"""
    heads = range(run.m.kv_heads)
    alive = [sorted(run.alive[layer][h]) for h in heads]
    coming = newest + 1 - run.t
    held = sum(map(len, alive))
    if held <= len(heads) * (share - coming):
        return {}
    C = [candidates(p, a, newest) for a in alive]
    scores, errors = zip(*[scored(name, p, run, layer, h, C[h]) for h in heads])
    protected = held - sum(map(len, C))
    places = max(0, len(heads) * (share - coming - (p["every"] - 1)) - protected)
    safe, rest = allocation.dealt_out(scores, int(p["floor"] * places / len(heads)), places)
    cuts = {h: Cut(alive[h], scores[h], errors[h], {j for g, j in safe | rest if g == h}) for h in heads}
    contested = [{j: scores[h][j] for g, j in rest if g == h} for h in heads]
    open_ = any(tolerance.exchangeable(name, cuts[h].score, errors[h], contested[g], errors[g])
                for h in heads for g in heads if g != h)
    open_ |= any(tolerance.exchangeable(name, c.score, c.error, c.kept, c.error) for c in cuts.values())
    for cut in cuts.values():
        cut.open = open_
    return cuts


def layer_shares(name, p, run, newest, budget):
    """(the budget of a head in each layer, how sure that is), from the first cut on"""
    fixed = p["sinks"] + max(p["recent"], 1)  # a newcomer needs a place
    u, layers, gap = budget - fixed, run.m.layers, np.inf
    if name in PYRAMID:
        places = allocation.pyramid(layers, u, p["beta"])
    elif name == "cake":
        C = [[candidates(p, sorted(a), newest) for a in heads] for heads in run.alive]
        places, gap = allocation.cake(run, p, u, C)
    else:
        places = [u] * layers
    return [fixed + x for x in places], gap


def apply(name, p, run, newest, budget):
    """{(layer, head): Cut} over all heads; the entries are gone afterwards"""
    coming = newest + 1 - run.t
    if name == "full":
        return {}
    if run.shares is None:
        if len(run.alive[0][0]) <= budget - coming:
            return {}
        run.shares, gap = layer_shares(name, p, run, newest, budget)
        run.unsure = gap < tolerance.SHARE
    cuts = {}
    for layer in range(run.m.layers):
        if name in ADAPTIVE:
            found = decide_layer(name, p, run, layer, newest, run.shares[layer])
        else:
            found = {}
            for head in range(run.m.kv_heads):
                found |= decide(name, p, run, layer, head, newest, run.shares[layer])
        cuts |= {(layer, head): cut for head, cut in found.items()}
    for (layer, head), cut in cuts.items():
        remember(name, p, run, layer, head, cut)
    for (layer, head), cut in cuts.items():
        for j in cut.score:
            run.evict(layer, head, j)
    return cuts


def remember(name, p, run, layer, head, cut):
    """gkv: the global scores of what stays, before anything is cut"""
    if name == "gkv":
        C = sorted([*cut.score, *cut.kept])
        if C:
            f = dict(zip(C, methods_window.global_score(run, p, layer, head, C)))
            run.remembered[layer, head] = {j: f[j] for j in cut.kept}
