/* device_step.c - a step that waits for the device once, when all of it is on the stream: what
 * leaves before the token, its layers with the evidence that they give, and its logits. */
#include <string.h>

#include "engine/decode/device_probes.h"
#include "engine/decode/device_step.h"

enum {
    KNOWN_EVIDENCE = EVIDENCE_SUM | EVIDENCE_WINDOW | EVIDENCE_KEYS | EVIDENCE_NORMS
                     | EVIDENCE_ANCHOR | EVIDENCE_GATE | EVIDENCE_NOTE | EVIDENCE_HISTORY
                     | EVIDENCE_SPREAD | EVIDENCE_PAGES | EVIDENCE_BLOCKS | EVIDENCE_VALUES
                     | EVIDENCE_MOMENTS,
};

static struct resident *resident_of(const struct session *s)
{
    return ((struct mirror *)s->mirror)->resident;
}

/* Whether nothing of a step needs the host in between. */
static bool takes(const struct session *s)
{
    const struct method *row = method_of(s->method);
    bool others = s->twin || s->twin_for || s->twin_of || s->shadow || s->ghosts || s->n_watchers;
    bool gates = !s->gate || device_gates_can(s->gates);
    return s->mirror && !others && gates && device_reads_can(s)
           && s->cache_heads == s->e->config.n_kv_heads && elsewhere_can(s->method)
           && !(method_evidence(s->method) & ~KNOWN_EVIDENCE)
           && (!row->score || device_score_of(row, method_params_of(s->method)));
}

/* ---- rounds */

/* What query t does not see any more, as the host is about to find it. */
static int list_expired(struct session *s, int32_t t, int64_t *ret_n)
{
    struct resident *r = resident_of(s);
    int H = s->cache_heads;
    int64_t n = 0;
    for (int at = 0; at < r->heads.cache.heads; at++) {
        struct cache_head view = cache_view(s->cache, at / H, at % H);
        for (int i = 0; view.soonest <= t && i < view.n; i++)
            n += view.until[i] <= t;
    }
    int err = resident_reserve_lists(s, 0, n);
    *ret_n = n;
    for (int at = 0; !err && n > 0 && at < r->heads.cache.heads; at++) {
        struct cache_head view = cache_view(s->cache, at / H, at % H);
        for (int i = 0; view.soonest <= t && i < view.n; i++)
            if (view.until[i] <= t) {
                r->host.gone_head[--n] = at;
                r->host.gone_slot[n] = i;
            }
    }
    return err;
}

static void drop(struct session *s, int together, bool newcomer, int32_t t)
{
    struct mirror *m = s->mirror;
    struct resident *r = m->resident;
    if (r->anchor && together)
        gpu_drop_keys(m->gpu, &r->heads, together, r->anchor);
    gpu_cut(m->gpu, &r->heads, together, newcomer, t);
}

static void launch_expired(struct session *s, int64_t n)
{
    struct mirror *m = s->mirror;
    struct resident *r = m->resident;
    if (n == 0)
        return;
    gpu_put(m->gpu, r->gone_head, r->host.gone_head, (size_t)n * sizeof *r->gone_head);
    gpu_put(m->gpu, r->gone_slot, r->host.gone_slot, (size_t)n * sizeof *r->gone_slot);
    gpu_list_gone(m->gpu, &r->heads, r->gone_head, r->gone_slot, (int)n);
    drop(s, 1, false, 0);
}

static void put_round(struct session *s, const struct elsewhere_round *round)
{
    struct mirror *m = s->mirror;
    struct resident *r = m->resident;
    size_t heads = (size_t)r->heads.cache.heads;
    memcpy(r->host.due, round->head, heads);
    memcpy(r->host.go, round->go, (size_t)round->pools * sizeof *r->go);
    gpu_put(m->gpu, r->due, r->host.due, heads);
    gpu_put(m->gpu, r->go, r->host.go, (size_t)round->pools * sizeof *r->go);
    if (!round->may)
        return;
    memcpy(r->host.may, round->may, heads * sizeof *r->may);
    gpu_put(m->gpu, r->may, r->host.may, heads * sizeof *r->may);
}

/* Scores and chooses; what was chosen is on its way to the host. */
static void launch_round(struct session *s, const struct elsewhere_round *round)
{
    struct mirror *m = s->mirror;
    struct resident *r = m->resident;
    const struct method_params *p = method_params_of(s->method);
    size_t heads = (size_t)r->heads.cache.heads;
    int held = r->taken < p->window ? r->taken : p->window;
    r->window.held = held;
    r->window.newest = r->taken > 0 && r->window.ring ? (r->taken - 1) % r->window.ring : 0;
    put_round(s, round);
    device_score_of(method_of(s->method), p)->eval(s, round);
    gpu_candidates(m->gpu, &r->heads, r->due, p->sinks, round->recent_from);
    struct gpu_choice c = {.score = r->score,
                           .pos = r->heads.cache.pos,
                           .mark = r->heads.mark,
                           .n = r->heads.n,
                           .count = r->count,
                           .ld = r->ld,
                           .from = GPU_CANDIDATE,
                           .to = GPU_LAST,
                           .older = p->tie == TIE_OLDER};
    if (round->may) {
        gpu_choose(m->gpu, &c, (int)heads, 1, r->may);
        c.from = GPU_LAST;
    }
    c.to = GPU_GONE;
    gpu_choose(m->gpu, &c, round->pools, round->heads_of_pool, r->go);
    gpu_report(m->gpu, &r->heads, r->score, c.older, r->chosen, r->cursor, r->victim,
               r->victim_score);
    gpu_fetch(m->gpu, r->host.chosen, r->chosen, heads * sizeof *r->chosen);
    gpu_fetch(m->gpu, r->host.victim, r->victim, (size_t)round->most * sizeof *r->victim);
    gpu_fetch(m->gpu, r->host.victim_score, r->victim_score,
              (size_t)round->most * sizeof *r->victim_score);
}

/* Heads that the first one speaks for. */
static int together(const struct session *s)
{
    return method_of(s->method)->scope == SCOPE_LAYER ? s->cache_heads : 1;
}

static void on_evict(void *ctx, const struct eviction *e)
{
    session_evicted(ctx, e);
}

/* What came of a round, on the host. */
static int take_round(struct session *s, const struct elsewhere_round *round)
{
    struct resident *r = resident_of(s);
    int64_t cut = 0;
    for (int at = 0; round->due && at < r->heads.cache.heads; at++) {
        const struct gpu_chosen *c = &r->host.chosen[at];
        struct elsewhere_cut x = {
            at,      c->n,         r->host.victim + c->first, r->host.victim_score + c->first,
            c->kept, c->kept_score};
        if (c->n > 0)
            elsewhere_take(s->method, s->cache, &x);
    }
    int err = elsewhere_end(s->method, s->cache, round, on_evict, s, &cut);
    s->cuts += cut > 0;
    return err;
}

/* ---- a step */

/* What kernels are launched for where no head has more than `most` entries: the next multiple of a
 * quarter of the power of two below, so that steps keep their shape while heads grow. */
static int shape_of(int most, int ld)
{
    int part = PAGE_SLOTS;
    while (8 * part <= most)
        part *= 2;
    int n = (most + part - 1) / part * part;
    return n < ld ? n : ld;
}

/* Pages for a newcomer in each head, and where they are. */
static int hold_pages(struct session *s)
{
    struct mirror *m = s->mirror;
    struct resident *r = m->resident;
    int H = s->cache_heads, heads = r->heads.cache.heads, most = 0;
    for (int at = 0; at < heads; at++) {
        int n = cache_view(s->cache, at / H, at % H).n + 1;
        int err = mirror_hold_pages(s, at, (n + PAGE_SLOTS - 1) / PAGE_SLOTS);
        if (err)
            return err;
        most = n > most ? n : most;
    }
    r->heads.cache.most = shape_of(most, r->ld);
    r->heads.cache.pool = m->pool;
    gpu_put(m->gpu, (void *)r->heads.cache.table, m->table,
            (size_t)heads * (size_t)m->ld_table * sizeof *m->table);
    return KVF_OK;
}

static void put_token(struct session *s, int32_t id)
{
    struct mirror *m = s->mirror;
    struct resident *r = m->resident;
    const struct model_config *c = &s->e->config;
    size_t d = (size_t)c->d_model, turn = (size_t)c->rope_dim;
    embed_tokens(s, &id, 1);
    memcpy(r->host.x, s->x, d * sizeof *s->x);
    gpu_put(m->gpu, m->x, r->host.x, d * sizeof *s->x);
    fill_turns(s, s->cos_sin, s->chunk, 0, s->n_past);
    for (int i = 0; i < 2; i++)
        memcpy(r->host.turns + (size_t)i * turn, s->cos_sin + (size_t)i * (size_t)s->chunk * turn,
               turn * sizeof(float));
    gpu_put(m->gpu, r->turns, r->host.turns, 2 * turn * sizeof(float));
    if (!s->gate || gates_inputs(s->gates) != 0)
        return;
    for (int l = 0; l < c->n_layers; l++) { /* the numbers were given */
        struct gate_input in = {.pos = s->n_past};
        gates_eval(s->gates, l, &in, r->host.numbers + l * s->cache_heads, s->part_scratch);
    }
    gpu_put(m->gpu, r->numbers, r->host.numbers, (size_t)r->heads.cache.heads * sizeof(float));
}

/* Numbers that differ from step to step, for kernels whose arguments do not. */
static void put_now(struct session *s)
{
    struct mirror *m = s->mirror;
    struct resident *r = m->resident;
    r->host.now[0] = s->n_past;
    r->host.now[1] = r->window.rows ? r->taken % r->window.ring : 0;
    gpu_put(m->gpu, r->now, r->host.now, 2 * sizeof *r->now);
}

/* The heads of some layers as a cache. */
static struct gpu_cache cache_of(const struct session *s, int layer, int layers)
{
    const struct resident *r = resident_of(s);
    struct gpu_cache c = r->heads.cache;
    size_t first = (size_t)layer * (size_t)s->cache_heads;
    c.heads = layers * s->cache_heads;
    c.table += first * (size_t)c.ld_table;
    c.n += first;
    c.pos += first * (size_t)c.ld_slot;
    return c;
}

static struct gpu_attention attention_of(const struct session *s, int layer, int layers)
{
    const struct model_config *c = &s->e->config;
    return (struct gpu_attention){.cache = cache_of(s, layer, layers),
                                  .q = step_projected(s, layer),
                                  .out = ((struct mirror *)s->mirror)->att,
                                  .ld_q = s->ld_qkv,
                                  .ld_out = s->ld_att,
                                  .n_heads = layers * c->n_heads,
                                  .layer_heads = c->n_heads,
                                  .ld_layer = s->ld_qkv,
                                  .T = 1,
                                  .now = resident_of(s)->now,
                                  .scale = c->attn_scale,
                                  .cap = c->attn_cap};
}

static struct gpu_seen_rows rows_of(const struct session *s, const struct gpu_attention *a,
                                    int layer)
{
    const struct resident *r = resident_of(s);
    size_t first = (size_t)layer * (size_t)s->e->config.n_heads;
    return (struct gpu_seen_rows){*a,
                                  r->rows + first * (size_t)r->ld,
                                  (size_t)r->ld,
                                  r->lse + first,
                                  r->entropy + first,
                                  r->seen + first};
}

static void make_rows(struct session *s, const struct gpu_attention *a, int layer)
{
    struct resident *r = resident_of(s);
    size_t first = (size_t)layer * (size_t)s->e->config.n_heads;
    gpu_rows(((struct mirror *)s->mirror)->gpu, a, r->rows + first * (size_t)r->ld, (size_t)r->ld,
             r->lse + first, r->entropy + first, r->seen + first);
}

/* Brings rows home. */
static void fetch_rows(struct session *s, const struct gpu_seen_rows *rows, int layer)
{
    struct gpu *g = ((struct mirror *)s->mirror)->gpu;
    struct resident *r = resident_of(s);
    size_t first = (size_t)layer * (size_t)s->e->config.n_heads, n = (size_t)rows->a.n_heads;
    gpu_fetch(g, r->host.rows + first * rows->ld, rows->p, n * rows->ld * sizeof *rows->p);
    gpu_fetch(g, r->host.lse + first, rows->lse, n * sizeof *rows->lse);
    gpu_fetch(g, r->host.entropy + first, rows->entropy, n * sizeof *rows->entropy);
    gpu_fetch(g, r->host.seen + first, rows->seen, n * sizeof *rows->seen);
}

/* What probes, evidence and who watches take from the rows of some layers, in launches for all of
 * them.  Nothing else of the step waits for it, so it runs beside the layers behind. */
static void look_at_rows(struct session *s, int layer, int layers)
{
    struct mirror *m = s->mirror;
    struct resident *r = m->resident;
    int G = s->e->config.n_heads;
    struct gpu_attention a = attention_of(s, layer, layers);
    device_reads_of(s, layer, &a);
    struct gpu_seen_rows rows = rows_of(s, &a, layer);
    gpu_aside(m->gpu, true);
    if (!s->e->exact)
        make_rows(s, &a, layer);
    device_probes_take(s, layer, &rows);
    if (method_evidence(s->method) & EVIDENCE_OF_ROWS)
        gpu_take_rows(m->gpu, &r->heads, G / s->cache_heads, layer * G, layers * G, rows.p, rows.ld,
                      rows.lse, rows.seen, r->now, r->sum, r->window.rows ? &r->window : NULL);
    if (r->has_rows)
        fetch_rows(s, &rows, layer);
    gpu_aside(m->gpu, false);
}

/* Where results are exact they follow from the rows, which are then there before all else. */
static void attend(struct session *s, int layer)
{
    struct mirror *m = s->mirror;
    struct resident *r = m->resident;
    struct gpu_attention a = attention_of(s, layer, 1);
    int L = s->e->config.n_layers, part = step_layers_together(s), end = layer + 1;
    device_reads_run(s, layer, r->pre + (size_t)layer * s->ld_pre, &a);
    if (s->e->exact) {
        struct gpu_seen_rows rows = rows_of(s, &a, layer);
        make_rows(s, &a, layer);
        gpu_rows_values(m->gpu, &a, rows.p, rows.ld);
    } else {
        gpu_attend_step(m->gpu, &a, m->work);
    }
    if (step_keeps_rows(s) && (end == L || end % part == 0))
        look_at_rows(s, layer / part * part, end - layer / part * part);
}

static bool wants_unturned(const struct session *s)
{
    return s->keep_pre || recorder_wants(s->recorder) & PROBE_QUERY;
}

/* Whether the query of this step counts among the moments: those of the sinks do not. */
static bool takes_queries(const struct session *s)
{
    return resident_of(s)->query_sum && s->n_past >= method_params_of(s->method)->sinks;
}

float *step_projected(const struct session *s, int layer)
{
    return resident_of(s)->qkv + (size_t)layer * s->ld_qkv;
}

/* Norms and rotation of the newcomer's heads, which go into the cache; unturned ones stay for those
 * who ask. */
static void settle(struct session *s, int layer, float *qkv)
{
    struct mirror *m = s->mirror;
    struct resident *r = m->resident;
    struct gpu_cache cache = cache_of(s, layer, 1);
    struct gpu_newcomer x = device_newcomer(s, layer, 1, r->turns, (size_t)s->e->config.rope_dim);
    x.qkv = qkv;
    x.slot = r->heads.slot + layer * s->cache_heads;
    if (wants_unturned(s) || takes_queries(s))
        x.unturned = r->pre + (size_t)layer * s->ld_pre;
    if (s->e->config.family->qk_norm_wide)
        device_norm_heads(s, layer, 1, qkv);
    gpu_settle(m->gpu, &cache, &x);
}

/* Evidence that the newcomer of a layer gives by itself. */
static void take_newcomer(struct session *s, int layer, const float *qkv)
{
    struct mirror *m = s->mirror;
    struct resident *r = m->resident;
    int H = s->cache_heads, first = layer * H, G = s->e->config.n_heads, D = s->e->config.head_dim;
    const float *pre = r->pre + (size_t)layer * s->ld_pre;
    size_t q = (size_t)layer * (size_t)G * (size_t)D;
    if (takes_queries(s))
        gpu_take_moments(m->gpu, pre, G, D, r->query_sum + q, r->query_outer + q * (size_t)D);
    if (s->gate) {
        const struct device_tokens x = {device_normed(s, layer), pre, qkv, 1};
        device_gates_run(s, layer, &x, r->numbers + first);
    }
    if (r->norms || r->anchor)
        gpu_take_keys(m->gpu, &r->heads, first, H, r->norms, r->anchor);
    if (r->values)
        gpu_take_values(m->gpu, &r->heads, first, H, r->values);
    if (r->gate)
        gpu_take_numbers(m->gpu, &r->heads, first, H, r->gate, r->numbers);
}

void step_attend(struct session *s, int layer)
{
    struct resident *r = resident_of(s);
    float *qkv = step_projected(s, layer);
    settle(s, layer, qkv);
    take_newcomer(s, layer, qkv);
    attend(s, layer);
    if (layer < s->e->config.n_layers - 1)
        return;
    r->taken += r->window.rows != NULL;
    r->n_queries += takes_queries(s);
}

static void fetch_head(struct session *s, float *logits)
{
    struct mirror *m = s->mirror;
    struct resident *r = m->resident;
    const struct model_config *c = &s->e->config;
    gpu_fetch(m->gpu, r->host.normed, m->normed, (size_t)c->d_model * sizeof *m->normed);
    if (device_draws(s))
        device_draw_run(s, logits);
    else if (!s->no_logits)
        gpu_fetch(m->gpu, r->host.logits, m->logits, (size_t)c->vocab * sizeof *m->logits);
}

void step_fetch(struct session *s, float *logits)
{
    struct mirror *m = s->mirror;
    struct resident *r = m->resident;
    size_t L = (size_t)s->e->config.n_layers;
    fetch_head(s, logits);
    if (s->gate)
        gpu_fetch(m->gpu, r->host.numbers, r->numbers,
                  (size_t)r->heads.cache.heads * sizeof *r->numbers);
    device_reads_fetch(s);
    gpu_fetch(m->gpu, r->host.qkv, r->qkv, L * s->ld_qkv * sizeof *r->qkv);
    if (wants_unturned(s))
        gpu_fetch(m->gpu, r->host.pre, r->pre, L * s->ld_pre * sizeof *r->pre);
}

/* ---- what became of it, on the host */

/* The newcomers of a layer are stored, and who watches is told of its rows. */
static void learn_layer(struct session *s, int layer)
{
    struct resident *r = resident_of(s);
    size_t G = (size_t)s->e->config.n_heads, l = (size_t)layer, H = (size_t)s->cache_heads;
    const struct learned_token x = {
        .qkv = r->host.qkv + l * s->ld_qkv,
        .pre = wants_unturned(s) ? r->host.pre + l * s->ld_pre : NULL,
        .gate = s->gate ? r->host.numbers + l * H : NULL,
    };
    device_reads_learn(s, layer);
    layer_learn(s, layer, &x);
    if (!r->has_rows)
        return;
    const struct device_rows rows = {.p = r->host.rows + l * G * (size_t)r->ld,
                                     .lse = r->host.lse + l * G,
                                     .entropy = r->host.entropy + l * G,
                                     .seen = r->host.seen + l * G,
                                     .ld = (size_t)r->ld};
    device_tell(s, layer, &rows);
}

int step_learn(struct session *s, const struct elsewhere_round *round)
{
    struct resident *r = resident_of(s);
    const struct model_config *c = &s->e->config;
    int err = take_round(s, round);
    if (!err)
        err = session_reserve(s);
    for (int l = 0; !err && l < c->n_layers; l++)
        learn_layer(s, l);
    if (err)
        return err;
    cache_account(s->cache);
    memcpy(s->normed, r->host.normed, (size_t)c->d_model * sizeof *s->normed);
    s->has_logits = true;
    s->n_past++;
    if (!device_draw_learn(s) && !s->no_logits) {
        memcpy(s->logits, r->host.logits, (size_t)c->vocab * sizeof *s->logits);
        cap_logits(s, s->logits, c->vocab);
    }
    session_note_step(s);
    return KVF_OK;
}

int step_after(struct session *s, struct elsewhere_round *ret_round, bool *ret_due)
{
    int err = elsewhere_begin(s->method, s->cache, s->n_past, PHASE_AFTER, on_evict, s, ret_round);
    if (err || !ret_round->due)
        return err;
    err = resident_reserve_lists(s, ret_round->most, 0);
    if (err)
        return err;
    launch_round(s, ret_round);
    drop(s, together(s), false, 0);
    *ret_due = true;
    return KVF_OK;
}

int step_learn_after(struct session *s, const struct elsewhere_round *round)
{
    return take_round(s, round);
}

static int begin(struct session *s, struct elsewhere_round *ret_round)
{
    int after = method_params_of(s->method)->order == ORDER_AFTER;
    int64_t n_expired = 0;
    s->stepping = true;
    int err = watch_prepare(s, 1, s->n_past + after);
    if (!err && !resident_fits(s)) {
        err = device_home(s);
        err = err ? err : resident_enter(s);
        err = err ? err : device_gates_open(s, 1);
    }
    if (!err)
        err = session_reserve(s);
    if (!err)
        err = hold_pages(s);
    if (!err)
        err = list_expired(s, s->n_past, &n_expired);
    if (err)
        return err;
    launch_expired(s, n_expired);
    err = elsewhere_begin(s->method, s->cache, s->n_past, PHASE_BEFORE, on_evict, s, ret_round);
    return err ? err : resident_reserve_lists(s, ret_round->most, 0);
}

int step_begin(struct session *s, const float *logits, int32_t id,
               struct elsewhere_round *ret_round)
{
    int err = begin(s, ret_round);
    if (err)
        return err;
    device_draw_begin(s, logits, id);
    if (ret_round->due)
        launch_round(s, ret_round);
    drop(s, ret_round->due ? together(s) : 0, true, s->n_past);
    put_token(s, id);
    put_now(s);
    device_reads_begin(s);
    return KVF_OK;
}

bool device_joins(const struct session *s)
{
    return takes(s) && s->n_past < s->cap;
}
