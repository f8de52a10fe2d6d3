"""Texts of a study on which the papers' claims are judged: claims.sh makes the tables that the register names, goes on where it was stopped, and `kvfate
claims` gives the verdicts, which are the table of the job (docs/studies/claims.md)."""
import os
import subprocess

from . import program
from .errors import Error

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "claims.sh")
NAMES = {"tokens": "LENGTH", "budget": "BUDGET", "docs": "DOCS", "needles": "NEEDLES", "null_model": "NULL_MODEL", "null_gates": "NULL_GATES",
         "null_write_gates": "NULL_WRITE_GATES", "write_gates": "WRITE_GATES", "trainings": "ABLATE", "short": "SHORT", "queries": "WATCH",
         "freeze": "FREEZE", "what": "WHAT", "probes": "PROBES", "sources": "SOURCES", "nulls": "NULLS", "memory": "MEMORY"}


def sources(text):
    """Returns how many sources of its folder are run: SOURCE-N.txt."""
    if text.values["sources"]:
        return len(text.values["sources"].split())
    return len({name.rsplit("-", 1)[0] for name in os.listdir(text.values["data"][0]) if name.endswith(".txt") and "-" in name})


def environment(job, plan, ranks):
    """Returns what claims.sh is told: the keys of the text under the names of its head.  In names of files {model} is the name of the model."""
    def own(value):
        return str(value).replace("{model}", job.model.name)
    told = {**os.environ, "KVFATE": program.find(), "TEXTS": job.text.values["data"][0], "JOBS": str(ranks)}
    told.update({name: own(job.text.values[key]) for key, name in NAMES.items() if job.text.values[key] is not None})
    told.update({"DOCS": str(job.count), "SEED": str(job.seed)})
    told.update({"MODEL": job.model.path} if job.model.path else {})
    told.update({"THREADS": str(plan.threads)} if plan.threads else {})
    if len(plan.gates) > 1:
        raise Error("%s: a text of claims takes one file of 'gates', for retention; 'write_gates' of the text names the other" % plan.path)
    told.update({"GATES": own(plan.gates[0])} if plan.gates else {})
    return told


def folder_of(plan, job):
    return os.path.join(plan.out, "claims", job.name)


def over_models(plan, jobs):
    """Judges each text of claims over the models of jobs.  Returns [(text, seed, path of its table without the ending)].

    jobs: those of the plan that have a table; a text with a table of one model only is left out."""
    made = []
    for text in plan.texts:
        for seed in plan.seeds if text.kind == "claims" else ():
            folders = [folder_of(plan, job) for job in jobs if job.text is text and job.seed == seed]
            if len(folders) < 2:
                continue
            at = os.path.join(plan.out, "claims-%s-s%d" % (text.name, seed))
            program.run("claims", *folders, "-o", at + ".tsv")
            program.run("draw", at + ".tsv", "-o", at + ".svg")
            made.append((text, seed, at))
    return made


def run(job, plan, at, ranks=1, shard=None):
    """The table of verdicts of a job, and its figure.  Documents are shared by processes of one machine; the first part of an array does all of them."""
    if shard and not shard.startswith("1/"):
        return
    folder = folder_of(plan, job)
    if subprocess.run(["sh", SCRIPT, folder], env=environment(job, plan, ranks), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).returncode:
        raise Error("the tables of %s stopped; the same call goes on from here" % job.name)
    if not shard:
        program.run("claims", folder, "-o", at(".tsv"))
        program.run("claims", folder, "-o", at("-claims.svg"))
