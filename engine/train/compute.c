#include <math.h>
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

/* ---- derivatives by weights ---- */

/* Tasks are squares of dw, so that each sum is made by one thread in the order of rows. */
enum { SQUARE = 64, SLAB = 128 };

struct outer_job {
    const struct compute *c;
    float *dw;
    const float *dy, *x;
    size_t ld_dy, ld_x;
    int N, K, T, n_down;
};

static void outer_task(void *ctx, int task, int thread)
{
    const struct outer_job *j = ctx;
    int n0 = task % j->n_down * SQUARE, k0 = task / j->n_down * SQUARE;
    (void)thread;
    for (int t0 = 0; t0 < j->T; t0 += SLAB)
        j->c->k.tile_mul(&(struct tile_product){.c = j->dw + (size_t)n0 * (size_t)j->K + (size_t)k0,
                                                .ld_c = (size_t)j->K,
                                                .a = j->dy + (size_t)t0 * j->ld_dy + (size_t)n0,
                                                .a_row = 1,
                                                .a_col = j->ld_dy,
                                                .b = j->x + (size_t)t0 * j->ld_x + (size_t)k0,
                                                .ld_b = j->ld_x,
                                                .m = at_most(SQUARE, j->N - n0),
                                                .n = at_most(SQUARE, j->K - k0),
                                                .k = at_most(SLAB, j->T - t0),
                                                .add = true});
}

void outer(const struct compute *c, float *dw, const float *dy, size_t ld_dy, int N, const float *x,
           size_t ld_x, int K, int T)
{
    struct outer_job j = {c, dw, dy, x, ld_dy, ld_x, N, K, T, (N + SQUARE - 1) / SQUARE};
    par_run(c->pool, j.n_down * ((K + SQUARE - 1) / SQUARE), outer_task, &j);
}

static double inverse_rms(const float *x, int n, float eps)
{
    double square = 0;
    for (int i = 0; i < n; i++)
        square += (double)x[i] * (double)x[i];
    return 1 / sqrt(square / n + (double)eps);
}

void norm_learn(float *dw, const float *x, size_t ld_x, const struct norm_rows *dy, int n,
                float eps)
{
    for (int t = 0; t < dy->T; t++)
        for (int h = 0; h < dy->heads; h++) {
            const float *from = x + (size_t)t * ld_x + (size_t)h * (size_t)n;
            const float *d = dy->dy + (size_t)t * dy->ld + (size_t)h * (size_t)n;
            float r = (float)inverse_rms(from, n, eps);
            for (int i = 0; i < n; i++)
                dw[i] += d[i] * from[i] * r;
        }
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
