"""Shared by the tests in Python: a count of cases and failures, the line at the end, and checks of
a run of the program.

A test appends its parent folder to sys.path and imports the modules that it needs. For most tests,
the first argument is the program under test."""
import functools
import json
import os
import pty
import subprocess
import sys

os.environ.setdefault("KVFATE_PYTHON", sys.executable)  # for commands that run Python: the Python with NumPy
kvfate = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
cases = failures = 0


def check(name, ok, *details):
    """Counts a case. A failure is printed with its details. Returns True if it is no failure."""
    global cases, failures
    cases += 1
    if not ok:
        failures += 1
        print("FAILED:", name, *details, flush=True)
    return bool(ok)


def expect(ok, *what):
    return check(what[0], ok, *what[1:])


def finish(left_out=""):
    """Ends the test. left_out: what this machine lacks for the rest of the test, in one line.
    Without a failure, the test then counts as skipped."""
    print(f"{cases} checks, {failures} failures")
    if left_out:
        print("skipped:", left_out)
    sys.exit(1 if failures else 77 if left_out else 0)


NO_TERMINAL = "this machine has no pseudo-terminals (/dev/pts), which progress is shown on"


def open_terminal():
    """Returns both ends of a new pseudo-terminal, or None if this machine has none."""
    try:
        return pty.openpty()
    except OSError:
        return None


def refused(name, code, argv, *words):
    """Checks for one line on standard error with the words, and an empty standard output."""
    r = subprocess.run([kvfate, *map(str, argv)], capture_output=True, text=True)
    ok = r.returncode == code and r.stderr.count("\n") == 1 and not r.stdout
    check(name, ok and all(w in r.stderr for w in words), r.returncode, r.stderr, r.stdout[:200])


def ended_well(r):
    """Checks for status 0 and no message. For traces without steps, checks for one line each that
    reports it, and status 3."""
    err = r.stderr.decode() if isinstance(r.stderr, bytes) else r.stderr
    if not err:
        return r.returncode == 0
    return r.returncode == 3 and all(line.endswith("has no steps") for line in err.splitlines())


def said(*argv):
    """Returns the text summary."""
    r = subprocess.run([kvfate, *map(str, argv)], capture_output=True, text=True)
    check("describes " + " ".join(map(str, argv)), ended_well(r), r)
    return r.stdout


@functools.lru_cache(maxsize=None)
def _declared(program):
    return json.loads(subprocess.run([program, "list", "all", "--json"], capture_output=True, check=True).stdout)["commands"]


def words_of(name, program=None):
    """Returns the words that call a command or an analysis, for its name in the lists: ["size", "--as", "sparsity"]."""
    return next(c["words"] for c in _declared(program or kvfate) if c["name"] == name).split()


def real(values):
    """Converts numbers of a table in JSON; null becomes NaN."""
    import numpy as np  # most tests do not need it
    return np.array([np.nan if x is None else x for x in values], float)
