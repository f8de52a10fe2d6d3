/* parse.h - finds the records of an undamaged trace by the rules in docs/reference/format.md,
 * without any code of the library's reader. */
#ifndef KVF_TESTS_PARSE_H
#define KVF_TESTS_PARSE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct place {
    size_t at, body, end; /* offset of the header; of the payload; end of the padding */
    size_t payload;       /* bytes of the payload */
    int type; /* 1 meta 2 schema 3 tokens 4 column 5 note 6 commit 7 checkpoint 8 index */
    uint32_t epoch;
};

enum { MAX_PLACES = 256 };

static inline uint64_t le(const unsigned char *p, int n)
{
    uint64_t v = 0;
    while (n--)
        v = v << 8 | p[n];
    return v;
}

static inline int parse(const unsigned char *p, size_t n, struct place out[MAX_PLACES])
{
    size_t at = 64;
    int k = 0;
    while (at + 80 <= n && le(p + at, 4) == 0x52465ac5u && k < MAX_PLACES) {
        uint64_t stored = le(p + at + 16, 8), header = le(p + at + 4, 2);
        out[k++] = (struct place){at,     at + header, at + header + (stored + 7) / 8 * 8,
                                  stored, p[at + 6],   (uint32_t)le(p + at + 60, 4)};
        at = out[k - 1].end;
    }
    return k;
}

#endif
