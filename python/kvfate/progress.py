"""The line of progress of the commands of this package: that of base/progress.c, where it is longer than a moment.

A command says `with line("export"):`, and what it calls says how much there is and what is done.  Without a line, as for who calls the
functions of this package, and where the standard error is no terminal, nothing is shown."""
import contextlib
import os
import sys
import time

MOMENT, BETWEEN, BAR = 0.5, 0.1, 24  # seconds before the line comes and between two drawings; columns
_shown = None


class _Line:
    def __init__(self, label):
        self.label, self.unit, self.total, self.done = label, "", 0, 0
        self.since = self.drawn = time.monotonic()
        self.begun = False

    def draw(self):
        now = time.monotonic()
        if now - self.drawn < BETWEEN or now - self.since < MOMENT:
            return
        self.drawn, self.begun = now, True
        done = min(self.done, self.total)
        rate = done / (now - self.since)
        numbers = "%d/%d  %.0f %s/s" % (done, self.total, rate, self.unit)
        if rate > 0 and done < self.total:
            numbers += "  ETA %d:%02d" % divmod(int((self.total - done) / rate + 0.5), 60)
        text = "%-10s " % self.label
        try:
            room = os.get_terminal_size(sys.stderr.fileno()).columns - 1
        except OSError:
            room = 0
        room = room if room > 0 else 256
        width = min(BAR, room - len(text) - len("[] ") - len(numbers))
        if width >= 4 and self.total:
            text += "[%s] " % ("#" * int(width * done / self.total)).ljust(width, ".")
        sys.stderr.write("\r%s\x1b[K" % (text + numbers)[:room])
        sys.stderr.flush()


@contextlib.contextmanager
def line(label):
    """Shows what is told within, and takes the line away."""
    global _shown
    _shown = _Line(label) if sys.stderr is not None and sys.stderr.isatty() else None
    try:
        yield
    finally:
        if _shown and _shown.begun:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        _shown = None


def expect(total, unit):
    """So much there is to do from now on."""
    if _shown:
        _shown.total, _shown.unit, _shown.done = total, unit, 0
        _shown.draw()


def add(done):
    if _shown:
        _shown.done += done
        _shown.draw()
