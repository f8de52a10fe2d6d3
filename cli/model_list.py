#!/usr/bin/env python3
"""Write the models that can be fetched as a table in C, from that of the Python package.

usage: model_list.py python/kvfate/model_list.py OUT.c
"""
import importlib.util
import json
import os
import sys


def text(value):
    """Returns a C string; JSON's escapes are C's."""
    return "NULL" if value is None else json.dumps(value)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location("model_list", sys.argv[1])
    table = importlib.util.module_from_spec(spec)
    sys.modules["model_list"] = table
    spec.loader.exec_module(table)
    out = '#include <stddef.h>\n\n#include "cli/model_list.h"\n\nconst struct listed_model model_list[] = {\n'
    for m in table.MODELS:
        words = ", ".join(map(text, (m.name, m.file, m.sha256, m.family, m.title, m.licence, m.terms)))
        out += f"    {{{words}, {m.bytes}}},\n"
    with open(sys.argv[2] + ".part", "w", encoding="utf-8") as f:
        f.write(out + "    {.name = NULL},\n};\n")
    os.replace(sys.argv[2] + ".part", sys.argv[2])


if __name__ == "__main__":
    main()
