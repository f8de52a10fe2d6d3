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
numbers of the two must be equal: integers exactly, sums of reals within 1e-9 (tables with a row
per token, eviction and retention, on a trace of 1,024 tokens).  Prints medians in milliseconds.  numpy.
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


def each_and_sum(load, names, T, count):
    """count(row, T) of each row of each column, and of the column's heads together: a head at a time stays in the caches."""
    for name in names:
        rows = load(name)
        total = 0
        for row in rows:
            x = count(row, T)
            total = total + x
            yield x, 1
        yield total, len(rows)


def survival(load, T):
    alive, risk, half = [], [], []
    at, r = horizons(T), T - np.arange(T)
    for c, heads in each_and_sum(load, ["last_selected." + name for name in CRITERIA], T,
                                 lambda row, T: np.bincount(row + np.uint16(1), minlength=T + 1)[1:]):  # never: 0
        x = c[::-1].cumsum()[::-1]
        under = 2 * x < heads * r
        k = under.argmax()
        half.append(k if under[k] else np.nan)
        alive.append(x[at])
        risk.append(heads * r[at])
    alive, risk = np.concatenate(alive), np.concatenate(risk)
    return {"alive": alive, "at_risk": risk, "fraction": alive / risk, "half_life": np.repeat(half, len(at))}


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
    at, to = np.array(low) + 1, np.minimum(np.array([0] + low[2:] + [2 * low[-1]]), T) + 1
    cut = np.arange(T - 1, -1, -1)
    out = {k: [] for k in ("at_risk", "events", "censored", "exposure", "survival")}

    def ends(row, T):
        a = (row + np.uint16(1)).astype(np.int64)  # age + 1, never: 0
        die = a <= cut
        return np.stack([np.bincount(np.minimum(a, cut), minlength=T + 1), np.bincount(a[die], minlength=T + 1)])

    for (end, died), _ in each_and_sum(load, ["last_selected." + name for name in CRITERIA], T, ends):
        risk = end[::-1].cumsum()[::-1]
        with np.errstate(invalid="ignore", divide="ignore"):
            S = np.append(1, np.cumprod((risk - died) / risk))
        none = np.flatnonzero((died == risk) & (risk > 0))
        S[none[0] + 1 if len(none) else len(S):] = 0
        out["at_risk"].append(risk[at])
        for k, x in ("events", died), ("censored", end - died), ("exposure", risk):
            sums = np.append(0, x.cumsum())
            out[k].append(sums[to] - sums[at])
        out["survival"].append(S[at])
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
    useful, rest, most = load("useful.top64"), load("dilution.top64"), load("shadow.oracle_mass")
    near = [load(f"near.all.{k}") for k in range(16)]
    size = np.minimum(64, np.arange(1, T + 1)).astype(float)
    bound = np.empty(L * G)
    for h in range(L * G):  # a head at a time stays in the caches
        x = np.zeros(T)
        for k in range(16):
            np.maximum(x, math.exp(-0.5 * k) * (near[k][h] - size), out=x)
        x /= size
        bound[h] = (x / (1 + x)).mean()
    oracle = 1 - np.minimum(1, useful.astype(float) / most).mean(1)
    out = {"dilution": rest.mean(1, dtype=float), "useful_mass": useful.mean(1, dtype=float), "bound": bound,
           "dilution_oracle": oracle}
    return {k: np.append(v, v.mean()) for k, v in out.items()}


def intermittency(load, T):
    above = np.array([0] + [4 ** k for k in range(16) if 4 ** k < T])
    out = {k: [] for k in ("over", "tokens", "total", "defined", "q50", "q90", "q99", "most")}
    ages, births = np.arange(T + 1), np.bincount(T - np.arange(T), minlength=T + 1)

    def values(row, T):
        return np.stack([x := np.bincount(row, minlength=T + 1), x])

    def exits(row, T):
        value = np.bincount(row + np.uint16(1), minlength=T + 2)[1:]  # never: 0
        return np.stack([value, value + np.bincount(T - np.flatnonzero(row == NEVER), minlength=T + 1)])

    for name in ("top64", "mass.95"):
        for family in ("n_selected", "n_returns", "longest_gap", "first_unselected"):
            asked = births[::-1].cumsum()[::-1][above + 1] if family == "first_unselected" else np.full(len(above), T)
            for (value, beyond), heads in each_and_sum(load, [f"{family}.{name}"], T, exits if "first" in family else values):
                sums = value.cumsum()
                out["over"].append(beyond[::-1].cumsum()[::-1][above + 1])
                out["tokens"].append(heads * asked)
                out["total"].append(np.repeat(value @ ages, len(above)))
                out["defined"].append(np.repeat(sums[-1], len(above)))
                out["most"].append(np.repeat(np.flatnonzero(value)[-1], len(above)))
                for q in (50, 90, 99):
                    k = sums.searchsorted(math.ceil(q / 100 * heads * T))
                    out[f"q{q}"].append(np.repeat(k if k <= T else np.nan, len(above)))
    return out


def persistence(load, T):
    m, K = load("selected_at.top64"), (T - 1).bit_length()
    ends = [min(T - 32, T - (1 << k)) for k in range(K)]
    yes = with_sum(np.array([[np.count_nonzero(row[:e] & (1 << k)) for k, e in enumerate(ends)] for row in m]))
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
        with subprocess.Popen([kvfate, *words, trace, "-o", "-"], stdout=subprocess.PIPE) as p:
            said = p.stdout.read(8192).decode()  # the metadata come first; the rows are many
            p.kill()
        meta = dict(x[2:].split(": ", 1) for x in said.split("\n") if x.startswith("# "))
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


def of_process(argv):
    """Seconds of the clock and of the processor."""
    start = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
    _, status, used = os.wait4(pid, 0)
    if status:
        sys.exit(f"{' '.join(argv)} failed")
    return time.perf_counter() - start, used.ru_utime + used.ru_stime


def of_call(f, *argv):
    start, cpu = time.perf_counter(), time.process_time()
    f(*argv)
    return time.perf_counter() - start, time.process_time() - cpu


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
    small = write(a.write_kvf, a.folder, min(a.tokens, 1024))  # for tables with a row per token

    def npy(name, T=a.tokens):
        return np.load(os.path.join(a.folder, f"{T}.{name}.npy"))

    def npz(name):
        with np.load(os.path.join(a.folder, f"{a.tokens}.{name}.npz")) as f:
            return f["v"]

    print(f"{a.tokens} tokens, {L} layers, {G} query heads, {H} KV heads; trace of {os.path.getsize(trace) / 1e6:.0f} MB; "
          f"medians of {a.rounds}, ms: clock / processor")
    print(f"{'':18} {'kvfate':>15} {'numpy, npy':>15} {'numpy, npz':>15}  {'ratios of the clock':>10}")
    for name in a.only:
        command, peer = STATISTICS[name]
        words = command.split()
        T = min(a.tokens, 1024) if name in ("eviction", "retention") else a.tokens
        compare(a.kvfate, words, small if T < a.tokens else trace, a.folder, peer(lambda n: npy(n, T), T))
        rounds = [[of_process([a.kvfate, *words, trace]), of_call(peer, npy, a.tokens), of_call(peer, npz, a.tokens)]
                  for _ in range(a.rounds)]
        ms = [[1000 * statistics.median(x) for x in zip(*way)] for way in zip(*rounds)]
        print(f"{name:18} " + " ".join(f"{wall:7.1f} /{cpu:6.1f}" for wall, cpu in ms)
              + "  " + " ".join(f"{wall / ms[0][0]:6.1f}" for wall, _ in ms[1:]), flush=True)


if __name__ == "__main__":
    main()
