"""Check every analysis and figure in every format on synthetic traces: well formed, complete, equal on a second run.
usage: test_formats.py KVFATE WRITE_KVF
"""
import csv
import io
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
import zipfile
import zlib

import numpy as np

import readers

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import ended_well, expect, finish, words_of  # noqa: E402
from made import make_trace  # noqa: E402

ANALYSES = ["eviction", "retention", "sparsity", "survival", "occupancy", "tokens"]
FIGURES = [(a, "map" if a == "sparsity" else a) for a in ANALYSES] + [("survival", "map")]
PICTURES, DATA = ["png", "svg", "pdf"], ["tsv", "csv", "json", "npz"]
SOURCE = {"eviction": "evict", "sparsity": "evict", "occupancy": "evict", "tokens": "evict",
          "retention": "survival", "survival": "survival"}
# The texts of made.py as a table shows them.  Bytes that are not UTF-8 and control characters become \xNN, newline
# and tab become arrows.
SHOWN = ["<|im_start|>", " a,b", 'say "hi"', "\u21b5", "\\x0D\u21b5", "\u2192", "\\x00", "x\\x00y", "\\xFF\\xFE",
         "\\xE4\\xBD", "\\xA0", "\\xF0\\x9F\\x98", "\\x80", "back\\slash", "\\n", "", "'", "=1+2", "<&>", "]]>", "42",
         ";", "\u00e9", "\\xED\\xA0\\x80", "\\x1B[31m", "\u202e", "\u4e2d\u6587", "#", "# a: b", "nan"]
JOINED = {9: "\u4f60", 10: "", 11: "\U0001f600", 12: ""}  # characters of two tokens
T, L, H, G = 40, 3, 2, 4


WORDS = {"sparsity": ["size", "--as", "sparsity"], "occupancy": ["size"]}  # of commands that have another name than their table


def run(*args):
    return subprocess.run([KVFATE, *WORDS.get(args[0], [args[0]]), *args[1:]], capture_output=True)


def read(path):
    with open(path, "rb") as f:
        return f.read()


# ---- independent readers

def png(data, said="made-up"):
    """Return (width, height, dpi, pixels [h][3w]) of a file whose provenance says `said`, by default the method's name."""
    parts, (pixels, texts) = dict(readers.chunks(data)), readers.png(data)
    h, w, channels = pixels.shape
    assert channels == 3 and b"tIME" not in parts and any(said in t for t in texts.values())
    return w, h, round(struct.unpack(">IIB", parts[b"pHYs"])[0] * .0254), pixels.reshape(h, 3 * w)


def is_png(data, what):
    w, h, dpi, px = png(data)
    edge = np.concatenate([px[0], px[-1], px[:, :3].ravel(), px[:, -3:].ravel()])
    expect((edge == 255).all(), f"{what}: something touches the rim of the picture")
    expect((px != 255).any(), f"{what}: blank")


def is_svg(data, what):
    root = ET.fromstring(data)
    expect(root.tag.endswith("}svg"), f"{what}: root is {root.tag}")
    names = {e.tag.split("}")[1] for e in root.iter()}
    expect("desc" in names and ("text" in names or ("use" in names and "symbol" in names)),
          f"{what}: no text in {sorted(names)}")
    desc = next(e for e in root.iter() if e.tag.endswith("}desc")).text
    expect("method: made-up" in desc and "<b> &" in desc, f"{what}: provenance {desc[:80]!r}")


def is_pdf(data, what, path):
    expect(data.startswith(b"%PDF-1.") and data.rstrip().endswith(b"%%EOF"), f"{what}: no PDF")
    if shutil.which("pdfinfo"):
        r = subprocess.run(["pdfinfo", path], capture_output=True)
        text = r.stdout.decode(errors="replace")
        expect(r.returncode == 0 and not r.stderr and re.search(r"Pages: +1\n", text), f"{what}: pdfinfo: {r.stderr}")
        expect("2000" in next(x for x in text.splitlines() if x.startswith("CreationDate")), f"{what}: date")


def tsv_plain(s):
    return re.sub(r"\\(.)", lambda m: {"t": "\t", "n": "\n", "r": "\r"}.get(m[1], m[1]), s)


def columns_of(data, ext):
    if ext == "npz":
        with np.load(io.BytesIO(data)) as z:
            return {k: z[k].tolist() for k in z.files}
    if ext == "json":
        return json.loads(data)["data"]
    text = data.decode()
    assert text.startswith("# table: ") == (ext == "tsv")
    while text.startswith("# "):
        text = text[text.index("\n") + 1:]
    if ext == "csv":
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    else:
        rows = [[tsv_plain(x) for x in line.split("\t")] for line in text[:-1].split("\n")]
    assert all(len(r) == len(rows[0]) for r in rows)
    return {name: [r[i] for r in rows[1:]] for i, name in enumerate(rows[0])}


def value(x):
    if x is None or x == "nan":
        return math.nan
    return float(x)


def same(a, b, is_text):
    if len(a) != len(b):
        return False
    if is_text:
        return [str(x) for x in a] == [str(x) for x in b]
    return all(value(x) == value(y) or (math.isnan(value(x)) and math.isnan(value(y))) for x, y in zip(a, b))


# ---- tests

def twice(what, args, path):
    """Return the file's bytes, after checking that a second run gives equal bytes."""
    r = run(*args, "-o", path)
    expect(ended_well(r), f"{what}: exit {r.returncode}: {r.stderr.decode()}")
    expect(r.stdout and b"\t" not in r.stdout, f"{what}: prints no summary, but {r.stdout[:60]}")
    first = read(path)
    run(*args, "-o", path)
    expect(read(path) == first, f"{what}: a second run differs")
    left = [x for x in os.listdir(os.path.dirname(path)) if x.startswith("." + os.path.basename(path))]
    expect(not left, f"{what}: leaves {left}")
    return first


def pictures(kind, kvf, *more):
    for analysis, figure in FIGURES:
        for ext in PICTURES:
            what = f"{figure}.{ext} of '{kind}' {' '.join(more)}"
            path = os.path.join(FOLDER, "x." + ext)
            data = twice(what, [*words_of(analysis, KVFATE), kvf, "--figure", figure, "--dpi", "60", *more], path)
            try:
                {"png": is_png, "svg": is_svg}.get(ext, lambda d, w: is_pdf(d, w, path))(data, what)
            except (AssertionError, ET.ParseError, zlib.error, struct.error) as e:
                expect(False, f"{what}: not well formed: {e!r}")


def tables(kind, kvf):
    for analysis in ANALYSES:
        got = {}
        for ext in DATA:
            what = f"{analysis}.{ext} of '{kind}'"
            data = twice(what, [*words_of(analysis, KVFATE), kvf], os.path.join(FOLDER, "x." + ext))
            got[ext] = columns_of(data, ext)
            if ext == "npz":
                with zipfile.ZipFile(io.BytesIO(data)) as z:
                    expect(all(i.date_time[0] == 1980 for i in z.infolist()), f"{what}: dates")
            if ext == "json":
                kinds = {c["name"]: c["type"] for c in json.loads(data)["columns"]}
        for ext in DATA:
            expect(list(got[ext]) == list(kinds), f"{analysis} of '{kind}': columns of {ext}: {list(got[ext])}")
            for name in kinds:
                expect(same(got[ext][name], got["json"][name], kinds[name] == "str"),
                      f"{analysis} of '{kind}': {name} differs between {ext} and json")


def contents(kvf):
    """Compare with the formulas of made.py."""
    t = columns_of(run("tokens", kvf, "--json").stdout, "json")
    shown = [SHOWN[i % len(SHOWN)] for i in range(T)]
    expect(t["text"] == shown, f"tokens: text {[x for x in zip(t['text'], shown) if x[0] != x[1]]}")
    joined = [JOINED.get(i % 30, SHOWN[i % 30]) for i in range(T)]
    expect(t["joined"][:30] == joined[:30], f"tokens: joined {t['joined']}")
    expect([x is None for x in t["nll"]] == [i % 6 == 0 for i in range(T)], "tokens: NaN of nll")
    e = columns_of(run("eviction", kvf, "--json").stdout, "json")
    want = [i + 3 + (7 * i + h) % 20 for h in range(L * H) for i in range(T)]
    expect(e["evict_step"] == [x if x < T else -1 for x in want], "eviction: evict_step")
    expect(e["head"] == [f"L{l}K{h}" for l in range(L) for h in range(H) for _ in range(T)], "eviction: head")
    r = columns_of(run("retention", kvf, "--json", "--criterion", "mass.90").stdout, "json")
    want = [-1 if (i + h) % 9 == 4 else (5 * i + 3 * h + 4) % (T - i) for h in range(L * G) for i in range(T)]
    expect(r["last_use_age"] == want, "retention: last_use_age")
    expect(all(x is None for x in r["beta"]), "retention: beta is not known")


def missing(kvf):
    """Check a trace without the column: exit 1, and the message names the flag."""
    for analysis in ANALYSES:
        path = os.path.join(FOLDER, "none.png")
        r = run(*words_of(analysis, KVFATE), kvf, "-o", path)
        flag = "--probes " + SOURCE[analysis]
        expect(r.returncode == 1 and flag in r.stderr.decode(), f"{analysis} without column: {r.returncode} {r.stderr}")
        expect(not os.path.exists(path), f"{analysis} without column leaves a file")


def refusals(kvf):
    png_path = os.path.join(FOLDER, "no.png")
    for args, code in (
            (["eviction", kvf, "-o", os.path.join(FOLDER, "x.jpg")], 2),
            (["eviction", kvf, "-o", png_path, "--size", "1x1"], 2),
            (["eviction", kvf, "-o", png_path, "--size", "-5x50"], 2),
            (["eviction", kvf, "-o", png_path, "--size", "6000x50"], 2),
            (["eviction", kvf, "-o", png_path, "--cmap", "jet"], 2),
            (["size", "--as", "sparsity", kvf, "-o", png_path, "--vmin", "2", "--vmax", "1"], 2),
            (["survival", kvf, "-o", png_path, "--figure", "map", "--style", "colour=red"], 2),
            (["tokens", kvf, "-o", png_path, "--style", "by=weight"], 2),
            (["tokens", kvf, "-o", png_path, "--figure", "survival"], 2),
            (["eviction", kvf, "-o", os.path.join(FOLDER, "no/such/x.png")], 1)):
        r = run(*args)
        expect(r.returncode == code and r.stderr, f"{args[0]} {args[3:]}: exit {r.returncode}, want {code}")
        expect(not os.path.exists(png_path), f"{args[0]} {args[3:]} leaves a file")


def looks(kvf):
    """Check the visible properties: grey for undefined values, the given range, the size."""
    path = os.path.join(FOLDER, "x.png")
    run("survival", kvf, "--figure", "map", "--horizons", "500", "-o", path)
    px = png(read(path))[3].reshape(-1, 3)
    expect((px == 217).all(1).mean() > .2, "a map of NaN is not grey")
    run("eviction", kvf, "--head", "L1K0", "--size", "100x80", "--dpi", "100", "-o", path)
    w, h, dpi, px = png(read(path))
    expect((w, h, dpi) == (394, 315, 100), f"--size 100x80 at 100 dpi gives {w} x {h} at {dpi}")
    for value_of, name in ((1, b"\x08\x30\x6b"), (0, b"\xe3\xe6\xea")):
        flat = px.reshape(-1, 3)
        expect((flat == np.frombuffer(name, np.uint8)).all(1).sum() > 500, f"no blues({value_of}) in the map")
    run("size", "--as", "sparsity", kvf, "-o", path)
    w, h, dpi, px = png(read(path))
    expect((w, dpi) == (1040, 300), f"sparsity by default is {w} pixels wide at {dpi} dpi, not one column at 300")
    run("size", kvf, "--vmax", "4", "-o", os.path.join(FOLDER, "a.png"))
    run("size", kvf, "-o", os.path.join(FOLDER, "b.png"))
    expect(read(os.path.join(FOLDER, "a.png")) != read(os.path.join(FOLDER, "b.png")), "--vmax changes nothing")


def main():
    global KVFATE, FOLDER
    KVFATE, write_kvf = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as FOLDER:
        kvf = {}
        for kind in ("usual", "one", "zero", "bare"):
            kvf[kind] = os.path.join(FOLDER, kind + ".kvf")
            make_trace(write_kvf, kind, kvf[kind])
        for kind in ("usual", "one", "zero"):
            pictures(kind, kvf[kind])
            tables(kind, kvf[kind])
        pictures("usual", kvf["usual"], "--title", "A title of the figure & more", "--tokens", "4:21")
        contents(kvf["usual"])
        missing(kvf["bare"])
        refusals(kvf["usual"])
        looks(kvf["usual"])
    finish()


if __name__ == "__main__":
    sys.exit(main())
