#!/usr/bin/env python3
"""Files of prompts (--jsonl): the bytes equal those of single runs. Tests skipped, repeated and
continued lines, shards, and rejected lines."""
import fcntl
import gzip
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time

import numpy as np

from harness import Gguf, Suite

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "golden", "tools"))
import chat_templates  # noqa: E402
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data"))
import make_gates  # noqa: E402

s = Suite()
signal.signal(signal.SIGINT, signal.SIG_DFL)  # children of a background shell would inherit that it is ignored
MODEL = Gguf().set("tokenizer.chat_template", chat_templates.TURNS).set("llama.context_length", 2048).write(s.path("m.gguf"))
HOW = ["-m", MODEL, "-t", "1", "--ignore-eos", "--method", "window", "-B", "12", "--temp", "1"]
MESSAGES = [{"role": "system", "content": "be \u00e9"}, {"role": "user", "content": "hello \"there\""}]


def lines(name, *objects):
    return s.file(name, "".join(json.dumps(x) + "\n" for x in objects).encode())


def read(path):
    with open(path, "rb") as f:
        return f.read()


def folder(path):
    return {x: read(os.path.join(path, x)) for x in sorted(os.listdir(path))}


def single(name, *argv):
    out = s.path(name)
    s.accepted("single " + name, ["run", *HOW, *argv, "-q", "-o", out])
    return read(out)


def batch(name, file, out, *more, code=0):
    r = s.run(["run", "--jsonl", file, *HOW, "-o", out, *more])
    s.check(name, r.returncode == code, r.returncode, r.stderr.decode()[-400:])
    return r.stderr.decode()


# Each line equals the single run with the same options.
PROMPTS = lines("p.jsonl", {"prompt": "hello"}, {"id": "b.2", "messages": MESSAGES, "n": 5}, {"id": "c_3", "text": "once upon", "seed": 7},
                {"id": "d-4", "prompt": "hello", "n": 1, "seed": 3})
chat = s.file("chat.json", json.dumps(MESSAGES).encode())
expected = {"000001.kvf": single("1.kvf", "-n", "9", "-p", "hello"), "b.2.kvf": single("2.kvf", "-n", "5", "--chat", chat),
            "c_3.kvf": single("3.kvf", "-n", "9", "--raw", "-p", "once upon", "-s", "7"), "d-4.kvf": single("4.kvf", "-n", "1", "-p", "hello", "-s", "3")}
OUT = s.path("out")
err = batch("all lines", PROMPTS, OUT, "-n", "9")
s.check("the bytes of single runs", folder(OUT) == expected, sorted(os.listdir(OUT)))
s.check("the last line", err.endswith("4 made, 0 skipped, 0 failed\n"), err)
for n in ("8", "10"):
    err = batch("answers of another length", PROMPTS, OUT, "-n", n, code=1)
    s.check("are no answers to the same", "0 made, 2 skipped, 2 failed" in err and f"an answer of 9 tokens, and {n} are asked for" in err, err)
s.check("and stay", folder(OUT) == expected)
expected_full = single("full.kvf", "-n", "9", "--raw", "-p", "once upon", "-s", "7", "--probes", "full", "--watch", "1@L0H0", "--shadow", "entries")
batch("watched", PROMPTS, s.path("watched"), "-n", "9", "--probes", "full", "--watch", "1@L0H0", "--shadow", "entries")
s.check("the bytes of a single run that is watched", read(s.path("watched/c_3.kvf")) == expected_full)

for n in ("1", "2", "3"):
    batch(f"{n} together", PROMPTS, s.path("together" + n), "-n", "9", "--together", n)
    s.check(f"{n} together: the bytes of single runs", folder(s.path("together" + n)) == expected)
    batch(f"{n} together, watched", PROMPTS, s.path("watched" + n), "-n", "9", "--probes", "full", "--watch", "1@L0H0", "--shadow", "entries,model",
          "--together", n)
s.check("probes of lines side by side", folder(s.path("watched1")) == folder(s.path("watched2")) == folder(s.path("watched3")))
s.refused("none together", ["run", "--jsonl", PROMPTS, *HOW, "-o", OUT, "--together", "0"], 2, "--together")
batch("room for one alone", PROMPTS, s.path("room"), "-n", "9", "--room", "1")
s.check("room: the bytes of single runs", folder(s.path("room")) == expected)
s.refused("no room", ["run", "--jsonl", PROMPTS, *HOW, "-o", OUT, "--room", "0"], 2, "--room")

after = lines("after.jsonl", {"text": "one", "n": 3, "seed": 5}, {"id": "b", "text": "once upon"})
batch("n and seed are of their line", after, s.path("after"), "-n", "9", "-s", "7")
s.check("those of the options come again", read(s.path("after/b.kvf")) == expected["c_3.kvf"])

# Existing traces are skipped, and made again on request.
os.unlink(os.path.join(OUT, "b.2.kvf"))
err = batch("again", PROMPTS, OUT, "-n", "9")
s.check("skipped", err.endswith("1 made, 3 skipped, 0 failed\n") and folder(OUT) == expected, err)

# A writer that was killed after its file was complete leaves its lock, or a temporary file. Files
# of a living writer stay.
left = [os.path.join(OUT, x) for x in (".c_3.kvf.lock", ".c_3.kvf.0123456789abcdef.part")]
for name in left:
    s.file(name, b"")
with open(left[0], "rb") as held:
    fcntl.flock(held, fcntl.LOCK_EX)
    batch("beside a writer", PROMPTS, OUT, "-n", "9")
    s.check("a lock that is held stays", all(os.path.exists(x) for x in left))
batch("after a kill", PROMPTS, OUT, "-n", "9")
s.check("what a killed writer left is gone", not any(os.path.exists(x) for x in left) and folder(OUT) == expected, os.listdir(OUT))

# An existing trace of another run, or a file that is no trace, is reported and stays.
s.file("out/c_3.kvf", b"other bytes")
err = batch("no trace", PROMPTS, OUT, "-n", "9", code=1)
s.check("it is told", "p.jsonl: line 3: " in err and "c_3.kvf: not a kvfate trace" in err and "--overwrite" in err and "3 skipped, 1 failed" in err, err)
s.check("what is there stays", folder(OUT) == {**expected, "c_3.kvf": b"other bytes"})
err = batch("another method", PROMPTS, OUT, "-n", "9", "--method", "h2o", "--budget", "8", code=1)
s.check("what differs is told", err.count("is of another run: method.budget is 12 there and 8 here") == 3 and "0 made, 0 skipped, 4 failed" in err, err)
others = lines("others.jsonl", {"prompt": "hallo"}, {"id": "c_4", "text": "once upon", "seed": 7})
err = batch("another prompt", others, OUT, "-n", "9", code=1)
s.check("the token is told", "line 1: " in err and ("of the prompt is" in err or "prompt_tokens is" in err) and "1 made, 0 skipped, 1 failed" in err, err)
s.check("the line behind it is made", read(os.path.join(OUT, "c_4.kvf")) == expected["c_3.kvf"])
os.unlink(os.path.join(OUT, "c_4.kvf"))
# A run with another model, other gates or another adapter is another run: the header shows it, and
# the existing trace stays.
TWO = lines("two.jsonl", {"id": "a", "text": "once upon"}, {"id": "b", "text": "two"})
SHAPE = ["--layers", "2", "--heads", "4", "--kv-heads", "2", "--head-dim", "16", "--d-model", "64"]
for i in (1, 2):
    o = make_gates.options(["--layout", "rg", *SHAPE, "--seed", str(i), "-o", s.path(f"g{i}.bin")])
    s.file(f"g{i}.bin", make_gates.build(o))
    pair = {f"base_model.model.model.layers.1.self_attn.q_proj.lora_{x}.weight": np.full(shape, 0.1 * i, np.float32) for x, shape in (("A", (2, 64)), ("B", (64, 2)))}
    head, at = {"__metadata__": {"lora_alpha": "4"}}, 0
    for name, v in pair.items():
        head[name] = {"dtype": "F32", "shape": v.shape, "data_offsets": [at, at + v.nbytes]}
        at += v.nbytes
    head = json.dumps(head).encode()
    s.file(f"a{i}.safetensors", struct.pack("<Q", len(head)) + head + b"".join(v.tobytes() for v in pair.values()))
OTHER = Gguf(seed=2).set("llama.context_length", 2048).write(s.path("other.gguf"))
for key, first, second in (("model.hash", [], ["-m", OTHER]), ("model.hash", ["--lora", s.path("a1.safetensors")], ["--lora", s.path("a2.safetensors")]), ("model.hash", ["--lora", s.path("a1.safetensors")], []),
                           ("gates.hash", ["--method", "trimkv", "--gates", s.path("g1.bin")], ["--method", "trimkv", "--gates", s.path("g2.bin")])):
    name = f"{key} {len(first)} {len(second)}"
    out = s.path(name.replace(" ", "_"))
    batch(name + ": made", TWO, out, "-n", "3", *first)
    there = folder(out)
    err = batch(name + ": again", TWO, out, "-n", "3", *first)
    s.check(name + ": the same run is skipped", "0 made, 2 skipped, 0 failed" in err, err)
    err = batch(name + ": other", TWO, out, "-n", "3", *second, code=1)
    s.check(name + ": names the key", err.count(f"is of another run: {key} is ") == 2 and "0 made, 0 skipped, 2 failed" in err and folder(out) == there, err)

# A line never overwrites an input.
own = s.path("own")
os.makedirs(own)
for what, name, argv in (("model", "m", ["-m"]), ("gates", "g", ["--method", "trimkv", "--gates"]), ("adapter", "l", ["--lora"])):
    path = os.path.join(own, name + ".kvf")
    shutil.copy({"m": MODEL, "g": s.path("g1.bin"), "l": s.path("a1.safetensors")}[name], path)
    before = read(path)
    err = batch(f"over the {what}", lines("own.jsonl", {"id": name, "text": "two"}, {"id": "free", "text": "two"}), own, "-n", "2", "--overwrite", *argv, path, code=1)
    s.check(f"the {what} stays", "line 1: " in err and "would overwrite the input" in err and "1 made, 0 skipped, 1 failed" in err and read(path) == before, err)
err = batch("anew", PROMPTS, OUT, "-n", "9", "--overwrite")
s.check("made anew", err.endswith("4 made, 0 skipped, 0 failed\n") and folder(OUT) == expected, err)
s.check("quiet", batch("quiet", PROMPTS, OUT, "-n", "9", "-q") == "")

# Every line is in one shard.
parts = [s.path(f"part{i}") for i in (1, 2, 3)]
for i, part in enumerate(parts, 1):
    batch(f"shard {i}", PROMPTS, part, "-n", "9", "--shard", f"{i}/3", "-q")
names = [sorted(os.listdir(p)) for p in parts]
s.check("shards", names == [["000001.kvf", "d-4.kvf"], ["b.2.kvf"], ["c_3.kvf"]], names)
s.check("shards have the same bytes", {k: v for p in parts for k, v in folder(p).items()} == expected)

# Only the prompt over the context fails.
long = lines("long.jsonl", {"id": "a", "text": "one"}, {"id": "b", "text": "word " * 3000}, {"id": "c", "text": "two"})
err = batch("too long", long, s.path("long"), "-n", "4", code=1)
s.check("the others are made", sorted(os.listdir(s.path("long"))) == ["a.kvf", "c.kvf"], os.listdir(s.path("long")))
s.check("it is told", "long.jsonl: line 2: the prompt has" in err and "2 made, 0 skipped, 1 failed" in err
        and err.splitlines()[-1].endswith("lines that failed: 1, the first is line 2"), err)

# generate writes the same answers, in order.
r = s.accepted("generate", ["generate", "--jsonl", PROMPTS, *HOW, "-n", "9", "-q"])
said = [json.loads(x) for x in r.stdout.splitlines()]
s.check("ids in order", [x["id"] for x in said] == ["000001", "b.2", "c_3", "d-4"] and all(set(x) == {"id", "text", "tokens", "stop"} for x in said), said)
s.check("numbers of tokens", [x["tokens"] for x in said] == [9, 5, 9, 1], said)
for x, argv in zip(said, (["-p", "hello", "-n", "9"], ["--chat", chat, "-n", "5"], ["--raw", "-p", "once upon", "-s", "7", "-n", "9"])):
    one = json.loads(s.accepted("one answer", ["generate", *HOW, *argv, "--json", "-q"]).stdout)
    s.check("the text of a single run", x["text"] == one["text"], x, one["text"])
r = s.accepted("with times", ["generate", "--jsonl", PROMPTS, *HOW, "-n", "9", "-q", "--json"])
timed = [json.loads(x) for x in r.stdout.splitlines()]
s.check("an object for each line", [(x["id"], x["text"], x["generated_tokens"]) for x in timed] == [(x["id"], x["text"], x["tokens"]) for x in said], timed)
s.check("members of a single run", all(set(x) == {"id", *one} for x in timed) and all(x["prefill_seconds"] > 0 for x in timed), timed)
r = s.accepted("traces with times", ["run", "--jsonl", PROMPTS, *HOW, "-n", "9", "-q", "--json", "-o", s.path("timed")])
timed = [json.loads(x) for x in r.stdout.splitlines()]
s.check("bytes of each trace", [x["trace_bytes"] for x in timed] == [len(expected[x["id"] + ".kvf"]) for x in timed] and len(timed) == 4, timed)
s.refused("many methods with times", ["generate", "--jsonl", PROMPTS, *HOW, "--methods", "full", "--json"], 2, "--json", "exclude")
r = s.accepted("generate a shard", ["generate", "--jsonl", PROMPTS, *HOW, "-n", "2", "-q", "--shard", "2/2"])
s.check("every second line", [json.loads(x)["id"] for x in r.stdout.splitlines()] == ["b.2", "d-4"], r.stdout)
r = s.run(["generate", "--jsonl", long, *HOW, "-n", "2", "-q"])
s.check("generate: one fails", r.returncode == 1 and [json.loads(x)["id"] for x in r.stdout.splitlines()] == ["a", "c"] and b"line 2" in r.stderr, r)

# Prompts of ids: the trace and the answer of --ids; the answer has ids, which give its text.
ids = {text: [int(x) for x in s.accepted("tokenize", ["tokenize", "-m", MODEL, "--raw", "-p", text]).stdout.split()] for text in ("once upon", "once upon the thing")}
IDS = lines("ids.jsonl", {"id": "c_3", "ids": ids["once upon"], "seed": 7}, {"id": "no", "ids": ids["once upon"], "n": 0})
batch("ids", IDS, s.path("ids"), "-n", "9")
s.check("ids: the bytes of a single run", read(s.path("ids/c_3.kvf")) == expected["c_3.kvf"])
r = s.accepted("answers to ids", ["generate", "--jsonl", IDS, *HOW, "-n", "9", "-q"])
told = [json.loads(x) for x in r.stdout.splitlines()]
s.check("the text of the single run", told[0]["text"] == said[2]["text"] and told[1] == {"id": "no", "text": "", "tokens": 0, "ids": [], "stop": "length"}, told)
text = s.accepted("their text", ["tokenize", "-m", MODEL, "--jsonl", lines("back.jsonl", {"ids": told[0]["ids"]})]).stdout
s.check("the ids of the answer", json.loads(text)["text"] == told[0]["text"] and len(told[0]["ids"]) == 9, text, told)
r = s.accepted("ids with times", ["generate", "--jsonl", IDS, *HOW, "-n", "9", "-q", "--json"])
s.check("ids with times: the same", json.loads(r.stdout.splitlines()[0])["ids"] == told[0]["ids"])
whole, begin = ids["once upon the thing"], ids["once upon"]
s.check("tokens do not span the border", whole[:len(begin)] == begin)
SCORED = lines("scored.jsonl", {"id": "a", "text": "once upon", "continuation": " the thing"}, {"id": "b", "ids": begin, "continuation": whole[len(begin):]})
for more in ([], ["--methods", "full,window", "--budgets", "8"]):
    how = HOW if not more else ["-m", MODEL, "-t", "1", *more]
    r = s.accepted("scores of ids", ["generate", "--jsonl", SCORED, *how, "-q"])
    told = [json.loads(x) for x in r.stdout.splitlines()]
    a, b = ([{**x, "id": ""} for x in told if x["id"] == i] for i in "ab")
    s.check("scores of ids are those of the text", a == b and len(a) == max(1, len(more) // 2), told)
# The context may be full when the last scored token is predicted, because this token is not fed.
for n, fits in ((len(whole) - 1, True), (len(whole) - 2, False)):
    r = s.run(["generate", "--jsonl", SCORED, *HOW, "-q", "-c", str(n)])
    s.check(f"a context of {n}", (r.returncode, r.stdout.count(b"logprob")) == ((0, 2) if fits else (1, 0)) and (fits or b"over the context" in r.stderr), r)
full = s.accepted("without the limit", ["generate", "--jsonl", SCORED, *HOW, "-q"]).stdout
s.check("the same scores", full == s.accepted("with it", ["generate", "--jsonl", SCORED, *HOW, "-q", "-c", str(len(whole) - 1)]).stdout)
for bad, word in (([1, 300], "value 2"), ([-1], "value 1"), (["1"], "value 1"), ([1.5], "value 1")):
    r = s.run(["generate", "--jsonl", lines("bad.jsonl", {"ids": bad}), *HOW, "-q"])
    s.check(f"ids {bad}", r.returncode == 1 and word.encode() in r.stderr and b"line 1" in r.stderr and not r.stdout, r)

# An interrupted batch can be continued, and gives the same set.
many = lines("many.jsonl", *({"id": f"x{i}", "text": "the thing", "seed": i} for i in range(8)))
batch("undisturbed", many, s.path("whole"), "-n", "300", "-q")
for number in (signal.SIGKILL, signal.SIGINT):
    out = s.path(number.name)
    p = subprocess.Popen([s.exe, "run", "--jsonl", many, *HOW, "-n", "300", "-o", out, "--together", "2"], stderr=subprocess.PIPE)
    while p.poll() is None and not os.path.exists(os.path.join(out, "x2.kvf.unfinished")):
        time.sleep(0.001)
    p.send_signal(number)
    err = p.communicate(timeout=60)[1].decode()
    closed = [x for x in os.listdir(out) if x.endswith(".kvf")]
    s.check(f"{number.name}: it was stopped in the middle", p.returncode != 0 and 1 <= len(closed) < 8, p.returncode, closed)
    s.check(f"{number.name}: what stands at its name is whole", all(read(os.path.join(out, x)) == read(s.path("whole/" + x)) for x in closed))
    if number == signal.SIGINT:
        s.check("SIGINT is told", p.returncode == 130 and "interrupted" in err, p.returncode, err)
    err = batch(f"{number.name}: it goes on", many, out, "-n", "300")
    s.check(f"{number.name}: the same set", folder(out) == folder(s.path("whole")), os.listdir(out))
    s.check(f"{number.name}: whole traces were skipped", f"{8 - len(closed)} made, {len(closed)} skipped, 0 failed" in err, err)

GOOD = b'{"id":"a","prompt":"x"}\n'

# A byte-order mark is not part of the first line, and messages support tools.
s.check("a byte-order mark", batch("with a mark", s.file("mark.jsonl", b"\xef\xbb\xbf" + GOOD), s.path("mark"), "-n", "1").startswith("")
        and sorted(os.listdir(s.path("mark"))) == ["a.kvf"])
batch("messages with tools", lines("tools.jsonl", {"messages": MESSAGES, "tools": [{"name": "f"}]}), s.path("tools"), "-n", "1")
for name, data, word in (("UTF-16", GOOD.decode().encode("utf-16"), "UTF-16"), ("gzip", gzip.compress(GOOD), "gzip"), ("a zip", b"PK\3\4" + bytes(30), "zip")):
    s.refused(name, ["run", "--jsonl", s.file("bad.jsonl", data), *HOW, "-o", s.path("none")], 1, "bad.jsonl", word)

# A prompt in two parts, and the beginning of the answer.
def told(*objects):
    r = s.run(["generate", "--jsonl", lines("parts.jsonl", *({"id": f"x{i}", "n": 6, **x} for i, x in enumerate(objects))), *HOW, "--json"])
    s.check("two parts", r.returncode == 0, r.stderr)
    return [{k: x[k] for k in ("prompt_tokens", "text")} for x in map(json.loads, r.stdout.splitlines())]


for a, b in (({"context": "the red hat", "question": "who?"}, {"prompt": "the red hat\n\nwho?"}), ({"context": "the red hat", "join": "", "question": " who?"}, {"prompt": "the red hat who?"}),
             ({"text": "the red hat", "question": " who?"}, {"text": "the red hat who?"}), ({"text": "the red", "question": " hat", "answer_prefix": " who?"}, {"text": "the red hat who?"}),
             ({"prompt": "the red hat", "task": {"answers": ["x"]}}, {"prompt": "the red hat"})):
    s.check(f"{a} is {b}", told(a) == told(b), told(a), told(b))
short, long = told({"prompt": "the red hat"}, {"prompt": "the red hat", "answer_prefix": "the red hat"})
s.check("the answer prefix follows the template", long["prompt_tokens"] > short["prompt_tokens"] + 2, short, long)

# Lines that are rejected before the first run.
for name, line, *words in (
        ("no JSON", b"{prompt", "line 2"), ("cut off", b'{"prompt":"x"', "line 2"), ("two values", b'{"prompt":"x"} {"prompt":"y"}', "line 2"),
        ("no object", b'["x"]', "object"), ("no text at all", b"{}", "is none"), ("none", b'{"id":"b"}', "is none"),
        ("two kinds", b'{"prompt":"x","text":"y"}', "several"), ("three kinds", b'{"prompt":"x","text":"y","messages":[]}', "several"),
        ("unknown key", b'{"prompt":"x","temp":1}', "unknown key", "temp"), ("a key twice", b'{"prompt":"x","prompt":"y"}', "line 2"),
        ("a repeated id", b'{"id":"a","text":"x"}', "that of line 1"), ("a number as id", b'{"id":7,"text":"x"}', "no text"),
        ("no id", b'{"id":null,"text":"x"}', "no text"), ("an empty id", b'{"id":"","text":"x"}', "safe name"), ("a folder", b'{"id":"a/b","text":"x"}', "safe name"),
        ("upwards", b'{"id":"..","text":"x"}', "safe name"), ("hidden", b'{"id":".a","text":"x"}', "safe name"), ("a space", b'{"id":"a b","text":"x"}', "safe name"),
        ("a long id", b'{"id":"' + b"a" * 101 + b'","text":"x"}', "safe name"), ("no ASCII", '{"id":"\u00e9","text":"x"}'.encode(), "safe name"),
        ("a prompt that is none", b'{"prompt":3}', '"prompt" is no text'), ("a text that is none", b'{"text":["x"]}', '"text" is no text'),
        ("messages that are none", b'{"messages":"x"}', "array"), ("no messages", b'{"messages":[]}', "array"),
        ("a message without a role", b'{"messages":[{"content":"x"}]}', "message 1", "role"),
        ("ids that are none", b'{"ids":"x"}', '"ids" is no array'), ("ids in an object", b'{"ids":{"a":1}}', '"ids" is no array'), ("no ids", b'{"ids":[]}', '"ids" is no array'), ("ids and a text", b'{"ids":[1],"text":"x"}', "several"),
        ("a text after ids", b'{"ids":[1],"continuation":"x"}', "no array of token ids"), ("ids after a text", b'{"text":"x","continuation":[1]}', "no text"),
        ("scores with an end", b'{"ids":[1],"continuation":[1],"until":["x"]}', "allows only"),
        ("a picture", b'{"messages":[{"role":"user","content":[{"type":"image"}]}]}', "message 1", "image"),
        ("tools without messages", b'{"prompt":"x","tools":[]}', "tools", "messages"), ("tools that are none", b'{"messages":[{"role":"user"}],"tools":{}}', "tools", "array"), ("n below 0", b'{"prompt":"x","n":-1}', '"n" is not an integer'),
        ("half an n", b'{"prompt":"x","n":1.5}', '"n" is not an integer'), ("n as text", b'{"prompt":"x","n":"3"}', '"n" is not an integer'),
        ("a large n", b'{"prompt":"x","n":16777217}', '"n" is not an integer'), ("a seed below 0", b'{"prompt":"x","seed":-2}', '"seed" is not an integer'),
        ("a context without a question", b'{"context":"x"}', '"context" requires "question"'), ("an empty question", b'{"context":"x","question":""}', '"question"', "empty"),
        ("a question without a context", b'{"prompt":"x","question":"y"}', '"question" requires'), ("a join of a text", b'{"text":"x","question":"y","join":""}', '"join" requires'),
        ("a join without a question", b'{"prompt":"x","join":""}', '"join" requires'), ("a join that is none", b'{"context":"x","question":"y","join":3}', '"join" is no text'),
        ("a prefix that is none", b'{"prompt":"x","answer_prefix":3}', '"answer_prefix" is no text'), ("a task that is none", b'{"prompt":"x","task":"y"}', '"task" is no object'),
        ("a continuation of a question", b'{"text":"x","question":"y","continuation":"z"}', '"continuation" and "question" exclude'),
        ("NUL", b'{"text":"a\\u0000b"}', "NUL"), ("bad UTF-8", b'{"text":"\xff"}', "line 2"), ("over 16 MiB", b'{"text":"' + b"x" * (16 << 20) + b'"}', "16 MiB")):
    bad = s.file("bad.jsonl", GOOD + line + b"\n" + GOOD.replace(b'"a"', b'"z"'))
    s.refused(name, ["run", "--jsonl", bad, *HOW, "-o", s.path("none")], 1, "bad.jsonl: line 2", *words)
    s.check(f"{name}: nothing ran", not os.path.exists(s.path("none")))
s.refused("a given id that a line without one has", ["run", "--jsonl", lines("bad.jsonl", {"text": "x"}, {"id": "000001", "text": "y"}), *HOW, "-o", s.path("none")],
          1, "line 2", "line 1")
s.refused("a file of no lines", ["run", "--jsonl", s.file("empty.jsonl", b"\n \n"), *HOW, "-o", s.path("none")], 1, "no prompts")
s.refused("no file", ["run", "--jsonl", s.path("nowhere"), *HOW, "-o", s.path("none")], 1, "nowhere", "cannot open")
batch("blank lines, ids of 100 bytes, an escaped backslash", s.file("blank.jsonl", b'\n{"text":"a\\\\u0000"}\r\n\n{"id":"' + b"i" * 100 + b'","text":"x"}'), s.path("blank"), "-n", "1")
s.check("the number of a line counts blank ones", sorted(os.listdir(s.path("blank"))) == ["000002.kvf", "i" * 100 + ".kvf"], os.listdir(s.path("blank")))

# Incompatible options.
for more in (["-p", "x"], ["-f", chat], ["--chat", chat], ["--ids", chat], ["--raw"], ["--force", chat], ["--plan", chat], ["--spans", chat], ["--resume"]):
    s.refused("beside " + more[0], ["run", "--jsonl", PROMPTS, *HOW, "-o", OUT, *more], 2, more[0], "exclude")
for shard in ("0/2", "3/2", "1", "1/", "/2", "a/b", "1/0"):
    s.refused("shard " + shard, ["run", "--jsonl", PROMPTS, *HOW, "-o", OUT, "--shard", shard], 2, "I/N")
s.refused("a shard of nothing", ["generate", "-p", "x", *HOW, "--shard", "1/2"], 2, "--jsonl")
s.refused("no folder", ["run", "--jsonl", PROMPTS, *HOW], 2, "-o")
s.refused("a file as folder", ["run", "--jsonl", PROMPTS, *HOW, "-o", s.file("file", b"")], 2, "no folder")
s.finish()
