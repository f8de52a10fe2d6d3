#include <string.h>

#include "base/mem.h"
#include "engine/experiment/divergence.h"
#include "engine/experiment/eval.h"

/* Cells that run side by side: bounds the memory of their evidence. */
enum { TOGETHER = 64 };

/* One cell under way. */
struct lane {
    struct session *session;
    struct method_state *watching; /* until it is adopted */
    struct eval_result sum;
};

struct trial {
    const struct eval *e;
    const struct eval_text *x;
    const struct eval_cell *cell;
    int n;
    struct session *full;
    struct batch *batch;
    struct lane lane[TOGETHER];
    struct method_state *watcher[TOGETHER];
    struct reference p; /* full's prediction of the token to come */
    int32_t target;
};

/* Whether a cell can watch a prompt that runs under full.  What a watcher noted stays in the slots
 * that a layer's window empties. */
static bool can_watch(const struct trial *t, const struct eval_cell *c)
{
    return !t->e->engine->config.window && method_shares_prompt(&c->row, &c->params);
}

/* The gates whose numbers the prompt has: those of the first cell that can watch and needs some. */
static const struct gates *watched_gates(const struct trial *t)
{
    for (int i = 0; i < t->n; i++)
        if (method_gates(&t->cell[i].row) && can_watch(t, &t->cell[i]))
            return t->cell[i].gates;
    return NULL;
}

/* The prompt under full, watched by the cells that run it so. */
static int prefill(struct trial *t, struct kvf_diag *d)
{
    const struct eval *e = t->e;
    const struct model_config *m = &e->engine->config;
    struct method_shape shape = {m->n_layers, m->n_heads, m->n_kv_heads, m->head_dim};
    struct method_inputs in = {
        .model = m, .length = t->x->prompt + t->x->score, .kernels = &e->engine->kernels};
    struct session_options opt = {.gates = watched_gates(t),
                                  .kv_type = e->kv_type,
                                  .cap = t->x->prompt + t->x->score,
                                  .chunk = e->chunk};
    opt.watched_gates = opt.gates != NULL;
    int n = 0, err = session_create(e->engine, &opt, &t->full, d);
    if (err)
        return err;
    for (int i = 0; i < t->n; i++) {
        const struct eval_cell *c = &t->cell[i];
        if (!can_watch(t, c) || (method_gates(&c->row) && c->gates != opt.gates))
            continue;
        in.gates = c->gates;
        err = method_state_create(&c->row, &c->params, &shape, &in, &t->lane[i].watching);
        if (err)
            return err;
        t->watcher[n++] = t->lane[i].watching;
    }
    session_watch(t->full, t->watcher, n);
    err = session_prompt(t->full, t->x->ids, t->x->prompt, NULL, NULL);
    session_watch(t->full, NULL, 0);
    return err;
}

/* A session of the cell after its prompt, cut to its budget. */
static int start(struct trial *t, int i, struct kvf_diag *d)
{
    const struct eval_cell *c = &t->cell[i];
    const struct eval *e = t->e;
    struct lane *l = &t->lane[i];
    struct session_options opt = {.method = &c->row,
                                  .params = &c->params,
                                  .gates = c->gates,
                                  .kv_type = e->kv_type,
                                  .cap = t->x->prompt + t->x->score,
                                  .chunk = l->watching ? 1 : e->chunk};
    int err = l->watching ? session_fork(t->full, &opt, &l->session, d)
                          : session_create(e->engine, &opt, &l->session, d);
    if (err)
        return err;
    err = l->watching ? session_adopt(l->session, l->watching)
                      : session_prompt(l->session, t->x->ids, t->x->prompt, NULL, NULL);
    method_state_destroy(l->watching);
    l->watching = NULL;
    return err;
}

static void score_task(void *ctx, int i, int thread)
{
    struct trial *t = ctx;
    struct lane *l = &t->lane[i];
    struct divergence v = divergence(&t->p, session_logits(l->session), t->target);
    (void)thread;
    l->sum.nll += v.nll;
    l->sum.kl += v.kl;
    l->sum.agree += v.agree;
    l->sum.right += v.right;
}

static void count_entries(struct trial *t, int i)
{
    const struct model_config *m = &t->e->engine->config;
    struct lane *l = &t->lane[i];
    int heads = session_cache_heads(m, &t->cell[i].row, &t->cell[i].params);
    double n = (double)session_cache_stats(l->session).entries;
    n /= (double)m->n_layers * (double)heads;
    l->sum.kv_end = n;
    l->sum.kv_mean += n;
    if (n > l->sum.kv_peak)
        l->sum.kv_peak = n;
    l->sum.triggers = session_cuts(l->session);
}

/* Scores the token to come in all cells where it counts, then feeds it. */
static int advance(struct trial *t, int step)
{
    int32_t id = t->x->ids[t->x->prompt + step];
    t->target = id;
    if (!t->x->counts || t->x->counts[step]) {
        reference_set(&t->p, session_logits(t->full));
        par_run(t->e->engine->pool, t->n, score_task, t);
    }
    struct session *s[TOGETHER + 1] = {t->full};
    int32_t ids[TOGETHER + 1] = {id};
    for (int i = 0; i < t->n; i++) {
        s[i + 1] = t->lane[i].session;
        ids[i + 1] = id;
    }
    int err = batch_step(t->batch, s, t->n + 1, ids);
    if (err)
        return err;
    for (int i = 0; i < t->n; i++)
        count_entries(t, i);
    return KVF_OK;
}

static void finish(struct trial *t)
{
    for (int i = 0; i < t->n; i++) {
        session_destroy(t->lane[i].session);
        method_state_destroy(t->lane[i].watching);
    }
    session_destroy(t->full);
    batch_destroy(t->batch);
    mem_free(t->p.p);
}

static int run(struct trial *t, struct kvf_diag *d)
{
    t->p.n = t->e->engine->config.vocab;
    t->p.p = MEM_NEW(double, (size_t)t->p.n);
    int err = t->p.p ? batch_create(t->e->engine, t->n + 1, &t->batch) : KVF_E_NOMEM;
    if (err)
        return err;
    err = prefill(t, d);
    if (err)
        return err;
    for (int i = 0; i < t->n; i++) {
        err = start(t, i, d);
        if (err)
            return err;
    }
    for (int i = 0; i < t->x->score; i++) {
        err = advance(t, i);
        if (t->e->progress)
            t->e->progress(t->e->ctx, t->n);
        if (err)
            return err;
    }
    return KVF_OK;
}

static struct eval_result mean_of(const struct eval_result *sum, const struct eval_text *x)
{
    struct eval_result r = *sum;
    int n = 0;
    for (int i = 0; i < x->score; i++)
        n += !x->counts || x->counts[i];
    r.nll /= n;
    r.kl /= n;
    r.agree /= n;
    r.right = r.right == n;
    r.kv_mean /= x->score;
    return r;
}

int eval_document(const struct eval *e, const struct eval_text *x, const struct eval_cell *cell,
                  int n, struct eval_result *ret_result, struct kvf_diag *d)
{
    struct trial *t = MEM_NEW(struct trial, 1);
    int err = t ? KVF_OK : KVF_E_NOMEM;
    for (int at = 0; !err && at < n; at += TOGETHER) {
        *t = (struct trial){
            .e = e, .x = x, .cell = cell + at, .n = n - at < TOGETHER ? n - at : TOGETHER};
        err = run(t, d);
        for (int i = 0; !err && i < t->n; i++)
            ret_result[at + i] = mean_of(&t->lane[i].sum, x);
        finish(t);
    }
    mem_free(t);
    return err;
}
