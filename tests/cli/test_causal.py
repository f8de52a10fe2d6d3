#!/usr/bin/env python3
"""causal: compared with a float64 model with head-by-head removals by definition; its invariants;
bad input."""
import json
import math
import os
import sys

import numpy as np

from harness import Suite

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(HERE, "..", "oracle"), os.path.join(HERE, "..")]
import tiny_llama  # noqa: E402
from draws import Draws, hashed  # noqa: E402
from tasks import make_task, prepare  # noqa: E402

s = Suite()
GROUPS = ["all", "looking", "other"]
# removed entries, their dose (None: the matched mass), the row to compare with
ROWS = [("nothing", 0, None), ("evidence", 1, None), ("evidence", None, 3), ("distractors", None, 4), ("random", None, None),
        *(("distractors", d, 9 + i) for i, d in enumerate((.25, .5, .75, 1))),
        *(("random", d, None) for d in (.25, .5, .75, 1)), ("sham", None, None)]
SINKS = 3


def weights_of(model, t):
    """Returns [layer][KV head][position]: attention of the answer's query, averaged over the query
    heads of each."""
    run = tiny_llama.Session(model, len(t["ids"]))
    for i in t["ids"][: t["query"] + 1]:
        run.feed(i)
    row = run.rows[:, :, t["query"], :]
    return row.reshape(model.layers, model.kv_heads, -1, row.shape[-1]).mean(axis=2)


def lost_by(t, w, row, seed, head):
    """Returns the positions that a head loses in a row. The matched mass is that of a random subset
    of the evidence that fits into the distractors' mass."""
    def fill(among, mass):
        out, total = [], 0
        for i in among:
            if total + w[i] <= mass * (1 + 1e-12):
                total += w[i]
                out.append(i)
        return out, total
    what, dose, _ = ROWS[row]
    draws = Draws(hashed(seed, 0 if what == "sham" else head, row, 0))
    if what == "nothing":
        return []
    if dose == 1 and what != "random":
        return t["evidence"] if what == "evidence" else t["distractors"]
    least = min(w[t["evidence"]].sum(), w[t["distractors"]].sum())
    part, mass = fill(Draws(hashed(seed, head, 2, 0)).shuffled(sorted(t["evidence"])), least)
    if what == "evidence":
        return part
    mass = mass if dose is None else dose * w[t["distractors"]].sum()
    d = sorted(t["distractors"])
    if what == "sham":
        first = draws.below(len(d))
        return fill(d[first:] + d[:first], mass)[0]
    neither = sorted(set(range(t["cut"])) - set(t["evidence"]) - set(t["distractors"]))
    return fill(draws.shuffled(d if what == "distractors" else neither), mass)[0]


def log_softmax(z):
    z = z - z.max()
    return z - np.log(np.exp(z).sum())


def answer(model, t, lost):
    """Returns (ln p of the answer, True if all of it is right) when head (layer, KV head) loses
    lost[layer][head]."""
    run, logp, right = tiny_llama.prompted(model, t["ids"][: t["cut"]], len(t["ids"]))[0], 0, True
    for layer in range(model.layers):
        for head in range(model.kv_heads):
            for p in lost[layer][head]:
                run.evict(layer, head, p)
    for i in t["ids"][t["cut"] : t["query"]]:
        run.feed(i)
    for k in range(t["steps"]):
        z = log_softmax(run.feed(t["ids"][t["query"] + k]))
        if t["scored"][k]:
            target = t["ids"][t["query"] + k + 1]
            logp += z[target]
            right &= z.argmax() == target
    return logp, right


def groups_of(shares, task, looking):
    """Returns the heads of the three groups; shares [tasks][heads]."""
    others = [x for k, x in enumerate(shares) if k != task] or shares
    total = sum(others)
    order = sorted(range(len(total)), key=lambda h: (-total[h], h))
    most = max(1, math.ceil(looking * len(order)))
    return [set(order), set(order[:most]), set(order[most:])]


def read(path):
    with open(path) as f:
        lines = [x for x in f.read().splitlines() if not x.startswith("#")]
    rows = [x.split("\t") for x in lines]
    return [dict(zip(rows[0], r)) for r in rows[1:]]


def number(x):
    return float("nan") if x == "nan" else float(x)


T_975 = {4: 3.182446305284263}  # quantile 0.975 of Student's t for each number of tasks, from tables; fewer tasks have no interval


def brute_force(model_number, looking, seed, n_tasks=3, question="known"):
    model = tiny_llama.Llama(s.model(model_number))
    tasks = [prepare(s, make_task(s, f"m{model_number}t{i}", 10 * model_number + i), s.model(model_number), SINKS) for i in range(n_tasks)]
    for t in tasks:
        t["cut"] = t["question"] if question == "unknown" else t["query"]
    w = [weights_of(model, t).reshape(model.layers * model.kv_heads, -1) for t in tasks]
    shares = [x[:, t["evidence"]].sum(axis=1) for x, t in zip(w, tasks)]
    argv = ["ablate", "--as", "causal", *(t["name"] + ".json" for t in tasks), "-m", s.model(model_number), "--raw", "--exact", "--sinks", str(SINKS),
            "--looking", str(looking), "--seed", str(seed), "--question", question]
    s.accepted("the table", [*argv, "-o", s.path("t.tsv")])
    s.accepted("the table of tasks", [*argv, "--per-task", "-o", s.path("p.tsv")])
    rows, each = read(s.path("t.tsv")), read(s.path("p.tsv"))
    s.check("a row each", len(rows) == 42 and len(each) == n_tasks * 42)
    dlogp, took = np.zeros((n_tasks, 3, len(ROWS))), np.zeros((n_tasks, 3, len(ROWS)))
    n_right = 0
    for k, t in enumerate(tasks):
        own = hashed(seed, k, 0, 0)
        base = answer(model, t, [[[]] * model.kv_heads] * model.layers)[0]
        for g, heads in enumerate(groups_of(shares, k, looking)):
            for row, (what, dose, _) in enumerate(ROWS):
                lost = [lost_by(t, w[k][h], row, own, h) if h in heads else [] for h in range(len(w[k]))]
                logp, right = answer(model, t, np.array(lost + [None], object)[:-1].reshape(model.layers, model.kv_heads))
                dlogp[k, g, row] = logp - base
                n_right += right
                x = each[(k * 3 + g) * len(ROWS) + row]
                name = f"model {model_number}, task {k}, {GROUPS[g]}, {what} {dose}"
                s.check(name + ": the row", (x["task"], x["group"], x["removed"]) == (t["name"], GROUPS[g], what), x)
                s.check(name + ": ln p", abs(number(x["logp"]) - logp) < 1e-4 and abs(number(x["dlogp"]) - logp + base) < 1e-4, x, (logp, base))
                s.check(name + ": right", x["right"] == str(int(right)), x, right)
                gone = [w[k][h, lost[h]].sum() for h in heads]
                left = [w[k][h, sorted(set(t["evidence"]) - set(lost[h]))].sum() for h in heads]
                took[k, g, row] = np.mean(gone) if gone else np.nan
                want = [np.mean(gone), np.mean([len(lost[h]) for h in heads]), np.mean([b / (1 - a) for a, b in zip(gone, left)])]
                found = [number(x[c]) for c in ("mass", "entries", "evidence_share")]
                s.check(name + ": what left", np.allclose(found, want, atol=1e-5, equal_nan=True), found, want)
    for g in range(3):
        for row, (what, dose, against) in enumerate(ROWS):
            x, v = rows[g * len(ROWS) + row], dlogp[:, g, row]
            found = [number(x[c]) for c in ("dlogp", "dlogp_low", "dlogp_high")]
            half = T_975.get(n_tasks, np.nan) * v.std(ddof=1) / math.sqrt(n_tasks)
            s.check(f"mean and interval, {GROUPS[g]}, {what} {dose}", np.allclose(found, [v.mean(), v.mean() - half, v.mean() + half], atol=1e-4, equal_nan=True), found)
            c, masses = number(x["contrast"]), took[:, g, [row, row if against is None else against]].mean(0)
            fair = against is not None and abs(masses[0] - masses[1]) <= .1 * masses.max()
            s.check(f"matched, {GROUPS[g]}, {what} {dose}", x["matched"] == ("" if against is None else "yes" if fair else "no"), x, masses)
            want = (v - dlogp[:, g, against]).mean() if fair else float("nan")
            s.check(f"contrast, {GROUPS[g]}, {what} {dose}", x["against"] == ("" if against is None else ROWS[against][0]) and
                    (abs(c - want) < 1e-4 if fair else math.isnan(c)), x, want)
            if what != "random" and dose is None:  # in each head, so in their mean; only random entries can be too few
                s.check(f"no more than distractors, {GROUPS[g]}, {what}", not np.any(took[:, g, row] > took[:, g, 8] + 1e-9), took[:, g, row], took[:, g, 8])
    s.check("evidence and distractors count for something", np.abs(dlogp[:, 0, [1, 8]]).min() > 1e-4, dlogp[:, 0])
    return argv


def invariants(argv):
    out = []
    for more in (["-t", "1"], ["-t", "2", "--chunk", "7"]):
        s.accepted("again", [*argv, *more, "-o", s.path("again.tsv")])
        out.append(open(s.path("again.tsv"), "rb").read())
    s.check("threads and chunks change nothing", out[0] == out[1])
    rows = read(s.path("again.tsv"))
    s.check("nothing removed, nothing changed", all(number(r[c]) == 0 for r in rows for c in ("dlogp", "mass", "entries") if r["removed"] == "nothing"))
    s.accepted("another seed", [*argv, "--seed", "77", "-o", s.path("other.tsv")])
    other = read(s.path("other.tsv"))
    drawn = [a["dlogp"] != b["dlogp"] for a, b in zip(rows, other) if a["removed"] == "random"]
    fixed = [a["dlogp"] == b["dlogp"] for a, b in zip(rows, other) if a["removed"] == "evidence"]
    s.check("the seed draws", any(drawn) and all(fixed))
    s.accepted("one head", [*argv, "--head", "L1K0", "-o", s.path("one.tsv")])
    one = read(s.path("one.tsv"))
    same = [(a["dlogp"], b["dlogp"]) for a, b in zip(one[:14], one[14:28])]
    s.check("a single head is the one that looks", all(a == b for a, b in same) and all(r["mass"] == "nan" for r in one[28:]), same)
    r = s.accepted("in words", argv)
    words = r.stdout.decode()
    s.check("in words", words.startswith("3 tasks; nats per answer") and "3 tasks cannot show a difference: give 6 or more" in words, words)
    s.refused("a task that is given twice", [*argv, argv[3]], 2, "would count twice")
    r = s.accepted("JSON", [*argv, "--json"])
    s.check("JSON", json.loads(r.stdout)["name"] == "causal")


def of_needle():
    """The output of `kvfate tasks needle` is a task, and its reply has the answers at the stated
    places."""
    s.accepted("needle", ["tasks", "needle", "--words", "200", "--keys", "3", "--queries", "2", "--values", "2", "-o", s.path("hay")])
    with open(s.path("hay.json")) as f:
        j = json.load(f)
    text = j["reply"]["text"]
    s.check("the reply has the answers", [text[a:b] for a, b in j["reply"]["values"]] == j["answers"] and len(j["answers"]) == 4, j)
    s.check("and is a sentence", text.startswith("The numbers of the ") and " are " in text and text.endswith("."), text)


def bad():
    t = make_task(s, "bad", 99)
    good = t["task"]

    def refused(what, task, *words, code=1):
        s.file("bad.json", json.dumps(task).encode() if not isinstance(task, bytes) else task)
        s.refused(what, ["ablate", "--as", "causal", s.path("bad.json"), "-m", s.model(), "--raw"], code, *words)
    refused("no reply", {"spans": good["spans"]}, "bad.json", "reply")
    refused("no values", {**good, "reply": {"text": "a"}}, "reply")
    refused("values outside", {**good, "reply": {"text": "abc", "values": [[0, 9]]}}, "value 1", "3")
    refused("values backwards", {**good, "reply": {"text": "abc", "values": [[2, 1]]}}, "value 1")
    refused("values of three", {**good, "reply": {"text": "abc", "values": [[0, 1, 2]]}}, "value 1")
    refused("no question", {**good, "spans": good["spans"][:2]}, "question")
    refused("no evidence", {**good, "spans": good["spans"][2:]}, "useful")
    refused("a useful question", {**good, "spans": [*good["spans"][:2], {**good["spans"][2], "useful": True}]}, "question")
    refused("evidence behind the question", {**good, "spans": [{"name": "question", "useful": False, "start": 0, "end": 3}, *good["spans"][:2]]}, "before the question")
    refused("no JSON", b"{", "bad.json")
    spans = [{**x, "start": x["start"] + 2, "end": x["end"]} if x["name"] == "question" else x for x in good["spans"]]
    s.file("bad.json", json.dumps({**good, "spans": spans}).encode())
    s.refused("a token of context and question", ["ablate", "--as", "causal", s.path("bad.json"), "-m", s.model(), "--raw", "--question", "unknown"], 1, "bad.json", "question")
    s.refused("no such file", ["ablate", "--as", "causal", s.path("none.json"), "-m", s.model()], 1, "none.json")
    s.refused("another name", ["ablate", "--as", "causal", s.path("bad.txt"), "-m", s.model()], 2, "NAME.json")
    s.refused("no operand", ["causal"], 2)
    s.file("bad.json", json.dumps(good).encode())
    os.unlink(s.path("bad.txt"))
    s.refused("no text", ["ablate", "--as", "causal", s.path("bad.json"), "-m", s.model()], 1, "bad.txt")
    make_task(s, "bad", 99)
    s.refused("onto its own task", ["ablate", "--as", "causal", s.path("bad.json"), "-m", s.model(), "-o", s.path("bad.json")], 2, "bad.json")
    s.refused("a picture of tasks", ["ablate", "--as", "causal", s.path("bad.json"), "-m", s.model(), "--per-task", "-o", s.path("x.png")], 2, "no figure")
    s.refused("no heads", ["ablate", "--as", "causal", s.path("bad.json"), "-m", s.model(), "--head", "L9K9"], 2, "L9K9")


brute_force(0, .3, 5, question="unknown")
argv = brute_force(0, .3, 5)
brute_force(1, 1, 0, 4)
invariants(argv)
of_needle()
bad()
s.finish()
