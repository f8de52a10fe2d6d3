#!/usr/bin/env python3
"""Notes of `run` and of analyses about numbers that can mislead, compared with the traces."""
import os
import re
import sys

from harness import Suite

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "analyze"))
from maker import table

s = Suite()
MODEL = ["-m", s.model(0), "-t", "1", "--raw", "--ignore-eos", "--overwrite"]
P = ["-p", "the thing in there and there again, in or out of it, and what of it then"]


def kvf(name):
    return s.path(name + ".kvf")


def run(name, *more, n=90):
    """Returns (prompt tokens, notes)."""
    done = s.accepted(name, ["run", *MODEL, *P, "-n", str(n), *map(str, more), "-o", kvf(name)])
    said = done.stderr.decode()
    return int(re.search(r"prefill (\d+) tokens", said)[1]), [line for line in said.splitlines() if line.startswith("note: ")]


def seen(name, prompt):
    """Returns the number of entries that each query after the prompt saw per head, from the evict steps."""
    t, _ = table(s.exe, "eviction", kvf(name))
    heads, T = {}, 1 + max(t["birth"])
    for head, birth, step in zip(t["head"], t["birth"], t["evict_step"]):
        heads.setdefault(head, []).append((birth, T + 1 if step < 0 else step))
    return [sum(i <= q < step for i, step in entries) for entries in heads.values() for q in range(prompt, T)]


# ---- an answer of one token has no step with a measurable speed
said = s.accepted("one token", ["run", *MODEL, *P, "-n", "1", "-o", kvf("one")]).stderr.decode()
s.check("one token: its summary", "; decode 1 token; cache " in said and "nan" not in said, said)

# ---- a budget that differs from the cached entries
for name, more in {"rkv": ["--method", "rkv", "-B", 24], "every": ["--method", "h2o:every=5", "-B", 12],
                   "slack": ["--method", "knorm:slack=9", "-B", 12], "after": ["--method", "knorm:slack=9,every=3,order=after", "-B", 12],
                   "scissorhands": ["--method", "scissorhands", "-B", 20]}.items():
    prompt, notes = run(name, *more)
    held = seen(name, prompt)
    numbers = [re.search(r"a query sees (\d+) to (\d+) entries of a head, and not the budget of (\d+)", x) for x in notes]
    s.check(f"{name}: one note", len(notes) == 1 and numbers[0], notes)
    if numbers and numbers[0]:
        s.check(f"{name}: its numbers", [*map(int, numbers[0].groups())] == [min(held), max(held), more[-1]], notes, min(held), max(held))
prompt, notes = run("exact", "--method", "h2o", "-B", 12)
s.check("a budget that is held says nothing", notes == [] and set(seen("exact", prompt)) == {12}, notes)
prompt, notes = run("rkv-1", "--method", "rkv:every=1", "-B", 24)
s.check("what the note advises", notes == [] and set(seen("rkv-1", prompt)) == {24}, notes)
s.check("quiet", s.run(["run", *MODEL, *P, "-q", "--method", "rkv", "-B", "24", "-n", "9", "-o", kvf("q")]).stderr == b"")

# ---- a method without an effect
for name, more in {"large": ["--method", "rkv", "-B", 900], "pages": ["--method", "quest:page=2,dense=0", "-B", 900]}.items():
    _, notes = run(name, *more)
    s.check(f"{name}: nothing evicted", len(notes) == 1 and "no entry was evicted" in notes[0], notes)
_, notes = run("choice", "--method", "quest:page=2,dense=0", "-B", 8)
s.check("pages are left unread", notes == [], notes)

# ---- reads of all entries are rejected if this is so for every prompt; otherwise a note states it
for method, words in (("snapkv:read=quest,page=2,reads=16", ["reads=16", "more than 16"]), ("snapkv:read=quest,page=2,reads=17,order=after", ["reads=17", "more than 17"]),
                      ("h2o:read=quest,page=2,reads=19,slack=3", ["reads=19", "more than 19"]), ("rocketkv:cut=always,reads=16", ["reads=16", "more than 16"]),
                      ("snapkv:read=quest,page=8,reads=2000", ["reads=2000"]), ("snapkv:read=seer-oracle,page=17", ["page=17", "reads everything"]),
                      ("h2o:read=quest,page=9,reads=18,slack=3,order=after", []), ("quest:dense=2", []), ("quest:dense=3", ["dense=3", "all 2 layers"]),
                      ("snapkv:read=quest,dense=2,page=2", ["dense=2", "all 2 layers"]), ("snapkv:read=quest,dense=1,page=2", []),
                      ("snapkv:read=quest,page=2,reads=15", []), ("snapkv:read=quest,page=2,reads=16,cut=prompt", []), ("adakv:read=quest,page=2,reads=16", [])):
    argv = ["run", *MODEL, *P, "-n", "40", "--method", method, "-B", "16", "-o", kvf("reads")]
    if words:
        s.refused(method, argv, 2, *words)
    else:
        s.accepted(method, argv)
for method, said in (("snapkv:read=quest", True), ("rocketkv:reads=500", True), ("snapkv:read=quest,page=2", False), ("snapkv", False)):
    _, notes = run("nothing unread", "--method", method, "-B", "16", n=40)
    s.check(f"{method}: the note", any("all pages were read" in x for x in notes) == said, notes)
_, notes = run("full")
s.check("full says nothing", notes == [], notes)
prompt, notes = run("one", "--method", "h2o", "-B", 12, n=1)
s.check("-n 1", len(notes) == 1 and "no query followed the evictions" in notes[0] and seen("one", prompt) == [], notes)
prompt, notes = run("two", "--method", "h2o", "-B", 12, n=2)
s.check("-n 2", notes == [] and seen("two", prompt) == [12] * len(seen("two", prompt)), notes)
_, notes = run("local", "--method", "local", "-B", 12, n=1)
s.check("what leaves in the prompt is missed", notes == [], notes)

# ---- dilution with a retention that never acted
for name, acts in {"one": False, "two": True}.items():
    run(name, "--method", "h2o", "-B", 12, "--probes", "evict,dilution", n=1 + acts)
    text = s.accepted(f"dilution {name}", ["dilution", kvf(name)]).stdout.decode()
    _, meta = table(s.exe, "dilution", kvf(name))
    s.check(f"dilution {name}", ("had no effect in this run" in text) != acts and ("under retention (run)" in text) == acts, text)
    s.check(f"dilution {name}: the table", meta.get("retention") == (None if acts else "never acted"), meta)

# ---- the cut after the prompt
for order, line in {"before": True, "after": False}.items():
    prompt, _ = run(order, "--method", f"h2o:order={order}", "-B", 12, n=9)
    t, _ = table(s.exe, "size", "--as", "kv-size", kvf(order))
    all_ = next(i for i, (h, at) in enumerate(zip(t["head"], t["at"])) if h == "all" and at == "prefill")
    heads = len(set(t["head"])) - 1
    s.check(f"{order}: prefill", t["entries"][all_] == heads * (12 - line), t["entries"][all_])
    text = s.accepted(f"kv-size {order}", ["size", "--as", "kv-size", kvf(order)]).stdout.decode()
    s.check(f"{order}: says so", ("prefill is the cache of the next query" in text) == line, text)

# ---- probes that were not recorded, compared with runs that record one more
def recorded(probes):
    said = s.accepted(probes, ["run", *MODEL, *P, "-n", "3", "--method", "h2o", "-B", "12", "--probes", probes, "-v", "-o", kvf("probes")]).stderr.decode()
    return int(re.search(r"recording .*: (\d+) bytes per token", said)[1]), re.findall(r"^not recorded, in bytes per token: (.*?);", said, re.M)


paper, left = recorded("paper")
said = s.accepted("by default", ["run", *MODEL, *P, "-n", "3", "--method", "h2o", "-B", "12", "--overwrite", "-o", kvf("probes")]).stderr.decode()
s.check("no lines on what is recorded without -v", "recording" not in said and "not recorded" not in said and "prefill" in said, said)
s.refused("-q and -v", ["run", *MODEL, *P, "-q", "-v", "-o", kvf("none")], 2, "--quiet", "--verbose")
more = {name: int(n) for name, n in (x.split() for x in left[0].split(", "))} if left else {}
s.check("left out: what figures need", {"window", "under", "dilution"} <= set(more), left)
for name, n in more.items():
    s.check(f"left out: {name}", recorded("paper," + name) == (paper + n, []), n)
s.check("left out: all", recorded("full") == (paper + sum(more.values()), []), more)
s.check("left out: lean was asked for", recorded("lean")[1] == [])

# ---- answers that diverge
run("greedy", n=9)
run("hot", "--temp", 3, "--seed", 5, n=9)
ids = [table(s.exe, "tokens", kvf(name))[0]["id"] for name in ("greedy", "hot")]
at = next(i for i, (a, b) in enumerate(zip(*ids)) if a != b)
s.accepted("forced", ["run", *[x for x in MODEL if x != "--raw"], "--force", kvf("greedy"), "--method", "h2o", "-B", "12", "-o", kvf("forced")])
run("short", n=5)
for command in ("compare", "eviction", "part"):
    for other, parts in {"hot": True, "forced": False, "short": False}.items():
        more = ["--common"] if command == "part" else []
        said = s.run([*s.words_of(command), kvf("greedy"), kvf(other), *more]).stderr.decode()
        s.check(f"{command} {other}", (f"differ from token {at}, " in said and "--force" in said) == parts, said)
s.accepted("another prompt", ["run", *MODEL, "-p", "out of it", "-n", "9", "-o", kvf("elsewhere")])
said = s.run(["eviction", kvf("greedy"), kvf("elsewhere")]).stderr
s.check("another prompt", said == b"", said)
s.finish()
