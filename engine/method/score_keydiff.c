/* score_keydiff.c - keys that differ from the rest (KeyDiff, Park et al. 2025):
 * score_j = -cos(k_j, a), anchor a = mean of k / |k| over the head's entries
 * (keys after RoPE, as stored).  The length of a does not matter for the order,
 * but it is divided out so that scores are comparable. */
#include <math.h>

#include "engine/method/scores.h"

enum { MAX_DIM = 1024 };

static void eval(const struct score_input *in, float *out, float *scratch)
{
    (void)scratch;
    int D = method_shape_of(in->m)->head_dim, n = in->view.n;
    double anchor[MAX_DIM] = {0}, square = 0;
    for (int i = 0; i < n; i++) { /* in order of time: slots are not */
        const float *u = evidence_key(in->m, in->layer, in->head, in->view.order[i]);
        for (int d = 0; d < D; d++)
            anchor[d] += (double)u[d];
    }
    for (int d = 0; d < D; d++)
        square += anchor[d] * anchor[d];
    double scale = square > 0 ? 1.0 / sqrt(square) : 0;
    for (int i = 0; i < n; i++) {
        const float *u = evidence_key(in->m, in->layer, in->head, i);
        double dot = 0;
        for (int d = 0; d < D; d++)
            dot += (double)u[d] * anchor[d];
        out[i] = (float)(-dot * scale);
    }
}

const struct score score_keydiff = {
    .name = "keydiff",
    .summary = "distance of the key from the mean direction of all keys",
    .evidence = EVIDENCE_KEYS,
    .eval = eval,
};
