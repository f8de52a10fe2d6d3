"""Brute force for statistics of selected sets.  S[..., t, i] is true if query t of a query head selected token i.  All
counts follow the definition, cell by cell.  A member of a row is a list of S [T, T]: a token is selected if any of
them selects it.
"""
from fractions import Fraction

import numpy as np

Z = 1.959963984540054


def members_of(space, S, layer, index, share):
    """Return the members of the head of that layer and index, from S [L, G, T, T]."""
    if space == "query":
        return [[S[layer, index]]]
    group = [S[layer, index * share + k] for k in range(share)]
    return [group] if space == "kv-union" else [[s] for s in group]


def rows_of(space, L, H, G):
    n, letter = (G, "H") if space == "query" else (H, "K")
    return [(l, h, f"L{l}{letter}{h}") for l in range(L) for h in range(n)]


def last_age(s):
    T = len(s)
    return np.array([(np.flatnonzero(s[i:, i])[-1] if s[i:, i].any() else -1) for i in range(T)], int)


NOBODY, NO, YES, OPEN = 0, 1, 2, 3


def states(heads, n, tokens, asks):
    """Return the state of each token at horizon n, knowing for each head only the last query that selected it; asks
    [T]: queries that count.
    """
    T, out = len(asks), []
    last = [np.where(s.any(0), T - 1 - s[::-1].argmax(0), -1)[list(tokens)] for s in heads if len(tokens)]
    for k, i in enumerate(tokens):
        state, really = NO, any((s[i + n:, i] & asks[i + n:]).any() for s in heads)
        by = [x[k] for x in last if x[k] >= 0]
        if not asks[i + n:].any():
            state = NOBODY
        elif any(asks[q] and q >= i + n for q in by):
            state = YES
        elif any(not asks[q] and asks[i + n:q].any() for q in by):
            state = OPEN  # an earlier selection may be by a query that counts, or not
        assert state in (NOBODY, OPEN) or (state == YES) == really
        out.append(state)
    return np.array(out, int)


known_states = {}


def all_states(members, n, tokens, asks):
    """Return the states, computed once per question."""
    for heads in members:
        key = tuple(s.ctypes.data for s in heads), n, str(tokens), asks.tobytes()
        if key not in known_states:
            known_states[key] = states(heads, n, tokens, asks), heads  # keep the arrays, whose addresses are the key
        yield known_states[key][0]


def survival(members, n, tokens, asks, everyone=False):
    """Return (at risk and known, alive, open) over the tokens of all members."""
    x = np.concatenate([*all_states(members, n, tokens, asks), np.zeros(0, int)])
    known = (x == YES) | (x == NO)
    return [int((known | (x == NOBODY) if everyone else known).sum()), int((x == YES).sum()), int((x == OPEN).sum())]


def gap(one, other, n, tokens, asks):
    """Return (known, difference, open) of tokens alive in `other` less those alive in `one`, both known."""
    x, y = (np.concatenate([*all_states(m, n, tokens, asks), np.zeros(0, int)]) for m in (one, other))
    known, unknown = (x != OPEN) & (y != OPEN) & (x != NOBODY), (x == OPEN) | (y == OPEN)
    return [int(known.sum()), int((known & (y == YES)).sum() - (known & (x == YES)).sum()), int(unknown.sum())]


def log_log(S, G, risk):
    """Return the ends of the 95 % interval on the scale log(-log S); without a death the exact binomial bound."""
    if S == 1:
        return .025**(1 / risk) if risk else 1., 1.
    if not 0 < S < 1:
        return np.nan, np.nan
    g, radius = np.log(-np.log(S)), Z * np.sqrt(G) / -np.log(S)
    return np.exp(-np.exp(g + radius)), np.exp(-np.exp(g - radius))


def hazard(members, tokens, T, bins, grace=0):
    """Return rows (low, high, at risk, events, censored, exposure, hazard, actuarial, S, low, high)."""
    lives = []  # (age of the last selection, age from which the life is unknown)
    for heads in members:
        ages = np.max([last_age(s) for s in heads], axis=0) if T else []
        lives += [(ages[i], T - 1 - i - grace) for i in tokens if T - 1 - i - grace >= 0]
    rows, survival, green, S = [], 1., 0., {}
    last, end = np.array(lives, int).reshape(-1, 2).T
    risk = {x: int(((last >= x) & (end > x)).sum()) for x in range(-1, T + 1)}
    died = {x: int(((last == x) & (end > x)).sum()) for x in range(-1, T + 1)}
    for x in range(-1, T + 1):
        S[x] = survival, green
        if risk[x] == 0 and survival != 0:
            survival = np.nan
        elif survival != 0:
            green += died[x] / (risk[x] * (risk[x] - died[x])) if died[x] < risk[x] else np.nan
            survival = survival * (1 - died[x] / risk[x])
    for low, high in bins:
        ages = range(low, T if high < 0 else min(high, T))
        if low >= T:
            rows.append((low, high, 0, 0, 0, 0) + (np.nan,) * 5)
            continue
        d, exposure = sum(died[x] for x in ages), sum(risk[x] for x in ages)
        stop = ages[-1] + 1 if len(ages) else low
        gone = risk[low] - (risk[stop] if stop <= T else 0) - d
        s, g = S[low] if low <= max((c for _, c in lives), default=-2) else (np.nan, np.nan)
        rows.append((low, high, risk[low], d, gone, exposure, d / exposure if exposure else np.nan,
                     d / (risk[low] - gone / 2) if risk[low] else np.nan, s, *log_log(s, g, risk[low - 1] if low >= 0 else 0)))
    return rows


def lives(members, tokens, end, grace, asks=None):
    """Return (age of the last selection by a query that counts, age from which the life is unknown) of each token of
    each member.
    """
    out = []
    for heads in members:
        seen = np.any(heads, axis=0) if asks is None else np.any(heads, axis=0) & np.asarray(asks)[:, None]
        for i in tokens:
            c = end - 1 - i - grace
            ages = np.flatnonzero(seen[i:, i])
            if c >= 0:
                out.append((int(ages[-1]) if len(ages) else -1, int(c)))
    return out


def at_age(known, x):
    """Return how many lives (a, c) are at risk at age x, and how many of them end there."""
    risk = [a for a, c in known if a >= x and c > x]
    return len(risk), risk.count(x)


def kaplan_meier(known, to):
    """Return (S(n), sum of d / (r (r - d)) below n) of lives (a, c) for n = 0 ... to; NaN once it is undefined."""
    S, G, out = Fraction(1), Fraction(0), []
    for x in range(-1, to):
        risk, died = at_age(known, x)
        if not risk:
            return out + [(np.nan, np.nan)] * (to - x)
        if died == risk:
            return out + [(0., np.nan)] * (to - x)
        S, G = S * Fraction(risk - died, risk), G + Fraction(died, risk * (risk - died))
        out.append((float(S), float(G)))
    return out


def restricted_mean(known, h):
    """Return the sum of S(n) below h, and the root of the sum of A(x)^2 d / (r (r - d)), with A(x) the sum above x."""
    S, variance = [s for s, _ in kaplan_meier(known, h - 1)], 0.
    for x in range(-1, h - 1):
        risk, died = at_age(known, x)
        left = sum(S[x + 1:])
        if died and left:
            variance += left**2 * died / (risk * (risk - died))
    return sum(S), np.sqrt(variance)


def octaves(T):
    edges = [0] + [2**k for k in range(30) if 2**k < T] if T else []
    return [(-1, 0)] + [(e, max(1, 2 * e)) for e in edges]


def at_ages(members, tokens, T, k, grace):
    """Return (tokens at risk at age 2^k, selected ones)."""
    n = yes = 0
    for heads in members:
        for i in tokens:
            if i + 2**k < T and T - 1 - i >= grace:
                n += 1
                yes += any(s[i + 2**k, i] for s in heads)
    return n, yes


def concentration(groups):
    """Return M of a beta-binomial around each list's own rate, by moments; groups: lists of (n, y)."""
    spread = base = room = total = 0
    for cells in groups:
        cells = [(n, y) for n, y in cells if n]
        N = sum(n for n, _ in cells)
        if not N:
            continue
        mu = sum(y for _, y in cells) / N
        # of a cell var(y/n) = v (1/n + (1 - 1/n) rho); sum n (p - mu_hat)^2 has mean sum n (1 - n/N) var
        v = mu * (1 - mu)
        spread += sum(n * (y / n - mu)**2 for n, y in cells)
        base += v * sum(n * (1 - n / N) / n for n, y in cells)
        room += v * sum(n * (1 - n / N) * (1 - 1 / n) for n, y in cells)
        total += N
    rho = (spread - base) / room if room > 1e-300 else 1
    return 0 if rho >= 1 else total if rho * (total + 1) <= 1 else 1 / rho - 1


def beta_below(x, a, b):
    """Return the fraction of Beta(a, b) below x: the integral in z = log(x / (1 - x)), whose density is smooth."""
    cut, sd = np.log(x / (1 - x)), np.sqrt(1 / a + 1 / b) + 1e-9
    centre = np.log(a / b)
    z = np.linspace(min(cut, centre) - 40 * sd, max(cut, centre) + 40 * sd, 20001)
    log = a * -np.logaddexp(0, -z) + b * -np.logaddexp(0, z)
    w = np.exp(log - log.max())
    upto = np.concatenate([[0], np.cumsum((w[1:] + w[:-1]) / 2)])
    return np.interp(cut, z, upto / upto[-1])


known_comings = {}


def comings(s, i):
    """Return for token i: (queries that selected it, returns, longest gap, first exit or -1)."""
    key = s.ctypes.data, i
    if key not in known_comings:
        known_comings[key] = all_comings(s, i), s
    return known_comings[key][0]


def all_comings(s, i):
    T = len(s)
    row = [bool(s[t, i]) for t in range(i, T)]
    text = "".join("x" if x else "." for x in row)
    inner = [g for g in text.strip(".").split("x") if g]  # gaps between two selections
    return row.count(True), len(inner), max(map(len, inner), default=0), text.find(".")


def returns(S):
    """Return the columns n_selected, n_returns, longest_gap of S [L, G, T, T]: each [L, G, T]."""
    L, G, T, _ = S.shape
    out = np.zeros((3, L, G, T))
    for l in range(L):
        for g in range(G):
            for i in range(T):
                out[:, l, g, i] = comings(S[l, g], i)[:3]
    return out


def intermittency(members, tokens, what, above, T):
    """Return (tokens, over) for each threshold, then (defined, total, mean, q50, q90, q99, maximum)."""
    v = [(comings(s, i)[what], T - i) for (s,) in members for i in tokens]
    real = [x for x, _ in v if x >= 0]
    shares = []
    for n in above:
        if what == 3:
            asked = [(x, life) for x, life in v if n < life]
            shares.append((len(asked), sum(x > n or x < 0 for x, _ in asked)))
        else:
            shares.append((len(v), sum(x > n for x, _ in v)))
    order = sorted(np.inf if x < 0 else x for x, _ in v)
    q = [order[int(np.ceil(k * len(v) - 1e-9)) - 1] if v else np.inf for k in (.5, .9, .99)]
    return shares, (len(real), sum(real), sum(real) / len(real) if real else np.nan,
                    *(np.nan if np.isinf(x) else x for x in q), max(real, default=-1))
