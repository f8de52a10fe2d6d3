"""Check the figure life on a synthetic table.  usage: test_fig_life.py DRAW_TABLE"""
import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
from test_panels import affine, draw, paths, tsv, words_of

COLUMNS = ["head", "token", "text", "step", "attention", "seen", "retention"]
ATTENTION = [.1, .01, .001, .01, .1, "nan", "nan", "nan", "nan", "nan"]
BLUE, ORANGE, INK, GONE = (0, 114, 178), (213, 94, 0), (31, 31, 31), (230, 230, 235)


def rows(lives=1, gates=True):
    return [(f"L{k}H0", 10, " salt", 10 + i, a, 0 if a == "nan" else 1, .8 ** i if gates else "nan") for k in range(lives)
            for i, a in enumerate(ATTENTION)]


def line(svg, colour):
    return [p for fill, stroke, p, curved, _ in paths(svg) if stroke == colour and not curved and len(p) > 3]


def width(svg, colour):
    return [max(x for x, _ in p) - min(x for x, _ in p) for fill, _, p, _, _ in paths(svg) if fill == colour]


code, svg, said = draw(tsv("received", COLUMNS, rows()), "life")
check("drawn", code == 0 and not said, said)
check("heading", "salt” 10, evicted at 15" in words_of(svg) and "query step t" in words_of(svg), words_of(svg))
seen = line(svg, BLUE)
check("attention on a logarithmic axis, until it left", len(seen) == 1 and len(seen[0]) == 5 and affine([-1, -2, -3, -2, -1], [y for _, y in seen[0]]), seen)
gate = line(svg, ORANGE)
check("the gate", len(gate) == 1 and affine([.8 ** i for i in range(10)], [y for _, y in gate[0]]), gate)
check("one axis of time", affine(range(5), [x for x, _ in seen[0]]) and abs(seen[0][4][0] - gate[0][4][0]) < .01, (seen, gate))
held, life = max(width(svg, INK)), max(width(svg, GONE))
check("held for five of nine steps", abs(held / life - 5 / 9) < .01, (held, life))
code, svg, said = draw(tsv("received", COLUMNS, rows(gates=False)), "life")
check("no gates", code == 0 and not line(svg, ORANGE) and "β" not in words_of(svg), said)
code, svg, said = draw(tsv("received", COLUMNS, rows(14)), "life")
check("the first twelve", code == 0 and len(line(svg, BLUE)) == 12 and "2 more not shown" in words_of(svg), said)
code, svg, said = draw(tsv("received", COLUMNS, []), "life")
check("an empty table", code == 0 and "no data" in words_of(svg), code, said)
finish()
