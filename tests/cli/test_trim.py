#!/usr/bin/env python3
"""kvfate trace trim: kept values compared by the package kvfate, and analyses of the piece with the
numbers of the complete trace."""
import json
import math
import os

from harness import Suite
from sample_trace import L, T, differences, digest, kvfate, sample

s = Suite()
x, out = sample(s, "x.kvf"), s.path("out.kvf")

CASES = [  # --head, --tokens, kept heads, renamed columns (None: removed)
    ("L1-2K*", None, (0, T), {1: [0, 1], 2: [0, 1]}, {"received.L1H3.6": "received.L0H3.6", "received.L2H0.21": "received.L1H0.21"}),
    ("L2K1,L0K0", None, (0, T), {0: [0], 2: [1]}, {"received.L1H3.6": None, "received.L2H0.21": None}),
    ("L1K1,L2K0", None, (0, T), {1: [1], 2: [0]}, {"received.L1H3.6": "received.L0H1.6", "received.L2H0.21": "received.L1H0.21"}),
    (None, "0:25", (0, 25), None, {}),
    (None, "10:30", (10, 30), None, {"received.L1H3.6": "received.L1H3.-4", "received.L2H0.21": "received.L2H0.11"}),
    (None, "39:", (39, T), None, {"received.L1H3.6": "received.L1H3.-33", "received.L2H0.21": "received.L2H0.-18"}),
    ("1.*", ":12", (0, 12), {1: [0, 1]}, {"received.L1H3.6": "received.L0H3.6", "received.L2H0.21": None}),
]
for heads, tokens, (a, b), kept, named in CASES:
    how = (["--head", heads] if heads else []) + (["--tokens", tokens] if tokens else [])
    s.accepted("trims " + " ".join(how), ["trace", "trim", x, *how, "-o", out, "--overwrite"])
    s.check("the part to copy", differences(out, a, b, kept, named) == [], differences(out, a, b, kept, named))
    t = kvfate.open(out)
    s.check("is whole", t.closed and digest(t) == t.digest and t.id == kvfate.open(x).id)
    s.check("the heads are told", t.notes.get("heads") == (kept and [f"{l}.{h}" for l in kept for h in kept[l]]), t.notes)
    part = {"from": a, "to": b, "of": T, "whole": "" if heads else digest(kvfate.open(x))}
    s.check("the tokens are told", t.notes.get("part") == (part if tokens else None), t.notes)
    s.accepted("verifies", ["trace", "verify", "--full", out])


# ---- analyses: a row of the piece has the numbers of the row of the complete trace


def table(command, path, *more):
    done = s.run([*s.words_of(command), path, *more, "--json"])
    s.check(f"{command} of {os.path.basename(path)}", done.returncode == 0, done.stderr.decode())
    return json.loads(done.stdout)["data"] if done.returncode == 0 else {}


def rows(data, places):
    """Returns {the places of a row: its other values}; all rows have equal lengths."""
    n = max(len(v) for v in data.values())
    return {tuple(data[p][i] for p in places): {k: v[i] for k, v in data.items() if k not in places and k != "head"} for i in range(n)}


def same(a, b):
    if isinstance(a, float) or isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    return a == b


def compare(name, piece, whole, places, to_whole, but=()):
    """Compares every row of the piece with the row at its place in the complete trace."""
    piece, whole, wrong = rows(piece, places), rows(whole, places), []
    for place, values in piece.items():
        place = to_whole(place)
        if place is None:
            continue
        want = whole.get(place, {})
        wrong += [(place, k, v, want.get(k)) for k, v in values.items() if k not in but and not same(v, want.get(k))]
    s.check(name + ": the numbers of the whole", piece and not wrong, wrong[:5], len(piece))


heads = s.path("heads.kvf")
s.accepted("two layers", ["trace", "trim", x, "--head", "L1K1,L2K*", "-o", heads])
KV = {(0, 0): (1, 1), (1, 0): (2, 0), (1, 1): (2, 1)}
QUERY = {(0, 0): (1, 2), (0, 1): (1, 3), **{(1, h): (2, h) for h in range(4)}}
ANALYSES = [(["kv-size"], ("at",), KV), (["occupancy"], ("step", "class"), KV), (["runs"], (), KV), (["density"], ("bin_low",), KV),
            (["sparsity"], ("kind",), KV), (["retention"], ("token",), QUERY), (["survival", "--criterion", "top64"], ("horizon",), QUERY)]
for (command, *more), places, table_of in ANALYSES:
    compare(command + " of heads", table(command, heads, *more), table(command, x, *more), ("layer", "index", *places),
            lambda p: table_of.get(p[:2]) and table_of[p[:2]] + p[2:])

for a, b in ((0, 25), (10, 30)):
    piece = s.path(f"tokens-{a}.kvf")
    s.accepted("some tokens", ["trace", "trim", x, "--tokens", f"{a}:{b}", "-o", piece])
    compare(f"retention of tokens {a} to {b}", table("retention", piece), table("retention", x), ("layer", "index", "token"),
            lambda p: p[:2] + (p[2] + a,), but=("birth",))
    compare(f"tokens {a} to {b}", table("tokens", piece), table("tokens", x), ("token",), lambda p: (p[0] + a,),
            but=("mean_residency", "state"))  # fractions of the steps up to the end
    if a == 0:  # the complete trace also counts later entries, which the piece lacks
        compare("occupancy at the first steps", table("occupancy", piece), table("occupancy", x), ("layer", "index", "step", "class"), lambda p: p)

# ---- the original numbers of heads
KEPT = "L0K0 is L1K1, L1K0 is L2K0, L1K1 is L2K1 of the complete run"
r = s.accepted("trimmed again", ["trace", "trim", x, "--head", "L1K1,L2K*", "-o", heads, "--overwrite"])
s.check("the new numbers are said", f"{heads} has its heads numbered anew: {KEPT}" in r.stderr.decode(), r.stderr)
r = s.accepted("of a trimmed trace", ["trace", "trim", heads, "--head", "L1K*", "-o", out, "--overwrite"])
s.check("those of the complete run are said", "anew: L0K0 is L2K0, L0K1 is L2K1 of the complete run" in r.stderr.decode(), r.stderr)
r = s.accepted("analyzed", ["size", out])
s.check("an analysis says them", "anew: L0K0 is L2K0, L0K1 is L2K1 of" in r.stderr.decode(), r.stderr)
r = s.accepted("reported", ["report", out, "-o", s.path("out.html")])
s.check("a report says them", r.stderr.decode().count("anew: L0K0 is L2K0, L0K1 is L2K1 of") == 1, r.stderr)
s.check("so does info", f"\nheads     {KEPT}\n" in s.run(["trace", "info", heads]).stdout.decode())
s.check("also as JSON", json.loads(s.run(["trace", "info", out, "--json"]).stdout)["heads"] == ["L2K0", "L2K1"])
r = s.accepted("the first layers", ["trace", "trim", x, "--head", "L0-1K*", "-o", out, "--overwrite"])
s.check("equal numbers are not said", "anew" not in r.stderr.decode() and "\nheads " not in s.run(["trace", "info", out]).stdout.decode(), r.stderr)

s.refused("nothing is said", ["trace", "trim", x, "-o", s.path("none.kvf")], 2, "--head", "--tokens")
for heads in ("L9K*", "L0H1", "nonsense"):
    s.refused("heads " + heads, ["trace", "trim", x, "--head", heads, "-o", s.path("none.kvf")], 2, "head")
for tokens in ("5", "7:7", "9:3", "0:41", "40:", "x:y", "-1:4"):
    s.refused("tokens " + tokens, ["trace", "trim", x, "--tokens=" + tokens, "-o", s.path("none.kvf")], 2, "--tokens")
s.refused("no output", ["trace", "trim", x, "--tokens", "0:5"], 2, "-o")
s.refused("there is one already", ["trace", "trim", x, "--tokens", "0:5", "-o", out], 1, "--overwrite")
s.refused("not closed", ["trace", "trim", sample(s, "open.kvf", unclosed=True), "--tokens", "0:5", "-o", s.path("none.kvf")], 1, "not closed", "repair")
s.check("nothing is left", not [n for n in os.listdir(s.work.name) if "none" in n or n.endswith(".part")], os.listdir(s.work.name))
s.finish()
