/* probe_returns.c - interruptions of attention to a token, for two criteria: the number of queries
 * that selected it, how often it was selected again after at least one query that did not, and the
 * longest such interruption in queries. */
#include "base/mem.h"
#include "engine/probe/probes.h"

enum { N_CRITERIA = PROBE_RETURNS, N_COUNTS = 3, NEVER = -1 };

/* Indices in KVF_CRITERIA_MAP: the smallest top-K set and the middle mass set. */
const int probe_returns_of[N_CRITERIA] = {0, 5};

#define COLUMN(name, unit)                                                                         \
    .column = {name, PROBE_STEPS, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, unit},        \
    .kept = PROBE_NOT_KEPT
static const struct probe_array arrays[N_CRITERIA * N_COUNTS] = {
    {COLUMN("n_selected.top64", "")},      {COLUMN("n_returns.top64", "")},
    {COLUMN("longest_gap.top64", "step")}, {COLUMN("n_selected.mass.95", "")},
    {COLUMN("n_returns.mass.95", "")},     {COLUMN("longest_gap.mass.95", "step")},
};

/* s->own: [L*G][N_CRITERIA][cap]. */
static int open_state(struct probe_state *s)
{
    size_t heads = (size_t)s->cfg->shape.n_layers * (size_t)s->cfg->shape.n_heads;
    size_t n = heads * N_CRITERIA * (size_t)s->cfg->cap;
    struct probe_visits *e = s->own = MEM_NEW(struct probe_visits, n);
    for (size_t i = 0; e && i < n; i++)
        e[i].last = NEVER;
    return e ? KVF_OK : KVF_E_NOMEM;
}

static void copy(struct probe_state *s, const struct probe_state *from, int32_t n)
{
    size_t heads = (size_t)s->cfg->shape.n_layers * (size_t)s->cfg->shape.n_heads;
    probe_copy_rows(s, s->own, from, from->own, heads * N_CRITERIA, sizeof(struct probe_visits), n);
}

static struct probe_visits *entries_of(const struct probe_state *s, int layer, int head,
                                       int criterion)
{
    size_t at = probe_query_index(s->cfg, layer, head) * N_CRITERIA + (size_t)criterion;
    return (struct probe_visits *)s->own + at * (size_t)s->cfg->cap;
}

static void take(struct probe_visits *e, int32_t t)
{
    int32_t gap = e->last == NEVER ? 0 : t - e->last - 1;
    e->count[0]++;
    e->count[1] += gap > 0;
    e->count[2] = gap > e->count[2] ? gap : e->count[2];
    e->last = t;
}

static void on_row(struct probe_state *s, const struct probe_row *row)
{
    const struct row_cut *cut = probe_row_cuts(row, s->cfg->kernels);
    int32_t *member = (int32_t *)(void *)row->room;
    for (int c = 0; c < N_CRITERIA; c++) {
        struct probe_visits *e = entries_of(s, row->layer, row->head, c);
        int n = probe_members(row->p, row->n, &cut[probe_returns_of[c]], member);
        for (int k = 0; k < n; k++)
            take(&e[row->pos ? row->pos[member[k]] : member[k]], row->t);
    }
}

static void values(const struct probe_state *s, int array, int layer, int head, int32_t t1,
                   void *out)
{
    const struct probe_visits *e = entries_of(s, layer, head, array / N_COUNTS);
    for (size_t i = 0; i < (size_t)t1; i++)
        probe_put_step(s, out, i, (uint32_t)e[i].count[array % N_COUNTS]);
}

const struct probe probe_returns = {
    .name = "returns",
    .summary = "per token: number of selections and returns, and the longest gap",
    .wants = PROBE_ROWS,
    .full_only = true,
    .in_auto = AUTO_ALL,
    PROBE_ARRAYS(arrays),
    .open = open_state,
    .copy = copy,
    .row = on_row,
    .values = values,
};
