/* compute.h - what every part of training computes with: a table of operations (ops.h), and for
 * the processor its kernels and threads.  Results do not depend on the number of threads. */
#ifndef KVF_ENGINE_TRAIN_COMPUTE_H
#define KVF_ENGINE_TRAIN_COMPUTE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/par.h"
#include "engine/kernels/kernels.h"

struct ops;

/* What a command computes derivatives with; zeros: the processor. */
struct learner {
    const struct ops *on;
    int which;  /* device, of those that there are */
    bool exact; /* of a device: sums in the order of the processor, instead of products of bf16 */
};

struct compute {
    struct kernels k;
    struct par *pool;     /* borrowed; NULL: the caller alone */
    const struct ops *on; /* NULL: the processor's */
    void *device;         /* of the operations */
    bool exact;           /* as above */
    struct teller teller; /* told how many matrices are packed for the way back */
};

/* KVF_OK, or an error of a device with a sentence.  Whatever came of it, compute_close is due. */
int compute_open(struct compute *ret, const struct kernels *k, struct par *pool,
                 const struct learner *l, struct kvf_diag *d);
void compute_close(struct compute *c); /* accepts a zeroed struct */

/* Matrix products write whole panels: rows of their results have this many floats. */
size_t padded(int n);

/* Runs fn on blocks of rows [t0, t0 + n) that cover T rows. */
typedef void (*rows_fn)(void *ctx, int t0, int n, int thread);
void each_rows(const struct compute *c, int T, rows_fn fn, void *ctx);
enum { ROWS_AT_ONCE = 32 }; /* most rows of a block */

/* The packs of W [N, K] and of its transpose, whose memory stays while W changes. */
struct both_ways {
    struct packed to, back; /* y = W x; dx = W^T dy */
};
int both_ways_create(int N, int K, struct both_ways *ret); /* KVF_OK or KVF_E_NOMEM */
void both_ways_fill(struct both_ways *b, const float *w);
void both_ways_finish(struct both_ways *b); /* accepts a zeroed struct */

#endif
