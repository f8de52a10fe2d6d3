#!/usr/bin/env python3
"""Puts the page of a report together, as two arrays of bytes.

usage: embed.py OUT.c page.html style.css palettes.list line_colours.h identity.c FILE.js...

page.html names where style, data and script go.  The scripts become one, in the order given, in a function of its own, after the
colours of the figures as text and of their lines.  The
page's policy (Content-Security-Policy) allows this style and this script, by their hashes, pictures that the page makes itself,
and nothing else: no other code, no connection, no frame, no form.
"""
import base64
import hashlib
import os
import re
import sys

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


def as_c(name, data):
    rows = [", ".join(str(b) for b in data[i:i + 24]) for i in range(0, len(data), 24)]
    return (f"const unsigned char {name}[] = {{\n    " + ",\n    ".join(rows)
            + f"\n}};\nconst size_t {name}_size = {len(data)};\n")


def main():
    if len(sys.argv) < 8:
        sys.exit(__doc__.strip())
    out, page, style, tables, colours, looks, *scripts = sys.argv[1:]
    texts = []
    for path in (page, style, tables, colours, looks, *scripts):
        with open(path, encoding="utf-8") as f:
            texts.append(f.read())
    page, style = texts[0], bare(texts[1])
    script = "'use strict';\n(() => {\n" + "\n".join([palettes(texts[2]), lines(texts[3]), methods(texts[4]), *map(bare, texts[5:])]) + "\n})();\n"
    for text, tag in ((style, "</style"), (script, "</script"), (script, "<!--")):
        if tag in text.lower():
            sys.exit(f"embed.py: {tag} would end the element early")
    policy = (f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}; img-src data: blob:; "
              "base-uri 'none'; form-action 'none'")
    page = page.replace("{{policy}}", policy).replace("{{style}}", style).replace("{{script}}", script)
    head, tail = page.split("{{data}}\n")
    with open(out + ".part", "w", encoding="utf-8") as f:
        f.write('#include "render/report/page.h"\n\n' + as_c("page_head", head.encode()) + as_c("page_tail", tail.encode()))
    os.replace(out + ".part", out)


if __name__ == "__main__":
    main()
