#!/usr/bin/env python3
"""Trainings with three seeds each that differ in one setting, for the claims about training (docs/studies/claims.md).

usage: gates/claims_trainings.py wikitext2-valid.txt gsm8k-train.jsonl TEXTS FOLDER [NAME...]

What is trained is that of ablate.py, with the sizes below, which are small so that everything takes minutes of one core: a training
about 25 seconds.  Every seed draws its own order of packs and its own first weights; trainings of one seed share both.  They are judged
by KL(full || method) on the first text of each source of TEXTS (examples/claims_texts.sh), of which none may be a training text.
Write gates with and without a window are judged at the thresholds at which they hold closest to EQUAL entries on the last tenths of the
training texts, which nothing else sees.

FOLDER/eval-docs.NAME.tsv is written as soon as all seeds of a training are judged on all texts.  FOLDER/eval-docs.seed-CLAIM.tsv has, for a
claim of the register that names it as its control, that seed alone for which the claim holds least.  A stopped run goes on when the
same command is given again.  KVFATE names the program (kvfate), THREADS the threads (1), SEEDS how many seeds (3).
"""
import glob
import json
import os
import sys
import tomllib

from ablate import BOTH, RUNS, files, kvfate, last_tenth, settings

STEPS, LENGTH, CAPACITY, BUDGET = 24, 64, 16, 32
PROMPT, SCORED, EQUAL = 128, 32, 64
TAUS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
WINDOWS = {"wgkv": 16, "no-window": 1}  # entries that the window has in use, as in training
REGISTER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs", "studies", "claims.toml")

UNTRAINED = {"untrained-tied": "dbtrimkv", "untrained": "trimkv"}  # one step of no length: what the references must be better than

# What has most to say comes first.
ORDER = ("dbtrimkv", "untied", "untrained-tied", "trimkv", "no-capacity", "untrained", "bias-6", "keys-values", "linear", "reverse-kl", "kl-and-next-token",
         "lambda-0.04", "lambda-0.64", "wgkv", "no-window")


def read(path):
    """Metadata lines and rows of a table that is whole."""
    with open(path, encoding="utf-8") as f:
        lines = f.read().splitlines()
    table = [line.split("\t") for line in lines if not line.startswith("#")]
    return [line for line in lines if line.startswith("#") and not line.startswith("# checksum: ")], [dict(zip(table[0], row)) for row in table[1:]]


def write(path, meta, rows):
    files.write(path, "".join(line + "\n" for line in [*meta, "\t".join(rows[0]), *("\t".join(map(str, r.values())) for r in rows)]))


def evaluated(path, data, docs, methods, budget, gates):
    """What eval says of these documents; its state file makes it go on, and the copy says that it is whole."""
    if not os.path.exists(path):
        kvfate("eval", "--data", *data, "--docs", str(docs), "--prompt-tokens", str(PROMPT), "--score-tokens", str(SCORED), "--methods",
               methods, "--budgets", str(budget), *(["--gates", gates] if gates else []), "--state", path + ".state")
        with open(path + ".state", "rb") as f:
            files.write(path, f.read())
        os.remove(path + ".state")
    return read(path)


def first_texts(texts, folder):
    """One JSONL file of the first text of each source, and the source of each document by its hash."""
    names = {}
    for path in sorted(glob.glob(os.path.join(texts, "*-*.txt"))):
        names.setdefault(os.path.basename(path).rpartition("-")[0], path)
    sources, lines = {}, []
    for source, path in names.items():
        with open(path, encoding="utf-8") as f:
            lines.append(json.dumps({"text": f.read()}))
        alone = os.path.join(folder, f"text.{source}.jsonl")
        files.write(alone, lines[-1] + "\n")
        _, rows = evaluated(os.path.join(folder, f"text.{source}.scores"), [alone], 1, "window", BUDGET, None)
        sources[rows[0]["doc_hash"]] = source
    together = os.path.join(folder, "texts.jsonl")
    files.write(together, "\n\n".join(lines) + "\n")
    return together, sources


def trained(name, seed, data, folder):
    method = RUNS[UNTRAINED.get(name, name)][0]
    method += f",net-seed={seed}" + ("" if method.startswith("wgkv") else f",M={CAPACITY}") + (",lr=1e-9" if name in UNTRAINED else "")
    gates = os.path.join(folder, f"{name}.{seed}.safetensors")
    if not os.path.exists(gates + ".whole"):
        kvfate("train", "--data", *data, "--method", settings(method), "--steps", str(1 if name in UNTRAINED else STEPS), "--length",
               str(LENGTH), "--check-every", "0", "--save-every", "4", "--keep-teacher", "--seed", str(seed), "-o", gates)
        files.write(gates + ".whole", "")
    return gates, method.partition(":")[0]


def equal_size(name, seed, gates, held_out, folder):
    """The row of write gates whose threshold makes them hold closest to EQUAL entries on other texts."""
    rows = {f"wgkv:local={WINDOWS[name]},tau={tau}": [] for tau in TAUS}
    _, scores = evaluated(os.path.join(folder, f"{name}.{seed}.taus"), held_out, 4, ",".join(rows), PROMPT + SCORED, gates)
    for r in scores:
        rows[r["method"]].append(float(r["kv_mean"]))
    return min(rows, key=lambda m: abs(sum(rows[m]) / len(rows[m]) - EQUAL))


def judged(name, seed, data, held_out, texts, sources, folder):
    """Rows of one training, by document."""
    gates, row = trained(name, seed, data, folder)
    budget = PROMPT + SCORED if row == "wgkv" else BUDGET
    if name in WINDOWS:
        row = equal_size(name, seed, gates, held_out, folder)
    elif row == "wgkv":
        row = "wgkv:local=16"
    meta, rows = evaluated(os.path.join(folder, f"{name}.{seed}.scores"), [texts], len(sources), row, budget, gates)
    if {r["doc_hash"] for r in rows} != set(sources):
        sys.exit(f"claims_trainings.py: {name}: the documents are not the texts; give a new folder")
    keep = ("doc_hash", "method", "budget", "kl", "kv_mean")
    return meta, [{"source": sources[r["doc_hash"]], "seed": seed, **{k: r[k] for k in keep}} for r in rows]


def table(name):
    return "eval-docs." + ("equal-" if name in WINDOWS else "") + name + ".tsv"


def least_seeds(folder):
    """The control of each claim about trainings: the seed alone for which it holds least."""
    with open(REGISTER, "rb") as f:
        claims = [c for c in tomllib.load(f)["claim"] if c.get("control", {}).get("run", "").startswith("seed-")]
    for c in claims:
        paths = [os.path.join(folder, f"eval-docs.{x}.tsv") for x in (c["run"], c["minus"]["run"])]
        if not all(map(os.path.exists, paths)):
            continue
        meta, rows = read(paths[0])
        sides = rows, read(paths[1])[1]
        sign = 1 if c["than"] == ">" else -1
        total = {s: sign * sum(w * float(r[c["value"]]) for w, side in zip((1, -1), sides) for r in side if r["seed"] == s)
                 for s in {r["seed"] for r in rows}}
        least = min(sorted(total), key=total.get)
        write(os.path.join(folder, f"eval-docs.{c['control']['run']}.tsv"), meta,
              [{**r, "method": x} for x, side in zip((c["run"], c["minus"]["run"]), sides) for r in side if r["seed"] == least])


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    text, questions, texts, folder = sys.argv[1:5]
    unknown = [x for x in sys.argv[5:] if x not in ORDER]
    if unknown:
        sys.exit(f"claims_trainings.py: no training '{unknown[0]}'; there are: {' '.join(ORDER)}")
    os.makedirs(folder, exist_ok=True)
    held_out = [last_tenth(text, os.path.join(folder, "held-out.txt")), last_tenth(questions, os.path.join(folder, "held-out.jsonl"))]
    together, sources = first_texts(texts, folder)
    data = [{"text": text, "questions": questions}[x] for x in BOTH]
    for name in sys.argv[5:] or ORDER:
        print(name, flush=True)
        runs = [judged(name, s, data, held_out, together, sources, folder) for s in range(int(os.environ.get("SEEDS", "3")))]
        write(os.path.join(folder, table(name)), runs[0][0], [r for _, rows in runs for r in rows])
        least_seeds(folder)


if __name__ == "__main__":
    main()
