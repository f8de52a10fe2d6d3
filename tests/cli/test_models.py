#!/usr/bin/env python3
"""kvfate models: the supported models are those of the goldens and the code, and its numbers about
a model are recounted here."""
import json
import math
import os
import re
import resource
import subprocess
import sys
import time

from harness import Gguf, Suite

s = Suite()
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
GIB = 1 << 30


def ask(*args, **more):
    return s.accepted(" ".join(args), ["models", *args], **more).stdout.decode()


# Bits per weight in memory, by the type in the file: a block of 32 weights, or of 256 for the K types, with its scales.
BITS = {"F32": 32, "F16": 16, "BF16": 16, "Q8_0": 8.5, "IQ4_NL": 8.5, "IQ4_XS": 8.3125, "Q6_K": 6.5625, "Q5_1": 6, "Q5_K": 5.625, "Q5_0": 5.5,
        "Q2_K": 5.125, "Q4_1": 5, "Q4_K": 4.625, "Q3_K": 4.5625, "Q4_0": 4.5}


# All supported models.
known, text = json.loads(ask("--json")), ask()
for f in known["families"]:
    s.check(f["arch"] + ": in the text", re.search(rf"^  {f['arch']} +{re.escape(f['models'])}$", text, re.M))
s.check("families", {"llama", "qwen2", "qwen3", "phi3", "gemma2", "gemma3", "olmo2", "granite", "smollm3"}
        <= {f["arch"] for f in known["families"]})
s.check("refused", known["refused"]["mamba"] == "recurrent layers" and "mamba2" in text and not
        set(known["refused"]) & {f["arch"] for f in known["families"]})
for t in known["types"]:
    s.check(t["name"] + ": bits in memory", math.isclose(t["bits_in_memory"], BITS[t["name"]]), t, BITS[t["name"]])
s.check("Q4_K", next(t for t in known["types"] if t["name"] == "Q4_K")["bits_in_file"] == 4.5)
s.check("tokenizers", set(known["tokenizers"]) == {"gpt2", "llama", "t5"} and {"llama-bpe", "qwen2", "tekken"} <= set(known["pre_tokenizers"]))
s.check("no line is long", max(map(len, text.splitlines())) <= 105, max(text.splitlines(), key=len))


# Large shapes: a file with holes is answered quickly and in little memory.
def limits():
    resource.setrlimit(resource.RLIMIT_AS, (12 * GIB, 12 * GIB))


def large(shape, ffn, rows, gates, none):
    path = s.path(shape + ".gguf")
    subprocess.run([sys.executable, os.path.join(DATA, "gen_large.py"), "--shape", shape, "--holes", "-o", path], check=True)
    began = time.monotonic()
    found = json.loads(ask(path, "--json", "--length", "576", preexec_fn=limits))
    s.check(f"{shape}: at once", time.monotonic() - began < 2, time.monotonic() - began)
    d, q, kv = found["width"], found["query_heads"] * found["head_dim"], found["kv_heads"] * found["head_dim"]
    weights = found["layers"] * (d * (2 * q + 2 * kv) + 3 * d * ffn) + rows * d
    memory = found["memory"][0]
    s.check(f"{shape}: weights", memory["weights"] == weights * 4.625 / 8, memory, weights)
    s.check(f"{shape}: cache", memory["cache_f16"] == found["layers"] * 2 * kv * 2 * 576 and memory["cache_f32"] == 2 * memory["cache_f16"], memory)
    s.check(f"{shape}: buffers", 10e6 < memory["buffers"] < 300e6, memory)
    names = {g["name"] for g in found["gates"]}
    s.check(f"{shape}: gates", gates <= names and not names & none, names)
    words = ask(path)
    s.check(f"{shape}: gates in the text", all(g in words for g in gates) and "take those for your model" in words)
    os.remove(path)


large("qwen3-4b", 9728, 151936, {"ngocbh/TrimKV-Qwen3-4B-Math", "WG-KV/checkpoints: qwen3-4b-instruct-2507-LAMBDA.pt",
                                 "SeerAttention/SeerAttention-Decode-Qwen3-4B-AttnGates"}, {"ngocbh/TrimKV-Qwen3-8B-Math"})
large("llama-3.1-8b", 14336, 128256, {"ngocbh/TrimKV-DeepSeek-R1-Distill-Llama-8B", "hyx21/Locret-llama-3.1-8B-instruct"},
      {"mit-han-lab/duo-attention: attn_patterns/Mistral-7B-Instruct-v0.2"})

# A tiny model: compared with the output of a run.
tiny, out = s.model(), s.path("x.kvf")
s.accepted("run", ["run", "-m", tiny, "--raw", "-p", "abc", "-n", "2", "-q", "-o", out])
ran = json.loads(s.accepted("info", ["trace", "info", out, "--json"]).stdout)["header"]["model"]
found = json.loads(ask(tiny, "--json"))
for key in ("name", "arch", "layers", "query_heads", "kv_heads", "head_dim", "vocab", "context"):
    s.check(key, found[key] == ran[key], found[key], ran[key])
s.check("lengths", [m["length"] for m in found["memory"]][-1] == found["context"])
s.check("template", found["template"] and "template_error" not in found and "template   for chats" in ask(tiny))
s.check("no gates", found["gates"] == [] and "kvfate train makes some" in ask(tiny))

# The name is that of the file, unless many files have it.
inside = Gguf(arch="llama")
NAME = "tiny random llama"  # general.name
for file, name in (("SmolLM2-135M-Instruct.Q4_1", "SmolLM2-135M-Instruct"), ("gemma-3-270m-q4_k_m", "gemma-3-270m"), ("a.b-IQ2_XS", "a.b"), ("x-bf16", "x"), ("x-TQ1_0", "x"),
                   ("Qwen-quiet", "Qwen-quiet"), ("x-q8_0-00001-of-00001", "x"), ("model", NAME), ("ggml-model-f16", NAME), ("0" * 40, NAME),
                   ("f16", "f16"), ("0" * 31, "0" * 31)):
    path = inside.write(s.path(file + ".gguf"))
    s.check(f"{file} is named {name}", json.loads(ask(path, "--json"))["name"] == name, json.loads(ask(path, "--json"))["name"])
    os.remove(path)

# Errors.
s.refused("no file", ["models", s.path("none.gguf")], 1, "none.gguf")
s.refused("not a model", ["models", out], 1, "not a gguf file")
s.refused("an empty folder", ["models", s.work.name], 1, "config.json")
s.refused("too long", ["models", tiny, "--length", "1000000"], 2, "context")
s.refused("a length of nothing", ["models", "--length", "8"], 2, "name its file")
s.refused("two models", ["models", tiny, tiny], 2, "models")
s.finish()
