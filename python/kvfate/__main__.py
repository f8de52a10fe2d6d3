"""`python -m kvfate NAME ...`, which is also the command `kvfate` of the wheel: commands of this package (commands.py) run here, all others in
the program, which knows these by the same table and shows the help of all."""
import importlib
import os
import sys

from . import program
from .commands import COMMANDS, Usage, parsed
from .errors import Error, shown

OK, FAILED, USAGE = 0, 1, 2
NEEDED = {"numpy": "NumPy", "scipy": "SciPy", "pyarrow": "pyarrow", "torch": "PyTorch", "pandas": "pandas", "transformers": "transformers"}


def _run(command, words):
    request, operands = parsed(command, words)
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


def main(words=None):
    """Runs a command line without the program's name and ends with its exit status."""
    words = sys.argv[1:] if words is None else words
    command = COMMANDS.get(words[0]) if words else None
    options = words[:words.index("--")] if "--" in words else words
    try:
        if command is None or "-h" in options or "--help" in options:
            path = program.find()
            os.execv(path, ["kvfate", *words])
        sys.exit(_run(command, words[1:]))
    except (Usage, Error, OSError, MemoryError, KeyboardInterrupt) as e:
        said = "interrupted" if isinstance(e, KeyboardInterrupt) else "out of memory" if isinstance(e, MemoryError) else e
        print("kvfate%s: %s" % (" " + command.name if command else "", shown(str(said))), file=sys.stderr)
        sys.exit(USAGE if isinstance(e, Usage) else FAILED)


if __name__ == "__main__":
    main()
