#!/usr/bin/env python3
"""Write small vocabularies that know all that some test lines can reach, and the ids of the lines under them.

usage: make_vocabulary_golden.py FOLDER vocabularies.zip [NAME...]

With names, only these vocabularies are made again; the archive keeps the others.  FOLDER: see vocabularies.py.  For each vocabulary the archive gets NAME.gguf and NAME.jsonl, one line {"text","ids"} each: the lines that
llama.cpp publishes with their ids, and varied ones with the ids of the reference library.

A small vocabulary keeps, of a published one, every token whose bytes stand somewhere in one of the lines, the tokens of single bytes, a
few marks, and the merges and scores of what it keeps.  Whatever BPE or Viterbi can make of a line is a stretch of the line, so the
lines get the same tokens as under the published vocabulary; ids are numbers in the small one, in the same order.
"""
import json
import sys
import unicodedata
import zipfile

from varied_lines import varied
from vocabularies import BYTE, CONTROL, F32, I32, MAKERS, NORMAL, STRING, U32, UNKNOWN, UNSPELL, USER, Gguf, lines

VARIED = 230  # lines; the first of them are the fixed ones
NAMES = ["gpt-2", "starcoder", "deepseek-llm", "deepseek-coder", "deepseek-v3", "llama-bpe", "llama4", "qwen2", "tekken", "llama-spm", "phi-3",
         "mistral-v3", "unigram", "unigram-bytes", "bpe-phrases"]
MARKS = 12  # control tokens that are kept, from the first on
IDS = ["bos_token_id", "eos_token_id", "unknown_token_id"]


def meaning(token, level):
    """The bytes a token stands for, in a byte-level vocabulary or in SentencePiece's."""
    if not level:
        return token.replace("\u2581".encode(), b" ")
    try:
        return bytes(UNSPELL[c] for c in token.decode())
    except KeyError:
        return token


def stretches(texts, longest):
    out = set()
    for text in texts:
        for i in range(len(text)):
            out.update(text[i:i + n] for n in range(1, min(longest, len(text) - i) + 1))
    return out


def normalised(texts, g):
    """What a SentencePiece vocabulary sees of the texts, and they themselves."""
    import sentencepiece
    from vocabularies import sentencepiece_model
    sp = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model(g))
    return [(" " + sp.normalize(t)).replace("\u2581", " ").encode() for t in texts] + [(" " + t).encode() for t in texts]


def choose(g, texts):
    tokens, types = g.get("tokens"), g.get("token_type")
    level = g.get("model") == b"gpt2"
    if g.get("pre") == b"qwen2":
        texts = [unicodedata.normalize("NFC", t) for t in texts]
    bodies = [t.encode() for t in texts] if level else normalised(texts, g)
    known = stretches(bodies, max(len(t) for t, k in zip(tokens, types) if k == NORMAL))
    marks = [i for i, k in enumerate(types) if k == CONTROL][:MARKS]
    least = min((s, i) for i, (s, k) in enumerate(zip(g.get("scores"), types)) if k == NORMAL)[1] if g.get("scores") else -1
    named = {g.get(k) for k in IDS} | {least} | set(marks)
    return [i for i, (t, k) in enumerate(zip(tokens, types))
            if i in named or k in (BYTE, UNKNOWN) or (k in (NORMAL, USER) and (meaning(t, level and k == NORMAL) in known or (level and len(meaning(t, True)) == 1)))]


def reduce(g, keep):
    number = {old: new for new, old in enumerate(keep)}
    tokens, out = g.get("tokens"), Gguf({k: v for k, v in g.data.items() if k.startswith("tokenizer.ggml.")})
    out.set("tokens", STRING, [tokens[i] for i in keep]).set("token_type", I32, [g.get("token_type")[i] for i in keep])
    if g.get("scores"):
        out.set("scores", F32, [g.get("scores")[i] for i in keep])
    if g.get("merges"):
        have = {tokens[i] for i in keep if g.get("token_type")[i] == NORMAL}
        halves = [(m, *m.split(b" ")) for m in g.get("merges")]
        out.set("merges", STRING, [m for m, a, b in halves if a in have and b in have and a + b in have])
    for key in ("padding_token_id", "seperator_token_id", "eot_token_id"):
        out.data.pop("tokenizer.ggml." + key, None)
    for key in IDS:
        if g.get(key) is not None:
            out.set(key, U32, number[g.get(key)])
    return out, number


def add(archive, name, data):
    """Without dates, so that equal contents give equal bytes."""
    archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED, 9)


def main():
    folder, to, *chosen = sys.argv[1:]
    old = {}
    if chosen:
        with zipfile.ZipFile(to) as z:
            old = {n: z.read(n) for n in z.namelist()}
    archive = zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
    for name in NAMES:
        if chosen and name not in chosen:
            for end in (".gguf", ".jsonl"):
                add(archive, name + end, old[name + end])
            continue
        g, reference = MAKERS[name](folder)
        texts, ids = lines(folder, name)
        more = [t for t in varied(VARIED) if t not in texts]
        ids, texts = ids + [reference(t) for t in more], texts + more
        if name in ("llama-spm", "phi-3") or g.get("model") == b"gpt2":
            wrong = [t for t, i in zip(texts, ids) if list(reference(t)) != list(i)]
            if wrong:
                sys.exit(f"{name}: the reference differs from published ids: {wrong[:3]}")
        keep = choose(g, texts)
        small, number = reduce(g, keep)
        add(archive, name + ".gguf", small.bytes())
        rows = [(t, [number.get(i) for i in row]) for t, row in zip(texts, ids)]
        rows = [(t, row) for t, row in rows if None not in row]
        add(archive, name + ".jsonl", "".join(json.dumps({"text": t, "ids": row}, separators=(",", ":")) + "\n" for t, row in rows))
        print(f"{name}: {len(keep)} of {len(g.get('tokens'))} tokens, {len(rows)} of {len(texts)} lines")
    archive.close()


if __name__ == "__main__":
    main()
