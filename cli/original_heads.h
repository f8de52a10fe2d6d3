/* original_heads.h - the numbers that the KV heads of a trimmed trace had in the complete run. */
#pragma once

#include <stdbool.h>

#include <kvf/trace.h>

#include "base/buf.h"

struct original_head {
    int layer, index;       /* in the trace */
    int of_layer, of_index; /* in the complete run */
};

/* The KV heads of a trace in order, from its notes "heads", "heads.2", ... (format.md). */
struct original_heads {
    struct original_head *head; /* [n] owned; NULL: all heads have their original numbers */
    int n;
};

/* Reads the notes.  n is 0 if the trace has no such note, if a note does not fit its heads, or if
 * no number changed.  Free with original_heads_free. */
void original_heads_read(const struct kvf_trace *t, struct original_heads *ret);
void original_heads_free(struct original_heads *x); /* accepts a zeroed one */

/* Appends "L0K0 is L3K0, L0K1 is L3K1" of at most `most` heads, and the number of further heads. */
void original_heads_text(const struct original_heads *x, int most, struct buf *out);
