"""Measures which tests reach which lines of C. This gives the order in which tests/mutate.py runs
them.

Reach.measure builds the tree once with line counters (gcov), runs every test with separate counters
and stores {test: seconds, {file: lines}} in DIR/reach.json. Files are identified by their digest:
measurements of another version of a file are not used.
"""
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

OWN = 8  # tests that reach most of a file were made for it, whatever their time
WRAPPED = "build-reach.sh"  # the wrapper's name, as meson writes it to its log
WRAPPER = """#!/bin/sh
# One test with counters of its own.
mkdir -p "$KVF_COUNTS"
GCOV_PREFIX=$(mktemp -d "$KVF_COUNTS/XXXXXXXX")
export GCOV_PREFIX
printf '%s\\n' "$@" > "$GCOV_PREFIX/argv"
exec "$@"
"""


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]


def listed(build):
    shown = subprocess.run(["meson", "introspect", build, "--tests"], capture_output=True, text=True, check=True).stdout
    return json.loads(shown)


def tests_of(build):
    """Returns {lines of the command: (name, seconds)} of the tests of a build folder, with the
    times of its last run."""
    seconds = {}
    with open(os.path.join(build, "meson-logs", f"testlog-{WRAPPED}.json"), encoding="utf-8") as f:
        for test in map(json.loads, f):
            name = test["name"].split(" / ")[-1]
            seconds[name] = max(test["duration"], seconds.get(name, 0))
    return {"".join(w + "\n" for w in t["cmd"]): (t["name"], seconds.get(t["name"], 60.)) for t in listed(build)}


def lines_of(folder, build, root, files):
    """Returns {file: [lines]} reached according to the counters below folder, for the given source
    files."""
    counts, stems = [], {os.path.basename(f).rsplit(".", 1)[0] for f in files}
    for at, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".gcda") and any(stem in name for stem in stems):
                notes = os.path.join(at, name)[len(folder):-5] + ".gcno"
                if os.path.exists(notes):
                    os.symlink(notes, os.path.join(at, name)[:-5] + ".gcno")
                    counts.append(os.path.join(at, name))
    found = {}
    for first in range(0, len(counts), 40):
        out = subprocess.run(["gcov", "--json-format", "--stdout", *counts[first:first + 40]], capture_output=True, text=True, cwd=build).stdout
        for text in out.splitlines():
            for entry in json.loads(text)["files"]:
                name = os.path.relpath(os.path.join(build, entry["file"]), root)
                if name in files:
                    found.setdefault(name, set()).update(x["line_number"] for x in entry["lines"] if x["count"])
    return {name: sorted(lines) for name, lines in found.items()}


class Reach:
    """The measurements stored in folder, for the tree at root. build: the folder whose tests will
    run."""

    def __init__(self, folder, root, build):
        self.path, self.root, self.tests, self.digests = os.path.join(folder, "reach.json"), root, {}, {}
        if os.path.exists(self.path):
            known = json.loads(Path(self.path).read_text(encoding="utf-8"))
            self.tests, self.digests = known["tests"], known["digests"]
        self.new = sorted({t["name"] for t in listed(build) if "kvfate:long" not in t["suite"]} - set(self.tests))  # new

    def measure(self, files):
        build, counts = os.path.join(self.root, "build-reach"), os.path.join(self.root, "build-reach", "counts")
        wrapper = os.path.join(self.root, WRAPPED)
        Path(wrapper).write_text(WRAPPER, encoding="ascii")
        os.chmod(wrapper, 0o755)
        if not os.path.exists(os.path.join(build, "build.ninja")):
            subprocess.run(["meson", "setup", build, "-Dtests=enabled", "-Ddebug=false", "-Db_coverage=true"], cwd=self.root, check=True,
                           stdout=subprocess.DEVNULL)
        subprocess.run(["ninja", "-C", build], check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(counts, ignore_errors=True)
        subprocess.run(["meson", "test", "-C", build, "--no-rebuild", "--setup", "normal", "--wrap", wrapper, "--timeout-multiplier", "5"],
                       env={**os.environ, "KVF_COUNTS": counts, "KVFATE_SLOW": "200"}, stdout=subprocess.DEVNULL)
        self.read(build, counts, {f for f in files if f.endswith((".c", ".h"))})
        shutil.rmtree(counts)

    def read(self, build, counts, files):
        """Stores the lines that each test reached."""
        known = tests_of(build)
        for name in os.listdir(counts):
            folder = os.path.join(counts, name)
            test, seconds = known[Path(os.path.join(folder, "argv")).read_text(encoding="utf-8")]
            mine = self.tests.setdefault(test, {"seconds": seconds, "lines": {}})
            for path, lines in lines_of(folder, build, self.root, files).items():
                mine["lines"][path] = sorted({*mine["lines"].get(path, []), *lines})
        self.new = []
        self.digests = {f: digest(os.path.join(self.root, f)) for f in files}
        with open(self.path, "w", encoding="utf-8") as f:
            json.dump({"tests": self.tests, "digests": self.digests}, f)

    def of(self, path, first, last):
        """Returns the tests that reach lines first to last of path. The shortest comes first, soon
        followed by those that reach most of the file. For lines that no test reaches, such as
        declarations, it returns the tests that reach the file. Returns None if it is unknown."""
        if self.digests.get(path) != digest(os.path.join(self.root, path)):
            return None
        near = self.near(path, lambda x: first <= x <= last) or self.near(path, lambda x: True)
        if not near:
            return None
        short = [name for _, name in sorted([(0, name) for name in self.new] + near)]
        own = sorted(short, key=lambda name: -len(self.tests[name]["lines"].get(path, [])) if name in self.tests else 0)[:OWN]
        return list(dict.fromkeys(short[:2 * OWN] + own + short))

    def near(self, path, wanted):
        return [(t["seconds"], name) for name, t in self.tests.items() if any(map(wanted, t["lines"].get(path, [])))]
