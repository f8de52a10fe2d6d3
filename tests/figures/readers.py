"""Readers of pictures for the tests of figures: PNG, SVG and embedded fonts, written only from the standards (PNG 1.2;
SVG 1.1; OpenType 1.9).
"""
import base64
import re
import struct
import xml.etree.ElementTree as ET
import zlib

import numpy as np

PT = 72 / 25.4


def guessed(kind, x, above, c):
    """Undo a filter of a row: the mean of the bytes before and above (kind 3), or the one of before (a), above (b) and
    above before (d) that is nearest to a + b - d (kind 4, Paeth), in this order.
    """
    for k in range(c):
        row, a, d = x[k::c], 0, 0
        for i, b in enumerate(above[k::c]):
            if kind == 3:
                guess = (a + b) // 2
            elif b == d or a == d:
                guess = a if b == d else b
            else:
                from_a, from_b, from_d = abs(b - d), abs(a - d), abs(a + b - d - d)
                guess = a if from_a <= from_b and from_a <= from_d else b if from_b <= from_d else d
            row[i] = a = (row[i] + guess) & 255
            d = b
        x[k::c] = row
    return x


def chunks(data):
    """Return [(kind, content)] of a PNG file, after a check of the checksums and of the end."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, out = 8, []
    while at < len(data):
        n, kind = struct.unpack_from(">I4s", data, at)
        out.append((kind, data[at + 8:at + 8 + n]))
        assert zlib.crc32(kind + out[-1][1]) == struct.unpack_from(">I", data, at + 8 + n)[0]
        at += 12 + n
    assert kind == b"IEND"
    return out


def png(data):
    """Return the pixels [h][w][channels] of 8 bits and a dictionary of the texts."""
    parts, text = chunks(data), {}
    w, h, depth, colour = struct.unpack_from(">IIBB", dict(parts)[b"IHDR"])
    for key, _, rest in (part.partition(b"\0") for kind, part in parts if kind == b"iTXt"):
        text[key.decode()] = rest[2:].split(b"\0", 2)[2].decode()
    assert depth == 8
    c = {0: 1, 2: 3, 4: 2, 6: 4}[colour]
    rows = np.frombuffer(zlib.decompress(b"".join(part for kind, part in parts if kind == b"IDAT")), np.uint8).reshape(h, 1 + c * w)
    out, above = np.zeros((h, c * w), np.uint8), np.zeros(c * w, np.uint8)
    for y in range(h):
        kind, x = rows[y, 0], rows[y, 1:]
        if kind == 1:
            x = np.cumsum(x.reshape(w, c), 0, np.uint8).reshape(-1)
        elif kind == 2:
            x = x + above
        elif kind:
            x = guessed(kind, x.tolist(), above.tolist(), c)
        out[y] = x
        above = out[y]
    return out.reshape(h, w, c), text


def font_tables(data):
    n, = struct.unpack_from(">H", data, 4)
    return {data[12 + 16 * i:16 + 16 * i].decode(): data[slice(*(lambda o, s: (o, o + s))(
        *struct.unpack_from(">II", data, 20 + 16 * i)))] for i in range(n)}


def cmap(table):
    """Return {code point: glyph} of the formats 4 and 12 of a font."""
    found = {}
    for i in range(struct.unpack_from(">H", table, 2)[0]):
        at, = struct.unpack_from(">I", table, 8 + 8 * i)
        kind, = struct.unpack_from(">H", table, at)
        if kind == 12:
            for k in range(struct.unpack_from(">I", table, at + 12)[0]):
                a, b, g = struct.unpack_from(">III", table, at + 16 + 12 * k)
                found.update({c: g + c - a for c in range(a, b + 1)})
        elif kind == 4:
            n = struct.unpack_from(">H", table, at + 6)[0] // 2
            end = struct.unpack_from(f">{n}H", table, at + 14)
            start, delta, offset = (struct.unpack_from(f">{n}H", table, at + 16 + 2 * n * k) for k in (1, 2, 3))
            for k in range(n):
                for c in range(start[k], min(end[k], 0xfffe) + 1):
                    where = at + 16 + 6 * n + 2 * k + offset[k] + 2 * (c - start[k])
                    g = struct.unpack_from(">H", table, where)[0] if offset[k] else c
                    found[c] = (g + delta[k]) & 0xffff if g else 0
    return {c: g for c, g in found.items() if g}


def advances(tables):
    """Return the advance of each glyph in em."""
    em, = struct.unpack_from(">H", tables["head"], 18)
    n, = struct.unpack_from(">H", tables["hhea"], 34)
    glyphs, = struct.unpack_from(">H", tables["maxp"], 4)
    wide = [struct.unpack_from(">H", tables["hmtx"], 4 * min(i, n - 1))[0] / em for i in range(glyphs)]
    return wide


def outlines(tables):
    """Return (x0, y0, x1, y1) of the ink of each glyph in em, y up, or None without ink.  Fonts without TrueType
    outlines get the height of capitals, the depth of a comma, and the advance as the width.
    """
    em, = struct.unpack_from(">H", tables["head"], 18)
    if "glyf" not in tables:
        return [(0, -.2, w, .74) if w else None for w in advances(tables)]
    long, = struct.unpack_from(">h", tables["head"], 50)
    n, = struct.unpack_from(">H", tables["maxp"], 4)
    at = struct.unpack_from(f">{n + 1}{'I' if long else 'H'}", tables["loca"])
    at = at if long else [2 * a for a in at]
    return [tuple(v / em for v in struct.unpack_from(">4h", tables["glyf"], at[i] + 2)) if at[i + 1] > at[i] else None for i in range(n)]


class Svg:
    def __init__(self, path=None, text=None):
        if path:
            with open(path, encoding="utf-8") as f:
                text = f.read()
        self.source = text
        self.root = ET.fromstring(self.source)
        self.all = [(e.tag.split("}")[1], e) for e in self.root.iter()]

    def size(self):
        """Return the size in mm."""
        return [float(re.fullmatch(r"([\d.]+)pt", self.root.get(k))[1]) / PT for k in ("width", "height")]

    def texts(self):
        return ["".join(e.itertext()) for tag, e in self.all if tag == "text"]

    def spans(self):
        """Yield (text, family, weight, size in pt, x list, y, turned) of each piece."""
        for tag, e in self.all:
            for s in e if tag == "text" else []:
                yield ("".join(s.itertext()), s.get("font-family").strip("'"), int(s.get("font-weight", 400)),
                       float(e.get("font-size")), [float(x) for x in s.get("x").split()], float(s.get("y")),
                       e.get("transform"))

    def fonts(self):
        """Return {(family, weight): (tables, code points of unicode-range)}."""
        found = {}
        for m in re.finditer(r"@font-face\{font-family:'([^']*)';font-weight:(\d+);font-style:\w+;"
                             r"unicode-range:([^;]*);src:url\(data:font/\w+;base64,([^)]*)\)", self.source):
            codes = set()
            for part in m[3].split(","):
                a, _, b = part[2:].partition("-")
                codes |= set(range(int(a, 16), int(b or a, 16) + 1))
            found[m[1], int(m[2])] = (font_tables(base64.b64decode(m[4])), codes)
        return found

    def images(self):
        """Yield (pixels, x, y, mm per pixel across and down) of each image, from the page's corner in mm."""
        for tag, e in self.all:
            if tag == "image":
                href = e.get("{http://www.w3.org/1999/xlink}href")
                m = [float(x) / PT for x in re.fullmatch(r"matrix\((.*)\)", e.get("transform"))[1].split(",")]
                yield png(base64.b64decode(href.split(",")[1]))[0], m[4], m[5], m[0], m[3]
