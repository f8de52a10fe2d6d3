#!/usr/bin/env python3
"""Plans: their contents, forced tokens, repeated runs of every method, and hostile plans."""
import json
import os
import random
import subprocess
import sys

import numpy as np

from harness import Suite

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "analyze"))
from maker import ALIVE, SNAPSHOT, Column, make, table

s = Suite()
rng = random.Random(7)
MODEL = ["-m", s.model(0), "-t", "1", "-q"]
P = ["--raw", "-p", "the thing in there and there again, in or out of it"]
N, B = 45, 14


def kvf(name):
    return s.path(name + ".kvf")


def run(name, *more, prompt=P, n=N):
    argv = ["run", "--overwrite", *MODEL, "--probes", "paper", *prompt, *(["-n", str(n), "--ignore-eos"] if n is not None else []), *more, "-o", kvf(name)]
    return s.accepted(name + ": " + " ".join(map(str, more)), argv)


def info(name):
    return json.loads(s.run(["trace", "info", "--json", kvf(name)]).stdout)


def diff(a, b):
    """Returns {column: state} of two traces, including their texts."""
    r = s.run(["trace", "diff", "--no-header", kvf(a), kvf(b), "--json"])
    s.check(f"diff {a} {b}", r.returncode in (0, 1), r)
    data = json.loads(r.stdout)["data"]
    return dict(zip(data["name"], data["state"]))


def same(name, a, b, but=()):
    states = diff(a, b)
    wrong = {k: v for k, v in states.items() if v != "equal" and k not in but}
    s.check(name, len(states) > 5 and not wrong, wrong)


def steps(name):
    return table(s.exe, "eviction", kvf(name))[0]["evict_step"]


def ids_of(name):
    return table(s.exe, "tokens", kvf(name))[0]["id"]


# ---- the contents of a plan
run("h2o", "--method", "h2o", "-B", str(B))
s.accepted("plan", ["trace", "plan", "--overwrite", kvf("h2o"), "-o", kvf("plan")])
whole, plan = info("h2o"), info("plan")
s.check("columns", [c["name"] for c in plan["columns"]] == ["tokens.id", "tokens.role", "evict_step", "plan.mass"]
        and [c["dtype"] for c in plan["columns"]] == ["i32", "u8", "u32", "f64"], plan["columns"])
s.check("header", plan["header"]["plan"] == {"version": 1, "holds": "tokens evictions mass", "heads": "all"}
        and all(plan["header"][k] == whole["header"][k] for k in ("kvf", "model", "tokenizer", "run", "method")), plan["header"])
s.check("length", plan["steps"] == whole["steps"] and plan["clean"])
states = diff("h2o", "plan")
s.check("values are the trace's", all(states[k] == "equal" for k in ("tokens", "tokens.id", "tokens.role", "evict_step")), states)
r = s.run(["trace", "diff", "--first", kvf("h2o"), kvf("plan")])
s.check("part reads it", r.returncode == 0 and b"equal" in r.stdout, r)
s.accepted("plan of a plan", ["trace", "plan", "--overwrite", kvf("plan"), "-o", kvf("twice")])
s.check("plan of a plan: the same bytes", open(kvf("plan"), "rb").read() == open(kvf("twice"), "rb").read())
s.accepted("--head", ["trace", "plan", "--overwrite", kvf("h2o"), "--head", "L1K0", "-o", kvf("one")])
e = np.array(steps("h2o")).reshape(2, 2, -1)
e[0], e[1, 1] = -1, -1
data, _ = table(s.exe, "trace", "diff", "--first", kvf("h2o"), kvf("one"))
s.check("--head: the others keep all", [int(x) for x in data["differ"]] == [int((np.array(steps("h2o")).reshape(4, -1)[i] >= 0).sum()) * (i != 2) for i in range(4)]
        and info("one")["header"]["plan"]["heads"] == "L1K0", data)
for options, holds in (([], "tokens evictions mass"), (["--no-tokens"], "evictions mass"), (["--no-evictions"], "tokens mass"), (["--no-mass"], "tokens evictions"),
                       (["--no-tokens", "--no-mass"], "evictions"), (["--no-tokens", "--no-evictions"], "mass"), (["--no-evictions", "--no-mass"], "tokens")):
    s.accepted(f"plan {options}", ["trace", "plan", "--overwrite", kvf("h2o"), *options, "-o", kvf("part")])
    found = info("part")
    s.check(f"plan {options}: holds", found["header"]["plan"]["holds"] == holds, found["header"]["plan"])
    names = {c["name"] for c in found["columns"]}
    s.check(f"plan {options}: columns", (("tokens.id" in names), ("evict_step" in names), ("plan.mass" in names)) == tuple(w in holds for w in ("tokens", "evictions", "mass")), names)
run("lean", "--method", "h2o", "-B", str(B), "--probes", "lean")
s.accepted("plan of a lean trace", ["trace", "plan", "--overwrite", kvf("lean"), "-o", kvf("part")])
s.check("plan of a lean trace: no mass", info("part")["header"]["plan"]["holds"] == "tokens evictions")
mass = [Column("mass.sum", "f32", "query", np.arange(2 * 4 * 5).reshape(2, 4, 5) / 8, flags=SNAPSHOT)]
make(s.write_kvf, kvf("mass"), mass, (2, 2, 4, 5))
s.accepted("plan of masses", ["trace", "plan", "--overwrite", kvf("mass"), "-o", kvf("part")])
make(s.write_kvf, kvf("wide"), [Column("plan.mass", "f64", "query", mass[0].values)], (2, 2, 4, 5))
s.check("masses are widened", diff("part", "wide")["plan.mass"] == "equal")

# ---- rejections of `plan`
s.refused("nothing is left", ["trace", "plan", "--overwrite", kvf("h2o"), "--no-tokens", "--no-evictions", "--no-mass", "-o", kvf("x")], 1, "would be empty")
s.refused("--head without evictions", ["trace", "plan", "--overwrite", kvf("h2o"), "--no-evictions", "--head", "L0K0", "-o", kvf("x")], 1, "--head")
s.refused("query heads", ["trace", "plan", "--overwrite", kvf("h2o"), "--head", "L0H0", "-o", kvf("x")], 2, "--head")
s.refused("no output", ["trace", "plan", "--overwrite", kvf("h2o")], 2, "-o")
s.refused("output over the input", ["trace", "plan", "--overwrite", kvf("h2o"), "-o", kvf("h2o")], 2, "overwrite")
s.refused("folder missing", ["trace", "plan", "--overwrite", kvf("h2o"), "-o", s.path("none/x.kvf")], 1, "none/x.kvf")
s.refused("no trace", ["trace", "plan", "--overwrite", s.model(0), "-o", kvf("x")], 1, "not a kvfate trace")
s.refused("a trace without steps", ["trace", "plan", "--overwrite", make(s.write_kvf, kvf("none"), [Column("tokens.id", "i32", "run", [])], (2, 2, 4, 0)), "-o", kvf("x")], 1, "no step")
early = [Column("evict_step", "u32", "kv", np.zeros((2, 2, 5)))]
s.refused("impossible steps", ["trace", "plan", "--overwrite", make(s.write_kvf, kvf("early"), early, (2, 2, 4, 5)), "-o", kvf("x")], 1, "no run evicts")
s.check("no refused plan is left", not os.path.exists(kvf("x")) and not os.path.exists(kvf("x") + ".part"))

# ---- forced tokens: the same method on the same tokens gives the same run
for source in ("h2o", "plan"):
    run("forced", "--method", "h2o", "-B", str(B), "--force", kvf(source), prompt=(), n=None)
    same(f"forced by {source}", "h2o", "forced")
s.check("header says so", info("forced")["header"]["replay"] == {"forced_tokens": N - 1}, info("forced")["header"])
run("forced", "--method", "h2o", "-B", str(B), "--force", kvf("h2o"), n=None)
same("forced behind the prompt given", "h2o", "forced")
run("forced", "--method", "h2o", "-B", str(B), "--force", kvf("h2o"), n=N)
same("forced, and one more sampled", "h2o", "forced")
s.check("forced, and one more sampled: the same answer", info("forced")["result"] == info("h2o")["result"])
prompt_ids, all_ids = s.path("prompt.ids"), ids_of("h2o")
n_prompt = whole["header"]["run"]["prompt_tokens"]
open(prompt_ids, "w").write(" ".join(map(str, all_ids[:n_prompt])))
answer = s.file("answer.ids", "\n".join(map(str, all_ids[n_prompt:])).encode())
for prompt in (P, ("--ids", prompt_ids)):
    run("forced", "--method", "h2o", "-B", str(B), "--force", answer, prompt=prompt, n=None)
    same("forced as text", "h2o", "forced")
for threads, chunk in ((3, 1), (2, 5)):
    run("forced", "--method", "h2o", "-B", str(B), "--force", kvf("h2o"), "-t", str(threads), "--chunk", str(chunk), prompt=(), n=None)
    same(f"forced, {threads} threads, chunks of {chunk}", "h2o", "forced")
run("short", "--method", "h2o", "-B", str(B), "--force", kvf("h2o"), prompt=(), n=7)
s.check("-n takes fewer", ids_of("short") == all_ids[:n_prompt + 7], len(ids_of("short")))
run("cut", "--method", "h2o", "-B", str(B), "--force", kvf("h2o"), prompt=("--ids", s.file("few.ids", " ".join(map(str, all_ids[:9])).encode())), n=None)
s.check("another prompt end: the same tokens", ids_of("cut") == all_ids)
s.check("another prompt end: the roles of the trace", diff("h2o", "cut")["tokens.role"] == "equal")
other = [(7 * i + 3) % 300 for i in range(30)]
run("other", "--force", s.file("other.ids", " ".join(map(str, other)).encode()), n=None)
s.check("any tokens", ids_of("other") == all_ids[:n_prompt] + other)
nll = table(s.exe, "tokens", kvf("other"))[0]["nll"]
s.check("forced tokens have an NLL", all(x is not None and x > 0 for x in nll[1:]), nll)
run("full", prompt=P)
run("fullforced", "--force", kvf("h2o"), prompt=(), n=None)
s.check("another method on the same tokens", ids_of("fullforced") == all_ids and set(steps("fullforced")) == {-1})
run("none", "--force", s.file("none.ids", b" \n"), n=None)
s.check("no forced tokens", len(ids_of("none")) == n_prompt)

# ---- rejections of --force
FORCE = ["run", "--overwrite", *MODEL, "--probes", "paper", "-o", kvf("x")]
s.refused("ids as text, no prompt", [*FORCE, "--force", answer], 2, "no prompt", "answer.ids")
s.refused("another prompt", [*FORCE, "--raw", "-p", "the other", "--force", kvf("h2o")], 2, "does not begin with this prompt")
s.refused("a longer prompt", [*FORCE, "--ids", s.file("long.ids", " ".join(map(str, [*all_ids, 5])).encode()), "--force", kvf("h2o")], 2, "does not begin")
s.refused("no file", [*FORCE, *P, "--force", kvf("nowhere")], 1, "nowhere.kvf", "No such file")
s.refused("no ids", [*FORCE, *P, "--force", s.file("words.ids", b"1 2 three")], 1, "words.ids", "id 2")
s.refused("ids beyond the vocabulary", [*FORCE, *P, "--force", s.file("big.ids", b"1 2 300")], 1, "big.ids", "id 2")
s.refused("over the context", [*FORCE, *P, "--force", s.file("many.ids", b"5 " * 600)], 1, "600", "context", "-n")
s.accepted("within the context by -n", [*FORCE, *P, "--force", s.path("many.ids"), "-n", "20"])
s.refused("output over the forced file", ["run", "--overwrite", *MODEL, "--probes", "paper", *P, "--force", answer, "-o", answer], 2, "overwrite")
bare = make(s.write_kvf, kvf("bare"), [Column("evict_step", "u32", "kv", np.full((2, 2, 5), ALIVE))], (2, 2, 4, 5))
s.refused("a trace without tokens", [*FORCE, *P, "--force", bare], 1, "no token ids")
s.refused("generate has no --force", ["generate", *MODEL, *P, "--force", answer], 2, "--force")

# ---- hostile plans, made column by column
T, header = 20, plan["header"]
good = {"tokens.id": np.arange(T), "tokens.role": np.arange(T) >= 12, "evict_step": np.full((2, 2, T), ALIVE), "plan.mass": np.ones((2, 4, T))}
TYPES = {"tokens.id": ("i32", "run"), "tokens.role": ("u8", "run"), "evict_step": ("u32", "kv"), "plan.mass": ("f64", "query")}
header["run"]["prompt_tokens"] = 12
REPLAY = ["run", "--overwrite", *MODEL, "--probes", "paper", "-o", kvf("x"), "--plan", kvf("bad")]


def bad_plan(head=header, shape=(2, 2, 4, T), types=TYPES, n=None, unclosed=False, **change):
    columns = [Column(k, *types[k], change.get(k.replace(".", "_"), v), n=n) for k, v in good.items() if change.get(k.replace(".", "_"), v) is not None]
    return make(s.write_kvf, kvf("bad"), columns, shape, head, unclosed=unclosed)


def changed(key, at, value):
    v = np.array(good[key], float)
    v[at] = value
    return {key.replace(".", "_"): v}


def with_header(*path, value):
    h = json.loads(json.dumps(header))
    at = h
    for k in path[:-1]:
        at = at[k]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return {"head": h}


bad_plan()
s.accepted("the plan that is then spoiled", REPLAY)
for name, change, words in (
        ("a trace", with_header("plan", value=None), ("not a plan", "kvfate trace plan")), ("a plan that is a number", with_header("plan", value=1), ("not a plan",)),
        ("another version", with_header("plan", "version", value=2), ("version",)), ("no version", with_header("plan", "version", value=None), ("version",)),
        ("another model", with_header("model", "hash", value="0" * 32), ("another model", "0" * 32)), ("no hash", with_header("model", "hash", value=None), ("does not name", "model")),
        ("a hash that is a number", with_header("model", "hash", value=5), ("does not name",)), ("no model", with_header("model", value=None), ("does not name",)),
        ("not closed", {"unclosed": True}, ("not closed",)), ("a prompt too long", with_header("run", "prompt_tokens", value=T + 1), ("prompt of 21",)),
        ("a negative prompt", with_header("run", "prompt_tokens", value=-1), ("prompt of -1",)),
        ("an id beyond the vocabulary", changed("tokens.id", 3, 300), ("token 3", "300")), ("a negative id", changed("tokens.id", 4, -1), ("token 4",)),
        ("an unknown role", changed("tokens.role", 5, 9), ("token 5", "role")),
        ("gone before its birth", changed("evict_step", (1, 0, 6), 5), ("layer 1, head 0", "entry 6", "step 5")),
        ("gone before its own query", changed("evict_step", (0, 1, 6), 6), ("layer 0, head 1", "entry 6")),
        ("gone after the end", changed("evict_step", (1, 1, 6), T + 1), ("step 21",)), ("nearly alive", changed("evict_step", (0, 0, 0), ALIVE - 1), ("entry 0",)),
        ("a negative mass", changed("plan.mass", (1, 3, 2), -.5), ("query head 3", "entry 2")), ("a mass that is no number", changed("plan.mass", (0, 0, 0), np.nan), ("mass",)),
        ("an infinite mass", changed("plan.mass", (0, 0, 0), np.inf), ("mass",)), ("values that are missing", {"n": 11}, ("not in the trace",)),
        ("ids of another type", {"types": {**TYPES, "tokens.id": ("u32", "run")}}, ("tokens.id", "type")),
        ("steps of another type", {"types": {**TYPES, "evict_step": ("i32", "kv")}}, ("evict_step", "type")),
        ("steps of query heads", {"types": {**TYPES, "evict_step": ("u32", "query")}, "evict_step": np.full((2, 4, T), ALIVE)}, ("evict_step", "type")),
        ("masses of another type", {"types": {**TYPES, "plan.mass": ("f32", "query")}}, ("plan.mass", "type"))):
    bad_plan(**change)
    s.refused(f"plan: {name}", REPLAY, 1, "bad.kvf", *words)
make(s.write_kvf, kvf("bad"), [Column("evict_step", "u32", "kv", good["evict_step"], "step")], (2, 2, 4, T), header)
s.refused("plan: evictions by step", REPLAY, 1, "evict_step", "type")
for name, shape in (("layers", (3, 2, 4, T)), ("KV heads", (2, 1, 4, T)), ("query heads", (2, 2, 6, T))):
    make(s.write_kvf, kvf("bad"), [Column("tokens.id", "i32", "run", np.arange(T))], shape, header)
    s.refused(f"plan: other {name}", REPLAY, 1, "layers and heads")
make(s.write_kvf, kvf("bad"), [Column("tokens.id", "i32", "run", [])], (2, 2, 4, 0), header)
s.refused("plan: empty", REPLAY, 1, "no token")
make(s.write_kvf, kvf("bad"), [Column("tokens.id", "i32", "run", np.arange(600) % 300)], (2, 2, 4, 600), header)
s.refused("plan: over the context", REPLAY, 1, "600", "512")
s.refused("plan: another model's", ["run", "--overwrite", "-m", s.model(2), "-q", "--plan", kvf("plan"), "-o", kvf("x")], 1, "another model")
s.refused("plan: none", ["run", "--overwrite", *MODEL, "--probes", "paper", "--plan", kvf("nowhere"), "-o", kvf("x")], 1, "nowhere.kvf")
s.refused("plan: a model", ["run", "--overwrite", *MODEL, "--probes", "paper", "--plan", s.model(0), "-o", kvf("x")], 1, "not a kvfate trace")
s.refused("plan: output over it", ["run", "--overwrite", *MODEL, "--probes", "paper", "--plan", kvf("plan"), "-o", kvf("plan")], 2, "overwrite")
whole = open(kvf("plan"), "rb").read()
for i in range(60):
    data = bytearray(whole)
    for _ in range(rng.randrange(1, 6)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    s.file("bad.kvf", bytes(data[:rng.randrange(len(data))] if i % 3 == 0 else data))
    s.survives(f"damaged plan {i}", REPLAY, (0, 1, 2))
    s.survives(f"damaged plan {i}, its tokens", ["run", "--overwrite", *MODEL, "--probes", "paper", "-o", kvf("x"), "--force", kvf("bad")], (0, 1, 2))

# ---- repeated runs: the same evictions, tokens and NLL, byte for byte, for every method
MAKE_GATES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "make_gates.py")
LAYOUTS = {"trimkv": "rg", "dbtrimkv": "rg10", "locret": "locret", "wgkv": "wgkv", "wgkv-snapkv": "wgkv", "wgkv-quest": "wgkv", "seer": "seer", "duo": "duo"}
WHY = {"evict_reason", "evict_score", "evict_margin", "evict_tie", "evict_rank"}
GATES = {"write_gate", "log_beta", "importance", "block_gate", "head_gate"}  # a repeated run has no gates
LONG = ("--raw", "-p", "the thing in there and there again, in or out of it; " * 3)
rows = json.loads(s.run(["methods", "--json"]).stdout)
hash_of = whole_header = info("h2o")["header"]["model"]["hash"]


def gates(method, seed=3):
    """Returns options with the gates that a method needs."""
    layout = LAYOUTS.get(method)
    path = s.path(f"{layout}{seed}.safetensors")
    if layout and not os.path.exists(path):
        subprocess.run([sys.executable, MAKE_GATES, "--layout", layout, "--layers", "2", "--heads", "4", "--kv-heads", "2", "--head-dim", "16", "--d-model", "64",
                        "--hidden", "8", "--gate-dim", "8", "--tokens", "256", "--seed", str(seed), "--model-hash", hash_of, "-o", path], check=True)
    return ["--gates", path] if layout else []


def repeat(name, *options, replays=((),), by_choice=False):
    """Records a run, repeats its plan in several ways, and compares; returns how many entries were
    evicted."""
    run("first", *options, prompt=LONG)
    s.accepted(name + ": plan", ["trace", "plan", "--overwrite", kvf("first"), "-o", kvf("its")])
    for more in replays:
        s.accepted(f"{name}: again {more}", ["run", "--overwrite", *MODEL, "--probes", "paper", "--plan", kvf("its"), *more, "-o", kvf("again")])
        states = diff("first", "again")
        must = ["tokens", "tokens.id", "tokens.role", "evict_step"] + ([] if by_choice else ["nll"])
        s.check(f"{name} {more}: evictions, tokens, NLL", all(states[k] == "equal" for k in must), {k: states[k] for k in must})
        if not by_choice:
            wrong = {k: v for k, v in states.items() if v != "equal" and k not in WHY and not (k in GATES and v == "only_a")}
            s.check(f"{name} {more}: all that rests on attention", not wrong, wrong)
    e = steps("again")
    reasons = set(table(s.exe, "eviction", kvf("again"))[0]["reason"])
    s.check(name + ": reasons", reasons == ({"plan"} if all(x >= 0 for x in e) else {"plan", "alive"} if any(x >= 0 for x in e) else {"alive"}), reasons)
    return sum(x >= 0 for x in e)


def usual(row):
    free = row["name"] in ("full", "duo", "plan") or (row["score"] == "none" and row["admission"] == "write-gate" and row["selection"] == "all")
    return ["--method", row["name"] + {"wgkv": ":local=6,tau=0.5", "wgkv-snapkv": ":local=6,tau=0.5", "wgkv-quest": ":local=6,tau=0.5,page=4",
            "quest": ":page=4,dense=0", "seer": ":page=4", "seer-oracle": ":page=4", "duo": ":sinks=4,recent=20", "locret": ":chunk=16"}.get(row["name"], ""),
            *([] if free else ["-B", "20"]), *gates(row["name"])]


run("whole", prompt=LONG, n=N)
s.accepted("plan of a full run", ["trace", "plan", "--overwrite", kvf("whole"), "-o", kvf("masses")])
left = {}
for row in rows:
    if row["name"] == "plan":
        continue
    more = ["--plan", kvf("masses")] if row["name"] == "mass-greedy" else []
    left[row["name"]] = repeat(row["name"], *usual(row), *more, replays=((), ("--chunk", "7", "-t", "3")), by_choice=row["selection"] != "all")
stays = {r["name"] for r in rows if r["admission"] == "all" and r["score"] == "none"} | {"plan"}
s.check("all the others evict", all((n == 0) == (name in stays) for name, n in left.items()), left)

# Evictions after a query, in the prompt, of several methods, of query heads; gates that reject with
# a budget; pages of entries.
for options in (["h2o:order=after", "-B", "14"], ["snapkv:order=after,every=5", "-B", "18"], ["h2o:chunk=16", "-B", "14"], ["tova:chunk=16,order=after", "-B", "14"],
                ["h2o:positions=cache", "-B", "14"], ["keydiff:positions=cache,chunk=32", "-B", "14"], ["snapkv:group=none", "-B", "14"], ["h2o:slack=6,order=after", "-B", "14"],
                ["adakv", "-B", "40"], ["random", "-B", "1"], ["random", "-B", "64"], ["h2o", "-B", str(N)], ["window:sinks=2", "-B", "9"],
                ["h2o", "-B", "14", "--override", "L0K1=window:budget=9", "--override", "L1K*=full"],
                ["wgkv:local=5,tau=0.4", "-B", "12", *gates("wgkv")], ["wgkv:local=5,tau=0.4,order=after", "-B", "12", *gates("wgkv")],
                ["wgkv:local=7,tau=0.5,order=after", "-B", "11", *gates("wgkv", 5)], ["wgkv-snapkv:local=5,tau=0.4,order=after", "-B", "12", *gates("wgkv-snapkv")],
                ["wgkv-snapkv:local=4,tau=0.3,fraction=0.3", "-B", "12", *gates("wgkv-snapkv", 5)], ["dbtrimkv:order=after,slack=3", "-B", "12", *gates("dbtrimkv")]):
    name = " ".join(os.path.basename(o) for o in options)
    s.check(name + ": something leaves", repeat(name, "--method", *options) > 0)
repeat("exact", "--method", "h2o", "-B", "14", "--exact", replays=(("--exact",), ("--exact", "-t", "2")))

# Entries evicted after the last query.
run("after", "--method", "h2o:order=after", "-B", "14", prompt=LONG)
T = len(ids_of("after"))
s.check("a cut after the last query", T in steps("after"))
run("ends", "--method", "h2o", "-B", "14", prompt=LONG, n=1)
s.accepted("plan of a prompt alone", ["trace", "plan", "--overwrite", kvf("ends"), "-o", kvf("its")])
s.accepted("again", ["run", "--overwrite", *MODEL, "--probes", "paper", "--plan", kvf("its"), "-o", kvf("again")])
same("a prompt alone", "ends", "again", but=WHY)

# Parts of plans.
s.accepted("evictions of one head", ["trace", "plan", "--overwrite", kvf("h2o"), "--head", "L0K1", "-o", kvf("one")])
run("onehead", "--plan", kvf("one"), prompt=(), n=None)
e, want = np.array(steps("onehead")).reshape(4, -1), np.array(steps("h2o")).reshape(4, -1)
s.check("evictions of one head: there, and nowhere else", (e[1] == want[1]).all() and (e[[0, 2, 3]] == -1).all(), e)
s.accepted("no tokens", ["trace", "plan", "--overwrite", kvf("h2o"), "--no-tokens", "-o", kvf("tokenless")])
run("untold", "--plan", kvf("tokenless"))
same("sampled tokens under a plan", "h2o", "untold", but=WHY)
s.refused("no tokens, no prompt", [*FORCE, "--plan", kvf("tokenless")], 2, "no prompt", "tokenless.kvf")
s.accepted("no evictions", ["trace", "plan", "--overwrite", kvf("h2o"), "--no-evictions", "-o", kvf("lost")])
s.refused("no evictions, no method", [*FORCE, "--plan", kvf("lost")], 2, "no evictions", "--method")
run("tova", "--plan", kvf("lost"), "--method", "tova", "-B", str(B), prompt=(), n=None)
s.check("another method on the plan's tokens", ids_of("tova") == all_ids and max(steps("tova")) > 0)
run("words", "--plan", kvf("plan"), "--force", answer, n=None)
same("tokens of --force, evictions of --plan", "h2o", "words", but=WHY)
s.refused("the method plan without a plan", [*FORCE, *P, "--method", "plan"], 2, "--plan")
s.refused("masses of a run without", [*FORCE, "--plan", kvf("plan"), "--method", "mass-greedy", "-B", "12"], 2, "without evictions", "h2o")
s.refused("masses of other tokens", [*FORCE, "--plan", kvf("masses"), "--force", kvf("h2o"), "--method", "mass-greedy", "-B", "12"], 2, "same tokens")
run("chunked", "--method", "h2o:chunk=16", "-B", "14", prompt=LONG)
s.accepted("plan of a chunked run", ["trace", "plan", "--overwrite", kvf("chunked"), "-o", kvf("its")])
s.refused("an override without the plan's chunk", [*FORCE, "--plan", kvf("its"), "--override", "L0K0=full"], 2, "--override", "chunk")
run("over", "--plan", kvf("its"), "--override", "L0K0=window:chunk=16,budget=9", prompt=(), n=None)
e, want = np.array(steps("over")).reshape(4, -1), np.array(steps("chunked")).reshape(4, -1)
s.check("an override beside a plan", (e[1:] == want[1:]).all() and (e[0] != want[0]).any() and (e[0] > 0).any(), e)
run("half", "--plan", kvf("plan"), "--method", "full", "--override", "L1K0=plan", prompt=(), n=None)
e, want = np.array(steps("half")).reshape(4, -1), np.array(steps("h2o")).reshape(4, -1)
s.check("a plan as an override", (e[2] == want[2]).all() and (e[[0, 1, 3]] == -1).all(), e)
run("queries", "--method", "snapkv:group=none", "-B", "14", prompt=LONG)
s.accepted("plan of query heads", ["trace", "plan", "--overwrite", kvf("queries"), "-o", kvf("its")])
s.refused("evictions of query heads beside others", [*FORCE, "--plan", kvf("its"), "--method", "full", "--override", "L1K0=plan"], 2, "plan")
for length in (9, 40):  # another end of the prompt: the same entries are visible
    few = s.file("few.ids", " ".join(map(str, all_ids[:length])).encode())
    run("moved", "--plan", kvf("plan"), prompt=("--ids", few), n=None)
    s.check(f"a prompt of {length}", steps("moved") == steps("h2o") and ids_of("moved") == all_ids)
s.finish()
