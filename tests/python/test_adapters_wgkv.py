#!/usr/bin/env python3
"""usage: test_adapters_wgkv.py KVFATE LIBKVFTRACE SOURCE_ROOT [--theirs]

Tests kvfate.adapters.wgkv with a small model with WG-KV's published interface, and with WG-KV's
model files if KVFATE_WGKV names a checkout of them and KVFATE_WGKV_PYTHON a Python with the
required transformers, torch and einops. Attention is plain and records the entries that each query
saw. Sums of weights, evictions and their reasons are compared with these records, kept entries with
the lengths that the cache reports after each step, and scores with the gates. Skips if torch or
transformers are not installed; KVFATE_TORCH_PYTHON names a Python that has them."""
import importlib.util
import os
import subprocess
import sys
import tempfile

from capture_checks import KVFATE, LIBRARY, ROOT, begin, refused, stand_in

THEIRS, NEVER, LAYERS, HEADS = "--theirs" in sys.argv, 2**32 - 1, 2, 2
SELF = os.path.abspath(__file__)
begin("WG-KV's own files" if THEIRS else "WG-KV under capture", "torch", "transformers", *(["einops"] if THEIRS else []))
import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch._inductor.config  # noqa: E402,F401 - it looks for triton, and must not find a stand-in
from transformers import DynamicCache, GenerationMixin, LlamaConfig, LlamaForCausalLM  # noqa: E402,F401

from check import check, finish  # noqa: E402
import kvfate  # noqa: E402
from kvfate.adapters.wgkv import follow  # noqa: E402
from wgkv_seen import Seen  # noqa: E402

W, PROMPT, MORE = 64, 230, 90
SIZES = dict(vocab_size=300, hidden_size=64, intermediate_size=96, num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=HEADS, head_dim=16,
             max_position_embeddings=1024, pad_token_id=0, bos_token_id=None, eos_token_id=None, local_window_size=W, block_size=16, g_threshold=0.5,
             max_total_tokens=4096, max_tokens_per_head=512, snapkv_enabled=False, use_quest=False, g_defer=False, random_sparsity=None, g_ungate_count=0)
SNAPKV = dict(snapkv_enabled=True, snapkv_max_cached_tokens=300, snapkv_evict_ratio=0.2, snapkv_window_size=32)


def small(seen, **options):
    from wgkv_small import Attention
    config = LlamaConfig(**{**SIZES, **options})
    out = LlamaForCausalLM(config)
    for layer in out.model.layers:
        layer.self_attn = Attention(layer.self_attn, config, seen)
    return out


def loaded(name, file):
    """Loads a file of the checkout instead of transformers' own."""
    spec = importlib.util.spec_from_file_location("transformers." + name, os.path.join(os.environ["KVFATE_WGKV"], "src", file + ".py"))
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def theirs(family, seen, **options):
    if "transformers.modeling_layers.wgkv" not in sys.modules:
        for name in ("triton", "triton.language") if importlib.util.find_spec("triton") is None else ():
            stand_in(name)
        sys.modules["transformers.modeling_layers.wgkv"] = loaded("modeling_layers", "modeling_layers")
        for one in ("llama", "qwen3"):
            for part in ("configuration", "modeling"):
                loaded("models.%s.%s_%s" % (one, part, one), "%s_%s" % (part, one))
    module = sys.modules["transformers.models.%s.modeling_%s" % (family, family)]
    name = {"llama": "Llama", "qwen3": "Qwen3"}[family]
    config = getattr(module, name + "Config")(**{**SIZES, **options})
    config._attn_implementation = "sdpa"
    out = getattr(module, name + "ForCausalLM")(config)
    sys.modules["transformers.modeling_layers.wgkv"].flash_attn_with_kvcache = seen.token
    for layer in out.model.layers:
        layer.self_attn.prefill_kernel = seen.prompt
        layer.self_attn.g_predictors.conv2.weight.data.normal_(0, 2)  # different gate values
    return out


def run(make, path, **options):
    """Returns a captured run: (the trace, the entries that its queries saw, the lengths after each
    step, the gates of each layer [H][T])."""
    torch.manual_seed(1)
    seen, gates, lengths = Seen(LAYERS, PROMPT + MORE), {}, []
    subject = make(seen, **options).eval().float()
    subject.gating_mode = 3
    hooks = [layer.self_attn.g_predictors.register_forward_hook(lambda m, i, o, n=n: gates.setdefault(n, []).append(o[0]))
             for n, layer in enumerate(subject.model.layers)]
    before = [dict(vars(layer.self_attn)) for layer in subject.model.layers]
    with torch.no_grad(), kvfate.capture(subject, None, out=path, probes="full,shadow", existing="overwrite") as c, follow(c):
        cache, place, token = DynamicCache(), torch.arange(PROMPT), torch.randint(1, 300, (1, PROMPT))
        for _ in range(MORE + 1):
            out = subject(input_ids=token, past_key_values=cache, use_cache=True, cache_position=place, position_ids=place[None])
            lengths.append(cache.global_lengths.tolist())
            place, token = place[-1:] + 1, out.logits[:, -1:].argmax(-1)
            if place[0] == PROMPT + MORE:
                break
    for hook in hooks:
        hook.remove()
    check("the model is as before", all({k: v for k, v in vars(layer.self_attn).items() if "wrapper" in k} == {k: v for k, v in was.items() if "wrapper" in k}
                                        for layer, was in zip(subject.model.layers, before)))
    return kvfate.open(path), seen, np.array(lengths), {n: torch.cat([x for x in g if x.shape[1] != W], 1).numpy() for n, g in gates.items()}


def leaving(admitted):
    """Returns the step at which each entry [n] expires by admission only. Queries of a prompt see
    entries in blocks of 64."""
    i = np.arange(PROMPT + MORE)
    step = np.where(i + W < PROMPT, np.minimum(-(-(i + W) // 64) * 64, PROMPT), i + W)
    return np.where(admitted | (step >= PROMPT + MORE), NEVER, step)


def told(what, t, seen, lengths, gates, defer=False, packs=False, quest=False, silent=False):
    """defer: gates decide again later; packs: SnapKV also chooses; quest: queries read some pages;
    silent: gates do not decide."""
    T, fed = PROMPT + MORE, PROMPT + np.arange(MORE + 1)[:, None]
    entry = np.arange(T)
    for layer in range(LAYERS):
        check(what + ": weights", np.allclose(t["mass.sum"][layer], seen.mass[layer], atol=1e-4), layer)
        lost = (1 - t["shadow.kept_mass"][layer].astype(float)).sum(1)
        check(what + ": what is missed", np.allclose(lost, t["shadow.ghost_mass"][layer].astype(float).sum(1), atol=1e-3) and lost.max() > 0.01, lost)
        for head in range(HEADS):
            step, reason = t.evict_step[layer, head].astype(np.int64), t["evict_reason"][layer, head]
            last = (seen.what[layer][head] * torch.arange(T)[:, None]).amax(0).numpy()
            if not quest:
                check(what + ": evictions", ((step == last + 1) | ((last == T - 1) & (step >= T))).all(), layer, head)
            held = ((entry < fed - W) & (step > fed)).sum(1)
            check(what + ": as many as the cache says", held[:len(lengths)].tolist() == lengths[:, layer, head].tolist(), layer, head)
            refused_ones = (reason == 3) & (step != NEVER)
            if not defer and not silent:
                g = gates[layer][head]
                want = leaving(g > 0.5)
                check(what + ": refused", (step == want)[(g <= 0.5) | (not packs)].all() and (refused_ones == (want != NEVER)).all(), layer, head)
                check(what + ": gates", np.array_equal(t["evict_score"][layer, head][refused_ones], g[refused_ones]))
            margin = t["evict_margin"][layer, head]
            check(what + ": as silent as the gates", not silent or (np.isnan(margin).all() and refused_ones.any()))
            check(what + ": margins", silent or (margin[refused_ones] >= 0).all() and np.allclose((margin + t["evict_score"][layer, head])[refused_ones], 0.5))
            chosen = (reason == 1) & (step != NEVER)
            check(what + ": chosen", packs == bool(chosen.any()) and (margin[chosen] >= 0).all() and (chosen | refused_ones | (step == NEVER)).all(), reason)
    r = subprocess.run([KVFATE, "trace", "verify", "--full", t.path], capture_output=True, text=True)
    check(what + ": verify", r.returncode == 0, r.stderr)
    name = "wgkv-snapkv" if packs else "wgkv-quest" if quest else "wgkv"
    check(what + ": method", t.meta["method"]["name"] == name and t.meta["method"]["local"] == W, t.meta["method"])


def refusals():
    subject = small(Seen(LAYERS, 8))
    subject.gating_mode = 0

    def other(model):
        with kvfate.capture(model, None, out="other.kvf", existing="overwrite") as c, follow(c):
            pass
    refused("a mode that does not infer", ["gating_mode", "3"], lambda: other(subject))
    refused("another model", ["LlamaAttention", "prefill_wrapper"], lambda: other(LlamaForCausalLM(LlamaConfig(**SIZES))))


def their_code():
    for family, options in (("llama", {}), ("llama", {"g_defer": True}), ("llama", {"random_sparsity": 0.5}), ("llama", SNAPKV), ("qwen3", {}), ("qwen3", {"use_quest": True, "quest_token_budget": 112})):
        what = "%s, %s" % (family, ", ".join(options) or "gates alone")
        told(what, *run(lambda seen, **o: theirs(family, seen, **o), "theirs.kvf", **options), defer="g_defer" in options, packs=options is SNAPKV, quest="use_quest" in options,
             silent="random_sparsity" in options)


with tempfile.TemporaryDirectory() as FOLDER:
    os.chdir(FOLDER)
    if THEIRS:
        their_code()
        finish()
    told("small", *run(small, "small.kvf"))
    told("small, packed", *run(small, "packed.kvf", **SNAPKV), packs=True)
    refusals()
    python = os.environ.get("KVFATE_WGKV_PYTHON")
    if python and os.environ.get("KVFATE_WGKV"):
        r = subprocess.run([python, SELF, KVFATE, LIBRARY, ROOT, "--theirs"], capture_output=True, text=True)
        print(r.stdout, end="")
        check("WG-KV's own files", r.returncode == 0, r.returncode, r.stderr[-2000:])
    else:
        print("WG-KV's own files were not run: KVFATE_WGKV names a checkout of them, KVFATE_WGKV_PYTHON a Python with their transformers")
finish()
