#!/usr/bin/env python3
"""examples/04_synergy.sh on tiny models: its table compared with the traces, which are read
independently."""
import os
import subprocess
import sys

import numpy as np

from harness import Suite

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(HERE, "..", d) for d in ("data", "format")]
import make_gates
import digest  # noqa: F401 finds the package
import kvfate

SCRIPT = os.path.join(HERE, "..", "..", "examples", "04_synergy.sh")
N, BUDGET, TAUS = 40, 32, ["0", "0.1", "0.3", "1"]
TINY = ["--layers", "2", "--heads", "4", "--kv-heads", "2", "--head-dim", "16", "--d-model", "64"]
PROMPT = "Every good boy deserves fudge; all cows eat grass. " * 4

s = Suite()
gates = s.path("gates.safetensors")
s.file("gates.safetensors", make_gates.build(make_gates.options(["--layout", "wgkv", *TINY, "-o", gates])))
prompt = s.file("prompt.txt", PROMPT.encode())
out = s.path("out")


def script(*args):
    return subprocess.run([SCRIPT, *args], env={**os.environ, "KVFATE": s.exe}, capture_output=True, text=True, timeout=120)


class Run:
    """The contents of a trace, and numbers derived only from it."""

    def __init__(self, path, reads=None):
        t = kvfate.open(path)
        self.reads = reads
        self.T, self.P = t.steps, t.meta["run"]["prompt_tokens"]
        self.evict = np.asarray(t.evict_step).astype(np.int64)
        self.reason = np.asarray(t.evict_reason)
        if "write_gate" in t.columns:
            self.gate = np.asarray(t.write_gate)
        if "read.count" in t.columns:
            self.reads = np.mean([t["read.count"][l].sum(axis=1) / (self.T - self.P) for l in range(len(t.heads))])
        i, q = np.arange(self.T), np.arange(self.T)[:, None]
        self.seen = (i <= q) & (q < self.evict[:, :, None, :])  # [L][H][query][entry]

    def twice_at_prompt(self, W):
        """Returns True if the first token after the prompt does not fit although the prompt itself
        was cut. The rule is that each head evicts a tenth of its candidates in every round, and
        uses only their numbers."""
        there = self.seen[:, :, self.P - 1] & (self.gate_until(W) > self.P)
        n = there.sum(axis=-1)
        m = n - there[:, :, self.P - W:self.P].sum(axis=-1)
        limit, before = n.size * BUDGET, n.sum()
        while n.sum() > limit and m.any():
            lost = np.where(m > 0, np.maximum(1, (0.1 * m + 1e-9).astype(int)), 0)
            n, m = n - lost, m - lost
        return before > limit and n.sum() + n.size > limit and m.any()

    def gate_until(self, W):
        return np.where(self.reason == 3, np.arange(self.T) + W, 1 << 30)

    def row(self, tau, W):
        cut = self.reason == 1
        old = np.arange(self.T) + W < self.T
        admitted = (self.gate[:, :, old] >= np.float32(tau)).mean() if W else 1
        reads = self.reads if self.reads is not None else self.seen[:, :, self.P:].sum(axis=-1).mean()
        end = (self.evict >= self.T).sum(axis=-1).mean()
        cuts = len(set(self.evict[cut])) + int(W > 0 and cut.any() and self.twice_at_prompt(W))
        return ["%.3f" % admitted, str(cuts), "%.3f" % cut.mean(), "%.1f" % end], "%.1f" % reads


done = script(gates, out, " ".join(TAUS), str(BUDGET), "-m", s.model(), "-f", prompt, "-n", str(N), "--ignore-eos")
s.check("it runs", done.returncode == 0, done.stdout, done.stderr)
rows = [line.split("\t") for line in done.stdout.splitlines()]
s.check("head", rows[0] == "method tau admitted triggers cut held_end held_peak read".split(), rows)
wanted = [("full", "-"), ("quest", "-")] + [(m, t) for m in ("wgkv-snapkv", "wgkv-quest") for t in TAUS]
s.check("rows", [tuple(r[:2]) for r in rows[1:]] == wanted, rows)
with open(os.path.join(out, "synergy.tsv")) as f:
    s.check("the file is the output", f.read() == done.stdout)

# Compares each line with the trace of the same run, including the numbers of gates and reads.
for method, tau, admitted, triggers, cut, held_end, held_peak, read in rows[1:]:
    name = f"{method}-{tau}" if tau != "-" else method
    again = s.path("again.kvf")
    more = ["--method", f"{method}:tau={tau}", "--gates", gates] if tau != "-" else ["--method", method]
    more += ["--budget", str(BUDGET)] if method != "full" else []
    s.accepted(name, ["run", "--overwrite", "-m", s.model(), "-f", prompt, "-n", str(N), "--ignore-eos", "-q", "--force", os.path.join(out, "full.kvf"),
                      *more, "--probes", "evict,gate,read", "-o", again])
    there, run = Run(os.path.join(out, name + ".kvf")), Run(again)
    s.check(name + ": the same decisions", (there.evict == run.evict).all() and there.T == run.T == there.P + N - 1)
    want, reads = run.row(float(tau) if tau != "-" else 0, BUDGET // 4 if tau != "-" else 0)
    s.check(name + ": decisions", [admitted, triggers, cut, held_end] == want, [admitted, triggers, cut, held_end], want)
    s.check(name + ": reads", read == reads, read, reads)
    s.check(name + ": peak", float(held_peak) >= float(held_end), held_peak, held_end)

# The mechanism must hold for any gates: no entry is rejected at 0, and all are rejected at a
# threshold above every g. If all entries are rejected, no eviction happens, and without admission
# there are more evictions.
by = {(r[0], r[1]): r for r in rows[1:]}
snap, quest = by["wgkv-snapkv", "0"], by["wgkv-snapkv", "1"]
s.check("all admitted", snap[2] == "1.000" and int(snap[3]) > 1 and float(snap[5]) <= BUDGET, snap)
s.check("none admitted", quest[2] == "0.000" and quest[3] == "0" and float(quest[5]) == BUDGET // 4, quest)
s.check("fewer cuts with admission", int(by["wgkv-snapkv", "0.3"][3]) < int(snap[3]), rows)
s.check("quest cuts nothing", all(r[3] == "0" and r[4] == "0.000" for k, r in by.items() if "quest" in k[0]), rows)
bare = script()
s.check("usage", bare.returncode == 2 and bare.stderr.startswith("usage: 04_synergy.sh GATES OUT") and not bare.stdout, bare.stderr)
wrong = script(prompt, s.path("wrong"), "0", str(BUDGET), "-m", s.model(), "-f", prompt, "-n", "4")
s.check("gates that are none", wrong.returncode == 1 and "safetensors" in wrong.stderr, wrong.returncode, wrong.stderr)
s.finish()
