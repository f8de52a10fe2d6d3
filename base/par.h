/* par.h - a persistent thread pool that runs numbered tasks.
 *
 * Threads claim one task at a time, so a slow thread delays the others by at most one task. A
 * thread that has claimed no task is not waited for. It is not defined which thread runs a task.
 * Results must depend only on the task number, so that the output is byte-identical for any number
 * of threads. Waiting threads first spin for a short time, which is reduced if spinning did not
 * help, and then sleep. The pool therefore also works on a machine that is shared with other
 * programs.
 */
#ifndef KVF_BASE_PAR_H
#define KVF_BASE_PAR_H

#include <stdatomic.h>

#include <kvf/err.h>

#include "base/teller.h"

struct par;

/* Runs a task. task: 0 .. n - 1. thread: 0 .. par_threads() - 1, for per-thread scratch. */
typedef void (*par_fn)(void *ctx, int task, int thread);

/* Creates a pool. n_threads >= 1 counts the caller; 0 means all processors that this process may
 * use. Returns KVF_OK, KVF_E_NOMEM or KVF_E_LIMIT. */
int par_create(int n_threads, struct par **ret_pool);
void par_destroy(struct par *p); /* accepts NULL */

int par_threads(const struct par *p); /* 1 for NULL */

/* Runs fn for every task and returns when all are done. With p NULL the caller runs them in order.
 * Not re-entrant: a task must not call par_run(). */
void par_run(struct par *p, int n_tasks, par_fn fn, void *ctx);

/* Wakes sleeping threads, so that they are awake for tasks within the next 100 us or so. Accepts
 * NULL. */
void par_rouse(struct par *p);

/* Waits within a task until *done >= many. Other tasks of the same round increment *done. They
 * must have smaller numbers, since those were claimed earlier. */
void par_wait(atomic_int *done, int many);

/* Runs fn as par_run() does, and reports finished tasks to w now and then, from one thread at a
 * time. */
void par_run_watched(struct par *p, int n_tasks, par_fn fn, void *ctx, const struct teller *w);

#endif
