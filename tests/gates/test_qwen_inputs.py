#!/usr/bin/env python3
"""The inputs of gates in a Qwen3 model: keys and queries after their norms, before RoPE or after
it, channels in file order.

usage: test_qwen_inputs.py KVFATE TRACE_DUMP ROOT

Compares the gate values of the first layer, as recorded by a run, with the gates in float64
(tests/oracle/gates_np.py). Their queries and keys are computed here from the weights of
gen_tiny.py.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np

kvfate, dump, root = map(os.path.abspath, sys.argv[1:4])
for folder in ("tests/oracle", "tests/data", "tests/data/golden/tools"):
    sys.path.insert(0, os.path.join(root, folder))
import gates_np  # noqa: E402
import gen_tiny  # noqa: E402

sys.path.append(os.path.join(root, "tests"))
from check import check, finish  # noqa: E402

H, G, D, DIM, T, EPS, BASE = 2, 4, 16, 48, 40, 0.01, 1e4
ARGS = dict(layers=2, heads=G, kv_heads=H, head_dim=D, dim=DIM, ffn=64, vocab=300, seed=3, type="f32", rope_base=BASE, untied=False,
            arch="qwen3", eps=EPS)


def words(args):
    return [w for k, v in args.items() if k != "untied" for w in ("--" + k.replace("_", "-"), str(v))]


def call(*argv):
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, errors="replace")
    if done.returncode:
        sys.exit(f"{' '.join(map(str, argv))}: {done.returncode} {done.stderr}")
    return done.stdout


def pairs(x):
    """Returns channels 0, D/2, 1, D/2 + 1, ...: the program's order for a model that pairs j with j
    + D/2."""
    return np.stack([x[..., :D // 2], x[..., D // 2:]], -1).reshape(x.shape)


def inputs(ids):
    w = {k: v.astype(float) for k, v in gen_tiny.model(argparse.Namespace(**ARGS))}

    def project(x, what, heads):
        y = (x @ w[f"blk.0.attn_{what}.weight"].T).reshape(len(x), heads, D)
        return y if what == "v" else gates_np.rmsnorm(y, w[f"blk.0.attn_{what}_norm.weight"], EPS)
    x = gates_np.rmsnorm(w["token_embd.weight"][ids], w["blk.0.attn_norm.weight"], EPS)
    q, k, v = (project(x, what, n) for what, n in (("q", G), ("k", H), ("v", H)))
    after = np.stack([gates_np.rotate_halves(k[t], t, BASE) for t in range(len(ids))])
    return {"x": x, "q": pairs(q), "k_pre": pairs(k), "v": v, "k_post": pairs(after)}


def compare(folder, layout, method, column, *options):
    gates = os.path.join(folder, "g.safetensors")
    call(sys.executable, os.path.join(root, "tests/data/make_gates.py"), "--layout", layout, "--layers", 2, "--heads", G, "--kv-heads", H,
         "--head-dim", D, "--d-model", DIM, "--hidden", 6, "--seed", 4, *options, "-o", gates)
    ids = np.random.RandomState(2).randint(3, 290, T)
    with open(os.path.join(folder, "ids"), "w") as f:
        f.write(" ".join(map(str, ids)))
    call(kvfate, "run", "--overwrite", "-m", os.path.join(folder, "m.gguf"), "--ids", os.path.join(folder, "ids"), "-n", 1, "--exact", "--method", method,
         "--gates", gates, "-q", "-o", os.path.join(folder, "x.kvf"))
    call(dump, os.path.join(folder, "x.kvf"), folder)
    got = np.fromfile(os.path.join(folder, column + ".f64")).reshape(2, H, -1)[0].T[:T]
    shape = dict(layers=2, heads=G, kv_heads=H, head_dim=D, d_model=DIM, norm_eps=EPS, rope_base=BASE)
    want = gates_np.evaluate(gates_np.Gates(gates, shape), 0, inputs(ids))
    off = np.abs(got - want).max() / np.abs(want).max()
    print(f"{layout} {' '.join(options)}: off by {off:.1e}, spread {want.std():.2f}")
    check(f"{layout} {options}", off < 1e-5 and want.std() >= 1e-3)


with tempfile.TemporaryDirectory(prefix="kvfate-qwen-") as folder:
    call(sys.executable, os.path.join(root, "tests/data/golden/tools/gen_tiny.py"), *words(ARGS), "-o", os.path.join(folder, "m.gguf"))
    for order in ((), ("--key-order", "halves")):
        compare(folder, "wgkv", "wgkv:local=8", "write_gate", *order)
        compare(folder, "locret", "locret:budget=16", "importance", *order)
        for layout in ("rg2", "rg3", "rgkv"):
            compare(folder, layout, "trimkv:budget=16", "log_beta", *order)
    for layout in ("rg", "linear"):
        compare(folder, layout, "trimkv:budget=16", "log_beta")
finish()
