/* compute.h - the resources for training: the table of operations (ops.h), CPU kernels and threads.
 * Results do not depend on the number of threads. */
#ifndef KVF_ENGINE_TRAIN_COMPUTE_H
#define KVF_ENGINE_TRAIN_COMPUTE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/par.h"
#include "engine/kernels/kernels.h"

struct ops;

/* The device choice of a training command. All zeros: the CPU. */
struct learner {
    const struct ops *on;
    int which;  /* index of the device */
    bool exact; /* on a device: sums in the order of the CPU, no bf16 matrix multiplications */
};

/* The resources of one training run. */
struct compute {
    struct kernels k;
    struct par *pool;     /* borrowed; NULL: only the calling thread */
    const struct ops *on; /* NULL: ops_cpu */
    void *device;         /* state of the operations */
    bool exact;           /* as in struct learner */
    struct progress_callback
        progress; /* receives the number of matrices packed for the backward pass */
};

/* Opens the device of l. Returns KVF_OK or an error with a message. Call compute_close in either
 * case. */
int compute_open(struct compute *ret, const struct kernels *k, struct par *pool,
                 const struct learner *l, struct kvf_diag *d);
void compute_close(struct compute *c); /* accepts a zeroed struct */

/* Returns n rounded up to whole panels: the floats per result row of a matrix multiplication. */
size_t padded(int n);

/* Calls fn for blocks of rows [t0, t0 + n) that cover T rows, on all threads. */
typedef void (*rows_fn)(void *ctx, int t0, int n, int thread);
void each_rows(const struct compute *c, int T, rows_fn fn, void *ctx);
enum { ROWS_AT_ONCE = 32 }; /* maximum rows of a block */

/* The packed forms of W [N, K] and of its transpose. Their memory stays allocated while W
 * changes. */
struct packed_pair {
    struct packed forward, backward; /* y = W x; dx = W^T dy */
};
int packed_pair_create(int N, int K, struct packed_pair *ret); /* KVF_OK or KVF_E_NOMEM */
/* Packs w [N, K] in both forms. */
void packed_pair_fill(struct packed_pair *b, const float *w);
void packed_pair_finish(struct packed_pair *b); /* accepts a zeroed struct */

#endif
