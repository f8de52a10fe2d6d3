#!/usr/bin/env python3
"""Compares methods.py and allocation.py with the decisions of the methods' published code
(tests/data/golden/methods.json), wherever docs/reference/methods.md states that the rule is the
published one. Compares rules_*.py with tests/data/golden/gates.json (golden_gates.py).

usage: golden.py [-v]     prints for each published method how many numbers and choices agree
"""
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import json
import sys
from types import SimpleNamespace

import numpy as np

import allocation
import methods
import methods_keys
import methods_window
from tiny_llama import GOLDEN

sys.path.insert(0, os.path.join(GOLDEN, "tools"))
from method_inputs import Inputs

import golden_evaluator
import golden_gates

TOLERANCE = 2e-6  # of the largest number of its list: the published code ran in f32


class Replay:
    """A Session (tiny_llama.py) over given queries and keys; `apart` gives each query head a copy of its KV head."""

    def __init__(self, xs, apart=False):
        x = xs[0]
        self.xs, self.kv_heads, self.t = xs, x.G if apart else x.H, 0
        self.m = SimpleNamespace(layers=len(xs), heads=x.G, kv_heads=self.kv_heads)
        self.keys = np.array([np.repeat(y.k.astype(float), self.kv_heads // y.H, axis=0) for y in xs])
        self.rows = np.zeros((len(xs), x.G, x.n, x.n))
        self.scaled = np.full(self.rows.shape, -np.inf)
        self.seen = np.zeros((len(xs), self.kv_heads, x.n), int)
        self.alive = [[[] for _ in range(self.kv_heads)] for _ in xs]
        self.unsure, self.remembered, self.slots = False, {}, {}

    def feed(self, until):
        while self.t < until:
            for layer, x in enumerate(self.xs):
                for head, alive in enumerate(self.alive[layer]):
                    alive.append(self.t)
                    self.seen[layer, head, self.t] = len(alive)
                    if self.t >= x.n - x.rows:
                        self.attend(layer, x, head, alive)
            self.t += 1

    def attend(self, layer, x, head, alive):
        for g in methods_window.query_heads(self, head):
            z = self.keys[layer, head, alive] @ x.queries(self.t, self.t + 1)[g, 0] / np.sqrt(x.d)
            a = np.exp(z - z.max())
            self.rows[layer, g, self.t, alive] = a / a.sum()
            self.scaled[layer, g, self.t, alive] = z

    def evict(self, layer, head, position):
        self.alive[layer][head].remove(position)


class Report:
    def __init__(self):
        self.numbers, self.choices, self.apart, self.wrong, self.worst = {}, {}, {}, [], 0.0

    def close(self, name, got, want):
        got, want = np.asarray(got, float).ravel(), np.asarray(want, float).ravel()
        self.numbers[name] = self.numbers.get(name, 0) + len(want)
        if got.shape != want.shape:
            self.wrong.append(f"{name}: {len(got)} numbers for {len(want)}")
            return
        off = np.abs(got - want).max() / max(1e-30, np.abs(want).max()) if len(want) else 0
        self.worst = max(self.worst, off)
        if not off <= TOLERANCE:
            self.wrong.append(f"{name}: differs by {off:.3g} of the largest")

    def equal(self, name, got, want):
        self.choices[name] = self.choices.get(name, 0) + 1
        if got != want:
            self.wrong.append(f"{name}: {got}, published code {want}")


    def differs(self, what, is_so):
        """Counts decisions that another reading of the method would change; this is no error."""
        count, of = self.apart.get(what, (0, 0))
        self.apart[what] = count + bool(is_so), of + 1


def row(**given):
    return methods.NEUTRAL | {key.replace("_", "-"): x for key, x in given.items()}


def whole_run(spec, apart=False, layers=1):
    run = Replay([Inputs(spec, layer) for layer in range(layers)], apart)
    run.feed(spec["n"])
    return run


def scores_of(name, p, run, layer=0):
    """Returns [head]: {entry: score}."""
    C = [methods.candidates(p, a, run.t - 1) for a in run.alive[layer]]
    return [methods.scored(name, p, run, layer, h, C[h])[0] for h in range(run.kv_heads)]


def stays(score, places, run, layer, head):
    """Returns the best candidates and all protected entries."""
    cut = set(methods.lowest_first(score)[: max(0, len(score) - places)])
    return [j for j in run.alive[layer][head] if j not in cut]


def one_choice(report, label, name, p, run, want, places, layer=0, clear=True, factor=1.0):
    scores = scores_of(name, p, run, layer)
    report.close(label, [factor * x for s in scores for x in s.values()], np.concatenate(want["scores"]))
    if clear:
        report.equal(label, [stays(s, places, run, layer, h) for h, s in enumerate(scores)], want["kept"])


# ---- the end of the prompt

def snapkv(report, case, label="snapkv", group=None):
    p, out = case["params"], case["out"]
    if not out["scores"] or group == "max":  # there the maximum of sums, here the sum of maxima
        return
    r = row(window=p["window"], recent=p["window"], pool=p["kernel"], pool_kind=p["pool"], group=group or "mean")
    run = whole_run(case["in"], apart=group is None)
    clear = case.get("gap") != 0
    one_choice(report, label, "snapkv", r, run, out, p["capacity"] - p["window"], 0, clear, p["window"])


def snapkv_group(report, case):
    snapkv(report, case, "snapkv_group", case["params"]["group"])


def press_scores(spec, p):
    """A mean over the window, an average over neighbours and a mean over the group, in any
    order."""
    r = row(window=p["window"], recent=p["window"], pool=p["kernel"], pool_kind="avg")
    run = whole_run(spec)
    return run, scores_of("snapkv", r, run)


def snapkv_press(report, case):
    p = case["params"]
    run, scores = press_scores(case["in"], p)
    w, count = p["window"], len(case["out"]["kept"][0])
    report.close("snapkv_press", [list(s.values()) for s in scores], [s[:-w] for s in case["out"]["scores"]])
    if count >= w:
        kept = [stays(s, count - w, run, 0, h) for h, s in enumerate(scores)]
        report.equal("snapkv_press", kept, case["out"]["kept"])


def adakv(report, case, label="adakv"):
    p, group = case["params"], case["params"]["group"]
    r = row(window=p["window"], recent=p["window"], pool=p["kernel"], pool_kind=p["pool"], group=group or "mean")
    layers = case["out"]["layers"]
    if group == "max":
        return
    run = whole_run(case["in"], group is None, len(layers))
    for layer, want in enumerate(layers):
        scores = scores_of("adakv", r, run, layer)
        report.close(label, np.concatenate([list(s.values()) for s in scores]), np.concatenate(want["scores"]))
        # Its budgets are rounded for each head, except if all or no places are shared.
        if p["alpha"] in (0, 1) and not p.get("normalize") and want["base"] < len(scores[0]):
            least = int(p["alpha"] * want["base"])
            chosen = allocation.dealt_out(scores, least, len(scores) * want["base"])
            report.equal(label, kept_sets(run, layer, r, *chosen), want["kept"])


def adakv_group(report, case):
    if not case["params"]["normalize"]:
        adakv(report, case, "adakv_group")


def kept_sets(run, layer, p, safe, rest):
    protected = [set(a) - set(methods.candidates(p, a, run.t - 1)) for a in run.alive[layer]]
    return [sorted(protected[h] | {j for g, j in safe | rest if g == h}) for h in range(run.kv_heads)]


def adakv_press(report, case):
    """Its window is protected by scores, not separately."""
    p, n = case["params"], case["in"]["n"]
    run, scores = press_scores(case["in"], p)
    top = max(max(s.values()) for s in scores) + 1
    scores = [s | {j: top for j in range(n - p["window"], n)} for s in scores]
    each = int(n * (1 - p["ratio"]))
    chosen = allocation.dealt_out(scores, int(each * p["alpha"]), len(scores) * each)
    report.equal("adakv_press", kept_sets(run, 0, row(), *chosen), case["out"]["kept"])


# ---- budgets of layers

def pyramidkv(report, case):
    p, n, out = case["params"], case["in"]["n"], case["out"]
    u, layers = p["capacity"] - p["window"], p["layers"]
    m = u // p["beta"]
    exact = u % p["beta"] == 0 and (2 * u - 2 * m) % (layers - 1) == 0
    if exact and n >= 2 * u and 2 * u - m < n - p["window"]:
        report.equal("pyramidkv", [p["window"] + x for x in allocation.pyramid(layers, u, p["beta"])], out["budgets"])
    if "scores" in out and (p["group"] == "mean" or case["in"]["G"] == case["in"]["H"]):
        r = row(window=p["window"], recent=p["window"], pool=p["kernel"], pool_kind=p["pool"], group=p["group"])
        run = whole_run(case["in"], layers=layers)
        for layer in range(layers):
            want = {key: out[key][layer] for key in ("scores", "kept")}
            places = out["budgets"][layer] - p["window"]
            one_choice(report, "pyramidkv", "pyramidkv", r, run, want, places, layer, factor=p["window"])


def pyramidkv_press(report, case):
    p, n, out = case["params"], case["in"]["n"], case["out"]["budgets"]
    u = round(n * (1 - p["ratio"]), 9)
    m = u / p["beta"]
    fits = n >= 2 * u - m >= m >= p["window"] and 2 * u - m < n - p["window"]
    if fits and u == int(u) and sum(out) == p["layers"] * u:
        report.equal("pyramidkv_press", allocation.pyramid(p["layers"], int(u), p["beta"]), out)


def cake(report, case):
    p, out = case["params"], case["out"]
    run = Replay([Inputs(case["in"], layer) for layer in range(p["layers"])])
    run.feed(p["prompt"])
    r = row(window=p["window"], recent=p["window"], pool=5, pool_kind="avg", gamma=p["gamma"])
    got = []
    for layer in range(p["layers"]):
        C = [methods.candidates(r, a, run.t - 1) for a in run.alive[layer]]
        entropy, spread = allocation.preference(run, r, layer, C)
        got.append(entropy ** (1 / p["tau1"]) * spread ** (1 / p["tau2"]))
        scores = scores_of("cake", r, run, layer)
        report.close("cake", np.concatenate([list(s.values()) for s in scores]), np.concatenate(out["scores"][layer]))
        if len(out["steps"][0]["kept"][layer][0]) < p["prompt"]:
            places = len(out["steps"][0]["kept"][layer][0]) - p["window"]
            kept = [stays(s, places, run, layer, h) for h, s in enumerate(scores)]
            report.equal("cake", kept, out["steps"][0]["kept"][layer])
    for a, b in zip(got, out["preference"]):
        report.close("cake preference", [a], [b])
    report.equal("cake shares", shares_agree(got, out["preference"], p), True)


def shares_agree(got, published, p):
    """Our shares differ by at most one from the exact parts of the published preference, and use
    all places."""
    places = p["layers"] * (p["capacity"] - p["window"])
    mine = allocation.whole([places * x / sum(got) for x in got], places)[0]
    exact = [places * x / sum(published) for x in published]
    return sum(mine) == places and all(abs(a - b) < 1 for a, b in zip(mine, exact))


# ---- keys

def all_scores(name):
    def check(report, case):
        run = whole_run(case["in"])
        one_choice(report, name, name, row(), run, case["out"], len(case["out"]["kept"][0]))
    return check


def tova_press(report, case):
    run = whole_run(case["in"])
    out = {"scores": [s[:-1] for s in case["out"]["scores"]], "kept": case["out"]["kept"]}
    one_choice(report, "tova_press", "tova", row(window=1, recent=1), run, out, len(out["kept"][0]) - 1)


# ---- repeated evictions

def rounds(report, label, name, p, case, budget, until, upto=None, kept=True, apart=False):
    """Runs tokens and evictions; compares every eviction's scores and kept entries."""
    run = Replay([Inputs(case["in"])], apart)
    wanted = case["out"].get("rounds") or case["out"]["steps"]
    for t, want in list(zip(until, wanted))[:upto]:
        run.feed(t)
        for head in range(1 if name == "tova" else run.kv_heads):
            cut = methods.decide(name, p, run, 0, head, t - 1, budget).get(head)
            if cut:
                methods.remember(name, p, run, 0, head, cut)
                score = cut.score | cut.kept
                report.close(label, [score[j] for j in sorted(score)], want["scores"][head])
                for j in cut.score:
                    for h in range(run.kv_heads) if name == "tova" else [head]:
                        run.evict(0, h, j)
            report.equal(label, run.alive[0][head], want["kept"][head])


def rkv(report, case):
    """Compares all rounds, with slots in the order of scores as in the published code. Skips
    cases where it ignores column 0 regardless of similarity, and keys so short that its epsilon
    matters."""
    p, slots = case["params"], [[]] * Inputs(case["in"]).H
    if p["retain"] == "first" or any(0 < np.hypot(*k) < 1e-5 for k in case["in"].get("keys", [])):
        return
    run = Replay([Inputs(case["in"])])
    r = row(window=p["window"], recent=p["window"], pool=p["kernel"], group="max-logits") | {"lambda": p["lambda"], "slots": "score"}
    for t, want in zip(p["rounds"], case["out"]["rounds"]):
        new = list(range(run.t, t))
        run.feed(t)
        for head in range(run.kv_heads) if "scores" in want else ():
            alive = slots[head] + new
            C = alive[: -p["window"]]
            report.close("rkv importance", methods_window.importance(run, r, 0, head, C), want["importance"][head])
            report.close("rkv redundancy", methods_keys.redundancy(run, 0, head, alive, C, 0), want["redundancy"][head])
            cut = methods.decide("rkv", r, run, 0, head, t - 1, p["budget"]).get(head)
            if cut:
                methods.remember("rkv", r, run, 0, head, cut)
                report.close("rkv", [(cut.score | cut.kept).get(j, np.inf) for j in C], want["scores"][head])
                for j in cut.score:
                    run.evict(0, head, j)
            report.equal("rkv", run.alive[0][head], want["kept"][head])
            if cut and "slots" in want:
                report.equal("rkv", methods_keys.in_slots(run, r, 0, head, run.alive[0][head]), want["slots"][head])
        slots = want.get("slots", want["kept"])


def snapkv_decode(report, case):
    """rkv with only importance."""
    p = case["params"]
    r = row(window=p["window"], recent=p["window"], pool=p["kernel"], group="max-logits") | {"lambda": 1}
    rounds(report, "snapkv_decode", "rkv", r, case, p["budget"], p["rounds"], upto=1)


def gkv(report, case):
    """Its scores without redundancy are those of snapkv-global, and of gkv with lambda 1. Without
    smoothing no normalisation occurs: the order is equal, the score is not."""
    p, until = case["params"], case["params"]["rounds"]
    if p["gamma"] or p["ratio"] or p["smooth"] is None or p["disable_norm"] or p["redundancy"] == "raw":
        return
    if any(b - a < p["window"] for a, b in zip(until, until[1:])) or "keys" in case["in"]:
        return  # queries before the last eviction saw more than its slots; keys so short that its epsilon matters
    r = row(window=p["window"], recent=p["window"], group="max", history=p["alpha"], fold={"mean": "average"}.get(p["smooth"], p["smooth"]),
            pool=p["kernel"] if p["pooling"] else 1)
    r["lambda"] = p["lambda"] if p["redundancy"] else 1
    rounds(report, "gkv " + p["smooth"], "gkv", r, case, p["budget"], until)
    if not p["redundancy"]:
        rounds(report, "snapkv-global", "snapkv-global", r, case, p["budget"], until)


def h2o(report, case):
    p, n = case["params"], case["in"]["n"]
    r = row(recent=p["recent"], group="sum")
    rounds(report, "h2o", "h2o", r, case, p["heavy"] + p["recent"], range(p["prompt"], n + 1))


def tova(report, case):
    p, n = case["params"], case["in"]["n"]
    rounds(report, "tova", "tova", row(window=1), case, p["capacity"], range(p["prompt"], n + 1))


def morphkv(report, case):
    """Each head separately. The current query is excluded, so the eviction is the one before it."""
    p, spec = case["params"], case["in"]
    if spec["G"] != spec["H"] or p["fuse"] != "max" or p["evict_after"] != 1:
        return
    run = Replay([Inputs(spec)])
    r = row(window=p["window"], recent=p["window"] + 1)
    run.feed(p["prompt"])
    for want in case["out"]["steps"]:
        for head in range(run.kv_heads):
            cut = methods.decide("morphkv", r, run, 0, head, run.t, p["capacity"] + 1).get(head)
            if cut:
                score = cut.score | cut.kept
                report.close("morphkv", [score[j] for j in sorted(score)], want["scores"][head])
                for j in cut.score:
                    run.evict(0, head, j)
            report.equal("morphkv", run.alive[0][head] + [run.t], want["kept"][head])
        run.feed(run.t + 1)


CHECKS = {f.__name__: f for f in (snapkv, snapkv_group, snapkv_press, snapkv_decode, rkv, gkv, adakv, adakv_group,
                                  adakv_press, pyramidkv, pyramidkv_press, cake, tova, tova_press, h2o, morphkv)}
CHECKS |= {"keydiff": all_scores("keydiff"), "knorm": all_scores("knorm")}
# The minimum to compare, so that no condition above silently skips a method.
EXPECTED = set(CHECKS) - {"gkv"} | {"rkv importance", "rkv redundancy", "cake preference", "cake shares", "snapkv-global",
                                    "gkv max", "gkv mean", "gkv sum"}


def check(report, name, checks, expected):
    with open(os.path.join(GOLDEN, name)) as f:
        cases = json.load(f)["cases"]
    for i, case in enumerate(cases):
        if case["method"] in checks:
            before = len(report.wrong)
            checks[case["method"]](report, case)
            report.wrong[before:] = [f"{name} case {i}: {x}" for x in report.wrong[before:]]
    missing = expected - {*report.numbers, *report.choices}
    report.wrong += [f"{x}: nothing was compared" for x in sorted(missing)]


def check_methods():
    report = Report()
    check(report, "methods.json", CHECKS, EXPECTED)
    return report


def main():
    report = check_methods()
    check(report, "gates.json", golden_gates.CHECKS, set(golden_gates.CHECKS))
    evaluated = golden_evaluator.CHECKS
    check(report, "gates.json", evaluated, {"evaluator: " + name for name in evaluated})
    for name in sorted({*report.numbers, *report.choices}):
        print(f"{name}: {report.numbers.get(name, 0)} numbers, {report.choices.get(name, 0)} choices compared")
    for what, (count, of) in report.apart.items():
        print(f"{what}: {count} of {of} differ")
    print("\n".join(report.wrong[:20]))
    total = sum(report.numbers.values()), sum(report.choices.values())
    print(f"{total[0]} numbers and {total[1]} choices of published code compared, {len(report.wrong)} differ; "
          f"largest error {report.worst:.2g} of the largest number")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
