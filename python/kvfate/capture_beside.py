"""Functions of a library that work as ever while captures look on.  Captures open and close in any order, also of several threads."""
import threading

_LOCK = threading.Lock()
_OPEN = {}  # (the place, a name in it): the place, what was there, and the captures that look on


class Attributes:
    """The attributes of a class as the dict that `join` changes."""

    def __init__(self, of):
        self.get, self._of = (lambda name: getattr(of, name)), of

    def __setitem__(self, name, value):
        setattr(self._of, name, value)


def join(place, name, capture, make):
    """A capture looks on at place[name].  make(captures): what stands there as long as one of them does."""
    with _LOCK:
        if (id(place), name) not in _OPEN:
            captures = []
            _OPEN[id(place), name] = place, place.get(name), captures
            place[name] = make(captures)
        _OPEN[id(place), name][2].append(capture)


def leave(place, name, capture):
    """The last one leaves the place as it was."""
    with _LOCK:
        place, before, captures = _OPEN[id(place), name]
        captures.remove(capture)
        if captures:
            return
        del _OPEN[id(place), name]
        if before is None:
            place.pop(name, None)
        else:
            place[name] = before
