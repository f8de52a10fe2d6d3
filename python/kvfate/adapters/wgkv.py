"""WG-KV under capture, as its authors publish it: model files that stand in place of transformers' own.

    from kvfate.adapters.wgkv import follow

    model.gating_mode = 3                               # inference, as in the authors' scripts
    with kvfate.capture(model, tokenizer, out="wgkv.kvf") as c, follow(c):
        model.generate(**inputs, past_key_values=DynamicCache(), max_new_tokens=200)

The cache says how many entries it holds and not which: the adapter keeps the position of every slot of its pool while entries are
written, move from the window to the pages of their head, and are packed.  What each query saw is read off what the attention of a step
is given, so that pages which Quest leaves out are unseen by that query and are not evicted.  Queries of a prompt see in blocks of 64: the
window of a block begins where that of its first query does."""
import contextlib

import torch
from torch.overrides import TorchFunctionMode

from ..capture_held import BUDGET, REFUSED
from ..capture_rows import NEVER
from ..errors import Error
from . import ragged

ROWS = 64  # queries of a prompt whose window begins at the same entry
PARTS = ("prefill_wrapper", "decode_wrapper", "decode_kernel_handle", "self_attn_forward_patch")


class _Choices(TorchFunctionMode):
    """What torch.topk is asked and answers: (scores, places) of each call."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        if function is torch.topk:
            self.calls.append((args[0], out.indices))
        return out


class _Entries:
    """Which entries the cache of one run holds."""

    def __init__(self, capture, config):
        self.capture, self.config = capture, config
        self.window, self.size, self.tau = config.local_window_size, config.block_size, config.g_threshold
        self.position = self.gate = self.lengths = None  # of each slot of the pool; of entries in the window; of the pages
        self.told = {}                                   # what the gates of a layer said last, [KV heads][entries]

    def gates(self, layer, out):
        """What the gates of a layer say [1][H][n]; the threshold is compared in their type."""
        self.told[layer], self.tau = out[0].detach().float(), torch.tensor(self.config.g_threshold, dtype=out.dtype).item()

    # ---- slots

    def _ring(self, cache, layer, count):
        """[H][count]"""
        return cache.local_region_starts[layer].long()[:, None] + torch.arange(count, device=self.position.device)

    def _pages(self, cache, layer):
        """Slots of the entries behind the window, a tensor for each head."""
        at = [torch.arange(n, device=self.position.device) for n in cache.global_lengths[layer].tolist()]
        return [self._slots(table[self.window // self.size:], a) for table, a in zip(cache.block_table[layer], at)]

    def _slots(self, table, at):
        return table[at // self.size].long() * self.size + at % self.size

    def _held(self, cache, layer, count):
        """Positions [H][n], NEVER where a head holds none, when `count` places of the window are taken."""
        pages = ragged([self.position[slots].long() for slots in self._pages(cache, layer)], NEVER)
        return torch.cat([self.position[self._ring(cache, layer, count)].long(), pages], 1)

    def _given(self, layer, like):
        """What the gates said of the newest entries, NaN where something else decides."""
        known = self.told.pop(layer, None)
        return known if known is not None and known.shape == like.shape else torch.full(like.shape, float("nan"), device=like.device)

    # ---- steps

    def prompt(self, module, cache, query, key, value, admitted):
        """The prompt, after the model's own attention: its queries by blocks, and what the cache was given."""
        layer, n = module.layer_idx, key.shape[2]
        if layer == 0:
            self.position = torch.full((len(cache.block_pool_k),), NEVER, dtype=torch.int32, device=key.device)
            self.lengths = torch.zeros_like(cache.global_lengths)
            self.gate = torch.full(cache.local_is_global.shape, float("nan"), device=key.device)
        gate, count, all_of_them = self._given(layer, admitted[0]), min(n, self.window), torch.arange(n, device=key.device)
        for first in [0, *range(self.window, n, ROWS)]:
            end = min(n, first + ROWS if first else self.window)
            seen = admitted[0] | (all_of_them >= first - self.window + 1)
            seen = ragged([all_of_them[:end][row[:end]] for row in seen], NEVER)
            if first:
                self._refuse(module, torch.where(seen < first, seen, NEVER), gate, first)
            at = seen.clamp(max=n - 1)[..., None].expand(-1, -1, key.shape[3])
            self.capture.attended(module, query[:, :, first:end], key[0].gather(1, at), value[0].gather(1, at), seen, module.scaling, first=first)
        pages, self.lengths[layer] = self._pages(cache, layer), cache.global_lengths[layer]
        for slots, row in zip(pages, admitted[0, :, :max(0, n - self.window)]):
            if len(slots) != int(row.sum()):
                raise Error("%s of layer %d: %d entries behind the window, where %d were admitted; this is no cache that the adapter knows" % (
                    type(module).__name__, layer, len(slots), int(row.sum())))
            self.position[slots] = torch.nonzero(row)[:, 0].int()
        self.position[self._ring(cache, layer, count)] = torch.arange(n - count, n, device=key.device).int()
        self.gate[layer, :, :count] = gate[:, n - count:]
        self._refuse(module, self._held(cache, layer, count), gate, n)

    def _refuse(self, module, now, gate, first):
        """From query `first` on only entries `now` are held; gate: of entries 0 ..., [H][n]."""
        before = self.capture.holding(module, first)
        scores = gate.gather(1, before.clamp(max=gate.shape[1] - 1))
        self.capture.holds(module, now, scores, REFUSED, first, self.tau)

    def moved(self, cache):
        """Before the first layer of a step: admitted entries that leave the window were copied to the end of their head's pages."""
        grown = cache.global_lengths - self.lengths
        if bool((grown < 0).any() or (grown > 1).any()):
            raise Error("the cache moved %d entries of a head in one step; this is no cache that the adapter knows" % int(grown.abs().max()))
        layers, heads = torch.nonzero(grown, as_tuple=True)
        at = cache.global_lengths[layers, heads].long() - 1
        page = cache.block_table[layers, heads, self.window // self.size + at // self.size].long()
        self.position[page * self.size + at % self.size] = self.position[cache.local_region_starts[layers, heads].long() + cache.local_ptr]
        self.lengths = cache.global_lengths.clone()

    def token(self, module, cache, admitted):
        """Before a layer's attention to one token: it takes a place in the window, and who was there is gone, or was moved."""
        layer, first, full = module.layer_idx, self.capture.fed - 1, cache.local_length == self.window
        if layer == 0:
            self.moved(cache)
        place = cache.local_ptr if full else cache.local_length
        slot = self._ring(cache, layer, self.window)[:, place]
        if full:
            leaves, self.position[slot] = self.position[slot][:, None], NEVER
            before = self.capture.holding(module, first)
            scores = torch.where(before == leaves, self.gate[layer, :, place, None], float("nan"))
            self.capture.holds(module, self._held(cache, layer, self.window), scores, REFUSED, first, self.tau)
        self.position[slot] = first
        told = self._given(layer, admitted[0]) if admitted is not None else None
        self.gate[layer, :, place] = told[:, 0] if told is not None else float("nan")
        return place

    def read(self, module, query, k_cache, v_cache, lengths, table, scaling):
        """What the attention of one token is given: the entries at `lengths` [1][H] places of blocks `table` [1][H][blocks]."""
        at = torch.arange(int(lengths.max()), device=query.device)
        slots = torch.stack([self._slots(row, at) for row in table[0]])
        places = torch.where(at < lengths[0, :, None], self.position[slots].long(), NEVER)
        keys, values = (x.reshape(-1, x.shape[-1])[slots] for x in (k_cache, v_cache))
        self.capture.attended(module, query.transpose(1, 2), keys, values, places, scaling)

    def decided(self, module, cache, place):
        """After a layer's attention to one token.  Gates that wait until the window was written to its end have then spoken of all of it."""
        layer, count = module.layer_idx, max(cache.local_length, place + 1)
        told = self._given(layer, self.gate[layer])
        if place == self.window - 1 and self.config.g_defer:
            self.gate[layer] = told
        if self.config.use_quest:
            self.capture.holds(module, self._held(cache, layer, count))

    def packed(self, inner, cache, call):
        """SnapKV's choice among the pages: torch.topk names who goes, head by head, and the others are packed in their order."""
        was = {layer: self._pages(cache, layer) for layer in self.capture.modules.values()}
        with _Choices() as chosen:
            inner(*call)
        calls = iter(chosen.calls)
        for module, layer in self.capture.modules.items():
            before = self.capture.holding(module)
            scores = torch.full((len(before), self.capture.fed), float("nan"), device=before.device)
            for head, (old, new) in enumerate(zip(was[layer], self._pages(cache, layer))):
                if len(new) < len(old):
                    stays, there = self._packed(next(calls, None), len(old), len(new)), self.position[old]
                    scores[head, there.long()] = stays[1].float()
                    self.position[new] = there[stays[0]]
            scores = scores.gather(1, before.clamp(max=scores.shape[1] - 1))
            self.capture.holds(module, self._held(cache, layer, cache.local_length), scores, BUDGET)
        self.lengths = cache.global_lengths.clone()

    def _packed(self, call, old, new):
        """(whether each of `old` entries stays, their scores)"""
        if call is None or len(call[0]) != old or len(call[1]) != old - new:
            raise Error("the cache packed %d entries of a head to %d, and not by one choice of torch.topk; this is no cache that the adapter knows" % (old, new))
        stays = torch.ones(old, dtype=torch.bool, device=call[0].device)
        stays[call[1]] = False
        return stays, call[0]


def _wrapped(entries, module):
    """{name: function} in place of what an attention module has."""
    prefill, decode, kernel = (getattr(module, name) for name in PARTS[:3])

    def prompt(self, cache, query, pre_key, key, value, batch, length, device, admitted, *rest):
        if batch != 1 or len(entries.capture.sequences) != 1:
            raise Error("%s: a batch of %d; WG-KV is followed in batches of one" % (type(self).__name__, batch))
        out = prefill(self, cache, query, pre_key, key, value, batch, length, device, admitted, *rest)
        with torch.no_grad():
            entries.prompt(self, cache, query, key, value, admitted)
        return out

    def token(self, cache, query, pre_key, key, value, device, admitted, *rest):
        with torch.no_grad():
            place = entries.token(self, cache, admitted)
        out = decode(self, cache, query, pre_key, key, value, device, admitted, *rest)
        with torch.no_grad():
            entries.decided(self, cache, place)
        return out

    def attend(query, k_cache, v_cache, lengths, table, scaling, *rest, **kwargs):
        with torch.no_grad():
            entries.read(module, query, k_cache, v_cache, lengths, table, scaling)
        return kernel(query, k_cache, v_cache, lengths, table, scaling, *rest, **kwargs)

    return dict(zip(PARTS, (prompt, token, attend)))


def _row(config):
    """The method, by the program's own names."""
    name = "wgkv-quest" if config.use_quest else "wgkv-snapkv" if config.snapkv_enabled else "wgkv"
    budget = (config.quest_token_budget if config.use_quest else config.snapkv_max_cached_tokens if config.snapkv_enabled else 0) or 0
    return {"name": name, "budget": budget, "local": config.local_window_size, "tau": config.g_threshold, "compare": "gt"}


def _fits(capture):
    """Refuses models that are not WG-KV's, or do not infer by it."""
    for module in capture.modules:
        missing = [name for name in PARTS if not callable(getattr(module, name, None))]
        if missing:
            raise Error("%s has no %s: it is no attention module of WG-KV; put its authors' model files in place of transformers' own" % (type(module).__name__, missing[0]))
    if getattr(capture.model, "gating_mode", None) != 3:
        raise Error("%s: gating_mode is %s, by which WG-KV's cache is not used; set model.gating_mode = 3" % (type(capture.model).__name__, getattr(capture.model, "gating_mode", None)))


@contextlib.contextmanager
def follow(capture):
    """Records what WG-KV's cache lets go, while the model under capture generates."""
    _fits(capture)
    entries, before, hooks = _Entries(capture, capture.config), [], []
    shared = next(iter(capture.modules)).self_attn_forward_patch.__globals__
    gated = capture.config.random_sparsity is None and not capture.config.g_ungate_count
    for module, layer in capture.modules.items():
        before += [(module, name, vars(module)[name]) for name in PARTS[:3]]
        if gated and getattr(module, "g_predictors", None) is not None:
            hooks.append(module.g_predictors.register_forward_hook(lambda m, given, out, at=layer: entries.gates(at, out)))
    packs = shared.get("snapkv_evict")

    def pack(module, cache, *rest):
        with torch.no_grad():
            entries.packed(packs, cache, (module, cache, *rest))

    for module in capture.modules:
        vars(module).update(_wrapped(entries, module))
    if packs is not None:
        shared["snapkv_evict"] = pack
    capture.follows, capture.method = True, _row(capture.config)
    try:
        yield capture
    finally:
        for module, name, value in before:
            vars(module)[name] = value
        if packs is not None:
            shared["snapkv_evict"] = packs
        for hook in hooks:
            hook.remove()
