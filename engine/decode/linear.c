/* linear.c - matrix products over the thread pool. */
#include <string.h>

#include "engine/decode/session_state.h"

enum { MANY_ROWS = 64 };

struct job {
    struct session *s;
    float *out;
    size_t ld;
    float *const *rows; /* outputs of linear_to_rows, instead of out */
    const struct matmul_input *in;
    int T;
    const struct packed *w;
    int per_task;    /* panels per task */
    int n_tasks;     /* tasks that multiply */
    int n_prepare;   /* tasks that prepare input rows */
    atomic_int made; /* number of these that are done */
    par_fn product;
};

static struct wrows words(const struct session *s)
{
    return (struct wrows){(int16_t *)(void *)s->matmul.input.q, s->matmul.input.scale,
                          s->matmul.input.K};
}

void set_input_format(struct session *s, const struct packed *w)
{
    s->matmul.input.K = w->K;
    s->matmul.input.lowest = w->lowest;
}

void quantise_rows(struct session *s, const float *x, size_t ld, int t0, int n,
                   const struct packed *w)
{
    const struct kernels *k = &s->e->kernels;
    int step = ld == (size_t)w->K ? n : 1, end = t0 + n; /* contiguous rows */
    for (int t = t0; w->n_blocks && t < end; t += step, x += ld)
        if (w->kind == PACK_I16) {
            const struct wrows all = words(s);
            struct wrows rows = wrows_from(&all, (size_t)t);
            k->quant_words(&rows, x, step, w->K);
        } else {
            struct qrows rows = qrows_from(&s->matmul.input, (size_t)t);
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
        k->matmul_q(out, ld, &s->matmul.input, T, w, panel0, n_panels);
    else
        k->matmul_f(out, ld, x, ld_x, T, w, panel0, n_panels);
}

/* Computes input rows, and quantises them if the matrix reads integers. */
static void prepare_task(void *ctx, int task, int thread)
{
    const struct job *j = ctx;
    const struct matmul_input *in = j->in;
    struct session *s = j->s;
    int t0 = task * ROWS_PER_TASK, n = j->T - t0 < ROWS_PER_TASK ? j->T - t0 : ROWS_PER_TASK;
    size_t K = (size_t)j->w->K, ld = in->ld;
    float *x = in->x + (size_t)t0 * ld;
    if (in->prologue && !in->kept && j->w->n_blocks && (size_t)n * K <= s->matmul.ld_tile) {
        x = s->matmul.tile + (size_t)thread * s->matmul.ld_tile;
        ld = K;
    }
    if (in->prologue)
        in->prologue(s, in->how, t0, n, x, ld);
    quantise_rows(s, x, ld, t0, n, j->w);
}

static void matmul_task(void *ctx, int task, int thread)
{
    const struct job *j = ctx;
    (void)thread;
    int p0 = task * j->per_task;
    int n = j->w->n_panels - p0 < j->per_task ? j->w->n_panels - p0 : j->per_task;
    multiply_rows(j->s, j->out, j->ld, j->in->x, j->in->ld, j->T, j->w, p0, n);
}

/* With few rows, all tasks run in one parallel loop, because a second loop costs more than the wait
 * for earlier tasks. */
static void few_task(void *ctx, int task, int thread)
{
    struct job *j = ctx;
    if (task < j->n_prepare) {
        prepare_task(j, task, thread);
        atomic_fetch_add_explicit(&j->made, 1, memory_order_release);
    } else {
        par_wait(&j->made, j->n_prepare);
        j->product(j, task - j->n_prepare, thread);
    }
}

static bool wants_rows(const struct matmul_input *in, const struct packed *w)
{
    return !in->ready && (w->n_blocks || in->prologue);
}

static int prepare_tasks(int T)
{
    return (T + ROWS_PER_TASK - 1) / ROWS_PER_TASK;
}

void prepare_rows(struct session *s, const struct matmul_input *in, int T, const struct packed *w)
{
    struct job j = {.s = s, .in = in, .T = T, .w = w};
    set_input_format(s, w);
    if (wants_rows(in, w))
        par_run(s->e->pool, prepare_tasks(T), prepare_task, &j);
}

static void run_job(struct job *j)
{
    struct par *pool = j->s->e->pool;
    if (j->T >= MANY_ROWS) {
        prepare_rows(j->s, j->in, j->T, j->w);
        par_run(pool, j->n_tasks, j->product, j);
        return;
    }
    set_input_format(j->s, j->w);
    j->n_prepare = wants_rows(j->in, j->w) ? prepare_tasks(j->T) : 0;
    atomic_init(&j->made, 0);
    par_run(pool, j->n_prepare + j->n_tasks, few_task, j);
}

/* Returns the tasks per thread: few, to keep the overhead low, but enough to balance threads. The
 * last task of many rows takes long. */
static int tasks_of_thread(int T)
{
    return T < MANY_ROWS ? 4 : 12;
}

/* Returns the panels of a task. A product of one row is limited by memory bandwidth, so each thread
 * reads one long range. With few rows, tasks get equal numbers of panels, and threads equal numbers
 * of tasks, if possible. With many rows, a task gets an even number, because CPUs fetch cache lines
 * in pairs, or a multiple of the kernels' tiles of two and three panels. */
static int panels_per_task(int n_panels, int threads, int T)
{
    int tasks = T == 1 ? threads : tasks_of_thread(T) * threads;
    int per = (n_panels + tasks - 1) / tasks, least = T < MANY_ROWS ? per / 2 : per;
    for (int even = per; T > 1 && even > least; even--)
        if (n_panels % (even * threads) == 0)
            return even;
    if (T >= MANY_ROWS && per > 2)
        per -= per % (per < 6 ? 2 : 6);
    if (per < 1)
        return 1;
    return T > 1 && per > 60 ? 60 : per;
}

static int tasks_of(const struct packed *w, int per_task)
{
    return (w->n_panels + per_task - 1) / per_task;
}

void linear(struct session *s, float *out, size_t ld, const struct matmul_input *in, int T,
            const struct packed *w)
{
    int per = panels_per_task(w->n_panels, par_threads(s->e->pool), T);
    struct job j = {.s = s,
                    .out = out,
                    .ld = ld,
                    .in = in,
                    .T = T,
                    .w = w,
                    .per_task = per,
                    .n_tasks = tasks_of(w, per),
                    .product = matmul_task};
    run_job(&j);
}

/* Multiplies some panels into a tile in the thread's caches and copies the tile to the rows. */
static void apart_rows_task(void *ctx, int task, int thread)
{
    const struct job *j = ctx;
    struct session *s = j->s;
    int p0 = task * j->per_task, left = j->w->n_panels - p0;
    int n = left < j->per_task ? left : j->per_task, ld = n * PANEL;
    float *tile = s->matmul.tile + (size_t)thread * s->matmul.ld_tile;
    const struct packed part = packed_part(j->w, p0, n);
    multiply_rows(s, tile, (size_t)ld, j->in->x, j->in->ld, j->T, &part, 0, n);
    for (int t = 0; t < j->T; t++)
        memcpy(j->rows[t] + (size_t)p0 * PANEL, tile + (size_t)t * (size_t)ld,
               (size_t)ld * sizeof *tile);
}

void linear_to_rows(struct session *s, float *const *out, const struct matmul_input *in, int T,
                    const struct packed *w)
{
    struct job j = {.s = s,
                    .rows = out,
                    .in = in,
                    .T = T,
                    .w = w,
                    .per_task = TILE_PANELS,
                    .n_tasks = tasks_of(w, TILE_PANELS),
                    .product = apart_rows_task};
    if (T == 1)
        linear(s, out[0], (size_t)w->n_panels * PANEL, in, 1, w);
    else
        run_job(&j);
}

/* Multiplies some panels into a tile and adds it to the rows of x. */
static void add_task(void *ctx, int task, int thread)
{
    const struct job *j = ctx;
    struct session *s = j->s;
    const struct packed *w = j->w;
    int p0 = spread_task(s->e->pool, task, j->n_tasks) * j->per_task;
    int left = w->n_panels - p0, c0 = p0 * PANEL;
    int n = left < j->per_task ? left : j->per_task, ld = n * PANEL;
    int channels = w->N - c0 < ld ? w->N - c0 : ld;
    float *tile = s->matmul.tile + (size_t)thread * s->matmul.ld_tile,
          scale = s->e->config.residual_scale;
    if (n <= 0)
        return;
    const struct packed part = packed_part(w, p0, n);
    multiply_rows(s, tile, (size_t)ld, j->in->x, j->in->ld, j->T, &part, 0, n);
    for (int i = 0; scale != 1 && i < j->T * ld; i++)
        tile[i] *= scale;
    for (int t = 0; t < j->T; t++)
        s->e->kernels.add(j->out + (size_t)t * j->ld + c0, tile + (size_t)t * (size_t)ld, channels);
}

void linear_add(struct session *s, const struct matmul_input *in, int T, const struct packed *w)
{
    int per = panels_per_task(w->n_panels, par_threads(s->e->pool), T);
    if (per > TILE_PANELS)
        per = TILE_PANELS;
    struct job j = {.s = s,
                    .out = s->buf.x,
                    .ld = (size_t)s->e->config.d_model,
                    .in = in,
                    .T = T,
                    .w = w,
                    .per_task = per,
                    .n_tasks = spread_tasks(s->e->pool, tasks_of(w, per)),
                    .product = add_task};
    run_job(&j);
}
