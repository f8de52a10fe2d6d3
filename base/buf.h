/* buf.h - growable bytes with a maximum and a sticky error.
 *
 * A zeroed struct is a valid empty buffer.  Appending never fails visibly: the first failure is
 * kept in err (KVF_E_NOMEM or KVF_E_LIMIT), later appends have no effect, and the caller checks
 * once.  data is always NUL-terminated after the first successful append. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <kvf/err.h>

struct buf {
    char *data; /* owned; NULL while empty */
    size_t len; /* bytes in use, terminator not counted */
    size_t cap;
    size_t max; /* maximum number of bytes, without the terminator; 0 = 1 GiB */
    int err;    /* first error, KVF_OK */
};

void buf_add(struct buf *b, const void *p, size_t n);
void buf_str(struct buf *b, const char *s);
void buf_char(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) KVF_PRINTF(2, 3);
void buf_le16(struct buf *b, uint16_t v);
void buf_le32(struct buf *b, uint32_t v);
void buf_le64(struct buf *b, uint64_t v);
void buf_base64(struct buf *b, const void *data, size_t n); /* RFC 4648, one line, padded */
void buf_clear(struct buf *b);                              /* len = 0, err = KVF_OK, memory kept */
void buf_finish(struct buf *b);                             /* frees; accepts a zeroed struct */
