/* par.c - runs tasks on threads (par.h). */
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/par.h"

enum { MAX_THREADS = 256, SPINS_MOST = 4000, SPINS_LEAST = 16 };

/* How long a thread spins before it sleeps: longer when spinning was worth it, shorter when not, so
 * that threads which share a CPU yield it. */
struct patience {
    int spins;
};

struct worker {
    struct par *pool;
    pthread_t thread;
    int index;
};

/* A round is open until all of its tasks are done.  Threads claim tasks one by one; a thread that
 * sleeps through a round is not waited for. */
struct par {
    _Atomic uint64_t open;   /* number of the round << 32 | unclaimed tasks */
    _Atomic uint32_t epoch;  /* rises with each round: workers sleep on it */
    _Atomic uint32_t left;   /* tasks of the round that are not done: the caller sleeps on it */
    _Atomic uint32_t asleep; /* workers that sleep, or are about to */
    /* These are written between rounds, and read by threads that have claimed a task. */
    int n_tasks;
    par_fn fn;
    void *ctx;
    _Atomic bool quit;
    struct patience caller;
    int n_workers; /* threads besides the caller */
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

/* Whether *word differs from seen before patience ends. */
static bool spin(struct patience *p, _Atomic uint32_t *word, uint32_t seen)
{
    for (int i = 0; i < p->spins; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != seen) {
            p->spins = p->spins < SPINS_MOST / 2 ? 2 * p->spins : SPINS_MOST;
            return true;
        }
        relax();
    }
    p->spins = p->spins > 2 * SPINS_LEAST ? p->spins / 2 : SPINS_LEAST;
    return false;
}

/* Claims a task of the round that is open.  -1: there is none. */
static int claim(struct par *p)
{
    uint64_t open = atomic_load_explicit(&p->open, memory_order_acquire);
    while ((uint32_t)open > 0)
        if (atomic_compare_exchange_weak_explicit(&p->open, &open, open - 1, memory_order_acquire,
                                                  memory_order_acquire))
            return p->n_tasks - (int)(uint32_t)open;
    return -1;
}

static void drain(struct par *p, int thread)
{
    for (int task = claim(p); task >= 0; task = claim(p)) {
        p->fn(p->ctx, task, thread);
        if (atomic_fetch_sub_explicit(&p->left, 1, memory_order_acq_rel) == 1 && thread > 0)
            os_wake_all(&p->left);
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct par *p = w->pool;
    struct patience patience = {SPINS_MOST};
    while (!atomic_load(&p->quit)) {
        uint32_t seen = atomic_load(&p->epoch);
        drain(p, w->index);
        if (spin(&patience, &p->epoch, seen))
            continue;
        atomic_fetch_add(&p->asleep, 1);
        while (atomic_load(&p->epoch) == seen && !atomic_load(&p->quit))
            os_wait(&p->epoch, seen);
        atomic_fetch_sub(&p->asleep, 1);
    }
    return NULL;
}

/* Wakes the workers after a change.  A worker counts itself before it looks for the last time. */
static void publish(struct par *p)
{
    atomic_fetch_add(&p->epoch, 1);
    if (atomic_load(&p->asleep) > 0)
        os_wake_all(&p->epoch);
}

/* Kernels keep up to 150 KB on the stack, and some systems give a thread 128. */
static int start(struct worker *w)
{
    enum { LEAST_STACK = 1 << 20 };
    pthread_attr_t how;
    size_t stack;
    int err = pthread_attr_init(&how);
    if (err)
        return err;
    if (pthread_attr_getstacksize(&how, &stack) == 0 && stack < LEAST_STACK)
        pthread_attr_setstacksize(&how, LEAST_STACK);
    err = pthread_create(&w->thread, &how, worker_main, w);
    pthread_attr_destroy(&how);
    return err;
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
    p->caller.spins = SPINS_MOST;
    for (int i = 0; i < n_threads - 1; i++) {
        p->worker[i] = (struct worker){.pool = p, .index = i + 1};
        if (start(&p->worker[i]) != 0) {
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

void par_rouse(struct par *p)
{
    if (p)
        publish(p);
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
    uint64_t round = atomic_load_explicit(&p->open, memory_order_relaxed) >> 32;
    atomic_store_explicit(&p->left, (uint32_t)n_tasks, memory_order_relaxed);
    atomic_store_explicit(&p->open, (round + 1) << 32 | (uint32_t)n_tasks, memory_order_release);
    publish(p);
    drain(p, 0);
    for (;;) {
        uint32_t left = atomic_load_explicit(&p->left, memory_order_acquire);
        if (left == 0)
            return;
        if (!spin(&p->caller, &p->left, left))
            os_wait(&p->left, left);
    }
}

/* A task that is at work is done soon; one with a thread that the system has stopped needs a CPU.
 */
void par_wait(atomic_int *done, int many)
{
    for (int i = 0; atomic_load_explicit(done, memory_order_acquire) < many; i++)
        if (i < SPINS_MOST / 8)
            relax();
        else
            sched_yield();
}

struct watched {
    par_fn fn;
    void *ctx;
    const struct progress_callback *progress;
    int n_tasks;
    atomic_int done;
    atomic_flag telling;
};

static void watched_task(void *ctx, int task, int thread)
{
    struct watched *w = ctx;
    w->fn(w->ctx, task, thread);
    atomic_fetch_add(&w->done, 1);
    if (atomic_flag_test_and_set_explicit(&w->telling, memory_order_acquire))
        return; /* another thread reports */
    progress_report(w->progress, atomic_load(&w->done), w->n_tasks);
    atomic_flag_clear_explicit(&w->telling, memory_order_release);
}

void par_run_watched(struct par *p, int n_tasks, par_fn fn, void *ctx,
                     const struct progress_callback *w)
{
    struct watched all = {
        .fn = fn, .ctx = ctx, .progress = w, .n_tasks = n_tasks, .telling = ATOMIC_FLAG_INIT};
    par_run(p, n_tasks, watched_task, &all);
}
