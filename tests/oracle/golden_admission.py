"""Compares rules_admission.py with the published WG-KV (tests/data/golden/gates.json); see golden_gates.py."""
import numpy as np

import rules_admission as admission
from method_inputs import Draws, Inputs, gates


def wgkv_gate(report, case):
    spec, p, draws = case["in"], case["params"], Draws(case["in"]["seed"])
    n, H, d = spec["n"], spec["H"], spec["d"]
    width = int(d * p["expand"])
    pre, post = (draws.take(H, n, d, scale=2) for _ in range(2))
    norms = [1 + draws.take(d, scale=.25) for _ in range(2)]
    inner = draws.take(H, width, 2 * d), draws.take(H, width)
    outer = draws.take(H, width, scale=p["scale"]), draws.take(H)
    act = {"gelu": admission.gelu, "silu": admission.silu}[p["act"]]
    for least in (0, 1e-3):
        got = admission.gate(pre, post, norms, inner, outer, act, least)
        if least == (0 if p["fast"] else 1e-3):
            for a, b in zip(got, case["out"]["gate"]):
                report.close("wgkv_gate", a, b)
        elif got.min() < 1e-3 or least:
            report.differs("wgkv_gate: the fast path has no floor", np.abs(got - case["out"]["gate"]).max() > 1e-5)


def wgkv_train(report, case):
    p, spec = case["params"], case["in"]
    g = np.maximum(gates(dict(spec, L=1), p["tau"])[0], 1e-3).astype(float)
    for h, rows in enumerate(case["out"]["added"]):
        for i, row in enumerate(rows):
            report.close("wgkv_train", [admission.bias(g[h], i, j, p["window"]) for j in range(i + 1)], row)


def wgkv_prefill(report, case):
    """The kernel reads complete blocks of 64 columns up to the diagonal, and the listed columns."""
    p, spec, out = case["params"], case["in"], case["out"]
    report.equal("wgkv_prefill", out["same_as_reference"], True)
    g = gates(dict(spec, L=1), p["tau"])[0]
    for h in range(spec["H"]):
        admits = admission.admitted(g[h], p["tau"], True)
        for i in range(spec["n"]):
            r = i // 64
            reads = set(out["columns"][h][:out["counts"][h][r]])
            for first in out["blocks"][r]:
                reads |= set(range(first, first + 64))
            reads = sorted(j for j in reads if j <= i)
            report.equal("wgkv_prefill", reads, admission.visible_in_blocks(i, admits, p["window"]))
            report.differs("wgkv_prefill: the window of the paper", reads != admission.visible(i, admits, p["window"]))
            report.differs("wgkv_prefill: a gate of exactly tau", (admission.admitted(g[h], p["tau"]) != admits)[i])


class Dual:
    def __init__(self, case):
        self.spec, self.p = case["in"], case["params"]
        self.x = [Inputs(self.spec, layer) for layer in range(self.spec["L"])]
        self.g = gates(self.spec, self.p["tau"])

    def lanes(self):
        return [(l, h) for l in range(self.spec["L"]) for h in range(self.spec["H"])]

    def admits(self, l, h, strict=True):
        return admission.admitted(self.g[l, h], self.p["tau"], strict)

    def queries(self, l, h, start, end):
        x = self.x[l]
        return x.q[h * x.group:(h + 1) * x.group, start:end]


def wgkv_decode(report, case):
    run, p, out = Dual(case), case["params"], case["out"]
    for l, h in run.lanes():
        admits, w = run.admits(l, h), p["window"]
        tier = admission.promoted(p["prompt"] - 1, admits, w)
        report.equal("wgkv_decode", out["prompt_tier"][l][h], tier)
        for i, found in enumerate(out["visible"], p["prompt"]):
            report.equal("wgkv_decode", found[l][h], admission.visible(i, admits, w))
            report.differs("wgkv_decode: a gate of exactly tau",
                           found[l][h] != admission.visible(i, run.admits(l, h, False), w))
        report.equal("wgkv_decode", out["tier"][l][h], admission.promoted(run.spec["n"] - 1, admits, w))


def wgkv_quest(report, case):
    run, p, out = Dual(case), case["params"], case["out"]
    for l, h in run.lanes():
        admits, w = run.admits(l, h), p["window"]
        for i, found in enumerate(out["visible"], p["prompt"]):
            tier = admission.promoted(i, admits, w)
            q = run.queries(l, h, i, i + 1)[:, 0]
            chosen = admission.page_reads(q, run.x[l].k[h, tier], tier, p["block"], p["quest"], min(i + 1, w))
            report.equal("wgkv_quest", found[l][h], chosen + list(range(max(0, i - w + 1), i + 1)))


def wgkv_snapkv(report, case):
    """Tiers grow by promotion. If all together exceed the limit after a forward pass, each head
    loses its share."""
    run, p, out = Dual(case), case["params"], case["out"]
    cuts = {one["t"]: one for one in out["cuts"]}
    tier = {lane: [] for lane in run.lanes()}
    for t in [p["prompt"]] + list(range(p["prompt"] + 1, run.spec["n"] + 1)):
        for lane in run.lanes():
            admits = run.admits(*lane)
            fresh = range(0 if t == p["prompt"] else t - 1 - p["window"], t - p["window"])
            tier[lane] = tier[lane] + [j for j in fresh if j >= 0 and admits[j]]
        due = sum(map(len, tier.values())) > p["limit"]
        report.equal("wgkv_snapkv", t in cuts, due)
        if not due:
            continue
        for l, h in run.lanes():
            held, want = tier[l, h], cuts[t]
            report.equal("wgkv_snapkv", held, want["before"][l][h])
            q = run.queries(l, h, t - p["observe"], t)
            scores = admission.observed_scores(q, run.x[l].k[h, held], p["kernel"])
            if want.get("scores") and want["scores"][l][h]:
                report.close("wgkv_snapkv", scores, want["scores"][l][h])
            tier[l, h] = admission.evicted_tier(scores, held, p["evict"])
            summed = admission.observed_scores(q, run.x[l].k[h, held], p["kernel"], True)
            report.equal("wgkv_snapkv", admission.evicted_tier(summed, held, p["evict"]), tier[l, h])
            report.equal("wgkv_snapkv", tier[l, h], want["kept"][l][h])
    report.equal("wgkv_snapkv", [[len(tier[l, h]) for h in range(run.spec["H"])] for l in range(run.spec["L"])],
                 out["lengths"])


CHECKS = {f.__name__: f for f in (wgkv_gate, wgkv_train, wgkv_prefill, wgkv_decode, wgkv_quest, wgkv_snapkv)}
