"""Check the title of the figure difference: what is subtracted from what.  usage: test_fig_difference.py DRAW_TABLE"""
import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
from test_panels import draw, tsv, words_of

COLUMNS = ["head", "layer", "index", "difference"]
ROWS = [(f"L{layer}K{h}", layer, h, layer - h) for layer in range(3) for h in range(2)]


def title(**meta):
    code, svg, said = draw(tsv("difference", COLUMNS, ROWS, value="sparsity", **{k.replace("_of_", "."): v for k, v in meta.items()}), "difference")
    check(f"drawn with {meta}", code == 0 and "difference of sparsity" in words_of(svg), said)
    return words_of(svg) if " minus " in words_of(svg) else ""


check("criteria", "top-64 minus mass 0.90" in title(minuend_of_criterion="top64", subtrahend_of_criterion="mass.90"))
check("methods before budgets", "h2o minus trimkv" in title(minuend_of_budget=64, subtrahend_of_budget=32, minuend_of_method="h2o", subtrahend_of_method="trimkv"))
check("nothing that differs: no title", not title(method="h2o"))
check("one side only: no title", not title(minuend_of_method="h2o"))
finish()
