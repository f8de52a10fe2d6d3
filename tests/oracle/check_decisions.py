#!/usr/bin/env python3
"""Compares every decision in the program's traces with an oracle that shares no code with it.

usage: check_decisions.py KVFATE METHOD|parts|evict-read|protect|overrides|fixed|protocols|properties|
       contract|refusals|planted|planted-gates [--cases N] [--seed S] [-v]

The oracle is a float64 model with a ragged cache (tiny_llama.py). Its methods are written from
docs/reference/methods.md (rows.py, methods.py). It reads the token ids of the trace and must evict
the same entries at the same steps. The program computes in f32, so two scores with a difference
below the limits in tolerance.py may be exchanged. Such a decision is excused and counted, and the
rest of its case is not compared.
"""
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import argparse
import importlib
import random
import sys
import tempfile

import numpy as np

import cases
import gates
import methods
from cases import MODELS, case_of
from comparison import Case, Tally
from engine import Engine, EngineError, Trace, method_text
from tiny_llama import Llama, generate_model

MAX_EXCUSED = 1e-3


class Models:
    """Models, made at first use."""

    def __init__(self, folder):
        self.folder, self.made = folder, {}

    def get(self, k):
        if k not in self.made:
            path = os.path.join(self.folder, f"model{k}.gguf")
            generate_model(MODELS[k], path)
            self.made[k] = path, Llama(path)
        return self.made[k]


def same(a, b):
    """Compares numbers that may be stored in f32."""
    return a == b or isinstance(a, (int, float)) and isinstance(b, (int, float)) and abs(a - b) <= 1e-7 * abs(b)


def tokens_of(c, vocab):
    rng = np.random.RandomState(c["seed"])
    return rng.randint(3, vocab, c["prompt"] + c.get("question", 0)), rng.randint(3, vocab, max(0, c["n"] - 1))


def options_of(engine, name, c, path, llama):
    """Returns (further options of the command line, the value of Session.gates)."""
    more, known = ["--probes", "lean,nll", "-t", 1 + c["seed"] % 2], None
    if "question" in c:
        more += ["--question", "unknown", "--question-at", c["prompt"]]
    if "gates" in c:
        known = gates.make(engine.path("gates.safetensors"), c["gates"], c["seed"], llama, c["prompt"] + c.get("question", 0) + c["n"])
        more += ["--gates", engine.path("gates.safetensors")]
    for text, other, given in c.get("overrides", []):
        more += ["--override", f"{text}={method_text(other, given)}"]
    if c.get("force"):
        ids, after = tokens_of(c, llama.vocab)
        more += engine.tokens_of_run(name, path, ids, after)
    return more, known


def record_case(engine, models, name, c):
    """Returns (trace, model, gates, effective numbers)."""
    path, llama = models.get(c["model"])
    more, known = options_of(engine, name, c, path, llama)
    out = engine.run(path, tokens_of(c, llama.vocab)[0], c["n"], method_text(name, c["given"]), c.get("percent", c["budget"]), *more)
    return Trace(engine, out), llama, known, engine.numbers(out)


def compare_recorded(tally, name, c, trace, llama, known, effective):
    """Returns the faults found, as lines."""
    case = Case(tally, name, c, trace, llama, known)
    question = c.get("question", 0)
    if trace.T != c["prompt"] + question + max(0, c["n"] - 1):
        case.fault(f"T is {trace.T}")
    if "percent" in c and (effective["budget"], effective["budget-percent"]) != (c["budget"], float(c["percent"][:-1])):
        case.fault(f"the budget is {effective['budget']}, {effective['budget-percent']} %")
    if question and list(np.flatnonzero(trace.roles == "question")) != list(range(c["prompt"], c["prompt"] + question)):
        case.fault("other tokens have the role of the question")
    if trace.evict_step.shape[1] != case.run.m.kv_heads:
        case.fault(f"the trace has {trace.evict_step.shape[1]} KV heads")
    other = {k: (effective.get(k), v) for k, v in case.p.items()
             if not same(effective.get(k, methods.NEUTRAL.get(k)), v)}
    if other:
        case.fault(f"effective numbers (program, document): {other}")
    if not case.faults:
        case.replay()
    return case.faults


def compare_case(engine, models, tally, name, c):
    return compare_recorded(tally, name, c, *record_case(engine, models, name, c))


def draw_case(rng, part, long, shared=True, i=None):
    """Returns (method, case). i: number of the case. For `parts`, the first cases cover each score
    once."""
    return cases.with_effect(*draw_any(rng, part, long, shared, i))


def draw_any(rng, part, long, shared, i):
    if part == "parts":
        return cases.parts_case(rng, long, cases.PART_SCORES[i] if i is not None and i < len(cases.PART_SCORES) else None)
    if part == "evict-read":
        return cases.evict_read_case(rng, long)
    if part == "protect":
        return cases.protect_case(rng, long)
    if part == "overrides":
        return cases.overrides_case(rng, long)
    if part == "protocols":
        return cases.protocol_case(rng, long, i)
    return part, case_of(rng, part, long, shared)


def check_method(engine, models, part, a):
    tally, rng, passed, failed = Tally(), random.Random(f"{part} {a.seed}"), 0, 0
    least = {"fixed": len(cases.FIXED), "parts": max(a.cases, len(cases.PART_SCORES))}
    for i in range(least.get(part, a.cases)):
        long = i % 10 == 9 or i + 1 == a.cases < 10  # every tenth case is long, or the last one of fewer cases
        name, c = cases.FIXED[i] if part == "fixed" else draw_case(rng, part, long, i=i)
        try:
            faults = compare_case(engine, models, tally, name, c)
        except EngineError as e:
            faults = [str(e)]
        tally.cases += 1
        tally.mismatches += bool(faults)
        passed, failed = passed + (not faults), failed + bool(faults)
        if faults or a.v:
            print(f"{'FAIL' if faults else 'ok'} {name} case {i}: {c} ({MODELS[c['model']]})")
            print("\n".join("  " + f for f in faults[:4]))
    print(tally.text(part))
    if tally.excused > MAX_EXCUSED * tally.decisions or tally.unsure_reads > 0.2 * tally.cases:
        print(f"FAIL {part}: {tally.excused} excused decisions are more than {MAX_EXCUSED:g} of all, or "
              f"{tally.unsure_reads} cases were left where pages are too close")
        failed += 1
    return passed, failed


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("program")
    ap.add_argument("part", choices=(*methods.METHODS, "parts", "evict-read", "protect", "overrides", "fixed", "protocols", "properties", "contract", "refusals", "planted", "planted-gates"))
    ap.add_argument("--cases", type=int, default=60)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("-v", action="store_true")
    a = ap.parse_args()
    a.cases = max(1, int(a.cases * {"quick": 1 / 4, "long": 6}.get(os.environ.get("KVFATE_TESTS"), 2 / 5)))
    with tempfile.TemporaryDirectory() as folder:
        engine, models = Engine(os.path.abspath(a.program), folder), Models(folder)
        if a.part in ("properties", "contract", "refusals"):
            passed, failed = importlib.import_module(a.part).check(engine, models)
        elif a.part.startswith("planted"):
            import planted
            passed, failed = planted.check(sys.modules[__name__], engine, models, a.part)
        else:
            passed, failed = check_method(engine, models, a.part, a)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
