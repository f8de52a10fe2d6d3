"""The cases of methods.json: (method, inputs, parameters, whether equal scores at the boundary are wanted).

The seed is where the search for a clear choice begins; methods.json holds the one that was taken.
"""
from method_inputs import random_list

CASES = []


def case(method, spec, ties=False, **params):
    if "n" in spec and "G" in spec:
        spec = {"seed": 1000 * (len(CASES) + 1), **spec}
    CASES.append((method, spec, params, ties))


def shape(G, H, n, d, **more):
    return {"G": G, "H": H, "n": n, "d": d, **more}


# SnapKV: class defaults are kernel 5, average; its LongBench runs have 7, max
for pool, kernel, s in (("avg", 5, shape(2, 2, 40, 8, rows=8)), ("avg", 5, shape(4, 2, 40, 8, rows=8)),
                        ("max", 7, shape(3, 1, 56, 16, rows=8)), ("max", 7, shape(2, 2, 60, 8, rows=4)),
                        ("avg", 3, shape(6, 2, 33, 16, rows=4)), ("max", 1, shape(2, 1, 24, 8, rows=1))):
    case("snapkv", s, window=s["rows"], capacity=s["rows"] + 12, kernel=kernel, pool=pool)
case("snapkv", shape(2, 1, 15, 8, rows=4), window=4, capacity=16, kernel=5, pool="avg")
case("snapkv", shape(2, 1, 16, 8, rows=4), window=4, capacity=16, kernel=5, pool="avg")
case("snapkv", shape(3, 1, 48, 8, rows=4), ties=True, window=4, capacity=17, kernel=7, pool="max")
for group in ("mean", "max", "sum"):
    case("snapkv_group", shape(4, 2, 44, 8, rows=8), window=8, capacity=20, kernel=7, pool="max", group=group)
    case("snapkv_group", shape(3, 1, 40, 16, rows=4), window=4, capacity=16, kernel=5, pool="avg", group=group)
for ratio, window, kernel, s in ((.5, 8, 5, shape(4, 2, 40, 8)), (.75, 4, 5, shape(3, 1, 48, 16)),
                                 (.3, 8, 7, shape(2, 2, 30, 8)), (.8, 8, 5, shape(6, 2, 60, 8))):
    case("snapkv_press", {**s, "rows": window}, ratio=ratio, window=window, kernel=kernel)
case("snapkv_press", shape(2, 2, 40, 8, rows=8), ties=True, ratio=.9, window=8, kernel=5)  # fewer kept than the window
for s in (shape(2, 2, 40, 8, rows=40), shape(3, 1, 44, 16, rows=44)):
    case("snapkv_decode", s, budget=20, window=8, kernel=7, rounds=[s["n"]])
case("snapkv_decode", shape(4, 2, 56, 8), budget=20, window=4, kernel=1, rounds=[30, 43, 56])

# R-KV: lambda .07 in the code, .1 in its README
four = [[1, 0], [1, 0], [0, 1], [1, 0], [.6, .8]]
lone = [[1, 0], [.3, .954], [-.9, .436], [.3, -.954], [.1, -.995]]
tiny = [[1e-7, 0], [0, 0], [0, 1], [1, 0], [.6, .8]]
near = [[20, 3], [21, 3], [30, 5], [31, 6], [9, 1]]
for i, (lam, s) in enumerate(((.07, shape(1, 1, 40, 8)), (.07, shape(2, 1, 40, 8)), (.1, shape(6, 2, 48, 16)),
                              (.5, shape(4, 2, 56, 8)), (.9, shape(3, 1, 60, 16)))):
    case("rkv", {**s, "rows": 8, "copies": near if i % 2 else []}, budget=20, window=8, kernel=7, retain="last",
         retain_ratio=.1, rounds=[s["n"]], **{"lambda": lam})
for lam in (0.0, 1.0):
    case("rkv", shape(4, 2, 44, 8, rows=8, copies=near), budget=20, window=8, kernel=7, retain="last", retain_ratio=.2,
         rounds=[44], **{"lambda": lam})
for retain in ("first", "last_percent"):
    case("rkv", shape(2, 1, 40, 8, rows=8, copies=near), budget=20, window=8, kernel=7, retain=retain, retain_ratio=.1,
         rounds=[40], **{"lambda": .07})
for keys in (four, lone, tiny):
    case("rkv", shape(1, 1, 5, 2, rows=1, keys=keys), budget=3, window=1, kernel=1, retain="last", retain_ratio=.1,
         rounds=[5], **{"lambda": .07})
case("rkv", shape(2, 1, 24, 8, rows=8), budget=25, window=8, kernel=7, retain="last", retain_ratio=.1, rounds=[24],
     **{"lambda": .07})
case("rkv", shape(2, 1, 24, 8, rows=8), budget=24, window=8, kernel=7, retain="last", retain_ratio=.1, rounds=[24],
     **{"lambda": .07})
for G, H, lam in ((1, 1, .07), (4, 2, .1), (3, 1, .5)):
    case("rkv", shape(G, H, 60, 8), budget=20, window=4, kernel=7, retain="last", retain_ratio=.1, rounds=[28, 36, 60],
         **{"lambda": lam})

# G-KV: class defaults kernel 5, lambda .1, alpha .8, max; its script has lambda .5
GKV = dict(budget=24, window=8, kernel=5, pooling=False, redundancy=None, smooth="max", alpha=.8, disable_norm=False,
           ratio=None, gamma=0, initial=0, rounds=[40], **{"lambda": .5})


def gkv(s, **params):
    case("gkv", s, **{**GKV, **params})


gkv(shape(2, 2, 40, 8, rows=8), smooth=None)
gkv(shape(4, 2, 40, 8, rows=8), smooth=None, pooling=True)
gkv(shape(3, 1, 40, 16, rows=8), smooth=None, redundancy="raw", **{"lambda": .1})
gkv(shape(3, 1, 40, 16, rows=8, copies=near), smooth=None, redundancy="kernel", **{"lambda": .1})
gkv(shape(2, 1, 40, 8, rows=8), smooth=None, gamma=200)
for smooth in ("max", "mean", "sum"):
    gkv(shape(4, 2, 60, 8), smooth=smooth, rounds=[30, 45, 60])
    gkv(shape(3, 1, 60, 16), smooth=smooth, rounds=[32, 46, 60], redundancy="kernel", pooling=True)
gkv(shape(4, 2, 60, 8, copies=near), rounds=[36, 60], redundancy="kernel", **{"lambda": .9})
gkv(shape(2, 1, 60, 8), rounds=[36, 60], redundancy="raw")
gkv(shape(2, 1, 60, 8), budget=16, window=4, rounds=[30, 45, 60], ratio=.5)
gkv(shape(2, 1, 60, 8), smooth="sum", alpha=1, disable_norm=True, initial=20, window=1, rounds=[34, 47, 60])
gkv(shape(1, 1, 5, 2, rows=1, keys=tiny), budget=3, window=1, rounds=[5], redundancy="kernel", **{"lambda": .1})
gkv(shape(2, 1, 40, 8, rows=8), budget=40)

# AdaKV: defaults window 32, kernel 7, max; alpha .5 in the class, .2 in its scripts
for alpha, group, s in ((.2, "mean", shape(4, 2, 40, 8)), (.5, "mean", shape(6, 3, 36, 8)),
                        (.2, "max", shape(9, 3, 48, 16)), (.5, None, shape(4, 2, 40, 8)),
                        (.2, None, shape(3, 3, 44, 8)),
                        (0.0, "mean", shape(4, 4, 40, 8)), (1.0, "mean", shape(4, 2, 40, 8)),
                        (.25, "mean", shape(8, 4, 44, 8))):
    case("adakv", {**s, "rows": 8, "q_scale": 8}, window=8, kernel=7, pool="max", capacity=20, alpha=alpha,
         normalize=None, group=group)
case("adakv", shape(4, 2, 40, 8, rows=4), window=4, kernel=5, pool="avg", capacity=18, alpha=.5, normalize=None,
     group="mean")
case("adakv", shape(4, 2, 19, 8, rows=8), window=8, kernel=7, pool="max", capacity=20, alpha=.2, normalize=None,
     group="mean")
case("adakv", shape(4, 2, 50, 8, rows=4), window=4, kernel=5, pool="avg", capacity=16, alpha=.2, normalize=None,
     group="mean", pyramid=True, beta=4, layers=4, skip=0)
case("adakv", shape(2, 1, 30, 8, rows=4), window=4, kernel=1, pool="max", capacity=20, alpha=.2, normalize=None,
     group="mean", pyramid=True, beta=4, layers=4, skip=0)
case("adakv", shape(2, 2, 40, 8, rows=4), window=4, kernel=5, pool="avg", capacity=16, alpha=.2, normalize=None,
     group=None, layers=2, skip=1)
for normalize in (False, True):
    case("adakv_group", shape(6, 3, 40, 8, rows=8, q_scale=8), window=8, kernel=7, pool="max", capacity=20, alpha=.2,
         normalize=normalize, group="mean")
    case("adakv_group", shape(4, 4, 40, 8, rows=8, q_scale=8), window=8, kernel=5, pool="avg", capacity=20, alpha=.2,
         normalize=normalize, group="mean")
for alpha, ratio, s in ((.2, .5, shape(4, 2, 40, 8)), (.2, .75, shape(6, 3, 40, 8)), (.67, .5, shape(3, 3, 36, 8)),
                        (1.0, .5, shape(4, 2, 40, 8))):
    case("adakv_press", {**s, "rows": 4, "q_scale": 8}, ratio=ratio, window=4, kernel=5, alpha=alpha)

# PyramidKV
for C, w, beta, L, n in ((20, 4, 4, 4, 100), (20, 4, 4, 4, 30), (20, 4, 4, 4, 33), (20, 4, 4, 4, 32), (20, 4, 4, 4, 31),
                         (20, 4, 4, 4, 20), (20, 4, 4, 4, 19), (20, 4, 20, 4, 33), (20, 4, 20, 5, 35),
                         (128, 8, 20, 32, 4096), (64, 8, 20, 32, 4096), (2048, 8, 20, 32, 5000),
                         (320, 64, 20, 30, 600), (64, 8, 20, 30, 120)):
    case("pyramidkv", {"n": n}, window=w, capacity=C, beta=beta, layers=L, kernel=1, pool="max", group="mean",
         budgets_only=True)
case("pyramidkv", shape(2, 2, 48, 8, rows=4), window=4, capacity=16, beta=4, layers=3, kernel=3, pool="max",
     group="mean")
case("pyramidkv", shape(3, 1, 60, 8, rows=8), window=8, capacity=20, beta=20, layers=4, kernel=5, pool="avg",
     group="mean")
case("pyramidkv", shape(2, 1, 26, 8, rows=4), window=4, capacity=20, beta=4, layers=2, kernel=5, pool="avg",
     group="max")
for n, ratio, w, L in ((1000, .5, 64, 4), (1000, .9, 64, 4), (1000, .9, 4, 4), (4096, .75, 64, 32), (512, .3, 16, 30),
                       (100, .5, 8, 3)):
    case("pyramidkv_press", {"n": n}, ratio=ratio, window=w, beta=20, layers=L)

# CAKE: gamma 200; tau 1.6/.4 is its Llama 3.1 setting, .8/.5 Mistral, 1/1 where none is given
for tau1, tau2, cascading, s in ((1.0, 1.0, False, shape(2, 1, 48, 8)), (1.6, .4, True, shape(4, 2, 50, 8)),
                                 (.8, .5, True, shape(3, 1, 44, 16))):
    case("cake", s, prompt=s["n"] - 4, window=8, capacity=18, layers=4, cascading=cascading, tau1=tau1, tau2=tau2,
         gamma=200.0)
case("cake", shape(2, 2, 40, 8), prompt=38, window=4, capacity=12, layers=2, cascading=False, tau1=1.0, tau2=1.0,
     gamma=0.0)
case("cake", shape(2, 1, 28, 8), prompt=26, window=8, capacity=18, layers=3, cascading=True, tau1=1.0, tau2=1.0,
     gamma=200.0)
for budget, total, limit in (([48, 24, 12, 12], 96, 100), ([62, 12, 12, 12], 100, 50), ([33, 33, 33], 100, 90),
                             ([128], 128, 100), ([86, 43], 128, 100), ([90, 80, 5], 175, 60), ([1, 1, 8], 6, 9)):
    case("cake_adjust", {}, list=budget, total=total, limit=limit)
for i in range(8):
    case("cake_adjust", {}, list=random_list(70 + i, 6, 0, 60), total=150 + 10 * i, limit=25 + 5 * i)

# by keys, values or moments alone
for ratio, s in ((.5, shape(1, 1, 30, 8)), (.25, shape(2, 2, 48, 16)), (.9, shape(1, 1, 60, 8))):
    case("keydiff", {**s, "rows": 0}, ratio=ratio)
    case("knorm", {**s, "rows": 0}, ratio=ratio)
case("keydiff", shape(1, 1, 4, 2, rows=0, keys=[[1, 0], [1, 0], [1, 0], [0, 1]]), ratio=.75)
for G, H, n, d, more in ((1, 1, 30, 8, {}), (4, 2, 40, 8, {}), (3, 1, 48, 16, {"epsilon": .01}),
                         (2, 1, 40, 8, {"covariance": False}), (2, 1, 40, 8, {"vnorm": False}),
                         (2, 2, 32, 8, {"sinks": 1, "future": 1}), (4, 2, 36, 8, {"sinks": 0, "future": 32})):
    case("expected_attention", shape(G, H, n, d, q_scale=2), ratio=.5, rope_base=10000.0,
         **{"future": 512, "sinks": 4, "covariance": True, "vnorm": True, "epsilon": 0.0, **more})

# TOVA, H2O and its kin
for G, H in ((1, 1), (4, 2), (3, 1)):
    case("tova", shape(G, H, 40, 8), prompt=30, capacity=16)
case("tova", shape(2, 1, 20, 8), prompt=8, capacity=12)
for ratio, G, H in ((.5, 2, 1), (.75, 6, 2), (.1, 3, 3)):
    case("tova_press", shape(G, H, 40, 8, rows=1), ratio=ratio)
for G, heavy, recent, prompt, n in ((2, 4, 8, 30, 40), (3, 8, 8, 10, 30), (2, 1, 4, 20, 26), (4, 6, 10, 48, 52)):
    case("h2o", shape(G, G, n, 8), prompt=prompt, heavy=heavy, recent=recent)
for group, G, H in (("mean", 2, 2), ("mean", 4, 2), ("max", 3, 1), ("sum", 6, 2)):
    case("h2o_prompt", shape(G, H, 40, 8), window=8, capacity=20, group=group)
for ratio, G, H in ((.5, 2, 1), (.8, 6, 2)):
    case("observed_attention", shape(G, H, 36, 8), ratio=ratio)

# MorphKV: w 3 and C 100 by default
for G, H, fuse in ((1, 1, "max"), (2, 2, "sum"), (2, 1, "max"), (6, 2, "sum"), (3, 1, "max")):
    case("morphkv", shape(G, H, 40, 8), prompt=30, window=3, capacity=16, fuse=fuse, evict_after=1.0)
case("morphkv", shape(1, 1, 40, 8), prompt=20, window=4, capacity=16, fuse="max", evict_after=1.5)
case("morphkv", shape(2, 2, 24, 8), prompt=10, window=3, capacity=14, fuse="max", evict_after=1.0)

# StreamingLLM: sinks 4
for n, s, r, m in ((6, 2, 4, 1), (5, 2, 4, 1), (7, 2, 4, 1), (40, 4, 12, 3), (16, 4, 12, 0), (17, 4, 12, 0)):
    case("streaming", {"n": n}, sinks=s, recent=r, coming=m)
