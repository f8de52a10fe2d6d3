"""Scores from attention rows, by brute force from docs/reference/methods.md.

Every function takes (run, p, layer, head, alive, C): `alive` has the positions of the head in
ascending order, C those of them that may be evicted. It returns one number for each of C.
"""
import numpy as np


def query_heads(run, head):
    n = run.m.heads // run.m.kv_heads
    return range(head * n, (head + 1) * n)


def reduced(kind, a, axis=0):
    """Reduces over an axis of query heads."""
    return {"sum": np.sum, "mean": np.mean, "max": np.max, "none": only}[kind](a, axis=axis)


def only(a, axis):
    """For per-query caches: the axis has one element."""
    assert a.shape[axis] == 1
    return a.mean(axis=axis)


def pooled(p, score):
    """Neighbours are the next candidates in time. The maximum ignores positions beyond the edge,
    the average counts them as 0."""
    half = p["pool"] // 2
    out = np.empty_like(score)
    for i in range(len(score)):
        near = score[max(0, i - half) : i + half + 1]
        out[i] = near.max() if p["pool-kind"] == "max" else near.sum() / p["pool"]
    return out


def window(run, p):
    """Returns the queries with rows in the window."""
    return range(max(0, run.t - p["window"]), run.t)


def window_rows(run, p, layer, heads, entries):
    """Returns a_tj as [query][query head][entry]."""
    return np.array([[run.rows[layer, g, t, entries] for g in heads] for t in window(run, p)])


def shares_of(a):
    """Returns a_tj divided by the total that query t gave to C. A query with a total of zero counts
    as zero."""
    total = a.sum(axis=2, keepdims=True)
    return np.divide(a, total, out=np.zeros_like(a), where=total > 0)


def largest_logits(run, p, layer, heads, entries):
    """Returns [query][entry]: the softmax over the entries of the largest logit of the group."""
    out = []
    for t in window(run, p):
        z = run.scaled[layer, list(heads), t][:, entries].max(axis=0)
        e = np.exp(z - z.max()) if np.isfinite(z).any() else np.zeros_like(z)
        out.append(e / e.sum() if e.any() else e)
    return np.array(out)


def of_group(run, p, layer, heads, C, shares):
    """Returns [query][entry]: the weights, or their shares within C, reduced over the query
    heads."""
    if p["group"] == "max-logits":
        return largest_logits(run, p, layer, heads, C)
    a = window_rows(run, p, layer, heads, C)
    return reduced(p["group"], shares_of(a) if shares else a, axis=1)


def received(run, p, layer, head, alive, C):
    per_head = np.array([run.rows[layer, g, : run.t].sum(axis=0)[C] for g in query_heads(run, head)])
    if p["divide"] == "queries":
        per_head = per_head / (run.t - np.array(C))
    return pooled(p, reduced(p["group"], per_head))


def window_attention(run, p, layer, heads, C):
    return pooled(p, unpooled(run, p, layer, heads, C))


def unpooled(run, p, layer, heads, C):
    return reduced(p["across"], of_group(run, p, layer, heads, C, p["support"] == "candidates"))


def snapkv(run, p, layer, head, alive, C):
    return window_attention(run, p, layer, query_heads(run, head), C)


def tova(run, p, layer, head, alive, C):
    mean = p | {"group": "mean"} if p["group"] == "none" else p
    return window_attention(run, mean, layer, range(run.m.heads), C)


def below_even(run, p, layer, head, alive, C, scale=1.0):
    """Returns how many queries of the window gave an entry less than a uniform share (times
    scale)."""
    out = []
    for j in C:
        n = 0
        for t in window(run, p):
            a = reduced(p["group"], run.rows[layer, list(query_heads(run, head)), t, j])
            n += t >= j and a < scale / run.seen[layer, head, t]
        out.append(n)
    return np.array(out, float)


def scissorhands(run, p, layer, head, alive, C):
    return -below_even(run, p, layer, head, alive, C)


def variance(a):
    """Returns the unbiased variance over the queries of the window, the first axis."""
    return a.var(axis=0, ddof=1) if len(a) > 1 else np.zeros(a.shape[1:])


def cake(run, p, layer, head, alive, C):
    a = window_rows(run, p, layer, query_heads(run, head), C)
    per_head = [pooled(p, x) for x in a.mean(axis=0) + p["gamma"] * variance(a)]
    return reduced(p["group"], np.array(per_head))


def importance(run, p, layer, head, C):
    """Importance of rkv: shares within C; neighbours are those in C as listed."""
    return pooled(p, of_group(run, p, layer, query_heads(run, head), C, True).mean(axis=0))


def morphkv(run, p, layer, head, alive, C):
    return pooled(p, of_group(run, p, layer, query_heads(run, head), C, True).max(axis=0))


def normalised(x, top):
    """Divides by the maximum, if it is positive."""
    return x / top if top > 0 else x


def global_score(run, p, layer, head, C):
    """F of gkv, G-KV's equations 3 to 5: combines the window's score with the score stored at the
    last eviction."""
    s = unpooled(run, p, layer, query_heads(run, head), C)
    s = normalised(s, s.max())
    past, alpha = run.remembered.get((layer, head), {}), p["history"]
    if alpha == 0:
        return s
    fold = {"max": lambda f, x: max(alpha * f, x), "average": lambda f, x: alpha * f + (1 - alpha) * x,
            "sum": lambda f, x: alpha * f + x}[p.get("fold", "max")]
    return np.array([fold(past[j], x) if j in past else x for j, x in zip(C, s)])


def snapkv_global(run, p, layer, head, alive, C):
    return pooled(p, global_score(run, p, layer, head, C))
