#!/usr/bin/env python3
"""Runs python/kvfate/claims.sh with a fake kvfate that writes empty files. It must make every table
that the register asks for, continue after an interruption, and do no work twice. Then runs it with
kvfate and a tiny random model: every claim finds its rows and columns. Other tests check the
results of the commands.

usage: test_claims_script.py KVFATE SOURCE_ROOT"""
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402

KVFATE, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
TINY = "--layers 3 --heads 4 --kv-heads 2 --head-dim 16".split()
STAND_IN = r'''#!/bin/sh
command=$1 out= context= file= state=
for a; do
    case $last in -o) out=$a ;; -c) context=$a ;; -f) file=$a ;; --state) state=$a ;; esac
    last=$a
done
if [ "$command$context" = run1 ]; then
    echo "kvfate run: the prompt has $(($(wc -c < "$file") / 3)) tokens, over the context of 1; shorten it" >&2
    exit 1
fi
[ "$last" != -h ] || exit 0
case $command in --version | models) ;; *)
    [ -z "${FAIL_AT:-}" ] || { n=$(($(cat "$LOG.n" 2> /dev/null || echo 0) + 1)); echo "$n" > "$LOG.n"; [ "$n" -ne "$FAIL_AT" ] || exit 1; } ;;
esac
echo "$@" >> "$LOG"
case $command in
--version) echo "kvfate stand-in" ;;
models) echo '{"name": "stand-in", "arch": "llama", "layers": 30, "query_heads": 9, "gates": [{"method": "dbtrimkv", "name": "d"}, {"method": "wgkv", "name": "w"}]}' ;;
methods) seq 1 900 | sed 's/$/ is a method that needs nothing/' ;;
tokens) printf '# table: tokens\ntoken\tid\n'; seq 0 19 | sed 's/.*/&\t&/' ;;
dilution) printf '# table: dilution\nhead\tstep\n' ;;
tasks) : > "$out.txt"; : > "$out.json" ;;
corpus) printf '# table: x\nhead\tlayer\n' > "$out" ;;
eval) [ -e "$state" ] || printf '# x: y\ndoc\tkl\n' > "$state" ;;
*) [ -z "$out" ] || : > "$out" ;;
esac
'''


with tempfile.TemporaryDirectory(prefix="kvfate-claims-") as work:
    log, program, ablate = (os.path.join(work, n) for n in ("log", "kvfate", "ablate"))
    Path(program).write_text(STAND_IN, encoding="utf-8")
    os.chmod(program, 0o755)
    os.mkdir(ablate)
    model_file = os.path.join(work, "model.gguf")
    Path(model_file).write_text("a model", encoding="utf-8")

    def script(out, **more):
        """Returns the calls of the program."""
        open(log, "w").close()
        env = {**os.environ, "KVFATE": program, "LOG": log, "DOCS": "1", "LENGTH": "256", "ABLATE": ablate, "MODEL": model_file, **more}
        r = subprocess.run([os.path.join(ROOT, "python", "kvfate", "claims.sh"), os.path.join(work, out)], env=env, capture_output=True, text=True, timeout=100)
        return r, Path(log).read_text(encoding="utf-8").splitlines()

    with open(os.path.join(ROOT, "docs", "studies", "claims.toml"), "rb") as f:
        claims = tomllib.load(f)["claim"]
    sides = [{"run": "", **s} for c in claims if "table" in c for s in (c, {**c, **c.get("minus", c)})]
    wanted = sorted({s["table"] + (s["run"] and ".") + s["run"] + ".tsv" for s in sides})
    trained = {w.split(".", 1)[1][:-4] for w in wanted if w.startswith("eval-docs.") and w != "eval-docs.tsv"}
    r, first = script("one")
    made = set(os.listdir(os.path.join(work, "one")))
    check("runs", r.returncode == 0, r.stderr[-500:])
    check("tables", all(w in made for w in wanted if w.split(".", 1)[1][:-4] not in trained), [w for w in wanted if w not in made])
    check("asks for no training", not any(t in n for t in trained for n in made if n.startswith("eval-docs.")))
    check("judges at the end", first[-1].startswith("claims "), first[-1])
    check("texts are cut", all(252 <= os.path.getsize(os.path.join(work, "one", "text", k + "-1.txt")) // 3 <= 256 for k in ("prose", "code", "markup")))
    r, again = script("one")
    check("nothing twice", r.returncode == 0 and [a.split()[0] for a in again if a.split()[0] not in ("models", "--version")] == ["claims"], again[:5])
    check("the rest of a text", open(os.path.join(work, "one", "text", "code-1.rest")).read().split() == [str(i) for i in range(10, 20)])

    trained -= {"trained-shuffled"}
    for name in trained | {"seed-tying-helps"}:  # with one seed: another table already has it
        with open(os.path.join(ablate, f"eval-docs.{name}.tsv"), "w", encoding="utf-8") as f:
            f.write("# a: b\ndoc_hash\tsource\tseed\tmethod\tbudget\tkl\n" + "".join(f"{d}\t{d}\t{s}\tm\t32\t1\n" for d in "xy" for s in "01"))
    script("one")
    with open(os.path.join(work, "one", "eval-docs.trained-shuffled.tsv"), encoding="utf-8") as f:
        dealt = [line.split("\t") for line in f.read().splitlines()[2:]]
    for d in "xy":
        for s in "01":
            check("each training once for a document and a seed", sorted(r[3] for r in dealt if r[:3] == [d, d, s]) == sorted(trained), dealt[:3])
    for name in trained | {"seed-tying-helps"}:
        check("the table of " + name, os.path.exists(os.path.join(work, "one", f"eval-docs.{name}.tsv")))

    done = []
    for at in (20, 6, 15):  # calls until the fake program fails
        if os.path.exists(log + ".n"):
            os.remove(log + ".n")
        r, calls = script("two", FAIL_AT=str(at))
        done += calls
        check(f"stops at call {at}", r.returncode != 0, r.stderr[-300:])
    os.remove(log + ".n")
    r, calls = script("parallel", FAIL_AT="6", JOBS="2")
    check("stops if a document fails in another process", r.returncode != 0 and not [c for c in calls if c.startswith("claims ")], r.stderr[-300:])
    r, calls = script("two")
    done += calls
    steady = [d for d in done if d.split()[0] in ("run", "corpus", "attention", "tasks")]
    check("goes on", r.returncode == 0 and len(set(steady)) == len(steady) and len(steady) == len([d for d in first if d.split()[0] in ("run", "corpus", "attention", "tasks")]),
          len(steady), len(set(steady)), r.stderr[-300:])
    check("leaves no halves", not [n for _, _, names in os.walk(os.path.join(work, "two")) for n in names if n.startswith("part-") and not n.startswith("part-prose")])

    # The selected texts: a part, some sources, the first of each; and the source of a document's
    # scores.
    own = os.path.join(work, "own")
    os.mkdir(own)
    for name in ("law-1", "law-2", "law-3", "song-1", "song-2"):
        Path(os.path.join(own, name + ".txt")).write_text(name * 1000, encoding="utf-8")
    with open(os.path.join(own, "texts.tsv"), "w", encoding="utf-8") as f:
        f.write("name\tsource\tpart\n" + "".join(f"{n}\t{n[:-2]}\t{p}\n" for n, p in (("law-1", "held-out"), ("law-2", "development"), ("law-3", "development"),
                                                                                      ("song-1", "development"), ("song-2", "held-out"))))
    for at, (more, expected) in enumerate((({}, "law-1 law-2 song-1 song-2"), ({"PART": "development"}, "law-2 law-3 song-1"), ({"PART": "held-out"}, "law-1 song-2"),
                           ({"SOURCES": "song"}, "song-1 song-2"), ({"DOCS": "1"}, "law-1 song-1"))):
        r, calls = script(f"part{at}", TEXTS=own, ABLATE="", WHAT="full", **{"DOCS": "2", **more})
        got = [c.split("full.")[1].split(".kvf")[0] for c in calls if c.startswith("run ") and "part-full." in c]
        check(f"texts of {more}", sorted(got) == expected.split(), got, r.stderr[-300:])

    # A freeze: tables carry it, and other inputs are rejected before anything is run.
    frozen = os.path.join(work, "frozen.json")
    r = subprocess.run([sys.executable, "-m", "kvfate", "claims", "freeze", "--texts", own, "-m", model_file, "-o", frozen], capture_output=True, text=True,
                       env={**os.environ, "PATH": work + os.pathsep + os.environ["PATH"], "LOG": log, "PYTHONPATH": os.path.join(ROOT, "python")})
    check("freeze", r.returncode == 0, r.stderr)
    asked = {"TEXTS": own, "ABLATE": "", "WHAT": "full", "FREEZE": frozen}
    r, calls = script("with-freeze", **asked)
    state = hashlib.sha256(Path(frozen).read_bytes()).hexdigest()
    head = Path(os.path.join(work, "with-freeze", "survival.tsv")).read_text(encoding="utf-8").splitlines() if r.returncode == 0 else []
    check("tables carry the freeze", {"# frozen: " + state, "# family: llama", "# input_seed: 0", "# input_program: kvfate stand-in"} <= set(head)
          and any(line.startswith("# input_texts: ") for line in head) and Path(os.path.join(work, "with-freeze", "frozen.json")).read_bytes() == Path(frozen).read_bytes(), r.stderr, head)
    stamped = Path(os.path.join(work, "with-freeze", "survival.tsv")).read_bytes()
    r, calls = script("with-freeze", **asked)
    check("a stamp is not added twice", Path(os.path.join(work, "with-freeze", "survival.tsv")).read_bytes() == stamped)
    r, calls = script("with-seed", **asked, SEED="5")
    check("another seed is rejected", r.returncode != 0 and "the seed is 5, not 0" in r.stderr and not [c for c in calls if c.startswith("run ")], r.stderr)
    Path(os.path.join(own, "law-1.txt")).write_text("another" * 1000, encoding="utf-8")
    r, calls = script("with-texts", **asked)
    check("other texts are rejected", r.returncode != 0 and "the texts" in r.stderr and "law-1.txt" in r.stderr, r.stderr)
    r, calls = script("part0", TEXTS=own, ABLATE="", WHAT="full")
    check("a work folder of other texts is rejected", r.returncode != 0 and "other inputs" in r.stderr and "input_texts" in r.stderr, r.stderr)

    # ---- the real program; with the context of 512 of tiny models, overlap has no earliest window

    def make(tool, name, *argv):
        path = os.path.join(work, name)
        subprocess.run([sys.executable, os.path.join(ROOT, "tests", "data", *tool.split("/")), *argv, *TINY, "-o", path], check=True, stdout=subprocess.DEVNULL)
        return path

    sources = os.path.join(work, "sources")
    os.mkdir(sources)
    for name, page in (("code", "corpus"), ("tables", "methods"), ("a", "design"), ("b", "format"), ("c", "gates"), ("d", "eval"), ("e", "probes")):
        with open(os.path.join(ROOT, "docs", "reference", page + ".md"), encoding="utf-8") as f, open(os.path.join(sources, name + "-1.txt"), "w", encoding="utf-8") as g:
            g.write(f.read())
    model = make("golden/tools/gen_tiny.py", "tiny.gguf", "--dim", "64", "--ffn", "64", "--type", "f32")
    gates, write = (make("make_gates.py", kind + ".safetensors", "--layout", kind, "--d-model", "64") for kind in ("rg", "wgkv"))
    # Null checks have the same model and gates: no claim is specific.
    text = {"name": "claims", "kind": "claims", "data": [sources], "tokens": 500, "short": 260, "queries": "L0H0,L1H1,L2H3", "write_gates": write,
            "null_model": model, "null_gates": gates, "null_write_gates": write}
    with open(os.path.join(work, "plan.json"), "w", encoding="utf-8") as f:
        json.dump({"models": [model], "gates": [gates], "threads": 1, "text": [text]}, f)
    study, real = (os.path.join(work, "plan-study", *x) for x in ((), ("claims", "tiny-claims-s0")))
    call = [KVFATE, "study", os.path.join(work, "plan.json")]
    env = {**os.environ, "KVFATE_PYTHON": sys.executable, "PYTHONPATH": os.path.join(ROOT, "python")}
    r = subprocess.run([*call, "--plan"], env=env, capture_output=True, text=True, timeout=170)
    check("what the study of claims will take", r.returncode == 0 and "tiny-claims-s0" in r.stdout, r.stderr[-500:])
    r = subprocess.run([*call, "--shard", "2/2"], env=env, capture_output=True, text=True, timeout=170)
    check("another part has nothing to do", r.returncode == 0 and not os.path.exists(real), r.stderr[-500:])
    r = subprocess.run([*call, "--ranks", "2"], env=env, capture_output=True, text=True, timeout=290)
    check("runs with a model", r.returncode == 0, r.stderr[-500:])
    r = subprocess.run([KVFATE, "claims", real, "--json"], capture_output=True, text=True)
    t = json.loads(r.stdout)["data"]
    with open(os.path.join(study, "study.tsv"), encoding="utf-8") as f:
        lines = [line.rstrip("\n").split("\t") for line in f if not line.startswith("#")]
    at = [lines[0].index(c) for c in ("text", "id", "verdict")]
    check("the study has the verdicts", [[x[i] for i in at] for x in lines[1:]] == [["claims", i, v] for i, v in zip(t["id"], t["verdict"])],
          [x for x in zip([[x[i] for i in at] for x in lines[1:]], t["id"], t["verdict"]) if x[0] != ["claims", *x[1:]]], len(lines), len(t["id"]))
    page = Path(os.path.join(study, "index.html")).read_text(encoding="utf-8")
    check("and its page", all(i in page for i in t["id"]) and "tiny-claims-s0-claims.svg" in page and os.path.exists(os.path.join(study, "jobs", "tiny-claims-s0-claims.svg")))
    no_heads = subprocess.run([KVFATE, "heads", "-h"], capture_output=True).returncode != 0
    untrained = {c["id"] for c in claims if c.get("table") == "eval-docs" and c.get("run")}
    excused = untrained | {c["id"] for c in claims if c.get("table") == "overlap" or (no_heads and c.get("table") == "heads")}
    for i, name in enumerate(t["id"]):
        check("finds its rows: " + name, (t["verdict"][i] == "not run") == (name in excused), t["verdict"][i], t["why"][i])
        if t["verdict"][i] in ("supported", "contradicted", "undecided"):
            check("has a value: " + name, t["value"][i] is not None and t["units"][i] >= 1, t["why"][i])
        null = next(c for c in claims if c["id"] == name).get("null_check")
        few = {"write-gates-differ-by-text", "dynamics-stable", "dynamics-memory", "innovations-heavier", "innovations-lighter"}  # one text of each source, three heads
        if name not in excused | few and null and t["verdict"][i] != "not comparable here":
            check("finds the rows of its null check: " + name, t["null_check"][i] in ("as claimed", "other way", "not beyond"), t["null_check"][i], t["why"][i])
            check("equal data support nothing: " + name, not null.get("run", "").startswith("random-") or t["verdict"][i] != "supported", t["verdict"][i])
    at = t["id"].index("dilution-bound")
    check("the theorem holds", t["verdict"][at] == "supported", t["value"][at])
    r = subprocess.run([KVFATE, "corpus", "survival", "--as", "hazard", os.path.join(real, "trace", "full.code-1.kvf"), "-o", "-"], capture_output=True, text=True)
    check("hazard's bins and intervals", "low\thigh\thazard\thazard_low\thazard_high" in r.stdout, r.stderr)
finish()
