#!/usr/bin/env python3
"""Check kvfate compare: distances and assignment from the definition, matches of known heads, two tokenizers, errors."""
import itertools
import os
import sys
import tempfile

import numpy as np

import fingerprints
import planted
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, kvfate, real, refused, said  # noqa: E402
from maker import AGE, ALIVE, SNAPSHOT, Column, make, table

write_kvf = os.path.abspath(sys.argv[2])

SCALES = {"sink_mass": 1, "window": 4, "spread": 3, "modes_apart": 3, "recent": 1, "last_use": 8, "never": 1, "survival_64th": 1, "survival_16th": 1,
          "survival_4th": 1, "survival_half": 1, "last_use_sparsity": 1, "number": 1, "gist": 1, "filler": 1, "prompt": 1, "uneven": 3,
          "top_tenth": 1, "runs": 1, "rises": 4, "entropy": 1, "residence": 1}
OCTAVES, CUT = {"window", "last_use"}, {"recent": 1, "prompt": 1, "number": 1, "gist": 1, "filler": 1, "uneven": 4, "rises": 2}


def on_scale(name, v):
    v = real(v)
    v = np.log2(1 + v) if name in OCTAVES else np.clip(v, -CUT[name], CUT[name]) if name in CUT else v
    return v / SCALES[name]


def signatures(path):
    got, _ = table(kvfate, "heads", path)
    return got["head"], np.array([on_scale(n, got[n]) for n in SCALES]).T, got


def distances(x, y):
    d = (x[:, None, :] - y[None, :, :]) ** 2
    return np.sqrt(np.nanmean(d, axis=2))


def run_of(folder, name, seed, specs, L, H, G, T=200):
    return planted.trace(write_kvf, f"{folder}/{name}.kvf", np.random.default_rng(seed), specs, L, H, G, T)[0]


def specs_of(seed, kinds, n):
    rng = np.random.default_rng(seed)
    return [planted.spec(rng, kinds[k % len(kinds)], planted.STRENGTHS[k // len(kinds) % 3], .2) for k in range(n)]


def definitions(folder):
    """Check three runs of 6, 4 and 7 heads."""
    paths = [run_of(folder, f"d{k}", k, specs_of(k, planted.KINDS, n), L, 1, G) for k, (n, L, G) in enumerate([(6, 3, 2), (4, 1, 4), (7, 7, 1)])]
    s = [signatures(p) for p in paths]
    got, meta = table(kvfate, "compare", *paths)
    at = 0
    for a, b in itertools.combinations(range(3), 2):
        D = distances(s[a][1], s[b][1])
        rows = slice(at, at + D.size)
        check("heads of pairs", list(zip(got["head_a"][rows], got["head_b"][rows])) == list(itertools.product(s[a][0], s[b][0])))
        check("which traces", set(zip(got["a"][rows], got["b"][rows])) == {(a + 1, b + 1)})
        check("distances", np.allclose(real(got["distance"][rows]), D.ravel(), rtol=0, atol=1e-9))
        at += D.size
    check("all rows", at == len(got["a"]))
    one = table(kvfate, "compare", paths[0], paths[0])[0]
    same = [d for a, b, d in zip(one["head_a"], one["head_b"], one["distance"]) if a == b]
    check("nothing is as near as itself", same == [0] * 6 and min(d for a, b, d in zip(one["head_a"], one["head_b"], one["distance"]) if a != b) > 0)
    D = distances(s[0][1], s[1][1])
    best = min(sum(D[c, k] for k, c in enumerate(p)) for p in itertools.permutations(range(6), 4))
    chosen = [d for d, m, b in zip(got["distance"], got["matched"], got["b"]) if m == 1 and b == 2]
    check("the best of all assignments", np.isclose(sum(chosen), best), chosen, best)


# ---- matches

def nature(rng, n):
    """Return the behaviour of n heads on any text: six numbers each."""
    return rng.normal(size=(n, 6))


def text_of(rng, heads, T, noise=.1):
    """Return columns of heads [n][6] for a text of T tokens, rounded as in a trace."""
    h = (heads + noise * rng.normal(size=heads.shape))[:, :, None]
    n, age = len(heads), np.arange(T)[::-1]
    out = {}
    for k, c in enumerate(("top64", "top128", "top256", "mass.90", "mass.95", "mass.99")):
        last = np.floor(rng.exponential(size=(n, T)) * np.exp(1.5 + h[:, 0] + .3 * k * h[:, 1]))
        out[f"last_selected.{c}"] = np.where(rng.random((n, T)) < .1 + .05 * np.tanh(h[:, 2]), -1, np.minimum(last, age))
    t = np.arange(T)
    out["entropy"] = np.log1p(t) * (.5 + .1 * h[:, 3]) + .1 * rng.normal(size=(n, T))
    out["lse"] = h[:, 4] + .02 * t * h[:, 5] + rng.normal(size=(n, T))
    out["mass.sum"] = np.exp(.5 * h[:, 1] * rng.normal(size=(n, T)) - .001 * t * h[:, 0])
    out["mass.max"] = out["mass.sum"] * np.exp(-np.abs(h[:, 2] + .2 * rng.normal(size=(n, T))))
    return {c: np.float32(x).astype(float) for c, x in out.items()}


def kv_text(rng, heads, T):
    h = heads[:, :1]
    left = np.arange(T) + np.floor(rng.exponential(size=(len(heads), T)) * 20 * np.exp(h)) + 1
    return {"log_beta": np.float32(-np.exp(h + rng.normal(size=(len(heads), T)))).astype(float), "evict_step": np.where(left < T, left, np.inf)}


def write_text(path, query, kv, L, model="one", without=()):
    n, T = query["entropy"].shape
    H, cols = len(kv["log_beta"]) // L, []
    for c, x in query.items():
        flags, dtype, axis = (SNAPSHOT + AGE, "u16", "token") if c[0] == "l" and c != "lse" else (0, "f32", "step") if c in ("entropy", "lse") else (SNAPSHOT, "f32", "token")
        cols.append(Column(c, dtype, "query", np.where(x < 0, 65535, x).reshape(L, -1, T) if dtype == "u16" else x.reshape(L, -1, T), axis, flags))
    cols.append(Column("log_beta", "f32", "kv", kv["log_beta"].reshape(L, H, T)))
    cols.append(Column("evict_step", "u32", "kv", np.where(np.isinf(kv["evict_step"]), ALIVE, kv["evict_step"]).reshape(L, H, T)))
    return make(write_kvf, path, [c for c in cols if c.name not in without], (L, H, n // L, T), {"model": {"name": model, "hash": model}})


class Model:
    """Texts of a model of L layers, H KV heads and G query heads each, as traces and as scores."""

    def __init__(self, folder, name, heads, shape, seed, lengths, **how):
        L, H, G = shape
        self.paths, self.shape, self.query, self.kv, self.first = [], shape, [], [], None
        for k, T in enumerate(lengths):
            rng = np.random.default_rng([seed, k])
            query, kv = text_of(rng, heads, T), kv_text(rng, heads[::G // H, :], T)
            self.paths.append(write_text(f"{folder}/{name}{k}.kvf", query, kv, L, name, **how))
            self.add(query, kv, how.get("without", ()))

    def add(self, query, kv, without, tokens=None):
        names, q = fingerprints.query_features({c: x for c, x in query.items() if c not in without}, tokens)
        more, k = fingerprints.kv_features(names, q, {c: x for c, x in kv.items() if c not in without}, self.shape[2] // self.shape[1], tokens)
        self.query.append((names, q))
        self.kv.append((more, k))

    def known(self, space):
        return set.intersection(*({n for n in names} for names, _ in getattr(self, space)))

    def means(self, space, features, what):
        return np.mean([what(x[:, [names.index(f) for f in features]]) for names, x in getattr(self, space)], axis=0)

    def names(self, space):
        L, H, G = self.shape
        return [f"L{l}{'H' if space == 'query' else 'K'}{h}" for l in range(L) for h in range(G if space == "query" else H)]


def held(label, got, a, b):
    """Compare the table with NumPy; return the partners of the query heads."""
    at, beside, done = 0, 0, {}
    for space in ("kv", "query"):
        features = [f for f in getattr(a, space)[0][0] if f in a.known(space) & b.known(space)]
        x, y = (m.means(space, features, fingerprints.scores) for m in (a, b))
        done[space] = features, x, y, fingerprints.match(x, y, beside)
        if space == "kv":  # of the KV heads that two query heads read
            beside = np.repeat(np.repeat(done["kv"][3][0] ** 2, a.shape[2] // a.shape[1], axis=0), b.shape[2] // b.shape[1], axis=1)
    for space in ("query", "kv"):
        features, x, y, (D, partner, rival, p, q) = done[space]
        wrong = np.sqrt(D ** 2 + (beside if space == "query" else 0))
        matched = np.flatnonzero(partner >= 0)
        wrong[matched, partner[matched]] = np.inf
        second = fingerprints.assign(wrong)  # the best wrong pairs
        rows, names = np.flatnonzero(partner >= 0), (a.names(space), b.names(space))
        part = {c: v[at:at + len(rows)] for c, v in got.items()}
        check(f"{label}: rows of {space}", part["space"] == [space] * len(rows) and part["head_a"] == [names[0][i] for i in rows]
              and part["head_b"] == [names[1][partner[i]] for i in rows], part["head_b"], partner)
        for column, want in (("distance", D[rows, partner[rows]]), ("rival", np.where(np.isfinite(rival), rival, np.nan)[rows]), ("p", p[rows]), ("q", q[rows])):
            check(f"{label}: {column} of {space}", np.allclose(real(part[column]), want, rtol=1e-8, atol=1e-10, equal_nan=True), part[column], want)
        check(f"{label}: own of {space}", part["own"] == [-1 if np.isnan(v) else int(v < .05) for v in q[rows]])
        values = [m.means(space, features, lambda v: v) for m in (a, b)]
        for r, i in enumerate(rows):
            j = partner[i]
            f = np.abs(x[i] - y[j]).argmax()
            check(f"{label}: what changed", np.isclose(abs(x[i] - y[j])[features.index(part["changed"][r])], abs(x[i] - y[j])[f]), part["changed"][r], features[f])
            f = features.index(part["changed"][r])
            check(f"{label}: its values", np.allclose([part["value_a"][r], part["value_b"][r]], [values[0][i, f], values[1][j, f]], rtol=1e-6), part["changed"][r])
            near = [*np.delete(D[i], j), *np.delete(D[:, j], i)]
            w = second[i]
            near_w = np.array([*np.delete(D[i], w), *np.delete(D[:, w], i)]) if w >= 0 else []
            check(f"{label}: nearness of the wrong pair", np.isclose(real([part["nearer_wrong"][r]])[0], np.mean(near_w <= D[i, w]) if len(near_w) else np.nan, equal_nan=True), part["nearer_wrong"][r])
            check(f"{label}: share that is nearer", np.isclose(real([part["nearer"][r]])[0], np.mean(np.array(near) <= D[i, j]) if near else np.nan, equal_nan=True))
        at += len(rows)
    check(f"{label}: all rows", at == len(got["a"]))
    reads = [{h: h.split("H")[0] + "K%d" % (int(h.split("H")[1]) * m.shape[1] // m.shape[2]) for h in m.names("query")} for m in (a, b)]
    kv = {x: y for x, y, s in zip(got["head_a"], got["head_b"], got["space"]) if s == "kv"}
    inside = [(reads[0][x], kv.get(reads[0][x]) == reads[1][y]) for x, y, s in zip(got["head_a"], got["head_b"], got["space"]) if s == "query"]
    want = [int(ok) for _, ok in inside] + [sum(ok for k, ok in inside if k == x) for x in kv]
    check(f"{label}: joined", got["joined"] == want, got["joined"], want)


def small_matches(folder):
    """Check a few heads, without learning; the best of all assignments by brute force."""
    rng = np.random.default_rng(1)
    a = Model(folder, "sa", nature(rng, 6), (3, 1, 2), 2, [90, 70])
    b = Model(folder, "sb", nature(rng, 4), (1, 2, 4), 3, [80])
    c = Model(folder, "sc", nature(rng, 7), (7, 1, 1), 4, [40], without=("lse", "last_selected.top64", "log_beta"))
    for x, y in ((a, b), (b, a), (a, c), (c, a)):
        got, meta = table(kvfate, "compare", *x.paths, *y.paths, "--match", "--groups", len(x.paths))
        held("few heads", got, x, y)
        check("unmatched", meta["unmatched"] == str(sum(abs(len(x.names(s)) - len(y.names(s))) for s in ("query", "kv"))), meta)
        features = [f for f in x.kv[0][0] if f in x.known("kv") & y.known("kv")]
        D = fingerprints.distances(*(m.means("kv", features, fingerprints.scores) for m in (x, y)))
        short = D if len(D) <= len(D[0]) else D.T
        best = min(sum(short[k, c] for k, c in enumerate(p)) for p in itertools.permutations(range(short.shape[1]), len(short)))
        found = sum(d for d, s in zip(got["distance"], got["space"]) if s == "kv")
        check("the best of all assignments", np.isclose(found, best), found, best)
    got, meta = table(kvfate, "compare", a.paths[0], b.paths[0], c.paths[0], "--match")
    check("each trace by itself", sorted(set(zip(got["a"], got["b"]))) == [(1, 2), (1, 3), (2, 3)] and meta["groups"] == "3", meta)
    by_model, meta = table(kvfate, "compare", a.paths[0], b.paths[0], a.paths[1], "--match", "--groups", "model")
    held("groups by model", by_model, a, b)
    check("which trace is in which group", [meta[f"trace_{k}"].split(",")[0] for k in (1, 2, 3)] == ["group 1", "group 2", "group 1"], meta)
    refused("a model in two groups", 2, ["compare", a.paths[0], b.paths[0], a.paths[1], "--match", "--groups", "2"], "traces 1 and 3 are of one model", "--groups model")
    alone, meta = table(kvfate, "compare", *a.paths, "--match", "--groups", "1")
    check("texts of one model alone may be parted", meta["groups"] == "2", meta)
    refused("one model alone", 2, ["compare", *a.paths, "--match", "--groups", "model"], "all traces are of one model")
    refused("other heads in one group", 2, ["compare", a.paths[0], b.paths[0], c.paths[0], "--match", "--groups", "2"], "other layers or heads")
    for how in ("0", "3", "both"):
        refused("no such groups", 2, ["compare", *a.paths, b.paths[0], "--match", "--groups", how], "--groups")
    refused("groups without matches", 2, ["compare", *a.paths, b.paths[0], "--groups", "2"], "--match")
    lines = said("compare", *a.paths, *b.paths, "--match", "--groups", "2").splitlines()
    check("a line for each kind of heads", [line.split(" by ")[0] for line in lines[:2]] == ["4 matches of query heads", "2 matches of KV heads"], lines)
    got, _ = table(kvfate, "compare", *a.paths, *b.paths, "--match", "--groups", "2")
    for line, space in zip(lines[2:], ("query", "kv")):
        of = [k for k, s in enumerate(got["space"]) if s == space]
        near, wrong = (100 * (1 - np.nanmean(real(got[c])[of])) for c in ("nearer", "nearer_wrong"))
        want = f"sa and sb: matched {'KV' if space == 'kv' else 'query'} heads are nearer than {near:.1f} % of the other pairs of their heads, the best wrong pairs than {wrong:.1f} %"
        check("one sentence for each pair of models", line == want, line, want)
    check("two sentences", len(lines) == 4, lines)
    lines = said("compare", a.paths[0], b.paths[0]).splitlines()
    check("one line for all pairs", [line.split(" by ")[0] for line in lines] == ["24 pairs of heads"], lines)


def part_of_text(folder):
    """Check that --tokens and --head select the input of the signatures."""
    rng = np.random.default_rng(41)
    heads = [nature(rng, 8), nature(rng, 8)]
    models = [Model(folder, f"part{k}", heads[k], (2, 2, 4), 42 + k, [100]) for k in range(2)]
    got, _ = table(kvfate, "compare", models[0].paths[0], models[1].paths[0], "--match", "--tokens", "10:75")
    for k, m in enumerate(models):
        m.query, m.kv = [], []
        rng = np.random.default_rng([42 + k, 0])
        m.add(text_of(rng, heads[k], 100), kv_text(rng, heads[k][::2], 100), (), (10, 75))
    held("part of a text", got, *models)
    got, _ = table(kvfate, "compare", models[0].paths[0], models[1].paths[0], "--match", "--head", "L0H0-2,L1H1-3")
    check("KV heads of whole groups alone", [(x, s) for x, s in zip(got["head_a"], got["space"]) if s == "kv"] == [("L0K0", "kv"), ("L1K1", "kv")], got["head_a"])


def known_heads(folder):
    """Check 64 heads, permuted in the second model, with different texts; and heads without any correspondence."""
    rng = np.random.default_rng(51)
    heads, order = nature(rng, 64), rng.permutation(64)
    a = Model(folder, "ka", heads, (16, 2, 4), 52, [200, 170, 230])
    b = Model(folder, "kb", heads[order], (32, 1, 2), 53, [210, 180, 190])
    other = Model(folder, "kc", nature(rng, 64), (16, 2, 4), 54, [200, 200, 200])
    got, _ = table(kvfate, "compare", *a.paths, *b.paths, "--match", "--groups", "3")
    held("the same heads", got, a, b)
    found = {x: y for x, y, s in zip(got["head_a"], got["head_b"], got["space"]) if s == "query"}
    right = sum(found[a.names("query")[order[k]]] == b.names("query")[k] for k in range(64))
    proven = [int(o == 1) for o, s in zip(got["own"], got["space"]) if s == "query"]
    wrong = sum(o == 1 and b.names("query").index(y) != list(order).index(a.names("query").index(x))
                for x, y, o, s in zip(got["head_a"], got["head_b"], got["own"], got["space"]) if s == "query")
    print(f"the same heads in other texts: {right} of 64 found, {sum(proven)} proven, {wrong} of these wrong")
    check("heads are found again", right >= 62 and sum(proven) >= 45 and wrong <= 2, right, sum(proven), wrong)
    got, _ = table(kvfate, "compare", *a.paths, *other.paths, "--match", "--groups", "3")
    held("other heads", got, a, other)
    print(f"heads of another kind: {sum(o == 1 for o in got['own'])} of {len(got['own'])} proven")
    check("other heads are not proven", sum(o == 1 for o in got["own"]) <= 3)


# ---- two tokenizers

def ranks(v):
    return np.array([1 + (v < x).sum() + ((v == x).sum() - 1) / 2 for x in v])


def tokens(folder):
    rng = np.random.default_rng(21)
    letters = [chr(97 + rng.integers(26)) for _ in range(120)]
    def cut(k):
        ends = np.sort(rng.choice(np.arange(1, 120), k, replace=False))
        return [letters[x:y] for x, y in zip([0, *ends], [*ends, 120])]
    texts = [["".join(x) for x in cut(k)] for k in (90, 50)]
    texts[0] = ["<|im_start|>", *texts[0]]  # special tokens are in no piece
    texts[1] = [*texts[1][:7], "<|im_end|>", *texts[1][7:], "more"]
    values = [rng.random((2, 3, len(texts[0]))), rng.random((1, 4, len(texts[1])))]
    values[0][0, 1] = 2  # all equal: no correlation
    values[0][1, 0, 5] = np.nan
    paths = [make(write_kvf, f"{folder}/t{k}.kvf", [Column("mass.sum", "f32", "query", v, flags=SNAPSHOT), Column("log_beta", "f32", "kv", -v)],
                  (v.shape[0], v.shape[1], v.shape[1], v.shape[2]), texts=texts[k]) for k, v in enumerate(values)]
    ends = [np.cumsum([0 if x.startswith("<|") else len(x) for x in t]) for t in texts]
    common = sorted(set(ends[0]) & set(ends[1]) - {0})
    for column, combine in (("mass.sum", np.sum), ("log_beta", np.mean)):
        pieces = []
        for k in range(2):
            own = np.array([not x.startswith("<|") for x in texts[k]])
            v = np.float32(values[k] if column == "mass.sum" else -values[k]).astype(float)
            pieces.append([[combine(h[own & (ends[k] > x) & (ends[k] <= y)]) for x, y in zip([0, *common], common)] for h in v.reshape(-1, v.shape[2])])
        got, meta = table(kvfate, "compare", *paths, "--by", "tokens", "--value", column)
        with np.errstate(invalid="ignore", divide="ignore"):
            want = [np.nan if np.isnan(x).any() else 1 - np.corrcoef(ranks(np.array(x)), ranks(np.array(y)))[0, 1] for x in pieces[0] for y in pieces[1]]
        check(f"{column} by tokens", np.allclose(real(got["distance"]), want, rtol=0, atol=1e-6, equal_nan=True), got["distance"], want)
        check("pieces", meta["pieces"] == str(len(common)) and meta["bytes"] == "120" and meta["undefined"] == str(sum(np.isnan(want))), meta, len(common))
    got, _ = table(kvfate, "compare", paths[1], paths[1], "--by", "tokens", "--match")
    check("itself by tokens", got["head_a"] == got["head_b"] and max(got["distance"]) < 1e-6 and got["q"] == [None] * 4 and got["own"] == [-1] * 4)
    part, meta = table(kvfate, "compare", *paths, "--by", "tokens", "--tokens", "20:60")
    n = sum(1 for x in [0, *common][:-1] if 20 <= 1 + np.searchsorted(ends[0][1:], x, side="right") < 60)
    check("pieces of some tokens", meta["pieces"] == str(n), meta["pieces"], n)
    said("compare", *paths, "--by", "tokens")
    other = make(write_kvf, f"{folder}/other.kvf", [Column("mass.sum", "f32", "query", np.zeros((1, 1, 3)))], (1, 1, 1, 3), texts=["Q", "q", "q"])
    refused("other texts", 1, ["compare", paths[0], other, "--by", "tokens"], "in common")
    parts = make(write_kvf, f"{folder}/parts.kvf", [Column("mass.sum", "f32", "query", np.zeros((1, 1, 3)))], (1, 1, 1, 3), texts=["P", "q", "q"])
    refused("texts that part at their first byte", 1, ["compare", other, parts, "--by", "tokens"], "in common")
    # Two tokenizers of one text: a blank before it (SentencePiece), and a special token that is ordinary text for the other
    for begin, name in ((["", " "], "no blank"), ([" ", " "], "a blank of its own")):
        sides = [[begin[0], "a", "b", "<", "unk", ">", "c", "d"], ["<s>", begin[1], *[" "] * (begin[0] == " "), "ab", "<unk>", "c", "d"]]
        sides = [[x for x in side if x] for side in sides]
        v = [rng.random((1, 2, len(side))) for side in sides]
        two = [make(write_kvf, f"{folder}/sp{k}.kvf", [Column("mass.sum", "f32", "query", v[k], flags=SNAPSHOT)], (1, 2, 2, len(sides[k])), texts=sides[k]) for k in range(2)]
        for order in ((0, 1), (1, 0)):
            got, meta = table(kvfate, "compare", two[order[0]], two[order[1]], "--by", "tokens")
            check(f"{name}: the whole text is compared", meta["bytes"] == str(9 + (begin[0] == " ")) and meta["pieces"] == str(4 + (begin[0] == " ")), meta)
        cut = [[0, 2, 5, 6, 7], [1, 3, 4, 5, 6]] if begin[0] != " " else [[0, 1, 3, 6, 7, 8], [1, 3, 4, 5, 6, 7]]
        piece = [[[h[x:y].sum() for x, y in zip(c, c[1:])] for h in np.float32(w[0]).astype(float)] for c, w in zip(cut, v)]
        want = [1 - np.corrcoef(ranks(np.array(x)), ranks(np.array(y)))[0, 1] for x in piece[0] for y in piece[1]]
        got, meta = table(kvfate, "compare", *two, "--by", "tokens")
        check(f"{name}: distances of its pieces", np.allclose(real(got["distance"]), want, rtol=0, atol=1e-6), got["distance"], want)
    bare = make(write_kvf, f"{folder}/bare.kvf", [Column("mass.sum", "f32", "query", np.zeros((1, 1, 3)))], (1, 1, 1, 3))
    refused("no texts", 1, ["compare", paths[0], bare, "--by", "tokens"], "lacks the text")


def edges(folder):
    short = run_of(folder, "s", 31, specs_of(31, planted.KINDS, 2), 1, 1, 2, 20)
    long = run_of(folder, "l", 32, specs_of(32, planted.KINDS, 2), 1, 1, 2, 64)
    got, meta = table(kvfate, "compare", short, long)
    check("short texts have no distance", got["distance"] == [None] * 4 and meta["undefined"] == "4")
    empty = make(write_kvf, f"{folder}/e.kvf", [Column(n, "f32" if n[0] != "l" else "u16", "query", np.zeros((1, 1, 0)), flags=2 * (n[0] == "l"))
                                               for n in ("mass.sum", "mass.max", "last_selected.mass.90")] + [Column("entropy", "f32", "query", np.zeros((1, 1, 0)), "step")], (1, 1, 1, 0))
    check("empty", table(kvfate, "compare", empty, empty)[0]["distance"] == [None])
    got, _ = table(kvfate, "compare", empty, long, "--match")
    check("an empty text has no features, so no match", got["a"] == [])
    refused("one trace", 2, ["compare", long], "")
    refused("by what", 2, ["compare", long, long, "--by", "colour"], "colour")
    refused("no level", 2, ["compare", long, long, "--level", "1"], "--level")
    refused("column of no heads", 2, ["compare", long, long, "--by", "tokens", "--value", "tokens.role"], "tokens.role")
    refused("no column", 1, ["compare", long, long, "--by", "tokens", "--value", "log_beta"], "log_beta")


with tempfile.TemporaryDirectory() as folder:
    definitions(folder)
    small_matches(folder)
    part_of_text(folder)
    known_heads(folder)
    tokens(folder)
    edges(folder)
finish()
