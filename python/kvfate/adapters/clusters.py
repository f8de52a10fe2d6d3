"""Caches that a compressor of each attention module cuts, under capture: R-KV's own code, with its SnapKV, H2O and StreamingLLM.

    from rkv.monkeypatch import replace_llama           # R-KV's, before the model is made
    from kvfate.adapters.clusters import follow

    with kvfate.capture(model, tokenizer, out="rkv.kvf") as c, follow(c):
        model.generate(**inputs, max_new_tokens=200)

An attention module has a `kv_cluster` there, whose update_kv(keys, queries, values) returns the keys and values that are to stay. The keys are
found again among those that it was given; whether the cache took them is read off its length when the module has ended. Attention must go
through the library's interface. The compressors do not tell their scores, which are therefore missing. How R-KV calls them was read in its
published code, which the package index does not have; it is tested with that code, and with a compressor made after it."""
import contextlib

from ..capture_names import cache_in
from ..errors import Error
from . import places_of


def _entries(cache, layer):
    """Keys [batch][KV heads][n][D] of a layer, in new releases of transformers and in old ones."""
    return cache.layers[layer].keys if hasattr(cache, "layers") else cache.key_cache[layer]


@contextlib.contextmanager
def follow(capture, attribute="kv_cluster"):
    """Records what compressors evict that stand at an attribute of the attention modules."""
    modules = {m: getattr(m, attribute) for m in capture.modules if callable(getattr(getattr(m, attribute, None), "update_kv", None))}
    if not modules:
        raise Error("%s: no attention module has a %s with update_kv; let R-KV replace the classes before the model is made, or name the attribute that "
                    "holds the compressor" % (type(capture.model).__name__, attribute))
    cut, hooks, before = {}, [], []

    def watched(module, inner):
        def update_kv(key_states, *args, **kwargs):
            result = inner(key_states, *args, **kwargs)
            cut[module] = key_states, result[0]
            return result
        return update_kv

    def after(module, args, kwargs, out):
        given, kept = cut.pop(module, (None, None))
        cache = cache_in(kwargs)
        if given is None or kept.shape[2] == given.shape[2] or _entries(cache, capture.modules[module]).shape[2] != kept.shape[2]:
            return
        for b in range(len(given)):
            places = places_of(given[b], kept[b])
            if places is None:
                raise Error("%s of %s changes keys, so that kept entries cannot be told; record such a run with kvfate.Writer" % (
                    type(modules[module]).__name__, type(module).__name__))
            capture.kept(module, places, sequence=b)

    one = next(iter(modules.values()))
    capture.follows, capture.method = True, {"name": type(one).__name__.lower(), "budget": int(getattr(one, "budget", 0))}
    try:
        for module, cluster in modules.items():
            before.append((cluster, vars(cluster).get("update_kv")))
            cluster.update_kv = watched(module, cluster.update_kv)
            hooks.append(module.register_forward_hook(after, with_kwargs=True))
        yield capture
    finally:
        for hook in hooks:
            hook.remove()
        for cluster, own in before:
            if own is None:
                del cluster.update_kv
            else:
                cluster.update_kv = own
