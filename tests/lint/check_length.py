#!/usr/bin/env python3
"""Checks that functions have at most 80 lines, files at most 1000, and that lines of C and of the
build files have at most 100 columns."""
import ast
import functools
import sys

import lint

MAX_FUNCTION, MAX_FILE, MAX_LINE = 80, 1000, 100
WRAPPED = lint.CODE + ('meson.build',)
SUFFIXES = WRAPPED + ('.py', '.sh')


def c_functions(text):
    """Returns (first line, lines) of each body: from '{' to '}' in column 0."""
    start = None
    for n, line in enumerate(lint.blank(text).split('\n'), 1):
        if line.startswith('{'):
            start = n
        elif line.startswith('}') and start:
            yield start, n - start + 1
            start = None


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno - node.lineno + 1


@functools.lru_cache(maxsize=None)
def check_text(path, text):
    reports, lines = [], text.splitlines()
    if len(lines) > MAX_FILE:
        reports.append(f'{path}:1: file of {len(lines)} lines, over {MAX_FILE}')
    for n, line in enumerate(lines, 1):
        if len(line) > MAX_LINE and path.endswith(WRAPPED):
            reports.append(f'{path}:{n}: line of {len(line)} columns, over {MAX_LINE}')
    functions = c_functions(text) if path.endswith(lint.CODE) else \
        python_functions(text) if path.endswith('.py') else []
    for n, length in functions:
        if length > MAX_FUNCTION:
            reports.append(f'{path}:{n}: function of {length} lines, over {MAX_FUNCTION}')
    return reports


def check(root):
    return [report for path in lint.tree(root, SUFFIXES) if not path.startswith(lint.FOREIGN)
            for report in check_text(path, lint.read(root, path))]


def body(lines):
    return 'static void f(void)\n{\n' + '    ;\n' * (lines - 2) + '}\n'


PLANTS = [
    lint.Plant('cli/new.c', 'function of 81 lines', text=body(81)),
    lint.Plant('base/new.c', 'file of 1001 lines', text='\n' * 1001),
    lint.Plant('render/new.h', 'line of 101 columns', text='/' * 101 + '\n'),
    lint.Plant('cli/main.c', 'line of 101 columns', append='// ' + '\u00b5' * 98 + '\n'),
    lint.Plant('tests/new.py', 'function of 81 lines',
               text='def f():\n' + '    pass\n' * 80),
    lint.Plant('new.sh', 'file of 1001 lines', text=':\n' * 1001),
    lint.Plant('meson.build', 'line of 101 columns', append='#' * 101 + '\n'),
]
# Files at the limit, and long constructs that are neither functions nor lines. These must not be
# reported.
CLEAN = {
    'cli/limit.c': body(80) + '/*\n' + '}\n' * 80 + '*/\n' + '"' + '\u00b5' * 98 + '"\n',
    'base/limit.h': '\n' * 1000,
}


if __name__ == '__main__':
    sys.exit(lint.main(check, PLANTS, clean=CLEAN))
