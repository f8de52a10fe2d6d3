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
    int n_tasks;
};

static struct wrows words(const struct session *s)
{
    return (struct wrows){(int16_t *)(void *)s->q.q, s->q.scale, s->q.K};
}

void rows_for(struct session *s, const struct packed *w)
{
    s->q.K = w->K;
    s->q.lowest = w->lowest;
}

void rows_as_integers(struct session *s, const float *x, size_t ld, int t0, int n,
                      const struct packed *w)
{
    const struct kernels *k = &s->e->kernels;
    int step = ld == (size_t)w->K ? n : 1, end = t0 + n; /* rows that lie side by side */
    for (int t = t0; w->n_blocks && t < end; t += step, x += ld)
        if (w->kind == PACK_I16) {
            const struct wrows all = words(s);
            struct wrows rows = wrows_from(&all, (size_t)t);
            k->quant_words(&rows, x, step, w->K);
        } else {
            struct qrows rows = qrows_from(&s->q, (size_t)t);
            k->quant_rows(&rows, x, step, w->K);
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
    const struct rows_in *in = j->in;
    struct session *s = j->s;
    int t0 = task * ROWS_PER_TASK, n = j->T - t0 < ROWS_PER_TASK ? j->T - t0 : ROWS_PER_TASK;
    size_t K = (size_t)j->w->K, ld = in->ld;
    float *x = in->x + (size_t)t0 * ld;
    if (in->make && !in->kept && j->w->n_blocks && (size_t)n * K <= s->ld_tile) {
        x = s->tile + (size_t)thread * s->ld_tile;
        ld = K;
    }
    if (in->make)
        in->make(s, in->how, t0, n, x, ld);
    rows_as_integers(s, x, ld, t0, n, j->w);
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

void prepare_rows(struct session *s, const struct rows_in *in, int T, const struct packed *w)
{
    struct job j = {.s = s, .in = in, .T = T, .w = w};
    rows_for(s, w);
    if (!in->ready && (w->n_blocks || in->make))
        par_run(s->e->pool, (T + ROWS_PER_TASK - 1) / ROWS_PER_TASK, prepare_task, &j);
}

void linear(struct session *s, float *out, size_t ld, const struct rows_in *in, int T,
            const struct packed *w)
{
    struct par *pool = s->e->pool;
    int per_task = panels_per_task(w->n_panels, par_threads(pool), T);
    struct job j = {s, out, ld, in, T, w, per_task, 0};
    if (T == 1) {
        rows_for(s, w);
        linear_row(&j);
        return;
    }
    prepare_rows(s, in, T, w);
    par_run(pool, (w->n_panels + per_task - 1) / per_task, matmul_task, &j);
}

/* The sums of some panels, which are added to the rows of x. */
static void add_task(void *ctx, int task, int thread)
{
    const struct job *j = ctx;
    struct session *s = j->s;
    const struct packed *w = j->w;
    int p0 = apart_task(s->e->pool, task, j->n_tasks) * j->per_task;
    int left = w->n_panels - p0, c0 = p0 * PANEL;
    int n = left < j->per_task ? left : j->per_task, ld = n * PANEL;
    int channels = w->N - c0 < ld ? w->N - c0 : ld;
    float *tile = s->tile + (size_t)thread * s->ld_tile, scale = s->e->config.residual_scale;
    if (n <= 0)
        return;
    const struct packed part = packed_part(w, p0, n);
    multiply_rows(s, tile, (size_t)ld, j->in->x, j->in->ld, j->T, &part, 0, n);
    for (int i = 0; scale != 1 && i < j->T * ld; i++)
        tile[i] *= scale;
    for (int t = 0; t < j->T; t++)
        s->e->kernels.add(j->out + (size_t)t * j->ld + c0, tile + (size_t)t * (size_t)ld, channels);
}

void add_linear(struct session *s, const struct rows_in *in, int T, const struct packed *w)
{
    int per_task = panels_per_task(w->n_panels, par_threads(s->e->pool), T);
    if (per_task > TILE_PANELS)
        per_task = TILE_PANELS;
    prepare_rows(s, in, T, w);
    int n_tasks = apart_tasks(s->e->pool, (w->n_panels + per_task - 1) / per_task);
    struct job j = {s, s->x, (size_t)s->e->config.d_model, in, T, w, per_task, n_tasks};
    par_run(s->e->pool, n_tasks, add_task, &j);
}
