"""Overlap of two texts: token F1, two definitions of ROUGE-L, and BLEU.

The two ROUGE-L differ: `rouge_l` is that of the package rouge (used by LongBench), `rouge_lsum` that of the package rouge_score (used by
InfiniteBench and SCBench).  No stemming.  All values are in 0..1."""
import math
import re
from collections import Counter
from fractions import Fraction


def f1(predicted, reference):
    """Returns the F1 of two lists of tokens as bags; 0 if they share no token."""
    same = sum((Counter(predicted) & Counter(reference)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(predicted), same / len(reference)
    return 2 * precision * recall / (precision + recall)


def _common(a, b, prefer_b):
    """Returns the indices in `a` of a longest common subsequence of two lists, in order.

    prefer_b: at a tie of two longest ones, the walk from the end drops an element of b instead of a."""
    n, m = len(a), len(b)
    table = [[0] * (m + 1)]
    for x in a:
        above, row = table[-1], [0]
        for j, y in enumerate(b):
            row.append(above[j] + 1 if x == y else max(above[j + 1], row[j]))
        table.append(row)
    found, i, j = [], n, m
    while i and j:
        up, left = table[i - 1][j], table[i][j - 1]
        if a[i - 1] == b[j - 1]:
            found.append(i - 1)
            i, j = i - 1, j - 1
        elif left > up or prefer_b and left == up:
            j -= 1
        else:
            i -= 1
    return found[::-1]


def _sentences(text):
    """Returns the words of each sentence.  Sentences end at full stops.  A sentence of white space has one empty word."""
    return [" ".join(part.split()).split(" ") for part in text.split(".") if part]


def rouge_l(predicted, reference):
    """Returns ROUGE-L (F) of two texts as the package rouge 1.0.1 defines it: words count once, and sentences are cut at full stops.

    The words of the longest common subsequences of all pairs of sentences are collected in one set.  A text without a sentence has 0."""
    ours, theirs = _sentences(predicted), _sentences(reference)
    if not ours or not theirs:
        return 0.0
    shared = {r[i] for r in theirs for p in ours for i in _common(r, p, True)}
    recall, precision = (len(shared) / len({w for s in side for w in s}) for side in (theirs, ours))
    return 2 * (precision * recall / (precision + recall + 1e-8))


def rouge_lsum(predicted, reference):
    """Returns ROUGE-Lsum (F) of two texts as the package rouge_score defines it: sentences are lines, tokens are runs of a-z and 0-9.

    A token counts at most as often as it occurs in both texts."""
    def lines(text):
        return [re.findall("[a-z0-9]+", line.lower()) for line in text.split("\n") if line]
    ours, theirs = lines(predicted), lines(reference)
    n, m = sum(map(len, ours)), sum(map(len, theirs))
    if not n or not m:
        return 0.0
    left = Counter(w for s in ours for w in s) & Counter(w for s in theirs for w in s)
    hits = 0
    for r in theirs:
        for i in sorted({i for p in ours for i in _common(r, p, False)}):
            if left[r[i]]:
                left[r[i]] -= 1
                hits += 1
    precision, recall = hits / n, hits / m
    return 2 * precision * recall / (precision + recall) if hits else 0.0


def bleu(predicted, reference):
    """Returns BLEU-4 of two lists of tokens with smoothing 4 of Chen and Cherry (2014), as NLTK computes it with its default k = 5."""
    if not predicted:
        return 0.0
    shares, missing = [], 0
    for n in range(1, 5):
        ours, theirs = (Counter(zip(*(side[i:] for i in range(n)))) for side in (predicted, reference))
        same, total = sum((ours & theirs).values()), max(1, sum(ours.values()))
        if n == 1 and same == 0:
            return 0.0
        if same == 0 and len(predicted) > 1:
            missing += 1
            shares.append(math.log(len(predicted)) / (5 * 2 ** missing) / total)
        else:
            shares.append(Fraction(same, total))
    brief = 1.0 if len(predicted) > len(reference) else math.exp(1 - len(reference) / len(predicted))
    return brief * math.exp(math.fsum(0.25 * math.log(x) for x in shares if x > 0))
