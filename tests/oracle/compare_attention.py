#!/usr/bin/env python3
"""Compare kvfate attention with the attention of PyTorch on real models.

usage: compare_attention.py KVFATE [MODEL...] [--tokens 640]

MODEL is a name of `kvfate models`; the default is SmolLM2-135M and Gemma-3-270M.  The script needs torch, transformers, gguf and numpy.

The reference is the model class of transformers with eager attention in float32, on the weights that transformers dequantises from the GGUF file.  kvfate runs
with --exact (f32 weights, activations and cache) and records three heads with --probes raw:HEADS.  Two runs are compared:

  full     with a full cache: the attention weights that transformers returns (output_attentions)
  evicted  with h2o, which evicts from the first chunks of the prompt on: transformers computes all layers with a mask for each KV head that hides entry i
           from query t where evict_step of the trace is t or less

In both runs every weight must agree to 1e-5, and entries that a query does not see must have the weight 0.  The first 512 tokens and more exceed the window of the
local layers of Gemma 3.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, logging
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "python"))
import kvfate  # noqa: E402
from kvfate.model_list import MODELS  # noqa: E402

LIMIT = 1e-5
TEXT = ("The library of the old town has a room that nobody enters in winter. ", "A clerk counts the maps every spring and writes the sum into a green book. ",
        "Two of them show rivers that moved since they were drawn, and one shows a bridge that was never built. ", "Who asks for the third map gets a chair, a lamp and a cup of tea. ")
METHODS = {"full": [], "evicted": ["--method", "h2o:chunk=32", "-B", "96"]}


def weights_of(path):
    """Returns the model of transformers with the dequantised weights of a GGUF file."""
    config = AutoConfig.for_model(**load_gguf_checkpoint(path)["config"])
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    missing = model.load_state_dict(load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)["tensors"], strict=False)
    assert set(missing.missing_keys) <= {"lm_head.weight"} and not missing.unexpected_keys, missing
    model.tie_weights()
    return model.eval()


class Masked:
    """Eager attention with one mask for each layer and KV head: visible[layer][head, t, i]."""

    def __init__(self, visible):
        self.visible, self.weights = visible, {}

    def __call__(self, module, query, key, value, attention_mask, scaling=None, **_):
        share = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(share, dim=1), value.repeat_interleave(share, dim=1)
        visible = torch.from_numpy(self.visible[module.layer_idx]).repeat_interleave(share, dim=0)
        logits = (query @ key.transpose(2, 3) * scaling).masked_fill(~visible, -torch.inf)
        self.weights[module.layer_idx] = torch.softmax(logits, dim=-1)
        return (self.weights[module.layer_idx] @ value).transpose(1, 2).contiguous(), None


def visible_of(trace):
    """Returns the entries that each query saw by evict_step, [layer][head, t, i]."""
    step = np.arange(trace.steps)
    # unsigned: all ones are entries that were never evicted
    return [(step[None, None, :] <= step[None, :, None]) & (trace["evict_step"][layer, :][:, None, :] > step[None, :, None]) for layer in range(len(trace.heads))]


def reference(model, ids, visible):
    with torch.no_grad():
        if visible is None:
            return dict(enumerate(model(torch.tensor([ids]), output_attentions=True).attentions))
        masked = Masked(visible)
        ALL_ATTENTION_FUNCTIONS.register("masked", masked)
        ALL_MASK_ATTENTION_FUNCTIONS.register("masked", ALL_MASK_ATTENTION_FUNCTIONS["eager"])
        model.set_attn_implementation("masked")
        model(torch.tensor([ids]))
        model.set_attn_implementation("eager")
        return masked.weights


def map_of(program, path, head, steps):
    """Returns the map [t, i] that kvfate attention writes, 0 above the diagonal, and the fraction of cached entries."""
    out = path + ".npz"
    subprocess.run([program, "attention", path, "--head", "%d.%d" % head, "--boxes", "4096", "-o", out], check=True, stdout=subprocess.DEVNULL)
    table, weight, cached = np.load(out), np.zeros((steps, steps)), np.zeros((steps, steps))
    weight[table["query"], table["token"]] = table["attention"]
    cached[table["query"], table["token"]] = table["cached"]
    return weight, cached


def compare(program, model_name, model, heads, tokens, folder):
    worst = 0
    for run, method in METHODS.items():
        path = os.path.join(folder, run + ".kvf")
        text = "".join(TEXT[i % len(TEXT)].replace("map", "map %d" % i) for i in range(tokens // 18))
        subprocess.run([program, "run", "-m", model_name, "-p", text, "-n", "16", "--exact", "--probes", "lean,raw:" + ",".join("%d.%d" % h for h in heads),
                        "-o", path, "--overwrite", *method], check=True, capture_output=True)
        with kvfate.open(path) as trace:
            ids, visible = trace["tokens.id"][:].tolist(), visible_of(trace)
            want = reference(model, ids, None if run == "full" else visible)
            for layer, head in heads:
                got, cached = map_of(program, path, (layer, head), trace.steps)
                theirs = want[layer][0, head].double().numpy()
                share = trace.heads[layer][1] // trace.heads[layer][0]
                assert np.array_equal(cached == 1, visible[layer][head // share]) and not got[cached == 0].any()
                difference = np.abs(got - theirs).max()
                worst = max(worst, difference)
                print("%-14s %-8s L%dH%d: %d tokens, %4.1f %% of the entries not cached, largest difference %.2g" % (
                    model_name, run, layer, head, trace.steps, 100 * (1 - visible[layer][head // share].sum() / np.tri(trace.steps).sum()), difference))
    return worst


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("models", nargs="*", default=["smollm2-135m", "gemma-3-270m"])
    parser.add_argument("--tokens", type=int, default=640)
    args = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.manual_seed(0)
    program, worst = os.path.abspath(args.program), 0
    with tempfile.TemporaryDirectory() as folder:
        for name in args.models:
            files = {m.name: m.file for m in MODELS}
            model = weights_of(os.path.join(os.path.expanduser("~/.cache/kvfate"), files[name]))
            layers, heads = model.config.num_hidden_layers, model.config.num_attention_heads
            worst = max(worst, compare(program, name, model, [(0, 1), (layers // 2, 0), (layers - 1, heads - 1)], args.tokens, folder))
    print("largest difference of all weights: %.2g, limit %g" % (worst, LIMIT))
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
