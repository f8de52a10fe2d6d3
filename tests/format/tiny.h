/* tiny.h - a small trace with every dtype, head space, axis, codec and type of record, whose
 * values follow from their place alone, and checks of what a reader gives back. */
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

/* The values that belong at this place, in the column's own type. */
void tiny_fill(int column, int layer, int head, uint32_t t0, uint32_t n, uint32_t epoch, void *out);
/* The intervals of tokens t0 .. t0 + n - 1 of the trace of this epoch, as kvf_write_intervals takes
 * them: end [n] and at most 8 a token into out; returns end[n - 1]. */
uint32_t tiny_lists(int layer, int head, uint32_t t0, uint32_t n, uint32_t epoch, uint32_t *end,
                    struct kvf_interval *out);
/* What every epoch adds: a blob that is not packed and one that is, of at most 128 bytes. */
enum { TINY_BLOBS = 2 };
struct kvf_blob tiny_blob(int k, uint32_t epoch, unsigned char data[128]);
size_t tiny_token(uint32_t i, char out[8]); /* text of token i; some are empty */

/* Whether traces made from now on are without the column of intervals and without blobs, which
 * pieces of a trace cannot hold. */
extern bool tiny_plain;

/* Everything up to and with the commit of epoch; the first error. */
int tiny_open(const char *path, struct kvf_writer **ret_writer, struct kvf_diag *d);
int tiny_write(struct kvf_writer *w, uint32_t epoch);
int tiny_finish(struct kvf_writer *w, struct kvf_diag *d); /* the note and the end */
int tiny_create(const char *path);                         /* a whole trace, closed */

struct tiny_seen {
    int heads;     /* (column, layer, head) that could be read */
    int lost;      /* those, and blobs, that could not */
    bool wrong;    /* a value, a text or a note differs: never allowed */
    bool complete; /* all of the newest epoch, the note and all texts are there */
};
/* Reads everything that the trace shows and compares it. */
struct tiny_seen tiny_compare(struct kvf_trace *t);

/* A file as bytes; the caller frees. */
unsigned char *slurp(const char *path, size_t *ret_n);
/* An anonymous file with these bytes: its path stays valid until the next call. */
const char *as_file(const unsigned char *p, size_t n);
/* "kvf-test-PID-NAME" in $TMPDIR or the system's folder for such files, removed first. */
const char *scratch_path(const char *name);

#endif
