#!/usr/bin/env python3
"""kvfate tokenize: ids equal byte-pair merges that are made here, and the ids that a run records.
Texts of ids give back the text. Chat templates are rendered as Python's own format. Tests each
request of --jsonl, answers before the next line is sent, and each failure."""
import json
import os
import random
import subprocess
import sys

from harness import Gguf, Suite

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
import kvfate  # noqa: E402

s = Suite()
from gen_tiny import byte_spelling  # noqa: E402

TEMPLATE = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] | trim + '<|im_end|>\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% if enable_thinking is defined and not enable_thinking %}{{ '<think></think>' }}"
            "{% endif %}{% endif %}")
made = Gguf().set("tokenizer.chat_template", TEMPLATE)
MODEL = made.write(s.path("m.gguf"))
START = made.set("tokenizer.ggml.add_bos_token", True).write(s.path("start.gguf"))
BARE = Gguf().drop("tokenizer.chat_template").drop("tokenizer.ggml.bos_token_id").write(s.path("bare.gguf"))
tokens, merges = made.get("tokenizer.ggml.tokens"), [tuple(m.split()) for m in made.get("tokenizer.ggml.merges")]


def merged(word):
    """The ids of a word of ASCII letters: the first merge of the list that applies, again and again."""
    parts = list(word)
    while len(parts) > 1:
        rank, at = min((merges.index(p) if p in merges else len(merges), i) for i, p in enumerate(zip(parts, parts[1:])))
        if rank == len(merges):
            break
        parts[at:at + 2] = [parts[at] + parts[at + 1]]
    return [tokens.index(p) for p in parts]


def ask(model, *lines, code=0, more=()):
    """The answers to the lines of a file."""
    text = "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines)
    r = s.run(["tokenize", "-m", model, "--jsonl", s.file("lines", text.encode()), *more])
    s.check(f"status {code}", r.returncode == code, r)
    return [json.loads(line) for line in r.stdout.decode().splitlines()]


def turns(*messages, end="<|im_start|>assistant\n"):
    return "".join(f"<|im_start|>{role}\n{text.strip()}<|im_end|>\n" for role, text in messages) + end


WORDS = ["the", "thing", "other", "thinner", "zzz", "q"]
r = ask(MODEL, *({"text": w} for w in WORDS))
s.check("ids of words", [x["ids"] for x in r] == [merged(w) for w in WORDS], r)
for word in WORDS:
    r = s.accepted(word, ["tokenize", "-m", MODEL, "--raw", "-p", word])
    s.check("on one line: " + word, r.stdout.decode() == " ".join(map(str, merged(word))) + "\n", r)
TEXT = "the thing,\n 12 th\u00e9 <|im_start|>x\t\u65e5\u672c"
s.accepted("run", ["run", "-m", MODEL, "--raw", "-p", TEXT, "-n", "0", "-q", "-o", s.path("x.kvf")])
ids = [int(x) for x in kvfate.open(s.path("x.kvf"))["tokens.id"][:]]
(said, back, bare), mark = ask(MODEL, {"text": TEXT}, {"ids": ids}, {"ids": ids, "marks": False}), "<|im_start|>"
s.check("the ids of a run", said["ids"] == ids and ids.count(tokens.index(mark)) == 1, said, ids)
s.check("the text of its ids", back["text"] == TEXT and bare["text"] == TEXT.replace(mark, ""), back, bare)
name = s.file("x.ids", " ".join(map(str, ids)).encode())
r = s.accepted("ids of a file", ["tokenize", "-m", MODEL, "--ids", name])
s.check("give their text", r.stdout.decode() == TEXT + "\n", r)
s.check("both", json.loads(s.accepted("--json", ["tokenize", "-m", MODEL, "--raw", "-p", TEXT, "--json"]).stdout) == {"text": TEXT, "ids": ids})
# Bytes that are not UTF-8: Python replaces the same bytes as the Unicode standard recommends.
spelling = byte_spelling()
chance = random.Random(1)
BYTES = [b"\xe6", b"\xe6\x97", b"\xe6\x97a", b"\xf0\x9f\x98", b"\xf0\x9f\x98\xe6\x97\xa5", b"\xed\xa0\x80", b"\xe0\x80\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xf5", b"\x80"]
BYTES += [bytes(chance.choice([chance.randrange(256), *b"\x80\xbf\xe0\xed\xf0\xf4\x9f\x90a"]) for _ in range(8)) for _ in range(200)]
r = ask(MODEL, *({"ids": [tokens.index(spelling[b]) for b in x]} for x in BYTES))
for x, got in zip(BYTES, r):
    s.check(f"text of the bytes {x}", got == {"text": x.decode("utf-8", "replace")}, got)
s.check("no text", ask(MODEL, {"text": ""}, {"ids": []}) == [{"ids": []}, {"text": ""}])

# The start mark: added where the vocabulary wants it or the line asks for it, and never twice.
the, bos = merged("the"), made.get("tokenizer.ggml.bos_token_id")
asked = [{"text": t, **more} for t in ("the", "<|im_start|>the") for more in ({}, {"start": True}, {"start": False})]
for model, adds in ((MODEL, False), (START, True)):
    want = [[bos] * x + the for x in (adds, True, False, True, True, True)]
    s.check(f"start mark, {adds}", [x["ids"] for x in ask(model, *asked)] == want)
s.check("no start mark to add", ask(BARE, {"text": "the", "start": True}) == [{"ids": the}])

# Messages.
CHAT = [{"role": "system", "content": "be"}, {"role": "user", "content": " the "}, {"role": "assistant", "content": "so \n"}]
pairs = [(m["role"], m["content"]) for m in CHAT]
r = ask(MODEL, {"messages": CHAT[:2]}, {"messages": CHAT, "continue": True}, {"messages": CHAT, "continue": False})
whole = turns(*pairs, end="")
s.check("messages", [x["text"] for x in r] == [turns(*pairs[:2]), whole[:whole.rindex("<|im_end|>")], turns(*pairs)], r)
r = ask(MODEL, {"messages": CHAT[:2]}, more=["--no-think"])
s.check("without thinking", r[0]["text"] == turns(*pairs[:2]) + "<think></think>", r)
chat = s.file("chat.json", json.dumps(CHAT[:2]).encode())
r = json.loads(s.accepted("--chat", ["tokenize", "-m", MODEL, "--chat", chat, "--json"]).stdout)
s.check("the ids of messages", r["text"] == turns(*pairs[:2]) and r["ids"] == ask(MODEL, {"text": r["text"]})[0]["ids"], r)

# Facts.
fact = ask(MODEL, {"model": True})[0]
s.check("facts", (fact["vocabulary"], fact["context"], fact["bos"], fact["eos"], fact["start"], fact["adds_bos"], fact["template"], fact["name"]) == (
    300, 512, 1, 2, 1, False, TEMPLATE, os.path.basename(MODEL)[:-5]) and len(fact["tokenizer"]) == 32, fact)
fact = ask(BARE, {"model": True})[0]
s.check("facts that a model lacks", "template" not in fact and "bos" not in fact and fact["start"] == fact["eos"] == 2, fact)

# A line is answered before the next one is sent.
p = subprocess.Popen([s.exe, "tokenize", "-m", MODEL, "--jsonl", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for word in WORDS:
    p.stdin.write(json.dumps({"text": word}).encode() + b"\n")
    p.stdin.flush()
    s.check("at once: " + word, json.loads(p.stdout.readline())["ids"] == merged(word))
p.stdin.close()
s.check("the end of a pipe", p.wait() == 0 and p.stdout.read() == b"")
p.stdout.close()

# Wrong lines: each has a sentence, and the others are answered.
BAD = [("{", "JSON"), ([], "expected an object"), ({}, "one of"), ({"text": "a", "ids": [1]}, "one of"), ({"text": 1}, "no text"), ({"text": "a", "x": 1}, '"x"'),
       ({"text": "a", "marks": True}, '"marks" does not go with "text"'), ({"text": "a", "start": 1}, '"start" is neither'), ({"ids": 1}, "no array"),
       ({"ids": {"a": 1}}, "no array"), ({"ids": [1, 300]}, "value 2"), ({"ids": [-1]}, "value 1"), ({"ids": [1.5]}, "value 1"), ({"ids": ["1"]}, "value 1"),
       ({"messages": []}, "messages"), ({"messages": "a"}, "messages"), ({"messages": [{"role": "user", "content": " "}], "continue": True}, "last message"),
       ({"messages": CHAT, "tools": [], "start": True}, '"start" does not go'), ({"model": True, "text": "a"}, "one of")]
r = ask(MODEL, *(x for line, _ in BAD for x in (line, {"text": "the"}, "")), code=1)
s.check("all are answered", len(r) == 2 * len(BAD) and all(x == {"ids": the} for x in r[1::2]), r)
for (line, words), x in zip(BAD, r[::2]):
    s.check(f"wrong: {line}", list(x) == ["error"] and words in x["error"], x)
r = s.run(["tokenize", "-m", MODEL, "--jsonl", s.file("bad", b'{"text": "a"}\n\n{}\n{}\n')])
s.check("the line at the end", r.returncode == 1 and b"lines that failed: 2, the first is line 3" in r.stderr, r)
s.check("no template", "no chat template" in ask(BARE, {"messages": CHAT}, code=1)[0]["error"])
s.refused("no text", ["tokenize", "-m", MODEL], 2, "-p")
s.refused("no model", ["tokenize", "-m", s.path("none.gguf"), "-p", "a"], 1, "none.gguf")
s.refused("no file", ["tokenize", "-m", MODEL, "--jsonl", s.path("none")], 1, "none")
s.refused("a text and lines", ["tokenize", "-m", MODEL, "--jsonl", name, "-p", "a"], 2, "-p", "--jsonl")
s.refused("no words for a template", ["tokenize", "-m", MODEL, "--raw", "-p", "a", "--no-think"], 2, "--no-think", "--raw")
s.refused("a wrong id", ["tokenize", "-m", MODEL, "--ids", s.file("bad.ids", b"1 300")], 1, "bad.ids")
s.refused("JSON of lines", ["tokenize", "-m", MODEL, "--jsonl", name, "--json"], 2, "--json")
s.finish()
