"""Drivers of published code with admission gates or a choice at read time; see gate_officials.py."""
import types

import torch
import torch.nn.functional as F
from torch import nn

from gate_officials import parameter, listed
from method_inputs import Draws, Inputs, gates
from method_officials import Watch, positions, repeat_kv, rows, tensor

WGKV = "src/modeling_layers.py"


def wgkv_code(trees, names):
    from einops import rearrange, repeat
    return trees.cut("WG-KV", WGKV, names, rearrange=rearrange, repeat=repeat, sparse_indices_cache=(),
                     use_kernel_forward_from_hub=lambda name: lambda cls: cls)


# ---- WG-KV

def wgkv_gate(trees, spec, p):
    draws, n, H, d = Draws(spec["seed"]), *(spec[key] for key in ("n", "H", "d"))
    pre, post = (torch.from_numpy(draws.take(H, n, d, scale=2))[None] for _ in range(2))
    made = wgkv_code(trees, ["GatingRMSNorm", "GatingPredictor"]).GatingPredictor(
        d, H, ["pre_k", "post_k"], p["act"], p["expand"], 1e-3, True, p["fast"])
    width = made.conv1.weight.shape[0] // H
    made.pre_key_norm.weight = parameter(1 + draws.take(d, scale=.25))
    made.post_key_norm.weight = parameter(1 + draws.take(d, scale=.25))
    made.conv1.weight, made.conv1.bias = parameter(draws.take(H * width, 2 * d, 1)), parameter(draws.take(H * width))
    made.conv2.weight = parameter(draws.take(H, width, 1, scale=p["scale"]))
    made.conv2.bias = parameter(draws.take(H))
    with torch.no_grad():
        return {"gate": rows(made(pre, post, None))}


def wgkv_train(trees, spec, p):
    """what is added to the scores: rows of queries, columns of keys that are not in the future"""
    code = wgkv_code(trees, ["create_score_mod"])
    n, H = spec["n"], spec["H"]
    g = torch.from_numpy(gates(dict(spec, L=1), p["tau"])).clamp(min=1e-3)
    mod = code.create_score_mod(torch.log(g), p["window"], p["group"])
    q, k = torch.arange(n)[:, None], torch.arange(n)[None]
    added = [mod(torch.zeros(n, n), 0, h * p["group"] + p["group"] - 1, q, k) for h in range(H)]
    return {"added": [[[float(x) for x in row[:i + 1]] for i, row in enumerate(a)] for a in added]}


def wgkv_prefill(trees, spec, p):
    """blocks [row block][first columns], columns [head][]; counts [head][row block]: how many of them it reads"""
    names = ["generate_sparse_indices", "generate_block_offset", "generate_column_index"]
    code = wgkv_code(trees, names)
    reference = wgkv_code(trees, ["generate_sparse_indices_ref"]).generate_sparse_indices_ref
    mask = torch.from_numpy(gates(dict(spec, L=1), p["tau"])) > p["tau"]
    code.generate_sparse_indices.__globals__["sparse_indices_cache"] = ()
    got = code.generate_sparse_indices(mask, p["window"], 1, spec["H"], spec["n"], torch.device("cpu"))
    want = reference(mask, p["window"], 1, spec["H"], spec["n"], torch.device("cpu"))
    return {"same_as_reference": readable(*got) == readable(*want), **dict(zip(("blocks", "counts", "columns"),
                                                                             readable(*got)))}


def readable(count, offset, column_count, column_index):
    blocks = [offset[0, 0, r, :c].tolist() for r, c in enumerate(count[0, 0].tolist())]
    counts = column_count[0].tolist()
    return blocks, counts, [column_index[0, h, 0, :max(c)].tolist() for h, c in enumerate(counts)]


class Decoder:
    """one run of the dual cache: the prompt, then token by token, every layer in turn"""
    NAMES = ["quest_select_blocks", "snapkv_record_queries", "snapkv_evict", "migrate_local_kv_to_global",
             "get_layer_local_kv_views", "refresh_local_is_global", "prefill_wrapper", "decode_wrapper",
             "self_attn_forward_patch_inference"]

    def __init__(self, trees, spec, p):
        self.code = wgkv_code(trees, self.NAMES)
        self.code.prefill_wrapper.__globals__["generate_sparse_indices"] = lambda *a: (None,) * 4
        self.p, self.L = p, spec["L"]
        self.x = [Inputs(spec, layer) for layer in range(self.L)]
        self.g = torch.from_numpy(gates(spec, p["tau"]))
        x = self.x[0]
        self.config = types.SimpleNamespace(
            local_window_size=p["window"], block_size=p["block"], g_threshold=p["tau"], num_hidden_layers=self.L,
            num_key_value_heads=x.H, num_attention_heads=x.G, max_total_tokens=8 * p["block"] * self.L * x.H * 16,
            max_tokens_per_head=16 * p["block"], use_quest="quest" in p, quest_token_budget=p.get("quest"),
            g_defer=p.get("defer", False), use_baseline=False, snapkv_enabled="evict" in p,
            snapkv_window_size=p.get("observe"), snapkv_kernel_size=p.get("kernel"), random_sparsity=None,
            snapkv_evict_ratio=p.get("evict"), snapkv_max_cached_tokens=p.get("limit"), g_expand=1.0)
        self.cache, self.read = types.SimpleNamespace(), {}
        self.layers = [self.layer(l) for l in range(self.L)]

    def layer(self, index):
        x = self.x[index]

        def handle(q, k, v, lengths, table, scale):
            for h in range(x.H):
                at = v[table[0, h].long()].reshape(-1, x.d)[:int(lengths[0, h]), 0]
                self.read[index, h] = sorted(int(j) for j in at)

        def again(pre, post, value):
            at = value[..., 0].long()
            return torch.stack([self.g[index, h][at[0, h]] for h in range(x.H)])[None]

        return types.SimpleNamespace(
            config=self.config, layer_idx=index, head_dim=x.d, num_key_value_groups=x.group, scaling=x.d ** -.5,
            prefill_wrapper=self.code.prefill_wrapper, decode_wrapper=self.code.decode_wrapper,
            prefill_kernel=lambda *a, **k: None, decode_kernel_handle=handle,
            decode_kernel_executor=lambda h: None, g_predictors=again)

    def forward(self, start, end):
        for layer, x in zip(self.layers, self.x):
            q, k = tensor(x.q[:, start:end]), tensor(x.k[:, start:end])
            v = positions(x.H, x.n, x.d)[:, :, start:end]
            g = self.g[layer.layer_idx, :, start:end][None]
            if self.config.g_defer and end - start == 1:
                g = None
            self.code.self_attn_forward_patch_inference(layer, self.cache, (1, end - start), q, k, k, v, g)

    def tier(self):
        """positions in the global cache, in the order of its slots"""
        out, size = [], self.config.block_size
        first = self.config.local_window_size // size
        for l, x in enumerate(self.x):
            out.append([])
            for h in range(x.H):
                table = self.cache.block_table[l, h]
                at = [int(table[first + s // size]) * size + s % size
                      for s in range(int(self.cache.global_lengths[l, h]))]
                out[-1].append([int(self.cache.block_pool_v[a, 0]) for a in at])
        return out


def wgkv_decode(trees, spec, p):
    run = Decoder(trees, spec, p)
    n, steps = spec["n"], []
    run.forward(0, p["prompt"])
    out = {"prompt_tier": run.tier()}
    for t in range(p["prompt"], n):
        run.forward(t, t + 1)
        steps.append([[run.read[l, h] for h in range(run.x[0].H)] for l in range(run.L)])
    return {**out, "visible": steps, "tier": run.tier()}


def wgkv_quest(trees, spec, p):
    return wgkv_decode(trees, spec, p)


def wgkv_snapkv(trees, spec, p):
    """the global tier before and after every forward in which it was cut, and the scores of each head"""
    run, out, scores = Decoder(trees, spec, p), [], []
    inner, pool = run.code.snapkv_evict, F.max_pool1d

    def evict(*a):
        out.append({"before": run.tier()})
        del scores[:]
        inner(*a)

    run.code.snapkv_evict.__globals__["snapkv_evict"] = evict
    F.max_pool1d = lambda x, **k: scores.append(pool(x, **k)) or scores[-1]
    try:
        for start, end in [(0, p["prompt"])] + [(t, t + 1) for t in range(p["prompt"], spec["n"])]:
            count = len(out)
            run.forward(start, end)
            if len(out) > count:
                made = iter([s.reshape(-1).tolist() for s in scores])
                part = [[next(made) if int(len(h) * p["evict"]) else [] for h in layer] for layer in out[-1]["before"]]
                out[-1] = {"t": end, "before": out[-1]["before"], "scores": part, "kept": run.tier()}
    finally:
        F.max_pool1d = pool
        run.code.snapkv_evict.__globals__["snapkv_evict"] = inner
    return {"cuts": out, "lengths": run.cache.global_lengths.tolist()}


# ---- Quest

def quest(trees, spec, p):
    """the query of the last position; heads are query heads"""
    x = Inputs(spec)
    cut = trees.cut("Quest", "evaluation/quest_attention.py", ["forward", "local_heavy_hitter_mask"],
                    DynamicCache=type("DynamicCache", (), {}), repeat_kv=repeat_kv,
                    apply_rotary_pos_emb=lambda q, k, *a: (q, k))
    take = lambda t: t.transpose(1, 2).reshape(1, -1, t.shape[1] * x.d)
    k, v = tensor(x.k), positions(x.H, x.n, x.d)
    module = types.SimpleNamespace(
        layer_id=2, num_heads=x.G, num_key_value_heads=x.H, head_dim=x.d, num_key_value_groups=x.group,
        hidden_size=x.G * x.d, q_proj=lambda h: take(tensor(x.q[:, -1:])), k_proj=lambda h: take(k[:, :, -1:]),
        v_proj=lambda h: take(v[:, :, -1:]), rotary_emb=lambda *a: (None, None), o_proj=lambda h: h,
        chunk_size=p["page"], token_budget=p["budget"])
    with Watch("forward") as w:
        cut.forward(module, torch.zeros(1, 1, 1), position_ids=torch.tensor([[x.n - 1]]),
                    past_key_value=(k[:, :, :-1], v[:, :, :-1]))
    found = w.seen[-1]
    bounds = found["quantized_weight"][0, :, 0, ::p["page"]]
    return {"bounds": rows(bounds), "selected": [listed(m) for m in found["mask_bottom"][0, :, 0].numpy()]}


# ---- SeerAttention-R

def seer(trees, spec, p):
    """a gate for each layer of spec["L"], one cache of block keys; scores and blocks of every decoded token"""
    made, cache = seer_gates(trees, spec, p)
    L, n = spec["L"], spec["n"]
    xs = [Inputs(spec, layer) for layer in range(L)]
    size, steps = p["block"], []
    angle = lambda at: rotation(at, xs[0].d) if p["rope"] else None
    for start, end in [(0, p["prompt"])] + [(t, t + 1) for t in range(p["prompt"], n)]:
        one = {"scores": [], "selected": []}
        for layer, x in enumerate(xs):
            q, k = (tensor(y[:, start:end]).transpose(1, 2) for y in (x.q, x.k))
            blocks = torch.ones(1, 1, -(-end // size), dtype=torch.bool)
            with torch.no_grad(), Watch("forward") as w:
                got = made[layer].forward(
                    k, layer, cache, q, blocks, max_cache_len=end, position_embeddings=angle(range(start, end)),
                    block_position_embeddings=angle(range(start, end, size)), threshold=p.get("threshold", 0),
                    block_budget=p.get("budget"), sparsity_method="threshold" if "threshold" in p else "token_budget")
            if got is not None:
                one["scores"].append(rows([f["attn"] for f in w.seen if "attn" in f][-1]))
                one["selected"].append([listed(m) for m in got[0].numpy()])
        if got is not None:
            steps.append(one)
    return {"steps": steps}


def rotation(at, d):
    inv = torch.tensor([100.0 ** (-2 * i / d) for i in range(d // 2)])
    angle = torch.tensor([float(t) for t in at])[None, :, None] * inv
    angle = torch.cat((angle, angle), -1)
    return angle.cos(), angle.sin()


def seer_gates(trees, spec, p):
    common = trees.cut("SeerAttention", "seer_attn/modules/common.py",
                       ["RMSNorm", "rotate_half", "apply_rotary_pos_emb_single"])
    code = trees.cut("SeerAttention", "seer_attn/decode_sparse/attn_gate_inf.py",
                     ["AttnGate", "HeadPoolingLinear", "MultiHeadLinear", "min_pool3d",
                      "get_sparse_attn_mask_from_threshold", "get_sparse_attn_mask_from_budget"],
                     init=nn.init, RMSNorm=common.RMSNorm,
                     apply_rotary_pos_emb_single=common.apply_rotary_pos_emb_single)
    pools = {"max": F.max_pool3d, "min": code.min_pool3d, "avg": F.avg_pool3d}
    made = []
    d, H, G = spec["d"], spec["H"], spec["G"]
    for layer in range(spec["L"]):
        gate = code.AttnGate(p["block"], d, d, H, G, p["query"], [pools[x] for x in p["pools"]], False, p["norm"])
        draws = Draws(spec["seed"] + 300 + layer)
        gate.attngate_linear_k.weight = parameter(draws.take(H, len(p["pools"]) * d, d))
        if p["query"] == "Qproj":
            gate.attngate_linear_q.weight = parameter(draws.take(H, G // H, d, d))
        elif p["query"] == "Qavgproj":
            gate.attngate_linear_q.weight = parameter(draws.take(H, d, d))
        if p["norm"]:
            gate.attngate_qnorm.weight = parameter(1 + draws.take(d, scale=.25))
            gate.attngate_knorm.weight = parameter(1 + draws.take(d, scale=.25))
        made.append(gate)
    cache = trees.cut("SeerAttention", "seer_attn/decode_sparse/cache_utils.py", ["KCompressionCache"], Cache=object)
    return made, cache.KCompressionCache(spec["L"], p["block"])
