#!/usr/bin/env python3
"""Compares every decision in the program's traces with an oracle that shares no code with it.

usage: check_decisions.py KVFATE METHOD|properties|planted [--cases N] [--seed S] [-v]

The oracle is a float64 model with a ragged cache (tiny_llama.py) whose methods are written from
docs/methods.md (methods.py).  It is fed the token ids of the trace and has to cut the same entries at
the same steps.  The program computes in f32, so two scores that differ by less than BOUND may change
places: such a decision is excused and counted, and the rest of its case is not compared.
"""
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import argparse
import itertools
import random
import sys
import tempfile

import numpy as np

import methods
from engine import Engine, EngineError, Trace, method_text
from tiny_llama import Llama, Session, generate_model, nll

# Weights, activations and cache are f32 with --exact, so a logit of size 10..30 is off by some 1e-6 to
# 1e-5, and so is, relatively, an attention weight, and a sum or maximum of such.  Unit keys are off by a
# few 2^-24 times the relative error of the key; a cosine is at most 1, its error absolute.
BOUND = {"h2o": (3e-5, 0), "snapkv": (3e-5, 0), "tova": (3e-5, 0), "keydiff": (0, 3e-6), "random": (0, 0),
         "window": (0, 0), "full": (0, 0)}
NLL_BOUND = 2e-4  # logits of these models are off by up to 5.4e-5 (tests/data/golden/README.md)
MAX_EXCUSED = 1e-3

MODELS = [
    "--layers 1 --heads 1 --kv-heads 1 --head-dim 16 --dim 32 --ffn 32 --seed 11",
    "--layers 2 --heads 4 --kv-heads 2 --head-dim 16 --dim 64 --ffn 96 --seed 12",
    "--layers 3 --heads 6 --kv-heads 2 --head-dim 16 --dim 64 --ffn 64 --seed 13",
    "--layers 2 --heads 3 --kv-heads 3 --head-dim 32 --dim 96 --ffn 64 --seed 14",
    "--layers 1 --heads 9 --kv-heads 3 --head-dim 32 --dim 96 --ffn 96 --seed 15 --untied",
    "--layers 3 --heads 2 --kv-heads 1 --head-dim 32 --dim 64 --ffn 64 --seed 16 --rope-base 500000",
    "--layers 2 --heads 6 --kv-heads 2 --head-dim 16 --dim 64 --ffn 64 --seed 17 --type q8_0",
    "--layers 2 --heads 2 --kv-heads 2 --head-dim 32 --dim 64 --ffn 64 --seed 18 --type f16",
    "--layers 2 --heads 4 --kv-heads 2 --head-dim 16 --dim 64 --ffn 64 --seed 19 --type q4_1",
]


class Models:
    """made when first asked for"""

    def __init__(self, folder):
        self.folder, self.made = folder, {}

    def get(self, k):
        if k not in self.made:
            path = os.path.join(self.folder, f"model{k}.gguf")
            generate_model(MODELS[k], path)
            self.made[k] = path, Llama(path)
        return self.made[k]


# ---- cases

def options(rng, name, budget):
    """some options that fit into the budget"""
    pick = lambda *v: rng.choice(v)
    given = {}
    if rng.random() < 0.35:
        return given
    if name in ("window", "h2o", "keydiff", "random", "tova") and rng.random() < 0.5:
        given["sinks"] = rng.randint(0, min(budget, 6))
    if name == "window" and rng.random() < 0.3:
        given["recent"] = rng.randint(0, budget - given.get("sinks", min(4, budget // 4)))
    if name in ("h2o", "keydiff", "random", "tova") and rng.random() < 0.6:
        given["recent"] = rng.randint(0, budget - given.get("sinks", 0))
    if name == "h2o" and "recent" not in given and given.get("sinks", 0) + budget // 2 > budget:
        del given["sinks"]
    if name in ("h2o", "snapkv", "tova") and rng.random() < 0.7:
        given["group"] = pick("mean", "max", "sum")
    if name == "snapkv":
        if rng.random() < 0.5:
            given["window"] = rng.randint(1, budget) if rng.random() < 0.7 else rng.randint(1, 100)
        if rng.random() < 0.3:
            given["recent"] = rng.randint(0, budget)
        if rng.random() < 0.7:
            given["pool"] = pick(1, 3, 5, 7, 9)
            given["pool-kind"] = pick("max", "avg")
        if given.get("window", 1) <= budget and rng.random() < 0.4:
            room = budget - methods.numbers(name, budget, given)["recent"]
            given["sinks"] = rng.randint(0, min(room, 6))
    if name == "tova" and rng.random() < 0.4:
        given.update(pool=pick(3, 5), window=rng.randint(1, 12))
    if name == "random":
        given["seed"] = pick(0, 1, 7, 65535)
    return given


def budget_of(rng, total, prompt):
    edge = [1, 2, 3, 4, 5, total - 1, total, total + 1, prompt, prompt + 1]
    b = rng.choice(edge) if rng.random() < 0.35 else rng.randint(1, total)
    return max(1, b)


def case_of(rng, name, long):
    """long ones reach the published windows, which a small budget reduces, and a second chunk"""
    if long:
        c = {"prompt": rng.randint(250, 290), "n": rng.randint(10, 60), "budget": rng.randint(100, 240)}
    else:
        c = short_case(rng)
    c["given"] = options(rng, name, c["budget"])
    return c | {"model": rng.randrange(len(MODELS)), "seed": rng.randrange(1 << 30)}


def short_case(rng):
    prompt = rng.choice([1, 2, 3, 59, 60]) if rng.random() < 0.2 else rng.randint(1, 60)
    n = rng.choice([0, 1, 2, 39, 40]) if rng.random() < 0.2 else rng.randint(0, 40)
    total = prompt + max(0, n - 1)
    return {"prompt": prompt, "n": n, "budget": budget_of(rng, total, prompt)}


# ---- the comparison

class Tally:
    def __init__(self):
        self.cases = self.decisions = self.entries = self.mismatches = 0
        self.close = self.excused = self.level = 0
        self.score_error = self.nll_error = 0.0

    def text(self, name):
        return (f"{name}: {self.cases} cases, {self.decisions} decisions ({self.entries} cuts) compared, "
                f"{self.close} near ties, {self.excused} of them excused, {self.level} more level by nature, "
                f"{self.mismatches} mismatches; "
                f"largest error of a score {self.score_error:.2g}, of nll {self.nll_error:.2g}")


def bound(name, value):
    relative, absolute = BOUND[name]
    return relative * abs(value) + absolute


def is_close(name, cut):
    """Two scores that f32 may exchange.  Equal ones are no such case: they are the same maximum, seen by
    neighbours, and the larger position stays."""
    return cut.least_kept is not None and 0 < cut.gap <= 2 * bound(name, cut.least_kept)


def is_level(name, cut):
    """Two unit vectors make the same angle with their mean: with two entries in a head, keydiff has equal
    scores by mathematics, and rounding alone decides, in f64 as in f32."""
    return name == "keydiff" and cut.alive == 2


class Case:
    def __init__(self, tally, name, c, trace, llama):
        self.tally, self.name, self.c, self.trace = tally, name, c, trace
        self.p = methods.numbers(name, c["budget"], c["given"])
        self.run = Session(llama, trace.T)
        self.faults = []
        self.over = False  # an excused decision: histories part

    def fault(self, text):
        self.faults.append(text)

    def replay(self):
        c, t = self.c, self.trace
        logits = None
        for step in range(t.T):
            if step > c["prompt"]:
                self.compare(step, [self.apply(step, c["budget"] - 1)])
            elif step == c["prompt"]:
                after_prompt = self.apply(step - 1, c["budget"])
                self.compare(step, [after_prompt, self.apply(step, c["budget"] - 1)])
            if self.over or self.faults:
                return
            if logits is not None:
                self.check_token(step, logits)
            logits = self.run.feed(t.ids[step])
        if t.T == c["prompt"]:  # the cut after the prompt is the last act
            self.compare(t.T, [self.apply(t.T - 1, c["budget"])])
        if not self.over:
            self.check_alive()

    def apply(self, newest, target):
        return methods.apply(self.name, self.p, self.run, newest, target)

    def check_token(self, step, logits):
        """the program's greedy choice, and its nll: they depend on what the last query saw"""
        token = self.trace.ids[step]
        if step >= self.c["prompt"] and logits.max() - logits[token] > NLL_BOUND:
            self.fault(f"token {step}: {token} is not the greedy choice {logits.argmax()}")
        error = abs(nll(logits, token) - self.trace.nll[step])
        self.tally.nll_error = max(self.tally.nll_error, error)
        if not error <= NLL_BOUND:
            self.fault(f"token {step}: nll {self.trace.nll[step]}, oracle {nll(logits, token)}")

    def compare(self, step, events):
        """events: the decisions that fall between query step - 1 and query step"""
        actual = self.trace.evict_step == step
        for layer, head in itertools.product(*map(range, actual.shape[:2])):
            cuts = [e[layer, head] for e in events if (layer, head) in e]
            want = {j: s for cut in cuts for j, s in cut.score.items()}
            got = set(np.flatnonzero(actual[layer, head]))
            if not want and not got:
                continue
            level = any(is_level(self.name, cut) for cut in cuts)
            close = not level and any(is_close(self.name, cut) for cut in cuts)
            self.tally.decisions += len(cuts) or 1
            self.tally.entries += len(want)
            self.tally.close += close
            where = f"step {step} L{layer}K{head}"
            if got == set(want):
                for cut in cuts:
                    self.compare_cut(where, layer, head, cut)
            elif close or level:
                self.tally.excused += close
                self.tally.level += level
                self.over = True
            else:
                self.fault(f"{where}: cut {sorted(got)}, oracle {sorted(want)}, "
                           f"only here {show(want, got)}, gaps {[c.gap for c in cuts]}")

    def compare_cut(self, where, layer, head, cut):
        t = self.trace
        for j, score in cut.score.items():
            reason = t.reason[layer, head, j]
            if reason != ("window" if self.name == "window" else "budget"):
                self.fault(f"{where} entry {j}: reason {reason}")
            if self.name == "window":
                if not np.isnan(t.score[layer, head, j]):
                    self.fault(f"{where} entry {j}: a score, {t.score[layer, head, j]}")
                continue
            self.close_to(f"{where} entry {j}: score", t.score[layer, head, j], score, score)
            if cut.least_kept is None:
                if not np.isnan(t.margin[layer, head, j]):
                    self.fault(f"{where} entry {j}: a margin, but no other candidate was kept")
            else:
                margin = cut.least_kept - score
                self.close_to(f"{where} entry {j}: margin", t.margin[layer, head, j], margin, cut.least_kept)
                open_ = is_level(self.name, cut) or 0 < margin <= 2 * bound(self.name, score)
                if t.tie[layer, head, j] != (margin == 0) and not open_:
                    self.fault(f"{where} entry {j}: tie {t.tie[layer, head, j]}, margin {margin}")

    def close_to(self, what, got, want, size):
        error = abs(got - want)
        scale = abs(size) if BOUND[self.name][0] else 1
        self.tally.score_error = max(self.tally.score_error, error / scale if scale else error)
        # recorded as f32
        if not error <= 2 * bound(self.name, size) + abs(size) * 2**-23:
            self.fault(f"{what} {got}, oracle {want}")

    def check_alive(self):
        alive = np.zeros(self.trace.evict_step.shape, bool)
        for layer, head in itertools.product(*map(range, alive.shape[:2])):
            alive[layer, head, self.run.alive[layer][head]] = True
        if (alive != (self.trace.evict_step == -1)).any():
            self.fault("other entries are alive at the end")
        if (self.trace.reason[alive] != "alive").any():
            self.fault("an entry that is alive has a reason")


def show(want, got):
    return {int(j): float(want[j]) for j in set(want) - set(got)}


def compare_case(engine, models, tally, name, c):
    """the faults found, as lines"""
    path, llama = models.get(c["model"])
    ids = np.random.RandomState(c["seed"]).randint(3, llama.vocab, c["prompt"])
    more = ["--probes", "lean", "-t", 1 + c["seed"] % 2]
    out = engine.run(path, ids, c["n"], method_text(name, c["given"]), c["budget"], *more)
    case = Case(tally, name, c, Trace(engine, out), llama)
    effective = engine.numbers(out)
    if case.trace.T != c["prompt"] + max(0, c["n"] - 1):
        case.fault(f"T is {case.trace.T}")
    if effective != case.p:
        case.fault(f"effective numbers {effective}, by the document {case.p}")
    if not case.faults:
        case.replay()
    return case.faults


def check_method(engine, models, name, a):
    tally, rng, passed, failed = Tally(), random.Random(f"{name} {a.seed}"), 0, 0
    for i in range(a.cases):
        c = case_of(rng, name, long=i % 20 == 19)
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
    print(tally.text(name))
    if tally.excused > MAX_EXCUSED * tally.decisions:
        print(f"FAIL {name}: {tally.excused} excused decisions are more than {MAX_EXCUSED:g} of all")
        failed += 1
    return passed, failed


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("program")
    ap.add_argument("part", choices=(*methods.METHODS, "properties", "planted"))
    ap.add_argument("--cases", type=int, default=60)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("-v", action="store_true")
    a = ap.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        engine, models = Engine(os.path.abspath(a.program), folder), Models(folder)
        if a.part == "properties":
            import properties
            passed, failed = properties.check(engine, models)
        elif a.part == "planted":
            import planted
            passed, failed = planted.check(sys.modules[__name__], engine, models)
        else:
            passed, failed = check_method(engine, models, a.part, a)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
