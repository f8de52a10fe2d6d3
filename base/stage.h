/* stage.h - maps the progress of a stage to a range of the total progress. */
#ifndef KVF_BASE_STAGE_H
#define KVF_BASE_STAGE_H

#include <stddef.h>
#include <stdint.h>

/* A stage of an operation. */
struct stage {
    /* progress of the operation; NULL if it is not shown */
    void (*watch)(void *ctx, uint64_t done, uint64_t of);
    void *ctx;
    double from, to; /* range of the stage, as fractions of the operation, 0 to 1 */
};

/* Reports the progress of a stage, as a kvf_watch_fn; stage is a struct stage. */
static inline void stage_see(void *stage, uint64_t done, uint64_t of)
{
    const struct stage *s = stage;
    const double fine = 1e6;
    if (s->watch && of > 0)
        s->watch(s->ctx,
                 (uint64_t)(fine * (s->from + (s->to - s->from) * (double)done / (double)of)),
                 (uint64_t)fine);
}

/* Sets the range of the stage to part i of n equal parts between two fractions. */
static inline void stage_set(struct stage *s, double from, double to, int64_t i, int64_t n)
{
    s->from = from + (to - from) * (double)i / (double)n;
    s->to = from + (to - from) * (double)(i + 1) / (double)n;
}

#endif
