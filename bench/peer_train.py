#!/usr/bin/env python3
"""Measure gate training in PyTorch on the CPU, as a peer of `kvfate train`.

  usage: python bench/peer_train.py MODEL.gguf [--threads 2] [--tokens 512] [--steps 5] [--warmup 2] [--hidden 128]
                                    [--attention fold|bias] [--rows 128] [--ids FILE] [--check [TOKENS]]

The setting is the default of TRIM-KV: rg gates, decay, the mean of fwkl and ntp, local capacity loss with the code's
norm; float32, one pack of one document per step, AdamW with clipping.  It prints the loss and the time of each step
(wall, and CPU of all threads), and finally the median tokens/s.

The code follows the practice of a careful user: frozen weights without gradients, the teacher without a graph, fused
attention, the vocabulary in blocks of rows with immediate gradients.  Since (i - j) lb_j = i lb_j - j lb_j, two more
channels of queries and keys represent the decay (--attention fold). Attention then needs no T x T array and runs in
the fused kernel.  With an additive bias that needs a gradient (--attention bias), PyTorch uses the unfused one.
--check compares loss and gradients with tests/data/golden/tools/train_torch.py in float64 on TOKENS (96) tokens and
stops.  It needs torch, numpy and gguf (pip install torch gguf); no test runs it.
"""
import argparse
import math
import os
import statistics
import sys
import time

import gguf
import numpy as np
import torch
import torch.nn.functional as F


class Model:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)

        def get(key, default=None):
            return reader.fields[key].contents() if key in reader.fields else default
        self.n, self.eps = get("llama.block_count"), get("llama.attention.layer_norm_rms_epsilon")
        self.G, self.H = get("llama.attention.head_count"), get("llama.attention.head_count_kv")
        self.base = get("llama.rope.freq_base", 10000.0)
        w = {t.name.removesuffix(".weight"): torch.from_numpy(gguf.dequantize(t.data, t.tensor_type).copy()).float() for t in reader.tensors}
        self.embedding, self.norm = w["token_embd"], w["output_norm"]
        self.out = w.get("output", self.embedding)
        self.layer = []
        for i in range(self.n):
            of = {k.split(".")[2]: v for k, v in w.items() if k.startswith(f"blk.{i}.")}
            self.layer.append((of["attn_norm"], torch.cat([of["attn_q"], of["attn_k"], of["attn_v"]]), of["attn_output"], of["ffn_norm"],
                               torch.cat([of["ffn_gate"], of["ffn_up"]]), of["ffn_down"]))
        self.D = len(self.layer[0][1]) // (self.G + 2 * self.H)
        self.d = self.embedding.shape[1]

    def prepare(self, T):
        """Compute values that depend only on the length."""
        t = torch.arange(T, dtype=torch.float64)
        angle = t[:, None] * self.base ** (-torch.arange(0, self.D, 2, dtype=torch.float64) / self.D)
        self.cos, self.sin = angle.cos().float(), angle.sin().float()
        self.t, self.distance = t.float(), (t[:, None] - t[None, :]).clamp(min=0).float()
        self.causal = torch.full((T, T), -math.inf).triu(1)
        self.seen = torch.ones(T, T).tril()

    def rotate(self, x):
        """Apply RoPE to [heads, T, D], neighbouring channels."""
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * self.cos - b * self.sin, a * self.sin + b * self.cos], -1).flatten(-2)


def attend(m, q, k, v, log_beta, kind):
    """Return attention [T, G D] of q [G, T, D], k, v [H, T, D], log_beta [H, T] or None."""
    scale, T = 1 / math.sqrt(m.D), q.shape[1]
    if log_beta is None:
        o = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, enable_gqa=True)
    elif kind == "bias":
        bias = (m.distance * log_beta[:, None, :] + m.causal).repeat_interleave(m.G // m.H, 0)
        o = F.scaled_dot_product_attention(q[None], k[None], v[None], bias[None], enable_gqa=True)
    else:
        more = torch.stack([m.t / scale, torch.full((T,), -1 / scale)], -1).expand(m.G, T, 2)
        q, k = torch.cat([q, more], -1), torch.cat([k, log_beta[..., None], (m.t * log_beta)[..., None]], -1)
        o = F.scaled_dot_product_attention(q[None], k[None], F.pad(v, (0, 2))[None], is_causal=True, enable_gqa=True, scale=scale)
        o = o[..., :m.D]
    return o[0].transpose(0, 1).flatten(1)


def block(m, x, weights, gate, kind):
    """Return (x after the layer, log beta [H, T] or None)."""
    norm, qkv, out, ffn_norm, gate_up, down = weights
    n = F.rms_norm(x, (m.d,), norm, m.eps)
    y = F.linear(n, qkv).unflatten(-1, (-1, m.D)).transpose(0, 1)
    log_beta = None
    if gate is not None:
        w1, b1, w2, bias = gate
        log_beta = F.logsigmoid(F.linear(F.silu(F.linear(n, w1, b1)), w2, bias)).T
    q, k = m.rotate(y[:m.G]), m.rotate(y[m.G:m.G + m.H])
    x = x + F.linear(attend(m, q, k, y[m.G + m.H:], log_beta, kind), out)
    a, b = F.linear(F.rms_norm(x, (m.d,), ffn_norm, m.eps), gate_up).chunk(2, -1)
    return x + F.linear(F.silu(a) * b, down), log_beta


def hidden(m, ids, gates, kind):
    x, log_beta = m.embedding[ids], []
    for i in range(m.n):
        x, lb = block(m, x, m.layer[i], gates[i] if gates else None, kind)
        log_beta.append(lb)
    return F.rms_norm(x, (m.d,), m.norm, m.eps), log_beta


def vocabulary(m, student, teacher, ids, rows):
    """Return (loss, its derivative by student) of the mean of KL(teacher || student) and the next token's loss.  The
    derivative by the logits is (2 p_s - p_t - [next]) / 2N, so no graph is needed.
    """
    N, loss, d_student = len(ids) - 1, 0.0, torch.zeros_like(student)
    with torch.no_grad():
        for a in range(0, N, rows):
            b = min(a + rows, N)
            ls = F.linear(student[a:b], m.out).log_softmax(-1)
            lt = F.linear(teacher[a:b], m.out).log_softmax(-1)
            following = ids[a + 1:b + 1, None]
            pt = lt.exp()
            loss += float(pt.mul(lt.sub_(ls)).sum() - ls.gather(1, following).sum())
            d = ls.exp_().mul_(2).sub_(pt).scatter_add_(1, following, torch.full((b - a, 1), -1.0))
            d_student[a:b] = d @ m.out / (2 * N)
    return loss / (2 * N), d_student


def capacity(m, log_beta, M):
    """Compute the local capacity loss with the code's norm: the mean of the positive terms."""
    total, active = 0.0, 0
    weight = 1 / (m.t - M).clamp(min=1)
    for lb in log_beta:  # one layer at a time stays in the cache
        R = (torch.exp(m.distance * lb[:, None, :]) * m.seen).sum(-1)
        term = (R - M).clamp(min=0) * weight
        total, active = total + term.sum(), active + int((term > 0).sum())
    return total / max(1, active)


def step(m, ids, gates, o):
    """Compute gradients of the gates; return the loss."""
    with torch.no_grad():
        teacher, _ = hidden(m, ids, None, o.attention)
    student, log_beta = hidden(m, ids, gates, o.attention)
    loss, d_student = vocabulary(m, student.detach(), teacher, ids, o.rows)
    cost = o.weight * capacity(m, log_beta, o.memory)
    torch.autograd.backward([student, cost], [d_student, None])
    return loss + float(cost.detach())


def make_gates(m, o):
    torch.manual_seed(1)
    gates = []
    for _ in range(m.n):
        w1, w2 = torch.empty(o.hidden, m.d).normal_(0, 0.02), torch.empty(m.H, o.hidden).normal_(0, 0.02)
        gates.append([x.requires_grad_() for x in (w1, torch.zeros(o.hidden), w2, torch.full((m.H,), o.bias))])
    return gates


def read_ids(o, m, T):
    if o.ids:
        with open(o.ids, encoding="ascii") as f:
            return torch.tensor([int(x) for x in f.read().split()][:T])
    return torch.from_numpy(np.random.RandomState(7).randint(1000, 40000, T)).clamp(max=len(m.out) - 1)


def check(m, o, gates):
    """Compare loss and gradients with float64."""
    tools = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "data", "golden", "tools")
    sys.path.insert(0, tools)
    import train_torch as tt
    ids = read_ids(o, m, o.check)
    m.prepare(len(ids))
    loss = step(m, ids, gates, o)
    names = [f"model.layers.{i}.self_attn.retention_gate.{n}" for i in range(m.n) for n in ("linear1.weight", "linear1.bias", "linear2.weight", "bias")]
    flat = [x for g in gates for x in g]
    tensors = {n: x.detach().double().requires_grad_() for n, x in zip(names, flat)}
    setting = tt.Setting("rg", M=o.memory, weight=o.weight)
    terms, _, facts = tt.losses(tt.Llama(o.model), setting, tensors, tt.pack(ids.tolist(), (len(ids),)))
    grads = torch.autograd.grad(terms["total"], list(tensors.values()))
    worst = max(float((x.grad.double() - g).norm() / g.norm()) for x, g in zip(flat, grads))
    total = float(terms["total"].detach())
    print(f"loss {loss:.9f}, float64 {total:.9f}, relative difference {abs(loss / total - 1):.1e}; "
          f"gradients, worst tensor: {worst:.1e}; {facts}")


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    for name, default in (("threads", 2), ("tokens", 512), ("steps", 5), ("warmup", 2), ("hidden", 128), ("rows", 128)):
        p.add_argument("--" + name, type=int, default=default)
    p.add_argument("--memory", type=float, default=64, help="M of the capacity loss")
    p.add_argument("--weight", type=float, default=1.0)
    p.add_argument("--bias", type=float, default=6.0)
    p.add_argument("--attention", choices=["fold", "bias"], default="fold")
    p.add_argument("--ids", help="token ids as text, instead of pseudo-random ones")
    p.add_argument("--check", type=int, nargs="?", const=96, metavar="TOKENS")
    return p.parse_args()


def main():
    o = options()
    torch.set_num_threads(o.threads)
    m = Model(o.model)
    gates = make_gates(m, o)
    if o.check:
        return check(m, o, gates)
    ids = read_ids(o, m, o.tokens)
    m.prepare(len(ids))
    parameters = [x for g in gates for x in g]
    adam = torch.optim.AdamW(parameters, lr=2e-4, weight_decay=0.01)
    seconds = []
    for i in range(o.warmup + o.steps):
        start, cpu = time.perf_counter(), time.process_time()
        adam.zero_grad()
        loss = step(m, ids, gates, o)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        adam.step()
        seconds.append(time.perf_counter() - start)
        cpu = time.process_time() - cpu
        print(f"step {i + 1}: loss {loss:.6f}, {seconds[-1]:.3f} s, {cpu:.3f} s of the processor{' (warm-up)' if i < o.warmup else ''}", flush=True)
    median = statistics.median(seconds[o.warmup:])
    print(f"torch {torch.__version__}, {o.threads} threads, {o.attention}, T = {len(ids)}: {len(ids) / median:.1f} tokens/s")
    return None


if __name__ == "__main__":
    main()
