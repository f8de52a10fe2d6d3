"""Check the figure tokens-top on a synthetic table.  usage: test_fig_tokens_top.py DRAW_TABLE"""
import math
import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
from test_panels import affine, draw, paths, texts, tsv, words_of

COLUMNS = ["joined", "mean_beta", "mean_retention", "kept", "mean_residency", "nll"]
BETA = [(" salt", .9), (" the", .2), (" salt", .7), (" camel", .6), (".", 1), (" of", .1), (" the", .3)]
MEAN = {"salt ×2": .8, ".": 1, "camel": .6, "the ×2": .25, "of": .1}


def rows(beta=True):
    return [(w, v if beta else "nan", .5, 1 - v, .5, 1) for w, v in BETA]


def discs(svg, colour):
    """Return the centres of the discs of a colour."""
    return [[(min(v) + max(v)) / 2 for v in zip(*p)] for fill, _, p, curved, _ in paths(svg) if curved and fill == colour]


code, svg, said = draw(tsv("tokens", COLUMNS, rows()), "tokens-top", style="top=2")
order = [t[0] for t in sorted(texts(svg), key=lambda t: (t[1][0] > 60, t[2])) if t[0] in MEAN]
check("drawn", code == 0 and not said, said)
check("the highest, then the lowest", order == [".", "salt ×2", "the ×2", "of"], order)
left, right = discs(svg, (0, 114, 178)), discs(svg, (213, 94, 0))
half = [math.log10(math.log(.5) / math.log(MEAN[w])) for w in ("salt ×2", "the ×2", "of")]
dots = [x for x, _ in left[1:]] + [x - 60 for x, _ in right]
check("dots stand at the half-lives of the means, on a logarithmic axis", len(left) == 2 and len(right) == 2 and affine(half, dots), (left, right))
scale = (dots[0] - dots[1]) / (half[0] - half[1])
end = dots[0] + scale * (3 - half[0])
check("a word that does not decay stands at the end of the axis, 1,000 steps", abs(left[0][0] - end) < .05, left, end)
PALE = tuple(round(255 - .5 * (255 - v)) for v in (0, 114, 178))
lines = [p for _, stroke, p, _, _ in paths(svg) if stroke and max(abs(a - b) for a, b in zip(stroke, PALE)) < 2]
ends = [dots[0] + scale * (math.log10(math.log(.5) / math.log(b)) - half[0]) for b in (.7, .9)]
check("a line joins the lowest and the highest value of a word that occurs twice", len(lines) == 1 and all(abs(a[0] - b) < .05 for a, b in zip(lines[0], ends)), lines, ends)
check("the note counts tokens and words", "7 tokens, 5 different ones" in words_of(svg), words_of(svg))
svg = draw(tsv("tokens", COLUMNS, rows()), "tokens-top", style="least=2")[1]
check("least: only words that occur so often", "salt ×2" in words_of(svg) and "the ×2" in words_of(svg) and "camel" not in words_of(svg), words_of(svg))
code, _, said = draw(tsv("tokens", COLUMNS, rows()), "tokens-top", style="least=3")
check("least: no word occurs so often", code == 2 and "3 times" in said, said)
svg = draw(tsv("tokens", COLUMNS, rows()), "tokens-top", style="by=kept,top=2")[1]
kept = [x for x, _ in discs(svg, (0, 114, 178))] + [x - 60 for x, _ in discs(svg, (213, 94, 0))]
ticks = {t[0]: sum(t[1]) / len(t[1]) for t in texts(svg) if t[0] in ("0", "1") and max(t[1]) < 60}
check("the axis of fractions goes from 0 to 1", affine([.9, .75, .2, 0], kept) and abs(ticks["0"] - kept[3]) < 1.6 and abs(ticks["1"] - kept[3] - (kept[0] - kept[3]) / .9) < 1.6, kept, ticks)
words = words_of(draw(tsv("tokens", COLUMNS, [("  ", .5, .5, .5, .5, 1), ("↵ ", .1, .5, .5, .5, 1)]), "tokens-top")[1])
check("spaces are dots", "··" in words and "↵·" in words, words)
code, svg, said = draw(tsv("tokens", COLUMNS, rows(False)), "tokens-top", style="top=1")
check("without gates: what is kept", code == 0 and "of" in words_of(svg) and "fraction of heads" in words_of(svg), words_of(svg))
code, _, said = draw(tsv("tokens", COLUMNS, rows(False)), "tokens-top", style="by=beta")
check("no number", code == 2 and "mean_beta" in said, said)
code, svg, said = draw(tsv("tokens", COLUMNS, rows()), "tokens-top", style="top=3")
check("no word on both sides", code == 0 and len(discs(svg, (0, 114, 178))) == 3, said)
code, svg, said = draw(tsv("tokens", COLUMNS, []), "tokens-top")
check("an empty table", code == 0 and "no data" in words_of(svg), code, said)
finish()
