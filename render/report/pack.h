/* pack.h - compresses numbers and writes them as text. */
#pragma once

#include <stdint.h>

#include "base/buf.h"

/* Types of JavaScript's typed arrays, little-endian. */
enum pack_type { PACK_U8, PACK_U16, PACK_U32, PACK_I8, PACK_I16, PACK_I32, PACK_F32, PACK_F64 };

extern const char *const pack_names[]; /* "u1", "u2", "u4", "i1", ... */
/* Returns the bytes per value. */
int pack_width(enum pack_type type);

/* Appends a chunk of n values that fit the type: the first bytes of all values, then the second
 * bytes and so on, deflated (RFC 1950), as base64 (RFC 4648) with padding.  Returns KVF_OK,
 * KVF_E_NOMEM or KVF_E_LIMIT. */
int pack_values(struct buf *out, const double *v, int64_t n, enum pack_type type);
