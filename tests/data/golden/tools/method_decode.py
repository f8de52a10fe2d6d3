"""Drivers of published code that compresses again and again while decoding; see method_officials.py."""
import types

import torch

from method_inputs import Inputs
from method_officials import Quiet, Watch, causal, kept, positions, rows, slots, tensor


class Cache:
    """keys and positions of one layer between compressions; order of slots as the method leaves it"""

    def __init__(self, x):
        self.x, self.k, self.v = x, tensor(x.k), positions(x.H, x.n, x.d)
        self.slot = torch.zeros(x.H, 0, dtype=torch.long)
        self.seen = 0

    def grow(self, to):
        new = torch.arange(self.seen, to).expand(self.x.H, -1)
        self.slot, self.seen = torch.cat((self.slot, new), 1), to

    def held(self):
        index = self.slot[None, :, :, None].expand(-1, -1, -1, self.x.d)
        return self.k.gather(2, index), self.v.gather(2, index)

    def keep(self, values):
        self.slot = values[0, :, :, 0].long()


def each_round(spec, p):
    """(cache grown to t, queries of the last `window` rows at t) for each t of p["rounds"]"""
    x = Inputs(spec)
    cache = Cache(x)
    for t in p["rounds"]:
        cache.grow(t)
        yield cache, tensor(x.queries(t - p["window"], t))


def rkv(trees, spec, p):
    utils = trees.cut("R-KV", "rkv/utils.py", ["cal_similarity", "compute_attention_scores"])
    r1kv = trees.cut("R-KV", "rkv/compression/r1_kv.py", ["R1KV"], cal_similarity=utils.cal_similarity,
                     compute_attention_scores=utils.compute_attention_scores).R1KV
    made = r1kv(p["budget"], p["window"], p["kernel"], p["lambda"], p["retain_ratio"], p["retain"])
    return rkv_rounds(made, spec, p)


def snapkv_decode(trees, spec, p):
    utils = trees.cut("R-KV", "rkv/utils.py", ["compute_attention_scores"])
    cls = trees.cut("R-KV", "rkv/compression/snapkv.py", ["SnapKV"],
                    compute_attention_scores=utils.compute_attention_scores).SnapKV
    return rkv_rounds(cls(p["budget"], p["window"], p["kernel"]), spec, p)


def rkv_rounds(made, spec, p):
    out = []
    for cache, q in each_round(spec, p):
        k, v = cache.held()
        with Watch("update_kv") as w:
            _, left = made.update_kv(k, q, v)
        found = w.seen[0]
        cache.keep(left)
        one = {"importance": rows(found["attn_cache"])} if "attn_cache" in found else {}
        if "similarity_cos" in found:
            one["redundancy"] = rows(found["similarity_cos"])
            one["scores"] = rows(found["final_score"])
        elif one:
            one["scores"] = one.pop("importance")
        one["slots"] = slots(left)
        one["kept"] = kept(one["slots"])
        out.append(one)
    return {"rounds": out}


# ---- G-KV

class Pointer:
    def __init__(self, base, offset=0):
        self.base, self.offset = base, offset

    def __add__(self, more):
        return Pointer(self.base, self.offset + int(more))


class Block:
    def __init__(self, base, shape, strides, offsets, block_shape, order):
        self.base = base
        index, inside = torch.tensor(base.offset), torch.tensor(True)
        for axis, (size, stride, start, length) in enumerate(zip(shape, strides, offsets, block_shape)):
            at = (start + torch.arange(length)).reshape([-1 if a == axis else 1 for a in range(len(shape))])
            index, inside = index + at * stride, inside & (at >= 0) & (at < size)
        self.index, self.inside = index, inside


class Language:
    """the few words of the kernel language that G-KV's similarity kernel uses, on CPU tensors"""
    constexpr, float32, int1 = int, torch.float32, torch.bool
    where = staticmethod(lambda c, a, b: torch.where(c, torch.as_tensor(a), torch.as_tensor(b)))
    dot = staticmethod(lambda a, b: a @ b)
    arange = staticmethod(torch.arange)
    make_block_ptr = staticmethod(Block)

    def __init__(self):
        self.program = 0

    def program_id(self, axis):
        return self.program

    def load(self, at, boundary_check=None):
        if isinstance(at, Pointer):
            return int(at.base.view(-1)[at.offset])
        flat = at.base.base.view(-1)
        return torch.where(at.inside, flat[at.index.clamp(0, len(flat) - 1)], torch.zeros((), dtype=flat.dtype))

    def store(self, at, value, boundary_check=None):
        inside = at.inside.expand(at.index.shape)
        at.base.base.view(-1)[at.index[inside]] = value.expand(at.index.shape)[inside]

    def max(self, x, axis, keep_dims):
        return x.amax(axis, keepdim=keep_dims)

    def sum(self, x, axis, keep_dims):
        return x.sum(axis, keepdim=keep_dims)


def kernel_language():
    """(stand-in for the kernel compiler, stand-in for its language)"""
    tl = Language()

    class Jit:
        def __init__(self, f):
            self.f = f

        def __getitem__(self, grid):
            def launch(*args, **named):
                for tl.program in range(grid[0]):
                    self.f(*[Pointer(a) if torch.is_tensor(a) else a for a in args], **named)
            return launch

    return types.SimpleNamespace(jit=Jit), tl


def gkv_class(trees):
    triton, tl = kernel_language()
    names = ["cal_similarity_raw", "_strides", "similarity_score_kernel", "cal_similarity_triton",
             "compute_attention_scores"]
    utils = trees.cut("G-KV", "gkv/utils/compression_score.py", names, triton=triton, tl=tl)
    return trees.cut("G-KV", "gkv/model/compression/score_based.py", ["ScoreBasedKV"],
                     **{name: getattr(utils, name) for name in names}).ScoreBasedKV


def gkv(trees, spec, p):
    made = gkv_class(trees)(
        p["budget"], p["window"], p["kernel"], p["lambda"], enable_pooling=p["pooling"],
        suppressing_redundancy=p["redundancy"] is not None, smooth_method=p["smooth"] or "max",
        enable_score_cache=p["smooth"] is not None, disable_norm=p["disable_norm"], alpha=p["alpha"],
        compress_mode="ratio" if p["ratio"] else "budget", compress_ratio=p["ratio"] or 0.2,
        triton_similarity=p["redundancy"] == "kernel", attention_shift_indicator=p["gamma"] > 0, gamma=p["gamma"])
    out, score_cache = [], None
    if p["initial"]:
        x = Inputs(spec)
        score_cache = made.initial_score_cache(tensor(x.k)[:, :, :p["initial"]].contiguous(),
                                               tensor(x.q)[:, :, :p["initial"]].contiguous(), None)
    for cache, q in each_round(spec, p):
        k, v = cache.held()
        mask = torch.ones(1, k.shape[2], dtype=torch.long)
        with Watch("update_kv") as w:
            _, left, _, score_cache = made.update_kv(k, q, v, None, cache.seen, mask, None, score_cache)
        found = w.seen[0]
        cache.keep(left)
        one = {"slots": slots(left)}
        if "pooled_score" in found:
            one["global"] = rows(found["final_score"])
            one["scores"] = rows(found["pooled_score"])
            if "similarity_cos" in found:
                one["redundancy"] = rows(found["similarity_cos"])
            if one["global"] == one["scores"]:
                del one["global"]
        one["kept"] = kept(one.pop("slots"))
        out.append(one)
    return {"rounds": out}


# ---- running sums

def identity_layer(x, **more):
    """an attention layer whose input row is the query, key and value of that token, and whose output is thrown away"""
    a, b = x.G * x.d, x.G * x.d + x.H * x.d
    weights = types.SimpleNamespace(dtype=torch.float32)

    class Slice:
        weight = weights

        def __init__(self, *ends):
            self.ends = slice(*ends)

        def __call__(self, h):
            return h[..., self.ends]

    return types.SimpleNamespace(
        num_heads=x.G, num_key_value_heads=x.H, num_key_value_groups=x.group, head_dim=x.d, hidden_size=x.G * x.d,
        layer_idx=0, training=False, attention_dropout=0.0, q_proj=Slice(0, a), k_proj=Slice(a, b),
        v_proj=Slice(b, None), o_proj=lambda h: h, is_causal=True, **more)


def identity_rows(x):
    parts = [tensor(t).transpose(1, 2).reshape(1, t.shape[1], -1) for t in (x.q, x.k)]
    return torch.cat(parts + [positions(x.H, x.n, x.d).transpose(1, 2).reshape(1, x.n, -1)], -1)


def h2o(trees, spec, p):
    x = Inputs(spec)
    names = ["H2OKVCache_LayerWise", "H2OLlamaAttention", "_make_causal_mask", "apply_rotary_pos_emb_single"]
    code = trees.cut("H2O", "h2o_hf/utils_real_drop/modify_llama.py", names,
                     rotate_half=torch.zeros_like)
    layer = identity_layer(x, config=types.SimpleNamespace(pretraining_tp=1), rotary_emb=lambda v, seq_len: (
        torch.ones(1, 1, seq_len, x.d), torch.zeros(1, 1, seq_len, x.d)))
    layer.kv_cache = code.H2OKVCache_LayerWise(p["heavy"], p["recent"])
    h, past, start, out = identity_rows(x), None, 0, []
    for end in range(p["prompt"], x.n + 1):
        with Watch("__call__") as w:
            _, _, past = code.H2OLlamaAttention.forward(layer, h[:, start:end], None,
                                                        torch.arange(start, end)[None], past, False, True)
        chosen = [f["select_hh_scores"] for f in w.seen if "select_hh_scores" in f]
        out.append({"scores": rows(chosen[0])} if chosen else {})
        out[-1]["kept"] = kept(slots(past[1]))
        start = end
    return {"steps": out}


def tova(trees, spec, p):
    """the caller of TOVACache hands it the weights of the forward pass; here they come from causal()"""
    x = Inputs(spec)
    cls = trees.cut("TOVA", "src/tova_cache.py", ["TOVACache"], DynamicCache=object).TOVACache
    made = cls.__new__(cls)
    made.cache_size, made.key_cache, made.value_cache = p["capacity"], [None], [None]
    cache, q, out, start = Cache(x), tensor(x.q), [], 0
    for end in range(p["prompt"], x.n + 1):
        cache.grow(end)
        made.key_cache[0], made.value_cache[0] = cache.held()
        weights = causal(q[:, :, start:end], made.key_cache[0], x.d)
        with Watch("reduce") as w:
            made.reduce(0, weights)
        one = {}
        if "mean_attn_weights" in w.seen[0]:
            one["scores"] = rows(w.seen[0]["mean_attn_weights"])
        cache.keep(made.value_cache[0])
        one["kept"] = kept(slots(made.value_cache[0]))[:1]
        out.append(one)
        start = end
    return {"steps": out}


# ---- MorphKV

def morph_layer(x, p, code):
    config = types.SimpleNamespace(pretraining_tp=1, num_hidden_layers=1,
                                   morphkv={"evict_after": p["evict_after"]})
    layer = identity_layer(x, config=config, garbage=[True], morph_type=p["fuse"] + "_fused", WIN_SIZE=p["window"],
                           MAX_CAPACITY=p["capacity"], evict_after=p["evict_after"],
                           _flash_attn_uses_top_left_mask=False)
    layer.morphkv_mask = types.MethodType(code.LlamaAttentionMorph.morphkv_mask, layer)
    return layer


def morphkv(trees, spec, p):
    """the prompt goes through the flash-attention class with the attention itself left out, decoding through the
    other class, as in the published model"""
    x = Inputs(spec)
    cache_code = trees.cut("MorphKV", "morphkv/morph_cache.py", ["DynamicCache"], Cache=object)
    code = trees.cut("MorphKV", "morphkv/models/patch_llama.py", ["LlamaAttentionMorph", "LlamaFlashAttention2Morph"],
                     apply_rotary_pos_emb=lambda q, k, cos, sin: (q, k), StaticCache=Quiet,
                     _flash_attention_forward=lambda q, *a, **k: q)
    layer = morph_layer(x, p, code)
    cache = cache_code.DynamicCache(1)
    cache.cleaned = [False]
    h = identity_rows(x)
    code.LlamaFlashAttention2Morph.forward(layer, h[:, :p["prompt"]], None, None, cache, position_embeddings=(0, 0))
    out = []
    for t in range(p["prompt"], x.n):
        calls = []
        real = torch.topk
        torch.topk = lambda t, **a: calls.append(t) or real(t, **a)
        try:
            code.LlamaAttentionMorph.forward(layer, h[:, t:t + 1], None, None, cache, position_embeddings=(0, 0))
        finally:
            torch.topk = real
        one = {"kept": kept(slots(cache.value_cache[0]))}
        if calls:
            one["scores"] = rows(calls[0])
        out.append(one)
    return {"steps": out}


# ---- CAKE

def cake_config(x, p, code):
    evict = code.CakeprefillKVCache(p["capacity"], p["window"], 2, 2, x.G, p["layers"], p["cascading"])
    L = p["layers"]
    return types.SimpleNamespace(
        decoding_evict=[None] * L, prefill_cake_evict=[evict] * L, prefill=[True] * L, window_size=[p["window"]] * L,
        key_size=[p["capacity"] - p["window"]] * L, tau1=p["tau1"], tau2=p["tau2"], gamma=p["gamma"],
        _pre_quantization_dtype=torch.float32)


def cake(trees, spec, p):
    utils = trees.cut("cakekv", "cake/utils.py", ["calculate_entropy", "adjust_budgets"])
    names = ["CakeCache", "CakeprefillKVCache", "CakeDecodingKVCache_LayerWise"]
    code = trees.cut("cakekv", "cake/cake_cache.py", names, Cache=object, adjust_budgets=utils.adjust_budgets)
    model = trees.cut("cakekv", "cake/model/modify_llama.py", ["llama_attn_forward_cake"],
                      calculate_entropy=utils.calculate_entropy, CakeCache=code.CakeCache, StaticCache=Quiet,
                      DynamicCache=Quiet, CakeDecodingKVCache_LayerWise=code.CakeDecodingKVCache_LayerWise,
                      apply_rotary_pos_emb=lambda q, k, cos, sin: (q, k),
                      _flash_attention_forward=lambda q, *a, **k: q)
    layers = [Inputs(spec, layer) for layer in range(p["layers"])]
    config, cache = cake_config(layers[0], p, code), code.CakeCache()
    out, start = {"preference": [], "budgets": [], "scores": [], "steps": []}, 0
    for end in range(p["prompt"], spec["n"] + 1):
        scores = []
        for l, x in enumerate(layers):
            module = identity_layer(x, config=config, _flash_attn_uses_top_left_mask=False)
            module.layer_idx = l
            with Watch("llama_attn_forward_cake", "__call__") as w:
                model.llama_attn_forward_cake(module, identity_rows(x)[:, start:end], past_key_value=cache,
                                              position_embeddings=(0, 0))
            if start == 0:
                out["preference"].append(float(w.seen[-1]["pref_score"]))
                out["scores"].append(rows(w.seen[-1]["hh_score"]))
                out["budgets"].append([int(b) for b in cache.layer_budget])
            else:
                found = [f["attn_cache"] for f in w.seen if "attn_cache" in f and "num_heads" in f]
                scores.append(rows(found[0]) if found else [])
        order = [slots(v) for v in cache.value_cache]
        one = {"kept": [kept(o) for o in order]}
        one.update({"scores": scores} if start else {"slots": order})
        out["steps"].append(one)
        start = end
    return out


def cake_adjust(trees, spec, p):
    utils = trees.cut("cakekv", "cake/utils.py", ["adjust_budgets"])
    return {"budgets": [int(b) for b in utils.adjust_budgets(p["list"], p["total"], p["limit"], len(p["list"]))]}


# ---- sinks and recent

def streaming(trees, spec, p):
    names = ["slice1d", "slice2d", "slice3d", "StartRecentKVCache"]
    table = {}
    code = trees.cut("streaming-llm", "streaming_llm/kv_cache.py", names, DIM_TO_SLICE=table)
    table.update({1: code.slice1d, 2: code.slice2d, 3: code.slice3d})
    made = code.StartRecentKVCache(p["sinks"], p["recent"])
    v = positions(1, spec["n"], 1)
    out = {"after": slots(made([[v, v]])[0][1])[0]}
    if p["coming"]:
        out["before"] = slots(made.evict_for_space([[v, v]], p["coming"])[0][1])[0]
    return out
