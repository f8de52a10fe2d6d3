"""Check maps of several traces in one figure: each shows its own evictions at the place of its trace and head.  usage:
test_fig_eviction.py DRAW_TABLE
"""
import os
import sys

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
from readers import Svg
from test_panels import draw, tsv, words_of

COLUMNS, N = ["trace", "head", "layer", "index", "token", "evict_step"], 12
TRACES, HEADS = ("h2o 64", "snapkv 64", "trimkv 64"), ((3, 0), (5, 1))


def ends(trace, head):
    """Return the eviction steps, -1 if kept."""
    rng = np.random.default_rng(10 * trace + head)
    end = np.arange(N) + rng.integers(1, N, N)
    return np.where(end < N, end, -1)


def table(traces=TRACES, heads=HEADS, tokens=lambda t: N):
    return tsv("eviction", COLUMNS, [(name, f"L{l}K{k}", l, k, i, ends(t, h)[i]) for t, name in enumerate(traces)
                                     for h, (l, k) in enumerate(heads) for i in range(tokens(t))], T=N)


def held(pixels, t, i):
    """Return True if the box of query t and entry i is blue in a map of N x N."""
    h, w = pixels.shape[:2]
    r, _, b = (int(v) for v in pixels[int((t + .5) * h / N), int((i + .5) * w / N)][:3])
    return b - r > 40


def right(pixels, end):
    return all(held(pixels, t, i) == (end[i] < 0 or t < end[i]) for i in range(N) for t in range(i + 1, N))


def order(svg, traces, heads):
    maps = sorted((m for m in Svg(text=svg.decode()).images() if m[0].shape[1] > N), key=lambda m: (round(m[1]), round(m[2])))  # not the bar
    check("a map for each", len(maps) == traces * heads, len(maps))
    return maps


code, svg, said = draw(table(), "eviction", style="steps=0:")
check("drawn", code == 0 and not said, said)
check("names", all(w in words_of(svg) for w in (*TRACES, "L3K0", "L5K1")), words_of(svg))
for k, m in enumerate(order(svg, 3, 2)):  # column by column
    check(f"trace {k // 2}, head {k % 2}", right(m[0], ends(k // 2, k % 2)), m[1:])
code, svg, said = draw(table(heads=HEADS[:1]), "eviction", style="steps=0:", size="180x60")
check("one head", code == 0 and "h2o 64: L3K0" in words_of(svg), said)
for k, m in enumerate(order(svg, 3, 1)):
    check(f"one head of trace {k}", right(m[0], ends(k, 0)), m[1:])
many = tuple((layer, k) for layer in range(7) for k in range(2))
code, svg, said = draw(table(traces=TRACES[:2], heads=many), "eviction", style="steps=0:", size="180x180")
check("many heads", code == 0 and all(w in words_of(svg) for w in (*TRACES[:2], "L6", "K1")), said)
maps = sorted(order(svg, 2, len(many)), key=lambda m: (m[1] > 75, round(m[2]), m[1]))
check("a block for each trace", all(right(m[0], ends(k // 14, k % 14)) for k, m in enumerate(maps)), [m[1:3] for m in maps[:3]])
code, _, said = draw(table(tokens=lambda t: N - t), "eviction")
check("traces of unlike lengths are refused", code == 2 and "--tokens" in said, said)
code, _, said = draw(table(traces=("a", "b"), heads=((0, 0), (0, 1))).replace("L0K1", "L0K2", 1), "eviction")
check("traces of unlike heads are refused", code == 2 and "--head" in said, said)
finish()
