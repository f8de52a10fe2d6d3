#!/usr/bin/env python3
"""Check kvfate survival, hazard, persistence and intermittency: by hand, against the brute force of selections.py on
random traces, edge cases, and errors.

usage: test_selections.py KVFATE WRITE_KVF
"""
import itertools
import os
import sys
import tempfile

import numpy as np

import dense
import selections as brute

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, real, refused, said, words_of  # noqa: E402
from maker import AGE, ALIVE, SNAPSHOT, Column, make, table

kvfate, write_kvf = map(os.path.abspath, sys.argv[1:3])
CRITERIA = ["top64", "top128", "mass.95"]
K = {"top64": 64, "top128": 128, "top256": 256, "top512": 512}
COMINGS = ["n_selected", "n_returns", "longest_gap"]
QUANTITIES = ["selected", "returns", "longest-gap", "first-exit"]


def same(name, got, want, tolerance=1e-12):
    got, want = real(got), real(want)
    ok = got.shape == want.shape and np.allclose(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
    bad = [] if ok or got.shape != want.shape else np.flatnonzero(~np.isclose(got, want, rtol=tolerance, atol=tolerance, equal_nan=True))[:5]
    check(name, ok, [(int(k), got[k], want[k]) for k in bad] if len(bad) else (got.shape, want.shape))


class Made:
    """A trace from S[criterion][L, G, T, T] and evict [L, H, T] (inf = alive)."""
    count = itertools.count()

    def __init__(self, S, H, evict=None, texts=(), drop=(), narrow=True, extra=()):
        first = next(iter(S.values()))
        self.L, self.G, self.T = first.shape[:3]
        self.S, self.H, self.share = S, H, self.G // H
        self.evict = np.full((self.L, H, self.T), np.inf) if evict is None else evict
        self.alpha = dense.alpha_of(self.evict, self.T)
        wide, columns = "u16" if narrow else "u32", []
        for c, s in S.items():
            last = np.array([[brute.last_age(x) for x in layer] for layer in s]).reshape(self.L, self.G, self.T)
            out = dense.first_unselected(s)
            columns += [Column("last_selected." + c, wide, "query", np.where(last < 0, np.nan, last), flags=SNAPSHOT | AGE),
                        Column("selected_at." + c, "u32", "query", dense.selected_at(s), flags=SNAPSHOT),
                        Column("first_unselected." + c, wide, "query", np.where(out < 0, np.nan, out), flags=SNAPSHOT | AGE)]
            if c in ("top64", "mass.95"):
                columns += [Column(f"{k}.{c}", wide, "query", v, flags=SNAPSHOT) for k, v in zip(COMINGS, brute.returns(s))]
        columns.append(Column("evict_step", "u32", "kv", np.where(np.isinf(self.evict), ALIVE, self.evict)))
        columns += [Column("tokens.id", "i32", "run", np.arange(self.T)), Column("tokens.role", "u8", "run", np.zeros(self.T))]
        self.path = os.path.join(folder, f"{next(self.count)}.kvf")
        make(write_kvf, self.path, [c for c in columns if c.name not in drop] + list(extra), (self.L, H, self.G, self.T), {"method": {"name": "made-up"}}, texts=texts)

    def asks(self, layer, kv, top):
        return self.alpha[layer, kv].sum(1) > top if top else np.ones(self.T, bool)

    def rows(self, space, c):
        """Yield (name, layer, index, KV head, members) of each head."""
        for l, h, name in brute.rows_of(space, self.L, self.H, self.G):
            yield name, l, h, h // self.share if space == "query" else h, brute.members_of(space, self.S[c], l, h, self.share)


def random_sets(rng, L, G, T, alpha, H, keep):
    """Return selected sets of seen entries with any persistence; a query that sees no more than K selects all."""
    t, i = np.arange(T)[:, None], np.arange(T)[None, :]
    S = {}
    for c in CRITERIA:
        rate = rng.random((L, G, 1, T)) ** 3 * keep
        s = (rng.random((L, G, T, T)) < rate * np.exp(-np.maximum(t - i, 0) * rng.random((L, G, 1, T)) / 9) + (rng.random((L, G, 1, T)) < .15) * .3) & (i <= t)
        seen = np.repeat(alpha, G // H, axis=1)
        s &= seen
        if c in K:
            s |= seen & (seen.sum(-1, keepdims=True) <= K[c])
        S[c] = s
    return S


# ---- each analyzer against the brute force

def column_of(data, want, keys):
    for k, name in enumerate(keys):
        yield name, data[name], [w[k] for w in want]


def check_survival(name, m, space="query", skip=False, everyone=False, follow=0, horizons=(0, 1, 2, 5, 9, 33, 64, 70, 500), a=0, b=None, gaps=()):
    options = ["--space", space, "--horizons", ",".join(map(str, horizons)), "--criterion", ",".join(CRITERIA), "--at-least", "1"]
    options += ["--skip-trivial"] * skip + ["--denominator", "all"] * everyone + (["--follow-up", follow] if follow else [])
    options += ["--gap", ",".join(x + "," + y for x, y in gaps)] if gaps else []
    options += ["--tokens", f"{a}:{b}"] if b is not None else []
    data, meta = table(kvfate, "survival", m.path, *options)
    tokens = [i for i in range(a, m.T if b is None else min(b, m.T)) if m.T - 1 - i >= follow]
    want = []
    for c in [*CRITERIA, *gaps]:
        top = (K.get(c, 0) if isinstance(c, str) else max(K.get(x, 0) for x in c)) if skip else 0
        heads, sums = [], {n: np.zeros(3, int) for n in horizons}
        for row in m.rows(space, c if isinstance(c, str) else c[0]):
            head, l, h, kv, members = row
            asks = m.asks(l, kv, top)
            for n in horizons:
                if isinstance(c, str):
                    x = brute.survival(members, n, tokens, asks, everyone)
                else:
                    other = brute.members_of(space, m.S[c[1]], l, h, m.share)
                    x = brute.gap(members, other, n, tokens, asks)
                sums[n] += x
                heads.append((head, l, h, n, *x))
        heads += [("all", -1, -1, n, *map(int, sums[n])) for n in horizons]
        label = c if isinstance(c, str) else f"{c[1]}-{c[0]}"
        want += [(*r[:3], label, *r[3:], r[5] / r[4] if r[4] else np.nan) for r in heads]
    for key, got, right in column_of(data, want, ("head", "layer", "index", "criterion", "horizon", "at_risk", "alive", "undecided", "fraction")):
        if key in ("head", "criterion"):
            check(f"{name}: {key}", got == right, got[:5], right[:5])
        else:
            same(f"{name}: {key} {space}", got, right)
    check(f"{name}: space", meta["space"] == space and ("left_out" in meta) == skip, meta)
    return data, want


def check_curve(name, m, space="query", skip=False, grace=5, follow=0, at_least=1, a=0, b=None, mean_to=11):
    """Check product limit, Greenwood, counts of the steps, half-life and restricted mean, of each head and of all."""
    horizons = [0, 33, 3, 7, 90, 7, m.T - 1, m.T + 4]
    options = ["--space", space, "--horizons", ",".join(map(str, horizons)), "--criterion", ",".join(CRITERIA), "--at-least", at_least, "--grace", grace,
               "--mean-to", mean_to, "--follow-up", follow] + ["--skip-trivial"] * skip + (["--tokens", f"{a}:{b}"] if b is not None else [])
    data, meta = table(kvfate, "survival", m.path, *options)
    check(f"{name}: grace", [meta[k] for k in ("grace", "at_least", "mean_to")] == [str(grace), str(at_least), str(mean_to)], meta)
    tokens, want, halves = [i for i in range(a, m.T if b is None else min(b, m.T)) if m.T - 1 - i >= follow], [], [0, 0, 0]
    for c in CRITERIA:
        pooled, torn, most = [], False, 0
        heads = []
        for head, l, h, kv, members in m.rows(space, c):
            asks = m.asks(l, kv, K.get(c, 0) if skip else 0)
            end = max(np.flatnonzero(asks), default=-1) + 1
            last = [(s[:, i].nonzero()[0].max(initial=-1), i) for x in members for s in x for i in tokens]
            open_ = any(q >= 0 and not asks[q] and asks[i:q].any() for q, i in last)
            torn, most = torn or open_, max(most, end)
            mine = brute.lives(members, tokens, end, grace, asks)
            pooled += mine
            heads.append((mine, end, open_))
        for known, end, open_ in heads + [(pooled, most, torn)]:
            follows = sorted((end - 1 - i - grace for i in tokens), reverse=True)
            to = follows[at_least - 1] if len(follows) >= at_least and not open_ else -2
            S = brute.kaplan_meier(known, to) if to >= 0 else []
            S = S[:next((n for n, x in enumerate(S) if np.isnan(x[0])), len(S))]
            half = next((n for n, x in enumerate(S) if x[0] < .5), None)
            halves[0 if half is not None else 1 if S else 2] += 1
            risk = [sum(x >= n - 1 and z > n - 1 for x, z in known) for n in range(len(S))]
            ends = [brute.log_log(*S[n], risk[n]) for n in range(len(S))]
            low, high = (next((n for n, x in enumerate(ends) if x[k] < .5 or S[n][0] == 0 and k), np.nan) for k in (0, 1))
            mean = brute.restricted_mean(known, mean_to) if 0 < mean_to <= len(S) else (np.nan, np.nan)
            for n in horizons:
                before = max((x for x in horizons if x < n), default=-1)
                row = [np.nan] * 3 + [0, 0]
                if n <= to:
                    row[3:] = sum(before <= x < n and x < z for x, z in known), sum(x >= age and z > age for x, z in known for age in range(before, n))
                if n < len(S):
                    row[:3] = S[n][0], *ends[n]
                want.append(row + [np.nan if half is None else half, len(S) - 1 if S and half is None else -1, *mean, low, high])
    keys = ("survival", "survival_low", "survival_high", "events", "exposure", "half_life", "half_life_over", "rmst", "rmst_error", "half_life_low", "half_life_high")
    for key, got, right in column_of(data, want, keys):
        same(f"{name}: {key} {space}", got, right, 1e-10)
    return halves


def check_hazard(name, m, space="query", grace=0, bins=None, a=0, b=None):
    options = ["--space", space, "--grace", grace, "--at-least", "1", "--criterion", ",".join(CRITERIA)] + (["--bins", ",".join(map(str, bins))] if bins else [])
    options += ["--tokens", f"{a}:{b}"] if b is not None else []
    data, meta = table(kvfate, "survival", "--as", "hazard", m.path, *options)
    edges = [(-1, 0)] + [(x, bins[k + 1] if k + 1 < len(bins) else -1) for k, x in enumerate(bins)] if bins else brute.octaves(m.T)
    tokens, want = range(a, m.T if b is None else b), []
    for c in CRITERIA:
        pooled = []
        for head, l, h, kv, members in m.rows(space, c):
            pooled += members
            want += [(head, l, h, c, *r) for r in brute.hazard(members, tokens, m.T, edges, grace)]
        want += [("all", -1, -1, c, *r) for r in brute.hazard(pooled, tokens, m.T, edges, grace)]
    keys = ("head", "layer", "index", "criterion", "low", "high", "at_risk", "events", "censored", "exposure", "hazard", "actuarial",
            "survival", "survival_low", "survival_high")
    for key, got, right in column_of(data, want, keys):
        check(f"{name}: {key}", got == right, got[:5], right[:5]) if key in ("head", "criterion") else same(f"{name}: {key} {space}", got, right, 1e-9)


def check_persistence(name, m, space="query", grace=32, classes=None, at_least=1):
    data, meta = table(kvfate, "survival", "--as", "persistence", m.path, "--space", space, "--grace", grace, "--criterion", "mass.95", "--at-least", at_least, *(["--by", "class"] if classes else []))
    groups = [("all", range(m.T))] + [(c, [i for i in range(m.T) if classes[i] == c]) for c in dict.fromkeys(data["class"]) if c != "all"]
    check(f"{name}: classes", not classes or {g for g, _ in groups} == {"all", *classes}, groups)
    ages = [k for k in range(32) if 2**k < m.T]
    heads = [(head, members) for head, *_, members in m.rows(space, "mass.95")]
    cells = {(head, g, k): brute.at_ages(members, tokens, m.T, k, grace) for head, members in heads for g, tokens in groups for k in ages}
    for g, _ in groups:
        for k in ages:
            cells["all", g, k] = tuple(np.sum([cells[h, g, k] for h, _ in heads], axis=0))
    want, posterior = [], []
    M_heads = {k: brute.concentration([[cells[h, "all", k] for h, _ in heads]]) for k in ages}
    M_class = {k: brute.concentration([[cells[h, g, k] for g, _ in groups[1:]] for h, _ in heads]) for k in ages}
    for head in [h for h, _ in heads] + ["all"]:
        for g, _ in groups:
            for k in ages:
                n, y = cells[head, g, k]
                N, Y = cells["all", "all", k]
                prior = Y / N if N else np.nan
                M = M_heads[k]
                if g != "all":
                    hn, hy = cells[head, "all", k]
                    use = M if not np.isnan(prior) else 0
                    prior, M = (hy + use * prior) / (hn + use) if hn + use else np.nan, M_class[k]
                if head == "all":
                    prior, M = np.nan, 0
                plus = M if not np.isnan(prior) else 0
                a, b = y + (plus * prior if plus else 0), n - y + (plus * (1 - prior) if plus else 0)
                enough = sum(i + 2**k < m.T and m.T - 1 - i >= grace for i in range(m.T)) >= at_least
                want.append((head, g, 2**k, n, y) + ((y / n if n else np.nan, a / (a + b) if a + b else np.nan, prior, M) if enough else (np.nan,) * 4))
                posterior.append((a, b, plus) if enough else (0, 0, 1))
    for key, got, right in column_of(data, want, ("head", "class", "age", "at_risk", "selected", "rate", "shrunk", "prior", "strength")):
        check(f"{name}: {key}", got == right, got[:5], right[:5]) if key in ("head", "class") else same(f"{name}: {key} {space}", got, right, 1e-9)
    low, high = real(data["low"]), real(data["high"])
    sure = [k for k, (a, b, M) in enumerate(posterior) if M and a > 0 and b > 0]
    for k in sure[::max(1, len(sure) // 12)]:
        at = brute.beta_below(low[k], *posterior[k][:2]), brute.beta_below(high[k], *posterior[k][:2])
        check(f"{name}: interval", abs(at[0] - .025) < 1e-4 and abs(at[1] - .975) < 1e-4, want[k], posterior[k], low[k], high[k], at)
    check(f"{name}: intervals of few", all(np.isnan([low[k], high[k]]).all() for k, x in enumerate(posterior) if x == (0, 0, 1)))
    counts = [k for k, (a, b, M) in enumerate(posterior) if not M and want[k][3]]
    for k in counts:  # Wilson: the fractions p with |y / n - p| = z sqrt(p (1 - p) / n)
        n, y = want[k][3:5]
        for p in (low[k], high[k]):
            check(f"{name}: Wilson", p in (0, 1) or abs(abs(y / n - p) - brute.Z * np.sqrt(p * (1 - p) / n)) < 1e-9, n, y, p)
    return len(sure), len(counts)


def check_intermittency(name, m, space="query", follow=0, above=(0, 1, 3, 10), a=0, b=None, at_least=1):
    options = ["--space", space, "--at-least", at_least, "--follow-up", follow, "--above", ",".join(map(str, above))] + (["--tokens", f"{a}:{b}"] if b is not None else [])
    data, meta = table(kvfate, "survival", "--as", "intermittency", m.path, *options)
    tokens = [i for i in range(a, m.T if b is None else b) if m.T - 1 - i >= follow]
    want = []
    for c in ("top64", "mass.95"):
        heads = [(head, l, h, members) for head, l, h, kv, members in m.rows(space, c)]
        heads.append(("all", -1, -1, [x for *_, members in heads for x in members]))
        for what, quantity in enumerate(QUANTITIES):
            for head, l, h, members in heads:
                shares, rest = brute.intermittency(members, tokens, what, above, m.T)
                want += [(head, l, h, c, quantity, n, s, o, o / s if s >= at_least * len(members) else np.nan, *rest) for n, (s, o) in zip(above, shares)]
    keys = ("head", "layer", "index", "criterion", "quantity", "above", "tokens", "over", "share", "defined", "total", "mean", "q50", "q90", "q99", "most")
    for key, got, right in column_of(data, want, keys):
        check(f"{name}: {key}", got == right, got[:5], right[:5]) if key in ("head", "criterion", "quantity") else same(f"{name}: {key} {space}", got, right)


def check_classes(name, m, classes):
    """Check that rows of a class depend only on its tokens; rows of all classes equal those without classes."""
    for analysis, options in (("survival", ["--criterion", "mass.95"]), ("survival", ["--criterion", "top64", "--skip-trivial", "--gap", "top64,mass.95"]),
                              ("hazard", ["--criterion", "mass.95", "--grace", "2"]), ("intermittency", [])):
        plain, _ = table(kvfate, *words_of(analysis), m.path, *options)
        split, _ = table(kvfate, *words_of(analysis), m.path, *options, "--by", "class")
        at = [k for k, c in enumerate(split["class"]) if c == "all"]
        check(f"{name}: {analysis} all", {k: [v[j] for j in at] for k, v in split.items()} == plain, analysis, options)
        check(f"{name}: {analysis} classes", set(split["class"]) == {"all", *classes}, set(split["class"]))
        counts = ("at_risk", "alive", "undecided") if analysis == "survival" else ("at_risk", "events", "exposure") if analysis == "hazard" else ("tokens", "over", "total")
        keys = [k for k in ("head", "criterion", "horizon", "low", "quantity", "above") if k in split]
        sums = {}
        for j, c in enumerate(split["class"]):
            x = sums.setdefault(tuple(split[k][j] for k in keys), [[0] * 3, [0] * 3])[c == "all"]
            for n, k in enumerate(counts):
                x[n] += split[k][j]
        check(f"{name}: {analysis} parts", all(x == y for x, y in sums.values()), [(k, v) for k, v in sums.items() if v[0] != v[1]][:3])


def by_class_brute(m, classes):
    data, _ = table(kvfate, "survival", m.path, "--criterion", "mass.95", "--horizons", "0,3,11", "--by", "class")
    for c in set(classes):
        tokens = [i for i in range(m.T) if classes[i] == c]
        want = [brute.survival(x[-1], n, tokens, np.ones(m.T, bool))[:2] for x in m.rows("query", "mass.95") for n in (0, 3, 11)]
        at = [k for k, (x, h) in enumerate(zip(data["class"], data["head"])) if x == c and h != "all"]
        same(f"class {c}", [data["at_risk"][k] for k in at] + [data["alive"][k] for k in at], [w[0] for w in want] + [w[1] for w in want])


def ends_by_class(name, m, classes):
    """Check the default end of a curve: the age that 20 tokens could show, and for a class of 8 to 19 tokens the age
    that all of them could.
    """
    by = ["survival", m.path, "--criterion", "mass.95", "--grace", "3", "--by", "class"]
    said_, few = table(kvfate, *by)[0], 0
    for c in ("all", *sorted(set(classes))):
        n = m.T if c == "all" else list(classes).count(c)
        want, _ = table(kvfate, *by, "--at-least", n if 8 <= n < 20 else 20)
        for key in ("fraction", "survival", "half_life", "rmst"):
            same(f"{name}: {key} of {c}, {n} tokens", *[[x for x, of in zip(t[key], t["class"]) if of == c] for t in (said_, want)])
        few += 8 <= n < 20 and any(np.isfinite(real([x for x, of in zip(said_["survival"], said_["class"]) if of == c])))
    return few


# ---- by hand

def by_hand():
    # one layer, one KV head, two query heads, four tokens; rows are queries
    one = np.array([[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 1, 0], [1, 0, 0, 0]], bool)  # tokens: xx.x  .x.  x.  .
    two = np.array([[0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0], [0, 1, 0, 1]], bool)  # ....  xxx  ..  x
    S = {c: np.array([[one, two]]) for c in CRITERIA}
    m = Made(S, 1)
    # last ages: 3 1 0 never | never 2 never 0.  At n = 1 tokens 0, 1, 2 are at risk: 2 and 1 are alive of 3
    data, _ = table(kvfate, "survival", m.path, "--criterion", "mass.95", "--horizons", "0,1,2,3")
    same("hand: alive", data["alive"], [3, 2, 1, 1, 2, 1, 1, 0, 5, 3, 2, 1])
    check("hand: fewer than twenty tokens", not any(np.isfinite(real(data["fraction"] + data["survival"]))), data)
    same("hand: at risk", data["at_risk"], [4, 3, 2, 1, 4, 3, 2, 1, 8, 6, 4, 2])
    # in the union: 3 2 0 0
    data, _ = table(kvfate, "survival", m.path, "--criterion", "mass.95", "--horizons", "0,1,2,3", "--space", "kv-union")
    same("hand: union", data["alive"], [4, 2, 2, 1] * 2)
    # hazard of head 0: follow-ups 3 2 1 0, ages 3 1 0 never: token 0 is censored at 3, token 3 has c = 0 and dies at -1
    # at risk at -1: all 4, one dies; at 0: tokens 0 1 2, one dies; at 1: 0 1, one dies; at 2: token 0; S: 1, 3/4, 1/2, 1/4, 1/4
    data, _ = table(kvfate, "survival", "--as", "hazard", m.path, "--criterion", "mass.95", "--head", "L0H0", "--bins", "0,1,2,3", "--grace", "0", "--at-least", "1")
    same("hand: hazard at risk", data["at_risk"][:5], [4, 3, 2, 1, 0])
    same("hand: hazard events", data["events"][:5], [1, 1, 1, 0, 0])
    same("hand: hazard censored", data["censored"][:5], [0, 0, 0, 1, 0])
    same("hand: Kaplan-Meier", data["survival"][:5], [1, .75, .5, .25, .25])
    # Greenwood at 1: G = 1/(4 3) + 1/(3 2) = 1/4; S = 1/2: 2^-e^(+-1.96 (1/2) / ln 2)
    same("hand: log-log", [data["survival_low"][2], data["survival_high"][2]], [.5**np.exp(s * brute.Z / 2 / np.log(2)) for s in (1, -1)])
    # selections of head 0: xx.x: 3 selections, 1 return, gap 1, exit 2; .x.: 1 0 0 0; x.: 1 0 0 1; .: 0 0 0 0
    data, _ = table(kvfate, "survival", "--as", "intermittency", m.path, "--criterion", "top64", "--head", "L0H0", "--above", "0")
    same("hand: totals", data["total"][::2], [5, 1, 1, 3])
    same("hand: over 0", data["over"][::2], [3, 1, 1, 2])
    same("hand: medians", data["q50"][::2], [1, 0, 0, 0])
    # at age 1 heads select 2 and 1 of 3 tokens, mu = 1/2: the spread 2 * 3 / 36 = 1/6 is under v (K - 1) = 1/4 that chance gives,
    # so M = N = 6: (2 + 6 / 2) / (3 + 6)
    data, _ = table(kvfate, "survival", "--as", "persistence", m.path, "--criterion", "mass.95", "--grace", "0", "--at-least", "1")
    same("hand: persistence", [data[k][0] for k in ("at_risk", "selected", "strength", "shrunk")], [3, 2, 6, 5 / 9])
    # gap of mass.95 over top64 where the first has head two in both places
    m = Made({**S, "mass.95": np.array([[two, two]])}, 1)
    data, _ = table(kvfate, "survival", m.path, "--criterion", "top64", "--horizons", "0,1,2,3", "--gap", "top64,mass.95")
    same("hand: gap", data["alive"][12:16] + data["alive"][-4:], [-1, -1, 0, -1, -1, -1, 0, -1])
    check("hand: name of a gap", set(data["criterion"][12:]) == {"mass.95-top64"}, data["criterion"])


with tempfile.TemporaryDirectory(prefix="kvfate-selections-") as folder:
    by_hand()

    # random traces: groups of 1, 2 and 3
    few = 0
    KINDS = [" tea", " 12", ",", "  ", " the"]
    for seed, (L, H, G, T, keep) in enumerate([(2, 2, 2, 80, 1), (1, 2, 4, 134, 1), (2, 1, 3, 70, .3)]):
        rng = np.random.default_rng(seed)
        texts = [KINDS[k] for k in rng.integers(0, len(KINDS), T)]
        m = Made(random_sets(rng, L, G, T, dense.alpha_of(np.full((L, H, T), np.inf), T), H, keep), H, texts=texts, narrow=seed != 1)
        name = f"random {seed}"
        for space in ("query", "kv-union", "kv-mean"):
            check_survival(name, m, space, gaps=[("top64", "mass.95"), ("mass.95", "top128")])
            data, _ = check_survival(name + " skipping", m, space, skip=True, gaps=[("top64", "mass.95")])
            check(name + ": nothing open", not any(data["undecided"]), data["undecided"])
            check_hazard(name, m, space)
            check_persistence(name, m, space, 32 if space != "query" else 3)
        check_survival(name, m, everyone=True, horizons=(0, 1, 40, 300))
        check_survival(name, m, "kv-mean", skip=True, everyone=True, horizons=(0, 1, 40, 300))
        check_survival(name, m, "kv-union", follow=30, skip=True)
        check_survival(name, m, follow=T, horizons=(0, 1))
        check_survival(name, m, a=3, b=40, follow=50)
        halves = np.array([0, 0, 0])
        for space in ("query", "kv-union", "kv-mean"):
            halves += check_curve(name + " curve", m, space)
            halves += check_curve(name + " curve", m, space, at_least=9, grace=20)
        halves += check_curve(name + " curve skipping", m, skip=True)
        check_curve(name + " curve", m, "kv-mean", grace=0, a=3, b=40, follow=T - 30, mean_to=0)
        halves += check_curve(name + " curve of few", m, at_least=T)
        check(name + ": half-lives of all kinds", min(halves) > 0, halves)
        check_hazard(name, m, grace=7, bins=[0, 1, 5, 30])
        check_hazard(name, m, "kv-mean", bins=[4, 10], a=3, b=40)
        check_hazard(name, m, grace=T + 5)
        classes, _ = table(kvfate, "tokens", m.path)
        check(name + ": five classes", len(set(classes["class"])) == 5, set(classes["class"]))
        sure, counts = check_persistence(name, m, "query", 5, classes["class"])
        check(name + ": intervals of both kinds", sure > 20 and counts > 20, sure, counts)
        check_intermittency(name, m, "query")
        check_intermittency(name, m, "kv-mean", 20)
        check_intermittency(name, m, "kv-mean", 20, above=(0, 5, T - 30), at_least=10)
        check_persistence(name, m, "kv-union", 3, at_least=T - 20)
        check_intermittency(name, m, "query", 0, (0, 7), 5, 60)
        check_classes(name, m, set(classes["class"]))
        by_class_brute(m, classes["class"])
        few += ends_by_class(name, m, classes["class"])

    check("some classes of few tokens have curves", few > 0, few)

    # evictions: queries fall back below K, and earlier states are open
    opened = 0
    for seed in range(2):
        rng = np.random.default_rng(10 + seed)
        L, H, G, T = 1, 2, [2, 6][seed], 140
        evict = np.full((L, H, T), np.inf)
        cut = 70 + 8 * seed
        evict[:, 0, :cut] = np.where(rng.random((L, cut)) < .6, cut + 1 + rng.integers(0, 9, (L, cut)), np.inf)  # many are evicted at once, few return
        evict[:, 1] = np.where(rng.random((L, T)) < .3, np.arange(T) + rng.integers(0, 30, (L, T)), np.inf)
        evict[evict > T] = np.inf
        m = Made(random_sets(rng, L, G, T, dense.alpha_of(evict, T), H, 1), H, evict)
        for space in ("query", "kv-union", "kv-mean"):
            data, want = check_survival(f"evicting {seed}", m, space, skip=True, gaps=[("top64", "mass.95"), ("top64", "top128"), ("top128", "top64")])
            opened += sum(data["undecided"])
        check_survival(f"evicting {seed}", m, "kv-union", skip=True, everyone=True)
        check_curve(f"evicting {seed} curve", m, "kv-mean", skip=True)
        check_curve(f"evicting {seed} curve", m, "kv-union", skip=True)
        check_hazard(f"evicting {seed}", m)
        check_intermittency(f"evicting {seed}", m)
    check("something was open", opened > 300, opened)

    # the smallest traces
    CRITERIA = list(dense.CRITERIA)
    for T in (0, 1, 2):
        for evict in (None, np.zeros((1, 2, T)) + np.arange(T)):
            alpha = dense.alpha_of(np.full((1, 2, T), np.inf) if evict is None else evict, T)
            m = Made({c: np.repeat(alpha, 2, axis=1) for c in CRITERIA}, 2, evict)
            for skip in (False, True):
                check_survival(f"{T} tokens", m, skip=skip, horizons=(0, 1, 5), gaps=[("top64", "mass.95")])
            check_survival(f"{T} tokens", m, everyone=True, horizons=(0, 1, 5))
            if T:
                check_hazard(f"{T} tokens", m)
                check_intermittency(f"{T} tokens", m)
                check_persistence(f"{T} tokens", m)
            for analysis in ("survival", "hazard", "persistence", "intermittency"):
                said(*words_of(analysis), m.path)
                data, _ = table(kvfate, *words_of(analysis), m.path)
                check(f"{T} tokens: {analysis} rows", (len(data["head"]) == 0) == (T == 0 and analysis != "survival" or T < 2 and analysis == "persistence"), data)

    # damage: impossible ages; only recorded data
    m = Made({c: np.tril(np.ones((1, 2, 9, 9), bool)) for c in CRITERIA}, 1)
    bad = Made(m.S, 1, drop=["last_selected.top64"], extra=[Column("last_selected.top64", "u16", "query", np.full((1, 2, 9), 60000.), flags=3)])
    data, _ = table(kvfate, "survival", bad.path, "--criterion", "top64")
    check("impossible ages", not any(data["alive"]), data["alive"])
    table(kvfate, "survival", "--as", "hazard", bad.path)
    holes = Made(m.S, 1, drop=["last_selected.top64", "selected_at.top64", "n_returns.top64"], extra=[
        Column("last_selected.top64", "f64", "query", np.full((1, 2, 9), np.nan), flags=1),
        Column("selected_at.top64", "f32", "query", np.full((1, 2, 9), np.nan)), Column("n_returns.top64", "f32", "query", np.full((1, 2, 9), np.nan))])
    data, _ = table(kvfate, "survival", holes.path, "--criterion", "top64")
    check("NaN is no age", not any(data["alive"]), data["alive"])
    table(kvfate, "survival", "--as", "intermittency", holes.path)
    refused("masks of no bits", 1, ["survival", "--as", "persistence", holes.path], "selected_at.top64")

    # a layer without query heads
    none = make(write_kvf, os.path.join(folder, "none.kvf"), [Column("last_selected.top64", "u16", "query", np.zeros((1, 0, 9)), flags=1)], (1, 2, 0, 9))
    for space in ("kv-union", "kv-mean"):
        refused(f"{space} of no query heads", 1, ["survival", none, "--space", space, "--criterion", "top64"], "layer 0 has 0 query heads for 2 KV heads")

    # errors
    for argv, word in ((["survival", "--space", "kv"], "--space"), (["survival", "--criterion", "top64,x"], "--criterion"), (["survival", "--criterion", ""], "--criterion"),
                       (["survival", "--follow-up", "x"], "--follow-up"), (["survival", "--follow-up", "-1"], "--follow-up"), (["survival", "--gap", "top64"], "--gap"),
                       (["survival", "--gap", "top64,x"], "--gap"), (["survival", "--gap", ""], "--gap"), (["survival", "--gap", "top64,mass.90,top64"], "--gap"),
                       (["survival", "--by", "role"], "--by"), (["survival", "--classes", "x.json"], "--by class"), (["survival", "--horizons", "1,x"], "--horizons"),
                       (["survival", "--denominator", "x"], "--denominator"), (["survival", "--space", "kv-union", "--head", "L0H0"], "KV"), (["survival", "--head", "L0K0"], "query"),
                       (["survival", "--as", "hazard", "--bins", "4,4"], "--bins"), (["survival", "--as", "hazard", "--bins", "x"], "--bins"), (["survival", "--as", "hazard", "--grace", "x"], "--grace"), (["survival", "--as", "hazard", "--space", "x"], "--space"),
                       (["survival", "--as", "persistence", "--grace", "-3"], "--grace"), (["survival", "--as", "persistence", "--criterion", "x"], "--criterion"), (["survival", "--as", "persistence", "--by", "x"], "--by"),
                       (["survival", "--as", "intermittency", "--space", "kv-union"], "--space"), (["survival", "--as", "intermittency", "--criterion", "top128"], "top64 and mass.95"),
                       (["survival", "--as", "intermittency", "--above", "3,1"], "--above"), (["survival", "--as", "intermittency", "--follow-up", "1.5"], "--follow-up")):
        refused(" ".join(argv), 2, [argv[0], m.path, *argv[1:]], word)
    for drop, analysis, word in (("last_selected.top64", "survival", "survival"), ("last_selected.top64", "hazard", "survival"),
                                 ("selected_at.top64", "persistence", "calibration"), ("n_returns.top64", "intermittency", "returns"),
                                 ("first_unselected.top64", "intermittency", "calibration")):
        refused(f"{analysis} without {drop}", 1, [*words_of(analysis), Made(m.S, 1, drop=[drop]).path, "--criterion", "top64"], drop, f"--probes", word)
    refused("no evictions to count by", 1, ["survival", Made(m.S, 1, drop=["evict_step"]).path, "--skip-trivial", "--criterion", "top64"], "evict_step", "--probes evict")
    refused("pages are read", 1, ["survival", Made(m.S, 1, extra=[Column("read.count", "u32", "query", np.zeros((1, 2, 9)))]).path, "--skip-trivial", "--criterion", "top64"], "pages")
    text = said("survival", "--as", "hazard", m.path) + said("survival", "--as", "persistence", m.path) + said("survival", "--as", "intermittency", m.path)
    check("texts", "risk per step" in text and "selected at an age" in text and "longest-gap" in text, text)

finish()
