"""kvfate.score: a method of your own as a Python function, which the program calls for every decision.

The function runs in this process.  The program sends a request for each KV head and receives a number per entry; engine/method/external.h
of the repository defines these messages, and cli/score_pipe.h the greeting."""
import inspect
import struct

import numpy as np

from .errors import Error

VERSION, NAME_BYTES = 1, 52
PARTS = {"keys": 1, "values": 2, "attention": 4, "queries": 0, "positions": 0, "candidates": 0, "layer": 0, "head": 0, "step": 0}
FIELDS = ("layer", "head", "step", "n", "kv_heads", "head_dim", "query_heads", "rows")


class Score:
    """A function that scores cached entries, and the method whose score it replaces.

    method: text for `--method`, such as "knorm:score=external,sinks=4"; name: of the function; parts: the arguments that the function has."""

    def __init__(self, function, base, options):
        self.function, self.name = function, getattr(function, "__name__", type(function).__name__)
        self.parts = _arguments(function, self.name)
        options = {"score": "external", **options}
        self.method = base + (":" if ":" not in base else ",") + ",".join("%s=%s" % (k, v) for k, v in options.items())
        self.__doc__, self.__wrapped__, self.__name__ = function.__doc__, function, self.name

    def __call__(self, *args, **named):
        return self.function(*args, **named)

    def __repr__(self):
        return "<kvfate score %s of %s>" % (self.name, self.method)

    def greeting(self):
        parts = 0
        for part in self.parts:
            parts |= PARTS[part]
        return struct.pack("4sii%ds" % NAME_BYTES, b"KVFS", VERSION, parts, _cut(self.name))

    def answer(self, request):
        """Returns the scores of a request, float32 [n]; Error if they are not n numbers."""
        scores = self.function(**{part: request[part] for part in self.parts})
        place = "%s, layer %d, head %d, step %d" % (self.name, request["layer"], request["head"], request["step"])
        try:
            out = np.asarray(scores, np.float32)
        except (TypeError, ValueError) as e:
            raise Error("%s: the scores are not numbers: %s" % (place, e)) from None
        n = len(request["positions"])
        if out.shape != (n,):
            raise Error("%s: the scores have the shape %s, and there are %d entries: return one score per entry" % (place, out.shape, n))
        if np.isnan(out).any():
            raise Error("%s: score %d of %d is NaN: return a number" % (place, int(np.isnan(out).argmax()), n))
        return out


def _cut(name):
    """Returns the name as UTF-8 in fewer than NAME_BYTES bytes."""
    return name.encode("utf-8")[:NAME_BYTES - 1].decode("utf-8", "ignore").encode("utf-8")


def _arguments(function, name):
    """Returns the names of a function's arguments; Error if it has others than those of PARTS."""
    try:
        given = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise Error("kvfate.score: the arguments of %s are not known; wrap it in a Python function" % name) from None
    needed = [p.name for p in given if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    odd = [p.name for p in given if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)] + [x for x in needed if x not in PARTS]
    if odd:
        raise Error("kvfate.score: %s has the argument %s; arguments are some of %s" % (name, odd[0], ", ".join(PARTS)))
    return [p.name for p in given if p.name in PARTS]


def score(function=None, *, base: str = "knorm", **options):
    """Makes a function a method of the KV cache, as a decorator: kvfate.run(model, prompt, method=my_score, budget=64).

        @kvfate.score
        def my_score(keys, values, attention, positions):
            return -np.linalg.norm(keys, axis=1)

    The function returns a score per entry, shape [n]; entries with the lowest scores are evicted.  It is called for each KV head at each
    decision, in order of step, layer and head.  It names the arguments that it needs:

    keys        float32 [n, head_dim], as they are cached (after RoPE)
    values      float32 [n, head_dim]
    attention   float32 [queries, query heads, n]: weights (0 to 1) of the last `window` queries of the query heads that read this KV head
    queries     int32 [queries]: positions of these queries, rising
    positions   int32 [n]: positions of the entries, rising
    candidates  bool [n]: False for protected entries, which are kept whatever their score
    layer, head, step: numbers; step is the position of the next query

    base: the method that gives the other parts (allocation, trigger, protected entries), by default knorm: every KV head has the budget and
    nothing is protected.  With a base that chooses one set per layer (tova), keys and values are [KV heads, n, head_dim], and attention has
    all query heads of the layer.  options: those of the method, such as window=8, sinks=4, recent=16, cut="prompt", allocation="pyramid".
    Error if the function has an argument of another name."""
    if function is None:
        return lambda f: Score(f, base, options)
    return Score(function, base, options)


def _words(data, at, n, kind):
    return np.frombuffer(data, kind, n, at), at + 4 * n


def requests(f, parts):
    """Yields the requests of the stream f as dicts of arguments, until it ends."""
    while True:
        head = f.read(4 * len(FIELDS))
        if len(head) < 4 * len(FIELDS):
            return
        x = dict(zip(FIELDS, struct.unpack("%di" % len(FIELDS), head)))
        n, kv, vectors = x["n"], x["kv_heads"], x["kv_heads"] * x["n"] * x["head_dim"]
        rows = x["rows"] * x["query_heads"] * n
        words = 2 * n + x["rows"] + vectors * (("keys" in parts) + ("values" in parts)) + rows * ("attention" in parts)
        data = f.read(4 * words)
        if len(data) < 4 * words:
            return
        x["positions"], at = _words(data, 0, n, np.int32)
        may, at = _words(data, at, n, np.int32)
        x["candidates"] = may != 0
        x["queries"], at = _words(data, at, x["rows"], np.int32)
        for part in ("keys", "values"):
            if part in parts:
                x[part], at = _words(data, at, vectors, np.float32)
                x[part] = x[part].reshape((n, x["head_dim"]) if kv == 1 else (kv, n, x["head_dim"]))
        if "attention" in parts:
            x["attention"] = np.frombuffer(data, np.float32, rows, at).reshape(x["rows"], x["query_heads"], n)
        yield x


def serve(scorer, source, send):
    """Answers the requests of the binary stream `source` with send(bytes), until the program ends."""
    try:
        send(scorer.greeting())
        for request in requests(source, scorer.parts):
            scores = scorer.answer(request)
            send(struct.pack("i", len(scores)) + scores.tobytes())
    except BrokenPipeError:  # the program has ended, and its own sentence says why
        pass
