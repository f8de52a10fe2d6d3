/* digest.c - the digest of the content of a trace (digest.h). */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "libtrace/digest.h"

/* Words of a block: their keys are the same in every block, which has its own factor. */
enum { BLOCK = 1024 };

static uint64_t key[2][BLOCK];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Steele, Lea and Flood 2014 (SplitMix64). */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static void fill(void)
{
    for (uint64_t j = 0; j < BLOCK; j++) {
        key[0][j] = mix(2 * j);
        key[1][j] = mix(2 * j + 1);
    }
}

/* As get_le, which is in another file, but one instruction: this is called for every word. */
static inline uint64_t word_at(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Sum of key times word over n words from number j of a block on. */
static struct hash128 weigh(const unsigned char *p, size_t j, size_t n)
{
    const uint64_t *low = key[0] + j, *high = key[1] + j;
    struct hash128 sum = {0, 0};
    for (size_t i = 0; i < n; i++) {
        uint64_t word = word_at(p + 4 * i);
        sum.low += low[i] * word;
        sum.high += high[i] * word;
    }
    return sum;
}

/* Bytes [at, at + n) of a head's values, all of one block. */
static void add_bytes(struct hash128 *sum, uint64_t head, uint64_t at, const unsigned char *p,
                      size_t n)
{
    uint64_t block = at / (4 * BLOCK);
    struct hash128 part = {0, 0};
    size_t before = at % 4, first = before ? 4 - before : 0, j = at / 4 % BLOCK;
    first = first < n ? first : n;
    unsigned char edge[8] = {0}; /* words that these bytes fill in part */
    if (first) {
        memcpy(edge + before, p, first);
        part = weigh(edge, j++, 1);
    }
    size_t whole = (n - first) / 4, rest = n - first - 4 * whole;
    digest_add(&part, weigh(p + first, j, whole));
    if (rest) {
        memset(edge, 0, sizeof edge);
        memcpy(edge, p + n - rest, rest);
        digest_add(&part, weigh(edge, j + whole, 1));
    }
    sum->low += part.low * (mix(head + 4 * block) | 1);
    sum->high += part.high * (mix(head + 4 * block + 1) | 1);
}

/* The identity of a head of a column. */
static uint64_t place_of(uint64_t column, int layer, int head)
{
    return mix(column + ((uint64_t)layer << 32) + (uint64_t)head);
}

void digest_values(struct hash128 *sum, uint64_t column, int layer, int head, uint32_t t0,
                   uint32_t n, int width, const void *data)
{
    const unsigned char *p = data;
    uint64_t place = place_of(column, layer, head), w = (uint64_t)width;
    uint64_t at = t0 * w, end = at + n * w;
    pthread_once(&once, fill);
    /* that there are values at all: terms of adjacent ranges cancel where they meet */
    sum->low += mix(place + 4 * ((uint64_t)t0 + n) + 2) - mix(place + 4 * (uint64_t)t0 + 2);
    sum->high += mix(place + 4 * ((uint64_t)t0 + n) + 3) - mix(place + 4 * (uint64_t)t0 + 3);
    while (at < end) {
        uint64_t stop = (at / (4 * BLOCK) + 1) * (4 * BLOCK);
        size_t part = (size_t)((stop < end ? stop : end) - at);
        add_bytes(sum, place, at, p, part);
        p += part;
        at += part;
    }
}

void digest_list(struct hash128 *sum, uint64_t column, int layer, int head, uint32_t token,
                 const struct kvf_interval *list, uint32_t n)
{
    uint64_t seed = mix(place_of(column, layer, head) + token);
    digest_add(sum, hash128_seeded(n ? (const void *)list : "", n * sizeof *list, seed));
}

/* A part that is no value: its bytes under a seed of kind and number. */
static struct hash128 item(char kind, uint32_t number, const void *p, size_t n)
{
    return hash128_seeded(p, n, (uint64_t)number << 8 | (unsigned char)kind);
}

void digest_blob(struct hash128 *sum, const struct record *r, const unsigned char *header,
                 const void *data)
{
    enum { TOLD = BLOB_HEADER - 8 }; /* without the hash of the header */
    unsigned char p[TOLD + 24];
    struct hash128 h = hash128_seeded(data, r->raw_len, 0);
    memcpy(p, header, TOLD);
    put_le(p + TOLD, r->layer, 2);
    put_le(p + TOLD + 2, r->head0, 2);
    put_le(p + TOLD + 4, r->t0, 4);
    put_le(p + TOLD + 8, h.low, 8);
    put_le(p + TOLD + 16, h.high, 8);
    digest_add(sum, item('B', 0, p, sizeof p));
}

void digest_meta(struct hash128 *sum, const void *p, size_t n)
{
    digest_add(sum, item('M', 0, p, n));
}

void digest_schema(struct hash128 *sum, const unsigned char *p, size_t n)
{
    size_t layers = n >= 4 ? (size_t)get_le(p, 4) : 0, at = 4 + 4 * layers;
    if (at > n) /* a second schema has not been checked yet */
        at = n;
    digest_add(sum, item('S', 0, p, at));
    for (at += 4; at + COLUMN_ENTRY <= n; at += COLUMN_ENTRY)
        digest_add(sum, item('C', 0, p + at, COLUMN_ENTRY));
}

void digest_tokens(struct hash128 *sum, const unsigned char *p, uint32_t t0, uint32_t n)
{
    const unsigned char *text = p + 4 * (size_t)n;
    uint32_t begin = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t end = (uint32_t)get_le(p + 4 * (size_t)i, 4);
        digest_add(sum, item('T', t0 + i, text + begin, end - begin));
        begin = end;
    }
}

struct hash128 digest_note(const void *p, size_t n)
{
    return item('N', 0, p, n);
}

struct hash128 digest_steps(uint32_t n_steps)
{
    return item('P', n_steps, "", 0);
}

void digest_text(struct hash128 sum, char ret[33])
{
    snprintf(ret, 33, "%016llx%016llx", (unsigned long long)sum.high, (unsigned long long)sum.low);
}
