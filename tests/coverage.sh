#!/bin/sh
# What of libtrace its tests reach: the suite `format` and the stored inputs of the fuzz targets.
# usage: tests/coverage.sh [BUILD]     (BUILD is set up if it is not there; build-coverage)
#
# Needs gcc and lcov.  Prints lines and branches of each file, then what no test reaches, and fails
# below 97 % of lines or 92 % of branches.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build-coverage}
rc='--rc lcov_branch_coverage=1'
[ -d "$build" ] || meson setup "$build" -Db_coverage=true --buildtype=debug >/dev/null
ninja -C "$build" >/dev/null
find "$build" -name '*.gcda' -delete
meson test -C "$build" --no-rebuild -t 4 --quiet --suite format --suite fuzz
# shellcheck disable=SC2086
lcov -q $rc -c -d "$build/libtrace/libkvftrace_static.a.p" -o "$build/libtrace.info" 2>/dev/null
python3 - "$build/libtrace.info" <<'END'
import collections
import os
import sys

files, name = collections.defaultdict(lambda: ({}, {})), None
for line in open(sys.argv[1]):
    key, _, rest = line.strip().partition(":")
    if key == "SF":
        name = os.path.basename(rest)
    elif key == "DA":
        number, count = rest.split(",")[:2]
        files[name][0][int(number)] = int(count)
    elif key == "BRDA":
        number, block, branch, count = rest.split(",")
        files[name][1][int(number), block, branch] = 0 if count == "-" else int(count)


def share(counts):
    reached = sum(c > 0 for c in counts)
    return reached, len(counts), 100 * reached / max(len(counts), 1)


every = [[], []]
print(f"{'file':20} {'lines':>16} {'branches':>18}")
for name in sorted(files):
    row = f"{name:20}"
    for k, counts in enumerate(files[name]):
        every[k] += counts.values()
        row += "  %5d/%5d %5.1f" % share(counts.values())
    print(row)
lines, branches = (share(e) for e in every)
print(f"{'libtrace':20}  %5d/%5d %5.1f  %5d/%5d %5.1f" % (*lines, *branches))
for name in sorted(files):
    missed = sorted(n for n, c in files[name][0].items() if not c)
    if missed:
        print(f"not reached in {name}:", *missed)
sys.exit(lines[2] < 97 or branches[2] < 92)
END
