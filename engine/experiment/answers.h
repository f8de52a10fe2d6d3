/* answers.h - what a model answers to one prompt under many methods and budgets, side by side.
 *
 * Each cell decodes its own answer, whose tokens differ from the others'; a step of all that still
 * answer reads the weights once (batch_step). */
#ifndef KVF_ENGINE_ANSWERS_H
#define KVF_ENGINE_ANSWERS_H

#include "engine/experiment/lanes.h"

struct answers {
    const int32_t *forced; /* [most] tokens that all cells are fed; NULL: each samples its own */
    int most;              /* tokens of an answer, at least 1 */
    double temperature, top_p;
    uint64_t seed; /* of every cell alike */
    /* Takes a token of the answer of cell i, and the logits that it came of.  false: the answer has
     * ended. */
    bool (*take)(void *ctx, int i, int32_t id, const float *logits);
    bool (*stop)(void *ctx); /* asked at every step: true ends all with KVF_E_CANCEL; may be NULL */
    void *ctx;
};

/* Decodes the answers of all cells of lanes that were opened.  The last token of an answer is not
 * fed, as nobody asks what follows it.  KVF_OK, KVF_E_CANCEL or an error of batch_step. */
int answers_run(struct lanes *l, const struct answers *a);

#endif
