#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/par.h"

enum { MAX_THREADS = 256, SPINS = 4000 };

struct worker {
    struct par *pool;
    pthread_t thread;
    int index;
};

struct par {
    /* A round is published by raising epoch; every worker joins it once. */
    _Atomic uint32_t epoch;
    _Atomic uint32_t busy; /* workers still inside the current round */
    _Atomic int next;      /* next task to hand out */
    int n_tasks;
    par_fn fn;
    void *ctx;
    _Atomic bool quit;
    int n_workers; /* threads beside the caller */
    struct worker worker[MAX_THREADS];
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Returns when *word differs from seen. */
static void wait_change(_Atomic uint32_t *word, uint32_t seen)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != seen)
            return;
        relax();
    }
    while (atomic_load_explicit(word, memory_order_acquire) == seen)
        os_wait(word, seen);
}

static void drain(struct par *p, int thread)
{
    for (;;) {
        int task = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (task >= p->n_tasks)
            return;
        p->fn(p->ctx, task, thread);
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct par *p = w->pool;
    uint32_t seen = 0;
    for (;;) {
        wait_change(&p->epoch, seen);
        seen++; /* rounds are published one at a time */
        if (atomic_load(&p->quit))
            return NULL;
        drain(p, w->index);
        if (atomic_fetch_sub_explicit(&p->busy, 1, memory_order_acq_rel) == 1)
            os_wake_all(&p->busy);
    }
}

static void publish(struct par *p)
{
    atomic_fetch_add_explicit(&p->epoch, 1, memory_order_release);
    os_wake_all(&p->epoch);
}

int par_create(int n_threads, struct par **ret_pool)
{
    if (n_threads == 0)
        n_threads = os_processors() < MAX_THREADS ? os_processors() : MAX_THREADS;
    if (n_threads < 1 || n_threads > MAX_THREADS)
        return KVF_E_LIMIT;
    struct par *p = MEM_NEW(struct par, 1);
    if (!p)
        return KVF_E_NOMEM;
    for (int i = 0; i < n_threads - 1; i++) {
        p->worker[i] = (struct worker){.pool = p, .index = i + 1};
        if (pthread_create(&p->worker[i].thread, NULL, worker_main, &p->worker[i]) != 0) {
            par_destroy(p);
            return KVF_E_LIMIT;
        }
        p->n_workers++;
    }
    *ret_pool = p;
    return KVF_OK;
}

void par_destroy(struct par *p)
{
    if (!p)
        return;
    atomic_store(&p->quit, true);
    publish(p);
    for (int i = 0; i < p->n_workers; i++)
        pthread_join(p->worker[i].thread, NULL);
    mem_free(p);
}

int par_threads(const struct par *p)
{
    return p ? p->n_workers + 1 : 1;
}

void par_run(struct par *p, int n_tasks, par_fn fn, void *ctx)
{
    if (!p || p->n_workers == 0 || n_tasks <= 1) {
        for (int i = 0; i < n_tasks; i++)
            fn(ctx, i, 0);
        return;
    }
    p->fn = fn;
    p->ctx = ctx;
    p->n_tasks = n_tasks;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    atomic_store_explicit(&p->busy, (uint32_t)p->n_workers, memory_order_relaxed);
    publish(p);
    drain(p, 0);
    for (;;) {
        uint32_t left = atomic_load_explicit(&p->busy, memory_order_acquire);
        if (left == 0)
            return;
        wait_change(&p->busy, left);
    }
}
