/* tiny.h - a small trace with every dtype, head space, axis, codec and type of record, and checks
 * of what a reader returns. Its values depend only on their place. */
#ifndef KVF_TESTS_TINY_H
#define KVF_TESTS_TINY_H

#include <stdbool.h>

#include <kvf/trace.h>

enum {
    TINY_COLUMNS = 8,
    TINY_LISTS = 7 /* the column of intervals */,
    TINY_LAYERS = 2,
    TINY_EPOCHS = 2
};
extern const struct kvf_column tiny_column[TINY_COLUMNS];
extern const struct kvf_shape tiny_shape;
extern const char tiny_meta[], tiny_note[];
extern const uint32_t tiny_steps[TINY_EPOCHS + 1]; /* of each commit; [0] = 0 */

/* Writes the values that belong at this place, in the column's type. */
void tiny_fill(int column, int layer, int head, uint32_t t0, uint32_t n, uint32_t epoch, void *out);
/* Writes the intervals of tokens t0 .. t0 + n - 1 of the trace at this epoch, as
 * kvf_write_intervals expects them: end [n], and at most 8 intervals per token in out. Returns
 * end[n - 1]. */
uint32_t tiny_lists(int layer, int head, uint32_t t0, uint32_t n, uint32_t epoch, uint32_t *end,
                    struct kvf_interval *out);
/* The blobs that every epoch adds: one unpacked and one packed, of at most 128 bytes. */
enum { TINY_BLOBS = 2 };
struct kvf_blob tiny_blob(int k, uint32_t epoch, unsigned char data[128]);
size_t tiny_token(uint32_t i, char out[8]); /* text of token i; some are empty */

/* If true, new traces have no column of intervals and no blobs, which pieces of a trace cannot
 * contain. */
extern bool tiny_plain;

/* Write everything up to and including the commit of epoch; return the first error. */
int tiny_open(const char *path, struct kvf_writer **ret_writer, struct kvf_diag *d);
int tiny_write(struct kvf_writer *w, uint32_t epoch);
int tiny_finish(struct kvf_writer *w, struct kvf_diag *d); /* writes the note and closes */
int tiny_create(const char *path);                         /* writes a complete, closed trace */

struct tiny_seen {
    int heads;     /* readable (column, layer, head) triples */
    int lost;      /* unreadable ones, and unreadable blobs */
    bool wrong;    /* a value, text or note differs: never allowed */
    bool complete; /* all contents of the newest epoch, the note and all texts are present */
};
/* Reads and compares the complete contents of a trace. */
struct tiny_seen tiny_compare(struct kvf_trace *t);

/* Returns the bytes of a file; the caller frees them. */
unsigned char *slurp(const char *path, size_t *ret_n);
/* Makes an anonymous file with these bytes. Its path is valid until the next call. */
const char *as_file(const unsigned char *p, size_t n);
/* Returns "kvf-test-PID-NAME" in $TMPDIR or the system's temporary folder, after removing such a
 * file. */
const char *scratch_path(const char *name);

#endif
