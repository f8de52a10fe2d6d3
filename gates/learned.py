#!/usr/bin/env python3
"""Which words retention gates keep, and what kinds of heads there are (docs/studies/gates.md).

usage: learned.py RETENTION.tsv TOKENS.tsv        (standard library only)

The tables are those of `kvfate retention X.kvf -o` and `kvfate tokens X.kvf -o` of one run.
The half-life of an entry is the age at which beta^n falls to 1/2: ln(1/2) / log_beta.
"""
import collections
import math
import statistics
import sys

LASTS = 64          # an entry lasts when beta^64 > 1/2
MAX_AGE = 4096
MARKS = ("punctuation", "whitespace", "operator", "symbol", "latex")


def read_table(path):
    with open(path, encoding="utf-8") as f:
        lines = [line.rstrip("\n").split("\t") for line in f if not line.startswith("# ")]
    return [dict(zip(lines[0], line)) for line in lines[1:]]


def half_life(log_beta):
    return math.log(0.5) / log_beta if log_beta < 0 else math.inf


def window(log_betas):
    """First age at which the mean of beta^n over the entries is below 1/2."""
    mean = lambda n: statistics.fmean(math.exp(n * b) for b in log_betas)
    low, high = 0, MAX_AGE          # the mean falls with n: bisect
    while high - low > 1:
        n = (low + high) // 2
        low, high = (low, n) if mean(n) < 0.5 else (n, high)
    return high


def kind_of(lasting, tokens, entries):
    """The kind of a head by the entries that last; the first token has a rule of its own."""
    if len(lasting) < 0.01 * entries:
        return "window"
    if len(lasting) >= 0.10 * entries:
        return "wide"
    strings = collections.Counter(tokens[i]["text"] for i in lasting)
    if strings.most_common(1)[0][1] >= 0.5 * len(lasting):
        return "one string"
    marks = sum(tokens[i]["class"] in MARKS for i in lasting)
    return "marks" if marks >= 0.5 * len(lasting) else "words"


def print_heads(heads, tokens):
    kinds, windows, sinks = collections.defaultdict(list), {}, []
    for name, log_betas in heads.items():
        rest = log_betas[1:]
        lasting = [i for i, b in enumerate(log_betas) if i and half_life(b) > LASTS]
        windows[name] = window(rest)
        first = half_life(log_betas[0])
        if first >= 1024 and first >= 16 * half_life(statistics.median(rest)):
            sinks.append(name)
        strings = collections.Counter(tokens[i]["text"] for i in lasting)
        kinds[kind_of(lasting, tokens, len(rest))].append((name, len(lasting), strings))
    cuts = [f"{q:.0f}" for q in statistics.quantiles(windows.values(), n=4)]
    low, high = min(windows, key=windows.get), max(windows, key=windows.get)
    print(f"effective window: quartiles {' '.join(cuts)} steps; "
          f"least {low} {windows[low]}, most {high} {windows[high]}")
    print(f"sink: {len(sinks)} of {len(heads)} heads")
    for kind in ("window", "one string", "marks", "words", "wide"):
        print(f"{kind}: {len(kinds[kind])}")
        for name, n, strings in sorted(kinds[kind], key=lambda x: -x[1]):
            common = ", ".join(f"`{s}` {c}" for s, c in strings.most_common(5))
            print(f"  {name}  window {windows[name]}, {n} last: {common}")


def print_strings(heads, tokens, least=3, rows=12):
    """Token strings by their mean log_beta over all heads and places."""
    values = collections.defaultdict(list)
    for i, token in enumerate(tokens):
        if i:                           # the first token lasts whatever it is
            values[token["text"]] += [head[i] for head in heads.values()]
    table = [(statistics.fmean(v), half_life(statistics.median(v)), len(v) // len(heads), s)
             for s, v in values.items() if len(v) >= least * len(heads)]
    table.sort(reverse=True)
    print(f"{len(table)} strings seen {least} times or more: mean log_beta, median half-life, count")
    for mean, median, count, text in table[:rows] + table[-rows:]:
        print(f"  {mean:8.4f} {median:7.1f} {count:4d}  `{text}`")


def main(retention, words):
    tokens, heads = read_table(words), collections.defaultdict(list)
    for row in read_table(retention):
        heads[row["head"]].append(float(row["log_beta"]))
    print_strings(heads, tokens)
    print_heads(heads, tokens)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
