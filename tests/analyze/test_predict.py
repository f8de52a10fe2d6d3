#!/usr/bin/env python3
"""Check kvfate predict: hand-made tables, numpy on random traces of one and three documents, errors."""
import itertools
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, kvfate, real, refused  # noqa: E402
from maker import AGE, ALIVE, SNAPSHOT, Column, make

write_kvf = os.path.abspath(sys.argv[2])
CRITERIA = ("top64", "mass.95")


def ranks(v):
    """Return mean ranks: 1 + the number of smaller values + half of the number of other equal values."""
    s = np.sort(v)
    return (np.searchsorted(s, v, "left") + np.searchsorted(s, v, "right") + 1) / 2


def rho(x, y):
    x, y = ranks(x), ranks(y)
    x, y = x - x.mean(), y - y.mean()
    size = np.sqrt((x * x).sum() * (y * y).sum())
    return (x * y).sum() / size if size > 0 else np.nan


def unit(v):
    return v / np.sqrt(v @ v) if v @ v > 1e-12 * len(v) ** 2 else np.full(len(v), np.nan)


def given_layer(v, layer):
    """Return ranks without their means of layers, by least squares with a column for each layer."""
    columns = (layer[:, None] == np.unique(layer)).astype(float)
    r = ranks(v)
    return unit(r - columns @ np.linalg.lstsq(columns, r, rcond=None)[0])


def given_line(r, place):
    return unit(r - np.polyval(np.polyfit(place, r, 1), place))


def given_ends(r, place):
    """Return ranks without the line from the first to the last value."""
    r = r - np.interp(place, place[[0, -1]], r[[0, -1]])
    return unit(r - r.mean())


def by_depth(v, layer, line=given_line):
    """Return means of ranks of layers without their line."""
    at = np.unique(layer)
    return line(np.array([ranks(v)[layer == l].mean() for l in at]), at)


def p_of(every):
    """Return the fraction of shifts with a correlation at least as large as without a shift, the larger one of two ways
    to remove a line.
    """
    return max(np.mean(abs(e) >= abs(e[0]) - 1e-9) for e in every)


def shifts(pairs):
    """Return the correlation at every circular shift, equal for all pairs."""
    return np.array([np.mean([np.roll(x, k) @ y for x, y in pairs]) for k in range(len(pairs[0][0]))])


def of_layers(pairs, layer, rng):
    """Return a bootstrap replicate of a correlation of residuals: layers and documents are drawn."""
    at = np.unique(layer)
    take = np.concatenate([np.flatnonzero(layer == l) for l in rng.choice(at, len(at))])
    chosen = [pairs[k] for k in rng.choice(len(pairs), len(pairs))]
    return np.mean([(x[take] @ y[take]) / np.sqrt((x[take] @ x[take]) * (y[take] @ y[take])) for x, y in chosen])


def within_layers(layer, rng):
    """Return another order of the heads of each layer."""
    order = np.arange(len(layer))
    for l in np.unique(layer):
        order[layer == l] = rng.permutation(order[layer == l])
    return order


def fdr(p):
    p = np.asarray(p, float)
    known = np.flatnonzero(~np.isnan(p))
    out = np.full(len(p), np.nan)
    for i in known:  # the lowest bound of all that are no smaller
        out[i] = min(1, min(p[j] * len(known) / (p[known] <= p[j]).sum() for j in known if p[j] >= p[i]))
    return out


def outside(draws, row):
    """Check that 2.5 % of independent draws are beyond each end; with 2000 replicates the standard error is 0.35 %."""
    draws = np.array(draws)
    draws = draws[~np.isnan(draws)]
    below, above = [[(draws < row["low"] - 1e-9).mean(), (draws < row["low"] + 1e-9).mean()],
                    [(draws > row["high"] + 1e-9).mean(), (draws > row["high"] - 1e-9).mean()]]
    return all(x[0] < .038 and x[1] > .012 for x in (below, above))


# ---- statistics from their definitions, one head at a time; d: a document's arrays

def head_statistics(d, horizon, sinks):
    """Return {(name, reduce): [heads]}."""
    out, T, share = {}, d["T"], d["share"]

    def kv(name, f):
        out[name, "none"] = np.array([f(l, h) for l in range(d["L"]) for h in range(d["H"])])

    def query(name, f):
        v = np.array([[[f(l, h * share + m) for m in range(share)] for h in range(d["H"])] for l in range(d["L"])])
        out[name, "mean"], out[name, "max"] = v.mean(2).ravel(), v.max(2).ravel()

    cells = T * (T + 1) / 2
    beta = np.exp(d["log_beta"])
    kv("beta", lambda l, h: beta[l, h].mean())
    kv("mean_retention", lambda l, h: np.mean([np.mean(beta[l, h, i] ** np.arange(T - i)) for i in range(T)]))
    kv("sparsity.beta", lambda l, h: 1 - sum(beta[l, h, i] ** (t - i) for t in range(T) for i in range(t + 1)) / cells)
    for c in CRITERIA:
        a = d["last_selected." + c]
        query("survival." + c, lambda l, g: np.mean(a[l, g, : T - horizon] >= horizon))
        query("sparsity.use." + c, lambda l, g: 1 - sum(t <= i + a[l, g, i] for t in range(T) for i in range(t + 1)) / cells)
    query("entropy", lambda l, g: d["entropy"][l, g].mean())
    query("sink_mass", lambda l, g: d["mass.sum"][l, g, :sinks].sum() / d["mass.sum"][l, g].sum())
    given = d["mass.sum"] * d["out_norm"]
    query("sink_contrib", lambda l, g: given[l, g, :sinks].sum() / given[l, g].sum())
    kv("entries_held", lambda l, h: np.mean([sum(i <= t < d["evict_step"][l, h, i] for i in range(t + 1)) for t in range(T)]))
    kv("saliency", lambda l, h: np.abs(d["saliency"][l, h]).mean())
    out["layer", "none"] = np.repeat(np.arange(d["L"]), d["H"]).astype(float)
    return out


def entry_statistics(d, heads):
    """Return the statistics of the KV heads (layer, index)."""
    out, T, share = {}, d["T"], d["share"]

    def put(name, rows):
        out[name, "mean"], out[name, "max"] = np.mean(rows, 0), np.max(rows, 0)

    put("beta", [np.exp(d["log_beta"][l, h]) for l, h in heads])
    groups = [(l, h * share + m) for l, h in heads for m in range(share)]
    for c in CRITERIA:
        put("last_use." + c, [d["last_selected." + c][l, g] + 1 for l, g in groups])
    put("mass.sum", [d["mass.sum"][l, g] for l, g in groups])
    put("mass.max", [d["mass.max"][l, g] for l, g in groups])
    put("contrib.sum", [d["mass.sum"][l, g] * d["out_norm"][l, g] for l, g in groups])
    put("contrib.max", [d["mass.max"][l, g] * d["out_norm"][l, g] for l, g in groups])
    put("steps_held", [np.minimum(d["evict_step"][l, h], T) - np.arange(T) for l, h in heads])
    put("saliency", [np.abs(d["saliency"][l, h]) for l, h in heads])
    out["position", "none"] = np.arange(T).astype(float)
    return out


with tempfile.TemporaryDirectory(prefix="kvfate-predict-") as folder:
    count = itertools.count()
    rng = np.random.default_rng(3)

    def file(text, ext="tsv"):
        path = os.path.join(folder, f"{next(count)}.{ext}")
        with open(path, "w") as f:
            f.write(text)
        return path

    def tsv(name, meta, columns):
        lines = [f"# table: {name}"] + [f"# {k}: {v}" for k, v in meta.items()] + ["\t".join(columns)]
        return file("\n".join(lines + ["\t".join(map(str, r)) for r in zip(*columns.values())]) + "\n")

    def effect(kl, H, meta=None, names="K", column="kl"):
        """Write a table of kl [heads] of L0K0, L0K1, ...; and a row `all`."""
        n = len(kl)
        m = {"model_hash": "abc", "held": "the head of the row alone", "sinks": 2, "recent": 5, "prompt_tokens": 30, **(meta or {})}
        return tsv("effect", m, {"head": [f"L{k // H}{names}{k % H}" for k in range(n)] + ["all"], "layer": [*(k // H for k in range(n)), -1],
                                 "index": [*(k % H for k in range(n)), -1], column: [*map(repr, map(float, kl)), 9.5]})

    def each(kl, tokens, heads="all", counts=1):
        return tsv("effect-entries", {"heads": heads, "recent": 5}, {"entries": tokens, "token": tokens, "count": [counts] * len(tokens),
                                                                    "kl": [*map(repr, map(float, kl))]})

    def document(L=4, H=3, share=2, T=40):
        """Return arrays of one text, and its trace."""
        G = H * share
        d = {"L": L, "H": H, "share": share, "T": T}
        f32 = lambda x: x.astype(np.float32).astype(float)
        d["log_beta"] = f32(-np.exp(rng.normal(-3, 1.5, (L, H, T))))
        d["saliency"] = f32(rng.normal(size=(L, H, T)) * rng.exponential(size=(L, H, 1)))
        d["entropy"] = f32(rng.exponential(size=(L, G, T)))
        d["mass.sum"] = f32(rng.exponential(size=(L, G, T)))
        d["mass.max"] = f32(rng.uniform(size=(L, G, T)))
        d["out_norm"] = f32(rng.exponential(size=(L, G, T)))
        d["evict_step"] = np.where(rng.uniform(size=(L, H, T)) < .5, ALIVE, np.minimum(T, np.arange(T) + rng.integers(1, 30, (L, H, T))))
        for c in CRITERIA:
            d["last_selected." + c] = np.minimum(rng.integers(-1, 25, (L, G, T)), T - 1 - np.arange(T))
        columns = [Column("log_beta", "f32", "kv", d["log_beta"]), Column("saliency", "f32", "kv", d["saliency"]),
                   Column("entropy", "f32", "query", d["entropy"], axis="step"), Column("evict_step", "u32", "kv", d["evict_step"])]
        columns += [Column(k, "f32", "query", d[k], flags=SNAPSHOT) for k in ("mass.sum", "mass.max", "out_norm")]
        for c in CRITERIA:
            a = d["last_selected." + c]
            columns.append(Column("last_selected." + c, "u16", "query", np.where(a < 0, 65535, a), flags=SNAPSHOT | AGE))
        d["path"] = make(write_kvf, os.path.join(folder, f"{next(count)}.kvf"), columns, (L, H, G, T),
                         {"model": {"hash": "abc"}, "run": {"prompt_tokens": 30}})
        return d

    def predict(*argv):
        r = subprocess.run([kvfate, "predict", *argv, "--json"], capture_output=True, text=True)
        check("predict", r.returncode == 3 * ("has no steps" in r.stderr), argv, r)
        t = json.loads(r.stdout)
        return {(c, k): {key: t["data"][key][i] for key in t["data"]} for i, (c, k) in enumerate(zip(t["data"]["candidate"], t["data"]["reduce"]))}, t["meta"]

    def close(a, b):
        return np.isclose(real([a])[0], b, rtol=0, atol=1e-9, equal_nan=True)

    def compare(name, got, want_x, ys, tokens=None):
        """Compare; want_x: per document {(name, reduce): [units]}; ys: per document the effect, nan if unknown; tokens:
        positions of entries.
        """
        crossed = tokens is None
        for key in {k for w in want_x for k in w}:
            row = got.get(key)
            check(f"{name}: {key} is there", row is not None, sorted(got))
            if row is None:
                continue
            pairs = [(w[key], y) for w, y in zip(want_x, ys) if key in w]
            known = [~np.isnan(x) & ~np.isnan(y) for x, y in pairs]
            if crossed:
                known = [np.logical_and.reduce(known)] * len(known)
            places = [np.arange(len(y)) // 3 if crossed else tokens[k] for k, y in enumerate(ys) if key in want_x[k]]
            pairs = [(x[k], y[k], p[k]) for (x, y), k, p in zip(pairs, known, places)]
            pairs = [(x, y, p) for x, y, p in pairs if len(set(x)) > 1 and len(set(y)) > 1]
            want = np.mean([rho(x, y) for x, y, _ in pairs]) if pairs else np.nan
            n = 0 if not pairs else len(pairs[0][0]) if crossed else sum(len(x) for x, *_ in pairs)
            check(f"{name}: {key} rho", close(row["rho"], want), row, want)
            rest = [(given_layer(x, p), given_layer(y, p)) if crossed else (given_line(ranks(x), p), given_line(ranks(y), p)) for x, y, p in pairs]
            rest = [(x, y) for x, y in rest if not np.isnan(x @ y)]
            want = np.mean([x @ y for x, y in rest]) if rest else np.nan
            check(f"{name}: {key} partial", close(row["partial"], want) and (row["p"] is None) == (not rest), row, want)
            if not crossed and len(rest) == 1:
                x, y, p = pairs[0]
                every = [shifts(rest), shifts([(given_ends(ranks(x), p), given_ends(ranks(y), p))])]
                check(f"{name}: {key} p of all shifts", close(row["p"], p_of(every)), row, every)
            every = []
            for line in (given_line, given_ends) if crossed else ():
                deep = [(by_depth(x, p, line), by_depth(y, p, line)) for x, y, p in pairs]
                deep = [(x, y) for x, y in deep if not np.isnan(x @ y)]
                every += [shifts(deep)] if deep else []
            check(f"{name}: {key} depth", close(row["depth_rho"], every[0][0] if every else np.nan), row, every)
            check(f"{name}: {key} p of depth", close(row["depth_p"], p_of(every) if every else np.nan), row, every)
            check(f"{name}: {key} n", row["n"] == n and row["documents"] == len(pairs), row, n, len(pairs))
        rows = list(got.values())
        for k in ("", "depth_"):
            q = fdr(real([r[k + "p"] for r in rows]))
            check(f"{name}: {k}q", np.allclose(real([r[k + "q"] for r in rows]), q, rtol=1e-12, atol=0, equal_nan=True), q)

    # by hand: two layers of two heads; KL 1 2 3 4, a statistic of the same order, one of the reverse, one with a tie and one that is constant.
    # Ranks 1.5 1.5 3 4 against 1 2 3 4: covariance 4.5, sums of squares 4.5 and 5: rho = sqrt(.9); within layers 0 0 -.5 .5 against -.5 .5 -.5 .5:
    # sqrt(.5).  Of the four orders within layers two have |partial| = 1, and all that of the ties: p = .5 and 1
    hand = effect([1, 2, 3, 4], 2)
    stats = tsv("mine", {}, {"head": ["L0K0", "L0K1", "L1K0", "L1K1"], "layer": [0, 0, 1, 1], "index": [0, 1, 0, 1], "same": [10, 20, 30, 40],
                             "against": [4.5, 3, 2, 1], "tied": [7, 7, 8, 9], "flat": [1, 1, 1, 1], "words": list("abcd")})
    got, meta = predict(hand, stats)
    check("by hand: rows", list(got) == [("layer", "none"), *((f"mine.{c}", "none") for c in ("same", "against", "tied", "flat"))], list(got))
    for key, want in (("same", 1), ("against", -1), ("tied", .9 ** .5)):
        check(f"by hand: {key}", abs(got[f"mine.{key}", "none"]["rho"] - want) < 1e-12, got[f"mine.{key}", "none"])
    for key, partial, p in (("same", 1, .5), ("against", -1, .5), ("tied", .5 ** .5, 1)):
        row = got[f"mine.{key}", "none"]
        check(f"by hand: partial and p of {key}", abs(row["partial"] - partial) < 1e-12 and abs(row["p"] - p) < .03, row)
    check("by hand: constant", [got["mine.flat", "none"][k] for k in ("rho", "partial", "low", "high", "p", "q", "n", "documents")] == [None] * 6 + [0, 0], got)
    check("by hand: a layer is no statistic of heads", [got["layer", "none"][k] for k in ("partial", "p", "depth_rho", "depth_p")] == [None] * 4
          and abs(got["layer", "none"]["rho"] - .8 ** .5) < 1e-12, got["layer", "none"])
    check("by hand: meta", meta["value"] == "kl" and int(meta["horizon"]) == 5 and int(meta["sinks"]) == 2 and meta["units"] == "KV heads", meta)
    mirror, _ = predict(effect([1, 2, 3, 4], 2, {"held": "all heads but the one of the row"}), stats)
    check("mirror: what is restored", mirror["mine.same", "none"]["rho"] == -1, mirror)
    other, _ = predict(effect([1, 2, 3, 4], 2), tsv("q", {}, {"head": [f"L{k // 4}H{k % 4}" for k in range(8)], "layer": [0] * 8, "index": [0] * 8,
                                                             "v": [1, 9, 2, 3, 8, 8, 0, 20]}), document(2, 2, 2)["path"])
    # means of twos 5 2.5 8 10: ranks 2 1 3 4, d^2 sum 2, rho = 1 - 6 * 2 / 60 = .8; maxima 9 3 8 20: 3 1 2 4, d^2 sum 6, rho .4
    check("query heads of a table", abs(other["q.v", "mean"]["rho"] - .8) < 1e-12 and abs(other["q.v", "max"]["rho"] - .4) < 1e-12, other)

    # one document: every statistic, and the interval and p of an independent bootstrap and permutation
    d = document()
    n = d["L"] * d["H"]
    want = head_statistics(d, 5, 2)
    kl = ranks(want["sink_mass", "mean"]) + rng.normal(size=n) * 2.5
    kl = np.exp(kl - kl.max())
    got, meta = predict(effect(kl, 3), d["path"])
    check("heads: rows", set(got) == set(want), set(got) ^ set(want))
    compare("heads", got, [want], [kl])
    check("prompts agree", int(meta["traces_of_another_prompt_length"]) == 0, meta)
    layer = np.arange(n) // 3
    for key in (("sink_mass", "mean"), ("beta", "none"), ("entropy", "max")):
        pair, row = (given_layer(want[key], layer), given_layer(kl, layer)), got[key]
        draws = [of_layers([pair], layer, rng) for _ in range(3000)]
        check(f"heads: interval of {key}", outside(draws, row), row, np.nanquantile(draws, [.025, .975]))
        far = np.mean([abs(pair[0][within_layers(layer, rng)] @ pair[1]) >= abs(row["partial"]) - 1e-12 for _ in range(3000)])
        check(f"heads: p of {key}", abs(row["p"] - far) < .03, row, far)
    got, meta = predict(effect(kl, 3), d["path"], "--horizon", "9", "--sinks", "3", "--criterion", "mass.95", "--only", "survival.mass.95,sink_mass")
    want9 = head_statistics(d, 9, 3)
    check("--only", set(got) == {k for k in want9 if k[0] in ("survival.mass.95", "sink_mass")}, set(got))
    compare("other settings", got, [{k: want9[k] for k in got}], [kl])
    holes = kl.copy()
    holes[[1, 5]] = np.nan
    compare("nan of an effect", predict(effect(holes, 3), d["path"])[0], [want], [holes])
    got, meta = predict(effect(kl, 3, {"prompt_tokens": 31}), d["path"])
    check("another prompt", int(meta["traces_of_another_prompt_length"]) == 1, meta)
    wide = open(effect(kl, 3)).read().splitlines()  # one more column
    dnll = rng.normal(size=n)
    wide = [x if x[0] == "#" else x + "\t" + v for x, v in zip(wide, [""] * 6 + ["dnll", *map(repr, map(float, dnll)), "1"])]
    compare("another column", predict(file("\n".join(wide) + "\n"), d["path"], "--value", "dnll")[0], [want], [dnll])
    # of two sources the first counts
    e = document()
    compare("first source", predict(effect(kl, 3), d["path"], e["path"])[0], [want], [kl])

    # three documents: heads are the same, one lacks beta
    docs = [document() for _ in range(3)]
    wants = [head_statistics(x, 5, 2) for x in docs]
    # heads are similar in every text: permuting them separately in each would give a p that is too small
    common, value = rng.normal(size=n), rng.normal(size=n)
    value += .6 * common
    kls = [np.exp(common + .2 * rng.normal(size=n)) for w in wants]
    for w in wants:
        w["extra.v", "none"] = value + .2 * rng.normal(size=n)
    del wants[1]["extra.v", "none"]
    files = []
    for k, x in enumerate(docs):
        files += [effect(kls[k], 3), x["path"]]
        if k != 1:
            files.append(tsv("extra", {}, {"head": [f"L{u // 3}K{u % 3}" for u in range(n)], "v": [*map(repr, map(float, wants[k]["extra.v", "none"]))]}))
    got, meta = predict(*files)
    compare("three documents", got, wants, kls)
    check("three documents: beside one another", int(meta["pairs"]) == 3 and "documents and layers" in meta["interval"], meta)
    for key, of in ((("entropy", "max"), (0, 1, 2)), (("extra.v", "none"), (0, 2))):
        pairs = [(given_layer(wants[k][key], layer), given_layer(kls[k], layer)) for k in of]
        draws = [of_layers(pairs, layer, rng) for _ in range(2500)]
        check(f"three documents: interval of {key}", outside(draws, got[key]), got[key], np.nanquantile(draws, [.025, .975]))
        far = []
        for _ in range(2500):
            order = within_layers(layer, rng)
            far.append(abs(np.mean([x[order] @ y for x, y in pairs])) >= abs(got[key]["partial"]) - 1e-12)
        check(f"three documents: p of {key}", abs(got[key]["p"] - np.mean(far)) < .03, got[key], np.mean(far))

    # entries, of all heads and of some; two texts of different length
    tokens = np.array([3, 4, 5, 9, 12, 13, 20, 21, 22, 30])
    every = [(l, h) for l in range(4) for h in range(3)]
    for heads, chosen in (("all", every), ("L1-2K1", [(1, 1), (2, 1)])):
        w = {k: v[tokens] for k, v in entry_statistics(d, chosen).items()}
        y = rng.exponential(size=len(tokens)) + w["mass.sum", "mean"]
        got, meta = predict(each(y, tokens, heads), d["path"])
        check(f"entries {heads}: rows", set(got) == set(w) and meta["units"] == "entries", set(got) ^ set(w))
        compare(f"entries {heads}", got, [w], [y], [tokens])
    short, other = document(T=25), np.array([1, 2, 6, 7, 8])
    ws = [{k: v[tokens] for k, v in entry_statistics(d, every).items()}, {k: v[other] for k, v in entry_statistics(short, every).items()}]
    ys = [rng.exponential(size=len(tokens)), rng.exponential(size=len(other))]
    got, _ = predict(each(ys[0], tokens), d["path"], each(ys[1], other), short["path"])
    compare("entries of two texts", got, ws, ys, [tokens, other])
    sal = tsv("saliency", {}, {"head": [f"L{l}K{h}" for l, h in every for _ in range(d["T"])], "token": [i for _ in every for i in range(d["T"])],
                               "saliency": [*map(repr, map(float, d["saliency"].ravel()))]})
    w = {k: v[tokens] for k, v in entry_statistics(d, every).items() if k[0] == "saliency"}
    bare = make(write_kvf, os.path.join(folder, "bare.kvf"), [Column("tokens.id", "i32", "run", np.zeros(40))], (4, 3, 6, 40))
    compare("saliency of a table", predict(each(y, tokens), bare, sal, "--only", "saliency")[0], [w], [y], [tokens])
    compare("saliency of heads of a table", predict(effect(kl, 3), sal)[0], [{("saliency", "none"): want["saliency", "none"]}], [kl])

    # the smallest traces
    empty = make(write_kvf, os.path.join(folder, "empty.kvf"), [Column("log_beta", "f32", "kv", np.zeros((4, 3, 0)))], (4, 3, 6, 0))
    check("no tokens", set(predict(effect(kl, 3), empty)[0]) == {("layer", "none")})
    got, _ = predict(effect([1.5], 1), make(write_kvf, os.path.join(folder, "one.kvf"), [Column("log_beta", "f32", "kv", [[[-1.]]])], (1, 1, 1, 1)))
    check("one head", all(got["beta", "none"][k] is None for k in ("rho", "partial", "p", "depth_p")), got)

    # errors
    good = effect(kl, 3)
    for name, code, argv, words in (
            ("a trace first", 2, [d["path"], good], ("effect",)), ("no trace", 2, [good, good], ("trace or table",)), ("one file", 2, [good], ("missing",)),
            ("no effect", 2, [stats, d["path"]], ("effect",)), ("another model", 2, [effect(kl, 3, {"model_hash": "abd"}), d["path"]], ("another model",)),
            ("more heads than the trace", 2, [effect(np.arange(20.), 5), d["path"]], ("KV heads",)),
            ("several entries", 2, [each([1, 2], [3, 4], counts=2), d["path"]], ("--each",)), ("both kinds", 2, [good, d["path"], each([1, 2], [3, 4]), d["path"]], ("entries",)),
            ("entries without a trace", 2, [each([1, 2], [3, 4]), sal], ("trace",)), ("--value", 2, [good, d["path"], "--value", "x"], ("'x'",)),
            ("--only", 2, [good, d["path"], "--only", "beta,x"], ("'x'",)), ("--criterion", 2, [good, d["path"], "--criterion", "x"], ("criterion",)),
            ("-o", 2, [good, d["path"], "-o", "x.doc"], (".tsv", ".png")), ("--horizon", 2, [good, d["path"], "--horizon", "-1"], ("horizon",)),
            ("several rows", 2, [good, tsv("t", {}, {"head": ["L0K0", "L0K0"], "v": [1, 2]})], ("row",)),
            ("no heads", 2, [good, tsv("t", {}, {"name": ["a"], "v": [1]})], ("head",)),
            ("query heads alone", 2, [good, tsv("t", {}, {"head": ["L0H0"], "v": [1]})], ("query heads",)),
            ("a query head's effect", 1, [effect(kl, 3, names="H"), d["path"]], ("KV heads",)), ("damaged", 1, [file("# x\n"), d["path"]], ("line 1",))):
        refused(name, code, ["predict", *argv], *words)
    text = open(good).read().splitlines()
    refused("the same head twice", 1, ["predict", file("\n".join(text + [text[-2]]) + "\n"), d["path"]], "several rows")
    for ext in ("tsv", "csv", "npz", "png", "svg", "pdf"):
        out = os.path.join(folder, "t." + ext)
        r = subprocess.run([kvfate, "predict", good, d["path"], "-o", out], capture_output=True, text=True)
        check(ext, r.returncode == 0 and os.path.getsize(out) > 100 and "rank correlation" in r.stdout and not r.stderr, r)
    r = subprocess.run([kvfate, "predict", good, d["path"], "--units", "-o", "-"], capture_output=True, text=True)
    lines = [x.split("\t") for x in r.stdout.splitlines() if not x.startswith("#")]
    whole = subprocess.run([kvfate, "predict", good, d["path"], "-o", "-"], capture_output=True, text=True).stdout
    counted = {tuple(x.split("\t")[:2]): int(x.split("\t")[2]) for x in whole.splitlines() if not x.startswith("#") and not x.startswith("candidate")}
    units = {k: [x for x in lines[1:] if tuple(x[:2]) == k] for k in counted}
    check("a row for each unit of each candidate", r.returncode == 0 and all(len(units[k]) == n for k, n in counted.items() if n), r)
    effects = {x.split("\t")[0]: float(x.split("\t")[text_kl]) for text_kl in [[x.split("\t") for x in text if not x.startswith("#")][0].index("kl")]
               for x in text if x.startswith("L")}
    check("layer and effect of each unit", all(float(x[6]) == int(x[3]) and float(x[7]) == effects[f"L{x[3]}K{x[4]}"] for x in units[("layer", "none")]), units[("layer", "none")][:3])
    a, b = (subprocess.run([kvfate, "predict", good, d["path"], "-o", "-"], capture_output=True).stdout for _ in range(2))
    check("equal bytes", a == b and len(a) > 500)
    os.symlink(os.path.abspath(good), os.path.join(folder, "-good.tsv"))
    os.symlink(os.path.abspath(d["path"]), os.path.join(folder, "-trace.kvf"))
    dashed = subprocess.run([os.path.abspath(kvfate), "predict", "-o", "-", "--", "-good.tsv", "-trace.kvf"], capture_output=True, cwd=folder)
    rows = [[x for x in out.splitlines() if x[:1] != b"#"] for out in (a, dashed.stdout)]
    check("names that begin with - behind --", rows[0] == rows[1], dashed.stderr)
finish()
