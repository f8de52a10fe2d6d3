"""Check lines, their keys and their numbers: figures of synthetic tables draw each value at its place, and the key
names every drawn line.  usage: test_lines.py DRAW_TABLE
"""
import math
import os
import re
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
from test_panels import MM, affine, bars, discs, draw, paths, texts, tsv, words_of

BLUE, VERMILION = (0, 114, 178), (213, 94, 0)
BINS = ["head", "kind", "event", "horizon", "n", "predicted", "observed", "low", "high", "brier", "brier_base", "auroc"]


# ---- calibration of several traces

def calibration_rows(traces=("one gate", "other gate"), events=("at-age", "no-exit"), horizons=(4, 16, 64)):
    rows = []
    for i, trace in enumerate(traces):
        for event in events:
            for n in horizons:
                for b in range(5):
                    p, o = .1 + .2 * b, (.05 + .15 * b) * (1 + i) / 2 + n / 1000
                    rows.append((trace, "all", "bin", event, n, 100, p, o, o - .01, o + .01, .1, "nan", "nan"))
                rows.append((trace, "all", "summary", event, n, 500, .5, .4, .3, .5, .1 + i / 10 + n / 1000, .2, .6))
    return tsv("calibration", ["trace", *BINS], rows, criterion="top64", group="any")


def calibration():
    """Check the dots of both gates in each panel, at one horizon; the key names the gates."""
    code, svg, said = draw(calibration_rows(), "calibration", style="scores=yes")
    words = words_of(svg)
    check("calibration of two", code == 0, said)
    check("calibration: scores only if asked for", "Brier" in words and "Brier" not in words_of(draw(calibration_rows(), "calibration")[1]), words)
    for text in ("used at age n, n = 16", "used at every age up to n, n = 16", "among the 64 largest", "one gate", "other gate", "gates of", "0.116", "0.216"):
        check(f"calibration: {text!r}", text in words, words)
    check("calibration: one horizon", "n = 4" not in words and "n = 64" not in words, words)
    blue = [(x, y) for x, y, w, h in bars(svg, BLUE) if 8 < y < 56 and x < 115]
    red = [p for p in discs(svg, VERMILION) if 8 < p[1] < 56 and p[0] < 115]
    check("calibration: dots of both", len(blue) == 10 and len(red) == 10, len(blue), len(red))
    for what, dots, i in (("one", blue[:5], 0), ("other", red[:5], 1)):
        y = [p[1] for p in sorted(dots)]
        check(f"calibration: heights of the {what}", affine([(.05 + .15 * b) * (1 + i) / 2 for b in range(5)], y), y)
    code, svg, said = draw(calibration_rows(), "calibration", style="horizon=64")
    check("calibration: horizon of choice", code == 0 and "used at age n, n = 64" in words_of(svg), said)
    code, svg, said = draw(calibration_rows(events=("at-age",)), "calibration")
    words = words_of(svg)
    check("calibration: horizons of one event", all(f"used at age n, n = {n}" in words for n in (4, 16, 64)), said, words)
    for style in ("horizon=5", "horizon=none", "event=at-age"):
        code, svg, said = draw(calibration_rows(), "calibration", style=style)
        check(f"calibration: {style} refused", code == 2 and "--style" in said and not svg, said)
    code, svg, said = draw(calibration_rows(traces=[f"gate {i}" for i in range(12)]), "calibration", size="180x90")
    check("calibration of twelve", code == 0 and "more not shown" in words_of(svg), said)


# ---- received

def used():
    """Check that the line of a token is the fraction of the last queries that give it more than uniform attention, from
    a quarter of the window on, and that it ends at the eviction.
    """
    weight, columns = [0, .9, .1, .5, .01, .01, .3, .01, .9, .9], ["head", "layer", "index", "token", "step", "attention", "seen", "text"]
    for window, every, seen in ((4, 1, 10), (8, 1, 10), (4, 2, 10), (8, 1, 7), (99, 1, 10)):
        rows = [("L0H0", 0, 0, k, k + t, ("nan" if t >= seen else w) if k == 2 else .001, int(t < seen), f"w{k}") for k in (2, 3) for t, w in list(enumerate(weight))[::every]]
        code, svg, said = draw(tsv("received", columns, rows), "received", style=f"window={window}")
        queries = [t for t in range(every, len(weight), every) if t < seen]
        want = []
        for t in queries:
            inside = [weight[q] > 1 / (2 + q + 1) for q in queries if t - window < q <= t]
            if len(inside) * every >= window / 4:
                want.append(sum(inside) / len(inside))
        if not want:  # no line has a quarter of the window
            check(f"received: window {window} is refused", code == 2 and said.count("\n") == 1 and f"window={window} needs" in said, said)
            continue
        line = max((p for _, stroke, p, _, _ in paths(svg) if stroke == BLUE), key=len, default=[])
        check(f"received: window {window}, every {every}, evicted at {seen}", code == 0 and affine(want, [y for _, y in line]), said, want, line)
        check(f"received: the key of window {window}", f"of the queries of the last {window} steps" in words_of(svg) and ("crosses: evicted" in words_of(svg)) == (seen < 10), words_of(svg))
    # ---- tokens without a line in the window, or whose use is between the rows, are not "never used"
    steps = {2: range(2, 42), 20: range(20, 42), 36: range(36, 42)}
    use = {2: {3}, 20: set(), 36: {37, 38}}
    for every, words, not_words in ((1, ["never used: token 20; without values: token 36"], ["token 2,", "one in"]), (2, ["one in 2", "not used by these queries: token 2, token 20"], ["never used"])):
        rows = [("L0H0", 0, 0, k, t, .9 if t in use[k] else .001, 1, "") for k in steps for t in steps[k][::every]]
        code, svg, said = draw(tsv("received", columns, rows), "received", style="window=32", size="180x90")
        note = next((t[0] for t in texts(svg) if "used" in t[0] and "queries" in t[0]), "")
        check(f"received: tokens that no query uses, every {every}", code == 0 and all(w in note for w in words) and not any(w in note for w in not_words), note, said)
    check("received: no fractions on a logarithmic axis", draw(tsv("received", columns, rows), "received", style="y=log")[0] == 2)


def received():
    """Check that each line has its own shape, in the key too, so that lines are distinct without colours."""
    rows = [("L0H0", 0, 0, k, t, .5 / (k + 1) + .1 * (t % 3), 1, f"w{k}") for k in range(3) for t in range(k, 100)]
    code, svg, said = draw(tsv("received", ["head", "layer", "index", "token", "step", "attention", "seen", "text"], rows), "received", style="show=attention")
    check("received", code == 0, said)
    kinds = set()
    for colour in (BLUE, VERMILION, (0, 158, 115)):
        found = [("C" in d, len(p)) for fill, _, p, _, d in paths(svg) if fill == colour]
        check(f"received: signs of {colour} on the line and in the key", len(found) >= 4 and len(set(found)) == 1, found)
        kinds |= set(found)
    check("received: three shapes", len(kinds) == 3, kinds)


# ---- notes

def notes():
    """Check what a note says of the run: budgets in entries or percent, and no method of the first of several traces."""
    columns = ["head", "layer", "index", "token", "step", "attention", "seen", "text"]
    rows = [("L0H0", 0, 0, 2, t, .1, 1, "w") for t in range(2, 40)]
    run = dict(model="M", method="h2o", budget=64, T=1046)
    for more, want in (({}, "M; h2o, budget 64; 1,046 tokens"), (dict(budget=2048, T=999), "M; h2o, budget 2,048; 999 tokens"),
                       (dict(budget_percent=50), "M; h2o, budget 50 %; 1,046 tokens"), (dict(method="full", budget=0), "M; full cache; 1,046 tokens"),
                       (dict(trace_1="h2o, budget 64", trace_2="snapkv, budget 64"), "M; 1,046 tokens"),
                       (dict(trace_1="a", trace_2="b", differ="prompt_tokens", T=20123), "M; h2o, budget 64; 20,123 tokens"),
                       (dict(protocol="budget=50%, override L0K*=window:budget=8, question unknown", budget_percent=50),
                        "M; h2o, budget 50 %, override L0K*=window:budget=8, question unknown; 1,046 tokens"),
                       (dict(method="full", budget=0, protocol="cache type q8"), "M; full cache, cache type q8; 1,046 tokens"),
                       (dict(tokens="0:100"), "M; h2o, budget 64; 100 of 1,046 tokens"), (dict(T=1), "M; h2o, budget 64; 1 token"),
                       (dict(T_least=294, differ="question_tokens, tokens_per_second"), "M; h2o, budget 64; 294 to 1,046 tokens"),
                       (dict(differ="model tokens", model="", tokens="0:5"), "several models; h2o, budget 64"),
                       (dict(differ="T budget", T=0, budget=0, prompt_tokens=30), "M; h2o")):
        lines = [t[0] for t in texts(draw(tsv("received", columns, rows, **{**run, **more}), "received", size="180x80")[1])]
        check(f"note of {more}", any(("; " + t).endswith("; " + want) for t in lines), want, lines)
    long = dict(run, model="a model whose name has about as many letters as the line of a small picture holds")
    lines = [t[0] for t in texts(draw(tsv("received", columns, rows, **run), "received", size="88x80")[1])]
    check("note: a run stays in one line", "M; h2o, budget 64; 1,046 tokens" in lines, lines)
    lines = [t[0] for t in texts(draw(tsv("received", columns, rows, **long), "received", size="88x80")[1])]
    check("note: a long run ends its line after a part", long["model"] in lines and "h2o, budget 64; 1,046 tokens" in lines, lines)


# ---- maps of agreement

def agreement():
    """Check that the compared traces are named."""
    rows = [(f"L{l}K{h}", l, h, 1, b, .1 * b + .01 * l, .2) for b in (2, 3) for l in range(9) for h in range(3)]
    text = tsv("agreement", ["head", "layer", "index", "a", "b", "rho", "overlap"], rows,
               trace_1="gates of one", trace_2="gates of two", trace_3="gates of three")
    code, svg, said = draw(text, "map")
    words = words_of(svg)
    check("agreement", code == 0, said)
    for what in ("with trace 2: gates of two", "with trace 3: gates of three", "of trace 1: gates of one", "(of trace 1)"):
        check(f"agreement: {what}", what in words, words)
    words = words_of(draw(text, "map", style="b=3")[1])
    for what in ("with trace 3: gates of three", "of trace 1: gates of one", "(of trace 1,"):
        check(f"agreement of one pair: {what}", what in words, words)
    words = words_of(draw(text, "map", style="minus=yes")[1])
    check("agreement: difference", "with trace 3 \u2212 2" in words, words)


# ---- heads without differences

def equal_heads():
    """Check that a map whose heads all have one value becomes a sentence, and that other maps stay."""
    def table(value):
        return tsv("sparsity", ["head", "layer", "index", "kind", "sparsity"], [(f"L{l}K{h}", l, h, "alpha", value(l, h)) for l in range(4) for h in range(3)])

    words = words_of(draw(table(lambda l, h: .25), "map")[1])
    check("equal heads: a sentence", "all 12 heads have the same value, 0.25: sparsity (evictions)." in words and "layer" not in words, words)
    words = words_of(draw(table(lambda l, h: .25 if l or h else .26), "map")[1])
    check("one head differs: a map", "same value" not in words and "layer" in words, words)


# ---- signs

def minus_signs(value):
    """Return the centres of the minus signs of a difference map of 4 layers and 3 heads, without those of the bar."""
    rows = [(f"L{l}K{h}", l, h, value(l, h)) for l in range(4) for h in range(3)]
    code, svg, said = draw(tsv("difference", ["head", "layer", "index", "difference"], rows, value="sparsity"), "difference", size="60x40")
    check("difference", code == 0, said)
    signs = [p for _, stroke, p, _, _ in paths(svg) if stroke and len(p) == 2 and p[0][1] == p[1][1] and .8 < p[1][0] - p[0][0] < 1.3]
    return sorted({(round((p[0][0] + p[1][0]) / 2, 2), round(p[0][1], 2)) for p in signs if p[1][0] < 40})


def signs():
    """Check that negative cells have a minus sign in their middle, which a picture in grey keeps; others have none."""
    found = minus_signs(lambda l, h: -1 if l == h else .5)
    check("a minus sign in each negative cell", len(found) == 3, found)
    check("at the cells of the diagonal", len(found) == 3 and affine([0, 1, 2], [x for x, _ in found]) and affine([0, 1, 2], [y for _, y in found]), found)
    check("none in positive cells", not minus_signs(lambda l, h: 1 + l))
    check("none in nearly white cells", not minus_signs(lambda l, h: -.001 if l == h else 1))


# ---- removal before the answer

def causal():
    """Check a row for each kind and amount of removed entries, for any order of the table, with marks at the values; a
    panel for each group; the evidence as a number where it is beyond the axis.
    """
    rows = [("all", "distractors", 1, .4, 3, 2, 4, .9, .8, .95), ("all", "nothing", 0, 0, 0, 0, 0, .5, .4, .6), ("all", "distractors", .25, .1, 1, 0, 2, .6, .5, .7),
            ("all", "distractors", "nan", .2, -1, -2, .5, .6, .5, .7), ("all", "random", .5, .2, -.5, -1.5, 0, .1, 0, .2), ("all", "evidence", 1, .05, -8, -9, -7, 0, 0, .1),
            ("all", "sham", "nan", .02, 0, -.1, .1, .5, .4, .6), ("other", "nothing", 0, "nan", 0, 0, 0, .5, .4, .6), ("other", "random", 1, "nan", 1, 0, 2, .5, .4, .6)]
    names = ["group", "removed", "dose", "mass", "dlogp", "dlogp_low", "dlogp_high", "right", "right_low", "right_high"]
    table = tsv("causal", names, rows, tasks=9, looking=.2)
    code, svg, said = draw(table, "causal")
    words = words_of(svg)
    check("causal", code == 0 and "all heads" in words and "other heads (80 %)" in words, said, words)
    for word in ("25 %", "few, consecutive", "up to all distractors' attention", "up to 50 %", "40 %", "5.0 %", "n = 9 tasks"):
        check(f"causal: {word}", word in words, words)
    check("causal: rows that the table lacks", "75 % of their attention" not in words, words)
    check("causal: evidence beyond the axis", "\u22128.0 (\u22129.0 .. \u22127.0)" in words, words)
    blue, red = sorted(discs(svg, BLUE), key=lambda p: p[1]), sorted(discs(svg, VERMILION, filled=False))
    check("causal: marks at the values", len(blue) == 4 and len(red) == 2 and affine([3, 1, -1, 0, -.5], [x for x, _ in [*blue, red[0]]]), blue, red)
    check("causal: a panel for other heads", len(red) == 2 and red[1][0] - red[0][0] > 40 and red[1][1] < red[0][1], red)
    code, svg, said = draw(table, "causal", style="y=right", size="88mm")
    marks = sorted(discs(svg, BLUE), key=lambda p: p[1])
    green = [p for _, s, p, _, _ in paths(svg) if s == (0, 158, 115) and len(p) == 2 and p[0][1] == p[1][1]]
    check("causal: correct answers", code == 0 and len(green) == 1 and affine([.9, .6, .6, .5, 0, .1], [*(x for x, _ in marks), green[0][0][0], green[0][1][0]]), said, marks, green)
    code, svg, said = draw(tsv("causal", names[:-2], [r[:-2] for r in rows]), "causal", style="y=right")
    check("causal: rightness needs its interval", code == 2 and "right_low" in said, said)
    code, _, said = draw(table, "causal", size="60x60")
    check("causal: too small", code != 0 and "--size" in said, said)


# ---- columns of numbers

def effect_bars():
    """Check that all numbers have equally many decimals, or powers of ten if those would be too many."""
    def numbers(values):
        rows = [(f"L0K{i}", 0, i, v, v / 2, 2 * v) for i, v in enumerate(values)]
        svg = draw(tsv("effect", ["head", "layer", "index", "kl", "kl_low", "kl_high"], rows), "effect", style="form=bars")[1]
        column = max(t[1][0] for t in texts(svg))
        return [t[0] for t in texts(svg) if abs(t[1][0] - column) < .1]

    check("effect: decimals", numbers([.1, .1234, 2]) == ["2.00", "0.12", "0.10"], numbers([.1, .1234, 2]))
    check("effect: whole numbers", numbers([100, 17, 34.4]) == ["100", "34", "17"], numbers([100, 17, 34.4]))
    check("effect: tiny numbers", numbers([1e-9, 1]) == ["1.0e+00", "1.0e\u221209"], numbers([1e-9, 1]))


# ---- dilution against budget, hazard

def lines_of(svg, colour):
    return [p for fill, stroke, p, _, _ in paths(svg) if stroke == colour and len(p) > 1]


def dilution():
    """Check that the key names exactly the drawn lines: a run without a budget is a level across all budgets."""
    def table(runs):
        rows = [(m, "all", -1, y, m, b, 500) for m, b, y in runs]
        return tsv("dilution", ["trace", "head", "step", "dilution", "method", "budget", "T"], rows)

    style = "x=budget,show=dilution"
    for budgets in ((64,), (64, 128, 256)):
        runs = [("h2o", b, .3 + b / 1000) for b in budgets] + [("full", 0, .2)]
        code, svg, said = draw(table(runs), "dilution", style=style)
        check("dilution: key", code == 0 and "full" in words_of(svg) and "h2o" in words_of(svg), said, words_of(svg))
        across = [max(x for x, _ in p) - min(x for x, _ in p) for p in lines_of(svg, (106, 106, 106))]  # the colour of the full cache
        check(f"dilution: level across {budgets}", max(across) > 30, across)
    code, svg, said = draw(table([("h2o", 64, .3), ("full", 0, "nan"), ("other", 128, "inf")]), "dilution", style=style)
    text = words_of(svg)
    check("dilution: not drawn, named in the note alone", code == 0 and "without values: full, other" in text and text.count("full") == text.count("other") == 1, text)
    rows = [("h2o", "all", -1, .3, "h2o", b, n) for b, n in ((64, 500), (128, 477), (256, 512))]
    svg = draw(tsv("dilution", ["trace", "head", "step", "dilution", "method", "budget", "T"], rows), "dilution", style=style)[1]
    check("dilution: lengths of texts that differ", "texts of 477 to 512 tokens" in words_of(svg) and "texts of" not in text, words_of(svg))
    code, svg, said = draw(table([("full", 0, .2)]), "dilution", style=style)
    check("dilution: no budget", code == 0 and words_of(svg).count("full") == 1 and "without values: full" in words_of(svg), words_of(svg))


    rows = [("all", -1, -1, -1, .3), ("L0H0", 0, 0, -1, .3)]
    code, svg, said = draw(tsv("dilution", ["head", "layer", "index", "step", "dilution"], rows), "dilution")
    check("dilution: means have no steps", code == 2 and not svg and all(w in said for w in ("--mean", "--figure map", "x=budget")), code, said)


def fills():
    """Check that a filled area is not called an interval, and that means of heads name their number."""
    columns = ["head", "layer", "index", "bin_low", "bin_high", "share", "documents", "low", "high"]
    for ends, want in ((("nan", "nan"), "2 documents, no intervals"), ((.4, .6), "bands: 95 % CI over 2 documents")):
        svg = draw(tsv("density", columns, [("all", -1, -1, b / 2, b / 2 + .5, .5, 2, *ends) for b in range(2)], documents=2), "density", size="160x90")[1]
        check(f"density: {want}", want in words_of(svg) and ("CI" in words_of(svg)) == ("CI" in want), words_of(svg))
    columns = ["head", "layer", "index", "step", "kept_mass", "oracle_mass"]
    for heads in (("L3H1",), ("L3H1", "L4H0")):
        rows = [(h, int(h[1]), int(h[3]), t, .5, .75) for h in heads for t in range(9)] + [("all", -1, -1, t, .5, .75) for t in range(9)]
        svg = draw(tsv("regret", columns, rows, mean_regret=.25, first_loss=0), "regret", size="160x90")[1]
        check(f"regret: mean of {len(heads)}", f"mean regret 0.25 over {len(heads)} head{'s' * (len(heads) > 1)}, from step 0 on" in words_of(svg), words_of(svg))
    code, svg, said = draw(tsv("regret", columns, [(h, -1, -1, -1, .5, .75) for h in ("L0H0", "all")]), "regret")
    check("regret: means have no steps", code == 2 and not svg and "--mean" in said, code, said)
    svg = draw(tsv("occupancy", ["step", "head", "layer", "index", "class", "entries", "documents"], [(t, "L0K0", 0, 0, c, t, 2) for c in ("all", "prompt", "answer") for t in range(4)], documents=2),
               "occupancy-curves", size="160x90")[1]
    check("occupancy: stacked areas are no intervals", svg and "CI" not in words_of(svg), words_of(svg))


def dilution_of_lengths():
    """Check means and 95 % CIs by Student's t over runs whose lengths differ by at most a tenth."""
    runs = [(400 + i, v) for i, v in enumerate((.58, .59, .6, .61, .62))] + [(200 + i, v) for i, v in enumerate((.5, .1, .3, .2, .4))]
    rows = [(f"h2o {n}", "all", -1, y, "h2o", 64, n) for n, y in runs + [(800, .4), (802, .5)]]
    table = tsv("dilution", ["trace", "head", "step", "dilution", "method", "budget", "T"], rows)
    for x in ("length", "budget"):
        code, _, said = draw(tsv("dilution", ["trace", "head", "step", "dilution", "method", "budget", "T"], [(*r[:2], 3, *r[3:]) for r in rows]), "dilution", style="x=%s,show=dilution" % x)
        check("dilution: x=%s without the rows of --mean" % x, code == 2 and "--mean" in said, code, said)
    code, svg, said = draw(table, "dilution", style="x=length,show=dilution,y=linear")
    drawn = lines_of(svg, (230, 159, 0))  # the colour of h2o
    line = max(drawn, key=lambda p: max(x for x, _ in p) - min(x for x, _ in p))
    bars = sorted({(p[0][0], min(y for _, y in p), max(y for _, y in p)) for p in drawn if len(p) == 2 and p[0][0] == p[1][0]})
    check("dilution: a point for each length, from left to right", code == 0 and len(line) == 3 and line == sorted(line), said, line)
    scale = (line[1][1] - line[0][1]) / .3  # means .3 and .6
    check("dilution: mean of two runs", abs(line[2][1] - line[0][1] - .15 * scale) < .05, line)
    half = [2.7764451 * (sum((k * step) ** 2 for k in range(-2, 3)) / 4 / 5) ** .5 for step in (.1, .01)]  # t(0.975, 4)
    check("dilution: 95 % CI over five runs, none over two", len(bars) == 2 and all(
        abs((low - high) / 2 / scale - h) < .004 and abs((low + high) / 2 - y) < .05 for (_, low, high), (_, y), h in zip(bars, line, half)), bars, half, scale)
    check("dilution: n", all(w in words_of(svg) for w in ("n = 2 to 5 runs a point", "bars: 95 % CI")), words_of(svg))
    # half widths of the intervals: .196 over .1 to .5, and .0196 over .58 to .62
    for shift, words in ((0, "shortest and longest texts do not overlap"), (.2, "overlap: no trend is proven")):
        part = [(f"h2o {n}", "all", -1, y - shift * (n >= 400), "h2o", 64, n) for n, y in runs]
        svg = draw(tsv("dilution", ["trace", "head", "step", "dilution", "method", "budget", "T"], part), "dilution", style="x=length,show=dilution,y=linear")[1]
        check(f"dilution: trend, shift {shift}", words in words_of(svg), words_of(svg))


def hazard():
    """Check that the last bin ends with the trace."""
    rows = [("all", "top64", 2 ** k, 2 ** (k + 1), .1 / 2 ** k) for k in range(11)]
    svg = draw(tsv("hazard", ["head", "criterion", "low", "high", "hazard"], rows, T=1200), "hazard", size="88x60")[1]
    line = max((p for _, stroke, p, _, _ in paths(svg) if stroke and stroke not in ((0, 0, 0), (26, 26, 26))), key=len)
    ticks = {t[0]: sum(t[1]) / len(t[1]) for t in texts(svg) if t[0] in ("1", "10", "100", "1000", "10\u00b3")}
    xs = sorted({round(x, 2) for x, _ in line})
    check("hazard: bins", len(xs) == 12, xs, ticks)
    step = xs[1] - xs[0]
    check("hazard: the last bin ends at T", abs(xs[-1] - xs[-2] - step * math.log2(1200 / 1024)) < .05, xs)


# ---- ghosts

def ghosts():
    """Check that the layers with the highest and the lowest line are named, only with lines of layers."""
    ends, one = {"layer 4, highest", "layer 1, lowest", "other layers"}, {"layer 7"}
    for layers, style, want in (((7, 4, 1, 2), "by=layer", ends), ((7, 4, 1, 2), "", ends), ((4, 1), "", ends - {"other layers"}), ((7,), "by=layer", one), ((7, 1), "by=all", set()),
                                ((7, 1), "by=head", set())):
        rows = [(f"L{l}H0", l, i, 10 + i, -1 if l == 1 and i else 12 + i + (l != 4)) for l in layers for i in range(5)]
        code, svg, said = draw(tsv("ghosts", ["head", "layer", "token", "evict_step", "first_hit"], rows), "ghosts", style=style)
        names = {t[0] for t in texts(svg) if "layer" in t[0]}
        check(f"ghosts of layers {layers}, {style!r}: names", code == 0 and names == want, said, names)
        check("ghosts: n", f"{5 * len(layers)} evicted entries in {len(layers)} head" in words_of(svg), words_of(svg))


# ---- persistence

def persistence():
    """Check that a row of age 0, which a logarithmic axis of ages cannot show, is not drawn and widens no axis."""
    columns = ["head", "layer", "index", "criterion", "class", "age", "at_risk", "selected", "rate", "low", "high"]
    rows = [("all", -1, -1, "top64", "all", n, 90, 80 - n, (80 - n) / 90 if n else 1e-5, .1 if n else 1e-6, .9) for n in (0, 1, 2, 4, 8, 16)]
    for style in ("", "y=log"):
        whole, cut = (draw(tsv("persistence", columns, part), "persistence", style=style) for part in (rows, rows[1:]))
        check(f"persistence {style!r}: from age 1", whole[0] == cut[0] == 0 and [*paths(whole[1])] == [*paths(cut[1])], whole[2], cut[2])


# ---- training

def training():
    """Check that values of each step are faint, and validation results are marks in the colour of the run."""
    losses, checks = [3 - .02 * i + .3 * (i % 2) for i in range(40)], {8: .5, 20: .35, 32: .3}
    rows = [("a run", i, 100 * i, v, checks.get(i, "nan")) for i, v in enumerate(losses)]
    code, svg, said = draw(tsv("training", ["run", "step", "tokens", "loss", "mean_kl"], rows), "training")
    check("training", code == 0, said)
    *marks, key = sorted(discs(svg, BLUE), key=lambda b: b[1])
    faint = bars(svg, tuple(round(255 - .3 * (255 - v)) for v in BLUE))
    for what, got, x, y in (("losses", faint, range(40), losses), ("checks", sorted(marks), checks, checks.values())):
        check(f"training: {what}", affine(list(x), [b[0] for b in got]) and affine([-v for v in y], [b[1] for b in got]), got)
    check("training: the key has the mark", abs(key[0] - 16) < 3 and key[1] > max(m[1] for m in marks), marks, key)


def trainings_of_models():
    """Check that models which train one method have a column of panels each, and that a method keeps its colour."""
    ORANGE, WINE = (213, 94, 0), (156, 31, 61)
    names, columns = ("tiny-trimkv", "tiny-dbtrimkv", "big-trimkv"), ["run", "step", "tokens", "loss", "kl_64"]
    rows = [(name, i, 100 * i, .1 * 2 ** (5 - i) * (k + 1), .5 if i == 3 else "nan") for k, name in enumerate(names) for i in range(6)]

    def lines(svg, colour):
        return [p for _, stroke, p, _, _ in paths(svg) if stroke == colour and len(p) == 6]

    code, svg, said = draw(tsv("training", columns, rows), "training", style="show=loss+kl_64")
    words = words_of(svg)
    check("trainings: columns", code == 0 and all(w in words for w in ("tiny", "big", "KL, budget 64", "pale points: single steps")), said, words)
    check("trainings: the key has each method once", words.count("trimkv") == 2 and "big-" not in words, words)
    first, second = sorted(lines(svg, ORANGE)), lines(svg, WINE)
    check("trainings: one colour of a method", len(first) == 2 and len(second) == 1 and first[1][0][0] > second[0][-1][0], first, second)
    check("trainings: one axis of a row", affine([3.2, 9.6], [first[0][0][1], first[1][0][1]]), first)
    svg = draw(tsv("training", columns, rows), "training", style="y=log")[1]
    y = [v for _, v in sorted(lines(svg, ORANGE))[0]]
    check("trainings: a logarithmic axis", affine(range(6), y), y)
    words = words_of(draw(tsv("training", columns, rows), "training", style="columns=one")[1])
    check("trainings: one column", all(n in words for n in names), words)
    words = words_of(draw(tsv("training", columns, [("a-trimkv" if i < 6 else "b-trimkv", *r[1:]) for i, r in enumerate(rows[:12])]), "training", style="columns=one")[1])
    check("trainings: runs of one method in one column", "a-trimkv" in words and "b-trimkv" in words, words)


def variance():
    """Check plain names of factors, the reason of a missing bar, and that a factor of one value is left out."""
    rows = [("all", f, n, v, w) for f, n, v, w in (("head", 4, .1, "nan"), ("token", 9, .2, .5), ("role", 1, 0, 0), ("key_norm", 3, .3, .4), ("head*token", 30, .6, "nan"))]
    code, svg, said = draw(tsv("variance", ["head", "factor", "levels", "epsilon2", "within"], rows, values="36", heads="4", scale="rate"), "variance")
    words = words_of(svg)
    check("variance", code == 0 and all(w in words for w in ("length of the key", "head × token", "does not vary within a head", "within a head: as token", "36 values of 4 heads")), said, words)
    check("variance: one value", "role (prompt, answer) is left out: it has one value" in words and words.count("0.000") == 0, words)
    blue, red = (sorted((y, w) for x, y, w, h in bars(svg, colour) if y > 8) for colour in (BLUE, VERMILION))
    check("variance: bars", affine([.1, .2, .3, .6], [w for _, w in blue]) and affine([.5, .4, 0], [w for _, w in red] + [0]), blue, red)


# ---- integers

def whole_numbers():
    """Check that axes of positions, steps and ages have only whole numbers, even if they are short."""
    def across(table, figure, **more):
        code, svg, said = draw(table, figure, **more)
        check(f"{figure}: drawn", code == 0, said)
        x0 = max(y for t, _, y, _ in texts(svg) if re.fullmatch(r"[\d.,]+", t))
        return [t for t, _, y, _ in texts(svg) if abs(y - x0) < .1]

    survival = ["head", "layer", "index", "criterion", "class", "horizon", "fraction"]
    for ages in ((1, 2), (3, 4), (3,), (11, 12), (1, 3)):
        got = across(tsv("survival", survival, [("all", -1, -1, "top64", "all", n, .5) for n in ages]), "survival")
        check(f"ages {ages}: whole", got and all(t.isdigit() for t in got), got)
    for step in (0, 10, 999):
        rows = [("L0H0", 0, 0, 0, t, .5 + .1 * (t % 2), 1, "a") for t in (step, step + 1)]
        got = across(tsv("received", ["head", "layer", "index", "token", "step", "attention", "seen", "text"], rows), "received", style="show=attention")
        check(f"steps {step}, {step + 1}: whole", got == [str(step), str(step + 1)], got)


def main():
    calibration()
    whole_numbers()
    dilution()
    dilution_of_lengths()
    fills()
    hazard()
    ghosts()
    persistence()
    training()
    trainings_of_models()
    variance()
    received()
    used()
    notes()
    agreement()
    equal_heads()
    signs()
    causal()
    effect_bars()
    finish()


if __name__ == "__main__":
    sys.exit(main())
