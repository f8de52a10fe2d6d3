"""Makes the fixed inputs of a snapshot: texts, models, gates, traces and tables. One build makes
them once, and then each build reads them."""
import json
import os
import shutil
import subprocess
from pathlib import Path

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
DATA = os.path.join(ROOT, "tests", "data")
DEFAULT = "SmolLM2-135M-Instruct.Q4_1.gguf"  # the name by which the program finds its default model
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else "python3"  # the Python with NumPy
WATCH = "--watch 0,20,60@L3H0,L20H5 --watch-queries L1H0,L15H4"

# Without the default model, a tiny model of its shape gets its name.
SHAPE = "--layers 30 --heads 9 --kv-heads 3 --head-dim 4 --dim 36 --ffn 32"
MODELS = {
    "tiny": "--layers 2 --heads 4 --kv-heads 2 --head-dim 16 --dim 64 --ffn 96 --context 2048",
    "gqa": "--layers 3 --heads 8 --kv-heads 2 --head-dim 16 --dim 64 --ffn 96 --seed 2 --arch qwen3 --type q8_0 --context 2048",
    "mha": "--layers 2 --heads 4 --kv-heads 4 --head-dim 16 --dim 64 --ffn 32 --vocab 259 --seed 3 --arch qwen2 --type q4_1 --context 2048",
    "half": "--layers 2 --heads 4 --kv-heads 1 --head-dim 32 --dim 64 --ffn 64 --seed 5 --type bf16 --untied --context 2048",
}
with open(os.path.join(DATA, "golden", "family_golden.json")) as golden:  # one of each model family
    FAMILIES = {f"family{i}": case["args"] for i, case in enumerate(json.load(golden)["cases"])}
# Gate files by the kind that `kvfate methods --json` prints.
GATES = {"retention": "rg", "write": "wgkv", "importance": "locret", "blocks": "seer", "heads": "duo"}

# Commands of the program in the folder of inputs; "=" stands for the options that every run has.
RUNS = """
needle --tokens 200 -o hay
needle --words 80 --keys 3 --seed 4 -o words
= -f camels.txt -n 24 --ignore-eos --probes full {watch} -o full.kvf
= -f code.txt -n 1 --probes full -o code.kvf
= -f camels.txt -n 32 --ignore-eos --method h2o -B 48 --probes full --shadow entries,model --watch 3,40@L0H0,L7H2 -o h2o.kvf
= -f hay.txt --spans hay.json --method trimkv -B 64 --probes full --shadow entries {watch} -n 12 --ignore-eos -o rich.kvf
= -f hay.txt --spans hay.json -n 8 --ignore-eos --probes paper,dilution -o hay.kvf
= -f camels.txt -n 1 --method trimkv -B 2k --probes full -o gates.kvf
= -f camels.txt -n 1 --method dbtrimkv -B 2k --probes full -o dbgates.kvf
= -f camels.txt -n 24 --ignore-eos --temp 0.8 --top-p 0.9 --seed 3 --method snapkv:window=16 -B 48 -o snapkv.kvf
= -f salt.txt -n 16 --ignore-eos --method adakv:window=8 -B 40 -o adakv.kvf
= -f salt.txt -n 16 --ignore-eos --method gkv:every=8 -B 40 --kv-type f32 -o gkv.kvf
= -f scripts.txt -n 16 --ignore-eos --method window:sinks=2 -B 40 --probes paper,keys -o scripts.kvf
= -f long.txt -n 1 --probes evict,window,under -o long.kvf
= -f salt.txt -n 40 --ignore-eos --temp 0.8 --seed 1 --probes lean --watch-queries L1H0,L15H4 -o c1.kvf
= -f salt.txt -n 40 --ignore-eos --temp 0.8 --seed 2 --probes lean --watch-queries L1H0,L15H4 -o c2.kvf
= -m gqa.gguf -f camels.txt -n 20 --ignore-eos --method tova -B 24 --probes full --shadow entries -o gqa.kvf
= -m mha.gguf -f camels.txt -n 20 --ignore-eos --method keydiff -B 24 --probes full --exact -o mha.kvf
= -m half.gguf -f salt.txt -n 9 --ignore-eos --probes full -o half.kvf
= -m tiny.gguf -f short.txt -n 9 --ignore-eos --probes full -o tiny.kvf
= -m tiny.gguf -f short.txt -n 9 --ignore-eos --method trimkv -B 400 --gates rg.safetensors --probes full -o tiny-rg.kvf
= -m tiny.gguf -f short.txt -n 9 --ignore-eos --method wgkv --gates wgkv.safetensors --probes full -o tiny-wgkv.kvf
effect -m tiny.gguf --raw -f short.txt --recent 8 --score-tokens 8 --ignore-eos -o effect.tsv
effect -m tiny.gguf --raw -f short.txt --recent 8 --score-tokens 8 --ignore-eos --mirror -o mirror.tsv
needle --words 120 --keys 2 -n 2 -o task
causal -m tiny.gguf task-0.json task-1.json -o causal.tsv
saliency -m tiny.gguf --of tiny.kvf -o saliency.kvf
saliency -m tiny.gguf --of tiny.kvf --by-head -o saliency.tsv
eval -m tiny.gguf --data prose.txt --methods h2o,window,snapkv:window=8 --budgets 8,16 --docs 2 --prompt-tokens 40 --score-tokens 8 -o eval.tsv
predict effect.tsv tiny.kvf saliency.kvf -o predict.tsv
predict effect.tsv tiny.kvf --units -o predict-units.tsv
train -m tiny.gguf --data prose.txt --method trimkv:lr=1e-2 --length 32 --steps 2 --check-every 0 -o trained.safetensors
curves trained.safetensors.log.jsonl -o training.tsv
plan h2o.kvf -o plan.kvf
"""


def tool(name, *argv):
    subprocess.run([PYTHON, os.path.join(DATA, *name.split("/")), *argv], check=True, stdout=subprocess.DEVNULL)


def texts(folder):
    def put(name, source, size=-1):
        with open(os.path.join(ROOT, source), "rb") as f:
            text = f.read(size).decode(errors="ignore")
        Path(os.path.join(folder, name)).write_text(text, encoding="utf-8")
    for name in ("camels", "salt", "scripts"):
        put(name + ".txt", f"examples/demo/{name}.txt")
    put("short.txt", "examples/demo/salt.txt", 90)
    put("long.txt", "examples/demo/problem.txt", 1400)
    put("code.txt", "examples/01_read_trace.c", 420)
    words = Path(os.path.join(folder, "salt.txt")).read_text(encoding="utf-8").split()
    with open(os.path.join(folder, "prose.txt"), "w", encoding="utf-8") as f:
        for i in range(6):
            f.write(f" = Title {i} = \n \n " + " ".join(words[i:] + words[:i]) + " . \n \n")
    Path(os.path.join(folder, "classes.json")).write_text('{"camel": "[Cc]amel", "first": "^[A-Z]"}', encoding="utf-8")


def make(program, folder, environment):
    """Fills the folder; failures are printed and skipped."""
    os.makedirs(folder)
    texts(folder)
    os.makedirs(os.path.join(folder, "tables"))
    for source, name in (("examples/tables", "tables"), ("gates", "gates")):
        for entry in os.listdir(os.path.join(ROOT, source)):
            if entry.endswith((".tsv", ".safetensors", ".jsonl")):
                os.makedirs(os.path.join(folder, name), exist_ok=True)
                shutil.copy(os.path.join(ROOT, source, entry), os.path.join(folder, name, entry))
    for name, options in {**MODELS, **FAMILIES}.items():
        tool("golden/tools/gen_tiny.py", *options.split(), "-o", os.path.join(folder, name + ".gguf"))
    for layout in GATES.values():
        tool("make_gates.py", "--layout", layout, *"--layers 2 --heads 4 --kv-heads 2 --head-dim 16 --d-model 64 --hidden 4".split(),
             "-o", os.path.join(folder, layout + ".safetensors"))
    cache = environment.get("KVFATE_CACHE") or os.path.expanduser("~/.cache/kvfate")
    os.makedirs(os.path.join(folder, "cache"))
    if os.path.exists(os.path.join(cache, DEFAULT)):
        os.symlink(os.path.join(cache, DEFAULT), os.path.join(folder, "cache", DEFAULT))
    else:
        print(f"no {DEFAULT}: a tiny model takes its place, runs with shipped gates are left out")
        tool("golden/tools/gen_tiny.py", *SHAPE.split(), "-o", os.path.join(folder, "cache", DEFAULT))
    for line in RUNS.strip().split("\n"):
        argv = line.format(watch=WATCH).split()
        argv = ["run", "--raw", "-q"] + argv[1:] if argv[0] == "=" else argv
        done = subprocess.run(["kvfate", *argv], executable=program, cwd=folder, env={**environment, "KVFATE_CACHE": "cache", "KVFATE_GATES": "gates"},
                              capture_output=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            print(f"not made: kvfate {' '.join(argv)}: {done.stderr.decode(errors='replace').strip()[-300:]}")
