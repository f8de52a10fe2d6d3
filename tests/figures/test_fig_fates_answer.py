"""Check the figure fates-answer on a synthetic table.  usage: test_fig_fates_answer.py DRAW_TABLE"""
import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
from test_panels import bars, draw, paths, texts, tsv, words_of

COLUMNS = ["trace", "step", "token", "text", "joined", "held", "needed", "needle", "answer", "expected", "right"]
ORANGE, GREY, INK = (230, 159, 0), (106, 106, 106), (31, 31, 31)
HIGH = 12  # mm of a row
HELD = [1, .5, .25, .75, 0, 1, .125, .5]
FIRST = 8  # step


def rows(trace, held=HELD, right=1, answer="It is 012.", words=None):
    """Return rows of two steps; the last token of each step belongs to the answer."""
    n = len(held)
    return [(trace, n + t, i, (words or {}).get(i, f" w{i}"), f" w{i}", (held + [1])[i] if not t else .9, 0, int(2 <= i < 4), answer, "012", right)
            for t in range(2) for i in range(n + 1)]


def drawn(*runs, **more):
    return draw(tsv("fates", COLUMNS, [r for run in runs for r in run], heads=8, model="Tiny"), "fates-answer", **more)


def heights(svg, colour):
    """Return (x, w, fraction) of the bars of a colour, from the left."""
    return sorted((x, w, h / HIGH) for x, y, w, h in bars(svg, colour))


def near(a, b):
    return len(a) == len(b) and all(abs(x - y) < .005 for x, y in zip(a, b))


code, svg, said = drawn(rows("h2o 4"))
found = heights(svg, ORANGE)
check("drawn", code == 0 and not said, said)
check("a bar as high as the fraction; none for 0", near([h for *_, h in found], [v for v in HELD if v]), found)
pitch = found[1][0] - found[0][0]
check("a bar stands at its token", near([(x - found[0][0]) / pitch for x, *_ in found], [i for i, v in enumerate(HELD) if v]), found)
words = words_of(svg)
check("texts", all(w in words for w in ("1 prompt, 8 tokens; Tiny", "fraction of 8 heads", "needle: \u201cw2 w3\u201d", "h2o 4", "It is 012.")), words)
check("correct", "correct; needle cached: 50 %" in words and "wrong" not in words, words)

# 600 tokens are drawn in bins, which do not cross the ends of the needle
many = [(i * 37 % 101) / 101 for i in range(600)]
code, svg, said = drawn(rows("h2o 4", many))
each = int(words_of(svg).split("means of ")[1].split()[0])
cuts, at = [], 0
while at < 600:
    end = min([at + each, 600] + [c for c in (2, 4) if c > at])
    cuts.append((at, end))
    at = end
want = [sum(many[a:b]) / (b - a) for a, b in cuts]
found = heights(svg, ORANGE)
check("bins of a long text", each > 1 and near([h for *_, h in found], want), each, len(found), len(want))

# marks differ in shape: a filled disc, and a frame
code, svg, said = drawn(rows("full"), rows("h2o 4", right=0, answer="It is 7."))
discs = [p for fill, _, p, curve, _ in paths(svg) if curve and fill]
check("two runs", code == 0 and len(heights(svg, GREY)) == 7 and len(heights(svg, ORANGE)) == 7, said)
check("one disc for the correct answer", len(discs) == 1, len(discs))
at = {w: [y for t, _, y, _ in texts(svg) if t.startswith(w)] for w in ("correct", "wrong", "It is 7.", "It is 012.")}
check("correct above wrong", all(len(v) == 1 for v in at.values()) and at["correct"] < at["It is 012."] < at["wrong"] < at["It is 7."], at)
code, svg, said = drawn([r[:7] + (0,) + r[8:] for r in rows("full", right=-1)])
check("no known answer: no mark", code == 0 and "correct" not in words_of(svg) and "wrong" not in words_of(svg) and "needle" not in words_of(svg)
      and not [1 for fill, _, _, curve, _ in paths(svg) if curve and fill], words_of(svg))

# a narrow page: an answer that does not fit begins where the answers differ; else it is whole
same = "The old number of the very foggy and remote castle by the sea is "
code, svg, said = drawn(rows("h2o 4", answer=same + "012."), rows("snapkv 4", right=0, answer=same + "7."), size="94x60")
words = words_of(svg)
check("long answers: the part that differs", code == 0 and "\u2026 012." in words and "\u2026 7." in words and "The old" not in words, said, words)
code, svg, said = drawn(rows("h2o 4", answer="It is 012."), rows("snapkv 4", right=0, answer="It is 7."), size="94x60")
check("short answers: whole", "It is 012." in words_of(svg) and "It is 7." in words_of(svg), words_of(svg))
code, svg, said = drawn(rows("expected-attention 50%"), size="94x60")
check("a long name is broken at its hyphen", "expected-" in words_of(svg) and "attention" in words_of(svg), words_of(svg))

# --tokens and --from: a part of the prompt, at another step
def part(tokens, step, **meta):
    return words_of(draw(tsv("fates", COLUMNS, [r[:1] + (step,) + r[2:] for r in rows("h2o 4") if r[1] == 8 and r[2] in tokens], **meta), "fates-answer")[1])


words = part(range(3, 6), 8, prompt_tokens=5, question_tokens=3)
check("a part of the prompt", "tokens 3 to 5 of a prompt of 8 tokens" in words and "when the answer begins" in words and "correct" in words, words)
check("says nothing about the needle, of which it can lack a part", "needle cached" not in words and "1 prompt" not in words, words)
words = part(range(8), 30, prompt_tokens=6)
check("the answer is no part of the prompt", "1 prompt, 6 tokens" in words and "the token at step 30" in words and "answer begins" not in words, words)
words = part(range(8), 5, prompt_tokens=6)
check("a step before the answer", "tokens 0 to 4 of a prompt of 6 tokens" in words and "the token at step 5" in words, words)
words = part(range(4, 8), 8)
check("a part of a prompt of unknown length", "tokens 4 to 7 of a prompt of 8 tokens" in words, words)
code, _, said = draw(tsv("fates", COLUMNS, rows("a") + rows("b"), differ="method prompt_tokens"), "fates-answer")
check("a part of unlike prompts", code == 2 and "different prompts" in said, code, said)
words = words_of(drawn([r[:7] + (0,) + r[8:] for r in rows("full")])[1])
check("no needle among the tokens", "correct" in words and "nan" not in words, words)

# errors
for name, other in (("a different text", rows("b", words={3: " x"})), ("a different length", rows("b", HELD[:-1]))):
    code, _, said = drawn(rows("a"), other)
    check(name, code == 2 and "'a' and 'b' have different prompts" in said, code, said)
code, _, said = drawn(rows("a"), rows("b", words={8: " x"}))
check("answers may differ", code == 0, said)
code, _, said = drawn(*[rows(str(i)) for i in range(17)])
check("too many traces", code == 2 and "16" in said, said)
code, _, said = drawn([r for r in rows("a") if r[2] == len(HELD)])
check("no token of the prompt", code == 2 and "--from" in said, said)
code, _, said = draw(tsv("fates", COLUMNS[:7], [r[:7] for r in rows("a")]), "fates-answer")
check("a table without the answer", code == 2 and "needle" in said, said)
code, _, said = drawn(rows("a"), size="60x60")
check("no room", code == 2 and "--size" in said, said)
code, svg, said = drawn()
check("an empty table", code == 0 and "no data" in words_of(svg), code, said)
finish()
