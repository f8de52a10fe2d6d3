#!/usr/bin/env python3
"""Runs every command in `kvfate list all --json` on a trained model, stories260K (Llama's block, a
vocabulary of 512 SentencePiece tokens), or on its traces and tables. KVFATE_COMMANDS_MODEL=NAME runs them
on a model of `kvfate models` instead, and then the lines of use in the README with `-m NAME`.

A command without a line here fails the test. Each must end with 0 and write the output named in its
line: a trace that verifies, a table with numbers in range, a picture, or text. Commands that need
more memory than is free are left out with a message. Without
~/.cache/kvfate/stories260K.gguf the test is skipped with a message, unless a model is named."""
import csv
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
from harness import Suite

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.path.join(ROOT, "tests", "data")
STORIES = os.path.expanduser("~/.cache/kvfate/stories260K.gguf")
MODEL = os.environ.get("KVFATE_COMMANDS_MODEL", STORIES)
if MODEL == STORIES and not os.path.exists(MODEL):
    print("stories260K.gguf is not in ~/.cache/kvfate: left out")
    sys.exit(77)

s = Suite()
os.chdir(s.work.name)
TOLD = json.loads(subprocess.check_output([s.exe, "list", "all", "--json"]))
COMMANDS = {c["name"]: c for c in TOLD["commands"]}
ANALYSES = {a["name"]: a for a in TOLD["analyzers"]}
SHAPE = json.loads(subprocess.check_output([s.exe, "models", MODEL, "--json"]))
if MODEL == STORIES:
    s.check("shape", [SHAPE[k] for k in ("layers", "query_heads", "kv_heads", "width", "vocab")] == [5, 8, 4, 64, 512], SHAPE)
LAYERS, HEADS, KV, HEAD_DIM, DIM, VOCAB = (SHAPE[k] for k in ("layers", "query_heads", "kv_heads", "head_dim", "width", "vocab"))
BUDGET, RANK = 40, 0 if MODEL == STORIES else 4

STORY = ("Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a big, red ball. "
         "She wanted to play with it. But her mom said it was not her ball. ")
Path("story.txt").write_text(STORY, encoding="utf-8")
Path("long.txt").write_text(STORY * 6, encoding="utf-8")
Path("prose.txt").write_text("".join(f" = Story {i} = \n \n {' '.join((STORY * 3).split()[i:])} \n \n" for i in range(6)), encoding="utf-8")
with open("plan.toml", "w", encoding="utf-8") as f:
    f.write(f'models = ["{MODEL}"]\nmethods = ["full", "h2o"]\nbudgets = [16]\n[[text]]\nname = "prose"\nkind = "documents"\ndata = ["prose.txt"]\n'
            "docs = 2\nprompt_tokens = 60\nscore_tokens = 10\n")
with open("prompts.jsonl", "w", encoding="utf-8") as f:
    f.writelines(json.dumps({"id": f"p{i}", "text": p}) + "\n" for i, p in enumerate(("Once upon a time", "The dog ran")))
with open("gsm.jsonl", "w", encoding="utf-8") as f:
    f.writelines(json.dumps({"question": f"Lily has {i} balls. How many?", "answer": f"#### {i}"}) + "\n" for i in (2, 3))
with open("lines.jsonl", "w", encoding="utf-8") as f:
    f.writelines(json.dumps({"text": t}) + "\n" for t in ("Once upon a time", "The dog ran"))
with open("answers.jsonl", "w", encoding="utf-8") as f:
    f.writelines(json.dumps({"id": f"gsm8k-0000{i}", "text": "#### 2"}) + "\n" for i in (0, 1))
for seed, name in enumerate(("rg", "others")):
    subprocess.run([sys.executable, os.path.join(DATA, "make_gates.py"), *f"--layout rg --layers {LAYERS} --heads {HEADS} --kv-heads {KV} --head-dim {HEAD_DIM} "
                    f"--d-model {DIM} --hidden 8 --seed {seed} -o {name}.safetensors".split()], check=True)

# Command: its lines, in this order; M stands for the model. The output of a line after -o is
# checked by its name (see look()).
M = f"-m {MODEL} --raw -q"
RUN = f"run {M} -f story.txt -n 30 --ignore-eos --probes full --shadow entries,model"
LINES = {
    "run": [f"{RUN} --method trimkv -B {BUDGET} --gates rg.safetensors -o gates.kvf", f"{RUN} --method h2o -B {BUDGET} -o h2o.kvf",
            f"{RUN} -o full.kvf --watch 3,40@L0H0,L2H3 --watch-queries L1H0,L3H4", f"{RUN} --method trimkv -B 500 --gates rg.safetensors -o betas.kvf",
            f"run -m {MODEL} -q --force betas.kvf --method trimkv -B 500 --gates others.safetensors -o others.kvf", f"run {M} -f long.txt -n 1 --probes evict,window,under -o long.kvf",
            f"run -m {MODEL} -q --jsonl prompts.jsonl -n 4 -o batch/"],
    "quickstart": [f"quickstart -m {MODEL} --no-open -n 4 -o first"],
    "generate": [f"generate {M} -p Once -n 20 --ignore-eos"],
    "logits": [f"generate --logits -m {MODEL} --raw -f story.txt -o story.npy"],
    "eval": [f"eval -m {MODEL} --data prose.txt --methods h2o,window,trimkv --gates rg.safetensors --budgets 16,32 --docs 2 --prompt-tokens 60 --score-tokens 8 -o eval.tsv"],
    "effect": [f"ablate -m {MODEL} --raw -f story.txt --recent 8 --score-tokens 8 --ignore-eos -o effect.tsv",
               f"ablate -m {MODEL} --raw -f story.txt --recent 8 --score-tokens 8 --ignore-eos --mirror -o mirror.tsv"],
    "saliency": [f"ablate --as saliency -m {MODEL} --of h2o.kvf -o saliency.kvf", f"ablate --as saliency -m {MODEL} --of h2o.kvf --by-head -o saliency.tsv"],
    "train": [f"train -m {MODEL} --data prose.txt --method trimkv:lr=1e-2,hidden=8 --length 48 --steps 2 --check-every 0 -o own.safetensors"],
    "tune": [f"tune -m {MODEL} --data prose.txt --method window -B {BUDGET} --length 48 --steps 2 --check-every 0 -o tuned.gguf --rank {RANK}"],
    "gates": [f"gates convert {os.path.join(DATA, 'recipes/trimkv_weights.pth')} -o converted.safetensors"],
    "curves": ["train curves own.safetensors.log.jsonl -o training.tsv"],
    "methods": ["methods", "methods --json"],
    "models": ["models", f"models {MODEL}", f"models {MODEL} --json"],
    "study": ["study plan.toml --plan", "study plan.toml"],
    "needle": [f"tasks needle -m {MODEL} --tokens 200 --keys 2 -n 2 -o task"],
    "quiz": ["tasks quiz -n 4 -o quiz.jsonl"],
    "tasks": [f"tasks gsm8k gsm.jsonl -m {MODEL} -o gsm-tasks.jsonl"],
    "score": ["tasks score gsm-tasks.jsonl answers.jsonl -o scores.tsv", "tasks score gsm-tasks.jsonl answers.jsonl"],
    "tokenize": [f"tokenize -m {MODEL} --jsonl lines.jsonl"],
    "causal": [f"ablate --as causal -m {MODEL} --raw task-0.json task-1.json -o causal.tsv"],
    "info": ["trace info h2o.kvf", "trace info h2o.kvf --json", "trace info own.safetensors"],
    "verify": ["trace verify h2o.kvf --full"],
    "repair": ["trace repair h2o.kvf -o repaired.kvf"],
    "compact": ["trace compact h2o.kvf -o compact.kvf"],
    "trim": ["trace trim h2o.kvf --head L0-2K* -o trimmed.kvf"],
    "split": ["trace split h2o.kvf --parts 2 -o half-%d.kvf"],
    "cat": ["trace cat half-1.kvf half-2.kvf -o whole.kvf"],
    "ls": ["trace ls . --where method=h2o"],
    "devices": ["list devices"],
    "export": ["trace export h2o.kvf -o h2o.npz"],
    "import": ["trace import h2o.npz -o again.kvf"],
    "plan": ["trace plan h2o.kvf -o plan.kvf"],
    "part": ["trace diff --first h2o.kvf full.kvf -o part.tsv"],
    "diff": ["trace diff h2o.kvf compact.kvf"],
    "checksum": ["trace checksum h2o.kvf"],
    "predict": ["predict effect.tsv h2o.kvf saliency.kvf -o predict.tsv"],
    "corpus": ["corpus survival h2o.kvf gates.kvf --shard 1/2 --state one.state", "corpus survival h2o.kvf gates.kvf --shard 2/2 --state two.state",
               "corpus survival h2o.kvf gates.kvf -o corpus.tsv"],
    "merge": ["corpus merge one.state two.state -o merged.tsv"],
    "claims": ["claims . -o claims.tsv"],
    "draw": ["draw effect.tsv --minus mirror.tsv -o difference.png"],
    "report": ["report h2o.kvf -o report.html"],
    "figures": ["list figures"],
    "describe": ["list all --json"],
}
# Analyses use h2o.kvf, or these.
TRACES = {"retention": "betas.kvf", "calibration": "betas.kvf", "agreement": "betas.kvf others.kvf", "variance": "betas.kvf", "compare": "h2o.kvf gates.kvf full.kvf",
          "tokens": "gates.kvf", "overlap": "long.kvf", "received": "full.kvf", "dynamics": "full.kvf"}
for name in ANALYSES:
    LINES[name] = [f"{COMMANDS[name]['words']} {TRACES.get(name, 'h2o.kvf')} -o {name}.tsv", f"{COMMANDS[name]['words']} {TRACES.get(name, 'h2o.kvf')}"]
REJECTED = LINES["saliency"] if SHAPE["layers_with_window"] else []  # saliency has no derivatives through windows
if REJECTED:
    LINES["saliency"] = []
FREE = int(re.search(r"MemAvailable: +(\d+)", Path("/proc/meminfo").read_text(encoding="ascii"))[1]) * 1024
for name, n in (("saliency", 12), ("train", 12), ("tune", 32)):  # bytes for each weight
    if SHAPE["parameters"] * n > FREE and LINES[name]:
        print(f"left out: {name} needs {SHAPE['parameters'] * n / 1e9:.0f} GB of memory for {MODEL}")
        LINES[name] = []
if not LINES["saliency"]:
    LINES["predict"] = ["predict effect.tsv h2o.kvf -o predict.tsv"]
if not LINES["train"]:
    LINES["curves"], LINES["info"] = [], LINES["info"][:2]


def rows(path):
    with open(path, encoding="utf-8") as f:
        return list(csv.DictReader((line for line in f if not line.startswith("#")), delimiter="\t", quoting=csv.QUOTE_NONE))


def look(name, path):
    """Checks the output of a line by its name."""
    if name in ("needle", "split"):  # several files, which the next commands read
        return not os.path.exists(path)
    if path.endswith(".kvf"):
        return s.run(["trace", "verify", path, "--full"]).returncode == 0
    if path.endswith(".tsv"):
        table = rows(path)
        return len(table) > 0 and all(None not in r and None not in r.values() for r in table)
    if path.endswith("/"):
        return sorted(os.listdir(path))[:2] == ["p0.kvf", "p1.kvf"]
    return os.path.getsize(path) > 100


def try_line(name, line):
    argv = line.split(" ")
    r = s.run(argv, timeout=120 if MODEL == STORIES else 1800)
    words = r.stderr.decode("utf-8", "replace")
    out = argv[argv.index("-o") + 1] if "-o" in argv else ""
    s.check(line, r.returncode == 0 and (look(name, out) if out else len(r.stdout) > 20 or name == "corpus"), r.returncode, words[:600], out)
    return r


def try_readme():
    """Runs the lines of use in the README with -m MODEL. A model without shipped gates must be
    rejected in a sentence and accepted with --gates. A model without a chat template must get a note."""
    text = Path(ROOT, "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^ {4}kvfate (.*?)(?: +#.*)?$", text[text.index("## Five lines"):], re.M)[:5]
    os.mkdir("readme")
    os.chdir("readme")
    os.symlink(os.path.join(ROOT, "examples"), "examples")
    shipped = {g["method"] for g in SHAPE["gates"] if g["shipped"]}
    s.check("five lines", len(lines) == 5, lines)
    for line in lines:
        line = re.sub("^run ", f"run -m {MODEL} ", line)
        if "--method trimkv" in line and "trimkv" not in shipped:
            s.refused("gates are missing", line.split(" "), 2, "none are shipped", "--gates")
            line += " --gates ../rg.safetensors"
        r = try_line("readme", line)
        if line.startswith("run"):
            s.check("note about the chat template", (b"no chat template" in r.stderr) != SHAPE["template"], line, r.stderr)


said = {}
for name in [n for n in LINES if n not in ANALYSES] + list(ANALYSES):
    s.check(f"{name} is a command", name in COMMANDS)
    for line in LINES[name]:
        said[line] = try_line(name, line).stdout
for name in COMMANDS:
    s.check(f"{name} has a line", name in LINES, f"give LINES of {os.path.basename(__file__)} a line of kvfate {name}")

# The model's output, and properties of the tables for any numbers.
text = said[LINES["generate"][0]].decode()
s.check("a story", len(text) > 20 if MODEL != STORIES else len(text.split()) > 5 and text.isascii(), text)
logits = np.load("story.npy")
s.check("logits", logits.shape == (VOCAB,) and np.isfinite(logits).all() and logits.std() > 0.1, logits.shape)
header = json.loads(said["trace info h2o.kvf --json"])["header"]
evicted = rows("eviction.tsv")
last = max(int(r["evict_step"]) for r in evicted)
for head in {(r["layer"], r["index"]) for r in evicted}:
    mine = [(int(r["token"]), int(r["evict_step"])) for r in evicted if (r["layer"], r["index"]) == head]
    held = [sum(a <= t and (b < 0 or b > t) for a, b in mine) for t in range(header["run"]["prompt_tokens"], last + 1)]  # the prompt is cut at its end
    s.check("the budget holds, and is used", set(held) == {BUDGET}, head, held)
for r in rows("eval.tsv"):
    s.check("nll of a text", 0 < float(r["nll"]) < math.log(VOCAB) + .06, r)
alive = [float(r["fraction"]) for r in rows("survival.tsv") if r["fraction"] not in ("", "nan")]
s.check("survival is a share", alive and all(0 <= x <= 1 for x in alive))
if MODEL != STORIES:
    for rejected in REJECTED:
        s.refused(rejected, rejected.split(" "), 2, "layers with an attention window", "not supported")
    try_readme()
s.finish()
