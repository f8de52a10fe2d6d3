/* digest.h - the digest of the content of a trace, independent of chunks and codecs; private to
 * libtrace.  docs/reference/format.md, section 9, defines the sum.
 *
 * A digest is a sum of two numbers modulo 2^64 over all parts of the content, so that parts can be
 * added in any order and subtracted again. */
#pragma once

#include "libtrace/layout.h"

/* Values of one head at indices t0 .. t0 + n - 1; width: bytes of each.  column: hash64 of the
 * column's name. */
void digest_values(struct hash128 *sum, uint64_t column, int layer, int head, uint32_t t0,
                   uint32_t n, int width, const void *data); /* as in the file */
/* The n intervals of one token of a head, in the layout of the file. */
void digest_list(struct hash128 *sum, uint64_t column, int layer, int head, uint32_t token,
                 const struct kvf_interval *list, uint32_t n);
/* A blob: header [BLOB_HEADER] of its payload, data [r->raw_len] its elements. */
void digest_blob(struct hash128 *sum, const struct record *r, const unsigned char *header,
                 const void *data); /* as in the file */
/* Payloads of META, SCHEMA, TOKENS and NOTE records.  Texts must be well formed; of a schema that
 * is not, any digest is as good. */
void digest_meta(struct hash128 *sum, const void *p, size_t n);
void digest_schema(struct hash128 *sum, const unsigned char *p, size_t n);
void digest_tokens(struct hash128 *sum, const unsigned char *p, uint32_t t0, uint32_t n);
struct hash128 digest_note(const void *p, size_t n);
struct hash128 digest_steps(uint32_t n_steps);

static inline void digest_add(struct hash128 *sum, struct hash128 part)
{
    sum->low += part.low;
    sum->high += part.high;
}

static inline void digest_take(struct hash128 *sum, struct hash128 part)
{
    sum->low -= part.low;
    sum->high -= part.high;
}

void digest_text(struct hash128 sum, char ret[33]); /* the high number first */
