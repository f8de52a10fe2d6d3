#!/usr/bin/env python3
"""How long `kvfate ANALYZER` takes over one long trace, against numpy that computes the same from arrays.

usage: bench/analyzers.py KVFATE WRITE_KVF FOLDER [--tokens 16384] [--rounds 5] [--only NAME,...]

WRITE_KVF is build/tests/analyze/write_kvf.  The trace has the shape of the default model (30 layers, 9 query heads, 3 KV heads)
and lies in FOLDER (about 3 GB, reused by the next call) beside the same columns as .npy files in the types of the trace and as
compressed .npz files.  Its numbers are random.

Rounds alternate: kvfate, numpy.  The time of kvfate is that of the whole process, from its start to the summary it prints: it
opens the trace, checks and unpacks what it needs, and fills its whole table.  That of numpy is loading the files and computing
the statistic, without the start of Python and the import of numpy; from .npy files, which are neither packed nor checked, and
from compressed .npz files, which are packed as the trace is.  The page cache is warm for both.  Before anything is timed,
numbers of the two must be equal: integers exactly, sums of reals within 1e-9.  Prints medians in milliseconds.  numpy.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "analyze"))
from maker import AGE, ALIVE, SNAPSHOT  # noqa: E402

L, H, G = 30, 3, 9
CRITERIA = {"top64": 0.02, "top128": 0.01, "top256": 0.006, "top512": 0.004, "mass.90": 0.02, "mass.95": 0.01, "mass.99": 0.005}
NEVER = 65535
TYPES = {"u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "i32": np.int32, "f32": np.float32}


# ---- the trace

def columns(T):
    """(name, type, space, axis, flags, how to make its values) of each column."""
    born = np.arange(T)

    def age(rate, g, rng):
        a = np.minimum(rng.geometric(rate, (L * g, T)) - 1, T - 1 - born)
        return np.where(rng.random((L * g, T)) < 0.05, NEVER, a)

    def evict(rng):
        e = born + 1 + rng.geometric(1 / 6000, (L * H, T))
        return np.where(e > T, ALIVE, e)

    def share(low, high):
        return lambda rng: rng.uniform(low, high, (L * G, T))

    def score(rng):
        return rng.standard_normal((L * H, T))

    yield "tokens.id", "i32", "run", "token", 0, lambda rng: rng.integers(0, 49152, T)
    yield "tokens.role", "u8", "run", "token", 0, lambda rng: (born >= 3 * T // 4).astype(int)
    for name, rate in CRITERIA.items():
        yield "last_selected." + name, "u16", "query", "token", SNAPSHOT | AGE, lambda rng, rate=rate: age(rate, G, rng)
    yield "evict_step", "u32", "kv", "token", 0, evict
    yield "evict_reason", "u8", "kv", "token", 0, lambda rng: rng.integers(1, 3, (L * H, T))
    yield "evict_score", "f32", "kv", "token", 0, score
    yield "evict_margin", "f32", "kv", "token", 0, score
    yield "evict_tie", "u8", "kv", "token", 0, lambda rng: (rng.random((L * H, T)) < 0.01).astype(int)
    yield "log_beta", "f32", "kv", "token", 0, lambda rng: -np.exp(rng.uniform(-12, 0, (L * H, T)))
    for w in range(4):
        yield f"window.{w}", "f32", "kv", "token", SNAPSHOT, lambda rng: rng.exponential(0.001, (L * H, T))
    for name in ("top64", "mass.95"):
        for family in ("n_selected", "n_returns", "longest_gap"):
            yield f"{family}.{name}", "u16", "query", "token", SNAPSHOT, lambda rng: (
                np.minimum(rng.geometric(0.02, (L * G, T)) - 1, T - 1 - born))
        yield f"first_unselected.{name}", "u16", "query", "token", SNAPSHOT | AGE, lambda rng: age(0.2, G, rng)
    yield "selected_at.top64", "u32", "query", "token", SNAPSHOT, lambda rng: (
        rng.integers(0, 1 << 14, (L * G, T)) & rng.integers(0, 1 << 14, (L * G, T))
        & ((1 << np.ceil(np.log2(np.maximum(T - born, 1))).astype(int)) - 1))
    yield "shadow.kept_mass", "f32", "query", "step", 0, share(0.3, 0.8)
    yield "shadow.oracle_mass", "f32", "query", "step", 0, share(0.8, 1)
    yield "useful.top64", "f32", "query", "step", 0, share(0.3, 0.7)
    yield "dilution.top64", "f32", "query", "step", 0, share(0.3, 0.7)
    yield "size.top64", "u16", "query", "step", 0, lambda rng: np.broadcast_to(np.minimum(64, born + 1), (L * G, T))
    for k in range(16):
        yield f"near.all.{k}", "u16", "query", "step", 0, lambda rng, k=k: (
            np.minimum(1 + rng.poisson(2.0 ** (k / 2), (L * G, T)), born + 1))


def write(write_kvf, folder, T):
    """x.kvf, and the same columns as NAME.npy and NAME.npz"""
    trace = os.path.join(folder, f"{T}.kvf")
    meta = {"run": {"prompt_tokens": 3 * T // 4}}
    lines = [f"meta {json.dumps(meta)}", f"shape {L} {H} {G} {T}", "layers"]
    if os.path.exists(trace):
        return trace
    for c, (name, kind, space, axis, flags, make) in enumerate(columns(T)):
        v = make(np.random.default_rng(c)).astype(TYPES[kind])
        raw = v.astype(float)
        raw[v == np.array(ALIVE if kind == "u32" else NEVER).astype(v.dtype) if kind in ("u16", "u32") else np.zeros(v.shape, bool)] = np.nan
        raw.tofile(os.path.join(folder, f"{c}.f64"))
        np.save(os.path.join(folder, f"{T}.{name}.npy"), v)
        np.savez_compressed(os.path.join(folder, f"{T}.{name}.npz"), v=v)
        lines.append(f"column {name} {kind} {space} {axis} {flags} {T} {os.path.join(folder, f'{c}.f64')}")
    done = subprocess.run([write_kvf, trace + ".part"], input="\n".join(lines) + "\n", text=True)
    for c in range(len(lines) - 3):
        os.remove(os.path.join(folder, f"{c}.f64"))
    if done.returncode:
        sys.exit("the trace could not be written")
    os.rename(trace + ".part", trace)
    return trace


# ---- the statistics: each takes `load`, a function from a column's name to its array, and returns what is compared

def born_of(T):
    return np.arange(T, dtype=np.int64)


def histograms(a, most):
    """Of each row how often each number up to `most` occurs, larger ones left out."""
    return np.stack([np.bincount(row, minlength=most + 1)[:most + 1] for row in a])


def with_sum(a):
    return np.concatenate([a, a.sum(0, keepdims=True)])


def horizons(T):
    out, x = [0], 1.0
    while x < T:
        n = int(x + 0.5)
        if n < T and n != out[-1]:
            out.append(n)
        x *= 1.2589254117941673
    return out


def survival(load, T):
    alive, risk, share, half = [], [], [], []
    at = horizons(T)
    for name in CRITERIA:
        x = with_sum(histograms(load("last_selected." + name), T - 1)[:, ::-1].cumsum(1)[:, ::-1])
        r = (T - np.arange(T))[None, :] * np.array([1] * (L * G) + [L * G])[:, None]
        under = 2 * x < r
        half.append(np.where(under.any(1), under.argmax(1), np.nan).repeat(len(at)))
        alive.append(x[:, at].ravel())
        risk.append(r[:, at].ravel())
        share.append(x[:, at].ravel() / risk[-1])
    return {"alive": alive, "at_risk": risk, "fraction": share, "half_life": half}


def alpha(load, T):
    held = np.minimum(load("evict_step"), np.uint32(T)).sum(1, dtype=np.int64) - T * (T - 1) // 2
    return {"sparsity": 1 - held / (T * (T + 1) / 2)}


def last_use(load, T):
    held = (load("last_selected.top64") + np.uint16(1)).sum(1, dtype=np.int64)  # never: 0
    return {"sparsity": 1 - held / (T * (T + 1) / 2)}


def geometric(x, T):
    n = T - np.arange(T)
    with np.errstate(invalid="ignore"):
        return np.where(x == 0, n, np.expm1(x * n) / np.expm1(x))


def beta(load, T):
    return {"sparsity": 1 - geometric(load("log_beta").astype(float), T).sum(1) / (T * (T + 1) / 2)}


def density(load, T):
    held = load("evict_step") > T
    starts = [-(-k * T // 20) for k in range(20)]
    count = with_sum(np.add.reduceat(held.view(np.uint8), starts, axis=1, dtype=np.int64))
    total = count.sum(1)
    place = with_sum((held @ born_of(T).astype(float))[:, None])[:, 0]
    return {"count": count.ravel(), "share": (count / total[:, None]).ravel(), "mean": (place / (total * T)).repeat(20)}


def held_over_time(end, T, births):
    gone = np.stack([np.bincount(row, minlength=T + 1)[:T] for row in end])
    return births.cumsum() - gone.cumsum(1)


def kv_size(load, T):
    e, i = load("evict_step"), born_of(T)
    P = int((load("tokens.role") == 0).argmin())
    end = np.minimum(e, np.uint32(T)).astype(np.int64)
    held = held_over_time(end, T, np.ones(T, np.int64))
    rows = [(e > T).sum(1), (e[:, :P] > P).sum(1), end.sum(1) - i.sum(), np.maximum(end - np.maximum(i, P), 0).sum(1)]
    all_held = held.sum(0)
    peak = np.append(held.max(1), all_held.max())
    step = np.append(held.argmax(1), all_held.argmax())
    return {"entries": np.column_stack([with_sum(np.column_stack(rows)), peak]).ravel(), "step": {"every": 5, "from": 4, "v": step}}


def occupancy(load, T):
    e, role = load("evict_step"), load("tokens.role")
    end = np.minimum(e, np.uint32(T))
    every = -(-T // 512)
    groups = [role >= 0, role == 0, role != 0]
    held = [held_over_time(end[:, g], T, g.astype(np.int64))[:, ::every] for g in groups]
    return {"entries": np.stack(held, 1).ravel()}


def eviction(load, T):
    e, reason, tie = load("evict_step"), load("evict_reason"), load("evict_tie")
    score, margin = load("evict_score"), load("evict_margin")
    gone = e != ALIVE
    age = np.where(gone, e - born_of(T), -1)
    ages = np.bincount(age[gone], minlength=T + 1)
    at = np.bincount(e[gone], minlength=T + 1)
    sums, n = ages.cumsum(), int(gone.sum())
    life = np.where(gone, age, T - born_of(T)).sum()
    reasons = np.bincount(reason.ravel(), minlength=6)
    meta = {"entries": e.size, "evicted": n, "mean_life": life / e.size, "steps_with_evictions": (at > 0).sum(),
            "most_in_a_step": at.max(), "step_of_most": at.argmax(), "evicted_budget": reasons[1], "evicted_window": reasons[2]}
    for key, q in (("least", 0), ("p25", .25), ("median", .5), ("p75", .75), ("most", 1)):
        meta["age_" + key] = np.searchsorted(sums, max(q * n, 1))
    return {"meta": meta, "evict_step": np.where(gone, e.astype(np.int64), -1).ravel(), "age": age.ravel(), "tie": tie.ravel(),
            "score": score.ravel(), "margin": margin.ravel()}


def retention(load, T):
    x = load("log_beta").astype(float)
    a = (load("last_selected.top64") + np.uint16(1)).reshape(L * H, G // H, T).max(1).astype(np.int64) - 1
    return {"log_beta": x.ravel(), "beta": np.exp(x).ravel(), "mean_retention": (geometric(x, T) / (T - np.arange(T))).ravel(),
            "last_use_age": a.ravel()}


def hazard(load, T):
    low = [-1, 0] + [1 << k for k in range(T.bit_length()) if 1 << k < T]
    high = np.array([0] + low[2:] + [2 * low[-1]])
    cut = np.arange(T - 1, -1, -1)
    out = {k: [] for k in ("at_risk", "events", "censored", "exposure", "survival")}
    for name in CRITERIA:
        a = (load("last_selected." + name) + np.uint16(1)).astype(np.int64)  # age + 1, never: 0
        die = a < cut + 1
        where = np.where(die, a, cut)
        end = with_sum(histograms(where, T))
        died = with_sum(np.stack([np.bincount(row[d], minlength=T + 1) for row, d in zip(where, die)]))
        risk = end[:, ::-1].cumsum(1)[:, ::-1]
        with np.errstate(invalid="ignore", divide="ignore"):
            S = np.cumprod((risk - died) / risk, 1)
        S[np.logical_or.accumulate((died == risk) & (risk > 0), 1)] = 0
        S = np.concatenate([np.ones((len(S), 1)), S], 1)
        at, to = np.array(low) + 1, np.minimum(high, T) + 1
        below = [np.concatenate([np.zeros((len(x), 1), x.dtype), x.cumsum(1)], 1) for x in (died, end - died, risk)]
        out["at_risk"].append(risk[:, at].ravel())
        for k, x in zip(("events", "censored", "exposure"), below):
            out[k].append((x[:, to] - x[:, at]).ravel())
        out["survival"].append(S[:, at].ravel())
    return out


def overlap(load, T):
    P = np.array([1] + list(range(5, 101, 5)))
    end = T // 16 * 16
    n = end - 512
    use = load("evict_step")[:, :n] >= T
    score = [load(f"window.{w}")[:, :n] for w in range(4)]
    both, last = np.zeros((2, L * H, 4, len(P)), np.int64)
    for h in range(L * H):
        m = int(use[h].sum())
        sizes = np.ceil(P * m / 100 - 1e-9).astype(int)
        level = []
        for s in score:
            x = s[h][use[h]][::-1]  # a stable sort then puts the larger position first
            at = np.empty(m, np.int64)
            at[np.argsort(-x, kind="stable")] = np.searchsorted(sizes, np.arange(m), side="right")
            level.append(at)
        for w, at in enumerate([*level[:3], np.minimum.reduce(level[:3])]):
            both[h, w] = np.bincount(np.maximum(at, level[3]), minlength=len(P) + 1)[:len(P)].cumsum()
            last[h, w] = np.bincount(level[3], minlength=len(P) + 1)[:len(P)].cumsum()
    return {"both": {"first": both.ravel()}, "last": {"first": last.ravel()}, "overlap": {"first": (both / last).ravel()}}


def dilution(load, T):
    useful, rest, size = load("useful.top64"), load("dilution.top64"), np.minimum(64, np.arange(1, T + 1)).astype(float)
    most = np.zeros(useful.shape)
    for k in range(16):
        np.maximum(most, (load(f"near.all.{k}") - size) * (math.exp(-0.5 * k) / size), out=most)
    bound = most / (1 + most)
    oracle = 1 - np.minimum(1, useful.astype(float) / load("shadow.oracle_mass"))
    out = {"dilution": rest.mean(1, dtype=float), "useful_mass": useful.mean(1, dtype=float), "bound": bound.mean(1),
           "dilution_oracle": oracle.mean(1)}
    return {k: np.append(v, v.mean()) for k, v in out.items()}


def intermittency(load, T):
    above = np.array([0] + [4 ** k for k in range(16) if 4 ** k < T])
    out = {k: [] for k in ("over", "tokens", "total", "defined", "q50", "q90", "q99", "most")}
    births = np.bincount(T - np.arange(T), minlength=T + 1)
    scale = np.array([1] * (L * G) + [L * G])
    for name in ("top64", "mass.95"):
        for family in ("n_selected", "n_returns", "longest_gap", "first_unselected"):
            v, exits = load(f"{family}.{name}"), family == "first_unselected"
            value = with_sum(histograms(v, T))
            beyond, asked = value, np.outer(scale, np.append(np.zeros(T, int), T))
            if exits:
                alive = [np.bincount(T - np.flatnonzero(row == NEVER), minlength=T + 1) for row in v]
                beyond, asked = value + with_sum(np.stack(alive)), np.outer(scale, births)
            n, sums, rows = scale * T, value.cumsum(1), len(above)
            over = beyond[:, ::-1].cumsum(1)[:, ::-1]
            out["over"].append(over[:, above + 1].ravel())
            out["tokens"].append(asked[:, ::-1].cumsum(1)[:, ::-1][:, above + 1].ravel() if exits else n.repeat(rows))
            out["total"].append((value @ np.arange(T + 1)).repeat(rows))
            out["defined"].append(sums[:, -1].repeat(rows))
            out["most"].append((T - (value[:, ::-1] > 0).argmax(1)).repeat(rows))
            for q in (50, 90, 99):
                at = [np.searchsorted(s, math.ceil(q / 100 * k)) for s, k in zip(sums, n)]
                out[f"q{q}"].append(np.where(np.array(at) > T, np.nan, at).repeat(rows))
    return out


def persistence(load, T):
    m, K = load("selected_at.top64"), (T - 1).bit_length()
    ends = [min(T - 32, T - (1 << k)) for k in range(K)]
    yes = with_sum(np.stack([(m[:, :e] >> k & 1).sum(1) for k, e in enumerate(ends)], 1).astype(np.int64))
    risk = np.array(ends)[None, :] * np.array([1] * (L * G) + [L * G])[:, None]
    return {"selected": yes.ravel(), "at_risk": risk.ravel(), "rate": (yes / risk).ravel()}


def regret(load, T):
    kept, oracle = load("shadow.kept_mass"), load("shadow.oracle_mass")
    out = {"kept_mass": kept.mean(1, dtype=float), "oracle_mass": oracle.mean(1, dtype=float)}
    out["regret"] = out["oracle_mass"] - out["kept_mass"]
    return {k: np.append(v, v.mean()) for k, v in out.items()}


STATISTICS = {
    "survival": ("survival", survival),
    "sparsity": ("sparsity", alpha),
    "sparsity last-use": ("sparsity --kind last-use", last_use),
    "sparsity beta": ("sparsity --kind beta", beta),
    "density": ("density", density),
    "kv-size": ("kv-size", kv_size),
    "occupancy": ("occupancy", occupancy),
    "eviction": ("eviction", eviction),
    "retention": ("retention", retention),
    "hazard": ("hazard", hazard),
    "overlap": ("overlap", overlap),
    "dilution": ("dilution --mean", dilution),
    "intermittency": ("intermittency", intermittency),
    "persistence": ("persistence", persistence),
    "regret": ("regret --mean", regret),
}


# ---- equal, and how fast

def compare(kvfate, words, trace, folder, mine):
    path = os.path.join(folder, "table.npz")
    subprocess.run([kvfate, *words, trace, "-o", path], check=True, stdout=subprocess.DEVNULL)
    if "meta" in mine:
        said = subprocess.run([kvfate, *words, trace, "-o", "-"], check=True, stdout=subprocess.PIPE).stdout
        meta = dict(x[2:].split(": ", 1) for x in said[:8192].decode("utf-8", "replace").split("\n") if x.startswith("# "))
        for key, v in mine.pop("meta").items():
            assert math.isclose(float(meta[key]), float(v), rel_tol=1e-12), (words, key, meta[key], v)
    with np.load(path) as table:
        for key, v in mine.items():
            theirs = table[key]
            if isinstance(v, dict) and "every" in v:
                theirs, v = theirs[v["from"]::v["every"]], v["v"]
            elif isinstance(v, dict):
                v = v["first"]
                theirs = theirs[:len(v)]
            v = np.concatenate(v) if isinstance(v, list) else np.asarray(v)
            same = np.array_equal(theirs, v) if theirs.dtype.kind == "i" else (
                theirs.shape == v.shape and np.allclose(theirs, v, rtol=1e-9, atol=1e-12, equal_nan=True))
            if not same:
                sys.exit(f"{' '.join(words)}: {key} differs from numpy's")
    os.remove(path)


def seconds(f):
    start = time.perf_counter()
    f()
    return time.perf_counter() - start


def main():
    a = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\n")[0])
    a.add_argument("kvfate", type=os.path.abspath)
    a.add_argument("write_kvf", type=os.path.abspath)
    a.add_argument("folder", type=os.path.abspath)
    a.add_argument("--tokens", type=int, default=16384)
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--only", type=lambda s: s.split(","), default=list(STATISTICS))
    a = a.parse_args()
    os.makedirs(a.folder, exist_ok=True)
    trace = write(a.write_kvf, a.folder, a.tokens)

    def npy(name):
        return np.load(os.path.join(a.folder, f"{a.tokens}.{name}.npy"))

    def npz(name):
        with np.load(os.path.join(a.folder, f"{a.tokens}.{name}.npz")) as f:
            return f["v"]

    print(f"{a.tokens} tokens, {L} layers, {G} query heads, {H} KV heads; trace of {os.path.getsize(trace) / 1e6:.0f} MB; "
          f"medians of {a.rounds}, ms")
    print(f"{'':18} {'kvfate':>8} {'numpy, npy':>12} {'numpy, npz':>12} {'ratios':>14}")
    for name in a.only:
        command, peer = STATISTICS[name]
        words = command.split()
        compare(a.kvfate, words, trace, a.folder, peer(npy, a.tokens))
        ways = (lambda: subprocess.run([a.kvfate, *words, trace], check=True, stdout=subprocess.DEVNULL),
                lambda: peer(npy, a.tokens), lambda: peer(npz, a.tokens))
        rounds = [[seconds(f) for f in ways] for _ in range(a.rounds)]
        own, plain, packed = (1000 * statistics.median(r) for r in zip(*rounds))
        print(f"{name:18} {own:8.1f} {plain:12.1f} {packed:12.1f} {plain / own:7.1f} {packed / own:6.1f}", flush=True)


if __name__ == "__main__":
    main()
