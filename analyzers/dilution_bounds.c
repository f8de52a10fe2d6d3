#include <math.h>

#include "analyzers/dilution_bounds.h"

/* The larger of most[k] and e^-Delta |D'(Delta)| at each of n steps, and the first Delta that
 * has it; both times |U|, which is taken out at the end.  Where U is empty it is infinite as soon
 * as anything is near.  In a prefix of the order of weights, as many of the entries near the
 * largest as it has are its own. */
#define RAISE_BOUNDS(type)                                                                   \
    const type *restrict near = from;                                                        \
    for (int64_t k = 0; k < n; k++) {                                                        \
        double here = (double)near[k], some = here > 0 ? 1 : 0;                              \
        double x = scale * (here - own * size[k]), y = most[k], z = delta[k];                \
        x = size[k] == 0 ? some : x;                                                         \
        most[k] = x > y ? x : y;                                                             \
        delta[k] = x > y ? at : z;                                                           \
    }
typedef void (*raise_fn)(const void *restrict from, int64_t n, double own, double at,
                         const double *restrict size, double *restrict most,
                         double *restrict delta);
#define RAISE(name, type, attribute)                                                         \
    attribute static void name(const void *restrict from, int64_t n, double own, double at,  \
                               const double *restrict size, double *restrict most,           \
                               double *restrict delta)                                       \
    {                                                                                        \
        double scale = exp(-at);                                                             \
        RAISE_BOUNDS(type)                                                                   \
    }
RAISE(raise_reals, double, )
RAISE(raise_counts, uint16_t, )
#if defined(__x86_64__)
RAISE(raise_counts_avx2, uint16_t, __attribute__((target("avx2"))))
#endif
#undef RAISE
#undef RAISE_BOUNDS

static raise_fn raise_of(bool narrow)
{
#if defined(__x86_64__)
    if (narrow && __builtin_cpu_supports("avx2"))
        return raise_counts_avx2;
#endif
    return narrow ? raise_counts : raise_reals;
}

int near_bounds(struct kvf_trace *t, const struct head *h, const struct near *w,
                struct kvf_diag *d)
{
    int err = KVF_OK;
    for (int64_t k = 0; k < w->n; k++) {
        w->x[k] = 0;
        w->delta[k] = NAN;
    }
    for (int j = 0; !err && j < N_NEAR; j++) {
        const struct kvf_column *c = kvf_column(t, w->column[j]);
        bool narrow = c->dtype == KVF_U16 && !(c->flags & KVF_COL_AGE);
        uint32_t a = (uint32_t)w->a, n = (uint32_t)w->n;
        const void *near = w->scratch;
        err = narrow ? kvf_view(t, w->column[j], h->layer, h->index, a, n, &near, d)
                     : kvf_read_f64(t, w->column[j], h->layer, h->index, a, n, w->scratch, d);
        if (!err)
            raise_of(narrow)(near, w->n, w->prefix ? 1 : 0, 0.5 * j, w->size, w->x, w->delta);
    }
    for (int64_t k = 0; k < w->n; k++)
        w->x[k] = w->x[k] > 0 ? w->x[k] / w->size[k] : w->x[k];
    return err;
}
