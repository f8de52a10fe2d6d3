#!/usr/bin/env python3
"""User-defined columns: names that begin with x- work in every command, other unknown names are
rejected when a trace is written, and traces of earlier versions with such names can be read and
copied."""
import json
import subprocess

import numpy as np

from harness import Suite
from sample_trace import H, L, T, TEXTS, Column, columns, kvfate, make, sample
from maker import table

s = Suite()
OWN = "x-lab.surprise"
SHAPE = (L, H, 4, T)
x = sample(s, "x.kvf")
without = make(s.write_kvf, s.path("without.kvf"), [c for c in columns() if c.name != OWN], SHAPE, {"run": {"prompt_tokens": 30}, "seed": 5},
               [t.decode() for t in TEXTS])
older = make(s.write_kvf, s.path("older.kvf"), [*columns(), Column("surprise", "f64", "kv", np.arange(L * H * T).reshape(L, H, T))], SHAPE, any_names=True)


def copies(path, name):
    """Returns the trace and the output of every command that copies it."""
    made = {}
    for command, *more in (["repair"], ["compact"], ["trim", "--tokens", "5:20"], ["split", "--parts", "2"], ["cat"]):
        out = s.path(f"{name}-{command}{'%d' if command == 'split' else ''}.kvf")
        of = [s.path(f"{name}-split{i}.kvf") for i in (1, 2)] if command == "cat" else [path]
        s.accepted(f"{name}: {command}", ["trace", command, *of, *more, "-o", out])
        made[command] = out.replace("%d", "1")
    return made


# ---- x- works everywhere
own = next(c for c in columns() if c.name == OWN).values
for command, path in copies(x, "own").items():
    a, b = {"trim": (5, 20), "split": (0, 20)}.get(command, (0, T))
    got = kvfate.open(path)
    s.check(f"{command} keeps the values", all(np.array_equal(got[OWN][l], own[l, :, a:b]) for l in range(L)))
    s.accepted(f"what {command} makes verifies", ["trace", "verify", "--full", path])
s.check("info names it", OWN in s.run(["trace", "info", x]).stdout.decode())
s.check("trace info --json names it", OWN in [c["name"] for c in json.loads(s.run(["trace", "info", "--json", x]).stdout)["columns"]])
for argv in (["survival", "--criterion", "top64"], ["size"], ["tokens"]):
    s.check(f"{argv[0]} is not changed by it", table(s.exe, *argv, x)[0] == table(s.exe, *argv, without)[0])

# ---- other names cannot be written, but can be read
for name in ("surprise", "X-lab.surprise", "nll.mine", "mass", "x_lab"):
    lines = f"meta {{}}\nshape {L} {H} 4 0\ncolumn {name} f32 kv token 0 0 /dev/null\n"
    r = subprocess.run([s.write_kvf, s.path("none.kvf")], input=lines, text=True, capture_output=True)
    s.check(f"{name} is refused", r.returncode == 1 and f"column {name}: " in r.stderr and "begin with x-" in r.stderr, r)
for command, path in copies(older, "older").items():
    s.check(f"{command} keeps the name", "surprise" in kvfate.open(path).columns)
s.accepted("an older trace verifies", ["trace", "verify", "--full", older])
s.accepted("an older trace is analysed", ["survival", "--criterion", "top64", older])
s.finish()
