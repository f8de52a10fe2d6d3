"""How answers are scored: final numbers, choices by log-likelihood, samples (pass@k), and what guessing would get.

Nothing here runs a model: kvfate.Scores gives the answers and log-probabilities, `kvfate study` puts both together."""
import math
import re
from collections import Counter
from fractions import Fraction

from .errors import Error
from .math_answers import boxed, inside

# A number as people write it: a sign, thousands apart by commas, decimals; "72." ends a sentence and is 72, and what follows 16 in "16-3" is 3.
NUMBER = re.compile(r"(?:(?<![\w.)])-)?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?", re.ASCII)
MARK = "####"  # before the final number of GSM8K's answers
DIGITS = 100  # characters of a number, at most
LENGTHS = ("none", "tokens", "bytes")


def _exact(said):
    """Returns a number as it is written in a text as a fraction; None for None and for numbers of more than DIGITS characters."""
    said = said.replace(",", "") if said else ""
    return Fraction(said) if 0 < len(said) <= DIGITS else None


def _last(text):
    """Returns the last number of a text as it is written; None if it has none."""
    return (NUMBER.findall(text) or [None])[-1]


def marked_number(text):
    r"""Returns the number that a text marks as its answer: the first one behind the last ####, or else the last one in the last \boxed{}.  None if there is none."""
    behind = NUMBER.search(text.rpartition(MARK)[2]) if MARK in text else None
    return _exact(behind[0] if behind else _last(inside(boxed(text)) or ""))


def final_number(text):
    """Returns the number that a text marks as its answer, or else its last number, exactly; None if it has no number."""
    found = marked_number(text)
    return found if found is not None else _exact(_last(text))


def same_number(answer, gold, marked=False):
    """Returns whether an answer ends with the number of the solution.  marked: the answer must mark this number.  A solution without a number is an error."""
    want = final_number(gold)
    if want is None:
        raise Error("a solution has no number: %r" % gold[:80])
    return (marked_number if marked else final_number)(answer) == want


def likeliest(scores, length="bytes"):
    """The index of the best of (logprob, tokens, bytes) of each choice: the log-probability, or its mean for a token or a byte; the first among
    equals."""
    if length not in LENGTHS:
        raise Error("a length is one of %s, not %r" % (", ".join(LENGTHS), length))
    by = {"none": lambda x: x[0], "tokens": lambda x: x[0] / x[1], "bytes": lambda x: x[0] / x[2]}[length]
    return max(range(len(scores)), key=lambda i: by(scores[i]))


def pass_at_k(n, right, k):
    """The probability that k of n samples, drawn without putting back, have a right one among them, `right` of the n being so: the unbiased
    estimate of Chen et al. 2021 (arXiv 2107.03374), 1 - C(n - right, k) / C(n, k)."""
    if not 1 <= k <= n or not 0 <= right <= n:
        raise Error("pass@k needs 1 <= k <= n and 0 <= right <= n, not n = %d, right = %d, k = %d" % (n, right, k))
    return float(1 - Fraction(math.comb(n - right, k), math.comb(n, k)))


def chance_of_choices(counts):
    """What drawing a choice at random gets on average, of so many choices each."""
    return sum(1 / n for n in counts) / len(counts)


def constant_answer(answers):
    """What the one answer gets that is right most often, whatever is asked."""
    return Counter(answers).most_common(1)[0][1] / len(answers)


def wilson(right, n):
    """The 95 % interval of a share (Wilson 1927)."""
    z = 1.959963984540054
    p, wide = right / n, z * z / n
    half = z * math.sqrt(p * (1 - p) / n + wide / (4 * n))
    low, high = (p + wide / 2 - half) / (1 + wide), (p + wide / 2 + half) / (1 + wide)
    return 0.0 if right == 0 else low, 1.0 if right == n else high


def paired_difference(above, below, n):
    """Returns the difference of two fractions of the same n tasks, (above - below) / n, and its 95 % interval: the adjusted Wald interval of Bonett and
    Price 2012 (doi 10.3102/1076998611411915).  above, below: tasks that only the first and only the second has right."""
    z, p, q = 1.959963984540054, (above + 1) / (n + 2), (below + 1) / (n + 2)
    half = z * math.sqrt((p + q - (p - q) ** 2) / (n + 2))
    return (above - below) / n, max(-1.0, p - q - half), min(1.0, p - q + half)


def mcnemar(above, below):
    """The two-sided exact probability of so uneven a split where both sides are as likely (McNemar 1947)."""
    n, k = above + below, min(above, below)
    return min(1.0, float(Fraction(2 * sum(math.comb(n, i) for i in range(k + 1)), 1 << n)))
