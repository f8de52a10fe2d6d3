"""What the tests of this suite have in common: the program under test, which is the first argument of each of
them, a count of failures, and the checks of what it refuses and says."""
import os
import subprocess
import sys

import numpy as np

kvfate = os.path.abspath(sys.argv[1])
failures = 0


def check(name, ok, *details):
    global failures
    if not ok:
        failures += 1
        print("FAILED", name, *details)


def refused(name, code, argv, *words):
    """One line on the standard error that has the words, nothing on the standard output."""
    r = subprocess.run([kvfate, *map(str, argv)], capture_output=True, text=True)
    ok = r.returncode == code and r.stderr.count("\n") == 1 and not r.stdout
    check(name, ok and all(w in r.stderr for w in words), r.returncode, r.stderr, r.stdout[:200])


def said(*argv):
    """The summary for people."""
    r = subprocess.run([kvfate, *argv], capture_output=True, text=True)
    check("describes " + " ".join(argv), r.returncode == 0 and not r.stderr, r)
    return r.stdout


def real(v):
    return np.array([np.nan if x is None else x for x in v], float)


def finish():
    print(f"{failures} failures")
    sys.exit(failures != 0)
