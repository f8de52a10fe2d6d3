/* buf.c - a growing buffer of bytes (buf.h). */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

static int reserve(struct buf *b, size_t more)
{
    size_t max = b->max ? b->max : (size_t)1 << 30, need;
    if (b->err)
        return b->err;
    if (!mem_add(b->len, more, &need) || need > max)
        return b->err = KVF_E_LIMIT;
    if (need < b->cap)
        return KVF_OK;
    size_t cap = b->cap ? b->cap : 256;
    while (cap <= need)
        cap *= 2;
    char *p = mem_grow(b->data, b->len, cap, 1);
    if (!p)
        return b->err = KVF_E_NOMEM;
    b->data = p;
    b->cap = cap;
    return KVF_OK;
}

void buf_add(struct buf *b, const void *p, size_t n)
{
    if (reserve(b, n))
        return;
    if (n)
        memcpy(b->data + b->len, p, n);
    b->len += n;
    b->data[b->len] = 0;
}

void buf_str(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

void buf_char(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n >= 0 && reserve(b, (size_t)n) == KVF_OK) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

static void add_le(struct buf *b, uint64_t v, size_t n)
{
    unsigned char p[8];
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(v >> (8 * i));
    buf_add(b, p, n);
}

void buf_le16(struct buf *b, uint16_t v)
{
    add_le(b, v, 2);
}
void buf_le32(struct buf *b, uint32_t v)
{
    add_le(b, v, 4);
}
void buf_le64(struct buf *b, uint64_t v)
{
    add_le(b, v, 8);
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->err = KVF_OK;
    if (b->data)
        b->data[0] = 0;
}

void buf_finish(struct buf *b)
{
    mem_free(b->data);
    memset(b, 0, sizeof *b);
}

void buf_base64(struct buf *b, const void *data, size_t n)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i += 3) {
        unsigned v = (unsigned)p[i] << 16 | (i + 1 < n ? (unsigned)p[i + 1] << 8 : 0)
                     | (i + 2 < n ? p[i + 2] : 0u);
        char four[4] = {digit[v >> 18], digit[v >> 12 & 63], digit[v >> 6 & 63], digit[v & 63]};
        for (size_t k = n - i; k < 3; k++)
            four[k + 1] = '=';
        buf_add(b, four, 4);
    }
}
