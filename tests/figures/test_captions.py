"""Check --caption: two sentences whose numbers follow from the table.  usage: test_captions.py KVFATE

Each table is small enough that the expected numbers are computed here or by hand.
"""
import os
import re
import subprocess
import sys
import tempfile

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402

KVFATE = os.path.abspath(sys.argv[1])
FOLDER = tempfile.TemporaryDirectory()


def kvfate(*args):
    return subprocess.run([KVFATE, *args], capture_output=True, text=True)


def tsv(name, columns, rows, **meta):
    return "\n".join([f"# table: {name}", *[f"# {k}: {v}" for k, v in meta.items()], "\t".join(columns)]
                     + ["\t".join(map(str, r)) for r in rows]) + "\n"


def caption(text, *more):
    """Return the caption of a table: two sentences on a line."""
    path = os.path.join(FOLDER.name, "t.tsv")
    with open(path, "w") as f:
        f.write(text)
    r = kvfate("draw", path, "-o", os.path.join(FOLDER.name, "x.svg"), "--caption", *more)
    check("a caption is two sentences in one line", r.returncode == 0 and r.stdout.count("\n") == 1
          and len(re.findall(r"\.(?= |$)", r.stdout.strip())) == 2, r.stdout, r.stderr)
    return r.stdout


def has(what, said, *words):
    check(what, all(w in said for w in words), said)


# ---- eviction, occupancy, heads
steps = {"L0K0": [-1, 5, 6, -1], "L0K1": [7, 4, 9, -1]}  # cached at the end: 2 of 4 and 1 of 4
rows = [(h, 0, int(h[-1]), i, s) for h, v in steps.items() for i, s in enumerate(v)]
names = ["head", "layer", "index", "token", "evict_step"]
has("eviction", caption(tsv("eviction", names, rows, T=10)), "for 2 heads", "first eviction is at step 4", "38 % on average, from 25 % (L0K1) to 50 % (L0K0)")
has("nothing is evicted", caption(tsv("eviction", names, [r[:4] + (-1,) for r in rows], T=10)), "Nothing was evicted")
rows = [(t, f"L0K{h}", 0, h, "all", n) for h, v in enumerate(((1, 2, 3), (1, 2, 2))) for t, n in enumerate(v)]
has("occupancy", caption(tsv("occupancy", ["step", "head", "layer", "index", "class", "entries"], rows)), "At step 2", "2.5 on average, from 2 (L0K1) to 3 (L0K0)")
has("equal heads", caption(tsv("occupancy", ["step", "head", "layer", "index", "class", "entries"], [r[:5] + (7,) for r in rows])), "is 7 in every head")
rows = [(f"L0H{i}", 0, i, k, 1) for i, k in enumerate(("sink", "mixed", "sink", "gist", "sink", "gist"))]
has("heads", caption(tsv("heads", ["head", "layer", "index", "kind", "score"], rows)), "sink (3 of 6 heads), followed by gist (2)")

# ---- survival and hazard
rows = [("all", -1, -1, c, "all", n, .5, h) for c, h in (("top64", 12), ("mass.90", 80)) for n in (1, 2)] + [("L0H0", 0, 0, "top64", "all", 1, .5, 3)]
said = caption(tsv("survival", ["head", "layer", "index", "criterion", "class", "horizon", "fraction", "half_life"], rows))
has("survival: the half-lives of the pooled lines", said, "12 steps (top-64) to 80 steps (mass 0.90)")
rows = [("all", -1, -1, "top64", "all", low, 2 * low, h) for low, h in ((1, .2), (2, .1), (4, .004))]
said = caption(tsv("hazard", ["head", "layer", "index", "criterion", "class", "low", "high", "hazard"], rows, T=8))
has("hazard falls", said, "falls from 20 % at age 1 to 0.4 % at age 4", "less likely")

# ---- retention, maps, dilution
half = {"L0H0": (1, 2, 4), "L0H1": (8, 8, 16)}  # half-lives in steps: log beta = ln 0.5 / half-life
rows = [("gate", h, 0, int(h[-1]), i, -0.6931471805599453 / v, -1) for h, values in half.items() for i, v in enumerate(values)]
said = caption(tsv("retention", ["source", "head", "layer", "index", "token", "log_beta", "last_use_age"], rows, T=3))
has("retention: medians of half-lives", said, "for 2 heads", "5 on average, from 2 (L0H0) to 8 (L0H1)")
rows = [(f"L{l}K{h}", l, h, "alpha", .1 + .1 * l + .2 * h) for l in range(2) for h in range(2)]
columns = ["head", "layer", "index", "kind", "sparsity"]
has("a map of heads", caption(tsv("sparsity", columns, rows)), "The mean is 0.25", "from 0.1 (layer 0, head 0) to 0.4 (layer 1, head 1)")
has("a map without differences", caption(tsv("sparsity", columns, [r[:4] + (.5,) for r in rows])), "All 4 heads have the value 0.5")
rows = [(t, "all", -1, -1, s, v) for t, values in (("h2o 64", (.1, .3)), ("trimkv 64", (.2, .6))) for s, v in enumerate(values)]
columns = ["trace", "head", "layer", "index", "step", "dilution"]
has("dilution of two runs: means", caption(tsv("dilution", columns, rows)), "lowest in h2o 64 (0.2)", "highest in trimkv 64 (0.4)")
has("dilution of one run", caption(tsv("dilution", columns[1:], [r[1:] for r in rows[:2]])), "0.1 at step 0 and 0.3 at step 1")

# ---- fates, tokens
held = {"h2o 64": (1, .2, .9), "trimkv 64": (1, .7, .8)}
rows = [(r, s, i, f" w{i}", f" w{i}", v if s else 1, .25) for r, values in held.items() for s in (0, 9) for i, v in enumerate(values)]
columns = ["trace", "step", "token", "text", "joined", "held", "needed"]
said = caption(tsv("fates", columns, rows, heads=90))
has("fates: the token about which runs differ most", said, "90 heads", "from step 0 at the top to step 9", "token 1", "70 % of the heads of trimkv 64", "20 % of the heads of h2o 64")
said = caption(tsv("fates", columns, [r if r[0] == "h2o 64" else (r[0], r[1] + 5) + r[2:] for r in rows]))
has("fates: runs of different steps and models", said, "the fraction of the heads that", "from step 0 at the top to step 9 at the bottom in h2o 64; from step 5 at the top to step 14 at the bottom in trimkv 64")
said = caption(tsv("fates", columns, [r[:5] + (.5, .25 * (r[0] == "h2o 64")) for r in rows], heads=90))
check("fates: nothing of one run alone", "of each run caches 50 %" in said and "25 %" not in said, said)
has("fates of one head", caption(tsv("fates", columns[1:], [r[1:] for r in rows[:6]], heads=1, head="L1K2")), "shows when head L1K2 caches each token")
long = [(r, s, i, w, w, v, 0) for r, far in (("h2o 64", .9), ("trimkv 64", .3)) for s in (0, 9)
        for i, (w, v) in enumerate([("<|im_start|>", far), ("user", far), ("\u21b5", far)] + [(w, .5 + (far - .6 if w == " x40" else 0)) for n in range(80) for w in (f"w{n}", f" x{n}", ".\u21b5")])]
said = caption(tsv("fates", columns, long, heads=90), "--size", "88x60")
has("fates: not a folded token", said, "token 124", "\u201c x40\u201d", "80 % of the heads of h2o 64")
said = caption(tsv("fates", columns, long, heads=90), "--size", "88x60", "--style", "passage=first")
has("fates: only drawn tokens", said, "a ribbon for each run")
check("fates: not a token outside the drawn passage", "x40" not in said and "user" not in said, said)
has("fates of one run", caption(tsv("fates", columns[1:], [r[1:] for r in rows[:6]], heads=90)), "caches 70 % of these tokens", "evicted 25 %")
kept = [("word", .5), ("word", .25), ("word", 0), ("number", 1), ("number", 1), ("number", .7), ("role", 0)]
rows = [(1, "all", f"w{i}", f" w{i}", c, v, v, "nan", "nan", "nan", "nan", "nan", "kept") for i, (c, v) in enumerate(kept)]
said = caption(tsv("tokens", ["trace", "head", "text", "joined", "class", "kept", "mean_residency", "mean_beta", "mean_retention", "nll", "saliency", "last_use_age", "state"], rows))
has("tokens: classes of 3 tokens or more", said, "90 % of the entries of class number", "25 % of class word")

# ---- compare, pareto
pairs = [(1, 2, .1, 0, 0, 0, 0, 1), (1, 2, .3, 0, 0, 0, 1, 0), (1, 2, .5, 0, 1, 0, 0, 0), (1, 2, .3, 0, 1, 0, 1, 1)]
has("compare", caption(tsv("compare", ["a", "b", "distance", "layer_a", "index_a", "layer_b", "index_b", "matched"], pairs)),
    "2 of 2 heads are matched", "0.2 in matched pairs and 0.4 in all others")
table = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "tables", "eval.tsv")
lines = [x.split("\t") for x in open(table).read().split("\n") if x and not x.startswith("# ")]
at = {n: i for i, n in enumerate(lines[0])}
last = {}
for x in lines[1:]:
    method, entries, kl = x[at["method"]], float(x[at["kv_mean"]] or "nan"), float(x[at["kl"]] or "nan")
    if method != "full" and entries > 0 and (method not in last or entries >= last[method][0]):
        last[method] = entries, kl
r = kvfate("draw", table, "-o", os.path.join(FOLDER.name, "x.svg"), "--caption")
best, worst = (f(last, key=lambda m: last[m][1]) for f in (min, max))
has("pareto: the best and the worst at the largest cache", r.stdout, f"{best} is the best ({last[best][1]:.3g})", f"{worst} is the worst ({last[worst][1]:.3g})")

# ---- errors
r = kvfate("draw", os.path.join(FOLDER.name, "t.tsv"), "--caption", "-o", os.path.join(FOLDER.name, "t2.json"))
check("no figure, no caption", r.returncode == 2 and "--caption" in r.stderr, r.stderr)
with open(os.path.join(FOLDER.name, "w.tsv"), "w") as f:
    f.write(tsv("words", ["word", "count", "base_count"], [("a", 1, 2)]))
r = kvfate("draw", os.path.join(FOLDER.name, "w.tsv"), "--caption", "-o", os.path.join(FOLDER.name, "w.svg"))
check("a figure without a caption", r.returncode == 2 and "the figure words has no caption" in r.stderr and not os.path.exists(os.path.join(FOLDER.name, "w.svg")), r.stderr)
# ---- attention: three queries; query 2 does not see entry 1

rows = [("L0H1", 0, 1, t, t + 1, i, i + 1, w, c, f"t{t}", f" t{i}") for t, i, w, c in ((0, 0, 1, 1), (1, 0, .75, 1), (1, 1, .25, 1), (2, 0, .5, 1), (2, 1, 0, 0), (2, 2, .5, 1))]
said = caption(tsv("attention", ["head", "layer", "index", "query", "query_end", "token", "token_end", "attention", "cached", "query_text", "text"], rows, cells=6, cells_evicted=1))
has("attention", said, "in 1 map", "the 17 % of the cells", "In L0H1 the queries give token 0 (t0) 75 %", "their own token 58 %")
rows = [("L0H1", 0, 1, 0, 4, 0, 4, .9, 1, "", ""), ("L0H1", 0, 1, 4, 8, 0, 4, .25, .5, "", ""), ("L0H1", 0, 1, 4, 8, 4, 8, .75, 1, "", "")]
said = caption(tsv("attention", ["head", "layer", "index", "query", "query_end", "token", "token_end", "attention", "cached", "query_text", "text"], rows, cells=36, cells_evicted=0))
has("attention in boxes", said, "In L0H1 the largest value of a box is 0.9, at query 0 and token 0")

finish()
