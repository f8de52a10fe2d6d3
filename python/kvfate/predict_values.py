"""The input of `kvfate predict`: effects of KV heads or entries, and statistics of them from traces and tables.

docs/reference/analyses/predict.md defines the statistics."""
import math
import re

import numpy as np

from .commands import Usage
from .errors import Error, TraceError

CRITERIA = ("top64", "top128", "top256", "top512", "mass.90", "mass.95", "mass.99")
MORE_CRITERIA = ("contrib64", "held")  # of names, not of "all"
MOST_HEADS, MOST_TOKENS = 1 << 16, 1 << 22
PLACES = ("layer", "index", "token", "birth", "step", "count")  # columns that locate a row
NAN = float("nan")


def _mean(x):
    """Returns the mean over tokens, summed with more digits than float64 has."""
    return x.mean(-1, dtype=np.longdouble).astype(float)


def _geometric(x, n):
    """Returns the sum of exp(k x) for k = 0 .. n - 1, x <= 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where((x == 0) | ((n <= 1) & ~np.isnan(x)), n, np.expm1(n * x) / np.expm1(x))


def _sparsity(kept, T):
    return 1 - kept / (T * (T + 1) / 2)


def _sink_share(v, T, o):
    total = v.sum(-1, dtype=np.longdouble)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(total > 0, v[..., :o.sinks].sum(-1, dtype=np.longdouble) / total, NAN).astype(float)


def _survival(v, T, o):
    n = T - o.horizon
    return (v[..., :n] >= o.horizon).sum(-1) / n if n > 0 else np.full(v.shape[:-1], NAN)


# Statistics in the order of the table: (name, column, space, of a head, of a token, whether a criterion follows both names, whether the values
# are multiplied by out_norm).  Of a head: f(values [..., T], T, options) gives [...]; of a token: f(values, T) gives [..., T].  |W_O v_i| does not
# change with the query, so it is a factor of the sum and of the maximum.
AGES = "last_selected"
STATISTICS = (
    ("beta", "log_beta", "kv", lambda v, T, o: _mean(np.exp(v)), lambda v, T: np.exp(v), False, False),
    ("mean_retention", "log_beta", "kv", lambda v, T, o: _mean(_geometric(v, T - np.arange(T)) / (T - np.arange(T))), None, False, False),
    ("sparsity.beta", "log_beta", "kv", lambda v, T, o: _sparsity(_mean(_geometric(v, T - np.arange(T))) * T, T), None, False, False),
    ("write_gate", "write_gate", "kv", lambda v, T, o: _mean(v), lambda v, T: v, False, False),
    ("importance", "importance", "kv", lambda v, T, o: _mean(v), lambda v, T: v, False, False),
    ("survival", AGES, "query", _survival, None, True, False),
    ("sparsity.use", AGES, "query", lambda v, T, o: _sparsity(np.where(v < 0, 0, v + 1).sum(-1), T), None, True, False),
    ("last_use", AGES, "query", None, lambda v, T: np.where(v < 0, 0, v + 1), True, False),
    ("entropy", "entropy", "query", lambda v, T, o: _mean(v), None, False, False),
    ("sink_mass", "mass.sum", "query", _sink_share, None, False, False),
    ("mass.sum", "mass.sum", "query", None, lambda v, T: v, False, False),
    ("mass.max", "mass.max", "query", None, lambda v, T: v, False, False),
    ("sink_contrib", "mass.sum", "query", _sink_share, None, False, True),
    ("contrib.sum", "mass.sum", "query", None, lambda v, T: v, False, True),
    ("contrib.max", "mass.max", "query", None, lambda v, T: v, False, True),
    ("entries_held", "evict_step", "kv", lambda v, T, o: (np.minimum(v, T) - np.arange(T)).sum(-1) / T, None, False, False),
    ("steps_held", "evict_step", "kv", None, lambda v, T: np.minimum(v, T) - np.arange(T), False, False),
    ("saliency", "saliency", "kv", lambda v, T, o: _mean(abs(v)), lambda v, T: abs(v), False, False),
)


def criteria(text):
    """Returns the criteria of a comma list, or of "all", in the order of CRITERIA."""
    wanted = list(CRITERIA) if text == "all" else [x for x in text.split(",") if x]
    for x in wanted:
        if x not in CRITERIA + MORE_CRITERIA:
            raise Usage("--criterion: no criterion in '%s'; use top64 ... top512, mass.90 ... mass.99, contrib64 and held" % x)
    if not wanted:
        raise Usage("--criterion: no criterion in '%s'" % text)
    return [x for x in CRITERIA + MORE_CRITERIA if x in wanted]


def head_name(text):
    """Returns (layer, head, whether it is a query head) of a name such as L3K1 or L3H4."""
    found = re.fullmatch(r"L(\d{1,5})([KH])(\d{1,5})", text, re.ASCII)
    if not found or max(int(found[1]), int(found[3])) >= MOST_HEADS:
        raise Error("'%s' is no head such as L3K1 or L3H4" % text[:40])
    return int(found[1]), int(found[3]), found[2] == "H"


def head_set(text, layers, heads):
    """Returns which KV heads a set such as "L0-5K*,15.2" names, [layers][heads] bool, or None if it is malformed or names others."""
    out = np.zeros((layers, heads), bool)
    for item in text.split(","):
        found = re.fullmatch(r"(L?)(\*|\d+(?:-\d+)?)([K.])(\*|\d+(?:-\d+)?)", item, re.ASCII)
        if not found or (found[1] == "L") != (found[3] == "K"):
            return None
        ranges = [(0, len(out.flat)) if x == "*" else (int(x.split("-")[0]), int(x.split("-")[-1])) for x in (found[2], found[4])]
        if any(x != "*" and b >= n for x, (_, b), n in zip((found[2], found[4]), ranges, out.shape)):
            return None
        out[tuple(slice(a, b + 1) for a, b in ranges)] = True
    return out


def _of_entries(t):
    return t.kind("token") == "int" and t.kind("count") == "int" and "entries" in t.columns


def is_effect(t):
    """Returns whether a table is an effect that can be predicted: rows of heads, or of single entries."""
    heads = t.kind("head") == "str" and t.kind("layer") == t.kind("index") == "int" and t.kind("doc") != "int"
    return t.kind("kl") in ("int", "real") and (heads or _of_entries(t))


def _largest(tables, column):
    return max([int(t.columns[column].max()) for t in tables if t.kind(column) in ("int", "real") and t.rows], default=-1)


def _setting(asked, effect, key, otherwise):
    """Returns the value of an option, by default the one with which the effect was measured."""
    if asked is not None:
        return asked
    return int(effect.number(key)) if math.isfinite(effect.number(key)) else otherwise


def _facts(t):
    """Returns (hash of the model, number of tokens of the prompt) of a trace, or None if unknown."""
    try:
        meta = t.meta
    except TraceError:
        meta = None
    model, run = ((meta.get(key) if isinstance(meta, dict) else None) for key in ("model", "run"))
    name, prompt = (x.get(key) if isinstance(x, dict) else None for x, key in ((model, "hash"), (run, "prompt_tokens")))
    return name if isinstance(name, str) else None, prompt if isinstance(prompt, (int, float)) else None


class Values:
    """Effects and candidates of all pairs of an effect and its sources.

    entries: units are tokens of one document, not heads of the model; units: how many a pair has; effect: [pairs][units], NaN if not measured;
    candidates: {(name, reduce): [pairs][units]}; prompts_differ: how many traces have another prompt length than their effect"""

    def __init__(self, pairs, request):
        self.pairs, self.value, self.criteria = pairs, request.value, criteria(request.criterion)
        effects, self.entries = [p.effect for p in pairs], _of_entries(pairs[0].effect)
        for p in pairs:
            if _of_entries(p.effect) != self.entries:
                raise Usage("%s: effects of heads and of entries do not go together" % p.effect.path)
        self._shape(effects)
        first = effects[0]
        self.horizon, self.sinks = _setting(request.horizon, first, "recent", 64), _setting(request.sinks, first, "sinks", 4)
        self.effect = np.full((len(pairs), self.units), NAN)
        self.candidates, self.prompts_differ, self.chosen = {}, 0, []
        for k, p in enumerate(pairs):
            self._read_effect(k, p.effect)
        for k, p in enumerate(pairs):
            self._put(k, "position" if self.entries else "layer", "none", np.arange(self.units) // (1 if self.entries else self.heads))
            for t in p.traces:
                self._read_trace(k, t)
            for t in p.tables:
                _Reading(self, k, t)

    def _shape(self, effects):
        self.layers, self.heads, tokens = (_largest(effects, column) + 1 for column in ("layer", "index", "token"))
        traces = [p.traces[0] for p in self.pairs if p.traces and p.traces[0].heads]
        if self.entries and traces:
            self.layers, self.heads = len(traces[-1].heads), traces[-1].n_heads(0, "kv")
        if self.layers < 1 or self.heads < 1:
            raise Usage("effects of entries need a trace of the text" if self.entries else "%s: there is no row of a head" % effects[0].path)
        if self.layers * self.heads > MOST_HEADS or tokens > MOST_TOKENS:
            raise Error("%s: more than %d heads, or %d tokens" % (effects[0].path, MOST_HEADS, MOST_TOKENS))
        self.units = tokens if self.entries else self.layers * self.heads

    # ---- effects

    def _read_effect(self, pair, t):
        if t.kind(self.value) not in ("int", "real"):
            raise Usage("%s has no column of numbers '%s'" % (t.path, self.value))
        values, units = t.reals(self.value), t.columns["token"] if self.entries else self._heads_of_effect(t)
        if self.entries:
            if (t.columns["count"] != 1).any():
                raise Usage("%s: rows must be single entries; make it with 'kvfate ablate --entries ... --each'" % t.path)
            self._choose(t)
        # In the mirror all other heads have a window: a head restores the KL of `all` less its own.
        sign = -1 if t.meta.get("held", "").startswith("all heads but") and not self.entries else 1
        values, units = values[units != -2], units[units != -2]  # -2: the row of all heads
        if (units < 0).any():
            raise Error("%s: a token has a negative number" % t.path)
        again = np.flatnonzero(np.bincount(units, minlength=1) > 1)
        if len(again):
            raise Error("%s: there are several rows of %s" % (t.path, "one entry" if self.entries else "L%dK%d" % divmod(int(again[0]), self.heads)))
        self.effect[pair, units] = sign * values

    def _heads_of_effect(self, t):
        units = np.full(t.rows, -2)
        for r, (text, *place) in enumerate(zip(t.columns["head"], t.columns["layer"], t.columns["index"])):
            if text == "all":
                continue
            try:
                layer, head, query = head_name(text)
            except Error as e:
                raise Error("%s: %s" % (t.path, e)) from None
            if query:
                raise Error("%s: an effect is of KV heads, not of %s" % (t.path, text[:40]))
            if [layer, head] != place:
                raise Error("%s: row %d is of the head %s, and its layer and index are %d and %d" % (t.path, r + 1, text, *place))
            units[r] = layer * self.heads + head
        return units

    def _choose(self, t):
        """Notes the heads that the entries of an effect left."""
        text = t.meta.get("heads", "all")
        chosen = np.ones((self.layers, self.heads), bool) if text == "all" else head_set(text, self.layers, self.heads)
        if chosen is None or not chosen.any():
            raise Error("%s: '%s' names no heads of the trace" % (t.path, text[:80]))
        self.chosen.append(chosen)

    # ---- candidates

    def _put(self, pair, name, reduce, values):
        to = self.candidates.setdefault((name, reduce), np.full((len(self.pairs), self.units), NAN))
        to[pair, :len(values)] = values

    def knows(self, pair, name):
        """Returns whether an earlier source of the pair has a candidate."""
        return any(not np.isnan(v[pair]).all() for (n, _), v in self.candidates.items() if n == name)

    def _read_trace(self, pair, t):
        layers, (H, G) = len(t.heads), t.heads[0] if t.heads else (0, 0)
        wanted, wide = self.pairs[pair].effect, layers >= self.layers and H >= self.heads
        if not wide or H < 1 or G % H or self.entries and (layers, H) != (self.layers, self.heads) or any(h != (H, G) for h in t.heads[:self.layers]):
            raise Usage("a trace of %d layers of %d KV heads does not go with the effects, which have %d of %d" % (layers, H, self.layers, self.heads))
        model, prompt = _facts(t)
        if model is not None and wanted.meta.get("model_hash", model) != model:
            raise Usage("a trace is of another model than %s" % wanted.path)
        asked = wanted.number("prompt_tokens")
        self.prompts_differ += prompt is not None and not math.isnan(asked) and prompt != asked
        if not t.steps:
            return
        if "out_norm" in t:
            self._check_column(t["out_norm"], "query", "token")
        for name, column, space, of_head, of_token, by_criterion, contrib in STATISTICS:
            f = of_token if self.entries else of_head
            for end in ["." + c for c in self.criteria] if by_criterion else [""]:
                if f and column + end in t and (not contrib or "out_norm" in t) and not self.knows(pair, name + end):
                    self._check_column(t[column + end], space, "step" if column == "entropy" else "token")
                    take = self._take_entries if self.entries else self._take_heads
                    take(pair, name + end, lambda layer: _values(t, column + end, contrib, layer), f, t.steps, G // H if space == "query" else 0)

    @staticmethod
    def _check_column(c, space, axis):
        if (c.space, c.axis) != (space, axis):
            raise Error("the column %s must have a value for each %s head and %s" % (c.name, "KV" if space == "kv" else "query", axis))

    def _take_heads(self, pair, name, layer_of, f, T, share):
        """Adds the numbers of the heads of each layer.  share: query heads of a KV head, which become their mean and their maximum; 0: the numbers
        are of KV heads."""
        n = self.heads * max(share, 1)
        x = np.array([f(layer_of(layer)[:n], T, self) for layer in range(self.layers)]).reshape(-1, max(share, 1))
        for reduce, values in (("mean", x.mean(1)), ("max", x.max(1))) if share else (("none", x[:, 0]),):
            self._put(pair, name, reduce, values)

    def _take_entries(self, pair, name, layer_of, f, T, share):
        """Adds the numbers of the tokens, as mean and maximum over the chosen heads."""
        total, most, n = 0, -np.inf, 0
        for layer, chosen in enumerate(self.chosen[pair]):
            for v in f(layer_of(layer), T)[np.repeat(chosen, max(share, 1))] if chosen.any() else ():
                total, most, n = total + v, np.maximum(most, v), n + 1
        self._put(pair, name, "mean", (total / n)[:self.units])
        self._put(pair, name, "max", most[:self.units])


def _values(t, column, contrib, layer):
    """Returns the values of the heads of a layer as float64 [heads][T]; the age "never" is -1."""
    raw = t[column][layer]
    v = raw.astype(float)
    if t[column].never is not None:
        v[raw == t[column].never] = -1
    return v * t["out_norm"][layer].astype(float) if contrib else v


class _Reading:
    """The statistics that a table has of the units of a pair."""

    def __init__(self, values, pair, t):
        self.v, self.pair, self.t = values, pair, t
        self.token = t.columns["token"] if t.kind("token") == "int" else None
        try:
            self._take()
        except (Error, Usage) as e:
            raise type(e)("%s: %s" % (t.path, e)) from None

    def _share(self):
        """Returns how many query heads read a KV head, from a trace or the provenance of the table; 0 if it is not known."""
        traces = self.v.pairs[self.pair].traces
        H, G = (self.t.number(key) for key in ("kv_heads", "query_heads"))
        if traces and traces[0].heads:
            H, G = traces[0].heads[0]
        return int(G // H) if G > 0 and H > 0 and G % H == 0 else 0

    def _take(self):
        v, t, pair = self.v, self.t, self.v.pairs[self.pair]
        if t.meta.get("model_hash", "") != pair.effect.meta.get("model_hash", t.meta.get("model_hash", "")) and "model_hash" in t.meta:
            raise Usage("it is of another model than the effect")
        if t.kind("head") != "str":
            raise Usage("there is no column 'head'")
        if v.entries and self.token is None:
            raise Usage("effects of entries need a column 'token'")
        self._find_units()
        taken = [c for c in t.columns if t.kind(c) != "str" and c not in PLACES and (v.entries or self.token is None or c == "saliency")]
        if not taken:
            raise Usage("there is no column of numbers of heads%s" % (", and none of saliency" if self.token is not None else ""))
        for column in taken:
            self._put(column)

    def _find_units(self):
        """Sets unit, [rows] the unit of each row or -1, count, [units] rows of each, and query: whether rows are of query heads."""
        v, share, self.query = self.v, self._share(), False
        names, which = np.unique(self.t.columns["head"], return_inverse=True)
        of_name = np.full(len(names), -1)
        for k, text in enumerate(names):
            if text == "all":
                continue
            layer, head, query = head_name(text)
            if query and not share:
                raise Usage("how many query heads share a KV head is not known: give a trace too")
            self.query |= query
            head = head // share if query else head
            if layer < v.layers and head < v.heads and (not v.entries or v.chosen[self.pair][layer, head]):
                of_name[k] = layer * v.heads + head
        unit = of_name[which] if len(names) else np.zeros(0, int)
        if v.entries:
            unit = np.where((unit >= 0) & (self.token >= 0) & (self.token < v.units), self.token, -1)
        self.unit, self.count = unit, np.bincount(unit[unit >= 0], minlength=v.units)
        of_unit = share if self.query else 1
        if not v.entries and self.token is None and (self.count > of_unit).any():
            raise Usage("several rows of a head: a table of one row per head is needed")
        self.known = (self.count > 0) & (v.entries or not self.query or self.count == share)  # of a KV head all query heads are needed

    def _put(self, column):
        v, size = self.v, column == "saliency"
        name = "saliency" if size else "%s.%s" % ((self.t.name or "table")[:30], column[:40])
        if v.knows(self.pair, name):
            return
        rows = np.flatnonzero(self.unit >= 0)
        rows = rows[self.known[self.unit[rows]]]
        unit, x = self.unit[rows], self.t.reals(column)[rows]
        x = abs(x) if size else x
        one = not v.entries and not self.query  # or the mean over the tokens of a head
        mean = np.bincount(unit, x / self.count[unit], minlength=v.units)
        v._put(self.pair, name, "none" if one else "mean", np.where(self.known, mean, NAN))
        if not one:
            most = np.full(v.units, -np.inf)
            np.maximum.at(most, unit, x)
            v._put(self.pair, name, "max", np.where(self.known, most, NAN))
