/* utf8.c - decodes and encodes UTF-8 (utf8.h). */
#include "base/utf8.h"

#include <stdbool.h>
#include <string.h>

/* Returns the bytes of a character with this first byte; 0 if it is not a first byte. */
static size_t length_of(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if (first >> 5 == 6)
        return 2;
    if (first >> 4 == 14)
        return 3;
    return first >> 3 == 30 ? 4 : 0;
}

size_t utf8_decode(const char *s, size_t n, uint32_t *cp)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *p = (const unsigned char *)s;
    if (n == 0)
        return 0;
    size_t len = length_of(p[0]);
    if (len == 0 || len > n)
        return 0;
    uint32_t v = len == 1 ? p[0] : p[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if (p[i] >> 6 != 2)
            return 0;
        v = v << 6 | (p[i] & 0x3f);
    }
    if (v < least[len] || v > 0x10ffff || (v >= 0xd800 && v < 0xe000))
        return 0;
    *cp = v;
    return len;
}

size_t utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    size_t len = 2 + (size_t)(cp >= 0x800) + (size_t)(cp >= 0x10000);
    for (size_t i = len - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (cp & 0x3f));
        cp >>= 6;
    }
    out[0] = (char)((0xf00u >> len) | cp);
    return len;
}

int utf8_valid(const char *s, size_t n)
{
    uint32_t cp;
    uint64_t eight;
    while (n) {
        if (n >= sizeof eight) { /* fast path, because most texts are ASCII */
            memcpy(&eight, s, sizeof eight);
            if (!(eight & 0x8080808080808080u)) {
                s += sizeof eight;
                n -= sizeof eight;
                continue;
            }
        }
        size_t len = utf8_decode(s, n, &cp);
        if (!len)
            return 0;
        s += len;
        n -= len;
    }
    return 1;
}

size_t utf8_shown(const char *s, size_t n, char out[UTF8_SHOWN], size_t *ret_len)
{
    static const char digits[] = "0123456789ABCDEF";
    uint32_t cp;
    size_t len = utf8_decode(s, n, &cp), put = 0;
    bool control = len && (cp < 0x20 || (cp >= 0x7f && cp < 0xa0));
    *ret_len = len ? len : 1;
    if (len && cp == '\n')
        return utf8_encode(0x21b5, out);
    if (len && cp == '\t')
        return utf8_encode(0x2192, out);
    for (size_t i = 0; i < *ret_len; i++) {
        unsigned char byte = (unsigned char)s[i];
        if (len && !control) {
            out[put++] = s[i];
            continue;
        }
        out[put++] = '\\';
        out[put++] = 'x';
        out[put++] = digits[byte >> 4];
        out[put++] = digits[byte & 15];
    }
    return put;
}

void utf8_show(struct buf *b, const char *s, size_t n)
{
    char shown[UTF8_SHOWN];
    for (size_t len; n; s += len, n -= len)
        buf_add(b, shown, utf8_shown(s, n, shown, &len));
}
