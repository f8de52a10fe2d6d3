"""trimkv under capture: the caches of TRIM-KV and DBTrimKV, by the package `trimkv` of their authors.

    from trimkv.cache_utils import TrimKVCache
    from kvfate.adapters.trimkv import follow

    cache = TrimKVCache(memory_size=512, buffer_size=128, device=model.device)
    with kvfate.capture(model, tokenizer, out="trimkv.kvf") as c, follow(c, cache):
        model.generate(**inputs, past_key_values=cache, max_new_tokens=200)

All three caches are followed: TrimKVCache, whose heads hold equally many entries, DynamicBudgetTrimKVCache, which keeps the entries of all heads
in a row, and PagedTrimKVCache, which keeps them in blocks.  The caches say themselves at which positions their entries stand, and what
their log beta is; scores are theirs: log beta times the age, or the sum over the steps that they look ahead."""
import contextlib

import torch

from ..capture_rows import NEVER
from ..errors import Error
from . import fits, ragged


def _rows(cache, layer, sequence):
    """What is stored of a layer and a sequence, as a list of (keys, values, log beta, positions) of its heads."""
    if getattr(cache, "paged_cache", None) is not None:
        pool, size = cache.paged_cache, cache.block_size
        at = torch.arange(pool.block_table.shape[-1] * size, device=pool.pos.device)
        rows = [(table[at // size].long() * size + at % size)[:int(n)] for table, n in zip(pool.block_table[layer, sequence], pool.cache_seqlens[layer, sequence])]
        return [(pool.key[r], pool.value[r], pool.retention[r, 0], pool.pos[r, 0]) for r in rows]
    stored = [x[layer] for x in (cache.key_cache, cache.value_cache, cache.retention_weights, cache.kv_positions)]
    if hasattr(cache, "cu_seqlens_k"):
        ends = cache.cu_seqlens_k[layer].tolist()
        return [(stored[0][a:b], stored[1][a:b], stored[2][a:b, 0], stored[3][a:b, 0]) for a, b in zip(ends, ends[1:])]
    return list(zip(*(x[sequence] for x in stored)))


def held(cache, layer, sequence=0):
    """(keys [H][n][D], values, log beta [H][n], positions [H][n]), where heads that hold fewer entries have the position NEVER."""
    parts = list(zip(*_rows(cache, layer, sequence)))
    return [ragged(p, fill) for p, fill in zip(parts, (0, 0, 0, NEVER))]


def scores(cache, log_beta, positions):
    """By which the cache chooses, of entries that it holds once all tokens so far were seen: in its own arithmetic, rounding and all."""
    from trimkv.cache_utils import compute_log_G
    ahead, now = cache.lookahead_steps, cache.get_seq_length() + 1
    beta = log_beta if hasattr(cache, "cu_seqlens_k") and ahead == 1 else log_beta.float()
    return beta * (now - positions) if ahead == 1 else compute_log_G(beta, now, positions, n=ahead)


def _one(cache, capture):
    """Refuses what is no cache of trimkv, and batches where all heads share a row."""
    if not (hasattr(cache, "compress") and hasattr(cache, "buffer_size") and hasattr(cache, "lookahead_steps")):
        raise Error("%s is no cache of trimkv: give follow the TrimKVCache, DynamicBudgetTrimKVCache or PagedTrimKVCache that the model is given" % type(cache).__name__)
    if len(capture.sequences) > 1 and type(cache).__name__ == "DynamicBudgetTrimKVCache":
        raise Error("%s: a batch of %d, where it keeps one sequence; TrimKVCache and PagedTrimKVCache keep more" % (type(cache).__name__, len(capture.sequences)))


@contextlib.contextmanager
def follow(capture, cache):
    """Records what a cache of trimkv evicts, while the model under capture runs with it."""
    fits("trimkv")
    _one(cache, capture)
    from trimkv import attn
    functions, inner = attn.TRIMKV_ATTENTION_IMPLEMENTATIONS, cache.compress
    together = type(cache).__name__ != "TrimKVCache"  # whose attention goes past the library's interface
    names = [name for name in functions if name.startswith(("db_", "paged_"))] if together else []
    before = {name: functions[name] for name in names}

    def compress():
        _one(cache, capture)
        parts = [(module, layer, b) for module, layer in capture.modules.items() for b in range(len(capture.sequences))]
        was = [held(cache, *at)[2:] for _, *at in parts]
        inner()
        for (module, layer, b), (log_beta, positions) in zip(parts, was):
            now = held(cache, layer, b)[3]
            if now.shape != positions.shape or not torch.equal(now, positions):
                known = scores(cache, log_beta, positions)
                capture.holds(module, now, torch.where(positions == NEVER, float("nan"), known), sequence=b)

    def beside(function):
        def attention(module, query, key, value, *args, scaling=None, **kwargs):
            _one(cache, capture)
            out = function(module, query, key, value, *args, scaling=scaling, **kwargs)
            for b in range(len(capture.sequences)) if module in capture.modules else ():
                keys, values, _, positions = held(cache, capture.modules[module], b)
                capture.attended(module, query[b:b + 1], keys, values, positions, scaling, sequence=b)
            return out
        return attention

    functions.update({name: beside(function) for name, function in before.items()})
    capture.follows, cache.compress = True, compress
    capture.method = {"name": "trimkv." + type(cache).__name__, "budget": cache.memory_size or 0}
    try:
        yield cache
    finally:
        functions.update(before)
        del cache.compress
