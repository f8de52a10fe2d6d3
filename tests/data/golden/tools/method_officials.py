"""Runs the published code of each method on the CPU, from source trees at a path given by the user.

Nothing of that code stands here: classes and functions are cut out of the files at that path and compiled by
themselves, so that their imports (transformers, flash attention, CUDA helpers) are never executed.  What they
compute on the way is read from their local variables when they return.  Every driver takes (trees, spec, params)
and returns the "out" object of a case.
"""
import ast
import contextlib
import dataclasses
import hashlib
import math
import os
import sys
import types
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from method_inputs import Inputs

# name: (repository, commit, {file: first 16 hex digits of its sha256})
SOURCES = {
    "SnapKV": ("FasterDecoding/SnapKV", "e216ddc84c5bd210378cbdbbba12ba02102aa640", {
        "snapkv/monkeypatch/snapkv_utils.py": "d7eddeaf361d9d38"}),
    "R-KV": ("Zefan-Cai/R-KV", "d15c9767e67c2bd9807128fecc35223fa2484a69", {
        "rkv/utils.py": "61fd0b71825db608",
        "rkv/compression/r1_kv.py": "e918877bb84b9d9a",
        "rkv/compression/snapkv.py": "45232037586ac9a1"}),
    "G-KV": ("microsoft/G-KV", "6db3b2ee0846dea897c9afa9247d19f860491b49", {
        "gkv/utils/compression_score.py": "e21fe5c46a16c755",
        "gkv/model/compression/score_based.py": "3bae6f7ff2bb0286"}),
    "AdaKV": ("FFY0/AdaKV", "efe4e2eea0099bf497f0c175ac5440a915d89f83", {
        "adaptive_snapkv/monkeypatch/snapkv_utils.py": "16ae10649a54fd5d"}),
    "KVCache-Factory": ("Zefan-Cai/KVCache-Factory", "c97f9d706d63d1b56e980f8b81b2a924c21162b3", {
        "pyramidkv/pyramidkv_utils.py": "a8a1e8139a8c24a0"}),
    "cakekv": ("antgroup/cakekv", "c4675ce21b1d6f62d262f9a8dc0ad1e1e8ee4edd", {
        "cake/utils.py": "4a9fe57ff227a804",
        "cake/cake_cache.py": "99f9742e6d73c372",
        "cake/model/modify_llama.py": "5ee619e708b57ccf"}),
    "kvpress": ("NVIDIA/kvpress", "8bb29b9c3078452a86d692f29123fa6c793e2b05", {
        "kvpress/presses/base_press.py": "b37e5d08bce40ef9",
        "kvpress/presses/scorer_press.py": "a5eb57a8d9defdaf",
        "kvpress/presses/snapkv_press.py": "e26efd590bededa1",
        "kvpress/presses/tova_press.py": "3fb152e8ee035b87",
        "kvpress/presses/keydiff_press.py": "4c3d43816e760887",
        "kvpress/presses/knorm_press.py": "26ea0d4f41e6eb12",
        "kvpress/presses/expected_attention_press.py": "6fbae9ab7b976e29",
        "kvpress/presses/adakv_press.py": "0e7720211743606b",
        "kvpress/presses/pyramidkv_press.py": "a79566f8a8f6cce0",
        "kvpress/presses/observed_attention_press.py": "689a3b6639ea443b",
        "kvpress/utils.py": "c87a201bf28220e8"}),
    "H2O": ("FMInference/H2O", "ac75c2a8a9e76832b2a4139b9363373b56336bfb", {
        "h2o_hf/utils_real_drop/modify_llama.py": "c20cfc046c89db86"}),
    "streaming-llm": ("mit-han-lab/streaming-llm", "2e5042606d69933d88fbf909bd77907456b9b4dd", {
        "streaming_llm/kv_cache.py": "9264553f7046c026"}),
    "MorphKV": ("ghadiaravi13/MorphKV", "8903d2ac20a3d88851b2501f19106dc758f0308b", {
        "morphkv/morph_cache.py": "c864f09dde95d3f8",
        "morphkv/models/patch_llama.py": "1b7e01f531de81f8"}),
    "TOVA": ("schwartz-lab-NLP/TOVA", "9c7d09bfff64cfc92cfb5f9d7e138cb04866e5a7", {
        "src/tova_cache.py": "43d4736670ed5b61"}),
}


# ---- cutting code out of a source tree

class Trees:
    """the source trees below one folder; keeps what has been cut out"""

    def __init__(self, folder):
        self.folder, self.done = folder, {}

    def digests(self, name):
        out = {}
        for path in SOURCES[name][2]:
            out[path] = hashlib.sha256(Path(os.path.join(self.folder, name, path)).read_bytes()).hexdigest()[:16]
        return out

    def cut(self, name, path, names, **env):
        """a namespace with the top-level functions and classes `names` of a file; `env` stands in for its imports"""
        key = (name, path, tuple(names))
        if key not in self.done:
            file = os.path.join(self.folder, name, path)
            tree = ast.parse(Path(file).read_text(encoding="utf-8"), file)
            tree.body = [Bare().visit(node) for node in tree.body if getattr(node, "name", None) in names]
            missing = set(names) - {node.name for node in tree.body}
            if missing:
                raise SystemExit(f"{file}: no {', '.join(sorted(missing))}")
            space = dict(torch=torch, F=F, nn=nn, math=math, np=np, warnings=Quiet(), logger=Quiet(),
                         dataclass=dataclasses.dataclass, contextmanager=contextlib.contextmanager,
                         repeat_kv=repeat_kv, __name__="cut", print=lambda *a, **k: None)
            space.update(env)
            exec(compile(tree, file, "exec"), space)
            self.done[key] = types.SimpleNamespace(**space)
        return self.done[key]


class Bare(ast.NodeTransformer):
    """drops the type hints of functions: they name things that are not imported"""

    def visit_FunctionDef(self, node):
        node.returns = None
        for a in node.args.posonlyargs + node.args.args + node.args.kwonlyargs:
            a.annotation = None
        for a in (node.args.vararg, node.args.kwarg):
            if a:
                a.annotation = None
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node):
        if isinstance(node.target, ast.Name):
            return node
        return ast.copy_location(ast.Assign([node.target], node.value), node)


class Quiet:
    """any method call does nothing"""

    def __getattr__(self, name):
        return lambda *a, **k: None


class Watch:
    """the local variables of functions named `names`, at each return"""

    def __init__(self, *names):
        self.names, self.seen = names, []

    def __enter__(self):
        sys.setprofile(self.note)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def note(self, frame, event, _):
        if event == "return" and frame.f_code.co_name in self.names:
            self.seen.append(dict(frame.f_locals))


def repeat_kv(x, n):
    return torch.repeat_interleave(x, n, dim=1)


# ---- tensors

def tensor(x):
    """[heads, rows, d] -> [1, heads, rows, d]"""
    return torch.from_numpy(np.ascontiguousarray(x))[None]


def padded(x, n):
    """queries of the last rows only: zeros before them, which the code is expected not to read"""
    q = torch.zeros(1, x.G, n, x.d)
    q[:, :, n - x.rows:] = tensor(x.q)
    return q


def positions(H, n, d):
    """values whose every channel is the position, so that the compressed cache tells who is in it"""
    return torch.arange(n, dtype=torch.float32)[None, None, :, None].expand(1, H, n, d).contiguous()


def slots(values):
    """[1, H, m, d] of positions() -> list of H lists, in the order of the slots"""
    return [[int(p) for p in head] for head in values[0, :, :, 0]]


def rows(t):
    return [[float(x) for x in head] for head in t.reshape(-1, t.shape[-1])]


def kept(order):
    return [sorted(head) for head in order]


def causal(q, k, d):
    """attention weights of all rows, our own: the input of methods that take weights"""
    n, m = q.shape[-2], k.shape[-2]
    logits = q @ repeat_kv(k, q.shape[1] // k.shape[1]).transpose(2, 3) / math.sqrt(d)
    hidden = torch.ones(n, m, dtype=torch.bool).triu(m - n + 1)
    return torch.softmax(logits.masked_fill(hidden, float("-inf")), -1)


# ---- window attention at the end of the prompt

def snapkv(trees, spec, p):
    x = Inputs(spec)
    code = trees.cut("SnapKV", "snapkv/monkeypatch/snapkv_utils.py", ["SnapKVCluster"])
    return prompt_cluster(code.SnapKVCluster(p["window"], p["capacity"], p["kernel"], p["pool"] + "pool"), x, True)


def snapkv_group(trees, spec, p):
    code = trees.cut("KVCache-Factory", "pyramidkv/pyramidkv_utils.py", FACTORY, Cache=object,
                     _debug_print=lambda *a: None)
    cluster = code.SnapKVCluster(p["window"], p["capacity"], p["kernel"], p["pool"] + "pool", gqa_score_agg=p["group"])
    return prompt_cluster(cluster, Inputs(spec), False)


def h2o_prompt(trees, spec, p):
    code = trees.cut("KVCache-Factory", "pyramidkv/pyramidkv_utils.py", FACTORY, Cache=object,
                     _debug_print=lambda *a: None)
    cluster = code.H2OKVCluster(p["window"], p["capacity"], gqa_score_agg=p["group"])
    return prompt_cluster(cluster, Inputs(spec), False)


FACTORY = ["_gqa_groups", "_reduce_group_scores", "_grouped_window_attn_cache", "_select_topk_kv", "SnapKVCluster",
           "PyramidKVCluster", "H2OKVCluster", "AdaKVCluster"]


def prompt_cluster(cluster, x, repeat):
    k, v = tensor(x.k), positions(x.H, x.n, x.d)
    if repeat:
        k, v = repeat_kv(k, x.group), repeat_kv(v, x.group)
    with Watch("update_kv", "_update_kv_kv_head") as w:
        _, out = cluster.update_kv(k, padded(x, x.n), v, None, x.group)
    found = [f["attn_cache"] for f in w.seen if "attn_cache" in f]
    order = slots(out)
    return {"scores": rows(found[0]) if found else [], "kept": kept(order), "slots": order}


def attention_module(x, hidden_layers=1, layer=0):
    """what the presses ask of an attention layer; its input is the queries themselves, one row per token"""
    config = types.SimpleNamespace(num_attention_heads=x.G, num_key_value_heads=x.H, num_hidden_layers=hidden_layers,
                                   _attn_implementation="sdpa")
    return types.SimpleNamespace(config=config, head_dim=x.d, q_proj=lambda h: h, layer_idx=layer)


def hidden_states(x):
    return padded(x, x.n).transpose(1, 2).reshape(1, x.n, x.G * x.d)


def press(trees, which, cls, **env):
    """a press class with its bases"""
    class Other:
        pass

    def rotate_half(t):
        half = t.shape[-1] // 2
        return torch.cat((-t[..., half:], t[..., :half]), -1)

    base = trees.cut("kvpress", "kvpress/presses/base_press.py", ["BasePress"]).BasePress
    scorer = trees.cut("kvpress", "kvpress/presses/scorer_press.py", ["ScorerPress"], BasePress=base).ScorerPress
    utils = trees.cut("kvpress", "kvpress/utils.py", ["get_prerope_query_states"], Phi3Attention=Other,
                      Qwen3Attention=Other, Gemma3Attention=Other)
    snap = trees.cut("kvpress", "kvpress/presses/snapkv_press.py", ["SnapKVPress"], ScorerPress=scorer,
                     rotate_half=rotate_half, get_prerope_query_states=utils.get_prerope_query_states).SnapKVPress
    return getattr(trees.cut("kvpress", f"kvpress/presses/{which}_press.py", [cls], ScorerPress=scorer, BasePress=base,
                             SnapKVPress=snap, get_prerope_query_states=utils.get_prerope_query_states,
                             rotate_half=rotate_half, **env), cls)


def no_rotation(x):
    return torch.ones(1, x.n, x.d), torch.zeros(1, x.n, x.d)


def run_press(made, x, attentions=None, module=None):
    module = module or attention_module(x)
    k, v = tensor(x.k), tensor(x.v)
    with Watch("compress") as w:
        out, _ = made.compress(module, hidden_states(x), k, v, attentions, {"position_embeddings": no_rotation(x)})
    where = [[[int(j) for j in torch.where((k[0, h] == row).all(-1))[0]] for row in out[0, h]] for h in range(x.H)]
    order = [[j[0] for j in head] for head in where]
    return {"scores": rows(w.seen[0]["scores"]), "kept": kept(order)}


def snapkv_press(trees, spec, p):
    cls = press(trees, "snapkv", "SnapKVPress")
    return run_press(cls(p["ratio"], p["window"], p["kernel"]), Inputs(spec))


def tova_press(trees, spec, p):
    return run_press(press(trees, "tova", "TOVAPress")(p["ratio"]), Inputs(spec))


def keydiff(trees, spec, p):
    return run_press(press(trees, "keydiff", "KeyDiffPress")(p["ratio"]), Inputs(spec))


def knorm(trees, spec, p):
    return run_press(press(trees, "knorm", "KnormPress")(p["ratio"]), Inputs(spec))


def observed_attention(trees, spec, p):
    x = Inputs(spec)
    cls = press(trees, "observed_attention", "ObservedAttentionPress")
    return run_press(cls(p["ratio"]), x, causal(tensor(x.q), tensor(x.k), x.d))


def expected_attention(trees, spec, p):
    x = Inputs(spec)
    module = attention_module(x)

    def rotary_emb(like, ids):
        inv = torch.tensor([p["rope_base"] ** (-2 * i / x.d) for i in range(x.d // 2)], dtype=torch.float32)
        angle = torch.cat((ids[..., None] * inv, ids[..., None] * inv), -1)
        return angle.cos(), angle.sin()

    module.rotary_emb = rotary_emb
    cls = press(trees, "expected_attention", "ExpectedAttentionPress")
    made = cls(p["ratio"], p["future"], p["sinks"], p["covariance"], p["vnorm"], p["epsilon"])
    return run_press(made, x, module=module)


# ---- budgets

def pyramidkv(trees, spec, p):
    """one cluster for each layer; with p["budgets_only"] the tensors are small zeros and only lengths are kept"""
    code = trees.cut("KVCache-Factory", "pyramidkv/pyramidkv_utils.py", FACTORY, Cache=object,
                     _debug_print=lambda *a: None)
    out = {"budgets": [], "scores": [], "kept": []}
    for layer in range(p["layers"]):
        cluster = code.PyramidKVCluster(p["layers"], p["window"], p["capacity"], p["kernel"], p["pool"] + "pool",
                                        p["beta"], layer_idx=layer, gqa_score_agg=p["group"])
        if p.get("budgets_only"):
            zero = torch.zeros(1, 1, spec["n"], 1)
            out["budgets"].append(cluster.update_kv(zero, zero, zero, None, 1)[0].shape[2])
            continue
        got = prompt_cluster(cluster, Inputs(spec, layer), False)
        out["budgets"].append(len(got["kept"][0]))
        out["scores"].append(got["scores"])
        out["kept"].append(got["kept"])
    return {key: value for key, value in out.items() if value}


def pyramidkv_press(trees, spec, p):
    cls = press(trees, "pyramidkv", "PyramidKVPress", logger=Quiet())
    made = cls(p["ratio"], p["window"], 5, p["beta"])
    module = types.SimpleNamespace(config=types.SimpleNamespace(num_hidden_layers=p["layers"]))
    budgets = []
    for layer in range(p["layers"]):
        module.layer_idx = layer
        budgets.append(int(made.get_layer_budget(module, spec["n"])))
    return {"budgets": budgets}


def ada_output(cluster, w, flat, head_lens):
    found = [f for f in w.seen if "attn_score" in f][0]
    ends = np.cumsum(head_lens)
    order = [[int(v) for v in flat[e - m:e, 0]] for e, m in zip(ends, head_lens)]
    out = {"base": int(cluster.base_capacity), "scores": rows(found["attn_score"]),
           "lengths": [int(m) for m in head_lens], "kept": kept(order)}
    if "adaptive_attn_score" in found:
        every = found["adaptive_attn_score"].flatten().sort(descending=True).values
        count = len(head_lens) * out["base"]
        if count < len(every):
            out["global_gap"] = float(every[count - 1] - every[count])
    return out


def adakv(trees, spec, p):
    """FFY0/AdaKV: one cluster for each layer (one layer unless p["layers"])"""
    code = trees.cut("AdaKV", "adaptive_snapkv/monkeypatch/snapkv_utils.py", ["AdaptiveSnapKVCluster"])
    out = []
    for layer in range(p.get("layers", 1)):
        x = Inputs(spec, layer)
        cluster = code.AdaptiveSnapKVCluster(
            p["window"], p["kernel"], p["pool"] + "pool", p["capacity"], p["alpha"], p.get("skip", 0),
            p["normalize"], layer, p.get("layers", 1), p.get("pyramid", False), p.get("beta", 20),
            p["group"] is not None, x.group, p["group"])
        with Watch("update_kv_gqa", "update_kv_wo_gqa") as w:
            _, flat = cluster.update_kv(tensor(x.k), padded(x, x.n), positions(x.H, x.n, x.d))
        out.append(ada_output(cluster, w, flat, cluster.head_lens.tolist()))
    return {"layers": out}


def adakv_group(trees, spec, p):
    """KVCache-Factory's port: the weighted scores are its default"""
    x = Inputs(spec)
    code = trees.cut("KVCache-Factory", "pyramidkv/pyramidkv_utils.py", FACTORY, Cache=object,
                     _debug_print=lambda *a: None)
    cluster = code.AdaKVCluster(p["window"], p["kernel"], p["pool"] + "pool", p["capacity"], p["alpha"], p["normalize"],
                                0, 1, p["group"])
    with Watch("update_kv") as w:
        _, flat = cluster.update_kv(tensor(x.k), padded(x, x.n), positions(x.H, x.n, x.d))
    return {"layers": [ada_output(cluster, w, flat, cluster.head_lens.tolist())]}


def adakv_press(trees, spec, p):
    x = Inputs(spec)
    snap = press(trees, "snapkv", "SnapKVPress")(p["ratio"], p["window"], p["kernel"])
    cls = press(trees, "adakv", "AdaKVPress")
    module = attention_module(x)
    inner = snap.score
    seen = []
    snap.score = lambda *a: seen.append(inner(*a)) or seen[-1].clone()
    cls(snap, p["alpha"]).compress(module, hidden_states(x), tensor(x.k), tensor(x.v), None,
                                   {"position_embeddings": no_rotation(x)})
    gone = set(zip(module.masked_key_indices[1].tolist(), module.masked_key_indices[2].tolist()))
    order = [[j for j in range(x.n) if (h, j) not in gone] for h in range(x.H)]
    safe = int(int(x.n * (1 - p["ratio"])) * p["alpha"])
    open_ = [float(s) for h in range(x.H) for s in sorted(seen[0][0, h, order[h]], reverse=True)[safe:]]
    out = {"scores": rows(seen[0]), "lengths": [len(o) for o in order], "kept": order}
    if open_:
        out["global_gap"] = min(open_) - max(float(seen[0][0, h, j]) for h, j in gone)
    return out
