#!/usr/bin/env python3
"""What the program knows of the commands that live in the Python package, from their table.

usage: package_commands.py python/kvfate/commands.py OUT.c
"""
import importlib.util
import json
import os
import sys

TYPES = {"str": "OPT_STR", "int": "OPT_INT", "real": "OPT_REAL", "word": "OPT_WORD", "list": "OPT_LIST"}


def text(value):
    """A C string; JSON's escapes are C's, but for those of code points, which are not written."""
    return "NULL" if value is None else json.dumps(value, ensure_ascii=False)


def option(o, words):
    kind = TYPES[o.type] if o.arg is not None else "OPT_FLAG"
    short = f"'{o.short}'" if o.short else "0"
    return (f"    {{{kind}, {short}, {text(o.name)}, 0, {text(o.arg)}, {text(o.help)}, {text(o.standard)}, {text(o.absent)}, {o.min!r}, {o.max!r}, "
            f"{words}}},\n")


def key(c):
    """The name of a command in cli/commands.list: the last of its words."""
    return c.name.split()[-1]


def command(c):
    name, out, rows = key(c).replace("-", "_"), "", ""
    for i, o in enumerate(c.options):
        words = "NULL"
        if o.words:
            words = f"words_{name}_{i}"
            out += f"static const char *const {words}[] = {{{', '.join(map(text, o.words))}, NULL}};\n"
        rows += option(o, words)
    if c.figure:
        rows += '    {OPT_GROUP, 0, "figure", 0, .group = figure_options},\n'
    exits = "".join("    EXIT_PARTIAL,\n" if when is None else f"    {{{text(status)}, {text(when)}}},\n" for status, when in c.exits)
    if exits:
        out += f"static const struct exit_status exits_{name}[] = {{\n{exits}    {{NULL, NULL}},\n}};\n"
    more = f" .exits = exits_{name}," if exits else ""
    return out + f"""static const struct opt options_{name}[] = {{
{rows}    {{.type = OPT_END}},
}};
const struct command command_{name} = {{
    .name = {text(key(c))}, .group = {text(c.group)}, .summary = {text(c.summary)},
    .example = {text(c.example)}, .needs = {text(c.needs)},
    .operands = {{{text(c.operands)}, {text(c.kind)}, {c.least}, {c.most}}},
    .options = options_{name}, .in_package = true,{more}
    .request_bytes = sizeof(struct figure_options), // room for the defaults that help fills in
}};
"""


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location("commands", sys.argv[1])
    table = importlib.util.module_from_spec(spec)
    sys.modules["commands"] = table
    spec.loader.exec_module(table)
    commands = [c for c in table.COMMANDS.values() if c.listed]
    out = '#include <stddef.h>\n\n#include "cli/commands.h"\n#include "cli/figure_options.h"\n\n'
    out += "".join(f"extern const struct command command_{key(c).replace('-', '_')};\n" for c in commands)
    with open(sys.argv[2] + ".part", "w", encoding="utf-8") as f:
        f.write(out + "\n" + "\n".join(map(command, commands)))
    os.replace(sys.argv[2] + ".part", sys.argv[2])


if __name__ == "__main__":
    main()
