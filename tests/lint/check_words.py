#!/usr/bin/env python3
"""Checks that text is UTF-8 with LF and without trailing white space, and does not mention the
machine on which it was written: no absolute paths, no marks of unfinished work, no package
registries."""
import functools
import re
import sys

import lint

BINARY = ('.png', '.webp', '.kvf', '.npy', '.npz', '.gguf', '.safetensors', '.pdf', '.gz', '.zst', '.bin')
# Split in two, so that this file does not report itself.
BANNED = [
    (r'(?<![\w.$~}/-])/(?:wo' r'rk|ro' r'ot|ho' r'me)/[\w.-]+', 'a path of one machine'),
    # A template of mkstemp or mkdtemp becomes unique at run time.
    (r'/tm' r'p/(?![\w.-]*XXXXXX)[\w.-]+', 'a path of one machine'),
    (r'\b(?:TO' r'DO|FIX' r'ME|XX' r'X)\b', 'a mark of unfinished work'),
    (r'\b(?:pyp' r'i\.org|python' r'hosted\.org|npm' r'js\.|crat' r'es\.io|ruby' r'gems\.org|'
     r'proxy\.go' r'lang\.org|ana' r'conda\.org|deb' r'ian\.org/debian)', 'a registry host'),
]
BANNED = [(re.compile(pattern), what) for pattern, what in BANNED]


@functools.lru_cache(maxsize=None)
def check_text(path, text):
    return list(violations(path, text))


def violations(path, text):
    for n, line in enumerate(text.split('\n'), 1):
        if line.endswith((' ', '\t')):
            yield f'{path}:{n}: trailing white space'
        for pattern, what in BANNED:
            if pattern.search(line):
                yield f'{path}:{n}: {what}: {pattern.search(line).group(0)}'
    if text and not text.endswith('\n'):
        yield f'{path}:{text.count(chr(10)) + 1}: no newline at the end'


def check(root):
    reports = []
    for path in lint.tree(root):
        if path.endswith(BINARY) or path.startswith(lint.FOREIGN):
            continue
        try:
            text = lint.read(root, path)
        except UnicodeDecodeError as e:
            reports.append(f'{path}:1: not UTF-8 at byte {e.start}')
            continue
        if '\r' in text:
            reports.append(f'{path}:{lint.line_of(text, text.index(chr(13)))}: carriage return')
        reports += check_text(path, text)
    return reports


PLANTS = [
    lint.Plant('CHANGELOG.md', 'path of one machine', append='see /wo' 'rk/main\n'),
    lint.Plant('cli/main.c', 'path of one machine', append='/* /tm' 'p/x.kvf */\n'),
    lint.Plant('docs/new.md', 'path of one machine', text='/ho' 'me/someone/model.gguf\n'),
    lint.Plant('base/buf.c', 'unfinished work', append='/* TO' 'DO: later */\n'),
    lint.Plant('docs/new.md', 'unfinished work', text='FIX' 'ME\n'),
    lint.Plant('new.sh', 'registry host', text='curl https://pyp' 'i.org/simple\n'),
    lint.Plant('base/rng.c', 'trailing', append='/* */ \n'),
    lint.Plant('docs/new.md', 'not UTF-8', text=b'caf\xe9\n'),
    lint.Plant('docs/crlf.md', 'carriage return', text='x\r\ny\n'),
    lint.Plant('docs/new.md', 'no newline', text='x'),
]
CLEAN = {
    'tests/template.c': 'char path[] = "/tmp/kvf-XXXXXX";\n',
    'docs/greek.md': 'the weight \u03b1 of $HOME/.cache/wo' 'rk/x and ~/wo' 'rk/x\n',
}


if __name__ == '__main__':
    sys.exit(lint.main(check, PLANTS, CLEAN))
