/* gated.h - what causal attention reads and writes whose weights are modulated by gates, for whole
 * sequences: engine/train/attention.c computes it on the processor, engine/cuda on a device.
 *
 * Sizes: T tokens, G query heads, H KV heads, D head dimension; query head g reads KV
 * head g / (G / H).
 *
 * The weight of key j for query i >= j of the same document is softmax over j of s'_ij,
 * with s_ij = scale q_i . k_j, or cap tanh(scale q_i . k_j / cap), and the number g_j of key j (KV
 * head of the query head): GATING_NONE    s' = s GATING_DECAY   s' = s + (i - j) g_j           g =
 * log beta: TRIM-KV v2, DBTrimKV GATING_LOGIT   s' = s exp((i - j) g_j)        g = log beta:
 * TRIM-KV v1 GATING_WRITE   s' = s + [i - j >= window] g_j g = log of the write gate: WG-KV
 * (docs/reference/gates.md).
 *
 * A query head may have a sink, one more logit b in its softmax that has no value: the weights of
 * the keys then add up to less than 1.  Its derivative is -sum_i exp(b - lse_i) delta_i, delta_i
 * the sum over keys of a weight times its derivative.
 *
 * Entries may be evicted: with gone_j of the KV head, query i sees key j while i < gone_j, and
 * the softmax is over the keys it sees. */
#ifndef KVF_ENGINE_GATED_H
#define KVF_ENGINE_GATED_H

#include <stddef.h>
#include <stdint.h>

#include "engine/kernels/kernels.h"

enum gating { GATING_NONE, GATING_DECAY, GATING_LOGIT, GATING_WRITE };

struct attention {
    const struct kernels *kernels;
    int T, n_heads, n_kv_heads, D;
    float scale, cap; /* cap 0: none */
    enum gating gating;
    int window;             /* GATING_WRITE: at least 1 */
    const float *q, *k, *v; /* row t at + t * ld: [G * D], [H * D], [H * D]; RoPE applied */
    size_t ld;
    const int32_t *first; /* [T] the first token of the document of token t, or a later one from
                             which on it sees keys; never falling */
    const float *gate;    /* [T, H]; NULL with GATING_NONE */
    const float *sinks;   /* [G]; NULL: none */
    const int32_t *gone;  /* [T, H] the first query without the entry, after the entry's own
                             token; NULL: every entry stays */
};

struct attention_grads {
    const float *out, *d_out; /* of the forward pass, and the loss's derivative by it */
    size_t ld_out;
    const float *lse;       /* [G, T] log-sum-exp of each row of s' and of the sink */
    float *d_q, *d_k, *d_v; /* as q, k, v, with ld: set, not added to */
    float *d_gate;          /* [T, H]: set; NULL with GATING_NONE */
    float *d_sinks;         /* [G]: added to; NULL: not wanted */
};

#endif
