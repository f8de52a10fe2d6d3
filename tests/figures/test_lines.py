"""Lines, their keys and their numbers: what a figure draws of made-up tables stands where the table says, and the key
names what is drawn.  usage: test_lines.py DRAW_TABLE"""
import sys

from test_panels import MM, affine, bars, check, discs, draw, paths, texts, tsv, words_of
import test_panels

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
    """dots of both gates in each panel, at one horizon; the key names the gates"""
    code, svg, said = draw(calibration_rows(), "calibration")
    words = words_of(svg)
    check("calibration of two", code == 0, said)
    for text in ("at-age, n = 16", "no-exit, n = 16", "one gate", "other gate", "gates of", "0.116", "0.216"):
        check(f"calibration: {text!r}", text in words, words)
    check("calibration: one horizon", "n = 4" not in words and "n = 64" not in words, words)
    blue = [(x, y) for x, y, w, h in bars(svg, BLUE) if 8 < y < 50 and x < 101]
    red = [p for p in discs(svg, VERMILION) if 8 < p[1] < 50 and p[0] < 101]
    check("calibration: dots of both", len(blue) == 10 and len(red) == 10, len(blue), len(red))
    for what, dots, i in (("one", blue[:5], 0), ("other", red[:5], 1)):
        y = [p[1] for p in sorted(dots)]
        check(f"calibration: heights of the {what}", affine([(.05 + .15 * b) * (1 + i) / 2 for b in range(5)], y), y)
    code, svg, said = draw(calibration_rows(), "calibration", style="horizon=64")
    check("calibration: horizon of choice", code == 0 and "at-age, n = 64" in words_of(svg), said)
    code, svg, said = draw(calibration_rows(events=("at-age",)), "calibration")
    words = words_of(svg)
    check("calibration: horizons of one event", all(f"at-age, n = {n}" in words for n in (4, 16, 64)), said, words)
    for style in ("horizon=5", "horizon=none", "event=at-age"):
        code, svg, said = draw(calibration_rows(), "calibration", style=style)
        check(f"calibration: {style} refused", code == 2 and "--style" in said and not svg, said)
    code, svg, said = draw(calibration_rows(traces=[f"gate {i}" for i in range(12)]), "calibration", size="180x90")
    check("calibration of twelve", code == 0 and "more not shown" in words_of(svg), said)


# ---- received

def received():
    """each line has a shape of its own, in the key too, so that it is told apart without colours"""
    rows = [("L0H0", 0, 0, k, t, .5 / (k + 1) + .1 * (t % 3), 1, f"w{k}") for k in range(3) for t in range(k, 100)]
    code, svg, said = draw(tsv("received", ["head", "layer", "index", "token", "step", "attention", "seen", "text"], rows), "received")
    check("received", code == 0, said)
    kinds = set()
    for colour in (BLUE, VERMILION, (0, 158, 115)):
        found = [("C" in d, len(p)) for fill, _, p, _, d in paths(svg) if fill == colour]
        check(f"received: signs of {colour} on the line and in the key", len(found) >= 4 and len(set(found)) == 1, found)
        kinds |= set(found)
    check("received: three shapes", len(kinds) == 3, kinds)


# ---- maps of agreement

def agreement():
    """which traces are compared is said in words"""
    rows = [(f"L{l}K{h}", l, h, 1, b, .1 * b + .01 * l, .2) for b in (2, 3) for l in range(9) for h in range(3)]
    text = tsv("agreement", ["head", "layer", "index", "a", "b", "rho", "overlap"], rows,
               trace_1="gates of one", trace_2="gates of two", trace_3="gates of three")
    code, svg, said = draw(text, "agreement-map")
    words = words_of(svg)
    check("agreement", code == 0, said)
    for what in ("with trace 2: gates of two", "with trace 3: gates of three", "of trace 1: gates of one", "(of trace 1)"):
        check(f"agreement: {what}", what in words, words)
    words = words_of(draw(text, "agreement-map", style="b=3")[1])
    for what in ("with trace 3: gates of three", "of trace 1: gates of one", "(of trace 1,"):
        check(f"agreement of one pair: {what}", what in words, words)
    words = words_of(draw(text, "agreement-map", style="minus=yes")[1])
    check("agreement: difference", "with trace 3 \u2212 2" in words, words)


def main():
    calibration()
    received()
    agreement()
    print(f"{test_panels.failures} failures")
    return 1 if test_panels.failures else 0


if __name__ == "__main__":
    sys.exit(main())
