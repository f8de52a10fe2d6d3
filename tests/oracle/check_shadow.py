#!/usr/bin/env python3
"""Compares --shadow entries and --shadow model with a float64 model that keeps every key and value.

usage: check_shadow.py KVFATE [-v]

The evicted entries are read from the trace (check_decisions.py checks them). The attention that
each query would have given them, and the output of a full cache, are computed here with dense
matrices.
"""
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
import struct
import subprocess
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "format"))
import digest  # noqa: F401 finds the package
import kvfate
from engine import Engine, EngineError
from tiny_llama import Llama, generate_model, nll

NEVER = 0xFFFFFFFF
BOUND = {"kl": 5e-5, "nll": 5e-5}  # logits of these models have errors of up to 5.4e-5; all other bounds: 1e-5
MODEL = "--layers 2 --heads 4 --kv-heads 2 --head-dim 16 --dim 64 --ffn 96 --seed 12"
DEEP = "--layers 3 --heads 6 --kv-heads 2 --head-dim 16 --dim 64 --ffn 64 --seed 13"
PACKED = "--layers 2 --heads 4 --kv-heads 2 --head-dim 16 --dim 64 --ffn 64 --seed 19 --type q4_1"
GATES = "--layers 2 --heads 4 --kv-heads 2 --head-dim 16 --d-model 64 --seed 5"


class Dense:
    """All keys and values of one sequence. sees(layer, g, t, q, keys): mask over 0 .. t of the
    entries that query t sees."""

    def __init__(self, model, sees, T):
        self.m, self.sees, self.t = model, sees, 0
        self.k, self.v = (np.empty((model.layers, T, model.kv_heads, model.head_dim)) for _ in range(2))

    def attention(self, layer, x):
        m, t = self.m, self.t
        q, k, v = (m.weight(layer, "attn_" + c) @ x for c in "qkv")
        q = m.rope(q.reshape(m.heads, -1), t)
        self.k[layer, t] = m.rope(k.reshape(m.kv_heads, -1), t)
        self.v[layer, t] = v.reshape(m.kv_heads, -1)
        keys, values, out = self.k[layer, : t + 1], self.v[layer, : t + 1], np.empty((m.heads, m.head_dim))
        for g in range(m.heads):
            h = g // (m.heads // m.kv_heads)
            z = keys[:, h] @ q[g] / np.sqrt(m.head_dim)
            w = np.exp(z - z.max())
            w /= w.sum()
            seen = self.sees(layer, g, t, q[g], keys[:, h])
            out[g] = (w * seen) @ values[:, h] / w[seen].sum()
            self.note(layer, g, w, seen, out[g], w @ values[:, h])
        return m.weight(layer, "attn_output") @ out.reshape(-1)

    def note(self, layer, g, w, seen, out, full):
        pass

    def feed(self, token):
        """Returns (logits, residual stream after each layer)."""
        m, streams = self.m, []
        x = m.w["token_embd.weight"][token]
        for layer in range(m.layers):
            x = x + self.attention(layer, m.norm(x, m.weight(layer, "attn_norm")))
            y = m.norm(x, m.weight(layer, "ffn_norm"))
            gate = m.weight(layer, "ffn_gate") @ y
            x = x + m.weight(layer, "ffn_down") @ (gate / (1 + np.exp(-gate)) * (m.weight(layer, "ffn_up") @ y))
            streams.append(x)
        self.t += 1
        return m.w.get("output.weight", m.w["token_embd.weight"]) @ m.norm(x, m.w["output_norm.weight"]), streams


class Missing(Dense):
    """Collects the attention that queries lose. Hits have bounds, because f32 may exchange weights
    that are almost equal."""

    def __init__(self, model, sees, T):
        super().__init__(model, sees, T)
        shape = (model.layers, model.heads, T)
        self.kept, self.oracle, self.error, self.mass = (np.zeros(shape) for _ in range(4))
        self.least, self.most = np.zeros(shape, int), np.zeros(shape, int)
        self.first_least, self.first_most = np.full(shape, NEVER), np.full(shape, NEVER)

    def note(self, layer, g, w, seen, out, full):
        at, t, n = (layer, g), self.t, seen.sum()
        order = np.sort(w)[::-1]
        self.kept[at + (t,)], self.oracle[at + (t,)] = w[seen].sum(), order[:n].sum()
        self.error[at + (t,)] = np.linalg.norm(full - out) / np.linalg.norm(full)
        self.mass[at][: t + 1] += np.where(seen, 0, w)
        last, after = order[n - 1], order[n] if n <= t else -1
        sure, maybe = ~seen & (w > after * (1 + 3e-4)), ~seen & (w >= last * (1 - 3e-4))
        for hits, count, first in ((sure, self.least, self.first_least), (maybe, self.most, self.first_most)):
            count[at][: t + 1] += hits
            first[at][: t + 1] = np.where(hits & (first[at][: t + 1] == NEVER), t, first[at][: t + 1])


def kl(full, own):
    p, q = (z - z.max() - np.log(np.exp(z - z.max()).sum()) for z in (full, own))
    return (np.exp(p) * (p - q)).sum()


class Columns:
    """The columns of a trace, [layers][heads][T]."""

    def __init__(self, path):
        self.t = kvfate.open(path)
        self.layers, self.T = len(self.t.heads), self.t.steps

    def get(self, name):
        v = np.asarray(self.t[name])
        return v[None, None] if self.t[name].space == "run" else v

    def run(self, name):
        return self.get(name)[0, 0]

    def all(self, without):
        return {n: self.get(n).tobytes() for n in self.t.columns if not n.startswith(without)} | self.t.notes


def by_steps(evict_step, heads):
    """evicted: query t sees entry i while t < evict_step."""
    per = heads // evict_step.shape[1]
    return lambda layer, g, t, q, keys: t < evict_step[layer, g // per, : t + 1]


def everything(layer, g, t, q, keys):
    return np.ones(t + 1, bool)


def by_pages(prompt, most, page, dense, cached=everything):
    """quest as defined in docs/reference/methods.md, over the cached entries: per query head the
    newest page and the best others."""
    def sees(layer, g, t, q, keys):
        alive = np.flatnonzero(cached(layer, g, t, q, keys))
        n, k = len(alive), max(1, most // page)
        if t < prompt or layer < dense or n <= most or n <= k * page:
            return np.isin(np.arange(t + 1), alive)
        parts = [alive[b : b + page] for b in range(0, n, page)]
        bound = [np.maximum(q * keys[p].min(0), q * keys[p].max(0)).sum() for p in parts[:-1]]
        best = sorted(range(len(bound)), key=lambda b: (-bound[b], -b))
        gap = bound[best[k - 2]] - bound[best[k - 1]] if 1 < k <= len(best) else 1
        assert gap > 1e-5, "two pages are too close for f32: take another seed"
        read = {len(parts) - 1, *best[: k - 1]}
        return np.isin(np.arange(t + 1), np.concatenate([parts[b] for b in read]))
    return sees


class Check:
    def __init__(self, engine, verbose):
        self.engine, self.verbose, self.passed, self.failed, self.worst, self.slack = engine, verbose, 0, 0, {}, 1

    def say(self, good, text):
        self.passed, self.failed = self.passed + bool(good), self.failed + (not good)
        if not good or self.verbose:
            print("ok  " if good else "FAIL", text)

    def near(self, name, got, want, scale, text):
        off = np.abs(got - want) / np.maximum(1, scale * np.abs(want)) / self.slack
        self.worst[name] = max(self.worst.get(name, 0), off.max(initial=0))
        self.say(not np.isnan(got).any() and (off <= BOUND.get(name, 1e-5)).all(), f"{text}: {name} is off by {off.max(initial=0):.2g}")


def compare_entries(check, c, run, text):
    """Errors may be large. Their bound is relative above 1, like that of sums over queries."""
    for name, want in (("kept_mass", run.kept), ("oracle_mass", run.oracle), ("output_error", run.error),
                       ("ghost_mass", run.mass)):
        check.near(name, c.get("shadow." + name), want, 1, text)
    hits, first = c.get("shadow.ghost_hits").astype(int), c.get("shadow.first_hit").astype(int)
    if check.slack == 1:
        check.say((run.least <= hits).all() and (hits <= run.most).all(), f"{text}: hits")
        check.say((run.first_most <= first).all() and (first <= run.first_least).all(), f"{text}: first hits")
    check.say(((hits > 0) == (first < NEVER)).all(), f"{text}: a first hit where there are hits")
    check.say((c.get("shadow.oracle_mass") >= c.get("shadow.kept_mass")).all(), f"{text}: the oracle has no less mass")
    return run.most.sum() - run.least.sum(), hits.sum()


def compare_model(check, c, own, full, ids, text):
    """own, full: logits and streams of each step."""
    want = [kl(f[0], o[0]) for f, o in zip(full, own)]
    check.near("kl", c.run("shadow.kl"), np.array(want), 1, text)
    check.near("nll", c.run("shadow.nll")[1:], np.array([nll(f[0], i) for f, i in zip(full, ids[1:])]), 1, text)
    check.say(np.isnan(c.run("shadow.nll")[0]), f"{text}: nothing foretells the first token")
    for layer in range(c.layers):
        want = [np.linalg.norm(o[1][layer] - f[1][layer]) / np.linalg.norm(f[1][layer]) for f, o in zip(full, own)]
        check.near("residual_error", c.run(f"shadow.residual_error.L{layer}"), np.array(want), 1, text)


def compare(check, path, llama, prompt, n, method, budget, sees=None, more=()):
    e = check.engine
    ids = np.random.RandomState(prompt + n).randint(3, llama.vocab, prompt)
    text = f"{method} B={budget} prompt {prompt}"
    c = Columns(e.run(path, ids, n, method, budget, "--probes", "lean,nll", "--shadow", "entries,model", *more))
    ids = c.run("tokens.id")
    evict = c.get("evict_step").astype(int)
    cached = by_steps(evict, llama.heads)
    run = Missing(llama, sees(cached) if sees else cached, c.T)
    twin = Dense(llama, everything, c.T)
    own, full = [run.feed(i) for i in ids], [twin.feed(i) for i in ids]
    open_, hits = compare_entries(check, c, run, text)
    compare_model(check, c, own, full, ids, text)
    missed = (1 - run.kept).sum()
    if check.verbose:
        print(f"  {text}: {missed:.3g} of mass missed, {hits} hits, {open_} open")
    return missed


def make_gates(layout, path):
    made = [sys.executable, os.path.join(HERE, "..", "data", "make_gates.py"), "--layout", layout, *GATES.split()]
    subprocess.run([*made, "-o", path], check=True)
    return ["--gates", path]


def methods(check, path, llama):
    folder = check.engine.folder
    retention = make_gates("rg", os.path.join(folder, "rg.safetensors"))
    write = make_gates("wgkv", os.path.join(folder, "wgkv.safetensors"))
    for method, budget, more in (("snapkv", 9, ()), ("h2o", 7, ()), ("snapkv:chunk=10", 9, ()), ("window:every=3", 8, ()),
                                 ("h2o:order=after", 6, ()), ("adakv", 10, ()), ("next-topk", 8, ()),
                                 ("trimkv", 9, retention), ("wgkv:local=5,tau=.3", 12, write)):
        missed = compare(check, path, llama, 30, 20, method, budget, more=more)
        check.say(missed > 0.1, f"{method} misses something ({missed:.3g})")
    group = compare(check, path, llama, 24, 12, "h2o:group=none", 7)
    check.say(group > 0.1, "h2o:group=none misses something")
    sees = lambda cached: by_pages(30, 12, 4, 1)
    check.say(compare(check, path, llama, 30, 20, "quest:page=4,dense=1", 12, sees) > 0.1, "quest leaves pages unread")
    sees = lambda cached: by_pages(30, 6, 2, 0, cached)
    both = compare(check, path, llama, 30, 20, "snapkv:read=quest,reads=6,page=2", 14, sees)
    alone = compare(check, path, llama, 30, 20, "snapkv", 14)
    check.say(both > alone + 0.1, f"snapkv:read=quest leaves cached pages unread: {both:.3g}, without reading {alone:.3g}")


def long_prompt(check, path, llama):
    """Evicted entries are removed every 256 positions of a prompt, and hidden in the cache until
    then."""
    write = make_gates("wgkv", os.path.join(check.engine.folder, "wgkv.safetensors"))
    missed = compare(check, path, llama, 270, 6, "wgkv:local=5,tau=.3", 200, more=write)
    check.say(missed > 0.1, "wgkv misses something in a long prompt")


def two_blocks(check, path, llama):
    """Columns are written every 1024 steps, and those that still change are written again."""
    model = Path(path).read_bytes()
    context = b"llama.context_length" + struct.pack("<I", 4)
    long = path + ".long"
    Path(long).write_bytes(model.replace(context + struct.pack("<I", 512), context + struct.pack("<I", 2048)))
    compare(check, long, llama, 1000, 40, "h2o", 30)


def narrow(check, path, llama):
    """f16 entries, quantised weights, 16-bit activations: the same numbers with larger errors."""
    check.engine.exact, check.slack = False, 1000
    for method, budget in (("h2o", 9), ("snapkv", 12)):
        compare(check, path, llama, 70, 20, method, budget)
    check.slack = 1


def budgets(check, path, llama):
    for budget in range(1, 25):
        compare(check, path, llama, 14, 11, "snapkv" if budget % 2 else "h2o", budget)


def nothing_lost(check, path, llama):
    """With full, and with a budget of all tokens, values are exact."""
    for method, budget in (("full", 1), ("h2o", 40)):
        ids = np.random.RandomState(3).randint(3, llama.vocab, 20)
        c = Columns(check.engine.run(path, ids, 20, method, budget, "--shadow", "model,entries"))
        want = {"kept_mass": 1, "oracle_mass": 1, "output_error": 0, "ghost_hits": 0, "first_hit": NEVER, "ghost_mass": 0,
                "kl": 0, **{f"residual_error.L{k}": 0 for k in range(c.layers)}}
        for name, value in want.items():
            check.say((c.get("shadow." + name) == value).all(), f"{method}: {name} is {value}")
        same = c.run("shadow.nll").tobytes() == c.run("nll").tobytes()
        check.say(same, f"{method}: the twin's nll is the run's, bit by bit")


def changes_nothing(check, path, llama):
    """The rest of a trace is equal with and without shadows, and shadows do not depend on threads
    and chunks."""
    e, ids = check.engine, np.random.RandomState(4).randint(3, llama.vocab, 90)
    for method, budget in (("h2o", 11), ("snapkv:chunk=32", 16), ("quest:page=4,dense=0", 16), ("streaming", 0),
                           ("snapkv:read=quest,page=4", 16), ("rocketkv:page=3", 24),
                           ("next-topk", 12)):
        row = "window:recent=9" if method == "streaming" else method
        budget = budget or 13
        plain = Columns(e.run(path, ids, 12, row, budget, "--probes", "paper")).all("?")
        for shadow in ("entries", "model", "entries,model"):
            got = Columns(e.run(path, ids, 12, row, budget, "--probes", "paper", "--shadow", shadow)).all("shadow.")
            check.say(got == plain, f"{row}: --shadow {shadow} changes nothing else")
        ways = [("-t", t, "--chunk", k) for t, k in ((1, 256), (2, 256), (2, 7), (1, 1))]
        made = set()
        for way in ways:
            made.add(Path(e.run(path, ids, 12, row, budget, "--shadow", "entries,model", *way)).read_bytes())
        check.say(len(made) == 1, f"{row}: {len(ways)} ways to run give {len(made)} traces")


def refusals(check, path, llama):
    ids = np.arange(3, 23)
    for more in (["--shadow", "ghosts"], ["--shadow", ""], ["--shadow", "entries=2"], ["--shadow", "entries,,model"],
                 ["--probes", "shadow-entries"]):
        try:
            check.engine.run(path, ids, 4, "h2o", 8, *more)
            check.say(False, f"{more} is refused")
        except EngineError as e:
            check.say("exit 2" in str(e), f"{more} is refused")
    try:
        check.engine.run(path, ids, 4, "window:positions=cache", 8, "--shadow", "entries")
        check.say(False, "positions=cache has no ghosts")
    except EngineError as e:
        check.say("exit 2" in str(e), "positions=cache has no ghosts")


def main():
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        check = Check(Engine(os.path.abspath(sys.argv[1]), folder), "-v" in sys.argv)
        paths = [os.path.join(folder, f"{k}.gguf") for k in range(3)]
        for arguments, path in zip((MODEL, DEEP, PACKED), paths):
            generate_model(arguments, path)
        small, deep, packed = map(Llama, paths)
        methods(check, paths[0], small)
        long_prompt(check, paths[0], small)
        two_blocks(check, paths[0], small)
        budgets(check, paths[1], deep)
        nothing_lost(check, paths[1], deep)
        changes_nothing(check, paths[0], small)
        refusals(check, paths[0], small)
        narrow(check, paths[2], packed)
        nothing_lost(check, paths[2], packed)
        changes_nothing(check, paths[2], packed)
    print("largest errors: " + ", ".join(f"{k} {v:.2g}" for k, v in check.worst.items()))
    print(f"{check.passed} passed, {check.failed} failed, 0 skipped")
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
