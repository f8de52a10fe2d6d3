#!/usr/bin/env python3
"""Write train.json: losses, gates, gradients and AdamW steps of train_torch.py (float64) on tiny models.

usage: make_train_golden.py -o train.json
       make_train_golden.py --check train.json     (computed again; derivatives against differences)
"""
import argparse
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import train_torch as tt
from llama_numpy import Llama

MODELS = ["--layers 2 --heads 4 --kv-heads 2 --head-dim 16 --dim 48 --ffn 96 --vocab 300 --seed 31",
          "--layers 3 --heads 6 --kv-heads 2 --head-dim 16 --dim 48 --ffn 80 --vocab 280 --seed 32 --untied",
          "--layers 2 --heads 4 --kv-heads 1 --head-dim 16 --dim 64 --ffn 96 --vocab 290 --seed 33 --type q4_1",
          "--arch qwen3 --layers 2 --heads 4 --kv-heads 2 --head-dim 16 --dim 48 --ffn 80 --vocab 280 --seed 34 --eps 0.01",
          "--arch qwen2 --layers 2 --heads 4 --kv-heads 2 --head-dim 12 --dim 48 --ffn 64 --vocab 270 --seed 35",
          "--arch gemma3 --layers 7 --heads 4 --kv-heads 1 --head-dim 16 --dim 32 --ffn 48 --vocab 270 --seed 36 --window 19 --rope-base 50000"]
S = tt.Setting
# name, model, lengths of the documents of each pack, hidden width, bias, setting, how many steps
CASES = [
    ("decay_code_mean", 0, ((23, 1, 56), (50, 21)), 6, 2.5, S("rg", M=4), True),
    ("decay_t_sum", 1, ((41, 34),), 6, 3.0, S("rg", combine="sum", norm="t", M=6, weight=2), False),
    ("logit_flat", 0, ((70, 20),), 6, 2.0, S("rg", "logit", norm="flat", M=5.5), False),
    ("tied_global_code", 1, ((38, 30),), 5, 3.0, S("rg10", everywhere=True, M=6, tied=True, weight=0.5), False),
    ("untied_global_sum", 0, ((30, 36),), 5, 2.0, S("rg10", quality=("fwkl",), norm="sum", everywhere=True, M=6, weight=0.01), False),
    ("reverse_kl", 2, ((33, 40, 2),), 5, 3.5, S("rg", quality=("rvkl",), M=3, weight=0.25), False),
    ("write_mse_offset", 0, ((6, 44, 20), (66,)), 5, -1.0, S("wgkv", "write", ("mse",), weight=0.04, window=8), True),
    ("write_fwkl", 2, ((60, 10),), 7, -1.0, S("wgkv", "write", ("fwkl",), weight=0.3, window=5, offset=False), False),
    ("qwen3_decay", 3, ((40, 26),), 5, 2.5, S("rg", M=4), False),
    ("qwen3_write", 3, ((12, 48),), 5, -1.0, S("wgkv", "write", ("fwkl",), weight=0.05, window=6), False),
    ("qwen2_write", 4, ((50, 9),), 4, -1.0, S("wgkv", "write", ("mse",), weight=0.05, window=4), False),
    ("linear_t_sum", 0, ((44, 25),), 0, 2.5, S("linear", combine="sum", norm="t", M=5, weight=2), False),
    ("linear_tied_global", 1, ((38, 30),), 0, 3.0, S("linear", everywhere=True, M=6, tied=True, weight=0.5), False),
    ("rgkv_code", 1, ((31, 40),), 4, 2.5, S("rgkv", M=4), False),
    ("qwen3_rgkv", 3, ((46, 18),), 4, 2.5, S("rgkv", M=4.3), False),
    ("qwen2_rgkv_tied", 4, ((28, 35),), 4, 2.5, S("rgkv", "logit", norm="flat", M=5.5, tied=True), False),
    ("gemma3_decay", 5, ((44, 12),), 4, 2.5, S("rg", M=4), False),
    ("gemma3_tied_global", 5, ((40, 25),), 3, 3.0, S("rg10", norm="t", everywhere=True, M=5, tied=True), False),
    ("gemma3_write", 5, ((14, 50),), 3, -1.0, S("wgkv", "write", ("fwkl", "mse"), weight=0.05, window=5), False),
]


def make_model(folder, options):
    path = os.path.join(folder, "tiny.gguf")
    tool = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gen_tiny.py")
    subprocess.run([sys.executable, tool, *options.split(), "-o", path], check=True)
    return path, hashlib.sha256(Path(path).read_bytes()).hexdigest()


def gemma_logits(path):
    """Returns a function from token ids to the logits of the Gemma 3 of transformers."""
    import make_family_golden as family  # needs transformers
    model = family.load(family.File(path), "Gemma3", "")
    return lambda ids: family.logits_of(model, ids.tolist())


def same_as_others(path, model):
    """The teacher against a forward pass that shares no code, document by document."""
    ids = np.random.RandomState(3).randint(3, len(model.out), 30)
    logits = F.linear(model.hidden(tt.pack(ids.tolist(), (18, 12)))[0], model.out).numpy()
    other = gemma_logits(path) if model.gemma else Llama(path).logits
    worst = max(np.abs(logits[a:b] - other(ids[a:b])).max() for a, b in ((0, 18), (18, 30)))
    if worst > (1e-5 if model.gemma else 1e-9):  # transformers computes the norms of Gemma in float32
        sys.exit(f"{path}: logits differ from those of another implementation by {worst}")


# ---- gates: numbers of four decimals, so that a decimal text gives the same float32 everywhere

class Draw:
    def __init__(self, seed):
        self.rng = np.random.RandomState(seed)

    def of(self, mean, deviation, *shape):
        u = self.rng.random_sample((4, *shape)).sum(0) - 2.0
        return np.float32(np.round(mean + deviation * math.sqrt(3) * u, 4)).astype(np.float64)


def retention(draw, s, model, hidden, bias):
    out, d, H = {}, model.out.shape[1], model.kv_heads
    if s.layout == "rgkv":
        d = 2 * len(model.w["blk.0.attn_k.weight"])
    for i in range(model.layers):
        p = f"model.layers.{i}.self_attn.retention_gate."
        if s.layout == "linear":
            if i == 0 or not s.tied:
                out[p + "linear1.weight"], out[p + "bias"] = draw.of(0, 2.5 / math.sqrt(d), H, d), draw.of(bias, 0.3, H)
            continue
        out[p + "linear1.weight"] = draw.of(0, 1.5 / math.sqrt(d), hidden, d)
        out[p + "linear1.bias"] = draw.of(0, 0.2, hidden)
        if s.layout == "rg10":
            out[p + "linear2.weight"] = draw.of(0, 2 / math.sqrt(hidden), hidden, hidden)
            out[p + "linear2.bias"] = draw.of(0, 0.2, hidden)
        if i == 0 or not s.tied:
            out[p + tt.READOUT[s.layout] + ".weight"] = draw.of(0, 2.5 / math.sqrt(hidden), H, hidden)
            out[p + "bias"] = draw.of(bias, 0.3, H)
    return out


def write(draw, model, hidden, bias):
    out, H = {}, model.kv_heads
    D = len(model.w["blk.0.attn_k.weight"]) // H
    for i in range(model.layers):
        p = f"model.layers.{i}.self_attn.g_predictors."
        out[p + "pre_key_norm.weight"] = draw.of(1, 0.2, D)
        out[p + "post_key_norm.weight"] = draw.of(1, 0.2, D)
        out[p + "conv1.weight"] = draw.of(0, 1 / math.sqrt(D), H * hidden, 2 * D, 1)
        out[p + "conv1.bias"] = draw.of(0, 0.2, H * hidden)
        out[p + "conv2.weight"] = draw.of(0, 6 / math.sqrt(hidden), H, hidden, 1)  # some g below 1e-3
        out[p + "conv2.bias"] = draw.of(bias, 0.3, H)
    return out


# ---- one case

def tensors_of(case, dtype=torch.float64):
    return {n: torch.tensor(v, dtype=dtype, requires_grad=True) for n, v in case["arrays"].items()}


def gradients(model, setting, tensors, p):
    """(losses, values, facts, {name: derivative of the total loss})"""
    terms, values, facts = tt.losses(model, setting, tensors, p)
    grads = torch.autograd.grad(terms["total"], list(tensors.values()))
    return terms, values.detach(), facts, dict(zip(tensors, grads))


def compute(models, number):
    name, m, lengths, hidden, bias, setting, steps = CASES[number]
    model, small = models[m]
    draw = Draw(500 + number)
    case = {"arrays": write(draw, model, hidden, bias) if setting.layout == "wgkv" else retention(draw, setting, model, hidden, bias)}
    packs = [tt.pack(draw.rng.randint(3, len(model.out), sum(n)).tolist(), n) for n in lengths]
    terms, values, facts, grads = gradients(model, setting, tensors_of(case), packs[0])
    facts.update(margins(setting, values, packs[0], model.reaches()))
    _, values32, _, grads32 = gradients(small, setting, tensors_of(case, torch.float32), packs[0])
    out = {"loss": {n: x.item() for n, x in terms.items()}, "facts": facts, "gate": values, "grad": grads,
           "others": others(model, setting, values, packs[0], tensors_of(case)),
           "f32": {"gate": far(values32, values), "grad": max(far(grads32[n], grads[n]) for n in grads)}}
    record = {"name": name, "model": m, "hidden": hidden, **asdict(setting),
              "packs": [{"ids": p.ids, "first": p.first} for p in packs], "parameters": case["arrays"], **out}
    if steps:
        record["steps"] = walk(model, small, setting, case, packs)
    return record


def others(model, setting, values, p, tensors):
    """Losses that the case does not train with, of the same states and gates."""
    with torch.no_grad():
        student, _ = model.hidden(p, tt.Gates(setting, tensors))
        out = {n: x.item() for n, x in tt.quality(("fwkl", "rvkl", "ntp", "mse"), model, student, model.hidden(p)[0], p).items()}
        if setting.layout == "wgkv":
            return {**out, "sparsity": [tt.sparsity(replace(setting, offset=o), values, p, model.reaches()).item() for o in (False, True)]}
        return {**out, "capacity": {n: [tt.capacity(replace(setting, norm=n, everywhere=e), values, p, model.reaches())[0].item() for e in (False, True)]
                                    for n in ("code", "t", "flat", "sum")}}


def far(a, b):
    """greatest difference over the greatest number"""
    return float((a.double() - b).abs().max() / b.abs().max())


def margins(s, values, p, reaches):
    """how far the nearest token is from a kink of the loss"""
    if s.layout == "wgkv":
        above = values[values > tt.WRITE_LEAST]
        return {"clamped": values.numel() - above.numel(), "kink": float((above.min() / tt.WRITE_LEAST).log())}
    R = tt.held(values, p, reaches)
    heads = len(values)
    over = (R.sum(0) - s.M * heads if s.everywhere else R - s.M).abs()
    return {"kink": float(over.min())}


def walk(model, small, setting, case, packs):
    run, tensors = tt.Run(), tensors_of(case)
    tt.train(model, setting, tensors, packs, run)
    few = tensors_of(case, torch.float32)
    tt.train(small, setting, few, packs, tt.Run())
    settings = {k: v for k, v in asdict(run).items() if k != "record"}
    return {**settings, "record": run.record, "parameters": {n: x.detach() for n, x in tensors.items()},
            "f32": max((few[n].double() - tensors[n]).abs().max().item() for n in tensors)}


# ---- the file

def plain(x):
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, (torch.Tensor, np.ndarray)):
        return plain(x.tolist())
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    return float(f"{x:.9g}") if isinstance(x, float) else x


def flatten(record):
    """Parameters and their derivatives as lists without shape; numbers with 9 digits."""
    for part in (record, record.get("steps", {})):
        for key in ("grad", "parameters"):
            if key in part:
                part[key] = {n: x.reshape(-1) for n, x in part[key].items()}
    return plain(record)


def everything():
    """(the file, models in float64 and float32)"""
    models, hashes = [], []
    with tempfile.TemporaryDirectory() as folder:
        for options in MODELS:
            path, digest = make_model(folder, options)
            models.append((tt.Llama(path), tt.Llama(path, torch.float32)))
            same_as_others(path, models[-1][0])
            hashes.append(digest)
    cases = [flatten(compute(models, i)) for i in range(len(CASES))]
    versions = {"torch": torch.__version__, "numpy": np.__version__, "python": sys.version.split()[0]}
    heads = [{"args": a, "sha256": h} for a, h in zip(MODELS, hashes)]
    return {"versions": versions, "models": heads, "cases": cases}, models


def dump(data, path):
    with open(path, "w", encoding="ascii") as f:
        f.write('{"versions": %s,\n"models": %s,\n"cases": [\n' % (json.dumps(data["versions"]), json.dumps(data["models"])))
        f.write(",\n".join(json.dumps(c, separators=(",", ":")) for c in data["cases"]))
        f.write("\n]}\n")


# ---- checks

def differences(models, number, step=1e-6):
    """The derivative along a random direction against a central difference of the total loss."""
    _, m, _, _, _, setting, _ = CASES[number]
    case = compute(models, number)
    p = tt.Pack(case["packs"][0]["ids"], case["packs"][0]["first"])
    rng, worst = np.random.RandomState(9), 0.0
    for name in case["parameters"]:  # one tensor at a time, so that none hides behind another
        along = rng.standard_normal(case["parameters"][name].shape)
        sides = []
        for sign in (1, -1):
            moved = {**case["parameters"], name: case["parameters"][name] + sign * step * along}
            with torch.no_grad():
                sides.append(tt.losses(models[m][0], setting, {n: torch.tensor(v) for n, v in moved.items()}, p)[0]["total"].item())
        slope = float((case["grad"][name].numpy() * along).sum())
        size = float(case["grad"][name].norm())
        worst = max(worst, abs((sides[0] - sides[1]) / (2 * step) - slope) / size)
    return worst


def unlike(a, b, path=""):
    """where two JSON values differ by more than rounding"""
    if isinstance(a, dict):
        return next((u for k in a if (u := unlike(a[k], b.get(k), f"{path}/{k}"))), None)
    if isinstance(a, list):
        if not isinstance(b, list) or len(a) != len(b):
            return path
        return next((u for i, x in enumerate(a) if (u := unlike(x, b[i], f"{path}[{i}]"))), None)
    if isinstance(a, float):
        return None if isinstance(b, (int, float)) and abs(a - b) <= 1e-8 * abs(a) + 1e-12 else path
    return None if a == b else path


def check(path):
    known = json.loads(Path(path).read_text(encoding="ascii"))
    data, models = everything()
    bad = 0
    for i, (new, old) in enumerate(zip(data["cases"], known["cases"])):
        for record in (new, old):
            record.pop("f32"), record.get("steps", {}).pop("f32", None)
        where, slope = unlike(new, old), differences(models, i)
        print(f"{new['name']:20} {'differs at ' + where if where else 'equal'}; derivatives against differences: {slope:.1e}")
        bad += where is not None or not slope < 1e-5
    sys.exit(bad > 0)


def main():
    ap = argparse.ArgumentParser(description="golden numbers of gate training")
    ap.add_argument("-o", metavar="FILE")
    ap.add_argument("--check", metavar="FILE")
    a = ap.parse_args()
    torch.set_num_threads(1)
    if a.check:
        check(a.check)
    data, _ = everything()
    dump(data, a.o)
    for c in data["cases"]:
        print(c["name"], c["loss"], c["facts"], c["f32"], c.get("steps", {}).get("record"), c.get("steps", {}).get("f32"))


if __name__ == "__main__":
    main()
