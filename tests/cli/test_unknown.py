#!/usr/bin/env python3
"""A model file with an unknown tensor or key is rejected by that name, whatever its value. A number
has the same meaning in every stored type. Keys without an effect are accepted."""
import json
import os
import struct

import numpy as np
import unknown_parts
from harness import Gguf, Suite

s = Suite()
import gen_tiny  # noqa: E402  (harness puts its folder on the path)
import hf_folder  # noqa: E402

IDS = s.file("ids.txt", " ".join(str(i * 37 % 297 + 3) for i in range(60)).encode())
plain_value = gen_tiny.value
WIDE = {1: "<b", 3: "<h", 10: "<Q", 11: "<q", 12: "<d"}
gen_tiny.value = lambda kind, v: struct.pack(WIDE[kind], v) if kind in WIDE else plain_value(kind, v)


def logits(model, *more):
    return ["generate", "--logits", "-m", model, "--ids", IDS, "--exact", "-t", "1", "-o", s.path("x.npy"), *more]


def bytes_of(name, model):
    s.accepted(name, logits(model))
    return np.load(s.path("x.npy"))


refused = 0
for key, arch, file, meant in unknown_parts.cases(Gguf):
    path = file.write(s.path("m.gguf"))
    if meant is None:
        s.refused(f"{arch}: {key}", logits(path), 1, path, key)
        s.refused(f"{arch}: {key}: models", ["models", path], 1, path, key)
        refused += 1
    else:
        got, want = bytes_of(f"{arch}: {key}", path), bytes_of(f"{arch}: meaning of {key}", meant.write(s.path("n.gguf")))
        s.check(f"{arch}: {key} is read right", (got == want).all())
s.check("files that are refused", refused > 60, refused)

# ---- the result differs from a file without the key
for arch, name, kind, value, meant in unknown_parts.MEANT:
    if not meant:
        continue
    got = bytes_of(name, unknown_parts.plain(Gguf, arch, meant).write(s.path("m.gguf")))
    s.check(f"{arch}: {name} matters", np.abs(got - bytes_of(arch, unknown_parts.plain(Gguf, arch).write(s.path("n.gguf")))).max() > 1e-2)

# ---- a cap of Gemma 3's logits, by its equation, in a file and in a folder
plain = unknown_parts.plain(Gguf, "gemma3").write(s.path("m.gguf"))
want = 3 * np.tanh(bytes_of("gemma3", plain).astype(np.float64) / 3)
capped = unknown_parts.plain(Gguf, "gemma3", {"final_logit_softcapping": (6, 3.0)}).write(s.path("n.gguf"))
s.check("gemma3: capped logits", np.abs(bytes_of("gemma3: cap", capped) - want).max() < 1e-5)
hf_folder.write(plain, s.path("f"), final_logit_softcapping=3.0)
s.check("gemma3: the cap of a folder", (bytes_of("a folder's cap", s.path("f")) == bytes_of("a file's cap", capped)).all())
hf_folder.write(plain, s.path("f"), attn_logit_softcapping=3.0)
s.refused("gemma3: capped scores", logits(s.path("f")), 1, "config.json", "attn_logit_softcapping")

# ---- a duplicate key, contradicting keys
g = Gguf()
g.metadata.append(["llama.rope.freq_base", 6, 500.0])
s.refused("a key twice", logits(g.write(s.path("m.gguf"))), 1, "llama.rope.freq_base", "twice")
g = Gguf().set("llama.rope.scale_linear", 2.0, 6).set("llama.rope.scaling.factor", 4.0, 6)
s.refused("two factors", logits(g.write(s.path("m.gguf"))), 1, "rope.scaling.factor", "rope.scale_linear")
g = Gguf().drop("llama.attention.layer_norm_rms_epsilon")
s.refused("no epsilon", logits(g.write(s.path("m.gguf"))), 1, "epsilon")
g = Gguf()
g.set("tokenizer.ggml.token_type", g.get("tokenizer.ggml.token_type")[:-1])
s.refused("types of fewer tokens", logits(g.write(s.path("m.gguf"))), 1, "tokenizer.ggml.token_type", "299", "300")

# ---- folders: config.json
hf_folder.write(s.model(), s.path("f"))
with open(s.path("f/config.json")) as f:
    config = json.load(f)
for change, words in (({"is_causal": False}, ("is_causal",)),
                      ({"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}, "sliding_attention": {"rope_type": "linear", "factor": 2.0}}},
                       ("layers with a window", "linear"))):
    hf_folder.write_json(s.path("f"), "config.json", {**config, **change})
    s.refused(f"config.json with {change}", logits(s.path("f")), 1, "config.json", *words)

# ---- linear scaling: a longer context may be requested, or is reported
LONG = s.file("long.txt", " ".join(str(i * 37 % 297 + 3) for i in range(700)).encode())


def over(model, *more):
    return ["run", "-m", model, "--ids", LONG, "-n", "2", "-q", "--overwrite", "-t", "1", "-o", s.path("x.kvf"), *more]


linear = Gguf().set("llama.rope.scaling.type", "linear", 8).set("llama.rope.scaling.factor", 4.0, 6)
path = linear.write(s.path("m.gguf"))
s.refused("a linear file's own context", over(path), 1, "700", "512", "-c")
s.accepted("a longer one", over(path, "-c", "2048"))
s.refused("without scaling", over(Gguf().write(s.path("n.gguf")), "-c", "2048"), 2, "2048", "512", "--rope-scale")
s.accepted("the plan of a long run", ["trace", "plan", s.path("x.kvf"), "-o", s.path("x.plan"), "--overwrite"])
s.accepted("again", ["run", "-m", path, "--plan", s.path("x.plan"), "-c", "2048", "-q", "--overwrite", "-t", "1", "-o", s.path("y.kvf")])
linear.set("llama.rope.scaling.original_context_length", 512, 4)
s.accepted("a length that is told", over(linear.write(s.path("m.gguf"))))
hf_folder.write(path, s.path("g"))
for change in ({"rope_scaling": {"rope_type": "linear", "factor": 4.0, "original_max_position_embeddings": 512}},
               {"rope_scaling": {"type": "linear", "factor": 4.0}, "max_sequence_length": 2048}):
    hf_folder.write(Gguf().write(s.path("n.gguf")), s.path("g"), **change)
    s.accepted(f"config.json with {change}", over(s.path("g")))
hf_folder.write(Gguf().write(s.path("n.gguf")), s.path("g"), rope_scaling={"type": "linear", "factor": 4.0})
s.refused("a folder's own context", over(s.path("g")), 1, "700", "512", "-c")
s.accepted("a folder's longer one", over(s.path("g"), "-c", "2048"))
s.finish()
