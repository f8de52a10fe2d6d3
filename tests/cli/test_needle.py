#!/usr/bin/env python3
"""needle: variable tracking solved from only the text, the chance of a guess, and the floor that
eval computes from it."""
import itertools
import json
import math
import os
import re

from harness import Suite
from results import signed
from tasks import make_task

s = Suite()


def read(name):
    with open(s.path(name + ".txt"), "rb") as f:
        text = f.read()
    with open(s.path(name + ".json"), encoding="utf-8") as f:
        return text, json.load(f)


def holders(text):
    """Returns {number: names with this value} and the order of all names, from only the
    sentences."""
    held, order = {}, []
    for name, source in re.findall(r"VAR ([A-Z]{5}) = (?:VAR )?([A-Z]{5}|\d+)\.", text.decode()):
        held[name] = held[source] if source in held else source  # a name without a value fails here
        order.append(name)
    return held, order


def of_chains():
    for hops, keys, depth in ((1, 1, None), (4, 1, None), (4, 6, .5), (9, 3, None), (63, 8, 1)):
        name = f"chain-{hops}-{keys}"
        argv = ["tasks", "needle", "--words", "3000", "--hops", str(hops), "--keys", str(keys), "-n", "2", "-o", s.path(name)]
        s.accepted(name, argv + (["--depth", str(depth)] if depth is not None else []))
        for i in range(2):
            text, said = read(f"{name}-{i}")
            held, order = holders(text)
            number = re.search(rb"hold the number (\d+)", text)[1].decode()
            want = [n for n in order if held[n] == number]
            s.check(f"{name}: the variables", said["answers"] == want and len(want) == hops + 1, said["answers"], want)
            s.check(f"{name}: all chains", len(order) == keys * (hops + 1) and len(set(order)) == len(order) and len(set(held.values())) == keys, held)
            reply = said["reply"]
            s.check(f"{name}: the reply", [reply["text"][a:b] for a, b in reply["values"]] == want, reply)
            spans = {k: [text[x["start"]:x["end"]].decode() for x in said["spans"] if x["name"] == k] for k in ("needle", "value", "distractor", "question")}
            s.check(f"{name}: spans", spans["value"] == want and [x.split()[1] for x in spans["needle"]] == want and len(spans["distractor"]) == (keys - 1) * (hops + 1)
                    and text.decode().endswith(spans["question"][0]), spans)
            s.check(f"{name}: length", 2970 < len(text.split()) <= 3000 and said["words"] == len(text.split()), said["words"])
            if depth == 1:
                s.check(f"{name}: at the end", re.fullmatch(r"(VAR \w+ = (VAR )?\w+\. ?)+", text.decode().split("\n\n")[1].split(spans["needle"][0])[1].strip()))
    for what, more, word in (("values", ["--values", "2"], "--values"), ("queries", ["--queries", "2", "--keys", "2"], "--queries"),
                             ("other numbers", ["--haystack", "needles"], "needles"), ("too many", ["--hops", "63", "--keys", "9"], "over 512")):
        s.refused(f"chains and {what}", ["tasks", "needle", "--words", "900", "--hops", "3", "-o", s.path("bad"), *more], 2, word)


def of_chance():
    """One of all ordered answers of different numbers is right: counted if they are few."""
    for digits, keys, queries, values in ((1, 1, 1, 1), (1, 2, 2, 1), (1, 1, 1, 3), (2, 2, 1, 2)):
        s.accepted("chance", ["tasks", "needle", "--words", "200", "--digits", str(digits), "--keys", str(keys), "--queries", str(queries), "--values", str(values),
                              "-o", s.path("chance")])
        numbers = range(10 ** (digits - 1), 10 ** digits)
        n = sum(1 for _ in itertools.permutations(numbers, queries * values))
        got = read("chance")[1]["chance"]
        s.check(f"chance of {digits}, {queries}, {values}", math.isclose(got, 1 / n, rel_tol=1e-12), got, n)
    s.accepted("chance of names", ["tasks", "needle", "--words", "200", "--hops", "2", "-o", s.path("chance")])
    n = 26 ** 5
    got = read("chance")[1]["chance"]
    s.check("chance of names", math.isclose(got, 1 / (n * (n - 1) * (n - 2)), rel_tol=1e-12), got)


def of_floor():
    """The floor is the mean chance. A full cache with an interval that includes it ranks no
    method."""
    chances = (.2, .4, .6)
    def tasks(shift):
        for i, chance in enumerate(chances):
            t = make_task(s, f"t{i}", 20 + i)
            s.file(f"t{i}.json", json.dumps({**t["task"], "chance": chance + shift}).encode())
    argv = ["eval", "-m", s.model(), "--raw", "--methods", "full,window", "--budgets", "8", "--tasks", *(s.path(f"t{i}.json") for i in range(3)),
            "--state", s.path("t.state"), "-o", s.path("t.tsv")]
    tasks(0)
    s.accepted("floor", argv)
    lines = open(s.path("t.state"), encoding="utf-8").read().split("\n")
    at = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    with open(s.path("t.state"), "w", encoding="utf-8") as f:  # all are right
        f.write("\n".join(signed([x if i <= at or not x else "\t".join([*x.split("\t")[:-2], "1", ""]) for i, x in enumerate(lines)], at)))
    z2 = 1.959963984540054 ** 2
    low = 1 / (1 + z2 / 3)  # Wilson's lower bound for 3 of 3
    for shift, none in ((0, False), (low - .4 + 1e-6, True), (low - .4 - 1e-6, False)):
        tasks(shift)
        s.accepted("floor", argv)
        text = open(s.path("t.tsv"), encoding="utf-8").read()
        names, *rows = [x.split("\t") for x in text.split("\n") if x and x[0] != "#"]
        got = [float(r[names.index("floor")]) for r in rows]
        s.check("the mean chance", len(got) == 2 and all(abs(x - .4 - shift) < 1e-12 for x in got), got)
        s.check("ranking", ("# ranking: none" in text) == none and abs(float(rows[0][names.index("right_low")]) - low) < 1e-9, shift, text)
    r = s.accepted("in words", argv[:-2])
    s.check("in words", "floor" in r.stdout.decode() and "%" in r.stdout.decode().splitlines()[-1].split()[-1], r.stdout)
    for bad in (-1e-3, 1, 1e300):
        t = make_task(s, "t0", 20)
        s.file("t0.json", json.dumps({**t["task"], "chance": bad}).encode())
        s.refused(f"a chance of {bad}", argv, 1, "chance")


def of_question():
    """--question unknown changes only the protocol in the file, which eval and causal follow."""
    files = {}
    for word in ("known", "unknown"):
        s.accepted(word, ["tasks", "needle", "--words", "90", "--keys", "3", "-n", "2", "--question", word, "-o", s.path(word)])
        files[word] = [json.load(open(s.path(f"{word}-{i}.json"))) for i in range(2)]
        s.check("the same text", [open(s.path(f"{word}-{i}.txt")).read() for i in range(2)] == [open(s.path(f"known-{i}.txt")).read() for i in range(2)])
    for a, b in zip(files["known"], files["unknown"]):
        s.check("the protocol", b.pop("question") == "unknown" and "question" not in a and b.pop("checksum", 0) != a.pop("checksum", 1) and a == b, a, b)
    t = [make_task(s, f"q{i}", 30 + i) for i in range(2)]

    def write(*protocols):
        for i, x in enumerate(protocols):
            s.file(f"q{i}.json", json.dumps({**t[i]["task"], **x}).encode())
    tasks = [s.path("q0.json"), s.path("q1.json")]
    evaluate = ["eval", "--tasks", *tasks, "-m", s.model(), "--raw", "--methods", "snapkv:window=3,cut=prompt", "--budgets", "12"]
    for name, argv in (("eval", evaluate), ("causal", ["ablate", "--as", "causal", *tasks, "-m", s.model(), "--raw"])):
        def table(*words):
            return s.accepted(name, [*argv, *words, "-o", "-"]).stdout
        write({}, {"question": "known"})
        known, unknown = table(), table("--question", "unknown")
        s.check(f"{name}: known is the default", table("--question", "known") == known and b"# question" not in known and known != unknown)
        s.check(f"{name}: the table names the protocol", b"# question: unknown\n" in unknown)
        write({"question": "unknown"}, {"question": "unknown"})
        s.check(f"{name}: the files decide", table() == unknown and table("--question", "file") == unknown and table("--question", "known") == known)
        write({}, {"question": "unknown"})
        s.refused(f"{name}: two protocols", argv, 2, "q0.json is known", "q1.json is unknown", "--question")
        s.check(f"{name}: the option decides", table("--question", "unknown") == unknown)
        write({"question": "later"}, {})
        s.refused(f"{name}: no protocol", argv, 1, "q0.json", '"question"')
    write({}, {})
    s.refused("no task", ["eval", "--data", tasks[0], "-m", s.model(), "--question", "unknown"], 2, "needs --tasks")


of_chains()
of_chance()
of_question()
of_floor()
s.finish()
