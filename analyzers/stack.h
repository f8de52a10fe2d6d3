/* stack.h - one table of several traces: the rows of each trace in order, with columns that
 * identify the trace. */
#pragma once

#include "analyzers/analyzer.h"

enum { STACK_MOST = 256 }; /* traces */

/* Stacks the tables of several traces.  The columns are `trace`, then the analyzer's columns, then
 * method, budget and T.  `trace` is method and budget if these and the protocol identify every
 * trace, else the name of the file without path and .kvf, else its full path, and in each case the
 * protocol (protocol.h).  The metadata are the values that all
 * tables share, trace_1, trace_2, ..., and in `differ` the remaining keys.  about: the analyzer's
 * description of each trace.  KVF_E_ARG with a sentence where tables have unlike columns,
 * KVF_E_LIMIT as table_stack. */
int stack_run(const struct analyzer *a, struct kvf_trace *const *traces, int n,
              const char *const *names, const struct analyzer_args *args, struct buf *about,
              struct table **ret_table, struct kvf_diag *d);
