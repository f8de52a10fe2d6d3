/* drawn.h - computes the token that must be sampled, from the definition in engine/kernels/draw.h,
 * with qsort() and sequential sums. */
#ifndef KVF_TESTS_DRAWN_H
#define KVF_TESTS_DRAWN_H

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "engine/kernels/draw.h"

struct drawn_item {
    uint64_t w;
    int32_t id;
};

static inline int drawn_by_weight(const void *a, const void *b)
{
    const struct drawn_item *x = a, *y = b;
    if (x->w != y->w)
        return x->w > y->w ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static inline int drawn_by_id(const void *a, const void *b)
{
    const struct drawn_item *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* Returns the token for a random number u, uniform in [0, 1). temperature must be > 0. */
static inline int32_t drawn(const float *logits, int n, double temperature, double top_p, double u)
{
    struct drawn_item *x = MEM_NEW(struct drawn_item, (size_t)n);
    float most = -INFINITY;
    uint64_t total = 0, kept = 0, before = 0;
    int held = 0, at = 0;
    for (int i = 0; i < n; i++)
        most = fmaxf(most, logits[i]);
    for (int i = 0; i < n; i++) {
        x[i] = (struct drawn_item){draw_weight(logits[i], most, DRAW_LOG2_E / temperature), i};
        total += x[i].w;
    }
    qsort(x, (size_t)n, sizeof *x, drawn_by_weight);
    do
        kept += x[held++].w;
    while (held < n && (double)kept < top_p * (double)total);
    qsort(x, (size_t)held, sizeof *x, drawn_by_id);
    while (before + x[at].w <= (uint64_t)(u * (double)kept))
        before += x[at++].w;
    int32_t id = x[at].id;
    mem_free(x);
    return id;
}

#endif
