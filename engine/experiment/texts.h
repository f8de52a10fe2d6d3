/* texts.h - reads a file of text or JSONL, and finds the places where documents may start. */
#ifndef KVF_ENGINE_TEXTS_H
#define KVF_ENGINE_TEXTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* A place where a document may start. It extends to the next one. */
struct unit {
    size_t at, len;
    int64_t line; /* line of the file, from 1 */
};

/* The text of a file, with its units. */
struct text {
    const char *path; /* borrowed */
    struct buf bytes;
    struct unit *unit; /* [n] in their order */
    int n, cap;
};

/* A part of the file by bytes: from the first line that starts at or after from * size to the
 * first line that starts at or after to * size. Adjacent parts neither overlap nor omit a line. */
struct text_share {
    double from, to; /* in [0, 1] */
};

/* Reads UTF-8 text or JSONL. Drops a byte-order mark at the start. Rejects other file types by
 * name (documents.h). Returns KVF_OK, KVF_E_IO, KVF_E_FORMAT, KVF_E_LIMIT or KVF_E_NOMEM with a
 * sentence. Call text_finish() in any case. */
int text_read(const char *path, const struct text_share *share, struct text *ret,
              struct kvf_diag *d);
void text_finish(struct text *t);

#endif
