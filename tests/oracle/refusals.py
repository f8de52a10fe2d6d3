"""Rejected settings: exit status 2 (1 for files that do not fit), one sentence, and no trace."""
import os
import subprocess

import numpy as np

import gates
from contract import Report
from rows import NEEDS

MODEL, WINDOWED = 1, 9  # of cases.MODELS: 2 layers, 2 KV heads with 2 query heads each
PROMPT, MORE = 20, 4


class Attempt:
    def __init__(self, engine, model, report):
        self.engine, (self.path, self.llama), self.report = engine, model, report
        self.ids = np.random.RandomState(6).randint(3, self.llama.vocab, PROMPT)

    def run(self, method, budget, *more):
        out = self.engine.path("refused.kvf")
        if os.path.exists(out):
            os.remove(out)
        limit = [] if budget is None else ["--budget", budget]
        args = ["run", "--overwrite", "-m", self.path, *self.engine.prompt(self.ids), "-n", MORE, "--ignore-eos", "--method", method,
                *limit, "-q", *more, "-o", out]
        p = subprocess.run([self.engine.program, *map(str, args)], capture_output=True)
        return p.returncode, p.stderr.decode().strip(), os.path.exists(out)

    def accepts(self, method, budget, *more):
        """The setting of the next rejection must be the only error."""
        self.say(method, budget, more, lambda code, said, made: code == 0 and made, "runs")

    def refuses(self, method, budget, *more, codes=(2,)):
        self.say(method, budget, more, lambda code, said, made: code in codes and len(said.splitlines()) == 1 and
                 len(said) > 25 and not made, "is refused")

    def say(self, method, budget, more, good, what):
        text = f"{method} at B = {budget} {' '.join(map(str, more))} {what}".replace(self.engine.folder + "/", "")
        code, said, made = self.run(method, budget, *more)
        self.report.say(good(code, said, made), f"{text}: exit {code}: {said[-140:]}")


def gate_file(a, kind, layers=None, heads=None, tokens=PROMPT + MORE, **metadata):
    """Returns the option with a file of given numbers."""
    layers, heads = layers or a.llama.layers, heads or a.llama.kv_heads
    path = a.engine.path(f"{kind}-{layers}-{heads}-{tokens}-{'-'.join(metadata)}.safetensors")
    gates.write(path, kind, gates.draw(kind, 2, layers, heads, tokens), **metadata)
    return "--gates", path


def model_hash(a):
    out = a.engine.run(a.path, a.ids, 1, "full", None, name="hash.kvf")
    return a.engine.header(out)["model"]["hash"]


def gates_that_fit(a):
    for name, kind in NEEDS.items():
        if kind == "blocks":
            continue
        budget = None if name == "duo" else 8
        a.accepts(name, budget, *gate_file(a, kind))
        a.refuses(name, budget)
        other = "importance" if kind != "importance" else "write"
        a.refuses(name, budget, *gate_file(a, other), codes=(1, 2))
    a.refuses("seer", 8)
    a.refuses("trimkv", 8, *gate_file(a, "retention", layers=a.llama.layers + 1), codes=(1, 2))
    a.refuses("trimkv", 8, *gate_file(a, "retention", heads=a.llama.kv_heads + 1), codes=(1, 2))
    a.accepts("trimkv", 8, *gate_file(a, "retention", model_hash=model_hash(a)))
    a.refuses("trimkv", 8, *gate_file(a, "retention", model_hash="0" * 32), codes=(1, 2))
    a.refuses("trimkv", 8, *gate_file(a, "retention", tokens=PROMPT - 1), codes=(1, 2))
    a.refuses("trimkv", 8, *gate_file(a, "retention", tokens=PROMPT + MORE - 2))
    a.accepts("trimkv", 8, *gate_file(a, "retention", tokens=PROMPT + MORE - 1))
    a.refuses("trimkv", 8, "--gates", a.engine.path("nowhere.safetensors"), codes=(1, 2))


def combinations(a):
    retention, write = gate_file(a, "retention"), gate_file(a, "write")
    for method in ("snapkv:allocation=global", "h2o:allocation=global", "keydiff:allocation=global",
                   "random:allocation=global", "expected-attention:positions=cache", "quest:every=4", "quest:sinks=2",
                   "full:order=after", "h2o:order=sideways", "h2o:tie=random", "h2o:positions=both", "h2o:slack=-1",
                   "h2o:chunk=-1", "h2o:score=nothing", "h2o:read=nothing", "h2o:allocation=nothing", "window:offset=1",
                   "h2o:variant=book", "h2o:group=max-logits", "snapkv:group=max-logits", "rkv:group=max-logits,support=all", "quest:group=max-logits",
                   "h2o:fold=sum", "snapkv:fold=sum", "gkv:fold=mean", "seer-oracle:dense=-1", "quest:page=0", "random:tau=.5",
                   "expected-attention:horizon=0", "nothing:sinks=1", "h2o:read=quest,positions=cache", "h2o:reads=4", "h2o:read=rocket,channels=17",
                   "rocketkv:stride=2,order=after", "h2o:protect=prompt", "h2o:protect=sinks:8", "h2o:protect=system"):
        a.refuses(method, 8)
    for method in ("trimkv:offset=4", "trimkv:lookahead=0", "trimkv:tau=.5", "dbtrimkv:floor=2", "trimkv:window=3"):
        a.refuses(method, 8, *retention)
    for method in ("wgkv:local=0", "wgkv:tau=1.5", "wgkv:compare=lt", "wgkv-snapkv:fraction=2", "wgkv:offset=1",
                   "wgkv-quest:every=2"):
        a.refuses(method, 8, *write)
    for method in ("h2o:read=quest,reads=4", "h2o:read=rocket,channels=16", "rocketkv", "h2o:protect=sinks:7", "snapkv:group=max-logits,support=candidates", "tova:group=max-logits,support=candidates", "rkv:variant=code"):
        a.accepts(method, 8)
    a.accepts("trimkv:allocation=global", 8, *retention)
    a.accepts("h2o:score=retention,allocation=global", 8, *retention)
    a.refuses("h2o:score=retention,allocation=global", 8)
    for method in ("mass-greedy", "duo"):
        a.refuses(method, 8)
    a.refuses("duo", 8, *gate_file(a, "heads"))
    a.accepts("duo", None, *gate_file(a, "heads"))
    a.accepts("mass-greedy", 8, *a.engine.planned(a.path, a.ids, a.ids[: MORE - 1]))
    a.refuses("mass-greedy", 8, *a.engine.forced(a.ids[: MORE - 1]))
    a.refuses("next-topk:chunk=4", 8)


def blocks(a, windowed):
    for x, verdict in ((a, a.accepts), (windowed, windowed.refuses)):
        path = x.engine.path("blocks.safetensors")
        gates.make(path, "blocks", 4, x.llama, PROMPT + MORE)
        verdict("seer:page=4", 8, "--gates", path)
    windowed.accepts("seer-oracle:page=4", 8)


def protection(a):
    """sinks + max(recent, 1) + every - 1 must fit into B."""
    for name in ("trimkv", "dbtrimkv", "locret", "expected-attention", "next-topk", "local"):
        more = gate_file(a, NEEDS[name]) if name in NEEDS else ()
        a.accepts(f"{name}:sinks=3,recent=5", 8, *more)
        a.refuses(f"{name}:sinks=4,recent=5", 8, *more)
        a.refuses(f"{name}:sinks=8", 8, *more)
        if name != "local":
            a.refuses(f"{name}:sinks=2,recent=3,every=5", 8, *more)
    a.refuses("quest", None)
    a.refuses("trimkv", None, *gate_file(a, "retention"))
    a.refuses("local", None)


def overrides(a):
    for text, good in (("L0K*=h2o", 1), ("L0-1K1=snapkv:window=2,budget=5", 1), ("L0K*=nothing", 0), ("L0K*", 0), ("L9K0=h2o", 0),
                       ("L0K0=h2o:every=0", 0), ("L0K0=h2o:sinks=9", 0), ("L0K0=h2o:sinks=9,budget=12", 1),
                       ("L0K0=trimkv", 0), ("=h2o", 0)):
        (a.accepts if good else a.refuses)("window", 8, "--override", text)


def check(engine, models):
    report = Report()
    a = Attempt(engine, models.get(MODEL), report)
    gates_that_fit(a)
    combinations(a)
    blocks(a, Attempt(engine, models.get(WINDOWED), report))
    protection(a)
    overrides(a)
    return report.passed, report.failed
