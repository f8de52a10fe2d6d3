"""Check the properties that printing needs: sizes, fonts, text as text, lossless rasters, metadata.  usage:
test_print.py KVFATE WRITE_KVF
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np

from made import make_trace
from readers import PT, Svg, advances, cmap, png

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402

KVFATE, WRITE_KVF = (os.path.abspath(a) for a in sys.argv[1:3])


def run(*args):
    return subprocess.run([KVFATE, *args], capture_output=True, text=True)


def draw(trace, name, *args, figure="eviction"):
    path = os.path.join(os.path.dirname(trace), name)
    r = run(figure, trace, "-o", path, *args)
    check(f"{name} {args}", r.returncode == 0 and not r.stderr, r.stderr)
    return path


def read(path):
    with open(path, "rb") as f:
        return f.read()


# ---- sizes

def sizes(trace):
    own = Svg(draw(trace, "own.svg")).size()
    for given, want in (("100x80", (100, 80)), ("88mmx60mm", (88, 60)), ("8.8cmx60mm", (88, 60)), ("3.5x2.2in", (88.9, 55.88)),
                        ("3.5inx2.2in", (88.9, 55.88)), ("3.5inx2.2", (88.9, 55.88)), ("360x180pt", (127, 63.5)), (" 90 mm x 60 mm ", (90, 60)),
                        ("180mm", (180, None)), ("12cm", (120, None)), ("100", (100, None)), ("single-column", (88, None)),
                        ("one-and-half-column", (120, None)), ("double-column", (180, None)), ("page", (180, 240)), ("neurips", (139.7, None)), ("iclr", (139.7, None)), ("icml", (171.45, None)), ("icml-column", (82.55, None)), ("acl", (160, None)),
                        ("acl-column", (77, None)), ("nature", (183, None)), ("nature-column", (89, None)), ("slide", (160, 90))):
        w, h = Svg(draw(trace, "s.svg", "--size", given)).size()
        most = own[1] * w / own[0]  # of a width only; margins keep their size, so maps of that width are lower
        good = .6 * most < h < most + .01 if want[1] is None else abs(h - want[1]) < .01
        check(f"--size {given}", abs(w - want[0]) < 1e-4 and good, (w, h), want, own)
    for given in ("88mmx", "x60", "88kmx60", "88x60x2", "0x60", "1e2x60", "infx60", "nan", "-88", "88.5.5", "column", "39", "40x24.9", "5001x60", "", "88 60"):
        r = run("eviction", trace, "-o", os.path.join(os.path.dirname(trace), "no.svg"), "--size", given)
        check(f"--size {given} is refused", r.returncode == 2 and "WxH" in r.stderr and "single-column" in r.stderr
              and r.stderr.count("\n") == 1 and len(r.stderr) < 500, r.stderr)
    table = Svg(draw(trace, "own.svg", "--title", "A title", "--size", "88mm")).size()
    plain = Svg(draw(trace, "own.svg", "--size", "88mm")).size()
    check("a title is added to the height of a width", abs(table[1] - plain[1] - 7) < 1e-4, table, plain)


# ---- text

def fonts_hold_the_text(svg, what):
    fonts = svg.fonts()
    used = {}
    for text, family, weight, size, xs, _, _ in svg.spans():
        tables, codes = fonts.get((family, weight), ({}, set()))
        if not tables:
            check(f"{what}: a font is embedded", False, family, weight)
            continue
        glyphs, wide = cmap(tables["cmap"]), advances(tables)
        used.setdefault((family, weight), set()).update(map(ord, text))
        check(f"{what}: every character has a glyph", all(ord(c) in glyphs for c in text), text)
        check(f"{what}: a place each, or one for all", len(xs) in (1, len(text)), text, xs)
        # kerning moves the next characters, by less than a fifth of an em
        for c, a, b in zip(text, xs, xs[1:]):
            check(f"{what}: characters follow each other", abs(b - a - size * wide[glyphs[ord(c)]]) < 0.2 * size, text, xs)
    for key, codes in used.items():
        tables = fonts[key][0]
        check(f"{what}: no more than is used", codes == fonts[key][1] == set(cmap(tables["cmap"])), key)
        check(f"{what}: glyphs have outlines", len(tables.get("glyf", tables.get("CFF ", b""))) > 20 * len(codes - {32}), key)
    return used


def centred_text_is_centred(svg, what):
    """Check the ends of the axis names with the font's own advances."""
    fonts = svg.fonts()
    for text, family, weight, size, xs, _, turn in svg.spans():
        if text == "query step t" and turn:
            tables = fonts[family, weight][0]
            glyphs, wide = cmap(tables["cmap"]), advances(tables)
            width = sum(size * wide[glyphs[ord(c)]] for c in text)
            if len(xs) == len(text):  # kerned
                width = xs[-1] - xs[0] + size * wide[glyphs[ord(text[-1])]]
            check(f"{what}: {text}", abs(xs[0] + width / 2) < 0.05, xs, width)
            return
    check(f"{what}: there is a centred name", False, [s[0] for s in svg.spans()])


def text(trace):
    svg = Svg(draw(trace, "t.svg", "--head", "L0K0", "--title", "fluffy <AVAVA> & 42 %", "--size", "100x100"))
    r = run("eviction", trace, "--head", "L0K0", "-o", "-")
    names = {line.split("\t")[0] for line in r.stdout.splitlines() if not line.startswith("#")} - {"head"}
    texts = svg.texts()
    check("labels are text", names <= set(texts) and {"fluffy <AVAVA> & 42 %", "token position i", "query step t"} <= set(texts), texts)
    fonts_hold_the_text(svg, "eviction")
    centred_text_is_centred(svg, "eviction")
    kerned = [xs for t, _, _, _, xs, _, _ in svg.spans() if t.startswith("fluffy")][0]
    check("pairs are kerned", len(kerned) > 1)
    check("no glyphs are drawn", not [e for tag, e in svg.all if tag == "g"])
    words = Svg(draw(trace, "w.svg", "--style", "mark=text", figure="tokens"))
    used = fonts_hold_the_text(words, "tokens")
    check("bold text has a bold font", any((f, 700) in used and (f, 400) in used for f in ("Lato", "DejaVu Sans")), list(used))
    joined = "".join(words.texts())
    check("escaped and foreign characters", "<&>" in joined and "]]>" in joined and "\u00e9" in joined and "<|im_start|>" in joined)
    if "\u4e2d" in joined:  # a font for it is installed
        check("Chinese has its own font", any(ord("\u4e2d") in codes for codes in used.values()))
    same = read(draw(trace, "w.svg", figure="tokens")) == read(draw(trace, "w2.svg", figure="tokens"))
    check("equal bytes", same)


def other_fonts(trace):
    svg = Svg(draw(trace, "m.svg", "--font", "dejavu sans mono"))
    used = {s[1] for s in svg.spans() if "\u4f60" not in s[0]}  # the name of the model has this character, which needs another font
    check("--font", used == {"DejaVu Sans Mono"}, used)
    fonts_hold_the_text(svg, "another font")
    wide = {round(w, 3) for (family, _), (tables, _) in svg.fonts().items() if family in used for w in advances(tables)[1:]}
    check("it is monospaced", len(wide) == 1, wide)
    r = run("eviction", trace, "-o", os.path.join(os.path.dirname(trace), "no.svg"), "--font", "No Such Sans")
    check("a font that is not there", r.returncode == 2 and "No Such Sans" in r.stderr and "would take" in r.stderr, r.stderr)


def rendered(trace):
    """Check that a browser renders the SVG like the PNG."""
    browser = shutil.which("chromium")
    if not browser:
        print("skipped: no chromium to draw SVG")
        return
    folder = os.path.dirname(trace)
    shot = os.path.join(folder, "shot.png")
    for figure in ("eviction", "tokens"):
        look = ["--size", "127x101.6", "--dpi", "96"]
        svg = draw(trace, "r.svg", *look, figure=figure)
        want = png(read(draw(trace, "r.png", *look, figure=figure)))[0].astype(int)
        subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=480,384",
                        f"--user-data-dir={folder}/browser", f"--screenshot={shot}", "file://" + svg], capture_output=True, timeout=120)
        if not os.path.exists(shot):
            print("skipped: the browser draws nothing here")
            return
        got = png(read(shot))[0][:384, :480, :3].astype(int)
        # edges of letters differ, places do not: means over 4 x 4 pixels
        a, b = (x.reshape(96, 4, 120, 4, 3).mean((1, 3, 4)) for x in (got, want))
        check(f"{figure}: drawn alike", np.abs(a - b).mean() < 2 and (np.abs(a - b) > 40).mean() < 0.004,
              np.abs(a - b).mean(), (np.abs(a - b) > 40).mean())


# ---- PDF and rasters

def pdf(trace):
    if not shutil.which("pdffonts"):
        print("skipped: no poppler")
        return
    path = draw(trace, "p.pdf", "--head", "L0K0", figure="tokens")
    rows = subprocess.run(["pdffonts", path], capture_output=True, text=True).stdout.splitlines()[2:]
    flags = [re.search(r" (yes|no) +(yes|no) +(yes|no) +\d+ +\d+$", row) for row in rows]
    vector = [f.groups() for f, row in zip(flags, rows) if "Type 3" not in row]  # emoji are Type 3
    check("fonts are embedded subsets with Unicode", vector and all(f == ("yes",) * 3 for f in vector), rows)
    words = subprocess.run(["pdftotext", "-layout", path, "-"], capture_output=True, text=True).stdout
    check("text can be found", "<|im_start|>" in words and "]]>" in words, words)
    path = draw(trace, "p.pdf", "--title", "50% of_{all} $x$ #1")
    info = dict(re.findall(r"^(\w+): +(.*)$", subprocess.run(["pdfinfo", path], capture_output=True, text=True).stdout, re.M))
    check("metadata", not re.search(r"[\\{}$&#^_~%]", info["Title"]) and "50" in info["Title"] and "eviction" in info["Keywords"]
          and "2000" in info["CreationDate"] and "2000" in info["ModDate"] and info["Subject"].startswith("kvfate figure of table eviction"), info)


def rasters(trace):
    more = ["--head", "L0K0", "--size", "60x50", "--dpi", "200", "--title", "moves what is below"]
    svg, page = Svg(draw(trace, "x.svg", *more)), png(read(draw(trace, "x.png", *more)))[0]
    image = [i for i in svg.images() if i[0].shape[1] > 50]
    check("one map", len(image) == 1)
    px, x, y, dx, dy = image[0]
    check("pixels of 200 dpi", abs(dx * 200 / 25.4 - 1) < 1e-4 and abs(dy * 200 / 25.4 - 1) < 1e-4, dx, dy)
    at = [v * 200 / 25.4 for v in (x, y)]
    check("on whole pixels", all(abs(v - round(v)) < 0.01 for v in at), at)
    c, r = (round(v) for v in at)
    full = px[..., 3] == 255
    full[:2] = full[-2:] = full[:, :2] = full[:, -2:] = False  # the frame
    cut = page[r:r + px.shape[0], c:c + px.shape[1]]
    check("SVG and PNG have equal pixels", full.sum() > 1000 and (px[full][:, :3] == cut[full]).all())
    if not shutil.which("pdfimages"):
        print("skipped: no poppler")
        return
    path = draw(trace, "x.pdf", *more)
    rows = [row.split() for row in subprocess.run(["pdfimages", "-list", path], capture_output=True, text=True).stdout.splitlines()[2:]]
    check("no losses", rows and all(row[8] == "image" for row in rows), rows)
    check("at the resolution asked for", ["200", "200"] in [row[12:14] for row in rows], rows)
    subprocess.run(["pdfimages", "-png", path, os.path.join(os.path.dirname(path), "part")], check=True)
    parts = [png(read(os.path.join(os.path.dirname(path), f)))[0] for f in sorted(os.listdir(os.path.dirname(path))) if f.startswith("part-")]
    same = [p for p in parts if p.shape[:2] == px.shape[:2] and p.shape[2] == 3]
    check("PDF and SVG have equal pixels", same and (same[0][full] == px[full][:, :3]).all())


def metadata(trace):
    about = png(read(draw(trace, "m.png", "--dpi", "50")))[1]
    svg = Svg(draw(trace, "m.svg"))
    desc, title = (next(e.text for tag, e in svg.all if tag == k) for k in ("desc", "title"))
    check("PNG", about["Software"] == "kvfate" and about["Title"].startswith("eviction") and "method: made-up" in about["Comment"], about)
    check("SVG", title == about["Title"] and "method: made-up" in desc, title, desc)
    odd = draw(trace, "odd.svg", "--title", b"\xff\xfe <b>")
    check("a title of bytes", "\\xFF\\xFE <b>" in Svg(odd).texts(), Svg(odd).texts())


with tempfile.TemporaryDirectory(prefix="kvfate-print-") as folder:
    x = os.path.join(folder, "x.kvf")
    make_trace(WRITE_KVF, "usual", x)
    for part in (sizes, text, other_fonts, rendered, pdf, rasters, metadata):
        part(x)
finish()
