/* utf8.h - decodes, encodes and escapes UTF-8. */
#ifndef KVF_BASE_UTF8_H
#define KVF_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Reads one code point from s[0..n). Returns its length in bytes and sets *cp. Returns 0 if the
 * bytes are not well-formed UTF-8 or n is 0. */
size_t utf8_decode(const char *s, size_t n, uint32_t *cp);

/* Writes 1 to 4 bytes to out and returns their number; cp <= 0x10FFFF. */
size_t utf8_encode(uint32_t cp, char out[4]);

/* Returns 1 if all n bytes are well-formed UTF-8. */
int utf8_valid(const char *s, size_t n);

/* maximum bytes of an escaped character */
enum { UTF8_SHOWN = 16 };

/* Writes the first character of s[0..n), n > 0, to out in a form that is safe on any terminal,
 * without a terminator. Returns the bytes written; *ret_len is the number of bytes of s that were
 * read. A newline becomes U+21B5 and a tab U+2192. Other control characters, including U+0080 to
 * U+009F, and ill-formed bytes become \xNN. */
size_t utf8_shown(const char *s, size_t n, char out[UTF8_SHOWN], size_t *ret_len);

/* Appends a text, escaped as utf8_shown() does. */
void utf8_show(struct buf *b, const char *s, size_t n);

#endif
