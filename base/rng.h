/* rng.h - seeded generator, the same on every machine (xoshiro256**, seeded by
 * splitmix64; Blackman and Vigna 2018). */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct rng {
    uint64_t s[4];
};

void rng_init(struct rng *r, uint64_t seed);
uint64_t rng_next(struct rng *r);
double rng_uniform(struct rng *r);             /* [0, 1), 53 bits */
uint64_t rng_below(struct rng *r, uint64_t n); /* [0, n), unbiased; n > 0 */
double rng_normal(struct rng *r);              /* mean 0, variance 1 */
/* A value that depends only on the arguments: for scores that must not depend
 * on the order of calls. */
uint64_t rng_hash(uint64_t seed, uint64_t a, uint64_t b, uint64_t c);
/* As rng_hash, of n bytes: 8 at a time, little endian, the last filled up with zeros.  Not fit for
 * secrets. */
uint64_t rng_hash_bytes(uint64_t seed, const void *p, size_t n);
/* A number of the Poisson distribution of mean 1, made of 64 uniform bits by the inverse of the
 * distribution; it is at most 20. */
int rng_poisson1(uint64_t bits);
