/* gated.h - inputs and outputs of gated causal attention over full sequences.
 * engine/train/attention.c computes it on the CPU, engine/cuda on a device.
 *
 * Sizes: T tokens, G query heads, H KV heads, D head dimension. Query head
 * g uses KV head g / (G / H).
 *
 * The weight of key j for query i >= j of the same document is the softmax over j of s'_ij, with
 * s_ij = scale q_i . k_j, or cap tanh(scale q_i . k_j / cap). g_j is the gate value of key j in the
 * KV head of the query head:
 *
 *   - GATING_NONE: s' = s
 *   - GATING_DECAY: s' = s + (i - j) g_j, g = log beta (TRIM-KV v2, DBTrimKV)
 *   - GATING_LOGIT: s' = s exp((i - j) g_j), g = log beta (TRIM-KV v1)
 *   - GATING_WRITE: s' = s + [i - j >= window] g_j, g = log of the write gate (WG-KV)
 *
 * docs/reference/gates.md defines the gates.
 *
 * A query head may have a sink: one more logit b in its softmax, without a value. The weights of
 * the keys then sum to less than 1. The derivative of b is -sum_i exp(b - lse_i) delta_i, where
 * delta_i is the sum over keys of a weight times its derivative.
 *
 * Entries can be evicted. With evicted_at_j of the KV head, query i sees key j only while i <
 * evicted_at_j. The softmax runs over the visible keys. */
#ifndef KVF_ENGINE_GATED_H
#define KVF_ENGINE_GATED_H

#include <stddef.h>
#include <stdint.h>

#include "engine/kernels/kernels.h"

/* How the gate value changes a logit; the equations are above. */
enum gating { GATING_NONE, GATING_DECAY, GATING_LOGIT, GATING_WRITE };

/* Inputs of the forward and backward pass. */
struct attention {
    const struct kernels *kernels;
    int T, n_heads, n_kv_heads, D;
    float scale, cap; /* cap 0: no soft cap */
    enum gating gating;
    int window;             /* GATING_WRITE: at least 1 */
    const float *q, *k, *v; /* row t at + t * ld: [G * D], [H * D], [H * D]; RoPE applied */
    size_t ld;
    const int32_t *first; /* [T] first visible key of query t: the first token of its document or a
                           * later one. Never decreases. */
    const float *gate;    /* [T, H]; NULL with GATING_NONE */
    const float *sinks;   /* [G]; NULL: none */
    const int32_t *evicted_at; /* [T, H] first query that no longer sees the entry, later than the
                                * entry's own token. NULL: no entry is evicted. */
};

/* Results of the forward pass, and gradients that the backward pass reads and writes. */
struct attention_grads {
    const float *out, *d_out; /* output of the forward pass, and its gradient */
    size_t ld_out;
    const float *lse;       /* [G, T] log-sum-exp of each row of s' and of the sink */
    float *d_q, *d_k, *d_v; /* layout of q, k, v with ld; overwritten, not accumulated */
    float *d_gate;          /* [T, H] overwritten; NULL with GATING_NONE */
    float *d_sinks;         /* [G]: added to; NULL: not wanted */
};

#endif
