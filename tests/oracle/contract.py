"""Checks properties that every method of the program must have for any scores. A method that is
unknown to this file or rows.py fails. Each check is one line of the report."""
import itertools
import json
import os
from pathlib import Path

import numpy as np

import gates
from cases import MODELS
from engine import EngineError, Trace, method_text
from rows import LIMITED_BY_BUDGET, NEEDS, NO_BUDGET, ORACLES, READS_ONLY, ROWS, numbers
from tiny_llama import Bytes, Llama, generate_model

WIDE, DEEP, LOCAL = 4, 2, 10  # of cases.MODELS: 3 KV heads of 3 query heads; 3 layers of 2 KV heads of 3 query heads; two of 3 layers see 29 tokens
SHOWN = "tokens", "survival", "retention"  # commands that show ids and NLL, last_selected, mass
WITHOUT_ORACLE = {"plan"}  # repeats the steps of another trace
NO_LIMIT = {"rocketkv": {"reads": 100000}, "wgkv": {"tau": 0}, "wgkv-snapkv": {"tau": 0}, "wgkv-quest": {"tau": 0}, "duo": {"sparsity": 0}}
HEADS_BY_NUMBER = {"random"}  # its hash includes the head's number
PROTECTION_IS_OWN = {"wgkv", "wgkv-snapkv", "full", "duo", "local", *READS_ONLY}


class Report:
    def __init__(self):
        self.passed = self.failed = 0

    def say(self, good, text):
        self.passed, self.failed = self.passed + bool(good), self.failed + (not good)
        print(f"{'ok  ' if good else 'FAIL'} {text}")


class Runs:
    """Records runs of any method on one model."""

    def __init__(self, engine, model):
        self.engine, (self.path, self.llama) = engine, model

    def ids(self, n, seed):
        return np.random.RandomState(seed).randint(3, self.llama.vocab, n)

    def forced(self, n, seed):
        """Returns the same tokens for all methods."""
        return self.engine.forced(self.ids(n - 1, seed))

    def more(self, name, ids, n, kind=None, x=None, seed=1):
        """Returns what a method needs on the command line. x: its gate values."""
        out, kind = [], kind or NEEDS.get(name)
        if kind == "blocks":
            gates.network(self.engine.path("contract.safetensors"), kind, seed, self.llama)
        elif kind:
            x = gates.draw(kind, seed + 1, self.llama.layers, self.llama.kv_heads, 1000) if x is None else x
            gates.write(self.engine.path("contract.safetensors"), kind, x)
        if kind:
            out += ["--gates", self.engine.path("contract.safetensors")]
        if name in ORACLES:
            out += self.engine.tokens_of_run(name, self.path, ids, self.ids(n - 1, 99))
        return out

    def record(self, name, ids, n, budget, given={}, *more, **gate):
        """Records a trace and returns its path."""
        return self.engine.run(self.path, ids, n, method_text(name, given), None if name in NO_BUDGET else budget,
                               *self.more(name, ids, n, **gate), *more)

    def trace(self, *a, **k):
        return Trace(self.engine, self.record(*a, **k))


def each(report, names):
    """Runs a check for every method. If the program rejects a method, this is a fault of the
    method."""
    def wrap(check):
        for name in names:
            try:
                check(name)
            except EngineError as e:
                report.say(False, f"{name}: {e}")
    return wrap


def listed(engine):
    return {m["name"]: m for m in json.loads(engine.call("methods", "--json"))}


def every_row_is_known(engine, report):
    parts = "admission", "score", "allocation", "trigger", "read"
    for name, row in listed(engine).items():
        got = tuple(row.get(part, row.get("selection")) for part in parts)
        report.say(name in WITHOUT_ORACLE or ROWS.get(name) == got, f"{name}: {got}, oracle {ROWS.get(name)}")
    report.say(not set(ROWS) - set(listed(engine)), f"{len(ROWS)} rows of the oracle are there")


# ---- with a budget for all entries

def full_if_unlimited(report, runs, names, factor):
    """With B >= T no entry is evicted; text, NLL and attention statistics equal those of full bit
    for bit."""
    ids, n, engine = runs.ids(37, 1), 20, runs.engine
    total, wanted = len(ids) + n - 1, {}

    def columns(path):
        return {c: {k: v.tobytes() for k, v in engine.table(c, path).items()} for c in SHOWN}

    def check(name):
        forced = name in ORACLES
        if forced not in wanted:
            more = engine.forced(runs.ids(n - 1, 99)) if forced else []
            wanted[forced] = columns(runs.record("full", ids, n, 0, {}, *more))
        trace = runs.trace(name, ids, n, factor * total, NO_LIMIT.get(name, {}))
        found = columns(trace.path)
        same, never = [found[c] == wanted[forced][c] for c in SHOWN], (trace.evict_step == -1).all()
        report.say(never and all(same), f"{name} at B = {factor} T: cuts nothing {never}, columns {same}")
    each(report, names)(check)


# ---- the budget, and protected entries

def limited(row, seen):
    """Returns the quantity that the budget limits: entries per head, averaged over the heads that
    share it. seen is [layer][head]."""
    if row["allocation"] == "global" or row["trigger"] == "fraction":
        return seen.mean()
    if row["allocation"] in ("pyramid", "cake", "adaptive-pyramid"):
        return seen.mean()
    return seen.mean(axis=1).max() if row["allocation"] == "adaptive" else seen.max()


def budget_and_protection(report, runs, names):
    rows = listed(runs.engine)
    ways = [({}, 5), ({"order": "after"}, 40), ({"slack": 3}, 16), ({"order": "after", "slack": 2, "chunk": 16}, 20)]
    every = 1 if os.environ.get("KVFATE_TESTS") == "long" else 4  # each method in one way
    for way, (given, budget) in enumerate(ways):
        def check(name):
            if ("chunk" in given and name in ORACLES) or (way + names.index(name)) % every:
                return  # the first one is rejected
            keep = {} if name in PROTECTION_IS_OWN or budget < 16 else {"sinks": 2, "recent": 3}
            trace = runs.trace(name, runs.ids(50, budget), 30, budget, given | keep)
            p = numbers(name, budget, given | keep)
            over = p["slack"] + (p["order"] == "after")
            most = max(limited(rows[name], trace.visible(step)) for step in range(50, trace.T))
            text = f"{method_text(name, given | keep)} at B = {budget}"
            chunk = p["chunk"] or 50
            early = max(limited(rows[name], trace.visible(step)) for step in range(50))
            report.say(most <= budget + over and early <= budget + p["slack"] + chunk,
                       f"{text}: after the prompt a query sees {most:g} entries at most, in it {early}")
            kept_where_due(report, text, p, trace)
        each(report, [m for m in names if m in rows and m in LIMITED_BY_BUDGET])(check)


def places_are_used(report, engine, models):
    """Other layers use the places that a layer cannot fill: at each step all heads together have as
    many entries as with the budget for each. Includes models whose layers see different numbers of
    tokens, before and after the text reaches the largest share."""
    for index in (DEEP, LOCAL):
        runs = Runs(engine, models.get(index))

        def check(name):
            for prompt, n, budget in ((50, 40, 40), (20, 70, 40), (70, 10, 24)):
                held = [[t.visible(step).sum() for step in range(prompt, t.T)]
                        for t in (runs.trace(m, runs.ids(prompt, 7), n, budget) for m in ("window", name))]
                report.say(held[0] == held[1], f"{name} at B = {budget} after {prompt} tokens of model {index} uses all places: "
                           f"{sum(held[1])} of {sum(held[0])} over all steps")
        each(report, ["pyramidkv", "ada-pyramidkv", "cake", "adakv", "snapkv", "expected-attention"])(check)


def kept_where_due(report, text, p, trace):
    """Entries are evicted after their own step; sinks and the newest entries never."""
    gone = np.argwhere(trace.evict_step >= 0)
    age = trace.evict_step[tuple(gone.T)] - gone[:, 2]
    cut = trace.reason[tuple(gone.T)] != "refused"
    good = (age >= 1).all() and (age[cut] >= p["recent"]).all() and (gone[cut, 2] >= p["sinks"]).all()
    report.say(good, f"{text}: {len(gone)} entries leave after birth, none that is protected")


# ---- ties

def level_gates(report, runs):
    """With equal gate values, the oldest unprotected entry is evicted, as in window; with tie=older
    the newest."""
    ids, n, shape = runs.ids(40, 3), 20, (runs.llama.layers, runs.llama.kv_heads, 1000)
    window = runs.trace("window", ids, n, 16, {"sinks": 2, "recent": 3}).evict_step
    for name, given, number in (("locret", {"positions": "original"}, 0.5), ("wgkv", {"local": 3}, 0.5), ("trimkv", {}, 0)):
        def check(name):
            x = np.full(shape, number, np.float32)
            own = {} if name == "wgkv" else {"recent": 3}
            steps = runs.trace(name, ids, n, 16, given | own | {"sinks": 2}, x=x).evict_step
            report.say((steps == window).all(), f"{name} with equal gates cuts what window cuts")
            steps = runs.trace(name, ids, n, 16, given | own | {"sinks": 2, "tie": "older"}, x=x).evict_step
            newest = all((steps[..., :11] == -1).ravel()) and (steps[..., 13:37] == len(ids)).all()
            report.say(newest, f"{name} with equal gates and tie=older: the newest go")
        each(report, [name])(check)
    def check(name):
        x = np.zeros(shape, np.float32)
        steps = runs.trace(name, ids, 1, 10, x=x).evict_step
        kept = [(l, h, j) for l, h, j in np.argwhere(steps == -1)]
        want = [(l, h, j) for l in range(shape[0]) for h in range(shape[1]) for j in range(30, 40)]
        report.say(kept == want, "dbtrimkv with equal gates: the newest of every head stay")
        steps = runs.trace(name, ids, 1, 10, {"tie": "older"}, x=x).evict_step
        report.say((np.argwhere(steps == -1)[:, 2] < 10).all(), "dbtrimkv, tie=older: the oldest of every head stay")
    each(report, ["dbtrimkv"])(check)


# ---- heads in another order

def permuted(path, out, llama, order):
    """Writes the same f32 model with its KV heads, and the query heads that read them, in another
    order."""
    group, d = llama.heads // llama.kv_heads, llama.head_dim
    queries = [h * group + i for h in order for i in range(group)]
    data = bytearray(Path(path).read_bytes())
    for name, at, shape in f32_tensors(bytes(data)):
        part = name.split(".")[-2]
        heads = {"attn_q": queries, "attn_output": queries, "attn_k": order, "attn_v": order}.get(part)
        if heads is None:
            continue
        x = np.frombuffer(bytes(data[at : at + 4 * shape[0] * shape[1]]), "<f4").reshape(shape)
        where = np.concatenate([np.arange(h * d, h * d + d) for h in heads])
        x = x[:, where] if part == "attn_output" else x[where]
        data[at : at + x.nbytes] = np.ascontiguousarray(x).tobytes()
    Path(out).write_bytes(data)


def f32_tensors(data):
    """Returns (name, offset, shape) of the matrices of a GGUF file."""
    b = Bytes(data)
    _, _, n_tensors, n_meta = b.take("4sIQQ")
    for _ in range(n_meta):
        b.string(), b.value(b.take("I"))
    infos = []
    for _ in range(n_tensors):
        name = b.string()
        shape = [b.take("Q") for _ in range(b.take("I"))][::-1]
        infos.append((name, shape, b.take("I"), b.take("Q")))
    start = b.at + -b.at % 32
    return [(name, start + offset, shape) for name, shape, kind, offset in infos if len(shape) == 2 and kind == 0]


def heads_by_any_name(report, engine, folder, names):
    """With the heads in another order, their evict steps are also in that order (scores of
    different heads are never equal)."""
    made = [os.path.join(folder, f"heads{i}.gguf") for i in range(2)]
    generate_model(MODELS[WIDE], made[0])
    order = [2, 0, 1]
    permuted(made[0], made[1], Llama(made[0]), order)
    one, other = (Runs(engine, (path, Llama(path))) for path in made)
    ids, n = one.ids(60, 4), 30
    given = {"snapkv": {"window": 4}, "seer": {"page": 8}, "seer-oracle": {"page": 4}, "quest": {"dense": 0, "page": 4},
             "wgkv-quest": {"dense": 0, "page": 4}, "duo": {"sinks": 2, "recent": 9}}

    def check(name):
        forced = one.forced(n, 98) if name not in ORACLES else []
        kind = NEEDS.get(name)
        if kind == "blocks":
            return
        x = None
        if kind:
            rng = np.random.RandomState(5)
            x = rng.rand(*((1, 3) if kind == "heads" else (1, 3, 200))).astype(np.float32)
            x = -x / 9 if kind == "retention" else x
        a = one.trace(name, ids, n, 20, given.get(name, {}), *forced, x=x)
        b = other.trace(name, ids, n, 20, given.get(name, {}), *forced, x=None if x is None else x[:, order])
        same = (a.evict_step[:, order] == b.evict_step).all() and (a.reason[:, order] == b.reason).all()
        near = np.nanmax(np.abs(a.nll - b.nll)) < 1e-4
        cuts = (a.evict_step >= 0).sum()
        report.say(same and near, f"{name} with its heads in another order: {cuts} cuts, the same {same}, nll near {near}")
    each(report, [m for m in names if m not in HEADS_BY_NUMBER])(check)


# ---- all pairs

def no_two_alike(report, runs, names):
    """Compares evict steps at B = 64. Methods with no or equal evictions must differ in the entries
    that queries read."""
    ids, n, found = runs.ids(420, 5), 12, {}

    def check(name):
        t = runs.trace(name, ids, n, 64, {"page": 8} if name.startswith("seer") else {},
                       *(() if name in ORACLES else runs.forced(n, 99)))
        found[name] = t.evict_step, t.nll
    each(report, names)(check)
    alike, by_reading = [], []
    for a, b in itertools.combinations(found, 2):
        if (found[a][0] == found[b][0]).all():
            differ = np.nanmax(np.abs(found[a][1] - found[b][1])) > 1e-5
            reads = a in READS_ONLY or b in READS_ONLY
            (by_reading if reads and differ else alike).append(f"{a} and {b}")
    report.say(not alike, f"{len(found)} rows at B = 64: no two cut the same {alike}; "
                          f"{len(by_reading)} pairs differ in what is read alone: {by_reading}")


def runs_again(report, runs, names):
    """A repeated run with other threads and chunks gives the same bytes."""
    ids = runs.ids(70, 6)

    def check(name):
        traces = set()
        for way in (("-t", 1), ("-t", 2), ("-t", 2, "--chunk", 7)):
            traces.add(Path(runs.record(name, ids, 10, 20, {}, *way)).read_bytes())
        report.say(len(traces) == 1, f"{name}: 3 ways to run, {len(traces)} different traces")
    each(report, names)(check)


def check(engine, models):
    report = Report()
    every_row_is_known(engine, report)
    names = list(ROWS)
    wide, deep = Runs(engine, models.get(WIDE)), Runs(engine, models.get(DEEP))
    full_if_unlimited(report, wide, names[1:], 1)
    full_if_unlimited(report, deep, names[1:], 10)
    budget_and_protection(report, deep, names[1:])
    places_are_used(report, engine, models)
    level_gates(report, deep)
    heads_by_any_name(report, engine, models.folder, names)
    no_two_alike(report, deep, names)  # three layers: quest does not apply to the first two
    runs_again(report, deep, names)
    return report.passed, report.failed
