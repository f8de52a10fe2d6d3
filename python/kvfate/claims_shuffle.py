#!/usr/bin/python3
"""Tables whose labels are dealt anew, for the null checks of docs/studies/claims.md (claims.sh calls it).

usage: claims_shuffle.py FOLDER

What a claim compares, such as two methods on one document, keeps its numbers and loses which is which.  A verdict that such
tables support would come from how units are taken and not from what was measured.  The seed is fixed.
"""
import glob
import os
import random
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from kvfate import files  # noqa: E402

# Table made: tables read; the rows that stay together; the columns of the label; columns that must have one of these values.
JOBS = {
    "eval-docs.shuffled": (["eval-docs"], ["doc_hash", "budget"], ["method", "options"], {}),
    "eval-docs.trained-shuffled": (["eval-docs.*"], ["doc_hash", "seed", "budget"], ["method"], {}),
    "density.shuffled": (["density.gkv", "density.gkv-local", "density.snapkv"], ["doc", "head"], ["method"], {}),
    "kv-size.wgkv-shuffled": (["kv-size.wgkv"], [], ["source", "nth"], {"head": ["all"]}),
    "dynamics.shuffled": (["dynamics"], ["head", "prompt", "rollout", "index", "x"], ["surrogate"], {"quantity": ["spectral_radius"]}),
}
NOT_TRAINED = {"shuffled", "trained-shuffled", "same-gates", "random-gates"}


def read(path):
    """Metadata lines, names of columns, rows."""
    with open(path, encoding="utf-8") as f:
        lines = f.read().splitlines()
    meta = [x for x in lines if x.startswith("#") and not x.startswith("# checksum: ")]  # which is of the rows in their order
    table = [x.split("\t") for x in lines if not x.startswith("#")]
    return meta, (table or [[]])[0], table[1:]


def shuffled(head, rows, together, labels, seed):
    """Copies of the rows: among those that agree in the columns `together`, the cells of `labels` are dealt anew."""
    chance, groups = random.Random(seed), {}
    rows = [list(r) for r in rows]
    for r in rows:
        groups.setdefault(tuple(r[head.index(c)] for c in together), []).append(r)
    for _, group in sorted(groups.items()):
        dealt = [[r[head.index(c)] for c in labels] for r in group]
        chance.shuffle(dealt)
        for r, cells in zip(group, dealt):
            for c, cell in zip(labels, cells):
                r[head.index(c)] = cell
    return rows


def main():
    folder, = sys.argv[1:]
    for made, (names, together, labels, only) in JOBS.items():
        trained = made == "eval-docs.trained-shuffled"
        paths = sorted(p for n in names for p in glob.glob(os.path.join(folder, n + ".tsv")))
        meta, head, rows = [], [], []
        for path in paths:
            run = os.path.basename(path)[:-len(".tsv")].partition(".")[2]
            if trained and (run in NOT_TRAINED or run.startswith("seed-")):
                continue
            meta, head, more = read(path)
            if trained:  # the label is the training, not the method that all of them share
                more = [[run if c == "method" else x for c, x in zip(head, r)] for r in more]
            rows += [r for r in more if all(r[head.index(c)] in v for c, v in only.items())]
        if not rows:
            continue
        lines = [*[[m] for m in meta], head, *shuffled(head, rows, together, labels, made)]
        files.write(os.path.join(folder, made + ".tsv"), "".join("\t".join(r) + "\n" for r in lines))


if __name__ == "__main__":
    main()
