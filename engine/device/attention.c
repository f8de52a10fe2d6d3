/* attention.c - attention on a device.
 *
 * If no observer or probe needs attention rows, kernels do not store them. Otherwise, or if results
 * must be exact, rows of some queries of all heads are stored at a time. Probe kernels read them on
 * the device. For observers, rows of QUERY_BLOCK queries are copied to the host. */
#include <string.h>

#include "engine/device/probes.h"
#include "engine/device/device.h"

/* A block of queries. Threads divide its query heads. If a probe compares rows, a thread gets all
 * query heads of a KV head. */
struct job {
    struct session *s;
    int layer, T, pos0, r0, R;
    int together;
    struct device_rows rows;
};

static void tell_head(const struct job *j, int g, int thread)
{
    struct session *s = j->s;
    const struct device_rows *m = &j->rows;
    int h = g / (s->e->config.n_heads / s->cache_heads), page = 0;
    struct cache_head view = cache_view(s->cache, j->layer, h);
    const unsigned char *chosen = NULL;
    unsigned char *visible = s->parts.visible + (size_t)thread * s->attn.ld_strip;
    if (s->run.stepping && s->reading.chosen) {
        page = s->reading.page_of_head[h];
        chosen = s->reading.chosen + (size_t)g * s->reading.ld_chosen;
    }
    for (int r = 0; r < j->R; r++) {
        size_t at = (size_t)(g * j->R + r);
        struct attn_row row = {.layer = j->layer,
                               .head = g,
                               .t = j->pos0 + j->r0 + r,
                               .n = view.n - (j->T - 1 - (j->r0 + r)),
                               .seen = m->seen[at],
                               .stepping = s->run.stepping,
                               .p = m->p + at * m->ld,
                               .lse = m->lse[at]};
        if (page || view.first_expiry <= row.t) {
            for (int i = 0; i < row.n; i++)
                visible[i] = slot_seen(&view, page, chosen, i, row.t);
            row.visible = visible;
        }
        notify_row(s, &row, &view, m->entropy[at], thread);
    }
}

static void tell_task(void *ctx, int task, int thread)
{
    const struct job *j = ctx;
    for (int g = task * j->together; g < (task + 1) * j->together; g++)
        tell_head(j, g, thread);
}

static int together(const struct session *s)
{
    bool groups = recorder_wants(s->observers.recorder) & PROBE_GROUPS;
    return groups ? s->e->config.n_heads / s->cache_heads : 1;
}

void device_notify_rows(struct session *s, int layer, const struct device_rows *rows)
{
    struct job j = {s, layer, 1, s->n_past, 0, 1, together(s), *rows};
    par_run(session_pool(s), s->e->config.n_heads / j.together, tell_task, &j);
}

/* Asks the store of evicted entries how much each query would have attended to them. */
static void score_evicted(const struct job *j, const struct gpu_attention *a)
{
    struct session *s = j->s;
    struct device_session *m = s->device_state;
    const struct model_config *c = &s->e->config;
    size_t D = (size_t)c->head_dim;
    gpu_get(m->gpu, s->buf.att, a->out, (size_t)j->R * s->buf.ld_att * sizeof *s->buf.att);
    for (int g = 0; g < c->n_heads; g++)
        for (int r = 0; r < j->R; r++) {
            int h = g / (c->n_heads / s->cache_heads);
            struct cache_head view = cache_view(s->cache, j->layer, h);
            bool choice = s->run.stepping && s->reading.chosen;
            size_t row = (size_t)(j->r0 + r);
            struct evicted_query q = {
                .layer = j->layer,
                .g = g,
                .h = h,
                .t = j->pos0 + j->r0 + r,
                .n = view.n - (j->T - 1 - (j->r0 + r)),
                .view = &view,
                .page = choice ? s->reading.page_of_head[h] : 0,
                .chosen = choice ? s->reading.chosen + (size_t)g * s->reading.ld_chosen : NULL,
                .q = s->buf.qkv + row * s->buf.ld_qkv + (size_t)g * D,
                .out = s->buf.att + (size_t)r * s->buf.ld_att + (size_t)g * D,
                .thread = 0};
            evicted_entries_score(s, &q);
        }
}

/* Computes attention of a block of queries with its rows, for probes and observers. */
static void rows_of_block(const struct job *j, struct gpu_attention a)
{
    struct session *s = j->s;
    struct device_session *m = s->device_state;
    bool watched = rows_observed(s, j->pos0 + j->r0, j->R);
    size_t rows = (size_t)(a.n_heads * j->R);
    a.T = j->R;
    a.pos0 = j->pos0 + j->r0;
    a.q += (size_t)j->r0 * a.ld_q;
    a.out += (size_t)j->r0 * a.ld_out;
    a.cache.n += (size_t)(device_session_blocks(j->r0 + j->R) * s->cache_heads);
    (s->e->exact ? gpu_rows : gpu_rows_approx)(m->gpu, &a, m->rows.d_p, s->attn.ld_strip,
                                               m->rows.d_lse, m->rows.d_entropy, m->rows.d_seen);
    if (s->e->exact)
        gpu_rows_values(m->gpu, &a, m->rows.d_p, s->attn.ld_strip);
    const struct gpu_seen_rows seen = {
        a, m->rows.d_p, s->attn.ld_strip, m->rows.d_lse, m->rows.d_entropy, m->rows.d_seen};
    device_probes_take(s, j->layer, &seen);
    if (watched) {
        gpu_get(m->gpu, m->rows.p, m->rows.d_p, rows * s->attn.ld_strip * sizeof *m->rows.p);
        gpu_get(m->gpu, m->rows.lse, m->rows.d_lse, rows * sizeof *m->rows.lse);
        gpu_get(m->gpu, m->rows.entropy, m->rows.d_entropy, rows * sizeof *m->rows.entropy);
        gpu_get(m->gpu, m->rows.seen, m->rows.d_seen, rows * sizeof *m->rows.seen);
        par_run(s->e->pool, a.n_heads / j->together, tell_task, (void *)j);
    }
    if (s->compare.evicted)
        score_evicted(j, &a);
}

int device_session_blocks(int T)
{
    return (T + QUERY_BLOCK - 1) / QUERY_BLOCK;
}

void device_session_lengths(const struct session *s, int T, int32_t *n)
{
    int H = s->cache_heads;
    for (int b = 0; b < device_session_blocks(T); b++) {
        int end = (b + 1) * QUERY_BLOCK < T ? (b + 1) * QUERY_BLOCK : T;
        for (int h = 0; h < H; h++)
            n[(b + 1) * H + h] = n[h] - (T - end);
    }
}

struct gpu_attention device_session_queries(const struct session *s, int T, int pos0)
{
    const struct device_session *m = s->device_state;
    const struct model_config *c = &s->e->config;
    return (struct gpu_attention){.q = m->buf.qkv,
                                  .out = m->buf.att,
                                  .ld_q = s->buf.ld_qkv,
                                  .ld_out = s->buf.ld_att,
                                  .n_heads = c->n_heads,
                                  .T = T,
                                  .pos0 = pos0,
                                  .scale = c->attn_scale,
                                  .cap = c->attn_cap};
}

const float *device_sinks(const struct session *s, int layer)
{
    const struct device_weights *w = s->e->device;
    return w->sinks ? w->sinks + (size_t)layer * (size_t)s->e->config.n_heads : NULL;
}

void device_session_attend(struct session *s, int layer, const struct gpu_attention *a)
{
    struct device_session *m = s->device_state;
    bool watched = rows_observed(s, a->pos0, a->T) || s->compare.evicted;
    if (!s->e->exact && s->run.stepping)
        gpu_attend_step(m->gpu, a, &m->layer.work, 1);
    else if (!s->e->exact)
        gpu_attend_prompt(m->gpu, a);
    if (!s->e->exact && !watched && !device_probes_any(s))
        return;
    const struct device_rows rows = {m->rows.p, m->rows.lse, m->rows.entropy, m->rows.seen,
                                     s->attn.ld_strip};
    struct job j = {s, layer, a->T, a->pos0, 0, 0, together(s), rows};
    int block = watched ? QUERY_BLOCK : m->rows.block;
    for (; j.r0 < a->T; j.r0 += block) {
        j.R = a->T - j.r0 < block ? a->T - j.r0 : block;
        rows_of_block(&j, *a);
    }
}

int device_attend(struct session *s, int layer, int T, int pos0)
{
    struct device_session *m = s->device_state;
    struct gpu_attention a = device_session_queries(s, T, pos0);
    int H = s->cache_heads;
    a.sinks = device_sinks(s, layer);
    int err = device_session_layer(s, layer, T, pos0, &a.cache);
    if (err)
        return err;
    device_session_lengths(s, T, m->layer.n);
    gpu_put(m->gpu, m->layer.d_n, m->layer.n,
            (size_t)((device_session_blocks(T) + 1) * H) * sizeof *m->layer.n);
    if (s->positions_in_cache) /* the queries are on the device already, without RoPE */
        err = device_rotate_by_rank(s, layer, &a);
    else
        gpu_put(m->gpu, m->buf.qkv, s->buf.qkv, (size_t)T * s->buf.ld_qkv * sizeof *s->buf.qkv);
    if (err)
        return err;
    if (s->run.stepping && s->reading.chosen) {
        gpu_put(m->gpu, m->layer.d_page, s->reading.page_of_head,
                (size_t)H * sizeof *m->layer.d_page);
        gpu_put(m->gpu, m->layer.d_chosen, s->reading.chosen,
                (size_t)a.n_heads * s->reading.ld_chosen);
        a.page = m->layer.d_page;
        a.chosen = m->layer.d_chosen;
        a.ld_chosen = (int)s->reading.ld_chosen;
    }
    device_probes_put_numbers(s, layer, T, pos0);
    device_session_attend(s, layer, &a);
    return KVF_OK;
}
