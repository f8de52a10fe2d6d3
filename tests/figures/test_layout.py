"""Check kvfate draw --layout: panels are where the mosaic puts them and look as in separate figures; plots share axes
and a key; wrong input is an error.  usage: test_layout.py KVFATE DRAW_TABLE
"""
import gzip
import os
import re
import subprocess
import sys
import tempfile

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
from pictures import png_read, text_boxes
from test_boxes import pairs

KVFATE, HERE, MM = sys.argv[1], os.path.dirname(os.path.abspath(__file__)), 72 / 25.4
GAP, LETTER = 3, 4.2


def draw(out, *argv):
    r = subprocess.run([KVFATE, "draw", *argv, "--font", "DejaVu Sans", "-o", out], capture_output=True, text=True)
    return r.returncode, open(out, "rb").read() if r.returncode == 0 else b"", r.stderr


def words(svg):
    """Return (text, left, top) in mm."""
    return sorted((b[0], round(b[1] / MM, 2), round(b[2] / MM, 2)) for b in text_boxes(svg))


def moved(all_words, x, y):
    return sorted((t, round(left + x, 2), round(top + y, 2)) for t, left, top in all_words)


def within(some, whole):
    """Return the words of a panel that are not at their places on the page."""
    return [a for a in some if not any(a[0] == b[0] and abs(a[1] - b[1]) < .03 and abs(a[2] - b[2]) < .03 for b in whole)]


def height(svg):
    return float(re.search(rb'viewBox="0 0 [\d.]+ ([\d.]+)"', svg)[1]) / MM


with tempfile.TemporaryDirectory(prefix="kvfate-layout-") as folder:
    def path(name):
        return os.path.join(folder, name)

    for name in ("sparsity", "survival", "effect", "tokens", "variance"):
        with gzip.open(os.path.join(HERE, "tables", name + ".tsv.gz")) as f, open(path(name + ".tsv"), "wb") as g:
            g.write(f.read())
    sparsity, survival, effect, tokens, variance = (path(n + ".tsv") for n in ("sparsity", "survival", "effect", "tokens", "variance"))

    alone, page = draw(path("a.png"), variance, "--size", "120"), draw(path("b.png"), "--layout", "a", "--letters", "none", variance, "--size", "120")
    check("one panel is the figure", alone[0] == 0 and page[0] == 0 and (png_read(alone[1]) == png_read(page[1])).all(), page[2])

    code, svg, said = draw(path("c.svg"), "--layout", "ab/cc", sparsity, sparsity, effect + "@effect:form=bars,top=3")
    small, wide = draw(path("d.svg"), sparsity, "--size", "88.5"), draw(path("e.svg"), effect, "--style", "form=bars,top=3", "--size", "180")
    check("drawn", code == 0, said)
    on_page = words(svg)
    top = height(small[1]) + LETTER
    check("heights of rows", abs(height(svg) - top - GAP - LETTER - height(wide[1])) < .02, height(svg))
    for letter, part, x, y in (("a", small, 0, LETTER), ("b", small, 88.5 + GAP, LETTER), ("c", wide, 0, top + GAP + LETTER)):
        missing = within(moved(words(part[1]), x, y), on_page)
        check(f"panel {letter} is at its place", len(words(part[1])) > 3 and not missing, missing[:3])
        check(f"the letter of {letter}", any(w[0] == letter and abs(w[1] - x - .8) < .4 and abs(w[2] - (y - LETTER)) < 2 for w in on_page), on_page[:9])
    check("nothing over another", not pairs(text_boxes(svg)), pairs(text_boxes(svg))[:2])

    code, svg, said = draw(path("f.svg"), "--layout", "ab/cd", survival, survival, survival, survival, "--letters", "(a)")
    said_words = [w[0] for w in words(svg)]
    one = [w[0] for w in words(draw(path("g.svg"), survival)[1])]
    label = max((w for w in one if "selected" in w), key=len)
    check("names of common axes stand once", code == 0 and said_words.count(label) == 2 and sum("age" in w and "step" in w for w in said_words) == 2,
          said or (said_words.count(label), [w for w in said_words if "step" in w]))
    keys = [w for w in one if re.fullmatch(r"top-\d+|mass 0\.\d+", w)]
    check("one key for all", keys and all(said_words.count(k) == 1 for k in keys), keys)
    check("letters in brackets", all(f"({c})" in said_words for c in "abcd"), said_words[:12])
    check("no overlap with a key", not pairs(text_boxes(svg)), pairs(text_boxes(svg))[:2])
    with open(survival) as f, open(path("other.tsv"), "w") as g:
        g.write(f.read().replace("# model: ", "# model: Other "))
    for more, want in ((survival, 1), (path("other.tsv"), 2)):  # equal runs, and runs of two models
        code, svg, said = draw(path("f.svg"), "--layout", "ab", survival, more)
        text = " ".join(w[0] for w in words(svg))
        check("common parts of notes stand once, others in their panels", code == 0 and [text.count(w) for w in ("with n or more later steps", "budget 32")] == [1, want], text)
        check("nothing over the common note", not pairs(text_boxes(svg)), pairs(text_boxes(svg))[:2])
    # Maps of one figure: a common range, one bar.
    lines = open(sparsity).read().split("\n")
    head = next(i for i, x in enumerate(lines) if x and x[0] != "#")
    column = lines[head].split("\t").index("sparsity")
    rows = [x.split("\t") for x in lines[head + 1:] if x]
    full, halved = path("full.tsv"), path("halved.tsv")
    for t, less in ((full, 100), (halved, 200)):
        with open(t, "w") as f:
            f.write("\n".join(lines[:head + 1] + ["\t".join(r[:column] + [str((i + 7) / less)] + r[column + 1:]) for i, r in enumerate(rows)]) + "\n")
    ends = ["--vmin", "0", "--vmax", "1"]  # fractions
    code, svg, said = draw(path("i.svg"), "--layout", "ab", full, halved)
    cells = [re.findall(rb"fill:rgb\([^)]*\)", p) for p in re.findall(rb"<path[^>]*crispEdges[^>]*>", svg)]
    apart = [re.findall(rb"fill:rgb\([^)]*\)", p) for t in (full, halved)
             for p in re.findall(rb"<path[^>]*crispEdges[^>]*>", draw(path("j.svg"), t, *ends)[1])]
    bar = [w[0] for w in words(svg)]
    check("maps have the colours of one range", code == 0 and len(cells) > 10 and cells == apart, said or (len(cells), len(apart)))
    check("and one bar", sum(w.startswith("sparsity") for w in bar) == 1, bar)
    check("whose texts lie over nothing", not pairs(text_boxes(svg)), pairs(text_boxes(svg))[:2])
    both = [w[0] for w in words(draw(path("k.svg"), "--layout", "ab", full, halved, *ends)[1])]
    check("a range of one's own: a bar each", sum(w.startswith("sparsity") for w in both) == 2, both)
    # A logarithmic scale, checked in the same way.
    with open(path("retention.tsv"), "w") as f:
        f.write("# table: retention\n# T: 40\nsource\thead\tlayer\tindex\ttoken\tbirth\tlog_beta\tbeta\tmean_retention\tlast_use_age\n")
        f.write("".join(f"gate\tL0K{h}\t0\t{h}\t{i}\t{i}\t{-.1 * (i % 7)}\t.9\t.5\t0\n" for h in range(2) for i in range(40)))
    panel = path("retention.tsv") + "@retention:scale="
    for kinds, bars in (("log log", 1), ("linear log", 2), ("linear linear", 1)):
        code, svg, said = draw(path("l.svg"), "--layout", "ab", *(panel + k for k in kinds.split()))
        told = [w[0] for w in words(svg)]
        check(f"retention, {kinds}: {bars} bar", code == 0 and told.count("\u22640.001") == (kinds.count("log") > 0) and
              sum("retention" in w for w in told) == bars, said or told)
    code, pdf, said = draw(path("h.pdf"), "--layout", "aab", tokens, sparsity)
    check("a text is on one page", code == 0 and len(re.findall(rb"/Type /Page\b", pdf)) <= 1, said)

    for name, argv, told in (("rows differ", ["--layout", "ab/a", sparsity, effect], "differ in length"),
                             ("a table without a letter", ["--layout", "aa", sparsity, effect], "no letter"),
                             ("a letter without a table", ["--layout", "abc", sparsity, effect], "no table"),
                             ("no rectangle", ["--layout", "aba", sparsity, effect], "no rectangle"),
                             ("an empty row", ["--layout", "a/", sparsity], "differ in length"),
                             ("too small", ["--layout", "aaaab", sparsity, effect], "panel b would be 34 mm wide"),
                             ("a figure of another table", ["--layout", "ab", sparsity + "@effect", effect], "not a figure"),
                             ("a wrong key", ["--layout", "ab", sparsity, effect + "@effect:form=pie"], "pie"),
                             ("--figure", ["--layout", "a", sparsity, "--figure", "sparsity"], "do not go with"),
                             ("no layout", [sparsity, effect], "--layout")):
        code, _, said = draw(path("x.svg"), *argv)
        check(name + " is refused", code == 2 and told in said and said.count("\n") == 1, (code, said))
finish()
