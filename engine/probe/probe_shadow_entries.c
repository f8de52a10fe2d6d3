/* probe_shadow_entries.c - what each query missed, and which entries it missed: by step
 * the mass of what it saw, the most that as many entries could have had, and the error of
 * its output; by token how many queries would have wanted it, the first of them, and the
 * weight they would have given it. */
#include <math.h>
#include <string.h>

#include <kvf/schema.h>

#include "base/mem.h"
#include "engine/probe/probes.h"

struct state {
    struct probe_config cfg;
    float *kept, *oracle, *error; /* [L*G][cap] by step */
    uint32_t *hits, *first;       /* [L*G][cap] by token */
    double *mass;
    float *out; /* [G][cap] scratch of writing */
};

static int columns(const struct probe_config *cfg, struct kvf_column *out)
{
    static const struct kvf_column col[] = {
        {"shadow.kept_mass", KVF_F32, KVF_SPACE_QUERY, KVF_AXIS_STEP, 0, ""},
        {"shadow.oracle_mass", KVF_F32, KVF_SPACE_QUERY, KVF_AXIS_STEP, 0, ""},
        {"shadow.output_error", KVF_F32, KVF_SPACE_QUERY, KVF_AXIS_STEP, 0, ""},
        {"shadow.ghost_hits", KVF_U32, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, ""},
        {"shadow.first_hit", KVF_U32, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, "step"},
        {"shadow.ghost_mass", KVF_F32, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, ""},
    };
    (void)cfg;
    memcpy(out, col, sizeof col);
    return 6;
}

static void destroy(void *state)
{
    struct state *s = state;
    if (!s)
        return;
    void *const all[] = {s->kept, s->oracle, s->error, s->hits, s->first, s->mass, s->out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    mem_free(s);
}

static void *create(const struct probe_config *cfg)
{
    size_t n = (size_t)cfg->shape.n_layers * (size_t)cfg->shape.n_heads * (size_t)cfg->cap;
    struct state *s = MEM_NEW(struct state, 1);
    if (!s)
        return NULL;
    s->cfg = *cfg;
    s->kept = MEM_NEW(float, n);
    s->oracle = MEM_NEW(float, n);
    s->error = MEM_NEW(float, n);
    s->hits = MEM_NEW(uint32_t, n);
    s->first = MEM_NEW(uint32_t, n);
    s->mass = MEM_NEW(double, n);
    s->out = MEM_NEW(float, (size_t)cfg->shape.n_heads *(size_t)cfg->cap);
    if (!s->kept || !s->oracle || !s->error || !s->hits || !s->first || !s->mass || !s->out) {
        destroy(s);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        s->kept[i] = s->oracle[i] = s->error[i] = NAN;
        s->first[i] = KVF_NEVER;
    }
    return s;
}

static void on_missed(void *state, const struct probe_missed *m)
{
    struct state *s = state;
    size_t at = probe_query_index(&s->cfg, m->layer, m->head) * (size_t)s->cfg.cap;
    s->kept[at + (size_t)m->t] = m->kept;
    s->oracle[at + (size_t)m->t] = m->oracle;
    s->error[at + (size_t)m->t] = m->error;
    for (int i = 0; i < m->n; i++) {
        if (m->seen[i])
            continue;
        s->mass[at + (size_t)i] += (double)m->p[i];
        if (!row_cut_has(&m->cut, m->p[i], i))
            continue;
        s->hits[at + (size_t)i]++;
        if (s->first[at + (size_t)i] == KVF_NEVER)
            s->first[at + (size_t)i] = (uint32_t)m->t;
    }
}

static int stream(void *state, struct probe_sink *sink, int32_t t0, int32_t t1)
{
    const struct state *s = state;
    const struct probe_array all[] = {{0, s->kept, 4}, {1, s->oracle, 4}, {2, s->error, 4}};
    return probe_put_layers(sink, KVF_SPACE_QUERY, all, 3, t0, t1 - t0);
}

static int snapshot(void *state, struct probe_sink *sink, int32_t t1)
{
    struct state *s = state;
    int G = s->cfg.shape.n_heads, err = KVF_OK;
    size_t cap = (size_t)s->cfg.cap;
    for (int l = 0; !err && l < s->cfg.shape.n_layers; l++) {
        size_t at = probe_query_index(&s->cfg, l, 0) * cap;
        for (size_t i = 0; i < (size_t)G * cap; i++)
            s->out[i] = (float)s->mass[at + i];
        err = probe_put(sink, 3, l, G, s->hits + at, cap, 4, 0, t1);
        if (!err)
            err = probe_put(sink, 4, l, G, s->first + at, cap, 4, 0, t1);
        if (!err)
            err = probe_put(sink, 5, l, G, s->out, cap, 4, 0, t1);
    }
    return err;
}

const struct probe probe_shadow_entries = {
    .name = "shadow-entries",
    .summary = "what queries miss: evicted entries are kept aside and scored",
    .shadow = "entries",
    .wants = PROBE_SHADOW_ENTRIES,
    .columns = columns,
    .create = create,
    .destroy = destroy,
    .missed = on_missed,
    .stream = stream,
    .snapshot = snapshot,
};
