/* sampler.h - the next token from logits: greedy, or temperature and top-p. */
#ifndef KVF_ENGINE_SAMPLER_H
#define KVF_ENGINE_SAMPLER_H

#include <stdint.h>

#include "base/rng.h"

struct sampler {
    double temperature; /* 0 = greedy */
    double top_p;       /* (0, 1]; 1 = all */
    struct rng rng;
    uint64_t *weight; /* [vocab] scratch, owned */
    int vocab;
};

/* KVF_OK or KVF_E_NOMEM. */
int sampler_init(struct sampler *s, double temperature, double top_p, uint64_t seed, int vocab);
void sampler_finish(struct sampler *s); /* accepts zeroed */

/* Greedy: the largest logit, the smaller id among equals.  Otherwise draws from
 * softmax(logits / temperature) restricted to the smallest set of likeliest
 * tokens whose probability reaches top_p; engine/kernels/draw.h has the definition. */
int32_t sampler_next(struct sampler *s, const float *logits);
/* What sampler_next would draw; the number stays for the next draw, until sampler_took. */
int32_t sampler_draw(struct sampler *s, const float *logits);

/* For who draws elsewhere what sampler_next would: the factor of logits, the number that the next
 * draw takes, and that it has been taken. */
double sampler_scale(const struct sampler *s);
double sampler_chance(const struct sampler *s);
void sampler_took(struct sampler *s);

/* The smallest id among the largest of n >= 1 logits, which no NaN is; the last where all are. */
int32_t sampler_likeliest(const float *logits, int n);

#endif
