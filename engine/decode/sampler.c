/* sampler.c - samples the next token on the CPU. */
#include <math.h>
#include <stdbool.h>

#include <kvf/err.h>

#include "base/mem.h"
#include "engine/decode/sampler.h"
#include "engine/kernels/draw.h"

int sampler_init(struct sampler *s, double temperature, double top_p, uint64_t seed, int vocab)
{
    *s = (struct sampler){.temperature = temperature, .top_p = top_p, .vocab = vocab};
    rng_init(&s->rng, seed);
    if (temperature > 0)
        s->weight = MEM_RAW(uint64_t, (size_t)vocab);
    return temperature > 0 && !s->weight ? KVF_E_NOMEM : KVF_OK;
}

void sampler_finish(struct sampler *s)
{
    mem_free(s->weight);
    s->weight = NULL;
}

int32_t sampler_likeliest(const float *logits, int n)
{
    enum { BLOCK = 32 }; /* a block is first tested with vectors: few have a larger logit */
    int32_t best = 0;
    while (isnan(logits[best]) && best + 1 < n)
        best++;
    float most = logits[best];
    for (int32_t i = 0; i < n; i += BLOCK) {
        int many = n - i < BLOCK ? n - i : BLOCK, larger = many < BLOCK;
        for (int k = 0; k < BLOCK && many == BLOCK; k++)
            larger |= logits[i + k] > most;
        for (int k = 0; k < many && larger; k++)
            if (logits[i + k] > most) {
                most = logits[i + k];
                best = i + k;
            }
    }
    return best;
}

/* The candidates of a draw: tokens with weight > least, and the first `ties` tokens with weight =
 * least. */
struct kept {
    uint64_t least, ties, sum;
};

enum { DIGIT_BITS = 8, RADIX = 1 << DIGIT_BITS };

/* Finds the candidates with the wanted sum of weights by a radix search. For each digit, from the
 * most significant, it sums the weights by the value of this digit. It then selects the value, from
 * the largest down, at which the wanted sum is reached. */
static struct kept choose(const struct sampler *s, uint64_t wanted)
{
    struct kept k = {0, 0, 0};
    uint64_t left = wanted;
    for (int at = DRAW_BITS; at >= 0; at -= DIGIT_BITS) {
        uint64_t sum[RADIX] = {0};
        for (int i = 0; i < s->vocab; i++) {
            uint64_t w = s->weight[i];
            if ((w ^ k.least) >> (at + DIGIT_BITS) == 0)
                sum[w >> at & (RADIX - 1)] += w;
        }
        int d = RADIX - 1;
        for (; d > 0 && sum[d] < left; d--)
            left -= sum[d];
        k.least |= (uint64_t)d << at;
    }
    k.ties = draw_ties(left, k.least);
    k.sum = wanted - left + k.ties * k.least;
    return k;
}

/* Returns the first id at which the cumulative weight of the candidates exceeds rank. */
static int32_t find(const struct sampler *s, const struct kept *k, uint64_t rank)
{
    uint64_t before = 0, ties = 0;
    for (int32_t i = 0; i < s->vocab; i++) {
        uint64_t w = s->weight[i];
        bool tie = w == k->least && ties < k->ties;
        ties += tie;
        before += tie || w > k->least ? w : 0;
        if (rank < before)
            return i;
    }
    return s->vocab - 1;
}

int32_t sampler_draw(struct sampler *s, const float *logits)
{
    int32_t best = sampler_likeliest(logits, s->vocab);
    double scale = sampler_scale(s);
    uint64_t total = 0;
    if (s->temperature <= 0)
        return best;
    for (int32_t i = 0; i < s->vocab; i++) {
        s->weight[i] = draw_weight(logits[i], logits[best], scale);
        total += s->weight[i];
    }
    struct kept k = {.least = 1, .ties = (uint64_t)s->vocab, .sum = total};
    if (s->top_p < 1)
        k = choose(s, draw_wanted(total, s->top_p));
    return find(s, &k, draw_rank(k.sum, sampler_chance(s)));
}

int32_t sampler_next(struct sampler *s, const float *logits)
{
    int32_t id = sampler_draw(s, logits);
    sampler_advance(s);
    return id;
}

double sampler_scale(const struct sampler *s)
{
    return DRAW_LOG2_E / s->temperature;
}

double sampler_chance(const struct sampler *s)
{
    struct rng ahead = s->rng;
    return rng_uniform(&ahead);
}

void sampler_advance(struct sampler *s)
{
    if (s->temperature > 0)
        (void)rng_uniform(&s->rng);
}
