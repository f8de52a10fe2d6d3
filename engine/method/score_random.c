/* score_random.c - a fixed random number per entry: the baseline that knows
 * nothing.  Depends on seed, layer, head and position alone, so the order of
 * evaluation does not matter. */
#include "base/rng.h"
#include "engine/method/scores.h"

static void eval(const struct score_input *in, float *out, float *scratch)
{
    (void)scratch;
    uint64_t seed = method_params_of(in->m)->seed;
    for (int i = 0; i < in->view.n; i++) {
        uint64_t r = rng_hash(seed, (uint64_t)in->layer, (uint64_t)in->head,
                              (uint64_t)in->view.pos[i]);
        out[i] = (float)(r >> 40) * 0x1p-24f;
    }
}

const struct score score_random = {
    .name = "random",
    .summary = "a fixed random number per entry",
    .uses = USES_SEED,
    .eval = eval,
};
