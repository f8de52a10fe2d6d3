"""Compares gates_np.py, the reference for the engine's gates, with the published gates
(../data/golden/gates.json).

Each check takes (report, case). golden_gates.py runs them together with its own checks.
"""
import numpy as np

import gates_np
from method_inputs import Draws, Inputs


class Given(gates_np.Gates):
    """The tensors of one layer, without a file."""

    def __init__(self, kind, layout, shape, tensors, act="silu", halves=False):
        self.meta, self.kind, self.layout, self.halves = {}, kind, layout, halves
        self.act, self.s = gates_np.ACT[act], shape
        self.t = {f"model.layers.0.self_attn.{name}": np.asarray(x, float) for name, x in tensors.items()}


def agree(report, name, got, want):
    """got [n, H], want [H][n]."""
    for a, b in zip(np.asarray(got).T, want):
        report.close(name, a, b)


def trimkv_gate(report, case):
    spec, p, draws = case["in"], case["params"], Draws(case["in"]["seed"])
    n, d, width, H = (spec[key] for key in ("n", "d", "I", "H"))
    x = draws.take(n, d, scale=2).astype(float)
    tensors = {"linear1.weight": draws.take(width, d), "linear1.bias": draws.take(width, scale=.5)}
    if p["gate"] == "rg10":
        tensors |= {"linear2.weight": draws.take(width, width), "linear2.bias": draws.take(width)}
    last = "linear3.weight" if p["gate"] == "rg10" else "linear2.weight"
    tensors |= {last: draws.take(H, width, scale=2), "bias": np.full(H, p["bias"])}
    g = Given("retention", p["gate"], {}, {"retention_gate." + key: t for key, t in tensors.items()})
    agree(report, "evaluator: trimkv_gate", gates_np.evaluate(g, 0, {"x": x}), case["out"]["log_beta"])


def wgkv_gate(report, case):
    spec, p, draws = case["in"], case["params"], Draws(case["in"]["seed"])
    n, H, d = spec["n"], spec["H"], spec["d"]
    width = int(d * p["expand"])
    pre, post = (draws.take(H, n, d, scale=2).astype(float).transpose(1, 0, 2) for _ in range(2))
    tensors = {"pre_key_norm.weight": 1 + draws.take(d, scale=.25),
               "post_key_norm.weight": 1 + draws.take(d, scale=.25),
               "conv1.weight": draws.take(H * width, 2 * d, 1), "conv1.bias": draws.take(H * width),
               "conv2.weight": draws.take(H, width, 1, scale=p["scale"]), "conv2.bias": draws.take(H)}
    g = Given("write", "wgkv", {"kv_heads": H}, {"g_predictors." + key: t for key, t in tensors.items()}, p["act"])
    got = gates_np.evaluate(g, 0, {"k_pre": pre, "k_post": post})
    agree(report, "evaluator: wgkv_gate", got if p["fast"] else np.maximum(got, 1e-3), case["out"]["gate"])


def locret_gate(report, case):
    spec, draws = case["in"], Draws(case["in"]["seed"])
    n, G, H, d, width = (spec[key] for key in ("n", "G", "H", "d", "I"))
    q, k, v = (draws.take(n, m * d, scale=2).astype(float).reshape(n, m, d) for m in (G, H, H))
    g = Given("importance", "locret", {}, {"fc1.weight": draws.take(width, (G + 2 * H) * d),
                                           "fc2.weight": draws.take(H, width)})
    got = gates_np.evaluate(g, 0, {"q": q, "k_pre": k, "v": v})
    agree(report, "evaluator: locret_gate", got, case["out"]["scores"])


def neighbours(x):
    """Returns the order of channels that to_halves() would convert to x."""
    out = np.empty(x.shape)
    half = x.shape[-1] // 2
    out[..., 0::2], out[..., 1::2] = x[..., :half], x[..., half:]
    return out


def seer(report, case):
    """Compares the published projection of the query with the first step, if all full blocks are
    from the prompt."""
    spec, p, x = case["in"], case["params"], Inputs(case["in"])
    if p["query"] != "Qproj" or spec["L"] > 1:
        return
    H, d, size, i = x.H, x.d, p["block"], p["prompt"]
    draws = Draws(spec["seed"] + 300)
    keys = draws.take(H, len(p["pools"]) * d, d).transpose(0, 2, 1)
    query = draws.take(H, x.group, d, d).transpose(0, 3, 1, 2).reshape(H, d, x.group * d)
    tensors = {"block_gate.k_proj.weight": keys, "block_gate.q_proj.weight": query}
    if p["norm"]:
        tensors |= {f"block_gate.{side}_norm.weight": 1 + draws.take(d, scale=.25) for side in "qk"}
    g = Given("block", "seer", {"norm_eps": 1e-6, "rope_base": 100.0}, tensors, halves=True)
    pools = {"max": np.max, "min": np.min, "avg": np.mean}
    for h in range(H):
        q = gates_np.block_vector(g, 0, h, "q", neighbours(x.q[h * x.group:(h + 1) * x.group, i].astype(float)),
                                  i if p["rope"] else 0)
        logits = np.zeros(-(-(i + 1) // size))
        for b in range((i + 1) // size):
            part = x.k[h, b * size:(b + 1) * size].astype(float)
            pooled = neighbours(np.array([pools[name](part, axis=0) for name in p["pools"]]))
            key = gates_np.block_vector(g, 0, h, "k", pooled, b * size if p["rope"] else 0)
            logits[b] = gates_np.block_logit(q, key)
        e = np.exp(logits - logits.max())
        report.close("evaluator: seer", e / e.sum(), case["out"]["steps"][0]["scores"][0][h])


CHECKS = {f.__name__: f for f in (trimkv_gate, wgkv_gate, locret_gate, seer)}
