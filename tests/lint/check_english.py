#!/usr/bin/env python3
"""Measures how plain the English of pages, help texts and messages is.

A mark is a turn of phrase that technical English of this field rarely uses, such as "what is held" for "the cached entries",
or "alone" for "only". The measure is marks per 1,000 words. A mark is no error: rewrite the sentence, do not replace the word.
The table PARTS has the limits of each part, and whether the part must pass.

    check_english.py --kvfate KVFATE            a line for each part; violations of the parts that must pass
    check_english.py --kvfate KVFATE --lines    in addition every line with a mark"""
import collections
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

import check_man
import lint
import program as describe

MARKS = {
    'what (that which)': r'\bwhat\b(?![^.]*\?)',
    'things that say or tell': r'\b(?:says?|said|tells?|told)\b',
    'alone (only)': r'\balone\b',
    'beside, behind, under, among': r'\b(?:beside|behind|among|amongst)\b',
    'whole, anew, of its own': r'\b(?:whole|anew|of itself|of its own|as such|by itself)\b',
    'nothing, none, nobody': r'\b(?:nothing|none|nobody|nowhere)\b',
    'whose, those that': r'\b(?:whose|those (?:that|of|who|which|in|with|where))\b',
    'hold': r'\b(?:holds?|held)\b',
    'come, go, leave, lie, stand': r'\b(?:comes?|goes|leaves?|lies?|lay|stands?|stood|takes? (?:no|a|the) (?:place|part)|to be had|is had)\b',
    'refuse, hand, throw': r'\b(?:refuse[sd]?|refusal|handed|taken apart|thrown)\b',
    'the one, the other': r'\b(?:the (?:one|other|others|latter|former)|one another|another\'s|each other\'s)\b',
    'as if, for that, so as': r'\b(?:for (?:it|they|that) (?:is|are|has|have)|so as|in the place of|in place of|at the most|at the least)\b',
}
MARKS = {name: re.compile(pattern, re.I) for name, pattern in MARKS.items()}
WORD = re.compile(r"[A-Za-z']+")

# A part: its texts, the most marks per 1,000 words in all of them, and whether the check fails if there are more.
Part = collections.namedtuple('Part', 'name texts most required pages')
PAGE_MOST = 8  # marks per 1,000 words of a page, for parts that consist of pages


def markdown(text):
    """Returns the prose of a page, without code, tables and addresses."""
    text = re.sub(r'(?s)```.*?```', ' ', text)
    text = re.sub(r'(?m)^( {4,}|\t).*$', ' ', text)
    text = re.sub(r'(?m)^\|.*$', ' ', text)
    text = re.sub(r'\[([^]]*)\]\([^)]*\)', r'\1', text)
    return re.sub(r'`[^`]*`', ' ', text)


def pages(*patterns):
    def texts(root, program):
        return {p: markdown(lint.read(root, p)) for pattern in patterns
                for p in sorted(os.path.relpath(x, root) for x in glob.glob(os.path.join(root, pattern)))}
    return texts


def manual_pages(root, told):
    """Returns the manual pages as they are shown, by the path of the template."""
    with tempfile.TemporaryDirectory() as folder:
        for problem in check_man.make_pages(root, told, folder):
            raise SystemExit(problem)
        names = sorted(os.listdir(folder))
        shown = {n: subprocess.run(['mandoc', '-T', 'ascii', n], cwd=folder, capture_output=True, text=True).stdout for n in names}
    return {f'docs/man/{n}': re.sub('.\b', '', text) for n, text in shown.items()}


def help_texts(root, told):
    """Returns the output of -h of each command, by its words."""
    words = [c['words'] for c in told.all['commands']]
    return {f'kvfate {w} -h': subprocess.run([told.path, *w.split(), '-h'], capture_output=True, text=True).stdout for w in words}


LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
LITERALS = re.compile(LITERAL.pattern + r'(?:\s*' + LITERAL.pattern + ')*')


def literals(text):
    """Yields (offset, end, text) of the string literals of C code that have at least three words. Adjacent literals are one."""
    code = lint.blank(text, strings=False)
    code = re.sub(r'(?m)^[ \t]*#[ \t]*include.*$', lambda m: ' ' * len(m[0]), code)
    for found in LITERALS.finditer(code):
        joined = ''.join(m[1] for m in LITERAL.finditer(found[0]))
        if len(WORD.findall(plain(joined))) >= 3:
            yield found.start(), found.end(), joined


def plain(literal):
    """Returns a literal without conversions and escapes."""
    return re.sub(r"%[-+ #0-9.*]*(?:ll|z|l)?[a-zA-Z]|\\.", ' ', literal)


def messages(root, told):
    found = {}
    for path in lint.tree(root, ('.c',), lint.ROOMS):
        if text := '\n'.join(plain(s) for _, _, s in literals(lint.read(root, path))):
            found[path] = text
    return found


PARTS = (
    Part('README and guides', pages('README.md', 'docs/guide/*.md'), 3, True, True),
    Part('reference', pages('docs/*.md', 'docs/reference/*.md', 'docs/reference/analyses/*.md', 'docs/studies/*.md', 'HACKING.md', 'CONTRIBUTING.md'), 5, True, True),
    Part('manual pages', manual_pages, 5, True, True),
    Part('help texts', help_texts, 5, True, False),
    Part('messages', messages, 5, True, False),
)


def marks(text):
    return {name: n for name, pattern in MARKS.items() if (n := len(pattern.findall(text)))}


def rate(n, text):
    """Returns marks per 1,000 words."""
    words = len(WORD.findall(text))
    return 1000 * n / words if words else 0


def violations(part, texts):
    """Yields a report of a part that exceeds its limit, for its worst text, and of each page over the limit of pages."""
    count = {path: sum(marks(text).values()) for path, text in texts.items()}
    rates = {path: rate(count[path], text) for path, text in texts.items()}
    total = rate(sum(count.values()), '\n'.join(texts.values()))
    if total > part.most:
        worst = max(count, key=count.get)
        yield f'{worst}:1: {part.name} have {total:.1f} marks per 1,000 words, over {part.most}; most are here ({count[worst]})'
    for path in texts:
        if part.pages and rates[path] > PAGE_MOST:
            yield f'{path}:1: {rates[path]:.1f} marks per 1,000 words, over {PAGE_MOST}: {", ".join(marks(texts[path]))}'


def parts_of(args):
    """Returns the parts that this machine can measure. The self-test leaves out those that are made from the program."""
    made = (help_texts, manual_pages) if args.self_test else () if shutil.which('mandoc') else (manual_pages,)
    return [part for part in PARTS if part.texts not in made]


def check(root, args):
    told, reports = describe.of(root, args), []
    told.path = os.path.abspath(args.kvfate)
    for part in parts_of(args):
        texts = part.texts(root, told)
        found = list(violations(part, texts))
        reports += [r for r in found if part.required or args.self_test and ' have ' not in r]
        if args.self_test:
            continue
        all_text = '\n'.join(texts.values())
        print(f'{part.name}: {rate(sum(marks(all_text).values()), all_text):.1f} marks per 1,000 words (limit {part.most}), {len(found)} '
              f'over a limit{"" if part.required else ", not required yet"}', file=sys.stderr)
        for line in [x for path, text in texts.items() for x in lines_of(path, text)] if args.lines else []:
            print(line)
    return reports


def lines_of(path, text):
    return [f'{path}: {line.strip()}' for line in text.splitlines() if marks(line)]


BAD = 'What it holds, and those that none of the others tell, lies behind the one alone. '
PLANTS = [
    lint.Plant('docs/guide/planted.md', 'over 8', text=BAD * 20),
    lint.Plant('docs/reference/planted.md', 'over 8', text=BAD * 20),
    lint.Plant('cli/planted.c', 'messages have', text=f'const char *planted[] = {{{", ".join(chr(34) + BAD + chr(34) for _ in range(400))}}};\n'),
]
CLEAN = {
    'docs/guide/clean.md': 'The method evicts entries.\n\n    what this holds is code\n\n| what | holds |\n\nUse `what holds`.\n',
    'cli/clean.c': '/* What it holds, and those that none of the others tell. */\nconst char *clean = "what holds";\n',
}


def add_arguments(parser):
    describe.arguments(parser)
    parser.add_argument('--lines', action='store_true', help='print every line with a mark')


if __name__ == '__main__':
    sys.exit(lint.main(check, PLANTS, CLEAN, None, add_arguments))
