/* decode.c - the parts of a decode step on the device: evictions before the token, the layers with
 * their evidence, the logits, and the update of the host. */
#include <string.h>

#include "engine/device/probes.h"
#include "engine/device/decode.h"

enum {
    KNOWN_EVIDENCE = EVIDENCE_SUM | EVIDENCE_WINDOW | EVIDENCE_KEYS | EVIDENCE_NORMS
                     | EVIDENCE_ANCHOR | EVIDENCE_GATE | EVIDENCE_NOTE | EVIDENCE_HISTORY
                     | EVIDENCE_SPREAD | EVIDENCE_PAGES | EVIDENCE_BLOCKS | EVIDENCE_VALUES
                     | EVIDENCE_MOMENTS,
};

static struct device_decode *device_decode_of(const struct session *s)
{
    return ((struct device_session *)s->device_state)->decode;
}

/* The places in a block that steps on the device serve. */
enum {
    DECODE_POINTS = POINT_QK_UNROTATED | POINT_GATE_INPUTS | POINT_QK_ROTATED | POINT_GATES,
};

/* Returns true if steps of the session can run on the device. */
static bool takes(const struct session *s)
{
    const struct method *row = method_of(s->method);
    bool others = s->compare.full_cache || s->compare.oracle
                  || session_points(s) & ~(unsigned)DECODE_POINTS;
    bool gates = !s->parts.gate || device_gates_supported(s->gates);
    return s->device_state && !others && !s->positions_in_cache && gates
           && device_reads_supported(s) && s->cache_heads == s->e->config.n_kv_heads
           && device_eviction_supported(s->method)
           && !(method_evidence(s->method) & ~KNOWN_EVIDENCE)
           && (!row->score || device_score_of(row, method_params_of(s->method)));
}

/* ---- a step */

/* Returns the number of entries for which kernels are launched if the longest head has `most`: the
 * next multiple of a quarter of the power of two below. Steps then keep their shape while heads
 * grow. */
static int shape_of(int most, int ld)
{
    int part = PAGE_SLOTS;
    while (8 * part <= most)
        part *= 2;
    int n = (most + part - 1) / part * part;
    return n < ld ? n : ld;
}

/* Uploads the changed page tables. */
static void send_tables(struct device_session *m)
{
    size_t first = (size_t)m->pages.changed * (size_t)m->pages.ld_table;
    size_t n = (size_t)(m->pages.changed_end - m->pages.changed) * (size_t)m->pages.ld_table;
    if (n > 0)
        gpu_put(m->gpu, (int32_t *)m->decode->heads.cache.table + first, m->pages.table + first,
                n * sizeof *m->pages.table);
    m->pages.changed = m->pages.changed_end = 0;
}

/* Assigns pages for one more entry in each head, and uploads the tables. */
static int hold_pages(struct session *s)
{
    struct device_session *m = s->device_state;
    struct device_decode *r = m->decode;
    int H = s->cache_heads, heads = r->heads.cache.heads, most = 0;
    for (int at = 0; at < heads; at++) {
        int n = cache_view(s->cache, at / H, at % H).n + 1;
        int err = device_set_page_count(s, at, (n + PAGE_SLOTS - 1) / PAGE_SLOTS);
        if (err)
            return err;
        most = n > most ? n : most;
    }
    r->heads.cache.most = shape_of(most, r->ld);
    r->heads.cache.pool = m->pages.pool;
    send_tables(m);
    return KVF_OK;
}

/* Prepares the embedding of the token and the numbers that change from step to step. Kernels read
 * them from memory, so that their arguments stay the same. */
static void note_token(struct session *s, int32_t id)
{
    struct device_decode *r = device_decode_of(s);
    const struct model_config *c = &s->e->config;
    size_t d = (size_t)c->d_model, turn = (size_t)c->rope_dim;
    embed_tokens(s, &id, 1);
    memcpy(r->in.host.x, s->buf.x, d * sizeof *s->buf.x);
    r->in.host.now[0] = s->n_past;
    r->in.host.now[1] = r->evidence.window.rows ? r->evidence.n_rows % r->evidence.window.ring : 0;
    rope_fill(s, s->buf.cos_sin, s->chunk, 0, s->n_past);
    for (int i = 0; i < 2; i++)
        memcpy(r->in.host.turns + (size_t)i * turn,
               s->buf.cos_sin + (size_t)i * (size_t)s->chunk * turn, turn * sizeof(float));
    if (!s->parts.gate || gates_inputs(s->gates) != 0)
        return;
    for (int l = 0; l < c->n_layers; l++) { /* the gate values are given */
        struct gate_input in = {.pos = s->n_past};
        gates_eval(s->gates, l, &in, r->in.host.gate + l * s->cache_heads, s->parts.scratch);
    }
}

/* Returns the heads of some layers as a cache. */
static struct gpu_cache cache_of(const struct session *s, int layer, int layers)
{
    const struct device_decode *r = device_decode_of(s);
    struct gpu_cache c = r->heads.cache;
    size_t first = (size_t)layer * (size_t)s->cache_heads;
    c.heads = layers * s->cache_heads;
    c.table += first * (size_t)c.ld_table;
    c.n += first;
    c.pos += first * (size_t)c.ld_slot;
    return c;
}

/* Returns queries, keys and values of a layer, after norms and RoPE. */
static float *projected_of(const struct session *s, int layer)
{
    return device_decode_of(s)->out.qkv + (size_t)layer * s->buf.ld_qkv;
}

static struct gpu_attention attention_of(const struct session *s, int layer, int layers)
{
    const struct model_config *c = &s->e->config;
    return (struct gpu_attention){.cache = cache_of(s, layer, layers),
                                  .q = projected_of(s, layer),
                                  .out = ((struct device_session *)s->device_state)->buf.att,
                                  .ld_q = s->buf.ld_qkv,
                                  .ld_out = s->buf.ld_att,
                                  .n_heads = layers * c->n_heads,
                                  .layer_heads = c->n_heads,
                                  .ld_layer = s->buf.ld_qkv,
                                  .T = 1,
                                  .now = device_decode_of(s)->in.now,
                                  .scale = c->attn_scale,
                                  .cap = c->attn_cap,
                                  .sinks = device_sinks(s, layer)};
}

static struct gpu_seen_rows rows_of(const struct session *s, const struct gpu_attention *a,
                                    int layer)
{
    const struct device_decode *r = device_decode_of(s);
    size_t first = (size_t)layer * (size_t)s->e->config.n_heads;
    return (struct gpu_seen_rows){*a,
                                  r->out.rows + first * (size_t)r->ld,
                                  (size_t)r->ld,
                                  r->out.lse + first,
                                  r->out.entropy + first,
                                  r->out.seen + first};
}

/* Starts the copy of rows to the host. */
static void fetch_rows(struct session *s, const struct gpu_seen_rows *rows, int layer)
{
    struct gpu *g = ((struct device_session *)s->device_state)->gpu;
    struct device_decode *r = device_decode_of(s);
    size_t first = (size_t)layer * (size_t)s->e->config.n_heads, n = (size_t)rows->a.n_heads;
    gpu_fetch(g, r->out.host.rows + first * rows->ld, rows->p, n * rows->ld * sizeof *rows->p);
    gpu_fetch(g, r->out.host.lse + first, rows->lse, n * sizeof *rows->lse);
    gpu_fetch(g, r->out.host.entropy + first, rows->entropy, n * sizeof *rows->entropy);
    gpu_fetch(g, r->out.host.seen + first, rows->seen, n * sizeof *rows->seen);
}

/* Updates the evidence from the rows of some layers. */
static void take_rows(struct session *const *s, const struct gpu_seen_rows *rows, int n, int layer)
{
    struct gpu_taken of[GPU_TOGETHER];
    int G = s[0]->e->config.n_heads;
    for (int i = 0; i < n; i++) {
        const struct device_decode *r = device_decode_of(s[i]);
        of[i] = (struct gpu_taken){.p = rows[i].p,
                                   .ld = rows[i].ld,
                                   .lse = rows[i].lse,
                                   .seen = rows[i].seen,
                                   .n = r->heads.n,
                                   .most = r->heads.cache.most,
                                   .ld_slot = r->heads.cache.ld_slot,
                                   .now = r->in.now,
                                   .sum = r->evidence.sum,
                                   .window = r->evidence.window};
    }
    gpu_accumulate_rows(((struct device_session *)s[0]->device_state)->gpu, of, n,
                        G / s[0]->cache_heads, layer * G, rows->a.n_heads);
}

static bool gives_evidence(const struct session *s)
{
    return method_evidence(s->method) & EVIDENCE_OF_ROWS;
}

bool step_shares_rows(const struct session *s)
{
    return gives_evidence(s) && !device_decode_of(s)->has_rows && !device_probes_any(s);
}

void step_process_rows(struct session *const *s, int n, int layer)
{
    struct gpu *g = ((struct device_session *)s[0]->device_state)->gpu;
    struct gpu_seen_rows rows[GPU_TOGETHER];
    int end = layer + 1, part = step_layers_together(s[0]), first = layer / part * part;
    if (end < s[0]->e->config.n_layers && end % part > 0)
        return;
    for (int i = 0; i < n; i++) {
        struct gpu_attention a = attention_of(s[i], first, end - first);
        device_reads_set(s[i], first, &a);
        rows[i] = rows_of(s[i], &a, first);
    }
    gpu_low_priority(g, true);
    if (!s[0]->e->exact)
        gpu_rows_together(g, rows, n);
    if (gives_evidence(s[0]))
        take_rows(s, rows, n, first);
    for (int i = 0; i < n; i++) {
        device_probes_take(s[i], first, &rows[i]);
        if (device_decode_of(s[i])->has_rows)
            fetch_rows(s[i], &rows[i], first);
    }
    gpu_low_priority(g, false);
}

/* Computes attention from its rows, for exact results. */
static void attend_exactly(struct session *s, int layer, const struct gpu_attention *a)
{
    struct gpu *g = ((struct device_session *)s->device_state)->gpu;
    struct gpu_seen_rows rows = rows_of(s, a, layer);
    gpu_rows_together(g, &rows, 1);
    gpu_rows_values(g, a, rows.p, rows.ld);
}

static bool wants_unturned(const struct session *s)
{
    return s->parts.unrotated || session_points(s) & POINT_QK_UNROTATED;
}

/* Returns true if the query of this step counts for the moments. Queries at sink positions do not.
 */
static bool takes_queries(const struct session *s)
{
    return device_decode_of(s)->evidence.query_sum
           && s->n_past >= method_params_of(s->method)->sinks;
}

struct gpu_new_entries step_new_entry(struct session *s, int layer, float *qkv,
                                      struct gpu_cache *ret_cache)
{
    struct device_decode *r = device_decode_of(s);
    struct gpu_new_entries x = device_new_entries(s, layer, 1, r->in.turns,
                                                  (size_t)s->e->config.rope_dim);
    x.qkv = projected_of(s, layer);
    x.from = qkv;
    x.slot = r->heads.slot + layer * s->cache_heads;
    if (wants_unturned(s))
        x.unturned = r->out.unrotated + (size_t)layer * s->parts.ld_unrotated;
    *ret_cache = cache_of(s, layer, 1);
    return x;
}

/* Updates the moments of the queries of a layer. The step does not wait for it. */
static void take_moments(struct session *s, int layer)
{
    struct gpu *g = ((struct device_session *)s->device_state)->gpu;
    struct device_decode *r = device_decode_of(s);
    int G = s->e->config.n_heads, D = s->e->config.head_dim;
    const float *pre = r->out.unrotated + (size_t)layer * s->parts.ld_unrotated;
    size_t q = (size_t)layer * (size_t)G * (size_t)D;
    gpu_low_priority(g, true);
    if (takes_queries(s))
        gpu_take_moments(g, pre, G, D, r->evidence.query_sum + q,
                         r->evidence.query_outer + q * (size_t)D);
    gpu_low_priority(g, false);
}

/* Computes the evidence of the new entries of all layers that does not depend on attention. */
static void take_newcomers(struct session *s)
{
    struct gpu *g = ((struct device_session *)s->device_state)->gpu;
    struct device_decode *r = device_decode_of(s);
    int heads = r->heads.cache.heads;
    if (r->evidence.norms || r->evidence.anchor)
        gpu_take_keys(g, &r->heads, 0, heads, r->evidence.norms, r->evidence.anchor);
    if (r->evidence.values)
        gpu_take_values(g, &r->heads, 0, heads, r->evidence.values);
}

/* Starts the copy of the layers' outputs to the host, in parallel with the remaining products. */
static void fetch_layers(struct session *s)
{
    struct device_session *m = s->device_state;
    struct device_decode *r = m->decode;
    size_t L = (size_t)s->e->config.n_layers;
    gpu_low_priority(m->gpu, true);
    take_newcomers(s);
    device_reads_fetch(s);
    gpu_fetch(m->gpu, r->out.host.qkv, r->out.qkv, L * s->buf.ld_qkv * sizeof *r->out.qkv);
    if (wants_unturned(s))
        gpu_fetch(m->gpu, r->out.host.unrotated, r->out.unrotated,
                  L * s->parts.ld_unrotated * sizeof *r->out.unrotated);
    gpu_low_priority(m->gpu, false);
}

struct gpu_attention step_attention(struct session *s, int layer)
{
    struct gpu_attention a = attention_of(s, layer, 1);
    take_moments(s, layer);
    device_reads_run(
        s, layer, device_decode_of(s)->out.unrotated + (size_t)layer * s->parts.ld_unrotated, &a);
    if (s->e->exact)
        attend_exactly(s, layer, &a);
    return a;
}

void step_after_attention(struct session *s, int layer)
{
    struct device_decode *r = device_decode_of(s);
    if (step_keeps_rows(s) && !step_shares_rows(s))
        step_process_rows(&s, 1, layer);
    if (layer + 1 < s->e->config.n_layers)
        return;
    fetch_layers(s);
    r->evidence.n_rows += r->evidence.window.rows != NULL;
    r->evidence.n_queries += takes_queries(s);
}

void step_gates(struct session *shared, struct session *const *s, int n)
{
    struct gpu *g = ((struct device_session *)shared->device_state)->gpu;
    struct device_tokens x[GPU_TOGETHER];
    struct gpu_numbers of[GPU_TOGETHER];
    float *numbers[GPU_TOGETHER];
    for (int i = 0; i < n; i++) {
        const struct device_session *m = s[i]->device_state;
        const struct device_decode *r = m->decode;
        bool given = gates_inputs(s[i]->gates) == 0;
        x[i] = (struct device_tokens){m->buf.attn_in, r->out.unrotated, r->out.qkv,
                                      m->buf.ld_attn_in, shared->e->config.n_layers};
        of[i] = (struct gpu_numbers){r->in.gate, given ? NULL : r->in.host.gate, r->evidence.gate,
                                     r->heads.slot, r->heads.cache.ld_slot};
        of[i].now = r->in.now;
        of[i].of_token = device_probes_numbers(s[i], &of[i].cap);
        numbers[i] = r->in.gate;
    }
    gpu_low_priority(g, true);
    device_gates_run_step(shared, s, x, numbers, n);
    gpu_take_numbers(g, of, n, device_decode_of(s[0])->heads.cache.heads);
    gpu_low_priority(g, false);
}

void step_fetch_normed(struct session *s)
{
    struct device_session *m = s->device_state;
    gpu_low_priority(m->gpu, true);
    gpu_fetch(m->gpu, device_decode_of(s)->out.host.normed, m->buf.normed,
              (size_t)s->e->config.d_model * sizeof *m->buf.normed);
    gpu_low_priority(m->gpu, false);
}

void step_fetch(struct session *s, float *logits)
{
    struct device_session *m = s->device_state;
    struct device_decode *r = m->decode;
    const struct model_config *c = &s->e->config;
    if (device_samples(s))
        device_draw_run(s, logits);
    else if (!s->compare.no_logits)
        gpu_fetch(m->gpu, r->out.host.logits, m->buf.logits,
                  (size_t)c->vocab * sizeof *m->buf.logits);
}

/* ---- the update of the host */

static struct imported_token token_of(const struct session *s, int layer)
{
    const struct device_decode *r = device_decode_of(s);
    size_t l = (size_t)layer, H = (size_t)s->cache_heads;
    return (struct imported_token){
        .qkv = r->out.host.qkv + l * s->buf.ld_qkv,
        .pre = wants_unturned(s) ? r->out.host.unrotated + l * s->parts.ld_unrotated : NULL,
        .gate = s->parts.gate ? r->in.host.gate + l * H : NULL,
    };
}

/* Stores the new entries of a layer and notifies the observers of its rows. */
static void learn_layer(struct session *s, int layer)
{
    struct device_decode *r = device_decode_of(s);
    size_t G = (size_t)s->e->config.n_heads, l = (size_t)layer;
    const struct imported_token x = token_of(s, layer);
    device_reads_store(s, layer);
    layer_import_token(s, layer, &x);
    if (!r->has_rows)
        return;
    const struct device_rows rows = {.p = r->out.host.rows + l * G * (size_t)r->ld,
                                     .lse = r->out.host.lse + l * G,
                                     .entropy = r->out.host.entropy + l * G,
                                     .seen = r->out.host.seen + l * G,
                                     .ld = (size_t)r->ld};
    device_notify_rows(s, layer, &rows);
}

bool step_imports_in_parallel(const struct session *s)
{
    return layers_import_in_parallel(s) && !device_decode_of(s)->has_rows;
}

int step_import(struct session *s, const struct device_eviction *round)
{
    int err = eviction_finish(s, round);
    if (!err)
        err = session_reserve(s, 1);
    for (int l = 0; !err && !step_imports_in_parallel(s) && l < s->e->config.n_layers; l++)
        learn_layer(s, l);
    return err;
}

void step_import_layer(struct session *s, int layer, int thread)
{
    const struct imported_token x = token_of(s, layer);
    layer_import_serial(s, layer, &x, thread);
}

void step_import_end(struct session *s)
{
    const struct model_config *c = &s->e->config;
    for (int l = 0; step_imports_in_parallel(s) && l < c->n_layers; l++)
        count_reads(s, l, 1);
    cache_account(s->cache);
    memcpy(s->buf.normed, device_decode_of(s)->out.host.normed,
           (size_t)c->d_model * sizeof *s->buf.normed);
}

void step_end(struct session *s)
{
    struct device_decode *r = device_decode_of(s);
    const struct model_config *c = &s->e->config;
    s->run.has_logits = true;
    s->n_past++;
    if (!device_draw_finish(s) && !s->compare.no_logits) {
        memcpy(s->buf.logits, r->out.host.logits, (size_t)c->vocab * sizeof *s->buf.logits);
        cap_logits(s, s->buf.logits, c->vocab);
    }
    session_count_steps(s, 1);
}

int step_after_begin(struct session *s, struct device_eviction *ret_round)
{
    int err = eviction_begin(s, PHASE_AFTER, ret_round);
    if (!err)
        err = eviction_reserve(s, ret_round);
    if (!err && ret_round->due)
        eviction_set_inputs(s, ret_round);
    return err;
}

void step_after_launch(struct session *s, const struct device_eviction *round)
{
    struct device_session *m = s->device_state;
    struct device_decode *r = m->decode;
    if (!round->due)
        return;
    gpu_send(m->gpu, r->in.block, r->in.host.block, r->in.bytes);
    eviction_launch(s, round);
    eviction_cut(s, true, false);
}

int step_after_end(struct session *s, const struct device_eviction *round)
{
    return eviction_finish(s, round);
}

int step_begin(struct session *s)
{
    int after = method_params_of(s->method)->order == ORDER_AFTER;
    s->run.stepping = true;
    int err = watch_prepare(s, 1, s->n_past + after);
    if (!err && !device_decode_fits(s)) {
        err = device_sync_evidence(s);
        err = err ? err : device_decode_upload(s);
    }
    if (!err)
        err = hold_pages(s);
    return err ? err : eviction_expire(s);
}

int step_decide(struct session *s, int32_t id, struct device_eviction *ret_round)
{
    int err = session_reserve(s, 1);
    if (!err)
        err = eviction_begin(s, PHASE_BEFORE, ret_round);
    if (err)
        return err;
    note_token(s, id);
    eviction_set_inputs(s, ret_round);
    return KVF_OK;
}

int step_prepare(struct session *s, int32_t id, const struct device_eviction *round)
{
    int err = eviction_reserve(s, round);
    if (err)
        return err;
    device_draw_begin(s, id);
    device_reads_begin(s);
    return KVF_OK;
}

void step_parts(struct session *s, struct gpu_parts *p)
{
    const struct device_session *m = s->device_state;
    const struct device_decode *r = m->decode;
    gpu_part(p, r->in.block, r->in.host.block, r->in.bytes);
    gpu_part(p, m->buf.x, r->in.host.x, (size_t)s->e->config.d_model * sizeof *m->buf.x);
    device_draw_parts(s, p);
    device_reads_parts(s, p);
}

void step_launch_evictions(struct session *s, const float *logits,
                           const struct device_eviction *round, bool rounds)
{
    bool has_round = rounds && device_decode_of(s)->evict.last.pools > 0;
    device_draw_nll(s, logits);
    if (has_round)
        eviction_launch(s, round);
    eviction_cut(s, has_round, true);
}

bool device_can_batch(const struct session *s)
{
    return takes(s) && s->n_past < s->cap;
}
