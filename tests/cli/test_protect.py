#!/usr/bin/env python3
"""protect=: the named tokens of the prompt are never evicted. The evictions of random, window and
adakv's shared budgets are compared with a simulation of their definition."""
import json
import os
import sys

import numpy as np

from harness import Gguf, Suite

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "data", "golden", "tools"), os.path.join(HERE, "..")]
import chat_templates  # noqa: E402
from draws import hashed  # noqa: E402

s = Suite()
LAYERS, HEADS, MORE = 2, 2, 24
MODEL = Gguf().set("tokenizer.chat_template", chat_templates.TURNS).set("llama.context_length", 512).write(s.path("m.gguf"))
MESSAGES = [{"role": "system", "content": "be brief and kind"}, {"role": "user", "content": "once upon a time there was a house"},
            {"role": "assistant", "content": "yes"}, {"role": "user", "content": "and then what came of it"}]
CHAT = s.file("chat.json", json.dumps(MESSAGES).encode())
TEXT = "once upon a time there was a house by the sea, and nobody knew who lived in it"
SPANS = [{"name": "house", "start": 27, "end": 34}, {"name": "sea", "start": 41, "end": 44}, {"name": "house", "start": 0, "end": 4},
         {"name": "end", "start": 60, "end": 66, "useful": False}]
SPAN_FILE = s.file("spans.json", json.dumps({"spans": SPANS}).encode())
BY_CHAT, BY_TEXT = ["--chat", CHAT], ["--raw", "-p", TEXT]
HOW = ["-m", MODEL, "-n", str(MORE + 1), "--ignore-eos", "-q", "--probes", "lean"]


def record(method, budget, *more, name="t.kvf"):
    out = s.path(name)
    s.accepted(f"{method} {budget}", ["run", "--overwrite", *HOW, "--method", method, *(["-B", str(budget)] if budget else []), *more, "-o", out])
    return out


def header(path):
    return json.loads(s.accepted("info", ["trace", "info", "--json", path]).stdout)["header"]


def steps(path):
    """Returns evict_step [layer][head][token], -1: never."""
    table = s.path("e.npz")
    s.accepted("eviction", ["eviction", path, "-o", table])
    with np.load(table) as z:
        return z["evict_step"].reshape(z["layer"].max() + 1, z["index"].max() + 1, -1)


def content(path):
    with open(path, "rb") as f:
        return f.read()


def named(h, protect):
    """Returns the positions that `protect` names, from the header of a trace."""
    out = set()
    for term in protect.split("+"):
        kind, _, more = term.partition(":")
        ranges = {"prompt": lambda: [[0, h["run"]["prompt_tokens"]]], "sinks": lambda: [[0, int(more)]],
                  "system": lambda: [t["tokens"] for t in h["turns"] if t["role"] == "system"],
                  "spans": lambda: [r for x in h["spans"] if more in ("", x["name"]) for r in x["tokens"]]}[kind]()
        out |= {i for a, b in ranges for i in range(a, b)}
    return out


def drawn(seed, layer, head, pos):
    return (hashed(seed, layer, head, pos) >> 40) / 2**24


def simulate(T, P, budget, guard, score, recent=0, shared=False, every=1):
    """Cuts after the prompt and before each later token: the lowest scores outside of `guard` and
    the newest go first, of equal ones the smaller position. shared: the heads of a layer together."""
    out = np.full((LAYERS, HEADS, T), -1)
    for layer in range(LAYERS):
        groups = [range(HEADS)] if shared else [[h] for h in range(HEADS)]
        for heads in groups:
            for t, incoming in [(P, 0)] + [(t, 1) for t in range(P, T)]:
                cached = {(h, i) for h in heads for i in range(t) if not 0 <= out[layer, h, i] <= t}
                over = len(cached) - len(heads) * (budget - incoming)
                if over <= 0:
                    continue
                over += len(heads) * (every - 1)
                may = [(score(layer, h, i), i, -h) for h, i in cached if i not in guard and i < t + incoming - recent]
                for _, i, h in sorted(may)[:over]:
                    out[layer, -h, i] = t
    return out


# Every kind, single and combined: decisions equal the simulation, and the tokens stay.
for source, protect in ((BY_CHAT, "prompt"), (BY_CHAT, "system"), (BY_CHAT, "sinks:5"), (BY_CHAT, "system+sinks:3"), (BY_TEXT, "spans"), (BY_TEXT, "spans:house"),
                        (BY_TEXT, "spans:sea+sinks:2+spans:end"), (BY_TEXT, "prompt+spans")):
    more = [*source, *(["--spans", SPAN_FILE] if "spans" in protect else [])]
    plain = record("random:seed=3", 20, *more)
    guard, P = named(header(plain) | {"method": None}, protect), header(plain)["run"]["prompt_tokens"]
    lost = (steps(plain)[:, :, sorted(guard)] >= 0).sum()
    s.check(f"{protect}: without it some of these tokens are evicted", lost > 0 and guard, lost, sorted(guard))
    for method, budget, score, how in (("random:seed=3", len(guard) + 8, lambda l, h, i: drawn(3, l, h, i), {}),
                                       ("random:seed=3,every=4", len(guard) + 8, lambda l, h, i: drawn(3, l, h, i), {"every": 4}),
                                       ("random:seed=5,allocation=adaptive,floor=0", len(guard) + 6, lambda l, h, i: drawn(5, l, h, i), {"shared": True}),
                                       ("window:sinks=0,recent=3", len(guard) + 9, lambda l, h, i: i, {"recent": 3}),
                                       ("random:seed=3", len(guard) + 1, lambda l, h, i: drawn(3, l, h, i), {})):
        text = f"{method},protect={protect}"
        path = record(text, budget, *more, "-t", "1")
        e, first = steps(path), content(path)
        s.check(f"{text}: the header", header(path)["method"]["protect"] == protect, header(path)["method"])
        s.check(f"{text}: protected tokens stay", (e[:, :, sorted(guard)] == -1).all(), e)
        want = simulate(e.shape[2], P, budget, guard, score, **how)
        s.check(f"{text} at {budget}: evictions", (e == want).all(), np.argwhere(e != want)[:5])
        s.check(f"{text}: evicts", (e >= 0).any())
        s.check(f"{text}: 4 threads", first == content(record(text, budget, *more, "-t", "4", "--chunk", "7")))
    least = len(guard) + 1
    for budget in (1, least - 1):
        s.refused(f"{protect} at {budget}", ["run", *HOW, *more, "--method", f"random:protect={protect}", "-B", str(budget), "-o", s.path("no.kvf")], 2,
                  f"{len(guard)} tokens of protect={protect}", f"--budget {budget}", f"give {least} or more")
s.check("without the option the header does not name it", "protect" not in header(record("random", 20, *BY_TEXT))["method"])
s.check("protect=none is no option", content(record("random", 20, *BY_TEXT)) == content(record("random:protect=none", 20, *BY_TEXT)))

# Every row that evicts keeps the tokens; derived numbers give way to them.
rows = [r for r in json.loads(s.accepted("methods", ["methods", "--json", "-B", "60"]).stdout) if any(o["key"] == "protect" for o in r["options"])]
names = {r["name"] for r in rows}
s.check("rows with the option", {"snapkv", "random", "local", "duo", "wgkv", "rocketkv", "cake", "next-topk"} <= names
        and not names & {"full", "quest", "seer", "seer-oracle", "plan"}, names)
for r in rows:
    if r["gates"] or r["name"] == "mass-greedy":
        continue
    given = {"locret": "", "rocketkv": ",page=2", "expected-attention": ",sinks=2"}.get(r["name"], "")
    for budget in (40, 52):
        path = record(f"{r['name']}:protect=system+sinks:20{given}", budget, *BY_CHAT)
        e, guard = steps(path), named(header(path), "system+sinks:20")
        s.check(f"{r['name']}: protected tokens stay", (e[:, :, sorted(guard)] == -1).all())
        seen = [((np.arange(e.shape[2]) <= t) & ((e < 0) | (t < e))).sum(axis=2) for t in range(header(path)["run"]["prompt_tokens"], e.shape[2])]
        most = max(x.mean() if r["allocation"] not in ("uniform", "adaptive") else x.mean(axis=1).max() if r["allocation"] == "adaptive" else x.max() for x in seen)
        s.check(f"{r['name']}: the budget holds", most <= budget or r["name"] == "rocketkv", most, budget)
m = header(record("window:protect=system+sinks:20", 40, *BY_CHAT))["method"]
extra = len([i for i in named(header(s.path("t.kvf")), "system+sinks:20") if i >= 4])
s.check("recent gives way", m["recent"] == 40 - 4 - extra, m, extra)
path = record("window:chunk=16,recent=4,sinks=0,protect=sinks:9", 16, *BY_CHAT)
s.check("in a prompt that is cut in chunks", (steps(path)[:, :, :9] == -1).all() and (steps(path)[:, :, 9:20] >= 0).all())
path = record("random", 30, *BY_CHAT, "--override", "L0K*=random:protect=system", "--override", "L1K1=knorm:protect=sinks:12,budget=14")
e, guard = steps(path), sorted(named(header(path), "system"))
s.check("overrides protect for themselves", (e[0][:, guard] == -1).all() and (e[1, 1, :12] == -1).all() and (e[1, 0, :12] >= 0).any())
path = record("snapkv:read=quest,reads=8,page=2,protect=system", 30, *BY_CHAT, "--shadow", "entries")
s.check("with pages", (steps(path)[:, :, guard] == -1).all())

# Batches, several methods at once, evaluation.
with open(CHAT, "rb") as f:
    lines = s.file("lines.jsonl", b"".join(json.dumps(x).encode() + b"\n" for x in ({"id": "a", "messages": json.load(f)}, {"id": "b", "messages": MESSAGES[:2]})))
for method in ("random:protect=system", "window:protect=prompt"):
    out = s.path("batch-" + method[:6])
    s.accepted("batch " + method, ["run", "--jsonl", lines, *HOW, "--method", method, "-B", "130", "-o", out])
    for name, messages in (("a", MESSAGES), ("b", MESSAGES[:2])):
        chat = s.file("one.json", json.dumps(messages).encode())
        s.check(f"{method}: line {name} equals a single run", content(os.path.join(out, name + ".kvf")) == content(record(method, 130, "--chat", chat)))
    again = s.accepted("again", ["run", "--jsonl", lines, *(x for x in HOW if x != "-q"), "--method", method, "-B", "130", "-o", out]).stderr.decode()
    s.check(f"{method}: the lines that are there are skipped", "2 skipped" in again, again)
said = s.accepted("cells", ["generate", "--jsonl", lines, "-m", MODEL, "-n", "12", "--ignore-eos", "--methods", "random:protect=system,random,window:protect=prompt",
                              "--budgets", "130"])
cells = [json.loads(x) for x in said.stdout.splitlines()]
for c in cells:
    messages = MESSAGES if c["id"] == "a" else MESSAGES[:2]
    chat = s.file("one.json", json.dumps(messages).encode())
    alone = s.accepted("alone", ["generate", "-m", MODEL, "-n", "12", "--ignore-eos", "-q", "--method", c["method"], "-B", "130", "--chat", chat, "--json"]).stdout
    s.check(f"{c['method']}, line {c['id']}: the text of a single run", json.loads(alone)["text"] == c["text"], alone, c["text"])
data = s.file("data.txt", (TEXT + ". ").encode() * 40)
ask = ["eval", "-m", MODEL, "--data", data, "--prompt-tokens", "30", "--score-tokens", "20", "--docs", "1"]
table = s.path("eval.tsv")
s.accepted("eval", [*ask, "--methods", "random:protect=prompt,random", "--budgets", "40", "-o", table])
s.refused("eval below the prompt", [*ask, "--methods", "random:protect=prompt", "--budgets", "20", "-o", s.path("no.tsv")], 2, "30 tokens of protect=prompt", "give 31 or more")
s.refused("eval without messages", [*ask, "--methods", "random:protect=system", "--budgets", "20", "-o", s.path("no.tsv")], 2, "no system message")

# Rejected settings.
for text in ("", "x", "prompt+", "+prompt", "prompt++system", "system:3", "prompt:2", "sinks", "sinks:0", "sinks:x", "sinks:-1", "spans:", "spans:" + "n" * 30,
             "+".join(["prompt"] * 10), "none+prompt"):
    s.refused(f"protect={text}", ["run", *HOW, *BY_TEXT, "--method", f"random:protect={text}", "-B", "60", "-o", s.path("no.kvf")], 2, "protect")
for row in ("full", "quest", "seer-oracle"):
    s.refused(f"{row}:protect=prompt", ["run", *HOW, *BY_TEXT, "--method", f"{row}:protect=prompt", "-B", "60", "-o", s.path("no.kvf")], 2, "protect would have no effect")
s.refused("no system message", ["run", *HOW, *BY_TEXT, "--method", "random:protect=system", "-B", "60", "-o", s.path("no.kvf")], 2, "no system message")
s.refused("no spans", ["run", *HOW, *BY_TEXT, "--method", "random:protect=spans", "-B", "60", "-o", s.path("no.kvf")], 2, "--spans FILE")
s.refused("no such span", ["run", *HOW, *BY_TEXT, "--spans", SPAN_FILE, "--method", "random:protect=spans:moon", "-B", "60", "-o", s.path("no.kvf")], 2, "spans:moon")
s.check("nothing was written", not os.path.exists(s.path("no.kvf")))
s.finish()
