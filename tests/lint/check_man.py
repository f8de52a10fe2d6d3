#!/usr/bin/env python3
"""mandoc has nothing to say about any manual page.  Skipped (77) without mandoc."""
import glob
import os
import shutil
import subprocess
import sys

import lint


def check(root):
    pages = sorted(glob.glob(os.path.join(root, 'docs/man/*.[15]')))
    done = subprocess.run(['mandoc', '-T', 'lint'] + [os.path.basename(p) for p in pages],
                          cwd=os.path.join(root, 'docs/man'), capture_output=True, text=True)
    reports = [line.replace('mandoc: ', 'docs/man/', 1) for line in done.stdout.splitlines()]
    # what mandoc says of the machine's own pages is not about ours
    noise = [line for line in done.stderr.splitlines() if 'outdated mandoc.db' not in line]
    return reports + noise + ([] if pages else ['docs/man: no pages'])


PLANTS = [
    lint.Plant('docs/man/kvfate.1', 'unknown', append='.Zz nothing\n'),
    lint.Plant('docs/man/kvfate-run.1', 'Xr kvfate-none 1', append='.Pp\n.Xr kvfate-none 1\n'),
    lint.Plant('docs/man/kvfate-info.1', 'ERROR', append='.El\n'),
]

if __name__ == '__main__':
    if not shutil.which('mandoc'):
        print('mandoc is not installed: manual pages are not checked')
        sys.exit(77)
    sys.exit(lint.main(check, PLANTS))
