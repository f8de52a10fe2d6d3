"""Signatures of heads and their matches, computed independently with NumPy from docs/reference/analyses/compare.md."""
import numpy as np

AGES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 384)
CRITERIA = ("top64", "top128", "mass.90", "mass.95", "mass.99")
QUERIES = ((4, 16), (16, 64), (64, 128), (128, 256), (256, 512), (512, 1024))
PLACES = ((0, 1), (1, 4), (4, 16), (16, 64), (64, 128), (128, 256), (256, 512), (512, 1024))
QUANTILES = (.05, .1, .25, .5, .75, .9, .95)
GATES = ("log_beta", "write_gate", "importance", "key_norm")


def query_features(columns, tokens=None):
    """Return (names, [heads][features]) of the available features; columns: name -> [heads][T], ages with -1 for never."""
    T = next(iter(columns.values())).shape[1]
    a, b = tokens or (0, T)
    low, names, out = max(4, a), [], []
    inside = {r: (max(r[0], a), min(r[1], b)) for r in QUERIES + PLACES if T >= r[0] + (r[1] - r[0]) // 2}
    for c in CRITERIA:
        for n in AGES if f"last_selected.{c}" in columns else ():
            if min(b, T - n) > low:
                names.append(f"survival.{c}.{n}")
                out.append((columns[f"last_selected.{c}"][:, low:min(b, T - n)] >= n).mean(1))
    for c in ("entropy", "lse"):
        for r in QUERIES if c in columns else ():
            if r in inside and inside[r][0] < inside[r][1]:
                x = columns[c][:, slice(*inside[r])]
                names += [f"{c}.mean.{r[0]}-{r[1]}", f"{c}.deviation.{r[0]}-{r[1]}"]
                out += [x.mean(1), x.std(1)]
    if "mass.sum" in columns and "mass.max" in columns:
        m, top, end = columns["mass.sum"], columns["mass.max"], min(b, T - T // 8)
        for r in PLACES:
            if r in inside and inside[r][0] < inside[r][1]:
                names.append(f"received.{r[0]}-{r[1]}")
                out.append(np.log(m[:, slice(*inside[r])].mean(1) + 1e-9))
        for q in QUANTILES:
            for name, x in (("largest", top[:, low:b]), ("received", m[:, low:end]), ("width", (m / np.maximum(top, 1e-9))[:, low:end])):
                names.append(f"{name}.q{q:g}")
                out.append(np.log(np.quantile(x, q, axis=1) + 1e-9))
    return names, np.array(out).T


def kv_features(names, query, columns, group, tokens=None):
    """Return the features of KV heads from query [query heads][features], with heads of a group adjacent, and columns:
    name -> [KV heads][T], evict_step inf: alive.
    """
    by = query.reshape(-1, group, query.shape[1])
    out = np.stack([by.mean(1), by.min(1), by.max(1)], axis=2).reshape(len(by), -1)
    names = [f"{n}.{how}" for n in names for how in ("mean", "least", "largest")]
    for c in GATES:
        if c in columns:
            T = columns[c].shape[1]
            a, b = tokens or (0, T)
            names = names + [f"{c}.q{q:g}" for q in QUANTILES]
            out = np.hstack([out, np.quantile(columns[c][:, max(4, a):b], QUANTILES, axis=1).T])
    if "evict_step" in columns:
        left = columns["evict_step"]
        T = left.shape[1]
        a, b = tokens or (0, T)
        for n in AGES:
            i = np.arange(max(4, a), min(b, T - n))
            if len(i):
                names = names + [f"held.{n}"]
                out = np.hstack([out, (left[:, i] - i > n).mean(1)[:, None]])
    return names, out


def scores(x):
    """Return the logits of the ranks of the heads, feature by feature; equal values share their mean rank."""
    less = (x[:, None, :] > x[None, :, :]).sum(1)
    equal = (x[:, None, :] == x[None, :, :]).sum(1)
    u = (less + (equal + 1) / 2 - .5) / len(x)
    return np.log(u / (1 - u))


def assign(cost):
    """Return [rows] the column of each row or -1: the minimum sum, by shortest augmenting paths."""
    if cost.shape[0] > cost.shape[1]:
        back = assign(cost.T)
        out = np.full(cost.shape[0], -1)
        out[back[back >= 0]] = np.flatnonzero(back >= 0)
        return out
    cost = np.where(np.isfinite(cost), cost, 1e9)
    n, m = cost.shape
    row, u, v = np.full(m, -1), np.zeros(n), np.zeros(m)
    for r in range(n):
        far, before, done = np.full(m, np.inf), np.full(m, -1), np.zeros(m, bool)
        i, j0, seen = r, -1, [r]
        while True:
            gap = cost[i] - u[i] - v
            better = ~done & (gap < far)
            far[better], before[better] = gap[better], j0
            j1 = np.where(done, np.inf, far).argmin()
            step = far[j1]
            u[seen] += step
            v[done] -= step
            far[~done] -= step
            done[j1], j0 = True, j1
            if row[j1] < 0:
                break
            i = row[j1]
            seen.append(i)
        while j0 >= 0:
            row[j0], j0 = (r if before[j0] < 0 else row[before[j0]]), before[j0]
    out = np.full(n, -1)
    out[row[row >= 0]] = np.flatnonzero(row >= 0)
    out[cost[np.arange(n), out] >= 1e9] = -1
    return out


def distances(a, b):
    return np.sqrt(np.maximum(((a[:, None, :] - b[None, :, :]) ** 2).mean(2), 0))


def rivals(D, partner):
    """Return for each row with a partner the minimum distance of either to a third head, inf without a partner."""
    out = np.full(len(D), np.inf)
    for i in np.flatnonzero(partner >= 0):
        out[i] = min([*np.delete(D[i], partner[i]), *np.delete(D[:, partner[i]], i), np.inf])
    return out


def learned(a, b, pairs):
    """Return the distance that is learned from these pairs."""
    e = np.array([a[i] - b[j] for i, j in pairs])
    W = np.cov(e.T, bias=True).reshape(a.shape[1], -1)
    W = (W + np.diag(np.diag(W))) / 2 + 1e-3 * np.trace(W) / len(W) * np.eye(len(W))
    inverse = np.linalg.inv(W)
    d = a[:, None, :] - b[None, :, :]
    return np.sqrt(np.maximum(np.einsum("ijf,fg,ijg->ij", d, inverse, d, optimize=True) / len(W), 0))


def fdr(p):
    order = np.argsort(p)
    q = np.empty(len(p))
    q[order] = np.minimum(1, np.minimum.accumulate((np.sort(p) * len(p) / np.arange(1, len(p) + 1))[::-1])[::-1])
    return q


def match(a, b, beside=0):
    """Return (distances, partner of each head of a or -1, rival, p, q); p and q are NaN without data.  beside: squares
    that are added to those of the distances while heads are assigned.
    """
    D, part = np.sqrt(distances(a, b) ** 2 + beside), np.arange(len(a)) % 5
    for last in (False, False, False, True):
        partner = assign(D)
        good = (partner >= 0) & (np.where(partner >= 0, D[np.arange(len(D)), partner], np.inf) < rivals(D, partner))
        if good.sum() - np.bincount(part[good], minlength=5).max() < 20:
            D = np.sqrt(distances(a, b) ** 2 + beside)
            break
        teach = np.flatnonzero(good)
        if not last:
            D = learned(a, b, [(i, partner[i]) for i in teach])
        else:
            D = np.vstack([learned(a, b, [(i, partner[i]) for i in teach if part[i] != k])[part == k] for k in range(5)])[np.argsort(np.argsort(part, kind="stable"))]
        D = np.sqrt(D ** 2 + beside)
    partner = assign(D)
    D = np.sqrt(np.maximum(D ** 2 - beside, 0))
    rival = rivals(D, partner)
    rows = np.flatnonzero(partner >= 0)
    score = np.full(len(a), np.nan)
    score[rows] = D[rows, partner[rows]] ** 2 / rival[rows]
    wrong = D.copy()
    wrong[rows, partner[rows]] = np.inf
    second = assign(wrong)
    other = rivals(wrong, second)
    null = np.array([wrong[i, second[i]] ** 2 / other[i] for i in np.flatnonzero(second >= 0) if np.isfinite(other[i]) and other[i] > 0])
    p = np.full(len(a), np.nan)
    for i in rows:
        if len(null) and np.isfinite(rival[i]) and rival[i] > 0:
            p[i] = (1 + (null <= score[i]).sum()) / (1 + len(null))
    q = np.full(len(a), np.nan)
    known = ~np.isnan(p)
    q[known] = fdr(p[known])
    return D, partner, rival, p, q
