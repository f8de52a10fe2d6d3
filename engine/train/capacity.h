/* capacity.h - losses on how much a sequence keeps: retention gates that hold more than
 * M entries, write gates that write much.  Values and derivatives in O(T) memory per head.
 *
 * p_i is the position of token i in its document, from 0; n_i = p_i + 1.
 *     R_i = sum over j <= i of the same document of exp((i - j) log_beta_j)
 * Local (TRIM-KV), per layer and KV head; global (DBTrimKV): R summed over all of them,
 * with M replaced by M * heads and n by n * heads.
 *     term_i = max(0, R_i - M) * w_i, and the loss is
 *     CAPACITY_CODE  w = 1 / max(1, p_i - M) (global: max(1, p_i heads - M heads)),
 *                    sum of terms / number of terms > 0, over heads and tokens (0: none)
 *     CAPACITY_T     w = 1 / n_i, mean over tokens (TRIM-KV v2, equation 5), then over heads
 *     CAPACITY_FLAT  w = 1 / max(1, T - M), mean over tokens (TRIM-KV v1), then over heads
 *                    (global: T * heads - M * heads)
 *     CAPACITY_SUM   w = 1, sum over tokens (DBTrimKV, global), then mean over heads
 * with global: one "head". */
#ifndef KVF_ENGINE_TRAIN_CAPACITY_H
#define KVF_ENGINE_TRAIN_CAPACITY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/par.h"
#include "engine/kernels/kernels.h"

enum capacity_norm { CAPACITY_CODE, CAPACITY_T, CAPACITY_FLAT, CAPACITY_SUM };

struct capacity {
    const struct kernels *kernels;
    int T, heads;          /* heads = layers * KV heads */
    const float *log_beta; /* [heads, T], <= 0 */
    const int32_t *first;  /* [T] the first token of the document of token t */
    double M;              /* entries per head, >= 0 */
    bool global;
    enum capacity_norm norm;
};

/* Returns the loss; d_log_beta [heads, T] becomes weight times its derivative (set).
 * sums: [heads, T] scratch, holds R afterwards.  The same bits for any number of threads. */
double capacity_loss(const struct capacity *c, double weight, float *sums, float *d_log_beta,
                     struct par *pool);

/* w_i of a token, and what the sum of all terms is multiplied by when `active` are over 0; first:
 * of the host. */
double capacity_weight(const struct capacity *c, int i);
double capacity_scale(const struct capacity *c, int64_t active);

/* WG-KV: mean over heads and tokens of o + (1 - o)(1 - (1 - g)^2), where
 * o = min(1, window / (n - p)) with n tokens in the document (offset), or 0.
 * g, d_g: [heads, T]; d_g is set to weight times the derivative. */
struct sparsity {
    int T, heads;
    const float *g;
    const int32_t *first;
    bool offset;
    int window;
};
double sparsity_loss(const struct sparsity *s, double weight, float *d_g, struct par *pool);
void sparsity_offsets(const struct sparsity *s, double *o); /* [T] */

#endif
