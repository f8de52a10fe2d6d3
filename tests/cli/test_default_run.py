#!/usr/bin/env python3
"""Run every analysis of `kvfate list all` on the trace of a default run, compare sampled with complete columns, and
test --record.  KVFATE_DEFAULT_RUN names a model of `kvfate models`; the default is a tiny model."""
import csv
import json
import os
import re
import shlex
import subprocess
import sys

from harness import Gguf, Suite

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
NAMED = os.environ.get("KVFATE_DEFAULT_RUN")
GATED = {"agreement", "variance", "calibration"}  # analyses of gate values
CHOSEN = {"attention"}  # analyses of heads that the user chooses

s = Suite()
MODEL = NAMED or s.model(0)
if NAMED and s.run(["models", NAMED, "--json"]).returncode != 0:
    print(f"{NAMED} is not in the cache folder: left out")
    sys.exit(77)
shape = json.loads(s.run(["models", MODEL, "--json"]).stdout)
TOLD = json.loads(subprocess.check_output([s.exe, "list", "all", "--json"]))
TEXT = " ".join(f"The key {i} opens door {i * 7 % 31}, and the red ball {i % 5} is in room {i * 3 % 11}." for i in range(12 if NAMED else 8))


def kvf(name):
    return s.path(name + ".kvf")


def record(name, *more):
    s.accepted(name, ["run", "-m", MODEL, "--raw", "-p", TEXT, "-n", "24", "--ignore-eos", "-t", "2", "-q", *more, "-o", kvf(name)])
    return kvf(name)


def header(path):
    return json.loads(s.run(["trace", "info", "--json", path]).stdout)["header"]


def table(name, words, *argv):
    """Returns the rows of an analysis as dictionaries of texts."""
    out = s.path(name + ".csv")
    s.accepted(name, [*words.split(), *argv, "-o", out])
    with open(out, encoding="utf-8") as f:
        return list(csv.DictReader(line for line in f if not line.startswith("#")))


for seed in (0, 1):
    subprocess.run([sys.executable, os.path.join(DATA, "make_gates.py"), "--layout", "rg", "--layers", str(shape["layers"]), "--heads", str(shape["query_heads"]),
                    "--kv-heads", str(shape["kv_heads"]), "--head-dim", str(shape["head_dim"]), "--d-model", str(shape["width"]), "--hidden", "8",
                    "--seed", str(seed), "-o", s.path(f"g{seed}.safetensors")], check=True)
full = record("full")
h2o = record("h2o", "--method", "h2o", "-B", "32")
GATE = ["--method", "trimkv", "-B", "4096", "--gates"]  # without evictions, because calibration needs all entries
gates = [record("gates0", *GATE, s.path("g0.safetensors")), kvf("gates1")]
s.accepted("other gates on the same tokens", ["run", "-m", MODEL, "--force", gates[0], *GATE, s.path("g1.safetensors"), "-q", "-o", gates[1]])

# ---- every analysis
rejected = set()
for a in TOLD["analyzers"]:
    name = a["name"]
    s.check(f"{name} has a figure", len(a["figures"]) > 0)
    for method, traces in {"full": [full, h2o], "h2o": [h2o, full]}.items():
        argv = [*s.words_of(name), *traces[:max(1, a["min_traces"])], "-o", s.path(f"{name}-{method}.svg")]
        r = s.run(argv)
        if r.returncode != 0 and b"--gates FILE" in r.stderr:
            rejected.add(name)
            continue
        if name in CHOSEN:
            s.check(f"{name} tells how to record heads", r.returncode == 1 and b"--probes raw:" in r.stderr, argv, r.stderr.decode()[:500])
            s.accepted(f"{name} records them", [*argv, "--record", "--model", MODEL, "--overwrite"])
            continue
        s.check(f"{name} of a default run with {method}", r.returncode == 0, argv, r.stderr.decode()[:500])
        s.check(f"{name}: no columns are missing", b"the trace lacks" not in r.stderr or method == "full", r.stderr.decode()[:500])
    if name in rejected:
        s.accepted(f"{name} of a default run with gates", [*s.words_of(name), *gates[:max(1, a["min_traces"])], "-o", s.path(f"{name}-gates.svg")])
s.check("only analyses of gate values need gates", rejected == GATED, rejected)

# ---- samples are stated and equal the values of a complete recording
sampled = header(full).get("sampled", {})
s.check("the header names the samples", set(sampled) >= {"received", "queries"}, sampled)
every = header(full)["run"].get("dilution_every", 1)
tokens = header(full)["run"]["prompt_tokens"] + 24
s.check("the number of sampled queries", tokens // every <= 128 and (every == 1 or 2 * (tokens // every) >= 126), tokens, every)
said = s.run(["dilution", full, "--mean"]).stderr.decode()
s.check("dilution states its sample", ("sampled: every %d" % every in said) == (every > 1), said)
s.check("trace info states it", (b"sampled" in s.run(["trace", "info", full]).stdout))
# ---- a long run records the columns of paper, and a note states it
FAR = Gguf(arch="llama", context=40000).write(s.path("far.gguf"))
for n, said in (("16000", False), ("17000", True)):
    r = s.accepted(f"{n} tokens at most", ["run", "-m", FAR, "--raw", "-p", "the thing", "-n", n, "-q", "-o", kvf("far" + n)])
    names = {c["name"] for c in json.loads(s.run(["trace", "info", "--json", kvf("far" + n)]).stdout)["columns"]}
    s.check(f"{n} tokens at most: a note", (b"records the columns of --probes paper" in r.stderr) == said, r.stderr)
    s.check(f"{n} tokens at most: columns", ("key_norm" in names) != said and "mass.sum" in names, names)

whole = record("whole", "--probes", "auto,dilution")
s.check("a probe by name is recorded whole", "dilution" not in header(whole).get("sampled", {}), header(whole))
step = str(max(2, every))
some, all_ = (table(f"dilution-{i}", "dilution", x, "--every", step) for i, x in enumerate((full, whole)))
s.check("the sample has the values of all queries", some == all_ and any(r["dilution"] not in ("", "nan") for r in some), len(some), len(all_))
explicit = record("explicit", "--method", "h2o", "-B", "32", "--probes", "full", "--shadow", "entries")
for words in ("survival --as persistence", "survival --as intermittency", "overlap", "attention --as sparsity", "missed"):
    a, b = (table(f"{words.replace(' ', '')}-{i}", words, x) for i, x in enumerate((h2o, explicit)))
    s.check(f"{words}: as with --probes full", a == b and len(a) > 0, len(a), len(b))

# ---- --record
for method in ([], ["--method", "h2o:sinks=2", "-B", "25%"]):
    name = "lean" + str(len(method))
    lean = record(name, "--probes", "lean", *method)
    wanted = table(name + "-of-whole", "dilution", record(name + "-whole", "--probes", "auto,dilution", *method), "--every", "1")
    r = s.run(["dilution", lean, "--model", MODEL])
    s.check("--model without --record", r.returncode == 2, r.stderr)
    known = [] if NAMED else ["--model", MODEL]
    got = table(name + "-recorded", "dilution", lean, "--every", "1", "--record", *known)
    s.check(f"{name}: --record gives the table of a whole recording", got == wanted, len(got), len(wanted))
    s.accepted("--record-to", ["dilution", lean, "--record-to", kvf(name + "-kept"), *known])
    s.check("the new trace is kept", header(kvf(name + "-kept"))["method"] == header(lean)["method"])
    r = s.run(["dilution", lean])
    s.check("rejected without --record", r.returncode == 1, r.stderr)
    if NAMED:
        said = r.stderr.decode()
        command = shlex.split(re.search(r"to record them: kvfate (.*) \(or add --record here\)", said)[1])
        s.accepted("the printed command", command)
        s.accepted("its trace", ["dilution", command[-1]])
if not NAMED:
    r = s.run(["dilution", kvf("lean0"), "--record", "--model", s.model(1)])
    s.check("--record with another model", r.returncode == 1 and b"model.hash" in r.stderr and r.stdout == b"", r)
    s.refused("--record without a known model", ["dilution", kvf("lean0"), "--record"], 1, "--model")
s.refused("--record-to of two traces", ["dilution", kvf("lean0"), kvf("lean0"), "--record-to", kvf("two")], 2, "--record-to")

# ---- survival of cached entries: an evicted entry is gone at once, without a grace
def rows_of(words, name):
    s.accepted(name, [*words, h2o, "-o", s.path(name + ".tsv")])
    with open(s.path(name + ".tsv")) as f:
        return list(csv.DictReader((line for line in f if line[0] != "#"), delimiter="\t"))


entries, curve = rows_of(["eviction"], "entries"), rows_of(["survival", "--criterion", "held"], "held")
T = 1 + max(int(r["token"]) for r in entries)
died, at_risk = [0] * (T + 1), [0] * (T + 1)
for r in entries:
    last = T - 1 - int(r["token"])
    gone = int(r["evict_step"]) - 1 - int(r["token"]) if r["evict_step"] not in ("", "-1", "nan") else last
    died[gone + 1] += gone < last
    for x in range(-1, min(gone, last - 1) + 1):
        at_risk[x + 1] += 1
alive = [1.0]
for x in range(T):
    alive.append(alive[-1] * (1 - died[x] / at_risk[x]) if at_risk[x] else float("nan"))
told = [(int(r["horizon"]), float(r["survival"])) for r in curve if r["head"] == "all" and r["class"] == "all" and r["survival"] != "nan"]
s.check("survival of cached entries is the product limit of their evictions", len(told) > 5 and all(abs(v - alive[n + 1]) < 1e-9 for n, v in told) and told[-1][1] < 1,
        [(n, v, alive[n + 1]) for n, v in told][-3:])
s.refused("held needs no grace, others do", ["survival", "--criterion", "held,top64", h2o], 2, "--grace")
s.finish()
