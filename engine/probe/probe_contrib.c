/* probe_contrib.c - what entries give to the residual stream: |W_O v_i| of each query head, and
 * the last time that a_ti |W_O v_i| was among the 64 largest of a query.  The factor does not
 * change with t: sums and maxima of the contribution are it times mass.sum and mass.max. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/probe/probes.h"

enum { COL_NORM, COL_LAST, N_COLUMNS };
static const int top = 64;

struct state {
    struct probe_config cfg;
    float *norm;    /* [L*G][cap] */
    uint32_t *last; /* [L*G][cap] step of the last selection, all ones: never */
    void *ages;     /* [G][cap] scratch of writing */
};

static int columns(const struct probe_config *cfg, struct kvf_column *out)
{
    out[COL_NORM] = (struct kvf_column){"out_norm",     KVF_F32, KVF_SPACE_QUERY,
                                        KVF_AXIS_TOKEN, 0,       ""};
    out[COL_LAST] = (struct kvf_column){"last_selected.contrib64",
                                        probe_narrow_ages(cfg) ? KVF_U16 : KVF_U32,
                                        KVF_SPACE_QUERY,
                                        KVF_AXIS_TOKEN,
                                        KVF_COL_SNAPSHOT | KVF_COL_AGE,
                                        "step"};
    return N_COLUMNS;
}

static void destroy(void *state)
{
    struct state *s = state;
    if (!s)
        return;
    mem_free(s->norm);
    mem_free(s->last);
    mem_free(s->ages);
    mem_free(s);
}

static void *create(const struct probe_config *cfg)
{
    size_t n = (size_t)cfg->shape.n_layers * (size_t)cfg->shape.n_heads * (size_t)cfg->cap;
    struct state *s = MEM_NEW(struct state, 1);
    if (!s)
        return NULL;
    s->cfg = *cfg;
    s->norm = MEM_NEW(float, n);
    s->last = MEM_NEW(uint32_t, n);
    s->ages = mem_alloc((size_t)cfg->shape.n_heads * (size_t)cfg->cap, 4);
    if (!s->norm || !s->last || !s->ages) {
        destroy(s);
        return NULL;
    }
    memset(s->last, 0xff, n * sizeof *s->last);
    return s;
}

/* |W_g v| = sqrt(v' M v), M = W_g' W_g. */
static double length_behind(const double *gram, const float *v, int head_dim)
{
    double square = 0;
    for (int i = 0; i < head_dim; i++) {
        double part = 0;
        for (int j = 0; j < head_dim; j++)
            part += gram[(size_t)i * (size_t)head_dim + (size_t)j] * (double)v[j];
        square += part * (double)v[i];
    }
    return square > 0 ? sqrt(square) : 0; /* rounding may leave less than nothing */
}

/* A head of the cache serves one query head or a group of them. */
static void on_value(void *state, int layer, int head, int32_t pos, const float *value)
{
    struct state *s = state;
    const struct method_shape *m = &s->cfg.shape;
    int share = m->n_heads / m->n_kv_heads, D = m->head_dim;
    for (int g = head * share; g < (head + 1) * share; g++) {
        size_t at = probe_query_index(&s->cfg, layer, g);
        const double *gram = s->cfg.out_gram + at * (size_t)D * (size_t)D;
        s->norm[at * (size_t)s->cfg.cap + (size_t)pos] = (float)length_behind(gram, value, D);
    }
}

/* Contributions, times a power of two that leaves none above 1: their order is the same. */
static void weigh(const struct probe_row *row, const float *norm, float *out)
{
    float most = 0;
    int power = 0;
    if (row->pos)
        for (int i = 0; i < row->n; i++)
            out[i] = row->p[i] * norm[row->pos[i]];
    else
        for (int i = 0; i < row->n; i++)
            out[i] = row->p[i] * norm[i];
    for (int i = 0; i < row->n; i++)
        most = out[i] > most ? out[i] : most;
    if (most <= 1)
        return;
    frexpf(most, &power);
    float scale = ldexpf(1, -power);
    for (int i = 0; i < row->n; i++)
        out[i] *= scale;
}

static void on_row(void *state, const struct probe_row *row)
{
    struct state *s = state;
    size_t at = probe_query_index(&s->cfg, row->layer, row->head) * (size_t)s->cfg.cap;
    uint32_t *last = s->last + at;
    struct row_cut cut;
    weigh(row, s->norm + at, row->room);
    s->cfg.kernels->row_cuts(row->room, row->n, &top, 1, NULL, 0, &cut, row->scratch);
    if (!row->pos)
        s->cfg.kernels->mark(last, 4, row->room, row->n, &cut, (uint32_t)row->t);
    for (int i = 0; row->pos && i < row->n; i++)
        if (row_cut_has(&cut, row->room[i], i))
            last[row->pos[i]] = (uint32_t)row->t;
}

static int stream(void *state, struct probe_sink *sink, int32_t t0, int32_t t1)
{
    struct state *s = state;
    const struct probe_array a = {COL_NORM, s->norm, sizeof *s->norm};
    return probe_put_layers(sink, KVF_SPACE_QUERY, &a, 1, t0, t1 - t0);
}

static void to_ages(const struct state *s, int layer, int32_t t1)
{
    size_t cap = (size_t)s->cfg.cap;
    for (int g = 0; g < s->cfg.shape.n_heads; g++) {
        const uint32_t *last = s->last + probe_query_index(&s->cfg, layer, g) * cap;
        for (size_t i = 0; i < (size_t)t1; i++) {
            uint32_t age = last[i] == UINT32_MAX ? last[i] : last[i] - (uint32_t)i;
            if (probe_narrow_ages(&s->cfg))
                ((uint16_t *)s->ages)[(size_t)g * cap + i] = (uint16_t)age; /* all ones stay */
            else
                ((uint32_t *)s->ages)[(size_t)g * cap + i] = age;
        }
    }
}

static int snapshot(void *state, struct probe_sink *sink, int32_t t1)
{
    struct state *s = state;
    size_t size = probe_narrow_ages(&s->cfg) ? 2 : 4;
    int err = KVF_OK;
    for (int l = 0; !err && l < s->cfg.shape.n_layers; l++) {
        to_ages(s, l, t1);
        err = probe_put(sink, COL_LAST, l, s->cfg.shape.n_heads, s->ages, (size_t)s->cfg.cap, size,
                        0, t1);
    }
    return err;
}

const struct probe probe_contrib = {
    .name = "contrib",
    .summary = "length of every value behind the output projection, and its top-64 sets",
    .wants = PROBE_ROWS | PROBE_VALUE,
    .full_only = true,
    .columns = columns,
    .create = create,
    .destroy = destroy,
    .row = on_row,
    .value = on_value,
    .stream = stream,
    .snapshot = snapshot,
};
