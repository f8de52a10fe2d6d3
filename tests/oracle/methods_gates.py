"""Admission, and the scores from gates, query moments and the full-cache mirror, as defined in
docs/reference/methods.md.

The arguments of scores are those in methods_window.py. run.gates has the values of a gate file
(gates.py): by entry, or alpha [layer][head].
"""
import numpy as np

import gates
import methods_window


NEAR = 1e-5  # a computed g this close to tau may be on its other side in f32


def gate_head(run, head):
    """Gates belong to the model's KV heads; per-query caches read the gate of their KV head."""
    return head * run.gates.heads // run.m.kv_heads


def values(run, layer, head, entries):
    return run.gates.values(run, layer, gate_head(run, head), entries)


def block_scores(run, layer, head, held):
    """Returns (score of each page, its possible error in f32)."""
    u = run.gates.block_logits(run, layer, gate_head(run, head), held)
    return u, np.full(len(u), gates.ERROR * max(1, np.abs(u).max()))


# ---- admission

class Gone:
    """Entries that admission let expire: {position: (score, margin)}, NaN if there is none."""

    def __init__(self, reason, entries):
        self.reason, self.entries = reason, entries


def threshold(run, p):
    """Returns the quantile of all alphas, linear between order statistics."""
    a = np.sort(run.gates.alpha.astype(float), axis=None)
    at = p["sparsity"] * (len(a) - 1)
    low = int(at)
    high = min(low + 1, len(a) - 1)
    return a[low] + (a[high] - a[low]) * (at - low)


def admitted(g, p):
    return g >= p["tau"] if p["compare"] == "ge" else g > p["tau"]


def until(row, p, run, layer, head, i):
    """Returns the first query that does not see entry i, for any budget. None: admission does not
    limit it."""
    if i in p["guard"]:
        return None
    if row.admission == "write-gate":
        g = values(run, layer, head, i)
        run.unsure |= not run.gates.exact and abs(g - p["tau"]) < NEAR
        return None if admitted(g, p) else i + p["local"]
    streams = row.admission == "streaming" or row.admission == "duo" and \
        run.gates.alpha[layer, gate_head(run, head)] < threshold(run, p)
    return i + p["recent"] if streams and i >= p["sinks"] else None


def expire(row, p, run):
    """Removes and returns [{(layer, head): Gone}]: entries that query run.t no longer sees, because
    of the layer's sliding window or admission."""
    windows, events = {}, {}
    for layer, head in row.heads:
        own, gone = {}, {}
        for i in run.alive[layer][head]:
            window = run.m.windows[layer]
            end = until(row, p, run, layer, head, i) if row.admission != "all" else None
            if window and i + window <= run.t and (end is None or i + window <= end):
                own[i] = np.nan, np.nan
            elif end is not None and end <= run.t:
                g = values(run, layer, head, i) if row.admission == "write-gate" else np.nan
                gone[i] = g, p.get("tau", np.nan) - g
        for i in [*own, *gone]:
            run.evict(layer, head, i)
        if own:
            windows[layer, head] = Gone("architecture", own)
        if gone:
            events[layer, head] = Gone("refused" if row.admission == "write-gate" else "window", gone)
    return [windows, events]


# ---- scores

def kept_as_f32(x):
    return np.asarray(x, float).astype(np.float32).astype(float)


def log_sum_of_powers(log_beta, n):
    """Returns the log of 1 + beta + ... + beta^(n - 1), term by term."""
    powers = np.exp(np.outer(log_beta, np.arange(n)))
    return np.log(powers.sum(axis=1))


def exponent(run, p, C):
    return run.t - 1 - np.array(C) + p["offset"]


def retention(run, p, layer, head, alive, C):
    log_beta = values(run, layer, head, C)
    score = exponent(run, p, C) * log_beta
    if p["lookahead"] > 1:
        score = score + log_sum_of_powers(log_beta, p["lookahead"])
    return kept_as_f32(score)


def given(run, p, layer, head, alive, C):
    """Returns the gate value from the append."""
    return values(run, layer, head, C)


def mean_rotation(run, p):
    """Returns the mean of the rotations of the next `horizon` positions, as a matrix."""
    m = run.m
    turn = np.exp(1j * np.outer(np.arange(run.t, run.t + p["horizon"]), m.freq)).mean(axis=0)
    R = np.zeros((m.head_dim, m.head_dim))
    for i, c in enumerate(turn):
        R[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[c.real, -c.imag], [c.imag, c.real]]
    return R


def expected_logits(run, p, layer, g, keys, R=None):
    """Returns the logits of future queries: normal, with the moments of the past queries."""
    q = run.queries[layer, g, p["sinks"] : run.t]
    d = run.m.head_dim
    R = mean_rotation(run, p) if R is None else R
    mu, sigma = R @ q.mean(axis=0), R @ np.cov(q.T, bias=True).reshape(d, d) @ R.T
    return keys @ mu / np.sqrt(d) + np.einsum("jc,cd,jd->j", keys, sigma, keys) / (2 * d)


def expected_attention(run, p, layer, head, alive, C):
    if run.t <= p["sinks"]:
        return np.zeros(len(C))
    beyond = [j for j in alive if j >= p["sinks"]]
    keys, R = run.keys[layer, head, beyond], mean_rotation(run, p)
    E = np.zeros(len(beyond))
    heads = methods_window.query_heads(run, head)
    for g in heads:
        z = expected_logits(run, p, layer, g, keys, R)
        a = np.exp(z - z.max())
        E += a / a.sum() / len(heads)
    length = np.sqrt((run.values[layer, head, C] ** 2).sum(axis=1))
    return (E[[beyond.index(j) for j in C]] + p["epsilon"]) * length


def remaining_mass(run, p, layer, head, alive, C):
    """Returns the mass from the first query after the eviction to the end of the run."""
    rows = run.twin.rows[layer][list(methods_window.query_heads(run, head)), run.t :]
    return rows.sum(axis=(0, 1))[C]


def next_attention(run, p, layer, head, alive, C):
    """Returns the attention of the query of step run.t if its token is known, which is before a new
    entry; else of the last query."""
    query = run.t if run.coming else run.t - 1
    return run.twin.rows[layer][list(methods_window.query_heads(run, head)), query].mean(axis=0)[C]
