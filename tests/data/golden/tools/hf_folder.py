#!/usr/bin/env python3
"""Write a GGUF file's model as a folder of the transformers library (standard library and numpy only).

usage: hf_folder.py [--shards 1] MODEL.gguf FOLDER

Tensors keep their type (F32, F16, BF16) and bytes, but for the rows of queries and keys of "llama", which GGUF has in pairs (2j, 2j + 1)
of channels and a folder in halves (j, j + head_dim/2), and for the norms of Gemma, 1 + w in GGUF and w in a folder.  Byte-level
vocabularies become a tokenizer.json of their own; those of SentencePiece become BPE by merges, all pairs that make a token, best token first.
"""
import argparse
import json
import os
import struct
from pathlib import Path

import numpy as np

from vocabularies import BYTE, CONTROL, USER, Gguf

DTYPES = {0: ("F32", 4), 1: ("F16", 2), 30: ("BF16", 2)}
RENAMED = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
           "attn_qkv": "self_attn.qkv_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj",
           "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
           "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
WINDOWED = {**RENAMED, "ffn_norm": "pre_feedforward_layernorm", "post_attention_norm": "post_attention_layernorm",
            "post_ffw_norm": "post_feedforward_layernorm"}
TYPES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "smollm3": "smollm3", "phi3": "phi3", "gemma2": "gemma2",
         "gemma3": "gemma3_text", "olmo2": "olmo2", "granite": "granite"}
PAIRS = ("llama", "smollm3", "granite")
KEYS = {"block_count": "num_hidden_layers", "embedding_length": "hidden_size", "feed_forward_length": "intermediate_size",
        "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads", "context_length": "max_position_embeddings",
        "vocab_size": "vocab_size", "attention.key_length": "head_dim", "attention.layer_norm_rms_epsilon": "rms_norm_eps",
        "rope.freq_base": "rope_theta", "rope.freq_base_swa": "rope_local_base_freq", "attention.sliding_window": "sliding_window",
        "attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping", "embedding_scale": "embedding_multiplier",
        "residual_scale": "residual_multiplier", "logit_scale": "logits_scaling"}
PRE = {"smollm": {"type": "Sequence", "pretokenizers": [
    {"type": "Digits", "individual_digits": True},
    {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]}}


def read_tensors(path):
    """(name, dimensions with rows first, ggml type, bytes) in the order of the file."""
    b = Path(path).read_bytes()
    n_tensors, n_keys = struct.unpack_from("<QQ", b, 8)
    at, out = 24, []

    def take(form):
        nonlocal at
        v, = struct.unpack_from("<" + form, b, at)
        at += struct.calcsize("<" + form)
        return v

    def text():
        nonlocal at
        n = take("Q")
        at += n
        return b[at - n:at].decode()

    def skip(kind):
        nonlocal at
        if kind == 8:
            text()
        elif kind == 9:
            element, n = take("I"), take("Q")
            for _ in range(n):
                skip(element)
        else:
            at += {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}[kind]
    for _ in range(n_keys):
        text()
        skip(take("I"))
    for _ in range(n_tensors):
        name = text()
        dims = [take("Q") for _ in range(take("I"))][::-1]
        out.append((name, dims, take("I"), take("Q")))
    start = at + -at % 32
    return [(name, dims, kind, b[start + offset:start + offset + int(np.prod(dims)) * DTYPES[kind][1]]) for name, dims, kind, offset in out]


def halves(data, dims, heads):
    """The rows of each head, or the elements of a bias: even channels first, then odd ones."""
    rows = np.frombuffer(data, np.uint8).reshape(dims[0], -1)
    width = dims[0] // heads
    return rows.reshape(heads, width // 2, 2, -1).transpose(0, 2, 1, 3).tobytes()


def hf_tensors(arch, get, tensors):
    names = WINDOWED if arch in ("gemma2", "gemma3", "olmo2") else RENAMED
    names = {**names, "ffn_up": "mlp.gate_up_proj"} if arch == "phi3" else names
    for name, dims, kind, data in tensors:
        if name.startswith("rope_f"):
            continue
        stem, end = name.rsplit(".", 1)
        layer = stem.split(".")[1] if stem.startswith("blk.") else None
        what = stem.split(".", 2)[2] if layer else stem
        if arch in PAIRS and what in ("attn_q", "attn_k"):
            data = halves(data, dims, get("attention.head_count" if what == "attn_q" else "attention.head_count_kv"))
        if arch.startswith("gemma") and what.endswith("_norm"):
            data = (np.frombuffer(data, np.float32) - np.float32(1)).tobytes()
        yield (f"model.layers.{layer}." if layer else "") + names[what] + "." + end, dims, DTYPES[kind][0], data


def safetensors(tensors):
    head, at = {"__metadata__": {"format": "pt"}}, 0
    for name, dims, dtype, data in tensors:
        head[name] = {"dtype": dtype, "shape": dims, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(t[3] for t in tensors)


def write_weights(folder, tensors, shards):
    tensors = list(tensors)
    if shards == 1:
        files = {"model.safetensors": tensors}
    else:
        files = {f"model-{i + 1:05d}-of-{shards:05d}.safetensors": tensors[i::shards] for i in range(shards)}
        index = {"metadata": {"total_size": sum(len(t[3]) for t in tensors)}, "weight_map": {t[0]: f for f, part in files.items() for t in part}}
        write_json(folder, "model.safetensors.index.json", index)
    for name, part in files.items():
        Path(os.path.join(folder, name)).write_bytes(safetensors(part))


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w") as f:
        json.dump(value, f, indent=2, ensure_ascii=False)
        f.write("\n")


def all_pairs(tokens, scores, kinds):
    """The merges of a SentencePiece vocabulary as the transformers library derives them: every way to make a token of two others, the token of
    the best score first, and of equal ones the first ids of the parts."""
    known = {t: i for i, t in enumerate(tokens)}
    merges = []
    for token, score in zip(tokens, scores):
        cuts = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in known and token[i:] in known]
        merges += [(-score, known[a], known[b], a, b) for a, b in cuts]
    return [[a, b] for _, _, _, a, b in sorted(merges, key=lambda m: m[0])]


def added(tokens, kinds):
    return [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": kinds[i] == CONTROL}
            for i, t in enumerate(tokens) if kinds[i] in (CONTROL, USER)]


def start_first(mark, id):
    """The post-processor of a tokenizer.json that adds a start mark before each text."""
    return {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": mark, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {mark: {"id": mark, "ids": [id], "tokens": [mark]}}}


def add_start(folder):
    """Makes the tokenizer of a folder add its start mark, as published folders do."""
    made = {}
    for name in ("tokenizer.json", "tokenizer_config.json"):
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            made[name] = json.load(f)
    mark = made["tokenizer_config.json"]["bos_token"]
    made["tokenizer.json"]["post_processor"] = start_first(mark, next(t["id"] for t in made["tokenizer.json"]["added_tokens"] if t["content"] == mark))
    made["tokenizer_config.json"]["add_bos_token"] = True
    for name, value in made.items():
        write_json(folder, name, value)


def tokenizer(g):
    """tokenizer.json of a vocabulary in GGUF."""
    tokens = [t.decode() for t in g.get("tokens")]
    kinds = g.get("token_type")
    out = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added(tokens, kinds), "normalizer": None}
    if g.get("model") == b"gpt2":
        out["pre_tokenizer"] = PRE[g.get("pre").decode()]
        vocab = {t: i for i, t in enumerate(tokens)}
        merges = [m.decode() for m in g.get("merges")]
        more = {"unk_token": None, "byte_fallback": False}
        out["decoder"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    else:
        prefix = [{"type": "Prepend", "prepend": "\u2581"}] if g.get("add_space_prefix", True) else []
        out["normalizer"] = {"type": "Sequence", "normalizers": prefix + [{"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}
        out["pre_tokenizer"] = None
        out["post_processor"] = start_first(tokens[g.get("bos_token_id", 1)], g.get("bos_token_id", 1))
        vocab = {t: i for i, t in enumerate(tokens)}
        unknown = tokens[g.get("unknown_token_id", 0)]
        merges = all_pairs(tokens, g.get("scores"), kinds)
        more = {"unk_token": unknown, "fuse_unk": True, "byte_fallback": BYTE in kinds}
        if unknown not in [t["content"] for t in out["added_tokens"]]:
            out["added_tokens"].append({"id": vocab[unknown], "content": unknown, "single_word": False, "lstrip": False, "rstrip": False,
                                        "normalized": False, "special": True})
    out["model"] = {"type": "BPE", "dropout": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, **more, "ignore_merges": False,
                    "vocab": vocab, "merges": merges}
    return out


def config(arch, get, tensors):
    names = {t[0] for t in tensors}
    out = {"model_type": TYPES[arch], "tie_word_embeddings": "output.weight" not in names, "vocab_size": next(t[1][0] for t in tensors if t[0] == "token_embd.weight")}
    for key, name in KEYS.items():
        v = get(key)
        if v is not None:
            out[name] = v
    out.setdefault("head_dim", out["hidden_size"] // out["num_attention_heads"])
    if arch == "olmo2" and get("attention.sliding_window"):
        out["model_type"] = "olmo3"
    if arch in ("qwen2", "qwen3") and get("attention.sliding_window"):  # the first layer of the list and those behind it
        out.update(use_sliding_window=True, max_window_layers=get("attention.sliding_window_pattern").index(True))
    if arch == "granite":
        out["attention_multiplier"] = get("attention.scale")
    if arch.startswith("gemma"):
        out.update(query_pre_attn_scalar=out["head_dim"], hidden_activation="gelu_pytorch_tanh")
    return {**out, **rotations(get, {t[0]: t[3] for t in tensors}, out["head_dim"])}


def rotations(get, data, head_dim):
    """What config.json says of scaled positions; the factors of "rope_freqs" follow from a formula there and are left out."""
    if get("rope.scaling.type") == b"linear":
        return {"rope_scaling": {"rope_type": "linear", "factor": get("rope.scaling.factor")}}
    if get("rope.scaling.type") == b"yarn":
        return {"rope_scaling": {"rope_type": "yarn", "factor": get("rope.scaling.factor"),
                                 "original_max_position_embeddings": get("rope.scaling.original_context_length")}}
    if "rope_factors_long.weight" not in data:
        return {}
    factors = {f"{n}_factor": np.frombuffer(data[f"rope_factors_{n}.weight"], np.float32).tolist() for n in ("long", "short")}
    return {"rope_scaling": {"type": "longrope", "attention_factor": get("rope.scaling.attn_factor"), **factors},
            "original_max_position_embeddings": get("rope.scaling.original_context_length"),
            "partial_rotary_factor": get("rope.dimension_count") / head_dim}


def write(gguf, folder, shards=1, **changes):
    """changes: of config.json"""
    g, tensors = Gguf.read(gguf), read_tensors(gguf)
    arch = g.data["general.architecture"][1].decode()
    get = lambda key: g.data.get(f"{arch}.{key}", (0, None))[1]
    os.makedirs(folder, exist_ok=True)
    write_weights(folder, hf_tensors(arch, get, tensors), shards)
    write_json(folder, "config.json", {**config(arch, get, tensors), **changes})
    write_json(folder, "tokenizer.json", tokenizer(g))
    tokens = [t.decode() for t in g.get("tokens")]
    named = {k: tokens[g.get(k + "_id")] for k in ("bos_token", "eos_token") if g.get(k + "_id") is not None}
    template = g.data.get("tokenizer.chat_template")
    more = {"chat_template": template[1].decode()} if template else {}
    write_json(folder, "tokenizer_config.json", {**named, **more, **({} if g.get("add_bos_token") is None else {"add_bos_token": g.get("add_bos_token")})})
    write_json(folder, "generation_config.json", {"eos_token_id": g.get("eos_token_id", 0)})


def write_tokenizer(folder, text, vocab_size, name="tokenizer.json"):
    """A folder whose tokenizer works and whose weights are one number: for comparisons of tokens.  text: str, or bytes of tokenizer.model"""
    os.makedirs(folder, exist_ok=True)
    write_weights(folder, [("model.embed_tokens.weight", [1, 1], "F32", bytes(4))], 1)
    write_json(folder, "config.json", {"model_type": "llama", "tie_word_embeddings": True, "vocab_size": vocab_size, "num_hidden_layers": 1, "hidden_size": 2,
                                       "intermediate_size": 1, "num_attention_heads": 1, "max_position_embeddings": 1, "rms_norm_eps": 1e-6})
    Path(os.path.join(folder, name)).write_bytes(text if isinstance(text, bytes) else text.encode())


# ---- tokenizer.model: a message of Protocol Buffers

def varint(v):
    out = b""
    v &= (1 << 64) - 1
    while v > 127:
        out += bytes([v & 127 | 128])
        v >>= 7
    return out + bytes([v])


def field(number, value):
    """A number, a float, or bytes."""
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3 | 2) + varint(len(value)) + value if isinstance(value, bytes) else varint(number << 3) + varint(value)


def spm(g):
    """tokenizer.model of a SentencePiece vocabulary in GGUF."""
    out = b""
    for token, score, kind in zip(g.get("tokens"), g.get("scores"), g.get("token_type")):
        out += field(1, field(1, token) + field(2, float(score)) + (b"" if kind == 1 else field(3, kind)))
    ids = [(number, g.get(key + "_token_id", 0)) for number, key in ((40, "unknown"), (41, "bos"), (42, "eos"))]
    out += field(2, field(3, 2 if g.get("model") == b"llama" else 1) + b"".join(field(*x) for x in ids))
    rules = bytes(g.get("precompiled_charsmap", []))
    spaces = [(3, g.get("add_space_prefix", True)), (4, g.get("remove_extra_whitespaces", False))]
    return out + field(3, field(1, b"x") + field(2, rules) + b"".join(field(n, int(v)) for n, v in spaces))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--shards", type=int, default=1)
    ap.add_argument("gguf")
    ap.add_argument("folder")
    args = ap.parse_args()
    write(args.gguf, args.folder, args.shards)


if __name__ == "__main__":
    main()
