"""Random cases for check_decisions.py."""
import methods

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
]


# the options that are tried with each method, besides sinks and recent
TRIED = {
    "window": ["every"], "h2o": ["every", "group"], "tova": ["every", "group", "window", "pool"],
    "snapkv": ["every", "group", "window", "pool"], "keydiff": ["every"], "knorm": ["every"],
    "scissorhands": ["every", "window"], "pyramidkv": ["every", "group", "window", "pool", "beta"],
    "adakv": ["every", "group", "window", "pool", "floor"],
    "ada-pyramidkv": ["every", "group", "window", "pool", "floor", "beta"],
    "cake": ["every", "window", "pool", "gamma"], "rkv": ["every", "group", "window", "pool", "lambda"],
    "morphkv": ["every", "group", "window", "pool"], "gkv": ["every", "group", "window", "history", "lambda"],
    "random": ["every", "seed"], "full": [],
}


def value(rng, key, budget):
    pick = lambda *v: rng.choice(v)
    return {
        "every": lambda: rng.randint(1, max(1, min(budget, pick(3, 10, 100)))),
        "group": lambda: pick("mean", "max", "sum"),
        "window": lambda: rng.randint(1, budget) if rng.random() < 0.7 else rng.randint(1, 100),
        "beta": lambda: pick(1, 2, 3, 7, 20, 50),
        "floor": lambda: pick(0, 0.1, 0.3, 0.5, 0.8, 1),
        "gamma": lambda: pick(0, 1, 50, 1000),
        "lambda": lambda: pick(0, 0.1, 0.35, 0.5, 0.9, 1),
        "history": lambda: pick(0, 0.5, 0.9, 1),
        "seed": lambda: pick(0, 1, 7, 65535),
    }[key]()


def options(rng, name, budget):
    """some options that fit into the budget"""
    given = {}
    if rng.random() < 0.35:
        return given
    for key in TRIED[name]:
        if rng.random() >= 0.4:
            continue
        if key == "pool":
            given["pool"] = rng.choice([1, 3, 5, 7, 9])
            if given["pool"] > 1:
                given["pool-kind"] = rng.choice(["max", "avg"])
        else:
            given[key] = value(rng, key, budget)
    if name != "full" and rng.random() < 0.4:
        given["sinks"] = rng.randint(0, min(budget - 1, 6))  # the newcomer needs a place
    if name != "full" and rng.random() < 0.4:
        given["recent"] = rng.randint(0, min(budget, rng.choice([5, 100])))
    while not methods.fits(methods.numbers(name, budget, given), budget):
        del given[rng.choice([key for key in ("sinks", "recent", "every") if key in given])]
    return given


def budget_of(rng, total, prompt):
    edge = [1, 2, 3, 4, 5, total - 1, total, total + 1, prompt, prompt + 1]
    b = rng.choice(edge) if rng.random() < 0.35 else rng.randint(1, total)
    return max(1, b)


def case_of(rng, name, long):
    """long ones reach the published windows, which a small budget reduces, and a second chunk"""
    if long:
        c = {"prompt": rng.randint(250, 290), "n": rng.randint(10, 60), "budget": rng.randint(100, 240)}
    else:
        c = short_case(rng)
    c["given"] = options(rng, name, c["budget"])
    return c | {"model": rng.randrange(len(MODELS)), "seed": rng.randrange(1 << 30)}


def short_case(rng):
    prompt = rng.choice([1, 2, 3, 59, 60]) if rng.random() < 0.2 else rng.randint(1, 60)
    n = rng.choice([0, 1, 2, 39, 40]) if rng.random() < 0.2 else rng.randint(0, 40)
    total = prompt + max(0, n - 1)
    return {"prompt": prompt, "n": n, "budget": budget_of(rng, total, prompt)}


