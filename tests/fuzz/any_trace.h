/* any_trace.h - fuzz bytes as a trace of kvfate's own columns, whose checksums, links, run id and
 * index are right, whatever its values, shapes, header and notes say.
 *
 * Without bytes it is an honest trace with every column; each byte makes something else of it:
 * columns that are missing, doubled, cut or of other types, values that no run records, texts and
 * headers that no run has. */
#ifndef KVF_TESTS_FUZZ_ANY_TRACE_H
#define KVF_TESTS_FUZZ_ANY_TRACE_H

#include "source.h"

enum { ANY_TRACE_ROOM = 1 << 20, ANY_TRACE_STEPS = 40 };

enum any_end {
    ANY_END,        /* closed or not, as the source says */
    ANY_UNFINISHED, /* not closed */
    ANY_TAIL        /* closed, with some steps more: what may lie beside an unfinished one of the
                       same source */
};
/* Makes the trace that the source describes: its bytes are borrowed until the next call. */
const unsigned char *any_trace_as(struct source *s, enum any_end end, size_t *ret_n);
static inline const unsigned char *any_trace(struct source *s, size_t *ret_n)
{
    return any_trace_as(s, ANY_END, ret_n);
}
/* Puts the digest of what a trace holds into its footer, if it has one and can be read.  Without
 * it is what its writer did not tell. */
void any_trace_digest(unsigned char *p, size_t n);

#endif
