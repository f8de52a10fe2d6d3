#!/usr/bin/env python3
"""usage: test_scores.py KVFATE MODELS SOURCE_ROOT

Compares log-probabilities of continuations with the logits that `kvfate generate --logits` gives for each
prefix. Also tests answers that end before a text, texts that are given as ids, and all errors."""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

KVFATE, MODELS, ROOT = map(os.path.abspath, sys.argv[1:4])
sys.path += [os.path.join(ROOT, "python"), os.path.join(ROOT, "tests")]
os.environ["PATH"] = os.path.dirname(KVFATE) + os.pathsep + os.environ["PATH"]
from check import check, finish  # noqa: E402
import kvfate  # noqa: E402

MODEL = os.path.join(MODELS, "tiny6.gguf")
work = tempfile.TemporaryDirectory(prefix="kvfate-scores-")
exact = {"exact": True, "kv_type": "f32", "threads": 1}


def path(name, text=None):
    name = os.path.join(work.name, name)
    if text is not None:
        with open(name, "w", encoding="utf-8") as f:
            f.write(text)
    return name


def ids_of(text):
    """Returns the tokens of a raw text, from a trace of it."""
    subprocess.run([KVFATE, "run", "-m", MODEL, "--raw", "-f", path("x.txt", text), "-n", "0", "-q", "--overwrite", "-o", path("x.kvf")],
                   check=True, capture_output=True)
    with kvfate.open(path("x.kvf")) as t:
        return [int(i) for i in t["tokens.id"][:]]


def logits(ids):
    subprocess.run([KVFATE, "generate", "--logits", "-m", MODEL, "--exact", "--kv-type", "f32", "-t", "1", "--ids", path("x.ids", " ".join(map(str, ids))),
                    "-o", path("x.npy")], check=True, capture_output=True)
    return np.load(path("x.npy")).astype(np.float64)


def expected(text, more):
    before, whole = ids_of(text) if text else [], ids_of(text + more)
    after = whole[len(before):]
    total, greedy = 0.0, True
    for i, token in enumerate(after):
        x = logits(before + after[:i])
        total += x[token] - x.max() - np.log(np.exp(x - x.max()).sum())
        greedy &= int(x.argmax()) == token
    return total, greedy, len(after)


pairs = [("the thing in there", " and it is the other one"), ("the thing", " of"), ("it is what it is and", " so be it, he said.\nThen more")]
full = kvfate.Scores(model=MODEL, **exact)
for (text, more), got in zip(pairs, full.continuations(pairs)):
    want = expected(text, more)
    check("full cache: %r" % more, abs(got.logprob - want[0]) < 1e-4 and got[1:] == want[1:], got, want)
likely = full.answers(["the thing in there"], most=6)[0]
again = full.continuations([("the thing in there", likely)])[0]
check("what is answered is the likeliest", again.greedy or "\ufffd" in likely, likely, again)
check("nothing is asked", full.continuations([]) == [])
small = kvfate.Scores(model=MODEL, method="window", budget=8, **exact).continuations(pairs)
check("a small cache changes what is said", all(abs(a.logprob - b.logprob) > 1e-6 for a, b in zip(full.continuations(pairs)[::2], small[::2])))

whole = full.answers(["the thing in there"], most=24)[0]
for stop in sorted({whole[k:k + n] for k in range(3, len(whole) - 3, 4) for n in (1, 2)} - {"\ufffd", ""}):
    if "\ufffd" in stop:
        continue
    got = full.answers(["the thing in there"], most=24, until=["never there", stop])[0]
    check("ends before %r" % stop, got == whole[:whole.index(stop)], got, whole)
check("an answer that nothing ends", full.answers(["the thing in there"], most=24, until=["never there"])[0] == whole)


def refused(name, lines, sentence, status=1):
    r = subprocess.run([KVFATE, "generate", "-m", MODEL, "--jsonl", path("bad.jsonl", "\n".join(map(json.dumps, lines)))], capture_output=True, text=True)
    check(name, r.returncode == status and sentence in r.stderr and not r.stdout, r)


refused("a continuation of a message", [{"prompt": "a", "continuation": "b"}], "needs")
refused("a continuation with a seed", [{"text": "a", "continuation": "b", "seed": 1}], "needs")
refused("an empty continuation", [{"text": "a", "continuation": ""}], "empty")
refused("a continuation that is no text", [{"text": "a", "continuation": 4}], "no text")
refused("ends that are no array", [{"text": "a", "until": "b"}], "until")
refused("an end that is empty", [{"text": "a", "until": [""]}], "until")
refused("too many ends", [{"text": "a", "until": ["x"] * 65}], "until")
try:
    kvfate.Scores(model=path("none.gguf")).continuations(pairs)
    check("no model", False)
except kvfate.ProgramError as e:
    check("no model", "none.gguf" in str(e), e)
try:
    full.continuations([("a " * 5000, "b")])
    check("too long", False)
except kvfate.ProgramError as e:
    check("too long", "context" in str(e), e)

tokenizer = kvfate.Tokenizer(MODEL)
ids = [(ids_of(text), ids_of(text + more)[len(ids_of(text)):]) for text, more in pairs]
check("continuations of ids", full.continuations(ids) == full.continuations(pairs))
told = full.answers_told([ids[0][0], pairs[0][0]], most=6)
check("answers to ids", told[0][:3] == told[1][:3] and tokenizer.decode(told[0].ids) == told[0].text and told[1].ids is None, told)
for text, more in pairs:
    check("ids of %r" % text, tokenizer.encode(text + more) == ids_of(text + more) and tokenizer.decode(ids_of(text + more)) == text + more)
check("facts", (tokenizer.context, tokenizer.bos, tokenizer.eos, tokenizer.start, tokenizer.adds_bos, tokenizer.vocabulary) == (512, 1, 2, 1, False, 320),
      vars(tokenizer))
check("messages", tokenizer.render([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], continued=True) ==
      "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb")
for what, call, words in (("no model", lambda: kvfate.Tokenizer(path("none.gguf")), "none.gguf"), ("a wrong id", lambda: tokenizer.decode([320]), "value 1"),
                          ("no messages", lambda: tokenizer.render([]), "messages")):
    try:
        call()
        check(what, False)
    except kvfate.ProgramError as e:
        check(what, words in str(e), e)
check("it goes on", tokenizer.encode("the") == ids_of("the"))
tokenizer.close()
work.cleanup()
finish()
