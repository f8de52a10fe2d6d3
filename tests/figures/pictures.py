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


def structure(data):
    """what an SVG file consists of: size, how many elements of each kind, texts in their order"""
    root = ET.fromstring(data)
    count, texts = {}, []
    for e in root.iter():
        name = e.tag.replace(SVG, "")
        count[name] = count.get(name, 0) + 1
        if name == "text":
            texts.append("".join(e.itertext()))
    box = [round(float(v), 1) for v in root.get("viewBox").split()]
    return {"box": box, "count": dict(sorted(count.items())), "texts": texts}


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
