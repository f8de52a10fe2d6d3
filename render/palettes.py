#!/usr/bin/env python3
"""Makes palettes.list from the published tables of 256 colours.

usage: palettes.py MATPLOTLIB CMCRAMERI > palettes.list
(the folders of those two Python packages, unpacked)"""
import os
import re
import sys

LISTED = ['viridis', 'cividis', 'magma', 'inferno', 'plasma']
HEAD = '''/* palettes.list - colour maps, 256 sRGB colours each, rounded to 8 bits: made by palettes.py.  Most
 * are as published.  Sources and licences:
 *   viridis, magma, inferno, plasma  Smith and van der Walt 2015, CC0
 *   cividis    Nunez, Anderton and Renslow 2018 (PLOS ONE 13(7), e0199239), CC0
 *   vik        Crameri 2018 (doi:10.5281/zenodo.1243862), MIT
 * Two are our own, straight lines in CIELAB between the colours that palettes.py names:
 *   blues      from a grey that differs from paper to a dark blue
 *   bluered    a dark blue, a blue, white, a red, a dark red */'''


def read(*path):
    with open(os.path.join(*path), encoding='utf-8') as f:
        return f.read()


def triples(text):
    rows = re.findall(r'[\d.e-]+[, ]+[\d.e-]+[, ]+[\d.e-]+', text)[:256]
    return [[float(x) for x in re.split('[, ]+', row)] for row in rows]


def after(text, mark):
    at = re.search(mark, text).end()
    return triples(text[at:at + 40000])


WHITE_POINT = (0.95047, 1, 1.08883)  # D65
XYZ = ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041))
RGB = ((3.2404542, -1.5371385, -0.4985314), (-0.9692660, 1.8760108, 0.0415560), (0.0556434, -0.2040259, 1.0572252))


def times(matrix, v):
    return [sum(a * b for a, b in zip(row, v)) for row in matrix]


def lab(colour):
    """The CIELAB coordinates of a colour 0xRRGGBB (IEC 61966-2-1 and CIE 15)."""
    v = [(colour >> shift & 255) / 255 for shift in (16, 8, 0)]
    v = times(XYZ, [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in v])
    x, y, z = ((t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116) for t in (a / b for a, b in zip(v, WHITE_POINT)))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def srgb(L, a, b):
    y = (L + 16) / 116
    f = (y + a / 500, y, y - b / 200)
    v = times(RGB, [w * (t ** 3 if t ** 3 > 216 / 24389 else (116 * t - 16) * 27 / 24389) for t, w in zip(f, WHITE_POINT)])
    v = [12.92 * x if x <= 0.0031308 else 1.055 * x ** (1 / 2.4) - 0.055 for x in v]
    return [min(max(x, 0), 1) for x in v]


def ramp(n, *colours):
    """n colours from the first of `colours` to the last, in steps of equal lightness L*."""
    ends = [lab(c) for c in colours]
    rows, down = [], ends[0][0] > ends[-1][0]
    for i in range(n):
        L = ends[0][0] + (ends[-1][0] - ends[0][0]) * i / (n - 1)
        k = max(k for k in range(len(ends) - 1) if k == 0 or (L <= ends[k][0] if down else L >= ends[k][0]))
        f = (L - ends[k][0]) / (ends[k + 1][0] - ends[k][0])
        rows.append(srgb(*(p + f * (q - p) for p, q in zip(ends[k], ends[k + 1]))))
    return rows


def show(name, rows):
    assert len(rows) == 256 and all(0 <= x <= 1 for row in rows for x in row), name
    word = ['0x{:02x}{:02x}{:02x}'.format(*(int(x * 255 + 0.5) for x in row)) for row in rows]
    lines = [', '.join(word[i:i + 8]) for i in range(0, 256, 8)]
    print(f'\nCOLOUR_MAP({name},\n    ' + ',\n    '.join(lines) + ')')


def main(matplotlib, cmcrameri):
    print(HEAD)
    listed = read(matplotlib, '_cm_listed.py')
    for name in LISTED:
        show(name, after(listed, rf'_{name}_data = \['))
    show('blues', ramp(256, 0xe3e6ea, 0x2f7fc1, 0x08306b))
    show('bluered', ramp(128, 0x0d2f6c, 0x2f7fc1, 0xffffff) + ramp(128, 0xffffff, 0xd6473b, 0x690613))
    show('vik', triples(read(cmcrameri, 'cmaps/vik.txt')))


if __name__ == '__main__':
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
