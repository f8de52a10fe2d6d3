#!/usr/bin/env python3
"""kvfate study: the tables of one file equal those of the commands that it replaces, whether it
runs alone, in parts, with ranks, or was killed."""
import csv
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import check as c  # noqa: E402

exe, models, root = (os.path.abspath(x) for x in sys.argv[1:4])
sys.path.insert(0, os.path.join(root, "python"))
from kvfate import study_cost, study_plan  # noqa: E402

work = tempfile.TemporaryDirectory(prefix="kvfate-study-")
os.chdir(work.name)
ENV = {**os.environ, "KVFATE_PYTHON": sys.executable, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
       "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
chance = random.Random(3)
words = "the of and to in is it that was for on as with his they at be this from have or by one had not but what all were when".split()
with open("texts.txt", "w", encoding="ascii") as f:
    f.write("".join(f" = Number {i} = \n" + " ".join(chance.choices(words, k=400)) + "\n\n" for i in range(6)))
TINY = os.path.join(models, "tiny6.gguf")
PLAN = f"""
models = ["{TINY}"]
methods = ["full", "window", "h2o"]
budgets = [16, 32]
seeds = [0, 1]
threads = 1
[[text]]
name = "prose"
kind = "documents"
data = ["texts.txt"]
docs = 3
prompt_tokens = 80
score_tokens = 20
"""


def write(name, text):
    with open(name, "w", encoding="utf-8") as f:
        f.write(text)


def run(*argv, **more):
    return subprocess.run([exe, "study", *argv], env=ENV, capture_output=True, text=True, timeout=170, **more)


def read(path):
    with open(path, "rb") as f:
        return f.read()


RESULTS = ["study.tsv", *(f"jobs/tiny6-prose-s{s}{e}" for s in (0, 1) for e in (".tsv", "-kl.svg"))]


def same(folder):
    return [r for r in RESULTS if read(f"{folder}/{r}") != read(f"one-study/{r}")]


write("one.toml", PLAN)
r = run("one.toml")
c.check("a study runs", r.returncode == 0 and r.stdout.strip().endswith("index.html"), r)
for seed in (0, 1):
    by_hand = subprocess.run([exe, "eval", "-m", TINY, "--data", "texts.txt", "--docs", "3", "--prompt-tokens", "80", "--score-tokens", "20", "--methods",
                              "full,window,h2o", "--budgets", "16,32", "--seed", str(seed), "-t", "1", "-o", "hand.tsv"], capture_output=True)
    c.check(f"the table of eval, seed {seed}", by_hand.returncode == 0 and read("hand.tsv") == read(f"one-study/jobs/tiny6-prose-s{seed}.tsv"), by_hand)
rows = list(csv.DictReader((x for x in open("one-study/study.tsv", encoding="utf-8") if not x.startswith("#")), delimiter="\t"))
c.check("rows of all jobs", [(x["seed"], x["method"], x["budget"]) for x in rows] == [
    (s, m, b) for s in "01" for m, b in (("full", "0"), ("window", "16"), ("window", "32"), ("h2o", "16"), ("h2o", "32"))], rows)
told = dict(x[2:].split(": ", 1) for x in open("one-study/study.tsv", encoding="utf-8").read().split("\n") if x.startswith("# "))
own = dict(x[2:].split(": ", 1) for x in open("one-study/jobs/tiny6-prose-s1.tsv", encoding="utf-8").read().split("\n") if x.startswith("# "))
c.check("where it comes from", told["made_by"].startswith("kvfate ") and told["tiny6-prose-s1.model_hash"] == own["model_hash"], told, own)
try:
    import pyarrow.parquet  # noqa: F401
except ImportError:
    print("pyarrow is not installed: study.parquet is not tried")
    c.check("no Parquet without pyarrow", not os.path.exists("one-study/study.parquet"))
else:
    import kvfate
    frame = kvfate.load_table("one-study/study.parquet")
    c.check("the same rows as Parquet", all([str(v) for v in frame["method"]] == [x["method"] for x in rows] and [float(v) for v in frame[k]] == [float(x[k]) for x in rows]
                                            for k in ("budget", "kl", "nll", "seed")), frame)
    c.check("and where they come from", {k: v for k, v in frame.attrs.items() if k in told} == told, frame.attrs)
base = sqlite3.connect("one-study/study.sqlite")
c.check("the database has them", all(abs(base.execute("select kl from tiny6_prose_s0 where method=? and budget=?", (x["method"], int(x["budget"]))).fetchone()[0]
                                         - float(x["kl"])) < 1e-12 for x in rows if x["seed"] == "0"))
page = read("one-study/index.html").decode()
c.check("the page shows every number's table and picture", all(f"jobs/tiny6-prose-s{s}-kl.svg" in page for s in (0, 1)) and "%.4g" % float(rows[1]["kl"]) in page)
before = {f: os.stat(f"one-study/{f}").st_mtime_ns for f in ("jobs/tiny6-prose-s0.state",)}
r = run("one.toml")
c.check("what is done is not done again", r.returncode == 0 and all(os.stat(f"one-study/{f}").st_mtime_ns == t for f, t in before.items()), r)

write("parts.toml", PLAN)
for i in (2, 1):
    r = run("parts.toml", "--shard", f"{i}/2")
    c.check(f"part {i}", r.returncode == 0 and not os.path.exists("parts-study/study.tsv"), r)
r = run("parts.toml")
c.check("parts together", r.returncode == 0 and not same("parts-study"), r, same("parts-study"))

write("killed.toml", PLAN)
for k in range(6):  # each run is killed a little later
    p = subprocess.Popen([exe, "study", "killed.toml"], env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    time.sleep(0.15 + 0.12 * k)
    try:
        os.killpg(p.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    p.wait()
r = run("killed.toml")
c.check("it goes on after it was killed", r.returncode == 0 and not same("killed-study"), r)

if shutil.which("mpirun") and os.path.exists(os.path.join(os.path.dirname(exe), "kvfate_mpi.so")):
    write("ranks.toml", PLAN)
    r = run("ranks.toml", "--ranks", "3")
    c.check("by three ranks", r.returncode == 0 and not same("ranks-study"), r)

NEEDLES = f"""
models = ["{TINY}"]
methods = ["full", "window"]
budgets = [24, 32]
[[text]]
name = "needle"
kind = "needles"
tokens = 300
count = 2
"""
write("needles.toml", NEEDLES + PLAN[PLAN.index("[[text]]"):])
r = run("needles.toml")
c.check("needles", r.returncode == 0 and "right" in open("needles-study/study.tsv", encoding="utf-8").read(), r)

# Rows of two texts side by side: the example's SQL in SQLite and, if installed, DuckDB and pandas,
# compared with the rows of study.tsv.
lines = list(csv.DictReader((x for x in open("needles-study/study.tsv", encoding="utf-8") if not x.startswith("#")), delimiter="\t"))
at = {(x["text"], x["method"], int(x["budget"])): x for x in lines}
want = [(m, b, float(at["prose", m, b]["kl"]), float(at["needle", m, b]["right"])) for t, m, b in sorted(at) if t == "prose"]
r = subprocess.run([sys.executable, os.path.join(root, "examples", "study_join.py"), "needles-study", "prose", "kl", "needle", "right"], capture_output=True, text=True)
cells = [x.split("\t") for x in r.stdout.splitlines()[1:]]
c.check("a join in SQLite", len(want) == 3 and [(m, int(b), float(x), float(y)) for _, m, b, _, x, y in cells] == want, r, want)
sys.path.append(os.path.join(root, "examples"))
import study_join  # noqa: E402
try:
    import duckdb
except ImportError:
    print("duckdb is not installed: its join is not tried")
else:
    sources = ["read_csv('needles-study/study.tsv', delim='\t', comment='#', header=true, nullstr='nan')"]
    sources += ["'needles-study/study.parquet'"] if os.path.exists("needles-study/study.parquet") else []
    for source in sources:
        got = duckdb.sql(study_join.query("kl", "right", source).replace("?", "'%s'") % ("prose", "needle")).fetchall()
        c.check("a join in DuckDB: " + source, [(m, b, x, y) for _, m, b, _, x, y in got] == want, got)
try:
    import pandas
except ImportError:
    print("pandas is not installed: its join is not tried")
else:
    frame = pandas.read_sql("select * from study", sqlite3.connect("needles-study/study.sqlite"))
    both = frame[frame.text == "prose"].merge(frame[frame.text == "needle"], on=["model", "method", "budget", "seed"]).sort_values(["method", "budget"])
    c.check("a join in pandas", list(zip(both.method, both.budget, both.kl_x, both.right_y)) == want, both)
# Fractions of a prompt, and questions that methods do not know.
fractions = NEEDLES + PLAN[PLAN.index("[[text]]"):]
fractions = fractions.replace(fractions[fractions.index("budgets = "):].split("\n")[0], 'budgets = [16, "25%"]')
write("fractions.toml", fractions.replace('kind = "needles"', 'kind = "needles"\nquestion = "unknown"'))
r = run("fractions.toml")
lines = list(csv.DictReader((x for x in open("fractions-study/study.tsv", encoding="utf-8") if not x.startswith("#")), delimiter="\t")) if r.returncode == 0 else []
c.check("fractions and unknown questions", r.returncode == 0 and {(x["text"], x["question"]) for x in lines} == {("needle", "unknown"), ("prose", "nan")}, r, lines)
c.check("both budgets of a method", {x["budget_percent"] for x in lines if x["method"] == "window"} == {"nan", "25"} and
        [float(x["budget"]) for x in lines if x["text"] == "prose" and x["budget_percent"] == "25"] == [20], lines)
tasks = [f for f in os.listdir("fractions-study/tasks")]
c.check("the tasks are those of known questions", set(tasks) <= set(os.listdir("needles-study/tasks")), tasks)
by_hand = subprocess.run([exe, "eval", "--methods", "full,window", "--budgets", "16,25%", "--kv-type", "auto", "-m", TINY, "--question", "unknown",
                          "--tasks", os.path.join("fractions-study/tasks", tasks[0]), "-o", "hand.tsv"], capture_output=True, text=True)
job = [f for f in os.listdir("fractions-study/jobs") if "needle" in f and f.endswith(".tsv")][0]
c.check("which eval does by hand", by_hand.returncode == 0 and read("hand.tsv") == read(os.path.join("fractions-study/jobs", job)), by_hand)
c.check("the page names the protocol", "question: unknown" in open("fractions-study/index.html", encoding="utf-8").read())
r = run("needles.toml", "--slurm", "8")
c.check("a script for Slurm", r.returncode == 0 and "--array=1-8" in r.stdout and '--shard "$SLURM_ARRAY_TASK_ID/8"' in r.stdout, r)
r = subprocess.run(["sh", "-n"], input=r.stdout, capture_output=True, text=True)
c.check("which is one of the shell", r.returncode == 0, r)
r = run("one.toml", "--plan")
c.check("what it will take", r.returncode == 0 and "2 jobs of at most 6 rows" in r.stdout, r)

c.check("claims have no rows", study_cost.jobs_of(3, 0) == "3 jobs" and study_cost.jobs_of(1, 6) == "1 job of at most 6 rows")

# The costs, by their equations.
plan = study_plan.read("one.toml")
(job, seconds, memory, disk), _ = study_cost.costs(plan, {"tiny6": (100.0, 10.0)}, {"tiny6": (1000, 2.0, 3)}, 5)
c.check("seconds", abs(seconds - 3 * (80 / 100 + 20 * 6 / 10)) < 1e-9, seconds)
c.check("memory", memory == 1000 + 2 * (80 + 3 * (16 + 20) + 3 * (32 + 20)) + 5 * 3 * (80 + 20), memory)
c.check("disk", disk == 3 * 6 * study_cost.LINE + study_cost.PICTURES, disk)
c.check("a table of heads goes to methods that take one", plan._replace(gates=("g",), head_budgets="t.json").inputs(["h2o", "knorm:allocation=file"])
        == ["--gates", "g", "--head-budgets", "t.json"] and plan._replace(head_budgets="t.json").inputs(["full"]) == [])

for what, text, said in (
        ("no TOML", "methods = [", "no TOML"), ("no methods", PLAN.replace("methods", "metods"), "unknown key 'metods'"),
        ("methods that are not there", "\n".join(x for x in PLAN.split("\n") if not x.startswith("methods")), "no 'methods'"),
        ("claims on two folders", 'budgets = [1]\n[[text]]\nname = "a"\nkind = "claims"\ndata = ["a", "b"]\n', "one folder"),
        ("claims on a file", '[[text]]\nname = "a"\nkind = "claims"\ndata = ["texts.txt"]\n', "no folder"),
        ("no text", PLAN[:PLAN.index("[[text]]")], "no [[text]]"), ("another kind", PLAN.replace('"documents"', '"poems"'), "'poems'"),
        ("a name that leaves the folder", PLAN.replace('"prose"', '"../prose"'), "file names"),
        ("a budget that is none", PLAN.replace("[16, 32]", '["16"]'), "whole numbers"), ("a budget twice", PLAN.replace("[16, 32]", "[16, 16]"), "different"),
        ("no number", PLAN.replace("docs = 3", "docs = 0"), "within"), ("a truth for a number", PLAN.replace("docs = 3", "docs = true"), "whole number"),
        ("two texts of a name", PLAN + PLAN[PLAN.index("[[text]]"):], "one name"), ("a text that is no table", "text = [1]\n" + NEEDLES.split("[[")[0], "tables"),
        ("a fraction above all", PLAN.replace("[16, 32]", '["101%"]'), "fractions"), ("a fraction twice", PLAN.replace("[16, 32]", '["25%", "25.0%"]'), "different"),
        ("a question of documents", PLAN.replace("docs = 3", 'question = "unknown"'), "not a context and a question"),
        ("another protocol", NEEDLES.replace('kind = "needles"', 'kind = "needles"\nquestion = "asked"'), "one of known, unknown"),
        ("no data", PLAN.replace('"texts.txt"', '"none.txt"'), "none.txt")):
    write("bad.toml", text)
    r = run("bad.toml")
    c.check(what, r.returncode == 1 and said in r.stderr and "Traceback" not in r.stderr, r)
one = {"methods": ["full"], "budgets": [16], "text": [{"name": "ch", "kind": "choices", "data": ["ch.jsonl"], "count": 2}]}
for what, change, said in (
        ("gates that are numbers", {"gates": [1]}, "'gates'"), ("half of a character", {"out": "\ud800"}, "half of a character"), ("a zero in a name", {"out": "a\0b"}, "zero"),
        ("a kind that is a list", {"text": [{**one["text"][0], "kind": ["choices"]}]}, "no kind that is known"),
        ("a large number", {"text": [{"name": "m", "kind": "mathematics", "data": ["ch.jsonl"], "temperature": 10**400}]}, "'temperature'")):
    write("bad.json", json.dumps({**one, **change}))
    r = run("bad.json", "--plan")
    c.check(what, r.returncode == 1 and said in r.stderr and r.stderr.count("\n") == 1, r)
os.mkfifo("fifo.toml")
r = run("fifo.toml", "--plan")
c.check("a pipe for a plan", r.returncode == 1 and "not a regular file" in r.stderr, r)
r = run("one.toml", "--shard", "1/2", "--ranks", "2")
c.check("two ways at once", r.returncode == 2 and "give one" in r.stderr, r)
work.cleanup()
c.finish()
