/* quality.h - distillation losses: the distance of the student's predictions from the teacher's.
 *
 * Logits are W h, with the output matrix W [V, d] and the hidden states h_s, h_t [T, d] after the
 * final norm. Position i counts if its next token belongs to the same document; N positions count.
 *
 *     fwkl = 1/N sum_i KL(p_t || p_s)       rvkl = 1/N sum_i KL(p_s || p_t)
 *     ntp  = 1/N sum_i -ln p_s(token i + 1)
 *     mse  = mean over all T positions and d channels of (h_s - h_t)^2
 *
 * With `sampled`, the log-probabilities under the sampling policy, a policy objective replaces ntp
 * (G-KV, Eq. 6). With r = p_s(token i + 1) / exp(sampled_i) and the share, with its sign, as A_i,
 *
 *     ntp = -sum_i min(r A_i, clip(r, 1 - range, 1 + range) A_i)
 *
 * and the loss has no other term.
 *
 * If N = 0, the first three terms are 0. Options replace the mean by given shares and divide logits
 * by a temperature. Logits exist for QUALITY_ROWS positions at a time: memory is O(rows * V + T *
 * d). */
#ifndef KVF_ENGINE_TRAIN_QUALITY_H
#define KVF_ENGINE_TRAIN_QUALITY_H

#include <stdbool.h>
#include <stdint.h>

#include <kvf/trace.h>

#include "base/par.h"
#include "engine/kernels/kernels.h"

enum { QUALITY_ROWS = 64 };

/* The terms of the loss, as defined above. */
enum quality_term { QUALITY_FWKL, QUALITY_RVKL, QUALITY_NTP, QUALITY_MSE, QUALITY_TERMS };

/* The output matrix, packed for the forward and backward pass. */
struct output_matrix {
    struct packed logits; /* [V, d] */
    struct packed *back;  /* [n_back]: block b is [d, rows of the vocabulary], a slice of W^T, so
                             that sums stay in registers and the slice in the cache */
    int n_back, slice;    /* tokens of the vocabulary per block (the last block: fewer) */
    int vocab, d;
    const void *device; /* the matrix of a device, which has no packed matrices */
};
/* Packs w [vocab, d], row-major. Returns KVF_OK or KVF_E_NOMEM. */
int output_matrix_build(const float *w, int vocab, int d, struct output_matrix *ret);
/* Packs new values of W into an existing struct. */
void output_matrix_fill(const float *w, struct output_matrix *m);
void output_matrix_finish(struct output_matrix *m); /* accepts a zeroed struct */

/* The inputs of a loss. */
struct quality {
    const struct kernels *kernels;
    const struct output_matrix *out, *teacher_out; /* teacher_out NULL: out */
    int T;
    const float *student, *teacher; /* [T, d] */
    const int32_t *ids;             /* [T] */
    const int32_t *first;           /* [T] first token of the document of each token */
    double weight[QUALITY_TERMS];
    float *d_matrix;      /* [V, d] receives the gradient by W, added; NULL: not computed */
    float cap;            /* logits become cap tanh(logit / cap); 0: no cap */
    double temperature;   /* divides logits before every term; 0: 1 */
    const float *share;   /* [T] factor of each position's term; NULL: 1/N */
    const float *sampled; /* [T] with share: policy objective; NULL: ntp */
    double range;         /* clip range of the ratios around 1 */
    kvf_watch_fn watch;   /* on the CPU, receives the number of positions done, of T; may be NULL */
    void *watch_ctx;
};

/* A position that counts: its share in every term, its terms, and the factors of the gradient by
 * the student's logits. */
struct quality_row {
    double share;
    double slope;  /* replaces the share in gradients; differs from it for a policy objective */
    float sampled; /* log-probability under the sampling policy */
    struct kl_coef coef;
    double term[QUALITY_MSE];
};
/* Computes coef and term from the sums of a complete row and the student's logit of the next
 * token. */
void quality_finish(const struct quality *q, bool kl, const struct kl_part *p, float logit,
                    struct quality_row *r);
/* Returns true if position i counts. */
bool quality_counts(const struct quality *q, int i);
/* Returns 1 / temperature. Hidden states are multiplied by it, since logits are linear in them. */
float quality_colder(const struct quality *q);

/* The terms of a loss. */
struct quality_result {
    double term[QUALITY_TERMS]; /* unweighted; NaN for terms of weight 0 */
    int64_t positions;          /* N */
};

/* Computes the loss terms and sets d_student [T, d] to the gradient of sum weight * term. scratch:
 * quality_scratch bytes, 64-byte aligned. Results do not depend on the number of threads. */
size_t quality_scratch(const struct quality *q, int n_threads);
void quality_loss(const struct quality *q, float *d_student, struct quality_result *ret,
                  struct par *pool, void *scratch);

#endif
