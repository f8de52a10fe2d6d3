#!/usr/bin/env python3
"""Checks that Python code for users writes files only through python/kvfate/files.py.

It checks python/, docs/, examples/ and gates/. It does not check tests, bench and tools, which run
in a checkout, and build scripts in cli, render and engine. A library that writes may get a file of
kvfate.files, or one in memory, under a plain name."""
import ast
import sys

import lint

FOLDERS = ['python', 'docs', 'examples', 'gates']
ALLOWED = {
    'python/kvfate/files.py': 'the one way',
    'python/kvfate/import_files.py': 'unpacks archives into a private folder',
    'docs/site/build.py': 'prepares pages in a private folder',
    'python/wheel_backend.py': 'writes where pip tells it to',
}
FLAGS = {'O_WRONLY', 'O_RDWR', 'O_CREAT', 'O_TRUNC', 'O_APPEND', 'O_TMPFILE'}
# Functions of modules that create, move or change files.
CALLS = {'os': {'rename', 'renames', 'replace', 'link', 'truncate', 'ftruncate', 'mkfifo', 'mknod', 'fdopen'},
         'shutil': {'copy', 'copy2', 'copyfile', 'copytree', 'move', 'make_archive', 'unpack_archive'},
         'tempfile': {'mkstemp', 'mktemp', 'mkdtemp', 'NamedTemporaryFile', 'TemporaryFile', 'SpooledTemporaryFile'}}
METHODS = {'write_text', 'write_bytes', 'touch', 'hardlink_to', 'extractall', 'extract'}
# Functions that write to a file or to a file name, with the number of that argument.
SINKS = {'ZipFile': 0, 'TarFile': 0, 'save': 0, 'savez': 0, 'savez_compressed': 0, 'savetxt': 0, 'tofile': 0, 'savefig': 0, 'imsave': 0,
         'to_csv': 0, 'to_parquet': 0, 'to_feather': 0, 'to_json': 0, 'write_table': 1, 'write_feather': 1, 'write_csv': 1, 'save_file': 1}
OWN = {'save'}  # the project's figures also have methods of this name: only calls of np.save count


def name_of(node):
    """Returns the last name of `a.b.c`, and the name before it."""
    if isinstance(node, ast.Attribute):
        return node.attr, node.value.id if isinstance(node.value, ast.Name) else ''
    return (node.id, '') if isinstance(node, ast.Name) else ('', '')


def given(call, at, word):
    """Returns an argument by its position or its name."""
    named = [k.value for k in call.keywords if k.arg == word]
    return named[0] if named else call.args[at] if len(call.args) > at else None


def files_of(tree):
    """Returns the names of variables with files of kvfate.files or in memory."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name) and isinstance(node.context_expr, ast.Call) \
                and name_of(node.context_expr.func)[1] == 'files':
            found.add(node.optional_vars.id)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and name_of(node.value.func)[0] in ('BytesIO', 'StringIO'):
            found |= {t.id for t in node.targets if isinstance(t, ast.Name)}
        if isinstance(node, ast.FunctionDef):  # the caller passes a file
            found |= {a.arg for a in node.args.args if a.arg in ("f", "file")}
    return found


def opens(call, name, module):
    """Returns why a call of open is forbidden, or None."""
    if name != 'open' or module not in ('', 'io', 'codecs', 'gzip', 'bz2', 'lzma'):
        return None
    if isinstance(call.func, ast.Attribute) and module == '':
        return None  # of an object, such as an archive
    mode = given(call, 1, 'mode')
    if mode is None or isinstance(mode, ast.Constant) and isinstance(mode.value, str) and not set(mode.value) & set('wax+'):
        return None
    return 'open for writing'


def writes(call, known):
    """Returns why a call is forbidden, or None."""
    name, module = name_of(call.func)
    if opens(call, name, module):
        return opens(call, name, module)
    if name in CALLS.get(module, ()):
        return f'{module}.{name}'
    if name in METHODS and isinstance(call.func, ast.Attribute) and module != 'files':
        return name
    if name not in SINKS or (name in OWN and module not in ('np', 'numpy')):
        return None
    if name == 'ZipFile' and (given(call, 1, 'mode') is None or getattr(given(call, 1, 'mode'), 'value', '') == 'r'):
        return None
    target = given(call, SINKS[name], 'where')
    return None if isinstance(target, ast.Name) and target.id in known else name


def check(root, only=None):
    reports = []
    for path in lint.tree(root, ('.py',), FOLDERS):
        if path in ALLOWED or (only and path not in only):
            continue
        tree = ast.parse(lint.read(root, path))
        known = files_of(tree)
        for node in ast.walk(tree):
            what = writes(node, known) if isinstance(node, ast.Call) else None
            if isinstance(node, ast.Attribute) and node.attr in FLAGS:
                what = node.attr
            if isinstance(node, ast.ImportFrom) and {a.name for a in node.names} & CALLS.get(node.module, set()):
                what = f'a function of {node.module} that writes, without the name of its module,'
            if what:
                reports.append(f'{path}:{node.lineno}: {what} is for python/kvfate/files.py')
    return reports


def code(line, before=''):
    return 'import os\nfrom kvfate import files\n' + before + f'\n\ndef g(path, mode, data):\n    {line}\n'


PLANTS = [lint.Plant(f'{folder}/planted.py', what, text=code(line)) for folder, what, line in [
    ('python/kvfate', 'open for writing', 'open(path, "w").write(data)'),
    ('python/kvfate', 'open for writing', 'open(path, mode="ab")'),
    ('python/kvfate', 'open for writing', 'open(path, mode)'),
    ('examples', 'open for writing', 'open(path, "r+b")'),
    ('docs', 'open for writing', 'io.open(path, "x")'),
    ('gates', 'os.replace is for', 'os.replace(path + ".part", path)'),
    ('gates', 'os.rename is for', 'os.rename(path + ".part", path)'),
    ('python/kvfate/adapters', 'O_CREAT is for', 'os.open(path, os.O_CREAT)'),
    ('python/kvfate', 'shutil.copyfile is for', 'shutil.copyfile(path, data)'),
    ('python/kvfate', 'tempfile.mkstemp is for', 'tempfile.mkstemp()'),
    ('python/kvfate', 'write_text is for', 'pathlib.Path(path).write_text(data)'),
    ('examples', 'savez is for', 'np.savez(path, data)'),
    ('examples', 'save is for', 'np.save(path, data)'),
    ('examples', 'tofile is for', 'data.tofile(path)'),
    ('python/kvfate', 'ZipFile is for', 'zipfile.ZipFile(path, "w")'),
    ('python/kvfate', 'write_table is for', 'parquet.write_table(data, path)'),
    ('python/kvfate', 'savefig is for', 'figure.savefig(path)')]]
PLANTS += [lint.Plant('python/kvfate/tables.py', 'open for writing', append='\n\ndef planted(path):\n    open(path, "wb").close()\n'),
           lint.Plant('python/kvfate/planted.py', 'a function of os that writes', text='from os import replace\n')]
CLEAN = {'python/kvfate/clean.py': code('files.write(path, data)\n    with files.replacing(path) as f:\n        np.save(f, data)\n'
                                        '    with open(path, "rb") as f:\n        f.read()\n    zipfile.ZipFile(path).read("x")\n'
                                        '    figure.save(path)\n    text.replace("a", "b")'),
         'tests/clean.py': code('open(path, "w")'), 'bench/clean.py': code('os.replace(path, data)')}


def check_planted(root):
    return check(root, {plant.path for plant in PLANTS} | set(CLEAN))


if __name__ == '__main__':
    sys.exit(lint.main(check, PLANTS, CLEAN, check_planted))
