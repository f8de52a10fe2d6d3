"""List the commands that bench/silence.py --all watches: every command of kvfate on inputs of the default model that
take some seconds, and those inputs.

Lines are shell commands in the folder of the inputs; {k} is kvfate.
"""
import json
import os
import shlex
import subprocess
import sys

RUN = "-f hay.txt --spans hay.json -n 60 --ignore-eos -B 512 -q"

CLAIM = {"id": "c1", "paper": "P", "where": "figure 1", "claim": "Entries stay in use.", "table": "survival", "value": "fraction", "unit": "head",
         "heads": "all", "rows": {"criterion": "top64", "horizon": 1}, "reduce": "mean", "than": ">", "null": 0, "interval": "t"}

# NAME: the command that makes it, in this order.
INPUTS = {
    "hay.txt": "{k} tasks needle --tokens 2000 --keys 8 --queries 2 -o hay",
    "text.txt": "for i in 1 2 3 4 5 6 7 8; do {k} tasks needle --tokens 4000 -s $i -o t$i && printf '\\n\\n# Part %d\\n\\n' $i && cat t$i.txt || exit; done > text.part"
                " && mv text.part text.txt",
    "texts/t2.txt": "mkdir -p texts && cp t1.txt t2.txt texts",
    "task-0.json": "{k} tasks needle --tokens 1000 --keys 4 --queries 2 --depth 0.5 -n 2 -o task",
    "quiz.jsonl": "{k} tasks quiz --level 16 -n 48 -o quiz.jsonl",
    "lines.jsonl": "sed 's/^{{\"question\":/{{\"prompt\":/; s/,\"answer\".*/}}/' quiz.jsonl > lines.part && mv lines.part lines.jsonl",
    "a.kvf": "{k} run {run} --method trimkv:chunk=256 --probes full --shadow entries --watch 10-400@L3H1 --watch-queries L3H1,L20H4 -o a.kvf",
    "b.kvf": "{k} run {run} --method dbtrimkv:chunk=256 --probes full -o b.kvf",
    "ghosts.kvf": "{k} run {run} --method h2o --probes paper --shadow entries -o ghosts.kvf",
    "forced.kvf": "{k} run {run} --method dbtrimkv:chunk=256 --probes full --force a.kvf -o forced.kvf",
    "whole.kvf": "{k} run -f hay.txt -n 60 --ignore-eos -B 4096 -q --method trimkv --probes full -o whole.kvf",
    "effect.tsv": "{k} ablate -f hay.txt --head L0-9K0 --score-tokens 8 --ignore-eos -o effect.tsv",
    "survival.tsv": "{k} survival a.kvf -o survival.tsv",
    "eviction.tsv": "{k} eviction a.kvf -o eviction.tsv",
    "register.json": "mkdir -p shown && cp survival.tsv shown && printf %s "
                     + shlex.quote(json.dumps({"claim": [CLAIM]}).replace("{", "{{").replace("}", "}}")) + " > register.json",
    "gates.safetensors": "{k} train --data text.txt --length 64 --steps 2 --check-every 0 -o gates.safetensors",
    "many/a7.kvf": "mkdir -p many && for i in 0 1 2 3 4 5 6 7; do {k} trace trim a.kvf --tokens 0:$((1500 + i)) -o many/a$i.kvf --overwrite || exit; done",
    "one.state": "{k} corpus survival many -o one.tsv --state one.state --shard 1/2",
    "two.state": "{k} corpus survival many -o two.tsv --state two.state --shard 2/2",
    "part-1.kvf": "{k} trace split a.kvf --parts 2 -o part-%d.kvf --overwrite",
    "a.npz": "{k} trace export a.kvf -o a.npz",
}

# Analyses of one trace are also watched over several traces: one table after another.
ANALYSES = ("fates eviction retention sparsity survival occupancy tokens regret variance words density runs kv-size hazard block-exit decay persistence"
            " intermittency overlap attention-sparsity received dynamics dilution heads").split()

COMMANDS = [
    "{k} run -f hay.txt -n 64 --ignore-eos --method h2o -B 256 --probes full --shadow model -o run.kvf --overwrite",
    "{k} run --jsonl lines.jsonl -n 16 -o traces --overwrite",
    "{k} generate -f hay.txt -n 64 --ignore-eos",
    "{k} generate --jsonl lines.jsonl -n 48 > answers.jsonl",
    "{k} generate --jsonl lines.jsonl -n 48 --methods h2o,snapkv,window --budgets 32,64 > answers.jsonl",
    "{k} generate --logits -f hay.txt -o logits.npy",
    "{k} generate --logits -f hay.txt --exact -o logits.npy",
    "{k} eval --data text.txt --methods h2o,trimkv,snapkv --budgets 64,256 --docs 3 -o eval.tsv",
    "{k} eval --tasks task-0.json task-1.json --methods h2o,trimkv --budgets 64 -o tasks.tsv",
    "{k} study {examples}/study_claims.toml --plan --data claims=texts",
    "{k} ablate --data text.txt --docs 2 --head L0-2K* --score-tokens 16 -o effect2.tsv",
    "{k} ablate --as saliency -f t1.txt --method trimkv -o saliency.tsv",
    "{k} ablate --as saliency -f t1.txt -o saliency.kvf --overwrite",
    "{k} train --data text.txt --length 512 --steps 4 --check-every 2 --check-docs 2 --share 0.7 --fresh -o gates2.safetensors",
    "{k} tune --data text.txt --method window -B 64 --length 256 --accumulate 2 --steps 2 --check-every 1 --check-docs 2 --share 0.7 --rank 4"
    " --fresh -o tuned.gguf",
    "{k} tune --reward quiz.jsonl --data quiz.jsonl --method window -B 64 --steps 2 --accumulate 2 --check-every 1 --check-docs 4 --rank 4 --fresh"
    " -o tuned.safetensors",
    "{k} train curves gates.safetensors.log.jsonl -o curves.png",
    "{k} methods",
    "{k} models",
    "{k} list devices",
    "{k} tasks needle --tokens 7000 -n 20 -o many/needle",
    "{k} tasks needle --tokens 500000 -o many/long",
    "{k} tasks quiz -n 200000 -o many/quiz.jsonl",
    "{k} ablate --as causal task-0.json task-1.json -o causal.tsv",
    "{k} trace ls many",
    "{k} trace info a.kvf",
    "{k} trace verify a.kvf --full",
    "{k} trace repair a.kvf -o out.kvf --overwrite",
    "{k} trace compact a.kvf -o out.kvf --overwrite",
    "{k} trace trim a.kvf --tokens 100:1500 -o out.kvf --overwrite",
    "{k} trace split a.kvf --parts 3 -o third-%d.kvf --overwrite",
    "{k} trace cat part-1.kvf part-2.kvf -o out.kvf --overwrite",
    "{k} trace export a.kvf -o out.npz --overwrite",
    "{k} trace export a.kvf -o out.jsonl --overwrite",
    "{k} trace export a.kvf -o out --form tsv --overwrite",
    "{k} trace import a.npz -o out.kvf --overwrite",
    "{k} trace plan a.kvf -o out.kvf --overwrite",
    "{k} trace diff --first a.kvf b.kvf --entries -o part.tsv",
    "{k} trace diff a.kvf b.kvf",
    "{k} trace checksum a.kvf b.kvf ghosts.kvf",
    "{k} retention --as calibration whole.kvf -o calibration.tsv",
    "{k} missed ghosts.kvf -o ghosts.tsv",
    "{k} retention --as agreement a.kvf forced.kvf -o agreement.tsv",
    "{k} compare a.kvf b.kvf -o compare.tsv",
    "{k} atlas many/*.kvf -o atlas.tsv",
    "{k} predict effect.tsv a.kvf -o predict.tsv",
    "{k} corpus survival many -o corpus.tsv",
    "{k} corpus survival --as block-exit many --intervals all --replicates 1000 -o corpus.tsv",
    "{k} corpus survival many --against many -o pairs.tsv",
    "{k} corpus merge one.state two.state -o merged.tsv",
    "{k} claims shown --coverage --register register.json",
    "{k} draw survival.tsv -o draw.png",
    "{k} draw eviction.tsv -o draw.png",
    "{k} draw effect.tsv --minus effect.tsv -o draw.png",
    "{k} report a.kvf b.kvf -o report.html",
    "{k} list figures",
    "{k} list all",
    "{k} retention a.kvf -o tables.sqlite",
    "{k} retention a.kvf -o retention.npz",
    "{k} retention a.kvf -o retention.png",
    "{k} eviction a.kvf -o eviction.json",
    "{k} eviction a.kvf -o eviction.png",
    "{k} eviction a.kvf -o eviction.svg",
    *[f"{{k}} {a} a.kvf -o out.tsv" for a in ANALYSES],
    *[f"{{k}} {a} {' '.join(['a.kvf'] * 8)} -o out.tsv" for a in ANALYSES],
]


def filled(command, kvfate):
    examples = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples")
    return command.format(k=shlex.quote(kvfate), run=RUN, examples=shlex.quote(os.path.normpath(examples)))


def name_of(command, told):
    """Returns the name in the lists of the command that a line calls: of the commands whose words all occur, the longest."""
    words = command.split()[1:]
    fits = [c for c in told["commands"] if words[0] == c["words"].split()[0] and set(c["words"].split()) <= set(words)]
    return max(fits, key=lambda c: len(c["words"]))["name"]


def make_inputs(kvfate, folder):
    """Make the missing inputs."""
    os.makedirs(folder, exist_ok=True)
    for name, command in INPUTS.items():
        if os.path.exists(os.path.join(folder, name)):
            continue
        print(f"making {name}", flush=True)
        if subprocess.run(filled(command, kvfate), shell=True, cwd=folder, stdout=subprocess.DEVNULL).returncode:
            sys.exit(f"{name} could not be made")


def commands(kvfate, folder, only=None):
    """Return lines for a shell: of the commands named, or of all commands of kvfate, each of which must have a line."""
    told = json.loads(subprocess.run([kvfate, "list", "all", "--json"], check=True, capture_output=True).stdout)
    missing = {c["name"] for c in told["commands"]} - {name_of(c, told) for c in COMMANDS}
    if missing:
        sys.exit(f"bench/waits.py has no line of {', '.join(sorted(missing))}")
    make_inputs(kvfate, folder)
    return [filled(c, kvfate) for c in COMMANDS if not only or name_of(c, told) in only]
