/* divergence.c - compares next-token distributions. */
#include <math.h>

#include "engine/decode/sampler.h"
#include "engine/experiment/divergence.h"

void reference_set(struct reference *r, const float *logits)
{
    double sum = 0;
    r->logits = logits;
    r->best = sampler_likeliest(logits, r->n);
    double max = (double)logits[r->best];
    for (int i = 0; i < r->n; i++)
        sum += r->p[i] = exp((double)logits[i] - max);
    for (int i = 0; i < r->n; i++)
        r->p[i] /= sum;
    r->lse = max + log(sum);
}

/* With p = e^(x - X), q = e^(y - Y), where X and Y are log-sum-exps: KL = sum p ((x - X) - (y -
 * Y)) = sum p (x - y) + Y - X, because p sums to 1. A negative value is a rounding error. */
struct divergence divergence(const struct reference *r, const float *logits, int32_t target)
{
    double sum = 0, kl = 0;
    int best = sampler_likeliest(logits, r->n);
    double max = (double)logits[best];
    for (int i = 0; i < r->n; i++) {
        sum += exp((double)logits[i] - max);
        kl += r->p[i] * ((double)r->logits[i] - (double)logits[i]);
    }
    double lse = max + log(sum);
    return (struct divergence){lse - (double)logits[target], fmax(0, kl + (lse - r->lse)),
                               best == r->best, best == target};
}

struct token_score token_score(const float *logits, int n, int32_t target)
{
    int best = sampler_likeliest(logits, n);
    double sum = 0, max = (double)logits[best];
    for (int i = 0; i < n; i++)
        sum += exp((double)logits[i] - max);
    return (struct token_score){max + log(sum) - (double)logits[target], best == target};
}
