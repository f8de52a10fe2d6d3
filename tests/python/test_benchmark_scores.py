#!/usr/bin/env python3
"""usage: test_benchmark_scores.py SOURCE_ROOT

Compares the scorers of benchmarks with values computed by hand, with equations, and with brute force over
subsequences. tests/oracle/check_benchmarks.py compares them with the published programs."""
import itertools
import math
import os
import random
import sys

ROOT = os.path.abspath(sys.argv[1])
sys.path += [os.path.join(ROOT, "python"), os.path.join(ROOT, "tests")]
from check import check, finish  # noqa: E402
from kvfate import benchmark_scores, math_answers, overlap  # noqa: E402
from kvfate.errors import Error  # noqa: E402


def near(name, got, want):
    check(name, abs(got - want) < 1e-12, got, want)


def score(scorer, answer, *golds, **more):
    return benchmark_scores.scorer(scorer)(answer, {"answers": list(golds), **more})


# RULER: 4 of 5 names; case; control characters separate, so "12\n34" does not contain 1234.
names = ["ABCDE", "FGHIJ", "KLMNO", "PQRST", "UVWXY"]
near("4 of 5 variables", score("ruler-all", "abcde, FGHIJ KLMNO PQRST", *names), 0.8)
near("any of 2", score("ruler-any", "it is 3,677", "3,677 seated", "3,677"), 1)
near("none of 2", score("ruler-any", "3677", "3,677 seated", "3,677"), 0)
near("a control character separates", score("ruler-all", "12\x0734", "1234"), 0)
near("an empty answer", score("ruler-all", "", "1234"), 0)

# Token F1: {red, barn, by, river} against {red, barn}: P = 2/4, R = 1, F1 = 2/3.
near("F1", score("longbench-f1", "The red barn, by a river", "red barn"), 2 / 3)
near("F1 counts copies once", score("longbench-f1", "red red red", "red barn"), 2 * (1 / 3) * (1 / 2) / (1 / 3 + 1 / 2))
near("hyphens are deleted", score("longbench-f1", "well known", "well-known"), 0)
near("the best gold answer", score("longbench-f1", "red barn", "mill", "red barn", ""), 1)
near("the first line only", score("longbench-f1", "\n\nred barn\nand more", "red barn", name="triviaqa"), 1)
near("all lines elsewhere", score("longbench-f1", "red barn\nand more", "red barn", name="hotpotqa"), 2 * .5 / 1.5)
near("F1 of characters", score("infinitebench-f1-zh", "图书馆。", "图书"), 2 * (2 / 3) / (2 / 3 + 1))
near("InfiniteBench's F1 has no first line", score("infinitebench-f1", "x\nred", "red", name="triviaqa"), 2 * .5 / 1.5)

# Numbers: 3 and 13 with gold 3 are half right; three nested class names give 1/2 because one is skipped.
near("retrieval", score("longbench-retrieval", "Paragraph 3, not 13", "Paragraph 3"), 0.5)
near("retrieval in Chinese", score("longbench-retrieval", "段落12", "段落12"), 1)
near("no number", score("longbench-count", "none", "17"), 0)
near("count", score("longbench-count", "17 17 3", "17"), 2 / 3)
nested = ["Number", "Number of", "Number of something"]
near("nested classes", score("longbench-classes", "Number of something", "Number of something", classes=nested), 0.5)
near("two nested classes", score("longbench-classes", "Number of something", "Number of something", classes=nested[::2]), 1)
near("another class too", score("longbench-classes", "Date or Reason", "Date", classes=["Date", "Reason"]), 0.5)
near("the gold class is missing", score("longbench-classes", "Reason", "Date", classes=["Date", "Reason"]), 0)

# Code: "x = 1" and "x = 12" share 5 of 11 characters on both sides: round(1000/11)/100.
near("code", score("longbench-code", "# c\nx = 12\ny", "x = 1"), round(100 * 2 * 5 / 11) / 100)
near("equal code", score("longbench-code", "`a`\n  x = 1", "  x = 1"), 1)
near("both empty", score("longbench-code", "// only", ""), 1)
near("one empty", score("longbench-code", "x", ""), 0)

# The two ROUGE-L, by brute force: texts without repeats of a word have one longest subsequence or words that are equally good.
rng = random.Random(4)


def longest(a, b):
    return max((c for n in range(len(a) + 1) for c in itertools.combinations(a, n) if is_inside(c, b)), key=len)


def is_inside(c, b):
    rest = iter(b)
    return all(w in rest for w in c)


def unique(a, b):
    most = len(longest(a, b))
    return len({c for c in itertools.combinations(a, most) if is_inside(c, b)}) == 1


tried = 0
while tried < 60:
    ours, theirs = ([rng.sample("abcdefgh", rng.randrange(1, 7)) for _ in range(rng.randrange(1, 4))] for _ in "12")
    if not all(unique(r, p) for r in theirs for p in ours):
        continue
    tried += 1
    union = {w for r in theirs for p in ours for w in longest(r, p)}
    recall, precision = (len(union) / len({w for s in side for w in s}) for side in (theirs, ours))
    near("rouge", overlap.rouge_l(". ".join(map(" ".join, ours)), ". ".join(map(" ".join, theirs)) + "."), 2 * precision * recall / (precision + recall + 1e-8))
    left = {w: min(sum(s.count(w) for s in side) for side in (ours, theirs)) for w in "abcdefgh"}
    hits = 0
    for r in theirs:
        for w in [w for w in r if any(w in longest(r, p) for p in ours)]:
            hits, left[w] = hits + (left[w] > 0), left[w] - (left[w] > 0)
    n, m = (sum(map(len, side)) for side in (ours, theirs))
    near("rougeLsum", overlap.rouge_lsum("\n".join(map(" ".join, ours)), "\n".join(map(" ".join, theirs)).upper()), 2 * hits / (n + m))
near("rouge of nothing", score("longbench-rouge", "...", "a b."), 0)
near("rouge of equal texts", score("longbench-rouge", "a b. c", "a b. c"), 2 / (2 + 1e-8))
near("a tie takes the later word in rouge", overlap.rouge_l("b a", "a b. b"), 2 * (0.25 / (1 + 1e-8)))  # b twice, so the set has one word
near("a tie takes the earlier word in rougeLsum", overlap.rouge_lsum("b a", "a b\nb"), 2 * 2 / 5)  # a and b
near("a tie takes the earlier words of the gold sentence", overlap.rouge_lsum("b a", "a b"), 2 * .5 * .5)

# BLEU-4 with smoothing 4: (3 of 4, 2 of 3, 1 of 2, 0 of 1), brevity exp(1 - 5/4).
share = [3 / 4, 2 / 3, 1 / 2, math.log(4) / (5 * 2) / 1]
near("BLEU", overlap.bleu("a b c x".split(), "a b c d e".split()), math.exp(1 - 5 / 4) * math.prod(share) ** .25)
near("BLEU of equal texts", overlap.bleu("a b c d".split(), "a b c d".split()), 1)
near("BLEU of no shared word", overlap.bleu("x y".split(), "a b".split()), 0)
functions = [["area", "def area(w, h): return w * h"], ["edge", "def edge(w, h): return 2 * (w + h)"]]
near("the right function", score("scbench-function", "def area(w, h): return w * h", "", functions=functions, function="area", language="python"), 1)
near("another function", score("scbench-function", "def edge(w, h): return 2 * (w + h)", "", functions=functions, function="area", language="python"), 0)
near("too different", score("scbench-function", "def area(x): return x", "", functions=functions, function="area", language="python"), 0)

# Choices.
near("LongBench v2", score("longbench2-choice", "**The correct answer is (C)**, not (A)", "C"), 1)
near("the first form counts", score("longbench2-choice", "The correct answer is A. The correct answer is (C)", "C"), 1)
near("case matters", score("longbench2-choice", "the correct answer is (C)", "C"), 0)
for answer, want in (("B", 1), ("B. x", 1), ("C", 0), ("", 0), ("x answer is: B", 1), ("x answer is: C or B", 0), ("answer is:", 0), ("the town", 1), ("C answer is: B", 0), ("I think B", 1), ("I think C or B", 0)):
    near("a choice %r" % answer, score("infinitebench-choice", answer, "the town", letter="B"), want)
for answer, want in (("B.", 1), ("B", 0), ("answer is: run", 1), ("The answer is: B", 1), ("answer: C", 0), ("B: run", 1)):
    near("a bug %r" % answer, score("infinitebench-debug", answer, "run", letter="B"), want)

# Numbers of InfiniteBench and SCBench.
for scorer, answer, golds, want in (
        ("infinitebench-digits", "is 71432.", ["71432"], 1), ("infinitebench-digits", "7 1432", ["71432"], 0), ("infinitebench-word", 'is "v9".', ["v9"], 1), ("infinitebench-word", "v99", ["v9"], 0),
        ("infinitebench-integer", "x = 3.\n", [3], 1), ("infinitebench-integer", "3 or 4", [3], 0), ("infinitebench-integer", "three", [3], 0), ("infinitebench-number", "-88", [88], 1),
        ("infinitebench-number", "88.5", [88], 0), ("scbench-number", "88.5", [88], 1), ("infinitebench-number", "1.50", [1.5], 1), ("infinitebench-prefix", "[1, 12, 9, 20]", [1, 12, 7, 20], 0.5),
        ("infinitebench-prefix", "", [1], 0), ("infinitebench-name", "Ace.", ["ACE", "ACE R"], 1), ("infinitebench-name", "Ace R", ["ACE R"], 0), ("scbench-any", "ace r!", ["X", "Ace R"], 1),
        ("scbench-contains", "xv9x", ["v9"], 1), ("scbench-contains", "V9", ["v9"], 0), ("scbench-fraction", "a B", ["a", "b", "c"], 0.67)):
    near("%s of %r" % (scorer, answer), score(scorer, answer, *golds), want)

# GSM8K: the table of the three rules.
for answer, gold, want in (("#### 7.", "#### 7", (1, 1, 0)), ("#### $18", "#### 18", (0, 1, 0)), ("costs $29.00.", "#### 29", (0, 0, 0)), ("It is 7, so done...", "#### 7", (0, 0, 0)),
                           ("12 apples (3 each)", "#### 3", (0, 1, 0)), ("\\boxed{42}", "#### 42", (0, 1, 0)), ("#### 1,234", "so\n#### 1234", (1, 1, 1)), ("#### 1\n#### 2", "#### 1", (1, 0, 1)), ("-7", "#### -7", (0, 1, 0))):
    got = tuple(int(score("gsm8k-" + rule, answer, gold)) for rule in ("strict", "flexible", "original"))
    check("GSM8K %r" % answer, got == want, got, want)

# MATH: pairs that the normalisation makes equal, and pairs that it does not.
for a, b, want in (("\\frac12", "\\frac{1}{2}", 1), ("\\dfrac{1}{2}", "1/2", 1), (".5", "\\frac{1}{2}", 1), ("0.50", "\\frac{1}{2}", 0), ("x = 5", "5", 1), ("xyz=5", "5", 0), ("\\sqrt3", "\\sqrt{3}", 1), ("6\\text{ cm}", "6", 1),
                   ("\\left(1, 2\\right)", "(1,2)", 1), ("90^\\circ", "90", 1), ("10\\%", "10", 1), ("1,000", "1000", 0), ("2/4", "1/2", 0), ("\\sqrt", "\\sqrt", 1), ("\\frac", "\\frac ", 0), ("", "0", 0)):
    near("MATH %s and %s" % (a, b), float(math_answers.same_latex(a, b)), want)
near("the last box", score("math-hendrycks", "\\boxed{1} so \\boxed{\\frac{1}{2}}", "1/2"), 1)
near("a box that is not closed", score("math-hendrycks", "\\boxed{1", "1"), 0)
near("no box", score("math-hendrycks", "1", "1"), 0)
for answer, strings, integers in (("\\boxed{073}", 1, 1), ("\\boxed{73}", 0, 1), ("so $73$ or $073$", 0, 0), ("$073$", 1, 1), ("is $x$ not $073$", 0, 0), ("073", 1, 1), ("\\boxed 073$ x", 1, 1), ("1073", 0, 0)):
    got = score("aime-harness", answer, "073"), score("aime-integer", answer, "073")
    check("AIME %r" % answer, got == (strings, integers), got)
near("text between the dollars", score("aime-harness", "is $1$ or $073$", "1$or$073"), 1)

try:
    benchmark_scores.scorer("longbench-f2")
    check("an unknown scorer", False)
except Error as e:
    check("an unknown scorer", "did you mean longbench-f1?" in str(e), e)
finish()
