#!/usr/bin/env python3
"""NLL of a text by the fast path against --exact, for the table of quantised types in parity.md.

usage: compare_nll.py KVFATE MODEL.gguf TEXT [--tokens 8192] [--piece 4000]

Takes consecutive pieces of the text, of so many bytes each and each read from an empty cache, until there are that many
tokens, records the NLL of every token by both paths, and prints the means, their difference, and the root mean square and
the largest difference of single tokens.
"""
import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "format"))
import digest  # noqa: E402,F401 finds the package
import kvfate  # noqa: E402


def nll(a, text, exact, folder):
    """NLL of all tokens of one piece but the first."""
    path, out = os.path.join(folder, "text"), os.path.join(folder, "out.kvf")
    Path(path).write_text(text)
    subprocess.run([a.kvfate, "run", "--overwrite", "-m", a.model, "--raw", "-f", path, "-n", "1", "-q", "--probes", "nll", "-o", out,
                    *(["--exact"] if exact else [])], check=True, stdout=subprocess.DEVNULL)
    return kvfate.open(out)["nll"][1:].astype(float)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("kvfate")
    p.add_argument("model")
    p.add_argument("text")
    p.add_argument("--tokens", type=int, default=8192)
    p.add_argument("--piece", type=int, default=4000)
    a = p.parse_args()
    text = Path(a.text).read_text()
    fast, exact, at = [], [], 0
    with tempfile.TemporaryDirectory() as folder:
        while sum(map(len, fast)) < a.tokens and at < len(text):
            for out, is_exact in ((fast, False), (exact, True)):
                out.append(nll(a, text[at:at + a.piece], is_exact, folder))
            at += a.piece
    x, y = np.concatenate(fast), np.concatenate(exact)
    d = x - y
    print(f"{x.size} tokens: fast {x.mean():.6f}, exact {y.mean():.6f}, difference {d.mean():+.1e}, rms {np.sqrt((d * d).mean()):.1e}, "
          f"largest {np.abs(d).max():.1e}")


if __name__ == "__main__":
    main()
