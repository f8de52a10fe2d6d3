"""Faults for planted.py: the methods with shared budgets, variance, redundancy and history."""
from unittest import mock

import numpy as np

import allocation
import methods
import methods_keys
import methods_window


dealt_out, pyramid, preference = allocation.dealt_out, allocation.pyramid_parts, allocation.preference
layer_shares, decide_layer = methods.layer_shares, methods.decide_layer
global_score, redundancy = methods_window.global_score, methods_keys.redundancy
shares_of = methods_window.shares_of


def replaced(module, what, fn):
    return mock.patch.object(module, what, fn)


def scored_by(name, fn):
    return mock.patch.dict(methods.SCORES, {name: fn})


# ---- shares

def reversed_pyramid(layers, places, beta, most=None):
    return pyramid(layers, places, beta, most)[::-1]


def floored_steps(layers, places, beta, most=None):
    """As in the reference: another sum."""
    u = places // layers
    m = int(u // beta)
    step = (2 * u - 2 * m) // max(1, layers - 1)
    return [2 * u - m - step * l for l in range(layers)] if layers > 1 else [u]


def sinks_not_counted(row, p, run, newest, budget):
    """u = B - recent."""
    shares, gap = layer_shares(row, p | {"sinks": 0}, run, newest, budget)
    return shares, gap


def uniform_shares(row, p, run, newest, budget):
    return [budget] * run.m.layers, np.inf


def entropy_alone(run, p, layer, candidates):
    return preference(run, p, layer, candidates)[0], 1.0


def places_lost(parts, rooms, places):
    """Places that a layer cannot fill remain unused."""
    return [min(room, part) for room, part in zip(rooms, parts)]


def spread_by_weight(parts, rooms, places):
    """Places that a layer cannot fill go to the others in proportion to their parts."""
    full = [part >= room for room, part in zip(rooms, parts)]
    rest = places - sum(room for room, f in zip(rooms, full) if f)
    open_ = sum(part for part, f in zip(parts, full) if not f)
    return [room if f else part * rest / open_ for room, part, f in zip(rooms, parts, full)] if any(full) and open_ else parts


# ---- adaptive

def each_by_itself(scores, least, places, older=False):
    return dealt_out(scores, places // len(scores), places, older)


def floor_forgotten(scores, least, places, older=False):
    return dealt_out(scores, 0, places, older)


def floor_one_more(scores, least, places, older=False):
    return dealt_out(scores, least + 1, places, older)


def nothing_in_advance(name, p, run, layer, newest, share, heads):
    return decide_layer(name, p | {"every": 1}, run, layer, newest, share, heads)


# ---- scores

def variance_of_sample(a):
    return a.var(axis=0)


def whole_rows(a):
    """Not normalised to the candidates."""
    return a


def mean_for_max(run, p, layer, head, alive, C):
    return methods_window.importance(run, p, layer, head, C)


def oldest_forgiven(row):
    similar = np.flatnonzero(row > methods_keys.SIMILAR)
    return similar[0] if len(similar) else None


def nothing_forgiven(row):
    return None


def older_only(run, layer, head, alive, C, otherwise=None):
    """The mean over the rows of the candidates only."""
    r = methods_keys.softmax(methods_keys.mean_cosine(methods_keys.cosines(run, layer, head, C), otherwise))
    return r


def no_history(run, p, layer, head, C):
    return global_score(run, p | {"history": 0}, layer, head, C)


def added_history(run, p, layer, head, C):
    f = global_score(run, p | {"history": 0}, layer, head, C)
    past = run.remembered.get((layer, head), {})
    return np.array([x + p["history"] * past.get(j, 0) for j, x in zip(C, f)])


def always_largest(run, p, layer, head, C):
    return global_score(run, p | {"fold": "max"}, layer, head, C)


def newcomers_averaged(run, p, layer, head, C):
    """Treats a missing score as a stored 0."""
    f, past = global_score(run, p, layer, head, C), run.remembered.get((layer, head), {})
    return np.array([x if j in past or p.get("fold") != "average" else (1 - p["history"]) * x for j, x in zip(C, f)])


def pooled_before(run, p, layer, head, C):
    """Stores the pooled score."""
    return methods_window.pooled(p, global_score(run, p, layer, head, C))


def share_then_largest(run, p, layer, heads, entries):
    """Softmax in each query head, then the maximum."""
    a = methods_window.shares_of(methods_window.window_rows(run, p, layer, heads, entries))
    return methods_window.reduced("max", a, axis=1)


def slots_in_time(run, p, layer, head, entries):
    return list(entries)


def shared_faults():
    """Returns (method, name, patch)."""
    return [
        ("pyramidkv", "more for upper layers", replaced(allocation, "pyramid_parts", reversed_pyramid)),
        ("pyramidkv", "steps rounded down", replaced(allocation, "pyramid_parts", floored_steps)),
        ("cake", "places of full layers lost", replaced(allocation, "filled", places_lost)),
        ("cake", "places of full layers by weight", replaced(allocation, "filled", spread_by_weight)),
        ("pyramidkv", "sinks outside the budget", replaced(methods, "layer_shares", sinks_not_counted)),
        ("adakv", "each head by itself", replaced(allocation, "dealt_out", each_by_itself)),
        ("adakv", "no floor", replaced(allocation, "dealt_out", floor_forgotten)),
        ("adakv", "floor one too high", replaced(allocation, "dealt_out", floor_one_more)),
        ("adakv", "every = 1", replaced(methods, "decide_layer", nothing_in_advance)),
        ("ada-pyramidkv", "no pyramid", replaced(methods, "layer_shares", uniform_shares)),
        ("cake", "variance by n", replaced(methods_window, "variance", variance_of_sample)),
        ("cake", "uniform shares", replaced(methods, "layer_shares", uniform_shares)),
        ("cake", "preference by entropy alone", replaced(allocation, "preference", entropy_alone)),
        ("rkv", "oldest similar entry forgiven", replaced(methods_keys, "forgiven", oldest_forgiven)),
        ("rkv", "slots in order of time", replaced(methods_keys, "in_slots", slots_in_time)),
        ("rkv", "no entry forgiven", replaced(methods_keys, "forgiven", nothing_forgiven)),
        ("rkv", "redundancy among candidates alone", replaced(methods_keys, "redundancy", older_only)),
        ("rkv", "weights not of the candidates alone", replaced(methods_window, "shares_of", whole_rows)),
        ("morphkv", "weights not of the candidates alone", replaced(methods_window, "shares_of", whole_rows)),
        ("morphkv", "mean for the maximum", scored_by("morphkv", mean_for_max)),
        ("gkv", "nothing remembered", replaced(methods_window, "global_score", no_history)),
        ("gkv", "history added", replaced(methods_window, "global_score", added_history)),
        ("gkv", "no entry forgiven", replaced(methods_keys, "forgiven", nothing_forgiven)),
        ("gkv", "other folds taken for the largest", replaced(methods_window, "global_score", always_largest)),
        ("snapkv-global", "nothing remembered", replaced(methods_window, "global_score", no_history)),
        ("snapkv-global", "newcomers averaged with nothing", replaced(methods_window, "global_score", newcomers_averaged)),
        ("snapkv-global", "pooled scores remembered", replaced(methods_window, "global_score", pooled_before)),
        ("rkv", "softmax before the largest of the group", replaced(methods_window, "largest_logits", share_then_largest)),
    ]


# ---- compared with the published decisions

def golden_faults():
    """Returns (name, patch)."""
    return [
        ("variance by n", replaced(methods_window, "variance", variance_of_sample)),
        ("no floor", replaced(allocation, "dealt_out", floor_forgotten)),
        ("oldest similar entry forgiven", replaced(methods_keys, "forgiven", oldest_forgiven)),
        ("nothing remembered", replaced(methods_window, "global_score", no_history)),
        ("other folds taken for the largest", replaced(methods_window, "global_score", always_largest)),
        ("pooled scores remembered", replaced(methods_window, "global_score", pooled_before)),
        ("softmax before the largest of the group", replaced(methods_window, "largest_logits", share_then_largest)),
        ("weights not of the candidates alone", replaced(methods_window, "shares_of", whole_rows)),
        ("more for upper layers", replaced(allocation, "pyramid_parts", reversed_pyramid)),
        ("slots in order of time", replaced(methods_keys, "in_slots", slots_in_time)),
    ]
