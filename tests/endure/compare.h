/* compare.h - what a good trace holds at each of its commits, and whether another file, which is
 * what damage or a loss of power made of it, shows anything else.  Records and commits are found by
 * tests/format/parse.h, not by the library's reader. */
#ifndef KVF_TESTS_COMPARE_H
#define KVF_TESTS_COMPARE_H

#include <stdbool.h>
#include <stddef.h>

#include <kvf/trace.h>

struct reference;

/* The trace at this path, and the tail beside it where there is one.  The files stay as they are
 * for the call alone.  NULL: it cannot be read. */
struct reference *reference_open(const char *path);
void reference_close(struct reference *r); /* accepts NULL */

/* What the first `len` bytes of the file must show, of which all is whole. */
struct reference_promise {
    bool readable; /* run header and schema are there */
    uint32_t epoch, n_steps;
};
struct reference_promise reference_promise(const struct reference *r, size_t len);
/* Whether the byte at `at` only fills up a record. */
bool reference_is_padding(const struct reference *r, size_t at);

struct shown {
    bool wrong;    /* something differs: never allowed */
    unsigned lost; /* columns of a head, texts of tokens and notes that cannot be read */
    bool complete; /* it shows all that the reference does */
    uint32_t epoch, n_steps;
};
/* Reads everything that a trace shows.  Where the reference has no commit of as many steps, as it
 * is with the tail of another moment, columns that are snapshots are left aside. */
struct shown reference_compare(const struct reference *r, struct kvf_trace *t);

#endif
