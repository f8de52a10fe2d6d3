"""Tables in long form, a row for each token of a head, as arrays [layers][heads][tokens] that know which of their values there are."""
import numpy as np

from .errors import Error
from .forms import field, unquoted
from .import_values import exact_below, parsed

MOST_LAYERS = MOST_HEADS = 4096
MOST_STEPS = 1 << 24
FREE_PLACES, MOST_PLACES = 1 << 26, 256  # places that the rows of any table may stand for, and above these for each row
PLACE = ("layer", "head", "token", "step", "kept")
TEXT = {"text": "tokens.text", "text@hex": "tokens.text", "id": "tokens.id", "role": "tokens.role"}


def whole(values, name, most, where):
    """Numbers that say where a row belongs."""
    try:
        given = parsed(np.asarray(values))
        out = given.astype("f8")
        out = np.where(np.abs(out) < exact_below(given), out, np.nan)
    except (TypeError, ValueError, OverflowError):
        out = np.array([np.nan])
    if out.ndim != 1 or out.size and not (np.all(out == np.floor(out)) and out.min() >= 0 and out.max() < most):
        raise Error("%s: the column %s must hold whole numbers from 0 to %d" % (where, name, most - 1))
    return out.astype(np.int64)


class Tables:
    """Collects rows; `into` makes fields of them."""

    def __init__(self):
        self.run, self.heads, self.kept, self.steps = {}, {}, {}, 0
        self._objects = {}  # rows of JSON lines that have the same members

    # ---- rows

    def put_table(self, columns, where):
        """columns: {name: (values, present or None)}."""
        columns = {unquoted(name): both for name, both in columns.items()}
        has = {name: whole(columns.pop(name)[0], name, {"layer": MOST_LAYERS, "head": MOST_HEADS}.get(name, MOST_STEPS), where)
               for name in PLACE[:4] if name in columns}
        if ("layer" in has) != ("head" in has):
            raise Error("%s: rows of heads need both columns, layer and head" % where)
        if "step" in has:
            self._put_kept(has, columns, where)
        elif "token" not in has:
            raise Error("%s: there is no column token; the columns are %s" % (where, ", ".join([*has, *columns]) or "none"))
        elif "layer" in has:
            self._put_heads(has, columns)
        else:
            for name, (values, have) in columns.items():
                values = self._bytes(values, where) if name == "text@hex" else values
                self._add(self.run, TEXT.get(name, name), has["token"], values, have)
        if "token" in has and len(has["token"]):
            self.steps = max(self.steps, int(has["token"].max()) + 1)

    @staticmethod
    def _bytes(values, where):
        try:
            return np.array([bytes.fromhex(v or "") for v in values.tolist()] + [None], object)[:-1]
        except (TypeError, ValueError):
            raise Error("%s: text@hex holds what are no hexadecimal digits" % where) from None

    @staticmethod
    def _add(into, name, token, values, have):
        keep = slice(None) if have is None else have
        into.setdefault(name, []).append((token[keep], np.asarray(values)[keep]))

    def _put_heads(self, has, columns):
        place = has["layer"] * MOST_HEADS + has["head"]
        if np.any(np.diff(place) < 0):
            order = np.argsort(place, kind="stable")
            has, place = {n: v[order] for n, v in has.items()}, place[order]
            columns = {n: (v[order], None if have is None else have[order]) for n, (v, have) in columns.items()}
        layer, head, token = has["layer"], has["head"], has["token"]
        cuts = np.flatnonzero(np.diff(place)) + 1
        for a, b in zip([0, *cuts.tolist()], [*cuts.tolist(), len(place)]):
            for name, (values, have) in columns.items() if b > a else ():
                at = self.heads.setdefault(name, {}).setdefault((int(layer[a]), int(head[a])), {})
                self._add(at, "", token[a:b], values[a:b], None if have is None else have[a:b])

    def _put_kept(self, has, columns, where):
        """Rows (layer, head, step, kept), with a list of tokens, or (layer, head, step, token), one for each of them."""
        if "layer" not in has or ("token" in has) == ("kept" in columns) or set(columns) - {"kept"}:
            raise Error("%s: rows with a step are of kept entries: layer, head, step and kept (a list), or layer, head, step and token" % where)
        if "kept" in columns:
            lists = [self._list(x, where) for x in columns["kept"][0]]
            sizes = [len(x) for x in lists]
            tokens = np.concatenate(lists) if lists else np.zeros(0, np.int64)
            rows = [np.repeat(has[n], sizes) for n in ("layer", "head", "step")]
            for place in zip(*(has[n].tolist() for n in ("layer", "head", "step"))):
                self.kept.setdefault(place[:2], {"steps": set(), "rows": []})["steps"].add(place[2])
        else:
            tokens, rows = has["token"], [has[n] for n in ("layer", "head", "step")]
        place = rows[0] * MOST_HEADS + rows[1]
        for p in np.unique(place):
            mine, at = place == p, (int(p) // MOST_HEADS, int(p) % MOST_HEADS)
            one = self.kept.setdefault(at, {"steps": set(), "rows": []})
            one["steps"].update(rows[2][mine].tolist())
            one["rows"].append((rows[2][mine], tokens[mine]))
        self.steps = 1 + max([self.steps - 1, *has["step"].tolist(), *tokens.tolist()])

    @staticmethod
    def _list(x, where):
        values = x.replace(",", " ").split() if isinstance(x, str) else [] if x is None else x
        return whole(values, "kept", MOST_STEPS, where)

    # ---- lines of JSON

    def put_object(self, said, where):
        if "column" in said:
            self._put_series(said, where)
        else:
            self._objects.setdefault(tuple(said), ([], where))[0].append(said)

    def _put_series(self, said, where):
        values, name = said.get("values"), said["column"]
        if not isinstance(values, list) or not isinstance(name, str) or not isinstance(said.get("t0", 0), int):
            raise Error("%s: a line of a column has \"column\": NAME, \"values\": [...], and layer and head where it is of heads" % where)
        have = np.array([v is not None for v in values], bool)
        token = whole([said.get("t0", 0)], "t0", MOST_STEPS, where)[0] + np.arange(len(values))
        self.steps = max(self.steps, int(token[-1]) + 1) if len(token) else self.steps
        data = np.array([0 if v is None else v for v in values] + [None], object)[:-1]
        if "layer" in said or "head" in said:
            at = tuple(int(whole([said.get(n, -1)], n, MOST_HEADS, where)[0]) for n in ("layer", "head"))
            self._add(self.heads.setdefault(name, {}).setdefault(at, {}), "", token, data, have)
        else:
            self._add(self.run, name, token, data, have)

    def _rows(self):
        for names, (rows, where) in self._objects.items():
            columns = {}
            for name in names:
                values = [row[name] for row in rows]
                have = np.array([v is not None for v in values], bool)
                columns[name] = np.array([0 if v is None and name != "kept" else v for v in values] + [None], object)[:-1], None if have.all() else have
            self.put_table(columns, where)
        self._objects = {}

    # ---- arrays

    def into(self, source):
        """The fields that the rows make, of all tables together."""
        self._rows()
        steps = max(self.steps, int(source.about.get("steps") or 0)) if isinstance(source.about.get("steps", 0), int) else self.steps
        if steps > MOST_STEPS:
            raise Error("there are %d tokens, over the limit of %d" % (steps, MOST_STEPS))
        for name, parts in self.run.items():
            values, have = self._filled(parts, steps, name)
            source.put(field(name), values, "a table")
            if not have.all():
                source.put(field(name, "present"), have, "a table")
        for name, places in self.heads.items():
            layers = 1 + max(layer for layer, _ in places)
            heads = [0] * layers
            for layer, head in places:
                heads[layer] = max(heads[layer], head + 1)
            self._check_places(name, sum(heads) * steps, sum(len(v) for at in places.values() for _, v in at[""]))
            for layer in range(layers):
                made = [self._filled(places.get((layer, h), {}).get("", []), steps, name) for h in range(heads[layer])]
                if name == "evict_step" and "columns" not in source.about:  # a row that is not there is of an entry that never left
                    made = [(np.where(have, values if values.dtype.kind in "ifO" else values.astype(np.int64), -1), np.ones_like(have)) for values, have in made]
                if made:
                    source.put(field(name, layer=layer), np.stack([v for v, _ in made]), "a table")
                    if not all(have.all() for _, have in made):
                        source.put(field(name, "present", layer), np.stack([have for _, have in made]), "a table")
        if self.kept:
            source.put("kept", self.kept, "a table")

    def _check_places(self, name, places, rows):
        """Arrays have a place for each token of each head, however few rows there are."""
        if places > max(FREE_PLACES, MOST_PLACES * rows):
            raise Error("the column %s has %d rows, whose layers, heads and tokens would take an array of %d places; a number in them may be wrong, or give arrays" % (
                name, rows, places))

    @staticmethod
    def _filled(parts, steps, name):
        kinds = {v.dtype.kind for _, v in parts}
        out = np.zeros(steps, object if "O" in kinds else np.result_type(*(v.dtype for _, v in parts)) if parts else np.int64)
        have = np.zeros(steps, bool)
        for token, values in parts:
            if have[token].any() or len(np.unique(token)) < len(token):
                raise Error("the column %s has two rows for the same token of the same head" % name)
            out[token], have[token] = values, True
        return out, have
