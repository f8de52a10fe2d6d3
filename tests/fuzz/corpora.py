#!/usr/bin/env python3
"""The corpora of the fuzz targets, one archive each: tests/fuzz/corpus/TARGET.zip.

usage: corpora.py unpack OUT [TARGET.zip...]     files into OUT/TARGET/, for fuzzers and replays (done by
                                                 the build)
       corpora.py pack TARGET FILE...            adds files to an archive, such as an input that a fuzzer
                                                 found
"""
import os
import shutil
import sys
import zipfile
from pathlib import Path

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def archive(target):
    return os.path.join(FOLDER, target + ".zip")


def read(target):
    """Returns {name: bytes} of the stored inputs."""
    if not os.path.exists(archive(target)):
        return {}
    with zipfile.ZipFile(archive(target)) as z:
        return {name: z.read(name) for name in z.namelist()}


def write(target, files):
    """Writes the archive in order of names and without times, so that equal files give equal
    bytes."""
    with zipfile.ZipFile(archive(target), "w") as z:
        for name in sorted(files):
            z.writestr(zipfile.ZipInfo(name), files[name], zipfile.ZIP_DEFLATED)


def unpack(out, paths):
    for path in paths or [archive(n[:-4]) for n in sorted(os.listdir(FOLDER)) if n.endswith(".zip")]:
        target = os.path.splitext(os.path.basename(path))[0]
        folder = os.path.join(out, target)
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        for name, data in read(target).items():
            Path(os.path.join(folder, os.path.basename(name))).write_bytes(data)


def pack(target, paths):
    files = read(target)
    for path in paths:
        files[os.path.basename(path)] = Path(path).read_bytes()
    write(target, files)


def main():
    if len(sys.argv) >= 3 and sys.argv[1] == "unpack":
        unpack(sys.argv[2], sys.argv[3:])
    elif len(sys.argv) >= 4 and sys.argv[1] == "pack":
        pack(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
