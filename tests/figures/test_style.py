"""Check that figures behave as `kvfate list figures --json` describes them: keys of --style, colour maps, columns.

usage: test_style.py KVFATE DRAW_TABLE

Pictures are of the small tables in tables/. An explicit default draws the same bytes as no option.  Exactly the
listed words and ranges are accepted.  A typing error of one letter is answered with the right key.
"""
import gzip
import os
import sys
import tempfile

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import expect, finish  # noqa: E402
from server import Server, figures

KVFATE, DRAW = sys.argv[1], Server(sys.argv[2])
LONG = os.environ.get("KVFATE_TESTS") == "long"
HERE = os.path.dirname(os.path.abspath(__file__))


class Drawer:
    def __init__(self, figure, folder):
        self.figure, self.name = figure, figure["label"]
        self.table, self.out = os.path.join(folder, "table.tsv"), os.path.join(folder, "out.svg")
        with gzip.open(os.path.join(HERE, "tables", figure["table"] + ".tsv.gz"), "rt", encoding="utf-8", newline="") as f:
            self.text = f.read()
        self.write(self.text)

    def write(self, text):
        with open(self.table, "w", encoding="utf-8", newline="") as f:
            f.write(text)

    def draw(self, style="", **more):
        """Return the exit status, bytes of the picture, message."""
        if os.path.exists(self.out):
            os.unlink(self.out)
        status, said = DRAW(self.table, self.figure["name"], self.out, style, **more)
        data = b""
        if status == 0:
            with open(self.out, "rb") as f:
                data = f.read()
        return status, data, said


def keys_are_true(d, plain):
    names = [k["name"] for k in d.figure["style"]]
    expect(len(set(names)) == len(names), d.name, "a key twice", names)
    for k in d.figure["style"]:
        name = k["name"]
        expect(k["help"] and ("default" in k) != ("absent" in k), d.name, name, "help, and either a default or what holds without")
        if "default" in k:
            expect(d.draw(f"{name}={k['default']}")[1] == plain, d.name, f"{name}={k['default']} is not the default")
        for word in k.get("words", []):
            code, _, said = d.draw(f"{name}={word}")
            expect(code == 0 or f"{name} is " not in said, d.name, f"the word {name}={word}", said)
        if "words" in k:
            code, _, said = d.draw(f"{name}=nothing-of-that-kind")
            expect(code == 2 and all(w in said for w in k["words"]), d.name, name, "words of the refusal", said)
        if k["type"] in ("whole", "real"):
            low, high = k["min"], k["max"]
            for value, good in ((low, True), (high, True), (low - 1, False), (high + 1, False)):
                code, _, said = d.draw(f"{name}={value:.15g}")
                expect(("must be between" not in said) == good, d.name, f"{name}={value}", said)
        expect(d.draw(f"{name}=")[0] == 2, d.name, f"{name}= without a value")
    slips = [n + "z" for n in names if len(n) > 1]
    for wrong in ["colour"] + (slips if LONG else slips[:2]):
        code, data, said = d.draw(f"{wrong}=1")
        expect(code == 2 and not data and wrong in said, d.name, f"the key {wrong}", said)
        if wrong[:-1] in names:
            expect(f"did you mean '{wrong[:-1]}'" in said, d.name, f"what is near to {wrong}", said)


def colours_are_true(d, plain):
    """Check that naming the default map changes no byte, and another map does; a figure without maps ignores it."""
    cmap = d.figure["cmap"]
    if cmap:
        expect(d.draw(cmap=cmap)[1] == plain, d.name, f"{cmap} is not its colour map")
    other = "vik" if cmap in ("redblue", "bluered") else "magma"
    changed = d.draw(cmap=other)[1]
    used = changed != plain
    # texts have their own colours unless --cmap names a map; received uses the map for many tokens
    if d.name not in ("tokens", "effect-text", "received"):
        expect(used == bool(cmap), d.name, f"--cmap {other} against", cmap)


def columns_are_true(d):
    """Check that a missing column is named in the error, and so is a column of the wrong type."""
    lines = d.text.split("\n")
    first = next(i for i, x in enumerate(lines) if not x.startswith("# "))
    head, rows = lines[first].split("\t"), [x.split("\t") for x in lines[first + 1:] if x]
    for column in d.figure["columns"]:
        name, kind = column["name"], column["type"]
        expect(name in head, d.name, "needs a column that its table has not", name)
        i = head.index(name)
        renamed = lines[:first] + ["\t".join("left out" if c == i else n for c, n in enumerate(head))] + lines[first + 1:]
        d.write("\n".join(renamed))
        code, _, said = d.draw()
        expect(code == 2 and f"needs the column {name}," in said, d.name, f"without {name}", said)
        if kind != "number":
            continue
        texts = ["\t".join("text" if c == i else v for c, v in enumerate(r)) for r in rows]
        d.write("\n".join(lines[:first + 1] + texts) + "\n")
        code, _, said = d.draw()
        expect(code == 2, d.name, f"{name} as text", code, said)
    d.write(d.text)


def main():
    listed = figures(KVFATE)
    expect(len(listed) > 40, "figures", len(listed))
    with tempfile.TemporaryDirectory() as folder:
        for figure in listed:
            d = Drawer(figure, folder)
            code, plain, said = d.draw()
            expect(code == 0, figure["label"], said)
            keys_are_true(d, plain)
            colours_are_true(d, plain)
            columns_are_true(d)
    finish()


if __name__ == "__main__":
    sys.exit(main())
