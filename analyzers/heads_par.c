/* heads_par.c - computes heads on several threads (heads_par.h). */
#include <limits.h>
#include <stdatomic.h>

#include "analyzers/heads_par.h"
#include "base/mem.h"
#include "base/par.h"

enum { FOR_THREADS = 1 << 18 }; /* values that make threads worth their start */

struct hand { /* of one thread */
    struct kvf_trace *t;
    int err, task; /* the lowest task that failed here */
    struct kvf_diag d;
};

struct heads_par {
    struct par *pool;
    int n_threads;
    struct hand *hand;
    kvf_watch_fn watch;
    void *watch_ctx;
};

struct work {
    struct heads_par *p;
    const int *first; /* [n_runs + 1] heads of one layer each */
    int n_runs;
    head_fn fn;
    void *ctx;
    _Atomic int failed; /* the lowest task that failed so far */
    int n_tasks;
    _Atomic int done;
};

int heads_par_create(struct kvf_trace *t, int threads, int64_t values, struct heads_par **ret)
{
    struct heads_par *p = MEM_NEW(struct heads_par, 1);
    if (!p)
        return KVF_E_NOMEM;
    bool many = threads > 1 || (threads == 0 && values >= FOR_THREADS);
    int err = many ? par_create(threads, &p->pool) : KVF_OK;
    p->n_threads = par_threads(p->pool);
    if (err)
        goto fail;
    p->hand = MEM_NEW(struct hand, (size_t)p->n_threads);
    if (!p->hand) {
        err = KVF_E_NOMEM;
        goto fail;
    }
    p->hand[0].t = t;
    for (int i = 1; !err && i < p->n_threads; i++)
        err = kvf_share(t, &p->hand[i].t);
    if (err)
        goto fail;
    *ret = p;
    return KVF_OK;

fail:
    heads_par_destroy(p);
    return err;
}

void heads_par_destroy(struct heads_par *p)
{
    if (!p)
        return;
    par_destroy(p->pool);
    for (int i = 1; p->hand && i < p->n_threads; i++)
        kvf_close(p->hand[i].t);
    mem_free_all(p->hand, p);
}

int heads_par_threads(const struct heads_par *p)
{
    return p->n_threads;
}

void heads_par_watch(struct heads_par *p, kvf_watch_fn watch, void *ctx)
{
    p->watch = watch;
    p->watch_ctx = ctx;
}

static void note_failure(struct work *w, int task)
{
    int least = atomic_load(&w->failed);
    while (task < least && !atomic_compare_exchange_weak(&w->failed, &least, task))
        ;
}

static void do_task(void *ctx, int task, int thread)
{
    struct work *w = ctx;
    struct hand *hand = &w->p->hand[thread];
    int run = task % w->n_runs, err = KVF_OK;
    struct kvf_diag d = {""};
    if (task > atomic_load(&w->failed))
        return; /* its error would not be the first one */
    for (int h = w->first[run]; !err && h < w->first[run + 1]; h++)
        err = w->fn(w->ctx, hand->t, task / w->n_runs, h, thread, &d);
    if (err && (!hand->err || task < hand->task)) {
        hand->err = err;
        hand->task = task;
        hand->d = d;
    }
    if (err)
        note_failure(w, task);
    int done = atomic_fetch_add(&w->done, 1) + 1;
    if (thread == 0 && w->p->watch)
        w->p->watch(w->p->watch_ctx, (uint64_t)done, (uint64_t)w->n_tasks);
}

static int find_runs(const struct head_list *heads, int *first)
{
    int n = 0;
    for (int h = 0; h < heads->n; h++)
        if (h == 0 || heads->head[h].layer != heads->head[h - 1].layer)
            first[n++] = h;
    first[n] = heads->n;
    return n;
}

int heads_par_run(struct heads_par *p, const struct head_list *heads, int items, head_fn fn,
                  void *ctx, struct kvf_diag *d)
{
    int *first = MEM_NEW(int, (size_t)heads->n + 1);
    if (!first)
        return KVF_E_NOMEM;
    struct work w = {p, first, find_runs(heads, first), fn, ctx, INT_MAX, 0, 0};
    w.n_tasks = items * w.n_runs;
    const struct hand *lowest = NULL;
    for (int i = 0; i < p->n_threads; i++)
        p->hand[i].err = KVF_OK;
    par_run(p->pool, w.n_tasks, do_task, &w);
    for (int i = 0; i < p->n_threads; i++) {
        const struct hand *x = &p->hand[i];
        if (x->err && (!lowest || x->task < lowest->task))
            lowest = x;
    }
    mem_free(first);
    if (lowest && d)
        *d = lowest->d;
    return lowest ? lowest->err : KVF_OK;
}
