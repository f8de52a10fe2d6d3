#!/usr/bin/env python3
"""Compare kvfate's tokens with those of reference libraries, on published lines and on varied ones.

usage: compare_tokenizers.py FOLDER build/tests/engine/tokenize [--lines 2000] [NAME...]

vocabularies.py says what FOLDER holds.  Prints a table for docs/reference/parity.md and the first differences.
"""
import argparse
import os
import sys
import tempfile

from varied_lines import varied
from vocabularies import MAKERS, lines, ours


def compare(kind, texts, got, want):
    bad = [i for i in range(len(texts)) if got[i] != want[i]]
    for i in bad[:3]:
        at = next((k for k, (a, b) in enumerate(zip(got[i], want[i])) if a != b), min(len(got[i]), len(want[i])))
        print(f"  {kind}: {texts[i]!r}\n    token {at}: kvfate {got[i][at:at + 9]}, reference {want[i][at:at + 9]}", file=sys.stderr)
    return f"{len(texts) - len(bad)} of {len(texts)}" if texts else "none", len(bad)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("folder")
    ap.add_argument("program")
    ap.add_argument("--lines", type=int, default=2000)
    ap.add_argument("names", nargs="*")
    args = ap.parse_args()
    texts, wrong = varied(args.lines), 0
    print("| vocabulary | tokens | published lines | varied lines |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for name in args.names or MAKERS:
            print(f"{name}", file=sys.stderr)
            g, reference = MAKERS[name](args.folder)
            path = os.path.join(folder, name + ".gguf")
            g.write(path)
            marks = g.get("model") == b"gpt2"
            theirs, ids = lines(args.folder, name)
            cells = [compare("published", theirs, ours(args.program, path, theirs, False), ids),
                     compare("varied", texts, ours(args.program, path, texts, marks), [reference(t) for t in texts])]
            wrong += cells[0][1] + cells[1][1]
            print(f"| {name} | {len(g.get('tokens')):,} | {cells[0][0]} | {cells[1][0]} |", flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
