#!/usr/bin/env python3
"""usage: test_export.py KVFATE LIBKVFTRACE TRIPS SOURCE_ROOT [--count N] [--seed S]

Random traces with all features of the format (tests/format/trips.py) are exported in every form and
imported again. Both traces must have equal contents, byte for byte, and equal digests. Parquet and
Feather are tested if pyarrow is installed. Also tests rejections, and that no file is replaced
without permission. `--count 10000` is the long proof."""
import argparse
import os
import subprocess
import sys
import tempfile

KVFATE, LIBRARY, TRIPS, ROOT = map(os.path.abspath, sys.argv[1:5])
sys.argv[1:5] = []
if os.environ.get("LD_LIBRARY_PATH") != os.path.dirname(LIBRARY):
    os.execve(sys.executable, [sys.executable, sys.argv[0], KVFATE, LIBRARY, TRIPS, ROOT, *sys.argv[1:]], {**os.environ, "LD_LIBRARY_PATH": os.path.dirname(LIBRARY)})
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "tests/format"), os.path.join(ROOT, "tests")]
from check import check, finish  # noqa: E402
import kvfate  # noqa: E402
from trips import Trip, held  # noqa: E402

FORMS = [("npz", "x.npz"), ("jsonl", "x.jsonl"), ("npy", "x"), ("tsv", "x")]
try:
    import pyarrow  # noqa: F401
    FORMS += [("parquet", "x"), ("feather", "x")]
except ImportError:
    print("pyarrow is not installed: Parquet and Feather are left out")


def content(trace):
    """Returns all contents of a trace for the comparison."""
    return {"meta": trace.meta_bytes, "steps": trace.steps, "heads": trace.heads,
            "schema": sorted((c.name, c.dtype.str, c.space, c.axis, c.flags, c.unit) for c in trace.schema),
            "values": {(c.name, l, h): held(c, l, h) for c in trace.schema for l in range(c.layers) for h in range(c.heads(l))},
            "texts": trace.texts, "notes": trace.note_bytes,
            "blobs": [(b.name, b.dtype, b.shape, b.layer, b.head, b.t0, b.data.tobytes()) for b in trace.blobs]}


def whole(trip):
    """Returns True if no data follow the last commit, so that the file's digest is that of the
    readable data."""
    return all(i < trip.steps for data in trip.data for values in data.values() for i in values) and all(i < trip.steps for i in trip.texts)


def trip_of(seed, path, folder, forms, all_of_it):
    with kvfate.open(path) as t:
        want, digest = content(t), t.digest
    for form, name in forms:
        out, again = os.path.join(folder, "%d-%s" % (seed, name)), os.path.join(folder, "%d-again.kvf" % seed)
        kvfate.export(path, out, form, overwrite=True)
        kvfate.import_trace(out, again, overwrite=True)
        with kvfate.open(again) as t:
            t.verify()
            got = content(t)
            for key in want:
                if not check("seed %d, %s: %s" % (seed, form, key), got[key] == want[key]):
                    print(str(want[key])[:600], str(got[key])[:600], sep="\n")
            if digest and all_of_it:
                check("seed %d, %s: digest" % (seed, form), t.digest == digest, t.digest, digest)


def trips(count, first, folder):
    for base in range(first, first + count, 50):
        made = []
        with open(os.path.join(folder, "write"), "wb") as f:
            for seed in range(base, min(base + 50, first + count)):
                trip, path = Trip(seed), os.path.join(folder, "%d.kvf" % seed)
                f.write(trip.script(path))
                made.append((seed, path if trip.closed else path + ".unfinished", whole(trip)))
        subprocess.run([TRIPS, "write", f.name], check=True)
        for seed, path, all_of_it in made:
            forms = [FORMS[seed % len(FORMS)]]
            trip_of(seed, path, folder, forms, all_of_it)
            for n in os.listdir(folder):
                if n.startswith("%d-" % seed) or n.startswith("%d." % seed):
                    subprocess.run(["rm", "-rf", os.path.join(folder, n)], check=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--count", type=int, default=180)
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trips(a.count, a.seed, folder)
    finish()


main()
