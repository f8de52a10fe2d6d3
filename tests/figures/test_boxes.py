"""Check that no figure cuts a text or overlaps two, and that all text is readable: for all figures, the sizes of
papers, slides and pages, and hostile tables.  usage: test_boxes.py KVFATE DRAW_TABLE

Letters are measured with the fonts in the SVG. A figure that does not fit may report an error.  At its own size and
with its own table it must be drawn.
"""
import os
import sys
import tempfile

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import expect, finish  # noqa: E402
from pictures import contrast, text_boxes
from server import Server, figures
from test_contract import Drawer

SIZES = ("", "88x60", "77x55", "82.55x60", "139.7x80", "171.45x110", "160x90", "174x110", "180x240", "60x45")
SLACK = 0.45  # points: letters may touch
LONG = os.environ.get("KVFATE_TESTS") == "long"


def overlap(a, b):
    """Return the overlap of two boxes, the smaller of horizontal and vertical."""
    return min(min(a[3], b[3]) - max(a[1], b[1]), min(a[4], b[4]) - max(a[2], b[2]))


def pairs(boxes):
    """Return overlapping pairs, found from left to right."""
    open_, out = [], []
    for box in sorted(boxes, key=lambda b: b[1]):
        open_ = [b for b in open_ if b[3] > box[1] + SLACK]
        out += [(b, box) for b in open_ if overlap(b, box) > SLACK]
        open_.append(box)
    return out


def judge(what, data, running):
    head = data[:2000].decode(errors="replace")
    w, h = (float(v) for v in head.split('viewBox="0 0 ')[1].split('"')[0].split())
    boxes = text_boxes(data)
    for t, x0, y0, x1, y1, ink, behind in boxes:
        expect(x0 > -SLACK and y0 > -SLACK and x1 < w + SLACK and y1 < h + SLACK,
               f"{what}: {t[:60]!r} is cut: {x0:.1f}, {y0:.1f} to {x1:.1f}, {y1:.1f} on {w:.0f} x {h:.0f} points")
        if behind is not None:
            expect(contrast(ink, behind) >= 4.5, f"{what}: {t[:60]!r} has a contrast of {contrast(ink, behind):.2f}")
    for a, b in [] if running else pairs(boxes):
        expect(False, f"{what}: {a[0][:60]!r} and {b[0][:60]!r} lie over each other by {overlap(a, b):.1f} points")


def main():
    global SIZES
    only = sys.argv[sys.argv.index("--only") + 1].split(",") if "--only" in sys.argv else None
    draw_table = Server(DRAW)
    with tempfile.TemporaryDirectory() as folder:
        for n, figure in enumerate(figures(KVFATE)):
            if only and figure["label"] not in only:
                continue
            d = Drawer(figure, folder, draw_table)
            rows = d.table.rows
            tables = {"as it is": rows, "hostile texts": d.table.hostile(), "huge numbers": d.table.having("-1.2345678e300", 2),
                      "NaN": d.table.having("nan", 2), "many layers": d.table.many(max(2, min(12, 4000 // max(1, len(rows)))))}
            for k, (table, some) in enumerate(tables.items()):
                for i, size in enumerate(SIZES):
                    if i and not LONG and (i + k + n) % (8 if k else 3):
                        continue  # a third of the sizes, of hostile tables an eighth
                    data = d.svg(f"{table} {size}", some, size=size, must=not k and not size)
                    if data:  # running text has adjacent pieces, and words of a cloud touch
                        judge(f"{d.name}, {table} {size}", data, d.name in ("tokens",))
    finish()


if __name__ == "__main__":
    KVFATE, DRAW = sys.argv[1:3]
    main()
