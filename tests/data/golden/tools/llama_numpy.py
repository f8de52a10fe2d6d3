"""A second Llama, Qwen2 or Qwen3 forward pass in numpy float64, straight from the GGUF weights.

Nothing is un-permuted here: the pairs (2i, 2i+1) of each head are turned, as llama.cpp does for arch "llama", the pairs
(i, i + D/2) for the others.
"""
import gguf
import numpy as np


class Llama:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        get = lambda key, default=None: reader.fields[key].contents() if key in reader.fields else default
        arch = get("general.architecture")
        self.halves = arch != "llama"
        self.layers = get(arch + ".block_count")
        self.heads = get(arch + ".attention.head_count")
        self.kv_heads = get(arch + ".attention.head_count_kv")
        self.eps = get(arch + ".attention.layer_norm_rms_epsilon")
        self.base = get(arch + ".rope.freq_base", 10000.0)
        self.w = {t.name: gguf.dequantize(t.data, t.tensor_type).astype(np.float64) for t in reader.tensors}

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.w[name]

    def rope(self, x):  # (tokens, heads, head_dim)
        n, _, d = x.shape
        angle = np.arange(n)[:, None] * self.base ** (-np.arange(0, d, 2) / d)
        if self.halves:
            z = (x[..., :d // 2] + 1j * x[..., d // 2:]) * np.exp(1j * angle)[:, None, :]
            return np.concatenate([z.real, z.imag], -1)
        z = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angle)[:, None, :]
        return np.stack([z.real, z.imag], -1).reshape(x.shape)

    def project(self, x, i, what, heads):
        name = f"blk.{i}.attn_{what}"
        y = (x @ self.w[name + ".weight"].T + self.w.get(name + ".bias", 0)).reshape(len(x), heads, -1)
        return self.norm(y, name + "_norm.weight") if name + "_norm.weight" in self.w else y

    def attention(self, x, i):
        n = len(x)
        q = self.rope(self.project(x, i, "q", self.heads))
        k = self.rope(self.project(x, i, "k", self.kv_heads))
        v = self.project(x, i, "v", self.kv_heads)
        mask = np.triu(np.full((n, n), -np.inf), 1)
        out = np.empty_like(q)
        for h in range(self.heads):
            g = h * self.kv_heads // self.heads
            s = q[:, h] @ k[:, g].T / np.sqrt(q.shape[-1]) + mask
            p = np.exp(s - s.max(-1, keepdims=True))
            out[:, h] = p / p.sum(-1, keepdims=True) @ v[:, g]
        return out.reshape(n, -1) @ self.w[f"blk.{i}.attn_output.weight"].T

    def ffn(self, x, i):
        gate, up, down = (self.w[f"blk.{i}.ffn_{c}.weight"] for c in ("gate", "up", "down"))
        g = x @ gate.T
        return (g / (1 + np.exp(-g)) * (x @ up.T)) @ down.T

    def logits(self, ids, last_only=False):
        x = self.w["token_embd.weight"][ids]
        for i in range(self.layers):
            x = x + self.attention(self.norm(x, f"blk.{i}.attn_norm.weight"), i)
            x = x + self.ffn(self.norm(x, f"blk.{i}.ffn_norm.weight"), i)
        if last_only:
            x = x[-1:]
        return self.norm(x, "output_norm.weight") @ self.w.get("output.weight", self.w["token_embd.weight"]).T
