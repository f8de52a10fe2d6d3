/* documents.h - divides texts into documents of equal length for experiments.
 *
 * A document has `length` tokens and starts at a heading (a line " = Title = " or "# Title") or at
 * a line of a JSONL file. A text that is too short is continued with the text that follows it in
 * the file. The next document starts at the first heading or line after the end of the previous
 * document, so documents never overlap.
 */
#ifndef KVF_ENGINE_DOCUMENTS_H
#define KVF_ENGINE_DOCUMENTS_H

#include "engine/model/tokenizer.h"

/* A document. */
struct document {
    int32_t *ids;     /* [length] owned */
    uint64_t hash;    /* hash of the ids */
    const char *file; /* borrowed */
    int64_t line;     /* line where it starts, from 1 */
};

/* A list of documents of `length` tokens. */
struct documents {
    struct document *doc; /* [n] */
    int n, cap, length;
};

/* Appends the documents of a file, in their order. A file that starts with "{" is JSONL. Its
 * objects have "text", or "question" and "answer", which are joined by a newline. The texts of a
 * JSONL file are joined by a blank line. Any other file is plain text. Without a heading it starts
 * one document at its first line; otherwise the text before the first heading is skipped. Files
 * are UTF-8, and a byte-order mark is dropped. JSON arrays, tables, UTF-16 and compressed files
 * are rejected. Zero ret before the first file and set its length. Returns KVF_OK, KVF_E_IO,
 * KVF_E_FORMAT, KVF_E_LIMIT or KVF_E_NOMEM. */
int documents_read(const struct tokenizer *t, const char *path, struct documents *ret,
                   struct kvf_diag *d);

/* Appends the documents of a part of the file, as documents_read() does. */
struct text_share;
int documents_read_share(const struct tokenizer *t, const char *path,
                         const struct text_share *share, struct documents *ret, struct kvf_diag *d);

/* Shuffles all documents in an order that depends only on the seed. The first n are a random
 * sample, and a prefix of any larger sample. */
void documents_shuffle(struct documents *docs, uint64_t seed);

/* Reads the files and shuffles their documents, and checks that there are at least `docs`. The
 * first `docs` of ret->doc are the sample. Returns as documents_read() does, and KVF_E_LIMIT if
 * there are too few documents. */
struct documents_source {
    const char *const *path; /* [n] */
    int n, docs;
    uint64_t seed;
};
int documents_choose(const struct tokenizer *t, const struct documents_source *from,
                     struct documents *ret, struct kvf_diag *d);

void documents_finish(struct documents *docs); /* accepts a zeroed struct */

#endif
