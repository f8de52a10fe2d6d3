#include <string.h>

#include "base/mem.h"
#include "engine/train/compute.h"

size_t padded(int n)
{
    return ((size_t)n + PANEL - 1) / PANEL * PANEL;
}

/* ---- products ---- */

/* A task: some panels times some rows; a slab of x stays in the cache of its core. */
struct product_job {
    const struct compute *c;
    float *out;
    const float *x;
    size_t ld_out, ld_x;
    int T, rows, panels, n_row_tasks;
    const struct packed *w;
};

enum { MIN_ROWS = 256, PANELS_PER_TASK = 12 };

static int at_most(int a, int b)
{
    return a < b ? a : b;
}

static void product_task(void *ctx, int task, int thread)
{
    const struct product_job *j = ctx;
    (void)thread;
    int t0 = task % j->n_row_tasks * j->rows, p0 = task / j->n_row_tasks * j->panels;
    j->c->k.matmul_f(j->out + (size_t)t0 * j->ld_out, j->ld_out, j->x + (size_t)t0 * j->ld_x,
                     j->ld_x, at_most(j->rows, j->T - t0), j->w, p0,
                     at_most(j->panels, j->w->n_panels - p0));
}

void product(const struct compute *c, float *out, size_t ld_out, const float *x, size_t ld_x, int T,
             const struct packed *w)
{
    struct product_job j = {c, out, x, ld_out, ld_x, T, MIN_ROWS, PANELS_PER_TASK, 0, w};
    j.n_row_tasks = (T + j.rows - 1) / j.rows;
    par_run(c->pool, j.n_row_tasks * ((w->n_panels + j.panels - 1) / j.panels), product_task, &j);
}

/* ---- rows ---- */

struct rows_job {
    rows_fn fn;
    void *ctx;
    int T;
};

static void rows_task(void *ctx, int task, int thread)
{
    const struct rows_job *j = ctx;
    int t0 = task * ROWS_AT_ONCE;
    j->fn(j->ctx, t0, at_most(ROWS_AT_ONCE, j->T - t0), thread);
}

void each_rows(const struct compute *c, int T, rows_fn fn, void *ctx)
{
    struct rows_job j = {fn, ctx, T};
    par_run(c->pool, (T + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, rows_task, &j);
}

/* ---- packs ---- */

static int create_pack(int N, int K, struct packed *ret)
{
    *ret = (struct packed){.kind = PACK_F32, .N = N, .K = K, .n_panels = (int)(padded(N) / PANEL)};
    ret->bytes = padded(N) * (size_t)K * sizeof(float);
    ret->data = mem_alloc(padded(N) * (size_t)K, sizeof(float));
    return ret->data ? KVF_OK : KVF_E_NOMEM;
}

int both_ways_create(int N, int K, struct both_ways *ret)
{
    memset(ret, 0, sizeof *ret);
    if (create_pack(N, K, &ret->to) == KVF_OK && create_pack(K, N, &ret->back) == KVF_OK)
        return KVF_OK;
    both_ways_finish(ret);
    return KVF_E_NOMEM;
}

/* data[panel][k][16] */
void both_ways_fill(struct both_ways *b, const float *w)
{
    float *to = (float *)(void *)b->to.data, *back = (float *)(void *)b->back.data;
    size_t N = (size_t)b->to.N, K = (size_t)b->to.K;
    for (size_t n = 0; n < N; n++)
        for (size_t k = 0; k < K; k++) {
            float v = w[n * K + k];
            to[(n / PANEL * K + k) * PANEL + n % PANEL] = v;
            back[(k / PANEL * N + n) * PANEL + k % PANEL] = v;
        }
}

void both_ways_finish(struct both_ways *b)
{
    packed_finish(&b->to);
    packed_finish(&b->back);
}
