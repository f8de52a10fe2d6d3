#!/usr/bin/env python3
"""Check kvfate survival, block-exit and decay on lives of known law (laws.py): bias and coverage of their estimates,
the values of the library lifelines (lifelines.json, made by make_lifelines.py), and the fits against a grid.

usage: test_decay.py KVFATE WRITE_KVF ...
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import laws  # noqa: E402
from check import check, finish, kvfate, real, refused, said  # noqa: E402
from maker import table

kvfate, write_kvf = map(os.path.abspath, sys.argv[1:3])
HERE = os.path.dirname(os.path.abspath(__file__))
REPLICATES, T, HORIZONS = 200, 600, [4, 32, 128]


def near(name, got, want, tolerance):
    got, want = (v if np.ndim(v) else [v] for v in (got, want))
    check(name, np.allclose(real(got), real(want), rtol=tolerance, atol=tolerance, equal_nan=True), got, want)


def against_lifelines(path):
    with open(os.path.join(HERE, "lifelines.json"), encoding="ascii") as f:
        said_ = json.load(f)
    for k, (law, want) in enumerate(said_["laws"].items()):
        last = laws.draw(np.random.default_rng(100 + k), law, (1, said_["T"]))
        x = laws.write(write_kvf, path, last)
        common = ["--head", "L0H0", "--grace", said_["grace"], "--at-least", said_["at_least"]]
        data, _ = table(kvfate, "survival", x, "--criterion", "top64", *common, "--mean-to", said_["mean_to"], "--horizons", ",".join(map(str, said_["ages"])))
        n = len(said_["ages"])
        near(f"lifelines {law}: survival", data["survival"][:n], want["survival"], 1e-9)
        S, G = np.array(want["survival"]), np.array(want["greenwood"])
        inside = (S > 0) & (S < 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = [np.exp(-np.exp(np.log(-np.log(S)) + s * 1.959963984540054 * np.sqrt(G) / -np.log(S)))[inside] for s in (1, -1)]
        near(f"lifelines {law}: log-log interval", [*real(data["survival_low"][:n])[inside], *real(data["survival_high"][:n])[inside]], [*ends[0], *ends[1]], 1e-9)
        near(f"lifelines {law}: half-life", data["half_life"][:1], [want["half_life"]], 0)
        near(f"lifelines {law}: restricted mean", data["rmst"][:1], [want["rmst"]], 1e-9)
        data, _ = table(kvfate, "survival", "--as", "decay", x, *common, "--from", 0)
        w, got = want["weibull"], {c: data[c][data["law"].index("weibull")] for c in ("value", "scale", "log_likelihood", "low", "high")}
        near(f"lifelines {law}: Weibull", [got["value"], got["scale"]], [w["shape"], w["scale"]], 2e-4)
        check(f"lifelines {law}: no likelihood is better", 0 <= got["log_likelihood"] - w["log_likelihood"] < 1e-4, got, w)
        near(f"lifelines {law}: error of the shape", np.log(got["high"] / got["low"]) / 2 / 1.959963984540054, w["shape_error"], 2e-2)


def log_share(law, x, n):
    """Return the logarithm of the fraction that survives n steps after age 0 under (scale, value)."""
    scale, shape = x
    return -scale * (np.log1p(n) if law == "power" else n**shape)


def likelihood(law, x, a, c):
    dies = a < c
    m = np.minimum(a, c).astype(float)
    alive = log_share(law, x, m)
    return np.sum(np.where(dies, alive + np.log(-np.expm1(log_share(law, x, m + 1) - alive)), alive))


def against_grid(path):
    """Check each law's likelihood from the definition at the estimate, and that it is lower around it; gains, AIC, p."""
    rng = np.random.default_rng(7)
    for law in laws.LAWS:
        last = laws.draw(rng, law, (1, T))
        x = laws.write(write_kvf, path, last)
        data, meta = table(kvfate, "survival", "--as", "decay", x, "--head", "L0H0", "--from", 0)
        a, c, _ = laws.lives(last[0], 64, 20)
        a, c = a[c > 0], c[c > 0]  # observed for a step
        check("decay: options", [meta[k] for k in ("grace", "at_least", "from")] == ["64", "20", "0"], meta)
        best = {}
        for k, name in enumerate(("geometric", "weibull", "power")):
            row = {key: v[k] for key, v in data.items()}
            shape = row["value"] if name == "weibull" else 1.
            at = likelihood(name, (row["scale"], shape), a, c)
            check(f"{law} {name}: counts", row["law"] == name and row["tokens"] == len(a) and row["events"] == (a < c).sum(), row)
            near(f"{law} {name}: likelihood", row["log_likelihood"], at, 1e-10)
            near(f"{law} {name}: AIC", row["aic"], 2 * (1 + (name == "weibull")) - 2 * at, 1e-10)
            for step in (1e-3, 1e-5):
                for u, v in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, -1), (1, -1), (-1, 1)):
                    if v == 0 or name == "weibull":
                        check(f"{law} {name}: maximum", likelihood(name, (row["scale"] * (1 + u * step), shape * (1 + v * step)), a, c) <= at + 1e-9, u, v)
            if name == "geometric":
                near(f"{law}: beta", row["value"], 1 - (a < c).sum() / np.minimum(a + (a < c), c).sum(), 1e-9)
            best[name] = row
        check(f"{law}: best", [r["best"] for r in best.values()] == [int(r["aic"] == min(y["aic"] for y in best.values())) for r in best.values()])
        against_counts(law, data, a, c, best)
        base = best["geometric"]
        for name in ("weibull", "power"):
            row = best[name]
            each = np.array([likelihood(name, (row["scale"], row["value"] if name == "weibull" else 1.), a[i:i + 1], c[i:i + 1])
                             - likelihood("geometric", (base["scale"], 1.), a[i:i + 1], c[i:i + 1]) for i in range(len(a))])
            z = 1.959963984540054 * each.std() / np.sqrt(len(a))
            near(f"{law} {name}: gain", [row["gain"], row["gain_low"], row["gain_high"]], [each.mean(), each.mean() - z, each.mean() + z], 1e-8)


def against_counts(law, data, a, c, fits):
    """Check the observed fraction, its interval and the distance of each law against counts of lives: the fraction alive
    after m steps is a product over the steps before m.
    """
    alive, variance = [1.], [0.]
    for m in range(c.max()):
        risk, died = ((a >= m) & (c > m)).sum(), ((a == m) & (c > m)).sum()
        alive.append(alive[-1] * (1 - died / risk) if risk else alive[-1])
        with np.errstate(divide="ignore", invalid="ignore"):
            variance.append(variance[-1] + died / (risk * (risk - died)))
    at = [k for k, name in enumerate(data["law"]) if name == "observed" and data["head"][k] == "L0H0"]
    ages, seen = [data["age"][k] for k in at], real([data["value"][k] for k in at])
    end = max(m for m in range(len(alive)) if (c >= m).sum() >= 20)
    check(f"{law}: about ten ages per decade", len(ages) > 15 and ages == sorted(set(ages)) and ages[0] == 1 and ages[-1] < T and ages[:6] == list(range(1, 7)), ages)
    check(f"{law}: observed to the last age that 20 tokens can show", [np.isfinite(v) for v in seen] == [n <= end for n in ages], end, ages, seen)
    ages = [n for n in ages if n <= end]
    S, G = np.array(alive)[ages], np.array(variance)[ages]
    near(f"{law}: observed", seen[:len(ages)], S, 1e-12)
    for column, sign in (("low", 1), ("high", -1)):
        got = real([data[column][k] for k in at])[:len(ages)]
        inside = (S > 0) & (S < 1)
        near(f"{law}: {column} of observed", got[inside], S[inside]**np.exp(sign * 1.959963984540054 * np.sqrt(G[inside]) / -np.log(S[inside])), 1e-9)
    for name, row in fits.items():
        steps = np.arange(end + 1.)
        fitted = np.exp(log_share(name, (row["scale"], row["value"] if name == "weibull" else 1.), steps))
        near(f"{law} {name}: distance", row["distance"], np.abs(fitted - alive[:end + 1]).max(), 1e-9)
        check(f"{law} {name}: age", row["age"] == 0, row)
    check(f"{law}: the true law is near, a power law is not", fits.get(law, fits["weibull"])["distance"] < .05 + .1 * (law not in fits) < fits["power"]["distance"], fits)


def coverage(name, low, high, true, point, least=.90, most=.99):
    low, high, point = real(low), real(high), real(point)
    share, bias = np.mean((low <= true) & (true <= high)), np.mean(point) - true
    print(f"{name:<34} true {true:9.5f}  bias {bias:+.5f} (spread {np.std(point):.5f})  coverage {share:.3f} of {len(point)}")
    check(f"{name}: bias", abs(bias) < 4 * np.std(point) / np.sqrt(len(point)) + 1e-9, bias, np.std(point))
    check(f"{name}: coverage", least <= share <= most, share)


def of_heads(data, key, **where):
    at = [k for k, h in enumerate(data["head"]) if h != "all" and all(data[c][k] == v for c, v in where.items())]
    return [data[key][k] for k in at]


def known_laws(path):
    """Check 200 heads of 600 tokens, which are 200 replicates of one law."""
    for k, law in enumerate(laws.LAWS):
        last = laws.draw(np.random.default_rng(20 + k), law, (REPLICATES, T))
        x = laws.write(write_kvf, path, last, last + 1)  # selected by all queries until the last one
        data, _ = table(kvfate, "survival", x, "--criterion", "top64", "--horizons", ",".join(map(str, HORIZONS)), "--mean-to", 100)
        for n in HORIZONS:
            coverage(f"{law}: survival({n})", *(of_heads(data, c, horizon=n) for c in ("survival_low", "survival_high")), float(laws.share(law, n)), of_heads(data, "survival", horizon=n))
        mean, error = (real(of_heads(data, c, horizon=4)) for c in ("rmst", "rmst_error"))
        coverage(f"{law}: restricted mean to 100", mean - 1.959963984540054 * error, mean + 1.959963984540054 * error, laws.share(law, np.arange(100)).sum(), mean)
        half = next(n for n in range(T) if laws.share(law, n) < .5)
        got = real(of_heads(data, "half_life", horizon=4))
        print(f"{law + ': half-life':<34} true {half:9d}  median {np.median(got):.1f}, quartiles {np.percentile(got, 25):.0f} to {np.percentile(got, 75):.0f}")
        check(f"{law}: half-life", abs(np.median(got) - half) <= max(1, .03 * half), np.median(got), half)
        for event in ("gone", "first-exit"):
            data, _ = table(kvfate, "survival", "--as", "block-exit", x, "--event", event, "--block", "1,32")
            for b in (1, 32) if law == "geometric" else ():
                coverage(f"{law}: epsilon, {event}, block {b}", of_heads(data, "low", block=b), of_heads(data, "high", block=b),
                         1 - laws.RETENTION**b, of_heads(data, "epsilon", block=b))
        data, _ = table(kvfate, "survival", "--as", "decay", x, "--from", 0)
        reject = np.mean(real(of_heads(data, "p", law="weibull")) < .05)
        print(f"{law + ': geometric is refused':<34} in {reject:.3f} of {REPLICATES}; the Weibull law is best in {np.mean(of_heads(data, 'best', law='weibull')):.3f}")
        if law == "geometric":
            coverage(f"{law}: beta", of_heads(data, "low", law="geometric"), of_heads(data, "high", law="geometric"), laws.RETENTION, of_heads(data, "value", law="geometric"))
            check("geometric: false alarms", .01 < reject < .1, reject)
        else:
            check(f"{law}: seen", reject > .99, reject)
        if law == "weibull":
            coverage(f"{law}: shape", of_heads(data, "low", law="weibull"), of_heads(data, "high", law="weibull"), laws.SHAPE, of_heads(data, "value", law="weibull"))


def recurrence(path):
    """Check a token that one query in five selects while it lives: a ratio of unequal follow-ups, and a death without a
    grace period, are wrong.
    """
    rng, heads = np.random.default_rng(31), 40
    lives = laws.draw(rng, "geometric", (heads, T))
    ages, true = np.arange(T), {}
    last, endless = np.empty((heads, T), np.int64), []
    for h in range(heads):
        chosen = (rng.random((T, 2 * T)) < .2) & (np.arange(2 * T) <= lives[h][:, None])
        chosen[:, 0] = True
        endless.append(2 * T - 1 - chosen[:, ::-1].argmax(1))
        seen = chosen & (np.arange(2 * T) <= (T - 1 - ages)[:, None])
        last[h] = 2 * T - 1 - seen[:, ::-1].argmax(1)
    x = laws.write(write_kvf, path, last)
    n, got = 100, {}
    true = np.mean(np.array(endless) >= n)
    for grace in (0, 64):
        data, _ = table(kvfate, "survival", x, "--criterion", "top64", "--horizons", n, "--grace", grace)
        got[grace] = np.mean(of_heads(data, "survival"))
    share = np.mean(of_heads(data, "fraction"))
    print(f"recurrent, survival({n})              true {true:9.5f}  grace 64 {got[64] - true:+.5f}, grace 0 {got[0] - true:+.5f}, fraction {share - true:+.5f}")
    check("recurrent: with a grace there is no bias", abs(got[64] - true) < .01, got, true)
    check("recurrent: without it there is", got[0] - true < -.01, got, true)


def edges(path):
    last = laws.draw(np.random.default_rng(1), "geometric", (1, 100))
    x = laws.write(write_kvf, path, last)
    for argv, word in ((["survival", "--as", "decay", "--from", "-1"], "--from"), (["survival", "--as", "decay", "--event", "x"], "--event"), (["survival", "--as", "decay", "--at-least", "0"], "--at-least"),
                       (["survival", "--as", "decay", "--space", "kv-union"], "--space")):
        refused(" ".join(argv), 2, [argv[0], x, *argv[1:]], word)
    refused("no first exits", 1, ["survival", "--as", "decay", x, "--event", "first-exit"], "first_unselected.top64", "--probes")
    for age in (100, 2000):
        refused(f"an age that no token reaches, {age}", 1, ["survival", "--as", "decay", x, "--from", age], f"no token reaches age {age} (--from); the oldest reaches age 99")
    r = subprocess.run([kvfate, "survival", "--as", "decay", x, "--tokens", "95:"], capture_output=True, text=True)
    check("no token reaches the default age: a note", r.returncode == 0 and "no token reaches age 8 (--from): nothing can be fitted" in r.stderr, r.stderr)
    refused("an age that no token of a range reaches", 1, ["survival", "--as", "decay", x, "--from", 60, "--tokens", "40:90"], "the oldest reaches age 59")
    check("text", "geometric" in said("survival", "--as", "decay", x) and "the best" in said("survival", "--as", "decay", x))
    for value in (0, 1000):  # all die at once; none dies
        data, _ = table(kvfate, "survival", "--as", "decay", laws.write(write_kvf, path, np.full((1, 100), value)), "--from", 0)
        fitted = [data[c][k] for c in ("value", "p", "gain", "distance") for k, name in enumerate(data["law"]) if name != "observed"]
        check(f"decay of {value}", not np.isfinite(real(fitted)).any() and not any(data["best"]), data)
        seen = [data["value"][k] for k, name in enumerate(data["law"]) if name == "observed" and data["age"][k] <= 35]
        check(f"observed of {value}", set(seen) == {float(value > 0)}, seen)
    said("survival", "--as", "decay", x)


with tempfile.TemporaryDirectory(prefix="kvfate-decay-") as folder:
    trace = os.path.join(folder, "x.kvf")
    against_lifelines(trace)
    against_grid(trace)
    known_laws(trace)
    recurrence(trace)
    edges(trace)
    finish()
