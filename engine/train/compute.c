/* compute.c - row blocks, and packs of a matrix and of its transpose, for training on the CPU. */
#include "engine/train/compute.h"

#include <string.h>

#include "base/mem.h"

size_t padded(int n)
{
    return ((size_t)n + PANEL - 1) / PANEL * PANEL;
}

static int at_most(int a, int b)
{
    return a < b ? a : b;
}

/* ---- tasks of rows ---- */

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

/* ---- packed matrices ---- */

static int create_pack(int N, int K, struct packed *ret)
{
    *ret = (struct packed){.kind = PACK_F32, .N = N, .K = K, .n_panels = (int)(padded(N) / PANEL)};
    ret->bytes = padded(N) * (size_t)K * sizeof(float);
    ret->data = mem_alloc(padded(N) * (size_t)K, sizeof(float));
    return ret->data ? KVF_OK : KVF_E_NOMEM;
}

int packed_pair_create(int N, int K, struct packed_pair *ret)
{
    memset(ret, 0, sizeof *ret);
    if (create_pack(N, K, &ret->forward) == KVF_OK && create_pack(K, N, &ret->backward) == KVF_OK)
        return KVF_OK;
    packed_pair_finish(ret);
    return KVF_E_NOMEM;
}

/* Layout: data[panel][k][16]. */
void packed_pair_fill(struct packed_pair *b, const float *w)
{
    float *to = (float *)(void *)b->forward.data, *back = (float *)(void *)b->backward.data;
    size_t N = (size_t)b->forward.N, K = (size_t)b->forward.K;
    for (size_t n = 0; n < N; n++)
        for (size_t k = 0; k < K; k++) {
            float v = w[n * K + k];
            to[(n / PANEL * K + k) * PANEL + n % PANEL] = v;
            back[(k / PANEL * N + n) * PANEL + k % PANEL] = v;
        }
}

void packed_pair_finish(struct packed_pair *b)
{
    packed_finish(&b->forward);
    packed_finish(&b->backward);
}
