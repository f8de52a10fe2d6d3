"""Random cases for check_decisions.py."""
from rows import (CODE, GROUPED, LIMITED_BY_BUDGET, METHODS, NEEDS, NO_BUDGET, OLD, ORACLES, READS_ONLY, ROWS, SHARES, entries, fits,
                  guarded, numbers)

MODELS = [
    "--layers 1 --heads 1 --kv-heads 1 --head-dim 16 --dim 32 --ffn 32 --seed 11",
    "--layers 2 --heads 4 --kv-heads 2 --head-dim 16 --dim 64 --ffn 96 --seed 12",
    "--layers 3 --heads 6 --kv-heads 2 --head-dim 16 --dim 64 --ffn 64 --seed 13",
    "--layers 2 --heads 3 --kv-heads 3 --head-dim 32 --dim 96 --ffn 64 --seed 14",
    "--layers 1 --heads 9 --kv-heads 3 --head-dim 32 --dim 96 --ffn 96 --seed 15 --untied",
    "--layers 3 --heads 2 --kv-heads 1 --head-dim 32 --dim 64 --ffn 64 --seed 16 --rope-base 500000",
    "--layers 2 --heads 6 --kv-heads 2 --head-dim 16 --dim 64 --ffn 64 --seed 17 --type q8_0",
    "--layers 2 --heads 2 --kv-heads 2 --head-dim 32 --dim 64 --ffn 64 --seed 18 --type f16",
    "--layers 2 --heads 4 --kv-heads 2 --head-dim 16 --dim 64 --ffn 64 --seed 19 --type q4_1",
    "--layers 2 --heads 4 --kv-heads 2 --head-dim 16 --dim 64 --ffn 64 --seed 20 --window 17",
    "--layers 3 --heads 4 --kv-heads 2 --head-dim 16 --dim 64 --ffn 64 --seed 21 --window 29 --local-from 1",
]
LAYERS_AND_HEADS = [tuple(int(m.split(f"--{key} ")[1].split()[0]) for key in ("layers", "kv-heads")) for m in MODELS]


# Options to try for each part, besides sinks, recent and the options of all methods.
PART_OPTIONS = {
    "overflow": ["every"], "received": ["group"], "window-attention": ["group", "window", "pool"], "below-even": ["window"],
    "variance-attention": ["window", "pool", "gamma"], "global-attention": ["group", "window", "pool", "history", "fold"],
    "redundancy": ["group", "window", "pool", "lambda"], "random": ["seed"], "retention": ["offset", "lookahead"],
    "expected-attention": ["horizon", "epsilon"], "adaptive": ["floor"], "pyramid": ["beta"], "adaptive-pyramid": ["floor", "beta"],
    "duo": ["sparsity"], "seer": ["page"], "quest": ["page", "dense"], "seer-oracle": ["page", "dense"],
    "rocket": ["page", "dense", "reads", "channels"],
}
TRIED = {  # methods with other options to try than those of their parts
    "h2o": ["every", "group", "divide"],
    "rkv": ["every", "group", "window", "pool", "lambda", "slots"],
    "gkv": ["every", "group", "window", "pool", "history", "fold", "lambda"],
    "dbtrimkv": ["every", "offset", "lookahead", "floor"], "wgkv": ["every", "local", "tau", "compare"],
    "wgkv-snapkv": ["group", "window", "pool", "local", "tau", "compare", "fraction"],
    "wgkv-quest": ["local", "tau", "compare", "page", "dense"], "quest": ["page", "dense", "choice"],
    "rocketkv": ["group", "window", "pool", "page", "dense", "reads", "channels"],
}


def tried(name):
    """Returns the options to try with a method."""
    admission, score, allocation, trigger, read = ROWS[name]
    parts = trigger, score, admission, allocation, read
    return TRIED.get(name) or [key for part in parts for key in PART_OPTIONS.get(part, [])]


NO_PROTECTION = "wgkv", "wgkv-snapkv", "full", *READS_ONLY  # sinks and recent are no options, or have another meaning
NOT_BY_RANK = "expected-attention", "full", "wgkv", "wgkv-snapkv", "rocketkv", *READS_ONLY
GATE_SCORES = {"retention": "retention", "write-gate": "write", "importance": "importance"}
PART_SCORES = (
    "keydiff", "key-norm", "random", "retention", "write-gate", "importance", "window-attention",
)


def value(rng, key, budget):
    pick = lambda *v: rng.choice(v)
    return {
        "every": lambda: rng.randint(1, max(1, min(budget, pick(3, 10, 100)))),
        "group": lambda: pick("mean", "max", "sum"),
        "choice": lambda: pick("none", "max"),
        "window": lambda: rng.randint(1, budget) if rng.random() < 0.7 else rng.randint(1, 100),
        "beta": lambda: pick(1, 2, 3, 7, 20, 50),
        "floor": lambda: pick(0, 0.1, 0.3, 0.5, 0.8, 1),
        "gamma": lambda: pick(0, 1, 50, 1000),
        "lambda": lambda: pick(0, 0.1, 0.35, 0.5, 0.9, 1),
        "fold": lambda: pick("max", "average", "sum"),
        "history": lambda: pick(0, 0.5, 0.9, 1),
        "seed": lambda: pick(0, 1, 7, 65535),
        "offset": lambda: pick(0, 1, 2, 3),
        "lookahead": lambda: pick(1, 2, 5, 100),
        "local": lambda: rng.randint(1, min(budget, 12)),
        "tau": lambda: pick(0, 0.05, 0.25, 0.5, 1),
        "compare": lambda: pick("ge", "gt"),
        "fraction": lambda: pick(0, 0.1, 0.3, 1),
        "page": lambda: pick(1, 2, 3, 8, 16),
        "dense": lambda: pick(0, 1, 9),
        "reads": lambda: rng.randint(1, budget),
        "channels": lambda: pick(0, 1, 2, 7, 16),
        "sparsity": lambda: pick(0, 0.25, 0.5, 0.7, 1),
        "horizon": lambda: pick(1, 2, 64, 512),
        "epsilon": lambda: pick(0, 0.01, 1),
        "order": lambda: "after",
        "slots": lambda: "score",
        "divide": lambda: "queries",
        "slack": lambda: pick(1, 2, 5, 20),
        "chunk": lambda: pick(1, 2, 7, 16, 30),
        "positions": lambda: pick("cache", "original"),
        "tie": lambda: pick("older", "newer"),
    }[key]()


def options(rng, name, budget):
    """Returns some options that fit into the budget."""
    given = {}
    if rng.random() < (0.35 if name in OLD else 0.15):
        return given
    if name in CODE and rng.random() < 0.2:
        given["variant"] = "code"
    if name in CODE and budget and rng.random() < 0.6:
        given["slack"] = rng.choice([0, 3])  # the default is longer than these runs
    if given.get("variant") == "code" and name == "rkv":
        given["stride"] = rng.choice([0, 1, 4, 9])
    room = budget or 12
    for key in tried(name):
        if rng.random() >= (0.8 if key == "page" else 0.4):
            continue
        if key == "pool":
            given["pool"] = rng.choice([1, 3, 5, 7, 9])
            if given["pool"] > 1:
                given["pool-kind"] = rng.choice(["max", "avg"])
        else:
            given["group" if key == "choice" else key] = value(rng, key, room)
    if name in SHARES and rng.random() < 0.25:
        given["group"] = "max-logits"
    usual = 0.9 if name == "duo" else 0.4
    if name not in NO_PROTECTION and rng.random() < usual:
        given["sinks"] = rng.randint(0, min(room - 1, 6))  # leave one place for the new entry
    if name not in NO_PROTECTION and rng.random() < usual:
        given["recent"] = rng.randint(int(name in ("local", "duo")), min(room, rng.choice([5, 100])))
    while not fits(numbers(name, budget, given), budget):
        del given[rng.choice([key for key in ("sinks", "recent", "every", "local") if key in given])]
    return given


def shared_options(rng, name):
    """Returns options that every evicting method accepts."""
    keys = ["order", "slack", "tie"] + ["chunk"] * (name not in ORACLES) + ["positions"] * (name not in NOT_BY_RANK)
    given = {key: value(rng, key, None) for key in keys if rng.random() < 0.3}
    if "order" in given and rng.random() < 0.3:
        given["stride"] = rng.choice([1, 2, 5, 11])
    if rng.random() < 0.15 and name in GROUPED:
        given["group"] = "none"
    return given


def budget_of(rng, total, prompt):
    edge = [1, 2, 3, 4, 5, total - 1, total, total + 1, prompt, prompt + 1]
    b = rng.choice(edge) if rng.random() < 0.35 else rng.randint(1, total)
    return max(1, b)


def case_of(rng, name, long, shared=True):
    """Long cases reach the published windows, which a small budget reduces, and a second chunk."""
    if long:
        c = {"prompt": rng.randint(250, 290), "n": rng.randint(10, 60), "budget": rng.randint(100, 240)}
    else:
        c = short_case(rng)
    if name in NO_BUDGET or name == "wgkv" and rng.random() < 0.3:
        c["budget"] = None if name != "full" else c["budget"]
    c["given"] = options(rng, name, c["budget"])
    models = [k for k, m in enumerate(MODELS) if name != "seer" or "--window" not in m]  # its gated blocks do not support sliding windows
    c |= {"model": rng.choice(models), "seed": rng.randrange(1 << 30)}
    if name in NEEDS:
        c["gates"] = NEEDS[name]
    if shared and name in LIMITED_BY_BUDGET and c["budget"] and rng.random() < (0.4 if name in OLD else 0.6):
        c["given"] |= shared_options(rng, name)
    if name in ORACLES:
        c["force"], c["n"] = True, max(2, c["n"])
    return c


def short_case(rng):
    prompt = rng.choice([1, 2, 3, 59, 60]) if rng.random() < 0.2 else rng.randint(1, 60)
    n = rng.choice([0, 1, 2, 39, 40]) if rng.random() < 0.2 else rng.randint(0, 40)
    total = prompt + max(0, n - 1)
    return {"prompt": prompt, "n": n, "budget": budget_of(rng, total, prompt)}


# Cases at limits that random cases hardly reach: (name, case). Pages of entries that cross the
# cache's pages of 64, shares of layers with equal remainders, and a fraction of the candidates that
# is an integer except for rounding.
FIXED = [
    ("quest", {"prompt": 150, "n": 12, "budget": 30, "given": {"page": 3}, "model": 1, "seed": 1}),
    ("quest", {"prompt": 200, "n": 12, "budget": 21, "given": {"page": 7, "dense": 1}, "model": 2, "seed": 2}),
    ("seer-oracle", {"prompt": 150, "n": 12, "budget": 30, "given": {"page": 3}, "model": 1, "seed": 3, "force": True}),
    ("pyramidkv", {"prompt": 40, "n": 20, "budget": 13, "given": {"beta": 2, "window": 4}, "model": 1, "seed": 4}),
    ("pyramidkv", {"prompt": 40, "n": 20, "budget": 14, "given": {"beta": 2, "window": 4}, "model": 3, "seed": 5}),
    ("wgkv-snapkv", {"prompt": 54, "n": 10, "budget": 45, "given": {"fraction": 0.58, "local": 4, "window": 4, "tau": 0}, "model": 1, "seed": 6,
                     "gates": "write"}),
    ("h2o", {"prompt": 130, "n": 20, "budget": 70, "given": {"every": 7}, "model": 1, "seed": 7}),
    ("window", {"prompt": 129, "n": 20, "budget": 65, "given": {"sinks": 3, "slack": 2}, "model": 2, "seed": 8}),
    # Entries leave the model's sliding window first in heads of one method, then in heads of
    # another.
    ("full", {"prompt": 12, "n": 12, "budget": 17, "given": {}, "model": 9, "seed": 13, "overrides": [("L1K1", "random", {"budget": 11})]}),
    # The full cache that runs ahead has one entry more than the pages of the prompt can store.
    ("mass-greedy", {"prompt": 64, "n": 12, "budget": 20, "given": {}, "model": 1, "seed": 10, "force": True}),
    ("mass-greedy", {"prompt": 128, "n": 12, "budget": 40, "given": {"every": 4}, "model": 2, "seed": 11, "force": True}),
    ("next-topk", {"prompt": 64, "n": 12, "budget": 20, "given": {}, "model": 4, "seed": 12, "force": True}),
    ("snapkv", {"prompt": 200, "n": 20, "budget": 128, "given": {"chunk": 70, "window": 8}, "model": 1, "seed": 9}),
]


# ---- methods with another part; several methods in one run

def parts_case(rng, long, score=None):
    """Returns (name, case): a method with another score (a given one, or any), allocation, or way
    to read."""
    what = "score" if score else rng.choice(["tasks", "score", "score", "allocation", "read"])
    if what == "read":
        name = rng.choice(["quest", "seer-oracle", "wgkv-quest"])
        c = case_of(rng, name, long)
        read = "quest" if name == "seer-oracle" else "seer-oracle"
        c["given"] |= {"read": read, "page": rng.choice([1, 2, 4]), "dense": rng.choice([0, 1])}
        c["given"].pop("group", None)
        if read == "quest":
            c["given"]["group"] = rng.choice(["none", "max"])
        return name, c
    name = rng.choice(["window", "h2o", "keydiff", "adakv", "locret", "trimkv", "dbtrimkv"][: 6 if score else 7])
    c = case_of(rng, name, long)
    for key in ("offset", "lookahead", "variant", "group"):
        c["given"].pop(key, None)
    if what == "score" or name not in ("trimkv", "dbtrimkv", "locret"):
        score = score or rng.choice(PART_SCORES[3:6] if name == "dbtrimkv" else PART_SCORES)
        c["given"] = {k: v for k, v in c["given"].items() if k not in ("window", "pool", "pool-kind")} | {"score": score}
        if score == "window-attention":
            c["given"] |= {"window": rng.randint(1, 9), "pool": 3, "group": rng.choice(["mean", "max"])}
        c.pop("gates", None)
        if score in GATE_SCORES:
            c["gates"] = GATE_SCORES[score]
    if what == "allocation" and c["given"].get("score", "retention") in GATE_SCORES and name not in ("adakv", "dbtrimkv"):
        c["given"] |= {"allocation": rng.choice(["global", "adaptive"]), "floor": rng.choice([0, 0.3])}
    return name, c


def readable(name, given):
    """Removes options that exclude reading by pages, and those that need the removed ones."""
    given.pop("variant", None)
    if given.get("order") != "after":
        given.pop("stride", None)
    if given.get("positions") == "cache" or name == "locret":
        given["positions"] = "original"


def with_effect(name, c):
    """Returns (name, case) without reads, pages and dense layers that leave nothing unread whatever
    the prompt: the program rejects them."""
    layers = LAYERS_AND_HEADS[c["model"]][0]
    for given in (c["given"], *(o[2] for o in c.get("overrides", ()))):
        if given.get("dense", 0) >= layers:
            given["dense"] = layers - 1
    given, most = c["given"], c["budget"]
    once = given.get("cut", "prompt" if name == "rocketkv" else "always") == "prompt"
    if not most or once or given.get("read") is None and name != "rocketkv":
        return name, c
    if given.get("reads", 0) >= most:
        given["reads"] = most - 1
    if given.get("reads") == 0:
        del given["reads"]
    page = given.get("page", 1)
    if max(1, given.get("reads", max(1, most // 2)) // page) * page >= most and name not in READS_ONLY:
        given.pop("page", None)
    return name, c


def evict_read_case(rng, long):
    """Returns (name, case): a method that evicts, whose queries read a choice of what is cached."""
    name = rng.choice([m for m in LIMITED_BY_BUDGET if m not in NO_BUDGET])
    c = case_of(rng, name, long)
    readable(name, c["given"])
    room = c["budget"] or 12
    c["given"] |= {"read": rng.choice(["quest", "quest", "seer-oracle", "rocket"]), "reads": rng.randint(1, room),
                   "page": rng.choice([1, 2, 3, 8]), "dense": rng.choice([0, 0, 1])}
    if c["given"]["read"] == "rocket":
        c["given"]["channels"] = rng.choice([0, 1, 2, 7, 16])
    for key in ("reads", "page") if c["budget"] else ():
        if rng.random() < 0.2:
            del c["given"][key]
    while not fits(numbers(name, c["budget"], c["given"]), c["budget"]):  # without its variant
        del c["given"][rng.choice([key for key in ("sinks", "recent", "every", "local") if key in c["given"]])]
    return name, c


def protect_case(rng, long):
    """Returns (name, case): a method that keeps the prompt, or some first tokens."""
    name = rng.choice([m for m in LIMITED_BY_BUDGET if m not in ORACLES] + ["local", "duo", "wgkv-quest", "next-topk"])
    c = case_of(rng, name, long)
    c["given"]["protect"] = rng.choice(["prompt", "sinks:3", f"sinks:{rng.randint(1, c['prompt'] + 9)}", "prompt+sinks:2", "sinks:9+sinks:4"])
    extra = len(guarded(c["given"]["protect"], c["prompt"]))
    own = c["budget"]
    if own and name != "wgkv-quest":  # its budget counts what is read
        c["budget"] = extra + rng.randint(1, max(1, own))
    while not fits(numbers(name, c["budget"], c["given"], c["prompt"]), c["budget"] if name in ("local", *LIMITED_BY_BUDGET) else None, c["prompt"]):
        if set(c["given"]) & {"sinks", "recent", "every", "local"}:
            del c["given"][rng.choice([key for key in ("sinks", "recent", "every", "local") if key in c["given"]])]
        else:
            c["budget"] += 1
    if rng.random() < 0.2 and name not in ("local", "duo", "wgkv-quest"):
        c["given"] |= {"read": rng.choice(["quest", "rocket"]), "reads": rng.randint(1, c["budget"] or 9), "page": rng.choice([1, 2, 5])}
        readable(name, c["given"])
    return name, c


def of_the_run(rng, names):
    """Returns (options that all methods of a run share, the methods that accept them)."""
    given = {}
    if rng.random() < 0.3:
        given["chunk"] = rng.choice([2, 7, 16])
    if rng.random() < 0.3:
        given["positions"] = "cache"
    names = [m for m in names if m in LIMITED_BY_BUDGET] if given else names
    return given, [m for m in names if m not in NOT_BY_RANK] if "positions" in given else names


def overrides_case(rng, long):
    """Returns (name, case): two or three methods for different heads."""
    some = [m for m in METHODS if m not in READS_ONLY and m not in ORACLES and
            m not in ("pyramidkv", "ada-pyramidkv", "cake", "tova")]
    shared, some = of_the_run(rng, some)
    fixed = lambda m: ({"positions": "original", "chunk": 0} if m == "locret" else {}) | shared
    name = rng.choice(some)
    c = case_of(rng, name, long, shared=False)
    c["given"] |= fixed(name)
    layers, heads = LAYERS_AND_HEADS[c["model"]]
    c["overrides"], heads_of = [], []
    for _ in range(rng.randint(1, 2)):
        kind = c.get("gates")
        other = rng.choice([m for m in some if NEEDS.get(m, kind) == kind or not kind])
        if other in NEEDS:
            c["gates"] = NEEDS[other]
        l, k = rng.choice(["*", *range(layers)]), rng.choice(["*", *range(heads)])
        own = not c["budget"] or name in NO_BUDGET or rng.random() < 0.5
        budget = None if other in NO_BUDGET else rng.randint(1, 40) if own else c["budget"]
        given = options(rng, other, budget) | fixed(other)
        if own and budget:
            given["budget"] = budget
        heads_of.append((l, k))
        c["overrides"].append((f"L{l}K{k}", other, given))
    if len(heads_of) == 2 and all(b in ("*", a) for a, b in zip(*heads_of)):  # an override that later ones hide is rejected
        c["overrides"] = c["overrides"][::-1] if heads_of[0] != heads_of[1] else c["overrides"][1:]
    return name, c


# ---- protocols: when the cache is cut, and what its budget is a part of

CUT_ONCE = "snapkv", "adakv", "pyramidkv", "window", "h2o", "tova", "keydiff", "knorm", "cake", "ada-pyramidkv", "expected-attention", "dbtrimkv"
FRACTIONS = *CUT_ONCE, "scissorhands", "rkv", "gkv", "morphkv", "trimkv", "wgkv-snapkv", "locret", "quest", "seer-oracle", "local"


def protocol_case(rng, long, i=None):
    """Returns (name, case): cut=prompt, a budget in percent of the prompt or of all tokens so far, a
    question that is fed after the cut, or several of these. The first cases cut each method of
    CUT_ONCE once."""
    first = i is not None and i < len(CUT_ONCE)
    once = first or rng.random() < 0.5
    name = CUT_ONCE[i] if first else rng.choice(CUT_ONCE if once else FRACTIONS)
    while True:
        c = case_of(rng, name, long, shared=not once)
        if c["prompt"] > 3 and c["n"]:
            break
    c["n"] = max(c["n"], 4)
    if once:
        c["given"] = {k: v for k, v in c["given"].items() if k not in ("every", "variant", "slack", "stride", "order")} | {"cut": "prompt"}
        if rng.random() < 0.3 and "chunk" not in c["given"]:
            c["given"]["chunk"] = rng.choice([2, 7, 16, 30])
    if not once or rng.random() < 0.5:
        give_fraction(rng, name, c, once)
    if rng.random() < 0.6:
        c["question"] = rng.randint(1, 12)
    return name, c


def give_fraction(rng, name, c, once):
    """Replaces the budget by a fraction of the case's prompt, or of all tokens so far."""
    seen = name != "local" and (not once or "chunk" in c["given"]) and rng.random() < 0.5
    given = {k: v for k, v in c["given"].items() if k not in ("sinks", "recent", "every", "local", "window")}
    c["given"] = given | {"of": "seen"} if seen else given
    chunk = given.get("chunk", 0) or numbers(name, 8, given).get("chunk", 0)
    first = min(chunk, c["prompt"]) if seen and chunk else c["prompt"]
    while True:
        c["percent"] = rng.choice(["25%", "50%", "75%", "12.5%", "33.333333%", "100%", "%d%%" % rng.randint(1, 99)])
        c["budget"] = entries(c["percent"], first)
        if fits(numbers(name, c["budget"], c["given"]), c["budget"]):
            return
