#!/usr/bin/env python3
"""Tests tools/new.py in a copy of the tree: the inputs that it rejects, and that one of each kind
compiles without a warning, is in `kvfate -h`, passes its test, and has no lint report except the
places to be filled in.

The copy is not built completely. The new sources and the tables of the lists are compiled like
those of the build and linked before its libraries.

usage: test_new.py --root ROOT --build BUILD --kvfate KVFATE"""
import argparse
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402
import check_c
import check_docs
import check_format
import check_layers
import check_length
import check_man
import check_words
import lint
import program

MADE = [('analyzer', 'held-now'), ('figure', 'held-now'), ('figure', 'a-b', '--table', 'kv-size', '--column', 'size'),
        ('probe', 'seen-by-queries-2'), ('score', 'age', '--evidence', 'values'),
        ('preset', 'oldest', '--score', 'age', '--allocation', 'adaptive'), ('preset', 'by-window', '--score', 'window-attention'),
        ('analyzer', 'held-then', '--after', 'eviction'), ('kernel', 'halved-rows'), ('command', 'columns', '--group', 'running')]
TABLES = ['analyzers/analyzer_table.c', 'render/figure.c', 'engine/probe/probes.c', 'engine/method/parts.c', 'engine/method/presets.c',
          'cli/commands.c', 'libtrace/schema.c']
SUMMARY = 'what it is said to be in a few words'
REFUSED = [(('analyzer', 'Held', SUMMARY), 'no valid name'), (('analyzer', '2b', SUMMARY), 'no valid name'),
           (('analyzer', 'a_b', SUMMARY), 'no valid name'), (('analyzer', 'a' * 21, SUMMARY), 'no valid name'),
           (('analyzer', '../x', SUMMARY), 'no valid name'), (('analyzer', 'x', ''), 'summary'),
           (('analyzer', 'x', 'ends.'), 'summary'), (('analyzer', 'x', 'say "x"'), 'summary'),
           (('analyzer', 'x', 'two\nlines'), 'summary'), (('analyzer', 'x', 'y' * 77), 'summary'),
           (('analyzer', 'kv-size', SUMMARY), 'already'), (('analyzer', 'generate', SUMMARY), 'already'),
           (('command', 'sparsity', SUMMARY), 'already'), (('command', 'help', SUMMARY), 'already'),
           (('figure', 'map', SUMMARY, '--table', 'density'), 'already'), (('probe', 'mass', SUMMARY), 'already'),
           (('score', 'key-norm', SUMMARY), 'already'), (('score', 'knorm', SUMMARY), 'already'),
           (('score', 'x', SUMMARY, '--evidence', 'value'), "did you mean 'values'?"), (('score', 'x', SUMMARY, '--evidence', 'gate'), 'score_write_gate.c'),
           (('probe', 'x', SUMMARY, '--evidence', 'values'), '--evidence'), (('figure', 'x', SUMMARY), '--table'), (('figure', 'x', SUMMARY, '--table', 'heads', '--column', 'a b'), 'column'),
           (('preset', 'x', SUMMARY), '--score must name'), (('preset', 'x', SUMMARY, '--score', 'key-nrom'), "did you mean 'key-norm'?"),
           (('preset', 'knorm', SUMMARY, '--score', 'key-norm'), 'already'), (('preset', 'x', SUMMARY, '--score', 'redundancy'), "copy the row 'rkv'"),
           (('preset', 'x', SUMMARY, '--score', 'key-norm', '--allocation', 'file'), 'copy the row'), (('score', 'x', SUMMARY, '--score', 'key-norm'), 'presets'),
           (('analyzer', 'x', SUMMARY, '--after', 'nothing'), '--after'), (('score', 'x', SUMMARY, '--after', 'age'), '--after'),
           (('command', 'x', SUMMARY, '--group', 'others'), 'group'), (('analyzer', 'regrets', SUMMARY), 'exists')]


def contents(root):
    """Returns the contents of files; for large files (pictures and gates), their modification
    time."""
    found = {}
    for path in lint.tree(root):
        full = os.path.join(root, path)
        about = os.stat(full)
        if about.st_size > 1 << 17:
            found[path] = about.st_size, about.st_mtime_ns
            continue
        with open(full, 'rb') as f:
            found[path] = f.read()
    return found


def new(copy, *argv):
    done = subprocess.run([sys.executable, os.path.join(copy, 'tools', 'new.py'), *argv], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def reports(copy, kvfate):
    """Returns the reports of the checks about the copy, except marks of unfinished work."""
    program.of.asked = None
    args = argparse.Namespace(kvfate=kvfate)
    found = check_c.check(copy) + check_length.check(copy) + check_layers.check(copy) + check_docs.check(copy, args)
    if subprocess.run(['which', 'mandoc'], capture_output=True).returncode == 0:
        found += check_man.check(copy, args)
    return {r for r in found if 'is clean now' not in r}


def make_all(copy):
    """Makes one of each kind; returns the new C files and tests."""
    written = []
    for kind, name, *more in MADE:
        before = contents(copy)
        code, planned, said = new(copy, kind, name, SUMMARY, *more, '--dry-run')
        check(f'{kind} {name}: a dry run writes nothing', code == 0 and contents(copy) == before, said)
        code, out, said = new(copy, kind, name, SUMMARY, *more)
        after = contents(copy)
        changed = {p for p in after if after[p] != before.get(p)}
        named = dict(re.findall(r'^(?:writes |changes) (\S+?)(?:, to be filled in: (line \d+))?$', out, re.M))
        check(f'{kind} {name}: made', code == 0 and set(named) == changed and out.startswith(planned), out, said)
        marks = {re.sub(r':(\d+):.*', r', line \1', r) for r in check_words.check(copy) if f'({name})' in line_of(copy, r)}
        places = {f'{p}, {line}' for p, line in named.items() if line}
        check(f'{kind} {name}: the lint names the places', len(places) >= (2 if kind == 'preset' else 3) and places <= marks, places, marks)
        check(f'{kind} {name}: one place in each file', all(line for p, line in named.items() if not p.endswith(('.list', 'schema_rules.h', 'oracle/methods.py', 'oracle/cases.py', 'rows.py', 'meson.build', 'random_methods.py'))), named)
        written += sorted(changed - set(before))
        again = new(copy, kind, name, SUMMARY, *more)
        check(f'{kind} {name}: the commands that test it', out.rsplit('\n', 2)[1].startswith('meson test -C build '), out)
        check(f'{kind} {name}: not twice', again[0] == 2 and contents(copy) == after, again)
    return [p for p in written if p.endswith('.c')], [p for p in written if '/test_' in p]


def check_kernel(copy, name):
    """Checks that a kernel and its test compile as C++ and C without a warning. If the emulated
    device is built, the suite cuda runs the test."""
    flags = [f'-I{os.path.join(copy, folder)}' for folder in ('', 'base/include', 'libtrace/include')] + ['-fsyntax-only', '-Wall', '-Wextra', '-Werror']
    emulation = os.path.join(copy, 'tests/cuda/emulation.hh')
    for command in (['g++', '-std=c++17', '-include', emulation, '-Wno-unknown-pragmas', '-Wno-unused-function', '-x', 'c++', f'engine/cuda/{name}.cu'],
                    ['gcc', '-std=gnu11', f'tests/cuda/test_{name}.c']):
        done = subprocess.run([*command, *flags], cwd=copy, capture_output=True, text=True)
        check(f'{command[-1]} compiles', done.returncode == 0, done.stderr[-2000:])


def line_of(copy, report):
    path, line = report.split(':')[:2]
    return lint.read(copy, path).split('\n')[int(line) - 1]


class Build:
    """Compiles and links files of the copy like those of the build, into the folder `out`."""

    def __init__(self, folder, copy, out):
        self.folder, self.copy, self.out = folder, copy, out
        with open(os.path.join(folder, 'compile_commands.json'), encoding='utf-8') as f:
            self.commands = {os.path.normpath(os.path.join(c['directory'], c['file'])): c for c in json.load(f)}

    def compile(self, source, like):
        """Returns the object of a source, compiled like the source `like` of the same module."""
        known = next(c for path, c in self.commands.items() if path.endswith('/' + like))
        out = os.path.join(self.out, source.replace('/', '_') + '.o')
        words = shlex.split(known['command'])
        words[words.index('-o') + 1] = out
        words[words.index('-c') + 1] = os.path.join(self.copy, source)
        words[words.index('-MF') + 1] = out + '.d'
        first = next(i for i, w in enumerate(words) if w.startswith('-'))
        words[first:first] = ['-Werror', '-I', self.copy]
        done = subprocess.run(words, cwd=known['directory'], capture_output=True, text=True)
        check(f'{source} compiles', done.returncode == 0, done.stderr[:2000])
        return out

    def link(self, target, objects, without, out):
        """Returns the program of a target with objects before its libraries, and without one of its
        objects."""
        said = subprocess.run(['ninja', '-C', self.folder, '-t', 'commands', target], capture_output=True, text=True)
        words = shlex.split(said.stdout.strip().split('\n')[-1])
        words[words.index('-o') + 1] = out = os.path.join(self.out, out)
        words = [w for w in words if not (without and w.endswith(without))]
        at = words.index(out) + 1
        words[at:at] = objects
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True)
        check(f'{target} links', done.returncode == 0, done.stderr[-2000:])
        return out


LIKE = {'analyzers': 'analyzers/analyzer_table.c', 'render': 'render/figure.c', 'engine': 'engine/method/parts.c',
        'cli': 'cli/commands.c', 'libtrace': 'libtrace/schema.c', 'tests': 'tests/method/test_scores.c'}


def build_all(build, sources):
    """Builds the programs with the new sources: kvfate, draw_table, the test of the score."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        objects = dict(zip(sources + TABLES, pool.map(lambda s: build.compile(s, LIKE[s.split('/')[0]]), sources + TABLES)))

    def of(*rooms):
        return [o for s, o in objects.items() if s.startswith(rooms)]
    return (build.link('cli/kvfate', of('analyzers', 'render', 'engine', 'cli', 'libtrace'), '/commands.c.o', 'kvfate'),
            build.link('tests/figures/draw_table', of('render'), None, 'draw_table'),
            build.link('tests/method/test_method_scores', of('engine', 'tests'), 'test_scores.c.o', 'test_score'))


def run_tests(root, build, tests, kvfate, draw_table, test_score):
    tools = [os.path.join(build, 'tests', 'analyze', t) for t in ('write_kvf', 'trace_dump')]
    gen_tiny = os.path.join(root, 'tests', 'data', 'golden', 'tools', 'gen_tiny.py')
    argv = {'analyze': [kvfate, *tools, gen_tiny], 'cli': [kvfate, build, tools[0]], 'figures': [draw_table]}
    for test in tests:
        suite = test.split('/')[-2]
        command = [sys.executable, test, *argv[suite]] if test.endswith('.py') else [test_score, '--jobs', '1']
        done = subprocess.run(command, capture_output=True, text=True)
        check(f'{test} passes', done.returncode == 0, done.stdout[-2000:], done.stderr[-2000:])


def main():
    parser = argparse.ArgumentParser()
    for name in ('--root', '--build', '--kvfate'):
        parser.add_argument(name, type=os.path.abspath, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix='kvfate-new-') as built, \
            tempfile.TemporaryDirectory(prefix='kvfate-new-', dir=lint.in_memory()) as copy:
        lint.copy_tree(args.root, copy)
        lint.Plant('tests/analyze/test_regrets.py', '', text='\n').apply(copy)
        tree = contents(copy)
        for argv, word in REFUSED:
            code, out, said = new(copy, *argv)
            check(f'{argv} is refused', code == 2 and not out and said.count('\n') == 1 and word in said, code, out, said)
        check('nothing is written of what is refused', contents(copy) == tree)
        code, out, _ = new(copy, '-h')
        check('-h has an example', code == 0 and 'example:\n  tools/new.py' in out, out)
        sources, tests = ([p for p in paths if '/cuda/' not in p] for paths in make_all(copy))
        check_kernel(copy, 'halved_rows')
        kvfate, *programs = build_all(Build(args.build, copy, built), sources)
        if not all(map(os.path.exists, (kvfate, *programs))):
            finish()
        overview = subprocess.run([kvfate, 'help'], capture_output=True, text=True).stdout
        check('kvfate help has all', all(re.search(f'^  {n} +{SUMMARY}$', overview, re.M) for n in ('held-now', 'held-then', 'columns')), overview)
        check('a page of its own', lint.read(copy, 'docs/reference/analyses/held-then.md').startswith('# held-then'))
        subprocess.run([sys.executable, os.path.join(copy, 'docs', 'derive.py'), kvfate], check=True, capture_output=True)
        check('--after in the overview', re.search(r'\(eviction\.md\) \|\n.*\(held-then\.md\)', lint.read(copy, 'docs/reference/analyses/README.md')))
        more = reports(copy, kvfate)
        if more:  # unless the tree already names it
            more -= reports(args.root, args.kvfate)
        check('nothing else is reported', not more, *sorted(more))
        os.symlink(os.path.join(args.root, 'tests', 'data'), os.path.join(copy, 'tests', 'data'))
        for part in ('parts', 'oldest', 'by-window'):
            done = subprocess.run([sys.executable, os.path.join(copy, 'tests', 'oracle', 'check_decisions.py'), kvfate, part, '--cases', '9'],
                                  capture_output=True, text=True, env=dict(os.environ, KVFATE_TESTS='quick'))
            check(f'the oracle decides as the program: {part}', done.returncode == 0, done.stdout[-2000:], done.stderr[-2000:])
        run_tests(args.root, args.build, [os.path.join(copy, t) for t in tests], kvfate, *programs)
    finish()


if __name__ == '__main__':
    main()
