"""The commands that write files, each with small inputs, for kills.py and power.py.

Every command with an option -o in `kvfate list all` must be covered: commands that make a table from
one trace automatically, all others by the list below. A command that is in neither is an error in
this file."""
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from proof import PATIENCE

# Times are removed before bytes are compared.
CLOCK = re.compile(rb'("(?:seconds|[a-z_]*_seconds|tokens_per_second|time)": ?)[0-9.e+-]+')
OLDER = b"an older file that must not be lost\n" * 40


class Writer:
    """One command. outs: its output files. goes_on: files from which the command continues after a
    kill; the next run writes their contents to outs."""

    def __init__(self, name, argv, outs, goes_on=()):
        self.name, self.argv, self.outs, self.goes_on = name, argv, outs, goes_on

    def older(self, out):
        return OLDER + out.encode()


def steady(data):
    return None if data is None else CLOCK.sub(rb"\1N", data)


def model(bed):
    from harness import Gguf
    Gguf(layers=2, heads=4, kv_heads=2).set("llama.context_length", 16384).write(bed.path("m.gguf"))


def inputs(bed):
    """Makes the files that the commands read, in their working folder."""
    model(bed)
    text = "The camel drank from the well. A stone fell into it, and nobody knew. " * 12
    for i in range(3):
        Path(bed.path(f"t{i}.txt")).write_text(text[7 * i:])
    Path(bed.path("q.txt")).write_text("The camel drank from the well. A stone fell into it. Who drank?")
    shutil.copy(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "torch", "rg.pth"), bed.path("g.pth"))
    spans = [{"name": name, "useful": name == "needle", "start": a, "end": b} for name, a, b in (("needle", 4, 30), ("question", 53, 63))]
    with open(bed.path("q.json"), "w") as f:
        json.dump({"reply": {"text": " It was the camel.", "values": [[8, 17]]}, "spans": spans}, f)
    with open(bed.path("gsm.jsonl"), "w") as f:
        f.write(json.dumps({"question": "How many?", "answer": "#### 2"}) + "\n")
    with open(bed.path("x.answers"), "w") as f:
        f.write(json.dumps({"id": "gsm8k-00000", "text": "#### 2"}) + "\n")
    bed.kvfate("tasks", "gsm8k", "gsm.jsonl", "-m", "m.gguf", "-o", "x.tasks")
    run = ["run", "-m", "m.gguf", "-t", "1", "--ignore-eos", "-q", "--raw", "-p", "the thing", "-n", "24", "--probes", "paper"]
    bed.kvfate(*run, "--method", "h2o", "--budget", "12", "--probes", "full", "--shadow", "entries", "-o", "a.kvf")
    bed.kvfate(*run, "--probes", "full,raw:1.0", "--watch", "0,3@L0H0", "--watch-queries", "L1H1@post", "-o", "b.kvf")
    bed.kvfate(*run, "-o", "c.kvf")
    bed.kvfate("trace", "export", "c.kvf", "-o", "c.npz")
    for i in (1, 2):
        bed.kvfate("corpus", "survival", "a.kvf", "--state", f"s{i}.sum", "--shard", f"{i}/2", "-o", f"s{i}.tsv")
    bed.kvfate("eviction", "a.kvf", "-o", "e.tsv")
    bed.kvfate("trace", "split", "c.kvf", "--parts", "2", "-o", "p%d.kvf")
    bed.kvfate(*TRAIN, "-o", "g.safetensors")
    bed.kvfate(*run, "--method", "trimkv", "--gates", "g.safetensors", "--budget", "64", "--probes", "full", "-o", "g.kvf")


TRAIN = ["train", "-m", "m.gguf", "--data", "t0.txt", "--length", "32", "--steps", "3", "--save-every", "1", "--check-every", "0", "-t", "1"]
TUNE = ["tune", "-m", "m.gguf", "--data", "t0.txt", "--method", "window", "-B", "8", "--length", "32", "--steps", "3", "--save-every", "1", "--check-every", "0",
        "-t", "1"]
PROMPT = ["-m", "m.gguf", "--raw", "-p", "the thing"]
EVAL = ["eval", "-m", "m.gguf", "--data", "t0.txt", "t1.txt", "t2.txt", "--methods", "h2o,window", "--budgets", "8", "--docs", "2", "--prompt-tokens", "20", "--score-tokens", "4", "-t", "1"]
# Arguments before -o and the file. If there are several files, all of them are listed.
LIST = {
    "run": ([["run", *PROMPT, "-t", "1", "-n", "20", "--ignore-eos", "-q", "--probes", "paper", "--overwrite", "-o", "x.kvf"]], ["x.kvf"]),
    "generate": ([["generate", *PROMPT, "-t", "1", "-n", "9", "--ignore-eos", "-q", "--overwrite", "-o", "x.txt"]], ["x.txt"]),
    "info": ([["trace", "info", "c.kvf", "--overwrite", "-o", "x.txt"]], ["x.txt"]),
    "logits": ([["generate", "--logits", *PROMPT, "-o", "x.npy"]], ["x.npy"]),
    "eval": ([[*EVAL, "--state", "x.state", "-o", "x.tsv"]], ["x.tsv"], ["x.state"]),
    "effect": ([["ablate", *PROMPT, "--recent", "2", "--score-tokens", "2", "-o", "x.tsv"]], ["x.tsv"]),
    "saliency": ([["ablate", "--as", "saliency", *PROMPT, "--overwrite", "-o", "x.kvf"]], ["x.kvf"]),
    "train": ([[*TRAIN, "-o", "x.safetensors"]], ["x.safetensors", "x.safetensors.log.jsonl"], ["x.safetensors.state"]),
    "tune": ([[*TUNE, "-o", "x.gguf"]], ["x.gguf", "x.gguf.log.jsonl"], ["x.gguf.state"]),
    "curves": ([["train", "curves", "g.safetensors.log.jsonl", "-o", "x.tsv"]], ["x.tsv"]),
    "causal": ([["ablate", "--as", "causal", "-m", "m.gguf", "--raw", "q.json", "-t", "1", "-o", "x.tsv"]], ["x.tsv"]),
    "needle": ([["tasks", "needle", "--words", "60", "-n", "2", "-o", "x"]], ["x-0.txt", "x-0.json", "x-1.txt", "x-1.json"]),
    "tasks": ([["tasks", "gsm8k", "gsm.jsonl", "-m", "m.gguf", "-o", "x.jsonl"]], ["x.jsonl"]),
    "score": ([["tasks", "score", "x.tasks", "x.answers", "-o", "x.tsv"]], ["x.tsv"]),
    "gates": ([["gates", "convert", "g.pth", "--overwrite", "-o", "x.safetensors"]], ["x.safetensors"]),
    "quiz": ([["tasks", "quiz", "-n", "50", "-o", "x.jsonl"]], ["x.jsonl"]),
    "export": ([["trace", "export", "c.kvf", "--overwrite", "-o", "x.npz"]], ["x.npz"]),
    "import": ([["trace", "import", "c.npz", "--overwrite", "-o", "x.kvf"]], ["x.kvf"]),
    "repair": ([["trace", "repair", "c.kvf", "--overwrite", "-o", "x.kvf"]], ["x.kvf"]),
    "compact": ([["trace", "compact", "c.kvf", "--overwrite", "-o", "x.kvf"]], ["x.kvf"]),
    "trim": ([["trace", "trim", "c.kvf", "--tokens", "0:10", "--overwrite", "-o", "x.kvf"]], ["x.kvf"]),
    "split": ([["trace", "split", "c.kvf", "--parts", "2", "--overwrite", "-o", "x%d.kvf"]], ["x1.kvf", "x2.kvf"]),
    "cat": ([["trace", "cat", "p1.kvf", "p2.kvf", "--overwrite", "-o", "x.kvf"]], ["x.kvf"]),
    "plan": ([["trace", "plan", "a.kvf", "--overwrite", "-o", "x.kvf"]], ["x.kvf"]),
    "part": ([["trace", "diff", "--first", "a.kvf", "b.kvf", "-o", "x.tsv"]], ["x.tsv"]),
    "diff": ([["trace", "diff", "a.kvf", "b.kvf", "-o", "x.tsv"]], ["x.tsv"]),
    "compare": ([["compare", "a.kvf", "b.kvf", "-o", "x.tsv"]], ["x.tsv"]),
    "corpus": ([["corpus", "survival", "a.kvf", "b.kvf", "--state", "x.sum", "--save-every", "0", "-t", "1", "-o", "x.tsv"]], ["x.tsv"], ["x.sum"]),
    "merge": ([["corpus", "merge", "s1.sum", "s2.sum", "-o", "x.tsv"]], ["x.tsv"]),
    "draw": ([["draw", "e.tsv", "-o", f"x.{ext}"] for ext in ("svg",)], ["x.svg"]),
    "report": ([["report", "a.kvf", "-o", "x.html"]], ["x.html"]),
}
FORMATS = ("csv", "json", "npz", "svg", "png", "pdf")  # of one analysis, in addition to the TSV tables of all analyses
# Commands without small inputs, which write tables by the same function as every analysis; and quickstart, which
# writes a folder with other commands of this list.
LEFT_OUT = {"claims", "predict", "atlas", "agreement", "quickstart"}


TEXT = "FILE.txt|FILE.json"  # -o of commands that write their standard output; two of LIST stand for all


def try_out(bed, argv):
    r = subprocess.run([bed.exe, *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=bed.folder.name, timeout=PATIENCE)
    return r.returncode, r.stderr.decode(errors="replace")


def writers(bed):
    """Returns all commands; makes their inputs."""
    inputs(bed)
    said = json.loads(bed.kvfate("list", "all", "--json"))["commands"]
    out = []
    for c in said:
        name = c["name"]
        output = next((o for o in c.get("options", []) if o["name"] == "output"), None)
        if not output or name in LEFT_OUT or output.get("arg") == TEXT and name not in LIST:
            continue
        if name in LIST:
            argvs, outs, *more = LIST[name]
            out += [Writer(name, argv, outs, *more) for argv in argvs]
            continue
        for trace in ("b.kvf", "a.kvf", "g.kvf"):
            code, err = try_out(bed, [*c["words"].split(), trace, "-o", "try.tsv"])
            if code in (0, 3):
                out.append(Writer(name, [*c["words"].split(), trace, "-o", "x.tsv"], ["x.tsv"]))
                break
        else:
            raise SystemExit(f"tests/endure/commands.py: {name} has no arguments in LIST, and says of a trace: {err}")
    beside = {"csv": ["x.csv.meta.json"]}
    out += [Writer("eviction." + ext, ["eviction", "a.kvf", "-o", "x." + ext], ["x." + ext, *beside.get(ext, [])]) for ext in FORMATS]
    return out
