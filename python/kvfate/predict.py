"""`kvfate predict`: does a statistic of a trace tell which memory matters?  It ranks statistics by their correlation with a measured effect.

docs/reference/analyses/predict.md defines the table."""
import math
import sys
from types import SimpleNamespace

from . import saved
from .commands import Usage
from .errors import shown
from .predict_judge import PERMUTATIONS, REPLICATES, judge_all
from .predict_values import Values, is_effect
from .program import PARTIAL
from .trace import open_trace

MOST = 64  # pairs; traces and tables of a pair
TEXTS, WHOLE = ("candidate", "reduce"), ("n", "documents")
REALS = ("rho", "partial", "low", "high", "p", "q", "depth_rho", "depth_p", "depth_q")
UNITS = (*((name, "int") for name in ("pair", "layer", "index", "token")), *((name, "real") for name in ("statistic", "effect", "rho", "partial", "low", "high", "q")))


def _tell(path, sentence):
    print("kvfate predict: %s %s" % (shown(path), sentence), file=sys.stderr)


def _is_partial(t):
    """Returns whether a trace is of less than a full run, and prints why to the standard error."""
    repaired = t.notes.get("repaired")
    if not t.steps:
        _tell(t.path, "has no steps" + ("" if t.closed else ": it was not closed"))
    elif not t.closed:
        _tell(t.path, "was not closed: using its last snapshot (%d steps)" % t.steps)
    elif isinstance(repaired, dict) and repaired.get("closed") is False and repaired.get("places") == repaired.get("missing") == 0:
        _tell(t.path, "was repaired: it has all that a run wrote which was not finished, and ends where that does")
    elif repaired is not None:
        _tell(t.path, "was repaired, and lacks the lost data")
    return not (t.steps and t.closed and repaired is None)


def pairs_of(paths):
    """Opens files and returns the pairs of an effect and its sources: effect, traces, tables."""
    pairs = []
    for path in paths:
        table = saved.read(path) if path.lower().endswith((".tsv", ".json")) else None
        if table and is_effect(table):
            pairs.append(SimpleNamespace(effect=table, traces=[], tables=[]))
        elif not pairs:
            raise Usage("%s is no effect of heads or of single entries; the first file must be one ('kvfate ablate -o effect.tsv')" % path if table else
                        "%s: the first file must be the table of an effect" % path)
        else:
            (pairs[-1].tables if table else pairs[-1].traces).append(table or open_trace(path))
        if max(len(pairs), len(pairs[-1].traces), len(pairs[-1].tables)) > MOST:
            raise Usage("%s: more than %d effects, or traces or tables of one" % (path, MOST))
    for p in pairs:
        if not p.traces and not p.tables:
            raise Usage("%s: give a trace or table of the same text after it" % p.effect.path)
    return pairs


def _choose(v, only):
    """Keeps the candidates that were asked for."""
    wanted = [name for name in only.split(",") if name]
    for name in wanted:
        if name not in {n for n, _ in v.candidates}:
            raise Usage("--only: none of the files has '%s'" % name)
    v.candidates = {key: x for key, x in v.candidates.items() if key[0] in wanted}


def _meta(v, request):
    first, units = v.pairs[0].effect.meta, "entries" if v.entries else "KV heads"
    blocks = "blocks of entries" if v.entries else "layers"
    return {**{key: first[key] for key in ("model", "model_hash", "held", "removed") if key in first}, "units": units, "value": request.value,
            "pairs": len(v.pairs), "horizon": v.horizon, "sinks": v.sinks, "permutations": PERMUTATIONS,
            "partial": "given the position" if v.entries else "given the layer",
            "p": "circular shifts of the entries" if v.entries else "permutations of heads within their layers", "depth_p": "circular shifts of the layers",
            "interval": "95 %%, bootstrap over %s%s, %d replicates" % ("documents and " if len(v.pairs) > 1 else "", blocks, REPLICATES),
            "traces_of_another_prompt_length": v.prompts_differ}


def _columns(rows):
    return [*((name, "str", [getattr(r, name) for r in rows]) for name in TEXTS), *((name, "int", [int(getattr(r, name)) for r in rows]) for name in WHOLE),
            *((name, "real", [float(getattr(r, name)) for r in rows]) for name in REALS)]


def _unit_columns(v, rows):
    """Returns the columns of the table `predict-units`: a row for each candidate, pair and unit that has both numbers."""
    import numpy as np
    names, parts = {name: [] for name in TEXTS}, {name: [] for name, _ in UNITS}
    for r, values in zip(rows, v.candidates.values()):
        pair, unit = np.nonzero(~np.isnan(values) & ~np.isnan(v.effect))
        none = np.full(len(unit), -1)
        layer, index, token = (none, none, unit) if v.entries else (unit // v.heads, unit % v.heads, none)
        same = [np.full(len(unit), x) for x in (r.rho, r.partial, r.low, r.high, r.q)]
        for name, x in zip(parts, (pair, layer, index, token, values[pair, unit], v.effect[pair, unit], *same)):
            parts[name] += x.tolist()
        for name in TEXTS:
            names[name] += [getattr(r, name)] * len(unit)
    return [*((name, "str", names[name]) for name in TEXTS), *((name, kind, parts[name]) for name, kind in UNITS)]


def _number(form, x):
    width = int(form.lstrip("+").split(".")[0])
    return "%*s" % (width, "-") if math.isnan(x) else ("%" + form + "f") % x


def told(rows, meta):
    """Returns the lines for people, the largest partial correlation first, then candidates without one by rho."""
    several = "s" if meta["pairs"] > 1 else ""
    lines = ["rank correlation with %s of %s, %d pair%s; partial, its interval, p and q: %s (p: %s)" % (
        meta["value"], meta["units"], meta["pairs"], several, meta["partial"], meta["p"]),
        "%-28s %-6s %5s %7s %7s  %-16s %7s %7s %7s %6s" % ("candidate", "reduce", "n", "rho", "partial", "95 %", "p", "q", "depth", "p")]
    size = {id(r): -abs(r.partial) if not math.isnan(r.partial) else 3 if math.isnan(r.rho) else 2 - abs(r.rho) for r in rows}
    for r in sorted(rows, key=lambda r: size[id(r)]):
        line = "%-28s %-6s %5d " % (r.candidate, r.reduce, r.n)
        if math.isnan(r.rho):
            lines.append(line + "not defined: it does not vary, or is not known")
            continue
        ends = "  %-16s" % "-" if math.isnan(r.low) else "  %+6.3f .. %+6.3f" % (r.low, r.high)
        lines.append(line + _number("+7.3", r.rho) + _number("+8.3", r.partial) + ends + _number("8.4", r.p) + _number("8.4", r.q)
                     + _number("+8.3", r.depth_rho) + _number("7.3", r.depth_p))
    if meta["traces_of_another_prompt_length"]:
        lines.append("warning: %d traces have a prompt of another length than their effect" % meta["traces_of_another_prompt_length"])
    return lines


def run(request, operands):
    saved.check(request)
    pairs = pairs_of(operands)
    partial = [_is_partial(t) for p in pairs for t in p.traces]
    v = Values(pairs, request)
    if request.only is not None:
        _choose(v, request.only)
    rows = judge_all(v)
    meta = _meta(v, request)
    columns = _unit_columns(v, rows) if request.units else _columns(rows)
    if saved.deliver(request, "predict-units" if request.units else "predict", meta, columns):
        n = len(columns[0][2])
        lines = ["%d pairs of a statistic and the effect of %s" % (n, meta["units"])] if request.units else told(rows, meta)
        print("\n".join(shown(line) for line in lines))
    return PARTIAL if any(partial) else 0
