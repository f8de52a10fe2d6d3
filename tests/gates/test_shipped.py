#!/usr/bin/env python3
"""The shipped gates fit their models, and their records describe them.

usage: test_shipped.py KVFATE ROOT

This file reads the shapes in gates/*.safetensors and compares them with the published sizes of the
models. It compares the table of gates/README.md with the hash that the program prints, with the
metadata and with the record of the training. A run with a model that is in the cache folder must
use its gates by default: the default model, and with KVFATE_TESTS=long all models."""
import glob
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, kvfate  # noqa: E402

root = os.path.abspath(sys.argv[2])
sys.path.append(os.path.join(root, "python"))
from kvfate.model_list import MODELS  # noqa: E402

# From the published config.json: layers, KV heads, head dimension, width.
SIZES = {"smollm2-135m": (30, 3, 64, 576), "gemma-3-270m": (18, 1, 256, 640), "qwen2.5-coder-0.5b": (24, 2, 64, 896)}
STEP = 512  # tokens


def expected(method, hidden, kv_heads, head_dim, width):
    """Returns the shapes of a layer's tensors (docs/reference/gates.md)."""
    if method == "wgkv":
        return {"pre_key_norm.weight": [head_dim], "post_key_norm.weight": [head_dim],
                "conv1.weight": [kv_heads * hidden, 2 * head_dim, 1], "conv1.bias": [kv_heads * hidden],
                "conv2.weight": [kv_heads, hidden, 1], "conv2.bias": [kv_heads]}
    first = {"linear1.weight": [hidden, width], "linear1.bias": [hidden], "bias": [kv_heads]}
    if method == "dbtrimkv":
        return {**first, "linear2.weight": [hidden, hidden], "linear2.bias": [hidden], "linear3.weight": [kv_heads, hidden]}
    return {**first, "linear2.weight": [kv_heads, hidden]}


def header(path):
    with open(path, "rb") as f:
        return json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))


def mean(values):
    return sum(values) / len(values)


def table():
    """Returns the rows of the training records in README.md by the name of the gates."""
    with open(os.path.join(root, "gates", "README.md"), encoding="utf-8") as f:
        text = f.read()
    lines = re.findall(r"^\| ([\w.-]+) \| (\w{32}) \| (\d+) \| (\d+) \| ([\d.]+) \| ([\d.]+), ([\d.]+) \| ([+-][\d.]+) % \|", text, re.M)
    return {line[0]: line[1:] for line in lines}


def shapes(name, head, training, model, method):
    """Compares the tensors of all layers with the sizes of the model."""
    layers, kv_heads, head_dim, width = SIZES[model]
    module = "g_predictors" if method == "wgkv" else "retention_gate"
    want = {f"model.layers.{i}.self_attn.{module}.{key}": shape for i in range(layers)
            for key, shape in expected(method, training["hidden"], kv_heads, head_dim, width).items()}
    have = {key: tensor["shape"] for key, tensor in head.items()}
    check(f"{name}: shapes", have == want, set(have) ^ set(want))
    check(f"{name}: types", {tensor["dtype"] for tensor in head.values()} == {"BF16"})


def record(name, row, training):
    """Compares the row of a training with its record and with the metadata of the gates."""
    with open(os.path.join(root, "gates", name + ".log.jsonl"), encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    steps = [x for x in lines if "step" in x]
    checks = {x["check"]: x for x in lines if "check" in x}
    number, last, shipped, loss, first_kl, last_kl, change = row
    check(f"{name}: steps", [x["step"] for x in steps] == list(range(1, int(last) + 1)) and training["steps"] == int(last), last, len(steps))
    check(f"{name}: tokens of a step", {x["tokens"] for x in steps} == {STEP} and training["length"] == STEP)
    best = min(checks, key=lambda step: checks[step]["kl_64"] + checks[step]["kl_128"])
    check(f"{name}: the step with the lowest KL is shipped", best == training["steps_done"] == int(shipped), best, training["steps_done"], shipped)
    check(f"{name}: loss", f"{mean([x['loss'] for x in steps[-50:]]):.3f}" == loss, loss, mean([x["loss"] for x in steps[-50:]]))
    kl = {step: x["mean_kl"] for step, x in checks.items()}
    check(f"{name}: KL", (f"{kl[min(kl)]:.3f}", f"{kl[max(kl)]:.3f}") == (first_kl, last_kl), kl)
    check(f"{name}: change of KL", f"{100 * (kl[max(kl)] / kl[max(kl) - 100] - 1):+.1f}" == change, change, kl)
    r = subprocess.run([kvfate, "trace", "info", os.path.join(root, "gates", name + ".safetensors"), "--json"], capture_output=True, text=True)
    check(f"{name}: hash", r.returncode == 0 and json.loads(r.stdout)["hash"] == number, number, r.stdout[:100], r.stderr)


def run(model, method, name):
    """Runs a method with a model and expects its shipped gates."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "x.kvf")
        budget = [] if method == "wgkv" else ["-B", "8"]
        r = subprocess.run([kvfate, "run", "-m", model, "--raw", "-p", "One two three four five six seven eight nine ten", "-n", "2", "-t", "2", "--method", method, *budget, "-q", "-o", out],
                           capture_output=True, text=True, env={**os.environ, "KVFATE_GATES": os.path.join(root, "gates")})
        check(f"{name}: used by default", r.returncode == 0 and f"/{name}.safetensors, which are shipped for this model" in r.stderr, r.returncode, r.stderr)


def main():
    rows, hashes = table(), {}
    with open(os.path.join(root, "gates", "meson.build"), encoding="utf-8") as f:
        installed = f.read()
    files = sorted(glob.glob(os.path.join(root, "gates", "*.safetensors")))
    names = [os.path.basename(path)[:-len(".safetensors")] for path in files]
    check("a record of each file", sorted(rows) == names, sorted(rows), names)
    cache = os.environ.get("KVFATE_CACHE") or os.path.expanduser("~/.cache/kvfate")
    tried = [m for m in MODELS if os.path.exists(os.path.join(cache, m.file))]
    if os.environ.get("KVFATE_TESTS") != "long":
        tried = [m for m in tried if m is MODELS[0]]
    for name, path in zip(names, files):
        model, _, method = name.rpartition("-")
        check(f"{name}: installed", f"'{name}'" in installed)
        head = header(path)
        meta = head.pop("__metadata__")
        training = json.loads(meta["training"])
        check(f"{name}: method", training["method"] == method, training["method"])
        hashes.setdefault(model, set()).update((meta["kvfate.model_hash"], training["model_hash"]))
        shapes(name, head, training, model, method)
        if name in rows:
            record(name, rows[name], training)
        if model in [m.name for m in tried]:
            run(model, method, name)
    for model, found in hashes.items():
        check(f"{model}: one model hash", len(found) == 1, found)
    check("each model has its own hash", len(set.union(*hashes.values())) == len(hashes), hashes)
    finish("" if tried else "the default model is not in the cache folder")


main()
