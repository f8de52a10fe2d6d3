"""Check docs/reference/gallery.md: every command runs (examples/gallery.sh, with a tiny model and gates instead of the
default ones). Every figure has a command.  Every picture on the page exists, is drawn by a command, and is small.

usage: test_gallery.py KVFATE ROOT [OUT]
"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
from server import figures  # noqa: E402

KVFATE, ROOT = map(os.path.abspath, sys.argv[1:3])
DATA = os.path.join(ROOT, "tests", "data")
DECLARED = json.loads(subprocess.run([KVFATE, "list", "all", "--json"], capture_output=True, check=True).stdout)["commands"]
TINY = "--layers 30 --heads 9 --kv-heads 3 --head-dim 8".split()
SIDE = ("trimkv", "dbtrimkv", "gkv", "wgkv")  # docs/guide/side-NAME.md: more commands on the same traces
MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"  # the file name of the default model
# Bytes of the texts, which give tiny models about as many tokens, and replacements for the commands with longer ones.
TEXTS = {"examples/demo/problem.txt": 200, "examples/demo/camels.txt": 120, "examples/demo/salt.txt": 110, "examples/demo/scripts.txt": 120,
         "LICENSE": 100, "examples/01_read_trace.c": 110}
SHORTER = {"for n in 100 200 400 800; do for s in $(seq 0 15)": "for n in 150 200; do for s in 0 1", "for s in $(seq 0 15)": "for s in 0 1", "n400-$s": "n200-$s", "lengths-400-": "lengths-200-", "4:152": "4:60", "--tokens 1020:1080": "--tokens 150:190", "steps=1046:": "steps=200:", "-n 256": "-n 20", "-n 200": "-n 40", "-n 160": "-n 50",
           "tasks needle --tokens 400": "tasks needle --tokens 170", "dilution -n 12 -o needle": "dilution -n 4 -o needle", "dilution --shadow entries -n 12": "dilution --shadow entries -n 4", "--tokens 500 --keys 8 -n 40": "--tokens 250 --keys 2 -n 2", "--tokens 400:": "--tokens 150:", "0:400": "0:160", "0:187": "0:150", "24:205": "24:160", "horizon=126": "horizon=63", "span=0:150": "span=0:20", "--tokens 140 --keys 3": "--tokens 300 --keys 2", "span=: --each": "span=0:20 --each", "problem.txt -o effect.tsv": "problem.txt --score-tokens 3 -o effect.tsv", "--score-tokens 16": "--score-tokens 2"}
LARGEST = 265000  # bytes: a clone stays small, and lines stay sharp
COMMAND = r"(mkdir -p \w+ && )?kvfate \w|for "
# Figures that a command draws without naming them.
DRAWN_BY = {"difference": " --minus ", "causal": " draw causal.tsv", "pareto": " draw .*eval.tsv", "claims": " draw .*claims.tsv", "effect": " draw effect.tsv", "effect-text": " draw keys3.tsv", "saliency": " draw saliency.tsv", "training": " curves "}
PHOTOGRAPHS = {"report.png"}  # of a browser


def commands(text):
    return [re.sub(r"  *# .*", "", line[4:]) for line in text.split("\n") if line.startswith("    ")]


def side_pages(made):
    """Return the commands of the side pages, and check their pictures, which they or the gallery (made) draw.  Commands
    of write gates are omitted, because there is no tiny file of them.
    """
    out = []
    for name in SIDE:
        page = Path(os.path.join(ROOT, "docs", "guide", f"side-{name}.md")).read_text(encoding="utf-8")
        lines = commands(page)
        for picture in re.findall(r"!\[[^\]]+\]\(\.\./img/([\w.-]+)\)", page):
            check(f"{picture} is drawn and there", any(f"-o {picture}" in x for x in lines + made) and 0 < os.path.getsize(os.path.join(ROOT, "docs", "img", picture)) <= LARGEST)
        out += [x for x in lines if not re.search(r"\bwg-|\bw13-", x) and x not in made]
    return out


def analysis_of(line):
    """Returns the name of the command that a line runs, by the longest words: "hazard" for "kvfate survival --as hazard x.kvf"."""
    return max(((c["words"], c["name"]) for c in DECLARED if f"{line} ".startswith(f"kvfate {c['words']} ")), default=("", ""), key=lambda x: len(x[0]))[1]


def check_page(page, lines):
    drawing = [x for x in lines if re.search(r"-o [\w.-]+\.(png|svg|pdf)", x)]
    for f in figures(KVFATE):
        name = f["name"]
        of = [x for x in drawing if f["label"] == name or analysis_of(x) == f["table"]]
        mine = [x for x in of if re.search(DRAWN_BY.get(name, f" --figure {name} "), x)]
        if name not in DRAWN_BY and f["default"]:
            mine += [x for x in of if analysis_of(x) == f["table"] and "--figure" not in x]
        check(f"{f['label']} is drawn by a command", mine)
        check(f"{name} has a paragraph", re.search(rf"^## {name}$", page, re.M) or f"| `{name}` |" in page)
    made = {x for line in drawing for x in re.findall(r"-o ([\w.-]+)", line)}
    shown = re.findall(r"!\[[^\]]+\]\(\.\./img/([\w.-]+)\)", page)
    check("pictures are shown", len(shown) > 40 and len(set(shown)) == len(shown), len(shown))
    for name in shown:
        path = os.path.join(ROOT, "docs", "img", name)
        check(f"{name} is drawn by a command", name in made | PHOTOGRAPHS)
        check(f"{name} is there", os.path.exists(path))
        size = os.path.getsize(path) if os.path.exists(path) else 0
        check(f"{name} is small", size <= LARGEST or name in PHOTOGRAPHS, size)
    extra = {x for x in made if x.endswith(".png")} - set(shown)
    check("what is drawn as PNG is shown", not extra, extra)
    return drawing


def make(tool, *argv):
    subprocess.run([sys.executable, os.path.join(DATA, *tool.split("/")), *argv], check=True, stdout=subprocess.DEVNULL)


def prepare(work):
    """Make a tiny model under the name of the default one, gates for it, and short texts."""
    model, gates, out = (os.path.join(work, x) for x in ("cache/" + MODEL, "gates", "out"))
    for folder in ("cache", "gates", "out/examples/demo"):
        os.makedirs(os.path.join(work, folder))
    make("golden/tools/gen_tiny.py", *TINY, "--dim", "36", "--ffn", "32", "--type", "f32", "--context", "8192", "-o", model)
    environment = {**os.environ, "KVFATE": KVFATE, "KVFATE_CACHE": os.path.dirname(model), "KVFATE_GATES": gates, "DPI": "70"}
    trace = os.path.join(work, "x.kvf")
    subprocess.run([KVFATE, "run", "--raw", "-p", "a", "-n", "1", "-q", "-o", trace], env=environment, check=True, capture_output=True)
    table = subprocess.run([KVFATE, "size", "--as", "sparsity", trace, "-o", "-"], capture_output=True, text=True, check=True).stdout
    for layout, name in (("rg", "trimkv"), ("rg10", "dbtrimkv")):
        make("make_gates.py", "--layout", layout, *TINY, "--d-model", "36", "--hidden", "8", "--model-hash", re.search("# model_hash: (.*)", table).group(1),
             "-o", os.path.join(gates, f"tiny-{name}.safetensors"))
    for name, size in TEXTS.items():
        with open(os.path.join(ROOT, name), "rb") as f:
            text = f.read(size).decode(errors="ignore")
        Path(os.path.join(out, name)).write_text(text, encoding="utf-8")
    os.symlink(os.path.join(ROOT, "examples", "tables"), os.path.join(out, "examples", "tables"))
    return out, environment


def check_files(out, lines, drawing):
    done = Path(os.path.join(out, "done")).read_text(encoding="utf-8").split("\n")
    check("every command ran", set(lines) <= set(done), set(lines) - set(done))
    for name in {x for line in drawing for x in re.findall(r"-o ([\w.-]+)", line)}:
        with open(os.path.join(out, name), "rb") as f:
            head = f.read(24)
        if name.endswith(".pdf"):
            check(name, head[:5] == b"%PDF-")
        else:
            w, h = struct.unpack(">II", head[16:])
            check(name, head[:8] == b"\x89PNG\r\n\x1a\n" and w > 100 and h > 50, w, h)


def main(work):
    with open(os.path.join(ROOT, "docs", "reference", "gallery.md"), encoding="utf-8") as f:
        page = re.sub(r"<!-- made by .*?<!-- end -->\n", "", f.read(), flags=re.S)  # the list of all figures is not a paragraph
    lines = commands(page)
    check("commands", len(lines) > 90 and all(re.match(COMMAND, x) for x in lines), [x for x in lines if not re.match(COMMAND, x)])
    drawing = check_page(page, lines)
    page += "".join(f"    {line}\n" for line in side_pages(lines))
    out, environment = prepare(work)
    began = time.time()
    for a, b in SHORTER.items():
        check(f"{a} is said", a in page)
        page = page.replace(a, b)
    environment["PAGE"] = os.path.join(work, "gallery.md")
    Path(environment["PAGE"]).write_text(page, encoding="utf-8")
    lines = commands(page)
    done = subprocess.run([os.path.join(ROOT, "examples", "gallery.sh"), out, "all"], env=environment, capture_output=True, text=True, errors="replace")
    print(f"{len(lines)} commands in {time.time() - began:.0f} s")
    check("the script", done.returncode == 0, done.stderr[-600:].encode("ascii", "replace"))
    if done.returncode == 0:
        check_files(out, lines, drawing)
    if len(sys.argv) > 3:  # to look at
        shutil.copytree(out, sys.argv[3], dirs_exist_ok=True)


with tempfile.TemporaryDirectory(prefix="kvfate-gallery-") as folder:
    main(folder)
finish()
