"""What kvfate raises: each exception is one sentence that says what is wrong and where."""
import contextlib
import difflib
import os
import stat


class Error(Exception):
    """The base of all of them."""


class TraceError(Error):
    """A file that is no trace, is damaged, or says what cannot be."""


class MissingValues(TraceError):
    """Values that the trace does not hold: a writer left them out, or they are lost."""


@contextlib.contextmanager
def needing(what, *libraries):
    """Around the import of libraries that not everybody has installed."""
    try:
        yield
    except ImportError as e:
        name = (e.name or "").partition(".")[0]
        if name not in libraries:
            raise
        raise ImportError("%s needs %s, which this Python does not have: pip install %s" % (what, name, name), name=name) from None


def regular(path, kind=Error):
    """Raises `kind` for a pipe or a device: reading one may wait for ever, or have no end.  OSError where nothing is there."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # of a folder the system says what it is
        raise kind("%s: not a regular file; write what it gives to a file first" % os.fspath(path))


def meant(name, names):
    """ (did you mean ...?), where one of the names is near, or nothing."""
    near = difflib.get_close_matches(name, list(names), 1)
    return " (did you mean %s?)" % near[0] if near else ""


def brief(exception):
    """What an exception of another library says, as a part of one sentence."""
    lines = str(exception).splitlines() or [type(exception).__name__]
    return lines[0][:200]


def shown(text):
    """Text for a terminal, without what would move or colour it."""
    return "".join(c if c.isprintable() else "\\x%02x" % ord(c) if ord(c) < 256 else "\\u%04x" % ord(c) for c in text)
