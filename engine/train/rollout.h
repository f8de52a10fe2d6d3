/* rollout.h - samples answers of a student under a cache method. It records the evictions as a mask
 * and the log-probabilities of the sampling policy, for a training pass.
 *
 * Advantages are those of GRPO (Shao et al. 2024) as defined by G-KV. For the G answers to a
 * question
 *
 *     A_i = (r_i - mean r) / std r
 *
 * where std is the standard deviation of the G rewards; A_i = 0 if std is 0. A_i is also 0 for an
 * answer that reached the maximum length (G-KV, section 6). */
#ifndef KVF_ENGINE_TRAIN_ROLLOUT_H
#define KVF_ENGINE_TRAIN_ROLLOUT_H

#include "base/stage.h"
#include "engine/decode/session.h"

/* A question to sample answers for. */
struct question {
    const int32_t *ids; /* [n] */
    int n;              /* at least 2 */
    uint64_t number;    /* seed of its random numbers, with the common seed */
};

/* Options of sampling. */
struct rollout_options {
    const struct session_options *session; /* cap and recorder are ignored */
    int samples, max_tokens;               /* answers per question; maximum tokens of an answer */
    double temperature;                    /* > 0 */
    uint64_t seed;
    struct stage *watch; /* receives progress, relative to answers of maximum length; or NULL */
};

/* A sampled answer; free it with answers_finish. */
struct answer {
    int32_t *ids; /* [prompt + n] the question and the sampled tokens */
    int prompt, n;
    bool ended;          /* the last token ends the text or its line; else the answer was cut */
    float *log_p;        /* [n] log-probability of each sampled token */
    double entropy;      /* entropy of the sampling distributions, summed over n tokens; nats */
    int32_t *evicted_at; /* [L, prompt + n, H] evictions, as in engine/kernels/gated.h */
    int64_t n_evicted;   /* number of evicted entries */
    double reward, advantage;
};

/* Samples ret[i * samples + s] as answer s to question i, all in parallel. The answers do not
 * depend on the number of threads. Returns KVF_OK, or an error of a session with a message; ret is
 * then zeroed. */
int rollout_run(struct engine *student, const struct rollout_options *opt, const struct question *q,
                int n_questions, struct answer *ret, struct kvf_diag *d);
void answers_finish(struct answer *a, int n); /* accepts zeroed answers */
/* Computes advantages from rewards. */
void answers_weigh(struct answer *a, int n_questions, int samples);
/* Appends the text of an answer, without the token that ended it. */
void answer_text(const struct answer *a, const struct tokenizer *t, struct buf *text);

#endif
