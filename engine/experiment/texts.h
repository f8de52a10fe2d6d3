/* texts.h - a file of text or JSONL as the model reads it, and where documents may start. */
#ifndef KVF_ENGINE_TEXTS_H
#define KVF_ENGINE_TEXTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* A place where a document may start; it reaches up to the next one. */
struct unit {
    size_t at, len;
    int64_t line; /* of the file, from 1 */
};

struct text {
    const char *path; /* borrowed */
    struct buf bytes;
    struct unit *unit; /* [n] in order */
    int n, cap;
};

/* A part of the file by bytes: from the first line that starts at or after from * size to
 * the one that starts at or after to * size; shares that meet neither overlap nor leave
 * anything out. */
struct text_share {
    double from, to; /* in [0, 1] */
};

/* Reads UTF-8 text or JSONL: a byte-order mark at the start is dropped, other files are rejected by
 * name (documents.h).  KVF_OK, KVF_E_IO, KVF_E_FORMAT, KVF_E_LIMIT or
 * KVF_E_NOMEM with a sentence; text_finish is due in any case. */
int text_read(const char *path, const struct text_share *share, struct text *ret,
              struct kvf_diag *d);
void text_finish(struct text *t);

#endif
