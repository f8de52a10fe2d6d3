"""What follows from kept entries and from attention rows: steps at which entries left, and the columns that probes make of rows."""
import numpy as np

from . import progress
from .capture_rows import PROBES, LayerRows, NumpyArrays
from .errors import Error
from .import_tables import MOST_STEPS, whole
from .import_values import tokens_of

ALIVE = 2**32 - 1
FROM_ROWS = [p for p in PROBES if p not in ("evict", "nll", "keys", "contrib")]
SHAPE = "%s: attention is [layers][query heads][queries][entries], or attention@L0 and so on without the first"
NEAR = 0.02  # so far may the weights of a row sum from 1: half precision, rounded on the way


# ---- kept entries

def kept_shape(layers, where):
    """{layer: KV heads} of a field of kept entries: arrays [layers][heads][steps][places], lists of such, or rows of tables."""
    out = {}
    for layer, value in layers.items():
        if isinstance(value, dict):
            for l, h in value:
                out[l] = max(out.get(l, 0), h + 1)
            continue
        try:
            out.update({layer: len(value)} if layer is not None else {l: len(one) for l, one in enumerate(value)})
        except TypeError:
            raise Error("%s: kept entries are [layers][heads][steps][places], or [heads][steps][places] of kept@L0" % where) from None
    return out


def _sets(x, name, layer, head):
    """(steps, [the kept entries of each]) of one head."""
    parts = x.parts[name, ""]
    value, rows = parts.get(layer), parts.get(None)
    if isinstance(rows, dict):
        one = rows.get((layer, head))
        if one is None:
            raise Error("%s: there are no rows of kept entries of layer %d, head %d" % (x.at(name), layer, head))
        steps = np.array(sorted(one["steps"]), np.int64)
        if len(steps) and steps[-1] >= x.steps:
            raise Error("%s: kept entries of step %d, where the run has %d tokens" % (x.at(name), steps[-1], x.steps))
        step, token = (np.concatenate([r[k] for r in one["rows"]]) if one["rows"] else np.zeros(0, np.int64) for k in (0, 1))
        order = np.argsort(step, kind="stable")
        return steps, np.split(token[order], np.searchsorted(step[order], steps[1:]))
    try:
        sets = [np.asarray(s) for s in (value if value is not None else rows[layer])[head]]
    except (IndexError, KeyError, TypeError, ValueError):
        raise Error("%s: %s has no layer %d, head %d; it is [layers][heads][steps][places]" % (x.at(name), name, layer, head)) from None
    said = x.parts.get((name, "steps"), {})
    steps = whole(said.get(layer, said.get(None, range(x.steps - len(sets), x.steps))), name + "@steps", MOST_STEPS, x.at(name))
    if steps.shape != (len(sets),) or np.any(np.diff(steps) <= 0) or len(steps) and not 0 <= steps[0] <= steps[-1] < x.steps:
        raise Error("%s: %s has %d steps in layer %d, head %d; %s@steps must name as many, rising, below %d" % (x.at(name), name, len(sets), layer, head, name, x.steps))
    return steps, sets


def _left(steps, sets, T, after, upto, where):
    """evict_step [T] of a head, and {token: intervals} of entries that were away and came back."""
    last, count = np.full(T, -1), np.zeros(T, np.int64)
    member = {}
    for k, (step, one) in enumerate(zip(steps.tolist(), sets)):
        one = tokens_of(one, T, upto, where)
        if len(one) and one[-1] > step:
            raise Error("%s: entry %d is kept at step %d, which comes before it" % (where, one[-1], step))
        if not after:
            one = np.union1d(one, [step])  # a query sees its own entry
        last[one], member[k] = k, one
        count[one] += 1
    seen_at = steps + after  # the query that sees the set
    first = np.searchsorted(seen_at, np.arange(T), "right" if after else "left")
    out = np.full(T, ALIVE, np.uint32)
    for token in np.flatnonzero((last < len(steps) - 1) & (first < len(steps))).tolist():
        out[token] = max(token + 1, seen_at[max(last[token] + 1, first[token])])
    back = {t: [] for t in np.flatnonzero((last >= 0) & (count < last - first + 1)).tolist()}
    for token in back:
        seen = np.zeros(T + 1, bool)
        seen[token:seen_at[first[token]]] = True  # before the first set that tells of it
        for k in range(first[token], len(steps)):
            seen[seen_at[k]:seen_at[k + 1] if k + 1 < len(steps) else T] = token in member[k]
        edges = np.flatnonzero(np.diff(np.concatenate([[0], seen[:T].astype(np.int8), [0]])))
        back[token] = [(a, b - 1) for a, b in zip(edges[::2].tolist(), edges[1::2].tolist())]
    return out, back


def kept_columns(x):
    """{column: {layer: values}} of kept entries: evict_step, and `seen` where entries came back."""
    names = [n for n in ("kept", "kept_after") if x.has(n)]
    if not names:
        return {}
    if len(names) > 1 or x.has("evict_step"):
        raise Error("%s: give one of kept, kept_after and evict_step; each says when entries left" % x.at(names[0]))
    steps, seen, returns = {}, {}, False
    for layer, (heads, _) in enumerate(x.heads):
        made = [_left(*_sets(x, names[0], layer, h), x.steps, names[0] == "kept_after", x.upto(names[0]), "%s: %s of layer %d, head %d" % (x.at(names[0]), names[0], layer, h))
                for h in range(heads)]
        steps[layer], seen[layer] = np.array([out for out, _ in made]), [back for _, back in made]
        returns |= any(len(lists) > 1 for _, back in made for lists in back.values())
    return {"evict_step": steps, **({"seen": seen} if returns else {})}


def write_kept(x, w):
    for layer, values in x.kept.get("evict_step", {}).items():
        w.write("evict_step", values, layer=layer)
    for layer, heads in x.kept.get("seen", {}).items():
        left = x.kept["evict_step"][layer]
        lists = [[back.get(t, [(t, min(int(left[h][t]), x.steps) - 1)]) for t in range(x.steps)] for h, back in enumerate(heads)]
        w.intervals("seen", lists, layer=layer)


# ---- attention

def attention_shape(layers, where):
    """{layer: query heads} of attention: [layers][heads][queries][entries], @L3 of one layer, or lists [steps][layers] as transformers gives them."""
    out = {}
    try:
        out = _query_heads(layers)
    except (TypeError, ValueError, IndexError):
        pass
    if not out or not all(out.values()):
        raise Error(SHAPE % where)
    return out


def _query_heads(layers):
    out = {}
    for layer, value in layers.items():
        if isinstance(value, (list, tuple)) and layer is None and value and isinstance(value[0], (list, tuple)):
            out.update({l: np.shape(one)[-3] for l, one in enumerate(value[0]) if np.ndim(one) >= 3})
        elif layer is None:
            out.update({l: np.shape(one)[0] for l, one in enumerate(value) if np.ndim(one) == 3})
        else:
            out[layer] = np.shape(value)[0] if np.ndim(value) == 3 else 0
    return out


def _weights_of(x, value, most):
    """An array [query heads][queries][entries] of numbers, or with the batch before it where `most` is 4."""
    try:
        value = np.asarray(value)
    except ValueError:
        value = np.zeros(0)
    if value.ndim not in (3, most) or value.dtype.kind not in "biuf":
        raise Error(SHAPE % x.at("attention"))
    return value


def _blocks(x, layer):
    """(first query, weights [heads][queries][entries]) of a layer, in blocks."""
    parts = x.parts["attention", ""]
    everything = parts.get(None)
    if layer not in parts and isinstance(everything, (list, tuple)) and everything and isinstance(everything[0], (list, tuple)):
        t0 = 0
        for step in everything:
            one = _weights_of(x, step[layer] if layer < len(step) else None, 4)
            if one.ndim == 4 and one.shape[0] != 1:
                raise Error("%s: attention has a batch of %d; give one sequence" % (x.at("attention"), one.shape[0]))
            one = one[0] if one.ndim == 4 else one
            yield t0, one
            t0 += one.shape[1]
        return
    value = parts.get(layer, everything[layer] if everything is not None and layer < len(everything) else None)
    if value is None:
        raise Error("%s: there is no attention of layer %d" % (x.at("attention"), layer))
    value, said = _weights_of(x, value, 3), x.parts.get(("attention", "first"), {})
    first = int(whole(np.ravel(said.get(layer, said.get(None, x.steps - value.shape[1])))[:1], "attention@first", MOST_STEPS, x.at("attention")).sum())
    rows = max(1, NumpyArrays.most // max(1, value.shape[0] * value.shape[2]))
    for a in range(0, value.shape[1], rows):
        yield first + a, value[:, a:a + rows]


def attention_columns(probes):
    """{column: words} of what probes make of rows."""
    odd = [p for p in probes if p not in FROM_ROWS]
    if odd:
        raise Error("--probes %s: it does not follow from attention; %s do" % (odd[0], ", ".join(FROM_ROWS)))
    return {name: words for p in probes for name, words in PROBES[p].items() if name != "lse"}


def _weights(x, layer, t0, block, left):
    """(weights, seen, entropy) of a block of rows, which are looked at."""
    w = np.array(block, np.float32)
    (kv, heads), (G, rows, n) = x.heads[layer], w.shape
    if G != heads or t0 < 0 or t0 + rows > x.steps or not t0 < n <= x.steps:
        raise Error("%s: attention of layer %d is %d x %d x %d from query %d on; the trace has %d query heads and %d tokens" % (
            x.at("attention"), layer, G, rows, n, t0, heads, x.steps))
    t = np.arange(t0, t0 + rows)[:, None]
    seen = (np.arange(n)[None] <= t)[None]
    if left is not None:
        seen = np.repeat(seen & (t[None] < left[:, None, :n].astype(np.int64)), heads // kv, 0)
    w = np.where(seen & ~np.isnan(w), w, np.float32(0))
    total = w.sum(-1, dtype=np.float64)
    wrong = (np.abs(total - 1) > NEAR) | (w.min(-1) < 0)
    if wrong.any():
        head, row = np.argwhere(wrong)[0]
        raise Error("%s: the weights of query %d in layer %d, head %d sum to %.4g over the entries that it sees, and the least is %.4g; rows are what softmax gives" % (
            x.at("attention"), t0 + row, layer, head, total[head, row], w[head, row].min()))
    wide = w.astype(np.float64)
    entropy = -np.sum(np.where(wide > 0, wide * np.log(np.where(wide > 0, wide, 1)), 0), -1)
    return w, seen, entropy


def write_attention(x, w, probes, left):
    """left: {layer: evict_step [KV heads][tokens]}, or {} where all is seen."""
    wanted = attention_columns(probes)
    progress.expect(len(x.heads), "layers")
    for layer, (kv, heads) in enumerate(x.heads):
        rows, first, at = LayerRows(NumpyArrays(), kv, heads, probes), None, None
        for t0, block in _blocks(x, layer):
            if at is not None and t0 != at:
                raise Error("%s: the queries of attention do not follow one another" % x.at("attention"))
            weights, seen, entropy = _weights(x, layer, t0, block, left.get(layer))
            rows.take(weights, seen, np.zeros_like(entropy), entropy, t0, 0)
            first, at = t0 if first is None else first, t0 + weights.shape[1]
            progress.add(weights.shape[1] / x.steps)
        if at != x.steps:
            raise Error("%s: attention of layer %d ends before query %d, the last" % (x.at("attention"), layer, x.steps - 1))
        steps, _ = rows.drain()
        for values, t0 in ((steps, first), (rows.tokens(x.steps), 0)):
            for name in [n for n in values if n in wanted]:
                typed = values[name].astype(w.dtype(name)) if w.dtype(name).kind == "u" else values[name]
                w.write(name, typed, layer=layer, t0=t0)
