"""Plain attention that replaces WG-KV's kernels and records the entries that every query saw.

The entries that a query of the prompt sees follow from the blocks and columns passed to the kernel.
The entries of a later step are identified by their keys, which are known since their own step. No
code of the adapter under test is used."""
import torch


class Seen:
    """what: {layer: [KV heads][T][T], true if a query saw an entry}; mass: {layer: [query
    heads][T], the weight that an entry received}."""

    def __init__(self, layers, T):
        self.layers, self.T, self.calls = layers, T, 0
        self.keys, self.what, self.mass = {}, {}, {}

    def _next(self):
        self.calls += 1
        return (self.calls - 1) % self.layers

    def _attend(self, layer, q, k, v, places, sees, t0, scale):
        """q: [G][rows][D]; k, v: [H][n][D]; places: [H][n]; sees: [H][rows][n]."""
        group = len(q) // len(k)
        k, v, sees, places = (x.repeat_interleave(group, 0) for x in (k, v, sees, places))
        w = (q.float() @ k.float().transpose(1, 2) * scale).masked_fill(~sees, float("-inf")).softmax(-1)
        if layer not in self.mass:
            self.mass[layer] = torch.zeros(len(q), self.T, dtype=torch.float64)
            self.what[layer] = torch.zeros(len(q) // group, self.T, self.T, dtype=torch.bool)
        self.mass[layer].scatter_add_(1, places, w.double().sum(1))
        for head in range(len(q) // group):
            for row in range(q.shape[1]):
                self.what[layer][head, t0 + row, places[head * group][sees[head * group, row]]] = True
        return w @ v.float()

    def prompt(self, q, k, v, block_count, block_offset, column_count, column_index, softmax_scale, **_):
        """Has the signature of the prefill kernel: [1][n][heads][D], and per 64 queries the first
        entries of blocks, and single ones."""
        q, k, v = (x[0].transpose(0, 1) for x in (q, k, v))
        layer, n = self._next(), q.shape[1]
        sees, entry = torch.zeros(len(k), n, n, dtype=torch.bool), torch.arange(n)
        for block in range(-(-n // 64)):
            rows = slice(64 * block, 64 * block + 64)
            for head in range(len(k)):
                for first in block_offset[0, 0, block, :block_count[0, 0, block]].tolist():
                    sees[head, rows, first:first + 64] = True
                sees[head, rows, column_index[0, head, 0, :column_count[0, head, block]].long()] = True
        sees &= entry <= entry[:, None]
        self.keys[layer] = k.clone()
        out = self._attend(layer, q, k, v, entry.expand(len(k), -1), sees, 0, softmax_scale)
        return out.transpose(0, 1)[None].to(q.dtype)

    def token(self, q, k_cache, v_cache, cache_seqlens, block_table, softmax_scale, **_):
        """Has the signature of flash-attn's kernel: [KV heads][1][group][D], each head as a
        separate sequence."""
        layer, (H, _, group, D), out = self._next(), q.shape, []
        t = self.keys[layer].shape[1]
        fresh = []
        for head in range(H):
            at = torch.arange(int(cache_seqlens[head]))
            size = k_cache.shape[1]
            slots = block_table[head].long()[at // size] * size + at % size
            k, v = (x.reshape(-1, D)[slots] for x in (k_cache, v_cache))
            same = (k[:, None] == self.keys[layer][head]).all(-1)
            places = torch.where(same.any(1), same.int().argmax(1), t)
            assert (places == t).sum() == 1 and len(places.unique()) == len(places)
            fresh.append(k[places == t])
            out.append((k, v, places))
        self.keys[layer] = torch.cat([self.keys[layer], torch.stack(fresh)], 1)
        if layer not in self.mass or H == 1:
            raise AssertionError("a token before its prompt")
        return torch.stack([self._one(layer, head, q[head, 0], *x, t, softmax_scale) for head, x in enumerate(out)])[:, None].to(q.dtype)

    def _one(self, layer, head, q, k, v, places, t, scale):
        w = (q.float() @ k.float().T * scale).softmax(-1)
        group = len(q)
        self.mass[layer][head * group:(head + 1) * group].index_add_(1, places, w.double())
        self.what[layer][head, t, places] = True
        return w @ v.float()
