#!/usr/bin/env python3
"""Runs examples/claims_texts.sh on small texts: sizes, the held-out third, continuation, and no text twice.

usage: test_claims_texts.py SOURCE_ROOT"""
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402

SCRIPT = os.path.join(os.path.abspath(sys.argv[1]), "examples", "claims_texts.sh")


def texts(out, sources, **more):
    """Runs the script; returns its errors and {name: text}."""
    env = {**os.environ, "KVFATE": "false", "SOURCES": sources, **more}
    r = subprocess.run([SCRIPT, out], env=env, capture_output=True, text=True, timeout=100)
    check(sources + ": it succeeds", r.returncode == 0, r.stderr)
    return r.stderr, {p.stem: p.read_bytes() for p in Path(out).glob("*-*.txt")}


def main():
    with tempfile.TemporaryDirectory(prefix="kvfate-texts-") as work:
        article, maths, made = os.path.join(work, "articles"), os.path.join(work, "maths"), os.path.join(work, "texts")
        Path(article).write_text("".join(f"Line {i} of an article about \u00e9.\n" for i in range(1000)), encoding="utf-8")
        Path(maths).write_text("".join('{"question": "What is %d + 1?", "answer": "It is <<%d+1=2>>2.\\n#### 2"}\n' % (i, i) for i in range(800)), encoding="utf-8")
        _, found = texts(made, "encyclopedia mathematics guide", DOCS="5", BYTES="3000", ENCYCLOPEDIA=article, MATHEMATICS=maths)
        names = [f"{s}-{i}" for s in ("encyclopedia", "guide", "mathematics") for i in range(5)]
        check("texts", sorted(found) == names and sorted(os.listdir(made)) == sorted([n + ".txt" for n in names] + ["texts.tsv"]), os.listdir(made))
        for name, text in found.items():
            check("size of " + name, 2625 <= len(text) <= 3000 and b"<<" not in text, len(text))
        held = {n for s in ("encyclopedia", "guide", "mathematics") for n in sorted((f"{s}-{i}" for i in range(5)), key=lambda n: hashlib.sha256(n.encode()).hexdigest())[:2]}
        parts = {line.split("\t")[0]: line.split("\t")[1:] for line in Path(os.path.join(made, "texts.tsv")).read_text(encoding="utf-8").splitlines()[1:]}
        check("the held-out third", parts == {n: [n.rsplit("-", 1)[0], "held-out" if n in held else "development"] for n in names}, parts)

        # Packages of one source have the same licence and the same changes, and /usr/share/common-licenses has links.
        both = os.path.join(work, "both")
        _, found = texts(both, "licence changes", DOCS="12", BYTES="4096")
        check("no text twice", len(set(found.values())) == len(found) > 3, {n: hashlib.sha256(t).hexdigest()[:8] for n, t in sorted(found.items())})
        lost = sorted(found)[1]
        os.remove(os.path.join(both, lost + ".txt"))
        _, again = texts(both, "licence changes", DOCS="12", BYTES="4096")
        check("continued: no text twice", set(again) == set(found) and len(set(again.values())) == len(again), sorted(again))
        check("continued: the others stay", all(again[n] == found[n] for n in found if n != lost))

        Path(article).write_text("One line.\n" * 2000, encoding="utf-8")
        said, found = texts(os.path.join(work, "same"), "encyclopedia", DOCS="3", BYTES="2000", ENCYCLOPEDIA=article)
        check("a source that repeats itself", list(found) == ["encyclopedia-0"] and said.count("or repeats another text") == 2, said, sorted(found))
    finish()


if __name__ == "__main__":
    main()
