"""Derivatives by all weights of a model with evictions, and AdamW steps on them and on low-rank
weights. They are compared with a float64 model written from its equations: by numeric differences
along random directions in NumPy, and, if PyTorch is installed, by its autograd and AdamW.

usage: test_tuned.py TUNE NAME=MODEL...
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

sys.path.append(os.path.join(os.path.dirname(__file__), ".."))
from check import check, finish  # noqa: E402

try:
    import torch
except ImportError:
    torch = None


LONG = os.environ.get("KVFATE_TESTS") == "long"
# Masked, next-token loss (otherwise KL), rank of the trained weights. Every second case of a model,
# except in the long tests.
CASES = ((False, True, 0), (True, False, 0), (True, False, 3), ("policy", True, 0))


class Model:
    """The forward pass and losses. xp is numpy or torch; weights is one vector of float64, rows in
    the order of the kernels."""

    def __init__(self, facts, case, xp):
        self.f, self.case, self.xp = facts, case, xp

    def const(self, x):
        return self.xp.asarray(x)

    def part(self, w, at, *shape):
        return w[at:at + int(np.prod(shape))].reshape(shape)

    def norm(self, x, w):
        return x / self.xp.sqrt((x * x).mean(-1)[..., None] + self.f["eps"]) * w

    def turn(self, x, layer):
        """x [T, heads, D]: channels 2j and 2j + 1 are rotated."""
        kind, n = self.f["layer"][layer]["turn"], self.f["rope_dim"]
        if kind == len(self.f["turns"]):
            return x
        gain, *theta = self.f["turns"][kind]
        position = np.arange(len(self.case["ids"])) - self.case["first"]
        angle = position[:, None] * np.array(theta)
        cos, sin = (self.const(gain * f(angle))[:, None, :] for f in (np.cos, np.sin))
        a, b = x[..., 0:n:2], x[..., 1:n:2]
        turned = self.xp.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(x.shape[:-1] + (n,))
        return turned if n == x.shape[-1] else self.xp.concatenate([turned, x[..., n:]], -1)

    def capped(self, x, cap):
        return cap * self.xp.tanh(x / cap) if cap else x

    def attention(self, q, k, v, layer, sinks):
        """The weight of a key outside the window, evicted or of another document is 0. sinks: one more logit per head."""
        xp, c, share, window = self.xp, self.case, self.f["heads"] // self.f["kv_heads"], self.f["layer"][layer]["window"]
        i = np.arange(len(c["ids"]))
        seen = (i[:, None] >= i) & (c["first"][:, None] == c["first"])
        if window:
            seen &= i[:, None] - i < window
        seen = np.repeat(seen[None], self.f["kv_heads"], 0)
        if c["gone"] is not None:
            seen &= i[None, :, None] < c["gone"][layer].T[:, None, :]
        head = np.arange(self.f["heads"]) // share
        s = self.capped(xp.einsum("igd,jgd->gij", q, k[:, head]) * self.f["scale"], self.f["attn_cap"]) + self.const(np.where(seen, 0, -np.inf)[head])
        most = s.max() if xp is np else s.detach().max()
        e = xp.exp(s - most)
        total = e.sum(-1)[..., None] + (0 if sinks is None else xp.exp(sinks - most)[:, None, None])
        return xp.einsum("gij,jgd->igd", e / total, v[:, head]).reshape(len(i), -1)

    def head_norm(self, x, w, at):
        """x [T, heads, D]: over each head, or over all."""
        if not self.f["norms"]:
            return x
        T, heads, D = x.shape
        return self.norm(x.reshape(T, heads * D), self.part(w, at, heads * D)).reshape(T, heads, D) if self.f["wide"] else self.norm(x, self.part(w, at, D))

    def added(self, x, branch, w, at):
        """Returns the residual stream after a branch."""
        f = self.f
        return x + f["residual_scale"] * (self.norm(branch, self.part(w, at, f["d"])) if f["behind"] else branch)

    def gate(self, x):
        if self.f["gelu"]:
            return x / 2 * (1 + self.xp.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))
        return x / (1 + self.xp.exp(-x))

    def block(self, w, x, layer):
        f, at = self.f, self.f["layer"][layer]
        d, D, G, H, F = f["d"], f["head_dim"], f["heads"], f["kv_heads"], f["ffn"]

        def read(x, norm):
            return self.norm(x, self.part(w, norm, d)) if f["before"] else x
        rows = read(x, at["attn_norm"]) @ self.part(w, at["qkv"], (G + 2 * H) * D, d).T
        if f["biases"]:
            rows = rows + self.part(w, at["bias"], (G + 2 * H) * D)
        q, k, v = (rows[:, a * D:b * D].reshape(len(x), b - a, D) for a, b in ((0, G), (G, G + H), (G + H, G + 2 * H)))
        q, k = (self.turn(self.head_norm(*of), layer) for of in ((q, w, at["q_norm"]), (k, w, at["k_norm"])))
        out_bias, up_bias, down_bias = (self.part(w, at[name], n) if f["all_biases"] else 0 for name, n in (("out_bias", d), ("gate_up_bias", 2 * F), ("down_bias", d)))
        sinks = self.part(w, at["sinks"], G) if f["sinks"] else None
        x = self.added(x, self.attention(q, k, v, layer, sinks) @ self.part(w, at["out"], d, G * D).T + out_bias, w, at["attn_post"])
        gu = read(x, at["ffn_norm"]) @ self.part(w, at["gate_up"], 2 * F, d).T + up_bias
        return self.added(x, self.gate(gu[:, :F]) * gu[:, F:] @ self.part(w, at["down"], d, F).T + down_bias, w, at["ffn_post"])

    def log_p(self, w, temperature, masked=True):
        f, xp = self.f, self.xp
        if not masked:
            self = Model(f, {**self.case, "gone": None}, xp)
        x = self.part(w, f["embedding"], f["vocab"], f["d"])[self.case["ids"]] * f["embedding_scale"]
        for layer in range(f["layers"]):
            x = self.block(w, x, layer)
        z = self.norm(x, self.part(w, f["out_norm"], f["d"])) @ self.part(w, f["head"], f["vocab"], f["d"]).T
        z = self.capped(z, f["logit_cap"]) / temperature
        z = z - (z.max() if xp is np else z.detach().max())
        return z - xp.log(xp.exp(z).sum(-1))[:, None]

    def loss(self, w, teacher):
        """teacher: log-probabilities."""
        c = self.case
        at = np.flatnonzero(c["first"][1:] == c["first"][:-1])
        s = self.log_p(w, c["temperature"])
        if "share" in c:
            return self.objective(s[at, c["ids"][at + 1]], c["share"][at], c["sampled"][at])
        kl = (self.xp.exp(teacher[at]) * (teacher[at] - s[at])).sum(-1).mean()
        return c["fwkl"] * kl - c["ntp"] * s[at, c["ids"][at + 1]].mean()

    def objective(self, log_p, share, sampled):
        """Returns -sum of min(r A, clip(r) A), with A the share of a token."""
        r, A, e = self.xp.exp(log_p - self.const(sampled)), self.const(share), self.case["range"]
        held = np.clip(r, 1 - e, 1 + e) if self.xp is np else r.clamp(1 - e, 1 + e)
        return -self.xp.minimum(r * A, held * A).sum()


def make_policy(facts, model, teacher, seed):
    """Makes a masked case with shares of both signs, and a policy for which a third of the ratios
    is clipped."""
    r = np.random.default_rng(seed)
    c = make_case(facts, True, True, seed) | {"temperature": 0.7, "range": 0.2}
    T = len(c["ids"])
    c["share"] = np.where(r.random(T) < 0.3, 0, r.normal(size=T) / T).astype(np.float32)
    log_p = Model(facts, c, np).log_p(teacher, 0.7)
    c["sampled"] = np.zeros(T, np.float32)
    at = np.arange(T - 1)
    c["sampled"][:-1] = log_p[at, c["ids"][1:]] + r.normal(size=T - 1) * 0.3
    return c


def make_case(facts, masked, ntp, seed):
    r = np.random.default_rng(seed)
    T, cut = 71, 23
    c = {"ids": r.integers(0, facts["vocab"], T), "first": np.where(np.arange(T) < cut, 0, cut), "gone": None, "temperature": 1.0, "fwkl": 0.0, "ntp": 1.0}
    if not ntp:
        c |= {"temperature": 1.5, "fwkl": 2.25, "ntp": 0.0}
    if masked:  # ages at which entries expire; a third stay
        age = r.integers(1, 40, (facts["layers"], T, facts["kv_heads"]))
        c["gone"] = np.where(r.random(age.shape) < 0.33, T, np.arange(T)[None, :, None] + age)
    return c


def write_case(c, path):
    with open(path, "wb") as f:
        f.write(struct.pack("<2i", len(c["ids"]), 2 if "share" in c else c["gone"] is not None))
        for x in (c["ids"], c["first"], c["gone"]):
            if x is not None:
                f.write(x.astype("<i4").tobytes())
        f.write(struct.pack("<3f", c["temperature"], c["fwkl"], c["ntp"]))
        if "share" in c:
            f.write(struct.pack("<f", c["range"]) + c["share"].astype("<f4").tobytes() + c["sampled"].astype("<f4").tobytes())


def run(tune, model, c, folder, rank=0, steps=0, recompute=0, threads=2):
    """Returns (the bytes, facts, vectors of OUTPUT by name, [(parameters, loss)])."""
    case, out = os.path.join(folder, "in"), os.path.join(folder, "out")
    write_case(c, case)
    subprocess.run([tune, model, case, out, str(rank), str(steps), str(recompute), str(threads)], check=True)
    with open(out, "rb") as f:
        data = f.read()
    facts, rest = data.split(b"\n", 1)
    facts, v, made = json.loads(facts), np.frombuffer(rest, "<f4").astype(float), {}
    n, p = facts["n"], facts["parameters"]
    for name, size in (("teacher", n), ("student", n), ("by_weight", n), ("start", p), ("by_parameter", p)):
        made[name], v = v[:size], v[size:]
    return data, facts, made, [(s[:-1], s[-1]) for s in v.reshape(steps, p + 1)] if steps else []


def tensors(facts, matrices=False):
    """Returns {name: (begin, length)}; matrices: only those of layers."""
    f = facts
    d, D, F, q, kv = f["d"], f["head_dim"], f["ffn"], f["heads"] * f["head_dim"], f["kv_heads"] * f["head_dim"]
    sizes = {"qkv": (q + 2 * kv) * d, "out": q * d, "gate_up": 2 * F * d, "down": F * d}
    all_of = {}
    if not matrices:
        sizes |= {"attn_norm": d * f["before"], "ffn_norm": d * f["before"], "attn_post": d * f["behind"], "ffn_post": d * f["behind"],
                  "q_norm": (q if f["wide"] else D) * f["norms"], "k_norm": (kv if f["wide"] else D) * f["norms"], "bias": (q + 2 * kv) * f["biases"],
                  "sinks": f["heads"] * f["sinks"], "out_bias": d * f["all_biases"], "gate_up_bias": 2 * F * f["all_biases"], "down_bias": d * f["all_biases"]}
        all_of = {"embedding": (f["embedding"], f["vocab"] * d), "out_norm": (f["out_norm"], d)}
    if f["head"] != f["embedding"] and not matrices:
        all_of["head"] = (f["head"], f["vocab"] * d)
    for i, at in enumerate(f["layer"]):
        all_of |= {f"{name} {i}": (at[name], n) for name, n in sizes.items() if n}
    return all_of


def differences(name, facts, c, made):
    """Compares <derivative, direction> of each tensor with (loss(w + h u) - loss(w - h u)) / 2h,
    which has an error of O(h^2)."""
    r, m = np.random.default_rng(5), Model(facts, c, np)
    teacher = m.log_p(made["teacher"], c["temperature"], masked=False)
    for what, (at, n) in tensors(facts).items():
        g = made["by_weight"][at:at + n]
        u = np.zeros(facts["n"])
        u[at:at + n] = g / np.linalg.norm(g) + r.normal(size=n) / np.sqrt(n)
        h = 1e-4
        want = (m.loss(made["student"] + h * u, teacher) - m.loss(made["student"] - h * u, teacher)) / (2 * h)
        have = g @ u[at:at + n]
        check(f"{name}: {what} along a direction", abs(have - want) <= 2e-4 * abs(want), have, want)


def merge(facts, base, w, xp):
    """Returns W_0 + 2 B A of every pair (alpha is twice the rank)."""
    parts, last = [], 0
    for matrix, a, b, rows, columns in sorted(facts["pairs"]):
        rank = (b - a) // columns
        change = 2 * w[b:b + rows * rank].reshape(rows, rank) @ w[a:b].reshape(rank, columns)
        parts += [base[last:matrix], base[matrix:matrix + rows * columns] + change.reshape(-1)]
        last = matrix + rows * columns
    return xp.concatenate(parts + [base[last:]])


def chain_rule(name, pairs, made):
    """Computes derivatives by A and B of W_0 + 2 B A from those by W."""
    for matrix, a, b, rows, columns in pairs:
        by_w = made["by_weight"][matrix:matrix + rows * columns].reshape(rows, columns)
        A, B = made["start"][a:b].reshape(-1, columns), made["start"][b:b + rows * ((b - a) // columns)].reshape(rows, -1)
        for what, at, want in (("A", a, 2 * B.T @ by_w), ("B", b, 2 * by_w @ A.T)):
            off = abs(made["by_parameter"][at:at + want.size] - want.reshape(-1)).max()
            check(f"{name}: derivatives by {what} of the matrix at {matrix}", off <= 1e-4 * abs(want).max() + 1e-12, off, abs(want).max())


def autograd(name, facts, c, made, steps, rank):
    """Compares every derivative, and steps of torch.optim.AdamW."""
    def student(w):
        return merge(facts, base, w, torch) if rank else w
    base, m = torch.tensor(made["teacher"]), Model(facts, c, torch)
    teacher = m.log_p(base, c["temperature"], masked=False)
    w = torch.tensor(made["start"], requires_grad=True)
    full = student(w).detach().requires_grad_()
    by_weight = torch.autograd.grad(m.loss(full, teacher), full)[0].numpy()
    for what, (at, n) in tensors(facts, rank > 0).items():
        want, have = by_weight[at:at + n], made["by_weight"][at:at + n]
        off = abs(have - want).max() / abs(want).max()
        check(f"{name}: derivatives by {what}", off <= 1e-4, off)
    step = torch.optim.AdamW([w], lr=1e-3, weight_decay=0.1)
    for i, (have, loss) in enumerate(steps):
        step.zero_grad()
        want = m.loss(student(w), teacher)
        want.backward()
        if i == 0:
            off = (w.grad - torch.tensor(made["by_parameter"])).abs().max() / w.grad.abs().max()
            check(f"{name}: derivatives by parameters", off <= 1e-4, float(off))
        torch.nn.utils.clip_grad_norm_([w], 0.5)
        step.step()
        check(f"{name}: loss of step {i + 1}", abs(loss - want.item()) <= 1e-4 * max(abs(want.item()), 0.1), loss, want.item())
        # Moments of values with a derivative within rounding of 0 have arbitrary signs: a step
        # moves each by at most 1e-3.
        moved = w.detach().numpy() - made["start"]
        off = np.linalg.norm(have - w.detach().numpy()) / np.linalg.norm(moved)
        check(f"{name}: parameters after step {i + 1}", off <= 5e-3, off)


def main():
    tune, *models = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        for number, model in enumerate(models):
            facts = run(tune, model, {**make_case({"vocab": 9, "layers": 1, "kv_heads": 1}, False, True, 0)}, folder)[1]
            for masked, ntp, rank in CASES if LONG else CASES[number % 2::2]:
                name = f"{os.path.basename(model)}, {'full' if not masked else 'masked' if masked is True else masked}, rank {rank}"
                c = make_case(facts, masked, ntp, number)
                if masked == "policy":
                    c = make_policy(facts, model, run(tune, model, c, folder)[2]["student"], number)
                data, _, made, steps = run(tune, model, c, folder, rank, 3)
                again = run(tune, model, c, folder, rank, 3, recompute=1, threads=3)[0]
                check(f"{name}: threads and recomputation change no bit", data == again)
                if torch:
                    autograd(name, facts | {"pairs": json.loads(data.split(b"\n", 1)[0])["pairs"]}, c, made, steps, rank)
                if rank:
                    chain_rule(name, json.loads(data.split(b"\n", 1)[0])["pairs"], made)
                else:
                    differences(name, facts, c, made)
    if not torch:
        print("PyTorch is not installed: its autograd and its AdamW were left out")
    finish()


if __name__ == "__main__":
    main()
