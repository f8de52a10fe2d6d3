#!/usr/bin/env python3
"""Simulate views of pictures: in grey, in print, and by eyes with one kind of colour blindness.

usage: views.py OUT PICTURE.png...

It writes OUT/PICTURE-VIEW.png for each of: grey, print, deuteranopia, protanopia, tritanopia; and OUT/PICTURE-all.png, a sheet
of the picture and these views, two by three.

grey: the luminance of sRGB (IEC 61966-2-1).  print: four inks on coated paper, whose overprints have the colours of ISO 12647-2
(2004, paper type 1, rounded), mixed by area (Demichel's equations) with the dots 15 % larger in the middle; black replaces the
common part of the three inks, without a colour profile: the worst case of printing RGB.  The eyes: matrices of Machado, Oliveira and Fernandes, "A Physiologically-based Model for
Simulation of Color Vision Deficiency", IEEE TVCG 15(6), 2009, severity 1, on linear RGB."""
import os
import sys
from pathlib import Path

import numpy as np

from pictures import png_read, png_write

EYES = {"protanopia": ((.152286, 1.052583, -.204868), (.114503, .786281, .099216), (-.003882, -.048116, 1.051998)),
        "deuteranopia": ((.367322, .860646, -.227968), (.280085, .672501, .047413), (-.011820, .042940, .968881)),
        "tritanopia": ((1.255528, -.076749, -.178779), (-.078411, .930809, .147602), (.004733, .691367, .303900))}
# CIELAB of the overprints of cyan, magenta, yellow; black over any ink is black.
INKS = {(0, 0, 0): (95, 0, -2), (1, 0, 0): (55, -36, -49), (0, 1, 0): (47, 73, -4), (0, 0, 1): (89, -5, 92),
        (0, 1, 1): (47, 67, 48), (1, 0, 1): (50, -66, 26), (1, 1, 0): (24, 19, -46), (1, 1, 1): (23, 0, 0)}
BLACK, GAIN, WHITE = (16, 0, 0), .15, np.array([.9505, 1., 1.089])
TO_RGB = np.array(((3.2406, -1.5372, -.4986), (-.9689, 1.8758, .0415), (.0557, -.2040, 1.0570)))


def linear(v):
    v = np.asarray(v, float) / 255
    return np.where(v <= .04045, v / 12.92, ((v + .055) / 1.055) ** 2.4)


def coded(v):
    v = np.clip(v, 0, 1)
    return np.round(255 * np.where(v <= .0031308, 12.92 * v, 1.055 * v ** (1 / 2.4) - .055)).astype(np.uint8)


def of_lab(lab):
    """Return linear RGB; the paper is white, as eyes adapt to it."""
    y = (lab[0] + 16) / 116
    f = np.array([y + lab[1] / 500, y, y - lab[2] / 200])
    xyz = WHITE * np.where(f > 6 / 29, f ** 3, 3 * (6 / 29) ** 2 * (f - 4 / 29))
    return TO_RGB @ xyz


def grey(colours):
    return coded(np.repeat((linear(colours) @ (.2126, .7152, .0722))[..., None], 3, -1))


def printed(colours):
    ink = 1 - np.asarray(colours, float) / 255
    black = ink.min(-1, keepdims=True)
    ink = (ink - black) / np.maximum(1 - black, 1e-9)
    dots = [v + 4 * GAIN * v * (1 - v) for v in (*np.moveaxis(ink, -1, 0), black[..., 0])]
    paper, out = of_lab(INKS[0, 0, 0]), 0
    for over, lab in INKS.items():
        share = np.prod([d if o else 1 - d for d, o in zip(dots, over)], 0)
        out = out + (share * (1 - dots[3]))[..., None] * of_lab(lab)
    return coded((out + dots[3][..., None] * of_lab(BLACK)) / paper)


def eye(name):
    return lambda colours: coded(linear(colours) @ np.array(EYES[name]).T)


VIEWS = {"grey": grey, "print": printed, **{name: eye(name) for name in ("deuteranopia", "protanopia", "tritanopia")}}


def view(pixels, name):
    """Return pixels [h, w, 3] as seen; each colour is computed once."""
    code = pixels.astype(np.uint32) @ np.array([65536, 256, 1], np.uint32)
    few, place = np.unique(code, return_inverse=True)
    colours = np.stack([few >> 16, few >> 8 & 255, few & 255], -1)
    return VIEWS[name](colours)[place.reshape(code.shape)]


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__.split("\n\n")[1])
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    for path in sys.argv[2:]:
        pixels = png_read(Path(path).read_bytes())
        seen = [pixels, *(view(pixels, name) for name in VIEWS)]
        sheet = np.concatenate([np.concatenate(seen[k:k + 2], 1) for k in (0, 2, 4)], 0)
        stem = os.path.join(out, os.path.splitext(os.path.basename(path))[0])
        for name, picture in (*zip(VIEWS, seen[1:]), ("all", sheet)):
            Path(f"{stem}-{name}.png").write_bytes(png_write(picture))


if __name__ == "__main__":
    main()
