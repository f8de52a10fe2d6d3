"""Check the figure kv-size-heads on a synthetic table.  usage: test_fig_kv_size_heads.py DRAW_TABLE"""
import os
import sys

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
from test_panels import affine, draw, paths, tsv, words_of

COLUMNS = ["trace", "layer", "at", "ratio", "size"]
RATIO = {"h2o 64": [.1, .2, .4, .8, .5], "trimkv 64": [.3, .3, .3, .3, .3]}
COLOUR = {"h2o 64": (230, 159, 0), "trimkv 64": (213, 94, 0)}


def rows(runs=RATIO):
    return [(name, layer, at, v if at == "end" else v / 2, v / 4) for name, values in runs.items() for layer, v in enumerate(values)
            for at in ("end", "mean")]


def dots(svg, name):
    return [(sum(x for x, _ in p[:-1]) / len(p[:-1]), p[0][1]) for fill, _, p, curved, _ in paths(svg)
            if curved and fill and all(abs(a - b) <= 2 for a, b in zip(fill, COLOUR[name]))]


code, svg, said = draw(tsv("kv-size", COLUMNS, rows()), "kv-size-heads")
check("drawn", code == 0 and not said, said)
check("a dot for each head, at its ratio", affine(sorted(RATIO["h2o 64"]), sorted((y for _, y in dots(svg, "h2o 64")), reverse=True)), dots(svg, "h2o 64"))
equal = sorted(dots(svg, "trimkv 64"))
check("equal heads beside each other", len(equal) == 5 and len({round(y, 3) for _, y in equal}) == 1 and len({round(x, 2) for x, _ in equal}) == 5, equal)
lines = [p for fill, stroke, p, _, _ in paths(svg) if stroke == (31, 31, 31) and len(p) == 2 and abs(p[0][0] - p[1][0]) > 10 and p[0][1] == p[1][1]]
heights = {round(p[0][1], 2) for p in lines}
at = {v: y for v, (_, y) in zip(sorted(RATIO["h2o 64"]), sorted(dots(svg, "h2o 64"), key=lambda p: -p[1]))}
check("the median", any(abs(h - at[float(np.median(RATIO["h2o 64"]))]) < .03 for h in heights), (heights, at))
check("names", all(n in words_of(svg) for n in RATIO), words_of(svg))
code, other, said = draw(tsv("kv-size", COLUMNS, rows()), "kv-size-heads", style="at=mean,value=size")
check("another time and number", code == 0 and other != svg and ", mean" in words_of(other), said)
code, _, said = draw(tsv("kv-size", COLUMNS, rows({f"run {i}": [.1] for i in range(17)})), "kv-size-heads")
check("too many traces", code == 2 and "at most 16" in said, said)
code, svg, said = draw(tsv("kv-size", COLUMNS, []), "kv-size-heads")
check("an empty table", code == 0 and "no data" in words_of(svg), code, said)
finish()
