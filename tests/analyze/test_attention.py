#!/usr/bin/env python3
"""Check --probes raw:HEADS and kvfate attention against a forward pass and a softmax in NumPy.

usage: test_attention.py KVFATE WRITE_KVF DUMP GEN_TINY
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

import dense
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
from check import check, finish, refused  # noqa: E402
from maker import ALIVE, SNAPSHOT, Column, make, table  # noqa: E402
import kvfate as package  # noqa: E402

kvfate, write_kvf, dump, gen = map(os.path.abspath, sys.argv[1:5])
os.environ["PATH"] = os.path.dirname(kvfate) + os.pathsep + os.environ["PATH"]  # where the package finds the program

# name, model, prompt, -n, options; T = prompt + n - 1
RUNS = [
    ("full", "--heads 4 --kv-heads 2 --seed 2", 30, 15, "--method full"),
    ("h2o", "--heads 6 --kv-heads 2 --dim 96 --head-dim 32 --seed 3", 25, 30, "--method h2o:chunk=8 -B 12"),
    ("own", "--heads 4 --kv-heads 2 --seed 6", 20, 12, "--method tova:group=none -B 8"),
    ("one", "--heads 2 --kv-heads 2 --dim 32 --seed 7", 1, 0, "--method full"),
]


def model_of(folder, name, options, prompt):
    gguf, ids = (os.path.join(folder, f"{name}.{e}") for e in ("gguf", "ids"))
    if not os.path.exists(gguf):
        subprocess.run([sys.executable, gen, *options.split(), "-o", gguf], check=True)
        with open(ids, "w") as f:
            f.write(" ".join(map(str, np.random.RandomState(prompt).randint(3, 259, prompt))))
    return gguf, ids


def run(folder, case, probes, out="x.kvf", exact=("--exact",), more=(), environment=None):
    name, model, prompt, n, options = case
    gguf, ids = model_of(folder, name, model, prompt)
    kvf = os.path.join(folder, out)
    subprocess.run([kvfate, "run", "--overwrite", "-m", gguf, "--ids", ids, "-n", str(n), *exact, "--ignore-eos", *options.split(), "--probes", probes, "-q", "-o", kvf,
                    *more], check=True, stdout=subprocess.DEVNULL, env={**os.environ, **(environment or {})})
    return kvf


def maps(kvf, *more):
    """Returns {head: (weights [t, i], cached [t, i])} of single cells, NaN above the diagonal, and the metadata."""
    t, meta = table(kvfate, "attention", kvf, *more)
    T, out = int(meta["end_query"]), {}
    for head, query, token, weight, cached in zip(t["head"], t["query"], t["token"], t["attention"], t["cached"]):
        out.setdefault(head, np.full((2, T, T), np.nan))[:, query, token] = weight, cached
    return out, meta


def softmax_of(q, k, visible, scale):
    logits = np.where(visible, q.astype(float) @ k.astype(float).T * scale, -np.inf)
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def against_dense(folder, case):
    """The map equals the attention of a forward pass in float64; entries that a query does not see have the weight 0."""
    name = case[0]
    kvf = run(folder, case, "lean,steps,raw:*.*")
    m = dense.Llama(os.path.join(folder, name + ".gguf"))
    with package.open(kvf) as trace:
        T, ids = trace.steps, trace["tokens.id"][:].astype(int)
        evict = np.array([trace["evict_step"][l, :] for l in range(m.L)]).astype(float)
    evict[evict == ALIVE] = np.inf
    group = m.G // m.H
    if "group=none" in case[4]:
        m.H = m.G  # entries of each query head: widen the keys and values
        for k in [k for k in m.w if "attn_k." in k or "attn_v." in k]:
            m.w[k] = np.repeat(m.w[k].reshape(m.G // group, -1, m.w[k].shape[1]), group, 0).reshape(-1, m.w[k].shape[1])
    alpha = dense.alpha_of(evict, T)
    p = m.run(ids, alpha)[0]
    got, meta = maps(kvf)
    check(f"{name}: heads", list(got) == [f"L{l}H{g}" for l in range(m.L) for g in range(m.G)], list(got))
    below = np.tri(T, dtype=bool)
    for l in range(m.L):
        for g in range(m.G):
            weight, cached = got[f"L{l}H{g}"]
            seen = alpha[l, g // (m.G // m.H)] & below
            check(f"{name}: L{l}H{g} cells", np.array_equal(np.isnan(weight), ~below) and np.array_equal(cached == 1, seen))
            check(f"{name}: L{l}H{g}", np.abs(weight[below] - p[l, g][below]).max() < 1e-5 and not weight[below & ~seen].any(), np.abs(weight[below] - p[l, g][below]).max())
            check(f"{name}: L{l}H{g} sums", np.allclose(np.nansum(weight, -1), 1, atol=1e-6))
    check(f"{name}: evicted", int(meta["cells_evicted"]) == m.L * sum((~alpha[l, h] & below).sum() * (m.G // m.H) for l in range(m.L) for h in range(m.H)) / m.L
          and (int(meta["cells_evicted"]) > 100) == (name in ("h2o", "own")), meta)
    check(f"{name}: log-sum-exp", float(meta["lse_difference"]) < 1e-5, meta)


def blocks(folder):
    """The blobs of a trace give the map; other columns do not change; threads and chunks do not change a byte."""
    case = RUNS[1]
    kvf = run(folder, case, "lean,raw:L1K1,0.2")
    with package.open(kvf) as trace:
        blob = {(b.name, b.layer, b.head): b for b in trace.blobs}
        check("heads of raw", sorted(blob) == sorted([*((n, l, g) for n in ("q", "logit") for l, g in ((0, 2), (1, 3), (1, 4), (1, 5))), ("k", 0, 0), ("k", 1, 1)]), sorted(blob))
        terms = blob["logit", 1, 4].data
        check("terms", np.allclose(terms[:2], [32 ** -.5, 0]) and terms[2] == -np.inf, terms)
        step = np.arange(trace.steps)
        visible = (step <= step[:, None]) & (trace["evict_step"][1, 1] > step[:, None])
        want = softmax_of(blob["q", 1, 4].data, blob["k", 1, 1].data, visible, float(terms[0]))
        plain = package.open(run(folder, case, "lean", "plain.kvf"))
        check("same columns", list(trace.columns) == list(plain.columns) and all(np.array_equal(trace[c][l], plain[c][l], equal_nan=True) for c in plain.columns if plain[c].space != "run" for l in range(2)))
        plain.close()
    got, _ = maps(kvf, "--head", "1.4")
    check("softmax of the blobs", list(got) == ["L1H4"] and np.nanmax(np.abs(got["L1H4"][0] - want)) < 1e-7)
    t = package.open(kvf).attention(head="1.4")
    check("Python", len(t["attention"]) == want.shape[0] * (want.shape[0] + 1) // 2)
    for more in (["-t", "1", "--chunk", "7"], ["-t", "3"]):
        other = run(folder, case, "lean,raw:L1K1,0.2", "other.kvf", more=more)
        check(f"bytes {more}", open(kvf, "rb").read() == open(other, "rb").read())
    other = run(folder, case, "auto,raw:0.2,1.4,evict", "other.kvf")
    check("with auto", list(maps(other)[0]) == ["L0H2", "L1H4"])


def precisions(folder):
    """Caches of other types: the log-sum-exp of the map and of the decoder agree."""
    for kind in ("f16", "q8_0", "i16"):
        kvf = run(folder, RUNS[1], "lean,steps,raw:*.*", exact=("--kv-type", kind))
        _, meta = maps(kvf)
        check(f"{kind}: log-sum-exp", float(meta["lse_difference"]) < 2e-5, meta["lse_difference"])


def boxes(folder):
    """Boxes of several cells: the maximum or the mean of the cells of queries that are not earlier; ranges."""
    kvf = run(folder, RUNS[1], "lean,raw:0.2")
    weight, cached = maps(kvf)[0]["L0H2"]
    T = len(weight)
    for each in ("max", "mean"):
        for n, queries, tokens in ((7, (0, T), (0, T)), (5, (20, 50), (3, 33)), (1, (9, 31), (0, T)), (64, (40, 54), (10, 20))):
            t, meta = table(kvfate, "attention", kvf, "--boxes", n, "--each", each, "--queries", "%d:%d" % queries, "--tokens", "%d:%d" % tokens)
            end = min(tokens[1], queries[1])
            count = [min(n, queries[1] - queries[0]), min(n, end - tokens[0])]
            edges = [[a + (b - a) * i // k for i in range(k + 1)] for (a, b), k in zip((queries, (tokens[0], end)), count)]
            want = []
            for q0, q1 in zip(edges[0], edges[0][1:]):
                for i0, i1 in zip(edges[1], edges[1][1:]):
                    cells, here = weight[q0:q1, i0:i1], cached[q0:q1, i0:i1]
                    if not np.isnan(cells).all():
                        want.append((q0, q1, i0, i1, np.nanmax(cells) if each == "max" else np.nanmean(cells), np.nanmean(here)))
            got = list(zip(*(t[c] for c in ("query", "query_end", "token", "token_end", "attention", "cached"))))
            check(f"{each} {n} {queries} {tokens}", len(got) == len(want) and np.allclose(got, want, atol=1e-7), got[:3], want[:3])
    r = subprocess.run([kvfate, "attention", kvf], capture_output=True, text=True)
    t, _ = table(kvfate, "attention", kvf)
    for head in sorted(set(t["head"])):
        inner = [(a, q, i) for h, a, q, i in zip(t["head"], t["attention"], t["query"], t["token"]) if h == head and 0 < i < q]
        top, q, i = max(inner, key=lambda x: x[0])
        line = [x.split() for x in r.stdout.splitlines() if x.split()[:1] == [head]]
        check(f"the summary of {head} is neither of the first token nor of the query itself", line and line[0][1:4] == ["largest", f"{top:.4g}:", "query"]
              and f"query {q} " in " ".join(line[0]).replace(",", " ") and f"token {i}" in " ".join(line[0]), line, top, q, i)
    r = subprocess.run([kvfate, "attention", kvf, "--boxes", "5"], capture_output=True, text=True)
    edges = [T * i // 5 for i in range(6)]
    inner = [(np.nanmax(weight[a:b, i:j]), a, b, i, j) for a, b in zip(edges, edges[1:]) for i, j in zip(edges, edges[1:]) if 0 < i and j <= a]
    top, a, b, i, j = max(inner)
    check("the summary of boxes has their edges", f"largest {top:.4g}: queries {a} to {b - 1}, tokens {i} to {j - 1}\n" in r.stdout, r.stdout, r.stderr)
    r = subprocess.run([kvfate, "attention", kvf, "--queries", "0:2"], capture_output=True, text=True)
    check("no inner token", "no token between the first one and the query itself" in r.stdout, r.stdout, r.stderr)
    for value, word in (("5", "needs a range"), ("a:b", "needs a range"), ("3:4x", "needs a range"), ("9:3", "ends before it begins"), ("3:3", "no queries"),
                        ("0:9999", f"{kvf} has the queries 0 to {T - 1}"), (f"{T + 1}:", "has the queries 0 to")):
        refused(f"--queries {value}", 2, ["attention", kvf, "--queries", value], f"--queries {value}" if "range" not in word else "--queries", word)
    refused("no token", 2, ["attention", kvf, "--queries", "2:5", "--tokens", "9:12"], "no query of 2:5 sees a token of 9:12")



def remedies(folder):
    """Heads that were not recorded, and recording them."""
    kvf = run(folder, RUNS[1], "lean,raw:0.2")
    r = subprocess.run([kvfate, "attention", kvf, "--head", "1.4", "--model", os.path.join(folder, "h2o.gguf"), "--record", "--json"], capture_output=True, text=True, errors="replace")
    check("--record", r.returncode == 0 and '"L1H4"' in r.stdout, r.stderr)
    r = subprocess.run([kvfate, "attention", kvf, "--head", "1.4,0.1"], capture_output=True, text=True)
    check("not recorded", r.returncode == 1 and "no blocks of queries and keys of query heads 1.4,0.1 (kvfate run --probes raw:1.4,0.1)" in r.stderr, r.stderr)
    r = subprocess.run([kvfate, "attention", run(folder, RUNS[0], "lean", "plain.kvf")], capture_output=True, text=True)
    check("none", r.returncode == 1 and "any query head (kvfate run --probes raw:1.0)" in r.stderr, r.stderr)
    r = subprocess.run([kvfate, "attention", kvf, os.path.join(folder, "plain.kvf")], capture_output=True, text=True)
    check("of two traces, the one that lacks them is named", r.returncode == 1 and "plain.kvf has no blocks" in r.stderr, r.stderr)
    gguf = model_of(folder, *RUNS[0][:3])[0]
    r = subprocess.run([kvfate, "attention", kvf, os.path.join(folder, "plain.kvf"), "--record", "--model", gguf, "--json"], capture_output=True, text=True, errors="replace")
    t = json.loads(r.stdout)["data"] if r.returncode == 0 else {"trace": [], "head": []}
    check("only that one is recorded again", sorted(set(t["head"])) == ["L0H2", "L1H0"] and len(set(t["trace"])) == 2, r.stderr, sorted(set(zip(t["trace"], t["head"]))))
    gguf, ids = model_of(folder, *RUNS[1][:3])
    for probes, word in (("raw", "names no head"), ("raw:", "names no head"), ("raw:5", "'5' is no head; did you mean"), ("raw:7.0", "'7.0' names layer 7: the model has layers 0 to 1"),
                         ("raw:1.6", "'1.6' names head 6: layer 1 of the model has query heads 0 to 5"), ("raw:L0K2", "'L0K2' names head 2: layer 0 of the model has KV heads 0 to 1"), ("raw:0.1,evict,1.2", "no probe '1.2'")):
        refused(probes, 2, ["run", "-m", gguf, "--ids", ids, "--probes", probes, "-o", os.path.join(folder, "no.kvf")], word)
    for method, word in (("quest:page=4", "quest reads selected pages"), ("h2o:positions=cache", "positions=cache")):
        refused(method, 2, ["run", "-m", gguf, "--ids", ids, "--probes", "raw:0.0", "--method", method, "-B", "12", "-o", os.path.join(folder, "no.kvf")], word)


def tools(folder):
    """compact and repair keep blobs, trim and split say that they leave them out; a run that is resumed has the same bytes."""
    kvf = run(folder, RUNS[1], "lean,raw:0.2")
    want = maps(kvf)[0]["L0H2"]
    copy = os.path.join(folder, "copy.kvf")
    subprocess.run([kvfate, "trace", "compact", kvf, "-o", copy], check=True, stdout=subprocess.DEVNULL)
    check("compact", np.array_equal(maps(copy)[0]["L0H2"], want, equal_nan=True))
    part = os.path.join(folder, "part.kvf")
    r = subprocess.run([kvfate, "trace", "trim", kvf, "--tokens", "0:20", "-o", part], capture_output=True, text=True)
    check("trim", r.returncode == 0 and "without 3 blobs" in r.stdout, r)
    r = subprocess.run([kvfate, "attention", part], capture_output=True, text=True)
    check("of a part", r.returncode == 1 and "no blocks of queries and keys" in r.stderr, r.stderr)
    whole = open(kvf, "rb").read()
    for n in (len(whole) // 3, len(whole) - 300):
        half = os.path.join(folder, "half.kvf")
        with open(half + ".unfinished", "wb") as f:
            f.write(whole[:n])
        run(folder, RUNS[1], "lean,raw:0.2", "half.kvf", more=["--resume"])
        check(f"resume at {n}", open(half, "rb").read() == whole)


def hostile(folder):
    """Blobs of wrong types, sizes, numbers and places."""
    T, D, r = 6, 4, np.random.RandomState(1)
    rows = r.randn(T, D).astype("<f4")
    files = {"q": rows, "k": r.randn(T, D).astype("<f4"), "logit": np.array([.5, 0, -np.inf], "<f4")}
    evict = Column("evict_step", "u32", "kv", np.full((1, 1, T), ALIVE), flags=SNAPSHOT)

    def trace(*blobs, columns=(evict,), **changed):
        lines = []
        for name, place in (("q", "0 0 0 6 4"), ("k", "0 0 0 6 4"), ("logit", "0 0 0 3 0"), *blobs):
            place = changed.get(name + "_place", place)
            if place:
                path = os.path.join(folder, f"{name}{len(lines)}.f32")
                values = changed.get(name + str(len(lines)), changed.get(name, files[name]))
                values.tofile(path)
                lines.append(f"{name} {changed.get(name + '_type', 'f32')} {place} {path}")
        return make(write_kvf, os.path.join(folder, "hostile.kvf"), list(columns), (1, 1, 2, T), blobs=lines)

    whole, meta = maps(trace())
    e = np.where(np.tri(T) > 0, np.exp(.5 * files["q"].astype(float) @ files["k"].astype(float).T), 0)
    check("well-formed", list(whole) == ["L0H0"] and np.nanmax(np.abs(whole["L0H0"][0] - e / e.sum(-1, keepdims=True))) < 1e-7 and "lse_difference" not in meta)
    sink = maps(trace(logit=np.array([.5, 2, 1], "<f4")))[0]["L0H0"][0]
    capped = np.where(np.tri(T) > 0, np.exp(2 * np.tanh(.5 * files["q"].astype(float) @ files["k"].astype(float).T / 2)), 0)
    check("soft cap and sink", np.nanmax(np.abs(sink - capped / (capped.sum(-1, keepdims=True) + np.e))) < 1e-7)
    bad = rows.copy()
    bad[3, 1] = np.nan
    for name, made, words in (
            ("NaN", dict(q=bad), ("finite logits for query 3",)), ("NaN in a key", dict(k=bad), ("finite logits for query 3",)),
            ("infinite", dict(k=np.full((T, D), np.inf, "<f4")), ("finite logits",)),
            ("short", dict(q_place="0 0 0 5 4", q=rows[:5]), ("have 5 of 6 tokens",)), ("late", dict(k_place="0 0 1 6 4"), ("no row for token 0",)),
            ("widths", dict(k_place="0 0 0 6 3", k=rows[:, :3].copy()), ("have 4 numbers", "have 3")), ("type", dict(q_type="u32"), ("must have f32 numbers",)),
            ("rank", dict(q_place="0 0 0 24 0"), ("must have f32 numbers",)), ("terms", dict(logit_place="0 0 0 2 0"), ("must have f32 numbers in the shape [3]",)),
            ("scale", dict(logit=np.array([np.nan, 0, -np.inf], "<f4")), ("finite scale",)), ("cap", dict(logit=np.array([1, -1, -np.inf], "<f4")), ("soft cap",)),
            ("sink", dict(logit=np.array([1, 0, np.inf], "<f4")), ("sink",)), ("no terms", dict(logit_place=None), ("no blocks of queries and keys",)),
            ("no keys", dict(k_place=None), ("no blocks of queries and keys",)), ("twice", dict(blobs=("q", "0 0 2 2 4")), ("different numbers for token 2",))):
        extra = made.pop("blobs", None)
        p = trace(*([extra] if extra else []), **made)
        done = subprocess.run([kvfate, "attention", p], capture_output=True, text=True)
        check(name, done.returncode == 1 and all(w in done.stderr for w in words) and not done.stdout, done.returncode, done.stderr)
    p = trace(columns=(evict, Column("read.count", "u32", "query", np.zeros((1, 2, T)), flags=SNAPSHOT)))
    refused("selected entries", 1, ["attention", p], "read.count")
    gone = maps(trace(columns=(Column("evict_step", "u32", "kv", np.arange(1, T + 1).reshape(1, 1, T), flags=SNAPSHOT),)))[0]["L0H0"]
    check("only its own entry", np.array_equal(np.diag(gone[0]), np.ones(T)) and not np.tril(gone[0], -1).any())


def main():
    with tempfile.TemporaryDirectory() as folder:
        for case in RUNS:
            against_dense(folder, case)
        blocks(folder)
        precisions(folder)
        boxes(folder)
        remedies(folder)
        tools(folder)
        hostile(folder)
    finish()


main()
