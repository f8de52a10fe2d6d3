#!/usr/bin/env python3
"""kvfate heads --as types: fractions, depths and intervals over documents in numpy, from the heads table of each document; and its refusals.

usage: test_head_types.py KVFATE WRITE_KVF
"""
import os
import sys
import tempfile

import numpy as np

import planted
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, kvfate, real, refused, said  # noqa: E402
from maker import AGE, SNAPSHOT, Column, make, table

write_kvf = os.path.abspath(sys.argv[2])
T975 = {3: 3.182446305284264, 4: 2.7764451051977987, 5: 2.5705818366147395}  # Student's t, by degrees of freedom
S, T = 4, 64


def trace(folder, name, model, L, G, rng, n_window, copying=None, first=T):
    """A document: n_window heads are sliding windows, the others sinks. copying: induction scores of the heads, and the tokens of
    a needle of four that each copies."""
    a = np.zeros((L * G, T, T))
    order = rng.permutation(L * G)
    for k, h in enumerate(order):
        for t in range(T):
            if k < n_window:
                a[h, t, max(0, t - 5):t + 1] = 1 / len(range(max(0, t - 5), t + 1))
            else:
                a[h, t, :min(S, t + 1)] = .9 / min(S, t + 1)
                a[h, t, :t + 1] += .1 / (t + 1)
    kinds = np.array(["sliding-window" if k in order[:n_window] else "sink" for k in range(L * G)])
    M, X = (getattr(a, how)(1).reshape(L, G, T) for how in ("sum", "max"))
    last = np.where(np.isin(np.arange(L * G), order[:n_window])[:, None], 5., 0).repeat(T, 1).reshape(L, G, T)
    cols = [Column("mass.sum", "f32", "query", M, flags=SNAPSHOT), Column("mass.max", "f32", "query", X, flags=SNAPSHOT),
            Column("last_selected.mass.90", "u16", "query", np.minimum(last, T - 1 - np.arange(T)), flags=SNAPSHOT | AGE), Column("entropy", "f32", "query", np.ones((L, G, T)), "step")]
    words, ids = planted.text(rng, T), np.arange(100, 100 + T).astype(float)
    meta = {"model": {"name": model, "hash": model}, "spans": [{"name": "needle", "tokens": [[10, 14]]}]}
    if copying is not None:
        induction, copied, success = copying
        words[10:14] = words[first:first + 4] = " a", " b", " c", " d"
        if not success:
            words[first:first + 4] = [" z"] * 4
        ids[first:first + 4] = ids[10:14]
        top = np.zeros((L * G, T))
        for h, n in enumerate(copied):
            top[h, first - 1:first - 1 + n] = np.arange(10, 10 + n)
        follower = np.zeros((L * G, T))
        follower[:, first:first + 4] = np.array(induction)[:, None]
        zeros = np.zeros((L, G, T))
        cols += [Column("copy.top", "u16", "query", top.reshape(L, G, T), "step"), Column("copy.previous", "f32", "query", zeros, "step"),
                 Column("copy.duplicate", "f32", "query", zeros, "step"), Column("copy.follower", "f32", "query", follower.reshape(L, G, T), "step"),
                 Column("tokens.id", "i32", "run", ids), Column("tokens.role", "u8", "run", (np.arange(T) >= first).astype(float))]
    return make(write_kvf, os.path.join(folder, name), cols, (L, G, G, T), meta, texts=words), kinds


def interval(v):
    """Mean and Student's interval; none below four documents."""
    v = np.array(v, float)
    half = T975[len(v) - 1] * v.std(ddof=1) / np.sqrt(len(v)) if len(v) >= 4 else np.nan
    return (v.mean() if len(v) else np.nan), (v.mean() if len(v) else np.nan) - half, (v.mean() if len(v) else np.nan) + half


def rows(got, **which):
    """The only row with these values, as a dictionary."""
    found = [k for k in range(len(got["model"])) if all(got[c][k] == v for c, v in which.items())]
    assert len(found) == 1, (which, found)
    return {c: got[c][found[0]] for c in got}


def same(name, row, columns, want):
    for c, w in zip(columns, want):
        value = np.nan if row[c] is None else row[c]
        check(f"{name}: {c}", np.isclose(value, w, rtol=1e-9, atol=1e-12, equal_nan=True), value, w)


def judge(name, got, model, kind, masks, depth, known):
    """masks: of each document, the heads of the type; depth [heads]; known: of each document, the heads that have a type."""
    row = rows(got, model=model, kind=kind)
    fraction = interval([m.sum() / k for m, k in zip(masks, known) if k])
    low, high = np.clip(fraction[1], 0, None), np.clip(fraction[2], None, 1)
    same(name, row, ("fraction", "low", "high"), (fraction[0], low, high))
    deep = interval([depth[m].mean() for m in masks if m.any()])
    same(name, row, ("depth", "depth_low", "depth_high"), (deep[0], np.clip(deep[1], 0, None), np.clip(deep[2], None, 1)))
    check(f"{name}: counts", (row["documents"], row["occurs"], row["of"]) == (sum(k > 0 for k in known), sum(m.any() for m in masks), len(depth)), row)
    same(name, row, ("heads",), [np.mean([m.sum() for m, k in zip(masks, known) if k]) if any(known) else np.nan])
    return low


def kinds(folder):
    rng = np.random.default_rng(3)
    shapes = {"alpha": (4, 3, [5, 6, 7, 5, 9]), "beta": (3, 2, [0, 1, 0, 0, 0, 1]), "few": (2, 2, [1, 2, 3])}
    paths, masks = [], {}
    for model, (L, G, counts) in shapes.items():
        for k, n in enumerate(counts):
            path, kind = trace(folder, f"{model}{k}.kvf", model, L, G, rng, n)
            named = np.array(table(kvfate, "heads", path)[0]["kind"])
            check(f"{model}{k}: the heads are what they were made as", (named == kind).all(), named, kind)
            paths.append(path)
            masks.setdefault(model, []).append(named)
    got, meta = table(kvfate, "heads", "--as", "types", *rng.permutation(paths))
    check("metadata", (meta["models"], meta["traces"], meta["by"]) == ("3", "14", "kinds"), meta)
    for kind in sorted(set(got["kind"])):
        lows = []
        for model, (L, G, counts) in shapes.items():
            depth = np.arange(L).repeat(G) / (L - 1)
            lows.append(judge(f"{model} {kind}", got, model, kind, [m == kind for m in masks[model]], depth, [L * G] * len(counts)))
        check(f"{kind}: models", all(rows(got, model=m, kind=kind)["models"] == sum(x > 0 for x in lows) for m in shapes), lows)
    text = said("heads", "--as", "types", *[p for p in paths if "few" not in p])
    check("types of every model are named", text.splitlines()[-1] == "in each of 2 models (interval above 0): sink", text)
    check("a fraction with its interval", "alpha, 5 documents: sliding-window 0.533 (0.360 .. 0.706), sink 0.467" in text, text)
    part = table(kvfate, "heads", "--as", "types", paths[0], "--head", "L0H*")[0]
    check("chosen heads", set(part["of"]) == {3} and part["documents"] == [1] * 10, part)
    refused("a trace twice", 2, ["heads", "--as", "types", paths[0], paths[1], paths[0]], "traces 1 and 3 are equal")
    refused("no evidence", 1, ["heads", "--as", "types", paths[0], "--by", "induction"], "copy.*", "--probes copies")
    refused("--needle with kinds", 2, ["heads", "--as", "types", paths[0], "--needle", "x"], "--by retrieval")
    refused("--criterion with scores", 2, ["heads", "--as", "types", paths[0], "--by", "induction", "--criterion", "top64"], "--by kinds")


def scores(folder):
    rng = np.random.default_rng(6)
    L, G, first = 3, 4, 50
    depth, paths, induced, retrieved, known = np.arange(L).repeat(G) / (L - 1), [], [], [], []
    for k in range(6):
        induction, copied, success = rng.choice([.1, .29, .3, .8], L * G), rng.choice([0, 0, 1, 4], L * G), k != 2
        paths.append(trace(folder, f"s{k}.kvf", "gamma", L, G, rng, 3, (induction, copied, success), first)[0])
        induced.append(np.float32(induction) >= .3)
        retrieved.append((copied / 4 >= .1) & success)
        known.append(L * G if success else 0)
    got, meta = table(kvfate, "heads", "--as", "types", *paths, "--by", "induction")
    judge("induction", got, "gamma", "induction", induced, depth, [L * G] * 6)
    check("its limit", float(meta["limit"]) == .3 and "criterion" not in meta, meta)
    got, meta = table(kvfate, "heads", "--as", "types", *paths, "--by", "retrieval")
    judge("retrieval", got, "gamma", "retrieval", retrieved, depth, known)
    check("its limit", float(meta["limit"]) == .1, meta)
    refused("an unknown span", 2, ["heads", "--as", "types", *paths, "--by", "retrieval", "--needle", "x"], "'x'")


with tempfile.TemporaryDirectory(prefix="kvfate-head-types-") as place:
    kinds(place)
    scores(place)
    empty = make(write_kvf, os.path.join(place, "empty.kvf"), [Column(n, t, "query", np.zeros((1, 1, 0)), a) for n, t, a in (
        ("mass.sum", "f32", "token"), ("mass.max", "f32", "token"), ("last_selected.mass.90", "u16", "token"), ("entropy", "f32", "step"))], (1, 1, 1, 0))
    data, _ = table(kvfate, "heads", "--as", "types", empty)
    check("a trace without tokens has no document", set(data["documents"]) == {0} and set(data["fraction"]) == {None}, data)
finish()
