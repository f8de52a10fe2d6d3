#!/usr/bin/env python3
"""Why answers end, in text, JSON, JSONL and traces; budgets and contexts without an effect;
generation beyond the context."""
import json
import os
import re
import signal
import subprocess
import sys
import time

from harness import Gguf, Suite

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "analyze"))
from maker import table  # noqa: E402

s = Suite()
CONTEXT, PROMPT = 64, [5, 9, 3, 40, 77]
NARROW = Gguf().set("llama.context_length", CONTEXT).write(s.path("narrow.gguf"))
WIDE = Gguf().set("llama.context_length", 4096).write(s.path("wide.gguf"))
IDS = s.file("p.ids", " ".join(map(str, PROMPT)).encode())
BY_RANK = ["--method", "window:positions=cache", "-B", "12"]


def argv(command, model, n, *more):
    return [*s.words_of(command), "-m", model, "-t", "1", "--ids", IDS, "-n", str(n), *more]


def told(name, command, model, n, *more):
    """Returns the output of --json."""
    return json.loads(s.accepted(name, [*argv(command, model, n, *more), "--json", "-q"]).stdout)


def run(name, model, n, *more):
    """Returns (the tokens of a trace, its note of the result)."""
    out = s.path(name + ".kvf")
    s.accepted(name, [*argv("run", model, n, *more), "-q", "--overwrite", "-o", out])
    text = s.run(["trace", "info", out]).stdout.decode()
    return table(s.exe, "tokens", out)[0]["id"], re.search(r"^answer +(\d+) tokens, stop: (\w+)", text, re.M)


# ---- budgets that no method uses
for command, more in (("generate", []), ("run", ["-o", s.path("x.kvf")])):
    s.refused(f"{command}: no method", argv(command, WIDE, 3, "-B", "64", *more), 2, "-B 64", "--method")
    s.refused(f"{command}: full", argv(command, WIDE, 3, "-B", "64", "--method", "full", *more), 2, "-B 64", "full")
s.check("nothing was written", not os.path.exists(s.path("x.kvf")))
s.refused("full:budget", argv("generate", WIDE, 3, "--method", "full:budget=9"), 2, "budget", "no effect")
s.refused("two budgets", argv("generate", WIDE, 3, "--method", "h2o:budget=9", "-B", "8"), 2, "-B 8")
s.refused("two budgets, override", argv("generate", WIDE, 3, "--override", "L0K0=window:budget=9", "-B", "8"), 2, "-B 8")
s.accepted("the override's", argv("generate", WIDE, 3, "--override", "L0K0=window", "-B", "8"))
s.refused("an override without a head", argv("generate", WIDE, 3, "--override", "L0K0=window:budget=9", "--override", "L0K*=h2o:budget=8"), 2, "L0K0", "no effect")

# ---- the context
for command in ("generate", "run"):
    more = ["-o", s.path("x.kvf")] if command == "run" else []
    s.refused(f"{command}: over the context", argv(command, NARROW, 3, "-c", "65", *more), 2, "-c 65", "64", "--rope-scale")
    s.refused(f"{command}: more entries than the context", argv(command, NARROW, 3, "-c", "65", "--method", "window:positions=cache", "-B", "65", *more), 2, "-c 65")
s.accepted("stretched", argv("generate", NARROW, 3, "-c", "100", "--rope-scale", "linear:2"))
x = told("the whole context", "generate", NARROW, 200, "--ignore-eos")
s.check("its tokens", (x["generated_tokens"], x["stop"]) == (CONTEXT - len(PROMPT) + 1, "context"), x)
x = told("-c", "generate", WIDE, 200, "--ignore-eos", "-c", "20")
s.check("tokens of -c", (x["generated_tokens"], x["stop"]) == (20 - len(PROMPT) + 1, "context"), x)
r = s.accepted("quiet", argv("generate", NARROW, 200, "--ignore-eos", "-q"))
s.check("the context is told, quiet or not", re.search(rb"^note: the answer stops after 60 of 200 tokens .*context of 64", r.stderr), r.stderr)
r = s.accepted("not quiet", argv("generate", WIDE, 9, "--ignore-eos"))
s.check("the summary", r.stderr.endswith(b"; stop: length\n"), r.stderr)
r = s.accepted("quiet, no context", argv("generate", WIDE, 9, "--ignore-eos", "-q"))
s.check("does not answer", r.stderr == b"", r.stderr)

# ---- beyond the context: both files have the same weights, and ranks stay within the short one
for name, how in {"window": BY_RANK, "snapkv": ["--method", "snapkv:positions=cache,window=4", "-B", "16"],
                  "chunks": ["--method", "knorm:positions=cache,chunk=8", "-B", "16"]}.items():
    (near, stop), (far, _) = run("near", NARROW, 200, "--ignore-eos", *how), run("far", WIDE, 200, "--ignore-eos", *how)
    s.check(f"{name}: the tokens of a larger context", near == far and len(near) == len(PROMPT) + 199, len(near), len(far))
    s.check(f"{name}: the trace says why it ends", stop and stop.groups() == ("200", "length"), stop)
other, stop = run("original", NARROW, 200, "--ignore-eos", "--method", "window", "-B", "12")
s.check("original positions end", len(other) == CONTEXT and stop and stop[2] == "context", len(other), stop)
mixed = ["--override", "L0K*=h2o:positions=cache"]
s.check("overrides go on, too", told("override", "generate", NARROW, 100, "--ignore-eos", *BY_RANK, *mixed)["generated_tokens"] == 100)
long = s.file("long.ids", " ".join(str(i % 90) for i in range(100)).encode())
texts = [s.run(["generate", "-m", m, "-t", "1", "--ids", long, "-n", "30", "--ignore-eos", "-q", "--method", "knorm:positions=cache,chunk=8", "-B", "16"]).stdout
         for m in (NARROW, WIDE)]
s.check("a prompt that is cut goes beyond, too", texts[0] == texts[1] and len(texts[0]) > 30, texts)
s.refused("a prompt that is not", ["generate", "-m", NARROW, "--ids", long, *BY_RANK], 1, "100 tokens", "64")
forced = s.path("far.kvf")
s.accepted("its tokens can be forced", ["run", "-m", NARROW, "--force", forced, "-q", *how, "--overwrite", "-o", s.path("again.kvf")])
s.check("they are the same", table(s.exe, "tokens", s.path("again.kvf"))[0]["id"] == far)
s.refused("shadow model", ["run", *argv("run", NARROW, 200, *BY_RANK)[1:], "--ignore-eos", "--shadow", "model", "-q", "-o", s.path("s.kvf")], 2, "--shadow model", "64")

# ---- the end token: the second token of the answer becomes it
free, _ = run("free", WIDE, 9, "--ignore-eos")
answer = free[len(PROMPT):]
at = next(i for i in range(1, 8) if answer[i] not in answer[:i])
ENDS = Gguf().set("llama.context_length", 4096).set("tokenizer.ggml.eos_token_id", answer[at]).write(s.path("ends.gguf"))
x = told("eos", "generate", ENDS, 9)
s.check("eos", (x["generated_tokens"], x["stop"]) == (at, "eos"), x, at)
_, stop = run("eos", ENDS, 9)
s.check("eos of a trace", stop and stop.groups() == (str(at), "eos"), stop)

# ---- lines
LINES = s.file("lines.jsonl", "".join(json.dumps({"id": i, "text": "the thing", **more}) + "\n" for i, more in
                                      {"a": {"n": 4}, "b": {"n": 500}, "c": {"n": 0}, "d": {"n": 500, "until": ["e", "t", " ", "a"]}}.items()).encode())
BATCH = ["--jsonl", LINES, "-m", NARROW, "-t", "1", "--ignore-eos", "--temp", "2", "-s", "3"]
r = s.accepted("lines", ["generate", *BATCH])
said = {x["id"]: x for x in map(json.loads, r.stdout.splitlines())}
kinds = {k: x["stop"] for k, x in said.items()}
s.check("each says why", kinds == {"a": "length", "b": "context", "c": "length", "d": "until"}, kinds)
s.check("the context is told", b"note: the context ended 1 of the answers" in r.stderr, r.stderr)
whole = {x["id"]: x for x in map(json.loads, s.accepted("lines, --json", ["generate", *BATCH, "--json"]).stdout.splitlines())}
s.check("as in whole objects", {k: x["stop"] for k, x in whole.items()} == kinds, whole)
r = s.accepted("cells", ["generate", *BATCH, "--methods", "full,window:positions=cache,window", "--budgets", "12"])
cells = {(x["id"], x["method"]): x for x in map(json.loads, r.stdout.splitlines())}
s.check("cells of the context", all(cells[k, m]["stop"] == v for k, v in kinds.items() if k != "d" for m in ("full", "window")), cells)
s.check("a cell goes on", (cells["b", "window:positions=cache"]["stop"], cells["b", "window:positions=cache"]["tokens"]) == ("length", 500), cells)
s.check("cells are those of a single run", all(cells[k, "full"]["text"] == said[k]["text"] for k in said), cells)
s.check("the context is told of cells", b"note: the context ended 2 of the answers" in r.stderr, r.stderr)
s.refused("cells over the context", ["generate", *BATCH, "--methods", "full,window", "--budgets", "12", "-c", "65"], 2, "-c 65")
single = told("one that goes on", "generate", NARROW, 300, "--ignore-eos", *BY_RANK)
many = json.loads(s.accepted("cell that goes on", ["generate", "--jsonl", s.file("one.jsonl", b'{"text": "the thing", "n": 300}\n'), "-m", NARROW, "-t", "1", "--ignore-eos",
                                                   "--methods", "window:positions=cache", "--budgets", "12"]).stdout)
alone = json.loads(s.run(["generate", "-m", NARROW, "-t", "1", "--raw", "-p", "the thing", "-n", "300", "--ignore-eos", *BY_RANK, "--json", "-q"]).stdout)
s.check("as alone", many["text"] == alone["text"] and single["stop"] == "length", many["text"][-60:], alone["text"][-60:])
scored = json.loads(s.accepted("scored", ["generate", "--jsonl", s.file("c.jsonl", b'{"text": "the", "continuation": " thing"}\n'), "-m", NARROW]).stdout)
s.check("what is scored is no answer", "stop" not in scored, scored)

# ---- existing traces: one that ended by -n is not the answer for a larger -n
FOLDER = s.path("folder")
KEPT = ["run", "--jsonl", s.file("kept.jsonl", b'{"text": "the thing"}\n'), "-m", ENDS, "-t", "1", "-o", FOLDER]
s.accepted("short", [*KEPT, "-n", "2"])
s.check("the same again", b"1 skipped" in s.accepted("again", [*KEPT, "-n", "2"]).stderr)
r = s.run([*KEPT, "-n", "5"])
s.check("a longer one is another", r.returncode == 1 and b"2 tokens, and 5 are asked for" in r.stderr, r.stderr)

# ---- a signal
p = subprocess.Popen([s.exe, *argv("generate", NARROW, 1 << 20, "--ignore-eos", *BY_RANK), "--json", "-q"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                     preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
time.sleep(1)
p.send_signal(signal.SIGINT)
out, err = p.communicate(timeout=60)
x = json.loads(out)
s.check("interrupted", p.returncode == 130 and x["stop"] == "interrupted" and x["generated_tokens"] < 1 << 20, p.returncode, x["stop"], err)
s.finish()
