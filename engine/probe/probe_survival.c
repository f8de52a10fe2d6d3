/* probe_survival.c - the last time each token was in the selected set of a
 * query, for seven criteria (top-K and tau-mass sets of one row): the exact
 * sufficient statistic of the survival curves of DBTrimKV, figures 2 and 9. */
#include "engine/probe/probes.h"

enum { N_TOP = 4, N_TAU = 3, N_CRITERIA = KVF_N_CRITERIA };

static const int top_k[N_TOP] = {64, 128, 256, 512};
static const double tau[N_TAU] = {.90, .95, .99};
_Static_assert(N_TOP + N_TAU == KVF_N_CRITERIA, "one cut for each criterion");

/* Two bytes where steps fit: marking is bound by the traffic of these arrays. */
#define X(name)                                                                                    \
    {.column = {"last_selected." #name, PROBE_STEPS, KVF_SPACE_QUERY, KVF_AXIS_TOKEN,              \
                KVF_COL_SNAPSHOT | KVF_COL_AGE, "step"},                                           \
     .start = PROBE_ONES,                                                                          \
     .kept = PROBE_AS_STEP},
static const struct probe_array arrays[N_CRITERIA] = {KVF_CRITERIA_MAP(X)};
#undef X

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

void probe_mark(const struct probe_state *s, void *cells, const struct probe_row *row,
                const float *w, const struct row_cut *cut)
{
    if (!row->pos) {
        s->cfg->kernels->mark(cells, s->narrow ? 2 : 4, w, row->n, cut, (uint32_t)row->t);
        return;
    }
    for (int i = 0; i < row->n; i++)
        if (row_cut_has(cut, w[i], i))
            probe_put_step(s, cells, (size_t)row->pos[i], (uint32_t)row->t);
}

static void on_row(struct probe_state *s, const struct probe_row *row)
{
    const struct row_cut *cut = probe_row_cuts(row, s->cfg->kernels);
    for (int c = 0; c < N_CRITERIA; c++)
        probe_mark(s, probe_cells(s, c, row->layer, row->head), row, row->p, &cut[c]);
}

const struct probe probe_survival = {
    .name = "survival",
    .summary = "largest age at which each token was in a query's top-K or tau-mass set",
    .wants = PROBE_ROWS,
    PROBE_ARRAYS(arrays),
    .row = on_row,
};
