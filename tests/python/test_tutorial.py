#!/usr/bin/env python3
"""usage: test_tutorial.py KVFATE TINY_MODEL SOURCE_ROOT [--default-model] [--keep FOLDER]

Runs the notebook examples/notebooks/own_method.ipynb, with a tiny model in the cell with the tag
`parameters`: in this process, as Jupyter does, and in a kernel if nbclient and ipykernel are
installed. Runs the Python of "Write it in Python" in docs/guide/own-method.md, which has at most 10
lines. Compares the pixels of the report in a notebook's cell with 1,000 x 600, in Chromium if it is
installed."""
import ast
import base64
import json
import os
import re
import sys
import tempfile
import warnings
from pathlib import Path

KVFATE, MODEL, ROOT = map(os.path.abspath, sys.argv[1:4])
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests/report")]
os.environ["PATH"] = os.path.dirname(KVFATE) + os.pathsep + os.environ["PATH"]
os.environ["PYTHONPATH"] = os.path.join(ROOT, "python")  # for the kernel that nbclient starts
from check import check, finish  # noqa: E402
import kvfate  # noqa: E402

BOOK = Path(ROOT, "examples/notebooks/own_method.ipynb")
TINY = "import numpy\nmodel, prompt = %r, numpy.random.default_rng(3).integers(3, 300, 90).tolist()\n" % MODEL
DEFAULT = "--default-model" in sys.argv
KEEP = os.path.abspath(sys.argv[sys.argv.index("--keep") + 1]) if "--keep" in sys.argv else None
warnings.simplefilter("ignore")


def notebook():
    """Returns the notebook, with the tiny model in the place of the default one."""
    book = json.loads(BOOK.read_text(encoding="utf-8"))
    check("stored without outputs", all(not c.get("outputs") and not c.get("execution_count") for c in book["cells"]))
    replaced = [c for c in book["cells"] if "parameters" in c["metadata"].get("tags", [])]
    check("a cell of parameters", len(replaced) == 1)
    if not DEFAULT:
        replaced[0]["source"] = TINY.splitlines(True)
    return book


def run_cells(sources, name):
    """Runs cells in one namespace. Returns it, and the values of the last lines."""
    space, values = {"__name__": "__main__"}, []
    for number, text in enumerate(sources):
        tree = ast.parse(text)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "%s, cell %d" % (name, number), "exec"), space)
        values.append(eval(compile(ast.Expression(last.value), "%s, cell %d" % (name, number), "eval"), space) if last else None)
    return space, values


def here(book):
    space, values = run_cells(["".join(c["source"]) for c in book["cells"] if c["cell_type"] == "code"], "own_method")
    pictures = [v.png for v in values if hasattr(v, "_repr_png_")]
    check("3 figures", len(pictures) == 3 and all(p[:4] == b"\x89PNG" and len(p) > 3000 for p in pictures))
    check("the trace shows itself", "steps" in space["full"]._repr_html_())
    check("the last cell", set(values[-1]) == {"full cache", "my_score", "h2o"} and all(0 < x < 20 for x in values[-1].values()), values[-1])
    check("some entries are evicted", (space["mine"].evict_step[0, 0] < space["mine"].steps).any() and len(space["evicted"][space["evicted"].columns[0]]) > 0)
    return space


def by_nbclient(book):
    try:
        import nbclient
        import nbformat
        import ipykernel.kernelapp  # noqa: F401
    except ImportError as e:
        return print("the cells ran in this process, and not in a kernel: %s" % e)
    node = nbformat.reads(json.dumps(book), as_version=4)
    nbclient.NotebookClient(node, timeout=600, kernel_name="python3", resources={"metadata": {"path": os.getcwd()}}).execute()
    kinds = [kind for c in node.cells if c.cell_type == "code" for o in c.outputs for kind in o.get("data", {})]
    check("nbclient: outputs", kinds.count("image/png") == 3 and "text/html" in kinds, kinds)


def ten_lines():
    """The example of the page needs at most 10 lines of Python, from the import to the figure's file."""
    page = Path(ROOT, "docs/guide/own-method.md").read_text(encoding="utf-8")
    section = page[page.index("## Write it in Python"):]
    text = "\n".join(x[4:] for x in re.search(r"\n\n((?:    .*\n|\n)+)", section)[1].splitlines())
    lines = [x for x in text.splitlines() if x.strip()]
    check("10 lines", len(lines) <= 10 and "survival.figure" in text, lines)
    if not DEFAULT:
        text = text.replace("kvfate.run(None,", "kvfate.run(%r," % MODEL).replace('Path("boats.txt")', "%r" % list(range(5, 95)))
    run_cells([text], "own-method.md")
    check("its figure", Path("survival.pdf").read_bytes()[:4] == b"%PDF")


def widget(trace):
    """The report in a notebook: all of its panels are reachable in a cell of 1,000 x 600 pixels."""
    import browser
    path = browser.find()
    if path is None:
        return print("the report is not shown in a browser: Chromium is not installed")
    Path("cell.html").write_text("<!doctype html><meta charset=utf-8><body style='margin:0'>" + trace.report()._repr_html_(), encoding="utf-8")
    b = browser.Browser(path, ["--window-size=1000,600"])
    try:
        b.call("Emulation.setDeviceMetricsOverride", width=1000, height=600, deviceScaleFactor=1, mobile=False)
        b.call("Page.navigate", url="file://" + os.path.abspath("cell.html"))
        b.until("document.querySelector('iframe') && document.querySelector('iframe').contentDocument.querySelector('canvas, svg') !== null")
        size = b.run("(f => { let r = f.getBoundingClientRect(); let e = f.contentDocument.documentElement;"
                     " return {width: r.width, height: r.height, page: document.documentElement.scrollWidth, tall: document.documentElement.scrollHeight,"
                     " inner: e.scrollWidth, clientWidth: e.clientWidth} })(document.querySelector('iframe'))")
        check("a cell of 1,000 x 600", size["width"] <= 1000 and size["height"] <= 600 and size["page"] <= 1000 and size["tall"] <= 600
              and size["inner"] <= size["clientWidth"], size)
        check("no error in the page", not b.errors, b.errors)
        b.until("(m => m && m.width > 0 && new Set(m.getContext('2d').getImageData(0, 0, m.width, m.height).data).size > 4)"
                "(document.querySelector('iframe').contentDocument.querySelector('canvas.map'))")
        bottom = b.run("document.querySelector('iframe').contentDocument.querySelector('canvas.map').getBoundingClientRect().bottom")
        check("the map is drawn in sight", bottom <= 600, bottom)
        if KEEP:
            Path(KEEP, "widget.png").write_bytes(base64.b64decode(b.call("Page.captureScreenshot")["data"]))
    finally:
        b.close()


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    Path("boats.txt").write_text("The keeper of the lighthouse counts boats every evening. Count them with her: one, two, three, four, five, six.")
    book = notebook()
    space = here(book)
    by_nbclient(book)
    ten_lines()
    widget(space["mine"])
finish()
