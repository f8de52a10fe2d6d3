/* gguf_put.h - private to engine/model: writes metadata in the form of a GGUF file.
 *
 * Errors are stored in m->pairs.err.
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"

/* Metadata that is being written: n pairs. */
struct gguf_put {
    struct buf pairs;
    uint64_t n;
};

void gguf_put_int(struct gguf_put *m, const char *key, int64_t v);
void gguf_put_real(struct gguf_put *m, const char *key, double v); /* as F32 */
void gguf_put_bool(struct gguf_put *m, const char *key, bool v);
void gguf_put_str(struct gguf_put *m, const char *key, const char *s, size_t n);
/* Begin an array with its key and number of elements. The caller appends the elements: texts with
 * gguf_put_text(), numbers with buf_le32() to pairs. */
void gguf_put_strings(struct gguf_put *m, const char *key, uint64_t n);
void gguf_put_text(struct gguf_put *m, const char *s, size_t n);
void gguf_put_ints(struct gguf_put *m, const char *key, uint64_t n);
void gguf_put_reals(struct gguf_put *m, const char *key, uint64_t n);
/* Copies a pair of an open file. */
struct pair;
void gguf_put_pair(struct gguf_put *m, const struct pair *p);
/* Writes an array of bytes with its elements. */
void gguf_put_bytes(struct gguf_put *m, const char *key, const void *p, uint64_t n);
/* Writes an array of bools with its elements, one byte each. */
void gguf_put_bools(struct gguf_put *m, const char *key, const bool *v, uint64_t n);
