/* rollout.h - answers that a student samples under a cache method, with what a pass needs to score
 * them: its evictions as a mask, and the log-probabilities of the policy that sampled.
 *
 * Advantages are those of GRPO (Shao et al. 2024) as G-KV states it: of the G answers to a question
 *     A_i = (r_i - mean r) / std r        std: that of the G rewards themselves; 0 where it is 0
 * and 0 for an answer that was cut at the most tokens (G-KV, section 6). */
#ifndef KVF_ENGINE_TRAIN_ROLLOUT_H
#define KVF_ENGINE_TRAIN_ROLLOUT_H

#include "base/stage.h"
#include "engine/decode/session.h"

struct question {
    const int32_t *ids; /* [n] */
    int n;              /* at least 2 */
    uint64_t number;    /* what its random numbers depend on, beside the seed */
};

struct rollout_options {
    const struct session_options *session; /* its cap and recorder do not matter */
    int samples, most;                     /* answers to a question; tokens of an answer */
    double temperature;                    /* over 0 */
    uint64_t seed;
    struct stage *watch; /* told how much is sampled, were all answers as long as may be; or NULL */
};

/* An answer, to be freed with answers_finish. */
struct answer {
    int32_t *ids; /* [prompt + n] the question and the tokens that were sampled */
    int prompt, n;
    bool ended;     /* the last token ends the text or its line; otherwise the answer was cut */
    float *log_p;   /* [n] */
    double entropy; /* of the distributions that were sampled from, summed over n tokens; nats */
    int32_t *gone;  /* [L, prompt + n, H] evictions, as attention.h has them */
    int64_t left;   /* how many entries left */
    double reward, advantage;
};

/* Samples answers[i * samples + s] to question i, all side by side: the same answers for any number
 * of threads.  KVF_OK, or an error of a session with a sentence; ret is zeroed then. */
int rollout_run(struct engine *student, const struct rollout_options *opt, const struct question *q,
                int n_questions, struct answer *ret, struct kvf_diag *d);
void answers_finish(struct answer *a, int n); /* accepts zeroed ones */
/* Sets advantages from rewards. */
void answers_weigh(struct answer *a, int n_questions, int samples);
/* The bytes of an answer, without the token that ended it, are appended. */
void answer_text(const struct answer *a, const struct tokenizer *t, struct buf *text);

#endif
