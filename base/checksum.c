/* checksum.c - the checksum of text files (checksum.h). */
#include "base/checksum.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/rng.h"

uint64_t checksum(uint64_t h, const void *p, size_t n)
{
    const unsigned char *byte = p;
    for (size_t at = 0; at < n; at += CHECKSUM_BLOCK)
        h = rng_hash_bytes(h, byte + at, n - at < CHECKSUM_BLOCK ? n - at : CHECKSUM_BLOCK);
    return h;
}

void checksum_text(uint64_t h, char out[CHECKSUM_DIGITS + 1])
{
    snprintf(out, CHECKSUM_DIGITS + 1, "%016" PRIx64, h);
}
