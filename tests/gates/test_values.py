#!/usr/bin/python3
"""Gates of every layout compared with the float64 evaluator, with every set of kernels of the CPU.

usage: test_values.py GATES_DUMP
"""
import json
import math
import os
import subprocess
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "data"), os.path.join(HERE, "..", "oracle")]
import gates_np  # noqa: E402
import make_gates  # noqa: E402

TOKENS = 9
FLAGS = (0, 1, 3)  # plain C, AVX2, AVX-512; unsupported sets fall back
# layers, query heads, KV heads, head_dim, d_model, hidden, gate_dim
SHAPES = [(2, 4, 2, 8, 32, 24, 16), (1, 1, 1, 2, 1, 1, 2), (3, 3, 3, 6, 19, 17, 10), (2, 9, 3, 64, 576, 128, 32),
          (2, 6, 2, 10, 33, 31, 6), (1, 2, 2, 16, 48, 192, 128), (1, 34, 17, 4, 40, 16, 8)]
RETENTION = ("rg", "rg2", "rg3", "rg10", "linear", "rgkv")
INPUT_BITS = {"rg": 1, "rg10": 1, "linear": 1, "rgkv": 4 | 8, "rg2": 8 | 16, "rg3": 8 | 16, "wgkv": 4 | 16, "locret": 2 | 4 | 8, "duo": 0, "seer": 0, "values": 0}


class Case:
    def __init__(self, exe, work, shape, layout, *options, hash_="-"):
        L, G, H, D, d, I, n = shape
        self.path = os.path.join(work, "gates.safetensors")
        self.o = make_gates.options(["--layout", layout, "-o", self.path, "--layers", str(L), "--heads", str(G), "--kv-heads", str(H),
                                     "--head-dim", str(D), "--d-model", str(d), "--hidden", str(I), "--gate-dim", str(n), *options])
        with open(self.path, "wb") as f:
            f.write(make_gates.build(self.o))
        self.s = dict(layers=L, heads=G, kv_heads=H, head_dim=D, d_model=d, norm_eps=1e-5, rope_base=1e4)
        self.exe, self.hash = exe, hash_
        self.name = " ".join([layout, *options, str(shape)])
        self.g = gates_np.Gates(self.path, self.s)
        self.inputs(np.random.default_rng(L * 1000 + D))

    def inputs(self, rng):
        s = self.s
        kv = (TOKENS, s["kv_heads"], s["head_dim"])
        # The last token is so small that the norms' epsilon matters.
        size = np.array([1.0] * (TOKENS - 2) + [4.0, 1e-3])[:, None, None]
        a = {"x": rng.normal(size=(TOKENS, s["d_model"])), "q": rng.normal(size=(TOKENS, s["heads"], s["head_dim"])) * size}
        for name in ("k_pre", "v", "k_post"):
            a[name] = rng.normal(size=kv) * size
        a = {k: v.astype("<f4") for k, v in a.items()}
        a["pos"] = np.array([0, 1, 2, 63, 64, 77, 98, 99, 5], "<i4")
        if self.g.layout != "values":
            a["pos"][6:8] = 4097, 32767
        order = ("pos", "x", "q", "k_pre", "v", "k_post")
        self.raw = b"".join(a[name][t].tobytes() for t in range(TOKENS) for name in order)
        self.a = {k: v if k == "pos" else v.astype(np.float64) for k, v in a.items()}

    def dump(self, flags):
        s = self.s
        args = [self.exe, self.path, str(flags), *(str(s[k]) for k in ("layers", "d_model", "heads", "kv_heads", "head_dim", "norm_eps",
                                                                        "rope_base")), self.hash]
        r = subprocess.run(args, input=self.raw, capture_output=True, timeout=60)
        assert r.returncode == 0, (self.name, r.returncode, r.stderr)
        line, _, rest = r.stdout.partition(b"\n")
        return json.loads(line), np.frombuffer(rest, "<f4").astype(np.float64)

    def facts(self, f):
        o, layout = self.o, self.g.layout
        hidden = o.hidden if layout in ("rg", "rg2", "rg3", "rg10", "rgkv", "wgkv", "locret") else 0
        seer = layout == "seer"
        readout = {"rg3": "down_proj.weight", "rg10": "linear3.weight", "linear": "linear1.weight"}.get(layout, "linear2.weight")
        last = [k for k in self.g.t if k.endswith((readout, "retention_gate.bias"))]
        tied = layout in RETENTION and all(np.array_equal(self.g.t[k], self.g.t["model.layers.0" + k[k.index(".self_attn"):]]) for k in last)
        want = dict(kind=self.g.kind, layout=layout, hidden=hidden, positions=o.tokens if layout == "values" else 2 ** 31 - 1, tied=int(tied),
                    inputs=INPUT_BITS[layout], gate_dim=o.gate_dim if seer else 0, block=o.block or 0)
        for key, value in want.items():
            assert f[key] == value, (self.name, key, f[key], value)
        assert len(f["hash"]) == 32

    def blocks(self, have):
        s, n = self.s, self.o.gate_dim
        have = have.reshape(s["layers"], TOKENS, s["kv_heads"], 2 * n + 1)
        group, bad = s["heads"] // s["kv_heads"], 0.0
        for layer, t, h in np.ndindex(*have.shape[:3]):
            a, pos = {k: v[t] for k, v in self.a.items()}, int(self.a["pos"][t])
            q = gates_np.block_vector(self.g, layer, h, "q", a["q"][h * group:(h + 1) * group], pos)
            k = gates_np.block_vector(self.g, layer, h, "k", np.stack([a["k_pre"][h], a["v"][h], a["k_post"][h]]), pos)
            mine, logit = have[layer, t, h], gates_np.block_logit(q, k)
            size = max(1e-6, np.abs(q).max(), np.abs(k).max())
            for want, got in ((q, mine[:n]), (k, mine[n:2 * n])):
                got = gates_np.to_halves(got) if self.g.halves else got
                bad = max(bad, np.abs(got - want).max() / size)
            bad = max(bad, abs(logit - mine[-1]) / (1e-6 + np.linalg.norm(q) * np.linalg.norm(k)))
        return bad

    def difference(self, have):
        """Returns the largest error: relative for log beta and g, relative to the largest one for
        scores and vectors."""
        s = self.s
        if self.g.kind == "blocks":
            return self.blocks(have)
        if self.g.kind == "heads":
            return np.abs(have - self.g.t["duo.alpha"].ravel()).max()
        have = have.reshape(s["layers"], TOKENS, s["kv_heads"])
        want = np.stack([gates_np.evaluate(self.g, i, self.a) for i in range(s["layers"])])
        if self.g.meta.get("kvfate.z") == "bf16":
            return self.rounded(have)
        if self.g.kind == "importance":
            return (np.abs(have - want) / np.abs(want).max(2, keepdims=True)).max()
        return (np.abs(have - want) / np.abs(want)).max()

    def rounded(self, have):
        """z may be rounded differently if its exact value is within 2e-6 of a tie: counted as
        equal."""
        best = np.full(have.shape, np.inf)
        for i in range(self.s["layers"]):
            z, bias = gates_np.retention_z(self.g, i, self.a)
            for e in (-2e-6, 0, 2e-6):
                want = gates_np.log_sigmoid(gates_np.bf16(gates_np.bf16(z + e) + bias))
                best[i] = np.minimum(best[i], np.abs(have[i] - want) / np.abs(want))
        return best.max()

    def check(self):
        worst = 0.0
        limit = 4e-5 if self.g.layout == "rg3" else 1e-5  # rg3 multiplies two outputs: 16 times as large for inputs of magnitude 4
        for flags in FLAGS:
            facts, have = self.dump(flags)
            self.facts(facts)
            bad = self.difference(have)
            assert bad <= limit, (self.name, "kernels", flags, "error", bad)
            worst = max(worst, bad)
        return worst


def spread(case):
    """Checks the distribution of the generator."""
    x = np.random.default_rng(3)
    s, kind = case.s, case.g.kind
    a = {"x": x.normal(size=(200, s["d_model"]))} | {k: x.normal(size=(200, s["kv_heads"], s["head_dim"])) for k in ("k_pre", "k_post", "v")}
    v = np.stack([gates_np.evaluate(case.g, i, a) for i in range(s["layers"])])
    if kind == "retention":
        inside = np.mean((np.exp(100 * v) > 0.01) & (np.exp(100 * v) < 0.99))
        assert inside > 0.9 and np.exp(100 * v).std() > 0.15, (case.name, inside)
        return inside
    share = np.mean(v > 0.1)
    assert 0.35 < share < 0.65, (case.name, share)
    return share


def main():
    exe, n, worst = sys.argv[1], 0, {}
    with tempfile.TemporaryDirectory(prefix="kvf-gates-") as work:
        def run(shape, layout, *options, **more):
            nonlocal n
            n += 1
            case = Case(exe, work, shape, layout, "--seed", str(n), *options, **more)
            worst[layout] = max(worst.get(layout, 0.0), case.check())
            return case
        for shape in SHAPES:
            for layout in (*RETENTION, "wgkv", "locret", "duo", "seer"):
                run(shape, layout)
            for kind in ("retention", "write", "importance"):
                run(shape, "values", "--kind", kind)
            for layout in ("rg2", "rg3", "rgkv", "wgkv", "locret", "seer"):
                run(shape, layout, "--key-order", "halves")
            run(shape, "seer", "--norms", "--block", "64")
            run(shape, "seer", "--norms", "--key-order", "halves")
            run(shape, "rg10", "--tie", "--dtype", "BF16")
            run(shape, "rg", "--z", "bf16", "--dtype", "BF16")
            run(shape, "rg10", "--z", "bf16", "--tie")
            run(shape, "linear", "--z", "bf16", "--tie")
            run(shape, "rg3", "--z", "bf16", "--tie", "--key-order", "halves")
            run(shape, "rgkv", "--z", "bf16", "--key-order", "halves", "--dtype", "F16")
        for layout in ("rg", "rg2", "rg3", "rg10", "rgkv", "wgkv", "locret"):
            for act in ("silu", "gelu", "relu"):
                run(SHAPES[0], layout, "--activation", act, "--dtype", "F16")
        run(SHAPES[0], "rg", "--model-hash", "abc", hash_="abc")
        run(SHAPES[0], "rg", "--model-hash", "abc")
        shares = [spread(run(SHAPES[3], layout)) for layout in (*RETENTION, "wgkv")]
    print(f"{n} files, largest errors:", ", ".join(f"{k} {v:.1e}" for k, v in worst.items()))
    print("beta^100 in [0.01, 0.99]: %.2f (rg) %.2f (rg2) %.2f (rg3) %.2f (rg10) %.2f (linear) %.2f (rgkv); g above 0.1: %.2f" % tuple(shares))
    assert all(math.isfinite(v) for v in worst.values())


if __name__ == "__main__":
    main()
