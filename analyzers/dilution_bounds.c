#include <math.h>
#include <string.h>

#include "analyzers/dilution_bounds.h"

/* The larger of most[k] and e^-Delta |D'(Delta)| at each of n steps, and the first Delta that
 * has it; both times |U|, which is taken out at the end.  Where U is empty it is infinite as soon
 * as anything is near.  In a prefix of the order of weights, as many of the entries near the
 * largest as it has are its own. */
#define RAISE_BOUNDS(type)                                                                         \
    const type *restrict near = from;                                                              \
    for (int64_t k = 0; k < n; k++) {                                                              \
        double here = (double)near[k], some = here > 0 ? 1 : 0;                                    \
        double x = scale * (here - own * size[k]), y = most[k], z = delta[k];                      \
        x = size[k] == 0 ? some : x;                                                               \
        most[k] = x > y ? x : y;                                                                   \
        delta[k] = x > y ? at : z;                                                                 \
    }
typedef void (*raise_fn)(const void *restrict from, int64_t n, double own, double at, double scale,
                         const double *restrict size, double *restrict most,
                         double *restrict delta);
#define RAISE(name, type, attribute)                                                               \
    attribute static void name(const void *restrict from, int64_t n, double own, double at,        \
                               double scale, const double *restrict size, double *restrict most,   \
                               double *restrict delta)                                             \
    {                                                                                              \
        RAISE_BOUNDS(type)                                                                         \
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

/* So many columns are read before any of them is looked at, so that what they raise goes through
 * the caches once for all of them, in parts of so many steps. */
enum { TOGETHER = 4, PART = 512 };

static bool is_narrow(const struct kvf_trace *t, const struct near *w, int j)
{
    const struct kvf_column *c = kvf_column(t, w->column[j]);
    return c->dtype == KVF_U16 && !(c->flags & KVF_COL_AGE);
}

/* The columns j .. j + TOGETHER - 1, of 16 bits. */
static int raise_together(struct kvf_trace *t, const struct head *h, const struct near *w, int j,
                          struct kvf_diag *d)
{
    const uint16_t *near[TOGETHER];
    raise_fn raise = raise_of(true);
    for (int i = 0; i < TOGETHER; i++) {
        uint16_t *copy = (uint16_t *)w->scratch + i * w->n;
        const void *raw;
        int err = kvf_view(t, w->column[j + i], h->layer, h->index, (uint32_t)w->a, (uint32_t)w->n,
                           &raw, d);
        if (err)
            return err;
        near[i] = i + 1 < TOGETHER ? memcpy(copy, raw, (size_t)w->n * sizeof *copy) : raw;
    }
    for (int64_t k = 0; k < w->n; k += PART)
        for (int i = 0; i < TOGETHER; i++) {
            double at = 0.5 * (j + i);
            raise(near[i] + k, w->n - k < PART ? w->n - k : PART, w->prefix ? 1 : 0, at, exp(-at),
                  w->size + k, w->x + k, w->delta + k);
        }
    return KVF_OK;
}

static int raise_one(struct kvf_trace *t, const struct head *h, const struct near *w, int j,
                     struct kvf_diag *d)
{
    const void *near = w->scratch;
    double at = 0.5 * j;
    bool narrow = is_narrow(t, w, j);
    uint32_t a = (uint32_t)w->a, n = (uint32_t)w->n;
    int err = narrow ? kvf_view(t, w->column[j], h->layer, h->index, a, n, &near, d)
                     : kvf_read_f64(t, w->column[j], h->layer, h->index, a, n, w->scratch, d);
    if (!err)
        raise_of(narrow)(near, w->n, w->prefix ? 1 : 0, at, exp(-at), w->size, w->x, w->delta);
    return err;
}

int near_bounds(struct kvf_trace *t, const struct head *h, const struct near *w, struct kvf_diag *d)
{
    int err = KVF_OK;
    bool narrow = true;
    for (int64_t k = 0; k < w->n; k++) {
        w->x[k] = 0;
        w->delta[k] = NAN;
    }
    for (int j = 0; j < N_NEAR; j++)
        narrow &= is_narrow(t, w, j);
    for (int j = 0; !err && j < N_NEAR; j += narrow ? TOGETHER : 1)
        err = narrow ? raise_together(t, h, w, j, d) : raise_one(t, h, w, j, d);
    for (int64_t k = 0; k < w->n; k++) {
        double share = w->x[k] / w->size[k];
        w->x[k] = w->x[k] > 0 ? share : w->x[k];
    }
    return err;
}
