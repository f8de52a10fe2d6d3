"""Values of other programs in the types of columns.  Whole numbers must be exact, and each mark that programs use for "never" becomes all ones."""
import numpy as np

from .errors import Error

# Columns in which all ones says never: the least and the largest other value for token i of a run of T steps (libtrace/schema_rules.h).
NEVER_IN = {
    "evict_step": lambda i, T: (i + 1, 0 * i + T), "evict_rank": lambda i, T: (0 * i, 0 * i + T - 1), "last_selected.*": lambda i, T: (0 * i, T - 1 - i),
    "first_unselected.*": lambda i, T: (0 * i, T - 1 - i), "shadow.first_hit": lambda i, T: (i, 0 * i + T - 1),
    "copy.top": lambda i, T: (0 * i, i),
}
SHORT = (2**16 - 1, 2**16)  # all ones of u16, and what bfloat16 makes of it, in runs of fewer steps
LARGE = tuple(2**bits - one for bits in (31, 32, 63, 64) for one in (1, 0))  # all ones of wider types, and what floats make of them: no run has so many steps


def bounds_of(name):
    """Returns the function of NEVER_IN for a column, or None."""
    return next((f for n, f in NEVER_IN.items() if n == name or n.endswith("*") and name.startswith(n[:-1])), None)


def exact_below(values, upto=np.inf):
    """The number below which the type of the values has all whole numbers; upto: that of a narrower type that they came from."""
    return min(upto, 2 / np.finfo(values.dtype).eps) if values.dtype.kind == "f" else np.inf


def _number(v):
    if isinstance(v, (int, np.integer)):
        return int(v)
    try:
        return int(v) if isinstance(v, str) else float(v)
    except ValueError:
        number = float(v)
        if np.isinf(number) and any(c.isdigit() for c in v):
            raise
        return number


def parsed(values):
    """Converts objects or texts of JSON and tables to numbers: whole numbers to int64 or uint64, others to float64.  Raises TypeError, ValueError or
    OverflowError if a value is not a number."""
    if values.dtype.kind not in "OU":
        return values
    cells = [_number(v) for v in values.ravel().tolist()]
    if any(isinstance(c, float) for c in cells):
        return np.array(cells, np.float64).reshape(values.shape)
    return np.array(cells, object).astype(np.uint64 if any(c > 2**63 - 1 for c in cells) else np.int64).reshape(values.shape)


def _never(values, dtype, bounds, T, what):
    """Returns a mask of the values that mean "never": -1, values that are not finite, and all ones of the column's type or of an intermediate type."""
    ones = int(np.iinfo(dtype).max)
    marks = {-1, ones, *(LARGE if bounds else ()), *(SHORT if bounds and T < SHORT[0] else ())}
    if bounds and values.dtype.kind == "u":
        own = int(np.iinfo(values.dtype).max)
        if own <= T and np.any(values == own):
            raise Error("%s: %s has no room for never beside the steps of %d tokens; give a wider type" % (what, values.dtype, T))
        marks.add(own)
    if values.dtype.kind == "f":
        return ~np.isfinite(values) | np.isin(values, np.array(sorted(marks), np.float64))
    kind = np.iinfo(values.dtype) if values.dtype.kind in "iu" else np.iinfo(np.int8)
    return np.isin(values, np.array([m for m in sorted(marks) if kind.min <= m <= kind.max], values.dtype))


def whole_numbers(what, values, dtype, place, have=None, upto=np.inf, never=False, bounds=None):
    """Converts values [heads][T] to a whole-number type.  what: file and column for messages; place(head, token): text for the place of a value;
    have: mask of present values, or None; upto: see exact_below; never: accept all ones; bounds: a function of NEVER_IN, or None."""
    have = np.ones(values.shape, bool) if have is None else np.asarray(have, bool)
    T = values.shape[-1]
    gone = _never(values, dtype, bounds, T, what) & have if never else np.zeros(values.shape, bool)
    rest = np.where(gone | ~have, np.zeros((), values.dtype), values)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    least, most = bounds(np.arange(T), T) if bounds else (np.full(T, low), np.full(T, high, np.uint64 if high >= 2**63 else np.int64))
    limit = exact_below(values, upto)
    rounded = np.abs(rest) >= limit if limit < np.inf else np.zeros(values.shape, bool)
    wrong = (rest < least) | (rest > most)
    if values.dtype.kind == "f":
        wrong |= ~np.isfinite(rest) | (rest != np.floor(rest))
    wrong = have & ~gone & (wrong | rounded)
    if wrong.any():
        head, token = np.argwhere(wrong)[0].tolist()
        if rounded[head, token] and np.isfinite(rest[head, token]):
            raise Error("%s%s is %s, of a type that does not have all whole numbers from %d on; give whole numbers, as int32" % (
                what, place(head, token), values[head, token], limit))
        raise Error("%s%s is %s; it is a whole number from %d to %d%s" % (
            what, place(head, token), values[head, token], least[token], most[token], ", or -1 for never" if never else ""))
    return np.where(gone, np.array(high, dtype), rest.astype(dtype))


def tokens_of(one, T, upto, where):
    """The numbers of the entries that one set holds; padding is below 0, NaN, or all ones of a type."""
    one = np.asarray(one)
    if one.dtype.kind not in "iuf" and one.size:
        raise Error("%s: kept entries are the numbers of the tokens, not of type %s; np.flatnonzero makes them of a mask" % (where, one.dtype))
    padding = (one < 0) | (one >= LARGE[0]) | (one != one)
    if one.dtype.kind == "u" and np.iinfo(one.dtype).max >= T:
        padding |= one == np.iinfo(one.dtype).max
    one = one[~padding]
    if one.dtype.kind == "f" and np.any((one != np.floor(one)) | (one >= exact_below(one, upto))):
        odd = one[(one != np.floor(one)) | (one >= exact_below(one, upto))][0]
        raise Error("%s: kept entries are the numbers of the tokens, and %s of type %s is none, or has been rounded; give whole numbers" % (where, odd, one.dtype))
    return np.unique(one.astype(np.int64))
