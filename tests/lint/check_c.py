#!/usr/bin/env python3
"""Rejects forbidden calls in C: unbounded copies, and in libraries calls that print, exit or read
the environment. Also rejects expressions that hide effects: an assignment in a condition, a comma
in a return, and a nested conditional operator (?:)."""
import os
import re
import sys

import lint

# In all files: no bound, no error, or shared state.
UNSAFE = '''sprintf vsprintf strcpy strcat stpcpy strncpy strncat gets atoi atol atoll atof alloca
strtok tmpnam mktemp tempnam rand srand random asctime ctime gmtime localtime strerror_l system
popen longjmp'''.split()
# Outside cli: a library returns errors and does not use the terminal.
LOUD = '''exit _exit _Exit quick_exit abort atexit printf vprintf puts putchar putc fputs fputc
fprintf vfprintf perror stdout stderr signal getopt getopt_long'''.split()
# Inputs that could make equal runs differ.
AMBIENT = 'getenv secure_getenv setenv putenv setlocale time gettimeofday clock_gettime'.split()
# Memory comes from base/mem.h, which checks n * size for overflow.
MEMORY = 'malloc calloc realloc reallocarray aligned_alloc posix_memalign free strdup'.split()

ALLOWED = {
    'fprintf': ['base/opt.c', 'base/progress.c'],     # to a stream of the caller; the progress bar
    'fputs': ['base/progress.c'],
    'fputc': ['base/progress.c'],
    'stderr': ['base/progress.c'],
    'stdout': ['base/table_io.c'],                    # the path "-"
    'getenv': ['engine/kernels/kernels.c', 'cli/folders.c',
               'cli/environment.c',                       # choice of kernels and patience, which do not change results
               'cli/preview.c',                           # size and kind of the terminal
               'cli/crew_wire.c', # the parent process, which does not change results
               'cli/package.c',                           # the Python that replaces the process of a command
               'cli/stream.c'],                           # the folder of temporary files
    'setenv': ['cli/package.c',
               'cli/folders.c'], # the fonts of a wheel, the same on every machine
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
    """Returns why the name is forbidden in path, or None."""
    if path in ALLOWED.get(name, []) or (not called and name not in ('stdout', 'stderr')):
        return None
    if name in UNSAFE:
        return 'is not used here'
    if name in LOUD:
        return None if path.startswith('cli/') else 'is for cli alone'
    if name in AMBIENT:
        return 'makes equal runs differ'
    return 'goes through base/mem.h'


# Files must be opened for writing through base/replace.c.
OPENS = re.compile(r'(?<![\w.>])(open|openat|creat|fopen|freopen|fopen64|open64|mkstemp|mkostemp|tmpfile)\s*\(')
WRITES = re.compile(r'\bO_(?:WRONLY|RDWR|CREAT|TRUNC|APPEND)\b')
WRITERS = {
    'base/replace.c': 'the one way',
    'engine/experiment/eval_state.c': 'a list that grows by whole lines, under a lock',
    'cli/stream.c': 'a file without a name, for what comes from the standard input',
    'cli/main.c': '/dev/null in place of a closed standard stream',
    'cli/command_end.c': '/dev/null in place of the standard error, for --quiet',
}


def opened(path, text, raw):
    """Returns (offset, what) of each call that opens a file for writing, or may do so."""
    if path in WRITERS:
        return
    for m in OPENS.finditer(text):
        call = raw[m.end():closing(text, m.end())]
        mode = re.search(r',\s*"([^"]*)"\s*$', call)
        reads = m.group(1).startswith('fopen') and mode and set(mode.group(1)) <= set('rbe')
        if m.group(1) not in ('open', 'openat', 'open64') and not reads:
            yield m.start(), f'{m.group(1)} for writing is for base/replace.c'
    for m in WRITES.finditer(text):
        yield m.start(), f'{m.group(0)} is for base/replace.c'


CONDITION = re.compile(r'\b(if|while|switch|for)\s*\(')
RETURN = re.compile(r'\breturn\b([^;]*);')
ASSIGNMENT = re.compile(r'(?<![=!<>])=(?!=)|<<=|>>=')


def closing(text, at):
    """Returns the position of the parenthesis that closes the one before `at`, or the end if there
    is none."""
    depth = 1
    for i in range(at, len(text)):
        depth += (text[i] in '([{') - (text[i] in ')]}')
        if depth == 0:
            return i
    return len(text)


def outermost(text):
    """Returns the text without the contents of parentheses, brackets and braces."""
    depth, out = 0, []
    for c in text:
        depth -= c in ')]}'
        if depth == 0:
            out.append(c)
        depth += c in '([{'
    return ''.join(out)


def choice_within(text, at):
    """Returns True if another conditional operator begins before the one of the question mark at
    `at` ends."""
    depth = 0
    for c in text[at + 1:]:
        depth += (c in '([{') - (c in ')]}')
        if c == '?':
            return True
        if depth < 0 or c == ';' or (c == ',' and depth == 0):
            return False
    return False


def untidy(text):
    """Returns (offset, what) of each forbidden expression."""
    for m in CONDITION.finditer(text):
        condition = text[m.end():closing(text, m.end())]
        if m.group(1) == 'for':
            condition = condition.split(';')[1]
        if ASSIGNMENT.search(condition):
            yield m.start(), 'assignment within a condition'
    for m in RETURN.finditer(text):
        if ',' in outermost(m.group(1)):
            yield m.start(), 'comma in a return'
    for m in re.finditer(r'\?', text):
        if choice_within(text, m.start()):
            yield m.start(), 'choice (?:) within a choice'


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
        reports += [f'{path}:{lint.line_of(text, at)}: {what}' for at, what in untidy(text)]
        reports += [f'{path}:{lint.line_of(text, at)}: {what}'
                    for at, what in opened(path, text, lint.read(root, path))]
    return reports


def call(name):
    return f'void g(void);\nvoid g(void)\n{{\n    {name}(0);\n}}\n'


PLANTS = [lint.Plant('cli/new.c', f'{name} is not used', text=call(name)) for name in UNSAFE]
PLANTS += [lint.Plant('engine/new.c', f'{name} is for cli', text=call(name)) for name in LOUD]
PLANTS += [lint.Plant('cli/new.c', f'{name} makes equal', text=call(name)) for name in AMBIENT]
PLANTS += [lint.Plant('render/new.c', f'{name} goes through', text=call(name)) for name in MEMORY]
PLANTS += [lint.Plant('render/new.c', what, text='void g(void)\n{\n    ' + code + '\n}\n')
           for what, code in [
               ('O_WRONLY is for base', 'int fd = open(path, O_WRONLY);'),
               ('O_RDWR is for base', 'const int flags = O_RDWR;\n    int fd = open(path, flags);'),
               ('O_CREAT is for base', 'int fd = openat(at, path, O_CREAT, 0666);'),
               ('creat for writing', 'int fd = creat(path, 0666);'),
               ('mkstemp for writing', 'int fd = mkstemp(name);'),
               ('fopen for writing', 'FILE *f = fopen(path, "wb");'),
               ('fopen for writing', 'FILE *f = fopen(path, "r+");'),
               ('fopen for writing', 'FILE *f = fopen(f(x, 1), "a");'),
               ('fopen for writing', 'FILE *f = fopen(path, mode);')]]
PLANTS += [
    lint.Plant('base/table.c', 'stderr is for cli', append='FILE *f(void) { return stderr; }\n'),
    lint.Plant('base/opt.c', 'printf is for cli', append='int f(void) { return printf ("x"); }\n'),
]
PLANTS += [lint.Plant('engine/new.c', what, text='int f(void)\n{\n    ' + code + '\n}\n')
           for what, code in [
               ('assignment within', 'if (a && (b = c(d)) != 0)\n        return 1;'),
               ('assignment within', 'while ((n = next(f)) > 0)\n        n--;'),
               ('assignment within', 'for (n = 1; !e && (n = next(f)) > 0; i++)\n        n--;'),
               ('assignment within', 'if (a != b && (c[i] |= 1))\n        return 1;'),
               ('comma in a return', 'return *ret = 1, 0;'),
               ('comma in a return', 'return f(a, b),\n           NULL;'),
               ('choice (?:) within', 'return a ? 1 : b ? 2 : 3;'),
               ('choice (?:) within', 'x = a ? (b ? 1 : 2) : 3;'),
               ('choice (?:) within', 'x = a   ? 1\n        : b ? 2\n            : 3;'),
           ]]
CLEAN = {
    'analyzers/clean.c': '/* exit(1), "free(x)" */\nconst char *s = "abort() \\" exit(";\n'
                         'int f(struct t *t) { return t->time(1) + t->exit(2) + x.free(3); }\n'
                         'int g(int time, int random) { return time + random; }\n',
    'base/clean.c': 'int f(int a)\n{\n    if (a == 1 || a <= 2 || a >= 3 || a != 4)\n'
                    '        return g(a ? 1 : 2, a ? 3 : 4);\n'
                    '    for (int i = 0, n = a; i < n; i++)\n        a = h(i, n);\n'
                    '    *s = (struct s){a ? 1 : 2, a, .b = a ? 3 : 4};\n'
                    '    return (a ? 1 : 2) + (a ? 3 : 4);\n}\n',
    'cli/clean.c': 'void f(void) { fprintf(stderr, "x"); exit(1); }\n',
}


def check_planted(root):
    return check(root, sorted({plant.path for plant in PLANTS} | set(CLEAN)))


if __name__ == '__main__':
    sys.exit(lint.main(check, PLANTS, CLEAN, check_planted))
