/* part.h - where two runs part: the first step at which their tokens, or the
 * entries that their queries see, are not the same.
 *
 * Query t of a head sees {i <= t : t < evict_step_i}.  Step T, after the last
 * query, distinguishes entries cut there from entries that live on. */
#pragma once

#include <stdbool.h>

#include <kvf/trace.h>

#include "base/buf.h"
#include "base/table.h"

struct part_args {
    const char *heads; /* a head set as typed; NULL: all */
    bool common;       /* of runs of different length, compare the steps that both have */
};

struct part;

/* Compares traces a and b, which must outlive the result.  KVF_OK, KVF_E_ARG (layers,
 * heads or tokens do not fit together), KVF_E_NOTFOUND (no evict_step), or an error of reading. */
int part_compare(struct kvf_trace *a, struct kvf_trace *b, const struct part_args *args,
                 struct part **ret_part, struct kvf_diag *d);
void part_free(struct part *p); /* accepts NULL */

/* Makes a table with one row per head: its first step, and the entries that differ, counted by how
 * they differ. */
int part_heads(const struct part *p, struct table **ret_table, struct kvf_diag *d);

/* One row for each entry with different evict_step, at most `most` (0: all), by head and
 * token; only the first differences if `first`. */
int part_entries(const struct part *p, bool first, int64_t most, struct table **ret_table,
                 struct kvf_diag *d);

/* For people; `name` of a and b, at most `most` entries. */
int part_describe(const struct part *p, const char *const name[2], int64_t most, struct buf *out,
                  struct kvf_diag *d);
