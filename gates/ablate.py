#!/usr/bin/env python3
"""The papers' small claims on the default model: short trainings that differ in one setting each.

usage: gates/ablate.py wikitext2-valid.txt gsm8k-train.jsonl FOLDER [NAME...]     trains and judges what FOLDER lacks
       gates/ablate.py --table FOLDER                                             prints the tables as Markdown

Every training sees the same packs in the same order: the first nine tenths of the questions and of the text, which is given
three times so that prose and mathematics weigh the same.  What is trained is judged on the last tenths by `kvfate eval`; test
sets enter neither.  A stopped run goes on when the same command is given again.  KVFATE names the program (kvfate), THREADS the
threads (1).  The tables give the mean KL(full || method) in nats per token over the documents, and the mean difference from the
first row over all documents and budgets with the p of a permutation test over documents.  Entries held is eval's kv_mean: entries
per KV head that the scored queries find (of write gates the window's with them), mean over heads, queries, documents and the
table's columns.  Runs that are not finished are left out; without its first row a table has no differences, and with fewer than
two rows it is not printed.  numpy for the tables.
"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
from kvfate import files  # noqa: E402

STEPS, LENGTH, DOCS, BUDGETS = 48, 512, 5, "64,128"
TRIMKV = "trimkv:variant=code,bias=10,M=32,lr=1e-2,fwkl=1,ntp=0"
DBTRIMKV = "dbtrimkv:variant=code,bias=10,M=32,lr=1e-2,fwkl=1,ntp=0"
WGKV = "wgkv:variant=code,lr=1e-2,lambda=0.16,window=16"
KINDS = ("prose", "mathematics")
BOTH = ("text", "text", "text", "questions")

# name: what is trained, on what; settings given again come last and count
RUNS = {
    "trimkv": (TRIMKV, BOTH),
    "no-capacity": (TRIMKV + ",lambda=0", BOTH),
    "linear": (TRIMKV + ",net=linear", BOTH),
    "keys-values": (TRIMKV + ",net=rgkv", BOTH),
    "bias-18": (TRIMKV + ",bias=18", BOTH),
    "bias-6": (TRIMKV + ",bias=6", BOTH),
    "reverse-kl": (TRIMKV + ",fwkl=0,rvkl=1", BOTH),
    "next-token": (TRIMKV + ",fwkl=0,ntp=1", BOTH),
    "kl-and-next-token": (TRIMKV + ",ntp=1", BOTH),
    "prose": (TRIMKV, ("text", "text", "text")),
    "mathematics": (TRIMKV, ("questions",)),
    "M-16": (TRIMKV + ",M=16", BOTH),
    "M-128": (TRIMKV + ",M=128", BOTH),
    "logit": (TRIMKV + ",form=logit", BOTH),
    "trimkv-seed-1": (TRIMKV + ",net-seed=1", BOTH),
    "trimkv-seed-2": (TRIMKV + ",net-seed=2", BOTH),
    "dbtrimkv": (DBTRIMKV, BOTH),
    "untied": (DBTRIMKV + ",tied=0", BOTH),
    "dbtrimkv-seed-1": (DBTRIMKV + ",net-seed=1", BOTH),
    "dbtrimkv-seed-2": (DBTRIMKV + ",net-seed=2", BOTH),
    "wgkv": (WGKV, BOTH),
    "no-window": (WGKV + ",window=1", BOTH),
    "lambda-0.04": (WGKV + ",lambda=0.04", BOTH),
    "lambda-0.64": (WGKV + ",lambda=0.64", BOTH),
    "wgkv-seed-1": (WGKV + ",net-seed=1", BOTH),
    "wgkv-seed-2": (WGKV + ",net-seed=2", BOTH),
}

# Tables: heading, method that is judged, rows (the first is what the others are compared with)
TABLES = [
    ("Capacity loss removed", ["trimkv", "no-capacity"]),
    ("Capacity M in training", ["trimkv", "M-16", "M-128", "no-capacity"]),
    ("Initial bias", ["trimkv", "bias-6", "bias-18"]),
    ("The gate's form and input", ["trimkv", "linear", "keys-values"]),
    ("Quality loss", ["trimkv", "reverse-kl", "next-token", "kl-and-next-token"]),
    ("Gated attention", ["trimkv", "logit"]),
    ("Training text", ["trimkv", "prose", "mathematics"]),
    ("Tied readout", ["dbtrimkv", "untied"]),
    ("Seeds", ["trimkv", "trimkv-seed-1", "trimkv-seed-2"]),
    ("Seeds, DBTrimKV", ["dbtrimkv", "dbtrimkv-seed-1", "dbtrimkv-seed-2"]),
    ("Window removed", ["wgkv", "no-window"]),
    ("Lambda", ["wgkv", "lambda-0.04", "lambda-0.64"]),
    ("Seeds, WG-KV", ["wgkv", "wgkv-seed-1", "wgkv-seed-2"]),
]


def settings(text):
    """One value per key: the last one given, in the place of the first (variant stays in front)."""
    name, _, pairs = text.partition(":")
    return name + ":" + ",".join(f"{k}={v}" for k, v in dict(x.split("=", 1) for x in pairs.split(",")).items())


def last_tenth(source, to):
    """What `kvfate train --share 0.9` leaves out, as a file of its own."""
    if not os.path.exists(to):
        with open(source, "rb") as f:
            data = f.read()
        end = data.find(b"\n", int(len(data) * 0.9)) + 1
        if end in (0, len(data)):
            sys.exit(f"ablate.py: {source}: no line begins in the last tenth, so that nothing is left to judge on; "
                     "give a file of shorter lines")
        files.write(to, data[end:])
    return to


def kvfate(*argv):
    threads = ["--threads", os.environ.get("THREADS", "1")]
    subprocess.run([os.environ.get("KVFATE", "kvfate"), *argv, *threads], check=True, stdout=subprocess.DEVNULL)


def judged(method):
    """What eval runs: the row as it is; of write gates admission alone, with the window of the training and room for all."""
    row = method.partition(":")[0]
    if row != "wgkv":
        return row, BUDGETS
    return f"wgkv:local={dict(x.split('=') for x in method.partition(':')[2].split(','))['window']}", "640"


def train_and_judge(name, sources, folder, held_out):
    method, data = RUNS[name]
    gates = os.path.join(folder, name + ".safetensors")
    kvfate("train", "--data", *[sources[x] for x in data], "--method", settings(method), "--steps", str(STEPS), "--length",
           str(LENGTH), "--check-every", "0", "--save-every", "10", "--keep-teacher", "-o", gates)
    row, budgets = judged(settings(method))
    for kind, path in held_out.items():
        kvfate("eval", "--data", path, "--docs", str(DOCS), "--budgets", budgets, "--gates", gates, "--methods", row,
               "--state", os.path.join(folder, f"{name}.{kind}.state"), "-o", os.path.join(folder, f"{name}.{kind}.tsv"))


def results(path):
    """{budget: (KLs by document, mean entries held)} of a state file."""
    with open(path, encoding="utf-8") as f:
        lines = [line.rstrip("\n").split("\t") for line in f if not line.startswith("#") and line.endswith("\n")]
    rows = {}
    for line in lines[1:]:
        r = dict(zip(lines[0], line))
        kl, held = rows.setdefault(int(r["budget"]), ({}, []))
        kl[r["doc"]] = float(r["kl"])
        held.append(float(r["kv_mean"]))
    return rows


def finished(folder, name):
    """Results of a run by kind, or None: a file that eval is still at has fewer documents or budgets."""
    paths = {k: os.path.join(folder, f"{name}.{k}.state") for k in KINDS}
    if not all(os.path.exists(path) for path in paths.values()):
        return None
    rows = {k: results(path) for k, path in paths.items()}
    budgets = [int(b) for b in judged(settings(RUNS[name][0]))[1].split(",")]
    return rows if all(sorted(r) == budgets and all(len(kl) == DOCS for kl, _ in r.values()) for r in rows.values()) else None


def by_document(mine):
    """KL of every document of both kinds, the mean over the budgets."""
    return [sum(mine[k][b][0][d] for b in mine[k]) / len(mine[k]) for k in KINDS for d in next(iter(mine[k].values()))[0]]


def difference(mine, base):
    import numpy as np
    from paired import permutation_p
    x = np.array(by_document(mine)) - np.array(by_document(base))
    return f"{x.mean():+.3f}, p {permutation_p(x, np.random.default_rng(0)):.3f}"


def print_table(folder, heading, names):
    rows = {x: r for x in names if (r := finished(folder, x))}
    if len(rows) < 2:
        return
    base = rows.get(names[0])
    columns = [(k, b) for k in KINDS for b in sorted(next(iter(rows.values()))[k])]
    print(f"\n**{heading}**\n\n| | " + " | ".join(f"{k}, B = {b}" for k, b in columns) + " | entries held | difference |")
    print("|---" * (len(columns) + 3) + "|")
    for name, mine in rows.items():
        cells = [mine[k][b] for k, b in columns]
        means = [sum(kl.values()) / len(kl) for kl, _ in cells]
        held = sum(sum(h) / len(h) for _, h in cells) / len(cells)
        print(f"| `{name}` | " + " | ".join(f"{m:.3f}" for m in means) + f" | {held:.0f} | "
              + ("" if mine is base or not base else difference(mine, base)) + " |")


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--table":
        for heading, names in TABLES:
            print_table(sys.argv[2], heading, names)
        return
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    text, questions, folder = sys.argv[1:4]
    unknown = [x for x in sys.argv[4:] if x not in RUNS]
    if unknown:
        sys.exit(f"ablate.py: no run '{unknown[0]}'; there are: {' '.join(RUNS)}")
    os.makedirs(folder, exist_ok=True)
    held_out = {"prose": last_tenth(text, os.path.join(folder, "held-out.txt")),
                "mathematics": last_tenth(questions, os.path.join(folder, "held-out.jsonl"))}
    for name in sys.argv[4:] or RUNS:
        print(name, flush=True)
        train_and_judge(name, {"text": text, "questions": questions}, folder, held_out)


if __name__ == "__main__":
    main()
