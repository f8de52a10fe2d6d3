/* heads_par.h - heads of a trace on several threads, each of which has its own reader.
 *
 * A chunk has all heads of a layer, so a task is the chosen heads of one layer, in rising order:
 * each chunk is decoded once.  Which thread has a task is not defined: the results of fn must
 * depend only on its item and head, each at its place, or be sums of integers for each thread.
 * Tables are then the same bytes for any number of threads. */
#pragma once

#include "analyzers/common.h"

struct heads_par;

/* Starts `threads` threads; 0 asks for one for each core, or for one in all where few values are
 * to be read.  KVF_OK, KVF_E_NOMEM or KVF_E_LIMIT.  The result must be destroyed before t is
 * closed. */
int heads_par_create(struct kvf_trace *t, int threads, int64_t values, struct heads_par **ret);
void heads_par_destroy(struct heads_par *p); /* accepts NULL */
int heads_par_threads(const struct heads_par *p);
/* Called by the calling thread with the number of tasks done; NULL: not called. */
void heads_par_watch(struct heads_par *p, kvf_watch_fn watch, void *ctx);

/* item: 0 ..  items - 1 (for example columns); h: place in the list; t: the reader of this
 * thread. */
typedef int (*head_fn)(void *ctx, struct kvf_trace *t, int item, int h, int thread,
                       struct kvf_diag *d);

/* Runs fn for all items and heads.  Of errors that of the lowest item and head is returned, as a
 * loop would; later tasks may or may not have run. */
int heads_par_run(struct heads_par *p, const struct head_list *heads, int items, head_fn fn,
                  void *ctx, struct kvf_diag *d);
