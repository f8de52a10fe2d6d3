#!/usr/bin/env python3
"""Protocols: budgets in percent, cuts after the prompt or after turns, and questions that are fed to
a cache that was cut before."""
import json
import os
import subprocess
import sys

import numpy as np

from harness import Gguf, Suite

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "golden", "tools"))
import chat_templates  # noqa: E402

s = Suite()
END = ["--ignore-eos", "-q", "-t", "1"]
MODEL = Gguf().set("tokenizer.chat_template", chat_templates.TURNS).write(s.path("turns.gguf"))
WORDS = "the mill by the river has a wheel that turns and turns while the miller sleeps and dreams of bread ".split()


def context(n, seed=0):
    return " ".join(WORDS[(seed + i * 7 + i * i) % len(WORDS)] for i in range(n))


def record(name, *words, model=MODEL):
    out = s.path(name + ".kvf")
    s.accepted(name, ["run", "--overwrite", "-m", model, *words, *END, "-o", out])
    return out


def header(trace):
    return json.loads(s.accepted("info", ["trace", "info", "--json", trace]).stdout)["header"]


def columns(trace, table="eviction"):
    out = s.path("table.npz")
    s.accepted(table, [*s.words_of(table), trace, "-o", out])
    with np.load(out) as z:
        return {k: z[k] for k in z}


def same_values(a, b):
    """Whether two traces have the same values and tokens; their headers may differ."""
    x, y = ({(t, k): v for t in ("eviction", "tokens") for k, v in columns(p, t).items()} for p in (a, b))
    return x.keys() == y.keys() and all(np.array_equal(x[k], y[k], equal_nan=x[k].dtype.kind == "f") for k in x)


def body(path):
    with open(path, "rb") as f:
        return f.read()


# ---- fractions: the run with the entries

P = header(record("length", "-p", context(60), "-n", "1"))["run"]["prompt_tokens"]
for method in ("snapkv", "h2o", "adakv", "pyramidkv", "window", "quest:page=4,dense=0", "snapkv:chunk=20", "keydiff:cut=prompt"):
    for percent in ("25%", "33.3%", "90%"):
        n = max(1, P * int(float(percent[:-1]) * 10) // 1000)
        name = f"{method} {percent}"
        a = record("a", "-p", context(60), "-n", "12", "--method", method, "--budget", percent)
        b = record("b", "-p", context(60), "-n", "12", "--method", method, "--budget", str(n))
        ours, theirs = header(a)["method"], header(b)["method"]
        s.check(name + ": header", ours.pop("budget_percent", None) == float(percent[:-1]) and ours == theirs, ours, theirs)
        s.check(name + ": values", same_values(a, b))
own = record("own", "-p", context(60), "-n", "12", "--method", "snapkv:budget=25%")
s.check("an option of the method", same_values(own, record("b", "-p", context(60), "-n", "12", "--method", "snapkv", "-B", str(P // 4))))
some = ["-p", context(60), "-n", "12", "--method", "h2o", "-B", "40%"]
a = record("a", *some, "--override", "L0K1=window:budget=10%")
b = record("b", *some[:-1], str(P * 2 // 5), "--override", f"L0K1=window:budget={P // 10}")
s.check("override", same_values(a, b) and header(a)["overrides"][0]["budget_percent"] == 10, header(a)["overrides"])

lines = [{"id": f"l{i}", "prompt": context(20 + 17 * i, i), "n": 8} for i in range(5)]
batch = s.file("lines.jsonl", "".join(json.dumps(x) + "\n" for x in lines).encode())
s.accepted("jsonl", ["run", "-m", MODEL, "--jsonl", batch, "--method", "adakv", "-B", "30%", *END, "-o", s.path("many")])
for x in lines:
    one = record("one", "-p", x["prompt"], "-n", "8", "--method", "adakv", "-B", "30%")
    s.check("each prompt of --jsonl has its entries", body(one) == body(os.path.join(s.path("many"), x["id"] + ".kvf")), x["id"])
    h = header(one)
    s.check("and they follow its length", h["method"]["budget"] == h["run"]["prompt_tokens"] * 3 // 10, h)
answers = s.accepted("cells", ["generate", "-m", MODEL, "--jsonl", batch, "--methods", "full,adakv,h2o", "--budgets", "30%,20", *END]).stdout
found = [json.loads(x) for x in answers.splitlines()]
for x in found:
    if "budget_percent" in x:
        s.check("budget of a cell", x["budget"] == x["prompt_tokens"] * 3 // 10 and x["budget_percent"] == 30, x)
s.check("cells", sum("budget_percent" in x for x in found) == 10 and len(found) == 25, len(found))

for budget, words in (("0%", ["--budget '0%'", "25%"]), ("101%", ["101%"]), ("1.5", ["1.5"]), ("x%", ["x%"])):
    s.refused("budget " + budget, ["generate", "-m", MODEL, "-p", "x", "--method", "h2o", "-B", budget], 2, *words)
s.refused("too small", ["generate", "-m", MODEL, "-p", context(60), "--method", "h2o:sinks=18,recent=18", "-B", "10%", *END], 2,
          "18 sinks, 18 recent", "--budget 10%", "entries here")
s.refused("no method", ["generate", "-m", MODEL, "-p", "x", "-B", "25%"], 2, "-B 25% needs --method")
s.refused("a method without a budget", ["generate", "-m", MODEL, "-p", "x", "-B", "25%", "--method", "h2o:budget=3"], 2, "takes no budget")


# ---- unknown questions

def cut_of(trace, step):
    """What the heads had evicted before the query of this step."""
    e = columns(trace)
    gone = (e["evict_step"] >= 0) & (e["evict_step"] <= step) & (e["token"] < step)
    return sorted(zip(e["layer"][gone], e["index"][gone], e["token"][gone], e["evict_step"][gone]))


def scores_of(trace, step):
    e = columns(trace)
    at = (e["evict_step"] == step) & (e["token"] < step)
    return e["score"][at].tobytes()


QUESTIONS = ["What turns by the river?", "Who sleeps?", "the bread and the wheel and the miller and all of them"]
for method in ("snapkv:window=6", "keydiff:cut=prompt", "tova:cut=prompt", "adakv:cut=prompt", "h2o", "expected-attention:cut=prompt"):
    base = ["-p", context(70), "-n", "10", "--method", method, "-B", "30%"]
    known = [record("known", *base, "--ask", q) for q in QUESTIONS[:1]]
    traces = [record(f"q{i}", *base, "--question", "unknown", "--ask", q) for i, q in enumerate(QUESTIONS)]
    C = header(traces[0])["run"]["prompt_tokens"]
    heads = [header(t)["run"] for t in traces]
    s.check(f"{method}: the context does not depend on the question", all(h["prompt_tokens"] == C and h["question"] == "unknown" for h in heads), heads)
    s.check(f"{method}: the cut does not depend on the question", len({str(cut_of(t, C - 1 + ("cut=" in method))) for t in traces}) == 1
            and ("cut=" not in method or len({scores_of(t, C) for t in traces}) == 1))
    whole = columns(known[0], "tokens")
    apart = columns(traces[0], "tokens")
    Q = heads[0]["question_tokens"]
    s.check(f"{method}: the same tokens in both protocols", np.array_equal(whole["id"][: C + Q], apart["id"][: C + Q])
            and header(known[0])["run"]["prompt_tokens"] == C + Q and "question" not in header(known[0])["run"])
    s.check(f"{method}: roles", list(apart["role"][: C + Q]) == ["prompt"] * C + ["question"] * Q and set(apart["role"][C + Q:]) == {"answer"})
    if "cut=" in method:
        e = columns(traces[2])
        s.check(f"{method}: cut once", set(e["evict_step"]) <= {-1, C}, set(e["evict_step"]))
    # Several questions in one call
    s.accepted("several", ["run", "--overwrite", "-m", MODEL, *base, "--question", "unknown", *[w for q in QUESTIONS for w in ("--ask", q)], *END, "-o", s.path("all.kvf")])
    s.check(f"{method}: several questions, a trace each", [body(s.path(f"all-{i + 1}.kvf")) == body(t) for i, t in enumerate(traces)] == [True] * 3)
    single = [s.accepted("one", ["generate", "-m", MODEL, *base, "--question", "unknown", "--ask", q, *END]).stdout for q in QUESTIONS]
    several = s.accepted("several", ["generate", "-m", MODEL, *base, "--question", "unknown", *[w for q in QUESTIONS for w in ("--ask", q)], *END]).stdout
    s.check(f"{method}: several questions share a cut cache", several == b"".join(single), several, single)
    texts = [json.loads(s.accepted("json", ["generate", "-m", MODEL, *base, "--question", "unknown", "--ask", q, "--json", *END]).stdout)["text"] for q in QUESTIONS]
    line = {"id": "x", "context": context(70), "questions": QUESTIONS, "n": 10}
    path = s.file("line.jsonl", (json.dumps(line) + "\n").encode())
    told = [json.loads(x) for x in s.accepted("questions", ["generate", "-m", MODEL, "--jsonl", path, "--question", "unknown", "--method", method, "-B", "30%", *END]).stdout.splitlines()]
    s.check(f"{method}: questions of a line", [x["id"] for x in told] == ["x-1", "x-2", "x-3"] and [x["text"] for x in told] == texts, told, texts)
    cells = [json.loads(x) for x in s.accepted("cells", ["generate", "-m", MODEL, "--jsonl", path, "--question", "unknown", "--methods", method, "--budgets", "30%", *END]).stdout.splitlines()]
    s.check(f"{method}: methods side by side", [x["text"] for x in cells] == [x["text"] for x in told]
            and all(x["question"] == "unknown" and x["prompt_tokens"] == C for x in cells), cells)
    s.accepted("traces of a line", ["run", "--overwrite", "-m", MODEL, "--jsonl", path, "--question", "unknown", "--method", method, "-B", "30%", *END, "-o", s.path("folder")])
    s.check(f"{method}: traces of a line", [body(os.path.join(s.path("folder"), f"x-{i + 1}.kvf")) == body(t) for i, t in enumerate(traces)] == [True] * 3)
    again = record("again", "--force", traces[1], "--method", method, "-B", "30%")
    s.check(f"{method}: a recorded run again", same_values(again, traces[1]) and header(again)["run"] == header(traces[1])["run"], header(again)["run"])

# A question runs in chunks where its steps evict nothing. With --chunk 1 its tokens run one by one.
LONG = context(45, 4)
for method in ("full", "snapkv:window=6,cut=prompt", "h2o:cut=prompt", "h2o:every=7", "h2o", "rkv:cut=prompt", "cake:window=6,cut=prompt",
               "tova:cut=prompt,positions=cache", "expected-attention:cut=prompt", "quest:page=4,dense=0", "local:recent=9"):
    budget = [] if method == "full" else ["-B", "30%"]
    for probes in (["--probes", "full"], ["--probes", "paper", "--shadow", "entries,model"]):
        if "positions=cache" in method and "--shadow" in probes:
            continue
        words = ["-p", context(50), "--ask", LONG, "--question", "unknown", "-n", "9", "--method", method, *budget, *probes]
        a, b = record("chunks", *words), record("single", *words, "--chunk", "1")
        s.check(f"{method} {probes[-1]}: a question in chunks", body(a) == body(b))
        s.check(f"{method}: that is long", header(a)["run"]["question_tokens"] > 64, header(a)["run"])

# The traces of several questions share the prefill of their context, also beyond the blocks of a trace.
DEEP = Gguf(context=4096).set("tokenizer.chat_template", chat_templates.TURNS).write(s.path("deep.gguf"))
GATES = s.path("deep.safetensors")
maker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "make_gates.py")
subprocess.run([sys.executable, maker, "--layout", "rg", "--layers", "2", "--heads", "4", "--kv-heads", "2", "--head-dim", "16", "--d-model", "64",
                "--seed", "3", "--model-hash", header(record("hash", "-p", "x", "-n", "1", model=DEEP))["model"]["hash"], "-o", GATES], check=True)
for method, probes in (("snapkv:window=6,cut=prompt", "full"), ("h2o", "full"), ("rkv:cut=prompt,chunk=300", "paper"), ("full", "full"), ("trimkv:budget=4000", "full")):
    words = [*(["--gates", GATES] if "trimkv" in method else []), "-p", context(800), "-n", "6", "--method", method, *(["-B", "10%"] if method[:6] not in ("full", "trimkv") else []), "--question", "unknown", "--probes", probes]
    r = s.accepted("several", ["run", "--overwrite", "-m", DEEP, *words, *[w for q in QUESTIONS for w in ("--ask", q)], *END, "--json", "-o", s.path("deep.kvf")])
    seconds = [json.loads(x)["prefill_seconds"] for x in r.stdout.splitlines()]
    s.check(f"{method}: one prefill", len(seconds) == 3 and max(seconds[1:]) < seconds[0] / 5, seconds)
    for i, q in enumerate(QUESTIONS):
        one = record("one", *words, "--ask", q, model=DEEP)
        s.check(f"{method} {probes}: the trace of question {i + 1}", body(one) == body(s.path(f"deep-{i + 1}.kvf")))
    s.check("beyond two blocks", header(one)["run"]["prompt_tokens"] > 2048, header(one)["run"])
# These depend on tokens or on a second model, and prefill the context again.
for more in (["--shadow", "entries,model"], ["--watch", "3@L0H0"]):
    words = ["-p", context(30), "-n", "4", "--method", "snapkv:window=6,cut=prompt", "-B", "30%", "--question", "unknown", *more]
    s.accepted("several", ["run", "--overwrite", "-m", MODEL, *words, *[w for q in QUESTIONS for w in ("--ask", q)], *END, "-o", s.path("again.kvf")])
    for i, q in enumerate(QUESTIONS):
        s.check(f"{more[0]}: question {i + 1}", body(record("one", *words, "--ask", q)) == body(s.path(f"again-{i + 1}.kvf")))

at = header(record("asked", "-p", context(70), "-n", "6", "--method", "h2o", "-B", "20", "--question", "unknown", "--ask", QUESTIONS[0]))["run"]["prompt_tokens"]
ids = s.file("ids.txt", " ".join(map(str, columns(s.path("asked.kvf"), "tokens")["id"][: at + 40])).encode())
by_number = record("number", "--ids", ids, "-n", "1", "--method", "h2o", "-B", "20", "--question", "unknown", "--question-at", str(at))
s.check("--question-at", header(by_number)["run"]["prompt_tokens"] == at)
raw = record("raw", "--raw", "-p", context(70) + "\n", "-n", "4", "--question", "unknown", "--ask", "Who sleeps?")
s.check("raw", header(raw)["run"]["question"] == "unknown")
text = s.file("text.jsonl", (json.dumps({"id": "t", "text": context(70) + "\n", "question": "Who sleeps?", "n": 4}) + "\n").encode())
s.accepted("text", ["run", "-m", MODEL, "--jsonl", text, "--question", "unknown", *END, "-o", s.path("texts")])
s.check("text and question of a line", body(os.path.join(s.path("texts"), "t.kvf")) == body(raw))
span = context(70)
spans = s.file("spans.json", json.dumps({"spans": [{"name": "a", "useful": True, "start": 0, "end": 5},
                                                   {"name": "question", "useful": False, "start": len(span) + 2, "end": len(span) + 13}]}).encode())
spanned = record("spanned", "-p", span + "\n\nWho sleeps?", "-n", "4", "--method", "h2o", "-B", "20", "--question", "unknown", "--spans", spans)
asked = record("asked", "-p", span, "--ask", "Who sleeps?", "-n", "4", "--method", "h2o", "-B", "20", "--question", "unknown")
s.check("the span of a question", same_values(spanned, asked))

ask = ["--question", "unknown", "--method", "h2o", "-B", "8", *END]
s.refused("no question", ["generate", "-m", MODEL, "-p", "x y z", *ask], 2, "the beginning of the question is not marked", "--ask")
s.refused("--question-at alone", ["generate", "-m", MODEL, "-p", "x", "--question-at", "3"], 2, "--question-at", "--question unknown")
s.refused("behind the end", ["generate", "-m", MODEL, "-p", "x", "--question-at", "3000", *ask], 2, "--question-at 3000", "tokens")
s.refused("one word", ["generate", "-m", MODEL, "--raw", "-p", "the mill by th", "--ask", "e river", *ask], 1, "question", "new line")
s.refused("--ask and --ids", ["generate", "-m", MODEL, "--ids", ids, "--ask", "x"], 2, "--ask", "--ids")
s.refused("a file that is there", ["run", "-m", MODEL, "-p", "x", "--ask", "a", "--ask", "b", "-o", s.path("all.kvf"), *END], 1, "all-1.kvf")
for bad, word in (({"context": "a"}, "requires \"question\""), ({"prompt": "a", "question": "b"}, "requires \"context\""), ({"context": "a", "question": ""}, "empty"),
                  ({"context": "a", "questions": []}, "questions"), ({"context": "a", "questions": ["x", 3]}, "questions"), ({"context": "a", "question": "b", "questions": ["c"]}, "exclude"),
                  ({"context": 3, "question": "b"}, "no text"), ({"text": "a", "question": "b", "continuation": "c"}, "exclude"), ({"context": "a", "text": "b", "question": "c"}, "several")):
    path = s.file("bad.jsonl", json.dumps(bad).encode())
    s.refused(str(bad), ["generate", "-m", MODEL, "--jsonl", path, *END], 1, "line 1", word)
plain = s.file("plain.jsonl", b'{"prompt": "a b c"}\n')
r = s.run(["generate", "-m", MODEL, "--jsonl", plain, *ask])
s.check("a line without a question", r.returncode == 1 and b"the beginning of the question is not marked" in r.stderr, r.stderr)

# ---- turns

chat = [{"role": "system", "content": "be brief"}, {"role": "user", "content": context(25)}, {"role": "assistant", "content": context(9, 3)},
        {"role": "user", "content": context(18, 5)}, {"role": "assistant", "content": context(7, 2)}, {"role": "user", "content": context(12, 1)}]
CHAT = s.file("chat.json", json.dumps(chat).encode())
for method in ("snapkv:window=5", "h2o", "adakv:window=5", "keydiff", "window"):
    t = record("turns", "--chat", CHAT, "-n", "8", "--method", method + (",cut=turn" if ":" in method else ":cut=turn"), "-B", "16")
    h = header(t)
    starts = [x["tokens"][0] for x in h["turns"] if x["role"] == "answer"]
    ends = [*starts, h["run"]["prompt_tokens"]]
    e = columns(t)
    steps = set(e["evict_step"]) - {-1}
    s.check(f"{method}: cut where turns end", steps == set(ends), steps, ends)
    for end in ends:
        held = [int(((e["token"] < end) & ((e["evict_step"] < 0) | (e["evict_step"] > end)) & (e["layer"] == l) & (e["index"] == k)).sum())
                for l in set(e["layer"]) for k in set(e["index"])]
        s.check(f"{method}: to the budget", sum(held) == 16 * len(held) and (method.startswith("adakv") or set(held) == {16}), end, held)
    # The first turn by itself evicts the same entries.
    first = s.file("first.json", json.dumps(chat[:2]).encode())
    one = record("first", "--chat", first, "-n", "2", "--method", method + (",cut=prompt" if ":" in method else ":cut=prompt"), "-B", "16")
    s.check(f"{method}: the first turn is a run of its own", header(one)["run"]["prompt_tokens"] == ends[0] and cut_of(one, ends[0]) == cut_of(t, ends[0]), ends)
    u = record("asked", "--chat", CHAT, "-n", "8", "--method", method + (",cut=turn" if ":" in method else ":cut=turn"), "-B", "16", "--question", "unknown")
    steps = set(columns(u)["evict_step"]) - {-1}
    s.check(f"{method}: the last message as a question", steps == {*starts, header(u)["run"]["prompt_tokens"]}, steps)
grown = header(record("grown", "--chat", CHAT, "-n", "4", "--method", "h2o:cut=turn,of=seen", "-B", "50%"))
s.check("of=seen is of the first turn", grown["method"]["budget"] == [x for x in grown["turns"] if x["role"] == "answer"][0]["tokens"][0] // 2, grown)
s.refused("no turns", ["generate", "-m", MODEL, "-p", "x", "--method", "h2o:cut=turn", "-B", "8", *END], 2, "cut=turn needs the turns of a chat", "cut=prompt")
s.refused("turns of eval", ["eval", "-m", MODEL, "--data", "x", "--methods", "h2o:cut=turn", "--budgets", "8"], 2, "cut=turn needs the turns of a chat", "--method, and --chat", "cut=prompt")
for budget, words in (("25.1234567%", "6 decimal places"), ("101%", "at most 100%"), ("0%", "above 0%"), ("many", "entries from 1 to 16777216"), ("1e1%", "such as 25%")):
    s.refused("a budget", ["generate", "-m", MODEL, "-p", "x", "--method", "h2o", "-B", budget], 2, f"'{budget}'", words)
    s.refused("a budget of an option", ["generate", "-m", MODEL, "-p", "x", "--method", f"h2o:budget={budget}"], 2, f"'{budget}'", words)
    s.refused("a budget of several", ["eval", "-m", MODEL, "--data", "x", "--methods", "h2o", "--budgets", f"8,{budget}"], 2, f"'{budget}'", words)
s.refused("--ask of lines", ["generate", "-m", MODEL, "--jsonl", batch, "--ask", "Who?"], 2, "--ask and --jsonl", '"context" and "question"')
r = s.run(["generate", "-m", MODEL, "--jsonl", batch, "--method", "h2o", "-B", "8", "--question", "unknown"])
s.check("lines without a question", r.returncode == 1 and b"line 1: --question unknown: the beginning of the question is not marked in this line" in r.stderr and b'give "context" and "question"' in r.stderr, r.stderr)
s.refused("turns of cells", ["generate", "-m", MODEL, "--jsonl", batch, "--methods", "h2o:cut=turn", "--budgets", "8", *END], 2, "cut=turn", "cut=prompt")
s.refused("turns in overrides", ["generate", "-m", MODEL, "--chat", CHAT, "--method", "h2o", "-B", "8", "--override", "L0K*=h2o:cut=turn", *END], 2, "cut=turn belong")

# ---- a question is neither the prompt nor the answer

a = record("apart", "-p", context(40), "--ask", "Who?", "-n", "6", "--method", "h2o", "-B", "12", "--question", "unknown", "--probes", "paper,mass")
s.accepted("the role of a question is valid", ["trace", "verify", "--full", a])
run = header(a)["run"]
P, Q = run["prompt_tokens"], run["question_tokens"]
e = columns(a, "eviction")
end = {h: dict(zip(e["token"][e["head"] == h], e["evict_step"][e["head"] == h])) for h in set(e["head"])}
T = len(next(iter(end.values())))
end = {h: {i: T + 1 if t < 0 else t for i, t in x.items()} for h, x in end.items()}
o = columns(a, "occupancy")
for name, first, last in (("prompt", 0, P), ("question", P, P + Q), ("answer", P + Q, T), ("all", 0, T)):
    rows = o["class"] == name
    expected = [sum(i <= t < end[h][i] for i in range(first, last)) for h, t in zip(o["head"][rows], o["step"][rows])]
    s.check(f"occupancy: {name}", rows.any() and list(o["entries"][rows]) == expected, name)
k = columns(a, "kv-size")
for h in sorted(end):
    row = np.flatnonzero((k["head"] == h) & (k["at"] == "answer"))[0]
    held = sum(i <= t < end[h][i] for t in range(P + Q, T) for i in range(T))
    s.check("kv-size: the answer's steps", (k["step"][row], k["steps"][row], k["entries"][row]) == (P + Q, T - P - Q, held), k)
known = record("joined", "-p", context(40), "--ask", "Who?", "-n", "6", "--method", "h2o", "-B", "12", "--probes", "paper,mass")
asked = record("asked2", "-p", context(40), "--ask", "What?", "-n", "6", "--method", "h2o", "-B", "12", "--question", "unknown", "--probes", "paper,mass")
rows = s.accepted("ls", ["trace", "ls", a, known, asked, "-o", "-"]).stdout.decode().split("\n")
table = [x.split("\t") for x in rows if x and x[0] != "#"]
documents = [x[table[0].index("document")] for x in table[1:]]
s.check("a document is a prompt with its question", documents[0] == documents[1] != documents[2], documents)
r = s.accepted("diverged", ["size", a, asked])
s.check("other questions are no other answers", b"its own answer" not in r.stderr, r.stderr)

# ---- --question of a recorded prompt

plain = ["run", "--overwrite", "-m", MODEL, "--force", a, "--method", "h2o", "-B", "12", *END]
for words, question in (([], Q), (["--question", "unknown"], Q), (["--question", "known"], 0)):
    out = s.path("forced.kvf")
    s.accepted("forced", [*plain, *words, "-o", out])
    h = header(out)["run"]
    s.check(f"forced, {words}: the protocol", (h["prompt_tokens"], h.get("question_tokens", 0)) == (P + Q - question, question), h)
    roles = list(columns(out, "tokens")["role"])
    s.check(f"forced, {words}: roles", roles == ["prompt"] * (P + Q - question) + ["question"] * question + ["answer"] * (T - P - Q), roles)
s.accepted("forced", [*plain, "--question", "known", "-n", "1", "-o", s.path("forced.kvf")])
s.check("forced, known: the cut sees the question", set(columns(s.path("forced.kvf"))["evict_step"]) <= {-1, P + Q}, columns(s.path("forced.kvf"))["evict_step"])
s.accepted("plan", ["trace", "plan", a, "-o", s.path("plan.kvf")])
s.refused("a budget of a plan", ["run", "-m", MODEL, "--plan", s.path("plan.kvf"), "-B", "12", "-o", s.path("no.kvf")], 2, "-B 12: with --plan", "leave it out")
for words, question in (([], Q), (["--question", "known"], 0)):
    s.accepted("plan", ["run", "--overwrite", "-m", MODEL, "--plan", s.path("plan.kvf"), *END, *words, "-o", s.path("planned.kvf")])
    h = header(s.path("planned.kvf"))["run"]
    s.check(f"--plan {words}", (h["prompt_tokens"], h.get("question_tokens", 0)) == (P + Q - question, question), h)
    s.check(f"--plan {words}: the plan is followed", all(np.array_equal(columns(s.path("planned.kvf"))[c], e[c]) for c in ("head", "token", "evict_step")))

# ---- labels

a = record("plain", "-p", context(40), "-n", "6", "--method", "h2o", "-B", "12")
b = record("label", "-p", context(40), "-n", "6", "--method", "h2o:cut=prompt", "-B", "12")
c = record("both", "-p", context(40), "--ask", "Who?", "-n", "6", "--method", "h2o:cut=prompt", "-B", "12", "--question", "unknown")
def meta(*argv):
    r = s.accepted(" ".join(argv)[:50], [*argv, "-o", "-"]).stdout.decode()
    return dict(x[2:].split(": ", 1) for x in r.splitlines() if x.startswith("# ") and ": " in x)
s.check("the default protocol has no label", "protocol" not in meta("size", a) and "budget_percent" not in meta("size", a))
s.check("cut=prompt", meta("size", b).get("protocol") == "cut=prompt")
s.check("both", meta("size", c).get("protocol") == "cut=prompt, question unknown")
m = meta("size", a, b)
s.check("labels of traces in one table", [m["trace_1"], m["trace_2"]] == ["h2o 12", "h2o 12, cut=prompt"], m)
r = s.accepted("corpus", ["corpus", "size", a, b])
s.check("corpus notes it", b"protocol" in r.stderr, r.stderr)
s.finish()
