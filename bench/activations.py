#!/usr/bin/env python3
"""How many cache decisions the bits of activations change: pieces of a text are answered with --exact, and again with 16 and with 8 bits on
the same tokens (`kvfate part`).

usage: bench/activations.py KVFATE TEXT.txt [-m MODEL] [--docs N] [--methods A,B,..] [--budgets N,M,..]

A document is 3,000 bytes of the text, and 64 tokens that --exact generates behind it.  Of each method and budget, added up over documents:
entries held at the end that are not those of --exact, entries of which the step of their eviction differs, and pairs of a head and a step
whose query sees other entries."""
import argparse
import json
import os
import subprocess
import tempfile

PIECE, ANSWER, BITS = 3000, 64, ("16", "8")


def said(kvfate, *words):
    return subprocess.run([kvfate, *words], check=True, stdout=subprocess.PIPE).stdout.decode()


def differences(kvfate, model, row, text, folder):
    """For either number of bits: held otherwise, held, evicted otherwise, entries, cells that differ, cells."""
    exact = os.path.join(folder, "exact.kvf")
    common = [*model, *row, "--probes", "lean", "-q", "--overwrite"]
    said(kvfate, "run", *common, "--raw", "-f", text, "-n", str(ANSWER), "--ignore-eos", "--exact", "-o", exact)
    counts = []
    for bits in BITS:
        out = os.path.join(folder, bits + ".kvf")
        said(kvfate, "run", *common, "--force", exact, "--activations", bits, "-o", out)
        x = json.loads(said(kvfate, "part", exact, out, "--json"))
        steps, entries, differ = (int(x["meta"][k]) for k in ("T", "entries", "entries_differ"))
        heads = len(x["data"]["head"])
        counts.append((sum(x["data"]["only_b"]), heads * int(x["meta"]["budget"]), differ, entries,
                       heads * steps - sum(x["data"]["equal_steps"]), heads * steps))
    return counts


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("kvfate")
    p.add_argument("text")
    p.add_argument("-m", dest="model")
    p.add_argument("--docs", type=int, default=6)
    p.add_argument("--methods", default="h2o,snapkv,tova,trimkv")
    p.add_argument("--budgets", default="128,256")
    a = p.parse_args()
    with open(a.text, "rb") as f:
        text = f.read()
    model = ["-m", a.model] if a.model else []
    print("| method | budget | bits | held otherwise | evicted at another step | heads and steps that see others |\n|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        piece = os.path.join(folder, "piece.txt")
        for method, budget in ((m, b) for m in a.methods.split(",") for b in a.budgets.split(",")):
            sums = [[0] * 6 for _ in BITS]
            for i in range(a.docs):
                at = text.index(b"\n", len(text) // a.docs * i) + 1
                with open(piece, "wb") as f:
                    f.write(text[at:at + PIECE].decode("utf-8", "ignore").encode())
                found = differences(a.kvfate, model, ["--method", method, "-B", budget], piece, folder)
                sums = [[x + y for x, y in zip(s, c)] for s, c in zip(sums, found)]
            for bits, s in zip(BITS, sums):
                print("| %s | %s | %s | %s |" % (method, budget, bits, " | ".join("%.2f %%" % (100 * s[j] / s[j + 1]) for j in (0, 2, 4))), flush=True)


main()
