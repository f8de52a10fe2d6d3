/* probe_under.c - per query: the number of weights below p times its largest weight, for several p,
 * and the number of visible entries (G-KV, appendix B, by step). */
#include <math.h>

#include "engine/probe/probes.h"

enum { N_P = KVF_N_UNDER, SEEN = N_P, N_COLUMNS };

#define COLUMN(name) .column = {name, PROBE_STEPS, KVF_SPACE_QUERY, KVF_AXIS_STEP, 0, ""}
#define X(name, p) {COLUMN("under." #name)},
static const struct probe_array arrays[N_COLUMNS] = {KVF_UNDER_MAP(X){COLUMN("under.seen")}};
#undef X

/* Returns the smallest float that is at least x. A float is below x if and only if it is below this
 * float. */
static float bar_of(double x)
{
    float f = (float)x;
    return (double)f < x ? nextafterf(f, INFINITY) : f;
}

static void put(const struct probe_state *s, int array, const struct probe_row *row, int n)
{
    void *cells = probe_cells(s, array, row->layer, row->head);
    probe_put_step(s, cells, (size_t)row->t, (uint32_t)n);
}

static void on_row(struct probe_state *s, const struct probe_row *row)
{
#define X(name, p) p,
    static const double share[N_P] = {KVF_UNDER_MAP(X)};
#undef X
    double most = row->n ? (double)s->cfg->kernels->max_row(row->p, row->n) : 0;
    for (int c = 0; c < N_P; c++)
        put(s, c, row, s->cfg->kernels->count_below(row->p, row->n, bar_of(share[c] * most)));
    put(s, SEEN, row, row->n);
}

const struct probe probe_under = {
    .name = "under",
    .summary = "per query: number of weights below p times the largest, for four p",
    .wants = PROBE_ROWS,
    .full_only = true,
    .in_auto = AUTO_ALL,
    PROBE_ARRAYS(arrays),
    .row = on_row,
};
