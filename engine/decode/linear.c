/* linear.c - matrix products over the thread pool. */
#include "engine/decode/session_state.h"

struct job {
    const struct kernels *k;
    float *out;
    size_t ld;
    const float *x;
    const struct qrows *q;
    int K, T;
    const struct packed *w;
    int per_task; /* panels */
};

enum { ROWS_PER_TASK = 8 };

static bool quantised(const struct packed *w)
{
    return w->kind == PACK_Q4 || w->kind == PACK_Q8;
}

static void quantise_task(void *ctx, int task, int thread)
{
    const struct job *j = ctx;
    (void)thread;
    int t0 = task * ROWS_PER_TASK, n = j->T - t0 < ROWS_PER_TASK ? j->T - t0 : ROWS_PER_TASK;
    struct qrows part = qrows_from(j->q, (size_t)t0);
    j->k->quant_rows(&part, j->x + (size_t)t0 * (size_t)j->K, n, j->K);
}

static void matmul_task(void *ctx, int task, int thread)
{
    const struct job *j = ctx;
    (void)thread;
    int p0 = task * j->per_task;
    int n = j->w->n_panels - p0 < j->per_task ? j->w->n_panels - p0 : j->per_task;
    if (quantised(j->w))
        j->k->matmul_q(j->out, j->ld, j->q, j->T, j->w, p0, n);
    else
        j->k->matmul_f(j->out, j->ld, j->x, (size_t)j->K, j->T, j->w, p0, n);
}

/* Enough tasks to even out the threads, few enough to keep their cost low. */
static int panels_per_task(int n_panels, int threads)
{
    int per = (n_panels + 4 * threads - 1) / (4 * threads);
    if (per < 1)
        return 1;
    return per > 64 ? 64 : per;
}

void linear(struct session *s, float *out, size_t ld, const float *x, int T, const struct packed *w)
{
    struct par *pool = s->e->pool;
    s->q.K = w->K;
    struct job j = {&s->e->kernels,
                    out,
                    ld,
                    x,
                    &s->q,
                    w->K,
                    T,
                    w,
                    panels_per_task(w->n_panels, par_threads(pool))};
    if (quantised(w))
        par_run(pool, (T + ROWS_PER_TASK - 1) / ROWS_PER_TASK, quantise_task, &j);
    par_run(pool, (w->n_panels + j.per_task - 1) / j.per_task, matmul_task, &j);
}
