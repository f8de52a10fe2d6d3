#!/usr/bin/env python3
"""Compares kvfate with the library kvpress in the protocol of kvpress: the context is compressed
before the question is known, then the cache grows.

usage: compare_kvpress.py KVFATE LIBKVFTRACE SOURCE_ROOT TEXT [--prompts 5] [--tokens 1500] [--only NAME,...] [--answer 24]
       compare_kvpress.py KVFATE LIBKVFTRACE SOURCE_ROOT --tasks TASKS.jsonl [--only NAME,...] [--answer 24]

The contexts are parts of TEXT, in the chat template of the model. The script needs the default model, torch, transformers,
gguf, scipy and kvpress. KVFATE_TORCH_PYTHON names a Python that has them. For each method and each ratio, the script prints
the number of heads whose kept sets differ, the number of entries that differ, the largest difference between the score of
such an entry and the limit of its head, relative to the score, and the number of equal answers. kvpress rounds the budgets of
the layers of PyramidKV in another way. The row "pyramidkv (other budgets)" has kvfate's own budgets, and the row "pyramidkv, budgets of
kvpress" gives kvfate the numbers of entries that kvpress kept in each head.

With --tasks, the prompts are a file that `kvfate tasks` wrote. For each method at ratio 0.5, the script prints the mean score
of the answers of kvpress's pipeline and of kvfate, the difference with its 95 % CI over the prompts (Student's t), and the
number of equal answers."""
import argparse
import json
import os
import subprocess
import tempfile

from capture_checks import KVFATE, begin

begin("kvpress, side by side", "gguf", "torch", "transformers", "kvpress", "scipy.stats")
import kvpress  # noqa: E402
import numpy as np  # noqa: E402
import scipy.stats  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

import kvfate  # noqa: E402
from kvfate.adapters.kvpress import follow  # noqa: E402

WINDOW = "window=64,recent=64,pool=5,pool_kind=avg"  # the constants of kvpress's SnapKVPress
QUESTION = " In one sentence, what is this text about?"
FOLDER, FILE = os.path.expanduser("~/.cache/kvfate"), "SmolLM2-135M-Instruct.Q4_1.gguf"
RATIOS = .25, .5, .75  # fractions of entries that are evicted


def floor(n, always):
    """Returns the option `floor` for the minimum that kvpress's AdaKV gives a head: int(0.2 n) of n entries. The minimum
    includes the `always` entries that a head keeps whatever their scores are."""
    return max(0, int(.2 * n) - always) / (n - always)


# Each method has the press at a ratio, and kvfate's method for n kept entries per head.
METHODS = {
    "snapkv": (kvpress.SnapKVPress, lambda n: "snapkv:" + WINDOW),
    "tova": (kvpress.TOVAPress, lambda n: "tova:recent=1"),
    "keydiff": (kvpress.KeyDiffPress, lambda n: "keydiff"),
    "expected-attention": (lambda r: kvpress.AdaKVPress(kvpress.ExpectedAttentionPress(r, epsilon=1e-2)),
                           lambda n: "expected-attention:floor=%.17g" % floor(n, 4)),
    "adakv": (lambda r: kvpress.AdaKVPress(kvpress.SnapKVPress(r)), lambda n: "adakv:floor=%.17g,%s" % (floor(n, 64), WINDOW)),
    "streamingllm": (kvpress.StreamingLLMPress, lambda n: "window"),
    "knorm": (kvpress.KnormPress, lambda n: "knorm"),
    "pyramidkv": (kvpress.PyramidKVPress, lambda n: "pyramidkv:" + WINDOW),
}


def contexts(tokenizer, path, n, tokens):
    """Yields n pairs (ids of a context, ids of the question), split as kvpress's pipeline splits the chat template."""
    with open(path, encoding="utf-8") as f:
        paragraphs = [p for p in f.read().split("\n") if len(p) > 200]
    at = 0
    for _ in range(n):
        words = ""
        while len(tokenizer(words)["input_ids"]) < tokens:
            words, at = words + paragraphs[at] + "\n", at + 1
        text = tokenizer.decode(tokenizer(words)["input_ids"][:tokens - 40])
        mark = "#" * 40
        message = {"role": "user", "content": text + mark}
        before, after = tokenizer.apply_chat_template([message], add_generation_prompt=True, tokenize=False).split(mark)
        yield [tokenizer.encode(x, add_special_tokens=False) for x in (before, QUESTION + after)]


class Pipeline(kvpress.KVPressTextGenerationPipeline):
    """The pipeline of kvpress, which also answers if the layers keep different numbers of entries, as under PyramidKV.
    transformers masks all layers by the size of the first, and fails if several tokens are fed. One token needs no mask."""

    def generate_answer(self, question_ids, cache, context_length, max_new_tokens):
        n = question_ids.shape[1] - 1
        if len({layer.get_seq_length() for layer in cache.layers}) > 1:
            for i in range(n):
                self.model(input_ids=question_ids[:, i:i + 1], past_key_values=cache, position_ids=torch.tensor([[context_length + i]]))
            question_ids, context_length = question_ids[:, n:], context_length + n
        return super().generate_answer(question_ids, cache, context_length, max_new_tokens)


def answer_of_kvpress(pipeline, inputs, press, tokens):
    with torch.no_grad():
        return pipeline._forward(inputs, max_new_tokens=tokens, press=press)[0].strip()


def trace_of_kvpress(model, ids, press):
    """Returns the trace of a context that the press compresses."""
    with kvfate.capture(model, None, out="kvpress.kvf", probes="evict", existing="overwrite") as c, follow(c, press):
        model.generate(torch.tensor(ids)[None], attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                       max_new_tokens=2, min_new_tokens=2, do_sample=False, eos_token_id=None)
    return kvfate.open("kvpress.kvf")


def run_kvfate(ids, question, tokens, cut):
    """Returns the text of kvfate's answer after a question that the cut does not see. `cut` has the options of the method.
    The trace is own.kvf."""
    with open("ids", "w") as f:
        f.write(" ".join(map(str, ids + question)))
    return subprocess.run([KVFATE, "run", "--ids", "ids", "--question", "unknown", "--question-at", str(len(ids)), "-n", str(tokens),
                           *cut, "--exact", "--probes", "evict", "-o", "own.kvf", "--overwrite", "-q"],
                          stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def cut_at(method, ratio):
    """Returns the options of kvfate for a method that evicts the fraction `ratio` after the context."""
    return ["--method", method + ("," if ":" in method else ":") + "cut=prompt", "-B", "%g%%" % (100 * (1 - ratio))]


def kept(trace, layer, n):
    """Returns which of the first n entries of each head are in the cache after the context."""
    return trace.evict_step[layer][:, :n] > n


def budgets_of(trace, layers, n):
    """Writes budgets.json, the numbers of entries that each head of the trace kept, and returns kvfate's options for them."""
    table = [kept(trace, layer, n).sum(1).tolist() for layer in range(layers)]
    with open("budgets.json", "w") as f:
        json.dump({"unit": "entries", "budgets": table}, f)
    return ["--method", "snapkv:%s,allocation=file,cut=prompt" % WINDOW, "--head-budgets", "budgets.json", "-B", str(int(np.mean(table)))]


class Row:
    """The counts of one row over all prompts."""

    def __init__(self):
        self.heads = self.odd = self.cells = self.of = self.equal = 0
        self.worst = 0.0

    def add(self, theirs, layers, n, equal):
        """Compares the trace of kvpress with own.kvf."""
        own = kvfate.open("own.kvf")
        self.equal += equal
        for layer in range(layers):
            a, b = kept(theirs, layer, n), kept(own, layer, n)
            self.heads, self.odd = self.heads + len(a), self.odd + int((a != b).any(1).sum())
            self.cells, self.of = self.cells + int((a != b).sum()), self.of + a.size
            for h, i in np.argwhere(b & ~a):
                score, margin = (theirs["evict_" + what][layer][h, i] for what in ("score", "margin"))
                self.worst = max(self.worst, float(margin / abs(score)) if score else float("inf"))

    def print(self, name, ratio, prompts):
        print("%s\t%g\t%d\t%d\t%d\t%d\t%d\t%.2g\t%d" % (
            name, ratio, prompts, self.heads, self.odd, self.cells, self.of, self.worst, self.equal), flush=True)


def compare_sets(model, pipeline, q, path):
    print("method\tratio\tprompts\theads\theads that differ\tentries that differ\tof\tlargest margin/score\tequal answers", flush=True)
    layers = model.config.num_hidden_layers
    for name, ratio in ((m, r) for m in q.only for r in RATIOS):
        press, method = METHODS[name]
        rows = {name + (" (other budgets)" if name == "pyramidkv" else ""): Row()}
        if name == "pyramidkv":
            rows["pyramidkv, budgets of kvpress"] = Row()
        for ids, question in contexts(pipeline.tokenizer, path, q.prompts, q.tokens):
            n = len(ids)
            model.set_attn_implementation("sdpa")
            theirs = trace_of_kvpress(model, ids, press(ratio))
            inputs = {"context_ids": torch.tensor(ids)[None], "questions_ids": [torch.tensor(question)[None]]}
            answer = answer_of_kvpress(pipeline, inputs, press(ratio), q.answer)
            cuts = [cut_at(method(int(n * (1 - ratio))), ratio)]
            if len(rows) > 1:
                cuts.append(budgets_of(theirs, layers, n))
            for row, cut in zip(rows.values(), cuts):
                row.add(theirs, layers, n, run_kvfate(ids, question, q.answer, cut) == answer)
        for label, row in rows.items():
            row.print(label, ratio, q.prompts)


def compare_tasks(pipeline, q, path):
    with open(path) as f:
        lines = [json.loads(line) for line in f]
    print("method\tratio\tprompts\tkvpress\tkvfate\tdifference\t95 % CI\tequal answers", flush=True)
    for name in ["full", *q.only]:
        score, equal = [], 0
        press, method = METHODS.get(name, (lambda r: None, None))
        for line in lines:
            inputs = pipeline.preprocess(line["context"], [line["question"]], line["answer_prefix"], 1 << 20)
            ids, question = inputs["context_ids"][0].tolist(), inputs["questions_ids"][0][0].tolist()
            cut = cut_at(method(len(ids) // 2), .5) if method else ["--method", "full"]
            answers = answer_of_kvpress(pipeline, inputs, press(.5), q.answer), run_kvfate(ids, question, q.answer, cut)
            equal += answers[0] == answers[1]
            wanted = line["task"]["answers"]
            score.append([np.mean([w.lower() in text.lower() for w in wanted]) for text in answers])
        score = np.array(score)
        d = score[:, 1] - score[:, 0]
        half = scipy.stats.t.ppf(.975, len(d) - 1) * d.std(ddof=1) / len(d) ** .5
        print("%s\t0.5\t%d\t%.3f\t%.3f\t%.3f\t%.3f .. %.3f\t%d" % (
            name, len(d), *score.mean(0), d.mean(), d.mean() - half, d.mean() + half, equal), flush=True)


def names(text):
    """Returns the methods of --only."""
    out = text.split(",")
    if not set(out) <= set(METHODS):
        raise argparse.ArgumentTypeError("the methods are %s" % ", ".join(METHODS))
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("place", nargs=3)
    p.add_argument("text", nargs="?")
    p.add_argument("--tasks")
    p.add_argument("--prompts", type=int, default=5)
    p.add_argument("--tokens", type=int, default=1500)
    p.add_argument("--only", type=names, default=list(METHODS))
    p.add_argument("--answer", type=int, default=24)
    q = p.parse_args()
    if bool(q.text) == bool(q.tasks):
        p.error("give TEXT or --tasks FILE")
    path = os.path.abspath(q.text or q.tasks)
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, gguf_file=FILE, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER, gguf_file=FILE)
    pipeline = Pipeline(model=model, tokenizer=tokenizer)
    with tempfile.TemporaryDirectory() as top:
        os.chdir(top)
        if q.tasks:
            compare_tasks(pipeline, q, path)
        else:
            compare_sets(model, pipeline, q, path)


if __name__ == "__main__":
    main()
