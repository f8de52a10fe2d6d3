#!/usr/bin/env python3
"""Makes the tiny models of tiny_golden.json, qwen_golden.json and family_golden.json and checks
that they are the models from which these were made.

usage: make_tiny.py GOLDEN_FOLDER OUT_FOLDER
"""
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path


def main():
    golden, out = sys.argv[1:]
    for family, cases_of_a_model in (("tiny", 2), ("qwen", 2), ("family", 1)):
        cases = json.loads(Path(os.path.join(golden, family + "_golden.json")).read_text())["cases"]
        for i, case in enumerate(cases[::cases_of_a_model]):
            path = os.path.join(out, f"{family}{i}.gguf")
            subprocess.run([sys.executable, os.path.join(golden, "tools", "gen_tiny.py"), *case["args"].split(), "-o", path], check=True)
            found = hashlib.sha256(Path(path).read_bytes()).hexdigest()
            if found != case["sha256"]:
                sys.exit(f"{path} ({case['args']}): sha256 is {found}, the golden file was made with {case['sha256']}")


if __name__ == "__main__":
    main()
