"""Check the figure tokens-flow on a synthetic table.  usage: test_fig_tokens_flow.py DRAW_TABLE"""
import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
from test_panels import affine, draw, paths, texts, tsv, words_of

COLUMNS = ["trace", "class", "kept"]
KEPT = {"word": [1, .5, 0, .5], "punctuation": [0, 0, .4], "number": [1, 1]}
ORANGE = (230, 159, 0)


def rows(traces=1):
    return [(k + 1, c, v / (k + 1)) for k in range(traces) for c, values in KEPT.items() for v in values]


def centres(svg, colour, corners):
    """Return the centres of signs in a colour below the key: a disc has curves, a square 4 corners."""
    found = [([x for x, _ in p], [y for _, y in p]) for fill, _, p, curved, _ in paths(svg)
             if fill == colour and min(y for _, y in p) > 6 and (curved if corners == 0 else not curved)]
    return sorted(((min(x) + max(x)) / 2, (min(y) + max(y)) / 2) for x, y in found)


code, svg, said = draw(tsv("tokens", COLUMNS, rows(), trace_1="h2o"), "tokens-flow")
check("drawn", code == 0 and not said, said)
mean = {c: sum(v) / len(v) for c, v in KEPT.items()}
dots = sorted(centres(svg, ORANGE, 0), key=lambda p: p[1])
names = {t[0].split()[0]: t[2] for t in texts(svg) if t[0].split()[0] in KEPT}
check("a dot for each class, the most frequent first", len(dots) == 3 and list(sorted(names, key=names.get)) == list(KEPT), dots, names)
check("at the kept fraction", affine(list(mean.values()), [x for x, _ in dots]), dots)
check("beside the name", all(abs(y - names[c]) < 1 for c, (_, y) in zip(KEPT, dots)), dots, names)
check("numbers of tokens", all(w in words_of(svg) for w in ("word (4)", "punctuation (3)", "number (2)")), words_of(svg))
whole = [p for _, stroke, p, _, _ in paths(svg) if stroke == ORANGE and len(p) == 2 and p[0][0] == p[1][0]]
all_kept = sum(map(sum, KEPT.values())) / 9
check("a line at the fraction of all", len(whole) == 1 and affine([*mean.values(), all_kept], [x for x, _ in dots] + [whole[0][0][0]]), whole)
code, svg, said = draw(tsv("tokens", COLUMNS, rows(3), trace_1="h2o", trace_2="trimkv", trace_3="snapkv"), "tokens-flow")
blue = sorted(centres(svg, (0, 114, 178), 0), key=lambda p: p[1])
orange = sorted(centres(svg, ORANGE, 0), key=lambda p: p[1])
check("a sign for each trace and class", code == 0 and len(orange) == len(blue) == 3, said, orange, blue)
check("of the third trace", affine([*mean.values()] + [v / 3 for v in mean.values()], [x for x, _ in orange + blue]), orange, blue)
check("signs of a row do not hide each other", all(b[1] - a[1] > .5 for a, b in zip(orange, blue)), orange, blue)
check("the key names the traces", all(w in words_of(svg) for w in ("h2o", "trimkv", "snapkv")), words_of(svg))
code, _, said = draw(tsv("tokens", COLUMNS, rows(17)), "tokens-flow")
check("too many traces", code == 2 and "at most 16" in said, said)
code, svg, said = draw(tsv("tokens", COLUMNS, []), "tokens-flow")
check("an empty table", code == 0 and "no data" in words_of(svg), code, said)
finish()
