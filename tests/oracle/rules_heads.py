"""DuoAttention (Xiao et al. 2024), LocRet (Huang et al. 2024), and other published readings of Scissorhands and H2O."""
import numpy as np

from rules_choice import keep_best


# ---- DuoAttention

def full_heads(alphas, sparsity):
    """Returns [L][H] booleans. Heads with alpha at or above the quantile `sparsity` of all alphas
    keep all entries. The quantile is interpolated linearly; 0 and less: all heads, 1 and more: no
    head. Heads with alpha equal to the quantile are all full (the published code breaks ties by
    noise)."""
    alphas = np.asarray(alphas, float)
    if sparsity <= 0 or sparsity >= 1:
        return np.full(alphas.shape, sparsity <= 0)
    order = np.sort(alphas.ravel())
    at = sparsity * (len(order) - 1)
    low = int(at)
    high = min(low + 1, len(order) - 1)
    quantile = order[low] + (at - low) * (order[high] - order[low])
    return alphas >= quantile


def full_heads_counted(alphas, ratio):
    """A library's form: the nearest integer number of heads, ties to even, with the smallest alphas
    stream."""
    alphas = np.asarray(alphas, float)
    out = np.ones(alphas.size, bool)
    out[np.argsort(alphas.ravel(), kind="stable")[:round(alphas.size * ratio)]] = False
    return out.reshape(alphas.shape)


def streaming_reads(i, sink, recent):
    """The training mask: query i of a streaming head reads the first `sink` and the last `recent`
    entries, including its own."""
    return [j for j in range(i + 1) if j < sink or j > i - recent]


def streaming_cache(calls, sink, recent):
    """Returns the entries that each call of the given numbers of tokens reads, including its own.
    The cache is cut after the call, so a single token reads one entry more than in training."""
    held, out, start = [], [], 0
    for m in calls:
        held = held + list(range(start, start + m))
        out.append(held)
        if len(held) > sink + recent:
            held = held[:sink] + held[len(held) - recent:]
        start += m
    return out


# ---- LocRet

def silu(x):
    return x / (1 + np.exp(-x))


def retained_scores(q, k, v, inner, outer):
    """Returns [H, n]. q [n, G d], k and v [n, H d] before rotation; inner [I, .], outer [H, I]; no
    biases, no squashing."""
    x = np.concatenate([np.asarray(y, float) for y in (q, k, v)], -1)
    return (silu(x @ np.asarray(inner, float).T) @ np.asarray(outer, float).T).T


def chunked_keep(scores, budget, chunk, stabilizers, local):
    """Returns the entries of one head after each chunk of the prompt, and the lengths of the
    chunks. scores [n] are fixed at the append. The last `local` tokens come after all chunks and
    are never evicted. In all chunks but the last, the newest `stabilizers` stay."""
    end = len(scores) - local
    held, out, lengths = [], [], []
    for start in range(0, end, chunk):
        stop = min(start + chunk, end)
        held = held + list(range(start, stop))
        value = [float(scores[j]) for j in held]
        if start + chunk < end:
            for place in range(max(0, len(held) - stabilizers), len(held)):
                value[place] = np.inf
        held = keep_best(value, held, budget)
        out.append(held)
        lengths.append(stop - start)
    return out, lengths + [local]


# ---- a library's Scissorhands

def summed_keep(weights, window, budget, recent, sinks):
    """Returns scores and kept entries of one head. weights [n, n] of all queries; the last `window`
    of them are summed."""
    score = np.asarray(weights, float)[-window:].sum(0)
    n = len(score)
    safe = sorted(set(range(min(n, sinks))) | set(range(max(0, n - recent), n)))
    if budget >= n:
        return score, list(range(n))
    if len(safe) >= budget:
        return score, safe[len(safe) - budget:]
    rest = [j for j in range(n) if j not in safe]
    return score, sorted(safe + keep_best([score[j] for j in rest], rest, budget - len(safe)))


# ---- H2O as a mask over a full cache

class HeavyMask:
    """One query head, as published: sums grow by the weights of each query. `heavy` and `recent`
    are integer parts of fractions of the prompt's length. The next query reads the best `heavy` of
    the entries before the last `recent`, and the last `recent` entries including its own. One entry
    in between is therefore missing for one step. With recent = 0 it does not read itself, and the
    sums of other entries are kept."""

    def __init__(self, prompt, heavy, recent):
        self.heavy, self.recent = int(heavy * prompt), int(recent * prompt)
        self.sums, self.reads = np.zeros(0), None

    def query(self, weights):
        """weights [rows, n], summed over the rows of this forward pass. `reads`: positions that the
        next query reads."""
        n = np.shape(weights)[-1]
        self.sums = np.concatenate([self.sums, np.zeros(n - len(self.sums))]) + np.sum(weights, axis=0)
        scores = self.sums.copy()
        if n <= self.heavy + self.recent:
            self.reads = list(range(n + 1))
            return scores
        best = keep_best(self.sums[:n - self.recent], list(range(n - self.recent)), self.heavy)
        self.reads = best + list(range(n + 1 - self.recent, n + 1))
        if self.recent:
            stay = set(best) | set(range(n - self.recent, n))
            self.sums[[j for j in range(n) if j not in stay]] = 0
        return scores
