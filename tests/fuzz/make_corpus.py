#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets: small inputs that reach the important branches.

usage: make_corpus.py     (writes below its own folder: corpus/TARGET.zip, where other files stay, and
                           vocabulary.gguf)
"""
import base64
import json
import os
import random
import struct
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cli"))
sys.path.insert(0, os.path.join(HERE, "..", "data", "golden", "tools"))
sys.path.insert(0, os.path.join(HERE, "..", "data"))
sys.path.insert(0, os.path.join(HERE, "..", "kernels"))
import make_gates  # noqa: E402
import blocks_numpy  # noqa: E402
from corpora import read, write  # noqa: E402
from harness import Gguf  # noqa: E402


corpora = {}


def put(target, name, data):
    if target not in corpora:
        corpora[target] = read(target)
    corpora[target][name] = data


def small_model(**options):
    """About 3 KB: six tokens, one merge, one layer."""
    g = Gguf(**{**dict(layers=1, heads=4, kv_heads=2, head_dim=8, dim=32, ffn=32, vocab=259), **options})
    g.set("tokenizer.ggml.tokens", ["<|im_start|>", "<|im_end|>", "a", "b", "ab", "\u0120"])
    g.set("tokenizer.ggml.token_type", [3, 3, 1, 1, 1, 1]).set("tokenizer.ggml.merges", ["a b"]).set("llama.vocab_size", 6)
    g.set("tokenizer.chat_template", "<|im_start|><|im_end|>")
    for t in g.tensors:
        if t[1][0] == 259:
            t[3] = t[3][:len(t[3]) // 259 * 6]
            t[1] = [6, t[1][1]]
    return g


def models():
    for kind in ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1"):
        put("gguf", kind, bytes(small_model(type=kind).head_bytes()[1]))
    for kind, (number, block, size) in blocks_numpy.FORMATS.items():
        g = small_model(type="q8_0", ffn=max(block, 32))
        t = g.tensor("blk.0.ffn_down.weight")
        n = t[1][0] * t[1][1] // block
        t[2], t[3] = number, blocks_numpy.random_blocks(kind, n, np.random.default_rng(number), False)
        put("gguf", f"down_{kind}", bytes(g.head_bytes()[1]))
    for no, count in ((0, 2), (1, 2), (0, 1), (0, 1 << 20)):
        g = small_model().set("split.no", no, 4).set("split.count", count, 4).set("split.tensors.count", 11, 5)
        put("gguf", f"split_{no}_{count}", bytes(g.head_bytes()[1]))
    put("gguf", "untied", bytes(small_model(type="q4_1", untied=True).head_bytes()[1]))
    put("gguf", "odd", bytes(small_model(heads=3, kv_heads=3, head_dim=6, dim=10, ffn=7).head_bytes()[1]))
    table, data = small_model(type="q8_0").head_bytes()
    for n in (0, 3, 24, 60, table, table + 30, len(data) - 40):
        put("gguf", f"cut{n}", bytes(data[:n]))
    for name, key, value in (("heads0", "llama.attention.head_count", 0), ("layers", "llama.block_count", 4000), ("align", "general.alignment", 3),
                             ("vocab", "llama.vocab_size", 5), ("wide", "llama.attention.key_length", 1 << 30)):
        put("gguf", name, bytes(small_model(type="q4_0").set(key, value).head_bytes()[1]))
    huge = bytearray(data)
    struct.pack_into("<Q", huge, 8, (1 << 64) - 1)
    put("gguf", "tensors", bytes(huge))


def texts():
    g = Gguf(vocab=286)
    pairs = [m for m in g.metadata if m[0].startswith("tokenizer.ggml.") and m[0] != "tokenizer.ggml.pre"]
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs) + 1) + b"".join(g.gen.entry(*m) for m in pairs)
    with open(os.path.join(HERE, "vocabulary.gguf"), "wb") as f:
        f.write(head + g.gen.string("tokenizer.ggml.pre") + struct.pack("<I", 8))
    seeds = ["", "the thing in the \n\n  sentence", "don't we'll I'VE 12345 \u00bd\u0663\u216b", "<|im_start|>user\nhi<|im_end|>\n", "a\u00e9\u4e2d\U0001f469\u200d\U0001f680",
             "\t \r\n\u00a0\u2003\u3000\u180e x", "====----" * 30, "<|im_start|<|im_end|>|>", "e\u0301 \u0130 \u1e9e"]
    for i, s in enumerate(seeds):
        put("tokenizer", f"text{i}", s.encode())
    put("tokenizer", "bytes", bytes(range(256)))
    put("tokenizer", "broken", b"\xff\xc0\x80 \xed\xa0\x80 \xf4\x90\x80\x80 \xe2\x82 a\x80 1\xf01")


def vocabularies():
    """In the format of fuzz_vocabulary.c."""
    def make(model, tokens, merges=(), bits=1, rules=b"", text="", pre=0):
        out = bytes([bits, model, pre, len(tokens)])
        for spelling, kind, score in tokens:
            out += bytes([kind, score & 255, len(spelling.encode())]) + spelling.encode()
        out += bytes([len(merges)]) * bool(tokens) + bytes(i for pair in merges for i in pair) + bytes([1, 2, 0])
        return out + (struct.pack("<H", len(rules)) + rules if bits & 8 else b"") + text.encode()
    marks = [("<unk>", 2, 0), ("<s>", 3, 0), ("</s>", 3, 0)]
    pieces = marks + [("\u2581a", 1, -1), ("a", 1, -3), ("b", 1, -4), ("ab", 1, -2), ("\u2581", 1, -5), ("aba", 1, -6), ("xy", 4, 0), ("a\u2581b", 1, -7)]
    raw = [(f"<0x{i:02X}>", 6, 0) for i in range(20)]
    level = [("a", 1, 0), ("b", 1, 0), ("ab", 1, 0), ("\u0120", 1, 0), ("\u0120a", 1, 0), ("<|x|>", 3, 0), ("user d", 4, 0)]
    trie = struct.pack("<IIII", 12, 1 << 10, 0x161 | 1 << 10, 0x80000000) + b"b\0"
    for i, text in enumerate(("", "ab aba b", "<s>ab</s> xy ab", "a\u2581b  \u00e9\n", "aaaa" * 40)):
        for model in (1, 2):
            put("vocabulary", f"pieces{model}_{i}", make(model, pieces + raw, bits=1, text=text))
            put("vocabulary", f"rules{model}_{i}", make(model, pieces, bits=11, rules=trie, text=text))
        put("vocabulary", f"level{i}", make(0, level, [(0, 1), (3, 0)], bits=5, text=text, pre=i % 4))
    put("vocabulary", "none", make(1, []))
    put("vocabulary", "other", make(3, pieces))
    put("vocabulary", "row", make(0, level, pre=4))
    put("vocabulary", "merge", make(0, level, [(1, 0)]))


def chats():
    plain = "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
    system = "{{ '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}" + plain
    one = '[{"role":"user","content":"h\u00e9 \\u20ac \\ud83d\\ude00"}]'
    for i, (template, messages) in enumerate((("", ""), (plain, one), (system, one), (system, '[{"role":"system","content":"x"},{"role":"user","content":"y"}]'),
                                              ("[INST]", one), ("<|im_start|>system\\n<|im_end|>", "[]"), ("<|im_start|>system\\n{x}<|im_end|>", one),
                                              ("<|im_end|><|im_start|>system\\n", one), (plain, "[[[[1]]]]"), (plain, '{"a":1,"a":2}'), (plain, "[1e999,-0,1.5]"),
                                              (system.replace("\\n", "\n"), one), ('{{ "<|im_start|>system\\nYou\'re \\"it\\"\\x<|im_end|>" }}', one),
                                              ("{% if x %}<|im_start|>system\n{<|im_end|>{% endif %}", one), ("'<|im_start|>system\\n\\<|im_end|>'", one))):
        put("chat", f"chat{i}", template.encode() + b"\0" + messages.encode())
    golden = json.load(open(os.path.join(HERE, "..", "data", "golden", "chat_golden.json")))
    for i, t in enumerate(golden["templates"]):
        put("chat", f"template{i}", t["text"].encode() + b"\0" + json.dumps(golden["conversations"][8]).encode())
    for i, t in enumerate(golden["snippets"]):
        put("chat", f"rule{i}", t["template"].encode() + b"\0" + one.encode())


def jsons():
    for i, text in enumerate(("", " [1, -2.5e3, true, false, null, {}, []]\n", '{"a":{"b":[[{"c":"d"}]]},"e":0}', '{"a":1,"b":2,"\\u0061":3}', '"\\ud83d\\ude42 \\u00e9\\n"', '["\\ud83d"]', '["\\u0000"]',
                              "[1e999]", "[" * 64 + "]" * 64, "[" * 65 + "]" * 65, "[" + "1" * 64 + "]", "\ufeff{}", '{"\u00e9":"\U0001f600"}', "[1]x", '{"k%d":0}' % 7, json.dumps({str(i): i for i in range(40)}))):
        put("json", f"json{i}", text.encode())
    put("json", "bytes", b'"\xff"')


def options():
    kinds = {0: ["full", "h2o", "h2o:sinks=4,recent=8", "snapkv:window=16,pool=7,pool-kind=avg,group=max", "window:sinks=4k", "random:seed=9", "h2o:,", "x:" + "y" * 70],
             1: ["", "L0K1", "L0-1K*", "*.0", "L*H3,L0H0-2", "1.1,0.0", "L0K0-", "L-1K0", "L99999999999K0", "0-1.0-1"],
             2: ["12", "4k", "-3M", "1e5", "nan", "0x1p3", "paper", "evict,nll", "a=1,b", "out.tsv", "\u00e9\t\n\x7f", "99999999999999999999"],
             3: ["-q\x01--int=7\x01a", "-n5\x01--real\x010.25", "--\x01-q", "-lx\x01-ly\x01--list=z", "--str=\x01-", "-h", "--quiet=1", "-n\x01999", "-s"]}
    for kind, list_ in kinds.items():
        for i, s in enumerate(list_):
            put("options", f"kind{kind}_{i}", bytes([kind, 21 + i]) + s.encode())


def gates():
    small = "--layers 2 --heads 4 --kv-heads 2 --head-dim 2 --d-model 3 --hidden 2 --gate-dim 2 --tokens 4 --seed 7 --model-hash feed -o -".split()
    seeds = {"rg": "--layout rg --z bf16", "rg10": "--layout rg10 --dtype BF16", "linear": "--layout linear --tie",
             "rg2": "--layout rg2 --key-order halves", "rg3": "--layout rg3 --tie", "rgkv": "--layout rgkv --key-order halves", "wgkv": "--layout wgkv --key-order halves", "locret": "--layout locret --dtype F16",
             "duo": "--layout duo", "seer": "--layout seer --norms --block 64 --key-order halves", "retention": "--layout values --kind retention",
             "write": "--layout values --kind write", "importance": "--layout values --kind importance"}
    for name, argv in seeds.items():
        data = make_gates.build(make_gates.options(argv.split() + small))
        put("gates", name, data)
        for n in (5, 12, len(data) // 2, len(data) - 4):
            put("gates", f"{name}_cut{n}", data[:n])
    header, data = data[8:8 + data[0] + 256 * data[1]].decode(), data[8 + data[0] + 256 * data[1]:]
    for i, (old, new) in enumerate((("[2, 2, 4]", "[4294967296, 4294967296]"), ("[2, 2, 4]", "[2, 2, 4, 1]"), ("[0, 64]", "[4, 68]"), ("[0, 64]", "[64, 0]"),
                                    ("F32", "F16"), ("feed", "beef"), ("values", "z"), ("[0, 64]", "[-1, 1e300]"), ('"importance"', "{}"), (": {", ": [{"))):
        text = header.strip().replace(old, new)
        text += " " * (-len(text) % 8)
        put("gates", f"bad{i}", struct.pack("<Q", len(text)) + text.encode() + data)


def head_tables():
    def tensors(unit, shape, value, name="budgets", dtype="F32"):
        text = json.dumps({"__metadata__": {"kvfate.unit": unit}, name: {"dtype": dtype, "shape": shape, "data_offsets": [0, 4 * len(value)]}})
        text += " " * (-len(text) % 8)
        return struct.pack("<Q", len(text)) + text.encode() + struct.pack(f"<{len(value)}f", *value)

    scores = {f"{layer}-{h}": [0.1 * h, 0, layer] for layer in range(2) for h in range(3)}
    seeds = {"entries": {"unit": "entries", "budgets": [[20, 22], [18, 24]]}, "fraction": {"unit": "fraction", "budgets": [[0.5, 1.5], [1, 2e-1]]},
             "headkv": scores, "razor": {"0": [1], "3": [0, 2]}, "razor_two": {"prefix_matching": {"1": [0, 1]}, "copying": {"0": [1], "1": [1]}}}
    for name, value in seeds.items():
        text = json.dumps(value).encode()
        put("head_table", name, text)
        put("head_table", f"{name}_cut", text[:-3])
        for i, (old, new) in enumerate(((b"2", b"-2"), (b"1", b"1e999"), (b"[", b"[null,"), (b"0", b"00"), (b"}", b', "x": 1}'))):
            put("head_table", f"{name}_bad{i}", text.replace(old, new, 1))
    put("head_table", "far", b'{"9999999-9999999": [1]}')
    put("head_table", "tensor", tensors("entries", [2, 2], [20, 22, 18, 24]))
    put("head_table", "pruned", tensors("pruned", [99, 1, 2], [i / 200 for i in range(198)]))
    put("head_table", "nan", tensors("fraction", [1, 2], [1, float("nan")]))
    put("head_table", "shape", tensors("pruned", [98, 1, 2], [0.5] * 196))
    put("head_table", "name", tensors("entries", [1, 1], [3], name="budget"))
    put("head_table", "half", tensors("entries", [1, 2], [3], dtype="F16"))
    put("head_table", "npy", b"\x93NUMPY\x01\x00")


def training():
    """Token caches of T = 8 and 256 ids with a key of zeros; foreign and truncated checkpoints."""
    def cache(n, ids, first, count=None, tokens=None):
        head = b"\x89KVFids\n" + struct.pack("<IIIIQQ", 1, 8, 256, 0, len(n) if count is None else count, len(ids) if tokens is None else tokens)
        return head + bytes(32) + struct.pack(f"<{len(n) + 2 * len(ids)}i", *n, *ids, *first)
    put("packs", "good", cache([5, 2], [1, 2, 3, 4, 255, 0, 9], [0, 0, 2, 2, 2, 0, 0]))
    for name, argv in {"id": ([2], [1, 256], [0, 0]), "negative": ([2], [1, -1], [0, 0]), "start": ([3], [1, 2, 3], [0, 0, 2]), "ahead": ([3], [1, 2, 3], [0, 2, 2]),
                       "long": ([9], [1] * 9, [0] * 9), "one": ([1, 2], [1, 1, 1], [0, 0, 0]), "sum": ([2], [1, 1, 1], [0, 0, 0]), "none": ([], [], []),
                       "count": ([2], [1, 1], [0, 0], 1 << 62), "tokens": ([2], [1, 1], [0, 0], 1, (1 << 63) + 2), "wrap": ([2], [1, 1], [0, 0], 5, 1 << 61)}.items():
        put("packs", name, cache(*argv))
    put("packs", "cut", cache([2], [1, 1], [0, 0])[:-4])
    put("packs", "short", cache([2], [1, 1], [0, 0])[:70])
    def checkpoint(meta, size=28):
        text = json.dumps({"__metadata__": meta, "v": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}, "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [4, 28]}})
        text += " " * (-len(text) % 8)
        return struct.pack("<Q", len(text)) + text.encode() + bytes(size)
    meta = {"format": "kvfate training 1", "step": "7", "hash": "0" * 32, "config": "lr=1\n", "log": "{}\n"}
    put("checkpoint", "hash", checkpoint(meta))
    put("checkpoint", "cut", checkpoint(meta, 20))
    for key in meta:
        put("checkpoint", "no_" + key, checkpoint({k: v for k, v in meta.items() if k != key}))
    put("checkpoint", "foreign", checkpoint({"layout": "rg"}))
    put("checkpoint", "empty", b"")  # checkpoint_write made "good"


def states():
    """States of a corpus of sparsity, without their checksum."""
    keys = ["kind", "layer", "index", "head"]
    def text(s):
        return struct.pack("<I", len(s)) + s
    def state(replicates=3, keys_=keys, types=b"siis", rows=((b"alpha", b"0", b"1", b"L0K1"), (b"alpha", b"1", b"0", b"L1K0")), documents=(5, 9), intervals=0, meta=True,
              counts=(2, 3, 99, 0), extra=b"", few=(5, 9)):
        lines = ['analysis="sparsity"', 'head=""', "tokens=0:-1", 'option.kind="alpha"', 'option.criterion="top64"', 'option.triangle="le"']
        lines += [f'key="{k}"' for k in keys_] + ["measure=sparsity:/", f'intervals="{["auto", "all", "none"][intervals]}"', f"replicates={replicates}", "seed=0"]
        out = b"\x89KVFsum\n" + struct.pack("<IIQI", 2, replicates, 0, intervals) + text(("\n".join(lines) + "\n").encode()) + types.ljust(16, b"\0")
        out += struct.pack("<qq6Q", 20, 30, *counts, 3, 1) + struct.pack("<Q", 2 * meta)
        if meta:
            out += text(b"kind") + b"\0" + text(b"alpha") + struct.pack("<Q", 3) + text(b"method") + b"\1" + text(b"") + struct.pack("<Q", 3)
        out += struct.pack("<Q", len(documents)) + b"".join(struct.pack("<QII", d, 1, 0) for d in documents)
        out += struct.pack("<Q", len(rows))
        for k, row in enumerate(rows):
            out += text(b"".join(f + b"\0" for f in row)) + bytes([intervals != 2]) + struct.pack("<4q", 2, k, 1 << 39, 2)
            out += b"" if intervals == 2 else struct.pack(f"<{3 * replicates}q", *range(3 * replicates))
            if intervals != 2 and replicates:  # the words of each document
                out += struct.pack("<8q", few[0], k, 1 << 38, 1, few[1], 0, 1 << 38, 1)
        return out + extra
    good = state()
    put("corpus", "good", good)
    for n in (0, 7, 12, 40, 200, 300, 420, len(good) - 1):
        put("corpus", f"cut{n}", good[:n])
    for name, options in {"none": dict(intervals=2), "every": dict(intervals=1), "empty": dict(rows=(), documents=(), types=b"", meta=False, counts=(0, 0, 0, 0)), "more": dict(extra=b"x"),
                          "twice": dict(rows=((b"a", b"0", b"0", b"h"),) * 2), "words": dict(rows=((b"a", b"x", b"0", b"h"),)), "short": dict(rows=((b"a", b"0"),)),
                          "documents": dict(documents=(9, 5)), "few": dict(few=(9, 5)), "types": dict(types=b"sizs"), "keys": dict(keys_=keys[:3]), "plain": dict(replicates=0), "order": dict(
                              rows=((b"z", b"007", b"1", b"L10K1"), (b"z", b"7", b"1", b"L2K10"), (b"", b"-3", b"99999999999999999999", b"L2K9")))}.items():
        put("corpus", name, state(**options))
    for name, at, value in (("replicates", 12, 1 << 31), ("much", 12, 10000), ("version", 8, 3), ("arguments", 28, 1 << 30)):
        data = bytearray(good)
        struct.pack_into("<I", data, at, value)
        put("corpus", name, bytes(data))
    for back in (8, 16, 24, 33, 100, 140, 180, 260, 300):
        data = bytearray(good)
        data[-back:len(data) - back + 8] = b"\xff" * 8
        put("corpus", f"large{back}", bytes(data))


def tables():
    """0: TSV; 1: JSON."""
    tsv = "# table: t\n# T: 64\nhead\thorizon\tx\tlow\thigh\nall\t16\t0.5\t0.4\tnan\nL0H1\t1\t-1e-3\tinf\t1\n"
    for i, s in enumerate((tsv, tsv[:-1], "c\n", "c\n\n", "a\ta\n", "\t\n", "# a\n", "# a: b\n", "a\n\\\\\\t\n", "a\n\\x\n", "a\n\\\n", "a\tb\n1\n", "a\n1\t2\n",
                           "a\n9223372036854775808\n", "a\n-\n1e\n.\n", "\t".join(f"c{k}" for k in range(300)) + "\n", "# table: a\n# table: b\n# k: \\q\nc\n1\n", "")):
        put("table", f"tsv{i}", b"\0" + s.encode())
    put("table", "tsv_bytes", b"\0a\n\xff\0\n")
    full = {"name": "t", "meta": {"T": "64", "n": 3}, "columns": [{"name": "a", "unit": "", "type": "int"}, {"name": "b", "type": "real"}, {"name": "c", "type": "str"}],
            "data": {"a": [1, 2], "b": [0.5, None], "c": ["x", ""]}}
    for i, change in enumerate(({}, {"data": {"a": [1], "b": [1, 2], "c": []}}, {"data": {"a": [None, 1], "b": [1, 2], "c": ["", 1]}}, {"columns": []}, {"columns": 1}, {"meta": [1]},
                                {"columns": [{"name": "a", "type": "f"}], "data": {"a": []}}, {"columns": [{"name": "a", "type": "int"}] * 2, "data": {"a": [], "b": []}},
                                {"name": 3, "meta": {"k": {"deep": 1}}}, {"columns": [{"type": "int"}], "data": {"": [1]}}, {"data": {"a": [1e300], "b": [True], "c": [[]]}})):
        put("table", f"json{i}", b"\1" + json.dumps({**full, **change}).encode())


def folders():
    """config.json, a NUL, and model.safetensors or the index of several files."""
    import hf_folder
    base = {"num_hidden_layers": 1, "hidden_size": 4, "intermediate_size": 4, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 16,
            "vocab_size": 2, "rms_norm_eps": 1e-5, "head_dim": 4, "tie_word_embeddings": True}
    own = {"llama": {}, "mistral": {"sliding_window": 8}, "qwen2": {}, "qwen3": {}, "smollm3": {"no_rope_layers": [1]}, "phi3": {"partial_rotary_factor": 0.5},
           "gemma2": {"sliding_window": 8, "layer_types": ["sliding_attention"], "query_pre_attn_scalar": 16}, "olmo2": {},
           "gemma3_text": {"rope_parameters": {k: {"rope_theta": 1e4} for k in ("full_attention", "sliding_attention")}},
           "granite": {"embedding_multiplier": 2, "attention_multiplier": 0.5, "residual_multiplier": 0.2, "logits_scaling": 8}}
    rows = {"embed_tokens": (2, 4), "layers.0.self_attn.q_proj": (8, 4), "layers.0.self_attn.k_proj": (4, 4), "layers.0.self_attn.v_proj": (4, 4),
            "layers.0.self_attn.o_proj": (4, 8), "layers.0.mlp.gate_proj": (4, 4), "layers.0.mlp.up_proj": (4, 4), "layers.0.mlp.down_proj": (4, 4),
            "layers.0.input_layernorm": (4,), "layers.0.post_attention_layernorm": (4,), "norm": (4,)}
    more = {"qwen2": {f"layers.0.self_attn.{k}_proj.bias": (n,) for k, n in (("q", 8), ("k", 4), ("v", 4))},
            "qwen3": {f"layers.0.self_attn.{k}_norm.weight": (4,) for k in "qk"}}
    for kind, keys in own.items():
        shapes = {**{k + ".weight": v for k, v in rows.items()}, **more.get(kind, {})}
        file = hf_folder.safetensors([("model." + k, list(v), "F32", struct.pack("<f", 0.5) * (v[0] * (v + (1,))[1])) for k, v in shapes.items()])
        put("folder", kind, json.dumps({**base, "model_type": kind, **keys}).encode() + b"\0" + file)
    for i, rope in enumerate(({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8},
                              {"type": "longrope", "short_factor": [1, 1], "long_factor": [2, 4], "original_max_position_embeddings": 8},
                              {"type": "yarn", "factor": 2}, {"type": "linear", "factor": 2})):
        put("folder", f"rope{i}", json.dumps({**base, "model_type": "llama", "rope_scaling": rope}).encode() + b"\0" + file)
    index = {"weight_map": {"model.norm.weight": "a.safetensors", "model.embed_tokens.weight": "../b.safetensors"}}
    put("folder", "index", json.dumps({**base, "model_type": "llama"}).encode() + b"\0" + json.dumps(index).encode())
    put("folder", "config_alone", json.dumps({**base, "model_type": "llama"}).encode())


def tokenizer_jsons():
    """tokenizer.json, a NUL, and a text."""
    mark = "\u2581"
    level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    split = lambda p: {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": p, "behavior": "Isolated"}, {**level, "use_regex": False}]}
    added = [{"id": 5, "content": "<s>", "special": True, "rstrip": True}, {"id": 6, "content": "xy", "lstrip": True}]
    bpe = {"type": "BPE", "vocab": {c: i for i, c in enumerate(["a", "b", "ab", "\u0120", mark])}, "merges": ["a b"]}
    plain = {"added_tokens": added, "normalizer": None, "pre_tokenizer": level, "model": bpe}
    post = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]}
    space = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": mark}, {"type": "Replace", "pattern": {"String": " "}, "content": mark}]}
    meta = {"type": "Metaspace", "replacement": mark, "prepend_scheme": "first", "split": True}
    unigram = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], [mark, -1.5], ["a", -2], [mark + "a", -2.5], ["<0x41>", -3]], "byte_fallback": True}
    cases = {"level": plain, "nfc": {**plain, "normalizer": {"type": "NFC"}}, "post": {**plain, "post_processor": {"type": "Sequence", "processors": [post]}},
             "pairs": {**plain, "model": {**bpe, "merges": [["a", "b"]], "ignore_merges": True}}, "digits": {**plain, "pre_tokenizer": {
                 "type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, level]}},
             "pieces": {**plain, "normalizer": space, "pre_tokenizer": None, "post_processor": post, "model": {**bpe, "byte_fallback": True, "unk_token": "b"}},
             "metaspace": {**plain, "pre_tokenizer": meta}, "unigram": {**plain, "added_tokens": [], "pre_tokenizer": meta, "model": unigram},
             "rules": {**plain, "added_tokens": [], "pre_tokenizer": meta, "model": unigram,
                       "normalizer": {"type": "Precompiled", "precompiled_charsmap": "CAAAAAAFAABoBQAAeAA="}}}
    for i, p in enumerate((r"\p{N}{1,3}", r"\s+$", r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\s+(?!\S)|\s+", r"[\u4e00-\u9fa5]+", r"(?<!a)b$")):
        cases[f"split{i}"] = {**plain, "pre_tokenizer": split({"Regex": p})}
    cases["literal"] = {**plain, "pre_tokenizer": split({"String": "a.b"})}
    for name, j in cases.items():
        put("tokenizer_json", name, json.dumps(j, ensure_ascii=len(name) % 2 == 0).encode() + b"\0" + "ab a\u0301<s>  xy 12 <unk>\u2581b\n".encode())


def prompts():
    """Files of prompts, valid and invalid lines."""
    good = [{"prompt": "hello"}, {"id": "b.2", "text": "\u00e9 \"x\"\n", "n": 5}, {"id": "c_3", "messages": [{"role": "user", "content": "hi"}], "seed": 7}, {"text": ""}]
    put("jsonl", "good", b"".join(json.dumps(x, ensure_ascii=i % 2 == 0).encode() + b"\n" for i, x in enumerate(good)))
    put("jsonl", "blank", b" \t\r\n" + json.dumps(good[1]).encode() + b"\r\n\n" + json.dumps(good[2]).encode())
    bad = [{"id": "..", "text": "a"}, {"id": "a/b", "text": "a"}, {"id": "x" * 101, "text": "a"}, {"id": 7, "text": "a"}, {"prompt": "a", "text": "b"}, {"n": 1},
           {"text": "a", "n": -1}, {"text": "a", "n": 1.5}, {"text": "a", "seed": 1e16}, {"text": "a", "what": 1}, {"messages": []}, {"messages": [{"role": "user"}]},
           {"text": "\0"}, {"text": 3}, ["a"]]
    for i, x in enumerate(bad):
        put("jsonl", f"bad{i}", json.dumps(good[0]).encode() + b"\n" + json.dumps(x).encode() + b"\n")
    put("jsonl", "twice", b'{"id":"a","text":"b"}\n{"id":"b","text":"b"}\n{"id":"a","text":"b"}\n')
    put("jsonl", "number", b'{"id":"000002","text":"b"}\n{"text":"b"}\n')
    put("jsonl", "escape", b'{"text":"\\\\u0000 \\u0001"}\n{"text":"\\u0000"}')


def pieces():
    """The length of tokenizer.model, the model, and a text."""
    import hf_folder
    import vocabularies
    f, mark = hf_folder.field, "\u2581".encode()
    text = "ab a\u0301<s>  ba 12 <unk>\u2581b\n".encode()
    base = [(b"<unk>", 0.0, 2), (b"<s>", 0.0, 3), (b"</s>", 0.0, 3), (mark, -1.0, 1), (b"a", -2.0, 1), (b"b", -3.0, 1), (b"ab", -.5, 1), (mark + b"a", -.25, 1), (b"<0x41>", 0.0, 6), (b"12", 0.0, 4)]

    def make(model, bos=1, rows=base, **more):
        g = vocabularies.Gguf().set("model", 8, model).set("bos_token_id", 4, bos).set("eos_token_id", 4, 2)
        for key, rank in (("tokens", 0), ("scores", 1), ("token_type", 2)):
            g.set(key, 8, [r[rank] for r in rows])
        for key, value in more.items():
            g.set(key, 4, value)
        return hf_folder.spm(g)
    rules = base64.b64decode("CAAAAAAFAABoBQAAeAA=")
    bytes_ = [(b"<0x%02X>" % i, 0.0, 6) for i in range(256)]
    cases = {"bpe": make(b"llama"), "unigram": make(b"t5"), "bytes": make(b"llama", rows=base[:8] + bytes_), "unigram_bytes": make(b"t5", rows=base[:8] + bytes_),
             "rules": make(b"t5", precompiled_charsmap=rules), "spaces": make(b"llama", remove_extra_whitespaces=True, add_space_prefix=False),
             "no_bos": make(b"llama", bos=-1), "far": make(b"t5", bos=1 << 40), "empty": b"", "words": make(b"t5") + f(2, f(3, 3)), "suffix": make(b"t5") + f(2, f(24, 1)),
             "bare": f(1, f(1, b"a")), "type": f(1, f(1, b"a") + f(3, 9)), "others": make(b"t5") + f(4, b"x") + b"\x29" + bytes(8) + f(7, 1 << 63), "group": make(b"t5") + b"\x0b",
             "long": b"\x0a\xff\xff\xff\xff\x0f", "cut": make(b"t5")[:-3]}
    for i, (name, data) in enumerate(cases.items()):
        put("tokenizer_model", name, struct.pack("<H", len(data)) + data + text + b"." * (i % 2))


random.seed(0)
folders()
pieces()
prompts()
tokenizer_jsons()
tables()
states()
training()
models()
gates()
head_tables()
texts()
vocabularies()
chats()
jsons()
options()
for target, files in corpora.items():
    write(target, files)
