/* score_position.c - newer entries score higher, as in a sliding window. */
#include "engine/method/parts.h"

static void eval(const struct score_input *in, float *out, float *scratch)
{
    (void)scratch;
    for (int i = 0; i < in->view.n; i++)
        out[i] = (float)in->view.pos[i]; /* exact: positions are below 2^24 */
}

const struct score score_position = {
    .name = "position",
    .cost = "n",
    .summary = "position of the token: newer is better",
    .rising = true,
    .eval = eval,
};
