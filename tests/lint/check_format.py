#!/usr/bin/env python3
"""Checks that all C is formatted by clang-format with .clang-format. Skipped (77) if the formatter
is not installed, or has another version than the one used for the code: versions break lines
differently."""
import os
import re
import shutil
import subprocess
import sys

import lint

FORMATTER, VERSION = 'clang-format', 14


def version():
    """Returns the version of the formatter; 0 if there is none."""
    if not shutil.which(FORMATTER):
        return 0
    said = subprocess.run([FORMATTER, '--version'], capture_output=True, text=True).stdout
    return int((re.search(r'version (\d+)', said) or [0, '0'])[1])


def as_style(text):
    """Returns the settings of a .clang-format on one line."""
    pairs = (line.split(':', 1) for line in text.splitlines() if ':' in line)
    return '{' + ', '.join(f'{k.strip()}: {v.strip()}' for k, v in pairs) + '}'


STYLE = as_style(lint.read(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'),
                           '.clang-format'))


def check(root, under=None, only=None):
    paths = [p for p in lint.tree(root, lint.CODE, under)
             if not p.startswith(lint.FOREIGN) and (only is None or p in only)]
    done = subprocess.run([FORMATTER, '--dry-run', '--style=' + STYLE, *paths], cwd=root,
                          capture_output=True, text=True)
    places = re.findall(r'^(\S+?:\d+):\d+: (?:warning|error): code should be clang-formatted',
                        done.stderr, re.M)
    if done.returncode or (done.stderr and not places):
        return [f'{FORMATTER} fails: {done.stderr[-300:]}']
    return [f'{place}: clang-format writes this otherwise; clang-format -i {place.split(":")[0]}'
            for place in dict.fromkeys(places)]


PLANTS = [
    lint.Plant('cli/new.c', 'new.c:1:', text='int f( int x );\n'),
    lint.Plant('base/new.h', 'new.h:1:', text='  int x;\n'),
    lint.Plant('cli/more.c', 'more.c:2:', text='void f(void)\n{\n  g();\n}\n'),
    lint.Plant('cli/array.c', 'array.c:1:', text='int a[] = {' + '1, ' * 40 + '1};\n'),
]
CLEAN = {
    'cli/good.c': 'int f(int x)\n{\n    return x;\n}\n',
    'cli/off.c': '/* clang-format off */\nint  f( int x );\n/* clang-format on */\n',
}


if __name__ == '__main__':
    if version() != VERSION:
        print(f'{FORMATTER} {VERSION} is not there (found: {version() or "none"}): '
              'the layout of C is not checked')
        sys.exit(77)
    few = {p.path for p in PLANTS} | {*CLEAN, 'base/buf.c', 'cli/main.c', 'base/buf.h'}
    sys.exit(lint.main(check, PLANTS, clean=CLEAN,
                       self_check=lambda root: check(root, ['base', 'cli'], few)))
