/* buf.h - a growable byte buffer with a maximum size and a sticky error.
 *
 * A zeroed struct is a valid empty buffer. Appending returns no error: the first failure is stored
 * in err (KVF_E_NOMEM or KVF_E_LIMIT), later appends have no effect, and the caller checks once.
 * After the first successful append data is always NUL-terminated.
 */
#ifndef KVF_BASE_BUF_H
#define KVF_BASE_BUF_H

#include <stddef.h>
#include <stdint.h>

#include <kvf/err.h>

/* A growable buffer. */
struct buf {
    char *data; /* owned; NULL while empty */
    size_t len; /* bytes in use, without the terminator */
    size_t cap;
    size_t max; /* maximum bytes without the terminator; 0 for 1 GiB */
    int err;    /* first error, or KVF_OK */
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

#endif
