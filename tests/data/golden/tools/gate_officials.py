"""Runs the published code of methods with learned gates and of methods that choose at read time, on the CPU, from
source trees at a path given by the user; like method_officials.py, which does the cutting.  Every driver takes
(trees, spec, params) and returns the "out" object of a case."""
import ast
import dataclasses
import os
import types

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from method_inputs import Draws, Inputs, log_betas
from method_officials import Watch, causal, rows, tensor

# name: (repository, commit, {file: first 16 hex digits of its sha256})
SOURCES = {
    "trimkv": ("ngocbh/trimkv", "0456bc4eb5bc20972c7463cabf3ae859e498f7f6", {
        "src/trimkv/cache_utils.py": "4eac44294bcce570"}),
    "trimkv-2026": ("HieuNT91/trimkv", "03e5c5069791a77b061e09fa747f378c87a2e7c1", {
        "src/trimkv/cache_utils.py": "c75bfc860e32af6d",
        "src/trimkv/models/qwen3/modeling_trimkv_qwen3.py": "9fdec3ee6e28177e"}),
    "WG-KV": ("EMCLab-Sinica/WG-KV", "a6943894eeeda111d29d3c56320112a6f789bf6f", {
        "src/modeling_layers.py": "553a6d1f39aa5e8b"}),
    "Quest": ("mit-han-lab/Quest", "01c1623bf9395009520874e989e29f683203b357", {
        "evaluation/quest_attention.py": "d5ecfaddcd275a23"}),
    "duo-attention": ("mit-han-lab/duo-attention", "fe93c314ae87306ef6629dc16713250b4718ffe7", {
        "duo_attn/utils.py": "cd68de20d6928b90",
        "duo_attn/patch/streaming_attn.py": "46cf6dc444e2ac48",
        "duo_attn/patch/static_kv_cache.py": "91b979a0b7bb7148"}),
    "Locret": ("huangyuxiang03/Locret", "28995c5ad6e6cc263913eb73fb76a4942f3dbf75", {
        "locret/inference/infer.py": "a0cf894651efbcb8",
        "locret/models/llama/modeling_llama.py": "53c316ea2aff7a97"}),
    "SeerAttention": ("microsoft/SeerAttention", "aba03e3f2caefd0ccd21e576670aa830b748c84e", {
        "seer_attn/decode_sparse/attn_gate_inf.py": "43796a76975214fa",
        "seer_attn/decode_sparse/cache_utils.py": "4f1c0f9f9b023b05",
        "seer_attn/modules/common.py": "3a8aaea8aa17d43a"}),
    "KVCache-Factory": ("Zefan-Cai/KVCache-Factory", "c97f9d706d63d1b56e980f8b81b2a924c21162b3", {
        "pyramidkv/quest.py": "f67200907e8b1d16",
        "pyramidkv/scissorhands.py": "a1b8f2491f967dba"}),
    "H2O": ("FMInference/H2O", "ac75c2a8a9e76832b2a4139b9363373b56336bfb", {
        "h2o_hf/utils_hh/modify_llama.py": "73ed723a4f8b911c"}),
    "kvpress": ("NVIDIA/kvpress", "8bb29b9c3078452a86d692f29123fa6c793e2b05", {
        "kvpress/presses/duo_attention_press.py": "404d90836d053aee"}),
}

SILU = {"silu": F.silu}


def parameter(x):
    return nn.Parameter(torch.from_numpy(np.ascontiguousarray(x)), requires_grad=False)


def listed(mask):
    """boolean [..., n] -> positions"""
    return [int(j) for j in np.flatnonzero(mask)]


# ---- TRIM-KV and DBTrimKV

def trimkv_gate(trees, spec, p):
    draws, n, d, width, H = Draws(spec["seed"]), *(spec[key] for key in ("n", "d", "I", "H"))
    code = trees.cut("trimkv-2026", "src/trimkv/models/qwen3/modeling_trimkv_qwen3.py",
                     ["RetentionGate", "RetentionGate10"], ACT2FN=SILU)
    config = types.SimpleNamespace(hidden_size=d, retention_gate_intermediate_size=width, num_key_value_heads=H,
                                   hidden_act="silu", retention_gate_bias_init=p["bias"])
    gate = {"rg": code.RetentionGate, "rg10": code.RetentionGate10}[p["gate"]](config)
    x = torch.from_numpy(draws.take(n, d, scale=2))[None]
    gate.linear1.weight, gate.linear1.bias = parameter(draws.take(width, d)), parameter(draws.take(width, scale=.5))
    if p["gate"] == "rg10":
        gate.linear2.weight, gate.linear2.bias = parameter(draws.take(width, width)), parameter(draws.take(width))
    last = gate.linear3 if p["gate"] == "rg10" else gate.linear2
    last.weight = parameter(draws.take(H, width, scale=2))
    with torch.no_grad():
        return {"log_beta": rows(gate(x).transpose(1, 2))}


def insert_rows(flat, new, lens, starts):
    """in place of the GPU kernel: the new rows of each head go behind its old ones"""
    out = []
    for h, (start, m) in enumerate(zip(starts.tolist(), lens.tolist())):
        out += [flat[start:start + m], new[0, h]]
    return torch.cat(out)


def trim_feed(cache, lb, keys, start, end, new):
    """all layers of one forward; keys [L][H][n][d]"""
    L, H = lb.shape[:2]
    at = torch.arange(start, end)
    for layer in range(L):
        k = keys[layer][None, :, start:end]
        v = at.float()[None, None, :, None].expand(1, H, -1, k.shape[-1]).contiguous()
        w = lb[layer][None, :, start:end].contiguous()
        if new:
            cache.update(k, v, layer, {"cache_position": at, "retention_weights": w, "attention_mask": None})
        else:
            cache.update(k, v, w, at, layer)


def trim_held(cache, L, H):
    """positions [L][H][] in the order of slots"""
    if hasattr(cache, "paged_cache"):
        pool = cache.paged_cache
        size = pool.block_size
        return [[[int(pool.pos[int(pool.block_table[l, 0, h, s // size]) * size + s % size])
                  for s in range(int(pool.cache_seqlens[l, 0, h]))] for h in range(H)] for l in range(L)]
    if hasattr(cache, "head_lens"):
        return [[[int(x) for x in part] for part in cache.kv_positions[l].view(-1).split(cache.head_lens[l].tolist())]
                for l in range(L)]
    return [cache.kv_positions[l][0].tolist() for l in range(L)]


def trim_run(cache, spec, p, new, **options):
    L, H, n = (spec[key] for key in ("L", "H", "n"))
    lb = torch.from_numpy(log_betas(spec))
    if p.get("dtype") == "bf16":
        lb = lb.to(torch.bfloat16)
    x = torch.from_numpy(Draws(spec["seed"] + 77).take(L, H, n, 4))
    steps = []
    for t in range(p["prompt"], n + 1):
        trim_feed(cache, lb, x, 0 if t == p["prompt"] else t - 1, t, new)
        before = trim_held(cache, L, H)
        with Watch("compress") as w, Ranked() as ranked:
            cache.compress(**options)
        after = trim_held(cache, L, H)
        if after != before:
            found = [f["scores"] for f in w.seen if p.get("threshold")] or ranked.seen
            steps.append({"t": t, "scores": split(found, before), "before": before, "kept": after})
    return {"steps": steps}


def split(found, held):
    """scores of one layer after another, or of all at once, as [layer][head][]"""
    flat = torch.cat([f.reshape(-1).float() for f in found]).tolist()
    out = []
    for layer in held:
        out.append([])
        for head in layer:
            out[-1].append([x if x == x else None for x in flat[:len(head)]])
            del flat[:len(head)]
    return out


class Ranked:
    """what the best are taken of"""

    def __enter__(self):
        self.seen, self.topk = [], torch.topk
        torch.topk = lambda x, *a, **k: self.seen.append(x.clone()) or self.topk(x, *a, **k)
        return self

    def __exit__(self, *_):
        torch.topk = self.topk


def trim_classes(trees, new):
    name = "trimkv-2026" if new else "trimkv"
    names = ["TrimKVCache", "DynamicBudgetTrimKVCache"]
    names += ["_log1mexp", "compute_log_G", "PagedCache", "PagedTrimKVCache"] if new else []
    import typing
    from einops import rearrange
    return trees.cut(name, "src/trimkv/cache_utils.py", names, DynamicCache=object, rearrange=rearrange,
                     update_flatten_view_triton=insert_rows, **{t: getattr(typing, t) for t in (
                         "List", "Optional", "Tuple", "Iterable", "Dict", "Any")})


def trimkv(trees, spec, p):
    cls = trim_classes(trees, True).TrimKVCache
    return trim_run(cls(None, p["memory"], p["buffer"], p["sliding"], lookahead_steps=p["lookahead"], device="cpu"),
                    spec, p, True)


def trimkv_norm(trees, spec, p):
    """the strategy of the first release that adds the logarithm of the key's length"""
    return trim_run(trim_classes(trees, False).TrimKVCache(device="cpu"), spec, p, False, strategy="knorm_alpha",
                    memory_size=p["memory"], buffer_size=p["buffer"])


def dbtrimkv(trees, spec, p):
    cls = trim_classes(trees, True).DynamicBudgetTrimKVCache
    made = cls(None, p["memory"], p.get("threshold"), p["buffer"], 0, p["least"],
               "threshold" if p.get("threshold") else "fixed_budget", p["lookahead"], "cpu")
    return trim_run(made, spec, p, True)


def dbtrimkv_paged(trees, spec, p):
    cls = trim_classes(trees, True).PagedTrimKVCache
    made = cls(spec["L"], spec["H"], spec["n"], p["memory"], p.get("threshold"), p["buffer"], p["least"], 0,
               "threshold" if p.get("threshold") else "fixed_budget", p["lookahead"], 4, device="cpu")
    return trim_run(made, spec, p, True)


def dbtrimkv_floor(trees, spec, p):
    """the first release: a share of the budget for each head, or one budget for each layer"""
    made = trim_classes(trees, False).DynamicBudgetTrimKVCache(device="cpu")
    strategy = "layer_wise_alpha" if p["layer_wise"] else "alpha"
    return trim_run(made, spec, p, False, strategy=strategy, memory_size=p["memory"], buffer_size=p["buffer"],
                    floor_budget_ratio=p["floor"])


# ---- LocRet

class Elsewhere:
    """tensors stay on the CPU whatever the code asks for"""

    def __enter__(self):
        self.to, self.cuda = torch.Tensor.to, torch.Tensor.cuda
        real = self.to
        torch.Tensor.to = lambda t, *a, **k: t if a and str(a[0]).startswith("cuda") else real(t, *a, **k)
        torch.Tensor.cuda = lambda t, *a, **k: t

    def __exit__(self, *_):
        torch.Tensor.to, torch.Tensor.cuda = self.to, self.cuda


def locret_gate(trees, spec, p):
    """the one statement of the attention layer that makes the scores"""
    draws, n, G, H, d, width = Draws(spec["seed"]), *(spec[key] for key in ("n", "G", "H", "d", "I"))
    q, k, v = (torch.from_numpy(draws.take(n, m * d, scale=2))[None] for m in (G, H, H))
    fc1, fc2 = (torch.from_numpy(draws.take(*s)) for s in ((width, (G + 2 * H) * d), (H, width)))
    with open(os.path.join(trees.folder, "Locret", "locret/models/llama/modeling_llama.py"), encoding="utf-8") as f:
        found = [node for node in ast.walk(ast.parse(f.read())) if isinstance(node, ast.Assign)
                 and getattr(node.targets[0], "id", "") == "score_fut"]
    space = {"torch": torch, "query_states": q, "key_states": k, "value_states": v,
             "jit": types.SimpleNamespace(fork=lambda f, x: f(x)),
             "self": types.SimpleNamespace(fc1=lambda x: x @ fc1.T, fc2=lambda x: x @ fc2.T, act=F.silu)}
    exec(compile(ast.Module([found[0]], []), "cut", "exec"), space)
    return {"scores": rows(space["score_fut"].transpose(1, 2))}


def locret(trees, spec, p):
    """chunks of the prompt through a model that only hands out scores and positions; its cache has 40 times H heads,
    since the code repeats its indices 40 times"""
    H, n = spec["H"], spec["n"]
    score = torch.from_numpy(Draws(spec["seed"]).take(H, n)).T[None]
    code = trees.cut("Locret", "locret/inference/infer.py", ["generate"])
    held, seen = [], []

    def model(ids, use_cache=True, past_key_values=None, output_attentions=False):
        at = ids[0].float()[None, None, :, None].expand(1, 40 * H, -1, 1)
        if past_key_values is not None:
            held.append([[int(x) for x in past_key_values[0][0][0, h, :, 0]] for h in range(H)])
            at = torch.cat((past_key_values[0][0], at), 2)
        seen.append(ids.shape[1])
        return types.SimpleNamespace(past_key_values=[(at, at)], attentions=[score[:, ids[0]]],
                                     logits=torch.zeros(1, 1, 2))

    model.config = types.SimpleNamespace(num_hidden_layers=1)
    with Elsewhere():
        code.generate(model, torch.arange(n)[None], 1, -1, p["budget"], p["local"], p["chunk"], p["stabilizers"])
    return {"chunks": seen, "kept": held}


# ---- DuoAttention

def duo_heads(trees, spec, p):
    alphas = np.array(p["alphas"]) if "alphas" in p else \
        (Draws(spec["seed"]).take(spec["L"], spec["H"]).astype(float) + 1) / 2
    quiet = types.SimpleNamespace(random=types.SimpleNamespace(uniform=lambda low, high, shape: np.zeros(shape)),
                                  quantile=np.quantile, mean=np.mean)
    code = trees.cut("duo-attention", "duo_attn/utils.py", ["sparsify_attention_heads"])
    code.sparsify_attention_heads.__globals__["np"] = quiet  # without the noise that parts equal values
    full, got = code.sparsify_attention_heads(alphas.copy(), sparsity=p["sparsity"])
    return {"full": full.astype(int).tolist(), "sparsity": float(got)}


def duo_press(trees, spec, p):
    """a whole number of heads with the least alphas streams"""
    alphas = (Draws(spec["seed"]).take(spec["L"], spec["H"]).astype(float) + 1) / 2
    made = trees.cut("kvpress", "kvpress/presses/duo_attention_press.py", ["DuoAttentionPress"], BasePress=object,
                     field=dataclasses.field, cache=None,
                     cached=lambda *a, **k: lambda f: f).DuoAttentionPress(p["ratio"])
    made.load_attention_pattern = lambda model: (0, 0, alphas)
    made.post_init_from_model(types.SimpleNamespace(device="cpu"))
    return {"full": (~made.streaming_mask).int().tolist()}


def duo_mask(trees, spec, p):
    code = trees.cut("duo-attention", "duo_attn/patch/streaming_attn.py", ["generate_streaming_mask"])
    mask = code.generate_streaming_mask(spec["n"], p["sink"], p["recent"], "cpu")[0, 0]
    return {"side": mask.shape[0], "visible": [listed(row) for row in mask[:spec["n"]].numpy()]}


def duo_cache(trees, spec, p):
    """what the queries of each call find in the cache of a streaming head: after every call it is cut"""
    code = trees.cut("duo-attention", "duo_attn/patch/static_kv_cache.py", ["DuoAttentionStaticKVCache"])
    config = types.SimpleNamespace(num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, hidden_size=2)
    model = types.SimpleNamespace(parameters=lambda: iter([torch.zeros(1)]), config=config)
    cache = code.DuoAttentionStaticKVCache(model, [np.array([1.0, 0.0])], 1, spec["n"], p["sink"], p["recent"])
    start, streaming, full = 0, [], []
    for m in p["calls"]:
        new = torch.arange(start, start + m).float()[None, :, None, None]
        cache.put_full_kv(0, new, new)
        old = cache.get_streaming_kv(0)[0]
        found = torch.cat((old, new), 1)
        streaming.append([int(x) for x in found[0, :, 0, 0]])
        full.append(cache.kv_seq_len)
        cache.compress_and_replace_streaming_kv(0, found, found)
        start += m
    return {"streaming": streaming, "full": full}


# ---- Scissorhands as a library has it

def scissorhands_library(trees, spec, p):
    x = Inputs(spec)
    code = trees.cut("KVCache-Factory", "pyramidkv/scissorhands.py",
                     ["reduce_scissorhands_scores", "update_scissorhands_importance", "_protected_indices",
                      "_sample_by_importance", "select_scissorhands_tokens"])
    score = code.update_scissorhands_importance(None, causal(tensor(x.q), tensor(x.k), x.d), history_window=p["window"])
    kept = code.select_scissorhands_tokens(score, token_budget=p["budget"], recent_size=p["recent"],
                                           sink_size=p["sinks"])
    return {"scores": rows(score), "kept": kept[0].tolist()}


# ---- H2O as a mask over a full cache

def h2o_masked(trees, spec, p):
    """who is read by each decoded token, and the sums that its choice for the next one is made of"""
    x = Inputs(spec)
    cls = trees.cut("H2O", "h2o_hf/utils_hh/modify_llama.py", ["LlamaAttention_heavy_hitter"],
                    apply_rotary_pos_emb=lambda q, k, *a: (q, k)).LlamaAttention_heavy_hitter
    module, take = cls.__new__(cls), lambda t: t.transpose(1, 2).reshape(1, t.shape[2], -1)
    nn.Module.__init__(module)
    sizes = dict(num_heads=x.G, head_dim=x.d, hidden_size=x.G * x.d, heavy_budget_ratio=p["heavy"],
                 recent_budget_ratio=p["recent"], input_length=[], cache_budget_records=[])
    for name, value in sizes.items():
        setattr(module, name, value)
    module._reset_masks()
    module.rotary_emb, module.o_proj = lambda v, seq_len: (None, None), lambda h: h
    steps, past = [], None
    for start, end in [(0, p["prompt"])] + [(t, t + 1) for t in range(p["prompt"], x.n)]:
        q, k = tensor(x.q[:, start:end]), tensor(x.k[:, start:end])
        module.q_proj, module.k_proj, module.v_proj = (lambda h, t=t: take(t) for t in (q, k, k))
        seen = module.attention_masks_next
        hidden = torch.full((1, 1, end - start, end), torch.finfo(torch.float32).min).triu(start + 1)
        with Watch("forward") as w:
            past = module.forward(torch.zeros(1, end - start, 1), attention_mask=hidden, past_key_value=past,
                                  use_cache=True)[-1]
        scores = [f["current_scores_sum"] for f in w.seen if "current_scores_sum" in f][-1]
        if seen is not None:
            steps[-1]["read"] = [listed(m) for m in seen[0, :, 0].bool().numpy()]
        steps.append({"scores": rows(scores)})
    return {"steps": steps[:-1]}


# ---- Quest as a library has it

def quest_library(trees, spec, p):
    x = Inputs(spec)
    code = trees.cut("KVCache-Factory", "pyramidkv/quest.py",
                     ["_last_query", "build_quest_page_metadata", "score_quest_pages", "select_quest_pages",
                      "_expand_pages_to_tokens", "select_quest_tokens"])
    k = tensor(x.k).repeat_interleave(x.group, 1)
    got = code.select_quest_tokens(tensor(x.q[:, -1:]), k, page_size=p["page"], token_budget=p["budget"],
                                   recent_size=p["recent"])
    low, high = code.build_quest_page_metadata(k[:, :, :x.n - min(p["recent"], p["budget"])], page_size=p["page"])
    return {"bounds": rows(code.score_quest_pages(tensor(x.q[:, -1:]), low, high)), "selected": got[0].tolist()}
