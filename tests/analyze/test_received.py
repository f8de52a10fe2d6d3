#!/usr/bin/env python3
"""Check raw blocks of a run against a forward pass in float64, and kvfate received against numpy.

usage: test_received.py KVFATE WRITE_KVF DUMP GEN_TINY
"""
import math
import os
import subprocess
import sys
import tempfile

import numpy as np

import dense
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, real, refused  # noqa: E402
from maker import SNAPSHOT, Column, make, table

kvfate, write_kvf, dump, gen = map(os.path.abspath, sys.argv[1:5])


class Watched(dense.Llama):
    """Keeps queries before and after RoPE: rope is called for q, then k, of each layer."""

    def rope(self, x):
        out = super().rope(x)
        self.calls.append((x, out))
        return out

    def run(self, ids, alpha):
        self.calls = []
        got = super().run(ids, alpha)
        self.pre, self.post = ([c[k] for c in self.calls[::2]] for k in range(2))
        return got


# ---- the recorded data

# name, model, prompt, -n, method; T = prompt + n - 1
RUNS = [
    ("full", "--heads 4 --kv-heads 2 --seed 2", 30, 15, "--method full"),
    ("h2o", "--heads 3 --kv-heads 1 --dim 96 --head-dim 32 --seed 3", 25, 30, "--method h2o --budget 12"),
    ("window", "--heads 6 --kv-heads 3 --dim 96 --seed 4", 40, 12, "--method window --budget 16"),
    ("quest", "--heads 4 --kv-heads 2 --seed 5", 48, 30, "--method quest:page=4,dense=0 --budget 12"),
    ("own", "--heads 4 --kv-heads 2 --seed 6", 20, 12, "--method tova:group=none --budget 8"),
    ("one", "--heads 2 --kv-heads 2 --dim 32 --seed 7", 1, 0, "--method full"),
]


def run(folder, name, model, prompt, n, options, out="x.kvf", threads=2, more=()):
    gguf, ids = (os.path.join(folder, f"{name}.{e}") for e in ("gguf", "ids"))
    if not os.path.exists(gguf):
        subprocess.run([sys.executable, gen, *model.split(), "-o", gguf], check=True)
        with open(ids, "w") as f:
            f.write(" ".join(map(str, np.random.RandomState(prompt).randint(3, 259, prompt))))
    kvf = os.path.join(folder, out)
    subprocess.run([kvfate, "run", "--overwrite", "-m", gguf, "--ids", ids, "-n", str(n), "--exact", "--ignore-eos", *options.split(), "--probes",
                    "evict,read,mass", "-t", str(threads), "-q", "-o", kvf, *more], check=True, stdout=subprocess.DEVNULL)
    return gguf, kvf


def columns(folder, kvf):
    out = {}
    for line in subprocess.run([dump, kvf, folder], check=True, capture_output=True, text=True).stdout.splitlines():
        name, *shape = line.split()
        out[name] = np.fromfile(os.path.join(folder, name + ".f64")).reshape([int(x) for x in shape])
    return out


def against_dense(folder, case):
    name, _, prompt, n, method = case
    T = prompt + max(n - 1, 0)
    watch = [i for i in range(T) if i % 3 != 1] or [0]
    more = ["--watch", ",".join(map(str, watch[3:] or watch)) + "@L*H*", "--watch", f"0-{min(3, T - 1)}@L0H*,1.*", "--watch-queries", "L0H1,L1H*"]
    gguf, kvf = run(folder, *case, more=more)
    c = columns(folder, kvf)
    evict = np.where(c["evict_step"] == 0xffffffff, np.inf, c["evict_step"])
    m = Watched(gguf)
    if "group=none" in method:
        group, m.H = m.G // m.H, m.G  # entries of each query head: widen the keys and values
        for k in [k for k in m.w if "attn_k." in k or "attn_v." in k]:
            w = m.w[k].reshape(m.G // group, -1, m.w[k].shape[1])
            m.w[k] = np.repeat(w, group, 0).reshape(-1, m.w[k].shape[1])
    alpha = dense.alpha_of(evict, T)
    pairs = sorted((int(k.split("L")[1].split("H")[0]), int(k.split("H")[1].split(".")[0]), int(k.split(".")[2]))
                   for k in c if k.startswith("received."))
    tokens = {i for *_, i in pairs}
    check(f"{name}: pairs", tokens == set(watch) | set(range(min(4, T))) and len(pairs) == len(tokens) * m.L * m.G, len(pairs), m.L, m.G, tokens)
    hidden = 0
    if name == "quest":  # evict_step does not have the pages that a query reads: read.count counts its steps
        for l, g, i in pairs:
            v = c[f"received.L{l}H{g}.{i}"][0, 0]
            hidden += (v == -1).sum()
            check("quest: reads", (v[max(i, prompt):] >= 0).sum() == c["read.count"][l, g, i] and (v[i:prompt] >= 0).all())
            check("quest: sum", abs(v[v >= 0].sum() - c["mass.sum"][l, g, i]) < 1e-5)
        check("quest: some pages are not read", hidden > 100, hidden)
        return
    p, _, _ = m.run(c["tokens.id"][0, 0].astype(int), alpha)
    t, text = table(kvfate, "attention", "--as", "received", kvf)[0], table(kvfate, "tokens", kvf)[0]["text"]
    check(f"{name}: texts", t["text"] == [text[i] for i in t["token"]] and len(set(t["text"])) > (name != "one"), t["text"][:9])
    for l, g, i in pairs:
        v, h = c[f"received.L{l}H{g}.{i}"][0, 0], g // (m.G // m.H)
        seen = alpha[l, h, :, i]
        hidden += (~seen[i:]).sum()
        check(f"{name}: L{l}H{g}.{i} unborn", np.isnan(v[:i]).all() and not np.isnan(v[i:]).any())
        check(f"{name}: L{l}H{g}.{i} unseen", ((v == -1) == ~seen)[i:].all())
        check(f"{name}: L{l}H{g}.{i}", np.allclose(v[seen], p[l, g, seen, i], rtol=1e-4, atol=1e-7))
    check(f"{name}: evictions", (hidden > 100) == (name not in ("full", "one")), hidden)
    run(folder, *case, out="y.kvf", more=[*more[:-1], "L0H1,L1H*@post"])
    c.update(columns(folder, os.path.join(folder, "y.kvf")))
    for when in ("pre", "post"):
        q = getattr(m, when)
        heads = [(0, 1)] + [(1, g) for g in range(m.G)]
        names = [k for k in c if k.startswith(f"query.{when}.")]
        D = q[0].shape[-1]
        check(f"{name}: vectors", len(names) == len(heads) * D, len(names))
        for l, g in heads:
            v = np.array([c[f"query.{when}.L{l}H{g}.d{j:02}"][0, 0] for j in range(D)]).T
            check(f"{name}: queries {when} L{l}H{g}", np.abs(v - q[l][:, g]).max() < 1e-4 * np.abs(q[l][:, g]).max(), np.abs(v - q[l][:, g]).max())
    for threads, chunk in ((1, 7), (2, 256)):
        run(folder, *case, out="z.kvf", threads=threads, more=[*more, "--chunk", str(chunk)])
        check(f"{name}: bytes", open(kvf, "rb").read() == open(os.path.join(folder, "z.kvf"), "rb").read())


def other_columns(folder):
    """Check that recording changes no other column; the default heads of `queries`; a token that is not reached."""
    case = RUNS[1]
    _, plain = run(folder, *case, out="plain.kvf")
    _, kvf = run(folder, *case, out="more.kvf", more=["--watch", "5,54@L1H2", "--watch-queries", "L1H0"])
    a, b = columns(folder, plain), columns(folder, kvf)
    check("same columns", set(a) < set(b) and all(np.array_equal(a[k], b[k], equal_nan=True) for k in a))
    check("token 54 is sampled and not fed", np.isnan(b["received.L1H2.54"]).all() and b["received.L1H2.54"].shape[2] == 54)
    run(folder, *case, out="more.kvf", more=["--probes", "full,queries"])
    b = columns(folder, kvf)
    heads = {k.rsplit(".", 1)[0] for k in b if k.startswith("query")}
    check("heads of their own", heads == {"query.pre.L0H0", "query.pre.L1H0"} and not any(k.startswith("received") for k in b), heads)
    told = subprocess.run([kvfate, "attention", "--as", "received", os.path.join(folder, "x.kvf")], capture_output=True, text=True)
    check("describes", told.returncode == 0 and "seen by" in told.stdout, told)


def refusals_of_run(folder):
    gguf, _ = run(folder, *RUNS[5])
    base = ["run", "--overwrite", "-m", gguf, "--ids", os.path.join(folder, "one.ids"), "-n", "4", "-q", "-o", os.path.join(folder, "no.kvf")]
    for words, *argv in [
            ("TOKENS@HEADS", "--watch", "3"), ("TOKENS@HEADS", "--watch", "3@"), ("TOKENS@HEADS", "--watch", "@L0H0"),
            ("query heads", "--watch", "3@L0K0"), ("query heads", "--watch", "3@x"), ("layer 7", "--watch", "3@L7H0"),
            ("tokens such as", "--watch", "3-@L0H0"), ("tokens such as", "--watch", "3-1@L0H0"), ("tokens such as", "--watch", "a@L0H0"),
            ("tokens such as", "--watch", "1;2@L0H0"), ("no token 5", "--watch", "5@L0H0"), ("no token 99", "--watch", "0,99@L0H0"),
            ("--watch TOKENS@HEADS", "--probes", "received"), ("@pre or @post", "--watch-queries", "L0H0@mid"),
            ("query heads", "--watch-queries", "L0K0"), ("needs query heads", "--watch-queries", "@pre"),
            ("positions=cache", "--watch-queries", "L0H0@post", "--method", "window:positions=cache", "-B", "4")]:
        refused(" ".join(argv), 2, base + argv, words)
    check("nothing was written", not os.path.exists(os.path.join(folder, "no.kvf")))


def too_many(folder):
    gguf, _ = run(folder, "big", "--heads 8 --kv-heads 2 --dim 512 --head-dim 64", 2, 140, "--method full")
    base = ["run", "--overwrite", "-m", gguf, "--ids", os.path.join(folder, "big.ids"), "-n", "140", "-q", "-o", os.path.join(folder, "big.kvf")]
    L = dense.Llama(gguf).L
    most = 1024 // (8 * L)
    refused("1025 pairs", 2, base + ["--watch", f"0-{most - 1}@L*H*", "--watch", f"{most}@L0H0"], "over 1024 pairs")
    done = subprocess.run([kvfate, *base, "--watch", f"0-{most - 1}@L*H*", "--watch", "0@L0H0"], capture_output=True)
    check("1024 pairs", done.returncode == 0 and most * 8 * L == 1024, done)
    del base[base.index("-q")]
    said = subprocess.run([kvfate, *base, "--watch", "0-3@L0H0"], capture_output=True).stderr.decode()
    check("says what it costs", "4 pairs" in said and "16 bytes per step" in said, said)


# ---- the analyzer

def by_hand(folder):
    """Check one layer, two query heads, T = 4. H1: token 1 has weights .5 .25 and is then unseen; H0: tokens 0 and 3.
    Cumulative of token 1: .5, .75, .75. mass.sum: H0 = 2, 1, 1, 0, H1 = 0, 3, 1, 0.
    """
    nan = np.nan
    raw = [Column("received.L0H1.1", "f32", "run", [nan, .5, .25, -1], "step"), Column("received.L0H0.3", "f32", "run", [nan, nan, nan, 0], "step"),
           Column("received.L0H0.0", "f32", "run", [1, .5, nan, .125], "step"), Column("received.L0H0.9", "f32", "run", [nan] * 4, "step")]
    mass = Column("mass.sum", "f32", "query", [[[2, 1, 1, 0], [0, 3, 1, 0]]], flags=SNAPSHOT)
    kvf = make(write_kvf, os.path.join(folder, "hand.kvf"), [*raw, mass], (1, 1, 2, 4))
    t, meta = table(kvfate, "attention", "--as", "received", kvf, "--cumulative")
    check("no gates", t.pop("retention") == [None] * 8, t)
    check("hand", t == {"head": ["L0H0"] * 5 + ["L0H1"] * 3, "layer": [0] * 8, "index": [0] * 5 + [1] * 3, "token": [0] * 4 + [3] + [1] * 3,
                        "step": [0, 1, 2, 3, 3, 1, 2, 3], "attention": [1, .5, None, .125, 0, .5, .25, None],
                        "seen": [1, 1, -1, 1, 1, 1, 1, 0], "cumulative": [1, 1.5, 1.5, 1.625, 0, .5, .75, .75],
                        "text": [""] * 8}, t)
    check("hand meta", (meta["pairs"], meta["steps_unseen"], meta["steps_unknown"], meta["pairs_unborn"]) == ("3", "1", "1", "1"), meta)
    t, _ = table(kvfate, "attention", "--as", "received", kvf, "--every", "2", "--head", "L0H0", "--tokens", "0:1", "--cumulative")
    check("hand every", t["step"] == [0, 2] and t["cumulative"] == [1, 1.5] and t["attention"] == [1, None], t)
    gates = Column("log_beta", "f32", "kv", np.log([[[.5, .25, 1, .125]]]))
    g, _ = table(kvfate, "attention", "--as", "received", make(write_kvf, os.path.join(folder, "gates.kvf"), [*raw, gates], (1, 1, 2, 4)))
    check("hand gates", np.allclose(g["retention"], [1, .5, .25, .125, 1, 1, .25, .0625], rtol=1e-6), g)
    # shares of token 1: 1/4 and 3/4; token 3 has no mass
    t, meta = table(kvfate, "attention", "--as", "received", kvf, "--spread", "shares")
    check("hand shares", t["share"] == [1, .25, .5, None, 0, .75, .5, None] and t["token"] == [0, 1, 2, 3] * 2 and meta["undefined"] == "1", t)
    # token 1: entropy -(1/4 ln 1/4 + 3/4 ln 3/4) = 0.5623, Gini (3 - 1) / (2 * 4) = 1/4, both heads for 90 %
    t, _ = table(kvfate, "attention", "--as", "received", kvf, "--spread", "tokens")
    check("hand tokens", t["mass"] == [2, 4, 2, 0] and t["queries"] == [4, 3, 2, 1] and t["gini"] == [.5, .25, 0, None] and t["heads"] == [2] * 4
          and t["top_head"] == ["L0H0", "L0H1", "L0H0", ""] and t["top_share"] == [1, .75, .5, None] and t["heads_needed"] == [1, 2, 2, -1]
          and t["heads_share"] == [.5, 1, 1, None] and np.allclose(real(t["entropy"])[:3], [0, 0.5623351446188083, math.log(2)])
          and np.allclose(real(t["effective_heads"])[:3], [1, 4 / 3 ** .75, 2]), t)
    # H0: 2, 1, 1, 0 of 4: three tokens for 90 %, one for 50 %; Gini (3*2 + 1*1 - 1*1 - 3*0) / (4 * 4) = 6 / 16
    t, _ = table(kvfate, "attention", "--as", "received", kvf, "--spread", "heads")
    check("hand heads", t["tokens"] == [4, 4] and t["mass"] == [4, 4] and t["tokens_needed"] == [3, 2] and t["tokens_share"] == [.75, .5]
          and t["gini"] == [.375, .625] and t["top_token"] == [0, 1] and t["top_share"] == [.5, .75] and np.allclose(t["entropy"], [1.5 * math.log(2), 0.5623351446188083]), t)
    t, _ = table(kvfate, "attention", "--as", "received", kvf, "--spread", "heads", "--mass", ".5", "--tokens", "1:4")
    check("hand part", t["tokens_needed"] == [1, 1] and t["tokens"] == [3, 3] and t["top_token"] == [1, 1], t)


def long_way(folder, seed, L, H, G, T):
    rng = np.random.default_rng(seed)
    mass = rng.gamma(.3, 1, (L, G, T)).astype(np.float32).astype(float)
    mass[rng.random(mass.shape) < .2] = 0
    kvf = make(write_kvf, os.path.join(folder, "r.kvf"), [Column("mass.sum", "f32", "query", mass, flags=SNAPSHOT)], (L, H, G, T))
    a, b = (0, T) if seed % 2 else (T // 5, T - 3)
    m = mass[:, :, a:b].reshape(L * G, b - a)

    def one(v):
        v = np.sort(v)[::-1]
        if v.sum() == 0:
            return [np.nan, np.nan, np.nan, -1]
        s = v / v.sum()
        needed = next(k for k in range(1, len(v) + 1) if s[:k].sum() >= .8 - 1e-12)
        n = len(v)
        gini = np.abs(v[:, None] - v[None]).sum() / (2 * n * n * v.mean())  # by its definition
        return [-(s[s > 0] * np.log(s[s > 0])).sum(), gini, s[0], needed]

    for kind, rows, needed in (("tokens", m.T, "heads_needed"), ("heads", m, "tokens_needed")):
        t, _ = table(kvfate, "attention", "--as", "received", kvf, "--spread", kind, "--mass", ".8", "--tokens", f"{a}:{b}")
        want = np.array([one(v) for v in rows])
        got = np.array([real(t[k]) for k in ("entropy", "gini", "top_share", needed)]).T
        check(f"{kind} {L} {G} {T}", np.allclose(got, want, rtol=1e-12, atol=1e-13, equal_nan=True), np.abs(got - want).max())
    t, _ = table(kvfate, "attention", "--as", "received", kvf, "--spread", "shares", "--tokens", f"{a}:{b}")
    with np.errstate(invalid="ignore"):
        check(f"shares {L} {G} {T}", np.allclose(real(t["share"]).reshape(m.shape), m / m.sum(0), rtol=1e-14, atol=0, equal_nan=True))


def edges(folder):
    p = os.path.join(folder, "e.kvf")
    for T in (0, 1):
        cols = [Column("received.L0H0.0", "f32", "run", [1] * T, "step"), Column("mass.sum", "f32", "query", [[[1] * T]], flags=SNAPSHOT)]
        make(write_kvf, p, cols, (1, 1, 1, T))
        t, _ = table(kvfate, "attention", "--as", "received", p)
        check(f"T = {T}", len(t["step"]) == T and t["attention"] == [1] * T, t)
        for kind in ("shares", "tokens", "heads"):
            t, _ = table(kvfate, "attention", "--as", "received", p, "--spread", kind)
            check(f"T = {T} {kind}", len(t[list(t)[0]]) == (1 if kind == "heads" else T), t)
            said = subprocess.run([kvfate, "attention", "--as", "received", p, "--spread", kind], capture_output=True, text=True)
            check(f"T = {T} {kind} said", said.returncode == 3 * (T == 0) and said.stderr.count("\n") == (T == 0), said)
    make(write_kvf, p, [Column("mass.sum", "f32", "query", [[[np.nan, np.nan, -1]]], flags=SNAPSHOT)], (1, 1, 1, 3))
    t, meta = table(kvfate, "attention", "--as", "received", p, "--spread", "heads")
    check("no masses", t["gini"] == [None] and t["tokens_needed"] == [-1] and meta["not_a_mass"] == "3" and meta["undefined"] == "1", t, meta)
    refused("nothing recorded", 1, ["attention", "--as", "received", p], "--watch TOKENS@HEADS")
    refused("no out_norm", 1, ["attention", "--as", "received", p, "--spread", "heads", "--weight", "contrib"], "out_norm", "contrib")
    make(write_kvf, p, [Column("received.L0H0.1", "f32", "run", [np.nan, 1, 1], "step")], (1, 1, 2, 3))
    refused("no mass.sum", 1, ["attention", "--as", "received", p, "--spread", "heads"], "mass.sum", "--probes mass")
    refused("not among those", 2, ["attention", "--as", "received", p, "--head", "L0H1"], "no pair of the")
    refused("not among those", 2, ["attention", "--as", "received", p, "--tokens", "2:"], "no pair of the")
    refused("a KV head", 2, ["attention", "--as", "received", p, "--head", "L0K0"], "query")
    for more, word in ((["--weight", "x"], "--weight"), (["--weight", "contrib"], "--spread")):
        refused(f"{more}", 2, ["attention", "--as", "received", p, *more], word)
    for option, value, word in (("--spread", "all", "shares, tokens or heads"), ("--every", "0", "between 1 and"), ("--every", "x", "whole number"),
                                ("--mass", "0", "above 0"), ("--mass", "1.1", "at most 1"), ("--mass", "nan", "number")):
        refused(f"{option} {value}", 2, ["attention", "--as", "received", p, option, value], word)
    make(write_kvf, p, [Column("received.L0H3.1", "f32", "run", [np.nan, 1, 1], "step")], (1, 1, 2, 3))
    refused("a head that there is not", 1, ["attention", "--as", "received", p], "received.L0H3.1")


with tempfile.TemporaryDirectory() as folder:
    by_hand(folder)
    for k, shape in enumerate([(1, 1, 1, 9), (2, 1, 2, 40), (2, 2, 6, 33), (3, 3, 3, 200)]):
        long_way(folder, k, *shape)
    edges(folder)
    for case in RUNS:
        against_dense(folder, case)
    other_columns(folder)
    refusals_of_run(folder)
    too_many(folder)
finish()
