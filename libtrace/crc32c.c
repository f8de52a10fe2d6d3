/* crc32c.c - CRC-32C (crc32c.h). */
#include <pthread.h>
#include <string.h>

#include "libtrace/crc32c.h"

static uint32_t table[8][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++)
            c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
        table[0][i] = c;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++)
            table[t][i] = table[t - 1][i] >> 8 ^ table[0][table[t - 1][i] & 255];
}

/* Slicing by 8 (Kounavis and Berry 2005). */
uint32_t crc32c_portable(uint32_t crc, const void *data, size_t n)
{
    const unsigned char *p = data;
    pthread_once(&once, fill);
    crc = ~crc;
    for (; n >= 8; n -= 8, p += 8) {
        uint32_t lo = crc
                      ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16
                         | (uint32_t)p[3] << 24);
        crc = table[7][lo & 255] ^ table[6][lo >> 8 & 255] ^ table[5][lo >> 16 & 255]
              ^ table[4][lo >> 24] ^ table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]]
              ^ table[0][p[7]];
    }
    for (; n; n--, p++)
        crc = table[0][(crc ^ *p) & 255] ^ crc >> 8;
    return ~crc;
}

#if defined(__x86_64__)
/* The instruction gives its result three cycles after it began, and another can begin in each:
 * three stretches of the data are summed at once, and their sums joined. */
enum { STRETCH = 1 << 10 };
static uint32_t shifted[4][256]; /* by byte of a sum: its value after STRETCH zero bytes */
static pthread_once_t shifts_once = PTHREAD_ONCE_INIT;

__attribute__((target("sse4.2"))) static void fill_shifts(void)
{
    for (int bit = 0; bit < 32; bit++) {
        uint64_t c = (uint32_t)1 << bit;
        for (int i = 0; i < STRETCH; i += 8)
            c = __builtin_ia32_crc32di(c, 0);
        shifted[bit / 8][1 << bit % 8] = (uint32_t)c;
    }
    for (int byte = 0; byte < 4; byte++) /* the sum of a sum of bits is that of their sums */
        for (int v = 1; v < 256; v++)
            shifted[byte][v] = shifted[byte][v & (v - 1)] ^ shifted[byte][v & -v];
}

static uint32_t shift(uint32_t c)
{
    return shifted[0][c & 255] ^ shifted[1][c >> 8 & 255] ^ shifted[2][c >> 16 & 255]
           ^ shifted[3][c >> 24];
}

__attribute__((target("sse4.2"))) static uint32_t stretches(uint32_t crc, const unsigned char *p)
{
    uint64_t a = crc, b = 0, c = 0, v[3];
    for (const unsigned char *end = p + STRETCH; p < end; p += 8) {
        memcpy(&v[0], p, 8);
        memcpy(&v[1], p + STRETCH, 8);
        memcpy(&v[2], p + 2 * STRETCH, 8);
        a = __builtin_ia32_crc32di(a, v[0]);
        b = __builtin_ia32_crc32di(b, v[1]);
        c = __builtin_ia32_crc32di(c, v[2]);
    }
    return shift(shift((uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
}

__attribute__((target("sse4.2"))) static uint32_t hardware(uint32_t crc, const unsigned char *p,
                                                           size_t n)
{
    uint64_t c = ~crc, v;
    if (n >= 3 * STRETCH)
        pthread_once(&shifts_once, fill_shifts);
    for (; n >= 3 * STRETCH; n -= 3 * STRETCH, p += 3 * STRETCH)
        c = stretches((uint32_t)c, p);
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&v, p, 8);
        c = __builtin_ia32_crc32di(c, v);
    }
    for (; n; n--, p++)
        c = __builtin_ia32_crc32qi((uint32_t)c, *p);
    return ~(uint32_t)c;
}
#endif

uint32_t crc32c(uint32_t crc, const void *data, size_t n)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        return hardware(crc, data, n);
#endif
    return crc32c_portable(crc, data, n);
}
