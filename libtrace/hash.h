/* hash.h - XXH3 of xxHash 0.8 private to libtrace. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct hash128 {
    uint64_t low, high;
};

uint64_t hash64(const void *p, size_t n); /* with seed 0 */
struct hash128 hash128_seeded(const void *p, size_t n, uint64_t seed);
