#!/usr/bin/env python3
"""Every line under EXAMPLES in the manual pages runs, with a tiny model of the shape of the
default one in its place (KVFATE_TESTS=long: with the default model, where it is)."""
import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile

MODEL = 'SmolLM2-135M-Instruct.Q4_1.gguf'
TINY = '--layers 30 --heads 9 --kv-heads 3 --head-dim 4 --dim 36 --ffn 32 --context 8192'.split()
PYTHON = '/usr/bin/python3' if os.path.exists('/usr/bin/python3') else 'python3'  # has NumPy


def cache(root, folder):
    """A folder that has a model under the name of the default one."""
    known = os.environ.get('KVFATE_CACHE') or os.path.expanduser('~/.cache/kvfate')
    if os.environ.get('KVFATE_TESTS') == 'long' and os.path.exists(os.path.join(known, MODEL)):
        return known
    tool = os.path.join(root, 'tests', 'data', 'golden', 'tools', 'gen_tiny.py')
    subprocess.run([PYTHON, tool, *TINY, '-o', os.path.join(folder, MODEL)], check=True)
    return folder


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
    folder = os.path.dirname(os.path.abspath(args.kvfate))
    pages = sorted(glob.glob(os.path.join(args.root, 'docs/man/kvfate*.1')))
    with tempfile.TemporaryDirectory() as models:
        environment = {**os.environ, 'PATH': folder + os.pathsep + os.environ['PATH'],
                       'KVFATE_CACHE': cache(args.root, models)}
        failed = list(run_pages(pages, environment))
    print('\n'.join(failed))
    print(f'{len(pages)} pages, {len(failed)} examples failed')
    return 1 if failed or not pages else 0


if __name__ == '__main__':
    sys.exit(main())
