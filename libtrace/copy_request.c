/* copy_request.c - runs a request for a copy by its kind (<kvf/copy.h>). */
#include "libtrace/copying.h"

int kvf_copy(const struct kvf_copy_request *q, struct kvf_copied *ret, struct kvf_diag *d)
{
    struct kvf_copied made = {.n_steps = 0};
    int err;
    if (q->damaged)
        err = copying_repair(q, &made, d);
    else if (q->part)
        err = copying_join(q, &made, d);
    else
        err = copying_trace(q, &made, d);
    if (!err)
        *ret = made;
    return err;
}
