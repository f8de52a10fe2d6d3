/* attention_step.c - attention of the single query of a decode step, which is limited by memory
 * bandwidth.
 *
 * The query heads that share a KV head read its entries together. There are tasks for the scores of
 * some pages, for complete rows, and for the sums over some pages. The result has the bits of the
 * tasks of a chunk, because every score is one sum, and the sums over pages continue from page to
 * page. All tasks run in one parallel loop, so that threads read memory while rows are finished. A
 * task waits for the earlier tasks that it needs. */
#include <string.h>

#include "engine/decode/attention.h"

enum {
    STEP_LEAST = 8, /* minimum pages of a task. Few pages balance threads; many pages reduce the */
    STEP_MOST = 32, /* starts without a prefetched page. Maximum pages of a task */
    STEP_TASKS = 8  /* tasks per thread and kind */
};

/* KV heads [h0, h0 + n_kv) of a layer, with `per` query heads each; row g - h0 * per of the strip
 * is that of query head g. */
struct step {
    const struct attn_job *j;
    int per, h0, n_kv;
    int pages;  /* pages per task */
    int parts;  /* tasks for the pages of a KV head */
    int rows;   /* tasks for the rows of a KV head, before its sums */
    int late;   /* tasks for the rows after all sums: with integers, sums read scores */
    int blocks; /* blocks of channels with separate sums */
};

/* The work of a task. */
struct piece {
    enum { SCORES, ROWS, SUMS, NOTHING } kind;
    int h, part; /* KV head; index of its pages, or of its rows (ROWS) */
    int block;   /* block of channels (SUMS) */
};

static int longest_head(const struct session *s, int layer)
{
    int most = 0;
    for (int h = 0; h < s->cache_heads; h++) {
        int n = cache_view(s->cache, layer, h).n;
        most = n > most ? n : most;
    }
    return most;
}

bool step_reads_all(const struct attn_job *j)
{
    const struct session *s = j->s;
    int per = s->e->config.n_heads / s->cache_heads;
    return j->T == 1 && !s->positions_in_cache && !(s->run.stepping && s->reading.chosen)
           && !s->compare.evicted && per <= QUERY_BLOCK;
}

/* Returns the work of a task. The rows of a head follow the scores of the next head, so that other
 * threads read memory meanwhile. Then come the sums, with the heads in turn. */
static struct piece piece_of(const struct step *x, int task)
{
    int of_head = x->parts + x->rows, n = x->n_kv, sum = task - n * of_head;
    int behind = task - x->parts, turn = behind < 0 ? 0 : behind / of_head + 1;
    int at = behind < 0 ? task : behind % of_head;
    int late = sum - n * x->parts * x->blocks;
    if (late >= 0 && late < n * x->late)
        return (struct piece){.kind = ROWS, .h = x->h0 + late / x->late, .part = late % x->late};
    if (late >= 0)
        return (struct piece){.kind = NOTHING};
    if (sum >= 0)
        return (struct piece){SUMS, x->h0 + sum / x->blocks % n, sum / x->blocks / n,
                              sum % x->blocks};
    if (turn == n)
        return (struct piece){.kind = ROWS, .h = x->h0 + n - 1, .part = at};
    if (at < x->parts)
        return (struct piece){.kind = SCORES, .h = x->h0 + turn, .part = at};
    return (struct piece){.kind = ROWS, .h = x->h0 + turn - 1, .part = at - x->parts};
}

/* Sets the pages [*p, *end) of a part of a head with n entries. */
static void pages_of(const struct step *x, int part, int n, int *p, int *end)
{
    int pages = (n + PAGE_SLOTS - 1) / PAGE_SLOTS;
    *p = part * x->pages;
    *end = pages < *p + x->pages ? pages : *p + x->pages;
}

/* Returns the page that a task reads first. Returns NULL if it reads no page. */
static const void *first_of(const struct step *x, const struct piece *of)
{
    const struct session *s = x->j->s;
    if (of->kind != SCORES && of->kind != SUMS)
        return NULL;
    struct cache_head view = cache_view(s->cache, x->j->layer, of->h);
    int p, end;
    pages_of(x, of->part, view.n, &p, &end);
    if (p >= end)
        return NULL;
    return of->kind == SCORES ? cache_keys(&view, p) : cache_values(s->cache, &view, p);
}

/* then: the next memory to read, for prefetches; NULL: unknown. */
static void scores_task(const struct step *x, const struct piece *of, const void *then, int thread)
{
    struct session *s = x->j->s;
    const struct model_config *m = &s->e->config;
    size_t D = (size_t)m->head_dim, row = (size_t)((of->h - x->h0) * x->per);
    struct cache_head view = cache_view(s->cache, x->j->layer, of->h);
    const struct query_rows q = query_rows(s, s->buf.qkv + (size_t)(of->h * x->per) * D, D, x->per,
                                           thread);
    const struct attn_block b = {.h = of->h, .R = 1, .view = &view, .n_last = view.n};
    int p, end;
    for (pages_of(x, of->part, view.n, &p, &end); p < end; p++) {
        float *at = s->attn.scores + row * s->attn.ld_strip + p * PAGE_SLOTS;
        const struct kv_keys keys = {cache_keys(&view, p), s->kv_type,
                                     p + 1 < end ? cache_keys(&view, p + 1) : then};
        scores_of(s, at, s->attn.ld_strip, &q, 0, x->per, &keys);
        for (int r = 0; m->attn_cap > 0 && r < x->per; r++)
            s->e->kernels.soft_cap(at + (size_t)r * s->attn.ld_strip, PAGE_SLOTS, m->attn_cap);
        for (int r = 0; kv_whole(s->kv_type) && hides_some(x->j, &b) && r < x->per; r++)
            hide_in_page(x->j, &b, 0, p, at + (size_t)r * s->attn.ld_strip);
    }
    atomic_fetch_add_explicit(&s->attn.step_rows[of->h], 1, memory_order_release);
}

/* The row of a query head, or where they are compared those of all that share a KV head. */
static void rows_task(const struct step *x, const struct piece *of, int thread)
{
    struct session *s = x->j->s;
    struct cache_head view = cache_view(s->cache, x->j->layer, of->h);
    struct attn_block b = {.h = of->h, .R = 1, .view = &view, .n_last = view.n, .thread = thread};
    par_wait(&s->attn.step_rows[of->h], x->parts);
    for (int block = 0; x->late && block < x->blocks; block++)
        par_wait(&s->attn.step_sums[of->h * x->blocks + block], x->parts);
    for (int i = 0; i < x->j->heads_per_task; i++) {
        b.g = of->h * x->per + of->part * x->j->heads_per_task + i;
        finish_row(x->j, &b, 0, s->attn.scores + (size_t)(b.g - x->h0 * x->per) * s->attn.ld_strip);
    }
    atomic_fetch_add_explicit(&s->attn.step_rows[of->h], 1, memory_order_release);
}

static void add_page(struct session *s, const struct attn_sums *to, const float *rows, int n,
                     const struct kv_values *values)
{
    if (kv_whole(s->kv_type))
        s->e->kernels.attn_add(to, rows, s->attn.ld_strip, n, 0, values);
    else
        s->e->kernels.attn_av(to->out, to->ld, rows, s->attn.ld_strip, n, values);
}

/* Continues the sums of a block of channels from those of the previous part. */
static void sums_task(const struct step *x, const struct piece *of, const void *then)
{
    struct session *s = x->j->s;
    int D = s->e->config.head_dim, width = x->blocks > 1 ? KV_BLOCK : D, p, end;
    struct cache_head view = cache_view(s->cache, x->j->layer, of->h);
    const float *rows = s->attn.scores + (size_t)((of->h - x->h0) * x->per) * s->attn.ld_strip;
    int d0 = of->block * width, d1 = d0 + width < D ? d0 + width : D;
    int lane = of->h * x->blocks + of->block;
    const struct attn_sums sums = {.out = s->buf.att + (size_t)(of->h * x->per) * (size_t)D,
                                   .ld = (size_t)D,
                                   .sum = s->attn.step_weights + lane * x->per * ATTN_LANES,
                                   .top = s->attn.step_tops + lane * x->per};
    const float *sinks = sinks_of(s, x->j->layer);
    par_wait(&s->attn.step_rows[of->h], x->parts + x->rows);
    par_wait(&s->attn.step_sums[lane], of->part);
    if (of->part == 0)
        sums_begin(&sums, x->per, d0, d1);
    for (pages_of(x, of->part, view.n, &p, &end); p < end; p++) {
        struct kv_values values = values_of(s, &view, p, view.n);
        values.d0 = d0;
        values.d1 = d1;
        values.next = p + 1 < end ? cache_values(s->cache, &view, p + 1) : then;
        add_page(s, &sums, rows + p * PAGE_SLOTS, x->per, &values);
    }
    if (kv_whole(s->kv_type) && of->part == x->parts - 1)
        sums_end(&sums, x->per, d0, d1, sinks ? sinks + of->h * x->per : NULL, 1);
    atomic_store_explicit(&s->attn.step_sums[lane], of->part + 1, memory_order_release);
}

/* If threads are equally fast, a thread's next task is this one plus the number of threads. */
static void step_task(void *ctx, int task, int thread)
{
    const struct step *x = ctx;
    const struct piece of = piece_of(x, task),
                       next = piece_of(x, task + par_threads(x->j->s->e->pool));
    if (of.kind == ROWS)
        rows_task(x, &of, thread);
    else if (of.kind == SCORES)
        scores_task(x, &of, first_of(x, &next), thread);
    else
        sums_task(x, &of, first_of(x, &next));
}

static int clamped(int n, int least, int most)
{
    if (n < least)
        return least;
    return n > most ? most : n;
}

/* Runs as many KV heads at a time as there are rows of scores. Sums are split into blocks of
 * channels if there are more threads than heads. */
void attend_step(const struct attn_job *j)
{
    struct session *s = j->s;
    const struct model_config *m = &s->e->config;
    struct par *pool = s->e->pool;
    struct step x = {.j = j, .per = m->n_heads / s->cache_heads};
    int at_once = par_threads(pool) * QUERY_BLOCK / x.per;
    int pages = (longest_head(s, j->layer) + PAGE_SLOTS - 1) / PAGE_SLOTS;
    x.pages = pages * s->cache_heads / (STEP_TASKS * par_threads(pool));
    x.pages = clamped(x.pages, STEP_LEAST, STEP_MOST);
    x.parts = (pages + x.pages - 1) / x.pages;
    if (!kv_whole(s->kv_type))
        x.rows = x.per / j->heads_per_task;
    else if (j->watched)
        x.late = x.per / j->heads_per_task;
    for (int h = 0; h < s->cache_heads; h++)
        atomic_store_explicit(&s->attn.step_rows[h], 0, memory_order_relaxed);
    for (; x.h0 < s->cache_heads; x.h0 += x.n_kv) {
        x.n_kv = s->cache_heads - x.h0 < at_once ? s->cache_heads - x.h0 : at_once;
        x.blocks = par_threads(pool) > x.n_kv ? step_blocks(m) : 1;
        for (int i = 0; i < s->cache_heads * x.blocks; i++)
            atomic_store_explicit(&s->attn.step_sums[i], 0, memory_order_relaxed);
        par_run(pool, x.n_kv * (x.parts + x.rows + x.parts * x.blocks + x.late), step_task, &x);
    }
}
