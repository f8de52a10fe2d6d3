/* probe_received.c - the attention that selected tokens receive from every later query of selected
 * heads: columns of T x T attention. */
#include <stdio.h>

#include "base/mem.h"
#include "engine/probe/probes.h"
#include "engine/probe/watch.h"

/* Declares a column for each pair: NaN before birth, -1 if not visible. */
static int arrays(const struct probe_config *cfg, struct probe_array *out)
{
    int n = cfg->watch ? cfg->watch->n_pairs : 0;
    for (int i = 0; out && i < n; i++) {
        const struct watch_pair *p = &cfg->watch->pair[i];
        struct kvf_column *c = &out[i].column;
        out[i] = (struct probe_array){.column = {"", KVF_F32, KVF_SPACE_RUN, KVF_AXIS_STEP, 0, ""},
                                      .start = PROBE_NAN};
        snprintf(c->name, sizeof c->name, "received.L%dH%d.%d", p->at.layer, p->at.head,
                 (int)p->token);
    }
    return n;
}

/* s->own: [L*G + 1]; the pairs of head h are own[h] .. own[h + 1] - 1. */
static int open_state(struct probe_state *s)
{
    size_t heads = (size_t)s->cfg->shape.n_layers * (size_t)s->cfg->shape.n_heads;
    int *first = s->own = MEM_NEW(int, heads + 1);
    if (!first)
        return KVF_E_NOMEM;
    for (int k = 0; k < s->n_arrays; k++) {
        const struct watch_head *at = &s->cfg->watch->pair[k].at;
        first[probe_query_index(s->cfg, at->layer, at->head) + 1]++;
    }
    for (size_t h = 0; h < heads; h++)
        first[h + 1] += first[h];
    return KVF_OK;
}

int probe_find(const struct probe_row *row, int32_t pos)
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

static void on_row(struct probe_state *s, const struct probe_row *row)
{
    const int *first = (const int *)s->own + probe_query_index(s->cfg, row->layer, row->head);
    for (int k = first[0]; k < first[1]; k++) {
        int32_t i = s->cfg->watch->pair[k].token;
        float *value = probe_cells(s, k, 0, 0);
        if (row->t < i)
            continue;
        int at = probe_find(row, i);
        value[row->t] = at < 0 ? -1.0f : row->p[at];
    }
}

const struct probe probe_received = {
    .name = "received",
    .summary = "attention that chosen tokens receive from every later query",
    .wants = PROBE_ROWS,
    .by_name = true,
    .in_auto = AUTO_ALL,
    .arrays = arrays,
    .open = open_state,
    .row = on_row,
};
