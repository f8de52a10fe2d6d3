"""Dilution in runs that may evict: `kept.U`, `rho_u.U` and `rho_d.U` of docs/reference/probes.md, from torch's tensors.

`LayerRows` has the useful mass and the rest.  What a run's own retention makes of both needs to know, of each entry in a set, whether
the query saw it."""
import math

import numpy as np

from .capture_rows import SETS, SLACK


def columns(probes):
    """{column: its type, space, axis and flags} of a run that may evict."""
    kinds = ["kept", "rho_u", "rho_d"] if "shadow" in probes else ["kept"]
    return {"%s.%s" % (kind, u): "f32 query step" for u in SETS for kind in kinds} if "dilution" in probes else {}


def _put(rows, u, kept, lost, seen):
    """kept, lost: of the sets and of the rest, what the query saw and what there is."""
    values = {"kept." + u: kept / (kept + lost)}
    if "shadow" in rows.probes:
        values |= {"rho_u." + u: kept / seen[0], "rho_d." + u: lost / seen[1]}
    for name, share in values.items():
        rows.rows.setdefault(name, []).append(share if isinstance(share, np.ndarray) else rows.a.numpy(share))


def of_all(rows):
    """After rows of queries that saw everything: their shares are the useful mass itself."""
    for u in SETS:
        useful, rest = (np.asarray(rows.rows[kind + u][-1], np.float64) for kind in ("useful.", "dilution."))
        with np.errstate(invalid="ignore"):
            _put(rows, u, useful, rest, (useful, rest))


def _two(x, m):
    """Sums of the first m of [heads][rows][n] and of the others."""
    upto, onward = x.cumsum(-1), x.flip(-1).cumsum(-1).flip(-1)
    others = onward.gather(-1, m.clamp(max=x.shape[-1] - 1)[..., None])[..., 0]
    return upto.gather(-1, (m - 1)[..., None])[..., 0], others.masked_fill(m == x.shape[-1], 0)


def of_seen(rows, w, seen, missed=None):
    """Rows as LayerRows.take has them, of queries that did not see everything.  Sets are of the weights over everything, where those are
    known, else of what was seen."""
    p, there = (w, seen) if missed is None else missed[:2]
    seen = seen.expand(p.shape)
    shown = p.masked_fill(~there.expand(p.shape), -1)
    order = shown.flip(-1).sort(stable=True, dim=-1, descending=True)  # among equal ones the larger position comes first
    size, n_there, wide = rows._sizes(order.values, there)
    least = wide.gather(-1, (size["top64"] - 1)[..., None])
    for s in SLACK:
        near = ((wide >= least * math.exp(-s)) & (order.values >= 0)).sum(-1)
        size["slack.%d" % s] = near.where(size["top64"] != n_there, n_there)
    saw = wide * seen.flip(-1).gather(-1, order.indices)
    for u in SETS:
        _put(rows, u, *_two(saw, size[u]), _two(wide, size[u]))
