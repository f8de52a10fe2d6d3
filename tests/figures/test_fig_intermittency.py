"""Check the figure intermittency on several traces, and its medians.  usage: test_fig_intermittency.py DRAW_TABLE"""
import math
import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
from test_panels import affine, discs, draw, paths, texts, tsv, words_of

COLUMNS = ["trace", "head", "layer", "index", "criterion", "class", "quantity", "above", "tokens", "share", "q50"]
ABOVE, QUANTITIES = (0, 9, 99), ("selected", "returns")
# Fractions of the tokens with 1, 10 and 100 or more, which cross one half at the median.
SHARE = {"h2o 64": (.9, .7, .3), "trimkv 64": (.8, .4, .1)}
MEDIAN = {"h2o 64": 33, "trimkv 64": 6}
COLOUR = {"h2o 64": (230, 159, 0), "trimkv 64": (213, 94, 0)}


def table(traces=tuple(SHARE), criteria=("top64", "mass.90"), interval=None, median=MEDIAN.get):
    rows = [(t, "all", -1, -1, c, "all", q, a, 100, s * (1 if c == "top64" else .9), median(t)) + ((s - interval, s + interval) if interval else ())
            for t in traces for c in criteria for q in QUANTITIES for a, s in zip(ABOVE, SHARE.get(t, (.9, .7, .3)))]
    return tsv("intermittency", COLUMNS + (["low", "high"] if interval else []), rows)


def curves(svg, colour, n):
    return [p for _, stroke, p, curved, _ in paths(svg) if stroke == colour and len(p) == n and not curved]


def polygons(svg, colour, corners):
    """Return the centres of small filled polygons."""
    return [p for fill, _, p, curved, _ in paths(svg) if fill == colour and not curved and len(p) == corners and
            max(x for x, _ in p) - min(x for x, _ in p) < 2]


code, svg, said = draw(table(), "intermittency", style="by=trace")
words = words_of(svg)
check("drawn", code == 0 and not said, said)
check("one criterion, which the note names", "top-64;" in words and "mass 0.90" not in words, words)
check("panels of quantities, lines of traces", all(w in words for w in ("returns", "queries that select the token", *SHARE)), words)
for name, colour in COLOUR.items():
    lines = curves(svg, colour, 4)
    check(f"{name}: a line in each panel", len(lines) == 2, len(lines))
    rings = sorted(discs(svg, colour, filled=False))
    check(f"{name}: a ring in each panel", len(rings) == 2, rings)
    upto = [x for x in (1, 10, 100) if x < MEDIAN[name]]
    across = [math.log(x) for x in sorted([1, 10, 100, MEDIAN[name]])]
    up = SHARE[name][:len(upto)] + (.5,) + SHARE[name][len(upto):]
    for line, ring in zip(sorted(lines), rings):
        check(f"{name}: shares and the median over logarithms", affine(across, [x for x, _ in line]) and affine(up, [y for _, y in line]), line)
        check(f"{name}: the ring is at the median", math.dist(line[len(upto)], ring) < .03, line, ring)
        near = [t for t, xs, y, _ in texts(svg) if t == str(MEDIAN[name]) and abs(xs[0] - ring[0]) < 5 and abs(y - ring[1]) < 4]
        check(f"{name}: with its number", len(near) == 1, near, ring)

# For several documents median and fraction are means: the line is unchanged, and the ring is on it.
pooled = draw(table(interval=.05), "intermittency", style="by=trace")[1]
for name, colour in COLOUR.items():
    for line, ring in zip(sorted(curves(pooled, colour, 3)), sorted(discs(pooled, colour, filled=False))):
        k, x = (0, MEDIAN[name]) if MEDIAN[name] < 10 else (1, MEDIAN[name] / 10)
        share = SHARE[name][k] + math.log10(x) * (SHARE[name][k + 1] - SHARE[name][k])
        check(f"{name}: a mean of medians", affine([0, 1, 2, math.log10(MEDIAN[name])], [x for x, _ in line] + [ring[0]]) and
              affine([*SHARE[name], share], [y for _, y in line] + [ring[1]]), line, ring)
svg = draw(table(interval=.05, median=lambda t: 98), "intermittency", style="by=trace")[1]
check("beside the right edge a ring has its number, too", [t for t, *_ in texts(svg)].count("98") == 4, texts(svg))
svg = draw(table(median=lambda t: 10), "intermittency", style="by=trace")[1]
for name, colour in COLOUR.items():
    lines, rings = sorted(curves(svg, colour, 3)), sorted(discs(svg, colour, filled=False))
    check(f"{name}: a median that is a point of the line has its ring there", len(lines) == 2 and all(math.dist(line[1], ring) < .03 for line, ring in zip(lines, rings)), lines, rings)
svg = draw(table(median=lambda t: 1000), "intermittency", style="by=trace")[1]
check("a median beyond the line has no ring", not any(discs(svg, c, filled=False) for c in COLOUR.values()))

# Methods have their own signs at the points and in the key.
plain = draw(table(traces=("full", "window 64", "keydiff 64"), median=lambda t: 33), "intermittency", style="by=trace,quantity=returns")[1]
check("diamonds of window", len(polygons(plain, (155, 109, 255), 4)) == 5, polygons(plain, (155, 109, 255), 4))
check("triangles of keydiff", len(polygons(plain, (0, 158, 115), 3)) == 5, polygons(plain, (0, 158, 115), 3))
usual = words_of(draw(table(), "intermittency")[1])
check("without the key a panel for each trace and quantity", all(f"{t}: returns" in usual for t in SHARE) and "mass 0.90" in usual, usual)
one = draw(table(traces=("h2o 64",)).replace("trace\t", "", 1).replace("h2o 64\t", ""), "intermittency", style="by=trace")
check("one trace has no lines of traces", one[0] == 2 and "one trace" in one[2], one[2])
finish()
