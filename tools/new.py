#!/usr/bin/env python3
"""Begins a new analyzer, figure, probe, score, CUDA kernel or command: writes all that the recipe of its kind asks for.

    tools/new.py KIND NAME "summary" [--table T] [--column C] [--group G] [--evidence E]... [--dry-run]

    tools/new.py analyzer tail-share "share of the entries that are held at the end"

A kind is what the head of its header says: analyzers/analyzer.h, render/figure.h, engine/probe/probe.h,
engine/method/parts.h, cli/commands.h, and HACKING.md for a kernel.  Written are the source, its line in the list of the kind, a manual page
(analyzer, command), a paragraph of the reference (not of commands and kernels) and a test, from the templates in
tools/templates.  A score gets its definition in the oracle too.  All of it compiles and its test passes, for the source
computes something simple; each file has one place to fill in, which the lint check `words` names until that is done.
Where there is a folder `build`, kvfate is built and the overviews of the documentation are made from it."""
import argparse
import difflib
import os
import re
import string
import subprocess
import sys
from typing import NamedTuple

HERE = os.path.dirname(os.path.abspath(__file__))
MARK = 'TO' 'DO'  # in halves, so that the check that looks for it does not report this file
LONGEST_NAME, LONGEST_SUMMARY = 20, 76  # so that no line of a template gets longer than 100 columns


class Kind(NamedTuple):
    """Where the parts of a kind are; %s is the name as in C."""
    source: str
    list: str
    test: str
    reference: str  # the page that has a paragraph on it; '': none
    before: str  # the heading that its paragraph goes before; '': it goes to the end
    rooms: tuple  # folders in which no other may have its name
    then: str  # what is left to do beside the places to fill in


KINDS = {
    'analyzer': Kind('analyzers/an_%s.c', 'analyzers/analyzers.list', 'tests/analyze/test_%s.py',
                     'docs/reference/analyzers.md', '## part\n', ('analyzers', 'cli'),
                     'a figure, unless one draws its table: tools/new.py figure NAME "summary"'),
    'figure': Kind('render/fig_%s.c', 'render/figures.list', 'tests/figures/test_fig_%s.py',
                   'docs/reference/gallery.md', '## report\n', ('render',),
                   'a table in tests/figures/tables and the two pictures: render/figure.h, steps 3 to 5'),
    'probe': Kind('engine/probe/probe_%s.c', 'engine/probe/probes.list', 'tests/analyze/test_probe_%s.py',
                  'docs/reference/probes.md', '## received\n', ('engine/probe',),
                  'the set of --probes that it is part of: .lean, .full_only'),
    'score': Kind('engine/method/score_%s.c', 'engine/method/scores.list', 'tests/method/test_score_%s.c',
                  'docs/reference/methods.md', '', ('engine/method',),
                  'its definition in tests/oracle/methods_keys.py is written from the document alone, not from the C file'),
    'kernel': Kind('engine/cuda/%s.cu', 'engine/cuda/kernels.list', 'tests/cuda/test_%s.c', '', '', (),
                   'the call in engine/device: HACKING.md, "A CUDA kernel"'),
    'command': Kind('cli/cmd_%s.c', 'cli/commands.list', 'tests/cli/test_%s.py', '', '', ('analyzers', 'cli'),
                    'its place in the list, where another than the last of its group suits better'),
}
PAGES = 'analyzer', 'command'  # kinds with a manual page
# Evidence that needs other members of struct score or of a row; the example to copy instead of the scaffold.
NEEDS_MORE = {'gate': 'engine/method/score_write_gate.c', 'twin': 'engine/method/score_next.c', 'window': 'engine/method/score_window.c',
              'spread': 'engine/method/score_variance.c', 'pages': 'engine/method/read_quest.c', 'blocks': 'engine/method/read_seer.c'}


class Refused(Exception):
    """Why nothing is written, as one sentence."""


class Change:
    """Files as they will be: nothing is written before all of them are known."""

    def __init__(self, root):
        self.root, self.text, self.old = root, {}, {}

    def read(self, path):
        if path not in self.text:
            with open(os.path.join(self.root, path), encoding='utf-8') as f:
                self.text[path] = self.old[path] = f.read()
        return self.text[path]

    def create(self, path, text):
        if os.path.exists(os.path.join(self.root, path)):
            raise Refused(f'{path} exists')
        self.text[path] = text

    def insert(self, path, before, text):
        """text before the only place of `before`, or at the end for ''."""
        old = self.read(path)
        if before and old.count(before) != 1:
            raise Refused(f'{path} has {before.strip()!r} {old.count(before)} times, not once: '
                          'the place where this belongs is not known')
        self.text[path] = old.replace(before, text + before) if before else old + text

    def write(self):
        """All files; none when one cannot be written."""
        done = []
        try:
            for path, text in self.text.items():
                done.append(path)
                with open(os.path.join(self.root, path), 'w', encoding='utf-8') as f:
                    f.write(text)
        except OSError as e:
            for path in done:
                if path in self.old:
                    with open(os.path.join(self.root, path), 'w', encoding='utf-8') as f:
                        f.write(self.old[path])
                elif os.path.exists(os.path.join(self.root, path)):
                    os.remove(os.path.join(self.root, path))
            raise Refused(f'{e.filename}: {e.strerror}') from e


def arguments():
    about, example = __doc__.split('\n\n')[0], __doc__.split('\n\n')[2].strip()
    p = argparse.ArgumentParser(description=about, epilog='example:\n  ' + example,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('kind', choices=KINDS)
    p.add_argument('name', help='as users type it: lower case, digits and dashes')
    p.add_argument('summary', help='one line without a full stop')
    p.add_argument('--table', help='the table that a figure draws (default: that of its name)')
    p.add_argument('--column', default='entries', help='a column of that table (default: entries)')
    p.add_argument('--group', default='traces', help='of a command in `kvfate -h` (default: traces)')
    p.add_argument('--evidence', action='append', default=[], help='what a score has to know, an EVIDENCE_... of '
                   'engine/method/preset.h in lower case (values: lengths of the values); may be given again')
    p.add_argument('--dry-run', action='store_true', help='say what would be written')
    p.add_argument('--root', default=os.path.dirname(HERE), help=argparse.SUPPRESS)
    return p.parse_args()


def sources(root, folders):
    """(path, text) of the C files of folders."""
    for folder in folders:
        for name in sorted(os.listdir(os.path.join(root, folder))):
            if name.endswith('.c'):
                with open(os.path.join(root, folder, name), encoding='utf-8') as f:
                    yield f'{folder}/{name}', f.read()


def symbols(text):
    """The names of a list, in order."""
    return re.findall(r'^(?:X|MAP)\((\w+)\)$', text, re.M)


def check(args, kind):
    """Refuses names and words that cannot be, before anything is read for good."""
    if not re.fullmatch(r'[a-z][a-z0-9]*(-[a-z0-9]+)*', args.name) or len(args.name) > LONGEST_NAME:
        raise Refused(f'{args.name!r} is no name: a letter first, then lower case, digits and single dashes, '
                      f'{LONGEST_NAME} at most')
    if not re.fullmatch(r'[^"\\%|`$\x00-\x1f]+', args.summary) or args.summary[-1] in '. ' \
            or len(args.summary) > LONGEST_SUMMARY:
        raise Refused(f'the summary is one line of at most {LONGEST_SUMMARY} characters without a full stop, '
                      'quotes, backslashes and signs of markup')
    for path, text in sources(args.root, kind.rooms):
        if f'.name = "{args.name}"' in text or args.name == 'help':
            raise Refused(f'{path} has the name {args.name} already')
    if args.evidence and args.kind != 'score':
        raise Refused('--evidence is an option of scores')
    if args.kind == 'figure' and not re.fullmatch(r'[a-z][a-z0-9_]*', args.column):
        raise Refused(f'{args.column!r} is no column')
    known = '\n'.join(text for _, text in sources(args.root, ('analyzers', 'render')))
    if args.kind == 'figure' and not re.search(rf'\.(name|table) = "{re.escape(args.table)}"', known):
        raise Refused(f'no analysis makes a table {args.table} and no figure draws one; --table names another')


def evidence(args):
    """The line of struct score that declares the evidence, and a comment on where its functions stand."""
    with open(os.path.join(args.root, 'engine/method/preset.h'), encoding='utf-8') as f:
        known = {name.lower(): re.findall(r'needs\s+EVIDENCE_(\w+)', about)
                 for name, about in re.findall(r'^\s*EVIDENCE_(\w+) = 1u << \d+,\s*/\*(.*?)\*/', f.read(), re.M | re.S)}
    asked = []
    for name in args.evidence:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise Refused(f'there is no evidence {name!r}' + (f' (did you mean {near[0]!r}?)' if near else '')
                          + f': choose from {", ".join(sorted(set(known) - set(NEEDS_MORE)))}')
        if name in NEEDS_MORE:
            raise Refused(f'the evidence {name!r} needs more than a scaffold can write: copy {NEEDS_MORE[name]}')
        asked += [e for e in [*(n.lower() for n in known[name]), name] if e not in asked]
    bits = ' | '.join('EVIDENCE_' + e.upper() for e in asked)
    return {'evidence': f'    .evidence = {bits},\n' if asked else '',
            'reads': '\n * Functions evidence_...() of engine/method/parts.h read the evidence.' if asked else ''}


def oracle(change, args, symbol, mark):
    """Puts a score into the oracle: its definition, its error in f32, and the cases that give it to other rows."""
    change.insert('tests/oracle/methods_keys.py', '', f'''

def score_{symbol}(run, p, layer, head, alive, C):
    """{mark} the equation of the document, from run.keys, run.values or attention rows.  Until then: the position."""
    return np.array(C, float)
''')
    change.insert('tests/oracle/methods.py', '    "remaining-mass": ', f'    "{args.name}": methods_keys.score_{symbol},\n')
    change.insert('tests/oracle/tolerance.py', '\n\nUNEQUAL = ', f'''

def score_{symbol}(run, p, layer, head, alive, C, score):
    """{mark} the largest error of each score in f32.  Until then: none, as for integers."""
    return np.zeros(len(C))
''')
    change.insert('tests/oracle/tolerance.py', '          "random": none, ', f'          "{args.name}": score_{symbol},\n')
    change.insert('tests/oracle/cases.py', ')\n\n\ndef value(rng, key, budget):', f'    "{args.name}",\n')


def list_line(change, args, kind, symbol):
    """Puts the line into the list: figures and kernels by their names, commands last in their group, others last."""
    text = change.read(kind.list)
    if symbol in symbols(text):
        raise Refused(f'{kind.list} has {symbol} already')
    after = ''
    if args.kind in ('figure', 'kernel'):
        after = next((s for s in symbols(text) if s > symbol), '')
    if args.kind == 'command':
        of_group = {name for _, body in sources(args.root, ['cli'])
                    for name, group in re.findall(r'struct command command_(\w+) = \{.*?\.group = "(.*?)"', body, re.S)
                    if group == args.group}
        if not of_group:
            raise Refused(f'no command is of the group {args.group!r}')
        last = max(i for i, s in enumerate(symbols(text)) if s in of_group)
        after = (symbols(text) + [''])[last + 1]
    line = re.search(rf'^(X|MAP)\({after}\)\n', text, re.M) if after else None
    change.insert(kind.list, line.group(0) if line else '', f'X({symbol})\n')


def plan(args):
    """All that is to be written, or Refused."""
    kind, symbol = KINDS[args.kind], args.name.replace('-', '_')
    args.table = args.table or args.name
    check(args, kind)
    words = {'name': args.name, 'symbol': symbol, 'summary': args.summary, 'mark': f'{MARK}({args.name}):',
             'table': args.table, 'column': args.column, 'group': args.group,
             'choice': '' if args.table == args.name else f' --figure {args.name}', **evidence(args)}

    def made(part):
        with open(os.path.join(HERE, 'templates', f'{args.kind}.{part}.in'), encoding='utf-8') as f:
            return string.Template(f.read()).substitute(words)

    change = Change(args.root)
    change.create(kind.source % symbol, made('c'))
    list_line(change, args, kind, symbol)
    if args.kind in PAGES:
        change.create(f'docs/man/kvfate-{args.name}.1', made('1'))
    if kind.reference:
        paragraph = made('md')
        change.insert(kind.reference, kind.before, paragraph + '\n' if kind.before else '\n' + paragraph)
    change.create(kind.test % symbol, made('test'))
    if args.kind == 'probe':
        change.insert('libtrace/include/kvf/schema.h', ' * mass.sum ',
                      f' * {symbol + ".count":<16} u32 query token  {words["mark"]} what it is (snapshot)\n')
        rule = f'    X("{symbol}.count", RULE_QUERY, RULE_TOKEN, RULE_IS(0), RULE_ANY, 0, 0)'
        change.insert('libtrace/schema_rules.h', '    X("mass.sum", ', f'{rule:<99}\\\n')
    if args.kind == 'kernel':
        change.insert('engine/cuda/gpu.h', '#ifdef __cplusplus\n}', f'''/* {words["mark"]} what it computes, with shapes and ranges.  Until then: out = 2 x.
 * x and out: [rows][n], n at least 1. */
void gpu_{symbol}(struct gpu *g, float *out, const float *x, int rows, int n);

''')
    if args.kind == 'score':
        change.insert(kind.reference, '.\nAdmission: ', f', `{args.name}`')
        oracle(change, args, symbol, words['mark'])
    return change


def derive(root):
    """Builds kvfate and writes what the documentation has from it; says how where there is no build."""
    steps = ['ninja', '-C', 'build', 'cli/kvfate'], ['docs/derive.py', 'build/cli/kvfate']
    if not os.path.exists(os.path.join(root, 'build', 'build.ninja')):
        print('then: meson setup build && ' + ' && '.join(' '.join(s) for s in steps))
        return
    for step in steps:
        if subprocess.run(step, cwd=root, stdout=subprocess.DEVNULL).returncode:
            raise Refused(f'all is written, but this failed: {" ".join(step)}')


def main():
    args = arguments()
    try:
        change = plan(args)
        if not args.dry_run:
            change.write()
        for path, text in change.text.items():
            places = [n for n, line in enumerate(text.split('\n'), 1) if f'{MARK}({args.name})' in line]
            print(f'{"changes" if path in change.old else "writes "} {path}'
                  + ''.join(f', to be filled in: line {n}' for n in places))
        print('beside these:', KINDS[args.kind].then)
        if not args.dry_run:
            derive(args.root)
    except Refused as why:
        print(f'tools/new.py: {why}', file=sys.stderr)
        return 2
    return 0


if __name__ == '__main__':
    sys.exit(main())
