"""Compares one case: the oracle replays the program's trace decision by decision."""
import itertools

import numpy as np

import gates
import methods
import tolerance
from reading import Reader
from rows import NO_BUDGET, READS_ONLY, Row, part_of
from tiny_llama import Session, nll

NLL_BOUND = 2e-4  # logits of these models have errors of up to 5.4e-5 (tests/data/golden/README.md)


class Tally:
    def __init__(self):
        self.cases = self.decisions = self.entries = self.mismatches = 0
        self.close = self.excused = self.level = self.reads = self.unsure_reads = 0
        self.score_error = self.nll_error = 0.0

    def text(self, name):
        reads = f"{self.reads} choices of pages, {self.unsure_reads} cases left there; " if self.reads else ""
        return (f"{name}: {self.cases} cases, {self.decisions} decisions ({self.entries} cuts) compared, "
                f"{self.close} near ties, {self.excused} of them excused, {self.level} more level by nature, "
                f"{reads}{self.mismatches} mismatches; "
                f"largest error of a score {self.score_error:.2g}, of nll {self.nll_error:.2g}")


def is_level(cut, ranked=False):
    """Returns True if scores may be equal by mathematics, so that only rounding decides, in f64 and
    in f32. Two unit vectors have equal angles to their mean and equal similarity to each other, so
    this happens with two entries in a head. In layer 0, keys of equal tokens have equal lengths,
    since rotation does not change them, and are equal without rotation."""
    part = part_of(cut.kind)
    if part in tolerance.LENGTHS or ranked and part == "redundancy":
        return cut.gap < 1e-9
    if part == "remaining-mass" and cut.gap == 0:
        return cut.least_kept == 0  # no query is left: the true value is zero, except for rounding
    return cut.alive == 2 and (part == "keydiff" or part == "redundancy" and cut.gap < 1e-9)


def rows_of(name, c, llama):
    """Returns [Row]: the run's own method, and the overrides for some heads. The later override
    wins."""
    layers, kv = llama.layers, llama.kv_heads
    owner = {(l, h): 0 for l in range(layers) for h in range(kv)}
    wanted = [(name, c["budget"], c["given"])]
    for text, other, given in c.get("overrides", []):
        given = dict(given)
        budget = given.pop("budget", None if other in NO_BUDGET else c["budget"])
        wanted.append((other, budget, given))
        l, h = text[1:].split("K")
        owner |= {x: len(wanted) - 1 for x in owner if l in ("*", str(x[0])) and h in ("*", str(x[1]))}
    rows = [Row(*w, [x for x in sorted(owner) if owner[x] == i], c["prompt"], c.get("percent")) for i, w in enumerate(wanted)]
    return [row for row in rows if row.heads]


class Case:
    def __init__(self, tally, name, c, trace, llama, gates=None):
        self.tally, self.c, self.trace = tally, c, trace
        if c["given"].get("group") == "none" and name not in READS_ONLY:
            llama = llama.apart()
        self.rows = rows_of(name, c, llama)
        self.p = methods.numbers(name, c["budget"], c["given"], c["prompt"])
        self.readers = [Reader(row, c["prompt"]) for row in self.rows if row.read != "all"]
        ranked = {x for row in self.rows if row.p["positions"] == "cache" for x in row.heads}
        self.run = Session(llama, trace.T, ranked, gates, self.twin(name, llama), self.read)
        self.faults = []
        self.over = False  # after an excused decision, the histories diverge

    def twin(self, name, llama):
        """Returns the full cache after the same tokens."""
        if not any(row.score in ("remaining-mass", "next-attention") for row in rows_of(name, self.c, llama)):
            return None
        run = Session(llama, self.trace.T)
        for token in self.trace.ids:
            run.feed(token)
        return run

    def read(self, run, layer, weights):
        chosen = {}
        for reader in self.readers:
            chosen |= reader(run, layer, weights)
        return chosen

    def fault(self, text):
        self.faults.append(text)

    def replay(self):
        """Replays the events between two queries, then the query."""
        t, logits = self.trace, None
        for step in range(t.T + 1):
            self.compare(step, methods.due(self.rows, self.run, self.c["prompt"], step == t.T))
            if self.over or self.faults or step == t.T:
                break
            if logits is not None:
                self.check_token(step, logits)
            logits = self.run.feed(t.ids[step])
            if any(reader.unsure for reader in self.readers):
                self.tally.unsure_reads += 1
                return
        if not self.over and not self.faults:
            self.tally.reads += sum(reader.choices for reader in self.readers)
            self.check_alive()

    def check_token(self, step, logits):
        """Checks the program's greedy choice and its NLL, which depend on the last query."""
        token = self.trace.ids[step]
        free = step >= self.c["prompt"] + self.c.get("question", 0) and not self.c.get("force")
        if free and logits.max() - logits[token] > NLL_BOUND:
            self.fault(f"token {step}: {token} is not the greedy choice {logits.argmax()}")
        error = abs(nll(logits, token) - self.trace.nll[step])
        self.tally.nll_error = max(self.tally.nll_error, error)
        if not error <= NLL_BOUND:
            self.fault(f"token {step}: nll {self.trace.nll[step]}, oracle {nll(logits, token)}")

    def compare(self, step, events):
        """events: the evictions between query step - 1 and query step."""
        actual = self.trace.evict_step == step
        for layer, head in itertools.product(*map(range, actual.shape[:2])):
            found = [e[layer, head] for e in events if (layer, head) in e]
            got = set(np.flatnonzero(actual[layer, head]))
            if found or got:
                self.compare_head(f"step {step} L{layer}K{head}", layer, head, found, got)

    def compare_head(self, where, layer, head, found, got):
        cuts = [x for x in found if isinstance(x, methods.Cut)]
        gone = [x for x in found if not isinstance(x, methods.Cut)]
        expired = {j for x in gone for j in x.entries}
        want = {j: s for cut in cuts for j, s in cut.score.items()}
        level = any(is_level(cut, (layer, head) in self.run.ranked) for cut in cuts)
        close = not level and bool(found) and (self.run.unsure or any(cut.open for cut in cuts))
        if not want and not got and not expired:
            return
        self.tally.decisions += len(cuts) or 1
        self.tally.entries += len(want) + len(expired)
        self.tally.close += close
        for x in gone:
            self.compare_gone(where, layer, head, x)
        if got == set(want) | expired:
            # Two exchangeable entries may be evicted at each other's cut of this step.
            for cut in cuts if len(cuts) == 1 or not (close or level) else []:
                self.compare_cut(where, layer, head, cut)
        elif close or level:
            self.tally.excused += close
            self.tally.level += level
            self.over = True
        else:
            self.fault(f"{where}: cut {sorted(map(int, got - expired))}, oracle {sorted(want)}, expired "
                       f"{sorted(expired)}, only here {show(want, got)}, gaps {[float(c.gap) for c in cuts]}, "
                       f"its scores {show_scores(self.trace, layer, head, got - set(want) - expired)}")

    def compare_gone(self, where, layer, head, gone):
        """Compares the entries that admission let expire."""
        t = self.trace
        for j, (score, margin) in gone.entries.items():
            if t.reason[layer, head, j] != gone.reason:
                self.fault(f"{where} entry {j}: reason {t.reason[layer, head, j]}, oracle {gone.reason}")
            for what, want in (("score", score), ("margin", margin)):
                x = getattr(t, what)[layer, head, j]
                near = 2**-23 if self.run.gates is None or self.run.gates.exact else gates.ERROR
                if not (np.isnan(x) and np.isnan(want) or abs(x - want) <= near * max(abs(score), abs(want), 1)):
                    self.fault(f"{where} entry {j}: {what} {x}, oracle {want}")

    def compare_cut(self, where, layer, head, cut):
        t, plain = self.trace, part_of(cut.kind) == "position"
        for j, score in cut.score.items():
            reason = t.reason[layer, head, j]
            if reason != ("window" if plain else "budget"):
                self.fault(f"{where} entry {j}: reason {reason}")
            if plain:
                if not np.isnan(t.score[layer, head, j]):
                    self.fault(f"{where} entry {j}: a score, {t.score[layer, head, j]}")
                continue
            self.close_to(cut.kind, f"{where} entry {j}: score", t.score[layer, head, j], score, score, cut.error[j])
            if cut.least_kept is None:
                if not np.isnan(t.margin[layer, head, j]):
                    self.fault(f"{where} entry {j}: a margin, but no other candidate was kept")
            else:
                self.compare_margin(where, layer, head, j, cut)

    def compare_margin(self, where, layer, head, j, cut):
        t, score = self.trace, cut.score[j]
        margin, error = cut.least_kept - score, cut.error[j] + max(cut.error[k] for k in cut.kept)
        self.close_to(cut.kind, f"{where} entry {j}: margin", t.margin[layer, head, j], margin, cut.least_kept, error)
        open_ = is_level(cut, (layer, head) in self.run.ranked) or 0 < margin <= error or margin == 0 and cut.open or \
            part_of(cut.kind) in ("below-even", "remaining-mass") and error
        if t.tie[layer, head, j] != (margin == 0) and not open_:
            self.fault(f"{where} entry {j}: tie {t.tie[layer, head, j]}, margin {margin}")

    def close_to(self, kind, what, got, want, size, error):
        """the program records f32"""
        off = abs(got - want)
        if part_of(kind) not in ("keydiff", "key-norm", "redundancy") and size:
            self.tally.score_error = max(self.tally.score_error, off / abs(size))
        else:
            self.tally.score_error = max(self.tally.score_error, off)
        if not off <= 2 * error + max(abs(size), abs(want)) * 2**-23:
            self.fault(f"{what} {got}, oracle {want}, bound {2 * error:.2g}")

    def check_alive(self):
        alive = np.zeros(self.trace.evict_step.shape, bool)
        for layer, head in itertools.product(*map(range, alive.shape[:2])):
            alive[layer, head, self.run.alive[layer][head]] = True
        if (alive != (self.trace.evict_step == -1)).any():
            self.fault("other entries are alive at the end")
        if (self.trace.reason[alive] != "alive").any():
            self.fault("an entry that is alive has a reason")


def show(want, got):
    return {int(j): float(want[j]) for j in set(want) - set(got)}


def show_scores(trace, layer, head, entries):
    return {int(j): float(trace.score[layer, head, j]) for j in sorted(entries)[:6]}
