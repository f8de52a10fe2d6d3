#!/usr/bin/env python3
"""bench/paired.py: compared with sums over all sign patterns by hand; names of rows; two files;
errors."""
import itertools
import os
import re
import subprocess
import sys

import numpy as np

from harness import Suite

s = Suite()
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "paired.py")
HEAD = "doc\tdoc_hash\tmethod\toptions\tbudget\tnll\tkl\ttop1_agree\tkv_end\tkv_mean\tkv_peak\ttriggers"
rng = np.random.default_rng(5)


def state(name, rows, score=16, tail="", **meta):
    """rows: {(method, options, budget): {document: kl}}"""
    meta = {"kvfate eval results": "0.1.0", "model_hash": "ab", "seed": 0, "prompt_tokens": 64, "score_tokens": score, **meta}
    lines = [f"# {k}: {v}" for k, v in meta.items()] + [HEAD]
    lines += [f"{i}\t{doc}\t{m}\t{o}\t{b}\t3.5\t{kl:.17g}\t0.5\t8\t8\t8\t1" for (m, o, b), docs in rows.items() for i, (doc, kl) in enumerate(docs.items())]
    return s.file(name, ("\n".join(lines) + "\n" + tail).encode())


def paired(*argv):
    r = subprocess.run([sys.executable, SCRIPT, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    return r.returncode, r.stdout.decode().splitlines(), r.stderr.decode()


def judged(what, line, name, x):
    """The line has the name of the row, its mean, its p over all sign patterns, and an interval."""
    m = re.fullmatch(re.escape(name) + r": ([-+.\d]+) \((.[.\d]+|.nan)\.\.(.[.\d]+|.nan)\)( \*)? p = ([.\d]+)", line)
    s.check(what + ": form", m is not None, line, name)
    if not m:
        return
    mean, low, high, p = float(m[1]), float(m[2]), float(m[3]), float(m[5])
    s.check(what + ": mean", abs(mean - np.mean(x)) <= 5.1e-4, line, np.mean(x))
    sums = [abs(np.dot(signs, x)) for signs in itertools.product((1, -1), repeat=len(x))]
    s.check(what + ": p", abs(p - np.mean([v >= abs(sum(x)) * (1 - 1e-9) for v in sums])) <= 5.1e-5, line)
    half, n = 1.96 * np.std(x) / np.sqrt(len(x)), len(x)  # by the normal approximation
    if n < 10:  # Student's t, from tables
        half = {4: 3.1824463, 5: 2.7764451, 6: 2.5705818, 7: 2.4469118, 8: 2.3646243, 9: 2.3060041}.get(n, np.nan) * np.std(x, ddof=1) / np.sqrt(n)
        ends = [np.mean(x) - half, np.mean(x) + half]
        s.check(what + ": interval of few", np.allclose([low, high], ends, atol=6e-4, equal_nan=True) and bool(m[4]) == (ends[0] > 0 or ends[1] < 0), line, ends)
        return
    s.check(what + ": interval", low < mean < high and abs(high - low - 2 * half) < .3 * half and bool(m[4]) == (low > 0 or high < 0), line, half)


def documents(n, first=0, shift=0.0):
    return {f"{first + i:016x}": float(x) for i, x in enumerate(rng.normal(shift, 1, n))}


def one_file():
    a, b, c = documents(9), documents(9, shift=2), documents(9)
    path = state("one.state", {("wgkv", "tau=0.1", 0): a, ("wgkv-snapkv", "x=1", 0): b, ("trimkv:sinks=4", "sinks=4", 8): c, ("trimkv", "sinks=0", 8): a,
                               ("trimkv", "sinks=0", 16): b, ("trimkv:sinks=4", "sinks=4", 16): a, ("wgkv:tau=0.05", "tau=0.05", 0): c, ("wgkv:tau=0.2", "tau=0.2", 0): b})
    for pair, x in (("wgkv-wgkv-snapkv", (a, b)), ("wgkv-snapkv-wgkv", (b, a)), ("wgkv:tau=0.05-wgkv:tau=0.2", (c, b))):
        code, lines, err = paired(path, pair)
        s.check(pair, code == 0 and len(lines) == 1, err)
        name = {0: "wgkv - wgkv-snapkv", 1: "wgkv-snapkv - wgkv", 2: "wgkv:tau=0.05 - wgkv:tau=0.2"}[["wgkv-wgkv-snapkv", "wgkv-snapkv-wgkv", "wgkv:tau=0.05-wgkv:tau=0.2"].index(pair)]
        judged(pair, lines[0], name + ", B = 0", [x[0][d] - x[1][d] for d in a])
    code, lines, err = paired(path, "trimkv:sinks=4-trimkv")
    s.check("both budgets", code == 0 and len(lines) == 2, lines, err)
    judged("B = 8", lines[0], "trimkv:sinks=4 - trimkv, B = 8", [c[d] - a[d] for d in a])
    judged("B = 16", lines[1], "trimkv:sinks=4 - trimkv, B = 16", [a[d] - b[d] for d in a])
    code, lines, err = paired(path)
    s.check("names", code == 0 and path + "\ttrimkv:sinks=4\t8 16" in lines and len(lines) == 6, lines, err)


def typed_alike():
    """Gates are not typed by the user: rows that differ in them are still distinguished."""
    a, b = documents(6), documents(6, shift=1)
    path = state("alike.state", {("trimkv", "sinks=0,gates=11", 8): a, ("trimkv", "sinks=0,gates=22", 8): b})
    code, lines, err = paired(path, "trimkv[gates=22]-trimkv[gates=11]")
    s.check("by what they differ in", code == 0 and len(lines) == 1, err)
    judged("alike", lines[0], "trimkv[gates=22] - trimkv[gates=11], B = 8", [b[d] - a[d] for d in a])
    code, lines, err = paired(path, "trimkv-trimkv")
    s.check("no guess", code == 1 and not lines and "trimkv[gates=11]" in err, lines, err)


def two_files():
    a, b = documents(8), documents(8, first=2, shift=1)
    other = dict(reversed(list(b.items())))  # in another order
    one = state("a.state", {("trimkv", "g=1", 8): a, ("h2o", "", 8): b})
    two = state("b.state", {("trimkv", "g=2", 8): other}, tail="3\t00ff\ttrimkv\tg=2\t8\t3.5")  # a truncated row
    code, lines, err = paired(one, two, "trimkv-trimkv")
    s.check("two files", code == 0 and len(lines) == 1 and not err, lines, err)
    both = [d for d in a if d in b]
    judged("by document", lines[0], "trimkv - trimkv, B = 8, 6 documents of 8 and 8", [a[d] - b[d] for d in both])
    code, lines, err = paired(one, two, "h2o-trimkv")
    s.check("the same numbers", code == 0 and lines[0].startswith("h2o - trimkv, B = 8: +0.000 (+0.000..+0.000)"), lines, err)
    far = state("far.state", {("trimkv", "g=1", 8): documents(8, first=100)})
    s.check("no document in common", "share no document" in paired(one, far, "trimkv-trimkv")[2])
    s.check("other lengths", "score_tokens" in paired(one, state("long.state", {("trimkv", "", 8): a}, score=32), "trimkv-trimkv")[2])
    code, lines, err = paired(one, state("model.state", {("trimkv", "", 8): a}, model_hash="cd"), "trimkv-trimkv")
    s.check("another model is said", code == 0 and "model_hash" in err and len(lines) == 1, lines, err)
    s.check("no budget in common", "no budget" in paired(one, state("b16.state", {("trimkv", "", 16): a}), "trimkv-trimkv")[2])
    s.check("no such row", "h2o" in paired(one, two, "trimkv-h2o")[2])
    s.check("no state", "no state file" in paired(s.file("x.tsv", b"a\tb\n"), "a-b")[2])


def by_source():
    """Documents of a source are one number; excluded sources; a single row."""
    a, b = documents(10, shift=1), documents(10)
    path = state("s.state", {("trimkv", "", 8): a, ("h2o", "", 8): b})
    source = dict(zip(a, "uuuvvwxyzz"))
    table = s.file("sources.tsv", ("doc_hash\tsource\n" + "".join(f"{d}\t{x}\n" for d, x in source.items())).encode())

    def means(of, names):
        return [np.mean([of(d) for d in a if source[d] == x]) for x in names]

    code, lines, err = paired("--sources", table, path, "trimkv-h2o")
    s.check("one line", code == 0 and len(lines) == 1, err)
    judged("by source", lines[0], "trimkv - h2o, B = 8", means(lambda d: a[d] - b[d], "uvwxyz"))
    code, lines, err = paired("--sources", table, "--without", "u,y", path, "trimkv")
    s.check("one line", code == 0 and len(lines) == 1, err)
    judged("a row by itself", lines[0], "trimkv, B = 8", means(a.get, "vwxz"))
    s.check("no such source", "no source t" in paired("--sources", table, "--without", "t", path, "trimkv")[2])
    s.check("no such table", "no table of doc_hash" in paired("--sources", path, path, "trimkv")[2])


def many():
    """More documents than sign patterns can be listed: p of a mean far from 0, and of one at 0."""
    a = documents(40)
    path = state("many.state", {("a", "", 1): {d: x + 3 for d, x in a.items()}, ("b", "", 1): a, ("c", "", 1): {d: x + (-1) ** i for i, (d, x) in enumerate(a.items())}})
    _, lines, _ = paired(path, "a-b", "c-b")
    s.check("far from 0", lines[0].endswith("* p = 0.0000"), lines)
    s.check("at 0", lines[1].endswith(" p = 1.0000") and "*" not in lines[1], lines)


def from_eval():
    """A file written by eval."""
    words = "the thing in there and other one is of an it he she ran red bit top hat ".split()
    text = s.file("t.txt", "".join(f" = T{k} = \n\n " + " ".join(words[(i * i + k) % len(words)] for i in range(80)) + " \n" for k in range(4)).encode())
    s.accepted("eval", ["eval", "-m", s.model(), "--data", text, "--methods", "h2o:recent=2,h2o:recent=6", "--budgets", "10,14", "--docs", "3",
                        "--prompt-tokens", "30", "--score-tokens", "6", "--state", s.path("e.state"), "-o", s.path("e.tsv")])
    code, lines, err = paired(s.path("e.state"), "h2o:recent=2-h2o:recent=6")
    with open(s.path("e.tsv")) as f:
        rows = [x.rstrip("\n").split("\t") for x in f if not x.startswith("#")]
    kl = {(r[0], r[1]): float(r[rows[0].index("kl")]) for r in rows[1:]}
    for line, budget in zip(lines, ("10", "14")):
        want = kl["h2o:recent=2", budget] - kl["h2o:recent=6", budget]
        s.check(f"B = {budget}", line.startswith(f"h2o:recent=2 - h2o:recent=6, B = {budget}: {want:+.3f}"), lines, want)
    s.check("both", code == 0 and len(lines) == 2, lines, err)


one_file()
typed_alike()
two_files()
by_source()
many()
from_eval()
s.finish()
