#!/usr/bin/env python3
"""Rejects by name: options without an effect, output names with the ending of another format, and
invalid environment variables."""
import json
import os

from harness import Suite

s = Suite()
MODEL = ["-m", s.model(0), "-t", "1"]
P = ["-p", "the thing in there", "--raw"]
DATA = s.file("data.txt", ("= A =\n" + "the thing in there and there again. " * 400).encode())
LINES = s.file("lines.jsonl", b'{"text": "the thing"}\n')
GEN = ["generate", *MODEL, *P, "-n", "2"]
TRACE = s.path("a.kvf")
RUN = ["run", *MODEL, *P, "-n", "40", "--ignore-eos", "--method", "h2o", "-B", "12", "-q"]
s.accepted("a trace", [*RUN, "-o", TRACE])


def idle(option, argv, *more, words=(), code=2):
    """The command must be rejected with the option, and the message must name it."""
    r = s.refused(f"{argv[0]} {option}", [*argv, option, *more], code, option, *words)
    return r


# ---- sampling, and the chat template
for option, value in (("--seed", "5"), ("--top-p", "0.5")):
    idle(option, GEN, value, words=("--temp",))
    s.accepted(f"{option} with --temp", [*GEN, option, value, "--temp", "1"])
    idle(option, ["run", *MODEL, *P, "-o", s.path("x.kvf")], value)
for option in (["--think"], ["--no-think"], ["--date", "2026-01-01"]):
    idle(option[0], GEN, *option[1:], words=("--raw",))
    idle(option[0], ["generate", *MODEL, "--ids", s.file("ids", b"1 2 3"), "-n", "2"], *option[1:], words=("--ids",))
    idle(option[0], ["generate", *MODEL, "--jsonl", LINES, "-n", "2"], *option[1:], words=("--jsonl",))
    idle(option[0], ["ablate", *MODEL, "--data", DATA], *option[1:], words=("--data",))
    idle(option[0], ["run", *MODEL, "--force", TRACE, "-o", s.path("x.kvf")], *option[1:], words=("--force",))
    idle(option[0], ["ablate", "--as", "saliency", "-m", s.model(0), "--of", TRACE], *option[1:], words=("--of",))
idle("--raw", ["generate", *MODEL, "--ids", s.path("ids"), "-n", "2"])

# ---- batches
for option, value in (("--together", "4"), ("--room", "2"), ("--shard", "1/2")):
    idle(option, GEN, value, words=("--jsonl",))
for option in ("--together", "--room"):
    idle(option, ["generate", *MODEL, "--jsonl", LINES, "--methods", "full"], "4", words=("--methods",))

# ---- logits are those of a prompt
for option, value in (("-n", "5"), ("--seed", "1"), ("--temp", "1"), ("--top-p", "0.5")):
    s.refused(f"logits {option}", ["generate", "--logits", *MODEL, *P, "-o", s.path("l.npy"), option, value], 2, option)
full = s.accepted("logits", ["generate", "--logits", *MODEL, *P, "-o", s.path("l.npy")])
r = s.accepted("logits of a method", ["generate", "--logits", *MODEL, *P, "-o", s.path("m.npy"), "--method", "h2o", "-B", "2"])
s.check("are told to be those of full", b"evicts no entries before the end of the prompt" in r.stderr and full.stderr == b"", r.stderr)
with open(s.path("l.npy"), "rb") as a, open(s.path("m.npy"), "rb") as b:
    s.check("and are", a.read() == b.read())
r = s.accepted("logits of a method in the prompt", ["generate", "--logits", *MODEL, *P, "-o", s.path("m.npy"), "--method", "knorm:chunk=4", "-B", "2"])
s.check("say nothing", r.stderr == b"", r.stderr)

# ---- eval, effect
EVAL = ["eval", *MODEL, "--data", DATA, "--docs", "1", "--prompt-tokens", "30", "--score-tokens", "4"]
idle("--raw", EVAL, words=("--tasks",))
idle("--budgets", [*EVAL, "--methods", "full"], "9", words=("--methods",))
r = s.accepted("gates that nothing uses", [*EVAL, "--methods", "full"])
for option, value in (("--docs", "3"), ("--prompt-tokens", "9"), ("--score-tokens", "9"), ("--seed", "2")):
    idle(option, ["eval", *MODEL, "--tasks", s.path("none.json"), "--methods", "full"], value, words=("--tasks",))
EFFECT = ["ablate", *MODEL, *P, "--score-tokens", "2", "--ignore-eos"]
idle("--seed", EFFECT, "3", words=("random",))
s.accepted("a seed of random", [*EFFECT, "--entries", "random:2", "--sinks", "1", "--seed", "3"])
idle("--sinks", [*EFFECT, "--entries", "span=0:2"], "3", words=("span",))

# ---- training
TRAIN = ["train", *MODEL, "--data", DATA, "-o", s.path("g.safetensors"), "--steps", "1"]
for option, *value in (("--check-docs", "2"), ("--check-files",), ("--budgets", "9"), ("--patience", "2")):
    idle(option, [*TRAIN, "--check-every", "0"], *value, words=("--check-every 0",))
    idle(option, [*TRAIN, "--share", "1"], *value, words=("--share 1",))
idle("--check-every", [*TRAIN, "--share", "1"], "7", words=("--share 1",))
idle("--teacher-limit", TRAIN, "99", words=("--keep-teacher",))
TUNE = ["tune", *MODEL, "--data", DATA, "-o", s.path("t.gguf"), "--steps", "1"]
for option, value in (("--samples", "3"), ("--most", "3"), ("--range", "0.5"), ("--updates", "3")):
    idle(option, TUNE, value, words=("--reward",))
idle("--raw", TUNE, words=("--reward",))
for option, value in (("--alpha", "3"), ("--targets", "q")):
    idle(option, TUNE, value, words=("--rank",))
idle("--type", [*TUNE[:5], *TUNE[5:-4], "-o", s.path("t.safetensors"), "--rank", "2"], "f32")
idle("--check-docs", [*TUNE, "--check-every", "0"], "2")
idle("--until", TUNE, "9", words=("--steps 1",))

# ---- analyses
for option, value in (("--save-every", "9"), ):
    idle(option, ["corpus", "survival", TRACE], value, words=("--state",))
for option, value in (("--seed", "9"), ("--intervals", "all")):
    idle(option, ["corpus", "survival", TRACE, "--replicates", "0"], value, words=("--replicates 0",))
for argv, option, value in ((["compare", TRACE, TRACE], "--level", "0.5"), (["compare", TRACE, TRACE], "--value", "nll"),
                            (["compare", TRACE, TRACE, "--by", "tokens"], "--criterion", "top64"), (["size", "--as", "sparsity", TRACE], "--criterion", "top128"),
                            (["attention", "--as", "received", TRACE], "--mass", "0.5"), (["attention", "--as", "received", TRACE, "--spread", "shares"], "--every", "3")):
    s.refused(" ".join([argv[0], option]), [*argv, option, value], 2, option)

for option, value in (("--size", "60x60"), ("--dpi", "90"), ("--cmap", "magma"), ("--vmin", "0"), ("--vmax", "1"), ("--title", "a"), ("--figure", "eviction")):
    for more in ([], ["-o", s.path("t.tsv")]):
        s.refused(f"eviction {option}", ["eviction", TRACE, *more, option, value], 2, option, "figure is drawn")
s.refused("a preview of JSON", ["eviction", TRACE, "--json", "--preview"], 2, "--preview")
s.refused("causal reads the size", ["ablate", "--as", "causal", s.path("none.json"), "-o", s.path("c.png"), "--size", "3"], 2, "WxH")

# ---- one summary for each trace, and the trace that exceeds its budget
for name, method in (("b", "window"), ("c", "snapkv")):
    s.accepted(name, ["run", *MODEL, "--force", TRACE, "--method", method, "-B", "16", "-q", "-o", s.path(name + ".kvf")])
text = s.run(["tokens", TRACE, s.path("b.kvf"), s.path("c.kvf")]).stdout.decode().splitlines()
alone = [s.run(["tokens", t]).stdout.decode().splitlines() for t in (TRACE, s.path("b.kvf"), s.path("c.kvf"))]
heads = ["trace 1 (h2o, budget 12): ", "trace 2 (window, budget 16): ", "trace 3 (snapkv, budget 16): "]
s.check("tokens of three traces", text == [x for h, a in zip(heads, alone) for x in (h + a[0], *a[1:])], text, alone)
said = s.run(["run", *MODEL, *P, "-n", "60", "--ignore-eos", "--method", "h2o", "-B", "8", "--override", "L0K*=window:budget=20", "-o", s.path("o.kvf")]).stderr.decode()
s.check("an override's budget is its own", "over the budget" not in said, said)
said = s.run(["run", *MODEL, *P, "-n", "60", "--ignore-eos", "--method", "h2o", "-B", "8", "--override", "L0K*=window:budget=20,slack=3", "-o", s.path("o2.kvf")]).stderr.decode()
s.check("an override that exceeds it", [x for x in said.splitlines() if "over the budget" in x]
        == ["after the prompt a query saw up to 23 entries of a head, 3 over the budget, as window:budget=20,slack=3 asks for"], said)

# ---- names with the ending of another format
for argv, shown in ((RUN, "OUT.kvf"), (["generate", "--logits", *MODEL, *P], "OUT.npy"), (["trace", "trim", TRACE, "--tokens", "0:5"], "OUT.kvf"), (["trace", "compact", TRACE], "OUT.kvf"), (["trace", "plan", TRACE], "P.kvf"),
                    (["report", TRACE], "FILE.html"), (["tasks", "quiz"], "FILE.jsonl"), (["train", *MODEL, "--data", DATA], "GATES.safetensors"),
                    (["tune", *MODEL, "--data", DATA], "MODEL.gguf"), (["trace", "split", TRACE, "--parts", "2"], "PATTERN.kvf"),
                    (["trace", "import", TRACE], "OUT.kvf"), (["trace", "export", TRACE], "NAME.npz")):
    for end in ("png", "PNG", "tsv"):
        out = s.path(f"other-{argv[0]}.{end}")
        s.refused(f"{argv[0]} -o .{end}", [*argv, "-o", out], 2, "-o", end, shown)
        s.check(f"{argv[0]}: nothing is written", not os.path.exists(out))
s.accepted("an ending of no format", [*RUN, "-o", s.path("v1.2")])
s.refused("a batch in a folder", ["run", "--jsonl", LINES, *MODEL, "-o", s.path("folder.png")], 2, ".png")

# ---- the environment
for name, values in {"KVFATE_CPU_MASK": ("banana", "avx2", "scalar", "0x", "1g", "123456789", "-1", " 1"), "KVFATE_PATIENCE": ("soon", "0", "-3", "nan", "5s")}.items():
    for value in values:
        r = s.run(["trace", "ls", s.work.name], env={**os.environ, name: value})
        s.check(f"{name}={value}", r.returncode == 2 and name.encode() in r.stderr and value.strip().encode() in r.stderr, r.returncode, r.stderr)
for name, values in {"KVFATE_CPU_MASK": ("", "0", "0x0", "F", "ffffffff"), "KVFATE_PATIENCE": ("", "1", "2.5")}.items():
    for value in values:
        s.accepted(f"{name}={value}", ["trace", "ls", s.work.name], env={**os.environ, name: value})
s.refused("help of nothing", ["help", "heatmap"], 2, "heatmap")
s.check("describe names endings", any("MODEL.gguf|ADAPTER.safetensors" == o.get("arg") for c in json.loads(s.run(["list", "all", "--json"]).stdout)["commands"]
                                      for o in c["options"]))
s.finish()
