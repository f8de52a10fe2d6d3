#!/usr/bin/env python3
"""usage: test_adapters_clusters.py KVFATE LIBKVFTRACE SOURCE_ROOT

Tests kvfate.adapters.clusters and positions with compressors that are attached to attention
modules, as the authors of R-KV and of G-KV publish them. The kept entries are identified by values
that store their positions, independently of the adapters, which compare keys, and of the positions
in G-KV's caches. If KVFATE_RKV names a checkout of R-KV, or KVFATE_GKV one of G-KV, its
compressors, attention and generation run with the transformers in KVFATE_CLUSTERS_PYTHON (4.51).
Otherwise a small compressor in their style runs. Skips if torch and transformers are not installed;
KVFATE_TORCH_PYTHON names a Python that has them."""
import os
import subprocess
import sys
import tempfile

from capture_checks import KVFATE, begin, refused

RKV, GKV = (os.environ.get("KVFATE_" + name) for name in ("RKV", "GKV"))
if (RKV or GKV) and os.environ.get("KVFATE_CLUSTERS_PYTHON"):
    os.environ["KVFATE_TORCH_PYTHON"] = os.environ.pop("KVFATE_CLUSTERS_PYTHON")
begin("compressors of attention modules under capture", "torch", "transformers")
import numpy as np  # noqa: E402
import torch  # noqa: E402
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM  # noqa: E402

from check import check, finish  # noqa: E402
import kvfate  # noqa: E402
from kvfate.adapters import clusters, positions  # noqa: E402

NEVER, LAYERS, HEADS, BUDGET, PROMPT, MORE = 2**32 - 1, 2, 2, 24, 60, 40
SIZES = dict(vocab_size=300, hidden_size=64, intermediate_size=96, num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=HEADS,
             max_position_embeddings=512, eos_token_id=None, bos_token_id=None, pad_token_id=0)


class Longest:
    """A compressor in R-KV's pattern: each head keeps the entries with the longest keys, and the
    last 8."""
    budget = BUDGET

    def update_kv(self, key_states, query_states, value_states):
        if key_states.shape[2] < self.budget:
            return key_states, value_states
        at = key_states[:, :, :-8].norm(dim=-1).topk(self.budget - 8, dim=-1).indices[..., None]
        return tuple(torch.cat([x[:, :, :-8].gather(2, at.expand(-1, -1, -1, x.shape[3])), x[:, :, -8:]], 2) for x in (key_states, value_states))


def small():
    """Compressors that evict after the prompt and every 16 steps, after the attention of the
    step."""
    model = LlamaForCausalLM(LlamaConfig(**SIZES)).eval()

    def cut(module, args, kwargs, out):
        cache, layer = kwargs["past_key_values"], module.layer_idx
        held = cache.layers[layer]
        if model.fed == PROMPT or (model.fed - PROMPT) % 16 == 0:
            held.keys, held.values = module.kv_cluster.update_kv(held.keys, None, held.values)
    for layer in model.model.layers:
        layer.self_attn.kv_cluster = Longest()
        layer.self_attn.register_forward_hook(cut, with_kwargs=True)
    return model


def of_rkv(method):
    """R-KV's classes instead of transformers' for Llama."""
    sys.path.insert(0, RKV)
    import rkv.monkeypatch
    rkv.monkeypatch.replace_llama({"method": method, "method_config": {"budget": BUDGET, "window_size": 8, "first_tokens": 4}, "compression": None, "update_kv": True,
                                   "compression_content": "all", "divide_method": "step_length", "divide_length": 16})
    model = LlamaForCausalLM(LlamaConfig(**SIZES)).eval()
    model.config.update({"compression": None})
    return model


def of_gkv(options):
    """G-KV's Llama, whose caches store positions."""
    from gkv.model.modeling_llama import LlamaForCausalLM as Theirs
    method = {"budget": BUDGET, "window_size": 8, "divide_length": 16, "method": "score", "enable_score_cache": False, "smooth_method": "max", **options}
    config = LlamaConfig(**SIZES, method="score", method_config=method, divide_length=16, record_pos_ids=True, return_sparse_mask=False)
    config._attn_implementation = "sdpa"
    return Theirs(config).eval()


def marked(model, took):
    """Wraps the compressors so that each runs a second time with values that store positions.
    Records the kept entries as {layer: [(tokens so far, positions [batch][heads][n])]}."""
    for layer, block in enumerate(model.model.layers):
        cluster, known, took[layer] = block.self_attn.kv_cluster, [], []

        def noted(key_states, query_states, value_states, *args, inner=cluster.update_kv, layer=layer, known=known, **kwargs):
            fed = kwargs.get("cur_len", model.fed)
            old = known[0] if known else torch.zeros(*value_states.shape[:2], 0)
            since = torch.arange(took[layer][-1][0] if known else 0, fed)
            values = value_states.clone()
            values[..., 0] = torch.cat([old, since.expand(*old.shape[:2], -1).float()], 2)
            result = inner(key_states=key_states, query_states=query_states, value_states=values, *args, **kwargs)
            known[:] = [result[1][..., 0]]
            took[layer].append((fed, known[0].long().numpy()))
            return inner(key_states=key_states, query_states=query_states, value_states=value_states, *args, **kwargs)
        cluster.update_kv = noted


def of_sequence(took, b):
    return {layer: [(fed, kept[b]) for fed, kept in took[layer]] for layer in took}


def texts(rows):
    return torch.tensor(np.random.default_rng(5).integers(3, 300, (rows, PROMPT + MORE)))


def by_steps(model, path):
    """Returns the trace of a run with given tokens, and the entries that its compressors kept."""
    took, cache = {}, DynamicCache()
    marked(model, took)
    with torch.no_grad(), kvfate.capture(model, None, out=path, probes="full,shadow", existing="overwrite") as c, clusters.follow(c):
        for a, b in [(0, PROMPT), *((t, t + 1) for t in range(PROMPT, PROMPT + MORE))]:
            model.fed = b
            place = torch.arange(a, b)
            model(texts(1)[:, a:b], past_key_values=cache, position_ids=place[None], cache_position=place, use_cache=True)
    check("as it was", all(block.self_attn.kv_cluster.update_kv.__name__ == "noted" for block in model.model.layers))
    return kvfate.open(path), of_sequence(took, 0)


def by_generate(model, path):
    """Returns the traces of a batch of two from G-KV's own generation, and the entries that the
    compressors kept of each sequence."""
    took, ids = {}, texts(2)[:, :PROMPT]
    model.fed = None
    marked(model, took)
    with kvfate.capture(model, None, out=path, probes="full,shadow", existing="overwrite") as c, positions.follow(c):
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=MORE, min_new_tokens=MORE, do_sample=False)
    return [(kvfate.open(one), of_sequence(took, b)) for b, one in enumerate(c.paths)]


def judged(name, t, took):
    """Compares a trace with the kept entries, for each layer and head."""
    left = 0
    for layer in range(LAYERS):
        for head in range(HEADS):
            want, held = np.full(t.steps, NEVER), set(range(took[layer][0][0]))
            last = took[layer][0][0]
            for fed, positions in took[layer]:
                held |= set(range(last, fed))
                for i in held - set(positions[head].tolist()):
                    want[i] = fed
                held, last, left = set(positions[head].tolist()), fed, left + 1
            want[want >= t.steps] = NEVER
            got = t.evict_step[layer, head].astype(np.int64)
            got[got >= t.steps] = NEVER
            check("%s: evictions of layer %d, head %d" % (name, layer, head), np.array_equal(got, want), got, want)
        check(name + ": rows", np.allclose(t["mass.sum"][layer].astype(float).sum(1), t.steps, atol=1e-3))
    check(name + ": something left", sum((t.evict_step[layer] < t.steps).sum() for layer in range(LAYERS)) > 100, left)
    check(name + ": verify", subprocess.run([KVFATE, "trace", "verify", "--full", t.path], capture_output=True).returncode == 0)
    check(name + ": tables", len(kvfate.table("occupancy", t)) > 0 and len(kvfate.table("regret", t)) > 0)
    print("%s: %d compressions, method %s" % (name, sum(map(len, took.values())), t.meta["method"]))


def without():
    with kvfate.capture(LlamaForCausalLM(LlamaConfig(**SIZES)), None, out="none.kvf") as c, clusters.follow(c):
        pass


with tempfile.TemporaryDirectory() as FOLDER:
    os.chdir(FOLDER)
    torch.manual_seed(2)
    if GKV:
        sys.path.insert(0, GKV)
        from gkv.model.gen_patch import patch_sample
        patch_sample()
        redundancy = {"suppressing_redundancy": True, "triton_similarity": False}
        for name, more in (("G-KV", {"enable_score_cache": True, "alpha": .8, "mix_lambda": .5, **redundancy}), ("R-KV", {"enable_pooling": True, "mix_lambda": .1, **redundancy}),
                           ("SnapKV", {"enable_pooling": True}),  # their H2O accepts no prompt longer than the budget
                           ("H2O", {"enable_score_cache": True, "smooth_method": "sum", "alpha": 1, "window_size": 1, "budget": PROMPT + 4})):
            for sequence, (trace, left) in enumerate(by_generate(of_gkv(more), name + ".kvf")):
                judged("%s as G-KV's authors run it, sequence %d" % (name, sequence), trace, left)
    elif RKV:
        for method in ("rkv", "snapkv", "streamingllm"):
            judged("R-KV's " + method, *by_steps(of_rkv(method), method + ".kvf"))
    else:
        judged("a small one", *by_steps(small(), "small.kvf"))
        refused("no compressors", ["LlamaForCausalLM", "kv_cluster", "before the model is made"], without)
finish()
