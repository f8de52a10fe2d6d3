/* rng_mix.h - the mixing function of splitmix64 (Steele, Lea and Flood 2014): one definition for C
 * and for CUDA.  A kernel file defines RNG_FN as its own prefix first. */
#pragma once

#include <stdint.h>

#ifndef RNG_FN
#define RNG_FN static inline
#endif

#define RNG_STEP 0x9e3779b97f4a7c15u /* from one state of splitmix64 to the next */

/* Returns the number that splitmix64 gives for the state x. */
RNG_FN uint64_t rng_mix(uint64_t x)
{
    uint64_t z = x + RNG_STEP;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Returns a number that depends on the arguments only, as rng_hash(). */
RNG_FN uint64_t rng_mix_hash(uint64_t seed, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t x = rng_mix(seed) ^ a;
    x = rng_mix(x) ^ b;
    x = rng_mix(x) ^ c;
    return rng_mix(x);
}
