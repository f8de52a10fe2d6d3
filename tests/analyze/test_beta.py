#!/usr/bin/env python3
"""Check retention, sparsity and tokens from the recorded log beta, against sums over all cells in numpy, and errors."""
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, kvfate, refused  # noqa: E402
from maker import AGE, ALIVE, SNAPSHOT, Column, make, table

write_kvf = os.path.abspath(sys.argv[2])
L, H, G, T = 3, 2, 4, 57


def close(name, got, want, tolerance=1e-13):
    got = np.array([np.nan if x is None else x for x in got], float)
    want = np.asarray(want, float).ravel()
    ok = got.shape == want.shape and np.allclose(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
    check(name, ok, got[:6], want[:6])


rng = np.random.default_rng(8)
# all values of a gate: near 0 as at the start of training (z = 18), long lived, short lived; exactly 0
log_beta = -np.exp(rng.uniform(-19, 3, (L, H, T)))
log_beta[:, :, ::9] = 0
log_beta[1, 0] = 0
log_beta[2, 1, 5] = -3e38
log_beta = log_beta.astype(np.float32).astype(float)
age = np.where(rng.uniform(size=(L, G, T)) < .2, -1, np.floor(rng.uniform(size=(L, G, T)) * (T - np.arange(T))))
evict = np.minimum(np.arange(T) + 1 + rng.integers(0, 70, (L, H, T)), T + 5)
evict = np.where(evict > T, ALIVE, evict)

# m[l, h, t, i] = beta_i^(t - i), 0 above the diagonal: every cell
t, i = np.arange(T)[:, None], np.arange(T)[None, :]
with np.errstate(over="ignore", under="ignore"):
    m = np.where(t >= i, np.exp(np.where(t > i, t - i, 0) * log_beta[:, :, None, :]), 0)
mean = m.sum(2) / (T - np.arange(T))

COLUMNS = [
    Column("log_beta", "f32", "kv", log_beta),
    Column("last_selected.top64", "u32", "query", np.where(age < 0, 0xffffffff, age), flags=SNAPSHOT | AGE),
    Column("evict_step", "u32", "kv", evict, flags=SNAPSHOT),
    Column("tokens.id", "u32", "run", np.arange(T)), Column("tokens.role", "u8", "run", np.zeros(T)),
]


def retention(x, no_ages):
    data, meta = table(kvfate, "retention", x)
    check("source", meta["source"] == "gate" and set(data["source"]) == {"gate"})
    check("heads", data["head"] == [f"L{l}K{h}" for l in range(L) for h in range(H) for _ in range(T)])
    check("layers", data["layer"] == [l for l in range(L) for _ in range(H * T)] and data["token"] == list(range(T)) * L * H == data["birth"])
    close("log beta", data["log_beta"], log_beta)
    close("beta", data["beta"], np.exp(log_beta))
    close("mean retention", data["mean_retention"], mean)
    most = age.reshape(L, H, G // H, T).max(2)
    close("age of the group", data["last_use_age"], most if x != no_ages else np.full((L, H, T), -1))
    check("criterion", meta.get("criterion") == ("top64" if x != no_ages else None), meta)
    part, _ = table(kvfate, "retention", x, "--head", "L1-2K1", "--tokens", "7:50")
    close("a part of heads and tokens", part["mean_retention"], mean[1:, 1, 7:50])
    close("ages of the part", part["last_use_age"], (most if x != no_ages else np.full_like(most, -1))[1:, 1, 7:50])


def last_use(x):
    data, meta = table(kvfate, "retention", x, "--source", "last-use")
    check("last-use", meta["source"] == "last-use" and data["head"][T] == "L0H1" and set(data["beta"]) == {None})
    close("last-use ages", data["last_use_age"], age)


def sparsity(x):
    cells = np.where(t >= i, 1, 0)
    for strict in (False, True):
        inside = m * (t > i) if strict else m
        more = ["--triangle", "lt" if strict else "le"]
        data, meta = table(kvfate, "size", "--as", "sparsity", x, "--kind", "beta", *more)
        close(f"sparsity {more}", data["sparsity"], 1 - 2 / (T * (T + 1)) * inside.sum((2, 3)), 1e-12)
        check("kind", set(data["kind"]) == {"beta"} and data["head"] == [f"L{l}K{h}" for l in range(L) for h in range(H)])
        data, _ = table(kvfate, "size", "--as", "sparsity", x, "--kind", "beta", "--tokens", "7:50", "--head", "2.1", *more)
        close(f"sparsity of tokens {more}", data["sparsity"], 1 - inside[2, 1, :, 7:50].sum() / cells[:, 7:50].sum(), 1e-12)
    data, _ = table(kvfate, "size", "--as", "sparsity", x, "--kind", "beta", "--head", "L1K0")
    close("beta = 1 everywhere", data["sparsity"], [0], 1e-15)


def tokens(x):
    data, _ = table(kvfate, "tokens", x)
    close("mean beta", data["mean_beta"], np.exp(log_beta).mean((0, 1)))
    close("mean of mean retention", data["mean_retention"], mean.mean((0, 1)))
    data, _ = table(kvfate, "tokens", x, "--head", "L0K1,L2K0", "--tokens", "10:20")
    close("mean beta of two heads", data["mean_beta"], (np.exp(log_beta[0, 1]) + np.exp(log_beta[2, 0]))[10:20] / 2)
    life = np.minimum(evict, T) - np.arange(T)
    close("residency", table(kvfate, "tokens", x)[0]["mean_residency"], (life / (T - np.arange(T))).mean((0, 1)), 1e-12)


def pictures(x, folder):
    for argv in (["retention"], ["retention", "--source", "last-use"], ["retention", "--head", "L0K0", "--tokens", "9:"],
                 ["size", "--as", "sparsity", "--kind", "beta"], ["tokens", "--style", "by=beta"], ["tokens", "--style", "by=retention"]):
        out = os.path.join(folder, "x.svg")
        r = subprocess.run([kvfate, argv[0], x, *argv[1:], "-o", out], capture_output=True, text=True)
        check(f"picture {argv}", r.returncode == 0 and os.path.getsize(out) > 1000, r.stderr)


with tempfile.TemporaryDirectory(prefix="kvfate-beta-") as folder:
    def path(name):
        return os.path.join(folder, name)

    x = make(write_kvf, path("x.kvf"), COLUMNS, (L, H, G, T))
    few = make(write_kvf, path("few.kvf"), COLUMNS[:1] + COLUMNS[2:], (L, H, G, T))
    bare = make(write_kvf, path("bare.kvf"), COLUMNS[1:], (L, H, G, T))
    for trace in (x, few):
        retention(trace, few)
        sparsity(trace)
        tokens(trace)
    last_use(x)
    pictures(x, folder)
    check("default without gates", table(kvfate, "retention", bare)[1]["source"] == "last-use")
    check("tokens without gates", set(table(kvfate, "tokens", bare)[0]["mean_beta"]) == {None}
          and set(table(kvfate, "tokens", bare)[0]["mean_retention"]) == {None})
    for name, argv in (("summary", ["retention", x]), ("summary of sparsity", ["size", "--as", "sparsity", x, "--kind", "beta"])):
        r = subprocess.run([kvfate, *argv], capture_output=True, text=True)
        check(name, r.returncode == 0 and "beta" in r.stdout and "nan" not in r.stdout, r.stdout)
    refused("no gates", 1, ["retention", bare, "--source", "gate"], "log_beta", "--gates")
    refused("no gates: sparsity", 1, ["size", "--as", "sparsity", bare, "--kind", "beta"], "log_beta", "--gates")
    refused("no ages", 1, ["retention", few, "--source", "last-use"], "last_selected.top64")
    refused("unknown source", 2, ["retention", x, "--source", "beta"], "--source")
    refused("unknown kind", 2, ["size", "--as", "sparsity", x, "--kind", "gate"], "alpha, beta or last-use")
    refused("query heads of gates", 2, ["retention", x, "--head", "L0H1"], "KV heads")
    refused("unknown colouring", 2, ["tokens", x, "--style", "by=gate", "-o", path("y.png")], "by is auto, kept, residency")
    # NaN, and a run without tokens
    holes = log_beta.copy()
    holes[0, 0, 3] = np.nan
    y = make(write_kvf, path("y.kvf"), [Column("log_beta", "f32", "kv", holes), *COLUMNS[1:]], (L, H, G, T))
    check("an entry without a number", table(kvfate, "retention", y)[0]["mean_retention"].count(None) == 1)
    check("its head", [v is None for v in table(kvfate, "size", "--as", "sparsity", y, "--kind", "beta")[0]["sparsity"]] == [True] + [False] * 5)
    pictures(y, folder)
    none = make(write_kvf, path("none.kvf"), [Column("log_beta", "f32", "kv", np.zeros((L, H, 0)))], (L, H, G, 0))
    check("no tokens", table(kvfate, "retention", none)[0]["head"] == []
          and table(kvfate, "size", "--as", "sparsity", none, "--kind", "beta")[0]["sparsity"] == [None] * 6)

finish()
