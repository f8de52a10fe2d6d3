#!/usr/bin/env python3
"""Check study plans with a text of claims and several models: the keys of the text, the variables of claims.sh for each model, and the verdicts over
those models that have tables.

usage: test_claims_study.py KVFATE SOURCE_ROOT"""
import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, kvfate, refused  # noqa: E402

ROOT = os.path.abspath(sys.argv[2])
sys.path.insert(0, os.path.join(ROOT, "python"))
os.environ["PATH"] = os.path.dirname(os.path.abspath(kvfate)) + os.pathsep + os.environ["PATH"]  # the package runs this program
os.environ["KVFATE_PYTHON"] = sys.executable
from kvfate import study_claims, study_plan  # noqa: E402

work = tempfile.TemporaryDirectory(prefix="kvfate-claims-")
os.chdir(work.name)
MODELS = {"a": "llama", "b": "gemma3", "c": "qwen2"}
for model in MODELS:
    Path(model + ".gguf").write_text(model, encoding="utf-8")
os.mkdir("texts")
for source in ("law", "song", "code"):
    for i in range(3):
        Path("texts", f"{source}-{i}.txt").write_text(source, encoding="utf-8")
TEXT = {"name": "t", "kind": "claims", "data": ["texts"]}


def plan(text=(), **parts):
    """Writes a plan and returns its name."""
    whole = {"models": [m + ".gguf" for m in MODELS], "seeds": [0, 7], "text": [{**TEXT, **dict(text)}], **parts}
    Path("plan.json").write_text(json.dumps(whole), encoding="utf-8")
    return "plan.json"


# ---- keys of a text, and the variables of claims.sh

given = study_plan.read(plan({"docs": 3, "docs_of": {"c": 1}, "write_gates": "gates/{model}-w.safetensors", "freeze": "frozen.json", "what": "full eval", "probes": "paper",
                              "sources": "law song", "nulls": 1, "memory": 4}, gates=["{model}-r.safetensors"]))
jobs = {job.name: job for job in given.jobs}
check("a job for each model and seed", list(jobs) == [f"{m}-t-s{s}" for m in MODELS for s in (0, 7)], list(jobs))
check("docs_of", {n: j.count for n, j in jobs.items() if j.seed == 0} == {"a-t-s0": 3, "b-t-s0": 3, "c-t-s0": 1})
told = study_claims.environment(jobs["c-t-s7"], given, 2)
wanted = {"DOCS": "1", "SEED": "7", "JOBS": "2", "WHAT": "full eval", "PROBES": "paper", "SOURCES": "law song", "NULLS": "1", "MEMORY": "4", "LENGTH": "1024",
          "MODEL": os.path.abspath("c.gguf"), "FREEZE": os.path.abspath("frozen.json"), "TEXTS": os.path.abspath("texts"),
          "GATES": os.path.abspath("c-r.safetensors"), "WRITE_GATES": os.path.abspath("gates/c-w.safetensors")}
got = {key: os.path.abspath(told.get(key, "")) if os.sep in x else told.get(key) for key, x in wanted.items()}
check("variables of claims.sh", got == wanted, got)
check("the other models have their own", study_claims.environment(jobs["a-t-s0"], given, 1)["DOCS"] == "3"
      and study_claims.environment(jobs["a-t-s0"], given, 1)["GATES"].endswith("a-r.safetensors"))
head = Path(ROOT, "python", "kvfate", "claims.sh").read_text(encoding="utf-8").split("set -eu")[0]
check("claims.sh reads these variables", all(name in head for name in study_claims.NAMES.values()), [n for n in study_claims.NAMES.values() if n not in head])
check("two sources of three", study_claims.sources(given.texts[0]) == 2 and study_claims.sources(study_plan.read(plan()).texts[0]) == 3)
check("readings are of the parts that run", given.texts[0].readings < study_plan.read(plan()).texts[0].readings)
for name, text, words in (("a model that is not there", {"docs_of": {"d": 1}}, ("docs_of", "names d", "a, b, c")), ("no number of texts", {"docs_of": {"a": 0}}, ("docs_of", "whole number")),
                          ("a text for a number", {"docs_of": {"a": "2"}}, ("docs_of", "whole number")), ("no table", {"docs_of": 2}, ("docs_of", "must be a table"))):
    refused(name, 1, ["study", plan(text), "--plan"], *words)

# ---- verdicts over the models that have tables

given = study_plan.read(plan())
for job in given.jobs:
    folder = study_claims.folder_of(given, job)
    os.makedirs(folder)
    level = .1 + .01 * list(MODELS).index(job.model.name)
    rows = [f"s{i}-{k}\ts{i}\t{k}\tfull\tall\t-1\t-1\ttop64\tall\t256\t{level + .001 * i + .0005 * k}" for i in range(7) for k in range(2)]
    head = [f"# model: {job.model.name}", f"# model_hash: {job.model.name}", f"# family: {MODELS[job.model.name]}", "# T: 1024"]
    Path(folder, "survival.tsv").write_text("\n".join(["# table: survival", *head, "doc\tsource\tnth\tmethod\thead\tlayer\tindex\tcriterion\tclass\thorizon\tfraction", *rows, ""]),
                                            encoding="utf-8")


def over(jobs):
    """Returns {column: cell} of a claim about survival for each table over models, by the path of the table."""
    made = {}
    for text, seed, at in study_claims.over_models(given, jobs):
        lines = [line.split("\t") for line in Path(at + ".tsv").read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
        row = next(r for r in lines if r[0] == "survival-falls" or r[0] == "survival-quarter")
        check("its figure", os.path.getsize(at + ".svg") > 1000 and text.name == "t")
        made[os.path.basename(at), seed] = (lines[0], row)
    return made


made = over(given.jobs)
check("a table for each seed", list(made) == [("claims-t-s0", 0), ("claims-t-s7", 7)], list(made))
check("all models", all([c for c in names if c.endswith(".verdict")] == [f"{m}-t-s{s}.verdict" for m in MODELS] for (_, s), (names, _) in made.items()), made)
made = over([j for j in given.jobs if j.model.name != "b" and j.seed == 0])
check("models without tables are left out", list(made) == [("claims-t-s0", 0)] and [c for c in next(iter(made.values()))[0] if c.endswith(".verdict")] == ["a-t-s0.verdict", "c-t-s0.verdict"], made)
check("one model has no verdict over models", over([j for j in given.jobs if j.model.name == "a"]) == {})
finish()
