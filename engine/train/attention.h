/* attention.h - gated attention (engine/kernels/gated.h) on the processor, forward and backward.
 *
 * Memory beside input and output: O(T) per query head; no T x T array. */
#ifndef KVF_ENGINE_TRAIN_ATTENTION_H
#define KVF_ENGINE_TRAIN_ATTENTION_H

#include "base/par.h"
#include "engine/kernels/gated.h"

/* Bytes of scratch for a pool of n threads; 64-byte aligned. */
size_t attention_scratch(const struct attention *a, int n_threads);

/* out: row t at + t * ld_out, [G * D].  lse: [G, T] log-sum-exp of each row of s'. */
void attention_forward(const struct attention *a, float *out, size_t ld_out, float *lse,
                       struct par *pool, void *scratch);

/* The same bits for any number of threads. */
void attention_backward(const struct attention *a, const struct attention_grads *g,
                        struct par *pool, void *scratch);

#endif
