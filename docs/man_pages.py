#!/usr/bin/env python3
"""Makes the manual pages from their templates and the declarations of the program.

    man_pages.py DESCRIPTION.json COMMON.mdoc TEMPLATE... FOLDER

A template of docs/man has the text on one command in mdoc: DESCRIPTION, the long text of options, EXAMPLES,
SEE ALSO.  Commands that begin with the same word, such as `kvfate survival` and
`kvfate survival --as hazard`, share a page: each has a subsection of DESCRIPTION with its text and its own
options.  `kvfate list all --json` supplies NAME, SYNOPSIS, the head of every option (short form, name,
argument), a range and default that the text lacks, options without text, EXIT STATUS, and the lists of
commands, analyses and figures.

In a template
    .It --NAME        begins the text of an option, under `.Sh OPTIONS`; `.It --A --B` that of two
    @commands GROUP   becomes the list of the commands of a group
    @analyses         becomes the names of the analyses that `kvfate corpus` takes
    @figures          becomes the list of all figures
    @pages            becomes references to the pages of all commands and of the format
    @probes           becomes the list of all probes that --probes takes, with the sets they are part of
Texts of options that several commands share are in common.mdoc, under a line `@group NAME` for the group
in `kvfate list all --json`.  Options that only analyses have are in the group `analysis`, others in `any`.
An option without any text gets its line of `-h`."""
import json
import os
import re
import sys
import textwrap

sys.dont_write_bytecode = True
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'python'))
from kvfate import files  # noqa: E402

DATE = 'November 22, 2026'
WIDTH = 78
BEFORE_EXIT = ('ENVIRONMENT', 'FILES')


def read(path):
    with open(path, encoding='utf-8') as f:
        return f.read()


# ---- templates

def option_texts(section):
    """{name: (all names of the item, text)} of `.It --NAME` items, and the text before the first item."""
    head, *items = re.split(r'^\.It (--.*)\n', section, flags=re.M)
    found = {}
    for names, text in zip(items[::2], items[1::2]):
        names = [n.removeprefix('--') for n in names.split()]
        for n in names:
            found[n] = (names, text)
    return head, found


def common_texts(text):
    """{group: {name: (names, text)}} of common.mdoc."""
    _, *parts = re.split(r'^@group (\S+)\n', text, flags=re.M)
    return {group: option_texts(body)[1] for group, body in zip(parts[::2], parts[1::2])}


def sections(template):
    """{title: text} of the template, in order."""
    _, *parts = re.split(r'^\.Sh (.*)\n', template, flags=re.M)
    return dict(zip(parts[::2], parts[1::2]))


# ---- pieces of mdoc

def plain(text):
    """A sentence as mdoc, one sentence a line; --name becomes a flag."""
    lines = []
    for sentence in re.split(r'(?<=[.;:]) (?=[A-Z])', text):
        pieces = re.split(r'--([a-z][\w-]*)(\S*)', sentence)
        for at in range(0, len(pieces), 3):
            lines += [escape(line) for line in textwrap.wrap(pieces[at], WIDTH)]
            if at + 2 < len(pieces):
                mark = f' {pieces[at + 2]}' if pieces[at + 2] else ''
                lines.append(f'.Fl Fl {pieces[at + 1]}{mark}')
    return ''.join(line + '\n' for line in lines)


def escape(text):
    text = text.replace('\\', '\\e')
    return '\\&' + text if text[:1] in ".'" else text


def words_of(text, flag='Fl', ar='Ar'):
    """Words of a usage line as arguments and flags of a macro."""
    out = []
    for word in text.split():
        if word.startswith('--'):
            out.append(f'{flag} {flag} {word[2:]}')
        elif word.startswith('-'):
            out.append(f'{flag} {word[1:]}')
        elif word == '|':
            out.append(word)
        else:
            out.append(f'{ar} {word}')
    return ' '.join(out)


def name_of(command):
    """The words that call a command, as a line of mdoc."""
    bare, _, option = command['words'].partition(' --')
    flag, _, kind = option.partition(' ')
    return f'.Nm kvfate {bare}' + (f'\n.Fl Fl {flag}' if flag else '') + (f' Cm {kind}' if kind else '')


def synopsis(command):
    lines = [name_of(command)]
    for word in command['operands']['shown'].split(' [')[0].split():
        lines.append(f'.Ar {word}')
    for word in command['operands']['shown'].split(' [')[1:]:
        lines.append(f'.Op Ar {word.rstrip("]")}')
    for choice, one in re.findall(r'\(([^)]*)\)|(-[^()]*?)(?= [-(]|$)', command['needs']):
        lines.append(f'.Brq {words_of(choice)}' if choice else f'.{words_of(one)}')
    if command['options']:
        lines.append('.Op Ar option ...')
    return '\n'.join(lines) + '\n'


def head_of(option):
    names = [f'Fl {option["short"]}'] if 'short' in option else []
    names += [f'Fl Fl {option["name"]}'] if option['name'] else []
    head = ' , '.join(names)
    if option['type'] == 'word':
        head += ' Cm ' + ' | '.join(option['words'])
    elif 'arg' in option:
        head += f' Ar {option["arg"]}'
    return head


def number(value):
    return f'{value:.15g}'


def values_of(option, text):
    """Returns sentences on range and default that the text lacks."""
    lines = []
    low, high = option.get('min'), option.get('max')
    if low is not None and not (number(low) in text and number(high) in text) and high < 1e15:
        lines.append(f'From {number(low)} to {number(high)}.')
    default = option.get('absent', option.get('default'))
    if default is not None and 'Default:' not in text:
        lines.append(f'Default: {escape(default)}.')
    return ''.join(line + '\n' for line in lines)


# ---- options

def group_of(command, option):
    return option.get('group', 'analysis' if command['analysis'] else 'any')


def own_figures(program, command):
    """Figures of the table that has the name of the command."""
    return [f for f in program['figures'] if f['table'] == command['name']]


def figure_text(figures):
    """Returns the values of --figure: the other figures of the table."""
    own = [f for f in figures if f['default']]
    others = [f for f in figures if not f['default']]
    if not others:
        return f'The figure of this table, which is drawn by default:\n.Cm {own[0]["name"]} .\n'
    rows = ''.join(f'.It Cm {f["name"]}\n{escape(f["summary"])}\n' for f in others)
    return f'Draw this figure of the table instead:\n.Bl -tag -width Ds -compact\n{rows}.El\n'


OUTPUT = """Output file; its extension selects the format.
.Pa .tsv , .csv , .json
and
.Pa .npz
contain the table;
"""
DRAWN = """.Pa .png , .svg
and
.Pa .pdf
contain its figure;
"""
REST = """.Sq -
is the table as TSV on the standard output.
If the table is not written there, a summary is printed.
"""
NO_FIGURE = 'This table has no figure.\n'


def derived_text(program, command, option):
    """Returns texts about the figures of an analysis' table, or None without figures."""
    if group_of(command, option) != 'analysis':
        return None
    figures = own_figures(program, command)
    if option['name'] == 'output':
        return OUTPUT + (DRAWN if figures else '') + REST + ('' if figures else NO_FIGURE)
    if option['name'] == 'figure':
        return figure_text(figures) if figures else NO_FIGURE
    return None


def style_text(program, command):
    """The keys of --style that the figures of an analysis have."""
    text = 'Options of the figure.\n'
    for figure in own_figures(program, command):
        keys = figure.get('style') or []
        rows = ''.join(f'.It {head_of_key(k)}\n{plain(sentence(k["help"]))}{values_of(k, "")}'
                       for k in keys)
        text += f'.Cm {figure["name"]}\n' + (
            f'has\n.Bl -tag -width Ds -compact\n{rows}.El\n' if keys else 'has no options.\n')
    return text


def head_of_key(key):
    values = 'Cm ' + ' | '.join(key['words']) if key['type'] == 'word' else f'Ar {key.get("arg", "yes | no")}'
    return f'Cm {key["name"]} Ns = Ns {values}'


def sentence(text):
    return text[:1].upper() + text[1:] + '.'


def text_of(program, command, option, own, common):
    """The names that share an item, and its text."""
    name = option['name']
    if name in own:
        return own[name]
    if name == 'style' and own_figures(program, command):
        return [name], style_text(program, command)
    derived = derived_text(program, command, option)
    if derived:
        return [name], derived
    for group in (group_of(command, option), 'any'):
        if name in common.get(group, {}):
            return common[group][name]
    return [name], plain(sentence(option['help']))


def option_items(program, command, own, common):
    """Items of the list of options: own options and those of groups in the order of `-h`, options of figures last."""
    drawn = not command['analysis'] or own_figures(program, command)
    listed = [o for o in command['options'] if drawn or o.get('group') != 'figure']
    listed.sort(key=lambda o: o.get('group') == 'figure')
    by_name = {o['name']: o for o in listed}
    out, done = [], set()
    for option in listed:
        names, text = text_of(program, command, option, own, common)
        if option['name'] in done:
            continue
        together = [by_name[n] for n in names if n in by_name]
        done |= set(names)
        out.append('.It ' + ' , '.join(head_of(o) for o in together) + '\n' + text
                   + (values_of(option, text) if len(together) == 1 else ''))
    if not drawn:
        idle = [f'Fl Fl {o["name"]}' for o in command['options'] if o.get('group') == 'figure']
        out.append(f'.It {" , ".join(idle)}\nNo effect: this table has no figure.\n')
    return out + ['.It Fl h , Fl Fl help\nPrint the options and an example.\n']


def option_list(items):
    return f'.Bl -tag -width Ds\n{"".join(items)}.El\n'


def exit_section(commands):
    """Returns the exit statuses. Commands of a page with equal statuses share a list."""
    lists = {}
    for c in commands:
        rows = ''.join(f'.It {x["status"].replace(", ", " , ")}\n{plain(x["when"])}' for x in c['exit'])
        lists.setdefault(rows, []).append(c)
    out = '.Sh EXIT STATUS\n'
    for rows, alike in lists.items():
        if len(lists) > 1:
            out += '.Pp\n' * (rows != next(iter(lists))) + ' ,\n'.join(name_of(c) for c in alike) + ' :\n'
        out += f'.Bl -tag -width Ds\n{rows}.El\n'
    return out


# ---- lists

def top_of(command):
    return command['words'].split()[0]


def summary_of(program, top):
    return program['tops'].get(top) or next(c['summary'] for c in program['commands'] if c['words'] == top)


def command_list(program, group):
    family = {}
    for c in program['commands']:
        if c['group'] == group:
            family.setdefault(top_of(c), []).append(c)
    if not family:
        raise SystemExit(f'@commands {group}: no such group')
    out = ''
    for top, commands in family.items():
        out += f'.It Xr kvfate-{top} 1\n{escape(summary_of(program, top))}\n'
        if len(commands) > 1:
            rows = ''.join(f'.It {name_of(c)[1:].replace(chr(10) + ".", " ")}\n{escape(c["summary"])}\n' for c in commands)
            out += f'.Bl -tag -width Ds -compact\n{rows}.El\n'
    return f'.Bl -tag -width occupancy\n{out}.El\n'


def pooled(program):
    return [a['name'] for a in program['analyzers'] if a['pools']]


def expand(program, text):
    text = re.sub(r'^@commands (.*)\n', lambda m: command_list(program, m.group(1)), text, flags=re.M)
    names = ' , '.join(pooled(program))
    text = re.sub(r'^@analyses\n', lambda m: f'.Cm {names} .\n', text, flags=re.M)
    tables = {}
    for f in program['figures']:
        tables.setdefault((f['name'], f['summary']), []).append(f['table'])
    rows = ''.join(f'.It Cm {name}\nof\n.Cm {" , ".join(of)} :\n{escape(summary)}\n'
                   for (name, summary), of in tables.items())
    text = re.sub(r'^@figures\n', lambda m: f'.Bl -tag -width Ds -compact\n{rows}.El\n', text, flags=re.M)
    pages = ''.join(f'.Xr kvfate-{name} 1 ,\n' for name in sorted({top_of(c) for c in program['commands']}))
    text = re.sub(r'^@pages\n', lambda m: f'{pages}.Xr kvf 5\n', text, flags=re.M)
    probes = ''.join(f'.It Cm {p["name"]}\n{escape(p["summary"])}\n({", ".join(p["sets"]) or "by name"})\n'
                     for p in program['probes'] if 'shadow' not in p)
    return re.sub(r'^@probes\n', lambda m: f'.Bl -tag -width Ds -compact\n{probes}.El\n', text, flags=re.M)


# ---- pages

REFERENCE = re.compile(r'Xr kvfate-([\w-]+) 1')


def placed_references(program, top, text):
    """References to commands become references to their pages, or the words of the command on its own page."""
    by_name = {c['name']: c for c in program['commands']}

    def place(found):
        c = by_name.get(found[1])
        if c is None:
            return found[0]
        return f'Ql kvfate {c["words"]}' if top_of(c) == top else f'Xr kvfate-{top_of(c)} 1'
    return REFERENCE.sub(place, text)


def see_also(program, top, texts):
    """The references of all templates of a page, each once, in order."""
    found = {tuple(x) for text in texts for x in re.findall(r'Xr (\S+) (\d)', placed_references(program, top, text))}
    found = sorted(found, key=lambda x: (x[1], x[0]))
    return '.Sh SEE ALSO\n' + ' ,\n'.join(f'.Xr {name} {section}' for name, section in found) + '\n'


def page_of(program, top, templates, common):
    """The page of all commands that begin with the word `top`; templates: [(command, template)]."""
    commands, parts, items = [c for c, _ in templates], [], []
    for c, template in templates:
        parts.append(sections(template))
        before, own = option_texts(parts[-1].pop('OPTIONS', ''))
        unknown = set(own) - {o['name'] for o in c['options']}
        if unknown or before.strip():
            raise SystemExit(f'kvfate-{c["name"]}: no option {", ".join(sorted(unknown)) or before!r}')
        items.append(option_items(program, c, own, common))
    shared = [x for x in items[0] if all(x in i for i in items)]
    out = [f'.Dd {DATE}\n.Dt KVFATE-{top.upper()} 1\n.Os\n',
           f'.Sh NAME\n.Nm kvfate-{top}\n.Nd {summary_of(program, top)}\n',
           '.Sh SYNOPSIS\n', *map(synopsis, commands), '.Sh DESCRIPTION\n']
    for c, part, mine in zip(commands, parts, items):
        if len(commands) > 1:
            out.append(f'.Ss kvfate {c["words"]}\n.Em {escape(sentence(c["summary"]))}\n.Pp\n')
        out.append(part.pop('DESCRIPTION'))
        own = [x for x in mine if x not in shared]
        if own:
            out.append('.Pp\nOptions:\n' + option_list(own))
    out.append('.Sh OPTIONS\n' + option_list(shared))
    titles = list(dict.fromkeys(t for part in parts for t in part))
    for title in [t for t in BEFORE_EXIT if t in titles]:
        out.append(f'.Sh {title}\n' + ''.join(dict.fromkeys(part.pop(title) for part in parts if title in part)))
    out.append(exit_section(commands))
    references = [part.pop('SEE ALSO', '') for part in parts]
    for title in [t for t in titles if t not in BEFORE_EXIT and t != 'SEE ALSO']:
        out.append(f'.Sh {title}\n' + ''.join(part.pop(title) for part in parts if title in part))
    out.append(see_also(program, top, references))
    return expand(program, placed_references(program, top, ''.join(out)))


def pages(program, templates, common):
    """Yields (name, text) of the pages; templates: {name: template} of kvfate.1, kvfate-NAME.1 and others."""
    by_name, family = {f'kvfate-{c["name"]}.1': c for c in program['commands']}, {}
    for name, template in templates.items():
        if name in by_name:
            family.setdefault(top_of(by_name[name]), []).append((by_name[name], template))
        elif re.fullmatch(r'kvfate-.*\.1', name):
            raise SystemExit(f'{name}: there is no such command')
        else:
            yield name, placed_references(program, '', expand(program, template))
    for top, found in family.items():
        found.sort(key=lambda x: (x[0]['words'] != top, ' --' in x[0]['words'], program['commands'].index(x[0])))
        yield f'kvfate-{top}.1', page_of(program, top, found, common)


def main():
    description, common, *templates, folder = sys.argv[1:]
    program, texts = json.loads(read(description)), common_texts(read(common))
    found = {re.sub('.*/', '', template): read(template) for template in templates}
    for name, page in pages(program, found, texts):
        files.write(f'{folder}/{name}', page)


if __name__ == '__main__':
    main()
