#!/usr/bin/env python3
"""usage: test_study_tasks.py KVFATE MODELS SOURCE_ROOT

Tests mathematics, choices and samples of `kvfate study`: the table is compared with one made by
hand from kvfate.Scores; parts, ranks and kills. If the default model is present, a cache that
loses the requested fact scores at the floor, and one that keeps all entries has the full cache's
score."""
import csv
import itertools
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

KVFATE, MODELS, ROOT = map(os.path.abspath, sys.argv[1:4])
sys.path += [os.path.join(ROOT, "python"), os.path.join(ROOT, "tests")]
os.environ["PATH"] = os.path.dirname(KVFATE) + os.pathsep + os.environ["PATH"]
import check as c  # noqa: E402
import kvfate  # noqa: E402
from kvfate import files  # noqa: E402

work = tempfile.TemporaryDirectory(prefix="kvfate-study-")
os.chdir(work.name)
ENV = {**os.environ, "KVFATE_PYTHON": sys.executable, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
       "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
TINY = os.path.join(MODELS, "tiny6.gguf")
CHOICES = [{"question": "the thing in there", "choices": ["and is", "of it", "he she ran to the top"], "answer": 2},
           {"question": "it is an other one of the things", "choices": ["red", "a bit of a hat"], "answer": "B"},
           {"question": "she ran", "choices": ["top", "hat", "red", "in the end"], "answer": "A"},
           {"question": "one is of the", "choices": ["other one", "bit"], "answer": 1}]
SUMS = [{"question": q, "answer": "so\n#### %d" % n} for q, n in (("the thing in there", 0), ("it is an other", 1), ("she ran", 1), ("one is of it", 3))]
PLAN = {"models": [TINY], "methods": ["full", "window", "h2o:recent=4"], "budgets": [6, 400], "threads": 1, "text": [
    {"name": "pick", "kind": "choices", "data": ["pick.jsonl"], "count": 4},
    {"name": "sums", "kind": "mathematics", "data": ["sums.jsonl"], "count": 4, "most_tokens": 24, "samples": 5, "temperature": 3.0}]}
CELLS = [("full", None), *((m, b) for m in ("window", "h2o:recent=4") for b in (6, 400))]
RESULTS = ["study.tsv", "jobs/tiny6-pick-s0.tsv", "jobs/tiny6-sums-s0.tsv"]


def write(name, what):
    with open(name, "w", encoding="utf-8") as f:
        f.write(what if isinstance(what, str) else json.dumps(what))


def study(*argv):
    return subprocess.run([KVFATE, "study", *argv], env=ENV, capture_output=True, text=True, timeout=170)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def table(path):
    with open(path, encoding="utf-8") as f:
        return list(csv.DictReader((x for x in f if not x.startswith("#")), delimiter="\t"))


for name, lines in (("pick.jsonl", CHOICES), ("sums.jsonl", SUMS)):
    write(name, "".join(json.dumps(x) + "\n" for x in lines))
write("one.json", PLAN)
r = study("one.json")
c.check("a study in JSON runs", r.returncode == 0 and r.stdout.strip().endswith("index.html"), r)

# Choices, by hand.
rows, rights = table("one-study/jobs/tiny6-pick-s0.tsv"), {}
c.check("a row for each method and budget", [(x["method"], x["budget"]) for x in rows] == [(m, str(b or 0)) for m, b in CELLS], rows)
for row, (method, budget) in zip(rows, CELLS):
    scores = kvfate.Scores(model=TINY, method=method, budget=budget, threads=1)
    rights[method, budget] = []
    for x in CHOICES:
        told = scores.continuations([("Question: %s\nAnswer:" % x["question"], " " + w) for w in x["choices"]])
        means = [t.logprob / (1 + len(w)) for t, w in zip(told, x["choices"])]
        rights[method, budget].append(means.index(max(means)) == ("ABCD".index(x["answer"]) if isinstance(x["answer"], str) else x["answer"]))
    got = float(row["right"])
    c.check(f"choices, {method} at {budget}", got == sum(rights[method, budget]) / 4, got, rights)
    c.check("their floor", abs(float(row["floor"]) - (1 / 3 + 1 / 2 + 1 / 4 + 1 / 2) / 4) < 1e-12, row)
    if method != "full":
        pairs = list(zip(rights[method, budget], rights["full", None]))
        c.check("against the full cache", [int(row["above"]), int(row["below"])] == [sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs)], row)
c.check("a cache that holds all has the full one's score", all(rights[m, 400] == rights["full", None] for m in ("window", "h2o:recent=4")))

# Samples, over every draw of k of the five.
said = {}
for line in read("one-study/jobs/tiny6-sums-s0.state").decode().split("\n")[1:-1]:
    x = json.loads(line)
    said.setdefault((x["method"], str(x["budget"])), {})[x["id"]] = x["text"]


def number(text):
    found = re.findall(r"(?<![\w.)])-?\d+|\d+", text)
    return int(found[-1]) if found else None


for row in table("one-study/jobs/tiny6-sums-s0.tsv"):
    told = said[row["method"], row["budget"]]
    marks = [[number(told["%d-%d" % (i, k)]) == n for k in range(5)] for i, n in enumerate((0, 1, 1, 3))]
    for k in (1, 2, 4):
        want = sum(sum(map(any, itertools.combinations(m, k))) / len(list(itertools.combinations(m, k))) for m in marks) / 4
        c.check(f"pass@{k}, {row['method']} at {row['budget']}", abs(float(row["pass_%d" % k]) - want) < 1e-12, row, marks)
    c.check("pass@1 is the share that is right", abs(float(row["pass_1"]) - float(row["right"])) < 1e-12 and row["floor"] == "0.5", row)
    whole = [json.loads(line) for line in read("one-study/jobs/tiny6-sums-s0.state").decode().split("\n")[1:-1]]
    held = [x["entries"] / (x["prompt_tokens"] + x["tokens"] - 1) for x in whole if (x["method"], str(x["budget"])) == (row["method"], row["budget"])
            and marks[int(x["id"][0])][int(x["id"][2])]]
    kept = float(row["kept"])
    c.check(f"kept of right answers, {row['method']} at {row['budget']}", abs(kept - sum(held) / len(held)) < 1e-12 if held else kept != kept, row, held)
    c.check("a full cache keeps all, a small one less", not held or (kept == 1 if row["budget"] in ("0", "400") else kept < 0.6), row)
    most = PLAN["text"][1]["most_tokens"]  # an answer of the maximum length was cut off
    mine = [x for x in whole if (x["method"], str(x["budget"])) == (row["method"], row["budget"])]
    cut = sum(x["tokens"] == most for x in mine)
    c.check(f"answers that were cut off, {row['method']} at {row['budget']}", (row["answers"], row["answers_cut"]) == (str(len(mine)), str(cut)) and cut > 0, row, cut)
c.check("of choices nothing is generated", all(x["answers_cut"] == "nan" for x in rows), rows)
cuts = re.search(r"(\d+) of (\d+) answers reached the length limit", read("one-study/index.html").decode())
kept = [json.loads(line) for line in read("one-study/jobs/tiny6-sums-s0.state").decode().split("\n")[1:-1]]
c.check("the page tells of them", cuts and [*map(int, cuts.groups())] == [sum(x["stop"] == "length" for x in kept), len(kept)], cuts)
c.check("samples differ", len(set(said["full", "0"].values())) == 20, said["full", "0"])
base = sqlite3.connect("one-study/study.sqlite")
c.check("the database has them", [x[0] for x in base.execute("select right from tiny6_pick_s0")] == [float(x["right"]) for x in rows])
page = read("one-study/index.html").decode()
c.check("the page has them", "<th>floor</th>" in page and "<th>pass_4</th>" in page and "none: the full cache is at the floor" in page)


def same(folder):
    return [r for r in RESULTS if read(f"{folder}/{r}") != read(f"kept/{r}")]


shutil.copytree("one-study", "kept")
write("data.json", {**PLAN, "text": [{**x, "data": ["nowhere.jsonl"]} for x in PLAN["text"]]})
r = study("data.json", "--data", "pick=pick.jsonl", "--data", "sums=sums.jsonl")
c.check("data by --data", r.returncode == 0 and not same("data-study"), r)
for what, word in (("none=pick.jsonl", "no text of this name"), ("pick", "TEXT=FILE"), ("pick=", "TEXT=FILE")):
    r = study("data.json", "--data", what)
    c.check(f"--data {what}", r.returncode == 2 and word in r.stderr and "Traceback" not in r.stderr, r)
for what, argv, code, word in (("data that are not there", ["--data", "pick=pick.jsonl"], 1, "--data sums=FILE"), ("data that are a folder", ["--data", "pick=."], 1, "is no file"),
                               *((f"--shard {x}", ["--data", "pick=pick.jsonl", "--data", "sums=sums.jsonl", "--shard", x], 2, "I from 1 to N")
                                 for x in ("3/2", "0/2", "1", "1/0", "a/b"))):
    r = study("data.json", *argv)
    c.check(what, r.returncode == code and word in r.stderr and "Errno" not in r.stderr and "Traceback" not in r.stderr, r)
r = study("data.json", "--data", "pick=pick.jsonl", "--data", "sums=sums.jsonl", "--slurm", "2")
c.check("an array has the data, too", f"--data pick={os.path.abspath('pick.jsonl')}" in r.stdout, r)
before = read("one-study/jobs/tiny6-sums-s0.state")
r = study("one.json")
c.check("what is done is not done again", r.returncode == 0 and read("one-study/jobs/tiny6-sums-s0.state") == before and not same("one-study") and "made" not in r.stderr, r)

# A fault: a different answer with a correct checksum changes the score.
def signed(name, x):
    text = json.dumps({k: v for k, v in x.items() if k != "checksum"})[:-1]
    return '%s, "checksum": "%016x"}' % (text, files.checksum(text.encode(), files.checksum(name.encode())))


fault = before.decode().split("\n")
at = next(i for i, line in enumerate(fault) if '"id": "1-0"' in line)
write("one-study/jobs/tiny6-sums-s0.state", "\n".join([*fault[:at], signed(fault[0], {**json.loads(fault[at]), "text": "it is 1"}), *fault[at + 1:]]))
r = study("one.json")
c.check("a planted answer counts", r.returncode == 0 and same("one-study") == ["study.tsv", "jobs/tiny6-sums-s0.tsv"], r)
with open("one-study/jobs/tiny6-sums-s0.state", "wb") as f:
    f.write(before[:len(before) // 2])  # as after a kill
r = study("one.json")
c.check("a state that was cut off", r.returncode == 0 and not same("one-study"), r)

write("parts.json", PLAN)
for i in (3, 1, 2):
    r = study("parts.json", "--shard", f"{i}/3")
    c.check(f"part {i}", r.returncode == 0 and not os.path.exists("parts-study/study.tsv"), r)
r = study("parts.json")
c.check("parts together", r.returncode == 0 and not same("parts-study") and "made" not in r.stderr, r)

write("killed.json", PLAN)
for k in range(6):
    p = subprocess.Popen([KVFATE, "study", "killed.json"], env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    time.sleep(0.15 + 0.1 * k)
    try:
        os.killpg(p.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    p.wait()
r = study("killed.json")
c.check("it goes on after it was killed", r.returncode == 0 and not same("killed-study"), r)
if shutil.which("mpirun") and os.path.exists(os.path.join(os.path.dirname(KVFATE), "kvfate_mpi.so")):
    write("ranks.json", PLAN)
    r = study("ranks.json", "--ranks", "2")
    c.check("by two ranks", r.returncode == 0 and not same("ranks-study"), r)

# Tables of what is there: those of a study that asks for the answered tasks only.
one = {**PLAN["text"][1], "samples": 1, "temperature": 0, "instruction": " in there"}
write("some.json", {**PLAN, "text": [one]})
write("two.json", {**PLAN, "text": [{**one, "count": 2}]})
for name in ("some.json", "two.json"):
    r = study(name)
    c.check(f"{name} runs", r.returncode == 0, r)
whole = read("some-study/jobs/tiny6-sums-s0.state")
lines = whole.decode().split("\n")
asked = "".join(json.dumps({"id": str(i), "prompt": x["question"] + " in there", "n": 24}) + "\n" for i, x in enumerate(SUMS))
write("asked.jsonl", asked)
told = subprocess.run([KVFATE, "generate", "-m", TINY, "--jsonl", "asked.jsonl", "-t", "1", "-q"], env=ENV, capture_output=True, text=True, timeout=60).stdout
full = {x["id"]: x["text"] for x in map(json.loads, lines[1:-1]) if x["method"] == "full"}
c.check("the instruction follows the question", full == {x["id"] + "-0": x["text"] for x in map(json.loads, told.splitlines())}, full, told)
third = next(i for i, line in enumerate(lines) if '"id": "2-0"' in line and '"h2o' in line)  # of the third question some rows are missing
write("some-study/jobs/tiny6-sums-s0.state", "\n".join([*(x for x in lines[:third] if '"id": "3-0"' not in x), lines[third][:40]]))
before = read("some-study/jobs/tiny6-sums-s0.state")
r = study("some.json", "--so-far")
c.check("--so-far makes no answers", r.returncode == 0 and "tiny6-sums-s0: 2 of 4" in r.stdout and read("some-study/jobs/tiny6-sums-s0.state") == before, r)
got, want = (table(f"{x}-study/study.tsv") for x in ("some", "two"))
c.check("its table is that of the answered tasks", got == want and [x["tasks"] for x in got] == ["2"] * 5, got, want)
c.check("which the table and the page tell", all("2 of 4 tasks are answered by all methods" in read(f"some-study/{x}").decode() for x in ("study.tsv", "index.html")))
for x in got[1:]:
    a, b, mean = int(x["above"]), int(x["below"]), float(x["to_full"])
    c.check("the paired difference to the full cache", mean == (a - b) / 2 and float(x["to_full_low"]) <= mean <= float(x["to_full_high"]), x)
r = study("some.json")
c.check("the rest is made", r.returncode == 0 and read("some-study/jobs/tiny6-sums-s0.state") != before and {x["tasks"] for x in table("some-study/study.tsv")} == {"4"}, r)
shutil.rmtree("some-study")
r = study("some.json", "--so-far")
c.check("nothing is there", r.returncode == 1 and "no task is answered" in r.stderr and "Traceback" not in r.stderr, r)

# A model of the list by its name.
os.mkdir("cache")
shutil.copy(TINY, "cache/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf")
write("named.json", {**PLAN, "models": ["qwen2.5-coder-0.5b"], "text": [one]})
HOME, ENV["KVFATE_CACHE"] = ENV.get("KVFATE_CACHE") or os.path.expanduser("~/.cache/kvfate"), os.path.abspath("cache")
r = study("named.json")
named = [{k: v for k, v in x.items() if k != "model"} for x in table("named-study/study.tsv")] if r.returncode == 0 else r
ENV["KVFATE_CACHE"] = work.name
r = study("named.json")
ENV["KVFATE_CACHE"] = HOME
c.check("a model that was not fetched", r.returncode == 1 and "kvfate models get qwen2.5-coder-0.5b" in r.stderr and "Traceback" not in r.stderr, r)
study("some.json")
c.check("a model by its name", named == [{k: v for k, v in x.items() if k != "model"} for x in table("some-study/study.tsv")], named)

write("one.json", {**PLAN, "text": [{**PLAN["text"][0], "count": 3}]})
r = study("one.json")
c.check("answers to other tasks", r.returncode == 1 and "other tasks" in r.stderr and "Traceback" not in r.stderr, r)
pick, sums = PLAN["text"]
for what, text, lines, word in (
        ("no choices", pick, [{"question": "a", "answer": 0}], "choices"), ("a choice that is none", pick, [{**CHOICES[0], "answer": 3}], "number of a choice"),
        ("a letter too far", pick, [{**CHOICES[0], "answer": "D"}], "letter"), ("an empty choice", pick, [{**CHOICES[0], "choices": ["a", " "]}], "2 to 26"),
        ("no question", pick, [{**CHOICES[0], "question": 7}], "line 1"), ("a list", pick, [[1]], "line 1"), ("too few", pick, CHOICES[:2], "have 2 tasks"),
        ("no number", sums, [{"question": "a", "answer": "none"}], "ends with a number"), ("no JSON", pick, ["{"], "no JSON lines"),
        ("deep", pick, ["[" * 99999], "no JSON lines"),
        ("samples that are the same", {**sums, "temperature": 0}, SUMS, "temperature"), ("a length", {**pick, "length": "words"}, CHOICES, "bytes")):
    write("bad.jsonl", "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines))
    write("bad.json", {**PLAN, "text": [{**text, "data": ["bad.jsonl"]}]})
    r = study("bad.json")
    c.check(what, r.returncode == 1 and word in r.stderr and "Traceback" not in r.stderr, r)
for what, text in (("no JSON", "{"), ("a list of JSON", "[]")):
    write("bad.json", text)
    r = study("bad.json")
    c.check(what, r.returncode == 1 and "JSON" in r.stderr and "Traceback" not in r.stderr, r)

cache = os.environ.get("KVFATE_CACHE") or os.path.expanduser("~/.cache/kvfate")
if os.path.exists(os.path.join(cache, "SmolLM2-135M-Instruct.Q4_1.gguf")):
    write("lost.json", {"methods": ["full", "window"], "budgets": [24, 1024], "text": [
        {"name": "needle", "kind": "needles", "tokens": 220, "count": 6, "haystack": "noise", "digits": 2, "depth": 0.2}]})
    r = study("lost.json")
    full, lost, whole = table("lost-study/study.tsv")
    c.check("the default model finds numbers", r.returncode == 0 and float(full["right"]) >= .5 and float(full["right_low"]) > float(full["floor"]), r, full)
    c.check("a cache that lost them is at the floor", float(lost["right"]) == 0 and float(lost["right_low"]) <= float(lost["floor"]), lost)
    c.check("a cache that holds all has the score of the full one", whole["right"] == full["right"] and whole["p_full"] == "1", whole)
else:
    print("needles of the default model are not tried: it is not installed")
work.cleanup()
c.finish()
