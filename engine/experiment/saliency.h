/* saliency.h - what every entry's weight is worth to the predictions of a text, from one
 * backward pass (docs/reference/saliency.md).
 *
 * Query t of KV head (l, h) sees entry i <= t with the logit s_ti + [t - i >= W] ln w_i.
 * The saliency of the entry is -d loss / d ln w_i at w = the given weights: positive where the
 * entry helps, that is, where a little more weight on it lowers the loss.  The loss is the sum
 * over predictions of queries from `from` on, in nats, of
 *     nll   -ln p(token i + 1 | tokens <= i)
 *     kl    KL(full || weakened): p with all weights 1 against p with those given
 * The last query predicts nothing that is known: entries that no other query sees from behind
 * the window (i >= T - 1 - W) have saliency 0. */
#ifndef KVF_ENGINE_SALIENCY_H
#define KVF_ENGINE_SALIENCY_H

#include <stdbool.h>

#include <kvf/trace.h>

#include "base/table.h"
#include "engine/decode/session.h"

struct saliency_options {
    int window;            /* W >= 1: a query's own entry always has its full weight */
    int from;              /* first query whose prediction is scored, 0 <= from < T - 1 */
    bool kl;               /* its derivative is 0 where all weights are 1 */
    double weight;         /* of every entry, 0.001 to 1 */
    const float *weights;  /* [L, H, T] instead, borrowed; NULL: none */
    bool overwrite;        /* a trace that is written replaces what is at its name */
    const char *precision; /* of the derivatives, for records; NULL: "f32" */
    kvf_watch_fn watch;    /* as pass.h has it */
    void *watch_ctx;
};

/* Measured by engine/train/saliency_pass.h. */
struct saliency {
    int L, H, T, window, from;
    float *value;      /* [n][T] owned */
    double loss;       /* nats, sum over predictions */
    int64_t positions; /* predictions: T - 1 - from */
    size_t bytes;      /* of activations */
    int n;             /* heads: L * H, or those that were selected */
    int *head;         /* [n] their numbers, layer * H + KV head; owned */
};

void saliency_finish(struct saliency *s); /* accepts a zeroed struct */

/* Forgets all heads but those with take[layer * H + KV head] != 0.  Numbers of a run that
 * are compared with it are then to lose the same rows. */
void saliency_select(struct saliency *s, const unsigned char *take);

/* ---- saliency_table.c */

/* What a run on the same tokens said of its entries; each may be NULL. */
struct saliency_run {
    const double *log_beta;   /* [n][T] */
    const double *evict_step; /* [n][T]; INFINITY: alive */
};

/* How saliency goes together with another number, over the entries of a head before
 * T - 1 - W: Spearman's rho. */
struct saliency_rho {
    double rho, low, high; /* 95 %; NaN where one side does not vary */
};
enum saliency_side { SALIENCY_SIGNED, SALIENCY_SIZE, SALIENCY_SIDES }; /* itself, |.| */
/* saliency_rho.c.  of: [n][T].  ret: [n], intervals by bootstrap over tokens;
 * *ret_all: the mean over heads, its interval by bootstrap over layers.  teller is told how many
 * heads are done. KVF_OK or KVF_E_NOMEM. */
int saliency_rhos(const struct saliency *s, enum saliency_side side, const double *of,
                  struct par *pool, const struct teller *teller, struct saliency_rho *ret,
                  struct saliency_rho *ret_all);
/* As above for the entries of all heads together, ranked as one.  KVF_OK or KVF_E_NOMEM. */
int saliency_rho_pooled(const struct saliency *s, enum saliency_side side, const double *of,
                        double *ret_rho);

/* Makes the table "saliency" with a row per entry, head-major.  NULL when memory is out. */
struct table *saliency_table(const struct saliency *s, const struct saliency_run *run);

/* Makes the table "saliency-heads" with a row per head.  beta, evict: [SALIENCY_SIDES][n] or
 * NULL. */
struct table *saliency_table_heads(const struct saliency *s, const struct saliency_rho *beta,
                                   const struct saliency_rho *evict);

/* ---- saliency_write.c */

struct saliency_text {
    const int32_t *ids;   /* [T] */
    const uint8_t *roles; /* [T] enum kvf_role; NULL: all prompt */
    int n_prompt;
};
/* Writes a closed trace of the tokens and the column "saliency" (f32, KV heads, tokens), whole or
 * not at all.  s must hold all heads. */
int saliency_write(const struct engine *e, const struct saliency *s,
                   const struct saliency_options *opt, const struct saliency_text *text,
                   const char *path, struct kvf_diag *d);

#endif
