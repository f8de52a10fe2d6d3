#!/usr/bin/env python3
"""Every damaged or foreign model folder is rejected with one line that names the problem and the
place."""
import copy
import json
import os
import random
import shutil
import struct
from pathlib import Path

from harness import Suite

s = Suite()
import hf_folder  # noqa: E402  (harness puts its folder on the path)

GOOD = s.path("good")
hf_folder.write(s.model(), GOOD)
JSONS = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json")


def generate(path):
    return ["generate", "-m", path, "--raw", "-p", "hello world", "-n", "2", "-q", "-t", "1"]


def read(name):
    return Path(os.path.join(GOOD, name)).read_bytes()


PLAIN = {name: json.loads(read(name)) for name in JSONS}
WEIGHTS = read("model.safetensors")
HEAD = json.loads(WEIGHTS[8:8 + struct.unpack_from("<Q", WEIGHTS)[0]])
DATA = WEIGHTS[8 + struct.unpack_from("<Q", WEIGHTS)[0]:]


def folder(**files):
    """Makes a folder of files; names have __ for a dot; None: the file is absent."""
    path = s.path("m")
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(GOOD, path)
    for name, data in files.items():
        name = os.path.join(path, name.replace("__", "."))
        if os.path.lexists(name):
            os.remove(name)
        if data is None:
            continue
        Path(name).write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    return path


def refused(name, path, *words):
    s.refused(name, generate(path), 1, path, *words)
    s.count(path)


def changed(file, *keys, value="drop"):
    """Returns the JSON of a file with one value replaced or removed."""
    out = copy.deepcopy(PLAIN[file])
    at = out
    for key in keys[:-1]:
        at = at[key]
    if value == "drop":
        del at[keys[-1]]
    else:
        at[keys[-1]] = value
    return out


def weights(head=None, data=DATA, length=None, text=None):
    text = text if text is not None else json.dumps(head if head is not None else HEAD).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(name, **more):
    head = copy.deepcopy(HEAD)
    head[name].update(more)
    return weights(head)


s.accepted("the plain folder works", generate(folder()))
s.accepted("with a slash behind", generate(folder() + "/"))

# ---- not a model folder
EMPTY = s.path("empty")
os.makedirs(EMPTY)
s.refused("an empty folder", generate(EMPTY), 1, EMPTY, "config.json", ".gguf")
for file, words in (("adapter_config.json", ("adapter", "merge")), ("dataset_infos.json", ("data set",)), ("dataset_info.json", ("data set",))):
    path = s.path(file[:9])
    os.makedirs(path, exist_ok=True)
    Path(os.path.join(path, file)).write_text("{}")
    s.refused(f"a folder with {file} alone", generate(path), 1, path, "config.json", *words)
refused("no config.json", folder(config__json=None), "no config.json")
refused("no tokenizer.json", folder(tokenizer__json=None), "no tokenizer.json")
refused("vocab.json is not enough", folder(tokenizer__json=None, vocab__json=b"{}"), "no tokenizer.json", "vocab.json")
refused("no weights", folder(model__safetensors=None), "no model.safetensors")
refused("torch weights alone", folder(model__safetensors=None, pytorch_model__bin=b"x"), "torch", "save it again")
refused("an adapter's weights alone", folder(model__safetensors=None, adapter_config__json=b"{}"), "adapter")
for file in ("config.json", "tokenizer.json", "model.safetensors", "generation_config.json", "tokenizer_config.json", "chat_template.jinja"):
    path = folder()
    name = os.path.join(path, file)
    if os.path.exists(name):
        os.remove(name)
    os.makedirs(name)
    s.refused(f"{file} is a folder", generate(path), 1, path, file, "not a regular file")
    os.rmdir(name)
    os.mkfifo(name)
    s.refused(f"{file} is a pipe", generate(path), 1, path, file, "not a regular file")

# ---- invalid JSON
DEEP = b"[" * 100 + b"]" * 100
for file in JSONS:
    for what, data, word in (("empty", b"", "json"), ("not JSON", b"{nothing", "json"), ("cut off", json.dumps(PLAIN[file]).encode()[:-9], "json"),
                             ("deep", b'{"a":' + DEEP + b"}", "deeper"), ("not UTF-8", b'{"a":"\xff\xfe"}', "utf-8"), ("a NUL", b'{"a":1}\0', "json"),
                             ("more behind", b"{} {}", "json")):
        refused(f"{file}: {what}", folder(**{file.replace(".", "__"): data}), file, word)
    if file != "tokenizer.json":
        refused(f"{file}: a list", folder(**{file.replace(".", "__"): []}), file, "not a JSON object")
        refused(f"{file}: a key twice", folder(**{file.replace(".", "__"): b'{"a":1,"a":2}'}), file, "repeats")
refused("config.json of 2 MiB", folder(config__json=b" " * (2 << 20)), "config.json", "limit")

# ---- config.json
CONFIG = "config.json"
for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings", "vocab_size"):
    refused(f"no {key}", folder(config__json=changed(CONFIG, key)), CONFIG, key, "missing")
    for v in (0, -1, 1.5, "8", 1 << 40, [], True, 1e300):
        refused(f"{key} = {v}", folder(config__json=changed(CONFIG, key, value=v)), CONFIG, key, "expected")
refused("no rms_norm_eps", folder(config__json=changed(CONFIG, "rms_norm_eps")), CONFIG, "rms_norm_eps")
refused("rms_norm_eps = -1", folder(config__json=changed(CONFIG, "rms_norm_eps", value=-1)), "epsilon")
refused("rms_norm_eps is text", folder(config__json=changed(CONFIG, "rms_norm_eps", value="small")), CONFIG, "rms_norm_eps")
refused("head_dim = 0", folder(config__json=changed(CONFIG, "head_dim", value=0)), CONFIG, "head_dim")
refused("head_dim = 1e9", folder(config__json=changed(CONFIG, "head_dim", value=10 ** 9)), CONFIG, "heads of 1000000000")
refused("no model_type", folder(config__json=changed(CONFIG, "model_type")), CONFIG, "model_type")
for kind in ("bert", "mixtral", "deepseek_v3", "mamba", "x" * 400, ""):
    refused(f"model_type {kind[:9]}", folder(config__json=changed(CONFIG, "model_type", value=kind)), CONFIG, "model_type", "qwen3")
refused("another model_type", folder(config__json=changed(CONFIG, "model_type", value="phi3")), "tensor model.layers.0.", "phi3")
for key in ("attention_bias", "mlp_bias"):
    refused(f"{key}", folder(config__json=changed(CONFIG, key, value=True)), CONFIG, key, "not supported")
refused("quantised weights", folder(config__json=changed(CONFIG, "quantization_config", value={"quant_method": "gptq"})), CONFIG, "quantised", ".gguf")
refused("another activation", folder(config__json=changed(CONFIG, "hidden_act", value="relu")), CONFIG, "relu", "silu")
for base in (0, 1, -5, "x"):
    refused(f"rope_theta = {base}", folder(config__json=changed(CONFIG, "rope_theta", value=base)), CONFIG, "rope_theta")
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 256}
for key in list(LLAMA3)[1:]:
    for v in (0, -1, "x", None):
        refused(f"rope_scaling with {key} = {v}", folder(config__json=changed(CONFIG, "rope_scaling", value={**LLAMA3, key: v})), CONFIG, key)
refused("low over high", folder(config__json=changed(CONFIG, "rope_scaling", value={**LLAMA3, "low_freq_factor": 5.0})), CONFIG, "high_freq_factor")
refused("rope_type dynamic", folder(config__json=changed(CONFIG, "rope_scaling", value={"type": "dynamic", "factor": 2.0})), CONFIG, "dynamic", "llama3")
refused("rope_type linear without a factor", folder(config__json=changed(CONFIG, "rope_scaling", value={"type": "linear"})), CONFIG, "factor")
for factors in (None, [], [1.0] * 7, [1.0] * 9, ["x"] * 8, [0.0] * 8, [1.0] * 7 + [float(-1)]):
    rope = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": factors, "original_max_position_embeddings": 64}
    refused(f"longrope with {str(factors)[:20]}", folder(config__json=changed(CONFIG, "rope_scaling", value=rope)), CONFIG, "long_factor")
for part in (0, -1, 2, 0.01):
    refused(f"partial_rotary_factor {part}", folder(config__json=changed(CONFIG, "partial_rotary_factor", value=part)), CONFIG, "partial_rotary_factor")
for kinds in ([], ["full_attention"], ["full_attention"] * 3, "full", ["linear_attention"] * 2, [1, 7]):
    refused(f"layer_types {str(kinds)[:30]}", folder(config__json=changed(CONFIG, "layer_types", value=kinds)), CONFIG, "layer_types")
refused("windows of llama", folder(config__json={**PLAIN[CONFIG], "sliding_window": 16}), CONFIG, "sliding_window", "llama")
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
for key, v in (("factor", 0.5), ("factor", "x"), ("factor", -1), ("original_max_position_embeddings", 0), ("original_max_position_embeddings", -4)):
    refused(f"YaRN with {key} = {v}", folder(config__json=changed(CONFIG, "rope_scaling", value={**YARN, key: v})), CONFIG, key)
refused("more layers than weights", folder(config__json=changed(CONFIG, "num_hidden_layers", value=3)), "blk.2", "missing")
refused("fewer tokens than the tokenizer has", folder(config__json=changed(CONFIG, "vocab_size", value=299)), "299", "vocab_size")
refused("an untied model without its output", folder(config__json=changed(CONFIG, "tie_word_embeddings", value=False)), "lm_head.weight", "tie_word_embeddings")

# ---- weights
EMBED = "model.embed_tokens.weight"
for n in (0, 1, 7, 9, 10):
    refused(f"weights of {n} bytes", folder(model__safetensors=WEIGHTS[:n]), "model.safetensors")
for n in (100, len(WEIGHTS) // 2, len(WEIGHTS) - 1):
    refused(f"weights cut at {n}", folder(model__safetensors=WEIGHTS[:n]), "model.safetensors")
refused("more bytes behind", folder(model__safetensors=WEIGHTS + b"1234"), "belong to no tensor")
for n in (len(weights()) - 7, 1 << 40, (1 << 64) - 1, (1 << 64) - 8):
    refused(f"a header of {n} bytes", folder(model__safetensors=weights(length=n)), "model.safetensors", "longer than the file")
refused("a short header", folder(model__safetensors=weights(length=8)), "model.safetensors")
refused("a header that is no JSON", folder(model__safetensors=weights(text=b"{nothing")), "model.safetensors", "json")
refused("a deep header", folder(model__safetensors=weights(text=b'{"a":' + DEEP + b"}")), "model.safetensors", "deeper")
refused("a GGUF file", folder(model__safetensors=open(s.model(), "rb").read()), "model.safetensors", "not a safetensors")
twice = json.dumps(HEAD)[:-1] + ", " + json.dumps({EMBED: HEAD[EMBED]})[1:]
refused("a tensor twice", folder(model__safetensors=weights(text=twice.encode())), "repeats", EMBED)
for dtype in ("F8_E4M3", "I8", "F64", "", 5, None):
    refused(f"dtype {dtype}", folder(model__safetensors=tensor(EMBED, dtype=dtype)), EMBED, "BF16")
for shape in ([64, 300], [300], [300, 32], [300, 64, 2], [-300, -64], [1 << 40, 1 << 40], [0, 64], "x", [300.5, 64], [1] * 5):
    refused(f"shape {shape}", folder(model__safetensors=tensor(EMBED, shape=shape)), "token_embd.weight" if shape == [64, 300] else EMBED)
begin, end = HEAD[EMBED]["data_offsets"]
for span in ([begin, end + 4], [begin + 4, end + 4], [end, begin], [-4, end], [begin], [1 << 62, 1 << 63], "x", [begin, end, end], [len(DATA), len(DATA) + end - begin]):
    refused(f"offsets {span}", folder(model__safetensors=tensor(EMBED, data_offsets=span)), "model.safetensors")
second = HEAD["model.norm.weight"]["data_offsets"]
refused("tensors that overlap", folder(model__safetensors=tensor("model.layers.0.input_layernorm.weight", data_offsets=second)), "model.safetensors", "the one before it")
for name in [n for n in HEAD if n != "__metadata__"]:
    head = {k: v for k, v in HEAD.items() if k not in (name, "__metadata__")}
    moved, data = {}, b""
    for k in sorted(head, key=lambda k: head[k]["data_offsets"][0]):
        a, b = head[k]["data_offsets"]
        moved[k] = {**head[k], "data_offsets": [len(data), len(data) + b - a]}
        data += DATA[a:b]
    refused(f"no {name}", folder(model__safetensors=weights(moved, data)), "missing")
for name in ("model.layers.0.self_attn.q_proj.bias", "model.layers.00.input_layernorm.weight", "model.layers.x.input_layernorm.weight", "foo", "model.layers.0.mlp.experts.0.w1.weight",
             "visual.blocks.0.weight", "model.layers.123456789.input_layernorm.weight", "base_model.model.lora_A.weight"):
    head = {**HEAD, name: {"dtype": "F32", "shape": [1], "data_offsets": [len(DATA), len(DATA) + 4]}}
    refused(f"a tensor {name}", folder(model__safetensors=weights(head, DATA + bytes(4))), name, "config.json")
head = {**HEAD, "x" * 300: {"dtype": "F32", "shape": [1], "data_offsets": [len(DATA), len(DATA) + 4]}}
refused("a long name", folder(model__safetensors=weights(head, DATA + bytes(4))), "300 bytes")

# ---- shards
SHARDS = s.path("shards")
hf_folder.write(s.model(), SHARDS, shards=3)
INDEX = "model.safetensors.index.json"
INDEXED = json.loads(Path(os.path.join(SHARDS, INDEX)).read_text())
FILES = sorted(set(INDEXED["weight_map"].values()))


def sharded(index, without=None):
    path = s.path("n")
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(SHARDS, path)
    Path(os.path.join(path, INDEX)).write_bytes(index if isinstance(index, bytes) else json.dumps(index).encode())
    if without:
        os.remove(os.path.join(path, without))
    return path


s.accepted("the plain shards work", generate(SHARDS))
for file in FILES:
    refused(f"no {file}", sharded(INDEXED, file), file, "missing", INDEX)
for where in ("../" + FILES[0], "/etc/passwd", "/etc/x.safetensors", "", ".", "..", "a/b.safetensors", ".hidden.safetensors", "x.bin", 5, None, "x" * 300 + ".safetensors", "../../x.safetensors"):
    refused(f"the index names {str(where)[:20]}", sharded({"weight_map": {**INDEXED["weight_map"], EMBED: where}}), INDEX, EMBED)
refused("the index names a file that is not there", sharded({"weight_map": {**INDEXED["weight_map"], EMBED: "other.safetensors"}}), "other.safetensors", "missing")
other = next(f for f in FILES if f != INDEXED["weight_map"][EMBED])
refused("the index names the wrong file", sharded({"weight_map": {**INDEXED["weight_map"], EMBED: other}}), EMBED, "is not in", other)
refused("the index names a tensor that is not there", sharded({"weight_map": {**INDEXED["weight_map"], "model.layers.0.foo": other}}), "model.layers.0.foo", "is not in")
missing = {k: v for k, v in INDEXED["weight_map"].items() if k != EMBED}
refused("the index leaves out a tensor", sharded({"weight_map": missing}), "token_embd.weight", "missing")
for index in ({}, {"weight_map": {}}, {"weight_map": []}, {"weight_map": "x"}, [], 5):
    refused(f"an index {index}", sharded(index), INDEX)
for what, data in (("empty", b""), ("no JSON", b"{"), ("deep", b'{"a":' + DEEP + b"}"), ("a tensor twice", b'{"weight_map":{"a":"a","a":"b"}}')):
    refused(f"an index: {what}", sharded(data), INDEX)

# ---- tokenizer.json
TOK = "tokenizer.json"
for value in ({"type": "WordPiece", "vocab": {}}, {"type": "Unigram", "vocab": []}, {}, None, [], {"type": "BPE"}, {"type": "BPE", "vocab": [], "merges": []}):
    refused(f"model {value}", folder(tokenizer__json=changed(TOK, "model", value=value)), TOK)
refused("no model", folder(tokenizer__json=changed(TOK, "model")), TOK, "model")
refused("an empty vocabulary", folder(tokenizer__json={**PLAIN[TOK], "added_tokens": [], "model": {**PLAIN[TOK]["model"], "vocab": {}, "merges": []}}), TOK, "empty")
for value in (-1, 300, 1 << 31, 1 << 40, 1.5, "7", None, [], 2 ** 53 + 1):
    refused(f"an id {value}", folder(tokenizer__json=changed(TOK, "model", "vocab", "a", value=value)), TOK)
refused("an id twice", folder(tokenizer__json=changed(TOK, "model", "vocab", "a", value=PLAIN[TOK]["model"]["vocab"]["b"])), TOK, "two tokens")
text = json.dumps(PLAIN[TOK]).replace('"vocab": {', '"vocab": {"a": 299, ', 1)
refused("a token twice", folder(tokenizer__json=text.encode()), TOK)
text = json.dumps(changed(TOK, "model", "vocab", "a")).replace('"vocab": {', '"vocab": {"b": %d, ' % PLAIN[TOK]["model"]["vocab"]["a"], 1)
refused("a token with two ids", folder(tokenizer__json=text.encode()), TOK, "repeats the key")
refused("half of a character", folder(tokenizer__json=json.dumps(PLAIN[TOK]).replace('"vocab": {"', '"vocab": {"\\ud800', 1).encode()), TOK, "half")
refused("no merges", folder(tokenizer__json=changed(TOK, "model", "merges")), TOK, "merges")
for merge in ("", " ", "he", "q zzz", " he", "he ", ["h"], ["h", "e", "l"], ["h e", "l"], ["h", 5], 5, None, {}, ["q", "zzz"]):
    refused(f"a merge {merge!r}", folder(tokenizer__json=changed(TOK, "model", "merges", value=PLAIN[TOK]["model"]["merges"][:4] + [merge])), "merge 4")
refused("merges are an object", folder(tokenizer__json=changed(TOK, "model", "merges", value={"a": "b"})), TOK, "merges")
refused("dropout", folder(tokenizer__json=changed(TOK, "model", "dropout", value=0.1)), TOK, "dropout")
refused("suffixes", folder(tokenizer__json=changed(TOK, "model", "end_of_word_suffix", value="</w>")), TOK, "end_of_word_suffix")
ADDED = {"id": 299, "content": "<new>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
for what, more, word in (("of an id beyond", {"id": 300}, "300"), ("of a used id", {"id": 5}, "two tokens"), ("of a known text", {"content": "a"}, "tok"),
                         ("without text", {"content": ""}, "empty"), ("whose text is a number", {"content": 5}, "token"), ("without an id", {"id": None}, "id")):
    refused(f"an added token {what}", folder(tokenizer__json=changed(TOK, "added_tokens", value=PLAIN[TOK]["added_tokens"] + [{**ADDED, **more}])), TOK, word)
refused("a token added twice", folder(tokenizer__json=changed(TOK, "added_tokens", value=PLAIN[TOK]["added_tokens"] * 2)), TOK, "twice")
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
for step in ({"type": "Whitespace"}, {"type": "BertPreTokenizer"}, {}, {"type": 5}, [], "x", {"type": "Sequence"}, {"type": "Sequence", "pretokenizers": [LEVEL] * 17},
             {"type": "Sequence", "pretokenizers": "x"}, {"type": "ByteLevel", "add_prefix_space": True}, None, {"type": "Metaspace", "replacement": "_"},
             {"type": "Sequence", "pretokenizers": [{"type": "Metaspace", "replacement": "\u2581"}, LEVEL]}):
    refused(f"pre_tokenizer {str(step)[:40]}", folder(tokenizer__json=changed(TOK, "pre_tokenizer", value=step)), TOK)
for step in ({"type": "Lowercase"}, {"type": "NFKC"}, {}, {"type": "Prepend", "prepend": "x"}, {"type": "Replace", "pattern": {"Regex": "a"}, "content": "b"},
             {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "StripAccents"}]}, {"type": "Prepend", "prepend": "\u2581"}):
    refused(f"normalizer {str(step)[:40]}", folder(tokenizer__json=changed(TOK, "normalizer", value=step)), TOK)
for pattern in ("(a", "a)", "[a", "a{2", "[[a]b]", "[a&&b]", "(?<name>a)", "(?R)", "\\K", "\\h", "\\b{x}", "(*LIMIT_MATCH=1)a", "", "\\", "\\p{Nonsense}", "\\p{", "\\x{zz}", "^a",
                "(?C1)a", "(?{code})", "\\1(a)", "[]a]", "\\u12", "*", "\\Qa\\E", "(?P>x)"):
    step = {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}, LEVEL]}
    path = folder(tokenizer__json=changed(TOK, "pre_tokenizer", value=step))
    if pattern == "a{2":  # a literal text for both libraries
        s.survives(f"pattern {pattern}", generate(path))
    else:
        refused(f"pattern {pattern}", path, "pattern")
for behavior in ("MergedWithNext", "Contiguous", "Removed", "", None):
    step = {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"String": "x"}, "behavior": behavior, "invert": False}, LEVEL]}
    refused(f"behavior {behavior}", folder(tokenizer__json=changed(TOK, "pre_tokenizer", value=step)), TOK, "behavior")

# A pattern with super-linear time in the text length ends with a message, not after hours.
step = {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "(?:a+)+b"}, "behavior": "Isolated", "invert": False}, LEVEL]}
slow = folder(tokenizer__json=changed(TOK, "pre_tokenizer", value=step))
s.bounded("a slow pattern", ["generate", "-m", slow, "--raw", "-p", "a" * 4000, "-n", "1", "-q", "-t", "1"], codes=(0, 1))

# ---- tokenizer.model
f = hf_folder.field
ROWS = [f(1, f(1, b"<unk>") + f(3, 2)), *(f(1, f(1, bytes([c])) + f(2, -float(c))) for c in range(97, 123))]
END = f(2, f(3, 2)) + f(3, f(3, 1) + f(4, 0))
GOOD_MODEL = b"".join(ROWS) + END


def pieces(data, **files):
    return folder(tokenizer__json=None, tokenizer__model=data, **files)


s.accepted("the plain tokenizer.model", generate(pieces(GOOD_MODEL)))
for name, data, word in (("empty", b"", "not the file"), ("text", b"PGh0bWw+ 0\nPGh0bWw+ 1\n" * 9, "not the file"), ("zeros", bytes(100), "not the file"), ("no pieces", END, "not the file"),
                         ("a group", GOOD_MODEL + b"\x0b", "not the file"), ("a number of eleven bytes", b"\x80" * 10 + b"\1" + GOOD_MODEL, "not the file"),
                         ("a length beyond the end", GOOD_MODEL + b"\x0a\x7f", "not the file"), ("a length of 2^63", GOOD_MODEL + b"\x0a" + b"\xff" * 9 + b"\1", "not the file"),
                         ("a score that is cut", GOOD_MODEL + f(1, f(1, b"x") + b"\x15\0"), "not the file"), ("no text", GOOD_MODEL + f(1, f(2, 0.5)), "no text"),
                         ("an empty text", GOOD_MODEL + f(1, f(1, b"")), "no text"), ("NaN", GOOD_MODEL + f(1, f(1, b"x") + f(2, float("nan"))), "score"),
                         ("infinity", GOOD_MODEL + f(1, f(1, b"xy") + f(2, float("-inf"))), "score"), ("type 0", GOOD_MODEL + f(1, f(1, b"xy") + f(3, 0)), "type"),
                         ("type 7", GOOD_MODEL + f(1, f(1, b"xy") + f(3, 7)), "type"), ("type 2^40", GOOD_MODEL + f(1, f(1, b"xy") + f(3, 1 << 40)), "type"),
                         ("a piece twice", GOOD_MODEL + ROWS[5], "two ids"), ("more pieces than the model has", GOOD_MODEL + b"".join(f(1, f(1, b"p%d" % i)) for i in range(300)), "vocab_size"),
                         ("words", GOOD_MODEL + f(2, f(3, 3)), "words"), ("characters", GOOD_MODEL + f(2, f(3, 4)), "characters"), ("kind 9", GOOD_MODEL + f(2, f(3, 9)), "BPE"),
                         ("spaces behind words", GOOD_MODEL + f(2, f(24, 1)), "treat_whitespace_as_suffix"), ("spaces as they are", GOOD_MODEL + f(3, f(5, 0)), "escape_whitespaces"),
                         ("a trainer that is cut", GOOD_MODEL + f(2, b"\x18"), "not the file"), ("a normalizer that is cut", GOOD_MODEL + f(3, b"\x12\5ab"), "not the file"),
                         ("rules that are damaged", GOOD_MODEL + f(3, f(2, b"\5\0\0\0abc")), "precompiled_charsmap")):
    refused(f"tokenizer.model: {name}", pieces(data), word)
for n in range(1, len(GOOD_MODEL), 11):
    s.survives(f"tokenizer.model: cut at {n}", generate(pieces(GOOD_MODEL[:n])))
for key, value in (("x", {"content": "a"}), ("-1", {"content": "zz"}), ("300", {"content": "zz"}), ("7", {"content": "zz"}), ("30", {}), ("30", {"content": ""}), ("30", 5), ("1" * 30, {"content": "zz"})):
    refused(f"added_tokens_decoder {key}: {value}", pieces(GOOD_MODEL, tokenizer_config__json={"added_tokens_decoder": {key: value}}), "tokenizer")
s.survives("added_tokens_decoder is a list", generate(pieces(GOOD_MODEL, tokenizer_config__json={"added_tokens_decoder": [1]})), codes=(0,))

# ---- unusual, but valid: no crash
rng = random.Random(3)
for name, files in (("no tokenizer_config.json", {"tokenizer_config__json": None}), ("no generation_config.json", {"generation_config__json": None}),
                    ("an empty template", {"chat_template__jinja": b""}), ("marks out of range", {"generation_config__json": {"eos_token_id": [1 << 40, -1, "x", None, 299]}}),
                    ("marks of other kinds", {"tokenizer_config__json": {"bos_token": 5, "eos_token": ["x"], "chat_template": 7, "add_bos_token": "yes"}}),
                    ("holes in the vocabulary", {"tokenizer__json": changed(TOK, "model", "merges", value=[]) | {"model": {**PLAIN[TOK]["model"], "merges": [], "vocab": {
                        t: i for t, i in PLAIN[TOK]["model"]["vocab"].items() if i < 280 or i == 299}}}}),
                    ("no added tokens", {"tokenizer__json": changed(TOK, "added_tokens", value=None)}),
                    ("a post_processor of other kinds", {"tokenizer__json": changed(TOK, "added_tokens", value=[]) | {"post_processor": {"type": "Sequence", "processors": [5, {}, []]}}})):
    s.survives(name, generate(folder(**files)), codes=(0,))
for file, data in (("tokenizer.json", json.dumps(PLAIN[TOK]).encode()), ("config.json", json.dumps(PLAIN[CONFIG]).encode()), ("model.safetensors", WEIGHTS)):
    for i in range(25):
        bad = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            bad[rng.randrange(min(len(bad), 3000))] = rng.randrange(256)
        s.survives(f"{file}: wrong bytes {i}", generate(folder(**{file.replace(".", "__"): bytes(bad)})))
s.check("each is one of many", len(s.spoiled) >= 380, len(s.spoiled))
s.finish()
