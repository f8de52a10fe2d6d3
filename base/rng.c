/* rng.c - the random number generator (rng.h). */
#include <math.h>

#include "base/rng.h"

static uint64_t splitmix(uint64_t *x)
{
    uint64_t z = (*x += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t rotl(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

void rng_init(struct rng *r, uint64_t seed)
{
    for (int i = 0; i < 4; i++)
        r->s[i] = splitmix(&seed);
}

uint64_t rng_next(struct rng *r)
{
    uint64_t *s = r->s, out = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return out;
}

double rng_uniform(struct rng *r)
{
    return (double)(rng_next(r) >> 11) * 0x1p-53;
}

uint64_t rng_below(struct rng *r, uint64_t n)
{
    uint64_t limit = UINT64_MAX - UINT64_MAX % n, v;
    do
        v = rng_next(r);
    while (v >= limit);
    return v % n;
}

double rng_normal(struct rng *r)
{
    double u = 1.0 - rng_uniform(r), v = rng_uniform(r);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

uint64_t rng_hash(uint64_t seed, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t x = seed;
    x = splitmix(&x) ^ a;
    x = splitmix(&x) ^ b;
    x = splitmix(&x) ^ c;
    return splitmix(&x);
}

uint64_t rng_hash_bytes(uint64_t seed, const void *p, size_t n)
{
    const unsigned char *byte = p;
    uint64_t x = seed ^ (uint64_t)n, h = splitmix(&x);
    for (size_t at = 0; at < n; at += 8) {
        uint64_t word = 0;
        for (size_t k = 0; k < 8 && at + k < n; k++)
            word |= (uint64_t)byte[at + k] << (8 * k);
        x = h ^ word;
        h = splitmix(&x);
    }
    return h;
}

/* floor(2^64 (e^-1 / 0! + ... + e^-1 / k!)) for k = 0 .. 19; 2^64 - 1 from k = 20 on. */
static const uint64_t poisson1[] = {
    0x5e2d58d8b3bcdf1au, 0xbc5ab1b16779be35u, 0xeb715e1dc1582dc2u, 0xfb23979734a252f1u,
    0xff1025f59174dc3du, 0xffd90f3ba4055e19u, 0xfffa8b71fc72c913u, 0xffff540c0914b3c9u,
    0xffffed1f4aa8f120u, 0xfffffe216e641462u, 0xffffffd4d85d3183u, 0xfffffffc6da262b4u,
    0xffffffffba12d178u, 0xfffffffffb07c64cu, 0xffffffffffab8ea5u, 0xfffffffffffabe22u,
    0xffffffffffffb11au, 0xfffffffffffffba1u, 0xffffffffffffffc5u, 0xfffffffffffffffdu,
};

int rng_poisson1(uint64_t bits)
{
    int k = 0;
    while (k < (int)(sizeof poisson1 / sizeof *poisson1) && bits >= poisson1[k])
        k++;
    return k;
}
