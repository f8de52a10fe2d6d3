"""The axes of an SVG file as a reader sees them: ticks, their numbers, and the resulting scale."""
import re

import numpy as np

from readers import PT, advances, cmap

INK = "rgb(12%,12%,12%)"
POWER = str.maketrans("\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b\u2212", "0123456789--")


def number(text):
    """Return the value of a tick's number, or None."""
    times, ten, power = text.partition("10")
    if ten and power and power[0] not in "0123456789.,":  # powers of ten, with or without a factor
        if times and not times.endswith("\u00b7"):
            return None
        return float(times[:-1] or 1) * 10 ** float(power.translate(POWER))
    text = text.replace("\u2212", "-")
    return float(text.replace(",", "")) if re.fullmatch(r"-?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?(e[-+]?\d+)?", text) else None


class Axes:
    """texts: horizontal texts as (text, left, right, baseline) in mm; lines: two points each."""

    def __init__(self, svg):
        fonts, self.texts, self.lines, self.frames = svg.fonts(), [], [], []
        for text, family, weight, size, xs, y, turn in svg.spans():
            if not turn:
                tables = fonts[family, weight][0]
                glyphs, wide = cmap(tables["cmap"]), advances(tables)
                own = [size * wide[glyphs[ord(c)]] for c in text]
                right = xs[-1] + own[-1] if len(xs) > 1 else xs[0] + sum(own)
                self.texts.append((text, xs[0] / PT, right / PT, y / PT))
        for tag, e in svg.all:
            style = e.get("style", "").replace(" ", "")
            if tag == "path" and "stroke:" + INK in style and "C" not in e.get("d"):
                scale = 1 if "matrix" in e.get("transform", "") else 1 / PT
                p = np.array(re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", e.get("d")), float).reshape(-1, 2) * scale
                if len(p) == 2:
                    self.lines.append(p)
                elif len(p) >= 4 and "Z" in e.get("d"):
                    self.frames.append((*p.min(0), *p.max(0)))

    def ticks(self, frame, side):
        """Return [(place in mm, number)] of the axis below (x), left (y) or right (r) of a frame, and the largest
        offset of the numbers.
        """
        x0, y0, x1, y1 = frame
        out, off = [], 0
        for (ax, ay), (bx, by) in self.lines:
            if np.hypot(ax - bx, ay - by) < .8:
                continue  # marks between the numbers
            if side == "x" and ax == bx and abs(min(ay, by) - y1) < .02 and x0 - .02 < ax < x1 + .02:
                near = [(abs((l + r) / 2 - ax), t) for t, l, r, y in self.texts if 1 < y - y1 < 5 and abs((l + r) / 2 - ax) < 1]
                place = ax
            elif side in "yr" and ay == by and abs((max(ax, bx) - x0) if side == "y" else (min(ax, bx) - x1)) < .02 and y0 - .02 < ay < y1 + .02:
                near = [(abs(y - ay - .82), t) for t, l, r, y in self.texts if abs(y - ay - .82) < 1
                        and (abs(r - x0 + 1.5) < .2 if side == "y" else abs(l - x1 - 1.5) < .2)]
                place = ay
            else:
                continue
            if near:
                far, text = min(near)
                if number(text) is not None:
                    off = max(off, far)
                    out.append((place, number(text)))
        return sorted(out), off


def scale(ticks):
    """Return (a, b, logarithmic) with place = a + b v, or b log10 v, or None if the numbers are on neither scale."""
    at, v = np.array([p for p, _ in ticks]), np.array([v for _, v in ticks])
    if len(v) < 2:
        return None
    for logarithmic in (False, True):
        if logarithmic and v.min() <= 0:
            continue
        u = np.log10(v) if logarithmic else v
        b, a = np.polyfit(u, at, 1)
        if b and np.abs(a + b * u - at).max() < .015:
            return a, b, logarithmic
    return None


def place(s, v):
    return s[0] + s[1] * (np.log10(v) if s[2] else np.asarray(v, float))
