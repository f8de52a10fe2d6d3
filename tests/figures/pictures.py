"""Read, write and compare PNG and SVG files of the tests.  Standard library and numpy."""
import functools
import math
import re
import struct
import xml.etree.ElementTree as ET
import zlib

import numpy as np

from readers import Svg, advances, cmap, outlines, png

SVG = "{http://www.w3.org/2000/svg}"


def png_read(data):
    """Return the pixels [h, w, 3]."""
    return png(data)[0][:, :, :3]


def png_write(pixels):
    h, w, _ = pixels.shape
    raw = np.concatenate([np.zeros((h, 1), np.uint8), pixels.reshape(h, 3 * w)], 1).tobytes()

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b""))


def differ(a, b):
    """Return None if two pictures are alike, else the difference.  Small shifts of a letter's edge are allowed."""
    if a.shape != b.shape:
        return f"size {a.shape[1]} x {a.shape[0]}, expected {b.shape[1]} x {b.shape[0]}"
    d = np.abs(a.astype(int) - b.astype(int)).max(2)
    far, mean = (d > 64).mean(), d.mean()
    return f"{100 * far:.2f} % of the pixels are far off, mean {mean:.2f}" if far > .004 or mean > 1 else None


def difference(a, b):
    """Return the difference, dark on white, in the larger of the two sizes."""
    h, w = max(a.shape[0], b.shape[0]), max(a.shape[1], b.shape[1])
    both = []
    for p in (a, b):
        whole = np.full((h, w, 3), 255, int)
        whole[:p.shape[0], :p.shape[1]] = p
        both.append(whole)
    return (255 - np.abs(both[0] - both[1])).astype(np.uint8)


def marks(root):
    """Return {colour: [points, sum of x, of y, of their distances from the corner, in mm]} of all lines and areas.
    Colours after the 12 with the most points are merged.  A mark that moves, turns or changes its colour changes a
    sum, even if the picture does not show it.
    """
    found, mm = {}, 25.4 / 72
    for e in root.iter(SVG + "path"):
        colour = re.search(r"(fill|stroke):rgb\(([^)]*)\)", e.get("style", ""))
        if not colour:  # the shape of a letter
            continue
        name = colour[1] + "".join(f" {255 * float(v.strip('% ')) / 100:.0f}" for v in colour[2].split(","))
        unit = 1 if e.get("transform") else mm
        numbers = [float(v) * unit for v in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", e.get("d"))]
        for x, y in zip(numbers[::2], numbers[1::2]):
            sums = found.setdefault(name, [0, 0., 0., 0.])
            for i, v in enumerate((1, x, y, math.hypot(x, y))):
                sums[i] += v
    names = sorted(found, key=lambda name: (-found[name][0], name))
    out = {name: found[name] for name in names[:12]}
    if names[12:]:
        out["others"] = [sum(found[name][i] for name in names[12:]) for i in range(4)]
    return {name: [round(v, 1) for v in sums] for name, sums in out.items()}


def marks_differ(a, b):
    """Return the differences of two results of marks() beyond rounding, half a millimetre of a sum."""
    nothing = [0, 0, 0, 0]
    return [f"{name}: {a.get(name, nothing)}, expected {b.get(name, nothing)}" for name in sorted({*a, *b})
            if any(abs(x - y) > .5 for x, y in zip(a.get(name, nothing), b.get(name, nothing)))]


def structure(data):
    """Return the structure of an SVG file: size, number of elements of each kind, texts in order, places of marks."""
    root = ET.fromstring(data)
    count, texts = {}, []
    for e in root.iter():
        name = e.tag.replace(SVG, "")
        count[name] = count.get(name, 0) + 1
        if name == "text":
            texts.append("".join(e.itertext()))
    box = [round(float(v), 1) for v in root.get("viewBox").split()]
    return {"box": box, "count": dict(sorted(count.items())), "texts": texts, "marks": marks(root)}


def _product(m, n):
    return (m[0] * n[0] + m[2] * n[1], m[1] * n[0] + m[3] * n[1], m[0] * n[2] + m[2] * n[3], m[1] * n[2] + m[3] * n[3],
            m[0] * n[4] + m[2] * n[5] + m[4], m[1] * n[4] + m[3] * n[5] + m[5])


def _transform(e, m):
    """Return the matrix m of a parent combined with the element's own matrix."""
    for kind, numbers in re.findall(r"(\w+)\(([^)]*)\)", e.get("transform", "")):
        v = [float(x) for x in re.split(r"[ ,]+", numbers.strip())]
        if kind == "rotate":
            t = math.radians(v[0])
            v = [math.cos(t), math.sin(t), -math.sin(t), math.cos(t), 0, 0]
        elif kind == "translate":
            v = [1, 0, 0, 1, *v]
        assert len(v) == 6
        m = _product(m, v)
    return m


def _around(m, x0, y0, x1, y1):
    """Return the upright box around a box that a matrix moves or turns."""
    xs, ys = zip(*[(m[0] * x + m[2] * y + m[4], m[1] * x + m[3] * y + m[5]) for x in (x0, x1) for y in (y0, y1)])
    return min(xs), min(ys), max(xs), max(ys)


@functools.lru_cache(maxsize=4096)  # most elements share a few styles
def _colour(style, what):
    found = re.search(rf"{what}:rgb\(([^)]*)\)", style or "")
    if not found:
        return None
    alpha = re.search(rf"{what}-opacity:([\d.]+)", style)
    return tuple(float(v.strip("% ")) / 100 for v in found[1].split(",")), float(alpha[1]) if alpha else 1.


def text_boxes(data):
    """Return (text, x0, y0, x1, y1, colour, background) of each text of an SVG file: the ink of its letters, measured
    with the fonts of the file, in units of the view box.  The background is the last rectangle drawn there before,
    white without one, None on pixels of an image.
    """
    svg = Svg(text=data.decode() if isinstance(data, bytes) else data)
    fonts = {key: (cmap(tables["cmap"]), advances(tables), outlines(tables)) for key, (tables, _) in svg.fonts().items()}
    out, areas = [], []

    def letters(e, span):
        size, text = float(e.get("font-size")), "".join(span.itertext())
        glyphs, wide, ink = fonts[span.get("font-family").strip("'"), int(span.get("font-weight", 400))]
        xs, y = [float(v) for v in span.get("x").split()], float(span.get("y"))
        at, box = xs[0], [math.inf, math.inf, -math.inf, -math.inf]
        for i, c in enumerate(text):
            g = glyphs[ord(c)]
            at = xs[i] if len(xs) == len(text) else at
            if ink[g]:
                x0, y0, x1, y1 = (size * v for v in ink[g])
                box = [min(box[0], at + x0), min(box[1], y - y1), max(box[2], at + x1), max(box[3], y - y0)]
            at += size * wide[g]
        return text, box

    def walk(e, m):
        name, m = e.tag.replace(SVG, ""), _transform(e, m)
        if name in ("defs", "clipPath", "style"):
            return
        if name == "path" and _colour(e.get("style"), "fill"):
            d = e.get("d")
            v = [] if "C" in d else [float(x) for x in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", d)]
            if len(v) == 8 and len({*v[::2]}) == len({*v[1::2]}) == 2:
                areas.append((_around(m, min(v[::2]), min(v[1::2]), max(v[::2]), max(v[1::2])), _colour(e.get("style"), "fill")))
        elif name == "image":
            areas.append((_around(m, 0, 0, float(e.get("width")), float(e.get("height"))), None))
        elif name == "text":
            ink, _ = _colour(e.get("style"), "fill")
            for span in e:
                text, box = letters(e, span)
                if box[0] > box[2]:
                    continue  # spaces
                box = _around(m, *box)
                x, y, behind = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2, [1., 1., 1.]
                for (x0, y0, x1, y1), fill in areas:
                    if x0 <= x <= x1 and y0 <= y <= y1:
                        behind = None if fill is None else [f * fill[1] + b * (1 - fill[1]) for f, b in zip(fill[0], behind or [1.] * 3)]
                out.append((text, *box, ink, behind))
        for child in e:
            walk(child, m)
    walk(svg.root, (1, 0, 0, 1, 0, 0))
    return out


def contrast(a, b):
    """Return the contrast of two colours by the Web Content Accessibility Guidelines 2: 1 to 21."""
    def luminance(c):
        return sum(w * (v / 12.92 if v <= .04045 else ((v + .055) / 1.055) ** 2.4) for w, v in zip((.2126, .7152, .0722), c))
    x, y = luminance(a), luminance(b)
    return (max(x, y) + .05) / (min(x, y) + .05)
