"""`python -m kvfate NAME ...`, which is also the command `kvfate` of the wheel: commands of this package (commands.py) run here, all others in
the program, which knows these by the same table and shows the help of all."""
import importlib
import os
import signal
import sys

from . import common, program
from .commands import COMMANDS, Usage, parsed
from .errors import Error, shown

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
NEEDED = {"numpy": "NumPy", "scipy": "SciPy", "pyarrow": "pyarrow", "torch": "PyTorch", "pandas": "pandas", "transformers": "transformers"}


def _run(command, words):
    request, operands = parsed(command, words)
    try:
        with common.applied(command, request, operands):
            return _call(command, request, operands)
    except BaseException:
        common.loud()
        raise


def _call(command, request, operands):
    try:
        module = importlib.import_module("." + command.module, __package__)
        status = module.run(request, operands)
    except ImportError as e:
        if e.name not in NEEDED:
            raise
        raise Error("this needs %s, which this Python (%s) does not have: pip install %s, or set KVFATE_PYTHON to one that has it" % (
            NEEDED[e.name], sys.executable, e.name)) from None
    sys.stdout.flush()
    return status or OK


def _sentence(e):
    """Returns what a user is told of an exception."""
    if isinstance(e, KeyboardInterrupt):
        return "interrupted"
    if isinstance(e, MemoryError):
        return "out of memory"
    if isinstance(e, UnicodeEncodeError):
        return "the standard output cannot write %r in its encoding %s; use -o FILE, or a locale with UTF-8" % (e.object[e.start:e.end], e.encoding)
    if isinstance(e, OSError) and not isinstance(e, Error) and e.strerror:
        return "%s: %s" % (e.filename if isinstance(e.filename, str) else "standard output", e.strerror)
    return str(e)


def _find(words):
    """(command of the package, its arguments), or (None, []). The program passes "trace import" as one word."""
    two = COMMANDS.get(" ".join(words[:2])) if len(words) > 1 else None
    if two and two.listed:
        return two, words[2:]
    return (COMMANDS.get(words[0]), words[1:]) if words else (None, [])


def main(words=None):
    """Runs a command line without the program's name and ends with its exit status."""
    words = sys.argv[1:] if words is None else words
    command, arguments = _find(words)
    options = words[:words.index("--")] if "--" in words else words
    try:
        if command is None or "-h" in options or "--help" in options:
            path = program.find()
            os.execv(path, ["kvfate", *words])
        sys.exit(_run(command, arguments))
    except BrokenPipeError:  # the reader of a pipe has ended: so does this program, as others do, without a word
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)
    except (Usage, Error, OSError, MemoryError, KeyboardInterrupt, UnicodeEncodeError) as e:
        print("kvfate%s: %s" % (" " + command.name if command else "", shown(_sentence(e))), file=sys.stderr)
        sys.exit(INTERRUPTED if isinstance(e, KeyboardInterrupt) else USAGE if isinstance(e, Usage) else FAILED)


if __name__ == "__main__":
    main()
