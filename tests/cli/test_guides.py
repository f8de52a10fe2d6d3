#!/usr/bin/env python3
"""Runs every command of the guides first-figures, own-model and own-method with a tiny random model
instead of the default one, and compiles the score that own-method writes in C.

usage: test_guides.py KVFATE ROOT GEN_TINY
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402

kvfate, root, gen_tiny = map(os.path.abspath, sys.argv[1:4])
MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
# The model has the heads that the pages use: 30 layers of 3 KV heads.
SHAPE = "--layers 30 --heads 9 --kv-heads 3 --head-dim 4 --dim 36 --ffn 48 --context 2048 --seed 5".split()
COMMAND = re.compile(r"(kvfate (?!run: )|grep |printf |/usr/bin/python3 )")


def blocks(page):
    """Returns the indented blocks of a page as lists of lines; continuation lines are joined."""
    text = Path(os.path.join(root, "docs", "guide", page)).read_text(encoding="utf-8").replace("\\\n", "")
    return [[line[4:] for line in block.split("\n") if line.startswith("    ")]
            for block in re.split(r"\n(?:(?! {4}).*\n)+", text)]


def shell(line, folder):
    env = {**os.environ, "KVFATE_CACHE": os.path.join(folder, "cache"), "PATH": os.path.dirname(kvfate) + os.pathsep + os.environ["PATH"]}
    done = subprocess.run(["sh", "-c", line], cwd=folder, env=env, capture_output=True, text=True, errors="replace")
    check(line, done.returncode == 0, done.returncode, done.stderr[-300:])
    for name in re.findall(r" -o ([\w.-]+\.\w+)", line):
        check(f"{name} is there", os.path.exists(os.path.join(folder, name)), line)
    return done.stdout


def run_page(page, folder):
    """Runs the commands of a page in order. Lines that begin with `model` are the output of the
    previous command."""
    printed, n = "", 0
    for line in (x for block in blocks(page) for x in block):
        if COMMAND.match(line) and "value-norm" not in line:
            printed, n = shell(line, folder), n + 1
        elif line.startswith("model "):
            check(f"{page}: {line[:40]}", line in printed.split("\n"), printed[:400])
    return n


def check_refusal(folder):
    """The program must name the two remedies that own-model names: a file of gates, and training."""
    argv = [kvfate, *"run -m tiny.gguf --raw -p a --method trimkv --budget 8 -o none.kvf".split()]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True)
    page = " ".join(Path(os.path.join(root, "docs", "guide", "own-model.md")).read_text(encoding="utf-8").split())
    check("own-model: gates are missing", done.returncode and "give --gates FILE, or train them with kvfate train --method trimkv" in done.stderr
          and "give `--gates FILE`, or train them" in page, done.stderr)


def check_heads_gates(folder):
    """The recipe of WG-KV's figure 7 in paper-figures.md: gates of `duo` from an effect, with heads
    in the order of their KL."""
    with open(os.path.join(root, "docs/guide/paper-figures.md"), encoding="utf-8") as f:
        row = next(line for line in f if line.startswith("| Figure 7, Figure 14 | accuracy on HELMET"))
    effect, gates, score = [x for x in re.findall(r"`([^`]+)`", row) if x.startswith(("kvfate ablate", "examples/", "kvfate eval"))]
    shell(effect + " --score-tokens 2 --recent 16 --ignore-eos", folder)
    shell(f"{sys.executable} {root}/" + gates, folder)
    shell(score.replace("wgkv:tau=0.05,wgkv:tau=0.2,", "").replace("duo,local", "duo:sinks=4,recent=16,local:sinks=4,recent=16").replace("--data text.txt --docs 2 ", "")
          + " --data examples/demo/problem.txt --docs 1 --prompt-tokens 48 --score-tokens 2", folder)
    with open(os.path.join(folder, "effect.tsv"), encoding="utf-8") as f:
        rows = [line.rstrip("\n").split("\t") for line in f if not line.startswith("#")]
    kl = [float(r[rows[0].index("kl")]) for r in rows[1:] if r[0] != "all"]
    alpha = list(memoryview(Path(os.path.join(folder, "duo.safetensors")).read_bytes()[-4 * len(kl):]).cast("f"))
    check("alphas have the order of the effect", len(kl) == 90 and min(alpha) == 0 and max(alpha) == 1
          and sorted(range(90), key=lambda k: alpha[k]) == sorted(range(90), key=lambda k: (kl[k], k)), alpha, kl)
    with open(os.path.join(folder, "effect.tsv"), encoding="utf-8") as f, open(os.path.join(folder, "cut.tsv"), "w", encoding="utf-8") as to:
        to.writelines(line for line in f if not line.startswith("L0K2"))
    done = subprocess.run([sys.executable, os.path.join(root, "examples/duo_alpha.py"), "cut.tsv", "none"], cwd=folder, capture_output=True, text=True)
    check("some heads alone are refused", done.returncode == 1 and "each of 30 x 3" in done.stderr and done.stderr.count("\n") == 1, done)


def check_score():
    """The two diffs of own-method: the file compiles without a warning, and the lines around the
    new line are those of the list."""
    diffs = {m[1]: b for b in blocks("own-method.md") for line in b if (m := re.match(r"\+\+\+ b/(.*)", line))}
    check("two diffs", sorted(diffs) == ["engine/method/score_value_norm.c", "engine/method/scores.list"], sorted(diffs))
    new = [x[1:] for x in diffs["engine/method/score_value_norm.c"] if re.match(r"\+(?!\+\+)", x)]
    check("lines of the file", f"@@ -0,0 +1,{len(new)} @@" in diffs["engine/method/score_value_norm.c"], len(new))
    argv = ["cc", "-std=gnu11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I.", "-Ibase/include", "-Ilibtrace/include", "-xc", "-"]
    done = subprocess.run(argv, cwd=root, input="\n".join(new) + "\n", capture_output=True, text=True)
    check("the score compiles", done.returncode == 0, done.stderr)
    context = [x[1:] for x in diffs["engine/method/scores.list"] if x.startswith(" ")]
    with open(os.path.join(root, "engine/method/scores.list"), encoding="utf-8") as f:
        check("lines of the list", "\n".join(context) in f.read() and len(context) == 6, context)


with tempfile.TemporaryDirectory(prefix="kvfate-guides-") as folder:
    os.makedirs(os.path.join(folder, "cache"))
    subprocess.run([sys.executable, gen_tiny, *SHAPE, "-o", os.path.join(folder, "cache", MODEL)], check=True)
    os.makedirs(os.path.join(folder, "examples/demo"))
    start = Path(os.path.join(root, "examples/demo/problem.txt")).read_text(encoding="utf-8")[:600]
    Path(os.path.join(folder, "examples/demo/problem.txt")).write_text(start, encoding="utf-8")
    os.makedirs(os.path.join(folder, "docs/reference"))
    shutil.copy(os.path.join(root, "docs/reference/eval.md"), os.path.join(folder, "docs/reference"))
    os.symlink(os.path.join(root, "tests"), os.path.join(folder, "tests"))
    for page, least in (("first-figures.md", 10), ("own-model.md", 8), ("own-method.md", 14)):
        n = run_page(page, folder)
        check(f"{page}: no command is left out", n >= least, n)
    check_refusal(folder)
    check_heads_gates(folder)
check_score()
finish()
