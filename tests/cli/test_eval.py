#!/usr/bin/env python3
"""eval: compared with a float64 model with evictions by hand; its invariants; resuming; bad
input."""
import gzip
import json
import os
import re
import random
import signal
import subprocess
import sys
import time

import numpy as np

from harness import Suite

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "oracle"))
import tiny_llama  # noqa: E402
from results import signed  # noqa: E402
from tasks import WORDS, make_task, prepare  # noqa: E402

s = Suite()
P, S, B = 40, 12, 16
SHAPE = ["--prompt-tokens", str(P), "--score-tokens", str(S)]


def prose(rng, title, n):
    return f" = {title} = \n \n " + " ".join(rng.choice(WORDS) for _ in range(n)) + " . \n \n = = Part = = \n \n it ran . \n"


rng = random.Random(4)
ARTICLES = [prose(rng, f"Title {i}", 90) for i in range(4)]
TEXT = s.file("text.txt", ("lost before the first heading\n" + "".join(ARTICLES)).encode())


def token_ids(text, model):
    path, trace = s.file("one.txt", text.encode()), s.path("one.kvf")
    s.run(["run", "--overwrite", "-m", s.model(model), "--raw", "-f", path, "-n", "1", "-q", "--probes", "lean", "-o", trace])
    rows = s.run(["tokens", trace, "-o", "-"]).stdout.decode("utf-8", "replace").splitlines()
    rows = [r.split("\t") for r in rows if not r.startswith("#")]
    at, role = rows[0].index("id"), rows[0].index("role")
    return [int(r[at]) for r in rows[1:] if r[role] == "prompt"]


def fnv(ids):
    h = 0xCBF29CE484222325
    for i in ids:
        for b in i.to_bytes(4, "little"):
            h = ((h ^ b) * 0x100000001B3) % 2**64
    return f"{h:016x}"


left_out = set()  # of all methods, as the program reports it


def evaluate(*argv, model=0, data=(TEXT,), name="out.tsv", shape=SHAPE):
    """Returns the rows of the table as dictionaries."""
    out = s.path(name)
    files = [a for path in data for a in ("--data", path)]
    r = s.accepted("eval " + " ".join(argv), ["eval", "-m", s.model(model), *files, *shape, *argv, "-o", out])
    s.check("says its pace", re.search(r"^\d+ cells .* a minute$", r.stderr.decode(), re.M), r.stderr)
    left_out.update(r.stderr.decode().partition("budget:")[2].partition("\n")[0].split())
    return table(out)


def table(path):
    with open(path) as f:
        rows = [line.rstrip("\n").split("\t") for line in f if not line.startswith("#")]
    return [dict(zip(rows[0], r)) for r in rows[1:]]


def state_rows(path):
    with open(path) as f:
        rows = [line.rstrip("\n").split("\t") for line in f if not line.startswith("#")]
    return [dict(zip(rows[0], r)) for r in rows[1:]]


# ---- brute force

def keep_window(run, layer, head, alive, room, recent_from):
    old = [p for p in alive if p >= 2 and p < recent_from]
    return sorted(old)[: len(alive) - room]


def keep_h2o(run, layer, head, alive, room, recent_from):
    old = [p for p in alive if p < recent_from]
    per = run.m.heads // run.m.kv_heads
    received = run.rows[layer, head * per : (head + 1) * per].sum(axis=(0, 1))
    return sorted(old, key=lambda p: (received[p], p))[: len(alive) - room]


def cut(run, victims, room, recent_from):
    any_cut = False
    for layer in range(run.m.layers):
        for head in range(run.m.kv_heads):
            alive = run.alive[layer][head]
            if victims and len(alive) > room:
                any_cut = True
                for p in victims(run, layer, head, list(alive), room, recent_from):
                    run.evict(layer, head, p)
    return any_cut


def log_softmax(z):
    top = z.max()
    return z - top - np.log(np.exp(z - top).sum())


def replay(model, ids, victims, recent):
    """Returns log p of each of the S tokens' positions [S, vocab], cached entries, decisions that
    evict."""
    run, logits = tiny_llama.prompted(model, ids[:P], len(ids))
    out, held, cuts = [], [], 0
    cuts += cut(run, victims, B, P - recent)
    for t in range(P, P + S):
        out.append(log_softmax(logits))
        cuts += cut(run, victims, B - 1, t + 1 - recent)
        logits = run.feed(ids[t])
        held.append(np.mean([len(a) for layer in run.alive for a in layer]))
    return np.array(out), held, cuts


def brute_force(model):
    oracle = tiny_llama.Llama(s.model(model))
    texts = [a[:200] for a in ARTICLES]  # more than P + S tokens
    documents = [ids[: P + S] for ids in (token_ids(t, model) for t in texts)]
    by_hash = {fnv(ids): ids for ids in documents}
    methods = {"full": (None, 0), "window:sinks=2": (keep_window, B - 2), "h2o:recent=3": (keep_h2o, 3)}
    state = s.path(f"brute{model}.tsv")
    found = evaluate("--methods", ",".join(methods), "--budgets", str(B), "--docs", "3", "--seed", "7", "--exact",
                     "--state", state, model=model)
    chosen = list(dict.fromkeys(r["doc_hash"] for r in state_rows(state)))
    s.check(f"model {model}: documents are those that start at headings", len(chosen) == 3 and set(chosen) <= set(by_hash), chosen, list(by_hash))
    for row in found:
        victims, recent = methods[row["method"]]
        want = {"nll": [], "kl": [], "top1_agree": [], "kv_end": [], "kv_mean": [], "kv_peak": [], "triggers": []}
        for ids in (by_hash[h] for h in chosen):
            full, _, _ = replay(oracle, ids, None, 0)
            q, held, cuts = replay(oracle, ids, victims, recent)
            want["nll"].append(-np.mean([q[i, ids[P + i]] for i in range(S)]))
            want["kl"].append((np.exp(full) * (full - q)).sum(axis=1).mean())
            want["top1_agree"].append((full.argmax(1) == q.argmax(1)).mean())
            want["kv_end"].append(held[-1])
            want["kv_mean"].append(np.mean(held))
            want["kv_peak"].append(max(held))
            want["triggers"].append(cuts)
        for key, values in want.items():
            near = abs(float(row[key]) - np.mean(values)) <= 2e-5 * max(1, abs(np.mean(values)))
            s.check(f"model {model}, {row['method']}: {key}", near, f"{row[key]}, by brute force {np.mean(values)}")
        s.check("docs and tokens", row["docs"] == "3" and row["tokens"] == str(3 * S), row)
        s.check("three documents have no interval", [row[k] for k in ("nll_low", "nll_high", "kl_low", "kl_high")] == ["nan"] * 4, row)
    s.check("a method that cuts differs from full", float(found[1]["kl"]) > 1e-6, found[1]["kl"])


def intervals():
    """Student's t over 4 documents, with the values in the state file."""
    row = evaluate("--methods", "window", "--budgets", str(B), "--docs", "4", "--state", s.path("four.state"))[0]
    for key in ("nll", "kl"):
        v = np.array([float(r[key]) for r in state_rows(s.path("four.state"))])
        half = 3.182446305284263 * v.std(ddof=1) / 2  # t(0.975) of 3 degrees of freedom, from tables
        found = [float(row[key + "_low"]), float(row[key + "_high"])]
        s.check(f"{key}: the interval of 4 documents", len(v) == 4 and half > 0 and np.allclose(found, [v.mean() - half, v.mean() + half], atol=1e-7), found, v)


def of_tasks():
    """Prompts with answers: only the answer's tokens are scored, and it is right if all of them are
    the most likely."""
    global P, S
    oracle, shape = tiny_llama.Llama(s.model()), (P, S)
    tasks = [prepare(s, make_task(s, f"task{i}", 40 + i), s.model()) for i in range(4)]
    methods = {"full": (None, 0), "h2o:recent=3": (keep_h2o, 3)}
    argv = ["eval", "-m", s.model(), "--raw", "--exact", "--methods", ",".join(methods), "--budgets", str(B), "--tasks", *(t["name"] + ".json" for t in tasks)]
    state = ["--state", s.path("tasks.state")]
    s.accepted("tasks", [*argv, *state, "-o", s.path("tasks.tsv")])
    rows, each = table(s.path("tasks.tsv")), state_rows(s.path("tasks.state"))
    n_tokens = 0
    for k, (method, (victims, recent)) in enumerate(methods.items()):
        rights, nlls = [], []
        for i, t in enumerate(tasks):
            P, last = t["reply_at"], t["query"] + t["steps"]
            S = last + 1 - P
            ids = t["ids"][: last + 1]
            q, held, _ = replay(oracle, ids, victims, recent)
            full = replay(oracle, ids, None, 0)[0]
            at = [j for j in range(S) if P + j > t["query"] and t["scored"][P + j - t["query"] - 1]]
            n_tokens += len(at) if k == 0 else 0
            nlls.append(-np.mean([q[j, ids[P + j]] for j in at]))
            kl = np.mean([(np.exp(full[j]) * (full[j] - q[j])).sum() for j in at])
            rights.append(all(q[j].argmax() == ids[P + j] for j in at))
            r = each[i * 2 + k]
            found = [float(r[c]) for c in ("nll", "kl", "right", "kv_mean")]
            s.check(f"task {i}, {method}", np.allclose(found, [nlls[-1], kl, rights[-1], np.mean(held)], atol=2e-5, rtol=2e-5), found, nlls[-1], kl, rights[-1])
        r = rows[k]
        s.check(f"tasks, {method}: means", abs(float(r["nll"]) - np.mean(nlls)) < 1e-4 and float(r["right"]) == np.mean(rights) and r["tokens"] == str(n_tokens), r)
        p, z = np.mean(rights), 1.959963984540054
        centre, half = p + z * z / 8, z * np.sqrt(p * (1 - p) / 4 + z * z / 64)
        want = [0 if p == 0 else (centre - half) / (1 + z * z / 4), 1 if p == 1 else (centre + half) / (1 + z * z / 4)]
        s.check(f"tasks, {method}: interval", np.allclose([float(r["right_low"]), float(r["right_high"])], want), r, want)
    P, S = shape
    body = open(s.path("tasks.tsv"), "rb").read()
    s.accepted("tasks, from the state", [*argv, *state, "-o", s.path("again.tsv")])
    s.check("tasks, from the state: the same", open(s.path("again.tsv"), "rb").read() == body)
    r = s.accepted("tasks, printed", argv)
    s.check("tasks, printed", r.stdout.decode().startswith("4 tasks; nats per token of the answer") and "right" in r.stdout.decode().splitlines()[1], r.stdout)
    against_full(argv, state, [t["query"] + t["steps"] + 1 for t in tasks])
    for y in ("right", "kept,x=budget"):
        s.accepted(f"tasks, drawn by {y}", [*argv, "-o", s.path("tasks.svg"), "--style", "y=" + y])
    s.refused("tasks and documents", [*argv, "--data", TEXT], 2, "--data", "--tasks")
    s.refused("over a task", [*argv[:-4], tasks[0]["name"] + ".json", "-o", tasks[0]["name"] + ".json"], 2, "task0.json")
    s.refused("no task", [*argv[:-4], s.path("none.json")], 1, "none.json")
    s.refused("a state of documents", [*argv, "--state", s.path("brute0.tsv")], 1, "other settings")
    apart = [*argv, "--question", "unknown", "--state", s.path("apart.state")]
    s.accepted("question unknown", apart)
    s.refused("a state of unknown questions", [*argv, "--state", s.path("apart.state")], 1, "other settings", '"# question: unknown", which this run lacks')
    s.refused("a state of known questions", [*argv, "--question", "unknown", *state], 1, "other settings", 'without "# question: unknown"')


def against_full(argv, state, fed):
    """Compares above, below and p_full of answers in the file of results with all splits one by
    one, and the entries that right answers kept of the tokens."""
    lines = open(s.path("tasks.state"), encoding="utf-8").read().split("\n")
    at = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    name = lines[at].split("\t")
    s.check("the checksums are those of the package", signed(lines, at) == lines)
    for full, other in (("1111", "0000"), ("0111", "1011"), ("1010", "1010"), ("0000", "1100")):
        told = list(lines)
        for i in range(4):
            for k, right in enumerate((full[i], other[i])):
                cells = told[at + 1 + 2 * i + k].split("\t")
                cells[name.index("right")] = right
                told[at + 1 + 2 * i + k] = "\t".join(cells)
        with open(state[1], "w", encoding="utf-8") as f:
            f.write("\n".join(signed(told, at)))
        s.accepted(f"answers {full} {other}", [*argv, *state, "-o", s.path("split.tsv")])
        whole, row = table(s.path("split.tsv"))[:2]
        above, below = sum(a < b for a, b in zip(full, other)), sum(a > b for a, b in zip(full, other))
        n = above + below
        p = np.mean([abs(2 * bin(x).count("1") - n) >= abs(above - below) for x in range(1 << n)])
        s.check(f"answers {full} {other}: against the full cache", [float(row["above"]), float(row["below"])] == [above, below]
                and abs(float(row["p_full"]) - p) < 1e-12, row, p)
        ends = [float(told[at + 2 + 2 * i].split("\t")[name.index("kv_end")]) for i in range(4)]
        kept = [end / n for end, n, right in zip(ends, fed, other) if right == "1"]
        s.check(f"answers {full} {other}: kept of right answers", np.isclose(float(row["kept"]), np.mean(kept) if kept else np.nan, equal_nan=True)
                and np.isclose(float(whole["kept"]), 1 if "1" in full else np.nan, equal_nan=True), row, whole, kept)
        s.check(f"answers {full} {other}: floor", ("# ranking: none" in open(s.path("split.tsv"), encoding="utf-8").read()) == (full == "0000"))
    with open(state[1], "w", encoding="utf-8") as f:
        f.write("\n".join(lines))


# ---- invariants

def invariants():
    most = str(P + S)
    big = evaluate("--budgets", most, "--docs", "2", model=5)
    reading = evaluate("--budgets", most, "--docs", "2", "--methods", "full,rocketkv:reads=" + most, model=5)
    names = {m["name"] for m in json.loads(s.run(["methods", "--json"]).stdout)}
    s.check("all methods ran", {r["method"] for r in big} | left_out == names and len(big) > 18, sorted(left_out))
    s.check("but for those that need more", left_out <= {"trimkv", "dbtrimkv", "locret", "wgkv", "wgkv-snapkv", "wgkv-quest", "seer", "duo", "mass-greedy", "plan"}, left_out)
    for r in [r for r in big if r["method"] != "rocketkv"] + reading:  # rocketkv reads less than it holds, unless reads= says all
        exact = r["kl"] == "0" and r["top1_agree"] == "1" and r["nll"] == big[0]["nll"] and r["triggers"] == "0"
        s.check(f"{r['method']} with room for all is full", exact, r)
    # Execution options change no byte.
    outs = []
    for i, more in enumerate((["-t", "1"], ["-t", "2", "--chunk", "7"])):
        evaluate("--budgets", "12,20", "--docs", "3", *more, model=6, name=f"same{i}.tsv")
        with open(s.path(f"same{i}.tsv"), "rb") as f:
            outs.append(f.read())
    s.check("threads and chunks change nothing", outs[0] == outs[1])
    # Separately, and together with others.
    together = {(r["method"], r["budget"]): r for r in table(s.path("same0.tsv"))}
    for name in ("h2o", "snapkv", "random"):
        for r in evaluate("--budgets", "20", "--docs", "3", "--methods", name, model=6):
            s.check(f"{name} alone", r == together[(name, "20")], r, together[(name, "20")])
    # The first documents of a longer selection are equal.
    evaluate("--budgets", "12", "--methods", "window", "--docs", "2", "--state", s.path("few.tsv"))
    evaluate("--budgets", "12", "--methods", "window", "--docs", "3", "--state", s.path("many.tsv"))
    s.check("more documents continue fewer", state_rows(s.path("many.tsv"))[:2] == state_rows(s.path("few.tsv")))
    # Options of a method contain commas.
    rows = evaluate("--budgets", "12", "--methods", "snapkv:window=2,pool=3,tova,h2o:recent=2", "--docs", "2")
    s.check("a list of methods with options", [r["method"] for r in rows] == ["snapkv:window=2,pool=3", "tova", "h2o:recent=2"], rows)
    r = s.accepted("--json", ["eval", "-m", s.model(), "--data", TEXT, *SHAPE, "--methods", "full,h2o", "--budgets", "12", "--docs", "1", "--json"])
    j = json.loads(r.stdout)
    s.check("JSON", j["name"] == "eval" and j["data"]["method"] == ["full", "h2o"] and j["data"]["nll_low"] == [None, None], j)


# ---- gates

def gated():
    """Methods with random gates: separately or together, for any number of threads, and with a
    budget for all entries."""
    maker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "make_gates.py")
    meta = s.run(["eval", "-m", s.model(), "--data", TEXT, *SHAPE, "--docs", "1", "--methods", "full", "--json"])
    meta = json.loads(meta.stdout)["meta"]
    files = []
    for layout in ("rg", "wgkv", "locret", "duo", "seer"):
        path = s.path(layout + ".safetensors")
        subprocess.run([sys.executable, maker, "--layout", layout, "--layers", "2", "--heads", "4", "--kv-heads", "2",
                        "--head-dim", "16", "--d-model", "64", "--seed", "3", "--model-hash", meta["model_hash"], "-o", path], check=True)
        files += ["--gates", path]
    left_out.clear()
    rows = evaluate(*files, "--budgets", "12,52", "--docs", "2", "-t", "1", name="gates1.tsv")
    s.check("only plans are missing", left_out == {"mass-greedy", "plan"}, left_out)
    evaluate(*files, "--budgets", "12,52", "--docs", "2", "-t", "2", "--chunk", "9", name="gates2.tsv")
    s.check("threads and chunks change nothing", open(s.path("gates1.tsv")).read() == open(s.path("gates2.tsv")).read())
    for r in rows:
        if r["method"] in ("trimkv", "dbtrimkv", "locret"):
            # locret stores keys without rotation: equal except for rounding of the stored numbers.
            room = float(r["kl"]) < 1e-4 if r["method"] == "locret" else r["kl"] == "0"
            less = float(r["kl"]) > 1e-3 and float(r["kv_end"]) <= 12
            s.check(f"{r['method']} at {r['budget']}", room if r["budget"] == "52" else less, r)
    alone = evaluate(*files[:2], "--methods", "trimkv", "--budgets", "12", "--docs", "2")
    s.check("trimkv alone", alone == [r for r in rows if (r["method"], r["budget"]) == ("trimkv", "12")], alone)
    s.refused("no gates", ["eval", "-m", s.model(), "--data", TEXT, *SHAPE, "--methods", "trimkv"], 2, "needs retention gates")
    s.refused("gates of another model", ["eval", "-m", s.model(7), "--data", TEXT, *SHAPE, *files[:2]], 2, "rg.safetensors")


def shipped():
    """Without --gates, each method uses the file for its name and model; the record includes the
    file."""
    maker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "make_gates.py")
    meta = json.loads(s.run(["eval", "-m", s.model(), "--data", TEXT, *SHAPE, "--docs", "1", "--methods", "full", "--json"]).stdout)["meta"]
    os.mkdir(s.path("shipped"))
    env, path, digest = {**os.environ, "KVFATE_GATES": s.path("shipped")}, {}, {}
    for i, (name, layout) in enumerate((("trimkv", "rg"), ("dbtrimkv", "rg10"), ("wgkv", "wgkv"))):
        path[name] = s.path(f"shipped/tiny-{name}.safetensors")
        subprocess.run([sys.executable, maker, "--layout", layout, "--layers", "2", "--heads", "4", "--kv-heads", "2", "--head-dim", "16",
                        "--d-model", "64", "--seed", str(i), "--model-hash", meta["model_hash"], "-o", path[name]], check=True)
        digest[name] = json.loads(s.run(["trace", "info", "--json", path[name]]).stdout)["hash"]
    s.check("three files", len(set(digest.values())) == 3, digest)
    served = {"trimkv": "trimkv", "dbtrimkv": "dbtrimkv", "wgkv": "wgkv", "wgkv-snapkv": "wgkv", "wgkv-quest": "wgkv", "h2o": None}
    argv = ["eval", "-m", s.model(), "--data", TEXT, *SHAPE, "--budgets", "12", "--docs", "2"]

    def play(name, *more):
        r = s.accepted("shipped: " + name, [*argv, *more, "--state", s.path(name + ".state"), "-o", s.path(name + ".tsv")], env=env)
        return table(s.path(name + ".tsv")), state_rows(s.path(name + ".state")), r.stderr.decode()

    rows, state, err = play("by-default", "--methods", ",".join(served))
    for r in rows:
        s.check(f"{r['method']}: the table names its gates", r["gates"] == digest.get(served[r["method"]], ""), r)
    for r in state:
        gates = dict(o.split("=", 1) for o in r["options"].split(",")).get("gates")
        s.check(f"{r['method']}: the state names its gates", gates == digest.get(served[r["method"]]), r)
    s.check("all rows, and a note for each file", len(rows) == 6 and len(state) == 12 and sorted(re.findall("note: --gates (.*), which are shipped for this model", err)) == sorted(path.values()), err)
    every, _, _ = play("all", "--methods", "all")
    s.check("all takes them, too", [r for r in every if r["method"] in served] and all(r["gates"] == digest.get(served.get(r["method"]), "") for r in every), every)
    # One method at a time with its file given has the same row.
    for name in ("trimkv", "dbtrimkv", "wgkv-snapkv"):
        alone, _, err = play(name, "--methods", name, "--gates", path[served[name]])
        s.check(f"{name}: as with --gates", alone == [r for r in rows if r["method"] == name] and "note: --gates" not in err, alone, err)
    # A file of each kind; the shipped file is used for a missing one.
    both, _, err = play("both", "--methods", "dbtrimkv,wgkv,trimkv", "--gates", path["trimkv"], "--gates", "tiny-wgkv")
    s.check("a file of each kind", [r["gates"] for r in both] == [digest["trimkv"], digest["wgkv"], digest["trimkv"]] and "note: --gates" not in err, both)
    one, _, err = play("one", "--methods", "dbtrimkv,wgkv", "--gates", path["trimkv"])
    s.check("and shipped ones of another", [r["gates"] for r in one] == [digest["trimkv"], digest["wgkv"]] and err.count("note: --gates") == 1, one, err)
    s.refused("two of a kind", [*argv, "--methods", "trimkv", "--gates", path["trimkv"], "--gates", path["dbtrimkv"]], 2, "tiny-trimkv", "tiny-dbtrimkv", "one file of each kind")
    # A state separates rows with other gates.
    again, state, _ = play("both", "--methods", "trimkv", "--gates", path["dbtrimkv"])
    s.check("other gates are another row", again[0]["gates"] == digest["dbtrimkv"] and again[0]["kl"] != both[2]["kl"] and len(state) == 8, again, state)


def loss_against_size():
    """Rows of one method with different options are distinguished, and list their cached
    entries."""
    argv = ["eval", "-m", s.model(), "--data", TEXT, *SHAPE, "--docs", "2", "--gates", s.path("wgkv.safetensors"),
            "--methods", "wgkv:tau=0.05,wgkv:tau=0.5,wgkv:local=4,tau=0.95,h2o", "--budgets", "12"]
    labels = ["wgkv:tau=0.05", "wgkv:tau=0.5", "wgkv:local=4,tau=0.95", "h2o"]
    r = s.accepted("printed", [*argv, "--state", s.path("tau.state")])
    s.accepted("written", [*argv, "--state", s.path("tau.state"), "-o", s.path("tau.tsv")])
    s.accepted("drawn", [*argv, "--state", s.path("tau.state"), "-o", s.path("tau.svg"), "--style", "y=nll"])
    picture = open(s.path("tau.svg")).read()
    s.check("all rows in the figure", all(x in picture for x in [*labels, "Pareto front", "negative log likelihood"]), picture[-500:])
    s.refused("a figure without that axis", [*argv, "--state", s.path("tau.state"), "-o", s.path("tau.svg"), "--style", "y=loss"], 2, "y is kl, nll, top1_agree, right or kept")
    rows = table(s.path("tau.tsv"))
    s.check("as typed in the table", [x["method"] for x in rows] == labels, rows)
    s.check("higher thresholds hold less", [float(x["kv_mean"]) for x in rows[:3]] == sorted((float(x["kv_mean"]) for x in rows[:3]), reverse=True)
            and len({x["kv_mean"] for x in rows[:3]}) == 3, rows)
    lines = [x.split() for x in r.stdout.decode().splitlines()]
    s.check("as typed in print", [x[0] for x in lines[2:]] == labels, lines)
    s.check("the entries held on average, at most and at the end", lines[1][-4:] == ["entries", "peak", "at", "end"]
            and all(x[-3:] == [f"{float(y[k]):.1f}" for k in ("kv_mean", "kv_peak", "kv_end")] for x, y in zip(lines[2:], rows)), lines)
    state = {(x["method"], x["options"]) for x in state_rows(s.path("tau.state"))}
    s.check("and in the state", sorted(m for m, _ in state) == sorted(labels) and len(state) == 4, state)


def equal_budgets():
    """Rows of one budget with unequal numbers of cached entries are reported, and settings derived
    from the budget are columns."""
    argv = ["eval", "-m", s.model(), "--data", TEXT, *SHAPE, "--docs", "2", "--budgets", "8,12"]

    def play(methods):
        r = s.accepted(methods, [*argv, "--methods", methods, "-o", s.path("memory.tsv")])
        head = dict(line[2:].split(": ", 1) for line in open(s.path("memory.tsv")).read().splitlines() if line.startswith("# ") and ": " in line)
        return table(s.path("memory.tsv")), head.get("unequal_memory"), r.stderr.decode()
    rows, told, err = play("snapkv,rkv:every=4,h2o,full")
    held = {(x["method"], x["budget"]): (float(x["kv_mean"]), float(x["kv_peak"])) for x in rows}
    want = [f"budget {b}: {what} rkv:every=4 {held['rkv:every=4', b][k]:.1f}, snapkv {held['snapkv', b][k]:.1f}"
            for k, what in enumerate(("on average", "at most")) for b in ("8", "12") if held["snapkv", b][k] > 1.02 * held["rkv:every=4", b][k]]
    s.check("unequal memory is told", len(want) >= 2 and told == "; ".join(want) and told in err and "note:" in err, told, want, err)
    setting = {(x["method"], x["budget"], k): x[k] for x in rows for k in ("sinks", "recent", "window", "every", "local")}
    # A quarter of the budget, limited to the published value; the rest as given.
    wanted = {("snapkv", "8", "window"): "2", ("snapkv", "12", "window"): "3", ("snapkv", "12", "recent"): "3", ("rkv:every=4", "12", "every"): "4",
              ("h2o", "12", "recent"): "6", ("h2o", "12", "window"): "nan", ("full", "0", "every"): "nan", ("snapkv", "8", "local"): "nan"}
    s.check("settings that follow from the budget", all(setting[k] == v for k, v in wanted.items()), {k: setting[k] for k in wanted})
    for methods in ("snapkv,h2o,pyramidkv,cake,ada-pyramidkv,adakv,expected-attention", "snapkv", "full,snapkv:window=2"):
        rows, told, err = play(methods)
        s.check(f"{methods}: equal memory, and nothing is told", told is None and "note:" not in err and
                all(float(x["kv_mean"]) == float(x["kv_peak"]) == float(x["budget"]) for x in rows if x["method"] != "full"), told, err, rows)


# ---- documents

def jsonl():
    lines = [{"question": " ".join(WORDS[i : i + 5]), "answer": "it is " + WORDS[i]} for i in range(14)]
    path = s.file("d.jsonl", "\n".join(json.dumps(o) for o in lines).encode() + b"\n\n")
    texts = [o["question"] + "\n" + o["answer"] for o in lines]
    want, at = [], 0
    while at < len(texts):  # joined by blank lines until long enough
        for end in range(at + 1, len(texts) + 1):
            ids = token_ids("\n\n".join(texts[at:end]), 0)
            if len(ids) >= P + S:
                want.append(fnv(ids[: P + S]))
                break
        else:
            break
        at = end
    state = s.path("jsonl.tsv")
    evaluate("--methods", "full", "--docs", str(len(want)), "--state", state, data=[path])
    s.check("JSONL lines are joined", len(want) >= 3 and sorted(want) == sorted(r["doc_hash"] for r in state_rows(state)), want)
    marked = s.path("marked.state")
    with open(path, "rb") as f:
        evaluate("--methods", "full", "--docs", str(len(want)), "--state", marked, data=[s.file("marked.jsonl", b"\xef\xbb\xbf" + f.read())])
    s.check("a byte-order mark is no text", [(r["doc_hash"], r["nll"]) for r in state_rows(marked)] == [(r["doc_hash"], r["nll"]) for r in state_rows(state)])
    words = "expected plain text, or JSONL"
    for name, data, said in (("x.txt", b'[{"text": "a b"}]', words), ("x.txt", b'[\n{"text": "a b"},\n{"text": "c d"}]\n', words), ("x.txt", b'{\n"text": "a b"\n}\n', words),
                             ("x.txt", b'["a b c"]\n["d e f"]\n', words), ("x.txt", b"text,label\na b c,1\n", "CSV"),
                             ("x.txt", b"id\tquestion\tanswer\n1\ta\tb\n", "CSV or TSV"), ("x.csv", b"a b c\n", "CSV"), ("x.jsonl", b"a b c\n", "JSONL"),
                             ("x.txt", '{"text": "a b"}\n'.encode("utf-16"), "UTF-16"), ("x.txt", "a b c d".encode("utf-16-le"), "UTF-16"), ("x.txt", "a b c".encode("utf-32"), "UTF-32"),
                             ("x.txt", gzip.compress(b'{"text": "a b"}\n'), "gzip"), ("x.txt", b"PAR1\x15" + bytes(60), "Parquet"), ("x.txt", b'{"text": "a\\u0000b"}\n', "NUL"),
                             ("x.txt", "caf\u00e9 au lait".encode("latin-1"), "not valid UTF-8"), ("x.txt", b"a b\0c d e f g h", "NUL")):
        s.refused(f"data: {data[:24]!r}", ["eval", "-m", s.model(), "--data", s.file(name, data), *SHAPE, "--docs", "1"], 1, name, said)
    for name, text in (("a title in brackets", "[Verse 1]\n"), ("a quotation", '"So it goes."\n"Yes."\n'), ("a word in capitals", "PAR1 is a gene, ARROW1 a name.\n"), ("a list of words", "text, label and more\n")):
        evaluate("--methods", "full", "--docs", "1", data=[s.file("prose.txt", (text + ARTICLES[0]).encode())])
    s.refused("one document more", ["eval", "-m", s.model(), "--data", path, *SHAPE, "--docs", str(len(want) + 1)], 1, "have", str(len(want)))


# ---- resuming

def resuming():
    argv = ["eval", "-m", s.model(5), "--data", TEXT, *SHAPE, "--methods", "full,h2o,snapkv,window", "--budgets", "12,20", "--docs", "3"]

    def play(name, n=3):
        s.accepted("resume " + name, [*argv[:-1], str(n), "--state", s.path(name + ".state"), "-o", s.path(name + ".tsv")])
        return [open(s.path(name + end), "rb").read() for end in (".tsv", ".state")]

    whole = play("whole")
    body = whole[1]
    for i, size in enumerate([0, 5, 150, body.index(b"\ndoc\t") + 60, body.index(b"\n0\t") + 1, len(body) // 2, len(body) - 1, len(body)]):
        s.file(f"cut{i}.state", body[:size])
        s.check(f"resumed after {size} of {len(body)} bytes", play(f"cut{i}") == whole)
    play("grown", 1)
    s.check("more documents later", play("grown") == whole)
    p = subprocess.Popen([s.exe, *argv, "--state", s.path("killed.state")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(2000):
        if p.poll() is not None or (os.path.exists(s.path("killed.state")) and os.path.getsize(s.path("killed.state")) > 600):
            break
        time.sleep(0.002)
    p.send_signal(signal.SIGKILL)
    p.wait()
    s.check("killed, then resumed", play("killed") == whole)
    # A finished evaluation runs no model, so the result is the same without the rows of other
    # methods.
    rows = table(s.path("whole.tsv"))
    s.accepted("a part of it", [*argv[:-4], "--budgets", "20", "--docs", "3", "--state", s.path("whole.state"), "-o", s.path("part.tsv")])
    s.check("a part of it is the same", table(s.path("part.tsv")) == [r for r in rows if r["budget"] in ("0", "20")])
    s.check("and the state has not changed", open(s.path("whole.state"), "rb").read() == body)
    state = ["--state", s.path("whole.state")]
    s.refused("another seed", [*argv, "--seed", "1", *state], 1, "other settings", "seed: 0")
    s.refused("another model", ["eval", "-m", s.model(4), *argv[3:], *state], 1, "other settings", "model_hash")
    s.refused("other data", [*argv, "--data", s.file("more.txt", "".join(ARTICLES[::-1]).encode()), *state], 1, "other text")
    for name, data in (("a number", body.replace(b"\n0\t", b"\nx\t", 1)), ("a field", body.replace(b"\t0\t1\t", b"\t0\t", 1)),
                       ("a NUL", body[:-40] + b"\0" + body[-39:])):
        s.refused("damaged state: " + name, [*argv, "--state", s.file("bad.state", data)], 1, "damaged")
    head = body[:body.index(b"\n0\t") + 1]
    old = b"".join(line.rpartition(b"\t")[0] + b"\n" if not line.startswith(b"#") else line for line in body.splitlines(True) if b"head_checksum" not in line)
    s.refused("a state without checksums", [*argv, "--state", s.file("old.state", old)], 1, "older ones have no checksums", "remove this one")
    s.check("which was left alone", open(s.path("old.state"), "rb").read() == old)
    damaged = bytearray(body)
    damaged[len(head) + 60] ^= 1
    s.refused("a damaged line is named", [*argv, "--state", s.file("bad.state", bytes(damaged))], 1, "line %d is damaged" % (head.count(b"\n") + 1))
    lines = bytes(damaged).splitlines(True)
    s.file("mended.state", b"".join(lines[:head.count(b"\n")] + lines[head.count(b"\n") + 1:]))
    s.accepted("without that line", [*argv, "--state", s.path("mended.state"), "-o", s.path("mended.tsv")])
    s.check("it is computed again", open(s.path("mended.tsv"), "rb").read() == whole[0])
    s.refused("no state at all", [*argv, "--state", TEXT], 1, "other settings")
    s.check("which was left alone", open(TEXT).read().startswith("lost before"))


def bad_input():
    argv = ["eval", "-m", s.model(), *SHAPE, "--docs", "1"]
    data = ["--data", TEXT]
    s.refused("no data", argv, 2, "--data")
    s.refused("files without --data", [*argv, TEXT], 2, "--data must precede")
    s.refused("data that are not there", [*argv, "--data", s.path("none.txt")], 1, "none.txt", "cannot open")
    s.refused("a folder", [*argv, "--data", s.work.name], 1, "cannot read")
    s.refused("an empty file", [*argv, "--data", s.file("empty", b"")], 1, "0 documents")
    s.refused("too short", [*argv, "--data", s.file("short", b" = A = \nred\n")], 1, "0 documents")
    s.refused("no method", [*argv, *data, "--methods", "full,nothing"], 2, "no method 'nothing'")
    s.refused("an option of nobody", [*argv, *data, "--methods", "pool=3"], 2, "no method 'pool=3'")
    s.refused("an empty method", [*argv, *data, "--methods", "full,,h2o"], 2, "no method ''")
    for bad in ("", "0", "12,", "x", "12,-3", "9" * 40, ",".join(["5"] * 65)):
        s.refused(f"budgets {bad}", [*argv, *data, "--budgets", bad], 2, "--budgets")
    s.refused("a budget too small", [*argv, *data, "--methods", "window:sinks=9", "--budgets", "4"], 2, "budget 4")
    s.refused("too long", [*argv, *data, "--prompt-tokens", "100000"], 1, "context")
    s.refused("an output of no kind", [*argv, *data, "-o", "x.txt"], 2, ".tsv", ".svg")
    s.refused("over its input", [*argv, *data, "-o", s.file("x.tsv", open(TEXT, "rb").read()), "--data", s.path("x.tsv")], 2, "overwrite")
    s.refused("a cache of no type", [*argv, *data, "--kv-type", "f8"], 2, "f8")
    for name, text in (("no JSON", '{"text": "a"}\n{"text": \n'), ("no text", '{"text": "a"}\n{"title": "b"}\n'),
                       ("an array", '{"text": "a"}\n["b"]\n'), ("no answer", '{"question": "a"}\n')):
        s.refused("JSONL: " + name, [*argv, "--data", s.file("bad.jsonl", text.encode())], 1, "line 1" if name == "no answer" else "line 2")


brute_force(0)
brute_force(6)
intervals()
of_tasks()
invariants()
gated()
shipped()
loss_against_size()
equal_budgets()
jsonl()
resuming()
bad_input()
s.finish()
