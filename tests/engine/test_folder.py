#!/usr/bin/env python3
"""Folders of the transformers library: the logits equal those of the same checkpoint as a GGUF file
byte for byte, and tokens by a tokenizer.json equal those of the tokenizers library.

usage: test_folder.py build/cli/kvfate build/tests/engine/tokenize
"""
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "..", "data", "golden")
sys.path += [os.path.dirname(HERE), os.path.join(GOLDEN, "tools"), os.path.join(HERE, "..", "cli")]
import check  # noqa: E402
import gen_tiny  # noqa: E402
import harness  # noqa: E402
import hf_folder  # noqa: E402
import vocabularies  # noqa: E402

work = tempfile.TemporaryDirectory(prefix="kvfate-folder-")
PROMPTS = ("Hello the world, and the other 12345 things in it.", "\u00e9\u00e8 <|im_start|>user\n\u4f60\u597d \U0001f642<|im_end|>\n" * 9)


def path(name):
    return os.path.join(work.name, name)


def logits(model, prompt, *more):
    """Returns the bytes of the array, or the problem."""
    out = path("logits.npy")
    r = subprocess.run([sys.argv[1], "generate", "--logits", "-m", model, "--raw", "-p", prompt, "-t", "1", "-o", out, *more],
                       capture_output=True, stdin=subprocess.DEVNULL)
    if r.returncode:
        return r.stderr.decode()
    return Path(out).read_bytes()


def same_logits(name, gguf, folder):
    for i, prompt in enumerate(PROMPTS):
        for more in ((), ("--exact",)):
            want, got = logits(gguf, prompt, *more), logits(folder, prompt, *more)
            check.check(f"{name}, prompt {i} {more}", isinstance(want, bytes) and got == want, want[:300] if isinstance(want, str) else "", got[:300])


def same_output(name, gguf, folder, *argv):
    out = [subprocess.run([sys.argv[1], "generate", "-m", m, "-n", "20", "-q", "-t", "1", *argv], capture_output=True, stdin=subprocess.DEVNULL) for m in (gguf, folder)]
    check.check(name, out[0].returncode == out[1].returncode == 0 and out[0].stdout == out[1].stdout, *(r.stderr for r in out))


def tiny(words):
    gguf = path("tiny.gguf")
    gen_tiny.main([*words.split(), "-o", gguf])
    return gguf


def families():
    n = 0
    for arch in ("llama", "qwen2", "qwen3"):
        for kind in ("f32", "f16", "bf16"):
            gguf = tiny(f"--arch {arch} --type {kind} --seed {n} --rope-base {500000 if n % 2 else 10000}" + " --untied" * (n % 2))
            folder = path(f"{arch}-{kind}")
            hf_folder.write(gguf, folder, shards=1 + n % 3)
            same_logits(f"{arch} {kind} in {1 + n % 3} files", gguf, folder)
            same_output(f"{arch} {kind}: a conversation", gguf, folder + "/", "-p", "hello")
            n += 1
    with open(os.path.join(GOLDEN, "family_golden.json")) as f:
        others = [case["args"] for case in json.load(f)["cases"] if "--rope factors" not in case["args"] and "rope_scale" not in case]
    for n, words in enumerate(others):
        gguf = tiny(words)
        if {"--sinks", "--biases"} & set(words.split()):  # no folder of these families has such tensors
            continue
        hf_folder.write(gguf, path(f"family{n}"), **({"model_type": "mistral"} if "llama" in words and "--window" in words else {}))
        same_logits(words, gguf, path(f"family{n}"))
    gguf = tiny("--kv-heads 4 --seed 9")
    hf_folder.write(gguf, path("mistral"), model_type="mistral")
    config = json.loads(Path(os.path.join(path("mistral"), "config.json")).read_text())
    del config["head_dim"], config["num_key_value_heads"]  # defaults: the width divided by the heads, and a KV head for each head
    config.update(rope_parameters={"rope_theta": config.pop("rope_theta"), "rope_type": "default"}, sliding_window=None, rope_scaling=None)
    hf_folder.write_json(path("mistral"), "config.json", config)
    same_logits("mistral as transformers 5 writes its config.json", gguf, path("mistral"))


def template():
    """chat_template.jinja has precedence over tokenizer_config.json; a list of templates has one
    with the name default."""
    gguf, folder = tiny("--seed 3"), path("template")
    hf_folder.write(gguf, folder)
    config = os.path.join(folder, "tokenizer_config.json")
    plain = json.loads(Path(config).read_text())
    text = plain["chat_template"]
    hf_folder.write_json(folder, "tokenizer_config.json", {**plain, "chat_template": [{"name": "tool_use", "template": "no"}, {"name": "default", "template": text}]})
    same_output("a list of templates", gguf, folder, "-p", "hello")
    hf_folder.write_json(folder, "tokenizer_config.json", {**plain, "chat_template": "no"})
    Path(os.path.join(folder, "chat_template.jinja")).write_text(text)
    same_output("chat_template.jinja", gguf, folder, "-p", "hello")


def stories():
    """A trained model with a SentencePiece vocabulary, if it is available."""
    gguf = os.path.expanduser("~/.cache/kvfate/stories260K.gguf")
    if not os.path.exists(gguf):
        print("stories260K.gguf is not in ~/.cache/kvfate: left out")
        return
    hf_folder.write(gguf, path("stories"), shards=2)
    same_output("stories", gguf, path("stories"), "--raw", "-p", "Once upon a time")
    same_logits("stories", gguf, path("stories"))


def tokens():
    with zipfile.ZipFile(os.path.join(GOLDEN, "tokenizers.zip")) as z:
        for name in sorted(n[:-5] for n in z.namelist() if n.endswith(".json")):
            lines = [json.loads(line) for line in z.read(name + ".jsonl").decode().split("\n") if line]
            hf_folder.write_tokenizer(path(name), z.read(name + ".json").decode(), 1 << 16)
            got = vocabularies.ours(sys.argv[2], path(name), [x["text"] for x in lines], True)
            bad = [(x["text"], g, x["ids"]) for x, g in zip(lines, got) if g != x["ids"]]
            check.check(f"{name}: tokens of {len(lines)} lines", not bad and len(got) == len(lines) >= 150, len(bad), bad[:1])


def pieces():
    """tokenizer.model instead of tokenizer.json: the ids equal those of the same vocabulary in a
    GGUF file."""
    with zipfile.ZipFile(os.path.join(GOLDEN, "vocabularies.zip")) as z:
        for name in sorted(n[:-5] for n in z.namelist() if n.endswith(".gguf")):
            Path(path("v.gguf")).write_bytes(z.read(name + ".gguf"))
            g = vocabularies.Gguf.read(path("v.gguf"))
            if g.get("scores") is None:
                continue
            lines = [json.loads(line) for line in z.read(name + ".jsonl").decode().split("\n") if line]
            hf_folder.write_tokenizer(path(name), hf_folder.spm(g), 1 << 16, "tokenizer.model")
            for marks in (False, True):
                got, want = (vocabularies.ours(sys.argv[2], p, [x["text"] for x in lines], marks) for p in (path(name), path("v.gguf")))
                check.check(f"{name}: as the GGUF file, marks {marks}", got == want and len(got) == len(lines) >= 150)
                bad = [x["text"] for x, ids in zip(lines, got) if ids != x["ids"]]
                check.check(f"{name}: as the reference, marks {marks}", not bad or marks, len(bad), bad[:1])


def pieces_added():
    """Tokens that tokenizer_config.json adds after the pieces, including control tokens."""
    hf_folder.write(tiny("--seed 4"), path("added"))
    os.remove(os.path.join(path("added"), "tokenizer.json"))
    texts = [b"<unk>", b"<s>", b"</s>", b"\xe2\x96\x81", b"a", b"b", b"ab", b"\xe2\x96\x81a", b"<0x41>"]
    kinds, scores = [2, 3, 3, 1, 1, 1, 1, 1, 6], [0, 0, 0, -1, -2, -3, -0.5, -0.25, 0]
    g = vocabularies.Gguf().set("model", 8, b"llama").set("tokens", 8, texts).set("token_type", 5, kinds).set("scores", 6, scores)
    g.set("bos_token_id", 4, 1).set("eos_token_id", 4, 2)
    Path(os.path.join(path("added"), "tokenizer.model")).write_bytes(hf_folder.spm(g))
    decoder = {"1": {"content": "<s>", "special": True}, "9": {"content": "<|x|>", "special": True, "rstrip": True}, "10": {"content": "ba", "special": False}}
    hf_folder.write_json(path("added"), "tokenizer_config.json", {"added_tokens_decoder": decoder, "legacy": False})
    texts = ["ab", "a ab", "<|x|>  ab", "bab", "<s>a"]
    # The piece of a space and an a has the best score, and legacy false adds that space only before
    # the start. <|x|> includes the blanks after it, and ba is cut out first.
    want = [[7, 5], [7, 7, 5], [9, 6], [10, 5], [1, 4]]
    got = vocabularies.ours(sys.argv[2], path("added"), texts, True)
    check.check("added tokens", got == want, got, want)
    same_output("a run on pieces", path("added"), path("added"), "--raw", "-p", "ab")


# Features that identify published vocabularies: the number of merges, and a special token with its
# id.
KNOWN = (("gpt-2", 50000, "<|endoftext|>", 50256), ("starcoder", 48872, "<fim_prefix>", 1), ("smollm", 48900, "<|im_start|>", 1),
         ("llama-bpe", 280147, "<|begin_of_text|>", 128000), ("qwen2", 151387, "<|endoftext|>", 151643),
         ("deepseek-llm", 99757, "<\uff5cbegin\u2581of\u2581sentence\uff5c>", 100000),
         ("deepseek-coder", 31757, "<\uff5cbegin\u2581of\u2581sentence\uff5c>", 32013))
HARD = ["In 2024, 123456 cannot", "can't CAN'T", "a\n\n  b\n", "x;\n(y)", "\u4f60\u597d 12\u4e09", "   \t  end"]


def levels(merges, mark, at, pre):
    """A byte-level vocabulary of this size with merges of any two digits, spaces or marks, so that
    the rules for words decide."""
    letters = gen_tiny.byte_spelling()
    some = [*"0123456789", letters[32], letters[10], *"();'"]
    pairs = [(a, b) for a in some for b in some]
    triples = [(a + b, c) for a, b in pairs[:260] for c in some]
    made = pairs + triples
    tokens = letters + [a + b for a, b in made]
    tokens += [f"filler{i}" for i in range(len(tokens), at)]
    tokens.insert(at, mark)
    texts = [" ".join(m).encode() for m in made]
    g = vocabularies.Gguf().set("model", 8, b"gpt2").set("tokens", 8, [t.encode() for t in tokens])
    g.set("token_type", 5, [3 if i == at else 1 for i in range(len(tokens))]).set("merges", 8, texts + texts[-1:] * (merges - len(texts)))
    return g.set("pre", 8, pre.encode()) if pre else g


def nameless():
    """A GGUF file without tokenizer.ggml.pre: published vocabularies are recognised, others are
    rejected."""
    seen = {}
    for pre, merges, mark, at in KNOWN:
        for name in (pre, None):
            levels(merges, mark, at, name).write(path(f"{name}.gguf"))
        want, got = (vocabularies.ours(sys.argv[2], path(f"{name}.gguf"), HARD, False) for name in (pre, None))
        check.check(f"the vocabulary of {pre}", got == want, got, want)
        seen[pre] = json.dumps([len(x) for x in want])
        levels(merges + 1, mark, at, None).write(path("other.gguf"))
        r = subprocess.run([sys.argv[2], path("other.gguf")], capture_output=True, input=b"")
        check.check(f"a merge more than {pre} has", r.returncode == 1 and b"tokenizer.ggml.pre" in r.stderr and b"--pre" in r.stderr, r.stderr)
    check.check("the rules differ", len(set(seen.values())) >= 5, seen)


def given():
    """--pre NAME: the ids equal those of a file with that name, and its tokenizer has another hash
    than without it."""
    plain, text = path("plain.gguf"), "In 2024, 123456 can't:\n\n  x"
    for pre in ("gpt-2", "qwen2"):
        harness.Gguf().set("tokenizer.ggml.pre", pre).write(path(f"{pre}.gguf"))
    harness.Gguf().drop("tokenizer.ggml.pre").write(plain)

    def run(*argv):
        return subprocess.run([sys.argv[1], *argv], capture_output=True, stdin=subprocess.DEVNULL)
    for pre in ("gpt-2", "qwen2"):
        want, got = logits(path(f"{pre}.gguf"), text), logits(plain, text, "--pre", pre)
        check.check(f"--pre {pre}", isinstance(want, bytes) and got == want, got[:200])
        check.check(f"--pre {pre} goes before the file's", logits(path("gpt-2.gguf"), text, "--pre", pre) == want)
    for argv in (("generate", "-m", plain, "--raw", "-p", "a", "-n", "1", "-q"), ("models", plain), ("tasks", "needle", "-m", plain, "--tokens", "400", "-o", path("n"))):
        r = run(*argv)
        check.check(f"{argv[0]} without a name", r.returncode == 1 and b"tokenizer.ggml.pre" in r.stderr and b"--pre" in r.stderr, r.returncode, r.stderr)
        r = run(*argv, "--pre", "qwen2")
        check.check(f"{argv[0]} with --pre", r.returncode == 0 and not r.stderr, r.returncode, r.stderr)
        r = run(*argv, "--pre", "nobody")
        check.check(f"{argv[0]} with another name", r.returncode == 1 and b"'nobody'" in r.stderr and r.stderr.count(b"\n") == 1, r.stderr)
    harness.Gguf().write(path("s.gguf"))
    hf_folder.write(path("s.gguf"), path("own"))
    r = run("generate", "-m", path("own"), "--raw", "-p", "a", "-n", "1", "--pre", "qwen2")
    check.check("--pre and a folder", r.returncode == 2 and b"--pre" in r.stderr, r.stderr)


def normal_form():
    """qwen2 and qwen35 convert texts to normal form C; tokenizer.kvfate.nfc in the file has precedence."""
    parts, whole = "cafe\u0301", "caf\u00e9"
    for pre, key, equal in (("qwen2", None, True), ("qwen35", None, True), ("qwen2", False, False), ("qwen2", True, True), ("gpt-2", None, False), ("gpt-2", True, True)):
        g = harness.Gguf().set("tokenizer.ggml.pre", pre)
        (g if key is None else g.set("tokenizer.kvfate.nfc", key, gen_tiny.BOOL)).write(path("nfc.gguf"))
        got = vocabularies.ours(sys.argv[2], path("nfc.gguf"), [parts, whole], False)
        check.check(f"{pre}, tokenizer.kvfate.nfc {key}", (got[0] == got[1]) == equal, got)


def decoder():
    """added_tokens_decoder of tokenizer_config.json next to a tokenizer.json, as in transformers:
    it has precedence over added_tokens."""
    hf_folder.write(tiny("--seed 4"), path("decoded"))
    plain = json.loads(Path(os.path.join(path("decoded"), "tokenizer_config.json")).read_text())
    vocab = json.loads(Path(os.path.join(path("decoded"), "tokenizer.json")).read_text())
    known = {t["content"]: t["id"] for t in vocab["added_tokens"]}
    letter = vocab["model"]["vocab"]
    end, space, free = known["<|im_end|>"], letter["\u0120"], 299
    last = next(t for t, i in letter.items() if i == free)  # its id is that of a token in only the decoder
    del letter[last], vocab["model"]["merges"][-1]
    hf_folder.write_json(path("decoded"), "tokenizer.json", vocab)
    decoded = {str(end): {"content": "<|im_end|>", "special": True, "lstrip": True, "rstrip": True},
               str(free): {"content": "<|mytok|>", "special": False, "rstrip": True}}
    hf_folder.write_json(path("decoded"), "tokenizer_config.json", {**plain, "added_tokens_decoder": decoded})
    a, b = letter["a"], letter["b"]
    texts = ["a <|im_end|> \n b", "a<|mytok|>  b", "a <|mytok|>b"]
    want = [[a, end, b], [a, free, b], [a, space, free, b]]
    got = vocabularies.ours(sys.argv[2], path("decoded"), texts, True)
    check.check("added_tokens_decoder beside tokenizer.json", got == want, got, want)
    for key, value, word in (("299999", {"content": "zz"}, b"299999"), (str(end), {"content": "zz"}, b"two tokens"), (str(free), {"content": "a"}, b"two ids")):
        hf_folder.write_json(path("decoded"), "tokenizer_config.json", {**plain, "added_tokens_decoder": {key: value}})
        r = subprocess.run([sys.argv[2], path("decoded")], capture_output=True, input=b"")
        check.check(f"added_tokens_decoder {key}: {value}", r.returncode == 1 and word in r.stderr, r.stderr)


def escaped():
    """tokenizer.json in the default format of Python's json.dump: all characters beyond ASCII are
    escapes."""
    with zipfile.ZipFile(os.path.join(GOLDEN, "tokenizers.zip")) as z:
        for name in sorted(n[:-5] for n in z.namelist() if n.endswith(".json")):
            text = json.dumps(json.loads(z.read(name + ".json")))
            lines = [json.loads(line) for line in z.read(name + ".jsonl").decode().split("\n") if line]
            hf_folder.write_tokenizer(path(name + "-escaped"), text, 1 << 16)
            got = vocabularies.ours(sys.argv[2], path(name + "-escaped"), [x["text"] for x in lines], True)
            check.check(f"{name}, escaped", text.isascii() and got == [x["ids"] for x in lines])


def ends():
    """Every id of eos_token_id ends a generation: of generation_config.json, or, if it is absent,
    of config.json; in a file eos_token_ids."""
    gguf = tiny("--seed 5")
    hf_folder.write(gguf, path("ends"))
    config = json.loads(Path(os.path.join(path("ends"), "config.json")).read_text())
    Path(path("array.npy")).write_bytes(logits(gguf, "hello"))
    first = int(np.load(path("array.npy"))[0].argmax()) if np.load(path("array.npy")).ndim > 1 else int(np.load(path("array.npy")).argmax())

    def said(model):
        r = subprocess.run([sys.argv[1], "generate", "-m", model, "--raw", "-p", "hello", "-n", "5", "-q", "-t", "1"], capture_output=True, stdin=subprocess.DEVNULL)
        return r.stdout.strip() if r.returncode == 0 else r.stderr
    for many in ([270, 1, 260, first], [270, 1, 260, 261, 262, 263, 264, 265, 266, first], [first], first, [270, 1, 260], [], None):
        stops = many == first or (isinstance(many, list) and first in many)
        hf_folder.write_json(path("ends"), "generation_config.json", {"eos_token_id": many})
        check.check(f"generation_config.json: {many}", (said(path("ends")) == b"") == stops, said(path("ends")))
        os.remove(os.path.join(path("ends"), "generation_config.json"))
        hf_folder.write_json(path("ends"), "config.json", {**config, "eos_token_id": many})
        check.check(f"config.json: {many}", (said(path("ends")) == b"") == stops, said(path("ends")))
        g = harness.Gguf(seed=5)
        g.set("tokenizer.ggml.eos_token_ids", many if isinstance(many, list) else [many if many is not None else 270], 5).write(path("ends.gguf"))
        check.check(f"a file: {many}", (said(path("ends.gguf")) == b"") == stops, said(path("ends.gguf")))
    for key in ("eot", "eom"):
        harness.Gguf(seed=5).set(f"tokenizer.ggml.{key}_token_id", first, 4).write(path("ends.gguf"))
        check.check(f"{key}_token_id", said(path("ends.gguf")) == b"")


families()
pieces()
pieces_added()
template()
stories()
tokens()
escaped()
decoder()
nameless()
given()
normal_form()
ends()
check.finish()
