#!/usr/bin/env python3
"""usage: capture_rounding.py KVFATE [--tokens 480] [--answer 20] [--folder KEEP]

Test if the default model differs by more than rounding between the program and kvfate.capture.  The reference is the
model in float64, with attention scored in float64. It is compared with these float32 runs: the program's --exact;
the capture; the capture of a model that sums matrix multiplications as the program does, in a chain of fused steps;
the capture of a model with permuted hidden units, which is equal in exact arithmetic; and the float64 model with
random rounding errors of such chains, twice.  The script prints how many cells of sets and how many numbers of each
differ from float64, and at which tokens.  It needs torch, transformers, gguf, a C compiler, LD_LIBRARY_PATH with
libkvftrace.so.0, and some minutes.
"""
import argparse
import contextlib
import ctypes
import os
import re
import subprocess
import sys
import tempfile
import types
from unittest import mock

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(ROOT, "python")]
import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

import kvfate  # noqa: E402
from kvfate import capture_torch  # noqa: E402

FOLDER, FILE = os.path.expanduser("~/.cache/kvfate"), "SmolLM2-135M-Instruct.Q4_1.gguf"
UNIT = 2.0**-24  # of rounding to float32
CHAIN = """
#include <math.h>
void chain(float *out, const float *x, const float *w, long T, long K, long N)
{
    for (long t = 0; t < T; t++)
        for (long at = 0; at < N; at += 64) {
            float acc[64] = {0};
            for (long k = 0; k < K; k++)
                for (int j = 0; j < 64; j++)
                    acc[j] = fmaf(x[t * K + k], w[k * N + at + j], acc[j]);
            for (int j = 0; j < 64; j++)
                out[t * N + at + j] = acc[j];
        }
}
"""


def load():
    """Load the model in float32, with the angles of its positions in float64, as the program computes them."""
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, gguf_file=FILE, dtype=torch.float32)
    frequency = model.config.rope_parameters["rope_theta"]**(-torch.arange(0, model.config.head_dim, 2, dtype=torch.float64) / model.config.head_dim)

    def forward(x, position_ids, **_):
        angle = (position_ids[..., None].double() * frequency).repeat(1, 1, 2)
        return angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    model.model.rotary_emb.forward = forward
    return model


def products(model, how):
    """Compute all matrix multiplications of the layers by how(x, layer)."""
    for part in model.model.layers.modules():
        if isinstance(part, torch.nn.Linear):
            part.forward = types.MethodType(lambda self, x: how(x, self), part)
    return model


def chained(model):
    with open("chain.c", "w") as f:
        f.write(CHAIN)
    subprocess.run(["cc", "-O3", "-march=native", "-ffp-contract=off", "-shared", "-fPIC", "-o", "chain.so", "chain.c", "-lm"], check=True)
    chain = ctypes.CDLL(os.path.abspath("chain.so")).chain

    def how(x, layer):
        rows, turned = x.reshape(-1, x.shape[-1]).contiguous(), layer.weight.T.contiguous()
        out = torch.empty(len(rows), turned.shape[1])
        if turned.shape[1] % 64:
            sys.exit("capture_rounding.py: a product of %d columns, which are no multiple of 64" % turned.shape[1])
        chain(*(ctypes.c_void_p(t.data_ptr()) for t in (out, rows, turned)), *(ctypes.c_long(n) for n in (*rows.shape, out.shape[1])))
        return out.reshape(*x.shape[:-1], -1)
    return products(model, how)


def permuted(model):
    """Permute the hidden units of the model and of the feed-forward blocks."""
    order = torch.Generator().manual_seed(5)
    inner = model.model
    p = torch.randperm(inner.embed_tokens.weight.shape[1], generator=order)
    with torch.no_grad():
        inner.embed_tokens.weight.copy_(inner.embed_tokens.weight[:, p].clone())
        if model.lm_head.weight.data_ptr() != inner.embed_tokens.weight.data_ptr():
            model.lm_head.weight.copy_(model.lm_head.weight[:, p].clone())
        for norm in (inner.norm, *(n for x in inner.layers for n in (x.input_layernorm, x.post_attention_layernorm))):
            norm.weight.copy_(norm.weight[p].clone())
        for layer in inner.layers:
            a, f = layer.self_attn, layer.mlp
            r = torch.randperm(len(f.up_proj.weight), generator=order)
            for part in (a.q_proj, a.k_proj, a.v_proj, f.gate_proj, f.up_proj):
                part.weight.copy_(part.weight[:, p].clone())
            for part in (f.gate_proj, f.up_proj):
                part.weight.copy_(part.weight[r].clone())
            a.o_proj.weight.copy_(a.o_proj.weight[p].clone())
            f.down_proj.weight.copy_(f.down_proj.weight[p][:, r].clone())
    return model


def rounded(model, seed):
    """Add the rounding error of a chain of K products, UNIT sqrt(K / 6) |products|: each step rounds a partial sum,
    which grows like a random walk.
    """
    chance = torch.Generator().manual_seed(seed)

    def how(x, layer):
        y, size = (torch.nn.functional.linear(a, w) for a, w in ((x, layer.weight), (x**2, layer.weight**2)))
        return y + torch.randn(y.shape, dtype=y.dtype, generator=chance) * size.sqrt() * (UNIT * (x.shape[-1] / 6)**.5)
    return products(model.double(), how)


class Wide(capture_torch.TorchArrays):
    """Score attention in float64."""
    f32 = torch.float64


def captured(model, ids, prompt, path, wide=False):
    with contextlib.ExitStack() as stack:
        if wide:
            stack.enter_context(mock.patch.object(torch.Tensor, "float", torch.Tensor.double))
            stack.enter_context(mock.patch.object(capture_torch, "TorchArrays", Wide))
        with kvfate.capture(model, None, out=path, probes="full", existing="overwrite") as c:
            c.read(ids, prompt=prompt)
    return kvfate.open(path)


def parts(trace, name):
    """Return a column layer by layer, in float64."""
    column = trace[name]
    return [column[:][None].astype(float)] if column.space == "run" else [column[layer].astype(float) for layer in range(len(trace.heads))]


def against(truth, trace):
    """Return (differing cells of sets, cells), and for sums, maxima, norms and likelihoods (number beyond 1e-5,
    numbers, maximum, {token: number}).
    """
    sets, beyond, most, where = [0, 0], [0, 0], 0.0, {}
    for name, column in truth.columns.items():
        is_set = name.startswith("last_selected")
        if not is_set and (column.dtype.kind != "f" or re.match("useful|dilution", name)):
            continue  # counts of sets and fractions of their mass follow from the sets
        for x, y in zip(parts(truth, name), parts(trace, name)):
            with np.errstate(invalid="ignore"):
                off = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0, np.abs(x - y) / np.maximum(1, np.abs(x)))
            count = sets if is_set else beyond
            odd = off > (0 if is_set else 1e-5)
            count[0], count[1] = count[0] + int(odd.sum()), count[1] + odd.size
            if not is_set:
                most = max(most, float(off.max()))
                for token in np.argwhere(odd)[:, -1]:
                    where[int(token)] = where.get(int(token), 0) + 1
    return sets, (*beyond, most, where)


def say(what, truth, trace):
    sets, (n, of, most, where) = against(truth, trace)
    first = ", ".join("%d at token %d" % (k, t) for t, k in sorted(where.items(), key=lambda x: -x[1])[:3])
    print("%-62s %4d of %d cells of sets; %4d of %d numbers beyond 1e-5, most %.1e%s" % (what, *sets, n, of, most, first and "; " + first), flush=True)


def main():
    p = argparse.ArgumentParser(usage=__doc__.split("\n\n")[0].removeprefix("usage: "))
    p.add_argument("kvfate", type=os.path.abspath)
    p.add_argument("--tokens", type=int, default=480)
    p.add_argument("--answer", type=int, default=20)
    p.add_argument("--folder", help="where the traces are kept")
    a = p.parse_args()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with open(os.path.join(ROOT, "docs/guide/own-method.md")) as f:
        ids = transformers.AutoTokenizer.from_pretrained(FOLDER, gguf_file=FILE)(f.read())["input_ids"][:a.tokens]
    with tempfile.TemporaryDirectory() as scratch:
        os.makedirs(a.folder or scratch, exist_ok=True)
        os.chdir(a.folder or scratch)
        with open("ids", "w") as f:
            f.write(" ".join(map(str, ids)))
        subprocess.run([a.kvfate, "run", "--ids", "ids", "-n", str(a.answer), "--ignore-eos", "--method", "full", "--probes", "full", "--exact", "-o", "program.kvf",
                        "--overwrite", "-q"], check=True, stdout=subprocess.DEVNULL)
        program = kvfate.open("program.kvf")
        ids = program["tokens.id"][:].astype(int)

        def run(model, name, wide=False):
            return captured(model, ids, a.tokens, name + ".kvf", wide)
        truth = run(load().double(), "truth", True)
        say("the program, --exact", truth, program)
        say("capture", truth, run(load(), "capture"))
        chain = run(chained(load()), "chain")
        say("capture, products summed as the program does", truth, chain)
        say("  the same against the program in place of float64", program, chain)
        say("capture, hidden units in another order", truth, run(permuted(load()), "permuted"))
        for seed in (1, 2):
            say("float64 with the rounding of such chains by chance, %d" % seed, truth, run(rounded(load(), seed), "rounded-%d" % seed, True))


if __name__ == "__main__":
    main()
