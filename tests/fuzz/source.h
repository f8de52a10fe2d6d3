/* source.h - the bytes of a fuzz input in sequence, followed by zeros. */
#ifndef KVF_TESTS_FUZZ_SOURCE_H
#define KVF_TESTS_FUZZ_SOURCE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct source {
    const uint8_t *p;
    size_t n; /* remaining bytes */
};

/* Takes the next `bytes` (at most 8) bytes as a little-endian number. */
static inline uint64_t take(struct source *s, size_t bytes)
{
    uint64_t v = 0;
    size_t n = bytes < s->n ? bytes : s->n;
    memcpy(&v, s->p, n);
    s->p += n;
    s->n -= n;
    return v;
}

/* Takes at most `most` bytes; *ret_n is their number. */
static inline const char *take_text(struct source *s, size_t most, size_t *ret_n)
{
    const char *text = (const char *)s->p;
    *ret_n = most < s->n ? most : s->n;
    s->p += *ret_n;
    s->n -= *ret_n;
    return text;
}

#endif
