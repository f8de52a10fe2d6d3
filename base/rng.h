/* rng.h - a seeded random generator with equal results on every machine (xoshiro256**, seeded by
 * splitmix64; Blackman and Vigna 2018). */
#ifndef KVF_BASE_RNG_H
#define KVF_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* The state of a generator. */
struct rng {
    uint64_t s[4];
};

void rng_init(struct rng *r, uint64_t seed);
uint64_t rng_next(struct rng *r);
double rng_uniform(struct rng *r);             /* [0, 1), 53 bits */
uint64_t rng_below(struct rng *r, uint64_t n); /* [0, n), unbiased; n > 0 */
double rng_normal(struct rng *r);              /* mean 0, variance 1 */
/* Returns a value that depends only on the arguments, for scores that must not depend on the order
 * of calls. */
uint64_t rng_hash(uint64_t seed, uint64_t a, uint64_t b, uint64_t c);
/* Hashes n bytes: 8 at a time, little-endian, with the last ones zero-padded. Not suitable for
 * secrets. */
uint64_t rng_hash_bytes(uint64_t seed, const void *p, size_t n);
/* Returns a Poisson number with mean 1, at most 20, from 64 uniform bits by the inverse of the
 * distribution. */
int rng_poisson1(uint64_t bits);

#endif
