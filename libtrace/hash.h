/* hash.h - XXH3 of xxHash 0.8 private to libtrace. */
#ifndef KVF_LIBTRACE_HASH_H
#define KVF_LIBTRACE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct hash128 {
    uint64_t low, high;
};

uint64_t hash64(const void *p, size_t n); /* with seed 0 */
struct hash128 hash128_seeded(const void *p, size_t n, uint64_t seed);

#endif
