#!/usr/bin/env python3
"""Compares every decision in the program's traces with an oracle that shares no code with it.

usage: check_decisions.py KVFATE METHOD|properties|planted [--cases N] [--seed S] [-v]

The oracle is a float64 model with a ragged cache (tiny_llama.py) whose methods are written from
docs/methods.md (methods.py).  It is fed the token ids of the trace and has to cut the same entries at
the same steps.  The program computes in f32, so two scores that differ by less than tolerance.py says may
change places: such a decision is excused and counted, and the rest of its case is not compared.
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
from cases import MODELS, case_of
from engine import Engine, EngineError, Trace, method_text
from tiny_llama import Llama, Session, generate_model, nll

NLL_BOUND = 2e-4  # logits of these models are off by up to 5.4e-5 (tests/data/golden/README.md)
MAX_EXCUSED = 1e-3

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


def is_level(name, cut):
    """Two unit vectors make the same angle with their mean, and are as similar to each other: with two entries in a
    head the scores may be equal by mathematics, and rounding alone decides, in f64 as in f32.  So may be the lengths
    of keys of one token in layer 0, since rotation does not change them."""
    if name == "knorm":
        return cut.gap < 1e-9
    return cut.alive == 2 and (name == "keydiff" or name in ("rkv", "gkv") and cut.gap < 1e-9)


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
                self.compare(step, [self.apply(step)])
            elif step == c["prompt"]:
                after_prompt = self.apply(step - 1)
                self.compare(step, [after_prompt, self.apply(step)])
            if self.over or self.faults:
                return
            if logits is not None:
                self.check_token(step, logits)
            logits = self.run.feed(t.ids[step])
        if t.T == c["prompt"]:  # the cut after the prompt is the last act
            self.compare(t.T, [self.apply(t.T - 1)])
        if not self.over:
            self.check_alive()

    def apply(self, newest):
        """newest: the last prompt token, or the one about to be appended"""
        return methods.apply(self.name, self.p, self.run, newest, self.c["budget"])

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
            got = set(np.flatnonzero(actual[layer, head]))
            if cuts or got:
                self.compare_head(f"step {step} L{layer}K{head}", layer, head, cuts, got)

    def compare_head(self, where, layer, head, cuts, got):
        want = {j: s for cut in cuts for j, s in cut.score.items()}
        level = any(is_level(self.name, cut) for cut in cuts)
        close = not level and (self.run.unsure or any(cut.open for cut in cuts))
        if not want and not got:
            return
        self.tally.decisions += len(cuts) or 1
        self.tally.entries += len(want)
        self.tally.close += close
        if got == set(want):
            # two entries that may change places may have gone at the other's cut of this step
            for cut in cuts if len(cuts) == 1 or not (close or level) else []:
                self.compare_cut(where, layer, head, cut)
        elif close or level:
            self.tally.excused += close
            self.tally.level += level
            self.over = True
        else:
            self.fault(f"{where}: cut {sorted(got)}, oracle {sorted(want)}, "
                       f"only here {show(want, got)}, gaps {[c.gap for c in cuts]}, "
                       f"its scores {show_scores(self.trace, layer, head, got - set(want))}")

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
            self.close_to(f"{where} entry {j}: score", t.score[layer, head, j], score, score, cut.error[j])
            if cut.least_kept is None:
                if not np.isnan(t.margin[layer, head, j]):
                    self.fault(f"{where} entry {j}: a margin, but no other candidate was kept")
            else:
                margin, error = cut.least_kept - score, cut.error[j] + max(cut.error[k] for k in cut.kept)
                self.close_to(f"{where} entry {j}: margin", t.margin[layer, head, j], margin, cut.least_kept, error)
                open_ = is_level(self.name, cut) or 0 < margin <= error or self.name == "scissorhands" and error
                if t.tie[layer, head, j] != (margin == 0) and not open_:
                    self.fault(f"{where} entry {j}: tie {t.tie[layer, head, j]}, margin {margin}")

    def close_to(self, what, got, want, size, error):
        """the program records f32"""
        off = abs(got - want)
        if self.name not in ("keydiff", "knorm", "rkv", "gkv") and size:
            self.tally.score_error = max(self.tally.score_error, off / abs(size))
        else:
            self.tally.score_error = max(self.tally.score_error, off)
        if not off <= 2 * error + abs(size) * 2**-23:
            self.fault(f"{what} {got}, oracle {want}, bound {2 * error:.2g}")

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


def show_scores(trace, layer, head, entries):
    return {int(j): float(trace.score[layer, head, j]) for j in sorted(entries)[:6]}


def same(a, b):
    """numbers may be stored in f32"""
    return a == b or isinstance(a, (int, float)) and isinstance(b, (int, float)) and abs(a - b) <= 1e-7 * abs(b)


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
    other = {k: (effective.get(k), v) for k, v in case.p.items() if not same(effective.get(k), v)}
    if other:
        case.fault(f"effective numbers (program, document): {other}")
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
