"""Traces of known laws: each token of a head is selected until an age that is drawn from the law, within the text."""
import numpy as np

from maker import AGE, SNAPSHOT, Column, make

LAWS = ("geometric", "weibull", "mixture")
RETENTION, SCALE, SHAPE, PARTS = .985, .12, .55, ((.6, .9), (.4, .997))


def share(law, n):
    """Return P(last selection at age n or later), n >= 0 or an array."""
    n = np.asarray(n, float)
    if law == "geometric":
        return RETENTION**n
    if law == "weibull":
        return np.exp(-SCALE * n**SHAPE)
    return sum(w * q**n for w, q in PARTS)


def draw(rng, law, shape):
    """Return ages by the inverse of the law: the largest n with share(n) > u."""
    u = rng.random(shape)
    if law == "geometric":
        x = np.log(u) / np.log(RETENTION)
    elif law == "weibull":
        x = (-np.log(u) / SCALE)**(1 / SHAPE)
    else:
        part = rng.random(shape) < PARTS[0][0]
        x = np.log(u) / np.log(np.where(part, PARTS[0][1], PARTS[1][1]))
    return np.minimum(np.floor(x), 1e6).astype(np.int64)


def write(write_kvf, path, last, first=None):
    """Write a trace; last [heads, T]: ages of the last selection in an endless text, cut at the end of this one; first:
    of the first query without one.
    """
    heads, T = last.shape
    follow = T - 1 - np.arange(T)
    columns = [Column("last_selected.top64", "u16", "query", np.minimum(last, follow)[None], flags=SNAPSHOT | AGE)]
    if first is not None:
        columns.append(Column("first_unselected.top64", "u16", "query", np.where(first > follow, np.nan, first)[None], flags=SNAPSHOT | AGE))
    return make(write_kvf, path, columns, (1, heads, heads, T), {"method": {"name": "made-up"}})


def lives(last, grace, at_least):
    """Return (a, c) of the tokens of one head, cut at the last age that at_least of them could show."""
    T = len(last)
    c = T - 1 - np.arange(T) - grace
    last, c = last[c >= 0], c[c >= 0]
    end = c[at_least - 1]
    return last, np.minimum(c, end), end
