/* gather.h - collects consecutive rows of a head, so that probes process several at a time. Private
 * to engine/probe/.
 *
 * Rows of the prefill stay in place until their block ends. Rows of decode steps arrive one by one
 * and are copied, at most STEP_ROWS per head. If entries can be evicted, rows of steps are not
 * collected, because they are rarely consecutive. */
#pragma once

#include "engine/probe/probe.h"

/* The collected rows of all threads and heads. */
struct gather;

/* Creates a gather for n borrowed states. It reports rows to states with a `rows` hook that are not
 * `away`. Returns KVF_OK or KVF_E_NOMEM. */
int gather_create(struct probe_state *state, int n, const struct probe_config *cfg, int n_threads,
                  struct gather **ret_gather);
void gather_free(struct gather *g); /* discards collected rows; accepts NULL */

/* Between gather_open and gather_close, rows of one head from this thread stay in place. */
void gather_open(struct gather *g, int thread);
void gather_close(struct gather *g, int thread); /* reports the collected rows */

/* Prepares for a row: reports the collected rows of its head if it does not follow them, and sets
 * row->gathered. */
void gather_expect(struct gather *g, struct probe_row *row, int thread);
/* Adds the row if row->gathered is set. */
void gather_take(struct gather *g, const struct probe_row *row, int thread);

/* Reports all collected rows of steps. Call it before the arrays of states are read. */
void gather_settle(struct gather *g);
