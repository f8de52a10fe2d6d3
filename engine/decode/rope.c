/* rope.c - computes the RoPE angles. */
#include <math.h>

#include "engine/decode/session_state.h"

static void fill(const struct model_config *m, enum model_rope kind, int pos, float *ret_cos_sin)
{
    for (int j = 0; j < m->rope_dim / 2; j++) {
        double angle = (double)pos * m->theta[kind][j];
        ret_cos_sin[2 * j] = (float)cos(angle) * m->rope_attn_factor[kind];
        ret_cos_sin[2 * j + 1] = (float)sin(angle) * m->rope_attn_factor[kind];
    }
}

void rope_fill(const struct session *s, float *table, int rows, int row, int pos)
{
    const struct model_config *m = &s->e->config;
    size_t dim = (size_t)m->rope_dim;
    bool plain = s->cap <= m->n_ctx_orig;
    fill(m, plain ? ROPE_PLAIN : ROPE_LONG, pos, table + (size_t)row * dim);
    if (model_has_local_rope(m))
        fill(m, ROPE_LOCAL, pos, table + ((size_t)rows + (size_t)row) * dim);
}

const float *rope_row(const struct session *s, int layer, const float *table, int rows, int row)
{
    const struct model_config *m = &s->e->config;
    enum model_rope kind = model_rope(m, layer, s->cap);
    size_t at = (size_t)row + (kind == ROPE_LOCAL ? (size_t)rows : 0);
    return kind == ROPE_NONE ? NULL : table + at * (size_t)m->rope_dim;
}

struct entering {
    struct session *s;
    int T;
};

static void turns_task(void *ctx, int task, int thread)
{
    const struct entering *in = ctx;
    struct session *s = in->s;
    int end = (task + 1) * ROWS_PER_TASK;
    (void)thread;
    for (int t = task * ROWS_PER_TASK; t < end && t < in->T; t++)
        rope_fill(s, s->buf.cos_sin, s->chunk, t, s->n_past + t);
}

void fill_chunk_angles(struct session *s, int T)
{
    struct entering in = {s, T};
    par_run(s->e->pool, (T + ROWS_PER_TASK - 1) / ROWS_PER_TASK, turns_task, &in);
}
