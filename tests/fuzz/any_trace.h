/* any_trace.h - turns fuzz bytes into a trace with kvfate's own columns. Checksums, links, run id
 * and index are always correct; values, shapes, header and notes are arbitrary.
 *
 * Without bytes, the result is a valid trace with every column. Each byte changes something:
 * columns that are missing, doubled, truncated or of other types, values that no run records, and
 * texts and headers that no run has. */
#ifndef KVF_TESTS_FUZZ_ANY_TRACE_H
#define KVF_TESTS_FUZZ_ANY_TRACE_H

#include "source.h"

enum { ANY_TRACE_ROOM = 1 << 20, ANY_TRACE_STEPS = 40 };

enum any_end {
    ANY_END,        /* closed or not, depending on the source */
    ANY_UNFINISHED, /* not closed */
    ANY_TAIL        /* closed, with some more steps: a tail */
};
/* Makes the trace that the source describes. The returned bytes are valid until the next call. */
const unsigned char *any_trace_as(struct source *s, enum any_end end, size_t *ret_n);
static inline const unsigned char *any_trace(struct source *s, size_t *ret_n)
{
    return any_trace_as(s, ANY_END, ret_n);
}
/* Writes the digest of the contents of a trace into its footer, if it has a readable footer.
 * Without this, the digest contradicts the contents. */
void any_trace_digest(unsigned char *p, size_t n);

#endif
