#!/usr/bin/env python3
"""Head gates for the method `duo` from an effect: how much predictions lose when a head has sinks and a window only.

usage: duo_alpha.py EFFECT.tsv OUT.safetensors

EFFECT.tsv is the table of `kvfate ablate -o EFFECT.tsv` with a row for every KV head.  alpha is the rank of the head's kl from 0 to 1, since `duo`
uses the order only.  DuoAttention learns its alphas instead; docs/guide/own-model.md lists the models for which they are published.
"""
import json
import os
import struct
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
from kvfate import files  # noqa: E402


def read(path):
    with open(path, encoding="utf-8") as f:
        lines = [line.rstrip("\n") for line in f]
    meta = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# ") and ": " in line)
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return meta, [dict(zip(rows[0], r)) for r in rows[1:]]


def main(path, out):
    meta, rows = read(path)
    kl = {(int(r["layer"]), int(r["index"])): float(r["kl"]) for r in rows if r["head"] != "all"}
    layers, heads = (1 + max(k[i] for k in kl) for i in (0, 1))
    if len(kl) != layers * heads or meta.get("held", "").startswith("all heads but"):
        sys.exit(f"duo_alpha.py: {path} needs a row for each of {layers} x {heads} KV heads, each held alone (no --head, no --mirror)")
    order = sorted(kl, key=lambda k: (kl[k], k))
    alpha = {k: i / max(1, len(order) - 1) for i, k in enumerate(order)}
    data = struct.pack(f"<{layers * heads}f", *(alpha[l, h] for l in range(layers) for h in range(heads)))
    header = {"__metadata__": {"kvfate.layout": "duo", "kvfate.kind": "heads"},
              "duo.alpha": {"dtype": "F32", "shape": [layers, heads], "data_offsets": [0, len(data)]}}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    files.write(out, struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__.split("\n\n")[1])
    main(*sys.argv[1:])
