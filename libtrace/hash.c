/* hash.c - 64-bit and 128-bit hashes by xxHash (hash.h). */
#include <xxhash.h>

#include "libtrace/hash.h"

uint64_t hash64(const void *p, size_t n)
{
    return XXH3_64bits(p, n);
}

struct hash128 hash128_seeded(const void *p, size_t n, uint64_t seed)
{
    XXH128_hash_t h = XXH3_128bits_withSeed(p, n, seed);
    return (struct hash128){h.low64, h.high64};
}
