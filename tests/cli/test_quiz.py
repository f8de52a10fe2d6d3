#!/usr/bin/env python3
"""quiz: questions solved from only their words, disjoint parts, and equal bytes for equal
options."""
import json
import re

from harness import Suite

s = Suite()
NUMBERS = ("no one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
           "nineteen twenty").split()


def make(name, *more):
    s.accepted(f"quiz {' '.join(more)}", ["tasks", "quiz", *more, "-o", s.path(name)])
    with open(s.path(name), encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def facts(question):
    """Returns the thing of the person in question."""
    has = dict(re.findall(r"(\w+) has (a \w+ \w+)\.", question))
    return has[re.search(r"What does (\w+) have\?$", question)[1]], len(has)


def copy(question):
    words = question.removeprefix("Say this: ")
    return words, len(words.split())


def sums(question):
    m = re.fullmatch(r"(\w+) has (\w+) (\w+?)s?, gets (\w+) more and gives (\w+) away\. How many (\w+)s has \1 now\?", question)
    a, b, c = (NUMBERS.index(x) for x in m.group(2, 4, 5))
    n = a + b - c
    assert n >= 0 and m[3] == m[6]
    return f"{NUMBERS[n]} {m[3]}{'' if n == 1 else 's'}", max(a, b, c)


for kind, solve, levels in (("facts", facts, (1, 5, 16)), ("copy", copy, (1, 4, 64)), ("sums", sums, (1, 4, 10))):
    for level in levels:
        made = make(f"{kind}{level}.jsonl", "--kind", kind, "--level", str(level), "-n", "60")
        solved = [solve(x["question"]) for x in made]
        s.check(f"{kind} {level}: the value is the solution", [x["value"] for x in made] == [v for v, _ in solved], made[0])
        s.check(f"{kind} {level}: an answer ends with it", all(x["answer"].rstrip(".").endswith(x["value"]) for x in made))
        s.check(f"{kind} {level}: as hard as asked for", all(n == level if kind != "sums" else n <= level for _, n in solved), solved[:3])
        s.check(f"{kind} {level}: what is said", all(x["kind"] == kind and x["level"] == level and 0 < x["chance"] <= 0.5 for x in made))
# At this level there are few questions, so that overlapping parts would share some.
train = [make(f"train{i}.jsonl", "--kind", "sums", "--level", "3", "-n", "3000", "-s", str(i)) for i in (0, 1)]
test = make("test.jsonl", "--kind", "sums", "--level", "3", "-n", "3000", "--part", "test")
seen = {x["question"] for part in train for x in part}
s.check("parts share no question", not seen & {x["question"] for x in test} and len(seen) > 300, len(seen))
s.check("seeds differ", train[0][:20] != train[1][:20])
make("again.jsonl", "--kind", "sums", "--level", "3", "-n", "3000", "-s", "1")
with open(s.path("again.jsonl"), "rb") as f, open(s.path("train1.jsonl"), "rb") as g:
    s.check("the same bytes", f.read() == g.read())
# The facts and the question apart are the parts of the same text; a line can run.
args = ["tasks", "quiz", "--kind", "facts", "--level", "3", "-n", "20", "-s", "4", "--part", "test"]
s.accepted("whole", [*args, "-o", s.path("whole.jsonl")])
s.accepted("apart", [*args, "--question", "unknown", "-o", s.path("apart.jsonl")])
with open(s.path("whole.jsonl")) as f, open(s.path("apart.jsonl")) as g:
    for x, y in zip(map(json.loads, f), map(json.loads, g)):
        s.check("the same question", y["context"] + y["join"] + y["question"] == x["question"] and y["task"]["answers"] == [x["value"]]
                and y["task"]["chance"] == x["chance"] and y["task"]["level"] == 3, x, y)
        s.check("it follows the facts", y["context"].endswith(".") and y["context"].count(".") == 3 and y["question"].startswith(" What does ") and y["join"] == "", y)
for word in ("known", "unknown"):
    r = s.accepted("the lines run", ["generate", "-m", s.model(), "--jsonl", s.path("apart.jsonl"), "--question", word, "--methods", "h2o:cut=prompt", "--budgets", "20", "-q"])
    with open(s.path("apart.jsonl")) as f, open(s.path(word + ".answers"), "w") as g:
        for i, (task, said) in enumerate(zip(map(json.loads, f), r.stdout.decode("utf-8", "replace").splitlines())):
            said = {**json.loads(said), "text": "It is %s." % task["task"]["answers"][0] if i % 4 else "It is a bird."}
            g.write(json.dumps(said) + "\n")
    r = s.accepted("and are scored", ["tasks", "score", s.path("apart.jsonl"), s.path(word + ".answers"), "-o", "-"])
    names, row = [x.split("\t") for x in r.stdout.decode().splitlines() if not x.startswith("#")]
    s.check("the protocol", ("question unknown" in row[names.index("method")]) == (word == "unknown"), row)
    s.check("three of four are right", abs(float(row[names.index("score")]) - .75) < 1e-9, names, row)
for kind in ("copy", "sums"):
    s.refused("no context", ["tasks", "quiz", "--kind", kind, "--question", "unknown", "-o", s.path("x")], 2, "questions of kind " + kind, "--kind facts")
s.refused("no output", ["tasks", "quiz"], 2, "-o")
s.refused("no such level", ["tasks", "quiz", "--kind", "sums", "--level", "11", "-o", s.path("x")], 2, "--level 11", "1 to 10")
s.refused("no such level", ["tasks", "quiz", "--level", "17", "-o", s.path("x")], 2, "--level 17", "1 to 16")
s.refused("no folder", ["tasks", "quiz", "-o", s.path("no/x.jsonl")], 1, "no/x.jsonl")
s.finish()
