#!/usr/bin/env python3
"""Runs gates/claims_trainings.py with a fake kvfate with known scores. Checks the requested
trainings and texts, the pairing of seeds, continuation after an interruption, its tables, and the
control seed.

usage: test_claims_trainings.py KVFATE SOURCE_ROOT"""
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402

ROOT = os.path.abspath(sys.argv[2])
# KL is 1 for the reference, and larger by ten times the seed minus 5 for all others. The write
# gates keep 100 entries times 1 - tau.
STAND_IN = r'''#!/usr/bin/python3
import hashlib, json, os, sys
argv = sys.argv[1:]
with open(os.environ["LOG"], "a") as f:
    print(*argv, file=f)
if os.environ.get("FAIL_AT") == str(sum(1 for _ in open(os.environ["LOG"]))):
    sys.exit(1)
of = lambda k: argv[argv.index(k) + 1]
if argv[0] == "train":
    open(of("-o"), "w").close()
else:
    gates = os.path.basename(of("--gates")) if "--gates" in argv else "none.0.safetensors"
    name, seed = gates.split(".safetensors")[0].rsplit(".", 1)
    texts = [json.loads(x)["text"] for x in open(argv[argv.index("--data") + 1]) if x.strip()] if "held-out" not in of("--data") else ["h"]
    methods = of("--methods").split(":")[0] if ":" not in of("--methods") else of("--methods")
    with open(of("--state"), "w") as f:
        print("# model: m\ndoc\tdoc_hash\tmethod\tbudget\tkl\tkv_mean", file=f)
        for n, text in enumerate(reversed(texts)):
            for m in methods.replace(",wgkv", " wgkv").split():
                tau = float(m.split("tau=")[1]) if "tau=" in m else 0
                kl = 1 + (0 if name == "trimkv" else 10 * int(seed) - 5)
                print(n, hashlib.md5(text.encode()).hexdigest()[:16], m, of("--budgets"), kl, 100 * (1 - tau), sep="\t", file=f)
'''

with tempfile.TemporaryDirectory(prefix="kvfate-trainings-") as work:
    log, program, texts = (os.path.join(work, n) for n in ("log", "kvfate", "texts"))
    Path(program).write_text(STAND_IN, encoding="utf-8")
    os.chmod(program, 0o755)
    os.mkdir(texts)
    for name in ("law-0", "law-1", "song-2", "song-0"):
        Path(os.path.join(texts, name + ".txt")).write_text(name + " «", encoding="utf-8")
    for name in ("text.txt", "questions.jsonl"):
        Path(os.path.join(work, name)).write_text("a line\n" * 100, encoding="utf-8")

    def script(out, *names, **env):
        """Returns the calls of the program."""
        open(log, "w").close()
        r = subprocess.run([sys.executable, os.path.join(ROOT, "gates", "claims_trainings.py"), os.path.join(work, "text.txt"),
                            os.path.join(work, "questions.jsonl"), texts, os.path.join(work, out), *names],
                           env={**os.environ, "KVFATE": program, "LOG": log, **env}, capture_output=True, text=True, timeout=60)
        return r, [line.split() for line in Path(log).read_text(encoding="utf-8").splitlines()]

    def rows(out, name):
        with open(os.path.join(work, out, name), encoding="utf-8") as f:
            table = [line.split("\t") for line in f.read().splitlines() if not line.startswith("#")]
        return [dict(zip(table[0], r)) for r in table[1:]]

    r, calls = script("one", "trimkv", "linear", "no-window")
    check("runs", r.returncode == 0, r.stderr[-500:])
    trainings = [c for c in calls if c[0] == "train"]
    check("three seeds of each", len(trainings) == 9, len(trainings))
    for c in trainings:
        seed = c[c.index("--seed") + 1]
        method = c[c.index("--method") + 1]
        check("seeds of packs and weights pair", f"net-seed={seed}" in method and os.path.basename(c[c.index("-o") + 1]).split(".")[1] == seed, c)
        check("the same capacity", ("M=16" in method.split(",")) != method.startswith("wgkv"), method)
        check("one value of a setting", len({p.split("=")[0] for p in method.split(",")}) == len(method.split(",")), method)
    sizes = {tuple(c[c.index(o) + 1] for o in ("--steps", "--length")) for c in trainings}
    check("one size for all", len(sizes) == 1, sizes)
    for name in ("trimkv", "linear"):
        got = rows("one", f"eval-docs.{name}.tsv")
        check("first text of each source, three seeds: " + name, sorted((r["source"], r["seed"]) for r in got) == [(s, k) for s in ("law", "song") for k in "012"], got)
        check("the texts of " + name, {r["doc_hash"] for r in got} == {hashlib.md5(f"{s}-0 «".encode()).hexdigest()[:16] for s in ("law", "song")}, got)
        check("KL of " + name, all(float(r["kl"]) == (1 if name == "trimkv" else 10 * int(r["seed"]) - 4) for r in got), got)
    least = rows("one", "eval-docs.seed-network-beats-linear.tsv")
    check("the control is the seed for which the claim holds least", {r["seed"] for r in least} == {"0"}
          and sorted((r["method"], r["source"]) for r in least) == [(t, s) for t in ("linear", "trimkv") for s in ("law", "song")], least)
    check("equal sizes: 100 (1 - tau) is nearest to 64 at .4", {r["method"] for r in rows("one", "eval-docs.equal-no-window.tsv")} == {"wgkv:local=1,tau=0.4"})
    check("thresholds are chosen on what is held out of the training texts", all(os.path.basename(c[c.index("--data") + 1]).startswith("held-out")
          for c in calls if "tau=0.8" in " ".join(c)))
    check("no table of half a claim", not os.path.exists(os.path.join(work, "one", "eval-docs.seed-tying-helps.tsv")))
    _, calls = script("one", "trimkv", "linear", "no-window")
    check("nothing twice", not calls, calls[:2])

    done = []
    for at in ("3", "2", "4"):
        r, calls = script("two", "trimkv", FAIL_AT=at)
        check("stops", r.returncode != 0 and not os.path.exists(os.path.join(work, "two", "eval-docs.trimkv.tsv")))
        done += calls[:-1]
    r, calls = script("two", "trimkv")
    done += calls
    check("goes on", r.returncode == 0 and len(done) == 2 + 3 + 3 and rows("two", "eval-docs.trimkv.tsv") == rows("one", "eval-docs.trimkv.tsv"), done)
    r, calls = script("three", "nothing")
    check("a name that there is not", r.returncode != 0 and "nothing" in r.stderr and not calls, r.stderr)
finish()
