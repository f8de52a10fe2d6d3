#!/usr/bin/env python3
"""Check the probe and the analyzer `dilution`: by hand, against float64 attention of tiny models, against random
weights, and errors.

usage: test_dilution.py KVFATE WRITE_KVF DUMP GEN_TINY MAKE_GATES
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import dense
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, refused  # noqa: E402
from maker import Column, make, table

kvfate, write_kvf, dump, gen_tiny, make_gates = map(os.path.abspath, sys.argv[1:6])
PREFIXES = ["top64", "top128", "top256", "top512", "mass.90", "mass.95", "mass.99", "slack.1", "slack.2", "slack.4"]
REALS = ["useful", "dilution", "kept", "rho_u", "rho_d", "beta.kept", "beta.rho_u", "beta.rho_d"]
EPS = 1e-4  # relative rounding of a weight in float32


# ---- definitions, on one row of weights w over the entries 0 .. t

def prefix(w, name):
    """Return the useful entries of a set that depends on the weights, as booleans."""
    n, rank = len(w), np.empty(len(w), int)
    order = np.lexsort((-np.arange(n), -w))  # larger first, of equal ones the larger position
    rank[order] = np.arange(n)
    kind, number = name[:-len(name.lstrip("topmaslck."))], float(name.lstrip("topmaslck."))
    if kind == "top":
        return rank < number
    if kind == "mass.":
        before = np.concatenate([[0], np.cumsum(w[order])])[rank]
        return before < number / 100 * w.sum()
    top64 = rank < 64
    return w >= w[top64].min() * np.exp(-number) if n > 64 else top64


def at_border(w, U, name):
    """Return True if float32 may move the border of a set."""
    s = np.sort(w)[::-1]
    if name[0] == "m" and (abs(np.cumsum(s) / s.sum() - float(name[4:])) < 1e-5).any():
        return True
    limit = s[min(64, len(w)) - 1] * np.exp(-float(name[6:])) if name[0] == "s" else 0
    return bool((abs(w - limit) < 4 * EPS * limit).any()) or not U.all() and bool(w[U].min() * (1 - 2 * EPS) <= w[~U].max())


def statistics(w, U, r, p=None):
    """Return useful, dilution, kept, rho_u, rho_d of retention weights r; p: the attention of the run, if given."""
    with np.errstate(invalid="ignore", divide="ignore"):
        kept = np.float64((r * w)[U].sum()) / (r * w).sum() if p is None else p[U].sum()
        return w[U].sum(), w[~U].sum(), kept, np.float64((r * w)[U].sum()) / w[U].sum(), np.float64((r * w)[~U].sum()) / w[~U].sum()


def near(w, U, eps=0.):
    """Return |D'(Delta)| for Delta = 0, .5, ..., 7.5."""
    return (w[~U][:, None] >= w[U].max() * np.exp(-.5 * np.arange(16)) * (1 + eps)).sum(0)


def bound(counts, size):
    x = np.exp(-.5 * np.arange(16)) * counts / size
    return (x / (1 + x)).max()


# ---- the probe, against float64

def write(path, what):
    Path(path).write_text(what if isinstance(what, str) else json.dumps(what), encoding="ascii")
    return path


class Run:
    def __init__(self, folder, name, size, n_prompt, n, options, spans=None, gates=False, equal=False, mask=None, plan=None):
        self.folder = os.path.join(folder, name)
        os.mkdir(self.folder)
        gguf, ids, self.kvf = self.path("m.gguf"), self.path("ids"), self.path("x.kvf")
        self.call(sys.executable, gen_tiny, *size.split(), "-o", gguf)
        if equal:  # query matrices of zeros: all weights of a row are equal
            g = dense.Gguf(gguf)
            data = bytearray(g.b)
            for tensor, (at, bytes_) in g.offset.items():
                if "attn_q" in tensor:
                    data[at:at + bytes_] = bytes(bytes_)
            Path(gguf).write_bytes(data)
        self.model = dense.Llama(gguf)
        if gates:
            self.call(sys.executable, make_gates, "--layout", "rg", "--layers", "2", "--heads", self.model.G, "--kv-heads", self.model.H,
                      "--d-model", len(self.model.w["output_norm.weight"]), "--head-dim", self.model.D, "--seed", "3", "-o", self.path("g"))
            options += f" --gates {self.path('g')}"
        # tokens of one byte each: a span's bytes are its tokens
        write(ids, " ".join(map(str, np.random.RandomState(len(name)).randint(3, 259, n_prompt))))
        self.spans = {}
        if spans:
            write(self.path("s.json"), {"spans": [dict(zip(("name", "start", "end", "useful"), s)) for s in spans]})
            options += f" --spans {self.path('s.json')}"
        if plan:  # of another run: the entries that it kept
            self.call(kvfate, "trace", "plan", "--overwrite", plan.kvf, "-o", self.path("p.kvf"))
            options += f" --plan {self.path('p.kvf')}"
        env = dict(os.environ, KVFATE_CPU_MASK=mask) if mask else None
        self.call(kvfate, "run", "--overwrite", "-m", gguf, "--ids", ids, "-n", n, "--exact", "--ignore-eos", *options.split(),
                  "--probes", "evict,gate,dilution", "-t", "2", "-q", "-o", self.kvf, env=env)
        self.column = {}
        for line in self.call(dump, self.kvf, self.folder).splitlines():
            column, *shape = line.split()
            self.column[column] = np.fromfile(self.path(column + ".f64")).reshape([int(x) for x in shape])
        self.ids = self.column["tokens.id"][0, 0].astype(int)
        self.T = len(self.ids)
        e = self.column["evict_step"]
        self.alpha = dense.alpha_of(np.where(e == 0xffffffff, np.inf, e), self.T)
        self.plan = None
        if plan:  # tokens after its last stay
            e = np.full((*e.shape[:2], self.T), np.inf)
            e[:, :, :plan.T] = np.where(plan.column["evict_step"] == 0xffffffff, np.inf, plan.column["evict_step"])
            self.plan = dense.alpha_of(e, self.T)
        self.p, _, _ = self.model.run(self.ids, self.alpha)
        for span, start, end, useful in spans or ():
            for of in (["span"] if useful else []) + ["span." + span]:
                self.spans.setdefault(of, np.zeros(self.T, bool))[start:end] = True

    def path(self, name):
        return os.path.join(self.folder, name)

    def call(self, *args, env=None):
        r = subprocess.run(list(map(str, args)), capture_output=True, env=env, text=True, errors="replace")
        if r.returncode:
            sys.exit(f"{' '.join(map(str, args))}: exit {r.returncode}: {r.stderr}")
        return r.stdout


def same(got, want, eps):
    """Compare to twenty roundings; undefined values must agree.  (np.isclose is slow for single numbers.)"""
    return bool(got == want or abs(got - want) <= 2e-6 + 20 * eps * abs(want) or (got != got and want != want))


def close_count(got, low, high):
    return bool((np.asarray(low) <= got).all() and (got <= np.asarray(high)).all())


def compare(name, run, known_all, shadow, missing=()):
    """Compare every value of every column; a difference needs a reason in rounding: a tie at the border of a set."""
    col, model, T, eps = run.column, run.model, run.T, EPS
    evicts, beta = "kept.top64" in col, "beta.kept.top64" in col
    sets = PREFIXES + [s for s in run.spans if s not in missing] + ["plan"] * (run.plan is not None)
    check(f"{name}: sets", sorted(sets) == sorted(c[5:] for c in col if c.startswith("size.")), sets)
    check(f"{name}: shadow", ("rho_u.top64" in col) == (evicts and shadow))
    lb, open_, total, far = col.get("log_beta"), 0, 0, 0
    for l in range(model.L):
        for g in range(model.G):
            h = g // (model.G // model.H)
            for t in [t for t in range(T) if t < 3 or t % 8 == g % 8 or 63 <= t <= 65 or t > T - 8]:
                w, seen = model.whole[l, g, t, :t + 1], run.alpha[l, h, t, :t + 1]
                p, known = run.p[l, g, t, :t + 1], known_all or seen.all()
                aged = np.exp(lb[l, h, :t + 1] * (t - np.arange(t + 1))) if beta else None
                for s in sets:
                    total += 1
                    span = s.startswith("span") or s == "plan"
                    if s == "plan":
                        U = run.plan[l, h, t, :t + 1]
                    elif span:
                        U = run.spans[s][:t + 1]
                    else:
                        U = np.zeros(t + 1, bool)
                        U[... if known else seen] = prefix(w if known else p[seen], s)
                    got = {r: col[f"{r}.{s}"][l, g, t] for r in REALS if f"{r}.{s}" in col}
                    want = dict.fromkeys(got, np.nan)
                    if U.any() and known:
                        want.update(zip(("useful", "dilution", "kept", "rho_u", "rho_d"), statistics(w, U, seen, p if span else None)))
                        if beta:
                            want.update(zip(("beta.kept", "beta.rho_u", "beta.rho_d"), statistics(w, U, aged)[2:]))
                    elif U.any():
                        want["kept"] = p[U].sum()
                    tie = not span and at_border(w if known else p[seen], U if known else U[seen], s)
                    wrong = [r for r in got if not same(got[r], want[r], eps)]
                    if wrong and tie:
                        open_ += 1
                    elif wrong:
                        far += 1
                        if far < 4:
                            print(" ", name, s, (l, g, t), {r: (got[r], want[r]) for r in wrong})
                    size = col["size." + s][l, g, t]
                    low = high = U.sum() if known else 0
                    if known and not span and s[0] != "t" and t > 0:
                        low, high = low - 2 * tie, high + 2 * tie
                    far += not low <= size <= high
                    if not span:
                        continue
                    counts = np.array([col[f"near.{s}.{k}"][l, g, t] for k in range(16)])
                    low, high = (near(w, U, eps), near(w, U, -eps)) if known and U.any() else (0, 0)
                    far += not close_count(counts, low, high)
                counts = np.array([col[f"near.all.{k}"][l, g, t] for k in range(16)])
                first = w == w.max()
                low, high = (near(w, first, eps) + first.sum(), near(w, first, -eps) + first.sum()) if known else (0, 0)
                far += not close_count(counts, low, high)
    check(f"{name}: beyond rounding", far == 0, far, "of", total)
    check(f"{name}: left to rounding", open_ <= .02 * total, open_, total)


SPANS = [("one", 10, 11, True), ("more", 20, 41, True), ("more", 60, 62, True), ("end", 84, 90, False)]
HEADER = [{"name": "one", "useful": True, "tokens": [[10, 11]]}, {"name": "more", "useful": True, "tokens": [[20, 41], [60, 62]]},
          {"name": "end", "useful": False, "tokens": [[84, 90]]}]


def plans(folder):
    """Check U = the entries that a plan keeps, in runs that see everything, that follow the plan, and that evict
    differently.
    """
    size = "--heads 6 --kv-heads 2 --dim 64"
    of = Run(folder, "plan-0", size, 70, 16, "--method h2o -B 24")
    for k, (n, options, shadow) in enumerate(((16, "--method full", True), (16, "--shadow entries", True), (16, "--method plan", False),
                                              (16, "--method window -B 20 --shadow entries", True), (30, "--method window -B 20", False)), 1):
        run = Run(folder, f"plan-{k}", size, 70, n, options, SPANS[:1] if k < 3 else None, plan=of)
        compare(f"plan-{k}", run, shadow, shadow, missing=("span.one",))
        check(f"plan-{k}: evicts", (run.plan.sum() < run.T * (run.T + 1) // 2 * run.plan.shape[0] * run.plan.shape[1]) and run.T >= of.T, run.T)
        if k == 2:  # its own entries: all of U is cached, everything else is not
            after = run.column["size.plan"] < np.arange(1, run.T + 1)
            check("its own plan", after.any() and (run.column["rho_u.plan"] == 1).all() and (run.column["rho_d.plan"][after] == 0).all()
                  and np.allclose(run.column["kept.plan"][after], 1))
            check("dilution of a plan is what it misses", np.allclose(run.column["useful.plan"][after], run.column["shadow.kept_mass"][after], atol=2e-6))
        if k in (1, 2):
            data, meta = table(kvfate, "dilution", run.kvf, "--useful", "plan", "--every", 1)
            heads = run.model.L * run.model.G
            check(f"plan-{k}: table", np.allclose(np.reshape(data["dilution"][:heads * run.T], (heads, -1)), run.column["dilution.plan"].reshape(heads, -1))
                  and float(meta["bound_above_dilution"]) == 0, meta)
    refused("a run without a plan", 1, ["dilution", of.kvf, "--useful", "plan"], "useful.plan", "--plan")


def against_float64(folder):
    """Check each case: name, tiny model, prompt, -n, options, spans; if all weights are known; further options."""
    for name, size, n_prompt, n, options, spans, shadow, more in (
            ("one", "--heads 4 --kv-heads 2", 1, 0, "--method full", [("all", 0, 1, True)], True, {}),
            ("full", "--heads 6 --kv-heads 2 --dim 64", 100, 31, "--method full", SPANS, True, {}),
            ("equal", "--heads 2 --kv-heads 2 --dim 32", 70, 0, "--method full", [("first", 3, 9, True)], True, {"equal": True}),
            ("gates", "--heads 4 --kv-heads 2 --seed 3", 90, 10, "--method trimkv -B 200", SPANS, True, {"gates": True}),
            ("reference", "--heads 2 --kv-heads 1 --dim 32 --seed 4", 80, 6, "--method trimkv -B 70 --shadow entries", SPANS[:2], True,
             {"gates": True, "mask": "0"}),
            ("shadow", "--heads 6 --kv-heads 2 --dim 64 --seed 5", 90, 12, "--method trimkv -B 20 --shadow entries", SPANS, True, {"gates": True}),
            ("h2o", "--heads 3 --kv-heads 1 --dim 96 --seed 6", 90, 12, "--method h2o -B 70", SPANS, False, {})):
        run = Run(folder, name, size, n_prompt, n, options, spans, **more)
        useful = {s[0] for s in spans if s[3]}
        compare(name, run, shadow, "--shadow" in options, ["span." + x for x in useful] if len(useful) == 1 else ())
        header = json.loads(run.call(kvfate, "trace", "info", "--json", run.kvf))
        if spans is SPANS:
            check(f"{name}: header", json.dumps(HEADER, separators=(",", ":")) in json.dumps(header, separators=(",", ":")))
        for weights in ["run"] + ["beta"] * ("beta.kept.top64" in run.column):
            for U in ("topk:64", "mass:0.9", "topk-slack:2", "span")[2 * (name not in ("full", "shadow")):]:
                tables(f"{name} {weights} {U}", run, U, weights)
        if useful == {"all"} or useful == {"first"}:
            data, _ = table(kvfate, "dilution", run.kvf, "--useful", "span:" + useful.pop())
            whole, _ = table(kvfate, "dilution", run.kvf, "--useful", "span")
            check(f"{name}: the only useful name", data == whole)
    return run


def tables(name, run, U, weights):
    """Check that the table follows from the columns; corollary 3.2 and proposition 3.1 apply to every row."""
    col, T = run.column, run.T
    of = {"topk:64": "top64", "mass:0.9": "mass.90", "topk-slack:2": "slack.2", "span": "span"}[U]
    dot = "beta." if weights == "beta" else ""
    useful, lost = col["useful." + of], col["dilution." + of]
    kept, u, d = (col.get(f"{dot}{r}.{of}") for r in ("kept", "rho_u", "rho_d"))
    nan = np.where(np.isnan(useful), np.nan, 1)
    evicts = kept is not None
    kept, u, d = (kept if evicts else useful), u if u is not None else nan * (np.nan if evicts else 1), d if d is not None else nan * (np.nan if evicts else 1)
    size = np.minimum(64, np.arange(T) + 1) * nan if of == "top64" else col["size." + of]
    counts = np.stack([col[f"near.{'span' if of == 'span' else 'all'}.{k}"] for k in range(16)], -1)
    outside = counts if of == "span" else counts - size[..., None]
    with np.errstate(invalid="ignore", divide="ignore"):
        x = np.maximum(0, np.exp(-.5 * np.arange(16)) * outside / size[..., None])
        want = {"dilution": lost, "useful_mass": useful, "rho_u": u, "rho_d": d, "dilution_retained": 1 - kept if evicts else lost,
                "bound": (x / (1 + x)).max(-1), "useful_entries": size * nan}
    want["bound"] = want["bound"] * nan
    more = ["--useful", U, "--weights", weights]
    data, meta = table(kvfate, "dilution", run.kvf, *more, "--every", 1)
    L, G = useful.shape[:2]
    check(f"{name}: heads", data["head"] == [f"L{l}H{g}" for l in range(L) for g in range(G) for _ in range(T)] + ["all"] * T)
    check(f"{name}: steps", data["step"] == list(range(T)) * (L * G + 1))
    mean, _ = table(kvfate, "dilution", run.kvf, *more, "--mean")
    for key, v in want.items():
        got = np.array(data[key], float).reshape(L * G + 1, T)
        ok = np.allclose(got[:-1], v.reshape(L * G, T), rtol=0, atol=1e-14, equal_nan=True)
        check(f"{name}: {key}", ok, got[:-1].ravel()[:6], v.ravel()[:6])
        with np.errstate(invalid="ignore"):
            n = (~np.isnan(v)).sum((0, 1))
            over = np.where(n > 0, np.nansum(v, (0, 1)) / np.maximum(n, 1), np.nan)
            check(f"{name}: {key}, all heads", np.allclose(got[-1], over, rtol=0, atol=1e-12, equal_nan=True))
            flat = [*v.reshape(L * G, T), v]
            means = [np.nanmean(x) if (~np.isnan(x)).any() else np.nan for x in flat]
        check(f"{name}: {key}, means", np.allclose(np.array(mean[key], float), means, rtol=0, atol=1e-12, equal_nan=True))
        if not np.isnan(means[-1]):
            check(f"{name}: mean_{key}", abs(float(meta["mean_" + key]) - means[-1]) < 1e-12)
    know = ~np.isnan(u) & ~np.isnan(d)
    check(f"{name}: counts", (int(meta["compared"]), int(meta["preferential"])) == (know.sum(), (know & (d <= u)).sum()), meta)
    check(f"{name}: undefined", int(meta["undefined"]) == np.isnan(useful).sum() and int(meta["pairs"]) == L * G * T)
    check(f"{name}: corollary 3.2", float(meta["identity_difference"]) < 2e-6, meta["identity_difference"])
    with np.errstate(invalid="ignore"):
        check(f"{name}: rho_d <= rho_u means less dilution", ((want["dilution_retained"] <= lost + 1e-6) | ~(d <= u)).all())
        check(f"{name}: proposition 3.1", not (want["bound"] > want["dilution"] + 1e-6).any() and meta["bound_above_dilution"] in (0, "0"), meta)
    if "shadow.oracle_mass" in col and of != "span":
        oracle = np.maximum(0, 1 - useful / col["shadow.oracle_mass"])
        got = np.array(data["dilution_oracle"], float).reshape(L * G + 1, T)[:-1].reshape(L, G, T)
        check(f"{name}: oracle", np.allclose(got, oracle, rtol=0, atol=1e-12) and (got <= 1 - useful + 1e-6).all())


# ---- by hand and at random, from synthetic columns

def made(path, w, U, r, shape=None):
    """Write the columns `span` of rows w [L,G,T,T] with useful entries U [T] and retention r [L,G,T,T]."""
    L, G, T, _ = w.shape
    names = ["useful", "dilution", "kept", "rho_u", "rho_d", "size"] + [f"near.{k}" for k in range(16)]
    out = {n: np.full((L, G, T), np.nan if n[0] in "udkr" else 0) for n in names}
    for l, g, t in np.ndindex(L, G, T):
        row, of = w[l, g, t, :t + 1], U[:t + 1]
        if of.any():
            for n, v in zip(names, statistics(row, of, r[l, g, t, :t + 1])):
                out[n][l, g, t] = v
            out["size"][l, g, t] = of.sum()
            for k, v in enumerate(near(row, of)):
                out[f"near.{k}"][l, g, t] = v
    cols = [Column(f"near.span.{n[5:]}" if n[0] == "n" else n + ".span", "u32" if n in ("size",) or n[0] == "n" else "f64", "query", v, "step")
            for n, v in out.items()]
    return make(write_kvf, path, cols, shape or (L, G, G, T), {"run": {"prompt_tokens": 2}}), cols


def by_hand(folder):
    """Check one head, four entries of weights 1/8 1/2 1/8 1/4 at step 3; only token 1 is useful.

      dilution 1 - 1/2 = 1/2. Retention keeps 1, all of the useful, and 1/2 of the rest: rho_u 1, rho_d 1/2;
      retained (1/2 * 1/2) / (1/2 + 1/4) = 1/3, by the corollary 1/2 * 1/2 / (1/2 + 1/2 * 1/2) = 1/3.
      Logits below ln 1/2: ln 2 = .69 (the 1/4), ln 4 = 1.39 (two of 1/8). Delta 1: e^-1 * 1 = .3679,
      Delta 1.5: e^-1.5 * 3 = .6694, Delta 2: .406: bound .6694 / 1.6694 = .40098 at 1.5, below 1/2.
      Step 0 has no useful entry; step 1: weights 1/4 3/4, dilution 1/4, none of the rest retained: 0; ln 3 = 1.0986,
      so Delta 1.5: e^-1.5 = .2231, bound .18243; step 2: the useful entry is evicted: retained 1, rho_u 0.
    """
    w = np.zeros((1, 1, 4, 4))
    w[0, 0, 0, :1], w[0, 0, 1, :2], w[0, 0, 2, :3], w[0, 0, 3] = 1, [.25, .75], [.25, .5, .25], [.125, .5, .125, .25]
    r = np.ones_like(w)
    r[0, 0, 1, 0], r[0, 0, 2, 1], r[0, 0, 3, [0, 2, 3]] = 0, 0, .5
    path, _ = made(os.path.join(folder, "hand.kvf"), w, np.array([0, 1, 0, 0], bool), r)
    data, meta = table(kvfate, "dilution", path)
    want = {"dilution": [None, .25, .5, .5], "useful_mass": [None, .75, .5, .5], "rho_u": [None, 1, 0, 1], "rho_d": [None, 0, 1, .5],
            "dilution_retained": [None, 0, 1, 1 / 3], "bound": [None, .18242552, .42388312, .40098], "bound_delta": [None, 1.5, 1, 1.5]}
    # step 2: ln 2 = .69 for both others: Delta 1: 2 e^-1 = .7358, bound .42388
    for key, v in want.items():
        got = data[key][:4]
        check(f"by hand: {key}", got[0] is None and np.allclose(got[1:], v[1:], rtol=0, atol=1e-5), got, v)
        check(f"by hand: {key} of all", [x is None for x in data[key][4:]] == [True] + [key == "bound_delta"] * 3)
    check("by hand: defaults", meta["useful"] == "span" and meta["weights"] == "run", meta)
    check("by hand: counts", (meta["undefined"], meta["compared"], meta["preferential"]) == ("1", "3", "2"), meta)
    check("by hand: counts after it", (meta["compared_after_prompt"], meta["preferential_after_prompt"]) == ("2", "1"), meta)
    check("by hand: after the prompt", abs(float(meta["mean_dilution_retained_after_prompt"]) - 2 / 3) < 1e-12, meta)
    later, _ = table(kvfate, "dilution", path, "--mean", "--after-prompt")  # steps 2 and 3
    check("by hand: means after the prompt", np.allclose([later[k][1] for k in ("dilution_retained", "rho_u", "rho_d")], [2 / 3, .5, .75], rtol=0, atol=1e-12)
          and later["head"] == ["L0H0", "all"] and later["step"] == [-1, -1], later)
    later, _ = table(kvfate, "dilution", path, "--after-prompt")
    check("by hand: steps after the prompt", later["step"] == [2, 3] * 2, later)
    said = subprocess.run([kvfate, "dilution", path], capture_output=True, text=True)
    check("by hand: said", "undefined in 1 pairs" in said.stdout and "2 of 3" in said.stdout and "1 of 2" in said.stdout and not said.stderr, said)


def by_chance(folder):
    """Check the corollary and the bound on weights of every kind: the two ways differ only by rounding."""
    rng = np.random.default_rng(5)
    for case, (T, spread, share) in enumerate(((60, 1, .1), (60, 6, .5), (40, .01, .02), (50, 30, .3), (1, 1, 1))):
        z = spread * rng.normal(size=(2, 3, T, T))
        z[~np.broadcast_to(np.tril(np.ones((T, T), bool)), z.shape)] = -np.inf
        w = np.exp(z - z.max(-1, keepdims=True))
        w /= w.sum(-1, keepdims=True)
        r = np.where(rng.random(w.shape) < .5, rng.random(w.shape), rng.random(w.shape) < .7)
        r[..., range(T), range(T)] = 1
        U = rng.random(T) < share
        U[0] |= T == 1
        path, cols = made(os.path.join(folder, f"c{case}.kvf"), w, U, r)
        _, meta = table(kvfate, "dilution", path)
        check(f"chance {case}: corollary", float(meta["identity_difference"]) < 1e-12, meta)
        check(f"chance {case}: bound", float(meta["bound_above_dilution"]) == 0, meta)
        check(f"chance {case}: undefined", int(meta["undefined"]) == 6 * (np.cumsum(U) == 0).sum(), meta)
    return path


def refusals(folder, run, one):
    x = run.kvf
    for more, word in ((["--useful", "topk:65"], "topk:65"), (["--useful", "mass:0.5"], "mass:0.5"), (["--useful", "plans"], "plans"),
                       (["--useful", ""], "--useful"), (["--useful", "span:"], "span:"), (["--weights", "x"], "--weights"), (["--every", "0"], "--every"),
                       (["--every", "2", "--mean"], "--every"), (["--head", "L0K0"], "query"), (["-o", os.path.join(folder, "x.jpg")], ".tsv")):
        refused(" ".join(more), 2, ["dilution", x, *more], word)
    refused("no gates", 1, ["dilution", x, "--weights", "beta"], "beta.kept.span", "trimkv")
    refused("no such span", 1, ["dilution", x, "--useful", "span:none"], "useful.span.none", "--spans")
    refused("no length of a prompt", 2, ["dilution", make(write_kvf, os.path.join(folder, "none.kvf"), [], (1, 1, 1, 3)), "--after-prompt"], "length of its prompt")
    refused("no steps after the prompt", 2, ["dilution", x, "--after-prompt", "--tokens", "0:2"], "after its prompt")
    refused("no columns", 1, ["dilution", make(write_kvf, os.path.join(folder, "none.kvf"), [], (1, 1, 1, 3))], "useful.top64", "dilution")
    wrong = Column("useful.top64", "f32", "kv", np.ones((1, 1, 3)), "step")
    refused("columns of KV heads", 1, ["dilution", make(write_kvf, os.path.join(folder, "kv.kvf"), [wrong], (1, 1, 1, 3))], "query head and step")
    empty = [Column(c, "f32", "query", np.zeros((1, 1, 0)), "step") for c in ["useful.top64", "dilution.top64", "size.top64"] + [f"near.all.{k}" for k in range(16)]]
    for more in ([], ["--mean"]):
        data, _ = table(kvfate, "dilution", make(write_kvf, os.path.join(folder, "e.kvf"), empty, (1, 1, 1, 0)), *more)
        check("empty", data["head"] == [])
    for ext in ("tsv", "csv", "npz", "json"):
        out = os.path.join(folder, "t." + ext)
        r = subprocess.run([kvfate, "dilution", one, "-o", out], capture_output=True, text=True)
        check(ext, r.returncode == 0 and os.path.getsize(out) > 100, r.stderr)
    # spans that do not fit
    span = {"name": "a", "start": 0, "end": 2}
    for name, spans, word in (("past the end", [dict(span, end=91)], "ends at byte 91"), ("no end", [{"name": "a", "start": 3}], "end"),
                              ("backwards", [dict(span, start=2, end=1)], "start"), ("empty", [dict(span, start=2)], "start"), ("none", [], "1 to 4096"),
                              ("name", [dict(span, name="a b")], "name"), ("long name", [dict(span, name="a" * 17)], "name"),
                              ("both", [span, dict(span, useful=False)], "alike"), ("no list", 3, "spans"), ("no JSON", "{", "")):
        path = write(os.path.join(folder, "s.json"), spans if isinstance(spans, str) else {"spans": spans})
        refused("spans: " + name, 1, ["run", "--overwrite", "-m", run.path("m.gguf"), "--ids", run.path("ids"), "-n", "0", "-q", "--spans", path,
                                      "-o", os.path.join(folder, "s.kvf")], word, "s.json")
        check(f"spans: {name}: nothing is written", not os.path.exists(os.path.join(folder, "s.kvf")))


def needles(folder, run):
    """Check that the spans of the file match the text for any options; lengths fit; the rest of the text has no number."""
    out, gguf = os.path.join(folder, "hay"), run.path("m.gguf")
    for more, needles_, distractors in ((["--words", "300"], 1, 0), (["--words", "500", "--keys", "8", "--values", "2", "--queries", "3", "--seed", "7"], 6, 10),
                                        (["--tokens", "700", "-m", gguf, "--depth", "0"], 1, 0), (["--words", "200", "--haystack", "noise", "--digits", "2"], 1, 0),
                                        (["--words", "200", "--haystack", "needles", "--depth", "1"], 1, 0)):
        r = subprocess.run([kvfate, "tasks", "needle", *more, "-o", out], capture_output=True, text=True)
        check(f"needle {more}", r.returncode == 0 and not r.stdout and not r.stderr, r)
        text, about = open(out + ".txt", encoding="ascii").read(), json.load(open(out + ".json", encoding="ascii"))
        at = {}
        for s in about["spans"]:
            at.setdefault(s["name"], []).append(text[s["start"]:s["end"]])
            check("useful", s["useful"] == (s["name"] == "needle"))
        check("counts", (len(at["needle"]), len(at.get("distractor", ())), len(at["value"])) == (needles_, distractors, needles_), at)
        check("answers", sorted(at["value"]) == sorted(about["answers"]) and len(set(about["answers"])) == needles_, at, about)
        for n, v in zip(at["needle"], at["value"]):
            key = n.split(" of the ")[-1].split(" is ")[0]
            check("the question asks", n.endswith(f"is {v}.") and f"the {key}" in at["question"][0] and text.endswith(at["question"][0]), n)
        for d in at.get("distractor", ()):
            check("and nothing else", d.split(" of the ")[-1].split(" is ")[0] not in at["question"][0])
        unit = about.get("words", about.get("tokens"))
        check("length", int(more[1]) - 60 < unit <= int(more[1]) and ("words" not in about or unit == len(text.split())), unit)
        if "--haystack" not in more:
            digits = sum(c.isdigit() for c in text)
            check("no other number", digits == 5 * (needles_ + distractors), digits)
        if about["depth"] is not None:
            place = text.index(at["needle"][0]) / len(text)
            check("depth", place < .15 if about["depth"] == 0 else place > .8, place)
    texts = []
    for n in ("300", "400"):
        subprocess.run([kvfate, "tasks", "needle", "--words", n, "-n", "2", "-o", out], check=True)
        texts.append([open(f"{out}-{i}.txt", encoding="ascii").read() for i in (0, 1)])
    a, b = texts[0][0].split(". "), texts[1][0].split(". ")
    check("longer only adds", all(s in b for s in a[:-1]) and len(b) > len(a) and texts[0][0] != texts[0][1])
    subprocess.run([kvfate, "tasks", "needle", "--words", "300", "-s", "1", "-o", out], check=True)
    check("seeds count up", open(out + ".txt", encoding="ascii").read() == texts[0][1])
    for more, word in ((["-o", out], "--tokens"), (["--words", "9", "-o", out], "over 9"), (["--words", "99"], "-o"), (["--words", "9", "--tokens", "9", "-o", out], "--words"),
                       (["--words", "99", "--queries", "2", "-o", out], "--queries"), (["--words", "99", "--haystack", "x", "-o", out], "--haystack"),
                       (["--words", "99", "--keys", "100", "--values", "6", "-o", out], "512"), (["--words", "999", "--digits", "1", "--keys", "6", "-o", out], "--digits")):
        refused("needle " + " ".join(more), 2, ["tasks", "needle", *more], word)
    # from the text to the trace: the chat template before the prompt shifts all spans, and the tokens spell them
    subprocess.run([kvfate, "tasks", "needle", "--words", "70", "--seed", "2", "-o", out], check=True)
    for template in ([], ["--raw"]):
        kvf = os.path.join(folder, "n.kvf")
        r = subprocess.run([kvfate, "run", "--overwrite", "-m", gguf, "-f", out + ".txt", "--spans", out + ".json", *template, "-n", "0", "-q", "--probes", "evict", "-o", kvf],
                           capture_output=True, text=True)
        check("run --spans", r.returncode == 0, r.stderr)
        if r.returncode == 0:
            info = json.loads(subprocess.run([kvfate, "trace", "info", "--json", kvf], capture_output=True, text=True, check=True).stdout)
            spans = {s["name"]: s["tokens"] for s in find(info, "spans")}
            data, _ = table(kvfate, "tokens", kvf)
            about, text = json.load(open(out + ".json", encoding="ascii")), open(out + ".txt", encoding="ascii").read()
            for s in about["spans"]:
                (a, b), = spans[s["name"]]
                spelled = "".join(data["text"][a:b])
                part = text[s["start"]:s["end"]]
                check("spelled", part in spelled and part not in "".join(data["text"][a + 1:b]) and part not in "".join(data["text"][a:b - 1]), part, spelled)


def every_third(folder):
    """Check that --every N shows rows of the complete table, over several blocks of steps."""
    run = Run(folder, "long", "--layers 1 --heads 1 --kv-heads 1 --head-dim 16 --dim 32 --ffn 32 --context 2048", 1100, 1, "--method h2o -B 40")
    whole, _ = table(kvfate, "dilution", run.kvf, "--every", 1)
    for n in (3, 7, 512):
        some, _ = table(kvfate, "dilution", run.kvf, "--every", n)
        rows = [i for i, step in enumerate(whole["step"]) if step % n == 0]
        for key in whole:
            got, want = some[key], [whole[key][i] for i in rows]
            check(f"--every {n}: {key}", np.array_equal(np.array(got, float), np.array(want, float), equal_nan=True) if key not in ("head",) else got == want, key)


def find(tree, key):
    if isinstance(tree, dict):
        return tree[key] if key in tree else next((x for x in (find(v, key) for v in tree.values()) if x), None)
    return None


with tempfile.TemporaryDirectory(prefix="kvfate-dilution-") as folder:
    by_hand(folder)
    plans(folder)
    one = by_chance(folder)
    run = against_float64(folder)
    refusals(folder, run, one)
    every_third(folder)
    needles(folder, run)

finish()
