/* predict_judge.h - private to studies/predict*.c: how far a candidate goes with the effect.
 *
 * Heads of one layer resemble each other, and layers resemble their neighbours.  No test here takes
 * heads or entries for exchangeable.  docs/reference/effect.md defines every number. */
#ifndef KVF_STUDIES_PREDICT_JUDGE_H
#define KVF_STUDIES_PREDICT_JUDGE_H

#include "studies/predict_values.h"

enum { PREDICT_LEAST_LAYERS = 4 }; /* that a test of depth needs */

struct predict_judged {
    int64_t n, documents;
    double rho;                   /* of all units; no test goes with it */
    double partial, low, high, p; /* given the layer (heads), or the position (entries) */
    double depth_rho, depth_p;    /* of the means of layers, without their line; NaN: entries */
};

struct predict_sample;
struct predict_sample *predict_sample_create(const struct predict_values *v); /* NULL: no memory */
void predict_sample_destroy(struct predict_sample *s);                        /* accepts NULL */

/* Whether unit u of a pair has both the candidate's number and an effect. */
bool predict_both(const struct predict_values *v, const struct candidate *c, int pair, int64_t u);

/* KVF_OK or KVF_E_NOMEM. */
int predict_judge(struct predict_sample *s, const struct predict_values *v,
                  const struct candidate *c, struct predict_judged *ret);

#endif
