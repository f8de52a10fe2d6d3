#!/usr/bin/env python3
"""Check kvfate retention --as calibration: by hand, against dense T x T sets of synthetic runs, against the evictions of a real run
under trimkv, and its errors.

usage: test_calibration.py KVFATE WRITE_KVF DUMP GEN_TINY MAKE_GATES
"""
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../figures"))
import dense
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, kvfate, refused  # noqa: E402
from maker import ALIVE, AGE, SNAPSHOT, Column, make, table
from test_formats import png, read

write_kvf, dump, gen_tiny, make_gates = map(os.path.abspath, sys.argv[2:6])
EVENTS = ["ever-again", "at-age", "no-exit"]
RANKS = ["beta", "age", "random"]
NUMBERS = ["predicted", "observed", "low", "high", "brier", "brier_base", "auroc", "ece", "tau", "auroc_early", "auroc_near"]


# ---- definitions, from dense sets S [L,G,T,T]: query t selected token i

def columns(S, log_beta, evict=None, criterion="top64"):
    L, G, T, _ = S.shape
    age = np.arange(T)[:, None] - np.arange(T)
    last = np.where(S, age, -1).max(2, initial=-1).astype(float)
    first = dense.first_unselected(S).astype(float)
    evict = np.full(log_beta.shape, float(ALIVE)) if evict is None else evict
    nan = lambda x: np.where(x < 0, np.nan, x)  # all ones in the file
    return [Column("evict_step", "u32", "kv", evict, flags=SNAPSHOT),
            Column("log_beta", "f32", "kv", log_beta),
            Column("last_selected." + criterion, "u16", "query", nan(last), flags=SNAPSHOT | AGE),
            Column("selected_at." + criterion, "u32", "query", dense.selected_at(S), flags=SNAPSHOT),
            Column("first_unselected." + criterion, "u32", "query", nan(first), flags=SNAPSHOT | AGE)]


def happened(S, event, n, i):
    """Return True if the event happened; S [T,T] of one query head."""
    if event == "ever-again":
        return bool(S[i + n:, i].any())
    return bool(S[i + n, i]) if event == "at-age" else bool(S[i:i + n + 1, i].all())


def wilson(k, n):
    """Return the two roots of (k/n - p)^2 = z^2 p (1 - p) / n."""
    z, x = 1.959963984540054, k / n
    a, b, c = 1 + z * z / n, -2 * x - z * z / n, x * x
    d = math.sqrt(b * b - 4 * a * c)
    return (-b - d) / (2 * a) if k else 0.0, (-b + d) / (2 * a) if k < n else 1.0


def auroc(score, yes):
    a, b = score[yes], score[~yes]
    if not len(a) or not len(b):
        return np.nan
    return ((a[:, None] > b).sum() + .5 * (a[:, None] == b).sum()) / (len(a) * len(b))


def tau_b(a, b):
    x, y = np.sign(a[:, None] - a), np.sign(b[:, None] - b)
    nx, ny = (x * x).sum(), (y * y).sum()
    return (x * y).sum() / math.sqrt(float(nx) * float(ny)) if nx and ny else np.nan


def splitmix(x):
    mask = 2**64 - 1
    x = (x + 0x9e3779b97f4a7c15) & mask
    z = ((x ^ x >> 30) * 0xbf58476d1ce4e5b9) & mask
    z = ((z ^ z >> 27) * 0x94d049bb133111eb) & mask
    return x, z ^ z >> 31


def random_key(layer, index, t, i):
    x, z = splitmix(1)
    for v in (layer << 32 | index, t, i):
        x, z = splitmix(z ^ v)
    return z >> 33


def evict_by_hand(log_beta, B):
    """Return evict_step of a head under trimkv with token-by-token input (docs/reference/methods.md)."""
    T, held = len(log_beta), []
    out = np.full(T, np.inf)
    for t in range(T):
        if len(held) + 1 > B:
            score = [(np.float32((t - 1 - i) * float(log_beta[i])), i) for i in held]
            gone = min(score, key=lambda s: (s[0], s[1]))[1]
            out[gone] = t
            held.remove(gone)
        held.append(t)
    return out


def rank(log_beta, last, out, layer, index, a, b):
    """Return per score lists of AUROC and tau-b, one for each eviction of steps [a, b)."""
    found = {s: ([], []) for s in RANKS}
    for t in range(a, b):
        if not (out == t).any():
            continue
        i = np.flatnonzero((np.arange(len(out)) < t) & (out >= t))
        use = np.where(last[i] >= 0, np.maximum(0, i + last[i] - t + 1), 0)
        scores = {"beta": ((t - 1 - i) * log_beta[i].astype(float)).astype(np.float32), "age": i,
                  "random": np.array([random_key(layer, index, t, int(k)) for k in i])}
        for s, v in scores.items():
            found[s][0].append(auroc(v.astype(float), i + last[i] >= t))
            found[s][1].append(tau_b(v.astype(float), use))
    return found


def mean(v):
    v = [x for x in v if not math.isnan(x)]
    return (math.fsum(v) / len(v) if v else np.nan), len(v)


def near_pairs(items, n, near):
    """Return AUROC over the pairs of one head with births less than `near` steps apart."""
    wins = pairs = 0
    for x, (lb, i, head, yes) in enumerate(items):
        for other_lb, j, other, no in items[:x]:
            if head == other and yes != no and abs(i - j) < near:
                pairs += 1
                up = n * (lb - other_lb) * (1 if yes else -1)
                wins += 1 if up > 0 else .5 if up == 0 else 0
    return wins / pairs if pairs else np.nan


def expected(S, log_beta, each=False, bins=10, horizons=None, events=EVENTS, B=64, a=0, b=None, heads=None, evict=None, follow=None):
    L, G, T, _ = S.shape
    H, rows, pooled_items, pooled_rank = log_beta.shape[1], [], [], {s: ([], []) for s in RANKS}
    b = T if b is None else b
    horizons = [4**k for k in range(16) if k == 0 or 4**k < T] if horizons is None else horizons
    group = G // H
    near = min(64, T // 4)
    follow = near if follow is None else follow

    def block(name, l, x, items, found):
        for e in events:
            for n in horizons:
                if e == "at-age" and n & (n - 1) | (n == 0):
                    continue
                at = [(lb, i, id(sets), any(happened(s, e, n, i) for s in sets)) for lb, i, sets in items if i + n + follow * (e == "ever-again") < T]
                lb, y, born = np.array([v[0] for v in at], float), np.array([v[3] for v in at], bool), np.array([v[1] for v in at], float)
                p = np.exp(n * lb) if n else np.ones(len(lb))
                k_of = np.minimum((p * bins).astype(int), bins - 1)
                ece = 0.0
                for k in list(range(bins)) + [-1]:
                    here = k_of == k if k >= 0 else np.ones(len(p), bool)
                    m, row = int(here.sum()), dict.fromkeys(NUMBERS, np.nan)
                    row.update(head=name, layer=l, index=x, kind="bin" if k >= 0 else "summary", event=e, score="beta",
                               horizon=n, bin=k, n=m, n_auroc=-1, n_tau=-1, yes=int(y[here].sum()),
                               lo=k / bins if k >= 0 else 0, hi=(k + 1) / bins if k >= 0 else 1)
                    if m:
                        row.update(predicted=p[here].mean(), observed=y[here].mean(), brier=((p - y)[here]**2).mean())
                        row["low"], row["high"] = wilson(int(y[here].sum()), m)
                        ece += m * abs(p[here].mean() - y[here].mean()) if k >= 0 else 0
                    if m and k < 0:
                        row.update(ece=ece / m, brier_base=np.var(y), auroc=auroc(n * lb if n else 0 * lb, y), auroc_early=auroc(-born, y), auroc_near=near_pairs(at, n, near))
                    rows.append(row)
        for s in RANKS:
            row = dict.fromkeys(NUMBERS + ["lo", "hi"], np.nan)
            row["auroc"], n_auroc = mean(found[s][0])
            row["tau"], n_tau = mean(found[s][1])
            row.update(head=name, layer=l, index=x, kind="rank", event="selected-again", score=s, horizon=-1, bin=-1,
                       n=len(found[s][0]), n_auroc=n_auroc, n_tau=n_tau, yes=-1)
            rows.append(row)

    for l, x in heads or [(l, x) for l in range(L) for x in range(G if each else H)]:
        kv = x // group if each else x
        sets = [S[l, x]] if each else [S[l, g] for g in range(kv * group, (kv + 1) * group)]
        age = np.arange(T)[:, None] - np.arange(T)
        last = np.where(np.any(sets, 0), age, -1).max(0, initial=-1)
        lb = log_beta[l, kv]
        items = [(lb[i], i, sets) for i in range(a, b)]
        out = evict_by_hand(lb, B) if evict is None else evict[l, kv]
        found = rank(lb, last, out, l, x, a, b)
        block(f"L{l}{'H' if each else 'K'}{x}", l, x, items, found)
        pooled_items += items
        for s in RANKS:
            for k in range(2):
                pooled_rank[s][k].extend(found[s][k])
    block("all", -1, -1, pooled_items, pooled_rank)
    return rows


def compare(name, trace, argv, rows):
    data, meta = table(kvfate, "retention", "--as", "calibration", trace, *argv)
    check(name + ": rows", len(data["head"]) == len(rows), len(data["head"]), len(rows))
    for key in ("head", "kind", "event", "score", "layer", "index", "horizon", "bin", "n", "n_auroc", "n_tau", "yes"):
        check(f"{name}: {key}", data[key] == [r[key] for r in rows])
    for key in NUMBERS + ["lo", "hi"]:
        got = np.array([np.nan if v is None else v for v in data[key]], float)
        want = np.array([r[key] if r["kind"] != "rank" or key not in ("lo", "hi") else np.nan for r in rows], float)
        ok = got.shape == want.shape and np.allclose(got, want, rtol=1e-10, atol=1e-12, equal_nan=True)
        bad = [] if ok or got.shape != want.shape else np.flatnonzero(~np.isclose(got, want, rtol=1e-10, atol=1e-12, equal_nan=True))[:3]
        check(f"{name}: {key}", ok, [(got[k], want[k], rows[k]) for k in bad])
    return data, meta


def random_run(rng, L, H, G, T):
    S = rng.random((L, G, T, T)) < rng.choice([.05, .5, .95], (L, G, 1, T))
    S &= np.tril(np.ones((T, T), bool))
    lb = -np.exp(rng.normal(-3, 2, (L, H, T)))
    lb[rng.random(lb.shape) < .2] = -.125  # ties
    lb[rng.random(lb.shape) < .1] = 0
    return S, lb.astype(np.float32)


def by_hand(path):
    """One head, four tokens, beta = .6, .25, .6, 1. Selected: token 0 at ages 0, 1, 3; token 1 at 0;
    token 2 at 0, 1; token 3 at 0.  At n = 1 tokens 0, 1, 2 are at risk: predictions .6 .25 .6.
    ever-again: yes no yes: Brier (.16 + .0625 + .16) / 3; base rate 2/3; AUROC 1.
    Budget 2: at t = 2 tokens 0, 1 are cached, scores log .6 and 0: 0 is evicted; uses 0 + 3 - 2 + 1 = 2 and 0:
    AUROC 0, tau -1.  At t = 3 tokens 1, 2: scores log .25, 0; uses 0, 2 + 1 - 3 + 1 = 1: AUROC 1, tau 1."""
    S = np.zeros((1, 1, 4, 4), bool)
    for i, ages in enumerate(([0, 1, 3], [0], [0, 1], [0])):
        for n in ages:
            S[0, 0, i + n, i] = True
    lb = np.log(np.array([[[.6, .25, .6, 1]]]))
    x = make(write_kvf, path, columns(S, lb), (1, 1, 1, 4))
    data, _ = table(kvfate, "retention", "--as", "calibration", x, "--horizon", "1", "--bins", "2", "--budget", "2", "--head", "L0K0", "--follow-up", "0")
    row = {(data["event"][k], data["bin"][k]): {c: data[c][k] for c in data} for k in range(9)}
    close = lambda a, b: abs(a - b) < 1e-7  # log_beta is f32
    r = row["ever-again", -1]
    check("hand: Brier", r["n"] == 3 and close(r["brier"], (.16 + .0625 + .16) / 3) and close(r["brier_base"], 2 / 9))
    check("hand: AUROC, ECE", r["auroc"] == 1 and close(r["ece"], (abs(0 - .25) + 2 * abs(1 - .6)) / 3))
    r = row["ever-again", 0]
    check("hand: low bin", r["n"] == 1 and close(r["predicted"], .25) and r["observed"] == 0 and r["low"] == 0)
    check("hand: Wilson of 0 in 1", close(r["high"], 1.959963984540054**2 / (1 + 1.959963984540054**2)))
    r = row["no-exit", -1]
    check("hand: no exit", close(r["observed"], 2 / 3))
    rank_rows = [k for k in range(len(data["head"])) if data["kind"][k] == "rank" and data["head"][k] == "L0K0"]
    beta, age = rank_rows[0], rank_rows[1]
    check("hand: rank", data["n"][beta] == 2 and data["auroc"][beta] == .5 and data["tau"][beta] == 0)
    check("hand: age", data["auroc"][age] == .5 and data["tau"][age] == 0)


def brute_force(path):
    rng = np.random.default_rng(5)
    S, lb = random_run(rng, 2, 2, 6, 37)
    x = make(write_kvf, path("x.kvf"), columns(S, lb), (2, 2, 6, 37), {"method": {"name": "made-up", "budget": 99}})
    compare("defaults", x, [], expected(S, lb))
    compare("budget", x, ["--budget", 5], expected(S, lb, B=5))
    compare("follow-up", x, ["--follow-up", 0], expected(S, lb, follow=0))
    compare("follow-up", x, ["--follow-up", 30, "--horizon", "1,6,7"], expected(S, lb, follow=30, horizons=[1, 6, 7]))
    compare("each", x, ["--group", "each", "--budget", "3", "--bins", "3"], expected(S, lb, True, 3, B=3))
    compare("tokens", x, ["--tokens", "5:30", "--budget", 8, "--horizon", "0,2,3,8,36,50"],
            expected(S, lb, horizons=[0, 2, 3, 8, 36, 50], B=8, a=5, b=30))
    compare("heads, event", x, ["--head", "L1K*", "--event", "no-exit,ever-again", "--budget", 1, "--bins", 1],
            expected(S, lb, events=["ever-again", "no-exit"], B=1, bins=1, heads=[(1, 0), (1, 1)]))
    again = [subprocess.run([kvfate, "retention", "--as", "calibration", x, "--json"], capture_output=True).stdout for _ in range(2)]
    check("equal bytes", again[0] == again[1] and again[0])
    S, lb = random_run(rng, 1, 1, 1, 300)
    y = make(write_kvf, path("y.kvf"), columns(S, lb, criterion="mass.90"), (1, 1, 1, 300))
    compare("300 tokens", y, ["--criterion", "mass.90"], expected(S, lb))
    for n in (1, 2):
        S, lb = random_run(rng, 1, 1, 2, n)
        z = make(write_kvf, path("z.kvf"), columns(S, lb), (1, 1, 2, n))
        compare(f"{n} tokens", z, [], expected(S, lb))
    cut = np.full(lb.shape, float(2))  # after the last query: all queries saw it
    compare("cut at the end", make(write_kvf, path("z.kvf"), columns(S, lb, cut), (1, 1, 2, 2)), [], expected(S, lb))
    return x, path("z.kvf")


def real_run(path):
    """Check that the ranked evictions equal trimkv's evictions with token-by-token input."""
    gguf, gates, x = path("m.gguf"), path("g.safetensors"), path("r.kvf")
    size = ["--layers", "2", "--heads", "4", "--kv-heads", "2"]
    calls = [[sys.executable, gen_tiny, *size, "--dim", "64", "--head-dim", "16", "-o", gguf],
             [sys.executable, make_gates, "--layout", "rg", *size, "--d-model", "64", "--head-dim", "16", "--seed", "3", "-o", gates]]
    Path(path("ids")).write_text("7")
    calls.append([kvfate, "run", "--overwrite", "-m", gguf, "--ids", path("ids"), "-n", "90", "--ignore-eos", "--method", "trimkv", "-B", "12",
                  "--gates", gates, "--probes", "full", "-t", "2", "-q", "-o", x])
    calls.append([dump, x, path("")])
    for c in calls:
        done = subprocess.run(c, capture_output=True, text=True, errors="replace")
        if done.returncode:
            sys.exit(f"{c}: {done.stderr}")
    refused("a run that evicted", 1, ["retention", "--as", "calibration", x], "evicted at step", "also those outside --tokens", "--budget")
    shape = {s.split()[0]: [int(v) for v in s.split()[1:]] for s in done.stdout.splitlines()}
    lb = np.fromfile(path("log_beta.f64")).reshape(shape["log_beta"]).astype(np.float32)
    evict = np.fromfile(path("evict_step.f64")).reshape(lb.shape)
    L, H, T = lb.shape
    gone = evict < T
    check("trimkv evicted", gone.sum(axis=2).min() == T - 12, gone.sum(axis=2))
    check("unlike a window", (np.diff(evict[0, 0][gone[0, 0]]) < 0).any())
    S, _ = random_run(np.random.default_rng(6), L, H, 4, T)
    y = make(write_kvf, path("s.kvf"), columns(S, lb), (L, H, 4, T))
    compare("evictions of trimkv", y, ["--budget", "12"], expected(S, lb, B=12, evict=np.where(evict == ALIVE, np.inf, evict)))


def pictures(x, short, path):
    for trace, ext in ((x, "png"), (x, "svg"), (x, "pdf"), (short, "png"), (path("zero.kvf"), "png")):
        raw = []
        for _ in range(2):
            out = path("f." + ext)
            r = subprocess.run([kvfate, "retention", "--as", "calibration", trace, "-o", out], capture_output=True, text=True)
            none = trace == path("zero.kvf")
            check(f"figure {ext}", r.returncode == 3 * none and r.stderr.endswith("has no steps\n" * none) and r.stderr.count("\n") == none, r.stderr)
            raw.append(Path(out).read_bytes())
        check(f"figure {ext} again", raw[0] == raw[1] and len(raw[0]) > 500)
    width = {}
    for events in ("all", "at-age"):
        subprocess.run([kvfate, "retention", "--as", "calibration", x, "--event", events, "--horizon", "1,2,4,8,16,32,64,128,256,512", "-o", path("f.svg")],
                       stdout=subprocess.DEVNULL)
        width[events] = float(re.search(r'width="([0-9.]+)', Path(path("f.svg")).read_text(encoding="utf-8")).group(1))
    check("a panel per event", width["all"] > 2 * width["at-age"] > 0, width)
    # 13 + 3 * 22 + 2 * 5 + 25 mm across; 8 + 19 + 10 mm and the note down, with a long key more
    many = ["--horizon", "1,2,4,8,16,32,3,5,6"]
    for more, w, least in (([], 114, 40), (["--event", "at-age"], 60, 40), (many, 114, 50), (many + ["--event", "no-exit"], 60, 50)):
        argv = ["retention", "--as", "calibration", x, *more, "-o", path("f.png"), "--dpi", "100", "--size"]
        r = subprocess.run([kvfate, *argv, "50x25"], capture_output=True, text=True)
        wide, h = map(int, re.search(r"at least (\d+) x (\d+) mm", r.stderr).groups())
        check(f"{more}: room for panels, key and note", w <= wide < w + 20 and least < h < least + 25, wide, h)
        w = wide  # the note has fewer lines
        for a, b in ((w - 1, h), (w, h - 1)):
            refused(f"no room in {a} x {b}", 2, [*argv, f"{a}x{b}"], "--size", " mm")
        r = subprocess.run([kvfate, *argv, f"{w}x{h}"], capture_output=True)
        pixels = png(read(path("f.png")))[3]
        check(f"nothing of {w} x {h} is cut off", r.returncode == 0 and all((v == 255).all() for v in (
            pixels[[0, -1]], pixels[:, :3], pixels[:, -3:])), r)


def large(path):
    """Check bins times horizons times heads: about 25 bytes per row, or an error."""
    every = ["--horizon", ",".join(str(1 << k) for k in range(16)), "--bins"]
    for L, H in ((30, 3), (40, 16)):
        S, lb = np.zeros((L, H, 6, 6), bool), -np.ones((L, H, 6))
        x = make(write_kvf, path("l.kvf"), columns(S, lb), (L, H, H, 6))
        if L == 40:  # 641 blocks of 48 (1000 + 1) + 3 rows
            refused("too many rows", 2, ["retention", "--as", "calibration", x, *every, "1000"], "30800691 rows", "640 heads", "--head")
            continue
        with open(path("l.txt"), "wb") as out:  # 91 (48 * 301 + 3) rows
            p = subprocess.Popen([kvfate, "retention", "--as", "calibration", x, *every, "300"], stdout=out)
            used = os.wait4(p.pid, 0)
        check("memory of 1.3 million rows", used[1] == 0 and used[2].ru_maxrss < 250 << 10, used[1], used[2].ru_maxrss)


def refusals(x, path):
    refused("criterion", 2, ["retention", "--as", "calibration", x, "--criterion", "top63"], "top63")
    refused("no such column", 1, ["retention", "--as", "calibration", x, "--criterion", "top128"], "last_selected.top128", "--probes calibration")
    refused("group", 2, ["retention", "--as", "calibration", x, "--group", "some"], "some")
    refused("event", 2, ["retention", "--as", "calibration", x, "--event", "never"], "never")
    refused("no event", 2, ["retention", "--as", "calibration", x, "--event", ""], "--event")
    refused("at-age at 3", 2, ["retention", "--as", "calibration", x, "--event", "at-age", "--horizon", "3"], "powers of two")
    for bad in ("-1", "a", "1,,2", "", ",".join(map(str, range(17)))):
        refused(f"horizon '{bad}'", 2, ["retention", "--as", "calibration", x, "--horizon", bad], "--horizon")
    for bad in ("4,4", "1,16,2,16"):
        refused("the same horizon again", 2, ["retention", "--as", "calibration", x, "--horizon", bad], "--horizon", "twice", bad[-2:].strip(","))
    for bad in ("0", "4097", "x"):
        refused("budget " + bad, 2, ["retention", "--as", "calibration", x, "--budget", bad], "--budget")
        refused("bins " + bad, 2, ["retention", "--as", "calibration", x, "--bins", bad], "--bins")
    refused("query heads of any", 2, ["retention", "--as", "calibration", x, "--head", "L0H0"], "KV heads")
    S, lb = random_run(np.random.default_rng(1), 1, 1, 2, 6)
    for value, words in ((np.nan, "nan"), (.5, "0.5")):
        lb[0, 0, 4] = value
        y = make(write_kvf, path("bad.kvf"), columns(S, lb), (1, 1, 2, 6))
        refused(f"log_beta {value}", 1, ["retention", "--as", "calibration", y], "log_beta of entry 4 of L0K0", words)
    lb[0, 0, 4] = -1
    for missing in ("evict_step", "log_beta", "selected_at.top64", "first_unselected.top64"):
        y = make(write_kvf, path("bad.kvf"), [c for c in columns(S, lb) if c.name != missing], (1, 1, 2, 6))
        refused("without " + missing, 1, ["retention", "--as", "calibration", y], missing, "kvfate run")
    for wrong, word in ((Column("log_beta", "f32", "query", -np.ones((1, 2, 6))), "KV head and token"),
                        (Column("evict_step", "u32", "kv", np.full((1, 1, 6), float(ALIVE)), axis="step"), "KV head and token"),
                        (Column("last_selected.top64", "i32", "kv", np.zeros((1, 1, 6))), "query head and token"),
                        (Column("selected_at.top64", "i32", "query", -np.ones((1, 2, 6))), "L0H0 has no selected_at.top64")):
        y = make(write_kvf, path("bad.kvf"), [wrong if c.name == wrong.name else c for c in columns(S, lb)], (1, 1, 2, 6))
        refused("another kind of " + wrong.name, 1, ["retention", "--as", "calibration", y], word)
    evict = np.full(lb.shape, float(ALIVE))
    evict[0, 0, 2] = 5
    y = make(write_kvf, path("bad.kvf"), columns(S, lb, evict), (1, 1, 2, 6))
    refused("an evicted entry", 1, ["retention", "--as", "calibration", y], "entry 2 of L0K0 was evicted at step 5")
    zero = make(write_kvf, path("zero.kvf"), columns(S[:, :, :0, :0], lb[:, :, :0]), (1, 1, 2, 0))
    data, _ = table(kvfate, "retention", "--as", "calibration", zero)
    check("empty trace", data["head"] == [] and len(data) == 25)


with tempfile.TemporaryDirectory(prefix="kvfate-calibration-") as folder:
    def inside(name):
        return os.path.join(folder, name)

    by_hand(inside("h.kvf"))
    x, short = brute_force(inside)
    refusals(x, inside)
    large(inside)
    real_run(inside)
    pictures(x, short, inside)

finish()
