"""Check the analyzers against a brute force on dense T x T attention.

usage: test_dense.py KVFATE DUMP GEN_TINY

A tiny model is generated, run by `kvfate run --exact`, and run again by dense.py in float64 under the evictions that
the trace states.  Float32 may order two weights differently from float64 if they are closer than EPS. Such
differences are counted and bounded; all others fail.
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import dense
import selections
from check import words_of

EPS = 1e-4  # relative rounding of an attention weight; the logits agree within 6e-5
MOST_OPEN = .03  # maximum fraction of the ages that rounding may decide
TOLERANCE = 2e-4  # absolute, of log-sum-exp, entropy and NLL in nats
REASONS = ["alive", "budget", "window", "refused", "architecture", "plan"]
ROLES = ["prompt", "answer"]

# name, gen_tiny options, prompt length, -n, run options; T = prompt + n - 1 (n >= 1)
CASES = [
    ("one", "--heads 4 --kv-heads 2", 1, 0, "--method full"),
    ("two", "--heads 3 --kv-heads 1 --dim 96 --head-dim 32", 1, 2, "--method full"),
    ("full-65", "--heads 2 --kv-heads 2 --dim 32", 65, 0, "--method full"),
    ("full-130", "--heads 6 --kv-heads 2 --dim 64 --seed 3", 100, 31, "--method full"),
    ("h2o-130", "--heads 4 --kv-heads 2 --seed 4", 90, 41, "--method h2o --budget 72"),
    ("h2o-prompt", "--heads 6 --kv-heads 2 --dim 64 --seed 9", 65, 0, "--method h2o --budget 16"),
    ("tova-65", "--heads 3 --kv-heads 1 --dim 96 --seed 5", 40, 26, "--method tova --budget 12"),
    ("keydiff-130", "--heads 3 --kv-heads 3 --dim 96 --seed 6", 70, 61, "--method keydiff --budget 66"),
    ("h2o-one", "--heads 4 --kv-heads 2 --seed 7", 1, 12, "--method h2o --budget 4"),
    ("ties", "--heads 4 --kv-heads 2 --seed 8", 100, 31, "--method full"),
]


class Run:
    def __init__(self, tools, folder, case):
        self.kvfate, self.dump, gen = tools
        self.name, options, prompt, n, method = case
        self.folder = os.path.join(folder, self.name)
        os.mkdir(self.folder)
        self.gguf, self.kvf = self.path("m.gguf"), self.path("x.kvf")
        self.call(sys.executable, gen, *options.split(), "-o", self.gguf)
        if self.name == "ties":
            self.forget_queries()
        ids = np.random.RandomState(len(self.name)).randint(3, 259, prompt)
        Path(self.path("ids")).write_text(" ".join(map(str, ids)))
        self.call(self.kvfate, "run", "--overwrite", "-m", self.gguf, "--ids", self.path("ids"), "-n", str(n), "--exact",
                  "--ignore-eos", *method.split(), "--probes", "full", "-t", "2", "-q", "-o", self.kvf)
        self.read_columns()

    def path(self, name):
        return os.path.join(self.folder, name)

    def call(self, *args):
        r = subprocess.run(args, capture_output=True)
        if r.returncode:
            sys.exit(f"{' '.join(args)}: exit {r.returncode}: {r.stderr.decode()}")
        return r.stdout

    def forget_queries(self):
        """Set query matrices to zero: all weights of a row are equal, with ties everywhere."""
        g = dense.Gguf(self.gguf)
        data = bytearray(g.b)
        for name, (at, size) in g.offset.items():
            if "attn_q" in name:
                data[at:at + size] = bytes(size)
        Path(self.gguf).write_bytes(data)

    def read_columns(self):
        self.column = {}
        for line in self.call(self.dump, self.kvf, self.folder).decode().splitlines():
            name, *shape = line.split()
            self.column[name] = np.fromfile(self.path(name + ".f64")).reshape([int(x) for x in shape])
        self.ids = self.column["tokens.id"][0, 0].astype(int)
        self.role = self.column["tokens.role"][0, 0].astype(int)
        e = self.column["evict_step"]
        self.evict = np.where(e == 0xffffffff, np.inf, e)

    def table(self, analysis, *options, ext="npz"):
        out = self.path("t." + ext)
        self.call(self.kvfate, *words_of(analysis, self.kvfate), self.kvf, *options, "-o", out)
        if ext == "npz":
            with np.load(out) as z:
                return {k: z[k] for k in z.files}
        if ext == "json":
            data = json.loads(Path(out).read_text())["data"]
            return {k: np.array([np.nan if x is None else x for x in v]) for k, v in data.items()}
        with open(out) as f:
            lines = [x.rstrip("\n").split("\t") for x in f if not x.startswith("# ")]
        return {k: np.array([row[i] for row in lines[1:]]) for i, k in enumerate(lines[0])}


class Check:
    def __init__(self, run):
        self.run, self.wrong, self.ties, self.open, self.ages, self.done = run, 0, 0, 0, 0, 0
        self.settled, self.of_settled = 0, 0
        eps = 0 if run.name == "ties" else EPS
        self.model = dense.Llama(run.gguf)
        self.d = dense.Dense(self.model, run.ids, run.role, run.evict, eps)
        self.T = self.d.T

    def equal(self, what, got, want, tolerance=0.0):
        self.done += 1
        got, want = np.asarray(got), np.asarray(want)
        if got.dtype.kind in "US" or want.dtype.kind in "US":
            ok = got.shape == want.shape and (got == want).all()
        else:
            ok = got.shape == want.shape and np.allclose(got, want, rtol=0, atol=tolerance, equal_nan=True)
        if not ok:
            self.wrong += 1
            print(f"  {self.run.name}: {what}: got {got.ravel()[:8]} want {want.ravel()[:8]}")

    # ---- the recorded columns

    def columns(self):
        col, d = self.run.column, self.d
        total, top = d.mass()
        self.equal("mass.sum", col["mass.sum"], total, TOLERANCE * max(1, self.T / 10))
        self.equal("mass.max", col["mass.max"], top, TOLERANCE)
        self.equal("lse", col["lse"], d.lse, TOLERANCE)
        self.equal("entropy", col["entropy"], d.entropy(), TOLERANCE)
        self.equal("nll", col["nll"][0, 0], d.nll, TOLERANCE)
        self.equal("key_norm", col["key_norm"], self.model.key_norm, 1e-4 * self.model.key_norm.max())
        norm = self.model.out_norm
        self.equal("out_norm", col["out_norm"], norm, 1e-4 * norm.max())
        self.equal("lengths differ", self.T < 10 or norm.max() > 1.2 * norm.min(), True)
        seen = col["last_selected.contrib64"].astype(int)
        S, wrong, differ, open_ = d.resolve("contrib64", seen)
        self.equal("contrib64 beyond rounding", wrong, 0)
        self.equal("contrib64 after resolution", d.last(S), seen)
        self.ties, self.open, self.ages = self.ties + differ, self.open + open_, self.ages + seen.size
        t = self.run.table("survival", "--criterion", "contrib64", "--horizons", "0,1,5,64")
        alive = [(seen[:, :, : max(0, self.T - n)] >= n).sum() for n in (0, 1, 5, 64)]
        self.equal("survival contrib64", t["alive"][t["head"] == "all"], alive)
        t = self.run.table("received", "--spread", "heads", "--weight", "contrib")
        self.equal("contributions", t["mass"], (d.p.sum(2) * norm).sum(-1).ravel(), 1e-3 * max(1, self.T / 10) * norm.max())
        self.equal("contributions: the largest", t["top_share"], ((d.p.sum(2) * norm).max(-1) / (d.p.sum(2) * norm).sum(-1)).ravel(), 1e-3)
        self.S, self.R = {}, {}
        for c in dense.CRITERIA:
            seen = col["last_selected." + c].astype(int)
            self.S[c], wrong, differ, open_ = d.resolve(c, seen)
            self.R[c] = dense.until_last(self.S[c])
            self.equal(f"last_selected.{c} beyond rounding", wrong, 0)
            self.equal(f"last_selected.{c} after resolution", d.last(self.S[c]), seen)
            self.ties += differ
            self.open += open_
            self.ages += seen.size
            self.calibration(c)
        self.comings()

    def comings(self):
        """Check n_selected, n_returns and longest_gap of the tokens that do not depend on rounding; bounds of the
        others.
        """
        for c in ("top64", "mass.95"):
            exact, sure, possible = self.d.sets[c]
            col = [self.run.column[f"{k}.{c}"].astype(int) for k in ("n_selected", "n_returns", "longest_gap")]
            settled = (sure == possible).all(axis=2)
            for name, got, want in zip(("n_selected", "n_returns", "longest_gap"), col, selections.returns(exact)):
                self.equal(f"{name}.{c}", got[settled], want[settled])
            wrong = (col[0] < sure.sum(axis=2)) | (col[0] > possible.sum(axis=2)) | (col[1] >= np.maximum(col[0], 1)) | ((col[1] > 0) != (col[2] > 0))
            self.equal(f"comings {c}", wrong.any(), False)
            self.settled += settled.sum()
            self.of_settled += settled.size

    def calibration(self, c):
        """Check that selected_at and first_unselected are between those of the sets that rounding allows."""
        (_, sure, possible), col, wide = self.d.sets[c], self.run.column, dense.first_unselected(self.d.sets[c][2])
        mask, first = col["selected_at." + c].astype(np.int64), col["first_unselected." + c].astype(int)
        low, high = dense.selected_at(sure), dense.selected_at(possible)
        self.equal(f"selected_at.{c} beyond rounding", ((low & ~mask) | (mask & ~high)).any(), False)
        least = dense.first_unselected(sure)
        never = lambda x: np.where(x < 0, self.T + 1, x)
        wrong = (never(first) < never(least)) | (never(first) > never(wide))
        self.equal(f"first_unselected.{c} beyond rounding", wrong.sum(), 0)
        self.open_masks = getattr(self, "open_masks", 0) + (low != high).sum() + (least != wide).sum()
        self.masks = getattr(self, "masks", 0) + 2 * mask.size

    def budget(self):
        """Check that after the prompt no query of a head sees more than B entries."""
        words = self.run.method.split() if hasattr(self.run, "method") else []
        P = int((self.run.role == 0).sum())
        if "--budget" in words:
            B = int(words[words.index("--budget") + 1])
            self.equal("entries within the budget", bool((self.d.alpha[:, :, P:].sum(-1) <= B).all()), True)

    # ---- analyzers; heads: list of (layer, index)

    def heads(self, kv):
        return [(l, h) for l in range(self.d.L) for h in range(self.d.H if kv else self.d.G)]

    def names(self, kv, heads):
        return [f"L{l}{'K' if kv else 'H'}{h}" for l, h in heads]

    def survival(self, heads, a, b, *options, everyone=False):
        t = self.run.table("survival", "--at-least", "1", "--criterion", ",".join(dense.CRITERIA), "--denominator", "all" if everyone else "at-risk", *options)
        n_of = sorted(set(t["horizon"].tolist()))
        want = {k: [] for k in ("head", "criterion", "horizon", "at_risk", "alive", "fraction")}
        for c in dense.CRITERIA:
            groups = [(name, [h]) for name, h in zip(self.names(False, heads), heads)] + [("all", heads)]
            for name, group in groups:
                for n in n_of:
                    alive = sum(dense.survivors(self.R[c][h], n, a, b) for h in group)
                    risk = len(group) * (b - a if everyone else max(0, min(b, self.T - n) - a))
                    row = (name, c, n, risk, alive, alive / risk if risk else np.nan)
                    for k, v in zip(want, row):
                        want[k].append(v)
        for k, v in want.items():
            self.equal(f"survival {options} {k}", t[k], v, 1e-12)

    def selections(self):
        """Check results of the sets of the first query head or KV head of each layer."""
        d, share, c, n_of = self.d, self.d.G // self.d.H, "top64", [0, 1, 3, 20, 64, 100]
        for space in ("query", "kv-union", "kv-mean"):
            members = [selections.members_of(space, self.S[c], l, 0, share) for l in range(d.L)]
            options = ("--space", space, "--head", "*.0", "--criterion", c)
            t = self.run.table("survival", "--skip-trivial", "--horizons", ",".join(map(str, n_of)), *options)
            want = [selections.survival(m, n, range(self.T), d.alpha[l, 0].sum(1) > 64) for l, m in enumerate(members) for n in n_of]
            want += [[sum(want[l * len(n_of) + k][j] for l in range(d.L)) for j in range(3)] for k in range(len(n_of))]
            got = np.stack([t["at_risk"], t["alive"], t["undecided"]], axis=1)
            self.equal(f"survival without trivial queries, {space}", got, want)
            members.append([m for x in members for m in x])
            t = self.run.table("hazard", "--grace", "0", "--at-least", "1", *options)
            want = [r for m in members for r in selections.hazard(m, range(self.T), self.T, selections.octaves(self.T))]
            names = ("low", "high", "at_risk", "events", "censored", "exposure", "hazard", "actuarial", "survival", "survival_low", "survival_high")
            self.equal(f"hazard, {space}", np.stack([t[k] for k in names], axis=1), want, 1e-9)
            if self.T > 1 and (self.run.column["selected_at." + c] == dense.selected_at(self.S[c])).all():
                t = self.run.table("persistence", "--grace", "5", *options)
                want = [selections.at_ages(m, range(self.T), self.T, k, 5) for m in members for k in range(32) if 2**k < self.T]
                self.equal(f"persistence, {space}", np.stack([t["at_risk"], t["selected"]], axis=1), want)

    def sparsity(self, a, b, *options):
        d = self.d
        for strict in (False, True):
            triangle = ("--triangle", "lt" if strict else "le")
            t = self.run.table("sparsity", *triangle, *options)
            want = [dense.sparsity(d.alpha[l, h], a, b, strict) for l, h in self.heads(True)]
            self.equal(f"sparsity alpha {triangle} {options}", t["sparsity"], want, 1e-12)
            for c in ("top64", "mass.90"):
                t = self.run.table("sparsity", "--kind", "last-use", "--criterion", c, *triangle, *options)
                want = [dense.sparsity(self.R[c][l, g], a, b, strict) for l, g in self.heads(False)]
                self.equal(f"sparsity last-use {c} {triangle} {options}", t["sparsity"], want, 1e-12)

    def occupancy(self, a, b, *options):
        t = self.run.table("occupancy", "--every", "1", *options)
        inside = (np.arange(self.T) >= a) & (np.arange(self.T) < b)
        want = []
        for l, h in self.heads(True):
            for of in (inside, inside & (self.run.role == 0), inside & (self.run.role != 0)):
                want.append(self.d.alpha[l, h][:, of].sum(1))
        self.equal(f"occupancy {options}", t["entries"], np.concatenate(want))
        self.equal("occupancy steps", t["step"], np.tile(np.arange(self.T), 3 * len(self.heads(True))))
        for every, words in ((1, ""), (7, " (seen every 7 steps)")):
            said = self.run.call(self.run.kvfate, "size", self.run.kvf, "--every", str(every), *options).decode()
            peak = max(held[::every].max() for held in want[::3])
            self.equal(f"the peak of every {every} steps {options}: {said}", [f"largest head: {peak:.0f} entries at its peak{words};" in said], [True])

    def retention(self, heads, a, b, *options):
        for c in ("top64", "mass.99"):
            t = self.run.table("retention", "--criterion", c, *options)
            age = self.d.last(self.S[c])
            self.equal(f"retention {c}", t["last_use_age"], np.concatenate([age[h][a:b] for h in heads]))
            self.equal("retention head", t["head"], np.repeat(self.names(False, heads), b - a))
            self.equal("retention token", t["token"], np.tile(np.arange(a, b), len(heads)))
            self.equal("retention beta", np.isnan(t["beta"]).all(), True)

    def tokens(self, heads, a, b, *options):
        t = self.run.table("tokens", *options)
        alpha = np.array([self.d.alpha[h] for h in heads])
        life = self.T - np.arange(self.T)
        self.equal("tokens residency", t["mean_residency"], (alpha.sum(1) / life).mean(0)[a:b], 1e-12)
        alive = np.array([np.isinf(self.run.evict[h]) for h in heads])
        self.equal("tokens kept", t["kept"], alive.mean(0)[a:b], 1e-12)
        self.equal("tokens nll", t["nll"], self.d.nll[a:b], TOLERANCE)
        self.equal("tokens id", t["id"], self.run.ids[a:b])
        self.equal("tokens role", t["role"], [ROLES[r] for r in self.run.role[a:b]])

    def eviction(self, heads, a, b, *options):
        t = self.run.table("eviction", *options)
        step = t["evict_step"].reshape(len(heads), b - a)
        i, q = np.arange(a, b)[None, :], np.arange(self.T)[:, None]
        for h, at in zip(heads, step):  # the map that the figure draws
            self.equal(f"alpha {h}", (i <= q) & ((at < 0) | (q < at)), self.d.alpha[h][:, a:b])
        age = np.where(t["evict_step"] < 0, -1, t["evict_step"] - t["birth"])
        self.equal("eviction age", t["age"], age)
        for name in ("score", "margin"):
            col = self.run.column["evict_" + name]
            self.equal("eviction " + name, t[name], np.concatenate([col[h][a:b] for h in heads]))
        why = self.run.column["evict_reason"]
        self.equal("eviction reason", t["reason"],
                   [REASONS[int(x)] for h in heads for x in why[h][a:b]])

    def formats(self):
        for analysis in ("survival", "sparsity", "occupancy", "retention", "tokens", "eviction"):
            tables = {ext: self.run.table(analysis, ext=ext) for ext in ("npz", "json", "tsv")}
            for name, v in tables["npz"].items():
                if v.dtype.kind == "U":
                    v = np.char.replace(v, "\\", "\\\\") if name in ("text", "joined") else v
                    self.equal(f"{analysis} tsv {name}", tables["tsv"][name], v)
                    continue
                self.equal(f"{analysis} json {name}", tables["json"][name].astype(float), v)
                self.equal(f"{analysis} tsv {name}", tables["tsv"][name].astype(float), v)

    def all(self):
        T, K, Q = self.T, self.heads(True), self.heads(False)
        self.columns()
        self.budget()
        self.survival(Q, 0, T)
        self.survival(Q, 0, T, "--horizons", "0,1,2,3,5,20,63,64,65,128,129,130,500", everyone=True)
        self.selections()
        self.sparsity(0, T)
        self.occupancy(0, T)
        self.retention(Q, 0, T)
        self.tokens(K, 0, T)
        self.eviction(K, 0, T)
        if T > 60:
            self.filters(K, Q)
        if self.run.name == "tova-65":
            self.formats()

    def filters(self, K, Q):
        cut = ("--tokens", "3:40")
        self.survival([h for h in Q if h[1] == 1], 3, 40, *cut, "--head", "*.1")
        self.sparsity(3, 40, *cut)
        self.occupancy(3, 40, *cut)
        self.retention([h for h in Q if h[0] == 1], 3, 40, *cut, "--head", "L1H*")
        self.tokens([K[-1]], 3, 40, *cut, "--head", self.names(True, K)[-1])
        self.eviction([K[0], K[-1]], 3, 40, *cut, "--head", f"L0K0,{K[-1][0]}.{K[-1][1]}")
        self.tokens(K, 60, self.T, "--tokens", "60:")
        self.survival(Q, 60, self.T, "--tokens", "60:")


def sets_of_probes(run):
    """Check that key norms are in full and under their own name, not in lean and paper."""
    failed = 0
    for probes, want in (("lean", False), ("paper", False), ("keys", True), ("lean,keys", True), ("full", True)):
        run.call(run.kvfate, "run", "--overwrite", "-m", run.gguf, "--ids", run.path("ids"), "-n", "0", "--probes", probes, "-t", "1", "-q", "-o", run.path("p.kvf"))
        if (b"key_norm" in run.call(run.kvfate, "trace", "info", run.path("p.kvf"))) != want:
            print(f"  --probes {probes}: key_norm should {'' if want else 'not '}be there")
            failed += 1
    return failed


def own_heads(run):
    """Check that value norms are equal if every query head has its own cache."""
    run.call(run.kvfate, "run", "--overwrite", "-m", run.gguf, "--ids", run.path("ids"), "-n", "0", "--exact", "--method", "tova:group=none", "--budget", "512",
             "--probes", "contrib", "-t", "1", "-q", "-o", run.path("own.kvf"))
    os.mkdir(run.path("own"))
    run.call(run.dump, run.path("own.kvf"), run.path("own"))
    own = np.fromfile(run.path("own/out_norm.f64")).reshape(*run.column["out_norm"].shape[:2], -1)
    same = (own == run.column["out_norm"][:, :, : own.shape[2]]).all() and own.shape[2] > 50
    if not same:
        print("  caches of query heads: other lengths of values")
    return not same


def main():
    tools, failed = sys.argv[1:4], 0
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            run = Run(tools, folder, case)
            run.method = case[4]
            check = Check(run)
            check.all()
            failed += check.wrong + (sets_of_probes(run) if run.name == "one" else 0)
            failed += own_heads(run) if run.name == "full-130" else 0
            print(f"{case[0]:12} T={check.T:<4} {check.done} comparisons, {check.wrong} wrong; of {check.ages} "
                  f"ages rounding could decide {check.open}, did decide {check.ties}")
            if check.open_masks > 3 * MOST_OPEN * check.masks:  # several ages count in each
                print(f"  {case[0]}: too many masks left to rounding: {check.open_masks} of {check.masks}")
                failed += 1
            if check.settled < .8 * check.of_settled:
                print(f"  {case[0]}: rounding decides of too many tokens: only {check.settled} of {check.of_settled} are settled")
                failed += 1
            if check.open > MOST_OPEN * check.ages:
                print(f"  {case[0]}: too many ages left to rounding, the test says too little")
                failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
