"""Shared by tests of the program on a device: running it, files, and checks of its messages.

The environment variable KVF_EMULATED describes an emulated device (emulation.hh)."""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import check  # noqa: E402
from check import expect  # noqa: E402

work = tempfile.TemporaryDirectory(prefix="kvfate-device-")
TEXT = "She sells sea shells by the sea shore. "
LIMIT = 120  # time limit of a run in seconds


def path(name):
    return os.path.join(work.name, name)


def read(name):
    return Path(name).read_bytes()


def environment(more):
    """Selects the portable CPU kernels, which have the device's order of sums."""
    return {**os.environ, "KVFATE_CPU_MASK": "0", **more}


def judged(r, argv):
    r.said = r.stderr.decode("utf-8", "replace")
    expect("emulation" not in r.said, "the emulation found a fault", argv, r.said)
    return r


def run(exe, argv, env=None, **more):
    return judged(subprocess.run([exe, *map(str, argv)], capture_output=True, timeout=LIMIT, env=environment(env or {}), **more), argv)


def told(name, r, *words, code=1):
    """Checks for one sentence with the words, and an empty standard output."""
    ok = r.returncode == code and r.said.count("\n") == 1 and not r.stdout
    return expect(ok and all(w in r.said for w in words), name, r.returncode, r.said, words)


def train_data():
    name = path("train.txt")
    Path(name).write_text("".join(f" = Title {i} = \n" + f" The {i} grey cats of the house sleep .\n" * 12 for i in range(12)), encoding="utf-8")
    return name


def losses(name):
    lines = [json.loads(x) for x in read(name + ".log.jsonl").splitlines()]
    return [x["loss"] for x in lines if "loss" in x], [x["norm"] for x in lines if "norm" in x]
