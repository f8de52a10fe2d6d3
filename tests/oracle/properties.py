"""Properties that every method must have for any scores; each check is one line of the report."""
import io
import itertools
import os

import numpy as np

from engine import EngineError, Trace, method_text
from rows import OLD as METHODS, numbers

ADAPTIVE, PYRAMID = ("adakv", "ada-pyramidkv"), ("pyramidkv", "ada-pyramidkv")

# Numbers in check_decisions.MODELS.
WIDE = 4  # 1 layer, 3 KV heads with 3 query heads each
DEEP = 2  # 3 layers, 2 KV heads with 3 query heads each
PACKED = 8  # weights in q4_1: without --exact, activations are rounded to 8 bits
SHOWN = "tokens", "survival", "retention"  # commands that show ids and NLL, last_selected, mass


class Report:
    def __init__(self):
        self.passed = self.failed = 0

    def say(self, good, text):
        self.passed, self.failed = self.passed + bool(good), self.failed + (not good)
        print(f"{'ok  ' if good else 'FAIL'} {text}")


def draw(llama, n, seed):
    return np.random.RandomState(seed).randint(3, llama.vocab, n)


def content(path):
    with open(path, "rb") as f:
        return f.read()


def same_columns(a, b):
    return a.keys() == b.keys() and all(
        a[k].dtype == b[k].dtype and a[k].tobytes() == b[k].tobytes() for k in a)


def budget_of_all(engine, report, path, llama, factors):
    """With B >= T no entry is evicted; text, NLL, attention statistics and logits equal those of
    full bit for bit."""
    ids, n = draw(llama, 37, 1), 20
    total = len(ids) + n - 1
    full = engine.run(path, ids, n, "full", 0, name="full.kvf")
    want = {c: engine.table(c, full) for c in SHOWN}
    logits, again = engine.logits(path, ids, "--method", "full"), io.BytesIO()
    np.save(again, np.load(io.BytesIO(logits)))
    report.say(again.getvalue() == logits, "logits are a file as NumPy writes it")
    for name in METHODS[1:]:
        for budget in (total * f for f in factors):
            out = engine.run(path, ids, n, name, budget)
            same = [same_columns(engine.table(c, out), want[c]) for c in SHOWN]
            never = (Trace(engine, out).evict_step == -1).all()
            equal = engine.logits(path, ids, "--method", name, "--budget", budget) == logits
            report.say(never and all(same) and equal,
                       f"{name} at B = {budget}, T = {total}: cuts nothing {never}, columns {same}, logits {equal}")
        cuts = (Trace(engine, engine.run(path, ids, n, name, total - 1)).evict_step >= 0).any()
        report.say(cuts, f"{name} at B = T - 1 cuts something")


def shared(name, seen):
    """Returns the entries per head, averaged over the heads that share a budget. seen is
    [layer][head]."""
    if name == "cake" or name in PYRAMID:
        return seen.mean()
    return seen.mean(axis=1) if name in ADAPTIVE else seen


def budget_is_kept(engine, report, path, llama):
    """A query sees at most B entries, and always exactly B, unless more are evicted at once or
    layers have more places than entries."""
    for name, budget in itertools.product(METHODS[1:], (1, 2, 7, 40)):
        ids = draw(llama, 50, budget)
        trace = Trace(engine, engine.run(path, ids, 30, name, budget))
        seen = [shared(name, trace.visible(step)) for step in range(50, trace.T)]
        most, always = max(np.max(x) for x in seen), all(np.all(x == budget) for x in seen)
        loose = numbers(name, budget, {})["every"] > 1 or name == "cake" or name in PYRAMID
        report.say(most <= budget and (always or loose),
                   f"{name} at B = {budget}: a query sees at most {most:g} entries, always B: {always}")
        before = (trace.visible(49) == 50).all()
        report.say(before, f"{name} at B = {budget}: the prompt's last query sees all of it")


def cuts_come_apart(engine, report, path, llama):
    """every = s: the next eviction of a head comes s tokens later and evicts s entries. The first
    one after the prompt has no new entry, so the second comes one token earlier."""
    for name, s in itertools.product(METHODS[1:], (2, 5)):
        if name in ADAPTIVE or name in PYRAMID or name == "cake":
            continue  # shares of another size
        trace = Trace(engine, engine.run(path, draw(llama, 50, s), 40, f"{name}:every={s}", 24))
        steps = [np.unique(e[e >= 0]) for layer in trace.evict_step for e in layer]
        first, later = {int(x[1] - x[0]) for x in steps}, {int(g) for x in steps for g in np.diff(x[1:])}
        cuts = {int((e == x).sum()) for layer in trace.evict_step for e in layer for x in np.unique(e[e > 50])}
        report.say(first == {s - 1} and later == {s} and cuts == {s},
                   f"{name}:every={s}: cuts {first}, then {later} tokens apart, of {cuts} entries")


def refuses(engine, report, path, llama):
    """Settings that do not fit into the budget are rejected."""
    ids = draw(llama, 20, 6)
    for name in METHODS[1:]:
        for given in ({"sinks": 8}, {"sinks": 4, "recent": 5}, {"recent": 9}, {"every": 0}, {"every": 9},
                      {"sinks": 2, "recent": 3, "every": 5}, {"sinks": 4, "recent": 0, "every": 5}):
            try:
                engine.run(path, ids, 4, method_text(name, given), 8)
                report.say(False, f"{method_text(name, given)} at B = 8 is refused")
            except EngineError as e:
                report.say("exit -" not in str(e), f"{method_text(name, given)} at B = 8 is refused")
    for method in ("window:lambda=.5", "h2o:beta=2", "snapkv:floor=.2", "knorm:gamma=1", "keydiff:history=.5",
                   "random:group=max", "morphkv:seed=1", "adakv:beta=2", "pyramidkv:floor=.2", "rkv:gamma=1",
                   "full:every=2"):
        try:
            engine.run(path, ids, 4, method, 8)
            report.say(False, f"{method}: an option without use is refused")
        except EngineError:
            report.say(True, f"{method}: an option without use is refused")


def presets_differ(engine, report, path, llama):
    ids = draw(llama, 200, 3)
    steps = {m: Trace(engine, engine.run(path, ids, 24, m, 64)).evict_step for m in METHODS[1:]}
    least, alike = steps["h2o"].size, []
    for a, b in itertools.combinations(steps, 2):
        differ = (steps[a] != steps[b]).sum()
        least, alike = min(least, differ), alike + [f"{a} and {b}"] * (differ == 0)
    report.say(not alike, f"each pair of {len(steps)} methods at B = 64 differs in {least} evict steps or more {alike}")


def execution_only(engine, report, path, llama, exact):
    """Threads and --chunk change neither a trace's bytes nor a logit's bits."""
    engine.exact = exact
    ids = draw(llama, 200, 4)
    ways = [("-t", t, "--chunk", c) for t, c in ((1, 256), (1, 1), (2, 7), (2, 256), (1, 64))]
    ways = ways if os.environ.get("KVFATE_TESTS") == "long" else ways[:2]
    given = {"snapkv": {"pool-kind": "avg"}, "random": {"seed": 5}, "gkv": {"every": 2}, "rkv": {"every": 1}}
    for method in (method_text(name, given.get(name, {})) for name in METHODS):
        traces = {content(engine.run(path, ids, 12, method, 20, *w)) for w in ways}
        report.say(len(traces) == 1, f"{method}, exact {exact}: {len(ways)} ways to run, "
                                     f"{len(traces)} different traces")
    logits = {engine.logits(path, ids, *w) for w in ways}
    report.say(len(logits) == 1, f"exact {exact}: {len(ways)} ways to run, {len(logits)} different logits")
    engine.exact = True


def repeats(engine, report, path, llama):
    """A repeated run is equal; another seed of random gives another run."""
    ids = draw(llama, 60, 5)
    once, again, other = (content(engine.run(path, ids, 10, m, 9, name=m[-1] + ".kvf"))
                          for m in ("random:seed=1", "random:seed=1", "random:seed=2"))
    report.say(once == again, "the same run twice gives the same bytes")
    report.say(once != other, "another seed gives another trace")


def check(engine, models):
    report = Report()
    budget_of_all(engine, report, *models.get(WIDE), factors=[1])
    budget_of_all(engine, report, *models.get(DEEP), factors=[1, 10])
    budget_is_kept(engine, report, *models.get(DEEP))
    cuts_come_apart(engine, report, *models.get(DEEP))
    refuses(engine, report, *models.get(1))
    presets_differ(engine, report, *models.get(1))
    execution_only(engine, report, *models.get(DEEP), exact=True)
    execution_only(engine, report, *models.get(PACKED), exact=False)
    repeats(engine, report, *models.get(1))
    return report.passed, report.failed
