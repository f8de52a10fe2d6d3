#!/usr/bin/env python3
"""Check token classes against the character database of Python, and --classes of the commands."""
import itertools
import json
import os
import sys
import tempfile
import unicodedata

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, refused, words_of  # noqa: E402
from maker import ALIVE, Column, make, table

kvfate, write_kvf = map(os.path.abspath, sys.argv[1:3])


def by_database(text):
    """Return the class of a token that depends on no list and no context."""
    kinds = [unicodedata.category(c) for c in text]
    if all(c.isspace() and c not in "\x1c\x1d\x1e\x1f" for c in text):
        return "whitespace"
    if any(k[0] in "LM" for k in kinds):
        return "word"
    if any(k[0] == "N" for k in kinds):
        return "number"
    if any(k == "Sm" for k in kinds) or any(c in "%^/" for c in text) or "*" in text and not text.strip().startswith("**"):
        return "operator"
    if any(k[0] == "P" or c == "`" for c, k in zip(text, kinds)):
        return "punctuation"
    return "symbol" if any(k[0] == "S" for k in kinds) else "word"


with tempfile.TemporaryDirectory(prefix="kvfate-classes-") as folder:
    count = itertools.count()

    def trace(texts, drop=()):
        T = len(texts)
        columns = [Column("tokens.id", "i32", "run", np.arange(T)), Column("tokens.role", "u8", "run", np.zeros(T)),
                   Column("evict_step", "u32", "kv", np.full((1, 1, T), ALIVE)), Column("log_beta", "f32", "kv", -1 - np.arange(T).reshape(1, 1, T))]
        return make(write_kvf, os.path.join(folder, f"{next(count)}.kvf"), columns, (1, 1, 1, T), texts=texts)

    def file(value):
        path = os.path.join(folder, f"{next(count)}.json")
        with open(path, "w") as f:
            f.write(value if isinstance(value, str) else json.dumps(value))
        return path

    # tokens of one to three characters of every kind, separated by tabs, so that no text rule sees two of them
    rng = np.random.default_rng(3)
    pool = {}
    for code in range(0x21, 0x1fbff):
        kind = unicodedata.category(chr(code))
        if kind[0] in "LMNPSZ" and kind not in ("Zl", "Zp"):
            pool.setdefault(kind, []).append(chr(code))
    texts = []
    for _ in range(1900):
        some = [pool[k][rng.integers(len(pool[k]))] for k in rng.choice(sorted(pool), rng.integers(1, 4))]
        texts += [" " * int(rng.integers(2)) + "".join(some), "\t"]
    data, _ = table(kvfate, "tokens", trace(texts))
    wrong = [(t, c, by_database(t)) for t, c in zip(texts, data["class"]) if c != by_database(t)]
    check("database", not wrong, wrong[:10])
    check("database has all", set(data["class"]) == {"whitespace", "word", "number", "operator", "punctuation", "symbol"}, set(data["class"]))

    # custom classes, in order, and the classes of the remaining tokens
    words = ["salt", " water", " 7", " salt", "."]
    x = trace(words)
    own = file({"salt": "salt", "thing": "\\w", "salty": "salt"})
    data, meta = table(kvfate, "tokens", x, "--classes", own)
    check("own", data["class"] == ["salt", "thing", "thing", "salt", "punctuation"], data["class"])
    check("own: metadata", json.loads(meta["classes"]) == [["salt", "salt"], ["thing", "\\w"], ["salty", "salt"]], meta)
    data, meta = table(kvfate, "tokens", x, "--classes", own, "--tokens", "1:4")
    check("own: range", data["class"] == ["thing", "thing", "salt"], data["class"])
    # variance: {1, 4}, {2, 3}, {5} of -1 .. -5: SS 10, means -2.5 -2.5 -5, within 4.5 + .5, between 5
    data, meta = table(kvfate, "retention", "--as", "variance", x, "--scale", "log-beta", "--classes", own)
    i = [*zip(data["head"], data["factor"])].index(("L0K0", "class"))
    check("variance", data["levels"][i] == 3 and abs(data["eta2"][i] - .5) < 1e-15 and "salty" in meta["classes"], data, meta)
    data, meta = table(kvfate, "tokens", x)
    check("none of one's own", "classes" not in meta and data["class"] == ["word", "word", "number", "word", "punctuation"], meta, data["class"])

    # texts that a trace does not contain
    data, _ = table(kvfate, "tokens", make(write_kvf, os.path.join(folder, "dumb.kvf"), [
        Column("tokens.id", "i32", "run", [1, 2]), Column("tokens.role", "u8", "run", [0, 0]), Column("evict_step", "u32", "kv", [[[ALIVE, 1]]])], (1, 1, 1, 2)))
    check("no texts", data["class"] == ["unknown"] * 2, data["class"])
    check("no tokens", table(kvfate, "tokens", trace([]))[0]["class"] == [])

    for command in ("tokens", "variance"):
        refused("no file", 1, [*words_of(command), x, "--classes", os.path.join(folder, "none.json")], "cannot open")
        refused("no JSON", 1, [*words_of(command), x, "--classes", file("{")], "JSON")
        refused("no expression", 1, [*words_of(command), x, "--classes", file({"a": "("})], '"a"', "parenthesis")
        refused("no end", 1, [*words_of(command), trace(["a" * 60 + "b"]), "--classes", file({"slow": "^(a+)+$"})], '"slow"', "steps")

finish()
