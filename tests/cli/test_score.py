#!/usr/bin/env python3
"""score: compares the table with scores by hand, tests groups and wrong joins, and scores the answers
of a model to prompts of `kvfate tasks`, with the command and in a study."""
import csv
import io
import json
import math
import sqlite3

import benchmark_files as b
from harness import Suite

s = Suite()
TASKS = [{"id": "a", "n": 4, "context": "", "question": "q", "task": {"benchmark": "ruler", "name": "vt", "scorer": "ruler-all", "answers": ["AB", "CD"], "turn": 1, "truncated": True}},
         {"id": "b", "n": 4, "context": "", "question": "q", "task": {"benchmark": "ruler", "name": "vt", "scorer": "ruler-all", "answers": ["EF"], "turn": 2, "truncated": False}},
         {"id": "c", "n": 4, "context": "", "question": "q", "task": {"benchmark": "ruler", "name": "vt", "scorer": "ruler-any", "answers": ["GH", "IJ"], "turn": 1}}]
SAID = [{"id": "a", "text": "ab", "stop": "length"}, {"id": "b", "text": "x", "stop": "eos"}, {"id": "c", "text": "ij", "stop": "context"}]


def lines(name, rows):
    return b.lines(s.path(name), rows)


def table(*argv):
    r = s.accepted("score " + " ".join(argv)[-60:], ["tasks", "score", *argv, "-o", "-"])
    return list(csv.DictReader((x for x in io.StringIO(r.stdout.decode()) if not x.startswith("#")), delimiter="\t"))


tasks, said = lines("tasks.jsonl", TASKS), lines("said.jsonl", SAID)
rows = table(tasks, said)
s.check("a row for each scorer", [(x["scorer"], float(x["score"]), x["tasks"], float(x["answers_cut"]), x["prompts_truncated"]) for x in rows] == [("ruler-all", 0.25, "2", 1, "1"), ("ruler-any", 1, "1", 1, "0")], rows)
z = 1.959963984540054
low = (0.25 + z * z / 4 - z * math.sqrt(0.25 * 0.75 / 2 + z * z / 16)) / (1 + z * z / 2)
s.check("the interval", abs(float(rows[0]["score_low"]) - low) < 1e-9, rows[0], low)
rows = table(tasks, said, "--by", "turn")
s.check("by turn", [(x["scorer"], x["by"], float(x["score"])) for x in rows] == [("ruler-all", "1", 0.5), ("ruler-all", "2", 0), ("ruler-any", "1", 1)], rows)
rows = table(tasks, said, "--items")
s.check("items", [(x["id"], float(x["score"]), x["answer_cut"]) for x in rows] == [("a", 0.5, "1"), ("b", 0, "0"), ("c", 1, "1")], rows)
two = lines("two.jsonl", [{**x, "method": m, "budget": n} for m, n in (("full", None), ("h2o", 8)) for x in SAID])
rows = table(tasks, two)
s.check("methods and budgets", [(x["method"], x["budget"]) for x in rows] == [("full", "0"), ("h2o", "8")] * 2, rows)
parts = [{**x, "method": "h2o", "budget": n, "budget_percent": 50} for n, x in zip((9, 8, 4), SAID)]
unknown = [{**x, "method": "h2o", "budget": 7, "question": "unknown", "text": "none"} for x in SAID]
rows = table(tasks, lines("parts.jsonl", parts + [{**x, "method": "h2o", "budget": 7} for x in SAID] + unknown))
s.check("percent and protocols are apart", [(x["method"], x["budget"], float(x["score"])) for x in rows[:3]] == [("h2o 50%", "7", .25), ("h2o", "7", .25), ("h2o, question unknown", "7", 0)], rows)
s.refused("half known, half unknown", ["tasks", "score", tasks, lines("half.jsonl", unknown[:1] + [{**x, "method": "h2o", "budget": 7} for x in SAID[1:]])], 1, "have no answer of h2o")
r = s.accepted("for people", ["tasks", "score", tasks, said])
s.check("it tells of cut answers and prompts", b"1 of 2 answers reached the length limit" in r.stdout and b"1 of 2 prompts lost their middle" in r.stdout, r.stdout)
old = table(tasks, lines("old.jsonl", [{"id": x["id"], "text": x["text"]} for x in SAID]))
s.check("answers without stop", old[0]["answers_cut"] == "nan", old)

for what, argv, code, words in (
        ("a missing answer", [tasks, lines("m.jsonl", SAID[:2])], 1, ["1 of 3", "the first is c"]), ("a second answer", [tasks, lines("t.jsonl", SAID + SAID[:1])], 1, ["second answer", "line 4"]),
        ("another's answer", [tasks, lines("u.jsonl", [{**SAID[0], "id": "z"}])], 1, ["'z'"]), ("no answers", [tasks, lines("n.jsonl", [])], 1, ["no answers"]), ("no tasks", [lines("e.jsonl", []), said], 1, ["0 tasks"]),
        ("no text", [tasks, lines("x.jsonl", [{"id": "a"}])], 1, ["text"]), ("an unknown scorer", [lines("s.jsonl", [{**TASKS[0], "task": {"scorer": "ruler-al", "answers": ["x"]}}]), said], 1, ["ruler-al", "did you mean"]),
        ("no gold answers", [lines("g.jsonl", [{**TASKS[0], "task": {"scorer": "ruler-all", "answers": []}}]), said], 1, ["answers"]), ("an id twice", [lines("i.jsonl", TASKS[:1] * 2), said], 1, ["twice"]),
        ("two benchmarks", [lines("b.jsonl", [TASKS[0], {**TASKS[1], "task": {**TASKS[1]["task"], "name": "cwe"}}]), said], 1, ["another task"]), ("no member", [tasks, said, "--by", "trun"], 2, ["trun", "did you mean turn?"]),
        ("items by turn", [tasks, said, "--by", "turn", "--items"], 2, ["exclude"]), ("a member that a scorer needs", [lines("l.jsonl", [{**TASKS[0], "task": {"scorer": "infinitebench-choice", "answers": ["x"]}}]), lines("la.jsonl", SAID[:1])], 1, ["letter"])):
    s.refused(what, ["tasks", "score", *argv], code, *words)

# A tiny model answers. The command and the study must agree.
repository = b.longbench(s.work.name)
s.accepted("tasks", ["tasks", "longbench:hotpotqa", s.path("hotpotqa.jsonl"), "--repository", repository, "-m", s.model(6), "--raw", "--tokens", "150", "-o", s.path("hotpot-tasks.jsonl")])
with open(s.path("hotpot-tasks.jsonl"), encoding="utf-8") as f:
    made = [json.loads(x) for x in f]
for x, word in zip(made, ("the", "of a")):  # words that the tiny model generates
    x["task"]["answers"] = [word]
lines("hotpot-tasks.jsonl", made)
r = s.accepted("answers", ["generate", "-m", s.model(6), "-t", "1", "--jsonl", s.path("hotpot-tasks.jsonl"), "--methods", "full,window", "--budgets", "12"])
s.file("answers.jsonl", r.stdout)
answers = [json.loads(x) for x in r.stdout.splitlines()]
s.check("an answer of each method to each task", len(answers) == 4 and {x["id"] for x in answers} == {x["id"] for x in made}, answers)
rows = {x["method"]: x for x in table(s.path("hotpot-tasks.jsonl"), s.path("answers.jsonl"))}
items = table(s.path("hotpot-tasks.jsonl"), s.path("answers.jsonl"), "--items")
for method in ("full", "window"):
    of = [float(x["score"]) for x in items if x["method"] == method]
    s.check("the mean of " + method, abs(sum(of) / 2 - float(rows[method]["score"])) < 1e-12 and len(of) == 2, items, rows)
    s.check("cut of " + method, float(rows[method]["answers_cut"]) == sum(x["stop"] in ("length", "context") for x in answers if x["method"] == method))
b.write(s.path("plan.json"), {"models": [s.model(6)], "methods": ["full", "window"], "budgets": [12], "threads": 1, "text": [{"name": "hotpot", "kind": "benchmark", "data": ["hotpot-tasks.jsonl"]}]})
s.accepted("the estimate", ["study", s.path("plan.json"), "--plan"])
s.accepted("a study", ["study", s.path("plan.json")])
told = sqlite3.connect(s.path("plan-study/study.sqlite")).execute("select method, right, tasks, answers, answers_cut, floor from study").fetchall()
s.check("the study has the scores", [x[:4] for x in told] == [(m, float(rows[m]["score"]), 2, 2) for m in ("full", "window")] and [x[4:] for x in told] == [(float(rows[m]["answers_cut"]), 0) for m in ("full", "window")], told, rows)
with open(s.path("plan-study/jobs/tiny6-hotpot-s0.tsv"), encoding="utf-8") as f:
    head = f.read()
s.check("its head names benchmark, scorer and prompts", "# benchmark: longbench:hotpotqa\n# scorer: longbench-f1\n# prompts: %d of 2 prompts lost their middle" % sum(x["task"]["truncated"] for x in made) in head, head)
b.write(s.path("mixed.json"), {"models": [s.model(6)], "methods": ["full"], "budgets": [12], "text": [{"name": "x", "kind": "benchmark", "data": ["hotpot-tasks.jsonl", "tasks.jsonl"]}]})
s.refused("two tasks in one text", ["study", s.path("mixed.json"), "--plan"], 1, "another task")
s.finish()
