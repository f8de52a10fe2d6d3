"""Lists the commands of a snapshot. Commands, options (-h), figures and methods (as JSON) and the
keys of --style (from the message about an unknown key) come from the program. This file only has
values for them."""
import concurrent.futures
import functools
import json
import os
import re

TRACES = "rich full h2o gates hay code gqa mha half scripts long snapkv c1 tiny tiny-rg tiny-wgkv saliency plan".split()
PAIRS = [("gates", "dbgates"), ("snapkv", "h2o"), ("c1", "c2"), ("full", "code"), ("adakv", "gkv")]
MOST_TRACES = 2  # number of traces on which an analysis tries its options
COMMON = {"output", "json", "figure", "threads", "size", "dpi", "cmap", "vmin", "vmax", "title", "font", "style", "preview", "head", "tokens"}

# Values of the options of analyses, by name; a flag needs none.  "NAME.OPTION" comes before "OPTION".
VALUES = {
    "criterion": ["top64", "mass.95", "mass.90,top128", "all", "top9"],
    "intermittency.criterion": ["top64", "top64,mass.95"],
    "classes": ["in/classes.json"],
    "by": ["class", "role", "word", "token", "tokens"],
    "space": ["query", "kv-union", "kv-mean"],
    "horizons": ["1,4,32", "0"], "denominator": ["at-risk", "all"], "follow-up": ["8"], "gap": ["top64,mass.95", "mass.90,mass.99"],
    "bins": ["4"], "hazard.bins": ["0,1,16,64"], "grace": ["1", "16"], "above": ["0,4,16"], "every": ["1", "7"], "horizon": ["1", "4,16"],
    "event": ["ever-again", "at-age", "no-exit", "all"], "group": ["any", "each"], "budget": ["16"], "kind": ["alpha", "beta", "last-use"],
    "triangle": ["le", "lt"], "source": ["gate", "last-use"], "useful": ["topk:8", "mass:0.9", "topk-slack:4", "span", "plan"],
    "weights": ["run", "beta"], "hits": ["2"], "top": ["0.3"], "skip": ["4"], "window": ["in", "out", "8"], "step": ["150", "20"], "sort": ["count", "kept", "lift", "word"],
    "match": ["any", "all"], "min-count": ["2"], "k": ["3"], "level": ["0.5"], "value": ["entropy", "mass.max"], "p": ["0.01,0.1", "10,50"],
    "form": ["window", "step"], "entries": ["last", "kept"], "max": ["counted", "all"], "candidates": ["common", "own"], "queries": ["16"],
    "spread": ["shares", "tokens", "heads"], "mass": ["0.5"], "weight": ["mass", "contrib"], "scale": ["rate", "log-beta", "rank"],
    "position-bins": ["4"], "norm-bins": ["4"], "components": ["2"], "steps": ["answer", "prompt", "all"], "split": ["time", "rollouts"],
    "train": ["0.5"], "rope": ["pre", "post"], "seed": ["3"], "groups": ["model", "1"],
    "part.most": ["3"], "points": ["5"], "needed": ["0.05"], "at-least": ["1", "40"], "mean-to": ["16"], "from": ["0"], "block": ["1,8"],
    "block-exit.event": ["gone", "first-exit"], "decay.event": ["gone", "first-exit"],
}

# Keys of --style for which the program does not list values, "FIGURE.KEY" before "KEY".
STYLES = {
    "panel": ["head"], "criterion": ["mass.95", "top64"], "horizon": ["8"], "class": ["word", "special+number"], "occupancy.class": ["all+special"], "above": ["4"], "age": ["4"], "p": ["0.1"],
    "quantity": ["returns", "share"], "form": ["step"], "kind": ["alpha"], "at": ["end"], "steps": ["4:60"], "occupancy.steps": ["20:"],
    "map.panel": ["quantity", "criterion", "horizon"],
    "heads": ["2"], "head": ["L0H0", "L10H2"], "top": ["5"], "show": ["fwkl+limit"], "dilution.show": ["dilution", "bound+useful_mass"],
    "tokens.by": ["state", "age", "beta", "saliency", "class", "last-use", "mass"], "mark": ["text", "fill"], "page": ["1"], "columns": ["40"], "smooth": ["2"],
    "x": ["budget"], "y": ["nll"], "pareto.y": ["nll", "kl", "entries"], "pareto.x": ["budget", "entries"], "value": ["sparsity"],
}
LOOKS = ["--size single-column", "--size 120x90", "--size 80", "--title 'A title, (é)'", "--vmin 0.2 --vmax 0.7", "--font Serif", "--dpi 40"]

FIXED = """
kvfate
kvfate --version
kvfate help
kvfate nonsense
kvfate methods
kvfate methods --json
kvfate methods snapkv -B 128
kvfate methods pyramidkv:beta=3 --json
kvfate list figures
kvfate list figures --json
kvfate trace info in/gates/smollm2-135m-trimkv.safetensors
kvfate trace info in/rg.safetensors --json
kvfate trace info in/tiny.gguf
kvfate tasks needle --words 60 --keys 2 --values 2 --queries 2 --haystack noise -n 2 -o x
kvfate tasks needle --tokens 150 --haystack needles --seed 3 -o x
kvfate generate -m in/tiny.gguf --raw -f in/short.txt -n 12 --ignore-eos -q
kvfate generate --raw -f in/salt.txt -n 8 -q
kvfate generate --raw -f in/salt.txt -n 8 -q --method h2o -B 40
kvfate generate -m in/gqa.gguf --raw -f in/short.txt -n 12 --temp 1 --top-p 0.8 --seed 5 --ignore-eos -q
kvfate generate --logits -m in/tiny.gguf --raw -f in/short.txt -o x.npy
kvfate generate --logits -m in/half.gguf --raw -f in/short.txt --method snapkv:chunk=5 -B 12 -o x.npy
kvfate generate --logits --raw -f in/short.txt -o x.npy
kvfate generate --logits -m in/mha.gguf --raw -f in/short.txt --exact -o x.npy
kvfate ablate --raw -f in/short.txt --recent 8 --score-tokens 2 --head L0K*,L20K1 -o x.tsv
kvfate ablate -m in/tiny.gguf --raw -f in/short.txt --recent 4 --sinks 1 --score-tokens 4 --per-token -o x.tsv
kvfate ablate -m in/tiny.gguf --raw -f in/short.txt --entries class=sink --score-tokens 4 -o x.tsv
kvfate ablate -m in/tiny.gguf --raw -f in/short.txt --entries random:5 --seed 3 --score-tokens 4 -o x.json
kvfate ablate -m in/tiny.gguf --raw -f in/short.txt --entries span=3:9 --each --score-tokens 4 -o x.csv
kvfate ablate -m in/tiny.gguf --data in/prose.txt --docs 2 --prompt-tokens 30 --score-tokens 4 -o x.tsv
kvfate ablate -m in/gqa.gguf --raw -f in/short.txt --recent 6 --score-tokens 4 --mirror -o x.png --dpi 50
kvfate ablate --as saliency --raw -f in/short.txt --head L0K*,L20K1 -o x.tsv
kvfate ablate --as saliency -m in/tiny.gguf --of in/tiny.kvf --loss kl --weight 0.5 -o x.kvf && kvfate tokens x.kvf -o x.tsv
kvfate ablate --as saliency -m in/tiny.gguf --raw -f in/short.txt --gates in/rg.safetensors -o x.tsv
kvfate ablate --as saliency -m in/gqa.gguf --raw -f in/short.txt --window 3 --by-head -o x.csv
kvfate ablate --as saliency -m in/tiny.gguf --of in/tiny-wgkv.kvf --weight recorded -o x.tsv
kvfate eval -m in/tiny.gguf --data in/prose.txt --methods all --gates in/rg.safetensors --budgets 8,24 --docs 2 --prompt-tokens 40 --score-tokens 6 -o x.tsv
kvfate eval -m in/gqa.gguf --data in/prose.txt --methods h2o,tova,quest --budgets 8 --docs 1 --prompt-tokens 40 --score-tokens 6 --state x.state -o x.json
kvfate eval -m in/gqa.gguf --data in/prose.txt --methods h2o --budgets 8,16 --docs 3 --prompt-tokens 30 --score-tokens 6 --state x.state -o x.npz && kvfate eval -m in/gqa.gguf --data in/prose.txt --methods h2o --budgets 8,16 --docs 3 --prompt-tokens 30 --score-tokens 6 --state x.state -o y.svg
kvfate train --settings
kvfate train -m in/tiny.gguf --data in/prose.txt --method trimkv:lr=1e-2 --length 32 --steps 2 --check-every 1 --check-docs 1 --budgets 8 -o x.safetensors && kvfate train curves x.safetensors.log.jsonl -o x.tsv
kvfate train -m in/tiny.gguf --data in/prose.txt --method dbtrimkv:lr=1e-2 --length 32 --steps 2 --check-every 0 --f32 --packing documents -o x.safetensors && kvfate trace info x.safetensors
kvfate train -m in/tiny.gguf --data in/prose.txt --method wgkv --length 32 --steps 2 --check-every 0 --recompute -o x.safetensors
kvfate train curves in/gates/smollm2-135m-trimkv.log.jsonl -o x.tsv
kvfate train curves in/gates/smollm2-135m-trimkv.log.jsonl in/gates/smollm2-135m-dbtrimkv.log.jsonl -o x.svg
kvfate trace plan in/h2o.kvf -o x.kvf && kvfate run --plan x.kvf -q -o y.kvf && kvfate trace diff --first in/h2o.kvf y.kvf
kvfate trace plan in/gqa.kvf --head L0K* --no-mass -o x.kvf && kvfate run -m in/gqa.gguf --plan x.kvf -q -o y.kvf && kvfate trace diff in/gqa.kvf y.kvf
kvfate trace plan in/gqa.kvf --no-tokens -o x.kvf && kvfate run -m in/gqa.gguf --raw -f in/camels.txt --plan x.kvf -n 4 -q -o y.kvf
kvfate run -m in/tiny.gguf --raw -f in/short.txt --force in/tiny.kvf --method h2o -B 16 -q -o y.kvf
kvfate claims --check
kvfate claims in/tables
kvfate claims in/tables -o x.tsv
kvfate claims in/tables --json
kvfate predict in/effect.tsv in/tiny.kvf in/saliency.kvf
kvfate predict in/effect.tsv in/tiny.kvf in/saliency.kvf -o x.json
kvfate predict in/mirror.tsv in/tiny.kvf --criterion all --horizon 4 --sinks 1 -o x.tsv
kvfate predict in/effect.tsv in/tiny-rg.kvf in/saliency.kvf --only mass.sum,entropy -o x.csv
kvfate predict in/effect.tsv in/tiny.kvf --units -o x.svg
kvfate report in/h2o.kvf -o x.html
kvfate report in/rich.kvf in/gates.kvf --head L0-2K* -o x.html
kvfate report in/full.kvf --criterion top64 --max-size 1 -o x.html
kvfate report in/gqa.kvf --classes in/classes.json -o x.html
kvfate draw in/effect.tsv --minus in/mirror.tsv -o x.png --dpi 50
kvfate corpus survival in/c1.kvf in/c2.kvf in/snapkv.kvf --against in/h2o.kvf -o -
"""

RUN_OPTIONS = ["", "--chunk 7", "--kv-type f32", "--kv-type q8_0", "--activations 8", "--activations 16", "--exact", "--temp 0.9 --top-p 0.7 --seed 2", "--context 60", "--override L0K0=window:budget=9", "--probes lean",
               "--probes paper", "--shadow model", "--watch 0,3@L0H0 --watch-queries L1H1@post", "--threads 1"]


def steady(name, data):
    """Returns the bytes without times."""
    if name.endswith((".jsonl", ".json")) or name == "stdout":
        data = re.sub(rb'("(?:seconds|[a-z_]*_seconds|seconds_[a-z_]*|tokens_per_second|[a-z_]*_per_second|time|[a-z_]*_ms)": ?)[0-9.e+-]+', rb"\1N", data)
    return re.sub(rb" tokens at [0-9.]+ per second", b" tokens at N per second", data)


def options(text):
    """Returns (name, takes a value) of each long option of a -h page."""
    for line in text.splitlines():
        m = re.match(r"  (?:-\w,|   ) --([\w-]+)( \S+)?", line)
        if m:
            yield m.group(1), bool(m.group(2))


@functools.lru_cache(maxsize=None)
def words(ask):
    """Returns {name of a command: its words}."""
    return {c["name"]: c["words"] for c in json.loads(ask("kvfate list all --json")[0])["commands"]}


def tries(ask, command, leave_out):
    """Returns arguments that try each option of a command. An option without known values is an
    error in this file."""
    for name, takes in options(ask(f"kvfate {words(ask)[command]} -h")[0]):
        if name in leave_out:
            continue
        values = VALUES.get(f"{command}.{name}", VALUES.get(name))
        if takes and values is None:
            raise SystemExit(f"tests/snapshot/commands.py: VALUES has none for --{name} of kvfate {command}")
        yield from (f"--{name} {v}" for v in values) if takes else [f"--{name}"]


def of_analysis(ask, name, fixed):
    taken = []
    for operands in [(t,) for t in TRACES] + PAIRS:
        files = " ".join(f"in/{t}.kvf" for t in operands if os.path.exists(f"{fixed}/{t}.kvf"))
        line = f"kvfate {words(ask)[name]} {files}"
        yield line + " -o x.tsv"
        if len(taken) < MOST_TRACES and not ask(line)[1].strip().startswith("kvfate"):
            taken.append(line)
    for i, line in enumerate(taken):
        yield line
        yield from (f"{line} -o x.{ext}" for ext in ("csv", "json", "npz", "pdf"))
        yield from (f"{line} {x} -o -" for x in ("--json", "--head L0-5K*", "--head L1K0,L0H1 --tokens 3:40", "--tokens 10:", "--head none"))
        mine = list(tries(ask, name, COMMON))
        yield from (f"{line} {x} -o -" for x in mine)
        yield f"{line} -o x.svg"
        if i > 0:
            continue
        yield from (f"{line} {x} {y} --head L0-1K* -o -" for x, y in zip(mine, mine[2:] + mine[:2]) if x.split()[0] != y.split()[0])
        yield f"{line} --style x=y -o x.svg"
        yield f"{line} --preview --size 60x40"
        corpus = line.replace("kvfate ", "kvfate corpus ", 1)
        other = " in/c1.kvf in/c2.kvf in/snapkv.kvf in/h2o.kvf"
        yield f"{corpus}{other} --skip-bad --replicates 20 -o -"
        yield f"{corpus} in/c1.kvf in/c2.kvf --replicates 7 --seed 3 --intervals all -o x.json"
        yield f"{corpus}{other} --skip-bad --shard 1/2 --state a.state && {corpus}{other} --skip-bad --shard 2/2 --state b.state && kvfate corpus merge a.state b.state --state c.state -o x.tsv"
        yield f"{corpus}{other} --skip-bad --against in/snapkv.kvf -o x.svg"


def tables(ask, table):
    """Returns command lines that end in a table of that name, from which figures are drawn."""
    made = {"effect": "in/effect.tsv", "saliency": "in/saliency.tsv", "eval": "in/tables/eval.tsv", "claims": "in/tables/claims.tsv", "predict": "in/predict.tsv",
            "predict-units": "in/predict-units.tsv", "training": "in/training.tsv", "causal": "in/causal.tsv"}
    if table == "difference":
        return ["kvfate draw in/effect.tsv --minus in/mirror.tsv"]
    if table in made:
        return [f"kvfate draw {made[table]}"]
    return [f"kvfate {words(ask)[table]} in/{a}" for a in ("rich.kvf", "full.kvf", "gates.kvf in/dbgates.kvf", "gqa.kvf", "snapkv.kvf in/h2o.kvf", "scripts.kvf")]


def styles(ask, line, figure):
    said = re.search(r"knows (.*), not '", ask(f"{line} --figure {figure} --style zz=1 -o in/../none/x.svg")[1])
    for key, allowed in re.findall(r"([\w-]+)=([^,]*?)(?=, [\w-]+=| and |,? not|$)", said.group(1).strip() if said else ""):
        listed = allowed.split("|") if "|" in allowed else []
        for value in listed or STYLES.get(f"{figure}.{key}", STYLES.get(key, [allowed])):
            yield f"{key}={value}"


def of_figure(ask, figure, fixed, n):
    lines = tables(ask, figure["table"])
    drawn = [x for x in lines if not ask(f"{x} --figure {figure['name']} --preview --size 60x40")[1].strip().startswith("kvfate")] or lines[:1]
    for i, line in enumerate(drawn[:2]):
        line += f" --figure {figure['name']}"
        yield f"{line} -o x.svg"
        yield f"{line} --dpi 60 -o x.png"
        if i == 0:
            yield f"{line} {LOOKS[n % len(LOOKS)]} -o x.svg"
            yield f"{line} {LOOKS[(n + 3) % len(LOOKS)]} --dpi 40 -o x.png"
            mine = list(styles(ask, line, figure["name"]))
            yield from (f"{line} --style {s} -o x.svg" for s in mine)
            yield from (f"{line} --style {s},{t} -o x.svg" for s, t in zip(mine, mine[2:]) if s.split("=")[0] != t.split("=")[0])


def of_method(m, layouts):
    gates = f" --gates in/{layouts[m['gates']]}.safetensors" if m["gates"] else ""
    plan = " --plan in/plan.kvf" if m["name"] == "plan" else ""
    line = f"kvfate run -m in/tiny.gguf --raw -q -f in/salt.txt -n 12 --ignore-eos{gates}{plan} -o x.kvf"
    yield f"{line} --method {m['name']} -B 24 --probes full"
    yield f"{line.replace('tiny.gguf', 'gqa.gguf')} --method {m['name']} -B 9 --shadow entries"
    yield f"{line} --method {m['name']}:variant=code -B 16"
    for o in m["options"]:
        small = [max(o["min"], 5 if o["key"] == "pool" else 3)] if o.get("type") == "integer" else [max(o["min"], min(o["max"], 0.4))] if "min" in o else []
        for v in o.get("values") or small:
            if v != o["value"]:
                yield f"{line} --method {m['name']}:{o['key'].replace('_', '-')}={v} -B 16"


def of_device(m, layouts):
    """Returns a method's run on a CUDA device. Without a device, tests/cuda's kvfate_emulated runs
    it, or a message is printed."""
    gates = f" --gates in/{layouts[m['gates']]}.safetensors" if m["gates"] else ""
    plan = " --plan in/plan.kvf" if m["name"] == "plan" else ""
    line = f"kvfate run --device cuda -m in/tiny.gguf --raw -q -f in/salt.txt -n 6 --ignore-eos{gates}{plan} --method {m['name']} -B 24 -o x.kvf"
    yield f"{line} --exact --probes full"
    yield f"{line} --probes lean"


def collect(ask, fixed, jobs):
    """Returns every command line, in order."""
    yield from FIXED.strip().split("\n")
    for name, typed in words(ask).items():
        yield f"kvfate {typed} -h"
        yield f"kvfate {typed}" if name not in ("methods", "figures", "eval", "describe", "quickstart") else f"kvfate {typed} --nonsense"
    for t in TRACES:
        yield from (f"kvfate trace {c} in/{t}.kvf{more}" for c, more in (("info", ""), ("info", " --json"), ("verify", " --full")))
    for a, b in PAIRS + [("tiny", "tiny-rg"), ("full", "full")]:
        for name in ("part", "diff"):
            yield from (f"kvfate {words(ask)[name]} in/{a}.kvf in/{b}.kvf {x}" for x in ["", "-o -", "-o x.json", *tries(ask, name, {"output"} | COMMON)])
    from inputs import FAMILIES, GATES
    for m in json.loads(ask("kvfate methods --json")[0]):
        yield from of_method(m, GATES)
        yield from of_device(m, GATES)
    yield from (f"kvfate run -m in/mha.gguf --raw -q -f in/salt.txt -n 8 --ignore-eos --method tova -B 9 {x} -o x.kvf" for x in RUN_OPTIONS)
    for m in ("h2o -B 20", "snapkv:window=8 -B 24", "quest:page=3 -B 12"):
        yield from (f"kvfate run -m in/{g}.gguf --raw -q -f in/salt.txt -n 8 --ignore-eos --method {m} {x} -o x.kvf" for g in ("tiny", "half") for x in RUN_OPTIONS)
    for g in FAMILIES:
        line = f"-m in/{g}.gguf --raw -f in/salt.txt"
        yield f"kvfate generate --logits {line} -o x.npy"
        yield from (f"kvfate run {line} -q -n 8 --ignore-eos --method {m} -o x.kvf" for m in
                    ("full --probes full --shadow entries,model", "h2o -B 20", "keydiff:chunk=16 -B 20 --exact", "window:positions=cache -B 20", "quest:page=3 -B 12"))
        yield f"kvfate run --device cuda {line} -q -n 6 --ignore-eos --method h2o -B 20 --exact --probes full -o x.kvf"
        yield f"kvfate run --device cuda {line} -q -n 6 --ignore-eos --method snapkv -B 20 -o x.kvf"
        yield f"kvfate train --device cuda -m in/{g}.gguf --data in/prose.txt --method trimkv --length 32 --steps 2 --check-every 0 -o x.safetensors"
    # Commands with --tokens are analyses.
    analyses = [n for n, typed in words(ask).items() if "--tokens A:B" in ask(f"kvfate {typed} -h")[0] and n != "corpus"]
    figures = list(enumerate(json.loads(ask("kvfate list figures --json")[0])))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for lines in pool.map(lambda name: list(of_analysis(ask, name, fixed)), analyses):
            yield from lines
        for lines in pool.map(lambda x: list(of_figure(ask, x[1], fixed, x[0])), figures):
            yield from lines
    yield from (f"kvfate size --as sparsity in/full.kvf --kind last-use --criterion mass.90 --cmap {c} -o x.png --dpi 40"
                for c in re.findall(r"\w+", re.search(r"--cmap NAME +(.*?)\(", ask("kvfate draw -h")[0]).group(1)))
