/* gather.h - holds back rows of a head that follow one another, so that probes take several at a
 * time; private to engine/probe/.
 *
 * Rows of a prompt stay where they are until their block ends.  Rows of steps come one by one and
 * are copied, STEP_ROWS of each head at most, unless entries may leave: such rows seldom follow one
 * another. */
#ifndef KVF_ENGINE_PROBE_GATHER_H
#define KVF_ENGINE_PROBE_GATHER_H

#include "engine/probe/probe.h"

struct gather;

/* State [n] is borrowed: those with `rows` that are not away are told.  KVF_OK or KVF_E_NOMEM. */
int gather_create(struct probe_state *state, int n, const struct probe_config *cfg, int n_threads,
                  struct gather **ret_gather);
void gather_free(struct gather *g); /* tells nothing; accepts NULL */

/* Between the two, rows of one head from this thread stay where they are. */
void gather_open(struct gather *g, int thread);
void gather_close(struct gather *g, int thread); /* tells what there is of them */

/* A row comes: tells the rows of its head that it does not follow, and sets row->gathered. */
void gather_expect(struct gather *g, struct probe_row *row, int thread);
/* Takes it, when it is gathered. */
void gather_take(struct gather *g, const struct probe_row *row, int thread);

/* Tells all rows of steps: somebody looks at the arrays of states. */
void gather_settle(struct gather *g);

#endif
