/* divergence.h - one model's next-token distribution against another's. */
#ifndef KVF_ENGINE_DIVERGENCE_H
#define KVF_ENGINE_DIVERGENCE_H

#include <stdbool.h>
#include <stdint.h>

/* A distribution p that others are compared with. */
struct reference {
    int n;               /* entries of the vocabulary */
    const float *logits; /* [n] borrowed */
    double *p;           /* [n] owned by the caller */
    double lse;
    int best; /* argmax; among equals the smallest id */
};

/* Fills r from logits; r->n and r->p are set already. */
void reference_set(struct reference *r, const float *logits);

struct divergence {
    double nll; /* -ln q(target) */
    double kl;  /* sum_i p_i ln(p_i / q_i), nats; exactly 0 for equal logits */
    bool agree; /* p and q have the same argmax */
    bool right; /* the argmax of q is the target */
};
/* What a distribution says of one token: -ln q(target), and whether it is the likeliest. */
struct token_score {
    double nll;
    bool right;
};
struct token_score token_score(const float *logits, int n, int32_t target);

struct divergence divergence(const struct reference *r, const float *logits, int32_t target);

#endif
