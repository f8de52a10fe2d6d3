#!/usr/bin/env python3
"""Commands are found by the words of cli/groups.list: kinds, subcommands and flags. Old names are rejected with the
new words, wrong names with a near one."""
import json
import os
import re

from harness import Suite

s = Suite()
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
TOLD = json.loads(s.accepted("list all", ["list", "all", "--json"]).stdout)
COMMANDS = TOLD["commands"]
with open(os.path.join(ROOT, "cli/groups.list"), encoding="utf-8") as f:
    LINES = f.read()


def text(*argv):
    return s.run(list(argv)).stdout.decode()


# ---- the pages of help
page = text("-h")
s.check("the first page fits a screen", page.count("\n") <= 24 and max(map(len, page.splitlines())) <= 100, page)
s.check("it is the page of --help", page == text("--help"))
s.check("it names every group", all(re.search(rf"^  {g} ", page, re.M) for g in TOLD["groups"]), page)
everything = text("help")
tops = sorted({c["words"].split()[0] for c in COMMANDS})
s.check("at most 35 top-level commands", len(tops) <= 35, tops)
for c in COMMANDS:
    s.check(f"help lists {c['words']}", f"  {c['words']} " in everything, everything)
    s.check(f"{c['words']}: a known group", c["group"] in TOLD["groups"], c["group"])
    r = s.run([*c["words"].split(), "-h"])
    s.check(f"{c['words']} -h", r.returncode == 0 and r.stdout.decode().startswith(f"usage: kvfate {c['words']}"), r)
    s.check(f"help {c['words']}", text("help", *c["words"].split()).split() != [] and c["summary"] in text("help", *c["words"].split()), c["words"])
for group in TOLD["groups"]:
    listed = re.findall(r"^  (\S+) +\S", text("help", group), re.M)
    s.check(f"help {group}", sorted(listed) == sorted({c["words"].split()[0] for c in COMMANDS if c["group"] == group}), listed)

# ---- old names: every line of the list that moves a command
for form, words in re.findall(r"^(FIRST|KIND|SUB|FLAG)\((.*)\)$", LINES, re.M):
    part = re.findall(r'"([^"]*)"', words)
    new, old = (part[0], part[2]) if form == "FIRST" else (f"{part[0]} --as {part[1]}", part[2]) if form == "KIND" else (part[0], part[1])
    if new.split()[0] == old or (form, old) == ("SUB", "merge") and new == "eval merge":
        continue
    s.refused(f"old name {old}", [old, "x.kvf"], 2, f"'{old}' is now 'kvfate {new}'")
    s.refused(f"old name {old}: help", ["help", old], 2, f"'{old}' is now 'kvfate {new}'")
s.refused("an old name in corpus", ["corpus", "hazard", "x.kvf"], 2, "'corpus hazard' is now 'kvfate corpus survival --as hazard'")
s.refused("no analysis of corpus", ["corpus", "ls", "x.kvf"], 2, "'ls' is no analysis", "survival --as hazard")

# ---- kinds
s.refused("no such kind", ["survival", "--as", "hazrad", "x.kvf"], 2, "--as 'hazrad'", "did you mean 'hazard'?", "block-exit")
s.refused("no kind", ["survival", "x.kvf", "--as"], 2, "--as needs a value")
s.refused("no kinds", ["fates", "x.kvf", "--as", "map"], 2, "--as")
s.refused("a subcommand is missing", ["list", "nothing"], 2, "no command 'list nothing'", "kvfate help list")
s.refused("a wrong subcommand", ["trace", "verfy"], 2, "did you mean 'trace verify'?")
s.check("a top-level command alone", s.run(["trace"]).returncode == 2 and b"trace repair" in s.run(["trace"]).stderr)
s.check("an option of one kind", s.run(["survival", "--as", "decay", "--bins", "0,1", "x.kvf"]).returncode == 2)

trace = s.path("x.kvf")
s.accepted("a trace", ["run", "-m", s.model(), "--raw", "-p", "ab ab ab ab", "-n", "30", "--ignore-eos", "--method", "h2o", "-B", "8", "--probes", "paper", "-q", "-o", trace])
hazard = json.loads(s.accepted("a kind", ["survival", "--as", "hazard", trace, "--json"]).stdout)
s.check("its table", hazard["name"] == "hazard", hazard["name"])
for argv in (["survival", trace, "--as=hazard", "--json"], ["survival", trace, "--json", "--as", "survival", "--as", "hazard"]):
    s.check("--as anywhere", json.loads(s.accepted(" ".join(argv), argv).stdout) == hazard)
for top, name in (("survival", "survival"), ("size", "occupancy"), ("where", "density"), ("attention", None)):
    r = s.run([top, trace, "--json"])
    s.check(f"{top} without --as", name is None or json.loads(r.stdout)["name"] == name, r)
pooled = [json.loads(s.accepted(" ".join(argv[:3]), [*argv, "--json"]).stdout) for argv in (["corpus", "survival", "--as", "hazard", trace], ["corpus", "survival", trace, "--as=hazard"])]
s.check("corpus takes the same words", pooled[0] == pooled[1] and pooled[0]["name"] == "hazard", pooled[0]["name"])
s.check("words behind -- are files", b"--as" in s.run(["survival", "--", "--as", "hazard"]).stderr)
s.check("messages begin with the words", s.run(["survival", "--as", "hazard", "none.kvf"]).stderr.startswith(b"kvfate survival --as hazard: "))

# ---- did you mean
for wrong, right in (("heatmap", "eviction"), ("version", "--version"), ("atention", "attention"), ("hazrad", "survival --as hazard"), ("verfy", "trace verify"), ("Survival", "survival"),
                     ("perplexity", "eval")):
    s.refused(f"did you mean {right}", [wrong], 2, f"did you mean '{right}'?")
prompt = s.file("prompt.txt", b"ab")
for command in ("run", "generate"):
    s.refused(f"{command} FILE", [command, "-m", s.model(), prompt], 2, f"kvfate {command} -f '{prompt}'")
    s.refused(f"{command} TEXT", [command, "-m", s.model(), "Why is it blue?"], 2, f"kvfate {command} -p 'Why is it blue?'")
s.check("an unlike word", b"did you mean" not in s.run(["xyzzyxyzzy"]).stderr)
s.finish()
