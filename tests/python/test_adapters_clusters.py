#!/usr/bin/env python3
"""usage: test_adapters_clusters.py KVFATE LIBKVFTRACE SOURCE_ROOT

kvfate.adapters.clusters: compressors that stand at attention modules, as R-KV's authors publish them.  What stays is told by values that hold
the position of each entry, so that evictions are known beside the adapter, which looks at keys.  KVFATE_RKV names a checkout of R-KV, whose
own compressors and attention run then with the transformers that KVFATE_RKV_PYTHON has (4.51 to 4.53); else a small one made after them.
Skips where torch and transformers are not installed; KVFATE_TORCH_PYTHON names a Python that has them."""
import os
import subprocess
import sys
import tempfile

from capture_checks import KVFATE, begin, refused

if os.environ.get("KVFATE_RKV") and os.environ.get("KVFATE_RKV_PYTHON"):
    os.environ["KVFATE_TORCH_PYTHON"] = os.environ.pop("KVFATE_RKV_PYTHON")
begin("compressors of attention modules under capture", "torch", "transformers")
import numpy as np  # noqa: E402
import torch  # noqa: E402
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM  # noqa: E402

from check import check, finish  # noqa: E402
import kvfate  # noqa: E402
from kvfate.adapters.clusters import follow  # noqa: E402

NEVER, LAYERS, HEADS, BUDGET, PROMPT, MORE = 2**32 - 1, 2, 2, 24, 60, 40
SIZES = dict(vocab_size=300, hidden_size=64, intermediate_size=96, num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=HEADS,
             max_position_embeddings=512, eos_token_id=None, bos_token_id=None, pad_token_id=0)


class Longest:
    """A compressor after R-KV's pattern: of each head the entries with the longest keys stay, and the last 8."""
    budget = BUDGET

    def update_kv(self, key_states, query_states, value_states):
        if key_states.shape[2] < self.budget:
            return key_states, value_states
        at = key_states[:, :, :-8].norm(dim=-1).topk(self.budget - 8, dim=-1).indices[..., None]
        return tuple(torch.cat([x[:, :, :-8].gather(2, at.expand(-1, -1, -1, x.shape[3])), x[:, :, -8:]], 2) for x in (key_states, value_states))


def small():
    """Compressors that cut after the prompt and every 16 steps, when the attention of the step was computed."""
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


def theirs(method):
    """R-KV's own classes in place of transformers' for Llama."""
    sys.path.insert(0, os.environ["KVFATE_RKV"])
    import rkv.monkeypatch
    rkv.monkeypatch.replace_llama({"method": method, "method_config": {"budget": BUDGET, "window_size": 8, "first_tokens": 4}, "compression": None, "update_kv": True,
                                   "compression_content": "all", "divide_method": "step_length", "divide_length": 16})
    model = LlamaForCausalLM(LlamaConfig(**SIZES)).eval()
    model.config.update({"compression": None})
    return model


def run(model, path):
    """The trace of a run, and what each compression took: {layer: [(tokens fed, positions [heads][n])]}."""
    took, known = {layer: [] for layer in range(LAYERS)}, {}
    clusters = {layer.self_attn.kv_cluster: i for i, layer in enumerate(model.model.layers)}
    inner = {}
    for cluster, i in clusters.items():
        def noted(k, q, v, i=i, cluster=cluster):
            before = torch.cat([known.get(i, torch.zeros(HEADS, 0)), torch.arange(known[i].max() + 1 if i in known else 0, model.fed).expand(HEADS, -1).float()], 1)
            marked = torch.cat([v[..., :-1], before[None, ..., None]], -1)  # the position in the last place of each value
            k2, v2 = inner[cluster](k, q, marked)
            known[i] = v2[0, :, :, -1]
            took[i].append((model.fed, known[i].long().numpy()))
            real = inner[cluster](k, q, v)
            return real
        inner[cluster] = cluster.update_kv
        cluster.update_kv = noted
    ids, cache = torch.tensor(np.random.default_rng(5).integers(3, 300, (1, PROMPT + MORE))), DynamicCache()
    with torch.no_grad(), kvfate.capture(model, None, out=path, probes="full,shadow", existing="overwrite") as c, follow(c):
        for a, b in [(0, PROMPT), *((t, t + 1) for t in range(PROMPT, PROMPT + MORE))]:
            model.fed = b
            place = torch.arange(a, b)
            model(ids[:, a:b], past_key_values=cache, position_ids=place[None], cache_position=place, use_cache=True)
    check("as it was", all(c.update_kv.__name__ == "noted" for c in clusters))
    return kvfate.open(path), took


def judged(name, t, took):
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
    check(name + ": verify", subprocess.run([KVFATE, "verify", "--full", t.path], capture_output=True).returncode == 0)
    check(name + ": tables", len(kvfate.table("occupancy", t)) > 0 and len(kvfate.table("regret", t)) > 0)
    print("%s: %d compressions, method %s" % (name, sum(map(len, took.values())), t.meta["method"]))


with tempfile.TemporaryDirectory() as FOLDER:
    os.chdir(FOLDER)
    torch.manual_seed(2)
    if os.environ.get("KVFATE_RKV"):
        for method in ("rkv", "snapkv", "streamingllm"):
            judged("R-KV's " + method, *run(theirs(method), method + ".kvf"))
    else:
        judged("a small one", *run(small(), "small.kvf"))
        plain = LlamaForCausalLM(LlamaConfig(**SIZES))

        def without():
            with kvfate.capture(plain, None, out="none.kvf") as c, follow(c):
                pass
        refused("no compressors", ["LlamaForCausalLM", "kv_cluster", "before the model is made"], without)
finish()
