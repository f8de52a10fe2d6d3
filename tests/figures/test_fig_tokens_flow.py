"""Check the figure tokens-flow on a synthetic table.  usage: test_fig_tokens_flow.py DRAW_TABLE"""
import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
from test_panels import draw, paths, texts, tsv, words_of

COLUMNS = ["trace", "class", "kept"]
KEPT = {"word": [1, .5, 0, .5], "number": [1, 1], "punctuation": [0, 0, .4]}
COLOUR = {"word": (0, 114, 178), "number": (204, 121, 167), "punctuation": (213, 94, 0)}


def rows(traces=1):
    return [(k + 1, c, v) for k in range(traces) for c, values in KEPT.items() for v in values]


def tint(colour, a):
    return tuple(round(255 - a * (255 - v)) for v in colour)


def heights(svg, colour):
    """Return the heights of the left ends of the shapes in the colour."""
    return [p[-1][1] - p[0][1] if len(p) > 4 else max(y for _, y in p) - min(y for _, y in p)
            for fill, _, p, _, _ in paths(svg) if fill and all(abs(a - b) <= 1 for a, b in zip(fill, colour))]


code, svg, said = draw(tsv("tokens", COLUMNS, rows(), trace_1="h2o"), "tokens-flow")
check("drawn", code == 0 and not said, said)
for c, values in KEPT.items():
    whole, kept, gone = (heights(svg, x) for x in (COLOUR[c], tint(COLOUR[c], .75), tint(COLOUR[c], .22)))
    unit = whole[0] / len(values)
    check(c + ": as high as it is frequent", abs(unit - heights(svg, COLOUR["word"])[0] / 4) < .01, whole)
    check(c + ": its flows", abs(kept[0] / unit - sum(values)) < .02 and abs(gone[0] / unit - len(values) + sum(values)) < .02, (kept, gone))
share = 100 * sum(map(sum, KEPT.values())) / 9
check("shares", f"kept {share:.0f} %" in words_of(svg) and f"gone {100 - share:.0f} %" in words_of(svg) and "word 4" in words_of(svg), words_of(svg))
many = ["word"] * 60 + ["function"] * 40 + ["punctuation"] * 2 + ["number", "symbol", "latex", "operator", "special", "role", "whitespace"]
code, svg, said = draw(tsv("tokens", COLUMNS, [(1, c, .5) for c in many]), "tokens-flow", size="61x45")
bars = {fill: sum(y for _, y in p) / len(p) for fill, _, p, _, _ in paths(svg) if fill and abs(min(x for x, _ in p) - 27) < .01 and max(x for x, _ in p) < 29.3}
leaders = {stroke: p for _, stroke, p, _, _ in paths(svg) if stroke and len(p) == 4 and p[0][1] == p[1][1] and p[2][1] == p[3][1]}
check("a line in its colour leads to each bar", code == 0 and len(leaders) == 10 and set(leaders) <= set(bars)
      and all(abs(p[3][1] - bars[c]) < .01 for c, p in leaders.items()), said, leaders, bars)
at = {t[0].split()[0]: t[2] for t in texts(svg) if t[0].split()[0] in COLOUR}
check("from its name", all(abs(leaders[COLOUR[c]][0][1] - y) < 1.5 for c, y in at.items()) and len(at) == 3, at, leaders)
code, svg, said = draw(tsv("tokens", COLUMNS, rows(3)), "tokens-flow")
check("a panel for each trace", code == 0 and len(heights(svg, COLOUR["number"])) == 3, said)
code, _, said = draw(tsv("tokens", COLUMNS, rows(5)), "tokens-flow")
check("too many traces", code == 2 and "at most 4" in said, said)
code, svg, said = draw(tsv("tokens", COLUMNS, []), "tokens-flow")
check("an empty table", code == 0 and "no data" in words_of(svg), code, said)
finish()
