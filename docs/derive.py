#!/usr/bin/env python3
"""Writes the overviews of the documentation from what the program says of itself.

    docs/derive.py KVFATE [ROOT]      writes them; prints the pages that changed

A page has them between two lines,
    <!-- made by docs/derive.py: NAME -->
    <!-- end -->
where NAME is one of the functions in MADE below.  The check tests/lint/check_docs.py fails while a page
is not what this script would write."""
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
    """All commands, in the groups of the overview that `kvfate help` prints."""
    return table(('command', 'what it gives'),
                 [(f'`kvfate {c["words"]}`', c['summary']) for c in program['commands']])


def methods(program):
    return f'{len(program["methods"])} rows: {quoted(m["name"] for m in program["methods"])}.\n'


def overview(program):
    """Returns the needs, sizes and costs of all methods."""
    return table(('row', 'looks at', 'one set for', 'protects', 'state, bytes per entry', 'cost'),
                 [[m[k] for k in ('name', 'needs', 'scope', 'protects', 'state_formula', 'cost')] for m in program['methods']])


def probes(program):
    def asked(p):
        if 'shadow' in p:
            return f'`--shadow {p["shadow"]}`'
        return ', '.join(p['sets']) or 'by name'
    return table(('probe', 'what it records', 'part of'),
                 [(f'`{p["name"]}`', p['summary'], asked(p)) for p in program['probes']])


def analyzers(program):
    def traces(a):
        if a['max_traces'] == 1:
            return '1'
        return f'{a["min_traces"]} to {a["max_traces"]}'
    return table(('analysis', 'what it says', 'traces of one table', 'figures', 'adds up by'),
                 [(f'`{a["name"]}`', a['summary'], traces(a), quoted(a['figures']),
                   quoted(a['pool_keys'])) for a in program['analyzers']])


def pools(program):
    """The analyses that `kvfate corpus` takes."""
    def value(m):
        if 'product' in m:
            half = f', `{m["half_life"]}`' if 'half_life' in m else ''
            return f'`{m["value"]}` = product of `{m["numerator"]}` / `{m["denominator"]}`{half}'
        if 'numerator' in m:
            return f'`{m["value"]}` = `{m["numerator"]}` / `{m["denominator"]}`'
        return f'`{m["value"]}` (by `{m["denominator"]}`)' if 'denominator' in m else f'`{m["value"]}`'
    return table(('analysis', 'a row of the sum has', 'and the values'),
                 [(f'`{a["name"]}`', quoted(a['pool_keys']), '; '.join(map(value, a['measures'])))
                  for a in program['analyzers'] if a['pools']])


def figures(program):
    def keys(f):
        return quoted(k['name'] for k in f.get('style') or [])
    return table(('figure', 'table', 'what it shows', '`--style`'),
                 [(f'`{f["name"]}`', f'`{f["table"]}`', f['summary'], keys(f)) for f in program['figures']])


def published_gates(program):
    """All published gates, in one row for each method and way to load them."""
    rows = {}
    for g in program['models']['published_gates']:
        way = '`kvfate gates convert`' if g['converts'] else 'save as safetensors'
        rows.setdefault((g['method'], way), []).append(f'{g["name"]} ({g["base"]})')
    return table(('method', 'gates (model)', 'to load them'),
                 [(f'`{method}`', ', '.join(names), way) for (method, way), names in rows.items()])


def options_quoted(text):
    """A note with its options as code."""
    return re.sub(r'(--[a-z][\w-]*(?: (?!,|in |asks|the |of )[\w.-]+)?)', r'`\1`', text)


def columns(program):
    """Which column each analysis needs, by which options, and which it can do without."""
    def listed(a, *needs):
        found = {}
        for c in a['columns']:
            if c['need'] in needs:
                found.setdefault(options_quoted(c['note']), []).append(c['name'])
        return '; '.join(quoted(names) + (f' ({note})' if note else '') for note, names in found.items())
    return table(('analysis', 'needs', 'asks for', 'can do without', 'uses where it is there'),
                 [(f'`{a["name"]}`', listed(a, 'always'), listed(a, 'asked'), listed(a, 'can lack'), listed(a, 'helps'))
                  for a in program['analyzers']])


def supplies(program):
    """Who supplies each column."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'python', 'kvfate', 'capture_rows.py'), encoding='utf-8') as f:
        probes = re.findall(r'^    "(\w+)": \{', f.read(), re.M)
    def capture(c):
        probe = {'nll': 'nll', 'received.*': 'watch'}.get(c['name'], c['flag'].removeprefix('--probes '))
        if c['name'].startswith('tokens.'):
            return 'always'
        return f'`{probe}`' if probe in [*probes, 'watch'] and (c['import'] or probe != 'dilution') else ''
    return table(('column', '`kvfate run`', '`kvfate.capture`', '`kvfate trace import`'),
                 [(f'`{c["name"]}`', f'`{c["flag"]}`' if c['flag'] else '', capture(c),
                   'its name' if not c['import'] else ' or '.join(f'`{x}`' for x in c['import'].split(' or ')))
                  for c in program['columns']])


MADE = {f.__name__: f for f in (commands, methods, overview, probes, analyzers, pools, figures,
                                   published_gates, columns, supplies)}
PAGES = {'README.md': ['commands', 'methods'], 'docs/reference/methods.md': ['overview'],
         'docs/reference/probes.md': ['probes'],
         'docs/reference/analyzers.md': ['analyzers'], 'docs/reference/corpus.md': ['pools'],
         'docs/reference/gallery.md': ['figures'], 'docs/reference/columns.md': ['columns', 'supplies'],
         'docs/guide/own-model.md': ['published_gates']}


def made(text, program):
    return BLOCK.sub(lambda m: m.group(1) + MADE[m.group(2)](program) + m.group(4), text)


def stale(root, program):
    """(page, what is wrong) for each page that is not what would be written."""
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
        elif made(text, program) != text:
            yield path, 'a made table is stale: run docs/derive.py'


def main():
    kvfate, root = sys.argv[1], (sys.argv + [os.path.join(os.path.dirname(__file__), '..')])[2]
    program = json.loads(subprocess.run([kvfate, 'list', 'all', '--json'], capture_output=True, text=True,
                                        check=True).stdout)
    for path, _ in list(stale(root, program)):
        full = os.path.join(root, path)
        with open(full, encoding='utf-8') as f:
            text = f.read()
        files.write(full, made(text, program))
        print(path)


if __name__ == '__main__':
    main()
