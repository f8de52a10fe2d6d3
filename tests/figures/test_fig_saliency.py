"""Check the figure saliency on a synthetic table: the sums of bars and cells, the texts of the highest bars, the notes.
usage: test_fig_saliency.py DRAW_TABLE
"""
import os
import sys

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
from readers import Svg
from test_panels import affine, bars, draw, tsv, words_of

LAYERS, HEADS, T = 3, 2, 12
BLUE = (33, 102, 172)
COLUMNS = ["head", "layer", "index", "token", "saliency", "text"]
TEXTS = [f"word{i}" for i in range(T)]
value = np.random.default_rng(5).normal(0, .2, (LAYERS, HEADS, T))
value[:, :, 3] = np.array([[9, -8], [7, 6], [-5, 4]])
value[:, :, 9] *= 20
rows = [(f"L{layer}K{h}", layer, h, i, value[layer, h, i], TEXTS[i]) for layer in range(LAYERS) for h in range(HEADS) for i in range(T)]
META = {"model": "a model", "method": "h2o", "budget": 64, "T": T}


def heights(svg):
    """Return the lower and upper ends of the bars from left to right, in mm from the top."""
    found = sorted(bars(svg, BLUE))
    return np.array([(y + h, y) for _, y, _, h in found])


def lightness(svg):
    """Return the sums of the colours of the cells [rows][tokens]."""
    image = max((m[0] for m in Svg(text=svg.decode()).images()), key=lambda p: p.shape[1])
    return image[2::5, :, :3].astype(int).sum(2)


code, svg, said = draw(tsv("saliency", COLUMNS, rows, **META), "saliency")
check("drawn", code == 0 and not said, said)
size = np.abs(value).sum((0, 1))
got = heights(svg)
check("a bar for each token, as high as the sum over all heads", len(got) == T and affine(list(size), list(-got[:, 1])) and np.ptp(got[:, 0]) < .01, got, size)
words = words_of(svg)
check("the highest bars have their texts", all(TEXTS[i] in words for i in np.argsort(-size)[:2]), words)
check("the notes", "bars: sum of |saliency| over 6 KV heads; cells: over those of a layer" in words and "a model; h2o, budget 64; 12 tokens" in words, words)
one = draw(tsv("saliency", COLUMNS, rows[:T], **META), "saliency")
check("one head: the note", "over 1 KV head;" in words_of(one[1]), words_of(one[1]))
cell, layer = lightness(svg), np.abs(value).sum(1)
order = np.argsort(layer.ravel())
check("a row for each layer: darker cells have larger sums", cell.shape == layer.shape and (np.diff(cell.ravel()[order]) <= 0).all() and len(set(cell.ravel())) > 5, cell, layer)

code, svg, said = draw(tsv("saliency", COLUMNS, rows, **META), "saliency", style="rows=head")
cell = lightness(svg)
check("a row for each head", code == 0 and cell.shape == (LAYERS * HEADS, T)
      and (np.diff(cell.ravel()[np.argsort(np.abs(value).ravel())]) <= 0).all(), said, cell)

code, svg, said = draw(tsv("saliency", COLUMNS, rows, **META), "saliency", style="value=signed")
signed, got = value.sum((0, 1)), heights(svg)
up = signed > 0
unit, zero = np.polyfit(signed[up], got[up, 1], 1)
check("bars of signed sums go up and down", code == 0 and affine(list(signed[up]), list(-got[up, 1]))
      and np.allclose(got[~up, 0], zero + unit * signed[~up], atol=.15), said, signed, got)  # cells overlap downward
image = max((m[0] for m in Svg(text=svg.decode()).images()), key=lambda p: p.shape[1])[0::5].astype(int)
layer = value.sum(1)
big = np.abs(layer) > .3
check("signs have colours", ((image[:, :, 2] > image[:, :, 0]) == (layer > 0))[big].all() and big.sum() > 5, image, layer)

code, svg, said = draw(tsv("saliency", COLUMNS[:-1], [r[:-1] for r in rows]), "saliency")
check("a table without texts has positions", code == 0 and "3" in words_of(svg) and "word3" not in words_of(svg), said)
finish()
