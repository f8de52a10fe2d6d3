#!/usr/bin/env python3
"""Checks that each header compiles without other includes (and twice) as C11. Installed headers are
also compiled with a second compiler and as C++. With KVFATE_TESTS=long, the second compiler reads
all headers."""
import os
import shutil
import subprocess
import sys

import lint

C_COMPILERS, CXX_COMPILERS = ('gcc', 'clang'), ('g++', 'clang++')
WARNINGS = ['-Wall', '-Wextra', '-Wpedantic', '-Wundef', '-Werror']
C_FLAGS = ['-xc', '-std=c11', '-Wmissing-prototypes', '-Wstrict-prototypes',
           '-Wshadow', '-Wvla']
CXX_FLAGS = ['-xc++', '-std=c++11']
# Headers with parameters that the including file must define first, or for one instruction set.
TEMPLATES = ('engine/kernels/arm/vec_neon.h', 'engine/kernels/vector/matmul_bytes.h', 'engine/kernels/vector/matmul_words.h',
             'engine/kernels/vector/page_weights.h', 'engine/kernels/vector/row_bins.h',
             'engine/kernels/vector/row_cuts.h', 'engine/kernels/vector/vec.h',
             'engine/kernels/x86/sort_avx512.h', 'engine/kernels/x86/span_avx512.h',
             'engine/kernels/x86/sums_avx2.h',
             'engine/kernels/x86/vec_avx2.h', 'engine/kernels/x86/vec_avx512.h',
             'engine/kernels/x86/vec_x86.h',
             'engine/kernels/window_rows.h', 'engine/kernels/choice_rows.h')
INCLUDES = ['.', 'base/include', 'libtrace/include']


def compile_alone(root, compiler, flags, header):
    """Returns the first line of the compiler's messages about a file that only includes the
    header."""
    name = header.split('/include/')[-1]
    line = f'#include <{name}>\n' if name != header else f'#include "{name}"\n'
    command = [compiler] + flags + WARNINGS + ['-D_GNU_SOURCE', '-fsyntax-only']
    command += [f'-I{os.path.join(root, i)}' for i in INCLUDES] + ['-']
    done = subprocess.run(command, input=line * 2 + 'typedef int not_empty;\n', capture_output=True, text=True,
                          env={**os.environ, 'LC_ALL': 'C'})
    if done.returncode == 0:
        return None
    says = [s for s in done.stderr.splitlines() if 'error' in s] or ['failed']
    return says[0].replace(root + '/', '')


def check(root, only=None):
    reports = []
    for header in lint.tree(root, '.h', lint.ROOMS):
        if header in TEMPLATES or (only and header not in only):
            continue
        both = '/include/' in header or os.environ.get('KVFATE_TESTS') == 'long'
        runs = [(c, C_FLAGS) for c in (C_COMPILERS if both else C_COMPILERS[:1])]
        if '/include/' in header:
            runs += [(c, CXX_FLAGS) for c in CXX_COMPILERS]
        for compiler, flags in runs:
            error = shutil.which(compiler) and compile_alone(root, compiler, flags, header)
            if error:
                reports.append(f'{header}:1: {compiler}: {error}')
    return reports


PLANTS = [
    lint.Plant('base/alone.h', 'size_t', text='void f(size_t n);\n'),
    lint.Plant('base/guard.h', 'redefinition', text='struct s {\n    int a;\n};\n'),
    lint.Plant('cli/prototype.h', 'prototype', text='int f();\n'),
    lint.Plant('libtrace/include/kvf/plus.h', '++', text='int f(int class);\n'),
    lint.Plant('base/include/kvf/err.h', 'error',
               replace=('struct kvf_diag {', 'kvf_oops struct kvf_diag {')),
]


def check_planted(root):
    return check(root, {plant.path for plant in PLANTS})


if __name__ == '__main__':
    sys.exit(lint.main(check, PLANTS, self_check=check_planted))
