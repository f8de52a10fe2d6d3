#!/usr/bin/env python3
"""Evaluate 100 items in lm-evaluation-harness under four methods with kvfate's model class, and with transformers on
the same weights.

usage: PYTHONPATH=python bench/harness.py MODEL.gguf TEXT [ITEMS]

ITEMS is 100 by default.  PATH must have kvfate; this Python needs lm_eval, torch, transformers and gguf.  The script
makes a task file from TEXT. An item has some words of a paragraph and four texts, one of which continues it.  It
then runs the harness's own evaluation: with its class for transformers, on the weights that transformers reads from
MODEL as float32; with the class of kvfate under the full cache, exact and with default settings; and under four
methods.  It prints the fraction of correct items and the distance of log-likelihoods from those of transformers.  It
fails if those of the exact full cache differ by 1e-3 or more.
"""
import json
import os
import random
import sys
import tempfile
import time

os.environ.update({"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"})
WORDS, MORE, CHOICES, BOUND = 32, 6, 4, 1e-3
METHODS = [("full", None), ("window", 16), ("h2o", 16), ("snapkv:window=4", 16), ("trimkv", 16)]


def write_task(folder, text, items):
    """Write items.jsonl, and the task file that names it."""
    with open(text, encoding="utf-8") as f:
        paragraphs = [words for words in (line.split() for line in f) if len(words) >= WORDS + MORE and "=" not in words]
    chance = random.Random(1)
    chosen = chance.sample(paragraphs, items + 60)
    def after(words):
        return " ".join(words[WORDS:WORDS + MORE])
    with open(os.path.join(folder, "items.jsonl"), "w", encoding="utf-8") as f:
        for words in chosen[:items]:
            choices = [after(words)] + [after(w) for w in chance.sample(chosen[items:], CHOICES - 1)]
            answer = chance.randrange(CHOICES)
            choices[0], choices[answer] = choices[answer], choices[0]
            f.write(json.dumps({"text": " ".join(words[:WORDS]), "choices": choices, "answer": answer}) + "\n")
    with open(os.path.join(folder, "task.yaml"), "w", encoding="utf-8") as f:
        f.write("""task: goes_on
dataset_path: json
dataset_kwargs: {data_files: {test: %s}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{text}}"
doc_to_choice: choices
doc_to_target: answer
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
""" % os.path.join(folder, "items.jsonl"))


def evaluated(folder, model):
    """Return (fraction of correct items, [log-likelihood of each choice of each item], seconds)."""
    import lm_eval
    from lm_eval.tasks import TaskManager
    began = time.monotonic()
    told = lm_eval.simple_evaluate(model=model, tasks=["goes_on"], task_manager=TaskManager(include_path=folder, include_defaults=False), log_samples=True,
                                   bootstrap_iters=0)
    samples = sorted(told["samples"]["goes_on"], key=lambda x: x["doc_id"])
    return told["results"]["goes_on"]["acc,none"], [float(r[0][0]) for x in samples for r in x["resps"]], time.monotonic() - began


def of_transformers(gguf):
    """Return the harness's class with the weights of the file as float32."""
    import torch
    from lm_eval.models.huggingface import HFLM
    from transformers import AutoModelForCausalLM, AutoTokenizer
    torch.set_num_threads(1)
    folder, name = os.path.split(os.path.abspath(gguf))
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32).eval()
    return HFLM(pretrained=model, tokenizer=AutoTokenizer.from_pretrained(folder, gguf_file=name), batch_size=8, add_bos_token=False)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    from kvfate.harness import Kvfate
    gguf, text, items = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 100
    with tempfile.TemporaryDirectory(prefix="kvfate-harness-") as folder:
        write_task(folder, text, items)
        right, want, seconds = evaluated(folder, of_transformers(gguf))
        print("%-28s %d items, %5.1f %% right, %.0f s" % ("transformers, float32", items, 100 * right, seconds), flush=True)
        worst = None
        for method, budget in [("full", "exact"), *METHODS]:
            exact = {"exact": True, "kv_type": "f32"} if budget == "exact" else {}
            lm = Kvfate(model=gguf, method=method, budget=None if exact else budget, threads=1, **exact)
            right, got, seconds = evaluated(folder, lm)
            far = [abs(a - b) for a, b in zip(got, want, strict=True)]
            worst = max(far) if exact else worst
            print("%-28s %d items, %5.1f %% right, %.0f s; log-likelihoods differ by %.2g at most, %.2g in the mean" % (
                "kvfate, %s%s" % (method, " " + str(budget) if budget else ""), items, 100 * right, seconds, max(far), sum(far) / len(far)), flush=True)
    if not worst < BOUND:
        sys.exit("the exact full cache is %g away from transformers" % worst)


if __name__ == "__main__":
    main()
