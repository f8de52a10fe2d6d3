"""`kvfate study`: what a study file asks for, run by the commands of the program, which compute everything; this module calls them in order and
puts their tables side by side.  Each job keeps its results in a file of states, so that the same call goes on where one was stopped."""
import hashlib
import math
import os
import shlex
import shutil
import subprocess
import sys
import zlib

from . import files, program, scorers, study_claims, study_plan, study_tasks
from .commands import Usage
from .errors import Error
from .study_cost import limits, tell_costs
from .study_page import write_page


PAIRED = ("to_full", "to_full_low", "to_full_high")  # right minus right of the full cache on the same tasks, with its interval
SUM = "sha256"  # the name of a file in a folder of tasks
PROVENANCE = ("model_hash", "question", "precision", "kv_type", "kind", "interval", "ranking", "truncated", "so_far", "benchmark", "scorer", "prompts", "frozen")  # what study.tsv tells of each job


def _call(words, ranks=1):
    """Runs the program with its own output on the terminal; its sentences are the user's."""
    before = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
    if before and not shutil.which("mpirun"):
        raise Error("--ranks %d: there is no mpirun on PATH" % ranks)
    done = subprocess.run([*before, program.find(), *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    if done.returncode > 128 or done.returncode < 0:
        raise KeyboardInterrupt
    if done.returncode:
        raise Error("the command above failed, and the study stops; the same call goes on from here: kvfate %s" % " ".join(map(str, words)))


def _sum_of(folder):
    """The SHA-256 of the names and bytes of all files of a folder, but for that which holds it."""
    seen = hashlib.sha256()
    for name in sorted(set(os.listdir(folder)) - {SUM}):
        with open(os.path.join(folder, name), "rb") as f:
            data = f.read()
        seen.update(b"%s\0%d\0" % (os.fsencode(name), len(data)) + data)
    return seen.hexdigest()


def _is_whole(folder):
    try:
        with open(os.path.join(folder, SUM), encoding="ascii") as f:
            return f.read() == _sum_of(folder) + "\n"
    except (OSError, ValueError):
        return False


class Study:
    def __init__(self, plan, ranks=1):
        self.plan, self.ranks, self.jobs = plan, ranks, plan.jobs

    def at(self, job, ending):
        return os.path.join(self.plan.out, "jobs", job.name + ending)

    def words(self, job):
        """The options of `kvfate eval` on which the results of a job depend."""
        p, x = self.plan, job.text.values
        words = ["--methods", ",".join(p.methods), *limits(p.methods, p.budgets), *p.precision]
        words += p.inputs(p.methods)
        words += ["-m", job.model.path] if job.model.path else []
        words += ["-t", p.threads] if p.threads else []
        if job.text.kind == "needles":
            unknown = ["--question", "unknown"] if x["question"] == "unknown" else []
            return words + ["--tasks", self.tasks(job), *unknown]
        return words + ["--data", *x["data"], "--docs", x["docs"], "--prompt-tokens", x["prompt_tokens"], "--score-tokens", x["score_tokens"],
                        "--seed", job.seed]

    def tasks(self, job):
        """A folder for what the file says now: other values are other prompts."""
        said = repr((job.model.path, sorted(x for x in job.text.values.items() if x[0] != "question"))).encode()
        return os.path.join(self.plan.out, "tasks", "%s-%08x" % (job.name, zlib.crc32(said)))

    def make_tasks(self, job):
        """Prompts of needles: the same bytes whenever they are made.  Those that are there are kept if they are as they were made."""
        folder = self.tasks(job)
        if job.text.kind != "needles":
            return
        with files.folder(folder, lambda place: not _is_whole(place), wait=True) as made:  # of parts of an array the first makes it
            if made is None:
                return
            words = ["tasks", "needle", "-n", job.text.count, "--seed", job.seed * job.text.count, "-o", os.path.join(made, "n")]
            words += ["-m", job.model.path] if job.model.path else []
            for key, value in job.text.values.items():
                words += ["--" + key, value] if key not in ("count", "question") and value is not None else []
            _call(words)
            with files.new(os.path.join(made, SUM), text=True) as f:
                f.write(_sum_of(made) + "\n")

    def run(self, job, shard=None):
        if job.text.kind not in study_plan.SHARED:
            how = study_claims if job.text.kind == "claims" else study_tasks
            return how.run(job, self.plan, lambda ending: self.at(job, ending), self.ranks, shard)
        self.make_tasks(job)
        words = ["eval", *self.words(job)]
        if shard:
            _call([*words, "--shard", shard, "--state", self.at(job, ".part%s.state" % shard.replace("/", "-"))])
            return
        state = self.at(job, ".state")
        parts = sorted(f for f in os.listdir(os.path.dirname(state)) if f.startswith(job.name + ".part") and f.endswith(".state"))
        if parts:
            whole = [state] if os.path.exists(state) else []
            _call(["corpus", "merge", *whole, *(os.path.join(os.path.dirname(state), f) for f in parts), "--state", state])
            for f in parts:
                os.remove(os.path.join(os.path.dirname(state), f))
        _call([*words, "--state", state, "-o", self.at(job, ".tsv")], self.ranks)


def _rows(path):
    """Returns (lines of metadata, names of columns, rows) of a table that the program wrote as TSV, with the paired differences to the full cache."""
    with open(path, encoding="utf-8") as f:
        lines = f.read().split("\n")
    head = [line for line in lines if line.startswith("#")]
    names, *body = [line.split("\t") for line in lines if line and not line.startswith("#")]
    n = names.index("tasks" if "tasks" in names else "docs") if "p_full" in names else -1
    if n >= 0 and "# kind: benchmark" not in head:  # its scores may be fractions, of which the counts above and below tell too little
        at = names.index("p_full") + 1
        for row in body:
            above, below = (float(row[names.index(c)]) for c in ("above", "below"))
            row[at:at] = map(repr, scorers.paired_difference(above, below, int(float(row[n]))) if above == above else [math.nan] * 3)
        names[at:at] = PAIRED
    return head, names, body


def _join(study):
    """study.tsv: the rows of all jobs as the program wrote them, behind model, text and seed, and study.parquet where pyarrow is."""
    columns, rows, meta = [], [], [("made_by", program.run("--version").decode().split("\n")[0])]
    for job in study.jobs:
        head, names, body = _rows(study.at(job, ".tsv"))
        meta += [("%s.%s" % (job.name, key), value) for key, _, value in (line[2:].partition(": ") for line in head) if key in PROVENANCE]
        columns += [c for c in names if c not in columns]
        asked = {"question": job.text.values["question"]} if "question" in job.text.values else {}
        rows += [{"model": job.model.name, "text": job.text.name, "seed": str(job.seed), **asked, **dict(zip(names, r))} for r in body]
    path = os.path.join(study.plan.out, "study.tsv")
    unknown = any(r.get("question") == "unknown" for r in rows)  # a study in the default protocol has no column for it
    columns = ["model", "text", "seed", *(["question"] if unknown else [])] + columns
    text = "# table: study\n" + "".join("# %s: %s\n" % x for x in meta) + "\t".join(columns) + "\n"
    files.write(path, files.sealed(text + "".join("\t".join(r.get(c, "nan") for c in columns) + "\n" for r in rows)))
    write_parquet(os.path.join(study.plan.out, "study.parquet"), columns, rows, meta)


def _typed(values):
    """Texts as whole numbers, as numbers or as texts, whatever all of them are."""
    for kind in (int, float):
        try:
            return [kind(v) for v in values]
        except ValueError:
            pass
    return values


def write_parquet(path, columns, rows, meta):
    """The same rows as Parquet, whose metadata are those of the TSV; left out where pyarrow or NumPy is not installed."""
    try:
        import pyarrow  # noqa: F401
        from . import tables
    except ImportError:
        return
    import numpy
    typed = {c: numpy.array(_typed([r.get(c, "nan") for r in rows])) for c in columns}
    tables.save_table(tables.Table(typed, {"table": "study", **dict(meta)}), path)


def _finish(study):
    """Tables, figures and the page.  The program draws, and writes the database."""
    _join(study)
    base = os.path.join(study.plan.out, "study.sqlite")
    for job in study.jobs:
        table = study.at(job, ".tsv")
        _call(["draw", table, "-o", "%s/%s" % (base, "".join(c if c.isalnum() else "_" for c in job.name))])
        for y in study_plan.FIGURES.get(job.text.kind, ()):
            style = ["y=" + y]
            style += ["methods=all", "front=no"] if y == "right" else []
            style += [] if job.text.kind in study_plan.SHARED else ["x=budget"]  # of other kinds no entries were measured
            _call(["draw", table, "--style", ",".join(style), "-o", figure_of(study, job, y)])
    _call(["draw", os.path.join(study.plan.out, "study.tsv"), "-o", base + "/study"])
    write_page(study, _rows, study_claims.over_models(study.plan, study.jobs))


def figure_of(study, job, y):
    return study.at(job, "-%s.svg" % y)


def _slurm(plan, n, data):
    """A script for `sbatch`: parts of every job, and a last one that puts them together."""
    given = (w for name, _, file in (d.partition("=") for d in data) for w in ("--data", "%s=%s" % (name, os.path.abspath(file))))
    call = shlex.join([sys.executable, "-m", "kvfate", "study", os.path.abspath(plan.path), *given])
    print("#!/bin/sh\n# sbatch --array=1-%d THIS; then, when all are done: %s\n#SBATCH --array=1-%d\n#SBATCH --job-name=%s\nset -eu\n%s --shard \"$SLURM_ARRAY_TASK_ID/%d\"" % (
        n, call, n, os.path.basename(plan.out), call, n))


def _so_far(study):
    """Makes the tables of the answers that are there.  Needles have a table when all their answers are made."""
    study.jobs = []
    for job in study.plan.jobs:
        n = job.count if os.path.exists(study.at(job, ".tsv")) else 0
        if job.text.kind in study_tasks.KINDS:
            n = study_tasks.write_so_far(job, study.plan, lambda ending: study.at(job, ending))
        print("%s: %d of %d" % (job.name, n, job.count))
        study.jobs += [job] if n else []
    if not study.jobs:
        raise Error("%s: no task is answered by all methods yet" % study.plan.out)
    _finish(study)


def run(request, operands):
    plan = study_plan.read(operands[0], request.data or ())
    if request.threads:
        plan = plan._replace(threads=request.threads)
    if request.shard and request.ranks:
        raise Usage("--shard and --ranks are two ways of sharing a study: give one")
    if request.shard and not study_plan.is_shard(request.shard):
        raise Usage("--shard %s: give I/N, part I of N parts, I from 1 to N" % request.shard)
    study_plan.check_data(plan)
    if request.slurm:
        return _slurm(plan, request.slurm, request.data or ())
    if request.plan:
        return tell_costs(plan)
    study = Study(plan, request.ranks or 1)
    for folder in ("jobs", "tasks"):
        os.makedirs(os.path.join(plan.out, folder), exist_ok=True)
    if request.so_far:
        return _so_far(study)
    jobs = plan.jobs
    for i, job in enumerate(jobs):
        print("job %d of %d: %s" % (i + 1, len(jobs), job.name), file=sys.stderr)
        study.run(job, request.shard)
    if request.shard:
        return print("part %s is done; when all are, the same call without --shard puts them together" % request.shard)
    _finish(study)
    print(os.path.join(plan.out, "index.html"))
