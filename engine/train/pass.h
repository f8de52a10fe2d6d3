/* pass.h - the loss of a pack of tokens and its derivatives: teacher, student, backward.
 *
 * docs/reference/gates.md states the losses. */
#ifndef KVF_ENGINE_TRAIN_PASS_H
#define KVF_ENGINE_TRAIN_PASS_H

#include <kvf/trace.h>

#include "engine/train/block.h"
#include "engine/train/capacity.h"
#include "engine/train/packs.h"
#include "engine/train/quality.h"
#include "engine/train/teacher_states.h"

struct pass_options {
    enum gating gating;
    int window;                    /* GATING_WRITE */
    double quality[QUALITY_TERMS]; /* weights */
    double lambda;                 /* of capacity or sparsity */
    double M;                      /* retention gates: entries per head */
    bool global;
    enum capacity_norm norm;
    bool offset;                 /* write gates: the sparsity loss's offset */
    double temperature;          /* of the quality terms' logits; 0: 1 */
    bool recompute;              /* one tape: a fifth more time, an eighth of the memory */
    struct teacher_states *kept; /* borrowed: where the teacher's states are kept; may be NULL */
    kvf_watch_fn watch;          /* told how many of how many layers a pass has gone through, there
                                  * and back; the product with the vocabulary counts as the layers
                                  * of as many products.  NULL: nobody is told */
    void *watch_ctx;
};

struct pass_loss {
    double total, term[QUALITY_TERMS], limit; /* limit: capacity or sparsity, unweighted */
    double value;      /* mean over tokens, layers and heads of exp(log beta) or of g */
    int64_t positions; /* predictions scored */
};

struct pass;

/* most: tokens of the longest pack.  c, f and net are borrowed; net NULL: every gate is
 * open (g = 1), for derivatives by entries.  KVF_OK or KVF_E_NOMEM. */
int pass_create(const struct compute *c, const struct frozen *f, const struct net *net,
                const struct pass_options *opt, int most, struct pass **ret_pass);
void pass_destroy(struct pass *p); /* accepts NULL */
size_t pass_bytes(const struct pass *p);

/* Of a pass without net: weights [L, T, H] in place of g = 1, borrowed; those below MIN_WRITE_GATE
 * count as MIN_WRITE_GATE.  NULL: 1 again. */
void pass_fix_gates(struct pass *p, const float *g);

/* Weights that learn: derivatives by them are added to d_w [t->n] by pass_run, whose grad may be
 * NULL then; the student is t->frozen.  t is borrowed; NULL: none learn. */
void pass_tune(struct pass *p, const struct trainable *t, float *d_w);
/* Evictions of the student's entries, [L, T, H] as attention.h has them, borrowed; NULL: none. */
void pass_mask(struct pass *p, const int32_t *evicted_at);
/* Other weights of the quality terms than those of the options. */
void pass_weigh(struct pass *p, const double quality[QUALITY_TERMS]);
/* Shares of positions as quality.h has them, borrowed; NULL: all alike. */
void pass_share(struct pass *p, const float *share);
/* Log-probabilities of the policy that sampled, as quality.h has them, borrowed, and the range of
 * ratios; NULL: ntp is that of the tokens. */
void pass_policy(struct pass *p, const float *sampled, double range);

/* Adds weight times the derivatives by the parameters to grad [net->n], there as d_w is (ops.h).
 * d_entry, when not NULL: [L, T, H] derivatives of the loss by what attention adds for each entry,
 * here.  What failed on a device is told by its check. */
void pass_run(struct pass *p, const struct pack *pack, double weight, float *grad, float *d_entry,
              struct pass_loss *ret);

#endif
