"""What attention rows leave behind: the O(T) columns of one layer, by the definitions of docs/reference/probes.md.

Rows come in blocks of queries, as weights [query heads][queries][entries]; nothing of them is kept but sums, maxima, steps and
counts.  The arrays are NumPy's or torch's: `Arrays` names the few operations that the two spell differently, all others are called
by the name that both have."""
import math

import numpy as np

TOP = {"top64": 64, "top128": 128, "top256": 256, "top512": 512}
MASS = {"mass.90": .90, "mass.95": .95, "mass.99": .99}
CRITERIA = [*TOP, *MASS]
RETURNS = ["top64", "mass.95"]
SLACK = [1, 2, 4]
SETS = CRITERIA + ["slack.%d" % s for s in SLACK]
UNDER = ["0.0001", "0.001", "0.01", "0.1"]
N_NEAR, WINDOWS, PER_WINDOW, BLOCK = 16, 4, 8, 16
UNITS = 2.0**50  # weights are summed as whole numbers of these, so that no order of summing matters
NEVER = 2**31 - 1  # in arrays of steps: not yet

# probe: {column: its type, space, axis and flags}; STEP stands for u16 or u32, by the most tokens that a run can have
PROBES = {
    "evict": {"evict_step": "u32 kv snapshot: step", "evict_reason": "u8 kv snapshot", "evict_score": "f32 kv snapshot",
              "evict_margin": "f32 kv snapshot", "evict_tie": "u8 kv snapshot", "evict_rank": "u32 kv snapshot"},
    "survival": {"last_selected." + c: "STEP query age snapshot: step" for c in CRITERIA},
    "mass": {"mass.sum": "f32 query snapshot", "mass.max": "f32 query snapshot"},
    "steps": {"lse": "f32 query step: nat", "entropy": "f32 query step: nat"},
    "nll": {"nll": "f32 run: nat"},
    "keys": {"key_norm": "f32 kv"},
    "calibration": {k: v for c in CRITERIA for k, v in (("selected_at." + c, "u32 query snapshot"),
                                                        ("first_unselected." + c, "STEP query age snapshot: step"))},
    "returns": {k: v for c in RETURNS for k, v in (("n_selected." + c, "STEP query snapshot"), ("n_returns." + c, "STEP query snapshot"),
                                                   ("longest_gap." + c, "STEP query snapshot: step"))},
    "window": {"%s.%d" % (w, k): "f32 kv snapshot" for w in ("window", "window16") for k in range(WINDOWS)},
    "under": {"under." + p: "STEP query step" for p in [*UNDER, "seen"]},
    "dilution": {**{k: v for u in SETS for k, v in (("useful." + u, "f32 query step"), ("dilution." + u, "f32 query step"), ("size." + u, "STEP query step"))},
                 **{"near.all.%d" % k: "STEP query step" for k in range(N_NEAR)}},
    "shadow": {**{"shadow." + k: "f32 query step" for k in ("kept_mass", "oracle_mass", "output_error")}, "shadow.ghost_hits": "u32 query snapshot",
               "shadow.first_hit": "u32 query snapshot: step", "shadow.ghost_mass": "f32 query snapshot"},
    "contrib": {"out_norm": "f32 query", "last_selected.contrib64": "STEP query age snapshot: step"},
}
PAPER = ["evict", "survival", "mass", "steps", "nll"]
EVERY = {"lean": ["evict"], "paper": PAPER, "full": [p for p in PROBES if p != "shadow"]}


class NumpyArrays:
    """The operations of NumPy by names of our own."""
    xp, bool, u8, i32, i64, f32, f64 = np, np.bool_, np.uint8, np.int32, np.int64, np.float32, np.float64
    most = 1 << 20  # weights that are at hand at a time

    def full(self, shape, value, dtype):
        return np.full(shape, value, dtype)

    def arange(self, a, b):
        return np.arange(a, b)

    def cast(self, x, dtype):
        return x.astype(dtype)

    def sum64(self, x, axis):
        """Summed in f64."""
        return np.sum(x, axis, dtype=np.float64)

    def falling(self, x):
        """The last dimension sorted, the largest first."""
        return -np.sort(-x, -1)

    def below(self, rising, values):
        """How many numbers of each row [...][n], which rise, are less than each of its values [...][m]."""
        return np.stack([np.sum(rising < values[..., m, None], -1) for m in range(values.shape[-1])], -1)

    def last_row(self, member):
        """member: [heads][rows][n], booleans; [heads][n] in i32: the last row that has each, -1 if none does."""
        rows = member.shape[1]
        if rows > 255:
            halves = [self.last_row(member[:, :rows // 2]), self.last_row(member[:, rows // 2:])]
            return self.xp.where(halves[1] >= 0, halves[1] + rows // 2, halves[0])
        numbers = self.cast(self.arange(1, rows + 1), self.u8)[:, None]  # bytes: a sixteenth of the memory that steps would pass through
        return self.cast(self.xp.amax(member.view(self.u8) * numbers, 1), self.i32) - 1

    def at(self, x, index):
        return np.take_along_axis(x, index, -1)

    def largest_so_far(self, x):
        """[heads][rows][n]: of this row and those before it."""
        return np.maximum.accumulate(x, 1)

    def join(self, parts, axis):
        return np.concatenate(parts, axis)

    def numpy(self, x):
        return np.asarray(x)


def members(a, w, falling, sizes):
    """For each of the sets, which entries are its members: the largest weights of each row, among equal ones the larger position first.
    w: [heads][rows][n] with -1 where the query does not see; falling: w sorted; sizes: [heads][rows][sets], each at least 1."""
    xp, n = a.xp, w.shape[-1]
    least = a.at(falling, sizes - 1)
    tied = (a.at(falling, xp.clip(sizes, 0, n - 1)) == least) & (sizes < n)
    for k, unclear in enumerate(xp.any(tied.reshape(-1, sizes.shape[-1]), 0).tolist()):
        edge = least[..., k, None]
        if not unclear:
            yield w >= edge
            continue
        more, equal = w > edge, w == edge
        wanted = sizes[..., k] - xp.sum(more, -1)
        behind = xp.flip(xp.cumsum(xp.flip(equal, (-1,)), -1), (-1,))  # equal ones from here to the end
        yield more | (equal & (behind <= wanted[..., None]))


def weigh(a, q, k, scale, softcap, t0, i0, window, places=None):
    """Weights of queries t0 ... over entries i0 ..., 0 and unseen where the query does not see: (weights, seen, lse, entropy).
    q: [H][group][rows][D], k: [H][n][D] in float32; weights: [H * group][rows][n], seen: the same, or [1][rows][n] where all heads see
    the same.  places: [H][n], positions of entries that are in no order, NEVER for those that a head does not see."""
    xp = a.xp
    H, group, rows, D = q.shape
    n = k.shape[1]
    s = (q.reshape(H, group * rows, D) @ k.swapaxes(1, 2)).reshape(H * group, rows, n) * scale
    if softcap:
        s = xp.tanh(s / softcap) * softcap
    t, i = a.arange(t0, t0 + rows)[:, None], a.arange(i0, i0 + n)[None, None]
    if places is not None:
        i = (places[:, None] + a.full((H, group, n), 0, a.i64)).reshape(H * group, 1, n)
    seen = i <= t if window is None else (i <= t) & (i > t - window)
    s = xp.where(seen, s, a.full((), -math.inf, a.f32))
    top = xp.amax(s, -1)[..., None]
    d = s - top
    e = xp.exp(d)
    total = a.sum64(e, -1)
    moment = a.sum64(e * xp.clip(d, -200, 0), -1)  # where d is less e is 0
    lse = a.cast(top[..., 0], a.f64) + xp.log(total)
    return e * a.cast(1 / total, a.f32)[..., None], seen, lse, xp.log(total) - moment / total


class LayerRows:
    """The columns of one layer.  a: the arrays; probes: names of PROBES; watch: {token: [query heads]} whose attention is kept."""

    def __init__(self, a, kv_heads, query_heads, probes, watch=()):
        self.a, self.kv_heads, self.query_heads, self.probes = a, kv_heads, query_heads, set(probes)
        self.watch = dict(watch)
        self.room, self.cells, self.ring, self.reason = 0, {}, {}, 4  # KVF_REASON_ARCHITECTURE
        self.rows, self.received = {}, {}  # what came since the last drain: {column: [arrays]}

    def _start(self):
        """{name: (heads, value, type)} of the state that grows with the tokens."""
        a, G, H, out = self.a, self.query_heads, self.kv_heads, {}
        if "survival" in self.probes:
            out |= {"last." + c: (G, -1, a.i32) for c in CRITERIA}
        if "mass" in self.probes:
            out |= {"sum": (G, 0, a.f64), "max": (G, 0, a.f32)}
        if "calibration" in self.probes:
            out |= {"at." + c: (G, 0, a.i64) for c in CRITERIA} | {"first." + c: (G, NEVER, a.i32) for c in CRITERIA}
        if "returns" in self.probes:
            out |= {"previous." + c: (G, -1, a.i32) for c in RETURNS}
            out |= {k + c: (G, 0, a.i32) for c in RETURNS for k in ("selected.", "returns.", "gap.")}
        if "contrib" in self.probes:
            out |= {"last.contrib64": (G, -1, a.i32), "out_norm": (G, math.nan, a.f32)}
        if "shadow" in self.probes:
            out |= {"hits": (G, 0, a.i32), "first_hit": (G, NEVER, a.i32), "ghost": (G, 0, a.f64)}
        if "keys" in self.probes:
            out["key_norm"] = (H, math.nan, a.f32)
        if "evict" in self.probes:
            out |= {"left": (H, NEVER, a.i32), "score": (H, math.nan, a.f32), "margin": (H, math.nan, a.f32)}
        return out

    def _grow(self, n):
        """Room for n tokens."""
        if n <= self.room:
            return
        self.room = max(n, 2 * self.room, 256)
        for name, (heads, value, dtype) in self._start().items():
            old = self.cells.get(name)
            new = self.a.full((heads, self.room), value, dtype)
            if old is not None:
                new[:, :old.shape[1]] = old
            self.cells[name] = new

    def entries(self, k, i0, out_norm=None):
        """Keys [H][n][D] of new entries i0 ..., and the lengths [G][n] of their values behind the output projection."""
        a, n = self.a, k.shape[1]
        self._grow(i0 + n)
        if "keys" in self.probes:
            self.cells["key_norm"][:, i0:i0 + n] = a.cast(a.xp.sqrt(a.xp.sum(a.cast(k, a.f64)**2, -1)), a.f32)
        if "contrib" in self.probes and out_norm is not None:
            self.cells["out_norm"][:, i0:i0 + n] = out_norm

    def take(self, w, seen, lse, entropy, t0, i0, missed=None):
        """Weights as `weigh` makes them, of queries t0 ... over entries i0 ...; queries come in rising order, each once.
        missed: of queries that do not see what was evicted, the weights over everything, whether an entry is there for the query, and
        the error of its output."""
        a, xp = self.a, self.a.xp
        rows, n = w.shape[1:]
        self._grow(max(t0 + rows, i0 + n))
        at, t = slice(i0, i0 + n), a.cast(a.arange(t0, t0 + rows), a.i32)
        if "steps" in self.probes:
            self._put({"lse": lse, "entropy": entropy})
        if "mass" in self.probes:
            self.cells["sum"][:, at] += a.sum64(w, 1)
            self.cells["max"][:, at] = xp.maximum(self.cells["max"][:, at], xp.amax(w, 1))
        if "window" in self.probes:
            self._windows(w, t0, i0)
        if "shadow" in self.probes:
            self._missed(seen, missed, t)
        self._received(w, seen, t0, i0)
        if self.probes & {"survival", "calibration", "returns", "dilution", "under", "contrib"}:
            self._sets(xp.where(seen, w, a.full((), -1, a.f32)), seen, t, i0, missed)

    def _put(self, columns):
        for name, values in columns.items():
            self.rows.setdefault(name, []).append(self.a.numpy(values))

    def _missed(self, seen, missed, t):
        """What n entries that a query saw have of the weight, against the n largest; and whom it missed.  Missing nothing is 1, 1 and 0."""
        a, xp = self.a, self.a.xp
        if missed is None:
            one = a.full((self.query_heads, seen.shape[1]), 1, a.f32)
            return self._put({"shadow.kept_mass": one, "shadow.oracle_mass": one, "shadow.output_error": 0 * one})
        p, there, error = missed
        n, ghost, none = xp.sum(seen, -1), there & ~seen, a.full((), 0, a.f64)
        all_seen = n == xp.sum(there, -1)
        shown = xp.where(there, p, a.full((), -1, a.f32))
        falling = a.falling(shown)
        wide, one = a.cast(p, a.f64), a.full((), 1, a.f64)
        most = a.at(xp.cumsum(a.cast(xp.clip(falling, 0, 1), a.f64), -1), (n - 1)[..., None])[..., 0]
        self._put({"shadow.kept_mass": xp.where(all_seen, one, xp.sum(xp.where(seen, wide, none), -1)),
                   "shadow.oracle_mass": xp.where(all_seen, one, most), "shadow.output_error": xp.where(all_seen, none, error)})
        hit = next(members(a, shown, falling, n[..., None])) & ghost
        at, never = slice(0, p.shape[-1]), a.full((), NEVER, a.i32)
        self.cells["hits"][:, at] += a.cast(xp.sum(hit, 1), a.i32)
        self.cells["first_hit"][:, at] = xp.minimum(self.cells["first_hit"][:, at], xp.amin(xp.where(hit, t[:, None], never), 1))
        self.cells["ghost"][:, at] += xp.sum(xp.where(ghost, wide, none), 1)

    def _received(self, w, seen, t0, i0):
        rows, n = w.shape[1:]
        for token, heads in self.watch.items():
            for head in heads:
                value = np.full(rows, -1, np.float32)
                if i0 <= token < i0 + n:
                    value = np.where(self.a.numpy(seen[head % len(seen), :, token - i0]), self.a.numpy(w[head, :, token - i0]), value)
                value[np.arange(t0, t0 + rows) < token] = np.nan
                self.received.setdefault((head, token), []).append(value)

    def _sizes(self, falling, seen):
        """How many of the largest weights each set has: ({set: [heads][rows]}, entries seen, the weights in f64)."""
        a, xp = self.a, self.a.xp
        n_seen = xp.sum(seen, -1) + a.full(falling.shape[:2], 0, a.i64)
        f64 = a.cast(xp.clip(falling, 0, 1), a.f64)
        size = {c: xp.clip(n_seen, 0, k) for c, k in TOP.items()}
        units = xp.cumsum(xp.round(f64 * UNITS), -1)
        less = a.below(units, a.join([tau * units[..., -1:] for tau in MASS.values()], -1))
        size |= {c: xp.minimum(less[..., m] + 1, n_seen) for m, c in enumerate(MASS)}
        return size, n_seen, f64

    def _sets(self, w, seen, t, i0, missed):
        """Sets of largest weights, and all that is made of them.  Dilution is of all that there is, also of what was evicted, where that
        is known."""
        a, xp = self.a, self.a.xp
        falling = a.falling(w)
        size, n_seen, f64 = self._sizes(falling, seen)
        if self.probes & {"survival", "calibration", "returns"}:
            self._mark(w, falling, size, t, i0)
        if "dilution" in self.probes and missed is None:
            self._dilution(falling, f64, size, n_seen, t)
        elif "dilution" in self.probes:
            everything = a.falling(xp.where(missed[1], missed[0], a.full((), -1, a.f32)))
            sizes, there, wide = self._sizes(everything, missed[1])
            self._dilution(everything, wide, sizes, there, t)
        if "under" in self.probes:
            self._put({"under." + p: n_seen - xp.sum(f64 >= float(p) * f64[..., :1], -1) for p in UNDER})
            self._put({"under.seen": n_seen})
        if "contrib" in self.probes:
            brought = xp.where(seen, w * self.cells["out_norm"][:, None, i0:i0 + w.shape[-1]], a.full((), -1, a.f32))
            self._last("last.contrib64", next(members(a, brought, a.falling(brought), xp.clip(n_seen, 0, 64)[..., None])), t, i0)

    def _last(self, name, member, t, i0):
        cell, row = self.cells[name][:, i0:i0 + member.shape[-1]], self.a.last_row(member)
        self.cells[name][:, i0:i0 + member.shape[-1]] = self.a.xp.where(row >= 0, row + t[0], cell)

    def _mark(self, w, falling, size, t, i0):
        marks = {"survival": lambda c, member: self._last("last." + c, member, t, i0), "calibration": lambda c, member: self._ages(c, member, t, i0),
                 "returns": lambda c, member: self._returns(c, member, t, i0)}
        criteria = CRITERIA if self.probes & {"survival", "calibration"} else RETURNS
        sizes = self.a.join([size[c][..., None] for c in criteria], -1)
        for c, member in zip(criteria, members(self.a, w, falling, sizes)):
            for probe, mark in marks.items():
                if probe in self.probes and (probe != "returns" or c in RETURNS):
                    mark(c, member)

    def _ages(self, c, member, t, i0):
        a, xp, n = self.a, self.a.xp, member.shape[-1]
        t0, rows = int(t[0]), member.shape[1]
        at = self.cells["at." + c]
        for bit in range(31):
            first = max(t0, i0 + (1 << bit))  # the first query that sees an entry of this age
            if first >= t0 + rows:
                break
            queries = a.arange(first, t0 + rows)
            entries = queries - (1 << bit)
            at[:, entries] |= a.cast(member[:, queries - t0, entries - i0], a.i64) << bit
        never = a.full((), NEVER, a.i32)
        born = a.cast(a.arange(i0, i0 + n), a.i32)[None] <= t[:, None]
        step = xp.amin(xp.where(member | ~born[None], never, t[:, None]), 1)
        first = self.cells["first." + c]
        first[:, i0:i0 + n] = xp.minimum(first[:, i0:i0 + n], step)
        first[:, :i0] = xp.clip(first[:, :i0], 0, t0)

    def _returns(self, c, member, t, i0):
        a, xp, at = self.a, self.a.xp, slice(i0, i0 + member.shape[-1])
        before = self.cells["previous." + c][:, at]
        hit = a.largest_so_far(xp.maximum(xp.where(member, t[:, None], a.full((), -1, a.i32)), before[:, None]))
        previous = a.join([before[:, None], hit[:, :-1]], 1)
        none = a.full((), 0, a.i32)
        gap = xp.where(member & (previous >= 0), t[:, None] - previous - 1, none)
        self.cells["previous." + c][:, at] = hit[:, -1]
        self.cells["selected." + c][:, at] += a.cast(xp.sum(member, 1), a.i32)
        self.cells["returns." + c][:, at] += a.cast(xp.sum(gap > 0, 1), a.i32)
        self.cells["gap." + c][:, at] = xp.maximum(self.cells["gap." + c][:, at], xp.amax(gap, 1))

    def _dilution(self, falling, f64, size, n_seen, t):
        """Sums over the sets, each a prefix of the sorted row.  A query that does not see all entries has none."""
        a, xp, n = self.a, self.a.xp, falling.shape[-1]
        whole = n_seen == (a.cast(t, a.i64) + 1)[None]
        upto, onward = xp.cumsum(f64, -1), xp.flip(xp.cumsum(xp.flip(f64, (-1,)), -1), (-1,))
        all_sizes = dict(size)
        least = a.cast(a.at(falling, (size["top64"] - 1)[..., None]), a.f64)
        for s in SLACK:
            near = xp.sum((f64 >= least * math.exp(-s)) & (falling >= 0), -1)
            all_sizes["slack.%d" % s] = xp.where(size["top64"] == n_seen, n_seen, near)
        nan = a.full((), math.nan, a.f64)
        for u in SETS:
            m = all_sizes[u]
            useful = a.at(upto, (m - 1)[..., None])[..., 0]
            rest = xp.where(m < n, a.at(onward, xp.clip(m, 0, n - 1)[..., None])[..., 0], a.full((), 0, a.f64))
            self._put({"useful." + u: xp.where(whole, useful / (useful + rest), nan),
                       "dilution." + u: xp.where(whole, rest / (useful + rest), nan), "size." + u: m * whole})
        for k in range(N_NEAR):
            near = xp.sum((f64 >= f64[..., :1] * math.exp(-0.5 * k)) & (f64 > 0), -1)
            self._put({"near.all.%d" % k: near * whole})

    def _windows(self, w, t0, i0):
        """Sums of the largest weight of each group over blocks of 16 queries; the last 33 are kept."""
        a, xp, rows, n = self.a, self.a.xp, w.shape[1], w.shape[2]
        most = xp.amax(w.reshape(self.kv_heads, self.query_heads // self.kv_heads, rows, n), 1)
        for block in range(t0 // BLOCK, (t0 + rows - 1) // BLOCK + 1):
            r = slice(max(block * BLOCK - t0, 0), min((block + 1) * BLOCK - t0, rows))
            end = i0 + n
            old = self.ring.get(block)
            new = a.full((self.kv_heads, end), 0, a.f32)
            new[:, i0:] = xp.sum(most[:, r], 1)
            if old is not None:
                new[:, :old.shape[1]] += old
            self.ring[block] = new
            self.ring.pop(block - WINDOWS * PER_WINDOW - 1, None)

    def _mean(self, b0, b1, T):
        out = np.full((self.kv_heads, T), np.nan, np.float32)
        known = min(b1 * BLOCK, T)
        if b0 < 0 or known <= 0:
            return out
        total = np.zeros((self.kv_heads, known))
        for block in range(b0, b1):
            part = self.a.numpy(self.ring[block])[:, :known]
            total[:, :part.shape[1]] += part
        out[:, :known] = total / ((b1 - b0) * BLOCK)
        return out

    def leave(self, window, t):
        """Entries that lie behind the layer's own window when query t comes have left; each at its own step."""
        behind = t - window + 1
        if "evict" in self.probes and behind > 0:
            self._grow(behind)
            self.cells["left"][:, :behind] = self.a.cast(self.a.arange(0, behind) + window, self.a.i32)

    def evict(self, head, entries, t, scores=None, margins=None):
        """Entries of a KV head that a method has chosen, and that queries from t on no longer see."""
        if "evict" in self.probes:
            self.reason = 1  # KVF_REASON_BUDGET
            for name, values in (("left", t), ("score", scores), ("margin", margins)):
                if values is not None:
                    self.cells[name][head, entries] = values

    def tokens(self, T):
        """{column: [heads][T]} as things stand after T queries."""
        self._grow(T)
        kept = {name: self.a.numpy(x[:, :T]) for name, x in self.cells.items()}
        born, out = np.arange(T)[None], {}

        def ages(steps, never):
            return np.where(steps == never, -1, steps - born)

        if "survival" in self.probes:
            out |= {"last_selected." + c: ages(kept["last." + c], -1) for c in CRITERIA}
        if "mass" in self.probes:
            out |= {"mass.sum": kept["sum"], "mass.max": kept["max"]}
        if "calibration" in self.probes:
            out |= {"selected_at." + c: kept["at." + c] for c in CRITERIA}
            out |= {"first_unselected." + c: ages(kept["first." + c], NEVER) for c in CRITERIA}
        if "returns" in self.probes:
            for c in RETURNS:
                out |= {"n_selected." + c: kept["selected." + c], "n_returns." + c: kept["returns." + c], "longest_gap." + c: kept["gap." + c]}
        if "window" in self.probes:
            for k in range(WINDOWS):
                b1 = T // BLOCK - (WINDOWS - 1 - k) * PER_WINDOW
                out |= {"window.%d" % k: self._mean(b1 - PER_WINDOW, b1, T), "window16.%d" % k: self._mean(b1 - 1, b1, T)}
        if "contrib" in self.probes:
            out["last_selected.contrib64"] = ages(kept["last.contrib64"], -1)
        if "shadow" in self.probes:
            first = np.where(kept["first_hit"] == NEVER, 2**32 - 1, kept["first_hit"].astype(np.int64)).astype(np.uint32)
            out |= {"shadow.ghost_hits": kept["hits"].astype(np.uint32), "shadow.first_hit": first, "shadow.ghost_mass": kept["ghost"]}
        if "evict" in self.probes:
            out |= evictions(kept["left"], T, self.reason, kept["score"], kept["margin"])
        return out

    def late(self, t0, T):
        """{column: [heads][T - t0]} of what entries have from birth on."""
        names = [n for n in ("key_norm", "out_norm") if n in self.cells]
        return {name: self.a.numpy(self.cells[name][:, t0:T]) for name in names}

    def drain(self):
        """{column: [heads][queries]} of the queries since the last call, and {(head, token): [queries]} of what is watched."""
        rows, received = self.rows, self.received
        self.rows, self.received = {}, {}
        return {name: np.concatenate(v, 1) for name, v in rows.items()}, {at: np.concatenate(v) for at, v in received.items()}


def evictions(left, T, reason, score, margin):
    """The columns of `evict` from steps [heads][T] at which entries left, NEVER for those that stay."""
    gone = left <= T
    return {"evict_step": np.where(gone, left, 2**32 - 1).astype(np.uint32), "evict_reason": np.where(gone, reason, 0),
            "evict_score": score, "evict_margin": margin, "evict_tie": np.zeros(left.shape, np.uint8),
            "evict_rank": np.full(left.shape, 2**32 - 1, np.uint32)}
