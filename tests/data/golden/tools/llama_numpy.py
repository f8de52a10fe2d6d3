"""A second forward pass of Llama, Qwen2, Qwen3 and Gemma 3 in NumPy and float64, straight from the GGUF weights.

The code follows the published definitions of the families and shares none with transformers.  No row of a weight is moved: RoPE rotates the pairs (2i, 2i + 1)
of each head, as llama.cpp does for arch "llama", and the pairs (i, i + D/2) for the others.  A matrix is dequantised when it is used, so that a model of
1.5 billion weights needs 3 GB.
"""
import gguf
import numpy as np

ROWS = 16384  # of the output matrix that are dequantised at a time


class Weights:
    """The tensors of a file by name, dequantised to float64 at each access."""

    def __init__(self, tensors):
        self.tensors = {t.name: t for t in tensors}

    def __contains__(self, name):
        return name in self.tensors

    def __getitem__(self, name):
        return self.rows(name, slice(None))

    def get(self, name, otherwise):
        return self[name] if name in self else otherwise

    def rows(self, name, which):
        t = self.tensors[name]
        return gguf.dequantize(t.data[which], t.tensor_type).astype(np.float64)


class Llama:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        get = lambda key, default=None: reader.fields[key].contents() if key in reader.fields else default
        arch = get("general.architecture")
        if arch not in ("llama", "qwen2", "qwen3", "gemma3"):
            raise SystemExit(f"{path}: {arch} is not written here")
        self.halves, self.gemma = arch != "llama", arch == "gemma3"
        self.layers = get(arch + ".block_count")
        self.heads = get(arch + ".attention.head_count")
        self.kv_heads = get(arch + ".attention.head_count_kv")
        self.eps = get(arch + ".attention.layer_norm_rms_epsilon")
        self.base = get(arch + ".rope.freq_base", 10000.0)
        self.window = get(arch + ".attention.sliding_window")
        self.w = Weights(reader.tensors)

    def norm(self, x, name):
        """RMSNorm.  Files of Gemma store its weights plus 1."""
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.w[name]

    def local(self, i):
        """Returns whether layer i of Gemma 3 has the window: five of six layers do, and the sixth sees all tokens."""
        return self.gemma and (i + 1) % 6 != 0

    def rope(self, x, base):  # (tokens, heads, head_dim)
        n, _, d = x.shape
        angle = np.arange(n)[:, None] * base ** (-np.arange(0, d, 2) / d)
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
        n, base = len(x), 10000.0 if self.local(i) else self.base
        q = self.rope(self.project(x, i, "q", self.heads), base)
        k = self.rope(self.project(x, i, "k", self.kv_heads), base)
        v = self.project(x, i, "v", self.kv_heads)
        mask = np.triu(np.full((n, n), -np.inf), 1)
        if self.local(i):
            mask[np.tri(n, k=-self.window, dtype=bool)] = -np.inf  # a query sees `window` tokens, itself included
        out = np.empty_like(q)
        for h in range(self.heads):
            g = h * self.kv_heads // self.heads
            s = q[:, h] @ k[:, g].T / np.sqrt(q.shape[-1]) + mask
            p = np.exp(s - s.max(-1, keepdims=True))
            out[:, h] = p / p.sum(-1, keepdims=True) @ v[:, g]
        return out.reshape(n, -1) @ self.w[f"blk.{i}.attn_output.weight"].T

    def activation(self, g):
        """Gemma has GELU in its form with tanh, the others SiLU."""
        return g * (1 + np.tanh(np.sqrt(2 / np.pi) * (g + 0.044715 * g ** 3))) / 2 if self.gemma else g / (1 + np.exp(-g))

    def ffn(self, x, i):
        gate, up, down = (f"blk.{i}.ffn_{c}.weight" for c in ("gate", "up", "down"))
        return (self.activation(x @ self.w[gate].T) * (x @ self.w[up].T)) @ self.w[down].T

    def branch(self, y, i, name):
        """Returns the output of a branch; Gemma 3 has one more norm there."""
        return self.norm(y, f"blk.{i}.{name}.weight") if self.gemma else y

    def logits(self, ids, last_only=False, at=None):
        """Returns the logits of all tokens, of the last one, or of those at the places `at`."""
        x = self.w.rows("token_embd.weight", np.asarray(ids))
        if self.gemma:
            x = x * np.sqrt(x.shape[-1])
        for i in range(self.layers):
            x = x + self.branch(self.attention(self.norm(x, f"blk.{i}.attn_norm.weight"), i), i, "post_attention_norm")
            x = x + self.branch(self.ffn(self.norm(x, f"blk.{i}.ffn_norm.weight"), i), i, "post_ffw_norm")
        x = self.norm(x[[-1] if last_only else slice(None) if at is None else at], "output_norm.weight")
        name = "output.weight" if "output.weight" in self.w else "token_embd.weight"
        n = len(self.w.tensors[name].data)
        return np.concatenate([x @ self.w.rows(name, slice(a, a + ROWS)).T for a in range(0, n, ROWS)], -1)
