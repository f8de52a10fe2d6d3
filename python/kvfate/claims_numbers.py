"""Statistics of claims: the number of a sample of units, its 95 % interval and the p of its null hypothesis.

Student's t, the normal law, Wilson's interval and ranks come from SciPy.  Resampling is written here.  SciPy's bootstrap has no p and no rule for
undefined replicates, and its permutation_test compares rounded sums with an absolute tolerance.  The seeds are fixed, and the
streams of NumPy's RandomState do not change between versions, so equal input gives equal numbers."""
import functools
import math
from typing import NamedTuple, Optional

import numpy as np

REPLICATES, SAMPLES, LEVEL = 2000, 10000, 0.05  # of the bootstrap; of permutations; of p, q and intervals
SEED, SEED_OF_COVERAGE = 1, 2
ALL_SIGNS = 14          # up to this number of units all patterns of signs are tried
MOST_LEFT_OUT = 1000    # with more units the acceleration of BCa, of order n^-1/2, counts as 0
CELLS = 1 << 22         # numbers that are resampled at once
TOO_LARGE = 1e150      # squares of larger numbers overflow
NAN = float("nan")


def _special():
    """Returns SciPy's module of laws, which is loaded when it is needed.  Claims about one row do not need it."""
    from scipy import special
    return special


class Sample:
    """Units of a claim.  value, other: [n] float64, `other` is the column `with`; less: a Sample of the same units to
    subtract the statistic of, if there is one."""

    def __init__(self, value, other, less=None):
        self.value, self.other, self.less = value, other, less

    def __len__(self):
        return len(self.value)


class Measured(NamedTuple):
    """The number of a claim in one model.

    value; names: labels of the units or clusters, which are the same in models that read the same texts; sample: the Sample of these units, or None
    if the number is one row; low, high: its interval; common: False if equal names are not the same thing, such as heads of two models."""
    value: float
    names: tuple = ()
    sample: Optional[Sample] = None
    low: float = NAN
    high: float = NAN
    common: bool = True


# ---- the number of a sample

def spearman(v, w):
    """Returns the rank correlation along the last axis; NaN if one side does not vary."""
    from scipy.stats import rankdata
    a, b = (rankdata(x, axis=-1) - (x.shape[-1] + 1) / 2 for x in (v, w))
    size = np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    return np.divide((a * b).sum(-1), size, out=np.full(np.shape(size), NAN), where=size > 0)


def _quantiles(*shares):
    return lambda c, v, w: functools.reduce(lambda a, b: b - a, np.quantile(v, shares, axis=-1))


REDUCE = {"mean": lambda c, v, w: v.mean(-1), "median": _quantiles(0.5), "least": _quantiles(0), "largest": _quantiles(1),
          "spread": _quantiles(0.1, 0.9), "share": lambda c, v, w: (v > c.at if c.at_than == ">" else v < c.at).mean(-1),
          "spearman": lambda c, v, w: spearman(v, w)}


def statistic(c, s, which=slice(None), reduce=None):
    """Returns the number of the units `which` of a sample, an array of any shape [..., n], less that of the same units of s.less."""
    f = REDUCE[reduce or c.reduce]
    x = f(c, s.value[which], s.other[which])
    return x if s.less is None else x - f(c, s.less.value[which], s.less.other[which])


# ---- the bootstrap, bias-corrected and accelerated (Efron 1987)

def _chunks(rows, n):
    """Splits a number of rows of n numbers into parts of at most CELLS numbers."""
    most = max(1, CELLS // n)
    return [min(most, rows - k) for k in range(0, rows, most)]


def _acceleration(c, s):
    n = len(s)
    if n > MOST_LEFT_OUT:
        return 0.0
    every = np.arange(n - 1) + (np.arange(n - 1) >= np.arange(n)[:, None])  # row i lacks unit i
    x = statistic(c, s, every)
    x = x.mean() - x
    squares = (x * x).sum()
    return (x ** 3).sum() / (6 * squares ** 1.5) if squares > 0 else 0.0


class Bootstrap:
    """The BCa bootstrap of a sample with the number `value`.  known is False if fewer than half of the replicates are defined."""

    def __init__(self, c, s, value):
        random = np.random.RandomState(SEED)
        with np.errstate(invalid="ignore"):
            x = np.concatenate([statistic(c, s, random.randint(0, len(s), (rows, len(s)))) for rows in _chunks(REPLICATES, len(s))])
        self.x = x[~np.isnan(x)]  # a rank correlation of equal values is not defined
        self.known = len(self.x) >= REPLICATES / 2
        if self.known:
            self.bias, self.acceleration = _special().ndtri(self._below(value)), _acceleration(c, s)

    def _below(self, x):
        """Returns the fraction of replicates below x, equal ones by half, never 0 or 1."""
        below = (self.x < x).sum() + (self.x == x).sum() / 2
        return min(max(below, 0.5), len(self.x) - 0.5) / len(self.x)

    def end(self, share):
        law = _special()
        z = self.bias + law.ndtri(share)
        bent = 1 - self.acceleration * z
        return float(np.quantile(self.x, law.ndtr(self.bias + z / bent) if bent > 0 else float(z > 0)))

    def p(self, null):
        """Returns the level at which the interval ends at the null."""
        if math.isnan(null):
            return NAN
        w = _special().ndtri(self._below(null)) - self.bias
        bent = 1 + self.acceleration * w
        z = w / bent - self.bias if bent > 0 else math.copysign(10, w)
        return max(p_of_z(z), 1 / len(self.x))


# ---- p

def p_of_z(z):
    """Returns the two-sided p of a number of the normal law."""
    return math.erfc(abs(z) / math.sqrt(2))


def t_of_level(df, level=LEVEL):
    """Returns the end of Student's interval.  stdtrit of SciPy before 1.12 has 8 digits; the beta law has all."""
    x = _special().betaincinv(df / 2, 0.5, level)
    return math.sqrt(df * (1 - x) / x)


def _p_of_t(v, null):
    error, far = v.std(ddof=1) / math.sqrt(len(v)), v.mean() - null
    if not error > 0:
        return NAN if math.isnan(null) else float(far == 0)
    if not math.isfinite(error):
        return NAN
    return float(2 * _special().stdtr(len(v) - 1, -abs(far / error)))


def _p_of_share(share, null, n):
    """Returns p of the score test, of which Wilson's interval is the inversion."""
    variance = null * (1 - null) / n
    return p_of_z((share - null) / math.sqrt(variance)) if variance > 0 else NAN if math.isnan(null) else float(share == null)


def _p_of_signs(v):
    """Returns p of the hypothesis that both signs of each value are equally likely.  Sums that differ by rounding are equally far."""
    n, random = len(v), np.random.RandomState(SEED)
    far = abs(v.sum()) - 1e-12 * abs(v).sum()
    if n <= ALL_SIGNS:
        minus = np.arange(1 << n)[:, None] >> np.arange(n) & 1
        return float((abs((1 - 2 * minus) @ v) >= far).mean())
    seen = sum((abs((1 - 2 * random.randint(0, 2, (rows, n))) @ v) >= far).sum() for rows in _chunks(SAMPLES, n))
    return (1 + int(seen)) / (1 + SAMPLES)


def _p_of_orders(s):
    """Returns p of the hypothesis that the values are independent of `other`, from random orders."""
    seen = abs(spearman(s.value, s.other))
    if np.isnan(seen):
        return NAN
    from scipy.stats import rankdata
    random, (a, b) = np.random.RandomState(SEED), (rankdata(x) - (len(s) + 1) / 2 for x in (s.value, s.other))
    limit = (seen - 1e-12) * math.sqrt((a @ a) * (b @ b))
    far = sum((abs(a[random.rand(rows, len(s)).argsort(1)] @ b) >= limit).sum() for rows in _chunks(SAMPLES, len(s)))
    return (1 + int(far)) / (1 + SAMPLES)


def p_between(c, value, low, high):
    """Returns p of a claim from the p of its two nulls: the larger p inside, and outside the p of the nearer end."""
    if c.than != "between":
        return low
    return low if value < c.null else high if value > c.null_high else max(low, high)


# ---- intervals

def interval(c, s, value):
    """Returns (low, high, p) of a sample with the number `value`; all are NaN for fewer than two units."""
    if c.interval == "none" or len(s) < 2:
        return NAN, NAN, NAN
    ends, ps = (NAN, NAN), (NAN, NAN)
    if c.interval == "wilson":
        from scipy.stats import binomtest
        ci = binomtest(round(value * len(s)), len(s)).proportion_ci(method="wilson")
        ends, ps = (ci.low, ci.high), [_p_of_share(value, x, len(s)) for x in (c.null, c.null_high)]
    elif c.reduce == "mean" and c.interval != "bca":
        radius = t_of_level(len(s) - 1) * s.value.std(ddof=1) / math.sqrt(len(s))
        mean = s.value.mean()
        ends, ps = (mean - radius, mean + radius), [_p_of_t(s.value, x) for x in (c.null, c.null_high)]
    else:
        b = Bootstrap(c, s, value)
        if b.known:
            ends, ps = (b.end(LEVEL / 2), b.end(1 - LEVEL / 2)), [b.p(x) for x in (c.null, c.null_high)]
    if c.interval == "permutation":
        ps = [_p_of_orders(s) if c.reduce == "spearman" else _p_of_signs(s.value - c.null), NAN]
    return float(ends[0]), float(ends[1]), p_between(c, value, *ps)


# ---- simulated coverage

LAWS = {"normal": lambda u: _special().ndtri(u), "exponential": lambda u: -np.log1p(-u), "t3": lambda u: _special().stdtrit(3, u)}
POPULATION, DRAWS_OF_T, DRAWS_OF_BCA = 2001, 2000, 200
_covered = {}  # claims of equal kind have equal coverage


def coverage(c, n, law):
    """Returns the fraction of simulated samples of n units in which the interval covers the truth.  The units are drawn from a population of
    quantiles of a law, and the number of the population is the truth.  NaN without resampling or if n < 2."""
    if n < 2 or c.reduce in ("one", "share", "spearman") or c.interval == "none":
        return NAN
    kind = "t" if c.interval == "permutation" else c.interval  # a permutation has this interval, and its p is not used
    key = c.reduce, kind, n, law
    if key not in _covered:
        population = LAWS[law]((np.arange(POPULATION) + 0.5) / POPULATION)
        truth, draws = float(statistic(c, Sample(population, population))), DRAWS_OF_T if kind == "t" else DRAWS_OF_BCA
        random, covered, simulated = np.random.RandomState(SEED_OF_COVERAGE), 0, c.replace(interval=kind)
        for _ in range(draws):
            v = population[random.randint(0, POPULATION, n)]
            low, high, _ = interval(simulated, Sample(v, v), float(statistic(c, Sample(v, v))))
            covered += low <= truth <= high
        _covered[key] = covered / draws
    return _covered[key]
