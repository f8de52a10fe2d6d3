"""Runs the kvfate program and reads its traces (through its own commands)."""
import json
import os
import subprocess
from pathlib import Path

import numpy as np


class EngineError(Exception):
    pass


def method_text(name, given):
    return name + (":" + ",".join(f"{k}={v}" for k, v in given.items()) if given else "")


class Trace:
    """The contents of a trace: id, nll [T]; evict_step, reason, score, margin, tie
    [layer][head][T]."""

    def __init__(self, engine, path):
        self.path = path
        tokens = engine.table("tokens", path)
        self.ids, self.nll, self.roles = tokens["id"], tokens["nll"], tokens["role"]
        self.T = len(self.ids)
        e = engine.table("eviction", path)
        shape = (e["layer"].max() + 1, e["index"].max() + 1, self.T)
        for name in ("evict_step", "reason", "score", "margin", "tie"):
            setattr(self, name, e[name].reshape(shape))
        assert (e["token"].reshape(shape) == np.arange(self.T)).all()

    def visible(self, step):
        """Returns the entries that each head's query of this step saw, by append step and
        evict_step only."""
        born = np.arange(self.T) <= step
        return (born & ((self.evict_step < 0) | (step < self.evict_step))).sum(axis=-1)


class Engine:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.exact = True  # f32 weights, activations and cache

    def path(self, name):
        return os.path.join(self.folder, name)

    def call(self, *args):
        p = subprocess.run([self.program, *map(str, args)], capture_output=True)
        if p.returncode:
            said = p.stderr.decode().strip()
            raise EngineError(f"{' '.join(map(str, args))}: exit {p.returncode}: {said}")
        return p.stdout

    def table(self, command, path):
        """Returns the columns of a table that depend only on attention, not on gates or protection."""
        out = self.path("table.npz")
        self.call(command, path, *["--source", "last-use"] * (command == "retention"), "-o", out)
        with np.load(out) as z:
            return {k: z[k] for k in z if k not in ("mean_beta", "mean_retention", "state")}

    def prompt(self, ids):
        path = self.path("ids.txt")
        Path(path).write_text(" ".join(map(str, ids)))
        return ["--ids", path] + ["--exact"] * self.exact

    def forced(self, ids):
        """Writes the given tokens after the prompt."""
        path = self.path("forced.txt")
        Path(path).write_text(" ".join(map(str, ids)))
        return ["--force", path]

    def planned(self, model, ids, after):
        """Records a plan for the same tokens, with their attention in the full cache."""
        full, out = self.path("planned.kvf"), self.path("plan.kvf")
        self.call("run", "--overwrite", "-m", model, *self.prompt(ids), *self.forced(after), "-q", "--probes", "mass", "-o", full)
        self.call("trace", "plan", "--overwrite", full, "-o", out)
        return ["--plan", out]

    def tokens_of_run(self, name, model, ids, after):
        """Returns what an oracle method needs to know."""
        return self.planned(model, ids, after) if name == "mass-greedy" else self.forced(after)

    def run(self, model, ids, n, method, budget, *more, name="trace.kvf"):
        """Records a run of n greedy tokens; returns the path of its trace."""
        out = self.path(name)
        limit = ["--budget", budget] if method.partition(":")[0] != "full" and budget is not None else []
        said = self.call("run", "--overwrite", "-m", model, *self.prompt(ids), "-n", n, "--ignore-eos", "--method", method, *limit,
                         "-q", "--json", *more, "-o", out)
        if json.loads(said)["trace_bytes"] != os.path.getsize(out):
            raise EngineError(f"{method}: trace_bytes is not the size of the trace")
        return out

    def logits(self, model, ids, *more):
        out = self.path("logits.npy")
        self.call("generate", "--logits", "-m", model, *self.prompt(ids), *more, "-o", out)
        return Path(out).read_bytes()

    def header(self, path):
        return json.loads(self.call("trace", "info", "--json", path))["header"]

    def numbers(self, path):
        """Returns the method's effective numbers from the trace's header."""
        m = self.header(path)["method"]
        return {k.replace("_", "-"): v for k, v in m.items()}
