#!/usr/bin/env python3
"""Write a tiny random model of one of the families as GGUF v3 (standard library and numpy only).

usage: gen_tiny.py [--layers 2] [--heads 4] [--kv-heads 2] [--head-dim 16] [--dim 64] [--ffn 96] [--vocab 300] [--seed 1] [--context 512]
                   [--type f32|f16|bf16|q8_0|q4_0|q4_1] [--rope-base 10000] [--untied] [--arch llama|qwen2|qwen3|phi3|gemma2|gemma3|olmo2|granite|smollm3]
                   [--eps 1e-5] [--window N] [--local-from N] [--rope factors|long|linear|yarn] [--original N] [--rotary N] -o FILE

Layout: the architectures of llama.cpp.  RoPE turns the pairs (2i, 2i+1) of each head in "llama", "granite" and "smollm3", (i, i+head_dim/2) in
the others, with the angle position * base^(-2i/head_dim), divided by a factor for each pair in the tensors of --rope factors (rope_freqs)
and --rope long (rope_factors_short, and rope_factors_long beyond --original tokens), or by 4 for all in --rope linear, or
with YaRN's ramp of 4 beyond --original tokens in --rope yarn.  --local-from lists the layers from N on as those with the window.
FAMILIES says what else a family has.  Norms are f32; with q4 types the embedding (and the output matrix) is q8_0.
Tokenizer: byte-level BPE ("gpt2", pre "smollm"): 3 control tokens, 256 bytes, then one token for each merge.

The same options give the same bytes on every platform: the numbers come from uniform draws of the frozen
MT19937 generator, only ever added and scaled.
"""
import argparse
import itertools
import math
import struct

import numpy as np

ALIGN = 32
U8, U16, U32, F32, BOOL, STRING, ARRAY, I32 = 0, 2, 4, 6, 7, 8, 9, 5  # GGUF value types used here
# name: (ggml type, general.file_type)
TYPES = {"f32": (0, 0), "f16": (1, 1), "q4_0": (2, 2), "q4_1": (3, 3), "q8_0": (8, 7), "bf16": (30, 32)}


# ---- tensor encodings: rows of float32 -> bytes

def blocks(x):
    if x.shape[-1] % 32:
        raise SystemExit("rows of quantised matrices must be multiples of 32")
    return x.reshape(-1, 32)


def scaled(x, d):
    """x / d by rows, 0 where d is 0"""
    inv = np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)
    return x * inv


def pack(head, body):
    return np.hstack([h.astype("<f2").view(np.uint8) for h in head] + [body.view(np.uint8)]).tobytes()


def nibbles(q):
    q = np.minimum(q, 15).astype(np.uint8)
    return q[:, :16] | (q[:, 16:] << 4)


def q8_0(x):
    x = blocks(x)
    d = np.abs(x).max(1, keepdims=True) / np.float32(127)
    return pack([d], np.rint(scaled(x, d)).astype(np.int8))


def q4_0(x):
    x = blocks(x)
    d = np.take_along_axis(x, np.abs(x).argmax(1)[:, None], 1) / np.float32(-8)
    return pack([d], nibbles(np.floor(scaled(x, d) + np.float32(8.5))))


def q4_1(x):
    x = blocks(x)
    low = x.min(1, keepdims=True)
    d = (x.max(1, keepdims=True) - low) / np.float32(15)
    return pack([d, low], nibbles(np.floor(scaled(x - low, d) + np.float32(0.5))))


def bf16(x):
    bits = x.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


ENCODE = {"f32": lambda x: x.astype("<f4").tobytes(), "f16": lambda x: x.astype("<f2").tobytes(), "bf16": bf16,
          "q8_0": q8_0, "q4_0": q4_0, "q4_1": q4_1}


# ---- tokenizer

WORDS = ["\u0120t", "he", "in", "re", "\u0120the", "on", "er", "\u0120a", "at", "ou", "\u0120in", "it", "is", "\u0120\u0120", "\u0120s", "en",
         "or", "ing", "th", "an", "the", "and", "\u010a\u010a", "\u0120an", "\u0120and", "\u0120is", "\u0120it", "==", "--", "\u00c3\u00a9"]


def byte_spelling():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = itertools.count(256)
    return [chr(b) if b in plain else chr(next(spare)) for b in range(256)]


def vocabulary(size):
    """(tokens, token types, merges)"""
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    types = [3] * len(tokens)
    tokens += sorted(byte_spelling())
    merges = []
    known = set(tokens)
    letters = "abcdefghijklmnopqrstuvwxyz"
    more = ("".join(p) for n in (2, 3) for p in itertools.product(letters, repeat=n))
    for word in itertools.chain(WORDS, more):
        if len(tokens) >= size:
            break
        cut = next((i for i in range(len(word) - 1, 0, -1) if word[:i] in known and word[i:] in known), None)
        if word in known or cut is None:
            continue
        tokens.append(word)
        known.add(word)
        merges.append(word[:cut] + " " + word[cut:])
    if len(tokens) != size:
        raise SystemExit("--vocab: from 259 to about 18000")
    return tokens, types + [1] * (size - len(types)), merges


# ---- GGUF

def string(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def value(kind, v):
    if kind == STRING:
        return string(v)
    return struct.pack({U8: "<B", U16: "<H", U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], v)


def entry(key, kind, v):
    if isinstance(v, list):
        return string(key) + struct.pack("<IIQ", ARRAY, kind, len(v)) + b"".join(value(kind, x) for x in v)
    return string(key) + struct.pack("<I", kind) + value(kind, v)


def pad(n):
    return -n % ALIGN


def write(path, metadata, tensors):
    """tensors: (name, shape with rows first, ggml type, bytes)"""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(entry(*m) for m in metadata)
    offset = 0
    for name, shape, kind, data in tensors:
        head += string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        head += struct.pack("<IQ", kind, offset)
        offset += len(data) + pad(len(data))
    with open(path, "wb") as f:
        f.write(head + bytes(pad(len(head))))
        for _, _, _, data in tensors:
            f.write(data + bytes(pad(len(data))))


# ---- model

class Draw:
    def __init__(self, seed):
        self.rng = np.random.RandomState(seed)

    def matrix(self, rows, cols, gain):
        """nearly normal, standard deviation gain / sqrt(cols)"""
        u = self.rng.random_sample((4, rows, cols))
        x = (u[0] + u[1] + u[2] + u[3] - 2.0) * math.sqrt(3.0)
        return (x * (gain / math.sqrt(cols))).astype(np.float32)

    def norm(self, n):
        return (0.7 + 0.6 * self.rng.random_sample(n)).astype(np.float32)


# What sets a family apart: RMSNorms before and behind the branches, norms over each head of queries and keys or over "all" of them, biases,
# fused tensors, the length of embeddings, and keys of the file.  Their numbers are such that random weights of this size notice them.
FAMILIES = {
    "llama": {"before": True}, "qwen2": {"before": True, "bias": True}, "qwen3": {"before": True, "qk": "head"},
    "phi3": {"before": True, "fused": True},
    "gemma2": {"before": True, "behind": True, "embedding": .5, "keys": {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 12.0}},
    "gemma3": {"before": True, "behind": True, "qk": "head", "embedding": .5},
    "olmo2": {"behind": True, "qk": "all"},
    "granite": {"before": True, "keys": {"embedding_scale": 3.0, "residual_scale": .4, "logit_scale": 2.0, "attention.scale": .125}},
    "smollm3": {"before": True},
}


def layer(a, draw):
    """(name, float32 array) of the weights of a layer; queries and keys are drawn larger than values"""
    family, q, kv = FAMILIES[a.arch], a.heads * a.head_dim, a.kv_heads * a.head_dim
    if family.get("before"):
        yield "attn_norm", draw.norm(a.dim)
    qkv = [("attn_q", draw.matrix(q, a.dim, 1.5)), ("attn_k", draw.matrix(kv, a.dim, 1.5)), ("attn_v", draw.matrix(kv, a.dim, 1.0))]
    yield from [("attn_qkv", np.vstack([x for _, x in qkv]))] if family.get("fused") else qkv
    yield "attn_output", draw.matrix(a.dim, q, 1.0)
    if family.get("behind"):
        yield "post_attention_norm", draw.norm(a.dim)
    if family.get("before"):
        yield "ffn_norm", draw.norm(a.dim)
    wide = [("ffn_gate", draw.matrix(a.ffn, a.dim, 1.5)), ("ffn_up", draw.matrix(a.ffn, a.dim, 1.5))]
    yield from [("ffn_up", np.vstack([x for _, x in wide]))] if family.get("fused") else wide
    yield "ffn_down", draw.matrix(a.dim, a.ffn, 1.0)
    if family.get("behind"):
        yield "post_ffw_norm", draw.norm(a.dim)
    if family.get("qk"):
        for name, heads in (("q", a.heads), ("k", a.kv_heads)):
            yield f"attn_{name}_norm", draw.norm(a.head_dim * (heads if family["qk"] == "all" else 1))


def rotary(a):
    """channels of a head that RoPE turns"""
    return getattr(a, "rotary", 0) or a.head_dim


def rope_tensors(a, draw):
    rope, pairs = getattr(a, "rope", "plain"), rotary(a) // 2
    if rope == "factors":
        yield "rope_freqs.weight", (1 + 7 * draw.rng.random_sample(pairs)).astype(np.float32)
    if rope == "long":
        yield "rope_factors_long.weight", (1 + 7 * draw.rng.random_sample(pairs)).astype(np.float32)
        yield "rope_factors_short.weight", (1 + draw.rng.random_sample(pairs)).astype(np.float32)


def model(a):
    """(name, float32 array) in file order"""
    draw, q, kv = Draw(a.seed), a.heads * a.head_dim, a.kv_heads * a.head_dim
    family = FAMILIES[a.arch]
    yield "token_embd.weight", draw.matrix(a.vocab, a.dim, 4.0 * family.get("embedding", 1))
    for i in range(a.layers):
        for name, x in layer(a, draw):
            yield f"blk.{i}.{name}.weight", x
        if family.get("bias") or getattr(a, "biases", False):
            for name, n in (("q", q), ("k", kv), ("v", kv)):
                yield f"blk.{i}.attn_{name}.bias", draw.matrix(1, n, math.sqrt(n))[0]
        if getattr(a, "biases", False):
            for name, n in (("attn_output", a.dim), ("ffn_gate", a.ffn), ("ffn_up", a.ffn), ("ffn_down", a.dim)):
                yield f"blk.{i}.{name}.bias", draw.matrix(1, n, math.sqrt(n))[0]
        if getattr(a, "sinks", False):
            yield f"blk.{i}.attn_sinks.weight", 3 + draw.matrix(1, a.heads, 2 * math.sqrt(a.heads))[0]
    yield "output_norm.weight", draw.norm(a.dim)
    if a.untied:
        yield "output.weight", draw.matrix(a.vocab, a.dim, 4.0)
    yield from rope_tensors(a, draw)


def extra_keys(a):
    """Keys that only some families, and only some options, have."""
    keys = [(f"{a.arch}.{name}", F32, x) for name, x in FAMILIES[a.arch].get("keys", {}).items()]
    rope = getattr(a, "rope", "plain")
    if getattr(a, "window", 0):
        keys.append((a.arch + ".attention.sliding_window", U32, a.window))
    if getattr(a, "local_from", -1) >= 0:
        keys.append((a.arch + ".attention.sliding_window_pattern", BOOL, [i >= a.local_from for i in range(a.layers)]))
    if rope == "yarn":
        keys += [(a.arch + ".rope.scaling.type", STRING, "yarn"), (a.arch + ".rope.scaling.factor", F32, 4.0),
                 (a.arch + ".rope.scaling.original_context_length", U32, a.original)]
    if rope == "linear":
        keys += [(a.arch + ".rope.scaling.type", STRING, "linear"), (a.arch + ".rope.scaling.factor", F32, 4.0)]
    if rope == "long":
        keys += [(a.arch + ".rope.scaling.original_context_length", U32, a.original), (a.arch + ".rope.scaling.attn_factor", F32, 1.19)]
    return keys


def metadata(a):
    tokens, types, merges = vocabulary(a.vocab)
    return [
        ("general.architecture", STRING, a.arch),
        ("general.name", STRING, "tiny random " + a.arch),
        ("general.alignment", U32, ALIGN),
        ("general.file_type", U32, TYPES[a.type][1]),
        ("general.quantization_version", U32, 2),
        (a.arch + ".block_count", U32, a.layers),
        (a.arch + ".context_length", U32, getattr(a, "context", 512)),
        (a.arch + ".embedding_length", U32, a.dim),
        (a.arch + ".feed_forward_length", U32, a.ffn),
        (a.arch + ".attention.head_count", U32, a.heads),
        (a.arch + ".attention.head_count_kv", U32, a.kv_heads),
        (a.arch + ".attention.key_length", U32, a.head_dim),
        (a.arch + ".attention.value_length", U32, a.head_dim),
        (a.arch + ".attention.layer_norm_rms_epsilon", F32, a.eps),
        (a.arch + ".rope.dimension_count", U32, rotary(a)),
        (a.arch + ".rope.freq_base", F32, a.rope_base),
        (a.arch + ".vocab_size", U32, a.vocab),
        *extra_keys(a),
        ("tokenizer.ggml.model", STRING, "gpt2"),
        ("tokenizer.ggml.pre", STRING, "smollm"),
        ("tokenizer.ggml.tokens", STRING, tokens),
        ("tokenizer.ggml.token_type", I32, types),
        ("tokenizer.ggml.merges", STRING, merges),
        ("tokenizer.ggml.bos_token_id", U32, 1),
        ("tokenizer.ggml.eos_token_id", U32, 2),
        ("tokenizer.ggml.unknown_token_id", U32, 0),
        ("tokenizer.ggml.padding_token_id", U32, 2),
        ("tokenizer.ggml.add_bos_token", BOOL, False),
        ("tokenizer.ggml.add_space_prefix", BOOL, False),
        ("tokenizer.chat_template", STRING, "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}"
         "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"),
    ]


def tensor_type(name, x, kind):
    if x.ndim == 1:
        return "f32"
    if kind in ("q4_0", "q4_1") and name in ("token_embd.weight", "output.weight"):
        return "q8_0"
    return kind


def main(words=None):
    ap = argparse.ArgumentParser(description="write a tiny random model as GGUF")
    for name, default in (("layers", 2), ("heads", 4), ("kv-heads", 2), ("head-dim", 16), ("dim", 64), ("ffn", 96), ("vocab", 300), ("seed", 1), ("context", 512), ("window", 0),
                          ("original", 0), ("rotary", 0), ("local-from", -1)):
        ap.add_argument("--" + name, type=int, default=default)
    ap.add_argument("--type", choices=TYPES, default="f32")
    ap.add_argument("--rope-base", type=float, default=10000.0)
    ap.add_argument("--arch", choices=FAMILIES, default="llama")
    ap.add_argument("--rope", choices=["plain", "factors", "long", "linear", "yarn"], default="plain")
    ap.add_argument("--eps", type=float, default=1e-5)
    ap.add_argument("--untied", action="store_true", help="an output matrix of its own")
    ap.add_argument("--sinks", action="store_true", help="one more logit in the softmax of each head")
    ap.add_argument("--biases", action="store_true", help="biases of all projections")
    ap.add_argument("-o", required=True, metavar="FILE")
    a = ap.parse_args(words)
    if a.heads % a.kv_heads or a.head_dim % 2:
        raise SystemExit("--heads must be a multiple of --kv-heads, --head-dim even")

    tensors = []
    for name, x in model(a):
        kind = tensor_type(name, x, a.type)
        tensors.append((name, x.shape, TYPES[kind][0], ENCODE[kind](x)))
    write(a.o, metadata(a), tensors)


if __name__ == "__main__":
    main()
