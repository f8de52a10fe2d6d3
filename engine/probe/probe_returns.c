/* probe_returns.c - how attention to a token comes and goes, for two criteria: how many
 * queries selected it, how often it came back after at least one query that did not, and the
 * most queries in a row that did not before one did again. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/probe/probes.h"

enum { N_CRITERIA = 2, N_COUNTS = 3, NEVER = -1 };

/* Places in KVF_CRITERIA_MAP: the smallest top-K set and the middle one of mass. */
static const int chosen[N_CRITERIA] = {0, 5};
static const char *const suffix[N_CRITERIA] = {"top64", "mass.95"};
static const char *const counts[N_COUNTS] = {"n_selected", "n_returns", "longest_gap"};

struct entry {
    int32_t last; /* step of the newest selection, or NEVER */
    int32_t count[N_COUNTS];
};

struct state {
    struct probe_config cfg;
    struct entry *entry; /* [L*G][N_CRITERIA][cap] */
    void *out;           /* [G][cap] scratch of writing */
};

static size_t width(const struct probe_config *cfg)
{
    return probe_narrow_ages(cfg) ? sizeof(uint16_t) : sizeof(uint32_t);
}

static int columns(const struct probe_config *cfg, struct kvf_column *out)
{
    for (int c = 0; c < N_CRITERIA; c++)
        for (int k = 0; k < N_COUNTS; k++) {
            struct kvf_column *col = &out[c * N_COUNTS + k];
            *col = (struct kvf_column){.dtype = probe_narrow_ages(cfg) ? KVF_U16 : KVF_U32,
                                       .space = KVF_SPACE_QUERY,
                                       .axis = KVF_AXIS_TOKEN,
                                       .flags = KVF_COL_SNAPSHOT};
            snprintf(col->name, sizeof col->name, "%s.%s", counts[k], suffix[c]);
            snprintf(col->unit, sizeof col->unit, "%s", k == 2 ? "step" : "");
        }
    return N_CRITERIA * N_COUNTS;
}

static void destroy(void *state)
{
    struct state *s = state;
    if (!s)
        return;
    mem_free(s->entry);
    mem_free(s->out);
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
    s->entry = MEM_NEW(struct entry, n);
    s->out = mem_alloc((size_t)cfg->shape.n_heads * (size_t)cfg->cap, width(cfg));
    if (!s->entry || !s->out) {
        destroy(s);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        s->entry[i].last = NEVER;
    return s;
}

static struct entry *entries_of(const struct state *s, int layer, int head, int criterion)
{
    size_t at = probe_query_index(&s->cfg, layer, head) * N_CRITERIA + (size_t)criterion;
    return s->entry + at * (size_t)s->cfg.cap;
}

static void take(struct entry *e, int32_t t)
{
    int32_t gap = e->last == NEVER ? 0 : t - e->last - 1;
    e->count[0]++;
    e->count[1] += gap > 0;
    e->count[2] = gap > e->count[2] ? gap : e->count[2];
    e->last = t;
}

static void on_row(void *state, const struct probe_row *row)
{
    struct state *s = state;
    const struct row_cut *cut = probe_row_cuts(row, s->cfg.kernels);
    for (int c = 0; c < N_CRITERIA; c++) {
        struct entry *e = entries_of(s, row->layer, row->head, c);
        for (int i = 0; i < row->n; i++)
            if (row_cut_has(&cut[chosen[c]], row->p[i], i))
                take(&e[row->pos ? row->pos[i] : i], row->t);
    }
}

static int snapshot(void *state, struct probe_sink *sink, int32_t t1)
{
    struct state *s = state;
    int err = KVF_OK, G = s->cfg.shape.n_heads;
    size_t cap = (size_t)s->cfg.cap;
    bool narrow = probe_narrow_ages(&s->cfg);
    for (int l = 0; l < s->cfg.shape.n_layers; l++)
        for (int k = 0; !err && k < N_CRITERIA * N_COUNTS; k++) {
            for (int g = 0; g < G; g++) {
                const struct entry *e = entries_of(s, l, g, k / N_COUNTS);
                for (size_t i = 0; i < (size_t)t1; i++) {
                    int32_t v = e[i].count[k % N_COUNTS];
                    if (narrow)
                        ((uint16_t *)s->out)[(size_t)g * cap + i] = (uint16_t)v;
                    else
                        ((uint32_t *)s->out)[(size_t)g * cap + i] = (uint32_t)v;
                }
            }
            err = probe_put(sink, k, l, G, s->out, cap, width(&s->cfg), 0, t1);
        }
    return err;
}

const struct probe probe_returns = {
    .name = "returns",
    .summary = "how often each token was selected and came back, and its longest gap",
    .wants = PROBE_ROWS,
    .full_only = true,
    .columns = columns,
    .create = create,
    .destroy = destroy,
    .row = on_row,
    .snapshot = snapshot,
};
