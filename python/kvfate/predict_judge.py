"""Correlates candidates of `kvfate predict` with the effect: rank correlations, their interval, and tests by permutations and circular shifts.

Heads of one layer resemble each other, and layers resemble their neighbours.  No test here takes heads or entries as exchangeable.
docs/reference/analyses/predict.md defines every number.  The seeds are fixed, and the streams of NumPy's RandomState do not change between versions."""
import math
from types import SimpleNamespace

import numpy as np

from .fdr import fdr

REPLICATES, PERMUTATIONS = 2000, 10000
LEAST_LAYERS = 4  # that a test of depth needs
CELLS = 1 << 22   # numbers that are resampled at once
NAN = float("nan")


def ranks(v):
    """Returns the ranks of values from 1; equal values share the mean of their ranks."""
    _, which, counts = np.unique(v, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[which]


def _unit(v, scale):
    """Returns v with length 1, or None if it is 0 except for rounding.  scale: the size of v before a part of it was subtracted."""
    size = math.sqrt(v @ v)
    return v / size if size > 1e-9 * scale else None


def _without_line(v, place):
    """Returns v less its line of least squares over place."""
    x, y = place - place.mean(), v - v.mean()
    square = x @ x
    return y - x * (x @ y / square) if square > 0 else y


def _without_ends(v, place):
    """Returns v less the line from its first to its last value, and less the mean of the rest: a random walk then ends where it begins, as a
    circle does."""
    x, y = place - place.mean(), v - v.mean()
    wide = place[-1] - place[0]
    return y - x * ((v[-1] - v[0]) / wide) if wide > 0 else y


class _Pair:
    """A candidate and the effect of one document.

    rho: rank correlation of all units; rest: both residuals of ranks, of length 1; series: for each of the two lines both series
    that circular shifts take, the means of layers or the ranks of entries.  rest and series are None if a side does not vary."""

    def __init__(self, values, place, group):
        """values: the candidate and the effect of the n units; place: [n] positions of entries, or the numbers of the groups; group: [n] the
        group of each head; None for entries."""
        n = len(values[0])
        both, scale = [ranks(v) for v in values], float(n) * n
        a, b = (r - (n + 1) / 2 for r in both)
        self.n, self.rho = n, a @ b / math.sqrt((a @ a) * (b @ b))
        series = both
        if group is not None:
            series = [np.bincount(group, r) / np.bincount(group) for r in both]
            rest = [r - mean[group] for r, mean in zip(both, series)]
        else:
            rest = [_without_line(r, place) for r in both]
        self.rest = self._whole([_unit(v, scale) for v in rest])
        series = [self._whole([_unit(line(v, place), scale) for v in series]) for line in (_without_line, _without_ends)]
        enough = all(series) and (group is None or len(place) >= LEAST_LAYERS)
        self.series = series if enough else None

    @staticmethod
    def _whole(both):
        return None if any(v is None for v in both) else both

    @property
    def partial(self):
        return self.rest[0] @ self.rest[1]


# ---- which values take part

def pairs_of(v, values):
    """Returns (the pairs in which candidate and effect vary, the layer of each head that counts; None for entries).

    v: predict_values.Values; values: [pairs][units] of the candidate.  Heads count that have both numbers in each pair that has any."""
    both = ~np.isnan(values) & ~np.isnan(v.effect)
    present = np.flatnonzero(both.any(1))
    out, group = [], None
    crossed = both[present].all(0)
    if not v.entries:
        layers, group = np.unique(np.flatnonzero(crossed) // v.heads, return_inverse=True)
    for p in present:
        take = np.flatnonzero(both[p] if v.entries else crossed)
        numbers = values[p, take], v.effect[p, take]
        if all(len(x) and (x != x[0]).any() for x in numbers):
            out.append(_Pair(numbers, take.astype(float) if v.entries else layers.astype(float), group))
    return out, group


# ---- the interval of the partial correlation

def _of_layers(pair, group, picks):
    """Returns the correlations [replicates] of a pair for drawn layers: picks [replicates][layers]."""
    a, b = pair.rest
    ab, aa, bb = (np.bincount(group, x)[picks].sum(1) for x in (a * b, a * a, b * b))
    return ab / np.sqrt(aa * bb)  # NaN: layers without variance


def _of_blocks(pair, rows, random):
    """Returns the correlations [rows] of a pair of which blocks of neighbours were drawn, as long as the root of their number.  The first
    entry follows the last."""
    n, (a, b) = pair.n, pair.rest
    length = math.ceil(math.sqrt(n))
    lengths = np.full(-(-n // length), length)
    lengths[-1] = n - length * (len(lengths) - 1)
    starts = random.randint(0, n, (rows, len(lengths)))

    def total(x):
        sums = np.concatenate([[0], np.cumsum(np.concatenate([x, x[:length]]))])
        return (sums[starts + lengths] - sums[starts]).sum(1)

    sa, sb = total(a), total(b)
    va, vb, ab = total(a * a) - sa * sa / n, total(b * b) - sb * sb / n, total(a * b) - sa * sb / n
    return np.where((va > 1e-12) & (vb > 1e-12), ab / np.sqrt(np.maximum(va * vb, 1e-300)), NAN)


def _bootstrap(pairs, group):
    """Returns the 95 % interval of the mean partial correlation.  Documents are drawn with replacement, and units too: layers once for all
    documents (Owen 2007), blocks of entries separately for each drawn document."""
    random, n = np.random.RandomState(0), len(pairs)
    sums = np.zeros(REPLICATES)
    with np.errstate(invalid="ignore"):
        if group is not None:
            layers = group[-1] + 1
            picks = random.randint(0, layers, (REPLICATES, layers))
            every = np.array([_of_layers(p, group, picks) for p in pairs])
        for _ in pairs:
            drawn = random.randint(0, n, REPLICATES)
            for k, pair in enumerate(pairs):
                at = np.flatnonzero(drawn == k)
                sums[at] += every[k, at] if group is not None else _of_blocks(pair, len(at), random)
    means = sums[~np.isnan(sums)] / n
    return np.quantile(means, [0.025, 0.975]) if len(means) else (NAN, NAN)


# ---- tests: p = (1 + as far) / (1 + permutations), two-sided (Phipson and Smyth 2010)

def permutations_p(judged, group):
    """Sets p of candidates with heads in the same layers.  Heads are permuted within their layers, alike in all documents.

    judged: [(pairs with residuals, the row to complete)]; all of them share the permutations."""
    random, n, far = np.random.RandomState(1), len(group), np.ones(len(judged))
    most = max(1, CELLS // n)
    for first in range(0, PERMUTATIONS, most):
        order = (group + random.rand(min(most, PERMUTATIONS - first), n)).argsort(1)
        for k, (pairs, row) in enumerate(judged):
            means = sum(pair.rest[0][order] @ pair.rest[1] for pair in pairs) / len(pairs)
            far[k] += (abs(means) >= abs(row.partial) - 1e-12).sum()
    for (_, row), x in zip(judged, far):
        row.p = x / (1 + PERMUTATIONS)


def _shifts(a, b):
    """Returns the sum of a[i] b[i + k] over a circle for every k."""
    return np.fft.irfft(np.conj(np.fft.rfft(a)) * np.fft.rfft(b), len(a))


def _shift_p(pairs, heads):
    """Returns (the larger p of circular shifts without either line, the mean correlation of the series without the line of least squares).

    Layers are shifted alike in all documents, entries of each document by a number of their own.  Every shift is tried where there is one
    number and it has few values, otherwise as many random ones as there are permutations."""
    ps, seen = [], []
    for line in range(2):
        random, every = np.random.RandomState(1), [_shifts(*pair.series[line]) for pair in pairs]
        if (heads or len(pairs) == 1) and len(every[0]) <= PERMUTATIONS + 1:
            means = sum(every) / len(pairs)
        else:
            by = [np.concatenate([[0], random.randint(0, len(x), PERMUTATIONS)]) for x in every[:1 if heads else None]]
            means = sum(x[by[0 if heads else k]] for k, x in enumerate(every)) / len(pairs)
        ps.append((abs(means) >= abs(means[0]) - 1e-12).mean())
        seen.append(means[0])
    return max(ps), seen[0]


def judge(v, values, row):
    """Completes the row of a candidate, all but p of heads.  Returns (pairs with residuals, the layer of each head)."""
    pairs, group = pairs_of(v, values)
    row.documents = len(pairs)
    row.n = 0 if not pairs else sum(pair.n for pair in pairs) if v.entries else pairs[0].n
    row.rho = sum(pair.rho for pair in pairs) / len(pairs) if pairs else NAN
    known = [pair for pair in pairs if pair.rest]
    if known:
        row.partial = sum(pair.partial for pair in known) / len(known)
        row.low, row.high = _bootstrap(known, group)
    shifted = [pair for pair in pairs if pair.series]
    if shifted:
        p, seen = _shift_p(shifted, not v.entries)
        if v.entries:
            row.p = p
        else:
            row.depth_p, row.depth_rho = p, seen
    return known, group


def judge_all(v):
    """Returns a row for each candidate of v: candidate, reduce, n, documents, rho, partial, low, high, p, q, depth_rho, depth_p, depth_q."""
    rows, alike = [], {}
    for (name, reduce), values in v.candidates.items():
        row = SimpleNamespace(candidate=name, reduce=reduce, n=0, documents=0, rho=NAN, partial=NAN, low=NAN, high=NAN, p=NAN, q=NAN, depth_rho=NAN,
                              depth_p=NAN, depth_q=NAN)
        rows.append(row)
        known, group = judge(v, values, row)
        if known and group is not None:
            alike.setdefault(group.tobytes(), (group, []))[1].append((known, row))
    for group, judged in alike.values():
        permutations_p(judged, group)
    for p, q in (("p", "q"), ("depth_p", "depth_q")):
        for row, x in zip(rows, fdr([getattr(row, p) for row in rows])):
            setattr(row, q, float(x))
    return rows
