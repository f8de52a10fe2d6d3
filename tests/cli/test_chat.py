#!/usr/bin/env python3
"""Chat templates on the command line: the switch for thinking, the date, roles in a trace, and
prompts that a template changes."""
import gzip
import json
import os
import sys

from harness import Gguf, Suite

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "golden", "tools"))
import chat_templates  # noqa: E402

s = Suite()
END = ["-n", "12", "--ignore-eos", "-q", "-t", "1"]


def model(name, template):
    return Gguf().set("tokenizer.chat_template", template).write(s.path(name + ".gguf"))


def said(m, *prompt):
    return s.accepted(" ".join(prompt)[:60], ["generate", "-m", m, *prompt, *END]).stdout


def run(m, *prompt):
    out = s.path("t.kvf")
    s.accepted("run " + " ".join(prompt)[:60], ["run", "--overwrite", "-m", m, *prompt, *END, "-o", out])
    return json.loads(s.accepted("info", ["trace", "info", "--json", out]).stdout), out


# The rendered prompt equals the text that a user types for --raw.
m = model("thoughts", chat_templates.THOUGHTS)
asked = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
s.check("plain", said(m, "-p", "hello") == said(m, "--raw", "-p", asked))
s.check("with thinking", said(m, "-p", "hello", "--think") == said(m, "--raw", "-p", asked))
s.check("without", said(m, "-p", "hello", "--no-think") == said(m, "--raw", "-p", asked + "<think>\n\n</think>\n\n"))
s.refused("both", ["generate", "-m", m, "-p", "x", "--think", "--no-think"], 2, "--think", "exclude")
r = s.accepted("no switch", ["generate", "-m", model("turns", chat_templates.TURNS), "-p", "x", "--think", *END])
s.check("a template without the switch is noted", b"no switch for thinking" in r.stderr, r.stderr)

# The date comes from the caller.
m = model("modes", chat_templates.MODES)
s.refused("no date", ["generate", "-m", m, "-p", "x", *END], 2, "--date", "line 18")
for bad in ("2026-13-01", "2026-00-10", "26-1-1", "2026-11-23x", "today", ""):
    s.refused(f"date '{bad}'", ["generate", "-m", m, "-p", "x", "--date", bad, *END], 2, "YYYY-MM-DD")
day = chat_templates.MODES.replace("strftime_now(\"%A %d %B %Y, %a %m\")", "'Monday 23 November 2026, Mon 11'")
s.check("the date given", said(m, "-p", "x", "--date", "2026-11-23") == said(model("day", day), "-p", "x"))

# Roles.
chat = s.file("chat.json", json.dumps([{"role": "system", "content": "be"}, {"role": "user", "content": "hello there"},
                                       {"role": "assistant", "content": "<think>so</think>yes"}, {"role": "user", "content": "again"}]).encode())
info, trace = run(model("turns", chat_templates.TURNS), "--chat", chat)
turns = info["run"]["turns"] if "turns" in info.get("run", {}) else info.get("header", info).get("turns")
s.check("turns", turns and [t["role"] for t in turns] == ["system", "user", "think", "answer", "user"], turns)
s.check("turns rise and stay apart", turns and all(t["tokens"][0] < t["tokens"][1] for t in turns)
        and all(a["tokens"][1] <= b["tokens"][0] for a, b in zip(turns, turns[1:])), turns)
info, _ = run(model("turns", chat_templates.TURNS), "--raw", "-p", "hello")
s.check("no turns without a template", "turns" not in info.get("header", info))

# Every member of a message reaches the template, from an array and from an object, with or without
# a byte-order mark.
members = model("members", "{% for m in messages %}<|im_start|>{{ m.role }}{% if m.name %} {{ m.name }}{% endif %}{{ '\\n' }}"
                "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content or [] %}{{ p.text }}{% endfor %}{% endif %}"
                "{{ m.reasoning_content or '' }}{% for c in m.tool_calls or [] %}{{ c | tojson }}{% endfor %}{{ m.tool_call_id or '' }}{% endfor %}"
                "{% if tools %}{{ tools | tojson }}{% endif %}")
talk = [{"role": "user", "name": "ada", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": None, "reasoning_content": "think", "tool_calls": [{"id": 1.0, "name": "f"}]},
        {"role": "tool", "tool_call_id": "c7", "content": "20"}]
told = ("<|im_start|>user ada\none two<|im_start|>assistant\nthink" + '{"id": 1.0, "name": "f"}' + "<|im_start|>tool\n20c7")
want = said(members, "--raw", "-p", told)
s.check("members of messages", said(members, "--chat", s.file("talk.json", json.dumps(talk).encode())) == want)
s.check("an object with messages", said(members, "--chat", s.file("talk.json", json.dumps({"messages": talk}).encode())) == want)
s.check("a byte-order mark", said(members, "--chat", s.file("talk.json", b"\xef\xbb\xbf" + json.dumps(talk).encode())) == want)
s.check("tools", said(members, "--chat", s.file("talk.json", json.dumps({"messages": talk, "tools": [{"name": "f"}]}).encode()))
        == said(members, "--raw", "-p", told + '[{"name": "f"}]'))
s.check("a prompt with a byte-order mark", said(members, "--raw", "-f", s.file("p.txt", b"\xef\xbb\xbfhello")) == said(members, "--raw", "-p", "hello"))
for name, data, words in (("a picture", json.dumps([{"role": "user", "content": [{"type": "image_url"}]}]).encode(), ("message 1", "part 1", "image_url")),
                          ("a number", b'[{"role":"user","content":"a"},{"role":"user","content":7}]', ("message 2", '"content" is a number')),
                          ("another shape", b'[{"from":"human","value":"hi"}]', ("message 1", '"role" is absent')),
                          ("another member", b'{"messages":[{"role":"user","content":"a"}],"model":"m"}', ('"model"', "not supported")),
                          ("UTF-16", json.dumps(talk).encode("utf-16"), ("UTF-16", "UTF-8")), ("gzip", gzip.compress(b"[]"), ("gzip", "unpack")),
                          ("a NUL", b'[{"role":"user","content":"a\\u0000b"}]', ("NUL",))):
    s.refused("messages: " + name, ["generate", "-m", members, "--chat", s.file("bad.json", data), *END], 1, "bad.json", *words)
for name, data, words in (("UTF-16", "hello there".encode("utf-16"), ("UTF-16",)), ("gzip", gzip.compress(b"hello"), ("gzip",)),
                          ("a model", open(members, "rb").read(), ("GGUF", "-m")), ("a Parquet table", b"PAR1\x15" + bytes(40), ("Parquet",))):
    s.refused("prompt: " + name, ["generate", "-m", members, "-f", s.file("bad.txt", data), *END], 1, "bad.txt", *words)

# An answer that begins in a thought is a thought until it ends.
_, trace = run(model("open", chat_templates.OPEN_THOUGHT), "-p", "hello")
roles = s.accepted("tokens", ["tokens", trace, "-o", "-"]).stdout.decode()
s.check("the answer is a thought", "\tthink\t" in roles and "\tanswer\t" not in roles, roles[-300:])
_, trace = run(model("turns", chat_templates.TURNS), "-p", "hello")
roles = s.accepted("tokens", ["tokens", trace, "-o", "-"]).stdout.decode()
s.check("and here it is none", "\tthink\t" not in roles and "\tanswer\t" in roles, roles[-300:])

# Prompts that the template changes or omits.
spans = s.file("spans.json", json.dumps({"spans": [{"name": "a", "start": 1, "end": 3}]}).encode())
m = model("strips", chat_templates.BRACKETS)
s.accepted("spans of a prompt as it stands", ["run", "-m", m, "-p", "hello", "--spans", spans, "-o", s.path("a.kvf"), *END])
s.refused("spans of a prompt that is stripped", ["run", "-m", m, "-p", " hello ", "--spans", spans, "-o", s.path("b.kvf"), *END], 1, "--spans", "changes the prompt")
s.refused("a message that is not shown", ["generate", "-m", model("mute", "[INST] {{ x }} [/INST]"), "-p", "x", "-q"], 1, "does not show", "--raw")
s.refused("messages that the template refuses", ["generate", "-m", m, "--chat", s.file("two.json", json.dumps([{"role": "user", "content": "a"}] * 2).encode()), "-q"],
          1, "rejects these messages", "take turns", "--raw")
s.refused("what is not known", ["generate", "-m", model("call", "a\n{{ messages | xmlattr }}"), "-p", "x", "-q"], 1, "line 2", "xmlattr", "--raw")
s.finish()
