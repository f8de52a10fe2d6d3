"""Check the contract of every figure: it looks like its reference, and accepts any table and any size.

usage: test_contract.py KVFATE DRAW_TABLE OUT [--update] [--only NAME,...]    (NAME of one table of several: TABLE-NAME)

tables/NAME.tsv.gz is a small table of the default model for each analysis.  golden/NAME.png is its approved picture
(60 dpi), golden/structure.json the parts of its SVG and their places.  --update writes them again.  On failure OUT
has the new picture, the expected one and their difference.
"""
import gzip
import json
import os
import re
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import expect, finish  # noqa: E402
from pictures import difference, differ, marks_differ, png_read, png_write, structure
from server import Server, figures

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "golden")
UPDATE, NUMBER = "--update" in sys.argv, re.compile(r"[-+]?(\d+\.?\d*([eE][-+]?\d+)?|nan|inf)")
HOSTILE = ['<script>alert(1)</script>', 'a"b\'c', "]]>&amp;&", "\\xFF", "\u202e\u4e2d\u6587 \U0001f600", "x" * 3000, "%s%n", ""]
LONG = os.environ.get("KVFATE_TESTS") == "long"
SLOW = float(os.environ.get("KVFATE_SLOW", 20))  # maximum seconds of a drawing, on a loaded machine


class Table:
    def __init__(self, name):
        with gzip.open(os.path.join(HERE, "tables", name + ".tsv.gz"), "rt", encoding="utf-8", newline="") as f:
            lines = f.read().split("\n")
        self.meta = [x for x in lines if x.startswith("# ")]
        rows = [x.split("\t") for x in lines if x and not x.startswith("# ")]
        self.names, self.rows = rows[0], rows[1:]
        cells = list(zip(*self.rows))
        self.number = [all(NUMBER.fullmatch(v) for v in c) for c in cells]
        self.real = [n and any(re.search(r"[.en]", v) for v in c) for n, c in zip(self.number, cells)]

    def text(self, rows):
        return "\n".join(self.meta + ["\t".join(r) for r in [self.names, *rows]]) + "\n"

    def having(self, value, every=1):
        """Return rows with reals replaced in every `every`-th row."""
        return [[value if real and i % every == 0 else v for v, real in zip(r, self.real)] for i, r in enumerate(self.rows)]

    def hostile(self):
        """Return rows with all names and texts replaced, except heads.  Values that a figure looks for may be missing;
        one is very long.
        """
        known = {}
        out = []
        for r in self.rows:
            row = list(r)
            for c, name in enumerate(self.names):
                if not self.number[c] and name not in ("head", "head_a", "head_b"):
                    row[c] = known.setdefault((c, r[c]), HOSTILE[len(known) % len(HOSTILE)][:3000 if len(known) < len(HOSTILE) else 200])
            out.append(row)
        return out

    def many(self, copies):
        """Return the rows repeated as further layers."""
        out, col = [], {n: i for i, n in enumerate(self.names)}
        layers = 1 + max((int(r[col["layer"]]) for r in self.rows if r[col["layer"]].isdigit()), default=0) if "layer" in col else 0
        for k in range(copies):
            for r in self.rows:
                row = list(r)
                found = re.fullmatch(r"L(\d+)([KH]\d+)", r[col["head"]]) if "head" in col and layers else None
                if k and not found:
                    continue
                if found:
                    layer = int(found[1]) + k * layers
                    row[col["head"]], row[col["layer"]] = f"L{layer}{found[2]}", str(layer)
                out.append(row)
        return out


class Drawer:
    def __init__(self, figure, folder, draw_table):
        self.draw_table = draw_table  # a Server
        self.figure, self.name, self.table, self.folder, self.count = figure["name"], figure["label"], Table(figure["table"]), folder, 0

    def draw(self, what, rows, ext="svg", size="", dpi="", must=False):
        """Return the bytes of the figure, or None after an error with one sentence."""
        tsv, out = (os.path.join(self.folder, f"{self.name}.{e}") for e in ("tsv", ext))
        with open(tsv, "w", encoding="utf-8", newline="") as f:
            f.write(self.table.text(rows))
        if os.path.exists(out):
            os.unlink(out)
        begun = time.monotonic()
        status, said = self.draw_table(tsv, self.figure, out, "", size, dpi)
        took = time.monotonic() - begun
        expect(took < SLOW, f"{self.name}, {what}: took {took:.1f} s")
        sentence = said.count("\n") == 1 and 10 < len(said) < 400
        ok = status == 0 if must else status == 0 or (status in (1, 2) and sentence)
        if not expect(ok, f"{self.name}, {what}: exit {status}, {said[:300]!r}") or status:
            expect(not os.path.exists(out), f"{self.name}, {what}: a file in spite of the failure")
            return None
        expect(not said, f"{self.name}, {what}: says {said[:200]!r}")
        return Path(out).read_bytes()

    def svg(self, what, rows, **more):
        data = self.draw(what, rows, **more)
        if data is None:
            return None
        try:
            root = ET.fromstring(data)
        except ET.ParseError as e:
            expect(False, f"{self.name}, {what}: no XML: {e}")
            return None
        names = {e.tag.split("}")[1] for e in root.iter()}
        expect(not names & {"script", "foreignObject", "a", "iframe"}, f"{self.name}, {what}: {names}")
        numbers = re.findall(rb'\b(?:nan|inf)\b', re.sub(rb"<(desc|title|style|text)\b.*?</\1>", b"", data, flags=re.S))
        expect(not numbers, f"{self.name}, {what}: places that are no numbers")
        return data


def looks(d):
    """Compare with the approved pictures."""
    svg, png = d.svg("as it is", d.table.rows, must=True), d.draw("as it is", d.table.rows, "png", dpi="60", must=True)
    pdf = d.draw("as it is", d.table.rows, "pdf", must=True)
    if not (svg and png and pdf):
        return
    expect(png == d.draw("again", d.table.rows, "png", dpi="60"), f"{d.name}: other bytes on the second run")
    path, got, shape = os.path.join(GOLDEN, d.name + ".png"), png_read(png), structure(svg)
    if UPDATE:
        Path(path).write_bytes(png_write(got))
        structures[d.name] = shape
        return
    if not expect(os.path.exists(path) and d.name in structures, f"{d.name}: no picture to compare with; when it looks right, "
                  f"tests/figures/test_contract.py KVFATE DRAW_TABLE OUT --update --only {d.name} keeps it"):
        Path(os.path.join(OUT, d.name + "-got.png")).write_bytes(png_write(got))
        return
    expected = png_read(Path(path).read_bytes())
    if not expect(not differ(got, expected), f"{d.name}: {differ(got, expected)}; see {OUT}/{d.name}-*.png"):
        for name, picture in (("got", got), ("expected", expected), ("differs", difference(got, expected))):
            Path(os.path.join(OUT, f"{d.name}-{name}.png")).write_bytes(png_write(picture))
    known = structures.get(d.name, {})
    for part in ("box", "count", "texts"):
        expect(known.get(part) == shape[part], f"{d.name}: {part} of the SVG: {shape[part]}, expected {known.get(part)}")
    apart = marks_differ(shape["marks"], known.get("marks", {}))
    expect(not apart, f"{d.name}: lines and areas of a colour (points, sums of x, y and distance in mm): {'; '.join(apart)}")


def tables(d):
    """Try any table with these columns."""
    rows = d.table.rows
    nothing = d.svg("empty", [], must=True)
    expect(nothing is None or structure(nothing)["texts"] == ["no data"], f"{d.name}, empty: not 'no data'")
    d.svg("one row", rows[:1])
    d.svg("the last row", rows[-1:])
    d.svg("NaN", d.table.having("nan"))
    d.svg("NaN in every second row", d.table.having("nan", 2))
    d.svg("infinite", d.table.having("inf"))
    d.svg("infinite in every third row", d.table.having("-inf", 3))
    d.svg("huge numbers", d.table.having("1e300"))
    d.svg("the hugest in every second row", d.table.having("1.7e308", 2))
    d.svg("tiny numbers", d.table.having("-1e-300", 2))
    d.svg("one number", d.table.having("0.25"))
    d.svg("hostile texts", d.table.hostile())
    d.svg("rows backwards", rows[::-1])
    d.svg("cut off", rows[:len(rows) * 5 // 8 + 1])
    copies = max(2, min(400, (60000 if LONG else 8000) // max(1, len(rows))))
    d.draw(f"{copies} times", d.table.many(copies), "pdf")


def sizes(d, n):
    """Try the smallest size, 20,000 pixels wide, and 20,000 high.  Figure n tries only one of the large sizes unless
    there is time for both.
    """
    rows = d.table.rows
    for k, (what, size, dpi, wide, high) in enumerate((("smallest", "40x25", "20", 32, 20), ("wide", "1693x30", "300", 19997, 355),
                                        ("high", "40x1693", "300", 473, 19997))):
        if not LONG and k > 0 and n % 4 != k:
            continue
        data = d.draw(what, rows, "png", size, dpi)
        if data:
            got = tuple(int.from_bytes(data[k:k + 4], "big") for k in (16, 20))
            expect(got == (wide, high), f"{d.name}, {what}: {got} pixels, expected {(wide, high)}")
    d.svg("smallest", rows, size="40x25")
    d.svg("largest", rows, size="5000x5000")


def main():
    os.makedirs(OUT, exist_ok=True)
    only = sys.argv[sys.argv.index("--only") + 1].split(",") if "--only" in sys.argv else None
    listed = figures(KVFATE)
    expect(len(listed) > 40, f"{len(listed)} figures")
    draw_table = Server(DRAW)
    with tempfile.TemporaryDirectory() as folder:
        for n, figure in enumerate(listed):
            if only and figure["label"] not in only:
                continue
            if not expect(os.path.exists(os.path.join(HERE, "tables", figure["table"] + ".tsv.gz")),
                          f"{figure['label']}: no table of {figure['table']}; kvfate {figure['table']} X.kvf -o {figure['table']}.tsv makes one, "
                          f"small, to be kept as tests/figures/tables/{figure['table']}.tsv.gz (gzip -n)"):
                continue
            d = Drawer(figure, folder, draw_table)
            looks(d)
            tables(d)
            sizes(d, n)
    if UPDATE:
        with open(os.path.join(GOLDEN, "structure.json"), "w", encoding="utf-8") as f:
            text = json.dumps(structures, ensure_ascii=False, indent=0, sort_keys=True)
            f.write(re.sub(r"\[[-\d.,\s]+\]", lambda m: " ".join(m[0].split()), text) + "\n")  # numbers of one place on one line
    finish()


if __name__ == "__main__":
    KVFATE, DRAW, OUT = sys.argv[1:4]
    os.makedirs(GOLDEN, exist_ok=True)
    structures = {}
    if os.path.exists(os.path.join(GOLDEN, "structure.json")):
        structures = json.loads(Path(os.path.join(GOLDEN, "structure.json")).read_text(encoding="utf-8"))
    main()
