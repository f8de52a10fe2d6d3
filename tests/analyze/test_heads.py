#!/usr/bin/env python3
"""Check kvfate heads: planted types, the definitions in numpy on dense attention, edge cases, errors."""
import os
import sys
import tempfile

import numpy as np

import planted
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, kvfate, real, refused, said  # noqa: E402
from maker import AGE, ALIVE, SNAPSHOT, Column, make, table

write_kvf = os.path.abspath(sys.argv[2])
S = 4


# ---- kinds

def confusion(folder, noise, strength, seed):
    """Return {(planted, named): heads} of two heads of each type, in a trace of 5 layers."""
    rng = np.random.default_rng(seed)
    specs = [planted.spec(rng, k, strength, noise) for k in planted.KINDS for _ in range(2)]
    path, *_ = planted.trace(write_kvf, f"{folder}/planted.kvf", rng, specs, 5, 2, 4, 320)
    got, _ = table(kvfate, "heads", path)
    return list(zip([s["kind"] for s in specs], got["kind"]))


def kinds(folder):
    pairs = [p for noise in (.2, .7) for k, strength in enumerate(planted.STRENGTHS)
             for p in confusion(folder, noise, strength, 100 + k)]
    names = planted.KINDS + ["unknown"]
    print("planted \\ named ".rjust(18), *[n[:8].rjust(8) for n in names])
    for a in planted.KINDS:
        print(a.rjust(18), *[str(pairs.count((a, b)) or ".").rjust(8) for b in names])
        check(f"most of {a} are named right", pairs.count((a, a)) >= .75 * sum(x == a for x, _ in pairs))
    right = sum(a == b for a, b in pairs)
    print(f"{right} of {len(pairs)} named right")
    check("at least 90 % named right", right >= .9 * len(pairs), right, len(pairs))


# ---- the definitions, from the dense weights

def f32(v):
    return np.asarray(v, np.float32).astype(float)


def widest_gap(v):
    """Return the split of sorted values in two with the largest sum of squares between the means."""
    v, best = np.sort(v), None
    for k in range(1, len(v)):
        between = ((v[:k].mean() - v.mean()) ** 2 * k + (v[k:].mean() - v.mean()) ** 2 * (len(v) - k))
        if best is None or between > best[0]:
            best = between, k
    between, k = best
    return v[:k].mean(), v[k:].mean(), min(k, len(v) - k) / len(v), between / ((v - v.mean()) ** 2).sum()


def expected(a, z, texts, P, stored=f32, last_used=planted.last_used):
    T = len(a)
    i, M, X, last = np.arange(T), stored(a.sum(0)), stored(a.max(0)), last_used(a)
    last = np.where(np.isnan(last), -1, last)
    e = {"sink_mass": a[S:, :S].sum(1).mean(), "tokens": T - S, "never_tokens": (last[S:] < 0).sum()}
    width = np.log2(M / X)[S:T // 2]
    low, high, lesser, two = widest_gap(width)
    q = np.quantile(width, [.25, .5, .75])
    e.update(window=2 ** q[1], spread=q[2] - q[0], mode_low=2 ** low, mode_high=2 ** high, modes_apart=high - low,
             lesser_mode=lesser, two_modes=two, last_use=np.median(last[S:T // 2] + 1))
    u = M / M[S:].mean()
    seen = sum((u[S:k * T // 4] - 1).sum() for k in (1, 2, 3))
    even = sum((k * T // 4 - S) / (t + 1 - S) for k in (1, 2, 3) for t in range(k * T // 4, T))
    e["recent"] = 1 - seen / even
    share, base = (u[S:P] - 1).sum() / (T - P), np.mean([(P - S) / (t + 1 - S) for t in range(P, T)])
    e["prompt"] = (share - base) / (1 - base) if P - S >= 16 else np.nan
    for name, part in (("64th", 64), ("16th", 16), ("4th", 4), ("half", 2)):
        n = -(-T // part)
        risk = [k for k in range(S, T) if k + n < T]
        alive = sum(last[k] >= n for k in risk)
        e.update({f"at_risk_{name}": len(risk), f"alive_{name}": alive, f"survival_{name}": alive / len(risk)})
    e["never"] = e["never_tokens"] / (T - S)
    e["last_use_sparsity"] = 1 - (last[S:] + 1).sum() / (T - i[S:]).sum()
    for name, words in (("number", planted.NUMBER), ("gist", ["."]), ("filler", planted.FILLER)):
        own = np.isin(texts, words) & (i >= S)
        base = own.sum() / (T - S)
        e[name] = (M[own].sum() / M[S:].sum() - base) / (1 - base) if 8 <= own.sum() <= T - S - 8 else np.nan
        e[f"{name}_tokens"] = own.sum()
    mid = M[S:T - T // 8]
    e["uneven"] = mid.std() / mid.mean()
    e["top_tenth"] = np.sort(mid)[-(-(-len(mid) // 10)):].sum() / mid.sum()
    x = np.log(mid)
    d = np.diff(x) - np.diff(x).mean()
    e.update(runs=np.corrcoef(x[:-1], x[1:])[0, 1], rises=(d ** 3).mean() / (d ** 2).mean() ** 1.5)
    with np.errstate(divide="ignore", invalid="ignore"):
        h = -np.where(a > 0, a * np.log(a), 0).sum(1)
    e.update(entropy=(stored(h)[S:] / np.log(i[S:] + 1)).mean(), lse_mean=f32(z)[S:].mean(), residence=1)
    return e


def definitions(folder):
    for seed, (L, H, G, T) in enumerate([(2, 2, 2, 200), (3, 1, 2, 131), (1, 2, 6, 64)]):
        rng = np.random.default_rng(seed)
        specs = [planted.spec(rng, rng.choice(planted.KINDS), .92) for _ in range(L * G)]
        path, heads, texts, P = planted.trace(write_kvf, f"{folder}/dense.kvf", rng, specs, L, H, G, T)
        got, _ = table(kvfate, "heads", path)
        check("heads in order", got["head"] == [f"L{l}H{g}" for l in range(L) for g in range(G)])
        for r, (a, z) in enumerate(heads):
            for name, want in expected(a, z, texts, P).items():
                ok = np.isclose(real(got[name])[r], want, rtol=1e-6, atol=2e-6, equal_nan=True)
                check(f"{name} of {got['head'][r]}", ok, got[name][r], want)


def retained_rows(log_beta):
    """Return attention with equal logits that retention weights."""
    age = np.arange(len(log_beta))[:, None] - np.arange(len(log_beta))
    with np.errstate(invalid="ignore"):
        r = np.where(age > 0, np.exp(np.maximum(age, 0) * log_beta), age == 0)
    return r / r.sum(1, keepdims=True)


def even_share(a):
    """Return the largest age at which a token has at least the uniform weight of its row."""
    T = len(a)
    chosen = (a >= (1 - 1e-14) / np.arange(1, T + 1)[:, None]) & np.tril(np.ones((T, T), bool))
    return np.where(chosen.any(0), T - 1 - np.argmax(chosen[::-1], 0) - np.arange(T), np.nan)


def by_beta(folder):
    """Check types of KV heads from retention: the definitions on dense rows, and planted types."""
    rng = np.random.default_rng(21)
    T = 200
    texts, P = planted.text(rng, T), 50
    stops = np.isin(texts, ["."])
    log_beta = f32(np.array([np.log(rng.beta(2, .5, T)), np.full(T, np.log(.8)), np.where(np.arange(T) < S, -1e-6, np.log(.5)),
                             np.where(stops, -1e-4, np.log(.6)), np.zeros(T), np.where(rng.random(T) < .3, -np.inf, -.01)]))
    cols = [Column("log_beta", "f32", "kv", log_beta.reshape(3, 2, T)), Column("tokens.role", "u8", "run", (np.arange(T) >= P).astype(float)),
            Column("evict_step", "u32", "kv", np.full((3, 2, T), float(ALIVE)))]
    path = make(write_kvf, f"{folder}/beta.kvf", cols, (3, 2, 4, T), texts=texts)
    got, meta = table(kvfate, "heads", path, "--by", "beta")
    check("KV heads in order", got["head"] == [f"L{l}K{k}" for l in range(3) for k in range(2)] and meta["by"] == "beta" and "criterion" not in meta, meta)
    for r, b in enumerate(log_beta):
        if r == 4:
            continue  # all equal: quotients of 0
        for name, want in expected(retained_rows(b), np.zeros(T), texts, P, lambda v: v, even_share).items():
            want = np.nan if name == "lse_mean" else want
            ok = np.isclose(real(got[name])[r], want, rtol=1e-9, atol=1e-9, equal_nan=True)
            check(f"{name} of {got['head'][r]} by beta", ok, got[name][r], want)
    check("planted retention", got["kind"][1:4] == ["sliding-window", "a-shape", "gist"], got["kind"], got["score"])
    check("even retention", np.isclose(got["recent"][4], 0, atol=.05) and np.isclose(got["entropy"][4], 1), got["recent"][4], got["entropy"][4])
    said("heads", path, "--by", "beta")
    refused("query heads", 2, ["heads", path, "--by", "beta", "--head", "L0H0"], "KV heads")
    refused("no retention", 1, ["heads", f"{folder}/hand.kvf", "--by", "beta"], "log_beta")


def by_hand(folder):
    """Check 40 tokens; each query t attends by half to token 0, by half to itself (t = 0: to itself)."""
    T = 40
    M = np.full(T, .5)
    M[0] = 1 + .5 * 39
    M[4:8] = 0  # except these, which are unseen: token 0 gets 0.5 more
    M[0] += 2
    X = np.where(M > 0, .5, 0)
    X[0] = 1
    last = np.where(np.arange(T) < 1, 39., 0)
    cols = [Column("mass.sum", "f32", "query", M.reshape(1, 1, T), flags=SNAPSHOT), Column("mass.max", "f32", "query", X.reshape(1, 1, T), flags=SNAPSHOT),
            Column("last_selected.mass.90", "u16", "query", last.reshape(1, 1, T), flags=SNAPSHOT | AGE),
            Column("entropy", "f32", "query", np.full((1, 1, T), 0.), "step")]
    got, meta = table(kvfate, "heads", make(write_kvf, f"{folder}/hand.kvf", cols, (1, 1, 1, T)))
    # of 36 tokens 4 have 0 and 32 have 0.5: mean 16 / 36, sink mass 1 - 4 / 9
    check("sink mass by hand", np.isclose(got["sink_mass"][0], 5 / 9), got["sink_mass"])
    # tokens that were seen were seen by one query: 0.5 / 0.5
    check("window by hand", got["window"] == [1] and got["spread"] == [0], got["window"], got["spread"])
    # last use at birth, one step of 36 + 35 + ... + 1 = 666
    check("sparsity by hand", np.isclose(got["last_use_sparsity"][0], 1 - 36 / 666))
    check("no survivors", got["alive_64th"] == [0] and got["at_risk_64th"] == [35], got["at_risk_64th"])
    check("undefined without texts, roles and evictions", [got[n][0] for n in ("number", "prompt", "residence", "lse_mean")] == [None] * 4)
    check("a-shape of width one", got["kind"] == ["a-shape"], got["kind"])


def summary(folder):
    """Check one line per type: number of heads, and the means of their rows."""
    rng = np.random.default_rng(8)
    specs = [planted.spec(rng, k, .92) for k in planted.KINDS for _ in range(2)]
    path, *_ = planted.trace(write_kvf, f"{folder}/summary.kvf", rng, specs, 5, 2, 4, 320)
    got, _ = table(kvfate, "heads", path)
    kind, window, sink = np.array(got["kind"]), real(got["window"]), real(got["sink_mass"])
    lines = said("heads", path).splitlines()[1:]
    told = {line.split()[0]: line.split() for line in lines}
    check("a line of each kind that occurs", len(lines) == len(told) and set(told) == set(kind), lines)
    for name, words in told.items():
        of = kind == name
        check(f"heads of {name}", int(words[1]) == of.sum() and words[2:4] == ["mean", "window"], words)
        check(f"means of {name}", abs(float(words[4]) - window[of].mean()) <= .0501 and abs(float(words[-1]) - sink[of].mean()) <= .000501, words)


def edges(folder):
    rng = np.random.default_rng(5)
    for T in (0, 1, 35):
        specs = [planted.spec(rng, "sliding-window", .92)] * 2
        if T:
            path, *_ = planted.trace(write_kvf, f"{folder}/{T}.kvf", rng, specs, 1, 1, 2, T)
        else:
            cols = [Column(n, "f32" if n[0] != "l" else "u16", "query", np.zeros((1, 2, 0)), flags=SNAPSHOT | AGE * (n[0] == "l")) for n in
                    ("mass.sum", "mass.max", "last_selected.mass.90")] + [Column("entropy", "f32", "query", np.zeros((1, 2, 0)), "step")]
            path = make(write_kvf, f"{folder}/0.kvf", cols, (1, 1, 2, 0))
        got, meta = table(kvfate, "heads", path)
        check(f"{T} tokens", got["kind"] == ["unknown"] * (2 if T else 0), got["kind"])
        said("heads", path)
    # evicted at birth; a head of NaN; a head without attention
    T, nan = 64, np.full((1, 2, 64), np.nan)
    nan[0, 1] = 0
    cols = [Column("mass.sum", "f32", "query", nan), Column("mass.max", "f32", "query", nan),
            Column("last_selected.mass.90", "u16", "query", np.full((1, 2, T), np.nan), flags=SNAPSHOT | AGE),
            Column("entropy", "f32", "query", nan, "step"), Column("evict_step", "u32", "kv", np.arange(T).reshape(1, 1, T) + 1)]
    path = make(write_kvf, f"{folder}/nan.kvf", cols, (1, 1, 2, T))
    got, meta = table(kvfate, "heads", path)
    check("NaN gives no kind", got["kind"][0] == "unknown" and got["score"][0] is None and meta["undefined"] == "1", got["kind"], meta)
    check("held for one step", np.isclose(got["residence"][0], 60 / (60 * 61 / 2)), got["residence"])
    check("all is sink where nothing else is seen", got["sink_mass"][1] == 1 and got["never"] == [1, 1])


def refusals(folder):
    rng = np.random.default_rng(6)
    path, *_ = planted.trace(write_kvf, f"{folder}/r.kvf", rng, [planted.spec(rng, "sink", .92)] * 2, 1, 1, 2, 40)
    one, meta = table(kvfate, "heads", path, "--head", "L0H1", "--tokens", "0:40")
    check("one head", one["head"] == ["L0H1"] and "tokens" not in meta)
    check("some tokens", table(kvfate, "heads", path, "--tokens", "4:30")[1]["tokens"] == "4:30")
    refused("KV heads", 2, ["heads", path, "--head", "L0K0"], "query heads")
    refused("no such criterion", 1, ["heads", path, "--criterion", "top7"], "last_selected.top7", "--probes survival")
    refused("no such tokens", 2, ["heads", path, "--tokens", "50:60"], "50:60")
    refused("no such file of classes", 1, ["heads", path, "--classes", f"{folder}/none.json"], "none.json")
    refused("a film", 2, ["heads", path, "-o", f"{folder}/x.gif"], "x.gif")
    bare = make(write_kvf, f"{folder}/bare.kvf", [Column("nll", "f32", "run", np.zeros(4))], (1, 1, 1, 4))
    refused("no masses", 1, ["heads", bare], "mass.sum", "--probes mass")


with tempfile.TemporaryDirectory() as folder:
    by_hand(folder)
    definitions(folder)
    by_beta(folder)
    kinds(folder)
    summary(folder)
    edges(folder)
    refusals(folder)
finish()
