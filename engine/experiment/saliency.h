/* saliency.h - the saliency of every cache entry for the predictions of a text, from one backward
 * pass (docs/reference/analyses/saliency.md).
 *
 * Query t of KV head (l, h) sees entry i <= t with the logit s_ti + [t - i >= W] ln w_i. The
 * saliency of the entry is -d loss / d ln w_i at the given weights w. It is positive if the entry
 * helps, which means that a slightly larger weight lowers the loss. The loss is a sum over the
 * predictions of queries `from` and later, in nats, of
 *     nll   -ln p(token i + 1 | tokens <= i)
 *     kl    KL(full || weakened): p with all weights 1 against p with the given weights
 * The last query predicts no known token. Entries that no other query sees outside the window (i
 * >= T - 1 - W) have saliency 0.
 */
#ifndef KVF_ENGINE_SALIENCY_H
#define KVF_ENGINE_SALIENCY_H

#include <stdbool.h>

#include <kvf/trace.h>

#include "base/table.h"
#include "engine/decode/session.h"

/* Options of a saliency computation. */
struct saliency_options {
    int window;           /* W >= 1, so a query's own entry always has full weight */
    int from;             /* first query whose prediction is scored, 0 <= from < T - 1 */
    bool kl;              /* its derivative is 0 if all weights are 1 */
    double weight;        /* weight of every entry, 0.001 to 1 */
    const float *weights; /* [L, H, T] weights that replace `weight`, borrowed; NULL if not given */
    bool overwrite;       /* an output trace replaces an existing file */
    const char *precision; /* precision of the derivatives, for records; NULL means "f32" */
    kvf_watch_fn watch;    /* as in pass.h */
    void *watch_ctx;
};

/* The result of engine/train/saliency_pass.h. */
struct saliency {
    int L, H, T, window, from;
    float *value;      /* [n][T] owned */
    double loss;       /* nats, summed over predictions */
    int64_t positions; /* number of predictions: T - 1 - from */
    size_t bytes;      /* bytes of activations */
    int n;             /* number of heads: L * H, or the selected ones */
    int *head;         /* [n] head indices, layer * H + KV head; owned */
};

void saliency_finish(struct saliency *s); /* accepts a zeroed struct */

/* Removes all heads except those with take[layer * H + KV head] != 0. Values of a run that are
 * compared with it must drop the same rows. */
void saliency_select(struct saliency *s, const unsigned char *take);

/* ---- saliency_table.c */

/* Values of the entries from a run on the same tokens; each may be NULL. */
struct saliency_run {
    const double *log_beta;   /* [n][T] */
    const double *evict_step; /* [n][T]; INFINITY if not evicted */
};

/* Spearman's rho between saliency and another value, over the entries of a head before T - 1 -
 * W. */
struct saliency_rho {
    double rho, low, high; /* 95 % CI; NaN if one side is constant */
};
/* the signed value, or its absolute value */
enum saliency_side { SALIENCY_SIGNED, SALIENCY_SIZE, SALIENCY_SIDES };
/* Defined in saliency_rho.c. Computes rho per head: of is [n][T], and ret is [n] with CI by
 * bootstrap over tokens. *ret_all is the mean over heads, with a CI by bootstrap over layers.
 * Reports finished heads to `progress`. Returns KVF_OK or KVF_E_NOMEM. */
int saliency_rhos(const struct saliency *s, enum saliency_side side, const double *of,
                  struct par *pool, const struct progress_callback *progress,
                  struct saliency_rho *ret, struct saliency_rho *ret_all);
/* Computes rho over the entries of all heads, ranked together. Returns KVF_OK or KVF_E_NOMEM. */
int saliency_rho_pooled(const struct saliency *s, enum saliency_side side, const double *of,
                        double *ret_rho);

/* Makes the table "saliency" with a row per entry, sorted by head. Returns NULL if memory is
 * exhausted. */
struct table *saliency_table(const struct saliency *s, const struct saliency_run *run);

/* Makes the table "saliency-heads" with a row per head. beta and evict are [SALIENCY_SIDES][n] or
 * NULL. Returns NULL if memory is exhausted. */
struct table *saliency_table_heads(const struct saliency *s, const struct saliency_rho *beta,
                                   const struct saliency_rho *evict);

/* ---- saliency_write.c */

/* The tokens of the text. */
struct saliency_text {
    const int32_t *ids;   /* [T] */
    const uint8_t *roles; /* [T] enum kvf_role; NULL if all tokens are the prompt */
    int n_prompt;
};
/* Writes a closed trace with the tokens and the column "saliency" (f32, KV heads, tokens),
 * completely or not at all. s must contain all heads. Returns KVF_OK or an error with a
 * sentence. */
int saliency_write(const struct engine *e, const struct saliency *s,
                   const struct saliency_options *opt, const struct saliency_text *text,
                   const char *path, struct kvf_diag *d);

#endif
