#include <math.h>
#include <stdlib.h>
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
        s->items = mem_alloc((size_t)vocab, sizeof *s->items);
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

static int likelier_first(const void *a, const void *b)
{
    const struct sampler_item *x = a, *y = b;
    if (x->p != y->p)
        return x->p > y->p ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
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
    qsort(s->items, (size_t)s->vocab, sizeof *s->items, likelier_first);
    int n = 0;
    while (n < s->vocab && (n == 0 || kept < s->top_p * total))
        kept += (double)s->items[n++].p;
    double u = rng_uniform(&s->rng) * kept;
    for (int i = 0; i < n; i++) {
        u -= (double)s->items[i].p;
        if (u < 0)
            return s->items[i].id;
    }
    return s->items[n - 1].id;
}
