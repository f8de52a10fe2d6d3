#!/usr/bin/env python3
"""Check kvfate claims over models and kvfate claims freeze: heterogeneity against published values, the interval against an analysis of variance, its
coverage by simulation, verdicts over folders of tables, and frozen inputs.

usage: test_claims_models.py KVFATE SOURCE_ROOT [DRAWS]

With DRAWS the simulation has so many draws, and its table of coverage is printed as Markdown (docs/studies/claims.md has its range for 3,000).
"""
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, kvfate, refused  # noqa: E402

ROOT = os.path.abspath(sys.argv[2])
DRAWS = int(sys.argv[3]) if len(sys.argv) > 3 else 1000 if os.environ.get("KVFATE_TESTS") == "long" else 500
sys.path.insert(0, os.path.join(ROOT, "python"))
os.environ["PATH"] = os.path.dirname(os.path.abspath(kvfate)) + os.pathsep + os.environ["PATH"]  # the package runs this program
from kvfate import claims_models  # noqa: E402
from kvfate.claims_numbers import Measured, Sample  # noqa: E402

MEAN = SimpleNamespace(reduce="mean")
work = tempfile.TemporaryDirectory(prefix="kvfate-claims-")


def near(a, b, tolerance=1e-9):
    return a is not None and abs(a - b) <= tolerance * max(1, abs(b))


# ---- heterogeneity: the 13 trials of the BCG vaccine (Colditz et al. 1994).  The R package metafor publishes the Q profile of their log odds ratios,
# 0.1302 to 1.1812, on its page on van Houwelingen et al. (2002).  statsmodels 0.15 (combine_effects, "iterated", atol=1e-14) has tau^2 0.31806845220502
# for their log risk ratios, metafor 0.3181.

a, b, c, d = map(np.array, ((4, 6, 3, 62, 33, 180, 8, 505, 29, 17, 186, 5, 27), (119, 300, 228, 13536, 5036, 1361, 2537, 87886, 7470, 1699, 50448, 2493, 16886),
                            (11, 29, 11, 248, 47, 372, 10, 499, 45, 65, 141, 3, 29), (128, 274, 209, 12619, 5761, 1079, 619, 87892, 7232, 1600, 27197, 2338, 17825)))
_, low, high, _ = claims_models.heterogeneity(np.log(a * d / b / c), 1 / a + 1 / b + 1 / c + 1 / d)
check("Q profile", abs(low ** 2 - .1302) < 1e-4 and abs(high ** 2 - 1.1812) < 1e-4, low ** 2, high ** 2)
effect, variance = np.log(a / (a + b) / (c / (c + d))), 1 / a - 1 / (a + b) + 1 / c - 1 / (c + d)
tau, _, _, i2 = claims_models.heterogeneity(effect, variance)
check("Paule and Mandel", near(tau ** 2, .31806845220502, 1e-11), tau ** 2)
w = 1 / variance
check("I^2", near(i2, tau ** 2 / (tau ** 2 + 12 * w.sum() / (w.sum() ** 2 - (w ** 2).sum()))), i2)
tau, low, high, i2 = claims_models.heterogeneity(np.array([1.0, 1.9, .6]), np.array([1.0, 2.0, 1.5]))
check("no heterogeneity", tau == low == i2 == 0 and high > 0, tau, low, high, i2)
check("no sampling error", claims_models.heterogeneity(np.array([1.0, 2, 3]), np.zeros(3))[0] == 1)
# With known sampling variances Q has a chi-squared law at the true tau.  So the Q profile covers tau in 95 % of draws, and without heterogeneity it
# contains 0 in 97.5 % of them.
own = np.array([.04, .08, .16])
rng = np.random.default_rng(11)
for true in (0, .3, 2):
    ends = np.array([claims_models.heterogeneity(rng.normal(0, np.sqrt(true ** 2 + own)), own)[1:3] for _ in range(2000)])
    covered = ((ends[:, 0] <= true) & (true <= ends[:, 1])).mean()
    wanted = .95 if true else .975
    check(f"the interval of tau = {true:g} covers it", abs(covered - wanted) < 4 * math.sqrt(wanted * (1 - wanted) / 2000), covered)
check("a large tau is seen", (ends[:, 0] > 0).mean() > .7, (ends[:, 0] > 0).mean())
# Of models without differences, which read the same 13 texts, sampling variances are estimated.  0 then lies within the interval in 94 % of 1,000 draws
# (docs/studies/claims.md).
contain = 0
for _ in range(300):
    common = rng.normal(0, 1, 13)
    v = common + rng.normal(0, 1, (3, 13))
    contain += claims_models.pool(MEAN, [Measured(x.mean(), tuple(range(13)), Sample(x, x)) for x in v], "abc").tau_low == 0
check("families without differences: the interval of tau contains 0", contain >= .91 * 300, contain)

# ---- the interval.  Of families with equal variances it is that of Hartung and Knapp; statsmodels 0.15 gives these ends.

x = claims_models.mean_of(np.array([.42, .11, .35]), np.diag([.01] * 3), 1)
check("Hartung and Knapp", near(x.value - x.radius(), -.11054600324941205) and near(x.value + x.radius(), .6972126699160786), x, x.radius())
for null in (-.11054600324941205, .25, .31):
    p = x.p(null)
    check("p is the level at which the interval ends there", near(x.radius(p), abs(x.value - null)) and 0 < p < 1, p)
check("p at an end", near(x.p(x.value - x.radius()), .05) and x.p(x.value) == 1 and x.p(1e9) <= 1e-9, x.p(x.value - x.radius()))

# The two parts of the variance are those of an analysis of variance with crossed random factors, families and texts.
rng = np.random.default_rng(3)
K, N = 4, 7
cells = rng.normal(0, 1, (K, 1)) + rng.normal(0, 1, (1, N)) + rng.normal(0, .5, (K, N))
names = tuple("s%d" % i for i in range(N))
models = [Measured(v.mean(), names, Sample(v, v)) for v in cells]
x = claims_models.pool(MEAN, models, "abcd")
ms_family = N * cells.mean(1).var(ddof=1)
ms_text = K * cells.mean(0).var(ddof=1)
ms_both = ((cells - cells.mean(1)[:, None] - cells.mean(0)[None] + cells.mean()) ** 2).sum() / ((K - 1) * (N - 1))
check("crossed factors", near(x.value, cells.mean()) and near(x.spread, ms_family / (K * N)) and near(x.common, (ms_text - ms_both) / (K * N)) and x.df == N - 1,
      x, ms_family, ms_text, ms_both)
t2 = {3: 3.182446305284263, 6: 2.446911851144969}
check("its radius", near(x.radius(), math.sqrt(t2[3] ** 2 * x.spread + t2[6] ** 2 * x.common)), x.radius())
other = claims_models.pool(MEAN, [m._replace(names=tuple(reversed(names)), sample=Sample(v[::-1], v)) for m, v in zip(models, cells)], "abcd")
check("texts are matched by name", near(other.common, x.common) and near(other.spread, x.spread), other, x)
heads = claims_models.pool(MEAN, [m._replace(common=False) for m in models], "abcd")
check("heads of two models have nothing in common", heads.common == 0 and near(heads.spread, x.spread), heads)
x = claims_models.pool(MEAN, [*models, Measured(cells[3].mean() + 1, names, Sample(cells[3] + 1, cells[3]))], ["a", "b", "c", "d", "d"])
y = np.append(cells[:3].mean(1), cells[3].mean() + .5)
check("models of a family are averaged", x.families == 4 and near(x.value, y.mean()) and near(x.spread, y.var(ddof=1) / 4), x)
check("a further family", near(x.predicted_high - x.value, t2[3] * y.std(ddof=1) * math.sqrt(1 + 1 / 4)), x)
# of a statistic that is no mean, the texts are drawn anew for all models at once; the variance of a median of normal values is near pi / 2 n
many = rng.normal(0, 1, (2, 400))
many[1] = .8 * many[0] + .6 * many[1]
got = claims_models.covariances(SimpleNamespace(reduce="median"), [Measured(0, tuple(range(400)), Sample(v, v)) for v in many])
check("covariance of medians", .6 < got[0, 0] / (math.pi / 800) < 1.5 and .3 < got[0, 1] / math.sqrt(got[0, 0] * got[1, 1]) < .85, got)

# ---- coverage of the interval and of the prediction, under models and texts that are both random.  t: of families, tau; m: between models of a
# family; s: of texts that all models read; e: of a text in one model, one number for each model in turn.

DESIGNS = {"families differ, texts do not": (1, .3, 0, (1,)), "families equal, no common texts": (0, 0, 0, (1,)), "families equal, common texts": (0, 0, 1, (1,)),
           "both": (.3, .1, 1, (1,)), "mostly texts": (.3, .1, 3, (1,)), "unequal precision": (.2, .1, 1, (5, 1))}
FAMILIES = {"3 families": "abc", "3 families, 4 models": "abcc", "4 families": "abcd", "6 families": "abcdef", "6 families, 8 models": "aabbcdef"}


def simulated(families, tau, within, common, own, n, draws, seed=7):
    """Returns the fractions of draws in which the interval covers the true mean 0, and the prediction a further family on the same texts."""
    random, families = np.random.RandomState(seed), list(families)
    every = sorted(set(families))
    own = np.array([own[min(i, len(own) - 1)] for i in range(len(families))])
    covered = predicted = 0
    for _ in range(draws):
        effect = dict(zip([*every, "new"], random.normal(0, tau, len(every) + 1)))
        texts = common * random.normal(0, 1, n)
        cells = np.array([effect[f] + random.normal(0, within) + texts + s * random.normal(0, 1, n) for f, s in zip(families, own)])
        _, y, errors = claims_models.families_of(cells.mean(1), np.atleast_2d(np.cov(cells)) / n, families)
        x = claims_models.mean_of(y, errors, n)
        covered += abs(x.value) <= x.radius()
        new = effect["new"] + random.normal(0, within) + texts.mean() + own[-1] * random.normal(0, 1 / math.sqrt(n))
        predicted += abs(new - x.value) <= claims_models.prediction_radius(x)
    return covered / draws, predicted / draws


slack = 4 * math.sqrt(.05 * .95 / DRAWS)
lines = ["| | " + " | ".join(DESIGNS) + " |", "|---" * (1 + len(DESIGNS)) + "|"]
for title, families in FAMILIES.items():
    cells = []
    for name, design in DESIGNS.items():
        covered, predicted = simulated(families, *design, 13, DRAWS)
        check(f"coverage of {title}, {name}", covered >= .95 - slack, covered)  # a null that is true is rejected in at most 5 %
        if name in ("families differ, texts do not", "families equal, no common texts"):
            check(f"coverage is not too large: {title}, {name}", covered <= .97 + slack, covered)
        if len(families) == len(set(families)) and name != "unequal precision":
            check(f"prediction of {title}, {name}", abs(predicted - .95) <= slack, predicted)
        cells.append("%.3f" % covered)
    lines.append("| %s | %s |" % (title, " | ".join(cells)))
if len(sys.argv) > 3:
    print("\n".join(lines))
naive = np.mean([abs(v.mean()) <= 1.96 * math.sqrt(np.mean(v.var(1, ddof=1)) / 13 / 3) for v in
                 np.random.RandomState(1).normal(0, 1, (500, 1, 13)) + np.random.RandomState(2).normal(0, 1, (500, 3, 13))])
check("models as independent samples of texts would not cover", naive < .9, naive)

# ---- verdicts over folders

SOURCES = 8


def folder(name, family, level, run="", where=None, spread=.1, seed=0, **meta):
    """Writes FOLDER/NAME/v.tsv: one number for each text, around a level.  All models share the texts' own numbers."""
    out = os.path.join(where or work.name, name)
    os.makedirs(out, exist_ok=True)
    texts = np.random.default_rng(1).normal(0, spread, SOURCES)
    own = np.random.default_rng(hash_of(name + run) + seed).normal(0, spread, SOURCES)
    meta = {"model": name, "model_hash": hash_of(name), **({"family": family} if family else {}), **meta}
    rows = ["# table: v", *(f"# {k}: {x}" for k, x in meta.items()), "doc\tsource\tx"]
    rows += [f"d{i}\ts{i}\t{level + texts[i] + own[i]!r}" for i in range(SOURCES)]
    Path(os.path.join(out, "v" + run + ".tsv")).write_text("\n".join(rows) + "\n", encoding="utf-8")
    return out


def hash_of(text):
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)


def register(**parts):
    claim = {"id": "c", "paper": "P", "where": "figure 1", "claim": "So.", "table": "v", "value": "x", "unit": "doc", "cluster": "source", "reduce": "mean", "interval": "t",
             "than": ">", "null": 0, "no_null": "made by hand", **parts}
    path = os.path.join(work.name, "register.json")
    Path(path).write_text(json.dumps({"claim": [{k: v for k, v in claim.items() if v is not None}]}), encoding="utf-8")
    return path


def judged(folders, status=0, **parts):
    """Returns {column: value} of the only claim of a register."""
    r = subprocess.run([kvfate, "claims", *folders, "--register", register(**parts), "--json"], capture_output=True, text=True)
    check("status", r.returncode == status, r.returncode, r.stderr, parts)
    t = json.loads(r.stdout) if r.stdout else {"data": {}, "meta": {}}
    return {**{k: v[0] for k, v in t["data"].items()}, "said": r.stderr, "meta": t["meta"]}


three = [folder("m1", "llama", 1.0), folder("m2", "gemma", 1.2), folder("m3", "qwen", .8)]
four = [*three, folder("m4", "qwen", 1.1)]
got = judged(four)
check("over models", (got["verdict"], got["units"], got["models"], got["on_side"]) == ("supported", 3, 4, 3) and got["low"] > 0, got)
single = [judged([f]) for f in four]
check("side by side", all(near(got[f"m{i + 1}.{key}"], one[key]) if key != "verdict" else got["m%d.verdict" % (i + 1)] == one[key]
                          for i, one in enumerate(single) for key in ("verdict", "value", "low", "high", "p", "q", "units")), got, single)
y = np.array([single[0]["value"], single[1]["value"], (single[2]["value"] + single[3]["value"]) / 2])
check("families", near(got["value"], y.mean()) and near(got["predicted_high"], y.mean() + 4.302652729911275 * y.std(ddof=1) * math.sqrt(4 / 3)) and got["tau"] >= 0, got, y)
check("metadata", "m4 = m4 (qwen)" in got["meta"]["models"] and got["meta"]["frozen"] == "not frozen", got["meta"])
two = judged([three[0], three[2], four[3]])
check("two families", two["verdict"] == "undecided" and two["units"] == 2 and "2 families" in two["why"] and two["value"] is None, two)
check("which are supported in each model", all(two[f"m{i}.verdict"] == "supported" for i in (1, 3, 4)), two)
text = subprocess.run([kvfate, "claims", three[0], three[2], "--register", register()], capture_output=True, text=True).stdout
check("two families in words", text.startswith("undecided: 2 families c (P, figure 1)") and "m3: supported" in text and text.rstrip().endswith("freeze: not frozen"), text)
text = subprocess.run([kvfate, "claims", *four, "--register", register()], capture_output=True, text=True).stdout
check("heterogeneity in words", "between families: tau" in text and "I^2" in text and "3 families of 4 models" in text and "a further family" in text, text)
apart = [folder("n1", "llama", 1.0), folder("n2", "gemma", 3.0), folder("n3", "qwen", -1.0)]
got = judged(apart)
check("families that disagree", got["verdict"] == "undecided" and got["n1.verdict"] == "supported" and got["n3.verdict"] == "contradicted" and got["i2"] > .9, got)
got = judged(three, null=2)
check("contradicted", got["verdict"] == "contradicted", got)
got = judged(three, than="between", null=[.2, 1.8])
check("between", got["verdict"] == "supported", got)
got = judged([*three, folder("n4", "phi", 1.0, needed=1)], needs={"needed": "> 0"})
check("models that cannot be compared are left out", got["verdict"] == "undecided" and (got["models"], got["left_out"], got["m1.verdict"]) == (1, 3, "not comparable here"), got)
check("no model", judged(three, needs={"T": "> 0"})["verdict"] == "not comparable here")
got = judged(three, interval="none", reduce="least", null=.5)
least = min(float(line.split("\t")[2]) for f in three for line in open(os.path.join(f, "v.tsv"), encoding="utf-8") if line.startswith("d") and "\t" in line and line[1].isdigit())
check("a theorem holds in the worst model", near(got["value"], min(got[f"m{i}.value"] for i in (1, 2, 3))) and got["verdict"] == ("supported" if got["value"] > .5 else "contradicted"), got, least)
# null data and controls
for f, family, level in zip(three, ("llama", "gemma", "qwen"), (1.0, 1.2, .8)):
    name = os.path.basename(f)
    folder(name, family, 0.1, ".null")
    folder(name, family, level, ".same", seed=1)
    folder(name, family, -1, ".low")
got = judged(three, no_null=None, null_check={"run": "null"})
check("null data", (got["verdict"], got["null_check"]) == ("supported", "as claimed") and got["difference_low"] > 0 and got["difference_units"] == 3
      and near(got["difference"], np.mean([got[f"m{i}.difference"] for i in (1, 2, 3)])) and near(got["null_value"], np.mean([got[f"m{i}.null_value"] for i in (1, 2, 3)])), got)
check("unspecific", judged(three, no_null=None, null_check={"run": "same"})["verdict"] == "unspecific")
check("unguarded", judged(three, no_null=None)["verdict"] == "unguarded" and judged(three, no_null=None, null_check={"run": "gone"})["null_check"] == "not run")
os.remove(os.path.join(three[1], "v.null.tsv"))
got = judged(three, no_null=None, null_check={"run": "null"})
check("null data of two families", got["verdict"] == "unguarded" and "2 families" in got["why"], got)
check("control", judged(three, control={"run": "low"})["verdict"] == "undecided" and judged(three, control={"run": "same"})["control"] == "supported")

# errors
refused("one model twice", 1, ["claims", three[0], folder("m1", "llama", 1.0, where=os.path.join(work.name, "again")), "--register", register()], "m1", "rename")
refused("one model in two folders", 1, ["claims", three[0], folder("m9", "llama", 1.0, model_hash=hash_of("m1")), "--register", register()], "one model")
refused("no family", 1, ["claims", three[0], folder("m8", "", 1.0), "--register", register()], "m8", "family")
folder("m7", "llama", 1.0)
folder("m7", "gemma", 1.0, ".b")
refused("two models in a folder", 1, ["claims", three[0], os.path.join(work.name, "m7"), "--register", register(minus={"run": "b"})], "several models", "family")
refused("coverage of several", 2, ["claims", *three, "--coverage"], "one folder")
os.rename(three[0], os.path.join(work.name, "-m1"))
r = subprocess.run([kvfate, "claims", "--json", "--register", register(), "--", "-m1"], capture_output=True, text=True, cwd=work.name)
check("a folder whose name begins with -", r.returncode == 0 and json.loads(r.stdout)["data"]["verdict"] == ["supported"], r.stderr)
os.rename(os.path.join(work.name, "-m1"), three[0])

# numbers whose squares overflow
for level, words in ((1e200, "overflow"), (1e308, "overflow")):
    got = judged([folder("large", "llama", level)])
    check(f"numbers of {level:g}", got["verdict"] == "not run" and words in got["why"] and not got["said"], got)
got = judged([folder("large", "llama", 1e308)], null=1e308, value="x")
check("not near 1e308 either", got["verdict"] == "not run" and not got["said"], got)
path = os.path.join(work.name, "large", "v.tsv")
Path(path).write_text("doc\tsource\tx\ty\n" + "".join(f"d{i}\ts{i}\t{1e308}\t{-1e308}\n" for i in range(SOURCES)), encoding="utf-8")
got = judged([os.path.join(work.name, "large")], less="y")
check("a difference that overflows", got["verdict"] == "not run" and "overflow" in got["why"], got)

# ---- freeze

model = os.path.join(work.name, "tiny.gguf")
subprocess.run([sys.executable, os.path.join(ROOT, "tests", "data", "golden", "tools", "gen_tiny.py"), "--layers", "1", "--heads", "2", "--kv-heads", "1", "--head-dim", "16", "--dim", "32",
                "--ffn", "32", "--type", "f32", "-o", model], check=True, stdout=subprocess.DEVNULL)
texts = os.path.join(work.name, "texts")
os.makedirs(texts)
for name in ("law-1", "song-1"):
    Path(os.path.join(texts, name + ".txt")).write_text(name * 100, encoding="utf-8")
extra = os.path.join(work.name, "gates.safetensors")
Path(extra).write_bytes(b"gates")
frozen = os.path.join(work.name, "frozen.json")
FREEZE = ["claims", "freeze", "--texts", texts, "-m", model, "--input", extra]
r = subprocess.run([kvfate, *FREEZE, "--register", register(), "--seed", "3", "-o", frozen], capture_output=True, text=True)
check("freeze", r.returncode == 0 and not r.stderr and r.stdout.startswith(frozen), r.stderr)


def sha(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


whole = json.loads(Path(frozen).read_text(encoding="utf-8"))
version = subprocess.run([kvfate, "--version"], capture_output=True, text=True).stdout.split("\n")[0]
listing = "".join(f"{sha(os.path.join(texts, n))}  {n}\n" for n in ("law-1.txt", "song-1.txt"))
check("what is frozen", whole["register"]["sha256"] == sha(register()) and whole["models"][0]["sha256"] == sha(model) and whole["models"][0]["family"] == "llama"
      and whole["texts"]["files"] == {n: sha(os.path.join(texts, n)) for n in ("law-1.txt", "song-1.txt")} and whole["texts"]["sha256"] == hashlib.sha256(listing.encode()).hexdigest()
      and whole["others"][0]["sha256"] == sha(extra) and whole["seed"] == 3 and whole["program"] == version, whole)
refused("a freeze is not replaced", 1, [*FREEZE, "-o", frozen], "not replaced")
refused("freeze without texts", 2, ["claims", "freeze", "-m", model, "-o", "x.json"], "--texts")
refused("freeze without a model", 2, ["claims", "freeze", "--texts", texts, "-o", "x.json"], "--model")
refused("freeze without a name", 2, FREEZE, "-o")
refused("freeze of no texts", 1, ["claims", "freeze", "--texts", three[0], "-m", model, "-o", os.path.join(work.name, "x.json")], "SOURCE-N.txt")
refused("options of freeze elsewhere", 2, ["claims", three[0], "--texts", texts], "freeze")
STAMP = {"frozen": sha(frozen), "input_program": version, "input_seed": "3", "input_texts": whole["texts"]["sha256"], "input_model": sha(model), "input_others": sha(extra)}


def with_freeze(name, **changed):
    out = folder(name, "llama", 1.0, **{**STAMP, **changed})
    Path(os.path.join(out, "frozen.json")).write_bytes(Path(frozen).read_bytes())
    return out


got = judged([with_freeze("f0")])
check("judged as frozen", got["meta"]["frozen"] == sha(frozen) and got["verdict"] == "supported" and not got["said"], got)
for name, words, changed in (("f1", "the texts", {"input_texts": "0" * 64}), ("f2", "the model", {"input_model": "0" * 64}), ("f3", "the seed is 4, not 3", {"input_seed": "4"}),
                             ("f4", "the program is kvfate 0.0", {"input_program": "kvfate 0.0"}), ("f5", "gates", {"input_others": "0" * 64}),
                             ("f6", "without this freeze", {"frozen": "not frozen"})):
    got = judged([with_freeze(name, **changed)], status=3)
    check("differs: " + words, words in got["said"] and "inputs differ from the frozen ones" in got["said"] and got["said"].count("\n") == 1 and got["verdict"] == "supported"
          and got["meta"]["frozen"].endswith("(inputs differ)"), got)
got = judged([os.path.join(work.name, "f0")], status=3, null=.01)
check("the register differs", "the register" in got["said"], got)
os.remove(os.path.join(work.name, "f0", "frozen.json"))
got = judged([os.path.join(work.name, "f0")], status=3)
check("the freeze is lost", "frozen.json is not there" in got["said"] and got["meta"]["frozen"].startswith("not frozen"), got)
Path(os.path.join(work.name, "f0", "frozen.json")).write_text("{}", encoding="utf-8")
refused("no freeze", 1, ["claims", os.path.join(work.name, "f0"), "--register", register()], "frozen.json", "no freeze")
mixed = [with_freeze("g1"), folder("g2", "gemma", 1.0), folder("g3", "qwen", 1.0)]
got = judged(mixed)
check("folders without a freeze are told", got["meta"]["frozen"] == sha(frozen) + " not frozen", got["meta"])
finish()
