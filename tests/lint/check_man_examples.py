#!/usr/bin/env python3
"""Runs every example: the one in each command's `-h`, and every line under EXAMPLES in the manual
pages, each once, on a tiny model instead of the default one."""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

import lint
import program as describe

MODEL = 'SmolLM2-135M-Instruct.Q4_1.gguf'  # the name by which the default model is found
# The number of heads of the default model, and the minimum number of layers for the heads in the
# examples.
SHAPE = '--layers 13 --heads 9 --kv-heads 3 --head-dim 8'.split()
TRACE = re.compile(r'\b(kvfate (?:run|plan))\b(?=[^|;&]* -o \S+\.kvf)')
# Replacements for long texts, because the tiny model uses one token per letter.
SHORTER = {'quickstart --prompts 40': 'quickstart --prompts 4', 'tasks needle --tokens 512 --keys 4': 'tasks needle --tokens 280 --keys 4', 'tasks needle --words 120': 'tasks needle --words 60'}
ASK = "kvfate run -q -p 'Why is the sky blue?'"
# Files that the examples of -h read, made in their folder before the first example.
FILES = [
    f'{ASK} --method trimkv -B 24 -n 40 --ignore-eos --probes full --shadow entries -o run.kvf',
    f'{ASK} --method h2o -B 24 -n 9 --ignore-eos --probes auto,raw:5.3 -o raw.kvf',
    'cp run.kvf seed1.kvf', 'cp run.kvf seed2.kvf', 'cp run.kvf a.kvf', 'cp run.kvf b.kvf',
    f'{ASK} -n 24 --ignore-eos --probes paper -o full.kvf',
    f'{ASK} -n 24 --ignore-eos --method h2o -B 24 --probes paper -o h2o.kvf',
    'cp full.kvf text1.kvf',
    "kvfate run -q -p 'Name three rivers.' -n 24 --ignore-eos --probes paper -o text2.kvf",
    'kvfate size --as sparsity h2o.kvf -o h2o.tsv', 'kvfate size --as sparsity full.kvf -o full.tsv',
    'kvfate corpus survival full.kvf h2o.kvf --shard 1/2 --state one.state',
    'kvfate corpus survival full.kvf h2o.kvf --shard 2/2 --state two.state',
    'mkdir results',
    '''printf '{"text": "Once upon a time"}\\n' > lines.jsonl''',
    '''printf '{"question": "3 and 4?", "answer": "#### 7"}\\n%.0s' 1 2 > gsm8k.jsonl''',
]
TORCH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'data/recipes/trimkv_weights.pth')
# Replacements for single examples: other traces under the names that all examples use.
BEFORE = {
    'dynamics': [f'{ASK} --watch-queries L0-1H0 --probes paper,queries -s {s} --temp 1 -n 40 --ignore-eos '
                 f'-o {name}.kvf' for s, name in ((1, 'a'), (2, 'b'))],
    'predict': ["kvfate ablate -p 'Why is the sky blue?' --recent 8 --score-tokens 8 --ignore-eos "
                '--head L0-1K* -o effect.tsv', f'{ASK} -n 9 --ignore-eos -o run.kvf',
                'kvfate ablate --as saliency --of run.kvf -o saliency.kvf'],
    'overlap': [f'{ASK} -n 300 --ignore-eos --probes evict,window,under -o run.kvf'],
}
BEFORE['score'] = ['kvfate tasks gsm8k gsm8k.jsonl --answer-tokens 8 -o gsm8k-tasks.jsonl', 'kvfate generate --jsonl gsm8k-tasks.jsonl > gsm8k-answers.jsonl']
BEFORE['calibration'] = [FILES[0].replace('-B 24', '-B 400')]
BEFORE['attention-sparsity'] = BEFORE['overlap']


def examples(page):
    with open(page, encoding='utf-8') as f:
        text = f.read().split('.Sh EXAMPLES\n')[1]
    for block in re.findall(r'^\.Bd -literal.*?\n(.*?)^\.Ed$', text, re.S | re.M):
        yield from block.replace('\\e', '\\').splitlines()


def run(line, folder, environment):
    """Returns None, or the message of a failed command."""
    if line.startswith('python3') and subprocess.run(['python3', '-c', 'import numpy'],
                                                     capture_output=True).returncode:
        return None
    for long, short in SHORTER.items():
        line = line.replace(long, short)
    line = TRACE.sub(r'\1 --overwrite', line)  # here, pages with equal file names share a folder
    done = subprocess.run(['sh', '-f', '-c', line], cwd=folder, env=environment,
                          capture_output=True, text=True, errors='replace')
    return f'{line}: {done.returncode} {done.stderr[-300:]}' if done.returncode else None


def run_pages(pages, environment):
    """Returns the failures. Pages share a folder, and a line that occurs in several pages runs
    once."""
    seen = set()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(TORCH, folder)
        for page in pages:
            for line in examples(page):
                why = None if line in seen else run(line, folder, environment)
                if line.endswith('> story.txt'):  # a tiny model does not print valid UTF-8
                    write_text(os.path.join(folder, 'story.txt'))
                seen.add(line)
                if why:
                    yield f'docs/man/{os.path.basename(page)}:1: {why}'


def write_text(path):
    """Writes six documents of 800 letters."""
    words = 'the river runs through a valley of old stones and cold water while it rains'.split()
    with open(path, 'w', encoding='utf-8') as f:
        for k in range(6):
            body = ' '.join(words[(i * (k + 2) + i // 7) % len(words)] for i in range(170))
            f.write(f'# Part {k}\n\n{body}\n\n')


def copy_traces(from_folder, to_folder):
    for path in glob.glob(os.path.join(from_folder, '*.kvf')):
        shutil.copy(path, to_folder)


def run_help(program, environment):
    """Returns the failures of the examples of `-h`, run in order in one folder."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as kept:
        write_text(os.path.join(folder, 'text.txt'))
        shutil.copy(TORCH, folder)
        with open(os.path.join(folder, 'plan.toml'), 'w', encoding='utf-8') as f: # the plan of a study
            f.write('methods = ["full"]\nbudgets = [32]\n[[text]]\nname = "needle"\nkind = "needles"\ntokens = 300\ncount = 1\n')
        for line in FILES:
            why = run(line, folder, environment)
            if why:
                yield f'what the examples of -h read: {why}'
        for name, command in program.commands.items():
            if name in BEFORE:
                copy_traces(folder, kept)
            for line in BEFORE.get(name, []) + [command['example']]:
                why = run(line, folder, environment)
                if why:
                    yield f'kvfate {name} -h: {why}'
            if name in BEFORE:
                copy_traces(kept, folder)


def prepare(root, folder, kvfate):
    """Makes a tiny model with the name of the default one, and gates for it; returns the
    environment."""
    data = os.path.join(root, 'tests', 'data')
    cache, gates, trace = (os.path.join(folder, x) for x in ('cache', 'gates', 'x.kvf'))
    os.mkdir(cache)
    os.mkdir(gates)
    bin_folder = os.path.dirname(os.path.abspath(kvfate))
    environment = {**os.environ, 'PATH': bin_folder + os.pathsep + os.environ['PATH'],
                   'KVFATE_CACHE': cache, 'KVFATE_GATES': gates, 'KVFATE_PYTHON': sys.executable}

    def make(tool, *args):
        subprocess.run([sys.executable, os.path.join(data, tool), *SHAPE, *args], check=True,
                       stdout=subprocess.DEVNULL)

    make('golden/tools/gen_tiny.py', '--dim', '36', '--ffn', '32', '--type', 'f32', '--context', '8192',
         '-o', os.path.join(cache, MODEL))
    subprocess.run([kvfate, 'run', '--raw', '-p', 'a', '-n', '1', '-q', '-o', trace], env=environment,
                   check=True, capture_output=True)
    table = subprocess.run([kvfate, 'size', '--as', 'sparsity', trace, '-o', '-'], env=environment, check=True,
                           capture_output=True, text=True).stdout
    make('make_gates.py', '--layout', 'rg', '--d-model', '36', '--hidden', '8', '--model-hash',
         re.search('# model_hash: (.*)', table).group(1), '-o',
         os.path.join(gates, 'tiny-trimkv.safetensors'))
    return environment


def check(root, args):
    with tempfile.TemporaryDirectory() as folder:
        environment = prepare(root, folder, os.path.abspath(args.kvfate))
        pages = sorted(glob.glob(os.path.join(root, 'docs/man/kvfate*.1')))
        return list(run_pages(pages, environment)) + list(run_help(describe.of(root, args), environment))


def self_check(root):
    """Runs the examples of a page that needs no model."""
    kvfate = os.path.abspath(sys.argv[sys.argv.index('--kvfate') + 1])
    path = os.path.dirname(kvfate) + os.pathsep + os.environ['PATH']
    return list(run_pages([os.path.join(root, METHODS)], {**os.environ, 'PATH': path}))


METHODS = 'docs/man/kvfate-methods.1'
PLANTS = [lint.Plant(METHODS, 'kvfate methods nosuch: 2',
                     replace=('kvfate methods\n', 'kvfate methods nosuch\n'))]

if __name__ == '__main__':
    try:
        import numpy  # noqa: F401  (the maker of models uses it)
    except ImportError:
        print('NumPy is not installed: the examples are not run')
        sys.exit(77)
    sys.exit(lint.main(check, PLANTS, self_check=self_check, add_arguments=describe.arguments))
