"""Check the figure of texts on synthetic traces: the text, its order and its colours; rows of heads and traces in its
table.  usage: test_text.py KVFATE WRITE_KVF MAKER
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET

import numpy as np

KVFATE, WRITE_KVF = sys.argv[1:3]
sys.path.insert(0, os.path.dirname(sys.argv[3]))
import maker  # noqa: E402

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import ended_well, expect, finish  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"
BLUE, GREY, ORANGE, HELD, HATCH = (.04, .18, .72), (.46, .46, .46), (.68, .28, 0), (.42, .66, .92), (.62, .62, .62)


def run(*args, code=0):
    done = subprocess.run([KVFATE, *map(str, args)], capture_output=True, text=True)
    expect(done.returncode == code or (code == 0 and ended_well(done)), f"{args[2:]}: exit {done.returncode}, not {code}: {done.stderr}")
    return done


def trace(name, texts, evict=None, beta=None, ages=None, saliency=None, method=None, H=1):
    """Write a trace of one layer; evict, beta, saliency: [H][T], ages [2 H][T]."""
    T = len(texts)
    path = os.path.join(FOLDER, name + ".kvf")
    col = [maker.Column("tokens.id", "i32", "run", np.arange(T)), maker.Column("tokens.role", "u8", "run", np.zeros(T))]
    if evict is not None:
        col.append(maker.Column("evict_step", "u32", "kv", [evict], flags=maker.SNAPSHOT))
    if beta is not None:
        col.append(maker.Column("log_beta", "f32", "kv", [np.log(beta)]))
    if ages is not None:
        col.append(maker.Column("last_selected.top64", "u16", "query", [ages], flags=maker.SNAPSHOT | maker.AGE))
    if saliency is not None:
        col.append(maker.Column("saliency", "f32", "kv", [saliency]))
    meta = {"method": method or {"name": "made-up", "budget": 8}}
    raw = [t.encode() if isinstance(t, str) else t for t in texts]
    return maker.make(WRITE_KVF, path, col, (1, H, 2 * H, T), meta, raw)


def kept_every(n, T, H=1):
    """Return evictions: entry i is kept if i mod n = head, else evicted immediately."""
    return [[maker.ALIVE if i % n == h % n else i + 1 for i in range(T)] for h in range(H)]


# ---- reading an SVG

def colour_of(style, what="fill"):
    m = re.search(what + r":rgb\(([\d.]+)%,([\d.]+)%,([\d.]+)%\)", style)
    return tuple(float(x) / 100 for x in m.groups())


def close(a, b, slack=.004):
    return all(abs(x - y) <= slack for x, y in zip(a, b))


class Picture:
    """words: (x, y, text, colour, bold) of all <text>; fills: (x, y, w, h, colour) of rectangles."""

    def __init__(self, path):
        root = ET.parse(path).getroot()
        self.words, self.fills, self.hatches, self.drawn = [], [], [], 0
        for e in root.iter():
            if e.tag == SVG + "text":
                for s in e:
                    self.words.append((float(s.get("x").split()[0]), float(s.get("y")), "".join(s.itertext()),
                                       colour_of(e.get("style")), s.get("font-weight") == "700"))
            elif e.tag == SVG + "path" and e.get("style") and "fill:rgb" in e.get("style"):
                v = [float(x) for x in re.findall(r"-?[\d.]+", e.get("d"))]
                if len(v) == 8:
                    self.fills.append((min(v[::2]), min(v[1::2]), max(v[::2]) - min(v[::2]),
                                       max(v[1::2]) - min(v[1::2]), colour_of(e.get("style"))))
            elif e.tag == SVG + "path" and "stroke:rgb" in e.get("style", "") and close(colour_of(e.get("style"), "stroke"), HATCH):
                v = [float(x) * 72 / 25.4 for x in re.findall(r"-?[\d.]+", e.get("d"))]
                self.hatches += [v[k:k + 4] for k in range(0, len(v), 4)]
            elif e.tag == SVG + "g":
                self.drawn += 1

    def lines(self, size=0):
        """Return the texts by their height on the page, from left to right."""
        rows = {}
        for x, y, text, *_ in self.words:
            rows.setdefault(round(y, 1), []).append((x, text))
        return ["".join(t for _, t in sorted(rows[y])) for y in sorted(rows)]

    def text(self):
        return "\n".join(self.lines())

    def colour(self, word):
        return next((c, b) for _, _, t, c, b in self.words if word in t)

    def hatched(self, word):
        """Return True if hatches cover the first two letters of the word."""
        x, y = next((x, y) for x, y, t, *_ in self.words if word in t)
        return any(x - 1 <= min(v[0], v[2]) and max(v[0], v[2]) <= x + 20 and y - 5 < (v[1] + v[3]) / 2 < y for v in self.hatches)

    def fill_behind(self, word):
        x, y = next((x, y) for x, y, t, *_ in self.words if word in t)
        hits = [f for f in self.fills if f[0] - .05 <= x < f[0] + f[2] and f[1] < y < f[1] + f[3] and 8 < f[3] < 12]
        return hits[-1][4] if hits else None


def draw(kvf, *more, ext="svg"):
    path = os.path.join(FOLDER, "x." + ext)
    run("tokens", kvf, "-o", path, "--font", "DejaVu Sans", *more)  # this font has all the signs, so a word is one piece
    return Picture(path) if ext == "svg" else path


# ---- colours

def lab(c):
    v = [x / 12.92 if x <= .04045 else ((x + .055) / 1.055) ** 2.4 for x in c]
    m = np.array([[.4124564, .3575761, .1804375], [.2126729, .7151522, .0721750], [.0193339, .1191920, .9503041]])
    f = [t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116 for t in m @ v / [.95047, 1, 1.08883]]
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def words_and_states():
    """Check kept, evicted, sink, recent and not yet compressed tokens of one head, from the method's own numbers."""
    T = 20
    texts = [f"w{i}\n" for i in range(T)]
    step = [[maker.ALIVE if i < 3 or i in (5, 9) or i >= 14 else 16 if i < 13 else 17 for i in range(T)]]
    kvf = trace("state", texts, step, method={"name": "h2o", "budget": 8, "sinks": 2, "recent": 2})
    want = ["sink"] * 2 + ["kept" if i in (2, 5, 9) or 14 <= i < 17 else "evicted" for i in range(2, 17)]
    want += ["new"] + ["recent"] * 2
    data, _ = maker.table(KVFATE, "tokens", kvf)
    expect(data["state"] == want, f"states {data['state']}")
    p = draw(kvf, "--style", "by=state,mark=text")
    looks = {"kept": (BLUE, True), "evicted": (GREY, False)}
    for i, state in enumerate(want):
        colour, bold = p.colour(f"w{i}\u21b5")
        rgb, thick = looks.get(state, (ORANGE, False))
        expect(close(colour, rgb) and bold == thick, f"w{i} is {state}, drawn {colour} {bold}")
    lined = [f for f in p.fills if close(f[4], ORANGE)]
    expect(len(lined) >= 5, f"{len(lined)} underlines of protected tokens")
    for by in ("state", "kept"):  # backgrounds: blue, paper, hatched
        p = draw(kvf, "--style", f"by={by}")
        for i, state in enumerate(want):
            fill = p.fill_behind(f"w{i}\u21b5")
            good = close(fill, HELD) if state == "kept" else not fill or close(fill, (1, 1, 1))
            expect(good, f"by={by}: w{i} is {state}, on {fill}")
            expect(p.hatched(f"w{i}\u21b5") == (state not in ("kept", "evicted")), f"by={by}: w{i} is {state}: hatched or not")
    p = draw(kvf, "--style", "by=kept,mark=text")
    expect(p.colour("w5\u21b5")[1] and not p.colour("w3\u21b5")[1], "kept is bold")
    full = trace("full", texts, [[maker.ALIVE] * T], method={"name": "full", "budget": 0})
    expect(set(maker.table(KVFATE, "tokens", full)[0]["state"]) == {"kept"}, "all is kept under full")


def at_half_life(beta, low=0, high=3):
    """Return the place of a half-life on the colour scale, whose ends are powers of ten of steps."""
    steps = np.inf if beta >= 1 else np.log(.5) / np.log(beta)
    return np.clip((np.log10(steps) - low) / (high - low), 0, 1)


def blue_at(v):
    """Return the CIELAB colour at v in 0 .. 1: straight lines from white to blue at 0.6, and on to dark blue."""
    at = np.array([lab((1, 1, 1)), lab((.25, .53, .82)), lab((.03, .25, .55))])
    return np.array([np.interp(v, [0, .6, 1], at[:, k]) for k in range(3)])


def values_lie_behind():
    """Check half-lives of beta as colours: on the scale of blues, at the place of the logarithm between 1 and 1,000
    steps.
    """
    beta = [.2, .5, .6, .9, .97, .999, .9999, .99999, 1]
    kvf = trace("beta", [f"v{i}\n" for i in range(9)], kept_every(2, 9), [beta])
    p = draw(kvf, "--style", "by=beta")
    for i, b in enumerate(beta):
        fill = p.fill_behind(f"v{i}\u21b5")
        want = blue_at(at_half_life(b))
        expect(fill and np.abs(lab(fill) - want).max() < .7, f"beta {b}: {fill and lab(fill)}, not {want}")
    expect("\u22641" in p.text() and "\u22651000" in p.text(), "ends of the bar")
    p = draw(kvf, "--style", "by=beta", "--vmin", "2", "--vmax", "100")
    expect("7 values beyond this range" in "\n".join(t for *_, t, _, _ in p.words), "values beyond the range are not counted")
    r = subprocess.run([KVFATE, "tokens", kvf, "-o", os.path.join(FOLDER, "none.svg"), "--style", "by=beta", "--vmin", "0"], capture_output=True, text=True)
    expect(r.returncode == 2 and "above 0" in r.stderr, f"half-lives from 0 steps: {r}")
    p = draw(trace("few", ["a\n", "b\n"], kept_every(2, 2), [[np.nan, .5]]), "--style", "by=beta")
    expect("not defined" in p.text() and close(p.fill_behind("a\u21b5"), (.85,) * 3), "no value: grey")
    out = os.path.join(FOLDER, "none.svg")
    for by in ("beta", "retention", "saliency"):
        r = subprocess.run([KVFATE, "tokens", trace("none", ["a\n", "b\n"], kept_every(2, 2)), "-o", out, "--style", f"by={by}"], capture_output=True, text=True)
        expect(r.returncode == 2 and f"by={by}: no token has a value" in r.stderr and not os.path.exists(out), f"by={by} without values: {r}")


def characters_of_several_tokens():
    """Check that a split character has the mean of its tokens, and adjacent bytes their own values."""
    texts = ["A\n", b"x\xe4\xbd", b"\xa0y\n", "B\n"]
    kvf = trace("split", texts, kept_every(2, 4), [[1e-9, .9, .98, 1]])
    p = draw(kvf, "--style", "by=beta")
    for word, v in (("x", .9), ("\u4f60", .94), ("y\u21b5", .98)):
        fill = p.fill_behind(word)
        want = blue_at(at_half_life(v))
        expect(fill and np.abs(lab(fill) - want).max() < .8, f"{word}: {fill and lab(fill)}, not {want}")
    p = draw(kvf, "--style", "by=state,mark=text")  # tokens 0 and 2 are kept
    expect(close(p.colour("\u4f60")[0], GREY) and close(p.colour("A")[0], BLUE), "a character half of which is evicted")
    kvf = trace("apart", [b"\xf0", b"\x9f", b"\x98", b"\x80!", "z"], kept_every(2, 5))
    joined = maker.table(KVFATE, "tokens", kvf)[0]["joined"]
    expect(joined == ["\U0001f600!", "", "", "", "z"], f"a character of four tokens: {joined}")
    kvf = trace("bytes", [b"\xff\xfe", b"\xe4\xbd", "z"], kept_every(2, 3))
    joined = maker.table(KVFATE, "tokens", kvf)[0]["joined"]
    expect(joined == ["\\xFF\\xFE", "\\xE4\\xBD", "z"], f"bytes that are no characters: {joined}")
    p = draw(kvf)
    expect("\\xFF\\xFE" in p.text() and "\\xE4\\xBD" in p.text(), f"ill-formed bytes: {p.text()}")


def hostile():
    texts = ["<b>&amp;\"'", "]]>", "\x1b[31m", "\u202eevil\u202c", "\u2066x", "\u2028", "z\x00w", "\ufeff", "\x85", "",
             "\u200b", "\ud800".encode("utf-8", "surrogatepass"), "-->", "%s%n", "\\"]
    kvf = trace("hostile", texts, kept_every(2, len(texts)))
    text = draw(kvf).text()
    for mark in ("<b>&amp;\"'", "]]>", "\\x1B[31m", "\\u202Eevil\\u202C", "\\u2066x", "\\u2028", "z\\x00w", "\\uFEFF",
                 "\\xC2\\x85", "\u2205", "\\u200B", "\\xED\\xA0\\x80", "-->", "%s%n"):
        expect(mark in text, f"hostile: {mark!r} is not in {text!r}")
    for mark in "\u202e\u2066\u2028\x1b\ufeff":
        expect(mark not in text, f"hostile: {mark!r} came through")
    for ext in ("png", "pdf"):
        draw(kvf, ext=ext)


def white_space():
    """Check a dot for each space of a token of only spaces, in its colour; arrows for tab and newline."""
    texts = ["a", " ", "b", "   ", "c", "\t", " d", "\n", "e f"]
    evict = [[maker.ALIVE if i == 3 else i + 1 for i in range(len(texts))]]
    path = os.path.join(FOLDER, "x.svg")
    run("tokens", trace("space", texts, evict), "-o", path, "--style", "mark=text")
    kinds = {"kept": 0, "not": 0}
    for e in ET.parse(path).getroot().iter(SVG + "path"):
        if len(re.findall("[AC]", e.get("d"))) in (2, 4) and not re.search("L", e.get("d")):
            kinds["kept" if close(colour_of(e.get("style")), BLUE) else "not"] += 1
    expect(kinds == {"kept": 3, "not": 1}, f"dots {kinds}")
    text = Picture(path).text()
    expect("\u2192" in text and "\u21b5" in text and "e f" in text, f"tab and newline: {text!r}")


# ---- pages

def pages_of(path):
    return int(re.search(r"Pages: +(\d+)", subprocess.run(["pdfinfo", path], capture_output=True, text=True).stdout)[1])


def pdf_text(path, *more):
    return subprocess.run(["pdftotext", *more, path, "-"], capture_output=True, text=True).stdout


SCRIPTS = ["Plain ", "words ", "and ", "\u4f60", "\u597d", "\u4e16\u754c\u3002", "\n", "\u041f\u0440\u0438", "\u0432\u0435\u0442 ",
           "\u03b1\u03b2", "\u03b3 ", "caf", "e\u0301 ", "\ud55c\uad6d", "\uc5b4", "\n", "finale"]


def pdf_gives_text_back():
    kvf = trace("scripts", SCRIPTS, kept_every(3, len(SCRIPTS)))
    text = pdf_text(draw(kvf, ext="pdf"), "-raw").replace("e\u0301", "\u00e9")
    at = -1
    for word in ("Plain words and", "\u4f60\u597d\u4e16\u754c\u3002", "\u041f\u0440\u0438\u0432\u0435\u0442", "\u03b1\u03b2\u03b3",
                 "caf\u00e9", "\ud55c\uad6d\uc5b4", "finale"):
        found = text.find(word)
        expect(found > at, f"pdftotext: {word!r} is not there in order: {text!r}")
        at = found
    arabic = "\u0627\u0644\u0633\u0644\u0627\u0645"
    for texts in ([arabic], [arabic[:2], arabic[2:]]):
        text = pdf_text(draw(trace("rtl", texts, kept_every(2, len(texts))), ext="pdf"), "-raw")
        letters = "".join(c for c in text if "\u0600" <= c < "\u0700")
        expect(sorted(letters) == sorted(arabic), f"pdftotext of Arabic: {letters!r}")


def marks_in_leftward_lines():
    """Check bytes in a right-to-left line: their marks read from left to right, in all formats."""
    texts = ["\u05e9\u05dc", b"\xd7", "\u05d5\u05dd", b"\xff\xfe", " 12"]
    kvf = trace("marks", texts, kept_every(2, len(texts)))
    p = draw(kvf)
    for mark in ("\\xD7", "\\xFF\\xFE"):
        expect(mark in p.text(), f"{mark} in {p.text()!r}")
        expect(mark in pdf_text(draw(kvf, ext="pdf"), "-raw"), f"{mark} in the PDF")
    place = {t: x for x, _, t, *_ in p.words}
    at = [next(x for t, x in place.items() if w in t) for w in ("12", "xFF", "xD7")]
    expect(at == sorted(at), f"12, \\xFF\\xFE and \\xD7 stand at {at}")


def many_pages():
    """Check that the PDF has all 20,000 tokens, in order, page after page."""
    T = 20000
    texts = [f" t{i}" if i % 11 else f" t{i}\n" for i in range(T)]
    kvf = trace("many", texts, kept_every(3, T))
    start = time.monotonic()
    path = draw(kvf, ext="pdf")
    took = time.monotonic() - start
    pages = pages_of(path)
    seen = re.findall(r"t(\d+)", pdf_text(path, "-raw"))
    own = [int(x) for x in seen if int(x) < T]
    expect(own == list(range(T)), f"{len(own)} tokens in the PDF, in order: {own == sorted(own)}")
    expect(20 < pages < 60, f"{pages} pages")
    expect(took < 30, f"20,000 tokens took {took:.1f} s")
    lines = len(re.findall(r"(?m)^.*t\d+.*$", pdf_text(path, "-layout")))
    text = pdf_text(path)
    expect(all(f"{p} / {pages}" in text for p in (1, 2, pages)), "numbers of pages")
    expect(text.count("kept") >= pages or text.count("hold the token") >= pages, "a legend on every page")
    p = draw(kvf, "--style", f"page={pages}")
    middle = draw(kvf, "--style", "page=2")
    expect(max(y for _, y, *_ in middle.words) < 238 / 25.4 * 72, "lines below the end of the page")
    expect(f"t{T - 1}" in p.text() and "t0 " not in p.text(), "page=N of an SVG is the last page")
    run("tokens", kvf, "-o", os.path.join(FOLDER, "no.svg"), "--style", f"page={pages + 1}", code=2)
    one = draw(kvf, "--style", "page=2", ext="pdf")
    expect(pages_of(one) == 1 and f"2 / {pages}" in pdf_text(one), "page=2 of a PDF")
    p = draw(kvf)
    left = int(re.search(r"(\d+) lines left out", p.text())[1])
    shown = len([t for t in p.lines() if re.search(r"t\d", t) and "token" not in t])
    expect(left + shown == lines, f"{left} left out and {shown} shown of {lines} lines")
    expect("t0" in p.text() and f"t{T - 1}" in p.text(), "a folded text has its start and its end")


def small_and_long():
    for texts in ([], ["one"], ["a" * 10000], ["x", "\u0627\u0644\u0633\u0644\u0627\u0645" * 1600, "\u0301" * 3000, "y"]):
        kvf = trace("size", texts, kept_every(2, len(texts)))
        for ext in ("png", "svg", "pdf"):
            draw(kvf, ext=ext)
    kvf = trace("size", ["start "] + ["a" * 10000] + [" end"], kept_every(2, 3))
    text = re.sub(r"\s", "", pdf_text(draw(kvf, ext="pdf"), "-raw"))
    expect(text.count("a") >= 10000, f"{text.count('a')} of 10,000 letters of a token")
    p = draw(kvf, "--size", "60x400")
    expect(max(x for x, *_ in p.words) < 60 / 25.4 * 72, "text beyond the rim")
    draw(kvf, "--size", "60x400", ext="png")


# ---- heads and traces

def heads_and_traces():
    T, H = 9, 3
    texts = [f"w{i}\n" for i in range(T)]
    a = trace("a", texts, kept_every(3, T, H), H=H, method={"name": "h2o", "budget": 3},
              ages=[[(i + g) % (T - i) for i in range(T)] for g in range(2 * H)])
    b = trace("b", texts[:5], kept_every(2, 5, H), H=H, method={"name": "snapkv", "budget": 4})
    s = trace("s", texts, saliency=[[(-1) ** i * (i + h) for i in range(T)] for h in range(H)], H=H)
    data, _ = maker.table(KVFATE, "tokens", a, "--by-head")
    expect(data["head"] == [f"L0K{h}" for h in range(H) for _ in range(T)], "rows of heads")
    expect(data["kept"] == [float(i % 3 == h) for h in range(H) for i in range(T)], "kept of heads")
    ages = [max((i + g) % (T - i) for g in (2 * h, 2 * h + 1)) for h in range(H) for i in range(T)]
    expect(data["last_use_age"] == ages, f"ages of heads: {data['last_use_age']}, not {ages}")
    data, meta = maker.table(KVFATE, "tokens", a, b)
    expect(data["trace"] == [1] * T + [2] * 5 and set(data["head"]) == {"all"}, "rows of traces")
    expect(data["state"][0] == "mixed", "heads that differ")
    expect((meta["trace_1"], meta["trace_2"]) == ("h2o, budget 3", "snapkv, budget 4"), f"names of traces {meta}")
    data, _ = maker.table(KVFATE, "tokens", s)
    expect(np.allclose(data["saliency"], [(-1) ** i * (i + 1) for i in range(T)]), "mean saliency")
    expect(set(data["kept"]) == {None}, "a trace of saliencies holds no cache")
    p = draw(s, "--style", "by=saliency")
    red, blue = p.fill_behind("w7\u21b5"), p.fill_behind("w8\u21b5")
    expect(red[0] > red[2] and blue[2] > blue[0], f"signs of saliency: {red} {blue}")
    p = draw(a, "--by-head")
    for h in range(H):
        expect(any(t == f"L0K{h}" and bold for *_, t, _, bold in p.words), f"name of head {h}")
    xs = [sorted({round(x, 2) for x, _, t, *_ in p.words if t == f"w{i}\u21b5"}) for i in range(T)]
    expect(all(x == xs[0] and len(x) == H for x in xs), f"columns at {xs}")
    ys = [{round(y, 2) for _, y, t, *_ in p.words if t == f"w{i}\u21b5"} for i in range(T)]
    expect(all(len(y) == 1 for y in ys), "the same words stand at the same height")
    p = draw(a, b, "--head", "0.1")
    expect("h2o, budget 3" in p.text() and "snapkv, budget 4" in p.text() and "L0K1" in p.text(), "names of traces")
    p = draw(a, b, "--by-head", "--style", "columns=1")
    expect(len({round(x, 1) for x, _, t, *_ in p.words if t.startswith("w")}) == 1, "one column")
    few = [trace(f"few{k}", ["one\n", "two\n"], kept_every(2, 2), method={"name": f"m{k}", "budget": 1}) for k in range(4)]
    p = draw(*few, "--style", "columns=2")
    expect("left out" not in p.text() and all(f"m{k}, budget 1" in p.text() for k in range(4)), f"short texts in two rows: {p.text()}")
    for bad in ("columns=0", "columns=99", "page=x", "mark=bold", "by=love", "by"):
        run("tokens", a, "-o", os.path.join(FOLDER, "no.svg"), "--style", bad, code=2)


def main():
    global FOLDER
    with tempfile.TemporaryDirectory() as FOLDER:
        words_and_states()
        values_lie_behind()
        characters_of_several_tokens()
        hostile()
        white_space()
        heads_and_traces()
        small_and_long()
        if shutil.which("pdftotext"):
            pdf_gives_text_back()
            marks_in_leftward_lines()
            many_pages()
    finish()


if __name__ == "__main__":
    sys.exit(main())
