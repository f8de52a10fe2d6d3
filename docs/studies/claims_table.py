#!/usr/bin/env python3
"""Prints the table of verdicts of docs/studies/claims.md from the table of `kvfate claims FOLDER -o claims.tsv`.

usage: claims_table.py CLAIMS.tsv [HELD_OUT.tsv]      the value of the second table is a column of its own"""
import collections
import math
import sys

ORDER = ("supported", "contradicted", "undecided", "unspecific", "unguarded", "not comparable here", "not run", "untestable here")


def read(path):
    with open(path, encoding="utf-8") as f:
        rows = [line.rstrip("\n").split("\t") for line in f if not line.startswith("#")]
    return [dict(zip(rows[0], r)) for r in rows[1:]]


def number(row, *names):
    v = [float(row[n]) for n in names]
    if math.isnan(v[0]):
        return ""
    return f"{v[0]:.3g}" + ("" if len(v) == 1 or math.isnan(v[1]) else f" ({v[1]:.3g} .. {v[2]:.3g})")


def claimed(row):
    if not row["than"]:
        return ""
    return f"{row['null']} .. {row['null_high']}" if row["than"] == "between" else f"{row['than']} {row['null']}"


def count(row):
    n, units = int(row["documents"]), int(row["units"])
    text = f"{n} / {units}" if 0 < units < n else str(units or "")
    return text + (f", {row['on_side']} on side" if int(row["on_side"]) >= 0 and units > 1 else "")


def main(path, held_out=None):
    rows, other = read(path), {r["id"]: r for r in read(held_out)} if held_out else {}
    counts = collections.Counter(r["verdict"] for r in rows)
    print(f"Of {len(rows)} sentences: " + ", ".join(f"{counts[v]} {v}" for v in ORDER) + ".\n")
    print("| verdict | claim | value (95 %) | claimed | held out alone | n | null data | difference (95 %) | I^2 | why |\n|" + "---|" * 10)
    for r in sorted(rows, key=lambda r: ORDER.index(r["verdict"])):
        cells = (r["verdict"], f"`{r['id']}`", number(r, "value", "low", "high"), claimed(r), number(other[r["id"]], "value") if r["id"] in other else "", count(r),
                 r["null_check"] + (f" {number(r, 'null_value')}" if number(r, "null_value") else ""),
                 number(r, "difference", "difference_low", "difference_high"), number(r, "i2"), r["why"] if r["verdict"] != "untestable here" else "")
        print("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")


if __name__ == "__main__":
    main(*sys.argv[1:])
