"""Check the figure occupancy on several traces: a row of maps per trace, on one scale.  usage: test_fig_occupancy.py
DRAW_TABLE
"""
import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
from readers import Svg
from test_panels import draw, texts, tsv, words_of

COLUMNS, CLASSES = ["trace", "step", "head", "layer", "index", "class", "entries"], ("all", "word")


def table(traces=(("h2o 64", 0), ("trimkv 64", 40)), steps=lambda k: 8):
    return tsv("occupancy", COLUMNS, [(name, t, f"L0K{h}", 0, h, c, more + 10 * (h + 1) + 100 * (c == "all"))
                                      for k, (name, more) in enumerate(traces) for h in range(2) for c in CLASSES for t in range(steps(k))])


code, svg, said = draw(table(), "occupancy")
check("drawn", code == 0 and not said, said)
check("names of traces and classes", all(f"{t}: {c}" in words_of(svg) for t in ("h2o 64", "trimkv 64") for c in CLASSES), words_of(svg))
maps = sorted((m for m in Svg(text=svg.decode()).images() if m[0].shape[1] > 8), key=lambda m: (round(m[2]), m[1]))
check("two rows of two", len(maps) == 4 and round(maps[0][2]) == round(maps[1][2]) < round(maps[2][2]) and maps[0][1] == maps[2][1], [m[1:3] for m in maps])
light = {}
for (trace, more), row in zip((("h2o 64", 0), ("trimkv 64", 40)), (maps[:2], maps[2:])):
    for c, (pixels, *_) in zip(CLASSES, row):
        for h in range(2):
            light[more + 10 * (h + 1) + 100 * (c == "all")] = int(pixels[int((h + .5) * pixels.shape[0] / 2), 3].sum())
order = [light[v] for v in sorted(light)]
check("on one scale, more is darker", len(order) == 8 and order == sorted(order, reverse=True) and len(set(order)) == 8, light)
code, _, said = draw(table(steps=lambda k: 8 + k), "occupancy")
check("unlike steps are refused", code == 2 and "step" in said, said)
code, svg, said = draw(table(), "occupancy-curves")
check("curves: a panel for each trace", code == 0 and all(t in words_of(svg) for t in ("h2o 64", "trimkv 64")), said)

# Maps without differences between heads become words.
def equal(step, h, c):
    return step + (10 if c == "all" else h)


mixed = [(t, f"L0K{h}", 0, h, c, equal(t, h, c)) for h in range(2) for c in CLASSES for t in range(8)]
svg = draw(tsv("occupancy", COLUMNS[1:], mixed), "occupancy")[1]
check("a map of equal heads becomes a note", "all heads equal: all (17 entries at the end)" in words_of(svg) and len([m for m in Svg(text=svg.decode()).images() if m[0].shape[1] > 8]) == 1, words_of(svg))
for rows, want in (([r for r in mixed if r[4] == "all"], "Every head caches 17 entries at the end and 17 at the peak."),
                   ([(t, f"L0K{h}", 0, h, "all", (1, 9, 4)[t]) for h in range(2) for t in range(3)], "Every head caches 4 entries at the end and 9 at the peak.")):
    code, svg, said = draw(tsv("occupancy", COLUMNS[1:], rows), "occupancy")
    check("equal heads become a sentence", code == 0 and want in words_of(svg) and not list(Svg(text=svg.decode()).images()), said, words_of(svg))
rare = tsv("occupancy", COLUMNS[1:], [(3 * t, f"L0K{h}", 0, h, "all", (1, 9, 4)[t]) for h in range(2) for t in range(3)], every=3, T=8)
check("of every third step, so that the peak may be higher", "and 9 at the peak (seen every 3 steps)." in words_of(draw(rare, "occupancy")[1]))
check("steps that are not in the trace are refused by its length", "has the steps 0 to 7" in draw(rare, "occupancy", style="steps=0:9")[2], draw(rare, "occupancy", style="steps=0:9"))
check("its last step is there", draw(rare, "occupancy", style="steps=0:8")[0] == 0)
one = [r for r in mixed if r[3] == 0 and r[4] == "all"]
check("a single head is drawn", len(list(Svg(text=draw(tsv("occupancy", COLUMNS[1:], one), "occupancy")[1].decode()).images())) > 0)

# Areas by class: a class without cached entries is not in the key.
held = {"prompt": 5, "think": 0, "answer": 3}
svg = draw(tsv("occupancy", COLUMNS[1:], [(t, "L0K0", 0, 0, c, n) for t in range(6) for c, n in held.items()]), "occupancy-curves")[1]
names = [t[0] for t in texts(svg)]
check("classes that hold something are in the key", "prompt" in names and "answer" in names and "think" not in names, names)
check("those that hold nothing are named", "nothing cached of: think" in names, names)
finish()
