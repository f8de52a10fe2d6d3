#!/usr/bin/env python3
"""Distributed work: by ranks that mpirun starts, some of which are killed, and by shards that are
joined in any order. The results must have the bytes of one process.

KVFATE_TESTS=long kills a hundred ranks, and runs every command with 1, 2 and 4 ranks."""
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness import Suite
from results import signed

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "analyze"))

s = Suite()
LONG = os.environ.get("KVFATE_TESTS") == "long"
chance = random.Random(5)
words = "the of and to in is it that was for on as with his they at be this from have or by one had not but what all were when we there can an your".split()
# Texts with headings are documents (docs/reference/eval.md).
data = s.file("data.txt", "".join(f" = Number {i} = \n" + " ".join(chance.choices(words, k=700)) + "\n\n" for i in range(10)).encode())
EVAL = ["eval", "-m", s.model(6), "--data", data, "--docs", "8", "--prompt-tokens", "160", "--score-tokens", "64", "--budgets", "12,24",
        "--methods", "h2o,snapkv:window=4,window", "-t", "1"]
prompts = s.file("prompts.jsonl", "".join('{"prompt": "%s", "n": 24}\n' % " ".join(chance.choices(words, k=90)) for _ in range(9)).encode())
asked = s.file("asked.jsonl", "".join('{"prompt": "%s", "n": 400}\n' % " ".join(words[:9]) for _ in range(24)).encode())
SAY = ["generate", "-m", s.model(6), "--jsonl", asked, "--methods", "h2o,window,tova,keydiff", "--budgets", "16,24", "--ignore-eos", "-t", "1"]
RUN = ["run", "-m", s.model(6), "--jsonl", prompts, "--ignore-eos", "--method", "h2o", "-B", "16", "-t", "1"]

EFFECTS = {  # several documents, and one prompt with its cells distributed
    "documents": ["ablate", "-m", s.model(6), "--data", data, "--docs", "4", "--prompt-tokens", "60", "--score-tokens", "8", "--recent", "8", "-t", "1"],
    "cells": ["ablate", "-m", s.model(6), "-p", " ".join(words), "--raw", "--ignore-eos", "--score-tokens", "8", "--recent", "8", "-t", "1"]}
TRAIN = ["train", "-m", s.model(6), "--data", data, "--length", "48", "--steps", "4", "--save-every", "2", "--check-every", "0",
         "--method", "trimkv:lr=1e-3,accumulate=4,M=8", "-t", "1"]


def read(name):
    return Path(s.path(name)).read_bytes()


def same_folder(a, b):
    names = sorted(os.listdir(s.path(a)))
    return names == sorted(os.listdir(s.path(b))) and all(read(f"{a}/{n}") == read(f"{b}/{n}") for n in names)


s.accepted("a single process", [*EVAL, "-o", s.path("one.tsv")])
s.accepted("one process makes traces", [*RUN, "-o", s.path("one")])
said = s.accepted("one process answers", SAY).stdout
s.accepted("one process adds up", ["corpus", "eviction", s.path("one"), "--state", s.path("one.sums"), "-o", s.path("sums.tsv")])

for name, argv in EFFECTS.items():
    s.accepted(f"one process: {name}", [*argv, "-o", s.path(f"{name}1.tsv")])
s.accepted("one process trains", [*TRAIN, "-o", s.path("t1.safetensors")])

# ---- shards

for i in (1, 2, 3):
    s.accepted(f"part {i}", [*EVAL, "--shard", f"{i}/3", "--state", s.path(f"part{i}")])
for n, order in enumerate(itertools.permutations((1, 2, 3))):
    parts = [s.path(f"part{i}") for i in order]
    s.accepted(f"parts in the order {order}", ["corpus", "merge", *parts, parts[0], "--state", s.path(f"all{n}")])
    s.check(f"the same file in the order {order}", read(f"all{n}") == read("all0"))
r = s.run([*EVAL, "--state", s.path("all0"), "-o", s.path("parts.tsv")])
s.check("the table of all parts", read("parts.tsv") == read("one.tsv"), r)
s.refused("parts without a place", [*EVAL, "--shard", "1/3"], 2, "--state")
s.refused("a part makes no table", [*EVAL, "--shard", "1/3", "--state", s.path("p"), "-o", s.path("p.tsv")], 2, "merge")
s.refused("a part of none", [*EVAL, "--shard", "4/3", "--state", s.path("p")], 2, "--shard")
other = [*EVAL]
other[other.index("64")] = "65"
s.accepted("different settings", [*other, "--shard", "1/3", "--state", s.path("other")])
s.refused("files of other settings", ["corpus", "merge", s.path("part1"), s.path("other"), "--state", s.path("no")], 1, "different settings")
s.refused("a table of results", ["corpus", "merge", s.path("part1"), "-o", s.path("no.tsv")], 2, "--state")
lines = read("part1").decode().split("\n")
cells = lines[-2].split("\t")
cells[5] = "0.5"
columns = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
s.file("changed", "\n".join(signed([*lines[:-2], "\t".join(cells), ""], columns)).encode())
s.refused("other results of one document", ["corpus", "merge", s.path("part1"), s.path("changed"), "--state", s.path("no")], 1, "other results")
s.file("damaged", "\n".join([*lines[:-2], "1\t2\t3", ""]).encode())
s.refused("a damaged file", ["corpus", "merge", s.path("part1"), s.path("damaged"), "--state", s.path("no")], 1, "damaged")
s.file("torn", read("part1") + b"7\t00")
s.accepted("a line that was not finished", ["corpus", "merge", s.path("torn"), s.path("part2"), s.path("part3"), "--state", s.path("whole")])
s.check("the rest of it is whole", read("whole") == read("all0"))
s.check("nothing else was written", not os.path.exists(s.path("no")) and not os.path.exists(s.path("no.tsv")))

# The job array and its output; options of eval without the command name. The second job runs alone,
# like a repeated job.
root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")
for i, told in ((2, {"PART": "2", "PARTS": "2"}), (1, {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_COUNT": "1"})):
    r = subprocess.run([os.path.join(root, "cluster_array.sh"), s.path("array"), *EVAL[1:]], env={**os.environ, "KVFATE": s.exe, **told}, capture_output=True, text=True)
    s.check(f"job {i} of an array", r.returncode == 0, r)
r = subprocess.run([os.path.join(root, "cluster_array.sh"), s.path("array"), *EVAL[1:]], env={**os.environ, "KVFATE": s.exe}, capture_output=True, text=True)
s.check("the table of an array", r.returncode == 0 and read("array/eval.tsv") == read("one.tsv"), r)

# ---- ranks

mpirun = shutil.which("mpirun")
version = subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout if mpirun else ""
ENV = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
       "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_mpi_yield_when_idle": "1", "KVFATE_PATIENCE": "2"}


def ranks(n, argv, *more, **options):
    return subprocess.Popen([mpirun, *more, "-n", str(n), s.exe, *argv], env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                            **options)


def told(p):
    out, err = p.communicate(timeout=120)
    return p.returncode, out.decode(errors="replace")[-2000:], err.decode(errors="replace")[-2000:]


def children(pid):
    """Returns the kvfate processes that an mpirun started."""
    try:
        found = [int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    except OSError:
        return []
    mine = []
    for child in found:
        try:
            mine += [child] if os.path.realpath(f"/proc/{child}/exe") == os.path.realpath(s.exe) else children(child)
        except OSError:
            pass
    return mine


def read_proc(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def without_mpi():
    if not mpirun:
        return "no mpirun is there"
    r = told(ranks(2, [*EVAL, "--state", s.path("try"), "-o", s.path("try.tsv")]))
    if "no kvfate_mpi.so" in r[2]:
        return "kvfate was built without MPI"
    s.check("two ranks", r[0] == 0 and read("try.tsv") == read("one.tsv"), r)
    return ""


skipped = without_mpi()
if skipped:
    print("ranks are not tried:", skipped)
else:
    for n in (1, 2, 4) if LONG else (4,):
        r = told(ranks(n, [*EVAL, "--state", s.path(f"r{n}"), "-o", s.path(f"r{n}.tsv")]))
        s.check(f"eval by {n}", r[0] == 0 and read(f"r{n}.tsv") == read("one.tsv"), r)
        r = told(ranks(n, [*RUN, "-o", s.path(f"d{n}")]))
        s.check(f"traces by {n}", r[0] == 0 and same_folder("one", f"d{n}"), r)
        s.check(f"shared by {n}", n == 1 or sum(f"rank {k}: " in r[2] for k in range(n)) == n, r)
        # Answers of 8 methods are a long write each. In a pipe shared by all ranks they would be
        # interleaved.
        p = ranks(n, SAY)
        made, why = p.communicate(timeout=120)
        s.check(f"answers by {n}", p.returncode == 0 and sorted(made.splitlines()) == sorted(said.splitlines()), (len(made), len(said), why[-900:]))
        r = told(ranks(n, ["corpus", "eviction", s.path("one"), "--state", s.path(f"c{n}"), "-o", s.path(f"c{n}.tsv")]))
        s.check(f"sums by {n}", r[0] == 0 and read(f"c{n}.tsv") == read("sums.tsv") and read(f"c{n}") == read("one.sums"), r)
    if LONG:
        r = told(ranks(2, [*EVAL, "-o", s.path("no.tsv")]))
        s.check("ranks need a place", r[0] != 0 and "--state" in r[2], r)
        r = told(ranks(2, [*RUN[:3], "--jsonl", "-", *RUN[5:], "-o", s.path("no")]))
        s.check("the standard input is for one", r[0] != 0 and "give the name of a file" in r[2], r)
    r = told(ranks(3, [*RUN, "-o", s.path("d1")]))
    s.check("what is there is skipped", r[0] == 0 and sum(f"{k} skipped" in r[2] for k in range(10)) > 0 and same_folder("one", "d1"), r)
    for name, argv in EFFECTS.items():
        r = told(ranks(3, [*argv, "-o", s.path(f"{name}3.tsv")]))
        s.check(f"{name} by 3", r[0] == 0 and read(f"{name}3.tsv") == read(f"{name}1.tsv"), r)
    for n in (2, 4) if LONG else (3,):
        r = told(ranks(n, [*TRAIN, "-o", s.path(f"t{n}.safetensors")]))
        s.check(f"training by {n}", r[0] == 0 and read(f"t{n}.safetensors") == read("t1.safetensors"), r)
        s.check(f"the record of {n}", read(f"t{n}.safetensors.log.jsonl") == read("t1.safetensors.log.jsonl"))
        s.check(f"the checkpoint of {n}", read(f"t{n}.safetensors.state") == read("t1.safetensors.state"))
    r = told(ranks(2, [*TRAIN, "--steps", "1", "--method", "trimkv", "-o", s.path("no.safetensors")]))
    s.check("a pack for every rank", r[0] != 0 and "accumulate" in r[2], r)
    study = [os.path.join(root, "cluster_mpi.sh"), None, prompts, data, "-m", s.model(6), "-t", "1"]
    small = s.file("small.sh", b'#!/bin/sh\n[ "$1" != eval ] || set -- "$@" --docs 4 --prompt-tokens 140 --score-tokens 40\nexec %s "$@"\n' % s.exe.encode())
    os.chmod(small, 0o755)
    for n in (4, 1) if LONG else (3,):
        study[1] = s.path(f"study{n}")
        r = subprocess.run(study, env={**ENV, "KVFATE": small, "RANKS": str(n)}, capture_output=True, text=True)
        s.check(f"a study by {n}", r.returncode == 0, r)
    names = ["eval.tsv", "survival-h2o.tsv", "survival-snapkv.tsv"]
    s.check("a whole study", all(os.path.exists(s.path(f"study{n}/{x}")) for x in names))
    if LONG:
        s.check("the same study", all(read(f"study4/{x}") == read(f"study1/{x}") for x in names) and same_folder("study4/h2o", "study1/h2o"))
    left = sorted(x for x in os.listdir(s.work.name) if ".rank" in x)
    s.check("no file of a rank is left", not left, left)

    # All ranks are killed, and the command is run again.
    for k in range(20 if LONG else 1):
        for name in ("k.tsv", "k.state"):
            if os.path.exists(s.path(name)):
                os.remove(s.path(name))
        p = ranks(3, [*EVAL, "--state", s.path("k.state"), "-o", s.path("k.tsv")])
        time.sleep(0.3 + chance.random())
        for pid in [*children(p.pid), p.pid]:
            os.kill(pid, signal.SIGKILL)
        told(p)
        for _ in range(100):  # a rank that just started ends by itself: its file is locked until then
            if not any(s.path("k.state").encode() in read_proc(x) for x in os.listdir("/proc") if x.isdigit()):
                break
            time.sleep(0.1)
        r = told(ranks(chance.choice([2, 4]), [*EVAL, "--state", s.path("k.state"), "-o", s.path("k.tsv")]))
        s.check(f"goes on after the death of all, {k}", r[0] == 0 and read("k.tsv") == read("one.tsv"), r)

    # One rank is killed after some work is done; the others do its work. (A death during MPI
    # start-up ends the job: MPI cannot avoid this.)
    killed, rounds = 0, (100 if LONG else 2) * ("Open MPI" in version)
    for k in range(rounds):
        shutil.rmtree(s.path("kd"), ignore_errors=True)
        for name in os.listdir(s.work.name):
            if name.startswith("k."):
                os.remove(s.path(name))
        argv, out = [([*EVAL, "--state", s.path("k.state"), "-o", s.path("k.tsv")], "k.tsv"), ([*RUN, "-o", s.path("kd")], "kd")][k % 2]
        p = ranks(3, argv, "--enable-recovery")
        began, some = time.monotonic(), []
        while not some and p.poll() is None and time.monotonic() - began < 30:
            time.sleep(0.01)
            some = [x for x in os.listdir(s.work.name) if x.startswith("k.state.rank")] if k % 2 == 0 else os.path.isdir(s.path("kd")) and os.listdir(s.path("kd"))
        time.sleep(0.1 * chance.random())
        others = [x for x in children(p.pid) if b"OMPI_COMM_WORLD_RANK=0\0" not in open(f"/proc/{x}/environ", "rb").read()]
        if others:
            os.kill(chance.choice(others), signal.SIGKILL)
            killed += 1
        r = told(p)
        s.check(f"the others do the work of a dead rank, {out} {k}", read(out) == read("one.tsv") if k % 2 == 0 else same_folder("one", out), r)
    s.check("ranks were killed", killed >= rounds // 2, killed)
    print(killed, "ranks were killed alone")
s.finish()
