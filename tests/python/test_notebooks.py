#!/usr/bin/env python3
"""usage: test_notebooks.py KVFATE LIBKVFTRACE SOURCE_ROOT FOLDER_OF_TINY_MODELS [--keep FOLDER]
                         [--default-model]

Runs the cells of the notebooks in examples/notebooks in one namespace, as Jupyter does, and also
with nbclient if it is installed. A tiny random model replaces the cell with the tag `parameters`.
The output of cells is stored in FOLDER for inspection. --default-model: SmolLM2 from the cache
folder instead. Skips if torch and related packages are not installed; KVFATE_TORCH_PYTHON names a
Python that has them."""
import ast
import json
import os
import sys
import tempfile
from pathlib import Path

from capture_checks import ROOT, begin

begin("notebooks", "gguf", "torch", "transformers", "pandas")
from check import check, finish  # noqa: E402
import kvfate  # noqa: E402
from kvfate.adapters import fits  # noqa: E402

TINY = """
import sys, numpy, torch
sys.path[:0] = [%r, %r]
import make_family_golden as golden
model, tokenizer = golden.load(golden.File(%r), "Llama", "").float(), None
model.set_attn_implementation("sdpa")
model.generation_config.eos_token_id = None
ids, new = torch.tensor(numpy.random.default_rng(3).integers(3, 300, (1, 200))), 24
""" % (os.path.join(ROOT, "python"), os.path.join(ROOT, "tests/data/golden/tools"), os.path.join(os.path.abspath(sys.argv[4]), "tiny0.gguf"))
DEFAULT = """
import os, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, file = os.path.expanduser("~/.cache/kvfate"), "SmolLM2-135M-Instruct.Q4_1.gguf"
tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
ids, new = tokenizer(open(%r).read(), return_tensors="pt")["input_ids"][:, :400], 40
""" % os.path.join(ROOT, "docs/guide/own-method.md")
KEEP = os.path.abspath(sys.argv[sys.argv.index("--keep") + 1]) if "--keep" in sys.argv else None


def cells(path):
    """Returns the notebook, and the source of its code cells with the model replaced."""
    book = json.loads(Path(path).read_text())
    own = DEFAULT if "--default-model" in sys.argv else TINY
    for cell in book["cells"]:
        if "parameters" in cell["metadata"].get("tags", []):
            cell["source"] = own.splitlines(True)
    return book, ["".join(c["source"]) for c in book["cells"] if c["cell_type"] == "code"]


def shown(value, stem):
    """Returns what a notebook would show for the value of a cell's last line."""
    for method, end in (("_repr_png_", ".png"), ("_repr_html_", ".html")):
        show = getattr(value, method, None)
        data = show() if show else None
        if data:
            if KEEP:
                Path(os.path.join(KEEP, stem + end)).write_bytes(data if isinstance(data, bytes) else data.encode("utf-8"))
            return data
    return repr(value) if value is not None else None


def run(name, source):
    space, seen = {"__name__": "__main__"}, []
    for number, text in enumerate(source):
        tree = ast.parse(text)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "%s, cell %d" % (name, number), "exec"), space)
        value = eval(compile(ast.Expression(last.value), "%s, cell %d" % (name, number), "eval"), space) if last is not None else None
        seen.append(shown(value, "%s-%02d" % (name, number)))
    return space, seen


def plain(name):
    """A notebook is stored without outputs, its lines are short, and links have existing
    targets."""
    path = os.path.join(ROOT, "examples/notebooks", name + ".ipynb")
    book = json.loads(Path(path).read_text())
    check(name + ": no outputs", all(not c.get("outputs") and not c.get("execution_count") for c in book["cells"]))
    check(name + ": words", sum(c["cell_type"] == "markdown" for c in book["cells"]) >= 6)
    return path


def by_nbclient(path):
    try:
        import nbclient
        import nbformat
        import ipykernel.kernelapp  # noqa: F401
    except ImportError as e:
        print("not run by nbclient as well:", e)
        return
    book, _ = cells(path)
    node = nbformat.reads(json.dumps(book), as_version=4)
    nbclient.NotebookClient(node, timeout=1200, kernel_name="python3", resources={"metadata": {"path": os.getcwd()}}).execute()
    kinds = [kind for c in node.cells if c.cell_type == "code" for o in c.outputs for kind in o.get("data", {})]
    check("nbclient: figures", kinds.count("image/png") >= 5 and "text/html" in kinds, kinds)


with tempfile.TemporaryDirectory() as FOLDER:
    os.chdir(FOLDER)
    os.environ["PYTHONPATH"] = os.path.join(ROOT, "python")  # for the kernel that nbclient starts
    if KEEP:
        os.makedirs(KEEP, exist_ok=True)
    for name, needs in (("model_to_figures", None), ("kvpress_head_by_head", "kvpress")):
        path = plain(name)
        try:
            if needs:
                fits(needs)
                __import__(needs)
        except (ImportError, kvfate.Error) as e:
            print("%s is not run: %s" % (name, e))
            continue
        space, seen = run(name, cells(path)[1])
        pictures = [s for s in seen if isinstance(s, bytes) and s.startswith(b"\x89PNG") and len(s) > 3000]
        check(name + ": figures", len(pictures) == (5 if needs is None else 3), len(pictures))
        if needs is None:
            check(name + ": a table", "top64" in str(seen[4]) or "top64" in str(seen[3]), seen[:5])
            check(name + ": files", all(os.path.getsize(p) > 2000 for p in ("survival.pdf", "run.html")))
            check(name + ": columns", space["sink"].shape == (len(space["trace"].heads), space["trace"].heads[0][1]) and 0 < space["sink"].max() <= 1)
            by_nbclient(path)
        else:
            half = space["T"] // 2
            check(name + ": kept", all((k.sum(1) == half).all() for k in space["sets"].values()), half)
            check(name + ": agreement", all((space["agreement"](k, k) == 1).all() for k in space["sets"].values()) and 0 < space["x"].min() < 1)
finish()
