"""Shared by the lint scripts: walking the tree, reports, and the self-test.

A check is a function check(root) that returns a list of "path:line: what". Its self-test copies the
tree and plants one violation after another. Each must be reported in its file and in no other file.
Files that only look like violations must pass.
"""
import argparse
import functools
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

ROOMS = ['base', 'libtrace', 'engine', 'analyzers', 'studies', 'render', 'cli']
SKIP_DIRS = {'.git', '__pycache__', 'out', 'subprojects'}
CODE = ('.c', '.h', '.cu', '.cuh')
# Files from other projects, or recorded from other programs, which are not formatted here.
FOREIGN = ('tests/data/', 'tests/format/golden/', 'tests/fuzz/corpus/')


def tree(root, suffixes=None, under=None):
    """Returns paths below root, relative and sorted, without builds and hidden folders."""
    found = []
    for top in under or ['.']:
        for folder, dirs, names in os.walk(os.path.join(root, top)):
            dirs[:] = [d for d in dirs if d not in SKIP_DIRS and not d.startswith('build')
                       and not d.startswith('.')]
            for name in names:
                path = os.path.relpath(os.path.join(folder, name), root)
                if name != '.git' and (suffixes is None or path.endswith(suffixes)):
                    found.append(path)
    return sorted(set(found))


def read(root, path):
    with open(os.path.join(root, path), encoding='utf-8', newline='') as f:
        return f.read()


@functools.lru_cache(maxsize=None)  # the self-test reads most files repeatedly
def blank(text, strings=True):
    """Returns C text with comments, and optionally the contents of strings, replaced by spaces."""
    token = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)

    def empty(match):
        s = match.group(0)
        if s[0] != '/' and not strings:
            return s
        return re.sub(r'[^\n]', ' ', s)
    return token.sub(empty, text)


def line_of(text, offset):
    return text.count('\n', 0, offset) + 1


class Plant:
    """A violation: the change to a copy of the tree, and the expected report."""

    def __init__(self, path, expect, append=None, text=None, replace=None):
        self.path, self.expect = path, expect
        self.append, self.text, self.replace = append, text, replace

    def apply(self, root):
        full = os.path.join(root, self.path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        old = None
        if os.path.exists(full):
            old = Path(full).read_bytes()
        new = old if self.text is None else \
            self.text if isinstance(self.text, bytes) else self.text.encode()
        if self.append is not None:
            new = (old or b'') + self.append.encode()
        if self.replace is not None:
            before, after = (s.encode() for s in self.replace)
            assert before in old, f'{self.path} no longer holds {self.replace[0]!r}'
            new = old.replace(before, after, 1)
        Path(full).write_bytes(new)
        return full, old

    @staticmethod
    def undo(full, old):
        if old is None:
            os.remove(full)
        else:
            Path(full).write_bytes(old)


def copy_tree(root, to):
    for path in tree(root):
        if path.startswith(FOREIGN):
            continue
        target = os.path.join(to, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(os.path.join(root, path), target)


def in_memory():
    """Returns a folder for the copy of the tree, for tempfile. Thousands of files are faster in
    memory than on a disk."""
    path = '/dev/shm'
    if not os.access(path, os.W_OK) or shutil.disk_usage(path).free < 1 << 28:
        return None
    return path


def self_test(check, root, plants, clean):
    bad = 0
    with tempfile.TemporaryDirectory(dir=in_memory()) as copy:
        copy_tree(root, copy)
        before = set(check(copy))
        for plant in plants:
            full, old = plant.apply(copy)
            new = [r for r in check(copy) if r not in before]
            plant.undo(full, old)
            hit = [r for r in new if plant.path in r and plant.expect in r]
            if not hit or any(plant.path not in r for r in new):
                bad += 1
                print(f'planted in {plant.path}: expected "{plant.expect}", got {new}')
        for path, text in clean.items():
            Plant(path, '', text=text).apply(copy)
        for report in set(check(copy)) ^ before:
            bad += 1
            print(f'without a violation: {report}')
    print(f'{len(plants)} violations planted, {len(clean)} files that are none; {bad} mistakes')
    return 1 if bad else 0


def main(check, plants, clean=None, self_check=None, add_arguments=None):
    """Returns the exit status of a lint script: 0 clean, 1 violations. clean: {path: text} of files
    that the self-test adds and that must not be reported. self_check: a faster form of check for
    the self-test."""
    parser = argparse.ArgumentParser()
    parser.add_argument('--root', default=os.path.join(os.path.dirname(__file__), '..', '..'))
    parser.add_argument('--self-test', action='store_true')
    if add_arguments:
        add_arguments(parser)
    args = parser.parse_args()
    root = os.path.abspath(args.root)
    run = (lambda r: check(r, args)) if add_arguments else check
    if args.self_test:
        return self_test(self_check or run, root, plants, clean or {})
    reports = run(root)
    for line in reports:
        print(line)
    print(f'{len(reports)} violations', file=sys.stderr)
    return 1 if reports else 0
