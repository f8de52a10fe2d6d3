/* capacity.h - losses on the cache size: retention gates that keep more than M entries, and write
 * gates that admit too many. Values and gradients need O(T) memory per head.
 *
 * p_i is the position of token i in its document, from 0; n_i = p_i + 1.
 *     R_i = sum over j <= i of the same document of exp((i - j) log_beta_j)
 * Local (TRIM-KV): per layer and KV head. Global (DBTrimKV): R is summed over all of them, M is
 * replaced by M * heads and n by n * heads.
 *     term_i = max(0, R_i - M) * w_i, and the loss is
 *     CAPACITY_CODE  w = 1 / max(1, p_i - M) (global: max(1, p_i heads - M heads)),
 *                    sum of terms / number of terms > 0, over heads and tokens (0: none)
 *     CAPACITY_T     w = 1 / n_i, mean over tokens (TRIM-KV v2, equation 5), then over heads
 *     CAPACITY_FLAT  w = 1 / max(1, T - M), mean over tokens (TRIM-KV v1), then over heads
 *                    (global: T * heads - M * heads)
 *     CAPACITY_SUM   w = 1, sum over tokens (DBTrimKV, global), then mean over heads
 * Global counts as one head. A layer with an attention window of `reach` tokens holds only the last
 * `reach` tokens: R_i of its heads adds j > i - reach. M and n stay as they are. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/par.h"
#include "engine/kernels/kernels.h"

/* Normalisations of the loss, as defined above. */
enum capacity_norm { CAPACITY_CODE, CAPACITY_T, CAPACITY_FLAT, CAPACITY_SUM };

/* The inputs of the capacity loss. */
struct capacity {
    const struct kernels *kernels;
    int T, heads;          /* heads = layers * KV heads */
    const float *log_beta; /* [heads, T], <= 0 */
    const int32_t *first;  /* [T] first token of the document of each token */
    double M;              /* entries per head, >= 0 */
    bool global;
    enum capacity_norm norm;
    const int32_t *reach; /* [heads] in host memory: the window of the layer, 0: none; NULL: no
                             head has one. Only on the CPU */
};

/* Returns the loss. Sets d_log_beta [heads, T] to weight times its gradient. sums: [heads, T]
 * scratch, contains R afterwards. Results do not depend on the number of threads. */
double capacity_loss(const struct capacity *c, double weight, float *sums, float *d_log_beta,
                     struct par *pool);

/* Returns w_i of a token; c->first must be in host memory. */
double capacity_weight(const struct capacity *c, int i);
/* Returns the factor of the sum of all terms if `active` terms are positive. */
double capacity_scale(const struct capacity *c, int64_t active);

/* Inputs of the WG-KV loss: the mean over heads and tokens of o + (1 - o)(1 - (1 - g)^2). With
 * `offset`, o = min(1, window / (n - p)) for n tokens in the document; else o = 0. An entry of a
 * layer with an attention window is seen for `reach` tokens at most, which replace n - p if they
 * are fewer. g: [heads, T]. */
struct sparsity {
    int T, heads;
    const float *g;
    const int32_t *first;
    bool offset;
    int window;
    const int32_t *reach; /* as in struct capacity */
};
/* Returns the loss. Sets d_g [heads, T] to weight times its gradient. */
double sparsity_loss(const struct sparsity *s, double weight, float *d_g, struct par *pool);
/* Computes o of each token in layers without an attention window. */
void sparsity_offsets(const struct sparsity *s, double *o); /* [T] */
