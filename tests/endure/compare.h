/* compare.h - the contents of an undamaged trace at each of its commits, and a check that a damaged
 * copy (or one after a power loss) shows no other contents. Records and commits are found by
 * tests/format/parse.h, not by the library's reader. */
#ifndef KVF_TESTS_COMPARE_H
#define KVF_TESTS_COMPARE_H

#include <stdbool.h>
#include <stddef.h>

#include <kvf/trace.h>

struct reference;

/* Opens the trace at the path, with its tail if there is one. The files are needed during the call
 * only. Returns NULL if the trace cannot be read. */
struct reference *reference_open(const char *path);
void reference_close(struct reference *r); /* accepts NULL */

/* The contents that the first `len` bytes of an undamaged file must show. */
struct reference_promise {
    bool readable; /* run header and schema are readable */
    uint32_t epoch, n_steps;
};
struct reference_promise reference_promise(const struct reference *r, size_t len);
/* Returns true if the byte at `at` is padding of a record. */
bool reference_is_padding(const struct reference *r, size_t at);

struct shown {
    bool wrong;    /* some content differs: never allowed */
    unsigned lost; /* columns of a head, token texts and notes that cannot be read */
    bool complete; /* shows all contents of the reference */
    uint32_t epoch, n_steps;
};
/* Reads and compares the complete contents of a trace. If no commit of the reference has the same
 * number of steps, as with the tail of another time, snapshot columns are not compared. */
struct shown reference_compare(const struct reference *r, struct kvf_trace *t);

#endif
