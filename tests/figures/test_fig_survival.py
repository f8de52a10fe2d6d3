"""Check the figure survival on several traces in one panel, and the age that it marks.  usage: test_fig_survival.py
DRAW_TABLE
"""
import math
import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
from test_panels import affine, draw, paths, texts, tsv, words_of

COLUMNS = ["trace", "head", "layer", "index", "criterion", "horizon", "fraction", "survival", "survival_low", "survival_high", "half_life"]
AGES = (1, 4, 16, 64, 256)
COLOUR = {"h2o 64": (230, 159, 0), "trimkv 64": (213, 94, 0), "trimkv 128": (213, 94, 0)}
LEVEL = {"h2o 64": .9, "trimkv 64": .7, "trimkv 128": .6}


def table(criteria=("top64", "mass.90"), traces=tuple(COLOUR)):
    return tsv("survival", COLUMNS, [(t, "all", -1, -1, c, n, 0, LEVEL[t] ** (1 + i) * n ** -.1, "nan", "nan", "nan")
                                     for t in traces for i, c in enumerate(criteria) for n in AGES])


def lines(svg, colour):
    return [p for _, stroke, p, curved, _ in paths(svg) if stroke == colour and len(p) == len(AGES) and not curved]


code, svg, said = draw(table(), "survival", style="by=trace")
check("drawn", code == 0 and not said, said)
words = words_of(svg)
check("a panel for each criterion, a line for each trace", all(w in words for w in ("top-64", "mass 0.90", *COLOUR)), words)
for name, at in (("h2o 64", [0]), ("trimkv 64", [0, 2]), ("trimkv 128", [1, 3])):
    found = sorted(lines(svg, COLOUR[name]), key=lambda p: p[0][0])
    check(f"lines of the colour of {name}", len(found) == (2 if name == "h2o 64" else 4), len(found))
for p in lines(svg, COLOUR["h2o 64"]):
    check("ages", affine([math.log(n) for n in AGES], [x for x, _ in p]), p)
    check("shares", affine([n ** -.1 for n in AGES], [y for _, y in p]), p)
usual = draw(table(), "survival")
check("without the key a panel for each trace", usual[0] == 0 and "top-64" in words_of(usual[1]) and usual[1] != svg, usual[2])

# Half-lives: after the names of a single panel, at the first and the last ring of several panels.
HALF = {"h2o 64": 77, "trimkv 64": 5, "trimkv 128": 22}
lived = tsv("survival", COLUMNS, [(t, "all", -1, -1, c, n, 0, LEVEL[t] ** (1 + i) * n ** -.1, "nan", "nan", HALF[t]) for t in HALF
                                  for i, c in enumerate(("top64", "mass.90")) for n in AGES])
svg = draw(lived.replace("mass.90", "top64"), "survival", style="by=trace")[1]
at = {t[0]: t[2] for t in texts(svg)}
check("half-lives after the names", all(abs(at.get(str(v), -9) - at[name]) < .5 for name, v in HALF.items()), at)
check("the key has the order of the half-lives", sorted(HALF, key=at.get) == sorted(HALF, key=HALF.get, reverse=True), at)
svg = draw(lived, "survival", style="by=trace")[1]
numbers = [t[0] for t in texts(svg) if t[0] in ("77", "5", "22")]
check("half-lives of several panels: the first and the last", sorted(numbers) == ["5", "5", "77", "77"], numbers)

# The axis label follows the criteria: cached entries are not selected.
for figure, axis in (("survival", "fraction of tokens still {}"), ("hazard", "hazard of {}")):
    for criteria, words in ((("top64",), ("in use", "the last selection")), (("held",), ("cached", "the eviction")),
                            (("top64", "held"), ("in use or cached", "last selection or eviction"))):
        rows = [("all", -1, -1, c, n, 2 * n, .1, .05, .2, 0, .9 / n, "nan", "nan", "nan") for c in criteria for n in AGES]
        columns = ["head", "layer", "index", "criterion", "low", "high", "hazard", "hazard_low", "hazard_high", "fraction", "survival", "survival_low",
                   "survival_high", "half_life"]
        text = tsv("hazard", columns, rows) if figure == "hazard" else tsv("survival", ["horizon" if c == "low" else c for c in columns], rows)
        said = words_of(draw(text, figure)[1])
        check(f"{figure} of {criteria}: its axis", axis.format(words[figure == "hazard"]) in said, said)
        check(f"{figure} of {criteria}: selections are named where there are some", ("selected" in said) == ("top64" in criteria) or figure == "hazard", said)

code, marked, said = draw(table(criteria=("top64",)), "survival", style="by=trace,mark=64")
check("marked", code == 0 and "vertical dashed line: age 64" in words_of(marked), said)
upright = [p for _, stroke, p, _, _ in paths(marked) if stroke == (31, 31, 31) and len(p) == 2 and p[0][0] == p[1][0] and abs(p[0][1] - p[1][1]) > 20]
place = lines(marked, COLOUR["h2o 64"])[0][AGES.index(64)][0]
check("the mark is at its age", any(abs(p[0][0] - place) < .03 for p in upright), (upright, place))

# Without the key, the figure uses classes if the table has them, else criteria.
CLASSES = ("all", "word", "number")
classed = tsv("survival", COLUMNS[1:5] + ["class"] + COLUMNS[5:], [("all", -1, -1, c, k, n, 0, .9 - .1 * i, "nan", "nan", "nan") for c in ("top64", "mass.90")
                                                                   for i, k in enumerate(CLASSES) for n in AGES])
code, svg, said = draw(classed, "survival")
words = words_of(svg)
check("classes are drawn, a panel for each criterion", code == 0 and all(w in words for w in (*CLASSES, "top-64", "mass 0.90")), words, said)
check("as with by=class", svg == draw(classed, "survival", style="by=class")[1])
check("one criterion has no heading", "top-64;" in words_of(draw(classed, "survival", style="criterion=top64")[1]))
words = words_of(draw(classed, "survival", style="by=criterion")[1])
check("by=criterion draws the rows of all classes", "top-64" in words and "number" not in words, words)
words = words_of(draw(classed, "survival", style="heads=thin")[1])
check("heads behind are of criteria", "number" not in words and "grey: single heads" in words, words)
alone = tsv("survival", COLUMNS[1:], [("all", -1, -1, "top64", n, 0, .5, "nan", "nan", "nan") for n in AGES])
code, _, said = draw(alone, "survival", style="by=trace")
check("one trace has no lines to compare", code == 2 and "one trace" in said, said)
finish()
