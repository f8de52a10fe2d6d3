/* turn.c - the angles of rotary position embeddings. */
#include <math.h>

#include "engine/decode/session_state.h"

void fill_turn(const struct model_config *m, int pos, float *ret_cos_sin)
{
    for (int j = 0; j < m->rope_dim / 2; j++) {
        double theta = pow((double)m->rope_base, -2.0 * j / m->rope_dim);
        double angle = (double)pos * theta;
        ret_cos_sin[2 * j] = (float)cos(angle);
        ret_cos_sin[2 * j + 1] = (float)sin(angle);
    }
}
