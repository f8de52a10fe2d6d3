#!/usr/bin/env python3
"""Measure a training step of all weights under recorded evictions: `kvfate tune --plan` and PyTorch alternate; tokens/s
and memory.

  usage: LD_LIBRARY_PATH=build/libtrace python bench/peer_tune.py KVFATE MODEL.gguf FOLDER [--threads 2] [--tokens 512]
                                                                 [--turns 3] [--method h2o] [--budget 128]

Both use the same tokens, the same evictions, the loss KL(teacher, full cache || student under the evictions) and a
step of AdamW with clipping on all weights, in float32; a turn is two steps.  It prints the losses of both, medians
of tokens/s, their ratio, and each peak memory; kvfate's is compared with its formula (`bytes` of --json). FOLDER
keeps the recorded run.

The PyTorch code follows the practice of a careful user: no graph for the teacher, evictions as a mask of fused attention, the
vocabulary in blocks of rows with immediate derivatives, the fused AdamW. It needs torch, numpy and gguf (pip install
torch gguf); no test runs it.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), *more) for more in ((), ("..", "python"))]
import kvfate  # noqa: E402
from peer_train import Model, read_ids  # noqa: E402

ROWS = 128  # of the vocabulary at once


def attend(m, q, k, v, seen):
    """Return attention [T, G D] of q [G, T, D], k, v [H, T, D], seen [G, T, T] or None (causal)."""
    o = F.scaled_dot_product_attention(q[None], k[None], v[None], None if seen is None else seen[None], is_causal=seen is None, enable_gqa=True)
    return o[0].transpose(0, 1).flatten(1)


def hidden(m, ids, w, seen):
    x = w[0][ids]
    for i in range(m.n):
        norm, qkv, out, ffn_norm, gate_up, down = w[2 + 6 * i:8 + 6 * i]
        y = F.linear(F.rms_norm(x, (m.d,), norm, m.eps), qkv).unflatten(-1, (-1, m.D)).transpose(0, 1)
        q, k, v = m.rotate(y[:m.G]), m.rotate(y[m.G:m.G + m.H]), y[m.G + m.H:]
        x = x + F.linear(attend(m, q, k, v, seen[i] if seen is not None else None), out)
        a, b = F.linear(F.rms_norm(x, (m.d,), ffn_norm, m.eps), gate_up).chunk(2, -1)
        x = x + F.linear(F.silu(a) * b, down)
    return F.rms_norm(x, (m.d,), w[1], m.eps)


def divergence(student, teacher, w, w_teacher):
    """Return KL(teacher || student) and its derivatives by the student's hidden states and by the output matrix: rows
    (p_s - p_t) / N.
    """
    N, loss = len(student) - 1, 0.0
    d_student, d_w = torch.zeros_like(student), torch.zeros_like(w)
    with torch.no_grad():
        for a in range(0, N, ROWS):
            b = min(a + ROWS, N)
            ls, lt = F.linear(student[a:b], w).log_softmax(-1), F.linear(teacher[a:b], w_teacher).log_softmax(-1)
            pt = lt.exp()
            loss += float(pt.mul(lt.sub_(ls)).sum())
            d = ls.exp_().sub_(pt).div_(N)
            d_student[a:b] = d @ w
            d_w.addmm_(d.T, student[a:b])
    return loss / N, d_student, d_w


class Peer:
    def __init__(self, o, ids, gone):
        self.m, self.ids, T = Model(o.model), ids, len(ids)
        self.m.prepare(T)
        i = torch.arange(T)
        left = (i[None, None, :, None] < gone[:, :, None, :]) & (i[:, None] >= i)
        self.seen = left.repeat_interleave(self.m.G // self.m.H, 1)
        flat = [self.m.embedding, self.m.norm, *(x for layer in self.m.layer for x in layer)]
        self.teacher, self.w = flat, [x.clone().requires_grad_() for x in flat]
        self.adam = torch.optim.AdamW(self.w, lr=1e-5, weight_decay=0.0, fused=True)

    def step(self):
        self.adam.zero_grad(set_to_none=True)
        with torch.no_grad():
            teacher = hidden(self.m, self.ids, self.teacher, None)
        student = hidden(self.m, self.ids, self.w, self.seen)
        loss, d_student, d_w = divergence(student.detach(), teacher, self.w[0].detach(), self.teacher[0])
        student.backward(d_student)
        self.w[0].grad.add_(d_w)
        torch.nn.utils.clip_grad_norm_(self.w, 1.0)
        self.adam.step()
        return loss

    def turn(self):
        start, losses = time.perf_counter(), [self.step(), self.step()]
        return 2 * len(self.ids) / (time.perf_counter() - start), losses


def high_water(pid):
    """Return the peak memory of a process in bytes, or 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            return next((1024 * int(line.split()[1]) for line in f if line.startswith("VmHWM")), 0)
    except OSError:
        return 0


def ours(o, plan):
    """Return tokens/s of two steps, their losses, bytes by the formula, peak memory."""
    out = os.path.join(o.folder, "tuned.safetensors" if o.rank else "tuned.gguf")
    argv = [o.kvfate, "tune", "-m", o.model, "--plan", plan, "--steps", "1000", "--until", "2", "--lr", "1e-5", "--warmup", "0", "--length", str(o.tokens + 1),
            "--save-every", "1000", "--fresh", "--json", "--type", "f32", "-t", str(o.threads), *(("--rank", str(o.rank)) if o.rank else ()), "-o", out]
    p, peak = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL), 0
    while p.poll() is None:
        peak = max(peak, high_water(p.pid))
        time.sleep(0.05)
    said = json.loads(p.stdout.read())
    with open(out + ".log.jsonl", encoding="ascii") as f:
        losses = [json.loads(line)["loss"] for line in f]
    return said["tokens"] / said["seconds"], losses, said["bytes"], peak


def record(o, ids):
    """Return the plan of a run over the tokens, and gone [L, H, T]: the first query without an entry."""
    trace, plan, text = (os.path.join(o.folder, x) for x in ("run.kvf", "plan.kvf", "ids.txt"))
    with open(text, "w", encoding="ascii") as f:
        f.write(" ".join(map(str, ids.tolist())))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": True}
    subprocess.run([o.kvfate, "run", "-m", o.model, "--ids", text, "-n", "1", "--method", f"{o.method}:budget={o.budget},chunk=16", "--probes", "evict",
                    "--overwrite", "-t", str(o.threads), "-o", trace], **quiet)
    subprocess.run([o.kvfate, "trace", "plan", trace, "--overwrite", "-o", plan], **quiet)
    with kvfate.open(trace) as t:
        gone = torch.tensor([[t.evict_step[layer, h].tolist()[:len(ids)] for h in range(kv)] for layer, (kv, _) in enumerate(t.heads)])
    return plan, gone


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("kvfate", "model", "folder"):
        p.add_argument(name)
    for name, default in (("threads", 2), ("tokens", 512), ("turns", 3), ("budget", 128), ("rank", 0)):
        p.add_argument("--" + name, type=int, default=default)
    p.add_argument("--method", default="h2o")
    p.add_argument("--ids", help="token ids as text, instead of pseudo-random ones")
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    ids = read_ids(o, Model(o.model), o.tokens)
    plan, gone = record(o, ids)
    peer, rates, said = Peer(o, ids, gone), {"kvfate": [], "torch": []}, None
    for i in range(o.turns + 1):  # the first warms up
        theirs, said = peer.turn(), ours(o, plan)
        if i == 0:
            print(f"losses of the first two steps: kvfate {said[1]}, torch {theirs[1]}", flush=True)
            continue
        rates["torch"].append(theirs[0])
        rates["kvfate"].append(said[0])
        print(f"turn {i}: kvfate {said[0]:.1f} tokens/s, torch {theirs[0]:.1f}", flush=True)
    a, b = (statistics.median(rates[x]) for x in ("kvfate", "torch"))
    peak = high_water(os.getpid())
    print(f"torch {torch.__version__}, {o.threads} threads, T = {len(ids)}: kvfate {a:.1f} tokens/s, torch {b:.1f}, ratio of medians {a / b:.2f}")
    beside = os.path.getsize(o.model) + 2 * peer.m.embedding.nbytes  # the largest matrix in memory and in its stored form
    print(f"memory: kvfate {said[2] / 2**20:.0f} MiB by its formula and {beside / 2**20:.0f} for the mapped file and while the new one is written, "
          f"peak {said[3] / 2**20:.0f} MiB; torch peak {peak / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
