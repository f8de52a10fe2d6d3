#!/usr/bin/env python3
"""gates/learned.py on tables made by hand: a head of each kind, and values on both sides of each
limit in docs/studies/gates.md; windows, sinks, and words with the highest and the lowest means.

usage: test_learned.py LEARNED"""
import math
import os
import re
import subprocess
import sys
import tempfile

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402

learned = os.path.abspath(sys.argv[1])
N = 300  # entries without the first: 1 % of them are 3, 10 % are 30


def rate(half_life):
    """Returns log_beta of an entry with beta^n = 1/2 at n = half_life."""
    return -math.log(2) / half_life


# Texts of the tokens 1 .. N by their purpose; the rest are unique words.
TEXTS = {**{i: " of" for i in range(1, 21)}, **{i: "," for i in range(21, 36)}, **{i: "\\n" for i in range(36, 41)},
         **{i: " eye" for i in range(41, 44)}, 44: " rare", 45: " rare", **{i: f" s{(i - 260) // 3}" for i in range(260, 299)}}
CLASS = {" of": "word", ",": "punctuation", "\\n": "whitespace", " eye": "word"}
tokens = [(" of", "word")] + [(TEXTS.get(i, f" w{i}"), CLASS.get(TEXTS.get(i), "word")) for i in range(1, N + 1)]


def head(lasting, first=10.0, short=8.0, long=100.0):
    """Returns log_beta of each entry: half-life `long` for lasting entries, `short` for others,
    `first` for token 0."""
    return [rate(first)] + [rate(long if i in lasting else short) for i in range(1, N + 1)]


def words(n, start=100):
    return set(range(start, start + n))


# Kind, sink or not, and number of lasting entries, by the rules in the text, not by the program.
HEADS = {
    "L0K0": (head(set()), "window", False, 0),
    "L0K1": (head(words(2), first=1e9), "window", True, 2),                              # under 1 %: 2 of 300
    "L0K2": (head(words(3)), "words", False, 3),                                         # 1 % is not under it
    "L1K0": (head(words(29)), "words", False, 29),                                       # under 10 %
    "L1K1": (head(words(30)), "wide", False, 30),                                        # 10 % or more
    "L1K2": (head(set(range(1, 21)) | words(10)), "wide", False, 30),                    # wide comes before one string
    "L2K0": (head(set(range(1, 7)) | words(6)), "one string", False, 12),                # half of 12 are " of"
    "L2K1": (head(set(range(1, 6)) | words(6)), "words", False, 11),                     # 5 of 11 are not
    "L2K2": (head(set(range(21, 24)) | set(range(36, 39)) | words(6)), "marks", False, 12),  # half are commas or line ends, 3 of each
    "L3K0": (head(set(range(21, 24)) | set(range(36, 38)) | words(6)), "words", False, 11),  # 5 of 11 are
    "L3K1": (head(set(range(21, 31))), "one string", False, 10),                         # only commas: one string comes before marks
    "L3K2": (head(words(40), long=64.0), "window", False, 0),                            # beta^64 = 1/2 is not above it
    "L4K0": (head(set(), first=1023.0), "window", False, 0),                             # a sink needs 1,024
    "L4K1": (head(set(), first=1100.0), "window", True, 0),
    "L4K2": (head(set(), first=1100.0, short=60.0), "window", True, 0),                  # 16 times 60 is 960
    "L5K0": (head(set(), first=1100.0, short=63.0), "window", True, 0),                  # 1008
    "L5K1": (head(words(160), first=1100.0, short=20.0, long=70.0), "wide", False, 160), # 16 times the median, 70, is 1120
}


def window(log_beta):
    """Returns the first age at which the mean of beta^n over all entries but the first is below
    1/2, by counting up."""
    n = 0
    while sum(math.exp(n * b) for b in log_beta[1:]) / N >= .5:
        n += 1
    return n


def write(path, names, rows):
    with open(path, "w", encoding="utf-8") as f:
        f.write("# table: made-up\n# T: 301\n" + "\n".join("\t".join(map(str, r)) for r in [names, *rows]) + "\n")


def ask(folder, heads):
    a, b = os.path.join(folder, "r.tsv"), os.path.join(folder, "t.tsv")
    write(a, ["head", "token", "log_beta"], [(h, i, repr(v)) for h, values in heads.items() for i, v in enumerate(values)])
    write(b, ["token", "id", "text", "class"], [(i, i, *t) for i, t in enumerate(tokens)])
    r = subprocess.run([sys.executable, learned, a, b], capture_output=True, text=True)
    check("it ends well", r.returncode == 0 and not r.stderr, r.stderr)
    return r.stdout


def kinds(text):
    """Returns {head: (kind, window, number of lasting entries, the strings)} and the counts in each
    kind's line."""
    found, counts, kind = {}, {}, None
    for line in text.splitlines():
        if m := re.fullmatch(r"(window|one string|marks|words|wide): (\d+)", line):
            kind = m[1]
            counts[kind] = int(m[2])
        elif m := re.fullmatch(r"  (L\dK\d)  window (\d+), (\d+) last: (.*)", line):
            found[m[1]] = (kind, int(m[2]), int(m[3]), m[4])
    return found, counts


def check_heads(text):
    found, counts = kinds(text)
    check("every head once", sorted(found) == sorted(HEADS) and text.count(" last: ") == len(HEADS), found)
    for name, (log_beta, kind, _, n) in HEADS.items():
        got = found.get(name, (None, None, None, ""))
        check(f"{name}: kind", got[0] == kind, got, kind)
        check(f"{name}: window", got[1] == window(log_beta), got, window(log_beta))
        check(f"{name}: how many last", got[2] == n, got, n)
    of = [kind for _, kind, _, _ in HEADS.values()]
    check("counts of kinds", counts == {k: of.count(k) for k in ("window", "one string", "marks", "words", "wide")}, counts)
    check("strings that last", found["L3K1"][3] == "`,` 10" and found["L2K0"][3].startswith("` of` 6, "), found)
    sinks = sum(sink for _, _, sink, _ in HEADS.values())
    check("sinks", f"sink: {sinks} of {len(HEADS)} heads\n" in text, text)
    each = {name: window(log_beta) for name, (log_beta, *_) in HEADS.items()}
    least, most = min(each.values()), max(each.values())
    m = re.search(r"least (L\dK\d) (\d+), most (L\dK\d) (\d+)\n", text)
    check("windows", m and each[m[1]] == int(m[2]) == least and each[m[3]] == int(m[4]) == most, m, each)


def check_one_sink(folder):
    """Each limit of a sink separately: one head, yes or no."""
    for name, (log_beta, _, sink, _) in HEADS.items():
        twice = {"L0K0": log_beta, "L0K1": log_beta}
        check(f"{name}: sink", f"sink: {2 * sink} of 2 heads\n" in ask(folder, twice), sink)


def check_strings(folder):
    """Means over heads and places of the strings that occur 3 times or more, without the first
    token."""
    first = {" of": -.1, ",": -.3, "\\n": -.015, " eye": -.01, **{f" s{k}": -.5 - .05 * (k * 5 % 13) for k in range(13)}}
    a = [-9.0] + [first.get(t, -5.0) for t, _ in tokens[1:]]
    a[41] = -.04  # one ` eye`: its median stays above that of line ends, its mean falls below theirs
    b = [-9.0] + [2 * v for v in a[1:]]
    out = ask(folder, {"L0K0": a, "L0K1": b})
    wanted = []
    for text, n in ((" of", 20), (",", 15), ("\\n", 5), (" eye", 3), *((f" s{k}", 3) for k in range(13))):
        values = sorted(v for h in (a, b) for v, (t, _) in zip(h[1:], tokens[1:]) if t == text)
        k = len(values)
        median = (values[(k - 1) // 2] + values[k // 2]) / 2
        wanted.append((sum(values) / k, math.log(.5) / median, n, text))
    wanted.sort(reverse=True)
    check("the order is not that of medians", [w[3] for w in wanted[:4]] == ["\\n", " eye", " of", ","] and wanted[1][1] > wanted[0][1], wanted)
    lines = re.findall(r"^ +(-\d\.\d{4}) +(\d+\.\d) +(\d+)  `(.*)`$", out, re.M)
    check("strings seen 3 times", out.startswith("17 strings seen 3 times or more") and len(lines) == 24, out[:80], len(lines))
    for part, got, want in (("top", lines[:12], wanted[:12]), ("bottom", lines[12:], wanted[-12:])):
        check(f"{part} words", [(g[3], int(g[2])) for g in got] == [(w[3], w[2]) for w in want], got, want)
        check(f"{part} means", all(abs(float(g[0]) - w[0]) < 6e-5 and abs(float(g[1]) - w[1]) < .06 for g, w in zip(got, want)), got, want)


with tempfile.TemporaryDirectory(prefix="kvfate-learned-") as folder:
    check_heads(ask(folder, {name: log_beta for name, (log_beta, *_) in HEADS.items()}))
    check_one_sink(folder)
    check_strings(folder)

finish()
