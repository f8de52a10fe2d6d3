#!/usr/bin/env python3
"""effect: compared with a float64 model with entries removed by hand; its invariants; bad input."""
import json
import os
import random
import re
import sys
from pathlib import Path

import numpy as np

from harness import Suite

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import tiny_llama  # noqa: E402

s = Suite()
P, S, W, K = 40, 10, 6, 2
WORDS = "the thing in there and other one is of an it he she ran red bit top hat".split()
rng = random.Random(5)
TEXT = s.file("text.txt", "".join(f" = Title {i} = \n " + " ".join(rng.choice(WORDS) for _ in range(90)) + " . \n" for i in range(4)).encode())
DATA = ["--data", TEXT, "--prompt-tokens", str(P), "--score-tokens", str(S)]
HELD = ["--recent", str(W), "--sinks", str(K)]


def read(path):
    lines = Path(path).read_text().splitlines()
    meta = dict(x[2:].split(": ", 1) for x in lines if x.startswith("# ") and ": " in x)
    rows = [x.split("\t") for x in lines if not x.startswith("#")]
    return [dict(zip(rows[0], r)) for r in rows[1:]], meta


def effect(*argv, model=0, name="out.tsv"):
    """Returns the rows of the table as dictionaries, and its metadata."""
    s.accepted("effect " + " ".join(argv), ["ablate", "-m", s.model(model), *argv, "-o", s.path(name)])
    return read(s.path(name))


def precise(*argv, **more):
    """Like effect, in 32 bits, close enough to float64."""
    return effect(*argv, "--exact", **more)


# ---- brute force

def log_softmax(z):
    z = z - z.max()
    return z - np.log(np.exp(z).sum())


def prompts_of(model):
    """Returns the ids of the documents in the order of the file."""
    trace = s.path("ids.kvf")
    ids = []
    for article in open(TEXT).read().split(" = Title ")[1:]:
        path = s.file("one.txt", (" = Title " + article).encode())
        s.run(["run", "--overwrite", "-m", s.model(model), "--raw", "-f", path, "-n", "1", "-q", "--probes", "lean", "-o", trace])
        rows = s.run(["tokens", trace, "-o", "-"]).stdout.decode("utf-8", "replace").splitlines()
        rows = [r.split("\t") for r in rows if not r.startswith("#")]
        at, role = rows[0].index("id"), rows[0].index("role")
        ids.append([int(r[at]) for r in rows[1:] if r[role] == "prompt"][: P + S + 1])
    return ids


def queries(model, ids, lose, prompt=P):
    """Returns log p after each query following the prompt. lose(run, layer, head): the entries that
    a head loses before a query."""
    run, out = tiny_llama.prompted(model, ids[:prompt], len(ids))[0], []
    for i in ids[prompt:-1]:
        for layer in range(model.layers):
            for head in range(model.kv_heads):
                for p in lose(run, layer, head):
                    run.evict(layer, head, p)
        out.append(log_softmax(run.feed(i)))
    return np.array(out)


def held(recent=W, sinks=K):
    """Returns the entries to remove so that the next query sees the `sinks` first and `recent` last
    entries, including its own."""
    def lose(run, layer, head):
        return [p for p in run.alive[layer][head] if sinks <= p <= run.t - recent]
    return lose


def at(wanted, rule):
    return lambda run, layer, head: rule(run, layer, head) if (layer, head) in wanted else []


def without(positions):
    return lambda run, layer, head: [p for p in run.alive[layer][head] if p in positions]


def nothing(run, layer, head):
    return []


def steps_of(full, fork, ids, prompt=P):
    """Returns KL, delta NLL and agreement of every step."""
    target = np.array(ids[prompt + 1 :])
    kl = (np.exp(full) * (full - fork)).sum(axis=1)
    dnll = np.take_along_axis(full - fork, target[:, None], 1)[:, 0]
    return kl, dnll, full.argmax(1) == fork.argmax(1)


def near(found, wanted, what):
    wanted = np.asarray(wanted, float)
    found = np.asarray([float(x) for x in found])
    ok = found.shape == wanted.shape and np.all(np.abs(found - wanted) <= 2e-5 * np.maximum(1, np.abs(wanted)))
    s.check(what, ok, f"{found}", f"by brute force {wanted}")


def judge(what, rows, steps, forks, documents):
    """Compares rows of the table and its steps with forks[row] = the removed entries."""
    for r, (name, oracle, lose) in enumerate(forks):
        row, all_kl, means = rows[r], [], []
        s.check(f"{what}: row {r} is {name}", name in row.values(), row)
        for doc, (ids, full) in enumerate(documents):
            kl, dnll, agree = steps_of(full, queries(oracle, ids, lose, len(ids) - len(full) - 1), ids, len(ids) - len(full) - 1)
            mine = [x for x in steps if x.get("head", x.get("entries")) == name and int(x["doc"]) == doc]
            near([x["kl"] for x in mine], kl, f"{what}, {name}, document {doc}: KL of steps")
            near([x["dnll"] for x in mine], dnll, f"{what}, {name}, document {doc}: delta NLL of steps")
            s.check(f"{what}, {name}: agreement of steps", [x["agree"] == "1" for x in mine] == list(agree))
            s.check(f"{what}, {name}: targets", [int(x["id"]) for x in mine] == ids[len(ids) - len(full) :], mine, ids)
            all_kl += list(kl)
            means.append([kl.mean(), dnll.mean(), agree.mean()])
        near([row[k] for k in ("kl", "dnll", "top1_agree", "kl_max")], [*np.mean(means, axis=0), max(all_kl)], f"{what}, {name}: means")
        low, high = float(row["kl_low"]), float(row["kl_high"])
        of = [m[0] for m in means] if len(documents) > 1 else all_kl
        if len(of) == 4:  # Student's t, 3 degrees of freedom
            half = 3.182446305284263 * np.std(of, ddof=1) / 2
            near([low, high], [np.mean(of) - half, np.mean(of) + half], f"{what}, {name}: Student's t")
        elif len(of) < 10:
            s.check(f"{what}, {name}: too few for an interval", len(of) < 4 and np.isnan(low) and np.isnan(high), row, of)
        else:
            s.check(f"{what}, {name}: bootstrap", min(of) - 1e-5 <= low <= float(row["kl"]) <= high <= max(of) + 1e-5, row, of)
        s.check(f"{what}, {name}: it has changed something", float(row["kl"]) > 1e-7, row)


def measured(what, forks_of, documents, *argv, model=0):
    oracle = tiny_llama.Llama(s.model(model))
    rows, _ = precise(*argv, model=model)
    kinds = ("entries", "token", "count") if "entries" in rows[0] else ("head", "layer", "index")
    text = ["text"] if "entries" in rows[0] else []
    s.check(what + ": columns", list(rows[0]) == [*kinds, *text, "kl", "kl_low", "kl_high", "kl_max", "dnll", "dnll_low", "dnll_high", "top1_agree", "tokens"], list(rows[0]))
    steps, _ = precise(*argv, "--per-token", model=model, name="steps.tsv")
    judge(what, rows, steps, [(n, oracle, f) for n, f in forks_of], documents)


def brute_force(model):
    oracle = tiny_llama.Llama(s.model(model))
    heads = [(l, h) for l in range(oracle.layers) for h in range(oracle.kv_heads)]
    # The chosen documents and their order: their ids are those of the steps' targets.
    n = "3" if model == 6 else "4"  # for model 6, float32 is off by 3e-5 in the fourth; with 4 there is an interval
    steps, _ = precise(*DATA, "--docs", n, *HELD, "--head", "L0K0", "--per-token", model=model)
    tails = [[int(x["id"]) for x in steps if x["head"] == "L0K0" and int(x["doc"]) == d] for d in range(int(n))]
    texts = {tuple(ids[P + 1 :]): ids for ids in prompts_of(model)}
    s.check("documents are those that start at headings", len(texts) == 4 and all(tuple(t) in texts for t in tails), tails)
    documents = [(texts[tuple(t)], queries(oracle, texts[tuple(t)], nothing)) for t in tails]
    data = [*DATA, "--docs", n]
    everybody = [("all", held())]
    measured(f"model {model}, heads", [(f"L{l}K{h}", at({(l, h)}, held())) for l, h in heads] + everybody, documents, *data, *HELD, model=model)
    measured(f"model {model}, mirror", [(f"L{l}K{h}", at(set(heads) - {(l, h)}, held())) for l, h in heads] + everybody,
             documents, *data, *HELD, "--mirror", model=model)
    some = {(1, 0), (0, 1)}
    measured(f"model {model}, no sinks, one entry", [*((n, at(h, held(1, 0))) for n, h in (("L0K1", {(0, 1)}), ("L1K0", {(1, 0)}), ("all", some)))],
             documents, *data, "--recent", "1", "--sinks", "0", "--head", "1.0,L0K1", model=model)
    measured(f"model {model}, mirror of one", [("L0K1", at(set(heads) - {(0, 1)}, held())), *everybody], documents, *data, *HELD,
             "--mirror", "--head", "L0K1", model=model)
    span = [3, 4, 5, 9, 30]
    measured(f"model {model}, a span", [("span=3:6,9,30:31", without(span))], documents, *data, "--entries", "span=3:6,9,30:31", model=model)
    one = documents[:1]
    data[-1] = "1"
    measured(f"model {model}, each of a span in some heads", [(str(p), at({(0, 0), (1, 1)}, without([p]))) for p in span], one, *data,
             "--entries", "span=3:6,9,30:31", "--each", "--head", "L0K0,L1K1", model=model)
    for name, positions in (("sink", range(K)), ("recent", range(P - W, P)), ("middle", range(K, P - W))):
        measured(f"model {model}, class {name}", [("class=" + name, without(positions))], one, *data, *HELD, "--entries", "class=" + name, model=model)


# ---- a separate prompt, continued greedily

def greedy():
    ids = [1, *(3 + 7 * i % 200 for i in range(29))]
    path = s.file("prompt.ids", " ".join(map(str, ids)).encode())
    oracle = tiny_llama.Llama(s.model())
    run = tiny_llama.Session(oracle, 64)
    for i in ids:
        logits = run.feed(i)
    more = []
    for _ in range(S + 1):
        more.append(int(logits.argmax()))
        logits = run.feed(more[-1])
    argv = ["--ids", path, "--score-tokens", str(S), *HELD, "--ignore-eos"]
    whole = ids + more
    full = queries(oracle, whole, nothing, len(ids))
    measured("greedy", [("L0K1", at({(0, 1)}, held())), ("all", at({(0, 1)}, held()))], [(whole, full)], *argv, "--head", "L0K1")
    rows, meta = precise(*argv)
    s.check("greedy: metadata", (meta["continuation"], meta["prompt_tokens"], meta["docs"]) == ("greedy", "30", "1") and "steps" in meta["interval"], meta)
    s.check("every head has a row", [r["head"] for r in rows] == [f"L{l}K{h}" for l in range(oracle.layers) for h in range(oracle.kv_heads)] + ["all"])
    # Random entries: as many as requested, after the sinks, determined by the seed.
    drawn = {}
    for seed in (0, 1):
        rows, _ = effect("--ids", path, "--score-tokens", "2", "--entries", "random:7", "--each", "--ignore-eos", "--seed", str(seed), "--sinks", "5")
        drawn[seed] = [int(r["token"]) for r in rows]
        s.check("random entries", len(set(drawn[seed])) == 7 and min(drawn[seed]) >= 5 and max(drawn[seed]) < 30, drawn)
    s.check("another seed draws others", drawn[0] != drawn[1], drawn)
    rows, _ = effect("--ids", path, "--score-tokens", "2", "--entries", "random:26", "--each", "--ignore-eos")
    s.check("all that there are", [int(r["token"]) for r in rows] == list(range(4, 30)), rows)
    apart, _ = effect("--ids", path, "--score-tokens", "4", "--entries", "random:7", "--ignore-eos", "--sinks", "5")
    named, _ = effect("--ids", path, "--score-tokens", "4", "--entries", "span=" + ",".join(map(str, drawn[0])), "--ignore-eos")
    s.check("and they are the ones that go", apart[0]["kl"] == named[0]["kl"] and apart[0]["count"] == "7", apart, named)


# ---- invariants

def same(name, *argv, model=0):
    """Checks for equal bytes with any number of threads and any chunk."""
    outs = []
    for i, more in enumerate((["-t", "1"], ["-t", "2", "--chunk", "7"])):
        effect(*argv, *more, model=model, name=f"same{i}.tsv")
        outs.append(Path(s.path(f"same{i}.tsv")).read_bytes())
    s.check(name + ": threads and chunks change nothing", outs[0] == outs[1])


def invariants():
    for more in ([], ["--mirror"]):  # the last query, at P + S - 1, sees P + S entries
        room = effect(*DATA, "--docs", "2", "--sinks", "0", "--recent", str(P + S), *more, model=5)[0]
        exact = all(r[k] == "0" for r in room for k in ("kl", "kl_max", "dnll")) and all(r["top1_agree"] == "1" for r in room)
        s.check("with room for all nothing is lost", len(room) >= 4 and exact, room)
        less = effect(*DATA, "--docs", "2", "--sinks", "0", "--recent", str(P + S - 1), *more, "--per-token", model=5)[0]
        last = {r["step"] for r in less if r["kl"] != "0"}
        s.check("one less is felt by the last query alone", last == {str(S - 1)}, last)
    same("heads", *DATA, "--docs", "2", *HELD, model=6)
    same("steps", *DATA, "--docs", "2", *HELD, "--per-token", model=6)
    same("entries", *DATA, "--docs", "2", "--entries", "random:9", "--each", model=6)
    alone = [effect(*DATA, *HELD, "--docs", "2", "--head", f"L{l}K1")[0][0] for l in (0, 1)]
    together = effect(*DATA, *HELD, "--docs", "2")[0]
    s.check("a head alone or among others", all(r in together for r in alone), alone, together)
    some = effect(*DATA, "--docs", "1", "--entries", "span=0:40", "--each")[0]
    one = effect(*DATA, "--docs", "1", "--entries", "span=17", "--each")[0]
    s.check("an entry alone or among others", [r for r in some if r["token"] == "17"] == one, one)
    s.check("texts of entries", all(r["text"] for r in some) and len(some) == 40, some[:2])
    r = s.accepted("--json", ["ablate", "-m", s.model(), *DATA, "--docs", "1", *HELD, "--json"])
    j = json.loads(r.stdout)
    s.check("JSON", j["name"] == "effect" and j["data"]["head"][0] == "L0K0" and int(j["meta"]["recent"]) == W, j["meta"])
    s.check("the cost is told", b"CPU time" in r.stderr and b"without sharing" in r.stderr, r.stderr)
    r = s.accepted("in words", ["ablate", "-m", s.model(), *DATA, "--docs", "2", *HELD])
    words = r.stdout.decode().splitlines()
    kl = [float(x.split()[1]) for x in words[3:-1]]
    s.check("falling KL", words[0].startswith("2 documents") and len(kl) >= 4 and kl == sorted(kl, reverse=True) and words[-1].startswith("all "), words)
    r = s.accepted("the mirror in words", ["ablate", "-m", s.model(), *DATA, "--docs", "2", *HELD, "--mirror"])
    kl = [float(x.split()[1]) for x in r.stdout.decode().splitlines()[3:-1]]
    s.check("rising KL", len(kl) >= 4 and kl == sorted(kl), kl)
    for ext, magic in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        out = s.path("map." + ext)
        s.accepted("a map as " + ext, ["ablate", "-m", s.model(), *DATA, "--docs", "1", *HELD, "-o", out])
        s.check("it is one", open(out, "rb").read(5).startswith(magic[:5]))


# ---- the map

VIRIDIS_ENDS = [(68, 1, 84), (253, 231, 37)]  # matplotlib's colour map at 0 and 1
GREY = (217, 217, 217)


def cells(*argv):
    """Returns the colours of the cells of the map by ascending layer and head."""
    out = s.path("map.svg")
    s.accepted("the map " + " ".join(argv), ["ablate", "-m", s.model(), *DATA, "--docs", "1", *argv, "-o", out])
    found = re.findall(r"fill-rule:nonzero;fill:rgb\(([\d.]+)%,([\d.]+)%,([\d.]+)%\)", open(out).read())
    return [tuple(round(float(x) * 2.55) for x in f) for f in found][:4]


def the_map():
    kl = np.array([float(r["kl"]) for r in effect(*DATA, "--docs", "1", *HELD)[0][:-1]])
    log, linear = cells(*HELD), cells(*HELD, "--style", "scale=linear")
    for what, found in (("log", log), ("linear", linear)):
        s.check(what + ": least and most have the ends", [found[kl.argmin()], found[kl.argmax()]] == VIRIDIS_ENDS, found, kl)
        s.check(what + ": brighter is more", list(np.argsort([sum(f) for f in found])) == list(np.argsort(kl)), found, kl)
    s.check("the scales differ between", log != linear, log)
    # With a range from the smallest to the second value, larger ones are clipped to the last colour.
    order = np.sort(kl)
    cut = cells(*HELD, "--vmin", repr(order[0]), "--vmax", repr(order[1]))
    s.check("the range is in units of the bar", sorted(cut) == sorted([VIRIDIS_ENDS[0], *3 * [VIRIDIS_ENDS[1]]]), cut)
    s.check("nothing lost is grey", cells("--recent", str(P + S)) == 4 * [GREY])
    half = cells(*HELD, "--head", "L1K*")
    s.check("a set of heads", sorted(half[:2]) == sorted(VIRIDIS_ENDS), half)


# ---- bad input

def bad_input():
    argv = ["ablate", "-m", s.model()]
    data = [*argv, *DATA, "--docs", "1"]
    s.refused("no prompt", argv, 2, "no prompt")
    s.refused("two prompts", [*argv, "-p", "a", "--ids", "x"], 2, "several")
    s.refused("prompt and data", [*data, "-p", "a"], 2, "--data")
    s.refused("documents without data", [*argv, "-p", "a", "--docs", "2"], 2, "--docs")
    s.refused("a file without --data", [*argv, TEXT], 2, "--data must precede")
    s.refused("too few documents", [*argv, *DATA, "--docs", "99"], 1, "have", "99")
    s.refused("too long", [*data, "--score-tokens", "100000"], 1, "have")
    s.refused("over the context", [*argv, "-p", "a", "--score-tokens", "100000"], 1, "context")
    s.refused("a prompt over the context", [*argv, "--raw", "-p", "red " * 9000], 1, "context")
    for bad in ("L0H0", "x", "L0K0,x", "99", "L0-K1"):
        s.refused(f"--head {bad}", [*data, *HELD, "--head", bad], 2, "--head", "KV heads")
    s.refused("no head", [*data, *HELD, "--head", ""], 2, "names no KV head")
    s.refused("no such head", [*data, "--head", "L77K0"], 2, "layer 77", "layers 0 to")
    s.refused("--each alone", [*data, "--each"], 2, "--entries")
    s.refused("a mirror of entries", [*data, "--mirror", "--entries", "span=1:2"], 2, "--mirror")
    s.refused("recent of a span", [*data, "--recent", "5", "--entries", "span=1:2"], 2, "--recent")
    for bad in ("span", "span=", "span=5:5", "span=7:3", "span=-1:3", "span=1:2,", "span=1:2:3", "span=a:b", "span=1;2", "class=", "class=old",
                "random:", "random:0", "random:x", "random=3", "all", "", "span=" + "9" * 40):
        s.refused(f"--entries {bad!r}", [*data, "--entries", bad], 2, "--entries")
    s.refused("beyond the prompt", [*data, "--entries", "span=39:41"], 2, "tokens 0 to 39")
    s.refused("more than there are", [*data, "--entries", "random:37"], 2, "36 tokens")
    s.refused("no sinks to lose", [*data, "--sinks", "0", "--entries", "class=sink"], 2, "no entry")
    s.refused("nothing recent", [*data, "--recent", "0"], 2, "--recent")
    s.refused("an output of no kind", [*data, "-o", "x.txt"], 2, ".tsv")
    s.refused("a table without figure", [*data, "--per-token", "-o", "x.png"], 2, "no figure")
    s.refused("entries without figure", [*data, "--entries", "span=1:2", "-o", "x.png"], 2, "--each")
    s.refused("a style of nobody", [*data, *HELD, "-o", s.path("x.png"), "--style", "scale=root"], 2, "scale is log or linear")
    s.refused("a map of no colours", [*data, *HELD, "-o", s.path("x.png"), "--cmap", "jet"], 2, "jet")
    s.refused("over its input", [*data, "--data", s.file("x.tsv", open(TEXT, "rb").read()), "-o", s.path("x.tsv")], 2, "overwrite")
    s.refused("over its prompt", [*argv, "-f", s.file("y.tsv", b"red"), "-o", s.path("y.tsv")], 2, "overwrite")
    s.refused("a cache of no type", [*data, "--kv-type", "f8"], 2, "f8")
    s.refused("no folder", [*data, *HELD, "-o", s.path("no/x.tsv")], 1, "no/x.tsv")


brute_force(0)
brute_force(6)
greedy()
invariants()
the_map()
bad_input()
s.finish()
