#!/usr/bin/env python3
"""Puts the page of a report together, as two arrays of bytes.

usage: embed.py OUT.c OUT.js page.html style.css palettes.list line_colours.h identity.c classes.c columns.c FILE.js...

page.html names where style, description of the tables, script and data go.  The script comes before the data, so that a browser
shows the first map before it has read all of them.  The scripts become one, in the order given, in a function of its own, after the
colours of the figures as text and of their lines, the classes of tokens and the probes that record columns.  The
page's policy (Content-Security-Policy) allows this style and this script, by their hashes, pictures that the page makes itself,
and nothing else: no other code, no connection, no frame, no form.

OUT.js contains only the scripts of the folder trace, the reader of traces, as a module for node.
"""
import base64
import hashlib
import os
import re
import sys

USED = "openTrace, tablesOf, TraceError, MAX_FILE"  # of the reader of traces, by the other scripts
PALETTES = ("blues", "viridis", "cividis", "magma", "bluered")


def digest(text):
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def bare(text):
    """Without lines that are comments alone, and indents."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def palettes(tables):
    """const PALETTES = {name: 256 colours of six digits}"""
    out = []
    for name in PALETTES:
        body = re.search(rf"COLOUR_MAP\({name},(.*?)\)", tables, re.S).group(1)
        colours = re.findall(r"0x([0-9a-f]{6})", body)
        assert len(colours) == 256, name
        out.append(f"{name}: '{''.join(colours)}'")
    return "const PALETTES = { " + ",\n".join(out) + " };"


def lines(header):
    """const LINES = [colours of lines], CRITERIA = [[name, colour]], HEAD_KINDS = Map of kind to colour"""
    some = re.search(r"line_colours\[8\] = {(.*?)}", header, re.S).group(1)
    colours = [f"'#{c}'" for c in re.findall(r"0x([0-9a-f]{6})", some)]
    criteria = [f"['{kind}{most}', '#{c}']" for kind, most, c in re.findall(r'{"([a-z.]+)", (\d+), 0x([0-9a-f]{6})}', header)]
    kinds = [f"['{name}', '#{c}']" for name, c in re.findall(r'{"([a-z-]+)", "[A-Z?]?", 0x([0-9a-f]{6})}', header)]
    assert len(colours) == 8 and len(criteria) == 7 and len(kinds) == 11
    return (f"const LINES = [{', '.join(colours)}];\nconst CRITERIA = [{', '.join(criteria)}];\n"
            f"const HEAD_KINDS = new Map([{', '.join(kinds)}]);")


def methods(source):
    """const METHOD_COLOURS = Map of method to colour"""
    own = dict(re.findall(r'{"([a-z0-9-]+)", 0x([0-9a-f]{6}), MARK_', source))
    like = {name: own[other] for name, other in re.findall(r'{"([a-z0-9-]+)", "([a-z0-9-]+)"}', source) if other in own}
    assert len(own) > 15
    return "const METHOD_COLOURS = new Map([" + ", ".join(f"['{name}', '#{c}']" for name, c in {**like, **own}.items()) + "]);"


def literals(source):
    """The text of adjacent C string literals."""
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', source)).replace("\\\\", "\\")


SPACES = r"\t-\r \x85\xa0\u1680\u180e\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
ESCAPES = {"s": SPACES, "w": r"\p{L}\p{N}_", "d": r"\p{Nd}"}


def pattern(regex):
    """A regular expression of PCRE2 (flags UTF and UCP) as a literal of JavaScript."""
    flags = "giu" if regex.startswith("(?i)") else "gu"
    regex = re.sub(r"^\(\?:(.*)\)\\K", r"(?<=\1)", regex.removeprefix("(?i)"))
    out, inside = [], False
    for item in re.findall(r"\\.|.", regex.replace(r"\x{", r"\u{")):
        if item[0] == "\\" and item[1] in ESCAPES:
            item = ESCAPES[item[1]] if inside else f"[{ESCAPES[item[1]]}]"
        elif item in (r"\A", r"\z"):
            item = "^" if item == r"\A" else "$"
        elif item == "." and not inside:
            item = r"[^\n]"
        elif item == "/":
            item = r"\/"
        elif item in "[]":
            inside = item == "["
        out.append(item)
    return f"/{''.join(out)}/{flags}"


def classes(source):
    """const TOKEN_CLASSES = [[class, whether its rule is searched for in the text of the document, regular expression]]"""
    words = {name: literals(body) for name, body in re.findall(r"#define (\w+_WORDS)((?:.*\\\n)+.*\n)", source)}
    table = re.search(r"} built_in\[\] = {(.*?)\n};", source, re.S).group(1)
    out = []
    for name, of_text, rule in re.findall(r"{CLASS_(\w+), (true|false),\s*(.*?)}(?=,\s*{CLASS|,\s*$)", table, re.S):
        listed = re.fullmatch(r"WORDS\((\w+)\)", rule)
        regex = r"(?i)\A\s*(?:" + words[listed.group(1)] + r")\z" if listed else literals(rule)
        out.append(f"['{ {'SPACE': 'whitespace'}.get(name, name.lower()) }', {of_text}, {pattern(regex)}]")
    assert len(out) == 13 and len(words) == 2
    return "const TOKEN_CLASSES = [" + ",\n".join(out) + "];"


def supplies(source):
    """const COLUMN_SUPPLIES = [[name of a column, option of `kvfate run` or null, name in `kvfate trace import` or null]]"""
    rows = re.findall(r'{"([^"]+)", (NULL|"[^"]*"), (NULL|ROWS|"[^"]*")}', source)
    text = {"NULL": "null", "ROWS": "'attention'"}
    assert len(rows) > 40
    return "const COLUMN_SUPPLIES = [" + ",\n".join(f"['{name}', {text.get(flag, flag)}, {text.get(of, of)}]" for name, flag, of in rows) + "];"


def as_c(name, data):
    rows = [", ".join(str(b) for b in data[i:i + 24]) for i in range(0, len(data), 24)]
    return (f"const unsigned char {name}[] = {{\n    " + ",\n    ".join(rows)
            + f"\n}};\nconst size_t {name}_size = {len(data)};\n")


def write(path, text):
    with open(path + ".part", "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(path + ".part", path)


def main():
    if len(sys.argv) < 10:
        sys.exit(__doc__.strip())
    out, module, page, style, tables, colours, looks, rules, columns, *scripts = sys.argv[1:]
    texts = []
    for path in (page, style, tables, colours, looks, rules, columns, *scripts):
        with open(path, encoding="utf-8") as f:
            texts.append(f.read())
    page, style = texts[0], bare(texts[1])
    reader = [classes(texts[5]), supplies(texts[6]), *(t for path, t in zip(scripts, texts[7:]) if "/trace/" in path)]
    others = [t for path, t in zip(scripts, texts[7:]) if "/trace/" not in path]
    own = f"const {{ {USED} }} = (() => {{\n" + "\n".join(map(bare, reader)) + f"\nreturn {{ {USED} }};\n}})();"
    script = "'use strict';\n(() => {\n" + "\n".join([palettes(texts[2]), lines(texts[3]), methods(texts[4]), own, *map(bare, others)]) + "\n})();\n"
    for text, tag in ((style, "</style"), (script, "</script"), (script, "<!--")):
        if tag in text.lower():
            sys.exit(f"embed.py: {tag} would end the element early")
    policy = (f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}; img-src data: blob:; "
              "base-uri 'none'; form-action 'none'")
    page = page.replace("{{policy}}", policy).replace("{{style}}", style).replace("{{script}}", script)
    head, rest = page.split("{{manifest}}\n")
    code, tail = rest.split("{{data}}\n")
    write(out, '#include "render/report/page.h"\n\n' + as_c("page_head", head.encode()) + as_c("page_script", code.encode())
          + as_c("page_tail", tail.encode()))
    write(module, "'use strict';\n" + "\n".join(reader) + "\nmodule.exports = { openTrace, TraceError, decodeFrame, tablesOf };\n")


if __name__ == "__main__":
    main()
