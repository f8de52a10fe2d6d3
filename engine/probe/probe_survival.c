/* probe_survival.c - the last time each token was in the selected set of a
 * query, for seven criteria (top-K and tau-mass sets of one row): the exact
 * sufficient statistic of the survival curves of DBTrimKV, figures 2 and 9. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/probe/probes.h"

enum { N_TOP = 4, N_TAU = 3, N_CRITERIA = N_TOP + N_TAU };

static const int top_k[N_TOP] = {64, 128, 256, 512};
static const double tau[N_TAU] = {.90, .95, .99};

struct state {
    struct probe_config cfg;
    uint32_t *last; /* [L*G][N_CRITERIA][cap] step of the last selection; all ones: never */
    void *ages;     /* [G][cap] scratch of writing */
};

static bool narrow(const struct probe_config *cfg)
{
    return cfg->cap < 65535;
}

static int columns(const struct probe_config *cfg, struct kvf_column *out)
{
#define X(name) "last_selected." #name,
    static const char *const names[] = {KVF_CRITERIA_MAP(X)};
#undef X
    for (int c = 0; c < N_CRITERIA; c++) {
        out[c] = (struct kvf_column){.dtype = narrow(cfg) ? KVF_U16 : KVF_U32,
                                     .space = KVF_SPACE_QUERY, .axis = KVF_AXIS_TOKEN,
                                     .flags = KVF_COL_SNAPSHOT | KVF_COL_AGE, .unit = "step"};
        snprintf(out[c].name, sizeof out[c].name, "%s", names[c]);
    }
    return N_CRITERIA;
}

static void destroy(void *state)
{
    struct state *s = state;
    if (!s)
        return;
    mem_free(s->last);
    mem_free(s->ages);
    mem_free(s);
}

static void *create(const struct probe_config *cfg)
{
    size_t heads = (size_t)cfg->shape.n_layers * (size_t)cfg->shape.n_heads;
    size_t n = heads * N_CRITERIA * (size_t)cfg->cap;
    struct state *s = MEM_NEW(struct state, 1);
    if (!s)
        return NULL;
    s->cfg = *cfg;
    s->last = MEM_NEW(uint32_t, n);
    s->ages = mem_alloc((size_t)cfg->shape.n_heads * (size_t)cfg->cap, 4);
    if (!s->last || !s->ages) {
        destroy(s);
        return NULL;
    }
    memset(s->last, 0xff, n * sizeof *s->last);
    return s;
}

static void scatter(uint32_t *last, const struct probe_row *row, const struct row_cut *cut)
{
    for (int i = 0; i < row->n; i++)
        if (row->p[i] > cut->threshold || (row->p[i] == cut->threshold && i >= cut->first_tie))
            last[row->pos[i]] = (uint32_t)row->t;
}

static void on_row(void *state, const struct probe_row *row)
{
    struct state *s = state;
    struct row_cut cut[N_CRITERIA];
    const struct kernels *k = s->cfg.kernels;
    k->row_cuts(row->p, row->n, top_k, N_TOP, tau, N_TAU, cut, row->scratch);
    size_t at = probe_query_index(&s->cfg, row->layer, row->head) * N_CRITERIA;
    for (int c = 0; c < N_CRITERIA; c++) {
        uint32_t *last = s->last + (at + (size_t)c) * (size_t)s->cfg.cap;
        if (row->pos)
            scatter(last, row, &cut[c]);
        else
            k->mark(last, row->p, row->n, cut[c].threshold, cut[c].first_tie, (uint32_t)row->t);
    }
}

/* Steps to ages of the query heads of a layer, in the width of the column. */
static void to_ages(struct state *s, int layer, int criterion, int32_t t1)
{
    size_t cap = (size_t)s->cfg.cap;
    for (int g = 0; g < s->cfg.shape.n_heads; g++) {
        size_t at = probe_query_index(&s->cfg, layer, g) * N_CRITERIA + (size_t)criterion;
        const uint32_t *last = s->last + at * cap;
        for (size_t i = 0; i < (size_t)t1; i++) {
            uint32_t age = last[i] == UINT32_MAX ? UINT32_MAX : last[i] - (uint32_t)i;
            if (narrow(&s->cfg))
                ((uint16_t *)s->ages)[(size_t)g * cap + i] = (uint16_t)age;
            else
                ((uint32_t *)s->ages)[(size_t)g * cap + i] = age;
        }
    }
}

static int snapshot(void *state, struct probe_sink *sink, int32_t t1)
{
    struct state *s = state;
    int err = KVF_OK;
    for (int l = 0; !err && l < s->cfg.shape.n_layers; l++)
        for (int c = 0; !err && c < N_CRITERIA; c++) {
            to_ages(s, l, c, t1);
            err = probe_put(sink, c, l, s->cfg.shape.n_heads, s->ages, (size_t)s->cfg.cap,
                            narrow(&s->cfg) ? 2 : 4, 0, t1);
        }
    return err;
}

const struct probe probe_survival = {
    .name = "survival",
    .summary = "largest age at which each token was in a query's top-K or tau-mass set",
    .wants = PROBE_ROWS,
    .columns = columns,
    .create = create,
    .destroy = destroy,
    .row = on_row,
    .snapshot = snapshot,
};
