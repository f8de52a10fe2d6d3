/* score_random.c - a fixed random number per entry: the baseline that knows
 * nothing.  Depends on seed, layer, head and position alone, so the order of
 * evaluation does not matter. */
#include <math.h>

#include "base/rng.h"
#include "engine/method/scores.h"

static void eval(const struct score_input *in, float *out, float *scratch)
{
    (void)scratch;
    uint64_t seed = method_params_of(in->m)->seed;
    double *note = evidence_note(in->m, in->layer, in->head);
    for (int i = 0; i < in->view.n; i++)
        if (isnan(note[i])) {
            uint64_t r = rng_hash(seed, (uint64_t)in->layer, (uint64_t)in->head,
                                  (uint64_t)in->view.pos[i]);
            note[i] = (double)((float)(r >> 40) * 0x1p-24f);
        }
    for (int i = 0; i < in->view.n; i++)
        out[i] = (float)note[i];
}

const struct score score_random = {
    .name = "random",
    .cost = "n",
    .summary = "a fixed random number per entry",
    .evidence = EVIDENCE_NOTE,
    .uses = USES_SEED,
    .eval = eval,
};
