/* effect.c - feeds forks of one prompt with limited caches, and compares them with the full
 * cache. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/experiment/divergence.h"
#include "engine/experiment/effect.h"
#include "engine/experiment/feed.h"

/* Maximum forks that run together; limits their memory. */
enum { TOGETHER = 48 };

/* A prefilled prompt. */
struct effect_run {
    const struct effect *e;
    const int32_t *ids;
    struct session *full; /* after the prompt; never fed again */
    struct batch *batch;
    struct reference p; /* prediction with the full cache */
};

/* The state of a group of cells. Session 0 is the full cache. */
struct group {
    struct effect_run *r;
    const struct effect_cell *cell;
    int n, steps, at; /* cells, steps and present step */
    int32_t target;
    double nll; /* of the target with the full cache */
    struct session *s[TOGETHER + 1];
    struct effect_step *step; /* [n][steps] */
};

static const struct method_params nothing = {.pool = 1, .every = 1, .page = 1};

static int state_of(const struct effect_run *r, const struct method *row,
                    const struct method_params *p, struct method_state **ret)
{
    const struct model_config *m = &r->e->engine->config;
    struct method_shape shape = {m->n_layers, m->n_heads, m->n_kv_heads, m->head_dim};
    struct method_inputs in = {
        .model = m, .length = r->e->prompt + r->e->steps, .kernels = &r->e->engine->kernels};
    return method_state_create(row, p, &shape, &in, ret);
}

/* Applies the method `window` to the heads of the cell and `full` to the other heads from now
 * on. */
static int restrict_heads(const struct effect_run *r, const struct effect_cell *c,
                          struct session *s, struct kvf_diag *d)
{
    struct method row;
    struct method_params p;
    struct method_state *all = NULL, *restricted = NULL;
    char text[64];
    snprintf(text, sizeof text, "window:sinks=%d,recent=%d", c->sinks, c->recent);
    int err = method_parse(text, c->sinks + c->recent, &row, &p, d);
    if (err)
        return err;
    err = state_of(r, &method_presets[0], &nothing, &all);
    if (err)
        goto done;
    err = state_of(r, &row, &p, &restricted);
    if (err)
        goto done;
    err = method_override(all, restricted, c->heads);
    if (err)
        goto done;
    restricted = NULL; /* owned by all now */
    err = session_adopt(s, all);

done:
    method_state_destroy(restricted);
    method_state_destroy(all);
    return err;
}

static int remove_entries(const struct effect_run *r, const struct effect_cell *c,
                          struct session *s)
{
    unsigned char *gone = MEM_NEW(unsigned char, (size_t)r->e->prompt);
    if (!gone)
        return KVF_E_NOMEM;
    for (int i = 0; i < c->n_gone; i++)
        gone[c->gone[i]] = 1;
    int err = session_remove(s, c->heads, gone);
    mem_free(gone);
    return err;
}

/* Removes from each head its own entries (c->lost). */
static int remove_entries_per_head(const struct effect_run *r, const struct effect_cell *c,
                                   struct session *s)
{
    const struct model_config *m = &r->e->engine->config;
    size_t n = (size_t)m->n_layers * (size_t)m->n_kv_heads;
    unsigned char *one = MEM_NEW(unsigned char, n);
    int err = one ? KVF_OK : KVF_E_NOMEM;
    for (size_t i = 0; !err && i < n; i++) {
        if (!c->heads[i])
            continue;
        one[i] = 1;
        err = session_remove(s, one, c->lost + i * (size_t)r->e->prompt);
        one[i] = 0;
    }
    mem_free(one);
    return err;
}

static int fork_full(const struct effect_run *r, struct session **ret, struct kvf_diag *d)
{
    struct session_options opt = {.cap = r->e->prompt + r->e->steps, .chunk = 1};
    return session_fork(r->full, &opt, ret, d);
}

static int start(struct group *g, int i, struct kvf_diag *d)
{
    const struct effect_cell *c = &g->cell[i];
    int err = fork_full(g->r, &g->s[i + 1], d);
    if (err)
        return err;
    if (c->recent > 0) {
        err = restrict_heads(g->r, c, g->s[i + 1], d);
        if (err)
            return err;
    }
    if (c->lost)
        return remove_entries_per_head(g->r, c, g->s[i + 1]);
    return c->n_gone > 0 ? remove_entries(g->r, c, g->s[i + 1]) : KVF_OK;
}

static void score_task(void *ctx, int i, int thread)
{
    struct group *g = ctx;
    struct divergence v = divergence(&g->r->p, session_logits(g->s[i + 1]), g->target);
    (void)thread;
    g->step[(size_t)i * (size_t)g->steps + (size_t)g->at] = (struct effect_step){
        v.kl, v.nll, v.nll - g->nll, v.agree, v.right};
}

/* Feeds the next token to all sessions, then compares their predictions. */
static int advance(struct group *g)
{
    struct effect_run *r = g->r;
    const int32_t *next = r->ids + r->e->prompt + g->at;
    int32_t ids[TOGETHER + 1];
    for (int i = 0; i <= g->n; i++)
        ids[i] = next[0];
    int err = batch_step(r->batch, g->s, g->n + 1, ids);
    if (err)
        return err;
    g->target = next[1];
    reference_set(&r->p, session_logits(g->s[0]));
    g->nll = divergence(&r->p, session_logits(g->s[0]), g->target).nll;
    par_run(r->e->engine->pool, g->n, score_task, g);
    return KVF_OK;
}

/* Updates the memory maximum. Forks share pages only with the cache of the prompt, which keeps all
 * its pages. */
static void update_memory(const struct group *g, struct effect_memory *m)
{
    struct cache_stats st = session_cache_stats(g->r->full);
    int64_t own = st.pages, all = st.pages;
    for (int i = 0; i <= g->n; i++) {
        int64_t pages = session_cache_stats(g->s[i]).pages;
        own += pages - cache_shared(session_cache(g->s[i]));
        all += pages;
    }
    m->page_bytes = st.page_bytes;
    if (own > m->pages) {
        m->pages = own;
        m->pages_unshared = all;
    }
}

static int run_group(struct group *g, struct effect_memory *memory, struct kvf_diag *d)
{
    const struct effect *e = g->r->e;
    int err = fork_full(g->r, &g->s[0], d);
    if (err)
        return err;
    for (int i = 0; i < g->n; i++) {
        err = start(g, i, d);
        if (err)
            goto done;
    }
    for (g->at = 0; g->at < g->steps; g->at++) {
        err = advance(g);
        if (e->progress)
            e->progress(e->ctx, g->n + 1);
        if (err)
            goto done;
    }
    update_memory(g, memory);

done:
    for (int i = 0; i <= g->n; i++)
        session_destroy(g->s[i]);
    return err;
}

/* Returns the number of groups of n cells. Each group runs together with the full cache. */
static int groups_of(int n)
{
    return (n + TOGETHER - 1) / TOGETHER;
}

int64_t effect_tokens(int n, int steps)
{
    return ((int64_t)n + groups_of(n)) * steps;
}

int effect_measure(struct effect_run *r, int steps, const struct effect_cell *cell, int n,
                   struct effect_step *ret_step, struct effect_memory *ret_memory,
                   struct kvf_diag *d)
{
    int groups = groups_of(n), err = KVF_OK;
    struct group *g = MEM_NEW(struct group, 1);
    if (!g)
        return KVF_E_NOMEM;
    for (int i = 0; !err && i < groups; i++) { /* group sizes differ by at most one cell */
        int from = (int)((int64_t)n * i / groups), to = (int)((int64_t)n * (i + 1) / groups);
        *g = (struct group){.r = r,
                            .cell = cell + from,
                            .n = to - from,
                            .steps = steps,
                            .step = ret_step + (size_t)from * (size_t)steps};
        err = run_group(g, ret_memory, d);
    }
    mem_free(g);
    return err;
}

struct looker {
    void (*fn)(void *ctx, const struct attn_row *row, const struct cache *c);
    void *ctx;
    const struct cache *cache;
};

static void on_row(void *ctx, const struct attn_row *row)
{
    const struct looker *k = ctx;
    k->fn(k->ctx, row, k->cache);
}

int effect_look(struct effect_run *r, int query,
                void (*fn)(void *ctx, const struct attn_row *row, const struct cache *c), void *ctx,
                struct kvf_diag *d)
{
    struct session *s = NULL;
    int err = fork_full(r, &s, d);
    if (err)
        return err;
    struct looker k = {fn, ctx, session_cache(s)};
    err = session_feed(s, r->ids + r->e->prompt, query - r->e->prompt, NULL, NULL);
    session_on_row(s, on_row, &k);
    if (!err)
        err = session_step(s, r->ids[query]);
    if (r->e->progress)
        r->e->progress(r->e->ctx, query + 1 - r->e->prompt);
    session_destroy(s);
    return err;
}

int effect_continue(struct effect_run *r, int32_t *ids, bool ignore_end, int *ret_n)
{
    const struct tokenizer *t = r->e->engine->tokenizer;
    struct session *s = NULL;
    int n = 0, err = fork_full(r, &s, NULL);
    while (!err) {
        reference_set(&r->p, session_logits(s));
        int32_t id = r->p.best;
        ids[r->e->prompt + n++] = id;
        if (n > r->e->steps || (!ignore_end && tokenizer_is_eog(t, id)))
            break;
        err = session_step(s, id);
        if (r->e->progress)
            r->e->progress(r->e->ctx, 1);
    }
    session_destroy(s);
    if (!err)
        *ret_n = n;
    return err;
}

int effect_open(const struct effect *e, const int32_t *ids, struct effect_run **ret_run,
                struct kvf_diag *d)
{
    struct effect_run *r = MEM_NEW(struct effect_run, 1);
    struct session_options opt = {
        .kv_type = e->kv_type, .cap = e->prompt + e->steps, .chunk = e->chunk};
    if (!r)
        return KVF_E_NOMEM;
    r->e = e;
    r->ids = ids;
    r->p.n = e->engine->config.vocab;
    r->p.p = MEM_NEW(double, (size_t)r->p.n);
    int err = r->p.p ? batch_create(e->engine, TOGETHER + 1, &r->batch) : KVF_E_NOMEM;
    if (err)
        goto fail;
    err = session_create(e->engine, &opt, &r->full, d);
    if (err)
        goto fail;
    err = feed_prompt(r->full, ids, e->prompt, e->progress, e->ctx);
    if (err)
        goto fail;
    *ret_run = r;
    return KVF_OK;

fail:
    effect_close(r);
    return err;
}

void effect_close(struct effect_run *r)
{
    if (!r)
        return;
    session_destroy(r->full);
    batch_destroy(r->batch);
    mem_free(r->p.p);
    mem_free(r);
}
