"""Prompts with known answers, made of the words of the tiny models, and the meaning of their
tokens."""
import json
import os
import random
import sys

import numpy as np

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import tiny_llama  # noqa: E402

WORDS = "the thing in there and other one is of an it he she ran red bit top hat".split()


def make_task(s, name, seed):
    """Writes a prompt of words with evidence in two places, a question and a reply."""
    rng = random.Random(seed)

    def words(n):
        return "".join(" " + rng.choice(WORDS) for _ in range(n)).encode()
    text, spans = words(12 + rng.randrange(6)), []
    for n in (4, 3):
        part = words(n)
        spans.append({"name": "needle", "useful": True, "start": len(text), "end": len(text) + len(part)})
        text += part + words(9)
    question = words(5)
    spans.append({"name": "question", "useful": False, "start": len(text), "end": len(text) + len(question)})
    text += question
    lead, value, between, last = words(3), words(2), words(1), words(1)
    reply = lead + value + between + last + b" ."
    ends = [len(lead), len(lead + value), len(lead + value + between), len(lead + value + between + last)]
    task = {"reply": {"text": reply.decode(), "values": [[ends[0], ends[1]], [ends[2], ends[3]]]}, "spans": spans}
    s.file(name + ".txt", text)
    s.file(name + ".json", json.dumps(task).encode())
    return {"name": s.path(name), "text": text, "reply": reply, "task": task}


def prepare(s, t, path, sinks=0):
    """Returns its ids, the answer's query, the scored predictions, and the kind of each entry."""
    meta = tiny_llama.read_gguf(path)[0]
    whole = s.file("whole.txt", t["text"] + t["reply"])
    s.run(["run", "--overwrite", "-m", path, "--raw", "-f", whole, "-n", "1", "-q", "--probes", "lean", "-o", s.path("ids.kvf")])
    rows = [r.split("\t") for r in s.run(["tokens", s.path("ids.kvf"), "-o", "-"]).stdout.decode("utf-8", "replace").splitlines() if not r.startswith("#")]
    at, role = rows[0].index("id"), rows[0].index("role")
    t["ids"] = [int(r[at]) for r in rows[1:] if r[role] == "prompt"]
    ends = np.cumsum([len(meta["tokenizer.ggml.tokens"][i]) for i in t["ids"]])  # each letter of such a token is one byte
    assert ends[-1] == len(t["text"] + t["reply"])
    starts = np.concatenate([[0], ends[:-1]])

    def tokens(a, b):
        return [i for i in range(len(ends)) if starts[i] < b and ends[i] > a]
    values = [i for a, b in t["task"]["reply"]["values"] for i in tokens(len(t["text"]) + a, len(t["text"]) + b)]
    t["query"] = min(values) - 1
    t["steps"] = max(values) - t["query"]
    t["scored"] = [t["query"] + k + 1 in values for k in range(t["steps"])]
    spans = t["task"]["spans"]
    t["evidence"] = sorted({i for x in spans if x["useful"] for i in tokens(x["start"], x["end"])})
    t["reply_at"] = min(tokens(len(t["text"]), len(t["text"]) + 1))
    question = min(i for x in spans if not x["useful"] for i in tokens(x["start"], x["end"]))
    t["question"] = question
    t["distractors"] = [i for i in range(sinks, question) if i not in t["evidence"]]
    return t
