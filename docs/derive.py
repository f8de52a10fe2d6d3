#!/usr/bin/env python3
"""Writes the overview tables of the documentation from the declarations of the program.

    docs/derive.py KVFATE [ROOT]      writes them; prints the pages that changed

A page has them between two lines,
    <!-- made by docs/derive.py: NAME -->
    <!-- end -->
where NAME is one of the functions in MADE below.  The check tests/lint/check_docs.py fails while a page
differs from the output of this script."""
import json
import os
import re
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'python'))
from kvfate import files  # noqa: E402

BLOCK = re.compile(r'^(<!-- made by docs/derive\.py: (\S+) -->\n)(.*?)^(<!-- end -->)$', re.M | re.S)


def row(*cells):
    return '| ' + ' | '.join(str(c).replace('|', '\\|') for c in cells) + ' |\n'


def table(head, rows):
    return row(*head) + '|' + '---|' * len(head) + '\n' + ''.join(row(*r) for r in rows)


def quoted(names):
    return ', '.join(f'`{n}`' for n in names)


def commands(program):
    """Returns all commands in the order of `kvfate help`."""
    return table(('command', 'purpose'),
                 [(f'`kvfate {c["words"]}`', c['summary']) for c in program['commands']])


def probes(program):
    """Returns the probes of each set, or the option that selects them."""
    def asked(p):
        if 'shadow' in p:
            return f'`--shadow {p["shadow"]}`'
        return ', '.join(f'`{x}`' for x in p['sets']) or 'only by name'
    found = {}
    for p in program['probes']:
        found.setdefault(asked(p), []).append(p['name'])
    return table(('part of', 'probes'), [(key, quoted(names)) for key, names in found.items()])


# Commands with a page in docs/reference/analyses that are not analyzers: name of the command, name of the page.
PAGE_OF = {'effect': 'ablation', 'saliency': 'saliency', 'causal': 'causal', 'predict': 'predict',
           'part': 'part', 'diff': 'diff'}


def analyses(program):
    """Returns the analyses with their commands and pages. A question is the heading of its page."""
    pages = {a['name']: a['name'] for a in program['analyzers']} | PAGE_OF

    def question(command, page):
        path = os.path.join(program['root'], 'docs/reference/analyses', page + '.md')
        if not os.path.exists(path):
            return command['summary']
        with open(path, encoding='utf-8') as f:
            asked = f.readline().partition(': ')[2].strip()
        return asked[:1].upper() + asked[1:]
    return table(('question', 'command', 'page'),
                 [(question(c, page), f'`kvfate {c["words"]}`', f'[{page}]({page}.md)')
                  for c in sorted(program['commands'], key=lambda c: not c['analysis'])
                  for page in [pages.get(c['name'])] if page])


def pools(program):
    """Returns the analyses that `kvfate corpus` supports."""
    def value(m):
        if 'product' in m:
            half = f', `{m["half_life"]}`' if 'half_life' in m else ''
            return f'`{m["value"]}` = product of `{m["numerator"]}/{m["denominator"]}`{half}'
        if 'numerator' in m:
            return f'`{m["value"]}` = `{m["numerator"]}/{m["denominator"]}`'
        return f'`{m["value"]}` (by `{m["denominator"]}`)' if 'denominator' in m else f'`{m["value"]}`'
    words = {c['name']: c['words'] for c in program['commands']}
    return table(('analysis', 'values'), [(f'`{words[a["name"]]}`', '; '.join(map(value, a['measures'])))
                                          for a in program['analyzers'] if a['pools']])


def published_gates(program):
    """Returns all published gates, a row for each method and each way to load them."""
    rows = {}
    for g in program['models']['published_gates']:
        way = '`kvfate gates convert`' if g['converts'] else 'save as safetensors'
        rows.setdefault((g['method'], way), []).append(f'{g["name"]} ({g["base"]})')
    return table(('method', 'gates (model)', 'to load them'),
                 [(f'`{method}`', ', '.join(names), way) for (method, way), names in rows.items()])


def options_quoted(text):
    """Formats the options in a note as code."""
    return re.sub(r'(--[a-z][\w-]*(?: (?!,|in |asks|the |of )[\w.-]+)?)', r'`\1`', text)


def columns(program):
    """Returns the columns that each analysis needs, and the options that need them."""
    def listed(a, *needs):
        found = {}
        for c in a['columns']:
            if c['need'] in needs:
                found.setdefault(options_quoted(c['note']), []).append(c['name'])
        return '; '.join(quoted(names) + (f' ({note})' if note else '') for note, names in found.items())
    return table(('analysis', 'needs', 'needs for an option'),
                 [(f'`{a["name"]}`', listed(a, 'always'), listed(a, 'asked')) for a in program['analyzers']])


def supplies(program):
    """Returns the commands and functions that supply each column."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'python', 'kvfate', 'capture_rows.py'), encoding='utf-8') as f:
        probes = re.findall(r'^    "(\w+)": \{', f.read(), re.M)
    def capture(c):
        probe = {'nll': 'nll', 'received.*': 'watch', 'shadow.*': 'shadow', 'kept.*': 'dilution', 'rho_u.*': 'dilution,shadow', 'rho_d.*': 'dilution,shadow'}.get(c['name'], c['flag'].removeprefix('--probes '))
        if c['name'].startswith('tokens.'):
            return 'always'
        return f'`{probe}`' if set(probe.split(',')) <= {*probes, 'watch'} and (c['import'] or probe != 'dilution' or c['name'] == 'kept.*') else ''
    rows = []
    for c in program['columns']:  # adjacent columns with equal sources share a row
        sources = (f'`{c["flag"]}`' if c['flag'] else '', capture(c), ' or '.join(f'`{x}`' for x in c['import'].split(' or ') if x))
        if rows and rows[-1][1] == sources:
            rows[-1][0].append(c['name'])
        else:
            rows.append(([c['name']], sources))
    return table(('column', '`kvfate run`', '`kvfate.capture`', '`kvfate trace import`'),
                 [(quoted(names), *sources) for names, sources in rows])


MADE = {f.__name__: f for f in (commands, probes, analyses, pools, published_gates, columns, supplies)}
PAGES = {'docs/reference/commands.md': ['commands'],
         'docs/reference/probes.md': ['probes'],
         'docs/reference/analyses/README.md': ['analyses'], 'docs/reference/corpus.md': ['pools'],
         'docs/reference/columns.md': ['columns', 'supplies'],
         'docs/guide/own-model.md': ['published_gates']}


def made(text, program, root):
    program = {**program, 'root': root}
    return BLOCK.sub(lambda m: m.group(1) + MADE[m.group(2)](program) + m.group(4), text)


def stale(root, program):
    """Yields (page, problem) for each page that differs from the output of this script."""
    for path, names in PAGES.items():
        full = os.path.join(root, path)
        if not os.path.exists(full):
            yield path, 'the page is missing'
            continue
        with open(full, encoding='utf-8') as f:
            text = f.read()
        found = [m.group(2) for m in BLOCK.finditer(text)]
        if found != names:
            yield path, f'it has the made parts {found}, not {names}'
        elif made(text, program, root) != text:
            yield path, 'a made table is stale: run docs/derive.py'


def main():
    kvfate, root = sys.argv[1], (sys.argv + [os.path.join(os.path.dirname(__file__), '..')])[2]
    program = json.loads(subprocess.run([kvfate, 'list', 'all', '--json'], capture_output=True, text=True,
                                        check=True).stdout)
    for path, _ in list(stale(root, program)):
        full = os.path.join(root, path)
        with open(full, encoding='utf-8') as f:
            text = f.read()
        files.write(full, made(text, program, root))
        print(path)


if __name__ == '__main__':
    main()
