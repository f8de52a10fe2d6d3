#!/usr/bin/env python3
"""Kills ranks one at a time at random moments, in commands with synchronised ranks and in a study.
The repeated command continues or starts again, and its result has the bytes of one process.

KVFATE_TESTS=long kills a hundred ranks; otherwise a few."""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness import Suite

s = Suite()
LONG = os.environ.get("KVFATE_TESTS") == "long"
chance = random.Random(int(os.environ.get("KVFATE_SEED", "7")))
words = "the of and to in is it that was for on as with his they at be this from have or by one had not but what all were when we there can an your".split()
data = s.file("data.txt", "".join(f" = Number {i} = \n" + " ".join(chance.choices(words, k=700)) + "\n\n" for i in range(10)).encode())
ENV = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
       "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_mpi_yield_when_idle": "1", "KVFATE_PATIENCE": "2", "KVFATE_PYTHON": sys.executable}
mpirun = shutil.which("mpirun")
EFFECT = ["ablate", "-m", s.model(6), "--data", data, "--docs", "6", "--prompt-tokens", "90", "--score-tokens", "12", "--recent", "8", "-t", "1"]
TRAIN = ["train", "-m", s.model(6), "--data", data, "--length", "96", "--steps", "12", "--save-every", "1", "--check-every", "0",
         "--method", "trimkv:lr=1e-3,accumulate=4,M=8", "-t", "1"]
STUDY = {"models": [s.model(6)], "methods": ["full", "window", "h2o"], "budgets": [12, 24], "threads": 1, "text": [
    {"name": "text", "kind": "documents", "data": [data], "docs": 8, "prompt_tokens": 160, "score_tokens": 64},
    {"name": "sums", "kind": "mathematics", "data": ["sums.jsonl"], "count": 6, "most_tokens": 48}]}
s.file("sums.jsonl", "".join(json.dumps({"question": " ".join(chance.choices(words, k=20)), "answer": f"#### {i}"}) + "\n" for i in range(6)).encode())


def command(name, out, n):
    """Returns (argv, output files) of a command with n ranks."""
    before = [mpirun, "-n", str(n), s.exe] if n > 1 else [s.exe]
    if name == "effect":
        return [*before, *EFFECT, "-o", s.path(out + ".tsv")], [out + ".tsv"]
    if name == "train":
        return [*before, *TRAIN, "-o", s.path(out + ".safetensors")], [out + ".safetensors", out + ".safetensors.log.jsonl", out + ".safetensors.state"]
    s.file(out + ".json", json.dumps(STUDY).encode())
    return [s.exe, "study", s.path(out + ".json"), *(["--ranks", str(n)] if n > 1 else [])], [f"{out}-study/{x}" for x in ("study.tsv", "jobs/tiny6-text-s0.tsv", "jobs/tiny6-sums-s0.tsv")]


def read(name):
    try:
        return Path(s.path(name)).read_bytes()
    except OSError:
        return None


def start(argv):
    return subprocess.Popen(argv, env=ENV, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def below(pid):
    try:
        return [int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    except OSError:
        return []


def is_rank(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            return b"OMPI_COMM_WORLD_RANK=" in f.read() and os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(s.exe)
    except OSError:
        return False


def ranks_of(pid):
    """Returns the living descendants of a process that are ranks of kvfate."""
    return [y for x in below(pid) for y in ([x] if is_rank(x) else ranks_of(x))]


def forget(out):
    for name in os.listdir(s.work.name):
        if name.startswith(out):
            shutil.rmtree(s.path(name)) if os.path.isdir(s.path(name)) else os.remove(s.path(name))


def ended(p):
    """Returns the output of a command. If a rank died during MPI start-up, an mpirun without ranks
    may wait forever: it is killed."""
    alone = 0
    while True:
        try:
            return p.communicate(timeout=0.5)[0].decode(errors="replace")[-2000:]
        except subprocess.TimeoutExpired:
            alone = 0 if ranks_of(p.pid) else alone + 1
            for x in launchers(p.pid) if alone == 40 else []:
                os.kill(x, signal.SIGKILL)


def launchers(pid):
    """Returns the mpirun that is the process or one of its children."""
    return [x for x in (pid, *below(pid)) if program_of(x) in ("mpirun", "orterun", "mpiexec.hydra", "prterun")]


def program_of(pid):
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:  # it has just ended
        return ""


def one_dies(name, out, want):
    """Runs the command with several ranks, kills one at a random moment, and repeats until it
    succeeds. Returns how many were killed."""
    killed = 0
    while True:
        argv, made = command(name, out, chance.choice([2, 3, 4]))
        p = start(argv)
        while p.poll() is None and not ranks_of(p.pid):
            time.sleep(0.01)
        time.sleep(chance.random() * (1.5 if killed < 3 else 60))
        some = ranks_of(p.pid)
        if some and p.poll() is None:
            os.kill(chance.choice(some), signal.SIGKILL)
            killed += 1
        told = ended(p)
        if p.returncode == 0:
            break
    s.check(f"{name}: the bytes of one process after {killed} deaths", [read(x) for x in made] == want, told)
    return killed


wants = {}
for name in ("effect", "train", "study"):
    argv, made = command(name, name, 1)
    p = start(argv)
    told = p.communicate(timeout=170)[0].decode(errors="replace")[-2000:]
    wants[name] = [read(x) for x in made]
    s.check(f"{name} by one process", p.returncode == 0 and None not in wants[name], told)
if not mpirun or not os.path.exists(os.path.join(os.path.dirname(os.path.realpath(s.exe)), "kvfate_mpi.so")):
    print("deaths of ranks are not tried: no mpirun, or kvfate was built without MPI")
else:
    total = {name: 0 for name in wants}
    while min(total.values()) < (34 if LONG else 1):
        name = min(total, key=total.get)
        forget("k-")
        total[name] += one_dies(name, f"k-{name}", [x for x in wants[name]])
        print("so far:", total, flush=True)
    print("ranks that were killed:", *(f"{n} under {name}" for name, n in total.items()))
s.finish()
