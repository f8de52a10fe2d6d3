/* answers.h - decodes answers of a model to one prompt with several methods and budgets together.
 *
 * Each cell decodes its own answer, and the answers may differ. One step of all unfinished answers
 * reads the weights once (batch_step()).
 */
#ifndef KVF_ENGINE_ANSWERS_H
#define KVF_ENGINE_ANSWERS_H

#include "engine/experiment/lanes.h"

/* Options and callbacks of a decoding. */
struct answers {
    /* [most] tokens that are fed to every cell; NULL if each cell samples its own */
    const int32_t *forced;
    int most; /* maximum tokens of an answer, at least 1 */
    double temperature, top_p;
    uint64_t seed; /* of every cell */
    /* Receives a token of the answer of cell i, and the logits from which it was drawn. Returns
     * false if the answer ends. */
    bool (*take)(void *ctx, int i, int32_t id, const float *logits);
    /* called at every step; true ends all answers with KVF_E_CANCEL; may be NULL */
    bool (*stop)(void *ctx);
    void *ctx;
};

/* Decodes the answers of all cells of open lanes. The last token of an answer is not fed, because
 * no token follows it. Returns KVF_OK, KVF_E_CANCEL or an error of batch_step(). */
int answers_run(struct lanes *l, const struct answers *a);

#endif
