"""PNG files and SVG files of the tests: read, written, compared.  Standard library and numpy."""
import math
import re
import struct
import xml.etree.ElementTree as ET
import zlib

import numpy as np

from readers import png

SVG = "{http://www.w3.org/2000/svg}"


def png_read(data):
    """pixels [h, w, 3]"""
    return png(data)[0][:, :, :3]


def png_write(pixels):
    h, w, _ = pixels.shape
    raw = np.concatenate([np.zeros((h, 1), np.uint8), pixels.reshape(h, 3 * w)], 1).tobytes()

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b""))


def differ(a, b):
    """None where two pictures are alike, else what is not; small shifts of a letter's edge pass"""
    if a.shape != b.shape:
        return f"size {a.shape[1]} x {a.shape[0]}, expected {b.shape[1]} x {b.shape[0]}"
    d = np.abs(a.astype(int) - b.astype(int)).max(2)
    far, mean = (d > 64).mean(), d.mean()
    return f"{100 * far:.2f} % of the pixels are far off, mean {mean:.2f}" if far > .004 or mean > 1 else None


def difference(a, b):
    """what differs, dark on white; the larger of the two sizes"""
    h, w = max(a.shape[0], b.shape[0]), max(a.shape[1], b.shape[1])
    both = []
    for p in (a, b):
        whole = np.full((h, w, 3), 255, int)
        whole[:p.shape[0], :p.shape[1]] = p
        both.append(whole)
    return (255 - np.abs(both[0] - both[1])).astype(np.uint8)


def marks(root):
    """{colour: [points, sum of x, of y, of their distances from the corner, in mm]} of all lines and areas; colours after the 12 with the
    most points are taken together.  A mark that moves, turns or has another colour changes a sum that no picture would tell."""
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
    """what of two results of marks() is apart by more than rounding, half a millimetre of a sum"""
    nothing = [0, 0, 0, 0]
    return [f"{name}: {a.get(name, nothing)}, expected {b.get(name, nothing)}" for name in sorted({*a, *b})
            if any(abs(x - y) > .5 for x, y in zip(a.get(name, nothing), b.get(name, nothing)))]


def structure(data):
    """what an SVG file consists of: size, how many elements of each kind, texts in their order, where its marks are"""
    root = ET.fromstring(data)
    count, texts = {}, []
    for e in root.iter():
        name = e.tag.replace(SVG, "")
        count[name] = count.get(name, 0) + 1
        if name == "text":
            texts.append("".join(e.itertext()))
    box = [round(float(v), 1) for v in root.get("viewBox").split()]
    return {"box": box, "count": dict(sorted(count.items())), "texts": texts, "marks": marks(root)}


def text_places(data):
    """(text, x, y) of the first and last character of each text, in units of the view box"""
    root, out = ET.fromstring(data), []

    def walk(e, m):
        for kind, numbers in re.findall(r"(\w+)\(([^)]*)\)", e.get("transform", "")):
            v = [float(x) for x in re.split(r"[ ,]+", numbers.strip())]
            if kind == "rotate":
                t = math.radians(v[0])
                v = [math.cos(t), math.sin(t), -math.sin(t), math.cos(t), 0, 0]
            elif kind == "translate":
                v = [1, 0, 0, 1, *v]
            assert len(v) == 6
            m = (m[0] * v[0] + m[2] * v[1], m[1] * v[0] + m[3] * v[1], m[0] * v[2] + m[2] * v[3],
                 m[1] * v[2] + m[3] * v[3], m[0] * v[4] + m[2] * v[5] + m[4], m[1] * v[4] + m[3] * v[5] + m[5])
        if e.tag == SVG + "tspan" and e.get("x"):
            xs = [float(v) for v in e.get("x").split()]
            ys = [float(v) for v in (e.get("y") or "0").split()]
            for x, y in ((xs[0], ys[0]), (xs[-1], ys[-1])):
                out.append(("".join(e.itertext()), m[0] * x + m[2] * y + m[4], m[1] * x + m[3] * y + m[5]))
        for child in e:
            walk(child, m)
    walk(root, (1, 0, 0, 1, 0, 0))
    return out
