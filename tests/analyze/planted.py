"""Make dense attention of heads of known type, as traces."""
import numpy as np

from maker import AGE, ALIVE, SNAPSHOT, Column, make

KINDS = ["sliding-window", "several-windows", "sink", "a-shape", "context-switch", "gist", "number", "instruction", "filler", "mixed"]
STRENGTHS = (.85, .92, .98)
FILLER = [" the", " of", " and", " to", " in", " it"]
NUMBER = [" 7", " 12", "3", " +", " =", " 40"]
WORD = [" cat", " house", " walks", " river", " blue", " stone", " engine"]


def text(rng, T):
    """Return sentences of function words, numbers, operators and words that end in a period."""
    out = []
    while len(out) < T:
        for u in rng.random(rng.integers(6, 22)):
            out.append(rng.choice(FILLER if u < .3 else NUMBER if u < .45 else WORD))
        out.append(".")
    return out[:T]


def spec(rng, kind, strength, noise=None):
    """Return a head's behaviour on any text; strength: fraction of the mass of the pattern, 0.85 to 0.98."""
    weak = {.85: .6, .92: .75, .98: .9}[strength]
    return dict(kind=kind, strength=weak if kind in ("gist", "number", "filler", "instruction") else strength,
                width=int(rng.choice([6, 12, 24])), first=int(rng.integers(1, 5)), long=rng.uniform(.25, .5),
                sink=rng.uniform(.25, .7) if kind == "a-shape" else {.85: .55, .92: .75, .98: .95}[strength],
                hot=strength == .92, noise=rng.choice([.2, .7]) if noise is None else noise)


def rows(pattern, seen):
    """Return uniform weights over a pattern, or over all if it is empty."""
    n = pattern.sum(1, keepdims=True)
    return np.where(n > 0, pattern / np.maximum(n, 1), seen / seen.sum(1, keepdims=True))


def pattern_of(rng, s, texts, P, age, seen):
    T = len(texts)
    words = {"gist": ["."], "number": NUMBER, "filler": FILLER}
    if s["kind"] in words:
        return np.isin(texts, words[s["kind"]])[None, :] & seen
    if s["kind"] == "instruction":
        return ((np.arange(T) < P) & (np.arange(T) >= 4))[None, :] & seen
    if s["kind"] == "several-windows":
        long = rng.random(T) < s["long"]
        return ((age < min(s["width"], 8)) | (long[None, :] & (age < 8 * s["width"]))) & seen
    if s["kind"] == "context-switch":
        ends = np.flatnonzero(np.array(texts) == ".") + 1
        start = np.array([max([0, *ends[ends <= t]]) for t in range(T)])
        return (np.arange(T)[None, :] >= start[:, None]) & seen
    return (age < s["width"]) & seen


def attention(rng, s, texts, P):
    """Return [T][T] weights of the head on a text whose first P tokens are the prompt, and the log of the sums."""
    T = len(texts)
    t, i = np.mgrid[0:T, 0:T]
    seen, even = i <= t, rows(i <= t, i <= t)
    if s["kind"] == "mixed":
        hot = rows((rng.random(T) < .1)[None, :] & seen, seen)
        p = .5 * hot + .5 * even if s["hot"] else even
    else:
        k = 0 if s["kind"] == "sink" else s["strength"]
        p = k * rows(pattern_of(rng, s, texts, P, t - i, seen), seen) + (1 - k) * even
        if s["kind"] in ("sink", "a-shape"):
            p = s["sink"] * rows((i < s["first"]) & seen, seen) + (1 - s["sink"]) * p
    with np.errstate(divide="ignore"):
        z = np.where(seen, np.log(p), -np.inf) + s["noise"] * rng.standard_normal((T, T))
    e = np.exp(z)
    return e / e.sum(1, keepdims=True), np.log(e.sum(1))


def last_used(a, tau=.9):
    """Return the largest age at which each token is in the smallest set of largest weights that reaches tau."""
    T = len(a)
    order = T - 1 - np.argsort(-a[:, ::-1], 1, kind="stable")  # equal weights: the larger position first
    w = np.take_along_axis(a, order, 1)
    chosen = np.zeros((T, T), bool)
    np.put_along_axis(chosen, order, np.cumsum(w, 1) - w < tau, 1)
    chosen &= np.tril(np.ones((T, T), bool))
    return np.where(chosen.any(0), T - 1 - np.argmax(chosen[::-1], 0) - np.arange(T), np.nan)


def columns_of(heads, L, H, G, T, P):
    """Return the columns; heads: [L * G] of (weights, lse)."""
    def per(f):
        return np.array([f(a, z) for a, z in heads]).reshape(L, G, T)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = per(lambda a, z: -np.where(a > 0, a * np.log(a), 0).sum(1))
    return [Column("mass.sum", "f32", "query", per(lambda a, z: a.sum(0)), flags=SNAPSHOT),
            Column("mass.max", "f32", "query", per(lambda a, z: a.max(0)), flags=SNAPSHOT),
            Column("last_selected.mass.90", "u16", "query", per(lambda a, z: last_used(a)), flags=SNAPSHOT | AGE),
            Column("entropy", "f32", "query", entropy, "step"),
            Column("lse", "f32", "query", per(lambda a, z: z), "step"),
            Column("tokens.role", "u8", "run", np.arange(T) >= P),
            Column("evict_step", "u32", "kv", np.full((L, H, T), ALIVE))]


def trace(write_kvf, path, rng, specs, L, H, G, T, texts=None, P=None, meta=None):
    """Write a trace of L layers of G query heads with these specs.  Return the path and the contents."""
    texts, P = text(rng, T) if texts is None else texts, T // 4 if P is None else P
    heads = [attention(rng, s, texts, P) for s in specs]
    columns = columns_of(heads, L, H, G, T, P)
    return make(write_kvf, path, columns, (L, H, G, T), meta=meta, texts=texts), heads, texts, P
