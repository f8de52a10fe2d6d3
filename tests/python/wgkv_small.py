"""A small model with WG-KV's published interface: the names and shapes by which an adapter
recognises it, with minimal implementations. All work is done entry by entry, where the original
moves tensors."""
import torch
from torch import nn
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb


class Gates(nn.Module):
    """Computes one number for each entry, from its key."""

    def __init__(self, heads, size):
        super().__init__()
        self.side = nn.Parameter(torch.randn(heads, size) * 2)

    def forward(self, pre_key, key, value):
        return torch.sigmoid(torch.einsum("bhnd,hd->bhn", key, self.side))


def prepare(cache, config, key):
    """Makes an empty pool: the windows of all heads first, then pages."""
    L, H, D = config.num_hidden_layers, config.num_key_value_heads, key.shape[-1]
    W, size, blocks = config.local_window_size, config.block_size, config.max_total_tokens // config.block_size
    cache.block_pool_k, cache.block_pool_v = (torch.zeros(blocks * size, D) for _ in "kv")
    cache.local_region_starts = (torch.arange(L * H) * W).int().reshape(L, H)
    cache.block_table = torch.full((L, H, config.max_tokens_per_head // size), blocks - 1, dtype=torch.int32)
    cache.block_table[:, :, :W // size] = torch.arange(L * H * W // size).reshape(L, H, -1)
    cache.local_is_global, cache.global_lengths = torch.zeros(L, H, W, dtype=torch.bool), torch.zeros(L, H, dtype=torch.int32)
    cache.local_ptr = cache.local_length = 0
    cache.free = list(range(L * H * W // size, blocks - 1))


def page_slot(cache, config, layer, head, n):
    page = cache.block_table[layer, head, config.local_window_size // config.block_size + n // config.block_size]
    return int(page) * config.block_size + n % config.block_size


def append(cache, config, layer, head, key, value):
    """Appends an entry to the pages of a head."""
    n = int(cache.global_lengths[layer, head])
    if n % config.block_size == 0:
        cache.block_table[layer, head, (config.local_window_size + n) // config.block_size] = cache.free.pop(0)
    slot = page_slot(cache, config, layer, head, n)
    cache.block_pool_k[slot], cache.block_pool_v[slot] = key, value
    cache.global_lengths[layer, head] += 1


def prefill_wrapper(self, cache, query, pre_key, key, value, batch_size, n, device, admitted, blocks):
    config, layer = self.config, self.layer_idx
    W, H = config.local_window_size, key.shape[1]
    if layer == 0:
        prepare(cache, config, key)
    first = max(0, n - W)
    cache.local_length = n - first
    for head, start in enumerate(cache.local_region_starts[layer].tolist()):
        cache.block_pool_k[start:start + n - first], cache.block_pool_v[start:start + n - first] = key[0, head, first:], value[0, head, first:]
        cache.local_is_global[layer, head, :n - first] = admitted[0, head, first:]
        for i in torch.nonzero(admitted[0, head, :first])[:, 0].tolist():
            append(cache, config, layer, head, key[0, head, i], value[0, head, i])
    rows = -(-n // 64)
    starts = [max(0, 64 * block - W + 1) for block in range(rows)]
    offsets = torch.stack([start + 64 * torch.arange(W // 64 + 1) for start in starts])[None, None]
    counts = torch.tensor([-(-(min(n, 64 * block + 64) - start) // 64) for block, start in enumerate(starts)])[None, None]
    columns = torch.zeros(1, H, 1, n, dtype=torch.int32)
    for head in range(H):
        at = torch.nonzero(admitted[0, head])[:, 0]
        columns[0, head, 0, :len(at)] = at
    column_counts = torch.stack([admitted[0, :, :start].sum(-1) for start in starts], -1)[None]
    return self.prefill_kernel(*(x.transpose(1, 2) for x in (query, key, value)), counts, offsets, column_counts, columns, softmax_scale=self.scaling)


def decode_wrapper(self, cache, query, pre_key, key, value, device, admitted, blocks):
    config, layer, full = self.config, self.layer_idx, cache.local_length == self.config.local_window_size
    place = cache.local_ptr if full else cache.local_length
    slots = cache.local_region_starts[layer].long() + place
    cache.block_pool_k[slots], cache.block_pool_v[slots] = key[0, :, 0], value[0, :, 0]
    cache.local_is_global[layer, :, place] = admitted[0, :, 0]
    count = cache.local_length + (not full)
    if layer == config.num_hidden_layers - 1:
        cache.local_length, cache.local_ptr = count, (cache.local_ptr + full) % config.local_window_size
    pools = (x.view(-1, config.block_size, x.shape[-1]) for x in (cache.block_pool_k, cache.block_pool_v))
    return self.decode_kernel_handle(query.transpose(1, 2), *pools, (count + cache.global_lengths[layer])[None], cache.block_table[layer][None], self.scaling)()


def snapkv_evict(self, cache, device, blocks):
    """Keeps the entries with long keys."""
    for layer in range(self.config.num_hidden_layers):
        for head in range(self.config.num_key_value_heads):
            n = int(cache.global_lengths[layer, head])
            drop = int(n * self.config.snapkv_evict_ratio)
            if drop:
                slots = torch.tensor([page_slot(cache, self.config, layer, head, i) for i in range(n)])
                gone = set(torch.topk(cache.block_pool_k[slots].norm(dim=-1), k=drop, largest=False).indices.tolist())
                stays = slots[[i for i in range(n) if i not in gone]]
                k, v = cache.block_pool_k[stays].clone(), cache.block_pool_v[stays].clone()
                cache.block_pool_k[slots[:n - drop]], cache.block_pool_v[slots[:n - drop]] = k, v
                used, before = (-(-x // self.config.block_size) for x in (n - drop, n))
                cache.free += cache.block_table[layer, head, blocks + used:blocks + before].tolist()
                cache.global_lengths[layer, head] = n - drop


def self_attn_forward_patch(self, cache, query, key, value):
    config, n = self.config, query.shape[2]
    blocks = config.local_window_size // config.block_size
    admitted = self.g_predictors(key, key, value) > config.g_threshold
    if n > 1:
        out = self.prefill_wrapper(self, cache, query, key, key, value, 1, n, query.device, admitted, blocks)
    else:
        if self.layer_idx == 0 and cache.local_length == config.local_window_size:
            for layer, head in torch.nonzero(cache.local_is_global[:, :, cache.local_ptr]).tolist():
                slot = cache.local_region_starts[layer, head] + cache.local_ptr
                append(cache, config, layer, head, cache.block_pool_k[slot].clone(), cache.block_pool_v[slot].clone())
        out = self.decode_wrapper(self, cache, query, key, key, value, query.device, admitted, blocks)
    if config.snapkv_enabled and self.layer_idx == config.num_hidden_layers - 1 and int(cache.global_lengths.sum()) > config.snapkv_max_cached_tokens:
        snapkv_evict(self, cache, query.device, blocks)
    return out


class Attention(nn.Module):
    """Replaces LlamaAttention and uses its projections."""

    def __init__(self, old, config, seen):
        super().__init__()
        self.config, self.layer_idx, self.head_dim, self.scaling = config, old.layer_idx, old.head_dim, old.scaling
        self.num_key_value_groups = old.num_key_value_groups
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = old.q_proj, old.k_proj, old.v_proj, old.o_proj
        self.g_predictors = Gates(config.num_key_value_heads, old.head_dim)
        self.self_attn_forward_patch, self.prefill_wrapper, self.decode_wrapper = self_attn_forward_patch, prefill_wrapper, decode_wrapper
        self.prefill_kernel, self.decode_kernel_handle = seen.prompt, self._kernel(seen)

    def _kernel(self, seen):
        def handle(query, k_cache, v_cache, lengths, table, scaling):
            heads = query[0, 0].reshape(lengths.shape[1], 1, -1, query.shape[-1])
            return lambda: seen.token(heads, k_cache, v_cache, cache_seqlens=lengths[0], block_table=table[0], softmax_scale=scaling).reshape(query.shape)
        return handle

    def forward(self, hidden_states, position_embeddings=None, past_key_values=None, past_key_value=None, **_):
        shape = (*hidden_states.shape[:2], -1, self.head_dim)
        q, k, v = (project(hidden_states).view(shape).transpose(1, 2) for project in (self.q_proj, self.k_proj, self.v_proj))
        q, k = apply_rotary_pos_emb(q, k, *position_embeddings)
        cache = past_key_values if past_key_values is not None else past_key_value
        out = self.self_attn_forward_patch(self, cache, q, k, v)
        return self.o_proj(out.reshape(*hidden_states.shape[:2], -1)), None
