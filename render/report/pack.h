/* pack.h - numbers as compressed bytes, written as text. */
#ifndef KVF_RENDER_REPORT_PACK_H
#define KVF_RENDER_REPORT_PACK_H

#include <stdint.h>

#include "base/buf.h"

/* Types that a browser has arrays of; little-endian. */
enum pack_type { PACK_U8, PACK_U16, PACK_U32, PACK_I8, PACK_I16, PACK_I32, PACK_F32, PACK_F64 };

extern const char *const pack_names[]; /* "u1", "u2", "u4", "i1", ... */
int pack_width(enum pack_type type);

/* Appends n values that fit the type, a chunk: first bytes of all, then second bytes and so on,
 * deflated (RFC 1950), in base64 (RFC 4648) that ends with the chunk.  KVF_OK, KVF_E_NOMEM or
 * KVF_E_LIMIT. */
int pack_values(struct buf *out, const double *v, int64_t n, enum pack_type type);

#endif
