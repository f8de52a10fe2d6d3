"""Check the figure decay: observed fractions are points at their places over the fitted laws, and the key has the distances.
usage: test_fig_decay.py DRAW_TABLE
"""
import math
import os
import re
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
from test_panels import affine, discs, draw, paths, tsv, words_of

INK, BLUE = (31, 31, 31), (0, 114, 178)
AGES, SEEN = (10, 20, 40, 80, 160), (1., .8, .7, .3, math.nan)
BETA = {"top64": .99, "mass.90": .98}


def table(criteria=("top64",), heads=1, distance=.126, observed=True, fitted=True):
    rows = []
    for c in criteria:
        for head in [f"L0H{k}" for k in range(heads)] + ["all"]:
            key = (head, -1 if head == "all" else 0, -1 if head == "all" else int(head[3:]), c, "all")
            rows += [(*key, "geometric", 10, -math.log(BETA[c]), BETA[c], BETA[c], BETA[c], distance),
                     (*key, "weibull", 10, .01, .9, .8, 1., .3), (*key, "power", 10, .2, .2, .1, .3, .4)]
            if not fitted:
                rows = [r[:7] + ("nan",) * 5 if r[5] != "observed" else r for r in rows]
            rows += [(*key, "observed", age, "nan", y, y - .05, min(y + .05, 1), "nan") for age, y in zip(AGES, SEEN)] if observed else []
    names = ["head", "layer", "index", "criterion", "class", "law", "age", "scale", "value", "low", "high", "distance"]
    return tsv("decay", names, rows, **{"from": 10, "T": 400, "grace": 64, "model": "M", "method": "full"})


code, svg, said = draw(table(heads=2), "decay")
check("drawn", code == 0 and not said, said)
words = words_of(svg)
check("the key has the largest distance of each law", all(w in words for w in ("geometric: 0.13", "Weibull: 0.30", "power law: 0.40", "observed")), words)
check("the note has the run", "400 tokens \u00d7 2 heads" in words and "full cache" in words, words)
points = sorted(p for p in discs(svg, INK))[:4]
check("a point for each age with a value", affine([math.log(a) for a in AGES[:4]], [x for x, _ in points]) and affine(SEEN[:4], [y for _, y in points]), points)
bars = [p for _, stroke, p, curved, _ in paths(svg) if stroke == INK and len(p) == 2 and p[0][0] == p[1][0] and any(abs(p[0][0] - x) < .02 for x, _ in points[1:4])]
check("bars of the intervals", len(bars) >= 3, bars)
line = max((p for _, stroke, p, curved, _ in paths(svg) if stroke == BLUE and not curved), key=len)
check("the laws end at the last observed age", abs(line[-1][0] - points[-1][0]) < .02, line[-1], points[-1])
per_mm = (points[3][1] - points[0][1]) / (SEEN[3] - SEEN[0])
check("a law is at its fraction", abs(line[-1][1] - points[0][1] - per_mm * (BETA["top64"] ** 70 - 1)) < .02, line[-1])

unfitted = draw(table(fitted=False), "decay")
check("laws without a fit have no line", unfitted[0] == 0 and not any(stroke == BLUE for _, stroke, *_ in paths(unfitted[1])) and "observed" in words_of(unfitted[1]), unfitted[2])
two = words_of(draw(table(criteria=("top64", "mass.90")), "decay")[1])
check("two panels: the distance of each", "geometric: 0.13, 0.13" in two and "by panel" in two, two)
many = words_of(draw(table(heads=4), "decay", style="by=head")[1])
check("many panels: the range", "geometric: 0.13 to 0.13" in many, many)
pooled = tsv("decay", ["head", "layer", "index", "criterion", "class", "law", "age", "documents", "value", "value_low", "value_high", "distance"],
             [("all", -1, -1, "top64", "all", "geometric", 10, 5, .9, .8, .95, .1)]
             + [("all", -1, -1, "top64", "all", "observed", age, 5, y, y - .05, min(y + .05, 1), "nan") for age, y in zip(AGES, SEEN)], **{"from": 10, "T": 400, "documents": 5})
code, svg, said = draw(pooled, "decay")
points = sorted(p for p in discs(svg, INK))[:4]
bars = [p for _, stroke, p, curved, _ in paths(svg) if stroke == INK and len(p) == 2 and p[0][0] == p[1][0] and any(abs(p[0][0] - x) < .02 for x, _ in points[1:4])]
check("a corpus: its observed fractions with intervals over documents", code == 0 and affine(SEEN[:4], [y for _, y in points]) and len(bars) >= 3, said, points, bars)
check("and their number", "95 % CI over 5 documents" in words_of(svg), words_of(svg))
none = draw(re.sub(r"(observed\t\d+\t5\t[^\t]*)\t[^\t]*\t[^\t]*", r"\1\tnan\tnan", pooled), "decay")
check("without intervals it says so", "5 documents, no intervals" in words_of(none[1]) and "narrower" not in words_of(none[1]), none[2], words_of(none[1]))
check("and no law, of which it has only means", not any(stroke == BLUE for _, stroke, *_ in paths(svg)) and "geometric" not in words_of(svg), words_of(svg))
code, svg, said = draw(table(observed=False).replace("distance", "other"), "decay")
words = words_of(svg)
check("an older table has laws only", code == 0 and "observed" not in words and "geometric" in words and ": 0." not in words, words, said)
finish()
