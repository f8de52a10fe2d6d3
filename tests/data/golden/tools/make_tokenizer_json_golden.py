#!/usr/bin/env python3
"""Write small tokenizer.json files that know all that some test lines can reach, and the ids of the lines under them.

usage: make_tokenizer_json_golden.py FOLDER tokenizers.zip        (FOLDER: see vocabularies.py)
       make_tokenizer_json_golden.py --compare FOLDER build/tests/engine/tokenize [--lines 2000] [NAME...]

The archive gets NAME.json and NAME.jsonl, one line {"text","ids"} each.  As in make_vocabulary_golden.py a small vocabulary keeps every token
that a line can reach; the tokenizers library then reads the small file itself, and gives the ids.  --compare takes the whole vocabularies and
prints a table for docs/reference/parity.md.
"""
import argparse
import json
import os
import sys
import tempfile
import zipfile

import hf_folder
from make_vocabulary_golden import add, meaning, stretches
from tokenizer_jsons import JSONS, texts_with_marks
from varied_lines import varied
from vocabularies import ours

VARIED, MARKS = 200, 12


def tokenizer_of(j):
    from tokenizers import Tokenizer
    return Tokenizer.from_str(json.dumps(j))


def reduce(j, texts):
    """The same tokenizer with fewer tokens; ids are numbers in the same order."""
    model, level = j["model"], "ByteLevel" in json.dumps(j["pre_tokenizer"])
    vocab = model["vocab"] if isinstance(model["vocab"], dict) else {t: i for i, (t, _) in enumerate(model["vocab"])}
    bodies = [b for t in texts for b in ([t.encode()] if level else [(" " + t).encode()])]
    bodies += [normalized(j, t).encode() for t in texts] if level else []
    longest = max(len(meaning(t.encode(), level)) for t in vocab)
    known = stretches(bodies, min(longest, 64))
    marks = {t["content"] for t in j["added_tokens"][:MARKS]} | {model.get("unk_token")}
    single = lambda t: len(meaning(t.encode(), True)) == 1 if level else (t.startswith("<0x") or len(t) == 1)
    keep = [t for t in sorted(vocab, key=vocab.get) if t in marks or single(t) or meaning(t.encode(), level) in known]
    keep += [t["content"] for t in j["added_tokens"][:MARKS] if t["content"] not in vocab]
    number = {t: i for i, t in enumerate(dict.fromkeys(keep))}
    out = {**j, "added_tokens": [{**t, "id": number[t["content"]]} for t in j["added_tokens"][:MARKS]], "model": dict(model)}
    if isinstance(model["vocab"], dict):
        out["model"]["vocab"] = {t: i for t, i in number.items() if t in vocab}
        halves = [(m, *(m if isinstance(m, list) else m.split(" "))) for m in model["merges"]]
        out["model"]["merges"] = [m for m, a, b in halves if a in number and b in number and a + b in number]
    else:
        scores = dict(map(tuple, model["vocab"]))
        least = min(scores.values())
        out["model"]["vocab"] = [[t, scores[t]] for t in number] + [["\U0010fffd", least]]
        out["model"]["unk_id"] = number[model["vocab"][model["unk_id"]][0]]
    return out


def normalized(j, text):
    import unicodedata
    return unicodedata.normalize("NFC", text) if "NFC" in json.dumps(j["normalizer"]) else text


def make(folder, to):
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, maker in JSONS.items():
            j = maker(folder)
            j["added_tokens"] = j["added_tokens"][:MARKS]
            texts = texts_with_marks(j, varied(VARIED))
            small = reduce(j, texts)
            tk, whole = tokenizer_of(small), tokenizer_of(j)
            rows = [(t, tk.encode(t, add_special_tokens=False)) for t in texts]
            wrong = [t for t, e in rows if e.tokens != whole.encode(t, add_special_tokens=False).tokens]
            add(archive, name + ".json", json.dumps(small, ensure_ascii=False, separators=(",", ":")).encode())
            add(archive, name + ".jsonl", "".join(json.dumps({"text": t, "ids": e.ids}, separators=(",", ":")) + "\n" for t, e in rows))
            print(f"{name}: {len(tk.get_vocab())} tokens, {len(wrong)} of {len(texts)} lines are others than under the whole vocabulary")


def compare(folder, program, n, names):
    wrong = 0
    print("| tokenizer.json | tokens | varied lines |\n| --- | --- | --- |")
    for name in names or JSONS:
        j = JSONS[name](folder)
        texts, tk = texts_with_marks(j, varied(n)), tokenizer_of(j)
        with tempfile.TemporaryDirectory() as out:
            hf_folder.write_tokenizer(out, json.dumps(j, ensure_ascii=False), tk.get_vocab_size() + len(j["added_tokens"]) + 1)
            got = ours(program, out, texts, True)
        want = [tk.encode(t, add_special_tokens=False).ids for t in texts]
        bad = [i for i in range(n) if got[i] != want[i]]
        for i in bad[:3]:
            print(f"  {texts[i]!r}\n    kvfate {got[i]}\n    reference {want[i]}", file=sys.stderr)
        wrong += len(bad)
        print(f"| {name} | {tk.get_vocab_size():,} | {n - len(bad)} of {n} |", flush=True)
    sys.exit(wrong > 0)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--compare", action="store_true")
    ap.add_argument("--lines", type=int, default=2000)
    ap.add_argument("folder")
    ap.add_argument("out", help="the archive, or the program")
    ap.add_argument("names", nargs="*")
    args = ap.parse_args()
    if args.compare:
        compare(args.folder, os.path.abspath(args.out), args.lines, args.names)
    else:
        make(args.folder, args.out)


if __name__ == "__main__":
    main()
