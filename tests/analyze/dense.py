"""Brute force for the analyzers: a Llama forward pass in float64 that keeps the complete T x T attention, and every
statistic computed from its definition on these arrays.  Python's standard library and numpy only.
"""
import struct

import numpy as np

TOP = {"top64": 64, "top128": 128, "top256": 256, "top512": 512}
MASS = {"mass.90": .90, "mass.95": .95, "mass.99": .99}
CRITERIA = [*TOP, *MASS]
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class Gguf:
    """The metadata and the float32 tensors of a GGUF v3 file."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.b = f.read()
        self.at, self.meta, self.offset = 24, {}, {}
        assert self.b[:4] == b"GGUF" and struct.unpack_from("<I", self.b, 4)[0] == 3
        n_tensors, n_keys = struct.unpack_from("<QQ", self.b, 8)
        for _ in range(n_keys):
            key = self.string()
            self.meta[key] = self.value(self.take("I"))
        tensors = []
        for _ in range(n_tensors):
            name = self.string()
            shape = [self.take("Q") for _ in range(self.take("I"))][::-1]
            kind, offset = self.take("I"), self.take("Q")
            assert kind == 0, "float32 tensors only"
            tensors.append((name, shape, offset))
        base = -(-self.at // 32) * 32
        self.tensor = {}
        for name, shape, offset in tensors:
            x = np.frombuffer(self.b, "<f4", int(np.prod(shape)), base + offset)
            self.tensor[name] = x.reshape(shape).astype(np.float64)
            self.offset[name] = (base + offset, x.nbytes)

    def take(self, code):
        v = struct.unpack_from("<" + code, self.b, self.at)[0]
        self.at += struct.calcsize("<" + code)
        return v

    def string(self):
        n = self.take("Q")
        self.at += n
        return self.b[self.at - n:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            inner, n = self.take("I"), self.take("Q")
            return [self.value(inner) for _ in range(n)]
        return self.take(SCALARS[kind])


class Llama:
    def __init__(self, path):
        g = Gguf(path)
        key = "llama." + "{}"
        self.L = g.meta[key.format("block_count")]
        self.G = g.meta[key.format("attention.head_count")]
        self.H = g.meta[key.format("attention.head_count_kv")]
        self.D = g.meta[key.format("attention.key_length")]
        self.eps = g.meta[key.format("attention.layer_norm_rms_epsilon")]
        self.base = g.meta[key.format("rope.freq_base")]
        self.w = g.tensor

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.w[name]

    def rope(self, x):  # (T, heads, D): rotates the pairs (2j, 2j + 1) by t * base^(-2j / D)
        T, _, D = x.shape
        angle = np.arange(T)[:, None] * self.base ** (-np.arange(0, D, 2) / D)
        z = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angle)[:, None]
        return np.stack([z.real, z.imag], -1).reshape(x.shape)

    def run(self, ids, alpha):
        """Return p [L,G,T,T] (0 if unseen), lse [L,G,T], nll [T], for ids [T] and alpha [L,H,T,T] booleans: query t
        sees entry i.  Sets key_norm [L,H,T], out_norm [L,G,T] and whole [L,G,T,T], the weights of its queries over
        all entries 0 .. t.
        """
        T, w = len(ids), self.w
        p, lse = np.zeros((self.L, self.G, T, T)), np.zeros((self.L, self.G, T))
        self.key_norm = np.zeros((self.L, self.H, T))
        self.out_norm = np.zeros((self.L, self.G, T))
        self.whole, causal = np.zeros((self.L, self.G, T, T)), np.tril(np.ones((T, T), bool))
        x = w["token_embd.weight"][ids]
        for l in range(self.L):
            blk = f"blk.{l}."
            y = self.norm(x, blk + "attn_norm.weight")
            q, k, v = (y @ w[f"{blk}attn_{c}.weight"].T for c in "qkv")
            q, k = self.rope(q.reshape(T, self.G, -1)), self.rope(k.reshape(T, self.H, -1))
            self.key_norm[l] = np.sqrt((k * k).sum(-1)).T
            v, out = v.reshape(T, self.H, -1), np.empty_like(q)
            for g in range(self.G):
                h = g // (self.G // self.H)
                behind = v[:, h] @ w[blk + "attn_output.weight"][:, g * self.D : (g + 1) * self.D].T
                self.out_norm[l, g] = np.sqrt((behind * behind).sum(-1))
                s = q[:, g] @ k[:, h].T / np.sqrt(self.D)
                e = np.where(causal, np.exp(s - np.where(causal, s, -np.inf).max(-1, keepdims=True)), 0)
                self.whole[l, g] = e / e.sum(-1, keepdims=True)
                s[~alpha[l, h]] = -np.inf
                top = s.max(-1, keepdims=True)
                e = np.exp(s - top)
                lse[l, g] = np.log(e.sum(-1)) + top[:, 0]
                p[l, g] = e / e.sum(-1, keepdims=True)
                out[:, g] = p[l, g] @ v[:, h]
            x = x + out.reshape(T, -1) @ w[blk + "attn_output.weight"].T
            y = self.norm(x, blk + "ffn_norm.weight")
            gate = y @ w[blk + "ffn_gate.weight"].T
            up = y @ w[blk + "ffn_up.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ w[blk + "ffn_down.weight"].T
        z = self.norm(x, "output_norm.weight") @ w.get("output.weight", w["token_embd.weight"]).T
        z = z - z.max(-1, keepdims=True)
        nll = np.full(T, np.nan)
        if T > 1:
            nll[1:] = (np.log(np.exp(z).sum(-1))[:-1] - z[np.arange(T - 1), ids[1:]])
        return p, lse, nll


def alpha_of(evict, T):
    """Return alpha_ti = 1 iff i <= t < evict_i, for evict [L,H,T], +inf = alive."""
    t, i = np.arange(T)[:, None], np.arange(T)[None, :]
    return (i <= t) & (t < evict[:, :, None, :])


def row_sets(p, pos, eps):
    """Return per criterion (selected, surely selected, possibly selected) of a row with weights p at positions pos, if
    every weight is only known within a factor 1 +- eps.  Order: larger weight first, among equals the larger
    position first.
    """
    order = np.lexsort((-pos, -p))
    s, n = p[order], len(p)
    rank = np.empty(n, int)
    rank[order] = np.arange(n)
    sums = np.concatenate([[0], np.cumsum(s)])
    if eps:
        could = np.searchsorted(-s, -p * (1 - eps) / (1 + eps), "right") - 1  # may come first
        sure = np.searchsorted(-s, -p * (1 + eps) / (1 - eps), "left")  # must come first
        could_mass = sums[could + 1] - p
    else:
        could = sure = rank
        could_mass = sums[rank]
    slack, out = max(eps, 1e-12), {}
    for name, K in TOP.items():
        out[name] = rank < K, could < K, sure < K
    for name, tau in MASS.items():
        goal = tau * sums[-1]
        out[name] = (sums[rank] < goal, could_mass * (1 + slack) < goal * (1 - slack),
                     sums[sure] * (1 - slack) < goal * (1 + slack))
    return out


class Dense:
    """All quantities of one run, computed from the attention."""

    def __init__(self, model, ids, role, evict, eps):
        self.T, self.L, self.G, self.H = len(ids), model.L, model.G, model.H
        self.role, self.evict = role, evict
        self.alpha = alpha_of(evict, self.T)
        self.p, self.lse, self.nll = model.run(ids, self.alpha)
        shape = (self.L, self.G, self.T, self.T)
        self.sets = {c: [np.zeros(shape, bool) for _ in range(3)] for c in [*CRITERIA, "contrib64"]}
        for l in range(self.L):
            for g in range(self.G):
                for t in range(self.T):
                    seen = np.flatnonzero(self.alpha[l, g // (self.G // self.H), t])
                    for c, kinds in row_sets(self.p[l, g, t, seen], seen, eps).items():
                        for k in range(3):
                            self.sets[c][k][l, g, t, seen] = kinds[k]
                    given = self.p[l, g, t, seen] * model.out_norm[l, g, seen]
                    for k, kind in enumerate(row_sets(given, seen, eps)["top64"]):
                        self.sets["contrib64"][k][l, g, t, seen] = kind

    def last(self, S):
        """Return [L,G,T]: largest t - i with S_ti, -1 = never."""
        t = np.arange(self.T)[:, None]
        return np.where(S, t - np.arange(self.T), -1).max(axis=2, initial=-1)

    def resolve(self, c, seen_last):
        """Return (S, ages that rounding does not explain, ages that it decided) for criterion c.  In the selected set
        S, cases that rounding may decide are decided as in the trace.
        """
        exact, sure, possible = self.sets[c]
        low, high, mine = self.last(sure), self.last(possible), self.last(exact)
        wrong = ((seen_last < low) | (seen_last > high)).sum()
        differ = np.argwhere(seen_last != mine)
        S = exact.copy()
        for l, g, i in differ:
            age = int(seen_last[l, g, i])
            S[l, g, i + age + 1:, i] = False
            if age >= 0:
                S[l, g, i + age, i] = possible[l, g, i + age, i]
        return S, int(wrong), len(differ), int((low != high).sum())

    def mass(self):
        return self.p.sum(axis=2), self.p.max(axis=2)

    def entropy(self):
        with np.errstate(divide="ignore", invalid="ignore"):
            return -np.where(self.p > 0, self.p * np.log(self.p), 0).sum(-1)


WINDOWS, LENGTH, BLOCK = 4, 128, 16


def windows(p, H):
    """Return {column: [L,H,T]} from weights p [L,G,T,T], by the definition."""
    L, G, T, _ = p.shape
    most = p.reshape(L, H, G // H, T, T).max(2)  # of the group, for each query and entry
    end, out = T - T % BLOCK, {}
    for w in range(WINDOWS):
        b = end - (WINDOWS - 1 - w) * LENGTH
        for name, a in ((f"window.{w}", b - LENGTH), (f"window16.{w}", b - BLOCK)):
            out[name] = np.full((L, H, T), np.nan)
            if a >= 0:
                out[name][:, :, :b] = most[:, :, a:b, :b].mean(2)
    return out


def selected_at(S):
    """Return [..., i]: bit k is set iff query i + 2^k selected i; S [..., t, i]."""
    T, out = S.shape[-1], np.zeros(S.shape[:-2] + (S.shape[-1],), np.int64)
    for k in range(32):
        if 2**k < T:
            out[..., :T - 2**k] |= np.diagonal(S, -2**k, -2, -1).astype(np.int64) << k
    return out


def first_unselected(S):
    """Return [..., i]: least n with query i + n not selecting i, -1 if there is none before T."""
    T, out = S.shape[-1], np.full(S.shape[:-2] + (S.shape[-1],), -1)
    for n in reversed(range(T)):
        out[..., :T - n] = np.where(np.diagonal(S, -n, -2, -1), out[..., :T - n], n)
    return out


def until_last(S):
    """Return R_ti = 1 iff i is selected by some query t' >= t; [..., t, i]."""
    return np.flip(np.logical_or.accumulate(np.flip(S, -2), axis=-2), -2)


def survivors(R, n, a, b):
    """Return the number of tokens i in [a, b) selected by some query at i + n or later: R_(i+n),i; R [T,T]."""
    return int(R.diagonal(-n)[a:b].sum()) if n < len(R) else 0


def sparsity(kept, a, b, strict=False):
    """Return 1 - the fraction of the cells (t >= i, i in [a, b)) in `kept` [T,T]. strict: the printed form, which
    counts only i < t but divides by all cells.
    """
    T = len(kept)
    cells = np.tril(np.ones((T, T), bool))[:, a:b]
    use = np.tril(np.ones((T, T), bool), -1 if strict else 0)[:, a:b]
    return 1 - (kept[:, a:b] & use).sum() / cells.sum() if cells.sum() else np.nan
