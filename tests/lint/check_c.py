#!/usr/bin/env python3
"""Calls that are not ours to make: unbounded copies, and libraries that print,
exit or look at the environment."""
import os
import re
import sys

import lint

# Everywhere: no bound, no error, or shared state.
UNSAFE = '''sprintf vsprintf strcpy strcat stpcpy strncpy strncat gets atoi atol atoll atof alloca
strtok tmpnam mktemp tempnam rand srand random asctime ctime gmtime localtime strerror_l system
popen longjmp'''.split()
# Outside cli: a library returns its errors and leaves the terminal alone.
LOUD = '''exit _exit _Exit quick_exit abort atexit printf vprintf puts putchar putc fputs fputc
fprintf vfprintf perror stdout stderr signal getopt getopt_long'''.split()
# Inputs that would make equal runs differ.
AMBIENT = 'getenv secure_getenv setenv putenv setlocale time gettimeofday clock_gettime'.split()
# Memory comes from base/mem.h, which checks n * size.
MEMORY = 'malloc calloc realloc reallocarray aligned_alloc posix_memalign free strdup'.split()

ALLOWED = {
    'fprintf': ['base/opt.c', 'base/progress.c'],     # to a stream of the caller; the bar
    'fputs': ['base/progress.c'],
    'fputc': ['base/progress.c'],
    'stderr': ['base/progress.c'],
    'stdout': ['base/table_io.c'],                    # the path "-"
    'getenv': ['engine/kernels/kernels.c', 'cli/folders.c',
               'cli/preview.c'],                          # how a terminal is
    'clock_gettime': ['base/progress.c'],
    'malloc': ['base/mem.c'],
    'calloc': ['base/mem.c', 'base/json.c'],
    'realloc': ['base/mem.c'],
    'aligned_alloc': ['base/mem.c'],
    'posix_memalign': ['base/mem.c'],
    'free': ['base/mem.c', 'base/json.c'],
}
NAME = re.compile(r'(?<![\w.>])(' + '|'.join(UNSAFE + LOUD + AMBIENT + MEMORY) + r')\b(\s*\()?')


def banned(path, name, called):
    """What is wrong with the name in path, or None."""
    if path in ALLOWED.get(name, []) or (not called and name not in ('stdout', 'stderr')):
        return None
    if name in UNSAFE:
        return 'is not used here'
    if name in LOUD:
        return None if path.startswith('cli/') else 'is for cli alone'
    if name in AMBIENT:
        return 'makes equal runs differ'
    return 'goes through base/mem.h'


def check(root, only=None):
    reports = []
    for path in only or lint.tree(root, lint.CODE, lint.ROOMS):
        if only and not os.path.exists(os.path.join(root, path)):
            continue
        text = lint.blank(lint.read(root, path))
        for m in NAME.finditer(text):
            why = banned(path, m.group(1), m.group(2) is not None)
            if why:
                reports.append(f'{path}:{lint.line_of(text, m.start())}: {m.group(1)} {why}')
    return reports


def call(name):
    return f'void g(void);\nvoid g(void)\n{{\n    {name}(0);\n}}\n'


PLANTS = [lint.Plant('cli/new.c', f'{name} is not used', text=call(name)) for name in UNSAFE]
PLANTS += [lint.Plant('engine/new.c', f'{name} is for cli', text=call(name)) for name in LOUD]
PLANTS += [lint.Plant('cli/new.c', f'{name} makes equal', text=call(name)) for name in AMBIENT]
PLANTS += [lint.Plant('render/new.c', f'{name} goes through', text=call(name)) for name in MEMORY]
PLANTS += [
    lint.Plant('base/table.c', 'stderr is for cli', append='FILE *f(void) { return stderr; }\n'),
    lint.Plant('base/opt.c', 'printf is for cli', append='int f(void) { return printf ("x"); }\n'),
]
CLEAN = {
    'analyzers/clean.c': '/* exit(1), "free(x)" */\nconst char *s = "abort() \\" exit(";\n'
                         'int f(struct t *t) { return t->time(1) + t->exit(2) + x.free(3); }\n'
                         'int g(int time, int random) { return time + random; }\n',
    'cli/clean.c': 'void f(void) { fprintf(stderr, "x"); exit(1); }\n',
}


def check_planted(root):
    return check(root, sorted({plant.path for plant in PLANTS} | set(CLEAN)))


if __name__ == '__main__':
    sys.exit(lint.main(check, PLANTS, CLEAN, check_planted))
