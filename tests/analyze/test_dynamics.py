#!/usr/bin/env python3
"""Check kvfate attention --as dynamics: processes with known matrices, numpy on random traces, edge cases, errors.

usage: test_dynamics.py KVFATE WRITE_KVF
"""
import math
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, ended_well, finish, refused  # noqa: E402
from draws import Draws, hashed  # noqa: E402
from maker import Column, make, table

kvfate, write_kvf = map(os.path.abspath, sys.argv[1:3])
POINTS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512]


def trace(path, vectors, ids, prompt, stage="pre", meta=None):
    """Write a trace of vectors {"L0H1": [T][D]}; the first `prompt` tokens are the prompt."""
    T = len(ids)
    cols = [Column("tokens.id", "i32", "run", ids), Column("tokens.role", "u8", "run", np.arange(T) >= prompt)]
    for head, v in vectors.items():
        cols += [Column(f"query.{stage}.{head}.d{j:02}", "f32", "run", v[:, j], "step") for j in range(v.shape[1])]
    return make(write_kvf, path, cols, (2, 2, 2, T), meta)


class Table:
    def __init__(self, *argv):
        t, self.meta = table(kvfate, "attention", "--as", "dynamics", *argv)
        self.rows = {}
        for k in range(len(t["value"])):
            key = tuple(t[c][k] for c in ("head", "prompt", "rollout", "surrogate", "quantity", "index"))
            self.rows.setdefault(key, []).append({c: t[c][k] for c in ("x", "value", "count", "n")})
        self.order = list(self.rows)
        self.t = t

    def all(self, quantity, head="L0H0", prompt=-1, rollout=-1, surrogate=0, index=None, what="value"):
        keys = [k for k in self.order if k[:5] == (head, prompt, rollout, surrogate, quantity) and index in (None, k[5])]
        return np.array([np.nan if r[what] is None else r[what] for k in keys for r in self.rows[k]], float)

    def one(self, *a, **k):
        v = self.all(*a, **k)
        assert len(v) == 1, (a, k, v)
        return v[0]


# ---- computed directly

def permutation(n, seed, run):
    """Return a permutation by Fisher and Yates from the end, with xoshiro256** seeded by a hash of (seed, run, 0, 0)."""
    draws = Draws(hashed(seed, run, 0, 0))
    p = list(range(n))
    for i in range(n - 1, 0, -1):
        j = draws.below(i + 1)
        p[i], p[j] = p[j], p[i]
    return p


def fit(pieces, trains, m):
    """Fit pieces [n][m] of a prompt."""
    sides = []
    for held_out in (False, True):
        x, y = [], []
        for r, train in zip(pieces, trains):
            for k in range(len(r) - 1):
                if (k + 1 >= train) == held_out:
                    x.append(r[k])
                    y.append(r[k + 1])
        sides.append((np.array(x).reshape(-1, m), np.array(y).reshape(-1, m)))
    (x, y), (xt, yt) = sides
    out = {"n": (len(x), len(xt))}
    if len(x) < m + 2:
        return out
    c = np.linalg.lstsq(np.c_[x, np.ones(len(x))], y, rcond=None)[0]
    A, b = c[:m].T, c[m]
    e, et = y - x @ A.T - b, yt - xt @ A.T - b
    ev = sorted(np.linalg.eigvals(A), key=lambda v: (-abs(v), -v.real, -v.imag))
    out.update(ev=np.array(ev), r2=[1 - (r**2).sum() / ((t - t.mean(0))**2).sum() if len(t) > 1 else np.nan for r, t in ((e, y), (et, yt))])
    Q = e.T @ e / (len(x) - m - 1)
    out["mean"] = np.linalg.solve(np.eye(m) - A, b)
    S = np.linalg.solve(np.eye(m * m) - np.kron(A, A), Q.ravel()).reshape(m, m)
    out["sigma"] = np.sqrt(np.diag(S)) if abs(ev[0]) < 1 else np.full(m, np.nan)
    out["w"] = [np.zeros(0)] * 2 if len(x) <= 2 * m else [np.linalg.solve(np.linalg.cholesky(Q), r.T).T.ravel() for r in (e, et)]
    return out


def close(a, b, tol=1e-8):
    return np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=tol, atol=tol, equal_nan=True)


def compare(name, t, head, runs, prompts, train, m, split="time", seed=0):
    """Compare; runs: vectors [n][D] of the steps that count, in the order of the traces; prompts: the prompt of each."""
    N = max(prompts) + 1
    if split == "time":
        cut = [math.floor(train * len(r)) for r in runs]
    else:
        of = [[k for k in range(len(runs)) if prompts[k] == p] for p in range(N)]
        first = {k for group in of for k in group[:max(1, math.floor(train * len(group)))]}
        cut = [len(r) if k in first else 0 for k, r in enumerate(runs)]
    pool = np.concatenate([r[:c] for r, c in zip(runs, cut)])
    mean = pool.mean(0)
    value, vec = np.linalg.eigh((pool - mean).T @ (pool - mean))
    value, vec = value[::-1], vec[:, ::-1]
    vec = vec * np.sign(vec[np.abs(vec).argmax(0), np.arange(vec.shape[1])])
    check(f"{name} explained", close(t.all("explained", head), (value / value.sum())[:m]))
    R = [(r - mean) @ vec[:, :m] for r in runs]
    for surrogate in (0, 1):
        w, radii, r2s, stable = [[], []], [], [], 0
        if surrogate:
            R = [r[permutation(len(r), seed, k)] for k, r in enumerate(R)]
        for p in range(N):
            mine = [k for k in range(len(runs)) if prompts[k] == p]
            f = fit([R[k] for k in mine], [cut[k] for k in mine], m)
            key = dict(head=head, prompt=p, surrogate=surrogate)
            what = f"{name} {head} prompt {p} surrogate {surrogate}"
            check(f"{what} n", [t.one(f"r2.{s}", what="n", **key) for s in ("train", "test")] == list(f["n"]))
            if "ev" not in f:
                check(f"{what} too few", math.isnan(t.one("spectral_radius", **key)) and np.isnan(t.all("eigenvalue.real", **key)).all())
                continue
            check(f"{what} eigenvalues", close(t.all("eigenvalue.real", **key), f["ev"].real) and close(t.all("eigenvalue.imaginary", **key), f["ev"].imag)
                  and close(t.all("eigenvalue.modulus", **key), abs(f["ev"])), t.all("eigenvalue.real", **key), f["ev"])
            check(f"{what} R2", close([t.one("r2.train", **key), t.one("r2.test", **key)], f["r2"]), f["r2"])
            if not surrogate:
                check(f"{what} law", close(t.all("mean", **key), f["mean"]) and close(t.all("sigma", **key), f["sigma"]), f["sigma"])
            radii.append(abs(f["ev"][0]))
            stable += radii[-1] < 1
            r2s += [f["r2"][1]] * (not math.isnan(f["r2"][1]))
            for side in range(2):
                w[side].append(f["w"][side])
            if not surrogate:
                running_means(t, what, head, p, mine, R)
        key = dict(head=head, surrogate=surrogate)
        what = f"{name} {head} surrogate {surrogate}"
        check(f"{what} stable", t.one("stable", what="count", **key) == stable and t.one("stable", what="n", **key) == len(radii))
        check(f"{what} medians", close(t.one("spectral_radius", **key), np.median(radii)) and close(t.one("r2.test", **key), np.median(r2s)))
        for side, quantity in enumerate(("train", "test")):
            v = np.concatenate(w[side])
            over = [(np.abs(v) > .25 * k).sum() for k in range(25)]
            check(f"{what} tail", (t.all(f"tail.{quantity}", what="count", **key) == over).all() and (t.all(f"tail.{quantity}", what="n", **key) == len(v)).all()
                  and close(t.all(f"tail.{quantity}", **key), np.array(over) / len(v)) and close(t.all(f"tail.{quantity}", what="x", **key), .25 * np.arange(25)))
            check(f"{what} kurtosis", close(t.one(f"kurtosis.{quantity}", **key), len(v) * (v**4).sum() / (v**2).sum()**2))


def running_means(t, what, head, p, mine, R):
    for k in mine:
        points = [n for n in POINTS if n <= len(R[k])]
        check(f"{what} running mean of {k}", close(t.all("running_mean", head, p, k, what="x"), points)
              and close(t.all("running_mean", head, p, k), [R[k][:n, 0].mean() for n in points]))
    points = [n for n in POINTS if n <= max(len(R[k]) for k in mine)]
    long = [[k for k in mine if len(R[k]) >= n] for n in points]
    check(f"{what} ensemble", close(t.all("running_mean", head, p), [np.mean([R[k][:n, 0].mean() for k in ks]) for n, ks in zip(points, long)])
          and close(t.all("running_mean", head, p, what="n"), [len(ks) for ks in long]))


def long_way(folder):
    rng = np.random.default_rng(5)
    D, prompts = 7, [0, 1, 0, 2, 0, 1]
    starts = [rng.integers(3, 200, n) for n in (9, 14, 1)]
    paths, full = [], []
    for k, p in enumerate(prompts):
        n = [70, 55, 90, 8, 40, 200][k]
        v = {h: np.cumsum(rng.normal(size=(len(starts[p]) + n, D)), 0) * .3 + rng.normal(size=(len(starts[p]) + n, D)) * np.arange(1, D + 1)
             for h in ("L0H0", "L1H1")}
        v = {h: x.astype(np.float32).astype(float) for h, x in v.items()}
        ids = np.r_[starts[p], rng.integers(3, 200, n)]
        paths.append(trace(os.path.join(folder, f"{k}.kvf"), v, ids, len(starts[p])))
        full.append(v)
    heads = ("L0H0", "L1H1")
    for split, train, m, seed in (("time", .75, 8, 0), ("time", .5, 3, 7), ("rollouts", .75, 4, 2)):
        t = Table(*paths, "--split", split, "--train", train, "--components", m, "--seed", seed)
        check("meta", (t.meta["runs"], t.meta["prompts"], t.meta["rope"], t.meta["vectors"]) == ("6", "3", "pre", "463"), t.meta)
        for h in heads:
            compare(f"{split} {m}", t, h, [v[h][len(starts[p]):] for v, p in zip(full, prompts)], prompts, train, min(m, D), split, seed)
    t = Table(*paths, "--steps", "all", "--head", "1.1", "--components", 2)
    compare("all", t, "L1H1", [v["L1H1"] for v in full], prompts, .75, 2)
    t = Table(paths[1], paths[5], "--steps", "prompt", "--components", 2, "--tokens", "2:13")
    compare("prompt", t, "L0H0", [full[k]["L0H0"][2:13] for k in (1, 5)], [0, 0], .75, 2)
    many = Table(*paths[:1] * 40, "--head", "L0H0")
    once = Table(paths[0], "--head", "L0H0")
    check("40 equal runs", many.meta["prompts"] == "1" and close(many.all("eigenvalue.real", prompt=0), once.all("eigenvalue.real", prompt=0)))
    a, b = (subprocess.run([kvfate, "attention", "--as", "dynamics", *paths, "-o", "-"], capture_output=True).stdout for _ in range(2))
    check("bytes", a == b and len(a) > 10000)


# ---- closed forms

def simulate(rng, A, b, noise, n):
    x, out = np.linalg.solve(np.eye(len(A)) - A, b), []
    for e in noise(rng, (n + 100, len(A))):
        x = A @ x + b + e
        out.append(x)
    return np.array(out[100:])


def laplace(rng, shape):
    return rng.laplace(0, math.sqrt(.5), shape)


def normal(rng, shape):
    return rng.normal(0, 1, shape)


def closed_forms(folder):
    """Check standard errors: of an eigenvalue of a normal A with isotropic noise, sqrt((1 - |l|^2) / n); of a fraction
    p, sqrt(p (1 - p) / n).
    """
    rng = np.random.default_rng(11)
    q, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    turn = .9 * np.array([[math.cos(.4), -math.sin(.4)], [math.sin(.4), math.cos(.4)]])
    A = q @ np.block([[turn, np.zeros((2, 2))], [np.zeros((2, 2)), np.diag([.5, -.7])]]) @ q.T
    runs = [simulate(rng, A, np.array([1., 2, 3, 4]), normal, 4000) for _ in range(3)]
    ids = np.arange(4000) % 50
    paths = [trace(os.path.join(folder, f"s{k}.kvf"), {"L0H0": r}, ids, 0) for k, r in enumerate(runs)]
    t = Table(*paths)
    n, want = 9000, np.array([.9 * np.exp(.4j), .9 * np.exp(-.4j), -.7, .5])
    got = t.all("eigenvalue.real", prompt=0) + 1j * t.all("eigenvalue.imaginary", prompt=0)
    check("eigenvalues", (abs(got - want) < 5 * np.sqrt((1 - abs(want)**2) / n)).all() and t.one("stable") == 1, got)
    # var of a coordinate of modulus l is 1 / (1 - l^2): R2 = sum l^2 / (1 - l^2) / sum 1 / (1 - l^2)
    var = 1 / (1 - abs(want)**2)
    r2 = (abs(want)**2 * var).sum() / var.sum()
    check("R2", abs(t.one("r2.test") - r2) < .03 and abs(t.one("r2.train", prompt=0) - r2) < .03, t.one("r2.test"), r2)
    check("surrogate", t.one("spectral_radius", surrogate=1) < .06 and abs(t.one("r2.test", surrogate=1)) < .01, t.one("r2.test", surrogate=1))
    sigma = np.sqrt((t.all("sigma", prompt=0)**2).sum())
    check("sigma", abs(sigma / np.sqrt(var.sum()) - 1) < .05, sigma, np.sqrt(var.sum()))
    tails(t, 36000, "Gaussian")
    check("kurtosis of a Gaussian", abs(t.one("kurtosis.train") - 3) < 5 * math.sqrt(24 / 36000), t.one("kurtosis.train"))
    # one number: x' = .8 x + 1 + e with e of a Laplace law of variance 1; mean 5, sigma 1 / .6
    run = simulate(rng, np.array([[.8]]), np.array([1.]), laplace, 24000)
    t = Table(trace(os.path.join(folder, "l.kvf"), {"L0H0": run}, np.arange(24000) % 50, 0))
    n = 18000
    check("one number", abs(t.one("eigenvalue.real", prompt=0) - .8) < 5 * .6 / math.sqrt(n), t.one("eigenvalue.real", prompt=0))
    mean = t.one("mean", prompt=0) + run[:n].mean()  # components are about the mean of the training part
    check("mean of one", abs(mean - 5) < 5 * 5 / math.sqrt(n) and abs(t.one("sigma", prompt=0) - 1 / .6) < .1, mean, t.one("sigma", prompt=0))
    check("R2 of one", abs(t.one("r2.test") - .64) < .04 and t.one("explained", index=0) == 1, t.one("r2.test"))
    tails(t, n, "exponential")
    check("kurtosis of a Laplace law", 5.3 < t.one("kurtosis.train") < 6.9, t.one("kurtosis.train"))


def tails(t, n, law):
    p, ref = t.all("tail.train"), t.all(f"tail.{law.lower()}")
    x = .25 * np.arange(25)
    check(f"law {law}", close(ref, [math.erfc(v / math.sqrt(2)) for v in x] if law == "Gaussian" else np.exp(-math.sqrt(2) * x), 1e-14))
    check(f"tail {law}", (abs(p - ref) < 5 * np.sqrt(ref * (1 - ref) / n) + 2 / n).all(), p - ref)


def by_hand(folder):
    """Check x = 8, 5, 3.5, 2.75, ... of x' = x / 2 + 1: A = 1/2 without residuals, so there are no innovations."""
    x = [8.]
    for _ in range(7):
        x.append(x[-1] / 2 + 1)
    t = Table(trace(os.path.join(folder, "h.kvf"), {"L0H0": np.array(x)[:, None]}, [1] * 3 + [2] * 5, 0))
    check("hand", close([t.one(q, prompt=0) for q in ("eigenvalue.real", "spectral_radius", "r2.train", "r2.test")], [.5, .5, 1, 1], 1e-12))
    # the first 6 are known: 8 + 5 + 3.5 + 2.75 + 2.375 + 2.1875 = 23.8125, their mean 3.96875; the fixed point is 2
    check("hand mean", close(t.one("mean", prompt=0), 2 - 3.96875, 1e-12), t.one("mean", prompt=0))
    check("hand running mean", close(t.all("running_mean", prompt=0), np.array([8, 6.5, 5.5, 4.8125, 23.8125 / 6, 27.953125 / 8]) - 3.96875, 1e-6), t.all("running_mean", prompt=0))
    check("hand n", t.one("r2.train", prompt=0, what="n") == 5 and t.one("r2.test", prompt=0, what="n") == 2)
    check("hand no innovations", np.isnan(t.all("tail.train")).all() and (t.all("tail.train", what="n") == 0).all() and math.isnan(t.one("kurtosis.test")))


def edges(folder):
    p = os.path.join(folder, "e.kvf")
    for n in (0, 1, 2, 5):
        trace(p, {"L0H0": np.random.default_rng(n).normal(size=(n, 2))}, [1] * n, 0)
        t = Table(p)
        have = t.one("components")
        check(f"{n} steps", have == {0: 0, 1: 0, 2: 0, 5: 2}[n] and (n < 5 or math.isnan(t.one("r2.test"))) and (int(t.meta["undefined"]) > 0) == (n == 5), have, t.meta)
        said = subprocess.run([kvfate, "attention", "--as", "dynamics", p], capture_output=True, text=True)
        check(f"{n} steps said", ended_well(said) and (n < 5) == ("undefined" not in said.stdout), said)
    rng = np.random.default_rng(1)
    flat = rng.normal(size=(60, 1)) * np.array([[1., 2, 3]]) + 5  # on a line
    trace(p, {"L0H0": flat}, [1] * 60, 0)
    t = Table(p)
    check("on a line", t.all("explained")[0] > 1 - 1e-12 and t.one("components") <= 3)
    trace(p, {"L0H0": np.full((60, 3), 7.)}, [1] * 60, 0)
    check("all equal", Table(p).one("components") == 0)
    wrong = rng.normal(size=(60, 3))
    wrong[31, 1] = np.nan
    trace(p, {"L0H0": wrong}, [1] * 60, 0)
    refused("NaN", 1, ["attention", "--as", "dynamics", p], "step 31")
    run = rng.normal(size=(60, 3))
    trace(p, {"L0H0": run}, [1] * 60, 60)
    check("a prompt alone", Table(p).one("components") == 0 and Table(p, "--steps", "all").one("components") == 3)
    trace(p, {"L0H0": run}, [1] * 60, 0, "post")
    check("post", Table(p).meta["rope"] == "post" and Table(p, "--rope", "post").meta["rope"] == "post")
    refused("no pre", 1, ["attention", "--as", "dynamics", p, "--rope", "pre"], "query.pre.LxHy", "--watch-queries")
    refused("no such head", 1, ["attention", "--as", "dynamics", p, "--head", "L1H1"], "heads chosen")
    refused("a KV head", 2, ["attention", "--as", "dynamics", p, "--head", "L0K0"], "query")
    other = trace(os.path.join(folder, "o.kvf"), {"L0H1": run}, [1] * 60, 0, "post")
    refused("another head", 1, ["attention", "--as", "dynamics", p, other], "trace 2 lacks query.post.L0H0.d00")
    for k, m in enumerate(({"model": {"hash": "a"}}, {"model": {"hash": "b"}})):
        trace(os.path.join(folder, f"m{k}.kvf"), {"L0H0": run}, [1] * 60, 0, meta=m)
    refused("another model", 2, ["attention", "--as", "dynamics", *(os.path.join(folder, f"m{k}.kvf") for k in range(2))], "trace 2", "another model")
    make(write_kvf, other, [Column("tokens.id", "i32", "run", [1])], (1, 1, 1, 1))
    refused("no vectors", 1, ["attention", "--as", "dynamics", other], "--watch-queries HEADS")
    for option, value, word in (("--components", "0", "between 1 and 16"), ("--components", "17", "between 1 and 16"), ("--train", "0", "between 0 and 1"), ("--train", "1", "between"),
                                ("--train", "x", "number"), ("--steps", "some", "answer, prompt or all"), ("--split", "x", "time or rollouts"),
                                ("--rope", "mid", "pre or post"), ("--seed", "-1", "between 0")):
        refused(f"{option} {value}", 2, ["attention", "--as", "dynamics", p, option, value], word)


def without_lapack(folder):
    """Check an invalid library file: one message, and other commands do not need it."""
    p = trace(os.path.join(folder, "l.kvf"), {"L0H0": np.random.default_rng(3).normal(size=(60, 3))}, [1] * 60, 0)
    with open(os.path.join(folder, "liblapack.so.3"), "wb") as f:
        f.write(b"no library\n")
    env = {**os.environ, "LD_LIBRARY_PATH": folder}
    said = subprocess.run([kvfate, "attention", "--as", "dynamics", p], capture_output=True, text=True, env=env)
    check("no LAPACK", said.returncode == 1 and not said.stdout and said.stderr.count("\n") == 1
          and "LAPACK cannot be loaded" in said.stderr and "liblapack3" in said.stderr, said)
    said = subprocess.run([kvfate, "trace", "info", p], capture_output=True, text=True, env=env)
    check("info without LAPACK", said.returncode == 0 and not said.stderr, said)


with tempfile.TemporaryDirectory() as folder:
    by_hand(folder)
    long_way(folder)
    closed_forms(folder)
    edges(folder)
    without_lapack(folder)
finish()
