#!/usr/bin/env python3
"""Compute bytes and operations of a decode step, of a prompt token and of a training step, and the minimum time of a
device.

usage: roofline.py [--bandwidth TB/s] [--peak TFLOP/s] [--launch MS] [--reach SHARE]

It uses only the shapes; no program runs.  A step reads every weight once (bf16) and the cached keys and values (16
bits) of each head; its bound is memory bandwidth.  Each token of a prompt of n tokens is multiplied with every
weight and with half the prompt's keys and values; its bound is the peak of dense bf16 matrix multiplications.  A
training step multiplies each token with every weight once for the teacher, twice for the student (its forward pass
is recomputed before the backward pass), and once in the backward pass.  If weights learn, their derivatives need one
more.  Matrix multiplications and attention use the same peak.  The default rates are those of an H200. `reach` is
the target fraction of the bandwidth, and `launch` the additional time of launches per step.
"""
import argparse

import shapes
from shapes import layer_weights, parameters, weights

SHAPES = {name: s for name, s in shapes.SHAPES.items() if name != "tiny"}
HELD = (512, 1024, 32768, 131072)  # cached entries of a head
PROMPTS = (2048, 32768, 131072)
PAGE = 16  # entries of a page of quest
TRAINED = (2048, 16384)  # tokens of a pack
BYTES = 2  # of a weight, and of a channel of the cache


def step_bytes(shape, held):
    return BYTES * weights(shape) + held * shapes.entry_bytes(shape)


def step_operations(shape, held):
    return 2 * weights(shape) + held * shape.layers * shape.q * 4 * shape.dim


def prompt_operations(shape, n):
    """Return (matrix, attention) operations per token, averaged over a prompt of n; only the last token needs logits."""
    return 2 * layer_weights(shape), step_operations(shape, n / 2) - 2 * weights(shape)


def steps(args):
    print("| model | weights, M | entries per head | MB per step | Mop per step | steps/s at most | to be reached | share |")
    print("|---|---|---|---|---|---|---|---|")
    for name, shape in SHAPES.items():
        for held in HELD:
            size = step_bytes(shape, held)
            bound = size / (args.bandwidth * 1e12)
            plan = bound / args.reach + args.launch / 1e3
            print(f"| {name} | {weights(shape) / 1e6:,.0f} | {held:,} | {size / 1e6:,.0f} | {step_operations(shape, held) / 1e6:,.0f} "
                  f"| {1 / bound:,.0f} | {1 / plan:,.0f} | {bound / plan:.0%} |")


def evidence(_):
    """Print the additional cost of methods per step and per cut, in all heads: bytes that kernels read and write,
    operations of scores.
    """
    print("| model | entries per head | cache, MB | sums (h2o), MB | rows (snapkv), MB | moments (expected), MB | bounds (quest), MB "
          "| cut: redundancy (rkv), Gop | cut: expected attention, Gop in f64 |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, s in SHAPES.items():
        layers, q, kv, dim = s.layers, s.q, s.kv, s.dim
        for held in (1024, 32768):
            cache = BYTES * held * layers * kv * 2 * dim
            sums = layers * q * held * (8 + 8 + 4)  # a double read and written, a weight read
            rows = layers * q * held * (4 + 4)
            moments = layers * q * dim * (dim + 1) / 2 * 16
            bounds = layers * kv * held / PAGE * dim * 8
            print(f"| {name} | {held:,} | {cache / 1e6:,.0f} | {sums / 1e6:,.1f} | {rows / 1e6:,.1f} | {moments / 1e6:,.1f} | {bounds / 1e6:,.1f} "
                  f"| {layers * kv * 2 * held * held * dim / 1e9:,.0f} | {layers * q * 2 * held * dim * (dim + 2) / 1e9:,.0f} |")


def prompts(args):
    print("| model | tokens | products, Mop per token | attention, Mop per token | tokens/s at most | seconds at least |")
    print("|---|---|---|---|---|---|")
    for name, shape in SHAPES.items():
        for n in PROMPTS:
            products, attention = prompt_operations(shape, n)
            rate = args.peak * 1e12 / (products + attention)
            print(f"| {name} | {n:,} | {products / 1e6:,.0f} | {attention / 1e6:,.0f} | {rate:,.0f} | {n / rate:.3f} |")


def train_operations(shape, n, learn):
    """Return (matrix, attention) operations per token of a document of n.  The forward pass has two T x T / 2 x D
    multiplications, the backward pass seven.
    """
    logits = 2 * shape.vocab * shape.d * (3 + learn)  # student, teacher, backward pass, matrix
    return 2 * layer_weights(shape) * (4 + learn) + logits, shape.layers * shape.q * shape.dim * n * (2 * 3 + 7)


def train_bytes(shape, n, learn):
    """Return the device bytes of a training pass with one tape: weights, copies of parameters, activations
    (engine/train/pass.c, block.c, engine/device/train_loss.c).
    """
    layers, d, q, kv, dim, ffn, vocab = shape.layers, shape.d, shape.q, shape.kv, shape.dim, shape.ffn, shape.vocab
    qkv = (q + 2 * kv) * dim
    teacher = BYTES * weights(shape)
    learnt = 4 * 4 * parameters(shape) if learn else 0  # w, gradient, two moments
    rows = (layers + 1) * d + 4 * d + 6 * layers * kv  # inputs of layers, streams, values
    tape = 2 * d + qkv + kv * dim + q * dim + q + 2 * ffn + 2 * kv
    scratch = max(2 * ffn, qkv) + 2 * max(d, qkv) + q * dim
    scratch += (qkv + q * dim) / 2 + 2 * kv + 3 * q + (2 * q * dim if q > kv else 0)  # attention by tensor cores
    operands = BYTES * max(n * 2 * ffn, 256 * vocab) + BYTES * (vocab * d if learn else n * d)  # rounded to bf16
    return teacher, learnt, 4 * n * (rows + tape + scratch) + 4 * 256 * (2 * vocab + 3 * d) + operands


def trainings(args):
    print("| model | tokens | what learns | weights, GB | parameters and moments, GB | activations, GB | products, Gop per token "
          "| attention, Gop per token | optimizer, GB | tokens/s at most | seconds at least |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name, shape in SHAPES.items():
        for n in TRAINED:
            for learn in (False, True):
                held = [x / 1e9 for x in train_bytes(shape, n, learn)]
                products, attention = train_operations(shape, n, learn)
                step = 28 * parameters(shape) if learn else 0  # AdamW reads four arrays and writes three
                seconds = n * (products + attention) / (args.peak * 1e12) + step / (args.bandwidth * 1e12)
                print(f"| {name} | {n:,} | {'all weights' if learn else 'gates'} | {held[0]:.2f} | {held[1]:.2f} | {held[2]:.2f} "
                      f"| {products / 1e9:,.2f} | {attention / 1e9:,.2f} | {step / 1e9:.2f} | {n / seconds:,.0f} | {seconds:.3f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bandwidth", type=float, default=4.8)
    parser.add_argument("--peak", type=float, default=989)
    parser.add_argument("--launch", type=float, default=0.30)
    parser.add_argument("--reach", type=float, default=0.85)
    args = parser.parse_args()
    steps(args)
    print()
    evidence(args)
    print()
    prompts(args)
    print()
    trainings(args)


if __name__ == "__main__":
    main()
