"""The options -q, -v, -o and --overwrite of commands of this package that do not declare them, as cli/common.c handles them in the program."""
import contextlib
import io
import os
import resource
import sys
import time

from . import files
from .commands import Usage, declares


def loud():
    """Lets failures reach the standard error again after -q."""
    sys.stderr = sys.__stderr__


@contextlib.contextmanager
def _output(path, operands):
    """Makes the standard output a file, which replaces an older one when it is complete."""
    if any(os.path.exists(path) and os.path.exists(x) and os.path.samefile(path, x) for x in operands):
        raise Usage("-o %s would overwrite the input" % path)
    with files.replacing(path, text=True) as f, contextlib.redirect_stdout(f):
        yield


@contextlib.contextmanager
def applied(command, request, operands):
    """Applies the options while a command runs."""
    start = time.monotonic()
    own = {name: not declares(command, name) and getattr(request, name) for name in ("quiet", "verbose", "output")}
    if own["quiet"] and own["verbose"]:
        raise Usage("--quiet and --verbose exclude each other; give one")
    with contextlib.ExitStack() as stack:
        if own["quiet"]:
            sys.stderr = io.StringIO()
        if own["output"] and own["output"] != "-":
            stack.enter_context(_output(own["output"], operands))
        yield
    loud()
    if own["verbose"]:
        peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        print("kvfate %s: %.2f s, %.1f MiB of memory at the peak" % (command.name, time.monotonic() - start, peak / 1024), file=sys.stderr)
