#!/usr/bin/env python3
"""trace verify --full has no findings for a valid trace of every method with every probe."""
import json
import os
import subprocess
import sys

from harness import Suite

s = Suite()
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
GATES = {"trimkv": "rg", "dbtrimkv": "rg", "locret": "locret", "wgkv": "wgkv", "wgkv-snapkv": "wgkv", "wgkv-quest": "wgkv", "seer": "seer", "duo": "duo"}
NO_BUDGET = ("full", "plan", "duo")
methods = [m["name"] for m in json.loads(subprocess.check_output([s.exe, "list", "all", "--json"]))["methods"]]
model, plan, out = s.path("m.gguf"), s.path("p.kvp"), s.path("x.kvf")
subprocess.run([sys.executable, os.path.join(DATA, "golden/tools/gen_tiny.py"), "--heads", "4", "--kv-heads", "2", "-o", model], check=True)
RUN = ["run", "-m", model, "-t", "1", "-q", "--raw", "-p", "the thing in there was the other thing in where they were", "-n", "60", "--ignore-eos", "-o", out,
       "--overwrite", "--probes", "full"]


def verify(name, path):
    r = s.run(["trace", "verify", "--full", path])
    s.check(f"verify: {name}", r.returncode == 0 and not r.stderr, r.returncode, r.stderr)


s.accepted("a run for a plan", RUN)
s.accepted("a plan", ["trace", "plan", out, "-o", plan])
verify("a plan", plan)
for method in methods:
    more = [] if method in NO_BUDGET else ["-B", "24"]
    if method in GATES:
        gates = s.path(GATES[method] + ".safetensors")
        subprocess.run([sys.executable, os.path.join(DATA, "make_gates.py"), "--layout", GATES[method], "--layers", "2", "--heads", "4", "--kv-heads", "2",
                        "--head-dim", "16", "--d-model", "64", "-o", gates], check=True)
        more += ["--gates", gates]
    if method in ("plan", "mass-greedy", "next-topk"):
        more += ["--plan", plan]
    for shadow in ([], ["--shadow", "entries"]):
        r = s.run([*RUN, "--method", method, *more, *shadow])
        refused = shadow and r.returncode == 1 and b"--shadow entries" in r.stderr or r.returncode == 2 and b"--shadow" in r.stderr
        if not refused:
            s.check(f"run {method}", r.returncode == 0, r.returncode, r.stderr)
            verify(f"{method} {' '.join(shadow)}", out)
s.accepted("what is watched", [*RUN, "--method", "h2o", "-B", "24", "--shadow", "entries,model", "--watch", "3,5-8@L0H1", "--watch-queries", "L0H0@post"])
verify("what is watched", out)
s.accepted("saliency", ["ablate", "--as", "saliency", "-m", model, "-t", "1", "--raw", "-p", "the thing in there was the other thing", "-o", s.path("s.kvf")])
verify("saliency", s.path("s.kvf"))

# ---- without --full the output tells that payloads were not decoded
r = s.run(["trace", "verify", plan])
s.check("verify without --full", r.returncode == 0 and b"values of columns were not decoded (--full does)" in r.stdout, r.stdout)
r = s.run(["trace", "verify", "--full", plan])
s.check("trace verify --full", b"not decoded" not in r.stdout, r.stdout)
s.finish()
