"""Caches that say at which positions their entries stand, under capture: G-KV and R-KV as G-KV's authors run them, and caches of one's own.

    from kvfate.adapters.positions import follow

    model.config.record_pos_ids = True                  # G-KV: its caches then keep pos_ids_cache
    with kvfate.capture(model, tokenizer, out="gkv.kvf") as c, follow(c):
        model.generate(**inputs, max_new_tokens=200)

    with kvfate.capture(model, tokenizer, out="own.kvf") as c, follow(c, lambda cache, layer: cache.positions[layer]):
        ...

After each step of the model the positions are read from the cache that it was given; those that are gone were evicted by it.  Attention
must go through the library's interface, with keys in the order of the positions.  The way G-KV keeps pos_ids_cache, {layer: [batch][KV
heads][entries]}, was read in its published code, which the package index does not have; it is tested with that code, and with a cache made after it."""
import contextlib

import torch

from ..capture_names import cache_in, cache_of
from ..errors import Error


def pos_ids(cache, layer):
    """G-KV's: [batch][KV heads][entries]."""
    known = getattr(cache, "pos_ids_cache", None)
    if known is None:
        raise Error("%s has no pos_ids_cache: set model.config.record_pos_ids = True before G-KV generates, or give follow a function of the cache and the "
                    "layer that returns positions [KV heads][entries]" % type(cache).__name__)
    return known[layer]


@contextlib.contextmanager
def follow(capture, read=pos_ids, name="gkv", budget=None):
    """Records what a cache evicts that tells its positions.  read(cache, layer) -> [KV heads][entries] after a step, or [batch][KV heads][entries];
    name and budget: of the method, for the trace; the budget is that of G-KV's configuration, if not said."""
    def after(decoder, args, kwargs, out):
        cache = cache_of(out)
        cache = cache_in(kwargs) if cache is None else cache
        for module, layer in capture.modules.items():
            now = torch.as_tensor(read(cache, layer)).long()
            now = now[None] if now.dim() == 2 else now
            total, batch, kv = capture.fed, len(capture.sequences), capture.sequences[0].recording.heads[layer][0]
            if now.shape[:-1] != (batch, kv) or bool((now < 0).any()) or bool((now >= total).any()):
                raise Error("%s of layer %d: positions %s, where %d KV heads hold entries of tokens 0 to %d; read must give [KV heads][entries]%s" % (
                    type(cache).__name__, layer, list(now.shape[1:] if batch == 1 else now.shape), kv, total - 1, " of each of %d sequences" % batch if batch > 1 else ""))
            for b, places in enumerate(now):
                held = capture.holding(module, sequence=b).to(now.device)
                if held.shape != places.shape or not torch.equal(held, places):
                    capture.holds(module, places, sequence=b)

    told = getattr(capture.config, "method_config", None) or {}
    capture.follows, capture.method = True, {"name": name, "budget": int(told.get("budget", 0) if budget is None else budget)}
    hook = capture.decoder.register_forward_hook(after, with_kwargs=True)
    try:
        yield capture
    finally:
        hook.remove()
