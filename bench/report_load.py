#!/usr/bin/env python3
"""Measure how fast a page of `kvfate report` opens in headless Chromium.

usage: report_load.py PAGE.html [RUNS]

Prints milliseconds after the start of the navigation: the first paint, the first map (the page then takes input), and all panels; for
each run, then medians.  Also prints the load of the machine, which must be below the number of cores.  `make_report_trace X.kvf 8192 18
4 8 1 eguds` of build/tests/report and `kvfate report X.kvf --max-size 100 -o PAGE.html` make a page of 15 MB.
"""
import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "report"))
import browser  # noqa: E402

TIMES = """(() => { const of = (name) => Math.round(performance.getEntriesByName(name)[0].startTime);
    return { paint: of('first-contentful-paint'), map: of('kvfate-map'), panels: of('kvfate-panels') }; })()"""


def load(path):
    b = browser.Browser(browser.find() or sys.exit("no Chromium here"))
    try:
        b.size(1400, 900)
        b.open(path)
        b.until("performance.getEntriesByName('kvfate-panels').length > 0", 120)
        return b.run(TIMES)
    finally:
        b.close()


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__.split("\n\n")[1])
    rows = [load(sys.argv[1]) for _ in range(int(sys.argv[2]) if len(sys.argv) == 3 else 5)]
    for row in rows:
        print(*(f"{k} {v} ms" for k, v in row.items()), sep=", ")
    print("median:", ", ".join(f"{k} {statistics.median(r[k] for r in rows):.0f} ms" for k in rows[0]),
          f"; {os.path.getsize(sys.argv[1]) / 1e6:.1f} MB, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
