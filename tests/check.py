"""What the tests in Python share: a count of cases and failures, the line at the end, and how a run of the program is judged.

A test puts the folder above its own at the end of sys.path and imports what it uses.  The program under test is the first argument of
most of them."""
import os
import pty
import subprocess
import sys

kvfate = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
cases = failures = 0


def check(name, ok, *details):
    """Counts a case; a failure is printed with its details.  Whether it was none."""
    global cases, failures
    cases += 1
    if not ok:
        failures += 1
        print("FAILED:", name, *details, flush=True)
    return bool(ok)


def expect(ok, *what):
    return check(what[0], ok, *what[1:])


def finish(left_out=""):
    """Ends the test.  left_out: what this machine lacks for the rest of it, in one line; without a failure the test then counts as skipped."""
    print(f"{cases} checks, {failures} failures")
    if left_out:
        print("skipped:", left_out)
    sys.exit(1 if failures else 77 if left_out else 0)


NO_TERMINAL = "this machine has no pseudo-terminals (/dev/pts), which progress is shown on"


def open_terminal():
    """The two ends of a new pseudo-terminal, or None if this machine has none."""
    try:
        return pty.openpty()
    except OSError:
        return None


def refused(name, code, argv, *words):
    """One line on the standard error that has the words, nothing on the standard output."""
    r = subprocess.run([kvfate, *map(str, argv)], capture_output=True, text=True)
    ok = r.returncode == code and r.stderr.count("\n") == 1 and not r.stdout
    check(name, ok and all(w in r.stderr for w in words), r.returncode, r.stderr, r.stdout[:200])


def ended_well(r):
    """0 without a word; of traces without steps a line each that says so, and 3."""
    err = r.stderr.decode() if isinstance(r.stderr, bytes) else r.stderr
    if not err:
        return r.returncode == 0
    return r.returncode == 3 and all(line.endswith("holds no steps") for line in err.splitlines())


def said(*argv):
    """The summary for people."""
    r = subprocess.run([kvfate, *map(str, argv)], capture_output=True, text=True)
    check("describes " + " ".join(map(str, argv)), ended_well(r), r)
    return r.stdout


def real(values):
    """Numbers of a table as JSON gives them: null is NaN."""
    import numpy as np  # most tests have no need for it
    return np.array([np.nan if x is None else x for x in values], float)
