#!/usr/bin/env python3
"""Make the tiny models of tiny_golden.json and qwen_golden.json and check that they are those they were made from.

usage: make_tiny.py GOLDEN_FOLDER OUT_FOLDER
"""
import hashlib
import json
import os
import subprocess
import sys


def main():
    golden, out = sys.argv[1:]
    for family in ("tiny", "qwen"):
        with open(os.path.join(golden, family + "_golden.json")) as f:
            cases = json.load(f)["cases"]
        for i, case in enumerate(cases[::2]):
            path = os.path.join(out, f"{family}{i}.gguf")
            subprocess.run([sys.executable, os.path.join(golden, "tools", "gen_tiny.py"), *case["args"].split(), "-o", path], check=True)
            with open(path, "rb") as f:
                found = hashlib.sha256(f.read()).hexdigest()
            if found != case["sha256"]:
                sys.exit(f"{path} ({case['args']}): sha256 is {found}, the golden file was made with {case['sha256']}")


if __name__ == "__main__":
    main()
