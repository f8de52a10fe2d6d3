#!/usr/bin/env python3
"""A register of claims from TOML to what kvfate reads.

usage: claims_json.py REGISTER.toml OUT.json     for `kvfate claims --register OUT.json`
       claims_json.py REGISTER.toml OUT.c        the same as an array of bytes
"""
import json
import os
import sys
import tomllib


def as_c(data):
    rows = [", ".join(str(b) for b in data[i:i + 20]) for i in range(0, len(data), 20)]
    return ('#include "cli/claims_embedded.h"\n\nconst unsigned char claims_embedded[] = {\n    '
            + ",\n    ".join(rows) + f"\n}};\nconst size_t claims_embedded_size = {len(data)};\n")


def main():
    if len(sys.argv) != 3 or not sys.argv[2].endswith((".json", ".c")):
        sys.exit(__doc__.strip())
    source, out = sys.argv[1:]
    try:
        with open(source, "rb") as f:
            register = tomllib.load(f)
        text = json.dumps(register, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, TypeError, ValueError) as e:
        sys.exit(f"claims_json.py: {source}: {e}")
    with open(out + ".part", "w", encoding="utf-8") as f:
        f.write(text + "\n" if out.endswith(".json") else as_c(text.encode()))
    os.replace(out + ".part", out)


if __name__ == "__main__":
    main()
