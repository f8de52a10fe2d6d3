"""Compares rules_*.py with the decisions of published code (tests/data/golden/gates.json);
golden.py runs this.

Each check takes (report, case); the checks of WG-KV are in golden_admission.py. If paper and code
differ, the rule has both forms: the published one is compared, and different choices of the paper's
form are counted (`report.differs`).
"""
import math

import numpy as np

import golden_admission
import rules_heads as heads
import rules_read as read
import rules_retention as retention
from method_inputs import Draws, Inputs, log_betas
from rules_choice import (keep_best, keep_best_counted, keep_best_of_all, keep_best_with_least)


# ---- TRIM-KV and DBTrimKV

def trimkv_gate(report, case):
    spec, p, draws = case["in"], case["params"], Draws(case["in"]["seed"])
    d, width, H = spec["d"], spec["I"], spec["H"]
    x = draws.take(spec["n"], d, scale=2)
    layers = [(draws.take(width, d), draws.take(width, scale=.5))]
    if p["gate"] == "rg10":
        layers.append((draws.take(width, width), draws.take(width)))
    got = retention.gate(x, layers, draws.take(H, width, scale=2), p["bias"])
    for a, b in zip(got, case["out"]["log_beta"]):
        report.close("trimkv_gate", a, b)


class Lanes:
    """Positions of every layer and head, and their scores."""

    def __init__(self, case):
        spec, p = case["in"], case["params"]
        self.L, self.H, self.p = spec["L"], spec["H"], p
        self.lb = log_betas(spec).astype(float)
        self.keys = Draws(spec["seed"] + 77).take(self.L, self.H, spec["n"], 4).astype(float)
        self.held = [[[] for _ in range(self.H)] for _ in range(self.L)]
        self.seen = 0

    def grow(self, t):
        for layer in self.held:
            for head in layer:
                head += range(self.seen, t)
        self.seen = t

    def count(self):
        return sum(len(head) for layer in self.held for head in layer)

    def scores(self, convention, steps, norm=False):
        out = []
        for l, layer in enumerate(self.held):
            out.append([])
            for h, head in enumerate(layer):
                age = retention.ages(self.seen, head, convention)
                if norm:
                    norms = np.linalg.norm(self.keys[l, h, head], axis=1)
                    s = retention.score_with_norm(self.lb[l, h, head], age, norms)
                else:
                    s = retention.score(self.lb[l, h, head], age, steps)
                out[-1].append(s)
        return out


def lane_rounds(report, case, due, choose, norm=False, readings={}):
    """Runs all forward passes. Compares the evicted entries and their scores, and counts how often
    the paper's ages or other readings choose differently."""
    name, p, lanes = case["method"], case["params"], Lanes(case)
    steps, wanted = p.get("lookahead", 1), {one["t"]: one for one in case["out"]["steps"]}
    for t in range(p["prompt"], case["in"]["n"] + 1):
        lanes.grow(t)
        if not due(lanes):
            report.equal(name, t in wanted, False)
            continue
        published = lanes.scores("code" if steps == 1 else "code-ahead", steps, norm)
        kept = choose(published, lanes.held)
        if kept == lanes.held:
            report.equal(name, t in wanted, False)
            continue
        want = wanted.pop(t)
        for part in zip(published, want.get("scores", [])):
            for got, scores in zip(*part):
                known = [j for j, s in enumerate(scores) if s is not None and math.isfinite(s)]
                report.close(name, got[known], [scores[j] for j in known])
        report.equal(name, kept, want["kept"])
        for convention in ("equation", "algorithm"):
            other = choose(lanes.scores(convention, steps, norm), lanes.held)
            report.differs(f"{name}: ages of the {convention}", other != kept)
        for what, reading in readings.items():
            report.differs(f"{name}: {what}", reading(published, lanes.held) != kept)
        lanes.held = want["kept"]
    report.equal(name, list(wanted), [])


def per_head(places, sliding=0):
    def choose(scores, held):
        out = []
        for part in zip(scores, held):
            out.append([])
            for s, positions in zip(*part):
                newest = range(len(positions) - sliding, len(positions))
                s = [math.inf if i in newest else x for i, x in enumerate(s)]
                out[-1].append(keep_best(s, positions, places))
        return out
    return choose


def trimkv(report, case, norm=False):
    p = case["params"]
    full = lambda lanes: len(lanes.held[0][0]) >= p["memory"] + p["buffer"]
    lane_rounds(report, case, full, per_head(p["memory"], p.get("sliding", 0)), norm)


def trimkv_norm(report, case):
    trimkv(report, case, True)


def over_all(report, case, miscounted):
    """The paper has no minimum per head. The code has one, with a miscount; decisions that
    it changes are counted."""
    p, (L, H) = case["params"], (case["in"]["L"], case["in"]["H"])
    total, least = L * H * p["memory"], p["least"]

    def choose(scores, held):
        if p.get("threshold"):
            limit = math.log(p["threshold"])
            return [[[j for x, j in zip(*lane) if x >= limit] for lane in zip(*part)] for part in zip(scores, held)]
        if not least:
            return keep_best_of_all(scores, held, total)
        return keep_best_counted(scores, held, total, least, miscounted)

    def due(lanes):
        if p.get("threshold"):
            return miscounted or lanes.seen % p["buffer"] == 0
        return lanes.count() >= L * H * (p["memory"] + p["buffer"])

    readings = {"oldest entry counted for its own head": lambda *a: keep_best_counted(*a, total, least),
                "least first, then the best of the rest": lambda *a: keep_best_with_least(*a, total, least)}
    lane_rounds(report, case, due, choose, readings=readings if least else {})


def dbtrimkv(report, case):
    over_all(report, case, True)


def dbtrimkv_paged(report, case):
    over_all(report, case, False)


def dbtrimkv_floor(report, case):
    """The share may not divide: the integer parts of both shares are used."""
    p, (L, H) = case["params"], (case["in"]["L"], case["in"]["H"])
    places = H * p["memory"]

    def choose(scores, held):
        if p["layer_wise"]:
            return [keep_best_of_all([s], [j], places)[0] for s, j in zip(scores, held)]
        if not p["floor"]:
            return keep_best_of_all(scores, held, L * places)
        least = int(p["memory"] * p["floor"])
        shared = int(L * places * (1 - p["floor"]))
        return keep_best_counted(scores, held, shared + least * L * H, least, True)

    def due(lanes):
        if p["layer_wise"]:  # here it must be more than that
            return lanes.count() > L * H * (p["memory"] + p["buffer"])
        return lanes.count() >= L * H * (p["memory"] + p["buffer"])

    lane_rounds(report, case, due, choose)


# ---- LocRet, DuoAttention, Scissorhands

def locret_gate(report, case):
    spec, draws = case["in"], Draws(case["in"]["seed"])
    n, G, H, d, width = (spec[key] for key in ("n", "G", "H", "d", "I"))
    q, k, v = (draws.take(n, m * d, scale=2) for m in (G, H, H))
    got = heads.retained_scores(q, k, v, draws.take(width, (G + 2 * H) * d), draws.take(H, width))
    for a, b in zip(got, case["out"]["scores"]):
        report.close("locret_gate", a, b)


def locret(report, case):
    p, scores = case["params"], Draws(case["in"]["seed"]).take(case["in"]["H"], case["in"]["n"])
    kept, lengths = zip(*[heads.chunked_keep(s, p["budget"], p["chunk"], p["stabilizers"], p["local"]) for s in scores])
    report.equal("locret", lengths[0], case["out"]["chunks"])
    got = [list(chunk) for chunk in zip(*kept)]
    if p["stabilizers"]:
        report.equal("locret", got, case["out"]["kept"])
    else:  # published: without stabilizers all entries have equal scores, so the choice is random
        report.equal("locret", [[len(h) for h in c] for c in got], [[len(h) for h in c] for c in case["out"]["kept"]])
        report.differs("locret: no stabilizers", got != case["out"]["kept"])


def duo_heads(report, case):
    p, spec = case["params"], case["in"]
    alphas = np.array(p["alphas"]) if "alphas" in p else \
        (Draws(spec["seed"]).take(spec["L"], spec["H"]).astype(float) + 1) / 2
    got = heads.full_heads(alphas, p["sparsity"])
    report.equal("duo_heads", got.astype(int).tolist(), case["out"]["full"])
    report.close("duo_heads", [1 - got.mean()], [case["out"]["sparsity"]])


def duo_press(report, case):
    spec = case["in"]
    alphas = (Draws(spec["seed"]).take(spec["L"], spec["H"]).astype(float) + 1) / 2
    got = heads.full_heads_counted(alphas, case["params"]["ratio"])
    report.equal("duo_press", got.astype(int).tolist(), case["out"]["full"])
    report.differs("duo_press: heads of the quantile",
                   (heads.full_heads(alphas, case["params"]["ratio"]) != got).any())


def duo_mask(report, case):
    p = case["params"]
    got = [heads.streaming_reads(i, p["sink"], p["recent"]) for i in range(case["in"]["n"])]
    report.equal("duo_mask", got, case["out"]["visible"])


def duo_cache(report, case):
    p = case["params"]
    got = heads.streaming_cache(p["calls"], p["sink"], p["recent"])
    report.equal("duo_cache", got, case["out"]["streaming"])
    start = 0
    for m, found in zip(p["calls"], got):
        start += m
        last = heads.streaming_reads(start - 1, p["sink"], p["recent"])
        report.differs("duo_cache: the last query of a call reads more than in training", found != last)


def scissorhands_library(report, case):
    x, p = Inputs(case["in"]), case["params"]
    z = np.einsum("gid,gjd->gij", x.q.astype(float), np.repeat(x.k.astype(float), x.group, 0)) / math.sqrt(x.d)
    z[:, ~np.tri(x.n, dtype=bool)] = -np.inf
    for g, a in enumerate(weights(z)):
        scores, kept = heads.summed_keep(a, p["window"], p["budget"], p["recent"], p["sinks"])
        report.close("scissorhands_library", scores, case["out"]["scores"][g])
        report.equal("scissorhands_library", kept, case["out"]["kept"][g])


def weights(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def h2o_masked(report, case):
    """Each query head separately; masked entries have zero weight."""
    x, p, steps = Inputs(case["in"]), case["params"], case["out"]["steps"]
    for g in range(x.G):
        rule = heads.HeavyMask(p["prompt"], p["heavy"], p["recent"])
        k = x.k[g // x.group].astype(float)
        z = x.q[g].astype(float) @ k.T / math.sqrt(x.d)
        z[~np.tri(x.n, dtype=bool)] = -np.inf
        scores = rule.query(weights(z[:p["prompt"], :p["prompt"]]))
        for t, want in enumerate(steps, p["prompt"]):
            if "scores" in want:
                report.close("h2o_masked", scores, want["scores"][g])
            report.equal("h2o_masked", rule.reads, want["read"][g])
            a = np.zeros((1, t + 1))
            a[0, rule.reads] = weights(z[t, rule.reads])
            left_out = rule.recent and t - rule.recent not in rule.reads
            report.differs("h2o_masked: an entry left out for a step", left_out)
            scores = rule.query(a)


# ---- Quest, SeerAttention-R

def quest(report, case):
    x, p = Inputs(case["in"]), case["params"]
    for g in range(x.G):
        keys = x.k[g // x.group]
        report.close("quest", read.page_bounds(x.q[g, -1], keys, p["page"]), case["out"]["bounds"][g])
        reads = read.quest_reads(x.q[g, -1], keys, p["page"], p["budget"])
        report.equal("quest", reads, case["out"]["selected"][g])
        report.differs("quest: the current page is not read", x.n - 1 not in reads)


def quest_library(report, case):
    x, p = Inputs(case["in"]), case["params"]
    for g in range(x.G):
        keys = x.k[g // x.group]
        rest = keys[:x.n - min(p["recent"], p["budget"])]
        report.close("quest_library", read.page_bounds(x.q[g, -1], rest, p["page"]), case["out"]["bounds"][g])
        report.equal("quest_library", read.quest_reads_to_budget(x.q[g, -1], keys, p["page"], p["budget"], p["recent"]),
                     case["out"]["selected"][g])


class Gate:
    """The gate of SeerAttention-R for one layer."""

    def __init__(self, case, layer):
        spec, self.p = case["in"], case["params"]
        self.x, d, H = Inputs(spec, layer), spec["d"], spec["H"]
        draws, average = Draws(spec["seed"] + 300 + layer), self.p["query"] != "Qproj"
        self.weight = draws.take(H, len(self.p["pools"]) * d, d)
        self.query = [None] * H
        if self.p["query"] != "Qavg":
            self.query = draws.take(*((H, d, d) if average else (H, spec["G"] // H, d, d)))
        self.norms = [1 + draws.take(d, scale=.25) for _ in range(2)] if self.p["norm"] else [None, None]
        self.average = average

    def turned(self, x, position):
        return read.rotate(x, position, 100.0) if self.p["rope"] else x

    def block(self, h, b, quirk):
        """`quirk`, as published: a block that became full while decoding is rotated by its last
        position."""
        size = self.p["block"]
        at = (b + 1) * size - 1 if quirk and (b + 1) * size > self.p["prompt"] else b * size
        keys = self.x.k[h, b * size:(b + 1) * size]
        return self.turned(read.block_key(keys, self.p["pools"], self.weight[h], self.norms[1]), at)

    def scores(self, h, i, quirk):
        """Of the query at i: all its blocks."""
        x, size = self.x, self.p["block"]
        q = x.q[h * x.group:(h + 1) * x.group, i]
        q = self.turned(read.gate_query(q, self.query[h], self.norms[0], self.average), i)
        blocks = -(-(i + 1) // size)
        keys = [self.block(h, b, quirk) if (b + 1) * size <= i + 1 else 0 * q for b in range(blocks)]
        return read.block_scores(q, keys)


def seer(report, case):
    p = case["params"]
    for layer in range(case["in"]["L"]):
        gate = Gate(case, layer)
        if layer and p["prompt"] % p["block"]:
            wrong_remainder(gate, p)
        for i, one in enumerate(case["out"]["steps"], p["prompt"]):
            for h in range(case["in"]["H"]):
                got = gate.scores(h, i, True)
                if "scores" in one:
                    report.close("seer", got, one["scores"][layer][h])
                choice = read.chosen_blocks(got, p.get("budget"), p.get("threshold"))
                report.equal("seer", choice, one["selected"][layer][h])
                if p["rope"]:
                    other = read.chosen_blocks(gate.scores(h, i, False), p.get("budget"), p.get("threshold"))
                    report.differs("seer: blocks turned with their first position", other != choice)
                if layer and p["prompt"] % p["block"]:
                    other = read.chosen_blocks(Gate(case, layer).scores(h, i, True), p.get("budget"))
                    report.differs("seer: the remainder of later layers", other != choice)


def wrong_remainder(gate, p):
    """As published: every layer except the first writes the keys of decoded tokens one place too
    far. In the block that the prompt left incomplete, the first key is lost and a zero replaces
    it."""
    first = p["prompt"] // p["block"] * p["block"]
    gate.x.k[:, first] = 0


CHECKS = {f.__name__: f for f in (
    trimkv_gate, trimkv, trimkv_norm, dbtrimkv, dbtrimkv_paged, dbtrimkv_floor, locret_gate, locret, duo_heads,
    duo_press, duo_mask, duo_cache, scissorhands_library, h2o_masked, quest, quest_library, seer)}
CHECKS |= golden_admission.CHECKS
