#!/usr/bin/env python3
"""Budgets per head (--head-budgets): every head caches exactly its budget, decisions equal those of
an override for each head, and budgets follow from published tables as in a second implementation of
their rules."""
import json
import os
import random
import subprocess
import sys

import numpy as np

from harness import GOLDEN_TOOLS, Suite
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
import kvfate  # noqa: E402
from kvfate import gates as converter  # noqa: E402

s = Suite()
rng = random.Random(11)
ALIVE = 0xFFFFFFFF


def model(name, layers, heads, kv_heads):
    path = s.path(name + ".gguf")
    subprocess.run([sys.executable, os.path.join(GOLDEN_TOOLS, "gen_tiny.py"), "--layers", str(layers), "--heads", str(heads), "--kv-heads", str(kv_heads),
                    "--head-dim", "2", "--dim", "8", "--ffn", "8", "--seed", "3", "-o", path], check=True)
    return path


SMALL, WIDE = model("small", 3, 4, 2), model("wide", 32, 32, 8)  # WIDE: layers and heads of Llama-3-8B and Mistral-7B
IDS = [rng.randrange(3, 300) for _ in range(120)]


def table(name, value):
    return s.file(name, value if isinstance(value, bytes) else json.dumps(value).encode())


def argv(gguf, method, prompt, n, *more, out="x.kvf"):
    ids = s.file("ids.txt", " ".join(map(str, IDS[:prompt])).encode())
    return ["run", "-m", gguf, "--ids", ids, "-n", str(n + 1), "--ignore-eos", "--method", method, *map(str, more), "--overwrite", "-o", s.path(out)]


def run(gguf, method, prompt, n, *more, out="x.kvf"):
    """Runs a method. Returns the evict steps [layer, head, token], the run header and stderr."""
    r = s.accepted(method, argv(gguf, method, prompt, n, *more, out=out))
    with kvfate.open(s.path(out)) as t:
        heads = [t.n_heads(layer, "kv") for layer in range(len(t.heads))]
        evict = np.array([[t["evict_step"][layer, h] for h in range(heads[layer])] for layer in range(len(heads))], np.int64)
        return evict, t.meta, r.stderr.decode()


def cached(evict):
    """Returns the entries that each query sees, its own included: [layer, head, step]."""
    step = np.arange(evict.shape[2])
    return ((evict[:, :, None, :] > step[:, None]) & (step <= step[:, None])).sum(-1)


def exact(name, evict, budgets, prompt):
    """Each query after the prompt sees min(t + 1, budget) entries of a head."""
    seen = cached(evict)
    want = np.minimum(np.arange(seen.shape[2]) + 1, np.array(budgets)[:, :, None])
    want[:, :, :prompt] = np.arange(prompt) + 1
    s.check(f"{name}: each head caches its budget", seen.shape[:2] == np.shape(budgets) and (seen == want).all(), np.argwhere(seen != want)[:5])


# ---- budgets are exact, and decisions equal those of a method per head
BUDGETS = [[6, 31], [12, 7], [50, 20]]
MEAN = sum(map(sum, BUDGETS)) // 6
entries = table("entries.json", {"unit": "entries", "budgets": BUDGETS})
given = {"snapkv": "window=5,recent=5,sinks=0", "h2o": "sinks=1,recent=3", "keydiff": "recent=2", "knorm": "sinks=1", "window": "sinks=4,recent=1",
         "random": "seed=5", "morphkv": "window=4,recent=4", "cake": "window=4,recent=4"}
for name, options in given.items():
    method = f"{name}:allocation=file,{options}"
    for prompt, n in ((40, 30), (3, 60)):
        evict, meta, said = run(SMALL, method, prompt, n, "-B", MEAN, "--head-budgets", entries, "-t", "1")
        exact(f"{name} {prompt}", evict, BUDGETS, prompt)
        overrides = [x for layer in range(3) for h in range(2)
                     for x in ("--override", f"L{layer}K{h}={name}:allocation=uniform,budget={BUDGETS[layer][h]},{options}")]
        apart, _, _ = run(SMALL, f"{name}:allocation=uniform,{options}", prompt, n, "-B", MEAN, *overrides, out="apart.kvf")
        s.check(f"{name} {prompt}: as an override for each head", (evict == apart).all(), np.argwhere(evict != apart)[:5])
        first = open(s.path("x.kvf"), "rb").read()
        run(SMALL, method, prompt, n, "-B", MEAN, "--head-budgets", entries, "-t", "3")
        s.check(f"{name} {prompt}: equal bytes with three threads", open(s.path("x.kvf"), "rb").read() == first)

# ---- the note and the header
evict, meta, said = run(SMALL, "snapkv:allocation=file,window=5", 40, 30, "-B", MEAN, "--head-budgets", entries)
s.check("a note", f"6 heads, {sum(map(sum, BUDGETS))} entries in all, 21.00 per head on average, at least 6 (L0K0), at most 50 (L2K0)" in said, said)
s.check("the header", meta["method"]["head_budgets"]["entries"] == sum(BUDGETS, []) and meta["method"]["head_budgets"]["form"] == "entries"
        and meta["method"]["budget"] == MEAN and len(meta["method"]["head_budgets"]["hash"]) == 16, meta["method"])
got = json.loads(s.run(["size", "--as", "kv-size", s.path("x.kvf"), "--json"]).stdout)["data"]
end = [(b, n) for b, n, at in zip(got["head_budget"], got["entries"], got["at"]) if at == "end"]
s.check("kv-size has the budgets", end == [(b, b) for b in (*sum(BUDGETS, []), sum(map(sum, BUDGETS)))], end)
for name in ("occupancy", "eviction"):
    got = json.loads(s.run([*s.words_of(name), s.path("x.kvf"), "--json"]).stdout)["data"]
    s.check(f"{name} has the budgets", dict(zip(got["head"], got["head_budget"])) == {f"L{i // 2}K{i % 2}": b for i, b in enumerate(sum(BUDGETS, []))}, str(got)[:300])

run(SMALL, "snapkv:window=5", 40, 30, "-B", MEAN, out="even.kvf")
for name in ("kv-size", "occupancy"):
    got = json.loads(s.accepted(f"{name} with another run", [*s.words_of(name), s.path("x.kvf"), s.path("even.kvf"), "--json"]).stdout)["data"]
    s.check(f"{name}: budgets of the run", "head_budget" not in got and set(got["budget"]) == {MEAN}, list(got))
    got = json.loads(s.accepted(f"{name} twice", [*s.words_of(name), s.path("x.kvf"), s.path("apart.kvf"), s.path("x.kvf"), "--json"]).stdout)["data"]
    s.check(f"{name}: not in all", "head_budget" not in got, list(got))
    got = json.loads(s.accepted(f"{name} of two tables", [*s.words_of(name), s.path("x.kvf"), s.path("x.kvf"), "--json"]).stdout)["data"]
    s.check(f"{name}: budgets of both", len(got["head_budget"]) % 2 == 0 and got["head_budget"][: len(got["head_budget"]) // 2] * 2 == got["head_budget"], list(got))
for argv_ in (["size", "--as", "kv-size", s.path("x.kvf"), "--style", "value=head_budget"], ["size", s.path("x.kvf"), "--figure", "occupancy-curves", "--style", "by=head"],
              ["eviction", s.path("x.kvf")]):
    r = s.accepted("a figure", [*argv_, "-o", s.path("f.svg")])
# ---- fractions, and heads of overrides
parts = [[0.25, 1.75], [0.5, 0.55], [2.0, 1.0]]
f = table("parts.json", {"unit": "fraction", "budgets": parts})
want = [[round(x * 30) for x in row] for row in parts]
evict, meta, _ = run(SMALL, "knorm:allocation=file", 40, 30, "-B", 30, "--head-budgets", f)
exact("fractions", evict, want, 40)
evict, meta, said = run(SMALL, "knorm", 40, 30, "-B", 10, "--override", "L1K*=knorm:allocation=file,budget=30", "--head-budgets", f)
exact("a table for some heads", evict, [[10, 10], want[1], [10, 10]], 40)
s.check("the note counts its heads", "2 heads, 31 entries in all" in said, said)
got = json.loads(s.run(["size", "--as", "kv-size", s.path("x.kvf"), "--json"]).stdout)["data"]["head_budget"]
s.check("budgets of both methods", got[::5] == [10, 10, *want[1], 10, 10, 71], got)

# ---- any number of overrides
many = [x for layer in range(32) for h in range(8) for x in ("--override", f"L{layer}K{h}=knorm:budget={4 + (7 * layer + h) % 23}")]
evict, meta, _ = run(WIDE, "knorm", 30, 5, "-B", 9, *many)
exact("256 overrides", evict, [[4 + (7 * layer + h) % 23 for h in range(8)] for layer in range(32)], 30)

# ---- HeadKV
scores = {f"{layer}-{h}": [max(0.0, rng.gauss(0.0, 0.2)) for _ in range(3)] for layer in range(32) for h in range(32)}
f = table("headkv.json", scores)
for budget, beta, temp in ((40, None, None), (64, 1.01, 1), (48, 2, 1), (40, 1.2, 0.5)):
    window = budget // 4  # min(32, B / 4)
    mean = [sum(x) / len(x) for x in scores.values()]
    x = np.power(np.array(mean) / sum(mean), 1 if temp is None else temp)
    C = budget - window
    q = C // (1.01 if beta is None else beta)
    want = (np.round(x / x.sum() * (q * 32 * 32) + C - q).astype(int) + window).reshape(32, 32)
    options = "".join(f",{k}={v}" for k, v in (("beta", beta), ("temp", temp)) if v is not None)
    evict, meta, said = run(WIDE, "snapkv:group=none,allocation=file" + options, 70, 6, "-B", budget, "--head-budgets", f, "-t", "2")
    s.check(f"HeadKV {budget} {beta} {temp}", meta["method"]["head_budgets"]["entries"] == want.reshape(-1).tolist(), want[:2], meta["method"]["head_budgets"])
    s.check("its parameters are recorded", meta["method"]["head_budgets"]["beta"] == (beta or 1.01) and meta["method"]["head_budgets"]["temp"] == (temp or 1))
    exact(f"HeadKV {budget}", evict, want, 70)
s.refused("HeadKV per KV head", argv(WIDE, "snapkv:allocation=file", 70, 6, "-B", 40, "--head-budgets", f), 2, "32 layers of 32 heads", "32 layers of 8 heads", "group=none")
s.refused("HeadKV of another model", argv(SMALL, "snapkv:group=none,allocation=file", 70, 6, "-B", 40, "--head-budgets", f), 2, "32 layers of 32 heads", "3 layers of 4")

# ---- RazorAttention
kept = {layer: sorted(rng.sample(range(8), rng.choice((1, 2, 3)))) for layer in rng.sample(range(32), 9)}
want = [[1 << 24 if h in kept.get(layer, ()) else 20 for h in range(8)] for layer in range(32)]
halves = {"prefix_matching": {k: v[:1] for k, v in kept.items()}, "copying": {k: v[1:] for k, v in kept.items() if v[1:]}}
for name, value in (("golden-stick", kept), ("modelslim", halves)):
    f = table(name + ".json", value)
    evict, meta, said = run(WIDE, "window:allocation=file,sinks=4,recent=16", 60, 6, "-B", 20, "--head-budgets", f)
    exact(name, evict, want, 60)
    s.check(f"{name}: heads without a limit", f"256 heads, {sum(map(len, kept.values()))} of them without a limit" in said, said)
    for layer in range(32):
        for h in range(8):
            last = sorted(np.flatnonzero(evict[layer][h] == ALIVE))
            s.check(f"{name} L{layer}K{h}", last == (list(range(66)) if h in kept.get(layer, ()) else [0, 1, 2, 3, *range(50, 66)]), last)
s.refused("RazorAttention of a larger model", argv(SMALL, "window:allocation=file", 60, 6, "-B", 20, "--head-budgets", f), 2, "3 layers of 2 KV heads", "another model")
s.refused("RazorAttention and query heads", argv(WIDE, "snapkv:group=none,allocation=file", 60, 6, "-B", 20, "--head-budgets", f), 2, "group=none")

# ---- LU-KV
curves = np.random.RandomState(5).uniform(0, 1, (99, 32, 8)).cumsum(0)
curves /= curves[-1] * 1.001
np.save(s.path("curve.npy"), curves)
r = s.accepted("convert curves", ["gates", "convert", s.path("curve.npy")])
f = s.path("curve.safetensors")
s.refused("curves as published", argv(WIDE, "knorm:allocation=file", 60, 6, "-B", 20, "--head-budgets", s.path("curve.npy")), 1, "kvfate gates convert")
for prompt, budget in ((100, 50), (90, 27), (50, 49), (30, 40)):
    if prompt > budget:
        pruned = curves.astype(np.float32)[max(0, min(98, round((1 - budget / prompt) * 100) - 1))]
        ideal = (np.float32(1) - pruned) * np.float32(prompt)
        want = np.floor(ideal).astype(int)
        for layer in range(32):
            left = max(8, min(8 * prompt, round(float(ideal[layer].astype(np.float64).sum())))) - want[layer].sum()
            order = sorted(range(8), key=lambda h: -(ideal[layer][h] - np.floor(ideal[layer][h])))
            want[layer][order[:max(0, left)]] += 1
        want = np.clip(want, 2, prompt)  # a sink, and the newcomer
    else:
        want = np.full((32, 8), budget)
    evict, meta, _ = run(WIDE, "knorm:allocation=file,sinks=1", prompt, 15, "-B", budget, "--head-budgets", f)
    s.check(f"LU-KV {prompt} {budget}", meta["method"]["head_budgets"]["entries"] == want.reshape(-1).tolist(), want[:2], meta["method"]["head_budgets"])
    exact(f"LU-KV {prompt} {budget}", evict, want, prompt)
s.refused("LU-KV in chunks", argv(WIDE, "knorm:allocation=file,chunk=16", 60, 6, "-B", 20, "--head-budgets", f), 2, "chunk")
s.refused("LU-KV of another model", argv(SMALL, "knorm:allocation=file", 60, 6, "-B", 20, "--head-budgets", f), 2, "32 layers of 8 heads", "3 layers of 2")

# ---- DuoAttention
alpha = [[rng.choice((rng.random(), 1.0, -1e-4)) for _ in range(8)] for _ in range(32)]
tsv = s.file("full_attention_heads.tsv", "".join("\t".join(f"{x:.18e}" for x in row) + "\n" for row in alpha).encode())
s.accepted("convert alphas", ["gates", "convert", tsv])
clipped = np.clip(np.array(alpha), 0, 1).astype(np.float32).astype(np.float64)
for sparsity in (0.5, 0.75):
    evict, meta, _ = run(WIDE, f"duo:sparsity={sparsity},sinks=3,recent=9", 50, 6, "--gates", s.path("full_attention_heads.safetensors"))
    full = clipped >= np.quantile(clipped, sparsity)
    seen = cached(evict)
    want = np.where(full[:, :, None], np.arange(56) + 1, np.minimum(np.arange(56) + 1, 12))
    s.check(f"DuoAttention {sparsity}", (seen == want).all(), np.argwhere(seen != want)[:5])
s.refused("alphas are no budgets", argv(WIDE, "knorm:allocation=file", 60, 6, "-B", 20, "--head-budgets", tsv), 1, "--gates")
for name, text, said in (("ragged", b"1\t0\n1\n", "line 2"), ("words", b"1\tx\n", "'x'"), ("nan", b"nan\t1\n", "'nan'"), ("empty", b"", "not a table")):
    s.refused(f"{name} alphas", ["gates", "convert", s.file(name + ".tsv", text)], 1, said)
for name, x, said in (("flat", np.zeros(9), "[99, layers, KV heads]"), ("whole", np.zeros((99, 2, 2), int), "floats"), ("high", np.full((99, 2, 2), 1.5), "outside"),
                      ("lost", np.full((99, 2, 2), np.nan), "outside")):
    np.save(s.path(name + ".npy"), x)
    s.refused(f"{name} curves", ["gates", "convert", s.path(name + ".npy")], 1, said)
s.refused("curves to the standard output", ["gates", "convert", s.path("curve.npy"), "-o", "-"], 2, "-o -", "standard output")
s.check("no file of the name -", not os.path.exists("-"))
s.refused("damaged curves", ["gates", "convert", s.file("cut.npy", open(s.path("curve.npy"), "rb").read()[:4000])], 1, "cut.npy")
np.save(s.path("object.npy"), np.array([{}], dtype=object), allow_pickle=True)
s.refused("objects", ["gates", "convert", s.path("object.npy")], 1, "object.npy")

# ---- safetensors of one's own
header = {"__metadata__": {"kvfate.unit": "entries"}, "budgets": {"dtype": "F32", "shape": [3, 2], "data_offsets": [0, 24]}}
head = json.dumps(header).encode()
head += b" " * (-len(head) % 8)
f = table("own.safetensors", len(head).to_bytes(8, "little") + head + np.array(BUDGETS, "<f4").tobytes())
evict, meta, _ = run(SMALL, "knorm:allocation=file", 40, 30, "-B", MEAN, "--head-budgets", f)
exact("safetensors", evict, BUDGETS, 40)

# ---- eval and many prompts share the tables
text = s.file("text.txt", " ".join(f"word{rng.randrange(99)}" for _ in range(3000)).encode())
for names in ("knorm:allocation=file", "knorm:allocation=file,knorm"):
    r = s.accepted("eval", ["eval", "-m", s.model(0), "--data", text, "--methods", names, "--budgets", "20", "--head-budgets",
                            table("tiny.json", {"unit": "entries", "budgets": [[30, 10], [15, 25]]}), "--docs", "1", "--prompt-tokens", "60",
                            "--score-tokens", "20", "-o", s.path("eval.json"), "--state", s.path(f"state-{len(names)}.tsv")])
    got = json.load(open(s.path("eval.json")))["data"]
    s.check("entries on average", [round(x, 9) for x in got["kv_mean"]] == [20] * (1 + names.count(",")), got)
    s.check("the table of each row", [len(x) for x in got["head_budgets"]] == [16, 0][:1 + names.count(",")], got)
line = s.file("lines.jsonl", b'{"id": "a", "text": "one two three four five six seven eight nine ten", "n": 20}\n')
r = s.accepted("jsonl", ["generate", "-m", s.model(0), "--jsonl", line, "--methods", "knorm:allocation=file,knorm", "--budgets", "20", "--head-budgets",
                         s.path("tiny.json"), "--ignore-eos"])
s.check("jsonl: entries per head", [x["entries"] for x in map(json.loads, r.stdout.decode().splitlines())] == [20, 20], r.stdout)

# ---- a budget in percent: the entries of the prompt are compared with the mean of the table
part = table("part.json", {"unit": "entries", "budgets": [[18, 24], [20, 22], [21, 21]]})
evict = run(SMALL, "snapkv:allocation=file", 63, 6, "-B", "33.4%", "--head-budgets", part)[0]
exact("entries and a percentage", evict, [[18, 24], [20, 22], [21, 21]], 63)
s.refused("another percentage", argv(SMALL, "snapkv:allocation=file", 63, 6, "-B", "50%", "--head-budgets", part), 2, "states 21", "50% is 31 entries here", "give the budget 21")
s.refused("another percentage in an override", argv(SMALL, "h2o", 63, 6, "-B", "21", "--override", "L0K0=snapkv:allocation=file,budget=50%", "--head-budgets", part), 2, "50% is 31 entries here")
tight = table("tight.json", {"unit": "fraction", "budgets": [[0.2, 1], [1, 1], [1, 1]]})
s.refused("too few entries of a percentage", argv(SMALL, "knorm:allocation=file,sinks=6", 63, 6, "-B", "33.4%", "--head-budgets", tight), 2, "layer 0, head 0 gets 4 entries")
asked = s.file("asked.jsonl", json.dumps({"ids": [1 + i % 9 for i in range(63)], "n": 2}).encode())
for option in (["--method", "snapkv:allocation=file", "-B", "50%"], ["--methods", "snapkv:allocation=file", "--budgets", "50%"]):
    r = s.run(["generate", "-m", SMALL, "--jsonl", asked, *option, "--head-budgets", part])
    s.check("a line", r.returncode == 1 and b"line 1" in r.stderr and b"50% is 31 entries here" in r.stderr, r.stderr)

few = table("few.json", {"unit": "fraction", "budgets": [[0.05, 1], [1, 1]]})  # a budget for all tokens does not mean the full cache
r = s.accepted("jsonl, a large budget", ["generate", "-m", s.model(0), "--jsonl", line, "--methods", "knorm:allocation=file", "--budgets", "200", "--head-budgets", few,
                                         "--ignore-eos"])
x = json.loads(r.stdout)
s.check("jsonl: one head is cut", x["entries"] == (10 + 3 * (x["prompt_tokens"] + 19)) / 4, x)

# ---- rejected by name
bad = [("no table", "knorm:allocation=file", ["-B", 20], 2, "--head-budgets FILE"),
       ("no method", "knorm", ["-B", 20, "--head-budgets", entries], 2, "allocation=file"),
       ("another mean", "knorm:allocation=file", ["-B", 20, "--head-budgets", entries], 2, "give the budget 21"),
       ("no budget", "knorm:allocation=file", ["--head-budgets", entries], 2, "--budget"),
       ("no file", "knorm:allocation=file", ["-B", 21, "--head-budgets", "/nowhere/t.json"], 1, "/nowhere/t.json"),
       ("too small", "knorm:allocation=file,sinks=6", ["-B", 21, "--head-budgets", entries], 2, "layer 0, head 0 gets 6 entries"),
       ("layers", "tova:allocation=file", ["-B", 21, "--head-budgets", entries], 2, "allocation"),
       ("no eviction", "full:allocation=file", ["--head-budgets", entries], 2, "allocation=file"),
       ("beta", "knorm:allocation=file,beta=2", ["-B", 21, "--head-budgets", entries], 2, "beta"),
       ("temp elsewhere", "knorm:temp=2", ["-B", 21], 2, "temp"),
       ("another shape", "knorm:allocation=file", ["-B", 20, "--head-budgets", s.path("tiny.json")], 2, "2 layers of 2 heads", "3 layers of 2 heads"),
       ("zero", "knorm:allocation=file", ["-B", 1, "--head-budgets", table("zero.json", {"unit": "entries", "budgets": [[1, 0]]})], 1, "layer 0, head 1"),
       ("an output", "knorm:allocation=file", ["-B", 21, "--head-budgets", s.path("x.kvf")], 1, "x.kvf")]
for name, method, more, code, *words in bad:
    s.refused(name, argv(SMALL, method, 40, 5, *more), code, *words)
s.refused("eval without a method", ["eval", "-m", s.model(0), "--data", text, "--methods", "knorm", "--budgets", "20", "--head-budgets", entries, "--docs", "1",
                                    "--prompt-tokens", "60", "--score-tokens", "20"], 2, "allocation=file")
s.refused("tune", ["tune", "-m", s.model(0), "--data", text, "--method", "gkv:allocation=file", "-B", "20", "-o", s.path("t.gguf")], 2, "allocation=file")
s.finish()
