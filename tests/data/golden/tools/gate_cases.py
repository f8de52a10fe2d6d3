"""The cases of gates.json: (method, inputs, parameters).  The seed is where the search for a clear choice begins."""

CASES = []


def case(method, spec, **params):
    CASES.append((method, {"seed": 7000 + 100 * len(CASES), **spec}, params))


def lanes(L, H, n, decay, **more):
    return {"L": L, "H": H, "n": n, "decay": decay, **more}


def shape(G, H, n, d, **more):
    return {"G": G, "H": H, "n": n, "d": d, **more}


# ---- retention gates.  Published: SiLU, bias 18, hidden 512
for gate, H, bias in (("rg", 1, 18), ("rg", 3, 2), ("rg", 2, 0), ("rg10", 1, 18), ("rg10", 3, 2), ("rg10", 2, -1)):
    case("trimkv_gate", {"n": 6, "d": 8, "I": 6 if gate == "rg" else 5, "H": H}, gate=gate, bias=bias)

# TRIM-KV: cut to `memory` when `memory` + `buffer` are there; published lookahead 1, later 2
TRIM = dict(memory=6, buffer=1, lookahead=1, sliding=0, prompt=10)


def trim(s, **params):
    case("trimkv", s, **{**TRIM, **params})


trim(lanes(1, 1, 20, 4))
trim(lanes(2, 2, 20, 3), buffer=4)
trim(lanes(1, 3, 24, 5), memory=10, buffer=6, prompt=20)
trim(lanes(1, 2, 20, 8), lookahead=2)
trim(lanes(2, 1, 24, 4), lookahead=5, buffer=3)
trim(lanes(1, 2, 30, 6), lookahead=32, memory=12, buffer=4, prompt=24)
trim(lanes(1, 2, 20, 2), sliding=3, buffer=2)
trim(lanes(1, 2, 90, 5), memory=32, buffer=8, prompt=70)
trim(lanes(1, 1, 14, 3), memory=8, buffer=4, prompt=11)  # one less than memory + buffer
trim(lanes(1, 1, 16, 4, forever=[[0, 0, 2]]), memory=6, buffer=2)
trim(lanes(1, 1, 16, 4, forever=[[0, 0, 2]]), memory=6, buffer=2, lookahead=2)  # a log beta of 0: no number
case("trimkv_norm", lanes(1, 2, 20, 4), memory=8, buffer=3, prompt=12)

# DBTrimKV: one choice over all layers and heads
GLOBAL = dict(memory=6, buffer=1, lookahead=1, least=0, prompt=10)
for method in ("dbtrimkv", "dbtrimkv_paged"):
    def both(s, **params):
        case(method, s, **{**GLOBAL, **params})

    both(lanes(2, 2, 16, 3))
    both(lanes(3, 1, 18, 4), buffer=4, lookahead=2)
    both(lanes(2, 3, 14, 4), memory=5, buffer=2, lookahead=5)
    both(lanes(2, 2, 16, 3), least=2, buffer=3)
    both(lanes(3, 2, 20, 2), least=3, memory=8, buffer=2, prompt=16, lookahead=2)
    both(lanes(1, 2, 16, 3), least=6, buffer=3)  # nothing is shared out
    both(lanes(2, 2, 15, 4), buffer=3, threshold=.75)
for layer_wise, floor, L, H in ((False, 0., 2, 2), (False, .3, 2, 2), (False, .5, 3, 1), (True, 0., 2, 3)):
    case("dbtrimkv_floor", lanes(L, H, 16, 3), memory=6, buffer=2, prompt=10, floor=floor, layer_wise=layer_wise)

# ---- LocRet: published chunk 3072, budget 6000, stabilizers 2500, local 100
for G, H in ((2, 2), (4, 2), (3, 1)):
    case("locret_gate", {"n": 5, "G": G, "H": H, "d": 4, "I": 6})
for H, n, budget, chunk, stabilizers, local in ((1, 40, 10, 8, 3, 4), (2, 50, 12, 10, 5, 6), (2, 37, 10, 8, 0, 5),
                                                (3, 60, 16, 16, 8, 10), (2, 30, 12, 40, 4, 3), (1, 44, 20, 9, 2, 1)):
    case("locret", {"H": H, "n": n}, budget=budget, chunk=chunk, stabilizers=stabilizers, local=local)

# ---- DuoAttention
for L, H, sparsity in ((2, 2, .5), (3, 2, .25), (2, 4, .75), (4, 3, .6), (2, 2, 0.), (2, 2, 1.)):
    case("duo_heads", {"L": L, "H": H}, sparsity=sparsity)
case("duo_heads", {}, sparsity=.5, alphas=[[.9, .1]])
case("duo_heads", {}, sparsity=.5, alphas=[[.5, .5, .5, 0.], [1., .5, 0., 0.]])  # equal alphas at the boundary
for n, sink, recent in ((16, 2, 4), (21, 4, 6), (12, 0, 3), (9, 8, 8)):
    case("duo_mask", {"n": n}, sink=sink, recent=recent)
for calls, sink, recent in (([12] + [1] * 5, 2, 4), ([5, 5, 5, 1, 1, 1], 2, 3), ([3, 1, 1, 1, 1], 2, 4)):
    case("duo_cache", {"n": sum(calls)}, calls=calls, sink=sink, recent=recent)

# ---- WG-KV: published window 256, threshold .1, pages of 16, hidden 1.5 or 4 times the head, GELU
for H, expand, act, fast, scale in ((1, 1.5, "gelu", False, 1), (3, 1.5, "gelu", True, 1), (2, 4., "gelu", False, 8),
                                    (2, 4., "gelu", True, 8), (2, 1.5, "silu", False, 1)):
    case("wgkv_gate", {"n": 6, "H": H, "d": 4}, expand=expand, act=act, fast=fast, scale=scale)
case("wgkv_train", {"n": 9, "H": 2}, window=4, group=3, tau=.5)
case("wgkv_train", {"n": 7, "H": 1}, window=1, group=2, tau=.5)
for n, H, window in ((200, 2, 64), (320, 1, 128), (257, 2, 128), (100, 2, 128), (64, 1, 64), (256, 1, 64)):
    case("wgkv_prefill", {"n": n, "H": H, "equal": [5, 20]}, window=window, tau=.875)
DUAL = dict(window=8, block=4, tau=.5, prompt=14)


def dual(method, s, **params):
    case(method, s, **{**DUAL, **params})


for s, more in ((dict(shape(2, 2, 34, 4), L=1), {}), (dict(shape(2, 1, 26, 4), L=2), {}),
                (dict(shape(3, 1, 28, 4, equal=[2, 5, 15]), L=1), {}), (dict(shape(2, 1, 24, 4), L=1), dict(prompt=5)),
                (dict(shape(1, 1, 26, 4), L=2), dict(defer=True)), (dict(shape(1, 1, 22, 4), L=1), dict(prompt=8))):
    dual("wgkv_decode", s, **more)
for s, more in ((dict(shape(2, 2, 40, 8), L=1), dict(limit=22, evict=.25, observe=4, kernel=5)),
                (dict(shape(4, 2, 36, 8), L=2), dict(limit=40, evict=.25, observe=6, kernel=3)),
                (dict(shape(3, 1, 44, 8), L=1), dict(limit=12, evict=.1, observe=4, kernel=5)),
                (dict(shape(2, 1, 44, 8), L=1), dict(limit=10, evict=.5, observe=8, kernel=1, prompt=20))):
    dual("wgkv_snapkv", s, **more)
for s, more in ((dict(shape(2, 2, 48, 8), L=1), dict(quest=16)), (dict(shape(4, 2, 44, 8), L=1), dict(quest=20)),
                (dict(shape(3, 1, 40, 8), L=1), dict(quest=8)), (dict(shape(2, 2, 40, 8), L=1), dict(quest=100)),
                (dict(shape(2, 1, 44, 8), L=1), dict(quest=15, prompt=5))):
    dual("wgkv_quest", s, prompt=more.pop("prompt", 30), **more)

# ---- Quest: published pages of 16, budgets 256 and more
for s, page, budget in ((shape(2, 2, 40, 8), 4, 16), (shape(4, 2, 50, 8), 4, 20), (shape(3, 1, 41, 16), 4, 4),
                        (shape(2, 1, 96, 8), 16, 64), (shape(6, 2, 33, 8), 1, 9), (shape(2, 2, 37, 8), 8, 100),
                        (shape(3, 1, 100, 16), 8, 30)):
    case("quest", {**s, "rows": 1}, page=page, budget=budget)

# ---- SeerAttention-R: published blocks of 64, budget 4096 tokens, max, min and average, Qproj
SEER = dict(block=4, pools=["max", "min", "avg"], query="Qproj", norm=False, rope=False, prompt=14)


def gated(s, **params):
    case("seer", {**s, "q_scale": 2}, **{**SEER, **params})


gated(dict(shape(4, 2, 26, 4), L=1), budget=3)
gated(dict(shape(3, 1, 30, 4), L=1), budget=2, norm=True)
gated(dict(shape(2, 2, 26, 6), L=1), budget=4, query="Qavgproj", pools=["avg"])
gated(dict(shape(4, 2, 26, 4), L=1), budget=3, query="Qavg", pools=["max", "avg"])
gated(dict(shape(4, 2, 30, 4), L=1), budget=3, rope=True, norm=True)
gated(dict(shape(4, 2, 26, 4), L=1), budget=100)
gated(dict(shape(2, 1, 26, 4), L=1), threshold=.15)
gated(dict(shape(2, 1, 26, 4), L=1), budget=3, prompt=16)
gated(dict(shape(2, 1, 25, 4), L=2), budget=2, prompt=14, all=True)  # the second layer's remainder
gated(dict(shape(2, 1, 25, 4), L=2), budget=2, prompt=16, all=True)

# ---- a library's Scissorhands
for s, window, budget, recent, sinks in ((shape(2, 2, 24, 8), 6, 12, 4, 0), (shape(3, 3, 30, 8), 30, 10, 3, 2),
                                         (shape(1, 1, 20, 8), 8, 6, 4, 4)):
    case("scissorhands_library", s, window=window, budget=budget, recent=recent, sinks=sinks)

# ---- H2O over a full cache: shares of the prompt's length; published .1 and .1
for s, heavy, recent, prompt in ((shape(2, 2, 26, 8), .25, .25, 16), (shape(1, 1, 28, 8), .125, .25, 16),
                                 (shape(2, 2, 20, 8), .25, 0., 12)):
    case("h2o_masked", s, heavy=heavy, recent=recent, prompt=prompt)

# ---- a library's Quest and DuoAttention
for s, page, budget, recent in ((shape(2, 2, 40, 8), 4, 16, 4), (shape(4, 2, 43, 8), 4, 18, 5),
                                (shape(3, 1, 37, 8), 8, 20, 0), (shape(2, 1, 50, 8), 4, 8, 8)):
    case("quest_library", {**s, "rows": 1}, page=page, budget=budget, recent=recent)
for L, H, ratio in ((2, 2, .5), (3, 2, .25), (5, 3, .7), (2, 3, .75)):
    case("duo_press", {"L": L, "H": H}, ratio=ratio)
