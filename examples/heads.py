#!/usr/bin/env python3
"""Heads found again across models: the models, texts and traces of docs/studies/heads.md, and what is measured on them.

usage: examples/heads.py MODEL.gguf FOLDER OUT       makes what OUT lacks, then prints the tables as Markdown
       examples/heads.py MODEL.gguf FOLDER OUT make    the models, texts and traces alone
       examples/heads.py MODEL.gguf FOLDER OUT tables  the tables of those traces that are there

FOLDER holds wikitext2-valid.txt and gsm8k-train.jsonl; pages and code are those of this repository.  Texts are cut to LENGTH
tokens, and no piece of text is in two of them.  A stopped run goes on when the same command is given again.  KVFATE names the
program (kvfate), LENGTH the tokens of a text (1100), OTHER a model of another family, which reads the texts of 128 tokens.
"""
import glob
import json
import os
import re
import subprocess
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gguf_copies  # noqa: E402
from gguf_copies import files  # noqa: E402

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KVFATE = os.environ.get("KVFATE", "kvfate")
LENGTH = int(os.environ.get("LENGTH", "1100"))
# The texts of the two groups that are held against each other: never the same.
FIRST = ["prose-0", "maths-0", "pages-0", "code-0", "prose-1", "prose-2", "prose-3", "code-1", "maths-1"]
SECOND = ["prose-4", "maths-2", "pages-1", "code-2", "prose-5", "prose-6", "prose-7", "code-3", "maths-3"]
MIXED = 4  # the first of them: one text of each kind
SHORT = (128, 256, 512)


def once(path, make):
    """Calls make(part) unless path exists; the part becomes path when it is whole."""
    if not os.path.exists(path):
        with files.making(path) as part:
            make(part)
    return path


# ---- texts

def sources(folder):
    """kind: a list of long stretches of text, from which one text each is cut."""
    with open(f"{folder}/wikitext2-valid.txt", encoding="utf-8") as f:
        articles = re.split(r"\n(?= = [^=].*[^=] = \n)", f.read())
    with open(f"{folder}/gsm8k-train.jsonl", encoding="utf-8") as f:
        problems = [json.loads(line) for line in f][:400]
    solved = ["Question: %s\nAnswer: %s\n\n" % (p["question"], re.sub(r"<<.*?>>", "", p["answer"])) for p in problems]

    def whole(names):
        texts = []
        for name in names:
            with open(os.path.join(HERE, name), encoding="utf-8") as f:
                texts.append(f.read())
        return texts
    return {
        "prose": [a for a in articles if len(a) > 8000],
        "maths": ["".join(solved[k:k + 40]) for k in range(0, 400, 40)],
        "pages": whole(["docs/reference/eval.md", "docs/reference/format.md", "docs/reference/gates.md"]),
        "code": whole(["base/table_io.c", "base/json.c", "base/opt.c", "base/stats.c"]),
    }


def count_tokens(model, path, scratch):
    """A run with a budget of one entry prints the number of tokens of its prompt."""
    said = subprocess.run([KVFATE, "run", "-m", model, "-f", path, "--raw", "-n", "0", "-c", "1", "-q", "--overwrite", "-o", scratch],
                          capture_output=True, text=True).stderr
    return int(re.search(r"the prompt has (\d+) tokens", said).group(1))


def cut(model, text, length, path):
    size = 4 * length
    for _ in range(6):
        files.write(path, text[:size])
        n = count_tokens(model, path, path + ".kvf")
        if length - 8 <= n <= length:
            break
        size = max(16, int(size * (length - 3) / n))


# ---- traces

def trace(out, model, text, length=LENGTH):
    """The trace of a model and a text: OUT/trace/MODEL.TEXT.LENGTH.kvf"""
    def make(part):
        subprocess.run(["nice", "-n", "19", KVFATE, "run", "-m", f"{out}/model/{model}.gguf", "-f", f"{out}/text/{text}.{length}.txt", "--raw",
                        "-n", "0", "-t", "1", "--probes", "paper", "-q", "--overwrite", "-o", part], check=True, stdout=subprocess.DEVNULL)
    return once(f"{out}/trace/{model}.{text}.{length}.kvf", make)


def wanted():
    """(model, text, length) of all traces, those that most tables need first."""
    one = [("q4", t, LENGTH) for t in FIRST[:MIXED]] + [("q8", t, LENGTH) for t in SECOND[:MIXED]]
    negatives = [(m, t, LENGTH) for t in SECOND[:MIXED] for m in ("random", "permuted")]
    more = [x for a, b in zip(FIRST[MIXED:], SECOND[MIXED:]) for x in (("q4", a, LENGTH), ("q8", b, LENGTH))]
    short = [(m, t, n) for n in SHORT for m, group in (("q4", FIRST), ("q8", SECOND)) for t in group[:MIXED]]
    last = [(m, t, LENGTH) for t in SECOND[:MIXED] for m in ("ablated", "shuffled", "f16", "q4_0")]
    return one + negatives + more + short + last


def make(model, folder, out):
    for name in ("model", "text", "trace"):
        os.makedirs(f"{out}/{name}", exist_ok=True)
    once(f"{out}/model/q4.gguf", lambda part: os.symlink(os.path.abspath(model), part))
    texts = sources(folder)
    for name, text, length in wanted():
        kind, k = text.split("-")
        once(f"{out}/text/{text}.{length}.txt", lambda part: cut(model, texts[kind][int(k)], length, part))
        once(f"{out}/model/{name}.gguf", lambda part: gguf_copies.copy(model, part, name))
        trace(out, name, text, length)


# ---- what is measured: groups of texts, the first of Q4_1, the second of another copy

KINDS = ("prose", "maths", "pages", "code")
PROSE = ([f"prose-{k}" for k in range(4)], [f"prose-{k}" for k in range(4, 8)])


def comparisons():
    """(table, row, copy, texts of the first group, texts of the second, length)"""
    mixed, other = FIRST[:MIXED], SECOND[:MIXED]
    for copy in gguf_copies.COPIES:
        yield "models", copy, copy, mixed, other, LENGTH
    for a in PROSE[0][:3]:
        yield "kinds", f"one of prose ({a}), one of code", "q8", [a], ["code-2"], LENGTH
    yield "kinds", "four of prose, four mixed", "q8", PROSE[0], other, LENGTH
    for kind, a, b in zip(KINDS, mixed, other):
        yield "texts", f"1, {kind}", "q8", [a], [b], LENGTH
    yield "texts", "2, prose", "q8", PROSE[0][:2], PROSE[1][:2], LENGTH
    yield "texts", "2, prose and maths", "q8", mixed[:2], other[:2], LENGTH
    yield "texts", "2, pages and code", "q8", mixed[2:], other[2:], LENGTH
    yield "texts", "3, prose", "q8", PROSE[0][:3], PROSE[1][:3], LENGTH
    yield "texts", "4, prose", "q8", *PROSE, LENGTH
    for length in SHORT:
        yield "tokens", f"{length}", "q8", mixed, other, length


def read_table(path):
    with open(path, encoding="utf-8") as f:
        lines = [line.rstrip("\n").split("\t") for line in f if not line.startswith("#")]
    return [dict(zip(lines[0], line)) for line in lines[1:]]


def same_head(model, copy):
    """(layer, index, space) of a head of the model -> its head of the copy, or None"""
    g = gguf_copies.Gguf(model) if copy in ("permuted", "shuffled") else None
    if copy == "permuted":
        order = [[list(x) for x in gguf_copies.head_order(g, layer)] for layer in range(g.config("block_count"))]
        return lambda layer, index, space: (layer, order[layer][space == "kv"].index(index))
    if copy == "shuffled":
        layers = list(gguf_copies.layer_order(g))
        return lambda layer, index, space: (layers.index(layer), index)
    if copy == "random":
        return lambda layer, index, space: None
    if copy == "ablated":
        return lambda layer, index, space: None if space == "query" and (layer, index) == gguf_copies.ABLATED else (layer, index)
    return lambda layer, index, space: (layer, index)


def judged(model, path, copy):
    """Of query and of KV heads: matches, right ones, proven ones, wrong ones among the proven."""
    truth, out = same_head(model, copy), []
    for space in ("query", "kv"):
        rows = [r for r in read_table(path) if r["space"] == space]
        right = [truth(int(r["layer_a"]), int(r["index_a"]), space) == (int(r["layer_b"]), int(r["index_b"])) for r in rows]
        own = [r["own"] == "1" for r in rows]
        out.append((len(rows), sum(right), sum(own), sum(o and not ok for o, ok in zip(own, right))))
    return out


def measure(model, out):
    os.makedirs(f"{out}/match", exist_ok=True)
    before = None
    for table, row, copy, first, second, length in comparisons():
        traces = [f"{out}/trace/q4.{t}.{length}.kvf" for t in first] + [f"{out}/trace/{copy}.{t}.{length}.kvf" for t in second]
        name = re.sub(r"[^a-z0-9]+", "-", f"{table} {row}").strip("-")
        if not all(map(os.path.exists, traces)):
            print(f"{table}, {row}: traces are missing", file=sys.stderr)
            continue
        path = once(f"{out}/match/{name}.tsv", lambda part: subprocess.run(
            ["nice", "-n", "19", KVFATE, "compare", *traces, "--match", "--groups", str(len(first)), "-o", part], check=True, stdout=subprocess.DEVNULL))
        if table != before:
            print(f"\n| {table} | query heads right | proven | wrong of these | KV heads right | proven | wrong of these |\n|---|---|---|---|---|---|---|")
            before = table
        (n, right, own, wrong), (kv, kv_right, kv_own, kv_wrong) = judged(model, path, copy)
        print(f"| {row} | {right} of {n} | {own} | {wrong} | {kv_right} of {kv} | {kv_own} | {kv_wrong} |", flush=True)


def families(out):
    """A model of another family and tokenizer with itself, which says what can be proven of one so small, and with the two copies, of
    which no match is right or wrong: what counts is how many are proven."""
    length = SHORT[0]
    once(f"{out}/model/other.gguf", lambda part: os.symlink(os.path.abspath(os.environ["OTHER"]), part))
    print("\n| models | query heads matched | of the same name | proven | KV heads matched | of the same name | proven |\n|---|---|---|---|---|---|---|")
    for row, one, two in (("the other with itself", "other", "other"), ("Q4_1 and the other", "q4", "other"), ("the other and Q8_0", "other", "q8")):
        traces = [trace(out, m, t, length) for m, group in ((one, FIRST), (two, SECOND)) for t in group[:MIXED]]
        path = once(f"{out}/match/families-{one}-{two}.tsv", lambda part: subprocess.run(
            ["nice", "-n", "19", KVFATE, "compare", *traces, "--match", "--groups", str(MIXED), "-o", part], check=True, stdout=subprocess.DEVNULL))
        cells = []
        for space in ("query", "kv"):
            rows = [r for r in read_table(path) if r["space"] == space and r["own"] in ("0", "1")]
            cells += [len(rows), sum(r["head_a"] == r["head_b"] for r in rows), sum(r["own"] == "1" for r in rows)]
        print("|", " | ".join(map(str, [row, *cells])), "|", flush=True)


# Parts of the two models: KV heads of the first and of the second, each with the layer and the KV head that it begins with.
PARTS = (
    ("layers 0-24 and 5-29, 20 of 25 shared", ("L0-24K*", 0, 0), ("L5-29K*", 5, 0)),
    ("layers 0-19 and 10-29, half shared", ("L0-19K*", 0, 0), ("L10-29K*", 10, 0)),
    ("KV heads 0-1 and 1-2 of each layer, half shared", ("L*K0-1", 0, 0), ("L*K1-2", 0, 1)),
    ("layers 0-14 and 15-29, none shared", ("L0-14K*", 0, 0), ("L15-29K*", 15, 0)),
    ("KV heads 0 and 1-2 of each layer, none shared", ("L*K0", 0, 0), ("L*K1-2", 0, 1)),
)


def overlap(model, out):
    """Models that share some of their heads, or none: which matches are proven that are wrong."""
    g = gguf_copies.Gguf(model)
    group = g.config("attention.head_count") // g.config("attention.head_count_kv")
    os.makedirs(f"{out}/part", exist_ok=True)
    print("\n| parts of the two copies | query heads right | proven | wrong of these | KV heads right | proven | wrong of these |\n|---|---|---|---|---|---|---|")
    for k, (row, *sides) in enumerate(PARTS):
        traces = []
        for (heads, _, _), copy, texts in zip(sides, ("q4", "q8"), (FIRST, SECOND)):
            traces += [once(f"{out}/part/{k}.{copy}.{t}.kvf", lambda part: subprocess.run(
                ["nice", "-n", "19", KVFATE, "trace", "trim", f"{out}/trace/{copy}.{t}.{LENGTH}.kvf", "--head", heads, "--overwrite", "-o", part],
                check=True, stdout=subprocess.DEVNULL)) for t in texts[:MIXED]]
        path = once(f"{out}/match/parts-{k}.tsv", lambda part: subprocess.run(
            ["nice", "-n", "19", KVFATE, "compare", *traces, "--match", "--groups", str(MIXED), "-o", part], check=True, stdout=subprocess.DEVNULL))
        cells = []
        for space, each in (("query", group), ("kv", 1)):
            rows = [r for r in read_table(path) if r["space"] == space]
            whole = [[(int(r["layer_" + s]) + layer, int(r["index_" + s]) + kv * each) for r in rows] for s, (_, layer, kv) in zip("ab", sides)]
            right = [a == b for a, b in zip(*whole)]
            own = [r["own"] == "1" for r in rows]
            cells += [f"{sum(right)} of {len(rows)}", sum(own), sum(o and not ok for o, ok in zip(own, right))]
        print("|", " | ".join(map(str, [row, *cells])), "|", flush=True)


# ---- what others do, on the same heads

def nearest_by_weights(model, copy):
    """Query and KV heads whose nearest head of the copy is right, by the projection kernel |U'V|^2 / size of the subspaces that the rows of
    their query, and key, weights span."""
    out = []
    for name, count in (("attn_q", "head_count"), ("attn_k", "head_count_kv")):
        flat = []
        for g in map(gguf_copies.Gguf, (model, copy)):
            H, D = g.config("attention." + count), g.head_size()
            rows = []
            for layer in range(g.config("block_count")):
                _, kind, data = g.tensors[f"blk.{layer}.{name}.weight"]
                for w in gguf_copies.numbers(kind, data).reshape(H, D, -1):
                    u = np.linalg.qr(w.T)[0]
                    rows.append((u @ u.T).ravel())
            flat.append(np.array(rows))
        out.append([divmod(int(k), H) for k in (flat[0] @ flat[1].T).argmax(1)])
    return out


def baselines(model, out):
    print("\n| baseline | query heads right | KV heads right |\n|---|---|---|")
    for copy in ("q8", "permuted"):
        truth, right = same_head(model, copy), []
        for space, found in zip(("query", "kv"), nearest_by_weights(model, f"{out}/model/{copy}.gguf")):
            H = len(found) // (max(layer for layer, _ in found) + 1)
            right.append(sum(truth(*divmod(k, H), space) == head for k, head in enumerate(found)))
        print(f"| projection kernel of weights, {copy} | {right[0]} | {right[1]} |", flush=True)
    for a, b in (("prose-0", "prose-4"), ("prose-0", "code-2")):
        path = once(f"{out}/match/statistics-{a}-{b}.tsv", lambda part: subprocess.run(
            ["nice", "-n", "19", KVFATE, "compare", f"{out}/trace/q4.{a}.{LENGTH}.kvf", f"{out}/trace/q8.{b}.{LENGTH}.kvf", "-o", part],
            check=True, stdout=subprocess.DEVNULL))
        rows = [r for r in read_table(path) if r["matched"] == "1"]
        print(f"| statistics of attention on fixed scales (`heads`), {a} and {b} | {sum(r['head_a'] == r['head_b'] for r in rows)} | |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit("\n".join(line for line in __doc__.split("\n") if "examples/heads.py" in line))
    if sys.argv[4:] != ["tables"]:
        make(*sys.argv[1:4])
    if sys.argv[4:] != ["make"]:
        measure(sys.argv[1], sys.argv[3])
        if os.environ.get("OTHER"):
            families(sys.argv[3])
        overlap(sys.argv[1], sys.argv[3])
        baselines(sys.argv[1], sys.argv[3])
