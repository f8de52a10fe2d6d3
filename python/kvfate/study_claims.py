"""Texts of a study on which the papers' claims are judged: claims.sh makes the tables that the register names, goes on where it was stopped, and `kvfate
claims` gives the verdicts, which are the table of the job (docs/studies/claims.md)."""
import os
import subprocess

from . import program
from .errors import Error

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "claims.sh")
NAMES = {"tokens": "LENGTH", "budget": "BUDGET", "docs": "DOCS", "needles": "NEEDLES", "null_model": "NULL_MODEL", "null_gates": "NULL_GATES",
         "null_write_gates": "NULL_WRITE_GATES", "write_gates": "WRITE_GATES", "trainings": "ABLATE", "short": "SHORT", "queries": "WATCH"}


def sources(text):
    """How many sources its folder has: SOURCE-N.txt."""
    return len({name.rsplit("-", 1)[0] for name in os.listdir(text.values["data"][0]) if name.endswith(".txt") and "-" in name})


def environment(job, plan, ranks):
    """What claims.sh is told: the keys of the text under the names of its head."""
    told = {**os.environ, "KVFATE": program.find(), "TEXTS": job.text.values["data"][0], "JOBS": str(ranks)}
    told.update({name: str(job.text.values[key]) for key, name in NAMES.items() if job.text.values[key] is not None})
    told.update({"MODEL": job.model.path} if job.model.path else {})
    told.update({"THREADS": str(plan.threads)} if plan.threads else {})
    if len(plan.gates) > 1:
        raise Error("%s: a text of claims takes one file of 'gates', for retention; 'write_gates' of the text names the other" % plan.path)
    told.update({"GATES": plan.gates[0]} if plan.gates else {})
    return told


def run(job, plan, at, ranks=1, shard=None):
    """The table of verdicts of a job, and its figure.  Documents are shared by processes of one machine; the first part of an array does all of them."""
    if shard and not shard.startswith("1/"):
        return
    folder = os.path.join(plan.out, "claims", job.name)
    if subprocess.run(["sh", SCRIPT, folder], env=environment(job, plan, ranks), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).returncode:
        raise Error("the tables of %s stopped; the same call goes on from here" % job.name)
    if not shard:
        program.run("claims", folder, "-o", at(".tsv"))
        program.run("claims", folder, "-o", at("-claims.svg"))
