#!/usr/bin/env python3
"""Compare the KL of two rows of `kvfate eval`, document by document, from its state files.

  usage: bench/paired.py STATE A-B...             e.g.  bench/paired.py wiki.state cake-snapkv gkv-rkv
         bench/paired.py STATE STATE2 A-B...      A of the first file, B of the second, on their common documents
         bench/paired.py STATE A...               the KL of a single row
         bench/paired.py STATE...                 the names of the rows
         bench/paired.py --sources SOURCES [--without X,Y] STATE...
                                                  documents of a source count once, as their mean; omits sources X and Y

It prints the mean over the documents, a 95 % interval and a p value.  The interval is Student's t for 4 to 9
documents, a percentile bootstrap of 5,000 replicates with a fixed seed for more, nan for fewer; * means that it
excludes 0. The two-sided p is of a permutation test: the fraction of all sign patterns (of 100,000 random ones for
more than 16 documents) with a mean at least as far from 0. Rows have the names that were typed (`trimkv:sinks=4`).
If a file has several rows with one name, their differences follow: `trimkv[gates=...]`. Documents are equal if their
tokens are.  SOURCES is a table of doc_hash and source (claims.sh writes it). It needs numpy.
"""
import os
import sys

import numpy as np

REPLICATES, ALL_SIGNS = 5000, 16
STUDENT = {4: 3.1824, 5: 2.7764, 6: 2.5706, 7: 2.4469, 8: 2.3646, 9: 2.3060}  # quantile 0.975 for this number of documents


class State:
    """rows: {name: {budget: {hash of the document: kl}}}; meta: the file's header."""

    def __init__(self, path):
        self.path, self.meta, self.rows = path, {}, {}
        with open(path, encoding="utf-8") as f:
            lines = f.read().split("\n")[:-1]  # text after the last newline is an incomplete row
        for line in lines:
            if line.startswith("# "):
                key, _, value = line[2:].partition(": ")
                self.meta[key] = value
        lines = [line.split("\t") for line in lines if not line.startswith("#")]
        if "kvfate eval results" not in self.meta or not lines:
            sys.exit(f"paired.py: {path} is no state file of kvfate eval")
        found = [dict(zip(lines[0], line)) for line in lines[1:]]
        names = self.names({(r["method"], int(r["budget"]), r["options"]) for r in found})
        for r in found:
            name = names[r["method"], int(r["budget"]), r["options"]]
            self.rows.setdefault(name, {}).setdefault(int(r["budget"]), {})[r["doc_hash"]] = float(r["kl"])

    @staticmethod
    def names(rows):
        """Return {(method, budget, options): name}."""
        names = {}
        for method, budget, options in rows:
            alike = [set(o.split(",")) for m, b, o in rows if (m, b) == (method, budget)]
            shared = set.intersection(*alike)
            own = [o for o in options.split(",") if o not in shared]
            names[method, budget, options] = method + (f"[{','.join(own)}]" if len(alike) > 1 else "")
        return names


def split(pair, one, other):
    """Return the two names of "A-B", which may contain hyphens; for "A" the second is None."""
    if pair in one.rows:
        return pair, None
    for i, c in enumerate(pair):
        if c == "-" and pair[:i] in one.rows and pair[i + 1:] in other.rows:
            return pair[:i], pair[i + 1:]
    sys.exit(f"paired.py: '{pair}' is not A-B with A of {one.path} ({' '.join(sorted(one.rows))}) and B of {other.path} "
             f"({' '.join(sorted(other.rows))})")


def check_settings(one, other):
    for key in ("prompt_tokens", "score_tokens"):
        if one.meta.get(key) != other.meta.get(key):
            sys.exit(f"paired.py: {one.path} and {other.path} differ in {key}: {one.meta.get(key)} and {other.meta.get(key)}")
    for key in ("model_hash", "precision", "kv_type"):
        if one.meta.get(key) != other.meta.get(key):
            print(f"note: the files differ in {key}: {one.meta.get(key)} and {other.meta.get(key)}", file=sys.stderr)


def permutation_p(x, rng):
    n = len(x)
    if n <= ALL_SIGNS:
        signs = 1 - 2 * (np.arange(2**n)[:, None] >> np.arange(n) & 1)
    else:
        signs = np.vstack([np.ones(n, int), rng.choice([-1, 1], (100000, n))])
    return np.mean(np.abs(signs @ x) >= abs(x.sum()) * (1 - 1e-12))


def by_source(kl, sources):
    """Return {source: mean}, or the documents unchanged."""
    if sources is None:
        return kl
    groups = {}
    for d, x in kl.items():
        if d in sources:
            groups.setdefault(sources[d], []).append(x)
    return {s: sum(x) / len(x) for s, x in groups.items()}


def read_sources(path, without):
    with open(path, encoding="utf-8") as f:
        rows = [line.split("\t") for line in f.read().splitlines() if not line.startswith("#")]
    if any(len(r) != 2 for r in rows) or rows[0] != ["doc_hash", "source"]:
        sys.exit(f"paired.py: {path} is no table of doc_hash and source")
    unknown = set(without) - {s for _, s in rows[1:]}
    if unknown:
        sys.exit(f"paired.py: {path} has no source {sorted(unknown)[0]}")
    return {d: s for d, s in rows[1:] if s not in without}


def interval(x, rng):
    """Return the ends of the 95 % interval of the mean."""
    if len(x) < min(STUDENT):
        return np.nan, np.nan
    if len(x) in STUDENT:
        radius = STUDENT[len(x)] * x.std(ddof=1) / np.sqrt(len(x))
        return x.mean() - radius, x.mean() + radius
    return np.percentile(x[rng.integers(0, len(x), (REPLICATES, len(x)))].mean(1), [2.5, 97.5])


def compare(name, budget, one, other, rng):
    """name: of the difference; one, other: {document or source: kl}"""
    both = [d for d in one if d in other]
    if not both:
        sys.exit(f"paired.py: {name}, B = {budget}: the two rows share no document")
    x = np.array([one[d] - other[d] for d in both])
    low, high = interval(x, rng)
    some = "" if len(one) == len(other) == len(both) else f", {len(both)} documents of {len(one)} and {len(other)}"
    print(f"{name}, B = {budget}{some}: {x.mean():+.3f} ({low:+.3f}..{high:+.3f}){' *' if low > 0 or high < 0 else ''}"
          f" p = {permutation_p(x, rng):.4f}")


def main():
    argv, options = sys.argv[1:], {"--sources": None, "--without": ""}
    while len(argv) > 1 and argv[0] in options:
        options[argv[0]], argv = argv[1], argv[2:]
    sources = options["--sources"] and read_sources(options["--sources"], options["--without"].split(",") if options["--without"] else [])
    files = argv[:2] if len(argv) > 1 and os.path.isfile(argv[1]) else argv[:1]
    pairs = argv[len(files):]
    if not files:
        sys.exit(__doc__)
    states = [State(path) for path in files]
    if not pairs:
        for state in states:
            print(*(f"{state.path}\t{name}\t{' '.join(map(str, sorted(budgets)))}" for name, budgets in sorted(state.rows.items())), sep="\n")
    one, other = states[0], states[-1]
    check_settings(one, other)
    rng = np.random.default_rng(0)
    for pair in pairs:
        a, b = split(pair, one, other)
        budgets = sorted(set(one.rows[a]) & set(other.rows[b]) if b else one.rows[a])
        if not budgets:
            sys.exit(f"paired.py: {a} and {b} have no budget in common")
        for budget in budgets:
            kl = by_source(one.rows[a][budget], sources)
            compare(f"{a} - {b}" if b else a, budget, kl, by_source(other.rows[b][budget], sources) if b else dict.fromkeys(kl, 0.0), rng)


if __name__ == "__main__":
    main()
