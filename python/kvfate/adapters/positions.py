"""Caches that say at which positions their entries stand, under capture: G-KV and R-KV as G-KV's authors run them, and caches of one's own.

    from kvfate.adapters.positions import follow

    model.config.record_pos_ids = True                  # G-KV: its caches then keep pos_ids_cache
    with kvfate.capture(model, tokenizer, out="gkv.kvf") as c, follow(c):
        model.generate(**inputs, max_new_tokens=200)

    with kvfate.capture(model, tokenizer, out="own.kvf") as c, follow(c, lambda cache, layer: cache.positions[layer]):
        ...

After each step of the model the positions are read from the cache that it was given; those that are gone were evicted by it.  Attention
must go through the library's interface, with keys in the order of the positions.  The way G-KV keeps pos_ids_cache, {layer: [batch][KV
heads][entries]}, was read in its published code, which the package index does not have: it is tested with a cache made after it."""
import contextlib

import torch

from ..errors import Error


def pos_ids(cache, layer):
    """G-KV's: [KV heads][entries]."""
    known = getattr(cache, "pos_ids_cache", None)
    if known is None:
        raise Error("%s has no pos_ids_cache: set model.config.record_pos_ids = True before G-KV generates, or give follow a function of the cache and the "
                    "layer that returns positions [KV heads][entries]" % type(cache).__name__)
    if len(known[layer]) != 1:
        raise Error("%s: a batch of %d; positions are followed in batches of one" % (type(cache).__name__, len(known[layer])))
    return known[layer][0]


@contextlib.contextmanager
def follow(capture, read=pos_ids, name="gkv"):
    """Records what a cache evicts that tells its positions.  read(cache, layer) -> [KV heads][entries] after a step; name: of the method, for the
    trace."""
    def after(decoder, args, kwargs, out):
        cache = getattr(out, "past_key_values", None) or kwargs.get("past_key_values")
        for module, layer in capture.modules.items():
            now = torch.as_tensor(read(cache, layer)).long()
            total, kv = capture.sequences[0].recording.steps, capture.sequences[0].recording.heads[layer][0]
            if now.dim() != 2 or len(now) != kv or bool((now < 0).any()) or bool((now >= total).any()):
                raise Error("%s of layer %d: positions %s, where %d KV heads hold entries of tokens 0 to %d; read must give [KV heads][entries]" % (
                    type(cache).__name__, layer, list(now.shape), kv, total - 1))
            held = capture.sequences[0].held[layer].told(total, kv, now.device)
            if held.shape != now.shape or not torch.equal(held, now):
                capture.holds(module, now)

    capture.follows, capture.method = True, {"name": name, "budget": 0}
    hook = capture.decoder.register_forward_hook(after, with_kwargs=True)
    try:
        yield capture
    finally:
        hook.remove()
