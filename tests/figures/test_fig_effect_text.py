"""The figure effect-text: a token's colour is its effect.  usage: test_fig_effect_text.py DRAW_TABLE"""
import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
from test_panels import draw, paths, tsv, words_of

COLUMNS, WORDS = ["entries", "token", "count", "text", "kl", "dnll"], ("one", " two", " three", " four")


def table(kl=(0, 1, 2, 4), dnll=(0, 1, -1, 0), token=range(4), count=1):
    return tsv("effect-entries", COLUMNS, [(str(i), i, count, w, a, b) for i, w, a, b in zip(token, WORDS, kl, dnll)])


def fills(svg):
    """Return the backgrounds of the words, from the left."""
    return [fill for _, fill in sorted((min(x for x, _ in p), fill) for fill, _, p, curved, _ in paths(svg)
                                       if fill and not curved and len(p) >= 4 and min(y for _, y in p) > 9)]


code, svg, said = draw(table(), "effect-text", size="90x30")
check("drawn", code == 0 and not said, said)
check("the text", all(w.strip() in words_of(svg) for w in WORDS) and "KL to the full cache" in words_of(svg), words_of(svg))
light = [sum(f) for f in fills(svg)]
check("the more a token counts the darker", len(light) >= 3 and light == sorted(light, reverse=True) and len(set(light)) == len(light), light)
code, svg, said = draw(table(), "effect-text", style="by=dnll", size="90x30")
blue, red = [f for f in fills(svg) if f[2] > f[0] + 30], [f for f in fills(svg) if f[0] > f[2] + 30]
check("what helps is blue, what harms is red", code == 0 and len(blue) == len(red) == 1, fills(svg))
lined = [p for fill, _, p, curved, _ in paths(svg) if fill and not curved and min(y for _, y in p) > 9 and max(y for _, y in p) - min(y for _, y in p) < .5]
under = [x for p in lined for x, _ in p]
cell = next([x for x, _ in p] for fill, _, p, curved, _ in paths(svg) if fill == red[0] and min(y for _, y in p) > 9)
check("what harms, and nothing else, has a line below", under and abs(min(under) - min(cell)) < .1 and abs(max(under) - max(cell)) < .1, under, cell)
code, svg, said = draw(table(dnll=(0, 1, -.25, 0)), "effect-text", style="by=dnll", size="90x30", vmax=.5)
blue, red = [f for f in fills(svg) if f[2] > f[0] + 30], [f for f in fills(svg) if f[0] > f[2] + 30]
check("with --vmax, 0 stays in the middle", len(blue) == len(red) == 1 and "\u22120.5" in words_of(svg) and "\u22650.5" in words_of(svg), fills(svg), words_of(svg))
svg = draw(tsv("effect-entries", COLUMNS, [(str(i), i, 1, w, i, 0) for i, w in enumerate(WORDS)], model="Tiny", score_tokens=7), "effect-text", size="120x30")[1]
check("the model and the steps", "Tiny; mean of 7 steps of the answer" in words_of(svg), words_of(svg))
for what, text in (("tokens with gaps", table(token=(0, 1, 3, 4))), ("sets of tokens", table(count=2))):
    code, _, said = draw(text, "effect-text")
    check(what + " are refused", code == 2 and "--each" in said, said)
finish()
