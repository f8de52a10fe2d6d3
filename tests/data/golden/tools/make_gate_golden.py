#!/usr/bin/env python3
"""Make tests/data/golden/gates.json: what the published code of methods with learned gates, admission or a choice at
read time decides on small inputs.

usage: make_gate_golden.py --officials DIR -o FILE [--only METHOD]

DIR holds one checkout for each name of gate_officials.SOURCES; torch and einops are needed.  The format of FILE is
described in ../README.md; tests/oracle/golden_gates.py compares FILE with rules in numpy.
"""
import argparse
import json
import math

import numpy as np
import torch

import gate_officials
import gate_reads
import method_officials
from gate_cases import CASES
from make_method_golden import compact

GAP = 2e-5  # the least distance of a score kept to one dropped, over the largest score


# ---- how clear a choice is

def gap(scores, kept):
    """scores and what is kept of them, over one list of choices made together"""
    scores = [-math.inf if s is None else s for s in scores]
    finite = [abs(s) for s in scores if math.isfinite(s)]
    inside = [s for s, k in zip(scores, kept) if k and math.isfinite(s)]
    outside = [s for s, k in zip(scores, kept) if not k and math.isfinite(s)]
    if not inside or not outside:
        return math.inf
    return (min(inside) - max(outside)) / max(1e-30, max(finite))


def spread(scores):
    """the least distance between neighbours: where the boundary is not known"""
    s = sorted(x for x in scores if x is not None and math.isfinite(x))
    return min(np.diff(s), default=math.inf) / max(1e-30, max(map(abs, s), default=1))


def case_gaps(method, spec, p, out):
    if method in ("trimkv", "trimkv_norm", "dbtrimkv", "dbtrimkv_paged", "dbtrimkv_floor"):
        for one in out["steps"]:
            lanes = [(s, [j in k for j in b]) for part in zip(one["scores"], one["before"], one["kept"])
                     for s, b, k in zip(*part)]
            yield from (gap(*lane) for lane in lanes)
            if p.get("least") or p.get("floor"):
                yield spread(sum((s for s, _ in lanes), []))
            elif method.startswith("db") and not p.get("layer_wise"):
                yield gap(*(sum(x, []) for x in zip(*lanes)))
            elif p.get("layer_wise"):
                yield from (gap(sum(s, []), [j in k for x, k in zip(b, kept) for j in x])
                            for s, b, kept in zip(one["scores"], one["before"], one["kept"]))
    elif method == "wgkv_snapkv":
        for one in out["cuts"]:
            for before, scores, kept in zip(*(sum(one[key], []) for key in ("before", "scores", "kept"))):
                if scores:
                    yield gap(scores, [j in kept for j in before])
    elif method == "quest":
        for u, chosen in zip(out["bounds"], out["selected"]):
            yield gap(u, [b * p["page"] in chosen for b in range(len(u))])
    elif method == "quest_library":
        yield from (spread(u) for u in out["bounds"])
    elif method == "h2o_masked":
        yield from (spread([x for x in s if x]) for one in out["steps"] for s in one["scores"])
    elif method == "seer":
        for one in out["steps"]:
            for layer in one["scores"]:
                for s in layer:
                    yield spread(s[:-1])
    elif method == "locret":
        yield spread(sum(gate_scores(spec), []))
    elif method == "scissorhands_library":
        for s in out["scores"]:
            yield spread(s)


def gate_scores(spec):
    from method_inputs import Draws
    return Draws(spec["seed"]).take(spec["H"], spec["n"]).tolist()


# ---- writing

def made(trees, drivers, method, spec, params):
    for seed in range(spec["seed"], spec["seed"] + 3000):
        case = {"method": method, "params": params, "in": dict(spec, seed=seed)}
        full = drivers[method](trees, case["in"], params)
        least = min(case_gaps(method, case["in"], params, full), default=math.inf)
        if least >= GAP:
            case["out"] = thinned(full, params.get("all"))
            if math.isfinite(least):
                case["gap"] = least
            return case
    raise SystemExit(f"{method} {params}: no seed gives a clear choice")


def thinned(out, everything):
    """the scores of the first and of the last cut are enough"""
    for one in out.get("steps", []):
        one.pop("before", None)
    for one in (out.get("cuts") or out.get("steps") or [])[1:-1]:
        if not everything:
            one.pop("scores", None)
    return out


def main():
    a = argparse.ArgumentParser(usage=__doc__)
    a.add_argument("--officials", required=True)
    a.add_argument("-o", required=True)
    a.add_argument("--only")
    o = a.parse_args()
    torch.set_num_threads(1)
    method_officials.SOURCES.clear()
    method_officials.SOURCES.update(gate_officials.SOURCES)
    trees = method_officials.Trees(o.officials)
    sources = {}
    for name, (repo, commit, digests) in gate_officials.SOURCES.items():
        if trees.digests(name) != digests:
            raise SystemExit(f"{name}: the files are not those of {repo} at {commit}: {trees.digests(name)}")
        sources[name] = {"repository": repo, "commit": commit}
    drivers = {**vars(gate_officials), **vars(gate_reads)}
    lines = []
    for method, spec, params in CASES:
        if o.only in (None, method):
            case = compact(made(trees, drivers, method, spec, params))
            lines.append(json.dumps(case, separators=(",", ":")))
    head = json.dumps({"versions": {"torch": torch.__version__, "numpy": np.__version__}, "sources": sources}, indent=1)
    with open(o.o, "w", encoding="ascii") as f:
        f.write(head[:-2] + ',\n "cases": [\n' + ",\n".join(lines) + "\n]}\n")


if __name__ == "__main__":
    main()
