#!/usr/bin/env python3
"""usage: test_scorers.py SOURCE_ROOT

Compares scores of answers with their definitions: every draw of k samples, every split, every
choice, numbers read by hand."""
import itertools
import math
import os
import random
import sys
from fractions import Fraction

ROOT = os.path.abspath(sys.argv[1])
sys.path += [os.path.join(ROOT, "python"), os.path.join(ROOT, "tests")]
from check import check, finish  # noqa: E402
from kvfate import scorers  # noqa: E402
from kvfate.errors import Error  # noqa: E402

for n in range(1, 9):
    for right in range(n + 1):
        for k in range(1, n + 1):
            draws = list(itertools.combinations([1] * right + [0] * (n - right), k))
            want = sum(map(any, draws)) / len(draws)
            got = scorers.pass_at_k(n, right, k)
            check(f"pass@{k} of {right} in {n}", abs(got - want) < 1e-12, got, want)
got = scorers.pass_at_k(200, 3, 100)  # the product in the paper's program, in another order
want = 1 - math.prod(1 - 100 / i for i in range(200 - 3 + 1, 201))
check("pass@100 of 200", abs(got - want) < 1e-12, got, want)
chance = random.Random(5)
share = .3
estimates = []
for _ in range(4000):  # unbiased: its mean over draws of n is 1 - (1 - p)^k
    estimates.append(scorers.pass_at_k(10, sum(chance.random() < share for _ in range(10)), 4))
mean, spread = sum(estimates) / 4000, math.sqrt(sum((x - sum(estimates) / 4000) ** 2 for x in estimates) / 4000)
check("unbiased", abs(mean - (1 - .7 ** 4)) < 4 * spread / math.sqrt(4000), mean, 1 - .7 ** 4)

for text, want in (("#### 72", 72), ("so it is 72.", 72), ("$1,234.50 in all", Fraction(2469, 2)), ("16-3=13", 13), ("5 - 8 = -3", -3), ("#### -7\n and 9 more", -7),
                   ("1 and 2\n####", 2), ("#### a\n", None), ("none", None), ("", None), ("72.00", 72), ("1,23", 23), ("#### 1\n#### 2", 2), ("(-4)", -4),
                   ("12,345,678 apples", 12345678), ("9" * 101, None), ("x" + "7" * 100, int("7" * 100)), ("٣", None), ("17-5", 5)):
    got = scorers.final_number(text)
    check("the number of %r" % text[:20], got == want, got, want)
for text, marked, final in (("so \\boxed{18} dollars for 5 days", 18, 18), ("\\boxed{1} then \\boxed{\\text{about } 2{,}5}", 5, 5), ("\\boxed{7} and\n#### 8", 8, 8), ("it is 9", None, 9),
                            ("\\boxed{none} of 3", None, 3), ("\\boxed{12", None, 12), ("\\boxed{\\frac{1}{4} = 0.25}", Fraction(1, 4), Fraction(1, 4)), ("####\n\\boxed{-3}.", -3, -3),
                            ("\\fbox{4} of 6", None, 6), ("", None, None)):
    got = scorers.marked_number(text), scorers.final_number(text)
    check("marked and final number of %r" % text[:30], got == (marked, final), got)
check("a number must be marked", scorers.same_number("it is 9", "#### 9") and not scorers.same_number("it is 9", "#### 9", True) and scorers.same_number("\\boxed{9.0}", "#### 9", True))
check("equal numbers", scorers.same_number("It costs $1,000.0", "... #### 1000") and not scorers.same_number("100", "#### 1000") and not scorers.same_number("", "#### 0"))

told = [(-6.0, 2, 20), (-5.0, 1, 4), (-7.0, 7, 8)]
check("by the sum", scorers.likeliest(told, "none") == 1)
check("by the mean of tokens", scorers.likeliest(told, "tokens") == 2)
check("by the mean of bytes", scorers.likeliest(told, "bytes") == 0)
check("the first of equals", scorers.likeliest([(-1.0, 1, 1)] * 3) == 0)
counts = [2, 3, 4, 4]
check("chance of choices", abs(scorers.chance_of_choices(counts) - sum(
    sum(p == a for a, p in zip((0, 1, 2, 3), picks)) for picks in itertools.product(*map(range, counts))) / (4 * math.prod(counts))) < 1e-12)
answers = [1, 2, 2, 5, 2, 1]
check("a constant answer", scorers.constant_answer(answers) == max(sum(a == c for a in answers) for c in answers) / 6)
for above in range(6):
    for below in range(6):
        n = above + below
        want = sum(abs(2 * bin(x).count("1") - n) >= abs(above - below) for x in range(1 << n)) / (1 << n)
        check(f"p of {above} and {below}", abs(scorers.mcnemar(above, below) - want) < 1e-12)
for above, below, n in ((0, 0, 9), (3, 1, 9), (0, 9, 9), (20, 5, 100)):  # the normal interval of the differences, one task added to either side
    pairs = [1] * (above + 1) + [-1] * (below + 1) + [0] * (n - above - below)
    mean = sum(pairs) / len(pairs)
    half = 1.959963984540054 * math.sqrt(sum((x - mean) ** 2 for x in pairs)) / len(pairs)
    got = scorers.paired_difference(above, below, n)
    check(f"the difference of {above} and {below} in {n}", all(abs(x - y) < 1e-12 for x, y in zip(got, ((above - below) / n, max(-1, mean - half), min(1, mean + half)))), got)
for right in range(8):  # the bounds solve |p - x| = z sqrt(x (1 - x) / n)
    low, high = scorers.wilson(right, 7)
    at = [abs((right / 7 - x) ** 2 - 1.959963984540054 ** 2 * x * (1 - x) / 7) for x in (low, high)]
    check(f"interval of {right} in 7", max(at) < 1e-12 and low <= right / 7 <= high and (low, high) != (right / 7,) * 2, at)
for what, call in (("k over n", lambda: scorers.pass_at_k(2, 1, 3)), ("too many right", lambda: scorers.pass_at_k(2, 3, 1)),
                   ("k of 0", lambda: scorers.pass_at_k(2, 1, 0)), ("a length", lambda: scorers.likeliest(told, "words")),
                   ("no number", lambda: scorers.same_number("1", "none"))):
    try:
        call()
        check(what, False)
    except Error as e:
        check(what, str(e) != "", e)
finish()
