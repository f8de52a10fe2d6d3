/* divergence.h - compares next-token distributions. */
#ifndef KVF_ENGINE_DIVERGENCE_H
#define KVF_ENGINE_DIVERGENCE_H

#include <stdbool.h>
#include <stdint.h>

/* A distribution p with which other distributions are compared. */
struct reference {
    int n;               /* size of the vocabulary */
    const float *logits; /* [n] borrowed */
    double *p;           /* [n] owned by the caller */
    /* log-sum-exp of the logits */
    double lse;
    int best; /* argmax; the smallest id of ties */
};

/* Sets r from logits [n]. The caller has set r->n and r->p. */
void reference_set(struct reference *r, const float *logits);

/* A distribution q compared with the reference p, and its score on a target token. */
struct divergence {
    double nll; /* -ln q(target), in nats */
    double kl;  /* sum_i p_i ln(p_i / q_i), in nats; exactly 0 for equal logits */
    bool agree; /* p and q have the same argmax */
    bool right; /* the argmax of q is the target */
};
/* The score of one token: -ln q(target) in nats, and whether it is the argmax. */
struct token_score {
    double nll;
    bool right;
};
struct token_score token_score(const float *logits, int n, int32_t target);

struct divergence divergence(const struct reference *r, const float *logits, int32_t target);

#endif
