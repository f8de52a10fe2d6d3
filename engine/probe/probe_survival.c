/* probe_survival.c - the last time each token was in the selected set of a
 * query, for seven criteria (top-K and tau-mass sets of one row): the exact
 * sufficient statistic of the survival curves of DBTrimKV, figures 2 and 9. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/probe/probes.h"

enum { N_TOP = 4, N_TAU = 3, N_CRITERIA = KVF_N_CRITERIA };

static const int top_k[N_TOP] = {64, 128, 256, 512};
static const double tau[N_TAU] = {.90, .95, .99};
_Static_assert(N_TOP + N_TAU == KVF_N_CRITERIA, "one cut for each criterion");

struct state {
    struct probe_config cfg;
    /* [L*G][N_CRITERIA][cap] step of the last selection, all ones: never.  Two
     * bytes where steps fit: marking is bound by the traffic of this array. */
    unsigned char *last;
    void *ages; /* [G][cap] scratch of writing */
};

static size_t width(const struct probe_config *cfg)
{
    return probe_narrow_ages(cfg) ? sizeof(uint16_t) : sizeof(uint32_t);
}

static int columns(const struct probe_config *cfg, struct kvf_column *out)
{
#define X(name) "last_selected." #name,
    static const char *const names[] = {KVF_CRITERIA_MAP(X)};
#undef X
    for (int c = 0; c < N_CRITERIA; c++) {
        out[c] = (struct kvf_column){.dtype = probe_narrow_ages(cfg) ? KVF_U16 : KVF_U32,
                                     .space = KVF_SPACE_QUERY,
                                     .axis = KVF_AXIS_TOKEN,
                                     .flags = KVF_COL_SNAPSHOT | KVF_COL_AGE,
                                     .unit = "step"};
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
    s->last = mem_alloc(n, width(cfg));
    s->ages = mem_alloc((size_t)cfg->shape.n_heads * (size_t)cfg->cap, 4);
    if (!s->last || !s->ages) {
        destroy(s);
        return NULL;
    }
    memset(s->last, 0xff, n * width(cfg));
    return s;
}

static void scatter(void *last, bool is_narrow, const struct probe_row *row,
                    const struct row_cut *cut)
{
    for (int i = 0; i < row->n; i++) {
        if (row->p[i] < cut->threshold || (row->p[i] == cut->threshold && i < cut->first_tie))
            continue;
        if (is_narrow)
            ((uint16_t *)last)[row->pos[i]] = (uint16_t)row->t;
        else
            ((uint32_t *)last)[row->pos[i]] = (uint32_t)row->t;
    }
}

static unsigned char *last_of(const struct state *s, int layer, int head, int criterion)
{
    size_t at = probe_query_index(&s->cfg, layer, head) * N_CRITERIA + (size_t)criterion;
    return s->last + at * (size_t)s->cfg.cap * width(&s->cfg);
}

void probe_find_cuts(const struct kernels *k, const float *p, int n, struct row_cut *out,
                     void *scratch)
{
    k->row_cuts(p, n, top_k, N_TOP, tau, N_TAU, out, scratch);
}

const struct row_cut *probe_row_cuts(const struct probe_row *row, const struct kernels *k)
{
    struct probe_cuts *c = row->cuts;
    if (!c->known)
        probe_find_cuts(k, row->p, row->n, c->cut, row->scratch);
    c->known = true;
    return c->cut;
}

static void on_row(void *state, const struct probe_row *row)
{
    struct state *s = state;
    const struct kernels *k = s->cfg.kernels;
    const struct row_cut *cut = probe_row_cuts(row, k);
    for (int c = 0; c < N_CRITERIA; c++) {
        void *last = last_of(s, row->layer, row->head, c);
        if (row->pos)
            scatter(last, probe_narrow_ages(&s->cfg), row, &cut[c]);
        else
            k->mark(last, (int)width(&s->cfg), row->p, row->n, &cut[c], (uint32_t)row->t);
    }
}

/* Steps to ages of the query heads of a layer; never stays all ones. */
static void to_ages(struct state *s, int layer, int criterion, int32_t t1)
{
    size_t cap = (size_t)s->cfg.cap;
    for (int g = 0; g < s->cfg.shape.n_heads; g++) {
        const void *last = last_of(s, layer, g, criterion);
        for (size_t i = 0; i < (size_t)t1; i++) {
            if (probe_narrow_ages(&s->cfg)) {
                uint16_t t = ((const uint16_t *)last)[i];
                ((uint16_t *)s->ages)[(size_t)g * cap + i] = t == UINT16_MAX ? t
                                                                             : (uint16_t)(t - i);
            } else {
                uint32_t t = ((const uint32_t *)last)[i];
                ((uint32_t *)s->ages)[(size_t)g * cap + i] = t == UINT32_MAX ? t : t - (uint32_t)i;
            }
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
                            width(&s->cfg), 0, t1);
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
