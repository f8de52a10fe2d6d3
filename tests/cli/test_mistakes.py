#!/usr/bin/env python3
"""Typical mistakes of a first hour. Each one gets a sentence with the problem, its place and a remedy: the test checks
words of the remedy and the exit status, and that the standard error has at most three lines and no traceback."""
import os
import shutil
import subprocess

from harness import Suite

s = Suite()
MODEL = ["-m", s.model()]
TEXT = s.file("prompt.txt", b"ab ab ab ab ab ab")
TRACE, PLAIN, NEW = s.path("x.kvf"), s.path("lean.kvf"), s.path("new.kvf")
s.accepted("a trace", ["run", *MODEL, "--raw", "-f", TEXT, "-n", "12", "--ignore-eos", "--method", "h2o", "-B", "6", "-q", "-o", TRACE])
s.accepted("a lean trace", ["run", *MODEL, "--raw", "-f", TEXT, "-n", "4", "--ignore-eos", "--probes", "lean", "-q", "-o", PLAIN])
POINTER = s.file("pointer.gguf", b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 98362432\n")
WEIGHTS = s.file("model.safetensors", b"\0" * 64)
os.makedirs(s.path("two"))
for name in ("two/a.gguf", "two/b.gguf"):
    s.file(name, b"GGUF")
os.makedirs(s.path("hub/models--Org--Half"))
os.environ["HF_HUB_CACHE"] = s.path("hub")
UTF16 = s.file("utf16.txt", "ab ab".encode("utf-16"))
BINARY = s.file("binary.gguf", b"GGUF" + b"\0" * 40)

described = s.accepted("a method by its paper's name", ["methods", "streamingllm"]).stdout
s.check("is described without a budget", described.startswith(b"window: ") and b"streaming-llm" in described, described)

RUN = ["run", *MODEL, "--raw", "-f", TEXT, "-n", "2", "-o", NEW]
CASES = (  # (what was typed, exit status, words of the sentence)
    # commands
    (["heatmap", TRACE], 2, "did you mean 'eviction'?"),
    (["version"], 2, "did you mean '--version'?"),
    (["compress", "-f", TEXT], 2, "did you mean 'run'?"),
    (["plot", TRACE], 2, "did you mean 'draw'?"),
    (["help", "heatmap"], 2, "did you mean 'eviction'?"),
    (["regret", TRACE], 2, "'kvfate missed --as regret'"),
    (["trace", "validte", TRACE], 2, "kvfate help trace"),
    (["-v", "run"], 2, "must follow the command", "kvfate COMMAND -v"),
    (["survival", "--as", "hazrd", TRACE], 2, "did you mean 'hazard'?"),
    # prompts
    (["run", *MODEL, TEXT, "-o", NEW], 2, f"kvfate run -f '{TEXT}'"),
    (["run", *MODEL, "prompt.md", "-o", NEW], 2, "kvfate run -f 'prompt.md'"),
    (["generate", *MODEL, "Why is the sky blue?"], 2, "kvfate generate -p 'Why is the sky blue?'"),
    (["run", *MODEL, "--raw", "-p", TEXT, "-n", "2", "-q", "-o", s.path("words.kvf")], 0, "takes the words", f"-f {TEXT} reads the file"),
    (["run", *MODEL, "--raw", "-f", TEXT, "-n", "2", "--method", "streamingllm", "-B", "4", "--shadow", "entries", "-o", NEW], 2, "omit --shadow", "--method window"),
    (["run", *MODEL, "--prompt-file", TEXT, "-o", NEW], 2, "did you mean --file?"),
    (["run", *MODEL, "-f", BINARY, "-o", NEW], 1, "-m"),
    (["run", *MODEL, "-f", UTF16, "-o", NEW], 1, "convert it to UTF-8"),
    (["run", *MODEL, "-f", TEXT], 2, "-o OUT.kvf", "kvfate generate"),
    # models
    (["generate", "-m", "Org/Model", "-p", "a"], 1, "hf download Org/Model"),
    (["generate", "-m", "Org/Half", "-p", "a"], 1, "no snapshot", "hf download"),
    (["generate", "-m", POINTER, "-p", "a"], 1, "git lfs pull"),
    (["generate", "-m", WEIGHTS, "-p", "a"], 1, "config.json", "fetch all files"),
    (["generate", "-m", s.path("two"), "-p", "a"], 1, "-m " + s.path("two/")),
    (["generate", "-m", "smollm2", "-p", "a"], 1, "did you mean 'smollm2-135m'?"),
    (["generate", "-m", "llama", "-p", "a"], 1, "it lists smollm2-135m, gemma-3-270m"),
    (["generate", "-m", TRACE, "-p", "a"], 1, "GGUF"),
    (["models", "get", "llama"], 2, "smollm2-135m"),
    # methods and budgets
    ([*RUN, "--method", "streamingllm"], 2, "needs --budget N"),
    ([*RUN, "--method", "h2o"], 2, "needs --budget N", "such as 50%"),
    ([*RUN, "--method", "snapvk", "-B", "4"], 2, "did you mean 'snapkv'?"),
    ([*RUN, "--method", "sliding window", "-B", "4"], 2, "did you mean 'window'?"),
    ([*RUN, "--method", "heavy-hiters", "-B", "4"], 2, "did you mean 'heavy-hitters'?"),
    ([*RUN, "--method", "snapkv,h2o", "-B", "4"], 2, "kvfate eval --methods"),
    ([*RUN, "-B", "64"], 2, "needs --method"),
    ([*RUN, "--method", "h2o", "-B", "0.2"], 2, "a fraction of the prompt such as 25%"),
    ([*RUN, "--method", "h2o", "--compression-ratio", "0.5"], 2, "did you mean --budget?"),
    ([*RUN, "--device", "gpu"], 2, "did you mean 'cuda'?"),
    ([*RUN, "--temperature", "1"], 2, "did you mean --temp?"),
    ([*RUN, "--max-new-tokens", "9"], 2, "did you mean --predict?"),
    ([*RUN, "--seed", "1"], 2, "--temp 0", "leave it out"),
    # output
    (["run", *MODEL, "-f", TEXT, "-o", s.path("out.png")], 2, "-o OUT.kvf"),
    (["run", *MODEL, "-f", TEXT, "-o", TRACE], 1, "--overwrite"),
    (["run", *MODEL, "-f", TEXT, "-o", s.work.name], 1, "a folder", "the name of a file"),
    (["run", *MODEL, "-f", TEXT, "-o", s.path("nodir/x.kvf")], 1, "the folder " + s.path("nodir") + "/ does not exist", "mkdir"),
    (["eviction", TRACE, "-o", s.path("nodir/x.png")], 1, "does not exist", "mkdir"),
    (["fates", TRACE, "-o", s.path("x.jpg")], 2, "must end in", ".png"),
    (["report", TRACE, "-o", s.path("x.pdf")], 2, "-o FILE.html"),
    (["draw", TRACE, "-o", s.path("x.png")], 2, "kvfate eviction"),
    (["trace", "verify", TRACE, "--json"], 2, "leave --json out"),
    (["trace", "ls", s.work.name, "-t", "4"], 2, "leave -t out"),
    # traces and figures
    (["survival", "nothing.kvf"], 1, "kvfate trace ls"),
    (["survival", TEXT], 1, "kvfate run -o X.kvf"),
    (["survival"], 2, "kvfate run -p TEXT -o X.kvf"),
    (["compare", TRACE], 2, "A.kvf B.kvf"),
    (["retention", TRACE, "--head", "99.1"], 2, "names layer 99", "layers 0 to"),
    (["fates", TRACE, "--figure", "fates-anser", "-o", s.path("x.png")], 2, "did you mean 'fates-answer'?"),
    (["fates", TRACE, "--cmap", "jet", "-o", s.path("x.png")], 2, "viridis"),
    (["fates", TRACE, "--figsize", "3x2", "-o", s.path("x.png")], 2, "did you mean --size?"),
    (["eviction", TRACE, "--title"], 2, "--title needs a value"),
    (["overlap", PLAIN, "-o", s.path("x.png")], 1, "--probes"),
)
for argv, code, *words in CASES:
    r = s.run(argv)
    err = r.stderr.decode("utf-8", "replace")
    name = "kvfate " + " ".join(argv).replace(s.work.name + "/", "")
    s.check(name, r.returncode == code, f"exit {r.returncode}, expected {code}", err)
    s.check(f"{name}: a remedy", all(w in err for w in words), f"must say {words}", err)
    s.check(f"{name}: a short message", err.startswith(("kvfate", "note: ")) and 1 <= err.count("\n") <= 3 and "Traceback" not in err, err)
s.check("at least 40 mistakes", len(CASES) >= 40, len(CASES))
s.check("no output of a mistake", not os.path.exists(NEW) and not os.path.exists(s.path("out.png")))

# ---- models that -m understands
answer = s.accepted("the model", ["generate", *MODEL, "--raw", "-p", "ab", "-n", "4", "-q"]).stdout
FOLDER = s.path("hub/models--Org--Whole/snapshots/0123")
os.makedirs(FOLDER)
os.makedirs(s.path("hub/models--Org--Whole/refs"))
os.symlink(s.model(), os.path.join(FOLDER, "weights.gguf"))
s.file("hub/models--Org--Whole/refs/main", b"0123")
for given in (FOLDER, s.path("hub/models--Org--Whole"), s.path("hub/models--Org--Whole/"), "Org/Whole"):
    r = s.accepted(f"-m {os.path.relpath(given, s.work.name)}", ["generate", "-m", given, "--raw", "-p", "ab", "-n", "4", "-q"])
    s.check(f"{given}: the same answer", r.stdout == answer and answer, r.stdout)

# ---- options of every command
loud = s.accepted("eval", ["eval", *MODEL, "--data", TEXT, "--docs", "1", "--prompt-tokens", "4", "--score-tokens", "4", "--methods", "h2o", "--budgets", "4"])
quiet = s.accepted("eval -q", ["eval", *MODEL, "--data", TEXT, "--docs", "1", "--prompt-tokens", "4", "--score-tokens", "4", "--methods", "h2o", "--budgets", "4", "-q", "--overwrite"])
s.check("-q prints no notes", loud.stderr and not quiet.stderr and loud.stdout == quiet.stdout, loud.stderr, quiet.stderr)
r = s.run(["survival", "nothing.kvf", "-q"])
s.check("-q prints errors", r.returncode == 1 and b"nothing.kvf" in r.stderr, r)
r = s.accepted("-v", ["trace", "ls", TRACE, "-v"])
s.check("-v prints time and memory", b" s, " in r.stderr and b"MiB" in r.stderr, r.stderr)
printed = s.accepted("methods", ["methods"]).stdout
r = s.accepted("methods -o", ["methods", "-o", s.path("m.txt"), "--overwrite"])
with open(s.path("m.txt"), "rb") as f:
    s.check("-o gets the standard output", f.read() == printed and not r.stdout and printed)
s.refused("-o of an input", ["trace", "verify", TRACE, "-o", s.path("x.kvf")], 2, "another format")
s.refused("-q and -v", ["methods", "-q", "-v"], 2, "give one")
r = s.accepted("a value that looks like an option", ["eviction", "--title", "--as", TRACE, "-o", s.path("t.svg")])
s.check("it is the title", b"unknown" not in r.stderr and os.path.exists(s.path("t.svg")), r.stderr)

# ---- the manual page, in an installation and in a wheel; `man` is a program that prints its arguments
os.makedirs(s.path("path"))
with open(s.path("path/man"), "w") as f:
    f.write('#!/bin/sh\necho "$@"\n')
os.chmod(s.path("path/man"), 0o755)
for name, place, pages in (("an installation", "usr/bin", "usr"), ("a wheel", "venv/lib/python3.11/site-packages/kvfate/bin", "venv"), ("a wheel in a folder", "folder/kvfate/bin", "folder")):
    os.makedirs(s.path(place))
    shutil.copy(s.exe, s.path(place))
    page = s.path(pages + "/share/man/man1/kvfate-trace.1")
    argv, env = [s.path(place + "/kvfate"), "help", "--man", "trace", "ls"], {**os.environ, "PATH": s.path("path")}
    r = subprocess.run(argv, env=env, capture_output=True, text=True)
    s.check(f"{name} without pages", r.returncode == 1 and "no manual pages; use 'kvfate trace -h'" in r.stderr, r)
    os.makedirs(os.path.dirname(page))
    s.file(page, b"page")
    r = subprocess.run(argv, env=env, capture_output=True, text=True)
    s.check(f"{name} shows its page", r.returncode == 0 and r.stdout == f"-l {page}\n", r)
s.finish()
