"""Check attention maps: the colour of each cell follows from its weight, evicted and later cells differ from all others,
boxes, names and texts.  usage: test_fig_attention.py DRAW_TABLE
"""
import os
import sys

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
from readers import Svg
from test_panels import draw, tsv, words_of

COLUMNS, N = ["head", "layer", "index", "query", "query_end", "token", "token_end", "attention", "cached", "query_text", "text"], 12


def cells(seed):
    """Return weights [t, i] and whether the entry is cached; some entries are evicted before query 8."""
    rng = np.random.default_rng(seed)
    weight, cached = np.exp(-6 * rng.random((N, N))), np.ones((N, N), bool)
    cached[8:, rng.permutation(8)[:3]] = False
    return np.where(cached, weight, 0), cached


def table(seeds=(1,), texts=True):
    return tsv("attention", COLUMNS, [(f"L{s}H0", s, 0, t, t + 1, i, i + 1, *(f(t, i) for f in (lambda t, i: cells(s)[0][t, i], lambda t, i: int(cells(s)[1][t, i]))),
                                       f"q{t}" if texts else "", f"k{i}" if texts else "") for s in seeds for t in range(N) for i in range(t + 1)], T=N, each="max")


def middle(pixels, t, i):
    h, w = pixels.shape[:2]
    return [int(v) for v in pixels[int((t + .5) * h / N), int((i + .5) * w / N)]]


def patch(pixels, t, i):
    h, w = pixels.shape[:2]
    return pixels[int((t + .1) * h / N):int((t + .9) * h / N), int((i + .1) * w / N):int((i + .9) * w / N)]


def maps(svg, n):
    found = sorted((m for m in Svg(text=svg.decode()).images() if m[0].shape[1] > 100 and m[0].shape[0] > 100), key=lambda m: (round(m[2]), round(m[1])))
    check("maps", len(found) == n, len(found))
    return [m[0] for m in found]


def right(name, pixels, seed):
    """Larger weights are darker; evicted cells have two greys; later cells are transparent."""
    weight, cached = cells(seed)
    shown = []
    for t in range(N):
        for i in range(N):
            colour, kinds = middle(pixels, t, i), {tuple(p) for p in patch(pixels, t, i).reshape(-1, pixels.shape[2])}
            if i > t:
                check(f"{name}: later {t}, {i}", colour[3] == 0, colour)
            elif cached[t, i]:
                check(f"{name}: one colour {t}, {i}", len(kinds) == 1, kinds)
                shown.append((weight[t, i], colour[0]))
            else:
                check(f"{name}: hatched {t}, {i}", len(kinds) == 2 and all(k[0] == k[1] == k[2] for k in kinds), kinds)
    shown.sort()
    check(f"{name}: order", all(a[1] >= b[1] for a, b in zip(shown, shown[1:])) and shown[0][1] - shown[-1][1] > 80, shown[:3], shown[-3:])


code, svg, said = draw(table(), "attention")
check("drawn", code == 0 and not said, said)
right("one", maps(svg, 1)[0], 1)
check("texts", all(f"{c}{i}" in words_of(svg) for i in range(N) for c in "qk") and "L1H0" in words_of(svg), words_of(svg))
code, svg, said = draw(table(), "attention", style="labels=numbers,scale=linear")
check("numbers", code == 0 and "q3" not in words_of(svg) and "k3" not in words_of(svg), said)
right("linear", maps(svg, 1)[0], 1)
code, svg, said = draw(table(texts=False), "attention")
check("no texts", code == 0 and "attention weight a" in words_of(svg), said)
code, svg, said = draw(table((1, 2, 3, 4, 5)), "attention", size="180x140")
check("names", code == 0 and all(f"L{s}H0" in words_of(svg) for s in range(1, 6)), said)
for seed, pixels in zip(range(1, 6), maps(svg, 5)):
    right(f"map {seed}", pixels, seed)
code, svg, said = draw(table(tuple(range(37))), "attention")
check("too many", code == 2 and "up to 36 maps, not 37" in said, said)
code, svg, said = draw(table((1, 2, 3, 4)), "attention", size="40x25")
check("too small", code == 2 and "--size" in said, said)
finish()
