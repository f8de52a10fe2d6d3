#!/usr/bin/env python3
"""Check kvfate corpus and merge against numpy: sums over documents, their bootstrap with weights computed here,
differences of paired documents, and equal bytes for any division of the work.
"""
import math
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from decimal import Decimal, getcontext
from pathlib import Path

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, real, words_of  # noqa: E402
from maker import AGE, ALIVE, SNAPSHOT, Column, make, table

kvfate, write_kvf = map(os.path.abspath, sys.argv[1:3])
L, H, G, REPLICATES, SEED = 2, 2, 4, 60, 7
M64 = (1 << 64) - 1


def run(*argv, code=0):
    done = subprocess.run([kvfate, *map(str, argv)], capture_output=True, text=True)
    check(f"exit of {argv[:2]}", done.returncode == code, argv, done.returncode, done.stderr[-400:])
    return done


def refused(name, code, argv, *words):
    done = subprocess.run([kvfate, *map(str, argv)], capture_output=True, text=True)
    last = done.stderr.strip().split("\n")[-1]
    check(name, done.returncode == code and not done.stdout and all(w in last for w in words), done.returncode, done.stderr, done.stdout[:200])


def same(a, b, ends=()):
    """Return true if the values are equal up to the order of sums.  ends: places of interval ends (Student's t is good to 1e-8)."""
    a, b = real(a), real(b)
    most = np.where(np.isin(np.arange(len(a)), ends), 1e-8, 1e-12)
    return a.shape == b.shape and bool(((np.abs(a - b) <= most) | np.isnan(a) & np.isnan(b)).all())


# ---- weights and documents as docs/reference/corpus.md defines them

def mix(x):
    z = (x + 0x9e3779b97f4a7c15) & M64
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 & M64
    z = (z ^ z >> 27) * 0x94d049bb133111eb & M64
    return z ^ z >> 31


def hash4(seed, a, b, c):
    return mix(mix(mix(mix(seed) ^ a) ^ b) ^ c)


def poisson_limits():
    getcontext().prec = 50
    term, below, limits = Decimal(-1).exp(), Decimal(0), []
    for k in range(1, 21):
        below += term
        limits.append(int(below * 2**64))
        term /= k
    return limits


LIMITS = poisson_limits()


def weights(document):
    return np.array([sum(hash4(SEED, document, k, 0) >= limit for limit in LIMITS) for k in range(REPLICATES)], float)


def prompt_document(ids):
    h = hash4(4, len(ids), 0, 0)
    for i in ids:
        h = hash4(h, int(i) & 0xffffffff, 0, 0)
    return h


STUDENT = {3: 3.182446305284263, 4: 2.776445105197793, 5: 2.570581835636197, 6: 2.446911848791681, 7: 2.364624251010299, 8: 2.306004135033371,
           9: 2.262157162854099}  # quantile 0.975 for degrees of freedom, from tables


def interval(values, n=10):
    """Return the expanded percentiles of 10 documents, from the values of the replicates."""
    values, tail = values[~np.isnan(values)], math.erfc(STUDENT[n - 1] * math.sqrt(n / (n - 1) / 2)) / 2
    return np.quantile(values, [tail, 1 - tail]) if len(values) else (np.nan, np.nan)


def jackknife(left_out):
    """Return the radius, from the value without each document."""
    n, x = len(left_out), np.asarray(left_out, float)
    return STUDENT[n - 1] * math.sqrt((n - 1) / n * ((x - x.mean())**2).sum())


def ends_of(value, left_out, replicates, floor=-np.inf):
    """Return no interval for fewer than 4 documents, Student's t for fewer than 10."""
    if len(left_out) < 4:
        return np.nan, np.nan
    if len(left_out) < 10:
        return max(floor, value - jackknife(left_out)), value + jackknife(left_out)
    return interval(replicates)


# ---- a corpus of synthetic traces: 12 traces of 10 prompts

class Trace:
    def __init__(self, rng, prompt, T, document=None):
        self.T, self.prompt, self.document = T, prompt, document
        self.ids = np.concatenate([prompt, rng.integers(0, 999, T)])[:T]
        self.role = (np.arange(T) >= len(prompt)).astype(float)
        ages = lambda: np.where(rng.random((L, G, T)) < 0.1, np.nan, np.minimum(rng.geometric(0.1, (L, G, T)) - 1, T - 1 - np.arange(T)))
        self.last = {"top64": ages(), "mass.90": ages()}
        self.evict = np.where(rng.random((L, H, T)) < 0.3, ALIVE, np.minimum(np.arange(T) + 1 + rng.integers(0, 20, (L, H, T)), T))
        self.kept = rng.uniform(0, 1, (L, G, T)).astype(np.float32).astype(float)
        self.oracle = np.maximum(self.kept, rng.uniform(0, 1, (L, G, T)).astype(np.float32).astype(float))
        self.kept[:, 1, 3::5] = np.nan

    def write(self, path):
        columns = [Column("tokens.id", "i32", "run", self.ids), Column("tokens.role", "u8", "run", self.role),
                   Column("evict_step", "u32", "kv", self.evict),
                   Column("shadow.kept_mass", "f32", "query", self.kept, "step"), Column("shadow.oracle_mass", "f32", "query", self.oracle, "step")]
        columns += [Column("last_selected." + c, "u16", "query", v, flags=SNAPSHOT | AGE) for c, v in self.last.items()]
        columns += [Column("evict_" + c, d, "kv", np.zeros((L, H, self.T))) for c, d in (("reason", "u8"), ("score", "f32"), ("margin", "f32"), ("tie", "u8"))]
        run_header = {"prompt_tokens": len(self.prompt)}
        if self.document is not None:
            run_header["document"] = self.document
        make(write_kvf, path, columns, (L, H, G, self.T), {"run": run_header, "method": {"name": "made-up", "budget": 8}})
        return path


def corpus_traces():
    rng = np.random.default_rng(11)
    prompts = [rng.integers(0, 999, rng.integers(1, 9)) for _ in range(9)]
    traces = [Trace(rng, p, int(rng.integers(len(p) + 1, 60))) for p in prompts]
    traces.insert(4, Trace(rng, prompts[2], 33))      # a second rollout
    traces.append(Trace(rng, prompts[2], 70))         # and a third
    traces.append(Trace(rng, prompts[0], 25, "essay"))  # the header names another document
    return traces


def clusters(traces):
    """Return {hash of the document: its traces}."""
    found = {}
    for t in traces:
        d = prompt_document(t.prompt) if t.document is None else hash_text(t.document)
        found.setdefault(d, []).append(t)
    return found


def hash_text(text):
    data = text.encode()
    h = mix(1 ^ len(data))
    for at in range(0, len(data), 8):
        h = mix(h ^ int.from_bytes(data[at:at + 8].ljust(8, b"\0"), "little"))
    return h


# ---- brute force

def grid(T):
    """Return about ten ages per decade below T."""
    list_, x = [0], 1.0
    while x < T and len(list_) < 256:
        n = int(x + 0.5)
        if n < T and n != list_[-1]:
            list_.append(n)
        x *= 1.2589254117941673
    return list_


def check_survival(files, traces):
    data, meta = table(kvfate, "corpus", "survival", *files, "--criterion", "top64,mass.90", "--replicates", REPLICATES, "--seed", SEED, "--intervals", "all", "--at-least", "1")
    found = clusters(traces)
    check("documents", meta["documents"] == "10" and meta["traces"] == "12" and len(found) == 10, meta)
    check("T", meta["T"] == str(max(t.T for t in traces)) and meta["T_least"] == str(min(t.T for t in traces)))
    heads = [(f"L{l}H{g}", l, g) for l in range(L) for g in range(G)] + [("all", -1, -1)]
    rows = [(c, *h, n) for h in heads for c in ("top64", "mass.90") for n in grid(max(t.T for t in traces))]
    check("rows in order", rows == list(zip(data["criterion"], data["head"], data["layer"], data["index"], data["horizon"])))
    w = {d: weights(d) for d in found}
    for i, (c, head, l, g, n) in enumerate(rows):
        alive, risk, in_, each = 0, 0, 0, []
        wa, wr = np.zeros(REPLICATES), np.zeros(REPLICATES)
        for d, list_ in found.items():
            a = r = 0
            for t in list_:
                v = t.last[c] if head == "all" else t.last[c][l, g]
                a += int((v >= n).sum())
                r += max(0, t.T - n) * (L * G if head == "all" else 1)
            alive, risk, in_, each = alive + a, risk + r, in_ + (r > 0), each + [(a, r)] * (r > 0)
            wa, wr = wa + w[d] * a, wr + w[d] * r
        with np.errstate(invalid="ignore", divide="ignore"):
            low, high = ends_of(alive / risk, [(alive - a) / (risk - r) for a, r in each] if in_ > 3 else [], wa / wr, 0)
        got = [data[k][i] for k in ("alive", "at_risk", "documents")]
        check("survival counts", got == [alive, risk, in_], rows[i], got, alive, risk, in_)
        check("survival values", same([data[k][i] for k in ("fraction", "low", "high")], [alive / risk, low, high], (1, 2)), rows[i], in_, low, high, data["low"][i], data["high"][i])


def steps_of(trace, c, head, ages, grace, at_least):
    """Return (events, exposure) from each age to the next, as far as at_least tokens could show them."""
    out, before = np.zeros((len(ages), 2), np.int64), -1
    cut = trace.T - 1 - np.arange(trace.T) - grace
    last = np.where(np.isnan(trace.last[c]), -1, trace.last[c]).reshape(L * G, -1)
    last = last if head == "all" else last[[head[0] * G + head[1]]]
    last, known = last[:, cut >= 0], cut[cut >= 0]
    for k, n in enumerate(ages):
        if (known >= n).sum() < at_least:
            break
        for x in range(before, n):
            at = (last >= x) & (known > x)
            out[k] += [(at & (last == x)).sum(), at.sum()]
        before = n
    return out


def check_curves(files, traces, horizons=None):
    """Check a survival curve of events and steps at risk summed over documents, its half-life, and their intervals over
    documents.
    """
    grace, at_least = 3, 4
    more = ["--horizons", ",".join(map(str, horizons))] if horizons else []
    data, _ = table(kvfate, "corpus", "survival", *files, "--criterion", "mass.90", "--grace", grace, "--at-least", at_least, "--replicates", REPLICATES, "--seed", SEED, *more)
    found, ages = clusters(traces), horizons or grid(max(t.T for t in traces))
    steps, reached = np.diff([-1] + list(ages)), 0
    for head in ["all", (0, 0), (1, G - 1)]:
        sums = {d: np.sum([steps_of(t, "mass.90", head, ages, grace, at_least) for t in list_], axis=0) for d, list_ in found.items()}
        w = {d: weights(d) for d in found}
        pooled = np.sum(list(sums.values()), axis=0)[None]
        again = np.sum([w[d][:, None, None] * x for d, x in sums.items()], axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            curves = [np.cumprod((1 - x[..., 0] / x[..., 1])**steps, axis=1) for x in (pooled, again)]
        for S in curves:
            S[np.maximum.accumulate(S == 0, axis=1)] = 0  # all dead: then no token at risk is needed
        docs = np.sum([x[:, 1] > 0 for x in sums.values()], axis=0)
        at = [k for k, h in enumerate(data["head"]) if h == (head if head == "all" else f"L{head[0]}H{head[1]}")]
        check("curve: ages", [data["horizon"][k] for k in at] == list(ages))
        bands = np.full((len(ages), 2), np.nan)
        for i, k in enumerate(at):
            low, high = bands[i] = band(curves[0][0], curves[1], docs, i) if head == "all" else (np.nan, np.nan)
            got = [data[c][k] for c in ("survival", "survival_low", "survival_high", "events", "exposure")]
            check("curve: survival", same(got, [curves[0][0, i], low, high, *pooled[0, i]], (1, 2)), head, ages[i], got, curves[0][0, i], low, high)
        half, (low, high) = half_life(ages, curves[0][0]), [half_life(ages, S) for S in bands.T]
        over = -1 if np.isfinite(half) else max(n for n, s in zip(ages, curves[0][0]) if not np.isnan(s))
        want = [x if np.isfinite(x) else np.nan for x in (half, low, high)] + [over]
        got = [data[c][at[0]] for c in ("half_life", "half_life_low", "half_life_high", "half_life_over")]
        check("curve: half-life", same(got, want, (1, 2)), head, got, want)
        reached += np.isfinite(half)
    return reached


def band(S, again, docs, i):
    """Return the interval of a curve that began with 10 documents: from the replicates, or from their spread on the
    scale log(-log S).
    """
    if docs[i] < 4 or np.isnan(S[i]):
        return np.nan, np.nan
    if docs[i] >= 10:
        return interval(again[:, i])
    x = again[:, i][(again[:, i] > 0) & (again[:, i] < 1)]
    if not 0 < S[i] < 1 or len(x) < 2:
        return np.nan, np.nan
    n, g = docs[i], np.log(-np.log(S[i]))
    radius = STUDENT[n - 1] * math.sqrt(np.log(-np.log(x)).var(ddof=1) * n / (n - 1))
    return np.exp(-np.exp(g + radius)), np.exp(-np.exp(g - radius))


def half_life(ages, S):
    """Return the first integer age below one half of a curve that falls by equal factors between ages; infinite if
    none.
    """
    x0, s0 = -1, 1.
    for x, s in zip(ages, S):
        if s < .5:
            below = [n for n in range(x0 + 1, x + 1) if s == 0 or s0 * (s / s0)**((n - x0) / (x - x0)) < .5]
            return float(below[0])
        x0, s0 = x, s
    return np.inf


def check_means(files, traces):
    """Check means: of the rollouts of a document, then of documents; single tables come from the analysis itself."""
    found = clusters(traces)
    path_of = dict(zip(map(id, traces), files))
    for name, more, keys, value in (("sparsity", [], ("kind", "head"), "sparsity"), ("regret", ["--mean"], ("head", "step"), "regret"),
                                    ("regret", ["--every", "7"], ("head", "step"), "kept_mass"), ("occupancy", ["--every", "5"], ("class", "step", "head"), "entries"),
                                    ("eviction", [], ("head", "reason"), "age")):
        data, _ = table(kvfate, "corpus", *words_of(name), *files, *more, "--replicates", REPLICATES, "--seed", SEED)
        cells = {}
        for d, list_ in found.items():
            for t in list_:
                one, _ = table(kvfate, *words_of(name), path_of[id(t)], *more)
                for key, v in zip(zip(*(one[k] for k in keys)), one[value]):
                    if v is not None:
                        cells.setdefault(key, {}).setdefault(d, []).append(v)
        first = value in ("sparsity", "regret", "entries", "age")
        low, high, n = ("low", "high", "documents") if first else (value + "_low", value + "_high", value + "_documents")
        got = dict(zip(zip(*(data[k] for k in keys)), zip(data[value], data[low], data[high], data[n])))
        check(name + ": rows", set(cells) <= set(got) and all(got[k][3] == 0 for k in set(got) - set(cells)), len(got), len(cells))
        has_all = name == "regret" or name == "occupancy" and "all" in data["head"]
        for key, by_document in cells.items():
            x = np.array([np.mean(v) for v in by_document.values()])
            w = np.array([weights(d) for d in by_document])
            with np.errstate(invalid="ignore", divide="ignore"):
                left_out = [np.delete(x, k).mean() for k in range(len(x))] if len(x) > 3 and (not has_all or "all" in (key[0], key[-1])) else []
                ends = ends_of(x.mean(), left_out, (w * x[:, None]).sum(0) / w.sum(0))
            check(f"{name} {more} {value}", same(got[key], [x.mean(), *ends, len(x)], (1, 2)), key, got[key], x.mean(), ends)


def sign_flips(x):
    signs = 1 - 2 * (np.arange(2**len(x))[:, None] >> np.arange(len(x)) & 1)
    return np.mean(np.abs(signs @ x) >= abs(x.sum()) - 1e-12 * np.abs(x).sum())


def benjamini_hochberg(p):
    """Return q by the definition: the lowest level at which p is rejected."""
    ranks = np.array([(p <= v).sum() for v in p])
    return np.array([min(1, min((p * len(p) / ranks)[p >= v])) for v in p])


def check_few(files, traces):
    """Check curves of few documents: leave-one-out on the scale log(-log S); no interval for fewer than 4."""
    alone = [(f, t) for f, t in zip(files, traces) if len(t.prompt) and len(clusters(traces)[prompt_document(t.prompt) if t.document is None else hash_text(t.document)]) == 1]
    ages, used = list(range(0, 12)), 0
    for n in (2, 3, 4, 6):
        some = alone[:n]
        data, _ = table(kvfate, "corpus", "survival", *(f for f, _ in some), "--criterion", "mass.90", "--grace", 3, "--at-least", 1, "--horizons", ",".join(map(str, ages)))
        at = [k for k, h in enumerate(data["head"]) if h == "all"]
        counts = np.array([steps_of(t, "mass.90", "all", ages, 3, 1) for _, t in some])
        docs, ends = (counts[..., 1] > 0).sum(0), np.full((len(ages), 2), np.nan)
        chain = lambda c: np.cumprod(1 - c.sum(0)[:, 0] / c.sum(0)[:, 1])
        with np.errstate(invalid="ignore", divide="ignore"):
            S, left_out = chain(counts), np.array([chain(np.delete(counts, k, 0)) for k in range(n)])
        for i, k in enumerate(at):
            if docs[i] >= 4 and 0 < S[i] < 1 and ((0 < left_out[:, i]) & (left_out[:, i] < 1)).all():
                g, radius = np.log(-np.log(S[i])), jackknife(np.log(-np.log(left_out[:, i])))
                ends[i], used = np.exp(-np.exp([g + radius, g - radius])), used + 1
            got = [data[c][k] for c in ("survival", "survival_low", "survival_high", "survival_documents")] if "survival_documents" in data else None
            check(f"{n} documents: survival", got and same(got, [S[i], *ends[i], docs[i]], (1, 2)), ages[i], got, S[i], ends[i])
        want = [x if np.isfinite(x) else np.nan for x in (half_life(ages, e) for e in (S, *ends.T))]
        got = [data[c][at[0]] for c in ("half_life", "half_life_low", "half_life_high")]
        check(f"{n} documents: half-life", same(got, want, (1, 2)) and (n > 3 or all(np.isnan(want[1:]))), got, want)
    check("few documents with an interval", used > 10, used)


def check_lengths(folder):
    """Check texts of different lengths: one set of steps for all, fewer documents at later steps, and chained hazards."""
    rng, files = np.random.default_rng(31), []
    os.makedirs(os.path.join(folder, "lengths"))
    for k, T in enumerate((60, 60, 601, 1100)):
        t = Trace(rng, np.array([k, 1, 2]), T)
        risk = .05 if T == 60 else .005
        t.last["top64"] = np.minimum(rng.geometric(risk, (L, G, T)) - 1., T - 1 - np.arange(T))
        files.append(t.write(os.path.join(folder, "lengths", f"{k}.kvf")))
    for name in ("regret", "occupancy"):
        data, meta = table(kvfate, "corpus", *words_of(name), *files)
        pooled = [i for i, h in enumerate(data["head"]) if h == "all"] or range(len(data["head"]))
        n = {data["step"][i]: data["documents"][i] for i in pooled}
        want = {t: sum(T > t for T in (60, 60, 601, 1100)) for t in range(0, 1100, 3)}
        check(f"{name}: every third step of 1100, with its documents", meta["every"] == "3" and n == want and "every" not in meta.get("differ", ""), meta, n)
    data, _ = table(kvfate, "corpus", "survival", "--as", "hazard", *files, "--criterion", "top64", "--grace", 0)
    at = [k for k, h in enumerate(data["head"]) if h == "all"]
    S, documents = ([data[c][k] for k in at] for c in ("survival", "documents"))
    pooled, before = {}, 1.
    for k in at:
        check("hazard: chained", data["survival"][k] is not None and abs(data["survival"][k] - before) < 1e-12, data["low"][k], data["survival"][k], before)
        before *= (1 - data["events"][k] / data["exposure"][k])**(data["high"][k] - data["low"][k])
    check("hazard: survival never rises", all(a >= b for a, b in zip(S, S[1:])) and documents[0] == 4 and documents[-1] == 1, S, documents)
    _, meta = table(kvfate, "corpus", "survival", *files, "--criterion", "top64")
    check("grace and horizon of means of the longest text", meta["grace"] == "64" and meta["mean_to"] == "256", meta)
    said = run("corpus", "missed", "--as", "regret", *files, "-o", os.path.join(folder, "regret.svg"))
    with open(os.path.join(folder, "regret.svg")) as f:
        check("the figure says where documents drop out", "pale: fewer than 4 documents, 1 at the end" in f.read())
    check("so does a note", "have 60 to 1100 tokens" in said.stderr and "need" not in said.stderr, said.stderr)


def check_against(files, traces, folder):
    """Check two corpora document by document: survival of the query heads."""
    rng = np.random.default_rng(23)
    os.makedirs(os.path.join(folder, "others"))
    found = clusters(traces)
    partners = [t for k, t in enumerate(traces) if k not in (1, 5)]
    others = [Trace(rng, t.prompt, t.T + 3, t.document) for t in partners] + [Trace(rng, np.array([4, 4, 4]), 20)]
    for t in others[::2]:  # a head that differs
        t.last["top64"][1, 2] = np.minimum(2 * t.last["top64"][1, 2], t.T - 1 - np.arange(t.T))
    for i, t in enumerate(others):
        t.write(os.path.join(folder, "others", f"{i}.kvf"))
    second = clusters(others)
    both = sorted(d for d in found if d in second)
    argv = ["corpus", "survival", *files, "--against", os.path.join(folder, "others"), "--criterion", "top64", "--replicates", REPLICATES, "--seed", SEED, "--intervals", "all"]
    data, meta = table(kvfate, *argv)
    check("pairs", meta["documents"] == str(len(both)) and 8 <= len(both) <= 10 and meta["sign_patterns"] == str(2**len(both)), meta, len(both))
    w, family = np.array([weights(d) for d in both]), {}
    for i, (head, l, g, n) in enumerate(zip(data["head"], data["layer"], data["index"], data["horizon"])):
        def share(list_):
            v = [(t.last["top64"] if l < 0 else t.last["top64"][l, g]) for t in list_]
            risk = sum(max(0, t.T - n) for t in list_) * (L * G if l < 0 else 1)
            return sum((x >= n).sum() for x in v) / risk if risk else np.nan
        a, b = np.array([[share(c[d]) for d in both] for c in (found, second)])
        ok = ~np.isnan(a - b)
        x = (a - b)[ok]
        with np.errstate(invalid="ignore", divide="ignore"):
            ends = ends_of(x.mean() if len(x) else 0, [np.delete(x, k).mean() for k in range(len(x))] if len(x) > 3 else [],
                           (w[ok] * x[:, None]).sum(0) / w[ok].sum(0))
        want = [a[ok].mean(), b[ok].mean(), x.mean(), *ends, sign_flips(x), len(x)] if len(x) else [np.nan] * 6 + [0]
        got = [data[k][i] for k in ("first", "second", "difference", "low", "high", "p", "documents")]
        check("difference", same(got, want, (3, 4)), head, n, got, want)
        family.setdefault((head == "all", n), []).append(i)
    for rows in family.values():
        p = real([data["p"][i] for i in rows])
        q = np.full(len(p), np.nan)
        q[~np.isnan(p)] = benjamini_hochberg(p[~np.isnan(p)]) if (~np.isnan(p)).any() else []
        check("q over the heads", same([data["q"][i] for i in rows], q))
    check("families", len(family) == 2 * len(set(data["horizon"])))
    low, found_ = ((real(data[k]) <= .05).sum() for k in "pq")
    said = run(*argv).stdout
    check("said", f" of {len(both)} documents in both: {len(data['p'])} rows, {low} with p <= 0.05, {found_} with q <= 0.05\n" in said and low, said, low, found_)
    one, two = (run(*argv, "-t", t, "-o", "-").stdout for t in (1, 3))
    check("differences on threads", one == two and len(one) > 1000)
    same_, _ = table(kvfate, "corpus", "missed", "--as", "regret", *files, "--mean", "--against", os.path.dirname(files[0]))
    check("a corpus against itself", set(same_["difference"]) == {0} and set(same_["p"]) == {1} and same_["head"] == ["all"], same_)
    refused("no common document", 1, ["corpus", "survival", files[0], "--against", os.path.join(folder, "others", f"{len(others) - 1}.kvf")], "share no document")
    for more, word in ((["--state", "x"], "--state"), (["--shard", "1/2"], "--shard"), (["-o", "x.png"], "figure")):
        refused(more[0] + " with --against", 2, ["corpus", "survival", files[0], "--against", files[0], *more], "--against", word)


def check_bytes(files, folder):
    """Check equal bytes for any division of the work."""
    def path(name):
        return os.path.join(folder, name)

    def bytes_of(name):
        return Path(path(name)).read_bytes()

    options = ["--criterion", "top64", "--replicates", "30"]
    run("corpus", "survival", *files, *options, "-o", path("whole.tsv"), "--state", path("whole.state"), "-t", 1)
    for n in (2, 5):
        run("corpus", "survival", *files[::-1], *options, "-o", path("t.tsv"), "--state", path(f"t{n}.state"), "-t", n)
        check(f"{n} threads, another order", bytes_of("t.tsv") == bytes_of("whole.tsv") and bytes_of(f"t{n}.state") == bytes_of("whole.state"))
    Path(path("list")).write_text("# all\n\n" + "\n".join(files) + "\n")
    run("corpus", "survival", os.path.dirname(files[0]), *options, "-o", path("f.tsv"))
    run("corpus", "survival", "@" + path("list"), *options, "-o", path("l.tsv"))
    check("a folder and a list", bytes_of("f.tsv") == bytes_of("l.tsv") == bytes_of("whole.tsv"))
    shards = [path(f"{i}.state") for i in (1, 2, 3)]
    for i in (1, 2, 3):
        run("corpus", "survival", *files, *options, "--shard", f"{i}/3", "--state", shards[i - 1])
    for order in (shards, shards[::-1]):
        run("corpus", "merge", *order, "-o", path("m.tsv"), "--state", path("m.state"))
        check("three shards merged", bytes_of("m.tsv") == bytes_of("whole.tsv") and bytes_of("m.state") == bytes_of("whole.state"))
    run("corpus", "survival", *files[:5], *options, "--state", path("half.state"))
    again = run("corpus", "survival", *files, *options, "-o", path("again.tsv"), "--state", path("whole.state"))
    check("nothing left to do", bytes_of("again.tsv") == bytes_of("whole.tsv"), again.stderr)
    check("without replicates", "\tnan\tnan\t" in run("corpus", "survival", files[0], "--criterion", "top64", "--replicates", 0, "-o", "-").stdout)

    refused("other traces", 1, ["corpus", "survival", *files, *options, "--state", path("half.state")], "half.state", "other traces")
    refused("other arguments", 1, ["corpus", "survival", *files, "--criterion", "mass.90", "--replicates", 30, "--state", path("whole.state")], "whole.state", "criterion", "mass.90", "top64")
    refused("another seed", 1, ["corpus", "survival", *files, *options, "--seed", 1, "--state", path("whole.state")], "seed=0, here seed=1")
    refused("merged with itself", 1, ["corpus", "merge", shards[0], path("whole.state")], "the document", "in two of the files")
    run("corpus", "survival", *files, "--criterion", "mass.90", "--replicates", 30, "--state", path("other.state"))
    refused("merged with other arguments", 1, ["corpus", "merge", shards[0], path("other.state")], "other.state", "criterion")
    good = bytes_of("whole.state")
    for name, bad, word in (("cut", good[:-9], "checksum"), ("flipped", good[:700] + bytes([good[700] ^ 1]) + good[701:], "checksum"), ("empty", b"", "not the state"),
                            ("newer", good[:8] + struct.pack("<I", 9) + good[12:], "another kvfate"), ("foreign", b"# text\n" * 20, "not the state")):
        Path(path(name)).write_bytes(bad)
        refused(name, 1, ["corpus", "merge", path(name)], name, word)
        refused(name, 1, ["corpus", "survival", *files, *options, "--state", path(name)], name, word)
        check(name + ": left alone", bytes_of(name) == bad)
    return bytes_of("whole.tsv")


def check_bad(files, folder, whole):
    def path(name):
        return os.path.join(folder, name)

    for name, data in (("torn.kvf", b"\x89KVF\r\n\x1a\n"), ("text.kvf", b"hello\n")):
        Path(path(name)).write_bytes(data)
    anonymous = make(write_kvf, path("anonymous.kvf"), [], (L, H, G, 3))
    bare = make(write_kvf, path("bare.kvf"), [Column("tokens.id", "i32", "run", np.arange(5))], (L, H, G, 5))
    bad = [path("torn.kvf"), path("text.kvf"), path("absent.kvf"), anonymous, bare]
    options = ["--criterion", "top64", "--replicates", "30"]
    done = run("corpus", "survival", *files[:6], *bad, *files[6:], *options, "-o", path("b.tsv"), "--state", path("b.state"), code=1)
    lines = [line for line in done.stderr.strip().split("\n") if not line.startswith("note:")]
    check("bad traces are named", len(lines) == 6 and all(sum(b in line for line in lines) == 1 for b in bad), done.stderr)
    check("and counted", lines[-1].endswith("5 traces were left out"), done.stderr)
    with open(path("b.tsv")) as f:
        text = "".join(line for line in f if not line.startswith("# checksum: "))
    kept = "".join(line for line in whole.decode().splitlines(True) if not line.startswith("# checksum: "))
    check("and counted in the table", "# traces_left_out: 5\n" in text and text.replace("# traces_left_out: 5", "# traces_left_out: 0") == kept)
    check("again", run("corpus", "survival", *files, *bad, *options, "--state", path("b.state"), code=1).stderr.endswith("5 traces were left out\n"))
    check_tried_again(files, options, path)
    run("corpus", "survival", *files, *bad, *options, "--skip-bad", "-o", path("b.tsv"))
    for i in (1, 2):
        run("corpus", "survival", *files, *bad, *options, "--shard", f"{i}/2", "--skip-bad", "--state", path(f"b{i}.state"))
    run("corpus", "merge", path("b2.state"), path("b1.state"), "--state", path("bm.state"))
    with open(path("bm.state"), "rb") as f, open(path("b.state"), "rb") as g:
        check("shards with bad traces", f.read() == g.read())
    refused("all are bad", 1, ["corpus", "survival", bare], "no trace could be read")
    os.makedirs(path("no traces"))
    refused("an empty folder", 1, ["corpus", "survival", path("no traces")], "no traces")
    refused("an absent list", 1, ["corpus", "survival", "@" + path("absent")], "absent", "cannot read")
    empty = Trace(np.random.default_rng(0), np.zeros(0, int), 0).write(path("none.kvf"))
    data, meta = table(kvfate, "corpus", "survival", empty, "--criterion", "top64")
    check("an empty trace", set(data["documents"]) == {0} and set(data["fraction"]) == {None} and meta["documents"] == "1", data)
    said = run("corpus", "survival", files[0], files[1], "--criterion", "top64", "--tokens", "0:100000", "-o", path("short.tsv")).stderr
    check("shorter traces are counted", "2 of 2 traces have fewer than 100000 tokens" in said, said)
    for argv, word in ((["tokens", files[0]], "survival"), (["nothing", files[0]], "nothing"), (["survival", files[0], "--shard", "3/2"], "--shard"),
                       (["survival", files[0], "--shard", "1"], "--shard"), (["survival", files[0], "--intervals", "some"], "--intervals"), (["survival"], "missing"),
                       (["survival", files[0], "--denominator", "x"], "--denominator is"), (["survival", files[0], "--criterion", "top64", "--head", "L0K0"], "query"),
                       (["survival", files[0], "--tokens", "5"], "A:B"), (["survival", files[0], "-o", "x.txt"], ".tsv"), (["missed", "--as", "regret", files[0], "--figure", "survival", "-o", "x.png"], "no figure"),
                       (["-t", "2", "survival", files[0]], "first"), (["survival", files[0], "--replicates", "10001"], "--replicates")):
        refused(" ".join(argv[:3:2]), 2, ["corpus", *argv], word)


def check_tried_again(files, options, path):
    """Check that a trace that could not be opened or read counts once it can be read."""
    good = Path(files[0]).read_bytes()
    later = path("later.kvf")
    argv = ["corpus", "survival", *files[1:], later, *options, "--state", path("later.state")]
    run("corpus", "survival", *files, *options, "-o", path("all.tsv"), "--state", path("all.state"))
    at = next(at for at in range(len(good) // 2, 0, -1) if unreadable(later, good, at))
    for what, data in (("absent", None), ("without values that can be read", good[:at] + bytes([good[at] ^ 255]) + good[at + 1:])):
        for name in (later, path("later.state")):
            if os.path.exists(name):
                os.remove(name)
        if data:
            Path(later).write_bytes(data)
        done = run(*argv, code=1)
        check(f"{what}: left out", done.stderr.endswith("1 traces were left out\n"), done.stderr)
        check(f"{what}: still left out", run(*argv, code=1).stderr.endswith("1 traces were left out\n"))
        Path(later).write_bytes(good)
        run(*argv, "-o", path("later.tsv"))
        for a, b in (("later.tsv", "all.tsv"), ("later.state", "all.state")):
            with open(path(a), "rb") as f, open(path(b), "rb") as g:
                check(f"{what}: then it counts in {b}", f.read() == g.read())
    os.remove(later)
    refused("one less", 1, argv, "other traces")


def unreadable(name, good, at):
    """Return True if a trace with this byte inverted opens, but its values cannot be read."""
    Path(name).write_bytes(good[:at] + bytes([good[at] ^ 255]) + good[at + 1:])
    codes = [subprocess.run([kvfate, *argv], capture_output=True).returncode for argv in (["trace", "info", name], ["survival", name, "--criterion", "top64"])]
    return codes == [0, 1]


def check_killed(folder):
    """Check that a killed run continues to the bytes of an uninterrupted one."""
    rng = np.random.default_rng(5)
    T, n = 1500, 40
    os.makedirs(os.path.join(folder, "many"))
    v = rng.integers(0, T, (6, 8, T)).astype(float)
    for k in range(n):
        make(write_kvf, os.path.join(folder, "many", f"{k}.kvf"), [Column("last_selected.top64", "u16", "query", np.roll(v, 7 * k, 2), flags=SNAPSHOT | AGE)],
             (6, 2, 8, T), {"run": {"document": k}})
    command = [kvfate, "corpus", "survival", os.path.join(folder, "many"), "--criterion", "top64", "--intervals", "all", "-t", "1", "--save-every", "0"]
    whole, state = os.path.join(folder, "w.state"), os.path.join(folder, "k.state")
    subprocess.run([*command, "--state", whole], check=True, stdout=subprocess.DEVNULL)
    for attempt in range(8):
        if os.path.exists(state):
            os.remove(state)
        p = subprocess.Popen([*command, "--state", state], stdout=subprocess.DEVNULL)
        while p.poll() is None and not os.path.exists(state):
            time.sleep(0.001)
        p.send_signal(signal.SIGKILL)
        p.wait()
        said = subprocess.run([kvfate, "corpus", "merge", state], capture_output=True, text=True)
        if said.returncode == 1 and f"of {n} documents" in said.stderr:
            break
    check("killed in the middle", "not finished" in said.stderr, attempt, said.stderr)
    done = subprocess.run([*command, "--state", state], capture_output=True, text=True)
    with open(whole, "rb") as f, open(state, "rb") as g:
        check("went on after a kill", done.returncode == 0 and f.read() == g.read(), done.stderr)


def main():
    with tempfile.TemporaryDirectory(prefix="kvfate-corpus-") as folder:
        os.makedirs(os.path.join(folder, "traces"))
        traces = corpus_traces()
        files = [t.write(os.path.join(folder, "traces", f"{i}.kvf")) for i, t in enumerate(traces)]
        check_survival(files, traces)
        check_few(files, traces)
        check_lengths(folder)
        check("curve: half-lives of both kinds", check_curves(files, traces) == 3 and check_curves(files, traces, [0, 1, 2, 4]) == 0
              and check_curves(files, traces, list(range(60))) == 3)
        check_means(files, traces)
        check_against(files, traces, folder)
        whole = check_bytes(files, folder)
        check_bad(files, folder, whole)
        check_killed(folder)


main()
finish()
