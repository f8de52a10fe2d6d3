"""What the figure intermittency draws of several traces, and its medians.  usage: test_fig_intermittency.py DRAW_TABLE"""
import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
from test_panels import affine, discs, draw, paths, texts, tsv, words_of

COLUMNS = ["trace", "head", "layer", "index", "criterion", "class", "quantity", "above", "tokens", "share", "q50"]
ABOVE, QUANTITIES = (0, 9, 99), ("selected", "returns")
# Shares of the tokens with 1, 10 and 100 or more: a line passes one half where they say.
SHARE = {"h2o 64": (.9, .7, .3), "trimkv 64": (.8, .4, .1)}
HALF = {"h2o 64": 1.5, "trimkv 64": .75}  # logarithms, by straight lines between the points
MEDIAN = {"h2o 64": 33, "trimkv 64": 6}
COLOUR = {"h2o 64": (230, 159, 0), "trimkv 64": (213, 94, 0)}


def table(traces=tuple(SHARE), criteria=("top64", "mass.90")):
    rows = [(t, "all", -1, -1, c, "all", q, a, 100, s * (1 if c == "top64" else .9), MEDIAN[t])
            for t in traces for c in criteria for q in QUANTITIES for a, s in zip(ABOVE, SHARE[t])]
    return tsv("intermittency", COLUMNS, rows)


code, svg, said = draw(table(), "intermittency", style="by=trace")
words = words_of(svg)
check("drawn", code == 0 and not said, said)
check("one criterion, which the note names", "top-64;" in words and "mass 0.90" not in words, words)
check("panels of quantities, lines of traces", all(w in words for w in ("returns", "queries that select it", *SHARE)), words)
for name, colour in COLOUR.items():
    lines = [p for _, stroke, p, curved, _ in paths(svg) if stroke == colour and len(p) == 3 and not curved]
    check(f"{name}: a line in each panel", len(lines) == 2, len(lines))
    rings = sorted(discs(svg, colour, filled=False))
    check(f"{name}: a ring in each panel", len(rings) == 2, rings)
    for line, ring in zip(sorted(lines), rings):
        check(f"{name}: shares over logarithms", affine([0, 1, 2], [x for x, _ in line]) and affine(SHARE[name], [y for _, y in line]), line)
        check(f"{name}: the ring is at one half", affine([0, 1, 2, HALF[name]], [x for x, _ in line] + [ring[0]]) and
              affine([*SHARE[name], .5], [y for _, y in line] + [ring[1]]), line, ring)
        near = [t for t, xs, y, _ in texts(svg) if t == str(MEDIAN[name]) and abs(xs[0] - ring[0]) < 5 and abs(y - ring[1]) < 4]
        check(f"{name}: with the median", len(near) == 1, near, ring)
usual = words_of(draw(table(), "intermittency")[1])
check("without the key a panel for each trace and quantity", all(f"{t}: returns" in usual for t in SHARE) and "mass 0.90" in usual, usual)
one = draw(table(traces=("h2o 64",)).replace("trace\t", "", 1).replace("h2o 64\t", ""), "intermittency", style="by=trace")
check("one trace has no lines of traces", one[0] == 2 and "one trace" in one[2], one[2])
finish()
