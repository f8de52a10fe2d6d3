#!/usr/bin/env python3
"""Traces with declarations that their contents do not match, with impossible contents, or with
control characters for a terminal. Every command ends in bounded time and memory, with a message.
hostile_traces.py makes them.
"""
import json
import os
import signal
import subprocess

import numpy as np

from harness import Suite
from hostile_traces import DATA, G, H, L, T, Column, beyond_integers, honest, made, make, spoiled

s = Suite()
ANALYZERS = [a for a in json.loads(subprocess.check_output([s.exe, "list", "all", "--json"]))["analyzers"]]
bounded = s.bounded


def trace(name):
    return os.path.join(DATA, name + ".kvf")


def operands(a, path):
    return [path] * max(a["min_traces"], 1)


# ---- more data declared than stored
for name in ("huge", "t24"):
    for a in ANALYZERS:
        bounded(f"{name}: {a['name']}", [*s.words_of(a["name"]), *operands(a, trace(name))], words=("in a file of",))
        if a["figures"]:
            bounded(f"{name}: a figure of {a['name']}", [*s.words_of(a["name"]), *operands(a, trace(name)), "-o", s.path("x.svg")], words=("in a file of",))
    for argv in (["trace", "diff", trace(name), trace(name)], ["trace", "diff", "--first", trace(name), trace(name)], ["trace", "plan", trace(name), "-o", s.path("x.kvp")],
                 ["report", trace(name), "-o", s.path("x.html")], ["corpus", "survival", trace(name)]):
        bounded(f"{name}: {argv[0]}", argv, (2 if argv[1] == "diff" and "--first" not in argv else 1, ), words=("in a file of",))
    bounded(f"{name}: info", ["trace", "info", trace(name)], (0,))
    bounded(f"{name}: verify --full", ["trace", "verify", "--full", trace(name)], seconds=30)
bounded("huge: what is missing", ["trace", "verify", trace("huge")], words=("tokens.id lacks 16777216 of the 16777216 values",))

# ---- impossible contents: heads, ages, numbers
for a in ANALYZERS:
    bounded(f"no KV heads: {a['name']}", [*s.words_of(a["name"]), *operands(a, trace("fpe01"))], (0, 1, 2))
bounded("no KV heads: verify", ["trace", "verify", trace("fpe01")], words=("KV heads",))
good = made(s, "good.kvf", honest())
r = s.run(["trace", "verify", "--full", good])
s.check("an honest trace is whole", r.returncode == 0 and not r.stderr, r)


for column, value in (("tokens.id", -1), ("tokens.role", 5), ("nll", -.5), ("evict_step", 7), ("evict_step", T + 1), ("evict_reason", 6), ("evict_margin", -1),
                      ("log_beta", .5), ("log_beta", np.nan), ("last_selected.top64", T - 7), ("mass.sum", -1), ("mass.sum", np.nan), ("mass.sum", np.inf), ("mass.sum", T),
                      ("entropy", -1), ("shadow.first_hit", 6), ("shadow.first_hit", T), ("shadow.ghost_hits", T - 6)):
    bad = spoiled(s, column, value)
    s.check(f"records of {column} = {value} are whole", s.run(["trace", "verify", bad]).returncode == 0)
    r = s.run(["trace", "verify", "--full", bad])
    s.check(f"{column} = {value} cannot be", r.returncode == 1 and f"{column} of layer 0, head 0 is".encode() in r.stderr and b" at 7, which cannot be" in r.stderr,
            r.returncode, r.stderr)
for column, value in (("evict_step", 8), ("evict_step", T), ("evict_step", np.nan), ("last_selected.top64", T - 8), ("last_selected.top64", np.nan), ("nll", np.nan),
                      ("evict_margin", np.nan), ("shadow.first_hit", 7), ("shadow.first_hit", np.nan), ("x-own.column", np.nan)):
    r = s.run(["trace", "verify", "--full", spoiled(s, column, value)])
    s.check(f"{column} = {value} can be", r.returncode == 0, r.stderr)
columns = honest()
for c in columns:
    c.n = 17 if c.name == "mass.sum" else None
r = s.run(["trace", "verify", made(s, "gap.kvf", columns)])
s.check("values that are missing", r.returncode == 1 and b"mass.sum lacks 52 of the 120 values of layer 0, the first of head 0 at 17" in r.stderr, r.stderr)
r = s.run(["survival", s.path("gap.kvf"), "--criterion", "top64"])
s.check("others can be analysed", r.returncode == 0, r.stderr)
bounded("that column cannot", ["attention", "--as", "received", s.path("gap.kvf"), "--spread"], (1, 2))
columns = honest()
columns[8].axis = "step"
r = s.run(["trace", "verify", made(s, "axis.kvf", columns)])
s.check("a column of another shape", r.returncode == 1 and b"mass.sum must not have a value for each query head and step" in r.stderr, r.stderr)
twice = make(s.write_kvf, s.path("twice.kvf"), honest(), (L, H, G, T), texts=["x"] * T, again=True)
r = s.run(["trace", "verify", twice])
s.check("values that are there twice", r.returncode == 1 and b"both have tokens.id of layer 0 at 0" in r.stderr, r.stderr)
ages = spoiled(s, "shadow.first_hit", 4294967294)
for ext in ("tsv", "png", "svg"):
    bounded(f"ghosts of an age beyond the run: {ext}", ["missed", ages, "-o", s.path("x." + ext)], words=("4294967294", "no step of this trace"))
big = beyond_integers(s)
for a in ANALYZERS:
    bounded(f"numbers that no integer holds: {a['name']}", [*s.words_of(a["name"]), *operands(a, big)], (0, 1, 2))

# ---- tables for figures: a few rows can have any head, step and age
def table(name, columns, rows):
    return s.file(name + ".tsv", "\n".join([f"# table: {name}", columns.replace(" ", "\t"), *("\t".join(map(str, r)) for r in rows)]).encode() + b"\n")


far = table("ghosts", "head layer index token evict_step first_hit hits mass", [(f"L{i}H0", i, 0, 5, 6, (1 << 24) - 1, 1, .5) for i in range(400)])
for ext in ("png", "svg"):
    bounded(f"drawn: missed after 2^24 steps: {ext}", ["draw", far, "-o", s.path("x." + ext)], (0,))
far = table("occupancy", "step head layer index class entries", [(i, f"L0K{h}", 0, h, "all", 1) for h in range(16) for i in (0, 1, 60_000_000)])
bounded("drawn: steps that the table lacks", ["draw", far, "--figure", "occupancy-curves", "--style", "by=head", "-o", s.path("x.svg")], words=("too few rows",))
far = table("compare", "a b head_a head_b distance layer_a index_a layer_b index_b matched", [(1, 2, "a", "a", .1, l, 0, l, 0, 1) for l in (0, 16383)])
bounded("drawn: pairs that the table lacks", ["draw", far, "-o", s.path("x.png")], words=("pairs of heads in a table of 2 rows",))
far = table("sparsity", "head layer index kind sparsity", [(f"L{l}H{l}", l, l, "alpha", .5) for l in (0, 3999)])
bounded("drawn: heads that the table lacks", ["draw", far, "-o", s.path("x.svg")], words=("the table has 2 rows, too few for",))
many = table("eviction", "head layer index token birth evict_step age reason score margin tie", [(f"L{h // 128}K{h % 128}", h // 128, h % 128, 0, 0, 1, 1, "budget", 0, 0, 0) for h in range(1 << 16)])
bounded("drawn: more pixels than anybody looks at", ["draw", many, "-o", s.path("x.png")], words=("choose --size",))
few = table("eviction", "head layer index token birth evict_step age reason score margin tie", [("L0K0", 0, 0, i, i, i + 1, 1, "budget", 0, 0, 0) for i in range(9000)])
bounded("drawn: more pixels than a PNG may have", ["draw", few, "--size", "1690x1690", "-o", s.path("x.png")], words=("million pixels", "of at most 64"))
bounded("drawn: as many as it may have", ["draw", few, "--size", "676x676", "-o", s.path("x.png")], (0,), memory=(400 + 256) << 20)

# ---- an incomplete run
empty = make(s.write_kvf, s.path("empty.kvf"), [Column(c.name, c.dtype, c.space, c.values[..., :0], c.axis, c.flags) for c in honest()], (L, H, G, 0))
torn = make(s.write_kvf, s.path("torn.kvf"), honest(), (L, H, G, T), texts=["x"] * T, unclosed=True)
for name, path, words in (("empty", empty, b"has no steps"), ("unfinished", torn, b"was not closed")):
    for argv in (["survival", path, "--criterion", "top64"], ["size", path, "-o", s.path("x.tsv")], ["trace", "info", path], ["trace", "diff", path, path], ["report", path, "-o", s.path("x.html")],
                 ["corpus", "survival", path, "--criterion", "top64"]):
        r = s.run(argv)
        s.check(f"{name}: {argv[0]}", r.returncode in (3, 1) and words in r.stderr and (r.returncode == 3 or "diff" in argv or argv[0] == "corpus"), argv, r.returncode, r.stderr)
s.check("a complete", s.run(["survival", good, "--criterion", "top64"]).returncode == 0)

# ---- terminals, pipes
for argv in (["trace", "info", trace("esc")], ["trace", "info", "--json", trace("esc")], ["tokens", trace("esc")], ["tokens", trace("esc"), "-o", "-"], ["trace", "verify", trace("esc")],
             ["trace", "diff", trace("esc"), good], ["eviction", trace("esc"), "--json"]):
    r = s.run(argv)
    raw = [c for c in r.stdout + r.stderr if (c < 32 and c not in b"\n\t") or c == 127]
    s.check(f"no control characters: {' '.join(argv[:2])}", not raw, argv[0], r.stdout[:300], r.stderr[:300])
s.check("they are shown", rb"tok\x1B[31mens.id" in s.run(["trace", "info", trace("esc")]).stdout)
for argv in (["survival", good, "--criterion", "top64", "-o", "-"], ["tokens", good, "--json"], ["list", "all", "--json"]):
    p = subprocess.Popen([s.exe, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdout.close()
    err = p.stderr.read()
    s.check(f"a pipe that nobody reads: {argv[0]}", p.wait() == -signal.SIGPIPE and not err, p.returncode, err)

# ---- no regular file, and a file that shrinks
fifo = s.path("fifo.kvf")
os.mkfifo(fifo)
for argv in (["survival", fifo], ["trace", "info", fifo], ["trace", "verify", fifo], ["generate", "-m", fifo, "-p", "x"],
             ["generate", "-m", s.model(0), "-q", "-p", "x", "--method", "trimkv", "-B", "8", "--gates", fifo]):
    bounded(f"a FIFO: {argv[0]} {argv[1][:2]}", argv, words=("not a regular file",))
one_token = ["generate", "-m", s.model(0), "-q", "--raw", "-p", "x", "-n", "1"]
for argv in (["corpus", "merge", fifo, "-o", s.path("m.tsv")], ["corpus", "merge", fifo, fifo, "--state", s.path("m.state")], [*one_token, "--lora", fifo]):
    bounded(f"a FIFO: {argv[0]} {argv[-2]}", argv, words=("not a regular file",))
bounded("data without an end", ["eval", "-m", s.model(0), "--data", "/dev/zero", "--methods", "full", "--docs", "1", "--prompt-tokens", "16", "--score-tokens", "16",
                                "-o", s.path("e.tsv")], words=("may have no end",))
bounded("a list without an end of lines", ["corpus", "survival", "@/dev/zero"], words=("a line is too long",))
p = subprocess.Popen([s.exe, "corpus", "survival", "@" + fifo], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
try:  # waits for the reader of the list
    p.wait(1)
except subprocess.TimeoutExpired:
    p.terminate()
try:
    s.check("SIGTERM ends a command that waits for a list", p.wait(20) == -signal.SIGTERM, p.returncode)
except subprocess.TimeoutExpired:
    p.kill()
    s.check("SIGTERM ends a command that waits for a list", False)
text = s.path("force.txt")
with open(text, "w") as f:
    f.write("5 6 7 8")
given = ["run", "-m", s.model(0), "-q", "--raw", "-p", "x", "--force"]
a = s.run([*given, text, "-o", s.path("a.kvf")])
read, write = os.pipe()
os.write(write, b"5 6 7 8")
os.close(write)
b = subprocess.run([s.exe, *given, f"/dev/fd/{read}", "-o", s.path("b.kvf")], capture_output=True, pass_fds=[read])
os.close(read)
digests = [s.run(["trace", "checksum", s.path(name)]).stdout.split()[:1] for name in ("a.kvf", "b.kvf")]
s.check("ids that come through a pipe are forced", a.returncode == b.returncode == 0 and digests[0] == digests[1] != [], a, b, digests)
model = s.file("shrinks.gguf", open(s.model(0), "rb").read())
p = subprocess.Popen([s.exe, "generate", "-m", model, "-q", "-t", "1", "--raw", "-p", "x", "-n", "400", "--ignore-eos"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
p.stdout.read(1)  # it is loaded, and decodes
os.truncate(model, 0)
out, err = p.communicate()
s.check("a model that shrinks", p.returncode in (0, 1) and (p.returncode == 0 or b"became shorter" in err), p.returncode, err)
s.finish()
