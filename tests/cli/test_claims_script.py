#!/usr/bin/env python3
"""examples/claims.sh with a stand-in for kvfate that writes empty files: it makes every table that the register asks for, goes on
where it was stopped, and does nothing twice.  Then with kvfate itself and a tiny random model: every claim finds its rows and columns.
What the commands compute is tested elsewhere.

usage: test_claims_script.py KVFATE SOURCE_ROOT"""
import json
import os
import subprocess
import sys
import tempfile
import tomllib

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish  # noqa: E402

KVFATE, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
TINY = "--layers 3 --heads 4 --kv-heads 2 --head-dim 16".split()
STAND_IN = r'''#!/bin/sh
[ -z "${FAIL_AT:-}" ] || { n=$(($(cat "$LOG.n" 2> /dev/null || echo 0) + 1)); echo "$n" > "$LOG.n"; [ "$n" -ne "$FAIL_AT" ] || exit 1; }
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
echo "$@" >> "$LOG"
case $command in
methods) seq 1 900 | sed 's/$/ is a method that needs nothing/' ;;
tokens) printf '# table: tokens\ntoken\tid\n'; seq 0 19 | sed 's/.*/&\t&/' ;;
dilution) printf '# table: dilution\nhead\tstep\n' ;;
needle) : > "$out.txt"; : > "$out.json" ;;
eval) [ -e "$state" ] || printf '# x: y\ndoc\tkl\n' > "$state" ;;
*) [ -z "$out" ] || : > "$out" ;;
esac
'''


with tempfile.TemporaryDirectory(prefix="kvfate-claims-") as work:
    log, program, ablate = (os.path.join(work, n) for n in ("log", "kvfate", "ablate"))
    with open(program, "w", encoding="utf-8") as f:
        f.write(STAND_IN)
    os.chmod(program, 0o755)
    os.mkdir(ablate)

    def script(out, **more):
        """What was asked of the program."""
        open(log, "w").close()
        env = {**os.environ, "KVFATE": program, "LOG": log, "DOCS": "1", "LENGTH": "256", "ABLATE": ablate, **more}
        r = subprocess.run([os.path.join(ROOT, "examples", "claims.sh"), os.path.join(work, out)], env=env, capture_output=True, text=True, timeout=100)
        with open(log, encoding="utf-8") as f:
            return r, f.read().splitlines()

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
    check("texts are cut", all(252 <= os.path.getsize(os.path.join(work, "one", "text", k + "-0.txt")) // 3 <= 256 for k in ("prose", "code", "markup")))
    r, again = script("one")
    check("nothing twice", r.returncode == 0 and {a.split()[0] for a in again} <= {"eval", "claims"}, again[:5])
    check("the rest of a text", open(os.path.join(work, "one", "text", "code-0.rest")).read().split() == [str(i) for i in range(10, 20)])

    judged = {n for n in trained if n.startswith("equal-")}  # by the script itself, from the gates
    for name in judged:
        open(os.path.join(ablate, name[len("equal-"):] + ".safetensors"), "w").close()
    for name in trained - judged:
        for kind in ("prose", "mathematics"):
            with open(os.path.join(ablate, f"{name}.{kind}.state"), "w", encoding="utf-8") as f:
                f.write(f"# a: b\ndoc\tkl\n{kind}\t1\n")
    _, calls = script("one")
    for name in sorted(judged):
        asked = [c for c in calls if c.startswith("eval ") and f"/{name[len('equal-'):]}.safetensors" in c]
        check("judges gates of " + name, len(asked) == 1 and f"eval-docs.{name}.tsv" in asked[0], asked)
        check("their table", os.path.exists(os.path.join(work, "one", f"eval-docs.{name}.tsv")))
    for name in trained - judged:
        with open(os.path.join(work, "one", f"eval-docs.{name}.tsv"), encoding="utf-8") as f:
            check("both kinds of " + name, f.read() == "# a: b\ndoc\tkl\nprose\t1\nmathematics\t1\n")

    done = []
    for at in (20, 6, 15):  # calls until the stand-in fails
        if os.path.exists(log + ".n"):
            os.remove(log + ".n")
        r, calls = script("two", FAIL_AT=str(at))
        done += calls
        check(f"stops at call {at}", r.returncode != 0, r.stderr[-300:])
    r, calls = script("two")
    done += calls
    steady = [d for d in done if d.split()[0] in ("run", "corpus", "dynamics", "needle")]
    check("goes on", r.returncode == 0 and len(set(steady)) == len(steady) and len(steady) == len([d for d in first if d.split()[0] in ("run", "corpus", "dynamics", "needle")]),
          len(steady), len(set(steady)), r.stderr[-300:])
    check("leaves no halves", not [n for _, _, names in os.walk(os.path.join(work, "two")) for n in names if n.startswith("part-") and not n.startswith("part-prose")])
    # ---- the program itself; tiny models have a context of 512, in which overlap has no earliest window

    def make(tool, name, *argv):
        path = os.path.join(work, name)
        subprocess.run([sys.executable, os.path.join(ROOT, "tests", "data", *tool.split("/")), *argv, *TINY, "-o", path], check=True, stdout=subprocess.DEVNULL)
        return path

    real = os.path.join(work, "real")
    env = {**os.environ, "KVFATE": KVFATE, "LENGTH": "500", "SHORT": "260", "THREADS": "1", "WATCH": "L0H0,L1H1,L2H3", "ABLATE": "",
           "MODEL": make("golden/tools/gen_tiny.py", "tiny.gguf", "--dim", "64", "--ffn", "64", "--type", "f32"),
           "GATES": make("make_gates.py", "rg.safetensors", "--layout", "rg", "--d-model", "64"),
           "WRITE_GATES": make("make_gates.py", "wgkv.safetensors", "--layout", "wgkv", "--d-model", "64")}
    env |= {"NULL_MODEL": env["MODEL"], "NULL_GATES": env["GATES"], "NULL_WRITE_GATES": env["WRITE_GATES"]}  # the same: no claim is specific
    r = subprocess.run([os.path.join(ROOT, "examples", "claims.sh"), real], env=env, capture_output=True, text=True, timeout=170)
    check("runs with a model", r.returncode == 0, r.stderr[-500:])
    r = subprocess.run([KVFATE, "claims", real, "--json"], capture_output=True, text=True)
    t = json.loads(r.stdout)["data"]
    no_heads = subprocess.run([KVFATE, "heads", "-h"], capture_output=True).returncode != 0
    untrained = {c["id"] for c in claims if c.get("table") == "eval-docs" and c.get("run")}
    excused = untrained | {c["id"] for c in claims if c.get("table") == "overlap" or (no_heads and c.get("table") == "heads")}
    for i, name in enumerate(t["id"]):
        check("finds its rows: " + name, (t["verdict"][i] == "not run") == (name in excused), t["verdict"][i], t["why"][i])
        if t["verdict"][i] in ("supported", "contradicted", "undecided"):
            check("has a value: " + name, t["value"][i] is not None and t["units"][i] >= 1, t["why"][i])
        null = next(c for c in claims if c["id"] == name).get("null_check")
        if name not in excused and null and t["verdict"][i] != "not comparable here":
            check("finds the rows of its null check: " + name, t["null_check"][i] in ("passed", "supported"), t["null_check"][i])
            check("equal data support nothing: " + name, "run" not in null or t["verdict"][i] != "supported", t["verdict"][i])
    at = t["id"].index("dilution-bound")
    check("the theorem holds", t["verdict"][at] == "supported", t["value"][at])
    r = subprocess.run([KVFATE, "corpus", "hazard", os.path.join(real, "trace", "full.code-0.kvf"), "-o", "-"], capture_output=True, text=True)
    check("hazard's bins and intervals", "low\thigh\thazard\thazard_low\thazard_high" in r.stdout, r.stderr)
finish()
