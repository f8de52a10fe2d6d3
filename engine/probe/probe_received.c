/* probe_received.c - the attention that chosen tokens receive from every later query of
 * chosen heads: columns of T x T attention. */
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "engine/probe/probes.h"
#include "engine/probe/watch.h"

struct state {
    struct probe_config cfg;
    int *first;   /* [L*G + 1] pairs of a head: first[h] .. first[h + 1] - 1 */
    float *value; /* [pairs][cap] NaN before birth, -1 where it is not seen */
};

static int n_columns(const struct probe_config *cfg)
{
    return cfg->watch ? cfg->watch->n_pairs : 0;
}

static int columns(const struct probe_config *cfg, struct kvf_column *out)
{
    for (int i = 0; i < n_columns(cfg); i++) {
        const struct watch_pair *p = &cfg->watch->pair[i];
        out[i] = (struct kvf_column){"", KVF_F32, KVF_SPACE_RUN, KVF_AXIS_STEP, 0, ""};
        snprintf(out[i].name, sizeof out[i].name, "received.L%dH%d.%d", p->at.layer, p->at.head,
                 (int)p->token);
    }
    return n_columns(cfg);
}

static void destroy(void *state)
{
    struct state *s = state;
    if (!s)
        return;
    mem_free(s->first);
    mem_free(s->value);
    mem_free(s);
}

static void *create(const struct probe_config *cfg)
{
    size_t heads = (size_t)cfg->shape.n_layers * (size_t)cfg->shape.n_heads;
    size_t pairs = (size_t)n_columns(cfg), n = pairs * (size_t)cfg->cap;
    struct state *s = MEM_NEW(struct state, 1);
    if (!s)
        return NULL;
    s->cfg = *cfg;
    s->first = MEM_NEW(int, heads + 1);
    s->value = MEM_NEW(float, n);
    if (!s->first || !s->value) {
        destroy(s);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        s->value[i] = NAN;
    for (size_t k = 0; k < pairs; k++) {
        const struct watch_head *at = &cfg->watch->pair[k].at;
        s->first[probe_query_index(cfg, at->layer, at->head) + 1]++;
    }
    for (size_t h = 0; h < heads; h++)
        s->first[h + 1] += s->first[h];
    return s;
}

/* Where position i is among n rising ones, or -1. */
static int place_of(const int32_t *pos, int n, int32_t i)
{
    int lo = 0, hi = n;
    if (!pos)
        return i < n ? i : -1;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (pos[mid] < i)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && pos[lo] == i ? lo : -1;
}

static void on_row(void *state, const struct probe_row *row)
{
    struct state *s = state;
    size_t head = probe_query_index(&s->cfg, row->layer, row->head), cap = (size_t)s->cfg.cap;
    for (int k = s->first[head]; k < s->first[head + 1]; k++) {
        int32_t i = s->cfg.watch->pair[k].token;
        if (row->t < i)
            continue;
        int at = place_of(row->pos, row->n, i);
        s->value[(size_t)k * cap + (size_t)row->t] = at < 0 ? -1.0f : row->p[at];
    }
}

static int stream(void *state, struct probe_sink *sink, int32_t t0, int32_t t1)
{
    const struct state *s = state;
    int err = KVF_OK;
    for (int k = 0; !err && k < n_columns(&s->cfg); k++)
        err = probe_put(sink, k, 0, 1, s->value + (size_t)k * (size_t)s->cfg.cap, 0, 4, t0,
                        t1 - t0);
    return err;
}

const struct probe probe_received = {
    .name = "received",
    .summary = "attention that chosen tokens receive from every later query",
    .wants = PROBE_ROWS,
    .by_name = true,
    .n_columns = n_columns,
    .columns = columns,
    .create = create,
    .destroy = destroy,
    .row = on_row,
    .stream = stream,
};
