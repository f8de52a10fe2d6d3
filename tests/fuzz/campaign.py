#!/usr/bin/env python3
"""Fuzzes every target in turns, for days if needed, and counts executions.

usage: campaign.py [-j JOBS] [--seconds S | --total N] [--turn S] [--only NAME,...] BUILD STATE
       campaign.py --show STATE         the table of the results so far
       campaign.py --minimise BUILD STATE   reduces the stored archives to the smallest inputs with
                                            equal coverage

BUILD is a folder that meson set up as described in HACKING.md for fuzzing: clang, AddressSanitizer,
UndefinedBehaviorSanitizer, and -fno-sanitize-recover, so that every finding ends the run. STATE
stores corpora, failing inputs, and counts.json. An interrupted campaign continues there, and
executions add up. An execution is one input for a target. Each target has turns of --turn seconds
(60), fast targets more of them. The campaign ends after --seconds, or after --total executions. A
finding is a file in STATE/TARGET/found; its target continues.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import corpora  # noqa: E402

LOOSE = ("figures",)  # fontconfig and pango keep caches until the end: no leak detection
# name: (maximum bytes of an input, fraction of the time)
TARGETS = {
    "analyze": (1024, 6),
    "chat": (4096, 2),
    "checkpoint": (1024, 4),
    "codec": (512, 24),
    "copy": (1024, 2),
    "corpus": (4096, 1),
    "figures": (1024, 2),
    "folder": (4096, 1),
    "gates": (4096, 2),
    "gguf": (16384, 1),
    "jsonl": (2048, 2),
    "layout": (256, 36),
    "options": (1024, 6),
    "packs": (2048, 4),
    "plan": (1024, 2),
    "report": (1024, 1),
    "table": (4096, 3),
    "tokenizer": (1024, 1),
    "tokenizer_json": (2048, 4),
    "tokenizer_model": (2048, 4),
    "trace": (8192, 2),
    "vocabulary": (2048, 4),
}
SLOW = 5  # CPU seconds that no input may use
LIMITS = ["-timeout=60", "-rss_limit_mb=2048", "-print_final_stats=1", "-verbosity=1"]


class State:
    """The contents of counts.json: {target: {"executions", "seconds", "turns", "findings":
    [file]}}."""

    def __init__(self, folder):
        self.folder, self.path, self.lock = folder, os.path.join(folder, "counts.json"), threading.Lock()
        os.makedirs(folder, exist_ok=True)
        self.targets = json.load(open(self.path)) if os.path.exists(self.path) else {}

    def add(self, name, executions, seconds, findings):
        with self.lock:
            t = self.targets.setdefault(name, {"executions": 0, "seconds": 0, "turns": 0, "findings": []})
            t["executions"] += executions
            t["seconds"] = round(t["seconds"] + seconds, 1)
            t["turns"] += 1
            t["findings"] += [f for f in findings if f not in t["findings"]]
            with open(self.path + ".part", "w") as f:
                json.dump(self.targets, f, indent=1, sort_keys=True)
                f.flush()
                os.fsync(f.fileno())
            os.replace(self.path + ".part", self.path)

    def total(self):
        return sum(t["executions"] for t in self.targets.values())

    def show(self):
        print(f"{'target':12} {'executions':>14} {'seconds':>9} {'per second':>11} {'findings':>9}")
        for name, t in sorted(self.targets.items()):
            print(f"{name:12} {t['executions']:14,} {t['seconds']:9.0f} {t['executions'] / max(t['seconds'], 1):11,.0f} {len(t['findings']):9}")
        found = sum(len(t["findings"]) for t in self.targets.values())
        print(f"{'all':12} {self.total():14,} {sum(t['seconds'] for t in self.targets.values()):9.0f} {'':11} {found:9}")
        return found


def program(build, name):
    path = os.path.join(build, "tests", "fuzz", "fuzz_" + name)
    return path if os.path.exists(path) else None


def environment(name):
    return {**os.environ, "ASAN_OPTIONS": "detect_leaks=0" if name in LOOSE else ""}


def is_finding(build, name, path):
    """Returns True if a reported input is a real finding and not only slow on a busy machine: real
    slow inputs use seconds of CPU time."""
    if not os.path.basename(path).startswith(("timeout-", "slow-unit-")):
        return True
    p = subprocess.Popen([program(build, name), "-timeout=600", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(name))
    _, p.returncode, used = os.wait4(p.pid, 0)
    if p.returncode or used.ru_utime + used.ru_stime > SLOW:
        return True
    os.remove(path)
    return False


def turn(build, state, name, seconds):
    """One run of a target: its executions and findings are added to the state."""
    most = TARGETS[name][0]
    corpus, found = (os.path.join(state.folder, name, part) for part in ("corpus", "found"))
    os.makedirs(corpus, exist_ok=True)
    os.makedirs(found, exist_ok=True)
    stored = os.path.join(build, "tests", "fuzz", "corpus", name)
    before = set(os.listdir(found))
    argv = [program(build, name), *LIMITS, f"-max_len={most}", f"-max_total_time={seconds}", f"-artifact_prefix={found}/", corpus,
            *([stored] if os.path.isdir(stored) else [])]
    began = time.monotonic()
    log = os.path.join(state.folder, name, "log")
    with open(log, "wb") as out:
        code = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=out, stdin=subprocess.DEVNULL, env=environment(name)).returncode
    text = open(log, errors="replace").read()
    done = re.findall(r"stat::number_of_executed_units:\s+(\d+)", text) or re.findall(r"^#(\d+)", text, re.M) or ["0"]
    aside = set(os.listdir(found)) - before
    new = sorted(f for f in aside if is_finding(build, name, os.path.join(found, f)))
    if code and not aside:
        new = [f"exit status {code}"]
    if new:
        shutil.copy(log, os.path.join(state.folder, name, f"log.{new[0].replace(' ', '_')}"))
    state.add(name, int(done[-1]), time.monotonic() - began, new)


def campaign(o):
    state = State(o.state)
    names = [n for n in (o.only.split(",") if o.only else TARGETS) if program(o.build, n)]
    if not names:
        sys.exit(f"{o.build}: no fuzz targets are there")
    ends = time.monotonic() + o.seconds if o.seconds else None

    def over():
        return (ends and time.monotonic() >= ends) or (o.total and state.total() >= o.total)

    lock, running = threading.Lock(), dict.fromkeys(names, 0)

    def due(name):
        done = state.targets.get(name, {"seconds": 0})["seconds"] + o.turn * running[name]
        return done / TARGETS[name][1]

    def work():
        while not over():
            with lock:
                name = min(names, key=due)
                running[name] += 1
            seconds = o.turn if not ends else max(1, min(o.turn, int(ends - time.monotonic()) + 1))
            turn(o.build, state, name, seconds)
            running[name] -= 1

    with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        for done in [pool.submit(work) for _ in range(o.jobs)]:
            done.result()
    return state.show()


def thinned(files, most):
    """Returns `most` of the inputs, of all sizes up to 4 KB."""
    names = sorted((f for f in files if len(files[f]) <= 4096), key=lambda f: (len(files[f]), f))
    step = max(len(names) / most, 1)
    return {names[int(k * step)]: files[names[int(k * step)]] for k in range(min(most, len(names)))}


def minimise(o):
    """Writes the inputs that libFuzzer keeps of the state's and the stored ones, smallest first, to
    the archive."""
    for name, (most, _) in TARGETS.items():
        sources = [os.path.join(o.state, name, "corpus"), os.path.join(o.build, "tests", "fuzz", "corpus", name)]
        sources = [s for s in sources if os.path.isdir(s)]
        if (o.only and name not in o.only.split(",")) or not sources or not program(o.build, name):
            continue
        with tempfile.TemporaryDirectory() as out:
            subprocess.run([program(o.build, name), "-merge=1", *LIMITS, f"-max_len={most}", out, *sources], check=True,
                           env=environment(name), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            files = {f: open(os.path.join(out, f), "rb").read() for f in os.listdir(out)}
        kept = {n: data for n, data in corpora.read(name).items() if not re.fullmatch("[0-9a-f]{40}", n)}  # named inputs stay
        kept |= thinned({f: data for f, data in files.items() if data not in kept.values()}, o.most)
        corpora.write(name, kept)
        print(f"{name:12} {len(kept):6} inputs, {os.path.getsize(corpora.archive(name)):8} bytes")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("-j", "--jobs", type=int, default=1)
    p.add_argument("--seconds", type=float)
    p.add_argument("--total", type=lambda s: int(float(s)))
    p.add_argument("--turn", type=int, default=60)
    p.add_argument("--only")
    p.add_argument("--show", metavar="STATE")
    p.add_argument("--minimise", action="store_true")
    p.add_argument("--most", type=int, default=300, help="inputs that --minimise puts into an archive: replays are to take no more than seconds")
    p.add_argument("build", nargs="?")
    p.add_argument("state", nargs="?")
    o = p.parse_args()
    if o.show:
        sys.exit(1 if State(o.show).show() else 0)
    if not o.build or not o.state:
        p.error("BUILD and STATE are missing")
    if o.minimise:
        minimise(o)
    else:
        sys.exit(1 if campaign(o) else 0)


if __name__ == "__main__":
    main()
