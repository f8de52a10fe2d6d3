"""Check the figure head-types: the models and types by name, marks at their values, and types without heads left out.  usage:
test_fig_head_types.py DRAW_TABLE
"""
import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
from test_panels import BLUE, discs, draw, tsv, words_of

COLUMNS = ["model", "kind", "fraction", "low", "high", "depth", "depth_low", "depth_high"]
KINDS = ("sink", "gist", "number", "filler")
VALUES = {"sink": (.2, .75), "gist": (.05, .25), "number": (0, "nan"), "filler": (.003, .5)}


def table(models=("One 1B", "Two 2B"), interval=.02):
    rows = []
    for k, model in enumerate(models):
        for kind in KINDS:
            v, d = VALUES[kind]
            v += .1 * k * (v > .01)
            ends = ("nan", "nan") if interval is None else (max(0, v - interval), v + interval)
            rows.append((model, kind, v, *ends, d, *(("nan", "nan") if d == "nan" or interval is None else (d - .1, d + .1))))
    return tsv("head-types", COLUMNS, rows)


code, svg, said = draw(table(), "head-types")
words = words_of(svg)
check("drawn", code == 0 and not said, said)
check("models and types", all(w in words for w in ("One 1B", "Two 2B", "sink", "gist")), words)
check("a type that no model has", "number" not in words, words)
check("a rare type has no row", "below 1 % and not shown: filler" in words and "0.003" not in words, words)
check("one name for the models of a type", words.split().count("sink") == 1 and words.split().count("One") == 2, words)
lone = tsv("head-types", [*COLUMNS, "documents"], [("One 1B", "sink", .5, .4, .6, .75, .7, .8, 6), ("One 1B", "gist", .2, .1, .3, .5, "nan", "nan", 6)], layers=3, query_heads=4)
said = words_of(draw(lone, "head-types")[1])
check("one model is in the note", "One 1B; bars: 95 % CI over documents; n = 12 heads in 6 documents; no bar: too few documents have the type" in said, said)
lone = tsv("head-types", COLUMNS, [("One 1B", "sink", .5, .4, .6, .75, .7, .8), ("Two 2B", "sink", .004, 0, .008, 1, "nan", "nan")])
said = words_of(draw(lone, "head-types")[1])
check("no depth of very few heads", "depth: of types from 1 % on" in said, said)
check("values with intervals", "0.200 (0.180 .. 0.220)" in words and "0.150 (0.130 .. 0.170)" in words, words)
at = sorted(discs(svg, BLUE), key=lambda p: (p[0], p[1]))  # the first model: fraction of gist and sink, then their depths
check("a mark for each value", len(at) == 4, at)
if len(at) == 4:
    # each panel has a linear axis: the distance of two marks is in the ratio of widths of the axes
    fraction, depth = at[1][0] - at[0][0], at[3][0] - at[2][0]
    wide = .32 * 1.05 * 1.02, 1.04  # the ends of both axes: -.02 .. 1 in 1.05 times the largest interval, -.02 .. 1.02
    check("marks at their values", abs(fraction / (.15 / wide[0]) - depth / (.5 / wide[1])) < .02 * depth, fraction, depth)
    check("sink is above gist", at[1][1] < at[0][1] and abs(at[1][1] - at[3][1]) < .1, at)
code, svg, said = draw(table(interval=None), "head-types")
check("without intervals", code == 0 and "0.200" in words_of(svg) and ".." not in words_of(svg), words_of(svg))
code, svg, said = draw(table(models=[f"M{k}" for k in range(40)]), "head-types", size="180x60")
check("rows that do not fit are counted", code == 0 and "more rows not shown" in words_of(svg), words_of(svg))
code, _, said = draw(table(), "head-types", size="60x60")
check("too small", code != 0 and "--size" in said, said)
finish()
