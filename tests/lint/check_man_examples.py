#!/usr/bin/env python3
"""Every line under EXAMPLES in the manual pages runs.  Needs the default model;
skipped (77) without it."""
import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile

MODEL = 'SmolLM2-135M-Instruct.Q4_1.gguf'


def default_model():
    folder = os.environ.get('KVFATE_CACHE') or os.path.expanduser('~/.cache/kvfate')
    return os.path.join(folder, MODEL)


def examples(page):
    with open(page, encoding='utf-8') as f:
        text = f.read().split('.Sh EXAMPLES\n')[1]
    for block in re.findall(r'^\.Bd -literal.*?\n(.*?)^\.Ed$', text, re.S | re.M):
        yield from block.replace('\\e', '\\').splitlines()


def run(line, folder, environment):
    """None, or what a failing command says."""
    if line.startswith('python3') and subprocess.run(['python3', '-c', 'import numpy'],
                                                     capture_output=True).returncode:
        return None
    done = subprocess.run(['sh', '-f', '-c', line], cwd=folder, env=environment,
                          capture_output=True, text=True, errors='replace')
    return f'{line}: {done.returncode} {done.stderr[-300:]}' if done.returncode else None


def run_pages(pages, environment):
    """Failures.  Pages share a folder, and a line that several have runs once."""
    seen = set()
    with tempfile.TemporaryDirectory() as folder:
        for page in pages:
            for line in examples(page):
                why = None if line in seen else run(line, folder, environment)
                seen.add(line)
                if why:
                    yield f'{os.path.basename(page)}: {why}'


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--kvfate', required=True)
    parser.add_argument('--root', required=True)
    args = parser.parse_args()
    if not os.path.exists(default_model()):
        print(f'no {MODEL}: the examples of the manual pages are not run')
        return 77
    folder = os.path.dirname(os.path.abspath(args.kvfate))
    environment = {**os.environ, 'PATH': folder + os.pathsep + os.environ['PATH']}
    pages = sorted(glob.glob(os.path.join(args.root, 'docs/man/kvfate*.1')))
    failed = list(run_pages(pages, environment))
    print('\n'.join(failed))
    print(f'{len(pages)} pages, {len(failed)} examples failed')
    return 1 if failed or not pages else 0


if __name__ == '__main__':
    sys.exit(main())
