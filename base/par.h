/* par.h - a persistent pool that runs numbered tasks.
 *
 * Threads claim tasks in order, so a slow thread never delays the rest by more than one task, and a
 * thread without a task is not waited for.  Which thread runs a task is not defined: results must
 * depend only on the task number.  This keeps output byte-identical for any number of threads.
 * Waiting threads spin for a short time, which is shorter where spinning did not help, and then
 * sleep: a machine that is shared with other programs does not collapse. */
#ifndef KVF_BASE_PAR_H
#define KVF_BASE_PAR_H

#include <stdatomic.h>

#include <kvf/err.h>

#include "base/progress_callback.h"

struct par;

/* task: 0 .. n-1.   thread: 0 .. par_threads()-1, for per-thread scratch. */
typedef void (*par_fn)(void *ctx, int task, int thread);

/* n_threads >= 1 counts the caller; 0 = as many as this process may use.
 * KVF_OK, KVF_E_NOMEM or KVF_E_LIMIT.  Destroy with par_destroy. */
int par_create(int n_threads, struct par **ret_pool);
void par_destroy(struct par *p); /* accepts NULL */

int par_threads(const struct par *p); /* 1 for NULL */

/* Runs fn for every task and returns when all are done.  p == NULL runs them
 * in order on the caller.  Not re-entrant: a task must not call par_run. */
void par_run(struct par *p, int n_tasks, par_fn fn, void *ctx);

/* Wakes threads that sleep: a run within some 100 us finds them awake.  Accepts NULL. */
void par_rouse(struct par *p);

/* A task waits until *done, which tasks of the same round raise, is at least `many`: all smaller
 * numbers, which were claimed before. */
void par_wait(atomic_int *done, int many);

/* The same; w is called with the number of tasks done, now and then, by one thread at a time. */
void par_run_watched(struct par *p, int n_tasks, par_fn fn, void *ctx,
                     const struct progress_callback *w);

#endif
