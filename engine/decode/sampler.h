/* sampler.h - samples the next token from logits: greedy, or with temperature and top-p. */
#ifndef KVF_ENGINE_SAMPLER_H
#define KVF_ENGINE_SAMPLER_H

#include <stdint.h>

#include "base/rng.h"

/* Sampling options and the state of the random numbers. */
struct sampler {
    double temperature; /* 0 = greedy */
    double top_p;       /* (0, 1]; 1 = all */
    struct rng rng;
    uint64_t *weight; /* [vocab] scratch, owned */
    int vocab;
};

/* Initialises s. Returns KVF_OK or KVF_E_NOMEM. */
int sampler_init(struct sampler *s, double temperature, double top_p, uint64_t seed, int vocab);
void sampler_finish(struct sampler *s); /* accepts a zeroed struct */

/* Returns the next token. Greedy: the largest logit, the smaller id if equal. Otherwise draws from
 * softmax(logits / temperature) restricted to the smallest set of likeliest tokens with a
 * probability of top_p or more. engine/kernels/draw.h has the definition. */
int32_t sampler_next(struct sampler *s, const float *logits);
/* Returns the token that sampler_next would return, without consuming its random number. Call
 * sampler_advance to consume it. */
int32_t sampler_draw(struct sampler *s, const float *logits);

/* For sampling on a device: the factor of the logits, the next random number, and its
 * consumption. */
double sampler_scale(const struct sampler *s);
double sampler_chance(const struct sampler *s);
void sampler_advance(struct sampler *s);

/* Returns the smallest id among the largest of n >= 1 logits. NaN is ignored; if all are NaN,
 * returns the last id. */
int32_t sampler_likeliest(const float *logits, int n);

#endif
