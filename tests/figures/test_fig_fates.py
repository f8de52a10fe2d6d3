"""Check the figure fates on a synthetic table.  usage: test_fig_fates.py DRAW_TABLE"""
import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
from test_panels import draw, paths, tsv, words_of

COLUMNS = ["trace", "step", "token", "text", "joined", "held", "needed"]
ORANGE, BLACK = (230, 159, 0), (25, 25, 30)
HELD = {"salt": [1, .5, .5, 0], "market": [1, 1, 1, 1], "born": ["nan", "nan", 1, .25]}
NEEDED = {"salt": [0, 0, .25, .5], "market": [0, 0, 0, 0], "born": ["nan", "nan", 0, 0]}


def rows(traces, held=HELD, needed=NEEDED):
    return [(trace, 10 + t, 3 + i, " " + w, " " + w, held[w][t], needed[w][t])
            for trace in traces for t in range(4) for i, w in enumerate(held)]


def area(p):
    return abs(sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in zip(p, p[1:] + p[:1]))) / 2


def shapes(svg, colour):
    """Return outlines in the colour below the key: (area, left, right, top, bottom), from the left."""
    found = []
    for fill, _, p, _, _ in paths(svg):
        if fill and all(abs(a - b) <= 1 for a, b in zip(fill, colour)) and min(y for _, y in p) > 9:
            x, y = [v for v, _ in p], [v for _, v in p]
            found.append((area(p), min(x), max(x), min(y), max(y)))
    return sorted(found, key=lambda s: s[1])


def near(a, b, slack=.02):
    return abs(a - b) <= slack * max(abs(a), abs(b), .5)


code, svg, said = draw(tsv("fates", COLUMNS, rows(["h2o 64"]), needed=.004), "fates", size="88x30")
check("drawn", code == 0 and not said, said)
check("texts", all(w in words_of(svg) for w in ("h2o 64", "time runs down, from step 10 to 13", "mean attention of later queries \u2265 0.4 %")),
      words_of(svg))
held, needed = shapes(svg, ORANGE), shapes(svg, BLACK)
check("an outline for each token", len(held) == 3, held)
salt, market, born = held
high = market[4] - market[3]
check("as wide as the share", near(salt[0], (salt[2] - salt[1]) * high * 2 / 4) and near(market[0], (market[2] - market[1]) * high), held)
check("time runs down", near(salt[3], market[3]) and near(salt[4], market[4]), held)
check("born later", near(born[4] - born[3], high / 2) and near(born[0], (born[2] - born[1]) * high * 1.25 / 4), born)
cut = salt[1] + .5 * (salt[2] - salt[1])  # half of the heads cache it at the third step, and 0 at the last
outline = next(p for fill, _, p, _, _ in paths(svg) if fill and all(abs(a - b) <= 1 for a, b in zip(fill, BLACK)) and min(y for _, y in p) > 9)
third = {round(x, 2) for x, y in outline if abs(y - (salt[3] + 3 * high / 4)) < .05}
check("needed begins where cached ends", len(needed) == 1 and {round(cut, 2), round(salt[1] + .75 * (salt[2] - salt[1]), 2)} <= third, needed, third, cut)
check("as wide as the share needed", near(sum(m[0] for m in needed), (salt[2] - salt[1]) * high * .75 / 4, .1), needed)
code, svg, said = draw(tsv("fates", COLUMNS, rows(["h2o 64", "trimkv 64"])), "fates", size="88x40")
below = shapes(svg, (213, 94, 0))
check("a ribbon for each trace", code == 0 and len(below) == 3 and below[0][3] > shapes(svg, ORANGE)[0][4], said or below)
apart = [r[:3] + (" pepper", " pepper") + r[5:] if r[0] == "b" and r[2] == 4 else r for r in rows(["a", "b"])]
code, svg, said = draw(tsv("fates", COLUMNS, apart), "fates", size="88x40", style="fold=no")
check("another text has no life below this one", code == 0 and len([1 for f, *_ in paths(svg) if f]) < len([1 for f, *_ in paths(
    draw(tsv("fates", COLUMNS, rows(["a", "b"])), "fates", size="88x40", style="fold=no")[1]) if f]), said)
code, svg, said = draw(tsv("fates", COLUMNS, rows(["h2o"])), "fates", size="88x30", style="ribbon=40")
check("no room", code == 2 and "--size" in said, said)


def long_text(lines, held, needle=None):
    """Return a table of lines of three words, each a paragraph. held: trace -> fraction in a line."""
    out = []
    for trace in held:
        for step in (1000, 1001):
            words = [(n, w) for n, line in enumerate(lines) for w in line]
            out += [(trace, step, i, w, w, held[trace](n), 0) for i, (n, w) in enumerate(words)]
    return tsv("fates", COLUMNS, out)


lines = [["<|im_start|>", "us", "er", "\u21b5"], ["\u21b5"]] + [[f"a{n}", f" b{n}", f" c{n}", "\u21b5"] for n in range(60)]
differ = {"h2o 64": lambda n: .9 if 32 <= n < 35 else .5, "trimkv 64": lambda n: .1 if 32 <= n < 35 else .5}
code, svg, said = draw(long_text(lines, differ), "fates", size="88x110")
words = words_of(svg)
check("of a long text the passage where the runs differ most", code == 0 and "a30" in words and "b32" in words and "a29" not in words and "a10" not in words, said, words)
check("the note names it", "tokens 125 to 1" in words and "of 245, where the runs differ most" in words, words)
check("the chat template and blank lines are folded", "im_start" not in words and "not shown: chat template, system text and blank lines (5 tokens)" in words, words)
for what, held, style in (("not of a passage by order", differ, "passage=first"), ("nor of runs that do not differ", {"a": lambda n: .5, "b": lambda n: .5}, "")):
    words = words_of(draw(long_text(lines, held), "fates", size="88x110", style=style)[1])
    check(what, "tokens 5 to " in words and "differ most" not in words, words)
needle = long_text(lines, differ).split("\n")
needle = "\n".join([needle[0], needle[1] + "\tneedle"] + [f"{x}\t{int(x.split(chr(9))[3] in (' b50', ' c50'))}" for x in needle[2:] if x] + [""])
words = words_of(draw(needle, "fates", size="88x110")[1])
check("nor of one chosen for its needle", "--tokens A:B" in words and "differ most" not in words, words)
for where in ("in the metadata", "in a column"):
    cut = long_text(lines, differ).split("\n")
    cut = [cut[0], "# T: 999"] + cut[1:] if where == "in the metadata" else [cut[0], cut[1] + "\tT"] + [x + "\t999" for x in cut[2:] if x] + [""]
    words = words_of(draw("\n".join(cut), "fates", size="88x110")[1])
    check(f"tokens of the text, {where}", "of 999, where" in words, words)
words = words_of(draw(long_text(lines, differ), "fates", size="88x110", style="passage=first,fold=no")[1])
check("or the beginning, with all lines", "im_start" in words and "differ most" not in words and "not shown" not in words and "a10" not in words, words)
system = [["<|im_start|>", "system", "\u21b5"], ["You", " help", "\u21b5"], ["<|im_start|>", "user", "\u21b5"], ["How", " so", "?", "\u21b5"]]
said = words_of(draw(long_text(system, {"h2o 64": lambda n: .5}), "fates", size="88x60")[1])
check("the system text of the template is folded", "How so" in said and "You" not in said and "(9 tokens)" in said, said)
said = words_of(draw(long_text(system, {"h2o 64": lambda n: .5}), "fates", size="88x80", style="fold=no")[1])
check("or drawn", "You help" in said and "not shown" not in said, said)


def unlike(token, role, style="", words=None, traces=("a", "b")):
    """Draw runs with texts that differ at a token. role: role of the tokens of each run; None: no column."""
    table = [r[:3] + ((" pepper",) * 2 if r[0] == "b" and r[2] == token else (words or {}).get(r[2], r[3:5])) + r[5:] for r in rows(traces)]
    columns = COLUMNS + ["role"] * (role is not None)
    return draw(tsv("fates", columns, [r + (role[r[0]][r[2] - 3],) if role else r for r in table]), "fates", size="120x60", style=style)


prompt, answer = ["prompt"] * 3, ["prompt", "answer", "answer"]
for token, a, b, note in ((4, answer, answer, "not shown: answers, which differ from token 4 on"),
                          (5, answer, answer, "not shown: answers, from token 4 on; they differ from token 5 on"),
                          (4, prompt, prompt, "not shown: the rest, because the prompts differ from token 4 on"),
                          (4, answer, prompt, "not shown: the rest, because the prompts differ from token 4 on"),
                          (4, prompt, answer, "not shown: the rest, because the prompts differ from token 4 on")):
    code, svg, said = unlike(token, {"a": a, "b": b})
    said = said or words_of(svg)
    check(f"text after a difference is not drawn: {note}", code == 0 and "salt" in said and "market" not in said and note in said, said)
said = words_of(unlike(4, None)[1])
check("of a table without roles", "market" not in said and "the texts differ from token 4 on" in said, said)
said = words_of(unlike(4, {"a": answer, "b": answer}, "fold=no")[1])
check("or the first answer", "market" in said and "not shown" not in said and "the answers differ from token 4 on" in said, said)
for role, word in ((prompt, "prompts"), (["answer"] * 3, "answers")):
    code, svg, said = unlike(3, {"a": role, "b": role})
    check(f"{word} with nothing in common", code == 2 and not svg and f"the {word} of 'a' and 'b' differ from token 3 on" in said and "--force" in said, code, said)
code, svg, said = unlike(4, {"a": prompt, "b": prompt}, words={3: ("<|im_start|>",) * 2})
check("nothing in common but the template", code == 2 and "differ from token 4 on" in said, code, said)
later = [r if r[0] == "a" else (r[0], r[1] + 20) + r[2:] for r in rows(["a", "b"])]
said = words_of(draw(tsv("fates", COLUMNS, later), "fates", size="120x60")[1])
check("the steps of all runs", "over each run's own steps (10 to 33 in all)" in said, said)
said = words_of(draw(tsv("fates", COLUMNS, rows(["h2o 64"]), model="Tiny", heads="1", head="L0K1"), "fates", size="120x60")[1])
check("one head is named and has no fraction", "Tiny" in said and "head L0K1" in said and "fraction of heads" not in said, said)
short = words_of(draw(long_text(lines[:5], differ), "fates", size="88x80")[1])
check("a short text is whole", "a0" in short and "a2" in short and "tokens 0" not in short and "not shown" in short, short)
answer = words_of(draw(long_text([["42", "<|im_end|>", "\u21b5"], ["ok"]], differ), "fates", size="88x80")[1])
check("a line of text with a special token stays", "42" in answer and "not shown" not in answer, answer)


def key(traces, needed=NEEDED, **meta):
    return words_of(draw(tsv("fates", COLUMNS, rows(traces, needed=needed), **meta), "fates", size="180x60")[1])


lost, none = {w: ["nan"] * 4 for w in NEEDED}, {w: ["nan", "nan", 0, 0] if w == "born" else [0] * 4 for w in NEEDED}
check("no common threshold", "later queries \u2265 1/T" in key(["h2o 64"]), key(["h2o 64"]))
check("black has a key where nothing is black", "mean attention" in key(["h2o 64"], none), key(["h2o 64"], none))
check("nothing recorded", "black: not recorded in 1 of 1 runs" in key(["h2o 64"], lost) and "mean attention" not in key(["h2o 64"], lost), key(["h2o 64"], lost))
older = ["missed" if c == "needed" else c for c in COLUMNS]
code, _, said = draw(tsv("fates", older, rows(["h2o 64"])), "fates")
check("a table of the older definition", code == 2 and "needed" in said, said)
code, svg, said = draw(tsv("fates", COLUMNS, rows([str(i) for i in range(17)])), "fates")
check("too many traces", code == 2 and "16" in said, said)
code, svg, said = draw(tsv("fates", COLUMNS, []), "fates")
check("an empty table", code == 0 and "no data" in words_of(svg), code, said)
code, _, said = draw(tsv("fates", COLUMNS[:-1], [r[:-1] for r in rows(["a"])]), "fates")
check("a column is missing", code == 2 and "needed" in said, code, said)
finish()
