#!/usr/bin/env python3
"""Every entry of every table is documented, and links of the pages lead somewhere.  The names come from the program."""
import glob
import json
import os
import re
import subprocess
import sys

import lint

SECTIONS = ['NAME', 'SYNOPSIS', 'DESCRIPTION', 'OPTIONS', 'EXIT STATUS', 'EXAMPLES', 'SEE ALSO']
OPTION = re.compile(r'^  (?:-(\w),|   ) --([\w-]+)', re.M)
PARTS = ('admission', 'score', 'allocation', 'trigger', 'selection')


class Program:
    """What the program says of itself, asked once."""

    def __init__(self, path):
        self.path = path
        self.commands = dict(re.findall(r'^  (\S+) +(\S.*)$', self.say('-h'), re.M))
        self.help = {name: self.say(name, '-h') for name in self.commands}
        self.methods = json.loads(self.say('methods', '--json'))
        self.figures = json.loads(self.say('figures', '--json'))
        refused = self.say('run', '--probes', '?', '-o', 'none.kvf', status=2)
        self.probes = re.search(r'a list of (.*)', refused).group(1).split(', ')
        self.analyzers = [c for c in self.commands if '.{tsv,csv' in self.help[c]]
        assert self.commands and self.methods and self.figures and self.analyzers

    def say(self, *args, status=0):
        done = subprocess.run([self.path, *args], capture_output=True, text=True)
        assert done.returncode == status, (args, done.returncode, done.stderr)
        return done.stdout if status == 0 else done.stderr


def options_of(help_text):
    """{('-', 'o'), ('--', 'output')} from -h, which does not list itself."""
    found = {('-', 'h'), ('--', 'help')}
    for short, name in OPTION.findall(help_text):
        found.add(('--', name))
        if short:
            found.add(('-', short))
    return found


def options_in(page):
    found = set()
    for item in re.findall(r'^\.It (Fl .*)$', page, re.M):
        found |= {('--', name) for name in re.findall(r'Fl Fl ([\w-]+)', item)}
        found |= {('-', name) for name in re.findall(r'(?<!Fl )Fl (\w)(?!\w)', item)}
    return found


def check_command(root, program, name):
    path = f'docs/man/kvfate-{name}.1'
    if not os.path.exists(os.path.join(root, path)):
        return [f'{path}:1: no manual page of the command {name}']
    page = lint.read(root, path)
    reports = [f'{path}:1: no section {s}' for s in SECTIONS if f'.Sh {s}\n' not in page]
    if f'.Nd {program.commands[name]}\n' not in page:
        reports.append(f'{path}:1: the summary is not "{program.commands[name]}"')
    real, said = options_of(program.help[name]), options_in(page)
    reports += [f'{path}:1: option {"".join(o)} is not documented' for o in sorted(real - said)]
    reports += [f'{path}:1: option {"".join(o)} does not exist' for o in sorted(said - real)]
    return reports


def text_of(root, path, reports):
    if os.path.exists(os.path.join(root, path)):
        return lint.read(root, path)
    reports.append(f'{path}:1: the page is missing')
    return ''


def check_headings(root, path, names, what):
    """A heading for each name; parts and figures may stand in `name` instead."""
    reports = []
    text = text_of(root, path, reports)
    for name in names:
        heading = rf'^#+ .*(?<![\w-]){re.escape(name)}(?![\w-])'
        quoted = what in ('part', 'figure') and f'`{name}`' in text
        if text and not quoted and not re.search(heading, text, re.M):
            reports.append(f'{path}:1: no paragraph on the {what} {name}')
    return reports


def anchors(text):
    """The names that headings of a page have in links."""
    found = set()
    for heading in re.findall(r'^#+ (.*)$', text, re.M):
        words = re.sub(r'\[([^\]]*)\]\([^)]*\)', r'\1', heading).lower()
        found.add(re.sub(r'[^\w\- ]', '', words).strip().replace(' ', '-'))
    return found


def check_links(root):
    """Links of the pages lead to files of the tree and to headings that are there."""
    reports = []
    pages = [os.path.relpath(p, root) for p in glob.glob(os.path.join(root, 'docs/**/*.md'),
                                                         recursive=True)]
    for path in sorted(pages) + ['README.md', 'NEWS.md', 'HACKING.md', 'gates/README.md']:
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


def check(root, args):
    program = check.program = check.program or Program(os.path.abspath(args.kvfate))
    reports = check_links(root)
    overview = text_of(root, 'docs/man/kvfate.1', reports)
    build = text_of(root, 'docs/meson.build', reports)
    for name in program.commands:
        reports += check_command(root, program, name)
        if f'.It Xr kvfate-{name} 1\n' not in overview:
            reports.append(f'docs/man/kvfate.1:1: the command {name} is not listed')
        if f"'{name}'" not in build:
            reports.append(f'docs/meson.build:1: the page of {name} is not installed')
    parts = sorted({m[p] for m in program.methods for p in PARTS} - {'none'})
    methods = [m['name'] for m in program.methods]
    reports += check_headings(root, 'docs/reference/methods.md', methods, 'method')
    reports += check_headings(root, 'docs/reference/methods.md', parts, 'part')
    reports += check_headings(root, 'docs/reference/probes.md', program.probes, 'probe')
    reports += check_headings(root, 'docs/reference/analyzers.md', program.analyzers, 'analyzer')
    figures = [f['name'] for f in program.figures]
    return reports + check_headings(root, 'docs/reference/gallery.md', figures, 'figure')


check.program = None
MAN = 'docs/man/kvfate-'
PLANTS = [
    lint.Plant(MAN + 'run.1', 'option --probes is not',
               replace=('.It Fl Fl probes', '.It Cm probes')),
    lint.Plant(MAN + 'survival.1', '--horizons is not',
               replace=('.It Fl Fl horizons', '.It Cm horizons')),
    lint.Plant(MAN + 'run.1', 'option -B is not', replace=('.It Fl B , Fl Fl', '.It Fl Fl')),
    lint.Plant(MAN + 'info.1', '--never does not', replace=('.It Fl Fl json', '.It Fl Fl never\n'
                                                            '.It Fl Fl json')),
    lint.Plant(MAN + 'tokens.1', 'no section EXAMPLES', replace=('.Sh EXAMPLES', '.Sh HISTORY')),
    lint.Plant(MAN + 'figures.1', 'the summary is not', replace=('list the', 'all the')),
    lint.Plant('docs/man/kvfate.1', 'verify is not listed',
               replace=('.It Xr kvfate-verify 1', '.It verify')),
    lint.Plant('docs/meson.build', 'of tokens is not installed', replace=("'tokens',", '')),
    lint.Plant('docs/reference/methods.md', 'the method tova', replace=('## tova', '## other')),
    lint.Plant('docs/reference/methods.md', 'the part overflow', replace=('`overflow`', 'overflow')),
    lint.Plant('docs/reference/probes.md', 'the probe steps', replace=('## steps', '## other')),
    lint.Plant('docs/reference/analyzers.md', 'the analyzer sparsity', text='## survival\n'),
    lint.Plant('docs/reference/gallery.md', 'the figure survival-map', text='## survival\n## training\n'),
    lint.Plant('docs/reference/report.md', 'leads nowhere', replace=('](../img/report.png)', '](../img/none.png)')),
    lint.Plant('docs/reference/report.md', 'no such heading', replace=('](../img/report.png)', '](plans.md#x)')),
]


def arguments(parser):
    parser.add_argument('--kvfate', required=True, help='the program')


if __name__ == '__main__':
    sys.exit(lint.main(check, PLANTS, add_arguments=arguments))
