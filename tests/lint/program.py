"""Reads the program's description of itself (`kvfate list all --json`), for the checks of
documentation."""
import functools
import json
import os
import re
import shlex
import subprocess

PLANTED = 'description.json'  # in a copy of the tree: a wrong description for a self-test


class Program:
    """Commands, analyzers, figures, probes and methods by name."""

    def __init__(self, description):
        self.all = description
        for kind in ('commands', 'analyzers', 'figures', 'probes', 'methods'):
            assert description[kind], f'describe has no {kind}'
            setattr(self, kind, {x['name']: x for x in description[kind]})

    def command_of(self, words):
        """Returns the name of the command that a command line calls, or None: the longest words that fit."""
        best, length = None, 0
        for name, c in self.commands.items():
            bare, _, option = c['words'].partition(' --')
            bare, option = bare.split(), option.split()
            at = words.index('--' + option[0]) if option and '--' + option[0] in words else 0
            chosen = not option or at and (len(option) == 1 or words[at + 1:at + 2] == option[1:])
            if words[:len(bare)] == bare and chosen and len(bare) + len(option) > length:
                best, length = name, len(bare) + len(option)
        return best

    def options(self, command, analysis=None):
        """Returns {'--name' and '-n': option} of a command, with those of its analysis argument."""
        listed = list(self.commands[command]['options'])
        if analysis in self.analyzers:
            listed += [o for o in self.commands[analysis]['options'] if o.get('group') == 'own' or o['name'] == 'as']
        found = {'--help': {'type': 'flag'}, '-h': {'type': 'flag'}}
        for o in listed:
            found['--' + o['name']] = o
            if 'short' in o:
                found['-' + o['short']] = o
        return found

    def every_option(self):
        return {name for c in self.commands for name in self.options(c)}


def describe(path):
    done = subprocess.run([path, 'list', 'all', '--json'], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def of(root, args):
    """Returns the program in the arguments, or the one planted in the tree."""
    planted = os.path.join(root, PLANTED)
    if os.path.exists(planted):
        with open(planted, encoding='utf-8') as f:
            return Program(json.load(f))
    if not of.asked:
        of.asked = Program(describe(os.path.abspath(args.kvfate)))
    return of.asked


of.asked = None


def arguments(parser):
    parser.add_argument('--kvfate', required=True, help='the program')


@functools.lru_cache(maxsize=None)  # self-tests check most lines repeatedly
def words_of(line):
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # prose, or an incomplete command
        return []


def check_line(program, line):
    """Returns what is wrong with the command line `kvfate ...`, compared with the existing
    options."""
    words = words_of(line)
    if not words or words[0] != 'kvfate':
        return []
    words = words[1:]
    ends = [i for i, w in enumerate(words) if re.fullmatch(r'[|&;<>].*|\d?>.*', w)]
    words = words[:ends[0]] if ends else words
    if not words or words[0] in ('help', '--version', '--help', '-h') or not re.fullmatch(
            r'[a-z][\w-]*', words[0]):
        return []
    command = program.command_of(words)
    if command is None:
        return [f'there is no command {words[0]}: {line.strip()}']
    known = program.options(command, program.command_of(words[1:]) if command == 'corpus' else None)
    for kind in [b for a, b in zip(words, words[1:]) if a == '--as' and '--as' in known]:
        if re.fullmatch(r'[a-z][a-z-]*', kind) and kind not in known['--as']['words']:
            return [f'{command} has no kind {kind}: {line.strip()}']
    return [f'{command} has no option {w}: {line.strip()}' for w in flags(words[1:], known)
            if w not in known]


def flags(words, known):
    """Returns the words that are options, without those that are an option's value."""
    found, value = [], False
    for word in words:
        if value:
            value = False
            continue
        if word == '--':
            break
        name = word.split('=')[0] if word.startswith('--') else word[:2]
        if re.fullmatch(r'--[a-z][\w-]*|-[A-Za-z]', name):
            found.append(name)
            takes = known.get(name, {}).get('type', 'flag') != 'flag'
            value = takes and word == name
    return found
