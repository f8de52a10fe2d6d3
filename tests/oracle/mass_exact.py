#!/usr/bin/env python3
"""Computes the best that any schedule of evictions can keep, and compares it with the greedy
oracles (docs/reference/methods.md, mass-greedy, next-topk).

usage: mass_exact.py [KVFATE]     with the program: also the schedules that it records for models of one
                                  layer

Activations are fixed: rows[q][j] is the attention of query q on entry j in the full cache, summed
over the query heads that share the entry. A schedule keeps a set for each query after the prompt:
the previous set without the evicted entries, plus the new entry, with at most B entries. Evicted
entries never return. Its value is the attention mass on the entries that its queries see. `best`
finds the optimum by dynamic programming over sets, for short runs only.
"""
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import itertools
import sys
import tempfile
from types import SimpleNamespace

import numpy as np

import methods
from engine import Engine, Trace
from rows import NEUTRAL
from tiny_llama import Llama, Session, generate_model

ORACLES = "mass-greedy", "next-topk"


# ---- schedules

def subsets(held, most):
    for n in range(min(len(held), most) + 1):
        yield from map(frozenset, itertools.combinations(sorted(held), n))


def largest_subsets(held, most):
    """Keeping more entries is never worse."""
    return map(frozenset, itertools.combinations(sorted(held), min(len(held), most)))


def best(rows, prompt, budget):
    """Returns the maximum mass by dynamic programming. worth[set seen by a query] = the maximum up
    to this query."""
    worth = {frozenset(range(prompt)): 0.0}
    for q in range(prompt, len(rows)):
        after = {}
        for held, mass in worth.items():
            for kept in largest_subsets(held, budget - 1):
                now = mass + rows[q][sorted(kept | {q})].sum()
                after[kept | {q}] = max(after.get(kept | {q}, -1), now)
        worth = after
    return max(worth.values())


def best_by_trial(rows, prompt, budget, held=None):
    """Returns the maximum mass by trying every schedule."""
    held = frozenset(range(prompt)) if held is None else held
    if prompt == len(rows):
        return 0.0
    return max(rows[prompt][sorted(kept | {prompt})].sum() +
               best_by_trial(rows, prompt + 1, budget, kept | {prompt}) for kept in subsets(held, budget - 1))


def bound(rows, prompt, budget):
    """Returns the mass that could be kept if entries could return: each query keeps its own best
    entries."""
    return sum(rows[q][q] + np.sort(rows[q][:q])[::-1][: budget - 1].sum() for q in range(prompt, len(rows)))


def kept_by(name, rows, prompt, budget):
    """Returns the mass that a greedy oracle keeps, with decisions by methods.py."""
    n = len(rows)
    run = SimpleNamespace(t=prompt, coming=0, unsure=False, remembered={}, alive=[[list(range(prompt))]],
                          m=SimpleNamespace(layers=1, heads=1, kv_heads=1),
                          twin=SimpleNamespace(rows=np.asarray(rows)[None, None]))
    mass = 0.0
    for newest in [prompt - 1, *range(prompt, n)]:
        run.t, run.coming = max(newest, prompt), int(newest >= prompt)
        cuts = methods.decide(name, NEUTRAL, run, 0, 0, newest, budget)
        for j in cuts[0].score if cuts else ():
            run.alive[0][0].remove(j)
        if newest >= prompt:
            run.alive[0][0].append(newest)
            mass += rows[newest][run.alive[0][0]].sum()
    return mass


def random_rows(rng, n):
    """Returns causal rows of sum 1, from flat to sharp; in some, entries matter again after a
    while."""
    z = rng.normal(0, rng.choice([0.3, 1, 3]), (n, n))
    if rng.rand() < 0.5:
        z += rng.normal(0, 2, n)[None]
    a = np.tril(np.exp(z))
    return a / a.sum(axis=1, keepdims=True)


# ---- checks

class Report:
    def __init__(self):
        self.failed = 0

    def say(self, good, text):
        self.failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {text}")


def optimum_is_right(report, rng):
    worst = 0.0
    for _ in range(40):
        n = rng.randint(2, 7)
        prompt, budget, rows = rng.randint(1, n), rng.randint(1, n + 1), random_rows(rng, n)
        worst = max(worst, abs(best(rows, prompt, budget) - best_by_trial(rows, prompt, budget)))
    report.say(worst < 1e-12, f"dynamic programming and trying all schedules differ by {worst:.2g} at most")
    rows = random_rows(rng, 8)
    report.say(abs(best(rows, 3, 8) - 5) < 1e-12, "with room for everything the whole mass is kept")
    report.say(abs(best(rows, 3, 1) - np.diag(rows)[3:].sum()) < 1e-12, "with B = 1 every query sees itself alone")


def a_known_schedule(report):
    """B = 2: query 2 sees itself and one of entries 0 and 1; query 3 sees itself and one of the
    entries of query 2."""
    rows = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0.5, 0.1, 0.4, 0], [0.1, 0.0, 0.6, 0.3]])
    report.say(abs(best(rows, 2, 2) - (0.9 + 0.9)) < 1e-12, "B = 2: keep 0 for query 2, then 2 for query 3: mass 1.8")
    report.say(abs(kept_by("mass-greedy", rows, 2, 2) - 1.8) < 1e-12, "greedy finds it")
    # The remaining mass of entry 0 is larger, but most of it comes after a new entry has replaced
    # it.
    rows = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0.0, 0.3, 0.7, 0], [0.4, 0.0, 0.5, 0.1]])
    report.say(abs(best(rows, 2, 2) - (1.0 + 0.6)) < 1e-12, "B = 2: keep 1 for query 2, then 2 for query 3: mass 1.6")
    report.say(abs(kept_by("mass-greedy", rows, 2, 2) - 1.3) < 1e-12, "greedy keeps 0, and loses .3: mass 1.3")
    report.say(abs(kept_by("next-topk", rows, 2, 2) - 1.6) < 1e-12, "the next query's choice finds it")


def never_better(report, rng, cases=300):
    for name in ORACLES:
        above, reached, sum_of_parts = 0.0, 0, 0.0
        for _ in range(cases):
            n = rng.randint(3, 10)
            prompt, budget, rows = rng.randint(1, n), rng.randint(2, n), random_rows(rng, n)
            top, got = best(rows, prompt, budget), kept_by(name, rows, prompt, budget)
            above = max(above, got - top, top - bound(rows, prompt, budget))
            reached, sum_of_parts = reached + (got > top - 1e-12), sum_of_parts + got / top
        report.say(above < 1e-12 and 0 < reached < cases,
                   f"{name}: keeps at most the optimum in {cases} cases, reaches it in {reached}; "
                   f"on average {100 * sum_of_parts / cases:.2f} % of it")


def of_the_program(report, rng, engine):
    """One layer: its activations do not depend on the cache, so the full cache's rows are those of
    every schedule."""
    path = engine.path("one.gguf")
    generate_model("--layers 1 --heads 4 --kv-heads 2 --head-dim 16 --dim 64 --ffn 64 --seed 31", path)
    llama, reached, total, above, differ = Llama(path), 0, 0, 0.0, 0.0
    for i in range(24):
        prompt, n, budget = rng.randint(1, 5), rng.randint(2, 5), rng.randint(1, 6)
        ids = rng.randint(3, llama.vocab, prompt + n)
        name = ORACLES[i % 2]
        given = engine.tokens_of_run(name, path, ids[:prompt], ids[prompt:])
        out = engine.run(path, ids[:prompt], n + 1, name, budget, *given, "--probes", "lean")
        steps, full = Trace(engine, out).evict_step[0], Session(llama, prompt + n)
        for token in ids:
            full.feed(token)
        for head in range(2):
            rows = full.rows[0][2 * head : 2 * head + 2].sum(axis=0)
            seen = [[j for j in range(q + 1) if steps[head, j] < 0 or steps[head, j] > q] for q in range(prompt + n)]
            got = sum(rows[q][seen[q]].sum() for q in range(prompt, prompt + n))
            top = best(rows, prompt, budget)
            above, total, reached = max(above, got - top), total + 1, reached + (got > top - 1e-6)
            differ = max(differ, abs(got - kept_by(name, rows, prompt, budget)))
    report.say(above < 1e-6 and differ < 1e-6, f"the program's schedules, {total} heads: at most the optimum, "
               f"{reached} reach it; they keep what the oracle's keep, within {differ:.2g}")


def main():
    report, rng = Report(), np.random.RandomState(7)
    optimum_is_right(report, rng)
    a_known_schedule(report)
    never_better(report, rng)
    if len(sys.argv) > 1:
        with tempfile.TemporaryDirectory() as folder:
            of_the_program(report, rng, Engine(os.path.abspath(sys.argv[1]), folder))
    print(f"{report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
