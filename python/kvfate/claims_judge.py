"""Judges claims by tables: the units of a claim, its number and interval, the verdict, and the checks that can weaken a verdict.

docs/studies/claims.md defines the verdicts and the steps."""
import math
import os
from collections import defaultdict
from types import SimpleNamespace

import numpy as np

from . import saved
from .claims_numbers import LEVEL, NAN, TOO_LARGE, Measured, Sample, interval, p_between, p_of_z, statistic
from .claims_register import MOST_UNITS, Side, comparison, holds
from .errors import Error
from .fdr import fdr

VERDICTS = ("supported", "contradicted", "undecided", "unspecific", "unguarded", "not comparable here", "untestable here", "not run")
NEAR = 1.25             # a row is used for k T if it differs by this factor or less
Z975 = 1.959963984540054  # quantile 0.975 of the normal law
DOCUMENTS = ("doc", "doc_hash", "document")


class Unfit(Exception):
    """A claim that cannot be judged by the tables: the verdict, and the reason."""

    def __init__(self, why, verdict="not run"):
        super().__init__(why)
        self.why, self.verdict = why, verdict


class Folder:
    """The tables of a folder, each read once."""

    def __init__(self, path):
        self.path, self.known = path, {}

    def table(self, side):
        """Returns the table of a side, or None if the file does not exist."""
        name = side.table + ("." + side.run if side.run else "")
        if name not in self.known:
            paths = [os.path.join(self.path, name + end) for end in (".tsv", ".json")]
            path = next((p for p in paths if os.path.exists(p)), None)
            self.known[name] = path and saved.read(path)
        return self.known[name]

    def identity(self, claims):
        """Returns {"model", "model_hash", "family"} of the model that the tables of claims are about.  Null data may be of another model."""
        found = {}
        for side in (s for c in claims if not c.untestable for s in (c.of, c.minus) if s):
            t = self.table(side)
            for key in ("model", "model_hash", "family"):
                if t is not None and key in t.meta:
                    found.setdefault(key, {})[t.meta[key]] = side.table
        for key, values in found.items():
            if len(values) > 1:
                raise Error("%s: its tables are of several models: %s is %s" % (self.path, key, " and ".join("%s in %s" % v for v in sorted(values.items())[:2])))
        if "family" not in found or "model_hash" not in found:
            raise Error("%s: no table names its model_hash and its family, which claims over models need; python/kvfate/claims.sh writes them" % self.path)
        return {key: next(iter(values)) for key, values in {"model": {"unknown": 0}, **found}.items()}


# ---- rows

def _wanted_number(t, column, text):
    """Returns (operator, number) of a cell that is asked of a column of numbers."""
    found = comparison(text)
    if not found:
        raise Unfit('column %s holds numbers, and "%s" is none' % (column, text))
    op, value, of_T = found
    if not of_T:
        return op, value
    T = t.number("T")
    if not T > 0:
        raise Unfit("the table has no length in its metadata: T")
    target = value * T
    if op != "=":
        return op, target
    v = t.reals(column)
    v = v[v > 0]
    far = abs(np.log(v / target))
    if not len(v) or far.min() > math.log(NEAR):
        raise Unfit("no %s near %s = %g; the nearest is %g" % (column, text, target, v[far.argmin()] if len(v) else NAN))
    return op, float(v[far.argmin()])


def _passing(t, rows):
    """Returns whether each row of a table is asked for: [rows] bool."""
    out = np.ones(t.rows, bool)
    for column, wanted in rows.items():
        if column not in t.columns:
            raise Unfit("the table has no column %s" % column)
        wanted = wanted if isinstance(wanted, list) else [wanted]
        any_of = np.zeros(t.rows, bool)
        for want in wanted:
            if t.kind(column) != "str":
                op, value = _wanted_number(t, column, want) if isinstance(want, str) else ("=", want)
                any_of |= holds(op, value, t.reals(column))
            elif isinstance(want, str):
                any_of |= t.columns[column] != want[1:] if want.startswith("!") else t.columns[column] == want
            else:
                raise Unfit("the table has no number in a column of texts: %g" % want)
        out &= any_of
    return out


def _numbers(t, column):
    if column not in t.columns or t.kind(column) == "str":
        raise Unfit("the table has no %s %s" % ("numbers in column" if column in t.columns else "column", column))
    return t.reals(column)


def _labels(t, column):
    """Returns the cells of a column as texts."""
    if column not in t.columns:
        raise Unfit("the table has no column %s" % column)
    return t.columns[column] if t.kind(column) == "str" else np.array(["%.17g" % x for x in t.columns[column]] + [None], object)[:-1]


def _check_size(c, side, given, value):
    """Unfit if a value is too large for sums of squares, also where a difference of two columns overflows.  given: the columns that it is made of."""
    known = np.logical_and.reduce([np.isfinite(x) for x in given])
    if (abs(value[known]) > TOO_LARGE).any():
        raise Unfit("column %s of table %s has numbers above %g, whose squares overflow; use another unit" % (c.value, side.table, TOO_LARGE))


def units_of(c, side, t):
    """Returns the rows that a side of a claim chooses, one value for each unit, in the order of the units' names.

    name, value, other, row: arrays [units], `row` is the first row of each; left_out: rows without a value; rows: how many are chosen;
    first: the first of them, or -1.  A claim without a unit has one unit for each row, without a name."""
    if not t.rows:
        raise Unfit("the table has no rows")
    value = _numbers(t, c.value)
    given = [value, *([_numbers(t, c.less)] if c.less else [])]
    with np.errstate(over="ignore", invalid="ignore"):
        value = value - given[1] if c.less else value
    other = _numbers(t, c.other) if c.other else np.zeros(t.rows)
    labels = [_labels(t, column) for column in c.unit]
    at = np.flatnonzero(_passing(t, side.rows))
    _check_size(c, side, [x[at] for x in given], value[at])
    names = np.array(["\x1f".join(parts) for parts in zip(*(x[at] for x in labels))] + [None], object)[:-1] if labels else np.arange(len(at))
    name, which = np.unique(names, return_inverse=True)
    order = np.argsort(which, kind="stable")
    u = SimpleNamespace(name=[], value=[], other=[], row=[], left_out=0, rows=len(at), first=int(at[0]) if len(at) else -1)
    for k, rows in enumerate(np.split(at[order], np.cumsum(np.bincount(which, minlength=len(name)))[:-1]) if len(at) else []):
        known = rows[np.isfinite(value[rows]) & np.isfinite(other[rows])]
        number = NAN
        if len(known):
            alone = len(known) == 1 and c.within == "mean"
            number = value[known[0]] if alone else float(statistic(c, Sample(value[known], other[known]), reduce=c.within))
        if math.isnan(number):
            u.left_out += len(rows)
            continue
        u.left_out += len(rows) - len(known)
        for to, x in ((u.name, name[k]), (u.value, number), (u.other, other[known].mean()), (u.row, int(rows[0]))):
            to.append(x)
    if len(u.value) > MOST_UNITS:
        raise Error('claim "%s": %d units of table %s are more than %d' % (c.id, len(u.value), side.table, MOST_UNITS))
    u.value, u.other = np.array(u.value, float), np.array(u.other, float)
    return u


def _paired(a, b):
    """Returns the places of the names that both lists have, in each of them."""
    place = {name: k for k, name in enumerate(b)}
    both = [(k, place[name]) for k, name in enumerate(a) if name in place]
    return np.array([x for x, _ in both], int), np.array([y for _, y in both], int)


# ---- clusters

def _i_squared(value, which, means):
    """Returns the fraction of the variance of clusters' means that is not that of their units: 1 - 1/F of an analysis of variance, at least 0."""
    counts = np.bincount(which)
    between, within = (counts * (means - value.mean()) ** 2).sum(), ((value - means[which]) ** 2).sum()
    n, groups = len(value), len(means)
    if n == groups or groups < 2 or not between > 0:
        return NAN
    return max(0.0, 1 - within / (n - groups) / (between / (groups - 1)))


def cluster(c, folder, t, u, which, sample):
    """Returns (means of the clusters of a sample as a Sample, I^2, names of the clusters).  which: the place in u of each unit of the sample."""
    if c.cluster in t.columns:
        labels = _labels(t, c.cluster)[[u.row[k] for k in which]]
    else:
        sources = folder.table(Side("sources", "", {}))
        there = sources is not None and c.cluster in sources.columns and c.unit[0] in sources.columns
        of = dict(zip(_labels(sources, c.unit[0])[::-1], _labels(sources, c.cluster)[::-1])) if there else {}  # the first row counts
        lost = next((u.name[k] for k in which if u.name[k] not in of), None)
        if lost is not None:
            raise Unfit("neither the table nor sources.tsv has the %s of %s" % (c.cluster, lost))
        labels = [of[u.name[k]] for k in which]
    names, group = np.unique(np.array(labels, object), return_inverse=True)
    means = [np.bincount(group, x) / np.bincount(group) for x in (sample.value, sample.other)]
    return Sample(*means), _i_squared(sample.value, group, means[0]), tuple(names)


# ---- one number and its verdict

def fresh():
    return SimpleNamespace(verdict="undecided", by_number="undecided", value=NAN, low=NAN, high=NAN, p=NAN, q=NAN, null_value=NAN, difference=NAN,
                           difference_low=NAN, difference_high=NAN, difference_p=NAN, difference_units=0, i2=NAN, on_side=-1, units=0, documents=-1,
                           left_out=0, by_cluster=False, null_check="none", control="none", why="", measured=None, difference_measured=None,
                           control_measured=None)


def side_of(c, low, high):
    if math.isnan(low) or math.isnan(high):
        return "undecided"
    yes, no = {"between": (low >= c.null and high <= c.null_high, high < c.null or low > c.null_high),
               ">": (low > c.null, c.null > high), "<": (c.null > high, c.null < low)}[c.than]
    return "supported" if yes else "contradicted" if no else "undecided"


def too_few(c, r):
    """Returns why there are too few documents, where the interval is the table's, or units; an empty text if they suffice."""
    columns = c.interval == "columns"
    n = r.documents if columns else r.units
    if c.interval == "none" or n >= c.least_n:
        return ""
    if columns and n < 0:
        return "the table does not say of how many documents it is"
    return "%d %s are too few: the claim asks for %d" % (n, "clusters" if r.by_cluster else "documents" if columns else "units", c.least_n)


def _conclude(c, r):
    if math.isnan(r.value):
        r.why = "the value is not defined"
    elif c.interval == "none":
        r.verdict = side_of(c, r.value, r.value)
    elif too_few(c, r):
        r.why = too_few(c, r)
    elif math.isnan(r.p):
        r.why = "there is no interval: too few documents or units"
    elif r.p < LEVEL:
        r.verdict = side_of(c, *(r.value, r.value) if c.interval == "permutation" else (r.low, r.high))


def _bound(t, column, end, row):
    """Returns the cell NAME_low of a row, or low: tables of `kvfate corpus` have that of the first measure without a name."""
    name = next((x for x in ("%s_%s" % (column, end), end) if x in t.columns), None)
    return float(t.columns[name][row]) if name and t.kind(name) != "str" else NAN


def _documents(c, t, row):
    n = _bound(t, c.value, "documents", row)
    if math.isnan(n) and t.kind("docs") == "int":
        n = t.columns["docs"][row]
    if math.isnan(n):
        n = t.number("documents")
    return int(n) if 0 <= n < 1e15 else -1


def _range(c, t, row):
    low, high = (_bound(t, c.value, end, row) for end in ("low", "high"))
    return (low - _bound(t, c.less, "high", row), high - _bound(t, c.less, "low", row)) if c.less else (low, high)


def _p_of_ends(value, low, high, null):
    """Returns the p at which an interval of a table, taken as that of a normal law on each side of the value, would end at the null."""
    half = value - low if value > null else high - value
    if math.isnan(null) or math.isnan(half):
        return NAN
    return p_of_z(Z975 * (value - null) / half) if half > 0 else float(value == null)


def _judge_rows(c, data, r):
    """Judges one row, or one less another, by the intervals of the tables.  A difference gets the widest interval that both allow."""
    for u, side in zip(data.units, (c.of, c.minus)):
        if u.rows != 1:
            raise Unfit("%d rows of %s fit, where one is meant" % (u.rows, side.table))
    numbers = [u.value[0] if len(u.value) else NAN for u in data.units]
    ranges = [_range(c, t, u.first) for t, u in zip(data.tables, data.units)]
    r.documents = min(_documents(c, t, u.first) for t, u in zip(data.tables, data.units))
    r.left_out, r.units = sum(u.left_out for u in data.units), 1
    (r.value, (low, high)) = numbers[0], ranges[0]
    if c.minus:
        r.value, low, high = r.value - numbers[1], low - ranges[1][1], high - ranges[1][0]
    if c.interval == "columns":
        r.low, r.high = low, high
        r.p = p_between(c, r.value, *(_p_of_ends(r.value, low, high, null) for null in (c.null, c.null_high)))
    _conclude(c, r)
    r.measured = Measured(r.value, low=low, high=high)


def _sample(c, data):
    """Returns (the Sample of a claim's units, the place of each in the units of the first side, how many are left out)."""
    a = data.units[0]
    if not c.minus:
        return Sample(a.value, a.other), np.arange(len(a.value)), a.left_out
    b = data.units[1]
    x, y = _paired(a.name, b.name)
    return Sample(a.value[x] - b.value[y], a.other[x]), x, a.left_out + b.left_out + len(a.value) + len(b.value) - 2 * len(x)


def _has_common_units(c):
    """Returns whether a unit of the same name is the same thing in two models.  Rows without a name, heads and layers are not."""
    return bool(c.unit) and (c.cluster is not None or not {"head", "layer", "index"} & set(c.unit))


def _judge_units(c, folder, data, r):
    s, which, r.left_out = _sample(c, data)
    r.documents = len(s) if len(c.unit) == 1 and c.unit[0] in DOCUMENTS else \
        _documents(c, data.tables[0], data.units[0].first) if data.units[0].rows else -1
    if not len(s):
        raise Unfit("no unit has a value" if all(u.rows for u in data.units) else "no row fits")
    r.units, names = len(s), tuple(data.units[0].name[k] for k in which)
    if c.cluster is not None:
        s, r.i2, names = cluster(c, folder, data.tables[0], data.units[0], which, s)
        r.units, r.by_cluster = len(s), True
    r.value = float(statistic(c, s))
    if c.reduce in ("mean", "median"):
        r.on_side = sum(side_of(c, v, v) == "supported" for v in s.value)
    r.low, r.high, r.p = interval(c, s, r.value)
    _conclude(c, r)
    r.measured = Measured(r.value, names, s, r.low, r.high, _has_common_units(c))


def _known(side, t, name):
    """Returns a number of the metadata.  If they lack K, it is taken from a criterion topK."""
    v, criterion = t.number(name), side.rows.get("criterion")
    if math.isnan(v) and name == "K" and isinstance(criterion, str) and criterion[:3] == "top" and criterion[3:].isdigit():
        v = float(criterion[3:])
    return v


def _check_needs(c, side, t):
    for name, text in c.needs.items():
        over, _, under = name.partition("/")
        v = _known(side, t, over)
        if under:
            below = _known(side, t, under)
            v = v / below if below else NAN
        if math.isnan(v):
            raise Unfit("it needs %s %s, which the table does not say" % (name, text), "not comparable here")
        op, wanted, _ = comparison(text)
        if not holds(op, wanted, v):
            raise Unfit("it needs %s %s, and here it is %.4g" % (name, text, v), "not comparable here")


def judge_number(c, folder):
    """Judges a claim only by its number.  Returns (result, data); data.tables and data.units have an item for each side."""
    r, data = fresh(), SimpleNamespace(tables=[], units=[])
    try:
        for side in filter(None, (c.of, c.minus)):
            t = folder.table(side)
            if t is None:
                raise Unfit("there is no table %s%s" % (side.table, "." + side.run if side.run else ""))
            _check_needs(c, side, t)
            data.tables.append(t)
            data.units.append(units_of(c, side, t))
        if c.reduce == "one":
            _judge_rows(c, data, r)
        else:
            _judge_units(c, folder, data, r)
    except Unfit as e:
        r.verdict, r.why = e.verdict, e.why
    r.by_number = r.verdict
    return r, data


# ---- checks that weaken a verdict

def _decided(r):
    return r.verdict in ("supported", "contradicted")


def _judge_control(c, folder, r):
    """A claim that its control does not support is not supported."""
    x, _ = judge_number(c.replace(of=c.control.of, minus=c.control.minus), folder)
    r.control, r.control_measured = x.verdict, x.measured
    if r.verdict == "supported" and x.verdict != "supported":
        r.verdict, r.why = "undecided", "the matched control is %s" % r.control


def unguard(r, why):
    if _decided(r):
        r.why = "%s by its number, without null data: %s" % (r.verdict, why)
        r.verdict = "unguarded"


def _difference_of_units(c, folder, data, null, r):
    """Sets the difference of the data and the null data over the units that both have, unless they are fewer than the claim asks for."""
    (a, at, _), (b, to, _) = _sample(c, data), _sample(c, null)
    x, y = _paired([data.units[0].name[k] for k in at], [null.units[0].name[k] for k in to])
    names = tuple(data.units[0].name[k] for k in at[x])
    a, b, at = Sample(a.value[x], a.other[x]), Sample(b.value[y], b.other[y]), at[x]
    if c.cluster is not None and len(x):
        try:
            (a, _, names), (b, _, _) = (cluster(c, folder, data.tables[0], data.units[0], at, s) for s in (a, b))
        except Unfit:
            return  # the claim itself was not run, for the same reason
    r.difference_units = len(a)
    if len(a) < max(1, c.least_n):
        return
    both = Sample(a.value, a.other, b)
    r.difference = float(statistic(c, both))
    zero = c.replace(than=">", null=0.0, null_high=NAN, interval=c.interval if c.interval == "none" or c.reduce == "mean" else "bca")
    both = Sample(a.value - b.value, a.other) if c.reduce == "mean" else both
    r.difference_low, r.difference_high, r.difference_p = interval(zero, both, r.difference)
    r.difference_measured = Measured(r.difference, names, both, r.difference_low, r.difference_high, _has_common_units(c))


def _judge_null(c, folder, data, r):
    """Compares a claim with its null data.  A number that null data show as well is no evidence for or against the claim."""
    x, null = judge_number(c.replace(of=c.null_check.of, minus=c.null_check.minus), folder)
    r.null_value, r.null_check = x.value, "not run"
    if not math.isnan(r.value) and not math.isnan(x.value):
        if c.reduce != "one" and c.unit:
            _difference_of_units(c, folder, data, null, r)
        if math.isnan(r.difference) and not too_few(c, x):  # two numbers with intervals of their own
            r.difference, low, high = r.value - x.value, r.low - x.high, r.high - x.low
            r.difference_low, r.difference_high, r.difference_p, r.difference_units = low, high, _p_of_ends(r.difference, low, high, 0.0), 0
            r.difference_measured = Measured(r.difference, low=low, high=high)
    weigh_null(c, r, x.why)


def weigh_null(c, r, why):
    """Weakens a verdict by the difference of its number to the null data.  why: the reason if there is no difference."""
    if math.isnan(r.difference) or math.isnan(r.difference_p) and c.interval != "none":
        unguard(r, why or "the difference has no interval")
        return
    middle = (c.null + c.null_high) / 2
    beyond = r.difference != 0 if c.interval == "none" else r.difference_p < LEVEL
    claimed = {"between": abs(r.value - middle) < abs(r.null_value - middle), ">": r.difference > 0, "<": r.difference < 0}[c.than]
    r.null_check = "not beyond" if not beyond else "as claimed" if claimed else "other way"
    if _decided(r) and not (beyond and claimed == (r.verdict == "supported")):
        where = "not certain" if not beyond else "on the claimed side" if claimed else "on the other side"
        r.why = "%s by its number; the null data have %.4g, and the difference is %s" % (r.verdict, r.null_value, where)
        r.verdict = "unspecific"


def judge(c, folder):
    """Judges one claim as if it were the only one."""
    if c.untestable:
        r = fresh()
        r.verdict = r.by_number = "untestable here"
        r.why = c.untestable
        return r
    r, data = judge_number(c, folder)
    if c.control:
        _judge_control(c, folder, r)
    if c.no_null:
        r.null_check = "not possible"
    elif c.null_check:
        _judge_null(c, folder, data, r)
    else:
        unguard(r, "the register names none")
    return r


def _p_of_verdict(c, r):
    """Returns p of the family: the larger of that of the number and that of its difference to the null data.  NaN: too few units, no test."""
    n = r.documents if c.interval == "columns" else r.units
    if c.untestable or c.interval == "none" or n < c.least_n or math.isnan(r.p):
        return NAN
    return r.p if math.isnan(r.difference_p) else max(r.p, r.difference_p)


def judge_all(claims, folder):
    """Judges all claims of a register: p becomes q over the tested claims, and a claim is undecided unless q is below LEVEL."""
    results = [judge(c, folder) for c in claims]
    adjust(results, [_p_of_verdict(c, r) for c, r in zip(claims, results)])
    return results


def adjust(results, ps):
    """Sets q of all results of a register from their p.  A decided claim becomes undecided unless q is below LEVEL."""
    for r, q in zip(results, fdr(ps)):
        r.q = float(q)
        if (_decided(r) or r.verdict == "unguarded") and r.q >= LEVEL:
            r.why = "%s by p alone: q over the register is %.2g" % (r.by_number, r.q)
            r.verdict = "undecided"


def counted(results):
    """Returns {verdict: how many claims have it}, in the order of VERDICTS."""
    n = defaultdict(int)
    for r in results:
        n[r.verdict] += 1
    return {verdict: n[verdict] for verdict in VERDICTS}
