/* attention.h - gated attention (engine/kernels/gated.h) on the CPU, forward and backward.
 *
 * Scratch memory is O(T) per query head; there is no T x T array. */
#pragma once

#include "base/par.h"
#include "engine/kernels/gated.h"

/* Returns the bytes of scratch for n threads. Scratch must be 64-byte aligned. */
size_t attention_scratch(const struct attention *a, int n_threads);

/* Computes out and lse. Row t of out is at out + t * ld_out, [G * D]. lse: [G, T] log-sum-exp of
 * each row of s'. */
void attention_forward(const struct attention *a, float *out, size_t ld_out, float *lse,
                       struct par *pool, void *scratch);

/* Computes the gradients. Results do not depend on the number of threads. */
void attention_backward(const struct attention *a, const struct attention_grads *g,
                        struct par *pool, void *scratch);
