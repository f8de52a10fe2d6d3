"""Exceptions of kvfate.  A message is one sentence with the fault and its place."""
import contextlib
import difflib
import os
import stat


class Error(Exception):
    """Base class of the exceptions of kvfate."""


class TraceError(Error):
    """A file is not a trace, is damaged, or has impossible values."""


class MissingValues(TraceError):
    """The trace lacks these values: the writer did not record them, or they are damaged."""


@contextlib.contextmanager
def needing(what, *libraries):
    """Context for the import of optional libraries: adds the pip command to the ImportError."""
    try:
        yield
    except ImportError as e:
        name = (e.name or "").partition(".")[0]
        if name not in libraries:
            raise
        raise ImportError("%s needs %s, which this Python does not have: pip install %s" % (what, name, name), name=name) from None


def regular(path, kind=Error):
    """Raises `kind` if the path is a pipe or a device, which may block or never end; OSError if it does not exist."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # opening a folder fails with a clear message anyway
        raise kind("%s: not a regular file; save its content to a file first" % os.fspath(path))


def meant(name, names):
    """Returns " (did you mean ...?)" for the closest name, or an empty text."""
    near = difflib.get_close_matches(name, list(names), 1)
    return " (did you mean %s?)" % near[0] if near else ""


def brief(exception):
    """Returns the first line of the message of an exception, at most 200 characters."""
    lines = str(exception).splitlines() or [type(exception).__name__]
    return lines[0][:200]


def shown(text):
    """Returns the text with control characters escaped, for a terminal."""
    return "".join(c if c.isprintable() else "\\x%02x" % ord(c) if ord(c) < 256 else "\\u%04x" % ord(c) for c in text)
