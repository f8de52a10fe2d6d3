"""What a run under capture writes: one trace, from what its layers made of their attention rows."""
import re
import time

import numpy as np

from .capture_dilution import columns as of_evictions
from .capture_rows import EVERY, PROBES, LayerRows
from .errors import Error, TraceError
from .writer import Writer

PROMPT, ANSWER, IMAGE = 0, 1, 3
NARROW = 65534  # most tokens of a run whose steps fit into 16 bits


def chosen(probes):
    """Names of probes, from "lean", "paper", "full" or names, as text with commas or a list."""
    if not isinstance(probes, (str, list, tuple, set, frozenset)):
        raise Error("probes=%.80r: they are names in a text with commas, or in a list" % (probes,))
    words = probes.split(",") if isinstance(probes, str) else list(probes)
    names = [n for word in words for n in EVERY.get(word, [word])]
    for name in names:
        if name not in PROBES:
            raise Error("there is no probe %r to capture: there are %s, and the sets %s" % (name, ", ".join(PROBES), ", ".join(EVERY)))
    return [name for name in PROBES if name in names]


def watched(text, heads, most):
    """{layer: {token: [heads]}} of "383,400-410@L10H19,L3H*"; heads: (KV heads, query heads) of each layer; most: tokens that a run can have."""
    out = {}
    for part in text.split() if text else ():
        tokens, _, where = part.partition("@")
        for head in where.split(","):
            found = re.fullmatch(r"L(\d+)H(\d+|\*)", head)
            if not found or not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", tokens):
                raise Error("watch=%r: it is tokens, @ and heads, such as 383,400-410@L10H19,L3H*" % text)
            layer = int(found[1])
            if layer >= len(heads) or (found[2] != "*" and int(found[2]) >= heads[layer][1]):
                raise Error("watch=%r: the model has no head %s; it has %d layers of %d query heads" % (text, head, len(heads), heads[0][1]))
            for span in tokens.split(","):
                first, _, last = span.partition("-")
                if last and int(last) < int(first):
                    raise Error("watch=%r: the span %s ends before it begins" % (text, span))
                if int(last or first) >= most:
                    raise Error("watch=%r: token %s, where the run can have %d tokens" % (text, last or first, most))
                for token in range(int(first), int(last or first) + 1):
                    out.setdefault(layer, {}).setdefault(token, set()).update(range(heads[layer][1]) if found[2] == "*" else [int(found[2])])
    return {layer: {token: sorted(h) for token, h in tokens.items()} for layer, tokens in out.items()}


class Recording:
    """One sequence on its way into a trace.

    heads: (KV heads, query heads) of each layer; most: tokens that the run can have; texts: gives the bytes of token ids, or None;
    every: seconds between snapshots, which are what is left of the run when the program is killed; evicts: entries may leave."""

    def __init__(self, path, arrays, heads, probes, watch, meta, prompt, texts, most, every, existing, evicts=False):
        self.path, self.heads, self.probes, self.every, self._texts, self.evicts = path, heads, chosen(probes), every, texts, evicts
        step = "u16" if most <= NARROW else "u32"
        columns = {"tokens.id": "i32 run", "tokens.role": "u8 run"}
        for name in self.probes:
            columns |= {column: words.replace("STEP", step) for column, words in PROBES[name].items()}
        columns |= of_evictions(self.probes) if evicts else {}
        watch = watched(watch, heads, most)
        self._watch = {(layer, h, t): "received.L%dH%d.%d" % (layer, h, t) for layer, w in watch.items() for t, hs in w.items() for h in hs}
        columns |= {name: "f32 run step" for name in self._watch.values()}
        self._columns, self._dtype = columns, {"u16": np.uint16, "u32": np.uint32}
        self.layers = [LayerRows(arrays, kv, query, self.probes, watch.get(layer, {})) for layer, (kv, query) in enumerate(heads)]
        self.steps = self._written = 0  # tokens fed, and those that the trace has
        self.ids, self._roles, self._nll, self._next = [], [], [], time.monotonic() + every
        try:
            self._writer = Writer(path, heads, columns, meta, prompt, existing)
        except TraceError as e:  # a capture cannot go on with another one, whose commits came at other times
            raise TraceError(str(e).replace('existing="resume" goes on with it, ', "")) from None

    def feed(self, ids, roles):
        """Tokens that the model is given next, and the role of each."""
        self.ids += [int(i) for i in ids]
        self._roles += roles
        self.steps += len(ids)

    def nll(self, values):
        """-ln p of the next tokens, the first of a run having none: NaN."""
        self._nll += [float(v) for v in values]

    def due(self):
        return time.monotonic() >= self._next

    def commit(self):
        """Writes what came since the last commit, and all snapshots."""
        w, t0, T = self._writer, self._written, self.steps
        if T == t0:
            return
        w.write("tokens.id", np.array(self.ids[t0:T]), t0=t0)
        w.write("tokens.role", np.array(self._roles[t0:T]), t0=t0)
        if self._texts:
            w.texts(self._texts(self.ids[t0:T]), t0)
        if "nll" in self.probes:
            w.write("nll", np.array(self._nll[t0:T], np.float32), t0=t0)
        for layer, rows in enumerate(self.layers):
            steps, received = rows.drain()
            for name, values in {**steps, **rows.late(t0, T)}.items():
                w.write(name, values, layer=layer, t0=t0)
            for (head, token), values in received.items():
                w.write(self._watch[layer, head, token], values, t0=t0)
            for name, values in rows.tokens(T).items():
                w.write(name, self._whole(name, values), layer=layer)
        w.commit(T)
        self._written, self._next = T, time.monotonic() + self.every

    def _whole(self, name, values):
        """Steps in the type of their column, in which -1, never, is all ones."""
        kind = self._dtype.get(self._columns[name].split()[0])
        return values.astype(kind) if kind and values.dtype.kind == "i" else values

    def note(self, key, value):
        self._writer.note(key, value)

    def close(self):
        self.commit()
        self._writer.close()

    def abandon(self):
        """Leaves the trace at PATH.unfinished, with what the last commit wrote."""
        self._writer.abandon()
