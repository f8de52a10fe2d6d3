#!/usr/bin/env python3
"""Measure how many cache decisions change with the bits of activations.

usage: bench/activations.py KVFATE TEXT.txt [-m MODEL] [--bits 16,8] [--docs N] [--methods A,B,..] [--budgets N,M,..]

Pieces of a text are answered with --exact, and again with 16 and with 8 bits on the same tokens (`kvfate trace diff --first`). The
script also measures how far logits are from those of --exact.  --bits are words of --activations: auto,16 for a
model with float weights.  A document is 3,000 bytes of the text, followed by 64 tokens that --exact generates.  For
each method and budget, summed over documents, it prints three counts: entries cached at the end that --exact does
not cache, entries with a different eviction step, and pairs of a head and a step whose query sees other entries.
Logits are taken after each quarter of a document: root mean square and maximum of the differences, and KL(exact ||
other).
"""
import argparse
import json
import os
import subprocess
import tempfile

import numpy as np

PIECE, ANSWER, CUTS = 3000, 64, 4


def said(kvfate, *words):
    return subprocess.run([kvfate, *words], check=True, stdout=subprocess.PIPE).stdout.decode()


def logits(kvfate, model, text, folder, *options):
    out = os.path.join(folder, "logits.npy")
    said(kvfate, "generate", "--logits", *model, "--raw", "-f", text, "-o", out, *options)
    return np.load(out).astype(float).ravel()


def distances(kvfate, model, bits, text, folder):
    """Return for each word of bits the mean square and maximum difference of logits, and KL."""
    exact = logits(kvfate, model, text, folder, "--exact")
    log_p = exact - np.logaddexp.reduce(exact)
    out = []
    for word in bits:
        x = logits(kvfate, model, text, folder, "--activations", word)
        d = x - exact
        out.append((np.mean(d * d), np.abs(d).max(), np.sum(np.exp(log_p) * (log_p - x + np.logaddexp.reduce(x)))))
    return out


def piece(text, at, n, path):
    with open(path, "wb") as f:
        f.write(text[at:at + n].decode("utf-8", "ignore").encode())


def print_distances(a, model, starts, text, folder):
    print("| bits | logits rms | largest | KL(exact \\|\\| other) per token |\n|---|---|---|---|", flush=True)
    path = os.path.join(folder, "piece.txt")
    found = []
    for at, cut in ((at, cut) for at in starts for cut in range(1, CUTS + 1)):
        piece(text, at, PIECE * cut // CUTS, path)
        found.append(distances(a.kvfate, model, a.bits.split(","), path, folder))
    for i, word in enumerate(a.bits.split(",")):
        square, largest, kl = zip(*(f[i] for f in found))
        print(f"| {word} | {np.mean(square) ** 0.5:.2g} | {max(largest):.2g} | {np.mean(kl):.1e} |", flush=True)


def differences(kvfate, model, words, row, text, folder):
    """Return for each word of bits: entries cached differently, cached, evicted differently, entries, cells that
    differ, cells.
    """
    exact = os.path.join(folder, "exact.kvf")
    common = [*model, *row, "--probes", "lean", "-q", "--overwrite"]
    said(kvfate, "run", *common, "--raw", "-f", text, "-n", str(ANSWER), "--ignore-eos", "--exact", "-o", exact)
    counts = []
    for bits in words:
        out = os.path.join(folder, bits + ".kvf")
        said(kvfate, "run", *common, "--force", exact, "--activations", bits, "-o", out)
        x = json.loads(said(kvfate, "trace", "diff", "--first", exact, out, "--json"))
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
    p.add_argument("--bits", default="16,8")
    p.add_argument("--docs", type=int, default=6)
    p.add_argument("--methods", default="h2o,snapkv,tova,trimkv")
    p.add_argument("--budgets", default="128,256")
    a = p.parse_args()
    with open(a.text, "rb") as f:
        text = f.read()
    model = ["-m", a.model] if a.model else []
    starts = [text.index(b"\n", len(text) // a.docs * i) + 1 for i in range(a.docs)]
    words = a.bits.split(",")
    with tempfile.TemporaryDirectory() as folder:
        print_distances(a, model, starts, text, folder)
        print("\n| method | budget | bits | held otherwise | evicted at another step | heads and steps that see others |\n|---|---|---|---|---|---|", flush=True)
        path = os.path.join(folder, "piece.txt")
        for method, budget in ((m, b) for m in a.methods.split(",") for b in a.budgets.split(",")):
            sums = [[0] * 6 for _ in words]
            for at in starts:
                piece(text, at, PIECE, path)
                found = differences(a.kvfate, model, words, ["--method", method, "-B", budget], path, folder)
                sums = [[x + y for x, y in zip(s, c)] for s, c in zip(sums, found)]
            for bits, s in zip(words, sums):
                print("| %s | %s | %s | %s |" % (method, budget, bits, " | ".join("%.2f %%" % (100 * s[j] / s[j + 1]) for j in (0, 2, 4))), flush=True)


main()
