#!/usr/bin/env python3
"""usage: test_capture_newest.py KVFATE LIBKVFTRACE SOURCE_ROOT FOLDER_OF_TINY_MODELS

Runs the tests of capture with the newest release of transformers, which pip installs into a
separate environment on top of the torch in KVFATE_TORCH_PYTHON. Skips without such a Python, and if
pip reaches no index."""
import os
import re
import subprocess
import sys
import tempfile

KVFATE, LIBRARY, ROOT, TINY = map(os.path.abspath, sys.argv[1:5])
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "tests")]
from check import check, finish  # noqa: E402
from kvfate.capture_names import TESTED  # noqa: E402

# pip's messages about a missing network; any other failure of pip is a failure of this test.
UNREACHED = re.compile("NewConnectionError|ConnectTimeoutError|Connection refused|name resolution|ProxyError|Network is unreachable")


def skip(why):
    print("SKIP: the newest transformers:", why)
    sys.exit(77)


def main():
    base = os.environ.get("KVFATE_TORCH_PYTHON")
    if not base:
        skip("KVFATE_TORCH_PYTHON names no Python with torch")
    with tempfile.TemporaryDirectory(prefix="kvfate-newest-") as folder:
        subprocess.run([base, "-m", "venv", folder], check=True)
        python = os.path.join(folder, "bin", "python")
        paths = [subprocess.run([p, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True, check=True).stdout.strip() for p in (base, python)]
        with open(os.path.join(paths[1], "base.pth"), "w") as f:  # other packages come from that Python
            f.write(paths[0] + "\n")
        r = subprocess.run([python, "-m", "pip", "install", "-q", "--upgrade", "--ignore-installed", "--no-deps", "transformers"], capture_output=True, text=True)
        if r.returncode and UNREACHED.search(r.stderr):
            skip("pip does not reach an index: %s" % r.stderr.strip().splitlines()[-1])
        if not check("pip installs transformers", r.returncode == 0, r.stderr):
            finish()
        r = subprocess.run([python, "-m", "pip", "install", "-q", "transformers"], capture_output=True, text=True)  # and dependencies
        said = subprocess.run([python, "-c", "import transformers, torch; print(transformers.__version__)"], capture_output=True, text=True)
        if not check("transformers and torch are loaded", said.returncode == 0, r.stderr, said.stderr):
            finish()
        print("transformers %s; kvfate.capture names %s" % (said.stdout.strip(), TESTED))
        for name in ("torch", "paths", "families"):
            r = subprocess.run([sys.executable, os.path.join(ROOT, "tests/python/test_capture_%s.py" % name), KVFATE, LIBRARY, ROOT, TINY], capture_output=True, text=True,
                               env={**os.environ, "KVFATE_TORCH_PYTHON": python})
            check("test_capture_%s with transformers %s" % (name, said.stdout.strip()), r.returncode == 0, r.stdout[-3000:], r.stderr[-3000:])
    finish()


if __name__ == "__main__":
    main()
