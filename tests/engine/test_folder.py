#!/usr/bin/env python3
"""Folders of the transformers library: the logits are those of the same checkpoint as a GGUF file, byte by byte, and tokens under a
tokenizer.json are those of the tokenizers library.

usage: test_folder.py build/cli/kvfate build/tests/engine/tokenize
"""
import json
import os
import subprocess
import sys
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "..", "data", "golden")
sys.path += [os.path.dirname(HERE), os.path.join(GOLDEN, "tools")]
import check  # noqa: E402
import gen_tiny  # noqa: E402
import hf_folder  # noqa: E402
import vocabularies  # noqa: E402

work = tempfile.TemporaryDirectory(prefix="kvfate-folder-")
PROMPTS = ("Hello the world, and the other 12345 things in it.", "\u00e9\u00e8 <|im_start|>user\n\u4f60\u597d \U0001f642<|im_end|>\n" * 9)


def path(name):
    return os.path.join(work.name, name)


def logits(model, prompt, *more):
    """The bytes of the array, or what went wrong."""
    out = path("logits.npy")
    r = subprocess.run([sys.argv[1], "logits", "-m", model, "--raw", "-p", prompt, "-t", "1", "-o", out, *more],
                       capture_output=True, stdin=subprocess.DEVNULL)
    if r.returncode:
        return r.stderr.decode()
    with open(out, "rb") as f:
        return f.read()


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
        hf_folder.write(gguf, path(f"family{n}"), **({"model_type": "mistral"} if "llama" in words and "--window" in words else {}))
        same_logits(words, gguf, path(f"family{n}"))
    gguf = tiny("--kv-heads 4 --seed 9")
    hf_folder.write(gguf, path("mistral"), model_type="mistral")
    with open(os.path.join(path("mistral"), "config.json")) as f:
        config = json.load(f)
    del config["head_dim"], config["num_key_value_heads"]  # the width over the heads, and a head for each
    config.update(rope_parameters={"rope_theta": config.pop("rope_theta"), "rope_type": "default"}, sliding_window=None, rope_scaling=None)
    hf_folder.write_json(path("mistral"), "config.json", config)
    same_logits("mistral as transformers 5 writes its config.json", gguf, path("mistral"))


def template():
    """chat_template.jinja goes before tokenizer_config.json; a list of templates has one with the name default."""
    gguf, folder = tiny("--seed 3"), path("template")
    hf_folder.write(gguf, folder)
    config = os.path.join(folder, "tokenizer_config.json")
    with open(config) as f:
        plain = json.load(f)
    text = plain["chat_template"]
    hf_folder.write_json(folder, "tokenizer_config.json", {**plain, "chat_template": [{"name": "tool_use", "template": "no"}, {"name": "default", "template": text}]})
    same_output("a list of templates", gguf, folder, "-p", "hello")
    hf_folder.write_json(folder, "tokenizer_config.json", {**plain, "chat_template": "no"})
    with open(os.path.join(folder, "chat_template.jinja"), "w") as f:
        f.write(text)
    same_output("chat_template.jinja", gguf, folder, "-p", "hello")


def stories():
    """A trained model with a SentencePiece vocabulary, where it is at hand."""
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
    """tokenizer.model instead of tokenizer.json: the ids of the same vocabulary in a GGUF file."""
    with zipfile.ZipFile(os.path.join(GOLDEN, "vocabularies.zip")) as z:
        for name in sorted(n[:-5] for n in z.namelist() if n.endswith(".gguf")):
            with open(path("v.gguf"), "wb") as f:
                f.write(z.read(name + ".gguf"))
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
    """Tokens that tokenizer_config.json adds behind the pieces, and marks among them."""
    hf_folder.write(tiny("--seed 4"), path("added"))
    os.remove(os.path.join(path("added"), "tokenizer.json"))
    texts = [b"<unk>", b"<s>", b"</s>", b"\xe2\x96\x81", b"a", b"b", b"ab", b"\xe2\x96\x81a", b"<0x41>"]
    kinds, scores = [2, 3, 3, 1, 1, 1, 1, 1, 6], [0, 0, 0, -1, -2, -3, -0.5, -0.25, 0]
    g = vocabularies.Gguf().set("model", 8, b"llama").set("tokens", 8, texts).set("token_type", 5, kinds).set("scores", 6, scores)
    g.set("bos_token_id", 4, 1).set("eos_token_id", 4, 2)
    with open(os.path.join(path("added"), "tokenizer.model"), "wb") as f:
        f.write(hf_folder.spm(g))
    decoder = {"1": {"content": "<s>", "special": True}, "9": {"content": "<|x|>", "special": True, "rstrip": True}, "10": {"content": "ba", "special": False}}
    hf_folder.write_json(path("added"), "tokenizer_config.json", {"added_tokens_decoder": decoder, "legacy": False})
    texts = ["ab", "a ab", "<|x|>  ab", "bab", "<s>a"]
    # the piece of a space and an a has the best score, and legacy false puts that space before the start alone; <|x|> takes the blanks behind it,
    # and ba is cut out first
    want = [[7, 5], [7, 7, 5], [9, 6], [10, 5], [1, 4]]
    got = vocabularies.ours(sys.argv[2], path("added"), texts, True)
    check.check("added tokens", got == want, got, want)
    same_output("a run on pieces", path("added"), path("added"), "--raw", "-p", "ab")


families()
pieces()
pieces_added()
template()
stories()
tokens()
check.finish()
