#!/usr/bin/env python3
"""Checks that mandoc reports no problem in any manual page, as generated from its template. Skipped
(77) without mandoc."""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import lint
import program as describe

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'docs'))
import man_pages  # noqa: E402


def make_pages(root, program, folder):
    """Makes all pages in the folder. Returns problems with templates that give no page."""
    common = man_pages.common_texts(lint.read(root, 'docs/man/common.mdoc'))
    templates = {os.path.basename(t): man_pages.read(t) for t in sorted(glob.glob(os.path.join(root, 'docs/man/kvfate*.1')))}
    try:
        for name, page in man_pages.pages(program.all, templates, common):
            Path(os.path.join(folder, name)).write_text(page, encoding='utf-8')
    except (SystemExit, KeyError) as wrong:
        yield f'docs/man/{str(wrong).split(":")[0]}:1: {wrong}'
    shutil.copy(os.path.join(root, 'docs/man/kvf.5'), folder)


def said(folder, pages, *options):
    """Returns mandoc's messages about the pages, one per line."""
    done = subprocess.run(['mandoc', '-T', 'lint', *options, *pages], cwd=folder, capture_output=True, text=True)
    # Messages about the manual pages of the machine are ignored.
    return [line.replace('mandoc: ', 'docs/man/', 1) for line in done.stdout.splitlines()] \
        + [line for line in done.stderr.splitlines() if 'outdated mandoc.db' not in line]


REFERENCE = re.compile(r'^(\.(?:\S+ )*)Xr (\S+) (\d)', re.M)


def without_references(folder, pages):
    """Removes the references from the pages and returns those to pages that do not exist. Otherwise
    mandoc would search all manual pages of the machine for each page."""
    for page in pages:
        text = man_pages.read(os.path.join(folder, page))
        for found in REFERENCE.finditer(text):
            if f'{found[2]}.{found[3]}' not in pages:
                line = text[:found.start()].count('\n') + 1
                yield f'docs/man/{page}:{line}: referenced manual not found: Xr {found[2]} {found[3]}'
        Path(os.path.join(folder, page)).write_text(REFERENCE.sub(r'\1Va \2 \3', text), encoding='utf-8')


def check(root, args):
    program = describe.of(root, args)
    with tempfile.TemporaryDirectory() as folder:
        reports = list(make_pages(root, program, folder))
        if reports:  # there are not all pages
            return reports
        pages = sorted(os.listdir(folder))
        reports += said(folder, pages, '-W', 'warning')
        reports += without_references(folder, pages)
        reports += said(folder, pages)
    return list(dict.fromkeys(reports)) + ([] if len(pages) > 1 else ['docs/man: no pages'])


PLANTS = [
    lint.Plant('docs/man/kvfate.1', 'unknown', append='.Zz nothing\n'),
    lint.Plant('docs/man/kvfate-run.1', 'Xr kvfate-none 1', append='.Pp\n.Xr kvfate-none 1\n'),
    lint.Plant('docs/man/kvfate-run.1', 'Xr kvfate-none 1', append='.Pp\n.Pq and Xr kvfate-none 1 ,\n'),
    lint.Plant('docs/man/kvfate-run.1', 'ERROR', replace=('.Sh SEE ALSO\n', '.El\n.Sh SEE ALSO\n')),
    lint.Plant('docs/man/kvfate-none.1', 'no such command', text='.Sh DESCRIPTION\nNothing.\n'),
]

if __name__ == '__main__':
    if not shutil.which('mandoc'):
        print('mandoc is not installed: manual pages are not checked')
        sys.exit(77)
    sys.exit(lint.main(check, PLANTS, add_arguments=describe.arguments))
