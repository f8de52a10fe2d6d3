/* linear.c - matrix products over the thread pool. */
#include "engine/decode/session_state.h"

enum { MANY_ROWS = 64 };

struct job {
    struct session *s;
    float *out;
    size_t ld;
    const struct rows_in *in;
    int T;
    const struct packed *w;
    int per_task; /* panels */
};

static struct wrows words(const struct session *s)
{
    return (struct wrows){(int16_t *)(void *)s->q.q, s->q.scale, s->q.K};
}

void rows_as_integers(struct session *s, const float *x, size_t ld, int t0, int n,
                      const struct packed *w)
{
    const struct kernels *k = &s->e->kernels;
    int step = ld == (size_t)w->K ? n : 1, end = t0 + n; /* rows that lie side by side */
    for (int t = t0; w->n_blocks && t < end; t += step)
        if (w->kind == PACK_I16) {
            const struct wrows all = words(s);
            struct wrows rows = wrows_from(&all, (size_t)t);
            k->quant_words(&rows, x + (size_t)t * ld, step, w->K);
        } else {
            struct qrows rows = qrows_from(&s->q, (size_t)t);
            k->quant_rows(&rows, x + (size_t)t * ld, step, w->K);
        }
}

void multiply_rows(const struct session *s, float *out, size_t ld, const float *x, size_t ld_x,
                   int T, const struct packed *w, int panel0, int n_panels)
{
    const struct kernels *k = &s->e->kernels;
    const struct wrows rows = words(s);
    if (w->kind == PACK_I16)
        k->matmul_words(out, ld, &rows, T, w, panel0, n_panels);
    else if (w->n_blocks)
        k->matmul_q(out, ld, &s->q, T, w, panel0, n_panels);
    else
        k->matmul_f(out, ld, x, ld_x, T, w, panel0, n_panels);
}

/* Makes rows and, where the matrix wants integers, those of them. */
static void prepare_task(void *ctx, int task, int thread)
{
    const struct job *j = ctx;
    (void)thread;
    int t0 = task * ROWS_PER_TASK, end = j->T - t0 < ROWS_PER_TASK ? j->T : t0 + ROWS_PER_TASK;
    if (j->in->make)
        j->in->make(j->s, j->in->how, t0, end - t0);
    rows_as_integers(j->s, j->in->x, j->in->ld, t0, end - t0, j->w);
}

static void matmul_task(void *ctx, int task, int thread)
{
    const struct job *j = ctx;
    (void)thread;
    int p0 = task * j->per_task;
    int n = j->w->n_panels - p0 < j->per_task ? j->w->n_panels - p0 : j->per_task;
    multiply_rows(j->s, j->out, j->ld, j->in->x, j->in->ld, j->T, j->w, p0, n);
}

/* One row waits for memory, which is read best in long stretches: each thread has one.  The row is
 * made in the same round, as another costs more than to wait for a task that was claimed before. */
struct row_job {
    struct job j;
    atomic_int made; /* whether the row is there */
};

static void row_task(void *ctx, int task, int thread)
{
    struct row_job *r = ctx;
    if (task == 0) {
        prepare_task(&r->j, 0, thread);
        atomic_store_explicit(&r->made, 1, memory_order_release);
    } else {
        par_wait(&r->made, 1);
        matmul_task(&r->j, task - 1, thread);
    }
}

static void linear_row(const struct job *j)
{
    struct par *pool = j->s->e->pool;
    struct row_job r = {.j = *j};
    int n = j->w->n_panels, threads = par_threads(pool), per_task = (n + threads - 1) / threads;
    r.j.per_task = per_task;
    atomic_init(&r.made, 0);
    par_run(pool, 1 + (n + per_task - 1) / per_task, row_task, &r);
}

/* Tasks of a thread: few enough to keep their cost low, and enough to even out the threads, as the
 * last task of many rows would be waited for long. */
static int tasks_of_thread(int T)
{
    return T < MANY_ROWS ? 4 : 12;
}

/* Of many rows a task takes an even number, as processors fetch lines of memory in pairs, which two
 * threads had better not share, or whole tiles of two and of three panels. */
static int panels_per_task(int n_panels, int threads, int T)
{
    int tasks = tasks_of_thread(T) * threads, per = (n_panels + tasks - 1) / tasks;
    if (T >= MANY_ROWS && per > 2)
        per -= per % (per < 6 ? 2 : 6);
    if (per < 1)
        return 1;
    return per > 60 ? 60 : per;
}

void linear(struct session *s, float *out, size_t ld, const struct rows_in *in, int T,
            const struct packed *w)
{
    struct par *pool = s->e->pool;
    int per_task = panels_per_task(w->n_panels, par_threads(pool), T);
    struct job j = {s, out, ld, in, T, w, per_task};
    s->q.K = w->K;
    if (T == 1) {
        linear_row(&j);
        return;
    }
    if (w->n_blocks || in->make)
        par_run(pool, (T + ROWS_PER_TASK - 1) / ROWS_PER_TASK, prepare_task, &j);
    par_run(pool, (w->n_panels + per_task - 1) / per_task, matmul_task, &j);
}
