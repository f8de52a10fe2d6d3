"""Shared by the makers of golden files with torch: tiny models, rounded numbers, and the file."""
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
import transformers


def tiny(options, folder, i):
    """Makes a model with gen_tiny.py and returns its path. options: its command line."""
    path = os.path.join(folder, f"{i}.gguf")
    subprocess.run([sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "gen_tiny.py"), *options.split(), "-o", path], check=True)
    return path


def sha256(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def log_sum_exp(row):
    row = row.astype(np.float64)
    return float(row.max() + np.log(np.exp(row - row.max()).sum()))


def floats(row, digits=9):
    return [float(f"{x:.{digits}g}") for x in row]


def nll(rows, ids, digits=9):
    """minus log p(ids[i + 1] | ids[0..i]), for i = 0 .. n - 2"""
    return floats([log_sum_exp(row) - float(row[t]) for row, t in zip(rows, ids[1:])], digits)


def write(path, result, **versions):
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "numpy": np.__version__, **versions}
    with open(path, "w") as f:
        json.dump({"versions": versions, **result}, f, separators=(",", ":"))
        f.write("\n")
