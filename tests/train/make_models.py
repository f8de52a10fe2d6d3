#!/usr/bin/env python3
"""Makes the models of train.json and checks that they are the models from which it was made.

usage: make_models.py GOLDEN_FOLDER OUT_FOLDER
"""
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path


def main():
    golden, out = sys.argv[1:]
    models = json.loads(Path(os.path.join(golden, "train.json")).read_text())["models"]
    for i, model in enumerate(models):
        path = os.path.join(out, f"train{i}.gguf")
        tool = os.path.join(golden, "tools", "gen_tiny.py")
        subprocess.run([sys.executable, tool, *model["args"].split(), "-o", path], check=True)
        found = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        if found != model["sha256"]:
            sys.exit(f"{path}: sha256 is {found}, the golden file was made with {model['sha256']}")


if __name__ == "__main__":
    main()
