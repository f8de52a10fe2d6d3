/* stack.h - one table of several traces: the rows that the analyzer makes of each, one trace after
 * the other, with columns that tell them apart. */
#ifndef KVF_ANALYZERS_STACK_H
#define KVF_ANALYZERS_STACK_H

#include "analyzers/analyzer.h"

enum { STACK_MOST = 16 }; /* traces */

/* Puts the tables of several traces one below the other.  The columns are `trace`, then those of
 * the analyzer, then method, budget and T.  `trace` is method and budget where these tell all
 * traces apart, else the name of the file without path and .kvf, else its whole name.  The
 * metadata are what all tables say alike, trace_1, trace_2, ..., and in `differ` the other keys.
 * about: what the analyzer says of each trace.  KVF_E_ARG with a sentence where tables have unlike
 * columns, KVF_E_LIMIT as table_stack. */
int stack_run(const struct analyzer *a, struct kvf_trace *const *traces, int n,
              const char *const *names, const struct analyzer_args *args, struct buf *about,
              struct table **ret_table, struct kvf_diag *d);

#endif
