"""Estimates the cost of a study before it begins: time from the speeds of a short run, memory from the model description, disk from the
sizes of the output.  docs/guide/study.md compares these estimates with measurements."""
import json
import os
import time
import warnings

from . import files, program, study_claims
from .budgets import entries as entries_of
from .models_get import cache

LINE, TASK, PICTURES = 330, 5, 60000  # bytes: of a result, of a token of a task's text, of the figures and tables of a job
SAMPLE, STEPS = 256, 16  # tokens of the prompt and of the answer of the short run
DEFAULT = "SmolLM2-135M-Instruct.Q4_1.gguf"  # in the cache folder
PROBE = "The ferryman counted the boats at the foot of the stairs while the others slept, and nobody minded. " * 20


def _quiet(*words):
    """Returns the output of the program.  Its notes are printed later, by the study itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return program.run(*words)


def limits(methods, budgets):
    """The option --budgets of `kvfate eval`, if one of the methods takes a budget."""
    none = {m["name"] for m in json.loads(program.run("methods", "--json")) if m["budget"] == 0}
    return ["--budgets", ",".join(map(str, budgets))] if any(m.split(":")[0] not in none for m in methods) else []


def _speeds(model, plan):
    """Returns tokens per second of (a prompt, a decode step of one row of the plan)."""
    words = ["-m", model.path] if model.path else []
    words += ["-t", plan.threads] if plan.threads else []
    told = json.loads(_quiet("generate", "--raw", "-p", PROBE[:300], "-n", "2", "--ignore-eos", "--json", "-q", *words))
    seconds = []
    with files.scratch("text.txt", PROBE) as text:
        for methods in (["full"], plan.methods or ["full", "window"]):
            began = time.monotonic()
            _quiet("eval", "--data", text, "--docs", 1, "--prompt-tokens", SAMPLE, "--score-tokens", STEPS, "--methods", ",".join(methods),
                        *limits(methods, plan.budgets or [64]), *plan.inputs(methods), "-o", os.path.join(os.path.dirname(text), "t.tsv"), *words)
            seconds.append(time.monotonic() - began)
    return told["prefill_tokens_per_second"], STEPS * max(1, plan.rows) / max(1e-3, seconds[1] - seconds[0])


def file_of(model):
    return model.path or os.path.join(cache(), DEFAULT)


def _memory(model):
    """(bytes of weights and buffers, bytes of the cache for each token, heads of the cache) of a model."""
    model = json.loads(program.run("models", "--json", file_of(model)))
    told = model["memory"][-1]
    return told["weights"] + told["buffers"], told["cache_f16"] / told["length"], model["layers"] * model["kv_heads"]


def _remembered(plan):
    """Bytes that all methods of the plan together keep of an entry of a head, while they watch one prompt."""
    known = {m["name"]: m["state_bytes"] for m in json.loads(program.run("methods", "--json"))}
    return sum(known.get(method.split(":")[0], 0) for method in plan.methods) * len(plan.budgets)


def _human(seconds):
    return "%.0f s" % seconds if seconds < 100 else "%.0f min" % (seconds / 60) if seconds < 6000 else "%.1f h" % (seconds / 3600)


def costs(plan, speeds, memory, remembered):
    """A row for each job: (job, seconds, bytes of memory, bytes of disk).  speeds, memory and remembered: as above, the first two by the name of a model."""
    rows = []
    for job in plan.jobs:
        prefill, step = speeds[job.model.name]
        weights, token, heads = memory[job.model.name]
        x, n = job.text, plan.rows
        texts = job.count * (study_claims.sources(x) if x.kind == "claims" else 1)
        n = 1 if x.kind == "claims" else n
        seconds = texts * (x.prompt * x.readings / prefill + x.steps * n / step)
        entries = x.prompt + sum(min(entries_of(b, x.prompt) + x.steps, x.prompt + x.steps) for b in plan.budgets for _ in plan.methods)
        disk = x.count * n * LINE + PICTURES + (x.count * x.prompt * TASK if x.kind == "needles" else 0)
        rows.append((job, seconds, weights + token * entries + remembered * heads * (x.prompt + x.steps), disk))
    return rows


def jobs_of(n, rows):
    """Returns the number of jobs and rows as text; claims have no rows."""
    return "%d job%s%s" % (n, "" if n == 1 else "s", " of at most %d rows" % rows if rows else "")


def tell_costs(plan):
    speeds = {m.name: _speeds(m, plan) for m in plan.models}
    memory = {m.name: _memory(m) for m in plan.models}
    rows = costs(plan, speeds, memory, _remembered(plan))
    for job, seconds, ram, disk in rows:
        print("%-40s %8s  %7.0f MiB  %8.1f KiB" % (job.name, _human(seconds), ram / 2**20, disk / 2**10))
    for m in plan.models:
        print("%s: %.0f tokens of a prompt and %.0f steps of rows a second, just measured" % (m.name, *speeds[m.name]))
    print("%s: about %s on one process like this, %.0f MiB of memory for each, %.1f MiB of disk in %s" % (
        jobs_of(len(rows), plan.rows), _human(sum(r[1] for r in rows)), max(r[2] for r in rows) / 2**20, sum(r[3] for r in rows) / 2**20, plan.out))
