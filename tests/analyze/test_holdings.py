#!/usr/bin/env python3
"""Check kvfate words, density, kv-size, occupancy --by and the sums of eviction: by hand, and against dense T x T masks
of synthetic runs.
"""
import itertools
import json
import os
import sys
import tempfile

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, real, refused, said, words_of  # noqa: E402
from maker import ALIVE, Column, make, table

kvfate, write_kvf = map(os.path.abspath, sys.argv[1:3])
REASONS = ["alive", "budget", "window", "refused", "architecture", "plan"]


def same(a, b):
    return len(a) == len(b) and np.allclose(real(a), real(b), rtol=1e-12, atol=1e-15, equal_nan=True)


class Run:
    """Arrays of a synthetic run; sees[l, h, t, i]: query t sees entry i, t = T: it is cached at the end."""

    def __init__(self, folder, count, rng, L=2, H=2, group=1, T=60, P=20, texts=None, local=0, evict=None, roles=None, lb=True, header=True):
        self.shape, self.T, self.P = (L, H, H * group, T), T, P
        birth = np.arange(T)
        if evict is None:
            evict = birth + 1 + rng.geometric(.05, (L, H, T))
            evict = np.where(rng.random((L, H, T)) < .2, T, evict)
            evict = np.where((evict > T) | (rng.random((L, H, T)) < .1), ALIVE, evict)
        self.evict = np.broadcast_to(np.asarray(evict, float), (L, H, T)).copy()
        self.reason = np.where(self.evict == ALIVE, 0, rng.integers(1, 6, (L, H, T)))
        self.tie = rng.integers(0, 2, (L, H, T)) * (self.evict != ALIVE)
        self.roles = np.where(birth < P, 0, 1) if roles is None else np.asarray(roles)
        self.lb = -rng.gamma(1, 1, (L, H, T)).astype(np.float32).astype(float) if lb is True else lb
        self.texts = ["w%d " % (k % 7) for k in range(T)] if texts is None else texts
        e = np.where(self.evict == ALIVE, np.inf, self.evict)
        t = np.arange(T + 1)[:, None]
        self.sees = (birth <= t) & (t < e[..., None, :])
        columns = [Column("tokens.id", "i32", "run", birth), Column("tokens.role", "u8", "run", self.roles),
                   Column("evict_step", "u32", "kv", self.evict), Column("evict_reason", "u8", "kv", self.reason),
                   Column("evict_score", "f32", "kv", 0 * self.evict), Column("evict_margin", "f32", "kv", 0 * self.evict),
                   Column("evict_tie", "u8", "kv", self.tie)]
        if self.lb is not None and self.lb is not False:
            columns.append(Column("log_beta", "f32", "kv", self.lb))
        meta = {"run": {"prompt_tokens": P}, "method": {"name": "made-up", "local": local}} if header else {}
        self.path = make(write_kvf, os.path.join(folder, f"{next(count)}.kvf"), columns, self.shape, meta, texts=self.texts)

    def heads(self):
        return [(f"L{l}K{h}", l, h) for l in range(self.shape[0]) for h in range(self.shape[1])]

    # ---- the definitions, computed directly

    def density(self, bins, step=None, a=0, b=None):
        T = self.T
        t = T if step is None else step
        S = T if step is None else step + 1
        inside = (np.arange(T) >= a) & (np.arange(T) < (T if b is None else b))
        rows, pooled = [], []
        for name, l, h in [*self.heads(), ("all", None, None)]:
            at = np.flatnonzero(self.sees[l, h, t] & inside) if l is not None else np.concatenate(pooled)
            if l is not None:
                pooled.append(at)
            for k in range(bins):
                n = sum(k * S <= i * bins < (k + 1) * S for i in at)
                rows.append((name, k / bins, (k + 1) / bins, n / len(at) if len(at) else np.nan, n, len(at), (at / S).mean() if len(at) else np.nan))
        return rows

    def runs(self, step=None, a=0, b=None):
        T = self.T
        S = T if step is None else step + 1
        places = list(range(a, min(S, T if b is None else b)))
        rows = []
        for name, l, h in self.heads():
            seen = self.sees[l, h, T if step is None else step]
            groups = [(k, len(list(g))) for k, g in itertools.groupby(bool(seen[i]) for i in places)]
            kept = [m for k, m in groups if k]
            n, k, r = len(places), sum(kept), len(kept)
            # chances of random places: of a first of a run at place i, and of a change before place i
            begin = [k / n * (1 if i == 0 else (n - k) / (n - 1)) for i in range(n)]
            change = [2 * k * (n - k) / (n * (n - 1)) for i in range(1, n)]
            expected, both = sum(begin) if n else np.nan, 1 + sum(change) if n else np.nan
            var = 2 * k * (n - k) * (2 * k * (n - k) - n) / (n * n * (n - 1)) if n > 1 else 0
            rows.append((name, n, k, r, kept.count(1), max(kept, default=0), len(groups), k / r if r else np.nan, expected,
                         expected / r if r else np.nan, both, (len(groups) - both) / var ** .5 if var > 0 else np.nan))
        count = np.array([r[1:7] for r in rows])
        total = count.sum(0)
        total[4] = count[:, 4].max()
        z = [r[11] for r in rows if not np.isnan(r[11])]
        expected, both = (sum(r[c] for r in rows) for c in (8, 10))
        return [*rows, ("all", *total, total[1] / total[2] if total[2] else np.nan, expected, expected / total[2] if total[2] else np.nan, both,
                        np.mean(z) if z else np.nan)]

    def sizes(self, window=0, a=0, b=None):
        T, P = self.T, self.P
        b = T if b is None else b
        i = np.arange(T)
        t = np.arange(T + 1)[:, None]
        mask = self.sees & (i >= a) & (i < b) & (t - i >= window)
        born = ((i >= a) & (i < b) & (i <= t))[:T].sum(1)
        rows, total = [], mask.reshape(-1, T + 1, T).sum(0)
        for name, l, h in [*self.heads(), ("all", None, None)]:
            m, k = (mask[l, h], 1) if l is not None else (total, len(self.heads()))
            n = m.sum(1)
            before = m[P, :P].sum()  # query P's own entry is not in the prompt
            peak = int(n[:T].argmax()) if T else 0
            for at, step, steps, entries, length in (("end", T, 1, n[T], b - a), ("prefill", P, 1, before, max(0, min(P, b) - a)),
                                                     ("mean", 0, T, n[:T].sum(), born.sum()), ("answer", P, T - P, n[P:T].sum(), born[P:].sum()),
                                                     ("peak", peak, min(T, 1), n[peak] if T else 0, born[peak] if T else 0)):
                capacity = k * (steps if at != "peak" else 1) * (b - a)
                rows.append((name, at, step, steps, entries, k * length, capacity, entries / capacity if capacity else np.nan,
                             entries / (k * length) if length else np.nan))
        return rows

    def places(self, by, fold=False, classes=None, a=0, b=None):
        """Return [(word, [its tokens])] in order of the text."""
        b = self.T if b is None else b
        if by == "token":
            return [(t, [i]) for i, t in enumerate(self.texts) if a <= i < b]
        if by == "role":
            return [(["prompt", "answer", "think"][r], [i]) for i, r in enumerate(self.roles) if a <= i < b]
        if by == "class":
            return [(c, [i]) for i, c in enumerate(classes) if a <= i < b]
        owner = [i for i, t in enumerate(self.texts) for _ in t]
        text, out = "".join(self.texts), []
        special = [t.startswith("<|") for t in self.texts]
        for k, c in enumerate(text):
            cut = k == 0 or text[k - 1].isspace() or (owner[k] != owner[k - 1] and (special[owner[k]] or special[owner[k - 1]]))
            if c.isspace():
                continue
            if cut:
                out.append(["", []])
            out[-1][0] += c
            out[-1][1].append(owner[k])
        out = [(w, sorted({i for i in at if a <= i < b})) for w, at in out]
        punctuation = ".,:;!?()[]«»"
        if fold:
            out = [(w.strip(punctuation).lower() or w.lower(), at) for w, at in out]
        return [(w, at) for w, at in out if at]

    def words(self, places, step=None, every=False, heads=None):
        """Return {word: (count, base_count, places, scored, mean log_beta)}, total, base_total."""
        T, t = self.T, self.T if step is None else step
        heads = [(l, h) for _, l, h in self.heads()] if heads is None else heads
        test, out = (all if every else any), {}
        for w, at in places:
            c = out.setdefault(w, [0, 0, 0, []])
            c[0] += sum(test(self.sees[l, h, t, i] for i in at) for l, h in heads)
            c[1] += len(heads) * test(i <= t for i in at)
            c[2] += test(i <= t for i in at)
            if self.lb is not None:
                c[3] += [self.lb[l, h, i] for l, h in heads for i in at if i <= t and not np.isnan(self.lb[l, h, i])]
        total, base = sum(c[0] for c in out.values()), sum(c[1] for c in out.values())
        return {w: (c[0], c[1], c[2], len(c[3]), np.mean(c[3]) if c[3] else np.nan) for w, c in out.items()}, total, base


def compare_words(name, run, want, *options, least=1):
    data, meta = table(kvfate, "tokens", "--as", "words", run.path, "--sort", "word", *options)
    words, total, base = want
    names = sorted((w for w in words if words[w][2] >= least), key=lambda w: w.encode())
    check(f"{name}: words", data["word"] == names, data["word"], names)
    if data["word"] != names:
        return data, meta
    w = [words[n] for n in names]
    for k, key in enumerate(("count", "base_count", "places", "scored", "log_beta")):
        check(f"{name}: {key}", same(data[key], [v[k] for v in w]), data[key], [v[k] for v in w])
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.array([v[0] for v in w], float) / total
        base_share = np.array([v[1] for v in w], float) / base
        check(f"{name}: shares", same(data["share"], share) and same(data["base_share"], base_share) and same(data["lift"], share / base_share)
              and same(data["kept"], [v[0] / v[1] for v in w]), data, share, base_share)
    check(f"{name}: totals", set(data["total"]) <= {total} and set(data["base_total"]) <= {base}, data["total"], total, base)
    return data, meta


def rows_of(data, keys):
    return [*zip(*(data[k] for k in keys))]


def compare_rows(name, got, want):
    ok = len(got) == len(want) and all(g[0] == w[0] for g, w in zip(got, want))
    ok = ok and all((a == b) if isinstance(b, str) else same([a], [b]) for g, w in zip(got, want) for a, b in zip(g, w))
    check(name, ok, [(g, w) for g, w in zip(got, want) if not all(a == b if isinstance(b, str) else same([a], [b]) for a, b in zip(g, w))][:4], len(got), len(want))


DENSITY = ("head", "bin_low", "bin_high", "share", "count", "total", "mean")
RUNS = ("head", "tokens", "kept", "runs", "alone", "longest", "changes", "mean_run", "expected_runs", "clustering", "expected_changes", "z")
SIZE = ("head", "at", "step", "steps", "entries", "length", "capacity", "size", "ratio")

with tempfile.TemporaryDirectory(prefix="kvfate-holdings-") as folder:
    count = itertools.count()
    rng = np.random.default_rng(5)

    # by hand: one head, four tokens of which the prompt has two; evict steps 2, alive, 3, 4
    #   query 0 sees 0; 1: 0 1; 2: 1 2; 3: 1 3; left at the end: 1.  After the prompt: 1 (0 went at step 2)
    hand = Run(folder, count, rng, L=1, H=1, T=4, P=2, evict=[[[2, ALIVE, 3, 4]]], texts=["a", "b ", "a", "b"], lb=np.array([[[-1, -2, -3, -5.]]]))
    data, _ = table(kvfate, "size", "--as", "kv-size", hand.path)
    # sums: 1 + 2 + 2 + 2 = 7 of 1 + 2 + 3 + 4 = 10; after the prompt 4 of 7; the peak 2 is first seen at step 1
    want = [("end", 4, 1, 1, 4, 4), ("prefill", 2, 1, 1, 2, 4), ("mean", 0, 4, 7, 10, 16), ("answer", 2, 2, 4, 7, 8), ("peak", 1, 1, 2, 2, 4)]
    for head in ("L0K0", "all"):
        got = [r[1:7] for r in rows_of(data, SIZE) if r[0] == head]
        check(f"by hand: kv-size {head}", got == want, got, want)
    check("by hand: ratios", data["ratio"][:5] == [.25, .5, .7, 4 / 7, 1] and data["size"][:5] == [.25, .25, 7 / 16, .5, .5], data)
    # without the two newest: age 2 or more.  Query 2 does not see 0, 3 sees 1; end: 1. After the prompt 0 has age 2 and
    # is evicted
    data, _ = table(kvfate, "size", "--as", "kv-size", hand.path, "--window", "2")
    check("by hand: window", data["entries"][:5] == [1, 0, 1, 1, 1] and data["step"][4] == 3, data)
    # density in two bins: the entry 1 of 4 is at 1/4; query 2 sees 1 and 2 of three: 1 * 2 / 3 = 0, 2 * 2 / 3 = 1
    data, _ = table(kvfate, "where", hand.path, "--bins", "2")
    check("by hand: density", data["count"] == [1, 0, 1, 0] and data["share"] == [1, 0, 1, 0] and data["mean"] == [.25] * 4 and data["bin_high"] == [.5, 1, .5, 1], data)
    data, _ = table(kvfate, "where", hand.path, "--bins", "2", "--step", "2")
    check("by hand: density at 2", data["count"] == [1, 1, 1, 1] and same(data["mean"], [.5] * 4), data)
    # runs: of four tokens only the entry 1 is left: one run of 1, three changes; 1 * 4 / 4 = 1 run, 1 + 2 * 3 / 4 = 5/2 changes,
    # variance 6 (6 - 4) / (16 * 3) = 1/4, so z = (3 - 5/2) / (1/2) = 1
    data, _ = table(kvfate, "where", "--as", "runs", hand.path)
    check("by hand: runs", rows_of(data, RUNS) == [("L0K0", 4, 1, 1, 1, 1, 3, 1, 1, 1, 2.5, 1), ("all", 4, 1, 1, 1, 1, 3, 1, 1, 1, 2.5, 1)], data)
    # query 2 sees 1 and 2 of three: one run of 2, two changes; 2 * 2 / 3 runs, 1 + 4 / 3 changes, variance 4 (4 - 3) / (9 * 2) = 2/9
    data, _ = table(kvfate, "where", "--as", "runs", hand.path, "--step", "2")
    check("by hand: runs at 2", rows_of(data, RUNS)[0][:8] == ("L0K0", 3, 2, 1, 0, 2, 2, 2)
          and same(rows_of(data, RUNS)[0][8:], [4 / 3, 4 / 3, 7 / 3, (2 - 7 / 3) / (2 / 9) ** .5]), data)
    # every choice of 3 of 6 places: the table expects their mean and variance
    runs_of = [[len(list(g)) and k for k, g in itertools.groupby(i in c for i in range(6))] for c in itertools.combinations(range(6), 3)]
    some = Run(folder, count, rng, L=1, H=1, T=6, P=6, evict=[[[ALIVE, ALIVE, 6, ALIVE, 6, 6]]])
    data, _ = table(kvfate, "where", "--as", "runs", some.path)
    lengths = [len(r) for r in runs_of]
    check("every choice", same([data["expected_runs"][0], data["expected_changes"][0], data["z"][0]],
                               [np.mean([sum(r) for r in runs_of]), np.mean(lengths), (4 - np.mean(lengths)) / np.std(lengths)]), data)
    # words "ab" (tokens 0 1) and "ab" (2 3): one place of two is cached, by its token 1
    data, meta = table(kvfate, "tokens", "--as", "words", hand.path)
    check("by hand: words", data["word"] == ["ab"] and [data[k][0] for k in ("count", "base_count", "places", "scored", "kept", "lift")] == [1, 2, 2, 4, .5, 1]
          and data["log_beta"] == [-2.75], data)
    data, meta = table(kvfate, "tokens", "--as", "words", hand.path, "--match", "all", "--step", "1")
    check("by hand: all of a word", [data[k][0] for k in ("count", "base_count")] == [1, 1] and data["log_beta"] == [-1.5], data)
    data, meta = table(kvfate, "tokens", "--as", "words", hand.path, "--by", "token", "--sort", "retention")
    check("by hand: tokens", data["word"] == ["a", "b ", "b"] and data["log_beta"] == [-2, -2, -5] and data["count"] == [0, 1, 0], data)
    # evictions: ages 2, 1, 1; lives 2, 3, 1, 1
    _, meta = table(kvfate, "eviction", hand.path)
    got = [float(meta[k]) for k in ("entries", "evicted", "mean_life", "age_least", "age_p25", "age_median", "age_p75", "age_most", "steps_with_evictions", "most_in_a_step",
                                   "step_of_most", "evicted_after_prompt", "per_head_and_step")]
    check("by hand: eviction", got == [4, 3, 7 / 4, 1, 1, 1, 2, 2, 3, 1, 2, 2, 1], got)

    # random traces
    base_texts = ["The", " Camel", ",", " and", " the", " ca", "mel", ".", "\u3000", " (Salt", ")", " ÄRA", " ära", "<|im_end|>", "x", " ?!", "\t"]
    for trial, (L, H, group, T) in enumerate([(2, 1, 3, 70), (1, 3, 1, 101), (3, 2, 2, 40)]):
        texts = [base_texts[k] for k in rng.integers(0, len(base_texts), T)]
        roles = np.sort(rng.integers(0, 3, T))
        lb = -rng.gamma(1, 1, (L, H, T)).astype(np.float32).astype(float)
        lb[0, 0, ::9] = np.nan
        r = Run(folder, count, rng, L, H, group, T, int((roles == 0).sum()), texts, local=5, roles=roles, lb=lb)
        a, b, step = 6, T - 9, T // 2
        for bins in (1, 7, 200):
            compare_rows("density", rows_of(table(kvfate, "where", r.path, "--bins", bins)[0], DENSITY), r.density(bins))
        compare_rows("density at a step", rows_of(table(kvfate, "where", r.path, "--step", step)[0], DENSITY), r.density(20, step))
        compare_rows("density of a range", rows_of(table(kvfate, "where", r.path, "--tokens", f"{a}:{b}")[0], DENSITY), r.density(20, None, a, b))
        compare_rows("runs", rows_of(table(kvfate, "where", "--as", "runs", r.path)[0], RUNS), r.runs())
        compare_rows("runs at a step", rows_of(table(kvfate, "where", "--as", "runs", r.path, "--step", step)[0], RUNS), r.runs(step))
        compare_rows("runs of a range", rows_of(table(kvfate, "where", "--as", "runs", r.path, "--tokens", f"{a}:{b}")[0], RUNS), r.runs(None, a, b))
        compare_rows("runs of a range at a step", rows_of(table(kvfate, "where", "--as", "runs", r.path, "--tokens", f"{a}:{b}", "--step", a + 3)[0], RUNS), r.runs(a + 3, a, b))
        for window, more in ((0, ()), (0, ("--window", "in")), (5, ("--window", "out")), (13, ("--window", "13")), (T + 5, ("--window", T + 5))):
            compare_rows(f"kv-size {more}", rows_of(table(kvfate, "size", "--as", "kv-size", r.path, *more)[0], SIZE), r.sizes(window))
        compare_rows("kv-size of a range", rows_of(table(kvfate, "size", "--as", "kv-size", r.path, "--tokens", f"{a}:{b}", "--window", 3)[0], SIZE), r.sizes(3, a, b))
        for fold, every in itertools.product((False, True), repeat=2):
            more = ["--fold"] * fold + ["--match", "all"] * every
            _, meta = compare_words(f"words {more}", r, r.words(r.places("word", fold), every=every), *more)
            blank = sum(not t.strip() for t in texts)
            check("in no word", float(meta["tokens_in_no_word"]) == blank and float(meta["undefined"]) > 0, meta, blank)
        compare_words("words at a step", r, r.words(r.places("word"), step, True), "--step", step, "--match", "all")
        compare_words("words of a range", r, r.words(r.places("word", False, None, a, b)), "--tokens", f"{a}:{b}")
        compare_words("words seen often", r, r.words(r.places("word")), "--min-count", 3, least=3)
        compare_words("words of a head", r, r.words(r.places("word"), heads=[(0, 0)]), "--head", "L0K0")
        shown = {t: t.replace("\t", "→") for t in texts}
        compare_words("tokens", r, r.words([(shown[w], at) for w, at in r.places("token")]), "--by", "token")
        compare_words("roles", r, r.words(r.places("role"), step), "--by", "role", "--step", step)
        own = os.path.join(folder, "own.json")
        with open(own, "w") as f:
            json.dump([["animal", "(?i)c"], ["salt", "Salt"]], f)
        classes = table(kvfate, "tokens", r.path, "--classes", own)[0]["class"]
        _, meta = compare_words("classes", r, r.words(r.places("class", classes=classes)), "--by", "class", "--classes", own)
        check("classes are noted", json.loads(meta["classes"]) == [["animal", "(?i)c"], ["salt", "Salt"]], meta)
        for key, sign in (("count", -1), ("kept", -1), ("lift", -1), ("log_beta", -1)):
            data, _ = table(kvfate, "tokens", "--as", "words", r.path, "--sort", "retention" if key == "log_beta" else key)
            v = real(data[key])
            check(f"order of {key}", (np.diff(v[~np.isnan(v)]) <= 0).all() and not np.isnan(v[:1]).any(), v)

        # occupancy by role and class: sums over the entries that a query sees
        for by, label, names in (("role", [["prompt", "answer", "think"][k] for k in roles], ["prompt", "answer", "think"]),
                                 ("class", classes, sorted(set(classes[a:b]))), (None, ["prompt" if k == 0 else "answer" for k in roles], ["prompt", "answer"])):
            more = ["--by", by] * bool(by) + ["--classes", own] * (by == "class")
            data, _ = table(kvfate, "size", r.path, "--every", 3, "--tokens", f"{a}:{b}", *more)
            got = {k: v for *k, v in []}
            for head, cls, s, n in rows_of(data, ("head", "class", "step", "entries")):
                got.setdefault((head, cls), []).append((s, n))
            inside = (np.arange(T) >= a) & (np.arange(T) < b)
            for head, l, h in r.heads():
                for cls in ["all", *names]:
                    m = inside & np.array([cls == "all" or x == cls for x in label])
                    want = [(t, int((r.sees[l, h, t] & m).sum())) for t in range(0, T, 3)]
                    check(f"occupancy {by} {cls}", got.get((head, cls)) == want, head, got.get((head, cls)), want)
            check(f"occupancy {by}: groups", len(got) == len(r.heads()) * (1 + len(names)), sorted(got), names)

        # the sums of eviction
        _, meta = table(kvfate, "eviction", r.path)
        gone = r.evict != ALIVE
        ages = np.sort((r.evict - np.arange(T))[gone]).astype(int)
        at = np.bincount(r.evict[gone].astype(int), minlength=T + 1)
        n, P = len(ages), r.P
        want = {"entries": r.evict.size, "evicted": n, "mean_life": np.where(gone, r.evict, T).mean() - np.arange(T).mean(), "age_least": ages[0], "age_most": ages[-1],
                "age_p25": ages[-(-n // 4) - 1], "age_median": ages[-(-n // 2) - 1], "age_p75": ages[-(-3 * n // 4) - 1], "steps_with_evictions": (at > 0).sum(),
                "most_in_a_step": at.max(), "step_of_most": at.argmax(), "evicted_after_prompt": at[P + 1:].sum(), "per_head_and_step": at[P + 1:].sum() / (L * H * (T - P))}
        seen = r.sees[:, :, P:T].sum(axis=3).mean(axis=(0, 1))  # by each query after the prompt
        want |= {"cached_mean": seen.mean(), "cached_peak": seen.max()}
        want |= {"evicted_" + REASONS[k]: (r.reason == k).sum() for k in range(1, 6)}
        for key, v in want.items():
            check(f"eviction {key}", abs(float(meta[key]) - v) < 1e-9 * max(1, abs(v)), meta[key], v)
        check("eviction is told", "reasons: budget" in said("eviction", r.path))

    # characters cut between tokens: U+4E2D, U+3000, U+6587; the space ends a word and belongs to neither.  Words:
    # tokens 0 1, 2 3
    pieces = [p.decode(errors="surrogateescape") for p in (b"a\xe4\xb8", b"\xad\xe3\x80", b"\x80\xe6", b"\x96\x87", b"\xff")]
    cut = Run(folder, count, rng, L=1, H=1, T=5, P=1, evict=[[[ALIVE, 1, 4, ALIVE, 4]]], texts=pieces)
    data, _ = table(kvfate, "tokens", "--as", "words", cut.path, "--sort", "word", "--step", 3)
    # query 3 sees 0, 2, 3; the invalid byte joins the previous word, by token 4, which is not fed yet
    check("cut characters", data["word"] == ["a\u4e2d", "\u6587\\xFF"] and data["count"] == [1, 1] and data["scored"] == [2, 2], data)
    data, _ = table(kvfate, "tokens", "--as", "words", cut.path, "--sort", "word", "--match", "all")
    check("cut characters: none whole", data["count"] == [0, 0] and data["scored"] == [2, 3], data)

    # no evictions, all evicted; one token, none; and no gates
    full = Run(folder, count, rng, T=30, evict=ALIVE, lb=None)
    empty = Run(folder, count, rng, T=30, evict=np.arange(30) + 1, lb=None)
    one = Run(folder, count, rng, T=1, P=1, evict=[[[1.]]])
    none = Run(folder, count, rng, T=0, P=0, evict=np.zeros((2, 2, 0)), texts=[])
    bare = Run(folder, count, rng, T=30, header=False)
    for name, r in (("full", full), ("empty", empty), ("one", one), ("bare", bare)):
        compare_rows(f"{name}: density", rows_of(table(kvfate, "where", r.path)[0], DENSITY), r.density(20))
        compare_rows(f"{name}: runs", rows_of(table(kvfate, "where", "--as", "runs", r.path)[0], RUNS), r.runs())
        compare_rows(f"{name}: kv-size", rows_of(table(kvfate, "size", "--as", "kv-size", r.path)[0], SIZE), r.sizes())
        compare_words(f"{name}: words", r, r.words(r.places("word")))
        table(kvfate, "eviction", r.path), table(kvfate, "size", r.path, "--by", "class")
        for command in ("words", "density", "runs", "kv-size", "occupancy", "eviction"):
            said(*words_of(command), r.path)
    check("full: lift", set(table(kvfate, "tokens", "--as", "words", full.path)[0]["lift"]) == {1}, "")
    _, meta = table(kvfate, "where", empty.path)
    check("empty: undefined heads", meta["undefined"] == "4" or float(meta["undefined"]) == 4, meta)
    for command in ("words", "density", "runs", "kv-size", "occupancy", "eviction"):
        data, _ = table(kvfate, *words_of(command), none.path)
        said(*words_of(command), none.path)
        check(f"no tokens: {command}", all(v in (None, 0) for k in ("share", "ratio", "count", "entries") for v in data.get(k, [])), data)

    # errors
    x = bare.path
    for argv, word in ((["tokens", "--as", "words", "--by", "letter"], "--by"), (["tokens", "--as", "words", "--sort", "x"], "--sort"), (["tokens", "--as", "words", "--match", "x"], "--match"), (["tokens", "--as", "words", "--min-count", "0"], "--min-count"),
                       (["tokens", "--as", "words", "--step", "30"], "--step"), (["tokens", "--as", "words", "--step", "-1"], "--step"), (["tokens", "--as", "words", "--fold", "--by", "token"], "--fold"),
                       (["tokens", "--as", "words", "--classes", "x.json"], "--by class"), (["tokens", "--as", "words", "--head", "L0H0"], "KV"), (["where", "--bins", "0"], "--bins"),
                       (["where", "--bins", "99999999"], "--bins"), (["where", "--step", "x"], "--step"), (["where", "--as", "runs", "--step", "30"], "--step"), (["size", "--as", "kv-size", "--window", "-1"], "--window"),
                       (["size", "--as", "kv-size", "--window", "x"], "--window"), (["size", "--by", "x"], "--by"), (["size", "--classes", "x.json"], "--by class")):
        refused(" ".join(argv), 2, [argv[0], x, *argv[1:]], word)
    refused("no window", 1, ["size", "--as", "kv-size", x, "--window", "out"], "--window N")
    refused("no gates", 1, ["tokens", "--as", "words", full.path, "--sort", "retention"], "log_beta")
    lacking = make(write_kvf, os.path.join(folder, "lacking.kvf"), [Column("tokens.id", "i32", "run", [1, 2]), Column("tokens.role", "u8", "run", [0, 0])], (1, 1, 1, 2))
    for command in ("words", "density", "runs", "kv-size"):
        refused(f"{command}: no evictions", 1, [*words_of(command), lacking], "evict_step", "--probes evict")

finish()
