#!/usr/bin/env python3
"""Make or check tests/data/golden/methods.json: what the published code of cache methods decides on small inputs.

usage: make_method_golden.py --officials DIR -o FILE     run the published code (torch on the CPU) and write FILE
       make_method_golden.py --check FILE [-v]           compare FILE with method_rules.py (numpy only)

DIR holds one checkout for each name of method_officials.SOURCES.  The format of FILE is described in ../README.md.
"""
import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np

import method_rules
from method_cases import CASES

GAP = 1e-4  # seeds are taken such that no choice hangs on less than this, relative to the largest score
ORDER = 2e-6  # the same for neighbours in the order of slots
TOLERANCE = 2e-6  # of the largest number of its list: float32 against float64


# ---- how clear a choice is

def head_gap(scores, kept):
    """the least score kept less the largest one dropped, relative; infinite when nothing is dropped"""
    order = sorted(scores, reverse=True)
    if not 0 < kept < len(order):
        return math.inf
    return (order[kept - 1] - order[kept]) / max(1e-30, max(map(abs, order)))


def gaps(out, slots):
    """of every head; the scores may leave out slots at the end, which are kept"""
    for s, k in zip(out.get("scores", []), out.get("kept", [])):
        yield head_gap(s, len(k) - (slots - len(s)))


def order_gaps(out):
    """the least relative difference of scores that stand in the order of slots, as multiples of GAP / ORDER"""
    if "slots" in out:
        for s in out["scores"] if "scores" in out else []:
            diff = -np.diff(sorted(s, reverse=True)) / max(map(abs, s))
            yield diff.min() * GAP / ORDER if diff.min() > 0 else math.inf


def case_gaps(case):
    out, n, p = case["out"], case["in"].get("n", 0), case["params"]
    if case["method"] == "cake":
        yield from cake_gaps(out, p)
    elif case["method"] == "pyramidkv":
        for s, k in zip(out.get("scores", []), out.get("kept", [])):
            yield from gaps({"scores": s, "kept": k}, n)
    elif case["method"].startswith("adakv"):
        for layer in out.get("layers", []):
            yield from gaps(layer, n)
            yield layer.get("global_gap", math.inf) / max(map(max, layer["scores"]))
        yield out.get("global_gap", math.inf)
    else:
        yield from gaps(out, n)
        yield from order_gaps(out)
    held = seen = 0
    for one, t in zip(out.get("rounds", []), p.get("rounds", [])):
        yield from gaps(one, held + t - seen)
        yield from order_gaps(one)
        held, seen = len(one["kept"][0]), t
    for one in out.get("steps", []) if case["method"] != "cake" else []:
        yield from gaps(one, held + 1 if held else p["prompt"] + (case["method"] == "morphkv"))
        held = len(one["kept"][0])


def cake_gaps(out, p):
    """also the distance of each share to a whole number: it is truncated in float32"""
    for s, k in zip(out["scores"], out["steps"][0]["kept"]):
        yield from gaps({"scores": s, "kept": k}, p["prompt"])
        yield from order_gaps({"scores": s, "slots": k})
    for before, one in zip(out["steps"], out["steps"][1:]):
        for s, k, b in zip(one["scores"], one["kept"], before["kept"]):
            yield from gaps({"scores": s, "kept": k}, len(b[0]) + 1)
            yield from order_gaps({"scores": s, "slots": k})
    for l in range(1, len(out["preference"]) + 1):
        part = np.array(out["preference"][:l])
        x = part / part.sum() * (p["capacity"] - p["window"]) * p["layers"]
        yield from (np.abs(x - np.rint(x)) if l > 1 else [])


# ---- writing

def made(trees, drivers, method, spec, params, ties):
    """the case with the first seed, from spec["seed"] on, whose choices are clear (or not, for ties)"""
    for seed in range(spec.get("seed", 0), spec.get("seed", 0) + 4000):
        case = {"method": method, "params": params, "in": dict(spec, seed=seed) if "seed" in spec else spec}
        case["out"] = drivers[method](trees, case["in"], params)
        least = min(case_gaps(case), default=math.inf)
        if (least == 0 if ties else least >= GAP) or "seed" not in spec or "keys" in spec:
            if math.isfinite(least):
                case["gap"] = least
            return drop_slots(case)
    raise SystemExit(f"{method} {params}: no seed gives a clear choice")


def drop_slots(case):
    """the order of slots says nothing where equal scores are kept"""
    for out in [case["out"]] + case["out"].get("rounds", []):
        if "slots" in out and any(len(set(s)) < len(s) for s in out.get("scores", [])):
            del out["slots"]
    return case


def compact(x):
    if isinstance(x, float):
        return float("%.9g" % x)
    if isinstance(x, dict):
        return {key: compact(value) for key, value in x.items()}
    return [compact(value) for value in x] if isinstance(x, (list, tuple)) else x


def write(folder, path):
    import torch
    import method_decode
    import method_officials
    torch.set_num_threads(1)
    trees = method_officials.Trees(folder)
    sources = {}
    for name, (repo, commit, digests) in method_officials.SOURCES.items():
        if trees.digests(name) != digests:
            raise SystemExit(f"{name}: the files are not those of {repo} at {commit}: {trees.digests(name)}")
        sources[name] = {"repository": repo, "commit": commit}
    drivers = {**vars(method_officials), **vars(method_decode)}
    lines = []
    for method, spec, params, ties in CASES:
        lines.append(json.dumps(compact(made(trees, drivers, method, spec, params, ties)), separators=(",", ":")))
    head = json.dumps({"versions": {"torch": torch.__version__, "numpy": np.__version__}, "sources": sources}, indent=1)
    Path(path).write_text(head[:-2] + ',\n "cases": [\n' + ",\n".join(lines) + "\n]}\n", encoding="ascii")


# ---- checking

class Report:
    def __init__(self):
        self.worst, self.wrong = 0.0, []

    def numbers(self, where, got, want):
        got, want = np.asarray(got, float), np.asarray(want, float)
        if got.shape != want.shape:
            self.wrong.append(f"{where}: {want.shape} numbers expected, {got.shape} found")
        elif got.size:
            diff = np.abs(got - want).max() / max(1e-30, np.abs(want).max())
            self.worst = max(self.worst, diff)
            if not diff <= TOLERANCE:
                self.wrong.append(f"{where}: differs by {diff:.3g} of the largest")

    def compare(self, where, got, want, scores=None):
        """`scores` given: choices that take the same scores are the same choice"""
        if got is None:
            self.wrong.append(f"{where}: the rule says nothing")
        elif isinstance(want, dict):
            if "scores" in got and "scores" not in want:
                self.wrong.append(f"{where}: the rule chooses where the published code does not")
            for key in want:
                if key != "global_gap":
                    self.compare(f"{where}.{key}", got.get(key), want[key], want.get("scores") if scores else None)
        elif where == "out.kept" and scores and got != want:
            for g, k, s in zip(got, want, scores):
                if sorted(s[j] for j in g if j < len(s)) != sorted(s[j] for j in k if j < len(s)):
                    self.wrong.append(f"{where}: {k} expected, {g} found")
        elif isinstance(want, list) and want and isinstance(want[0], dict) and len(got) == len(want):
            for i, (g, w) in enumerate(zip(got, want)):
                self.compare(f"{where}[{i}]", g, w)
        elif where.rsplit(".", 1)[-1] in ("kept", "slots", "budgets", "lengths", "base", "after", "before"):
            if got != want:
                self.wrong.append(f"{where}: published code {want}, rule {got}")
        else:
            got, want = flat_lists(got), flat_lists(want)
            if len(got) != len(want):
                self.wrong.append(f"{where}: {len(want)} lists in the published code, {len(got)} by the rule")
            for i, (g, w) in enumerate(zip(got, want)):
                self.numbers(f"{where}[{i}]", g, w)


def flat_lists(x):
    """the innermost lists of numbers"""
    if len(x) and not np.isscalar(x[0]):
        return [y for part in x for y in flat_lists(part)]
    return [x]


def check(path, verbose):
    cases = json.loads(Path(path).read_text(encoding="ascii"))["cases"]
    bad, counts, worst = 0, {}, {}
    for i, case in enumerate(cases):
        report = Report()
        rule = getattr(method_rules, case["method"])(case["in"], case["params"])
        report.compare("out", rule, case["out"], True if case.get("gap") == 0 else None)
        name = case["method"]
        counts[name] = counts.get(name, 0) + 1
        worst[name] = max(worst.get(name, 0), report.worst)
        bad += bool(report.wrong)
        for line in report.wrong:
            print(f"case {i} {name} {case['params']} {case['in']}: {line}", file=sys.stderr)
    if verbose:
        for name in counts:
            print(f"{name:20} {counts[name]:3} cases, largest difference of scores {worst[name]:.2g}")
    print(f"{len(cases)} cases, {bad} differ")
    return bad > 0


def main():
    a = argparse.ArgumentParser(usage=__doc__)
    a.add_argument("--officials")
    a.add_argument("-o")
    a.add_argument("--check")
    a.add_argument("-v", action="store_true")
    o = a.parse_args()
    if o.officials and o.o:
        write(o.officials, o.o)
    elif o.check:
        sys.exit(check(o.check, o.v))
    else:
        a.error("nothing to do")


if __name__ == "__main__":
    main()
