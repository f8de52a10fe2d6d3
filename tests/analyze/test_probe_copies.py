#!/usr/bin/env python3
"""The probe `copies` and the scores of copying heads in kvfate heads, against dense attention and on constructed heads.

usage: test_probe_copies.py KVFATE WRITE_KVF DUMP GEN_TINY
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

import dense
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, kvfate, real, refused, said  # noqa: E402
from maker import AGE, ALIVE, SNAPSHOT, Column, make, table

write_kvf, dump, gen = map(os.path.abspath, sys.argv[2:5])
BLIND = (1, 2)  # a head of the tiny model whose queries are 0
NAMES = ("copy.top", "copy.previous", "copy.duplicate", "copy.follower")


# ---- definitions on complete matrices

def copy_columns(a, ids):
    """The four columns of one head: a [T][T] weights, 0 for entries that a query does not see."""
    T = len(ids)
    out = {n: np.zeros(T) for n in NAMES}
    for t in range(T):
        best = max(a[t, :t + 1])
        out["copy.top"][t] = max(j for j in range(t + 1) if a[t, j] == best)
        out["copy.previous"][t] = a[t, t - 1] if t else 0
        for j in range(t):
            if ids[j] == ids[t]:
                out["copy.duplicate"][t] += a[t, j]
                out["copy.follower"][t] += a[t, j + 1]
    return out


def scores(a, ids, needle, first):
    """The scores of one head from its matrix; needle: positions; first: the position of the first token of the answer."""
    T = len(ids)
    pairs = [(t, j) for t in range(1, T) for j in range(t) if ids[j] == ids[t]]
    queries = sorted({t for t, _ in pairs})
    copied = set()
    for t in range(first - 1, T - 1):
        i = max(range(t + 1), key=lambda j: (a[t, j], j))
        if i in needle and ids[i] == ids[t + 1]:
            copied.add(i)
    return {"previous": np.mean([a[t, t - 1] for t in range(1, T)]), "duplicate": sum(a[t, j] for t, j in pairs) / len(queries),
            "induction": np.mean([a[t, j + 1] for t, j in pairs]), "induction_sum": sum(a[t, j + 1] for t, j in pairs) / len(queries), "copied": len(copied)}


# ---- recorded runs

def columns(folder, kvf):
    out = {}
    for line in subprocess.run([dump, kvf, folder], check=True, capture_output=True, text=True).stdout.splitlines():
        name, *shape = line.split()
        out[name] = np.fromfile(os.path.join(folder, name + ".f64")).reshape([int(x) for x in shape])
    return out


def tiny(folder):
    """A model of 2 layers, 4 query heads and 2 KV heads; BLIND attends uniformly."""
    path = os.path.join(folder, "tiny.gguf")
    subprocess.run([sys.executable, gen, "--heads", "4", "--kv-heads", "2", "--seed", "2", "-o", path], check=True)
    g = dense.Gguf(path)
    at, size = g.offset[f"blk.{BLIND[0]}.attn_q.weight"]
    with open(path, "r+b") as f:
        f.seek(at + BLIND[1] * size // 4)
        f.write(bytes(size // 4))
    return path


def record(folder, model, out, *more):
    path = os.path.join(folder, out)
    subprocess.run([kvfate, "run", "--overwrite", "-m", model, "--exact", "--ignore-eos", "-q", "-o", path, *map(str, more)], check=True, stdout=subprocess.DEVNULL)
    return path


def against_dense(folder, model):
    rng = np.random.default_rng(4)
    ids = os.path.join(folder, "ids")
    with open(ids, "w") as f:
        f.write(" ".join(map(str, [1, *np.tile(rng.choice(np.arange(3, 250), 9, replace=False), 4), 7, 7, 7])))
    hidden = 0
    for method in (["full"], ["h2o", "--budget", "12"], ["window", "--budget", "16"], ["snapkv", "--budget", "10"]):
        how = ["--ids", ids, "-n", "12", "--method", *method]
        kvf = record(folder, model, "x.kvf", *how, "-t", "2", "--probes", "paper,copies")
        c, m = columns(folder, kvf), dense.Llama(model)
        tokens = c["tokens.id"][0, 0].astype(int)
        T = len(tokens)
        alpha = dense.alpha_of(np.where(c["evict_step"] == ALIVE, np.inf, c["evict_step"]), T)
        hidden += (~alpha[:, :, np.tri(T, dtype=bool)]).sum()
        p, _, _ = m.run(tokens, alpha)
        got = table(kvfate, "heads", kvf)[0]
        for l in range(m.L):
            for h in range(m.G):
                name, want = f"{method[0]}: L{l}H{h}", copy_columns(p[l, h], tokens)
                for column in NAMES[1:]:
                    check(f"{name} {column}", np.allclose(c[column][l, h], want[column], rtol=1e-4, atol=1e-6), np.abs(c[column][l, h] - want[column]).max())
                if (l, h) != BLIND:  # with equal weights, rounding decides
                    at = c["copy.top"][l, h].astype(int)
                    check(f"{name} top", all(at[t] <= t and p[l, h, t, at[t]] >= p[l, h, t].max() * (1 - 1e-4) for t in range(T)))
                    check(f"{name} most tops", (at == want["copy.top"]).mean() > .95)
                for score, value in scores(p[l, h], tokens, (), T).items():
                    if score != "copied":
                        check(f"{name} {score}", np.isclose(real(got[score])[l * m.G + h], value, rtol=1e-4, atol=1e-7), got[score][l * m.G + h], value)
        for threads, chunk in ((1, 7), (2, 256)):
            again = record(folder, model, "y.kvf", *how, "--probes", "paper,copies", "-t", threads, "--chunk", chunk)
            check("equal bytes", open(kvf, "rb").read() == open(again, "rb").read())
        without = columns(folder, record(folder, model, "z.kvf", *how, "--probes", "paper"))
        check("the probe changes no other column", all(np.array_equal(without[k], c[k], equal_nan=True) for k in without) and not set(NAMES) & set(without))
    check("entries are hidden", hidden > 1000, hidden)


def blind_head(folder, model):
    """Uniform attention has the values that the metadata give as those of uniform attention."""
    kvf = record(folder, model, "blind.kvf", "--ids", os.path.join(folder, "ids"), "-n", "0", "--probes", "paper,copies")
    got, meta = table(kvfate, "heads", kvf)
    row = got["head"].index("L%dH%d" % BLIND)
    tokens = columns(folder, kvf)["tokens.id"][0, 0]
    T = len(tokens)
    even = np.tri(T) / np.arange(1, T + 1)[:, None]
    for score, value in scores(even, tokens, (), T).items():
        if score != "copied":
            check(f"uniform {score}", np.isclose(float(meta[score + "_uniform"]), value) and np.isclose(got[score][row], value, rtol=1e-5), got[score][row], meta)


def with_needle(folder, model):
    """A real prompt with a named span, and an answer that repeats its text: distinct tokens that a head copied."""
    text, spans = os.path.join(folder, "needle.txt"), os.path.join(folder, "needle.json")
    prompt, needle = "ab the code is 4812. xyz xyz. what is the code?", "4812"
    with open(text, "w") as f:
        f.write(prompt)
    at = prompt.index(needle)
    with open(spans, "w") as f:
        json.dump({"spans": [{"name": "needle", "start": at, "end": at + 4}, {"name": "other", "start": 0, "end": 2}]}, f)
    ids = columns(folder, record(folder, model, "p.kvf", "-f", text, "--raw", "-n", "0", "--probes", "lean"))["tokens.id"][0, 0].astype(int)
    pieces = table(kvfate, "tokens", os.path.join(folder, "p.kvf"))[0]["text"]
    start = {i: sum(len(p) for p in pieces[:i]) for i in range(len(ids))}
    marked = [i for i in start if start[i] < at + 4 and start[i] + len(pieces[i]) > at]
    answer = [ids[i] for i in marked]
    with open(os.path.join(folder, "answer"), "w") as f:
        f.write(" ".join(map(str, [*answer, ids[2], ids[3]])))
    kvf = record(folder, model, "n.kvf", "-f", text, "--raw", "--spans", spans, "--force", os.path.join(folder, "answer"), "--probes", "paper,copies")
    c, m = columns(folder, kvf), dense.Llama(model)
    tokens = c["tokens.id"][0, 0].astype(int)
    first = int(np.argmax(c["tokens.role"][0, 0] == 1))
    check("the answer begins after the prompt", first == len(ids) and len(tokens) > first + 3, first, len(ids), len(tokens))
    p, _, _ = m.run(tokens, dense.alpha_of(np.full((m.L, m.H, len(tokens)), np.inf), len(tokens)))
    got, meta = table(kvfate, "heads", kvf)
    want = [scores(p[l, h], tokens, marked, first)["copied"] for l in range(m.L) for h in range(m.G)]
    blind = BLIND[0] * m.G + BLIND[1]
    check("copied tokens", [x for k, x in enumerate(got["copied"]) if k != blind] == [x for k, x in enumerate(want) if k != blind], got["copied"], want)
    check("needle", (meta["needle"], int(meta["needle_tokens"]), float(meta["needle_recall"])) == ("needle", len(marked), 1), meta)
    check("retrieval", np.allclose(real(got["retrieval"]), np.array(got["copied"]) / len(marked)), got["retrieval"])
    other, meta = table(kvfate, "heads", kvf, "--needle", "other")
    check("an answer without the needle's words", float(meta["needle_recall"]) == 0 and other["retrieval"] == [None] * len(want), meta)
    check("it is told", "no retrieval score" in said("heads", kvf, "--needle", "other"))
    refused("an unknown span", 2, ["heads", kvf, "--needle", "hay"], "'hay'", "--spans")
    refused("no evidence", 2, ["heads", os.path.join(folder, "z.kvf"), "--needle", "needle"], "--probes paper,copies")
    refused("of retention", 2, ["heads", kvf, "--by", "beta", "--needle", "needle"], "--by beta")


# ---- constructed heads

def trace_of(path, heads, ids, words, needle, first, group=1):
    """A trace of one layer from matrices [head][T][T]; `paper` is that of the matrices too."""
    T, H = len(ids), len(heads)
    found = [copy_columns(a, ids) for a in heads]
    cols = [Column(n, "u16" if n == "copy.top" else "f32", "query", np.array([[f[n] for f in found]]), "step") for n in NAMES]
    M, X = (np.array([[getattr(a, how)(0) for a in heads]]) for how in ("sum", "max"))
    last = np.zeros((1, H, T))
    cols += [Column("mass.sum", "f32", "query", M, flags=SNAPSHOT), Column("mass.max", "f32", "query", X, flags=SNAPSHOT),
             Column("last_selected.mass.90", "u16", "query", last, flags=SNAPSHOT | AGE), Column("entropy", "f32", "query", last, "step"),
             Column("tokens.id", "i32", "run", ids), Column("tokens.role", "u8", "run", (np.arange(T) >= first).astype(float))]
    meta = {"model": {"name": "constructed", "hash": "1"}, "spans": [{"name": "needle", "useful": True, "tokens": needle}]}
    return make(write_kvf, path, cols, (1, H // group, H, T), meta, texts=words)


def one_hot(T, target):
    a = np.zeros((T, T))
    for t in range(T):
        a[t, target(t)] = 1
    return a


def constructed(folder):
    """Text: filler, the needle a b c d e, filler, then the answer a b c d e a b."""
    letters = [f" w{k}" for k in range(20)] + [" a", " b", " c", " d", " e"] + [f" v{k}" for k in range(15)] + [" q"] + [" a", " b", " c", " d", " e", " a", " b"]
    ids = np.array([sorted(set(letters)).index(x) for x in letters], float)
    T, first = len(ids), 41
    source = {first + k - 1: 20 + k % 5 for k in range(7)}  # the query that predicts answer token k, and where it stands in the needle
    copying = one_hot(T, lambda t: source.get(t, t))
    three = one_hot(T, lambda t: source[t] if t in source and source[t] < 23 else t)
    wrong = one_hot(T, lambda t: 20 + (source[t] - 19) % 5 if t in source else t)  # attends to the needle, to other tokens than the next
    outside = one_hot(T, lambda t: t)
    even = np.tri(T) / np.arange(1, T + 1)[:, None]
    previous = one_hot(T, lambda t: max(t - 1, 0))
    follower = one_hot(T, lambda t: max([j + 1 for j in range(t) if ids[j] == ids[t]], default=t))
    duplicate = one_hot(T, lambda t: max([j for j in range(t) if ids[j] == ids[t]], default=t))
    heads = [copying, three, wrong, outside, even, previous, follower, duplicate]
    path = trace_of(f"{folder}/made.kvf", heads, ids, letters, [[20, 23], [23, 25]], first, group=2)
    got, meta = table(kvfate, "heads", path)
    # `follower` copies too: token b of the answer follows a, whose earlier copy is followed by b; its first token a has no such query
    check("retrieval of constructed heads", np.allclose(got["retrieval"], [1, .6, 0, 0, 0, 0, .8, 0], atol=1e-6), got["retrieval"])
    check("repeats count once", got["copied"][0] == 5, got["copied"])
    check("previous-token head", got["previous"][5] == 1 and abs(got["previous"][4] - float(meta["previous_uniform"])) < 1e-6, got["previous"])
    check("duplicate-token head", got["duplicate"][7] == 1 and got["duplicate"][6] == 0, got["duplicate"])
    check("induction head", got["induction_sum"][6] == 1 and abs(got["induction"][6] - 7 / 9) < 1e-6, got["induction"], got["induction_sum"])
    check("uniform head", abs(got["induction"][4] - float(meta["induction_uniform"])) < 1e-6 and 0 < got["induction"][4] < .05, got["induction"], meta)
    check("largest of the KV head", np.allclose(got["retrieval_kv"], [1, 1, 0, 0, 0, 0, .8, .8], atol=1e-6), got["retrieval_kv"])
    text = said("heads", path)
    check("heads above the limits", "3 retrieval heads (retrieval >= 0.1), largest L0H0 with 1.000" in text and "largest L0H6 with 0.778" in text, text)
    half = table(kvfate, "heads", path, "--head", "L0H1,L0H4")[0]
    check("maxima of chosen heads", np.allclose(half["retrieval_kv"], [.6, 0]), half["retrieval_kv"])


def prefix_by_hand(folder):
    """BOS and a b c twice, with .8, .6 and .4 on the followers: .6. Three queries have one target each."""
    T, extra = 7, 33
    ids = np.array([1, 2, 3, 4, 2, 3, 4, *range(10, 10 + extra)], float)
    a = np.eye(T + extra)
    for t, w in zip((4, 5, 6), (.8, .6, .4)):
        a[t, t - 2], a[t, t] = w, 1 - w
    path = trace_of(f"{folder}/hand.kvf", [a], ids, [f" t{int(i)}" for i in ids], [[0, 1]], T + extra)
    got, meta = table(kvfate, "heads", path)
    check("prefix matching by hand", np.isclose(got["induction"][0], .6) and np.isclose(got["induction_sum"][0], .6), got["induction"])
    check("its uniform value by hand", np.isclose(float(meta["induction_uniform"]), (1 / 5 + 1 / 6 + 1 / 7) / 3), meta)
    check("no answer, no retrieval score", got["retrieval"] == [None] and got["copied"] == [0], got["retrieval"])


def over_documents(folder):
    """The mean over documents and Student's interval; documents without success do not count."""
    rng = np.random.default_rng(9)
    values, os_folder = [], os.path.join(folder, "docs")
    os.mkdir(os_folder)
    for k in range(6):
        letters = [f" w{j}" for j in range(30 - k)] + [" x"] * k + [" a", " b", " c", " d"] + [" q"] + ([" a", " b", " c", " d"] if k else [" w1"] * 4)
        ids, first = np.array([sorted(set(letters)).index(x) for x in letters], float), 35
        n = int(rng.integers(0, 5))
        a = one_hot(len(ids), lambda t: t - 4 if first - 1 <= t < first - 1 + n else t)
        values += [n / 4] if k else []
        trace_of(f"{os_folder}/{k}.kvf", [a], ids, letters, [[30, 34]], first)
    got = table(kvfate, "corpus", "heads", os_folder, "--intervals", "all")[0]
    want = 2.7764451051977987 * np.std(values, ddof=1) / np.sqrt(5)  # t(0.975, 4)
    check("mean over documents", np.isclose(got["retrieval"][0], np.mean(values), rtol=1e-9) and got["retrieval_documents"] == [5], got["retrieval"], got["retrieval_documents"], values)
    check("interval over documents", np.isclose(got["retrieval_high"][0] - got["retrieval"][0], want, rtol=1e-6), got["retrieval_high"], want)


with tempfile.TemporaryDirectory(prefix="kvfate-copies-") as place:
    gguf = tiny(place)
    against_dense(place, gguf)
    blind_head(place, gguf)
    with_needle(place, gguf)
    constructed(place)
    prefix_by_hand(place)
    over_documents(place)
    without = table(kvfate, "corpus", "heads", os.path.join(place, "z.kvf"))[0]
    check("no columns without evidence", not {"retrieval", "induction"} & set(without), list(without))
    finish()
