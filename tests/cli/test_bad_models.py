#!/usr/bin/env python3
"""Every damaged or foreign model file is rejected with one line that names the problem."""
import os
import random
import struct

from harness import Gguf, Suite, patched

s = Suite()
U32, F32, STRING, I32, U64, I64 = 4, 6, 8, 5, 10, 11


def generate(path):
    return ["generate", "-m", path, "--raw", "-p", "hello world", "-n", "2", "-q", "-t", "1"]


def refused(name, data, *words):
    if isinstance(data, Gguf):
        path = data.write(s.path("m.gguf"))
    else:
        path = s.file("m.gguf", data)
    s.refused(name, generate(path), 1, path, *words)
    s.count(path)


s.accepted("the plain model works", generate(Gguf().write(s.path("good.gguf"))))
s.refused("missing", generate(s.path("none.gguf")), 1, "none.gguf", "No such file")
os.mkdir(s.path("empty"))
s.refused("an empty folder", generate(s.path("empty")), 1, s.path("empty"), "config.json", ".gguf")
s.refused("a device", generate("/dev/null"), 1, "not a regular file")
refused("empty", b"", "not a GGUF file")
refused("text", b"I am not a model, whatever the name says.\n" * 9, "not a GGUF file")
refused("zeros", bytes(4096), "not a GGUF file")

rng = random.Random(1)
table, good = Gguf().head_bytes()
refused("wrong magic", b"GGUX" + bytes(good[4:]), "not a GGUF file")
for version in (0, 1, 4, 3 << 24):
    refused(f"version {version}", patched(good, 4, "<I", version), "version")
refused("big-endian", patched(good, 4, ">I", 3), "big-endian")
for n in sorted({0, 1, 3, 4, 8, 16, 23, 24, 25, 40, table - 1, table, table + 7, *rng.sample(range(len(good)), 60), len(good) - 65}):
    refused(f"cut at {n} of {len(good)}", bytes(good[:n]), "fetch" if n >= 24 else "GGUF")

for name, at in (("tensors", 8), ("keys", 16)):
    for n in (1 << 63, (1 << 64) - 1, 1 << 40, 65537, 65536):
        refused(f"{n} {name}", patched(good, at, "<Q", n))
refused("no keys", patched(good, 16, "<Q", 0))
refused("no tensors", patched(good, 8, "<Q", 0), "missing")
for n in ((1 << 64) - 1, (1 << 64) - 8, 1 << 63, 1 << 32, 0):
    refused(f"first key of {n} bytes", patched(good, 24, "<Q", n), "metadata entry 0")
refused("value type 13", patched(good, 24 + 8 + 20, "<I", 13), "metadata entry 0")

# The first tensor's entry: name, number of dimensions, dimensions, type, offset.
entry = table + 8 + len("token_embd.weight")
for n in (0, 5, 1 << 31, 0xffffffff):
    refused(f"{n} dimensions", patched(good, entry, "<I", n), "tensor 0")
for n in (0, 1 << 62, (1 << 64) - 1, 1 << 41):
    refused(f"dimension {n}", patched(good, entry + 4, "<Q", n), "tensor 0")
refused("dimension 65", patched(good, entry + 4, "<Q", 65), "token_embd.weight")
for kind, name in ((9, "Q8_1"), (15, "Q8_K"), (16, "IQ2_XXS"), (24, "I8"), (39, "MXFP4"), (99, "unknown")):
    refused(f"tensor type {kind}", patched(good, entry + 20, "<I", kind), "token_embd.weight", name, "F32, F16", "Q4_K", "and IQ4_XS can be read")
for kind, name in ((10, "Q2_K"), (11, "Q3_K"), (12, "Q4_K"), (13, "Q5_K"), (14, "Q6_K"), (23, "IQ4_XS")):
    refused(f"{name} in rows of 64", patched(good, entry + 20, "<I", kind), "token_embd.weight", "64 wide", name, "256 values", "Q8_0")
refused("Q5_0 in rows of 48", patched(patched(good, entry + 20, "<I", 6), entry + 4, "<Q", 48), "token_embd.weight")
for n in (1, 33, (1 << 64) - 32, 1 << 40, len(good)):
    refused(f"offset {n}", patched(good, entry + 24, "<Q", n), "outside the file")

refused("no architecture", Gguf().drop("general.architecture"), "architecture")
refused("another architecture", Gguf().set("general.architecture", "gpt2"), "'gpt2'", "'llama'")
refused("architecture with a newline", Gguf().set("general.architecture", "a\nb"), "architecture")
refused("long architecture", Gguf().set("general.architecture", "x" * 5000), "architecture")
refused("architecture is a number", Gguf().set("general.architecture", 5, U32), "architecture")

COUNTS = ["llama.block_count", "llama.embedding_length", "llama.feed_forward_length", "llama.attention.head_count",
          "llama.attention.head_count_kv", "llama.context_length", "llama.attention.key_length", "llama.rope.dimension_count"]
for key in COUNTS:
    for v in (0, 0xffffffff, 1 << 25):
        refused(f"{key} = {v}", Gguf().set(key, v), key, "expected 1 to")
    refused(f"{key} = -1", Gguf().set(key, -1, I32), key)
    refused(f"{key} is text", Gguf().set(key, "many", STRING), key) if key.endswith(("block_count", "context_length")) else None
for key in COUNTS[:4] + COUNTS[5:6]:
    refused(f"no {key}", Gguf().drop(key), key, "missing")
refused("more layers than tensors", Gguf().set("llama.block_count", 3), "blk.2.", "missing")
refused("4096 layers", Gguf().set("llama.block_count", 4096), "missing")
refused("KV heads do not divide", Gguf().set("llama.attention.head_count_kv", 3), "4 query heads", "3 KV heads")
refused("heads of 15", Gguf().set("llama.attention.key_length", 15))
refused("rotary dimensions above the head", Gguf().set("llama.rope.dimension_count", 32), "rotary", "16")
refused("odd rotary dimensions", Gguf().set("llama.rope.dimension_count", 7), "rotary")
refused("keys and values of other widths", Gguf().set("llama.attention.value_length", 8), "value_length")
refused("scaled positions", Gguf().set("llama.rope.scaling.type", "linear", STRING), "rotary")
for v in (0.0, -1.0, float("nan"), float("inf")):
    refused(f"rotary base {v}", Gguf().set("llama.rope.freq_base", v), "rotary base")
    refused(f"epsilon {v}", Gguf().set("llama.attention.layer_norm_rms_epsilon", v), "epsilon")
for v in (0, 3, 48, 1 << 20):
    refused(f"alignment {v}", Gguf().set("general.alignment", v), "alignment")

for t in Gguf().tensors:
    refused(f"no {t[0]}", Gguf().without(t[0]), t[0], "missing")
for name in ("blk.0.attn_q.weight", "blk.1.ffn_down.weight", "output_norm.weight", "blk.0.attn_norm.weight"):
    g = Gguf()
    t = g.tensor(name)
    t[1] = [t[1][0] // 2, *t[1][1:]]
    refused(f"{name} is too small", g, name, "expected")
    g = Gguf()
    t = g.tensor(name)
    t[1] = [1, *t[1]] if len(t[1]) > 1 else [1, 1, *t[1]]
    refused(f"{name} has another shape", g, name) if len(t[1]) > 3 else s.survives(name, generate(g.write(s.path("m.gguf"))))
    g = Gguf()
    t = g.tensor(name)
    t[1] = t[1][::-1] if len(t[1]) > 1 else [2, t[1][0] // 2]
    refused(f"{name} is turned", g, name, "expected") if t[1][0] != t[1][-1] else None
for arch in ("qwen2", "qwen3"):
    s.accepted(f"the plain {arch} works", generate(Gguf(arch=arch).write(s.path("good.gguf"))))
for arch, part, n in (("qwen3", "attn_q_norm.weight", 16), ("qwen3", "attn_k_norm.weight", 16), ("qwen2", "attn_q.bias", 64),
                      ("qwen2", "attn_k.bias", 32), ("qwen2", "attn_v.bias", 32)):
    refused(f"{arch} without {part}", Gguf(arch=arch).without("blk.1." + part), "blk.1." + part, "missing")
    g = Gguf(arch=arch)
    g.tensor("blk.0." + part)[1] = [n // 2]
    refused(f"{arch} with a short {part}", g, "blk.0." + part, f"expected {n}")
refused("qwen3 with scaled positions", Gguf(arch="qwen3").set("qwen3.rope.scaling.type", "dynamic", STRING), "rotary", "yarn")
refused("qwen3 of llama's keys", Gguf().set("general.architecture", "qwen3"), "qwen3.block_count", "missing")
g = Gguf()
g.tensors.append(list(g.tensors[3]))
refused("a tensor twice", g, g.tensors[3][0], "twice")
g = Gguf()
g.tensors.append(["x" * 300, [1], 0, bytes(4)])
refused("long tensor name", g, "tensor")



def parts(n, spoil=None):
    """Writes a model in n files; returns the path of the first. spoil(i, g) may change part i, or
    return False to skip it."""
    whole = Gguf()
    for name in os.listdir(s.work.name):
        if name.startswith("part-"):
            os.remove(s.path(name))
    for i in range(n):
        g = Gguf()
        g.tensors = whole.tensors[i::n]
        if i > 0:
            g.metadata = []
        g.set("split.no", i, U16).set("split.count", n, U16).set("split.tensors.count", len(whole.tensors), I32)
        if not spoil or spoil(i, g) is not False:
            g.write(s.path(f"part-{i + 1:05d}-of-{n:05d}.gguf"))
    return s.path(f"part-00001-of-{n:05d}.gguf")


def spoiled(name, n, spoil, *words):
    s.refused(name, generate(parts(n, spoil)), 1, *words)


def second(change):
    return lambda i, g: change(g) if i == 1 else None


U16 = 2
whole = s.accepted("one file", generate(Gguf().write(s.path("good.gguf")))).stdout
for n in (1, 2, 3, 7):
    s.check(f"{n} files say what one says", s.accepted(f"{n} files", generate(parts(n))).stdout == whole)
first = parts(3)
s.refused("the second of three files", generate(s.path("part-00002-of-00003.gguf")), 1, "part-00002-of-00003.gguf", "-00001-of-00003.gguf")
os.rename(first, s.path("part-renamed.gguf"))
s.refused("a first file under another name", generate(s.path("part-renamed.gguf")), 1, "part-renamed.gguf", "-00001-of-00003.gguf")
os.rename(s.path("part-renamed.gguf"), first)
second_path, third_path = s.path("part-00002-of-00003.gguf"), s.path("part-00003-of-00003.gguf")
os.rename(second_path, s.path("part-x"))
os.rename(third_path, second_path)
os.rename(s.path("part-x"), third_path)
s.refused("files in a wrong order", generate(first), 1, "part-00002-of-00003.gguf", "part 3 of 3")
spoiled("a missing file", 3, second(lambda g: False), "part-00002-of-00003.gguf", "part 2 of the 3")
spoiled("a file of another model", 2, second(lambda g: g.set("split.count", 5) and None), "part-00002-of-00002.gguf", "of 5")
spoiled("a file that is no part", 2, second(lambda g: g.drop("split.no") and None), "part-00002-of-00002.gguf")
spoiled("too few tensors", 2, second(lambda g: g.tensors.pop() and None), "tensors", "announced")
spoiled("a tensor in two files", 2, second(lambda g: g.tensors.__setitem__(0, Gguf().tensors[0])), Gguf().tensors[0][0], "twice")
spoiled("a part that is cut off", 2, second(lambda g: g.tensors[0].__setitem__(3, g.tensors[0][3][:64]) if len(g.tensors) == 1 else g.tensors.__setitem__(
    -1, [g.tensors[-1][0], [1 << 20], 0, bytes(64)])), "part-00002-of-00002.gguf", "outside the file")
for n, kind in ((-1, I32), (10000, U16), (0xffffffff, U32)):
    refused(f"{n} files", Gguf().set("split.count", n, kind), "split.count")
s.accepted("a count of no files", generate(Gguf().set("split.count", 0, U16).write(s.path("good.gguf"))))
spoiled("nothing but a text", 2, second(lambda g: s.file("part-00002-of-00002.gguf", b"text" * 30) and False), "part-00002-of-00002.gguf", "not a GGUF file")

refused("no vocabulary", Gguf().drop("tokenizer.ggml.tokens"), "vocabulary")
refused("no merges", Gguf().drop("tokenizer.ggml.merges"), "merges")
refused("vocabulary is text", Gguf().set("tokenizer.ggml.tokens", "a b c", STRING), "tokenizer.ggml.tokens", "a list of texts")
refused("another tokenizer", Gguf().set("tokenizer.ggml.model", "bert"), "'bert'", "gpt2", "llama")
refused("no tokenizer model", Gguf().drop("tokenizer.ggml.model"), "tokenizer")
s.accepted("DeepSeek's name of Qwen's pre-tokenizer", generate(Gguf().set("tokenizer.ggml.pre", "deepseek-r1-qwen").write(s.path("good.gguf"))))
refused("another pre-tokenizer", Gguf().set("tokenizer.ggml.pre", "deepseek"), "'deepseek'", "smollm")


def pieces(**keys):
    """Returns the tiny model with a SentencePiece vocabulary: control tokens, bytes, letters and a
    few words; keys of tokenizer.ggml."""
    words = ["\u2581", "\u2581h", "el", "lo", "\u2581hel", *"abcdefghijklmnopqrstuvwxyz", "or", "ld", "wo", "\u2581wo", "\u2581world", "  ", "xy"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *words, "\u2581\u2581", "ab", "cd"]
    g = Gguf().set("tokenizer.ggml.model", "llama").drop("tokenizer.ggml.merges").drop("tokenizer.ggml.pre").set("tokenizer.ggml.tokens", tokens + [f"q{i}" for i in range(300 - len(tokens))])
    g.set("tokenizer.ggml.token_type", [2, 3, 3] + [6] * 256 + [1] * 41).set("tokenizer.ggml.scores", [-float(i) for i in range(300)], F32)
    for key, (value, kind) in keys.items():
        g.set("tokenizer.ggml." + key, value, kind)
    return g


U8, BOOL = 0, 7
for model in ("llama", "t5"):
    s.accepted(f"the plain {model} vocabulary works", generate(pieces(model=(model, STRING)).write(s.path("good.gguf"))))
    for name, keys, words in (
            ("no scores", {"scores": ("none", STRING)}, ("scores",)),
            ("few scores", {"scores": ([0.0] * 299, F32)}, ("300 tokens", "scores")),
            ("many scores", {"scores": ([0.0] * 301, F32)}, ("300 tokens", "scores")),
            ("whole scores", {"scores": ([0] * 300, I32)}, ("scores",)),
            ("a score that is no number", {"scores": ([0.0] * 7 + [float("nan")] + [0.0] * 292, F32)}, ("token 7",)),
            ("a score without end", {"scores": ([0.0] * 299 + [float("-inf")], F32)}, ("token 299",)),
            ("a long token", {"tokens": (["a" * 1025] * 300, STRING), "token_type": ([1] * 300, I32)}, ("1025 bytes", "1024")),
            ("no tokens", {"tokens": ("none", STRING)}, ("tokenizer.ggml.tokens", "a list of texts")),
            *((f"rules of {len(rules)} bytes", {"precompiled_charsmap": (rules, U8)}, ("precompiled_charsmap",)) for rules in (
                [0], [0] * 8, [4, 0, 0, 0, 0, 0, 0, 0, 1], [255] * 64, [8, 0, 0, 0] + [0] * 8, [3, 0, 0, 0] + [0] * 90, [0, 0, 0, 128] + [0] * 91))):
        refused(f"{model}: {name}", pieces(**{**keys, "model": (model, STRING)}), *words)
    for name, keys in (
            ("no bytes", {"token_type": ([2, 3, 3] + [1] * 297, I32)}), ("some bytes", {"token_type": ([2, 3, 3] + [6] * 100 + [1] * 197, I32)}),
            ("all tokens are marks", {"token_type": ([3] * 300, I32)}), ("all tokens are words of the user", {"token_type": ([4] * 300, I32)}),
            ("all tokens are unknown", {"token_type": ([2] * 300, I32)}), ("all tokens are unused", {"token_type": ([5] * 300, I32)}),
            ("wild types", {"token_type": ([2 ** 31 - 1] * 300, I32)}), ("empty tokens", {"tokens": ([""] * 300, STRING)}),
            ("equal tokens", {"tokens": (["a"] * 300, STRING)}), ("equal scores", {"scores": ([0.0] * 300, F32)}),
            ("bytes that are none", {"tokens": ([f"<0x{b:02x}>" for b in range(300)], STRING)}), ("start out of range", {"bos_token_id": (300, U32)}),
            ("unknown out of range", {"unknown_token_id": (0xffffffff, U32)}), ("no rules", {"precompiled_charsmap": ([], U8)}),
            ("rules that go round", {"precompiled_charsmap": ([8, 0, 0, 0] + [0, 5, 0, 0] + [104, 5, 0, 0] + [120, 0], U8)}),
            ("spaces go", {"remove_extra_whitespaces": (True, BOOL)}), ("no space before", {"add_space_prefix": (False, BOOL)}),
            ("huge scores", {"scores": ([3e38] * 300, F32)})):
        s.survives(f"{model}: {name}", generate(pieces(**{**keys, "model": (model, STRING)}).write(s.path("odd.gguf"))), codes=(0, 1))
for merge in ("", " ", "he", "h e l", "q zzz", "\u0120", " he", "he ", "x" * 3000 + " y"):
    g = Gguf()
    refused(f"merge {merge[:20]!r}", g.set("tokenizer.ggml.merges", g.get("tokenizer.ggml.merges")[:4] + [merge]), "merge 4")
g = Gguf()
refused("more tokens than rows", g.set("llama.vocab_size", 200), "token")
g = Gguf()
refused("a token more than rows", g.set("tokenizer.ggml.tokens", g.get("tokenizer.ggml.tokens") + ["extra"]), "301 tokens", "300")
g = Gguf().set("llama.vocab_size", 200)
t = g.tensor("token_embd.weight")
t[1], t[3] = [200, 64], t[3][:200 * 64 * 4]
refused("more tokens than the embedding has rows", g, "300 tokens", "200")
refused("the model claims more rows", Gguf().set("llama.vocab_size", 400), "token_embd.weight", "400")
g = Gguf().drop("tokenizer.chat_template").write(s.path("plain.gguf"))
s.accepted("no chat template", ["generate", "-m", g, "-p", "x", "-q"])
s.refused("messages without a chat template", ["generate", "-m", g, "--chat", s.file("chat.json", b'[{"role":"user","content":"x"}]'), "-q"], 1, "chat template", "--raw")
g = Gguf().set("tokenizer.chat_template", "[INST] {{ x }} [/INST]").write(s.path("plain.gguf"))
s.refused("foreign chat template", ["generate", "-m", g, "-p", "x", "-q"], 1, "chat template", "--raw")

# Unusual, but valid: no crash.
for name, g in (
        ("equal tokens", Gguf().set("tokenizer.ggml.tokens", (lambda t: t[:-1] + [t[5]])(Gguf().get("tokenizer.ggml.tokens")))),
        ("no token types", Gguf().drop("tokenizer.ggml.token_type")),
        ("short token types", Gguf().set("tokenizer.ggml.token_type", [3, 3])),
        ("all tokens special", Gguf().set("tokenizer.ggml.token_type", [3] * 300)),
        ("wild token types", Gguf().set("tokenizer.ggml.token_type", [-2 ** 31] * 300)),
        ("end token out of range", Gguf().set("tokenizer.ggml.eos_token_id", 0xffffffff)),
        ("empty merges", Gguf().set("tokenizer.ggml.merges", [])),
        ("empty tokens", Gguf().set("tokenizer.ggml.merges", []).set("tokenizer.ggml.tokens", [""] * 300)),
        ("context of 1", Gguf().set("llama.context_length", 1))):
    s.survives(name, generate(g.write(s.path("odd.gguf"))))

# NaN and infinite weights: the run ends, with any text.
for name, value in (("NaN", 0x7fc00000), ("infinity", 0x7f800000), ("huge", 0x7f7fffff)):
    for tensor in ("token_embd.weight", "blk.0.attn_k.weight", "blk.0.attn_norm.weight", "output_norm.weight"):
        g = Gguf()
        g.tensor(tensor)[3] = struct.pack("<I", value) * (len(g.tensor(tensor)[3]) // 4)
        model = g.write(s.path("odd.gguf"))
        s.survives(f"{name} in {tensor}", generate(model))
        for method in ("full", "h2o", "snapkv"):
            out = s.path("odd.kvf")
            s.survives(f"{name} in {tensor}, recorded, {method}", ["run", "--overwrite", "-m", model, "--raw", "-p", "hello " * 20, "-n", "3", "-q", "-o", out,
                                                                   "-t", "1", "--method", method, "-B", "12"])

for i in range(60):  # single wrong bytes before the tensors
    data = bytearray(good)
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(4, len(good) - 60000)] = rng.randrange(256)
    s.survives(f"wrong bytes {i}", generate(s.file("wrong.gguf", bytes(data))))
# The default system message follows branches with code instead of it (Qwen2.5), or there is no such
# message (Qwen3).
BRANCHES = ("{%- if tools %}{{- '<|im_start|>system\\n' }}{{- messages[0]['content'] }}{{- '<|im_end|>\\n' }}{%- elif messages[0]['role'] == "
            "'system' %}{{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}{%- else %}MORE{%- endif %}"
            "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}{{- '<|im_start|>assistant\\n' }}")
for more, system in (("{{- '<|im_start|>system\\nBe brief.<|im_end|>\\n' }}", "<|im_start|>system\nBe brief.<|im_end|>\n"), ("", "")):
    path = Gguf().set("tokenizer.chat_template", BRANCHES.replace("MORE", more)).write(s.path("m.gguf"))
    said = [s.accepted(f"template {len(more)}", ["generate", "-m", path, *prompt, "-n", "12", "--ignore-eos", "-q", "-t", "1"]).stdout
            for prompt in (["-p", "hello"], ["--raw", "-p", system + "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"])]
    s.check(f"default system message '{system[:20]}'", said[0] == said[1] and said[0], said)
s.check("each is one of many", len(s.spoiled) >= 280, len(s.spoiled))
s.finish()
