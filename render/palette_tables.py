#!/usr/bin/env python3
"""Makes palette_tables.h from the published tables of 256 colours.

usage: palette_tables.py MATPLOTLIB COLORCET CMCRAMERI > palette_tables.h
(the folders of those three Python packages, unpacked)"""
import os
import re
import sys

LISTED = ['viridis', 'cividis', 'magma', 'inferno', 'plasma']
HEAD = '''/* palette_tables.h - colour maps as published, 256 sRGB colours each, rounded to 8 bits:
 * made by palette_tables.py.  Sources and licences:
 *   viridis, magma, inferno, plasma  Smith and van der Walt 2015, CC0
 *   cividis    Nunez, Anderton and Renslow 2018 (PLOS ONE 13(7), e0199239), CC0
 *   bluered    CET-D1A (diverging-bwr-20-95-c54) of Kovesi 2015 (arXiv:1509.03700), CC BY 4.0
 *   vik        Crameri 2018 (doi:10.5281/zenodo.1243862), MIT */
#ifndef KVF_RENDER_PALETTE_TABLES_H
#define KVF_RENDER_PALETTE_TABLES_H

#include <stdint.h>
'''


def read(*path):
    with open(os.path.join(*path), encoding='utf-8') as f:
        return f.read()


def triples(text):
    rows = re.findall(r'[\d.e-]+[, ]+[\d.e-]+[, ]+[\d.e-]+', text)[:256]
    return [[float(x) for x in re.split('[, ]+', row)] for row in rows]


def after(text, mark):
    at = re.search(mark, text).end()
    return triples(text[at:at + 40000])


def show(name, rows):
    assert len(rows) == 256 and all(0 <= x <= 1 for row in rows for x in row), name
    word = ['0x{:02x}{:02x}{:02x}'.format(*(int(x * 255 + 0.5) for x in row)) for row in rows]
    lines = [', '.join(word[i:i + 8]) for i in range(0, 256, 8)]
    print(f'\nstatic const uint32_t {name}[256] = {{\n    ' + ',\n    '.join(lines) + '};')


def main(matplotlib, colorcet, cmcrameri):
    print(HEAD.rstrip())
    listed = read(matplotlib, '_cm_listed.py')
    for name in LISTED:
        show(name, after(listed, rf'_{name}_data = \['))
    show('bluered', after(read(colorcet, '__init__.py'), r'\ndiverging_bwr_20_95_c54 = \[.*'))
    show('vik', triples(read(cmcrameri, 'cmaps/vik.txt')))
    print('\n#endif')


if __name__ == '__main__':
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
