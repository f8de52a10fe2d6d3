"""The cache methods by brute force, from docs/reference/methods.md and the papers that it cites.

Each decision is computed from scratch, from all attention rows and keys that a Session of
tiny_llama.py has stored. Only the state that a method must remember is updated step by step. Below,
`alive` lists the positions of a head in ascending order, and C those of them that are not
protected.
"""
import numpy as np

import allocation
import methods_gates
import methods_keys
import methods_window
import tolerance
from rows import ADAPTIVE, METHODS, NEUTRAL, PYRAMID, Row, fits, numbers, part_of  # other files use these names from here

# The definitions of the score parts, and of the methods whose score is another one than its part's.
SCORES = {
    "position": methods_keys.position, "received": methods_window.received,
    "window-attention": methods_window.snapkv, "tova": methods_window.tova, "morphkv": methods_window.morphkv,
    "variance-attention": methods_window.cake, "global-attention": methods_window.snapkv_global,
    "below-even": methods_window.scissorhands, "keydiff": methods_keys.keydiff,
    "key-norm": methods_keys.knorm, "redundancy": methods_keys.rkv, "gkv": methods_keys.gkv,
    "random": methods_keys.random_hash, "retention": methods_gates.retention,
    "write-gate": methods_gates.given, "importance": methods_gates.given,
    "expected-attention": methods_gates.expected_attention,
    "remaining-mass": methods_gates.remaining_mass, "next-attention": methods_gates.next_attention,
}


# ---- the choice

class Cut:
    """The effect of one decision on one head: `score`, of the evicted entries; `kept`, of the other
    candidates; `guarded`, of those that `protect` keeps; the number of entries before. open: f32 may
    well decide differently. error: the error of a score in f32."""

    def __init__(self, kind, alive, score, error, stay, guard=frozenset()):
        self.kind, self.alive, self.error = kind, len(alive), error
        self.score = {j: s for j, s in score.items() if j not in stay | guard}
        self.kept = {j: s for j, s in score.items() if j in stay - guard}
        self.guarded = {j: s for j, s in score.items() if j in guard}
        self.least_kept = min(self.kept.values()) if self.kept else None
        self.gap = self.least_kept - max(self.score.values()) if self.kept and self.score else np.inf
        self.open = False


def candidates(p, alive, newest):
    return [j for j in alive if j >= p["sinks"] and j <= newest - p["recent"]]


def scored(name, p, run, layer, head, C):
    """Returns ({entry: score}, {entry: bound of its error in f32})."""
    alive = sorted(run.alive[layer][head])
    if not C:
        return {}, {}
    score = (SCORES.get(name) or SCORES[part_of(name)])(run, p, layer, head, alive, C)
    error = tolerance.of(name, run, p, layer, head, alive, C, score)
    return dict(zip(C, score)), dict(zip(C, error))


def guard_of(p):
    """Returns the positions of `protect`. Their scores count for their neighbours, but they stay."""
    return p.get("guard", frozenset())


def free(p, score):
    """Returns the scores of the entries that may be evicted."""
    return {j: s for j, s in score.items() if j not in guard_of(p)}


def lowest_first(score, older=False):
    """Returns the entries by ascending score. Among equal scores the smaller position comes first,
    or the larger one."""
    return sorted(score, key=lambda j: (score[j], -j if older else j))


def decide(name, p, run, layer, head, newest, share):
    """Returns {head: Cut}: evicts entries if the head would exceed its share."""
    alive = sorted(run.alive[layer][head])
    excess = len(alive) + newest + 1 - run.t - share
    if excess <= p["slack"]:
        return {}
    C = candidates(p, alive, newest)
    score, error = scored(name, p, run, layer, head, C)
    order = lowest_first(free(p, score), p["tie"] == "older")
    cut = Cut(name, alive, score, error, set(order[excess + p["every"] - 1 :]), guard_of(p))
    cut.open = tolerance.exchangeable(name, p, cut.score, error, cut.kept, error)
    return {head: cut}


def decide_together(name, p, run, heads, newest, share):
    """Returns {(layer, head): Cut}. The heads, [(layer, head)], share their budgets."""
    alive = [sorted(run.alive[l][h]) for l, h in heads]
    coming = newest + 1 - run.t
    held = sum(map(len, alive))
    if held <= len(heads) * (share - coming + p["slack"]):
        return {}
    C = [candidates(p, a, newest) for a in alive]
    scores, errors = zip(*[scored(name, p, run, *heads[i], C[i]) for i in range(len(heads))])
    may = [free(p, s) for s in scores]
    protected = held - sum(map(len, may))
    places = max(0, len(heads) * (share - coming - (p["every"] - 1)) - protected)
    safe, rest = allocation.dealt_out(may, int(p.get("floor", 0) * places / len(heads)), places, p["tie"] == "older")
    cuts = [Cut(name, a, scores[i], errors[i], {j for g, j in safe | rest if g == i}, guard_of(p)) for i, a in enumerate(alive)]
    contested = [{j: scores[i][j] for g, j in rest if g == i} for i in range(len(heads))]
    open_ = any(tolerance.exchangeable(name, p, cut.score, errors[i], contested[k], errors[k])
                for i, cut in enumerate(cuts) for k in range(len(heads)) if k != i)
    open_ |= any(tolerance.exchangeable(name, p, c.score, c.error, c.kept, c.error) for c in cuts)
    for cut in cuts:
        cut.open = open_
    return dict(zip(heads, cuts))


def decide_layer(name, p, run, layer, newest, share, heads=None):
    """Returns {head: Cut} of a layer."""
    heads = range(run.m.kv_heads) if heads is None else heads
    return {h: c for (_, h), c in decide_together(name, p, run, [(layer, h) for h in heads], newest, share).items()}


def decide_rounds(name, p, run, heads, newest, share):
    """Returns {(layer, head): Cut}. Every head evicts a fraction of its candidates repeatedly until
    all fit together."""
    alive = [sorted(run.alive[l][h]) for l, h in heads]
    coming = newest + 1 - run.t
    held, limit = sum(map(len, alive)), len(heads) * (share - coming)
    if held <= limit + len(heads) * p["slack"]:
        return {}
    C = [candidates(p, a, newest) for a in alive]
    scores, errors = zip(*[scored(name, p, run, *heads[i], C[i]) for i in range(len(heads))])
    left = allocation.rounds([lowest_first(free(p, s), p["tie"] == "older") for s in scores], p["fraction"], held - limit)
    cuts = [Cut(name, a, s, e, set(stay), guard_of(p)) for a, s, e, stay in zip(alive, scores, errors, left)]
    for cut in cuts:
        cut.open = tolerance.exchangeable(name, p, cut.score, cut.error, cut.kept, cut.error)
    return dict(zip(heads, cuts))


# ---- shares

def layer_shares(row, p, run, newest, budget):
    """Returns (the budget of a head in each layer, how certain it is), at each eviction from the
    first one."""
    fixed = len(guard_of(p) | set(range(p["sinks"]))) + max(p["recent"], 1)  # one place for the new entry
    rooms = [max(0, min(newest + 1, window or newest + 1) - fixed) for window in run.m.windows]
    places = sum(min(room, budget - fixed) for room in rooms)
    if row.allocation in PYRAMID:
        parts = allocation.pyramid_parts(run.m.layers, places, p["beta"], max(rooms))
    elif row.allocation == "cake":
        if row.weights is None:  # of the first eviction
            row.weights = allocation.cake_weights(run, p, [[candidates(p, sorted(a), newest) for a in heads] for heads in run.alive])
        parts = allocation.cake_parts(row.weights, places)
    else:
        return [budget] * run.m.layers, np.inf
    out, gap = allocation.whole(allocation.filled(parts, rooms, places), places)
    return [fixed + x for x in out], gap / max(1, places) if row.allocation == "cake" else np.inf


def by_layer(row, p, run, newest):
    """Returns {(layer, head): Cut}, each layer separately."""
    if not row.begun:
        if max(len(run.alive[l][h]) for l, h in row.heads) <= row.budget_at(newest + 1) + p["slack"] - (newest + 1 - run.t):
            return {}
        row.begun = True
    shares, gap = layer_shares(row, p, run, newest, row.budget_at(newest + 1))
    run.unsure |= gap < tolerance.SHARE
    cuts = {}
    for layer in sorted({l for l, _ in row.heads}):
        share, heads, found = shares[layer], row.of_layer(layer), {}
        if row.allocation in ADAPTIVE:
            found = decide_layer(row.kind, p, run, layer, newest, share, heads)
        else:
            for head in heads:
                found |= decide(row.kind, p, run, layer, head, newest, share)
        cuts |= {(layer, head): cut for head, cut in found.items()}
    return cuts


def apply(row, p, run, newest, prompt):
    """Evicts and returns {(layer, head): Cut} over the heads of a method. newest: the last token,
    or the one about to be appended; prompt: its length."""
    if row.trigger == "none" or p["stride"] and run.t > prompt and run.t % p["stride"] != 1 % p["stride"]:
        return {}
    run.coming = newest + 1 - run.t
    if row.trigger == "fraction":
        cuts = decide_rounds(row.kind, p, run, row.heads, newest, row.budget_at(newest + 1))
    elif row.allocation == "global":
        cuts = decide_together(row.kind, p, run, row.heads, newest, row.budget_at(newest + 1))
    else:
        cuts = by_layer(row, p, run, newest)
    for (layer, head), cut in cuts.items():
        remember(row.kind, p, run, layer, head, cut)
    for (layer, head), cut in cuts.items():
        for j in cut.score:
            run.evict(layer, head, j)
    return cuts


def remember(name, p, run, layer, head, cut):
    """Updates the state of gkv and snapkv-global: the global scores of the kept entries before the
    eviction. With slots=score also their order."""
    if p["slots"] == "score":
        scored_ones = cut.kept | cut.guarded
        best = sorted(scored_ones, key=lambda j: (scored_ones[j], j), reverse=True)
        first = [j for j in sorted(run.alive[layer][head]) if j < p["sinks"]]
        run.slots[layer, head] = first + best
    if name in ("gkv", "snapkv-global"):
        C = sorted([*cut.score, *cut.kept, *cut.guarded])
        if C:
            f = dict(zip(C, methods_window.global_score(run, p, layer, head, C)))
            run.remembered[layer, head] = {j: f[j] for j in [*cut.kept, *cut.guarded]}


# ---- when

def is_prompt_cut(p, step, prompt):
    return step == prompt or 0 < step < prompt and p["chunk"] and step % p["chunk"] == 0


def due(rows, run, prompt, last):
    """Returns the evictions between query run.t - 1 and query run.t: [{(layer, head): Gone or
    Cut}]. last: there is no query run.t."""
    step, events = run.t, []
    for row in rows:
        each = row.p["cut"] == "always"
        after = each and row.p["order"] == "after" and step > prompt
        if after:  # the eviction of step - 1: these entries were still present
            events.append(apply(row, row.p, run, step - 1, prompt))
        if not last or step == prompt:
            events += methods_gates.expire(row, row.p, run)
        if is_prompt_cut(row.p, step, prompt):
            events.append(apply(row, row.p, run, step - 1, prompt))
        if each and step >= prompt and row.p["order"] == "before" and not last:
            events.append(apply(row, row.p, run, step, prompt))
    return events
