"""Claims over several models: the number of a claim in each family of models, its mean over families, a 95 % interval and the heterogeneity.

Families are the units, because models of one family resemble one another.  Models of a family are averaged first.  The mean over K families has equal
weights and Student's interval with K - 1 degrees of freedom.  Its level of 5 % holds also if the variances of the families differ (Bakirov and Szekely
2005, Ibragimov and Mueller 2010).  Weights by precision exceed the level for few families of unequal precision (Roever, Knapp and Friede 2015).
All models read the same texts, so a part of their errors is common.  This part does not show in the spread of the families and is added.
docs/studies/claims.md describes the method."""
import math
from typing import NamedTuple

import numpy as np

from .claims_judge import LEVEL, VERDICTS, adjust, fresh, side_of, too_few, unguard, weigh_null
from .claims_numbers import NAN, SEED, p_between, statistic, t_of_level

LEAST_FAMILIES = 3
REPLICATES = 1000  # of the common bootstrap of statistics that are not means
Z975 = 1.959963984540054  # quantile 0.975 of the normal law


class Pooled(NamedTuple):
    """A number over K families.

    value: their mean; spread, common: the two parts of its variance, from differences between families and from the texts that all models read, with
    K - 1 and df degrees of freedom; tau, tau_low, tau_high: the standard deviation between families beyond the sampling error, with its 95 % interval;
    i2: the fraction of the families' variance that is not sampling error; predicted_low, predicted_high: where 95 % of further families would be
    measured on the same texts."""
    value: float
    families: int
    spread: float
    common: float
    df: float
    tau: float = NAN
    tau_low: float = NAN
    tau_high: float = NAN
    i2: float = NAN
    predicted_low: float = NAN
    predicted_high: float = NAN

    def radius(self, level=LEVEL):
        """Returns half of the interval's width.  The squares of the half widths of both parts are added, each with its own degrees of freedom."""
        of_texts = t_of_level(self.df, level) ** 2 * self.common if self.common > 0 else 0.0
        return math.sqrt(t_of_level(self.families - 1, level) ** 2 * self.spread + of_texts)

    def p(self, null):
        """Returns the level at which the interval ends at `null`."""
        from scipy.optimize import brentq
        far = abs(self.value - null)
        if math.isnan(far) or not self.spread + self.common > 0:
            return NAN if math.isnan(far) else float(far == 0)
        least, most = math.log(1e-12), math.log(1 - 1e-12)
        if self.radius(math.exp(least)) <= far or self.radius(math.exp(most)) >= far:
            return 1e-12 if self.radius(math.exp(least)) <= far else 1.0
        return math.exp(brentq(lambda x: self.radius(math.exp(x)) - far, least, most, xtol=1e-12))


# ---- the sampling errors of the models

def _replicates(c, a, b, at_a, at_b):
    """Returns the covariance of a statistic of two models when the texts that both have are drawn anew for both at once."""
    draws = np.random.RandomState(SEED).randint(0, len(at_a), (REPLICATES, len(at_a)))
    x = np.array([statistic(c, m.sample, at[draws]) for m, at in ((a, at_a), (b, at_b))], float)
    x = x[:, np.isfinite(x).all(0)]
    return float(np.cov(x)[0, 1]) if x.shape[1] > REPLICATES // 2 else NAN


def _covariance(c, a, b):
    """Returns the covariance of the sampling errors of two models, or the variance of one if a is b."""
    if a.sample is None or b.sample is None:
        return ((a.high - a.low) / (2 * Z975)) ** 2 if a is b else 0.0
    if a is not b and not (a.common and b.common):
        return 0.0
    place = {name: k for k, name in enumerate(b.names)}
    both = np.array([(k, place[name]) for k, name in enumerate(a.names) if name in place], int).reshape(-1, 2)
    if len(both) < 2:
        return NAN if a is b else 0.0
    if c.reduce != "mean":
        return _replicates(c, a, b, both[:, 0], both[:, 1]) * len(both) ** 2 / (len(a.names) * len(b.names))
    x, y = (m.sample.value - (0 if m.sample.less is None else m.sample.less.value) for m in (a, b))
    return len(both) * float(np.cov(x[both[:, 0]], y[both[:, 1]])[0, 1]) / (len(x) * len(y))


def covariances(c, models):
    """Returns the covariances of the models' sampling errors, [models][models]; not finite where a model's variance is unknown."""
    n = len(models)
    out = np.empty((n, n))
    for i in range(n):
        for j in range(i + 1):
            out[i, j] = out[j, i] = _covariance(c, models[i], models[j])
    return out


# ---- families

def families_of(values, errors, families):
    """Returns (names of the families, means of their models [K], covariances of these means [K][K]).

    values: [models]; errors: covariances of the models' sampling errors; families: the family of each model."""
    names = sorted(set(families))
    share = np.array([[1 / families.count(name) if f == name else 0.0 for f in families] for name in names])
    return names, share @ np.asarray(values, float), share @ errors @ share.T


def _common(errors):
    """Returns the sampling variance that all families share: the mean of their covariances, at least 0."""
    return max(0.0, float(errors[~np.eye(len(errors), dtype=bool)].mean()))


def mean_of(y, errors, units):
    """Returns the Pooled mean of K families without its heterogeneity.

    y: [K]; errors: covariances of their sampling errors; units: how many texts or clusters all models have in common."""
    return Pooled(float(np.mean(y)), len(y), float(np.var(y, ddof=1)) / len(y), _common(errors), max(1, units - 1))


def _distance(y, own, tau2):
    """Returns Cochran's Q of the families with a variance tau2 between them."""
    w = 1 / (own + tau2)
    return float((w * (y - (w * y).sum() / w.sum()) ** 2).sum())


def _tau2(y, own, wanted):
    """Returns the variance between families at which Q has the value `wanted`; 0 if Q is smaller without any."""
    from scipy.optimize import brentq
    if _distance(y, own, 0.0) <= wanted:
        return 0.0
    top = float(np.var(y)) + float(own.max())
    while _distance(y, own, top) > wanted:
        top *= 2
    return float(brentq(lambda x: _distance(y, own, x) - wanted, 0.0, top, xtol=1e-12 * top, rtol=1e-12))


def heterogeneity(y, own):
    """Returns (tau, low, high, I^2) of K families with the sampling variances own [K].

    tau is that of Paule and Mandel (1982), its interval that of the Q profile (Viechtbauer 2007), I^2 that of Higgins and Thompson (2002)."""
    from scipy.special import chdtri
    k = len(y)
    if not (own > 0).all():
        return float(np.std(y, ddof=1)), NAN, NAN, NAN
    tau2, low, high = (_tau2(y, own, q) for q in (k - 1, chdtri(k - 1, LEVEL / 2), chdtri(k - 1, 1 - LEVEL / 2)))
    w = 1 / own
    typical = (k - 1) * w.sum() / (w.sum() ** 2 - (w * w).sum())
    return math.sqrt(tau2), math.sqrt(low), math.sqrt(high), tau2 / (tau2 + typical)


def prediction_radius(mean):
    """Returns half of the width of the interval in which 95 % of further families would be measured on the same texts."""
    return t_of_level(mean.families - 1) * math.sqrt(mean.spread * (mean.families + 1))


def pool(c, models, families):
    """Returns the Pooled number of a claim, or None if a sampling error is unknown.  models: list of Measured; families: the family of each."""
    _, y, errors = families_of([m.value for m in models], covariances(c, models), list(families))
    if not np.isfinite(errors).all():
        return None
    mean = mean_of(y, errors, len(set.intersection(*(set(m.names) for m in models))))
    own = np.diag(errors) - mean.common
    own = own if (own > 0).all() else np.full(len(y), own.mean())  # which is never below 0
    tau, low, high, i2 = heterogeneity(y, own)
    radius = prediction_radius(mean)
    return mean._replace(tau=tau, tau_low=low, tau_high=high, i2=i2, predicted_low=mean.value - radius, predicted_high=mean.value + radius)


# ---- verdicts

def _lacking(families):
    """Returns why families do not suffice for a verdict, or an empty text."""
    n = len(set(families))
    return "" if n >= LEAST_FAMILIES else "%d famil%s; a verdict over models needs %d" % (n, "y" if n == 1 else "ies", LEAST_FAMILIES)


def _by_number(c, found):
    """Returns (verdict, Pooled or None, reason) of a number.  found: [(Measured, family)]."""
    families = [family for _, family in found]
    if _lacking(families):
        return "undecided", None, _lacking(families)
    pooled = pool(c, [m for m, _ in found], families)
    if pooled is None:
        return "undecided", None, "a sampling error is not known"
    if not p_between(c, pooled.value, pooled.p(c.null), pooled.p(c.null_high)) < LEVEL:
        return "undecided", pooled, ""
    return side_of(c, pooled.value - pooled.radius(), pooled.value + pooled.radius()), pooled, ""


def _of_theorem(c, found):
    """Returns (verdict, value, reason) of a claim that must hold in each model: the value that is worst for it decides."""
    why = _lacking([family for _, family in found])
    values = [m.value for m, _ in found]
    worst = {">": min, "<": max, "between": lambda v: max(v, key=lambda x: abs(x - (c.null + c.null_high) / 2))}[c.than](values)
    return "undecided" if why else side_of(c, worst, worst), worst, why


def _set_number(c, r, found):
    if c.interval == "none":
        r.verdict, r.value, r.why = _of_theorem(c, found)
    else:
        r.verdict, x, r.why = _by_number(c, found)
        if x is not None:
            r.value, r.low, r.high = x.value, x.value - x.radius(), x.value + x.radius()
            r.p = p_between(c, x.value, x.p(c.null), x.p(c.null_high))
            r.tau, r.tau_low, r.tau_high, r.i2, r.predicted_low, r.predicted_high = x.tau, x.tau_low, x.tau_high, x.i2, x.predicted_low, x.predicted_high
    r.by_number = r.verdict


def _set_null(c, r, results, families):
    """Compares with the null data: the difference of each model is averaged as its number is."""
    found = [(x.difference_measured, f) for x, f in zip(results, families) if x.difference_measured is not None and not math.isnan(x.difference)]
    _, x, why = _by_number(c.replace(than=">", null=0.0, null_high=NAN), found)
    known = [(x.null_value, f) for x, f in zip(results, families) if x.difference_measured is not None]
    if x is not None:
        r.difference, r.difference_low, r.difference_high, r.difference_p = x.value, x.value - x.radius(), x.value + x.radius(), x.p(0.0)
        r.difference_units = x.families
        r.null_value = float(families_of([v for v, _ in known], np.zeros((len(known), len(known))), [f for _, f in known])[1].mean())
    r.null_check = "not run"
    weigh_null(c, r, "null data of " + why if why else "")


def judge_over(c, results, families):
    """Judges one claim over models as if it were the only one.  results: those of the models by claims_judge; families: the family of each."""
    r = fresh()
    r.models, r.tau, r.tau_low, r.tau_high, r.predicted_low, r.predicted_high = 0, NAN, NAN, NAN, NAN, NAN
    found = [(x.measured, f) for x, f in zip(results, families) if x.measured is not None and not math.isnan(x.value) and not too_few(c, x)]
    if not found:
        r.verdict = r.by_number = next(v for v in reversed(VERDICTS) if any(x.verdict == v for x in results))
        r.why = next(x.why for x in results if x.verdict == r.verdict)
        return r
    r.models, r.units = len(found), len({f for _, f in found})
    r.left_out = len(results) - len(found)
    _set_number(c, r, found)
    by_family = families_of([m.value for m, _ in found], np.zeros((len(found), len(found))), [f for _, f in found])[1]
    r.on_side = sum(side_of(c, v, v) == "supported" for v in by_family)
    if c.control:
        controls = [(x.control_measured, f) for x, f in zip(results, families) if x.control_measured is not None]
        r.control = _by_number(c, controls)[0]
        if r.verdict == "supported" and r.control != "supported":
            r.verdict, r.why = "undecided", "the matched control is %s" % r.control
    if c.no_null:
        r.null_check = "not possible"
    elif c.null_check:
        _set_null(c, r, results, families)
    else:
        unguard(r, "the register names none")
    return r


def judge_all_over(claims, results, families):
    """Judges all claims of a register over models.  results: [models][claims]."""
    over = [judge_over(c, list(of_models), families) for c, of_models in zip(claims, zip(*results))]
    adjust(over, [NAN if math.isnan(r.p) else r.p if math.isnan(r.difference_p) else max(r.p, r.difference_p) for r in over])
    return over
