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

/* Makes the trace that the source describes: its bytes are borrowed until the next call. */
const unsigned char *any_trace(struct source *s, size_t *ret_n);

#endif
