"""The methods (presets) of docs/reference/methods.md: their parts, published numbers, and the
numbers for a budget."""

import math
from fractions import Fraction

# name: (admission, score, allocation, trigger, read)
ROWS = {
    "full": ("all", "none", "uniform", "none", "all"),
    "window": ("all", "position", "uniform", "overflow", "all"),
    "h2o": ("all", "received", "uniform", "overflow", "all"),
    "snapkv": ("all", "window-attention", "uniform", "overflow", "all"),
    "tova": ("all", "window-attention", "uniform", "overflow", "all"),
    "keydiff": ("all", "keydiff", "uniform", "overflow", "all"),
    "knorm": ("all", "key-norm", "uniform", "overflow", "all"),
    "scissorhands": ("all", "below-even", "uniform", "overflow", "all"),
    "pyramidkv": ("all", "window-attention", "pyramid", "overflow", "all"),
    "adakv": ("all", "window-attention", "adaptive", "overflow", "all"),
    "ada-pyramidkv": ("all", "window-attention", "adaptive-pyramid", "overflow", "all"),
    "cake": ("all", "variance-attention", "cake", "overflow", "all"),
    "rkv": ("all", "redundancy", "uniform", "overflow", "all"),
    "morphkv": ("all", "window-attention", "uniform", "overflow", "all"),
    "gkv": ("all", "redundancy", "uniform", "overflow", "all"),
    "snapkv-global": ("all", "global-attention", "uniform", "overflow", "all"),
    "random": ("all", "random", "uniform", "overflow", "all"),
    "local": ("streaming", "none", "uniform", "none", "all"),
    "trimkv": ("all", "retention", "uniform", "overflow", "all"),
    "dbtrimkv": ("all", "retention", "global", "overflow", "all"),
    "wgkv": ("write-gate", "write-gate", "uniform", "overflow", "all"),
    "wgkv-snapkv": ("write-gate", "window-attention", "global", "fraction", "all"),
    "wgkv-quest": ("write-gate", "none", "uniform", "none", "quest"),
    "quest": ("all", "none", "uniform", "none", "quest"),
    "rocketkv": ("all", "window-attention", "uniform", "overflow", "rocket"),
    "seer": ("all", "none", "uniform", "none", "seer"),
    "seer-oracle": ("all", "none", "uniform", "none", "seer-oracle"),
    "duo": ("duo", "none", "uniform", "none", "all"),
    "locret": ("all", "importance", "uniform", "overflow", "all"),
    "expected-attention": ("all", "expected-attention", "adaptive", "overflow", "all"),
    "mass-greedy": ("all", "remaining-mass", "uniform", "overflow", "all"),
    "next-topk": ("all", "next-attention", "uniform", "overflow", "all"),
}
METHODS = tuple(ROWS)


def part_of(kind):
    """Returns the score part of a method, or a part itself."""
    return ROWS[kind][1] if kind in ROWS else kind


OLD = METHODS[: METHODS.index("random") + 1]
NEEDS = {"trimkv": "retention", "dbtrimkv": "retention", "wgkv": "write", "wgkv-snapkv": "write", "wgkv-quest": "write",
         "locret": "importance", "duo": "heads", "seer": "blocks"}  # the kind of gates
READS_ONLY = "quest", "seer", "seer-oracle", "wgkv-quest"
NO_BUDGET = "full", "duo"
ORACLES = "mass-greedy", "next-topk"
LIMITED_BY_BUDGET = [m for m, parts in ROWS.items() if parts[3] != "none" and m != "rocketkv"]  # which grows after the prompt
PYRAMID = "pyramid", "adaptive-pyramid"
ADAPTIVE = "adaptive", "adaptive-pyramid"

# Published values; windows and intervals that do not fit are reduced.
WINDOW = {"snapkv": 32, "scissorhands": 400, "pyramidkv": 8, "adakv": 32, "ada-pyramidkv": 32, "cake": 32, "rkv": 8,
          "morphkv": 200, "gkv": 16, "snapkv-global": 16, "wgkv-snapkv": 256, "rocketkv": 32}
EVERY = {"rkv": 128, "gkv": 128, "snapkv-global": 128}
SINKS = {"window": 4, "local": 128, "expected-attention": 4}
LOCAL = 256
PUBLISHED = {
    "h2o": {"group": "sum"}, "tova": {"window": 1}, "snapkv": {"pool": 7}, "pyramidkv": {"pool": 7, "beta": 20},
    "adakv": {"pool": 7, "floor": 0.2}, "ada-pyramidkv": {"pool": 7, "floor": 0.2, "beta": 20},
    "cake": {"pool": 5, "pool-kind": "avg", "gamma": 200}, "rkv": {"pool": 7, "group": "max", "lambda": 0.1, "support": "candidates"},
    "gkv": {"group": "max", "history": 0.8, "lambda": 0.7},
    "snapkv-global": {"group": "max", "history": 0.8, "pool": 5}, "morphkv": {"across": "max", "support": "candidates"},
    "trimkv": {"offset": 0, "lookahead": 1}, "dbtrimkv": {"offset": 1, "lookahead": 2, "floor": 0},
    "wgkv": {"tau": 0.1, "compare": "ge"}, "wgkv-quest": {"tau": 0.1, "compare": "ge", "page": 16, "dense": 0, "group": "max"},
    "wgkv-snapkv": {"tau": 0.1, "compare": "ge", "group": "max", "pool": 5, "support": "candidates", "fraction": 0.1},
    "rocketkv": {"pool": 63, "group": "sum", "dense": 0, "channels": 0, "cut": "prompt"},
    "quest": {"page": 16, "dense": 2, "group": "none"}, "seer": {"page": 64, "dense": 0},
    "seer-oracle": {"page": 64, "dense": 0}, "duo": {"sparsity": 0.5, "sinks": 64, "recent": 256},
    "locret": {"positions": "cache", "chunk": 3072}, "expected-attention": {"horizon": 512, "epsilon": 0.01, "floor": 0.2},
}
CODE = {"window": {"positions": "cache"},
        "rkv": {"group": "max-logits", "lambda": 0.07, "every": 1, "order": "after", "stride": 128, "slots": "score"},
        "trimkv": {"offset": 2, "order": "after", "slack": 127},
        "dbtrimkv": {"offset": 3, "order": "after", "slack": 127}, "wgkv": {"compare": "gt"}}
NEUTRAL = {"sinks": 0, "recent": 0, "window": 0, "pool": 1, "pool-kind": "max", "group": "mean", "seed": 0, "every": 1,
           "across": "mean", "support": "all", "fold": "max", "order": "before", "slack": 0, "chunk": 0, "positions": "original",
           "tie": "newer", "stride": 0, "slots": "time", "divide": "none", "cut": "always", "of": "prompt", "protect": "none",
           "channels": 0}
# With `score=`: numbers of that score that the method does not define.
SCORE_NUMBERS = {"retention": {"offset": 0, "lookahead": 1}}


# Methods with an option to reduce over the query heads of a KV head.
GROUPED = ("h2o", "snapkv", "tova", "pyramidkv", "adakv", "ada-pyramidkv", "rkv", "morphkv", "gkv",
           "snapkv-global", "wgkv-snapkv")
SHARES = "rkv", "morphkv", "wgkv-snapkv"  # of these, the methods whose weights are shares within the candidates


def guarded(text, prompt):
    """Returns the positions that `protect` names: terms `prompt` and `sinks:N`, joined by +."""
    lengths = [prompt if term == "prompt" else int(term.removeprefix("sinks:")) for term in text.split("+") if term != "none"]
    return frozenset(range(max(lengths, default=0)))


def numbers(name, budget, given, prompt=0):
    """Returns the effective numbers of a method: published values, reduced to the budget, unless
    given. budget None: no budget. prompt: its length, which `protect` needs."""
    given = dict(given)
    code = CODE.get(name, {}) if given.pop("variant", "paper") == "code" else {}
    p = NEUTRAL | SCORE_NUMBERS.get(given.get("score"), {}) | PUBLISHED.get(name, {})
    if ROWS[name][0] == "write-gate":
        p["local"] = LOCAL if budget is None else max(1, min(LOCAL, budget // 4))
    if budget is not None:
        reduce(name, p, budget)
    p = p | code | given
    if given.get("read", ROWS[name][4]) != "all" and ROWS[name][1] != "none":
        reads_of_cached(given.get("read", ROWS[name][4]), p, budget)
    if p["cut"] != "always":  # a single cut needs no room for the tokens until the next one
        p["every"] = given.get("every", 1)
    if "local" in p and ROWS[name][3] != "none" and budget is None:
        p["recent"] = p["local"]
    if budget is None or ROWS[name][3] == "none" and name != "local":
        return p
    left = budget - p["sinks"] - len([i for i in guarded(p["protect"], prompt) if i >= p["sinks"]])
    if "recent" not in given:
        p["recent"] = min(derived_recent(name, p, budget), max(0, left - p["every"] + 1))
    if "every" not in given:
        p["every"] = max(1, min(p["every"], left - max(1, p["recent"]) + 1))
    return p


def reduce(name, p, budget):
    """Reduces published numbers that do not fit."""
    quarter = max(1, budget // 4)
    if name in WINDOW:
        p["window"] = min(WINDOW[name], quarter)
    if name in EVERY:
        p["every"] = min(EVERY[name], quarter)
    if name == "scissorhands":
        p["every"] = max(1, budget // 2)
    if name in SINKS:
        p["sinks"] = min(SINKS[name], budget // 4)


def reads_of_cached(read, p, budget):
    """Sets the numbers of a method that evicts and reads pages: entries to read, and the pages."""
    ours = budget and max(1, budget // 8 if read == "rocket" else budget // 2)
    p.setdefault("reads", ours)
    p.setdefault("dense", 0)
    if read == "rocket":
        ratio = max(1, (budget or 0) / (2 * p["reads"]))
        p.setdefault("page", math.ceil(math.sqrt(ratio)) if math.ceil(math.sqrt(ratio)) <= ratio else 1)
        p.setdefault("channels", 0)
    p.setdefault("page", 16 if read == "quest" else 64)


def fits(p, budget, prompt=0):
    """The new entry needs a place even if it is not protected."""
    more = len([i for i in guarded(p["protect"], prompt) if i >= p["sinks"]])
    return budget is None or more + p["sinks"] + max(1, p["recent"]) + p["every"] - 1 <= budget


def derived_recent(name, p, budget):
    if name in ("window", "local"):
        return budget
    if name == "h2o":
        return budget // 2
    if name == "scissorhands":
        return max(1, min(10, budget // 4))
    if name == "locret":
        return max(1, min(2500, budget // 4))
    if "local" in p:
        return p["local"]
    return p["window"] if name in WINDOW else 0


def entries(percent, tokens):
    """Returns the entries of a budget such as "12.5%" of a number of tokens."""
    return max(1, int(Fraction(percent.rstrip("%")) * tokens / 100))


class Row:
    """A method applied to some heads: name, numbers, budget, [(layer, head)], and the distributed
    shares. guard: positions that it never evicts, besides its sinks and recent entries."""

    def __init__(self, name, budget, given, heads, prompt=0, percent=None):
        self.name, self.budget, self.heads = name, budget, heads
        self.percent = percent if given.get("of") == "seen" else None
        self.p = numbers(name, budget, given, prompt)
        self.p["guard"] = guarded(self.p["protect"], prompt)
        self.admission, self.score, self.allocation, self.trigger, self.read = ROWS[name]
        self.score = given.get("score", self.score)
        self.allocation = given.get("allocation", self.allocation)
        self.read = given.get("read", self.read)
        if budget is None:
            self.trigger = "none"
        self.begun, self.weights = False, None

    @property
    def kind(self):
        """Returns the name of its score function: its own, unless another one was given."""
        return self.name if self.score == ROWS[self.name][1] else self.score

    def budget_at(self, tokens):
        """Returns the budget for the query that is the last of `tokens`."""
        return self.budget if self.percent is None else entries(self.percent, tokens)

    def of_layer(self, layer):
        return [h for l, h in self.heads if l == layer]
