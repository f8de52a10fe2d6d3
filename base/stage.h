/* stage.h - a stage of watched work: converts the progress of the stage to the progress of all
 * work. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct stage {
    void (*watch)(void *ctx, uint64_t done, uint64_t of); /* of all work; NULL: not called */
    void *ctx;
    double from, to; /* shares of all work, 0 to 1 */
};

/* A kvf_watch_fn; stage: a struct stage. */
static inline void stage_see(void *stage, uint64_t done, uint64_t of)
{
    const struct stage *s = stage;
    const double fine = 1e6;
    if (s->watch && of > 0)
        s->watch(s->ctx,
                 (uint64_t)(fine * (s->from + (s->to - s->from) * (double)done / (double)of)),
                 (uint64_t)fine);
}

/* The stage becomes part i of n equal ones between two shares of all work. */
static inline void stage_set(struct stage *s, double from, double to, int64_t i, int64_t n)
{
    s->from = from + (to - from) * (double)i / (double)n;
    s->to = from + (to - from) * (double)(i + 1) / (double)n;
}
