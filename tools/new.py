#!/usr/bin/env python3
"""Begins a new analyzer, figure, probe, score, preset, CUDA kernel or command.

    tools/new.py KIND NAME "summary" [--score S] [--allocation A] [--evidence E]... [--table T]
                 [--column C] [--group G] [--no-build] [--dry-run]

    tools/new.py analyzer tail-share "share of the entries that are held at the end"

It writes the files and lines that the recipe of the kind names: the source, its line in a list, the
manual page, a paragraph of the reference, the test, and the definition in the oracle. The recipes
are in analyzers/analyzer.h, render/figure.h, engine/probe/probe.h, engine/method/parts.h,
engine/method/preset.h, cli/commands.h and, for a kernel, HACKING.md.

All of it compiles and its tests pass, because the source computes something simple. Each file has
one place to fill in. The lint check `words` names this place until you fill it. The last lines of
the output are the commands that build and test the new part.

If the folder `build` is configured, new.py also builds kvfate there and runs docs/derive.py. Do not
use it while another build of this folder runs, or give --no-build. A kernel needs neither."""
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
    """Where the files of a kind are. %s stands for the name in C."""
    source: str  # of a preset: the file that gets the new row
    list: str
    test: str
    reference: str  # the page that gets a paragraph, or ''; of an analyzer: its own page. %s stands for its name
    before: str  # the heading before which the paragraph is inserted; '': at the end
    rooms: tuple  # no other part in these folders may have the name
    suites: str  # the suites that test it
    then: str  # the work that remains


KINDS = {
    'analyzer': Kind('analyzers/an_%s.c', 'analyzers/analyzers.list', 'tests/analyze/test_%s.py',
                     'docs/reference/analyses/%s.md', '', ('analyzers', 'cli'), 'analyze lint',
                     'its place in the list (or --after NAME); a figure, unless one draws its table: tools/new.py figure'),
    'figure': Kind('render/fig_%s.c', 'render/figures.list', 'tests/figures/test_fig_%s.py',
                   'docs/reference/gallery.md', '## report\n', ('render',), 'figures lint',
                   'a table in tests/figures/tables and the two pictures: render/figure.h, steps 3 to 5'),
    'probe': Kind('engine/probe/probe_%s.c', 'engine/probe/probes.list', 'tests/analyze/test_probe_%s.py',
                  'docs/reference/probes.md', '## received\n', ('engine/probe',), 'analyze lint',
                  'the set of --probes that includes it: .lean, .full_only'),
    'score': Kind('engine/method/score_%s.c', 'engine/method/scores.list', 'tests/method/test_score_%s.c',
                  'docs/reference/methods.md', '', ('engine/method',), 'method oracle lint',
                  'write its definition in tests/oracle/methods_keys.py only from the document, not from the C file; '
                  'UNEQUAL and LENGTHS of tests/oracle/tolerance.py if equal scores may differ by rounding'),
    'preset': Kind('engine/method/presets.c', '', '', 'docs/reference/methods.md', '## Budgets per head\n',
                   ('engine/method',), 'method oracle lint',
                   'published numbers go into .params and .code of presets.c, PUBLISHED, WINDOW, EVERY, SINKS and CODE of '
                   'tests/oracle/rows.py, and, with their sources, into "Sources of the defaults" of methods.md'),
    'kernel': Kind('engine/cuda/%s.cu', 'engine/cuda/kernels.list', 'tests/cuda/test_%s.c', '', '', (), 'cuda lint',
                   'a call in engine/device, now or later: HACKING.md, "A CUDA kernel"'),
    'command': Kind('cli/cmd_%s.c', 'cli/commands.list', 'tests/cli/test_%s.py', '', '', ('analyzers', 'cli'), 'cli lint',
                    'its place in the list, if another place in its group suits better'),
}
PAGES = 'analyzer', 'command'  # kinds with a manual page
# Evidence that needs other members of struct score or of a row; the example to copy instead of the scaffold.
NEEDS_MORE = {'gate': 'engine/method/score_write_gate.c', 'full': 'engine/method/score_next.c', 'window': 'engine/method/score_window.c',
              'spread': 'engine/method/score_variance.c', 'pages': 'engine/method/read_quest.c', 'blocks': 'engine/method/read_seer.c'}
# Scores and allocations for presets with numbers that a scaffold cannot choose; the preset to copy.
COPY = {'position': 'window', 'variance-attention': 'cake', 'global-attention': 'snapkv-global', 'redundancy': 'rkv', 'retention': 'trimkv',
        'write-gate': 'wgkv', 'importance': 'locret', 'expected-attention': 'expected-attention', 'remaining-mass': 'mass-greedy',
        'next-attention': 'next-topk', 'pyramid': 'pyramidkv', 'adaptive-pyramid': 'ada-pyramidkv', 'cake': 'cake', 'global': 'dbtrimkv'}


class Refused(Exception):
    """The reason why no file is written, as one sentence."""


class Change:
    """The new contents of all files. No file is written before all of them are known."""

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
        """Inserts text before the only occurrence of `before`, or at the end for ''."""
        old = self.read(path)
        if before and old.count(before) != 1:
            raise Refused(f'{path} has {before.strip()!r} {old.count(before)} times, not once: '
                          'the place for the new text is not known')
        self.text[path] = old.replace(before, text + before) if before else old + text

    def write(self):
        """Writes all files, or restores them if one of them cannot be written."""
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
    about, _, example = __doc__.split('\n\n')[:3]
    p = argparse.ArgumentParser(description=about, epilog='example:\n  ' + example.strip(),
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('kind', choices=KINDS)
    p.add_argument('name', help='as users type it: lower case, digits and dashes')
    p.add_argument('summary', help='one line without a full stop')
    p.add_argument('--score', help='of a preset: the score part that it uses')
    p.add_argument('--allocation', help='of a preset: the allocation part (default: uniform)')
    p.add_argument('--after', help='of an analyzer: the analyzer after which it is listed in `kvfate -h` (default: the last one)')
    p.add_argument('--table', help='the table that a figure draws (default: that of its name)')
    p.add_argument('--column', default='entries', help='a column of that table (default: entries)')
    p.add_argument('--group', default='files', help='of a command in `kvfate help` (default: files)')
    p.add_argument('--evidence', action='append', default=[], help='data that a score reads, an EVIDENCE_... of '
                   'engine/method/preset.h in lower case (values: lengths of the values); may be given again')
    p.add_argument('--no-build', action='store_true', help='do not build kvfate and do not run docs/derive.py')
    p.add_argument('--dry-run', action='store_true', help='print the files that would be written')
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
    return re.findall(r'^X\((\w+)\)$', text, re.M)


def check(args, kind):
    """Rejects invalid names and options."""
    if not re.fullmatch(r'[a-z][a-z0-9]*(-[a-z0-9]+)*', args.name) or len(args.name) > LONGEST_NAME:
        raise Refused(f'{args.name!r} is no valid name: use a letter, then lower-case letters, digits and single dashes, '
                      f'{LONGEST_NAME} at most')
    if not re.fullmatch(r'[^"\\%|`$\x00-\x1f]+', args.summary) or args.summary[-1] in '. ' \
            or len(args.summary) > LONGEST_SUMMARY:
        raise Refused(f'the summary must be one line of at most {LONGEST_SUMMARY} characters without a full stop, '
                      'quotes, backslashes and characters of markup')
    for path, text in sources(args.root, kind.rooms):
        if f'.name = "{args.name}"' in text or args.name == 'help':
            raise Refused(f'{path} already has the name {args.name}')
    if args.evidence and args.kind != 'score':
        raise Refused('--evidence is an option of scores')
    if (args.score or args.allocation) and args.kind != 'preset':
        raise Refused('--score and --allocation are options of presets')
    if args.after and args.kind != 'analyzer':
        raise Refused('--after is an option of analyzers')
    if args.kind == 'figure' and not re.fullmatch(r'[a-z][a-z0-9_]*', args.column):
        raise Refused(f'{args.column!r} is no column')
    known = '\n'.join(text for _, text in sources(args.root, ('analyzers', 'render')))
    if args.kind == 'figure' and not re.search(rf'\.(name|table) = "{re.escape(args.table)}"', known):
        raise Refused(f'no analyzer makes a table {args.table}; name another one with --table')


def evidence(args):
    """Returns the line of struct score that declares the evidence, and a comment on its functions."""
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
    """Adds a score to the tests: its definition, its error in f32, and cases in other presets."""
    change.insert('tests/oracle/methods_keys.py', '', f'''

def score_{symbol}(run, p, layer, head, alive, C):
    """{mark} the equation of the document, from run.keys, run.values or attention rows. Until then: the position."""
    return np.array(C, float)
''')
    change.insert('tests/oracle/methods.py', '    "remaining-mass": ', f'    "{args.name}": methods_keys.score_{symbol},\n')
    change.insert('tests/oracle/tolerance.py', '\n\n# Score parts whose equal values', f'''

def score_{symbol}(run, p, layer, head, alive, C, score):
    """{mark} the largest error of each score in f32. Until then: 0, as for integers."""
    return np.zeros(len(C))
''')
    change.insert('tests/oracle/tolerance.py', '          "remaining-mass": remaining_mass}', f'          "{args.name}": score_{symbol},\n')
    change.insert('tests/oracle/cases.py', ')\n\n\ndef value(rng, key, budget):', f'    "{args.name}",\n')
    change.insert('tests/cli/random_methods.py', '").split()\nALLOCATIONS', f' {args.name}')


def part_of(args, kind, name):
    """Returns (the name in C, the options) of a score or an allocation."""
    known = {}
    for path, text in sources(args.root, ('engine/method',)):
        for symbol, body in re.findall(rf'^const struct {kind} {kind}_(\w+) = \{{(.*?)\}};', text, re.M | re.S):
            known[re.search(r'\.name = "([^"]+)"', body)[1]] = symbol, re.findall(r'USES_(\w+)', body)
    if name not in known:
        near = difflib.get_close_matches(name or '', known, 1)
        raise Refused(f'--{kind} must name a part' + (f' (did you mean {near[0]!r}?)' if near else '')
                      + f': choose from {", ".join(sorted(set(known) - set(COPY)))}')
    if name in COPY or name == 'file':
        raise Refused(f'{name} needs numbers that a scaffold cannot choose: copy the row {COPY.get(name, "window")!r} of '
                      'engine/method/presets.c and follow preset.h')
    with open(os.path.join(args.root, 'engine/method/preset.h'), encoding='utf-8') as f:
        options = dict(re.findall(r'^\s*USES_(\w+) = 1u << \d+,\s*/\* ([\w, ]+)', f.read(), re.M))
    symbol, uses = known[name]
    return symbol, [o.strip() for u in uses for o in options[u].split(',')]


def preset(change, args, kind, made):
    """Adds a preset: its row, its section, and its row in the oracle."""
    allocation = args.allocation or 'uniform'
    (score, own), (spread, more) = part_of(args, 'score', args.score), part_of(args, 'allocation', allocation)
    windowed = 'window' in own
    words = {'score_symbol': score, 'allocation_symbol': spread, 'score': args.score, 'allocation': allocation,
             'own': ''.join(f'; `{o}`' if i == 0 else f', `{o}`' for i, o in enumerate(own + more)),
             'params': ',\n     .params = {.recent = RECENT_WINDOW, .window = 32}' if windowed else ''}
    change.insert(kind.source, '    {.name = NULL},', made('c', words))
    change.insert(kind.reference, kind.before, made('md', words) + '\n')
    row = f'    "{args.name}": ("all", "{args.score}", "{allocation}", "overflow", "all"),\n'
    change.insert('tests/oracle/rows.py', '}\nMETHODS = ', row)
    if windowed:
        change.insert(kind.reference, '\nPresets that are not in the table',
                      f'| {args.name} (ours) | `window` 32, `recent` window: as in snapkv |\n')
        change.insert('tests/oracle/rows.py', '}\nEVERY = ', f', "{args.name}": 32')
    if 'group' in own:
        change.insert('tests/oracle/rows.py', ')\nSHARES = ', f', "{args.name}"')
    change.insert('tests/oracle/meson.build', "  'random': 20,", f"  '{args.name}': 20,\n")


def list_line(change, args, kind, symbol):
    """Adds the line to the list: figures and kernels by name, commands last in their group, others last or --after."""
    text = change.read(kind.list)
    if symbol in symbols(text):
        raise Refused(f'{kind.list} already has {symbol}')
    after = ''
    if args.after:
        name = args.after.replace('-', '_')
        if name not in symbols(text):
            raise Refused(f'{kind.list} has no {name} for --after')
        after = (symbols(text) + [''])[symbols(text).index(name) + 1]
    if args.kind in ('figure', 'kernel'):
        after = next((s for s in symbols(text) if s > symbol), '')
    if args.kind == 'command':
        of_group = {name for _, body in sources(args.root, ['cli'])
                    for name, group in re.findall(r'struct command command_(\w+) = \{.*?\.group = "(.*?)"', body, re.S)
                    if group == args.group}
        if not of_group:
            raise Refused(f'no command has the group {args.group!r}')
        last = max(i for i, s in enumerate(symbols(text)) if s in of_group)
        after = (symbols(text) + [''])[last + 1]
    line = re.search(rf'^X\({after}\)\n', text, re.M) if after else None
    change.insert(kind.list, line.group(0) if line else '', f'X({symbol})\n')


def words_of(root, analysis):
    """Returns the words that call an analysis: "size --as sparsity" for "sparsity"."""
    with open(os.path.join(root, 'cli/groups.list'), encoding='utf-8') as f:
        found = re.search(rf'^(FIRST|KIND)\("(.+?)", "(.+?)", "{re.escape(analysis)}"\)', f.read(), re.M)
    if not found:
        return analysis
    return found[2] if found[1] == 'FIRST' else f'{found[2]} --as {found[3]}'


def plan(args):
    """Returns all that is to be written, or raises Refused."""
    kind, symbol = KINDS[args.kind], args.name.replace('-', '_')
    args.table = args.table or args.name
    check(args, kind)
    words = {'name': args.name, 'symbol': symbol, 'summary': args.summary, 'mark': f'{MARK}({args.name}):',
             'table': args.table, 'words': words_of(args.root, args.table), 'column': args.column, 'group': args.group,
             'choice': '' if args.table == args.name else f' --figure {args.name}', **evidence(args)}

    def made(part, more={}):
        with open(os.path.join(HERE, 'templates', f'{args.kind}.{part}.in'), encoding='utf-8') as f:
            return string.Template(f.read()).substitute(words | more)

    change = Change(args.root)
    if args.kind == 'preset':
        preset(change, args, kind, made)
        return change
    change.create(kind.source % symbol, made('c'))
    list_line(change, args, kind, symbol)
    if args.kind in PAGES:
        change.create(f'docs/man/kvfate-{args.name}.1', made('1'))
    if '%s' in kind.reference:
        change.create(kind.reference % args.name, made('md'))
    elif kind.reference:
        paragraph = made('md')
        change.insert(kind.reference, kind.before, paragraph + '\n' if kind.before else '\n' + paragraph)
    change.create(kind.test % symbol, made('test'))
    if args.kind == 'probe':
        change.insert('libtrace/include/kvf/schema.h', ' * mass.sum ',
                      f' * {symbol + ".count":<16} u32 query token  {words["mark"]} its meaning (snapshot)\n')
        rule = f'    X("{symbol}.count", RULE_QUERY, RULE_TOKEN, RULE_IS(0), RULE_ANY, 0, 0)'
        change.insert('libtrace/schema_rules.h', '    X("mass.sum", ', f'{rule:<99}\\\n')
    if args.kind == 'kernel':
        change.insert('engine/cuda/gpu.h', '#ifdef __cplusplus\n}', f'''/* {words["mark"]} its equation, shapes and ranges.  Until then: out = 2 x.
 * x and out: [rows][n], n at least 1. */
void gpu_{symbol}(struct gpu *g, float *out, const float *x, int rows, int n);

''')
    if args.kind == 'score':
        change.insert(kind.reference, '.\n\nAdmission: ', f', `{args.name}`')
        oracle(change, args, symbol, words['mark'])
    return change


BUILD = ['ninja', '-C', 'build', 'cli/kvfate'], ['docs/derive.py', 'build/cli/kvfate']


def shown(steps):
    return ' && '.join(' '.join(s) for s in steps)


def derive(root):
    """Builds kvfate and writes the derived tables of the documentation. Returns False after a failure."""
    for step in BUILD:
        if subprocess.run(step, cwd=root, stdout=subprocess.DEVNULL).returncode:
            print(f'tools/new.py: all files are written, but this command failed: {" ".join(step)}\nCorrect the cause, then go on '
                  f'with: {shown(BUILD)}', file=sys.stderr)
            return False
    return True


def tests(args, symbol):
    """Returns the commands that test the new part, without the slow tests of its suites."""
    suites = ' '.join('--suite ' + s for s in KINDS[args.kind].suites.split())
    if args.kind == 'kernel':
        return (f'meson test -C build --suite cuda cuda_{symbol}',
                'meson test -C build --setup quick --suite lint --no-suite slow')
    return f'meson test -C build --setup quick {suites} --no-suite slow',


def main():
    args = arguments()
    try:
        change = plan(args)
        if not args.dry_run:
            change.write()
    except Refused as why:
        print(f'tools/new.py: {why}', file=sys.stderr)
        return 2
    for path, text in change.text.items():
        places = [n for n, line in enumerate(text.split('\n'), 1) if f'{MARK}({args.name})' in line]
        print(f'{"changes" if path in change.old else "writes "} {path}'
              + ''.join(f', to be filled in: line {n}' for n in places))
    print('also:', KINDS[args.kind].then)
    there, code = os.path.exists(os.path.join(args.root, 'build', 'build.ninja')), 0
    steps = [] if there else [['meson', 'setup', 'build']]
    if args.kind != 'kernel':
        steps += BUILD
    if not args.dry_run and there and not args.no_build and args.kind != 'kernel':
        code = 0 if derive(args.root) else 1
    print('after each change:', '\n'.join([*([shown(steps)] if steps else []), *tests(args, args.name.replace('-', '_'))]), sep='\n')
    return code


if __name__ == '__main__':
    sys.exit(main())
