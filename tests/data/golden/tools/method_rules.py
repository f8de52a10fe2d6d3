"""The rules of the cases in methods.json once more, in plain numpy and double precision.

Written from the description of each method, not from its code.  Each function takes (spec, params) and returns what
the "out" object of a case should hold; among equal scores the larger position is kept.
"""
import numpy as np

from method_inputs import Inputs


# ---- attention

def logits(x, q, k):
    """q [G, r, d], k [H, n, d] -> [G, r, n]"""
    k = np.repeat(k.astype(float), x.group, 0)
    return np.einsum("grd,gnd->grn", q.astype(float), k) / np.sqrt(x.d)


def softmax(a):
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def weights(x, q, k):
    """causal: the last row sees all n keys, the row before one fewer, ..."""
    a = logits(x, q, k)
    r, n = a.shape[1:]
    a[:, np.arange(n)[None] > np.arange(n - r, n)[:, None]] = -np.inf
    return softmax(a)


def grouped(x, a, kind):
    """[G, ...] -> [H, ...]"""
    if kind is None:
        return a
    return {"mean": np.mean, "max": np.max, "sum": np.sum}[kind](a.reshape(x.H, x.group, *a.shape[1:]), axis=1)


def pooled(a, width, kind):
    out, half = np.empty_like(a), width // 2
    for i in range(a.shape[-1]):
        near = a[..., max(0, i - half):i + half + 1]
        out[..., i] = near.max(-1) if kind == "max" else near.sum(-1) / width
    return out


def top(score, count):
    """the indices of the `count` largest, best first"""
    return sorted(range(len(score)), key=lambda j: (-score[j], -j))[:max(0, count)]


def with_window(score, count, n):
    """the best `count` of the candidates, then everything after them"""
    order = [top(s, count) + list(range(len(s), n)) for s in score]
    return {"scores": score, "slots": order, "kept": [sorted(o) for o in order]}


# ---- window attention at the end of the prompt

def window_part(x, window):
    """[G, window, n - window] of the softmax over all keys"""
    return weights(x, x.q[:, -window:], x.k)[:, :, :-window]


def untouched(x, heads):
    return {"scores": [], "kept": [list(range(x.n))] * heads, "slots": [list(range(x.n))] * heads}


def snapkv(spec, p):
    x = Inputs(spec)
    if x.n < p["capacity"]:
        return untouched(x, x.G)
    score = pooled(window_part(x, p["window"]).sum(1), p["kernel"], p["pool"])
    return with_window(score, p["capacity"] - p["window"], x.n)


def snapkv_group(spec, p):
    x = Inputs(spec)
    if x.n < p["capacity"]:
        return untouched(x, x.H)
    score = pooled(grouped(x, window_part(x, p["window"]).sum(1), p["group"]), p["kernel"], p["pool"])
    return with_window(score, p["capacity"] - p["window"], x.n)


def h2o_prompt(spec, p):
    x = Inputs(spec)
    score = grouped(x, weights(x, x.q, x.k)[:, :, :-p["window"]].sum(1), p["group"])
    return with_window(score, p["capacity"] - p["window"], x.n)


def by_ratio(score, ratio):
    count = int(score.shape[-1] * (1 - ratio))
    return {"scores": score, "kept": [sorted(top(s, count)) for s in score]}


def protected_end(score, count):
    """`count` further entries with a score above all others"""
    return np.concatenate([score, np.full((len(score), count), score.max() + 1)], 1)


def snapkv_press_scores(x, p):
    score = grouped(x, pooled(window_part(x, p["window"]).mean(1), p["kernel"], "avg"), "mean")
    return protected_end(score, p["window"])


def snapkv_press(spec, p):
    return by_ratio(snapkv_press_scores(Inputs(spec), p), p["ratio"])


def tova_press(spec, p):
    x = Inputs(spec)
    score = window_part(x, 1).mean((0, 1))
    return by_ratio(protected_end(np.repeat(score[None], x.H, 0), 1), p["ratio"])


def keydiff(spec, p):
    k = Inputs(spec).k.astype(float)
    unit = k / np.sqrt((k * k).sum(-1, keepdims=True))
    anchor = unit.mean(1, keepdims=True)
    return by_ratio(-(unit * anchor).sum(-1) / np.sqrt((anchor * anchor).sum(-1)), p["ratio"])


def knorm(spec, p):
    k = Inputs(spec).k.astype(float)
    return by_ratio(-np.sqrt((k * k).sum(-1)), p["ratio"])


def observed_attention(spec, p):
    x = Inputs(spec)
    return by_ratio(grouped(x, weights(x, x.q, x.k).sum(1) / np.arange(x.n, 0, -1), "mean"), p["ratio"])


def expected_attention(spec, p):
    x = Inputs(spec)
    q, k, v = x.q[:, p["sinks"]:].astype(float), x.k[:, p["sinks"]:].astype(float), x.v[:, p["sinks"]:].astype(float)
    mean = q.mean(1)
    around = q - mean[:, None]
    cov = np.einsum("gri,grj->gij", around, around) / q.shape[1]
    half = x.d // 2
    angle = (x.n + np.arange(p["future"]))[:, None] * p["rope_base"] ** (-2 * np.arange(half) / x.d)
    turn = np.zeros((x.d, x.d))  # the mean rotation; channel i turns with channel i + d/2
    for i, (c, s) in enumerate(zip(np.cos(angle).mean(0), np.sin(angle).mean(0))):
        turn[i, i], turn[i, i + half], turn[i + half, i], turn[i + half, i + half] = c, -s, s, c
    mean, cov = mean @ turn.T, turn @ cov @ turn.T
    each = np.repeat(k, x.group, 0)
    z = np.einsum("gd,gnd->gn", mean, each) / np.sqrt(x.d)
    if p["covariance"]:
        z += np.einsum("gni,gij,gnj->gn", each, cov, each) / (2 * x.d)
    score = grouped(x, softmax(z), "mean")
    if p["vnorm"]:
        score = (score + p["epsilon"]) * np.sqrt((v * v).sum(-1))
    return by_ratio(np.concatenate([np.full((x.H, p["sinks"]), score.max() + 1), score], 1), p["ratio"])


# ---- budgets

def pyramid(n, p, layer):
    """capacity beside the window, and the base, of one layer"""
    base = p["capacity"] - p["window"]
    least = base // p.get("beta", 20)
    most = 2 * base - least
    if most >= n - p["window"]:
        most = n - p["window"]
        least = 2 * base - most
    return most - layer * ((most - least) // (p["layers"] - 1)), base


def pyramidkv(spec, p):
    n, out = spec["n"], {"budgets": [], "scores": [], "kept": []}
    for layer in range(p["layers"]):
        capacity, base = pyramid(n, p, layer)
        if n < p["capacity"]:
            out["budgets"].append(n)
            continue
        capacity = base if n < 2 * base else capacity
        out["budgets"].append(capacity + p["window"])
        if not p.get("budgets_only"):
            x = Inputs(spec, layer)
            kind = p["group"] if x.group > 1 else None
            score = pooled(grouped(x, window_part(x, p["window"]).sum(1), kind), p["kernel"], p["pool"])
            out["scores"].append(score)
            out["kept"].append(with_window(score, capacity, n)["kept"])
    return {key: value for key, value in out.items() if len(value)}


def pyramidkv_press(spec, p):
    n, base = spec["n"], spec["n"] * (1 - p["ratio"])
    least = base / p["beta"]
    most = 2 * base - least
    if most >= n - p["window"]:
        most = n - p["window"]
        least = 2 * base - most
    if not n >= most >= least >= p["window"]:
        return {"budgets": [round(base)] * p["layers"]}
    step = (most - least) / (p["layers"] - 1)
    return {"budgets": [round(most - layer * step) for layer in range(p["layers"])]}


def ada_layer(x, p, layer, group):
    base = pyramid(x.n, p, layer)[0] if p.get("pyramid") else p["capacity"] - p["window"]
    score = pooled(grouped(x, window_part(x, p["window"]).mean(1), group), p["kernel"], p["pool"])
    heads, n = score.shape
    if base > n:
        return {"base": base, "lengths": [x.n] * heads, "kept": [list(range(x.n))] * heads, "scores": score}
    weighted = score
    if p["normalize"]:
        best = np.sort(score, 1)[:, ::-1]
        weighted = score * (best[:, :base].sum(1) / best.sum(1))[:, None]
    count = np.zeros(heads, int)
    for j in top(weighted.ravel(), heads * base):
        count[j // n] += 1
    floor = int(base * p["alpha"])
    budget = [int(np.rint(c * (1 - p["alpha"]) + floor)) for c in count]
    if layer < p.get("skip", 0):
        budget = [base] * heads
    kept = [sorted(top(s, b)) + list(range(n, x.n)) for s, b in zip(score, budget)]
    return {"base": base, "scores": score, "lengths": [b + p["window"] for b in budget], "kept": kept}


def adakv(spec, p):
    return {"layers": [ada_layer(Inputs(spec, l), p, l, p["group"]) for l in range(p.get("layers", 1))]}


def adakv_group(spec, p):
    return adakv(spec, p)


def adakv_press(spec, p):
    x = Inputs(spec)
    score = snapkv_press_scores(x, p)
    n_kept = int(x.n * (1 - p["ratio"]))
    safe = score.copy()
    for h in range(x.H):
        safe[h, top(score[h], int(n_kept * p["alpha"]))] = np.inf
    gone = set(sorted(range(safe.size), key=lambda j: (safe.flat[j], j))[:x.H * (x.n - n_kept)])
    kept = [[j for j in range(x.n) if h * x.n + j not in gone] for h in range(x.H)]
    return {"scores": score, "lengths": [len(head) for head in kept], "kept": kept}


# ---- again and again while decoding: `slot` lists the positions that a head holds, in the order of its slots

def redundancy(k, column_zero, eps, forgive="last"):
    """softmax of the mean cosine to all others, the most recent similar neighbour of each forgiven; "first" forgives
    slot 0 whatever it is"""
    k = k.astype(float)
    unit = k / (np.sqrt((k * k).sum(-1, keepdims=True)) + eps)
    cos = unit @ unit.T
    np.fill_diagonal(cos, 0)
    for row in cos:
        similar = np.flatnonzero(row > 0.5)
        if len(similar) and forgive != "first":
            row[similar[-1]] = 0
        elif column_zero:
            row[0] = 0
    return softmax(cos.mean(0))


def grown(slot, rounds):
    seen = 0
    for t in rounds:
        for s in slot:
            s.extend(range(seen, t))
        seen = t
        yield t


def group_logits(x, q, slot):
    """max over the group, per KV head: list of [rows, slots]"""
    return [logits_of(x, q, h, slot[h]).max(0) for h in range(x.H)]


def logits_of(x, q, h, slot):
    heads = slice(h * x.group, (h + 1) * x.group)
    return np.einsum("grd,nd->grn", q[heads].astype(float), x.k[h, slot].astype(float)) / np.sqrt(x.d)


def rkv(spec, p):
    x, out = Inputs(spec), []
    slot = [[] for _ in range(x.H)]
    w = p["window"]
    for t in grown(slot, p["rounds"]):
        one = {"importance": [], "redundancy": [], "scores": []}
        if len(slot[0]) >= p["budget"]:
            for h, a in enumerate(group_logits(x, x.queries(t - w, t), slot)):
                one["importance"].append(pooled(softmax(a[:, :-w]).mean(0), p["kernel"], "max"))
                one["redundancy"].append(redundancy(x.k[h, slot[h]], True, 1e-8, p["retain"])[:-w])
                one["scores"].append(p["lambda"] * one["importance"][h] - (1 - p["lambda"]) * one["redundancy"][h])
                best = top(one["scores"][h], p["budget"] - w)
                slot[h] = [slot[h][j] for j in best] + slot[h][-w:]
        out.append({key: value for key, value in one.items() if value})
        out[-1].update(slots=[list(s) for s in slot], kept=[sorted(s) for s in slot])
    return {"rounds": out}


def snapkv_decode(spec, p):
    out = rkv(spec, {**p, "lambda": 1, "retain": "last"})
    for one in out["rounds"]:
        one.pop("importance", None), one.pop("redundancy", None)
    return out


def gkv_local(x, q, slot, w, gamma):
    """[H][slots - window]: softmax of each query head over all slots, max of the group, mean of the window"""
    out = []
    for h in range(x.H):
        a = logits_of(x, q, h, slot[h])
        n = a.shape[-1]
        a[:, np.arange(n)[None] > np.arange(n - w, n)[:, None]] = -np.inf
        best = softmax(a).max(0)[:, :n - w]
        out.append(best.mean(0) + (gamma * best.std(0, ddof=1) if gamma else 0))
    return out


def gkv_history(p, old, new):
    """the global score"""
    if old is None or p["smooth"] is None or p["alpha"] <= 0:
        return new
    out, m = new.copy(), len(old)
    if p["smooth"] == "sum":
        out[:m] += p["alpha"] * old
    elif p["smooth"] == "max":
        out[:m] = np.maximum(p["alpha"] * old, new[:m])
    else:
        out[:m] = p["alpha"] * old + (1 - p["alpha"]) * new[:m]
    return out


def gkv(spec, p):
    x, out, w = Inputs(spec), [], p["window"]
    slot, old = [[] for _ in range(x.H)], [None] * x.H
    if p["initial"]:
        m = p["initial"]
        old = list(grouped(x, weights(x, x.queries(0, m), x.k[:, :m]), "max").sum(1))
    for t in grown(slot, p["rounds"]):
        one = {"global": [], "redundancy": [], "scores": []}
        budget = max(p["budget"], int(t * p["ratio"])) if p["ratio"] else p["budget"]
        if len(slot[0]) > budget:
            for h, s in enumerate(gkv_local(x, x.queries(t - w, t), slot, w, p["gamma"])):
                norm = p["smooth"] is not None and not p["disable_norm"]
                f = gkv_history(p, old[h], s / s.max() if norm else s)
                score = pooled(f, p["kernel"], "max") if p["pooling"] else f
                if p["redundancy"]:
                    eps = 1e-6 if p["redundancy"] == "kernel" else 1e-8
                    r = redundancy(x.k[h, slot[h]], p["redundancy"] != "kernel", eps)[:-w]
                    r = r / r.max() if norm else r
                    one["redundancy"].append(r)
                    score = p["lambda"] * score - (1 - p["lambda"]) * r
                one["global"].append(f)
                one["scores"].append(score)
                best = sorted(top(score, budget - w))
                old[h] = f[best] if p["smooth"] is not None else None
                slot[h] = [slot[h][j] for j in best] + slot[h][-w:]
        out.append({key: value for key, value in one.items() if value})
        out[-1]["kept"] = [list(s) for s in slot]
    return {"rounds": out}


def h2o(spec, p):
    x, out, start = Inputs(spec), [], 0
    slot, total = [[] for _ in range(x.H)], [np.zeros(0)] * x.H
    for t in grown(slot, range(p["prompt"], x.n + 1)):
        one = {"scores": []}
        for h in range(x.H):
            a = logits_of(x, x.queries(start, t), h, slot[h])[0]
            m, r = a.shape[1], t - start
            a[np.arange(m)[None] > np.arange(m - r, m)[:, None]] = -np.inf
            total[h] = np.concatenate([total[h], np.zeros(r)]) + softmax(a).sum(0)
            if m > p["heavy"] + p["recent"]:
                one["scores"].append(total[h][:m - p["recent"]].copy())
                stay = sorted(top(one["scores"][h], p["heavy"])) + list(range(m - p["recent"], m))
                slot[h], total[h] = [slot[h][j] for j in stay], total[h][stay]
        if not one["scores"]:
            del one["scores"]
        out.append({**one, "kept": [list(s) for s in slot]})
        start = t
    return {"steps": out}


def tova(spec, p):
    x, out = Inputs(spec), []
    slot = [[]]
    for t in grown(slot, range(p["prompt"], x.n + 1)):
        one, held = {}, slot[0]
        if len(held) > p["capacity"]:
            a = np.concatenate([logits_of(x, x.queries(t - 1, t), h, held) for h in range(x.H)])
            score = softmax(a)[:, 0].mean(0)
            one["scores"] = [score]
            slot[0] = [held[j] for j in sorted(top(score, p["capacity"]))]
        out.append({**one, "kept": [list(slot[0])]})
    return {"steps": out}


def morphkv(spec, p):
    """the history of each query head is compacted by that head's own choice, the cache by the choice of the group,
    so their columns part when a group has more than one head"""
    x, out, w, keep = Inputs(spec), [], p["window"], p["capacity"] - p["window"]
    fuse = np.max if p["fuse"] == "max" else np.sum
    slot = [list(range(p["prompt"])) for _ in range(x.H)]
    past = [logits_of(x, x.q[:, p["prompt"] - w:p["prompt"]], g // x.group, slot[g // x.group])[g % x.group]
            for g in range(x.G)]
    for t in range(p["prompt"], x.n):
        for s in slot:
            s.append(t)
        now = [logits_of(x, x.queries(t, t + 1), g // x.group, slot[g // x.group])[g % x.group] for g in range(x.G)]
        past = [np.concatenate([a, np.full((w, 1), -np.inf)], 1) for a in past]
        one, m = {}, len(slot[0])
        if m >= (1 + p["capacity"]) * p["evict_after"]:
            one["scores"], held = [], range(m - w - 1, m)
            for h in range(x.H):
                seen = sum(past[h * x.group:(h + 1) * x.group])[:, :-w - 1]
                one["scores"].append(fuse(softmax(seen), axis=0))
                slot[h] = [slot[h][j] for j in sorted(top(one["scores"][h], keep)) + list(held)]
            for g in range(x.G):
                stay = sorted(top(fuse(softmax(past[g][:, :-w - 1]), axis=0), keep)) + list(held)
                past[g], now[g] = past[g][:, stay], now[g][:, stay]
        past = [np.concatenate([a[1:], b]) for a, b in zip(past, now)]
        out.append({**one, "kept": [list(s) for s in slot]})
    return {"steps": out}


# ---- CAKE

def share(budget, total, limit):
    """whole budgets within [.., limit] whose sum is the total where that can be had"""
    budget = np.array(budget, dtype=int)

    def spread(amount, open_):
        where = np.flatnonzero(open_)
        if len(where) and amount:
            budget[where] += np.sign(amount) * (abs(amount) // len(where))
            budget[where[:abs(amount) % len(where)]] += np.sign(amount)

    excess = np.maximum(budget - limit, 0).sum()
    np.minimum(budget, limit, out=budget)
    spread(excess, budget < limit)
    rest = total - budget.sum()
    spread(rest, budget < limit if rest > 0 else budget > 1)
    return budget.tolist()


def cake_adjust(spec, p):
    return {"budgets": share(p["list"], p["total"], p["limit"])}


def cake_layer(x, p):
    """preference and eviction score of one layer"""
    a = weights(x, x.q[:, p["prompt"] - p["window"]:p["prompt"]], x.k[:, :p["prompt"]])[:, :, :-p["window"]]
    entropy = -(a * np.log(a + 1e-10)).sum()
    variance = a.var(1, ddof=1)
    score = grouped(x, pooled(a.mean(1) + p["gamma"] * variance, 5, "avg"), "mean")
    return entropy ** (1 / p["tau1"]) * variance.sum() ** (1 / p["tau2"]), score


def cake(spec, p):
    w, L, n = p["window"], p["layers"], p["prompt"]
    xs = [Inputs(spec, l) for l in range(L)]
    preference, scores = zip(*[cake_layer(x, p) for x in xs])
    total, out = (p["capacity"] - w) * L, {"preference": list(preference), "scores": list(scores), "budgets": []}
    current = []
    for l in range(L):
        current.append(p["capacity"] - w)
        if n > p["capacity"] + w and (p["cascading"] or l == L - 1):
            part = np.array(preference[:l + 1])
            current = [min(b, n - w) for b in share(part / part.sum() * total, total, n - w)]
        out["budgets"].append(list(current))
    slot = [[list(range(n)) for _ in range(x.H)] for x in xs]
    if n > p["capacity"] + w:
        slot = [with_window(s, b, n)["slots"] for s, b in zip(scores, current)]
    out["steps"] = [{"kept": sorted_all(slot), "slots": copy_all(slot)}]
    for t in range(n, spec["n"]):
        out["steps"].append(cake_step(xs, p, current, slot, t))
    return out


def sorted_all(slot):
    return [[sorted(head) for head in layer] for layer in slot]


def copy_all(slot):
    return [[list(head) for head in layer] for layer in slot]


def cake_step(xs, p, budget, slot, t):
    w, scores = p["window"], []
    for l, x in enumerate(xs):
        for h in range(x.H):
            slot[l][h].append(t)
        if len(slot[l][0]) > budget[l] + w:
            a = [softmax(logits_of(x, x.queries(t, t + 1), h, slot[l][h]))[:, 0, :-w] for h in range(x.H)]
            scores.append([pooled(head, 5, "avg").mean(0) for head in a])
            slot[l] = [[s[j] for j in top(score, budget[l])] + s[-w:] for s, score in zip(slot[l], scores[-1])]
        else:
            scores.append([])
    return {"kept": sorted_all(slot), "scores": scores}


# ---- sinks and recent

def streaming(spec, p):
    n, s, r = spec["n"], p["sinks"], p["recent"]
    out = {"after": list(range(n)) if n <= s + r else list(range(s)) + list(range(n - r, n))}
    if p["coming"]:
        m = p["coming"]
        out["before"] = list(range(n)) if n + m <= s + r else list(range(s)) + list(range(n - r + m, n))
    return out
