"""Check views.py: grey, print and colour-blind views of known colours.  usage: test_views.py"""
import os
import sys

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
from views import EYES, VIEWS, linear, view


def seen(name, *colours):
    return view(np.array([colours], np.uint8), name)[0].astype(int)


greys = [(v, v, v) for v in (0, 64, 128, 200, 255)]
for name in (*EYES, "grey"):
    check(f"{name}: greys stay", np.abs(seen(name, *greys) - greys).max() <= 1, seen(name, *greys))
for name, m in EYES.items():  # an eye with two kinds of cones: its colours are in a plane
    s = np.linalg.svd(np.array(m), compute_uv=False)
    check(f"{name}: nearly two dimensions", s[2] < (.13 if name == "tritanopia" else .02) * s[0], s)  # the authors call it approximate
red, green, blue = (200, 0, 0), (0, 200, 0), (0, 0, 200)
for c, weight in ((red, .2126), (green, .7152), (blue, .0722)):
    check(f"grey of {c}", np.allclose(linear(seen("grey", c)[0]), weight * linear(200), atol=.003), seen("grey", c))


def far(a, b):
    return np.abs(np.subtract(a, b)).max()


a, b = seen("deuteranopia", (213, 94, 0), (140, 130, 0))
check("deuteranopia: vermilion comes near olive", far(a, b) < .5 * far((213, 94, 0), (140, 130, 0)), a, b)
a, b = seen("tritanopia", (0, 114, 178), (0, 120, 130))
check("tritanopia: blue comes near teal", far(a, b) < .5 * far((0, 114, 178), (0, 120, 130)), a, b)
white, black, cyan, clear = seen("print", (255, 255, 255), (0, 0, 0), (0, 255, 255), (0, 0, 255))
check("print: paper is white, black is dark", white.min() >= 254 and black.max() < 60, white, black)
check("print: pure blue is out of reach", clear[2] < 200 and cyan[0] < 60, clear, cyan)
check("pixels keep their places", (view(np.array([[red, green], [blue, red]], np.uint8), "print")[0, 0] == seen("print", red)[0]).all() and len(VIEWS) == 5)
finish()
