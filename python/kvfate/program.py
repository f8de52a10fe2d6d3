"""The program kvfate, which computes every table and draws every figure.

It is run as a process rather than loaded as a library: so Python has the same numbers, options and sentences as the command
line, nothing in it can end the interpreter, and it may use all cores while Python waits."""
import functools
import json
import os
import shutil
import subprocess
import warnings

from .errors import Error

_OWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "kvfate")
NO_PROGRAM = "the program kvfate is not in this package and not on PATH: install kvfate's wheel, or add the folder of the program to PATH"
PARTIAL = 3  # success, but a trace was not closed or has no steps


class ProgramError(Error):
    """An error of the program.  code: its exit status; 2: the arguments were wrong."""

    def __init__(self, sentence, code):
        super().__init__(sentence)
        self.code = code


def find():
    """Return the path of the program in this package, or of `kvfate` on PATH."""
    path = _OWN if os.access(_OWN, os.X_OK) else shutil.which("kvfate")
    if not path:
        raise Error(NO_PROGRAM)
    return path


def words_of(options):
    """Return options such as {"by": "class", "skip_trivial": True, "horizons": [16, 64]} as arguments of the command line."""
    words = []
    for name, value in options.items():
        name = "--" + name.rstrip("_").replace("_", "-")
        if value is True:
            words.append(name)
        elif value is not None and value is not False:
            value = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value
            words.append("%s=%s" % (name, value))
    return words


def path_of(trace):
    """Return the path of a file or of an open trace."""
    path = getattr(trace, "path", trace)
    if not isinstance(path, (str, bytes, os.PathLike)):
        several = isinstance(trace, (list, tuple, set))
        raise Error("a trace is the name of a file or an open trace, not a %s%s" % (type(trace).__name__, "; give several one after the other, as in *traces" if several else ""))
    return os.fspath(path)


def run(*argv):
    """Run the program and return its standard output.  Messages that are not errors become warnings."""
    done = subprocess.run([find(), *map(str, argv)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line]
    if done.returncode not in (0, PARTIAL):
        raise ProgramError(said[-1] if said else "kvfate ended with status %d" % done.returncode, done.returncode)
    for line in said:
        warnings.warn(line, stacklevel=4)
    return done.stdout


@functools.lru_cache(maxsize=None)
def described():
    """Return the output of `kvfate list all --json`: commands, analyses, figures, probes and methods, with their options."""
    return json.loads(run("list", "all", "--json"))


@functools.lru_cache(maxsize=None)
def command_words(name):
    """Returns the words that call an analysis or a command: ("survival", "--as", "hazard") for "hazard" and for "survival --as hazard".

    Other names are returned as they are, so that the program answers with its own sentence."""
    return next((tuple(c["words"].split()) for c in described()["commands"] if c["name"] == name), tuple(name.split()))
