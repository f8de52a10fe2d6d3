#!/usr/bin/env python3
"""Checks that no option, command, page, example or table is stale. The reference is the program's
description of itself (`kvfate list all --json`). It is compared with:

* the program's own declarations: defaults and ranges, names, examples, options in usage lines;
* templates of manual pages: one page per command and no other page, existing options, correct
  defaults, and correct claims about figures;
* command lines in the manual pages, the README and the documentation: existing commands and
  options;
* the version in the citation and in the change log;
* a paragraph for each method, part, probe, analyzer and figure; links with existing targets;
* the navigation of the site, which names each page of docs/ once and no other page;
* the tables that docs/derive.py writes into the documentation: unchanged when written again."""
import copy
import functools
import glob
import json
import os
import re
import sys

import lint
import program as describe

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'docs')
sys.path[:0] = [DOCS, os.path.join(DOCS, 'site')]
import derive  # noqa: E402
import man_pages  # noqa: E402
import navigation  # noqa: E402

PARTS = ('admission', 'score', 'allocation', 'trigger', 'selection')
COMMON = 'docs/man/common.mdoc'
NO_FIGURE = re.compile(r'no\s+figure\s+of\s+this\s+table|[Tt]here\s+is\s+no\s+figure')
DEFAULT = re.compile(r'^Default:(.*)', re.M | re.S)


# ---- the program's own declarations

def is_number(text):
    return re.fullmatch(r'-?[\d.]+(e-?\d+)?[kKM]?', text) is not None


def check_option(where, o):
    reports = []
    default = o.get('default')
    if o['type'] in ('whole', 'real') and default is not None and 'absent' not in o:
        if not is_number(default):
            reports.append(f'{where} {o["name"]}: the default {default} is no number')
        elif 'min' in o and not o['min'] <= float(default) <= o['max']:
            reports.append(f'{where} {o["name"]}: the default {default} is out of its range')
    if o['type'] == 'word' and default is not None and default not in o['words']:
        reports.append(f'{where} {o["name"]}: the default {default} is none of its words')
    if re.search(r'default', o['help']):
        reports.append(f'{where} {o["name"]}: its default belongs into the table, not into its help')
    if o['type'] != 'flag' and 'arg' not in o:
        reports.append(f'{where} {o["name"]}: the name of its value is missing')
    return reports


def check_declaration(program, c):
    """Checks the description of one command. where: the pseudo file name for self-tests."""
    where = f'{describe.PLANTED}: {c["name"]}'
    names = ['--' + o['name'] for o in c['options']] + ['-' + o['short'] for o in c['options']
                                                        if 'short' in o]
    reports = [f'{where}: two options {n}' for n in sorted(set(names)) if names.count(n) > 1]
    for o in c['options']:
        reports += check_option(f'{where}:', o)
    for n in re.findall(r'(?<![\w-])--?[a-zA-Z][\w-]*', c['needs']):
        if n not in names:
            reports.append(f'{where}: usage names {n}, which does not exist')
    if program.command_of(c['example'].split()[1:]) != c['name']:
        reports.append(f'{where}: the example is of another command')
    reports += [f'{where}: example: {r}' for r in describe.check_line(program, c['example'])]
    if c['summary'].endswith('.') or '\n' in c['summary']:
        reports.append(f'{where}: a summary is one line without a full stop')
    return reports


def check_declarations(program):
    reports = []
    for c in program.commands.values():
        reports += check_declaration(program, c)
    for f in program.figures.values():
        for key in f.get('style') or []:
            reports += check_option(f'{describe.PLANTED}: figure {f["name"]}:', key)
    return reports


# ---- manual pages

def plain(mdoc):
    return re.sub(r'\s+', ' ', re.sub(r'^\.(Cm|Pa|Ev|Va|Ar|Fl|Xr) ', '', mdoc, flags=re.M)).strip(' .')


def check_default(path, option, text):
    """Compares the default in the text of an option with the one that the program parses."""
    said = DEFAULT.search(text)
    real = option.get('default')
    if not said or real is None or 'absent' in option or real in plain(said.group(1)):
        return []
    return [f'{path}:1: the default of --{option["name"]} is {real}, not {plain(said.group(1))}']


def check_template(root, program, name):
    path = f'docs/man/kvfate-{name}.1'
    if not os.path.exists(os.path.join(root, path)):
        return [f'{path}:1: no manual page of the command {name}']
    page, command = lint.read(root, path), program.commands[name]
    parts = man_pages.sections(page)
    reports = [f'{path}:1: no section {s}' for s in ('DESCRIPTION', 'EXAMPLES', 'SEE ALSO')
               if s not in parts]
    made = set(parts) & {'NAME', 'SYNOPSIS', 'EXIT STATUS'}
    if man_pages.own_figures(program.all, command) and '.It --style\n' in page:
        reports.append(f'{path}:1: the text of --style is made, not written')
    reports += [f'{path}:1: the section {s} is made, not written' for s in sorted(made)]
    options = {o['name']: o for o in command['options']}
    before, items = man_pages.option_texts(parts.get('OPTIONS', ''))
    if before.strip():
        reports.append(f'{path}:1: text before the first option')
    for o, (_, text) in items.items():
        if o not in options:
            reports.append(f'{path}:1: option --{o} does not exist')
        else:
            reports += check_default(path, options[o], text)
    if command['analysis'] and man_pages.own_figures(program.all, command) and NO_FIGURE.search(page):
        reports.append(f'{path}:1: it says that there is no figure of this table')
    return reports + check_flags(program, path, page)


def check_flags(program, path, page):
    """Checks that the options mentioned in prose exist in some command."""
    every = program.every_option() | {'--version'}
    named = {'--' + n for n in re.findall(r'Fl Fl ([\w-]+)', page)}
    return [f'{path}:1: no command has the option {n}' for n in sorted(named - every)]


def check_pages(root, program):
    reports = []
    for name in program.commands:
        reports += check_template(root, program, name)
    for page in sorted(glob.glob(os.path.join(root, 'docs/man/kvfate-*.1'))):
        name = re.sub(r'.*/kvfate-(.*)\.1', r'\1', page)
        if name not in program.commands:
            reports.append(f'docs/man/kvfate-{name}.1:1: a page of no command')
    overview = lint.read(root, 'docs/man/kvfate.1')
    for group in sorted({c['group'] for c in program.commands.values()}):
        if f'@commands {group}\n' not in overview:
            reports.append(f'docs/man/kvfate.1:1: the commands of the group {group} are not listed')
    return reports + check_flags(program, COMMON, lint.read(root, COMMON))


# ---- command lines

def joined(text):
    """Returns the lines, with continuation lines after a backslash joined."""
    return re.sub(r'\\\n\s*', ' ', text).splitlines()


def documents(root):
    pages = glob.glob(os.path.join(root, 'docs/**/*.md'), recursive=True)
    return sorted(os.path.relpath(p, root) for p in pages) + ['README.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'HACKING.md',
                                                              'SECURITY.md', 'gates/README.md']


@functools.lru_cache(maxsize=None)  # the self-test reads most pages repeatedly
def command_lines(text, manual):
    """Returns the commands that a page shows, in blocks and inline."""
    lines = joined(text.replace('\\e', '\\') if manual else text)
    begin = r'(?:\.Dl )?' if manual else ' {4}'
    blocks = [m for line in lines for m in re.findall(rf'^{begin}(kvfate [a-z].*)$', line)]
    return blocks + re.findall(r'`(kvfate [a-z][^`]*)`', text)


def check_lines(root, program):
    reports = []
    for path in documents(root) + sorted(glob.glob('docs/man/kvfate*.1', root_dir=root)):
        if path == 'CHANGELOG.md':  # it names commands as they were called at the time
            continue
        if not os.path.exists(os.path.join(root, path)):
            continue
        for line in command_lines(lint.read(root, path), path.endswith('.1')):
            reports += [f'{path}:1: {r}' for r in describe.check_line(program, line)]
    return reports


# ---- paragraphs and links

def text_of(root, path, reports):
    if os.path.exists(os.path.join(root, path)):
        return lint.read(root, path)
    reports.append(f'{path}:1: the page is missing')
    return ''


def check_headings(root, path, names, what):
    """Checks that there is a heading for each name. Parts and figures may be named as `name` in
    prose instead."""
    reports = []
    text = derive.BLOCK.sub('', text_of(root, path, reports))
    for name in names:
        heading = rf'^#+ .*(?<![\w-]){re.escape(name)}(?![\w-])'
        quoted = what in ('part', 'figure') and f'`{name}`' in text
        if text and not quoted and not re.search(heading, text, re.M):
            reports.append(f'{path}:1: no paragraph on the {what} {name}')
    return reports


def anchors(text):
    """Returns the link anchors of a page's headings."""
    found = set()
    for heading in re.findall(r'^#+ (.*)$', text, re.M):
        words = re.sub(r'\[([^\]]*)\]\([^)]*\)', r'\1', heading).lower()
        found.add(re.sub(r'[^\w\- ]', '', words).strip().replace(' ', '-'))
    return found


def check_links(root):
    """Checks that links of the pages lead to existing files and headings."""
    reports = []
    for path in documents(root):
        if not os.path.exists(os.path.join(root, path)):
            continue
        for link in re.findall(r'\]\(([^)\s]+)\)', lint.read(root, path)):
            name, _, heading = link.partition('#')
            goal = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
            if '://' in link:
                continue
            if not os.path.exists(os.path.join(root, goal)):
                reports.append(f'{path}:1: the link {link} leads nowhere')
            elif heading and heading not in anchors(lint.read(root, goal)):
                reports.append(f'{path}:1: the link {link} has no such heading')
    return reports


def check_version(root):
    """Checks that the version in meson.build equals that of the citation, and that the change log
    has a section for it."""
    version = re.search(r"version: '([^']+)'", lint.read(root, 'meson.build'))[1]
    for path, line in (('CITATION.cff', f'version: {version}'), ('CHANGELOG.md', f'## [{version}] - ')):
        if f'\n{line}' not in lint.read(root, path):
            yield f'{path}:1: a line {line!r} is missing (the version of meson.build)'


def check(root, args):
    program = describe.of(root, args)
    reports = [*check_version(root)] + check_links(root) + check_declarations(program) + check_pages(root, program)
    reports += check_lines(root, program) + navigation.problems(root)
    reports += [f'{path}:1: {what}' for path, what in derive.stale(root, program.all)]
    methods = program.methods.values()
    parts = sorted({m[p] for m in methods for p in PARTS} - {'none'})
    reports += check_headings(root, 'docs/reference/methods.md', program.methods, 'method')
    reports += check_headings(root, 'docs/reference/methods.md', parts, 'part')
    probes = [p['name'] for p in program.probes.values() if 'shadow' not in p]
    reports += check_headings(root, 'docs/reference/probes.md', probes, 'probe')
    for name in program.analyzers:
        reports += check_headings(root, f'docs/reference/analyses/{name}.md', [name], 'analyzer')
    return reports + check_headings(root, 'docs/reference/gallery.md', program.figures, 'figure')


# ---- the self-test: one wrong statement of each kind

MAN = 'docs/man/kvfate-'
PLANTS = [
    lint.Plant(MAN + 'info.1', '--never does not', replace=('.It --json', '.It --never\nNever.\n'
                                                            '.It --json')),
    lint.Plant(MAN + 'tokens.1', 'no section EXAMPLES', replace=('.Sh EXAMPLES', '.Sh HISTORY')),
    lint.Plant(MAN + 'tokens.1', 'is made', append='.Sh EXIT STATUS\nNone.\n'),
    lint.Plant(MAN + 'eval.1', 'the text of --style', replace=('.It --docs\n', '.It --style\nBy size.\n.It --docs\n')),
    lint.Plant(MAN + 'train.1', 'the default of --length is 512',
               replace=('.It --length\n', '.It --length\nDefault: 64.\n')),
    lint.Plant(MAN + 'kv-size.1', 'no figure of this table', append='There is no figure of this\ntable.\n'),
    lint.Plant(MAN + 'none.1', 'a page of no command', text='.Sh DESCRIPTION\n'),
    lint.Plant(MAN + 'run.1', 'the option --nothing', append='.Fl Fl nothing\n'),
    lint.Plant(MAN + 'run.1', 'run has no option --bugdet',
               replace=('.Bd -literal', '.Bd -literal\nkvfate run --bugdet 3 -o x.kvf\n.Ed\n.Bd -literal')),
    lint.Plant('docs/man/kvfate.1', 'of the group files', replace=('@commands files', 'files')),
    lint.Plant('README.md', 'survival has no option --horizon',
               append='\n    kvfate survival x.kvf --horizon 3\n'),
    lint.Plant('docs/reference/report.md', 'there is no command reprot', append='\n`kvfate reprot x.kvf`\n'),
    lint.Plant('docs/reference/report.md', 'survival has no kind harzard', append='\n`kvfate survival x.kvf --as harzard`\n'),
    lint.Plant('docs/reference/corpus.md', 'corpus has no option --spread',
               append='\n    kvfate corpus survival x.kvf --spread heads\n'),
    lint.Plant('CITATION.cff', 'the version of meson.build', replace=('version: 0.1.0', 'version: 0.0.9')),
    lint.Plant('CHANGELOG.md', 'the version of meson.build', replace=('## [0.1.0]', '## [0.0.9]')),
    lint.Plant('docs/reference/commands.md', 'stale', replace=('| `kvfate size --as sparsity` |', '| `kvfate parsity` |')),
    lint.Plant('docs/reference/methods.md', 'the method tova', replace=('## tova', '## other')),
    lint.Plant('docs/reference/methods.md', 'the part overflow', replace=('`overflow`', 'overflow')),
    lint.Plant('docs/reference/probes.md', 'the probe steps', replace=('## steps', '## other')),
    lint.Plant('docs/reference/analyses/sparsity.md', 'the analyzer sparsity',
               replace=('# sparsity', '# thinness')),
    lint.Plant('docs/reference/analyses/README.md', 'stale', replace=('(hazard.md)', '(survival.md)')),
    lint.Plant('docs/reference/gallery.md', 'the figure tokens-flow', text='## survival\n## dilution\n## map\n## training\n## fates-answer\n## The runs\n'),
    lint.Plant('docs/reference/report.md', 'leads nowhere', replace=('](../img/report.png)',
                                                                     '](../img/none.png)')),
    lint.Plant('docs/reference/report.md', 'no such heading', replace=('](../img/report.png)',
                                                                       '](plans.md#x)')),
    lint.Plant('docs/guide/unlisted.md', 'not in docs/site/navigation.toml', text='# Unlisted\n'),
    lint.Plant(navigation.FILE, 'no page docs/guide/tunes.md', replace=('guide/tune.md', 'guide/tunes.md')),
    lint.Plant(navigation.FILE, 'plans.md is named twice', replace=('"reference/eval.md",',
                                                                    '"reference/eval.md", "reference/plans.md",')),
]


def lies(description):
    """Returns the program's declarations with one wrong statement each, and the expected report."""
    def change(command, what, value, option=None):
        d = copy.deepcopy(description)
        c = next(c for c in d['commands'] if c['name'] == command)
        (next(o for o in c['options'] if o['name'] == option) if option else c)[what] = value
        return json.dumps(d)
    for expect, text in (
            ('the default 0 is out of its range', change('train', 'default', '0', 'length')),
            ('the default many is no number', change('train', 'default', 'many', 'length')),
            ('belongs into the table', change('train', 'help', 'tokens (default: 512)', 'length')),
            ('two options -t', change('train', 'short', 't', 'seed')),
            ('usage names --missing', change('train', 'needs', '--missing FILE')),
            ('the example is of another', change('train', 'example', 'kvfate run -p x -o x.kvf')),
            ('train has no option --stpes', change('train', 'example', 'kvfate train --stpes 3'))):
        yield lint.Plant(describe.PLANTED, expect, text=text)


if __name__ == '__main__':
    if '--self-test' in sys.argv:
        PLANTS += lies(describe.describe(sys.argv[sys.argv.index('--kvfate') + 1]))
    sys.exit(lint.main(check, PLANTS, add_arguments=describe.arguments))
