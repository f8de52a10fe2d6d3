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
PARTIAL = 3  # it succeeded, and a trace was not closed or holds no steps


class ProgramError(Error):
    """The program's own sentence; code: its exit status, 2 where the call was wrong."""

    def __init__(self, sentence, code):
        super().__init__(sentence)
        self.code = code


def find():
    """The program of this package, or else the one on PATH."""
    path = _OWN if os.access(_OWN, os.X_OK) else shutil.which("kvfate")
    if not path:
        raise Error(NO_PROGRAM)
    return path


def words_of(options):
    """{"by": "class", "skip_trivial": True, "horizons": [16, 64]} as arguments of the command line."""
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
    """The name of a file, from a name or an open trace."""
    path = getattr(trace, "path", trace)
    if not isinstance(path, (str, bytes, os.PathLike)):
        several = isinstance(trace, (list, tuple, set))
        raise Error("a trace is the name of a file or an open trace, not a %s%s" % (type(trace).__name__, "; give several one after the other, as in *traces" if several else ""))
    return os.fspath(path)


def run(*argv):
    """Runs the program; its standard output.  Other sentences than errors become warnings."""
    done = subprocess.run([find(), *map(str, argv)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line]
    if done.returncode not in (0, PARTIAL):
        raise ProgramError(said[-1] if said else "kvfate ended with status %d" % done.returncode, done.returncode)
    for line in said:
        warnings.warn(line, stacklevel=4)
    return done.stdout


@functools.lru_cache(maxsize=None)
def described():
    """What `kvfate list all --json` tells: commands, analyses, figures, probes and methods, with their options."""
    return json.loads(run("list", "all", "--json"))


@functools.lru_cache(maxsize=None)
def command_words(name):
    """Returns the words that call an analysis or a command: ("survival", "--as", "hazard") for "hazard" and for "survival --as hazard".

    Other names are returned as they are, so that the program answers with its own sentence."""
    return next((tuple(c["words"].split()) for c in described()["commands"] if c["name"] == name), tuple(name.split()))
