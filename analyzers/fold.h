/* fold.h - words that differ in case, or in punctuation around them, made one. */
#ifndef KVF_ANALYZERS_FOLD_H
#define KVF_ANALYZERS_FOLD_H

#include "base/buf.h"

struct fold;

struct fold *fold_create(void);    /* NULL when memory is out */
void fold_destroy(struct fold *f); /* accepts NULL */

/* Appends s, which is well-formed UTF-8, folded: each letter becomes the lower case that Unicode
 * gives it by itself, and \p{P} at both ends is left out unless there is nothing else.  KVF_OK or
 * KVF_E_NOMEM. */
int fold_word(struct fold *f, const char *s, size_t n, struct buf *out);

#endif
