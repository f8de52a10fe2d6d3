/* utf8.h - decoding and showing bytes that should be UTF-8. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Reads one code point from s[0..n).  Returns its length in bytes and sets *cp;
 * returns 0 when the bytes are not well-formed UTF-8 (or n == 0). */
size_t utf8_decode(const char *s, size_t n, uint32_t *cp);

/* Writes 1 to 4 bytes to out; returns how many. cp <= 0x10FFFF. */
size_t utf8_encode(uint32_t cp, char out[4]);

/* 1 when all n bytes are well-formed UTF-8. */
int utf8_valid(const char *s, size_t n);

/* Room for a character in its readable form. */
enum { UTF8_SHOWN = 16 };

/* Puts the first character of s[0..n) into out in a form that is safe on any terminal, and returns
 * its bytes, without a terminator; *ret_len: the number of bytes of s that it encodes.  Newline is
 * U+21B5, tab U+2192; other control characters, with U+0080 to U+009F, and ill-formed bytes are
 * \xNN.  n > 0. */
size_t utf8_shown(const char *s, size_t n, char out[UTF8_SHOWN], size_t *ret_len);

/* Appends text in that form. */
void utf8_show(struct buf *b, const char *s, size_t n);
