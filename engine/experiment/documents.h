/* documents.h - texts cut into documents of equal length, for experiments.
 *
 * A document is `length` tokens that start at a heading (a line " = Title = " or
 * "# Title") or at a line of a JSONL file.  Text that is too short goes on with what
 * follows it in the file; the next document starts at the first heading or line that
 * no document has reached, so documents never overlap. */
#ifndef KVF_ENGINE_DOCUMENTS_H
#define KVF_ENGINE_DOCUMENTS_H

#include "engine/model/tokenizer.h"

struct document {
    int32_t *ids;     /* [length] owned */
    uint64_t hash;    /* of the ids */
    const char *file; /* borrowed */
    int64_t line;     /* where it starts, from 1 */
};

struct documents {
    struct document *doc; /* [n] */
    int n, cap, length;
};

/* Appends the documents of a file, in its order.  A file that starts with "{" is
 * JSONL, whose objects have "text", or "question" and "answer", which a newline joins;
 * JSONL texts are joined by a blank line.  All others are text; without a heading
 * they start one document at their first line, and what comes before the first
 * heading is left out.  Files are UTF-8; a byte-order mark is dropped, and JSON arrays, tables,
 * UTF-16 and compressed files are rejected.  ret must be zeroed before the first file; its length
 * is set by the caller.  KVF_OK, KVF_E_IO, KVF_E_FORMAT, KVF_E_LIMIT, KVF_E_NOMEM. */
int documents_read(const struct tokenizer *t, const char *path, struct documents *ret,
                   struct kvf_diag *d);

/* As documents_read, of a part of the file. */
struct text_share;
int documents_read_share(const struct tokenizer *t, const char *path,
                         const struct text_share *share, struct documents *ret, struct kvf_diag *d);

/* A random order of all documents that depends on the seed alone: the first n are a
 * random choice, and the first of a longer one. */
void documents_shuffle(struct documents *docs, uint64_t seed);

/* Reads the files, shuffles their documents and makes sure that there are `docs`, which
 * the first of ret->doc are then.  As documents_read, and KVF_E_LIMIT for too few. */
struct documents_source {
    const char *const *path; /* [n] */
    int n, docs;
    uint64_t seed;
};
int documents_choose(const struct tokenizer *t, const struct documents_source *from,
                     struct documents *ret, struct kvf_diag *d);

void documents_finish(struct documents *docs); /* accepts a zeroed struct */

#endif
