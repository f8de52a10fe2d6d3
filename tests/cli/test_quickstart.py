#!/usr/bin/env python3
"""quickstart: the page and its files agree with the traces and the table, the intervals with their
equations, and each wrong call is one sentence. No browser opens."""
import csv
import json
import math
import os
import re
import shutil
import subprocess
import sys

from harness import Suite

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "python"))
from kvfate import quickstart  # noqa: E402
from kvfate.benchmark_scores import ruler_all  # noqa: E402

s = Suite()
os.chdir(s.work.name)
model = ["-m", s.model()]


def rows(path):
    with open(path, encoding="utf-8", newline="") as f:
        return list(csv.DictReader((x for x in f if not x.startswith("# ")), delimiter="\t", quoting=csv.QUOTE_NONE))


# a prompt of one's own: no known answer, a page that an older one makes room for
for _ in range(2):
    r = s.accepted("own prompt", ["quickstart", "The dog ran far away", *model, "-n", "6", "-B", "8", "--no-open", "-o", "own"])
said = r.stdout.decode().splitlines()
s.check("the last line is the page", said[-1] == "page: " + os.path.realpath("own/index.html") and os.path.exists("own/index.html"), said)
page = open("own/index.html", encoding="utf-8").read()
s.check("the figure comes first", 0 < page.index("<img") < page.index("<table") and "1 prompt" in page and "not judged" in page)
s.check("nothing from elsewhere", not re.search(r'(src|href)="(?!data:|answer\.|prompts\.)', page))
commands = re.search(r"<pre>(kvfate run.*?)</pre>", page, re.S)[1].splitlines()
os.mkdir("again")
shutil.copy("own/prompt.txt", "again")
for line in commands:
    done = subprocess.run(line.replace("kvfate", s.exe, 1), shell=True, cwd="again", capture_output=True)
    s.check(line, done.returncode == 0, done.stderr[-300:])
same = [open(os.path.join(d, "answer.tsv"), encoding="utf-8").read() for d in ("own", "again")]
s.check("the commands of the page make the same table", same[0] == same[1])

# several prompts: the table of intervals against the traces
r = s.accepted("three prompts", ["quickstart", *model, "-n", "6", "--methods", "full,h2o", "--prompts", "3", "--no-open", "-o", "three"])
table = rows("three/prompts.tsv")
s.check("a row for each method", [(x["method"], x["budget"], x["prompts"]) for x in table] == [("full", "all", "3"), ("h2o", "50%", "3")], table)
for k, (row, trace) in enumerate(zip(table, ("1-full.kvf", "2-h2o.kvf"))):
    kept, right = [], 0
    for seed in range(3):
        at = f"three/prompt-{seed}/"
        name = rows(at + "answer.tsv")
        label = sorted({x["trace"] for x in name}, key=[x["trace"] for x in name].index)[k]
        mine = [x for x in name if x["trace"] == label]
        with open(at + "prompt.json", encoding="utf-8") as f:
            gold = json.load(f)["answers"]
        want = int(ruler_all(mine[0]["answer"], {"answers": gold}) == 1)
        s.check(f"seed {seed}, {row['method']}: scored as ruler-all", {x["right"] for x in mine} == {str(want)} and mine[0]["expected"] == ", ".join(gold), mine[0])
        first = [x for x in mine if x["step"] == mine[0]["step"]]
        # eviction says when each head lost a token
        lost = {}
        s.accepted("eviction", ["eviction", at + trace, "-o", "e.tsv"])
        for x in rows("e.tsv"):
            lost.setdefault(int(x["token"]), []).append(int(x["evict_step"]))
        needle = [int(x["token"]) for x in first if x["needle"] == "1"]
        alive = [sum(v < 0 or v > int(mine[0]["step"]) for v in lost[i]) / len(lost[i]) for i in needle]
        kept.append(sum(alive) / len(alive))
        right += want
    s.check(f"{row['method']}: heads that cache the needle", abs(float(row["kept"]) - sum(kept) / 3) < 1e-12, row, kept)
    s.check(f"{row['method']}: correct answers", int(row["correct"]) == right and float(row["right"]) == right / 3, row, right)
    z = 1.959963984540054
    p = right / 3
    high = (p + z * z / 6 + z * math.sqrt(p * (1 - p) / 3 + z * z / 36)) / (1 + z * z / 3)
    s.check(f"{row['method']}: Wilson's interval", abs(float(row["right_high"]) - high) < 1e-9 and float(row["right_low"]) <= p, row, high)
    s.check(f"{row['method']}: the interval holds the mean", float(row["kept_low"]) <= float(row["kept"]) + 1e-12 and float(row["kept"]) <= float(row["kept_high"]) + 1e-12, row)
s.check("h2o evicts", float(table[1]["kept"]) < float(table[0]["kept"]) == 1, table)

# the bootstrap: of n equal values no width; of many values the normal interval
s.check("equal values", quickstart.bootstrap([.25] * 9) == (.25, .25))
values = [(i * 61 % 100) / 100 for i in range(100)]
mean = sum(values) / 100
wide = 1.96 * math.sqrt(sum((v - mean) ** 2 for v in values) / 100 / 100)
low, high = quickstart.bootstrap(values)
s.check("the bootstrap is near the normal interval", abs(low - mean + wide) < .01 and abs(high - mean - wide) < .01, low, high, mean, wide)

s.check("a display", not quickstart.has_display({}, "linux") and quickstart.has_display({"DISPLAY": ":0"}, "linux") and quickstart.has_display({}, "darwin")
        and quickstart.has_display({"WAYLAND_DISPLAY": "w"}, "linux") and not quickstart.has_display({"DISPLAY": ""}, "linux"))
os.mkdir("mine")
s.file("mine/notes.txt", b"keep")
s.refused("a folder with other files", ["quickstart", *model, "--no-open", "-o", "mine"], 1, "mine", "-o")
s.check("its files stay", os.listdir("mine") == ["notes.txt"], os.listdir("mine"))
s.refused("an empty prompt", ["quickstart", " ", *model], 2, "PROMPT")
s.refused("a prompt and --prompts", ["quickstart", "Why?", *model, "--prompts", "2"], 2, "--prompts")
s.file("own.txt", "Why is the sea salty?".encode())
s.refused("the name of a file as the prompt", ["quickstart", "own.txt", *model], 2, "'own.txt' is a file", "-f own.txt")
s.refused("a prompt and a file", ["quickstart", "Why?", "-f", "own.txt", *model], 2, "--file")
s.refused("a file that is missing", ["quickstart", "-f", "no.txt", *model], 1, "no.txt", "No such file")
s.file("latin.txt", b"caf\xe9")
s.refused("a file that is not UTF-8", ["quickstart", "-f", "latin.txt", *model], 1, "latin.txt", "UTF-8")
for name, words in (("file", ["-f", "own.txt"]), ("words", ["Why is the sea salty?"])):
    s.accepted(f"a prompt as {name}", ["quickstart", *words, *model, "--no-open", "--methods", "full,h2o", "-B", "8", "-o", name])
s.check("a file and its words give one table", open("file/answer.tsv").read() == open("words/answer.tsv").read())
s.refused("one method twice", ["quickstart", *model, "--methods", "h2o,h2o"], 2, "--methods")
s.refused("an unknown method", ["quickstart", *model, "--methods", "h3o", "-o", "none"], 1, "h3o")
s.check("nothing is left of a failed call", not os.path.exists("none"))
s.finish()
