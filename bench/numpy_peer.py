#!/usr/bin/env python3
"""Compute a statistic of a trace with numpy, as a user would, from the trace itself or from other arrays of its
columns.

usage: bench/numpy_peer.py STATISTIC X.kvf

It reads the index of the trace and decodes the needed columns (module zstandard), without checksums.  The shape is
that of the default model: 30 layers, 9 query heads, 3 KV heads; all columns cover all steps.  It prints the name and
size of each result, like a program that shows them.  It needs numpy and zstandard.
"""
import math
import mmap
import struct
import sys

import numpy as np

L, H, G = 30, 3, 9
ALIVE, NEVER = 0xffffffff, 65535
CRITERIA = ("top64", "top128", "top256", "top512", "mass.90", "mass.95", "mass.99")
DTYPES = {1: "<u1", 2: "<u2", 3: "<u4", 4: "<i4", 5: "<f4", 6: "<f8", 7: "<u8"}
INDEX = np.dtype([("column", "<u4"), ("layer", "<u2"), ("head0", "<u2"), ("t0", "<u4"), ("epoch", "<u4"), ("n", "<u4"), ("n_heads", "<u2"),
                  ("type", "u1"), ("codec", "u1"), ("offset", "<u8"), ("stored_len", "<u8"), ("raw_len", "<u8"), ("hash", "<u8")])  # docs/reference/format.md, section 8
SCHEMA, COLUMN, COMMIT = 2, 4, 6


class Trace:
    def __init__(self, path):
        import zstandard
        self.decompress = zstandard.ZstdDecompressor().decompress
        with open(path, "rb") as f:
            self.bytes = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        index, n = struct.unpack_from("<QQ", self.bytes, len(self.bytes) - 64 + 8)
        self.index = np.frombuffer(self.bytes, INDEX, n, index + 88)
        commits = self.index[self.index["type"] == COMMIT]
        self.epoch, self.T = max(struct.unpack_from("<II", self.bytes, at + 88) for at in commits["offset"].tolist())
        at = int(self.index[self.index["type"] == SCHEMA]["offset"][0]) + 88
        at += 4 + 4 * struct.unpack_from("<I", self.bytes, at)[0]
        self.columns = {}
        for k in range(struct.unpack_from("<I", self.bytes, at)[0]):
            name, dtype, space, _, flags = struct.unpack_from("<48sBBBB", self.bytes, at + 4 + 68 * k)
            self.columns[name.split(b"\0")[0].decode()] = k, np.dtype(DTYPES[dtype]), space, flags & 1

    def load(self, name):
        """Return [heads of all layers][T], or [T] of the run."""
        number, dtype, space, snapshot = self.columns[name]
        heads, layers, w = (1, H, G)[space], L if space else 1, dtype.itemsize
        out = np.empty((layers * heads, self.T), dtype)
        x = self.index
        mine = x[(x["type"] == COLUMN) & (x["column"] == number) & (x["epoch"] == (self.epoch if snapshot else 0))]
        for column, layer, head0, t0, _, n, n_heads, _, codec, offset, stored, raw, _ in mine.tolist():
            to = out[layer * heads + head0:layer * heads + head0 + n_heads, t0:t0 + n]
            data = self.bytes[offset + 88:offset + 88 + stored]
            if codec == 2:
                planes = np.frombuffer(self.decompress(data, max_output_size=raw), np.uint8).reshape(w, n_heads, n)
                if to.flags.c_contiguous:
                    to.view(np.uint8).reshape(n_heads, n, w)[:] = planes.transpose(1, 2, 0)
                else:
                    to[:] = np.ascontiguousarray(planes.transpose(1, 2, 0)).view(dtype)[:, :, 0]
            else:
                to[:] = np.frombuffer(data, dtype)[0] if codec == 1 else np.frombuffer(data, dtype).reshape(n_heads, n)
        return out if space else out[0]


# ---- the statistics: each receives `load`, a function from a column's name to its array, and returns the compared
# values

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
    """Yield count(row, T) of each row of each column, and their sum over the column's heads.  One head at a time stays
    in the CPU caches.
    """
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
    for h in range(L * G):  # one head at a time stays in the CPU caches
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
    "sparsity": ("size --as sparsity", alpha),
    "sparsity last-use": ("size --as sparsity --kind last-use", last_use),
    "sparsity beta": ("size --as sparsity --kind beta", beta),
    "density": ("where", density),
    "kv-size": ("size --as kv-size", kv_size),
    "occupancy": ("size", occupancy),
    "eviction": ("eviction", eviction),
    "retention": ("retention", retention),
    "hazard": ("survival --as hazard", hazard),
    "overlap": ("overlap", overlap),
    "dilution": ("dilution --mean", dilution),
    "intermittency": ("survival --as intermittency", intermittency),
    "persistence": ("survival --as persistence", persistence),
    "regret": ("missed --as regret --mean", regret),
}


def main():
    trace = Trace(sys.argv[2])
    for key, v in STATISTICS[sys.argv[1]][1](trace.load, trace.T).items():
        print(key, len(v))


if __name__ == "__main__":
    main()
