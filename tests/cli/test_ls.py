#!/usr/bin/env python3
"""kvfate trace ls: its table compared with the headers of the traces, conditions compared with equal ones
in Python, and all errors."""
import fnmatch
import json
import operator
import os
import random
import sys

import numpy as np

from harness import Suite

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "analyze"))
from maker import Column, make, table  # noqa: E402

s = Suite()
L, H, G = 2, 2, 4
chance = random.Random(11)
folder = s.path("many")
os.mkdir(folder)


def header(method, budget, model, seed, temperature, prompt):
    return {"model": {"name": model, "query_heads": G, "kv_heads": H}, "method": {"name": method, "budget": budget},
            "run": {"seed": seed, "temperature": temperature, "probes": "lean", "prompt_tokens": prompt}}


made = {}  # path: (header, tokens)
for i in range(40):
    T = chance.randrange(3, 9)
    h = header(chance.choice(["trimkv", "full", "h2o", "dbtrimkv"]), chance.choice([0, 16, 64, 128, 4096]),
               chance.choice(["SmolLM2 135M", "Qwen3 4B", "stories"]), chance.randrange(4), chance.choice([0, 0.8]), T - 1)
    if i % 9 == 4:
        del h["method"]["budget"], h["run"]["seed"]
    path = make(s.write_kvf, f"{folder}/t{i:02}.kvf", [Column("tokens.id", "i32", "run", np.arange(T) + i // 2), Column("nll", "f32", "run", np.ones(T))],
                (L, H, G, T), h)
    made[path] = h, T
make(s.write_kvf, f"{folder}/.hidden.kvf", [], (L, H, G, 1))

# ---- the table

t, meta = table(s.exe, "trace", "ls", folder)
s.check("traces", t["trace"] == sorted(made))
for k, path in enumerate(t["trace"]):
    h, T = made[path]
    want = {"state": "closed", "model": h["model"]["name"], "method": h["method"]["name"], "budget": h["method"].get("budget", -1), "tokens": T,
            "prompt_tokens": T - 1, "seed": h["run"].get("seed", -1), "layers": L, "query_heads": G, "kv_heads": H, "probes": "lean", "columns": 2,
            "bytes": os.path.getsize(path)}
    got = {key: t[key][k] for key in want}
    s.check(path, got == want, got, want)
ids = [tuple((np.arange(made[p][1] - 1) + int(p[-6:-4]) // 2).tolist()) for p in t["trace"]]  # of the prompts
s.check("documents", all((a == b) == (x == y) for a, x in zip(ids, t["document"]) for b, y in zip(ids, t["document"])))
s.check("some share a document", len(set(ids)) < len(ids))

# ---- conditions, compared with equal ones in Python

SIGNS = {"=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def holds(h, T, key, sign, value):
    if key in ("method", "model"):
        return (fnmatch.fnmatchcase(h[key]["name"], value)) == (sign == "=")
    if "." in key:
        said = h[key.split(".")[0]].get(key.split(".")[1])
    else:
        said = {"tokens": T, "budget": h["method"].get("budget"), "seed": h["run"].get("seed")}[key]
    return said is not None and SIGNS[sign](said, value)


seen = set()
for i in range(120):
    conditions = []
    for _ in range(chance.randrange(1, 4)):
        key = chance.choice(["method", "model", "tokens", "budget", "seed", "run.temperature", "method.budget", "run.seed", "run.none"])
        sign = chance.choice(["=", "!="] if key in ("method", "model") else list(SIGNS))
        value = {"method": ["trimkv", "*trimkv", "h2?", "none"], "model": ["SmolLM2 135M", "Q*", "*"], "tokens": [4, 6], "budget": [16, 128, 4096],
                 "seed": [0, 2], "run.temperature": [0, 0.8], "method.budget": [64], "run.seed": [1], "run.none": [1]}[key]
        conditions.append((key, sign, chance.choice(value)))
    text = " ".join(f'{k}{x}"{v}"' if isinstance(v, str) else f"{k}{x}{v}" for k, x, v in conditions)
    want = [p for p in sorted(made) if all(holds(*made[p], *c) for c in conditions)]
    r = s.run(["trace", "ls", folder, "--where", text.replace("4096", "4k"), "--paths"])
    s.check(text, r.returncode == 0 and r.stdout.decode().split() == want, r, want)
    seen.add(min(len(want), 2))
s.check("conditions of all kinds", seen == {0, 1, 2})

# ---- listed traces and the format

r = s.run(["trace", "ls", folder, "-w", "method=h2o seed>=2"])
lines = r.stdout.decode().splitlines()
n = sum(h["method"]["name"] == "h2o" and h["run"].get("seed", -1) >= 2 for h, _ in made.values())
s.check("for people", lines[0].split() == ["state", "model", "method", "budget", "tokens", "bytes", "trace"] and lines[-1] == f"{n} of 40 traces"
        and len(lines) == n + 2, r)
chosen = s.file("chosen", "\n".join(sorted(made)[3:7]).encode() + b"\n")
r = s.run(["trace", "ls", "@" + chosen, "--paths"])
s.check("a list", r.stdout.decode().split() == sorted(made)[3:7], r)
r = s.run(["trace", "ls", "--paths"], cwd=folder)
s.check("the current folder", r.stdout.decode().split() == ["./" + os.path.basename(p) for p in sorted(made)], r)
for ending in ("tsv", "csv", "npz"):
    r = s.run(["trace", "ls", folder, "-o", s.path("x." + ending)])
    s.check(ending, r.returncode == 0 and os.path.getsize(s.path("x." + ending)) > 1000, r)
r = s.run(["trace", "ls", folder, "-w", "method=h2o", "-o", s.path("x.json")])
s.check("the conditions are told", json.load(open(s.path("x.json")))["meta"]["where"] == "method=h2o", r)

first = sorted(made)[0]
cut = make(s.write_kvf, s.path("cut.kvf"), [Column("nll", "f32", "run", np.ones(3))], (L, H, G, 3), unclosed=True)
empty = make(s.write_kvf, s.path("empty.kvf"), [], (L, H, G, 0))
text = s.file("text.kvf", b"no trace")
odd = make(s.write_kvf, s.path("a\x1b[31m\nb.kvf"), [], (L, H, G, 1), header("full", 0, "a\tb\x1b", 0, 0, 0))
r = s.run(["trace", "ls", first, cut, empty, text, odd, "--json"])
t = json.loads(r.stdout)["data"]
s.check("states", t["state"] == ["closed", "unfinished", "empty", "unreadable", "closed"] and r.returncode == 3, r)
s.check("it is told", r.stderr.decode().count("\n") == 1 and "text.kvf" in r.stderr.decode(), r)
s.check("what is not known", t["tokens"][3] == -1 and t["bytes"][3] == 8 and t["budget"][1] == -1 and t["method"][1] == "")
r = s.run(["trace", "ls", odd])
s.check("nothing steers a terminal", b"\x1b" not in r.stdout and r.stdout.count(b"\n") == 3, r)
r = s.run(["trace", "ls", text, first, "-w", "state=closed", "--paths"])
s.check("files that are no traces do not hide the others", r.stdout.decode().split() == [first] and r.returncode == 3, r)

# An unclosed trace is listed once, by its final name.
left = s.path("left")
os.mkdir(left)
make(s.write_kvf, f"{left}/a.kvf", [Column("nll", "f32", "run", np.ones(3))], (L, H, G, 3))
make(s.write_kvf, f"{left}/b.kvf", [Column("nll", "f32", "run", np.ones(3))], (L, H, G, 3), unclosed=True)
names = sorted(os.listdir(left))
if "b.kvf" in names:  # the maker writes it to its final name
    os.rename(f"{left}/b.kvf", f"{left}/b.kvf.unfinished")
t = table(s.exe, "trace", "ls", left)[0]
s.check("what is not closed is listed", list(zip(t["trace"], t["state"])) == [(f"{left}/a.kvf", "closed"), (f"{left}/b.kvf.unfinished", "unfinished")], t["trace"], t["state"], names)
os.link(f"{left}/b.kvf.unfinished", f"{left}/a.kvf.unfinished")
s.check("beside a closed one it is not", table(s.exe, "trace", "ls", left)[0]["trace"] == [f"{left}/a.kvf", f"{left}/b.kvf.unfinished"])

# ---- the same conditions select the traces of a corpus


def documents(*argv):
    return max(table(s.exe, "corpus", "eviction", *argv)[0]["documents"])


evict = s.path("evict")
os.mkdir(evict)
for i in range(6):
    ids = Column("tokens.id", "i32", "run", np.arange(4) + 10 * i)
    make(s.write_kvf, f"{evict}/{i}.kvf", [ids, Column("evict_step", "u32", "kv", np.full((L, H, 4), 2))], (L, H, G, 4),
         header("h2o", 16 * (i + 1), "m", 0, 0, 4))
s.check("a corpus of all", documents(evict) == 6)
s.check("a corpus of some", documents(evict, "--where", "budget<=48") == 3)
s.check("and the list of them", s.run(["corpus", "eviction", evict, "-w", "budget<=48", "--json"]).stdout.split(b'"meta"')[0]
        == s.run(["corpus", "eviction", *(f"{evict}/{i}.kvf" for i in range(3)), "--json"]).stdout.split(b'"meta"')[0])
s.refused("a corpus of none", ["corpus", "eviction", evict, "--where", "budget>1000"], 1, "no trace meets --where")

# ---- rejections

for name, text, words in (("a key that is none", "metod=h2o", "did you mean 'method'"), ("a text in order", "method<h2o", "= or !="),
                          ("a number that is none", "budget=many", "is a number"), ("blanks", "budget = 4", "not a condition"),
                          ("nothing", "", "needs a condition"), ("no value", "budget=", "has no value"), ("no key", "=4", "not a condition"),
                          ("an open quote", 'model="a', "quote"), ("no object", ".seed=4", ".seed"), ("an order of a text", "run.probes<a", "no number"),
                          ("too long", "a" * 80 + "=1", "not a condition"), ("a long value", "model=" + "a" * 300, "longer"),
                          ("too many", "tokens>1 " * 40, "more than 32")):
    s.refused(name, ["trace", "ls", folder, "--where", text], 2, words)
s.refused("names and a table", ["trace", "ls", folder, "--paths", "--json"], 2, "standard output")
s.refused("over a trace", ["trace", "ls", first, "-o", first], 2, "")
s.refused("no such folder", ["trace", "ls", "@" + s.path("none")], 1, "none")
s.finish()
