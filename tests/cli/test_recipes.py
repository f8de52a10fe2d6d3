#!/usr/bin/env python3
"""Runs every command of docs/guide/trimkv-figures.md with tiny models and gates instead of the
published ones, and checks that its files are as described on the page.

usage: test_recipes.py KVFATE ROOT GEN_TINY
"""
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402

kvfate, root, gen_tiny = map(os.path.abspath, sys.argv[1:4])
sys.path.insert(0, os.path.dirname(gen_tiny))
SHAPE = dict(layers=36, heads=16, kv_heads=8, head_dim=4, dim=32)
N, BUDGET = 110, 40


def commands(page):
    """Returns the lines of the indented blocks of a page."""
    return [line[4:] for line in Path(page).read_text(encoding="utf-8").split("\n") if line.startswith("    ")]


def shell(line, folder, variables):
    env = {**os.environ, **variables, "PATH": os.path.dirname(kvfate) + os.pathsep + os.environ["PATH"]}
    done = subprocess.run(["sh", "-c", line], cwd=folder, env=env, capture_output=True, text=True, errors="replace")
    check(line, done.returncode == 0, done.returncode, done.stderr[-300:])
    return done.stdout


def table(path):
    """Returns the columns of a TSV file as lists of texts."""
    with open(path, encoding="utf-8") as f:
        rows = [x.rstrip("\n").split("\t") for x in f if not x.startswith("# ")]
    return {name: [r[i] for r in rows[1:]] for i, name in enumerate(rows[0])}


def real(column):
    return np.array([float(x) for x in column])


def is_picture(path):
    with open(path, "rb") as f:
        head = f.read(24)
    w, h = struct.unpack(">II", head[16:])
    return head[:8] == b"\x89PNG\r\n\x1a\n" and w > 500 and h > 200


def gguf(path):
    """Returns {name: array} of an f32 file of gen_tiny.py, by the sizes with which it was made."""
    import argparse
    import gen_tiny as gen
    a = argparse.Namespace(**SHAPE, ffn=48, vocab=300, seed=21, type="f32", rope_base=1e6, untied=False, arch="qwen3", eps=1e-6)
    return dict(gen.model(a))


def first_layer(folder, ids):
    """Returns log beta of layer 0, [tokens, 8], from the embedding, the norm and the gates that
    NumPy makes from the same seed."""
    sys.path.insert(0, os.path.join(root, "tests", "data"))
    import make_gates
    o = make_gates.options("--layout rg --layers 36 --heads 16 --kv-heads 8 --head-dim 4 --d-model 32 --hidden 6 --seed 7 -o -".split())
    arrays = make_gates.Maker(o).rg()

    def gate(name):  # as bf16, like the file
        raw = np.frombuffer(make_gates.to_bytes(arrays["model.layers.0.self_attn.retention_gate." + name], "BF16"), "<u2")
        return (raw.astype("<u4") << 16).view("<f4").astype(float).reshape(arrays["model.layers.0.self_attn.retention_gate." + name].shape)
    w = gguf(folder)
    x = w["token_embd.weight"][ids].astype(float)
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w["blk.0.attn_norm.weight"]
    z = x @ gate("linear1.weight").T + gate("linear1.bias")
    z = (z / (1 + np.exp(-z))) @ gate("linear2.weight").T + gate("bias")
    return -np.log1p(np.exp(-z))


def check_trimkv(folder, variables):
    def path(name):
        return os.path.join(folder, name)

    t = table(path("tokens.tsv"))
    T = len(t["token"])
    check("length", T > N and T == int(t["token"][-1]) + 1, T)
    r = table(path("retention.tsv"))
    lb, age = real(r["log_beta"]), T - np.arange(T)
    check("retention", set(r["source"]) == {"gate"} and r["head"] == ["L15K2"] * T and (lb < 0).all())
    mean = [np.exp(x * np.arange(n)).mean() for x, n in zip(lb, age)]
    check("mean retention", np.allclose(real(r["mean_retention"]), mean, rtol=1e-12))
    with np.load(path("retention.npz")) as z:
        check("npz", (z["log_beta"] == lb).all())
    with np.load(path("eviction.npz")) as z:
        step = np.where(z["evict_step"] < 0, T + 1, z["evict_step"])
        held = [(np.arange(T)[:q + 1] < T) & (step[:q + 1] > q) for q in range(T)]
        prompt = T - N + 1
        check("the budget holds", all(h.sum() <= BUDGET for h in held[prompt:]) and held[-1].sum() == BUDGET)
    for name, sign in (("highest", -1), ("lowest", 1)):
        rows = [x.split("\t") for x in open(path(name + ".tsv"), encoding="utf-8").read().split("\n") if x]
        want = sorted(sign * real(t["mean_beta"]))[:10]
        check(name, len(rows) == 10 and np.allclose([sign * float(x[2]) for x in rows], want)
              and all(t["text"][int(x[0])] == x[1] and t["mean_retention"][int(x[0])] == x[3] for x in rows), rows[:2])
    s = table(path("sparsity.tsv"))
    check("sparsity", len(s["head"]) == 288 and set(s["kind"]) == {"beta"})
    i = s["head"].index("L15K2")
    want = 1 - 2 / (T * (T + 1)) * sum(np.exp(x * np.arange(1, n)).sum() for x, n in zip(lb, age))
    check("sparsity of the head", abs(real(s["sparsity"])[i] - want) < 1e-12, s["sparsity"][i], want)
    shell("kvfate retention trimkv.kvf --head L0K* -o layer0.tsv", folder, variables)
    got = real(table(path("layer0.tsv"))["log_beta"]).reshape(8, T).T
    off = np.abs(got - first_layer(variables["MODEL"], [int(x) for x in t["id"]])) / np.abs(got)
    check("log beta of the first layer", off.max() < 2e-5, off.max())


def trimkv_figures(folder):
    page = commands(os.path.join(root, "docs/guide/trimkv-figures.md"))
    variables = {"MODEL": os.path.join(folder, "Qwen3-4B-Q8_0.gguf"), "PUBLISHED": "trimkv_weights.pth",
                 "GATES": "trimkv_weights.safetensors", "PROMPT": "aime24-1.txt",
                 "N": str(N), "BUDGET": str(BUDGET)}
    options = [x for k, v in SHAPE.items() for x in ("--" + k.replace("_", "-"), str(v))]
    subprocess.run([sys.executable, gen_tiny, "--arch", "qwen3", *options, "--ffn", "48", "--seed", "21", "--eps", "1e-6", "--rope-base",
                    "1000000", "-o", variables["MODEL"]], check=True)
    shutil.copy(os.path.join(root, "tests/data/recipes/trimkv_weights.pth"), folder)
    Path(os.path.join(folder, "aime24-1.txt")).write_text("A ferry leaves every nine minutes. How many leave in a day?")
    check("the first line is the settings", re.fullmatch(r"MODEL=\S+ PUBLISHED=\S+ GATES=\S+ PROMPT=\S+ N=\d+ BUDGET=\d+", page[0]), page[0])
    check("no command is left out", len(page) >= 18 and all(re.match(r"kvfate|grep|for", x) for x in page[1:]), page)
    for line in page[1:]:
        said = shell(line + " --ignore-eos -t 2" if " run " in line else line, folder, variables)
        for picture in re.findall(r"-o ([\w.-]+\.png)", line):
            check(picture, is_picture(os.path.join(folder, picture)))
        if line.startswith("kvfate trace info $GATES"):
            check("info", all(w in said for w in ("retention", "rg", "layers 36", "kv heads 8")), said)
    kept = [x for x in os.listdir(folder) if x.startswith("kept-")]
    check("kept", len(kept) == 7 and all(is_picture(os.path.join(folder, x)) for x in kept), kept)
    check_trimkv(folder, variables)


with tempfile.TemporaryDirectory(prefix="kvfate-recipes-") as folder:
    trimkv_figures(folder)
    if len(sys.argv) > 4:  # keeps the files for inspection
        shutil.copytree(folder, sys.argv[4], dirs_exist_ok=True)
finish()
