"""What the caches of a captured run hold once entries leave them, layer by layer, as adapters tell it."""
import numpy as np
import torch

from . import capture_dilution
from .capture_rows import NEVER, weigh
from .errors import Error

BUDGET, REFUSED = 1, 3  # reasons, as the format names them


def finite(t0, lse):
    """lse: [heads][queries] from t0 on, which is a number where all products of query and keys are."""
    odd = ~torch.isfinite(lse).all(0)
    if bool(odd.any()):
        raise Error("the attention of token %d is not a number; look for weights that are not finite, or load the model with dtype=torch.float32, "
                    "as float16 has no numbers over 65504" % (t0 + int(odd.int().argmax())))


class Held:
    """The cache of one layer.  places: [H][n], the position of each entry that it holds, NEVER where a head holds none there; None until
    the first eviction, as long as all entries are there in their order.  keep: keys and values of evicted entries are kept aside, too,
    and every query is asked what it missed.  dilutes: what the cache makes of dilution is recorded."""

    def __init__(self, arrays, rows, keep, dilutes=False):
        self._arrays, self.rows, self.keep, self.places, self._stored = arrays, rows, keep, None, []
        self.dilutes = dilutes
        self._others = []  # (head, entries) that leave for another reason than the rest

    def store(self, k, v):
        """Keys and values [H][n][D] of new entries."""
        if self.keep:
            self._stored.append((k, v))

    def told(self, total, heads, device):
        """Positions of what is held after `total` tokens."""
        if self.places is None:
            return torch.arange(total, device=device).expand(heads, total)
        return self.places

    def now(self, places, t, scores=None, reason=BUDGET, limit=None):
        """Queries from t on see the entries at `places` [H][n] alone.  scores: [H] of one number for each entry that was held, the larger
        the better, NaN where it has none; limit: what it would have taken to stay, if that is not the least score of those that do."""
        before = self.told(t, len(places), places.device)
        for head in range(len(places)):
            real = before[head] != NEVER
            stays = torch.isin(before[head], places[head]) & real
            gone = ~stays & real
            if bool(gone.any()):
                own = None if scores is None else scores[head].float()
                self.rows.evict(head, before[head][gone], t, None if own is None else own[gone], self._margin(own, stays, gone, limit))
                if reason != BUDGET:
                    self._others.append((head, before[head][gone].cpu().numpy(), reason))
        self.places = places

    def _margin(self, own, stays, gone, limit):
        if own is None:
            return None
        if limit is None:
            known = own[stays & ~own.isnan()]
            limit = known.min() if len(known) else None
        return None if limit is None else limit - own[gone]

    def settle(self, T):
        """Before the columns of T tokens are made: why entries left."""
        if self._others:
            self.rows.reason = np.full((self.rows.kv_heads, T), BUDGET)
            for head, entries, reason in self._others:
                self.rows.reason[head, entries] = reason

    def take(self, q, k, v, places, t0, how):
        """Queries [G][rows][D] t0 ... over entries [H][n][D] at `places`: in blocks, each spread over the positions of all entries."""
        scale, softcap, _ = how
        H, G, T = len(k), len(q), t0 + q.shape[1]
        step = max(1, self._arrays.most // (G * (T + 64)))
        whole = [torch.cat(x, 1).float() for x in zip(*self._stored)] if self.keep else None
        if whole:
            self._stored = [tuple(x.to(k.dtype) for x in whole)]
        for at in range(0, q.shape[1], step):
            rows = q[:, at:at + step].float().reshape(H, G // H, -1, q.shape[2])
            w, seen, lse, entropy = weigh(self._arrays, rows, k.float(), scale, softcap, t0 + at, 0, None, places)
            finite(t0 + at, lse)
            held = places[:, None, None].expand(H, G // H, rows.shape[2], -1).reshape(w.shape)
            held = torch.where(held == NEVER, T, held)  # the last column is thrown away
            spread = torch.zeros(G, rows.shape[2], T + 1, device=q.device).scatter_(-1, held, w)[..., :T]
            sees = torch.zeros(spread.shape[:2] + (T + 1,), dtype=torch.bool, device=q.device).scatter_(-1, held, seen)[..., :T]
            missed = self._missed(rows, *whole, spread, sees, t0 + at, scale, softcap) if whole else None
            self.rows.take(spread, sees, lse, entropy, t0 + at, 0, missed)
            if self.dilutes:
                capture_dilution.of_seen(self.rows, spread, sees, missed)

    def _missed(self, q, k, v, w, sees, t0, scale, softcap):
        """The weights over everything up to the query, and the error of its output |o_all - o| / |o_all|."""
        p, upto, _, _ = weigh(self._arrays, q, k, scale, softcap, t0, 0, None)
        o_all, o = ((x.double().reshape(len(v), -1, x.shape[-1]) @ v.double()).reshape(*x.shape[:2], -1) for x in (p, w))
        error = (o_all - o).norm(dim=-1) / o_all.norm(dim=-1)
        return p, upto.expand(p.shape), error
