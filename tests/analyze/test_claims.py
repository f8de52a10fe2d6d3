#!/usr/bin/env python3
"""Check kvfate claims on hand-made tables: every verdict, statistics and intervals against independent computations,
errors, and the shipped register.

usage: test_claims.py KVFATE SOURCE_ROOT
"""
import itertools
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from statistics import NormalDist

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, kvfate, refused  # noqa: E402

NORMAL = NormalDist()
ROOT = os.path.abspath(sys.argv[2])
sys.path.insert(0, os.path.join(ROOT, "python"))
os.environ["PATH"] = os.path.dirname(kvfate) + os.pathsep + os.environ["PATH"]  # the package runs this program
from kvfate import Error, claims, claims_judge, claims_register  # noqa: E402

SHIPPED = os.path.join(ROOT, "docs", "studies", "claims.toml")
work = tempfile.TemporaryDirectory(prefix="kvfate-claims-")
folder = os.path.join(work.name, "results")
os.mkdir(folder)


def put(name, data, where=folder):
    Path(os.path.join(where, name)).write_bytes(data if isinstance(data, bytes) else data.encode())
    return os.path.join(where, name)


def tsv(columns, rows, **meta):
    lines = ["# table: made"] + [f"# {k}: {v}" for k, v in meta.items()] + ["\t".join(columns)]
    return "\n".join(lines + ["\t".join(str(x) for x in r) for r in rows]) + "\n"


def register(*claims):
    """Write a register.  Claims without null data declare that null data are impossible, so that the verdict is that of
    the number; None: no declaration.
    """
    full = [{"id": f"c{i}", "paper": "P", "where": "figure 1", "claim": "It is so.",
             **({} if "null_check" in c or "untestable" in c else {"no_null": "made by hand"}), **c} for i, c in enumerate(claims)]
    full = [{k: v for k, v in c.items() if v is not None} for c in full]
    return put("register.json", json.dumps({"claim": full}), work.name)


read = {}


class Folder(claims_judge.Folder):
    """Tables that did not change are not read again."""

    def table(self, side):
        name = side.table + ("." + side.run if side.run else "")
        texts = [open(p, "rb").read() for p in (os.path.join(self.path, name + end) for end in (".tsv", ".json")) if os.path.exists(p)]
        if (name, *texts) not in read:
            read[name, *texts] = super().table(side)
        return read[name, *texts]


def judge(*several, command=False):
    """Returns one dictionary per claim, by the functions of the command; of many claims, or with command=True, the command must give the same."""
    path = register(*several)
    listed = claims_register.read(path)
    columns = claims.columns(listed, claims_judge.judge_all(listed, Folder(folder)))
    got = [{name: None if values[i] != values[i] else values[i] for name, _, values in columns} for i in range(len(several))]
    if command or len(several) > 4:
        r = subprocess.run([kvfate, "claims", folder, "--register", path, "--json"], capture_output=True, text=True)
        check("runs", r.returncode == 0 and not r.stderr, r.stderr, several)
        data = json.loads(r.stdout)["data"] if r.returncode == 0 else {}
        check("the command gives the same", list(data) == list(got[0]) and all(data[k] == [g[k] for g in got] for k in data), data, got)
    return got


def one(**claim):
    return judge(claim)[0]


def near(a, b, tolerance=1e-12):
    return a is not None and abs(a - b) <= tolerance * max(1, abs(b))


# ---- verdicts of one row: value, interval and null by hand

put("row.tsv", tsv(["head", "n", "x", "low", "high", "y", "y_low", "y_high", "documents"],
                   [["all", 1, 0.5, 0.4, 0.6, 0.2, 0.1, 0.3, 12], ["all", 2, 0.9, 0.8, 1.0, 0.1, "nan", "nan", 10],
                    ["L0H0", 1, 0.7, "nan", "nan", 0, 0, 0, 12]], T=64))
ROW = dict(table="row", rows={"head": "all", "n": 1}, value="x")
cases = [  # than, null, verdict
    (">", 0.39, "supported"), (">", 0.4, "undecided"), (">", 0.5, "undecided"), (">", 0.61, "contradicted"), (">", 0.6, "undecided"),
    ("<", 0.61, "supported"), ("<", 0.6, "undecided"), ("<", 0.39, "contradicted"), ("<", 0.4, "undecided"),
    ("between", [0.399, 0.601], "supported"), ("between", [0.4, 0.6], "undecided"), ("between", [0.3, 0.5], "undecided"), ("between", [0.61, 0.7], "contradicted"),
    ("between", [0.1, 0.39], "contradicted"), ("between", [0.45, 0.55], "undecided")]
for (than, null, verdict), got in zip(cases, [one(**ROW, than=t, null=n) for t, n, _ in cases]):  # one claim per run: q is p
    check(f"verdict {than} {null}", got.get("verdict") == verdict, got)
    check("interval of the table", [got.get(k) for k in ("value", "low", "high", "documents", "units")] == [0.5, 0.4, 0.6, 12, 1], got)

got = judge(dict(ROW, value="y", than="<", null=0.35),                      # its own interval
            dict(ROW, less="y", than=">", null=0.05),                       # .5 - .2; .4 - .3 to .6 - .1
            dict(ROW, minus={"rows": {"head": "all", "n": 2}}, than="<", null=-0.1),  # .5 - .9; .4 - 1 to .6 - .8
            dict(ROW, value="y", minus={"rows": {"head": "all", "n": 2}}, than=">", null=0),  # row 2 has no interval
            dict(ROW, rows={"head": "L0H0"}, than=">", null=0),             # no interval
            dict(ROW, rows={"head": "L0H0"}, than=">", null=0, interval="none"),
            dict(ROW, rows={"head": "L0H0"}, than="<", null=0.7, interval="none"),
            dict(paper="P", untestable="no pictures"))
check("own interval", got[0]["verdict"] == "supported" and (got[0]["low"], got[0]["high"]) == (0.1, 0.3), got[0])
check("less", got[1]["verdict"] == "supported" and near(got[1]["value"], 0.3) and near(got[1]["low"], 0.1) and near(got[1]["high"], 0.5), got[1])
check("minus", got[2]["verdict"] == "supported" and near(got[2]["value"], -0.4) and near(got[2]["low"], -0.6) and near(got[2]["high"], -0.2)
      and got[2]["documents"] == 10, got[2])
check("no interval", [g["verdict"] for g in got[3:7]] == ["undecided", "undecided", "supported", "undecided"] and "no interval" in got[3]["why"], got[3:7])
check("untestable", got[7]["verdict"] == "untestable here" and got[7]["why"] == "no pictures" and got[7]["value"] is None, got[7])

# ---- not run: the missing input is named

put("empty.tsv", tsv(["head", "n", "x"], [], T=64))

for claim, words in ((dict(ROW, table="none"), "no table none"), (dict(ROW, run="b"), "no table row.b"), (dict(ROW, value="z"), "no column z"),
                     (dict(ROW, rows={"q": 1}), "no column q"), (dict(ROW, rows={"n": 7}), "0 rows"), (dict(ROW, rows={"head": "all"}), "2 rows"),
                     (dict(ROW, value="head"), "numbers in column head"), (dict(ROW, rows={"n": "many"}), "many"),
                     (dict(ROW, rows={"head": 3}), "texts"), (dict(ROW, rows={"n": "T/4"}), "nearest is 2"),
                     (dict(ROW, table="empty"), "no rows"),
                     (dict(ROW, unit=["nope"], reduce="mean", interval="bca"), "no column nope"),
                     (dict(ROW, rows={"head": "other"}, reduce="mean", interval="bca"), "no row fits")):
    got = one(**dict(dict(than=">", null=0), **claim))
    check("not run: " + words, got.get("verdict") == "not run" and words in got.get("why", ""), got)

# ---- filters, the scale T, and both kinds of files

put("grid.tsv", tsv(["head", "horizon", "v"], [[h, n, n + 1000 * k] for k, h in enumerate(("all", "L0H0", "L0H1")) for n in (1, 4, 15, 17, 60, 120)], T=64))
put("bare.tsv", tsv(["head", "horizon", "v"], [["all", 16, 1]]))
table = {"name": "grid", "meta": {"T": "64"}, "columns": [{"name": "head", "unit": "", "type": "str"}, {"name": "horizon", "unit": "", "type": "int"},
                                                         {"name": "v", "unit": "", "type": "real"}], "data": {"head": [], "horizon": [], "v": []}}
for k, h in enumerate(("all", "L0H0", "L0H1")):
    for n in (1, 4, 15, 17, 60, 120):
        for key, x in (("head", h), ("horizon", n), ("v", n + 1000 * k)):
            table["data"][key].append(x)
put("grid2.json", json.dumps(table))
MEAN = dict(value="v", reduce="mean", than=">", null=0, interval="bca", least_n=2)
wanted = [({"head": "all", "horizon": "T/4"}, [17]),      # |log(17/16)| < |log(15/16)|
          ({"head": "all", "horizon": "0.9 T"}, [60]),    # 57.6
          ({"head": "all", "horizon": "T"}, [60]),        # 60/64 against 120/64
          ({"head": "all", "horizon": "2 T"}, [120]),
          ({"head": "all", "horizon": "> T"}, [120]), ({"head": "all", "horizon": "<= T/16"}, [1, 4]), ({"head": "all", "horizon": "< 4"}, [1]),
          ({"head": "all", "horizon": ">=60"}, [60, 120]), ({"head": "all", "horizon": "! 60"}, [1, 4, 15, 17, 120]),
          ({"head": "all", "horizon": [1, "T/16"]}, [1, 4]), ({"head": "!all", "horizon": 1}, [1001, 2001]),
          ({"head": ["all", "L0H1"], "horizon": 4}, [4, 2004]), ({"horizon": 15}, [15, 1015, 2015])]
for name in ("grid", "grid2"):
    for (rows, values), got in zip(wanted, judge(*[dict(MEAN, table=name, rows=rows) for rows, _ in wanted])):
        check(f"rows {rows}", got.get("verdict") != "not run" and near(got.get("value"), np.mean(values)) and got["units"] == len(values), got, values)
check("far from T/2", "nearest is 60" in one(**MEAN, table="grid", rows={"head": "all", "horizon": "T/2"}).get("why", ""))
check("no T", "T" in one(**MEAN, table="bare", rows={"horizon": "T/4"}).get("why", ""))

# ---- statistics against numpy; intervals against all possible samples

rng = np.random.default_rng(5)
N = 6
x, w = rng.normal(0.3, 1, N), np.arange(N) * 1.0
put("units.tsv", tsv(["doc", "side", "part", "x", "w"],
                     [[f"d{i}", "a", p, float(x[i] + p), float(w[i])] for p in (-1, 1) for i in rng.permutation(N)]
                     + [["d9", "a", 1, "nan", 1.0], ["d1", "b", 0, 0.5, 0.0], ["d3", "b", 0, -0.5, 0.0], ["d8", "b", 0, 3.0, 0.0]]))


def ranks(v):
    """Return for each row the mean rank of each value, less the mean of all ranks."""
    return (v[:, None, :] < v[:, :, None]).sum(-1) + ((v[:, None, :] == v[:, :, None]).sum(-1) - v.shape[1]) / 2


def spearman(v, other):
    """Return the correlation of each row of v with that of `other`; NaN if one side is constant."""
    a, b = ranks(v), ranks(other)
    with np.errstate(invalid="ignore"):
        return (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))


STATISTICS = {"mean": lambda v: v.mean(-1), "median": lambda v: np.median(v, -1), "least": lambda v: v.min(-1), "largest": lambda v: v.max(-1),
              "spread": lambda v: np.quantile(v, 0.9, axis=-1) - np.quantile(v, 0.1, axis=-1), "share": lambda v: (v > 0.25).mean(-1)}
draws = np.array(list(itertools.product(range(N), repeat=N)))
UNITS = dict(table="units", rows={"side": "a"}, value="x", unit="doc", than=">", null=0, interval="bca", least_n=2)
def bca_share(every, jack, value, q, errors):
    """Return the quantile of an interval end (Efron 1987), with the fraction below the value off by `errors` standard
    errors of 2,000 draws.
    """
    below = np.mean(every < value - 1e-12) + np.mean(abs(every - value) <= 1e-12) / 2
    below = min(max(below + errors * math.sqrt(below * (1 - below) / 2000), 1e-3), 1 - 1e-3)
    far = jack.mean() - jack
    a = (far ** 3).sum() / (6 * (far ** 2).sum() ** 1.5) if (far ** 2).sum() > 0 else 0
    bias = NORMAL.inv_cdf(below)
    z = bias + NORMAL.inv_cdf(q)
    return NORMAL.cdf(bias + z / (1 - a * z))


for name, f in [*STATISTICS.items(), ("spearman", None)]:
    more = {"at": 0.25} if name == "share" else {"with": "w"} if name == "spearman" else {}
    got = one(**UNITS, reduce=name, **more)
    value = f(x) if f else spearman(x[None], w[None])[0]
    check(f"{name}: value", near(got.get("value"), value) and got["units"] == N and got["left_out"] == 1 and got["documents"] == N, got, value)
    every = f(x[draws]) if f else spearman(x[draws], w[draws])
    every = np.sort(every[~np.isnan(every)])
    leave = np.array([np.r_[0:i, i + 1:N] for i in range(N)])
    jack = f(x[leave]) if f else spearman(x[leave], w[leave])
    for end, q in (("low", 0.025), ("high", 0.975)):  # 2,000 draws: each fraction is met within 5 standard deviations
        at = [bca_share(every, jack, value, q, e) for e in (-5, 5)]
        slack = [5 * math.sqrt(a * (1 - a) / 2000) + 5 / 2000 for a in at]
        least, most = np.quantile(every, max(0, at[0] - slack[0])), np.quantile(every, min(1, at[1] + slack[1]))
        check(f"{name}: {end}", least - 1e-9 <= got[end] <= most + 1e-9, got[end], least, most)

got = judge(dict(UNITS, reduce="mean", minus={"rows": {"side": "b"}}),
            dict(UNITS, reduce="mean", null=0.1, interval="permutation"),
            dict(UNITS, reduce="spearman", **{"with": "w"}, interval="permutation"),
            dict(UNITS, reduce="share", at=0.25, interval="wilson"))
pairs = np.array([x[1] - 0.5, x[3] + 0.5])  # d9, d8 and d0, d2, d4, d5 have no partner; d9 has no value either
check("pairs", near(got[0]["value"], pairs.mean()) and got[0]["units"] == 2 and got[0]["left_out"] == 1 + 4 + 1, got[0], pairs)
signs = np.array(list(itertools.product((-1, 1), repeat=N)))
check("p of signs", near(got[1]["p"], np.mean(abs(signs @ (x - 0.1)) >= abs((x - 0.1).sum()) - 1e-9)), got[1])
orders = np.array(list(itertools.permutations(x)))
p = np.mean(abs(spearman(orders, np.broadcast_to(w, orders.shape))) >= abs(spearman(x[None], w[None])[0]) - 1e-9)
check("p of orders", abs(got[2]["p"] - p) <= 5 * math.sqrt(p * (1 - p) / 10000) + 1e-4, got[2], p)
share = np.mean(x > 0.25)


def edge(sign):
    """Return the end at which the distance of the fraction is 1.96 standard deviations of the hypothesis, by bisection."""
    inner, outer = share, (1.0 if sign > 0 else 0.0)
    for _ in range(100):
        mid = (inner + outer) / 2
        if abs(mid - share) < 1.959963984540054 * math.sqrt(mid * (1 - mid) / N):
            inner = mid
        else:
            outer = mid
    return inner


check("wilson", near(got[3]["low"], edge(-1), 1e-9) and near(got[3]["high"], edge(1), 1e-9), got[3], edge(-1), edge(1))

# ---- verdicts of permutations and of bootstraps

far = np.linspace(0.5, 1.5, 8)  # all above 0: p = 2 / 256
put("far.tsv", tsv(["doc_hash", "kl", "order", "layer"], [[f"{i:x}f", float(v), i, i // 2] for i, v in enumerate(far)]))
FAR = dict(table="far", value="kl", unit="doc_hash", reduce="mean")
got = judge(*[dict(FAR, than=t, null=n, interval=k) for k in ("t", "permutation") for t, n in ((">", 0), ("<", 0), (">", 1), (">", 2))],
            dict(FAR, reduce="spearman", **{"with": "order"}, than="<", null=0, interval="permutation"),
            dict(FAR, rows={"order": 0}, than=">", null=0, interval="bca"),
            dict(FAR, rows={"order": 0}, than=">", null=0, interval="permutation"),
            dict(FAR, unit="layer", heads="others", least_n=4, reduce="spearman", **{"with": "order"}, than=">", null=0.9, interval="bca"))
check("verdicts of units", [g["verdict"] for g in got] == ["supported", "contradicted", "undecided", "contradicted"] * 2
      + ["contradicted", "undecided", "undecided", "supported"], [(g["verdict"], g["value"], g["p"]) for g in got])
check("p", near(got[4]["p"], 2 / 256) and got[0]["documents"] == 8 and got[11]["units"] == 4, got[4], got[11])
check("same again", judge(dict(FAR, than=">", null=0, interval="bca"), command=True) == judge(dict(FAR, than=">", null=0, interval="bca")))

# ---- intervals of means by Student's t, against the equation with the quantiles of a table

T975 = {4: 3.18244630528371, 6: 2.57058183563632, 8: 2.36462425159278}  # of n - 1 degrees of freedom
for n in (4, 6, 8):
    put("t.tsv", tsv(["doc", "v"], [[i, float(v)] for i, v in enumerate(far[:n] ** 3)]))
    got = one(table="t", value="v", unit="doc", reduce="mean", than=">", null=0, interval="t")
    v = far[:n] ** 3
    radius = T975[n] * v.std(ddof=1) / math.sqrt(n)
    check(f"t of {n}", near(got["low"], v.mean() - radius, 1e-9) and near(got["high"], v.mean() + radius, 1e-9), got, v.mean(), radius)
    edges = judge(*[dict(table="t", value="v", unit="doc", reduce="mean", than=">", null=float(v.mean() - k * radius), interval="t") for k in (.999, 1, 1.001)])
    check("p of t is that of its interval", edges[0]["p"] > .05 > edges[2]["p"] and near(edges[1]["p"], .05, 1e-6), [e["p"] for e in edges])

# ---- simulated coverage of Student's t, against a simulation of numpy

r = subprocess.run([kvfate, "claims", folder, "--coverage", "--json", "--register",
                    register(dict(FAR, than=">", null=0, interval="t"), dict(FAR, than=">", null=0, interval="bca"), dict(ROW, than=">", null=0))],
                   capture_output=True, text=True)
covered = json.loads(r.stdout)["data"] if r.returncode == 0 else {}
check("coverage runs", covered.get("units") == [8, 8, 1] and covered["normal"][2] is None, r.stdout[:300], r.stderr)
for law, draw, truth in (("normal", rng.normal, 0), ("exponential", rng.exponential, 1), ("t3", lambda size: rng.standard_t(3, size), 0)):
    v = draw(size=(40000, 8))
    expected = np.mean(abs(v.mean(1) - truth) <= T975[8] * v.std(1, ddof=1) / math.sqrt(8))
    slack = 5 * math.sqrt(expected * (1 - expected) * (1 / 2000 + 1 / 40000)) + .004  # the population is cut off beyond 1 / 4,002
    check("coverage of t: " + law, abs(covered[law][0] - expected) <= slack, covered[law], expected)
    check("coverage of bca: " + law, .7 < covered[law][1] < 1, covered[law])

# ---- p of an interval of the table: 0.05 at its end, else that of a normal law

for null in (0.4, 0.35, 0.6, 0.62, 0.5):
    z = 1.959963984540054 * (0.5 - null) / 0.1
    check(f"p of columns at {null}", near(one(**ROW, than=">", null=null)["p"], 2 * NORMAL.cdf(-abs(z)), 1e-9))

# ---- p of a fraction: the score test, whose p is 0.05 at the ends of Wilson's interval; p between two nulls

for null in (.1, .25, .4, .7, .9):
    z = (share - null) / math.sqrt(null * (1 - null) / N)
    got = one(**{**UNITS, "interval": "wilson", "null": null}, reduce="share", at=0.25)
    check(f"p of a share at {null}", near(got["p"], 2 * NORMAL.cdf(-abs(z)), 1e-9), got, z)
for low, high, end in ((.39, .7, .39), (.3, .62, .62), (.6, .9, .6), (.1, .41, .41)):  # the value is .5, half the interval .1
    z = 1.959963984540054 * (0.5 - end) / 0.1
    got = one(**ROW, than="between", null=[low, high])
    check(f"p between {low} and {high}", near(got["p"], 2 * NORMAL.cdf(-abs(z)), 1e-9), got, z)

# ---- too few units, clusters, q, null checks, controls and requirements of a table

few = judge(dict(FAR, rows={"order": "< 5"}, than=">", null=0, interval="permutation"),
            dict(FAR, rows={"order": "< 5"}, than=">", null=0, interval="permutation", least_n=5),
            dict(FAR, rows={"order": "< 6"}, than=">", null=0, interval="permutation"), dict(ROW, than=">", null=0.3, least_n=13),
            dict(ROW, than=">", null=0.3, least_n=12))
check("too few", [g["verdict"] for g in few] == ["undecided", "undecided", "supported", "undecided", "supported"] and "5 units are too few" in few[0]["why"]
      and near(few[1]["p"], 2 / 32) and "12 documents" in few[3]["why"], few)
GROUP = [i // 3 for i in range(24)]
values = rng.normal(0.2, 0.4, 24) + np.array(GROUP) * .1
put("doc.tsv", tsv(["doc", "v", "own"], [[f"d{i:02}", float(values[i]), f"s{GROUP[i]}"] for i in range(24)]))
put("sources.tsv", tsv(["source", "doc"], [[f"s{GROUP[i]}", f"d{i:02}"] for i in rng.permutation(24)]))
means = values.reshape(8, 3).mean(1)
signs8 = np.array(list(itertools.product((-1, 1), repeat=8)))
for column in ("own", "source"):
    got = one(table="doc", value="v", unit="doc", cluster=column, reduce="mean", than=">", null=0.1, interval="permutation")
    check("clusters: " + column, got["units"] == 8 and near(got["value"], means.mean())
          and near(got["p"], np.mean(abs(signs8 @ (means - .1)) >= abs((means - .1).sum()) - 1e-9)), got)
put("sources.tsv", tsv(["source", "doc"], [["s", "d00"]]))
got = one(table="doc", value="v", unit="doc", cluster="source", reduce="mean", than=">", null=0, interval="t")
check("a unit without a source", got["verdict"] == "not run" and "d01" in got["why"], got)

# ---- reduction of the rows of a unit: heads of a document, documents of a source

DOCS, HEADS = 14, 9  # two documents of each source
many, less, place = rng.normal(0, 1, (DOCS, HEADS)) + np.arange(DOCS)[:, None] * .05, rng.normal(0, .3, (DOCS, HEADS)), rng.normal(0, 1, (DOCS, HEADS))
put("within.tsv", tsv(["doc", "source", "head", "side", "v", "w"],
                      [[f"d{i // HEADS:02}", f"s{i // HEADS // 2}", f"h{i % HEADS}", side, float(v.flat[i]), float(place.flat[i])]
                       for i in rng.permutation(DOCS * HEADS) for side, v in (("a", many), ("b", less))]))
WITHIN = dict(table="within", rows={"side": "a"}, value="v", unit="doc", reduce="mean", cluster="source", than=">", null=0.1)
for name, f in (("median", lambda v: np.median(v, 1)), ("mean", lambda v: v.mean(1)), ("least", lambda v: v.min(1)), ("largest", lambda v: v.max(1)),
                ("spread", lambda v: np.quantile(v, .9, axis=1) - np.quantile(v, .1, axis=1)), ("share", lambda v: (v > .25).mean(1)), ("spearman", None)):
    more = {"share": {"at": 0.25}, "spearman": {"with": "w"}}.get(name, {})
    v = (f(many) if f else spearman(many, place)).reshape(-1, 2).mean(1)
    radius = 2.44691185114497 * v.std(ddof=1) / math.sqrt(7)  # six degrees of freedom
    got = one(**WITHIN, **more, within=name, interval="t")
    check("within: " + name, near(got["value"], v.mean(), 1e-9) and near(got["low"], v.mean() - radius, 1e-9) and near(got["high"], v.mean() + radius, 1e-9)
          and (got["units"], got["documents"]) == (7, DOCS), got, v.mean(), radius)
got = one(**WITHIN, within="median", interval="permutation", minus={"rows": {"side": "b"}})
v = (np.median(many, 1) - np.median(less, 1)).reshape(-1, 2).mean(1)
check("within, in pairs", near(got["value"], v.mean()) and near(got["p"], np.mean(abs(np.array(list(itertools.product((-1, 1), repeat=7))) @ (v - .1))
                                                                                >= abs((v - .1).sum()) - 1e-9)), got, v)
got = judge(dict(WITHIN, interval="t", no_null="a law of nature"), dict(ROW, than="<", null=.7, null_check={"rows": {"head": "all", "n": 2}}, least_n=11))
check("no null check", [g["null_check"] for g in got] == ["not possible", "not run"] and got[1]["verdict"] == "unguarded", got)  # the second: of only ten documents

nulls = [0.39, 0.395, 0.398, 0.405, 0.42, 0.45, 0.5, 0.55]
got = judge(*[dict(ROW, than=">", null=n) for n in nulls], dict(ROW, than=">", null=0.1, least_n=50), dict(ROW, than=">", null=0, interval="none"))
ps = [g["p"] for g in got[:len(nulls)]]
qs = [min(min(1, len(ps) * p / (1 + sum(o < p for o in ps))) for p in ps if p >= mine) for mine in ps]  # all p differ but .45, .55
check("q", all(abs(g["q"] - q) < 1e-9 or abs(g["p"] - got[5]["p"]) < 1e-9 for g, q in zip(got, qs)), [g["q"] for g in got], qs)
check("q decides", all((g["verdict"] == "supported") == (g["q"] < .05) for g in got[:len(nulls)]) and got[0]["verdict"] == "undecided" and got[0]["p"] < .05
      and "q over the register" in got[0]["why"] and got[8]["q"] is None and got[9]["verdict"] == "supported", got[0], got[8])

HOLDS, NOT = {"rows": {"head": "all", "n": 1}}, {"rows": {"head": "all", "n": 2}}
BELOW = dict(ROW, than="<", null=0.7)
got = judge(dict(BELOW, control=NOT), dict(BELOW, control=HOLDS), dict(BELOW, control={"run": "gone"}))
check("controls", [(g["verdict"], g["control"]) for g in got] == [("undecided", "contradicted"), ("supported", "supported"), ("undecided", "not run")], got)

# Null data.  Row 1 is .5 (.4 .. .6), row 2 .9 (.8 .. 1): their difference is -.4 (-.6 .. -.2), each minus itself 0 (-.2
# .. .2). A number that null data show too is unspecific on either side.  Beyond the null data in the claimed direction,
# a claim is supported even if they are on the claimed side too.
ABOVE = dict(ROW, than=">", null=.7)
got = judge(*[dict(c, null_check=n) for c in (BELOW, dict(BELOW, null=1.2), ABOVE, dict(ABOVE, null=.2), dict(ROW, than="<", null=.3, rows={"head": "all", "n": 2}))
              for n in (HOLDS, NOT)], dict(BELOW, null_check={"run": "gone"}), dict(BELOW, no_null=None), dict(ABOVE, no_null=None), BELOW,
            dict(ROW, than="<", null=.5, no_null=None))
check("null data", [(g["verdict"], g["null_check"]) for g in got] == [
    ("unspecific", "not beyond"), ("supported", "as claimed"),      # .5 < .7
    ("unspecific", "not beyond"), ("supported", "as claimed"),      # both below 1.2
    ("unspecific", "not beyond"), ("contradicted", "other way"),    # .5 > .7 is contradicted, by less than the null data
    ("unspecific", "not beyond"), ("unspecific", "other way"),      # .5 > .2, and the null data are higher
    ("contradicted", "other way"), ("unspecific", "not beyond"),    # .9 < .3
    ("unguarded", "not run"), ("unguarded", "none"), ("unguarded", "none"), ("supported", "not possible"), ("undecided", "none")], [(g["verdict"], g["null_check"]) for g in got])
check("what the number says", [g["by_number"] for g in got] == ["supported"] * 4 + ["contradicted"] * 2 + ["supported"] * 2 + ["contradicted"] * 2
      + ["supported", "supported", "contradicted", "supported", "undecided"], [g["by_number"] for g in got])
check("their difference", near(got[1]["null_value"], .9) and near(got[1]["difference"], -.4) and near(got[1]["difference_low"], -.6)
      and near(got[1]["difference_high"], -.2) and near(got[1]["difference_p"], 2 * NORMAL.cdf(-1.959963984540054 * 2), 1e-9) and got[1]["difference_units"] == 0, got[1])
check("no null data are told", "names none" in got[11]["why"] and "no table row.gone" in got[10]["why"], got[10]["why"], got[11]["why"])

# in pairs: common texts; sources' means of the differences; q is of the larger p
DOCS, SOURCES = 24, 8
data, null = rng.normal(.5, .3, DOCS), rng.normal(0, .3, DOCS)
data += np.repeat(rng.normal(0, .2, SOURCES), 3)
rows = [(f"d{i:02}", f"s{i // 3}", float(v[i])) for i in range(DOCS) for v in [data]]
put("real.tsv", tsv(["doc", "source", "v"], [rows[i] for i in rng.permutation(DOCS)]))
put("real.random.tsv", tsv(["doc", "source", "v"], [(f"d{i:02}", f"s{i // 3}", float(null[i])) for i in rng.permutation(DOCS) if i % 3] + [("d99", "s0", 7.0)]))
put("real.same.tsv", tsv(["doc", "source", "v"], [(d, s, v + 1e-3 * float(rng.normal())) for d, s, v in rows]))
put("real.more.tsv", tsv(["doc", "source", "v"], [(d, s, v + .5 + .01 * float(rng.normal())) for d, s, v in rows]))
put("real.few.tsv", tsv(["doc", "source", "v"], [(f"d{i:02}", "any", 0.0) for i in range(6)]))
REAL = dict(table="real", value="v", unit="doc", cluster="source", reduce="mean", interval="t")
got = judge(*[dict(REAL, than=t, null=n, null_check={"run": r}) for t, n in ((">", 0), (">", 2)) for r in ("random", "same", "more", "few")])
both = np.array([(data - null)[[3 * s + 1, 3 * s + 2]].mean() for s in range(SOURCES)])
radius = T975[8] * both.std(ddof=1) / math.sqrt(8)
check("differences of pairs", near(got[0]["difference"], both.mean(), 1e-9) and near(got[0]["difference_low"], both.mean() - radius, 1e-9)
      and got[0]["difference_units"] == 8, got[0], both.mean(), radius)
check("their verdicts", [(g["verdict"], g["null_check"]) for g in got] == [
    ("supported", "as claimed"), ("unspecific", "not beyond"), ("unspecific", "other way"), ("unguarded", "not run"),
    ("unspecific", "as claimed"), ("unspecific", "not beyond"), ("contradicted", "other way"), ("unguarded", "not run")], [(g["verdict"], g["null_check"], g["why"]) for g in got])
means = data.reshape(SOURCES, 3).mean(1)
within = ((data.reshape(SOURCES, 3) - means[:, None]) ** 2).sum() / (DOCS - SOURCES)
f = 3 * ((means - data.mean()) ** 2).sum() / (SOURCES - 1) / within
check("heterogeneity", near(got[0]["i2"], max(0, 1 - 1 / f), 1e-9) and got[0]["on_side"] == (means > 0).sum() and got[4]["on_side"] == (means > 2).sum(), got[0], f)
alone = judge(dict(REAL, than=">", null=0, null_check={"run": "same"}))[0]
check("q is that of the larger p", near(alone["q"], max(alone["p"], alone["difference_p"])) and alone["p"] < .05 < alone["difference_p"], alone)
# A median and a rank correlation are resampled in pairs.  The null data go with the data, so that units that are drawn anew for each side
# give an interval which is far too wide.
order = np.arange(DOCS)
close = data + rng.normal(0, .1, DOCS)
put("turn.tsv", tsv(["doc", "v", "w"], [(f"d{i:02}", float(data[i]), i) for i in order]))
put("turn.null.tsv", tsv(["doc", "v", "w"], [(f"d{i:02}", float(close[i]), i) for i in order]))
for reduce, f in (("median", lambda v, w: np.median(v, -1)), ("spearman", spearman)):
    got = one(table="turn", value="v", unit="doc", reduce=reduce, **({"with": "w"} if reduce == "spearman" else {}), interval="bca", than=">", null=-.9,
              null_check={"run": "null"})
    pick, other = rng.integers(0, DOCS, (2, 4000, DOCS))
    seen = f(data[None], order[None])[0] - f(close[None], order[None])[0]
    (low, high), (far_low, far_high) = (np.quantile(f(data[pick], order[pick]) - f(close[p], order[p]), [.025, .975]) for p in (pick, other))

    def fits(a, b):
        return abs(a - low) < .35 * (high - low) and abs(b - high) < .35 * (high - low)

    check(f"difference of a {reduce}", near(got["difference"], seen) and fits(got["difference_low"], got["difference_high"]) and got["difference_units"] == DOCS,
          got, seen, low, high)
    check(f"units drawn anew for the null data of a {reduce} would be seen", not fits(far_low, far_high), low, high, far_low, far_high)
got = judge(*[dict(ROW, than=">", null=.3, needs=n) for n in ({"T": ">= 64"}, {"T": "> 64"}, {"L": "> 1"}, {"T/L": "> 1"})],
            dict(ROW, than=">", null=.3, rows={"head": "all", "n": 1, "criterion": "top4"}, needs={"T/K": ">= 17"}))
check("needs", [g["verdict"] for g in got] == ["supported"] + ["not comparable here"] * 4 and "here it is 64" in got[1]["why"]
      and "does not say" in got[2]["why"] and "here it is 16" in got[4]["why"], got)

# ---- errors

good = tsv(["a", "b"], [[1, 2]])
for name, data, words in (("empty", b"", "empty"), ("cut", good[:-1], "cut off"), ("nul", good.replace("1", "\0"), "NUL"), ("utf8", b"a\tb\n\xff\t1\n", "UTF-8"),
                          ("few", good + "1\n", "fewer"), ("more", good + "1\t2\t3\n", "more"), ("twice", "a\ta\n1\t2\n", "repeated"),
                          ("noname", "a\t\n1\t2\n", "empty column name"), ("escape", "a\tb\n\\x\t2\n", "backslash"), ("tail", "a\tb\n1\t2\\\n", "backslash"),
                          ("meta", "# key\na\n1\n", "key: value"), ("head", "# a: b\n", "column names"), ("wide", "\t".join(f"c{i}" for i in range(257)) + "\n", "256")):
    put("bad.tsv", data)
    refused("TSV " + name, 1, ["claims", folder, "--register", register(dict(ROW, table="bad", than=">", null=0))] if name in ("cut", "tail") else
            ["draw", os.path.join(folder, "bad.tsv"), "-o", "-"], "bad.tsv", words)
os.remove(os.path.join(folder, "bad.tsv"))


def changed(**parts):
    return json.dumps({"name": "t", "meta": {}, "columns": [{"name": "a", "unit": "", "type": "int"}], "data": {"a": [1]}, **parts})


for name, data, words in (("no JSON", "{", ""), ("array", "[1]", "columns"), ("no data", changed(data={}), "columns"), ("text", changed(data={"a": ["x"]}), "no int"),
                          ("half", changed(data={"a": [1.5]}), "no int"), ("null", changed(data={"a": [None]}), "no int"), ("flat", changed(data={"a": 1}), "no array"),
                          ("type", changed(columns=[{"name": "a", "type": "f8"}]), "must be int"), ("true", changed(columns=[{"name": "a", "type": "real"}], data={"a": [True]}), "no real"),
                          ("other", changed(data={"b": [1]}), "no array"), ("twice", changed(columns=[{"name": "a", "type": "int"}] * 2, data={"a": [1], "b": [1]}), "twice"),
                          ("uneven", changed(columns=[{"name": c, "type": "int"} for c in "ab"], data={"a": [1], "b": []}), "rows"), ("meta", changed(meta=[1]), "meta")):
    put("bad.json", data)
    refused("JSON " + name, 1, ["claims", folder, "--register", register(dict(ROW, table="bad", than=">", null=0))] if name == "meta" else
            ["draw", os.path.join(folder, "bad.json"), "-o", "-"], "bad.json", words)
os.remove(os.path.join(folder, "bad.json"))

ASK = dict(ROW, than=">", null=0)
for claim, words in ((dict(ASK, colour=1), "colour"), (dict(ASK, than="="), "than"), (dict(ASK, null="0"), "null"), (dict(ASK, than="between"), "null"),
                     (dict(ASK, than="between", null=[1, 0]), "null"), (dict(ASK, table="../row"), "letters"), (dict(ASK, run="a/b"), "letters"), (dict(ASK, value=3), "value"),
                     (dict(ASK, rows=[1]), "rows"), (dict(ASK, rows={"a": {}}), "rows"), (dict(ASK, rows={"a": []}), "rows"), (dict(ASK, reduce="mean"), "one row"),
                     (dict(ASK, interval="bca"), "resampled"), (dict(ASK, reduce="best"), "reduce"), (dict(ASK, reduce="mean", interval="wilson"), "wilson"),
                     (dict(ASK, reduce="median", interval="permutation"), "permutation"), (dict(ASK, reduce="spearman", interval="bca"), "with"),
                     (dict(ASK, reduce="share", interval="bca"), "at"), (dict(ASK, reduce="mean", interval="bca", minus={"run": "b"}), "unit"),
                     (dict(ASK, minus={"value": "x"}), "value"), (dict(ASK, untestable="so"), "untestable"), (dict(untestable=""), "reason"), (dict(ASK, id="a b"), "id"),
                     (dict(ASK, fixed="soon"), "date"), (dict(ASK, title=3), "title"), (dict(ASK, within="median"), "within"), (dict(ASK, unit="doc", reduce="mean", within="one"), "within"),
                     (dict(ASK, unit="doc", reduce="mean", within="share", interval="t"), "at"), (dict(ASK, unit="doc", reduce="mean", within="spearman", interval="t"), "with"),
                     (dict(ASK, no_null=""), "no_null"), (dict(ASK, no_null="so", null_check={}), "no_null"), (dict(ASK, least_n=0), "least_n"), (dict(ASK, needs={"T": "T"}), "needs"), (dict(ASK, cluster="x"), "cluster"),
                     (dict(ASK, unit="head", reduce="mean", interval="t"), "heads"), (dict(ASK, reduce="median", interval="t"), "mean"), (dict(ASK, null_check=1), "null_check"),
                     (dict(ASK, null_check={"minus": {}}), "minus"), (dict(ASK, control={"value": "x"}), "value"), (dict(ASK, unit=[1]), "unit"), (dict(ASK, unit=["a"] * 9), "unit"), (dict(ASK, where=1), "where"), (dict(ASK, table=None), "table")):
    try:
        claims_register.read(register(claim))
        check(f"register: {words}", False, claim)
    except Error as e:
        check(f"register: {words}", words in str(e) and "\n" not in str(e) and "register.json" in str(e), e, claim)
refused("register: a key", 1, ["claims", folder, "--register", register(dict(ASK, colour=1))], "colour", "register.json")
refused("register: a number beyond a double", 1, ["claims", folder, "--register", register(dict(ASK, null=10 ** 400))], "null", "register.json")
refused("register: half of a character", 1, ["claims", folder, "--register", put("half.json", '{"claim": [{"id": "x", "claim": "\\ud800"}]}', work.name)], "surrogates", "half.json")
refused("register: same id", 1, ["claims", folder, "--register", register(dict(ASK, id="x"), dict(ASK, id="x"))], "twice")
for text, words in (("", ""), ("[]", "register"), ('{"claim":[]}', "register"), ('{"claim":[3]}', "id"), ("[" * 100000, "nested"), ('{"a": 1, "a": 2}', "twice"), ('{"claim": NaN}', "NaN")):
    refused("register " + text[:9], 1, ["claims", folder, "--register", put("broken.json", text, work.name)], "broken.json" if text != "x" else "", words)
refused("no folder", 2, ["claims"], "folder")
refused("check and folder", 2, ["claims", folder, "--check"], "--check")
refused("not a folder", 1, ["claims", os.path.join(folder, "row.tsv")], "no folder")
refused("no register", 1, ["claims", folder, "--register", os.path.join(folder, "nothing.json")], "nothing.json")
refused("a name of no kind", 2, ["claims", folder, "-o", "x.doc"], ".tsv", ".png")
refused("size", 2, ["claims", folder, "-o", "x.png", "--size", "wide"], "--size")
drawn = os.path.join(work.name, "claims.svg")
r = subprocess.run([kvfate, "claims", folder, "-o", drawn], capture_output=True, text=True)
check("figure", r.returncode == 0 and os.path.exists(drawn) and "as claimed" in open(drawn).read(), r.stderr)
for text in ("[[claim]\n", "a = 1979-05-27\n", "a = inf\n", "\xff"):
    refused(f"TOML {text!r}", 1, ["claims", folder, "--register", put("broken.toml", text.encode("latin-1"), work.name)], "broken.toml")

# ---- registers with random faults are judged, or rejected in one sentence that names the claim

full = [dict(ASK, id="a", paper="P", where="1", claim="So.", minus={"run": "b"}, null_check={"run": "c", "minus": {}}, control={"rows": {}}, needs={"T": "> 1"}),
        dict(UNITS, id="b", paper="P", where="1", claim="So.", reduce="spearman", **{"with": "w"}, cluster="s", fixed="2026-01-31", within="median", less="w"),
        dict(UNITS, id="c", paper="P", where="1", claim="So.", reduce="share", at=1, interval="wilson", at_than="<", no_null="so", unit=["doc", "side"]),
        dict(id="d", paper="P", where="1", claim="So.", untestable="so")]
ODD = (None, True, 0, -1, 1e308, "", "T", ">", "> T/0", "a/b", "\x1f", [], {}, [[]], {"a": []}, ["T/4", 1], {"rows": {"n": ["! 3", ">= T"]}}, "share", "between", [0, 1])
empty = claims_judge.Folder(os.path.join(work.name, "nothing"))
told = {"rejected": 0, "judged": 0}
for _ in range(1500):
    wrong = json.loads(json.dumps(full))
    for _ in range(int(rng.integers(1, 3))):
        o = wrong[int(rng.integers(len(wrong)))]
        inner = [o] + [v for v in o.values() if isinstance(v, dict)]
        o = inner[int(rng.integers(len(inner)))]
        key = sorted(claims_register.KEYS | {"colour"})[int(rng.integers(len(claims_register.KEYS) + 1))]
        o[key] = ODD[int(rng.integers(len(ODD)))]
    try:
        results = claims_judge.judge_all(claims_register.claims_of({"claim": wrong}), empty)
    except Error as e:
        told["rejected"] += 1
        if "\n" in str(e) or not str(e).startswith("claim "):
            check("a sentence about a claim", False, e, wrong)
    else:
        told["judged"] += 1
        if {r.verdict for r in results} - {"not run", "untestable here"}:
            check("no table, no verdict", False, [r.verdict for r in results], wrong)
check("both happen", min(told.values()) > 80, told)

# ---- the shipped register

with open(SHIPPED, "rb") as f:
    shipped = tomllib.load(f)["claim"]
decidable = [c for c in shipped if "untestable" not in c]
check("every threshold has a date, and heads are told", all(c.get("fixed") for c in decidable))
check("size of the register", len(shipped) >= 25 and len(decidable) >= 15, len(shipped), len(decidable))
r = subprocess.run([kvfate, "claims", "--check"], capture_output=True, text=True)
check("--check", r.returncode == 0 and not r.stderr and f"{len(shipped)} claims: {len(decidable)} to be judged" in r.stdout, r)
converted = put("shipped.json", json.dumps({"claim": shipped}), work.name)
both = [subprocess.run([kvfate, "claims", folder, *more, "-o", "-"], capture_output=True, text=True).stdout for more in ([], ["--register", SHIPPED], ["--register", converted])]
check("the program holds the register", both[0] == both[1] == both[2] and [line.split("\t")[3] for line in both[0].splitlines() if line[0] != "#"].count("not run") == len(decidable), both[0][:300])
header, *lines = [line.split("\t") for line in both[0].splitlines() if line[0] != "#"]
titles = {line[0]: line[header.index("title")] for line in lines}
check("judged claims have short titles in the table", all(0 < len(titles[c["id"]]) <= 45 and titles[c["id"]] == c["title"] for c in decidable), titles)
broken = [dict(c) for c in shipped]
for key, value, words in (("value", "colour", "no column colour"), ("table", "pictures", "no command makes"), ("table", "tokens", "no command makes"), ("rows", {"colour": 1}, "no column colour")):
    i = next(i for i, c in enumerate(broken) if c.get("table") == "survival")
    put("wrong.json", json.dumps({"claim": broken[:i] + [{**broken[i], key: value}] + broken[i + 1:]}), work.name)
    r = subprocess.run([kvfate, "claims", "--check", "--register", os.path.join(work.name, "wrong.json")], capture_output=True, text=True)
    check("--check finds " + words, r.returncode == 1 and words in r.stderr, r.stderr)
for value in ("alive", "at_risk"):  # the fraction is a quotient of these
    i = next(i for i, c in enumerate(broken) if c.get("table") == "survival")
    put("counts.json", json.dumps({"claim": broken[:i] + [{**broken[i], "value": value}] + broken[i + 1:]}), work.name)
    r = subprocess.run([kvfate, "claims", "--check", "--register", os.path.join(work.name, "counts.json")], capture_output=True, text=True)
    check("--check knows " + value, r.returncode == 0, r.stderr)
# ---- every numbered figure and table of the papers is in docs/guide/paper-figures.md

sections = Path(os.path.join(ROOT, "docs", "guide", "paper-figures.md")).read_text(encoding="utf-8").split("\n## ")[1:]
NUMBERED = {"DBTrimKV": (14, 8), "G-KV": (24, 4), "TRIM-KV, first version": (26, 9), "TRIM-KV, second version": (18, 10), "WG-KV": (16, 1)}
check("papers", [x.split("\n")[0] for x in sections] == list(NUMBERED))
for section in sections:
    name, *lines = section.split("\n")
    listed = [x.strip() for line in lines if line.startswith("| Fig") or line.startswith("| Tab") for x in line.split("|")[1].split(",")]
    wanted = [f"{kind} {i + 1}" for kind, n in zip(("Figure", "Table"), NUMBERED[name]) for i in range(n)]
    check("figures of " + name, sorted(listed) == sorted(wanted), set(listed) ^ set(wanted))
    check("commands of " + name, all(line.count("|") == 4 and (any(w in line for w in ("kvfate", ".py", ".sh", ".c`", "$GPU ", "$ABLATE ")) or "out of reach" in line or "diagram" in line
                                                              or "as " in line) for line in lines if line.startswith(("| Fig", "| Tab"))))

curves = re.findall(r"@survival:[^ `]*|kvfate survival [^`]*", sections[0])
check("DBTrimKV's survival is drawn as its own statistic", len(curves) == 6 and all("share=fraction" in c or "--figure map" in c for c in curves), curves)

text = subprocess.run([kvfate, "claims", folder, "--register", register(dict(ROW, than=">", null=0.39), dict(paper="P", untestable="no pictures"))],
                      capture_output=True, text=True).stdout
check("for people", all(s in text for s in ("supported", "0.5 (0.4 .. 0.6), claimed > 0.39, p 0.031, q 0.031, 12 documents", "no pictures", "1 supported, 0 contradicted")), text)
finish()
