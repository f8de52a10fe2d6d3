/* head_budgets.h - the budget of each head of a run with allocation=file, by the run header. */
#ifndef KVF_ANALYZERS_HEAD_BUDGETS_H
#define KVF_ANALYZERS_HEAD_BUDGETS_H

#include "analyzers/common.h"

#define HEAD_BUDGET "head_budget" /* the column */

/* Adds a column "head_budget", a block per KV head of `l`: entries that the head may hold; 0: no
 * limit; -1: heads share it.  with_all: one more block for all heads together, which is the sum, or
 * the first of 0 and -1 that a head has.  It also adds the metadata "head_budgets", the form and
 * the hash of the table.  There is no column for other runs, or if the header describes other heads
 * than the trace has.  KVF_OK, KVF_E_NOMEM, or the errors of run_header (libtrace/run_header.h). */
int put_head_budgets(struct table *out, const struct kvf_trace *t, const struct head_list *l,
                     bool with_all, struct kvf_diag *d);

#endif
