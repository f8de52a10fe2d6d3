#!/usr/bin/env python3
"""tokenize: counts equal the counts of a run, ids decode to the text, each line is answered before
the next one, and bad lines are rejected."""
import json
import os
import subprocess
import sys

from harness import Gguf, Suite

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "golden", "tools"))
import chat_templates  # noqa: E402

s = Suite()
MODEL = Gguf().set("tokenizer.chat_template", chat_templates.TURNS).set("llama.context_length", 2048).write(s.path("m.gguf"))


def told(*lines, flags=()):
    r = s.run(["tokenize", "-m", MODEL, *flags], input="".join(json.dumps(x) + "\n" for x in lines).encode())
    s.check("tokenize", r.returncode == 0, r.stderr)
    return [json.loads(x) for x in r.stdout.splitlines()]


TEXTS = ["", "once upon a time", "a\n\n  b", "\u00e9\u56fe x", "one the of"]
made = told(*({"text": t} for t in TEXTS), flags=["--ids"])
s.check("as many as ids", all(x["tokens"] == len(x["ids"]) for x in made), made)
back = told(*({"ids": x["ids"]} for x in made))
s.check("ids decode to the text", [x["text"].strip() for x in back] == [t.strip() for t in TEXTS], back)
for key in ("text", "prompt"):
    for prefix in ("", " The answer is"):
        [here] = told({key: TEXTS[1], "answer_prefix": prefix})
        line = {"id": "x", key: TEXTS[1], "n": 1, **({"answer_prefix": prefix} if prefix else {})}
        r = s.run(["generate", "-m", MODEL, "--json", "--jsonl", s.file("l.jsonl", json.dumps(line).encode() + b"\n")])
        s.check(f"the tokens of a run: {key}, {prefix!r}", json.loads(r.stdout)["prompt_tokens"] == here["tokens"], r, here)
MESSAGES = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "the"}, {"role": "user", "content": "who?"}]
[here] = told({"messages": MESSAGES})
r = s.run(["generate", "-m", MODEL, "--json", "--jsonl", s.file("l.jsonl", json.dumps({"messages": MESSAGES, "n": 1}).encode() + b"\n")])
s.check("the tokens of a chat", json.loads(r.stdout)["prompt_tokens"] == here["tokens"], r, here)
s.check("without --ids there are none", told({"text": "a"})[0].keys() == {"tokens"})
s.check("from a file", s.run(["tokenize", "-m", MODEL, s.file("t.jsonl", b'{"text": "once"}\n\n{"text": ""}\n')]).stdout.count(b"\n") == 2)

p = subprocess.Popen([s.exe, "tokenize", "-m", MODEL], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for t in TEXTS:  # reads each answer before it writes the next line
    p.stdin.write(json.dumps({"text": t}).encode() + b"\n")
    p.stdin.flush()
    s.check("a line at a time", "tokens" in json.loads(p.stdout.readline()))
p.stdin.close()
s.check("the end of the input", p.wait() == 0 and p.stdout.read() == b"")
p.stdout.close()

for what, line, words in (("no JSON", "{", ["line 1"]), ("no object", "[]", ["object"]), ("an unknown key", '{"txt": "a"}', ["txt", "answer_prefix"]), ("two kinds", '{"text": "a", "ids": []}', ["exactly one"]),
                          ("no kind", '{"answer_prefix": "a"}', ["exactly one"]), ("ids that are none", '{"ids": [99999]}', ["vocabulary"]), ("messages that are none", '{"messages": [3]}', ["message 1"]), ("ids that are texts", '{"ids": ["a"]}', ["whole numbers"]),
                          ("a number", '{"text": 3}', ["a text"]), ("a prefix of ids", '{"ids": [], "answer_prefix": "a"}', ["answer_prefix"])):
    s.refused(what, ["tokenize", "-m", MODEL], 1, *words, input=line.encode())
s.refused("no file", ["tokenize", "-m", MODEL, s.path("none")], 1, "none", "cannot open")
s.refused("no model", ["tokenize", "-m", s.path("none.gguf")], 1, "none.gguf")
s.finish()
