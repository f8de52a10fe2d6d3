#!/usr/bin/env python3
"""usage: test_adapters_trimkv.py KVFATE LIBKVFTRACE SOURCE_ROOT

Tests kvfate.adapters.trimkv with the package trimkv: a small random model of TrimKVQwen3 runs with
its three caches. Evictions are compared with the positions that the caches report after each step,
scores with the sums that they represent, and rows must sum to one. Without triton and flash-attn,
which need a device, plain torch replaces the one kernel of each that the caches call. Skips if
torch, transformers or trimkv are not installed, or incompatible; KVFATE_TORCH_PYTHON names a Python
that has them."""
import importlib.util
import os
import subprocess
import tempfile

from capture_checks import KVFATE, begin, fitting, refused, stand_in

begin("caches of trimkv under capture", "torch", "transformers", "einops")
import torch  # noqa: E402
import torch._inductor.config  # noqa: E402
from transformers import GenerationMixin, Qwen3ForCausalLM  # noqa: E402,F401 - these look for triton, and must not find a stand-in
from transformers.masking_utils import create_causal_mask  # noqa: E402,F401

for needed, within in (("triton", "triton.language"), ("flash_attn", "flash_attn.flash_attn_interface")):
    if importlib.util.find_spec(needed) is None:
        stand_in(needed)
        stand_in(within)
        torch.compile = lambda function=None, **_: function or (lambda f: f)  # it would search for triton
begin("caches of trimkv under capture", "trimkv")
import numpy as np  # noqa: E402
import trimkv.attn  # noqa: E402
import trimkv.attn.db_flash_attn as flash  # noqa: E402
import trimkv.cache_utils as caches  # noqa: E402
from trimkv.models.qwen3 import TrimKVQwen3Config, TrimKVQwen3ForCausalLM  # noqa: E402

from check import check, finish  # noqa: E402
import kvfate  # noqa: E402
from kvfate.adapters.trimkv import follow, held  # noqa: E402

fitting("trimkv")
T, MORE, NEVER = 60, 30, 2**32 - 1


def inserted(cache, state, lengths, _):
    """Inserts new rows [1][H][s][D] after those of each head in [sum of lengths][D]."""
    parts = zip(cache.split(lengths.tolist()), state[0])
    return torch.cat([x for pair in parts for x in pair])


def attention(q, k, v):
    """q: [n][G][D], k and v: [m][D], of one head. The queries are the last n of the m positions."""
    n, m = len(q), len(k)
    s = torch.einsum("ngd,md->gnm", q, k) / q.shape[-1]**0.5
    seen = torch.arange(m)[None] <= torch.arange(m - n, m)[:, None]
    return torch.einsum("gnm,md->ngd", s.masked_fill(~seen, float("-inf")).softmax(-1), v)


def varlen(q, k, v, starts_q, starts_k, **_):
    a, b = starts_q.tolist(), starts_k.tolist()
    return torch.cat([attention(q[a[h]:a[h + 1]], k[b[h]:b[h + 1], 0], v[b[h]:b[h + 1], 0]) for h in range(len(a) - 1)])


def paged(q, k, v, cache_seqlens, block_table, **_):
    rows = [(k[t.long().clamp(max=len(k) - 1)].flatten(0, 1)[:n, 0], v[t.long().clamp(max=len(v) - 1)].flatten(0, 1)[:n, 0]) for t, n in zip(block_table, cache_seqlens.tolist())]
    return torch.stack([attention(one, *row) for one, row in zip(q, rows)])


def model():
    torch.manual_seed(5)
    config = TrimKVQwen3Config(vocab_size=200, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                               max_position_embeddings=512, retention_gate="rg", retention_gate_intermediate_size=32, retention_gate_bias_init=3.0,
                               bos_token_id=None, eos_token_id=None, pad_token_id=0)
    config._attn_implementation = "sdpa"
    out = TrimKVQwen3ForCausalLM(config).eval().float()
    for layer in out.model.layers:
        layer.self_attn.retention_gate.linear1.weight.data.normal_(0, 2)  # different values of log beta
        layer.self_attn.retention_gate.linear2.weight.data.normal_(0, 0.5)
    return out


def run(subject, cache, path):
    """Returns a captured run, and the entries of each (layer, head) in the cache after each step,
    with log beta of every position."""
    ids, states, betas = torch.arange(20, 20 + T)[None], [], {}

    def after(*_):
        now = [held(cache, layer) for layer in range(2)]
        states.append([[{int(p): float(b) for p, b in zip(row, log_beta) if p != 2**31 - 1} for row, log_beta in zip(x[3], x[2])] for x in now])
    gates = [layer.self_attn.retention_gate.register_forward_hook(lambda m, i, o, n=n: betas.setdefault(n, []).append(o[0])) for n, layer in enumerate(subject.model.layers)]
    with torch.no_grad(), kvfate.capture(subject, None, out=path, probes="full,shadow", existing="overwrite") as c, follow(c, cache):
        place, token = torch.arange(T), ids
        for _ in range(MORE + 1):
            out = subject(token, past_key_values=cache, use_cache=True, cache_position=place, position_ids=place[None])
            after()
            place, token = place[-1:] + 1, out.logits[:, -1:].argmax(-1)
    for gate in gates:
        gate.remove()
    return kvfate.open(path), states, {n: torch.cat(b).T for n, b in betas.items()}


def told(what, t, states, betas, ahead):
    """Compares evictions with the states. Scores are log beta^age, or the log of the sum of its
    powers from age + 1 on."""
    for layer in range(2):
        for head in range(2):
            want, score = np.full(t.steps, NEVER, np.int64), np.full(t.steps, np.nan)
            for n, state in enumerate(states):
                seen = T + n
                for p in range(seen):
                    if p not in state[layer][head] and want[p] == NEVER:
                        want[p] = seen
                        b, age = float(betas[layer][head, p]), seen + 1 - p
                        score[p] = b * age if ahead == 1 else np.logaddexp.reduce([b * (age + 1 + k) for k in range(ahead)])
            check(what + ": evictions", t.evict_step[layer, head].tolist() == want.tolist(), layer, head)
            check(what + ": scores", np.allclose(t["evict_score"][layer, head], score, rtol=1e-4, atol=1e-5, equal_nan=True), layer, head)
            check(what + ": margins", np.nanmin(t["evict_margin"][layer, head], initial=0) >= 0)
    for layer in range(2):
        total = t["mass.sum"][layer].astype(float).sum(1)
        check(what + ": rows sum to one", np.allclose(total, t.steps, atol=1e-3), total)
        lost = (1 - t["shadow.kept_mass"][layer].astype(float)).sum(1)
        check(what + ": what is missed", np.allclose(lost, t["shadow.ghost_mass"][layer].astype(float).sum(1), atol=1e-3) and lost.max() > 0.01, lost)
    check(what + ": method", t.meta["method"]["name"].startswith("trimkv."), t.meta["method"])
    r = subprocess.run([KVFATE, "trace", "verify", "--full", t.path], capture_output=True, text=True)
    check(what + ": verify", r.returncode == 0, r.stderr)


def given(subject, cache, ids, path):
    """Captures a run of given tokens [batch][T + MORE]."""
    with torch.no_grad(), kvfate.capture(subject, None, out=path, probes="full,shadow", existing="overwrite") as c, follow(c, cache):
        for a, b in [(0, T), *((t, t + 1) for t in range(T, T + MORE))]:
            place = torch.arange(a, b)
            subject(ids[:, a:b], past_key_values=cache, use_cache=True, cache_position=place, position_ids=place.expand(len(ids), -1))
    return [kvfate.open(p) for p in c.paths]


def batches(what, subject, cache):
    """Each sequence of a batch has the columns that it has in a separate run."""
    ids = torch.randint(1, 200, (2, T + MORE), generator=torch.Generator().manual_seed(2))
    together = given(subject, cache(), ids, "batch.kvf")
    for k, b in enumerate(together):
        a = given(subject, cache(), ids[k:k + 1], "alone.kvf")[0]
        for name in ("evict_step", "evict_score", "mass.sum", "kept.top64", "rho_d.mass.90", "shadow.ghost_mass"):
            for layer in range(2):
                check("%s, a batch: %s" % (what, name), np.allclose(a[name][layer], b[name][layer], rtol=1e-4, atol=1e-4, equal_nan=True), k, layer)
        check(what + ", a batch: something left", int((b.evict_step[1] < T + MORE).sum()) > 50)


with tempfile.TemporaryDirectory() as FOLDER:
    os.chdir(FOLDER)
    if not torch.cuda.is_available():
        caches.update_flatten_view_triton = inserted
        flash.flash_attn_varlen_func, flash.flash_attn_with_kvcache = varlen, paged
        trimkv.attn.TRIMKV_ATTENTION_IMPLEMENTATIONS.update(db_sdpa=flash.dynamic_kv_budget_attention_forward, paged_sdpa=flash.paged_flash_attention_forward)
    subject = model()
    for ahead in (1, 2):
        told("a head's own, %d ahead" % ahead, *run(subject, caches.TrimKVCache(memory_size=24, buffer_size=8, lookahead_steps=ahead, device="cpu"), "own.kvf"), ahead)
    shared = run(subject, caches.DynamicBudgetTrimKVCache(memory_size=24, buffer_size=8, lookahead_steps=2, device="cpu"), "shared.kvf")
    told("a shared budget", *shared, 2)
    sizes = [len(shared[1][-1][layer][head]) for layer in range(2) for head in range(2)]
    check("heads hold what they are given", len(set(sizes)) > 1, sizes)
    blocks = run(subject, caches.PagedTrimKVCache(num_layers=2, num_heads=2, max_seq_len=128, memory_size=24, buffer_size=8, lookahead_steps=2, block_size=16, device="cpu"), "blocks.kvf")
    told("blocks", *blocks, 2)
    for name in ("evict_step", "mass.sum", "last_selected.top64", "shadow.kept_mass"):
        same = all(np.allclose(shared[0][name][layer], blocks[0][name][layer], atol=1e-4) for layer in range(2))
        check("a row and blocks hold the same: " + name, same)

    batches("a head's own", subject, lambda: caches.TrimKVCache(memory_size=24, buffer_size=8, lookahead_steps=2, device="cpu"))
    batches("blocks", subject, lambda: caches.PagedTrimKVCache(num_layers=2, num_heads=2, max_seq_len=128, memory_size=24, buffer_size=8, lookahead_steps=2, block_size=16, device="cpu"))
    refused("a batch of a row", ["DynamicBudgetTrimKVCache", "a batch of 2", "PagedTrimKVCache"],
            lambda: given(subject, caches.DynamicBudgetTrimKVCache(memory_size=24, buffer_size=8, device="cpu"), torch.ones(2, T + MORE, dtype=torch.long), "row.kvf"))

    def other():
        with kvfate.capture(subject, None, out="other.kvf", existing="overwrite") as c, follow(c, object()):
            pass
    refused("no cache of trimkv", ["object", "PagedTrimKVCache"], other)
finish()
