/* pen.c - the writer thread of a trace. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "base/progress.h"
#include "engine/probe/pen.h"

struct pen {
    struct kvf_writer *writer;
    pthread_t thread;
    pthread_mutex_t lock;   /* protects the members below */
    pthread_cond_t changed; /* signals all state changes */
    struct pen_task *first, **end;
    int n_tasks, n_ready; /* tasks in the list; leading tasks that may start */
    int n_readers;        /* unfinished tasks with a state */
    size_t bytes;         /* data of unfinished tasks */
    bool held, busy, quit, logs;
    struct pen_task *log, **log_end; /* finished tasks of pen_log() */
    _Atomic int err;
    /* Used by the thread, and by the owner while no task is pending: */
    struct kvf_writer *tail; /* the open tail */
    bool in_tail;
    int tail_err;
    double begun, ended; /* of the last tail */
};

struct pen_task *pen_task(size_t bytes, int (*run)(const struct pen_task *, struct kvf_writer *))
{
    struct pen_task *t = NULL;
    if (bytes <= SIZE_MAX - sizeof *t)
        t = mem_alloc_raw(1, sizeof *t + bytes);
    if (t)
        *t = (struct pen_task){.run = run, .bytes = bytes};
    return t;
}

/* Marker tasks of a tail, recognised by the addresses of their functions. */
static int tail_begins(const struct pen_task *t, struct kvf_writer *w)
{
    (void)t;
    (void)w;
    return KVF_OK;
}

static int tail_ends(const struct pen_task *t, struct kvf_writer *w)
{
    (void)t;
    return w ? kvf_writer_close(w, NULL) : KVF_OK;
}

static void begin_tail(struct pen *p)
{
    p->begun = clock_seconds();
    p->in_tail = true;
    p->tail_err = atomic_load(&p->err);
    if (!p->tail_err)
        p->tail_err = kvf_writer_open_tail(p->writer, &p->tail, NULL);
}

/* Ends a tail. The data before the tail must be on disk first. A tail that cannot be written is
 * dropped. An error of the trace is reported by its next write. */
static void end_tail(struct pen *p, const struct pen_task *t)
{
    if (p->tail && !p->tail_err)
        p->tail_err = kvf_writer_sync(p->writer);
    if (p->tail_err)
        kvf_writer_abandon(p->tail);
    else
        (void)t->run(t, p->tail);
    p->tail = NULL;
    p->in_tail = false;
    p->ended = clock_seconds();
}

static void do_task(struct pen *p, const struct pen_task *t)
{
    int err = atomic_load(&p->err);
    if (t->run == tail_begins) {
        begin_tail(p);
    } else if (t->run == tail_ends) {
        end_tail(p, t);
    } else if (p->in_tail) {
        if (p->tail && !p->tail_err)
            p->tail_err = t->run(t, p->tail);
    } else if (!err) {
        atomic_store(&p->err, t->run(t, p->writer));
    }
}

/* Returns the next task that may start. Call with the lock. */
static struct pen_task *next_task(struct pen *p)
{
    struct pen_task *t = p->n_ready > 0 ? p->first : NULL;
    if (!t)
        return NULL;
    p->first = t->next;
    p->end = p->first ? p->end : &p->first;
    p->n_tasks--;
    p->n_ready--;
    return t;
}

/* Removes a task from the counters. kept: it moves to the log. */
static void forget(struct pen *p, struct pen_task *t, bool kept)
{
    p->bytes -= t->bytes;
    p->n_readers -= t->state != NULL;
    if (!kept) {
        mem_free(t);
        return;
    }
    t->next = NULL;
    *p->log_end = t;
    p->log_end = &t->next;
}

static void *work(void *arg)
{
    struct pen *p = arg;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        struct pen_task *t = next_task(p);
        if (!t && p->quit)
            break;
        if (!t) {
            pthread_cond_wait(&p->changed, &p->lock);
            continue;
        }
        p->busy = true;
        bool kept = p->logs && !p->in_tail && t->run != tail_begins;
        pthread_mutex_unlock(&p->lock);
        do_task(p, t);
        pthread_mutex_lock(&p->lock);
        p->busy = false;
        forget(p, t, kept);
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

int pen_create(struct kvf_writer *w, struct pen **ret_pen, struct kvf_diag *d)
{
    struct pen *p = MEM_NEW(struct pen, 1);
    if (!p)
        return KVF_E_NOMEM;
    p->writer = w;
    p->end = &p->first;
    p->log_end = &p->log;
    bool lock = pthread_mutex_init(&p->lock, NULL) == 0;
    bool changed = lock && pthread_cond_init(&p->changed, NULL) == 0;
    if (changed && pthread_create(&p->thread, NULL, work, p) == 0) {
        *ret_pen = p;
        return KVF_OK;
    }
    if (changed)
        pthread_cond_destroy(&p->changed);
    if (lock)
        pthread_mutex_destroy(&p->lock);
    mem_free(p);
    return kvf_fail(d, KVF_E_LIMIT,
                    "no thread can be had that writes the trace; end other programs");
}

static bool is_done(const struct pen *p)
{
    return !p->busy && p->n_ready == 0;
}

void pen_destroy(struct pen *p)
{
    if (!p)
        return;
    pen_discard(p);
    pthread_mutex_lock(&p->lock);
    p->quit = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    kvf_writer_abandon(p->tail);
    pen_tasks_free(p->log);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
}

void pen_put(struct pen *p, struct pen_task *t)
{
    pthread_mutex_lock(&p->lock);
    while (!p->held && p->bytes > 0 && p->bytes + t->bytes > PEN_BYTES)
        pthread_cond_wait(&p->changed, &p->lock);
    *p->end = t;
    p->end = &t->next;
    p->bytes += t->bytes;
    p->n_readers += t->state != NULL;
    p->n_tasks++;
    p->n_ready += !p->held;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

void pen_log(struct pen *p)
{
    pthread_mutex_lock(&p->lock);
    p->logs = true;
    pthread_mutex_unlock(&p->lock);
}

struct pen_task *pen_take_log(struct pen *p)
{
    (void)pen_settle(p);
    pthread_mutex_lock(&p->lock);
    struct pen_task *list = p->log;
    p->log = NULL;
    p->log_end = &p->log;
    p->logs = false;
    pthread_mutex_unlock(&p->lock);
    return list;
}

int pen_put_copies(struct pen *p, const struct pen_task *list)
{
    for (; list; list = list->next) {
        struct pen_task *t = pen_task(list->bytes, list->run);
        if (!t)
            return KVF_E_NOMEM;
        memcpy(t, list, sizeof *t + list->bytes);
        t->next = NULL;
        pen_put(p, t);
    }
    return KVF_OK;
}

void pen_tasks_free(struct pen_task *list)
{
    for (struct pen_task *next; list; list = next) {
        next = list->next;
        mem_free(list);
    }
}

static int put_mark(struct pen *p, int (*mark)(const struct pen_task *, struct kvf_writer *))
{
    struct pen_task *t = pen_task(0, mark);
    if (!t)
        return KVF_E_NOMEM;
    pen_put(p, t);
    return KVF_OK;
}

int pen_begin_tail(struct pen *p)
{
    return put_mark(p, tail_begins);
}

int pen_end_tail(struct pen *p)
{
    return put_mark(p, tail_ends);
}

void pen_hold(struct pen *p)
{
    pthread_mutex_lock(&p->lock);
    p->held = true;
    pthread_mutex_unlock(&p->lock);
}

void pen_release(struct pen *p)
{
    pthread_mutex_lock(&p->lock);
    p->held = false;
    p->n_ready = p->n_tasks;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

void pen_discard(struct pen *p)
{
    pthread_mutex_lock(&p->lock);
    struct pen_task **at = &p->first;
    for (int i = 0; i < p->n_ready; i++)
        at = &(*at)->next;
    for (struct pen_task *t = *at, *next; t; t = next) {
        next = t->next;
        forget(p, t, false);
    }
    *at = NULL;
    p->end = at;
    p->n_tasks = p->n_ready;
    p->held = false;
    pthread_mutex_unlock(&p->lock);
}

int pen_settle(struct pen *p)
{
    pthread_mutex_lock(&p->lock);
    while (!is_done(p))
        pthread_cond_wait(&p->changed, &p->lock);
    pthread_mutex_unlock(&p->lock);
    return pen_error(p);
}

void pen_await_readers(struct pen *p)
{
    pthread_mutex_lock(&p->lock);
    while (p->n_readers > 0)
        pthread_cond_wait(&p->changed, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

int pen_error(const struct pen *p)
{
    return atomic_load(&p->err);
}

bool pen_idle(struct pen *p, double *ret_begun, double *ret_ended)
{
    pthread_mutex_lock(&p->lock);
    bool idle = is_done(p) && p->n_tasks == 0;
    if (idle && ret_begun)
        *ret_begun = p->begun;
    if (idle && ret_ended)
        *ret_ended = p->ended;
    pthread_mutex_unlock(&p->lock);
    return idle;
}
