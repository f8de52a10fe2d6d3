/* ops.c - opens and closes the CPU or the device that training computes on. */
#include "engine/train/ops.h"

int compute_open(struct compute *ret, const struct kernels *k, struct par *pool,
                 const struct learner *l, struct kvf_diag *d)
{
    *ret = (struct compute){.k = *k, .pool = pool, .on = l->on, .exact = l->exact};
    return ops(ret)->open(ret, l->which, d);
}

void compute_close(struct compute *c)
{
    ops(c)->close(c);
    c->device = NULL;
}
