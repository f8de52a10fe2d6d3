#!/usr/bin/env python3
"""Names of settings: the header of a trace, tables, labels, lists and notes name every setting that
changes the result."""
import json

from harness import Gguf, Suite

s = Suite()
MODEL = Gguf().write(s.path("model.gguf"))
TEXT = "the mill by the river has a wheel that turns and turns while the miller sleeps and dreams of bread and of the sea "
END = ["-n", "6", "--ignore-eos", "-q", "-t", "1", "--probes", "lean"]


def record(name, *words):
    out = s.path(name + ".kvf")
    s.accepted(name, ["run", "--overwrite", "-m", MODEL, "-p", TEXT, *END, *words, "-o", out])
    return out


def header(trace):
    return json.loads(s.accepted("info", ["trace", "info", "--json", trace]).stdout)["header"]


def meta(*argv):
    r = s.accepted(" ".join(argv)[:50], [*argv, "-o", "-"]).stdout.decode()
    return dict(x[2:].split(": ", 1) for x in r.splitlines() if x.startswith("# ") and ": " in x)


def body(path):
    with open(path, "rb") as f:
        return f.read()


# ---- the header names the options that change the method, in one order

plain = record("plain", "--method", "snapkv", "-B", "32")
window = header(plain)["method"]["window"]
for text, options in (("snapkv", None), ("snapkv:cut=always,tie=newer", None), (f"snapkv:window={window}", None), ("snapkv:cut=prompt", "cut=prompt"),
                      ("snapkv:cut=prompt,window=3", "window=3,cut=prompt"), ("snapkv:window=3,cut=prompt,tie=newer", "window=3,cut=prompt"),
                      ("snapkv:window=5,window=3", "window=3"), ("snapkv:read=quest,reads=4,page=2", "read=quest,page=2,reads=4"),
                      ("snapkv:read=all", None), ("snapkv:allocation=adaptive", "allocation=adaptive"), ("snapkv:protect=sinks:2", "protect=sinks:2"),
                      ("snapkv:pool-kind=avg", "pool_kind=avg"), ("rocketkv:read=all", "read=all"), ("rocketkv:cut=prompt", None),
                      ("rocketkv:cut=always", "cut=always"), ("rkv:variant=code", "variant=code"), ("rkv:variant=code,lambda=0.07", "variant=code"),
                      ("rkv:variant=code,lambda=0.5", "variant=code,lambda=0.5"), ("rkv:lambda=0.07", "lambda=0.07")):
    t = record("options", "--method", text, "-B", "32")
    s.check(f"{text}: options", header(t)["method"].get("options") == options, header(t)["method"])
    if text.startswith("snapkv") and options is None:
        s.check(f"{text}: the trace of snapkv", body(t) == body(plain))
s.check("a budget is no option", "options" not in header(record("budget", "--method", "snapkv:budget=9"))["method"])

# ---- tables name them

CASES = ((("snapkv", "-B", "32"), None), (("snapkv:read=quest,reads=4", "-B", "16"), "read=quest, reads=4"), (("snapkv:protect=sinks:2", "-B", "16"), "protect=sinks:2"),
         (("snapkv", "-B", "50%"), "budget=50%"), (("snapkv:of=seen,pool=3", "-B", "12.5%"), "budget=12.5%, pool=3, of=seen"), (("rocketkv", "-B", "16"), "cut=prompt"),
         (("rocketkv:reads=3", "-B", "16"), "reads=3, cut=prompt"), (("snapkv", "-B", "16", "--kv-type", "q8_0"), "cache type q8_0"),
         (("snapkv", "-B", "16", "--override", "L0K*=window"), "override L0K*=window"),
         (("snapkv", "-B", "50%", "--override", "L0K*=window"), "budget=50%, override L0K*=window"),
         (("h2o", "-B", "16", "--override", "L0K*=window:sinks=1,budget=9", "--override", "L1K0=full"), "overrides L0K*=window:budget=9,sinks=1; L1K0=full"))
for words, protocol in CASES:
    t = record("named", "--method", *words)
    for table in (["size"], ["eviction"], ["corpus", "size"]):
        got = meta(*table, t)
        s.check(f"{words}: {table}", got.get("protocol") == protocol, got)
few = [w for i in range(4) for w in ("--override", f"L{i // 2}K{i % 2}=window:budget={9 + i},sinks=1")]
got = meta("size", record("many", "--method", "h2o", "-B", "16", *few))
s.check("many overrides: their number, and all of them", got["protocol"] == "4 overrides" and got["overrides"] == "; ".join(few[1::2]), got)

# ---- labels: with the protocol in any case, whatever the order

cut, same, other = record("cut", "--method", "snapkv:cut=prompt", "-B", "16"), record("same", "--method", "snapkv:cut=prompt", "-B", "16"), record("other", "--method", "snapkv", "-B", "16")
for files in ((cut, same, other), (other, same, cut), (same, other, cut)):
    got = meta("size", *files)
    expected = ["other" if f == other else ("cut" if f == cut else "same") + ", cut=prompt" for f in files]
    s.check("labels of traces with one protocol", [got[f"trace_{i}"] for i in (1, 2, 3)] == expected, got)
    s.check("what differs", got.get("differ") == "protocol", got)
for files in ((cut, other), (other, cut)):
    got = meta("size", *files)
    s.check("labels by method", [got["trace_1"], got["trace_2"]] == ["snapkv 16, cut=prompt" if f == cut else "snapkv 16" for f in files], got)
for table, more in (("tokens", []), ("compare", ["--by", "tokens", "--value", "evict_step"])):
    got = meta(table, cut, other, *more)
    s.check(f"{table}: a label of each trace", "cut=prompt" in got["trace_1"] and "cut=prompt" not in got["trace_2"], got)

half, sinks, rolled = record("half", "--method", "snapkv:pool=3", "-B", "50%"), record("sinks", "--method", "window", "-B", "16"), record("rolled", "--method", "streamingllm", "-B", "50%")
got = meta("size", half, sinks, rolled)
s.check("labels with a fraction of the prompt", [got[f"trace_{i}"] for i in (1, 2, 3)] == ["snapkv 50%, pool=3", "window 16", "streamingllm 50%"], got)
got = meta("tokens", half, sinks, rolled)
s.check("tokens: labels with a fraction", [got[f"trace_{i}"] for i in (1, 2, 3)] == ["snapkv, budget 50%, pool=3", "window, budget 16", "streamingllm, budget 50%"], got)

# ---- a corpus notes them

page4, page2 = record("page4", "--method", "quest:dense=0,page=4", "-B", "8"), record("page2", "--method", "quest:dense=0,page=2", "-B", "8")
for name, files, words in (("reads", (record("r4", "--method", "snapkv:read=quest,reads=4,page=2", "-B", "16"), record("r2", "--method", "snapkv:read=quest,reads=2,page=2", "-B", "16")), b"differ in protocol\n"),
                           ("pages", (page4, page2), b"differ in protocol\n"),
                           ("overrides", (other, record("over", "--method", "snapkv", "-B", "16", "--override", "L0K*=window")), b"differ in protocol\n")):
    for order in (files, files[::-1]):
        r = s.accepted("corpus", ["corpus", "size", *order])
        s.check(f"{name}: the note", words in r.stderr, r.stderr)
half = [s.path(f"half{i}.kvf") for i in range(2)]
for i, f in enumerate(half):
    s.accepted("half", ["run", "--overwrite", "-m", MODEL, "-p", TEXT * (i + 1), *END, "--method", "snapkv", "-B", "50%", "-o", f])
r = s.accepted("corpus", ["corpus", "size", *half])
s.check("a fraction of texts of different lengths", b"differ in budget" not in r.stderr, r.stderr)

# ---- info prints overrides and tables of heads

shown = s.accepted("info", ["trace", "info", record("shown", "--method", "snapkv", "-B", "16", "--override", "L0K*=window:sinks=2", "--temp", "0.5", "--seed", "1234567")]).stdout.decode()
s.check("info: overrides", "\noverride  heads L0K*, name window, options sinks=2," in shown, shown)
s.check("info: all digits", "seed 1234567," in shown, shown)
h = header(plain)["model"]
flat = s.file("flat.json", json.dumps({"unit": "entries", "budgets": [[16 + k % 2 for k in range(h["kv_heads"])] for _ in range(h["layers"])]}).encode())
shown = s.accepted("info", ["trace", "info", record("table", "--method", "snapkv:allocation=file", "-B", "16", "--head-budgets", flat)]).stdout.decode()
s.check("info: budgets per head", f"head_budgets (form entries, hash " in shown and f"entries of {h['kv_heads'] * h['layers']} values)" in shown, shown)

# ---- ls lists them, and chooses by them

a = record("listed", "--method", "snapkv", "-B", "16")
b = record("percent", "--method", "snapkv:of=seen", "-B", "12.5%")
c = record("asked", "--ask", "Who?", "--method", "snapkv:cut=prompt,reads=3,read=quest,page=2", "-B", "16", "--question", "unknown")


def listed(*words):
    lines = [x.split("\t") for x in s.accepted("ls", ["trace", "ls", a, b, c, *words, "-o", "-"]).stdout.decode().splitlines() if x[0] != "#"]
    return [dict(zip(lines[0], x)) for x in lines[1:]]


rows = listed()
s.check("ls: protocol", [x["protocol"] for x in rows] == ["", "budget=12.5%, of=seen", "read=quest, page=2, reads=3, cut=prompt, question unknown"], rows)
s.check("ls: percent", [x["budget_percent"] for x in rows] == ["nan", "12.5", "nan"], rows)
s.check("ls: cut and question", [(x["cut"], x["question"]) for x in rows] == [("always", "known")] * 2 + [("prompt", "unknown")], rows)
for where, names in (("cut=always", [a, b]), ("cut=prompt", [c]), ("question=unknown", [c]), ("question!=unknown", [a, b]), ("budget_percent<=12.5", [b]), ("budget_percent>12.5", []),
                     ("protocol=*reads=3*", [c]), ("method.reads=3", [c]), ("budget_percent!=0", [b])):
    s.check(f"trace ls -w {where}", [x["trace"] for x in listed("-w", where)] == names, where)
s.refused("ls", ["trace", "ls", a, "-w", "budget_percent=some"], 2, "budget_percent is a number")
shown = s.accepted("ls", ["trace", "ls", a, c]).stdout.decode().splitlines()
s.check("ls: the protocol in the list", "question unknown" in shown[2] and shown[0].index("protocol") == shown[2].index("read=quest") and shown[1][shown[0].index("protocol")] == "-", shown)
s.check("ls: no column without protocols", "protocol" not in s.accepted("ls", ["trace", "ls", a]).stdout.decode())
s.finish()
