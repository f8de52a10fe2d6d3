#!/usr/bin/env python3
"""The rows of a study joined by SQL: what two texts say of the same model, method, budget and seed, side by side.

usage: study_join.py STUDY TEXT COLUMN TEXT COLUMN
       study_join.py study-tasks needle-1k kl needle-4k right

STUDY is the folder of a study (docs/guide/study.md).  The query is the same in SQLite, in DuckDB (from 'STUDY/study.parquet') and in R."""
import os
import sqlite3
import sys

JOIN = """
    SELECT a.model, a.method, a.budget, a.seed, a."{x}" AS x, b."{y}" AS y
    FROM {study} a JOIN {study} b USING (model, method, budget, seed)
    WHERE a.text = ? AND b.text = ?
    ORDER BY a.model, a.method, a.budget, a.seed"""


def query(x, y, study="study"):
    return JOIN.format(x=x.replace('"', '""'), y=y.replace('"', '""'), study=study)


def main():
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    folder, first, x, second, y = sys.argv[1:]
    base = sqlite3.connect("file:%s?mode=ro" % os.path.join(folder, "study.sqlite"), uri=True)
    print("model", "method", "budget", "seed", "%s.%s" % (first, x), "%s.%s" % (second, y), sep="\t")
    for row in base.execute(query(x, y), (first, second)):
        print(*("" if v is None else v for v in row), sep="\t")


if __name__ == "__main__":
    main()
