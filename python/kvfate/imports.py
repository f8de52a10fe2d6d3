"""`kvfate trace import`, and kvfate.import_arrays: make a trace from arrays of another program.  Field names: docs/guide/import.md."""
import os
import re

import numpy as np

from . import budgets, import_files, progress
from .capture_rows import PROBES
from .capture_trace import NARROW, chosen
from .commands import ROWS, Usage
from .errors import Error, shown
from .forms import SPACES, exact_bytes, field, floats_from_text, pairs_from_text, split
from .import_rows import attention_columns, attention_shape, kept_columns, kept_shape, write_attention, write_kept
from .import_tables import MOST_HEADS, MOST_LAYERS, MOST_STEPS, whole
from .import_values import bounds_of, parsed, whole_numbers
from .writer import Writer

ROLES = ("prompt", "answer", "think", "image", "question")
SHORT = {"ids": "tokens.id", "text": "tokens.text", "texts": "tokens.text", "roles": "tokens.role", "role": "tokens.role", "scores": "evict_score"}
LISTED = ("kept", "kept_after", "attention")  # lists of these may have parts of different lengths
MADE = ("kept", "kept_after", "attention", "retention", "tokens.text", "blob")  # fields that are no columns by themselves
# Columns of <kvf/schema.h> that no probe of capture makes; a name that ends in * stands for all that begin so.
OTHERS = {
    "tokens.id": "i32 run", "tokens.role": "u8 run", "seen": "u32 kv snapshot intervals", "log_beta": "f32 kv", "write_gate": "f32 kv",
    "importance": "f32 kv", "saliency": "f32 kv: nat", "read.count": "u32 query snapshot", "plan.mass": "f64 query", "received.*": "f32 run step",
    "query.*": "f32 run step", "near.*": "STEP query step", "kept.*": "f32 query step", "rho_u.*": "f32 query step", "rho_d.*": "f32 query step",
    "copy.top": "STEP query step", "copy.*": "f32 query step",  # the first name that fits counts
    "beta.*": "f32 query step", "shadow.kept_mass": "f32 query step", "shadow.oracle_mass": "f32 query step", "shadow.output_error": "f32 query step",
    "shadow.ghost_hits": "u32 query snapshot", "shadow.first_hit": "u32 query snapshot: step", "shadow.ghost_mass": "f32 query snapshot",
    "shadow.nll": "f32 run: nat", "shadow.kl": "f32 run step: nat", "shadow.residual_error.*": "f32 run step",
}
KNOWN = {**{name: words for columns in PROBES.values() for name, words in columns.items()}, **OTHERS}


def known(name):
    """Returns the type, space and flags of a column of <kvf/schema.h>, or None for an unknown column."""
    fits = [w for n, w in KNOWN.items() if n == name or n.endswith("*") and name.startswith(n[:-1])]
    return fits[0] if fits else None


def _budget(given, prompt):
    """Returns the budget members of the run header for a number of entries or a text such as "64" or "25%"."""
    if given is None or isinstance(given, int):
        return {"budget": given}
    part = budgets.percent(given)
    if part and not prompt:
        raise Error("--budget %s is a fraction of a prompt: give --prompt N" % given)
    if part:
        return {"budget": budgets.entries(part, prompt), "budget_percent": float(part[:-1])}
    if not given.isascii() or not given.isdigit() or int(given) > budgets.MOST:
        raise Error("--budget '%s': give entries from 0 to %d, or a fraction of the prompt such as 25%%" % (given[:40], budgets.MOST))
    return {"budget": int(given)}


class Import:
    """A trace to write.  source: fields by name; the other arguments are the options of the command."""

    def __init__(self, source, heads=None, prompt=None, probes=ROWS, model=None, method=None, budget=None):
        self.source, self.about = source, source.about
        self.parts, self.exact = {}, {}  # (name, part) -> {layer or None: value}; columns as an export knows them
        self.prompt, self._said = prompt, {"model": {"name": model}, "method": {"name": method, **_budget(budget, prompt)}, "run": {"prompt_tokens": prompt}}
        for key, value in source.fields.items():
            name, part, layer = split(key)
            self.parts.setdefault((SHORT.get(name, name), part), {})[layer] = self._usable(key, name, value)
        self._look_at_about()
        self.probes = chosen(probes)
        self.heads = self._heads(heads)
        self.steps = self._steps()
        self.columns = self._columns()

    def has(self, name, part=""):
        return (name, part) in self.parts

    def names(self):
        return list(dict.fromkeys(name for name, _ in self.parts))

    def _usable(self, key, name, value):
        """A value that is an array or a list; of what tables made of kept entries it is a dict."""
        rows = isinstance(value, dict) and value and all(isinstance(place, tuple) for place in value)
        if isinstance(value, (list, tuple)) and name not in LISTED:
            try:
                np.shape(value)
            except ValueError:
                raise Error("%s: the lists of %s have different lengths" % (self.source.where[key], key)) from None
        elif not rows and not isinstance(value, (list, tuple)):
            value = np.asarray(value)
            if value.dtype.kind not in "biufUO" or value.ndim == 0 and split(key)[1] != "first":
                kind = "one value" if value.ndim == 0 else "values of the type %s" % value.dtype
                raise Error("%s: %s is %s; a field is an array or lists of numbers or texts" % (self.source.where[key], key, kind))
        return value

    def at(self, name):
        """Returns the origin of a field for messages."""
        return next((path for key, path in self.source.where.items() if SHORT.get(split(key)[0], split(key)[0]) == name), "the import")

    def _look_at_about(self):
        a = self.about
        columns, heads = a.get("columns", {}), a.get("heads", [])
        good = (isinstance(columns, dict) and all(isinstance(w, str) for w in columns.values()) and isinstance(heads, list) and len(heads) <= MOST_LAYERS
                and all(isinstance(h, list) and len(h) == 2 and all(type(n) is int and 0 <= n <= 4096 for n in h) for h in heads)
                and isinstance(a.get("notes", {}), dict) and isinstance(a.get("blobs", []), list) and isinstance(a.get("meta", {}), (dict, str))
                and type(a.get("steps", 0)) is int and 0 <= a.get("steps", 0) <= 1 << 24)
        if not good:
            raise Error("about.json: heads are pairs of whole numbers, columns and notes are objects, blobs is a list, meta an object, and steps a number up to 2^24")
        self.exact = columns

    # ---- shapes

    def _heads(self, said):
        """(KV heads, query heads) of each layer."""
        if "heads" in self.about:
            return [tuple(h) for h in self.about["heads"]]
        kv, query = {}, {}
        for name in self.names():
            space = self._space(name)
            into = kv if space == "kv" else query if space == "query" else None
            for layer, heads in (self._shape_of(name).items() if into is not None else ()):
                if into.setdefault(layer, (heads, name))[0] != heads:
                    raise Error("%s has %d heads in layer %d, and %s has %d" % (name, heads, layer, into[layer][1], into[layer][0]))
        layers = 1 + max([*kv, *query], default=-1)
        given = re.fullmatch(r"(\d+)/(\d+)", said) if said else None
        if said and not (given and all(len(n) <= 4 and int(n) <= MOST_HEADS for n in given.groups())):
            raise Error("--heads %s: write KV heads / query heads of a layer, such as 2/8; there are up to %d" % (said, MOST_HEADS))
        out = []
        for layer in range(layers):
            h = kv.get(layer, (None,))[0] or (int(given[1]) if given else query.get(layer, (0,))[0])
            q = query.get(layer, (None,))[0] or (int(given[2]) if given else h)
            if not h or q % h:
                raise Error("layer %d has %d KV heads and %d query heads: the second must be a multiple of the first; --heads KV/QUERY says how many" % (layer, h, q))
            out.append((h, q))
        return out

    def _space(self, name):
        """Returns the space of a field, run, kv or query; None if its shape has no heads."""
        if name == "attention":
            return "query"
        if name in ("kept", "kept_after", "retention"):
            return "kv"
        words = self.exact.get(name) or known(name)
        if words is None and name.startswith("x-"):
            value = next(iter(self.parts.get((name, ""), {None: 0}).values()))
            return "run" if np.ndim(value) == 1 else "kv"
        return next((w for w in (words or "").split(":")[0].split() if w in SPACES), None)

    def _shape_of(self, name):
        """{layer: heads} of a field."""
        layers = self.parts.get((name, ""), {})
        if name in ("kept", "kept_after"):
            return kept_shape(layers, self.at(name))
        if name == "attention":
            return attention_shape(layers, self.at(name))
        out = {}
        for layer, value in layers.items():
            shape = np.shape(value)
            if len(shape) != (3 if layer is None else 2):
                raise Error("%s: %s has the shape %s; it is [layers][heads][tokens], or [heads][tokens] of %s@L0" % (self.at(name), name, list(shape), name))
            out.update({layer: shape[0]} if layer is not None else {l: shape[1] for l in range(shape[0])})
        return out

    def _steps(self):
        if "steps" in self.about:
            return self.about["steps"]
        most = {}
        for name in self.names():
            for value in self.parts.get((name, ""), {}).values():
                if name == "kept" and isinstance(value, dict):
                    most[name] = self.source.tables.steps
                elif name == "tokens.text":
                    most[name] = len(value)
                elif name == "attention":
                    most[name] = max(s[-1] for s in _leaves(value))
                elif name not in MADE or name == "retention":
                    most[name] = np.shape(value)[-1] if np.ndim(value) else 0
        if most:
            name = max(most, key=most.get)
            if most[name] > MOST_STEPS:
                raise Error("%s: %s has %d tokens, over the limit of %d" % (self.at(name), name, most[name], MOST_STEPS))
            return most[name]
        if self.has("kept") or self.has("kept_after"):
            raise Error("kept entries alone do not say how many tokens the run had: give tokens.id, or an about.json with steps")
        raise Error("there is nothing to import: no field has a name of docs/guide/import.md; found were %s" % (", ".join(self.names()) or "none"))

    # ---- columns

    def _columns(self):
        """Returns {name: type, space and flags} of the columns to write."""
        out, step = dict(self.exact), "u16" if self.steps <= NARROW else "u32"
        for name in self.names():
            if name in MADE or name in out or self.parts.get((name, "")) is None and not self.has(name, "pairs"):
                continue
            words = known(name)
            if words is None and not name.startswith("x-"):
                raise Error("%s: there is no field %s; columns of one's own begin with x-, as x-%s, and docs/guide/import.md lists the others" % (
                    self.at(name), name, name))
            out[name] = words or "%s %s" % (self._own_type(name), self._space(name))
        if self.has("retention"):
            out["log_beta"] = KNOWN["log_beta"]
        self.kept = kept_columns(self)
        out.update({name: KNOWN[name] for name in self.kept})
        if self.has("attention"):
            out.update(attention_columns(self.probes))
        if self.prompt is not None:
            out.setdefault("tokens.role", KNOWN["tokens.role"])
        return {name: words.replace("STEP", step) for name, words in out.items()}

    def _own_type(self, name):
        kind = np.asarray(next(iter(self.parts[name, ""].values()))).dtype
        found = {"u1": "u8", "u2": "u16", "u4": "u32", "i4": "i32", "f4": "f32", "f8": "f64", "u8": "u64", "b1": "u8", "f2": "f32", "i8": "i32"}.get(kind.str[1:])
        if not found:
            raise Error("%s: %s holds numbers of the type %s, which a trace does not have" % (self.at(name), name, kind))
        return found

    def layer_values(self, name, layer, part=""):
        """Returns a field of a layer as [heads][tokens], or None without such a layer; a field of the run as [1][tokens]."""
        parts = self.parts.get((name, part), {})
        if layer in parts:
            value = parts[layer]
        elif None in parts and (self._space(name) == "run" or layer < len(parts[None])):
            value = [parts[None]] if self._space(name) == "run" else parts[None][layer]
        else:
            return None
        value = value if isinstance(value, np.ndarray) else np.asarray(value)
        heads = 1 if self._space(name) == "run" else self.heads[layer][SPACES.index(self._space(name)) - 1]
        if part in ("", "present", "ends") and value.shape != (heads, self.steps):
            raise Error("%s: %s has %s in layer %d, and the trace has %d heads of %d tokens there" % (
                self.at(name), name + (part and "@" + part), " x ".join(map(str, value.shape)), layer, heads, self.steps))
        return value

    def upto(self, name):
        """The number below which a field has all whole numbers, where it came as a tensor of a narrow type."""
        return min((n for key, n in self.source.upto.items() if SHORT.get(split(key)[0], split(key)[0]) == name), default=np.inf)

    def typed(self, name, values, dtype, layer=None, have=None):
        """Values [heads][T] in the type of their column; what other programs write for never becomes all ones."""
        what = "%s: %s" % (self.at(name), name)
        try:
            if dtype.kind == "f" and values.dtype.kind in "OU":
                return floats_from_text(values.ravel().tolist(), dtype).reshape(values.shape)
            values = parsed(self._role_codes(values) if name == "tokens.role" else values)
        except (TypeError, ValueError, OverflowError):
            raise Error("%s holds what is no %s" % (what, "number" if dtype.kind == "f" else "whole number")) from None
        if dtype.kind == "f":
            return self._reals(what, values, dtype)
        if values.dtype == dtype and name in self.exact:
            return values
        bounds, exact = bounds_of(name), name in self.exact
        most = len(ROLES) - 1 if name == "tokens.role" and not exact else None
        return whole_numbers(what, values, dtype, lambda head, token: " of token %d" % token + ("" if layer is None else ", layer %d, head %d" % (layer, head)), have,
                             self.upto(name), bounds is not None or self._ages(name), None if exact else bounds if most is None else lambda i, T: (0 * i, 0 * i + most))

    def _ages(self, name):
        return "age" in self.columns[name].split(":")[0].split()

    @staticmethod
    def _reals(what, values, dtype):
        with np.errstate(over="ignore"):
            out = values.astype(dtype)
        odd = np.isinf(out) & np.isfinite(values)
        if odd.any():
            raise Error("%s holds %s, which %s does not have" % (what, values[odd][0], dtype))
        return out

    def _role_codes(self, values):
        """The codes of roles that are named."""
        if values.dtype.kind not in "OU":
            return values
        odd = [v for v in values.ravel().tolist() if isinstance(v, str) and v not in ROLES and not v.isdigit()]
        if odd:
            raise Error("%s: tokens.role holds %r; roles are %s" % (self.at("tokens.role"), odd[0], ", ".join(ROLES)))
        return np.array([ROLES.index(v) if v in ROLES else v for v in values.ravel().tolist()] + [None], object)[:-1].reshape(values.shape)

    def left(self):
        """{layer: evict_step [KV heads][tokens]}, as far as the import knows it."""
        if self.kept:
            return self.kept["evict_step"]
        out = {}
        for layer in range(len(self.heads)) if self.has("evict_step") else ():
            values, have = self.layer_values("evict_step", layer), self.layer_values("evict_step", layer, "present")
            if values is not None:
                steps = self.typed("evict_step", values, np.dtype(np.uint32), layer, have)
                out[layer] = steps if have is None else np.where(np.asarray(have, bool), steps, np.uint32(2**32 - 1))
        return out

    # ---- what the trace says of itself

    def meta(self):
        said = self.about.get("meta", {})
        added = {k: {n: v for n, v in inner.items() if v is not None} for k, inner in self._said.items()}
        added = {k: inner for k, inner in added.items() if inner}
        if isinstance(said, str) or "meta" in self.about and not added:
            return exact_bytes(said)
        out = {**said} if "meta" in self.about else {"import": {"files": sorted({os.path.basename(p) for p in self.source.where.values()}), "fields": sorted(self.names())}}
        for key, inner in added.items():
            out[key] = {**(out[key] if isinstance(out.get(key), dict) else {}), **inner}
        return out

    def prompt_ids(self):
        """The ids of the prompt, which are part of the identity of a run."""
        meta = self.about.get("meta", {})
        run = meta.get("run") if isinstance(meta, dict) else None
        n = self.prompt if self.prompt is not None else run.get("prompt_tokens") if isinstance(run, dict) else None
        ids = self.layer_values("tokens.id", 0)
        if ids is None or not isinstance(n, int) or not 0 <= n <= self.steps or self.has("tokens.id", "present"):
            return ()
        return self.typed("tokens.id", ids, np.dtype(np.int32))[0, :n]


def _leaves(value):
    """The shapes of the arrays in lists of lists."""
    if isinstance(value, (list, tuple)):
        return [s for x in value for s in _leaves(x)]
    return [np.shape(value) or (0,)]


# ---- writing

def _runs(have):
    """[a, b) of the runs of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], np.asarray(have, np.int8), [0]])))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist()))


def _write_values(w, name, values, layer, have, t0=0):
    if have is None:
        if values.size:
            w.write(name, values[0] if w.space(name) == "run" else values, layer=layer, t0=t0)
        return
    for head, row in enumerate(np.asarray(have, bool)):
        for a, b in _runs(row):
            part = values[head:head + 1, a:b]
            w.write(name, part[0] if w.space(name) == "run" else part, layer=layer, head0=head, t0=t0 + a)


def _write_intervals(w, x, name, layer):
    """Lists of steps: as ends and pairs, or as text of tables."""
    have, ends = x.layer_values(name, layer, "present"), x.layer_values(name, layer, "ends")
    text = None if ends is not None else x.layer_values(name, layer)
    if ends is None and text is None:
        return
    if ends is not None:
        pairs = x.layer_values(name, layer, "pairs")
        flat = whole(np.ravel(ends), name + "@ends", np.size(pairs) // 2 + 1, x.at(name))
        begins = np.concatenate([[0], flat[:-1]])
        if pairs is None or pairs.ndim != 2 or pairs.shape[1] != 2 or np.any(flat < begins):
            raise Error("%s: %s@ends must rise up to the number of %s@pairs [n][2]" % (x.at(name), name, name))
        lists = [pairs[a:b].tolist() for a, b in zip(begins.tolist(), flat.tolist())]
        lists = [lists[h * x.steps:(h + 1) * x.steps] for h in range(len(ends))]
    else:
        lists = [[pairs_from_text(t) if isinstance(t, str) else [] for t in row] for row in text.tolist()]
    for head, row in enumerate(lists):
        for a, b in [(0, x.steps)] if have is None else _runs(have[head]):
            if b > a:
                w.intervals(name, [row[a:b]], layer=layer, head0=head, t0=a)


def _texts(x):
    """Returns (texts as bytes, mask of present texts or None), or None without texts."""
    have = x.parts.get(("tokens.text", "present"), {}).get(None)
    ends = x.parts.get(("tokens.text", "ends"), {}).get(None)
    if ends is not None:
        data = np.asarray(x.parts.get(("tokens.text", "bytes"), {}).get(None, []), np.uint8).tobytes()
        flat = whole(np.ravel(ends), "tokens.text@ends", len(data) + 1, x.at("tokens.text"))
        begins = np.concatenate([[0], flat[:-1]])
        if np.shape(ends) != (x.steps,) or np.any(flat < begins) or (len(flat) and flat[-1] != len(data)):
            raise Error("%s: tokens.text@ends must have %d numbers that rise up to the number of tokens.text@bytes" % (x.at("tokens.text"), x.steps))
        return [data[a:b] for a, b in zip(begins.tolist(), flat.tolist())], have
    plain = x.parts.get(("tokens.text", ""), {}).get(None)
    if plain is None:
        return None, None
    have = np.ones(len(plain), bool) if have is None else np.asarray(have, bool)
    if len(plain) != x.steps or have.shape != (x.steps,) or not all(isinstance(t, (str, bytes)) for t, h in zip(plain, have) if h):
        raise Error("%s: tokens.text must hold a text for each of the %d tokens" % (x.at("tokens.text"), x.steps))
    try:
        return [b"" if not h else bytes(t) if isinstance(t, bytes) else t.encode("utf-8", "surrogateescape") for t, h in zip(plain, have)], have
    except UnicodeEncodeError as e:
        raise Error("%s: tokens.text holds half of a character, %s; give such texts as bytes" % (x.at("tokens.text"), ascii(e.object))) from None


def _write_blobs(w, x):
    for k, b in enumerate(x.about.get("blobs", [])):
        value = x.parts.get(("blob", str(k)), {}).get(None)
        if value is None:
            value = x.source.fields.get("blob@%d" % k)
        try:
            kind = np.dtype({"u8": "u1", "u16": "<u2", "u32": "<u4", "i32": "<i4", "f32": "<f4", "f64": "<f8", "u64": "<u8", "f16": "<f2", "bf16": "<u2"}[b["dtype"]])
            if isinstance(value, list):
                value = floats_from_text(value, kind) if kind.kind == "f" else np.array(value, kind)
            data = np.asarray(value).reshape(b["shape"])
            place = [int(b[n]) for n in ("layer", "head", "t0")]
            if data.dtype != kind:
                raise ValueError
        except (KeyError, TypeError, ValueError, OverflowError):
            raise Error("blob@%d: it is not what about.json says of it" % k) from None
        w.blob(b["name"], data, *place, dtype="bf16" if b["dtype"] == "bf16" else None)


def _write_column(w, x, name, words):
    dtype, layers = w.dtype(name), 1 if w.space(name) == "run" else len(x.heads)
    for layer in range(layers):
        progress.add(len(x.heads) / layers)
        if "intervals" in words.split(":")[0].split():
            _write_intervals(w, x, name, layer)
            continue
        values = x.layer_values(name, layer)
        beta = x.layer_values("retention", layer) if values is None and name == "log_beta" else None
        if beta is not None:
            beta = x.typed("retention", beta, np.dtype("f8"))
            if not np.all((beta >= 0) & (beta <= 1)):
                raise Error("%s: retention must lie between 0 and 1" % x.at("retention"))
            with np.errstate(divide="ignore"):
                values = np.log(beta).astype(np.float32)
        if values is None and name == "tokens.role" and x.prompt is not None:
            values = np.array([np.arange(x.steps) >= x.prompt], np.uint8)
        if values is not None:
            have = x.layer_values(name, layer, "present")
            _write_values(w, name, x.typed(name, values, dtype, None if w.space(name) == "run" else layer, have), layer, have)


def _write(x, out, overwrite):
    texts, have = _texts(x)
    with Writer(out, x.heads, x.columns, x.meta(), x.prompt_ids(), "overwrite" if overwrite else "refuse", only_whole=True) as w:
        if texts is not None:
            for a, b in [(0, x.steps)] if have is None else _runs(have):
                w.texts(texts[a:b], a)
        made = set(x.kept)
        if x.has("attention"):
            made |= set(attention_columns(x.probes))
        progress.expect(len(x.columns) * len(x.heads), "layers")
        for name, words in x.columns.items():
            if name not in made or name in x.exact:
                _write_column(w, x, name, words)
            else:
                progress.add(len(x.heads))
        write_kept(x, w)
        if x.has("attention"):
            write_attention(x, w, x.probes, x.left())
        _write_blobs(w, x)
        for key, value in x.about.get("notes", {}).items():
            w.note(key, exact_bytes(value))
        w.commit(x.steps)


def import_trace(files: "str | os.PathLike | list | dict", out: "str | os.PathLike", overwrite: bool = False, *, heads: "str | None" = None,
                 prompt: "int | None" = None, probes: str = ROWS, model: "str | None" = None, method: "str | None" = None, budget: "int | str | None" = None):
    """Makes the trace OUT of files and folders, whose fields have the names of docs/guide/import.md, and returns OUT.

    files: one name or several, or a dict {name: array, tensor or list}.  heads: "2/8", KV heads / query heads of a layer; the others are as of
    `kvfate trace import`.  Raises kvfate.Error with one sentence for invalid input."""
    if os.path.exists(out) and not overwrite:
        raise Error("%s is there already; overwrite=True, or --overwrite, replaces it" % os.fspath(out))
    if isinstance(files, dict):
        source = import_files.Source()
        for name, value in files.items():
            import_files.put_value(source, name, value, "the dict")
    else:
        files = [files] if isinstance(files, (str, os.PathLike)) else files
        if any(os.path.exists(out) and os.path.exists(f) and os.path.samefile(f, out) for f in files):
            raise Error("%s is what is imported; name another file for the trace" % os.fspath(out))
        source = import_files.read(files)
    try:
        _write(Import(source, heads, prompt, probes, model, method, budget), os.fspath(out), overwrite)
    finally:
        source.close()
    return out


def run(request, operands):
    if not request.output:
        raise Usage("-o OUT.kvf names the trace")
    options = {n: getattr(request, n) for n in ("heads", "prompt", "probes", "model", "method", "budget")}
    with progress.line("import"):
        import_trace(operands, request.output, request.overwrite, **options)
    print(shown(request.output))
