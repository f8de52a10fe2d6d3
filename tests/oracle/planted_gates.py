"""Faults for planted.py: gates, admission, reading, the oracle methods, and the options of all
methods."""
from unittest import mock

import numpy as np

import allocation
import methods
import methods_gates
import methods_window
import reading
import tiny_llama

decide, decide_together, due = methods.decide, methods.decide_together, methods.due
retention, expected_logits, until = methods_gates.retention, methods_gates.expected_logits, methods_gates.until
expected_attention, threshold, dealt_out = methods_gates.expected_attention, methods_gates.threshold, allocation.dealt_out
forced, bounds, rounds, next_attention = reading.forced, reading.Reader.bounds, allocation.rounds, methods_gates.next_attention
logits, is_prompt_cut, remaining_mass = tiny_llama.Session.logits, methods.is_prompt_cut, methods_gates.remaining_mass
best, reader_init = reading.best, reading.Reader.__init__


def replaced(module, what, fn):
    return mock.patch.object(module, what, fn)


def scored_by(fn, *names):
    return mock.patch.dict(methods.SCORES, {name: fn for name in names})


# ---- retention

def one_older(run, p, layer, head, alive, C):
    return retention(run, p | {"offset": p["offset"] + 1}, layer, head, alive, C)


def never_ahead(run, p, layer, head, alive, C):
    return retention(run, p | {"lookahead": 1}, layer, head, alive, C)


def no_decay(run, p, layer, head, alive, C):
    return methods_gates.values(run, layer, head, C)


def each_head_apart(name, p, run, heads, newest, share):
    cuts = {}
    for layer, head in heads:
        cuts |= {(layer, h): c for h, c in decide(name, p, run, layer, head, newest, share).items()}
    return cuts


def later_head_stays(scores, least, places, older=False):
    safe, rest = dealt_out(scores[::-1], least, places, older)
    return {(len(scores) - 1 - h, j) for h, j in safe}, {(len(scores) - 1 - h, j) for h, j in rest}


def no_floor(scores, least, places, older=False):
    return dealt_out(scores, 0, places, older)


# ---- admission

def strictly_above(g, p):
    return g > p["tau"]


def one_more(row, p, run, layer, head, i):
    end = until(row, p, run, layer, head, i)
    return end if end is None else end + 1


def sinks_stream(row, p, run, layer, head, i):
    return until(row, p | {"sinks": 0}, run, layer, head, i)


def median_below(run, p):
    """No interpolation."""
    a = np.sort(run.gates.alpha.astype(float), axis=None)
    return a[int(p["sparsity"] * (len(a) - 1))]


def one_round(worst_first, fraction, too_many):
    return rounds(worst_first, fraction, 1 if too_many > 0 else 0)


def no_least_drop(worst_first, fraction, too_many):
    return rounds(worst_first, max(fraction, 0.5), too_many)


def whole_rows(a):
    return a


# ---- reading

def newest_not_forced(held, newest):
    return forced(held, newest) if newest else []


def mean_of_keys(self, run, layer, head, group, held, weights):
    q = run.m.rope(run.queries[layer, group, run.t], run.t)
    u = np.array([[x @ run.keys[layer, head, page].mean(axis=0) for page in held] for x in q]).max(axis=0)
    return u, np.zeros(len(u))


def first_head_decides(self, run, layer, head, group, held, weights):
    return bounds(self, run, layer, head, group[:1], held, weights)


def one_page_more(bound, error, must, count):
    return best(bound, error, must, count + 1)


def one_layer_less(self, row, prompt):
    reader_init(self, row, prompt)
    self.p = self.p | {"dense": max(0, self.p["dense"] - 1)}


# ---- expected attention, oracles

def all_queries(run, p, layer, g, keys, R=None):
    return expected_logits(run, p | {"sinks": 0}, layer, g, keys, R)


def no_variance(run, p, layer, g, keys, R=None):
    R = methods_gates.mean_rotation(run, p) if R is None else R
    return keys @ (R @ run.queries[layer, g, p["sinks"] : run.t].mean(axis=0)) / np.sqrt(run.m.head_dim)


def no_values(run, p, layer, head, alive, C):
    length = np.sqrt((run.values[layer, head, C] ** 2).sum(axis=1))
    return expected_attention(run, p, layer, head, alive, C) / length


def one_query_less(run, p, layer, head, alive, C):
    rows = run.twin.rows[layer][list(methods_window.query_heads(run, head)), run.t + 1 :]
    return rows.sum(axis=(0, 1))[C]


def last_query(run, p, layer, head, alive, C):
    rows = run.twin.rows[layer][list(methods_window.query_heads(run, head)), run.t - 1]
    return rows.mean(axis=0)[C]


# ---- options of all methods

def never_after(rows, run, prompt, last):
    for row in rows:
        row.p = row.p | {"order": "before"}
    return due(rows, run, prompt, last)


def down_to_slack(name, p, run, layer, head, newest, share):
    return decide(name, p | {"slack": 0}, run, layer, head, newest, share + p["slack"])


def no_slack(name, p, run, layer, head, newest, share):
    return decide(name, p | {"slack": 0}, run, layer, head, newest, share)


def no_chunks(p, step, prompt):
    return is_prompt_cut(p | {"chunk": 0}, step, prompt)


def newer_stays(name, p, run, layer, head, newest, share):
    return decide(name, p | {"tie": "newer"}, run, layer, head, newest, share)


def query_far_away(self, layer, g, head):
    """Keys by rank, but the query at its position in the text."""
    if (layer, head) not in self.ranked:
        return logits(self, layer, g, head)
    m, seen = self.m, self.alive[layer][head]
    q = m.rope(self.queries[layer, g, self.t][None], self.t)
    return m.rope(self.cache_k[layer, head, seen], np.arange(len(seen))) @ q[0] / np.sqrt(m.head_dim)


def gate_faults():
    """Returns (method, name, patch), and further options of the cases."""
    return [
        ("trimkv", "exponent one too high", scored_by(one_older, "trimkv")),
        ("trimkv", "no decay", scored_by(no_decay, "trimkv")),
        ("dbtrimkv", "lookahead of one", scored_by(never_ahead, "dbtrimkv")),
        ("dbtrimkv", "each head by itself", replaced(methods, "decide_together", each_head_apart)),
        ("dbtrimkv", "of equal scores the later head's stays", replaced(allocation, "dealt_out", later_head_stays)),
        ("dbtrimkv", "no floor", replaced(allocation, "dealt_out", no_floor)),
        ("wgkv", "g = tau is refused", replaced(methods_gates, "admitted", strictly_above), {"tau": 0.5, "compare": "ge"}),
        ("wgkv", "window one too long", replaced(methods_gates, "until", one_more)),
        ("wgkv-quest", "window one too long", replaced(methods_gates, "until", one_more)),
        ("local", "window one too long", replaced(methods_gates, "until", one_more)),
        ("local", "sinks leave", replaced(methods_gates, "until", sinks_stream)),
        ("duo", "order statistic for the quantile", replaced(methods_gates, "threshold", median_below)),
        ("wgkv-snapkv", "one round", replaced(allocation, "rounds", one_round)),
        ("wgkv-snapkv", "larger fraction", replaced(allocation, "rounds", no_least_drop)),
        ("wgkv-snapkv", "weights of all entries", replaced(methods_window, "shares_of", whole_rows)),
        ("quest", "newest page not forced", replaced(reading, "forced", newest_not_forced)),
        ("quest", "mean of the page's keys", replaced(reading.Reader, "bounds", mean_of_keys),
         {"page": 4, "dense": 0}),
        ("quest", "one page more", replaced(reading, "best", one_page_more)),
        ("quest", "one dense layer less", replaced(reading.Reader, "__init__", one_layer_less)),
        ("seer-oracle", "first query head decides", replaced(reading.Reader, "bounds", first_head_decides),
         {"page": 2, "dense": 0}),
        ("expected-attention", "moments with the sinks' queries", replaced(methods_gates, "expected_logits", all_queries)),
        ("expected-attention", "no variance", replaced(methods_gates, "expected_logits", no_variance)),
        ("expected-attention", "lengths of values left out", scored_by(no_values, "expected-attention")),
        ("mass-greedy", "without the query that comes", scored_by(one_query_less, "mass-greedy")),
        ("next-topk", "last query for the next", scored_by(last_query, "next-topk")),
        ("h2o", "order=before for after", replaced(methods, "due", never_after), {"order": "after"}),
        ("random", "slack is kept", replaced(methods, "decide", down_to_slack), {"slack": 3}),
        ("random", "no slack", replaced(methods, "decide", no_slack), {"slack": 3}),
        ("snapkv", "no chunks", replaced(methods, "is_prompt_cut", no_chunks), {"chunk": 7}),
        ("scissorhands", "larger position stays with tie=older", replaced(methods, "decide", newer_stays), {"tie": "older"}),
        ("h2o", "query rotated by its place in the text",
         replaced(tiny_llama.Session, "logits", query_far_away), {"positions": "cache"}),
    ]
