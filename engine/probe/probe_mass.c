/* probe_mass.c - attention that each token received: sum and maximum. */
#include <string.h>

#include "base/mem.h"
#include "engine/probe/probes.h"

struct state {
    struct probe_config cfg;
    double *sum; /* [L*G][cap] */
    float *max;  /* [L*G][cap] */
    float *out;  /* [G][cap] scratch of writing */
};

static int columns(const struct probe_config *cfg, struct kvf_column *out)
{
    static const struct kvf_column col[] = {
        {"mass.sum", KVF_F32, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, ""},
        {"mass.max", KVF_F32, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, ""},
    };
    (void)cfg;
    memcpy(out, col, sizeof col);
    return 2;
}

static void destroy(void *state)
{
    struct state *s = state;
    if (!s)
        return;
    mem_free(s->sum);
    mem_free(s->max);
    mem_free(s->out);
    mem_free(s);
}

static void *create(const struct probe_config *cfg)
{
    size_t n = (size_t)cfg->shape.n_layers * (size_t)cfg->shape.n_heads * (size_t)cfg->cap;
    struct state *s = MEM_NEW(struct state, 1);
    if (!s)
        return NULL;
    s->cfg = *cfg;
    s->sum = MEM_NEW(double, n);
    s->max = MEM_NEW(float, n);
    s->out = MEM_NEW(float, (size_t)cfg->shape.n_heads *(size_t)cfg->cap);
    if (!s->sum || !s->max || !s->out) {
        destroy(s);
        return NULL;
    }
    return s;
}

static void on_row(void *state, const struct probe_row *row)
{
    struct state *s = state;
    size_t at = probe_query_index(&s->cfg, row->layer, row->head) * (size_t)s->cfg.cap;
    double *sum = s->sum + at;
    float *max = s->max + at;
    if (!row->pos) {
        s->cfg.kernels->mass_add(sum, max, row->p, row->n);
        return;
    }
    for (int i = 0; i < row->n; i++) {
        sum[row->pos[i]] += (double)row->p[i];
        if (row->p[i] > max[row->pos[i]])
            max[row->pos[i]] = row->p[i];
    }
}

static int snapshot(void *state, struct probe_sink *sink, int32_t t1)
{
    struct state *s = state;
    int G = s->cfg.shape.n_heads, err = KVF_OK;
    size_t cap = (size_t)s->cfg.cap;
    for (int l = 0; !err && l < s->cfg.shape.n_layers; l++) {
        size_t at = probe_query_index(&s->cfg, l, 0) * cap;
        for (size_t i = 0; i < (size_t)G * cap; i++)
            s->out[i] = (float)s->sum[at + i];
        err = probe_put(sink, 0, l, G, s->out, cap, 4, 0, t1);
        if (!err)
            err = probe_put(sink, 1, l, G, s->max + at, cap, 4, 0, t1);
    }
    return err;
}

const struct probe probe_mass = {
    .name = "mass",
    .summary = "attention that each token received, sum and maximum",
    .wants = PROBE_ROWS,
    .columns = columns,
    .create = create,
    .destroy = destroy,
    .row = on_row,
    .snapshot = snapshot,
};
