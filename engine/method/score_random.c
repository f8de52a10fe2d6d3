/* score_random.c - a fixed random number per entry, as a baseline.  It depends only on seed, layer,
 * head and position, so the order of evaluation does not matter. */
#include <math.h>

#include "engine/method/parts.h"

enum { BLOCK = 64 };

/* Numbers of the newcomers, which are few, among n entries. */
static void draw(const struct score_input *in, float *drawn, int i0, int n)
{
    uint64_t seed = method_params_of(in->m)->seed;
    int any = 0;
    for (int i = i0; i < i0 + n; i++)
        any |= drawn[i] != drawn[i];
    for (int i = i0; any && i < i0 + n; i++)
        if (isnan(drawn[i]))
            drawn[i] = formula_random_number(seed, in->layer, in->head, in->view.pos[i]);
}

static float one(const struct score_input *in, int slot)
{
    float *drawn = evidence_history(in->m, in->layer, in->head);
    draw(in, drawn, slot, 1);
    return drawn[slot];
}

static void eval(const struct score_input *in, float *out, float *scratch)
{
    float *drawn = evidence_history(in->m, in->layer, in->head);
    (void)scratch;
    for (int i0 = 0; i0 < in->view.n; i0 += BLOCK) {
        int n = in->view.n - i0 < BLOCK ? in->view.n - i0 : BLOCK;
        draw(in, drawn, i0, n);
        for (int i = i0; i < i0 + n; i++)
            out[i] = drawn[i];
    }
}

const struct score score_random = {
    .name = "random",
    .cost = "n",
    .summary = "a fixed random number per entry",
    .evidence = EVIDENCE_HISTORY,
    .uses = USES_SEED,
    .eval = eval,
    .one = one,
};
