"""What kvfate raises: each exception is one sentence that says what is wrong and where."""


class Error(Exception):
    """The base of all of them."""


class TraceError(Error):
    """A file that is no trace, is damaged, or says what cannot be."""


class MissingValues(TraceError):
    """Values that the trace does not hold: a writer left them out, or they are lost."""


def shown(text):
    """Text for a terminal, without what would move or colour it."""
    return "".join(c if c.isprintable() else "\\x%02x" % ord(c) if ord(c) < 256 else "\\u%04x" % ord(c) for c in text)
