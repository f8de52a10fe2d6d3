"""What the tests of this suite have in common: a count of failures and the last line."""
import sys

failures = 0


def check(name, ok, *details):
    global failures
    if not ok:
        failures += 1
        print("FAILED:", name, *details)


def expect(ok, what):
    check(what, ok)


def finish():
    print(f"{failures} failures")
    sys.exit(failures != 0)
