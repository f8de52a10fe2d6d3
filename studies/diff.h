/* diff.h - the differences between two traces, column by column. */
#pragma once

#include <stdbool.h>

#include <kvf/trace.h>

#include "base/buf.h"
#include "base/table.h"

struct diff_args {
    bool no_header; /* skip the run headers and the note "result" */
};

/* A table with a row for each key of the run headers that differs, one for the
 * texts of the tokens, and one for every column of either trace (docs/reference/analyses/diff.md).
 * Values are equal when they are the same number, or both undefined: NaN, the
 * "never" of ages, the "alive" of steps.  *ret_equal: the traces are equal. */
int diff_compare(struct kvf_trace *a, struct kvf_trace *b, const struct diff_args *args,
                 struct table **ret_table, bool *ret_equal, struct kvf_diag *d);

/* Appends a summary of the table for people. */
void diff_describe(const struct table *t, struct buf *out);
