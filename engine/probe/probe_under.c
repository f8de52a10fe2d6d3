/* probe_under.c - per query: how many of the weights that it gave are under p times its
 * largest one, for a few p, and how many entries it saw (G-KV, appendix B, by step). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <kvf/schema.h>

#include "base/mem.h"
#include "engine/probe/probes.h"

enum { N_P = KVF_N_UNDER, N_COLUMNS = N_P + 1, LANES = 16 };

struct state {
    struct probe_config cfg;
    void *count[N_COLUMNS]; /* [L*G][cap] under p, ...; the last: seen */
};

static size_t width(const struct probe_config *cfg)
{
    return probe_narrow_ages(cfg) ? sizeof(uint16_t) : sizeof(uint32_t);
}

static int columns(const struct probe_config *cfg, struct kvf_column *out)
{
#define X(name, p) "under." #name,
    static const char *const names[N_COLUMNS] = {KVF_UNDER_MAP(X) "under.seen"};
#undef X
    for (int c = 0; c < N_COLUMNS; c++) {
        out[c] = (struct kvf_column){.dtype = probe_narrow_ages(cfg) ? KVF_U16 : KVF_U32,
                                     .space = KVF_SPACE_QUERY,
                                     .axis = KVF_AXIS_STEP};
        snprintf(out[c].name, sizeof out[c].name, "%s", names[c]);
    }
    return N_COLUMNS;
}

static void destroy(void *state)
{
    struct state *s = state;
    for (int c = 0; s && c < N_COLUMNS; c++)
        mem_free(s->count[c]);
    mem_free(s);
}

static void *create(const struct probe_config *cfg)
{
    size_t n = (size_t)cfg->shape.n_layers * (size_t)cfg->shape.n_heads * (size_t)cfg->cap;
    struct state *s = MEM_NEW(struct state, 1);
    bool ok = s;
    for (int c = 0; s && c < N_COLUMNS; c++)
        ok = (s->count[c] = mem_alloc(n, width(cfg))) && ok;
    if (ok) {
        s->cfg = *cfg;
        return s;
    }
    destroy(s);
    return NULL;
}

/* The least float that is not under x: a float is under x iff it is under that. */
static float bar_of(double x)
{
    float f = (float)x;
    return (double)f < x ? nextafterf(f, INFINITY) : f;
}

static int count_under(const float *p, int n, float bar)
{
    int i = 0, count = 0;
    for (; i + LANES <= n; i += LANES) {
        int here = 0;
        for (int j = i; j < i + LANES; j++) /* a known number: becomes vectors */
            here += p[j] < bar;
        count += here;
    }
    for (; i < n; i++)
        count += p[i] < bar;
    return count;
}

static void put(const struct state *s, int column, size_t at, int n)
{
    if (probe_narrow_ages(&s->cfg))
        ((uint16_t *)s->count[column])[at] = (uint16_t)n;
    else
        ((uint32_t *)s->count[column])[at] = (uint32_t)n;
}

static void on_row(void *state, const struct probe_row *row)
{
#define X(name, p) p,
    static const double share[N_P] = {KVF_UNDER_MAP(X)};
#undef X
    struct state *s = state;
    size_t at = probe_query_index(&s->cfg, row->layer, row->head) * (size_t)s->cfg.cap
                + (size_t)row->t;
    double most = row->n ? (double)s->cfg.kernels->max_row(row->p, row->n) : 0;
    for (int c = 0; c < N_P; c++)
        put(s, c, at, count_under(row->p, row->n, bar_of(share[c] * most)));
    put(s, N_P, at, row->n);
}

static int stream(void *state, struct probe_sink *sink, int32_t t0, int32_t t1)
{
    const struct state *s = state;
    struct probe_array all[N_COLUMNS];
    for (int c = 0; c < N_COLUMNS; c++)
        all[c] = (struct probe_array){c, s->count[c], width(&s->cfg)};
    return probe_put_layers(sink, KVF_SPACE_QUERY, all, N_COLUMNS, t0, t1 - t0);
}

const struct probe probe_under = {
    .name = "under",
    .summary = "per query the weights under p times its largest, for four p",
    .wants = PROBE_ROWS,
    .full_only = true,
    .columns = columns,
    .create = create,
    .destroy = destroy,
    .row = on_row,
    .stream = stream,
};
