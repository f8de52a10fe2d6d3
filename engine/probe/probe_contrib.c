/* probe_contrib.c - contributions of entries to the residual stream: |W_O v_i| for each query head,
 * and the last time that a_ti |W_O v_i| was one of the 64 largest of a query. The factor does not
 * depend on t, so sums and maxima of the contribution are the factor times mass.sum and mass.max.
 */
#include <math.h>

#include "engine/probe/probes.h"

static const int top = PROBE_CONTRIB_TOP;

enum { NORM, LAST };
static const struct probe_array arrays[] = {
    [NORM] = {.column = {"out_norm", KVF_F32, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, 0, ""}},
    [LAST] = {.column = {"last_selected.contrib64", PROBE_STEPS, KVF_SPACE_QUERY, KVF_AXIS_TOKEN,
                         KVF_COL_SNAPSHOT | KVF_COL_AGE, "step"},
              .start = PROBE_ONES,
              .kept = PROBE_AS_STEP},
};

/* Returns |W_g v| = sqrt(v' M v), M = W_g' W_g. */
static double length_behind(const double *gram, const float *v, int head_dim)
{
    double square = 0;
    for (int i = 0; i < head_dim; i++) {
        double part = 0;
        for (int j = 0; j < head_dim; j++)
            part += gram[(size_t)i * (size_t)head_dim + (size_t)j] * (double)v[j];
        square += part * (double)v[i];
    }
    return square > 0 ? sqrt(square) : 0; /* rounding can give a negative square */
}

/* A KV head serves one query head or a group of them. */
static void on_value(struct probe_state *s, int layer, int head, int32_t pos, const float *value)
{
    const struct method_shape *m = &s->cfg->shape;
    int share = m->n_heads / m->n_kv_heads, D = m->head_dim;
    for (int g = head * share; g < (head + 1) * share; g++) {
        size_t at = probe_query_index(s->cfg, layer, g);
        const double *gram = s->cfg->out_gram + at * (size_t)D * (size_t)D;
        ((float *)probe_cells(s, NORM, layer, g))[pos] = (float)length_behind(gram, value, D);
    }
}

/* Computes contributions, times a power of two that keeps all at most 1. The order does not
 * change. */
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

static void on_row(struct probe_state *s, const struct probe_row *row)
{
    struct row_cut cut;
    weigh(row, probe_cells(s, NORM, row->layer, row->head), row->room);
    s->cfg->kernels->row_cuts(row->room, row->n, &top, 1, NULL, 0, &cut, row->scratch);
    probe_mark(s, probe_cells(s, LAST, row->layer, row->head), row, row->room, &cut);
}

const struct probe probe_contrib = {
    .name = "contrib",
    .summary = "norm of every value after the output projection, and its top-64 sets",
    .wants = PROBE_ROWS | PROBE_VALUE,
    .full_only = true,
    PROBE_ARRAYS(arrays),
    .row = on_row,
    .value = on_value,
};
