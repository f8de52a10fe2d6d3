"""Budgets as the program reads them: a number of entries, or a fraction of a prompt such as "25%"."""
import re
from fractions import Fraction

MOST = 1 << 24
PERCENT = re.compile(r"(\d{0,3})(?:\.(\d{0,6}))?%")


def percent(text):
    """A fraction such as "25%" as the program writes it; None if it is no fraction above 0 % and at most 100 %."""
    found = PERCENT.fullmatch(text)
    if not found:
        return None
    whole, places = int(found[1] or 0), (found[2] or "").rstrip("0")
    part = whole * 10**6 + int(places.ljust(6, "0"))
    return "%d%s%%" % (whole, "." + places if places else "") if 0 < part <= 10**8 else None


def entries(budget, tokens):
    """The entries of a budget for a prompt of so many tokens: a fraction is rounded down, and is at least 1."""
    return max(1, int(Fraction(budget[:-1]) * tokens / 100)) if isinstance(budget, str) else budget
