#include <math.h>
#include <string.h>

#include <kvf/err.h>

#include "base/mem.h"
#include "engine/decode/sampler.h"

struct sampler_item {
    float p;
    int32_t id;
};

int sampler_init(struct sampler *s, double temperature, double top_p, uint64_t seed, int vocab)
{
    *s = (struct sampler){.temperature = temperature, .top_p = top_p, .vocab = vocab};
    rng_init(&s->rng, seed);
    if (temperature > 0)
        s->items = mem_alloc(2, (size_t)vocab * sizeof *s->items);
    return temperature > 0 && !s->items ? KVF_E_NOMEM : KVF_OK;
}

void sampler_finish(struct sampler *s)
{
    mem_free(s->items);
    s->items = NULL;
}

static int32_t greedy(const float *logits, int n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

enum { DIGIT_BITS = 10, DIGITS = 3, RADIX = 1 << DIGIT_BITS };

/* 0 for the largest digit: numbers of [0, 1] have the order of their bits, of which 1 has 30. */
static unsigned digit(const struct sampler_item *x, int d)
{
    uint32_t bits;
    memcpy(&bits, &x->p, sizeof bits);
    return RADIX - 1 - (bits >> (d * DIGIT_BITS) & (RADIX - 1));
}

/* The likeliest first, the smaller id among equals: digit by digit, from the least one on, into the
 * other half of the room and back.  Items come in the order of their ids.  Returns where they are
 * then. */
static struct sampler_item *sort(struct sampler_item *items, int n)
{
    struct sampler_item *from = items, *to = items + n;
    for (int d = 0; d < DIGITS; d++) {
        int at[RADIX] = {0}, before = 0;
        for (int i = 0; i < n; i++)
            at[digit(&from[i], d)]++;
        for (int r = 0; r < RADIX; r++) {
            int count = at[r];
            at[r] = before;
            before += count;
        }
        for (int i = 0; i < n; i++)
            to[at[digit(&from[i], d)]++] = from[i];
        struct sampler_item *other = from;
        from = to;
        to = other;
    }
    return from;
}

int32_t sampler_next(struct sampler *s, const float *logits)
{
    int32_t best = greedy(logits, s->vocab);
    if (s->temperature <= 0)
        return best;
    double total = 0, kept = 0;
    for (int32_t i = 0; i < s->vocab; i++) {
        float p = (float)exp(((double)logits[i] - (double)logits[best]) / s->temperature);
        s->items[i] = (struct sampler_item){p, i};
        total += (double)p;
    }
    const struct sampler_item *items = sort(s->items, s->vocab);
    int n = 0;
    while (n < s->vocab && (n == 0 || kept < s->top_p * total))
        kept += (double)items[n++].p;
    double u = rng_uniform(&s->rng) * kept;
    for (int i = 0; i < n; i++) {
        u -= (double)items[i].p;
        if (u < 0)
            return items[i].id;
    }
    return items[n - 1].id;
}
