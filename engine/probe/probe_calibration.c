/* probe_calibration.c - what the age of the last selection cannot say: whether a
 * token was selected at the ages 1, 2, 4, ..., and at which age it first was not.
 * With last_selected: what the calibration of retention gates needs. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/probe/probes.h"

enum { N_CRITERIA = KVF_N_CRITERIA, N_COLUMNS = 2 * N_CRITERIA };

struct state {
    struct probe_config cfg;
    uint32_t *at;         /* [L*G][N_CRITERIA][cap] bit k: selected at age 2^k */
    unsigned char *first; /* like at: how many queries from birth on selected it, each */
    void *ages;           /* [G][cap] scratch of writing */
};

static size_t width(const struct probe_config *cfg)
{
    return probe_narrow_ages(cfg) ? sizeof(uint16_t) : sizeof(uint32_t);
}

static int columns(const struct probe_config *cfg, struct kvf_column *out)
{
#define X(name) #name,
    static const char *const names[] = {KVF_CRITERIA_MAP(X)};
#undef X
    for (int c = 0; c < N_CRITERIA; c++) {
        struct kvf_column *at = &out[2 * c], *first = &out[2 * c + 1];
        *at = (struct kvf_column){.dtype = KVF_U32,
                                  .space = KVF_SPACE_QUERY,
                                  .axis = KVF_AXIS_TOKEN,
                                  .flags = KVF_COL_SNAPSHOT};
        *first = (struct kvf_column){.dtype = probe_narrow_ages(cfg) ? KVF_U16 : KVF_U32,
                                     .space = KVF_SPACE_QUERY,
                                     .axis = KVF_AXIS_TOKEN,
                                     .flags = KVF_COL_SNAPSHOT | KVF_COL_AGE,
                                     .unit = "step"};
        snprintf(at->name, sizeof at->name, "selected_at.%s", names[c]);
        snprintf(first->name, sizeof first->name, "first_unselected.%s", names[c]);
    }
    return N_COLUMNS;
}

static void destroy(void *state)
{
    struct state *s = state;
    if (!s)
        return;
    mem_free(s->at);
    mem_free(s->first);
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
    s->at = MEM_NEW(uint32_t, n);
    s->first = mem_alloc(n, width(cfg));
    s->ages = mem_alloc((size_t)cfg->shape.n_heads * (size_t)cfg->cap, 4);
    if (s->at && s->first && s->ages)
        return s;
    destroy(s);
    return NULL;
}

static size_t index_of(const struct state *s, int layer, int head, int criterion)
{
    size_t at = probe_query_index(&s->cfg, layer, head) * N_CRITERIA + (size_t)criterion;
    return at * (size_t)s->cfg.cap;
}

/* Where in the row the entry at a position stands, or -1. */
static int find(const struct probe_row *row, int32_t pos)
{
    int lo = 0, hi = row->n;
    if (!row->pos)
        return pos < row->n ? pos : -1;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (row->pos[mid] < pos)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < row->n && row->pos[lo] == pos ? lo : -1;
}

static void take_ages(uint32_t *at, const struct probe_row *row, const struct row_cut *cut)
{
    for (int k = 0; k < 31 && (int32_t)1 << k <= row->t; k++) {
        int32_t pos = row->t - ((int32_t)1 << k);
        int i = find(row, pos);
        if (i >= 0 && row_cut_has(cut, row->p[i], i))
            at[pos] |= (uint32_t)1 << k;
    }
}

/* A token whose count is its age has been selected by all queries so far.  Nothing is
 * to be done for those that are not: their counts stay behind for good, those of
 * entries that the query did not see too. */
static void take_first(void *first, bool narrow, const struct probe_row *row,
                       const struct row_cut *cut)
{
    uint16_t *a = first;
    uint32_t *b = first;
    for (int i = 0; i < row->n; i++) {
        int32_t pos = row->pos ? row->pos[i] : i;
        uint32_t age = (uint32_t)(row->t - pos);
        if (narrow && a[pos] == age && row_cut_has(cut, row->p[i], i))
            a[pos]++;
        else if (!narrow && b[pos] == age && row_cut_has(cut, row->p[i], i))
            b[pos]++;
    }
}

static void on_row(void *state, const struct probe_row *row)
{
    struct state *s = state;
    const struct row_cut *cut = probe_row_cuts(row, s->cfg.kernels);
    for (int c = 0; c < N_CRITERIA; c++) {
        size_t at = index_of(s, row->layer, row->head, c);
        take_ages(s->at + at, row, &cut[c]);
        take_first(s->first + at * width(&s->cfg), probe_narrow_ages(&s->cfg), row, &cut[c]);
    }
}

/* Counts of the query heads of a layer to ages: a token that all its t1 - i queries
 * selected has no age, which is all ones. */
static void to_ages(struct state *s, int layer, int criterion, int32_t t1)
{
    size_t cap = (size_t)s->cfg.cap;
    uint16_t *a = s->ages;
    uint32_t *b = s->ages;
    for (int g = 0; g < s->cfg.shape.n_heads; g++) {
        const void *first = s->first + index_of(s, layer, g, criterion) * width(&s->cfg);
        for (size_t i = 0; i < (size_t)t1; i++) {
            bool narrow = probe_narrow_ages(&s->cfg);
            uint32_t n = narrow ? ((const uint16_t *)first)[i] : ((const uint32_t *)first)[i];
            bool never = n == (uint32_t)t1 - (uint32_t)i;
            if (narrow)
                a[(size_t)g * cap + i] = never ? UINT16_MAX : (uint16_t)n;
            else
                b[(size_t)g * cap + i] = never ? UINT32_MAX : n;
        }
    }
}

static int snapshot(void *state, struct probe_sink *sink, int32_t t1)
{
    struct state *s = state;
    int err = KVF_OK, G = s->cfg.shape.n_heads;
    size_t cap = (size_t)s->cfg.cap;
    for (int l = 0; !err && l < s->cfg.shape.n_layers; l++)
        for (int c = 0; !err && c < N_CRITERIA; c++) {
            for (int g = 0; g < G; g++)
                memcpy((uint32_t *)s->ages + (size_t)g * cap, s->at + index_of(s, l, g, c),
                       (size_t)t1 * sizeof *s->at);
            err = probe_put(sink, 2 * c, l, G, s->ages, cap, sizeof *s->at, 0, t1);
            to_ages(s, l, c, t1);
            if (!err)
                err = probe_put(sink, 2 * c + 1, l, G, s->ages, cap, width(&s->cfg), 0, t1);
        }
    return err;
}

const struct probe probe_calibration = {
    .name = "calibration",
    .summary = "selection at ages 1, 2, 4, ..., and the first age without it, per criterion",
    .wants = PROBE_ROWS,
    .full_only = true,
    .columns = columns,
    .create = create,
    .destroy = destroy,
    .row = on_row,
    .snapshot = snapshot,
};
