/* quality.h - how far the student's predictions are from the teacher's.
 *
 * h_s, h_t: [T, d] hidden states after the final norm; logits = W h, W the output matrix
 * [V, d].  Position i counts when its next token belongs to the same document: N of them.
 *     fwkl = 1/N sum_i KL(p_t || p_s)       rvkl = 1/N sum_i KL(p_s || p_t)
 *     ntp  = 1/N sum_i -ln p_s(token i + 1)
 *     mse  = mean over all T positions and d channels of (h_s - h_t)^2
 * A policy's objective takes the place of ntp where `sampled` has log-probabilities of the one that
 * sampled (G-KV, Eq. 6): with r = p_s(token i + 1) / exp(sampled_i) and the share for A_i, its sign
 * included,     ntp = -sum_i min(r A_i, clip(r, 1 - range, 1 + range) A_i),
 * and there is no other term.
 * N = 0: the first three are 0.  The mean may be one of shares, and logits W h / temperature.
 * Logits exist for QUALITY_ROWS positions at a time: memory O(rows * V + T * d). */
#ifndef KVF_ENGINE_TRAIN_QUALITY_H
#define KVF_ENGINE_TRAIN_QUALITY_H

#include <stdbool.h>
#include <stdint.h>

#include <kvf/trace.h>

#include "base/par.h"
#include "engine/kernels/kernels.h"

enum { QUALITY_ROWS = 64 };

enum quality_term { QUALITY_FWKL, QUALITY_RVKL, QUALITY_NTP, QUALITY_MSE, QUALITY_TERMS };

/* The output matrix, packed for both directions. */
struct output_matrix {
    struct packed logits; /* [V, d] */
    struct packed *back;  /* [n_back]: block b is [d, rows of the vocabulary]: W^T in slices,
                             so that sums stay in registers and the slice in the cache */
    int n_back, slice;    /* slice: tokens of the vocabulary per block (the last: fewer) */
    int vocab, d;
    const void *there; /* of a device, which has no packs */
};
/* w: [vocab, d] row-major.  KVF_OK or KVF_E_NOMEM. */
int output_matrix_build(const float *w, int vocab, int d, struct output_matrix *ret);
/* Takes W anew into a built matrix. */
void output_matrix_fill(const float *w, struct output_matrix *m);
void output_matrix_finish(struct output_matrix *m); /* accepts a zeroed struct */

struct quality {
    const struct kernels *kernels;
    const struct output_matrix *out, *teacher_out; /* teacher_out NULL: out */
    int T;
    const float *student, *teacher; /* [T, d] */
    const int32_t *ids;             /* [T] */
    const int32_t *first;           /* [T] the first token of the document of token t */
    double weight[QUALITY_TERMS];
    float *d_matrix;      /* [V, d] the derivative by W is added; NULL: not wanted */
    float cap;            /* logits become cap tanh(logit / cap); 0: they stay */
    double temperature;   /* logits are divided by it before every term; 0: 1 */
    const float *share;   /* [T] position i adds share[i] term_i instead of 1/N; NULL: 1/N */
    const float *sampled; /* [T] with share: a policy's objective; NULL: ntp */
    double range;         /* of its ratios about 1 */
    kvf_watch_fn watch;   /* told on the processor how many of T positions are done; may be NULL */
    void *watch_ctx;
};

/* A position that counts: its share in every term, its terms, and the factors of its derivatives
 * by the student's logits. */
struct quality_row {
    double share;
    double slope;  /* derivatives have it in the place of the share: other for a policy */
    float sampled; /* of a policy's objective */
    struct kl_coef coef;
    double term[QUALITY_MSE];
};
/* Fills coef and term from the sums of a whole row and the student's logit of the next token. */
void quality_finish(const struct quality *q, bool kl, const struct kl_part *p, float logit,
                    struct quality_row *r);
bool quality_counts(const struct quality *q, int i);
/* What hidden states are multiplied with: logits are linear in them. */
float quality_colder(const struct quality *q);

struct quality_result {
    double term[QUALITY_TERMS]; /* unweighted; NaN for terms of weight 0 */
    int64_t positions;          /* N */
};

/* d_student [T, d] becomes the derivative of sum weight * term (set).  scratch:
 * quality_scratch bytes, 64-byte aligned.  The same bits for any number of threads. */
size_t quality_scratch(const struct quality *q, int n_threads);
void quality_loss(const struct quality *q, float *d_student, struct quality_result *ret,
                  struct par *pool, void *scratch);

#endif
