#!/usr/bin/env python3
"""Tests every model family from run to report. Evictions by a layer's sliding window are recorded
as such for every method, and not as choices of the method. A recording with all probes works with
every analysis and figure, and a plan repeats a run. Unsupported features and unsupported families
are reported in one sentence. KVFATE_TESTS=long tests every figure of every family, otherwise a
third of them."""
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from harness import Gguf, Suite

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "format"))
import digest  # noqa: E402,F401 finds the package
import kvfate  # noqa: E402

s = Suite()
import hf_folder  # noqa: E402  (harness puts its folder on the path)

ALL = os.environ.get("KVFATE_TESTS") == "long"
TOLD = json.loads(subprocess.check_output([s.exe, "list", "all", "--json"]))
GOLDEN = json.loads(Path(os.path.join(HERE, "../data/golden/family_golden.json")).read_text())["cases"]
CASES = [case["args"].split() for case in GOLDEN if "rope_scale" not in case and "--sinks" not in case["args"]]  # the first ones: their number is their place
IDS = s.file("ids.txt", " ".join(str(i * 37 % 297 + 3) for i in range(120)).encode())
STEPS, T = 9, 128  # the last token of the answer is not fed back


def option(words, name, otherwise=0):
    return int(words[words.index(name) + 1]) if name in words else otherwise


def run(i, out, *more):
    return ["run", "-m", os.path.join(s.models, f"family{i}.gguf"), "--ids", IDS, "-n", str(STEPS), "-t", "1", "-q", "--ignore-eos", "--overwrite", "-o", out, *more]


def table(path):
    out = s.path("eviction.npz")
    s.accepted("eviction table", ["eviction", path, "-o", out])
    with np.load(out) as z:
        return {k: z[k] for k in ("layer", "index", "token", "evict_step", "reason")}


def window_of(words, layer):
    """Returns the window of a layer as defined by the families: Gemma 2 has one in every second
    layer; Gemma 3 has none in every sixth, and OLMo 3 none in every fourth."""
    every = {"gemma2": 2, "gemma3": 6, "olmo2": 4}.get(words[words.index("--arch") + 1])
    if layer < option(words, "--local-from"):
        return 0
    return 0 if every and (layer + 1) % every == 0 else option(words, "--window")


# ---- a trace's NLL of all positions but the first
for i, case in enumerate(GOLDEN):
    out, ids = s.path("nll.kvf"), s.file("long.txt", " ".join(map(str, case["ids"])).encode())
    s.accepted(f"family {i}: 600 tokens", ["run", "-m", os.path.join(s.models, f"family{i}.gguf"), "--ids", ids, "-n", "0", "--exact", "--probes",
                                           "nll,evict", "-t", "1", "-q", "--overwrite", "-o", out, *(["--rope-scale", case["rope_scale"]] if "rope_scale" in case else [])])
    off = np.abs(kvfate.open(out)["nll"][1:] - case["nll"]).max()
    s.check(f"family {i}: nll", off <= 1e-3, off)

# ---- windows
for i, words in enumerate(CASES):
    window = option(words, "--window")
    if not 0 < window < T:
        continue
    name = f"family {i}"
    full, held, plan, again = (s.path(n + ".kvf") for n in ("full", "held", "plan", "again"))
    s.accepted(name, run(i, full))
    e = table(full)
    w = np.array([window_of(words, layer) for layer in e["layer"]])
    leaves = (w > 0) & (e["token"] + w < T)
    s.check(name + ": full loses what its windows lose", (e["evict_step"] == np.where(leaves, e["token"] + w, -1)).all(), e["evict_step"])
    s.check(name + ": with that reason", (e["reason"] == np.where(leaves, "architecture", "alive")).all(), set(e["reason"]))

    s.accepted(name + ": h2o", run(i, held, "--method", "h2o", "-B", "40"))
    e = table(held)
    own = e["reason"] == "architecture"
    s.check(name + ": h2o evicts for its budget, too", set(e["reason"]) == {"alive", "budget", "architecture"} and own.any(), set(e["reason"]))
    s.check(name + ": the window's are at its end", (e["evict_step"][own] == (e["token"] + w)[own]).all() and (w[own] > 0).all())
    cut = e["reason"] == "budget"
    s.check(name + ": the method's before it", (e["evict_step"][cut] <= np.where(w > 0, e["token"] + w, T)[cut]).all())
    for t in (121, T - 1):
        for layer in set(e["layer"]):
            for head in set(e["index"]):
                at = (e["layer"] == layer) & (e["index"] == head) & (e["token"] <= t)
                n = ((e["evict_step"] < 0) | (e["evict_step"] > t))[at].sum()
                s.check(f"{name}: budget holds at {t}", n <= 40, layer, head, n)

    s.accepted(name + ": plan", ["trace", "plan", held, "-o", plan, "--overwrite"])
    s.accepted(name + ": again", ["run", "-m", os.path.join(s.models, f"family{i}.gguf"), "--plan", plan, "-t", "1", "-q", "--overwrite", "-o", again])
    b = table(again)
    s.check(name + ": a plan repeats it", (b["evict_step"] == e["evict_step"]).all() and (b["reason"] == np.where(cut, "plan", e["reason"])).all(), set(b["reason"]))

    nll = [kvfate.open(path)["nll"][:] for path in (held, again)]
    s.check(name + ": to the last bit", nll[0].tobytes() == nll[1].tobytes())

    s.accepted(name + ": window", run(i, held, "--method", "window:sinks=4", "-B", "40"))
    e = table(held)
    s.check(name + ": a method's window is told apart", set(e["reason"]) == {"alive", "window", "architecture"}, set(e["reason"]))
    s.check(name + ": and leaves before the layer's", (e["evict_step"] < np.where(w > 0, e["token"] + w, T + 1))[e["reason"] == "window"].all())

    shadow = s.path("shadow.kvf")
    s.accepted(name + ": shadows", run(i, shadow, "--shadow", "entries,model"))
    said = s.accepted(name + ": ghosts", ["missed", shadow]).stdout.decode()
    s.check(name + ": nobody misses what the window leaves behind", "no query missed an entry" in said, said)

# ---- every analysis and figure; those that need gates or more traces report it for all families
ran = {}
for i in range(len(CASES)):
    trace = s.path(f"{i}.kvf")
    s.accepted(f"family {i}: all probes", run(i, trace, "--probes", "full", "--shadow", "entries,model", "--method", "h2o", "-B", "48"))
    for a in TOLD["analyzers"]:
        argv = [*s.words_of(a["name"]), *[trace] * max(a["min_traces"], 1)] + (["--head", "L0-1K*"] if a["name"] == "eviction" else [])  # its mask has 12 heads
        done = s.survives(f"family {i}: {a['name']}", argv, codes=(0, 1, 3))
        ran[a["name"]] = ran.get(a["name"], 0) + (done.returncode == 0)
        for k, figure in enumerate(a["figures"] if done.returncode == 0 else ()):
            if figure != "fates-answer" and (ALL or (i + k) % 3 == 0):  # this needs --needle
                s.survives(f"family {i}: {a['name']} as {figure}", [*argv, "--figure", figure, "-o", s.path("x.svg")], codes=(0, 1, 3))
    s.accepted(f"family {i}: report", ["report", trace, "-o", s.path("r.html")])
s.check("an analysis works on all families or on none", set(ran.values()) <= {0, len(CASES)} and sum(n > 0 for n in ran.values()) > 20, ran)

# ---- the size of Gemma 2 with attention scaled by the model width is recognised by its depth
def last_logits(**more):
    model = Gguf(arch="gemma2", layers=46, dim=32, ffn=32, heads=2, kv_heads=1, head_dim=32)
    model.metadata += [["gemma2." + key, 6, value] for key, value in more.items()]
    out = s.path("x.npy")
    s.accepted("46 layers", ["generate", "--logits", "-m", model.write(s.path("m.gguf")), "--ids", IDS, "--exact", "-o", out])
    return np.load(out)


plain, by_width, by_head = last_logits(), last_logits(**{"attention.scale": 16 ** -.5}), last_logits(**{"attention.scale": 32 ** -.5})
s.check("46 layers: by the width", (plain == by_width).all() and (plain != by_head).any())

# ---- rejections
for arch, words in (("qwen3moe", "a mixture of experts"), ("deepseek2", "latent attention"), ("mamba2", "recurrent layers"),
                    ("granitehybrid", "recurrent layers"), ("gpt2", "gemma2")):
    model = Gguf().set("general.architecture", arch).write(s.path("m.gguf"))
    s.refused("refused: " + arch, ["generate", "-m", model, "--raw", "-p", "a", "-n", "1"], 1, f"'{arch}'", words)
experts = Gguf()
experts.metadata.append(["llama.expert_count", 4, 8])
s.refused("refused: Mixtral", ["generate", "-m", experts.write(s.path("m.gguf")), "--raw", "-p", "a", "-n", "1"], 1, "mixture of experts")
YARN = [["llama.rope.scaling.type", 8, "yarn"], ["llama.rope.scaling.factor", 6, 4.0], ["llama.rope.scaling.original_context_length", 4, 256]]
for key, kind, value, word in (("type", 8, "dynamic", "'dynamic'"), ("factor", 6, 0.5, "YaRN"), ("factor", 6, float("nan"), "factor"),
                               ("original_context_length", 4, 0, "YaRN"), ("yarn_beta_fast", 6, -1.0, "YaRN"), ("yarn_log_multiplier", 6, 0.1, "YaRN")):
    yarn = Gguf()
    yarn.metadata += [x for x in YARN if not x[0].endswith("." + key)] + [["llama.rope.scaling." + key, kind, value]]
    s.refused(f"refused: YaRN with {key} = {value}", ["generate", "-m", yarn.write(s.path("m.gguf")), "--raw", "-p", "a", "-n", "1"], 1, word)
for arch in ("granite", "qwen2"):
    window = Gguf(arch=arch)
    window.metadata.append([arch + ".attention.sliding_window", 4, 64])
    s.refused("refused: a window of " + arch, ["generate", "-m", window.write(s.path("m.gguf")), "--raw", "-p", "a", "-n", "1"], 1, "window", arch)

# ---- scaled RoPE: longer contexts, another header and run, and rejections
LONG = s.file("over.txt", " ".join(str(i % 290 + 3) for i in range(700)).encode())  # the context is 512
model = Gguf().write(s.path("short.gguf"))
plain, scaled = s.path("plain.kvf"), s.path("scaled.kvf")


def told(path):
    return json.loads(s.run(["trace", "info", "--json", path]).stdout)


def over(*more):
    return ["run", "-m", model, "--ids", LONG, "-n", "2", "-q", "--overwrite", "-o", scaled, *more]


s.refused("700 tokens in a context of 512", over(), 1, "700", "512", "--rope-scale")
s.refused("in one of 512 * 1.3", over("--rope-scale", "linear:1.3"), 1, "700", "665", "--rope-scale")
for kind in ("linear:2", "ntk:2", "yarn:2"):
    s.accepted(f"700 tokens with {kind}", over("--rope-scale", kind))
    s.check(f"{kind}: header", told(scaled)["header"]["model"]["rope_scale"] == kind and told(scaled)["header"]["model"]["context"] == 1024, told(scaled)["header"])
s.accepted("plain", ["run", "-m", model, "--ids", IDS, "-n", "2", "-q", "--overwrite", "-o", plain])
s.accepted("scaled", ["run", "-m", model, "--ids", IDS, "-n", "2", "-q", "--overwrite", "-o", scaled, "--rope-scale", "yarn:2"])
s.check("another run", told(plain)["run"] != told(scaled)["run"] and "rope_scale" not in told(plain)["header"]["model"], told(plain), told(scaled))
for text in ("yarn", "yarn:", "yarn:0.5", "yarn:1025", "yarn:nan", "yarn:2x", "yarn: 2", "dynamic:2", ":2", "none:2", "2", ""):
    s.refused(f"--rope-scale '{text}'", over("--rope-scale", text), 2, "--rope-scale", "yarn:F")
for i in (0, 2, 3, 10):
    s.refused(f"family {i} scales already", ["generate", "-m", os.path.join(s.models, f"family{i}.gguf"), "--raw", "-p", "a", "-n", "1", "--rope-scale", "linear:2"],
              2, "--rope-scale", "already")
for i, words in ((1, "window"), (5, "window"), (7, "norms after"), (8, "multipliers"), (9, "without rotations")):
    model = os.path.join(s.models, f"family{i}.gguf")
    s.refused(f"no derivatives of family {i}", ["ablate", "--as", "saliency", "-m", model, "--ids", IDS, "-o", s.path("x.kvf")], 2, words, "not trained")

# ---- layers with a window, given by a number and by a list, in a file and in a folder
def pattern(kind=None, value=None, folder=None, file="m.gguf"):
    model = Gguf(arch="gemma3", layers=6, window=16)
    if kind is not None:
        model.metadata.append(["gemma3.attention.sliding_window_pattern", kind, value])
    path, out = model.write(s.path(file)), s.path("x.npy")
    if folder is not None:
        hf_folder.write(path, s.path("f"))
        config = json.loads(Path(s.path("f/config.json")).read_text())
        config = {k: v for k, v in config.items() if k not in ("layer_types", "sliding_window_pattern")}
        hf_folder.write_json(s.path("f"), "config.json", {**config, **folder})
        path = s.path("f")
    return ["generate", "--logits", "-m", path, "--ids", IDS, "--exact", "-o", out]


def same(name, want, argv):
    s.accepted(name, argv)
    s.check(name + ": logits", (np.load(s.path("x.npy")) == want).all())


U32, BOOL = 4, 7
every = {}
for n in (0, 1, 2, 3, 6):
    s.accepted(f"every {n}", pattern(U32, n))
    every[n] = np.load(s.path("x.npy"))
s.check("the numbers differ", len({x.tobytes() for x in every.values()}) == len(every))
for n in every:
    flags = [n == 0 or (i + 1) % n != 0 for i in range(6)]
    same(f"a list for every {n}", every[n], pattern(BOOL, flags))
    same(f"a folder's list for every {n}", every[n], pattern(folder={"sliding_window_pattern": flags}))
    same(f"layer_types for every {n}", every[n], pattern(folder={"layer_types": ["sliding_attention" if x else "full_attention" for x in flags]}))
same("a folder's number", every[3], pattern(folder={"sliding_window_pattern": 3}))
for name, flags in (("an order of no number", [True, False, False, True, True, False]), ("the last layers", [False] * 3 + [True] * 3)):
    s.accepted(name, pattern(BOOL, flags))
    want = np.load(s.path("x.npy"))
    s.check(name + ": of its own", all((want != x).any() for x in every.values()))
    same(name + ", in a folder", want, pattern(folder={"sliding_window_pattern": flags}))
s.refused("five layers of six, in a folder", pattern(folder={"sliding_window_pattern": [True] * 5}), 1, "6 layers", "config.json")
s.refused("a list of texts", pattern(folder={"sliding_window_pattern": [True, "x", True, True, True, True]}), 1, "layer 1", "config.json")
s.finish()
